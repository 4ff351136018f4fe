package sim_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Each test has the number of the row of the fault catalogue that it proves. The checkers of
// simtest run in all of them.

// F1: with loss in both directions everything succeeds, and goodput is ≥ 0.5 × (1 − p) of that
// without loss, with each seed.
func TestF1Loss(t *testing.T) {
	const count, size, window = 48, 64 << 10, 8
	for _, mode := range []string{"RUD", "ROD"} {
		s := tsend(1, size)
		s.Ordered = mode == "ROD"
		w := pair(t, 1, lan)
		clean := stream(w, s, count, window)
		settle(w)
		for _, p := range []float64{0.01, 0.1, 0.3, 0.001, 0.05, 0.2}[:raced(6, 3)] {
			t.Run(fmt.Sprintf("%s %.1f %%", mode, 100*p), func(t *testing.T) {
				lossy := lan
				lossy.Loss = p
				mean, n := 0.0, max(*seeds, 4)
				if raceEnabled {
					n = 1 // it has one goroutine
				}
				for seed := range n {
					w := pair(t, 1+uint64(seed), lossy)
					took := stream(w, s, count, window)
					ratio := float64(clean) / float64(took)
					mean += ratio / float64(n)
					if want := 0.5 * (1 - p); ratio < want {
						t.Errorf("goodput is %.2f of loss-free, want ≥ %.2f", ratio, want)
					}
					w.Heal()
					settle(w)
				}
				t.Logf("goodput %.2f of loss-free, mean of %d seeds", mean, n)
			})
		}
	}
}

// F1 with bursts: 30 % of all datagrams are lost in each direction, most of them in bursts.
func TestF1LossWithBursts(t *testing.T) {
	f := lan
	f.Loss = 0.1
	f.Burst = sim.Burst{Enter: 0.02, Leave: 0.08, Loss: 1, Max: 50 * ms}
	for seed := range uint64(5) {
		w := pair(t, seed, f)
		stream(w, tsend(1, 20_000), 50, 8)
		w.Heal()
		settle(w)
	}
}

// F2: everything succeeds with loss in bursts of mean 3 to 100, of a whole window, and of all
// its ACKs.
func TestF2Burst(t *testing.T) {
	for _, mean := range []float64{3, 30, 100} {
		t.Run(fmt.Sprintf("mean %v", mean), func(t *testing.T) {
			f := lan
			f.Burst = sim.Burst{Enter: 0.01, Leave: 1 / mean, Loss: 1, Max: 50 * ms}
			w := pair(t, 3, f)
			stream(w, tsend(1, 64<<10), 40, 8)
			w.Heal()
			settle(w)
		})
	}
	t.Run("whole window", func(t *testing.T) {
		w := pair(t, 4, lan)
		wantStream(t, w, 4) // the PDC exists
		from := w.Line(0, 1).Entered()
		f := lan
		for i := range uint64(64) {
			f.Drop = append(f.Drop, from+i)
		}
		w.Line(0, 1).SetFaults(f)
		ops := post(w.Hosts[0], tsend(1, 64<<10), 1)
		post(w.Hosts[1], trecv(64<<10), 1)
		w.RunOps(time.Second, ops...) // heal: 1 s
		w.Want("ok", ops...)
		settle(w)
	})
	t.Run("all its ACKs", func(t *testing.T) {
		w := pair(t, 5, lan)
		wantStream(t, w, 4)
		until := w.Now() + 20*ms
		f := lan
		f.Filter = acksOnly(func(int) sim.Verdict { return sim.Verdict{Drop: w.Now() < until} })
		w.Line(1, 0).SetFaults(f)
		ops := post(w.Hosts[0], tsend(1, 64<<10), 4)
		post(w.Hosts[1], trecv(64<<10), 4)
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		settle(w)
	})
}

// wantStream moves count small messages, so that the PDCs are open.
func wantStream(t *testing.T, w *simtest.World, count int) {
	t.Helper()
	stream(w, tsend(1, 1000), count, 2)
	stream(w, tsend(1, 20_000), count, 2)
}

// F3: with reordering everything succeeds, and spurious resends are ≤ 5 % for ≤ 32 places.
func TestF3ReorderUpTo32PlacesResendsLittle(t *testing.T) {
	for _, by := range []int{1, 3, 8, 32} {
		t.Run(fmt.Sprintf("%d places", by), func(t *testing.T) {
			f := lan
			f.Reorder, f.ReorderBy = 0.1, by
			w := pair(t, 6, f)
			stream(w, tsend(1, 64<<10), 60, 8)
			st := w.Hosts[0].FEP.Stats()
			resent := st.RtxRTO + st.RtxSACK + st.RtxNack + st.RtxProbe
			t.Logf("%d of %d packets were resent, %d found spurious", resent, st.TxData, st.RtxSpurious)
			// Nothing is lost here, so every resend is spurious.
			if float64(resent) > 0.05*float64(st.TxData) {
				t.Errorf("%d resends in %d packets", resent, st.TxData)
			}
			w.Heal()
			settle(w)
		})
	}
}

