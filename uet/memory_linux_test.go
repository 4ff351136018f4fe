package uet

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestMemoryOfIdleEndpoints(t *testing.T) {
	// Thousands of endpoints of a process, most of them idle: one that has neither sent nor received
	// takes so much of the heap. The queue that they share is not counted.
	const n, most = 200, 24 << 10
	r := newRig(t, nil)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	m := r.manor(1)
	info := *r.info
	info.clone()
	info.Tx.Size, info.Rx.Size = 16, 16
	info.Domain.DataProgress = fi.ProgressManual
	before := heap()
	for range n {
		ep, err := r.domain.OpenEndpoint(&info, nil)
		ok(t, err)
		ok(t, ep.BindCQ(m.q, fi.Transmit|fi.Recv))
		ok(t, ep.BindAV(m.vec))
		ok(t, ep.Enable())
		m.eps = append(m.eps, ep)
	}
	if each := (heap() - before) / n; each > most {
		t.Errorf("an idle endpoint takes %d bytes, want at most %d", each, most)
	} else {
		t.Logf("an idle endpoint takes %d bytes", each)
	}
}

func TestDescriptorsOfAutomaticEndpoints(t *testing.T) {
	// Many endpoints of a queue with automatic progress take one descriptor each, and the group of all a few, while
	// they are opened, too: no goroutine waits for a single one.
	const n = 100
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		ok(t, err)
		return len(all)
	}
	r := newRig(t, nil)
	m := r.manor(1)
	auto := func(in *Info) { in.Domain.DataProgress = fi.ProgressAuto }
	before, most := files(), 0
	for i := range n {
		m.eps = append(m.eps, r.extra(m, auto))
		most = max(most, files()-before-i)
	}
	const few = 32 // those that came before the group, and those that are just leaving their own goroutine
	if most > few {
		t.Errorf("%d descriptors more than endpoints while they were opened", most)
	}
	for end := time.Now().Add(patience); files()-before > n+8 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if got := files() - before; got > n+8 {
		t.Errorf("%d endpoints take %d descriptors", n, got)
	}
}
