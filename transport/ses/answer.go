package ses

import "github.com/uetkit/uetkit/transport/wire"

// Answered says that the target executed one piece of h. rsp is its response,
// borrowed; nil is the default response, success (S-ACK-05: every other result
// is guaranteed and comes by itself).
func (s *SES) Answered(h Handle, rsp *wire.Rsp) {
	i, m := s.lookup(h)
	if m == nil {
		s.Stats.Stale++
		return
	}
	m.open--
	if rsp != nil && (rsp.Opcode != wire.RspDefault || rsp.RC != wire.RCOK || rsp.MsgID != m.hdr.MsgID || rsp.List != wire.ListExpected) {
		s.result(m, rsp)
	}
	if m.open != 0 || m.phase != phaseSent {
		return
	}
	if m.odd || len(s.fences) != 0 {
		s.settle(i, m)
		return
	}
	// It is finish for nearly every message, and costs a stream of small ones 3 % less.
	s.Stats.Sent++
	s.Stats.SentBytes += uint64(m.hdr.ReqLen)
	e := s.events.add()
	e.init(m.kind, m.context, m.flags, m.buf, int(m.hdr.ReqLen), m.hdr.Match, PeerID(m.peer), 0)
	e.data(m.wireFlags&wire.SESHD != 0, m.hdr.HeaderData)
	s.freeSend(m)
}

// result takes a response that is not simply the default one.
func (s *SES) result(m *send, rsp *wire.Rsp) {
	m.odd = true
	if rsp.MsgID != m.hdr.MsgID && rsp.MsgID != 0 {
		// S-RSP-06. PDS tied it to the packet by PSN, so an error still counts.
		s.Stats.RspForeign++
	}
	if rsp.List > wire.ListOverflow {
		s.Stats.RspUnknown++
	}
	switch rsp.Opcode {
	case wire.RspDefault, wire.RspWithData:
	case wire.RspResponse:
		m.response = true
	case wire.RspNone:
		m.noResponse = true // S-CPL-04
		return
	default:
		s.Stats.RspUnknown++
		return
	}
	// S-CPL-02: NULL only says that the packet is answered. S-CPL-07: a smaller
	// modified_length with OK is success for the sender. R-CMPL-19: so is
	// OVERFLOW.
	if rsp.RC == wire.RCNull || rsp.RC == wire.RCOK {
		return
	}
	if rsp.RC == wire.RCBadGeneration {
		s.adopt(m, rsp.Gen)
	}
	if m.cause == OK { // S-ERR-01: the first error wins
		m.cause, m.rc = Refused, rsp.RC
	}
	if m.phase == phaseData {
		m.phase = phaseError // S-CPL-03, S-SEG-08
	}
}

// Response tells of a response that came for a packet that was Answered before:
// the one that NO_RESPONSE had promised (S-CPL-04). It reports whether a message
// to that peer waited for it.
func (s *SES) Response(peer uint32, rsp *wire.Rsp) bool {
	if s.waitResult == 0 || rsp.Opcode != wire.RspResponse {
		return false
	}
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase == phaseResult && m.hdr.MsgID == rsp.MsgID && m.peer == peer {
			s.waitResult--
			m.phase = phaseSent
			s.result(m, rsp)
			s.settle(i, m)
			return true
		}
	}
	s.Stats.RspForeign++
	return false
}

// Failed says that one piece of h will never be answered. The first failure
// wins; nothing more of h is sent; the event comes when no piece is
// outstanding. The target may have executed the piece all the same.
func (s *SES) Failed(h Handle, c Cause, nack wire.NackCode) {
	i, m := s.lookup(h)
	if m == nil {
		s.Stats.Stale++
		return
	}
	m.open--
	s.stop(i, m, c, nack)
}

// GiveUp says that the target was not ready for a piece of h in all the time there was,
// and that its PDC goes on. What the target has of h must end (S-SEG-08): GiveUp returns
// the MSG_ERROR that goes in the place of the piece, as if it had been handed out, and false
// if that is what the target was not ready for: then the piece has failed. Pieces that
// were not handed out are replaced as after a refusal: the target may have the one given up.
func (s *SES) GiveUp(h Handle, p Piece, nack wire.NackCode) (Piece, bool) {
	_, m := s.lookup(h)
	if m == nil || p.Kind != PieceData {
		s.Failed(h, NotReady, nack)
		return Piece{}, false
	}
	m.odd = true
	if m.cause == OK {
		m.cause, m.nack = NotReady, nack
	}
	if m.phase == phaseData {
		m.phase, m.unexecuted = phaseError, true
	}
	s.Stats.MsgErrorsTx++
	e := Piece{Off: m.next, Kind: PieceMsgError, Last: true}
	if p.Off == 0 && p.Last {
		e.Off = 0 // nothing else of it will come
	}
	return e, true
}

