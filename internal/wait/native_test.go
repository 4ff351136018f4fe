package wait

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/uetkit/uetkit/fi"
)

func TestChanIsLevel(t *testing.T) {
	p := newPile(t, Attr{Kind: fi.WaitMutexCond})
	c, err := p.Chan()
	if err != nil {
		t.Fatal(err)
	}
	wantReady := func(want bool) {
		t.Helper()
		select {
		case <-c:
			if !want {
				t.Fatal("ready")
			}
		default:
			if want {
				t.Fatal("not ready")
			}
		}
	}
	wantReady(false)
	p.put(2)
	wantReady(true)
	p.take(1) // one is left: it is ready for the next waiter
	wantReady(true)
	p.take(1)
	p.Look()
	wantReady(true) // another goroutine may sleep on it that has not run yet
	if err := p.TryWait(); err != nil {
		t.Fatal(err)
	}
	wantReady(false)
	p.put(1)
	p.take(1)
	if err := p.TryWait(); err != nil {
		t.Fatal(err)
	}
	wantReady(false)
	p.Signal()
	wantReady(true)
	p.end()
	wantReady(true) // waiters learn of the end
}

func TestTryWaitArms(t *testing.T) {
	// After a TryWait that succeeds, progress happens without the application until the
	// descriptor or channel is ready and somebody polls.
	p := newPile(t, Attr{Kind: fi.WaitMutexCond})
	c, _ := p.Chan()
	e := new(endpoint)
	p.Bind(e)
	for range 2 {
		if err := p.TryWait(); err != nil {
			t.Fatal(err)
		}
		e.wantArmed(t, 1)
	}
	p.Poll()
	e.wantArmed(t, 1) // whoever polls, another goroutine may sleep
	p.put(1)
	p.Poll()
	e.wantArmed(t, 0)
	p.take(1)
	// What comes while TryWait arms is seen.
	e.arm = func() { p.put(1) }
	if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
		t.Error(err)
	}
	p.take(1)
	e.arm = nil
	p.Poll()
	// What TryWait polls for itself is seen.
	e.poll = func() bool { p.put(1); return true }
	if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
		t.Error(err)
	}
	e.poll = nil
	p.take(1)
	p.Poll()
	e.wantArmed(t, 0)
	// A change of what is driven wakes a waiter, which then calls TryWait again.
	p.TryWait()
	p.Bind(new(endpoint))
	select {
	case <-c:
	default:
		t.Error("one who waits drives too little")
	}
	p.Release()
	e.wantArmed(t, 0)
}

func TestTryWaitOfTwo(t *testing.T) {
	// R-CQ-22, R-CQ-39: when one goroutine polls, or reads what two were woken for, the other
	// one that sleeps still has progress and still wakes up.
	p := newPile(t, Attr{Kind: fi.WaitMutexCond})
	c, _ := p.Chan()
	e := new(endpoint)
	p.Bind(e)
	if err := p.TryWait(); err != nil { // the sleeper
		t.Fatal(err)
	}
	for range 3 { // the other
		p.Look()
		e.wantArmed(t, 1)
	}
	p.put(1)
	<-c
	p.take(1)
	p.Look()
	e.wantArmed(t, 0)
	select {
	case <-c: // the sleeper
	default:
		t.Fatal("one sleeps without progress")
	}
	p.Look()
	if len(c) != 1 {
		t.Fatal("a third would sleep without progress")
	}
	// When the other goes to sleep itself, its arm drives the first.
	if err := p.TryWait(); err != nil || len(c) != 0 {
		t.Fatal(err, len(c))
	}
	e.wantArmed(t, 1)
	p.Release()
}

func TestTryWaitRaces(t *testing.T) {
	// R-CQ-22: with sleepers and pollers on real threads, over an endpoint that makes progress
	// only when it is polled or armed, everything is read and all end, in any order.
	const each = 3000
	p := newPile(t, Attr{Kind: fi.WaitMutexCond})
	c, _ := p.Chan()
	var armed, left atomic.Int64
	left.Store(2 * each)
	work := make(chan struct{}, 1)
	p.Bind(&toggled{armed: &armed, work: work})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // progress, while armed
		for {
			select {
			case <-work:
			case <-stop:
				return
			}
			for armed.Load() > 0 && p.Have() == 0 {
				p.put(1)
			}
		}
	})
	var sleepers sync.WaitGroup
	for range 2 {
		sleepers.Go(func() {
			for left.Load() > 0 {
				if p.TryWait() == nil {
					<-c
				}
				for p.take(1) == 1 {
					if left.Add(-1) <= 0 {
						p.Signal()
					}
				}
				p.Look()
			}
			p.Signal() // the other
		})
	}
	wg.Go(func() { // polls now and then, reads nothing
		for left.Load() > 0 {
			p.Look()
			runtime.Gosched()
		}
	})
	sleepers.Wait()
	close(stop)
	wg.Wait()
	p.Release()
}

