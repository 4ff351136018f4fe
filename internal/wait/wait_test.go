package wait

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pile is the simplest owner of an Object: a number of things.
type pile struct {
	Object
	n int64
}

func newPile(t testing.TB, attr Attr) *pile {
	t.Helper()
	p := new(pile)
	if err := p.Init(attr); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pile) put(n int64) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.n += n
	p.Publish(p.n)
}

// take removes up to n things and returns how many.
func (p *pile) take(n int64) int64 {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.takeLocked(n)
}

func (p *pile) takeLocked(n int64) int64 {
	if p.Closed() {
		return 0
	}
	n = min(n, p.n)
	p.n -= n
	p.Publish(p.n)
	return n
}

func (p *pile) end() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Close()
}

// get is a blocking read of one thing.
func (p *pile) get(ctx context.Context, need int64, deadline Moment) (bool, Reason) {
	for {
		if ctx == context.Background() && deadline == Never && p.Have() == 0 && p.CanLie() {
			if woken := p.Lie(need); woken != nil {
				<-woken
				p.Rise()
				n, closed := p.takeLocked(1), p.Closed()
				p.Mu.Unlock()
				switch {
				case closed:
					return false, Closed
				case n == 1:
					return true, Ready
				}
			}
		}
		why, armed := p.Wait(ctx, need, deadline)
		n, closed := p.takeLocked(1), p.Closed()
		p.Done(armed)
		switch {
		case closed:
			return false, Closed
		case n == 1:
			return true, why
		}
		if why != Ready {
			return false, why
		}
	}
}

const asleep = -1 * time.Nanosecond // Attr.Spin: sleep at once

func TestWaitEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*pile, context.CancelFunc)
		want Reason
		took bool
	}{
		{"by a thing", func(p *pile, _ context.CancelFunc) { p.put(1) }, Ready, true},
		{"by a signal", func(p *pile, _ context.CancelFunc) { p.Signal() }, Signalled, false},
		{"by its context", func(_ *pile, cancel context.CancelFunc) { cancel() }, Cancelled, false},
		{"by its deadline", func(*pile, context.CancelFunc) { time.Sleep(time.Second) }, TimedOut, false},
		{"by close", func(p *pile, _ context.CancelFunc) { p.end() }, Closed, false},
	} {
		for _, spin := range []time.Duration{asleep, time.Minute} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: spin})
					if spin > 0 {
						p.Bind(&endpoint{poll: func() bool { time.Sleep(time.Microsecond); return false }})
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					done := make(chan struct{})
					go func() {
						defer close(done)
						took, why := p.get(ctx, 1, Deadline(time.Second))
						if took != c.took || why != c.want {
							t.Errorf("took %v, %d, want %d", took, why, c.want)
						}
					}()
					time.Sleep(time.Millisecond)
					start := time.Now()
					c.end(p, cancel)
					<-done
					if c.want == TimedOut && time.Since(start) > time.Second {
						t.Errorf("ended after %v", time.Since(start))
					}
				})
			})
		}
	}
}

// An endpoint is a Progress that does what a test says and counts its arms.
type endpoint struct {
	poll      func() bool
	arm       func()
	mu        sync.Mutex
	armed     int
	arms, yld int
}

func (e *endpoint) Poll() bool {
	if e.poll == nil {
		return false
	}
	return e.poll()
}

func (e *endpoint) Yield() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.yld++
}

func (e *endpoint) Arm() {
	e.mu.Lock()
	e.armed++
	e.arms++
	e.mu.Unlock()
	if e.arm != nil {
		e.arm()
	}
}

func (e *endpoint) Disarm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.armed--
}
func (*endpoint) Shared() bool { return false }

// A napping is an endpoint on which one call at a time may nap.
type napping struct {
	endpoint
	busy  atomic.Bool
	naps  atomic.Int32
	bell  chan struct{}
	crowd bool
}

func newNapping() *napping { return &napping{bell: make(chan struct{}, 1)} }

func (n *napping) Nap(limit time.Duration) bool {
	if !n.busy.CompareAndSwap(false, true) {
		return false
	}
	n.naps.Add(1)
	select {
	case <-n.bell:
	case <-time.After(limit):
	}
	n.busy.Store(false)
	return true
}

