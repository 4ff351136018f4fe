package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// waits asks a host why an operation has not ended.
func waits(t *testing.T, o *simtest.Op) transport.Waiting {
	t.Helper()
	if !o.Open() {
		t.Fatalf("%v has ended: %v", o, o.Cause())
	}
	before, stats := o.Host.FEP.Dump(), o.Host.FEP.Stats()
	for _, w := range o.Host.Diagnose() {
		if w.Context != any(o) {
			continue
		}
		if s := w.String(); strings.Contains(s, "%!") || !strings.Contains(s, w.Why()) {
			t.Errorf("in words: %s", s)
		} else {
			t.Log(s)
		}
		if o.Host.FEP.Dump() != before || o.Host.FEP.Stats() != stats {
			t.Error("to ask changed something")
		}
		return w
	}
	t.Fatalf("%v is not among what waits", o)
	return transport.Waiting{}
}

func wantWait(t *testing.T, o *simtest.Op, want transport.WaitFor) transport.Waiting {
	t.Helper()
	w := waits(t, o)
	if w.Cause != want {
		t.Fatalf("%v waits for %v, want %v: %s", o, w.Cause, want, w.String())
	}
	return w
}

func ask(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// dark is a line on which nothing arrives.
func dark() sim.Faults {
	f := lan
	f.Loss = 1
	return f
}

// warm opens the PDC for short messages from A to B.
func warm(t *testing.T, w *simtest.World, s simtest.OpSpec) {
	t.Helper()
	r := w.Hosts[1].Post(trecv(s.Len))
	o := w.Hosts[0].Post(s)
	w.RunOps(time.Second, o, r)
	w.Want("ok", o, r)
}

func TestDiagnoseNothing(t *testing.T) {
	w := pair(t, 900, lan)
	warm(t, w, tsend(1, 100))
	w.Hosts[1].Post(trecv(100))
	o := w.Hosts[0].Post(tsend(1, 100))
	w.Run(20 * us)
	d := wantWait(t, o, transport.WaitNothing)
	ask(t, "age", d.Age, 20*us)
	ask(t, "kind", d.Kind, transport.OpTSend)
	ask(t, "remote", d.Remote, w.Hosts[1].Addr())
	ask(t, "done", d.Done, uint64(0))
	ask(t, "total", d.Total, uint64(100))
	settle(w)
	if d := w.Hosts[0].FEP.Diagnose(w.Now()); len(d) != 0 {
		t.Errorf("at rest: %v", d)
	}
}

func TestDiagnoseNoAck(t *testing.T) {
	w := pair(t, 901, lan)
	warm(t, w, tsend(1, 100))
	from := w.Now()
	w.SetFaults(dark())
	o := w.Hosts[0].Post(tsend(1, 300))
	w.Run(2 * time.Second)
	d := wantWait(t, o, transport.WaitAck)
	if d.Heard < 2*time.Second-ms || d.Heard > w.Now()-from+ms || d.For != d.Heard {
		t.Errorf("heard %v ago, for %v", d.Heard, d.For)
	}
	if d.Timeouts < 5 || d.Next <= 0 || d.Next > 600*ms || d.GiveUp <= 30*time.Second || d.GiveUp > 40*time.Second || d.ICMP {
		t.Errorf("%d timeouts, next in %v, given up in %v", d.Timeouts, d.Next, d.GiveUp)
	}
	w.SetFaults(lan)
	w.Hosts[1].Post(trecv(300))
	settle(w)
}

func TestDiagnoseOpening(t *testing.T) {
	w := pair(t, 902, dark())
	o := w.Hosts[0].Post(tsend(1, 300))
	w.Run(time.Second)
	d := wantWait(t, o, transport.WaitOpen)
	ask(t, "heard", d.Heard, time.Duration(-1))
	ask(t, "for", d.For, time.Second)
	if d.Timeouts < 3 {
		t.Errorf("%d timeouts", d.Timeouts)
	}
	w.SetFaults(lan)
	w.Hosts[1].Post(trecv(300))
	settle(w)
}

func TestDiagnoseNobodyThere(t *testing.T) {
	w := pair(t, 903, lan, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	w.Hosts[1].Crash(true)
	o := w.Hosts[0].Post(tsend(1, 300))
	w.Run(500 * ms)
	d := wantWait(t, o, transport.WaitOpen)
	ask(t, "ICMP", d.ICMP, true)
	if d.GiveUp <= 0 || d.GiveUp > 3*time.Second {
		t.Errorf("given up in %v", d.GiveUp)
	}
	w.Hosts[1].Restart()
	w.RunOps(10*time.Second, o)
}

// A send is WaitNotReady when the target keeps one message that no receive matches, and has no
// room for another.
func TestDiagnoseNoReceive(t *testing.T) {
	w := pair(t, 904, lan, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }))
	first := w.Hosts[0].Post(tsend(1, 100))
	w.RunOps(time.Second, first)
	second := w.Hosts[0].Post(tsend(1, 100))
	w.Run(300 * ms)
	d := wantWait(t, second, transport.WaitNotReady)
	ask(t, "nack", d.Nack, wire.NackNoSESMsgAvail)
	if d.For < 290*ms || d.For > 300*ms || d.Timeouts != 0 {
		t.Errorf("for %v, %d timeouts", d.For, d.Timeouts)
	}
	post(w.Hosts[1], trecv(100), 2)
	settle(w)
}

