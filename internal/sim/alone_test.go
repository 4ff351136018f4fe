package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestLostReadDataGoesAgainAlone(t *testing.T) {
	// When one packet of read data is lost, that one is sent again, once: no other data, and no
	// request of the read.
	const parts = 64
	for _, rod := range []bool{false, true} {
		for _, nth := range []int{1, 2, 20, parts - 1, parts} {
			t.Run(fmt.Sprint(rod, nth), func(t *testing.T) {
				type packet struct {
					from *sim.Node
					pdc  uint16
					psn  wire.PSN
				}
				w := pair(t, 21, lan, memory(1<<20))
				b := w.Hosts[1]
				warm := read(1, 0, 1024) // opens the PDC
				warm.Ordered = rod
				op := w.Hosts[0].Post(warm)
				w.RunOps(time.Second, op)
				w.Run(50 * ms)
				sent, data := map[packet]int{}, 0
				var lost packet
				w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
					if h, _, err := wire.ParseReq(p.Data); what == sim.Sent && err == nil && (h.Type == wire.TypeRUDReq || h.Type == wire.TypeRODReq) {
						sent[packet{p.From, h.SPDCID, h.PSN}]++
					}
				})
				f := lan
				f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
					h, _, err := wire.ParseReq(p.Data)
					if err != nil || h.Type != wire.TypeRUDReq && h.Type != wire.TypeRODReq {
						return sim.Verdict{}
					}
					if data++; data == nth {
						lost = packet{b.Node, h.SPDCID, h.PSN}
						return sim.Verdict{Drop: true}
					}
					return sim.Verdict{}
				}
				w.Line(1, 0).SetFaults(f)
				s := read(1, 0, parts*1024)
				s.Ordered = rod
				op = w.Hosts[0].Post(s)
				w.RunOps(time.Second, op)
				w.Want("ok", op)
				settle(w)
				requests, returns := 0, 0
				for p, n := range sent {
					want := 1
					if p == lost {
						want = 2
					}
					if n != want {
						t.Errorf("PSN %d of %s was sent %d times, want %d", p.psn, p.from.Name, n, want)
					}
					if p.from == b.Node {
						returns++
					} else {
						requests++
					}
				}
				if requests != parts || returns != parts {
					t.Errorf("%d requests and %d packets of data, want %d each", requests, returns, parts)
				}
			})
		}
	}
}