func (n *napping) Crowded() bool { return n.crowd }

func (n *napping) Rouse() {
	select {
	case n.bell <- struct{}{}:
	default:
	}
}

func (e *endpoint) wantArmed(t *testing.T, want int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.armed != want {
		t.Errorf("armed %d times, want %d", e.armed, want)
	}
}

func TestWaitPollsThenArms(t *testing.T) {
	// A poller never wakes the progress goroutine: an endpoint is armed only when nothing came
	// for as long as Spin.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: 50 * time.Microsecond})
		polls := 0
		e := &endpoint{}
		e.poll = func() bool {
			time.Sleep(time.Microsecond)
			if polls++; polls == 20 {
				p.put(1)
				return true
			}
			return false
		}
		p.Bind(e)
		if took, why := p.get(context.Background(), 1, Never); !took || why != Ready {
			t.Fatal(took, why)
		}
		if e.arms != 0 || e.yld != 20 {
			t.Errorf("%d arms and %d yields while polling, want 0 and 20", e.arms, e.yld)
		}
		// Work that completes nothing keeps it polling. Then it arms, and the endpoint
		// delivers.
		polls = 100
		worked := 200
		e.poll = func() bool {
			time.Sleep(time.Microsecond)
			if polls++; polls <= worked {
				return true
			}
			return false
		}
		e.arm = func() { p.put(1) }
		start := time.Now()
		if took, why := p.get(context.Background(), 1, Never); !took || why != Ready {
			t.Fatal(took, why)
		}
		if d := time.Since(start); d != 150*time.Microsecond || e.arms != 1 {
			t.Errorf("armed %d times after %v, want once after 150µs", e.arms, d)
		}
		e.wantArmed(t, 0)
	})
}

// A call naps at once if it may not spin or the processor is crowded, for napFor; then it arms
// what it drives and sleeps.
func TestWaitNapsThenArms(t *testing.T) {
	for _, crowd := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, e := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep}), newNapping()
			if e.crowd = crowd; crowd {
				p.spin = time.Hour
			}
			p.Bind(e)
			start, over := time.Now(), make(chan struct{})
			go func() {
				p.get(t.Context(), 1, Never)
				close(over)
			}()
			time.Sleep(napFor - time.Millisecond)
			synctest.Wait()
			e.wantArmed(t, 0)
			if n := e.naps.Load(); n != int32(napFor/lookEvery) {
				t.Errorf("%d naps in %v, want one each %v", n, time.Since(start), lookEvery)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			e.wantArmed(t, 1)
			p.put(1)
			<-over
			e.wantArmed(t, 0)
		})
	}
}

// What ends a call that naps ends it at once, its context within lookEvery.
func TestNapEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*pile, context.CancelFunc)
		want Reason
		took bool
		late time.Duration
	}{
		{"by a thing", func(p *pile, _ context.CancelFunc) { p.put(1) }, Ready, true, 0},
		{"by a signal", func(p *pile, _ context.CancelFunc) { p.Signal() }, Signalled, false, 0},
		{"by its context", func(_ *pile, cancel context.CancelFunc) { cancel() }, Cancelled, false, lookEvery},
		{"by its deadline", func(*pile, context.CancelFunc) { time.Sleep(5 * time.Millisecond) }, TimedOut, false, 5 * time.Millisecond},
		{"by close", func(p *pile, _ context.CancelFunc) { p.end() }, Closed, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, e := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep}), newNapping()
				p.Bind(e)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := Never
				if c.want == TimedOut {
					end = Deadline(5 * time.Millisecond)
				}
				over := make(chan struct{})
				var took bool
				var why Reason
				go func() {
					took, why = p.get(ctx, 1, end)
					close(over)
				}()
				synctest.Wait()
				start := time.Now()
				c.end(p, cancel)
				<-over
				if late := time.Since(start); took != c.took || why != c.want || late > c.late {
					t.Errorf("took %v, reason %v, after %v; want %v, %v, at most %v", took, why, late, c.took, c.want, c.late)
				}
				if e.arms != 0 {
					t.Error("it armed the endpoint")
				}
			})
		})
	}
}

