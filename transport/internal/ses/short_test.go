package ses

import "testing"

func TestEndsThatAreNotPlain(t *testing.T) {
	// Messages take the general path if their last answer is plain but their end is special.
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
	// A plain success after another answer shows nothing of that one.
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

func TestPostsAfterTheEnd(t *testing.T) {
	g := newRig(t)
	g.End()
	g.recv(Recv{Context: "late"})
	g.wantEvent(EvRecv, Cancelled, "late", 0)
	if _, err := g.Send(0, &Op{Kind: EvSend, Buf: pattern(1), Peer: 1}, 1); err != ErrClosed {
		t.Errorf("a send after the end: %v", err)
	}
}

func TestRunBehindReceivesWithoutAClass(t *testing.T) {
	// Receives without a class are older than what is posted when no class is left.
	g := newRig(t)
	cancel := func(ctx any) {
		if !g.CancelRecv(0, ctx) {
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

// What is left of a message is not the whole of it, even if one packet carries more than when it began.
func TestWholeIsNotTheRest(t *testing.T) {
	g := newRig(t)
	h := g.send(Send{Peer: 1, Buf: pattern(3000)})
	if _, n := g.Whole(h, 2999); n >= 0 {
		t.Errorf("%d bytes in a packet of 2,999", n)
	}
	if _, n := g.Whole(h, 3000); n != 3000 {
		t.Errorf("%d bytes, want 3,000", n)
	}
	if p, ok := g.Next(h, 1000); !ok || p.Len != 1000 {
		t.Fatalf("%+v, %v", p, ok)
	}
	if _, n := g.Whole(h, 4000); n >= 0 {
		t.Errorf("%d bytes of a message that has begun", n)
	}
}
