package sim

// An event is something that happens at a virtual time. Events of the same time happen in the
// order in which they were scheduled. That and the seed make a run repeatable.
type event struct {
	kind eventKind
	gen  uint32 // evTurn: Node.gen when it was scheduled; evICMP: the life of node. The event is stale if that has changed
	node *Node
	pkt  *Packet
	fn   func()
}

type eventKind uint8

const (
	evFunc eventKind = iota // run fn
	evHop                   // pkt enters the next line of its route, or its node
	evTurn                  // node takes its turn
	evICMP                  // node gets an ICMP error: pkt's destination is closed
)
