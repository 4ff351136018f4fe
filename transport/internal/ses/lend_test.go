package ses

import (
	"bytes"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// lends makes every message of 1000 bytes or more a rendezvous send.
func lends(c *Config) { c.RendezvousMin = 1000 }

// loan returns the loan of the only rendezvous send of a.
func (d *duo) loan() *loan {
	d.t.Helper()
	for _, l := range d.a.loans {
		return l
	}
	d.t.Fatal("nothing is lent")
	return nil
}

// reads returns the answer of a to a read of a peer.
func (d *duo) reads(src Source, key, off uint64, n uint32) string {
	cfg := testConfig()
	r := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESREL | single, MsgID: 77, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Initiator: 16, Match: key, BufOff: off, ReqLen: n}
	src.Now = d.now
	return answer(d.a.Request(&src, wire.NextReqStd, r.Append(nil)))
}

// What an initiator sends of a rendezvous send.
func TestLendByTheLetter(t *testing.T) {
	g := newRig(t, lends)
	g.readers[srcB.Peer] = supportYes
	h := g.send(Send{Tagged: true, Tag: 7, Buf: pattern(5000), Peer: srcB.Peer, Context: "m", Target: self(g.SES)})
	pkts := drain(g.SES, h, 1024)
	if len(pkts) != 1 {
		t.Fatalf("%d packets", len(pkts))
	}
	r, ext := parse(t, pkts[0])
	x, n, err := wire.ParseRendezvous(ext)
	if err != nil {
		t.Fatal(err)
	}
	// S-RDV-01: all of the message is announced. S-RDV-09: no byte of it comes along.
	if r.Opcode != wire.OpRendezvousTSend || r.Flags&single != single || r.ReqLen != 5000 || r.Match != 7 || x.EagerLen != 0 || n != len(ext) {
		t.Errorf("%v, %+v and %d bytes", &r, x, len(ext)-n)
	}
	g.Answered(h, rsp(wire.RspDefault, wire.RCOK))
	g.quiet()
	// S-RDV-02, S-RDV-03: byte 0 is at the offset, and the target reads it by these names.
	src := srcB
	for off := uint64(0); off < 5000; off += 1000 {
		q := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESREL | single, MsgID: uint16(50 + off), Gen: x.ReadGen, JobID: r.JobID, PIDonFEP: x.ReadPIDonFEP, RI: x.ReadRI,
			Match: x.ReadMatch, BufOff: x.ReadOff + off, ReqLen: 1000}
		g.want(src, q.Append(nil), "default OK 1000")
		p, ok := g.PeekReturn(src.PDC, 1024)
		if !ok {
			t.Fatal("nothing is returned")
		}
		g.AppendReturn(nil, p)
		if b := g.Append(nil, p); !bytes.Equal(b[len(b)-1000:], pattern(5000)[off:off+1000]) {
			t.Fatalf("the bytes at %d are wrong", off)
		}
		g.quiet() // S-RDV-05
		g.Answered(Handle(p.Msg), nil)
	}
	g.wantEvent(EvTSend, OK, "m", 5000)
}

// S-RDV-01, S-RDV-05: a message is announced, read when it has a receive, and has ended when its target has all of it.
func TestLend(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, level := range []Level{LevelTransmit, LevelDelivery, LevelMatch} {
			for seed := range uint64(8) {
				d := newDuo(t, seed, lends)
				if seed%3 == 2 {
					d.a.readers[2] = supportYes
				}
				if seed%2 == 0 {
					d.recv(7, 5000)
				}
				d.sendOp(Op{Tag: 7, Buf: pattern(5000), Ordered: ordered, Level: level, HasData: seed%4 == 0, Data: 5})
				d.run()
				if seed%2 != 0 {
					if len(d.a.events) != 0 || d.b.Stats.Announced+d.b.Stats.Deferred != 1 {
						t.Fatalf("before there is a receive: %d events, %d announced", len(d.a.events), d.b.Stats.Announced)
					}
					d.recv(7, 5000)
					d.run()
				}
				if e := d.b.events[0]; e.HasData != (seed%4 == 0) || e.HasData && e.Data != 5 {
					t.Errorf("data %v %d", e.HasData, e.Data)
				}
				d.received(map[uint64]int{7: 5000})
				d.sent(1)
				if d.a.Stats.Lent != 1 && level != LevelMatch || d.a.readers[2] != supportYes || d.a.Stats.BytesTx != 5000 {
					t.Errorf("%d sends went by rendezvous, %d bytes", d.a.Stats.Lent, d.a.Stats.BytesTx)
				}
				d.atRest()
			}
		}
	}
}

