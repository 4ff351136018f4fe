package cntr

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, attr Attr) *Counter {
	t.Helper()
	c, err := New(attr, "ctx")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sleepy is a counter whose waiters sleep at once.
func sleepy(t testing.TB) *Counter {
	c := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: -1})
	t.Cleanup(func() { _ = c.Close() }) // ends who waits for it though the test has failed
	return c
}

func wantErr(t testing.TB, err error, want fi.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func wantValues(t testing.TB, c *Counter, val, errs uint64) {
	t.Helper()
	if v, e := c.Read(), c.ReadErr(); v != val || e != errs {
		t.Errorf("%d and %d errors, want %d and %d", v, e, val, errs)
	}
}

// waiting is a Wait without a limit, in a goroutine.
func waiting(c *Counter, threshold uint64) <-chan error {
	r := make(chan error, 1)
	go func() { r <- c.Wait(threshold, -1) }()
	return r
}

// ended is how a Wait in a bubble ended. An hour is over at once there, so a Wait that
// nobody ends fails the test.
func ended(t testing.TB, r <-chan error) error {
	t.Helper()
	select {
	case err := <-r:
		return err
	case <-time.After(time.Hour):
		t.Fatal("it did not end")
		return nil
	}
}

func TestTwoValues(t *testing.T) {
	// R-CNTR-01: successes and failures are two numbers. R-CNTR-08: each can be
	// set and raised by the application, and is read back independently.
	c := open(t, Attr{})
	wantValues(t, c, 0, 0)
	for _, step := range []struct {
		do        func() error
		val, errs uint64
	}{
		{func() error { return c.Set(10) }, 10, 0},
		{func() error { return c.SetErr(20) }, 10, 20},
		{func() error { return c.Add(5) }, 15, 20},
		{func() error { return c.AddErr(7) }, 15, 27},
		{func() error { return c.Add(0) }, 15, 27},
		{func() error { return c.AddErr(0) }, 15, 27},
		{func() error { return c.Set(1) }, 1, 27},
		{func() error { return c.SetErr(0) }, 1, 0},
	} {
		if err := step.do(); err != nil {
			t.Error(err)
		}
		wantValues(t, c, step.val, step.errs)
	}
	if c.Context() != "ctx" || c.Attr().WaitObj != fi.WaitNone {
		t.Error(c.Context(), c.Attr())
	}
}

func TestLargestValue(t *testing.T) {
	// R-CNTR-09: a counter stops at the largest value, it does not begin anew.
	c := sleepy(t)
	c.Add(0) // which is not beyond the largest value
	wantValues(t, c, 0, 0)
	c.Set(math.MaxUint64 - 1)
	c.SetErr(math.MaxUint64 - 1)
	for range 3 {
		c.Add(2)
		c.AddErr(math.MaxUint64)
		wantValues(t, c, math.MaxUint64, math.MaxUint64)
	}
	if err := c.Wait(math.MaxUint64, 0); err != nil {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		r := waiting(c, math.MaxUint64)
		synctest.Wait()
		c.Set(math.MaxInt64)
		c.Set(math.MaxUint64 - 1)
		synctest.Wait()
		if len(r) > 0 {
			t.Error("ended below its threshold:", <-r)
		}
		c.Add(1)
		if err := ended(t, r); err != nil {
			t.Error(err)
		}
	})
}

func TestCountsBytes(t *testing.T) {
	// R-CNTR-02: completions, or the bytes in them; errors count as operations.
	for events, want := range map[fi.CntrEvents]uint64{fi.CntrComp: 3, fi.CntrBytes: 100} {
		c := open(t, Attr{Events: events})
		c.Count(3, 100)
		c.AddErr(1)
		wantValues(t, c, want, 1)
	}
}

