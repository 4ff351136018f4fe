// Package cq is completion queues as fi_cq(3) describes them: bounded, passive
// rings of completion and error entries.
//
// A CQ is safe for concurrent use. It starts no goroutine: readers that find it
// empty drive the endpoints bound to it, and blocking readers ask those endpoints to
// make progress without them before they sleep. One small mutex guards the ring; it is
// never held while endpoints are driven.
//
// Tests hold the package to its rules, which have numbers (R-CQ-…).
package cq

import (
	"fmt"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
	"github.com/uetkit/uetkit/poll"
)

// An Entry is one successful completion: the fields of all formats. Fields that
// the CQ's format does not have are zero (R-CQ-12 to -16).
type Entry struct {
	Context any      // the operation's context
	Flags   fi.Flags // what completed (R-CQ-106 to -120)
	Len     int      // bytes received
	Buf     []byte   // multi-receive: where this message is
	Data    uint64   // remote CQ data, with fi.RemoteCQData
	Tag     uint64   // of a tagged receive, as sent
}

// An Error is one failed operation (struct fi_cq_err_entry).
type Error struct {
	Context any
	Flags   fi.Flags // the kind of operation (R-CQ-88)
	Len     int      // bytes placed
	Buf     []byte   // multi-receive
	Data    uint64
	Tag     uint64
	OverLen int      // bytes of the message that did not fit (R-CQ-89)
	Err     fi.Errno // what went wrong
	Prov    uint32   // the wire code behind it; StrError explains it
	// OutcomeUnknown: the effect may have happened at the target. Without it it
	// provably did not.
	OutcomeUnknown bool
	Source         fi.Addr
	// ErrData with fi.EADDRNOTAVAIL is the source's address as a binary record,
	// ready for av.AV.InsertRecords (R-CQ-83). See CQ.ReadErr for whose memory it
	// is.
	ErrData []byte

	lent *byte // begin of ErrData if it is the queue's memory
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
	// Size is the least number of entries the queue must hold; 0 takes
	// DefaultSize. More than MaxSize is refused.
	Size int
	// Flags may hold fi.Affinity, a hint that is ignored.
	Flags  fi.Flags
	Format fi.CQFormat // fi.CQUnspec: fi.CQContext
	// WaitObj is how readers wait. Default none: blocking reads are refused.
	// fi.WaitFD: by the descriptor of CQ.FD as well; fi.WaitMutexCond: by the
	// channel of CQ.Chan as well; fi.WaitSet: only by WaitSet.
	WaitObj fi.WaitObj
	WaitSet *poll.WaitSet
	// WaitCond fi.CondThreshold makes the cond argument of blocking reads the
	// number of entries to wait for.
	WaitCond        fi.WaitCond
	SignalingVector int // with fi.Affinity
	// Spin is how long a blocking read polls, after the last poll that did
	// something, before it sleeps; 0 takes 50 µs, negative: not at all.
	Spin time.Duration
	// StrError explains provider error codes; nil: a generic text.
	StrError func(prov uint32) string
}

// Limits of a CQ.
const (
	DefaultSize = 8192
	MaxSize     = 1 << 20

	// minSize is the least that a queue holds.
	minSize = 64
	// firstSize is what is allocated before there is need for more.
	firstSize = 256
	// pollEvery is how many reads may be served from the ring before one polls.
	pollEvery = 64
)

// A CQ is a completion queue.
type CQ struct {
	attr Attr
	ctx  any

	// places counts as used what is reserved (R-CQ-128), holds an entry, or is counted by
	// freed. Reserving one needs no lock.
	places door.Places

	w      wait.Object // its Mu guards what follows
	ring   ring
	served int // reads since the last poll
	// freed counts places whose entries were read. They stay in used until a
	// reservation finds no room, so that reading changes no shared counter.
	freed int64
	// overrun is final (R-CQ-125).
	overrun bool
}

// full is added to places.Used when nothing can be put any more.
const full = 1 << 40

// New opens a CQ (fi_cq_open). Programs call uet.Domain.OpenCQ, because endpoints take only
// queues of their domain. The errors are fi.EINVAL for an attribute
// (R-CQ-07, -08, -10, -21, -25, -26, -30), fi.EMFILE when the system has no
// descriptor left.
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
		return bad("size")
	case a.Flags&^fi.Affinity != 0:
		return bad("flags " + a.Flags.String())
	case a.Format > fi.CQTagged:
		return bad("format " + a.Format.String())
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

// Close frees the CQ; entries that were not read are lost. With an endpoint
// still bound it fails with fi.EBUSY and changes nothing (R-CQ-35, -36); a
// second Close fails with fi.EBADF. Blocking reads end with fi.ECANCELED
// (R-CQ-38), all other calls fail with fi.EBADF.
func (q *CQ) Close() error {
	q.w.Mu.Lock()
	if q.w.Bound() > 0 {
		q.w.Mu.Unlock()
		return fmt.Errorf("cq: close: endpoints are bound: %w", fi.EBUSY)
	}
	open := q.w.Close()
	if open {
		// Unread entries give their places back: only reserved ones are left.
		q.settle()
		q.places.Used.Add(full - int64(q.ring.len()))
		q.ring = ring{}
	}
	q.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("cq: close: %w", fi.EBADF)
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

// StrError explains a provider error code, never with an empty text (R-CQ-95).
func (q *CQ) StrError(prov uint32) string {
	if q.attr.StrError != nil {
		if s := q.attr.StrError(prov); s != "" {
			return s
		}
	}
	return fmt.Sprintf("provider error 0x%x", prov)
}

// FD is the descriptor of a CQ opened with fi.WaitFD, for select, poll and epoll
// (R-CQ-22, -39). It is readable from the moment there is something to read
// until a TryWait finds nothing. Call TryWait before each wait.
// fi.EINVAL: the CQ has none (R-CQ-40).
func (q *CQ) FD() (int, error) {
	fd, err := q.w.FD()
	if err != nil {
		err = fmt.Errorf("cq: getwait: %w", err)
	}
	return fd, err
}

// Chan is the wait object of a CQ opened with fi.WaitMutexCond (R-CQ-23, -39): a
// channel that is ready when there is something to read. Several goroutines may wait
// on it, together with other things: each calls TryWait before each wait, and after it
// received it reads until the queue is empty.
// fi.EINVAL: the CQ has none.
func (q *CQ) Chan() (<-chan struct{}, error) {
	c, err := q.w.Chan()
	if err != nil {
		err = fmt.Errorf("cq: getwait: %w", err)
	}
	return c, err
}

// TryWait prepares to wait on FD or Chan by other means than SRead (fi_trywait). After
// nil the caller may wait: the endpoints make progress without it until it is woken and
// reads. fi.EAGAIN: there is something to read, or Signal was called; read first.
// fi.EINVAL: the CQ has nothing to wait on.
func (q *CQ) TryWait() error { return q.w.TryWait() }