// sendOp posts a tagged message from a to b.
func (d *duo) sendOp(op Op) Handle {
	d.t.Helper()
	cfg := testConfig()
	op.Kind, op.Peer, op.PIDonFEP, op.RI = EvTSend, 2, cfg.PIDonFEP, cfg.RI
	if op.Context == nil {
		op.Context = op.Tag
	}
	h, err := d.a.send(d.now, &op)
	if err != nil {
		d.t.Fatal(err)
	}
	d.a.queue(h, op.Fence)
	return h
}

// Of many messages of all lengths, in parts and whole, those that are long enough are lent; what is injected is not.
func TestLendMany(t *testing.T) {
	for seed := range uint64(40) {
		d := newDuo(t, seed, lends)
		want, lent := map[uint64]int{}, uint64(0)
		for k := range uint64(30) {
			n := d.rng.IntN(4000)
			want[k] = n
			op := Op{Tag: k, Buf: pattern(n), Ordered: seed%2 == 0, Inject: d.rng.IntN(4) == 0}
			if d.rng.IntN(3) == 0 && !op.Inject {
				op.Iov = [][]byte{op.Buf[:n/3], op.Buf[n/3 : n/3], op.Buf[n/3:]}
				op.Buf = nil
			}
			if n >= 1000 && !op.Inject {
				lent++
			}
			d.sendOp(op)
		}
		for k := range uint64(30) {
			if k == 15 {
				d.run()
			}
			d.recv(29-k, 4000)
		}
		d.run()
		d.received(want)
		d.sent(30)
		if d.a.Stats.Lent != lent {
			t.Errorf("%d were lent, not %d", d.a.Stats.Lent, lent)
		}
		d.atRest()
	}
}

// S-MAT-04, S-MAT-08: what does not fit is truncated, and the send succeeds: all of it was read.
func TestLendTruncated(t *testing.T) {
	for _, late := range []bool{false, true} {
		d := newDuo(t, 1, lends)
		if !late {
			d.recv(7, 900)
		}
		d.send(7, 5000, false)
		d.run()
		if late {
			d.recv(7, 900)
			d.run()
		}
		e := d.b.events[0]
		if e.Cause != Truncated || e.Len != 900 || e.OverLen != 4100 {
			t.Errorf("%v %d %d", e.Cause, e.Len, e.OverLen)
		}
		wantBytes(t, e.Buf[:900], pattern(5000)[:900])
		d.sent(1)
		d.atRest()
	}
	d := newDuo(t, 1, func(c *Config) { lends(c); c.RefuseTooLong = true })
	d.recv(7, 900)
	d.send(7, 5000, false)
	d.run()
	if e := d.a.events[0]; e.Cause != Rejected || e.RC != wire.RCTooLong || e.Unknown {
		t.Errorf("%v %v %v", e.Cause, e.RC, e.Unknown)
	}
	d.b.events = nil
	d.atRest()
}

// S-RDV-62: a send can be cancelled until something of it was read. Its target forgets it, and its memory is not read any more.
func TestLendCancelled(t *testing.T) {
	cancel := func(d *duo, want bool) {
		t.Helper()
		if _, ok := d.a.CancelSend(0, uint64(7)); ok != want {
			t.Fatalf("the send was found: %v", ok)
		}
		if !want {
			return
		}
		d.a.listen()
		if e := d.a.events[0]; e.Cause != Cancelled || e.Unknown {
			t.Fatalf("%v, unknown %v", e.Cause, e.Unknown)
		}
		d.a.events = nil
	}
	borrower := Source{Peer: 2, PDC: 20}
	for _, stage := range []string{"asking", "announced", "asked for", "being read", "read"} {
		t.Run(stage, func(t *testing.T) {
			d := newDuo(t, 1, lends)
			if stage != "asking" {
				d.a.readers[2] = supportYes
			}
			d.send(7, 5000, true)
			if stage == "asking" {
				cancel(d, true)
				d.run()
				d.atRest()
				return
			}
			d.run()
			key := d.loan().Key
			if stage == "asked for" || stage == "being read" {
				if got := d.reads(borrower, key, 0, 5000); got != "default OK 5000" {
					t.Fatal(got)
				}
			}
			switch stage {
			case "being read":
				p, _ := d.a.PeekReturn(20, 1000)
				d.a.AppendReturn(nil, p)
				cancel(d, false)
				return
			case "read":
				d.recv(7, 5000)
				d.run()
				cancel(d, false)
				d.received(map[uint64]int{7: 5000})
				d.sent(1)
			default:
				cancel(d, true)
				if p, ok := d.a.PeekReturn(20, 1000); ok {
					h, _, err := wire.ParseRspData(d.a.AppendReturn(nil, p))
					if err != nil || h.RC != wire.RCBadMKey || h.PayloadLen != 0 {
						t.Fatalf("%v %v", h, err)
					}
				}
				d.a.PDCGone(20, Closed)
				d.run()
				if d.b.deferrals.n != 0 {
					t.Error("the target still waits for a receive")
				}
			}
			if got := d.reads(borrower, key, 0, 5000); got != "response BAD_MKEY 0 gtd" {
				t.Errorf("after its end: %s", got)
			}
			d.atRest()
		})
	}
}