func TestOpenAttributes(t *testing.T) {
	set, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		attr Attr
		ok   bool
	}{
		{"R-CNTR-02: bytes", Attr{Events: fi.CntrBytes}, true},
		{"R-CNTR-02: unknown events", Attr{Events: fi.CntrBytes + 1}, false},
		{"R-CNTR-12: no flag is known", Attr{Flags: fi.Affinity}, false},
		{"R-CNTR-06: wait unspec", Attr{WaitObj: fi.WaitUnspec}, true},
		{"R-CNTR-06: wait set", Attr{WaitObj: fi.WaitSet, WaitSet: set}, true},
		{"R-CNTR-06: wait set without the set", Attr{WaitObj: fi.WaitSet}, false},
		{"R-CNTR-06: what is not supported", Attr{WaitObj: fi.WaitPollFD}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := New(c.attr, nil)
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, fi.EINVAL) {
				t.Fatal(err)
			}
			if n != nil {
				n.Close()
			}
		})
	}
	if err := set.Close(); err != nil { // all members have left
		t.Error(err)
	}
	// R-CNTR-12: a wait set that is closed is none.
	_, err = New(Attr{WaitObj: fi.WaitSet, WaitSet: set}, nil)
	wantErr(t, err, fi.EINVAL)
}

func TestWaitNeedsAWaitObject(t *testing.T) {
	// R-CNTR-06: EINVAL, never a hang, also when the threshold is reached.
	set, _ := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec})
	for _, attr := range []Attr{{}, {WaitObj: fi.WaitSet, WaitSet: set}} {
		c := open(t, attr)
		wantErr(t, c.Wait(1, -1), fi.EINVAL)
		wantErr(t, c.Wait(0, 0), fi.EINVAL)
		wantErr(t, c.TryWait(), fi.EINVAL)
		_, err := c.FD()
		wantErr(t, err, fi.EINVAL)
		_, err = c.Chan()
		wantErr(t, err, fi.EINVAL)
	}
}

func TestWaitForAThreshold(t *testing.T) {
	// R-CNTR-05: the value reached ends a wait, not one less; a timeout of 0
	// looks once.
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		wantErr(t, c.Wait(1, 0), fi.ETIMEDOUT)
		start := time.Now()
		wantErr(t, c.Wait(1, time.Minute), fi.ETIMEDOUT)
		if time.Since(start) != time.Minute {
			t.Error(time.Since(start))
		}
		three, five, set := waiting(c, 3), waiting(c, 5), waiting(c, 100)
		synctest.Wait()
		c.Add(2)
		synctest.Wait()
		if len(three)+len(five)+len(set) > 0 {
			t.Fatal("ended before anything was reached")
		}
		c.Add(2)
		synctest.Wait()
		if len(three) != 1 || len(five)+len(set) > 0 {
			t.Fatalf("at 4: %d, %d, %d ended; want the first", len(three), len(five), len(set))
		}
		c.Count(1, 0)
		if err := ended(t, five); err != nil {
			t.Error(err)
		}
		c.Set(100)
		for _, r := range []<-chan error{three, set} {
			if err := ended(t, r); err != nil {
				t.Error(err)
			}
		}
		// What is reached is reached.
		if err := c.Wait(7, -1); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitEndsByAnError(t *testing.T) {
	// R-CNTR-05: any change of the error value ends every wait.
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		for _, change := range []func(){
			func() { c.AddErr(1) },
			func() { c.SetErr(9) },
			func() { c.SetErr(0) },
		} {
			a, b := waiting(c, 10), waiting(c, 20)
			synctest.Wait()
			change()
			wantErr(t, ended(t, a), fi.EAVAIL)
			wantErr(t, ended(t, b), fi.EAVAIL)
		}
		// What changes nothing ends nothing.
		a := waiting(c, 10)
		synctest.Wait()
		c.SetErr(0)
		c.AddErr(0)
		synctest.Wait()
		if len(a) > 0 {
			t.Error("ended by nothing:", <-a)
		}
		c.Set(10)
		if err := ended(t, a); err != nil {
			t.Error(err)
		}
		// An error that came before is told once: nobody waits for an operation
		// that failed already.
		c.AddErr(1)
		wantErr(t, c.Wait(11, -1), fi.EAVAIL)
		wantErr(t, c.Wait(11, time.Second), fi.ETIMEDOUT)
		// Who read it knows it.
		c.AddErr(1)
		c.ReadErr()
		wantErr(t, c.Wait(11, time.Second), fi.ETIMEDOUT)
		// A threshold that is reached is worth more than an error.
		c.AddErr(1)
		if err := c.Wait(10, -1); err != nil {
			t.Error(err)
		}
	})
}

