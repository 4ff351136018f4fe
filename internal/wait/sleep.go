package wait

import (
	"context"
	"math"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// A Reason is why Wait returned.
type Reason uint8

// The reasons.
const (
	Ready     Reason = iota // enough was there, though another reader may be faster
	Signalled               // Signal was called
	TimedOut                // the deadline passed
	Cancelled               // the context ended
	Closed                  // the object was closed
)

// A Moment is monotonic time since the program began; it is never 0. It takes one reading of a
// clock, where time.Now takes two.
type Moment time.Duration

// Never means no limit.
const Never Moment = math.MaxInt64

var epoch = time.Now()

func now() Moment { return Moment(time.Since(epoch)) + 1 }

// Until is the time until m.
func (m Moment) Until() time.Duration {
	if m == Never {
		return math.MaxInt64
	}
	return time.Duration(m - now())
}

// Deadline turns the timeout of a blocking call into a Moment for Wait. It returns Never for a
// negative timeout, and for one that is too long for a Moment.
func Deadline(timeout time.Duration) Moment {
	if timeout >= 0 {
		if m := now(); m+Moment(timeout) >= m {
			return m + Moment(timeout)
		}
	}
	return Never
}

// Wait returns when at least need things are there, or for another Reason. It polls until
// Attr.Spin has passed since the last poll that did something. Then it naps on the endpoint that
// it drives, if that is a Napper. After napFor, or if it cannot nap, it arms what it drives and
// sleeps.
//
// It returns with Mu held, so that the caller reads the entry it was woken for under the same
// lock. The caller then calls Done with what Wait armed.
func (o *Object) Wait(ctx context.Context, need int64, deadline Moment) (why Reason, armed []Progress) {
	return o.wait(ctx, need, 0, deadline)
}

// WaitLevel is Wait for a counter.
func (o *Object) WaitLevel(ctx context.Context, threshold, seen uint64, deadline Moment) (why Reason, armed []Progress) {
	return o.wait(ctx, int64(threshold), seen, deadline)
}

// Spins reports whether Wait polls before it sleeps. Wait then lets others run before its first
// poll: a peer on the same processor may be waiting for that.
func (o *Object) Spins() bool {
	return o.kind == fi.WaitYield || o.spin > 0 && o.list.Load().size > 0
}

func (o *Object) wait(ctx context.Context, need int64, seen uint64, deadline Moment) (why Reason, armed []Progress) {
	if ctx.Done() == nil {
		ctx = nil // ctx never ends
	}
	spins := o.Spins()
	if !spins && o.drive().napper() == nil {
		return o.sleep(ctx, need, seen, deadline, false)
	}
	o.spinning.Add(1)
	done := false
	if spins {
		why, done = o.spinFor(ctx, need, seen, deadline, false)
	}
	for limit := Moment(0); !done; why, done = o.spinFor(ctx, need, seen, deadline, true) {
		m := now()
		if limit == 0 {
			limit = m + Moment(napFor)
		}
		if m >= limit || !o.nap(ctx, need, seen, min(limit, deadline)) {
			return o.sleep(ctx, need, seen, deadline, true)
		}
	}
	o.Mu.Lock()
	o.spinning.Add(-1)
	switch {
	case o.closed:
		why = Closed
	case why == Signalled && o.enough(need, seen):
		o.GiveSignal()
		why = Ready
	}
	return why, nil
}

// Lie and Rise are Wait without limits, cut in two, for an Object that drives nothing. Between
// them the caller receives from the channel that Lie returns. So a wake-up costs one lock to
// lie down, one to rise, and the channel. No function is between the caller and the channel:
// each one that a goroutine returns from after it was switched to costs a mispredicted jump.
//
// Lie locks and unlocks Mu. It returns nil if something is there, if there is something to
// drive or poll, if there is a signal, or if another call sleeps; then the caller must call
// Wait.
func (o *Object) Lie(need int64) <-chan struct{} {
	o.Mu.Lock()
	l := &o.sleepers
	if o.have.Load() >= need || o.signals.Load() > 0 || o.list.Load().size > 0 || l.busy || l.head != nil {
		o.Mu.Unlock()
		return nil
	}
	s := &l.first
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
	}
	l.busy = true
	s.need, s.listed, s.alone = need, true, true
	o.sleeping++
	o.Mu.Unlock()
	return s.woken
}

// Rise locks Mu after the caller received from the channel of Lie. The caller must read the
// entry it was woken for, which may not have been published.
func (o *Object) Rise() {
	o.Mu.Lock()
	o.sleeping--
	l := &o.sleepers
	l.busy, l.first.alone = false, false
	if o.signals.Load() > 0 && o.have.Load() >= l.first.need {
		l.wake(Always, false) // the signal is for another sleeper
	}
}

