package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
)

// talk makes A and B send short messages in turn until each has sent n, and returns A's. A
// waits for think before each.
func talk(w *simtest.World, n int, think time.Duration) []*simtest.Op {
	a, b := w.Hosts[0], w.Hosts[1]
	var sends []*simtest.Op
	said := 0
	say := func() {
		a.Post(trecv(64))
		sends = append(sends, a.Post(tsend(1, 64)))
	}
	b.OnEvent(func(o *simtest.Op) {
		if o.Kind.Recv() && o.OK() {
			said++
			b.Post(tsend(0, 64))
			b.Post(trecv(64))
		}
	})
	a.OnEvent(func(o *simtest.Op) {
		if o.Kind.Recv() && o.OK() && len(sends) < n {
			w.Net.After(think, say)
		}
	})
	post(b, trecv(64), 4)
	say()
	w.RunUntil(10*60*1000*ms, "the last word", func() bool { return said == n && len(sends) == n })
	a.OnEvent(nil)
	b.OnEvent(nil)
	return sends
}

// UE 3.5.12.2: when two ends send short messages in turn over a short path, few messages ask
// for an ACK. Yet all complete, in the order of their stages, whatever the path loses, doubles
// or delays. On a long path all ask.
func TestTalk(t *testing.T) {
	short := sim.Faults{Delay: 2 * us, Rate: 1_250_000_000, Queue: 4 << 20, InOrder: true}
	for _, c := range []struct {
		name   string
		change func(*sim.Faults)
		least  float64 // ACKs per message
		most   float64
	}{
		{"clean", func(*sim.Faults) {}, 0.1, 0.4},
		{"loss 1 %", func(f *sim.Faults) { f.Loss = 0.01 }, 0.1, 0.9},
		{"loss 20 %", func(f *sim.Faults) { f.Loss = 0.2 }, 0.1, 2},
		{"duplicates", func(f *sim.Faults) { f.Duplicate = 0.5 }, 0.1, 2},
		{"jitter", func(f *sim.Faults) { f.Jitter, f.InOrder = 20*us, false }, 0.1, 1.1},
		{"long", func(f *sim.Faults) { f.Delay = 60 * us }, 0.99, 1.01},
		{"long, thinking", func(f *sim.Faults) { f.Delay = 60 * us }, 0.99, 1.01},
	} {
		for seed := range uint64(raced(3, 1)) {
			t.Run(fmt.Sprintf("%s, seed %d", c.name, seed), func(t *testing.T) {
				line := short
				c.change(&line)
				w := pair(t, 400+seed, line, func(s *simtest.Spec) {
					for i := range s.Hosts {
						s.Hosts[i].Flush = simtest.FlushMode(seed % 3)
					}
				})
				const n = 1000
				think := time.Duration(0)
				if strings.HasSuffix(c.name, "thinking") {
					think = 2 * us // so nothing is in flight any more
				}
				sends := talk(w, n, think)
				w.RunOps(1000*ms, sends...)
				w.Want("ok", sends...)
				st := w.Hosts[0].FEP.Stats()
				if per := float64(st.AcksRx) / n; per < c.least || per > c.most {
					t.Errorf("%.3f ACKs per message, want %.2f to %.2f", per, c.least, c.most)
				}
				settle(w)
			})
		}
	}
}
