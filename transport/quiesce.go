package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// Quiesce begins the orderly end of the PDCs that this side opened to a peer (UE 3.5.8).
// Messages that have begun go to their end there. The others, and messages that are posted
// from now on, use new PDCs.
func (f *FEP) Quiesce(now time.Duration, id PeerID) {
	f.now = now
	f.pds.Each(func(p *pds.PDC) {
		if p.Peer == uint32(id) && p.Initiator() {
			f.pds.Close(now, p)
			f.wake(p)
		}
	})
}
