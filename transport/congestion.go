package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/pds"
)

// Congestion is what congestion control holds of the busiest PDC that a FEP sends
// on: the one whose context has most in flight.
type Congestion struct {
	CwndBytes int           // congestion window, nominal bytes
	InFlight  int           // of it, nominal bytes
	SRTT      time.Duration // smoothed round trip time, 0 before the first sample
	PDCs      int           // that exist, of both directions
}

// Congestion looks at every PDC: for those who sample, not for every packet.
func (f *FEP) Congestion() Congestion {
	c := Congestion{PDCs: f.pds.Len()}
	f.pds.Each(func(p *pds.PDC) {
		ccc := p.CCC()
		if ccc == nil || !p.Initiator() {
			return
		}
		if n := ccc.InFlight(); c.CwndBytes == 0 || n > c.InFlight || n == c.InFlight && ccc.Window() > c.CwndBytes {
			c.CwndBytes, c.InFlight, c.SRTT = ccc.Window(), n, ccc.SRTT()
		}
	})
	return c
}

// Quiesce begins the orderly end of the PDCs that this side opened to a peer
// (UE §3.5.8): what they carry goes to its end, and messages that are posted from
// now on open new ones.
func (f *FEP) Quiesce(now time.Duration, id PeerID) {
	f.now = now
	f.pds.Each(func(p *pds.PDC) {
		if p.Peer == uint32(id) && p.Initiator() {
			f.pds.Close(now, p)
			(*upper)(f).Wake(p)
		}
	})
}
