package ses

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file sends refused messages again. A target refuses a message that it has no buffer
// for and cannot keep (NO_MATCH, DISABLED_GEN), or whose resource has a new generation, which
// the answer names (BAD_GENERATION): S-GEN-03, S-GEN-55. The whole message is then sent under
// a new message id, after a wait that doubles each time, until RNRTimeout.
//
// An unordered message waits by itself: a NO_MATCH says nothing about messages with another
// tag. Ordered messages to one resource wait together (resource.go).

// Back-off of sends to a target that is not ready: from 2 ms, doubled up to
// 128 ms, plus up to half. The reference provider waits 50 to 100 ms (S-GEN-05), but a receive is often posted sooner. The last step,
// where many wait, is backoffEach for each of them, and backoffMost at most: so all together are tried no
// more than 50,000 times a second, or each once a second.
// The values are arbitrary.
const (
	backoffMin   = 2 * time.Millisecond
	backoffSteps = 6
	backoffEach  = 20 * time.Microsecond
	backoffMost  = time.Second
	searchEach   = 300 * time.Nanosecond // for each message that tryNeighbours looks at, until it looks again
	maxTransient = 5                     // resends after UNCOR_TRNSNT
	maxGenTries  = 8                     // resends after BAD_GENERATION without a wait
)

// again reports whether a refused message is to be sent once more.
func (s *SES) again(m *send) bool {
	if m.read != nil && m.hdr.Opcode != wire.OpTSendFetchAtomic || m.kind == evNotice || s.closed || m.ep.closed && !m.told || s.cfg.RNRTimeout < 0 || m.told && !m.copied {
		return false
	}
	switch m.rc {
	case wire.RCNoMatch, wire.RCDisabledGen, wire.RCBadGeneration:
		return true
	case wire.RCUndeliverable:
		return m.restartLost()
	case wire.RCUnsupportedOp:
		if m.loan != nil && !m.ordered {
			s.readers[m.peer] = supportNo
			s.unlend(m)
			return true
		}
		if !m.mayDefer() || m.wasOrdered {
			return false
		}
		s.supports[m.peer] = supportNo // another one has its address now
		s.undefer(m)
		return true
	case wire.RCUncorTrnsnt:
		// The target goes on executing what was sent behind an ordered message, which would
		// come again too late.
		return m.tries < maxTransient && !m.ordered && m.operands == 0 // or it might be executed twice
	}
	return false
}

// wait makes a refused message wait until it is sent again.
func (s *SES) wait(m *send) {
	m.phase, m.retryAt = phaseWait, 0
	s.stamp(m)
	if m.ordered {
		s.refused(m)
	} else if r := s.resource(m); r != nil {
		r.addLoose(m)
	}
}

// stamp has the next Advance look at a message that waits since now.
func (s *SES) stamp(m *send) {
	m.fresh = true
	s.numFresh++
	s.fresh = append(s.fresh, m.self)
}

// backoff is the wait before the next of some tries.
func (s *SES) backoff(m *send, tries uint16) time.Duration {
	w := backoffMin << min(tries, backoffSteps)
	if tries >= backoffSteps {
		w = max(w, min(time.Duration(len(s.waiting))*backoffEach, backoffMost))
	}
	return w + time.Duration(s.hash(m.seq, uint64(tries)))*(w/2)>>32
}

// Late reports whether h needs no order and was refused more than once.
func (s *SES) Late(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && !m.ordered && m.tries > 1
}

// takenLate has those two tried soon that wait next to m in the order of posting. The target has taken m, which it had
// refused. Its receives are mostly posted in the order of sending, or in the reverse one.
func (s *SES) takenLate(m *send) {
	s.late = lateSend{peer: m.peer, seq: m.seq, some: true}
	s.rearm() // Advance does it
}

// A lateSend names a message that its target took after it had refused it.
type lateSend struct {
	peer uint32
	seq  uint64
	some bool
}

// tryNeighbours does what takenLate is to do. The more wait the more seldom it looks at them, so that it takes about a
// tenth of the processor at most.
func (s *SES) tryNeighbours(now time.Duration) {
	s.searchAt = now + time.Duration(len(s.waiting))*searchEach
	s.late.some = false
	var before, after *send
	for _, o := range s.waiting {
		switch {
		case o.phase != phaseWait || o.peer != s.late.peer || o.rc != wire.RCNoMatch:
		case o.seq > s.late.seq:
			if after == nil || o.seq < after.seq {
				after = o
			}
		case before == nil || o.seq > before.seq:
			before = o
		}
	}
	for _, o := range [2]*send{before, after} {
		if o != nil {
			o.tries = 1
			s.makeReady(o)
		}
	}
}

// more adds one, and stays at the highest number.
func more(n uint16) uint16 { return max(n, n+1) }

