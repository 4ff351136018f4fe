// Package cq implements completion queues as fi_cq(3) describes them: bounded rings of
// completion and error entries.
//
// A CQ is safe for concurrent use and starts no goroutine. A read that finds it empty
// drives the endpoints bound to it. Before a blocking read sleeps, it asks those
// endpoints to make progress by themselves.
//
// Numbers like R-CQ-46 name rules of libfabric; docs/conformance.md lists the test of
// each.
package cq

import (
	"fmt"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
	"github.com/uetkit/uetkit/poll"
)

// An Entry is one successful completion. It has the fields of all formats; those that
// the format of the CQ lacks are zero (R-CQ-12 to -16).
type Entry struct {
	Context any      // the operation's context
	Flags   fi.Flags // what completed (R-CQ-106 to -120)
	Len     int      // bytes received
	Buf     []byte   // multi-receive: the message, in the posted buffer
	Data    uint64   // remote CQ data, with fi.RemoteCQData
	Tag     uint64   // of a tagged receive, as sent
}

// An Error is one failed operation (struct fi_cq_err_entry).
type Error struct {
	Context any
	Flags   fi.Flags // the kind of operation (R-CQ-88)
	Len     int      // bytes written to the buffer
	Buf     []byte   // multi-receive: as in Entry
	Data    uint64
	Tag     uint64
	OverLen int      // bytes of the message that did not fit (R-CQ-89)
	Err     fi.Errno // what went wrong
	Prov    uint32   // the wire code behind it; StrError explains it
	// OutcomeUnknown reports that the operation may have taken effect at the target.
	// If it is false, the operation certainly did not.
	OutcomeUnknown bool
	Source         fi.Addr // as ReadFrom reports it
	// ErrData is, with fi.EADDRNOTAVAIL, the address of the source as a binary record,
	// ready for av.AV.InsertRecords (R-CQ-83). CQ.ReadErr says who owns the memory.
	ErrData []byte

	lent *byte // start of ErrData if ReadErr set it; nil if it is the caller's buffer
}

