package driver

import (
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

const (
	// sparePosts is after how many posts without an empty poll between them the
	// poster has no time to spare. Two ends of a ping-pong have an empty poll in
	// every fifth round at least.
	sparePosts = 32
	// staleMax is how many posts of a burst share one reading of the clock.
	staleMax = 4

	// gatherMax messages or gatherBytes in the queue are a full burst: nothing
	// to wait for.
	gatherMax   = dgram.MaxSegments
	gatherBytes = 32 << 10
	// gatherGap is how soon the next post must come for the poster to count as
	// one that keeps posting.
	gatherGap = 20 * time.Microsecond
	// gatherWait is how long gathered packets wait for a poster that neither
	// posts nor polls, before the progress goroutine sends them.
	gatherWait = 50 * time.Microsecond
)

// A poster is what the driver knows of how the application posts.
type poster struct {
	last     time.Duration // the last send
	turns    uint64        // Stats.Turns at that time
	empty    uint64        // Stats.Empty when an empty poll was seen last
	spare    int           // > 0: how many more posts count as those of an idle thread
	sameTime int           // posts since the clock was read
	more     bool          // the last send came with FI_MORE
}

// A company is packets that wait to leave together.
type company struct {
	waits bool
	since time.Duration
	bytes int
}

// Post hands an operation to the FEP. It borrows op. to is the destination as
// Owner.Resolve knows it, or NoAddr. more is FI_MORE: another post follows at
// once.
//
// It fails with an error of package transport or one of Owner.Resolve; then the
// operation makes no event. When the lock is taken, Post leaves the operation
// to the holder and returns nil; what goes wrong then is reported to
// Owner.Refused.
func (d *Driver) Post(op *transport.Op, to uint64, more bool) error {
	if !d.h.try() {
		return d.leave(op, to, more)
	}
	err := error(nil)
	if d.h.left() || d.barred() {
		err = d.admit(op.Kind)
	}
	if err == nil {
		d.op = *op // here, not before try: the caller's stores are in memory by now
		if err = d.resolve(to); err == nil {
			if op.Kind.Recv() {
				return d.SubmitRecv()
			}
			return d.SubmitSend(more)
		}
		d.op = transport.Op{}
	}
	d.unlock()
	return err
}

// TryLock takes the lock if it is free. TryLock, Op and SubmitSend or SubmitRecv are Post
// without a copy: the caller fills in the Op, names the peer as Owner.Resolve does,
// and submits it, or calls Return.
func (d *Driver) TryLock() bool { return d.h.try() }

// Op is the operation to post, clear; nil if other work comes first.
func (d *Driver) Op() *transport.Op {
	if d.h.left() || d.barred() {
		return nil
	}
	return &d.op
}

// Return lets go of the lock. Nothing is posted, whatever is in the Op.
func (d *Driver) Return() {
	d.op = transport.Op{}
	d.unlock()
}

// SubmitSend posts the Op, a send, and lets go of the lock. It fails with an error of
// package transport.
func (d *Driver) SubmitSend(more bool) error {
	err := d.send(more)
	d.op = transport.Op{}
	if err == nil {
		d.turns.inline++
		if d.armed.Load() > 0 {
			d.settle()
		}
		d.rouse()
	}
	if d.h.free(); d.h.left() {
		d.again()
	}
	return err
}

// SubmitRecv is SubmitSend for a receive, which may end at once.
func (d *Driver) SubmitRecv() error {
	d.quiet.on = false
	d.poster.sameTime++
	err := d.core.Post(d.clock.now, &d.op) // it starts no timer, so an old reading does
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

// barred reports whether admit must see an operation before it is posted.
func (d *Driver) barred() bool { return d.work.stuck || d.closed }

// admit does what comes before an operation that is posted, and says why it cannot
// be.
func (d *Driver) admit(k transport.OpKind) error {
	if d.h.take() || d.work.stuck {
		// As served, whatever becomes of this post.
		d.intake()
		d.settle()
		d.rouse()
	}
	switch {
	case d.closed:
		return transport.ErrClosed
	case d.work.stuck && d.work.of(k).peek() != nil:
		return d.refuse(transport.ErrFull) // not past the one that waits
	}
	return nil
}

// feed posts d.op to what to names.
func (d *Driver) feed(to uint64, more bool) error {
	if err := d.resolve(to); err != nil {
		return err
	}
	if !d.op.Kind.Recv() {
		return d.send(more)
	}
	d.quiet.on = false
	d.poster.sameTime++
	if err := d.core.Post(d.clock.now, &d.op); err != nil {
		return d.refuse(err)
	}
	return nil
}

// resolve names the peer in d.op.
func (d *Driver) resolve(to uint64) error {
	if to != NoAddr {
		if err := d.owner.Resolve(&d.op, to); err != nil {
			return d.refuse(err)
		}
	}
	return nil
}

// send posts d.op, a send, whose packets leave now or wait for company. They wait with
// FI_MORE, or when earlier sends are in flight and the poster posts in quick succession;
// until it polls, a full burst is there, FI_MORE ends or gatherWait is over. A send alone on
// an idle endpoint never waits, nor does one after a poll with one send in flight, whose ACK
// comes behind what this one answers; or with several, if it is known to be an answer.
func (d *Driver) send(more bool) error {
	d.quiet.on = false
	p := &d.poster
	if p.sameTime++; !d.company.waits || p.sameTime > staleMax { // else the time of the burst
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
	// Where the poster now and then finds nothing to do, and nobody else wants the
	// processor, there is time for a call more, and what the peer waits for leaves
	// first. Else a call less counts.
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

// gather is the rest of send where the packets wait for company, or others have.
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

// refuse ends a post that failed. R-MSG-15: work that waited for company leaves
// when a later post fails.
func (d *Driver) refuse(err error) error {
	if d.company.waits {
		d.clock.tick()
		d.transmit()
	}
	return err
}