// retry does what Advance is to do for messages that wait.
func (s *SES) retry(now time.Duration) {
	for _, i := range s.fresh {
		if m := s.sends.at(i); m.fresh {
			if m.tries == 0 {
				m.notReady = now
			}
			m.tries = more(m.tries)
		}
	}
	for _, i := range s.fresh {
		if m := s.sends.at(i); m.fresh {
			m.fresh = false
			if !m.ordered {
				s.schedule(m, now)
			}
		}
	}
	s.fresh, s.numFresh = s.fresh[:0], 0
	for k := 0; k < len(s.stirred); k++ { // settle may add some
		r := s.stirred[k]
		r.stirred = false
		s.settle(r, now)
	}
	clear(s.stirred)
	s.stirred = s.stirred[:0]
	if s.late.some && now >= s.searchAt {
		s.tryNeighbours(now)
	}
	for len(s.waiting) > 0 && s.waiting[0].retryAt <= now {
		s.makeReady(s.waiting[0])
	}
	for len(s.patient) > 0 && s.patient[0].retryAt <= now {
		if m := s.patient[0]; m.phase == phaseDeferred {
			s.notRestarted(m)
		} else {
			s.notRead(m)
		}
	}
	for len(s.troubled) > 0 && s.troubled[0].key <= uint64(now) {
		s.settle(s.troubled[0], now)
	}
	s.rearm()
}

// schedule sets when an unordered message goes again.
func (s *SES) schedule(m *send, now time.Duration) {
	end := m.notReady + s.cfg.RNRTimeout
	switch {
	case s.cfg.RNRTimeout > 0 && m.tries > 1 && now >= end:
		s.unwait(m)
		m.cause, m.unexecuted = NotReady, true
		s.endSend(m)
		return
	case m.rc == wire.RCBadGeneration && m.tries <= maxGenTries:
		s.makeReady(m)
		if r := s.resource(m); r != nil { // what it refused earlier goes, too
			for len(r.loose) > 0 {
				s.makeReady(r.loose[0])
			}
		}
		return
	}
	m.retryAt = now + s.backoff(m, m.tries-1)
	if s.cfg.RNRTimeout > 0 {
		m.retryAt = max(min(m.retryAt, end), now+1) // one last time at the end
	}
	s.waiting.push(m, uint64(m.retryAt))
}

// rearm sets when Advance has to look at waiting messages again.
func (s *SES) rearm() {
	t := uint64(math.MaxUint64)
	if len(s.waiting) > 0 {
		t = s.waiting[0].key
	}
	if len(s.patient) > 0 {
		t = min(t, s.patient[0].key)
	}
	if len(s.troubled) > 0 {
		t = min(t, s.troubled[0].key)
	}
	if s.late.some {
		t = min(t, uint64(max(s.searchAt, s.now)))
	}
	s.nextRetry = time.Duration(t + 1)
	if s.nextRetry != 0 {
		s.nextRetry--
	}
}

// makeReady has Resend return a message.
func (s *SES) makeReady(m *send) {
	s.unwait(m)
	m.phase = phaseReady
	s.ready.push(m, m.seq)
}

// Resend returns the oldest message that Advance made ready to be sent again, or to be sent
// after Hold kept it. The caller sends it from its beginning, like a new one.
func (s *SES) Resend() (Handle, bool) {
	if len(s.ready) == 0 {
		return 0, false
	}
	return s.resend(), true
}

func (s *SES) resend() Handle {
	m := s.ready.pop()
	s.rewind(m, m.cause != OK || m.deferred)
	return handleOf(m.self, m)
}

// rewind makes m a message of which nothing was sent. again says that it was sent before.
func (s *SES) rewind(m *send, again bool) {
	if len(s.recuts) != 0 {
		delete(s.recuts, m.self)
	}
	m.phase, m.next, m.byRUDI = phaseData, 0, false // what goes again goes by a PDC
	if m.cause == Rejected {
		m.small = false
	}
	if m.read != nil {
		s.reask(m)
	}
	if m.read != nil || m.operands != 0 || m.loan != nil || m.small {
		m.phase = phaseAsk
	}
	if again {
		// Each attempt has a message id of its own (but for S-DEF-07), so that the target does
		// not confuse it with what it remembers of the last attempt.
		s.freeID(m.hdr.MsgID)
		m.hdr.MsgID = s.newID()
		s.Stats.Resends++
	}
	m.cause, m.rc, m.nack = OK, 0, 0
	m.noResponse, m.response, m.unexecuted, m.deferred = false, false, false, false
	if m.checking {
		m.phase, m.deferred = phaseError, true // one empty piece is all that goes
	}
}

// unwait removes a message from the lists of those to be sent again.
func (s *SES) unwait(m *send) {
	switch m.phase {
	case phaseWait:
		if m.fresh {
			m.fresh = false
			if s.numFresh--; s.numFresh == 0 {
				s.fresh = s.fresh[:0]
			}
		}
		if m.res != nil {
			s.left(m, false)
		}
		if !m.ordered {
			s.waiting.remove(m)
			s.rearm()
		}
	case phaseReady:
		s.ready.remove(m)
	case phaseDeferred, phaseLent:
		s.unwaitDeferred(m)
	default:
		return
	}
	m.phase = phaseSent
}
