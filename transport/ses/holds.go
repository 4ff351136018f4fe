package ses

// Holds reports whether messages of the peer are in progress or wait for a
// receive: its number must go on meaning the same peer.
func (s *SES) Holds(peer uint32) bool {
	for u := s.byPeer.first(s.hash(uint64(peer), 2)); u != none; u = s.byPeer.next(u) {
		if s.peers.at(u).peer == peer {
			return true
		}
	}
	return false
}

// Names reports whether an operation that has not ended has the number of the
// peer: a send to it, or a receive of its messages alone.
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
