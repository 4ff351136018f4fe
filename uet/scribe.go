package uet

import (
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A scribe is the zap core of an endpoint's logger. Lines are logged while locks are held;
// a goroutine of the scribe writes them later without locks, so that a logger may block and
// may call the endpoint (F37).
type scribe struct {
	zapcore.Core
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
	to     zapcore.Core
	entry  zapcore.Entry
	fields []zap.Field
}

// newScribe returns a logger that passes its lines on to log, which may be nil.
func newScribe(log *zap.Logger) (*zap.Logger, *lines) {
	l := new(lines)
	if log == nil {
		return zap.NewNop(), l
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return &scribe{c, l} })), l
}

func (s *scribe) With(fields []zap.Field) zapcore.Core { return &scribe{s.Core.With(fields), s.lines} }

// Check accepts each line of a level that the core logs. The goroutine asks the core later
// whether it accepts this line.
func (s *scribe) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !s.Enabled(e.Level) {
		return c
	}
	return c.AddCore(e, s)
}

// Write queues a line for the goroutine.
func (s *scribe) Write(e zapcore.Entry, fields []zap.Field) error {
	l := s.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.left) == maxLines {
		l.lost++
		return nil
	}
	if l.lost > 0 {
		fields = append(fields[:len(fields):len(fields)], zap.Int("lines_lost", l.lost))
		l.lost = 0
	}
	l.left = append(l.left, line{s.Core, e, fields})
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
			if c := x.to.Check(x.entry, nil); c != nil {
				c.Write(x.fields...)
			}
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
