package ses

import (
	"bytes"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

const optKey = wire.MKeyOptimized | 0x123

// small posts a write or a read of n bytes by PDC 7 that may go with the small header.
func (g *rig) small(kind Kind, n int, change ...func(*Op)) Handle {
	g.t.Helper()
	op := Op{Kind: kind, Peer: 1, PIDonFEP: 10, RI: 15, Buf: pattern(n), Key: optKey, RemoteAddr: 0x200, Optimized: true, Context: "s"}
	for _, f := range change {
		f(&op)
	}
	h, err := g.Send(0, &op, op.Bytes())
	if err != nil {
		g.t.Fatal(err)
	}
	g.On(h, 7)
	return h
}

// first hands out the first piece of a message.
func (g *rig) first(h Handle, mtu int) (piece.Piece, []byte) {
	g.t.Helper()
	p, ok := g.Peek(h, mtu)
	if !ok {
		g.t.Fatal("no piece")
	}
	return p, g.AppendPiece(nil, p)
}

// formOf tells the header of a piece.
func formOf(p piece.Piece) wire.NextHdr {
	if p.Kind&piece.Small != 0 {
		return wire.NextReqSmall
	}
	return wire.NextReqStd
}

func TestSmallEncodes(t *testing.T) {
	// S-HDR-03, R-RMA-13: the resource index is the RKEY; there is no id, key, initiator or header data. The same bytes go again.
	g := newRig(t)
	for _, kind := range []Kind{EvWrite, EvRead} {
		for _, parts := range []bool{false, true} {
			body := pattern(100)
			h := g.small(kind, 100, func(op *Op) {
				op.Level = LevelDelivery
				if parts {
					op.Iov = [][]byte{op.Buf[:33], nil, op.Buf[33:]}
				}
			})
			if n := g.Left(h); n != map[Kind]int{EvWrite: 100}[kind] {
				t.Errorf("%d bytes left", n)
			}
			p, b := g.first(h, 1024)
			r, n, err := wire.ParseReqSmall(b)
			want := wire.ReqSmall{Opcode: map[Kind]wire.Opcode{EvWrite: wire.OpWrite, EvRead: wire.OpRead}[kind], Flags: wire.SESDC | wire.SESREL | single,
				ReqLen: 100, PIDonFEP: 10, RI: 0x123, JobID: g.cfg.JobID, BufOff: 0x200}
			if err != nil || r != want || !p.Last() || p.Off != 0 {
				t.Errorf("%+v %v, want %+v", r, err, want)
			}
			if kind == EvRead {
				body = nil
			}
			if !bytes.Equal(b[n:], body) || !bytes.Equal(g.Append(nil, p), b) {
				t.Error("other bytes")
			}
			if _, ok := g.Peek(h, 1024); ok {
				t.Error("another piece")
			}
			g.Failed(h, Aborted, 0)
			if e := g.Event(); e == nil || e.Cause != Aborted {
				t.Errorf("%+v", e)
			}
		}
	}
	g.rest()
}

func TestSmallReadsFindTheirData(t *testing.T) {
	// R-RMA-13, S-RMA-71: data names the PSN of its request; a PSN that another one has got names that one.
	g := newRig(t)
	data := func(psn wire.PSN, n int, fill byte, rc wire.RC) {
		t.Helper()
		h := wire.RspDataSmall{Opcode: wire.RspWithData, RC: rc, ReqPSN: psn, JobID: g.cfg.JobID, PayloadLen: uint16(n)}
		res := g.Request(&Source{Peer: 1, PDC: 7}, wire.NextRspDataSmall, append(h.Append(nil), bytes.Repeat([]byte{fill}, n)...))
		if answer(res) != "default OK 0" || res.Rsp.MsgID != 0 || res.Rsp.JobID != g.cfg.JobID {
			t.Errorf("%s %+v", answer(res), res.Rsp)
		}
	}
	var h [3]Handle
	for i := range h {
		h[i] = g.small(EvRead, 100+i, func(op *Op) { op.Context = i })
		g.first(h[i], 1024)
		g.AskedAs(h[i], wire.PSN(50+i))
		g.Answered(h[i], &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK, JobID: g.cfg.JobID})
	}
	for i := range h { // the target has asked for another Start_PSN
		g.AskedAs(h[i], wire.PSN(51+i))
	}
	data(50, 100, 1, wire.RCOK)
	if g.Stats.RspForeign != 1 || g.Event() != nil {
		t.Fatal("data for a PSN that no read has any more")
	}
	for i := 2; i >= 0; i-- {
		data(wire.PSN(51+i), 100+i, byte(i+1), wire.RCOK)
		if e := g.Event(); e == nil || e.Cause != OK || e.Context != i || bytes.Count(e.Buf, []byte{byte(i + 1)}) != 100+i {
			t.Errorf("read %d: %+v", i, e)
		}
	}
	if len(g.readsByPSN) != 0 {
		t.Fatalf("%d reads listed that have ended", len(g.readsByPSN))
	}
	data(51, 100, 1, wire.RCOK)
	if g.Stats.RspForeign != 2 {
		t.Errorf("%d foreign", g.Stats.RspForeign)
	}
	last := g.small(EvRead, 100)
	g.first(last, 1024)
	g.AskedAs(last, 60)
	data(60, 0, 0, wire.RCBadMKey) // the region was removed meanwhile
	if e := g.Event(); e != nil {
		t.Errorf("before its answer: %+v", e)
	}
	g.Answered(last, nil)
	if e := g.Event(); e == nil || e.RC != wire.RCBadMKey {
		t.Errorf("%+v", e)
	}
	// One packet has to bring all of it.
	short := g.small(EvRead, 100)
	g.first(short, 1024)
	g.AskedAs(short, 61)
	g.Answered(short, &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK, JobID: g.cfg.JobID})
	data(61, 40, 1, wire.RCOK)
	if e := g.Event(); e == nil || e.Cause != PeerError {
		t.Errorf("a part of it: %+v", e)
	}
	g.rest()
}