// Done ends what a Wait began: it unlocks Mu and disarms.
func (o *Object) Done(armed []Progress) {
	o.Mu.Unlock()
	disarm(armed)
}

// maxIdle bounds the polls in a row that did nothing. A reading of the clock alone takes 60 ns,
// so Spin ends long before, except where the clock stands still: in a bubble of
// testing/synctest.
const maxIdle = 1 << 14

// spinFor is the part of Wait that polls. woken says that something may have come just now, so
// that others need not run first.
func (o *Object) spinFor(ctx context.Context, need int64, seen uint64, deadline Moment, woken bool) (_ Reason, done bool) {
	var until Moment // 0 before the first poll
	worked := woken
	for idle := 0; ; idle++ {
		if o.enough(need, seen) {
			return Ready, true
		}
		if o.signals.Load() > 0 && o.takeSignal() {
			return Signalled, true
		}
		if ctx != nil && ctx.Err() != nil {
			return Cancelled, true
		}
		if !worked {
			o.yield()
		}
		worked = o.Poll()
		if o.enough(need, seen) {
			return Ready, true
		}
		now := now()
		switch {
		case now >= deadline:
			return TimedOut, true
		case worked || until == 0:
			until, idle = now+Moment(o.spin), 0
			if !worked && o.kind != fi.WaitYield && (o.spin < 0 || o.crowded()) {
				return 0, false
			}
		case o.kind != fi.WaitYield && (now >= until || idle > maxIdle):
			return 0, false
		}
	}
}

const (
	// napFor is how long a blocked call sleeps on its own thread before it leaves that to a
	// goroutine: a thread that sleeps for long is a thread of the process for nothing.
	napFor = 20 * time.Millisecond
	// lookEvery is how often such a call looks whether its context has ended. context.AfterFunc
	// would tell at once, but allocates.
	lookEvery = 2 * time.Millisecond
)

// nap sleeps once on the caller's thread, until limit. It reports false if that is not possible:
// there is not exactly one endpoint to drive, or the endpoint refuses.
func (o *Object) nap(ctx context.Context, need int64, seen uint64, limit Moment) bool {
	list := o.drive()
	p := list.napper()
	if p == nil {
		return false
	}
	left := limit.Until()
	if ctx != nil {
		left = min(left, lookEvery)
	}
	o.Mu.Lock()
	if o.closed || o.signals.Load() > 0 || o.enough(need, seen) || o.list.Load() != list {
		o.Mu.Unlock()
		return true
	}
	s := o.sleepers.get(need)
	s.seen, s.on = seen, p
	o.sleepers.add(s)
	o.Mu.Unlock()
	slept := p.Nap(left)
	o.Mu.Lock()
	if !o.sleepers.remove(s) {
		<-s.woken
	}
	s.on = nil
	o.sleepers.put(s)
	if o.signals.Load() > 0 { // this call may find an entry instead, so another one is woken for the signal
		o.sleepers.wake(Always, false)
	}
	o.Mu.Unlock()
	return slept
}

// napper returns the endpoint on which a call may nap, nil if there is not exactly one.
func (l *driven) napper() Napper {
	if len(l.now) == 1 {
		p, _ := l.now[0].(Napper)
		return p
	}
	return nil
}

func (o *Object) crowded() bool {
	p := o.drive().napper()
	return p != nil && p.Crowded()
}

func (o *Object) takeSignal() bool {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	return o.TakeSignal()
}

// TakeSignal consumes, under Mu, a signal for one blocking call.
func (o *Object) TakeSignal() bool {
	if o.signals.Load() == 0 {
		return false
	}
	o.signals.Add(-1)
	return true
}

// GiveSignal gives back, under Mu, the signal for which a Wait returned: its caller found an
// entry after all, so the signal ends another call.
func (o *Object) GiveSignal() {
	o.signals.Add(1)
	o.sleepers.wake(Always, false)
	o.native.raise()
}

