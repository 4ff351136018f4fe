package main

import (
	"strings"
	"testing"
)

// The ranks are those of tables of the sign test.
func TestInterval(t *testing.T) {
	for _, c := range []struct{ n, lo, hi int }{{1, 1, 1}, {5, 1, 5}, {6, 1, 6}, {9, 2, 8}, {20, 6, 15}, {31, 10, 22}, {100, 40, 61}} {
		var v []float64
		for i := range c.n {
			v = append(v, float64(c.n-i)) // each value is its rank, in reverse order
		}
		if lo, hi := interval(v); lo != float64(c.lo) || hi != float64(c.hi) {
			t.Errorf("of %d values: ranks %v to %v, want %d to %d", c.n, lo, hi, c.lo, c.hi)
		}
	}
}

func TestParseFigures(t *testing.T) {
	f, err := parseFigures("a warning of the launcher, long\ninit 0 12.5\nlat 8 4.25\n")
	if err != nil || len(f) != 2 || f["init 0"] != 12.5 || f["lat 8"] != 4.25 {
		t.Error(f, err)
	}
	for _, bad := range []string{"", "lat 8 fast\n"} {
		if _, err := parseFigures(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestRankRows(t *testing.T) {
	// Ranks that share processors may be slower than the MPI with short messages only.
	if shared("allreduce", 64<<10-1) != 0.8 || shared("allreduce", 64<<10) != 1 {
		t.Error("the bar of ranks that share processors")
	}
	want := "barrier:0 allreduce:8 allreduce:1024 allreduce:16384 bcast:8 bcast:1024 bcast:16384 alltoall:8 alltoall:1024 alltoall:16384"
	if got := strings.Join(collectives(16<<10), " "); got != want {
		t.Error(got)
	}
}

// A job of an MPI that is killed when it has printed all counts, one that was killed before does not.
func TestEnded(t *testing.T) {
	for out, want := range map[string]bool{"init 0 3.5\nend\n": true, "init 0 3.5\nend\n= BAD TERMINATION 9\n": true, "init 0 3.5\n": false, "the end\n": false} {
		said, ok := ended(out)
		if f, err := parseFigures(said); ok != want || ok && (err != nil || f["init 0"] != 3.5) {
			t.Errorf("%q: %v, %v, %v", out, ok, f, err)
		}
	}
}
