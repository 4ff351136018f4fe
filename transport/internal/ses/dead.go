package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file remembers dead messages: those that ended in error. Packets of them may still be
// under way; they get the same error and must not begin a new message (S-RSM-07). A dead
// message is forgotten when no more bytes of it can come, when the peer has too many, or after
// IdleTimeout; one that its sender has not heard of only when it hears of it or the PDC goes, since
// its other packets would be answered OK and the sender would take it for received. While all peers together have maxDead, a peer without a dead message gets none:
// the rest of its message looks like a new one.

// maxDead bounds the dead messages of all peers.
const maxDead = 4096

// bury makes a message in progress a dead one, or forgets it if there is no room. It reports
// whether the message is remembered.
func (s *SES) bury(i int32, m *inmsg, rc wire.RC, end uint32) bool {
	pu := s.peers.at(m.user)
	if !s.deadRoom(pu) {
		s.close(i, m)
		s.freeIn(i, m)
		return false
	}
	s.open--
	pu.open--
	m.state = inDead
	p := s.more(m)
	p.rc, p.end, p.epoch = rc, end, s.epoch
	s.enlist(i, m, pu)
	return true
}

// deadRoom reports whether a peer may have one more dead message. It forgets the peer's oldest
// if that makes room.
func (s *SES) deadRoom(pu *peerUse) bool {
	if s.dead < maxDead {
		return true
	}
	if pu.dead <= pu.unheard {
		return false
	}
	s.forgetOldest(pu)
	return true
}

// makeRoom forgets the oldest dead message of the peer that has the most, if all peers together
// have maxDead. It serves messages of which the sender has not heard: their senders take what
// has no record for received.
func (s *SES) makeRoom() {
	if s.dead < maxDead {
		return
	}
	var most *peerUse
	for b := range s.byPeer.buckets {
		for u := s.byPeer.first(uint32(b)); u != none; u = s.byPeer.next(u) {
			if pu := s.peers.at(u); most == nil || pu.dead > most.dead {
				most = pu
			}
		}
	}
	s.forgetOldest(most)
}

// buryUnheard makes a message in progress a dead one of which its sender has not heard. It is
// remembered until the sender hears of it, or its PDC goes.
func (s *SES) buryUnheard(i int32, m *inmsg, rc wire.RC) {
	s.makeRoom()
	s.more(m).unheard = true
	s.peers.at(m.user).unheard++
	s.bury(i, m, rc, m.length)
}

// hear notes that the sender of a dead message is told.
func (s *SES) hear(m *inmsg) {
	if p := s.more(m); p.unheard {
		p.unheard = false
		s.peers.at(m.user).unheard--
	}
}

// entomb remembers a message that was not known before, as dead: its packets are answered rc. n
// is the payload length of the packet that caused it.
func (s *SES) entomb(src Source, r *wire.ReqStd, rc wire.RC, end, n uint32) {
	if i, m := s.findIn(src.PDC, r.MsgID); m != nil {
		s.forget(i, m) // dead, and another message
	}
	u := s.user(src.Peer)
	if pu := s.peers.at(u); s.in.live() >= s.maxState() || !s.deadRoom(pu) {
		s.putUser(u, pu)
		return
	}
	u = s.user(src.Peer) // again: the record may have gone with the oldest dead message
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{pdc: src.PDC, peer: src.Peer, length: r.ReqLen, user: u, room: noBlock, msgID: r.MsgID, state: inDead, opcode: r.Opcode}
	p := s.widen(i, m)
	p.rc, p.end = rc, end
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.enlist(i, m, s.peers.at(m.user))
	if r.Opcode != wire.OpMsgError {
		s.count(i, m, r, n)
	}
}

// same reports whether a packet belongs to a dead message, not to a new one with the same
// message id.
func (m *inmsg) same(r *wire.ReqStd) bool {
	return m.length == r.ReqLen && (m.opcode == r.Opcode || m.opcode == wire.OpMsgError) && !(m.som && r.Flags&wire.SESSOM != 0)
}

