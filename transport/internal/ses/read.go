package ses

import (
	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file reads memory of a peer (UE 3.4, S-RMA-10..17), at the side that asks. A read is a send
// whose pieces have no payload: each asks for a part of it (S-SEG-07). The parts come in packets of
// their own, in the return direction of the PDC, or in the answer to the piece. A read ends when
// every byte has come and every piece is answered, or in error.

// A reading is what a send needs if it is a read.
type reading struct {
	m          *send
	pdc        uint32   // by which it goes, see On
	flow       *asking  // of that PDC
	due        uint32   // bytes that were asked for and did not come, each part as long as step
	step       uint32   // bytes that each piece but the last asks for; 0 before the first
	got, edges uint32   // bytes that came, and the sum of span over them
	epoch      uint32   // sweep in which something came last
	psn        wire.PSN // of its packet, if byPSN
	byPSN      bool     // listed in SES.readsByPSN: its request has no message id
	commit     bool     // it asks for durability: one answer without bytes is to come
	promised   bool     // the target has said that the answer comes later: to commit, or when a receive matches
	into       []byte   // where the old values go if it fetches
	fetched    wire.AtomicType
}

// An asking is what the reads on one PDC have asked for together.
type asking struct {
	due   int  // bytes that did not come, as in reading
	reads int  // that have it
	held  bool // in SES.held: a read may ask for no more before something comes, or another read ends
}

// maxAsked is how many parts the reads on a PDC may have asked for that did not come. It is half of
// maxReturns: a target refuses what it cannot remember, and each request that was refused is sent
// again.
const maxAsked = maxReturns / 2

// length is how many bytes are to come.
func (rd *reading) length() uint32 {
	if rd.commit {
		return 1 // the answer
	}
	if rd.into != nil {
		return uint32(len(rd.into))
	}
	return rd.m.hdr.ReqLen
}

// asked is how many bytes may have been sent.
func (rd *reading) asked() uint32 {
	if rd.into != nil {
		return uint32(len(rd.into))
	}
	return rd.m.next
}

// ask makes a send that was just accepted a read, and returns its opcode and key.
func (s *SES) ask(m *send, op *Op) (wire.Opcode, uint64) {
	m.odd, m.early, m.phase = true, false, phaseAsk
	m.hdr.BufOff, m.small = op.RemoteAddr, op.small()
	s.readInto(m, nil)
	return wire.OpRead, op.Key
}

// readInto gives a send what it needs to take data that returns. into is nil if that goes where the
// bytes of a send come from.
func (s *SES) readInto(m *send, into []byte) {
	if n := len(s.idleReads); n > 0 {
		m.read, s.idleReads = s.idleReads[n-1], s.idleReads[:n-1]
	} else {
		m.read = new(reading)
	}
	*m.read = reading{m: m, into: into}
}

// On tells by which PDC a read goes, or what fetches, or a rendezvous send, which is queued there. It reports whether h is
// one of these.
func (s *SES) On(h Handle, pdc uint32) bool {
	_, m := s.lookup(h)
	if m == nil || m.read == nil {
		return m != nil && m.odd && s.standsFor(m, pdc)
	}
	if s.reads == nil {
		s.reads = make(map[uint16]*reading)
	}
	s.leaveFlow(m.read)
	s.lastRead = nil
	m.read.pdc, m.read.epoch = pdc, s.epoch
	s.reads[m.hdr.MsgID] = m.read
	if m.phase == phaseAsk && pdc != NoPDC && m.read.into == nil && !m.read.commit {
		s.joinFlow(m.read)
	}
	return true
}

// joinFlow counts what a read asks for to its PDC.
func (s *SES) joinFlow(rd *reading) {
	if s.asking == nil {
		s.asking = make(map[uint32]*asking)
	}
	if rd.flow = s.asking[rd.pdc]; rd.flow == nil {
		if n := len(s.idleAsking); n > 0 {
			rd.flow, s.idleAsking = s.idleAsking[n-1], s.idleAsking[:n-1]
		} else {
			rd.flow = new(asking)
		}
		s.asking[rd.pdc] = rd.flow
	}
	rd.flow.reads++
}

// leaveFlow undoes joinFlow.
func (s *SES) leaveFlow(rd *reading) {
	if rd.byPSN {
		s.forgetPSN(rd)
	}
	f := rd.flow
	if f == nil {
		return
	}
	f.due -= int(rd.due)
	if f.reads--; f.reads == 0 {
		delete(s.asking, rd.pdc)
		*f = asking{}
		s.idleAsking = append(s.idleAsking, f)
	}
	rd.flow, rd.due = nil, 0
}

// came counts n bytes that a read asked for.
func (rd *reading) came(n uint32) {
	if rd.flow != nil {
		n = min(n, rd.due)
		rd.due -= n
		rd.flow.due -= int(n)
	}
}

// Bare reports whether h is a read, whose pieces have no bytes.
func (s *SES) Bare(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.read != nil && m.operands == 0
}

// reask makes a read one of which nothing was asked for. Its message id must not change before.
func (s *SES) reask(m *send) {
	delete(s.reads, m.hdr.MsgID)
	s.leaveFlow(m.read)
	s.lastRead = nil
	*m.read = reading{m: m, into: m.read.into, fetched: m.read.fetched, commit: m.read.commit}
}

// endRead frees what a read needed.
func (s *SES) endRead(m *send) {
	delete(s.reads, m.hdr.MsgID)
	s.leaveFlow(m.read)
	s.lastRead = nil
	m.read.m, m.read.into = nil, nil
	s.idleReads = append(s.idleReads, m.read)
	m.read, m.hdr.BufOff = nil, 0
}

// lacks reports whether bytes of a read are to come.
func (m *send) lacks() bool { return m.read != nil && m.cause == OK && m.read.got < m.read.length() }

// peekAsk is Peek of a read. It returns false while ReadWindow bytes were asked for that did not
// come, or maxDue by all reads on the PDC.
func (s *SES) peekAsk(h Handle, m *send, mtu uint32) (piece.Piece, bool) {
	if m.operands != 0 {
		return m.peekAtomic(h), true
	}
	rd := m.read
	switch {
	case rd.commit:
		rd.step = m.hdr.ReqLen
	case rd.step == 0:
		rd.step = mtu
	}
	n := m.asks(m.next)
	if m.next > rd.got && m.next-rd.got+n > uint32(s.cfg.ReadWindow) {
		return piece.Piece{}, false
	}
	if rd.flow != nil && rd.flow.due+int(rd.step) > m.maxDue(rd.step) {
		if !rd.flow.held {
			rd.flow.held = true
			s.held = append(s.held, rd.pdc)
		}
		return piece.Piece{}, false
	}
	p := piece.Piece{Msg: uint32(h), Off: m.next, Kind: piece.Ask}
	if m.next+n == m.hdr.ReqLen {
		p.Kind |= piece.Last
	}
	if m.small {
		s.askSmall(m, &p, mtu)
	}
	return p, true
}

// maxDue is how many bytes the reads on the PDC of m, each packet of step bytes, may have asked for that did not come.
func (m *send) maxDue(step uint32) int {
	if m.ordered {
		return min(maxAsked*int(step), maxAskedOrdered)
	}
	return maxAsked * int(step)
}

// asks is how many bytes the piece at an offset of a read asks for.
func (m *send) asks(off uint32) uint32 { return min(m.read.step, m.hdr.ReqLen-off) }

// Paced reports whether h is a read that asks for no more before something has come.
func (s *SES) Paced(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.phase == phaseAsk && m.loan == nil
}

// Asks is by how many packets of at most mtu bytes a read asks before it must wait for what comes, 0 if h is none.
func (s *SES) Asks(h Handle, mtu int) int {
	_, m := s.lookup(h)
	if m == nil || m.read == nil || m.read.commit || m.operands != 0 || m.phase != phaseAsk {
		return 0
	}
	step := m.read.step
	if step == 0 {
		step = uint32(mtu)
	}
	room := max(s.cfg.ReadWindow-int(m.next)+int(m.read.got), 0)
	if f := m.read.flow; f != nil {
		room = min(room, max(m.maxDue(step)-f.due, 0))
	}
	return min((int(m.hdr.ReqLen-m.next)+int(step)-1)/int(step), room/int(step))
}

// encodeAsk appends a piece of a read. The first piece of several says how much it asks for where
// others have their length: the specification has no field for it and assumes that both sides
// have the same MTU (S-SEG-03, S-RMA-68). Without HD the field has no meaning to others.
func (s *SES) encodeAsk(b []byte, m *send, p piece.Piece, first bool) []byte {
	n := m.asks(p.Off)
	if first {
		s.tookAsk(m, p, n)
	}
	r := m.hdr
	if m.read.commit {
		r.Flags = m.wireFlags | single
		return r.Append(b)
	}
	r.Flags, r.HeaderData = m.wireFlags&^wire.SESHD, 0
	if p.Off+n == r.ReqLen {
		r.Flags |= wire.SESEOM
	}
	switch {
	case p.Off != 0:
		r.MsgOff, r.PayloadLen = p.Off, uint16(n)
	case n != r.ReqLen:
		r.HeaderData = uint64(n) << 32
		fallthrough
	default:
		r.Flags |= wire.SESSOM
	}
	return r.Append(b)
}

// tookAsk notes that the piece p, which asks for n bytes, was handed out.
func (s *SES) tookAsk(m *send, p piece.Piece, n uint32) {
	if p.Kind&piece.Recut != 0 {
		s.tookRecut(m, p)
		if m.phase == phaseData {
			m.phase = phaseAsk
		}
		return
	}
	m.next += n
	m.open++
	if f := m.read.flow; f != nil {
		m.read.due += m.read.step
		f.due += int(m.read.step)
	}
	if p.Last() {
		m.phase = phaseSent
	}
}

// returned executes a packet of the return direction: read data.
func (s *SES) returned(src *Source, next wire.NextHdr, b []byte) *Result {
	if next == wire.NextRspDataSmall {
		return s.returnedSmall(src, b)
	}
	h, n, err := wire.ParseRspData(b)
	if err != nil {
		return s.bad(ReasonShort)
	}
	s.req.MsgID, s.req.JobID = h.MsgID, h.JobID
	if voidReturn(&h) {
		return s.rejected(wire.RCUnsupportedOp)
	}
	s.ReadData(src.PDC, &h, b[n:])
	return s.done(0)
}

// ReadData places what came of a read by a PDC (S-RMA-17).
func (s *SES) ReadData(pdc uint32, h *wire.RspData, data []byte) {
	rd := s.lastRead
	if rd == nil || rd.m.hdr.MsgID != h.ReadMsgID {
		rd = s.reads[h.ReadMsgID]
		s.lastRead = rd
	}
	if rd == nil || rd.pdc != pdc || rd.m.cause != OK {
		s.Stats.RspForeign++ // of a read that has ended
		return
	}
	m, n := rd.m, uint32(h.PayloadLen)
	rd.epoch = s.epoch
	end, got := uint64(h.MsgOff)+uint64(n), uint64(rd.got)+uint64(n)
	switch {
	case h.RC != wire.RCOK && h.RC != wire.RCNull:
		s.failRead(m, Rejected, h.RC)
		return
	case int(n) > len(data) || end > uint64(rd.asked()) || got > uint64(rd.length()) || m.small && h.RC == wire.RCOK && n != rd.length():
		s.failRead(m, PeerError, wire.RCOpViolation)
		return
	}
	if rd.commit {
		s.committed(m)
		return
	}
	if rd.into != nil {
		copy(rd.into[h.MsgOff:], data[:n])
	} else {
		m.scatter(h.MsgOff, data[:n])
	}
	rd.got += n
	rd.came(n)
	rd.edges += s.span(h.MsgOff, n)
	switch {
	case rd.got != rd.length():
	case rd.edges != s.span(0, rd.got): // some bytes came twice, and others are missing
		s.failRead(m, PeerError, wire.RCOpViolation)
		return
	}
	if rd.got != rd.length() {
		return
	}
	switch {
	case m.kind == evNotice:
		s.pulled(m)
	case rd.into != nil:
		amo.Swap(rd.into, rd.fetched)
	}
	if m.open == 0 && m.phase == phaseSent {
		s.allAnswered(m)
	}
}

// scatter copies data to an offset of the memory that a read is for.
func (m *send) scatter(off uint32, data []byte) {
	if m.iov == nil {
		if uint64(off) < uint64(len(m.buf)) { // what is beyond the receive of a rendezvous send is lost
			copy(m.buf[off:], data)
		}
		return
	}
	at := uint64(off)
	for _, v := range m.iov {
		if at >= uint64(len(v)) {
			at -= uint64(len(v))
			continue
		}
		data = data[copy(v[at:], data):]
		at = 0
	}
}

// failRead ends a read in error. If it did not ask for everything yet, the target is told so.
func (s *SES) failRead(m *send, c Cause, rc wire.RC) {
	m.cause, m.rc = c, rc
	if m.phase == phaseAsk {
		m.phase = phaseError
	}
	if m.phase == phaseSent && m.open == 0 {
		s.allAnswered(m)
	}
}

// Reading reports whether a read that has begun on a PDC has not ended.
func (s *SES) Reading(pdc uint32) bool {
	if len(s.reads) == 0 {
		return false
	}
	for i := range s.sends.used {
		if m := s.sends.at(i); m.phase != phaseFree && m.read != nil && m.read.pdc == pdc && !m.unbegun() {
			return true
		}
	}
	return false
}

// unread ends the reads of which nothing can come any more, because their PDC is gone. Those with
// pieces that are not answered end when these fail.
func (s *SES) unread(pdc uint32, c Cause) {
	if len(s.reads) == 0 {
		return
	}
	s.eachRead(func(m *send) {
		if m.read.pdc == pdc && m.open == 0 {
			s.stop(m, c, 0)
		}
	})
}

// sweepReads ends the reads of which nothing came for IdleTimeout although the target lives, and has
// those looked at that wait for others.
func (s *SES) sweepReads() {
	if len(s.reads) != 0 {
		s.endOldReads()
	}
	for _, pdc := range s.held { // a read may have ended without a packet: look again
		if f := s.asking[pdc]; f != nil {
			f.held = false
		}
		s.owing = append(s.owing, pdc)
	}
	s.held = s.held[:0]
}

func (s *SES) endOldReads() {
	s.eachRead(func(m *send) {
		if m.open == 0 && s.expired(m.read.epoch) && !m.meetsNone() {
			s.Stats.Expired++
			s.stop(m, TimedOut, 0)
		}
	})
}

// eachRead calls f for each read that has begun and waits for data.
func (s *SES) eachRead(f func(m *send)) {
	for i := range s.sends.used {
		if m := s.sends.at(i); m.phase != phaseFree && m.read != nil && m.lacks() && !m.unbegun() {
			f(m)
		}
	}
}
