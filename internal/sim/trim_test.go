package sim_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

func trimming(s *simtest.Spec) { config(func(c *transport.Config) { c.Trimming = true })(s) }

// trims returns a line that cuts a share of the packets sent for the first time, and a share of
// those sent again.
func trims(lastHop bool, share, again float64) sim.Faults {
	f := lan
	f.Trim = simtest.Trim(lastHop)
	f.Trim.Share, f.Trim.ShareRTX = share, again
	return f
}

// sums returns the sums of the counters of all hosts.
func sums(w *simtest.World) (s transport.Stats) {
	for _, h := range w.Hosts {
		v := h.FEP.Stats()
		s.RxTrimmed += v.RxTrimmed
		s.RtxRTO += v.RtxRTO
		s.RtxSACK += v.RtxSACK
		s.RtxNack += v.RtxNack
		s.RtxProbe += v.RtxProbe
		s.RtxSpurious += v.RtxSpurious
		s.TxData += v.TxData
		for i := range v.NacksTx {
			s.NacksTx[i] += v.NacksTx[i]
		}
		for i := range v.Drops {
			s.Drops[i] += v.Drops[i]
		}
	}
	return s
}

// An incast is n senders that share the last hop to host 0.
type incast struct {
	*simtest.World
	ops   [][]*simtest.Op // by sender
	start time.Duration
	hop   *sim.Line // the last hop
}

// newIncast makes each sender post count messages of size bytes at once. It sets the rate of
// all lines, in Gb/s, and the room of the last hop. If the last hop trims, it cuts packets that
// find half of the room used (three quarters, if they were sent again).
func newIncast(t *testing.T, seed uint64, n, count, size int, rate int64, room int, trim bool) *incast {
	t.Helper()
	line := sim.Faults{Delay: 20 * us, Rate: rate * 125_000_000, InOrder: true}
	spec := simtest.Spec{Seed: seed, Line: line, Hosts: make([]simtest.HostSpec, n+1), Light: true}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
		spec.Hosts[i].Node.GRO = 0.9
		spec.Hosts[i].Config.Trimming, spec.Hosts[i].Config.PayloadMTU = trim, 4096
	}
	x := &incast{World: simtest.NewWorld(t, spec)}
	line.Queue = room
	if trim {
		line.Trim = simtest.Trim(true)
		line.Trim.After, line.Trim.AfterRTX = room/2, room*3/4
	}
	x.hop = x.Net.NewLine("last hop", line)
	for i := range n {
		x.Net.Route(x.Hosts[1+i].Node, x.Hosts[0].Node, x.Line(1+i, 0), x.hop)
	}
	post(x.Hosts[0], trecv(size), n*count)
	x.start = x.Now()
	for i := range n {
		x.ops = append(x.ops, post(x.Hosts[1+i], tsend(0, size), count))
	}
	return x
}

// finish waits for the end of all messages and returns how long they took.
func (x *incast) finish(t *testing.T) time.Duration {
	t.Helper()
	for _, ops := range x.ops {
		x.RunOps(time.Minute, ops...)
		x.Want("ok", ops...)
	}
	return x.Now() - x.start
}

// F35: an incast of 8:1 over a last hop that trims is compared with one over a last hop with as
// much room that drops. If all begin at once, nobody waits for a timer once the targets know
// that a packet is missing. If short messages come again and again, each round is done sooner.
func TestF35IncastTrimmed(t *testing.T) {
	both := func(t *testing.T, run func(t *testing.T, trim bool) (time.Duration, transport.Stats)) (took [2]time.Duration, st [2]transport.Stats) {
		for i, name := range []string{"tail drop", "trimming"} {
			took[i], st[i] = run(t, i == 1)
			s := &st[i]
			t.Logf("%s: %v; %d trimmed, resent %d by NACK, %d by SACK, %d by RTO, %d by probe, %d for nothing",
				name, took[i], s.RxTrimmed, s.RtxNack, s.RtxSACK, s.RtxRTO, s.RtxProbe, s.RtxSpurious)
		}
		if st[1].RxTrimmed == 0 || st[0].RxTrimmed != 0 {
			t.Error("nothing was trimmed, or without trimming: the test does not test")
		}
		return took, st
	}
	t.Run("at once", func(t *testing.T) {
		took, st := both(t, func(t *testing.T, trim bool) (time.Duration, transport.Stats) {
			x := newIncast(t, 350, 8, 16, 64<<10, 1, 128<<10, trim)
			took := x.finish(t)
			defer settle(x.World)
			return took, sums(x.World)
		})
		if st[1].RtxRTO != 0 || st[0].RtxRTO == 0 {
			t.Errorf("with trimming %d packets waited for the RTO, without %d", st[1].RtxRTO, st[0].RtxRTO)
		}
		// The rest of the trimmed packets uses a part of the rate.
		if took[1] > took[0]*11/10 {
			t.Errorf("with trimming it took %v, without %v", took[1], took[0])
		}
	})
	t.Run("rounds", func(t *testing.T) {
		took, _ := both(t, func(t *testing.T, trim bool) (time.Duration, transport.Stats) {
			const size = 32 << 10
			x := newIncast(t, 351, 8, 1, size, 10, 64<<10, trim)
			x.finish(t)
			start := x.Now()
			for range 30 {
				post(x.Hosts[0], trecv(size), 8)
				var round []*simtest.Op
				for i := range 8 {
					round = append(round, x.Hosts[1+i].Post(tsend(0, size)))
				}
				x.RunOps(time.Minute, round...)
				x.Want("ok", round...)
			}
			took := x.Now() - start
			defer settle(x.World)
			return took, sums(x.World)
		})
		if took[1] > took[0]*8/10 {
			t.Errorf("with trimming 30 rounds took %v, without %v", took[1], took[0])
		}
	})
}

