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

// This file tests what becomes of receives that messages hold which do not go on.

// steady keeps 64 receives of n bytes posted at B and some messages from A to B under way. It
// returns a function that lets d pass and says how many of them were received meanwhile, and one
// that calls f while none is under way.
func steady(w *simtest.World, s simtest.OpSpec, window int) (goodput func(d time.Duration) int, between func(f func())) {
	a, b := w.Hosts[0], w.Hosts[1]
	post(b, trecv(s.Len), 64)
	got := 0
	b.OnEvent(func(o *simtest.Op) {
		if o.Event.Cause == transport.OK && o.Event.Len == s.Len {
			got++
		}
		b.Post(trecv(s.Len))
	})
	open, pause := window, false
	a.OnEvent(func(*simtest.Op) {
		if open--; !pause {
			open++
			a.Post(s)
		}
	})
	post(a, s, window)
	return func(d time.Duration) int {
			before := got
			w.Run(d)
			return got - before
		}, func(f func()) {
			pause = true
			w.RunUntil(time.Second, "nothing is under way", func() bool { return open == 0 })
			f()
			open, pause = window, false
			post(a, s, window)
		}
}

// rest ends what steady began.
func rest(w *simtest.World) {
	w.Hosts[0].OnEvent(nil)
	w.Hosts[1].OnEvent(nil)
	w.Run(time.Minute)
}

// S-RSM-61, T15: 64 datagrams that begin long messages, and a trickle of more of them, do not stop a
// receiver that has 64 receives posted: honest messages arrive at 80 % of the rate and more from
// the first datagram on. The messages are of one source or of 64, that may be forged or not, fit
// the receives or not, in clear and sealed by a member.
func TestT15HeldReceives(t *testing.T) {
	type attack struct {
		name    string
		how     transport.Secure
		sources int
		length  uint32
		proven  bool
		ordered bool
	}
	for _, at := range []attack{
		{"one source", transport.SecureNone, 1, 3000, false, false},
		{"one source that is real", transport.SecureNone, 1, 3000, true, false},
		{"one source that is real, too long to keep", transport.SecureNone, 1, 1 << 30, true, false},
		{"64 sources", transport.SecureNone, 64, 3000, false, false},
		{"64 sources, too long to keep", transport.SecureNone, 64, 1 << 30, false, false},
		{"64 sources that are real", transport.SecureNone, 64, 3000, true, false},
		{"one source, ordered", transport.SecureNone, 1, 3000, false, true},
		{"64 sources, ordered", transport.SecureNone, 64, 3000, false, true},
		{"one source that is real, ordered", transport.SecureNone, 1, 3000, true, true},
		{"a member", transport.SecureZeroRTT, 1, 3000, false, false},
		{"a member, too long to keep", transport.SecureZeroRTT, 1, 1 << 30, false, false},
		{"a member, ordered", transport.SecureZeroRTT, 1, 3000, false, true},
	} {
		if raceEnabled && (at.sources != 64 || at.length != 3000 || at.proven || at.ordered) {
			continue // it has one goroutine, and they take minutes
		}
		t.Run(at.name, func(t *testing.T) {
			w := pair(t, 107, lan, forged, secure(at.how), func(s *simtest.Spec) { s.Long, s.Light = true, true })
			s := tsend(1, 3000)
			s.Ordered = at.ordered
			for i := range w.Hosts {
				w.Hosts[i].Peer(1 - i)
			}
			goodput, between := steady(w, s, 3)
			goodput(20 * ms)
			clean := goodput(100 * ms)
			h := newHolder(w, at.sources, at.length, at.proven)
			if at.how != transport.SecureNone {
				h.shoot = w.Member(0x51b1, 7).Forge
			}
			least := clean
			for k := range raced(15, 5) {
				if k == 0 {
					between(func() { h.begin(64) })
				} else if k < 10 {
					h.trickle(k)
				}
				least = min(least, goodput(100*ms))
			}
			st := w.Hosts[1].FEP.Stats()
			t.Logf("%d messages in 100 ms without, %d at least with; %d receives taken back, %d ended in error", clean, least, st.TakenBack, st.RecvErrors)
			if st.TakenBack == 0 {
				t.Error("no receive was taken back: the test does not test")
			}
			if 10*least < 8*clean {
				t.Errorf("%d messages in 100 ms, %d without the attack", least, clean)
			}
			rest(w)
			settle(w)
		})
	}
}

