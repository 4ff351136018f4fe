package driver

import (
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

const (
	// recvBudget is how many trains one turn receives before it transmits. A turn also ends
	// with the first train that completes something, because the reader waits for the
	// completion and another look at the socket costs 0.4 µs.
	recvBudget = 8
	// fullEvery is how long turns may end early after a completion while no message waits to
	// be sent. Timers, ACKs and resends wait for the next full turn.
	fullEvery = 20 * time.Microsecond
	// ackHold is how long the progress goroutine leaves a due ACK to the application that it
	// has just woken. Config.AckDelay of the FEP is the other bound.
	ackHold = 20 * time.Microsecond

	// After a gap of longGap between two turns, the next turn empties the socket before it
	// looks at any timer, but receives at most drainMax trains. docs/faults.md rule 6 asks for
	// that after 100 ms; but ACKs wait in the socket also when a thread was off its processor
	// for some milliseconds. The time that they waited is no delay of the path (FEP.Paused),
	// unless the progress goroutine slept on the socket and they woke it.
	longGap  = time.Millisecond
	drainMax = 4096

	// restAfter is how long a Driver has nothing to do before it gives its slabs away. The
	// value is arbitrary; getting a slab back takes 30 ns.
	restAfter = 100 * time.Millisecond
)

// turns describes the turns so far.
type turns struct {
	slab   *dgram.Datagram // for the next train; nil at rest
	last   time.Duration   // when a turn last looked at the socket
	full   time.Duration   // when a turn last did all of its steps
	heard  time.Duration   // when a turn last received something
	inline uint64          // turns and posts by the application
	woken  bool            // a Nap ended since the last turn
}

// Poll is one turn of a reader that found its queue empty. It reports whether anything
// arrived or completed. It never blocks. It does nothing if the lock is taken.
func (d *Driver) Poll() bool {
	if !d.h.try() {
		return false
	}
	if d.closed {
		d.unlock()
		return false
	}
	d.turns.inline++
	d.stats.Turns++
	worked := d.turn(true)
	d.rouse()
	if d.h.free(); d.h.left() {
		d.again()
	}
	return worked
}

// Drain takes turns until one finds nothing, at most as many as turns. Unlike Poll it waits
// for the lock.
func (d *Driver) Drain(turns int) {
	for more := true; more && turns > 0; turns-- {
		d.h.lock()
		if more = !d.closed; more {
			more = d.turn(true)
			d.rouse()
		}
		d.unlock()
	}
}

// turn receives, advances timers, transmits and delivers. It reports whether it did
// anything. inline is false for the progress goroutine.
func (d *Driver) turn(inline bool) bool {
	more := false // there may be events
	if d.h.take() || d.work.stuck {
		d.intake()
		more = true
	}
	t := &d.turns
	if t.slab == nil {
		t.slab = slabs.get()
	}
	ok, err := d.mover.Recv(t.slab)
	if err != nil {
		d.fail(err)
	}
	now := d.clock.tick()
	gap, woken := now-t.last, t.woken
	long := gap > longGap
	t.last, t.woken = now, false
	if !ok {
		return d.idle(inline, more)
	}
	d.quiet.on = false
	t.heard = now
	if long && inline && !woken {
		if d.lose(now, gap); !d.keepSlice && d.pressed(now) {
			shortenSlice()
		}
	}
	if d.waits.told {
		d.waited(now, woken)
	} else if paused := long && !d.sleeper.watching && !woken; paused != d.told.paused {
		d.pause(paused)
	}
	d.core.Receive(now, t.slab)
	done := d.core.Events()
	if done > 0 {
		d.owner.Deliver(done) // this is d.deliver without a call
	}
	if done == 0 || long {
		done += d.drain(long, done)
	}
	if done > 0 {
		if !inline {
			// The goroutine cannot see the application's turns, so it leaves it some time.
			d.sleeper.holdAcks = d.clock.now + ackHold
		} else if d.clock.now-t.full < fullEvery && d.core.Queued() == 0 && len(d.out.unsent) == 0 && !d.work.stuck {
			return true // the application waits for what was delivered
		}
	}
	d.finish(more)
	return true
}

// finish is the rest of a turn that received something: timers, packets, events.
func (d *Driver) finish(more bool) {
	now := d.clock.now
	d.turns.full = now
	if t := d.core.NextTimeout(); t != 0 && t <= now {
		d.core.Advance(now)
		more = true
	}
	if more || d.unsent() {
		d.transmit()
	}
	if d.work.stuck {
		d.intake()
	}
	if d.core.Events() > 0 {
		d.settle()
	}
}

// drain receives the other trains of a turn, whose first train delivered done events. It
// returns how many events it delivered. long says that the turn comes after a longGap.
func (d *Driver) drain(long bool, done int) (n int) {
	budget := recvBudget
	if long {
		budget = drainMax
	}
	for trains := 1; trains < budget && (done+n == 0 || budget > recvBudget); trains++ {
		ok, err := d.mover.Recv(d.turns.slab)
		if err != nil {
			d.fail(err)
		}
		now := d.clock.tick()
		if gap := now - d.turns.last; gap > longGap {
			budget = drainMax
			if d.lose(now, gap); !d.waits.told {
				d.pause(true)
			}
		}
		d.turns.last = now
		if !ok {
			break
		}
		d.turns.heard = now
		if d.waits.told {
			d.waited(now, false)
		}
		d.core.Receive(now, d.turns.slab)
		n += d.deliver()
	}
	return n
}

// pause tells the FEP whether the trains that it receives may have waited for this turn.
func (d *Driver) pause(on bool) {
	d.told.paused = on
	d.core.Paused(on)
}

// idle is the rest of a turn that received nothing.
func (d *Driver) idle(inline, more bool) bool {
	now := d.clock.now
	d.turns.full = now
	d.stats.Empty++
	if now-d.turns.heard > restAfter {
		d.rest()
	}
	for {
		remote, ok := d.conn.Unreachable()
		if !ok {
			break
		}
		d.quiet.on, more = false, true
		d.core.Unreachable(now, remote)
	}
	if d.quiet.on && now < d.quiet.until {
		return false
	}
	d.quiet.on = false
	late := d.timeout() <= now
	if late {
		d.core.Advance(now)
		more = true
	}
	// The application's turn is over when it polls and finds nothing. The goroutine cannot see
	// those turns, so it leaves the application some time.
	over := inline || now >= d.sleeper.holdAcks
	if over {
		d.sleeper.holdAcks = 0
		d.core.Flush(now)
	}
	if more || d.unsent() {
		d.transmit()
	} else {
		d.quiet = quiet{on: over, until: d.timeout()}
	}
	if d.work.stuck && late {
		d.intake()
	}
	return d.settle() > 0 // includes events of a post: an injected send may complete at once
}

// timeout returns the next timeout of the core, forever if there is none.
func (d *Driver) timeout() time.Duration {
	if t := d.core.NextTimeout(); t != 0 {
		return t
	}
	return forever
}

// settle delivers events, then retries queued posts; it repeats while that makes progress.
// It does not leave the posts to the next turn, which may be far off.
func (d *Driver) settle() int {
	done := d.deliver()
	for n := done; d.work.stuck && n > 0; done += n {
		d.intake()
		n = d.deliver()
	}
	return done
}

// deliver hands events to the owner and returns how many.
func (d *Driver) deliver() int {
	n := d.core.Events()
	if n > 0 {
		d.owner.Deliver(n)
	}
	return n
}

// rest gives back the slabs that hold nothing.
func (d *Driver) rest() {
	if d.turns.slab != nil {
		slabs.put(d.turns.slab)
		d.turns.slab = nil
	}
	d.out.rest()
}