// F3: everything succeeds when whole windows are reversed, for RUD and ROD, and with delays up
// to 1 s.
func TestF3WholeWindowReversal(t *testing.T) {
	for _, c := range []struct {
		name string
		f    sim.Faults
		mod  func(simtest.OpSpec) simtest.OpSpec
	}{
		{"RUD", sim.Faults{Delay: 50 * us, Reverse: 1, ReverseLen: 1000, ReorderHold: ms}, nil},
		{"ROD", sim.Faults{Delay: 50 * us, Reverse: 1, ReverseLen: 1000, ReorderHold: ms}, ordered},
		{"RUD with delays to 1 s", sim.Faults{Delay: 50 * us, Spike: 0.05, SpikeDelay: time.Second}, nil},
		{"ROD with delays to 1 s", sim.Faults{Delay: 50 * us, Spike: 0.05, SpikeDelay: time.Second}, ordered},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 7, c.f)
			s := tsend(1, 30_000)
			if c.mod != nil {
				s = c.mod(s)
			}
			stream(w, s, 60, 8)
			w.Heal()
			settle(w)
		})
	}
}

// F4: with 1 to 10 duplicates, up to Quarantine late, each message is delivered exactly once
// (checked for every message).
func TestF4Duplicates(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * ms, 3900 * ms} {
		for _, idle := range []time.Duration{0, 20 * ms} { // so that PDCs close in between
			t.Run(fmt.Sprintf("late %v idle %v", late, idle), func(t *testing.T) {
				f := lan
				f.Duplicate, f.DuplicateMax, f.DuplicateLate = 0.5, 10, late
				w := pair(t, 8, f, config(func(c *transport.Config) { c.IdleClose = idle }))
				stream(w, tsend(1, 10_000), 50, 4)
				w.Run(500 * ms)
				stream(w, ordered(tsend(1, 3000)), 50, 4)
				w.Heal()
				settle(w)
			})
		}
	}
}

// F5: with bit flips in 0.1 to 30 % of the datagrams these are dropped, counted and never
// delivered.
func TestF5CorruptNeverDelivered(t *testing.T) {
	for _, p := range []float64{0.001, 0.3} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v v6 %v", p, v6), func(t *testing.T) {
				f := lan
				f.Corrupt, f.CorruptBits = p, 20
				w := pair(t, 9, f, func(s *simtest.Spec) { s.IPv6 = v6 })
				stream(w, tsend(1, 30_000), 50, 8)
				if w.Hosts[1].FEP.Stats().Drops[transport.DropCRC] == 0 {
					t.Error("nothing was dropped for its CRC")
				}
				w.Heal()
				settle(w) // compares the damaged datagrams with the drop counters
			})
		}
	}
}

// F6: datagrams that are truncated at any length, or padded, are dropped and counted.
func TestF6TruncatedAndPadded(t *testing.T) {
	f := lan
	f.Truncate, f.Pad = 0.15, 0.15
	w := pair(t, 10, f)
	stream(w, tsend(1, 30_000), 50, 8)
	st := w.Hosts[1].FEP.Stats()
	if st.Drops[transport.DropCRC] == 0 || st.Drops[transport.DropShort] == 0 {
		t.Errorf("drops %v", st.Drops)
	}
	w.Heal()
	settle(w)
}

