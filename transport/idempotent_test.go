package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// idemKey is the key of a region that RUDI may access.
const idemKey = wire.MKeyIdempotent | 3

// An idemPipe is a pipe whose b has a region for RUDI, and whose a has a PDC to b.
type idemPipe struct {
	*pipe
	mem    []byte
	region *Region
}

func newIdem(t *testing.T, change func(*Config)) *idemPipe {
	t.Helper()
	p := &idemPipe{pipe: newPipe(t, change), mem: make([]byte, 1<<20+200)}
	var err error
	p.region, err = p.b.Register(RegionConfig{Key: idemKey, Buf: p.mem, Access: RemoteWrite | RemoteRead, Endpoint: AllEndpoints})
	if err != nil {
		t.Fatal(err)
	}
	p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: idemKey, Buf: []byte{0}, Context: "open", Idempotent: true})
	p.exchange()
	p.want(p.a, "open ok")
	if n := p.a.Stats().RUDIRequests; n != 0 && change == nil {
		t.Fatal("RUDI before a PDC is open")
	}
	return p
}

// run lets the time go until n operations of a have ended, and returns their ends.
func (p *idemPipe) run(n int) (got []string) {
	p.t.Helper()
	for end := p.now + 2*time.Minute; len(got) < n; p.now += 200 * time.Microsecond {
		if p.now > end {
			p.t.Fatalf("%q ended of %d\n%s", got, n, p.a.Dump())
		}
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
		got = append(got, p.events(p.a)...)
	}
	return got
}

func TestRUDIWritesAndReads(t *testing.T) {
	// S-RUDI-01: every byte arrives, whatever is lost and repeated, and no PDC is used.
	for _, n := range []int{0, 1, 1024, 1025, 65536, 1 << 20} {
		for loss, permille := range map[string]int{"clean": 0, "lossy": 300} {
			for sec, change := range map[string]func(*Config){"clear": nil, "sealed": secured(t, nil)} {
				t.Run(fmt.Sprint(n, " ", loss, " ", sec), func(t *testing.T) {
					p := newIdem(t, change)
					rng := rand.New(rand.NewPCG(uint64(n), 5))
					p.drop = func(*FEP, []byte) bool { return rng.IntN(1000) < permille }
					was := p.a.Stats().TxData + p.b.Stats().TxData
					src, back := pattern(n, 1), make([]byte, n)
					p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: idemKey, RemoteAddr: 100, Buf: src, Context: "w", Idempotent: true})
					if got := p.run(1); got[0] != "w ok" {
						t.Fatal(got)
					}
					if !bytes.Equal(p.mem[100:100+n], src) || bytes.Count(p.mem[1:100], []byte{0})+bytes.Count(p.mem[100+n:200+n], []byte{0}) != 199 {
						t.Error("other bytes")
					}
					p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, RemoteAddr: 100, Iov: [][]byte{back[:n/3], back[n/3:]}, Context: "r", Idempotent: true})
					if got := p.run(1); got[0] != "r ok" {
						t.Fatal(got)
					}
					if !bytes.Equal(back, src) {
						t.Error("other bytes came back")
					}
					s := p.a.Stats()
					if want := uint64(2 * max(1, (n+1023)/1024)); s.RUDIRequests < want || s.TxData+p.b.Stats().TxData != was || permille == 0 && s.RUDIResent != 0 {
						t.Errorf("%d requests, %d again, %d by PDCs", s.RUDIRequests, s.RUDIResent, s.TxData+p.b.Stats().TxData-was)
					}
					p.drop = nil
					p.checkIdle()
				})
			}
		}
	}
}

func TestRUDIOnlyWhereNothingElseIsAsked(t *testing.T) {
	// S-RUDI-02, S-SEG-09, R-RMA-05, R-RMA-12: with data, order, a fence or durability the operation goes by a PDC.
	p := newIdem(t, nil)
	for name, op := range map[string]Op{
		"data":    {Data: 1, HasData: true},
		"ordered": {Ordered: true},
		"fence":   {Fence: true},
		"plain":   {},
	} {
		op.Kind, op.Peer, op.RI, op.Key, op.Buf, op.Context, op.Idempotent = OpWrite, p.toB, 15, idemKey, []byte("x"), name, name != "plain"
		p.post(p.a, op)
		if got := p.run(1); got[0] != name+" ok" {
			t.Error(got)
		}
	}
	if n := p.a.Stats().RUDIRequests; n != 0 {
		t.Errorf("%d requests by RUDI", n)
	}
}

