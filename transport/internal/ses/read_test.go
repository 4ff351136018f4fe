package ses

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// asking posts a read of n bytes by PDC 7 and hands out so many pieces of 1,000 bytes, which are
// answered.
func (g *rig) asking(n, pieces int) (Handle, *wire.RspData) {
	g.t.Helper()
	h, err := g.Send(0, &Op{Kind: EvRead, Peer: 1, Buf: make([]byte, n), Key: 5, Context: "r"}, n)
	if err != nil || !g.On(h, 7) {
		g.t.Fatal("no read", err)
	}
	var r wire.ReqStd
	for range pieces {
		p, ok := g.Peek(h, 1000)
		if !ok || p.Kind&piece.Ask == 0 {
			g.t.Fatalf("piece %+v %v", p, ok)
		}
		if _, err := r.Parse(g.AppendPiece(nil, p)); err != nil || r.Opcode != wire.OpRead {
			g.t.Fatal(r, err)
		}
		g.Answered(h, nil)
	}
	return h, &wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: r.MsgID, ReadMsgID: r.MsgID, JobID: r.JobID, ModLen: uint32(n)}
}

// came is a packet with n bytes of a read at an offset.
func (g *rig) came(d *wire.RspData, off, n int) {
	g.t.Helper()
	d.MsgOff, d.PayloadLen = uint32(off), uint16(n)
	if res := g.Request(&Source{Peer: 1, PDC: 7}, wire.NextRspData, append(d.Append(nil), make([]byte, n)...)); res.Nack != 0 || res.Bad || res.Gtd {
		g.t.Fatalf("answer %+v", res)
	}
}

func TestReadDataTwice(t *testing.T) {
	// S-RMA-17: as many bytes as were asked for, but some twice and others not.
	g := newRig(t)
	_, d := g.asking(3000, 3)
	g.came(d, 0, 1000)
	g.came(d, 1000, 1000)
	g.came(d, 1000, 1000)
	if e := g.Event(); e == nil || e.Cause != PeerError || e.RC != wire.RCOpViolation {
		t.Fatalf("%+v", e)
	}
	g.came(d, 2000, 1000) // late: of a read that ended
	if g.Stats.RspForeign != 1 || g.Sends() != 0 {
		t.Error(g.Stats.RspForeign, g.Sends())
	}
}

// S-CPL-05: a read ends when all of its bytes are placed, though every request was answered before.
func TestReadWaitsForItsBytes(t *testing.T) {
	g := newRig(t)
	body, buf := pattern(3000), make([]byte, 3000)
	h, err := g.Send(0, &Op{Kind: EvRead, Peer: 1, Buf: buf, Key: 5, Context: "r"}, 3000)
	if err != nil || !g.On(h, 7) {
		t.Fatal(err)
	}
	var r wire.ReqStd
	for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
		if _, err := r.Parse(g.AppendPiece(nil, p)); err != nil {
			t.Fatal(err)
		}
		g.Answered(h, nil)
	}
	for _, off := range []int{2000, 0, 1000} {
		g.quiet()
		d := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, ReadMsgID: r.MsgID, JobID: r.JobID, ModLen: 3000, MsgOff: uint32(off), PayloadLen: 1000}
		g.Request(&Source{Peer: 1, PDC: 7}, wire.NextRspData, append(d.Append(nil), body[off:off+1000]...))
	}
	wantBytes(t, buf, body)
	if e := g.Event(); e == nil || e.Cause != OK || e.Context != "r" {
		t.Fatalf("%+v", e)
	}
}

// S-CPL-01: a read ends when every request is answered, though all bytes have come before.
func TestReadWaitsForItsAnswers(t *testing.T) {
	g := newRig(t)
	h, d := g.asking(3000, 2)
	p, _ := g.Peek(h, 1000)
	g.AppendPiece(nil, p)
	for off := 0; off < 3000; off += 1000 {
		g.came(d, off, 1000)
	}
	if e := g.Event(); e != nil {
		t.Fatalf("it ends with %v, and a request has no answer", e.Cause)
	}
	g.Answered(h, nil)
	if e := g.Event(); e == nil || e.Cause != OK {
		t.Fatalf("%+v", e)
	}
}

