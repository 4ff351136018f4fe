package driver

import "time"

const (
	// leaveLook is how long Leave sleeps on the socket before it asks the FEP again whether
	// there is something to wait for.
	leaveLook = 5 * time.Millisecond
	// leaveTurns is the most turns in a row.
	leaveTurns = 64
)

// Leave is the first half of Close. Posts fail from now on, and receives end at once. Then
// Leave drives the FEP, at most for most, while something is to wait for (transport.FEP.Lingers) from peers that are
// silent for less than patience. meanwhile, if it is not nil, is called between turns, every millisecond or more often.
// After Close, or a second time, Leave does nothing.
func (d *Driver) Leave(most, patience time.Duration, meanwhile func()) {
	d.h.lock()
	if d.closed {
		d.unlock()
		return
	}
	d.h.take()
	d.intake()
	now := d.clock.tick()
	end := now + most
	left := make(chan struct{})
	defer close(left)
	d.closed, d.left = true, left
	d.quit(nil)
	d.quiet.on = false
	d.core.Leave(now)
	d.deliver()
	d.transmit()
	d.kick()
	d.unlock()
	d.stopped()
	for {
		d.h.lock()
		for n := 0; n < leaveTurns && d.turn(true); n++ {
		}
		now = d.clock.now
		more := now < end && !d.over && !d.out.dead && d.core.Lingers(now, patience)
		wait := min(d.deadline(), now+leaveLook, end) - now
		d.unlock()
		if !more {
			return
		}
		if meanwhile != nil {
			meanwhile()
			wait = min(wait, time.Millisecond)
		}
		if wait > 0 && d.conn.Wait(wait) != nil {
			return
		}
	}
}

// stopped waits until the progress goroutine has ended, if it was started. d.closed must be
// set.
func (d *Driver) stopped() {
	d.h.lock()
	done := d.sleeper.done
	d.unlock()
	if done != nil {
		select {
		case d.sleeper.wake <- struct{}{}: // it may sleep on the clock beside a reader that naps
		default:
		}
		<-done
	}
}

// Flushed reports whether every send that was posted is delivered or has failed, and makes the
// ACKs that are owed to peers leave. It takes a turn first. delivered, if it is not nil, is asked instead of the
// FEP, for one of several endpoints.
func (d *Driver) Flushed(delivered func() bool) (yes bool) {
	if delivered == nil {
		delivered = d.core.Flushed
	}
	d.h.lock()
	if !d.closed {
		d.h.take()
		d.intake()
		d.turn(true)
		d.core.AckAll(d.clock.now)
		d.transmit()
		yes = delivered() && !d.work.stuck && len(d.out.unsent) == 0
		d.rouse()
	}
	d.unlock()
	return yes
}
