package driver

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

// A Mover moves trains of datagrams: a udp.Conn does, or a simulated network. It is apart
// from Conn so that no wrapper comes between the driver and the system calls.
type Mover interface {
	// Recv fills all of d with a received train and reports whether there was one.
	// It never blocks. An error means that the Conn is closed or dead for good.
	Recv(d *dgram.Datagram) (bool, error)
	// Send sends one train and borrows it. It never blocks. dgram.ErrNoRoom means
	// that there is no room now; another error is the Conn's trouble, not the
	// train's.
	Send(d *dgram.Datagram) error
	// SendBatch sends trains in order and borrows them. It never blocks. It
	// reports how many were dealt with (sent, or lost as a network may lose
	// them); fewer than len(ds) without an error, or with dgram.ErrNoRoom, means
	// that there is no room now. Another error concerns ds[n] and is the Conn's
	// trouble, not that train's.
	SendBatch(ds []*dgram.Datagram) (n int, err error)
}

// A Conn is what sockets do besides moving trains: wait, tell errors, close.
type Conn interface {
	// Wait blocks until there may be something to receive, the timeout passed
	// (negative: none), or Wake was called since the last Wait returned.
	Wait(timeout time.Duration) error
	// Wake ends a Wait of now, or the next one. Any goroutine may call it.
	Wake()
	// Unreachable takes the next piece of evidence that a remote address does
	// not answer (ICMP), or reports that there is none.
	Unreachable() (remote netip.AddrPort, ok bool)
	// Close releases the sockets. It is called once, when no other call runs.
	Close() error
}

// A Core is what the driver drives: a *transport.FEP, or a fake in tests.
type Core interface {
	Post(now time.Duration, op *transport.Op) error
	Cancel(now time.Duration, id transport.EndpointID, context any) bool
	Receive(now time.Duration, d *dgram.Datagram)
	// Paused says whether what Receive gets from now on may have waited here.
	Paused(on bool)
	Advance(now time.Duration)
	Transmit(now time.Duration, d *dgram.Datagram) bool
	// Pending reports whether Transmit may have something; if not it has nothing
	// until one of the other methods was called.
	Pending() bool
	Flush(now time.Duration)
	// AckAll is Flush before Close: also what came and asked for no ACK is told of.
	AckAll(now time.Duration)
	// Owes reports whether Flush would have ACKs leave.
	Owes() bool
	Events() int
	NextTimeout() time.Duration
	Sends() int
	// Answer reports whether the send posted last answers what the peer sent.
	Answer() bool
	Queued() int
	Apart(on bool)
	Unreachable(now time.Duration, remote netip.AddrPort)
	Close(now time.Duration)
	Diagnose(now time.Duration) []transport.Waiting
	DiagnoseRefused(now time.Duration, op *transport.Op) transport.Waiting
}

// An Owner is the endpoint above the driver. All its methods are called by the
// holder of the lock, except Known; they must not call the Driver.
type Owner interface {
	// Known reports whether Resolve can succeed for to, and with which error
	// it would fail. It runs on the goroutine of a post that found the lock
	// taken.
	Known(to uint64) error
	// Resolve sets the fields of op that name the peer.
	Resolve(op *transport.Op, to uint64) error
	// Deliver takes n events from the Core, which has them (transport.FEP.NextEvent):
	// each is the end of one operation.
	Deliver(n int)
	// Refused reports that an operation that Post had accepted ended before
	// it reached the FEP: err is what Resolve or the FEP said, or
	// transport.ErrClosed. op is borrowed.
	Refused(op *transport.Op, err error)
	// Trouble reports an error of the socket that is not the peer's.
	Trouble(err error)
}

// NoAddr is the destination of a request that names no peer.
const NoAddr = ^uint64(0)

var _ Core = (*transport.FEP)(nil)
