package cq

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Read moves up to len(e) completions to e, oldest first, and returns how many. It never
// blocks. It fails with fi.EAGAIN when the queue is empty (R-CQ-46), with fi.EAVAIL when
// an error entry is next: ReadErr removes that (R-CQ-47 to -49). With an empty e it drives
// progress and returns 0, or fi.EAGAIN when the queue is empty (R-CQ-51).
//
// A read that finds the queue empty drives the endpoints and looks again. So does one of
// every 64 other reads (R-CQ-52).
func (q *CQ) Read(e []Entry) (int, error) {
	if len(e) == 0 {
		return q.ReadFrom(e, nil)
	}
	if q.w.Have() == 0 && !q.w.Look() {
		return 0, fi.EAGAIN
	}
	q.w.Mu.Lock()
	if q.w.Have() == 1 && q.served < pollEvery-1 { // takeLone, inlined
		q.served++
		q.ring.takeOne(&e[0])
		q.freed++
		q.w.Set(0)
		q.w.Mu.Unlock()
		return 1, nil
	}
	return q.read(e, nil)
}

// lone reports whether the queue holds exactly one entry and no error.
func (q *CQ) lone() bool {
	return q.ring.tail-q.ring.head == 1 && q.ring.first == len(q.ring.errs) && !q.overrun
}

// takeLone moves the only entry to e and returns its source.
func (q *CQ) takeLone(e *Entry) (src fi.Addr) {
	src = q.ring.sources[q.ring.takeOne(e)]
	q.freed++
	q.w.Empty()
	return src
}

// ReadFrom is Read that also stores the source of each entry in src. The source is
// fi.AddrNotAvail unless the entry is a receive, its endpoint was opened with fi.Source,
// and the sender is in the address vector (R-CQ-55, -56). src, if not nil, must be as long
// as e.
func (q *CQ) ReadFrom(e []Entry, src []fi.Addr) (int, error) {
	if src != nil && len(src) < len(e) {
		return 0, fmt.Errorf("cq: readfrom: %d addresses for %d entries: %w", len(src), len(e), fi.EINVAL)
	}
	if (q.w.Have() == 0 || len(e) == 0) && !q.w.Look() {
		return 0, fi.EAGAIN
	}
	if len(e) == 0 {
		return q.look(e, src)
	}
	q.w.Mu.Lock()
	return q.read(e, src)
}

// read is Read of a queue that is not empty. It is called with the lock held and releases
// it.
func (q *CQ) read(e []Entry, src []fi.Addr) (int, error) {
	q.served++
	switch {
	case q.served >= pollEvery:
		q.served = 0
		q.w.Mu.Unlock()
	case q.w.Have() == 1:
		from := q.takeLone(&e[0])
		q.w.Mu.Unlock()
		if src != nil {
			src[0] = from
		}
		return 1, nil
	default:
		n, err := q.take(e, src)
		q.w.Mu.Unlock()
		if err != fi.EAGAIN {
			return n, err
		}
	}
	q.w.Look()
	return q.look(e, src)
}

