package driver

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sliceOf returns the slice of the calling thread, 0 if the system tells none.
func sliceOf(t *testing.T) time.Duration {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip("the system tells no slice: ", err)
	}
	return time.Duration(a.Runtime)
}

// A thread that is kept from its processor again and again gets a short slice, unless that is not
// wanted. Once is not enough, however long: a program may do something else for a while.
func TestSliceIsShortened(t *testing.T) {
	for name, c := range map[string]struct {
		keep  bool
		gap   time.Duration
		times int
		short bool
	}{
		"after gaps":             {gap: 3 * time.Millisecond, times: 6, short: true},
		"after a long one":       {gap: time.Second, times: 1},
		"after none":             {gap: longGap, times: 20},
		"where it is to be kept": {gap: 3 * time.Millisecond, times: 6, keep: true},
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			runtime.LockOSThread() // for ever: the thread ends with the goroutine
			usual := sliceOf(t)
			if usual <= slice {
				t.Logf("%s: the system's slice is %v: nothing to shorten", name, usual)
				return
			}
			r := newRig(t)
			r.keepSlice = c.keep
			r.Poll()
			for range c.times {
				r.pass(c.gap)
				r.conn.arrive("m")
				r.Poll()
			}
			if got := sliceOf(t); (got == slice) != c.short || !c.short && got != usual {
				t.Errorf("%s: the slice is %v, was %v", name, got, usual)
			}
		}()
		<-over
	}
}

// A thread with a short slice gets the usual one when its yields come back at once although
// another thread wants the processor, unless the slice is to be kept.
func TestYieldsInVainEndTheShortSlice(t *testing.T) {
	for _, keep := range []bool{false, true} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			runtime.LockOSThread() // for ever: the thread ends with the goroutine
			usualSlice()           // a test before may have shortened this thread's
			usual := sliceOf(t)
			if shortenSlice(); sliceOf(t) != slice {
				t.Logf("the system's slice is %v: nothing to shorten", usual)
				return
			}
			took, now := time.Duration(0), time.Duration(1)
			core, conn := newCore(t), newConn()
			d := New(Config{Core: core, Mover: conn, Conn: conn, Owner: newOwner(core), KeepSlice: keep, Clock: func() time.Duration {
				now += took
				return now
			}})
			defer d.Close()
			for _, took = range []time.Duration{aloneMax - 1, aloneMax, aloneMax} {
				for range sharedEvery {
					d.Yield()
				}
				if got := sliceOf(t); got != slice {
					t.Errorf("yields that took %v made the slice %v", took, got)
				}
			}
			took = aloneMax - 1
			for range sharedEvery {
				d.Yield()
			}
			if got := sliceOf(t); (got == usual) == keep {
				t.Errorf("after yields in vain the slice is %v; kept %v, was %v", got, keep, usual)
			}
		}()
		<-over
	}
}