// S-RDV-06: memory is lent to the target of the send alone, for its job, and not beyond the message.
func TestLendToTheTargetAlone(t *testing.T) {
	d := newDuo(t, 1, lends)
	d.a.readers[2] = supportYes
	d.send(7, 5000, false)
	d.run()
	key := d.loan().Key
	for name, c := range map[string]struct {
		got, want string
	}{
		"another peer":   {d.reads(Source{Peer: 3, PDC: 30}, key, 0, 5000), "response BAD_MKEY 0 gtd"},
		"another key":    {d.reads(Source{Peer: 2, PDC: 20}, key^1, 0, 5000), "response BAD_MKEY 0 gtd"},
		"beyond its end": {d.reads(Source{Peer: 2, PDC: 20}, key, 1, 5000), "response BAD_ADDR 0 gtd"},
		"behind it":      {d.reads(Source{Peer: 2, PDC: 20}, key, 1<<63, 1), "response BAD_ADDR 0 gtd"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", name, c.got)
		}
	}
	d.a.loans[key].JobID++
	if got := d.reads(Source{Peer: 2, PDC: 20}, key, 0, 5000); got != "response BAD_MKEY 0 gtd" {
		t.Errorf("another job: %s", got)
	}
	d.a.loans[key].JobID--
	w := wire.ReqStd{Opcode: wire.OpWrite, Flags: wire.SESREL | single, MsgID: 78, JobID: d.a.cfg.JobID, PIDonFEP: d.a.cfg.PIDonFEP, RI: d.a.cfg.RI, Match: key, ReqLen: 4}
	if got := answer(d.a.Request(&Source{Peer: 2, PDC: 20}, wire.NextReqStd, append(w.Append(nil), 1, 2, 3, 4))); got != "response BAD_MKEY 0 gtd" {
		t.Errorf("a write: %s", got)
	}
	d.recv(7, 5000)
	d.run()
	d.received(map[uint64]int{7: 5000})
	d.sent(1)
	d.atRest()
}

// S-RDV-64: a peer that does not know rendezvous sends gets ordinary ones. It is asked once.
func TestLendToAPeerThatDoesNotKnow(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		d := newDuo(t, 1, lends)
		d.b.noLoans = true
		for k := range uint64(5) {
			d.recv(k, 5000)
			d.send(k, 5000, ordered)
		}
		d.run()
		d.received(map[uint64]int{0: 5000, 1: 5000, 2: 5000, 3: 5000, 4: 5000})
		d.sent(5)
		if d.a.Stats.Lent != 0 || d.a.readers[2] != supportNo {
			t.Errorf("%d lent", d.a.Stats.Lent)
		}
		d.atRest()
	}
}

// If another one has the address of a peer that knew, an unordered send is sent again as an ordinary one; an ordered
// one, behind which others may have come, fails.
func TestLendRefusedByOpcode(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		d := newDuo(t, 1, lends)
		d.b.noLoans = true
		d.a.readers[2] = supportYes
		d.recv(7, 5000)
		d.send(7, 5000, ordered)
		d.run()
		if ordered {
			if e := d.a.events[0]; e.Cause != Rejected || e.RC != wire.RCUnsupportedOp || e.Unknown || len(d.b.events) != 0 {
				t.Errorf("%v %v", e.Cause, e.RC)
			}
			continue
		}
		d.received(map[uint64]int{7: 5000})
		d.sent(1)
		if d.a.readers[2] != supportNo || len(d.a.loans) != 0 {
			t.Error("it is not remembered")
		}
		d.atRest()
	}
}