func TestErrorTakenBackEndsAWait(t *testing.T) {
	// R-CNTR-05: any change of the error value ends a wait, also one that leaves the
	// value as it was before anybody has looked.
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		ep := &endpoint{c: c, poll: func() { c.SetErr(1); c.SetErr(0) }}
		c.Bind(ep)
		wantErr(t, c.Wait(1, time.Second), fi.EAVAIL) // while it polls
		ep.poll = nil
		wantErr(t, c.Wait(1, time.Second), fi.ETIMEDOUT)
		c.SetErr(1)
		c.SetErr(0)
		wantErr(t, c.Wait(1, time.Second), fi.EAVAIL) // before it
		c.SetErr(1)
		c.SetErr(0)
		c.ReadErr()
		wantErr(t, c.Wait(1, time.Second), fi.ETIMEDOUT)
		a, b := waiting(c, 1), waiting(c, 2)
		synctest.Wait()
		c.SetErr(1)
		c.SetErr(0)
		wantErr(t, ended(t, a), fi.EAVAIL) // asleep
		wantErr(t, ended(t, b), fi.EAVAIL)
	})
}

func TestWaitContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// R-CNTR-05.
		c := sleepy(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := c.WaitContext(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Error(err, time.Since(start))
		}
		c.Add(1)
		if err := c.WaitContext(ctx, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestLoweredWhileWaitedFor(t *testing.T) {
	// R-CNTR-08: a value set back is not reached, and is not a timeout either.
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		r := waiting(c, 5)
		synctest.Wait()
		for range 100 {
			c.Set(5)
			c.Set(0)
		}
		synctest.Wait()
		if len(r) == 0 { // it may have seen the value, or not
			c.Set(5)
		}
		if err := ended(t, r); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseBound(t *testing.T) {
	// R-CNTR-10: EBUSY while something is bound, and the counter stays usable.
	synctest.Test(t, func(t *testing.T) {
		c := sleepy(t)
		ep := new(endpoint)
		c.Bind(ep)
		c.Bind(ep)
		wantErr(t, c.Close(), fi.EBUSY)
		c.Add(1)
		wantValues(t, c, 1, 0)
		c.Unbind(ep)
		wantErr(t, c.Close(), fi.EBUSY)
		c.Unbind(ep)
		r := waiting(c, 2)
		synctest.Wait()
		if err := c.Close(); err != nil || !c.Closed() {
			t.Error(err)
		}
		wantErr(t, ended(t, r), fi.ECANCELED)
	})
}

func TestClosed(t *testing.T) {
	// Closed handles give EBADF and the last values, and nothing panics.
	c := open(t, Attr{WaitObj: fi.WaitMutexCond})
	c.Set(3)
	c.SetErr(4)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, c.Close(), fi.EBADF)
	for _, f := range []func() error{
		func() error { return c.Add(1) },
		func() error { return c.Set(1) },
		func() error { return c.AddErr(1) },
		func() error { return c.SetErr(1) },
		func() error { return c.Wait(1, -1) },
		func() error { return c.WaitContext(t.Context(), 9) },
		c.TryWait,
		func() error { _, err := c.Chan(); return err },
		func() error { return c.Bind(new(endpoint)) },
	} {
		wantErr(t, f(), fi.EBADF)
	}
	c.Count(0, 0) // a packet that comes late
	wantValues(t, c, 3, 4)
	if c.Poll() {
		t.Error("a closed counter has news")
	}
}

// An endpoint counts at each poll it is told to.
type endpoint struct {
	c     *Counter
	skip  int // polls before the first that counts
	poll  func()
	todo  atomic.Int32
	armed atomic.Int32
	arm   func()
	arms  sync.WaitGroup
}

func (e *endpoint) Poll() bool {
	if e.poll != nil {
		e.poll()
	}
	if e.skip > 0 {
		e.skip--
		return false
	}
	if e.todo.Load() <= 0 || e.todo.Add(-1) < 0 {
		return false
	}
	e.c.Count(1, 10)
	return true
}
func (e *endpoint) Yield() {}
func (e *endpoint) Arm() {
	e.armed.Add(1)
	if e.arm != nil {
		e.arms.Go(e.arm)
	}
}
func (e *endpoint) Disarm()    { e.armed.Add(-1) }
func (*endpoint) Shared() bool { return false }
func (e *endpoint) wait()      { e.arms.Wait() }

func TestReadDrives(t *testing.T) {
	// R-CNTR-08: whoever only reads sees the value move: reading makes progress.
	c := open(t, Attr{WaitObj: fi.WaitUnspec})
	ep := &endpoint{c: c}
	c.Bind(ep)
	ep.todo.Store(3)
	for want := uint64(1); want <= 3; want++ {
		if got := c.Read(); got != want {
			t.Fatalf("read %d, want %d", got, want)
		}
	}
	// A wait too, and it arms before it sleeps.
	ep.todo.Store(3)
	if err := c.Wait(6, -1); err != nil {
		t.Error(err)
	}
	ep.arm = func() { c.Count(1, 10) }
	for want := uint64(7); want < 100; want++ {
		if err := c.Wait(want, -1); err != nil {
			t.Error(err)
		}
	}
	if n := ep.armed.Load(); n != 0 {
		t.Errorf("armed %d times after the last wait", n)
	}
}

func TestPollSet(t *testing.T) {
	// fi_poll(3): the context of a counter that has changed since, once.
	c, quiet := open(t, Attr{WaitObj: fi.WaitUnspec}), open(t, Attr{})
	s, err := poll.NewSet(0)
	if err != nil {
		t.Fatal(err)
	}
	s.Add(c, 0)
	s.Add(quiet, 0)
	polls := func(want int) {
		t.Helper()
		ctx := make([]any, 2)
		if n, err := s.Poll(ctx); n != want || err != nil || n > 0 && ctx[0] != "ctx" {
			t.Errorf("%d, %v, %v; want %d", n, err, ctx, want)
		}
	}
	polls(0)
	for _, change := range []func(){
		func() { c.Add(1) }, func() { c.AddErr(1) }, func() { c.Set(0) }, func() { c.SetErr(7) },
	} {
		change()
		polls(1)
		polls(0)
	}
	// Whoever reads it: fi_poll(3) tells all that changed since it told last.
	c.Add(1)
	c.AddErr(1)
	c.Read()
	c.ReadErr()
	if err := c.Wait(0, 0); err != nil {
		t.Error(err)
	}
	polls(1)
	polls(0)
	ep := &endpoint{c: quiet}
	quiet.Bind(ep)
	ep.todo.Store(1)
	polls(1)
}

func TestPollSetsOfACounter(t *testing.T) {
	// fi_poll(3): each set tells of a change, whatever another has told, or who
	// asks the counter itself; the values need not differ in the end.
	c := open(t, Attr{})
	sets := make([]*poll.Set, 3)
	for i := range sets {
		var err error
		if sets[i], err = poll.NewSet(0); err != nil {
			t.Fatal(err)
		}
		if err := sets[i].Add(c, 0); err != nil {
			t.Fatal(err)
		}
	}
	polls := func(when string, want int) {
		t.Helper()
		for i, s := range sets {
			if n, err := s.Poll(make([]any, 1)); n != want || err != nil {
				t.Errorf("%s: set %d: %d, %v; want %d", when, i, n, err, want)
			}
		}
		if c.Poll() != (want > 0) || c.Poll() {
			t.Errorf("%s: the counter itself", when)
		}
	}
	polls("new", 0)
	for range 3 {
		c.Add(1)
		polls("changed", 1)
		polls("told", 0)
		c.SetErr(1)
		c.SetErr(0)
		polls("changed and back", 1)
	}
	// Each change by itself, seen by one set only.
	c.Add(1)
	sets[0].Poll(make([]any, 1))
	c.Add(1)
	polls("twice", 1)
	// No room for the context: it is told the next time.
	c.Add(1)
	for _, s := range sets {
		s.Poll(nil)
	}
	polls("no room", 1)
}

func TestWaitSet(t *testing.T) {
	// R-CNTR-06: a member of a wait set is waited for by the set.
	synctest.Test(t, func(t *testing.T) {
		s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec, Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s})
		for _, change := range []func(){func() { c.Add(1) }, func() { c.AddErr(1) }} {
			r := make(chan error, 1)
			go func() { r <- s.Wait(-1) }()
			synctest.Wait()
			if len(r) > 0 {
				t.Fatal("woken by nothing:", <-r)
			}
			change()
			if err := <-r; err != nil {
				t.Error(err)
			}
			c.Read()
			c.ReadErr()
		}
		wantErr(t, s.Wait(time.Second), fi.ETIMEDOUT)
	})
}

