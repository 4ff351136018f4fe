// Package wait has the wait object below completion queues, event queues, counters and wait
// sets. Blocking calls sleep in it until something is there or a signal comes. Applications
// that wait by other means use it as a descriptor or channel.
//
// An Object has the lock of its owner, so the owner's queue and the waiters always agree. The
// owner tells the number of entries by Publish; the Object decides which waiter wakes up. It
// starts no goroutine.
package wait

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// Always is the number to Publish when no waiter should sleep: an error is queued, or the queue
// has overrun or is closed.
const Always = math.MaxInt64

// DefaultSpin is how long a blocking call polls before it sleeps. To wake a thread on another
// core takes 45 to 80 µs; polling about as long costs at most twice the best choice.
const DefaultSpin = 50 * time.Microsecond

// Progress is an endpoint, for the readers of the queues and counters that it is bound to: they
// drive it. The methods may be called for a moment after Unbind.
type Progress interface {
	// Poll makes the progress it can without blocking, and reports whether there was any. It is
	// called without locks of the Object.
	Poll() (worked bool)
	// Yield gives up the processor between empty polls of a blocking read.
	Yield()
	// Shared reports whether others want the processor. A blocking read then calls Yield before
	// its first Poll.
	Shared() bool
	// Arm says that a reader is about to sleep: progress must happen without it until Disarm.
	// Calls nest.
	Arm()
	Disarm()
}

// A Napper is a Progress on which a blocked call can sleep with its own thread, in the kernel,
// instead of having another goroutine wake it.
type Napper interface {
	Progress
	// Nap sleeps until Poll may have something to do, at most for limit, or until Rouse. It
	// reports false, without having slept, if the call must Arm and sleep.
	Nap(limit time.Duration) bool
	// Crowded reports whether polls and Yields before a Nap are of no use.
	Crowded() bool
	// Rouse ends the Nap that is under way, or the next one. It takes no lock of an endpoint or
	// of an Object.
	Rouse()
}

// A Set is a wait set that an Object belongs to. All methods but Join are called with the
// Object's lock held. A Set takes no lock of an Object that is its member.
type Set interface {
	Join(*Object) error // makes it a member; fi.EINVAL if the set is closed
	Leave(*Object)
	Notify()       // something is there
	News()         // the value of a counter changed
	Signal() error // as for the Object
	// Bound and Unbound say that the Object drives p from now on, or no longer.
	Bound(p Progress)
	Unbound(p Progress)
}

// Attr describes an Object.
type Attr struct {
	Kind fi.WaitObj
	Spin time.Duration // 0: DefaultSpin; negative: sleep at once
	Set  Set           // with fi.WaitSet
}

// An Object is one wait object. Fields and methods whose comments say so need Mu.
type Object struct {
	// Mu guards the Object and the owner's queue.
	Mu sync.Mutex

	kind fi.WaitObj
	spin time.Duration
	set  Set

	have    atomic.Int64 // the number last published, or the bits of Note
	signals atomic.Int32 // signals that no blocking call has consumed; changed under Mu
	// Blocking calls: those that poll and, under Mu, those that sleep.
	spinning atomic.Int32
	sleeping int32

	list     atomic.Pointer[driven]
	bound    map[Progress]bond
	all      []Progress // the keys of bound
	binds    int        // calls of Bind that were not undone
	tryArmed *driven    // armed by TryWait

	// level is the test of InitLevel, nil for a queue.
	level   func(threshold, seen uint64) bool
	watched atomic.Bool // native.shown, or set is not nil

	sleepers sleepers
	native   native
	closed   bool

	// changes has what was bound or unbound since it joined or left the Group; nil if none was
	// asked for. It needs Mu.
	changes map[Progress]bool
	joining sync.Mutex // guards the rest; before Mu
	grouped atomic.Pointer[grouped]
	inGroup map[Progress]bool
	loose   loose // could not join the Group
}

// A bond is one bound Progress.
type bond struct {
	times int // how often it is bound
	at    int // where it is in Object.all
}

