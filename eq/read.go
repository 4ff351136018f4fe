package eq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Read removes the oldest event and returns it. It never blocks. With fi.Peek the event
// stays in the queue (R-EQ-23, -27). Read fails with fi.EAGAIN when the queue is empty, with
// fi.EAVAIL when an error is next (R-EQ-28, -29), with fi.EINVAL for other flags (R-EQ-31).
func (q *EQ) Read(flags fi.Flags) (Entry, error) {
	if flags&^fi.Peek != 0 {
		return Entry{}, fmt.Errorf("eq: read: flags %v: %w", flags, fi.EINVAL)
	}
	e, err := q.look(flags)
	if err == fi.EAGAIN {
		q.w.Look()
		e, err = q.look(flags)
	}
	return e, err
}

// look is Read without progress.
func (q *EQ) look(flags fi.Flags) (Entry, error) {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.take(flags)
}

// take is look with the lock held.
func (q *EQ) take(flags fi.Flags) (Entry, error) {
	switch {
	case q.w.Closed():
		return Entry{}, fmt.Errorf("eq: read: the queue is closed, or was never opened: %w", fi.EBADF)
	case q.n == 0 && q.overrun: // R-EQ-65
		return Entry{}, fi.EAVAIL
	case q.n == 0:
		return Entry{}, fi.EAGAIN
	case q.ring[q.head].err != nil:
		return Entry{}, fi.EAVAIL
	}
	e := q.ring[q.head].e
	if flags&fi.Peek == 0 {
		q.pop()
	}
	q.publish() // also after a peek: the event is there for the next sleeper
	return e, nil
}

// ReadErr removes the error at the head of the queue and returns it. With fi.Peek the error
// stays (R-EQ-59). ReadErr fails with fi.EAGAIN when no error is at the head (R-EQ-52). From
// a queue that has overrun and has no more events, each call returns fi.EOVERRUN in
// Error.Err and the number of lost events (R-EQ-65).
func (q *EQ) ReadErr(flags fi.Flags) (Error, error) {
	if flags&^fi.Peek != 0 {
		return Error{}, fmt.Errorf("eq: readerr: flags %v: %w", flags, fi.EINVAL)
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	switch {
	case q.w.Closed():
		return Error{}, fmt.Errorf("eq: readerr: the queue is closed, or was never opened: %w", fi.EBADF)
	case q.n == 0 && q.overrun:
		return Error{Err: fi.EOVERRUN, Lost: q.lost}, nil
	case q.n == 0 || q.ring[q.head].err == nil:
		return Error{}, fi.EAGAIN
	}
	e := *q.ring[q.head].err
	if flags&fi.Peek == 0 {
		q.pop()
		q.publish()
	}
	return e, nil
}

// SRead is Read that waits until there is an event or an error. It fails with fi.EAGAIN
// after the timeout and after Signal. A negative timeout means no limit, 0 no waiting. SRead
// fails with fi.EINVAL if the EQ has no wait object or is in a wait set (R-EQ-51).
func (q *EQ) SRead(flags fi.Flags, timeout time.Duration) (Entry, error) {
	return q.sread(context.Background(), flags, timeout)
}

// SReadContext is SRead without a timeout; it fails with ctx.Err() when ctx is done.
func (q *EQ) SReadContext(ctx context.Context, flags fi.Flags) (Entry, error) {
	return q.sread(ctx, flags, -1)
}

func (q *EQ) sread(ctx context.Context, flags fi.Flags, timeout time.Duration) (Entry, error) {
	if kind := q.w.Kind(); kind == fi.WaitNone || kind == fi.WaitSet {
		if q.w.HasClosed() {
			return Entry{}, fmt.Errorf("eq: sread: the queue is closed, or was never opened: %w", fi.EBADF)
		}
		return Entry{}, fmt.Errorf("eq: sread of a queue that nobody can wait at (%v): open it with Attr.WaitObj fi.WaitUnspec, or use Read: %w", kind, fi.EINVAL)
	}
	if e, err := q.Read(flags); err != fi.EAGAIN || timeout == 0 {
		return e, err
	}
	deadline := wait.Deadline(timeout)
	for {
		why, armed := q.w.Wait(ctx, 1, deadline)
		e, err := q.take(flags)
		q.w.Done(armed)
		if err != fi.EAGAIN {
			if errors.Is(err, fi.EBADF) {
				err = fmt.Errorf("eq: sread: closed: %w", fi.ECANCELED)
			}
			return e, err
		}
		switch why {
		case wait.Signalled, wait.TimedOut:
			return Entry{}, fi.EAGAIN
		case wait.Cancelled:
			return Entry{}, ctx.Err()
		}
		// Another reader was faster.
	}
}

// Signal ends one SRead: one that sleeps now, or else the next (R-EQ-49). It fails with
// fi.EINVAL if the EQ has no wait object.
func (q *EQ) Signal() error {
	if err := q.w.Signal(); err != nil {
		return fmt.Errorf("eq: signal: %w", err)
	}
	return nil
}

// Poll drives the bound endpoints and reports whether there is something to read. Poll sets
// call it.
func (q *EQ) Poll() bool {
	q.w.Poll()
	return q.w.Have() > 0
}

// Progress drives the bound endpoints. Poll sets call it.
func (q *EQ) Progress() { q.w.Poll() }