// A send is WaitShort when the target has no free PDC.
func TestDiagnosePeerShort(t *testing.T) {
	w := pair(t, 905, lan, only(1, func(c *transport.Config) { c.MaxPDCs = 1 }))
	warm(t, w, tsend(1, 100))
	w.Hosts[1].Post(trecv(100_000))
	o := w.Hosts[0].Post(tsend(1, 100_000)) // on another PDC
	w.Run(200 * ms)
	d := wantWait(t, o, transport.WaitShort)
	ask(t, "nack", d.Nack, wire.NackNoPDCAvail)
	if d.For < 190*ms {
		t.Errorf("for %v", d.For)
	}
	w.RunOps(60*time.Second, o)
}

func TestDiagnoseCongestion(t *testing.T) {
	w := pair(t, 906, lan, smallWindow)
	w.Hosts[1].Post(trecv(1 << 20))
	o := w.Hosts[0].Post(tsend(1, 1<<20))
	w.Run(600 * us)
	d := wantWait(t, o, transport.WaitCongestion)
	if d.Window <= 0 || d.InFlight <= 0 || d.InFlight > d.Window || d.Done == 0 || d.Done >= d.Total {
		t.Errorf("%d of %d bytes in flight, %d of %d done", d.InFlight, d.Window, d.Done, d.Total)
	}
	settle(w)
}

// A send is WaitPeerWindow when the peer offers only 128 packets, far less than our window.
func TestDiagnosePeerWindow(t *testing.T) {
	w := pair(t, 907, lan, only(1, func(c *transport.Config) { c.MPRange = 128 }))
	w.Hosts[1].Post(trecv(1 << 20))
	o := w.Hosts[0].Post(tsend(1, 1<<20))
	w.Run(700 * us)
	d := wantWait(t, o, transport.WaitPeerWindow)
	ask(t, "window", d.Window, 128)
	ask(t, "in flight", d.InFlight, 128)
	settle(w)
}

// A send is WaitOwnWindow when this side sends only 128 packets ahead, and the peer accepts far
// more.
func TestDiagnoseOwnWindow(t *testing.T) {
	w := pair(t, 908, lan, only(0, func(c *transport.Config) { c.MPRange = 128 }))
	warm(t, w, tsend(1, 100_000))
	w.Hosts[1].Post(trecv(1 << 20))
	o := w.Hosts[0].Post(tsend(1, 1<<20))
	w.Run(300 * us)
	d := wantWait(t, o, transport.WaitOwnWindow)
	ask(t, "window", d.Window, 128)
	settle(w)
}

func TestDiagnoseBehind(t *testing.T) {
	w := pair(t, 909, lan, smallWindow)
	post(w.Hosts[1], trecv(1<<20), 2)
	long := w.Hosts[0].Post(tsend(1, 1<<20))
	next := w.Hosts[0].Post(tsend(1, 100_000))
	w.Run(600 * us)
	d := wantWait(t, next, transport.WaitBehind)
	ask(t, "behind", d.Behind, any(long))
	ask(t, "which waits for", d.BehindFor, transport.WaitCongestion)
	if d.BehindLeft == 0 || d.BehindLeft >= 1<<20 {
		t.Errorf("%d bytes left", d.BehindLeft)
	}
	settle(w)
}

