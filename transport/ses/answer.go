package ses

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

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
	if m.odd || len(s.fences) != 0 || !s.events.fits() {
		s.settle(i, m)
		return
	}
	// It is finish for nearly every message.
	s.Stats.Sent++
	s.Stats.SentBytes += uint64(m.hdr.ReqLen)
	e := s.events.put()
	e.Kind, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = m.kind, OK, 0, 0, false, false, false
	e.Flags, e.Len, e.OverLen, e.Tag, e.Data, e.HasData = m.flags, int(m.hdr.ReqLen), 0, m.hdr.Match, m.hdr.HeaderData, m.wireFlags&wire.SESHD != 0
	e.Peer, e.Initiator = PeerID(m.peer), 0
	e.Buf, e.Context = m.buf, m.context
	s.freeID(m.hdr.MsgID)
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
// the MSG_ERROR that goes in the place of the piece, as if it had been taken, and false
// if that is what the target was not ready for: then the piece has failed. Pieces that
// were not taken are replaced as after a refusal: the target may have the one given up.
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

// PeerGone ends the sends to a peer of which nothing is under way: what a fence keeps,
// what waits to be sent again, and what a response was promised for.
func (s *SES) PeerGone(peer uint32, c Cause) {
	for i := range s.sends.used {
		m := s.sends.at(i)
		switch {
		case m.phase == phaseFree || m.peer != peer:
		case m.phase == phaseResult:
			s.stop(i, m, c, 0)
		case m.phase == phaseWait || m.phase == phaseReady || m.phase == phaseData && m.next == 0 && m.open == 0:
			s.Abandon(handleOf(i, m), c)
		}
	}
	s.unhold()
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

// settle judges a message all pieces of which are taken and answered or failed.
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
			s.succeed(m) // R-CMPL-02: the bytes are not needed any more
			m.told = true
		}
		return
	}
	s.finish(m)
}

// finish makes the event of a message, if one is due, and frees it.
func (s *SES) finish(m *send) {
	switch {
	case m.cause == OK:
		s.Stats.Sent++
		s.Stats.SentBytes += uint64(m.hdr.ReqLen)
		if !m.silent && !m.told {
			m.event(s.events.add())
		}
	case m.told:
		s.Stats.LateErrors++
	default:
		s.failed(m)
	}
	if len(s.fences) > 0 {
		s.passed(m)
	}
	s.freeID(m.hdr.MsgID)
	if m.piece != noPiece {
		s.copies.put(m.piece)
	}
	if m.iov != nil {
		s.putIov(m.iov)
		m.iov = nil
	}
	if m.phase == phaseResult {
		s.waitResult--
	}
	s.freeSend(m)
}

// freeSend gives back the place of a message. Its handle names nothing any more.
func (s *SES) freeSend(m *send) {
	s.numSends--
	m.phase = phaseFree
	if m.life++; m.life == 0 {
		m.life = 1
	}
	m.idle, s.idleSend, m.buf, m.context = s.idleSend, m, nil, nil
}

func (s *SES) succeed(m *send) { m.event(s.events.add()) }

func (s *SES) failed(m *send) {
	s.Stats.SendErrors++
	e := s.events.add()
	m.event(e)
	e.Cause, e.RC, e.Nack = m.cause, m.rc, m.nack
	e.Unknown = !m.unexecuted && m.cause != Refused
}

func (m *send) event(e *Event) {
	e.Kind, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = m.kind, OK, 0, 0, false, false, false
	e.Flags = m.flags
	e.Buf, e.Context = m.buf, m.context
	if m.copied {
		e.Buf = nil
	}
	e.Len, e.OverLen, e.Tag, e.Data, e.HasData = int(m.hdr.ReqLen), 0, m.hdr.Match, m.hdr.HeaderData, m.wireFlags&wire.SESHD != 0
	e.Peer, e.Initiator = PeerID(m.peer), 0
}

// Sending again. A target that has no buffer for a message and cannot keep it
// says so (NO_MATCH, DISABLED_GEN), and a target whose resource came back names
// its new generation (BAD_GENERATION): S-GEN-03, S-GEN-05. The whole message goes
// again under a new message id, after a wait that doubles, until RNRTimeout.

// Back-off of sends to a target that is not ready: from 2 ms, doubled up to
// 128 ms, plus up to half. S-GEN-05 has 50 to 100 ms; a receive is often posted
// sooner. The values are arbitrary, nothing measured.
const (
	backoffMin   = 2 * time.Millisecond
	backoffSteps = 6
	maxTransient = 5 // resends after UNCOR_TRNSNT
	maxGenTries  = 8 // resends after BAD_GENERATION without a wait
)

// again reports whether a refused message is to be sent once more.
func (s *SES) again(m *send) bool {
	if s.closed || s.cfg.RNRTimeout < 0 || m.told && !m.copied {
		return false
	}
	switch m.rc {
	case wire.RCNoMatch, wire.RCDisabledGen, wire.RCBadGeneration:
		return true
	case wire.RCUncorTrnsnt:
		return m.tries < maxTransient
	}
	return false
}

