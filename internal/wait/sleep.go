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
	Ready     Reason = iota // enough was there; another reader may still be faster
	Signalled               // Signal was called
	TimedOut                // the deadline passed
	Cancelled               // the context ended
	Closed                  // the object was closed
)

// A Moment is monotonic time since the program began, and not 0. It takes one look at
// a clock, where time.Now takes two.
type Moment time.Duration

// Never is no limit.
const Never Moment = math.MaxInt64

var epoch = time.Now()

func now() Moment { return Moment(time.Since(epoch)) + 1 }

// Until is how long it is until m.
func (m Moment) Until() time.Duration {
	if m == Never {
		return math.MaxInt64
	}
	return time.Duration(m - now())
}

// Deadline turns the timeout of a blocking call into the moment that Wait takes:
// negative is Never, as is what a Moment cannot hold.
func Deadline(timeout time.Duration) Moment {
	if timeout >= 0 {
		if m := now(); m+Moment(timeout) >= m {
			return m + Moment(timeout)
		}
	}
	return Never
}

// Wait returns when at least need things are there, or for another Reason. It polls
// for Attr.Spin after the last poll that did something, then arms what it drives and
// sleeps.
//
// It returns with Mu held, so that the caller takes the entry it was woken for under the
// same lock. The caller then calls Done with what Wait armed.
func (o *Object) Wait(ctx context.Context, need int64, deadline Moment) (why Reason, armed []Progress) {
	return o.wait(ctx, need, 0, deadline)
}

// WaitLevel is Wait for a counter.
func (o *Object) WaitLevel(ctx context.Context, threshold, seen uint64, deadline Moment) (why Reason, armed []Progress) {
	return o.wait(ctx, int64(threshold), seen, deadline)
}

// Spins reports whether Wait polls before it sleeps. It lets others run before
// it polls first: a peer on the same processor may be waiting for it.
func (o *Object) Spins() bool {
	return o.kind == fi.WaitYield || o.spin > 0 && len(*o.list.Load()) > 0
}

func (o *Object) wait(ctx context.Context, need int64, seen uint64, deadline Moment) (why Reason, armed []Progress) {
	if ctx.Done() == nil {
		ctx = nil // it never ends
	}
	if !o.Spins() {
		return o.sleep(ctx, need, seen, deadline, false)
	}
	o.spinning.Add(1)
	why, done := o.spinFor(ctx, need, seen, deadline)
	if !done {
		return o.sleep(ctx, need, seen, deadline, true)
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

// Lie and Rise are Wait without limits for an Object that drives nothing, cut in
// two: the caller receives from the channel between them. So the whole of a
// wake-up is one lock to lie down, one to take, and that channel, and no frame
// is left between the caller and the channel: each one that a goroutine returns
// through after it was switched to costs a mispredicted jump.
//
// Lie takes and lets go of Mu. nil: something is there, or there is something to
// drive or to poll now, or a signal; Wait knows what to do about it.
func (o *Object) Lie(need int64) <-chan struct{} {
	o.Mu.Lock()
	l := &o.sleepers
	if o.have.Load() >= need || o.signals.Load() > 0 || len(*o.list.Load()) > 0 || l.busy || l.head != nil {
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

// Rise locks Mu after the channel of Lie was received from. The entry the caller was
// woken for may not have been published: the caller takes it.
func (o *Object) Rise() {
	o.Mu.Lock()
	o.sleeping--
	l := &o.sleepers
	l.busy, l.first.alone = false, false
	if o.signals.Load() > 0 && o.have.Load() >= l.first.need {
		l.wake(Always, false) // the signal is for another
	}
}

// Done ends what a Wait began: it lets go of Mu and disarms.
func (o *Object) Done(armed []Progress) {
	o.Mu.Unlock()
	disarm(armed)
}

// maxIdle bounds the polls in a row that did nothing. At 60 ns for the look at
// the clock alone, Spin is over long before; but not when the clock stands still,
// in a bubble of testing/synctest.
const maxIdle = 1 << 14

func (o *Object) spinFor(ctx context.Context, need int64, seen uint64, deadline Moment) (_ Reason, done bool) {
	var until Moment // 0 before the first poll
	worked := false
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
		case o.kind != fi.WaitYield && (now >= until || idle > maxIdle):
			return 0, false
		}
	}
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

// GiveSignal gives back, under Mu, the signal that a Wait returned for: its caller
// found an entry after all, so the signal ends another call.
func (o *Object) GiveSignal() {
	o.signals.Add(1)
	o.sleepers.wake(Always, false)
	o.native.raise()
}

// sleep waits for Publish. No wake-up is lost: first it arms the endpoints, then it looks
// and lists the sleeper under the lock that Publish needs. So it sees what was put before
// the look, and what is put later finds the sleeper.
//
// A wake-up costs one lock to lie down, one to take, and the channel between
// them: the number of blocked calls is counted under the lock, and there is no
// timer nor select where nothing asks for one.
func (o *Object) sleep(ctx context.Context, need int64, seen uint64, deadline Moment, spun bool) (why Reason, armed []Progress) {
	list := o.list.Load()
	arm(*list)

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
			if now := o.list.Load(); now != list {
				o.Mu.Unlock()
				arm(*now)
				disarm(*list)
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
				<-s.woken // half the cost of the select
				o.Mu.Lock()
			} else if why, over = s.wait(ctx, expired); !over {
				o.Mu.Lock()
			} else if o.Mu.Lock(); !o.sleepers.remove(s) {
				<-s.woken // it was woken at the same moment
			}
			// A sleeper that was woken by a signal may find entries instead, and the
			// other way round. The next is woken for the rest.
			if o.signals.Load() > 0 {
				o.sleepers.wake(Always, false)
			}
			continue
		}
		o.sleeping--
		if s != nil {
			o.sleepers.put(s)
		}
		return why, *list
	}
}

// wait waits until s is woken; over: something else came first.
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

// sleepers is the list of blocked calls, woken in the order they came.
type sleepers struct {
	// first is the sleeper that came when no other slept. Mostly there is no other, and
	// then none of the links below is touched.
	first      sleeper
	busy       bool // first is in use
	head, tail *sleeper
	spare      *sleeper // linked by next
}

// A sleeper is one blocked call.
type sleeper struct {
	need       int64
	seen       uint64        // of a counter: the errors known
	woken      chan struct{} // one token, sent when it is taken off the list
	listed     bool
	alone      bool // between Lie and Rise: it certainly takes the entry it is woken for
	prev, next *sleeper
	timer      *time.Timer
}

func (l *sleepers) empty() bool { return !l.first.listed && l.head == nil }

// get returns a sleeper. Spare ones are kept here and not in a pool of the
// process, because a channel or timer made in a bubble of testing/synctest must
// stay there.
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
		return // before all others
	}
	s.prev, s.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = s
	} else {
		l.head = s
	}
	l.tail = s
}

// remove takes s off the list; false if it was woken already.
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

// wake wakes the first sleeper that needs no more than have, or all such sleepers.
func (l *sleepers) wake(have int64, all bool) {
	if s := &l.first; s.listed && s.need <= have {
		s.listed = false
		s.woken <- struct{}{}
		if !all {
			return
		}
	}
	for s := l.head; s != nil; {
		next := s.next
		if s.need <= have {
			l.remove(s)
			s.woken <- struct{}{}
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
		s.woken <- struct{}{}
	}
	for s := l.head; s != nil; {
		next := s.next
		if o.enough(s.need, s.seen) {
			l.remove(s)
			s.woken <- struct{}{}
		}
		s = next
	}
}
