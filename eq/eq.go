// Package eq implements event queues as fi_eq(3) describes them: bounded rings of control
// events and errors.
//
// An EQ is safe for concurrent use and starts no goroutine. An event that finds no place
// is lost, and the queue has then overrun for ever (R-EQ-62, -66): applications must read
// their queues.
//
// Numbers like R-EQ-62 name rules of libfabric; docs/conformance.md lists the test of
// each.
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
	Data    uint64 // depends on the event
	Info    any    // of fi.ConnReq: describes the endpoint to open
	Bytes   []byte // of connection events: the peer's private data
}

// An Error is one failed operation or asynchronous error (struct
// fi_eq_err_entry).
type Error struct {
	Fid     any // the resource (R-EQ-47, -55)
	Context any
	Data    uint64
	Err     fi.Errno
	Prov    uint32 // the wire or system code behind it; StrError explains it
	ErrData []byte // for debugging; belongs to the reader
	// Lost is, with fi.EOVERRUN, the number of events lost because the queue was full.
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
	// Size is the number of events that the queue has room for; 0 means DefaultSize.
	// Places promised to bound objects come on top (R-EQ-68).
	Size int
	// Flags may contain fi.Write, which permits EQ.Write, and fi.Affinity, a hint that
	// is ignored.
	Flags fi.Flags
	// WaitObj and WaitSet are as in cq.Attr. The default, fi.WaitNone, makes SRead fail.
	WaitObj         fi.WaitObj
	WaitSet         *poll.WaitSet
	SignalingVector int // with fi.Affinity; ignored
	// ResourceMgmt says what EQ.Write does when the queue is full. With fi.RMEnabled, the
	// default, it fails; with fi.RMDisabled it also overruns the queue (R-EQ-67).
	ResourceMgmt fi.ResourceMgmt
	// StrError explains provider error codes; nil gives a generic text.
	StrError func(prov uint32) string
}

// Limits of an EQ.
const (
	DefaultSize = 256
	MaxSize     = 1 << 20
	// MaxKept is the number of unread events of objects that are no longer bound at
	// which the queue counts as full. It also limits the unread events of one address
	// vector: with more, insertions fail with fi.EAGAIN.
	MaxKept = 1 << 16
)

// An item is one entry of the queue: an event or an error.
type item struct {
	e   Entry
	err *Error // nil for an event
	// of is the object whose place it takes; nil for one of the Attr.Size common places.
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
	bound   int // number of bindings
}

// A binding is an object that is bound to an EQ and reports to it.
type binding struct {
	q *EQ

	// The queue's lock guards what follows.

	places int // promised to it
	used   int // of places, by unread events
	gone   bool
}

// New opens an EQ (fi_eq_open). Programs call uet.Fabric.OpenEQ instead: endpoints bind
// only to queues of their fabric. New fails with fi.EINVAL for an invalid attribute
// (R-EQ-04, -11, -15), with fi.EMFILE when the system has no descriptor left.
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

// Close frees the EQ and discards unread events (R-EQ-17). It fails with fi.EBUSY while
// objects are bound (R-EQ-18), with fi.EBADF the second time. Blocking reads end with
// fi.ECANCELED; later calls fail with fi.EBADF.
func (q *EQ) Close() error {
	q.w.Mu.Lock()
	if q.bound+q.w.Bound() > 0 {
		q.w.Mu.Unlock()
		return fmt.Errorf("eq: close: endpoints or vectors are bound: close them first: %w", fi.EBUSY)
	}
	open := q.w.Close()
	q.ring, q.n = nil, 0
	q.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("eq: close: the queue is closed already, or was never opened: %w", fi.EBADF)
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

// StrError explains a provider error code. The text is never empty (R-EQ-61).
func (q *EQ) StrError(prov uint32) string {
	if q.attr.StrError != nil {
		if s := q.attr.StrError(prov); s != "" {
			return s
		}
	}
	return fmt.Sprintf("provider error 0x%x", prov)
}

// FD returns the descriptor of an EQ opened with fi.WaitFD, for select, poll and epoll
// (R-EQ-12, -19). It becomes readable when there is something to read, and stays so until
// a TryWait finds the queue empty. Call TryWait before each wait. FD fails with fi.EINVAL
// for an EQ opened otherwise.
func (q *EQ) FD() (int, error) {
	fd, err := q.w.FD()
	if err != nil {
		err = fmt.Errorf("eq: getwait: %w", err)
	}
	return fd, err
}

// Chan returns the channel of an EQ opened with fi.WaitMutexCond (R-EQ-13, -19). A receive
// from it succeeds when there is something to read. It is used as that of cq.CQ. Chan
// fails with fi.EINVAL for an EQ opened otherwise.
func (q *EQ) Chan() (<-chan struct{}, error) {
	c, err := q.w.Chan()
	if err != nil {
		err = fmt.Errorf("eq: getwait: %w", err)
	}
	return c, err
}

// TryWait prepares the caller to wait on FD or Chan (fi_trywait). If it returns nil, the
// caller may wait. fi.EAGAIN means that there is something to read or Signal was called:
// read first. fi.EINVAL means that the EQ has neither FD nor Chan.
func (q *EQ) TryWait() error { return q.w.TryWait() }