// toggled is an endpoint that works only while it is armed.
type toggled struct {
	armed *atomic.Int64
	work  chan struct{}
}

func (*toggled) Poll() bool { return false }
func (*toggled) Yield()     {}
func (g *toggled) Arm() {
	g.armed.Add(1)
	select {
	case g.work <- struct{}{}:
	default:
	}
}
func (g *toggled) Disarm()    { g.armed.Add(-1) }
func (*toggled) Shared() bool { return false }

func TestTryWaitMisuse(t *testing.T) {
	for _, kind := range []fi.WaitObj{fi.WaitNone, fi.WaitUnspec, fi.WaitYield, fi.WaitFD, fi.WaitMutexCond} {
		p := newPile(t, Attr{Kind: kind})
		_, fdErr := p.FD()
		_, chErr := p.Chan()
		if (fdErr == nil) != (kind == fi.WaitFD) || (chErr == nil) != (kind == fi.WaitMutexCond) {
			t.Errorf("%v: %v, %v", kind, fdErr, chErr)
		}
		if err := p.TryWait(); (err == nil) != (kind != fi.WaitNone) {
			t.Errorf("%v: %v", kind, err)
		}
		p.end()
		if err := p.TryWait(); err == nil {
			t.Errorf("%v: trywait after close", kind)
		}
	}
}

func TestChanWakesEveryWaiterInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitMutexCond})
		c, _ := p.Chan()
		var got atomic.Int32
		for range 4 {
			go func() {
				for p.take(1) == 0 {
					if p.TryWait() == nil {
						<-c
					}
				}
				got.Add(1)
			}()
		}
		synctest.Wait()
		p.put(4)
		synctest.Wait()
		if got := got.Load(); got != 4 {
			t.Errorf("%d of 4 waiters got something", got)
		}
	})
}

func TestTryWaitArmsWhatIsBoundMeanwhile(t *testing.T) {
	// An endpoint that is bound while TryWait arms the others is armed, too.
	p := newPile(t, Attr{Kind: fi.WaitMutexCond})
	if _, err := p.Chan(); err != nil {
		t.Fatal(err)
	}
	first, second := new(endpoint), new(endpoint)
	first.arm = func() { first.arm = nil; p.Bind(second) }
	p.Bind(first)
	if err := p.TryWait(); err != nil {
		t.Fatal(err)
	}
	first.wantArmed(t, 1)
	second.wantArmed(t, 1)
	p.Release()
}

func TestCloseWakesAllOfAChan(t *testing.T) {
	// R-CQ-38: Close wakes all sleepers on a channel, even if none receives something to pass
	// on.
	synctest.Test(t, func(t *testing.T) {
		p := newPile(t, Attr{Kind: fi.WaitMutexCond})
		c, _ := p.Chan()
		left := 3
		done := make(chan bool, left)
		for range left {
			go func() {
				for p.TryWait() == nil {
					<-c
					p.take(1)
					p.Look()
				}
				done <- true
			}()
		}
		synctest.Wait()
		p.end()
		synctest.Wait()
		if len(done) != left {
			t.Errorf("%d of %d waiters learn of the end", len(done), left)
		}
	})
}

func TestTryWaitIntoClose(t *testing.T) {
	// R-CQ-38: TryWait does not succeed on an Object that is closed while it arms, and what it
	// armed, which lives on, is disarmed.
	for _, kind := range []fi.WaitObj{fi.WaitFD, fi.WaitMutexCond} {
		p := newPile(t, Attr{Kind: kind})
		e := new(endpoint)
		p.Bind(e)
		e.arm = func() {
			p.Unbind(e)
			p.end()
			p.Release()
		}
		if err := p.TryWait(); !errors.Is(err, fi.EBADF) {
			t.Errorf("%v: %v", kind, err)
		}
		e.wantArmed(t, 0)
	}
}
