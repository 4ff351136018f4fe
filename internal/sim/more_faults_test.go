package sim_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Each test has the number of the fault that it is about, as in faults_test.go.

// reseal writes the trailer for a packet's addresses.
func reseal(p *sim.Packet) {
	wire.PutCRC(p.Data, wire.CRCPrefix(p.Src.Addr(), p.Dst.Addr(), p.Src.Port(), p.Dst.Port(), uint16(8+len(p.Data))))
}

// rewrite makes a line change the packets that pass it.
func rewrite(f sim.Faults, change func(p *sim.Packet)) sim.Faults {
	f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) > 0 {
			change(p)
		}
		return sim.Verdict{}
	}
	return f
}

func drops(h *simtest.Host, r transport.DropReason) uint64 { return h.FEP.Stats().Drops[r] }

// F14: requests from another source port of the same address, correctly sealed, have another
// entropy value: they are executed like any other.
func TestF14NewSourcePort(t *testing.T) {
	w := pair(t, 200, lan)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	before := b.FEP.Stats()
	moved := 0
	w.Line(0, 1).SetFaults(rewrite(lan, func(p *sim.Packet) {
		p.Src = netip.AddrPortFrom(p.Src.Addr(), 50_000+uint16(moved%8))
		reseal(p)
		moved++
	}))
	recvs := post(b, trecv(20_000), 4)
	ops := post(a, tsend(1, 20_000), 4)
	w.RunOps(10*ms, recvs...)
	w.Want("ok", recvs...)
	after := b.FEP.Stats()
	if moved < 80 || after.Drops != before.Drops || after.PDCAccepted != before.PDCAccepted {
		t.Errorf("of %d packets from new ports were dropped: %v, before %v; %d PDCs were opened", moved, after.Drops, before.Drops, after.PDCAccepted-before.PDCAccepted)
	}
	// The answers went to ports where nobody is. They come when the port is the old one again.
	w.SetFaults(lan)
	w.RunOps(time.Second, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// F14: packets whose source a NAT rewrites without the trailer, and packets of a PDC from
// another address, are dropped and counted, then the PDC ends as in F9.
func TestF14OtherSource(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *sim.Packet)
		reason transport.DropReason
	}{
		{"port rewritten", func(p *sim.Packet) {
			p.Src = netip.AddrPortFrom(p.Src.Addr(), 50_000)
		}, transport.DropCRC},
		{"address rewritten", func(p *sim.Packet) {
			p.Src = netip.AddrPortFrom(netip.MustParseAddr("10.0.0.77"), p.Src.Port())
		}, transport.DropCRC},
		{"other address, sealed", func(p *sim.Packet) {
			p.Src = netip.AddrPortFrom(netip.MustParseAddr("10.0.0.77"), p.Src.Port())
			reseal(p)
		}, transport.DropSource},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 201, lan, hostile, mayFail, config(func(c *transport.Config) { c.PeerTimeout = 4 * time.Second }))
			wantStream(t, w, 4)
			a, b := w.Hosts[0], w.Hosts[1]
			passed := uint64(0)
			w.Line(0, 1).SetFaults(rewrite(lan, func(p *sim.Packet) {
				passed++
				p.Marks |= sim.Corrupted // what B gets is not what A sent
				c.change(p)
			}))
			before := b.FEP.Stats()
			recvs := post(b, trecv(1000), 1)
			ops := post(a, tsend(1, 1000), 1)
			w.RunOps(5*time.Second, ops...)
			after := b.FEP.Stats()
			n := after.Drops[c.reason] - before.Drops[c.reason]
			if n == 0 {
				t.Error("no packet was counted under its reason")
			}
			if c.reason == transport.DropSource {
				// Its PROBEs and ACK_REQs name a PDC that is not the source's.
				n += after.Drops[transport.DropNoPDC] - before.Drops[transport.DropNoPDC]
			}
			if passed == 0 || n != passed {
				t.Errorf("%d of %d packets were counted", n, passed)
			}
			if after.PDCAccepted != before.PDCAccepted || after.AcksTx != before.AcksTx || !recvs[0].Open() {
				t.Errorf("packets of another source had an effect")
			}
			w.Want("timed out, unknown", ops[0])
			w.SetFaults(lan)
			next := a.Post(tsend(1, 1000))
			w.RunOps(time.Second, next)
			w.Want("ok", next)
			settle(w)
		})
	}
}

