// Package poll implements the poll sets and wait sets of fi_poll(3): a poll set looks at
// several completion queues, event queues and counters at once, a wait set waits for them.
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

// A WaitSet is one wait object for several queues and counters (fi_wait_open). A queue or
// counter joins it when it is opened with fi.WaitSet, and leaves when it is closed. A WaitSet
// is safe for concurrent use.
//
// A queue is ready while it has an entry. A counter is ready when it has changed since the
// set last reported it, even if another goroutine has read it. Several goroutines that wait
// for counters therefore use a Watch each.
type WaitSet struct {
	w wait.Object

	changes atomic.Uint64 // of counters among the members
	told    atomic.Uint64 // the value of changes that Wait or TryWait last reported

	mu      sync.Mutex // guards members; taken after a member's lock and before w's
	members []*wait.Object
	closed  bool
}

// NewWaitSet opens a wait set. It fails with fi.EINVAL for another wait object or flags.
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

// Wait waits until a member is ready or Signal is called (fi_wait). It does not say which
// member; a poll set does. A negative timeout means no limit, 0 no waiting. Wait fails with
// fi.ETIMEDOUT after the timeout, with fi.ECANCELED if the set is closed meanwhile, with
// fi.EBADF if it was closed before (as with a queue, R-CQ-38).
func (s *WaitSet) Wait(timeout time.Duration) error { return s.wait(&s.told, timeout) }

// A Watch lets one of several goroutines wait for a set. It reports every change of a
// counter, also those that other goroutines were told of.
type Watch struct {
	set  *WaitSet
	told atomic.Uint64
}

// Watch returns a new Watch. Its first Wait also reports earlier changes.
func (s *WaitSet) Watch() *Watch { return &Watch{set: s} }

// Wait is WaitSet.Wait.
func (w *Watch) Wait(timeout time.Duration) error { return w.set.wait(&w.told, timeout) }

// enough reports whether a Wait that has seen so many changes must look at the members.
func (s *WaitSet) enough(_, seen uint64) bool { return s.w.Have() > 0 || s.changes.Load() != seen }

func (s *WaitSet) wait(told *atomic.Uint64, timeout time.Duration) error {
	seen := told.Load() // once: another goroutine may raise told meanwhile
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
		if deadline.Until() <= 0 { // other readers were faster each time
			return fi.ETIMEDOUT
		}
	}
}

// look drives the members and reports whether one is ready: a queue has an entry, or changes
// differs from seen. It returns false for a closed set. It first clears what was published,
// so that it misses no later notification.
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
	changes := s.changes.Load() // last, so that it counts every earlier change
	if !ready && changes == seen {
		return false
	}
	told.Store(changes)
	return true
}

func (s *WaitSet) isClosed() bool {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	return s.w.Closed()
}

// Signal ends one Wait: one that sleeps now, or else the next.
func (s *WaitSet) Signal() error {
	if err := s.w.Signal(); err != nil {
		return fmt.Errorf("poll: signal: %w", err)
	}
	return nil
}

// FD returns the descriptor of a set opened with fi.WaitFD, for select, poll and epoll. It is
// readable while a member may be ready. Call TryWait before each wait. If a member is a
// counter, only one goroutine may use it; the others use a Watch. FD fails with fi.EINVAL for
// a set opened otherwise.
func (s *WaitSet) FD() (int, error) { return s.w.FD() }

// Chan returns the channel of a set opened with fi.WaitMutexCond. It is used as FD is. Chan
// fails with fi.EINVAL for a set opened otherwise.
func (s *WaitSet) Chan() (<-chan struct{}, error) { return s.w.Chan() }

// TryWait prepares the caller to wait on FD or Chan. If it returns nil, the caller may wait.
// fi.EAGAIN means that a member is ready.
func (s *WaitSet) TryWait() error {
	seen := s.told.Load()
	if s.look(&s.told, seen) {
		return fi.EAGAIN
	}
	if err := s.w.TryWait(); err != nil {
		return err
	}
	if s.changes.Load() != seen { // a change in between, which FD and Chan do not show
		return fi.EAGAIN
	}
	return nil
}

// Close frees the set. It fails with fi.EBUSY while it has members, with fi.EBADF the second
// time.
func (s *WaitSet) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) > 0 {
		return fmt.Errorf("poll: close wait set: it has members: %w", fi.EBUSY)
	}
	s.w.Mu.Lock()
	open := s.w.Close()
	s.w.Mu.Unlock()
	if !open {
		return fmt.Errorf("poll: close wait set: %w", fi.EBADF)
	}
	s.closed = true
	s.w.Release()
	return nil
}

// A group is the WaitSet with the methods that its members call.
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

// Signal implements wait.Set.
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
		s.changes.Add(1)
		s.w.Level()
	}
}

// Bound implements wait.Set: waiters of the set drive p, once if several members do.
func (s *group) Bound(p wait.Progress) { _ = s.w.Bind(p) } // a closed set has no members

func (s *group) Unbound(p wait.Progress) { s.w.Unbind(p) }
