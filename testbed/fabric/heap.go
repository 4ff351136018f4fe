package fabric

import "time"

// An event is something that is due at a time. Of one time, events of the
// timeline come first, then the others in the order they were scheduled in:
// that, and the seed, make a run repeatable.
type event struct {
	kind eventKind
	gen  uint32 // stale if the packet, line or rule has moved on
	line *line
	pkt  *packet
	rule *rule
	do   *timed
	undo *change
}

type eventKind uint8

const (
	evTx      eventKind = iota // the packet on line's wire has been sent
	evHop                      // pkt has reached the end of its line
	evPipe                     // the first packet in line's pipe has
	evRule                     // pkt goes on at line behind the rule that delayed it
	evHold                     // pkt has been held long enough for reordering
	evReplay                   // rule's adversary may send again
	evTimed                    // do is due
	evUndo                     // undo is due
	evPackets = evTimed        // kinds below are about packets
)

// A key is an event's place in the heap; the body stays where it is.
type key struct {
	at   time.Duration
	seq  uint64
	body int32
}

func (k key) before(o key) bool { return k.at < o.at || k.at == o.at && k.seq < o.seq }

// An agenda is a binary heap of events, earliest first.
type agenda struct {
	heap   []key
	bodies []event
	free   []int32
	seq    uint64
}

func (q *agenda) len() int { return len(q.heap) }

// next is the time of the earliest event; there must be one.
func (q *agenda) next() time.Duration { return q.heap[0].at }

func (q *agenda) push(at time.Duration, e event) {
	var b int32
	if n := len(q.free); n > 0 {
		b, q.free = q.free[n-1], q.free[:n-1]
		q.bodies[b] = e
	} else {
		b = int32(len(q.bodies))
		q.bodies = append(q.bodies, e)
	}
	q.seq++
	k := key{at, q.seq, b}
	if e.kind < evPackets {
		k.seq |= 1 << 63
	}
	q.heap = append(q.heap, k)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !k.before(q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = k
}

func (q *agenda) pop() (time.Duration, event) {
	top := q.heap[0]
	last := len(q.heap) - 1
	k := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		i := 0
		for {
			c := 2*i + 1
			if c >= last {
				break
			}
			if c+1 < last && q.heap[c+1].before(q.heap[c]) {
				c++
			}
			if !q.heap[c].before(k) {
				break
			}
			q.heap[i] = q.heap[c]
			i = c
		}
		q.heap[i] = k
	}
	e := q.bodies[top.body]
	q.bodies[top.body] = event{}
	q.free = append(q.free, top.body)
	return top.at, e
}

// A fifo is a ring of packets. It grows to what its owner's bound allows and
// stays so.
type fifo struct {
	ring    []*packet
	head, n int
}

func (f *fifo) push(p *packet) {
	if f.n == len(f.ring) {
		ring := make([]*packet, max(16, 2*len(f.ring)))
		for i := range f.n {
			ring[i] = f.ring[(f.head+i)&(len(f.ring)-1)]
		}
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = p
	f.n++
}

func (f *fifo) pop() *packet {
	p := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.n--
	return p
}
