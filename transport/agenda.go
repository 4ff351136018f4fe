package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// An agenda is the work of a FEP: the peers with something to send, and what is due later.
type agenda struct {
	ready  fifo[PeerID]  // peers with data, in the order in which they send
	acks   fifo[PeerID]  // peers that are owed ACKs or control packets
	ackAt  time.Duration // when acks are sent even without data; 0 if acks is empty
	flush  bool          // acks is not empty, and its ACKs may be sent now
	queued int           // messages with pieces that were not sent
	void   int           // of these, at most, those that ended when their endpoint closed and were not purged
	acked  uint64        // FEPCounters.RxData when all was acknowledged last
	// moveLater are messages whose PDC ended before any of their packets was sent.
	moveLater []ses.Handle
	early     fifo[uint32]          // lanes of ROD PDCs with early packets that may be executed at earlyAt
	earlyAt   time.Duration         // 0 if early is empty
	after     fifo[uint32]          // used by fillData: lanes that sent, to be queued behind those that did not
	stopped   map[*pds.PDC]*stopped // ROD PDCs with void packets, or to whose messages their pieces came back
	search    []PeerID              // peers whose path may carry more than the payload MTU in use
	searchAt  time.Duration         // when to ask again, 0 if search is empty or none of the peers has a PDC
	keyless   time.Duration         // since when packets wait for a key to seal with; 0 if none does
}

// clear forgets the queued messages, all of which end.
func (a *agenda) clear() { a.moveLater, a.queued, a.void = a.moveLater[:0], 0, 0 }
