package ses

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file sends refused messages again. A target refuses a message that it has no buffer
// for and cannot keep (NO_MATCH, DISABLED_GEN), or whose resource has a new generation, which
// the answer names (BAD_GENERATION): S-GEN-03, S-GEN-05. The whole message is then sent under
// a new message id, after a wait that doubles each time, until RNRTimeout.

// Back-off of sends to a target that is not ready: from 2 ms, doubled up to
// 128 ms, plus up to half. S-GEN-05 has 50 to 100 ms, but a receive is often posted sooner.
// The values are arbitrary.
const (
	backoffMin   = 2 * time.Millisecond
	backoffSteps = 6
	maxTransient = 5 // resends after UNCOR_TRNSNT
	maxGenTries  = 8 // resends after BAD_GENERATION without a wait
)

// again reports whether a refused message is to be sent once more.
func (s *SES) again(m *send) bool {
	if s.closed || m.ep.closed && !m.told || s.cfg.RNRTimeout < 0 || m.told && !m.copied {
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

// retry sets the times of waiting messages that have none, and makes those that are due
// ready.
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
			s.endSend(m)
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
		// S-GEN-04: messages that the same resource refused earlier go first.
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

// Resend returns the oldest message that Advance made ready to be sent again. The caller
// sends it from its beginning, like a new one.
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
	// Each attempt has a message id of its own (but for S-DEF-07), so that the target does
	// not confuse it with what it remembers of the last attempt.
	s.freeID(m.hdr.MsgID)
	m.hdr.MsgID = s.newID()
	m.phase, m.next = phaseData, 0
	m.cause, m.rc, m.nack = OK, 0, 0
	m.noResponse, m.response, m.unexecuted = false, false, false
	s.Stats.Resends++
	return handleOf(i, m)
}

// unwait removes a message from the lists of those to be sent again.
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

func (m *send) genKey() genKey {
	return genKey{m.peer, m.hdr.JobID, m.hdr.PIDonFEP, m.hdr.RI, m.kind.Tagged()}
}

const maxGens = 65536 // resources remembered; with more, all are forgotten and learnt again

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

// Forget forgets the generations of a peer, whose number may then mean another peer.
func (s *SES) Forget(peer uint32) {
	if len(s.gens) != 0 {
		s.numGens -= len(s.gens[peer])
		delete(s.gens, peer)
	}
}
