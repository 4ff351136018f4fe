package ses

import (
	"math/bits"
	"time"
)

// A recv is one posted receive: in its space until it matches, then bound to an
// inbound message.
type recv struct {
	next, prev *recv  // runClass: the younger and the older one; next of SES.idleRecv
	tag        uint64 // of a class without the bits that it does not look at
	seq        uint64
	peer, init uint32 // 0: of any
	class      int8   // of its space, or one of the following
	live       bool
	tagged     bool
	simple     bool  // it takes one message, into buf
	self       int32 // its place
	ignore     uint64

	multi, spent, cancelled bool   // see multi.go
	refs                    int32  // messages in a multi-receive buffer that are not complete
	off, minFree            uint64 // of a multi-receive buffer: where the next message goes

	size    uint64 // bytes it takes
	buf     []byte
	iov     [][]byte
	context any
	flags   uint64
	posted  time.Duration
}

const (
	numClassesMax = 16 // different masks looked up by hash
	wildClass     = -1 // in the list of those beyond
	boundClass    = -2 // matched
	runClass      = -3 // in the run of its space
)

// A class is the receives of a space that look at the same bits of a message:
// they are found by hash. Untagged receives ignore all bits of the tag. Most
// programs have one to four classes; the receives of more than 16 at a time are
// searched one by one.
type class struct {
	mask           uint64 // bits of the tag that count
	n              int32
	byPeer, byInit bool
}

// A space is one of the two spaces of messages that never match each other
// (R-TAG-04): posted receives and unexpected messages.
type space struct {
	// The run is the oldest receives if they look for the same: what its first does
	// not take none of it does, and what it takes no other is to have. So they are
	// found by a look at it. run is the first of them, nil if there is none; last counts
	// then as little as prev of the first does. The others have classes or are wild.
	run, last *recv

	classes [numClassesMax]class
	active  uint32 // classes with n > 0
	exact   index  // receives with a class
	wild    index  // the others, in post order: one bucket
	wilds   int

	order    index // unexpected messages in arrival order: one bucket
	byTag    index // by tag; not of untagged ones
	bySource index // by tag and peer
	n        int   // unexpected messages
	// starved: a multi-receive buffer could not take a message for lack of room
	// for its Event. Until feed found some, nothing is matched here.
	starved bool
}

func (sp *space) init(tagged bool, recvs, msgs int) {
	sp.exact.init(recvs)
	sp.wild.init(1)
	sp.order.init(1)
	sp.bySource.init(msgs)
	if tagged {
		sp.byTag.init(msgs)
	}
}

func (s *SES) space(tagged bool) *space {
	if tagged {
		return &s.spaces[1]
	}
	return &s.spaces[0]
}

// Recv posts a receive. It takes the oldest unexpected message that matches, if
// there is one (S-MAT-07). Errors: ErrFull, ErrClosed.
func (s *SES) Recv(now time.Duration, op *Op) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.numRecvs >= s.cfg.MaxRecvs:
		return ErrFull
	case op.Look != LookNone:
		return s.look(now, op)
	}
	r := s.idleRecv
	if r == nil {
		r = s.freshRecv()
	}
	s.numRecvs++
	i, seq := r.self, s.seq+1
	s.seq = seq
	// Field by field: the place is recycled, and a literal is built twice.
	r.tag, r.ignore, r.seq, r.posted, r.peer, r.init = op.Tag, op.Ignore, seq, now, uint32(op.Peer), op.SrcInitiator
	r.live, r.tagged, r.simple, r.multi, r.class = true, op.Kind == EvTRecv, !op.Multi, op.Multi, boundClass
	r.size, r.flags = uint64(len(op.Buf)), op.Flags
	s.idleRecv, r.next, r.buf, r.context = r.next, nil, op.Buf, op.Context
	if len(op.Iov) != 0 {
		s.scatter(r, op.Iov)
	}
	sp := &s.spaces[1]
	if op.Kind != EvTRecv {
		r.tag, r.ignore = 0, ^uint64(0)
		sp = &s.spaces[0]
	}
	switch {
	case !op.Multi && sp.n == 0 && !s.ended: // nearly always
		s.post(sp, i, r)
		return nil
	case op.Multi:
		s.postMulti(sp, i, r, op.MinFree)
	case sp.n == 0 || sp.starved || !s.takeUnexpected(sp, i, r):
		s.post(sp, i, r)
	}
	if s.ended {
		s.lateRecv(i, r)
	}
	return nil
}

