package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

func TestFencedAccesses(t *testing.T) {
	// R-ORD-07: a fenced access, and a short one posted behind it, ends after all that was posted
	// before it, whatever its kind and theirs, on paths that are bad or not.
	kinds := map[string]simtest.OpSpec{
		"write":  {Kind: transport.OpWrite, Len: 64, Level: transport.LevelDelivery},
		"read":   {Kind: transport.OpRead, Len: 64},
		"atomic": {Kind: transport.OpAtomic, Len: 8},
		"fetch":  {Kind: transport.OpFetch, Len: 8},
	}
	for name, kind := range kinds {
		for _, loss := range []float64{0, 0.1} {
			t.Run(fmt.Sprint(name, loss), func(t *testing.T) {
				w := pair(t, 11, bad(loss), memory(1<<20), func(s *simtest.Spec) { s.Hosts[1].Board, s.Hosts[1].Counters = true, true })
				a, b := w.Hosts[0], w.Hosts[1]
				r := b.Post(trecv(100_000))
				before := []*simtest.Op{
					a.Post(simtest.OpSpec{Kind: transport.OpWrite, Peer: 1, Len: 200_000, Level: transport.LevelDelivery}),
					a.Post(read(1, 0, 200_000)), a.Post(tsend(1, 100_000)),
				}
				fenced, behind := kind, kind
				fenced.Peer, behind.Peer, fenced.Fence = 1, 1, true
				if kind.Kind == transport.OpWrite {
					fenced.Addr, behind.Addr = 300_000, 400_000
				}
				after := []*simtest.Op{a.Post(fenced), a.Post(behind)}
				a.OnEvent(func(o *simtest.Op) {
					for _, p := range before {
						if (o == after[0] || o == after[1]) && p.Open() {
							t.Errorf("%v ends before %v", o, p)
						}
					}
				})
				ops := append(append(before, after...), r)
				w.RunOps(time.Minute, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}
