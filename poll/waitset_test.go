package poll_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

func TestWaitSetOpen(t *testing.T) {
	for _, c := range []struct {
		attr poll.WaitAttr
		ok   bool
	}{
		{poll.WaitAttr{WaitObj: fi.WaitUnspec}, true},
		{poll.WaitAttr{WaitObj: fi.WaitFD}, true},
		{poll.WaitAttr{WaitObj: fi.WaitMutexCond}, true},
		{poll.WaitAttr{WaitObj: fi.WaitYield}, true},
		{poll.WaitAttr{}, false},
		{poll.WaitAttr{WaitObj: fi.WaitSet}, false},
		{poll.WaitAttr{WaitObj: fi.WaitPollFD}, false},
		{poll.WaitAttr{WaitObj: fi.WaitUnspec, Flags: fi.More}, false},
	} {
		s, err := poll.NewWaitSet(c.attr)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, fi.EINVAL) {
			t.Errorf("%+v: %v", c.attr, err)
		}
		if s != nil {
			s.Close()
		}
	}
}

func TestWaitSetOfSeveralQueues(t *testing.T) {
	// R-CQ-32, R-EQ-16: one wait covers several queues.
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitUnspec)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		b := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		e := newEQ(t, eq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		wantErr(t, s.Wait(0), fi.ETIMEDOUT)
		start := time.Now()
		wantErr(t, s.Wait(time.Second), fi.ETIMEDOUT)
		if time.Since(start) != time.Second {
			t.Error(time.Since(start))
		}
		for _, insert := range []func(){
			func() { put(a) },
			func() { put(b) },
			func() { putEventErr(e) },
		} {
			go func() {
				time.Sleep(time.Millisecond)
				insert()
			}()
			if err := s.Wait(time.Hour); err != nil {
				t.Error(err)
			}
			// Level: as long as it is not read.
			if err := s.Wait(time.Hour); err != nil {
				t.Error(err)
			}
			a.Read(make([]cq.Entry, 1))
			b.Read(make([]cq.Entry, 1))
			e.ReadErr(0)
			wantErr(t, s.Wait(0), fi.ETIMEDOUT)
		}
		// One leaves, the others stay.
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		for _, insert := range []func(){func() { put(b) }, func() { putEventErr(e) }} {
			insert()
			if err := s.Wait(time.Hour); err != nil {
				t.Error(err)
			}
			b.Read(make([]cq.Entry, 1))
			e.ReadErr(0)
		}
		wantErr(t, s.Close(), fi.EBUSY)
	})
}

func TestWaitSetMembersDoNotBlock(t *testing.T) {
	// R-CQ-73, R-EQ-51: who waits by a set waits by the set only. In the bubble an
	// hour is over at once: a read that waits all the same says so.
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitUnspec)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		e := newEQ(t, eq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		start := time.Now()
		_, err := a.SRead(make([]cq.Entry, 1), 0, time.Hour)
		wantErr(t, err, fi.EINVAL)
		_, err = a.SReadFrom(make([]cq.Entry, 1), make([]fi.Addr, 1), 0, time.Hour)
		wantErr(t, err, fi.EINVAL)
		_, err = e.SRead(0, time.Hour)
		wantErr(t, err, fi.EINVAL)
		wantErr(t, a.TryWait(), fi.EINVAL)
		if d := time.Since(start); d != 0 {
			t.Errorf("they waited %v", d)
		}
	})
}

func TestWaitSetDrives(t *testing.T) {
	// A waiter of the set drives the endpoints of its members, and arms them before
	// it sleeps: also those that are bound later.
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitUnspec)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		b := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		first, second := &endpoint{q: a}, &endpoint{q: b}
		completions(a).Bind(first)
		first.todo = 1
		if err := s.Wait(-1); err != nil {
			t.Error(err)
		}
		take(t, a)
		done := make(chan error)
		go func() { done <- s.Wait(-1) }()
		synctest.Wait()
		completions(b).Bind(second)
		synctest.Wait()
		if first.armed != 1 || second.armed != 1 {
			t.Errorf("armed %d and %d times, want once each", first.armed, second.armed)
		}
		put(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if first.armed != 0 || second.armed != 0 {
			t.Errorf("armed %d and %d times after the wait", first.armed, second.armed)
		}
	})
}

func TestWaitSetDrivesOnce(t *testing.T) {
	// An endpoint of two members is driven once, and as long as one has it.
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitUnspec)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		b := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		e := &endpoint{q: a}
		completions(a).Bind(e)
		completions(b).Bind(e)
		done := make(chan error)
		go func() { done <- s.Wait(-1) }()
		for step, change := range []func(){func() {}, func() { completions(a).Unbind(e) }, func() { completions(b).Unbind(e) }} {
			change()
			synctest.Wait()
			if want := []int{1, 1, 0}[step]; e.armed != want {
				t.Errorf("step %d: armed %d times, want %d", step, e.armed, want)
			}
		}
		put(b)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// busy is an endpoint that completes something at each poll, for another who takes
