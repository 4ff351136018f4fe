package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// goschedEvery is the number of Yields per one that lets other goroutines run.
	goschedEvery = 32
	// freeEvery and sharedEvery are the numbers of Yields per one that measures, while no
	// other thread is known to want the processor and while one is.
	freeEvery, sharedEvery = 4, 16
	// aloneMax is the duration up to which a sched_yield came back at once (0.1 to 0.8 µs
	// here). A longer one let another thread run.
	aloneMax = 1500 * time.Nanosecond
	// aloneAfter is how many in a row must come back at once before the processor counts as
	// free. One is not enough: another thread that only looks and yields is back as fast.
	aloneAfter = 4
	// A sched_yield that takes takenMin was made behind a thread that does not yield. It had the
	// processor for a slice, 0.7 to 4 ms. No Yield is made for takenFirst after that, because every
	// program is busy for a millisecond now and then; if another such yield comes soon, within
	// takenSoon times as long, for twice as long, and so on until takenFor. Arbitrary: takenFor is
	// one slice in a hundred. In a crowd of threads that all yield, and have much to do now and then,
	// as ranks that exchange a MiB have, only crowdLong in a row tell.
	takenMin   = 500 * time.Microsecond
	takenFirst = 10 * time.Millisecond
	takenSoon  = 4
	takenFor   = 300 * time.Millisecond
	crowdLong  = 8
)

// A processor is what Yields found out about the processor that the application runs on.
type processor struct {
	yields atomic.Uint32
	shared atomic.Bool   // another thread wants it
	alone  atomic.Uint32 // measured Yields in a row that found no other thread since shared was set

	longOnes uint32        // how many Yields that took takenMin tell nothing
	long     atomic.Uint32 // how many there were in a row
	taken    atomic.Int64  // until when it counts as taken by a thread that does not yield (a time.Duration)
	last     atomic.Int64  // the last value of taken that was not 0
	span     atomic.Int64  // for how long it counted as taken then (a time.Duration)
}

// Yield lets others run between two empty polls. Other threads may run each time if some
// want the processor, else every fourth time, because the call costs as much as a poll.
// Other goroutines may run now and then. Some Yields read the clock twice to measure whether
// other threads want the processor. These are few while some do: each is then part of a round
// trip of two ends on one processor. While the processor is Crowded nothing happens.
func (d *Driver) Yield() {
	p := &d.cpu
	if p.taken.Load() != 0 && d.Crowded() {
		return
	}
	n := p.yields.Add(1)
	if n%goschedEvery == 0 {
		runtime.Gosched()
	}
	shared := p.shared.Load()
	switch {
	case n == 1, n%sharedEvery == 0, p.long.Load() != 0, !shared && n%freeEvery == 0:
		t := d.clock.time()
		schedYield()
		now := d.clock.time()
		if p.learn(now, now-t) && !d.keepSlice {
			usualSlice()
		}
	case shared:
		schedYield()
	}
}

// Crowded reports whether another thread takes the processor for whole slices, so that a reader
// had better sleep at once: a thread that sleeps goes before such a one when it wakes, one that
// yields goes behind it, and one that polls uses up its share.
func (d *Driver) Crowded() bool {
	t := d.cpu.taken.Load()
	if t == 0 {
		return false
	}
	if int64(d.clock.time()) < t {
		return true
	}
	d.cpu.taken.CompareAndSwap(t, 0)
	return false
}

// learn concludes from how long a sched_yield took that ended now whether the processor is
// shared. It reports whether the call came back at once although another thread was known to
// want the processor. It stores only changes, because several threads may yield.
func (p *processor) learn(now, took time.Duration) (vain bool) {
	shared := p.shared.Load()
	switch {
	case took >= takenMin:
		if p.long.Load() >= p.longOnes { // also when it is over: one more tells that it is so still
			p.take(now)
		} else {
			p.long.Add(1)
		}
		return false
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
	if p.long.Load() != 0 {
		p.long.Store(0)
	}
	return shared && took < aloneMax
}

// take makes the processor count as taken.
func (p *processor) take(now time.Duration) {
	last := time.Duration(p.last.Load())
	if now < last {
		return // another thread yielded at the same time
	}
	span := takenFirst
	if p.lately(now) {
		span = min(2*time.Duration(p.span.Load()), takenFor)
	}
	p.span.Store(int64(span))
	p.last.Store(int64(now + span))
	p.taken.Store(int64(now + span))
}

// lately reports whether the processor counts as taken, or did not long ago.
func (p *processor) lately(now time.Duration) bool {
	span := time.Duration(p.span.Load())
	return span != 0 && now-time.Duration(p.last.Load()) <= takenSoon*span
}

// pressed reports whether it is sure that another thread takes the processor again and again: one
// sign may be the start of a program, or its collection of garbage.
func (d *Driver) pressed(now time.Duration) bool {
	return d.waits.left(now) >= lostSure || d.cpu.span.Load() > int64(takenFirst) && d.cpu.lately(now)
}

// Shared reports whether a blocking read should let other threads run before it looks. It
// should if they want the processor, because what the read waits for was most likely not
// sent yet. It should not if its look would send something: packets that wait for company,
// or ACKs.
func (d *Driver) Shared() bool {
	if !d.cpu.shared.Load() || d.Crowded() {
		return false
	}
	if !d.h.try() {
		return true // the holder sends
	}
	waits := d.company.waits || d.out.surplus || d.core.Owes()
	d.unlock()
	return !waits
}
