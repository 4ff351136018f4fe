package uet

import (
	"runtime"
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// BenchmarkConnect opens and accepts connections, both ends in one process, 32 at a time.
// It reports connections a second, and the memory of an idle connection with both ends and
// their socket buffers in user space (docs/perf.md, bar S3).
func BenchmarkConnect(b *testing.B) {
	for _, kind := range []string{"off", "psk", "tls"} {
		b.Run("sec="+kind, func(b *testing.B) { benchmarkConnect(b, kind) })
	}
}

func benchmarkConnect(b *testing.B, kind string) {
	var sec *Security
	switch kind {
	case "psk":
		var err error
		sec, err = NewClusterKey(NewKey(1))
		ok(b, err)
	case "tls":
		sec = newAuthority(b).member("alice")
	}
	r := newMsgRig(b, func(in *Info) { in.Config.Security = sec })
	l := r.listener()
	evts := r.eventQueue(1 << 12)
	q, err := r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	ok(b, err)
	var eps []*Endpoint
	open := func(info *Info) *Endpoint {
		ep, err := r.domain.OpenEndpoint(info, nil)
		ok(b, err)
		ok(b, ep.BindCQ(q, fi.Transmit|fi.Recv))
		ok(b, ep.BindEQ(evts))
		eps = append(eps, ep)
		return ep
	}
	before := inUse()
	const together = 32
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := min(together, b.N-done)
		for range n {
			ok(b, open(r.info).Connect(l.at, nil))
		}
		for range n {
			_, info := l.request()
			ok(b, open(info).Accept(nil))
		}
		for range 2 * n {
			event(b, evts, fi.Connected)
		}
		done += n
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conn/s")
	b.ReportMetric(float64(inUse()-before)/float64(b.N), "B/conn")
	for _, ep := range eps {
		ok(b, ep.Close())
	}
	for {
		if _, err := evts.Read(0); err != nil {
			break
		}
	}
	ok(b, q.Close())
}

// inUse is the memory in use, stacks included.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