func TestRUDIErrors(t *testing.T) {
	// S-RMA-05 and the errors of each access reach the initiator, also when answers are lost.
	p := newIdem(t, nil)
	if _, err := p.b.Register(RegionConfig{Key: 7, Buf: make([]byte, 10), Access: RemoteWrite, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.b.Register(RegionConfig{Key: wire.MKeyIdempotent | 8, Buf: make([]byte, 10), Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.b.Register(RegionConfig{Key: wire.MKeyIdempotent | 10, Buf: make([]byte, 10), Access: RemoteWrite, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	k := 0
	p.drop = func(*FEP, []byte) bool { k++; return k%3 == 1 }
	for _, c := range []struct {
		kind      OpKind
		key, addr uint64
		n         int
		want      wire.RC
	}{
		{OpWrite, 7, 0, 1, wire.RCOpViolation},
		{OpWrite, wire.MKeyIdempotent | 9, 0, 1, wire.RCBadMKey},
		{OpWrite, wire.MKeyIdempotent | 8, 0, 1, wire.RCPermViolation},
		{OpRead, wire.MKeyIdempotent | 8, 8, 3, wire.RCBadAddr},
		{OpRead, wire.MKeyIdempotent | 10, 0, 3, wire.RCPermViolation},
		{OpRead, wire.MKeyIdempotent | 8, 1<<64 - 2, 3, wire.RCBadAddr},
		{OpWrite, idemKey, 1 << 20, 5000, wire.RCBadAddr},
		{OpRead, idemKey, 1 << 20, 100_000, wire.RCBadAddr},
	} {
		p.post(p.a, Op{Kind: c.kind, Peer: p.toB, RI: 15, Key: c.key, RemoteAddr: c.addr, Buf: make([]byte, c.n), Context: "x", Idempotent: true})
		var e *Event
		for e == nil {
			p.now += time.Millisecond
			p.a.Advance(p.now)
			p.exchange()
			e = p.a.NextEvent()
		}
		if e.Cause != Rejected || e.RC != c.want {
			t.Errorf("%v of key %#x: %v %v, want %v", c.kind, c.key, e.Cause, e.RC, c.want)
		}
	}
	p.drop = nil
	for range 100 { // the last one goes by RUD as well, whose ACKs were lost
		p.now += 10 * time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
	p.checkIdle()
}

func TestRUDIReadNeedsAProvenSource(t *testing.T) {
	// T27: in clear, a source that may be forged gets no read data, whatever it asks for: the answer is
	// shorter than the request. One that is proven, or known, gets it.
	p := newIdem(t, nil)
	ask := func(from netip.AddrPort) (sent, back int, rc wire.RC) {
		r := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, JobID: 1, RI: 15, MsgID: 5, Match: idemKey, ReqLen: 1000}
		b := r.Append(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextReqStd, PktID: 9}.Append(nil))
		to := p.b.cfg.Local
		pre := wire.PrefixOf(&from, &to)
		c := wire.CRC(pre.CRC(len(b)+wire.CRCLen), b)
		b = append(b, byte(c>>24), byte(c>>16), byte(c>>8), byte(c))
		p.b.Receive(p.now, &dgram.Datagram{Data: b, Remote: from})
		if !p.b.Transmit(p.now, &p.d) {
			t.Fatal("no answer")
		}
		h, n, err := wire.ParseRUDI(p.d.Data)
		if err != nil || h.PktID != 9 || p.d.Remote != from {
			t.Fatalf("answer %v %v to %v", h, err, p.d.Remote)
		}
		var rsp wire.Rsp
		if h.Next == wire.NextRsp {
			_, _ = rsp.Parse(p.d.Data[n:])
		}
		return len(b), len(p.d.Data), rsp.RC
	}
	if sent, back, rc := ask(netip.MustParseAddrPort("198.18.0.66:4793")); rc != wire.RCPermViolation || back >= sent {
		t.Errorf("a stranger has %d bytes for %d, %v", back, sent, rc)
	}
	if _, back, rc := ask(p.a.cfg.Local); rc != wire.RCNull || back < 1000 {
		t.Errorf("a peer has %d bytes, %v", back, rc)
	}
	known := netip.MustParseAddrPort("198.18.0.67:4793")
	if _, err := p.b.Peer(known, true); err != nil {
		t.Fatal(err)
	}
	if _, back, _ := ask(known); back < 1000 {
		t.Errorf("who is known has %d bytes", back)
	}
}

func TestRUDIForgedAnswers(t *testing.T) {
	// T5: an answer counts only if it comes from the peer that was asked and has the id of a packet that
	// is outstanding, once.
	p := newIdem(t, nil)
	p.a.cfg.NoCRC, p.a.form.trailer, p.a.form.crcOnly, p.a.form.wrap = true, 0, false, 0
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 4), Context: "r", Idempotent: true})
	p.a.Transmit(p.now, &p.d)
	h, n, _ := wire.ParseRUDI(p.d.Data)
	var r wire.ReqStd
	if _, err := r.Parse(p.d.Data[n:]); err != nil {
		t.Fatal(err)
	}
	answer := func(from netip.AddrPort, id uint32, off uint32, data string) {
		b := wire.RUDIHdr{Type: wire.TypeRUDIRsp, Next: wire.NextRspData, PktID: id}.Append(nil)
		b = wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: r.MsgID, ReadMsgID: r.MsgID, JobID: 1, PayloadLen: uint16(len(data)), ModLen: 4, MsgOff: off}.Append(b)
		p.a.Receive(p.now, &dgram.Datagram{Data: append(b, data...), Remote: from})
	}
	answer(netip.MustParseAddrPort("198.18.0.66:4793"), h.PktID, 0, "evil")
	answer(p.b.cfg.Local, h.PktID+1, 0, "evil")
	answer(p.b.cfg.Local, h.PktID-1, 0, "evil")
	p.want(p.a)
	answer(p.b.cfg.Local, h.PktID, 0, "good")
	e := p.a.NextEvent()
	if e == nil || e.Cause != OK || string(e.Buf) != "good" {
		t.Fatalf("event %+v", e)
	}
	answer(p.b.cfg.Local, h.PktID, 0, "late")
	if string(e.Buf) != "good" || p.a.Stats().Drops[DropStale] != 4 {
		t.Errorf("%q, drops %v", e.Buf, p.a.Stats().Drops)
	}
	// One that has other bytes than were asked for ends the read in error.
	for _, c := range []struct {
		off  uint32
		data string
	}{{1, "data"}, {0, "dat"}, {0, "longer"}, {1 << 31, "data"}} {
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 4), Context: "r", Idempotent: true})
		p.a.Transmit(p.now, &p.d)
		h, n, _ = wire.ParseRUDI(p.d.Data)
		_, _ = r.Parse(p.d.Data[n:])
		answer(p.b.cfg.Local, h.PktID, c.off, c.data)
		if e := p.a.NextEvent(); e == nil || e.Cause != PeerError || e.RC != wire.RCOpViolation {
			t.Errorf("%+v: event %+v", c, e)
		}
	}
}

