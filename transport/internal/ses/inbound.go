package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// inState is the state of an inbound message.
type inState uint8

const (
	inFree       inState = iota
	inBound              // it has its receive; parts are missing
	inOpen               // unexpected; parts are missing
	inUnexpected         // unexpected and complete
	inDead               // ended in error; parts that still come are answered with that error
	inGone               // discarded while parts were missing
	inWriting            // a write to a region; parts are missing
	inDeferred           // deferred or announced: unexpected, and nothing of it is kept but this
	inOffered            // deferred or announced, and asked for; recv is its receive, or none
)

// An inmsg is an inbound message of several packets (S-RSM-01), or an unexpected one. It holds
// no pointers, and no more than an unexpected one needs, of which there may be a million: the rest is in its
// intake.
type inmsg struct {
	tag, data       uint64
	pdc, peer, init uint32
	length, got     uint32 // bytes of the message, and bytes that arrived; of a rendezvous send among the offers: those of its eager part that can still come
	token           uint32 // inDeferred, inOffered: the restart token; of a rendezvous send: the place of its pull, or noPull; of an atomic operation: the length of its operands
	user            int32  // its peer's place in SES.peers, or none
	room            uint32 // inOpen, inUnexpected: its block, or where it is longer than one its place in SES.tabs; inDeferred, inOffered: its link in SES.deferrals; or noBlock
	intake          int32  // its place in SES.intakes, or none
	msgID           uint16
	ep              EndpointID
	state           inState
	opcode          wire.Opcode
	tagged          bool
	som, hasData    bool
	claimed         bool // reserved by a peek: not in the lists of its space
	aside           bool // inOpen: set aside by setAside, not in the lists of its space; inDeferred, inOffered: no packet by its PDC is for it
	ordered         bool // it came by a ROD PDC
}

// An intake is what an inbound message needs while it is no header or complete unexpected message. It holds
// no pointers.
type intake struct {
	bufOff    uint64
	base      uint64        // inBound: where it begins in the receive's memory; inWriting: the number of its region
	began     time.Duration // when its first packet came
	edges     uint32        // sum of span over what arrived
	end       uint32        // inDead: bytes that can come at most; of a rendezvous send that had its receive when it came: the length of its eager part
	recv      int32         // inBound, inOffered: its receive, or none
	epoch     uint32        // sweep in which its last packet came
	deadNext  int32         // inDead: the next younger dead message of the peer
	task      int32         // of an operation that fetches: its place in SES.serves plus 1; of a rendezvous send: the read, a Handle; else 0
	in        int32         // its message
	rc        wire.RC       // inDead: the answer to its packets
	unproven  bool          // inWriting: counted in SES.unproven
	unheard   bool          // inDead: no answer said so yet
	quiet     bool          // its first packet got the special response: the others get NULL
	matchOnly bool          // inBound: its sender takes the answers for word of a match
	seen      progress
}

// more returns the intake of a message that has one.
func (s *SES) more(m *inmsg) *intake { return s.intakes.at(m.intake) }

// widen makes the intake of message i, whose endpoint it lists it for.
func (s *SES) widen(i int32, m *inmsg) *intake {
	m.intake = s.intakes.get()
	p := s.intakes.at(m.intake)
	*p = intake{recv: none, epoch: s.epoch, in: i}
	s.byEndpoint.add(m.intake, uint32(m.ep))
	return p
}

// narrow frees the intake of a message, if it has one.
func (s *SES) narrow(m *inmsg) {
	if m.intake != none {
		s.byEndpoint.remove(m.intake)
		s.intakes.put(m.intake)
		m.intake = none
	}
}

// A chunkTab lists the chunks of a message that is longer than a block. A chunk of which
// nothing arrived is none.
type chunkTab struct{ ids []int32 }

// maxState bounds the messages in the table in. Those bound to receives, unexpected ones and
// dead ones have bounds of their own.
func (s *SES) maxState() int { return s.cfg.UnexpectedMsgs + s.maxRecvs + maxDead }

