// Package poll is the poll sets and wait sets of fi_poll(3): looking at, and
// waiting for, several completion queues, event queues and counters at once.
package poll

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// WaitAttr describes a wait set to open (struct fi_wait_attr).
type WaitAttr struct {
	// WaitObj is fi.WaitUnspec, fi.WaitFD, fi.WaitMutexCond or fi.WaitYield.
	WaitObj fi.WaitObj
	Flags   fi.Flags // must be 0
	// Spin is as in cq.Attr.
	Spin time.Duration
}

// A WaitSet is one wait object for several queues and counters (fi_wait_open).
// They join it when they are opened with fi.WaitSet, and leave when closed. It
// is safe for concurrent use. A change of a counter is told to whoever looks at the
// counter first: where several do, each waits by cntr.Wait instead.
type WaitSet struct {
	w wait.Object

	mu      sync.Mutex // guards members; between a member's lock and w's
	members []*wait.Object
	closed  bool
}

// NewWaitSet opens a wait set. fi.EINVAL: wait object or flags.
func NewWaitSet(attr WaitAttr) (*WaitSet, error) {
	s := new(WaitSet)
	switch {
	case attr.WaitObj == fi.WaitNone || attr.WaitObj == fi.WaitSet:
		return nil, fmt.Errorf("poll: open wait set: wait object %v: %w", attr.WaitObj, fi.EINVAL)
	case attr.Flags != 0:
		return nil, fmt.Errorf("poll: open wait set: flags %v: %w", attr.Flags, fi.EINVAL)
	}
	if err := s.w.Init(wait.Attr{Kind: attr.WaitObj, Spin: attr.Spin}); err != nil {
		return nil, fmt.Errorf("poll: open wait set: %w", err)
	}
	return s, nil
}

// Wait waits until something is there in one of the members, or Signal was
// called (fi_wait). It says nothing of which: a poll set does. Timeout: negative
// is no limit, 0 looks once. fi.ETIMEDOUT when it passed, fi.ECANCELED when the
// set was closed.
func (s *WaitSet) Wait(timeout time.Duration) error {
	if s.look() {
		return nil
	}
	deadline := wait.Deadline(timeout)
	for {
		why, armed := s.w.Wait(context.Background(), 1, deadline)
		s.w.Done(armed)
		switch why {
		case wait.Signalled:
			return nil
		case wait.TimedOut:
			return fi.ETIMEDOUT
		case wait.Closed:
			return fmt.Errorf("poll: wait: closed: %w", fi.ECANCELED)
		}
		if s.look() {
			return nil
		}
	}
}

// look drives the members and reports whether one has something. What a member
// notifies from here on is not lost: it is published again.
func (s *WaitSet) look() bool {
	s.w.Mu.Lock()
	if !s.w.Closed() {
		s.w.Publish(0)
	}
	s.w.Mu.Unlock()
	s.w.Poll()
	s.mu.Lock()
	ready := false
	for _, m := range s.members {
		ready = ready || m.Have() > 0
	}
	s.mu.Unlock()
	if ready {
		s.Notify() // other waiters of the set look too
	}
	return ready
}

// Signal ends one Wait, now or the next.
func (s *WaitSet) Signal() error {
	if err := s.w.Signal(); err != nil {
		return fmt.Errorf("poll: signal: %w", err)
	}
	return nil
}

// FD is the descriptor to wait on by other means, with TryWait. It is readable
// while something may be there. fi.EINVAL if the set was not opened with
// fi.WaitFD.
func (s *WaitSet) FD() (int, error) { return s.w.FD() }

// Chan is the channel to wait on by other means, with TryWait. fi.EINVAL if the
// set was not opened with fi.WaitMutexCond.
func (s *WaitSet) Chan() (<-chan struct{}, error) { return s.w.Chan() }

// TryWait says that the application is about to wait on FD or Chan. fi.EAGAIN:
// a member has something.
func (s *WaitSet) TryWait() error {
	if s.look() {
		return fi.EAGAIN
	}
	if err := s.w.TryWait(); err != nil {
		return err
	}
	return nil
}

// Close frees the set. fi.EBUSY while it has members, fi.EBADF the second time.
func (s *WaitSet) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) > 0 {
		return fmt.Errorf("poll: close wait set: it has members: %w", fi.EBUSY)
	}
	if s.closed {
		return fmt.Errorf("poll: close wait set: %w", fi.EBADF)
	}
	s.closed = true
	s.w.Mu.Lock()
	s.w.Close()
	s.w.Mu.Unlock()
	s.w.Release()
	return nil
}

// Join makes a queue or counter a member. They call it when they are opened.
func (s *WaitSet) Join(m *wait.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("wait set is closed: %w", fi.EINVAL)
	}
	s.members = append(s.members, m)
	return nil
}

// Leave undoes Join. They call it when they are closed.
func (s *WaitSet) Leave(m *wait.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.members, m); i >= 0 {
		s.members = slices.Delete(s.members, i, i+1)
	}
}

// Notify implements wait.Set: a member has something.
func (s *WaitSet) Notify() {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	if !s.w.Closed() {
		s.w.Publish(1)
	}
}

// Changed implements wait.Set: a member drives other endpoints than before.
func (s *WaitSet) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ps []wait.Progress
	for _, m := range s.members {
		ps = append(ps, m.Driven()...)
	}
	s.w.Drive(ps)
}
