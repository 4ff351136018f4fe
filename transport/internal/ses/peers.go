package ses

// This file counts the messages of each peer.

// peerUse counts the messages of one peer. It exists while a count is not 0.
type peerUse struct {
	peer               uint32
	open, kept, dead   int32
	serves             int32  // reads of it that are served
	pulls              int32  // rendezvous sends of it that had a receive when they came
	restarted          uint32 // the sweep in which a message of it that was deferred came again last
	unheard            int32  // of the dead ones: no answer said so yet
	bytes              int64
	captured           int // bytes that its ordered reads have
	deadHead, deadTail int32
	unproven           bool // kept and bytes are also counted in SES.unproven
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

// putUser frees the record of a peer that has no message.
func (s *SES) putUser(u int32, pu *peerUse) {
	if pu.open == 0 && pu.kept == 0 && pu.dead == 0 && pu.serves == 0 && pu.pulls == 0 {
		s.byPeer.remove(u)
		s.peers.put(u)
	}
}

// Holds reports whether a message of the peer is open, unexpected or dead. While it is, the
// peer must keep its number.
func (s *SES) Holds(peer uint32) bool {
	for u := s.byPeer.first(s.hash(uint64(peer), 2)); u != none; u = s.byPeer.next(u) {
		if s.peers.at(u).peer == peer {
			return true
		}
	}
	return false
}

// Awaited reports whether a receive without a message, of an endpoint or of AllEndpoints, accepts messages of the
// peer alone.
func (s *SES) Awaited(ep EndpointID, peer uint32) bool {
	waits := func(r *recv) bool { return r.live && r.peer == peer && r.class != boundClass }
	if ep != AllEndpoints {
		for r := s.firstRecv(s.endpoint(ep)); r != nil; r = s.nextRecv(r) {
			if waits(r) {
				return true
			}
		}
		return false
	}
	for i := range s.recvs.used {
		if waits(s.recvs.at(i)) {
			return true
		}
	}
	return false
}

// Names reports whether an operation that has not ended names the peer: a send to it, or a
// receive from it alone.
func (s *SES) Names(peer uint32) bool {
	for i := range s.sends.used {
		if m := s.sends.at(i); m.phase != phaseFree && m.peer == peer {
			return true
		}
	}
	for i := range s.recvs.used {
		if r := s.recvs.at(i); r.live && r.peer == peer {
			return true
		}
	}
	return false
}
