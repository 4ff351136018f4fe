package mp_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// heap is the bytes of live objects.
func heap() int64 {
	var m runtime.MemStats
	for range 3 { // what pools keep goes at the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a rank keeps of each other one in a world of 1,024: nearly nothing of one that it never
// spoke with, some KiB of one that it did (performance row M8).
func TestFootprint(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	const size, few, silentMax, idleMax = 1024, 48, 256, 8 << 10
	synctest.Test(t, func(t *testing.T) {
		sizes := map[int]int64{}
		for _, n := range []int{2, 2, size} { // first the memory that is of no rank
			before := heap()
			worlds := mptest.Worlds(t, 1, mp.Config{}, mptest.Memory(mptest.Net{}), mptest.Absent(n-1))
			sizes[n] = heap() - before
			closeAll(t, worlds)
		}
		silent := (sizes[size] - sizes[2]) / (size - 2)
		t.Logf("a rank that was never spoken with: %d bytes; a world of two: %d KiB", silent, sizes[2]>>10)
		if silent > silentMax {
			t.Errorf("a rank that was never spoken with takes %d bytes, want at most %d", silent, silentMax)
		}

		// Not of longer messages: one that comes before its receive lies in memory that the endpoint
		// keeps for the next, whoever sends that.
		for _, long := range []int{8, 4 << 10} {
			worlds := mptest.Worlds(t, few, mp.Config{}, mptest.Memory(mptest.Net{}), mptest.Absent(size-few))
			// What a rank has of its own, whoever it speaks with, is there after it spoke with one.
			talk(t, worlds, long, 1)
			before := heap()
			talk(t, worlds, long, few-1)
			idle := (heap() - before) / (few * (few - 3))
			t.Logf("a rank that was spoken with, %d bytes each way: %d bytes", long, idle)
			if idle > idleMax {
				t.Errorf("a rank that was spoken with takes %d bytes after %d each way, want at most %d", idle, long, idleMax)
			}
			closeAll(t, worlds)
		}
	})
}

// talk lets ranks whose distance round the ring is up to far send n bytes to each other, and then
// be silent.
func talk(t *testing.T, worlds []*mp.World, n, far int) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			c, ctx := w.World(), context.Background()
			out, in := make([]byte, n), make([]byte, n)
			for d := 1; d <= far; d++ {
				to, from := (c.Rank()+d)%len(worlds), (c.Rank()+len(worlds)-d)%len(worlds)
				if _, err := c.Sendrecv(ctx, out, to, 1, in, from, 1); err != nil {
					t.Error(fmt.Errorf("rank %d to %d: %w", c.Rank(), to, err))
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(10 * time.Second)
}
