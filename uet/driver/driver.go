package driver

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/dgram"
)

// Bounds of a turn and of waiting for company. Measured where a comment says
// so, else reasoned.
const (
	// recvBudget is how many trains one turn receives before it transmits. A
	// turn also ends with the first train that completes something: the reader
	// is waiting for it, and another look at the socket costs 0.4 µs.
	recvBudget = 8
	// sendBudget is how many trains one turn sends before it looks at the
	// socket again: about a window on a fast path.
	sendBudget = 16
	// fullEvery is how long turns that completed something may end there, while
	// no message waits to be sent: timers, ACKs and resends come with the next.
	fullEvery = 20 * time.Microsecond
	// batchLen is how many small trains go into one SendBatch; a train of
	// batchWhole bytes or more is sent at once, while it is in cache.
	batchLen   = 16
	batchWhole = 8 << 10

	// sparePosts is after how many posts without an empty poll between them the
	// poster has no time to spare. Two ends of a ping-pong have an empty poll in
	// every fifth round at least.
	sparePosts = 32
	// gatherMax messages or gatherBytes in the queue are a full burst: nothing
	// to wait for.
	gatherMax   = dgram.MaxSegments
	gatherBytes = 32 << 10
	// gatherGap is how soon the next post must come for the poster to count as
	// one that keeps posting.
	gatherGap = 20 * time.Microsecond
	// staleMax is how many posts of a burst share one reading of the clock.
	staleMax = 4
	// gatherWait is how long gathered packets wait for a poster that neither
	// posts nor polls, before the progress goroutine sends them.
	gatherWait = 50 * time.Microsecond

	// stepBack is how long the progress goroutine stays away from the socket
	// when the application polls; also how late it may be for a deadline that
	// moved earlier while it slept.
	stepBack = 2 * time.Millisecond
	// ackHold is how long the progress goroutine leaves a due ACK to the
	// application that it has just woken (Config.AckDelay of the FEP is the
	// other bound).
	ackHold = 20 * time.Microsecond
	// retryWait is when a train that found no room in the socket is tried again.
	retryWait = 50 * time.Microsecond

	// longGap between two turns makes the next one empty the socket before any
	// timer is judged, but receive no more than drainMax trains.
	// docs/faults.md rule 6 asks for that after 100 ms; a thread that was off its processor for
	// some milliseconds has ACKs waiting as well. How long they waited is no delay of
	// the path (FEP.Paused), unless the progress goroutine slept on the socket and
	// they woke it.
	longGap  = time.Millisecond
	drainMax = 4096

	// goschedEvery is how many Yields let other threads run before one lets
	// other goroutines run.
	goschedEvery = 32
	// aloneMax tells a sched_yield that came back at once (0.1 to 0.8 µs here)
	// from one that let another thread run.
	aloneMax = 1500 * time.Nanosecond
	// aloneAfter is how many that came back at once, one after the other, tell
	// that nobody else wants the processor any more: another thread that only
	// looks and yields is back as fast.
	aloneAfter = 4
)

const forever = time.Duration(1<<63 - 1)

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
	clock clock

	// What follows belongs to the holder of h, down to queue.

	rx      *dgram.Datagram // nil at rest, as those of tx
	apart   bool            // what the FEP was told, as is paused
	paused  bool
	surplus bool // the last transmit stopped at its budget
	stuck   bool // a queued request waits for room in the FEP
	closed  bool
	barred  bool // stuck or closed
	dead    bool // the Conn failed
	// still: the core has nothing to do before due unless somebody calls it.
	still     bool
	gathering bool
	more      bool // the last send came with FI_MORE
	watching  bool // the progress goroutine sleeps on the socket, not on the clock
	started   bool

	due      time.Duration
	now      time.Duration // the last reading of the clock
	lastTurn time.Duration
	lastFull time.Duration // of the last turn that went to its end
	lastRecv time.Duration // of the last turn that received something
	// inline counts turns and posts of the application.
	inline uint64
	// until is when the progress goroutine wakes by itself; 0 while it runs or
	// is about to.
	until time.Duration
	stats Stats

	lastPost   time.Duration
	postTurn   uint64 // Stats.Turns then
	postEmpty  uint64 // Stats.Empty then
	spare      int    // > 0: how many posts more are taken for those of an idle thread
	sameTime   int    // posts since the clock was read
	gatherFrom time.Duration
	gathered   int // bytes since gatherFrom
	holdAcks   time.Duration
	retryAt    time.Duration
	unsent     []*dgram.Datagram // tail of tx that the socket had no room for
	tx         [batchLen]*dgram.Datagram
	op         transport.Op // the operation being posted; clear at rest
	seen       uint64       // inline at the last wake-up of the progress goroutine

	queue [2]queue // sends, receives
	conn  Conn
	wake  chan struct{}
	done  chan struct{}

	yields atomic.Uint32
	// shared: somebody else wants the processor, by the Yields that measured; alone
	// is how many in a row found nobody since.
	shared atomic.Bool
	alone  atomic.Uint32
}