// wantTold waits by the set's waiter w for a change that it has not told yet, or
// finds none.
func wantTold(t testing.TB, w interface{ Wait(time.Duration) error }, want bool) {
	t.Helper()
	if err := w.Wait(time.Second); want && err != nil || !want && !errors.Is(err, fi.ETIMEDOUT) {
		t.Errorf("told %v: %v, want %v", err == nil, err, want)
	}
}

func TestWaitSetTellsEachChange(t *testing.T) {
	// R-CNTR-06: who waits by a set is told of each change once, whoever else reads
	// the counter, and though nobody does.
	for _, spin := range []time.Duration{-1, 0} {
		synctest.Test(t, func(t *testing.T) {
			s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec, Spin: spin})
			if err != nil {
				t.Fatal(err)
			}
			c, quiet := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s}), open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s})
			quiet.Bind(new(endpoint)) // something to poll
			wantTold(t, s, false)
			for _, read := range []func(){
				func() {},
				func() { c.Read(); c.ReadErr() },
				func() { c.Poll() },
			} {
				for _, change := range []func(){
					func() { c.Add(1) },
					func() { c.AddErr(1) },
					func() { c.Add(1); c.AddErr(1); c.Count(1, 0) },
					func() { c.Set(0) },
				} {
					change()
					read()
					wantTold(t, s, true)
					wantTold(t, s, false)
				}
			}
		})
	}
}

