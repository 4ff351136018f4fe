package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file keeps ordered messages in order behind a resource that refuses them (S-GEN-04).
//
// A target that runs out of something disables the resource: from then on it refuses every
// message, with DISABLED_GEN, and later, when the resource has its next generation, with
// BAD_GENERATION, until the initiator uses that one. So of the messages that are out none
// overtakes the one that was refused first, as long as all have the same generation. That is
// what the initiator must see to:
//
//   - Ordered messages that are out to a resource have one generation. A message that would
//     have another waits until all are answered.
//   - After a refusal no further ordered message begins (Hold).
//   - When all that are out are answered, the oldest message of all goes alone, after a wait
//     that doubles, or at once if there is a new generation. It is the probe.
//   - When the probe is accepted the others follow in the order of posting.
//
// A resource is watched from its first refusal on, and remembered: before it, an ordered
// message costs nothing here.
type resource struct {
	seat // in SES.troubled: when to try again
	name genKey

	gen   uint8 // the newest generation that the target named
	using uint8 // generation of the ordered messages that are out
	rc    wire.RC
	out   int32       // ordered messages that have begun and are not answered
	held  heap[*send] // ordered messages that were refused, or that Hold kept, by age
	probe *send       // the message that shows whether the resource takes messages again

	down      bool          // a message was refused, and no probe accepted since
	tries     uint16        // waits since then
	renewals  uint8         // probes since then that went at once, because of a new generation
	refusedAt time.Duration // when a message was refused
	retryAt   time.Duration // when to send a probe, 0: not yet known
	unstamped bool          // refusedAt is to be set
	stirred   bool          // listed in SES.stirred

	loose []*send // unordered messages that wait, and that a new generation wakes
}

// A genKey names a resource of a peer.
type genKey struct {
	peer, job uint32
	pid, ri   uint16
	space     Kind // EvSend, EvTSend or EvWrite: index spaces are apart (S-ADDR-03)
}

func (m *send) genKey() genKey {
	space := m.kind
	switch {
	case m.hdr.Opcode == wire.OpTSendAtomic || m.hdr.Opcode == wire.OpTSendFetchAtomic:
		space = EvTSend
	case space.RMA():
		space = EvWrite
	}
	return genKey{m.peer, m.hdr.JobID, m.hdr.PIDonFEP, m.hdr.RI, space}
}

// maxResources bounds the resources that are remembered. Of more, those that no message needs
// are forgotten, and learnt again. Those with messages are bounded by maxSends.
const maxResources = 65536

// resource returns the resource that a message is for, nil if it is not watched.
func (s *SES) resource(m *send) *resource {
	if s.numResources == 0 {
		return nil
	}
	return s.resources[m.peer][m.genKey()]
}

// watch returns the resource that a message is for. If it was not watched, watch looks through
// all sends for what is out to it, once.
func (s *SES) watch(m *send) *resource {
	if r := s.resource(m); r != nil {
		return r
	}
	if len(s.watched) >= maxResources {
		s.forgetIdle()
	}
	r := &resource{name: m.genKey()}
	for i := range s.sends.used {
		o := s.sends.at(i)
		switch {
		case o.phase == phaseFree || o.peer != m.peer || o.genKey() != r.name:
		case !o.ordered:
			if o.phase == phaseWait {
				r.addLoose(o)
			}
		case o.phase == phaseSent || o.phase == phaseError || o.phase == phaseRecut || o.phase == phaseData && o.next != 0:
			r.send(o)
			r.using = o.hdr.Gen
		}
	}
	if s.resources == nil {
		s.resources = make(map[uint32]map[genKey]*resource)
	}
	if s.resources[m.peer] == nil {
		s.resources[m.peer] = make(map[genKey]*resource)
	}
	s.resources[m.peer][r.name] = r
	s.watched = append(s.watched, r)
	s.numResources++
	return r
}

// forgetIdle forgets the resources that no message needs.
func (s *SES) forgetIdle() {
	keep := s.watched[:0]
	for _, r := range s.watched {
		of := s.resources[r.name.peer]
		switch {
		case of[r.name] != r: // Forget forgot it
		case r.out != 0 || len(r.held) != 0 || len(r.loose) != 0 || r.probe != nil || r.stirred:
			keep = append(keep, r)
		default:
			delete(of, r.name)
			s.numResources--
		}
	}
	clear(s.watched[len(keep):])
	s.watched = keep
}

// Forget forgets the resources of a peer and what it can, whose number may then mean another peer. There is no
// message to it.
func (s *SES) Forget(peer uint32) {
	delete(s.supports, peer)
	delete(s.readers, peer)
	if int(peer) < len(s.tops) {
		s.tops[peer] = 0
	}
	if s.numResources != 0 {
		s.numResources -= len(s.resources[peer])
		delete(s.resources, peer)
	}
}

// adopt remembers the generation that a target named (S-GEN-03).
func (s *SES) adopt(m *send, gen uint8) {
	r := s.watch(m)
	if r.gen == gen {
		return
	}
	r.gen = gen
	if r.renewals < maxGenTries {
		r.retryAt = 0
	}
	s.stir(r)
}

