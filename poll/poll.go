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
	// Progress drives the endpoints bound to it without blocking.
	Progress()
	// Poll calls Progress and reports whether there may be something to read.
	Poll() bool
	// Context returns the context that it was opened with.
	Context() any
}

// A value is a counter: a Source that reading does not empty. Changes calls Progress and
// returns a higher number than before if the counter changed, so that each set reports each
// change by itself.
type value interface{ Changes() uint64 }

// A Set is a poll set (fi_poll_open). It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	members []*member // replaced, never changed in place
	next    int       // the index at which the next Poll begins
	closed  bool
}

type member struct {
	Source
	told atomic.Uint64 // of a value: the result of Changes that the set last reported
}

func (m *member) poll() bool {
	if v, ok := m.Source.(value); ok {
		return wait.Newer(&m.told, v.Changes())
	}
	return m.Source.Poll()
}

// find returns the index of a source, -1 if it is no member.
func (s *Set) find(src Source) int {
	return slices.IndexFunc(s.members, func(m *member) bool { return m.Source == src })
}

// missing reports whether x is nil or a nil pointer.
func missing(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// NewSet opens a poll set. flags must be 0, or it fails with fi.EINVAL.
func NewSet(flags fi.Flags) (*Set, error) {
	if flags != 0 {
		return nil, fmt.Errorf("poll: open: flags %v: %w", flags, fi.EINVAL)
	}
	return new(Set), nil
}

// Add adds a source; a source that is in the set already is not added again. Add fails with
// fi.EINVAL if src is nil or flags are not 0, with fi.EBADF if the set is closed.
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

// Del removes a source. It fails with fi.EINVAL if src is not in the set or flags are not 0,
// with fi.EBADF if the set is closed.
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

// Poll drives every source. It stores the contexts of sources that may have something to
// read in contexts, as many as fit, and returns their number. The next Poll begins with the
// sources that did not fit. Poll fails with fi.EBADF if the set is closed.
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

// Close frees the set. It fails with fi.EBUSY while a source is in it, with fi.EBADF the
// second time.
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

// TryWait prepares the caller to wait on the descriptors or channels of all of ws
// (fi_trywait). If it returns nil, the caller may wait. fi.EAGAIN means that one of them has
// something to read. fi.EINVAL means that one is nil or has neither descriptor nor channel.
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
