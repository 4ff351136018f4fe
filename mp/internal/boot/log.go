package boot

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A logger writes the lines of Options.Debug. With no writer it writes none.
type logger struct {
	who atomic.Pointer[int] // the rank, once it is known
	mu  sync.Mutex          // one line at a time
	w   io.Writer
}

func (l *logger) printf(format string, args ...any) {
	if l.w == nil {
		return
	}
	line := "mp boot: "
	if r := l.who.Load(); r != nil {
		line = fmt.Sprintf("mp boot: rank %d: ", *r)
	}
	line += fmt.Sprintf(format, args...) + "\n"
	l.mu.Lock()
	defer l.mu.Unlock()
	io.WriteString(l.w, line)
}

// every calls f each interval until stop is called, which waits for the last call to end.
func every(interval time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}
