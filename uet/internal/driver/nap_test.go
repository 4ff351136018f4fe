package driver

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// nap begins a Nap of a reader and returns a channel that gets what it returned.
func (r *rig) nap(limit time.Duration) <-chan bool {
	over := make(chan bool, 1)
	go func() { over <- r.Nap(limit) }()
	return over
}

func TestNapHasTheSocketForItself(t *testing.T) {
	// A reader that naps is woken by a packet, and the progress goroutine neither looks at the
	// socket meanwhile nor handles the packet.
	for _, auto := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := bubbleRig(t, auto)
			synctest.Wait() // the goroutine sleeps on the socket
			r.core.takeLog()
			over := r.nap(time.Minute)
			time.Sleep(20 * stepBack)
			synctest.Wait()
			r.wantLog()
			if n := r.conn.naps.Load(); n != 1 || len(over) != 0 {
				t.Fatalf("%d naps, %d over", n, len(over))
			}
			start := time.Now()
			r.conn.arrive("m1")
			woken := <-over
			synctest.Wait()
			if !woken || time.Since(start) != 0 || r.own.count() != 0 {
				t.Errorf("auto %v: the packet woke the reader after %v; %d events by then", auto, time.Since(start), r.own.count())
			}
			if !r.Poll() || r.own.count() != 1 {
				t.Errorf("%d events after a poll", r.own.count())
			}
			// The application computes: progress is the goroutine's again, if it is automatic.
			r.conn.arrive("m2")
			time.Sleep(2 * stepBack)
			synctest.Wait()
			if n := r.own.count(); (n == 2) != auto {
				t.Errorf("auto %v: %d events while the application computes", auto, n)
			}
			_ = r.Close()
		})
	}
}

func TestNapLooksAtDeadlines(t *testing.T) {
	// The reader sleeps until a deadline that is known, or that a post of another goroutine adds.
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := bubbleRig(t, false)
			r.Poll()
			set := func() {
				r.core.set(func() { r.core.timeout = r.clock.time() + 5*time.Millisecond })
				r.send("a")
			}
			if !late {
				set()
			}
			start := time.Now()
			over := r.nap(time.Minute)
			synctest.Wait()
			for late {
				set()
				<-over // for the new deadline
				over, late = r.nap(time.Minute), false
			}
			if <-over; time.Since(start) != 5*time.Millisecond {
				t.Errorf("the nap took %v", time.Since(start))
			}
			over = r.nap(time.Minute)
			if !<-over || time.Since(start) != 5*time.Millisecond {
				t.Error("a reader naps past a deadline")
			}
			_ = r.Close()
		})
	}
}

func TestNapIsForOneThatWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		over := r.nap(time.Minute)
		synctest.Wait()
		if r.Nap(time.Minute) {
			t.Error("two readers nap")
		}
		// Another one sleeps. After the nap the goroutine serves it at once.
		r.Arm()
		r.Rouse()
		if !<-over {
			t.Error("the nap did not take place")
		}
		synctest.Wait()
		if r.Nap(time.Minute) {
			t.Error("a reader naps while another relies on the goroutine")
		}
		start := time.Now()
		r.conn.arrive("m1")
		<-r.own.arrived
		if d := time.Since(start); d != 0 {
			t.Errorf("a sleeping reader was served %v late", d)
		}
		r.Disarm()
		_ = r.Close()
		if r.Nap(time.Minute) {
			t.Error("a nap after Close")
		}
	})
}

func TestNapLeavesAProcessor(t *testing.T) {
	// Of the processors of the scheduler one stays for those that do not nap, unless there is but
	// one, which other threads take as well.
	for _, c := range []struct {
		procs, want int
		crowded     bool
	}{{1, 0, false}, {1, 1, true}, {2, 1, false}, {2, 1, true}, {8, 7, true}} {
		if got := mostNappers(c.procs, c.crowded); got != c.want {
			t.Errorf("%+v: %d nap", c, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, false)
		n := 0
		for nappers.enter(true) {
			n++
		}
		if want := mostNappers(runtime.GOMAXPROCS(0), true); n != want || r.Nap(time.Minute) {
			t.Errorf("%d nap at once, want %d and no more", n, want)
		}
		for range n {
			nappers.leave()
		}
		_ = r.Close()
	})
}