// S-RDV-65, S-RDV-62: when the PDC that stood for an announced message is closed, or a read of it breaks off, its target is asked whether it is
// still there.
func TestLendAsksWhetherItIsThere(t *testing.T) {
	start := func() (*duo, uint64) {
		d := newDuo(t, 1, lends)
		d.a.readers[2] = supportYes
		d.send(7, 5000, true)
		d.run()
		return d, d.loan().Key
	}
	ended := func(d *duo, c Cause, rc wire.RC, unknown bool) {
		t.Helper()
		d.run()
		if len(d.a.events) != 1 || d.a.events[0].Cause != c || d.a.events[0].RC != rc || d.a.events[0].Unknown != unknown {
			t.Fatalf("%d events: %+v", len(d.a.events), d.a.events)
		}
		if got := d.reads(Source{Peer: 2, PDC: 20}, 1, 0, 5000); got != "response BAD_MKEY 0 gtd" {
			t.Error(got)
		}
		if len(d.a.loans) != 0 {
			t.Error("it is still lent")
		}
	}
	d, _ := start() // it is there
	d.a.PDCGone(d.a.loanPDC(), Closed)
	d.b.PDCGone(d.a.loanPDC(), Closed)
	d.run()
	d.recv(7, 5000)
	d.run()
	d.received(map[uint64]int{7: 5000})
	d.sent(1)
	d.atRest()

	d, _ = start() // it is not
	d.b.CancelPeer(1)
	d.a.PDCGone(d.a.loanPDC(), Closed)
	ended(d, Rejected, wire.RCUndeliverable, false)

	d, _ = start() // the peer is gone
	d.a.PDCGone(d.a.loanPDC(), TimedOut)
	ended(d, TimedOut, 0, false)

	d, key := start() // a read broke off, and the target has lost the message
	d.b.CancelPeer(1)
	if got := d.reads(Source{Peer: 2, PDC: 20}, key, 0, 5000); got != "default OK 5000" {
		t.Fatal(got)
	}
	for p, ok := d.a.PeekReturn(20, 1000); ok; p, ok = d.a.PeekReturn(20, 1000) {
		d.a.AppendReturn(nil, p)
	}
	d.a.PDCGone(20, Aborted)
	ended(d, Rejected, wire.RCUndeliverable, true) // all of it went out

	d, key = start() // the same, and the target had all of it: the last ACK was lost
	d.b.CancelPeer(1)
	d.b.hasHad(lentKey{1, key})
	d.reads(Source{Peer: 2, PDC: 20}, key, 0, 5000)
	for p, ok := d.a.PeekReturn(20, 1000); ok; p, ok = d.a.PeekReturn(20, 1000) {
		d.a.AppendReturn(nil, p)
	}
	d.b.ageHad()
	d.a.PDCGone(20, Aborted)
	d.run()
	d.sent(1)
	d.atRest()

	d, _ = start() // nothing is heard of it for long
	d.b.CancelPeer(1)
	for i := range 8 {
		d.now += 30 * time.Second
		d.a.Advance(d.now)
		_ = i
	}
	ended(d, Rejected, wire.RCUndeliverable, false)
}

// loanPDC is the PDC that stands for the only rendezvous send.
func (e *end) loanPDC() uint32 {
	for _, l := range e.loans {
		return l.m.promised
	}
	return noPDC
}

// S-RDV-08, S-RDV-63: a target whose endpoint closes says that nobody will read the message, and a peer that reads parts twice instead of
// others ends it.
func TestLendRefusedLater(t *testing.T) {
	d := newDuo(t, 1, lends)
	d.a.readers[2] = supportYes
	second := d.b.cfg.EndpointConfig
	second.RI++
	if _, err := d.b.Open(second); err != nil {
		t.Fatal(err)
	}
	d.send(7, 5000, false)
	d.run()
	d.b.CloseEndpoint(0)
	d.run()
	if len(d.a.events) != 1 {
		t.Fatalf("%d sends have ended", len(d.a.events))
	}
	if e := d.a.events[0]; e.Cause != Rejected || e.RC != wire.RCUndeliverable || e.Unknown || len(d.a.loans) != 0 {
		t.Errorf("%v %v", e.Cause, e.RC)
	}

	d = newDuo(t, 1, lends)
	d.a.readers[2] = supportYes
	d.send(7, 5000, false)
	d.run()
	key := d.loan().Key
	for i := range 2 {
		src := Source{Peer: 2, PDC: uint32(20 + i)}
		if got := d.reads(src, key, 0, 2500); got != "default OK 2500" {
			t.Fatal(got)
		}
		for p, ok := d.a.PeekReturn(src.PDC, 1000); ok; p, ok = d.a.PeekReturn(src.PDC, 1000) {
			d.a.AppendReturn(nil, p)
			d.a.Answered(Handle(p.Msg), nil)
		}
	}
	d.a.listen()
	if e := d.a.events[0]; e.Cause != PeerError || !e.Unknown || len(d.a.loans) != 0 {
		t.Errorf("%v %v", e.Cause, e.Unknown)
	}
}

