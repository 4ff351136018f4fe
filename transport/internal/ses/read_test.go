package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// asking posts a read of n bytes by PDC 7 and hands out so many pieces of 1,000 bytes, which are
// answered.
func (g *rig) asking(n, pieces int) (Handle, *wire.RspData) {
	g.t.Helper()
	h, err := g.Send(0, &Op{Kind: EvRead, Peer: 1, Buf: make([]byte, n), Key: 5, Context: "r"})
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
