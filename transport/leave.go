package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// Leave is the first half of Close. Nothing can be posted any more, every receive ends with a
// Cancelled event, and messages that come are refused. Sends go on, and so do the answers to
// the packets of peers. While Lingers, a caller that can wait does: messages whose success was
// reported before they arrived may still arrive, and peers may lack an ACK of what did arrive.
// Then it calls Close.
func (f *FEP) Leave(now time.Duration) {
	if f.barred || f.ended {
		return
	}
	f.now = now
	f.unusual, f.barred = true, true
	f.ses.Leave()
	f.queueReturns()
	f.pds.Leave(now)
	f.heed()
	f.AckAll(now)
}

// Lingers reports whether there is something to wait for after Leave: a message that the
// application takes for sent (Inject, Silent) and that was not delivered, or a peer that may
// lack an ACK. A peer that is not there, or that was silent or not ready for patience, is
// not waited for.
func (f *FEP) Lingers(now, patience time.Duration) bool {
	return f.EndpointLingers(now, patience, AllEndpoints) || !f.closed && !f.ended && f.pds.MayLack(now, f.quiet())
}

// EndpointLingers reports whether a message is to be waited for, as Lingers does, that is of one endpoint.
func (f *FEP) EndpointLingers(now, patience time.Duration, id EndpointID) bool {
	if f.closed || f.ended {
		return false
	}
	last, hopeless := NoPeer, false // most messages are for the peer of the one before
	return f.ses.Undelivered(id, now, patience, true, func(peer uint32) bool {
		if id := PeerID(peer); id != last {
			last, hopeless = id, f.hopeless(now, patience, id)
		}
		return !hopeless
	})
}

// Flushed reports whether every message that was posted is delivered or has failed.
func (f *FEP) Flushed() bool { return f.EndpointFlushed(AllEndpoints) }

// EndpointFlushed is Flushed for one endpoint.
func (f *FEP) EndpointFlushed(id EndpointID) bool {
	return !f.ses.Undelivered(id, 0, 0, false, func(uint32) bool { return true })
}

func (f *FEP) hopeless(now, patience time.Duration, id PeerID) (yes bool) {
	f.pds.Each(func(p *pds.PDC) { yes = yes || p.Peer == uint32(id) && p.Hopeless(now, patience, f.quiet()) })
	return yes
}

// quiet is how long a peer may be silent that has a reason to answer at once, or to ask again:
// several times the least RTO, or eight round trips where the path is long.
func (f *FEP) quiet() time.Duration { return max(20*time.Millisecond, 8*f.cfg.BaseRTT) }
