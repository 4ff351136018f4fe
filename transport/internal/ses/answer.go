package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// Answered reports that the target executed one piece of h. rsp is its response, which
// Answered does not retain; nil is the default response, success (S-ACK-05: every other
// result is guaranteed and comes in a packet of its own).
func (s *SES) Answered(h Handle, rsp *wire.Rsp) {
	_, m := s.lookup(h)
	if m == nil {
		s.answeredOther(h)
		return
	}
	m.open--
	if rsp != nil && (rsp.Opcode != wire.RspDefault || rsp.RC != wire.RCOK || rsp.MsgID != m.hdr.MsgID && !(m.small && rsp.MsgID == 0) || rsp.List != wire.ListExpected) {
		s.result(m, rsp)
	}
	if m.open != 0 || m.phase != phaseSent {
		return
	}
	if m.odd || s.numFences != 0 {
		s.allAnswered(m)
		return
	}
	// It is endSend for nearly every message, and costs a stream of small ones 3 % less.
	s.succeeded(m)
	e := s.events.add()
	e.init(m.ep.id, m.kind, m.context, m.flags, m.buf, int(m.hdr.ReqLen), m.hdr.Match, PeerID(m.peer), 0)
	e.data(m.wireFlags&wire.SESHD != 0, m.hdr.HeaderData)
	s.freeSend(m)
}

// answeredOther is Answered for a handle that names no send: it names a read that is served, or a
// send that has ended.
func (s *SES) answeredOther(h Handle) {
	if h.served() {
		s.servedPiece(h)
		return
	}
	s.Stats.Stale++
}

// served reports whether h names a read that is served.
func (h Handle) served() bool { return h>>16 == 0 && h != 0 }

// result processes a response other than the default one.
func (s *SES) result(m *send, rsp *wire.Rsp) {
	m.odd = true
	if rsp.MsgID != m.hdr.MsgID && rsp.MsgID != 0 {
		// S-RSP-06: the message id is wrong. The PSN ties the response to the packet, so an
		// error still counts.
		s.Stats.RspForeign++
	}
	if rsp.List > wire.ListOverflow {
		s.Stats.RspUnknown++
	}
	if rsp.List == wire.ListOverflow && rsp.ModLen == 0 && (m.commit == commitAsked || m.hdr.Opcode == wire.OpTSendFetchAtomic) {
		m.read.promised = true
	}
	switch rsp.Opcode {
	case wire.RspDefault, wire.RspWithData:
	case wire.RspResponse:
		if m.response = true; m.kind == evNotice && rsp.List == wire.ListExpected && m.hdr.Opcode == wire.OpNoOp {
			m.flags |= saysHad
		}
	case wire.RspNone:
		m.noResponse = true // S-CPL-04
		return
	default:
		s.Stats.RspUnknown++
		return
	}
	switch {
	case m.defers(rsp):
		s.stopPieces(m)
		return
	case m.loan != nil && unmatched(rsp):
		m.loan.kept = true
	case m.match && unmatched(rsp) && !m.noResponse && m.cause == OK: // R-CMPL-12, R-CMPL-19
		m.cause = Untold
	}
	// S-CPL-02: NULL only answers the packet. S-CPL-07: OK with a smaller modified_length
	// is success for the sender. R-CMPL-19: so is OVERFLOW.
	if rsp.RC == wire.RCNull || rsp.RC == wire.RCOK {
		return
	}
	if rsp.RC == wire.RCBadGeneration && !m.small {
		s.adopt(m, rsp.Gen)
	}
	if m.cause == OK { // S-ERR-01: the first error wins
		m.cause, m.rc = Rejected, rsp.RC
		if m.small && rsp.RC == wire.RCBadIndex {
			m.rc = wire.RCBadMKey // its resource index is the RKEY
		}
	}
	switch m.phase {
	case phaseData, phaseAsk:
		m.phase = phaseError // S-CPL-03, S-SEG-08
	case phaseRecut:
		s.dropRecut(m)
	}
}