func TestRUDISilentPeer(t *testing.T) {
	// S-RUDI-53: a peer that answers nothing ends all operations by RUDI within PeerTimeout, with an unknown effect.
	p := newIdem(t, func(c *Config) { c.PeerTimeout = 2 * time.Second })
	p.drop = func(*FEP, []byte) bool { return true }
	begun := p.now
	for i := range 40 {
		p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 5000), Context: i, Idempotent: true})
	}
	if w := p.a.Diagnose(p.now); len(w) != 40 {
		t.Errorf("%d are diagnosed", len(w))
	}
	for i, e := range p.run(40) {
		if e[len(e)-9:] != "timed out" {
			t.Errorf("%d: %s", i, e)
		}
	}
	if d := p.now - begun; d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	if n := p.a.Stats().RUDIResent; n > 2000 {
		t.Errorf("%d resends", n)
	}
}

func TestRUDIWithoutAnswersIsDiagnosed(t *testing.T) {
	// Packets by RUDI that no answer comes to are told like those on a PDC: nothing is done, an answer is
	// waited for, and it is known when they go again and when the peer is given up.
	p := newIdem(t, func(c *Config) { c.PeerTimeout = 10 * time.Second })
	p.drop = func(*FEP, []byte) bool { return true }
	post := func(kind OpKind, n int, ctx string) {
		p.post(p.a, Op{Kind: kind, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, n), Context: ctx, Idempotent: true})
	}
	post(OpWrite, 500, "write")
	post(OpRead, 500, "read")
	p.exchange()
	for _, w := range p.a.Diagnose(p.now) {
		if w.Cause != WaitNothing || w.Timeouts != 0 || w.Done != 0 || w.Mode != wire.RUDI {
			t.Errorf("at once: %s", w.String())
		}
	}
	post(OpWrite, 100_000, "long")
	p.exchange()
	if w := p.a.Diagnose(p.now); len(w) != 3 || w[2].Cause != WaitOwnWindow || w[2].InFlight != 16 || w[2].Window != 16 || w[2].Done != 0 {
		t.Errorf("at once: %s", w[2].String())
	}
	begun := p.now
	for end := p.now + 3*time.Second; p.now < end; p.now += time.Millisecond {
		p.a.Advance(p.now)
		p.exchange()
	}
	list := p.a.Diagnose(p.now)
	if len(list) != 3 {
		t.Fatalf("%d are diagnosed", len(list))
	}
	for i, total := range []uint64{500, 500, 100_000} {
		w := &list[i]
		if w.Cause != WaitAck || w.Mode != wire.RUDI || w.Done != 0 || w.Total != total || w.Timeouts < 5 || w.For != p.now-begun ||
			w.Next <= 0 || w.GiveUp != 7*time.Second || w.Heard != p.now-begun {
			t.Errorf("after %v: %+v", p.now-begun, *w)
		}
		if s := w.String(); !strings.Contains(s, " by RUDI, ") || !strings.Contains(s, fmt.Sprintf("0 of %d bytes: no ACK: the peer was heard ", total)) {
			t.Errorf("after %v: %s", p.now-begun, s)
		}
	}
	p.drop = nil
	p.run(3)
	if w := p.a.Diagnose(p.now); len(w) != 0 {
		t.Errorf("after the end: %v", w)
	}
}

