// Package door is how the provider (uet) gets at the side of queues, counters, address
// vectors and wait sets that users do not see: what promises places, writes entries
// and counts operations. A user who called that could make a queue panic, so the public
// types have no such methods. Each of their packages puts a function here when it is
// initialized, which turns its public type into the provider's side of it. That is the
// same memory under another type: nothing is allocated.
//
// The interfaces are the contract of both sides. Those of cq and eq are generic because
// their entries belong to packages that import this one.
package door

import (
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// The functions that the packages put here. The argument is the public type, and not
// nil; the result of CQ is a Completions, that of EQ an Events, of their entry types.
var (
	CQ      func(q any) any        // *cq.CQ
	EQ      func(q any) any        // *eq.EQ
	Counter func(c any) Counting   // *cntr.Counter
	AV      func(v any) References // *av.AV
	WaitSet func(s any) wait.Set   // *poll.WaitSet
)

// Progress is an endpoint as readers of queues and counters drive it.
type Progress = wait.Progress

// A Driven is an object whose readers drive endpoints.
type Driven interface {
	// Bind makes readers drive p and counts a reference: Close is refused until
	// Unbind. fi.EBADF: the object is closed.
	Bind(p Progress) error
	// Unbind undoes one Bind of p.
	Unbind(p Progress)
}

// Completions is a completion queue.
//
// Each operation has a place in the queue from the post on, so that its completion
// finds room (R-CQ-127, -128).
type Completions[Entry, Error any] interface {
	Driven

	// Reserve promises n places. false: there is no room, the post must fail with
	// fi.EAGAIN.
	Reserve(n int) bool
	// Places are the places of the queue, for what each operation needs of them.
	Places() *Places
	// Admit promises a place to a completion that no operation has one for: that of a
	// message for a buffer that takes many. While there is nothing to read it goes one
	// beyond the size: the places may all be promised to operations that end only after
	// this one, and nobody could make room.
	Admit() bool

	// Complete writes one completion that has a place, by a single call. It returns
	// false, having done nothing, if a Batch is needed: errors are queued, or the queue
	// has overrun, was closed, or must grow.
	Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool
	// Begin locks the queue for a Batch, which is valid until its End.
	Begin() Batch[Entry, Error]
}

// Places counts the places of a completion queue. It is a struct and no interface because
// each operation takes one: so that is done without a call.
type Places struct {
	// Used is the number of places that hold an entry or are promised to an operation
	// (R-CQ-128). The queue may not yet have noticed that entries were read.
	Used atomic.Int64
	Size int64
}

// Take promises one place by the shortest way. false: Reserve may still find one.
func (p *Places) Take() bool {
	used := p.Used.Load()
	return used < p.Size && p.Used.CompareAndSwap(used, used+1)
}

// Unreserve gives n promised places back.
func (p *Places) Unreserve(n int) {
	if p.Used.Add(-int64(n)) < 0 {
		panic("BUG: cq: more places given back than reserved")
	}
}

// A Batch writes entries under one lock. Its calls say whether the entry has a place
// that was promised. They fail if the queue overruns, has overrun or is closed: the entry
// is lost (R-CQ-122).
type Batch[Entry, Error any] interface {
	// Add inserts a completion and returns its entry, clear, for the caller to fill in
	// before End; nil if it is lost.
	Add(src fi.Addr, reserved bool) *Entry
	// Complete is Add of a completion that has a place and nothing more to tell.
	Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool
	// PutErr inserts an error. It copies e and takes its ErrData.
	PutErr(e *Error, reserved bool) bool
	// OfferErr is PutErr of an error without a place that may be dropped: a queue that
	// has no room stays as it is.
	OfferErr(e *Error) bool
	// End wakes who waits for what there is now, and unlocks the queue.
	End()
}

// Events is an event queue.
type Events[Entry, Error any] interface {
	// Bind binds an object that has so many places for events of its own, which no
	// other event takes (R-EQ-68). Close is refused until its Unbind. fi.EBADF: the
	// queue is closed.
	Bind(places int) (Reporter[Entry, Error], error)
}

// A Reporter is an object that is bound to an event queue.
type Reporter[Entry, Error any] interface {
	// Put inserts an event, which finds room while the object has a place of its own
	// left. When there is none at all the event is lost and the queue overruns (R-EQ-62
	// to -66): false.
	Put(e Entry) bool
	// PutErr is Put of an error. It takes ErrData.
	PutErr(e Error) bool
	// Offer is Put of an event that may be refused: it takes no place of the object's
	// own, and a queue that has no other is left as it is. false: the caller must undo
	// what the event would have told.
	Offer(e Entry) bool
	// OfferErr is Offer of an error. It takes ErrData.
	OfferErr(e Error) bool
	// Room is for an object with as many places as its calls may need, and asked before
	// one: fi.EAGAIN if too many of its events are unread, fi.EOVERRUN if the queue is in
	// overrun.
	Room() error
	// Unbind undoes Bind, once. Events that nobody has read stay, and keep the places
	// they have.
	Unbind()
}

// Counting is a counter.
type Counting interface {
	Driven

	// Count counts n operations that succeeded, with bytes in total.
	Count(n, bytes uint64)
	// AddErr counts n operations that failed. fi.EBADF: the counter is closed.
	AddErr(n uint64) error
}

// References is an address vector.
type References interface {
	// Bind counts an endpoint that uses the vector: Close is refused until Unbind.
	// fi.EBADF: it is closed.
	Bind() error
	// Unbind undoes one Bind.
	Unbind()
}