// A message that is posted while the ROD PDC is closing is WaitClose: it waits for the next
// PDC.
func TestDiagnoseClosing(t *testing.T) {
	w := pair(t, 910, lan, config(func(c *transport.Config) { c.IdleClose = 100 * ms }))
	warm(t, w, ordered(tsend(1, 100)))
	w.SetFaults(dark())
	w.Run(110 * ms) // CLOSE gets no answer
	o := w.Hosts[0].Post(ordered(tsend(1, 100)))
	w.Run(10 * ms)
	wantWait(t, o, transport.WaitClose)
	w.SetFaults(lan)
	w.Hosts[1].Post(trecv(100))
	settle(w)
}

// A post that fails because all PDCs are in use is WaitPDC.
func TestDiagnoseNoPDC(t *testing.T) {
	w := pair(t, 911, lan, only(0, func(c *transport.Config) { c.MaxPDCs, c.MaxSends = 1, 2 }))
	warm(t, w, tsend(1, 100))
	f := w.Hosts[0].FEP
	op := transport.Op{Kind: transport.OpTSend, Peer: w.Hosts[0].Peer(1), RI: 15, Buf: make([]byte, 100_000), Context: "x"}
	if err := f.Post(w.Now(), &op); err != transport.ErrFull {
		t.Fatal(err)
	}
	d := f.DiagnoseRefused(w.Now(), &op)
	ask(t, "cause", d.Cause, transport.WaitPDC)
	ask(t, "total", d.Total, uint64(100_000))
	w.SetFaults(dark())
	post(w.Hosts[0], tsend(1, 10), 2)
	op.Buf = op.Buf[:10]
	d = f.DiagnoseRefused(w.Now(), &op)
	ask(t, "cause", d.Cause, transport.WaitRoom)
	ask(t, "full", d.Full, 2)
	w.SetFaults(lan)
	post(w.Hosts[1], trecv(10), 2)
	settle(w)
}

// PDCIDs in quarantine are counted.
func TestDiagnoseQuarantine(t *testing.T) {
	w := pair(t, 912, lan, only(0, func(c *transport.Config) { c.MaxPDCs, c.IdleClose = 1, 50*ms }))
	warm(t, w, tsend(1, 100))
	w.Run(200 * ms) // closed, and in quarantine for 4 s
	op := transport.Op{Kind: transport.OpTSend, Peer: w.Hosts[0].Peer(1), RI: 15, Buf: make([]byte, 10)}
	if d := w.Hosts[0].FEP.DiagnoseRefused(w.Now(), &op); d.Cause != transport.WaitPDC || d.Full != 1 {
		t.Errorf("%v, %d in quarantine", d.Cause, d.Full)
	}
}

func TestDiagnoseKey(t *testing.T) {
	w := pair(t, 913, lan, mayFail, func(s *simtest.Spec) {
		s.Secure = transport.SecureOneRTT
	})
	warm(t, w, tsend(1, 100))
	w.SetFaults(dark())
	o := w.Hosts[0].Post(tsend(1, 100))
	w.Run(ms)
	w.Hosts[0].LoseKey()
	w.Run(500 * ms)
	d := wantWait(t, o, transport.WaitKey)
	if d.For <= 0 || d.For > 500*ms {
		t.Errorf("for %v", d.For)
	}
}

func TestDiagnoseOrder(t *testing.T) {
	// WaitOrder: the first packet of the second message is always lost, and the third message
	// is there, and kept.
	w := pair(t, 914, lan)
	warm(t, w, ordered(tsend(1, 100)))
	lost := uint32(0)
	f := lan
	f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) < 8 || p.Data[0]>>3 != uint8(wire.TypeRODReq) {
			return sim.Verdict{}
		}
		psn := uint32(p.Data[4])<<24 | uint32(p.Data[5])<<16 | uint32(p.Data[6])<<8 | uint32(p.Data[7])
		if lost == 0 {
			lost = psn
		}
		return sim.Verdict{Drop: psn == lost}
	}
	w.Line(0, 1).SetFaults(f)
	second := w.Hosts[0].Post(ordered(tsend(1, 100)))
	third := w.Hosts[0].Post(ordered(tsend(1, 100)))
	recvs := post(w.Hosts[1], trecv(100), 2)
	w.Run(100 * ms)
	wantWait(t, second, transport.WaitAck)
	wantWait(t, third, transport.WaitOrder)
	d := wantWait(t, recvs[0], transport.WaitEarlier)
	ask(t, "early", d.Early, 1)
	w.SetFaults(lan)
	settle(w)
}

