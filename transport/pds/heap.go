package pds

import (
	"math"
	"time"
)

// A timer is a PDC's place in the heap. Only the PDC that it is about is touched
// when it moves: the others are cold. So the time lies in the timer, and where each
// PDC's timer is lies in a table, by Slot.
type timer struct {
	at   time.Duration // PDC.heapAt
	slot uint32
}

// before reports whether x is looked at before y: the earlier one, and of those that are
// due at once the one in the lower Slot, so that the order has no history.
func (x timer) before(y timer) bool { return x.at < y.at || x.at == y.at && x.slot < y.slot }

// never is the heapAt of a PDC that is not in the heap.
const never = time.Duration(math.MaxInt64)

// arm makes the heap look at p no later than at.
func (t *Table) arm(p *PDC, at time.Duration) {
	if at < p.heapAt { // nearly always the heap looks before
		t.heapPut(p, at)
	}
}

// heapPut puts p into the heap, or moves it there, to be looked at earlier.
func (t *Table) heapPut(p *PDC, at time.Duration) {
	i := int(t.heapPos[p.Slot])
	if p.heapAt == never {
		i = len(t.heap)
		t.heap = append(t.heap, timer{})
	}
	p.heapAt = at
	t.up0(i, timer{at, p.Slot})
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
		t.up0(i, last)
		t.down0(int(t.heapPos[last.slot]), last)
	}
}

// place puts an entry into place i.
func (t *Table) place(i int, x timer) {
	t.heap[i] = x
	t.heapPos[x.slot] = int32(i)
}

// up0 puts x into place i or above, moving down what is later.
func (t *Table) up0(i int, x timer) {
	for i > 0 {
		j := (i - 1) / 2
		if !x.before(t.heap[j]) {
			break
		}
		t.place(i, t.heap[j])
		i = j
	}
	t.place(i, x)
}

// down0 puts x into place i or below, moving up what is earlier.
func (t *Table) down0(i int, x timer) {
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
	t.place(i, x)
}
