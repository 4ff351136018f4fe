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

// A thread that was kept from its processor gets a short slice, unless that is not wanted or not
// the application's thread.
func TestSliceIsShortened(t *testing.T) {
	for name, c := range map[string]struct {
		keep  bool
		gap   time.Duration
		short bool
	}{
		"after a gap":            {gap: longGap + 1, short: true},
		"after none":             {gap: longGap},
		"where it is to be kept": {gap: longGap + 1, keep: true},
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
			r.pass(c.gap)
			r.conn.arrive("m")
			r.Poll()
			if got := sliceOf(t); (got == slice) != c.short || !c.short && got != usual {
				t.Errorf("%s: the slice is %v, was %v", name, got, usual)
			}
		}()
		<-over
	}
}
