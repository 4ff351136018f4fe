package uet

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// BenchmarkManyEndpoints has bars H6 and H7 in one process: messages of 64 bytes from a hub to
// many endpoints that share a completion queue, each with up to two messages on the way. B/ep is
// the heap that an endpoint takes after it has received; see docs/perf.md.
func BenchmarkManyEndpoints(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			r := newRig(b, nil)
			manual := func(in *Info) { in.Domain.DataProgress = fi.ProgressManual }
			heap := func() float64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc)
			}
			hub := r.manor(1, manual, func(in *Info) { in.Tx.Size = 1024 })
			before := heap()
			m := r.manor(n, manual)
			opened := heap()
			to := hub.knows(b, m.eps)
			buf, text := make([]byte, 64), make([]byte, 64)
			const each = 2
			recv := func(i int) {
				if err := m.eps[i].TRecv(buf, fi.AddrUnspec, 1, 0, i); err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				for range 2 * each {
					recv(i)
				}
			}
			left := make([]int, n) // how many more may be on the way to each
			for i := range left {
				left[i] = each
			}
			var es [64]cq.Entry
			run := func(count int) {
				sent, got := 0, 0
				next := 0
				for got < count {
					for ; sent < count && left[next] > 0; next = (next + 1) % n {
						err := hub.eps[0].TSend(text, to[next], 1, next)
						if errors.Is(err, fi.EAGAIN) {
							break
						} else if err != nil {
							b.Fatal(err)
						}
						left[next]--
						sent++
					}
					_, _ = hub.q.Read(es[:])
					k, err := m.q.Read(es[:])
					if err != nil && !errors.Is(err, fi.EAGAIN) {
						b.Fatal(err)
					}
					for _, e := range es[:k] {
						i := e.Context.(int)
						recv(i)
						left[i]++
					}
					got += k
				}
			}
			run(10 * n)
			b.ResetTimer()
			run(b.N)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
				_, _ = m.q.Read(es[:])
				_, _ = hub.q.Read(es[:])
			}
			b.ReportMetric((opened-before)/float64(n), "B/opened")
			b.ReportMetric((heap()-before)/float64(n), "B/ep")
			runtime.KeepAlive(m)
		})
	}
}