func TestDiagnoseKnowsTheMode(t *testing.T) {
	// Each operation tells its mode, before its first packet and after; a receive that of its message.
	for name, c := range map[string]struct {
		op   Op
		want wire.Mode
	}{
		"send":    {Op{Kind: OpTSend}, wire.RUD},
		"ordered": {Op{Kind: OpTSend, Ordered: true}, wire.ROD},
		"write":   {Op{Kind: OpWrite, Key: idemKey}, wire.RUD},
		"safe":    {Op{Kind: OpWrite, Key: idemKey, Idempotent: true}, wire.RUDI},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIdem(t, nil)
			c.op.Peer, c.op.RI, c.op.Buf = p.toB, 15, make([]byte, 5000)
			p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 5000)})
			if w := p.b.Diagnose(p.now); len(w) != 1 || w[0].Mode != 0 || strings.Contains(w[0].String(), " by ") {
				t.Errorf("no message: %+v", w)
			}
			lost := 0
			p.drop = func(*FEP, []byte) bool { lost++; return lost > 1 }
			p.post(p.a, c.op)
			for range 2 { // before its packets and after
				if w := p.a.Diagnose(p.now); len(w) != 1 || w[0].Mode != c.want || !strings.Contains(w[0].String(), fmt.Sprintf(" by %v, ", c.want)) {
					t.Errorf("%+v, want %v", w, c.want)
				}
				p.exchange()
			}
			if w := p.b.Diagnose(p.now); c.op.Kind == OpTSend && w[0].Mode != c.want {
				t.Errorf("the receive of its message: %+v, want %v", w, c.want)
			}
		})
	}
	p := newGrams(t, nil)
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 100)})
	if w := p.a.Diagnose(p.now); len(w) != 1 || w[0].Mode != wire.UUD || w[0].Cause != WaitNothing || !strings.Contains(w[0].String(), " by UUD, ") {
		t.Errorf("%+v", w)
	}
}

