package ses

import "time"

// A recv is one posted receive. It is in its space until it matches, then bound to an inbound
// message.
type recv struct {
	iov          [][]byte
	iovLen       uint64 // bytes in iov
	off, minFree uint64 // off: where the next message goes in a multi-receive buffer

	_ [8]byte // what follows fills two cache lines: the allocator puts a page 8 bytes behind the start of one

	// What a simple receive touches (TestHotLines).

	next, prev *recv  // runClass: the next younger and next older one; next also links endpoint.idleRecv
	tag        uint64 // with a class, only the bits that the class compares
	seq        uint64
	peer, init uint32 // 0: any
	self       int32  // its place in SES.recvs
	class      int8   // of its space, or one of the negative values
	live       bool
	tagged     bool
	simple     bool // it accepts one message, into buf
	fixed      bool // it receives the message that a peek reserved, no other

	multi, spent, cancelled bool  // see multi.go
	refs                    int32 // incomplete messages in a multi-receive buffer

	ep      *endpoint // its endpoint, also while the place is free
	ignore  uint64
	buf     []byte
	context any
	flags   uint64
	posted  time.Duration

	sibling int32 // link of endpoint.ownRecvs

	_ [4]byte
}

// size is the bytes of its memory.
func (r *recv) size() uint64 { return uint64(len(r.buf)) + r.iovLen }

// Recv posts a receive. If an unexpected message matches, the receive gets the oldest one
// (S-MAT-07). Errors: ErrFull, ErrClosed.
func (s *SES) Recv(now time.Duration, op *Op) error {
	e := s.endpoint(op.Endpoint)
	switch {
	case e == nil || e.recvs >= e.mostRecvs:
		if e == nil || e.closed {
			return ErrClosed
		}
		return ErrFull
	case op.Look != LookNone:
		return s.look(now, e, op)
	}
	r := e.idleRecv
	if r == nil {
		r = s.freshRecv(e)
	}
	e.recvs++
	i, seq := r.self, s.seq+1
	s.seq = seq
	// Assigned field by field, because the compiler builds a literal twice. freeRecv or retire
	// has reset what is not set here.
	r.tag, r.ignore, r.seq, r.posted, r.peer, r.init = op.Tag, op.Ignore, seq, now, uint32(op.Peer), op.SrcInitiator
	r.live, r.tagged, r.simple, r.multi, r.class = true, op.Kind == EvTRecv, !op.Multi, op.Multi, boundClass
	r.flags = op.Flags
	e.idleRecv, r.next, r.buf, r.context = r.next, nil, op.Buf, op.Context
	if len(op.Iov) != 0 {
		s.scatter(r, op.Iov)
	}
	sp := &e.spaces[1]
	if op.Kind != EvTRecv {
		r.tag, r.ignore = 0, ^uint64(0)
		sp = &e.spaces[0]
	}
	switch {
	case !op.Multi && sp.n == 0 && !s.ended: // the usual case
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

// freshRecv makes a receive of an endpoint at a place that was never used.
func (s *SES) freshRecv(e *endpoint) *recv {
	i := s.recvs.fresh()
	r := s.recvs.at(i)
	r.self, r.next, r.ep = i, nil, e
	if last := e.ownRecvs.add(i); last != none {
		s.recvs.at(last).sibling = i + 1
	}
	return r
}

// scatter makes iov the memory of a receive.
func (s *SES) scatter(r *recv, iov [][]byte) {
	if len(iov) == 1 {
		r.buf = iov[0]
		return
	}
	r.buf, r.iovLen, r.simple = nil, uint64(total(iov)), false
	r.iov = append(s.iov(), iov...)
}

// takeUnexpected gives a receive the oldest unexpected message that matches, and reports
// whether there is one.
func (s *SES) takeUnexpected(sp *space, i int32, r *recv) bool {
	k := s.findUnexpected(sp, r)
	if k == none {
		return false
	}
	s.take(i, r, k)
	return true
}

// space is the space in which the receive meets messages.
func (r *recv) space() *space {
	if r.tagged {
		return &r.ep.spaces[1]
	}
	return &r.ep.spaces[0]
}

// freeRecv frees a receive whose event was made.
func (s *SES) freeRecv(r *recv) {
	if r.iov != nil {
		s.putIov(r.iov)
		r.iov, r.iovLen = nil, 0
	}
	r.multi, r.spent, r.cancelled, r.fixed = false, false, false, false
	r.off, r.refs = 0, 0
	r.retire()
}

// retire frees the place of a simple receive. The caller must have removed it from its space.
func (r *recv) retire() {
	e := r.ep
	r.live = false
	e.recvs--
	r.next, e.idleRecv, r.buf, r.context = e.idleRecv, r, nil, nil
}

// recvEvent makes the event of a receive for a message of which n bytes were placed.
func (s *SES) recvEvent(r *recv, n int, tag uint64, peer, initiator uint32) *Event {
	e := s.events.add()
	e.init(r.ep.id, kind(EvRecv, r.tagged), r.context, r.flags, r.buf, n, tag, PeerID(peer), initiator)
	return e
}

// CancelRecv ends the oldest posted receive of an endpoint that has that context, with a
// Cancelled event. A receive that is bound to its message is not posted any more. ctx is
// compared with ==; nil and contexts that cannot be compared are never found (R-EP-11,
// R-EP-12).
func (s *SES) CancelRecv(id EndpointID, ctx any) bool {
	best := none
	var seq uint64
	for r := s.firstRecv(s.endpoint(id)); r != nil; r = s.nextRecv(r) {
		if r.live && r.class != boundClass && (best == none || r.seq < seq) && same(r.context, ctx) {
			best, seq = r.self, r.seq
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
	s.unpost(r.space(), i, r)
	if r.refs > 0 {
		// The messages in it end first.
		r.spent, r.cancelled = true, true
		return
	}
	s.cancelled(i, r)
}

// cancelled makes the event of a cancelled receive.
func (s *SES) cancelled(i int32, r *recv) {
	s.Stats.RecvErrors++
	e := s.recvEvent(r, 0, 0, 0, 0)
	e.Cause, e.Released = Cancelled, r.multi
	s.freeRecv(r)
}

// place copies data to offset off of a receive's memory, as far as it fits.
func (r *recv) place(off uint64, data []byte) {
	if off >= r.size() {
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

// arrived completes the event of a receive whose message is all there. over is the number of
// bytes that did not fit.
func (s *SES) arrived(e *Event, over int) {
	s.Stats.MsgsRx++
	s.Stats.BytesRx += uint64(e.Len)
	if over > 0 {
		e.Cause, e.OverLen = Truncated, uint32(over)
		s.Stats.Truncated++
	}
}
