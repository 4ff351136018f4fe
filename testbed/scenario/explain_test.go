package scenario

import (
	"strings"
	"testing"
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
		"scenario.toml\n", "\nline: host.from, host.to, fabric.spine, fabric.from, fabric.to, event.set\n", "\n  rate = \"200Mbit/s\"\n",
		"\nrule: line.rule, event.rule\n", "\n  loss = 0.02\n", "\n  on = [\"…\", …]\n      `on` names the lines", "\n  host = [{ … }], or [[host]], see host\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said", want)
		}
	}
	for _, tab := range explained() {
		if tab.name != "burst" && (tab.doc == "" || len(tab.keys) == 0) {
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