func TestSmallBecomesStandard(t *testing.T) {
	// S-HDR-05, S-HDR-55: with the standard header goes what does not fit, and what goes from its beginning because it was refused.
	g := newRig(t)
	for _, c := range []struct {
		name   string
		kind   Kind
		n, mtu int
		change func(*Op)
		want   wire.NextHdr
	}{
		{"a packet", EvWrite, 4096, 4096, nil, wire.NextReqSmall},
		{"more", EvWrite, 4097, 4096, nil, wire.NextReqStd},
		{"a read that any packet carries", EvRead, 1024, 4096, nil, wire.NextReqSmall},
		{"a longer one", EvRead, 1025, 4096, nil, wire.NextReqStd},
		{"header data", EvWrite, 10, 4096, func(op *Op) { op.HasData = true }, wire.NextReqStd},
		{"both bits", EvWrite, 10, 4096, func(op *Op) { op.Key |= wire.MKeyIdempotent }, wire.NextReqStd},
		{"vendor", EvWrite, 10, 4096, func(op *Op) { op.Key |= wire.MKeyProvider }, wire.NextReqStd},
		{"long RKEY", EvRead, 10, 4096, func(op *Op) { op.Key |= 1 << 12 }, wire.NextReqStd},
		{"a peer that takes none", EvRead, 10, 4096, func(op *Op) { op.Optimized = false }, wire.NextReqStd},
	} {
		change := c.change
		if change == nil {
			change = func(*Op) {}
		}
		h := g.small(c.kind, c.n, change)
		if p, ok := g.Peek(h, c.mtu); !ok || formOf(p) != c.want {
			t.Fatalf("%s: header %v, want %v", c.name, formOf(p), c.want)
		}
		g.first(h, c.mtu)
		g.Failed(h, Aborted, 0)
		g.Break(h, Aborted, 0)
		g.Event()
	}

	// A refusal that passes: the message goes again. Its generation is that of the region, not of the resource.
	h := g.small(EvWrite, 10)
	g.first(h, 1024)
	g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCBadGeneration, Gen: 7})
	g.Advance(time.Second)
	again, ok := g.Resend()
	if !ok || again != h {
		t.Fatal("it does not go again")
	}
	p, b := g.first(h, 1024)
	if r, _, err := wire.ParseReqStd(b); formOf(p) != wire.NextReqStd || err != nil || r.Gen != 0 {
		t.Errorf("%v %+v %v", formOf(p), r, err)
	}
	g.Answered(h, nil)
	g.Event()

	// A target whose packets take less than the read asks for.
	h = g.small(EvRead, 1000)
	g.first(h, 1024)
	g.AskedAs(h, 9)
	g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedSize})
	if again, ok := g.Resend(); !ok || again != h || g.Event() != nil {
		t.Fatal("the read does not go again")
	}
	if p, _ := g.first(h, 1024); formOf(p) != wire.NextReqStd {
		t.Error("again with the small header")
	}
	if len(g.readsByPSN) != 0 {
		t.Error("still listed")
	}
	g.Failed(h, Aborted, 0)
	g.Event()

	// What is ordered would come too late.
	h = g.small(EvRead, 1000, func(op *Op) { op.Ordered = true })
	g.first(h, 1024)
	g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedSize})
	if e := g.Event(); e == nil || e.RC != wire.RCUnsupportedSize {
		t.Errorf("%+v", e)
	}
	g.rest()
}

