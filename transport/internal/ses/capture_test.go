package ses

import (
	"bytes"
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// A captureRig is a target with a region, under key 5, that others read.
type captureRig struct {
	*rig
	mem    []byte
	region *Region
}

func newCaptureRig(t *testing.T, single bool) *captureRig {
	t.Helper()
	c := &captureRig{rig: newRig(t), mem: pattern(64 << 10)}
	g, err := c.Register(RegionConfig{Key: 5, Buf: c.mem, Access: RemoteRead, Endpoint: AllEndpoints, SingleUse: single, CountsReads: true})
	if err != nil {
		t.Fatal(err)
	}
	c.region = g
	return c
}

// ordered is peer 1 on a ROD PDC.
var ordered = Source{Peer: 1, PDC: 7, Ordered: true}

// ask executes the request for n bytes at an offset of a read.
func (c *captureRig) ask(src Source, msg uint16, off, n, length uint32) *Result {
	cfg := testConfig()
	r := wire.ReqStd{Opcode: wire.OpRead, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, MsgID: msg, Match: 5, ReqLen: length}
	switch {
	case off != 0:
		r.MsgOff, r.PayloadLen = off, uint16(n)
	case n != length:
		r.HeaderData = uint64(n) << 32
		fallthrough
	default:
		r.Flags |= wire.SESSOM
	}
	if off+n == length {
		r.Flags |= wire.SESEOM
	}
	return c.Request(&src, wire.NextReqStd, r.Append(nil))
}

// asks executes all requests for a read, each of n bytes.
func (c *captureRig) asks(msg uint16, n, length uint32) {
	c.t.Helper()
	for off := uint32(0); off < length; off += n {
		if res := c.ask(ordered, msg, off, min(n, length-off), length); res.Nack != 0 || res.Rsp.RC != wire.RCOK {
			c.t.Fatalf("%+v", res)
		}
	}
}

// send hands out what is to be returned, in packets of mtu bytes, twice, and checks that it is what memory was.
func (c *captureRig) send(was []byte, mtu int) (out []piece.Piece) {
	c.t.Helper()
	for p, ok := c.PeekReturn(7, mtu); ok; p, ok = c.PeekReturn(7, mtu) {
		for _, b := range [][]byte{c.AppendReturn(nil, p), c.Append(nil, p)} {
			if h, n, err := wire.ParseRspData(b); err != nil || h.RC != wire.RCOK || h.MsgOff != p.Off || !bytes.Equal(b[n:], was[p.Off:][:p.Len]) {
				c.t.Fatalf("%+v %v: other bytes than those that the read found", h, err)
			}
		}
		out = append(out, p)
	}
	return out
}

// wantCaptured checks how many bytes are kept.
func (c *captureRig) wantCaptured(n int) {
	c.t.Helper()
	if c.captured != n {
		c.t.Errorf("%d bytes are kept, want %d", c.captured, n)
	}
}

// S-RMA-72, R-ORD-01, R-ORD-06: an ordered read brings what its memory was when it was executed, whatever becomes of the memory until its
// packets leave, or leave again; a short read behind it finds what is there then.
func TestOrderedReadKeepsItsBytes(t *testing.T) {
	for _, single := range []bool{false, true} {
		c := newCaptureRig(t, single)
		was := bytes.Clone(c.mem)
		c.asks(1, 1000, 3500)
		c.wantCaptured(4 * 1024)
		clear(c.mem)
		if res := c.ask(ordered, 2, 0, 16, 16); !single && (res.Rsp.Opcode != wire.RspWithData || !bytes.Equal(res.Data, make([]byte, 16))) {
			t.Fatalf("%+v", res)
		}
		if !single {
			c.wantEvent(EvRemoteRead, OK, nil, 16)
		} else {
			c.Deregister(c.region) // what was read may be returned
		}
		out := c.send(was, 512)
		if len(out) != 7 {
			t.Fatalf("%d packets", len(out))
		}
		for i, p := range out {
			c.Answered(Handle(p.Msg), nil)
			c.wantCaptured([]int{4096, 3072, 3072, 2048, 2048, 1024, 0}[i])
		}
		if !single {
			c.wantEvent(EvRemoteRead, OK, nil, 3500)
		}
		if c.Serving(7) || !c.Idle() || c.serves.live() != 0 {
			t.Error("something is left")
		}
	}
}

// A read of a RUD PDC needs no order: what its packets carry is taken from memory when they leave.
func TestUnorderedReadKeepsNothing(t *testing.T) {
	c := newCaptureRig(t, false)
	if c.ask(Source{Peer: 1, PDC: 7}, 1, 0, 3000, 3000); c.captured != 0 {
		t.Fatal(c.captured)
	}
	clear(c.mem)
	c.send(c.mem, 1000)
}

// A read of one packet, and one of many that is cut anew for the path, keep their bytes.
func TestOrderedReadCutAnew(t *testing.T) {
	for _, parts := range []uint32{1, 2} {
		c := newCaptureRig(t, false)
		was := bytes.Clone(c.mem)
		c.asks(1, 8192/parts, 8192)
		clear(c.mem)
		out := c.send(was, 8192)
		for _, p := range out {
			if !c.RecutReturn(p, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp}) {
				t.Fatal("not cut anew")
			}
		}
		out = c.send(was, 8192)
		if len(out) != 8 {
			t.Fatalf("%d packets", len(out))
		}
		for _, p := range out {
			c.Answered(Handle(p.Msg), nil)
		}
		c.wantEvent(EvRemoteRead, OK, nil, 8192)
		if c.wantCaptured(0); c.serves.live() != 0 {
			t.Error("something is left")
		}
	}
}