// F15: nothing moves an address. What a peer sends from a new one on its old PDCs is dropped
// and counted, what is open to it ends as to a silent peer, and the new address is another
// peer, to which new operations succeed at once.
func TestF15PeerAtANewAddress(t *testing.T) {
	w := pair(t, 210, lan, hostile, mayFail, smallWindow, config(func(c *transport.Config) { c.PeerTimeout = 4 * time.Second }), func(s *simtest.Spec) {
		s.Hosts = append(s.Hosts, s.Hosts[1]) // who has the new address
	})
	a, b, c := w.Hosts[0], w.Hosts[1], w.Hosts[2]
	wantStream(t, w, 4)
	back := append(post(b, tsend(0, 1000), 1), post(a, trecv(1000), 1)...)
	w.RunOps(time.Second, back...)
	arrives := b.Post(trecv(1000))
	post(b, trecv(200_000), 4)
	whole := a.Post(tsend(1, 1000))
	part := post(a, tsend(1, 200_000), 4)
	w.Run(40 * us) // its packet is on its way
	before := a.FEP.Stats()
	w.Line(0, 1).SetFaults(sim.Faults{Loss: 1})
	w.Line(1, 0).SetFaults(rewrite(lan, func(p *sim.Packet) {
		p.Marks |= sim.Corrupted // what A gets is not what B sent
		p.Src = c.Addr()
		reseal(p)
	}))
	recv := a.Post(trecv(1000))
	moved := b.Post(tsend(0, 1000))
	w.Run(time.Second)
	if after := a.FEP.Stats(); after.Drops[transport.DropSource] == before.Drops[transport.DropSource] || after.MsgsRx != before.MsgsRx || !recv.Open() {
		t.Errorf("what came from the new address on the old PDCs had an effect, or was not counted: %v", after.Drops)
	}
	post(c, trecv(1000), 1)
	next := a.Post(tsend(2, 1000))
	w.RunOps(time.Second, next)
	w.Want("ok", next)
	w.RunOps(6*time.Second, append(part, whole, moved)...)
	w.Want("timed out, unknown", whole, moved)
	w.Want("timed out", part...)
	w.Want("ok", arrives) // but who sent it cannot know
	from := c.Post(tsend(0, 1000))
	w.RunOps(time.Second, from, recv)
	w.Want("ok", from, recv)
}

// F28: when the target asks to close a PDC, the open message ends on it, and later ones move to
// a new PDC. Nothing fails.
func TestF28AskedToClose(t *testing.T) {
	for _, how := range []string{"ACK with CLOSE_REQ", "control packet"} {
		t.Run(how, func(t *testing.T) {
			w := pair(t, 202, lan, hostile, smallWindow)
			wantStream(t, w, 4)
			a, b := w.Hosts[0], w.Hosts[1]
			ops := post(a, tsend(1, 100_000), 4)
			post(b, trecv(100_000), 6)
			w.Run(300 * us)
			var old simtest.PDC
			for _, p := range w.PDCs(0) {
				if p.Forward && p.Sent > old.Sent {
					old = p
				}
			}
			before := a.FEP.Stats()
			if how == "control packet" {
				// The return direction has used no PSN. A will acknowledge what B never sent.
				w.Forged()
				forge(w, wire.CP{Ctl: wire.CtlCloseReq, Flags: wire.FlagAR, PSN: wire.PSN(old.Start), SPDCID: old.Remote, DPDCID: old.ID}.Append(nil))
			} else {
				ack := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, Req: wire.ReqClose, CACK: wire.PSN(old.Start), SPDCID: old.Remote, DPDCID: old.ID, MPR: 16, SACKOff: 1}
				r := wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}
				forge(w, r.Append(ack.Append(nil)))
			}
			w.Run(50 * us)
			ops = append(ops, post(a, tsend(1, 100_000), 2)...)
			if !ops[0].Open() {
				t.Fatal("the first message was too fast")
			}
			w.RunOps(time.Second, ops...)
			w.Want("ok", ops...)
			after := a.FEP.Stats()
			if n := after.PDCOpened - before.PDCOpened; n != 1 || after.PDCErrors != before.PDCErrors {
				t.Errorf("%d PDCs were opened, %d ended in error", n, after.PDCErrors-before.PDCErrors)
			}
			for _, p := range w.PDCs(0) {
				// wantStream's 4 messages of 20 packets, the open one of 98, the CLOSE.
				if p.ID == old.ID && p.Start == old.Start && p.Sent > 80+98+1 {
					t.Errorf("the old PDC carried %d packets", p.Sent)
				}
			}
			w.RunUntil(time.Second, "the end of the old PDC", func() bool { return a.FEP.Stats().PDCClosed > before.PDCClosed })
			settle(w)
		})
	}
}

// F31: if the two ends differ in the mode of a PDC, the target refuses with NACK 16 and the
// operation soon fails with that code (T6: the second NACK counts).
func TestF31ModeMismatch(t *testing.T) {
	for _, s := range []simtest.OpSpec{tsend(1, 1000), ordered(tsend(1, 1000))} {
		w := pair(t, 203, lan, hostile, mayFail)
		stream(w, s, 4, 2)
		a, b := w.Hosts[0], w.Hosts[1]
		w.Line(0, 1).SetFaults(rewrite(lan, func(p *sim.Packet) {
			if typ := wire.Type(p.Data[0] >> 3); typ == wire.TypeRUDReq || typ == wire.TypeRODReq {
				p.Data[0] ^= byte(wire.TypeRUDReq^wire.TypeRODReq) << 3
				p.Marks |= sim.Corrupted
				reseal(p)
			}
		}))
		recvs := post(b, trecv(1000), 1)
		op := a.Post(s)
		w.RunOps(50*ms, op)
		if op.Cause() != transport.Aborted || op.Event.Nack != wire.NackPDCModeMismatch {
			t.Errorf("%v: %v nack %v", op, op.Cause(), op.Event.Nack)
		}
		if b.FEP.Stats().NacksTx[wire.NackPDCModeMismatch] < 2 || !recvs[0].Open() {
			t.Errorf("%d NACKs 16, receive open %v", b.FEP.Stats().NacksTx[wire.NackPDCModeMismatch], recvs[0].Open())
		}
		w.SetFaults(lan)
		next := a.Post(s)
		w.RunOps(time.Second, next)
		w.Want("ok", next)
		settle(w)
	}
}

