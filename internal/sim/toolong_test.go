package sim_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// F7: paths that lose packets above a size without a word. The payload of a packet is 8192 bytes
// unless a test says otherwise; every path of these tests carries 1024.

// full gives all hosts the payload of an interface with an MTU of 9000.
func full(s *simtest.Spec) {
	for i := range s.Hosts {
		s.Hosts[i].Config.PayloadMTU = 8192
	}
}

// holed is lan with a line that carries IP packets of n bytes at most.
func holed(n int) sim.Faults {
	f := lan
	f.MTU = n
	return f
}

// wantMTU checks the payload of packets from one host to another.
func wantMTU(t *testing.T, w *simtest.World, from, to, want int) {
	t.Helper()
	if got, _ := w.Hosts[from].FEP.PayloadMTU(w.Hosts[from].Peer(to)); got != want {
		t.Fatalf("packets from host %d to host %d have %d bytes of payload, want %d", from, to, got, want)
	}
}

// sendOne sends a message from A to B and returns how long it took.
func sendOne(t *testing.T, w *simtest.World, s simtest.OpSpec) time.Duration {
	t.Helper()
	start := w.Now()
	op := w.Hosts[0].Post(s)
	got := w.Hosts[1].Post(trecv(s.Len))
	w.RunOps(10*time.Second, op, got)
	w.Want("ok", op, got)
	return op.EndedAt - start
}

// F7 from the first packet: on an interface of 9000 and a path of 1500 messages of all lengths
// arrive, once, and soon.
func TestF7HoleFromTheFirstPacket(t *testing.T) {
	for _, mode := range []string{"RUD", "ROD"} {
		for _, n := range []int{8, 1024, 1025, 1500, 8192, 8193, 20_000, 1 << 20} {
			t.Run(fmt.Sprintf("%s %d bytes", mode, n), func(t *testing.T) {
				w := pair(t, 700, holed(1500), full)
				s := tsend(1, n)
				s.Ordered = mode == "ROD"
				took := sendOne(t, w, s)
				t.Logf("the first message took %v", took)
				if took > 500*ms {
					t.Errorf("the first message took %v, want at most 500 ms", took)
				}
				if n <= 1025 {
					wantMTU(t, w, 0, 1, 8192) // nothing was too long
				} else {
					wantMTU(t, w, 0, 1, 1024)
				}
				if took := sendOne(t, w, s); took > 50*ms {
					t.Errorf("the second message took %v, want at most 50 ms", took)
				}
				settle(w)
			})
		}
	}
}

// F7 from the first packet of a secured path: the target asks for another Start_PSN meanwhile.
func TestF7HoleFromTheFirstPacketSecured(t *testing.T) {
	for _, how := range []transport.Secure{transport.SecureZeroRTT, transport.SecureOneRTT} {
		w := pair(t, 701, holed(1500), full, secure(how))
		if took := sendOne(t, w, tsend(1, 64<<10)); took > 500*ms {
			t.Errorf("the first message took %v, want at most 500 ms", took)
		}
		settle(w)
	}
}

// F7 from the first packet, when the first answers of the target are lost, too.
func TestF7FirstAnswersLost(t *testing.T) {
	for _, mode := range []string{"RUD", "ROD"} {
		w := pair(t, 712, holed(1500), full)
		f := lan
		f.Drop = []uint64{0, 1, 2}
		w.Line(1, 0).SetFaults(f)
		s := tsend(1, 20_000)
		s.Ordered = mode == "ROD"
		if took := sendOne(t, w, s); took > time.Second {
			t.Errorf("%s: the first message took %v, want at most 1 s", mode, took)
		}
		settle(w)
	}
}

// F7 in mid-flow: every message under way arrives, once, and so do later ones.
func TestF7HoleInMidFlow(t *testing.T) {
	for _, mode := range []string{"RUD", "ROD"} {
		for _, n := range []int{8192, 9000, 64 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("%s %d bytes", mode, n), func(t *testing.T) {
				w := pair(t, 702, lan, full, smallWindow)
				s := tsend(1, n)
				s.Ordered = mode == "ROD"
				stream(w, s, 8, 4)
				ops := post(w.Hosts[0], s, 6)
				ops = append(ops, post(w.Hosts[1], trecv(n), 6)...)
				w.Run(120 * us) // in the middle of it
				w.SetFaults(holed(1500))
				start := w.Now()
				w.RunOps(10*time.Second, ops...)
				w.Want("ok", ops...)
				if took := w.Now() - start; took > 500*ms {
					t.Errorf("the messages took %v, want at most 500 ms", took)
				}
				sendOne(t, w, s)
				wantMTU(t, w, 0, 1, 1024)
				settle(w)
			})
		}
	}
}