// freshRecv takes a place that never was.
func (s *SES) freshRecv() *recv {
	i := s.recvs.fresh()
	r := s.recvs.at(i)
	r.self, r.next = i, nil
	return r
}

// scatter makes iov the memory of a receive.
func (s *SES) scatter(r *recv, iov [][]byte) {
	if len(iov) == 1 {
		r.buf, r.size = iov[0], uint64(len(iov[0]))
		return
	}
	r.buf, r.size, r.simple = nil, uint64(total(iov)), false
	r.iov = append(s.iov(), iov...)
}

// takeUnexpected gives a receive the oldest unexpected message that matches, and
// reports whether there is one.
func (s *SES) takeUnexpected(sp *space, i int32, r *recv) bool {
	k := s.findUnexpected(sp, r)
	if k == none {
		return false
	}
	s.take(i, r, k)
	return true
}

// post puts a receive where messages find it.
func (s *SES) post(sp *space, i int32, r *recv) {
	if sp.active != 0 || sp.wilds != 0 {
		s.file(sp, i, r)
		return
	}
	if sp.run == nil {
		sp.run = r
	} else {
		l := sp.last
		if l.tag != r.tag || l.ignore != r.ignore || l.peer != r.peer || l.init != r.init {
			s.file(sp, i, r)
			return
		}
		l.next, r.prev = r, l
	}
	sp.last, r.class = r, runClass // next is nil
}

// file puts a receive into its class.
func (s *SES) file(sp *space, i int32, r *recv) {
	c := sp.classFor(^r.ignore, r.peer != 0, r.init != 0)
	r.class = int8(c)
	if c == wildClass {
		sp.wild.add(i, 0)
		sp.wilds++
		return
	}
	r.tag &= sp.classes[c].mask
	sp.exact.add(i, s.recvHash(c, r.tag, r.peer, r.init))
}

func (s *SES) recvHash(c int, tag uint64, peer, init uint32) uint32 {
	return s.hash(tag+uint64(c)<<59, uint64(peer)<<32|uint64(init))
}

// classFor counts a receive into its class, or wildClass.
func (sp *space) classFor(mask uint64, byPeer, byInit bool) int {
	free := wildClass
	for c := range sp.classes {
		k := &sp.classes[c]
		if k.n == 0 {
			if free == wildClass {
				free = c
			}
			if sp.active>>c == 0 {
				break // none behind
			}
		} else if k.mask == mask && k.byPeer == byPeer && k.byInit == byInit {
			k.n++
			return c
		}
	}
	if free != wildClass {
		sp.classes[free] = class{mask, 1, byPeer, byInit}
		sp.active |= 1 << free
	}
	return free
}

// unpost takes a receive away from where messages find it.
func (s *SES) unpost(sp *space, i int32, r *recv) {
	switch r.class {
	case runClass:
		switch {
		case sp.run == r:
			sp.run = r.next
		case sp.last == r:
			sp.last = r.prev
			r.prev.next = nil
		default:
			r.prev.next, r.next.prev = r.next, r.prev
		}
	case wildClass:
		sp.wild.remove(i)
		sp.wilds--
	default:
		sp.exact.remove(i)
		k := &sp.classes[r.class]
		if k.n--; k.n == 0 {
			sp.active &^= 1 << r.class
		}
	}
	r.class = boundClass
}

// match finds the first posted receive for a message and takes it out of its
// space (S-MAT-01, -02, -04).
//
// A multi-receive buffer stays: pack says where in it the message goes.
func (s *SES) match(sp *space, tag uint64, peer, init uint32) (int32, *recv) {
	if sp.starved {
		return none, nil // not past those that wait
	}
	i, r := none, sp.run
	if r != nil && r.accepts(tag, peer, init) {
		i = r.self
	} else if i = s.search(sp, tag, peer, init); i != none {
		r = s.recvs.at(i)
	} else {
		return none, nil
	}
	if !r.multi {
		s.unpost(sp, i, r)
	} else if !s.admit(sp) {
		return none, nil
	}
	return i, r
}

