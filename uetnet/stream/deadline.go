package stream

import (
	"context"
	"os"
	"sync"
	"time"
)

// A deadline is a context for the reads or the writes of a Conn, which ends at a time that can be
// changed, or for good when the Conn closes.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	over   chan struct{} // closed when the time has come
	closed bool
}

func (d *deadline) init() { d.over = make(chan struct{}) }

// set sets the time; the zero time stands for none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if d.timer != nil && !d.timer.Stop() {
		<-d.over // it has fired; wait until the channel is closed
	}
	d.timer = nil
	past := isClosed(d.over)
	if t.IsZero() || time.Until(t) > 0 {
		if past {
			d.over = make(chan struct{})
		}
		if !t.IsZero() {
			over := d.over
			d.timer = time.AfterFunc(time.Until(t), func() { close(over) })
		}
		return
	}
	if !past {
		close(d.over)
	}
}

// end ends the deadline for good.
func (d *deadline) end() {
	d.set(time.Unix(1, 0))
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
}

// ctx returns the context of one call.
func (d *deadline) ctx() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return until{context.Background(), d.over}
}

// passed reports whether the time has come.
func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return isClosed(d.over)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// until is a context that ends with a channel.
type until struct {
	context.Context
	over <-chan struct{}
}

func (u until) Done() <-chan struct{} { return u.over }

func (u until) Err() error {
	if isClosed(u.over) {
		return os.ErrDeadlineExceeded
	}
	return nil
}
