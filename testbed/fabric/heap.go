package fabric

import (
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// An event is something that is due at a time. Of events with one time, those of the
// timeline come first, then the others in the order they were scheduled in. That order and
// the seed make a run repeatable.
type event struct {
	kind   eventKind
	gen    uint32 // stale if the line has moved on
	ticket badnet.Ticket
	line   *line
	pkt    *packet
	rule   *rule
	do     *timed
	undo   *change
}

// An eventKind tells what an event is about.
type eventKind uint8

const (
	evTx      eventKind = iota // the packet on line's wire has been sent
	evHop                      // pkt has reached the end of its line
	evPipe                     // the first packet in line's pipe has
	evRule                     // pkt goes on at line behind the rule that delayed it
	evHold                     // what rule holds for the ticket has been held long enough
	evReplay                   // rule's adversary may send again
	evTimed                    // do is due
	evUndo                     // undo is due
	evPackets = evTimed        // kinds below are about packets
)

// due puts an event on the agenda.
func (s *Switch) due(at time.Duration, e event) {
	if e.kind < evPackets {
		s.agenda.Push(at, e)
		return
	}
	s.agenda.PushFirst(at, e)
}
