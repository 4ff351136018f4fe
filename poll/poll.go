package poll

import (
	"fmt"
	"slices"
	"sync"

	"github.com/uetkit/uetkit/fi"
)

// A Source is a completion queue, event queue or counter.
type Source interface {
	// Progress drives the endpoints behind it without blocking.
	Progress()
	// Poll is Progress that reports whether something may be there to read: for a
	// counter, whether it changed since the last Poll that said so.
	Poll() bool
	// Context is the context it was opened with.
	Context() any
}

// A Set is a poll set (fi_poll_open). It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	sources []Source // replaced, never changed in place
	next    int      // where the next Poll begins to look
	closed  bool
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
	if src == nil || flags != 0 {
		return fmt.Errorf("poll: add: %w", fi.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("poll: add: %w", fi.EBADF)
	}
	if !slices.Contains(s.sources, src) {
		s.sources = append(slices.Clip(s.sources), src)
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
	i := slices.Index(s.sources, src)
	if i < 0 || flags != 0 {
		return fmt.Errorf("poll: del: %w", fi.EINVAL)
	}
	s.sources = slices.Concat(s.sources[:i], s.sources[i+1:])
	return nil
}

// Poll drives every source and fills contexts with those of sources that may
// have something to read, as many as fit. It reports how many. Those that did
// not fit come first the next time.
func (s *Set) Poll(contexts []any) (int, error) {
	s.mu.Lock()
	sources, first, closed := s.sources, s.next, s.closed
	s.mu.Unlock()
	if closed {
		return 0, fmt.Errorf("poll: %w", fi.EBADF)
	}
	n := 0
	for i := range sources {
		at := (first + i) % len(sources)
		src := sources[at]
		switch {
		case n == len(contexts):
			src.Progress()
		case src.Poll():
			contexts[n] = src.Context()
			if n++; n == len(contexts) {
				s.mu.Lock()
				s.next = at + 1
				s.mu.Unlock()
			}
		}
	}
	return n, nil
}

// Close frees the set. Its sources stay open. fi.EBADF the second time.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("poll: close: %w", fi.EBADF)
	}
	s.closed, s.sources = true, nil
	return nil
}

// A Waiter is a queue, counter or wait set with a wait object.
type Waiter interface{ TryWait() error }

// TryWait says that the application is about to wait on the wait objects of all
// of ws by other means than a call of ours (fi_trywait). It may if it gets nil.
// fi.EAGAIN: one of them has something to read. fi.EINVAL: one of them has no
// wait object of its own.
func TryWait(ws ...Waiter) error {
	for _, w := range ws {
		if err := w.TryWait(); err != nil {
			return err
		}
	}
	return nil
}
