package traffic

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// recentParts is how many parts an octave of a Recent has: percentiles are at most an eighth too large.
	recentParts = 8
	recentBits  = 3 // of recentParts
)

// A Recent counts the latencies of a run for one who looks on while it goes on. Any goroutine may
// count, one looks.
type Recent struct {
	counts [64 * recentParts]atomic.Int64
	before [64 * recentParts]int64 // at the last look
}

// partOf is the part of a value, bound the most that belongs to a part.
func partOf(v uint64) int {
	if v < recentParts {
		return int(v)
	}
	octave := bits.Len64(v) - recentBits // from 1
	return octave*recentParts + int(v>>(octave-1))&(recentParts-1)
}

func bound(i int) uint64 {
	if i < recentParts {
		return uint64(i)
	}
	octave := i / recentParts
	return (uint64(recentParts+i%recentParts)+1)<<(octave-1) - 1
}

func (r *Recent) note(d time.Duration, n int64) { r.counts[partOf(uint64(max(d, 0)))].Add(n) }

// Take returns the median and the 99th percentile of what was counted since the last call; both
// are 0 if nothing was.
func (r *Recent) Take() (p50, p99 time.Duration) {
	var fresh [64 * recentParts]int64
	all := int64(0)
	for i := range fresh {
		now := r.counts[i].Load()
		fresh[i], r.before[i] = now-r.before[i], now
		all += fresh[i]
	}
	if all == 0 {
		return 0, 0
	}
	sum := int64(0)
	for i, n := range fresh {
		if sum += n; p50 == 0 && 2*sum >= all {
			p50 = max(time.Duration(bound(i)), 1)
		}
		if 100*sum >= 99*all {
			return p50, max(time.Duration(bound(i)), 1)
		}
	}
	return p50, p50 // not reached: the sum of all is all
}

// Watch makes r count the latencies of a leg, if its test measures any. It must be called before the
// leg begins.
func (l *Leg) Watch(r *Recent) {
	if l.hist != nil {
		l.hist.recent = r
	}
}
