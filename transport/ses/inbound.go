package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// inState is what an inbound message is.
type inState uint8

const (
	inFree  inState = iota
	inBound         // has a receive; parts are missing
	inOpen          // unexpected; parts are missing
	inHeld          // unexpected and complete
	inDead          // ended in error; parts may still come and get that error
	inGone          // discarded by a peek; parts are missing and nobody wants them
)

// An inmsg is the state of an inbound message of several packets (S-RSM-01), or
// of an unexpected one. It holds no pointers.
type inmsg struct {
	tag, data, bufOff uint64
	pdc, peer, init   uint32
	length, got       uint32        // bytes of the message, and of those arrived
	edges             uint32        // of what arrived, see span
	end               uint64        // inDead: bytes that will ever come
	base              uint64        // inBound: where it begins in a multi-receive buffer
	began             time.Duration // when the first packet came
	recv              int32         // inBound
	user              int32         // its place in SES.peers, or none
	tab               int32         // payload in chunks: its place in SES.tabs, or none
	piece             uint32        // payload in one piece, or noPiece
	epoch             uint32        // sweep in which it was last touched
	deadNext          int32         // inDead: the next younger one of the peer
	msgID             uint16
	state             inState
	opcode            wire.Opcode
	rc                wire.RC // inDead: what its packets are answered
	tagged            bool
	som, hasData      bool
	claimed           bool // reserved by a peek: off the lists of its space
	quiet             bool // what is special was answered already: the rest gets NULL
}

// A chunkTab lists the chunks of a message longer than a piece; none where
// nothing arrived yet.
type chunkTab struct{ ids []int32 }

// peerUse is what one peer makes this side hold. It exists while that is
// something.
type peerUse struct {
	peer               uint32
	open, held, dead   int32
	bytes              int64
	deadHead, deadTail int32
	unproven           bool // held and bytes count in SES.unproven
}

// maxDead bounds the dead messages of all peers.
const maxDead = 4096

// maxState bounds the inbound messages that have state: what is bound to
// receives and unexpected is bounded by those.
func (s *SES) maxState() int { return s.cfg.UnexpectedMsgs + s.cfg.MaxRecvs + maxDead }

// findIn finds the state of a message of several packets.
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

