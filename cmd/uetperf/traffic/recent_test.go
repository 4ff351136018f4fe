package traffic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A percentile is the true one or at most an eighth more, and only of what came since the last look.
func TestRecent(t *testing.T) {
	var r Recent
	if a, b := r.Take(); a != 0 || b != 0 {
		t.Errorf("of nothing: %v, %v", a, b)
	}
	h := newHistogram()
	h.recent = &r
	for range 99 {
		h.record(100*time.Microsecond, 1)
	}
	h.record(time.Second, 1)
	near := func(got, want time.Duration) bool { return got >= want && got <= want+want/8 }
	if a, b := r.Take(); !near(a, 100*time.Microsecond) || !near(b, 100*time.Microsecond) {
		t.Errorf("%v, %v", a, b)
	}
	h.record(5*time.Millisecond, 97)
	h.record(time.Minute, 3)
	if a, b := r.Take(); !near(a, 5*time.Millisecond) || !near(b, time.Minute) {
		t.Errorf("the next time: %v, %v", a, b)
	}
	if a, b := r.Take(); a != 0 || b != 0 {
		t.Errorf("nothing came: %v, %v", a, b)
	}
}

// Every value belongs to the part whose bound is the least that is not below it.
func TestRecentParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		v := rng.Uint64() >> (1 + rng.IntN(63))
		if i := partOf(v); v > bound(i) || i > 0 && v <= bound(i-1) {
			t.Fatalf("%d is in part %d, of %d to %d", v, i, bound(i-1)+1, bound(i))
		}
	}
}