// findIn finds a message of several packets by PDC and message id.
func (s *SES) findIn(pdc uint32, id uint16) (int32, *inmsg) {
	if s.last != none {
		if m := s.in.at(s.last); m.pdc == pdc && m.msgID == id {
			return s.last, m
		}
	}
	for i := s.byPDC.first(s.hash(uint64(pdc), 1)); i != none; i = s.byPDC.next(i) {
		if m := s.in.at(i); m.pdc == pdc && m.msgID == id {
			s.last = i
			return i, m
		}
	}
	return none, nil
}

// Incomplete reports whether a message from a PDC is incomplete.
func (s *SES) Incomplete(pdc uint32) bool {
	if s.open == 0 {
		return false
	}
	for i := s.byPDC.first(s.hash(uint64(pdc), 1)); i != none; i = s.byPDC.next(i) {
		if m := s.in.at(i); m.pdc == pdc && m.state != inDead {
			return true
		}
	}
	return false
}

// part executes one packet of a message of several packets, which came from s.src.
func (s *SES) part(r *wire.ReqStd, off uint32, data []byte) *Result {
	i, m := s.findIn(s.src.PDC, r.MsgID)
	if m == nil {
		if s.deferrals.n != 0 {
			if _, d := s.findDeferred(s.src.PDC, r.MsgID); d != nil && !d.isPull() {
				return s.nothingNew() // a packet that left before its message could be deferred
			}
		}
		return s.begin(s.src, r, off, data)
	}
	if m.state == inDead {
		if !m.same(r) {
			s.forget(i, m)
			return s.begin(s.src, r, off, data)
		}
		rc := s.more(m).rc
		s.count(i, m, r, uint32(len(data)))
		return s.rejected(rc)
	}
	if s.differs(m, r, off, uint32(len(data))) || m.tagged && m.tag != r.Match {
		return s.refuse(s.src, r, wire.RCOpViolation, 0)
	}
	quiet := s.more(m).quiet
	s.put(i, m, r, off, data)
	if quiet {
		return s.nothingNew()
	}
	return s.done(r.ReqLen)
}

// differs reports whether a packet with n bytes contradicts the message (S-RSM-05). If all bytes
// are counted but the edges differ, some bytes came twice and others are missing.
func (s *SES) differs(m *inmsg, r *wire.ReqStd, off, n uint32) bool {
	got, length := uint64(m.got)+uint64(n), uint64(m.length)
	return m.ep != s.to.id || m.opcode != r.Opcode || m.length != r.ReqLen || m.init != r.Initiator || s.more(m).bufOff != r.BufOff ||
		r.Flags&wire.SESSOM != 0 && m.som || got >= length && (got > length || s.more(m).edges+s.span(off, n) != s.span(0, m.length))
}

