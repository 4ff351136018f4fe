package sim

// An event is something that happens at a virtual time. Events of one time
// happen in the order they were scheduled in: that, and the seed, make a run
// repeatable.
type event struct {
	kind eventKind
	gen  uint32 // of a timer: stale if the owner has moved on
	node *Node
	pkt  *Packet
	fn   func()
}

type eventKind uint8

const (
	evFunc eventKind = iota // run fn
	evHop                   // pkt enters the next line of its route, or its node
	evTurn                  // node takes its turn
	evICMP                  // node hears that pkt's destination is closed
)
