package driver

import (
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

const (
	// sparePosts is the number of posts without an empty poll between them after which the
	// poster counts as busy. Each end of a ping-pong has an empty poll at least every fifth
	// round.
	sparePosts = 32
	// staleMax is the most posts of a burst that share one reading of the clock.
	staleMax = 4

	// A burst is full with gatherMax messages in the queue or gatherBytes. It need not wait
	// any longer.
	gatherMax   = dgram.MaxSegments
	gatherBytes = 32 << 10
	// gatherGap is the longest time between two posts of a poster that keeps posting.
	gatherGap = 20 * time.Microsecond
	// gatherWait is how long gathered packets wait for a poster that neither posts nor polls.
	// Then the progress goroutine sends them.
	gatherWait = 50 * time.Microsecond
)

// A poster describes how the application posts.
type poster struct {
	last     time.Duration // time of the last send
	turns    uint64        // Stats.Turns at the last send
	empty    uint64        // Stats.Empty when it last changed between sends
	spare    int           // posts left for which the thread counts as idle; 0 or less means busy
	sameTime int           // posts since the clock was read
	more     bool          // the last send had FI_MORE
}

// A company describes the packets that wait to leave together.
type company struct {
	waits bool
	since time.Duration
	bytes int
}

// Post hands an operation to the FEP. It borrows op. to is the destination as Owner.Resolve
// knows it, or NoAddr. more is FI_MORE: another post follows at once.
//
// It fails with an error of package transport or of Owner.Resolve. The operation then has
// no event. If the lock is taken, Post leaves the operation to the holder and returns nil.
// Later errors go to Owner.Refused.
func (d *Driver) Post(op *transport.Op, to uint64, more bool) error {
	if !d.h.try() {
		return d.leave(op, to, more)
	}
	err := error(nil)
	if d.h.left() || d.barred() {
		err = d.admit(op.Kind)
	}
	if err == nil {
		d.op = *op // not before try: by now the caller's stores are in memory
		if err = d.resolve(to); err == nil {
			if receives(op.Kind) {
				return d.SubmitRecv()
			}
			return d.SubmitSend(more)
		}
		d.op = transport.Op{}
	}
	d.unlock()
	return err
}

// PostOf is Post for one of several endpoints of the FEP. It waits for the lock: operations left to the holder would lie in
// one queue with those of other endpoints, where one that finds no room holds up the rest. With the lock it
// asks open whether the endpoint is. If not it fails with transport.ErrClosed.
func (d *Driver) PostOf(open func() bool, op *transport.Op, to uint64, more bool) error {
	d.h.lock()
	err := error(nil)
	switch {
	case !open():
		err = transport.ErrClosed
	case d.h.left() || d.barred():
		err = d.admit(op.Kind)
	}
	if err == nil {
		d.op = *op
		if err = d.resolve(to); err == nil {
			if receives(op.Kind) {
				return d.SubmitRecv()
			}
			return d.SubmitSend(more)
		}
		d.op = transport.Op{}
	}
	d.unlock()
	return err
}

// TryLock takes the lock if it is free. TryLock, Op and SubmitSend or SubmitRecv together
// are a Post without a copy: the caller fills in the Op, names the peer as Owner.Resolve
// does, and submits the Op or calls Return.
func (d *Driver) TryLock() bool { return d.h.try() }

// Op returns the operation to fill in, which is zero. It returns nil if other work comes
// first.
func (d *Driver) Op() *transport.Op {
	if d.h.left() || d.barred() {
		return nil
	}
	return &d.op
}

// Return releases the lock without posting the Op.
func (d *Driver) Return() {
	d.op = transport.Op{}
	d.unlock()
}

// SubmitSend posts the Op, a send, and releases the lock. It fails with an error of package
// transport.
func (d *Driver) SubmitSend(more bool) error {
	err := d.send(more)
	d.op = transport.Op{}
	if err == nil {
		d.turns.inline++
		if d.armed.Load() > 0 || d.members != nil && d.core.Events() > 0 { // a reader of a group arms that
			d.settle()
		}
	}
	d.rouse() // a post without a PDC makes one close
	if d.h.free(); d.h.left() {
		d.again()
	}
	return err
}

// SubmitRecv is SubmitSend for a receive, which may complete at once.
func (d *Driver) SubmitRecv() error {
	d.quiet.on = false
	d.poster.sameTime++
	err := d.core.Post(d.clock.now, &d.op) // it starts no timer, so an old time suffices
	d.op = transport.Op{}
	if err == nil {
		d.turns.inline++
		if d.core.Events() > 0 {
			d.settle()
		}
		d.rouse()
	} else {
		err = d.refuse(err)
	}
	if d.h.free(); d.h.left() {
		d.again()
	}
	return err
}

// barred reports whether admit must be called before an operation is posted.
func (d *Driver) barred() bool { return d.work.stuck || d.closed }

// admit does the work that comes before a new operation, and returns an error if the
// operation cannot be posted.
func (d *Driver) admit(k transport.OpKind) error {
	if d.h.take() || d.work.stuck {
		// This is served, whether or not the post succeeds.
		d.intake()
		d.settle()
		d.rouse()
	}
	switch {
	case d.closed:
		return transport.ErrClosed
	case d.work.stuck && d.work.of(k).peek() != nil:
		return d.refuse(transport.ErrFull) // it must not overtake the one that waits
	}
	return nil
}

// feed posts d.op to the destination to.
func (d *Driver) feed(to uint64, more bool) error {
	if err := d.resolve(to); err != nil {
		return err
	}
	if !receives(d.op.Kind) {
		return d.send(more)
	}
	d.quiet.on = false
	d.poster.sameTime++
	if err := d.core.Post(d.clock.now, &d.op); err != nil {
		return d.refuse(err)
	}
	return nil
}

// resolve sets the fields of d.op that name the peer.
func (d *Driver) resolve(to uint64) error {
	if to != NoAddr {
		if err := d.owner.Resolve(&d.op, to); err != nil {
			return d.refuse(err)
		}
	}
	return nil
}

// send posts d.op, a send. Its packets leave now or wait for company. They wait if the post
// has FI_MORE, or if earlier sends are in flight and the poster posts in quick succession.
// They leave when the poster polls, when the burst is full, when FI_MORE ends or when
// gatherWait is over. A send never waits if it is the only one on an idle endpoint. Neither
// does a send after a poll with one send in flight: that send's ACK comes behind the
// message that this one answers. With several in flight, only a send that is known to be an
// answer does not wait.
func (d *Driver) send(more bool) error {
	d.quiet.on = false
	p := &d.poster
	if p.sameTime++; !d.company.waits || p.sameTime > staleMax { // else it shares the time of the burst
		d.clock.tick()
		p.sameTime = 1
	}
	n := d.core.Sends()
	if err := d.core.Post(d.clock.now, &d.op); err != nil {
		return d.refuse(err)
	}
	now := d.clock.now
	busy := n > 1 && !d.core.Answer() || n > 0 && d.stats.Turns == p.turns
	ended := p.more && !more
	wait := more || busy && !ended && now-p.last <= gatherGap
	p.more, p.last, p.turns = more, now, d.stats.Turns
	// If the poster finds nothing to do now and then, and no other thread wants the processor,
	// one more system call is affordable, and a lone data packet leaves before its ACKs.
	// Otherwise the number of calls counts.
	if p.spare--; d.stats.Empty != p.empty {
		p.empty, p.spare = d.stats.Empty, sparePosts
	}
	if apart := p.spare > 0 && !d.cpu.shared.Load(); apart != d.told.apart {
		d.told.apart = apart
		d.core.Apart(apart)
	}
	if wait || d.company.waits {
		d.gather(wait)
	} else {
		d.transmit()
	}
	return nil
}

// gather is the rest of send if its packets, or earlier ones, wait for company.
func (d *Driver) gather(wait bool) {
	c, now := &d.company, d.clock.now
	if !c.waits {
		*c = company{waits: true, since: now}
	}
	c.bytes += d.op.Bytes()
	if wait && c.bytes < gatherBytes && now-c.since <= gatherWait && d.core.Queued() < gatherMax {
		d.stats.Gathered++
		return
	}
	if d.poster.sameTime > 1 {
		d.clock.tick()
	}
	d.transmit()
}

// refuse ends a post that failed. Gathered packets leave when a later post fails
// (R-MSG-15).
func (d *Driver) refuse(err error) error {
	if d.company.waits {
		d.clock.tick()
		d.transmit()
	}
	return err
}
