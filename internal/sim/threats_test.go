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

// Each test has the number of the threat it is about, as in hostile_test.go.

// request makes a one-packet request with SYN, the first of a PDC.
func request(spdcid uint16, start, psn uint32, q wire.ReqStd, n int) []byte {
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(psn), PSNOffset: uint16(psn - start), SPDCID: spdcid, ClearOff: -1}
	return append(q.Append(h.Append(nil)), make([]byte, n)...)
}

// T17, S-ERR-55: a request of a foreign job, for another process or another resource, is
// refused by its code and changes nothing. The answer to a foreign job does not tell whether
// the rest of the name exists or a receive would match.
func TestT17ForeignNames(t *testing.T) {
	w := pair(t, 300, lan, forged, only(0, func(c *transport.Config) { c.JobID, c.PIDonFEP, c.RI = 0x1234, 7, 15 }))
	a := w.Hosts[0]
	recvs := append(post(a, trecv(100), 3), post(a, simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: 100}, 3)...)
	var answers [][]byte
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.From == a.Node && wire.Type(p.Data[0]>>3) != wire.TypeCP {
			answers = append(answers, append([]byte(nil), p.Data...))
		}
	})
	good := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 0x1234, PIDonFEP: 7, RI: 15, Initiator: 16, ReqLen: 16, Match: 1 << 40}
	with := func(f func(q *wire.ReqStd)) wire.ReqStd { q := good; f(&q); return q }
	absolute := func(q *wire.ReqStd) { q.Flags &^= wire.SESREL }
	psn := uint32(1000)
	for _, c := range []struct {
		name string
		q    wire.ReqStd
		rc   wire.RC
	}{
		{"job, the rest exists", with(func(q *wire.ReqStd) { q.JobID = 0x1235 }), wire.RCBadJobID},
		{"job, no such process", with(func(q *wire.ReqStd) { q.JobID, q.PIDonFEP = 0x1235, 8 }), wire.RCBadJobID},
		{"job, no such resource", with(func(q *wire.ReqStd) { q.JobID, q.RI = 0x1235, 99 }), wire.RCBadJobID},
		{"job, no receive", with(func(q *wire.ReqStd) { q.JobID, q.Match = 0x1235, 1 }), wire.RCBadJobID},
		{"job, no such operation", with(func(q *wire.ReqStd) { q.JobID, q.Opcode = 0x1235, wire.OpWrite }), wire.RCBadJobID},
		{"job, longer than any receive", with(func(q *wire.ReqStd) { q.JobID, q.ReqLen = 0x1235, 1<<31 }), wire.RCBadJobID},
		{"job, untagged", with(func(q *wire.ReqStd) { q.JobID, q.Opcode = 0x1235, wire.OpSend }), wire.RCBadJobID},
		{"job, absolute", with(func(q *wire.ReqStd) { q.JobID = 0x1235; absolute(q) }), wire.RCPermViolation},
		{"job, absolute, no such process", with(func(q *wire.ReqStd) { q.JobID, q.PIDonFEP = 0x1235, 8; absolute(q) }), wire.RCPermViolation},
		{"process", with(func(q *wire.ReqStd) { q.PIDonFEP = 8 }), wire.RCBadPID},
		{"process, no such resource", with(func(q *wire.ReqStd) { q.PIDonFEP, q.RI = 8, 99 }), wire.RCBadPID},
		{"process, absolute", with(func(q *wire.ReqStd) { q.PIDonFEP = 8; absolute(q) }), wire.RCBadPID},
		{"resource", with(func(q *wire.ReqStd) { q.RI = 14 }), wire.RCBadIndex},
		{"resource, absolute", with(func(q *wire.ReqStd) { q.RI = 14; absolute(q) }), wire.RCBadIndex},
	} {
		answers = answers[:0]
		forge(w, request(9, 1000, psn, c.q, 16))
		psn++
		w.Run(100 * us)
		if len(answers) != 1 {
			t.Errorf("%s: %d answers", c.name, len(answers))
			continue
		}
		var ack wire.Ack
		var rsp wire.Rsp
		n, err := ack.Parse(answers[0])
		if err == nil {
			_, err = rsp.Parse(answers[0][n:])
		}
		// Nothing else in the answer may differ from case to case.
		want := wire.Rsp{Opcode: wire.RspResponse, RC: c.rc, MsgID: 1, JobID: c.q.JobID}
		if err != nil || rsp != want {
			t.Errorf("%s: answer %+v, %v, want %+v", c.name, rsp, err, want)
		}
	}
	for _, r := range recvs {
		if !r.Open() {
			t.Errorf("%v took a message of a stranger: %v", r, r.Cause())
		}
	}
	if n := a.FEP.Stats().Unexpected; n != 0 {
		t.Errorf("%d messages of strangers are held", n)
	}
	// A request with the right name on the same PDC is served.
	forge(w, request(9, 1000, psn, good, 16))
	w.Run(100 * us)
	if recvs[0].Open() {
		t.Error("the right name is not served: the test does not test")
	}
	settle(w)
}

