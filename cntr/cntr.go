// Package cntr implements completion counters as fi_cntr(3) describes them: a number of
// successes and a number of failures, cheap to raise and to read. An application can wait
// for a value.
//
// A Counter is safe for concurrent use and starts no goroutine. Reading or changing a value
// takes no lock, unless the change may end a Wait.
//
// Numbers like R-CNTR-05 name rules of libfabric; docs/conformance.md lists the test of
// each.
package cntr

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
	"github.com/uetkit/uetkit/poll"
)

// Attr describes a counter to open (struct fi_cntr_attr).
type Attr struct {
	// Events says what the success value counts: completions or, with fi.CntrBytes,
	// bytes of messages. The error value always counts operations (R-CNTR-02).
	Events fi.CntrEvents
	// WaitObj and WaitSet are as in cq.Attr. The default, fi.WaitNone, makes Wait fail.
	WaitObj fi.WaitObj
	WaitSet *poll.WaitSet
	Flags   fi.Flags // must be 0 (R-CNTR-12)
	// Spin is as in cq.Attr.
	Spin time.Duration
}

// A Counter is a completion counter.
type Counter struct {
	attr   Attr
	ctx    any
	opened bool // by New; a zero Counter is closed

	val, errs atomic.Uint64
	// fails counts the changes of errs, after each. known is the value of fails at the
	// last ReadErr, or the last Wait that ended with fi.EAVAIL.
	fails, known atomic.Uint64
	// wakeAt is the lowest threshold that a Wait waits for: a change to it or above looks
	// for waiters. A waiter lowers wakeAt before it reads the value; a change reads wakeAt
	// after it stored the value. So one of the two sees the other.
	wakeAt atomic.Uint64

	// changes counts the changes that Changes found; polled is its value when Poll last
	// returned true.
	changes, polled atomic.Uint64

	w wait.Object // its Mu guards what follows
	// waits has the threshold of each Wait under way.
	waits []uint64
}

// A provider is the Counter with the methods that the provider calls; door.Counting
// describes them.
type provider Counter

func init() { door.Counter = func(c any) door.Counting { return (*provider)(c.(*Counter)) } }

func (c *provider) Bind(p wait.Progress) error {
	if err := c.w.Bind(p); err != nil {
		return fmt.Errorf("cntr: bind: %w", err)
	}
	return nil
}

func (c *provider) Unbind(p wait.Progress) { c.w.Unbind(p) }

func (c *provider) Gather() { c.w.Gather() }

func (c *provider) Count(n, bytes uint64) {
	if c.attr.Events == fi.CntrBytes {
		n = bytes
	}
	(*Counter)(c).changed(raise(&c.val, n))
}

func (c *provider) AddErr(n uint64) error { return (*Counter)(c).AddErr(n) }

// Bits of wait.Object.Note: which value changed since it was last read, and whether one
// changed since the last call of Changes.
const (
	newVal int64 = 1 << iota
	newErr
	newPoll = wait.Unpolled
)

// nobody is the value of wakeAt while no Wait is under way.
const nobody = math.MaxUint64

// New opens a counter (fi_cntr_open). Programs call uet.Domain.OpenCntr instead: endpoints
// bind only to counters of their domain. New fails with fi.EINVAL for an invalid attribute
// (R-CNTR-12), with fi.EMFILE when the system has no descriptor left.
func New(attr Attr, ctx any) (*Counter, error) {
	switch {
	case attr.Events > fi.CntrBytes:
		return nil, fmt.Errorf("cntr: open: events %v: %w", attr.Events, fi.EINVAL)
	case attr.Flags != 0:
		return nil, fmt.Errorf("cntr: open: flags %v: %w", attr.Flags, fi.EINVAL)
	}
	c := &Counter{attr: attr, ctx: ctx}
	c.wakeAt.Store(nobody)
	w := wait.Attr{Kind: attr.WaitObj, Spin: attr.Spin}
	if attr.WaitSet != nil {
		w.Set = door.WaitSet(attr.WaitSet)
	}
	if err := c.w.InitLevel(w, c.enough); err != nil {
		return nil, fmt.Errorf("cntr: open: %w", err)
	}
	c.opened = true
	return c, nil
}

// enough reports whether a Wait for threshold is over: the value was reached, or fails is no
// longer known.
func (c *Counter) enough(threshold, known uint64) bool {
	return c.val.Load() >= threshold || c.fails.Load() != known
}

// Attr returns the attributes in force.
func (c *Counter) Attr() Attr { return c.attr }