// Break says that nothing more of h can be sent, part of it having been.
func (s *SES) Break(h Handle, c Cause, nack wire.NackCode) {
	if i, m := s.lookup(h); m != nil {
		s.stop(i, m, c, nack)
	}
}

// Abandon ends h, of which nothing was sent, or not in this attempt. If a result was
// promised for it the target has it, and the effect is unknown.
func (s *SES) Abandon(h Handle, c Cause) {
	if i, m := s.lookup(h); m != nil {
		s.unwait(i, m)
		if m.open == 0 && m.phase != phaseResult {
			m.cause, m.rc = OK, 0 // the refusal of an earlier attempt does not stand
			m.unexecuted = true
		}
		s.stop(i, m, c, 0)
	}
}

func (s *SES) stop(i int32, m *send, c Cause, nack wire.NackCode) {
	m.odd = true
	if m.cause == OK {
		m.cause, m.nack = c, nack
		if c == OK {
			m.cause = Closed
		}
	}
	switch m.phase {
	case phaseData, phaseError:
		m.unexecuted = true
		m.phase = phaseSent
	case phaseResult:
		s.waitResult--
		m.phase = phaseSent
	}
	if m.open == 0 && m.phase == phaseSent {
		s.settle(i, m)
	}
}

// settle judges a message all pieces of which are handed out and answered or failed.
func (s *SES) settle(i int32, m *send) {
	if m.cause != OK {
		if m.cause == Refused && s.again(m) {
			m.phase = phaseWait
			m.retryAt = 0
			s.waiting = append(s.waiting, i)
			s.unstamped = true
			return
		}
		s.finish(m)
		return
	}
	if m.noResponse && !m.response {
		m.phase = phaseResult
		m.epoch = s.epoch
		s.waitResult++
		if m.early && !m.told {
			s.sendEvent(m) // R-CMPL-02: the bytes are not needed any more
			m.told = true
		}
		return
	}
	s.finish(m)
}

// finish makes the event of a message, if one is due, and frees it.
func (s *SES) finish(m *send) {
	switch {
	case m.cause != OK:
		s.failed(m)
	default:
		s.Stats.Sent++
		s.Stats.SentBytes += uint64(m.hdr.ReqLen)
		if !m.silent && !m.told {
			s.sendEvent(m)
		}
	}
	if len(s.fences) > 0 {
		s.passed(m)
	}
	if m.phase == phaseResult {
		s.waitResult--
	}
	s.freeBytes(m)
	s.freeSend(m)
}

// failed makes the event of a message that failed, or counts it if that comes too late.
func (s *SES) failed(m *send) {
	if m.told {
		s.Stats.LateErrors++
		return
	}
	s.Stats.SendErrors++
	e := s.sendEvent(m)
	e.Cause, e.RC, e.Nack = m.cause, m.rc, m.nack
	e.Unknown = !m.unexecuted && m.cause != Refused
}

// sendEvent makes the event of a message that succeeded.
func (s *SES) sendEvent(m *send) *Event {
	e := s.events.add()
	buf := m.buf
	if m.copied {
		buf = nil
	}
	e.init(m.kind, m.context, m.flags, buf, int(m.hdr.ReqLen), m.hdr.Match, PeerID(m.peer), 0)
	e.data(m.wireFlags&wire.SESHD != 0, m.hdr.HeaderData)
	return e
}

// freeSend gives back the place of a message and its id. Its handle names nothing any more.
func (s *SES) freeSend(m *send) {
	s.freeID(m.hdr.MsgID)
	s.numSends--
	m.phase = phaseFree
	if m.life++; m.life == 0 {
		m.life = 1
	}
	m.idle, s.idleSend, m.buf, m.context = s.idleSend, m, nil, nil
}

// sweepSends ends the messages whose promised response did not come.
func (s *SES) sweepSends() {
	if s.waitResult == 0 {
		return
	}
	for i := range s.sends.used {
		if m := s.sends.at(i); m.phase == phaseResult && s.expired(m.epoch) {
			m.cause = TimedOut
			s.finish(m)
		}
	}
}
