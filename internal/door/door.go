// Package door gives the provider (uet) the side of queues, counters, address vectors and
// wait sets that users do not see: the methods that promise places, write entries and count
// operations. A user who called those could make a queue panic, so the public types do not
// have them. Each package puts a function here when it is initialized, which converts its
// public type to the provider's view of it. Both views are the same memory, so the
// conversion allocates nothing.
//
// The interfaces are the contract of both sides. Those of cq and eq are generic because
// their entry types are defined in packages that import this one.
package door

import (
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// These functions are set by the packages. The argument is a public type and not nil. CQ
// returns a Completions and EQ an Events, with the entry types of their packages.
var (
	CQ      func(q any) any        // *cq.CQ
	EQ      func(q any) any        // *eq.EQ
	Counter func(c any) Counting   // *cntr.Counter
	AV      func(v any) References // *av.AV
	WaitSet func(s any) wait.Set   // *poll.WaitSet
)

// Network is set by uet. It gives the endpoints of a *uet.Config another network than the
// system's sockets: a udp.Network.
var Network func(cfg, network any)

// Progress is an endpoint that the readers of queues and counters drive.
type Progress = wait.Progress

// A Driven is an object whose readers drive endpoints.
type Driven interface {
	// Bind makes readers drive p, and counts a reference: Close fails until Unbind. It returns
	// fi.EBADF if the object is closed.
	Bind(p Progress) error
	// Unbind undoes one Bind of p.
	Unbind(p Progress)
	// Gather makes a group of what is bound, if that is many, as the first look does (docs/decisions/0058).
	Gather()
}

// Completions is a completion queue.
//
// Each operation has a place in the queue from its post on, so that its completion finds
// room (R-CQ-127, -128).
type Completions[Entry, Error any] interface {
	Driven

	// Reserve promises n places. It returns false if there is no room; the post must then fail
	// with fi.EAGAIN.
	Reserve(n int) bool
	// Places returns the counter of places, which each operation uses directly.
	Places() *Places
	// Admit promises a place to a completion that no operation has a place for, which is that
	// of a message for a multi-receive buffer. While there is nothing to read, it may promise
	// one place more than the size. Otherwise the places might all be promised to operations
	// that end after this one, and no reader could make room.
	Admit() bool

	// Complete writes one reserved completion in a single call. It returns false, having done
	// nothing, if a Batch is needed because errors are queued, or because the queue has
	// overrun, was closed, or must grow.
	Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool
	// Begin locks the queue for a Batch. The Batch is valid until its End.
	Begin() Batch[Entry, Error]
}

// Places counts the places of a completion queue. It is a struct and not an interface, so
// that an operation gets its place without a call.
type Places struct {
	// Used is the number of places that hold an entry or are promised to an operation
	// (R-CQ-128). The queue may not yet have noticed that entries were read.
	Used atomic.Int64
	Size int64
}

// Take promises one place by the fast path. If it returns false, Reserve may still succeed.
func (p *Places) Take() bool {
	used := p.Used.Load()
	return used < p.Size && p.Used.CompareAndSwap(used, used+1)
}

// Unreserve returns n promised places.
func (p *Places) Unreserve(n int) {
	if p.Used.Add(-int64(n)) < 0 {
		panic("BUG: cq: more places given back than reserved")
	}
}

// A Batch writes entries under one lock. reserved says whether the entry has a promised
// place. The methods fail if the queue overruns, has overrun or is closed; the entry is
// then lost (R-CQ-122).
type Batch[Entry, Error any] interface {
	// Add inserts a completion and returns its entry, zeroed, which the caller fills in before
	// End. It returns nil if the entry is lost.
	Add(src fi.Addr, reserved bool) *Entry
	// Complete is Add for a reserved completion with no other fields.
	Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool
	// PutErr inserts an error. It copies e and takes ownership of e.ErrData.
	PutErr(e *Error, reserved bool) bool
	// OfferErr is PutErr for an error without a place that may be dropped. It does not change
	// a queue that has no room.
	OfferErr(e *Error) bool
	// End wakes the readers that wait for what is there now, and unlocks the queue.
	End()
}

// Events is an event queue.
type Events[Entry, Error any] interface {
	// Bind binds an object that needs so many places for its own events, which no other event
	// may use (R-EQ-68). Close fails until the object's Unbind. Bind returns fi.EBADF if the
	// queue is closed.
	Bind(places int) (Reporter[Entry, Error], error)
}

// A Reporter is an object that is bound to an event queue.
type Reporter[Entry, Error any] interface {
	// Put inserts an event. It finds room while the object has a place of its own left. If
	// there is no room at all the event is lost, the queue overruns, and Put returns false
	// (R-EQ-62 to -66).
	Put(e Entry) bool
	// PutErr is Put for an error. It takes ownership of e.ErrData.
	PutErr(e Error) bool
	// Offer is Put for an event that may be refused. It uses no place of the object's own, and
	// does not change a queue that has no other. If it returns false the caller must undo what
	// the event would have reported.
	Offer(e Entry) bool
	// OfferErr is Offer for an error. It takes ownership of e.ErrData.
	OfferErr(e Error) bool
	// Room tells an object that has as many places as one of its calls may need whether it may
	// make that call. It returns fi.EAGAIN if too many of its events are unread, and
	// fi.EOVERRUN if the queue has overrun.
	Room() error
	// Unbind undoes Bind, once. Unread events stay and keep their places.
	Unbind()
}

// Counting is a counter of operations.
type Counting interface {
	Driven

	// Count counts n operations that succeeded, with bytes in total.
	Count(n, bytes uint64)
	// AddErr counts n operations that failed. It returns fi.EBADF if the counter is closed.
	AddErr(n uint64) error
}

// References is an address vector with its users.
type References interface {
	// Bind counts an endpoint that uses the vector: Close fails until Unbind. It returns
	// fi.EBADF if the vector is closed.
	Bind() error
	// Unbind undoes one Bind.
	Unbind()
}
