package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file tests threats to secured FEPs. In every run the eye of simtest checks that no IV is
// used twice (T24).

func secure(how transport.Secure) func(*simtest.Spec) {
	return func(s *simtest.Spec) { s.Secure = how }
}

var bothWays = map[string]transport.Secure{"0-RTT": transport.SecureZeroRTT, "1-RTT": transport.SecureOneRTT}

// A recorder records every packet that hosts send.
type recorder struct {
	w    *simtest.World
	pkts []sim.Packet
}

func record(w *simtest.World) *recorder {
	r := &recorder{w: w}
	nodes := map[*sim.Node]bool{}
	for _, h := range w.Hosts {
		nodes[h.Node] = true
	}
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && nodes[p.From] {
			c := *p
			c.Data = append([]byte(nil), p.Data...)
			r.pkts = append(r.pkts, c)
		}
	})
	return r
}

// replay sends everything again, to its destination and as if from its source.
func (r *recorder) replay() {
	for _, p := range r.pkts {
		for i, h := range r.w.Hosts {
			if p.Dst == h.Addr() {
				r.w.Forge(i, p.Src, p.Data, false)
			}
		}
	}
	r.w.Run(20 * ms)
}

// nothingArrived posts a receive for any message at both hosts, and fails if one arrives.
func nothingArrived(t *testing.T, w *simtest.World, when string, f func()) {
	t.Helper()
	var recvs []*simtest.Op
	var before []uint64
	for _, h := range w.Hosts {
		recvs = append(recvs, h.Post(trecv(100_000)), h.Post(simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: 100_000}))
		before = append(before, h.FEP.Stats().MsgsRx+h.FEP.Stats().Unexpected)
	}
	f()
	for i, h := range w.Hosts {
		if n := h.FEP.Stats().MsgsRx + h.FEP.Stats().Unexpected - before[i]; n != 0 {
			t.Errorf("%s: %s takes %d messages", when, h.Name(), n)
		}
		for _, o := range recvs[2*i : 2*i+2] {
			if !o.Open() {
				t.Errorf("%s: %v: %v", when, o, o.Cause())
			}
			h.Cancel(o)
		}
	}
}

// T20, T21: no recorded packet that is replayed makes a message arrive: not while the PDC
// lives, not when it is closed, and not after its quarantine.
func TestT20T21ReplayOfEverything(t *testing.T) {
	for name, how := range bothWays {
		t.Run(name, func(t *testing.T) {
			w := pair(t, 500, lan, secure(how), hostile, config(func(c *transport.Config) { c.IdleClose = 200 * ms }))
			a, b := w.Hosts[0], w.Hosts[1]
			rec := record(w)
			stream(w, tsend(1, 1000), 8, 2)
			stream(w, ordered(tsend(1, 20_000)), 3, 2)
			nothingArrived(t, w, "in a living PDC", rec.replay)
			w.RunUntil(time.Second, "all PDCs are closed", func() bool { return a.FEP.PDCs()+b.FEP.PDCs() == 0 })
			nothingArrived(t, w, "of a closed PDC", rec.replay)
			w.Run(5 * time.Second) // Quarantine and more
			nothingArrived(t, w, "after quarantine", rec.replay)
			w.Run(2 * time.Second) // NewPDCTime: pending PDCs end
			if n := a.FEP.PDCs() + b.FEP.PDCs(); n != 0 {
				t.Errorf("the replay opened %d PDCs", n)
			}
			stream(w, tsend(1, 1000), 4, 2)
			settle(w)
		})
	}
}

// T21: a target that was restarted under the same key accepts nothing of its earlier life, and
// an initiator that was restarted is not its earlier self.
func TestT21ReplayAcrossRestart(t *testing.T) {
	for _, who := range []int{0, 1} {
		t.Run(fmt.Sprintf("host %d restarts", who), func(t *testing.T) {
			w := pair(t, 510+uint64(who), lan, secure(transport.SecureOneRTT), hostile)
			rec := record(w)
			stream(w, tsend(1, 1000), 8, 2)
			stream(w, ordered(tsend(1, 20_000)), 3, 2)
			w.Hosts[who].Crash(false)
			w.Hosts[who].Restart()
			nothingArrived(t, w, "at once", rec.replay)
			// The first send may find the PDC of the life before (F12).
			w.RunOps(time.Second, w.Hosts[0].Post(tsend(1, 10)))
			w.Drain(1)
			w.Run(ms)
			stream(w, tsend(1, 1000), 4, 2)
			nothingArrived(t, w, "beside new PDCs", rec.replay)
			w.Run(6 * time.Second)
			nothingArrived(t, w, "after quarantine", rec.replay)
			settle(w)
		})
	}
}

