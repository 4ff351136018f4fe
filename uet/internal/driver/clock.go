package driver

import (
	"time"
	_ "unsafe" // for go:linkname
)

// nanotime reads the monotonic clock of the runtime. time.Since reads the same clock and
// spends 50 more instructions, at each poll and post. The runtime keeps the name and the
// type for good (go.dev/issue/67401). The function ignores the bubbles of testing/synctest.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// A clock is the only source of time for a Driver. A reading costs as much as the rest of a
// post, so everything that happens at about one time shares the reading now.
type clock struct {
	read  func() int64 // starts at an arbitrary value
	begun int64        // the value at the start, less 1: to the core, 0 means "no timer"
	now   time.Duration
}

// newClock returns a clock that reads other, or the time since now if other is nil.
func newClock(other func() time.Duration) clock {
	if other != nil {
		return clock{read: func() int64 { return int64(other()) }}
	}
	return clock{read: nanotime, begun: nanotime() - 1}
}

// time reads the clock. Any goroutine may call it.
func (c *clock) time() time.Duration { return time.Duration(c.read() - c.begun) }

// tick reads the clock and sets now. The caller holds the lock.
func (c *clock) tick() time.Duration {
	c.now = c.time()
	return c.now
}
