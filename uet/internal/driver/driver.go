package driver

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// ErrCancelled is what Owner.Refused hears of a request that Cancel ended.
var ErrCancelled = errors.New("driver: cancelled")

// Config is what a Driver drives.
type Config struct {
	Core  Core
	Mover Mover
	Conn  Conn
	Owner Owner
	// Auto asks for automatic progress: a goroutine does what is due when the
	// application does nothing. Without it, that happens only while somebody
	// waits (Arm).
	Auto bool
	// Clock is monotonic time since any moment, never 0; nil: time since New.
	Clock func() time.Duration
}

// A Driver runs one FEP. Its methods may be called from any goroutine. What each
// poll touches comes first (docs/decisions/0011).
type Driver struct {
	h handover
	// armed is how many readers sleep and need the progress goroutine.
	armed atomic.Int32
	auto  bool

	core  Core
	mover Mover
	owner Owner

	// What follows belongs to the holder of h, down to work.

	clock   clock
	turns   turns
	quiet   quiet
	told    told
	closed  bool
	stats   Stats
	sleeper sleeper
	poster  poster
	company company
	out     outbox
	op      transport.Op // the operation being posted; clear at rest

	work backlog
	conn Conn
	cpu  processor
}

// told is what the core was told last.
type told struct{ apart, paused bool }

// A quiet says that the core has nothing to do before until, unless somebody calls it.
type quiet struct {
	on    bool
	until time.Duration
}

// forever is a deadline that does not come.
const forever = time.Duration(1<<63 - 1)

// Stats counts what the driver did. All values only grow.
type Stats struct {
	Turns     uint64 // turns of inline polls
	Empty     uint64 // turns that found nothing to receive
	Wakes     uint64 // times the progress goroutine woke up
	Queued    uint64 // posts that found the lock taken
	Gathered  uint64 // posts whose packets waited for company
	NoRoom    uint64 // sends that the socket had no room for
	SendError uint64 // sends that failed otherwise
}

// New makes a Driver. It owns the Conn, which Close closes when it will not call the
// Mover any more.
func New(cfg Config) *Driver {
	d := &Driver{
		core:    cfg.Core,
		mover:   cfg.Mover,
		conn:    cfg.Conn,
		owner:   cfg.Owner,
		auto:    cfg.Auto,
		clock:   newClock(cfg.Clock),
		sleeper: sleeper{wake: make(chan struct{}, 1), done: make(chan struct{})},
	}
	d.turns.last = d.clock.tick()
	d.turns.heard = -restAfter // at rest
	if d.auto {
		d.start()
	}
	return d
}

// Cancel ends a pending operation with that context, as transport.FEP.Cancel
// does, and reports whether it found one.
func (d *Driver) Cancel(context any) bool {
	d.h.lock()
	d.h.take()
	d.intake()
	d.quiet.on = false
	ok := !d.closed && (d.core.Cancel(d.clock.tick(), 0, context) || d.cancelQueued(context))
	if d.work.stuck {
		d.intake() // what was behind it
	}
	d.settle()
	d.rouse()
	d.unlock()
	return ok
}

// With runs f while it holds the lock. f may use the Core.
func (d *Driver) With(f func()) {
	d.h.lock()
	d.quiet.on = false
	f()
	d.unlock()
}

// Do runs f, which may use the Core, with the lock held, then delivers and sends
// what it made. After Close it does nothing.
func (d *Driver) Do(f func(now time.Duration)) {
	d.h.lock()
	if !d.closed {
		d.h.take()
		d.intake()
		d.quiet.on = false
		f(d.clock.tick())
		if d.work.stuck {
			d.intake()
		}
		d.settle()
		d.transmit()
		d.rouse()
	}
	d.unlock()
}

// Diagnose says what each operation waits for that has not ended, those included
// that wait for room in the FEP.
func (d *Driver) Diagnose() []transport.Waiting {
	d.h.lock()
	defer d.unlock()
	if d.closed {
		return nil
	}
	d.h.take()
	d.intake()
	d.settle()
	d.rouse()
	now := d.clock.tick()
	out := d.core.Diagnose(now)
	for i := range d.work.queues {
		d.work.queues[i].each(func(r *request) {
			d.op = r.op
			if r.to != NoAddr {
				_ = d.owner.Resolve(&d.op, r.to) // what fails says so when it is posted
			}
			out = append(out, d.core.DiagnoseRefused(now, &d.op))
		})
	}
	d.op = transport.Op{}
	return out
}

// Stats returns a copy of the counters.
func (d *Driver) Stats() Stats {
	d.h.lock()
	s := d.stats
	d.unlock()
	return s
}

// Close ends every operation with an event, gives the farewell of the FEP to
// the network once, waits for the progress goroutine and closes the Conn.
// Nothing is delivered after it returns. A second Close fails with
// transport.ErrClosed.
func (d *Driver) Close() error {
	d.h.lock()
	if d.closed {
		d.unlock()
		return transport.ErrClosed
	}
	d.h.take()
	d.intake()
	d.core.AckAll(d.clock.tick()) // the peers are to know what arrived
	d.transmit()
	d.closed = true
	d.core.Close(d.clock.now)
	for i := range d.work.queues {
		d.work.queues[i].close()
	}
	d.intake() // refuses what is left, now that d.closed is set
	d.deliver()
	d.transmit()
	d.out.unsent = nil
	d.rest()
	d.kick()
	started := d.sleeper.started
	d.unlock()
	if started {
		<-d.sleeper.done
	}
	return d.conn.Close()
}

// unlock lets go of the lock. It does the work that others left meanwhile, unless one of
// them holds the lock now. Poll and the posts write it out: it is too long to be inlined.
func (d *Driver) unlock() {
	if d.h.free(); d.h.left() {
		d.again()
	}
}

// again is the rest of unlock, when work was left.
func (d *Driver) again() {
	for again := d.h.try(); again; again = d.h.release() {
		d.served()
	}
}

// served does the work that others left.
func (d *Driver) served() {
	if d.h.take() {
		d.intake()
		d.turns.inline++
		d.settle()
		d.rouse()
	}
}

// fail notes that the Conn is of no use any more. The owner hears of it as often as
// it shows: only trouble that lasts counts.
func (d *Driver) fail(err error) {
	d.out.dead = true
	d.owner.Trouble(err)
}
