package cq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// sleepy is a queue whose blocking reads sleep at once.
func sleepy(t testing.TB) *CQ {
	q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: -1})
	t.Cleanup(func() { _ = q.Close() }) // ends who reads though the test has failed
	return q
}

// ended is how a read in a bubble ended. An hour is over at once there, so a read that
// nobody ends fails the test.
func ended(t testing.TB, r <-chan result) result {
	t.Helper()
	select {
	case got := <-r:
		return got
	case <-time.After(time.Hour):
		t.Fatal("it did not end")
		return result{}
	}
}

// sread is a blocking read of one entry without a limit, in a goroutine.
func sread(q *CQ, cond int) <-chan result {
	c := make(chan result, 1)
	go func() {
		e := make([]Entry, 16)
		n, err := q.SRead(e, cond, -1)
		c <- result{n, err, e[0].Context}
	}()
	return c
}

type result struct {
	n     int
	err   error
	first any
}

func TestSReadNeedsAWaitObject(t *testing.T) {
	// R-CQ-19, -73: EINVAL, never a hang, whether something is there or not (in the
	// bubble an hour is over at once). R-CQ-93: nor can it be signalled.
	synctest.Test(t, func(t *testing.T) {
		q, start := open(t, Attr{}), time.Now()
		_, err := q.SRead(make([]Entry, 1), 0, time.Hour)
		wantErr(t, err, fi.EINVAL)
		_, err = q.SReadFrom(make([]Entry, 1), make([]fi.Addr, 1), 0, time.Hour)
		wantErr(t, err, fi.EINVAL)
		if d := time.Since(start); d != 0 {
			t.Errorf("they waited %v", d)
		}
	})
	q := open(t, Attr{})
	put(q, Entry{})
	_, err := q.SRead(make([]Entry, 1), 0, -1)
	wantErr(t, err, fi.EINVAL)
	_, err = q.SReadFrom(make([]Entry, 1), make([]fi.Addr, 1), 0, 0)
	wantErr(t, err, fi.EINVAL)
	wantErr(t, q.Signal(), fi.EINVAL)
	wantErr(t, q.TryWait(), fi.EINVAL)
	wantRead(t, q, 1, nil)
}

func TestSReadWhatIsThere(t *testing.T) {
	// R-CQ-71: at once, whatever the condition says: it is a hint (R-CQ-29).
	// R-CQ-72: an error too.
	q := open(t, Attr{WaitObj: fi.WaitUnspec, WaitCond: fi.CondThreshold})
	put(q, Entry{Context: 1})
	if n, err := q.SRead(make([]Entry, 4), 100, -1); n != 1 || err != nil {
		t.Error(n, err)
	}
	putErr(q, Error{Err: fi.EIO})
	_, err := q.SRead(make([]Entry, 4), 100, -1)
	wantErr(t, err, fi.EAVAIL)
}

func TestSReadTimeouts(t *testing.T) {
	// R-CQ-68: 0 looks once, else the time given. R-CQ-69: EAGAIN, not ETIMEDOUT.
	synctest.Test(t, func(t *testing.T) {
		for _, obj := range []fi.WaitObj{fi.WaitUnspec, fi.WaitMutexCond} {
			q := open(t, Attr{WaitObj: obj})
			for _, timeout := range []time.Duration{0, 1, time.Millisecond, time.Hour} {
				start := time.Now()
				n, err := q.SRead(make([]Entry, 1), 0, timeout)
				if n != 0 || err != fi.EAGAIN || time.Since(start) != timeout {
					t.Errorf("%v: %d, %v after %v", timeout, n, err, time.Since(start))
				}
			}
		}
	})
}

func TestSReadWakes(t *testing.T) {
	// R-CQ-67, -68: a negative timeout waits for an entry or an error.
	// R-CQ-27, -31: any insertion wakes.
	synctest.Test(t, func(t *testing.T) {
		q := sleepy(t)
		r := sread(q, 0)
		time.Sleep(time.Hour)
		if len(r) > 0 {
			t.Fatal("ended by nothing:", <-r)
		}
		put(q, Entry{Context: "x"})
		if got := ended(t, r); got.n != 1 || got.err != nil || got.first != "x" {
			t.Error(got)
		}
		r = sread(q, 0)
		synctest.Wait()
		putErr(q, Error{Err: fi.EIO})
		wantErr(t, ended(t, r).err, fi.EAVAIL)
	})
}

func TestSReadFromSource(t *testing.T) {
	// R-CQ-67: sreadfrom gives sources as readfrom does.
	q := open(t, Attr{WaitObj: fi.WaitUnspec})
	q.Bind(&pollOnce{q: q, src: 5})
	src := make([]fi.Addr, 1)
	if n, err := q.SReadFrom(make([]Entry, 1), src, 0, -1); n != 1 || err != nil || src[0] != 5 {
		t.Error(n, err, src)
	}
}