// F35: 64 senders to one target, each with more to send than there is room for, get the same:
// Jain's index is at least 0.9, over a last hop of 10 Gb/s that marks, and over one that trims.
// By losses alone shares become equal much more slowly (docs/faults.md).
func TestF35JainOf64(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("90 ms of 64 senders are too slow for -race, which finds nothing in one goroutine, and for -short")
	}
	const n, size, room = 64, 16 << 10, 1 << 20
	for _, how := range []string{"ECN", "trimming"} {
		t.Run(how, func(t *testing.T) {
			x := newIncast(t, 360, n, 8, size, 10, room, how == "trimming")
			if how == "ECN" {
				f := x.hop.Faults()
				f.Mark = room / 4
				x.hop.SetFaults(f)
			}
			from, until := x.Now()+20*ms, x.Now()+70*ms
			var got [n]float64
			for i := range n {
				h := x.Hosts[1+i]
				h.OnEvent(func(*simtest.Op) {
					if x.Now() >= from && x.Now() < until {
						got[i]++
					}
					if x.Now() < until {
						h.Post(tsend(0, size))
						x.Hosts[0].Post(trecv(size))
					}
				})
			}
			x.Net.Run(until)
			var sum, squares float64
			for _, k := range got {
				sum, squares = sum+k, squares+k*k
			}
			jain, share := sum*sum/(squares*n), sum*size/(1.25e9*0.05)
			st := sums(x.World)
			t.Logf("Jain %.3f at %.2f of the rate; least %v and most %v messages; %d trimmed, resent %d by RTO, %d by SACK, %d by NACK", jain, share,
				slices.Min(got[:]), slices.Max(got[:]), st.RxTrimmed, st.RtxRTO, st.RtxSACK, st.RtxNack)
			if jain < 0.9 || share < 0.85 {
				t.Errorf("Jain %.3f at %.2f of the rate", jain, share)
			}
			settle(x.World)
		})
	}
}

// F35: when every packet that is sent for the first time is cut, on the last hop or before it,
// each packet is resent once for its NACK, and at least one leaves per round trip.
func TestF35AllTrimmed(t *testing.T) {
	for name, last := range map[string]bool{"last hop": true, "before": false} {
		for _, mode := range []string{"RUD", "ROD"} {
			t.Run(mode+" "+name, func(t *testing.T) {
				w := pair(t, 352, trims(last, 1, 0), trimming)
				a, b := w.Hosts[0], w.Hosts[1]
				// The first packet of a PDC cannot be refused, because there is no PDC yet.
				s := tsend(1, 100)
				s.Ordered = mode == "ROD"
				b.Post(trecv(100))
				first := a.Post(s)
				w.RunOps(time.Second, first)
				s.Len, s.Level = 10<<10, transport.LevelDelivery
				b.Post(trecv(s.Len))
				before := a.FEP.Stats()
				at := w.Now()
				op := a.Post(s)
				w.RunOps(time.Second, op)
				w.Want("ok", first, op)
				st := a.FEP.Stats()
				// There are 10 packets, each of which takes two round trips of 120 µs.
				if took := w.Now() - at; took > 10*2*150*us {
					t.Errorf("10 packets took %v", took)
				}
				if n, m := st.RtxNack-before.RtxNack, st.TxData-before.TxData; n != 10 || m != 20 {
					t.Errorf("%d packets for 10, %d of them for a NACK", m, n)
				}
				code := wire.NackTrimmed
				if last {
					code = wire.NackTrimmedLastHop
				}
				if bs := b.FEP.Stats(); bs.NacksTx[code] != st.RtxNack || bs.RxTrimmed != bs.NacksTx[code]+bs.Drops[transport.DropTrimmed] {
					t.Errorf("%d trimmed, %d of them dropped, %d NACKs for %d resends", bs.RxTrimmed, bs.Drops[transport.DropTrimmed], bs.NacksTx[code], st.RtxNack)
				}
				settle(w)
			})
		}
	}
}

