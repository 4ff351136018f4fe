package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// mesh makes a world of n hosts.
func mesh(t testing.TB, n int, seed uint64, line sim.Faults, change ...func(*simtest.Spec)) *simtest.World {
	return pair(t, seed, line, append([]func(*simtest.Spec){func(s *simtest.Spec) {
		one := s.Hosts[0]
		s.Hosts = make([]simtest.HostSpec, n)
		for i := range s.Hosts {
			s.Hosts[i] = one
		}
	}}, change...)...)
}

// everybody has each host send messages to each other, and receive them in the reverse order.
func everybody(t *testing.T, w *simtest.World, rounds, bytes int, rod bool) {
	t.Helper()
	var all []*simtest.Op
	sent := make([][]*simtest.Op, len(w.Hosts))
	for k := range rounds {
		for i, h := range w.Hosts {
			for d := 1; d < len(w.Hosts); d++ {
				s := tsend((i+d)%len(w.Hosts), bytes)
				s.Ordered, s.Class = rod, uint8(k)
				o := h.Post(s)
				sent[(i+d)%len(w.Hosts)] = append(sent[(i+d)%len(w.Hosts)], o)
				all = append(all, o)
			}
		}
	}
	for k := range rounds {
		for i, h := range w.Hosts {
			for d := 1; d < len(w.Hosts); d++ {
				r := trecv(bytes)
				r.AnyClass, r.Class = false, sent[i][(rounds-1-k)*(len(w.Hosts)-1)].Class
				all = append(all, h.Post(r))
			}
		}
	}
	w.RunOps(10*time.Second, all...)
	w.Want("ok", all...)
}

// F18: any number of hosts that announce to each other all come to their end, however few PDCs they may have: one that is
// idle closes for who lacks one, long before IdleClose.
func TestProgramsGoOnWithFewPDCs(t *testing.T) {
	for n := 2; n <= 8; n++ {
		for _, pdcs := range []int{transport.LeastRendezvousPDCs, 5, 6, 9} {
			for _, rod := range []bool{false, true} {
				for _, loss := range []float64{0, 0.05} {
					t.Run(fmt.Sprintf("hosts=%d/pdcs=%d/rod=%v/loss=%v", n, pdcs, rod, loss), func(t *testing.T) {
						t.Parallel()
						w := mesh(t, n, uint64(10*n+pdcs), bad(loss), config(rendezvous), config(func(c *transport.Config) { c.MaxPDCs = pdcs }))
						everybody(t, w, 3, 70_000, rod)
						settle(w)
					})
				}
			}
		}
	}
}

// Messages that are not announced need PDCs, too, and go on with two: one for each direction.
func TestMessagesGoOnWithTwoPDCs(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		for _, rod := range []bool{false, true} {
			t.Run(fmt.Sprintf("hosts=%d/rod=%v", n, rod), func(t *testing.T) {
				w := mesh(t, n, 2, bad(0.05), config(func(c *transport.Config) { c.MaxPDCs = 2 }))
				everybody(t, w, 3, 2000, rod)
				settle(w)
			})
		}
	}
}
