package driver

import (
	"runtime"
	"time"
)

// stepBack is how long the progress goroutine stays away from the socket while the
// application polls. It is also how late the goroutine may be for a deadline that moved
// earlier while it slept.
const stepBack = 2 * time.Millisecond

// A sleeper is the progress goroutine as the holder of the lock sees it. until and watching
// describe its sleep, so that a poster that moved the deadline knows whether to wake it.
type sleeper struct {
	started  bool
	watching bool          // it sleeps on the socket, not on the clock
	napping  bool          // a reader sleeps on the socket instead (Nap): watching and until tell of that
	until    time.Duration // when it wakes by itself; 0 while it runs or is about to run
	seen     uint64        // turns.inline when it last woke
	holdAcks time.Duration // until when it leaves ACKs to the application; 0 means that it does not
	wake     chan struct{} // ends a sleep on the clock
	done     chan struct{} // closed when it has ended
}

// start begins the progress goroutine, for which Close waits. The caller holds the lock, or
// no other goroutine knows d yet.
func (d *Driver) start() {
	d.sleeper.started = true
	d.sleeper.done = make(chan struct{})
	go progress(d, d.sleeper.wake, d.sleeper.done)
}

// A worker is what a progress goroutine works for: a Driver or a Group.
type worker interface {
	// step takes turns. It returns how long to sleep then, 0 for not at all, and whether on the
	// socket; over means that the goroutine is to end.
	step() (wait time.Duration, socket, over bool)
	// sleep sleeps on the socket.
	sleep(timeout time.Duration)
}

// progress is the progress goroutine of w. It takes turns and sleeps between them:
//
//   - on the socket until the next deadline, while a reader waits (Arm), or with automatic
//     progress while the application is idle;
//   - on the clock, away from the socket, while the application polls, or when the socket is
//     broken;
//   - until it is kicked, when it is not needed.
//
// While a reader naps on the socket it looks on the clock whether that is still so. wake ends a
// sleep on the clock. done is closed at last.
func progress(w worker, wake <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	timer := time.NewTimer(forever)
	timer.Stop() // where time is virtual it would end with it
	defer timer.Stop()
	for {
		wait, socket, over := w.step()
		switch {
		case over:
			return
		case wait == 0:
			runtime.Gosched() // the readers that were just woken go first
		case socket:
			w.sleep(sleepTime(wait))
		default:
			if wait == forever {
				timer.Stop()
			} else {
				timer.Reset(wait)
			}
			select {
			case <-wake:
			case <-timer.C:
			}
		}
	}
}

// step is a turn of the progress goroutine, which ends when that of a Group does its work.
func (d *Driver) step() (wait time.Duration, socket, over bool) {
	d.h.lock()
	defer d.unlock()
	s := &d.sleeper
	switch {
	case d.closed:
		return 0, false, true
	case len(d.members) > 0 && d.armed.Load() == 0 && !s.napping:
		s.started, s.watching, s.until = false, false, 0
		d.conn.Forgo() // the group waits
		return 0, false, true
	}
	d.stats.Wakes++
	if s.napping {
		return stepBack, false, false
	}
	s.until = 0
	wait = d.watch()
	return wait, s.watching, false
}

func (d *Driver) sleep(timeout time.Duration) {
	if err := d.conn.Wait(timeout); err != nil {
		d.With(func() { d.fail(err) })
	}
}

// sleepTime converts a timeout for Conn.Wait.
func sleepTime(wait time.Duration) time.Duration {
	if wait == forever {
		return -1
	}
	return wait
}

// watch takes a turn. It returns how long to sleep, 0 for not at all, and sets watching if
// the sleep is on the socket.
func (d *Driver) watch() time.Duration {
	s := &d.sleeper
	polled := d.turns.inline != s.seen
	s.seen = d.turns.inline
	switch {
	case d.armed.Load() > 0:
	case !d.auto && (polled || s.holdAcks == 0):
		s.watching, s.until = false, forever
		return forever
	case polled:
		// The application drives the FEP. Look again soon whether it still does.
		s.watching, s.until = false, d.clock.tick()+stepBack
		return stepBack
	}
	more := d.turn(false)
	if d.members != nil {
		d.tell()
	}
	s.watching = false
	if more {
		return 0
	}
	now, t := d.clock.now, d.deadline()
	s.until = t
	s.watching = !d.out.dead
	if t-now > restAfter {
		d.rest()
	}
	switch {
	case t == forever:
		return forever
	case t <= now:
		s.until = 0
		return 0
	}
	return t - now
}

// deadline is the latest time of the next turn.
func (d *Driver) deadline() time.Duration {
	t := d.quiet.until
	if !d.quiet.on {
		t = d.timeout()
	}
	if d.company.waits {
		t = min(t, d.company.since+gatherWait)
	}
	if d.sleeper.holdAcks != 0 {
		t = min(t, d.sleeper.holdAcks)
	}
	switch {
	case len(d.out.unsent) > 0:
		t = min(t, d.out.retryAt)
	case d.out.surplus:
		t = d.clock.now
	}
	return t
}

// rouse wakes the progress goroutine, or the reader that naps, if it would sleep too long past the
// deadline.
func (d *Driver) rouse() {
	if d.sleeper.until != 0 || d.members != nil {
		d.rouseLate()
	}
}

// rouseLate is rouse when the goroutine sleeps. It does nothing if nobody relies on it.
func (d *Driver) rouseLate() {
	if d.members != nil {
		if d.tell(); d.sleeper.until == 0 {
			return
		}
	}
	slack := stepBack
	switch {
	case d.sleeper.napping || d.armed.Load() > 0:
		slack = gatherWait
	case !d.auto:
		return
	}
	until := d.sleeper.until
	if until-d.turns.last <= slack {
		return // no later than after a deadline that moves
	}
	if t := d.deadline(); t != forever && t+slack < until {
		d.kick()
	}
}

// kick ends the sleep of the progress goroutine, or of the reader that naps, if it sleeps.
func (d *Driver) kick() {
	s := &d.sleeper
	switch {
	case s.until == 0:
		return // it is awake and looks at everything before it sleeps
	case s.napping:
		d.conn.Rouse()
	case s.watching:
		d.conn.Wake()
	default:
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	s.until = 0
}

// Arm says that a reader sleeps until an event is delivered. The progress goroutine watches
// the socket from now on until Disarm.
func (d *Driver) Arm() {
	d.armed.Add(1)
	d.h.lock()
	if !d.closed {
		d.settle() // events that came while no reader slept
		switch {
		case !d.sleeper.started:
			d.start()
		case !d.sleeper.watching:
			d.kick()
		default:
			d.rouse() // it was not told of deadlines while no reader slept
		}
	}
	d.unlock()
}

// Disarm ends one Arm.
func (d *Driver) Disarm() { d.armed.Add(-1) }
