package pds

import (
	"math"
	"time"
)

// A timer is the heap entry of a PDC. Moving an entry must not touch other PDCs, which are
// cold. So the entry holds the time itself, and heapPos holds the index of each PDC's entry
// by Slot.
type timer struct {
	at   time.Duration // PDC.heapAt
	slot uint32
}

// before orders timers by time, then by Slot, so that the order does not depend on history.
func (x timer) before(y timer) bool { return x.at < y.at || x.at == y.at && x.slot < y.slot }

// never is the heapAt of a PDC that is not in the heap.
const never = time.Duration(math.MaxInt64)

// arm makes the heap look at p no later than at.
func (t *Table) arm(p *PDC, at time.Duration) {
	if at < p.heapAt { // mostly false: the heap looks earlier anyway
		t.heapPut(p, at)
	}
}

// heapPut inserts p into the heap, or moves its entry to an earlier time.
func (t *Table) heapPut(p *PDC, at time.Duration) {
	i := int(t.heapPos[p.Slot])
	if p.heapAt == never {
		i = len(t.heap)
		t.heap = append(t.heap, timer{})
	}
	p.heapAt = at
	x := timer{at, p.Slot}
	t.place(t.up0(i, x), x)
}

func (t *Table) heapRemove(p *PDC) {
	if p.heapAt == never {
		return
	}
	p.heapAt = never
	i, n := int(t.heapPos[p.Slot]), len(t.heap)-1
	last := t.heap[n]
	t.heap = t.heap[:n]
	if i != n {
		t.place(t.down0(t.up0(i, last), last), last)
	}
}

// place stores an entry at index i.
func (t *Table) place(i int, x timer) {
	t.heap[i] = x
	t.heapPos[x.slot] = int32(i)
}

// up0 moves entries later than x down, and returns the index at or above i where x belongs.
func (t *Table) up0(i int, x timer) int {
	for i > 0 {
		j := (i - 1) / 2
		if !x.before(t.heap[j]) {
			break
		}
		t.place(i, t.heap[j])
		i = j
	}
	return i
}

// down0 moves entries earlier than x up, and returns the index at or below i where x belongs.
func (t *Table) down0(i int, x timer) int {
	for {
		j := 2*i + 1
		if j >= len(t.heap) {
			break
		}
		if j+1 < len(t.heap) && t.heap[j+1].before(t.heap[j]) {
			j++
		}
		if !t.heap[j].before(x) {
			break
		}
		t.place(i, t.heap[j])
		i = j
	}
	return i
}
