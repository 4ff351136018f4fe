package transport

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/internal/ses"
)

// Abandon ends at once all that has to do with a peer, which the application knows to be
// gone. Each operation to and from it ends with a Cancelled event: sends, receives from it
// alone, and receives that have a part of a message of it. Event.Unknown is set for a send
// that the peer may have received. Unexpected messages of the peer are dropped, and all PDCs
// to and from it end with one farewell each. A multi-receive buffer that accepts messages of
// others stays posted, and its Event tells of the message. The FEP reads and writes no buffer
// of the operations that ended after Abandon returns.
//
// The peer stays known. What it sends on a PDC that ended is refused; what it sends later,
// or what is sent to it, opens new PDCs.
func (f *FEP) Abandon(now time.Duration, id PeerID) {
	if f.closed || id == NoPeer || int(id) >= len(f.peers) {
		return
	}
	f.now = now
	f.ses.CancelPeer(uint32(id))
	for i := range f.lanes {
		if ln := &f.lanes[i]; ln.pdc != nil && ln.pdc.Peer == uint32(id) {
			f.todo.queued -= ln.q.len()
			ln.q.clear()
			ln.begun, ln.bytes = 0, 0
		}
	}
	f.todo.moveLater = slices.DeleteFunc(f.todo.moveLater, func(h ses.Handle) bool { return f.ses.Seq(h) == 0 })
	f.pds.AbortPeer(now, uint32(id))
	f.failIdem(id, ses.Closed)
	f.heed()
}
