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

// memory gives every host memory that the others may read.
func memory(n int) func(*simtest.Spec) {
	return func(s *simtest.Spec) {
		for i := range s.Hosts {
			s.Hosts[i].Memory = n
		}
	}
}

func read(from, addr, n int) simtest.OpSpec {
	return simtest.OpSpec{Kind: transport.OpRead, Peer: from, Addr: addr, Len: n}
}

// bad is a path on which everything happens to packets but damage.
func bad(loss float64) sim.Faults {
	f := lan
	f.InOrder = false
	f.Loss, f.Duplicate, f.DuplicateMax, f.DuplicateLate = loss, 0.1, 3, time.Millisecond
	f.Reorder, f.ReorderBy, f.Jitter = 0.1, 16, 200*us
	return f
}

func TestReadsOnBadPaths(t *testing.T) {
	// Reads of no bytes up to many MiB, by RUD and ROD, bring every byte under loss, duplication and
	// reordering, while both hosts read.
	for _, loss := range []float64{0, 0.01, 0.05, 0.3} {
		for _, rod := range []bool{false, true} {
			t.Run(fmt.Sprint(loss, rod), func(t *testing.T) {
				w := pair(t, 7, bad(loss), memory(8<<20), config(func(c *transport.Config) { c.ReadWindow = 256 << 10 }))
				var ops []*simtest.Op
				long := 8 << 20
				if loss > 0.1 || raceEnabled {
					long = 1 << 20
				}
				for i := range 40 {
					s := read(1-i%2, i*4096, []int{0, 1, 17, 1000, 1024, 1025, 60000}[i%7])
					s.Ordered = rod
					ops = append(ops, w.Hosts[i%2].Post(s))
				}
				s := read(1, 0, long)
				s.Ordered = rod
				ops = append(ops, w.Hosts[0].Post(s))
				w.RunOps(5*time.Minute, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}

func TestReadsOfTargetThatRestarts(t *testing.T) {
	// A read whose target dies ends in error, also if every request was answered; it ends soon if a
	// new life answers. That one may do it as a whole, if a request of it left only when the new life
	// had begun: then the former life has not run it.
	for _, after := range []time.Duration{200 * us, 2 * ms, 10 * ms} {
		w := pair(t, 3, lan, memory(8<<20), smallWindow)
		op := w.Hosts[0].Post(read(1, 0, 8<<20))
		w.Run(after)
		w.Hosts[1].Crash(false)
		w.Run(time.Millisecond)
		w.Hosts[1].Restart()
		w.RunOps(10*time.Second, op)
		w.Want("ok or aborted or unreachable or timed out", op)
		again := w.Hosts[0].Post(read(1, 0, 100_000))
		w.RunOps(time.Second, again)
		w.Want("ok", again)
		settle(w)
	}
}

func TestReadsOfTargetThatIsGone(t *testing.T) {
	// Every read ends in bounded time if its target is gone for good.
	w := pair(t, 3, lan, memory(8<<20), smallWindow)
	var ops []*simtest.Op
	for i := range 20 {
		ops = append(ops, w.Hosts[0].Post(read(1, i*1000, 1+i*20000)))
	}
	w.Run(ms)
	w.Hosts[1].Crash(false)
	w.RunOps(2*time.Minute, ops...)
	settle(w)
}

func TestReadsThatReachNobodyAreNotTold(t *testing.T) {
	// R-CQ-115: a target is told of a read when its peer has all bytes. One whose PDC dies before that brought
	// them to nobody.
	for _, how := range []string{"silent", "crash", "restart"} {
		for _, n := range []int{100, 1000, 100_000} {
			w := pair(t, 5, lan, memory(1<<20), mayFail)
			a, b := w.Hosts[0], w.Hosts[1]
			first := a.Post(read(1, 0, n))
			w.RunOps(time.Second, first)
			w.Want("ok", first)
			w.Run(10 * ms)
			if b.TimesRead != 1 {
				t.Fatalf("%s, %d bytes: %d reads were told, want 1", how, n, b.TimesRead)
			}
			deaf := lan
			deaf.Loss = 1
			w.Line(1, 0).SetFaults(deaf)
			a.Post(read(1, 0, n))
			w.Run(ms)
			switch how {
			case "crash":
				a.Crash(false)
			case "restart":
				a.Crash(false)
				a.Restart()
				w.Line(1, 0).SetFaults(lan)
			}
			w.Run(3 * time.Minute)
			if b.TimesRead != 1 {
				t.Errorf("%s, %d bytes: %d reads were told, want 1", how, n, b.TimesRead)
			}
			w.Heal()
			settle(w)
		}
	}
}

func TestReadsOfHostThatLeaves(t *testing.T) {
	// The initiator closes in the middle of reads: each ends, and the target goes on with others.
	w := pair(t, 3, lan, memory(8<<20), smallWindow)
	op := w.Hosts[0].Post(read(1, 0, 8<<20))
	w.Run(2 * ms)
	w.Hosts[0].Close()
	w.Want("cancelled", op)
	w.Run(time.Second)
	w.Hosts[0].Restart()
	again := w.Hosts[0].Post(read(1, 0, 1<<20))
	w.RunOps(time.Minute, again)
	w.Want("ok", again)
	settle(w)
}

func TestReadsDoNotOutliveTheirPDC(t *testing.T) {
	// F34: PDCs that close again and again under reads lose nothing: a target that has asked for the close
	// returns what was asked for.
	for seed := range uint64(raced(10, 2)) {
		w := pair(t, seed, bad(0.02), memory(1<<20), config(func(c *transport.Config) { c.MaxRange, c.ShortMessage = 200, 1 }))
		var ops []*simtest.Op
		for i := range 60 {
			ops = append(ops, w.Hosts[0].Post(read(1, i*8000, 64<<10)))
		}
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		settle(w)
	}
}

func TestReadsRepeatToThoseKnown(t *testing.T) {
	// T27: return data to a source that the application named is sent again until it is acknowledged,
	// though the packet that would prove the source is lost. Otherwise it would keep the window of
	// the peer closed.
	w := pair(t, 1, lan, memory(1<<20))
	w.Hosts[1].Peer(0)
	lost := lan
	lost.Drop = []uint64{1, 2} // the greeting, and the ACK of the data
	w.Line(0, 1).SetFaults(lost)
	op := w.Hosts[0].Post(read(1, 0, 100))
	w.RunOps(500*ms, op)
	w.Want("ok", op)
	w.RunUntil(500*ms, "the ACK of the data", w.Hosts[1].FEP.Idle)
	settle(w)
}

func TestReadsFromTargetsOfStrangers(t *testing.T) {
	// S-END-10: a target returns nothing to a source that is not proven. If the packet that would
	// prove it is lost, the source asks soon.
	w := pair(t, 1, lan, memory(1<<20))
	lost := lan
	lost.Drop = []uint64{1} // the greeting
	w.Line(0, 1).SetFaults(lost)
	op := w.Hosts[0].Post(read(1, 0, 100))
	w.RunOps(100*ms, op)
	w.Want("ok", op)
	settle(w)
}

func TestReadsOfSourceThatSendsSYN(t *testing.T) {
	// S-CLR-08: a source all of whose requests have SYN is asked for a CLEAR, by the ACK and then by CLEAR_REQs,
	// and gets what it reads when it has answered one of them.
	for _, answers := range []int{1, 2, 5} {
		w := pair(t, 1, lan, forged, memory(1<<20))
		source := netip.MustParseAddrPort("10.9.9.9:4793")
		questions, data := 0, 0
		answer := func(target uint16) {
			if questions++; questions == answers {
				cp := wire.CP{Ctl: wire.CtlClear, SPDCID: 9, DPDCID: target, Payload: 1000}
				w.Forge(0, source, cp.Append(nil), true)
			}
		}
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if what != sim.Sent || p.Dst != source {
				return
			}
			pro, err := wire.ParsePrologue(p.Data)
			if err != nil {
				t.Error(err)
				return
			}
			switch pro.Type {
			case wire.TypeRUDReq:
				if data++; questions < answers {
					t.Error("read data goes to a source that is not proven")
				}
			case wire.TypeAckCC:
				if a, _, err := wire.ParseAck(p.Data); err == nil && a.Req == wire.ReqClear {
					answer(a.SPDCID)
				}
			case wire.TypeCP:
				if c, _, err := wire.ParseCP(p.Data); err == nil && c.Ctl == wire.CtlClearReq {
					answer(c.SPDCID)
				}
			}
		})
		q := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESREL | wire.SESSOM | wire.SESEOM, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, Match: simtest.MemoryKey, ReqLen: 100}
		w.Forge(0, source, request(9, 1000, 1000, q, 0), true)
		w.Run(5 * time.Second)
		if data == 0 {
			t.Errorf("no data after %d questions, of which %d was answered", questions, answers)
		}
	}
}

func TestDeferredOfSourceThatSendsSYN(t *testing.T) {
	// S-CLR-08, S-DEF-62: the same for a message that was deferred, and gets a receive later. Its RTR waits for the proof,
	// and the CLEAR for the answer came in a packet with SYN, which proves nothing.
	w := pair(t, 1, lan, forged, memory(1<<20))
	source := netip.MustParseAddrPort("10.9.9.9:4793")
	q := wire.ReqStd{Opcode: wire.OpDeferrableSend, Flags: wire.SESREL | wire.SESSOM | wire.SESDC, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, ReqLen: 3000}
	q.SetRestartTokens(7, 0)
	w.Forge(0, source, request(9, 1000, 1000, q, 1024), true)
	w.Run(ms)
	rest := q
	rest.Flags, rest.MsgOff, rest.PayloadLen = wire.SESREL|wire.SESDC, 1024, 1024
	w.Forge(0, source, request(9, 1000, 1001, rest, 1024), true) // with a CLEAR of the one before
	w.Run(5 * time.Second)
	rtr, asked := false, false
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what != sim.Sent || p.Dst != source {
			return
		}
		switch pro, _ := wire.ParsePrologue(p.Data); pro.Type {
		case wire.TypeRUDReq:
			if rtr = true; !asked {
				t.Error("an RTR goes to a source that is not proven")
			}
		case wire.TypeCP:
			if c, _, err := wire.ParseCP(p.Data); err == nil && c.Ctl == wire.CtlClearReq && !asked {
				asked = true
				cp := wire.CP{Ctl: wire.CtlClear, SPDCID: 9, DPDCID: c.SPDCID, Payload: 1001}
				w.Forge(0, source, cp.Append(nil), true)
			}
		}
	})
	if w.Hosts[0].Post(simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: 3000}) == nil {
		t.Fatal("no receive")
	}
	w.Run(5 * time.Second)
	if !asked || !rtr {
		t.Errorf("asked for a proof: %v; RTR: %v", asked, rtr)
	}
}