// A holder sends packets of messages that never end.
type holder struct {
	w      *simtest.World
	shoot  func(to int, src netip.AddrPort, b []byte)
	from   []netip.AddrPort
	proven bool
	target map[netip.AddrPort]uint16 // PDCIDs of the target
	length uint32
	sent   int
	psn    []uint32
}

func newHolder(w *simtest.World, sources int, length uint32, proven bool) *holder {
	h := &holder{w: w, length: length, proven: proven, target: map[netip.AddrPort]uint16{}, psn: make([]uint32, sources),
		shoot: func(to int, src netip.AddrPort, b []byte) { w.Forge(to, src, b, true) }}
	for i := range sources {
		h.from = append(h.from, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + i)}), 4793))
		h.psn[i] = 1000
	}
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && proven {
			var a wire.Ack
			if _, err := a.Parse(p.Data); err == nil {
				h.target[p.Dst] = a.SPDCID
			}
		}
	})
	return h
}

// packet sends the packet of message k that is at an offset.
func (h *holder) packet(k int, off uint32) {
	i := k % len(h.from)
	psn := h.psn[i]
	h.psn[i]++
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESREL, MsgID: uint16(k + 1), JobID: 1, RI: 15, Initiator: 16, ReqLen: h.length}
	if off == 0 {
		q.Flags |= wire.SESSOM
	} else {
		q.MsgOff, q.PayloadLen = off, 1024
	}
	r := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(psn), PSNOffset: uint16(psn - 1000), SPDCID: 9, ClearOff: -1}
	if id, ok := h.target[h.from[i]]; ok && h.proven && psn > 1000 {
		r.Flags, r.PSNOffset, r.DPDCID = wire.FlagAR, 0, id
	}
	h.shoot(1, h.from[i], append(q.Append(r.Append(nil)), make([]byte, 1024)...))
}

// begin begins n messages.
func (h *holder) begin(n int) {
	for range n {
		h.packet(h.sent, 0)
		h.sent++
		if h.sent <= len(h.from) {
			h.w.Run(200 * us) // the answer names the PDC
		}
	}
}

// trickle sends one more packet of each message, and begins some.
func (h *holder) trickle(k int) {
	for i := range min(h.sent, 64) {
		h.packet(i, uint32(k)*1024)
	}
	h.begin(8)
}

// T15: a slow but honest peer is not starved. While another peer fills all receives without a
// pause, its messages end, whether they can be kept or are sent again.
func TestT15SlowPeerIsNotStarved(t *testing.T) {
	for _, c := range []struct {
		name    string
		ordered bool
		kept    int64
	}{{"kept", false, 0}, {"without room", false, 64 << 10}, {"ordered", true, 0}, {"ordered without room", true, 64 << 10}} {
		if raceEnabled && (c.ordered || c.kept != 0) {
			continue // it has one goroutine, and they take minutes
		}
		t.Run(c.name, func(t *testing.T) {
			spec := simtest.Spec{Seed: 108, Line: lan, Hosts: make([]simtest.HostSpec, 3), Long: true, MaxPackets: 500_000}
			for i := range spec.Hosts {
				spec.Hosts[i].Backlog = true
				spec.Hosts[i].Config.UnexpectedBytes = c.kept
			}
			w := simtest.NewWorld(t, spec)
			slow := lan
			slow.Rate = 40_000 // bytes per second
			w.Line(2, 1).SetFaults(slow)
			a, b, far := w.Hosts[0], w.Hosts[1], w.Hosts[2]
			s := tsend(1, 3000)
			s.Ordered = c.ordered
			b.Post(trecv(60_000))
			done := false
			b.OnEvent(func(*simtest.Op) { b.Post(trecv(60_000)) })
			open := 0
			a.OnEvent(func(*simtest.Op) { open-- })
			var flow func()
			flow = func() {
				if !done {
					for ; open < 6; open++ {
						a.Post(s)
					}
					w.Net.After(10*ms, flow)
				}
			}
			flow()
			w.Run(10 * ms)
			long := tsend(1, 60_000)
			long.Ordered = c.ordered
			ops := post(far, long, raced(3, 1))
			w.RunOps(30*time.Second, ops...)
			w.Want("ok", ops...)
			done = true
			w.Run(100 * ms)
			st := b.FEP.Stats()
			if st.TakenBack == 0 && c.kept == 0 {
				t.Error("no receive was taken back: the test does not test")
			}
			t.Logf("%d receives taken back, %d messages sent again", st.TakenBack, far.FEP.Stats().Resends)
			b.OnEvent(nil)
			w.Settle(time.Minute)
		})
	}
}