func (s *SES) enlist(i int32, m *inmsg, pu *peerUse) {
	s.more(m).deadNext = none
	if pu.dead == 0 {
		pu.deadHead = i
	} else {
		s.more(s.in.at(pu.deadTail)).deadNext = i
	}
	pu.deadTail = i
	pu.dead++
	s.dead++
	if int(pu.dead) > s.cfg.OpenPerPeer {
		s.forgetOldest(pu)
	}
}

// forgetOldest forgets the oldest dead message of a peer, if possible one of which the peer heard
// already.
func (s *SES) forgetOldest(pu *peerUse) {
	i := pu.deadHead
	for k := i; k != none; k = s.more(s.in.at(k)).deadNext {
		if !s.more(s.in.at(k)).unheard {
			i = k
			break
		}
	}
	s.forget(i, s.in.at(i))
}

// count counts the n bytes of a packet of a dead message, and forgets the message if they were
// the last.
func (s *SES) count(i int32, m *inmsg, r *wire.ReqStd, n uint32) {
	m.som = m.som || r.Flags&wire.SESSOM != 0
	s.hear(m)
	m.got += n
	p := s.more(m)
	p.epoch = s.epoch
	if n > 0 && m.got >= p.end {
		s.forget(i, m)
	}
}

// forget frees a dead message.
func (s *SES) forget(i int32, m *inmsg) {
	pu := s.peers.at(m.user)
	prev := none
	for k := pu.deadHead; k != i; k = s.more(s.in.at(k)).deadNext {
		prev = k
	}
	if prev == none {
		pu.deadHead = s.more(m).deadNext
	} else {
		s.more(s.in.at(prev)).deadNext = s.more(m).deadNext
	}
	if pu.deadTail == i {
		pu.deadTail = prev
	}
	s.hear(m)
	pu.dead--
	s.dead--
	s.putUser(m.user, pu)
	s.byPDC.remove(i)
	if s.last == i {
		s.last = none
	}
	s.freeIn(i, m)
}

// msgError executes MSG_ERROR: the initiator gave a message up after MsgOff bytes (S-MSC-03).
// The answer is OK, so that the initiator reports its own error.
func (s *SES) msgError(src Source, r *wire.ReqStd) *Result {
	s.Stats.MsgErrorsRx++
	end := r.MsgOff
	if r.Flags&wire.SESSOM != 0 {
		end = 0
	}
	if own, ours := r.RestartTokens(); ours != 0 && own == ours {
		// It was deferred, and this side has asked for it.
		if i := s.offerOf(src.Peer, own); i != none {
			s.withdrawOffer(i, s.in.at(i))
		}
		if r.ReqLen == 0 {
			return s.done(0) // all of it
		}
	}
	if s.deferrals.n != 0 && s.rendezvousError(src, r) {
		return s.done(0)
	}
	if m := s.lentTo(src.Peer, r.Match); m != nil {
		s.endLent(m, Rejected, wire.RCUndeliverable)
		return s.done(0)
	}
	if i, ok := s.serveOf[serveKey{src.PDC, r.MsgID}]; ok {
		s.stopServe(i, s.serves.at(i))
		return s.done(0)
	}
	i, m := s.findIn(src.PDC, r.MsgID)
	switch {
	case m == nil && end > 0:
		// Packets of the message may come after the MSG_ERROR.
		s.entomb(src, r, wire.RCInitiatorError, end, 0)
	case m == nil:
	case m.state == inDead:
		p := s.more(m)
		p.end, p.epoch = min(p.end, end), s.epoch
		s.hear(m)
		if m.got >= p.end {
			s.forget(i, m)
		}
	default:
		s.end(m, i, PeerError, wire.RCInitiatorError)
		if s.bury(i, m, wire.RCInitiatorError, end) && m.got >= s.more(m).end {
			s.forget(i, m)
		}
	}
	return s.done(0)
}