// F7 in mid-flow of messages that wait for a receive, or for room at the target.
func TestF7HoleWithMessagesThatWait(t *testing.T) {
	for _, n := range []int{8192, 64 << 10} {
		w := pair(t, 703, lan, full, smallWindow, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 2, 1 }))
		stream(w, tsend(1, n), 8, 4)
		ops := post(w.Hosts[0], tsend(1, n), 6)
		w.Run(150 * us)
		w.SetFaults(holed(1500))
		w.Run(time.Second)
		ops = append(ops, post(w.Hosts[1], trecv(n), 6)...)
		w.RunOps(10*time.Second, ops...)
		w.Want("ok", ops...)
		settle(w)
	}
}

// F7 that heals: packets are full again within 60 s, also with loss, and a report says so.
func TestF7HoleThatHeals(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		var told []transport.PathMTU
		w := pair(t, 704, holed(1500), full, only(0, func(c *transport.Config) { c.PathMTU = func(m transport.PathMTU) { told = append(told, m) } }))
		sendOne(t, w, tsend(1, 64<<10))
		for range 30 { // the search is slow then
			w.Run(5 * time.Second)
			sendOne(t, w, tsend(1, 64<<10))
		}
		wantMTU(t, w, 0, 1, 1024)
		healed := lan
		healed.Loss = loss
		w.SetFaults(healed)
		for range 12 {
			sendOne(t, w, tsend(1, 64<<10))
			w.Run(5 * time.Second)
		}
		wantMTU(t, w, 0, 1, 8192)
		w.SetFaults(lan)
		settle(w)
		remote := w.Hosts[1].Addr()
		want := []transport.PathMTU{{Peer: remote, Payload: 1024, Full: 8192}, {Peer: remote, Payload: 8192, Full: 8192}}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", told, want)
		}
	}
}

// F7 in one direction: the other keeps full packets.
func TestF7HoleInOneDirection(t *testing.T) {
	w := pair(t, 705, lan, full)
	w.Line(0, 1).SetFaults(holed(1500))
	there, back := w.Hosts[0].Post(tsend(1, 64<<10)), w.Hosts[1].Post(tsend(0, 64<<10))
	ops := []*simtest.Op{there, back, w.Hosts[0].Post(trecv(64 << 10)), w.Hosts[1].Post(trecv(64 << 10))}
	w.RunOps(time.Second, ops...)
	w.Want("ok", ops...)
	wantMTU(t, w, 0, 1, 1024)
	wantMTU(t, w, 1, 0, 8192)
	settle(w)
}

// F7 of other sizes: the search finds the largest payload that passes.
func TestF7SearchFindsTheSize(t *testing.T) {
	for _, c := range []struct{ ip, want int }{{1280, 1024}, {2000, 1024}, {2200, 2048}, {4500, 4096}, {8200, 4096}, {9000, 8192}} {
		t.Run(fmt.Sprintf("%d", c.ip), func(t *testing.T) {
			w := pair(t, 706, holed(c.ip), full)
			sendOne(t, w, tsend(1, 64<<10))
			w.Run(time.Second)
			wantMTU(t, w, 0, 1, c.want)
			sendOne(t, w, tsend(1, 64<<10))
			wantMTU(t, w, 0, 1, c.want)
			settle(w)
		})
	}
}

// F7 is not loss: with 30 % of all datagrams lost packets stay full.
func TestF7LossIsNoHole(t *testing.T) {
	for _, f := range []sim.Faults{{Loss: 0.3}, {Burst: sim.Burst{Enter: 0.05, Leave: 0.05, Loss: 1, Max: 50 * ms}}} {
		for seed := range uint64(max(*seeds, 10)) {
			line := lan
			line.Loss, line.Burst = f.Loss, f.Burst
			var told int
			w := pair(t, seed, line, full, only(0, func(c *transport.Config) { c.PathMTU = func(transport.PathMTU) { told++ } }))
			for range 50 {
				sendOne(t, w, tsend(1, 8192)) // one packet alone
			}
			stream(w, tsend(1, 64<<10), 50, 4)
			wantMTU(t, w, 0, 1, 8192)
			if n := w.Hosts[0].FEP.Stats().TooLong; n > 0 || told > 0 {
				t.Errorf("seed %d: %d packets taken back, %d reports of another size", seed, n, told)
			}
			w.Heal()
			settle(w)
		}
	}
}