// Init prepares o. It returns fi.EINVAL for a kind of wait object that is not supported here
// (R-CQ-21, -25, -26, R-EQ-15), and the system's error if it has no descriptor left.
func (o *Object) Init(attr Attr) error {
	switch attr.Kind {
	case fi.WaitNone, fi.WaitUnspec, fi.WaitMutexCond, fi.WaitYield:
	case fi.WaitFD:
		if err := o.native.openFD(); err != nil {
			return err
		}
	case fi.WaitSet:
		if attr.Set == nil {
			return fmt.Errorf("no wait set is named: %w", fi.EINVAL)
		}
	default:
		return fmt.Errorf("wait object %v: %w", attr.Kind, fi.EINVAL)
	}
	o.kind, o.spin = attr.Kind, attr.Spin
	if o.spin == 0 {
		o.spin = DefaultSpin
	}
	if o.kind == fi.WaitMutexCond {
		o.native.ch = make(chan struct{}, 1)
	}
	o.list.Store(new(driven))
	if o.kind == fi.WaitSet {
		o.set = attr.Set
		o.watched.Store(true)
		return o.set.Join(o)
	}
	return nil
}

// InitLevel is Init for a counter. enough reports whether a blocking call that waits for
// threshold and has seen that many failures is over. It is called with and without Mu.
func (o *Object) InitLevel(attr Attr, enough func(threshold, seen uint64) bool) error {
	o.level = enough
	return o.Init(attr)
}

// Kind is the kind of wait object.
func (o *Object) Kind() fi.WaitObj { return o.kind }

// MayBlock reports whether a blocking call of the owner may wait in o.
func (o *Object) MayBlock() bool { return o.kind != fi.WaitNone && o.kind != fi.WaitSet }

// Have is the number that was last published. It needs no lock.
func (o *Object) Have() int64 { return o.have.Load() }

// Publish says, under Mu, that have entries are there, after the owner added or removed some.
// It wakes one sleeper that needs no more than these. That sleeper publishes what it leaves,
// which wakes the next. Always wakes all.
func (o *Object) Publish(have int64) {
	if o.Unawaited() {
		o.Set(have)
	} else {
		o.publish(have)
	}
}

// Unawaited reports, under Mu, that nobody waits. Set then does what Publish would do, without
// a call.
func (o *Object) Unawaited() bool { return !o.watched.Load() && o.sleepers.empty() }

// Set is Publish for the case that nobody waits.
func (o *Object) Set(have int64) { o.have.Store(have) }

// publish is Publish for the case that somebody may wait.
func (o *Object) publish(have int64) {
	if s := &o.sleepers.first; have == 1 && s.listed && s.alone && s.need == 1 && !o.watched.Load() {
		// The only sleeper takes it; do not publish it to lock-free readers.
		s.listed = false
		s.woken <- struct{}{}
		return
	}
	if o.have.Load() != have {
		o.have.Store(have)
	}
	if have > 0 && (o.native.shown || o.set != nil) {
		o.raise()
	}
	if have > 0 && !o.sleepers.empty() {
		o.sleepers.wake(have, have == Always)
	}
}

// Empty is Publish(0).
func (o *Object) Empty() {
	if o.have.Load() != 0 {
		o.have.Store(0)
	}
}

// Level says, under Mu, that a value has changed which reading does not consume, such as a
// counter's. It wakes the sleepers for whom the test of InitLevel is true, even if the bit of
// Note was forgotten meanwhile: a reader that forgot it consumed nothing that other waiters
// wait for.
func (o *Object) Level() {
	if o.set != nil {
		o.set.News()
	} else {
		o.native.raise()
	}
	o.sleepers.wakeLevel(o)
}

// Bits of Note that do not make FD and Chan ready.
const (
	Unpolled int64 = 1 << 61 // used by a poll set
	unsaid   int64 = 1 << 62 // used by a wait set: changed since Renew
)