func TestWaitObeysDeadlineWhileThereIsWork(t *testing.T) {
	// An endpoint that always has something to do does not make a blocking call outlast its
	// timeout.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec})
		polls := 0
		p.Bind(&endpoint{poll: func() bool { time.Sleep(time.Microsecond); polls++; return polls < 5000 }})
		start := time.Now()
		if _, why := p.get(context.Background(), 1, Deadline(time.Millisecond)); why != TimedOut || time.Since(start) != time.Millisecond {
			t.Errorf("%d after %v", why, time.Since(start))
		}
	})
}

func TestWaitSeesWhatComesWhileItArms(t *testing.T) {
	// No wake-up is lost if something is put at any point between the look that found nothing
	// and the sleep.
	p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
	e := &endpoint{}
	p.Bind(e)
	for _, put := range []func(){
		func() { p.put(1) },
		func() { go p.put(1) },
		func() { p.Signal() },
		func() { go p.Signal() },
	} {
		for range 1000 {
			e.arm = put
			p.get(context.Background(), 1, Never)
		}
	}
	e.wantArmed(t, 0)
}

func TestBindWhileAsleep(t *testing.T) {
	// The sleeper arms an endpoint that is bound while it sleeps, and disarms one that is
	// unbound.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		first, second := new(endpoint), new(endpoint)
		p.Bind(first)
		p.Bind(first) // both directions of one endpoint: driven once
		go p.get(context.Background(), 1, Never)
		synctest.Wait()
		first.wantArmed(t, 1)
		p.Bind(second)
		synctest.Wait()
		first.wantArmed(t, 1)
		second.wantArmed(t, 1)
		p.Unbind(first)
		synctest.Wait()
		first.wantArmed(t, 1)
		p.Unbind(first)
		synctest.Wait()
		first.wantArmed(t, 0)
		p.put(1)
		synctest.Wait()
		second.wantArmed(t, 0)
		if p.Bound() != 1 {
			t.Errorf("%d bound, want 1", p.Bound())
		}
	})
}

func TestNapOnWhatIsDriven(t *testing.T) {
	// An endpoint that is bound when a reader has chosen on what to nap, and is not in the list of
	// those to be woken yet, is not left alone until the nap is over.
	p, e := newPile(t, Attr{Kind: fi.WaitUnspec}), newNapping()
	p.Bind(e)
	p.Mu.Lock()
	over := make(chan bool)
	go func() { over <- p.nap(context.Background(), 1, 0, now()+Moment(10*time.Millisecond)) }()
	time.Sleep(5 * time.Millisecond) // it has chosen, or else sees the new list
	p.list.Store(&driven{size: 2})   // as Bind does
	p.Mu.Unlock()
	if again := <-over; again && e.naps.Load() != 0 {
		t.Error("it naps on what was driven before")
	}
	p.Unbind(e)
}

func TestEachIsDrivenOnce(t *testing.T) {
	// Nothing is left of endpoints that come and go by the thousand. Members of a wait set may
	// share endpoints.
	p := newPile(t, Attr{Kind: fi.WaitUnspec})
	all := []*endpoint{new(endpoint), new(endpoint), new(endpoint)}
	for range 2 {
		for _, e := range all {
			p.Bind(e)
		}
	}
	if n := len(p.all); n != 3 || p.Bound() != 6 {
		t.Errorf("%d driven, %d bound, want 3 and 6", n, p.Bound())
	}
	p.Unbind(all[1])
	p.Unbind(all[1])
	p.Unbind(all[1]) // once too often, which does nothing
	if d := p.all; len(d) != 2 || d[0] != all[0] || d[1] != all[2] || p.Bound() != 4 {
		t.Errorf("driven %v, %d bound", d, p.Bound())
	}
	for range 2 {
		p.Unbind(all[0])
		p.Unbind(all[2])
	}
	if len(p.all) != 0 || p.Bound() != 0 || len(p.bound) != 0 {
		t.Errorf("%d driven, %d bound, %d remembered of none", len(p.all), p.Bound(), len(p.bound))
	}
}

