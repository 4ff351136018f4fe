package sim_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/faults.md has a line for every row of the catalogue. Each names a test or says why there
// is none, and the tests it names exist.
func TestCatalogueNamesTests(t *testing.T) {
	const root = "../.."
	b, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	have := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range decl.FindAllStringSubmatch(string(src), -1) {
			have[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range regexp.MustCompile(`Test\w+`).FindAllString(doc, -1) {
		if !have[n] {
			t.Errorf("docs/faults.md names %s, which does not exist", n)
		}
	}
	choices(t, root, have)
	// In the other direction, each number of a test is a row.
	number := regexp.MustCompile(`^Test([FT]\d+)[A-Z]`)
	for n := range have {
		if m := number.FindStringSubmatch(n); m != nil && !strings.Contains(doc, "\n| "+m[1]+" | ") {
			t.Errorf("%s carries a number that is no row of docs/faults.md", n)
		}
	}
	row := func(id string) {
		i := strings.Index(doc, "\n| "+id+" | ")
		if i < 0 {
			t.Errorf("docs/faults.md has no row %s", id)
			return
		}
		line, _, _ := strings.Cut(doc[i+1:], "\n")
		if !regexp.MustCompile(`Test\w|later: \w|open: \w|by construction: \w`).MatchString(line) {
			t.Errorf("row %s names neither test nor reason", id)
		}
	}
	for i := range 37 {
		row(fmt.Sprintf("F%d", i+1))
	}
	for i := range 41 {
		row(fmt.Sprintf("T%d", i+1))
	}
}

// choices checks docs/protocol/choices.md: each line names a test or a trace, and what it names
// exists, its rules too.
func choices(t *testing.T, root string, have map[string]bool) {
	t.Helper()
	dir := filepath.Join(root, "docs", "protocol")
	b, err := os.ReadFile(filepath.Join(dir, "choices.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := ""
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		rules += string(b)
	}
	trace := func(name string) bool {
		for _, d := range []string{"transport/testdata", "transport/internal/pds/testdata/trace", "transport/internal/ses/testdata"} {
			if _, err := os.Stat(filepath.Join(root, d, name)); err == nil {
				return true
			}
		}
		return false
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 4 || strings.HasPrefix(line, "| question") {
			continue
		}
		rows++
		for _, r := range regexp.MustCompile(`S-[A-Z]+-\d+`).FindAllString(cells[2], -1) {
			if !strings.Contains(rules, "\n| "+r+" | ") {
				t.Errorf("choices.md: %s: no rule %s", cells[0], r)
			}
		}
		shown := regexp.MustCompile(`Test\w+|\w+\.txt`).FindAllString(cells[3], -1)
		if len(shown) == 0 {
			t.Errorf("choices.md: %s: nothing shows it", cells[0])
		}
		for _, n := range shown {
			if strings.HasPrefix(n, "Test") && !have[n] || !strings.HasPrefix(n, "Test") && !trace(n) {
				t.Errorf("choices.md: %s: %s does not exist", cells[0], n)
			}
		}
	}
	if rows < 50 {
		t.Errorf("choices.md has %d lines", rows)
	}
}
