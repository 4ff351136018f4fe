package cm

// Stats counts what a node did since Open, and tells what there is now.
type Stats struct {
	Sessions int // sessions now
	Pending  int // requests that wait for an answer now

	Opened          uint64 // sessions that began
	RefusedBacklog  uint64 // requests refused beyond Backlog
	RefusedSessions uint64 // sessions refused beyond MaxSessions
	Wrong           uint64 // first messages that were wrong or came late
	Mismatched      uint64 // requests of peers that differ too much
	LostSends       uint64 // packets that could not be sent

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