// retry gives times to the messages that wait and readies those that are due.
func (s *SES) retry(now time.Duration) {
	s.unstamped = false
	wake := false
	for k := 0; k < len(s.waiting); k++ {
		i := s.waiting[k]
		m := s.sends.at(i)
		if m.retryAt != 0 {
			continue
		}
		if m.tries == 0 {
			m.notReady = now
		}
		end := m.notReady + s.cfg.RNRTimeout
		if s.cfg.RNRTimeout > 0 && m.tries > 0 && now >= end {
			s.waiting = slices.Delete(s.waiting, k, k+1)
			k--
			m.cause, m.unexecuted = NotReady, true
			s.finish(m)
			continue
		}
		m.retryAt = now
		if m.rc == wire.RCBadGeneration && m.tries < maxGenTries {
			wake = true
		} else {
			w := backoffMin << min(m.tries, backoffSteps)
			m.retryAt += w + time.Duration(s.hash(m.seq, uint64(m.tries)))*(w/2)>>32
			if s.cfg.RNRTimeout > 0 {
				m.retryAt = max(min(m.retryAt, end), now+1) // one last time at the end
			}
		}
		m.tries++
	}
	if wake {
		// S-GEN-04: what the same resource refused earlier goes first.
		var back []genKey // few
		for _, i := range s.waiting {
			m := s.sends.at(i)
			if k := m.genKey(); m.rc == wire.RCBadGeneration && m.retryAt <= now && !slices.Contains(back, k) {
				back = append(back, k)
			}
		}
		for _, i := range s.waiting {
			if m := s.sends.at(i); slices.Contains(back, m.genKey()) {
				m.retryAt = now
			}
		}
	}
	s.nextRetry = 0
	keep := s.waiting[:0]
	for _, i := range s.waiting {
		m := s.sends.at(i)
		if m.retryAt <= now {
			m.phase = phaseReady
			s.ready = append(s.ready, i)
			continue
		}
		if s.nextRetry == 0 || m.retryAt < s.nextRetry {
			s.nextRetry = m.retryAt
		}
		keep = append(keep, i)
	}
	s.waiting = keep
	slices.SortFunc(s.ready, func(a, b int32) int {
		if s.sends.at(a).seq < s.sends.at(b).seq {
			return -1
		}
		return 1
	})
}

// Resend hands back a message that is to be sent again from its beginning, as if
// it were new: the oldest first. It becomes available by Advance.
func (s *SES) Resend() (Handle, bool) {
	if len(s.ready) == 0 {
		return 0, false
	}
	return s.resend(), true
}

func (s *SES) resend() Handle {
	i := s.ready[0]
	s.ready = append(s.ready[:0], s.ready[1:]...)
	m := s.sends.at(i)
	// S-DEF-07 aside, an attempt is a message of its own: what the target still
	// remembers of the last one must not meet it.
	s.freeID(m.hdr.MsgID)
	m.hdr.MsgID = s.newID()
	m.phase, m.next = phaseData, 0
	m.cause, m.rc, m.nack = OK, 0, 0
	m.noResponse, m.response, m.unexecuted = false, false, false
	s.Stats.Resends++
	return handleOf(i, m)
}

// unwait takes a message out of the lists of those to be sent again.
func (s *SES) unwait(i int32, m *send) {
	switch m.phase {
	case phaseWait:
		s.waiting = slices.DeleteFunc(s.waiting, func(j int32) bool { return j == i })
	case phaseReady:
		s.ready = slices.DeleteFunc(s.ready, func(j int32) bool { return j == i })
	default:
		return
	}
	if len(s.waiting) == 0 {
		s.nextRetry, s.unstamped = 0, false
	}
	m.phase = phaseSent
}

// A genKey names a resource of a peer whose generation is not 0.
type genKey struct {
	peer, job uint32
	pid, ri   uint16
	tagged    bool
}

const maxGens = 65536 // resources remembered; beyond, all are forgotten and learnt again

func (m *send) genKey() genKey {
	return genKey{m.peer, m.hdr.JobID, m.hdr.PIDonFEP, m.hdr.RI, m.kind.Tagged()}
}

// adopt remembers the generation that a target named (S-GEN-03).
func (s *SES) adopt(m *send, gen uint8) {
	if s.gens == nil || s.numGens >= maxGens {
		s.gens, s.numGens = make(map[uint32]map[genKey]uint8), 0
	}
	g := s.gens[m.peer]
	if g == nil {
		g = make(map[genKey]uint8)
		s.gens[m.peer] = g
	}
	s.numGens -= len(g)
	g[m.genKey()] = gen
	s.numGens += len(g)
}

// Forget says that a number may come to mean another peer.
func (s *SES) Forget(peer uint32) {
	if len(s.gens) != 0 {
		s.numGens -= len(s.gens[peer])
		delete(s.gens, peer)
	}
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
