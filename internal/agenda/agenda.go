// Package agenda keeps what is due at a time: the event queue of the simulator and of
// the testbed's switch.
package agenda

import "time"

// An Agenda is a binary heap of entries, earliest first. Entries of one time come out
// in the order they were put in, those of PushFirst before those of Push: that makes
// a run repeatable. It allocates only to grow. The zero Agenda is empty.
type Agenda[E any] struct {
	heap   []key
	bodies []E
	free   []int32 // bodies that nobody uses
	seq    uint64
}

// A key is an entry's place in the heap; its body stays where it is.
type key struct {
	at   time.Duration
	seq  uint64
	body int32
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.seq < o.seq }

// behind is what the sequence numbers of Push have and those of PushFirst lack.
const behind = 1 << 63

// Len is how many entries there are.
func (a *Agenda[E]) Len() int { return len(a.heap) }

// Next is the time of the earliest entry; there must be one.
func (a *Agenda[E]) Next() time.Duration { return a.heap[0].at }

// Push adds an entry.
func (a *Agenda[E]) Push(at time.Duration, e E) { a.push(at, behind, e) }

// PushFirst adds an entry that comes before those of its time that Push added.
func (a *Agenda[E]) PushFirst(at time.Duration, e E) { a.push(at, 0, e) }

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

// Pop takes the earliest entry out; there must be one.
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