func TestCloseEndsANap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		over := r.nap(time.Minute)
		synctest.Wait()
		start := time.Now()
		_ = r.Close()
		if <-over; time.Since(start) != 0 {
			t.Errorf("the nap ended %v after Close", time.Since(start))
		}
	})
}

func TestCrowded(t *testing.T) {
	// A yield that takes a slice says that sleeping is better than yielding, for a while.
	took := aloneMax - 1
	now, looks := time.Duration(1), 0
	core, conn := newCore(t), newConn()
	d := New(Config{Core: core, Mover: conn, Conn: conn, Owner: newOwner(core), Clock: func() time.Duration {
		now += took
		looks++
		return now
	}})
	defer d.Close()
	yield := func() {
		for range 2 * freeEvery {
			d.Yield()
		}
	}
	yield()
	if d.Crowded() {
		t.Error("crowded though yields come back at once")
	}
	took = takenMin
	yield()
	if took = 0; !d.Crowded() || d.Shared() {
		t.Error("not crowded after a yield that took a slice")
	}
	looks = 0
	yield()
	if looks != 2*freeEvery { // each looks whether it is over, none measures
		t.Errorf("%d readings of the clock in %d yields", looks, 2*freeEvery)
	}
	now += takenFirst
	if d.Crowded() {
		t.Error("crowded for ever")
	}
}

// A yield that takes a slice makes a reader nap for a short time: any program is busy for a
// millisecond at times. If such yields come again and again, for longer and longer.
func TestTakenForLongerAndLonger(t *testing.T) {
	var p processor
	now := time.Second
	span := func() time.Duration { return time.Duration(p.taken.Load()) - now }
	for want := takenFirst; want < 3*takenFor; want *= 2 {
		p.learn(now, takenMin)
		if got := span(); got != min(want, takenFor) {
			t.Errorf("taken for %v, want %v", got, min(want, takenFor))
		}
		was := span()
		p.learn(now+1, takenMin) // another thread, at the same time
		if got := span(); got != was {
			t.Errorf("two yields at the same time: taken for %v, was %v", got, was)
		}
		now += was + takenMin
		p.learn(now, aloneMax) // a yield to a third thread does not count
	}
	now += takenSoon*takenFor + 1
	if p.learn(now, takenMin); span() != takenFirst {
		t.Errorf("after a long time taken for %v", span())
	}
}

func TestCrowd(t *testing.T) {
	// In a crowd of threads that yield, yields that take as long as a slice now and then are behind
	// threads that have much to do.
	took, now := time.Duration(0), time.Duration(1)
	core, conn := newCore(t), newConn()
	d := New(Config{Core: core, Mover: conn, Conn: conn, Owner: newOwner(core), Crowd: true, Clock: func() time.Duration {
		now += took
		return now
	}})
	defer d.Close()
	for range 3 * crowdLong {
		for range crowdLong - 1 {
			d.cpu.learn(now, takenMin)
		}
		d.cpu.learn(now, aloneMax)
	}
	if d.Crowded() {
		t.Error("crowded though some yields are short")
	}
	took = takenMin
	for range 2 * crowdLong { // the first is measured, and then each
		d.Yield()
	}
	if took = 0; !d.Crowded() || d.Shared() {
		t.Error("not crowded after yields that took a slice each")
	}
	now += takenFor
	took = takenMin
	d.Yield()
	if took = 0; !d.Crowded() {
		t.Error("not crowded after one more yield that took a slice")
	}
}