// R-RMA-09: an ordered read ends as a whole when a packet of it fails, its PDC goes, or it is given up, and all is free.
func TestOrderedReadStops(t *testing.T) {
	for _, how := range []string{"a packet fails", "the PDC goes", "it is given up"} {
		c := newCaptureRig(t, false)
		was := bytes.Clone(c.mem)
		c.asks(1, 1000, 3000)
		c.asks(2, 1000, 2000)
		first, _ := c.PeekReturn(7, 1000)
		c.AppendReturn(nil, first)
		second, _ := c.PeekReturn(7, 500)
		c.AppendReturn(nil, second)
		switch how {
		case "a packet fails":
			c.Failed(Handle(second.Msg), TimedOut, 0)
			c.wantCaptured(3 * 1024) // the packet that is under way, and another read
			c.Answered(Handle(first.Msg), nil)
		case "it is given up":
			if res := c.ask(ordered, 1, 3000, 1000, 4000); res.Rsp.RC != wire.RCOpViolation {
				t.Fatalf("%+v", res)
			}
			c.Answered(Handle(first.Msg), nil)
			c.Failed(Handle(second.Msg), TimedOut, 0)
		case "the PDC goes":
			c.PDCGone(7, TimedOut)
			c.wantCaptured(0)
		}
		if how != "the PDC goes" {
			if n := len(c.send(was, 1000)); n != 2 {
				t.Errorf("%s: %d packets of another read leave", how, n)
			}
			c.PDCGone(7, TimedOut)
		}
		c.wantCaptured(0)
		if c.quiet(); c.Serving(7) || !c.Idle() || c.serves.live() != 0 {
			t.Errorf("%s: something is left", how)
		}
	}
}