// Open reports whether messages from that PDC are incomplete.
func (s *SES) Open(pdc uint32) bool {
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

// part executes a packet of a message of several.
func (s *SES) part(src Source, r *wire.ReqStd, off uint32, data []byte) verdict {
	i, m := s.findIn(src.PDC, r.MsgID)
	if m == nil {
		return s.begin(src, r, off, data)
	}
	if m.state == inDead {
		if !m.same(r) {
			s.forget(i, m)
			return s.begin(src, r, off, data)
		}
		rc := m.rc
		s.count(i, m, r, uint32(len(data)))
		return refusal(rc)
	}
	// S-RSM-05; JobID, PIDonFEP and RI equal ours. Bytes that came twice would
	// end the message with others missing.
	got := uint64(m.got) + uint64(len(data))
	if m.opcode != r.Opcode || m.length != r.ReqLen || m.init != r.Initiator || m.bufOff != r.BufOff || m.tagged && m.tag != r.Match ||
		r.Flags&wire.SESSOM != 0 && m.som || got > uint64(m.length) ||
		got == uint64(m.length) && m.edges+s.span(off, uint32(len(data))) != s.span(0, m.length) {
		return s.refuse(src, r, wire.RCOpViolation, 0)
	}
	quiet := m.quiet
	s.put(i, m, r, off, data)
	if quiet {
		return verdict{rc: wire.RCNull} // DEFAULT_RESPONSE
	}
	return done(r.ReqLen)
}

// begin executes the first packet to arrive of a message of several, whichever
// that is (S-RSM-02): here it is matched, once (S-MAT-06).
func (s *SES) begin(src Source, r *wire.ReqStd, off uint32, data []byte) verdict {
	if src.Later && !sent(&src, r, off, len(data)) {
		return s.nack()
	}
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if int(pu.open) >= s.cfg.OpenPerPeer || s.in.live() >= s.maxState() {
		s.putUser(u, pu)
		return s.nack()
	}
	tagged := r.Opcode == wire.OpTaggedSend
	tag := r.Match
	if !tagged {
		tag = 0
	}
	sp := s.space(tagged)
	rv, p := s.match(sp, tag, src.Peer, r.Initiator)
	if p != nil && s.cfg.RefuseTooLong && uint64(r.ReqLen) > p.size-p.off {
		s.putUser(u, pu)
		e := s.recvEvent(p)
		e.Tag, e.Peer, e.Initiator, e.RC = tag, PeerID(src.Peer), r.Initiator, wire.RCTooLong
		s.arrived(e, 0, int(r.ReqLen))
		p.refs++
		s.unbind(rv, p, e, 0)
		s.entomb(src, r, wire.RCTooLong, uint64(r.ReqLen), uint32(len(data)))
		return refusal(wire.RCTooLong)
	}
	if rv == none && (src.Later || !s.reserve(pu, &src, int64(r.ReqLen))) {
		s.putUser(u, pu)
		return s.nack()
	}
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{
		tag: tag, bufOff: r.BufOff, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: r.ReqLen,
		began: src.Now, recv: rv, user: u, tab: none, piece: noPiece, msgID: r.MsgID, opcode: r.Opcode, tagged: tagged,
	}
	pu.open++
	s.open++
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.last = i
	v := done(r.ReqLen)
	if rv == none {
		m.state = inOpen
		s.charge(i, m, true)
		v = special(wire.ListOverflow, r.ReqLen)
	} else {
		m.state = inBound
		room := p.size
		if p.multi {
			room -= p.off
			m.base = s.pack(rv, p, uint64(r.ReqLen))
		}
		if uint64(r.ReqLen) > room {
			v = special(wire.ListExpected, uint32(room))
		}
	}
	m.quiet = v.op() == wire.RspResponse
	s.put(i, m, r, off, data)
	return v
}

// sent reports whether what follows n bytes at off of a message was sent. All packets of
// a message but the last are of one size.
func sent(src *Source, r *wire.ReqStd, off uint32, n int) bool {
	rest := uint64(r.ReqLen) - min(uint64(off)+uint64(n), uint64(r.ReqLen))
	return rest <= uint64(src.Behind)*uint64(n)
}

// put places the bytes of one packet and completes the message with the last.
func (s *SES) put(i int32, m *inmsg, r *wire.ReqStd, off uint32, data []byte) {
	m.epoch = s.epoch
	if r.Flags&wire.SESSOM != 0 {
		m.som = true
		m.hasData = r.Flags&wire.SESHD != 0
		if m.hasData {
			m.data = r.HeaderData
		}
	}
	m.got += uint32(len(data))
	m.edges += s.span(off, uint32(len(data)))
	switch m.state {
	case inBound:
		s.recvs.at(m.recv).place(m.base+uint64(off), data)
	case inOpen:
		s.keepBytes(m, off, data)
	}
	if m.got != m.length || !m.som { // S-RSM-06
		return
	}
	s.close(i, m)
	switch m.state {
	case inBound:
		s.deliver(m.recv, s.recvs.at(m.recv), m)
		s.freeIn(i, m)
	case inGone:
		s.freeIn(i, m)
	default:
		m.state = inHeld
	}
}

// span hashes n bytes from off on such that the sum over parts is that of the whole if
// each byte is in one of them: what is between two neighbours cancels out, and nothing
// else does.
func (s *SES) span(off, n uint32) uint32 {
	return s.hash(uint64(off)+uint64(n), 3) - s.hash(uint64(off), 3)
}

// close takes a message out of those in progress.
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

// deliver completes a receive with a message whose bytes are all placed.
func (s *SES) deliver(rv int32, r *recv, m *inmsg) {
	e := s.recvEvent(r)
	e.Tag, e.Peer, e.Initiator, e.HasData, e.Data = m.tag, PeerID(m.peer), m.init, m.hasData, m.data
	placed := int(min(uint64(m.length), r.size-m.base))
	s.arrived(e, placed, int(m.length)-placed)
	s.unbind(rv, r, e, m.base)
}

func (s *SES) freeIn(i int32, m *inmsg) {
	m.state = inFree
	s.in.put(i)
}

// fail ends a message in progress: its receive in error, with nothing placed
// (F9, S-MSC-03), or its place among the unexpected. It reports whether it is
// remembered.
func (s *SES) fail(i int32, m *inmsg, c Cause, rc wire.RC) bool {
	s.end(m, i, c, rc)
	return s.bury(i, m, rc, uint64(m.length))
}

// end makes the error event of a message in progress, or takes it back from the
// unexpected ones.
func (s *SES) end(m *inmsg, i int32, c Cause, rc wire.RC) {
	switch m.state {
	case inGone:
		return
	case inOpen:
		if m.claimed {
			s.loseClaim(i, c, rc)
		}
		s.uncharge(i, m)
		return
	}
	r := s.recvs.at(m.recv)
	e := s.recvEvent(r)
	e.Tag, e.Peer, e.Initiator, e.HasData, e.Data = m.tag, PeerID(m.peer), m.init, m.hasData, m.data
	e.Cause, e.RC = c, rc
	s.Stats.RecvErrors++
	s.unbind(m.recv, r, e, m.base)
	m.recv = none
}

// What is dead. A message that ended in error is remembered, because packets of
// it may still be under way: they get the same error and must not look like a
// new message (S-RSM-07). It is forgotten when all bytes that will ever come
// have come, when the peer has too many of them, or after IdleTimeout. When there are
// maxDead of all peers, one that has none gets none: the rest of its message looks new.

// bury makes a message in progress a dead one, or forgets it, and reports which.
func (s *SES) bury(i int32, m *inmsg, rc wire.RC, end uint64) bool {
	pu := s.peers.at(m.user)
	if !s.deadRoom(pu) {
		s.close(i, m)
		s.freeIn(i, m)
		return false
	}
	s.open--
	pu.open--
	m.state, m.rc, m.end, m.epoch = inDead, rc, end, s.epoch
	s.enlist(i, m, pu)
	return true
}

// deadRoom reports whether a peer may have one more dead message. Its oldest makes room.
func (s *SES) deadRoom(pu *peerUse) bool {
	if s.dead < maxDead {
		return true
	}
	if pu.dead == 0 {
		return false
	}
	s.forget(pu.deadHead, s.in.at(pu.deadHead))
	return true
}

// entomb remembers a message of which nothing is known but that its packets are
// to be answered rc. n is the payload bytes of the packet that says so.
func (s *SES) entomb(src Source, r *wire.ReqStd, rc wire.RC, end uint64, n uint32) {
	if i, m := s.findIn(src.PDC, r.MsgID); m != nil {
		s.forget(i, m) // dead, and another message
	}
	u := s.user(src.Peer)
	if pu := s.peers.at(u); s.in.live() >= s.maxState() || !s.deadRoom(pu) {
		s.putUser(u, pu)
		return
	}
	u = s.user(src.Peer) // it may have been forgotten with its oldest
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{pdc: src.PDC, peer: src.Peer, length: r.ReqLen, recv: none, user: u, tab: none, piece: noPiece,
		msgID: r.MsgID, state: inDead, opcode: r.Opcode, rc: rc, end: end, epoch: s.epoch}
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.enlist(i, m, s.peers.at(m.user))
	if r.Opcode != wire.OpMsgError {
		s.count(i, m, r, n)
	}
}

// same reports whether a packet belongs to a dead message rather than to a new
// one that got its message id.
func (m *inmsg) same(r *wire.ReqStd) bool {
	return m.length == r.ReqLen && (m.opcode == r.Opcode || m.opcode == wire.OpMsgError) && !(m.som && r.Flags&wire.SESSOM != 0)
}

func (s *SES) enlist(i int32, m *inmsg, pu *peerUse) {
	m.deadNext = none
	if pu.dead == 0 {
		pu.deadHead = i
	} else {
		s.in.at(pu.deadTail).deadNext = i
	}
	pu.deadTail = i
	pu.dead++
	s.dead++
	if int(pu.dead) > s.cfg.OpenPerPeer {
		s.forget(pu.deadHead, s.in.at(pu.deadHead))
	}
}

// count notes a packet of a dead message with n bytes.
func (s *SES) count(i int32, m *inmsg, r *wire.ReqStd, n uint32) {
	m.som = m.som || r.Flags&wire.SESSOM != 0
	m.got += n
	m.epoch = s.epoch
	if n > 0 && uint64(m.got) >= m.end {
		s.forget(i, m)
	}
}

// forget frees a dead message.
func (s *SES) forget(i int32, m *inmsg) {
	pu := s.peers.at(m.user)
	prev := none
	for k := pu.deadHead; k != i; k = s.in.at(k).deadNext {
		prev = k
	}
	if prev == none {
		pu.deadHead = m.deadNext
	} else {
		s.in.at(prev).deadNext = m.deadNext
	}
	if pu.deadTail == i {
		pu.deadTail = prev
	}
	pu.dead--
	s.dead--
	s.putUser(m.user, pu)
	s.byPDC.remove(i)
	if s.last == i {
		s.last = none
	}
	s.freeIn(i, m)
}

// msgError executes MSG_ERROR: the initiator gave a message up after MsgOff
// bytes (S-MSC-03). The answer is OK, so that its own error stands.
func (s *SES) msgError(src Source, r *wire.ReqStd) verdict {
	s.Stats.MsgErrorsRx++
	end := uint64(r.MsgOff)
	if r.Flags&wire.SESSOM != 0 {
		end = 0
	}
	i, m := s.findIn(src.PDC, r.MsgID)
	switch {
	case m == nil && end > 0:
		// Its packets may come behind it.
		s.entomb(src, r, wire.RCInitiatorError, end, 0)
	case m == nil:
	case m.state == inDead:
		m.end = min(m.end, end)
		m.epoch = s.epoch
		if uint64(m.got) >= m.end {
			s.forget(i, m)
		}
	default:
		s.end(m, i, PeerError, wire.RCInitiatorError)
		if s.bury(i, m, wire.RCInitiatorError, end) && uint64(m.got) >= m.end {
			s.forget(i, m)
		}
	}
	return done(0)
}

// PDCGone ends the messages of a PDC that are not complete: matched receives
// with an error event of length 0 (F9, F25), unexpected ones without a trace.
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
}