// Context returns the context given to New.
func (c *Counter) Context() any { return c.ctx }

// Close frees the counter. It fails with fi.EBUSY while an endpoint is bound (R-CNTR-10),
// with fi.EBADF the second time. A Wait under way ends with fi.ECANCELED. Afterwards Read
// and ReadErr return the last values, and all other calls fail with fi.EBADF.
func (c *Counter) Close() error {
	c.w.Mu.Lock()
	if c.w.Bound() > 0 {
		c.w.Mu.Unlock()
		return fmt.Errorf("cntr: close: an endpoint or region is bound: close it first: %w", fi.EBUSY)
	}
	open := c.w.Close()
	c.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("cntr: close: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	c.w.Release()
	return nil
}

// Closed reports whether Close succeeded.
func (c *Counter) Closed() bool { return c.w.Have() == wait.Always || !c.opened }

// Read drives the bound endpoints and returns the success value (fi_cntr_read).
func (c *Counter) Read() uint64 {
	c.w.Look()
	c.w.Forget(newVal) // before the load, so that a later change counts as new
	return c.val.Load()
}

// ReadErr drives the bound endpoints and returns the error value, the number of operations
// that failed (fi_cntr_readerr). The error entries of the completion queue say why.
func (c *Counter) ReadErr() uint64 {
	c.w.Look()
	c.w.Forget(newErr)
	if n := c.fails.Load(); c.known.Load() != n { // before errs is loaded: a later change is not known
		c.known.Store(n)
	}
	return c.errs.Load()
}

// Add raises the success value by n (fi_cntr_add, R-CNTR-08). The value stays at its
// maximum rather than wrap (R-CNTR-09). Add fails with fi.EBADF if the counter is closed.
func (c *Counter) Add(n uint64) error {
	if c.Closed() {
		return fmt.Errorf("cntr: add: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	c.changed(raise(&c.val, n))
	return nil
}

// Set sets the success value (fi_cntr_set). It fails with fi.EBADF if the counter is closed.
func (c *Counter) Set(v uint64) error {
	if c.Closed() {
		return fmt.Errorf("cntr: set: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	c.val.Store(v)
	c.changed(v)
	return nil
}

// AddErr raises the error value by n (fi_cntr_adderr), which ends every Wait. It fails with
// fi.EBADF if the counter is closed.
func (c *Counter) AddErr(n uint64) error {
	if c.Closed() {
		return fmt.Errorf("cntr: adderr: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	if n > 0 {
		raise(&c.errs, n)
		c.failed()
	}
	return nil
}

// SetErr sets the error value (fi_cntr_seterr). A change ends every Wait. SetErr fails with
// fi.EBADF if the counter is closed.
func (c *Counter) SetErr(v uint64) error {
	if c.Closed() {
		return fmt.Errorf("cntr: seterr: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	if c.errs.Swap(v) != v {
		c.failed()
	}
	return nil
}

// raise adds n to a, up to the largest uint64, and returns the sum.
func raise(a *atomic.Uint64, n uint64) uint64 {
	for {
		v := a.Load()
		sum := v + n
		if sum < v {
			sum = math.MaxUint64
		}
		if a.CompareAndSwap(v, sum) {
			return sum
		}
	}
}

// changed wakes the waiters that a success value of v may concern.
func (c *Counter) changed(v uint64) {
	if c.w.Note(newVal|newPoll) || v >= c.wakeAt.Load() {
		c.wake()
	}
}

// failed counts a change of the error value and wakes all waiters.
func (c *Counter) failed() {
	c.fails.Add(1)
	if c.w.Note(newErr|newPoll) || c.wakeAt.Load() != nobody {
		c.wake()
	}
}

func (c *Counter) wake() {
	c.w.Mu.Lock()
	c.w.Level()
	c.w.Mu.Unlock()
}

// Wait waits until the success value is at least threshold (fi_cntr_wait, R-CNTR-05). A
// negative timeout means no limit, 0 no waiting.
//
// Wait fails with fi.EAVAIL if the error value has changed since ReadErr or a Wait last
// reported it, with fi.ETIMEDOUT after the timeout, with fi.ECANCELED if the counter is
// closed meanwhile, and with fi.EINVAL if the counter has no wait object or is in a wait set
// (R-CNTR-06).
func (c *Counter) Wait(threshold uint64, timeout time.Duration) error {
	return c.wait(context.Background(), threshold, timeout)
}

// WaitContext is Wait without a timeout; it fails with ctx.Err() when ctx is done.
func (c *Counter) WaitContext(ctx context.Context, threshold uint64) error {
	return c.wait(ctx, threshold, -1)
}

func (c *Counter) wait(ctx context.Context, threshold uint64, timeout time.Duration) error {
	if !c.w.MayBlock() {
		return fmt.Errorf("cntr: wait for a counter that nobody can wait at (%v): open it with Attr.WaitObj fi.WaitUnspec, or use Read: %w", c.w.Kind(), fi.EINVAL)
	}
	if c.Closed() {
		return fmt.Errorf("cntr: wait: the counter is closed, or was never opened: %w", fi.EBADF)
	}
	known := c.known.Load()
	if !c.enough(threshold, known) {
		c.w.Look()
	}
	why := wait.TimedOut
	deadline := wait.Deadline(timeout)
	for {
		if !c.enough(threshold, known) && timeout != 0 {
			c.enter(threshold)
			var armed []wait.Progress
			why, armed = c.w.WaitLevel(ctx, threshold, known, deadline)
			c.leave(threshold)
			c.w.Done(armed)
		}
		switch {
		case c.val.Load() >= threshold:
			c.w.Forget(newVal)
			return nil
		case c.fails.Load() != known:
			c.known.Store(c.fails.Load())
			return fi.EAVAIL
		case c.Closed():
			return fmt.Errorf("cntr: wait: closed: %w", fi.ECANCELED)
		case why == wait.Cancelled:
			return ctx.Err()
		case why == wait.TimedOut:
			return fi.ETIMEDOUT
		}
		// The value was lowered again before Wait looked.
	}
}

// enter registers a Wait for threshold, so that changes to threshold or above wake it.
func (c *Counter) enter(threshold uint64) {
	c.w.Mu.Lock()
	defer c.w.Mu.Unlock()
	c.waits = append(c.waits, threshold)
	// nobody-1, because a Wait for the largest value must not look like nobody.
	c.wakeAt.Store(min(c.wakeAt.Load(), threshold, nobody-1))
}

// leave undoes enter, with the lock held.
func (c *Counter) leave(threshold uint64) {
	i := slices.Index(c.waits, threshold)
	c.waits[i] = c.waits[len(c.waits)-1]
	c.waits = c.waits[:len(c.waits)-1]
	if len(c.waits) == 0 {
		c.wakeAt.Store(nobody)
		return
	}
	c.wakeAt.Store(min(slices.Min(c.waits), nobody-1))
}

// Poll drives the endpoints and reports whether the counter has changed since Poll last
// returned true, whether or not another goroutine has read it.
func (c *Counter) Poll() bool {
	return wait.Newer(&c.polled, c.Changes())
}

// Changes drives the endpoints and returns a number that is higher than before if the
// counter has changed since the last call, whether or not another goroutine has read it.
// Poll sets call it.
func (c *Counter) Changes() uint64 {
	c.w.Look()
	if c.w.Forget(newPoll) {
		return c.changes.Add(1)
	}
	return c.changes.Load()
}

// Progress drives the endpoints. Poll sets call it.
func (c *Counter) Progress() { c.w.Look() }

// FD returns the descriptor of a counter opened with fi.WaitFD, for select, poll and epoll.
// It becomes readable when the counter changes after a TryWait. Call TryWait, read the
// counter, then wait. Only one goroutine may wait on it; several use Wait. FD fails with
// fi.EINVAL for a counter opened otherwise.
func (c *Counter) FD() (int, error) {
	fd, err := c.w.FD()
	if err != nil {
		err = fmt.Errorf("cntr: getwait: %w", err)
	}
	return fd, err
}

// Chan returns the channel of a counter opened with fi.WaitMutexCond. A receive from it
// succeeds when the counter has changed after a TryWait. It is used as FD is. Chan fails
// with fi.EINVAL for a counter opened otherwise.
func (c *Counter) Chan() (<-chan struct{}, error) {
	ch, err := c.w.Chan()
	if err != nil {
		err = fmt.Errorf("cntr: getwait: %w", err)
	}
	return ch, err
}

// TryWait prepares the caller to wait on FD or Chan (fi_trywait). If it returns nil, the
// caller may wait. fi.EAGAIN, returned once for a change, means that the counter has changed
// since it was read: read first. fi.EINVAL means that the counter has neither FD nor Chan.
func (c *Counter) TryWait() error {
	err := c.w.TryWait()
	if err == fi.EAGAIN {
		c.w.Forget(newVal | newErr)
	}
	return err
}