// begin executes the first packet that arrives of a message of several packets, whichever
// packet that is (S-RSM-02). It matches the message, once (S-MAT-06).
func (s *SES) begin(src Source, r *wire.ReqStd, off uint32, data []byte) *Result {
	if src.Later && !sent(&src, r, off, len(data)) {
		return s.nack()
	}
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if s.fullOf(pu, &src) || s.in.live() >= s.maxState() {
		s.putUser(u, pu)
		return s.nack()
	}
	tagged := r.Opcode == wire.OpTaggedSend
	tag := r.Match
	if !tagged {
		tag = 0
	}
	sp := s.space(s.to.id, tagged)
	rv, p := s.match(sp, tag, src.Peer, r.Initiator)
	if p != nil && s.cfg.RefuseTooLong && uint64(r.ReqLen) > p.size()-p.off {
		s.putUser(u, pu)
		s.refuseTooLong(rv, p, r, tag)
		s.entomb(src, r, wire.RCTooLong, r.ReqLen, uint32(len(data)))
		return s.rejected(wire.RCTooLong)
	}
	s.credit(pu, &src)
	if rv == none && (src.Later || s.matchOnly(r) || !s.reserve(pu, &src, int64(r.ReqLen)) || !s.grantsPartial(int64(r.ReqLen))) {
		if s.token != 0 {
			s.putUser(u, pu)
			return s.keepHeader(r, tag, len(data))
		}
		if !src.Later {
			s.unserved(sp, tag, src.Peer, r.Initiator)
		}
		s.putUser(u, pu)
		return s.noRoom(len(data))
	}
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{
		tag: tag, ep: s.to.id, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: r.ReqLen,
		user: u, room: noBlock, msgID: r.MsgID, opcode: r.Opcode, tagged: tagged, ordered: src.Ordered,
	}
	in := s.widen(i, m)
	in.bufOff, in.began, in.recv, in.matchOnly = r.BufOff, src.Now, rv, s.matchOnly(r)
	pu.open++
	s.open++
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.last = i
	if rv == none {
		m.state, in.quiet = inOpen, true
		s.charge(i, m, true)
		s.put(i, m, r, off, data)
		return s.special(wire.ListOverflow, r.ReqLen)
	}
	m.state = inBound
	if src.Ordered {
		s.inOrder(src.Peer, p)
	}
	room := p.size()
	if p.multi {
		room -= p.off
		in.base = s.pack(rv, p, uint64(r.ReqLen))
	}
	tooLong := uint64(r.ReqLen) > room
	in.quiet = tooLong
	s.put(i, m, r, off, data)
	if tooLong {
		return s.special(wire.ListExpected, uint32(room))
	}
	return s.done(r.ReqLen)
}

// refuseTooLong ends a receive that matched a message of several packets which does not fit, and is refused.
func (s *SES) refuseTooLong(rv int32, p *recv, r *wire.ReqStd, tag uint64) {
	e := s.recvEvent(p, 0, tag, s.src.Peer, r.Initiator)
	e.RC = wire.RCTooLong
	s.arrived(e, int(r.ReqLen))
	p.refs++
	s.unbind(rv, p, e, 0)
}

// fullOf reports whether a peer has as many open messages as it may have.
func (s *SES) fullOf(pu *peerUse, src *Source) bool {
	most := s.cfg.OpenPerPeer
	if src.First {
		most++
	}
	return int(pu.open+pu.unheard) >= most
}

// sent reports whether all of a message behind these n bytes at off was sent. All packets of a
// message but the last have the same size.
func sent(src *Source, r *wire.ReqStd, off uint32, n int) bool {
	rest := uint64(r.ReqLen) - min(uint64(off)+uint64(n), uint64(r.ReqLen))
	return rest <= uint64(src.Behind)*uint64(n)
}

// put places the bytes of one packet, and completes the message if no byte is missing.
func (s *SES) put(i int32, m *inmsg, r *wire.ReqStd, off uint32, data []byte) {
	p := s.more(m)
	p.epoch = s.epoch
	if r.Flags&wire.SESSOM != 0 {
		m.som = true
		m.hasData = r.Flags&wire.SESHD != 0
		if m.hasData {
			m.data = r.HeaderData
		}
	}
	m.got += uint32(len(data))
	p.edges += s.span(off, uint32(len(data)))
	switch m.state {
	case inBound:
		s.recvs.at(p.recv).place(p.base+uint64(off), data)
	case inOpen:
		s.keepBytes(m, off, data)
	}
	if m.got != m.length || !m.som { // S-RSM-06
		return
	}
	s.close(i, m)
	switch m.state {
	case inBound:
		s.deliver(p.recv, s.recvs.at(p.recv), m, p.base)
		s.freeIn(i, m)
	case inGone:
		s.freeIn(i, m)
	case inWriting:
		s.wrote(m)
		s.freeIn(i, m)
	default:
		s.partial -= chargeOf(int64(m.length))
		m.state = inUnexpected
		s.narrow(m)
		s.completed(i, m)
	}
}

// span hashes the n bytes at off. The sum of span over some parts is that of the whole if each
// byte is in exactly one part: the hashes at the border of two neighbours cancel out. Parts
// that overlap or leave a hole almost surely give another sum.
func (s *SES) span(off, n uint32) uint32 {
	return s.hash(uint64(off)+uint64(n), 3) - s.hash(uint64(off), 3)
}

