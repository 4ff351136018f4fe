// Package wait is what completion queues, event queues, counters and wait sets
// have in common: sleeping until something is there, being woken by a signal,
// and showing it to those who wait by other means than a call of ours.
//
// An Object holds its owner's lock, so that the owner's queue and those who wait
// for it cannot disagree. The owner says by Publish how much there is; the
// Object decides who wakes up. It starts no goroutine.
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

// Always is what Publish says when no waiter should sleep: an error is queued,
// the queue has overrun or is closed.
const Always = math.MaxInt64

// DefaultSpin is how long a blocking call polls before it sleeps. Waking a
// thread on another core takes 45 to 80 µs; polling about as long costs no more
// than twice the best choice.
const DefaultSpin = 50 * time.Microsecond

// Progress is an endpoint as waiters drive it. See cq.Progress.
type Progress interface {
	Poll() (worked bool)
	Yield()
	Shared() bool
	Arm()
	Disarm()
}

// A Set is a wait set that an Object belongs to. It is called with the Object's
// lock held and takes no lock of an Object of its own members.
type Set interface {
	Notify()       // something is there
	News()         // the value of a counter has changed
	Signal() error // as for the Object
	Changed()      // what the Object drives has changed
}

// Attr describes an Object.
type Attr struct {
	Kind fi.WaitObj
	Spin time.Duration // 0: DefaultSpin; negative: sleep at once
	Set  Set           // with fi.WaitSet
}

// An Object is one wait object. Fields and methods that say so need Mu.
type Object struct {
	// Mu guards the owner's queue as well as the Object.
	Mu sync.Mutex

	kind fi.WaitObj
	spin time.Duration
	set  Set

	have    atomic.Int64 // as published
	signals atomic.Int32 // not yet taken by a blocking call; changed under Mu
	// Blocking calls under way, those that poll and, under Mu, those that sleep.
	spinning atomic.Int32
	sleeping int32

	list  atomic.Pointer[[]Progress] // each bound Progress once
	bound map[Progress]int           // how often
	binds int                        // sum of them
	held  *[]Progress                // armed by TryWait

	// level, of a counter, is the test of InitLevel.
	level   func(threshold, seen uint64) bool
	watched atomic.Bool // native.shown, or set is not nil

	sleepers sleepers
	native   native
	closed   bool
}

// Init prepares o. fi.EINVAL: a kind of wait object that is not supported here
// (R-CQ-21, -25, -26, R-EQ-15). The system's error if it has no descriptor left.
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
		o.set = attr.Set
		o.watched.Store(true)
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
	o.list.Store(new([]Progress))
	return nil
}

// InitLevel is Init for a counter. enough, which is called with and without Mu,
// says whether a blocking call is over that waits for threshold and has seen so
// many errors.
func (o *Object) InitLevel(attr Attr, enough func(threshold, seen uint64) bool) error {
	o.level = enough
	return o.Init(attr)
}

// Kind is the kind of wait object.
func (o *Object) Kind() fi.WaitObj { return o.kind }

// MayBlock reports whether a blocking call of the owner's may wait by o.
func (o *Object) MayBlock() bool { return o.kind != fi.WaitNone && o.kind != fi.WaitSet }

// Have is what was published last. It needs no lock.
func (o *Object) Have() int64 { return o.have.Load() }

// Publish says, under Mu, that have things are there: those put and those left
// when some were taken. It wakes one sleeper who finds enough; that one
// publishes what it leaves, so the next is woken then. With Always it wakes all.
func (o *Object) Publish(have int64) {
	if o.Unawaited() {
		o.Set(have)
	} else {
		o.publish(have)
	}
}

// Unawaited reports, under Mu, that there is nobody to tell what Publish says: then
// Set does as well, without a call.
func (o *Object) Unawaited() bool { return !o.watched.Load() && o.sleepers.empty() }

// Set is Publish where nobody waits.
func (o *Object) Set(have int64) { o.have.Store(have) }

