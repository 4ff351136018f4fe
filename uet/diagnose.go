package uet

import (
	"github.com/uetkit/uetkit/transport"
)

// A Waiting is an operation that has not ended, and why: its Cause is for programs,
// its String and Why for people.
type Waiting = transport.Waiting

// A WaitFor is what an operation waits for.
type WaitFor = transport.WaitFor

// What operations wait for: sends up to WaitAnswer, receives from WaitMessage on.
const (
	WaitNothing    = transport.WaitNothing    // nothing: packets leave or are under way, and none is late
	WaitAck        = transport.WaitAck        // an ACK: packets or their ACKs are lost, or the peer is gone
	WaitOpen       = transport.WaitOpen       // the first answer of the target on a new PDC
	WaitClose      = transport.WaitClose      // the PDC closes; the message goes by the next one
	WaitPDC        = transport.WaitPDC        // a PDC: there are too many, or no id is free
	WaitRoom       = transport.WaitRoom       // room: as many operations are posted as there may be
	WaitNotReady   = transport.WaitNotReady   // the target has no receive for it, and no room to keep it
	WaitShort      = transport.WaitShort      // the target is short of something else
	WaitCongestion = transport.WaitCongestion // the congestion window is full
	WaitPeerWindow = transport.WaitPeerWindow // the peer accepts no further packet (MP_RANGE)
	WaitOwnWindow  = transport.WaitOwnWindow  // a missing packet: this side sends no further ahead of it
	WaitKey        = transport.WaitKey        // a key to seal with
	WaitBehind     = transport.WaitBehind     // another message, which goes first
	WaitFence      = transport.WaitFence      // the sends before a fence
	WaitOrder      = transport.WaitOrder      // an earlier packet; this one arrived
	WaitAnswer     = transport.WaitAnswer     // its response; it arrived
	WaitMessage    = transport.WaitMessage    // a message
	WaitMatch      = transport.WaitMatch      // a message that matches; others came
	WaitRest       = transport.WaitRest       // the rest of its message
	WaitEarlier    = transport.WaitEarlier    // an earlier packet; later ones came
	WaitCQ         = transport.WaitCQ         // room in the completion queue
	WaitConnection = transport.WaitConnection // a connection
)

// Diagnose returns what each operation waits for that has not ended, the oldest first.
// It answers "why does this take so long?". It takes the lock of the endpoint, reads
// all operations and packets in flight, and changes nothing; it is for people and for
// programs in trouble, not for every turn. It returns nil if nothing is outstanding, or
// the endpoint is not enabled or closed.
//
// Like any call of the endpoint it delivers completions that are due.
func (ep *Endpoint) Diagnose() []Waiting {
	ep.mu.Lock()
	drv := ep.drv
	ep.mu.Unlock()
	if drv == nil {
		return nil
	}
	list := drv.Diagnose()
	if ep.link != nil && ep.link.state.Load() < linkUp {
		for i := range list {
			if list[i].Cause == WaitMessage {
				list[i].Cause = WaitConnection
			}
		}
	}
	return list
}