func TestBindNothing(t *testing.T) {
	// nil cannot be bound: it would be driven.
	p := newPile(t, Attr{Kind: fi.WaitUnspec})
	if err := p.Bind(nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	p.Look()
	p.end()
}

func TestSignalIsRemembered(t *testing.T) {
	// R-CQ-94: signals with nobody waiting end one blocking call, however many there were.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec})
		p.Signal()
		p.Signal()
		soon := func() Moment { return Deadline(time.Second) }
		if _, why := p.get(context.Background(), 1, soon()); why != Signalled {
			t.Error(why)
		}
		if _, why := p.get(context.Background(), 1, soon()); why != TimedOut {
			t.Error(why)
		}
		// More signals than sleepers end only the sleepers.
		ended := make(chan Reason, 1)
		go func() {
			_, why := p.get(context.Background(), 1, soon())
			ended <- why
		}()
		synctest.Wait()
		for range 3 {
			p.Signal()
		}
		if why := <-ended; why != Signalled {
			t.Error(why)
		}
		if _, why := p.get(context.Background(), 1, soon()); why != TimedOut {
			t.Error(why)
		}
		// TryWait reports it once.
		p.Signal()
		if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
			t.Error(err)
		}
		if err := p.TryWait(); err != nil {
			t.Error(err)
		}
	})
}

func TestSignalEndsOneEach(t *testing.T) {
	// R-CQ-92: as many signals as sleepers end all of them.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		defer p.end() // ends the sleepers even if the test has failed
		var ended atomic.Int32
		for range 3 {
			go func() {
				p.get(context.Background(), 1, Never)
				ended.Add(1)
			}()
		}
		synctest.Wait()
		for want := int32(1); want <= 3; want++ {
			p.Signal()
			synctest.Wait()
			if got := ended.Load(); got != want {
				t.Fatalf("%d ended, want %d", got, want)
			}
		}
		// The signals are given at once, before any sleeper has run.
		for range 2 {
			go func() {
				p.get(context.Background(), 1, Never)
				ended.Add(1)
			}()
		}
		synctest.Wait()
		p.Signal()
		p.Signal()
		synctest.Wait()
		if got := ended.Load(); got != 5 {
			t.Errorf("%d ended, want 5", got)
		}
	})
}

func TestSpinnerLearnsOfTheEnd(t *testing.T) {
	// A call that polls a closed Object ends as closed, like one that sleeps.
	for _, kind := range []fi.WaitObj{fi.WaitYield, fi.WaitUnspec} {
		p := newPile(t, Attr{Kind: kind})
		p.Signal()
		p.end()
		why, armed := p.Wait(t.Context(), 1, Never)
		p.Done(armed)
		if why != Closed {
			t.Errorf("%v: ended by %d, want %d", kind, why, Closed)
		}
	}
}

func TestSpinnerGivesTheSignalBack(t *testing.T) {
	// R-CQ-94, R-EQ-49: a spinner that consumed the signal, and finds what it waits for when it
	// has the lock, returns that and leaves the signal to another.
	var o Object
	looks := 0
	err := o.InitLevel(Attr{Kind: fi.WaitYield}, func(uint64, uint64) bool {
		looks++
		return looks > 1 // the thing comes between the look and the signal
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Signal()
	why, armed := o.WaitLevel(t.Context(), 1, 0, Never)
	left := o.TakeSignal()
	o.Done(armed)
	if why != Ready || !left {
		t.Errorf("ended by %d, the signal is left: %v", why, left)
	}
}

func TestSignalPassesToAnother(t *testing.T) {
	// R-CQ-70, R-CQ-94: a sleeper that is woken by a signal and finds a thing leaves the signal
	// to another sleeper.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		woken := p.Lie(1)
		ended := make(chan Reason, 1)
		go func() {
			_, why := p.get(t.Context(), 3, Never)
			ended <- why
		}()
		synctest.Wait()
		p.Signal()
		p.put(1)
		<-woken
		p.Rise()
		if p.takeLocked(1) != 1 {
			t.Error("nothing there")
		}
		p.Mu.Unlock()
		if why := <-ended; why != Signalled {
			t.Error(why)
		}
	})
}