func TestRUDIEndsOnce(t *testing.T) {
	// Close, Abandon and Cancel end what is under way, exactly once.
	for name, end := range map[string]func(p *idemPipe){
		"close":    func(p *idemPipe) { p.a.Close(p.now) },
		"abandon":  func(p *idemPipe) { p.a.Abandon(p.now, p.toB) },
		"endpoint": func(p *idemPipe) { p.a.CloseEndpoint(p.now, 0) },
		"end":      func(p *idemPipe) { p.a.End(p.now) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newIdem(t, nil)
			p.drop = func(*FEP, []byte) bool { return true }
			for i := range 20 {
				kind := OpWrite
				if i%2 == 0 {
					kind = OpRead
				}
				p.post(p.a, Op{Kind: kind, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 20_000), Context: i, Idempotent: true})
			}
			p.turn()
			end(p)
			if name == "endpoint" {
				p.drop = nil // the packets under way are answered first
			}
			seen := map[string]int{}
			for range 2000 {
				p.now += time.Millisecond
				p.a.Advance(p.now)
				p.exchange()
				for _, e := range p.events(p.a) {
					seen[e]++
				}
			}
			for e, n := range seen {
				if n != 1 {
					t.Errorf("%s: %d times", e, n)
				}
			}
			if len(seen) != 20 {
				t.Errorf("%d ended: %v", len(seen), seen)
			}
		})
	}
}

func TestRUDIRegionGoesWhileItIsRead(t *testing.T) {
	// R-MR-12: what is answered after Deregister has nothing of the region.
	p := newIdem(t, nil)
	copy(p.mem, "secret")
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 6), Context: "r", Idempotent: true})
	p.move(p.a, p.b)
	p.b.Deregister(p.region)
	p.exchange()
	e := p.a.NextEvent()
	if e == nil || e.Cause != Rejected || e.RC != wire.RCBadMKey || bytes.Contains(e.Buf, []byte("secret")) {
		t.Errorf("event %+v", e)
	}
}

