package driver

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

// A Mover moves trains of datagrams. It is a udp.Conn or a simulated network. It is
// separate from Conn so that no wrapper stands between the driver and the system calls.
type Mover interface {
	// Recv fills all of d with a received train and reports whether there was one. It never
	// blocks. An error means that the Conn is closed or dead for good.
	Recv(d *dgram.Datagram) (bool, error)
	// Send sends one train and borrows it. It never blocks. dgram.ErrNoRoom means that there
	// is no room now. Any other error is about the Conn, not about the train.
	Send(d *dgram.Datagram) error
	// SendBatch sends trains in order and borrows them. It never blocks. n is how many were
	// dealt with: sent, or lost as a network may lose them. If n is less than len(ds) and err
	// is nil or dgram.ErrNoRoom, there is no room now. Any other error was met at ds[n] and is
	// about the Conn, not about that train.
	SendBatch(ds []*dgram.Datagram) (n int, err error)
}

// A Conn does what sockets do besides moving trains: wait, report errors, close.
type Conn interface {
	// Wait blocks until there may be something to receive, until the timeout passes (negative
	// means none), or until Wake was called since the last Wait returned.
	Wait(timeout time.Duration) error
	// Forgo says that no Wait may follow for long.
	Forgo()
	// Naps reports whether Nap works, and is asked first. Nap is Wait on the thread of the caller, which sleeps in the
	// kernel. Calls of Wait and Nap wait for each other. Rouse ends the current Nap, or the next
	// one; Wake does not. Any goroutine may call it.
	Naps() bool
	Nap(timeout time.Duration) error
	Rouse()
	// Stamps asks the Mover to tell how long each train waited in the socket, or no longer. It
	// reports whether it can.
	Stamps(on bool) bool
	// Wake ends the current Wait, or the next one. Any goroutine may call it.
	Wake()
	// Unreachable returns the next remote address that, by ICMP, does not answer. It returns
	// false if there is none.
	Unreachable() (remote netip.AddrPort, ok bool)
	// Close releases the sockets. It is called once, while no other call runs.
	Close() error
}

// A Core is what the driver runs: a *transport.FEP, or a fake in tests.
type Core interface {
	Post(now time.Duration, op *transport.Op) error
	Cancel(now time.Duration, id transport.EndpointID, context any) bool
	// Abandon ends all operations to and from a peer, and the PDCs to and from it.
	Abandon(now time.Duration, id transport.PeerID)
	Receive(now time.Duration, d *dgram.Datagram)
	// Paused says whether trains that Receive gets from now on may have waited in the socket.
	Paused(on bool)
	// Waited says how long the trains that Receive gets from now on waited in the socket.
	Waited(d time.Duration)
	// Taken says whether another thread takes the processor for whole slices.
	Taken(on bool)
	Advance(now time.Duration)
	Transmit(now time.Duration, d *dgram.Datagram) bool
	// Pending reports whether Transmit may have something to send. If not, it has nothing
	// until another method is called.
	Pending() bool
	Flush(now time.Duration)
	// AckAll is Flush before Close: it also acknowledges packets that asked for no ACK.
	AckAll(now time.Duration)
	// Owes reports whether Flush would send ACKs.
	Owes() bool
	Events() int
	NextTimeout() time.Duration
	Sends() int
	// Answer reports whether the latest posted send answers a message of the peer.
	Answer() bool
	Queued() int
	Apart(on bool)
	Unreachable(now time.Duration, remote netip.AddrPort)
	// TooLong says that the interface does not take datagrams of n bytes to remote.
	TooLong(now time.Duration, remote netip.AddrPort, n int)
	// Leave is the first half of Close: receives end, sends go on.
	Leave(now time.Duration)
	// Lingers reports whether there is something to wait for between Leave and Close.
	Lingers(now, patience time.Duration) bool
	// Flushed reports whether every message that was posted is delivered or has failed.
	Flushed() bool
	Close(now time.Duration)
	DiagnoseEndpoint(now time.Duration, id transport.EndpointID) []transport.Waiting
	DiagnoseRefused(now time.Duration, op *transport.Op) transport.Waiting
}

// An Owner is the endpoint above the driver. The holder of the lock calls its methods,
// except Known. They must not call the Driver.
type Owner interface {
	// Known returns the error with which Resolve would fail for an operation of n bytes, nil if
	// it can succeed. It runs on the goroutine of a post that found the lock taken. It takes no
	// Op, which would then be allocated by every post.
	Known(to uint64, kind transport.OpKind, n int) error
	// Resolve sets the fields of op that name the peer.
	Resolve(op *transport.Op, to uint64) error
	// Deliver reads n events of the Core (transport.FEP.NextEvent). Each is the end of one
	// operation.
	Deliver(n int)
	// Refused reports that an operation that Post had accepted ended before it reached the
	// FEP. err is the error of Resolve or of the FEP, or transport.ErrClosed, or ErrCancelled.
	// It borrows op, whose Buf may be gone.
	Refused(op *transport.Op, err error)
	// Trouble reports an error of the socket that is not the fault of a peer.
	Trouble(err error)
}

// NoAddr is the destination of an operation that names no peer.
const NoAddr = ^uint64(0)

var _ Core = (*transport.FEP)(nil)