// Note marks something as new, one bit for each kind. It is for those who wait by other means
// than a blocking call: FD, Chan, a wait set, a poll set. It needs no lock. It returns true if
// the caller must call Level, because a bit was new and somebody watches.
func (o *Object) Note(bits int64) bool {
	if o.set != nil {
		bits |= unsaid
	}
	return o.have.Load()&bits != bits && o.have.Or(bits)&bits != bits && o.watched.Load()
}

// Renew prepares a member of a wait set for the next report: a later change of a counter
// notifies the set again. It reports whether a queue has entries.
func (o *Object) Renew() bool {
	switch have := o.have.Load(); {
	case o.level == nil:
		return have > 0
	case have&unsaid != 0:
		o.have.And(^unsaid)
	}
	return false
}

// ready reports whether FD and Chan are to be ready.
func (o *Object) ready() bool { return o.have.Load()&^(Unpolled|unsaid) > 0 }

// Forget undoes Note and reports whether one of the bits was set. FD and Chan stay ready until
// a TryWait, because another goroutine may sleep on them.
func (o *Object) Forget(bits int64) bool {
	if o.have.Load()&bits == 0 {
		return false
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.closed {
		return false
	}
	return o.have.And(^bits)&bits != 0
}

// enough reports whether a blocking call need not wait.
func (o *Object) enough(need int64, seen uint64) bool {
	have := o.have.Load()
	if o.level == nil || have == Always {
		return have >= need
	}
	return o.level(uint64(need), seen)
}

func (o *Object) raise() {
	if o.set != nil {
		o.set.Notify()
		return
	}
	o.native.raise()
}

// Bind makes waiters drive p. It counts its calls. It returns fi.EBADF if o is closed,
// fi.EINVAL if p is nil.
func (o *Object) Bind(p Progress) error {
	if p == nil {
		return fi.EINVAL
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.Closed() {
		return fi.EBADF
	}
	if o.bound == nil {
		o.bound = make(map[Progress]bond)
	}
	o.binds++
	b := o.bound[p]
	if b.times++; b.times == 1 {
		b.at = len(o.all)
		o.all = append(o.all, p)
	}
	o.bound[p] = b
	if b.times == 1 {
		o.relist(p)
		if o.set != nil {
			o.set.Bound(p)
		}
	}
	return nil
}

// Unbind undoes one Bind of p. Waiters may call p for a moment longer.
func (o *Object) Unbind(p Progress) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	b, ok := o.bound[p]
	if !ok {
		return
	}
	o.binds--
	if b.times--; b.times > 0 {
		o.bound[p] = b
		return
	}
	delete(o.bound, p)
	if last := len(o.all) - 1; b.at < last { // the last one takes the place
		q := o.all[last]
		o.all[b.at] = q
		o.bound[q] = bond{o.bound[q].times, b.at}
	}
	o.all[len(o.all)-1] = nil
	o.all = o.all[:len(o.all)-1]
	o.relist(p)
	if o.set != nil {
		o.set.Unbound(p)
	}
}

// Bound is the number of calls of Bind that were not undone. It needs Mu.
func (o *Object) Bound() int { return o.binds }

// relist makes the list that waiters drive a new one after p was bound or unbound. It is called
// with locks of endpoints held, so it cannot arm the new list itself: it wakes the waiters that
// armed the old one.
func (o *Object) relist(p Progress) {
	o.change(p)
	l := &driven{size: len(o.all)}
	if l.size == 1 && o.changes == nil {
		l.now = slices.Clone(o.all)
	}
	o.list.Store(l)
	o.sleepers.wake(Always, true)
	if o.tryArmed != nil {
		o.native.raise()
	}
}

// CanLie reports whether a blocking call may use Lie: it may block, there is nothing to drive,
// and nothing of TryWait to undo.
func (o *Object) CanLie() bool {
	return o.MayBlock() && o.kind != fi.WaitYield && o.list.Load().size == 0 && o.native.undo.Load() == 0
}

// Look drives the bound endpoints once, for a read that found nothing, and reports whether
// something is there now: of an Object without Init, that it is closed.
func (o *Object) Look() bool {
	if u := o.native.undo.Load(); u&raised != 0 {
		o.unwatch(u)
	}
	list := o.list.Load()
	if list == nil {
		return true
	}
	if ps := list.now; len(ps) == 1 {
		ps[0].Poll()
	} else {
		for _, p := range o.drive().now {
			p.Poll()
		}
	}
	return o.have.Load() > 0
}

// Poll drives the bound endpoints once and reports whether one made progress. Because the
// caller polls by itself, Poll disarms what TryWait armed, unless another goroutine may still
// sleep.
func (o *Object) Poll() (worked bool) {
	if u := o.native.undo.Load(); u&raised != 0 {
		o.unwatch(u)
	}
	return o.poll()
}

func (o *Object) poll() (worked bool) {
	if o.list.Load() == nil {
		return false
	}
	for _, p := range o.drive().now {
		if p.Poll() {
			worked = true
		}
	}
	return worked
}

// exactBelow is the least timeout that a yield may stretch: a yield takes some time slices of
// the system, which are milliseconds, as a sleep may that ends on a busy processor.
const exactBelow = 100 * time.Millisecond

// Give lets other threads run, if some want the processor, before the first look of a blocking
// call that found nothing: one of them may be the peer that is to answer. It does nothing if a
// signal or the end of ctx is about to end the call. It returns the Deadline of a timeout that
// is to be exact; 0 if the caller is to ask for it later, as few calls need to.
func (o *Object) Give(ctx context.Context, timeout time.Duration) (deadline Moment) {
	for _, p := range o.drive().now {
		if p.Shared() && o.signals.Load() == 0 && ctx.Err() == nil {
			if timeout >= 0 && timeout < exactBelow {
				deadline = Deadline(timeout)
			}
			p.Yield()
			break
		}
	}
	return deadline
}

func (o *Object) yield() {
	ps := o.drive().now
	for _, p := range ps {
		p.Yield()
	}
	if len(ps) == 0 {
		runtime.Gosched()
	}
}

// Signal ends one blocking call, the current one or the next. For a member of a wait set it
// ends a call of the set (R-CQ-92, R-CQ-94). It returns fi.EINVAL if there is no wait object
// (R-CQ-93), and fi.EBADF if it is closed.
func (o *Object) Signal() error {
	if o.kind == fi.WaitNone {
		return fmt.Errorf("signal without a wait object: %w", fi.EINVAL)
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.closed {
		return fi.EBADF
	}
	if o.set != nil {
		return o.set.Signal()
	}
	if n := o.signals.Load(); n == 0 || n < o.spinning.Load()+o.sleeping {
		o.signals.Add(1)
	}
	o.sleepers.wake(Always, false)
	o.native.raise()
	return nil
}

// Close ends every blocking call. The owner must hold Mu, have checked that nothing is bound,
// and call Release after it unlocked Mu. Close reports whether o was open.
func (o *Object) Close() bool {
	if o.Closed() {
		return false
	}
	if o.set != nil {
		o.set.Leave(o) // first, because it has nothing for those who wait for the set
	}
	o.closed, o.changes = true, nil
	o.have.Store(Always)
	o.sleepers.wake(Always, true)
	if o.set != nil {
		o.set.Notify()
	}
	o.native.close()
	return true
}

// Closed reports, under Mu, whether Close was called, or Init never was.
func (o *Object) Closed() bool { return o.closed || o.list.Load() == nil }

// HasClosed is Closed for a caller without Mu.
func (o *Object) HasClosed() bool {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	return o.Closed()
}

// Newer stores n in told if it is above the number there, and reports whether it was. Of
// concurrent calls, those with smaller numbers return false.
func Newer(told *atomic.Uint64, n uint64) bool {
	for old := told.Load(); n > old; old = told.Load() {
		if told.CompareAndSwap(old, n) {
			return true
		}
	}
	return false
}