// F7 is not a blackout: it changes no size, whether or not a PDC was open before.
func TestF7BlackoutIsNoHole(t *testing.T) {
	for _, open := range []bool{true, false} {
		w := pair(t, 708, lan, full)
		if open {
			sendOne(t, w, tsend(1, 64<<10))
		}
		dark := lan
		dark.Loss = 1
		w.SetFaults(dark)
		ops := append(post(w.Hosts[0], tsend(1, 64<<10), 4), post(w.Hosts[1], trecv(64<<10), 4)...)
		w.Run(10 * time.Second)
		w.SetFaults(lan)
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		wantMTU(t, w, 0, 1, 8192)
		settle(w)
	}
}

// F7 concerns one path: packets to other peers stay full.
func TestF7HoleOfOnePeerOfSeveral(t *testing.T) {
	spec := simtest.Spec{Seed: 709, Line: lan, Hosts: make([]simtest.HostSpec, 4)}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
	}
	full(&spec)
	w := simtest.NewWorld(t, spec)
	w.Line(0, 2).SetFaults(holed(1500))
	var ops []*simtest.Op
	for to := 1; to < 4; to++ {
		ops = append(ops, post(w.Hosts[0], tsend(to, 64<<10), 4)...)
		ops = append(ops, post(w.Hosts[to], trecv(64<<10), 4)...)
	}
	w.RunOps(time.Second, ops...)
	w.Want("ok", ops...)
	wantMTU(t, w, 0, 1, 8192)
	wantMTU(t, w, 0, 2, 1024)
	wantMTU(t, w, 0, 3, 8192)
	settle(w)
}

// F7 of a ROD PDC on which a short message behind a long one arrived, which lies in wait at the
// target: the target refuses it, because of the void packet before it, and both arrive in order.
func TestF7OrderedMessageBehindWhichAnotherArrived(t *testing.T) {
	w := pair(t, 710, lan, full)
	stream(w, ordered(tsend(1, 64<<10)), 4, 2)
	w.SetFaults(holed(1500))
	first := w.Hosts[0].Post(ordered(tsend(1, 8192)))
	then := w.Hosts[0].Post(ordered(tsend(1, 100)))
	got := post(w.Hosts[1], trecv(8192), 2)
	w.RunOps(time.Second, first, then, got[0], got[1])
	w.Want("ok", first, then, got[0], got[1])
	if n, m := got[0].Event.Len, got[1].Event.Len; n != 8192 || m != 100 {
		t.Errorf("messages of %d and %d bytes arrived in this order", n, m)
	}
	sendOne(t, w, ordered(tsend(1, 8192)))
	settle(w)
}

// The same if the target has a part of the long message early, too, and no room for it: nothing of the two is
// executed before its turn.
func TestF7OrderedMessageOfWhichAPartIsRefused(t *testing.T) {
	w := pair(t, 725, lan, full, only(1, func(c *transport.Config) { c.UnexpectedBytes, c.UnexpectedShare = 4096, 1 }))
	stream(w, ordered(tsend(1, 8)), 4, 2)
	long := 0
	hole := lan
	hole.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) > 1500 {
			long++
		}
		return sim.Verdict{Drop: len(p.Data) > 1500 && long != 2}
	}
	w.Line(0, 1).SetFaults(hole)
	first := w.Hosts[0].Post(ordered(tsend(1, 8192+5000)))
	then := w.Hosts[0].Post(ordered(tsend(1, 100)))
	w.Run(time.Second)
	ops := post(w.Hosts[1], trecv(8192+5000), 2)
	w.RunOps(10*time.Second, append(ops, first, then)...)
	w.Want("ok", append(ops, first, then)...)
	if n, m := ops[0].Event.Len, ops[1].Event.Len; n != 8192+5000 || m != 100 {
		t.Errorf("messages of %d and %d bytes arrived in this order", n, m)
	}
	settle(w)
}

// F7 below what every path should carry: the messages fail with what is wrong.
func TestF7PathThatCarriesTooLittle(t *testing.T) {
	w := pair(t, 711, lan, full, mayFail)
	stream(w, tsend(1, 64<<10), 4, 2)
	w.SetFaults(holed(700))
	op := w.Hosts[0].Post(tsend(1, 64<<10))
	post(w.Hosts[1], trecv(64<<10), 1)
	w.RunOps(20*time.Second, op)
	if op.Event.Cause != transport.TooBig {
		t.Errorf("the message ends with %v, want too big", op.Event.Cause)
	}
	w.SetFaults(lan)
	settle(w)
}

