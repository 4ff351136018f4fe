package topo

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A file as htsim has it is read, and written it is as the golden.
func TestCMGolden(t *testing.T) {
	in, err := os.ReadFile("testdata/incast.cm")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/incast.golden")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseCM(string(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.CM(); got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := m.Flows[2]; got != (Flow{ID: 7, Src: 2, Dst: 15, Start: 1500 * time.Nanosecond, Size: 65536}) {
		t.Errorf("the third flow is %+v", got)
	}
}

func TestCMRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"host beyond", "Nodes 4\n0->4 start 0 size 1\n", "line 2"},
		{"to itself", "Nodes 4\n1->1 start 0 size 1\n", "itself"},
		{"no start", "Nodes 4\n0->1 size 1\n", "without start or size"},
		{"no size", "Nodes 4\n0->1 start 0\n", "without start or size"},
		{"no value", "Nodes 4\n0->1 start\n", "without a value"},
		{"negative", "Nodes 4\n0->1 start -1 size 1\n", "start -1"},
		{"not a number", "Nodes 4\n0->x start 0 size 1\n", "invalid syntax"},
		{"trigger", "Nodes 4\n0->1 id 1 trigger 1 size 1\n", "trigger"},
		{"failure", "Nodes 4\nFailures 1\n", "Failures"},
		{"too few", "Nodes 4\nConnections 2\n0->1 start 0 size 1\n", "has 1 flows and says 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseCM(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestPermutation(t *testing.T) {
	for _, n := range []int{2, 3, 16, 128} {
		m := Permutation(1, n, 10)
		got := make([]int, n)
		for i, f := range m.Flows {
			if f.Src != i || f.Dst == i {
				t.Fatalf("of %d: flow %+v", n, f)
			}
			got[f.Dst]++
		}
		for h, k := range got {
			if k != 1 {
				t.Errorf("of %d: host %d gets %d flows", n, h, k)
			}
		}
		again, err := ParseCM(m.CM())
		if err != nil || again.Nodes != n || !slices.Equal(m.Flows, again.Flows) {
			t.Errorf("written and read it is another: %v, %v", again, err)
		}
	}
}