// drop ends a message and forgets it.
func (s *SES) drop(i int32, m *inmsg, c Cause) {
	if m.state == inDead {
		s.forget(i, m)
		return
	}
	s.end(m, i, c, 0)
	s.close(i, m)
	s.freeIn(i, m)
}

// sweepInbound ends what stopped in the middle (T15, S-RSM-08).
func (s *SES) sweepInbound() {
	if s.in.live() == 0 {
		return
	}
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			m := s.in.at(i)
			next := s.byPDC.next(i)
			switch {
			case !s.expired(m.epoch):
			case m.state == inDead:
				s.forget(i, m)
			default:
				s.Stats.Expired++
				s.fail(i, m, TimedOut, wire.RCDropped)
				next = s.byPDC.next(i) // an older dead one may have gone
			}
			i = next
		}
	}
}

// cancelInbound drops every message: the endpoint closes.
func (s *SES) cancelInbound() {
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			next := s.byPDC.next(i)
			s.drop(i, s.in.at(i), Cancelled)
			i = next
		}
	}
	for _, c := range s.claims {
		if c.msg != none {
			m := s.in.at(c.msg)
			s.uncharge(c.msg, m)
			s.freeIn(c.msg, m)
		}
	}
	s.claims = nil
	for k := range s.spaces {
		for i := s.spaces[k].order.first(0); i != none; i = s.spaces[k].order.first(0) {
			m := s.in.at(i)
			s.uncharge(i, m)
			s.freeIn(i, m)
		}
	}
}

// user finds or makes the record of a peer.
func (s *SES) user(peer uint32) int32 {
	h := s.hash(uint64(peer), 2)
	for u := s.byPeer.first(h); u != none; u = s.byPeer.next(u) {
		if s.peers.at(u).peer == peer {
			return u
		}
	}
	u := s.peers.get()
	*s.peers.at(u) = peerUse{peer: peer, deadHead: none, deadTail: none}
	s.byPeer.add(u, h)
	return u
}

// putUser frees the record of a peer that holds nothing.
func (s *SES) putUser(u int32, pu *peerUse) {
	if pu.open == 0 && pu.held == 0 && pu.dead == 0 {
		s.byPeer.remove(u)
		s.peers.put(u)
	}
}
