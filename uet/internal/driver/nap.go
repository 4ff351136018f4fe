package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Nap sleeps on the caller's thread until the socket has something, until a deadline of the
// FEP, at most for limit, or until Rouse. The caller then takes a turn (Poll). So no other
// thread runs between a packet and a reader that waits for it. Meanwhile the progress goroutine
// leaves the socket alone.
//
// Nap reports false, at once, if the reader must Arm: another one naps or is armed, too many
// threads of the process nap, or the Conn cannot.
func (d *Driver) Nap(limit time.Duration) bool {
	if d.armed.Load() > 0 || !nappers.enter(d.cpu.longOnes != 0 || d.Crowded()) {
		return false
	}
	defer nappers.leave()
	d.h.lock()
	s := &d.sleeper
	if d.closed || d.out.dead || s.napping || d.armed.Load() > 0 || !d.conn.Naps() {
		d.unlock()
		return false
	}
	now, t := d.clock.tick(), d.deadline()
	if t <= now || d.core.Events() > 0 || d.h.left() {
		d.unlock()
		return true
	}
	if s.watching {
		d.kick() // the goroutine leaves the socket to this call, which waits for that
	}
	s.napping, s.watching, s.until = true, true, min(t, now+limit)
	crowded := d.Crowded()
	if crowded && d.waits.left(now) >= lostAsk {
		d.ask(now)
	}
	limit = s.until - now
	short := crowded && !d.keepSlice && d.pressed(now)
	d.unlock()
	if short {
		shortenSlice()
	}
	err := d.conn.Nap(limit)
	d.h.lock()
	d.turns.woken = true
	s.napping, s.watching, s.until = false, false, forever
	if !d.closed {
		if err != nil {
			d.fail(err)
		}
		if d.auto {
			s.until = d.clock.tick() + stepBack // at the latest
		}
		if d.armed.Load() > 0 {
			d.kick() // the goroutine serves the readers that slept meanwhile
		}
	}
	d.unlock()
	return true
}

// Rouse ends a Nap that is under way, or the next one. Any goroutine may call it.
func (d *Driver) Rouse() { d.conn.Rouse() }

// nappers counts the threads of the process that Nap.
var nappers napCount

type napCount struct{ n atomic.Int32 }

// mostNappers is how many threads may nap in a process with that many processors (P): one stays
// for other goroutines, because the scheduler takes that of a napping thread away only late,
// after 10 to 20 ms. In a process with one, a thread naps only if the processor is crowded: then
// it is late anyway.
func mostNappers(procs int, crowded bool) int {
	if procs == 1 && crowded {
		return 1
	}
	return procs - 1
}

// enter counts one more, if mostNappers allows it.
func (c *napCount) enter(crowded bool) bool {
	if int(c.n.Add(1)) <= mostNappers(runtime.GOMAXPROCS(0), crowded) {
		return true
	}
	c.n.Add(-1)
	return false
}

func (c *napCount) leave() { c.n.Add(-1) }
