package driver

import (
	"runtime"
	"time"
)

// start begins the progress goroutine; Close waits for it. The caller holds the
// lock or nobody else knows d yet.
func (d *Driver) start() {
	d.started = true
	go d.progress()
}

// progress is the progress goroutine. It takes a turn, then sleeps:
//
//   - on the socket until the next deadline, when somebody waits (Arm) or the
//     application with automatic progress does nothing by itself;
//   - on the clock, away from the socket, while the application polls, or when the
//     socket is broken;
//   - until it is kicked, when nobody needs it.
//
// A sleeping goroutine says in until and watching what it sleeps on. Both are
// set and read under the lock, so a poster that moved the deadline knows whether
// to kick it.
func (d *Driver) progress() {
	defer close(d.done)
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		d.h.lock()
		if d.closed {
			d.unlock()
			return
		}
		d.stats.Wakes++
		d.until = 0
		wait := d.watch()
		socket := d.watching
		d.unlock()
		switch {
		case wait == 0:
			runtime.Gosched() // those that were just woken go first
		case socket:
			if err := d.conn.Wait(sleepTime(wait)); err != nil {
				d.With(func() { d.fail(err) })
			}
		default:
			timer.Reset(wait)
			select {
			case <-d.wake:
			case <-timer.C:
			}
		}
	}
}

// sleepTime is a timeout as Conn.Wait takes it.
func sleepTime(wait time.Duration) time.Duration {
	if wait == forever {
		return -1
	}
	return wait
}

// watch takes a turn and decides how long to sleep, 0 for not at all, and
// whether on the socket (d.watching).
func (d *Driver) watch() time.Duration {
	polled := d.inline != d.seen
	d.seen = d.inline
	armed := d.armed.Load() > 0
	switch {
	case armed:
	case !d.auto && (polled || d.holdAcks == 0):
		d.watching, d.until = false, forever
		return forever
	case polled:
		// The application drives the FEP; look again soon whether it still does.
		now := d.time()
		d.watching, d.until = false, now+stepBack
		return stepBack
	}
	more := d.turn(false)
	d.watching = false
	if more {
		return 0
	}
	now := d.lastTurn
	t := d.deadline(now)
	d.until = t
	d.watching = !d.dead
	if t-now > restAfter {
		d.rest()
	}
	switch {
	case t == forever:
		return forever
	case t <= now:
		d.until = 0
		return 0
	}
	return t - now
}
