package uet

import (
	"context"
	"log/slog"
	"sync"
)

// A scribe is the handler of an endpoint's logger. Lines are logged while locks are held; a
// goroutine of the scribe writes them later without locks, so that a logger may block and may
// call the endpoint (F37).
type scribe struct {
	slog.Handler
	lines *lines
}

// maxLines is how many lines may wait for a logger. Further lines are dropped, and the next
// line that is written says how many. Arbitrary: enough for all reasons during some seconds
// (docs/faults.md rule 7).
const maxLines = 64

// lines are the lines that wait, in order.
type lines struct {
	mu   sync.Mutex // guards what follows
	left []line
	lost int
	done chan struct{} // closed when none is left; nil means none is
}

type line struct {
	to     slog.Handler
	record slog.Record
}

// newScribe returns a logger that passes its lines on to log, which may be nil.
func newScribe(log *slog.Logger) (*slog.Logger, *lines) {
	l := new(lines)
	if log == nil {
		return slog.New(slog.DiscardHandler), l
	}
	return slog.New(&scribe{log.Handler(), l}), l
}

func (s *scribe) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &scribe{s.Handler.WithAttrs(attrs), s.lines}
}

func (s *scribe) WithGroup(name string) slog.Handler {
	return &scribe{s.Handler.WithGroup(name), s.lines}
}

// Handle queues a line for the goroutine.
func (s *scribe) Handle(_ context.Context, r slog.Record) error {
	l := s.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.left) == maxLines {
		l.lost++
		return nil
	}
	r = r.Clone()
	if l.lost > 0 {
		r.AddAttrs(slog.Int("lines_lost", l.lost))
		l.lost = 0
	}
	l.left = append(l.left, line{s.Handler, r})
	if l.done == nil {
		l.done = make(chan struct{})
		go l.write()
	}
	return nil
}

// write is the goroutine. It ends when no line is left; flush waits for it.
func (l *lines) write() {
	for {
		l.mu.Lock()
		left := l.left
		l.left = nil
		if len(left) == 0 {
			close(l.done)
			l.done = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, x := range left {
			_ = x.to.Handle(context.Background(), x.record) // a logger that fails has no other log
		}
	}
}

// flush waits until all lines are written.
func (l *lines) flush() {
	l.mu.Lock()
	done := l.done
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}