// it at once.
type busy struct {
	endpoint
	t testing.TB
}

func (e *busy) Poll() bool {
	time.Sleep(time.Millisecond)
	if e.todo--; e.todo > 0 {
		put(e.q)
		take(e.t, e.q)
	}
	return e.todo > 0
}

func TestWaitSetTimesOutOverWhatOthersTake(t *testing.T) {
	// fi_wait: what comes and is gone when one looks does not prolong a wait.
	for _, spin := range []time.Duration{-1, 0} {
		synctest.Test(t, func(t *testing.T) {
			s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec, Spin: spin})
			if err != nil {
				t.Fatal(err)
			}
			q := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
			e := &busy{endpoint{q: q, todo: 1000}, t}
			completions(q).Bind(e)
			start := time.Now()
			wantErr(t, s.Wait(10*time.Millisecond), fi.ETIMEDOUT)
			if d := time.Since(start); d > 20*time.Millisecond {
				t.Errorf("ended after %v", d)
			}
		})
	}
}

func TestWaitSetSignal(t *testing.T) {
	// fi_cq_signal on a member, and Signal of the set, end one wait, now or the next
	// (R-CQ-94).
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitMutexCond)
		q := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		e := newEQ(t, eq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		for name, signal := range map[string]func() error{"set": s.Signal, "CQ": q.Signal, "EQ": e.Signal} {
			tell := func() {
				t.Helper()
				if err := signal(); err != nil {
					t.Error(name, err)
				}
			}
			done := make(chan error)
			go func() { done <- s.Wait(time.Second) }()
			synctest.Wait()
			tell()
			if err := <-done; err != nil {
				t.Error(name, err)
			}
			tell()
			if err := s.Wait(time.Second); err != nil {
				t.Error(name, "before:", err)
			}
			wantErr(t, s.Wait(time.Second), fi.ETIMEDOUT)
			tell()
			wantErr(t, s.TryWait(), fi.EAGAIN)
			if err := s.TryWait(); err != nil {
				t.Error(name, err)
			}
		}
		e.Close()
		wantErr(t, e.Signal(), fi.EBADF)
	})
}

func TestWaitSetClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitUnspec)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		wantErr(t, s.Close(), fi.EBUSY)
		done := make(chan error)
		go func() { done <- s.Wait(-1) }()
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-done, fi.ECANCELED)
		wantErr(t, s.Close(), fi.EBADF)
		wantErr(t, s.Signal(), fi.EBADF)
		wantErr(t, s.TryWait(), fi.EBADF)
		wantErr(t, s.Wait(-1), fi.EBADF) // as of a closed queue
		wantErr(t, s.Wait(0), fi.EBADF)
		_, err := cq.New(cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		wantErr(t, err, fi.EINVAL)
	})
}

func TestWaitSetCloseEndsASpin(t *testing.T) {
	// Also where a wait polls and never sleeps, before and during it.
	s := newWaitSet(t, fi.WaitYield)
	done := make(chan error)
	go func() { done <- s.Wait(-1) }()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, fi.EBADF) { // it began after Close
		wantErr(t, err, fi.ECANCELED)
	}
	wantErr(t, s.Wait(-1), fi.EBADF)
	wantErr(t, s.Watch().Wait(0), fi.EBADF)
}

func TestClosedWaitSetHasNoNews(t *testing.T) {
	// A counter that changed before it was closed is nobody's any more.
	s := newWaitSet(t, fi.WaitUnspec)
	c, err := cntr.New(cntr.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := s.Watch()
	c.Add(1)
	c.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, s.TryWait(), fi.EBADF)
	wantErr(t, s.Wait(0), fi.EBADF)
	wantErr(t, w.Wait(-1), fi.EBADF)
}

func TestWaitSetChan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWaitSet(t, fi.WaitMutexCond)
		a := newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		c, err := s.Chan()
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := s.TryWait(); err != nil {
				t.Fatal(err)
			}
			go put(a)
			<-c
			wantErr(t, s.TryWait(), fi.EAGAIN)
			take(t, a)
		}
	})
}

func TestWaitSetLosesNothing(t *testing.T) {
	// Several waiters, several queues: everything is read, nobody sleeps over it.
	const queues, each = 4, 2000
	s := newWaitSet(t, fi.WaitUnspec)
	var qs []*cq.CQ
	for range queues {
		qs = append(qs, newCQ(t, cq.Attr{WaitObj: fi.WaitSet, WaitSet: s, Size: queues * each}, nil))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	left := queues * each
	for range 3 {
		wg.Go(func() {
			e := make([]cq.Entry, 3)
			for {
				if err := s.Wait(-1); err != nil {
					t.Error(err)
				}
				for _, q := range qs {
					n, _ := q.Read(e)
					mu.Lock()
					left -= n
					done := left == 0
					mu.Unlock()
					if done {
						s.Signal() // the other waiters
						return
					}
				}
			}
		})
	}
	for _, q := range qs {
		wg.Go(func() {
			for range each {
				put(q)
			}
		})
	}
	wg.Wait()
}
