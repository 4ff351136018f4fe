package ses

import (
	"math"
	"slices"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file is the sending side of deferrable sends (S-DEF). A target that has no room for such a
// message keeps its header alone, and answers that it is deferred. The message waits, without an
// event, as long as the PDC lives on which that answer came. When a receive has matched it the target
// asks for it by a ready-to-restart (RTR), and all of it is sent again as a new message. That one is
// unordered: its receive is reserved, and on a ROD PDC it could stand behind a message that is
// refused until this one is received.
//
// Sends are ordinary ones as long as their target has room. When it has refused one it is asked, by
// an RTR for no message, whether it knows RTRs. If it does, all that is still to be sent to it may
// be deferred from then on: a refused packet is encoded anew each time that it is tried.
//
// A message of LevelMatch is deferrable, whatever its length and whether or not its target has room:
// with DC it asks to be deferred while no receive has it. So the answer that is not a deferral says
// that it was matched. The question comes first here, and the message waits for what it brings.

// A deferring holds the deferrable sends that have not ended.
type deferring struct {
	deferMin  uint               // the shortest message that may be deferred, in bytes
	tokens    map[uint16]*send   // by restart token
	lastToken uint16             // the one given last
	supports  map[uint32]support // by peer: those that have refused something
}

// A support says whether a peer is known to defer messages. It is kept for a peer that has
// refused one for want of room.
type support uint8

const (
	supportUnknown support = iota // whether it defers is to be asked when that matters
	supportAsked
	supportYes
	supportNo
)

func (d *deferring) init(least int, token uint16) {
	d.deferMin, d.lastToken = math.MaxUint, token
	d.tokens, d.supports = map[uint16]*send{}, map[uint32]support{}
	if least > 0 {
		d.deferMin = uint(least)
	}
}

// postedMatch handles a send of LevelMatch, which is just posted. If it is not known whether the peer
// knows RTRs, a fence keeps it back until the question is answered.
func (s *SES) postedMatch(m *send) {
	m.odd = true
	switch known := s.supports[m.peer]; {
	case known == supportNo:
	case known == supportYes:
		s.permit(m)
	case s.questioned(m, false), s.numSends >= maxSends+mostQuestions: // the latter goes as an ordinary one
	default:
		n := s.askSupport(m)
		m.seq, n.seq = n.seq, m.seq // a fence of the application's waits for the question, too
		s.addFence(m.ep, fence{peer: m.peer, seq: n.seq, left: 1, question: true})
	}
}

// mostAsks bounds the sends while a read or an RTR is begun for a message that has its receive. It is above
// maxSends: all of those may wait for the peer, whose own may all wait for this side.
const mostAsks = maxSends + mostQuestions + 64

// mostQuestions bounds the questions beyond maxSends. Arbitrary.
const mostQuestions = 256

// questioned reports whether the endpoint of m waits for what the peer knows of RTRs, or of rendezvous sends.
func (s *SES) questioned(m *send, reader bool) bool {
	for i := range m.ep.fences {
		if f := &m.ep.fences[i]; f.question && f.reader == reader && f.peer == m.peer {
			return true
		}
	}
	return false
}

// postedLong handles a send of deferMin bytes or more, which is just posted.
func (s *SES) postedLong(m *send) {
	known, ok := s.supports[m.peer]
	switch {
	case !ok || !s.deferrable(m):
	case known == supportUnknown && s.numSends < maxSends:
		s.askSupport(m)
	case known == supportYes:
		s.permit(m)
	}
}

// deferrable reports whether m is a send that its target could defer, and none yet that says so.
func (s *SES) deferrable(m *send) bool {
	return (uint(m.hdr.ReqLen) >= s.deferMin && s.cfg.RNRTimeout >= 0 || m.match) && (m.hdr.Opcode == wire.OpSend || m.hdr.Opcode == wire.OpTaggedSend) &&
		m.kind != evNotice && m.cause == OK && m.phase != phaseFree && m.phase != phaseResult
}

// Refused tells that a peer refused a packet for want of a receive or of room.
func (s *SES) Refused(peer uint32) {
	if s.deferMin == math.MaxUint {
		return
	}
	if _, ok := s.supports[peer]; !ok {
		s.supports[peer] = supportUnknown
	}
	s.eachDeferrable(peer, s.postedLong)
}

// eachDeferrable calls do for each send to a peer that could be deferred.
func (s *SES) eachDeferrable(peer uint32, do func(m *send)) {
	for i := range s.sends.used {
		if m := s.sends.at(i); m.peer == peer && s.deferrable(m) {
			do(m)
		}
	}
}

// askSupport asks the peer of a send whether it knows RTRs. It returns the question.
func (s *SES) askSupport(m *send) *send {
	s.supports[m.peer] = supportAsked
	n := s.notice(m.ep, m.peer)
	n.hdr = wire.ReqStd{Opcode: wire.OpDeferrableRTR, MsgID: n.hdr.MsgID, JobID: m.hdr.JobID, Initiator: m.hdr.Initiator}
	return n
}

// supportAnswered notes how the question of askSupport ended.
func (s *SES) supportAnswered(n *send) {
	switch {
	case n.cause == Rejected && n.rc == wire.RCUndeliverable: // S-DEF-09
		s.supports[n.peer] = supportYes
		s.eachDeferrable(n.peer, s.permit)
	case n.cause == Rejected:
		s.supports[n.peer] = supportNo
	default:
		s.supports[n.peer] = supportUnknown
		s.unansweredMatches(n)
	}
}

// unansweredMatches ends the sends of LevelMatch that waited for a question, which has failed; if the
// peer is gone, also those that waited behind them.
func (s *SES) unansweredMatches(n *send) {
	if n.cause == TimedOut || n.cause == Unreachable {
		for i := range n.ep.fences {
			if f := &n.ep.fences[i]; f.question && f.peer == n.peer && f.seq == n.seq {
				for _, h := range slices.Clone(f.behind) {
					s.Abandon(h, n.cause)
				}
				break
			}
		}
	}
	for m := s.firstSend(n.ep); m != nil; m = s.nextSend(m) {
		if m.match && m.phase == phaseData && m.next == 0 && m.peer == n.peer && m.seq > n.seq && !m.mayDefer() && m.cause == OK {
			s.Abandon(handleOf(m.self, m), n.cause)
		}
	}
}

// permit lets the target of m defer it. Packets of m that were refused say so when they are sent again.
func (s *SES) permit(m *send) {
	for s.lastToken++; s.lastToken == 0 || s.tokens[s.lastToken] != nil; s.lastToken++ {
	}
	s.tokens[s.lastToken] = m // S-DEF-01
	m.hdr.SetRestartTokens(uint32(s.lastToken), 0)
	m.odd, m.restart, m.wasOrdered, m.checking = true, 0, m.ordered, false
	if m.hdr.Opcode == wire.OpSend {
		m.hdr.Opcode = wire.OpDeferrableSend
	} else {
		m.hdr.Opcode = wire.OpDeferrableTSend
	}
}

// undefer makes m an ordinary send again.
func (s *SES) undefer(m *send) {
	s.forgetToken(m)
	m.hdr.BufOff = 0
	if m.hdr.Opcode == wire.OpDeferrableSend {
		m.hdr.Opcode = wire.OpSend
	} else {
		m.hdr.Opcode = wire.OpTaggedSend
	}
}

// mayDefer reports whether m is a deferrable send.
func (m *send) mayDefer() bool {
	return m.hdr.Opcode == wire.OpDeferrableSend || m.hdr.Opcode == wire.OpDeferrableTSend
}

// forgetToken frees the restart token of a send that ends.
func (s *SES) forgetToken(m *send) {
	if m.mayDefer() {
		token, _ := m.hdr.RestartTokens()
		delete(s.tokens, uint16(token))
	}
}

// defers reports whether a response says that the target has deferred m (S-DEF-03). Of an empty
// message it says so only to a sender that asked for it.
func (m *send) defers(rsp *wire.Rsp) bool {
	return unmatched(rsp) && rsp.ModLen == 0 && m.mayDefer() && (m.hdr.ReqLen > 0 || m.match)
}

// unmatched reports whether a response says that no receive has the message.
func unmatched(rsp *wire.Rsp) bool {
	return rsp.Opcode == wire.RspResponse && rsp.List == wire.ListOverflow && rsp.RC == wire.RCOK
}

// stopPieces sends no more of a message that its target has deferred. An empty piece says so, if some are left.
func (s *SES) stopPieces(m *send) {
	m.deferred, m.checking = true, false
	switch m.phase {
	case phaseData:
		m.phase = phaseError
	case phaseRecut:
		s.dropRecut(m)
	}
}

// encodeEnd appends the piece that ends a deferred message of which a part was not sent
// (S-MSC-04).
func (s *SES) encodeEnd(b []byte, m *send, p piece.Piece) []byte {
	r := m.hdr
	r.Flags = m.wireFlags&^wire.SESHD | wire.SESEOM
	r.MsgOff, r.PayloadLen = p.Off, 0
	return r.Append(b)
}

// awaitRTR makes a deferred message, of which all pieces were answered, wait for its RTR.
func (s *SES) awaitRTR(m *send) {
	if m.tries == 0 {
		m.notReady, m.tries = s.now, 1
	}
	m.phase, m.sweeps = phaseDeferred, 0
	s.waitResult++
	switch {
	case m.restart != 0: // it came before
		s.restart(m)
	case s.cfg.RNRTimeout > 0 && !m.match: // to be matched may take any time
		m.retryAt = m.notReady + s.cfg.RNRTimeout
		s.patient.push(m, uint64(m.retryAt))
		s.rearm()
	}
}

// recheck has the target of a deferred message asked whether it still has it. The PDC that would have
// shown the death of the target is gone; the one by which this goes takes its place.
func (s *SES) recheck(m *send) {
	s.unwaitDeferred(m)
	own, _ := m.hdr.RestartTokens()
	m.hdr.SetRestartTokens(own, own) // S-DEF-06: if the target is uetkit
	m.ordered, m.checking, m.phase = false, true, phaseReady
	s.ready.push(m, m.seq)
}

// sweepsMost is how many sweeps without news pass before a target is asked: longer than IdleTimeout.
const sweepsMost = 4

// sweepDeferred has the targets asked for what they have deferred for long, because they may have
// lost it: their endpoint was closed, or they gave this side up.
func (s *SES) sweepDeferred() {
	if s.waitResult == 0 {
		return
	}
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase != phaseDeferred {
			continue
		}
		if m.sweeps++; m.sweeps > sweepsMost {
			s.recheck(m)
		}
	}
}

