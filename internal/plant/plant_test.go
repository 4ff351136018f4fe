package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake returns a small module with a plant for each verdict.
func fake(t *testing.T) (*runner, []Plant) {
	t.Helper()
	root, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	plants, err := load(filepath.Join(root, "table"))
	if err != nil {
		t.Fatal(err)
	}
	return newRunner(root, t.TempDir(), 3*time.Second), plants
}

func TestVerdicts(t *testing.T) {
	r, plants := fake(t)
	before, err := os.ReadFile(filepath.Join(r.root, "stack/stack.go"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		v   Verdict
		out string
	}{
		"seen":           {Seen, "--- FAIL: TestPop"},
		"seen-of-two":    {Seen, "--- FAIL: TestPop"},
		"survives":       {Survived, "PASS"},
		"panics":         {Panicked, "index out of range"},
		"may-panic":      {Seen, "index out of range"},
		"hangs":          {Hung, "test timed out"},
		"dies":           {Died, ""},
		"does-not-build": {Broken, "not enough return values"},
		"gone":           {Broken, "old occurs 0 times"},
		"twice":          {Broken, "old occurs 2 times"},
		"no-such-test":   {Broken, "has no test"},
		"red-before":     {Red, "always"},
		"skipped":        {Red, "no test passed"},
	}
	got := map[Verdict]int{}
	tryAll(t.Context(), r, plants, 2, func(res Result) {
		w := want[res.Plant.ID]
		if res.Verdict != w.v || !strings.Contains(res.Output, w.out) {
			t.Errorf("%s: %s, want %s and %q in\n%s", res.Plant.ID, res.Verdict, w.v, w.out, res.Output)
		}
		delete(want, res.Plant.ID)
		got[res.Verdict]++
	})
	for id := range want {
		t.Errorf("%s was not judged", id)
	}
	var out bytes.Buffer
	if err := summary(&out, len(plants), got); err == nil || !strings.Contains(out.String(), "13 of 13 plants judged, 3 seen, 10 not") {
		t.Errorf("%v after %s", err, &out)
	}
	after, err := os.ReadFile(filepath.Join(r.root, "stack/stack.go"))
	if err != nil || !bytes.Equal(before, after) {
		t.Error("the source has changed")
	}
	if left, _ := filepath.Glob(filepath.Join(r.tmp, "plant*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBudgetEnds(t *testing.T) {
	r, plants := fake(t)
	ctx, cancel := context.WithCancel(t.Context())
	counts := map[Verdict]int{}
	n := 0
	tryAll(ctx, r, plants, 1, func(res Result) {
		n++
		counts[res.Verdict]++
		cancel()
	})
	if n > 2 {
		t.Errorf("%d plants were begun after the end", n-1)
	}
	if err := summary(new(bytes.Buffer), len(plants), map[Verdict]int{Cut: 3}); err == nil {
		t.Error("nothing was judged, and that is well")
	}
	if err := summary(new(bytes.Buffer), len(plants), map[Verdict]int{Cut: 3, Seen: 1}); err != nil {
		t.Error(err)
	}
}

func TestDraw(t *testing.T) {
	var plants []Plant
	for i := range 100 {
		plants = append(plants, Plant{ID: string(rune('0' + i)), File: "a/a.go"})
	}
	a := draw(plants, 7)
	same := func(x, y Plant) bool { return x.ID == y.ID }
	if !slices.EqualFunc(a, draw(plants, 7), same) {
		t.Error("one seed, two orders")
	}
	if slices.EqualFunc(a, draw(plants, 8), same) || slices.EqualFunc(a, plants, same) {
		t.Error("two seeds, one order")
	}
	seen := map[string]bool{}
	for _, p := range a {
		seen[p.ID] = true
	}
	if len(a) != len(plants) || len(seen) != len(plants) {
		t.Errorf("%d of %d plants", len(seen), len(plants))
	}
}

// TestDrawSharesOut checks that no directory waits for another that has more plants: as
// long as it has some, it has one in each turn.
func TestDrawSharesOut(t *testing.T) {
	size := map[string]int{"big": 60, "mid/dle": 7, "mid": 3, "small": 1}
	var plants []Plant
	for dir, n := range size {
		for i := range n {
			plants = append(plants, Plant{ID: fmt.Sprint(dir, i), File: fmt.Sprintf("%s/%d.go", dir, i%2)})
		}
	}
	first := map[string]bool{}
	for seed := range uint64(20) {
		drawn := draw(plants, seed)
		first[path.Dir(drawn[0].File)] = true
		at := map[string]int{} // place of the last plant of each directory
		for i, p := range drawn {
			dir := path.Dir(p.File)
			if last, ok := at[dir]; ok && i-last > len(size) {
				t.Fatalf("seed %d: %s waits from place %d to %d", seed, dir, last, i)
			} else if !ok && i >= len(size) {
				t.Fatalf("seed %d: %s begins at place %d", seed, dir, i)
			}
			at[dir] = i
		}
		if len(drawn) != len(plants) {
			t.Fatalf("seed %d: %d of %d plants", seed, len(drawn), len(plants))
		}
	}
	if len(first) < 2 {
		t.Errorf("it always begins with %v", first)
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = "[[plant]]\nid = \"a\"\n"
	for name, text := range map[string]string{
		"unknown key": good + "odl = \"x\"\n",
		"is taken":    good + good,
		"no plants":   "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := load(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelected(t *testing.T) {
	plants := []Plant{{ID: "a", Room: "x"}, {ID: "b", Room: "y"}, {ID: "c", Room: "x"}}
	some, err := selected(plants, "x", "b")
	if err != nil || len(some) != 3 {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := selected(plants, "", "b,d"); err == nil {
		t.Error("a plant that is not there is left out silently")
	}
}

// TestTable checks the table of this module: every text occurs once and every test exists.
// The program checks whether the tests fail.
func TestTable(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plants, err := load(filepath.Join(root, "internal/plant/table"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plants {
		if _, err := p.planted(root); err != nil {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
}

// TestEachFamilyHasPlants checks that each family of rules in docs/conformance.md that has
// tests has at least three plants.
func TestEachFamilyHasPlants(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plants, err := load(filepath.Join(root, "internal/plant/table"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs/conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	families := 0
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(#\w+\) \|[^|]*\| \d+ \| (\d+) \|`).FindAllSubmatch(doc, -1) {
		if string(m[2]) == "0" {
			continue
		}
		families++
		n := 0
		for _, p := range plants {
			if strings.Contains(p.Why, "R-"+string(m[1])+"-") {
				n++
			}
		}
		if n < 3 {
			t.Errorf("%s has %d plants", m[1], n)
		}
	}
	if families < 10 {
		t.Errorf("%d families in docs/conformance.md", families)
	}
}
