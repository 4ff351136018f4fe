// Package eq is event queues as fi_eq(3) describes them: bounded, passive rings
// of control events and errors.
//
// An EQ is safe for concurrent use and starts no goroutine. Whoever produces
// events puts them in by Put and PutErr: one that finds no place overruns the
// queue, which is final (R-EQ-62, -66), so a queue must be read.
//
// Rule numbers (R-EQ-…) are those of the tests that hold the package to them.
package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
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
	// Size is how many events the queue holds; 0 takes DefaultSize. What bound
	// objects have places for comes on top (R-EQ-68).
	Size int
	// Flags: fi.Write lets the application Write; fi.Affinity is a hint that is
	// ignored.
	Flags fi.Flags
	// WaitObj and WaitSet are as in cq.Attr. Default none: SRead is refused.
	WaitObj         fi.WaitObj
	WaitSet         *poll.WaitSet
	SignalingVector int // with fi.Affinity
	// ResourceMgmt says what a Write does that does not fit: fi.RMEnabled, the
	// default, refuses it, fi.RMDisabled overruns the queue (R-EQ-67).
	ResourceMgmt fi.ResourceMgmt
	// StrError explains provider error codes; nil: a generic text.
	StrError func(prov uint32) string
}

// Limits of an EQ.
const (
	DefaultSize = 256
	MaxSize     = 1 << 20
	// MaxKept is how many unread events of objects that are not bound any more a
	// queue holds, on top as well. From then on it is full for everybody. So many of
	// one object that asks for Room stop it.
	MaxKept = 1 << 16
)

// Progress is an endpoint that reading an EQ drives: that of cq, where its
// methods are described.
type Progress interface {
	Poll() (worked bool)
	Yield()
	Shared() bool
	Arm()
	Disarm()
}

// item is one place of the queue.
type item struct {
	e   Entry
	err *Error // not nil: an error in its place among the events
	// of is whose place it has; nil: one of Size.
	of *Binding
}

// An EQ is an event queue.
type EQ struct {
	attr Attr
	ctx  any

	w       wait.Object // its Mu guards what follows
	ring    []item
	head, n int
	errs    int  // errors among the items
	common  int  // items in the places of Size
	kept    int  // items in places of what is not bound any more
	overrun bool // final (R-EQ-66)
	lost    uint64
	bound   int // each Binding
}

// A Binding is an object that is bound to an EQ and reports there.
type Binding struct {
	q *EQ

	// Guarded by the queue's lock.

	places int // of its own
	used   int // by events that are not read yet
	gone   bool
}

// New opens an EQ (fi_eq_open). fi.EINVAL: size, flags or wait object (R-EQ-04,
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
		w.Set = attr.WaitSet
	}
	if err := q.w.Init(w); err != nil {
		return nil, fmt.Errorf("eq: open: %w", err)
	}
	if attr.WaitObj == fi.WaitSet {
		if err := attr.WaitSet.Join(&q.w); err != nil {
			return nil, fmt.Errorf("eq: open: %w", err)
		}
	}
	return q, nil
}

// Attr returns the attributes in force.
func (q *EQ) Attr() Attr { return q.attr }

// Context returns the context given to New (R-EQ-22).
func (q *EQ) Context() any { return q.ctx }

// Bind binds an object that has so many places for events of its own, which no
// other event takes (R-EQ-68). Close is refused until Unbind. fi.EBADF: the queue
// is closed.
func (q *EQ) Bind(places int) (*Binding, error) {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() {
		return nil, fmt.Errorf("eq: bind: %w", fi.EBADF)
	}
	q.bound++
	return &Binding{q: q, places: places}, nil
}

// Unbind undoes Bind, once. Events that nobody has read stay, and keep the places
// they have.
func (b *Binding) Unbind() {
	b.q.w.Mu.Lock()
	defer b.q.w.Mu.Unlock()
	if b.gone {
		return
	}
	b.gone, b.places = true, 0
	b.q.kept += b.used
	b.q.bound--
}

// BindProgress makes readers of the queue drive p. Close is refused until
// UnbindProgress. fi.EBADF: the queue is closed.
func (q *EQ) BindProgress(p Progress) error {
	if err := q.w.Bind(p); err != nil {
		return fmt.Errorf("eq: bind: %w", err)
	}
	return nil
}

// UnbindProgress undoes one BindProgress of p.
func (q *EQ) UnbindProgress(p Progress) { q.w.Unbind(p) }

// Close frees the EQ; events that were not read are lost (R-EQ-17). fi.EBUSY
// while objects are bound (R-EQ-18), fi.EBADF the second time. Blocking reads end
// with fi.ECANCELED, all other calls fail with fi.EBADF.
func (q *EQ) Close() error {
	q.w.Mu.Lock()
	if q.bound+q.w.Bound() > 0 {
		q.w.Mu.Unlock()
		return fmt.Errorf("eq: close: objects are bound: %w", fi.EBUSY)
	}
	if q.attr.WaitObj == fi.WaitSet && !q.w.Closed() {
		q.attr.WaitSet.Leave(&q.w) // first: it has nothing for who waits for the set
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

// TryWait says that the application is about to wait on FD or Chan (fi_trywait).
// It may if it gets nil. fi.EAGAIN: there is something to read, or Signal was
// called. fi.EINVAL: there is nothing to wait on.
func (q *EQ) TryWait() error { return q.w.TryWait() }
