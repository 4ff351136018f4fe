package sim

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"
)

func TestQueueOrder(t *testing.T) {
	// Earliest first, equal times in the order of insertion: against a stable
	// sort.
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue
	type item struct {
		at time.Duration
		n  int
	}
	var want, got []item
	pop := func() {
		at, e := q.pop()
		got = append(got, item{at, int(e.gen)})
	}
	floor := time.Duration(0)
	for i := range 5000 {
		at := floor + time.Duration(rng.IntN(50))
		q.push(at, event{gen: uint32(i)})
		want = append(want, item{at, i})
		if rng.IntN(3) == 0 {
			floor = q.next()
			pop()
		}
	}
	for q.len() > 0 {
		pop()
	}
	sort.SliceStable(want, func(i, j int) bool { return want[i].at < want[j].at })
	if len(got) != len(want) {
		t.Fatalf("%d events came out, %d went in", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("event %d is %v, want %v", i, got[i], want[i])
		}
	}
	if len(q.free) != len(q.bodies) {
		t.Errorf("%d of %d bodies free at the end", len(q.free), len(q.bodies))
	}
}

func TestQueueNoAllocs(t *testing.T) {
	var q queue
	for i := range 100 {
		q.push(time.Duration(i), event{})
	}
	for range 100 {
		q.pop()
	}
	if n := testing.AllocsPerRun(100, func() {
		q.push(5, event{})
		q.pop()
	}); n != 0 {
		t.Errorf("push and pop allocate %v times", n)
	}
}
