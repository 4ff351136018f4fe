package driver

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// ErrCancelled is the error that Owner.Refused gets for an operation that Cancel or Abandon
// ended.
var ErrCancelled = errors.New("driver: cancelled")

// Config has the parts that a Driver connects.
type Config struct {
	Core  Core
	Mover Mover
	Conn  Conn
	Owner Owner
	// Auto selects automatic progress: a goroutine does what is due while the application does
	// nothing. Without it the goroutine does that only while a reader waits (Arm).
	Auto bool
	// KeepSlice leaves the scheduler's slice of the caller's threads as it is (shortenSlice).
	KeepSlice bool
	// Crowd: it takes several long yields in a row, not one, to conclude that a thread does not yield.
	Crowd bool
	// Clock returns monotonic time since any moment, never 0. nil means time since New.
	Clock func() time.Duration
}

// A Driver runs one FEP. Any goroutine may call its methods. The fields that each poll
// touches come first (docs/decisions/0011).
type Driver struct {
	h handover
	// armed is the number of readers that sleep and rely on the progress goroutine.
	armed atomic.Int32
	auto  bool

	core  Core
	mover Mover
	owner Owner

	// The fields from here to op belong to the holder of h.

	clock   clock
	turns   turns
	waits   waits
	quiet   quiet
	told    told
	closed  bool          // Leave or Close was called: nothing is posted, and nobody else takes a turn
	over    bool          // Close was called
	left    chan struct{} // of a Leave; closed when it returns
	stats   Stats
	sleeper sleeper
	poster  poster
	company company
	out     outbox
	op      transport.Op // the operation being posted; zero otherwise

	work backlog
	conn Conn
	// members are those of the Groups that it is in, nil if there are none.
	members []*member
	cpu     processor

	keepSlice bool
}

// told has what the core was told last.
type told struct{ apart, paused bool }

// A quiet says whether the core has nothing to do before until, unless one of its methods
// is called.
type quiet struct {
	on    bool
	until time.Duration
}

// forever is a deadline that never comes.
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

// New makes a Driver. The Driver owns the Conn. Close closes it when no call of the Mover
// can follow.
func New(cfg Config) *Driver {
	d := &Driver{
		core:      cfg.Core,
		mover:     cfg.Mover,
		conn:      cfg.Conn,
		owner:     cfg.Owner,
		auto:      cfg.Auto,
		keepSlice: cfg.KeepSlice,
		clock:     newClock(cfg.Clock),
		sleeper:   sleeper{wake: make(chan struct{}, 1)},
	}
	if cfg.Crowd {
		d.cpu.longOnes = crowdLong - 1
	}
	d.turns.last = d.clock.tick()
	d.turns.heard = -restAfter // a new Driver rests
	if d.auto {
		d.start()
	}
	return d
}

// Cancel cancels a pending operation with the context, as transport.FEP.Cancel does, and
// reports whether there was one.
func (d *Driver) Cancel(context any) bool {
	d.h.lock()
	d.h.take()
	d.intake()
	d.quiet.on = false
	ok := !d.closed && (d.core.Cancel(d.clock.tick(), 0, context) || d.cancelQueued(context))
	if d.work.stuck {
		d.intake() // posts what was behind the cancelled request
	}
	d.settle()
	d.rouse()
	d.unlock()
	return ok
}

// Abandon ends all operations to and from the peer that to names, as transport.FEP.Abandon
// does, and those that have not reached the FEP. Their ends are delivered when it returns. It
// fails with an error of Owner.Resolve or with transport.ErrClosed, and does nothing then.
func (d *Driver) Abandon(to uint64) error {
	d.h.lock()
	defer d.unlock()
	if d.closed {
		return transport.ErrClosed
	}
	d.h.take()
	peer := transport.Op{Kind: transport.OpRecv}
	err := d.owner.Resolve(&peer, to)
	if err == nil {
		d.quiet.on = false
		d.core.Abandon(d.clock.tick(), peer.Peer)
		d.abandonQueued(peer.Peer)
	}
	d.intake() // what others left, or what has room now
	d.settle()
	d.transmit()
	d.rouse()
	return err
}

// With runs f with the lock held. f may use the Core.
func (d *Driver) With(f func()) {
	d.h.lock()
	d.quiet.on = false
	f()
	if d.members != nil {
		d.tell()
	}
	d.unlock()
}

// At is With for an f that needs the time.
func (d *Driver) At(f func(now time.Duration)) { d.With(func() { f(d.clock.tick()) }) }

// Do runs f, which may use the Core, with the lock held. Then it delivers and sends what f
// produced. After Close it does nothing.
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

// Diagnose tells what each pending operation of an endpoint, or of transport.AllEndpoints, waits for, including those that
// wait for room in the FEP.
func (d *Driver) Diagnose(id transport.EndpointID) []transport.Waiting {
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
	out := d.core.DiagnoseEndpoint(now, id)
	for i := range d.work.queues {
		d.work.queues[i].each(func(r *request) {
			d.op = r.op
			if r.to != NoAddr {
				_ = d.owner.Resolve(&d.op, r.to) // an error will be reported when it is posted
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

// Close ends every operation with an event, sends the FEP's farewell once, waits for the
// progress goroutine and closes the Conn. Nothing is delivered after it returns. A second
// Close fails with transport.ErrClosed.
func (d *Driver) Close() error {
	d.h.lock()
	if d.over {
		d.unlock()
		return transport.ErrClosed
	}
	d.h.take()
	d.intake()
	d.core.AckAll(d.clock.tick()) // tell the peers what arrived
	d.transmit()
	d.closed, d.over = true, true
	d.quit(nil)
	d.core.Close(d.clock.now)
	for i := range d.work.queues {
		d.work.queues[i].close()
	}
	d.intake() // refuses the rest, because d.closed is set
	d.deliver()
	d.transmit()
	d.out.unsent = nil
	d.rest()
	d.kick()
	d.unlock()
	d.stopped()
	if d.left != nil {
		d.conn.Wake()
		<-d.left
	}
	return d.conn.Close()
}

// unlock releases the lock. It then does the work that others left, unless one of them
// holds the lock now. Poll and the posts repeat its body because it is too long to be
// inlined.
func (d *Driver) unlock() {
	if d.h.free(); d.h.left() {
		d.again()
	}
}

// again is the rest of unlock if work was left.
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

// fail notes that the Conn cannot be used any more. It tells the owner each time, because
// only lasting trouble counts.
func (d *Driver) fail(err error) {
	d.out.dead = true
	d.owner.Trouble(err)
}
