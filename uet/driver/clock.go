package driver

import (
	"time"
	_ "unsafe" // for go:linkname
)

// nanotime is the monotonic clock of the runtime. time.Since reads the same one and
// spends 50 instructions around it, at each poll and post. The runtime keeps the
// name and the type for good (go.dev/issue/67401). It does not know the bubbles of
// testing/synctest.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// newClock is time since now, beginning at 1: 0 is "no timer" to the core.
func newClock() func() time.Duration {
	begun := nanotime() - 1
	return func() time.Duration { return time.Duration(nanotime() - begun) }
}
