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

// A clock is a reading that begins at an arbitrary value, and that value. It is two
// because a closure that subtracts costs as much as the reading of it.
type clock struct {
	read  func() int64
	begun int64
}

// newClock is other, or time since now if other is nil. It begins at 1: 0 is "no
// timer" to the core.
func newClock(other func() time.Duration) clock {
	if other != nil {
		return clock{read: func() int64 { return int64(other()) }}
	}
	return clock{nanotime, nanotime() - 1}
}

func (c *clock) now() time.Duration { return time.Duration(c.read() - c.begun) }
