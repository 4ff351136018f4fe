package driver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

// nop is a FEP, a socket and an endpoint that cost nothing, so that the benchmarks measure
// the driver alone. Budget: 100 ns a post, 100 ns a train.
type nop struct {
	have   bool // a train has arrived
	queued bool // a packet is waiting
	event  bool
}

func (n *nop) Post(time.Duration, *transport.Op) error              { n.queued = true; return nil }
func (n *nop) Abandon(time.Duration, transport.PeerID)              {}
func (n *nop) Cancel(time.Duration, transport.EndpointID, any) bool { return false }
func (n *nop) Receive(time.Duration, *dgram.Datagram)               { n.event = true }
func (n *nop) Paused(bool)                                          {}
func (n *nop) Waited(time.Duration)                                 {}
func (n *nop) Taken(bool)                                           {}
func (n *nop) Advance(time.Duration)                                {}
func (n *nop) Pending() bool                                        { return n.queued }
func (n *nop) Transmit(time.Duration, *dgram.Datagram) bool {
	q := n.queued
	n.queued = false
	return q
}
func (n *nop) Flush(time.Duration)  {}
func (n *nop) AckAll(time.Duration) {}
func (n *nop) Owes() bool           { return false }
func (n *nop) Events() int {
	if n.event {
		return 1
	}
	return 0
}

func (n *nop) NextTimeout() time.Duration                                               { return 0 }
func (n *nop) Sends() int                                                               { return 0 }
func (n *nop) Answer() bool                                                             { return false }
func (n *nop) Apart(bool)                                                               {}
func (n *nop) Queued() int                                                              { return 1 }
func (n *nop) TooLong(time.Duration, netip.AddrPort, int)                               {}
func (n *nop) Leave(time.Duration)                                                      {}
func (n *nop) Lingers(time.Duration, time.Duration) bool                                { return false }
func (n *nop) Flushed() bool                                                            { return true }
func (n *nop) Unreachable(time.Duration, netip.AddrPort)                                {}
func (n *nop) Close(time.Duration)                                                      {}
func (n *nop) DiagnoseEndpoint(time.Duration, transport.EndpointID) []transport.Waiting { return nil }
func (n *nop) DiagnoseRefused(time.Duration, *transport.Op) (w transport.Waiting)       { return w }

type nopConn struct{ *nop }

func (c nopConn) Recv(*dgram.Datagram) (bool, error)         { return c.have, nil }
func (c nopConn) Send(*dgram.Datagram) error                 { return nil }
func (c nopConn) SendBatch(d []*dgram.Datagram) (int, error) { return len(d), nil }
func (c nopConn) Wait(time.Duration) error                   { return nil }
func (c nopConn) Wake()                                      {}
func (c nopConn) Forgo()                                     {}
func (c nopConn) Rouse()                                     {}
func (c nopConn) Naps() bool                                 { return false }
func (c nopConn) Stamps(bool) bool                           { return false }
func (c nopConn) Nap(time.Duration) error                    { return nil }
func (c nopConn) Unreachable() (a netip.AddrPort, ok bool)   { return a, false }
func (c nopConn) Close() error                               { return nil }
func (c nopConn) Known(uint64, transport.OpKind, int) error  { return nil }
func (c nopConn) Resolve(*transport.Op, uint64) error        { return nil }
func (c nopConn) Deliver(int)                                { c.event = false }
func (c nopConn) Refused(*transport.Op, error)               {}
func (c nopConn) Trouble(error)                              {}

func nopDriver(b *testing.B) (*Driver, *nop) {
	n := &nop{}
	d := New(Config{Core: n, Mover: nopConn{n}, Conn: nopConn{n}, Owner: nopConn{n}})
	b.Cleanup(func() { _ = d.Close() })
	b.ReportAllocs()
	return d, n
}

func BenchmarkPost(b *testing.B) {
	d, _ := nopDriver(b)
	op := transport.Op{Kind: transport.OpTSend, Buf: make([]byte, 8)}
	for b.Loop() {
		_ = d.Post(&op, 1, false)
	}
}

func BenchmarkPostRecv(b *testing.B) {
	d, _ := nopDriver(b)
	op := transport.Op{Kind: transport.OpTRecv, Buf: make([]byte, 8)}
	for b.Loop() {
		_ = d.Post(&op, NoAddr, false)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	d, _ := nopDriver(b)
	for b.Loop() {
		d.Poll()
	}
}

func BenchmarkPollTrain(b *testing.B) {
	d, n := nopDriver(b)
	n.have = true
	for b.Loop() {
		d.Poll()
	}
}

func BenchmarkYield(b *testing.B) {
	d, _ := nopDriver(b)
	for b.Loop() {
		d.Yield()
	}
}