// F7 is not a path that loses four in five packets but the smallest, as a switch does that cuts
// packets for a host that does not expect it: 1024 bytes of payload are lost as often as 8192.
func TestF7ShortPacketsAreLostAlike(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 715))
		line := lan
		line.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
			return sim.Verdict{Drop: len(p.Data) > 100 && rng.Float64() < 0.8}
		}
		w := pair(t, seed, lan, full)
		sendOne(t, w, tsend(1, 8)) // a PDC is open
		w.Line(0, 1).SetFaults(line)
		for range 5 {
			sendOne(t, w, tsend(1, 8192))
		}
		if n := w.Hosts[0].FEP.Stats().TooLong; n > 0 {
			t.Errorf("seed %d: %d packets taken back", seed, n)
		}
		wantMTU(t, w, 0, 1, 8192)
		w.SetFaults(lan)
		settle(w)
	}
}

// F7 of a ROD PDC on which a message of which a part arrived goes on behind others that wait for
// a receive, which is posted only when that message was received: those go behind it, too.
func TestF7OrderedMessageBehindOneThatWaits(t *testing.T) {
	w := pair(t, 716, lan, full, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }))
	long := 0
	hole := lan
	hole.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) > 1500 {
			long++
		}
		return sim.Verdict{Drop: len(p.Data) > 1500 && long > 3}
	}
	stream(w, ordered(tsend(1, 8)), 4, 2)
	w.Line(0, 1).SetFaults(hole)
	first := w.Hosts[0].Post(ordered(tsend(1, 64<<10)))
	behind := post(w.Hosts[0], ordered(tsend(1, 100)), 4)
	w.RunOps(time.Second, first, w.Hosts[1].Post(trecv(64<<10)))
	w.Want("ok", first)
	w.RunOps(time.Second, append(behind, post(w.Hosts[1], trecv(100), 4)...)...)
	w.Want("ok", behind...)
	settle(w)
}

// F7: what came back of an earlier message stands behind a message for which the target has no room
// before it has the earlier one, and a void packet behind both has no answer yet.
func TestF7OrderedMessageThatNeedsTheRoomOfTheOneBefore(t *testing.T) {
	for _, knows := range []bool{true, false} {
		w := pair(t, 717, lan, full, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }))
		stream(w, ordered(tsend(1, 8)), 4, 2)
		line := holed(1500)
		if !knows {
			line = ofAnotherMake(line)
		}
		w.SetFaults(line)
		ops := post(w.Hosts[0], ordered(tsend(1, 8192+900)), 3) // the second packet of each passes
		w.RunOps(time.Second, ops[0])
		w.Want("ok", ops[0])
		w.RunOps(time.Second, append(ops, post(w.Hosts[1], trecv(8192+900), 3)...)...)
		w.Want("ok", ops...)
		settle(w)
	}
}

// ofAnotherMake hides from the target what a void packet says of the packets behind it: a target that knows no void
// packets executes those.
func ofAnotherMake(f sim.Faults) sim.Faults {
	f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		n := len(p.Data) - wire.CRCLen
		if b := p.Data; n == wire.ReqLen+wire.ReqStdLen && wire.Type(b[0]>>3) == wire.TypeRODReq && b[wire.ReqLen]&0x3f == 0x2f {
			clear(b[wire.ReqLen+32:][:8])
			prefix := wire.PrefixOf(&p.Src, &p.Dst)
			binary.BigEndian.PutUint32(b[n:], wire.CRC(prefix.CRC(len(b)), b[:n]))
		}
		return sim.Verdict{}
	}
	return f
}