func TestWaitSetTellsEachWatch(t *testing.T) {
	// R-CNTR-06: of several who wait by a set, what is told to one is told to each
	// other, asleep or late.
	synctest.Test(t, func(t *testing.T) {
		s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec, Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s})
		early, late := s.Watch(), s.Watch()
		told := make(chan error, 1)
		for range 3 {
			go func() { told <- early.Wait(-1) }()
			synctest.Wait()
			c.Add(1)
			if err := <-told; err != nil {
				t.Error(err)
			}
			c.Read()
			wantTold(t, early, false)
			wantTold(t, late, true)
			wantTold(t, late, false)
			wantTold(t, s.Watch(), true) // one who comes now has missed all of it
		}
		wantTold(t, s, true)
		wantTold(t, s, false)
		// All who sleep are woken.
		for _, w := range []*poll.Watch{early, late, early, late} {
			go func() { told <- w.Wait(-1) }()
		}
		synctest.Wait()
		c.AddErr(1)
		c.ReadErr()
		for range 4 {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWaitSetTryWaitTellsEachChange(t *testing.T) {
	// fi_trywait(3): a change that TryWait of the set has not told is told by it
	// before one waits, whoever has read the counter.
	s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitMutexCond})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s})
	ch, err := s.Chan()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.TryWait(); err != nil || len(ch) > 0 {
			t.Fatal(err, len(ch))
		}
		c.Add(1)
		c.Read() // another
		<-ch
		wantErr(t, s.TryWait(), fi.EAGAIN)
	}
	// Also one that TryWait itself comes upon when it polls for the last time.
	ep := &endpoint{c: c, skip: 1}
	ep.todo.Store(1)
	c.Bind(ep)
	wantErr(t, s.TryWait(), fi.EAGAIN)
	if ep.todo.Load() != 0 {
		t.Error("not polled twice")
	}
}