// F8: after a blackout of 1 to 30 s, in both directions or one, everything succeeds and goes on
// within 1 s.
func TestF8Blackout(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second} {
		for _, way := range []string{"both", "data", "acks"} {
			t.Run(fmt.Sprintf("%v %s", d, way), func(t *testing.T) {
				w := pair(t, 12, lan, smallWindow)
				wantStream(t, w, 4)
				dark := lan
				dark.Loss = 1
				a, b := w.Hosts[0], w.Hosts[1]
				ops := post(a, tsend(1, 100_000), 4)
				ops = append(ops, post(a, ordered(tsend(1, 5000)), 4)...)
				ops = append(ops, post(b, tsend(0, 3000), 4)...)
				post(b, trecv(100_000), 8)
				post(a, trecv(100_000), 4)
				w.Run(200 * us) // in the middle of it
				if way != "acks" {
					w.Line(0, 1).SetFaults(dark)
				}
				if way != "data" {
					w.Line(1, 0).SetFaults(dark)
				}
				w.Run(d)
				w.SetFaults(lan)
				healed := w.Now()
				w.RunUntil(time.Second, "progress after the blackout", func() bool { return w.Progress() > healed })
				w.RunOps(2*time.Second, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}

// F9: when the peer's host is gone, all operations to it fail after PeerTimeout + 1 s, a
// matched receive whose message stopped fails with length 0, and the next post opens a new PDC.
func TestF9PeerGone(t *testing.T) {
	w := pair(t, 13, lan, mayFail, smallWindow, only(0, func(c *transport.Config) { c.MaxSends = 64 }))
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	half := b.Post(tsend(0, 300_000)) // stops in the middle
	got := a.Post(trecv(300_000))
	w.Run(400 * us)
	b.Crash(false)
	died := w.Now()
	sent := post(a, tsend(1, 100_000), 3)
	sent = append(sent, post(a, tsend(1, 10), 5)...)
	sent = append(sent, post(a, ordered(tsend(1, 10)), 5)...)
	w.Run(10 * time.Second)
	late := post(a, tsend(1, 50_000), 2)
	w.Want("open", append(sent, got)...)
	w.RunOps(died+41*time.Second-w.Now(), append(append(sent, late...), got)...)
	w.Want("timed out or timed out, unknown", append(sent, late...)...)
	if !half.Lost || got.Event.Cause == transport.OK || got.Event.Len != 0 {
		t.Errorf("the receive in the middle of a message: %v len %d", got.Cause(), got.Event.Len)
	}
	if n := a.FEP.PDCs(); n != 0 {
		w.Run(5 * time.Second)
		if n := a.FEP.PDCs(); n != 0 {
			t.Errorf("%d PDCs are left", n)
		}
	}
	b.Restart()
	again := a.Post(tsend(1, 1000))
	b.Post(trecv(1000))
	w.RunOps(time.Second, again)
	w.Want("ok", again)
	settle(w)
}

// F10: in a cut of one direction the target delivers once. The initiator succeeds if it heals,
// and otherwise fails as in F9 with unknown outcome.
func TestF10OneWayCut(t *testing.T) {
	for _, heals := range []bool{true, false} {
		t.Run(fmt.Sprintf("heals %v", heals), func(t *testing.T) {
			w := pair(t, 14, lan, func(s *simtest.Spec) { s.MayFail = !heals })
			wantStream(t, w, 4)
			dark := lan
			dark.Loss = 1
			w.Line(1, 0).SetFaults(dark)
			ops := post(w.Hosts[0], tsend(1, 10_000), 3)
			got := post(w.Hosts[1], trecv(10_000), 3)
			w.Run(20 * time.Second)
			w.Want("ok", got...)
			if heals {
				w.SetFaults(lan)
				w.RunOps(time.Second, ops...)
				w.Want("ok", ops...)
			} else {
				w.RunOps(22*time.Second, ops...)
				w.Want("timed out, unknown", ops...)
				w.SetFaults(lan)
			}
			settle(w)
		})
	}
}

// F11: evidence that the peer's process is gone and its port closed starts SuspectTimeout; it
// ends nothing at once.
func TestF11EvidenceOfDeath(t *testing.T) {
	w := pair(t, 15, lan, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	b.Crash(true)
	ops := post(a, tsend(1, 50_000), 3)
	w.Run(2500 * ms)
	for _, o := range ops {
		if !o.Open() {
			t.Fatalf("%v ended by evidence alone after %v: %v", o, o.EndedAt-o.PostedAt, o.Cause())
		}
	}
	w.RunOps(1500*ms, ops...) // 4 s in all
	w.Want("unreachable, unknown", ops...)
	b.Restart()
	settle(w)
}

// F11: a port where nobody was ever heard, whose host says so, ends operations within 1.2 s.
func TestF11ClosedPort(t *testing.T) {
	w := pair(t, 15, lan, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	a, b := w.Hosts[0], w.Hosts[1]
	b.Crash(true)
	ops := post(a, tsend(1, 50_000), 3)
	ops = append(ops, post(a, tsend(1, 50), 3)...)
	w.Run(900 * ms)
	for _, o := range ops {
		if !o.Open() {
			t.Fatalf("%v ended by evidence alone after %v: %v", o, o.EndedAt-o.PostedAt, o.Cause())
		}
	}
	w.RunOps(300*ms, ops...)
	for _, o := range ops {
		if o.Open() || o.Cause() != transport.Unreachable {
			t.Errorf("%v: %v", o, o.Cause())
		}
	}
	b.Restart()
	settle(w)
}

// F11: a peer that was heard may be restarting. It keeps SuspectTimeout although no PDC of it
// is left.
func TestF11RestartTakesItsTime(t *testing.T) {
	w := pair(t, 15, lan, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	a.Quiesce()
	w.Run(100 * ms)
	if n := a.FEP.PDCs(); n != 0 {
		t.Fatalf("%d PDCs are left", n)
	}
	b.Crash(true)
	ops := post(a, tsend(1, 50_000), 3)
	w.Run(2500 * ms)
	b.Restart()
	post(b, trecv(50_000), 3)
	w.RunOps(2*time.Second, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// F11, T34: evidence against a peer of which nothing was heard yet, which lives, does nothing.
func TestF11FalseEvidenceFromTheBeginning(t *testing.T) {
	dark := lan
	dark.Loss = 1
	w := pair(t, 16, dark)
	a := w.Hosts[0]
	ops := post(a, tsend(1, 50_000), 3)
	post(w.Hosts[1], trecv(50_000), 3)
	for range 20 {
		w.Run(20 * ms)
		a.Unreachable(w.Now(), w.Hosts[1].Addr())
	}
	w.SetFaults(lan)
	for range 30 {
		w.Run(30 * ms)
		a.Unreachable(w.Now(), w.Hosts[1].Addr())
	}
	w.RunOps(3*time.Second, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// F11: evidence against a peer that lives, which may be forged (T34), does nothing.
func TestF11FalseEvidence(t *testing.T) {
	w := pair(t, 16, lan)
	wantStream(t, w, 4)
	dark := lan
	dark.Loss = 1
	w.SetFaults(dark)
	ops := post(w.Hosts[0], tsend(1, 50_000), 3)
	w.Run(100 * ms)
	for range 20 {
		w.Hosts[0].Unreachable(w.Now(), w.Hosts[1].Addr())
	}
	w.Run(ms)
	w.SetFaults(lan)
	w.Run(500 * ms)
	w.Hosts[0].Unreachable(w.Now(), w.Hosts[1].Addr())
	post(w.Hosts[1], trecv(50_000), 3)
	w.RunOps(3*time.Second, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// F12: when the peer was restarted at the same address, operations sent to its former life fail
// with unknown outcome within 1 s after contact, and unsent ones go on.
func TestF12PeerRestarted(t *testing.T) {
	w := pair(t, 17, lan, mayFail, only(0, func(c *transport.Config) { c.Window = 16 << 10 }))
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	dark := lan
	dark.Loss = 1
	w.Line(1, 0).SetFaults(dark) // A does not know what B did
	sent := a.Post(tsend(1, 1000))
	b.Post(trecv(1000))
	w.Run(ms)
	long := a.Post(tsend(1, 200_000)) // much of it is not sent yet
	behind := post(a, tsend(1, 200_000), 2)
	w.Run(ms)
	b.Crash(false)
	w.Run(100 * ms)
	b.Restart()
	w.SetFaults(lan)
	post(b, trecv(200_000), 8)
	w.RunOps(2*time.Second, append(behind, sent, long)...)
	if sent.OK() || !sent.Event.Unknown {
		t.Errorf("%v was executed by a life that is over: %v, unknown %v", sent, sent.Cause(), sent.Event.Unknown)
	}
	w.Want("ok", behind...)
	next := a.Post(tsend(1, 1000))
	w.RunOps(time.Second, next)
	w.Want("ok", next)
	settle(w)
}

// F13: when we were restarted with the same address and the same PDCIDs, new operations succeed
// within 1 s.
func TestF13WeWereRestarted(t *testing.T) {
	start := uint32(1 << 20)
	w := pair(t, 18, lan, mayFail, func(s *simtest.Spec) { s.SameRandom = true }, only(0, func(c *transport.Config) {
		c.StartPSN = func() wire.PSN { start += 1 << 17; return wire.PSN(start) }
	}))
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 4)
	for life := range 3 {
		open := a.Post(tsend(1, 100_000))
		w.Run(100 * us)
		a.Crash(false)
		w.Run(10 * ms)
		a.Restart()
		if !open.Lost {
			t.Fatal("the operation was too fast")
		}
		ops := post(a, tsend(1, 1000), 3)
		ops = append(ops, post(a, tsend(1, 50_000), 3)...)
		post(b, trecv(100_000), 7)
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		if n := b.FEP.Stats().NacksTx[wire.NackInvalidSyn]; n == 0 && life == 0 {
			t.Error("no SYN of another life was refused: the test does not test")
		}
	}
	settle(w)
}

// S-PDC-06: a SYN packet after its PDC was closed is answered NACK 0E during quarantine, and
// never makes a new PDC.
func TestF13StaleSYNAfterClose(t *testing.T) {
	w := pair(t, 19, lan, config(func(c *transport.Config) { c.IdleClose = 10 * ms }), func(s *simtest.Spec) { s.Hostile = true })
	a, b := w.Hosts[0], w.Hosts[1]
	var syn [][]byte
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.From == a.Node && (p.Data[0]>>3 == 2 || p.Data[0]>>3 == 3) && p.Data[1]&4 != 0 {
			syn = append(syn, append([]byte(nil), p.Data...))
		}
	})
	ops := append(post(a, tsend(1, 3000), 1), post(a, ordered(tsend(1, 3000)), 1)...)
	post(b, trecv(3000), 2)
	w.RunOps(time.Second, ops...)
	w.RunUntil(time.Second, "the end of the PDCs", func() bool { return b.FEP.PDCs() == 0 && a.FEP.PDCs() == 0 })
	post(b, trecv(3000), 4)
	before := b.FEP.Stats()
	for _, p := range syn {
		w.Forge(1, a.Addr(), p, false)
	}
	w.Run(time.Second)
	after := b.FEP.Stats()
	if after.PDCAccepted != before.PDCAccepted || after.MsgsRx != before.MsgsRx {
		t.Errorf("a stale SYN opened %d PDCs and delivered %d messages", after.PDCAccepted-before.PDCAccepted, after.MsgsRx-before.MsgsRx)
	}
	if n := after.NacksTx[wire.NackInvDPDCID] - before.NacksTx[wire.NackInvDPDCID]; n == 0 {
		t.Error("no NACK 0E")
	}
	settle(w)
}

// F17: when a process is stopped for 1 to 30 s everything succeeds, and (rule 6) what waited in
// the socket is received before a timer runs.
func TestF17Pause(t *testing.T) {
	for _, d := range []time.Duration{500 * ms, 5 * time.Second, 30 * time.Second} {
		for who, name := range []string{"sender", "receiver"} {
			t.Run(fmt.Sprintf("%s %v", name, d), func(t *testing.T) {
				w := pair(t, 20, lan, smallWindow)
				wantStream(t, w, 4)
				ops := post(w.Hosts[0], tsend(1, 100_000), 4)
				post(w.Hosts[1], trecv(100_000), 4)
				w.Run(150 * us)
				w.Hosts[who].Node.Pause()
				w.Run(d)
				before := w.Hosts[0].FEP.Stats()
				w.Hosts[who].Node.Resume()
				w.RunOps(2*time.Second, ops...)
				w.Want("ok", ops...)
				// The sender's own pause is no reason to resend: the ACKs waited in its socket.
				after := w.Hosts[0].FEP.Stats()
				if n := after.RtxRTO - before.RtxRTO; who == 0 && n > 0 {
					t.Errorf("%d packets were resent by a timer that the ACKs in the socket made void", n)
				}
				settle(w)
			})
		}
	}
}

// F18: with nothing posted and no room, the sender waits while the peer answers, posts fail
// when its queue is full, and nothing is lost.
func TestF18NothingPosted(t *testing.T) {
	w := pair(t, 21, lan, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 4, 1 }), only(0, func(c *transport.Config) { c.MaxSends = 16 }),
		func(s *simtest.Spec) { s.Hosts[0].Backlog = false })
	a, b := w.Hosts[0], w.Hosts[1]
	var ops []*simtest.Op
	for range 40 {
		if o := a.Post(tsend(1, 100)); o != nil {
			ops = append(ops, o)
		}
		w.Run(ms)
	}
	if len(ops) != 16+4 {
		t.Errorf("%d sends were accepted, want 4 that are buffered and 16 that wait", len(ops))
	}
	w.Run(60 * time.Second) // longer than PeerTimeout, while the peer answers
	open := 0
	for _, o := range ops {
		if o.Open() {
			open++
		}
	}
	if open != 16 || b.FEP.Stats().NacksTx[wire.NackNoSESMsgAvail] == 0 {
		t.Errorf("%d sends are open, %d NACKs 09 were sent", open, b.FEP.Stats().NacksTx[wire.NackNoSESMsgAvail])
	}
	post(b, trecv(100), len(ops))
	w.RunOps(time.Second, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// F18 with RNRTimeout: a target that answers but is never ready fails the send. Each packet was
// sent many times, and nobody can tell which copies the target refused (rule 3).
func TestF18RNRTimeout(t *testing.T) {
	w := pair(t, 22, lan, mayFail, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 2, 1 }), only(0, func(c *transport.Config) { c.RNRTimeout = 2 * time.Second }))
	ops := post(w.Hosts[0], tsend(1, 100), 6)
	w.RunOps(4*time.Second, ops...)
	ok, rnr := 0, 0
	for _, o := range ops {
		switch {
		case o.OK():
			ok++
		case o.Cause() == transport.NotReady && o.Event.Unknown:
			rnr++
			if d := o.EndedAt - o.PostedAt; d < 2*time.Second {
				t.Errorf("%v gave up after %v", o, d)
			}
		}
	}
	if ok != 2 || rnr != 4 {
		t.Errorf("%d succeeded and %d were not ready, want 2 and 4", ok, rnr)
	}
	settle(w)
}

// F18, S-SEG-08: if RNRTimeout passes in the middle of a message, the first packet is given up,
// although the others would be accepted when there is room again. The target is told that the
// rest will not come, and does not wait for it until IdleTimeout.
func TestF18RNRTimeoutMidMessage(t *testing.T) {
	for _, n := range []int{8_000, 100_000} { // all of it is sent; much of it waits for the window
		for _, mode := range []string{"RUD", "ROD"} {
			t.Run(fmt.Sprint(mode, n), func(t *testing.T) {
				w := pair(t, 32, lan, mayFail, smallWindow, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }),
					only(0, func(c *transport.Config) { c.RNRTimeout = 2 * time.Second }))
				a, b := w.Hosts[0], w.Hosts[1]
				w.RunOps(time.Second, a.Post(tsend(1, 20_000))) // fills the pool
				var psn []byte                                  // PSN of the first packet that is refused; the sender hears nothing of the others
				f := lan
				f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
					if p.Data[0]>>3 != byte(wire.TypeNack) || p.Data[2] != byte(wire.NackNoSESMsgAvail) {
						return sim.Verdict{}
					}
					if psn == nil {
						psn = append(psn, p.Data[4:8]...)
					}
					return sim.Verdict{Drop: !bytes.Equal(psn, p.Data[4:8])}
				}
				w.Line(1, 0).SetFaults(f)
				s := tsend(1, n)
				s.Ordered = mode == "ROD"
				op := a.Post(s)
				w.Run(op.PostedAt + 2*time.Second - w.Now())
				for d := w.Now() + time.Second; a.FEP.Stats().CPTx[wire.CtlNoop] == 0 && op.Open() && w.Now() < d; {
					w.Run(50 * us) // until the answer that gives it up
				}
				recvs := post(b, trecv(n), 3) // the first is for the message that fills the pool
				w.RunOps(time.Second, op)
				w.Want("not ready or not ready, unknown", op)
				w.RunUntil(time.Second, "the end of what came of the message", func() bool { return b.FEP.Idle() })
				w.Want("open", recvs[1:]...)
				w.SetFaults(lan)
				next := a.Post(s)
				w.RunOps(time.Second, next)
				w.Want("ok", next)
				settle(w)
			})
		}
	}
}

// F18, UE 3.5.8: if the first packet of a PDC is given up before the target has accepted any
// packet of it, its replacement opens the PDC, and the other messages there go on.
func TestF18RNRTimeoutOfAFirstPacket(t *testing.T) {
	w := pair(t, 33, lan, mayFail, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }),
		only(0, func(c *transport.Config) { c.RNRTimeout = 2 * time.Second }))
	a, b := w.Hosts[0], w.Hosts[1]
	w.RunOps(time.Second, a.Post(tsend(1, 20_000))) // fills the pool, from a PDC for long messages
	first := a.Post(tsend(1, 100))
	w.Run(time.Second)
	others := post(a, tsend(1, 100), 3)
	w.RunOps(2*time.Second, first)
	w.Want("not ready, unknown", first)
	w.Run(100 * ms)
	post(b, trecv(20_000), 4)
	w.RunOps(time.Second, others...)
	w.Want("ok", others...)
	settle(w)
}

// F19: a message longer than the buffer is truncated and the missing length reported; the
// sender succeeds (R-MSG-11, S-MAT-08).
func TestF19Truncation(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 1024, 5000, 99_999} {
		for _, posted := range []bool{true, false} {
			w := pair(t, 23, lan)
			var r *simtest.Op
			if posted {
				r = w.Hosts[1].Post(trecv(n))
			}
			o := w.Hosts[0].Post(tsend(1, 100_000))
			w.Run(20 * ms)
			if !posted {
				r = w.Hosts[1].Post(trecv(n))
			}
			w.RunOps(time.Second, o, r)
			w.Want("ok", o)
			if r.Cause() != transport.Truncated || r.Event.Len != n || int(r.Event.OverLen) != 100_000-n {
				t.Errorf("%v: %v len %d over %d", r, r.Cause(), r.Event.Len, r.Event.OverLen)
			}
			settle(w)
		}
	}
}

// F22: when limits are reached, local posts fail, peers wait, nothing is lost, and the other
// peer goes on (T14: honest peers ≥ 80 %).
func TestF22Limits(t *testing.T) {
	spec := simtest.Spec{Seed: 24, Line: lan, Hosts: make([]simtest.HostSpec, 3)}
	spec.Hosts[0].Config.UnexpectedBytes = 1 << 20
	spec.Hosts[0].Config.MaxRecvs = 10
	spec.Hosts[1].Backlog = true
	w := simtest.NewWorld(t, spec)
	target, greedy, honest := w.Hosts[0], w.Hosts[1], w.Hosts[2]
	flood := post(greedy, simtest.OpSpec{Kind: transport.OpSend, Peer: 0, Len: 60_000}, 100)
	w.Run(100 * ms)
	arrived := 0
	for _, o := range flood {
		if o.OK() {
			arrived += o.Len
		}
	}
	if arrived == 0 || arrived > 1<<20/4 {
		t.Errorf("%d bytes of one peer are held, its share is %d", arrived, 1<<20/4)
	}
	for i := range 12 {
		if o := target.Post(trecv(1000)); (o != nil) != (i < 10) {
			t.Errorf("receive %d: accepted %v", i, o != nil)
		}
	}
	start := w.Now()
	ops := post(honest, tsend(0, 1000), 10)
	w.RunOps(time.Second, ops...)
	w.Want("ok", ops...)
	if d := w.Now() - start; d > 10*ms {
		t.Errorf("the honest peer's messages took %v", d)
	}
	settle(w)
}

// F25: when the initiator is killed in the middle of a message, the matched receive ends with
// length 0, buffered parts are freed, and nothing is written outside.
func TestF25KilledMidMessage(t *testing.T) {
	w := pair(t, 25, lan, smallWindow)
	a, b := w.Hosts[0], w.Hosts[1]
	matched := b.Post(trecv(500_000))
	a.Post(tsend(1, 500_000))
	w.Run(500 * us)
	a.Post(simtest.OpSpec{Kind: transport.OpSend, Peer: 1, Len: 500_000}) // unexpected
	a.Post(ordered(tsend(1, 500_000)))
	w.Run(800 * us)
	a.Crash(false)
	died := w.Now()
	w.RunOps(42*time.Second, matched)
	if matched.OK() || matched.Event.Len != 0 || matched.EndedAt-died < 39*time.Second {
		t.Errorf("%v after %v: %v len %d", matched, matched.EndedAt-died, matched.Cause(), matched.Event.Len)
	}
	w.RunUntil(2*time.Second, "rest", func() bool { return b.FEP.Idle() })
	a.Restart()
	settle(w)
}

// F27: when a host closes with work outstanding, this is cancelled before Close returns, and
// the peer's sends are refused within a round trip and 1 s.
func TestF27CloseWithWorkOutstanding(t *testing.T) {
	w := pair(t, 26, lan, smallWindow)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	mine := append(post(a, tsend(1, 200_000), 3), post(a, trecv(1000), 3)...)
	theirs := post(b, tsend(0, 200_000), 3)
	pending := post(b, trecv(200_000), 1)
	w.Run(300 * us)
	a.Close() // checks the events
	for _, o := range mine {
		if o.Open() {
			t.Errorf("%v has no end", o)
		}
	}
	theirs = append(theirs, post(b, tsend(0, 100), 2)...)
	theirs = append(theirs, post(b, ordered(tsend(0, 100)), 2)...)
	w.RunOps(time.Second, theirs...)
	for _, o := range theirs {
		if !o.Failed() {
			t.Errorf("%v: %v", o, o.Cause())
		}
	}
	w.RunOps(time.Second, pending...) // its message will never be whole
	if pending[0].OK() || pending[0].Event.Len != 0 {
		t.Errorf("%v: %v", pending[0], pending[0].Cause())
	}
	settle(w)
}

// F32: a send to a target without a free PDC backs off, succeeds when there is one again, and
// fails after PeerTimeout.
func TestF32TargetShortOfPDCs(t *testing.T) {
	spec := func(idle time.Duration) *simtest.World {
		s := simtest.Spec{Seed: 27, Line: lan, Hosts: make([]simtest.HostSpec, 3), MayFail: idle > time.Minute}
		s.Hosts[0].Config.MaxPDCs = 1
		for i := range s.Hosts {
			s.Hosts[i].Config.IdleClose = idle
		}
		return simtest.NewWorld(t, s)
	}
	t.Run("comes back", func(t *testing.T) {
		w := spec(500 * ms)
		post(w.Hosts[0], trecv(1000), 2)
		first := w.Hosts[1].Post(tsend(0, 1000))
		w.RunOps(time.Second, first)
		second := w.Hosts[2].Post(tsend(0, 1000))
		w.Run(200 * ms)
		if !second.Open() || w.Hosts[0].FEP.Stats().NacksTx[wire.NackNoPDCAvail] == 0 {
			t.Errorf("%v: open %v, NACKs %d", second, second.Open(), w.Hosts[0].FEP.Stats().NacksTx[wire.NackNoPDCAvail])
		}
		w.RunOps(2*time.Second, second)
		w.Want("ok", first, second)
		settle(w)
	})
	t.Run("never comes back", func(t *testing.T) {
		w := spec(10 * time.Minute)
		post(w.Hosts[0], trecv(1000), 2)
		first := w.Hosts[1].Post(tsend(0, 1000))
		w.RunOps(time.Second, first)
		second := w.Hosts[2].Post(tsend(0, 1000))
		w.RunOps(42*time.Second, second)
		if second.Cause() != transport.NoResource || second.Event.Nack != wire.NackNoPDCAvail {
			t.Errorf("%v: %v nack %v unknown %v", second, second.Cause(), second.Event.Nack, second.Event.Unknown)
		}
	})
}

// F34: PSNs wrap at 2³² in the middle of everything.
func TestF34PSNWrap(t *testing.T) {
	for _, back := range []uint32{0, 1, 5, 63, 64, 65, 127, 200} {
		f := lan
		f.Loss, f.Reorder, f.ReorderBy, f.Duplicate = 0.05, 0.1, 5, 0.1
		w := pair(t, 28+uint64(back), f, func(s *simtest.Spec) { s.StartPSNFixed = true },
			config(func(c *transport.Config) { c.StartPSN = func() wire.PSN { return wire.PSN(-back) } }))
		stream(w, tsend(1, 30_000), 20, 4)
		stream(w, ordered(tsend(1, 3_000)), 50, 4)
		stream(w, tsend(1, 10), 300, 16)
		w.Heal()
		settle(w)
	}
}

// F34: message ids (16 bit) and PDCIDs are used again.
func TestF34MessageIDWrap(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("70,000 messages")
	}
	w := pair(t, 29, sim.Faults{Delay: 10 * us}, func(s *simtest.Spec) { s.Light = true })
	stream(w, tsend(1, 8), 70_000, 256)
	settle(w)
}

// F36: with ACKs 200 ms late, or with only 1 in 100 that arrives, everything succeeds at ≥ 0.8
// × window per round trip.
func TestF36LateAndRareACKs(t *testing.T) {
	const window = 256 << 10
	small := config(func(c *transport.Config) { c.Window = window })
	t.Run("late", func(t *testing.T) {
		w := pair(t, 30, lan, small)
		f := lan
		f.Filter = acksOnly(func(int) sim.Verdict { return sim.Verdict{Delay: 200 * ms} })
		w.Line(1, 0).SetFaults(f)
		const count, size = 64, 64 << 10
		took := stream(w, tsend(1, size), count, 16)
		// The limit is the payload's share of the window, at one window per 200 ms.
		ideal := time.Duration(count*size*1120/1024/window) * 200 * ms
		t.Logf("%v for what one window per round trip does in %v", took, ideal)
		if float64(took) > float64(ideal+200*ms)/0.8 {
			t.Errorf("%v, want ≤ %v / 0.8", took, ideal+200*ms)
		}
		w.SetFaults(lan)
		settle(w)
	})
	t.Run("rare", func(t *testing.T) {
		// The path thins the stream of ACKs: of those within one millisecond one in a hundred
		// passes.
		w := pair(t, 31, lan, small)
		f := lan
		var passed time.Duration
		left := 0
		f.Filter = acksOnly(func(int) sim.Verdict {
			if left--; left > 0 && w.Now()-passed < ms {
				return sim.Verdict{Drop: true}
			}
			left, passed = 100, w.Now()
			return sim.Verdict{}
		})
		w.Line(1, 0).SetFaults(f)
		const count, size = 64, 64 << 10
		took := stream(w, tsend(1, size), count, 16)
		// A full window leaves in 2 ms. The path takes 100 µs, and an ACK may have to wait a
		// millisecond.
		ideal := time.Duration(count*size*1120/1024/window) * 3 * ms
		t.Logf("%v for what a window per 3 ms does in %v", took, ideal)
		if float64(took) > float64(ideal)/0.8 {
			t.Errorf("%v, want ≤ %v / 0.8", took, ideal)
		}
		w.SetFaults(lan)
		settle(w)
	})
}