// WaitAnswer: a message that no receive matches gets a response of its own, and all packets
// with one are lost.
func TestDiagnoseAnswer(t *testing.T) {
	w := pair(t, 915, lan, smallWindow)
	warm(t, w, tsend(1, 100))
	f := lan
	f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) < 12 {
			return sim.Verdict{}
		}
		var a wire.Ack
		_, err := a.Parse(p.Data)
		return sim.Verdict{Drop: err == nil && a.Next == wire.NextRsp}
	}
	w.Line(1, 0).SetFaults(f)
	o := w.Hosts[0].Post(tsend(1, 100))
	w.Run(300 * ms)
	wantWait(t, o, transport.WaitAnswer)
	w.SetFaults(lan)
	w.Hosts[1].Post(trecv(100))
	settle(w)
}

func TestDiagnoseReceives(t *testing.T) {
	w := pair(t, 916, lan)
	a, b := w.Hosts[0], w.Hosts[1]
	class := func(c uint8) simtest.OpSpec { s := tsend(1, 64); s.Class = c; return s }
	rclass := func(c uint8) simtest.OpSpec { s := trecv(64); s.AnyClass, s.Class = false, c; return s }
	r := b.Post(rclass(9))
	untagged := b.Post(simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: 64})
	w.Run(ms)
	d := wantWait(t, r, transport.WaitMessage)
	ask(t, "age", d.Age, ms)
	ask(t, "heard", d.Heard, time.Duration(-1))
	sends := []*simtest.Op{a.Post(class(1)), a.Post(class(2))}
	w.RunOps(time.Second, sends...)
	w.Run(ms)
	d = wantWait(t, r, transport.WaitMatch)
	ask(t, "unmatched", d.Unmatched, 2)
	if len(d.Tags) != 2 || d.Tags[0]&0xff != 1 || d.Tags[1]&0xff != 2 || d.Heard < 0 {
		t.Errorf("tags %x, heard %v", d.Tags, d.Heard)
	}
	d = wantWait(t, untagged, transport.WaitMatch)
	ask(t, "unmatched", d.Unmatched, 0)
	ask(t, "of the other kind", d.OtherKind, 2)
	a.Post(class(9))
	a.Post(simtest.OpSpec{Kind: transport.OpSend, Peer: 1, Len: 64})
	post(b, trecv(64), 2)
	settle(w)
}

func TestDiagnoseRest(t *testing.T) {
	w := pair(t, 917, lan, smallWindow)
	r := w.Hosts[1].Post(trecv(1 << 20))
	w.Hosts[0].Post(tsend(1, 1<<20))
	w.Run(2 * ms)
	w.Line(0, 1).SetFaults(dark())
	w.Run(98 * ms)
	d := wantWait(t, r, transport.WaitRest)
	if d.Done == 0 || d.Done >= d.Total || d.Total != 1<<20 || d.For < 99*ms || d.For > 100*ms || d.Heard < 97*ms || d.Heard > 98*ms+100*us {
		t.Errorf("%d of %d bytes, for %v, heard %v ago", d.Done, d.Total, d.For, d.Heard)
	}
	ask(t, "remote", d.Remote, w.Hosts[0].Addr())
	w.SetFaults(lan)
	settle(w)
}

// WaitCQ: a multi-receive buffer gets no message while there is no room for its entry.
func TestDiagnoseCQ(t *testing.T) {
	room := false
	w := pair(t, 918, lan, only(1, func(c *transport.Config) { c.Admit = func() bool { return room } }))
	b := w.Hosts[1]
	if err := b.FEP.Post(w.Now(), &transport.Op{Kind: transport.OpTRecv, Buf: make([]byte, 4096), Ignore: ^uint64(0), Multi: true, MinFree: 64, Context: "multi"}); err != nil {
		t.Fatal(err)
	}
	w.Hosts[0].Post(tsend(1, 100))
	w.Run(10 * ms)
	list := b.FEP.Diagnose(w.Now())
	if len(list) != 1 || list[0].Cause != transport.WaitCQ || list[0].Unmatched != 1 || list[0].Context != "multi" {
		t.Errorf("%+v", list)
	}
}

func TestDiagnoseFence(t *testing.T) {
	w := pair(t, 919, lan)
	a := w.Hosts[0]
	warm(t, w, tsend(1, 100))
	w.SetFaults(dark())
	first := a.Post(tsend(1, 100))
	if err := a.FEP.Post(w.Now(), &transport.Op{Kind: transport.OpTSend, Peer: a.Peer(1), RI: 15, Fence: true, Context: "fenced"}); err != nil {
		t.Fatal(err)
	}
	w.Run(100 * ms)
	wantWait(t, first, transport.WaitAck)
	list := a.FEP.Diagnose(w.Now())
	if len(list) != 2 || list[1].Context != "fenced" || list[1].Cause != transport.WaitFence {
		t.Errorf("%+v", list)
	}
}

