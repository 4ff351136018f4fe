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

// A clock is the only place where a Driver learns the time. A reading costs as much as
// the rest of a post, so what happens at about one time shares it: now.
type clock struct {
	read  func() int64 // begins at an arbitrary value
	begun int64        // that value, less 1: 0 is "no timer" to the core
	now   time.Duration
}

// newClock is other, or time since now if other is nil.
func newClock(other func() time.Duration) clock {
	if other != nil {
		return clock{read: func() int64 { return int64(other()) }}
	}
	return clock{read: nanotime, begun: nanotime() - 1}
}

// time reads the clock. Any goroutine may call it.
func (c *clock) time() time.Duration { return time.Duration(c.read() - c.begun) }

// tick sets now, which belongs to the holder of the lock.
func (c *clock) tick() time.Duration {
	c.now = c.time()
	return c.now
}
