package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/ses"
)

// An agenda is what a FEP has to do: who has something to send, and what goes on later.
type agenda struct {
	ready  fifo[PeerID]  // peers with data, in the order of their turns
	acks   fifo[PeerID]  // peers with nothing but ACKs and control packets to send
	ackAt  time.Duration // when what waits in acks leaves alone; 0: nothing waits
	flush  bool          // what waits in acks may leave; something does
	queued int           // messages with pieces not yet taken
	// moveLater are messages of a PDC that ended, nothing of which was sent.
	moveLater []ses.Handle
	early     fifo[uint32]  // lanes of ROD PDCs with packets whose turn comes at earlyAt
	earlyAt   time.Duration // 0: there are none
	after     fifo[uint32]  // in fillData: lanes that sent wait behind those that did not
	keyless   time.Duration // since when there is nothing to seal with; 0: there is
}

// clear forgets what was queued: everything ends.
func (a *agenda) clear() { a.moveLater, a.queued = a.moveLater[:0], 0 }
