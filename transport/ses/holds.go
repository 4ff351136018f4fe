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
