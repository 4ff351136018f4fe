package wait

import (
	"fmt"
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
)

// native is a descriptor or channel for applications that wait by themselves. A channel is to
// Go what a mutex and condition variable are to C: several goroutines can wait on it, together
// with other things. Both are level triggered: ready while something is there. The Object's Mu
// guards all of it.
type native struct {
	shown bool // the application has it
	// undo has the bits raised and isArmed in one word, so that a read that finds nothing can
	// see without the lock whether unwatch has work.
	undo atomic.Int32
	fd   descriptor
	ch   chan struct{}
}

const (
	raised  int32 = 1 << iota // it is ready
	isArmed                   // Object.tryArmed is not nil
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
		close(n.ch) // wakes all goroutines that sleep on it
	} else {
		n.raise() // to close a descriptor wakes nobody
		n.fd.close()
	}
	n.shown = false
}

// FD returns the descriptor to wait on (R-CQ-39). It returns fi.EINVAL if o was not opened with
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

// Chan returns the channel to wait on. It returns fi.EINVAL if o was not opened with
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
	changed := o.tryArmed != nil && o.tryArmed != o.list.Load() // relist tells this only if native is shown
	if o.ready() || o.signals.Load() > 0 || changed {
		o.native.raise()
	}
	return nil
}

// TryWait prepares the application to wait by itself (fi_trywait). After nil it may wait:
// progress happens without it until the descriptor or channel becomes ready and somebody polls.
// fi.EAGAIN means that there is something to read, or a Signal; fi.EINVAL that there is nothing
// to wait on.
//
// Only TryWait makes the descriptor or channel unready, and the progress that it armed ends
// only while that is ready. So a goroutine that empties the queue does no harm to another one
// that sleeps: that one is still driven, or is woken.
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
			return nil // there is nothing to sleep on, so nothing is armed
		}
		o.armUntilRelease()
		// Something may have come since, and another goroutine may have read it.
		if o.native.undo.Load() == isArmed {
			return nil
		}
	}
}

// armUntilRelease arms the endpoints until release, unless o was closed meanwhile.
func (o *Object) armUntilRelease() {
	ps := o.drive()
	arm(ps.now)
	o.Mu.Lock()
	if o.closed { // nobody will call release
		o.Mu.Unlock()
		disarm(ps.now)
		return
	}
	old := o.tryArmed
	o.tryArmed = ps
	o.native.undo.Or(isArmed)
	if ps != o.list.Load() { // relist did not see what is armed
		o.native.raise()
	}
	o.Mu.Unlock()
	if old != nil {
		disarm(old.now)
	}
}

// Release disarms what TryWait armed and ends the Group.
func (o *Object) Release() {
	o.release(false)
	o.joining.Lock()
	defer o.joining.Unlock()
	o.ungroup()
}

// unwatch undoes TryWait for a caller that polls while the descriptor or channel is ready. A
// receive from a channel wakes only one sleeper, so unwatch makes the channel ready again for
// the next.
func (o *Object) unwatch(undo int32) {
	if undo&isArmed != 0 {
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

// release disarms what TryWait armed. With onlyRaised it does nothing while another goroutine
// may still sleep.
func (o *Object) release(onlyRaised bool) {
	o.Mu.Lock()
	if onlyRaised && o.native.undo.Load() != isArmed|raised {
		o.Mu.Unlock()
		return
	}
	old := o.tryArmed
	o.tryArmed = nil
	o.native.undo.And(^isArmed)
	o.Mu.Unlock()
	if old != nil {
		disarm(old.now)
	}
}