// Stats counts what the driver did. All values only grow.
type Stats struct {
	Turns     uint64 // turns of inline polls
	Empty     uint64 // those that found nothing to receive
	Wakes     uint64 // times the progress goroutine woke up
	Queued    uint64 // posts that found the lock taken
	Gathered  uint64 // posts whose packets waited for company
	NoRoom    uint64 // sends that the socket had no room for
	SendError uint64 // sends that failed otherwise
}

// New makes a Driver. It takes the Conn, which Close closes when it will not call the
// Mover any more.
func New(cfg Config) *Driver {
	d := &Driver{
		core:  cfg.Core,
		mover: cfg.Mover,
		conn:  cfg.Conn,
		owner: cfg.Owner,
		auto:  cfg.Auto,
		clock: newClock(cfg.Clock),
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
	}
	d.lastTurn = d.time()
	d.lastRecv = -restAfter // at rest
	if d.auto {
		d.start()
	}
	return d
}

// time reads the clock.
func (d *Driver) time() time.Duration {
	d.now = d.clock.now()
	return d.now
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
	if d.h.left() || d.barred {
		err = d.admit(op.Kind)
	}
	if err == nil {
		d.op = *op // what the caller stored in it is in memory since try: wide pieces do not stall
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

// TryLock, Op and SubmitSend or SubmitRecv are Post without a copy. TryLock takes the
// lock if it is free; who has it fills in the Op, names the peer as Owner.Resolve does,
// and submits it, or calls Return.
func (d *Driver) TryLock() bool { return d.h.try() }

// Op is the operation to post, clear; nil if something is to be done before.
func (d *Driver) Op() *transport.Op {
	if d.h.left() || d.barred {
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
		d.inline++
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
	d.still = false
	d.sameTime++
	err := d.core.Post(d.now, &d.op) // it starts no timer: there is no need to know the time
	d.op = transport.Op{}
	if err == nil {
		d.inline++
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

// admit does what comes before an operation that is posted, and says why it cannot
// be.
func (d *Driver) admit(k transport.OpKind) error {
	if d.h.take() || d.stuck {
		// As served, whatever becomes of this post.
		d.intake()
		d.settle()
		d.rouse()
	}
	switch {
	case d.closed:
		return transport.ErrClosed
	case d.stuck && d.queue[queueOf(k)].peek() != nil:
		return d.refuse(transport.ErrFull) // not past the one that waits
	}
	return nil
}

// queueOf is the index of the queue for operations of a kind.
func queueOf(k transport.OpKind) int {
	if k.Recv() {
		return 1
	}
	return 0
}

// feed posts d.op to what to names.
func (d *Driver) feed(to uint64, more bool) error {
	if err := d.resolve(to); err != nil {
		return err
	}
	if !d.op.Kind.Recv() {
		return d.send(more)
	}
	d.still = false
	d.sameTime++
	if err := d.core.Post(d.now, &d.op); err != nil {
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

// send posts d.op, a send, whose packets leave now or wait for more of their kind.
// They wait with FI_MORE, or when earlier sends are in flight and the poster posts
// in quick succession; until it polls, a full burst is queued, FI_MORE ends or
// gatherWait is over. A lone send on an idle endpoint never waits, nor does one
// after a poll with one send in flight, whose ACK comes behind what this one answers;
// or with several, if it is known to be an answer.
func (d *Driver) send(more bool) error {
	d.still = false
	// A burst is posted at one time: a reading of the clock costs as much as the
	// rest of a post.
	if d.sameTime++; !d.gathering || d.sameTime > staleMax {
		d.time()
		d.sameTime = 1
	}
	n := d.core.Sends()
	if err := d.core.Post(d.now, &d.op); err != nil {
		return d.refuse(err)
	}
	now := d.now
	busy := n > 1 && !d.core.Answer() || n > 0 && d.stats.Turns == d.postTurn
	ended := d.more && !more
	wait := more || busy && !ended && now-d.lastPost <= gatherGap
	d.more, d.lastPost, d.postTurn = more, now, d.stats.Turns
	// Where the poster now and then finds nothing to do, and nobody else wants the
	// processor, there is time for a call more, and what the peer waits for leaves
	// first. Else a call less counts.
	if d.spare--; d.stats.Empty != d.postEmpty {
		d.postEmpty, d.spare = d.stats.Empty, sparePosts
	}
	if apart := d.spare > 0 && !d.shared.Load(); apart != d.apart {
		d.apart = apart
		d.core.Apart(apart)
	}
	if wait || d.gathering {
		return d.gather(wait)
	}
	d.transmit(now)
	return nil
}

// gather is the rest of send where the packets wait for company, or others have.
func (d *Driver) gather(wait bool) error {
	now := d.now
	if !d.gathering {
		d.gathering, d.gatherFrom, d.gathered = true, now, 0
	}
	d.gathered += d.op.Bytes()
	if wait && d.gathered < gatherBytes && now-d.gatherFrom <= gatherWait && d.core.Queued() < gatherMax {
		d.stats.Gathered++
		return nil
	}
	if d.sameTime > 1 {
		now = d.time()
	}
	d.transmit(now)
	return nil
}

// refuse ends a post that failed. R-MSG-15: work that waited for company leaves
// when a later post fails.
func (d *Driver) refuse(err error) error {
	if d.gathering {
		d.transmit(d.time())
	}
	return err
}

// leave puts a request into the queue because the lock is taken.
func (d *Driver) leave(op *transport.Op, to uint64, more bool) error {
	if to != NoAddr {
		if err := d.owner.Known(to); err != nil {
			return err
		}
	}
	if err := d.queue[queueOf(op.Kind)].put(op, to, more); err != nil {
		return err
	}
	if d.h.offer() {
		d.served()
		d.unlock()
	}
	return nil
}

// intake posts what lies in the queues. A request that finds no room in the FEP
// stays, and with it those behind it, until a completion makes room: its poster
// was told that it is accepted. Receives go first, for the sends may be waiting
// for the peer's.
func (d *Driver) intake() {
	d.stuck, d.barred = false, d.closed
	for i := len(d.queue) - 1; i >= 0; i-- {
		for r := d.queue[i].peek(); r != nil; r = d.queue[i].peek() {
			d.stats.Queued++
			d.op = r.op
			err := transport.ErrClosed
			if !d.closed {
				err = d.feed(r.to, r.more)
			}
			d.op = transport.Op{}
			if err == transport.ErrFull {
				d.stats.Queued--
				d.stuck, d.barred = true, true
				break
			}
			if err != nil {
				d.owner.Refused(&r.op, err)
			}
			d.queue[i].pop()
		}
	}
}

// unlock lets go of the lock and, when work was left meanwhile and nobody else
// holds it, does that work.
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
		d.inline++
		d.settle()
		d.rouse()
	}
}

// Poll is one turn of a reader that found its queue empty. It reports whether
// anything arrived or completed. It never blocks, and does nothing when somebody
// else holds the lock.
func (d *Driver) Poll() bool {
	if !d.h.try() {
		return false
	}
	if d.closed {
		d.unlock()
		return false
	}
	d.inline++
	d.stats.Turns++
	worked := d.turn(true)
	d.rouse()
	if d.h.free(); d.h.left() {
		d.again()
	}
	return worked
}

// Drain takes turns until one finds nothing, at most so many. Unlike Poll it waits
// for who holds the lock.
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

// turn receives, advances, transmits and delivers. inline is false for the
// progress goroutine.
func (d *Driver) turn(inline bool) bool {
	more := false // there may be events
	if d.h.take() || d.stuck {
		d.intake()
		more = true
	}
	if d.rx == nil {
		d.rx = spare.get()
		d.rx.Reset()
	}
	ok, err := d.mover.Recv(d.rx)
	if err != nil {
		d.fail(err)
	}
	now := d.time()
	long := now-d.lastTurn > longGap
	d.lastTurn = now
	if !ok {
		return d.idle(inline, more)
	}
	d.still = false
	d.lastRecv = now
	if paused := long && !d.watching; paused != d.paused {
		d.pause(paused)
	}
	d.core.Receive(now, d.rx)
	done := d.core.Events()
	if done > 0 {
		d.owner.Deliver(done) // d.deliver, without a call
	}
	if done == 0 || long {
		done += d.drain(long, done)
	}
	if done > 0 {
		if !inline {
			// The goroutine cannot see the application's turns and leaves it some time.
			d.holdAcks = d.now + ackHold
		} else if d.now-d.lastFull < fullEvery && d.core.Queued() == 0 && len(d.unsent) == 0 && !d.stuck {
			return true // the application waits for what was just delivered
		}
	}
	d.lastFull = d.now
	if t := d.core.NextTimeout(); t != 0 && t <= d.now {
		d.core.Advance(d.now)
		more = true
	}
	if more || d.gathering || d.surplus || len(d.unsent) > 0 || d.core.Pending() {
		d.transmit(d.now)
	}
	if d.stuck {
		d.intake()
	}
	if d.core.Events() > 0 {
		d.settle()
	}
	return true
}

// drain receives the rest of what a turn may, after a first train that delivered done
// events, and reports how many events it delivered. long says that it comes late.
func (d *Driver) drain(long bool, done int) (n int) {
	budget := recvBudget
	if long {
		budget = drainMax
	}
	for trains := 1; trains < budget && (done+n == 0 || budget > recvBudget); trains++ {
		ok, err := d.mover.Recv(d.rx)
		if err != nil {
			d.fail(err)
		}
		if d.time()-d.lastTurn > longGap {
			budget = drainMax
			d.pause(true)
		}
		d.lastTurn = d.now
		if !ok {
			break
		}
		d.lastRecv = d.now
		d.core.Receive(d.now, d.rx)
		n += d.deliver()
	}
	return n
}

// pause tells the FEP whether what it receives may have waited for this turn.
func (d *Driver) pause(on bool) {
	d.paused = on
	d.core.Paused(on)
}

// idle is the rest of a turn that received nothing.
func (d *Driver) idle(inline, more bool) bool {
	now := d.now
	d.lastFull = now
	d.stats.Empty++
	if now-d.lastRecv > restAfter {
		d.rest()
	}
	for {
		remote, ok := d.conn.Unreachable()
		if !ok {
			break
		}
		d.still, more = false, true
		d.core.Unreachable(now, remote)
	}
	if d.still && now < d.due {
		return false
	}
	d.still = false
	late := d.timeout() <= now
	if late {
		d.core.Advance(now)
		more = true
	}
	// The turn of the application is over when it polls and there is nothing.
	// The goroutine cannot see its turns and leaves it some time.
	over := inline || now >= d.holdAcks
	if over {
		d.holdAcks = 0
		d.core.Flush(now)
	}
	if more || d.gathering || d.surplus || len(d.unsent) > 0 || d.core.Pending() {
		d.transmit(now)
	} else {
		d.still, d.due = over, d.timeout()
	}
	if d.stuck && late {
		d.intake()
	}
	return d.settle() > 0 // also what a post made: an injected send may end at once
}

// timeout is the core's next one; forever if it has none.
func (d *Driver) timeout() time.Duration {
	if t := d.core.NextTimeout(); t != 0 {
		return t
	}
	return forever
}

// settle delivers, and posts what waits for the room that this made, which may end
// at once: there may be no other turn for long, and who waits for it is asleep.
func (d *Driver) settle() int {
	done := d.deliver()
	for n := done; d.stuck && n > 0; done += n {
		d.intake()
		n = d.deliver()
	}
	return done
}

// deliver hands events to the owner and reports how many.
func (d *Driver) deliver() int {
	n := d.core.Events()
	if n > 0 {
		d.owner.Deliver(n)
	}
	return n
}

// transmit sends what the FEP gives, up to a budget.
func (d *Driver) transmit(now time.Duration) {
	d.gathering, d.surplus = false, false
	if len(d.unsent) > 0 {
		if !d.sendAll(now, d.unsent) {
			return
		}
		d.unsent = nil
	}
	for sent := 0; d.core.Transmit(now, d.slab(0)); {
		n := 1
		if d.core.Queued() > 0 {
			n = d.batch(now)
		}
		if n > 1 || d.dead {
			if !d.sendAll(now, d.tx[:n]) {
				return
			}
		} else if err := d.mover.Send(d.tx[0]); err != nil && !d.unsendable(now, d.tx[:1], err) {
			return
		}
		if sent += n; sent >= sendBudget {
			d.surplus = d.core.Pending()
			return
		}
	}
	if now-d.lastRecv > restAfter {
		d.rest()
	}
}

// batch fills more trains behind the first one, for one call, and reports how many there
// are then.
func (d *Driver) batch(now time.Duration) int {
	n := 1
	for n < batchLen && len(d.tx[n-1].Data) < batchWhole && d.core.Queued() > 0 && d.core.Transmit(now, d.slab(n)) {
		n++
	}
	return n
}

// slab is a buffer for the i-th train of a batch.
func (d *Driver) slab(i int) *dgram.Datagram {
	if d.tx[i] == nil {
		d.tx[i] = spare.get()
	}
	return d.tx[i]
}

// sendAll sends trains and reports whether all of them are gone. What finds no room
// stays in d.unsent, in order, and nothing overtakes it.
func (d *Driver) sendAll(now time.Duration, ts []*dgram.Datagram) bool {
	if d.dead {
		return true
	}
	n, err := d.mover.SendBatch(ts)
	return n == len(ts) || d.unsendable(now, ts[n:], err)
}

// unsendable is sendAll after the first of ts met with err.
func (d *Driver) unsendable(now time.Duration, ts []*dgram.Datagram, err error) bool {
	if err == nil || err == dgram.ErrNoRoom {
		d.stats.NoRoom++
		d.retryAt = now + retryWait
		d.unsent = ts
		return false
	}
	// As if the network had lost it; the protocol sends it again.
	d.stats.SendError++
	d.owner.Trouble(err)
	return len(ts) == 1 || d.sendAll(now, ts[1:])
}

// fail notes that the Conn is of no use any more. The owner hears of it as often as
// it shows: only trouble that lasts counts.
func (d *Driver) fail(err error) {
	d.dead = true
	d.owner.Trouble(err)
}

// Cancel ends a pending operation with that context, as transport.FEP.Cancel
// does, and reports whether it found one.
func (d *Driver) Cancel(context any) bool {
	d.h.lock()
	d.h.take()
	d.intake()
	d.still = false
	ok := !d.closed && (d.core.Cancel(d.time(), context) || d.cancelQueued(context))
	if d.stuck {
		d.intake() // what was behind it
	}
	d.settle()
	d.rouse()
	d.unlock()
	return ok
}

// cancelQueued ends a request that waits for room in the FEP.
func (d *Driver) cancelQueued(context any) bool {
	for i := range d.queue {
		if op := d.queue[i].cancel(context); op != nil {
			d.owner.Refused(op, ErrCancelled)
			return true
		}
	}
	return false
}

// With runs f while it holds the lock. f may use the Core.
func (d *Driver) With(f func()) {
	d.h.lock()
	d.still = false
	f()
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
	now := d.time()
	out := d.core.Diagnose(now)
	for i := range d.queue {
		d.queue[i].each(func(r *request) {
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

// Do runs f, which may use the Core, with the lock held, then delivers and sends
// what it made. After Close it does nothing.
func (d *Driver) Do(f func(now time.Duration)) {
	d.h.lock()
	if !d.closed {
		d.h.take()
		d.intake()
		now := d.time()
		d.still = false
		f(now)
		if d.stuck {
			d.intake()
		}
		d.settle()
		d.transmit(now)
		d.rouse()
	}
	d.unlock()
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
	now := d.time()
	d.core.AckAll(now) // the peers are to know what arrived
	d.transmit(now)
	d.closed, d.barred = true, true
	d.core.Close(now)
	for i := range d.queue {
		d.queue[i].close()
	}
	d.intake() // refuses what is left, now that d.closed is set
	d.deliver()
	d.transmit(now)
	d.unsent = nil
	d.rest()
	d.kick()
	started := d.started
	d.unlock()
	if started {
		<-d.done
	}
	return d.conn.Close()
}

// deadline is when the next turn must be at the latest.
func (d *Driver) deadline(now time.Duration) time.Duration {
	t := d.due
	if !d.still {
		if t = d.core.NextTimeout(); t == 0 {
			t = forever
		}
	}
	if d.gathering {
		t = min(t, d.gatherFrom+gatherWait)
	}
	if d.holdAcks != 0 {
		t = min(t, d.holdAcks)
	}
	switch {
	case len(d.unsent) > 0:
		t = min(t, d.retryAt)
	case d.surplus:
		t = now
	}
	return t
}

// rouse wakes the progress goroutine if it would sleep too long past the
// deadline.
func (d *Driver) rouse() {
	if d.until != 0 && (d.auto || d.armed.Load() > 0) {
		d.rouseLate()
	}
}

// rouseLate is rouse when the goroutine sleeps and somebody relies on it.
func (d *Driver) rouseLate() {
	slack := stepBack
	if d.armed.Load() > 0 {
		slack = gatherWait
	}
	if d.until-d.lastTurn <= slack {
		return // it is not later than for a deadline that moves
	}
	if t := d.deadline(d.lastTurn); t != forever && t+slack < d.until {
		d.kick()
	}
}

// kick ends the sleep of the progress goroutine, if it sleeps.
func (d *Driver) kick() {
	switch {
	case d.until == 0:
		return // it runs and will look at everything before it sleeps
	case d.watching:
		d.conn.Wake()
	default:
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	d.until = 0
}

// Arm says that a reader goes to sleep until an event is delivered: the
// progress goroutine keeps watch from now on until Disarm.
func (d *Driver) Arm() {
	d.armed.Add(1)
	d.h.lock()
	if !d.closed {
		d.settle() // what was made while nobody slept
		switch {
		case !d.started:
			d.start()
		case !d.watching:
			d.kick()
		default:
			d.rouse() // nobody told it of a deadline while nobody slept
		}
	}
	d.unlock()
}

// Disarm ends one Arm.
func (d *Driver) Disarm() { d.armed.Add(-1) }

// Yield lets others run between two empty polls: other threads each time while
// some want the processor, else every fourth time, for the call costs as much as
// a poll; and now and then other goroutines. Every fourth time it measures
// whether others want it.
func (d *Driver) Yield() {
	n := d.yields.Add(1)
	if n%goschedEvery == 0 {
		runtime.Gosched()
	}
	switch {
	case n%4 == 0 || n == 1:
		t := d.clock.now()
		schedYield()
		d.judge(d.clock.now() - t)
	case d.shared.Load():
		schedYield()
	}
}

// judge learns from how long a sched_yield took.
func (d *Driver) judge(took time.Duration) {
	switch shared := d.shared.Load(); {
	case took >= aloneMax:
		if !shared {
			d.shared.Store(true)
		}
		if d.alone.Load() != 0 {
			d.alone.Store(0)
		}
	case shared && d.alone.Add(1) >= aloneAfter:
		d.shared.Store(false)
	}
}

// Shared reports whether others want the processor: then a blocking read lets them
// run before it looks, for what it waits for has most likely not been sent. Not so
// while its look would send something: packets that wait for company, or ACKs.
func (d *Driver) Shared() bool {
	if !d.shared.Load() {
		return false
	}
	if !d.h.try() {
		return true // who holds the lock sends
	}
	waits := d.gathering || d.surplus || d.core.Owes()
	d.unlock()
	return !waits
}