// oneway makes a world in which a short message from A to B is not answered, and returns its
// PDC.
func oneway(t *testing.T, seed uint64) (*simtest.World, *simtest.Op, simtest.PDC) {
	t.Helper()
	w := pair(t, seed, lan, hostile, mayFail)
	warm(t, w, tsend(1, 100))
	w.Line(1, 0).SetFaults(dark())
	op := w.Hosts[0].Post(tsend(1, 100))
	w.Hosts[1].Post(trecv(100))
	w.Run(200 * us)
	return w, op, w.PDCs(0)[0]
}

func says(t *testing.T, d transport.Waiting, has string) {
	t.Helper()
	if s := d.String(); !strings.Contains(s, has) || strings.Contains(s, "nothing was heard") {
		t.Errorf("%q does not say %q", s, has)
	}
}

// S-CPL-04: a target that answers NO_RESPONSE has acknowledged everything. Its response is to
// come.
func TestDiagnosePromised(t *testing.T) {
	w, op, p := oneway(t, 920)
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: wire.PSN(p.Start + uint32(p.Sent) - 1), SPDCID: p.Remote, DPDCID: p.ID, MPR: 16, SACKOff: 1}
	forge(w, (&wire.Rsp{Opcode: wire.RspNone, RC: wire.RCOK}).Append(a.Append(nil)))
	w.Run(10 * ms)
	d := wantWait(t, op, transport.WaitAnswer)
	ask(t, "promised", d.Promised, true)
	ask(t, "done", d.Done, d.Total)
	if d.Heard < 9*ms || d.Heard > 11*ms {
		t.Errorf("heard %v ago", d.Heard)
	}
	says(t, d, "the peer acknowledged all of it")
}

// T6: a fatal NACK that came once is named, and what it does.
func TestDiagnoseFatalNackThatCameOnce(t *testing.T) {
	w, op, p := oneway(t, 921)
	forge(w, wire.Nack{Type: wire.TypeNack, Code: wire.NackPDCModeMismatch, PSN: wire.PSN(p.Start + uint32(p.Sent) - 1), SPDCID: p.Remote, DPDCID: p.ID}.Append(nil))
	w.Run(100 * us)
	d := wantWait(t, op, transport.WaitShort)
	ask(t, "nack", d.Nack, wire.NackPDCModeMismatch)
	says(t, d, "the peer answered PDC_MODE_MISMATCH, which ends")
	w.Run(100 * ms) // it was sent again, and is not answered
	d = wantWait(t, op, transport.WaitAck)
	ask(t, "nack", d.Nack, wire.NackPDCModeMismatch)
	says(t, d, "it answered PDC_MODE_MISMATCH once")
}

// Who opens a PDC and was heard on another one was not silent.
func TestDiagnoseOpeningAnotherPDC(t *testing.T) {
	w := pair(t, 922, lan)
	warm(t, w, tsend(1, 100))
	w.SetFaults(dark())
	o := w.Hosts[0].Post(ordered(tsend(1, 100)))
	w.Run(100 * ms)
	d := wantWait(t, o, transport.WaitOpen)
	if d.Heard < 99*ms || d.Heard > 101*ms {
		t.Errorf("heard %v ago", d.Heard)
	}
	says(t, d, "the peer was heard")
	w.SetFaults(lan)
	w.Hosts[1].Post(trecv(100))
	settle(w)
}

// S-WIN-07: a send is WaitPeerWindow when the peer refuses what lies beyond its window.
func TestDiagnoseNarrowPeer(t *testing.T) {
	w := pair(t, 923, lan, hostile)
	beNarrow(w, 1, 0, 8, true)
	w.Hosts[1].Post(trecv(1 << 20))
	o := w.Hosts[0].Post(tsend(1, 1<<20))
	w.RunUntil(time.Second, "a refusal", func() bool { return w.Hosts[0].FEP.Stats().NacksRx[wire.NackPSNOORWindow] > 0 })
	d := wantWait(t, o, transport.WaitPeerWindow)
	ask(t, "window", d.Window, 8)
	settle(w)
}