// F7 of the way of read data: its target sends less in a packet from then on, each byte comes once, and the
// search finds what the path carries when it carries it again.
func TestF7HoleOfReadData(t *testing.T) {
	for _, mode := range []string{"RUD", "ROD"} {
		for _, n := range []int{1024, 1025, 8192, 8193, 20_000, 1 << 20} {
			for _, mid := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d bytes mid=%v", mode, n, mid), func(t *testing.T) {
					w := pair(t, 730, lan, full, memory(2<<20), smallWindow)
					s := read(1, 0, n)
					s.Ordered = mode == "ROD"
					if mid {
						first := w.Hosts[0].Post(read(1, 0, 64<<10))
						w.RunOps(time.Second, first)
						w.Want("ok", first)
					} else {
						w.Line(1, 0).SetFaults(holed(1500))
					}
					ops := post(w.Hosts[0], s, 4)
					if mid {
						w.Run(120 * us)
						w.Line(1, 0).SetFaults(holed(1500))
					}
					start := w.Now()
					w.RunOps(10*time.Second, ops...)
					w.Want("ok", ops...)
					t.Logf("took %v", w.Now()-start)
					if took := w.Now() - start; took > 500*ms {
						t.Errorf("the reads took %v, want at most 500 ms", took)
					}
					again := w.Hosts[0].Post(s)
					w.RunOps(50*ms, again)
					w.Want("ok", again)
					wantMTU(t, w, 0, 1, 8192)
					if n >= 8192 {
						wantMTU(t, w, 1, 0, 1024)
					}
					settle(w)
				})
			}
		}
	}
}

// F7 of the way of read data: packets are full again within 60 s of the hole's end, though the target has
// opened no PDC of its own. Secured ends do the same.
func TestF7HoleOfReadDataHeals(t *testing.T) {
	for _, how := range []transport.Secure{transport.SecureNone, transport.SecureOneRTT} {
		w := pair(t, 731, lan, full, memory(2<<20), secure(how))
		w.Line(1, 0).SetFaults(holed(1500))
		reads := func() {
			op := w.Hosts[0].Post(read(1, 0, 64<<10))
			w.RunOps(time.Second, op)
			w.Want("ok", op)
		}
		reads()
		wantMTU(t, w, 1, 0, 1024)
		w.SetFaults(lan)
		for range 12 {
			reads()
			w.Run(5 * time.Second)
		}
		wantMTU(t, w, 1, 0, 8192)
		settle(w)
	}
}

// F7 of read data that is only late: long packets come after the void ones in their place, or before
// these, or not at all. Each byte comes once.
func TestF7ReadDataThatIsLate(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 732))
		w := pair(t, seed, lan, full, memory(2<<20))
		late := lan
		late.InOrder, late.Delay = false, 5*ms
		late.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
			if len(p.Data) < 1500 {
				return sim.Verdict{}
			}
			return sim.Verdict{Drop: rng.IntN(3) == 0, Delay: time.Duration(rng.Int64N(int64(400 * ms)))}
		}
		back := lan
		back.Loss, back.Delay = 0.2, 5*ms
		w.Line(1, 0).SetFaults(late)
		w.Line(0, 1).SetFaults(back)
		s := read(1, 8, 60_000)
		s.Ordered = seed%2 == 0
		ops := post(w.Hosts[0], s, 6)
		w.RunOps(10*time.Second, ops...)
		w.Want("ok", ops...)
		w.SetFaults(lan)
		settle(w)
	}
}

// F7 of a way that loses long read data, and carries PROBEs that are as long: what it lost goes again in parts
// that every path carries, whatever the search says.
func TestF7HoleOfReadDataAlone(t *testing.T) {
	w := pair(t, 733, lan, full, memory(2<<20))
	hole := lan
	hole.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		typ := wire.Type(p.Data[0] >> 3)
		return sim.Verdict{Drop: len(p.Data) > 1500 && (typ == wire.TypeRUDReq || typ == wire.TypeRODReq)}
	}
	w.Line(1, 0).SetFaults(hole)
	op := w.Hosts[0].Post(read(1, 0, 60_000))
	w.RunOps(2*time.Second, op)
	w.Want("ok", op)
	wantMTU(t, w, 1, 0, 8192)
	settle(w)
}

// F7 while the PDC closes, because somebody asked for that: what was taken back of an ordered message, and waits
// for the answer to the part that the target has early, goes before the end.
func TestF7HoleWhileThePDCCloses(t *testing.T) {
	const n = 2*8192 + 500 // the last packet passes the hole
	for seed := range uint64(600) {
		w := pair(t, 760+seed, lan, full)
		s := tsend(1, 100)
		s.Ordered = true
		sendOne(t, w, s)
		f := holed(1500)
		f.Loss, f.Jitter = 0.2, 2*ms // answers overtake each other
		w.SetFaults(f)
		s = tsend(1, n)
		s.Ordered = true
		ops := append(post(w.Hosts[0], s, 1), post(w.Hosts[1], trecv(n), 1)...)
		w.Run(time.Duration(seed%60) * 2 * ms)
		w.Hosts[0].Quiesce()
		w.RunOps(30*time.Second, ops...)
		w.Want("ok", ops...)
		settle(w)
	}
}