// publish is Publish when there may be somebody to tell.
func (o *Object) publish(have int64) {
	if s := &o.sleepers.first; have == 1 && s.listed && s.alone && s.need == 1 && !o.watched.Load() {
		// It is as good as taken: who looks without the lock need not see it.
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

// Level says, under Mu, that a value which reading does not take away has
// changed, like that of a counter: it wakes every sleeper who finds enough by
// the test of InitLevel, and nobody else. What was noted may be forgotten by now:
// one who read it took it away from nobody who waits by other means.
func (o *Object) Level() {
	if o.set != nil {
		o.set.News()
	} else {
		o.native.raise()
	}
	o.sleepers.wakeLevel(o)
}

// Bits of Note that FD and Chan do not show.
const (
	Unpolled int64 = 1 << 61 // for a poll set
	unsaid   int64 = 1 << 62 // set besides for a member of a wait set, until Renew
)

// Note marks something as new, bit by bit, for those who wait by other means than
// a call of ours: FD, Chan, a wait set, a poll set. It needs no lock. It reports
// whether a bit was not set and Level has to be called because of it.
func (o *Object) Note(bits int64) bool {
	if o.set != nil {
		bits |= unsaid
	}
	return o.have.Load()&bits != bits && o.have.Or(bits)&bits != bits && o.watched.Load()
}

// Renew is what a wait set does before it tells what it knows of a member that is
// open: the next change of a counter is News again, whatever is noted and whoever
// forgets it. It reports whether a queue has something.
func (o *Object) Renew() bool {
	switch have := o.have.Load(); {
	case o.level == nil:
		return have > 0
	case have&unsaid != 0:
		o.have.And(^unsaid)
	}
	return false
}

// ready reports whether something is there for FD and Chan.
func (o *Object) ready() bool { return o.have.Load()&^(Unpolled|unsaid) > 0 }

// Forget undoes Note and reports whether one of the bits was set. What the
// application waits on stays ready until a TryWait: another may sleep on it.
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

// Bind makes waiters drive p, and counts. fi.EBADF when closed, fi.EINVAL for nil.
func (o *Object) Bind(p Progress) error {
	if p == nil {
		return fi.EINVAL
	}
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.closed {
		return fi.EBADF
	}
	if o.bound == nil {
		o.bound = make(map[Progress]int)
	}
	o.binds++
	if o.bound[p]++; o.bound[p] == 1 {
		// Who reads the old list does not look behind its end.
		o.setList(append(*o.list.Load(), p))
	}
	return nil
}

// Unbind undoes one Bind of p. Waiters may call p for a moment longer.
func (o *Object) Unbind(p Progress) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if o.bound[p] == 0 {
		return
	}
	o.binds--
	if o.bound[p]--; o.bound[p] == 0 {
		delete(o.bound, p)
		list := *o.list.Load()
		i := slices.Index(list, p)
		o.setList(slices.Concat(list[:i], list[i+1:]))
	}
}

// Bound is how often Bind was called without Unbind. It needs Mu.
func (o *Object) Bound() int { return o.binds }

// setList changes what waiters drive. Those who have armed the old ones are
// woken to arm the new: this is called with locks of endpoints held, so it cannot
// arm them itself.
func (o *Object) setList(list []Progress) {
	o.list.Store(&list)
	o.sleepers.wake(Always, true)
	if o.held != nil {
		o.native.raise()
	}
	if o.set != nil {
		o.set.Changed()
	}
}

// CanLie reports whether Lie will do for a blocking call: it may block, there is
// nothing to drive, and nothing that TryWait left behind to undo.
func (o *Object) CanLie() bool {
	return o.MayBlock() && o.kind != fi.WaitYield && len(*o.list.Load()) == 0 && o.native.undo.Load() == 0
}

// Driven is what waiters drive.
func (o *Object) Driven() []Progress { return *o.list.Load() }

// Drive replaces what waiters drive, for a wait set: its members' endpoints, each
// once though members share them. Nothing else is bound then.
func (o *Object) Drive(ps []Progress) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	seen := make(map[Progress]bool, len(ps))
	var once []Progress
	for _, p := range ps {
		if !seen[p] {
			seen[p] = true
			once = append(once, p)
		}
	}
	o.setList(once)
}

// Look is what a read does that found nothing: it drives what is bound, once,
// and reports whether something is there now.
func (o *Object) Look() bool {
	if u := o.native.undo.Load(); u&raised != 0 {
		o.unwatch(u)
	}
	if ps := *o.list.Load(); len(ps) == 1 {
		ps[0].Poll()
	} else {
		for _, p := range ps {
			p.Poll()
		}
	}
	return o.have.Load() > 0
}

// Poll drives every bound endpoint once. Whoever polls needs no progress made
// for it: what TryWait armed is disarmed, unless somebody may still sleep.
func (o *Object) Poll() (worked bool) {
	if u := o.native.undo.Load(); u&raised != 0 {
		o.unwatch(u)
	}
	return o.poll()
}

func (o *Object) poll() (worked bool) {
	for _, p := range *o.list.Load() {
		if p.Poll() {
			worked = true
		}
	}
	return worked
}

// Give is what a blocking call that found nothing does before its first look: where
// others want the processor it lets them run, for who is to send what it waits for
// may be one of them, and the look would be in vain. It does nothing for a call that
// is over: by a signal, or because ctx has ended. It returns the Deadline of timeout,
// or 0 if it let nobody run.
func (o *Object) Give(ctx context.Context, timeout time.Duration) (deadline Moment) {
	for _, p := range *o.list.Load() {
		if p.Shared() && o.signals.Load() == 0 && ctx.Err() == nil {
			deadline = Deadline(timeout)
			p.Yield()
			break
		}
	}
	return deadline
}

func (o *Object) yield() {
	ps := *o.list.Load()
	for _, p := range ps {
		p.Yield()
	}
	if len(ps) == 0 {
		runtime.Gosched()
	}
}

// Signal ends one blocking call, of a member of a wait set one of the set's, now or
// the next (R-CQ-92, R-CQ-94). fi.EINVAL without a wait object (R-CQ-93), fi.EBADF
// when closed.
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

// Close ends every blocking call. The owner has found nothing bound, holds Mu,
// and calls Release without it afterwards. It reports whether o was open.
func (o *Object) Close() bool {
	if o.closed {
		return false
	}
	o.closed = true
	o.have.Store(Always)
	o.sleepers.wake(Always, true)
	if o.set != nil {
		o.set.Notify()
	}
	o.native.close()
	return true
}

// Closed reports, under Mu, whether Close was called.
func (o *Object) Closed() bool { return o.closed }

// Newer notes n, of a number that only grows, in told, and reports whether it is above
// what is noted there. Of calls at the same time the one that is behind says no.
func Newer(told *atomic.Uint64, n uint64) bool {
	for old := told.Load(); n > old; old = told.Load() {
		if told.CompareAndSwap(old, n) {
			return true
		}
	}
	return false
}
