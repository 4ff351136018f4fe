package scenario

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/metrics"
)

func explain(t *testing.T, what string) string {
	t.Helper()
	var b strings.Builder
	if err := Explain(&b, what); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	// Every key that a scenario may have is explained, where it stands and how it is written.
	all := explain(t, "")
	for _, want := range []string{
		"scenario.toml\n", "\nline: host.from, host.to, fabric.spine, fabric.from, fabric.to, event.set\n", "\n  rate = \"200Mbit/s\"         # a rate: a number",
		"\nrule: line.rule, event.rule\n", "\n  loss = 0.02 ", "\n  on = [\"s.to\", \"c.from\"]    # names of lines\n      `on` names the lines", "\n  host = [{ … }], or [[host]], see host\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said", want)
		}
	}
	for _, tab := range explained() {
		if tab.doc == "" || len(tab.keys) == 0 {
			t.Errorf("%s: %q, %d keys", tab.name, tab.doc, len(tab.keys))
		}
	}
	// One key, in one table and in all.
	if s := explain(t, "event.at"); !strings.HasPrefix(s, "event\n") || strings.Count(s, "at = ") != 1 {
		t.Error(s)
	}
	if s := explain(t, "at"); strings.Count(s, "  at = ") != 3 {
		t.Error(s)
	}
	if s := explain(t, "fabric.to"); !strings.HasPrefix(s, "fabric\n") && !strings.HasPrefix(s, "line: ") {
		t.Error(s)
	}
	for what, want := range map[string]string{"los": "loss is meant?", "zzzzzzz": "no table or key \"zzzzzzz\"", "rule.zzzzz": "no table or key"} {
		if err := Explain(&strings.Builder{}, what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Each key has a grammar, with an example that a scenario may have as it is; each grammar a key.
func TestEveryKeyHasAGrammar(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Scenario](), reflect.TypeFor[Host](), reflect.TypeFor[Fabric](), reflect.TypeFor[Traffic](), reflect.TypeFor[Action](), reflect.TypeFor[Assert](),
		reflect.TypeFor[fabric.Line](), reflect.TypeFor[fabric.ECN](), reflect.TypeFor[fabric.Trim](), reflect.TypeFor[fabric.Classes](), reflect.TypeFor[fabric.Rule](),
		reflect.TypeFor[fabric.Burst](), reflect.TypeFor[fabric.Replay](), reflect.TypeFor[fabric.Match](), reflect.TypeFor[fabric.Event](),
	} {
		types[strings.ToLower(typ.Name())] = typ
		if !slices.Contains(tableNames, typ.Name()) {
			t.Errorf("%s is not among the names of tables", typ.Name())
		}
	}
	seen := map[string]bool{}
	for _, tab := range explained() {
		typ := types[tab.name]
		if typ == nil {
			t.Errorf("table %s: no type", tab.name)
			continue
		}
		for _, e := range tab.keys {
			for i, k := range e.keys {
				name := tab.name + "." + k
				seen[name] = true
				switch g := e.how[i]; {
				case e.kinds[i] == reflect.Struct:
					if !strings.Contains(g.example, "{ … }") {
						t.Errorf("%s is a table and is written %q", name, g.example)
					}
				case g.example == "" || g.of == "":
					t.Errorf("%s has no grammar", name)
				default:
					line := k + " = " + g.example
					if md, err := toml.Decode(line+" # "+g.of, reflect.New(typ).Interface()); err != nil || len(md.Undecoded()) > 0 {
						t.Errorf("%s: %s: %v", name, line, err)
					}
				}
			}
		}
	}
	for name := range grammars {
		if !seen[name] {
			t.Errorf("%s has a grammar and is no key", name)
		}
	}
	expr := strings.Trim(grammars["assert.expr"].example, "'")
	if _, err := metrics.Names([]string{"c"}, []string{"s.to"}).Compile(expr); err != nil {
		t.Errorf("%s: %v", expr, err)
	}
}

// Texts call things as scenarios do, not as the Go types behind them.
func TestExplainSpeaksOfKeys(t *testing.T) {
	all := explain(t, "")
	for _, word := range []string{"Min", "Max", "Prob", "After", "AfterRTX", "DefaultQueue", "DefaultClasses", "QueueHigh", "Scenario", "Line", "NoCheck", "Default`"} {
		if m := regexp.MustCompile(`.*\b` + word + `.*`).FindString(all); m != "" {
			t.Errorf("%s: %s", word, m)
		}
	}
}

// A shell completes what is explained.
func TestKeys(t *testing.T) {
	keys := Keys()
	for _, want := range []string{"limit", "rule", "rule.loss", "event.on", "burst.enter"} {
		if !slices.Contains(keys, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, k := range keys {
		explain(t, k)
	}
}