// T8, T6, T7: nothing in clear affects a secured PDC, whatever correct numbers it has: every
// kind of packet is dropped and counted without an answer.
func TestT8NothingInClear(t *testing.T) {
	w, op, p, light := openOp(t, 520, secure(transport.SecureZeroRTT))
	a := w.Hosts[0]
	psn := wire.PSN(p.Start + uint32(p.Sent) - 1)
	clear := [][]byte{
		ackCC(p, uint32(psn), 0, 1, 0),
		wire.CP{Ctl: wire.CtlCloseReq, SPDCID: p.Remote, DPDCID: p.ID, PSN: psn}.Append(nil),
		request(p.Remote, uint32(psn), uint32(psn), wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}, 0),
	}
	for code := range 0x30 {
		clear = append(clear, wire.Nack{Type: wire.TypeNack, Code: wire.NackCode(code), PSN: psn, SPDCID: p.Remote, DPDCID: p.ID, Payload: 1 << 20}.Append(nil))
	}
	before := a.FEP.Stats()
	for range 3 { // fatal ones count when they come twice, an RTO apart
		for _, b := range clear {
			forge(w, b)
		}
		w.Run(500 * us)
	}
	st := a.FEP.Stats()
	if n := st.Drops[transport.DropClear] - before.Drops[transport.DropClear]; n != uint64(3*len(clear)) {
		t.Errorf("%d of %d packets in clear are dropped as such", n, 3*len(clear))
	}
	if st.NacksRx != before.NacksRx || st.CPRx != before.CPRx || st.AcksRx != before.AcksRx || st.RxData != before.RxData {
		t.Error("a packet in clear was read")
	}
	w.Want("open", op)
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// S-SEC-05: a packet of any kind with any bit flipped, header and ICV included, is dropped and
// counted without an answer.
func TestT8BitFlips(t *testing.T) {
	w := pair(t, 530, sim.Faults{Delay: 50 * us, Loss: 0.1}, secure(transport.SecureOneRTT), hostile, config(func(c *transport.Config) { c.IdleClose = 100 * ms }))
	rec := record(w)
	stream(w, tsend(1, 100), 40, 4)
	stream(w, ordered(tsend(1, 3000)), 10, 4)
	w.Heal()
	w.RunUntil(2*time.Second, "all PDCs are closed", func() bool { return w.Hosts[0].FEP.PDCs()+w.Hosts[1].FEP.PDCs() == 0 })
	// There is one packet of each kind that was seen.
	kinds := map[string]sim.Packet{}
	for _, p := range rec.pkts {
		k := simtest.Kind(w, &p)
		if old, ok := kinds[k]; !ok || len(p.Data) < len(old.Data) {
			kinds[k] = p
		}
	}
	if len(kinds) < 5 {
		t.Fatalf("only %d kinds of packets were sent: the test does not test", len(kinds))
	}
	for k, p := range kinds {
		to := 0
		if p.Dst == w.Hosts[1].Addr() {
			to = 1
		}
		f := w.Hosts[to].FEP
		before, packets := f.Stats(), w.PacketsFrom(to)
		n := min(8*len(p.Data), 8*200) // headers, and enough of the payload
		for bit := range n {
			b := append([]byte(nil), p.Data...)
			if bit >= n-8*wire.ICVLen { // the last bits, in the ICV
				bit += 8*len(b) - n
			}
			b[bit/8] ^= 1 << (bit % 8)
			w.Forge(to, p.Src, b, false)
		}
		w.Run(10 * ms)
		after := f.Stats()
		drops := uint64(0)
		for _, r := range []transport.DropReason{transport.DropClear, transport.DropAuth, transport.DropSDI, transport.DropKey} {
			drops += after.Drops[r] - before.Drops[r]
		}
		if drops != uint64(n) || w.PacketsFrom(to) != packets || f.PDCs() != 0 {
			t.Errorf("%s: %d of %d flipped bits are drops, %d packets sent, %d PDCs", k, drops, n, w.PacketsFrom(to)-packets, f.PDCs())
		}
	}
	settle(w)
}