// T17 between endpoints: the sender learns the code, and that nothing happened.
func TestT17ForeignJobFailsTheSend(t *testing.T) {
	w := pair(t, 301, lan, mayFail, only(1, func(c *transport.Config) { c.JobID = 7 }))
	a, b := w.Hosts[0], w.Hosts[1]
	recvs := post(b, trecv(5000), 4)
	ops := append(post(a, tsend(1, 100), 1), post(a, tsend(1, 5000), 1)...)
	ops = append(ops, post(a, ordered(tsend(1, 100)), 1)...)
	w.RunOps(10*ms, ops...)
	for _, o := range ops {
		if o.Cause() != transport.Rejected || o.Event.RC != wire.RCBadJobID || o.Event.Unknown {
			t.Errorf("%v: %v %v unknown %v", o, o.Cause(), o.Event.RC, o.Event.Unknown)
		}
	}
	w.Want("open", recvs...)
	settle(w)
}

// T34: an ICMP error about an address or a port that is not a peer's changes nothing, however
// often it comes.
func TestT34StrangeICMP(t *testing.T) {
	w := pair(t, 302, lan)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	dark := lan
	dark.Loss = 1
	w.SetFaults(dark)
	op := a.Post(tsend(1, 50_000))
	w.Run(100 * ms)
	for range 100 { // 10 s, longer than SuspectTimeout and what follows it
		said := a.FEP.Dump()
		stats := a.FEP.Stats()
		for _, strange := range []string{"10.0.0.2:9", "10.0.0.3:4793", "10.0.0.1:4793", "0.0.0.0:0", "[fd00::2]:4793"} {
			a.FEP.Unreachable(w.Now(), netip.MustParseAddrPort(strange))
		}
		if now := a.FEP.Dump(); now != said || a.FEP.Stats() != stats {
			t.Fatalf("strange evidence changed\n%s to\n%s", said, now)
		}
		w.Run(100 * ms)
	}
	w.Want("open", op)
	post(b, trecv(50_000), 1)
	w.SetFaults(lan)
	w.RunOps(2*time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// T22: without security a SYN packet that was sent once and comes late opens nothing and
// delivers nothing for Quarantine, to its last millisecond. Beyond it the target remembers
// nothing and cannot tell: the risk that the network or somebody on it keeps a packet that
// long stays, and this test shows that it does.
func TestT22LateSYN(t *testing.T) {
	w := pair(t, 322, lan, config(func(c *transport.Config) { c.IdleClose = 10 * ms }), forged)
	a, b := w.Hosts[0], w.Hosts[1]
	var syn [][]byte
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.From == a.Node && (p.Data[0]>>3 == 2 || p.Data[0]>>3 == 3) && p.Data[1]&4 != 0 {
			syn = append(syn, append([]byte(nil), p.Data...))
		}
	})
	ops := append(post(a, tsend(1, 500), 1), post(a, ordered(tsend(1, 500)), 1)...)
	post(b, trecv(500), 2)
	w.RunOps(time.Second, ops...)
	if len(syn) != 2 {
		t.Fatalf("%d packets have SYN", len(syn))
	}
	w.RunUntil(time.Second, "the end of the PDCs", func() bool { return b.FEP.PDCs() == 0 && a.FEP.PDCs() == 0 })
	ended := w.Now()
	late := func(at time.Duration) (pdcs, msgs uint64) {
		w.Run(ended + at - w.Now())
		before := b.FEP.Stats()
		for _, p := range syn {
			w.Forge(1, a.Addr(), p, false)
		}
		w.Run(10 * ms)
		after := b.FEP.Stats()
		return after.PDCAccepted - before.PDCAccepted, after.MsgsRx + after.Unexpected - before.MsgsRx - before.Unexpected
	}
	const quarantine = 4 * time.Second // default of Config.Packets
	for _, at := range []time.Duration{ms, time.Second, quarantine / 2, quarantine - 50*ms} {
		if pdcs, msgs := late(at); pdcs != 0 || msgs != 0 {
			t.Errorf("%v after the end a SYN opened %d PDCs and delivered %d messages", at, pdcs, msgs)
		}
	}
	if pdcs, msgs := late(2 * quarantine); pdcs != 2 || msgs != 2 {
		t.Errorf("beyond Quarantine a SYN opened %d PDCs and delivered %d messages: docs/faults.md says that nothing can tell", pdcs, msgs)
	}
}