func TestSmallTakenBack(t *testing.T) {
	// S-VOID-01: the answer to a small request has no message id, that to the void packet in its place has one. Cut anew it
	// has the standard header.
	g := newRig(t)
	for _, kind := range []Kind{EvWrite, EvRead} {
		h := g.small(kind, 1000)
		p, _ := g.first(h, 4096)
		bad := wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCBadAddr}
		if g.Voided(h, &bad) {
			t.Error("the answer of the request is taken for that of the void packet")
		}
		void := p
		void.Kind |= piece.Void
		r, _, err := wire.ParseReqStd(g.Append(nil, void))
		if err != nil || r.Opcode != opVoid || r.MsgID == 0 {
			t.Fatalf("%+v %v", r, err)
		}
		bad.MsgID = r.MsgID
		if !g.Voided(h, &bad) || !g.Recut(h, p) {
			t.Fatal("it does not come back")
		}
		p, b := g.first(h, 4096)
		if r, _, err = wire.ParseReqStd(b); formOf(p) != wire.NextReqStd || err != nil || r.ReqLen != 1000 || r.Match != optKey || r.RI != 15 {
			t.Errorf("%+v %v", r, err)
		}
		g.Failed(h, Aborted, 0)
		g.Event()
	}
	g.rest()
}

func TestSmallAllocatesNothing(t *testing.T) {
	g := newRig(t)
	b, psn, buf := make([]byte, 0, 2048), wire.PSN(0), make([]byte, 100)
	h := wire.RspDataSmall{Opcode: wire.RspWithData, RC: wire.RCOK, PayloadLen: 100}
	for name, kind := range map[string]Kind{"write": EvWrite, "read": EvRead} {
		op := Op{Kind: kind, Peer: 1, RI: 15, Buf: buf, Key: optKey, Optimized: true}
		if n := allocsPerRun(func() {
			m, _ := g.Send(0, &op, 100)
			g.On(m, 7)
			p, _ := g.Peek(m, 1024)
			b = g.AppendPiece(b[:0], p)
			if psn++; kind == EvRead {
				g.AskedAs(m, psn)
				h.ReqPSN = psn
				d := g.SmallData(7, &h)
				g.ReadData(7, &d, buf)
			}
			g.Answered(m, nil)
			g.Event()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if g.Stats.Small == 0 || g.Stats.RspForeign != 0 {
		t.Errorf("%d small, %d foreign", g.Stats.Small, g.Stats.RspForeign)
	}
}
