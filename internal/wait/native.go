package wait

import (
	"fmt"
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
)

// native is what the application waits on by itself: a descriptor, or a channel,
// which is what a mutex and condition variable are in Go: one that several
// goroutines can wait on, together with other things. Both are level triggered:
// ready while something is there. All of it is guarded by the Object's Mu.
type native struct {
	shown bool // the application has it
	// undo is what the next read that finds nothing has to do something about,
	// raised and held, in one word that it looks at without the lock.
	undo atomic.Int32
	fd   descriptor
	ch   chan struct{}
}

const (
	raised int32 = 1 << iota // it is ready
	held                     // Object.held is not nil
)

// raise makes it ready. It does nothing to one that the application never asked
// for.
func (n *native) raise() {
	if !n.shown {
		return
	}
	if n.ch != nil {
		select {
		case n.ch <- struct{}{}:
		default:
		}
	} else if n.undo.Load()&raised == 0 {
		n.fd.raise()
	}
	n.undo.Or(raised)
}

func (n *native) lower() {
	if n.undo.Load()&raised == 0 {
		return
	}
	if n.ch != nil {
		select {
		case <-n.ch:
		default:
		}
	} else {
		n.fd.lower()
	}
	n.undo.And(^raised)
}

func (n *native) close() {
	if n.ch != nil {
		n.raise()
	} else {
		n.fd.close()
	}
	n.shown = false
}

// FD is the descriptor to wait on (R-CQ-39). fi.EINVAL if o was not opened with
// fi.WaitFD (R-CQ-40).
func (o *Object) FD() (int, error) {
	if o.kind != fi.WaitFD {
		return -1, fmt.Errorf("descriptor of %v: %w", o.kind, fi.EINVAL)
	}
	if err := o.show(); err != nil {
		return -1, err
	}
	return o.native.fd.number(), nil
}

// Chan is the channel to wait on. fi.EINVAL if o was not opened with
// fi.WaitMutexCond.
func (o *Object) Chan() (<-chan struct{}, error) {
	if o.kind != fi.WaitMutexCond {
		return nil, fmt.Errorf("channel of %v: %w", o.kind, fi.EINVAL)
	}
	if err := o.show(); err != nil {
		return nil, err
	}
	return o.native.ch, nil
}

func (o *Object) show() error {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.closed {
		return fi.EBADF
	}
	o.native.shown = true
	o.watched.Store(true)
	if o.have.Load() > 0 || o.signals.Load() > 0 {
		o.native.raise()
	}
	return nil
}

// Lower is called by a read that found nothing: what the application waits on is
// no longer ready, unless a Signal is under way to one who waits.
func (o *Object) Lower() {
	if o.native.undo.Load()&raised == 0 {
		return
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.have.Load() == 0 && o.signals.Load() == 0 {
		o.native.lower()
	}
}

// TryWait says that the application is about to wait by itself (fi_trywait). It
// returns nil if it may: progress happens without the application from here on,
// until it polls again. fi.EAGAIN: there is something to read, or a Signal.
// fi.EINVAL: there is nothing to wait on.
func (o *Object) TryWait() error {
	if o.kind == fi.WaitNone || o.kind == fi.WaitSet {
		return fmt.Errorf("trywait on %v: %w", o.kind, fi.EINVAL)
	}
	if o.have.Load() == 0 {
		o.poll()
	}
	if o.have.Load() == 0 {
		o.hold()
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	switch {
	case o.closed:
		return fi.EBADF
	case o.have.Load() > 0 || o.takeSignalLocked():
		return fi.EAGAIN
	}
	o.native.lower()
	return nil
}

// hold arms what o drives until release.
func (o *Object) hold() {
	ps := o.list.Load()
	arm(*ps)
	o.Mu.Lock()
	old := o.held
	o.held = ps
	o.native.undo.Or(held)
	o.Mu.Unlock()
	if old != nil {
		disarm(*old)
	}
}

// Release disarms what TryWait armed.
func (o *Object) Release() {
	o.Mu.Lock()
	old := o.held
	o.held = nil
	o.native.undo.And(^held)
	o.Mu.Unlock()
	if old != nil {
		disarm(*old)
	}
}