// look is Read without progress.
func (q *CQ) look(e []Entry, src []fi.Addr) (int, error) {
	if q.w.Have() == 0 {
		return 0, fi.EAGAIN
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.take(e, src)
}

// take is look with the lock held.
func (q *CQ) take(e []Entry, src []fi.Addr) (int, error) {
	if q.w.Closed() {
		return 0, fmt.Errorf("cq: read: the queue is closed, or was never opened: %w", fi.EBADF)
	}
	n := q.ring.take(e, src)
	q.freed += int64(n)
	q.publish()
	switch {
	case n > 0:
		return n, nil
	case len(e) == 0 && q.ring.ready() > 0:
		return 0, nil
	case q.ring.len() > 0 || q.overrun: // R-CQ-124
		return 0, fi.EAVAIL
	}
	return 0, fi.EAGAIN
}

// ReadErr moves the error entry at the head of the queue to e and returns 1 (R-CQ-77). It
// fails with fi.EAGAIN when no error is at the head (R-CQ-78). From a queue that has
// overrun and has no more entries, each call returns 1 with fi.EOVERRUN in e.Err
// (R-CQ-124). flags must be 0, or the call fails with fi.EINVAL (R-CQ-91).
//
// If e.ErrData is a buffer of the caller's, ReadErr copies the data there and cuts the
// slice to what was copied (R-CQ-84). Otherwise it sets e.ErrData to memory that belongs
// to the caller from then on (R-CQ-85).
func (q *CQ) ReadErr(e *Error, flags fi.Flags) (int, error) {
	if e == nil || flags != 0 {
		return 0, fmt.Errorf("cq: readerr: it takes an Error to fill, and no flags: %w", fi.EINVAL)
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() {
		return 0, fmt.Errorf("cq: readerr: the queue is closed, or was never opened: %w", fi.EBADF)
	}
	buf := e.ErrData
	if unsafe.SliceData(buf) == e.lent {
		buf = nil // it came from an earlier call
	}
	switch {
	case q.ring.takeErr(e):
		q.freed++
		q.publish()
	case q.overrun && q.ring.len() == 0:
		*e = Error{Err: fi.EOVERRUN, Source: fi.AddrNotAvail}
	default:
		return 0, fi.EAGAIN
	}
	if len(buf) > 0 {
		e.ErrData, e.lent = buf[:copy(buf, e.ErrData)], nil
	} else {
		e.lent = unsafe.SliceData(e.ErrData)
	}
	return 1, nil
}

// SRead is Read that waits until there is an entry or an error. It fails with fi.EAGAIN
// after the timeout (R-CQ-69) and after Signal (R-CQ-70). A negative timeout means no
// limit, 0 no waiting. cond is the number of entries to wait for if the CQ was opened with
// fi.CondThreshold; it is a hint (R-CQ-29, -75). SRead fails with fi.EINVAL if the CQ has
// no wait object or is in a wait set (R-CQ-19, -73).
func (q *CQ) SRead(e []Entry, cond int, timeout time.Duration) (int, error) {
	return q.SReadFrom(e, nil, cond, timeout)
}

// SReadFrom is SRead that also stores sources in src, as ReadFrom does.
func (q *CQ) SReadFrom(e []Entry, src []fi.Addr, cond int, timeout time.Duration) (int, error) {
	if timeout >= 0 || q.attr.WaitCond == fi.CondThreshold || src != nil && len(src) < len(e) || q.w.Have() > 0 || !q.w.CanLie() {
		return q.sread(context.Background(), e, src, cond, timeout)
	}
	// The queue is empty, nothing is to be driven and there is no timeout: take the
	// shortest way to sleep.
	woken := q.w.Lie(1)
	if woken == nil {
		return q.sread(context.Background(), e, src, cond, timeout)
	}
	<-woken
	q.w.Rise()
	if len(e) > 0 && q.lone() { // the usual case after a wake-up
		from := q.takeLone(&e[0])
		if src != nil {
			src[0] = from
		}
		q.w.Mu.Unlock()
		return 1, nil
	}
	n, err := q.take(e, src)
	signalled := err == fi.EAGAIN && q.w.TakeSignal()
	q.w.Mu.Unlock()
	if err == fi.EAGAIN && !signalled { // another reader was faster, or an endpoint was bound
		return q.sread(context.Background(), e, src, cond, timeout)
	}
	return n, blocked(err)
}

// blocked turns the error of a closed queue into that of a read that slept when the queue
// was closed (R-CQ-38).
func blocked(err error) error {
	if err != nil && errors.Is(err, fi.EBADF) {
		return fmt.Errorf("cq: sread: closed: %w", fi.ECANCELED)
	}
	return err
}

// SReadContext is SRead without a timeout; it fails with ctx.Err() when ctx is done.
func (q *CQ) SReadContext(ctx context.Context, e []Entry) (int, error) {
	return q.SReadFromContext(ctx, e, nil)
}

// SReadFromContext is SReadFrom without a timeout; it fails with ctx.Err() when ctx is done.
func (q *CQ) SReadFromContext(ctx context.Context, e []Entry, src []fi.Addr) (int, error) {
	return q.sread(ctx, e, src, 1, -1)
}

// sread implements all blocking reads.
func (q *CQ) sread(ctx context.Context, e []Entry, src []fi.Addr, cond int, timeout time.Duration) (int, error) {
	if !q.w.MayBlock() {
		if q.w.HasClosed() {
			return 0, fmt.Errorf("cq: sread: the queue is closed, or was never opened: %w", fi.EBADF)
		}
		return 0, fmt.Errorf("cq: sread of a queue that nobody can wait at (%v): open it with Attr.WaitObj fi.WaitUnspec, or use Read: %w", q.w.Kind(), fi.EINVAL)
	}
	var deadline wait.Moment
	if timeout != 0 && q.w.Have() == 0 && q.w.Spins() {
		deadline = q.w.Give(ctx, timeout)
	}
	if n, err := q.ReadFrom(e, src); err != fi.EAGAIN || timeout == 0 {
		return n, err // R-CQ-71: entries that are there are returned at once
	}
	if q.attr.WaitCond != fi.CondThreshold || cond < 1 {
		cond = 1 // R-CQ-74
	}
	cond = min(cond, q.attr.Size) // the queue never has more
	if deadline == 0 {
		deadline = wait.Deadline(timeout)
	}
	for {
		why, armed := q.w.Wait(ctx, int64(cond), deadline)
		n, err := q.take(e, src)
		if why == wait.Signalled && n >= cond {
			q.w.GiveSignal() // this call got an entry, so the signal may end another
		}
		q.w.Done(armed)
		if err != fi.EAGAIN {
			return n, blocked(err)
		}
		switch why {
		case wait.Signalled, wait.TimedOut:
			return 0, fi.EAGAIN
		case wait.Cancelled:
			return 0, ctx.Err()
		}
		// Another reader was faster.
	}
}

// Poll drives the endpoints and reports whether there is something to read. Poll sets
// call it.
func (q *CQ) Poll() bool {
	q.w.Poll()
	return q.w.Have() > 0
}

// Progress drives the endpoints. Poll sets call it.
func (q *CQ) Progress() { q.w.Poll() }

// Signal ends one blocking read: one that sleeps now, or else the next (R-CQ-92, -94). It
// fails with fi.EINVAL if the CQ has no wait object (R-CQ-93).
func (q *CQ) Signal() error {
	if err := q.w.Signal(); err != nil {
		return fmt.Errorf("cq: signal: %w", err)
	}
	return nil
}