// F31: if one end sends no trailer, or another one, every packet is dropped and counted, and
// the operation ends as in F9.
func TestF31TrailerMismatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *sim.Packet)
	}{
		{"none", func(p *sim.Packet) { p.Data = p.Data[:len(p.Data)-wire.CRCLen] }},
		{"other", func(p *sim.Packet) { p.Data[len(p.Data)-1] ^= 0xff }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 204, lan, mayFail, config(func(c *transport.Config) { c.PeerTimeout = 4 * time.Second }))
			a, b := w.Hosts[0], w.Hosts[1]
			passed := uint64(0)
			w.Line(0, 1).SetFaults(rewrite(lan, func(p *sim.Packet) {
				passed++
				p.Marks |= sim.Truncated
				c.change(p)
			}))
			post(b, trecv(1000), 1)
			op := a.Post(tsend(1, 1000))
			w.RunOps(5*time.Second, op)
			w.Want("timed out, unknown", op)
			if n := drops(b, transport.DropCRC) + drops(b, transport.DropShort); passed < 5 || n != passed {
				t.Errorf("%d of %d packets were counted", n, passed)
			}
			if n := w.PacketsFrom(1); n != 0 || b.FEP.PDCs() != 0 {
				t.Errorf("%d answers, %d PDCs", n, b.FEP.PDCs())
			}
			w.SetFaults(lan)
			settle(w)
		})
	}
}

// hinted collects the hints of B.
func hinted(hints *[]transport.Hint) func(*simtest.Spec) {
	return only(1, func(c *transport.Config) { c.Hint = func(h transport.Hint) { *hints = append(*hints, h) } })
}

// F31: a peer that does not fit is named within a second, however few messages it has for us.
func TestF31IsNamedWithinASecond(t *testing.T) {
	for name, c := range map[string]struct {
		sealed func(*simtest.Spec)
		why    transport.DropReason
	}{
		"another trailer":    {secure(transport.SecureNone), transport.DropCRC},
		"another key, 0-RTT": {secure(transport.SecureZeroRTT), transport.DropAuth},
		"another key, 1-RTT": {secure(transport.SecureOneRTT), transport.DropAuth},
	} {
		for _, n := range []int{1, 50} {
			t.Run(fmt.Sprintf("%s, %d messages", name, n), func(t *testing.T) {
				var hints []transport.Hint
				w := pair(t, 205, lan, mayFail, c.sealed, hinted(&hints), config(func(c *transport.Config) { c.PeerTimeout = 4 * time.Second }))
				a, b := w.Hosts[0], w.Hosts[1]
				w.Line(0, 1).SetFaults(rewrite(lan, func(p *sim.Packet) {
					p.Marks |= sim.Truncated
					p.Data[len(p.Data)-1] ^= 0xff
				}))
				ops := post(a, tsend(1, 1000), n)
				post(b, trecv(1000), n)
				w.Run(time.Second)
				if len(hints) != 1 || hints[0].Peer != a.Addr() || hints[0].Reason != c.why {
					t.Errorf("hints %+v, want one of %v", hints, a.Addr())
				}
				w.RunOps(5*time.Second, ops...)
				if len(hints) != 1 {
					t.Errorf("hints %+v: too many", hints)
				}
				w.SetFaults(lan)
				settle(w)
			})
		}
	}
}

// F31, T25: nobody is named because packets of a peer that fits are damaged, nor because
// somebody forges some in its name while it is idle.
func TestF31DamageNamesNobody(t *testing.T) {
	for name, how := range map[string]transport.Secure{"clear": transport.SecureNone, "sealed": transport.SecureOneRTT} {
		t.Run(name, func(t *testing.T) {
			var hints []transport.Hint
			f := lan
			f.Corrupt = 0.3
			w := pair(t, 206, f, secure(how), hostile, hinted(&hints))
			a, b := w.Hosts[0], w.Hosts[1]
			for range 200 {
				op := a.Post(tsend(1, 100))
				b.Post(trecv(100))
				w.RunOps(time.Second, op)
				w.Run(20 * ms)
			}
			if n := drops(b, transport.DropCRC) + drops(b, transport.DropAuth); n < 50 {
				t.Errorf("only %d packets were dropped: the test does not test", n)
			}
			w.SetFaults(lan)
			w.Run(2 * time.Second)
			for range 99 {
				w.Forge(1, a.Addr(), make([]byte, 100), false)
				w.Run(20 * ms)
			}
			if len(hints) != 0 {
				t.Errorf("hints %+v of a peer that fits", hints)
			}
			settle(w)
		})
	}
}