// start gives a message the generation of its resource, before its first piece is handed out.
func (s *SES) start(m *send) {
	r := s.resource(m)
	if r == nil {
		m.hdr.Gen = 0
		return
	}
	m.hdr.Gen = r.gen
	if m.ordered {
		r.using = r.gen
		r.send(m)
	}
}

// send counts a message as one that is out.
func (r *resource) send(m *send) {
	m.odd, m.res, m.out = true, r, true
	r.out++
}

// gated reports whether an ordered message may not begin now.
func (s *SES) gated(m *send) bool {
	r := s.resource(m)
	return r != nil && r.probe != m && (r.down || len(r.held) != 0 || r.out != 0 && r.using != r.gen)
}

// Hold keeps a message of which Peek returned no piece because ordered messages before it were
// refused. Resend will return it. Hold returns the length of the message, and false if the
// message does not wait for others.
func (s *SES) Hold(h Handle) (n int, ok bool) {
	_, m := s.lookup(h)
	if m == nil || m.phase != phaseData && (m.phase != phaseAsk || m.loan == nil) || m.next != 0 || !m.ordered || !s.gated(m) {
		return 0, false
	}
	r := s.resource(m)
	m.phase, m.retryAt, m.rc = phaseWait, 0, r.rc
	s.stamp(m)
	s.hold(r, m)
	if m.loan != nil {
		return wire.RendezvousLen, true
	}
	return int(m.hdr.ReqLen), true
}

func (s *SES) hold(r *resource, m *send) {
	m.res = r
	r.held.push(m, m.seq)
	s.stir(r)
}

// refused notes the refusal of an ordered message, which waits from now on.
func (s *SES) refused(m *send) {
	r := s.watch(m)
	r.down, r.rc, r.unstamped = true, m.rc, true
	s.hold(r, m)
}

// left removes a message from its resource, because it was answered, goes again, or ends.
func (s *SES) left(m *send, accepted bool) {
	r := m.res
	m.res = nil
	if !m.ordered {
		r.dropLoose(m)
		return
	}
	r.held.remove(m)
	if m.out {
		m.out = false
		r.out--
	}
	if r.probe == m {
		r.probe = nil
		r.retryAt = s.now // if it is refused, settle sets another time
		if accepted {
			r.down, r.tries, r.renewals = false, 0, 0
		}
	}
	if r.down || len(r.held) != 0 {
		s.stir(r)
	}
}

// stir has the next Advance look at a resource.
func (s *SES) stir(r *resource) {
	if !r.stirred {
		r.stirred = true
		s.stirred = append(s.stirred, r)
	}
}

// settle decides what becomes of the messages that wait for a resource.
func (s *SES) settle(r *resource, now time.Duration) {
	s.troubled.remove(r)
	if r.unstamped {
		r.unstamped = false
		r.refusedAt, r.retryAt = now, 0
	}
	if r.out != 0 || r.probe != nil {
		return // first what is out is answered: order, and one generation at a time
	}
	if r.down {
		s.expire(r)
	}
	if len(r.held) == 0 {
		r.down, r.tries, r.renewals = false, 0, 0
		return
	}
	if !r.down {
		for len(r.held) > 0 {
			s.release(r)
		}
		return
	}
	m := r.held[0]
	if r.retryAt == 0 {
		if r.gen != r.using && r.renewals < maxGenTries {
			r.renewals++
			r.retryAt = now
		} else {
			r.retryAt = now + s.backoff(m, r.tries)
			r.tries = more(r.tries)
		}
	}
	m.retryAt = r.retryAt
	if s.cfg.RNRTimeout > 0 {
		m.retryAt = min(r.retryAt, m.notReady+s.cfg.RNRTimeout) // one last time at the end
	}
	if m.retryAt > now {
		s.troubled.push(r, uint64(m.retryAt))
		return
	}
	s.release(r)
	m.res, r.probe = r, m
}

// release has Resend return the oldest message that waits for a resource.
func (s *SES) release(r *resource) {
	m := r.held.pop()
	m.res, m.fresh, m.phase = nil, false, phaseReady
	s.ready.push(m, m.seq)
}

// expire ends the messages for which the target was not ready for RNRTimeout, and refused
// one after it.
func (s *SES) expire(r *resource) {
	for s.cfg.RNRTimeout > 0 && len(r.held) > 0 {
		m := r.held[0]
		if r.refusedAt < m.notReady+s.cfg.RNRTimeout {
			return
		}
		r.held.pop()
		m.res = nil
		m.cause, m.unexecuted = NotReady, true
		s.endSend(m)
	}
}

// addLoose lists an unordered message that waits, unless it was sent at once often enough.
func (r *resource) addLoose(m *send) {
	if m.tries < maxGenTries {
		m.res, m.loose = r, int32(len(r.loose))
		r.loose = append(r.loose, m)
	}
}

func (r *resource) dropLoose(m *send) {
	last := len(r.loose) - 1
	r.loose[m.loose] = r.loose[last]
	r.loose[m.loose].loose = m.loose
	r.loose[last] = nil
	r.loose = r.loose[:last]
}
