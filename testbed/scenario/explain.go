package scenario

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/netip"
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
	keys []string
	how  []string // how the value of each is written
	doc  string
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
				fmt.Fprintf(w, "  %s = %s\n", k, e.how[i])
			}
			wrap(w, "      ", e.doc)
		}
		fmt.Fprintln(w)
	}
	if found {
		return nil
	}
	how := "`testbed explain` shows them all"
	if c := spelling.Closest(what, names, 3); c != "" {
		how = c + " is meant? " + how
	}
	return fmt.Errorf("no table or key %q in a scenario: %s", what, how)
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
		t := &table{name: strings.ToLower(typ.Name()), at: []string{at}, doc: docs[typ.Name()].of}
		seen[typ] = t
		out = append(out, t)
		keys := strings.NewReplacer(renamed(typ)...)
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
			inner, how := f.Type, ""
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if how = written(f.Type); how == "" {
				how = "{ … }, see " + strings.ToLower(inner.Name())
				if f.Type.Kind() == reflect.Slice {
					how = "[{ … }], or [[" + place(key) + "]], see " + strings.ToLower(inner.Name())
				}
			}
			doc := docs[typ.Name()].fields[f.Name]
			if n := len(t.keys); doc == above && n > 0 {
				e := &t.keys[n-1]
				e.keys, e.how = append(e.keys, key), append(e.how, how)
			} else {
				t.keys = append(t.keys, entry{[]string{key}, []string{how}, keys.Replace(doc)})
			}
			if written(f.Type) == "" {
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

// renamed returns the names of fields and the keys that stand for them in texts.
func renamed(typ reflect.Type) (pairs []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if key := f.Tag.Get("toml"); key != "" && key != "-" {
			for _, end := range []string{" ", ",", ".", ";", ":", ")"} {
				pairs = append(pairs, f.Name+end, "`"+key+"`"+end)
			}
		}
	}
	return pairs
}

// written says how a value of a type is written; "" for tables.
func written(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[fabric.Duration]():
		return `"1.5ms"`
	case reflect.TypeFor[fabric.Bytes]():
		return `"64KiB"`
	case reflect.TypeFor[fabric.Rate]():
		return `"200Mbit/s"`
	case reflect.TypeFor[netip.Prefix]():
		return `"198.18.16.0/24"`
	}
	switch t.Kind() {
	case reflect.String:
		return `"…"`
	case reflect.Bool:
		return "true"
	case reflect.Float64:
		return "0.02"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint16, reflect.Uint8:
		return "4"
	case reflect.Slice:
		if inner := written(t.Elem()); inner != "" {
			return "[" + inner + ", …]"
		}
	}
	return ""
}

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
