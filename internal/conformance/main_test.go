package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func loadHouse(t *testing.T) (*state, string) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	s, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

func TestDocumentIsUpToDate(t *testing.T) {
	s, root := loadHouse(t)
	for name, want := range map[string][]byte{outFile: s.document(), openFile: s.openList()} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: go run ./internal/conformance", name)
		}
	}
}

func TestNothingIsOpenUnlisted(t *testing.T) {
	s, _ := loadHouse(t)
	if more := s.unlisted(); len(more) > 0 {
		t.Errorf("neither a test nor an exception for %v", more)
	}
	if open := s.open(); len(open) > 0 {
		t.Logf("%d rules are open: %v", len(open), open)
	}
}

// The page of the semantic sublayer tells the rules S of the list, each once, and no others.
func TestEveryRuleIsTold(t *testing.T) {
	s, root := loadHouse(t)
	page, err := os.ReadFile(filepath.Join(root, "docs/protocol/ses.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[rule]int{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			if r, ok := parseRule(strings.TrimSpace(cells[1])); ok {
				if told[r]++; !s.known(r) {
					t.Errorf("%v is told, and not in %s", r, rulesFile)
				}
			}
		}
	}
	s.all(func(r rule, _ string) {
		if strings.HasPrefix(r.area, "S-") && told[r] != 1 {
			t.Errorf("%v is told %d times", r, told[r])
		}
	})
}

func TestCited(t *testing.T) {
	for text, want := range map[string]string{
		"R-CQ-47":                          "R-CQ-47",
		"R-CQ-07: what cannot be held":     "R-CQ-07",
		"R-CQ-47, -48 and -49: 3 of them":  "R-CQ-47 R-CQ-48 R-CQ-49",
		"R-CQ-08,\n// -10":                 "R-CQ-08", // comment marks are removed before
		"R-CQ-08,\n-10, R-EQ-03":           "R-CQ-08 R-CQ-10 R-EQ-03",
		"R-CQ-12 to -14, -16":              "R-CQ-12 R-CQ-13 R-CQ-14 R-CQ-16",
		"R-ERR-30 to R-ERR-32":             "R-ERR-30 R-ERR-31 R-ERR-32",
		"R-ERR-01 to 03":                   "R-ERR-01 R-ERR-02 R-ERR-03",
		"(R-CQ-101) and R-CQ-102.":         "R-CQ-101 R-CQ-102",
		"R-CQ-45: 1 … 10 entries":          "R-CQ-45",
		"OR-CQ-45 R-CQ-4 R-cq-44 R-CQ-1x0": "",
		"R-CQ-47, 48 entries":              "R-CQ-47",
		"S-DEF-02, -03 and R-CQ-01 to -02": "R-CQ-01 R-CQ-02 S-DEF-02 S-DEF-03",
		"S-DEF-02 to S-DEF-03, R-DEF-02":   "R-DEF-02 S-DEF-02 S-DEF-03",
	} {
		if got := strings.Trim(fmt.Sprint(cited(text)), "[]"); got != want {
			t.Errorf("%q: %s; want %s", text, got, want)
		}
	}
}