func TestWaitSetOfSeveralReaders(t *testing.T) {
	// R-CNTR-06: those who wait by a set for a value of a counter that all of them
	// read get it, on real threads too.
	const waiters, adders, each = 4, 2, 5000
	s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: s})
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			w := s.Watch()
			for want := uint64(i + 1); want <= adders*each; want += 7 {
				for c.Read() < want {
					if err := w.Wait(-1); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range adders {
		wg.Go(func() {
			for range each {
				c.Count(1, 0)
			}
		})
	}
	wg.Wait()
}

func TestChan(t *testing.T) {
	// fi_trywait(3): between a TryWait that says nil and the next, no change is
	// missed; one that was not read is told once.
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Attr{WaitObj: fi.WaitMutexCond})
		ch, err := c.Chan()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if err := c.TryWait(); err != nil {
				t.Fatal(i, err)
			}
			go c.Add(1)
			if i%3 == 0 {
				for c.Read() <= uint64(i) { // another who reads takes no change away
					runtime.Gosched()
				}
			}
			<-ch
			if i%2 == 0 {
				c.Read()
			} else {
				if err := c.TryWait(); i%3 != 0 && !errors.Is(err, fi.EAGAIN) {
					t.Error(err)
				}
			}
		}
	})
}

func TestConcurrentCounting(t *testing.T) {
	// R-CNTR-08: nothing is lost, and whoever waits for the last one gets it.
	const adders, each = 4, 20000
	c := sleepy(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for want := uint64(i + 1); want <= adders*each; want += 97 {
				if err := c.Wait(want, -1); err != nil {
					t.Error(err)
					return
				}
				if got := c.Read(); got < want {
					t.Errorf("woken at %d, want %d", got, want)
				}
			}
		})
	}
	for range adders {
		wg.Go(func() {
			for range each {
				c.Count(1, 0)
			}
		})
	}
	wg.Wait()
	wantValues(t, c, adders*each, 0)
}