// sleep waits for Publish. It loses no wake-up: it arms the endpoints first, then looks and
// lists the sleeper under the lock that Publish needs. So the look sees what was added before
// it, and what is added later finds the sleeper.
//
// A wake-up costs one lock to lie down, one to rise, and the channel between them: the number
// of blocked calls is counted under the lock, and there is no timer and no select unless the
// caller needs one.
func (o *Object) sleep(ctx context.Context, need int64, seen uint64, deadline Moment, spun bool) (why Reason, armed []Progress) {
	list := o.drive()
	arm(list.now)

	o.Mu.Lock()
	o.sleeping++
	if spun {
		o.spinning.Add(-1)
	}
	var s *sleeper
	var expired <-chan time.Time
	over := false
	for {
		switch {
		case o.closed:
			why = Closed
		case o.enough(need, seen):
			why = Ready
		case o.signals.Load() > 0 && o.TakeSignal():
			why = Signalled
		case over:
		default:
			if o.list.Load() != list {
				o.Mu.Unlock()
				now := o.drive()
				arm(now.now)
				disarm(list.now)
				list = now
				o.Mu.Lock()
				continue
			}
			if s == nil {
				s = o.sleepers.get(need)
				s.seen = seen
				if deadline != Never {
					expired = s.start(deadline.Until())
				}
			}
			o.sleepers.add(s)
			o.Mu.Unlock()
			if expired == nil && ctx == nil {
				<-s.woken // costs half of a select
				o.Mu.Lock()
			} else if why, over = s.wait(ctx, expired); !over {
				o.Mu.Lock()
			} else if o.Mu.Lock(); !o.sleepers.remove(s) {
				<-s.woken // it was woken at the same moment
			}
			// A sleeper that was woken by a signal may find entries instead, or the other way
			// round. So another sleeper is woken for the rest.
			if o.signals.Load() > 0 {
				o.sleepers.wake(Always, false)
			}
			continue
		}
		o.sleeping--
		if s != nil {
			o.sleepers.put(s)
		}
		return why, list.now
	}
}

// wait waits until s is woken. over means that something else came first.
func (s *sleeper) wait(ctx context.Context, expired <-chan time.Time) (why Reason, over bool) {
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case <-s.woken:
		return 0, false
	case <-expired:
		return TimedOut, true
	case <-done:
		return Cancelled, true
	}
}

func arm(ps []Progress) {
	for _, p := range ps {
		p.Arm()
	}
}

func disarm(ps []Progress) {
	for _, p := range ps {
		p.Disarm()
	}
}

// sleepers is the list of blocked calls. They are woken in the order they came.
type sleepers struct {
	// first is the sleeper that came when no other slept. Mostly there is no other, and then
	// the links below are not touched.
	first      sleeper
	busy       bool // first is in use
	head, tail *sleeper
	spare      *sleeper // linked by next
}

// A sleeper is one blocked call.
type sleeper struct {
	need       int64
	seen       uint64        // for a counter: the number of failures the caller knows
	woken      chan struct{} // gets one token when the sleeper is removed from the list
	on         Napper        // the endpoint on which it naps, or nil
	listed     bool
	alone      bool // between Lie and Rise: it always reads the entry it is woken for
	prev, next *sleeper
	timer      *time.Timer
}

func (l *sleepers) empty() bool { return !l.first.listed && l.head == nil }

// get returns a sleeper. Spare ones are kept here and not in a pool of the process, because a
// channel or timer made in a bubble of testing/synctest must stay there.
func (l *sleepers) get(need int64) *sleeper {
	s := &l.first
	switch {
	case !l.busy && l.head == nil:
		l.busy = true
	case l.spare != nil:
		s = l.spare
		l.spare, s.next = s.next, nil
	default:
		s = new(sleeper)
	}
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
	}
	s.need = need
	return s
}

func (l *sleepers) put(s *sleeper) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s == &l.first {
		l.busy = false
		return
	}
	s.next = l.spare
	l.spare = s
}

func (s *sleeper) start(d time.Duration) <-chan time.Time {
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	return s.timer.C
}

func (l *sleepers) add(s *sleeper) {
	s.listed = true
	if s == &l.first {
		return // it is before all others
	}
	s.prev, s.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = s
	} else {
		l.head = s
	}
	l.tail = s
}

// remove removes s from the list. It returns false if s was woken already.
func (l *sleepers) remove(s *sleeper) bool {
	if !s.listed {
		return false
	}
	s.listed = false
	if s == &l.first {
		return true
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.tail = s.prev
	}
	s.prev, s.next = nil, nil
	return true
}

// wake wakes a sleeper that is in the list no more.
func (s *sleeper) wake() {
	s.woken <- struct{}{}
	if s.on != nil {
		s.on.Rouse()
	}
}

// wake wakes the first sleeper that needs no more than have, or all such sleepers.
func (l *sleepers) wake(have int64, all bool) {
	if s := &l.first; s.listed && s.need <= have {
		s.listed = false
		s.wake()
		if !all {
			return
		}
	}
	for s := l.head; s != nil; {
		next := s.next
		if s.need <= have {
			l.remove(s)
			s.wake()
			if !all {
				return
			}
		}
		s = next
	}
}

// wakeLevel wakes the sleepers of a counter that have enough.
func (l *sleepers) wakeLevel(o *Object) {
	if s := &l.first; s.listed && o.enough(s.need, s.seen) {
		s.listed = false
		s.wake()
	}
	for s := l.head; s != nil; {
		next := s.next
		if o.enough(s.need, s.seen) {
			l.remove(s)
			s.wake()
		}
		s = next
	}
}