// RNRTimeout bounds how long a message waits for its receive, and not how long it is read.
func TestLendForTooLong(t *testing.T) {
	for _, reading := range []bool{false, true} {
		d := newDuo(t, 1, func(c *Config) { lends(c); c.RNRTimeout = 3 * time.Second })
		d.a.readers[2] = supportYes
		d.send(7, 5000, false)
		d.run()
		if reading {
			d.reads(Source{Peer: 2, PDC: 20}, d.loan().Key, 0, 5000)
			p, _ := d.a.PeekReturn(20, 1000)
			d.a.AppendReturn(nil, p)
		}
		for range 4 {
			d.now += time.Second
			d.step(d.a)
		}
		if reading != (len(d.a.events) == 0) {
			t.Fatalf("being read: %v, %d events", reading, len(d.a.events))
		}
		if !reading && (d.a.events[0].Cause != NotReady || d.a.events[0].Unknown) {
			t.Errorf("%v", d.a.events[0].Cause)
		}
	}
}

// Everything that ends a send ends its loan.
func TestLendEnds(t *testing.T) {
	for name, end := range map[string]func(s *SES){
		"CloseEndpoint": func(s *SES) { s.CloseEndpoint(0) },
		"CancelAll":     func(s *SES) { s.CancelAll() },
		"CancelPeer":    func(s *SES) { s.CancelPeer(2) },
		"End":           func(s *SES) { s.End() },
		"PeerGone":      func(s *SES) { s.PeerGone(2, TimedOut) },
	} {
		for _, handed := range []int{0, 1, 5} {
			d := newDuo(t, 1, lends)
			d.a.readers[2] = supportYes
			d.send(7, 5000, false)
			d.run()
			l := d.loan()
			key := l.Key
			d.reads(Source{Peer: 2, PDC: 20}, key, 0, 5000)
			for range handed {
				p, _ := d.a.PeekReturn(20, 1000)
				d.a.AppendReturn(nil, p)
			}
			end(d.a.SES)
			d.a.listen()
			if e := d.a.events; len(e) != 1 || e[0].Cause == OK || e[0].Unknown != (handed == 5) {
				t.Fatalf("%s after %d packets: %+v", name, handed, e)
			}
			if l.Live() || len(d.a.loans) != 0 {
				t.Errorf("%s: it is still lent", name)
			}
			if p, ok := d.a.PeekReturn(20, 1000); ok {
				if h, _, _ := wire.ParseRspData(d.a.AppendReturn(nil, p)); h.RC != wire.RCBadMKey {
					t.Errorf("%s: bytes go out after the end: %v", name, h)
				}
			}
		}
	}
}

// A SES that leaves still lets its peers read what it sends.
func TestLendAfterLeave(t *testing.T) {
	d := newDuo(t, 1, lends)
	d.a.readers[2] = supportYes
	d.sendOp(Op{Tag: 7, Buf: pattern(5000), Silent: true})
	d.run()
	d.a.Leave()
	if !d.a.Undelivered(AllEndpoints, d.now, 0, true, func(uint32) bool { return true }) {
		t.Error("nobody waits for it")
	}
	d.recv(7, 5000)
	d.run()
	d.received(map[uint64]int{7: 5000})
	d.sent(0)
}

// Two ends all of whose sends wait to be read by the other read each other's.
func TestLendBothWaysWithoutAPlace(t *testing.T) {
	d := newDuo(t, 1, lends)
	cfg := testConfig()
	for _, e := range []*end{d.a, d.b} {
		e.readers[e.mate.src.Peer] = supportYes
		h, err := e.send(d.now, &Op{Kind: EvTSend, Peer: PeerID(e.mate.src.Peer), PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Buf: pattern(5000), Tag: 7, Context: "s"})
		if err != nil {
			t.Fatal(err)
		}
		e.queue(h, false)
		if err := e.Recv(d.now, &Op{Kind: EvTRecv, Tag: 7, Buf: make([]byte, 5000), Context: "r"}); err != nil {
			t.Fatal(err)
		}
		e.numSends += maxSends - 1 // the others wait as well
	}
	d.run()
	for _, e := range []*end{d.a, d.b} {
		if len(e.events) != 2 || e.events[0].Cause != OK || e.events[1].Cause != OK {
			t.Errorf("%d of 2 have ended", len(e.events))
		}
	}
	for range maxLoans {
		d.a.loans[d.a.NewKey()] = &loan{}
	}
	if d.a.Lends(&Op{Kind: EvTSend, Peer: 2, Buf: pattern(5000)}) {
		t.Error("all places may be of sends that wait to be read")
	}
}