// Response processes the response that an earlier NO_RESPONSE promised (S-CPL-04). Its packet
// was Answered before. Response reports whether a message to that peer waited for it.
func (s *SES) Response(peer uint32, rsp *wire.Rsp) bool {
	if s.waitResult == 0 || rsp.Opcode != wire.RspResponse {
		return false
	}
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase == phaseResult && m.hdr.MsgID == rsp.MsgID && m.peer == peer {
			s.resulted(m, rsp)
			return true
		}
	}
	s.Stats.RspForeign++
	return false
}

// ResponseTo is Response for one without message id, which is for h.
func (s *SES) ResponseTo(h Handle, rsp *wire.Rsp) {
	if _, m := s.lookup(h); m != nil && m.phase == phaseResult && m.small {
		s.resulted(m, rsp)
		return
	}
	s.Stats.RspForeign++
}

// resulted processes the response for which m waits.
func (s *SES) resulted(m *send, rsp *wire.Rsp) {
	s.waitResult--
	m.phase = phaseSent
	s.result(m, rsp)
	s.allAnswered(m)
}

// Promised tells that a piece of h was answered NO_RESPONSE on a PDC, on which the RESPONSE
// will come. The message waits for it as long as the PDC lives: the target may get the
// receive much later (S-CPL-04).
func (s *SES) Promised(h Handle, pdc uint32) {
	if _, m := s.lookup(h); m != nil {
		m.promised = pdc
	}
}

// Deferred reports whether the target has deferred h.
func (s *SES) Deferred(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.deferred
}

// Awaits reports whether a message waits for the RESPONSE that was promised on a PDC.
func (s *SES) Awaits(pdc uint32) bool {
	if s.waitResult == 0 {
		return false
	}
	for i := range s.sends.used {
		if m := s.sends.at(i); m.promised == pdc && (m.phase == phaseResult || m.phase == phaseDeferred || m.phase == phaseLent) {
			return true
		}
	}
	return false
}

// Keeps reports whether something is to come on a PDC and no other: read data, or the RESPONSE of a message. What
// was deferred or announced may come by any.
func (s *SES) Keeps(pdc uint32) bool {
	if s.waitResult != 0 {
		for i := range s.sends.used {
			if m := s.sends.at(i); m.promised == pdc && m.phase == phaseResult {
				return true
			}
		}
	}
	return s.Reading(pdc)
}

// Expects reports whether h waits for a RESPONSE that was promised, or will when all its pieces
// are answered.
func (s *SES) Expects(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.noResponse && !m.response && m.cause == OK
}

// Kept tells that the RESPONSE that was promised to h would have said no more than success.
func (s *SES) Kept(h Handle) {
	_, m := s.lookup(h)
	if m == nil {
		s.Stats.Stale++
		return
	}
	if m.response = true; m.phase == phaseResult {
		s.waitResult--
		m.phase = phaseSent
		s.allAnswered(m)
	}
}

// unpromise ends the messages whose RESPONSE cannot come any more, because its PDC is gone. What the target
// has deferred may come by any PDC, if this one was closed in order; the target is asked whether it still
// has it.
func (s *SES) unpromise(pdc uint32, c Cause) {
	if s.waitResult == 0 {
		return
	}
	for i := range s.sends.used {
		m := s.sends.at(i)
		switch {
		case m.promised != pdc || m.phase != phaseResult && m.phase != phaseDeferred && m.phase != phaseLent:
		case s.Crowded && m.phase != phaseResult && c == Closed:
			m.promised, m.sweeps = noPDC, sweepsMost
		case m.phase == phaseLent:
			s.lentGone(m, c)
		case m.phase == phaseDeferred && c == Closed:
			s.recheck(m)
		default:
			s.stop(m, c, 0)
		}
	}
}

// Failed reports that one piece of h will never be answered; the target may have executed it
// nevertheless. No further piece of h is sent. The event has the cause of the first failure
// and comes when no piece is outstanding.
func (s *SES) Failed(h Handle, c Cause, nack wire.NackCode) {
	_, m := s.lookup(h)
	switch {
	case m != nil:
		m.open--
		if m.isForRUD() {
			m.cause, m.rc = OK, 0 // its peer is gone for RUD, too
		}
		s.stop(m, c, nack)
	case h.served():
		s.failedServe(h)
	default:
		s.Stats.Stale++
	}
}

