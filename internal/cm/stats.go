package cm

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
