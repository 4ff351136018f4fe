package simtest

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// An Endpoint is a FEP as its host sees it: everything that the driver, the checkers and the
// tests call. A *transport.FEP is one. Tests of the checkers use one in between that lies.
type Endpoint interface {
	Config() transport.Config
	Peer(addr netip.AddrPort, known bool) (transport.PeerID, error)
	PeerAddr(transport.PeerID) netip.AddrPort
	PeerPaths(transport.PeerID, wire.PathPorts)

	Post(now time.Duration, op *transport.Op) error
	Cancel(now time.Duration, id transport.EndpointID, context any) bool
	NextEvent() *transport.Event

	Receive(now time.Duration, d *dgram.Datagram)
	Transmit(now time.Duration, d *dgram.Datagram) bool
	Pending() bool
	Flush(now time.Duration)
	Paused(on bool)
	Advance(now time.Duration)
	NextTimeout() time.Duration
	Unreachable(now time.Duration, remote netip.AddrPort)
	Committed(id uint64, rc wire.RC)
	Deregister(r *transport.Region)
	Quiesce(now time.Duration, id transport.PeerID)
	Abandon(now time.Duration, id transport.PeerID)
	PayloadMTU(id transport.PeerID) (payload, full int)
	Leave(now time.Duration)
	Lingers(now, patience time.Duration) bool
	Close(now time.Duration)
	LeaveEndpoint(now time.Duration, id transport.EndpointID)
	CloseEndpoint(now time.Duration, id transport.EndpointID)
	ReleaseEndpoint(id transport.EndpointID)

	Busy() bool
	Idle() bool
	Queued() int
	Unexpected() int
	PDCs() int
	Load() transport.Load
	Stats() transport.Stats
	Diagnose(now time.Duration) []transport.Waiting
	DiagnoseRefused(now time.Duration, op *transport.Op) transport.Waiting
	Dump() string
}
