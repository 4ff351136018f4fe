package agenda

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Entries come out as from a stable sort by time and by the way they were put in.
func TestOrder(t *testing.T) {
	type entry struct {
		at   time.Duration
		last bool // put in by Push
		n    int
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var a Agenda[entry]
	var in []entry
	for i := range 5000 {
		e := entry{time.Duration(rng.IntN(500)), rng.IntN(3) > 0, i}
		in = append(in, e)
		if e.last {
			a.Push(e.at, e)
		} else {
			a.PushFirst(e.at, e)
		}
	}
	slices.SortStableFunc(in, func(a, b entry) int {
		if a.at != b.at || a.last == b.last {
			return cmp.Compare(a.at, b.at)
		}
		if b.last {
			return -1
		}
		return 1
	})
	for i, want := range in {
		if next := a.Next(); next != want.at {
			t.Fatalf("entry %d is due at %v, want %v", i, next, want.at)
		}
		if at, got := a.Pop(); got != want || at != want.at {
			t.Fatalf("entry %d is %v at %v, want %v", i, got, at, want)
		}
	}
	if a.Len() != 0 || len(a.free) != len(a.bodies) {
		t.Errorf("%d entries are left, %d of %d bodies are free", a.Len(), len(a.free), len(a.bodies))
	}
}

// Entries that are put in while others come out keep the order, too.
func TestOrderWhileInUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a Agenda[int]
	var now time.Duration
	put, latest := 0, map[time.Duration]int{} // the newest that came out, by time
	for put < 20_000 || a.Len() > 0 {
		if put < 20_000 && (a.Len() == 0 || rng.IntN(2) == 0) {
			put++
			a.Push(now+time.Duration(rng.IntN(50)), put)
			continue
		}
		at, n := a.Pop()
		if at < now || n < latest[at] {
			t.Fatalf("%d of %v came after %d, at %v", n, at, latest[at], now)
		}
		now, latest[at] = at, n
	}
}

func TestNoAllocs(t *testing.T) {
	var a Agenda[[4]*int]
	for i := range 100 {
		a.Push(time.Duration(i), [4]*int{})
	}
	for range 100 {
		a.Pop()
	}
	if n := testing.AllocsPerRun(100, func() {
		a.Push(5, [4]*int{})
		a.Pop()
	}); n != 0 {
		t.Errorf("Push and Pop allocate %v times", n)
	}
}
