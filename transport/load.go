package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// A Load is the work that a FEP has now. Unlike Stats it rises and falls.
type Load struct {
	Sends, Recvs    int // operations that have not ended
	Queued          int // messages of which not all packets were sent
	Unexpected      int // messages that no receive has matched
	UnexpectedBytes int64
	// ReadParts counts the parts of ordered reads whose bytes are kept until their initiators have them, ReadBytes
	// is the memory that they take.
	ReadParts int
	ReadBytes int64
	PDCs      int
	// Peers counts the peers to which there is a congestion window. RTT is the longest
	// smoothed round trip to any of them. Window and InFlight are the bytes of all their
	// windows.
	Peers            int
	RTT              time.Duration
	Window, InFlight int
}

// Load returns the current load. It reads every peer.
func (f *FEP) Load() Load {
	var l Load
	l.Sends, l.Recvs = f.Posted()
	l.Queued, l.PDCs = f.todo.queued, f.pds.Len()
	l.Unexpected, l.UnexpectedBytes = f.ses.Unexpected()
	l.ReadParts, l.ReadBytes = f.ses.Captured()
	add := func(c pds.CCC) {
		l.RTT = max(l.RTT, c.SRTT())
		l.Window += c.Window()
		l.InFlight += c.InFlight()
	}
	for i := range f.peers {
		p := &f.peers[i]
		if !p.used || p.ccc == nil && p.rod == nil {
			continue
		}
		l.Peers++
		if p.ccc != nil {
			add(p.ccc)
		}
		if p.rod != nil && p.rod.CCC() != p.ccc { // UE 3.6: a ROD PDC has its own CCC, unless RCCC has no id left
			add(p.rod.CCC())
		}
	}
	return l
}