// askAll hands out every piece of 1,000 bytes that a read may ask for now, and returns how many.
func (g *rig) askAll(h Handle) (n int) {
	for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
		g.AppendPiece(nil, p)
		g.Answered(h, nil)
		n++
	}
	return n
}

// The reads on a PDC ask together for no more than a target remembers: it refuses the rest, and each
// request that was refused is sent again. They go on when something comes, and when one ends.
func TestReadsAskTogether(t *testing.T) {
	g := newRig(t)
	const each = 1000 // parts of a read
	var reads []Handle
	var first *wire.RspData
	for range 6 {
		h, d := g.asking(each*1000, 1)
		reads = append(reads, h)
		if first == nil {
			first = d
		}
	}
	asked := len(reads)
	for _, h := range reads {
		asked += g.askAll(h)
	}
	if asked != maxAsked || maxAsked >= maxReturns {
		t.Fatalf("%d parts asked for, want %d; a target remembers %d", asked, maxAsked, maxReturns)
	}
	last := reads[len(reads)-1]
	for off := range 3 {
		g.came(first, off*1000, 1000)
	}
	if n := g.askAll(reads[4]) + g.askAll(last); n != 3 {
		t.Errorf("3 parts came, and %d more are asked for", n)
	}
	first.RC = wire.RCBadMKey // the region is gone
	g.came(first, 3000, 0)
	if e := g.Event(); e == nil || e.Cause != Rejected {
		t.Fatalf("%+v", e)
	}
	if n := g.askAll(reads[4]) + g.askAll(last); n != each-3 {
		t.Errorf("a read ended of which %d parts had not come, and %d more are asked for", each-3, n)
	}
	h, _ := g.Send(0, &Op{Kind: EvRead, Peer: 1, Buf: make([]byte, 5000), Key: 5}, 5000)
	if g.On(h, 8); g.askAll(h) != 5 {
		t.Error("a read by another PDC waits as well")
	}
}

// A read that waits for others on its PDC is looked at again though they end without an answer.
func TestReadsAskAgain(t *testing.T) {
	g := newRig(t, func(c *Config) { c.ReadWindow, c.IdleTimeout = 1<<30, 8*time.Second })
	a, _ := g.asking((maxAsked+1)*1000, 1)
	if n := g.askAll(a); n != maxAsked-1 {
		t.Fatal(n)
	}
	for now := time.Second; now < 8*time.Second && !g.OwesReturns(); now += time.Second {
		g.Advance(now)
	}
	if pdc, ok := g.Owing(); !ok || pdc != 7 {
		t.Errorf("PDC %d %v", pdc, ok)
	}
}

func TestReadDataNotAskedFor(t *testing.T) {
	g := newRig(t)
	h, d := g.asking(3000, 1)
	g.came(d, 2000, 1000)
	p, ok := g.Peek(h, 1000)
	if !ok || !p.Error() {
		t.Fatalf("%+v, want a MSG_ERROR: the target may go on", p)
	}
	g.AppendPiece(nil, p)
	g.Answered(h, nil)
	if e := g.Event(); e == nil || e.Cause != PeerError {
		t.Fatalf("%+v", e)
	}
}

func TestReadTakesAnyCut(t *testing.T) {
	// S-RMA-11: the parts may be cut in another way than they were asked for, and come in any order,
	// also before the answers to the requests.
	g := newRig(t)
	_, d := g.asking(3000, 3)
	for _, c := range [][2]int{{2500, 500}, {0, 1}, {1, 1999}, {2000, 500}} {
		g.came(d, c[0], c[1])
	}
	if e := g.Event(); e == nil || e.Cause != OK || e.Len != 3000 || e.Kind != EvRead {
		t.Fatalf("%+v", e)
	}
}