// A trimmed SYN opens nothing and is not answered: the message comes with the resend of the
// RTO.
func TestTrimmedSynOpensNothing(t *testing.T) {
	w := pair(t, 353, trims(false, 1, 0), trimming)
	a, b := w.Hosts[0], w.Hosts[1]
	b.Post(trecv(100))
	op := a.Post(tsend(1, 100))
	w.Run(ms)
	if st := b.FEP.Stats(); st.RxTrimmed != 1 || st.Drops[transport.DropTrimmed] != 1 || b.FEP.PDCs() != 0 || w.PacketsFrom(1) != 0 {
		t.Errorf("%d trimmed, %d dropped; %d PDCs, %d packets in answer", st.RxTrimmed, st.Drops[transport.DropTrimmed], b.FEP.PDCs(), w.PacketsFrom(1))
	}
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// UE 3.6.16: trimming by the last switch before the target does not count against the path;
// trimming before it does.
func TestTrimmedPathIsAvoided(t *testing.T) {
	for name, last := range map[string]bool{"last hop": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			w := pair(t, 354, lan, trimming, eight)
			stream(w, tsend(1, 64<<10), 8, 8)
			// Half of the packets on path 5 are cut.
			cut := trims(last, 0.5, 0)
			through := w.Net.NewLine("trims", cut)
			around := w.Net.NewLine("does not", lan)
			n := byPath(w)
			w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				if what == sim.Sent && p.From == w.Hosts[0].Node {
					l := around
					if p.Path == 5 {
						l = through
					}
					w.Net.Route(w.Hosts[0].Node, w.Hosts[1].Node, l)
				}
			})
			stream(w, tsend(1, 64<<10), 256, 8)
			rest := 0
			for i, k := range n {
				if i != 5 {
					rest += k
				}
			}
			t.Logf("packets by path: %v", *n)
			if share := float64(7*n[5]) / float64(rest); last == (share < 0.75) {
				t.Errorf("the path that trims carried %.2f of what the others did on average", share)
			}
			settle(w)
		})
	}
}

// A cut packet between a FEP that offers its packets to be trimmed and one that does not know
// trimming is damaged: it is sent again like a lost one.
func TestTrimmedAtPeerWithout(t *testing.T) {
	w := pair(t, 355, trims(true, 0.1, 0.1), only(0, func(c *transport.Config) { c.Trimming = true }))
	stream(w, tsend(1, 64<<10), 32, 8)
	if st := w.Hosts[1].FEP.Stats(); st.RxTrimmed != 0 || st.Drops[transport.DropCRC] == 0 {
		t.Errorf("%d trimmed, %d of bad CRC", st.RxTrimmed, st.Drops[transport.DropCRC])
	}
	settle(w)
}

// What a switch leaves of a sealed packet cannot be trusted: it is counted and dropped. A
// secured FEP does not offer its packets, but somebody may have given them the code point.
func TestTrimmedSealedIsDropped(t *testing.T) {
	for name, how := range bothWays {
		t.Run(name, func(t *testing.T) {
			w := pair(t, 356, trims(true, 0.1, 0.1), secure(how), trimming)
			stream(w, tsend(1, 64<<10), 16, 8)
			if st := sums(w); st.RxTrimmed != 0 {
				t.Errorf("%d sealed packets were offered and trimmed", st.RxTrimmed)
			}
			settle(w)
			w = pair(t, 357, trims(true, 0.1, 0.1), secure(how), trimming,
				config(func(c *transport.Config) { c.DSCP = transport.DefaultClasses.Trimmable }))
			stream(w, tsend(1, 64<<10), 16, 8)
			st := sums(w)
			if st.RxTrimmed == 0 || st.Drops[transport.DropTrimmed] != st.RxTrimmed || st.NacksTx[wire.NackTrimmedLastHop] != 0 {
				t.Errorf("%d trimmed, %d dropped, %d NACKs", st.RxTrimmed, st.Drops[transport.DropTrimmed], st.NacksTx[wire.NackTrimmedLastHop])
			}
			settle(w)
		})
	}
}