// unwaitDeferred removes a deferred message from those that wait for their RTR.
func (s *SES) unwaitDeferred(m *send) {
	s.waitResult--
	if m.place > 0 {
		s.patient.remove(m)
		s.rearm()
	}
}

// tellCancelled tells the target of a deferred message, which has asked for it, that it will not
// come. Its caller ends the message, of which no piece was sent since.
func (s *SES) tellCancelled(m *send) {
	if m.loan != nil && m.loan.told {
		s.recall(m)
		return
	}
	if !m.mayDefer() || s.numSends >= maxSends || s.closed || s.ended {
		return
	}
	own, theirs := m.hdr.RestartTokens()
	if theirs = max(theirs, m.restart); theirs == 0 {
		return
	}
	hdr := m.hdr
	n := s.notice(m.ep, m.peer)
	hdr.MsgID, hdr.Opcode, hdr.ReqLen, hdr.HeaderData = n.hdr.MsgID, wire.OpMsgError, 0, 0
	hdr.SetRestartTokens(own, theirs)
	n.hdr, n.wireFlags = hdr, wire.SESREL|wire.SESIE
}

// notRestarted ends a deferred message for which no RTR came for RNRTimeout.
func (s *SES) notRestarted(m *send) {
	s.unwait(m)
	s.tellCancelled(m)
	m.cause, m.unexecuted = NotReady, true
	s.endSend(m)
}