// Unrun reports that one piece of h will never be answered, on a PDC that ended before any
// target executed the whole message. If h is still to be sent, its last outstanding piece makes
// it one of which nothing was sent, and Unrun returns true: the caller sends it from its
// beginning on another PDC. A message that was given up or refused ends.
func (s *SES) Unrun(h Handle) bool {
	_, m := s.lookup(h)
	if m == nil {
		s.Stats.Stale++
		return false
	}
	m.open--
	switch {
	case m.cause != OK || m.told && !m.copied:
		m.unexecuted = true
		s.stop(m, Aborted, wire.NackInvDPDCID)
		return false
	case m.open != 0:
		return false
	}
	if m.res != nil {
		s.left(m, false)
	}
	s.rewind(m, true)
	return true
}

// Unbegun reports whether no piece of h was handed out in this attempt.
func (s *SES) Unbegun(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.unbegun()
}

// GiveUp gives up a piece for which the target was not ready for too long, while its PDC goes
// on. The target must end what it has of the message (S-SEG-08): GiveUp returns the MSG_ERROR
// to send in place of the piece, which counts as handed out. If the piece was that MSG_ERROR,
// GiveUp returns false and the piece has failed. Pieces that were not handed out are replaced
// by a MSG_ERROR too, as after a refusal: the target may have the piece given up.
func (s *SES) GiveUp(p piece.Piece, nack wire.NackCode) (piece.Piece, bool) {
	h := Handle(p.Msg)
	_, m := s.lookup(h)
	if m == nil || p.Error() {
		s.Failed(h, NotReady, nack)
		return piece.Piece{}, false
	}
	m.odd = true
	if m.cause == OK {
		m.cause, m.nack = NotReady, nack
	}
	switch m.phase {
	case phaseData, phaseAsk:
		m.phase, m.unexecuted = phaseError, true
	case phaseRecut:
		s.dropRecut(m)
	}
	s.Stats.MsgErrorsTx++
	e := piece.Piece{Msg: p.Msg, Off: m.next, Kind: piece.Error | piece.Last}
	if p.Off == 0 && p.Last() {
		e.Off = 0 // no other piece was sent
	}
	return e, true
}

// Break ends h, of which a part was sent and no more can be.
func (s *SES) Break(h Handle, c Cause, nack wire.NackCode) {
	if _, m := s.lookup(h); m != nil {
		s.stop(m, c, nack)
	}
}

// Abandon ends h, of which nothing was sent in this attempt. If the target promised a result,
// it has h, and the effect is unknown.
func (s *SES) Abandon(h Handle, c Cause) {
	if _, m := s.lookup(h); m != nil {
		s.unwait(m)
		if m.open == 0 && m.phase != phaseResult {
			m.cause, m.rc = OK, 0 // forget the refusal of an earlier attempt
			m.unexecuted = true
		}
		s.stop(m, c, 0)
	}
}

func (s *SES) stop(m *send, c Cause, nack wire.NackCode) {
	m.odd = true
	if m.cause == OK {
		m.cause, m.nack = c, nack
		if c == OK {
			m.cause = Closed
		}
	}
	switch m.phase {
	case phaseRecut:
		s.dropRecut(m)
		m.phase = phaseSent
	case phaseData, phaseError, phaseAsk:
		m.unexecuted = true
		m.phase = phaseSent
	case phaseResult:
		s.waitResult--
		m.phase = phaseSent
	case phaseDeferred, phaseLent:
		s.unwait(m)
	}
	if m.open == 0 && m.phase == phaseSent {
		s.allAnswered(m)
	}
}

