package ses

import "testing"

// held posts a send to a peer and says whether a fence keeps it back.
func (g *rig) held(peer uint32, fence bool, ctx any) (Handle, bool) {
	g.t.Helper()
	h := g.send(Send{Buf: pattern(10), Peer: peer, Target: self(g.SES), Context: ctx})
	return h, (fence || g.Fenced(peer)) && g.Hold(h, fence)
}

// through sends and answers all of h.
func (g *rig) through(h Handle) {
	g.t.Helper()
	for range drain(g.SES, h, 1024) {
		g.Answered(h, nil)
	}
}

// freed wants exactly these sends to be given back.
func (g *rig) freed(want ...Handle) {
	g.t.Helper()
	for _, w := range want {
		if h, ok := g.Unfenced(); !ok || h != w {
			g.t.Fatalf("unfenced %v %v, want %v", h, ok, w)
		}
	}
	if h, ok := g.Unfenced(); ok {
		g.t.Fatalf("unfenced %v too early", h)
	}
}

func TestFence(t *testing.T) {
	// R-ORD-07: the fenced send waits for all earlier ones to its peer, the later
	// ones wait with it; other peers do not. R-ORD-11: behind the fence they are
	// free among themselves.
	g := newRig(t)
	if _, held := g.held(1, true, "first"); held {
		t.Fatal("a fence with nothing before it waits")
	}
	var h [7]Handle
	g = newRig(t)
	h[0], _ = g.held(1, false, 0)
	h[1], _ = g.held(1, false, 1)
	for k := 2; k < 6; k++ {
		var held bool
		if h[k], held = g.held(1, k == 2 || k == 4, k); !held {
			t.Fatalf("send %d passes the fence", k)
		}
	}
	if _, held := g.held(2, true, "other"); held {
		t.Fatal("a fence for one peer stops another")
	}
	g.through(h[1])
	g.freed()
	g.through(h[0])
	if g.NextTimeout() == 0 {
		t.Fatal("nobody is told")
	}
	g.freed(h[2], h[3])
	g.through(h[2])
	g.freed()
	g.through(h[3])
	g.freed(h[4], h[5])
	if g.Fenced(1) {
		t.Fatal("still fenced")
	}
	var held bool
	if h[6], held = g.held(1, false, 6); held {
		t.Fatal("held without a fence")
	}
}

func TestFenceAndFailure(t *testing.T) {
	// R-ORD-13: an earlier send that failed, or was cancelled, has ended too.
	g := newRig(t)
	a, _ := g.held(1, false, "a")
	b, _ := g.held(1, false, "b")
	c, _ := g.held(1, true, "c")
	d, _ := g.held(1, false, "d")
	if _, ok := g.CancelSend("a"); !ok {
		t.Fatal("not cancelled")
	}
	_ = a
	if _, ok := g.CancelSend("d"); !ok { // a held one is cancelled like any other
		t.Fatal("not cancelled")
	}
	_ = d
	g.freed()
	drain(g.SES, b, 1024)
	g.Failed(b, TimedOut, 0)
	g.freed(c)
	g.through(c)
	for _, w := range []struct {
		ctx any
		c   Cause
	}{{"a", Cancelled}, {"d", Cancelled}, {"b", TimedOut}, {"c", OK}} {
		if e := g.event(); e.Context != w.ctx || e.Cause != w.c {
			t.Fatalf("%+v, want %v %v", e, w.ctx, w.c)
		}
	}
	// A cancelled fence goes on holding what came behind it, until what was
	// before it has ended.
	e, _ := g.held(1, false, "e")
	g.held(1, true, "f")
	h, _ := g.held(1, false, "h")
	g.CancelSend("f")
	g.freed()
	g.through(e)
	g.freed(h)
	g.CancelAll()
	if g.Fenced(1) {
		t.Fatal("fenced after the end")
	}
}
