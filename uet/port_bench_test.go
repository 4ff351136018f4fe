package uet

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// BenchmarkPosters has several goroutines that send messages of 8 bytes, each from an endpoint of its own to one of its own,
// 32 at a time. The senders have a port each, or share one, where a post waits while another goroutine is in the port.
// See docs/perf.md.
func BenchmarkPosters(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		for _, share := range []bool{false, true} {
			b.Run(fmt.Sprintf("goroutines=%d/shared=%v", n, share), func(b *testing.B) {
				r := newRig(b, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
				var from, at []*node
				if share {
					from = r.sharers(n)
				}
				for range n {
					if !share {
						from = append(from, r.alone())
					}
					at = append(at, r.alone())
				}
				pairs := make([]func(count int), n)
				for i := range n {
					a, to, peer := from[i], from[i].know(at[i]), at[i]
					pairs[i] = func(count int) { stream(b, a, peer, to, count) }
				}
				all := func(count int) {
					var g sync.WaitGroup
					for _, f := range pairs {
						g.Go(func() { f(count) })
					}
					g.Wait()
				}
				all(200)
				b.ResetTimer()
				all(b.N/n + 1)
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			})
		}
	}
}

// stream sends count messages and receives them.
func stream(b *testing.B, a, at *node, to fi.Addr, count int) {
	const window = 32
	msg, buf := make([]byte, 8), make([]byte, 8)
	var es [window]cq.Entry
	posted, sent, got, want := 0, 0, 0, 0
	for sent < count || got < count {
		for ; want < count && want-got < 2*window; want++ {
			if err := at.TRecv(buf, fi.AddrUnspec, 1, 0, nil); err != nil {
				b.Error(err)
				return
			}
		}
		for ; posted < count && posted-sent < window; posted++ {
			if err := a.TSend(msg, to, 1, nil); errors.Is(err, fi.EAGAIN) {
				break
			} else if err != nil {
				b.Error(err)
				return
			}
		}
		for _, c := range []struct {
			q *cq.CQ
			n *int
		}{{a.tx, &sent}, {at.rx, &got}} {
			k, err := c.q.Read(es[:])
			if err != nil && !errors.Is(err, fi.EAGAIN) {
				b.Error(err)
				return
			}
			*c.n += max(k, 0)
		}
	}
}
