package cm

// Stats count since Open, or say what there is now.
type Stats struct {
	Sessions int // open now
	Pending  int // requests that wait for an answer now

	Opened          uint64 // sessions
	RefusedBacklog  uint64 // requests beyond Backlog
	RefusedSessions uint64 // sessions beyond MaxSessions
	Wrong           uint64 // first messages that were none, or came late
	Mismatched      uint64 // requests of peers too different to talk to
	LostSends       uint64 // packets that the socket did not take

	Admission AdmissionStats
}

// Stats returns a snapshot.
func (n *Node) Stats() Stats {
	n.sock.mu.Lock()
	lost := n.sock.lost
	n.sock.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.stats
	st.Sessions, st.Pending, st.LostSends, st.Admission = len(n.sessions), n.pending, lost, n.admission.snapshot()
	return st
}

// count adds one to a counter of stats.
func (n *Node) count(c *uint64) {
	n.mu.Lock()
	*c++
	n.mu.Unlock()
}