func TestSignalPassesToAnotherThatWaits(t *testing.T) {
	// R-CQ-70, R-CQ-94: the same holds for sleepers with a context.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		ended := make(chan Reason, 2)
		for _, need := range []int64{1, 3} {
			go func() {
				_, why := p.get(t.Context(), need, Never)
				ended <- why
			}()
			synctest.Wait()
		}
		p.Mu.Lock() // both come before the first has run
		p.signals.Add(1)
		p.sleepers.wake(Always, false)
		p.n++
		p.Publish(p.n)
		p.Mu.Unlock()
		if first, second := <-ended, <-ended; first+second != Ready+Signalled {
			t.Error(first, second)
		}
	})
}

func TestLieIsForTheSimpleCase(t *testing.T) {
	// Lie returns nil if there is something, or something to drive, or another sleeper. What a
	// sleeper is woken for is its own, and nobody else sees it.
	p := newPile(t, Attr{Kind: fi.WaitUnspec})
	p.put(1)
	if p.Lie(1) != nil {
		t.Error("lies over a thing")
	}
	p.take(1)
	p.Signal()
	if p.Lie(1) != nil {
		t.Error("lies over a signal")
	}
	p.takeSignal()
	e := new(endpoint)
	p.Bind(e)
	if p.CanLie() || p.Lie(1) != nil {
		t.Error("lies undriven")
	}
	p.Unbind(e)
	woken := p.Lie(1)
	if woken == nil || p.Lie(1) != nil {
		t.Fatal("one can lie")
	}
	p.put(1)
	if p.Have() != 0 {
		t.Error("what one was woken for is shown to others")
	}
	p.put(1)
	if p.Have() != 2 {
		t.Error("what comes after it is not")
	}
	<-woken
	p.Rise()
	if p.takeLocked(1) != 1 || p.Have() != 1 {
		t.Error("it takes one and leaves one")
	}
	p.Mu.Unlock()
	p.end()
}

func TestInit(t *testing.T) {
	for kind, ok := range map[fi.WaitObj]bool{
		fi.WaitNone: true, fi.WaitUnspec: true, fi.WaitMutexCond: true, fi.WaitYield: true,
		fi.WaitSet: false, fi.WaitPollFD: false, 99: false,
	} {
		var o Object
		if err := o.Init(Attr{Kind: kind}); (err == nil) != ok || err != nil && !errors.Is(err, fi.EINVAL) {
			t.Errorf("%v: %v", kind, err)
		}
	}
	p := newPile(t, Attr{Kind: fi.WaitNone})
	if err := p.Signal(); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
}

// TestNobodySleepsOverThings proves the invariant of the package: at rest no sleeper is left
// that would find what it needs, or for which there is a signal, and what was read is what was
// put.
func TestNobodySleepsOverThings(t *testing.T) {
	type step struct {
		op string
		n  int64
		// hurry means that the next step comes before anybody has run.
		hurry bool
	}
	steps := rapid.SliceOf(rapid.Custom(func(t *rapid.T) step {
		return step{
			op:    rapid.SampledFrom([]string{"read", "read", "lie", "lie", "put", "steal", "signal", "cancel"}).Draw(t, "op"),
			n:     rapid.Int64Range(1, 4).Draw(t, "n"),
			hurry: rapid.Bool().Draw(t, "hurry"),
		}
	}))
	rapid.Check(t, func(rt *rapid.T) {
		var failure string
		script := steps.Draw(rt, "steps")
		naps := rapid.Bool().Draw(rt, "naps")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancelAll := context.WithCancel(t.Context())
			r := readers{pile: newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep}), asleep: map[*reader]bool{}}
			if naps {
				r.Bind(newNapping())
			}
			for _, s := range script {
				switch s.op {
				case "read":
					r.read(ctx, s.n)
				case "lie":
					r.read(context.Background(), 1)
				case "put":
					r.put += s.n
					r.pile.put(s.n)
				case "steal":
					n := r.pile.take(s.n)
					r.mu.Lock()
					r.taken += n
					r.mu.Unlock()
				case "signal":
					r.Signal()
				case "cancel":
					r.cancelOne()
				}
				if s.hurry {
					continue
				}
				synctest.Wait()
				if failure = r.check(); failure != "" {
					break
				}
			}
			cancelAll()
			time.Sleep(lookEvery)
			synctest.Wait()
			r.pile.end() // ends those that cannot be cancelled
			synctest.Wait()
			if failure == "" && len(r.asleep) > 0 {
				failure = "readers outlive their contexts"
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// A signal that wakes a reader from its nap is for another one if the first finds an entry.
func TestNapHandsTheSignalOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := readers{pile: newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep}), asleep: map[*reader]bool{}}
		r.Bind(newNapping())
		r.read(ctx, 1)
		synctest.Wait()
		r.read(ctx, 2) // one naps already: it sleeps
		synctest.Wait()
		r.Signal()
		r.put++
		r.pile.put(1)
		synctest.Wait()
		if why := r.check(); why != "" {
			t.Error(why)
		}
		cancel()
		time.Sleep(lookEvery)
		synctest.Wait()
	})
}

