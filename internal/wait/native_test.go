package wait

import (
	"errors"
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
	p.take(1) // leaves one: ready for the next waiter
	wantReady(true)
	p.take(1)
	p.Lower()
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
	wantReady(true) // who waits learns of the end
}

func TestTryWaitArms(t *testing.T) {
	// From a TryWait that succeeds until the next poll, progress happens without
	// the application.
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
	e.wantArmed(t, 0)
	// What comes while it arms is seen.
	e.arm = func() { p.put(1) }
	if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
		t.Error(err)
	}
	p.take(1)
	e.arm = nil
	p.Poll()
	// What it polls for itself is seen.
	e.poll = func() bool { p.put(1); return true }
	if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
		t.Error(err)
	}
	e.poll = nil
	p.take(1)
	p.Poll()
	e.wantArmed(t, 0)
	// A change of what is driven wakes one who waits, to call TryWait again.
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
