package record

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the schema and its page anew")

const (
	schemaFile = "../../../docs/record.schema.json"
	pageFile   = "../../../docs/record.md"
)

var recordType = reflect.TypeFor[Record]()

// An object describes the keys of a struct, in their order.
type object struct {
	name  string
	about string
	keys  []key
}

type key struct {
	name, about string
	typ         reflect.Type
	always      bool // it is in every record
}

// describer finds what the source says of the types of this package and their fields.
type describer struct {
	types  map[string]string // by name
	fields map[string]string // by type and field
	seen   map[reflect.Type]bool
	out    []object
}

func newDescriber(t *testing.T) *describer {
	t.Helper()
	d := &describer{types: map[string]string{}, fields: map[string]string{}, seen: map[reflect.Type]bool{}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				ts := spec.(*ast.TypeSpec)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				d.types[ts.Name.Name] = text(g.Doc)
				said := ""
				for _, f := range st.Fields.List {
					if f.Doc != nil {
						said = text(f.Doc)
					} else if f.Comment != nil {
						said = text(f.Comment)
					}
					for _, n := range f.Names {
						// A comment above several fields names them; it is that of those only.
						if f.Doc != nil || f.Comment != nil || strings.Contains(said, n.Name) {
							d.fields[ts.Name.Name+"."+n.Name] = said
						}
					}
				}
			}
		}
	}
	return d
}

func text(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// visit describes a struct and those that it has.
func (d *describer) visit(t reflect.Type) {
	if d.seen[t] {
		return
	}
	d.seen[t] = true
	o := object{name: t.Name(), about: d.types[t.Name()]}
	at := len(d.out)
	d.out = append(d.out, o)
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		o.keys = append(o.keys, key{name, d.fields[t.Name()+"."+f.Name], f.Type, !strings.Contains(opts, "omit") && f.Type.Kind() != reflect.Pointer})
		if e := below(f.Type); e.Kind() == reflect.Struct && e.Name() != "Time" {
			d.visit(e)
		}
	}
	d.out[at] = o
}

// below is the type of the elements, or what is pointed to.
func below(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// schemaOf returns the JSON Schema of a type.
func schemaOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		if t.Name() == "Time" {
			return map[string]any{"type": "string", "format": "date-time"}
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	panic("no schema for " + t.String())
}

// document returns the whole schema.
func document(all []object) []byte {
	defs := map[string]any{}
	for _, o := range all {
		props, always := map[string]any{}, []string{}
		for _, k := range o.keys {
			p := schemaOf(k.typ)
			if k.about != "" {
				p["description"] = k.about
			}
			if k.name == "schema" {
				p["const"] = Schema
			}
			if props[k.name] = p; k.always {
				always = append(always, k.name)
			}
		}
		defs[o.name] = map[string]any{"type": "object", "description": o.about, "properties": props, "required": always}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Record of uetperf, " + Schema, "$ref": "#/$defs/" + all[0].name, "$defs": defs,
	})
	return b.Bytes()
}

// page returns the same for people.
func page(all []object) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# The record of uetperf

`+"`uetperf … -J FILE`"+` writes one JSON object, the record, schema `+"`%s`"+`. Numbers are in the unit that their key names (`+"`_ns`"+` nanoseconds, `+"`_bps`"+` bits a second). A number that is absent
was not measured; a zero was. Keys may be added; a removed or renamed one makes another schema. [record.schema.json](record.schema.json) is the same for programs (JSON Schema 2020-12).
`+"`--csv FILE`"+` has one line for each run, whose column `+"`trip`"+` says what the times are: `+"`half`"+` a round trip, a `+"`whole`"+` one (or from the call of an operation to its completion), or a `+"`call`"+` of a collective.

Both are written by `+"`go test ./cmd/uetperf/record -update`"+` from the types of [cmd/uetperf/record](../cmd/uetperf/record), and the tests hold them to each other.
`, Schema)
	for _, o := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | what |\n|---|---|---|\n", o.name, o.about)
		for _, k := range o.keys {
			what := strings.ReplaceAll(k.about, "|", "\\|")
			if !k.always {
				what = strings.TrimSpace(what + " *May be absent.*")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.name, word(k.typ), what)
		}
	}
	return b.Bytes()
}

// word names a type for people.
func word(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return word(t.Elem())
	case reflect.Slice:
		return "list of " + word(t.Elem())
	case reflect.Map:
		return "object of " + word(t.Elem())
	case reflect.Struct:
		if t.Name() == "Time" {
			return "time"
		}
		return "[" + t.Name() + "](#" + strings.ToLower(t.Name()) + ")"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// The schema and its page are those of the types, and the records of the example meet it; the
// scripts of uetperf hold it against what each test writes.
func TestJSONSchema(t *testing.T) {
	d := newDescriber(t)
	d.visit(recordType)
	fill(d.out)
	for file, want := range map[string][]byte{schemaFile: document(d.out), pageFile: page(d.out)} {
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types say (%v); go test ./cmd/uetperf/record -update writes it anew", file, err)
		}
	}
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../docs/example/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		// What the schema does not allow is refused.
		v.(map[string]any)["seed"] = "seven"
		if schema.Validate(v) == nil {
			t.Errorf("%s with a seed that is no number meets the schema", file)
		}
	}
}
