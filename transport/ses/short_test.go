package ses

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// Take appends and notes of a message what encode does, and what Next and Append do.
func TestTakeIsEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		op := Send{Tagged: rng.IntN(2) == 0, Tag: rng.Uint64(), Buf: pattern(rng.IntN(40)), HasData: rng.IntN(3) == 0, Data: 7, DeliveryComplete: rng.IntN(3) == 0}
		if rng.IntN(3) == 0 {
			op.Buf, op.Iov = nil, [][]byte{pattern(rng.IntN(20)), pattern(rng.IntN(20))}
		}
		gen, fail := uint8(rng.IntN(2)*9), rng.IntN(6) == 0
		mtu := 10 + 40*rng.IntN(2)
		var out [2][]byte
		var left [2]send
		for i := range out {
			g := newRig(t)
			h := g.send(op)
			_, m := g.lookup(h)
			if gen != 0 {
				g.adopt(m, gen)
			}
			for {
				p, ok := g.Peek(h, mtu)
				if !ok {
					break
				}
				if i == 0 {
					out[i] = g.Take(out[i], h, p)
				} else {
					out[i] = g.encode(out[i], h, p, true)
				}
				if fail && m.phase == phaseData {
					g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCTooLong, MsgID: m.hdr.MsgID})
				}
			}
			left[i] = *m
		}
		a, b := left[0], left[1]
		if !bytes.Equal(out[0], out[1]) || a.phase != b.phase || a.next != b.next || a.open != b.open || a.hdr != b.hdr {
			t.Fatalf("%+v by %d: %x\n%x\n%+v\n%+v", op, mtu, out[0], out[1], a, b)
		}
	}
}

func TestEndsThatAreNotPlain(t *testing.T) {
	// Messages that are answered like any other at last, and of whose end there is more
	// to tell, or less.
	g := newRig(t)
	g.events.grow()
	h := g.send(Send{Buf: pattern(30), Context: "failed"})
	n := len(drain(g.SES, h, 10))
	g.Failed(h, Unreachable, 0)
	for range n - 1 {
		g.Answered(h, nil)
	}
	g.wantEvent(EvSend, Unreachable, "failed", 30)
	h = g.send(Send{Buf: pattern(30), Silent: true})
	drain(g.SES, h, 50)
	g.Answered(h, nil)
	if h == 0 || g.Sends() != 0 {
		t.Error("the silent send has not ended")
	}
	g.rest()
}

func TestAnswersInTurn(t *testing.T) {
	// A plain success after another answer has nothing left of that.
	g := newRig(t)
	for i := range 3 {
		g.recv(Recv{Tagged: true, Tag: 7, Context: i})
		g.want(srcA, from(16, g, Send{Tagged: true, Tag: 7}), "default OK 0")
		g.wantEvent(EvRecv, OK, i, 0)
		if i == 1 {
			g.want(srcA, from(16, g, Send{Tagged: true, Tag: 8, Buf: pattern(9)}), "response OK overflow 9 gtd")
		}
	}
}

func TestRecvAfterTheEnd(t *testing.T) {
	g := newRig(t)
	g.End()
	g.recv(Recv{Context: "late"})
	g.wantEvent(EvRecv, Cancelled, "late", 0)
}

func TestRunBehindReceivesWithoutAClass(t *testing.T) {
	// Receives that have no class are older than what is posted when no class is left.
	g := newRig(t)
	cancel := func(ctx any) {
		if !g.CancelRecv(ctx) {
			t.Fatal("nothing to cancel")
		}
		g.wantEvent(EvRecv, Cancelled, ctx, 0)
	}
	g.recv(Recv{Tagged: true, Tag: 1 << 62, Context: -1})
	for i := range numClassesMax {
		g.recv(Recv{Tagged: true, Tag: 1 << 62, Ignore: 1 << i, Context: i})
	}
	g.recv(Recv{Tagged: true, Tag: 7, Ignore: 1 << 40, Context: "older"})
	for i := -1; i < numClassesMax; i++ {
		cancel(i)
	}
	g.recv(Recv{Tagged: true, Tag: 7, Context: "younger"})
	for _, ctx := range []any{"older", "younger"} {
		g.want(srcA, from(16, g, Send{Tagged: true, Tag: 7}), "default OK 0")
		g.wantEvent(EvRecv, OK, ctx, 0)
	}
}
