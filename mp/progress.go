package mp

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// Who waits drives
//
// One goroutine at a time reads the completion queue: the driver. It ends the requests of all
// others, too. Others that wait sleep until their request is done, or until the driver leaves
// and hands over to one of them.

const (
	// firstLook is how long a wait sleeps before it arranges to be woken by its context.
	firstLook = time.Millisecond
	// tickEvery is how often a driver looks after peers from which nothing comes.
	tickEvery = 250 * time.Millisecond
	// batch is how many completions are read at once.
	batch = 32
)

// until is what a wait waits for: one request, or all or some of many.
type until struct {
	one  *request
	many []Request
	some bool
}

func (u *until) met() bool {
	if u.one != nil {
		return u.one.done.Load()
	}
	for _, q := range u.many {
		if r, err := q.open(); err == nil && r.done.Load() == u.some {
			return u.some
		}
	}
	return !u.some
}

// listen makes the requests wake wt, or nobody if it is nil.
func (u *until) listen(wt *waiter) {
	if u.one != nil {
		u.one.waiter.Store(wt)
	}
	for _, q := range u.many {
		if r, err := q.open(); err == nil {
			r.waiter.Store(wt)
		}
	}
}

// A waiter is a goroutine that sleeps while another drives.
type waiter struct {
	ch         chan struct{}
	parked     bool
	prev, next *waiter // in World.parked; next also in World.spare
}

func (wt *waiter) wake() {
	select {
	case wt.ch <- struct{}{}:
	default:
	}
}

// waiter returns a waiter, under the lock. Spare ones are kept in the world and not in a pool of
// the process, because a channel made in a bubble of testing/synctest must stay there.
func (w *World) waiter() *waiter {
	wt := w.spare
	if wt == nil {
		return &waiter{ch: make(chan struct{}, 1)}
	}
	w.spare, wt.next = wt.next, nil
	return wt
}

// spared takes a waiter back, under the lock.
func (w *World) spared(wt *waiter) {
	select {
	case <-wt.ch:
	default:
	}
	w.spare, wt.next = wt, w.spare
}

// A driver reads the completion queue.
type driver struct {
	driving atomic.Bool
	// The rest belongs to who has set driving.
	entries [batch]cq.Entry
	err     cq.Error
	turns   int
	ticked  time.Duration
}

// wait returns nil when u is met, else the error of ctx.
func (w *World) wait(ctx context.Context, u until) error {
	if u.one != nil && u.one.kind == opColl {
		return u.one.watch(ctx)
	}
	for !u.met() {
		if w.drv.driving.CompareAndSwap(false, true) {
			var err error
			if !u.met() { // who finished it before looked for a driver in vain
				err = w.drive(ctx, &u)
			}
			w.release()
			if err != nil {
				return err
			}
			continue
		}
		if err := w.park(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// release ends driving and hands over.
func (w *World) release() {
	w.drv.driving.Store(false)
	w.handOver()
}

// handOver wakes one sleeper if nobody drives.
func (w *World) handOver() {
	if w.sleepers.Load() == 0 {
		return
	}
	w.mu.Lock()
	if wt := w.parked; wt != nil && !w.drv.driving.Load() {
		w.unpark(wt)
		wt.wake()
	}
	w.mu.Unlock()
}

func (w *World) unpark(wt *waiter) {
	if !wt.parked {
		return
	}
	wt.parked = false
	w.sleepers.Add(-1)
	if wt.prev != nil {
		wt.prev.next = wt.next
	} else {
		w.parked = wt.next
	}
	if wt.next != nil {
		wt.next.prev = wt.prev
	}
	wt.prev, wt.next = nil, nil
}

// park sleeps until a request of u is done, the driver leaves, or ctx ends.
func (w *World) park(ctx context.Context, u until) error {
	w.mu.Lock()
	wt := w.waiter()
	wt.parked = true
	wt.next = w.parked
	if w.parked != nil {
		w.parked.prev = wt
	}
	w.parked = wt
	w.sleepers.Add(1)
	w.mu.Unlock()
	u.listen(wt)

	var err error
	// Listed first, then looked: who ends a request or leaves later finds the waiter.
	if !u.met() && w.drv.driving.Load() {
		select {
		case <-wt.ch:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	u.listen(nil)
	w.mu.Lock()
	w.unpark(wt)
	w.spared(wt)
	w.mu.Unlock()
	if err != nil || u.met() {
		w.handOver() // the wake-up may have been meant for somebody who drives
	}
	return err
}

// poke makes the progress that needs no waiting. It reports whether there was any.
func (w *World) poke() bool {
	if !w.drv.driving.CompareAndSwap(false, true) {
		return false
	}
	err := w.turn(0)
	w.release()
	return err == nil
}

// kick makes a driver that sleeps look at what it waits for.
func (w *World) kick() {
	if w.drv.driving.Load() {
		_ = w.cq.Signal()
	}
}

// drive reads completions until u is met or ctx ends.
func (w *World) drive(ctx context.Context, u *until) error {
	look := tickEvery
	if ctx.Done() != nil {
		look = firstLook
	}
	var stop func() bool
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		err := w.turn(look)
		switch {
		case u.met():
			return nil
		case err == nil:
			continue
		case !errors.Is(err, fi.EAGAIN):
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if stop == nil && ctx.Done() != nil {
			stop = context.AfterFunc(ctx, w.kick)
			look = tickEvery
		}
		w.tick()
	}
}

// turn waits for completions, at most for the time given, and deals with them. It fails with
// fi.EAGAIN if there were none.
func (w *World) turn(limit time.Duration) error {
	d := &w.drv
	n, err := 0, error(nil)
	if limit == 0 {
		n, err = w.cq.Read(d.entries[:])
	} else {
		n, err = w.cq.SRead(d.entries[:], 1, limit)
	}
	for i := range n {
		e := &d.entries[i]
		if r, ok := e.Context.(*request); ok {
			r.completed(e)
		}
		e.Context, e.Buf = nil, nil
	}
	switch {
	case errors.Is(err, fi.EAVAIL):
		if _, err = w.cq.ReadErr(&d.err, 0); err == nil {
			if r, ok := d.err.Context.(*request); ok {
				r.failed(&d.err)
			}
			d.err = cq.Error{}
		}
	case errors.Is(err, fi.EBADF), errors.Is(err, fi.ECANCELED):
		return ErrClosed
	}
	if w.backlog.Load() > 0 {
		w.postBacklog()
	}
	if d.turns++; d.turns%256 == 0 {
		w.tick()
	}
	return err
}

// finish makes a request done. The caller does not touch it afterwards, unless it is its own.
func (r *request) finish(err error) {
	w := r.w
	if r.listed {
		w.mu.Lock()
		w.unlist(r)
		w.mu.Unlock()
	}
	r.err = err
	if r.detached {
		w.settled(r)
		r.free()
		return
	}
	if whole := r.parent; whole != nil {
		first := r == whole.first()
		if r.done.Store(true); r.kind == opRecv {
			r.free() // those of a send go with the whole
		}
		whole.partEnded(err, first)
		return
	}
	aside := r.kind == opColl
	r.done.Store(true)
	if wt := r.waiter.Load(); wt != nil {
		wt.wake()
	} else if aside {
		w.kick()
	}
}
