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
		close(n.ch) // all who sleep on it learn of the end
	} else {
		n.raise() // closing a descriptor wakes nobody
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
	changed := o.held != nil && o.held != o.list.Load() // as setList says if it is shown
	if o.ready() || o.signals.Load() > 0 || changed {
		o.native.raise()
	}
	return nil
}

// TryWait says that the application is about to wait by itself (fi_trywait). It
// returns nil if it may: progress happens without the application from here on,
// until what it waits on has become ready and somebody polls. fi.EAGAIN: there is
// something to read, or a Signal. fi.EINVAL: there is nothing to wait on.
//
// Only TryWait makes what the application waits on unready, and progress that it
// armed ends only while that is ready. So one thread that reads the queue empty
// takes nothing away from another that sleeps: it is either still driven, or
// woken.
func (o *Object) TryWait() error {
	if o.kind == fi.WaitNone || o.kind == fi.WaitSet {
		return fmt.Errorf("trywait on %v: %w", o.kind, fi.EINVAL)
	}
	if !o.ready() {
		o.poll()
	}
	for {
		o.Mu.Lock()
		switch {
		case o.closed:
			o.Mu.Unlock()
			return fi.EBADF
		case o.ready() || o.TakeSignal():
			o.Mu.Unlock()
			return fi.EAGAIN
		}
		o.native.lower()
		o.Mu.Unlock()
		if o.kind != fi.WaitFD && o.kind != fi.WaitMutexCond {
			return nil // nothing to sleep on, so nothing is armed
		}
		o.hold()
		// Something may have come, and gone to another, since.
		if o.native.undo.Load() == held {
			return nil
		}
	}
}

// hold arms what o drives until release. If o was closed meanwhile it does nothing.
func (o *Object) hold() {
	ps := o.list.Load()
	arm(*ps)
	o.Mu.Lock()
	if o.closed { // nobody calls release any more
		o.Mu.Unlock()
		disarm(*ps)
		return
	}
	old := o.held
	o.held = ps
	o.native.undo.Or(held)
	if ps != o.list.Load() { // setList did not see what is armed
		o.native.raise()
	}
	o.Mu.Unlock()
	if old != nil {
		disarm(*old)
	}
}

// Release disarms what TryWait armed.
func (o *Object) Release() { o.release(false) }

// unwatch is what a poll does when what the application waits on is ready: it
// needs no progress made for it. A channel wakes one of those who sleep on it;
// who comes by passes the token on to the next.
func (o *Object) unwatch(undo int32) {
	if undo&held != 0 {
		o.release(true)
	}
	if c := o.native.ch; c != nil && len(c) == 0 {
		o.Mu.Lock()
		if o.native.undo.Load()&raised != 0 {
			o.native.raise()
		}
		o.Mu.Unlock()
	}
}

// release is Release; onlyRaised: unless somebody may still sleep.
func (o *Object) release(onlyRaised bool) {
	o.Mu.Lock()
	if onlyRaised && o.native.undo.Load() != held|raised {
		o.Mu.Unlock()
		return
	}
	old := o.held
	o.held = nil
	o.native.undo.And(^held)
	o.Mu.Unlock()
	if old != nil {
		disarm(*old)
	}
}
