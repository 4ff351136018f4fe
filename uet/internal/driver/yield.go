package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// goschedEvery is how many Yields let other threads run before one lets
	// other goroutines run.
	goschedEvery = 32
	// aloneMax tells a sched_yield that came back at once (0.1 to 0.8 µs here)
	// from one that let another thread run.
	aloneMax = 1500 * time.Nanosecond
	// aloneAfter is how many that came back at once, one after the other, tell
	// that nobody else wants the processor any more: another thread that only
	// looks and yields is back as fast.
	aloneAfter = 4
)

// A processor is what Yields have found out of the one that the application runs on.
type processor struct {
	yields atomic.Uint32
	shared atomic.Bool   // somebody else wants it, by the Yields that measured
	alone  atomic.Uint32 // how many in a row found nobody since
}

// Yield lets others run between two empty polls: other threads each time while
// some want the processor, else every fourth time, for the call costs as much as
// a poll; and now and then other goroutines. Every fourth time it measures
// whether others want it.
func (d *Driver) Yield() {
	p := &d.cpu
	n := p.yields.Add(1)
	if n%goschedEvery == 0 {
		runtime.Gosched()
	}
	switch {
	case n%4 == 0 || n == 1:
		t := d.clock.time()
		schedYield()
		p.judge(d.clock.time() - t)
	case p.shared.Load():
		schedYield()
	}
}

// judge learns from how long a sched_yield took. It stores only what changes, for
// several threads may yield.
func (p *processor) judge(took time.Duration) {
	switch shared := p.shared.Load(); {
	case took >= aloneMax:
		if !shared {
			p.shared.Store(true)
		}
		if p.alone.Load() != 0 {
			p.alone.Store(0)
		}
	case shared && p.alone.Add(1) >= aloneAfter:
		p.shared.Store(false)
	}
}

// Shared reports whether others want the processor: then a blocking read lets them
// run before it looks, for what it waits for has most likely not been sent. Not so
// while its look would send something: packets that wait for company, or ACKs.
func (d *Driver) Shared() bool {
	if !d.cpu.shared.Load() {
		return false
	}
	if !d.h.try() {
		return true // the holder sends
	}
	waits := d.company.waits || d.out.surplus || d.core.Owes()
	d.unlock()
	return !waits
}
