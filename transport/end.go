package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/ses"
)

// End stops all traffic because no peer is left: from now on the FEP sends nothing but
// farewell packets, and Receive ignores what arrives. Every operation ends with a Cancelled
// event. A receive may still get a message that arrived completely before; one that finds
// none ends at once. A send fails with ErrClosed.
func (f *FEP) End(now time.Duration) {
	if f.closed || f.ended {
		return
	}
	f.now = now
	f.ended, f.watched = true, true
	f.ses.End()
	f.pds.Abort(now)
	f.failIdem(NoPeer, ses.Closed)
	f.heed()
	f.todo.clear()
	f.scarce = scarcity{}
}
