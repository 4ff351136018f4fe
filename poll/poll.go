package poll

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// A Source is a completion queue, event queue or counter.
type Source interface {
	// Progress drives the endpoints behind it without blocking.
	Progress()
	// Poll is Progress that reports whether something may be there to read.
	Poll() bool
	// Context is the context it was opened with.
	Context() any
}

// A value is a Source that reading takes nothing away from, a counter. Changes is
// Poll that returns a higher number than before if it changed: so each set tells of
// a change, whatever others are told.
type value interface{ Changes() uint64 }

// A Set is a poll set (fi_poll_open). It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	members []*member // replaced, never changed in place
	next    int       // where the next Poll begins to look
	closed  bool
}

type member struct {
	Source
	told atomic.Uint64 // of a value: Changes as the set last told
}

func (m *member) poll() bool {
	if v, ok := m.Source.(value); ok {
		return wait.Newer(&m.told, v.Changes())
	}
	return m.Source.Poll()
}

// find is the place of a source, -1 if it is not in.
func (s *Set) find(src Source) int {
	return slices.IndexFunc(s.members, func(m *member) bool { return m.Source == src })
}

// missing reports whether x is nil, or a pointer that is.
func missing(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// NewSet opens a poll set. fi.EINVAL: flags, which must be 0.
func NewSet(flags fi.Flags) (*Set, error) {
	if flags != 0 {
		return nil, fmt.Errorf("poll: open: flags %v: %w", flags, fi.EINVAL)
	}
	return new(Set), nil
}

// Add adds a source. Adding it twice is adding it once. fi.EINVAL: it is nil, or
// flags are not 0. fi.EBADF: the set is closed.
func (s *Set) Add(src Source, flags fi.Flags) error {
	if missing(src) || flags != 0 {
		return fmt.Errorf("poll: add: %w", fi.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("poll: add: %w", fi.EBADF)
	}
	if s.find(src) < 0 {
		s.members = append(slices.Clip(s.members), &member{Source: src})
	}
	return nil
}

// Del takes a source out. fi.EINVAL: it is not in, or flags are not 0. fi.EBADF:
// the set is closed.
func (s *Set) Del(src Source, flags fi.Flags) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("poll: del: %w", fi.EBADF)
	}
	i := s.find(src)
	if i < 0 || flags != 0 {
		return fmt.Errorf("poll: del: %w", fi.EINVAL)
	}
	s.members = slices.Concat(s.members[:i], s.members[i+1:])
	return nil
}

// Poll drives every source and fills contexts with those of sources that may
// have something to read, as many as fit. It reports how many. Those that did
// not fit come first the next time.
func (s *Set) Poll(contexts []any) (int, error) {
	s.mu.Lock()
	members, first, closed := s.members, s.next, s.closed
	s.mu.Unlock()
	if closed {
		return 0, fmt.Errorf("poll: %w", fi.EBADF)
	}
	n := 0
	for i := range members {
		at := (first + i) % len(members)
		m := members[at]
		switch {
		case n == len(contexts):
			m.Progress()
		case m.poll():
			contexts[n] = m.Context()
			if n++; n == len(contexts) {
				s.mu.Lock()
				s.next = at + 1
				s.mu.Unlock()
			}
		}
	}
	return n, nil
}

// Close frees the set. fi.EBUSY while a source is in it, fi.EBADF the second time.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("poll: close: %w", fi.EBADF)
	case len(s.members) > 0:
		return fmt.Errorf("poll: close: sources are in it: %w", fi.EBUSY)
	}
	s.closed = true
	return nil
}

// A Waiter is a queue, counter or wait set with a wait object.
type Waiter interface{ TryWait() error }

// TryWait prepares to wait on the wait objects of all of ws by other means than a call
// of this module (fi_trywait). After nil the caller may wait. fi.EAGAIN: one of them
// has something to read. fi.EINVAL: one of them has no wait object of its own, or is
// nil.
func TryWait(ws ...Waiter) error {
	for _, w := range ws {
		if missing(w) {
			return fmt.Errorf("poll: trywait: %w", fi.EINVAL)
		}
	}
	for _, w := range ws {
		if err := w.TryWait(); err != nil {
			return err
		}
	}
	return nil
}
