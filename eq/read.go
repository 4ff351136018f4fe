package eq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Read takes the next event and never blocks; with fi.Peek it stays (R-EQ-23,
// -27). fi.EAGAIN when there is none, fi.EAVAIL when an error is next (R-EQ-28,
// -29), fi.EINVAL for other flags (R-EQ-31).
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
		return Entry{}, fmt.Errorf("eq: read: closed: %w", fi.EBADF)
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
	q.publish() // also after a peek: the next sleeper may take it
	return e, nil
}

// ReadErr takes the error at the head of the queue; with fi.Peek it stays
// (R-EQ-59). fi.EAGAIN when the head is none (R-EQ-52). A queue that has overrun
// gives fi.EOVERRUN with the number of events lost when it has nothing else,
// every time (R-EQ-65).
func (q *EQ) ReadErr(flags fi.Flags) (Error, error) {
	if flags&^fi.Peek != 0 {
		return Error{}, fmt.Errorf("eq: readerr: flags %v: %w", flags, fi.EINVAL)
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	switch {
	case q.w.Closed():
		return Error{}, fmt.Errorf("eq: readerr: closed: %w", fi.EBADF)
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

// SRead is Read that waits for an event, an error, the timeout (negative: none;
// fi.EAGAIN) or Signal (fi.EAGAIN). fi.EINVAL without a wait object or with a
// wait set (R-EQ-51).
func (q *EQ) SRead(flags fi.Flags, timeout time.Duration) (Entry, error) {
	return q.sread(nil, flags, timeout)
}

// SReadContext is SRead that ends with ctx's error instead of a timeout.
func (q *EQ) SReadContext(ctx context.Context, flags fi.Flags) (Entry, error) {
	return q.sread(ctx, flags, -1)
}

func (q *EQ) sread(ctx context.Context, flags fi.Flags, timeout time.Duration) (Entry, error) {
	if kind := q.w.Kind(); kind == fi.WaitNone || kind == fi.WaitSet {
		return Entry{}, fmt.Errorf("eq: sread with %v: %w", kind, fi.EINVAL)
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

// Signal ends one SRead, now or the next (R-EQ-49). fi.EINVAL without a wait
// object.
func (q *EQ) Signal() error {
	if err := q.w.Signal(); err != nil {
		return fmt.Errorf("eq: signal: %w", err)
	}
	return nil
}

// Poll reports whether there is something to read, for a poll set.
func (q *EQ) Poll() bool {
	q.w.Poll()
	return q.w.Have() > 0
}

// Progress drives the endpoints bound by BindProgress, for a poll set.
func (q *EQ) Progress() { q.w.Poll() }
