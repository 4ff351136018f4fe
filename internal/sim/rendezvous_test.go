package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

func rendezvous(c *transport.Config) { c.DeferrableMin, c.RendezvousMin = -1, 16<<10 }

// S-RDV: programs that send in one order and receive in another come to their end by rendezvous, too, on good
// paths and bad ones, in order and not. Short ones are ordinary: each that is announced keeps its place among the sends.
func TestRendezvousInReversedOrder(t *testing.T) { reversedPrograms(t, rendezvous) }

// Two hosts that announce to each other, and receive in the reverse order, do not wait for each other for ever.
func TestRendezvousBothWays(t *testing.T) {
	for _, rod := range []bool{false, true} {
		for _, loss := range []float64{0, 0.05} {
			t.Run(fmt.Sprintf("rod=%v/loss=%v", rod, loss), func(t *testing.T) {
				t.Parallel()
				const messages, bytes = 200, 70_000
				w := pair(t, 63, bad(loss), config(rendezvous))
				var sent [2][]*simtest.Op
				var ops []*simtest.Op
				for k := range messages {
					for i, h := range w.Hosts {
						s := tsend(1-i, bytes)
						s.Ordered, s.Class = rod, uint8(k)
						sent[i] = append(sent[i], h.Post(s))
					}
				}
				w.Run(100 * time.Millisecond)
				for k := range messages {
					for i, h := range w.Hosts {
						r := trecv(bytes)
						r.AnyClass, r.Class = false, sent[1-i][messages-1-k].Class
						ops = append(ops, h.Post(r))
					}
				}
				w.RunOps(time.Minute, append(append(ops, sent[0]...), sent[1]...)...)
				w.Want("ok", ops...)
				w.Want("ok", sent[0]...)
				w.Want("ok", sent[1]...)
				settle(w)
			})
		}
	}
}

// A target that is restarted has lost what was announced to it: the sends end, and the next are announced to the
// new life.
func TestRendezvousTargetRestarts(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond, time.Second} {
		for _, rod := range []bool{false, true} {
			w := pair(t, 5, lan, config(rendezvous), mayFail)
			a, b := w.Hosts[0], w.Hosts[1]
			s := tsend(1, 300_000)
			s.Ordered = rod
			ops := post(a, s, 4)
			b.Post(trecv(300_000))
			w.Run(after)
			b.Crash(false)
			w.Run(time.Millisecond)
			b.Restart()
			post(b, trecv(300_000), 5)
			w.RunOps(5*time.Second, ops...)
			w.Want("ok or aborted or aborted, unknown or refused or refused, unknown", ops...) // ok: what was announced to the new life
			again := a.Post(s)
			w.RunOps(10*time.Second, again)
			w.Want("ok", again)
			settle(w)
		}
	}
}