// model lets a counter and a twin do the same: two numbers, and waiters that
// are a threshold and what they knew.
func model(t *rapid.T, bubble func(func())) {
	type step struct {
		op   string
		n    uint64
		rush bool // the next step comes before anybody has run
	}
	script := rapid.SliceOf(rapid.Custom(func(t *rapid.T) step {
		return step{
			op:   rapid.SampledFrom([]string{"add", "set", "adderr", "seterr", "read", "readerr", "wait", "wait", "poll"}).Draw(t, "op"),
			n:    rapid.OneOf(rapid.Uint64Range(0, 8), rapid.Just[uint64](math.MaxUint64)).Draw(t, "n"),
			rush: rapid.Bool().Draw(t, "rush"),
		}
	})).Draw(t, "script")
	failure := ""
	bubble(func() {
		c, err := New(Attr{WaitObj: fi.WaitUnspec, Spin: -1}, nil)
		if err != nil {
			failure = err.Error()
			return
		}
		var val, errs, fails uint64 // fails: changes of errs
		news := false
		type waiter struct {
			threshold uint64
			known     uint64
			r         <-chan error
			due       bool // it may end: its condition held at some time
		}
		var waiters []*waiter
		known := uint64(0)
		plus := func(v, n uint64) uint64 {
			if v+n < v {
				return math.MaxUint64
			}
			return v + n
		}
		for _, s := range script {
			wasVal, wasFails := val, fails
			switch s.op {
			case "add":
				c.Add(s.n)
				val = plus(val, s.n)
			case "set":
				c.Set(s.n)
				val = s.n
			case "adderr":
				c.AddErr(s.n)
				errs = plus(errs, s.n)
				if s.n > 0 {
					fails++
				}
			case "seterr":
				c.SetErr(s.n)
				if errs != s.n {
					fails++
				}
				errs = s.n
			case "read":
				if got := c.Read(); got != val {
					failure = "read"
				}
			case "readerr":
				synctest.Wait()
				if got := c.ReadErr(); got != errs {
					failure = "readerr"
				}
				known = fails
			case "poll":
				if c.Poll() && !news {
					failure = "poll tells news where there are none"
				}
				news = false
			case "wait":
				synctest.Wait() // so that known is what the waiter finds
				known = c.known.Load()
				waiters = append(waiters, &waiter{s.n, known, waiting(c, s.n), false})
			}
			news = news || s.op == "add" || s.op == "set" || wasVal != val || wasFails != fails
			for _, w := range waiters {
				w.due = w.due || val >= w.threshold || fails != w.known
			}
			rush := s.rush && s.op != "wait" // what a waiter knows is what it finds when it begins
			if !rush {
				synctest.Wait()
			}
			left := waiters[:0]
			for _, w := range waiters {
				now := val >= w.threshold || fails != w.known
				select {
				case err := <-w.r:
					if !w.due || err != nil && !errors.Is(err, fi.EAVAIL) {
						failure = "a wait ended that should not"
					}
				default:
					if now && !rush {
						failure = "a wait sleeps over its threshold"
					}
					left = append(left, w)
				}
			}
			waiters = left
			if failure != "" {
				break
			}
		}
		c.Close()
		for _, w := range waiters {
			<-w.r
		}
	})
	if failure != "" {
		t.Fatal(failure)
	}
}

func TestModel(t *testing.T) {
	// R-CNTR-01, -05, -08, -09 in any order of calls.
	rapid.Check(t, func(rt *rapid.T) {
		model(rt, func(f func()) { synctest.Test(t, func(*testing.T) { f() }) })
	})
}

func FuzzModel(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		rapid.MakeFuzz(func(rt *rapid.T) {
			model(rt, func(f func()) { synctest.Test(t, func(*testing.T) { f() }) })
		})(t, data)
	})
}

func TestAllocatesNothing(t *testing.T) {
	c := sleepy(t)
	ep := &endpoint{c: c}
	c.Bind(ep)
	if n := testing.AllocsPerRun(1000, func() {
		c.Count(1, 10)
		c.AddErr(1)
		c.Read()
		c.ReadErr()
		c.Poll()
		c.Wait(1, -1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	back := sleepy(t)
	next := uint64(0)
	go func() {
		for n := uint64(1); back.Wait(n, -1) == nil; n++ {
			c.Add(1)
		}
	}()
	c.Set(0)
	if n := testing.AllocsPerRun(200, func() {
		next++
		back.Add(1)
		c.Wait(next, -1)
	}); n != 0 {
		t.Errorf("%v allocations for a wake-up", n)
	}
	back.Close()
}

func BenchmarkCount(b *testing.B) {
	c := open(b, Attr{})
	for b.Loop() {
		c.Count(1, 8)
	}
}

func BenchmarkRead(b *testing.B) {
	c := open(b, Attr{})
	c.Bind(new(endpoint))
	for b.Loop() {
		c.Read()
	}
}