// T28, T33: whatever forged trimmed packets name, nothing ends, nothing is delivered and no PDC
// is made. One with all numbers right costs at most a resend.
func TestT33ForgedTrimmedPackets(t *testing.T) {
	w := pair(t, 358, lan, hostile, smallWindow, trimming)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	dark := lan
	dark.Loss = 1
	w.Line(0, 1).SetFaults(dark)
	b.Post(trecv(20_000))
	op := a.Post(tsend(1, 20_000)) // nothing of it arrives
	w.Run(100 * us)
	var p simtest.PDC
	for _, q := range w.PDCs(0) {
		if q.Forward && q.Sent > p.Sent {
			p = q
		}
	}
	waits := p.Start + uint32(p.Sent) - 1 // on its way, as far as the hosts know
	tos := transport.DefaultClasses.Trimmed << 2
	other := netip.MustParseAddrPort("10.9.9.9:4793") // not the one that opened it
	good := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: wire.PSN(waits), ClearOff: -1, SPDCID: p.ID, DPDCID: p.Remote}
	syn := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 77, ClearOff: -1, SPDCID: 4711}
	with := func(f func(*wire.Req)) []byte {
		h := good
		f(&h)
		return append(h.Append(nil), make([]byte, 24)...)
	}
	before, pdcs := b.FEP.Stats(), b.FEP.PDCs()
	nothing := map[string][]byte{
		"other source PDCID":  with(func(h *wire.Req) { h.SPDCID++ }),
		"other target PDCID":  with(func(h *wire.Req) { h.DPDCID ^= 0x5555 }),
		"received":            with(func(h *wire.Req) { h.PSN = wire.PSN(p.Start) }),
		"beyond the window":   with(func(h *wire.Req) { h.PSN += 1 << 20 }),
		"before the window":   with(func(h *wire.Req) { h.PSN -= 1 << 20 }),
		"other mode":          with(func(h *wire.Req) { h.Type = wire.TypeRODReq }),
		"SYN of nobody":       with(func(h *wire.Req) { *h = syn }),
		"SYN of another life": with(func(h *wire.Req) { h.Flags, h.DPDCID, h.PSNOffset = wire.FlagSYN, 0, 5 }),
		"no request":          make([]byte, 40),
		"too short":           with(func(*wire.Req) {})[:11],
		"empty":               {},
	}
	n := 0
	for name, pkt := range nothing {
		for range 20 {
			w.ForgeTOS(1, a.Addr(), pkt, tos)
			n++
		}
		w.Run(20 * us)
		if st := b.FEP.Stats(); st.NacksTx != before.NacksTx || b.FEP.PDCs() != pdcs {
			t.Errorf("%s: answered, or %d PDCs are %d", name, pdcs, b.FEP.PDCs())
		}
	}
	w.ForgeTOS(1, other, with(func(*wire.Req) {}), tos)
	w.ForgeTOS(1, b.Addr(), with(func(*wire.Req) {}), tos) // its own address
	w.ForgeTOS(1, a.Addr(), with(func(*wire.Req) {}), 0)
	w.Run(20 * us)
	st := b.FEP.Stats()
	if st.NacksTx != before.NacksTx {
		t.Error("a forged packet was answered")
	}
	short := st.Drops[transport.DropShort] - before.Drops[transport.DropShort]
	if cut := st.Drops[transport.DropTrimmed] - before.Drops[transport.DropTrimmed]; cut+short != uint64(n+1) || short != 20 {
		t.Errorf("of %d packets %d were dropped as trimmed, %d as short", n+1, cut, short)
	}
	if own := st.Drops[transport.DropSelf] - before.Drops[transport.DropSelf]; own != 1 {
		t.Errorf("of the own address: %d dropped as such", own)
	}
	// With all numbers right each causes a NACK, and no more than a resend per round trip.
	at := a.FEP.Stats()
	w.Line(1, 0).SetFaults(lan)
	for range 100 {
		w.ForgeTOS(1, a.Addr(), with(func(*wire.Req) {}), tos)
	}
	w.Run(200 * us)
	if again := a.FEP.Stats().RtxNack - at.RtxNack; again > 2 {
		t.Errorf("100 forged packets made %d resends within two round trips", again)
	}
	if got := b.FEP.Stats().NacksTx[wire.NackTrimmed]; got != before.NacksTx[wire.NackTrimmed]+100 {
		t.Errorf("%d NACKs for 100 packets that it waits for", got)
	}
	w.SetFaults(lan)
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}