func TestRUDIOptimizedHeaders(t *testing.T) {
	// UE 3.5.10.9, S-RUDI-56: requests may have a medium or a small header. They have no message id, so read data
	// comes with the small header, which has the id of the packet.
	p := newIdem(t, nil)
	p.a.cfg.NoCRC, p.b.cfg.NoCRC = true, true
	p.b.form.trailer, p.b.form.crcOnly, p.b.form.wrap = 0, false, 0
	other := make([]byte, 100)
	for _, r := range []RegionConfig{
		{Key: wire.MKeyOptimized | 0x123, Buf: other, Access: RemoteWrite | RemoteRead, Endpoint: AllEndpoints},
		{Key: wire.MKeyOptimized | wire.MKeyIdempotent | 0x123, Buf: p.mem, Access: RemoteWrite | RemoteRead, Endpoint: AllEndpoints},
		{Key: wire.MKeyOptimized | 0x124, Buf: other, Access: RemoteWrite | RemoteRead, Endpoint: AllEndpoints},
	} {
		if _, err := p.b.Register(r); err != nil {
			t.Fatal(err)
		}
	}
	const one = wire.SESSOM | wire.SESEOM
	id := p.b.cfg.Identity
	id.JobID = 1
	medium := func(op wire.Opcode, f wire.SESFlags, key, off uint64, n int, data string) []byte {
		h := wire.ReqMedium{Opcode: op, Flags: f, JobID: id.JobID, PIDonFEP: id.PIDonFEP, RI: id.RI, ReqLen: uint16(n), BufOff: off, Match: key}
		if f&wire.SESHD != 0 {
			h.BufOff = 0
		}
		return append(h.Append(nil), data...)
	}
	small := func(op wire.Opcode, ri uint16, off uint64, n int, data string) []byte {
		h := wire.ReqSmall{Opcode: op, Flags: one, JobID: id.JobID, PIDonFEP: id.PIDonFEP, RI: ri, ReqLen: uint16(n), BufOff: off}
		return append(h.Append(nil), data...)
	}
	cut := medium(wire.OpWrite, one, idemKey, 0, 1, "x")
	cut[1] &^= byte(wire.SESEOM)
	for i, c := range []struct {
		name string
		next wire.NextHdr
		b    []byte
		want string
	}{
		{"medium write", wire.NextReqMedium, medium(wire.OpWrite, one, idemKey, 100, 5, "hello"), "OK 5"},
		{"medium read", wire.NextReqMedium, medium(wire.OpRead, one, idemKey, 99, 7, ""), "OK \x00hello\x00"},
		{"small write", wire.NextReqSmall, small(wire.OpWrite, 0x123, 102, 2, "LL"), "OK 2"},
		{"small read", wire.NextReqSmall, small(wire.OpRead, 0x123, 100, 5, ""), "OK heLLo"},
		{"read of nothing", wire.NextReqSmall, small(wire.OpRead, 0x123, 100, 0, ""), "OK 0"},
		{"medium, not for RUDI", wire.NextReqMedium, medium(wire.OpWrite, one, wire.MKeyOptimized|0x124, 0, 1, "x"), "OP_VIOLATION 0"},
		{"small, not for RUDI", wire.NextReqSmall, small(wire.OpWrite, 0x124, 0, 1, "x"), "OP_VIOLATION 0"},
		{"no such region", wire.NextReqMedium, medium(wire.OpRead, one, wire.MKeyIdempotent|9, 0, 1, ""), "BAD_MKEY 0"},
		{"beyond the region", wire.NextReqSmall, small(wire.OpRead, 0x123, uint64(len(p.mem)), 1, ""), "BAD_ADDR 0"},
		{"with data for the queue", wire.NextReqMedium, medium(wire.OpWrite, one|wire.SESHD, idemKey, 0, 1, "x"), "OP_VIOLATION 0"},
		{"a message", wire.NextReqMedium, medium(wire.OpSend, one, idemKey, 0, 1, "x"), "OP_VIOLATION 0"},
		{"longer than a packet", wire.NextReqMedium, medium(wire.OpRead, one, idemKey, 0, 5000, ""), "UNSUPPORTED_SIZE 0"},
		{"part of more", wire.NextReqMedium, cut, "OP_VIOLATION 0"},
	} {
		pkt := uint32(0x1000_0000 + i)
		p.b.rx.in.From, p.b.now = p.a.cfg.Local, p.now
		p.b.idempotent(append(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: c.next, PktID: pkt}.Append(nil), c.b...))
		if !p.b.Transmit(p.now, &p.d) {
			t.Errorf("%s: no answer", c.name)
			continue
		}
		h, n, err := wire.ParseRUDI(p.d.Data)
		if err != nil || h.PktID != pkt {
			t.Fatal(c.name, h, err)
		}
		got, b := "", p.d.Data[n:]
		if h.Next == wire.NextRspDataSmall {
			r, n, err := wire.ParseRspDataSmall(b)
			if err != nil || r.ReqPSN != wire.PSN(pkt) || r.JobID != id.JobID || int(r.PayloadLen) != len(b)-n {
				t.Errorf("%s: %v %v, %d bytes", c.name, r, err, len(b)-n)
			}
			got = fmt.Sprintf("%v %s", r.RC, b[n:])
		} else {
			var r wire.Rsp
			if n, err := r.Parse(b); h.Next != wire.NextRsp || err != nil || r.MsgID != 0 || n != len(b) {
				t.Errorf("%s: %v %v %v", c.name, h.Next, r, err)
			}
			got = fmt.Sprintf("%v %d", r.RC, r.ModLen)
		}
		if got != c.want {
			t.Errorf("%s: answer %q, want %q", c.name, got, c.want)
		}
	}
	if string(p.mem[99:107]) != "\x00heLLo\x00\x00" || bytes.Count(other, []byte{0}) != len(other) {
		t.Errorf("memory %q", p.mem[99:107])
	}
	// Anything else is no request.
	was := p.b.Stats().Drops[DropNextHdr]
	p.b.idempotent(append(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextRspDataSmall, PktID: 1}.Append(nil), make([]byte, 100)...))
	if p.b.Stats().Drops[DropNextHdr] != was+1 || p.b.Transmit(p.now, &p.d) {
		t.Error("a response was taken for a request")
	}
}

