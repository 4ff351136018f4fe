// Package poll is the poll sets and wait sets of fi_poll(3): looking at, and
// waiting for, several completion queues, event queues and counters at once.
package poll

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
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

// A WaitSet is one wait object for several queues and counters (fi_wait_open). They
// join it when they are opened with fi.WaitSet, and leave when they are closed. It is
// safe for concurrent use.
//
// A queue has something while it holds an entry. A counter has something when it has
// changed since the set last reported it, even if another goroutine has read it. So
// several goroutines that wait for counters use a Watch each.
type WaitSet struct {
	w wait.Object

	news atomic.Uint64 // raised by each change of a counter
	told atomic.Uint64 // the value of news that Wait or TryWait last reported

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
	if err := s.w.InitLevel(wait.Attr{Kind: attr.WaitObj, Spin: attr.Spin}, s.enough); err != nil {
		return nil, fmt.Errorf("poll: open wait set: %w", err)
	}
	return s, nil
}

// Wait waits until one of the members has something, or Signal was called (fi_wait). It
// does not say which member; a poll set does. A negative timeout is no limit, 0 looks
// once. fi.ETIMEDOUT: the timeout passed. fi.ECANCELED: the set was closed meanwhile.
// fi.EBADF: it was closed before, as with a queue (R-CQ-38).
func (s *WaitSet) Wait(timeout time.Duration) error { return s.wait(&s.told, timeout) }

// A Watch lets one of several goroutines wait for a set. It reports every change of a
// counter, whatever the others were told.
type Watch struct {
	set  *WaitSet
	told atomic.Uint64
}

// Watch returns a new Watch. Its first Wait also reports changes before it.
func (s *WaitSet) Watch() *Watch { return &Watch{set: s} }

// Wait is Wait of the set.
func (w *Watch) Wait(timeout time.Duration) error { return w.set.wait(&w.told, timeout) }

// enough reports whether a Wait that has seen so much of news has to look.
func (s *WaitSet) enough(_, seen uint64) bool { return s.w.Have() > 0 || s.news.Load() != seen }

func (s *WaitSet) wait(told *atomic.Uint64, timeout time.Duration) error {
	seen := told.Load() // kept, though another goroutine may raise told meanwhile
	if s.look(told, seen) {
		return nil
	}
	if s.isClosed() {
		return fmt.Errorf("poll: wait: %w", fi.EBADF)
	}
	deadline := wait.Deadline(timeout)
	for {
		why, armed := s.w.WaitLevel(context.Background(), 1, seen, deadline)
		s.w.Done(armed)
		switch why {
		case wait.Signalled:
			return nil
		case wait.TimedOut:
			return fi.ETIMEDOUT
		case wait.Closed:
			return fmt.Errorf("poll: wait: closed: %w", fi.ECANCELED)
		}
		if s.look(told, seen) {
			return nil
		}
		if deadline.Until() <= 0 { // others took what was there, again and again
			return fi.ETIMEDOUT
		}
	}
}

// look drives the members and reports whether one has something, or whether news is not
// seen; false for a closed set. It clears what was published first, so that a member
// that notifies from there on is not missed.
func (s *WaitSet) look(told *atomic.Uint64, seen uint64) bool {
	s.w.Mu.Lock()
	closed := s.w.Closed()
	if !closed {
		s.w.Publish(0)
	}
	s.w.Mu.Unlock()
	if closed {
		return false
	}
	s.w.Poll()
	s.mu.Lock()
	ready := false
	for _, m := range s.members {
		ready = m.Renew() || ready
	}
	s.mu.Unlock()
	if ready {
		s.notify() // other waiters of the set look too
	}
	news := s.news.Load() // last, so that it counts every change before
	if !ready && news == seen {
		return false
	}
	told.Store(news)
	return true
}

func (s *WaitSet) isClosed() bool {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	return s.w.Closed()
}

// Signal ends one Wait, now or the next.
func (s *WaitSet) Signal() error {
	if err := s.w.Signal(); err != nil {
		return fmt.Errorf("poll: signal: %w", err)
	}
	return nil
}

// FD is the descriptor to wait on by other means, after TryWait. It is readable while a
// member may have something. If a counter is a member, it is for one goroutine; the
// others use a Watch. fi.EINVAL: the set was not opened with fi.WaitFD.
func (s *WaitSet) FD() (int, error) { return s.w.FD() }

// Chan is the channel to wait on by other means, after TryWait. It is used as FD is.
// fi.EINVAL: the set was not opened with fi.WaitMutexCond.
func (s *WaitSet) Chan() (<-chan struct{}, error) { return s.w.Chan() }

// TryWait prepares to wait on FD or Chan by other means than Wait. After nil the caller
// may wait. fi.EAGAIN: a member has something.
func (s *WaitSet) TryWait() error {
	seen := s.told.Load()
	if s.look(&s.told, seen) {
		return fi.EAGAIN
	}
	if err := s.w.TryWait(); err != nil {
		return err
	}
	if s.news.Load() != seen { // a change in between, which FD and Chan do not show
		return fi.EAGAIN
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

// A group is the WaitSet as its members see it.
type group WaitSet

var _ wait.Set = (*group)(nil)

func init() { door.WaitSet = func(s any) wait.Set { return (*group)(s.(*WaitSet)) } }

func (s *group) Join(m *wait.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("wait set is closed: %w", fi.EINVAL)
	}
	s.members = append(s.members, m)
	return nil
}

func (s *group) Leave(m *wait.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.members, m); i >= 0 {
		s.members = slices.Delete(s.members, i, i+1)
	}
}

// Signal ends one Wait of the set.
func (s *group) Signal() error { return (*WaitSet)(s).Signal() }

func (s *group) Notify() { (*WaitSet)(s).notify() }

func (s *WaitSet) notify() {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	if !s.w.Closed() {
		s.w.Publish(1)
	}
}

// News implements wait.Set: the value of a counter has changed. It wakes all waiters.
func (s *group) News() {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	if !s.w.Closed() {
		s.news.Add(1)
		s.w.Level()
	}
}

func (s *group) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ps []wait.Progress
	for _, m := range s.members {
		ps = append(ps, m.Driven()...)
	}
	s.w.Drive(ps)
}
