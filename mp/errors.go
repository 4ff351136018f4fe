package mp

import (
	"errors"
	"fmt"
)

// Errors of calls on what has ended.
var (
	// ErrClosed is the error of calls after World.Close.
	ErrClosed = errors.New("mp: the world is closed")
	// ErrFreed is the error of calls on a communicator after Free.
	ErrFreed = errors.New("mp: the communicator is freed")
	// ErrEnded is the error of calls on a request or a matched message whose result was taken.
	ErrEnded = errors.New("mp: the request has ended")
	// ErrCancelled is the error of a receive that was cancelled.
	ErrCancelled = errors.New("mp: the receive was cancelled")
	// ErrBusy is the error of a collective while another goroutine is in one on the same
	// communicator.
	ErrBusy = errors.New("mp: another collective is under way on the communicator")
)

// An ErrPeerFailed says that a rank is gone: its process or its host ended, or cannot be
// reached.
type ErrPeerFailed struct {
	Rank int    // in the world
	Host string // empty if its card was never read
	Why  string
	Err  error // what the transport reported; nil if another rank told
}

func (e *ErrPeerFailed) Error() string {
	host := ""
	if e.Host != "" {
		host = " on " + e.Host
	}
	return fmt.Sprintf("mp: rank %d%s failed: %s", e.Rank, host, e.Why)
}

// Unwrap returns what the transport reported.
func (e *ErrPeerFailed) Unwrap() error { return e.Err }

// An ErrTruncated says that a message was longer than the buffer of its receive. The buffer
// has the beginning.
type ErrTruncated struct {
	Len, Room int // bytes of the message and of the buffer
}

func (e *ErrTruncated) Error() string {
	return fmt.Sprintf("mp: a message of %d bytes met a receive of %d", e.Len, e.Room)
}

// An ErrArg is an argument that cannot be.
type ErrArg struct {
	Call, What string
	Value      any
	Why        string
}

func (e *ErrArg) Error() string {
	return fmt.Sprintf("mp: %s: %s %v: %s", e.Call, e.What, e.Value, e.Why)
}

// An ErrTransport is an error of the provider that says nothing about a peer.
type ErrTransport struct {
	Call string
	Err  error
}

func (e *ErrTransport) Error() string { return "mp: " + e.Call + ": " + e.Err.Error() }

// Unwrap returns the error of the provider.
func (e *ErrTransport) Unwrap() error { return e.Err }
