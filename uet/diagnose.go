package uet

import (
	"github.com/uetkit/uetkit/transport"
)

// A Waiting is an operation that has not ended, and why: its Cause is for programs,
// its String and Why for people.
type Waiting = transport.Waiting

// A WaitFor is what an operation waits for.
type WaitFor = transport.WaitFor

// The causes; package transport says what each means.
const (
	WaitNothing    = transport.WaitNothing
	WaitAck        = transport.WaitAck
	WaitOpen       = transport.WaitOpen
	WaitClose      = transport.WaitClose
	WaitPDC        = transport.WaitPDC
	WaitRoom       = transport.WaitRoom
	WaitNotReady   = transport.WaitNotReady
	WaitShort      = transport.WaitShort
	WaitCongestion = transport.WaitCongestion
	WaitPeerWindow = transport.WaitPeerWindow
	WaitOwnWindow  = transport.WaitOwnWindow
	WaitKey        = transport.WaitKey
	WaitBehind     = transport.WaitBehind
	WaitFence      = transport.WaitFence
	WaitOrder      = transport.WaitOrder
	WaitAnswer     = transport.WaitAnswer
	WaitMessage    = transport.WaitMessage
	WaitMatch      = transport.WaitMatch
	WaitRest       = transport.WaitRest
	WaitEarlier    = transport.WaitEarlier
	WaitCQ         = transport.WaitCQ
	WaitConnection = transport.WaitConnection
)

// Diagnose says of each operation that has not ended what it waits for, the oldest
// first: "why does this take so long?" It takes the endpoint's lock, reads all
// operations and packets in flight, and changes nothing; it is for people and for
// programs in trouble, not for every turn. Nothing is outstanding, or the endpoint
// is not enabled or closed: nil.
//
// It delivers completions that are due as any call of the endpoint does.
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