// allAnswered decides what becomes of a message whose pieces were all handed out and answered
// or failed: it ends, is sent again, or waits for a promised response.
func (s *SES) allAnswered(m *send) {
	if m.lacks() {
		if !m.read.commit || m.read.promised {
			return // ReadData ends it
		}
		m.cause = Untold // as from a target that has executed it as a write of no bytes
	}
	if m.res != nil {
		s.left(m, m.cause == OK)
	}
	if m.cause != OK {
		switch {
		case m.cause == Rejected && s.again(m):
			s.wait(m)
			return
		case m.isForRUD() && !s.closed && !m.ep.closed: // S-RUDI-55
			s.makeReady(m)
			return
		}
		if m.deferred {
			m.unexecuted = true // the target has its header alone
		} // else an RTR proves nothing: it may be of another life of the target, to which a late copy came
		if m.loan != nil && m.cause == Cancelled {
			s.recall(m)
		}
		if (m.deferred || m.restart != 0) && (m.cause == Cancelled || m.cause == NotReady) {
			s.tellCancelled(m)
		}
		s.endSend(m)
		return
	}
	if m.loan != nil {
		s.awaitRead(m)
		return
	}
	if m.deferred {
		s.awaitRTR(m)
		return
	}
	if m.noResponse && !m.response {
		m.phase = phaseResult
		s.waitResult++
		if m.early && !m.told {
			s.sendEvent(m) // R-CMPL-02: the bytes are not needed any more
			m.told = true
		}
		return
	}
	if m.commit == commitWaits {
		s.askCommit(m)
		return
	}
	if m.tries != 0 && m.restart == 0 && len(s.waiting) != 0 {
		s.takenLate(m)
	}
	s.endSend(m)
}

// succeeded counts a send that succeeded, and the mode of its PDC. That it went without one, endSend (RUDI) and
// AppendDatagram (UUD) count.
func (s *SES) succeeded(m *send) {
	s.Stats.MsgsTx++
	s.Stats.BytesTx += uint64(m.hdr.ReqLen)
	if m.ordered {
		s.Stats.byROD++
	}
}

// endSend makes the event of a message, if one is due, and frees it.
func (s *SES) endSend(m *send) {
	switch {
	case m.kind == evNotice:
		s.endNotice(m)
	case m.cause != OK:
		s.failed(m)
	default:
		s.succeeded(m)
		if m.byRUDI {
			s.Stats.byRUDI++
		}
		if !m.silent && !m.told {
			s.sendEvent(m)
		}
	}
	if m.res != nil {
		s.left(m, false)
	}
	if s.numFences > 0 {
		s.passed(m)
	}
	if m.phase == phaseResult || m.phase == phaseDeferred || m.phase == phaseLent {
		s.waitResult--
	}
	if m.loan != nil {
		s.endLoan(m)
	}
	s.forgetToken(m)
	s.freeBytes(m)
	if m.read != nil {
		s.endRead(m)
	}
	m.hdr.BufOff, m.checking, m.operands, m.commit, m.match = 0, false, 0, commitNone, false
	m.mayLend, m.small, m.byRUDI = false, false, false
	if len(s.recuts) != 0 {
		delete(s.recuts, m.self)
	}
	s.freeSend(m)
}

// failed makes the event of a message that failed. If success was reported before, it only
// counts the failure.
func (s *SES) failed(m *send) {
	if s.cfg.Halt {
		s.halt(m)
	}
	if m.told {
		s.Stats.LateErrors++
		return
	}
	s.Stats.SendErrors++
	e := s.sendEvent(m)
	e.Cause, e.RC, e.Nack = m.cause, m.rc, m.nack
	e.Unknown = !m.unexecuted && m.cause != Rejected && (m.read == nil || m.operands != 0) || m.commit == commitAsked
	if m.loan != nil {
		e.Unknown = m.loan.mayBeRead()
	}
}

// sendEvent makes the event of a message that succeeded.
func (s *SES) sendEvent(m *send) *Event {
	e := s.events.add()
	buf := m.buf
	if m.copied {
		buf = nil
	}
	e.init(m.ep.id, m.kind, m.context, m.flags, buf, int(m.hdr.ReqLen), m.hdr.Match, PeerID(m.peer), 0)
	e.data(m.wireFlags&wire.SESHD != 0, m.hdr.HeaderData)
	return e
}

// freeSend frees the place and the id of a message. Its handle is invalid from then on.
func (s *SES) freeSend(m *send) {
	s.freeID(m.hdr.MsgID)
	s.numSends--
	e := m.ep
	e.sends--
	m.phase = phaseFree
	if m.serial++; m.serial == 0 {
		m.serial = 1
	}
	m.idle, e.idleSend, m.buf, m.context = e.idleSend, m, nil, nil
}