// close removes a message from those in progress.
func (s *SES) close(i int32, m *inmsg) {
	s.byPDC.remove(i)
	if s.last == i {
		s.last = none
	}
	s.open--
	pu := s.peers.at(m.user)
	pu.open--
	s.putUser(m.user, pu)
}

// deliver completes a receive whose message is all placed, from base on.
func (s *SES) deliver(rv int32, r *recv, m *inmsg, base uint64) {
	placed := int(min(uint64(m.length), r.size()-base))
	e := s.recvEvent(r, placed, m.tag, m.peer, m.init)
	e.data(m.hasData, m.data)
	s.arrived(e, int(m.length)-placed)
	s.unbind(rv, r, e, base)
}

func (s *SES) freeIn(i int32, m *inmsg) {
	s.narrow(m)
	m.state = inFree
	s.in.put(i)
}

// fail ends a message in progress in error, and its receive with nothing placed (F9, S-MSC-03).
// It reports whether the message is remembered as dead.
func (s *SES) fail(i int32, m *inmsg, c Cause, rc wire.RC) bool {
	s.end(m, i, c, rc)
	return s.bury(i, m, rc, m.length)
}

// end makes the error event of a message in progress that has a receive, or removes one that is
// unexpected.
func (s *SES) end(m *inmsg, i int32, c Cause, rc wire.RC) {
	switch m.state {
	case inGone:
		return
	case inWriting:
		s.unwritten(m)
		return
	case inOpen:
		if m.claimed {
			s.loseClaim(i, c, rc)
		}
		s.uncharge(i, m)
		return
	}
	s.failRecv(m, c, rc)
	if m.isPull() {
		s.freePull(m)
	}
}

// failRecv ends the receive of a message in error.
func (s *SES) failRecv(m *inmsg, c Cause, rc wire.RC) {
	p := s.more(m)
	r := s.recvs.at(p.recv)
	e := s.recvEvent(r, 0, m.tag, m.peer, m.init)
	e.data(m.hasData, m.data)
	e.Cause, e.RC = c, rc
	s.Stats.RecvErrors++
	s.unbind(p.recv, r, e, p.base)
	p.recv = none
}

// PDCGone ends the incomplete messages of a PDC. A receive that matched one ends with an error
// event of length 0 (F9, F25); unexpected messages leave no trace.
func (s *SES) PDCGone(pdc uint32, c Cause) {
	if c == OK {
		c = Closed
	}
	h := s.hash(uint64(pdc), 1)
	for i := s.byPDC.first(h); i != none; {
		next := s.byPDC.next(i)
		if m := s.in.at(i); m.pdc == pdc {
			s.drop(i, m, c)
		}
		i = next
	}
	s.eachDeferral(func(i int32, m *inmsg) {
		if m.pdc == pdc {
			s.dropDeferral(i, m, c)
		}
	})
	s.unpromise(pdc, c)
	s.unread(pdc, c)
	s.unserve(pdc)
}

// drop ends an incomplete message and forgets it.
func (s *SES) drop(i int32, m *inmsg, c Cause) {
	if m.state == inDead {
		s.forget(i, m)
		return
	}
	s.end(m, i, c, 0)
	s.close(i, m)
	s.freeIn(i, m)
}

// sweepInbound ends the messages that stopped in the middle (T15, S-RSM-08).
func (s *SES) sweepInbound() {
	if s.in.live() == 0 {
		return
	}
	s.sweepDeferrals()
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			m := s.in.at(i)
			next := s.byPDC.next(i)
			switch {
			case !s.expired(s.more(m).epoch):
			case m.state == inDead:
				if !s.more(m).unheard {
					s.forget(i, m)
				}
			default:
				s.Stats.Expired++
				s.end(m, i, TimedOut, wire.RCDropped)
				s.buryUnheard(i, m, wire.RCDropped)
				next = s.byPDC.next(i) // that may have freed an older dead message
			}
			i = next
		}
	}
}
