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
	// undo holds the bits raised and held in one word, so that a read that finds
	// nothing can see without the lock whether unwatch has work.
	undo atomic.Int32
	fd   descriptor
	ch   chan struct{}
}

const (
	raised int32 = 1 << iota // it is ready
	held                     // Object.held is not nil
)

// raise makes it ready. It does nothing if the application never asked for it.
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
		close(n.ch) // it wakes all goroutines that sleep on it
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

// TryWait prepares the application to wait by itself (fi_trywait). After nil it may
// wait: progress happens without it until the descriptor or channel has become ready
// and somebody polls. fi.EAGAIN: there is something to read, or a Signal. fi.EINVAL:
// there is nothing to wait on.
//
// Only TryWait makes the descriptor or channel unready, and the progress that it armed
// ends only while that is ready. So a goroutine that reads the queue empty takes
// nothing away from another that sleeps: the other is either still driven, or woken.
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

// hold arms the endpoints until release, unless o was closed meanwhile.
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

// unwatch undoes TryWait for a caller that polls while the descriptor or channel is
// ready. Receiving from a channel wakes one sleeper only, so it makes the channel ready
// again for the next.
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

// release disarms what TryWait armed; with onlyRaised it does not while another
// goroutine may still sleep.
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