func TestSReadFromContext(t *testing.T) {
	// R-CQ-67: sources come with the entries of a read that a context ends, and it ends it.
	synctest.Test(t, func(t *testing.T) {
		q := sleepy(t)
		ctx, cancel := context.WithCancel(t.Context())
		type result struct {
			n   int
			err error
			src fi.Addr
		}
		done := make(chan result)
		read := func() {
			src := []fi.Addr{7}
			n, err := q.SReadFromContext(ctx, make([]Entry, 1), src)
			done <- result{n, err, src[0]}
		}
		go read()
		synctest.Wait()
		w := q.Begin()
		w.Put(&Entry{}, 5, false)
		w.End()
		if r := <-done; r.n != 1 || r.err != nil || r.src != 5 {
			t.Errorf("%+v", r)
		}
		go read()
		synctest.Wait()
		cancel()
		if r := <-done; r.n != 0 || !errors.Is(r.err, context.Canceled) || r.src != 7 {
			t.Errorf("%+v", r)
		}
		if n, err := q.SReadFromContext(ctx, make([]Entry, 2), make([]fi.Addr, 1)); n != 0 || !errors.Is(err, fi.EINVAL) {
			t.Errorf("with fewer sources than entries: %d, %v", n, err)
		}
	})
}

type pollOnce struct {
	idle
	q    *CQ
	src  fi.Addr
	seen int
}

func (p *pollOnce) Poll() bool {
	if p.seen++; p.seen != 3 {
		return false
	}
	w := p.q.Begin()
	w.Put(&Entry{}, p.src, false)
	w.End()
	return true
}

func TestSReadThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attr := Attr{WaitObj: fi.WaitUnspec, WaitCond: fi.CondThreshold, Spin: -1, Size: 64}
		// R-CQ-28: as many entries as asked for.
		q := open(t, attr)
		t.Cleanup(func() { _ = q.Close() })
		r := sread(q, 3)
		synctest.Wait()
		put(q, numbered(0, 2)...)
		synctest.Wait()
		if len(r) > 0 {
			t.Fatal("woken by two entries")
		}
		put(q, numbered(2, 3)...)
		if got := ended(t, r); got.n != 3 || got.err != nil {
			t.Error(got)
		}
		// R-CQ-31: an error signals at once.
		r = sread(q, 3)
		synctest.Wait()
		put(q, numbered(0, 1)...)
		putErr(q, Error{Err: fi.EIO})
		if got := ended(t, r); got.n != 1 || got.err != nil { // R-CQ-48, -75
			t.Error(got)
		}
		wantReadErr(t, q, fi.EIO)
		// R-CQ-74: 0 is 1. What can never be reached is what can be.
		r = sread(q, 0)
		synctest.Wait()
		put(q, numbered(0, 1)...)
		if got := ended(t, r); got.n != 1 {
			t.Error(got)
		}
		r = sread(q, 1000)
		synctest.Wait()
		put(q, numbered(0, 64)...)
		if got := ended(t, r); got.n != 16 {
			t.Error(got)
		}
		q.Read(make([]Entry, 64))
		// R-CQ-75: at its timeout it takes what there is.
		go func() {
			time.Sleep(time.Millisecond)
			put(q, numbered(0, 2)...)
		}()
		if n, err := q.SRead(make([]Entry, 16), 5, time.Second); n != 2 || err != nil {
			t.Error(n, err)
		}
		// R-CQ-28: without the attribute cond is ignored.
		q = sleepy(t)
		r = sread(q, 3)
		synctest.Wait()
		put(q, numbered(0, 1)...)
		if got := ended(t, r); got.n != 1 {
			t.Error(got)
		}
	})
}

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// R-CQ-70, -92: a blocked reader returns EAGAIN.
		q := sleepy(t)
		r := sread(q, 0)
		synctest.Wait()
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, ended(t, r).err, fi.EAGAIN)
		// R-CQ-92: as many signals as readers end all of them, however they come.
		for range 20 {
			var rs []<-chan result
			for range 3 {
				rs = append(rs, sread(q, 0))
			}
			synctest.Wait()
			for range rs {
				q.Signal()
			}
			for _, r := range rs {
				wantErr(t, ended(t, r).err, fi.EAGAIN)
			}
		}
		// R-CQ-94: one that comes first ends the next blocking read, and only that.
		q.Signal()
		start := time.Now()
		for _, want := range []time.Duration{0, time.Second} {
			_, err := q.SRead(make([]Entry, 1), 0, time.Second)
			if err != fi.EAGAIN || time.Since(start) != want {
				t.Errorf("%v after %v, want EAGAIN after %v", err, time.Since(start), want)
			}
		}
		// R-CQ-70: an entry that is there is returned, the signal stays.
		q.Signal()
		put(q, Entry{Context: 1})
		if got := ended(t, sread(q, 0)); got.n != 1 {
			t.Error(got)
		}
		wantErr(t, ended(t, sread(q, 0)).err, fi.EAGAIN)
	})
}

func TestSReadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := sleepy(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if n, err := q.SReadContext(ctx, make([]Entry, 1)); n != 0 || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Error(n, err)
		}
		// What is there is worth more than a context that has ended.
		put(q, Entry{Context: 1})
		if n, err := q.SReadContext(ctx, make([]Entry, 1)); n != 1 || err != nil {
			t.Error(n, err)
		}
		// Cancelled while it sleeps, beside one that goes on sleeping.
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := q.SReadContext(ctx, make([]Entry, 1))
			done <- err
		}()
		other := sread(q, 0)
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if len(other) > 0 {
			t.Error("a cancelled context ended another read:", <-other)
		}
		put(q, Entry{Context: 2})
		if got := ended(t, other); got.n != 1 {
			t.Error(got)
		}
	})
}

func TestSReadYield(t *testing.T) {
	// R-CQ-24: no object: it polls and yields, and never arms.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitYield})
		ep := &counting{step: time.Microsecond}
		q.Bind(ep)
		if _, err := q.SRead(make([]Entry, 1), 0, time.Millisecond); err != fi.EAGAIN {
			t.Error(err)
		}
		if ep.arms != 0 || ep.yields < 990 {
			t.Errorf("%d arms, %d yields", ep.arms, ep.yields)
		}
	})
}

// counting is an idle endpoint whose polls take time.
type counting struct {
	step         time.Duration
	arms, yields int
}

func (c *counting) Poll() bool { time.Sleep(c.step); return false }
func (c *counting) Yield()     { c.yields++ }
func (c *counting) Arm()       { c.arms++ }
func (c *counting) Disarm()    { c.arms-- }
func (*counting) Shared() bool { return false }

func TestSReadLetsOthersRunFirst(t *testing.T) {
	// Where others want the processor, who is to send may be one of them: a read
	// that blocks looks after it has let them run. What is there already, and a read
	// that does not block, does not wait for that.
	q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: time.Hour})
	ep := &sharing{q: q}
	q.Bind(ep)
	read := func(timeout time.Duration) string {
		ep.did = ""
		n, err := q.SRead(make([]Entry, 1), 0, timeout)
		return fmt.Sprint(ep.did, n, " ", err == nil)
	}
	for _, c := range []struct {
		wanted  bool
		there   bool
		timeout time.Duration
		want    string
	}{
		{true, false, -1, "yield poll 1 true"},
		{true, false, time.Hour, "yield poll 1 true"},
		{true, false, 0, "poll 0 false"},
		{true, true, -1, "1 true"},
		{false, false, -1, "poll yield poll 1 true"},
	} {
		ep.wanted = c.wanted
		if c.there {
			put(q, Entry{})
		}
		if got := read(c.timeout); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestSReadThatIsOverLetsNobodyRunFirst(t *testing.T) {
	// R-CQ-70, R-CQ-94: a signal that was given before, or a context that has ended,
	// does not wait for others who want the processor.
	q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: time.Hour})
	ep := &sharing{q: q, wanted: true}
	q.Bind(ep)
	if err := q.Signal(); err != nil {
		t.Fatal(err)
	}
	if n, err := q.SRead(make([]Entry, 1), 0, -1); n != 0 || !errors.Is(err, fi.EAGAIN) || ep.did != "poll " {
		t.Errorf("signalled: %d, %v after %q", n, err, ep.did)
	}
	ep.did = ""
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := q.SReadContext(ctx, make([]Entry, 1)); n != 0 || err != context.Canceled || ep.did != "poll " {
		t.Errorf("cancelled: %d, %v after %q", n, err, ep.did)
	}
}

func TestSReadTimeoutCountsFromTheCall(t *testing.T) {
	// R-CQ-69: however long others keep the processor, the last of them beyond the
	// timeout is the last of all.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: time.Hour})
		ep := &sharing{q: q, wanted: true, takes: 3 * time.Millisecond}
		q.Bind(ep)
		start := time.Now()
		if n, err := q.SRead(make([]Entry, 1), 0, 5*time.Millisecond); n != 0 || !errors.Is(err, fi.EAGAIN) {
			t.Error(n, err)
		}
		if d := time.Since(start); d > 6*time.Millisecond {
			t.Errorf("a timeout of 5 ms took %v", d)
		}
	})
}