// house writes a module with rules and files.
func house(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		rulesFile:      "# A: first\nR-A-01 one\nR-A-02 two\nR-A-03 three\n# B: second\nR-B-01 one\n# S-A: third\nS-A-01 one\nS-A-10 ten\n",
		exceptionsFile: "R-A-03 not\n",
		openFile:       "at most 1\nR-B-01\n",
		"x/s_test.go":  "package x\n// S-A-01, S-A-10, S-PDC-01.\nfunc TestS() {}\n",
		"x/x_test.go":  "package x\n// R-A-01.\nfunc TestX() { help() }\n\nfunc help() {\n\t// R-A-02: in a helper.\n}\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDocument(t *testing.T) {
	// The test of another package in the same folder uses its own helper of that name.
	// Four tests that share a helper are named, of five the helper is.
	shared := "package y\n\n// S-A-01.\nfunc help() {}\n\nfunc also() { help() }\n\n// S-A-10.\nfunc four() {}\n"
	for i := range 5 {
		shared += fmt.Sprintf("\nfunc Test%d() { also() }\n", i)
		if i < 4 {
			shared += fmt.Sprintf("\nfunc Example%d() { four() }\n", i)
		}
	}
	shared += "\n// S-A-01.\nfunc TestItself() {}\n"
	root := house(t, map[string]string{
		"x/z_test.go": "package x_test\n\nfunc TestZ() { help() }\n\nfunc help() {}\n",
		"y/y_test.go": shared,
	})
	if err := rewrite(root); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, outFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| [A](#a) | first | 3 | 2 | 1 | 0 |\n",
		"| [B](#b) | second | 1 | 0 | 0 | 1 |\n",
		"| all | | 4 | 2 | 1 | 1 |\n",
		"| R-A-01 | one | x/x_test.go:TestX |\n",
		"| R-A-02 | two | x/x_test.go:TestX |\n",
		"| R-A-03 | three | *excepted:* not |\n",
		"| R-B-01 | one | **open** |\n",
		"| [S-A](#s-a) | third | 2 | 2 | 0 | 0 |\n| all | | 2 | 2 | 0 | 0 |\n",
		"## S-A\n\nThird.\n",
		"| S-A-01 | one | x/s_test.go:TestS<br>y/y_test.go:TestItself<br>y/y_test.go:help, a helper of 5 tests |\n",
		"| S-A-10 | ten | x/s_test.go:TestS<br>y/y_test.go:Example0<br>y/y_test.go:Example1<br>y/y_test.go:Example2<br>y/y_test.go:Example3 |\n",
	} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestOpenListShrinksAndNeverGrows(t *testing.T) {
	root := house(t, nil)
	path := filepath.Join(root, "x/x_test.go")
	if err := os.WriteFile(path, []byte("package x\nfunc TestX() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(root); err == nil || !strings.Contains(err.Error(), "[R-A-01 R-A-02]") {
		t.Errorf("rules that lost their tests: %v", err)
	}
	if err := os.WriteFile(path, []byte("package x\n\nfunc TestX() { _ = `R-A-01 to -03, R-B-01` }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(root); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, openFile)); !strings.HasSuffix(string(got), "at most 0\n") {
		t.Errorf("the list did not shrink: %s", got)
	}
	if err := os.Remove(filepath.Join(root, "x/s_test.go")); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(root); err == nil || !strings.Contains(err.Error(), "[S-A-01 S-A-10]") {
		t.Errorf("rules of UET that lost their tests: %v", err)
	}
}

func TestMistakesAreFound(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"a rule that does not exist":   {"x/y_test.go", "package x\n\n// R-A-04.\nfunc TestY() {}\n", "no rule R-A-04"},
		"a rule of UET in a gap":       {"x/y_test.go", "package x\n\n// S-A-02.\nfunc TestY() {}\n", "no rule S-A-02"},
		"a rule of UET, alone":         {"x/y_test.go", "package x\n\n// S-A-01.\nfunc alone() {}\n", "where no test comes by"},
		"a rule of UET out of place":   {rulesFile, "S-A-01 one\nR-A-01 one\nS-A-02 two\n", "out of turn"},
		"rules of UET backwards":       {rulesFile, "S-A-03 one\nS-A-02 two\n", "out of turn"},
		"a helper that nobody uses":    {"x/y_test.go", "package x\n\n// R-A-01.\nfunc alone() {}\n", "where no test comes by"},
		"a comment between":            {"x/y_test.go", "package x\n\n// R-A-01.\n\nfunc TestY() {}\n", "where no test comes by"},
		"a benchmark proves nothing":   {"x/y_test.go", "package x\n\n// R-A-01.\nfunc BenchmarkY() {}\n", "where no test comes by"},
		"exceptions out of order":      {exceptionsFile, "R-A-02 a\nR-A-01 b\n", "out of order"},
		"an exception twice":           {exceptionsFile, "R-A-02 a\nR-A-02 b\n", "out of order"},
		"an exception without reason":  {exceptionsFile, "R-A-02\n", "no rule and text"},
		"an exception of nothing":      {exceptionsFile, "R-C-01 a\n", "no rule R-C-01"},
		"an open list that grew":       {openFile, "at most 1\nR-B-01\nR-A-01\n", "at most 1"},
		"an open rule of nothing":      {openFile, "at most 1\nR-B-02\n", "is no rule"},
		"rules out of turn":            {rulesFile, "# A: first\nR-A-01 one\nR-A-03 three\n", "out of turn"},
		"a number that is cited twice": {rulesFile, "R-A-01 one\nR-A-01 again\n", "out of turn"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(house(t, map[string]string{c.file: c.text}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
