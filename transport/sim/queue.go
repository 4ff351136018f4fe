package sim

import "time"

// An event is something that happens at a virtual time. Events of one time
// happen in the order they were scheduled in: that, and the seed, make a run
// repeatable.
type event struct {
	kind eventKind
	gen  uint32 // timers and holds: stale if the owner has moved on
	node *Node
	link *Link
	pkt  *Packet
	fn   func()
}

type eventKind uint8

const (
	evFunc    eventKind = iota // run fn
	evHop                      // pkt enters the next link of its route, or its node
	evTurn                     // node takes its turn
	evRelease                  // link lets go what it holds for reordering
	evICMP                     // node hears that pkt's destination is closed
)

// A key is an event's place in the heap; the body stays where it is.
type key struct {
	at   time.Duration
	seq  uint64
	body int32
}

func (k key) before(o key) bool {
	return k.at < o.at || k.at == o.at && k.seq < o.seq
}

// A queue is a binary heap of events, earliest first, equal times in order of
// insertion.
type queue struct {
	heap   []key
	bodies []event
	free   []int32
	seq    uint64
}

func (q *queue) len() int { return len(q.heap) }

// next is the time of the earliest event; there must be one.
func (q *queue) next() time.Duration { return q.heap[0].at }

func (q *queue) push(at time.Duration, e event) {
	var b int32
	if n := len(q.free); n > 0 {
		b, q.free = q.free[n-1], q.free[:n-1]
		q.bodies[b] = e
	} else {
		b = int32(len(q.bodies))
		q.bodies = append(q.bodies, e)
	}
	q.seq++
	q.heap = append(q.heap, key{at, q.seq, b})
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q.heap[i].before(q.heap[up]) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *queue) pop() (time.Duration, event) {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q.heap[c+1].before(q.heap[c]) {
			c++
		}
		if !q.heap[c].before(q.heap[i]) {
			break
		}
		q.heap[i], q.heap[c] = q.heap[c], q.heap[i]
		i = c
	}
	e := q.bodies[top.body]
	q.bodies[top.body] = event{}
	q.free = append(q.free, top.body)
	return top.at, e
}
