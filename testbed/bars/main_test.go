package main

import "testing"

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