// readyToRestart executes an RTR. Which of its two tokens is ours is not certain; where the peer is
// uetkit they are equal (S-DEF-06).
func (s *SES) readyToRestart(src *Source, r *wire.ReqStd) *Result {
	own, theirs := r.RTRTokens()
	m := s.deferredOf(src, r, own)
	if m == nil {
		own, theirs = theirs, own
		m = s.deferredOf(src, r, own)
	}
	if m == nil || theirs == 0 {
		return s.rejected(wire.RCUndeliverable) // S-DEF-09: it was cancelled, or was never here
	}
	if m.restart = theirs; m.phase == phaseDeferred {
		s.restart(m)
	}
	return s.done(0)
}

// deferredOf returns the send to the source of an RTR that has a token, nil if there is none.
func (s *SES) deferredOf(src *Source, r *wire.ReqStd, token uint32) *send {
	if token > math.MaxUint16 {
		return nil
	}
	m := s.tokens[uint16(token)]
	if m == nil || m.peer != src.Peer || m.hdr.JobID != r.JobID || m.cause != OK && m.cause != Cancelled && m.cause != NotReady {
		return nil
	}
	// One that was cancelled and still has pieces under way says so behind the last of them
	// (allAnswered). Otherwise the target would forget it and take such a piece for a new message.
	return m
}

// restart has a deferred message sent again, to the receive that its target has reserved.
func (s *SES) restart(m *send) {
	s.unwaitDeferred(m)
	own, _ := m.hdr.RestartTokens()
	m.hdr.SetRestartTokens(own, m.restart)
	m.restart, m.ordered, m.checking = 0, false, false
	m.phase = phaseReady
	s.ready.push(m, m.seq)
}

// restartLost reports whether a restarted message, which its target refused, may go from the
// beginning: the target has forgotten that it deferred it. An ordered one would come too late.
func (m *send) restartLost() bool {
	own, theirs := m.hdr.RestartTokens()
	if m.rc != wire.RCUndeliverable || theirs == 0 || m.wasOrdered {
		return false
	}
	m.hdr.SetRestartTokens(own, 0)
	m.checking = false
	return true
}