// search finds the first posted receive for a message if the run has none.
func (s *SES) search(sp *space, tag uint64, peer, init uint32) int32 {
	best := none
	var seq uint64
	for a := sp.active; a != 0; a &= a - 1 {
		c := bits.TrailingZeros32(a)
		k := &sp.classes[c]
		t, p, in := tag&k.mask, uint32(0), uint32(0)
		if k.byPeer {
			p = peer
		}
		if k.byInit {
			in = init
		}
		for i := sp.exact.first(s.recvHash(c, t, p, in)); i != none; i = sp.exact.next(i) {
			r := s.recvs.at(i)
			if r.tag == t && int(r.class) == c && r.peer == p && r.init == in {
				if best == none || r.seq < seq {
					best, seq = i, r.seq
				}
				break
			}
		}
	}
	if sp.wilds > 0 {
		for i := sp.wild.first(0); i != none; i = sp.wild.next(i) {
			r := s.recvs.at(i)
			if best != none && r.seq > seq {
				break
			}
			if r.accepts(tag, peer, init) {
				best = i
				break
			}
		}
	}
	return best
}

// accepts reports whether a message of the receive's space matches it.
func (r *recv) accepts(tag uint64, peer, init uint32) bool {
	return (tag^r.tag)&^r.ignore == 0 && (r.peer == 0 || r.peer == peer) && (r.init == 0 || r.init == init)
}

// findUnexpected finds the oldest unexpected message that r accepts. Receives
// with an ignore mask search all of the space, others only messages with their
// tag (and, with a source, from their peer).
func (s *SES) findUnexpected(sp *space, r *recv) int32 {
	x, h := &sp.order, uint32(0)
	switch {
	case r.tagged && r.ignore != 0:
	case r.peer != 0:
		x, h = &sp.bySource, s.hash(r.tag, uint64(r.peer))
	case r.tagged:
		x, h = &sp.byTag, s.hash(r.tag, 0)
	}
	for k := x.first(h); k != none; k = x.next(k) {
		m := s.in.at(k)
		if r.accepts(m.tag, m.peer, m.init) {
			return k
		}
	}
	return none
}

// freeRecv ends a receive; its event was made.
func (s *SES) freeRecv(r *recv) {
	if r.iov != nil {
		s.putIov(r.iov)
		r.iov = nil
	}
	r.live, r.multi, r.spent, r.cancelled = false, false, false, false
	r.off, r.refs = 0, 0
	s.numRecvs--
	r.next, s.idleRecv, r.buf, r.context = s.idleRecv, r, nil, nil
}

// recvEvent starts the event of a receive: as yet it says nothing of a message.
func (s *SES) recvEvent(r *recv) *Event {
	e := s.events.add()
	r.event(e)
	return e
}

func (r *recv) event(e *Event) {
	e.Kind, e.HasData, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = kind(EvRecv, r.tagged), false, OK, 0, 0, false, false, false
	e.Context, e.Flags, e.Buf = r.context, r.flags, r.buf
	e.Len, e.OverLen, e.Tag, e.Data, e.Peer, e.Initiator = 0, 0, 0, 0, 0, 0
}

// CancelRecv ends one receive with that context that nothing matched yet, with
// a Cancelled event; the oldest if there are several. ctx is compared with ==;
// nil and contexts that cannot be compared are never found (R-EP-11, R-EP-12).
func (s *SES) CancelRecv(ctx any) bool {
	best := none
	var seq uint64
	for i := range s.recvs.used {
		r := s.recvs.at(i)
		if r.live && r.class != boundClass && (best == none || r.seq < seq) && same(r.context, ctx) {
			best, seq = i, r.seq
		}
	}
	if best == none {
		return false
	}
	s.cancelRecv(best)
	return true
}

func (s *SES) cancelRecv(i int32) {
	r := s.recvs.at(i)
	s.unpost(s.space(r.tagged), i, r)
	if r.refs > 0 {
		// Messages on their way into it come first.
		r.spent, r.cancelled = true, true
		return
	}
	s.cancelled(i, r)
}

// cancelled makes the event of a cancelled receive.
func (s *SES) cancelled(i int32, r *recv) {
	s.Stats.RecvErrors++
	e := s.recvEvent(r)
	e.Cause, e.Released = Cancelled, r.multi
	s.freeRecv(r)
}

func (s *SES) cancelRecvs() {
	for i := range s.recvs.used {
		if s.recvs.at(i).live {
			s.cancelRecv(i)
		}
	}
}

// place copies data to offset off of a receive's memory, as far as it fits.
func (r *recv) place(off uint64, data []byte) {
	if off >= r.size {
		return
	}
	if r.iov == nil {
		copy(r.buf[off:], data)
		return
	}
	for _, v := range r.iov {
		if off >= uint64(len(v)) {
			off -= uint64(len(v))
			continue
		}
		n := copy(v[off:], data)
		off, data = 0, data[n:]
		if len(data) == 0 {
			return
		}
	}
}