// sharing is an endpoint whose peer runs only while it yields.
type sharing struct {
	idle
	q      *CQ
	wanted bool
	takes  time.Duration // of a yield; then the peer has nothing to send
	sent   bool
	did    string
}

func (s *sharing) Poll() bool {
	s.did += "poll "
	if s.sent {
		s.sent = false
		put(s.q, Entry{})
	}
	return false
}
func (s *sharing) Yield() {
	s.did += "yield "
	time.Sleep(s.takes)
	s.sent = s.takes == 0
}
func (s *sharing) Shared() bool { return s.wanted }

func TestSReadManual(t *testing.T) {
	// R-CQ-52: a blocking read drives the endpoints until one completes something.
	q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: time.Hour})
	ep := &after{q: q, polls: 100}
	q.Bind(ep)
	if got := <-sread(q, 0); got.n != 1 {
		t.Error(got)
	}
}

type after struct {
	idle
	q     *CQ
	polls int
}

func (a *after) Poll() bool {
	if a.polls--; a.polls == 0 {
		put(a.q, Entry{})
	}
	return false
}

func TestSReadArmed(t *testing.T) {
	// Auto progress: the endpoint completes by itself, from the moment it is armed.
	for range 200 {
		q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: -1})
		ep := &automatic{q: q}
		q.Bind(ep)
		for range 10 {
			if n, err := q.SRead(make([]Entry, 1), 0, -1); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if n := ep.armed.Load(); n != 0 {
			t.Fatalf("armed %d times after the last read", n)
		}
	}
}

// automatic completes something at some time after it is armed.
type automatic struct {
	idle
	q     *CQ
	armed atomic.Int32
	puts  sync.WaitGroup
}

func (a *automatic) Arm() {
	a.armed.Add(1)
	a.puts.Go(func() { put(a.q, Entry{}) })
}
func (a *automatic) wait()   { a.puts.Wait() }
func (a *automatic) Disarm() { a.armed.Add(-1) }

func TestSReadAllocates(t *testing.T) {
	// Neither the sleep nor the wake-up is allocated, with or without a timeout,
	// a condition or errors.
	for _, timeout := range []time.Duration{-1, time.Minute} {
		for _, cond := range []fi.WaitCond{fi.CondNone, fi.CondThreshold} {
			attr := Attr{WaitObj: fi.WaitUnspec, Spin: -1, WaitCond: cond}
			there, back := open(t, attr), open(t, attr)
			done := make(chan struct{})
			ent, bad := Entry{}, Error{Err: fi.EIO}
			go func() {
				defer close(done)
				e, failed := make([]Entry, 4), Error{}
				for i := 0; ; i++ {
					if _, err := there.SRead(e, 1, timeout); err == fi.EAVAIL {
						there.ReadErr(&failed, 0)
					} else if err != nil {
						return
					}
					w := back.Begin()
					w.Put(&ent, 0, false)
					w.End()
				}
			}()
			e, src := make([]Entry, 4), make([]fi.Addr, 4)
			i := 0
			if n := testing.AllocsPerRun(200, func() {
				w := there.Begin()
				if i++; i%3 == 0 {
					w.PutErr(&bad, false)
				} else {
					w.Put(&ent, 0, false)
				}
				w.End()
				if n, err := back.SReadFrom(e, src, 1, timeout); n != 1 {
					t.Error(n, err)
				}
			}); n != 0 {
				t.Errorf("timeout %v, %v: %v allocations", timeout, cond, n)
			}
			there.Close()
			<-done
		}
	}
}

func TestSignalAndEntryEndTwoReads(t *testing.T) {
	// R-CQ-92: of two that sleep, an entry ends one and a signal the other, also
	// where the one who is woken by the signal is the first to look.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitUnspec})
		ended := make(chan int, 2)
		first := q.w.Lie(1) // an SRead up to its sleep
		go func() {
			n, _ := q.SRead(make([]Entry, 1), 0, -1)
			ended <- n
		}()
		synctest.Wait()
		put(q, Entry{Context: 1})
		if err := q.Signal(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		<-first // the rest of it
		q.w.Rise()
		var e [1]Entry
		n, err := q.take(e[:], nil)
		signalled := err == fi.EAGAIN && q.w.TakeSignal()
		q.w.Mu.Unlock()
		if !signalled && n == 0 {
			t.Error("the first sleeps on")
		}
		if len(ended) != 1 {
			t.Error("the second sleeps on")
		} else if got := <-ended; got+n != 1 {
			t.Errorf("read %d and %d entries, want one", n, got)
		}
	})
}