// S-SYN-08: what opens a sealed PDC in one round trip is answered, and none of it is dropped
// because there is too much of it: not of long or ordered messages, not of many initiators, and
// not if the target reads it late. The first data arrives a round trip later than without the
// question, and nothing waits for a timeout.
func TestSealedFlowBegins(t *testing.T) {
	const rtt = 100 * us
	begin := func(t *testing.T, how transport.Secure, s simtest.OpSpec, n int) time.Duration {
		w := pair(t, 545, lan, secure(how))
		took := stream(w, s, n, 4)
		for _, h := range w.Hosts {
			st := h.FEP.Stats()
			if d := st.Drops[transport.DropRate]; d != 0 || st.RtxRTO != 0 {
				t.Errorf("%s drops %d packets for their rate, and sends %d again at timeouts", h.Name(), d, st.RtxRTO)
			}
		}
		settle(w)
		return took
	}
	for name, s := range map[string]simtest.OpSpec{
		"short": tsend(1, 100), "long": tsend(1, 1<<20), "ordered": ordered(tsend(1, 50_000)),
	} {
		t.Run(name, func(t *testing.T) {
			with, without := begin(t, transport.SecureOneRTT, s, 4), begin(t, transport.SecureZeroRTT, s, 4)
			if most := without + without/50 + rtt + rtt/2; with > most {
				t.Errorf("takes %v with the question, %v without", with, without)
			}
		})
	}
	t.Run("read late", func(t *testing.T) {
		w := pair(t, 546, lan, secure(transport.SecureOneRTT))
		w.Hosts[1].Node.Pause()
		ops := post(w.Hosts[0], tsend(1, 1<<20), 4)
		post(w.Hosts[1], trecv(1<<20), 4)
		w.Run(200 * ms)
		w.Hosts[1].Node.Resume()
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		if n := drops(w.Hosts[1], transport.DropRate); n != 0 {
			t.Errorf("%d packets are dropped for their rate", n)
		}
		settle(w)
	})
	t.Run("of many", func(t *testing.T) {
		const n = 32
		w := simtest.NewWorld(t, simtest.Spec{Seed: 547, Line: lan, Secure: transport.SecureOneRTT, Hosts: make([]simtest.HostSpec, n+1)})
		var ops []*simtest.Op
		for _, h := range w.Hosts[1:] {
			ops = append(ops, post(h, tsend(0, 20_000), 1)...)
		}
		post(w.Hosts[0], trecv(20_000), n)
		w.RunOps(time.Second, ops...)
		w.Want("ok", ops...)
		if d := drops(w.Hosts[0], transport.DropRate); d != 0 {
			t.Errorf("%d packets are dropped for their rate", d)
		}
		settle(w)
	})
}

// T25: a flood of forged packets makes no state and is not answered, and honest messages go on.
func TestT25ForgedFlood(t *testing.T) {
	w := pair(t, 540, lan, secure(transport.SecureOneRTT), hostile)
	a := w.Hosts[0]
	clean := stream(w, tsend(1, 20_000), 50, 4)
	h := wire.TSS{SP: true, SDI: 1, SSI: 1}
	stop := w.Now() + 500*ms
	n := 0
	var flood func()
	flood = func() {
		for range 50 { // 50,000 packets a second
			n++
			h.SSI, h.TSC = uint32(n), uint64(n)
			h.SDI = simtest.SDI
			b := append(h.Append(nil), make([]byte, 80)...)
			w.Forge(1, a.Addr(), b, false)
		}
		if w.Now() < stop {
			w.Net.After(ms, flood)
		}
	}
	sent := w.PacketsFrom(1)
	flood()
	w.Run(100 * ms)
	if m := w.PacketsFrom(1) - sent; m != 0 {
		t.Errorf("%d answers to forged packets", m)
	}
	under := stream(w, tsend(1, 20_000), 50, 4)
	w.RunUntil(2*time.Second, "the flood ends", func() bool { return w.Now() >= stop+ms })
	if got := w.Hosts[1].FEP.Stats().Drops[transport.DropAuth]; got != uint64(n) {
		t.Errorf("%d of %d forged packets are counted", got, n)
	}
	if under > 2*clean {
		t.Errorf("messages take %v under the flood, %v without", under, clean)
	}
	settle(w)
}
