// Package agenda is a queue of entries that are due at a time. The simulator and the
// testbed's switch use it for their events.
package agenda

import "time"

// An Agenda is a binary heap of entries, earliest first. Entries with equal times come out
// in the order they were put in, those of PushFirst before those of Push. This order makes
// a run repeatable. The Agenda allocates only to grow. The zero Agenda is empty.
type Agenda[E any] struct {
	heap   []key
	bodies []E
	free   []int32 // unused bodies
	seq    uint64
}

// A key is the place of an entry in the heap. The entry's body does not move.
type key struct {
	at   time.Duration
	seq  uint64
	body int32
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.seq < o.seq }

// behind is set in the sequence numbers of Push and not in those of PushFirst.
const behind = 1 << 63

// Len is the number of entries.
func (a *Agenda[E]) Len() int { return len(a.heap) }

// Next is the time of the earliest entry. There must be one.
func (a *Agenda[E]) Next() time.Duration { return a.heap[0].at }

// Push adds an entry.
func (a *Agenda[E]) Push(at time.Duration, e E) { a.push(at, behind, e) }

// PushFirst adds an entry that comes out before those of Push with the same time.
func (a *Agenda[E]) PushFirst(at time.Duration, e E) { a.push(at, 0, e) }

// push adds an entry. class is behind or 0.
func (a *Agenda[E]) push(at time.Duration, class uint64, e E) {
	var b int32
	if n := len(a.free); n > 0 {
		b, a.free = a.free[n-1], a.free[:n-1]
		a.bodies[b] = e
	} else {
		b = int32(len(a.bodies))
		a.bodies = append(a.bodies, e)
	}
	a.seq++
	k := key{at, class | a.seq, b}
	a.heap = append(a.heap, k)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !k.before(a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = k
}

// Pop removes the earliest entry. There must be one.
func (a *Agenda[E]) Pop() (time.Duration, E) {
	top := a.heap[0]
	last := len(a.heap) - 1
	k := a.heap[last]
	a.heap = a.heap[:last]
	if last > 0 {
		i := 0
		for {
			c := 2*i + 1
			if c >= last {
				break
			}
			if c+1 < last && a.heap[c+1].before(a.heap[c]) {
				c++
			}
			if !a.heap[c].before(k) {
				break
			}
			a.heap[i] = a.heap[c]
			i = c
		}
		a.heap[i] = k
	}
	e := a.bodies[top.body]
	var none E
	a.bodies[top.body] = none
	a.free = append(a.free, top.body)
	return top.at, e
}
