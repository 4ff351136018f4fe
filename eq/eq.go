// Package eq is event queues as fi_eq(3) describes them: bounded, passive rings
// of control events and errors.
//
// An EQ is safe for concurrent use and starts no goroutine. Producers insert events by
// Put and PutErr. An event that finds no place overruns the queue, which is final
// (R-EQ-62, -66): a queue must be read.
//
// Rule numbers (R-EQ-…) are those of the tests that hold the package to them.
package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
	"github.com/uetkit/uetkit/poll"
)

// An Entry is one event (struct fi_eq_entry, struct fi_eq_cm_entry).
type Entry struct {
	Event   fi.EQEvent
	Fid     any    // the object the event is about
	Context any    // of the call that caused it (R-EQ-44)
	Data    uint64 // as the object's manual says
	Info    any    // CONNREQ: describes the endpoint to open
	Bytes   []byte // connection management: private data
}

// An Error is one failed operation or asynchronous error (struct
// fi_eq_err_entry).
type Error struct {
	Fid     any // the resource (R-EQ-47, -55)
	Context any
	Data    uint64
	Err     fi.Errno
	Prov    uint32 // the wire or system code behind it; StrError explains it
	ErrData []byte // for debugging; the reader's
	// Lost is how many events were dropped because the queue was full, in the
	// error that says so.
	Lost uint64
}

func (e *Error) Error() string {
	if e.Prov != 0 {
		return fmt.Sprintf("eq: %v (prov 0x%x)", e.Err, e.Prov)
	}
	return fmt.Sprintf("eq: %v", e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Attr describes an EQ to open (struct fi_eq_attr).
type Attr struct {
	// Size is how many events the queue holds; 0 takes DefaultSize. The places of
	// bound objects come on top (R-EQ-68).
	Size int
	// Flags: fi.Write lets the application Write; fi.Affinity is a hint that is
	// ignored.
	Flags fi.Flags
	// WaitObj and WaitSet are as in cq.Attr. Default none: SRead is refused.
	WaitObj         fi.WaitObj
	WaitSet         *poll.WaitSet
	SignalingVector int // with fi.Affinity
	// ResourceMgmt says what a Write does to a full queue: with fi.RMEnabled, the
	// default, it fails; with fi.RMDisabled it overruns the queue (R-EQ-67).
	ResourceMgmt fi.ResourceMgmt
	// StrError explains provider error codes; nil: a generic text.
	StrError func(prov uint32) string
}

// Limits of an EQ.
const (
	DefaultSize = 256
	MaxSize     = 1 << 20
	// MaxKept is how many unread events of objects that are no longer bound a queue
	// holds, also on top. Then it is full for all. Room fails for an object with as
	// many unread events.
	MaxKept = 1 << 16
)

// item is one place of the queue.
type item struct {
	e   Entry
	err *Error // not nil: an error in its place among the events
	// of is whose place it has; nil: one of Size.
	of *binding
}

// An EQ is an event queue.
type EQ struct {
	attr Attr
	ctx  any

	w       wait.Object // its Mu guards what follows
	ring    []item
	head, n int
	errs    int  // how many items are errors
	common  int  // items in common places
	kept    int  // items in places of objects that are no longer bound
	overrun bool // final (R-EQ-66)
	lost    uint64
	bound   int // each binding
}

// A binding is an object that is bound to an EQ and reports there.
type binding struct {
	q *EQ

	// The queue's lock guards what follows.

	places int // of its own
	used   int // by events that are not read yet
	gone   bool
}

// New opens an EQ (fi_eq_open). Programs call uet.Fabric.OpenEQ, because endpoints take only
// queues of their fabric. fi.EINVAL: size, flags or wait object (R-EQ-04,
// -11, -15). fi.EMFILE: the system has no descriptor left.
func New(attr Attr, ctx any) (*EQ, error) {
	switch {
	case attr.Size < 0 || attr.Size > MaxSize:
		return nil, fmt.Errorf("eq: open: size: %w", fi.EINVAL)
	case attr.Flags&^(fi.Write|fi.Affinity) != 0:
		return nil, fmt.Errorf("eq: open: flags %v: %w", attr.Flags, fi.EINVAL)
	case attr.ResourceMgmt > fi.RMEnabled:
		return nil, fmt.Errorf("eq: open: resource management %v: %w", attr.ResourceMgmt, fi.EINVAL)
	}
	if attr.Size == 0 {
		attr.Size = DefaultSize
	}
	if attr.ResourceMgmt == fi.RMUnspec {
		attr.ResourceMgmt = fi.RMEnabled
	}
	q := &EQ{attr: attr, ctx: ctx}
	w := wait.Attr{Kind: attr.WaitObj}
	if attr.WaitSet != nil {
		w.Set = door.WaitSet(attr.WaitSet)
	}
	if err := q.w.Init(w); err != nil {
		return nil, fmt.Errorf("eq: open: %w", err)
	}
	return q, nil
}

// Attr returns the attributes in force.
func (q *EQ) Attr() Attr { return q.attr }

// Context returns the context given to New (R-EQ-22).
func (q *EQ) Context() any { return q.ctx }

// Close frees the EQ; events that were not read are lost (R-EQ-17). fi.EBUSY
// while objects are bound (R-EQ-18), fi.EBADF the second time. Blocking reads end
// with fi.ECANCELED, all other calls fail with fi.EBADF.
func (q *EQ) Close() error {
	q.w.Mu.Lock()
	if q.bound+q.w.Bound() > 0 {
		q.w.Mu.Unlock()
		return fmt.Errorf("eq: close: objects are bound: %w", fi.EBUSY)
	}
	open := q.w.Close()
	q.ring, q.n = nil, 0
	q.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("eq: close: %w", fi.EBADF)
	}
	q.w.Release()
	return nil
}

// Closed reports whether Close succeeded.
func (q *EQ) Closed() bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.w.Closed()
}

// StrError explains a provider error code, never with an empty text (R-EQ-61).
func (q *EQ) StrError(prov uint32) string {
	if q.attr.StrError != nil {
		if s := q.attr.StrError(prov); s != "" {
			return s
		}
	}
	return fmt.Sprintf("provider error 0x%x", prov)
}

// FD is the descriptor of an EQ opened with fi.WaitFD, for select, poll and epoll
// (R-EQ-12, -19). It is readable from the moment there is something to read
// until a TryWait finds nothing. Call TryWait before each wait. fi.EINVAL: the EQ has none.
func (q *EQ) FD() (int, error) {
	fd, err := q.w.FD()
	if err != nil {
		err = fmt.Errorf("eq: getwait: %w", err)
	}
	return fd, err
}

// Chan is the wait object of an EQ opened with fi.WaitMutexCond (R-EQ-13, -19): a
// channel that can be received from while there is something to read. Call
// TryWait before each wait. fi.EINVAL: the EQ has none.
func (q *EQ) Chan() (<-chan struct{}, error) {
	c, err := q.w.Chan()
	if err != nil {
		err = fmt.Errorf("eq: getwait: %w", err)
	}
	return c, err
}

// TryWait prepares to wait on FD or Chan by other means than SRead (fi_trywait). After
// nil the caller may wait. fi.EAGAIN: there is something to read, or Signal was called;
// read first. fi.EINVAL: the EQ has nothing to wait on.
func (q *EQ) TryWait() error { return q.w.TryWait() }
