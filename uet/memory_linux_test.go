package uet

import (
	"runtime"
	"testing"

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