func TestRUDIFloodIsBounded(t *testing.T) {
	// Requests beyond what may wait for an answer are dropped.
	p := newIdem(t, nil)
	for i := range maxIdemAnswers + 100 {
		r := wire.ReqStd{Opcode: wire.OpWrite, Flags: wire.SESSOM | wire.SESEOM, MsgID: 5, Match: 1}
		b := r.Append(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextReqStd, PktID: uint32(i)}.Append(nil))
		p.b.rx.in.From, p.b.now = p.a.cfg.Local, p.now
		p.b.idempotent(b)
	}
	if s := p.b.Stats(); s.Drops[DropLimit] != 100 || p.b.idem.answers.len() != maxIdemAnswers {
		t.Errorf("%d dropped, %d wait", s.Drops[DropLimit], p.b.idem.answers.len())
	}
}

func TestRUDIReadBeforeTheSourceIsProven(t *testing.T) {
	// S-RUDI-54, S-RUDI-55: the ACK that opened the PDC has come, and nothing that shows it. RUD brings
	// the bytes.
	p := newIdem(t, nil)
	for i := range p.b.peers {
		p.b.peers[i].proven, p.b.peers[i].known = false, false
	}
	copy(p.mem, "data")
	buf := make([]byte, 4)
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: buf, Context: "r", Idempotent: true})
	if got := p.run(1); got[0] != "r ok" || string(buf) != "data" || p.a.Stats().RUDIRequests != 1 {
		t.Errorf("%s, %q", got[0], buf)
	}
}

func TestRUDIReadOfAPeerThatIsGone(t *testing.T) {
	// F9: a part of the read is to go by RUD, and the other parts have no answer. When the peer is gone by
	// RUDI, RUD need not try for as long again.
	p := newIdem(t, func(c *Config) { c.PeerTimeout = 2 * time.Second })
	for i := range p.b.peers {
		p.b.peers[i].proven, p.b.peers[i].known = false, false
	}
	answers := 0
	p.drop = func(from *FEP, _ []byte) bool {
		if from == p.b {
			answers++
		}
		return answers > 1
	}
	begun := p.now
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 3000), Context: "r", Idempotent: true})
	if got := p.run(1); got[0] != "r timed out" || answers < 2 || p.now-begun > 3*time.Second {
		t.Errorf("%s after %v, %d answers", got[0], p.now-begun, answers)
	}
}

func TestRUDIReadOfSmallerPackets(t *testing.T) {
	// S-RUDI-55: a target whose packets take less cannot answer; RUD brings the bytes.
	p := newIdem(t, func(c *Config) {
		if c.PayloadMTU = 4096; c.Local.Addr() == netip.MustParseAddr("198.18.0.2") {
			c.PayloadMTU = 1024
		}
	})
	copy(p.mem, pattern(10_000, 3))
	back := make([]byte, 10_000)
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: back, Context: "r", Idempotent: true})
	if got := p.run(1); got[0] != "r ok" || !bytes.Equal(back, pattern(10_000, 3)) {
		t.Errorf("%s", got[0])
	}
	p.checkIdle()
}