// What is kept has a bound: of all, of a peer, and of sources that may be forged. Beyond it a request is refused, and
// leaves nothing behind (docs/faults.md).
func TestCaptureBounds(t *testing.T) {
	c := newCaptureRig(t, false)
	forged := ordered
	forged.Unproven = true
	refused := func(what string, src Source, msg uint16, off uint32) {
		t.Helper()
		had, live := c.captured, c.serves.live()
		if res := c.ask(src, msg, off, 8192, 32768); res.Nack != wire.NackNoSESMsgAvail || c.captured != had || c.serves.live() != live {
			t.Errorf("%s: %+v, %d bytes are kept", what, res, c.captured)
		}
	}
	c.captured = maxCaptured - 8191
	refused("all", ordered, 1, 0)
	c.captured = 0
	c.parts = maxParts
	refused("parts", ordered, 1, 0)
	c.parts = 0
	c.captures.limit = -1
	refused("memory", ordered, 1, 0)
	c.captures.limit = maxCaptured/chunkLen + numClasses
	for i := range maxCapturedPeer / 32768 {
		c.asks(uint16(2+i), 8192, 32768)
	}
	c.wantCaptured(maxCapturedPeer)
	refused("a peer", ordered, 1, 0)
	other := Source{Peer: 2, PDC: 8, Ordered: true}
	if res := c.ask(other, 1, 0, 8192, 32768); res.Nack != 0 {
		t.Errorf("another peer: %+v", res)
	}
	c.PDCGone(7, Aborted)
	c.PDCGone(8, Aborted)
	c.wantCaptured(0)
	for i := range maxCapturedUnproven / 8192 {
		if res := c.ask(forged, uint16(1+i/4), uint32(i%4*8192), 8192, 32768); res.Nack != 0 {
			t.Fatalf("%d: %+v", i, res)
		}
	}
	refused("forged", forged, 99, 0)
	if res := c.ask(ordered, 99, 0, 8192, 32768); res.Nack != 0 {
		t.Errorf("a source that is proven: %+v", res)
	}
	c.Proven(1)
	if c.capturedUnproven != 0 || c.unprovenServes != 0 {
		t.Errorf("%d bytes and %d reads are of sources that may be forged", c.capturedUnproven, c.unprovenServes)
	}
	c.PDCGone(7, Aborted)
	if c.wantCaptured(0); c.capturedUnproven != 0 || c.serves.live() != 0 {
		t.Error("something is left")
	}
}

// Ordered reads ask for no more ahead than half of what a target keeps for a peer.
func TestOrderedReadsAskForLess(t *testing.T) {
	g := newRig(t, func(c *Config) { c.ReadWindow = 1 << 30 })
	h, err := g.Send(0, &Op{Kind: EvRead, Peer: 1, Buf: make([]byte, 8<<20), Key: 5, Ordered: true}, 8<<20)
	if err != nil || !g.On(h, 7) {
		t.Fatal(err)
	}
	n := 0
	for p, ok := g.Peek(h, 8192); ok; p, ok = g.Peek(h, 8192) {
		g.AppendPiece(nil, p)
		if n++; g.Asks(h, 8192) != maxAskedOrdered/8192-n {
			t.Fatalf("after %d packets %d more", n, g.Asks(h, 8192))
		}
	}
	if n != maxAskedOrdered/8192 {
		t.Errorf("%d packets ask, want %d", n, maxAskedOrdered/8192)
	}
}

// Parts of a byte count as leastCaptured, so that one peer does not take all places of reads.
func TestCaptureOfBytes(t *testing.T) {
	c := newCaptureRig(t, false)
	for off := uint32(0); ; off++ {
		if res := c.ask(ordered, 1, off, 1, 64<<10); res.Nack != 0 {
			if off != maxCapturedPeer/leastCaptured {
				t.Errorf("refused after %d parts", off)
			}
			return
		}
	}
}

// Ordered reads may be asked for in turn: a part that takes the place of a read that has ended is not taken
// for a read.
func TestOrderedReadsInTurn(t *testing.T) {
	c := newCaptureRig(t, false)
	was := bytes.Clone(c.mem)
	ask := func(msg uint16, off, length uint32) {
		t.Helper()
		if res := c.ask(ordered, msg, off, 1000, length); res.Nack != 0 || res.Rsp.RC != wire.RCOK {
			t.Fatalf("%d: %+v", msg, res)
		}
	}
	ask(1, 0, 4000)
	ask(2, 0, 2000)
	ask(2, 1000, 2000)
	for _, p := range c.send(was, 1000) {
		c.Answered(Handle(p.Msg), nil) // the second read ends
	}
	for off := uint32(1000); off < 4000; off += 1000 {
		ask(1, off, 4000)
	}
	for _, p := range c.send(was, 1000) {
		c.Answered(Handle(p.Msg), nil)
	}
	c.wantCaptured(0)
}