// readers are blocking readers of a pile, and what became of them.
type readers struct {
	*pile
	put int64

	mu     sync.Mutex
	taken  int64
	asleep map[*reader]bool
}

type reader struct {
	need   int64
	cancel context.CancelFunc
}

// read begins a blocking read. With a bare context it cannot be cancelled.
func (r *readers) read(ctx context.Context, need int64) {
	cancel := func() {}
	if ctx != context.Background() {
		ctx, cancel = context.WithCancel(ctx)
	}
	one := &reader{need, cancel}
	r.mu.Lock()
	r.asleep[one] = true
	r.mu.Unlock()
	go func() {
		took, _ := r.get(ctx, need, Never)
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asleep, one)
		if took {
			r.taken++
		}
	}()
}

func (r *readers) cancelOne() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.asleep {
		one.cancel()
		return
	}
}

func (r *readers) check() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Mu.Lock() // a reader that naps looks now and then
	defer r.Mu.Unlock()
	for one := range r.asleep {
		if one.need <= r.n {
			return fmt.Sprintf("one who needs %d sleeps over %d", one.need, r.n)
		}
	}
	if n := r.signals.Load(); n > 0 && len(r.asleep) > 0 {
		return fmt.Sprintf("%d signals and %d sleepers", n, len(r.asleep))
	}
	if r.put != r.taken+r.n {
		return fmt.Sprintf("put %d, taken %d, left %d", r.put, r.taken, r.n)
	}
	return ""
}

func TestManySleepers(t *testing.T) {
	// The same holds on real threads: nothing is lost, and nobody sleeps on.
	const readers, each = 16, 500
	p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			for range each {
				if took, why := p.get(context.Background(), 1, Never); !took {
					t.Errorf("reader %d ended: %d", i, why)
				}
			}
		})
	}
	for range readers * each / 4 {
		p.put(4)
	}
	wg.Wait()
	if p.n != 0 {
		t.Errorf("%d left", p.n)
	}
}

func TestWaitAllocatesNothing(t *testing.T) {
	for _, deadline := range []Moment{Never, Deadline(time.Hour)} {
		p := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		e := &endpoint{arm: func() { p.put(1) }}
		p.Bind(e)
		back := newPile(t, Attr{Kind: fi.WaitUnspec, Spin: asleep})
		e.arm = nil
		go func() {
			for {
				if took, _ := p.get(context.Background(), 1, deadline); !took {
					return
				}
				back.put(1)
			}
		}()
		n := testing.AllocsPerRun(200, func() {
			p.put(1)
			back.get(context.Background(), 1, deadline)
		})
		p.end()
		if n != 0 {
			t.Errorf("%v allocations for a wake-up, deadline %v", n, deadline != Never)
		}
	}
}

// TestDeadlineBeyondTheClock proves that a timeout too long for a Moment means no limit, and
// has not passed already.
func TestDeadlineBeyondTheClock(t *testing.T) {
	for timeout, want := range map[time.Duration]bool{-1: false, 0: true, time.Hour: true, math.MaxInt64: false} {
		if got := Deadline(timeout); (got != Never) != want || got.Until() > 0 != (timeout != 0) {
			t.Errorf("timeout %d: deadline %d, want one: %v", timeout, got, want)
		}
	}
}