func TestRUDIAndDatagramsLeaveFromTheMainPort(t *testing.T) {
	// With Symmetric encapsulation a target knows its source by the main port: from another one a read
	// would be a stranger's, and a datagram of nobody.
	p := newIdem(t, func(c *Config) { c.Paths = []uint16{4793, 5000, 5001, 5002} })
	q := newGrams(t, func(c *Config) { c.Paths = []uint16{4793, 5000, 5001, 5002} })
	for i := range 16 {
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: idemKey, Buf: make([]byte, 4), Context: "r", Idempotent: true})
		if !p.a.Transmit(p.now, &p.d) || p.d.Path != 0 || wire.Type(p.d.Data[0]>>3) != wire.TypeRUDIReq {
			t.Fatalf("request %d leaves by path %d: %x", i, p.d.Path, p.d.Data[:2])
		}
		q.post(q.a, Op{Kind: OpSend, Peer: q.toB, RI: 15, Buf: make([]byte, 4), Silent: true})
		if !q.a.Transmit(q.now, &q.d) || q.d.Path != 0 {
			t.Fatalf("datagram %d leaves by path %d", i, q.d.Path)
		}
	}
}

// A request that was lost twice goes to a path port of its target, which answers from there, and those that
// follow go there at once. Nobody else at that port executes it.
func TestRUDIGoesAside(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), drop DropReason) {
		for _, one := range []bool{false, true} {
			p := newIdem(t, change)
			if one {
				p.pipe = newPipe(t, func(c *Config) {
					if change(c); c.Local.Addr() == netip.MustParseAddr("198.18.0.1") {
						c.Paths = nil
					}
				})
				if _, err := p.b.Register(RegionConfig{Key: idemKey, Buf: p.mem, Access: RemoteWrite | RemoteRead, Endpoint: AllEndpoints}); err != nil {
					t.Fatal(err)
				}
				p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: idemKey, Buf: []byte{0}, Context: "open"})
				p.exchange()
				p.want(p.a, "open ok")
			}
			p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
			other, err := New(func() Config {
				cfg := Config{Local: netip.AddrPortFrom(p.b.cfg.Local.Addr(), 50002)}
				change(&cfg)
				cfg.Paths = nil
				return cfg
			}(), rand.New(rand.NewPCG(3, 7)))
			if err != nil {
				t.Fatal(err)
			}
			theirs := make([]byte, 1000)
			if _, err := other.Register(RegionConfig{Key: idemKey, Buf: theirs, Access: RemoteWrite, Endpoint: AllEndpoints}); err != nil {
				t.Fatal(err)
			}
			write := func(b byte) (timeouts int) {
				t.Helper()
				p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: idemKey, Buf: []byte{b}, Context: "w", Idempotent: true})
				for {
					for p.a.Transmit(p.now, &p.d) {
						if p.d.Remote.Port() != 4793 {
							other.Receive(p.now, &dgram.Datagram{Data: slices.Clone(p.d.Data), Seg: p.d.Seg, Remote: p.a.cfg.Local})
							p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: p.a.cfg.Local, Path: slices.Index(fourPorts, p.d.Remote.Port())})
						}
					}
					for p.b.Transmit(p.now, &p.d) {
						if from := fourPorts[p.d.Path]; from != 4793 {
							p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), from)})
						}
					}
					if got := p.events(p.a); len(got) > 0 || timeouts > 30 {
						if len(got) != 1 || got[0] != "w ok" || p.mem[0] != b {
							t.Fatalf("%v, %d", got, p.mem[0])
						}
						return timeouts
					}
					timeouts++
					p.now = p.a.NextTimeout()
					p.a.Advance(p.now)
				}
			}
			was := p.a.Stats().RUDIRequests
			if n := write(7); n == 0 {
				t.Error("no timeout")
			}
			if n := write(8); n != 0 {
				t.Errorf("the second write took %d timeouts", n)
			}
			if other.Stats().Drops[drop] == 0 || theirs[0] != 0 {
				t.Errorf("the FEP that has the path port by now: %d dropped, %d written", other.Stats().Drops[drop], theirs[0])
			}
			if n := p.a.Stats().RUDIRequests - was; n != 2 {
				t.Errorf("%d requests by RUDI", n)
			}
			p.a.Forget(p.toB)
		}
	})
}