func (e *Error) Error() string {
	s := fmt.Sprintf("cq: %v: %v", e.Flags, e.Err)
	if e.Prov != 0 {
		s += fmt.Sprintf(" (prov 0x%x)", e.Prov)
	}
	if e.OutcomeUnknown {
		s += ", outcome unknown"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Attr describes a CQ to open (struct fi_cq_attr).
type Attr struct {
	// Size is the least number of entries that the queue must have room for; 0 means
	// DefaultSize. New fails if it is above MaxSize.
	Size int
	// Flags may contain fi.Affinity, a hint that is ignored.
	Flags  fi.Flags
	Format fi.CQFormat // fi.CQUnspec means fi.CQContext
	// WaitObj says how readers can wait. The default, fi.WaitNone, makes blocking reads
	// fail. fi.WaitFD adds the descriptor of CQ.FD, fi.WaitMutexCond the channel of
	// CQ.Chan. With fi.WaitSet, readers wait for WaitSet only.
	WaitObj fi.WaitObj
	WaitSet *poll.WaitSet
	// WaitCond, if fi.CondThreshold, makes the cond argument of blocking reads the
	// number of entries to wait for.
	WaitCond        fi.WaitCond
	SignalingVector int // with fi.Affinity; ignored
	// Spin is how long a blocking read keeps polling without result before it sleeps;
	// 0 means 50 µs, a negative value no polling.
	Spin time.Duration
	// StrError explains provider error codes; nil gives a generic text.
	StrError func(prov uint32) string
}

// Limits of a CQ.
const (
	DefaultSize = 8192
	MaxSize     = 1 << 20

	// minSize is the smallest size of a queue.
	minSize = 64
	// firstSize is the most entries that New allocates; the ring grows on demand.
	firstSize = 256
	// pollEvery is the number of reads of which one polls the endpoints although the
	// queue is not empty.
	pollEvery = 64
)

// A CQ is a completion queue.
type CQ struct {
	attr Attr
	ctx  any

	// places counts the places in use: reserved (R-CQ-128), with an entry, or counted by
	// freed. Reserving one needs no lock.
	places door.Places

	w      wait.Object // its Mu guards what follows
	ring   ring
	served int // reads since the last poll
	// freed counts the places whose entries were read. They stay in places.Used until a
	// reservation finds no room, so that reading changes no shared counter.
	freed int64
	// overrun is final (R-CQ-125).
	overrun bool
}

// full is added to places.Used when the queue accepts no more entries.
const full = 1 << 40

// New opens a CQ (fi_cq_open). Programs call uet.Domain.OpenCQ instead: endpoints bind only
// to queues of their domain. New fails with fi.EINVAL for an invalid attribute (R-CQ-07,
// -08, -10, -21, -25, -26, -30), with fi.EMFILE when the system has no descriptor left.
func New(attr Attr, ctx any) (*CQ, error) {
	if err := attr.check(); err != nil {
		return nil, fmt.Errorf("cq: open: %w", err)
	}
	if attr.Size == 0 {
		attr.Size = DefaultSize // R-CQ-06
	}
	if attr.Format == fi.CQUnspec {
		attr.Format = fi.CQContext // R-CQ-11
	}
	size := minSize
	for size < attr.Size {
		size *= 2
	}
	attr.Size = size // R-CQ-05
	q := &CQ{attr: attr, ctx: ctx}
	q.places.Size = int64(size)
	w := wait.Attr{Kind: attr.WaitObj, Spin: attr.Spin}
	if attr.WaitSet != nil {
		w.Set = door.WaitSet(attr.WaitSet)
	}
	if err := q.w.Init(w); err != nil {
		return nil, fmt.Errorf("cq: open: %w", err)
	}
	q.ring.init(min(size, firstSize))
	q.ring.format = attr.Format
	return q, nil
}

func (a *Attr) check() error {
	bad := func(what string) error { return fmt.Errorf("%s: %w", what, fi.EINVAL) }
	switch {
	case a.Size < 0 || a.Size > MaxSize:
		return bad(fmt.Sprintf("size %d is not 0 to %d", a.Size, MaxSize))
	case a.Flags&^fi.Affinity != 0:
		return bad("flags " + a.Flags.String() + ", of which it takes fi.Affinity only")
	case a.Format > fi.CQTagged:
		return bad("there is no format " + a.Format.String() + ": take fi.CQContext, fi.CQMsg, fi.CQData or fi.CQTagged")
	case a.WaitObj != fi.WaitNone && a.WaitCond > fi.CondThreshold:
		return bad("wait condition " + a.WaitCond.String())
	}
	return nil
}

// Attr returns the attributes in force: the size and format that were chosen
// (R-CQ-11).
func (q *CQ) Attr() Attr { return q.attr }

// Context returns the context given to New (R-CQ-04).
func (q *CQ) Context() any { return q.ctx }

// Close frees the CQ and discards unread entries. It fails with fi.EBUSY while an
// endpoint is bound (R-CQ-35, -36), with fi.EBADF the second time. Blocking reads end
// with fi.ECANCELED (R-CQ-38); later calls fail with fi.EBADF.
func (q *CQ) Close() error {
	q.w.Mu.Lock()
	if q.w.Bound() > 0 {
		q.w.Mu.Unlock()
		return fmt.Errorf("cq: close: endpoints are bound: close them first: %w", fi.EBUSY)
	}
	open := q.w.Close()
	if open {
		// Unread entries give up their places; only reserved ones remain.
		q.freePlaces()
		q.places.Used.Add(full - int64(q.ring.len()))
		q.ring = ring{}
	}
	q.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("cq: close: the queue is closed already, or was never opened: %w", fi.EBADF)
	}
	q.w.Release()
	return nil
}

// Closed reports whether Close succeeded.
func (q *CQ) Closed() bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.w.Closed()
}

// StrError explains a provider error code. The text is never empty (R-CQ-95).
func (q *CQ) StrError(prov uint32) string {
	if q.attr.StrError != nil {
		if s := q.attr.StrError(prov); s != "" {
			return s
		}
	}
	return fmt.Sprintf("provider error 0x%x", prov)
}

// FD returns the descriptor of a CQ opened with fi.WaitFD, for select, poll and epoll
// (R-CQ-22, -39). It becomes readable when there is something to read, and stays so until
// a TryWait finds the queue empty. Call TryWait before each wait. FD fails with fi.EINVAL
// for a CQ opened otherwise (R-CQ-40).
func (q *CQ) FD() (int, error) {
	fd, err := q.w.FD()
	if err != nil {
		err = fmt.Errorf("cq: getwait: %w", err)
	}
	return fd, err
}

// Chan returns the channel of a CQ opened with fi.WaitMutexCond (R-CQ-23, -39). A receive
// from it succeeds when there is something to read. Several goroutines may wait on it, in
// a select too: each calls TryWait before each wait, and after a receive reads until the
// queue is empty. Chan fails with fi.EINVAL for a CQ opened otherwise.
func (q *CQ) Chan() (<-chan struct{}, error) {
	c, err := q.w.Chan()
	if err != nil {
		err = fmt.Errorf("cq: getwait: %w", err)
	}
	return c, err
}

// TryWait prepares the caller to wait on FD or Chan (fi_trywait). If it returns nil, the
// caller may wait; the endpoints make progress by themselves until it wakes up and reads.
// fi.EAGAIN means that there is something to read or Signal was called: read first.
// fi.EINVAL means that the CQ has neither FD nor Chan.
func (q *CQ) TryWait() error { return q.w.TryWait() }