func TestShortReadWithoutEOM(t *testing.T) {
	// S-RMA-12: all of a short read comes in the ACK of its request, also where the request has SOM without
	// EOM, as those of the reference provider have, and in no other case.
	for _, c := range []struct {
		flags wire.SESFlags
		n     uint32
		whole bool
	}{{single, 16, true}, {wire.SESSOM, 16, true}, {wire.SESSOM, 1, true}, {single, 17, false}, {wire.SESSOM, 17, false}} {
		g := newRig(t)
		memory := []byte("0123456789abcdef0123456789abcdef")
		if _, err := g.Register(RegionConfig{Key: 5, Buf: memory, Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
			t.Fatal(err)
		}
		cfg := testConfig()
		r := wire.ReqStd{Opcode: wire.OpRead, Flags: c.flags, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, MsgID: 1, Match: 5, BufOff: 3, ReqLen: c.n}
		res := g.Request(&Source{Peer: 1, PDC: 7}, wire.NextReqStd, r.Append(nil))
		switch {
		case res.Nack != 0 || res.Bad || res.Rsp.RC != wire.RCOK || (res.Rsp.Opcode == wire.RspWithData) != c.whole:
			t.Errorf("%v of %d bytes: answer %+v", c.flags, c.n, res)
		case c.whole && string(res.Data) != string(memory[3:][:c.n]):
			t.Errorf("%v of %d bytes: %q", c.flags, c.n, res.Data)
		}
	}
}

func TestVoidReturnOfARead(t *testing.T) {
	// S-RMA-70: a void packet is answered by a guaranteed error, and the read goes on: with what the packet
	// that it stands for would have brought, in other parts.
	g := newRig(t)
	_, d := g.asking(3000, 3)
	void := *d
	void.List, void.RC, void.ModLen, void.MsgOff = listVoid, wire.RCUncorTrnsnt, 0, 1000
	for range 2 {
		res := g.Request(&Source{Peer: 1, PDC: 7}, wire.NextRspData, append(void.Append(nil), make([]byte, 24)...))
		if res.Nack != 0 || res.Bad || !res.Gtd || res.Rsp.Opcode != wire.RspResponse || res.Rsp.RC != wire.RCUnsupportedOp || res.Rsp.MsgID != d.MsgID {
			t.Fatalf("answer %+v", res)
		}
	}
	g.came(d, 0, 1000)
	g.came(d, 1000, 500)
	g.came(d, 2000, 1000)
	g.came(d, 1500, 500)
	if e := g.Event(); e == nil || e.Cause != OK || e.Len != 3000 {
		t.Fatalf("%+v", e)
	}
	// Another make's error in read data is one.
	_, d = g.asking(3000, 3)
	d.RC, d.List = wire.RCUncorTrnsnt, wire.ListExpected
	g.came(d, 0, 0)
	if e := g.Event(); e == nil || e.Cause != Rejected || e.RC != wire.RCUncorTrnsnt {
		t.Fatalf("%+v", e)
	}
}

func TestRecutReturn(t *testing.T) {
	// S-RMA-70: of read data in whose place a void packet went the bytes go again, once and in short parts, if
	// the answer says so; any other answer is that to the packet itself.
	fresh := wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp}
	for _, c := range []struct {
		name  string
		rsp   *wire.Rsp
		again bool
	}{{"executed", &fresh, true}, {"by default", nil, false}, {"default", &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}, false}, {"nothing new", &wire.Rsp{Opcode: wire.RspDefault}, false}} {
		g := newRig(t)
		if _, err := g.Register(RegionConfig{Key: 5, Buf: make([]byte, 8192), Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
			t.Fatal(err)
		}
		cfg := testConfig()
		r := wire.ReqStd{Opcode: wire.OpRead, Flags: single, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, MsgID: 1, Match: 5, ReqLen: 8192}
		g.Request(&Source{Peer: 1, PDC: 7}, wire.NextReqStd, r.Append(nil))
		p, ok := g.PeekReturn(7, 8192)
		if !ok || p.Len != 8192 {
			t.Fatalf("%+v %v", p, ok)
		}
		g.AppendReturn(nil, p)
		void := p
		void.Kind |= piece.Void
		h, _, err := wire.ParseRspData(g.AppendPiece(nil, void))
		if err != nil || !voidReturn(&h) {
			t.Fatalf("%+v %v", h, err)
		}
		if got := g.RecutReturn(p, c.rsp); got != c.again {
			t.Fatalf("%s: again is %v", c.name, got)
		}
		if !c.again {
			g.Answered(Handle(p.Msg), c.rsp)
		}
		n := uint32(0)
		for q, ok := g.PeekReturn(7, 8192); ok; q, ok = g.PeekReturn(7, 8192) {
			if q.Off != n || q.Len != 1024 {
				t.Fatalf("%s: part %+v", c.name, q)
			}
			n += q.Len
			g.AppendReturn(nil, q)
			g.Answered(Handle(q.Msg), nil)
		}
		if (n == 8192) != c.again || g.Serving(7) {
			t.Errorf("%s: %d bytes go again, served on: %v", c.name, n, g.Serving(7))
		}
	}
}

