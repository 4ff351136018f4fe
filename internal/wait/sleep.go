package wait

import (
	"context"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// A Reason is why Wait returned.
type Reason uint8

// The reasons.
const (
	Ready     Reason = iota // there was enough when it looked; others may be faster
	Signalled               // Signal was called
	TimedOut                // the deadline passed
	Cancelled               // the context ended
	Closed                  // the object was closed
)

// Deadline turns the timeout of a blocking call into the point in time that Wait
// takes: negative is no limit.
func Deadline(timeout time.Duration) time.Time {
	if timeout < 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}

// Wait returns when at least need things are there, or for another Reason: a
// deadline of zero and a nil ctx are no limits. It polls for Attr.Spin after the
// last poll that did something, then arms what it drives and sleeps.
func (o *Object) Wait(ctx context.Context, need int64, deadline time.Time) Reason {
	o.waiting.Add(1)
	defer o.waiting.Add(-1)
	if o.kind == fi.WaitYield || o.spin > 0 && len(o.Driven()) > 0 {
		if r, done := o.spinFor(ctx, need, deadline); done {
			return r
		}
	}
	return o.sleep(ctx, need, deadline)
}

// maxIdle bounds the polls in a row that did nothing. At 60 ns for the look at
// the clock alone, Spin is over long before; but not when the clock stands still,
// in a bubble of testing/synctest.
const maxIdle = 1 << 14

func (o *Object) spinFor(ctx context.Context, need int64, deadline time.Time) (_ Reason, done bool) {
	var until time.Time
	for idle := 0; ; idle++ {
		if o.have.Load() >= need {
			return Ready, true
		}
		if o.signals.Load() > 0 && o.takeSignal() {
			return Signalled, true
		}
		worked := o.Poll()
		if o.have.Load() >= need {
			return Ready, true
		}
		now := time.Now()
		switch {
		case !deadline.IsZero() && !now.Before(deadline):
			return TimedOut, true
		case ctx != nil && ctx.Err() != nil:
			return Cancelled, true
		case worked || until.IsZero():
			until, idle = now.Add(o.spin), 0
		case o.kind != fi.WaitYield && (!now.Before(until) || idle > maxIdle):
			return 0, false
		}
		if !worked {
			o.yield()
		}
	}
}

func (o *Object) takeSignal() bool {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	return o.takeSignalLocked()
}

func (o *Object) takeSignalLocked() bool {
	if o.signals.Load() == 0 {
		return false
	}
	o.signals.Add(-1)
	return true
}

// sleep waits for Publish. No wake-up is lost: what is driven is armed first,
// then, under the lock that Publish needs, the sleeper looks and lies down.
// What was put before the look is seen; what is put later finds the sleeper.
func (o *Object) sleep(ctx context.Context, need int64, deadline time.Time) Reason {
	armed := o.list.Load()
	arm(*armed)
	defer func() { disarm(*armed) }()

	o.Mu.Lock()
	defer o.Mu.Unlock()
	s := o.sleepers.get(need)
	defer o.sleepers.put(s)
	var expired <-chan time.Time
	if !deadline.IsZero() {
		expired = s.start(time.Until(deadline))
	}
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	over := false
	var why Reason
	for {
		switch {
		case o.closed:
			return Closed
		case o.have.Load() >= need:
			return Ready
		case o.takeSignalLocked():
			return Signalled
		case over:
			return why
		}
		if now := o.list.Load(); now != armed {
			o.Mu.Unlock()
			arm(*now)
			disarm(*armed)
			armed = now
			o.Mu.Lock()
			continue
		}
		o.sleepers.add(s)
		o.Mu.Unlock()
		if expired == nil && done == nil {
			<-s.woken // half the cost of the select
		} else {
			select {
			case <-s.woken:
			case <-expired:
				over, why = true, TimedOut
			case <-done:
				over, why = true, Cancelled
			}
		}
		o.Mu.Lock()
		if o.sleepers.remove(s) {
			continue
		}
		if over {
			<-s.woken // it was woken at the same moment
		}
		// One who was woken by a signal may find things instead, and the other
		// way round: what it does not take wakes the next.
		if o.signals.Load() > 0 {
			o.sleepers.wake(Always, false)
		}
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

// sleepers is a list of those who sleep, first come first woken.
type sleepers struct {
	head, tail *sleeper
	spare      *sleeper // linked by next
}

// A sleeper is one blocked call.
type sleeper struct {
	need       int64
	woken      chan struct{} // one token, sent when it is taken off the list
	listed     bool
	prev, next *sleeper
	timer      *time.Timer
}

// get returns a sleeper. Spare ones are kept here and not in a pool of the
// process, because a channel or timer made in a bubble of testing/synctest must
// stay there.
func (l *sleepers) get(need int64) *sleeper {
	s := l.spare
	if s == nil {
		return &sleeper{need: need, woken: make(chan struct{}, 1)}
	}
	l.spare = s.next
	s.need, s.next = need, nil
	return s
}

func (l *sleepers) put(s *sleeper) {
	if s.timer != nil {
		s.timer.Stop()
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
	s.listed, s.prev, s.next = true, l.tail, nil
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
	s.listed, s.prev, s.next = false, nil, nil
	return true
}

// wake wakes the first sleeper who needs no more than have, or all of those.
func (l *sleepers) wake(have int64, all bool) {
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
