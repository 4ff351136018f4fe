package sim_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// standard gives all hosts Standard encapsulation and four entropy values. The ledger then checks
// that every packet goes to port 4793, and that ACKs and NACKs repeat entropy values that came.
func standard(s *simtest.Spec) {
	s.Encapsulation = wire.Standard
	for i := range s.Hosts {
		s.Hosts[i].Paths = 4
	}
}

// S-PKT-02, S-PKT-03: two FEPs with Standard encapsulation spray both ways through a network that
// loses and reorders; also sealed, and for strangers refused.
func TestStandardBothWaysWithLoss(t *testing.T) {
	for name, change := range map[string]func(*simtest.Spec){
		"clear":  func(*simtest.Spec) {},
		"ipv6":   func(s *simtest.Spec) { s.IPv6 = true },
		"sealed": func(s *simtest.Spec) { s.Secure = transport.SecureOneRTT },
		"known":  config(func(c *transport.Config) { c.KnownPeersOnly = true }),
		// Every other entropy value cannot be repeated.
		"unbound": config(func(c *transport.Config) { c.Echo = func(ev uint16) bool { return ev%2 == 0 } }),
	} {
		t.Run(name, func(t *testing.T) {
			f := lan
			f.InOrder, f.Loss, f.Jitter = false, 0.03, 20*us
			w := pair(t, 91, f, standard, change)
			used := map[uint16]int{}
			w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				if what == sim.Sent && p.From == w.Hosts[0].Node && len(p.Data) > 500 {
					used[p.Src.Port()]++
				}
			})
			var ops []*simtest.Op
			for i, h := range w.Hosts {
				ops = append(ops, post(h, trecv(40_000), 40)...)
				ops = append(ops, post(h, tsend(1-i, 40_000), 40)...)
			}
			w.RunOps(time.Minute, ops...)
			w.Want("ok", ops...)
			if len(used) != 4 {
				t.Errorf("A sent from the ports %v, not from all 4", used)
			}
			n := w.Hosts[0].FEP.Stats().EVsUnbound
			if unbound := name == "unbound"; unbound != (n > 0) {
				t.Errorf("%d answers could not repeat their entropy value", n)
			}
			settle(w)
		})
	}
}

// S-PKT-03: an ACK repeats the entropy value of the packet that it answers.
func TestStandardACKRepeatsTheEV(t *testing.T) {
	w := pair(t, 92, lan, standard)
	a, b := w.Hosts[0], w.Hosts[1]
	stream(w, tsend(1, 100), 4, 1) // opens the PDC
	var sent, acked []uint16
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		switch {
		case what != sim.Sent:
		case p.From == a.Node && len(p.Data) > 100:
			sent = append(sent, p.Src.Port())
		case p.From == b.Node:
			acked = append(acked, p.Src.Port())
		}
	})
	seen := map[uint16]bool{}
	for range 20 {
		sent, acked = sent[:0], acked[:0]
		stream(w, tsend(1, 100), 1, 1)
		if len(sent) != 1 || len(acked) != 1 || sent[0] != acked[0] {
			t.Fatalf("sent from %v, acknowledged from %v", sent, acked)
		}
		seen[sent[0]] = true
	}
	if len(seen) != 4 {
		t.Errorf("20 messages used the entropy values %v, not all 4", seen)
	}
	settle(w)
}

// UE 3.5.8: a first flight leaves by several entropy values at once, and opens one PDC.
func TestStandardFirstFlightOverSeveralPorts(t *testing.T) {
	w := pair(t, 93, lan, standard, config(func(c *transport.Config) { c.ShortMessage = 1; c.Window = 1 << 20 }))
	a, b := w.Hosts[0], w.Hosts[1]
	ports := map[uint16]bool{}
	syns := 0
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if h, _, err := wire.ParseReq(p.Data); what == sim.Sent && p.From == a.Node && err == nil && h.Flags&wire.FlagSYN != 0 {
			ports[p.Src.Port()] = true
			syns++
		}
	})
	ops := append(post(b, trecv(600_000), 1), a.Post(tsend(1, 600_000)))
	w.RunOps(time.Minute, ops...)
	w.Want("ok", ops...)
	if len(ports) < 2 {
		t.Errorf("%d SYN packets left from the ports %v", syns, ports)
	}
	if n := b.FEP.Stats().PDCAccepted; n != 1 {
		t.Errorf("%d PDCs were opened", n)
	}
	settle(w)
}

// S-PDC-05: with Standard encapsulation a FEP is an IP address. A SYN packet of it with the PDCID
// of a PDC and another Start_PSN is of another life whatever port it comes from, and is refused by
// NACK 15. (Symmetric: TestSYNOfTwoProcessesOfOneHost.)
func TestStandardAnotherLifeIsRefused(t *testing.T) {
	w := pair(t, 94, lan, standard, hostile)
	b := w.Hosts[1]
	before := b.FEP.Stats()
	firstFlight(w, 9, 70_000, 50_000)
	w.Run(ms)
	firstFlight(w, 9, 900_000, 50_001)
	w.Run(ms)
	after := b.FEP.Stats()
	if n := after.PDCAccepted - before.PDCAccepted; n != 1 {
		t.Errorf("%d PDCs were opened", n)
	}
	if n := after.NacksTx[wire.NackInvalidSyn] - before.NacksTx[wire.NackInvalidSyn]; n != 1 {
		t.Errorf("%d SYN packets were refused by NACK 15", n)
	}
	if n := b.FEP.Unexpected(); n != 1 {
		t.Errorf("%d messages arrived", n)
	}
}

// F13 with Standard encapsulation: a restarted initiator that draws a PDCID of its earlier life is
// refused and takes another, though its packets come from several ports.
func TestStandardWeWereRestarted(t *testing.T) {
	start := uint32(1 << 20)
	w := pair(t, 95, lan, standard, mayFail, func(s *simtest.Spec) { s.SameRandom = true }, only(0, func(c *transport.Config) {
		c.StartPSN = func() wire.PSN { start += 1 << 17; return wire.PSN(start) }
	}))
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 4)
	for range 3 {
		open := a.Post(tsend(1, 100_000))
		w.Run(100 * us)
		a.Crash(false)
		w.Run(10 * ms)
		a.Restart()
		if !open.Lost {
			t.Fatal("the operation was too fast")
		}
		ops := append(post(a, tsend(1, 1000), 3), post(a, tsend(1, 50_000), 3)...)
		post(b, trecv(100_000), 7)
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
	}
	if b.FEP.Stats().NacksTx[wire.NackInvalidSyn] == 0 {
		t.Error("no SYN of another life was refused: the test does not test")
	}
	settle(w)
}

// F11 with Standard encapsulation: ICMP about a packet from any port tells of the peer.
func TestStandardEvidenceOfDeath(t *testing.T) {
	w := pair(t, 96, lan, standard, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	b.Crash(true)
	ops := post(a, tsend(1, 50_000), 3)
	w.RunOps(4*time.Second, ops...)
	w.Want("unreachable, unknown", ops...)
	b.Restart()
	settle(w)
}

// S-PKT-02: a peer of a FEP with Standard encapsulation has port 4793.
func TestStandardPeerHasThePort(t *testing.T) {
	w := pair(t, 97, lan, standard)
	other := w.Hosts[1].Node.Ports()[1]
	if _, err := w.Hosts[0].FEP.Peer(netip.AddrPortFrom(w.Hosts[1].Addr().Addr(), other), true); err != transport.ErrNoPeer {
		t.Errorf("Peer at port %d: %v", other, err)
	}
}