// TestToReturn: what waits to be returned is counted, in parts and bytes, whatever becomes of it.
func TestToReturn(t *testing.T) {
	g := newRig(t)
	if _, err := g.Register(RegionConfig{Key: 5, Buf: make([]byte, 20000), Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	want := func(what string, parts, bytes int) {
		t.Helper()
		if p, n := g.ToReturn(7); p != parts || n != bytes {
			t.Errorf("%s: %d parts of %d bytes wait, want %d of %d", what, p, n, parts, bytes)
		}
	}
	ask := func(msg uint16, n uint32) {
		r := wire.ReqStd{Opcode: wire.OpRead, Flags: single, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, MsgID: msg, Match: 5, ReqLen: n}
		g.Request(&Source{Peer: 1, PDC: 7}, wire.NextReqStd, r.Append(nil))
	}
	take := func(mtu int) piece.Piece {
		p, _ := g.PeekReturn(7, mtu)
		g.AppendReturn(nil, p)
		return p
	}
	want("nothing", 0, 0)
	ask(1, 8192)
	ask(2, 5000)
	want("two reads", 2, 13192)
	first := take(1024)
	want("a packet has left", 2, 12168)
	g.RecutReturn(first, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp})
	want("it goes again", 3, 13192)
	g.Failed(Handle(first.Msg), TimedOut, 0)
	want("one read has failed", 1, 5000)
	for range 5 {
		take(1024)
	}
	want("all has left", 0, 0)
}

// TestAsks: a read tells by how many packets it may ask now.
func TestAsks(t *testing.T) {
	g := newRig(t, func(c *Config) { c.ReadWindow = 4096 })
	h, d := g.asking(9500, 1)
	want := func(what string, n int) {
		t.Helper()
		if got := g.Asks(h, 1000); got != n {
			t.Errorf("%s: %d packets, want %d", what, got, n)
		}
	}
	more := func(n int) {
		for range n {
			p, _ := g.Peek(h, 1000)
			g.AppendPiece(nil, p)
			g.Answered(h, nil)
		}
	}
	want("one was sent", 3)
	more(3)
	want("as many as may be", 0)
	if _, ok := g.Peek(h, 1000); ok {
		t.Fatal("a read asks for more than ReadWindow")
	}
	g.came(d, 0, 1000)
	g.came(d, 1000, 1000)
	want("the data of two came", 2)
	more(2)
	for i := range 4 {
		g.came(d, 2000+1000*i, 1000)
	}
	want("the end is near", 4)
	more(4)
	want("all was asked for", 0)
}

// S-SEG-03, S-RMA-68: a first request of several asks for what it says, and if it says nothing, as those of other
// implementations, for the MTU that both ends have. With header data the same bits say nothing.
func TestFirstRequestSaysHowMuch(t *testing.T) {
	for _, c := range []struct {
		flags wire.SESFlags
		says  uint64
		n     uint32
		want  int
	}{
		{wire.SESSOM, 0, 5000, 1024}, {wire.SESSOM, 4096, 5000, 4096}, {wire.SESSOM, 500, 5000, 500}, {wire.SESSOM, 6000, 5000, 5000},
		{wire.SESSOM, 0, 1000, 1000}, {wire.SESSOM | wire.SESHD, 4096, 5000, 1024}, {single, 0, 5000, 5000}, {single, 500, 5000, 5000},
	} {
		g := newRig(t)
		g.region(RegionConfig{Key: 1, Buf: pattern(8000), Access: RemoteRead})
		g.answerOf(func(r *wire.ReqStd) {
			r.Opcode, r.Flags, r.ReqLen, r.HeaderData = wire.OpRead, wire.SESREL|c.flags, c.n, c.says<<32
		}, nil)
		if _, n := g.ToReturn(srcA.PDC); n != c.want {
			t.Errorf("%+v: %d bytes are returned", c, n)
		}
	}
}
