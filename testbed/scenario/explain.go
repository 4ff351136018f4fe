package scenario

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/internal/spelling"
	"github.com/uetkit/uetkit/testbed/fabric"
)

//go:embed scenario.go
var source string

// A table is a kind of TOML table: a struct, and where it may stand.
type table struct {
	name string // line, rule, …
	at   []string
	doc  string
	keys []entry
}

// An entry is one or more keys that one comment explains.
type entry struct {
	keys  []string
	how   []grammar // how the value of each is written
	kinds []reflect.Kind
	doc   string
}

// Explain writes what the keys of a scenario.toml mean: all of them, or those of one table or
// one name. The texts are the comments of the Go types that the file is read into.
func Explain(w io.Writer, what string) error {
	tables := explained()
	var names []string
	found := false
	for _, t := range tables {
		names = append(names, t.name)
		whole := what == "" || what == t.name || slices.Contains(t.at, what)
		var said []entry
		for _, e := range t.keys {
			names = append(names, e.keys...)
			if whole || slices.Contains(e.keys, what[strings.LastIndex(what, ".")+1:]) && (!strings.Contains(what, ".") || t.has(what)) {
				said = append(said, e)
			}
		}
		if len(said) == 0 {
			continue
		}
		found = true
		fmt.Fprintf(w, "%s\n", t.title())
		if whole {
			wrap(w, "  ", t.doc)
		}
		for _, e := range said {
			fmt.Fprintln(w)
			for i, k := range e.keys {
				line := fmt.Sprintf("  %s = %s", k, e.how[i].example)
				if of := e.how[i].of; of != "" {
					line = fmt.Sprintf("%-28s # %s", line, of)
				}
				fmt.Fprintln(w, line)
			}
			wrap(w, "      ", e.doc)
		}
		fmt.Fprintln(w)
	}
	if found {
		return nil
	}
	how := "`testbed explain` shows them all"
	if strings.Contains(what, ".") {
		names = Keys()
	}
	if c := spelling.Closest(what, names, 3); c != "" {
		how = c + " is meant? " + how
	}
	return fmt.Errorf("no table or key %q in a scenario: %s", what, how)
}

// Keys returns what Explain knows: the tables, and their keys behind a dot; those of the file itself
// stand alone.
func Keys() (keys []string) {
	for _, t := range explained() {
		if t.name != "scenario" {
			keys = append(keys, t.name)
		}
		for _, e := range t.keys {
			for _, k := range e.keys {
				if t.name != "scenario" {
					k = t.name + "." + k
				}
				if !slices.Contains(keys, k) {
					keys = append(keys, k)
				}
			}
		}
	}
	return keys
}

// has reports whether one of the places of the table and a key of it are the path what.
func (t *table) has(what string) bool {
	dot := strings.LastIndex(what, ".")
	return what[:dot] == t.name || slices.Contains(t.at, what[:dot])
}

func (t *table) title() string {
	switch {
	case t.name == "scenario":
		return File
	case slices.Equal(t.at, []string{t.name}):
		return t.name
	}
	return t.name + ": " + strings.Join(t.at, ", ")
}

// explained returns all tables, each once.
func explained() []*table {
	docs := comments(source, fabric.ConfigSource)
	var out []*table
	seen := map[reflect.Type]*table{}
	var walk func(t reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		if t := seen[typ]; t != nil {
			if !slices.Contains(t.at, at) {
				t.at = append(t.at, at)
			}
			return
		}
		t := &table{name: strings.ToLower(typ.Name()), at: []string{at}, doc: inKeys(docs[typ.Name()].of, typ)}
		seen[typ] = t
		out = append(out, t)
		var inside []func()
		place := func(key string) string {
			if t.name == "scenario" {
				return key
			}
			return t.name + "." + key
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			key := f.Tag.Get("toml")
			if key == "" || key == "-" {
				continue
			}
			inner, how := f.Type, grammarOf(t.name, key, f.Type)
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			isTable := kindOf(inner) == reflect.Struct
			if isTable {
				how.example = "{ … }, see " + strings.ToLower(inner.Name())
				if f.Type.Kind() == reflect.Slice {
					how.example = "[{ … }], or [[" + place(key) + "]], see " + strings.ToLower(inner.Name())
				}
			}
			doc := docs[typ.Name()].fields[f.Name]
			if n := len(t.keys); doc == above && n > 0 {
				e := &t.keys[n-1]
				e.keys, e.how, e.kinds = append(e.keys, key), append(e.how, how), append(e.kinds, kindOf(f.Type))
			} else {
				types := []reflect.Type{typ}
				if isTable {
					types = append(types, inner)
				}
				t.keys = append(t.keys, entry{[]string{key}, []grammar{how}, []reflect.Kind{kindOf(f.Type)}, inKeys(doc, types...)})
			}
			if isTable {
				inside = append(inside, func() { walk(inner, place(key)) })
			}
		}
		for _, f := range inside {
			f()
		}
	}
	walk(reflect.TypeFor[Scenario](), "")
	return out
}

// name matches a word that may be the name of a field or type.
var name = regexp.MustCompile(`\b[A-Z]\w*\b`)

// inKeys returns a text of comments for people who write scenarios: fields are called by their
// keys, those of the first type that has one of the name, and types by the names of their tables.
func inKeys(text string, types ...reflect.Type) string {
	return name.ReplaceAllStringFunc(text, func(word string) string {
		for _, t := range types {
			if f, ok := t.FieldByName(word); ok {
				if key := f.Tag.Get("toml"); key != "" && key != "-" {
					return "`" + key + "`"
				}
			}
		}
		if slices.Contains(tableNames, word) {
			return "`" + strings.ToLower(word) + "`"
		}
		return word
	})
}

// tableNames are the Go types of tables.
var tableNames = []string{"Scenario", "Host", "Fabric", "Traffic", "Action", "Assert", "Line", "ECN", "Trim", "Classes", "Rule", "Burst", "Replay", "Match", "Event"}

// described has the comments of a type and of its fields.
type described struct {
	of     string
	fields map[string]string
}

// above stands for the comment of a field that follows another one directly and has none.
const above = "above"

// comments returns the comments of the types in Go files, by name.
func comments(files ...string) map[string]described {
	out := map[string]described{}
	for _, src := range files {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "", src, parser.ParseComments)
		if err != nil {
			panic("BUG: scenario: " + err.Error())
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || len(g.Specs) != 1 {
				continue
			}
			spec, ok := g.Specs[0].(*ast.TypeSpec)
			if !ok {
				continue
			}
			t := described{of: text(g.Doc), fields: map[string]string{}}
			if s, ok := spec.Type.(*ast.StructType); ok {
				last := 0 // line of the field before
				for _, field := range s.Fields.List {
					doc := strings.TrimSpace(text(field.Doc) + " " + text(field.Comment))
					line := set.Position(field.Pos()).Line
					if doc == "" && line == last+1 {
						doc = above
					}
					for _, n := range field.Names {
						t.fields[n.Name] = doc
					}
					last = set.Position(field.End()).Line
				}
			}
			out[spec.Name.Name] = t
		}
	}
	return out
}

func text(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

var words = regexp.MustCompile(`\S+`)

// wrap writes a text in lines of at most 96 letters.
func wrap(w io.Writer, indent, text string) {
	line := ""
	for _, word := range words.FindAllString(text, -1) {
		if line != "" && len(indent)+len(line)+1+len(word) > 96 {
			fmt.Fprintln(w, indent+line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}
