package ses

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// sendFenced posts a send to a peer and reports whether a fence keeps it back.
func (g *rig) sendFenced(peer uint32, fence bool, ctx any) (Handle, bool) {
	g.t.Helper()
	h := g.send(Send{Buf: pattern(10), Peer: peer, Target: self(g.SES), Context: ctx})
	return h, (fence || g.Fenced(0, peer)) && g.Fence(h, fence)
}

// through sends and answers all of h.
func (g *rig) through(h Handle) {
	g.t.Helper()
	for range drain(g.SES, h, 1024) {
		g.Answered(h, nil)
	}
}

// freed fails the test unless exactly these sends are given back.
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
	// R-ORD-07: a fenced send waits for all earlier ones to its peer, and the later ones wait
	// with it; those to other peers do not. R-ORD-11: the sends behind a fence are free of each
	// other.
	g := newRig(t)
	if _, kept := g.sendFenced(1, true, "first"); kept {
		t.Fatal("a fence with nothing before it waits")
	}
	var h [7]Handle
	g = newRig(t)
	h[0], _ = g.sendFenced(1, false, 0)
	h[1], _ = g.sendFenced(1, false, 1)
	for k := 2; k < 6; k++ {
		var kept bool
		if h[k], kept = g.sendFenced(1, k == 2 || k == 4, k); !kept {
			t.Fatalf("send %d passes the fence", k)
		}
	}
	if _, kept := g.sendFenced(2, true, "other"); kept {
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
	if g.Fenced(0, 1) {
		t.Fatal("still fenced")
	}
	var kept bool
	if h[6], kept = g.sendFenced(1, false, 6); kept {
		t.Fatal("kept without a fence")
	}
}

func TestFenceAndFailure(t *testing.T) {
	// R-ORD-13: an earlier send that failed or was cancelled has ended, too.
	g := newRig(t)
	a, _ := g.sendFenced(1, false, "a")
	b, _ := g.sendFenced(1, false, "b")
	c, _ := g.sendFenced(1, true, "c")
	d, _ := g.sendFenced(1, false, "d")
	if _, ok := g.CancelSend(0, "a"); !ok {
		t.Fatal("not cancelled")
	}
	_ = a
	if _, ok := g.CancelSend(0, "d"); !ok { // a kept one is cancelled like any other
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
	// A cancelled fence still keeps back the sends behind it until those before it have ended.
	e, _ := g.sendFenced(1, false, "e")
	g.sendFenced(1, true, "f")
	h, _ := g.sendFenced(1, false, "h")
	g.CancelSend(0, "f")
	g.freed()
	g.through(e)
	g.freed(h)
	g.CancelAll()
	if g.Fenced(0, 1) {
		t.Fatal("fenced after the end")
	}
}

func TestCancelledHandleDoesNotComeBack(t *testing.T) {
	// A send that is cancelled behind a fence is never given back, however long the fence
	// waits: also not as the later send that has its place.
	g := newRig(t)
	a, _ := g.sendFenced(1, false, "a")
	b, _ := g.sendFenced(1, true, "b")
	c, _ := g.sendFenced(1, false, "c")
	g.CancelSend(0, "c")
	g.event()
	h := g.send(Send{Peer: 2, Target: self(g.SES)})
	for range 1 << 17 {
		if h == c {
			break
		}
		g.through(h)
		g.event()
		h = g.send(Send{Peer: 2, Target: self(g.SES)})
	}
	if h != c {
		t.Fatal("no send got that handle")
	}
	g.through(a)
	g.freed(b)
}

func TestPeerGone(t *testing.T) {
	// F9: when a peer is gone, the sends to it end of which nothing is under way: those kept
	// back by a fence, those to be sent again, and those for which a response was promised. The
	// target may have the last one.
	g := newRig(t)
	wait := g.send(Send{Peer: 1, Buf: pattern(10), Context: "waits", Target: self(g.SES)})
	g.refuseOnce(wait, wire.RCNoMatch, 0)
	ready := g.send(Send{Peer: 1, Buf: pattern(10), Context: "ready", Target: self(g.SES)})
	g.refuseOnce(ready, wire.RCNoMatch, 0)
	g.Advance(time.Second)
	g.Advance(2 * time.Second)
	promised := g.send(Send{Peer: 1, Buf: pattern(10), Context: "promised", Target: self(g.SES)})
	drain(g.SES, promised, 1024)
	g.Answered(promised, &wire.Rsp{Opcode: wire.RspNone})
	again := g.send(Send{Peer: 1, Buf: pattern(10), Context: "again", Target: self(g.SES)})
	g.refuseOnce(again, wire.RCNoMatch, 0)
	other, _ := g.sendFenced(2, false, "other")
	way, _ := g.sendFenced(1, false, "under way")
	drain(g.SES, way, 1024)
	g.sendFenced(1, true, "fenced")
	g.sendFenced(1, false, "behind")
	g.quiet()
	g.PeerGone(1, TimedOut)
	var ended []string
	for e := g.Event(); e != nil; e = g.Event() {
		name := e.Context.(string)
		if e.Cause != TimedOut || e.Unknown != (name == "promised") {
			t.Errorf("%v ends %v, unknown %v", name, e.Cause, e.Unknown)
		}
		ended = append(ended, name)
	}
	slices.Sort(ended)
	if want := []string{"again", "behind", "fenced", "promised", "ready", "waits"}; !slices.Equal(ended, want) {
		t.Fatalf("%q ended, want %q", ended, want)
	}
	if _, ok := g.Resend(); ok || g.Sends() != 2 {
		t.Errorf("%d sends are left", g.Sends())
	}
	g.Failed(way, TimedOut, 0)
	g.wantEvent(EvSend, TimedOut, "under way", 10)
	g.freed()
	g.through(other)
	g.wantEvent(EvSend, OK, "other", 10)
	g.rest()
}

func TestFenceWalk(t *testing.T) {
	// Sends to two peers are fenced, answered, refused for now, failed, cancelled or given up
	// with their peer, in any order. Each ends once, none leaves while a fence keeps it back,
	// and none that has ended is given back.
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		g := newRig(t)
		now := time.Second
		live := map[Handle]int{}  // context
		free := map[Handle]bool{} // may be taken
		out := map[Handle]bool{}  // its one piece is under way
		fenced := map[int]bool{}  // contexts of fences
		peer := map[int]uint32{}
		next := 0
		ends := func() {
			for e := g.Event(); e != nil; e = g.Event() {
				ctx, found := e.Context.(int), false
				for h, c := range live {
					if c == ctx {
						delete(live, h)
						delete(free, h)
						delete(out, h)
						found = true
					}
				}
				if !found {
					t.Fatalf("seed %d: %d ended twice", seed, ctx)
				}
			}
		}
		back := func() {
			for {
				h, ok := g.Unfenced()
				if !ok {
					if h, ok = g.Resend(); !ok {
						return
					}
				}
				c, ok := live[h]
				if !ok || free[h] || out[h] {
					t.Fatalf("seed %d: %#x comes back: live %v, free %v, under way %v", seed, h, ok, free[h], out[h])
				}
				free[h] = true
				if fenced[c] {
					for _, o := range live {
						if o < c && peer[o] == peer[c] {
							t.Fatalf("seed %d: %d passes its fence before %d ended", seed, c, o)
						}
					}
				}
			}
		}
		pick := func(m map[Handle]bool) (Handle, bool) {
			var all []Handle
			for h := range m {
				all = append(all, h)
			}
			if len(all) == 0 {
				return 0, false
			}
			slices.Sort(all)
			return all[rng.IntN(len(all))], true
		}
		step := func(op int) {
			switch op {
			case 0, 1, 2:
				p, fence := 1+rng.Uint32N(2), rng.IntN(4) == 0
				h, kept := g.sendFenced(p, fence, next)
				live[h], fenced[next], peer[next] = next, fence && kept, p
				next++
				if !kept {
					free[h] = true
				}
			case 3, 4, 5:
				if h, ok := pick(free); ok {
					drain(g.SES, h, 1024)
					delete(free, h)
					out[h] = true
				}
			case 6, 7, 8, 9:
				if h, ok := pick(out); ok {
					delete(out, h)
					switch rng.IntN(5) {
					case 0:
						g.Answered(h, rsp(wire.RspResponse, wire.RCNoMatch))
					case 1:
						g.Failed(h, TimedOut, 0)
					default:
						g.Answered(h, nil)
					}
				}
			case 10:
				if next > 0 {
					g.CancelSend(0, rng.IntN(next))
				}
			case 11:
				if rng.IntN(4) == 0 {
					g.PeerGone(1+rng.Uint32N(2), TimedOut)
				}
			case 12:
				now += time.Duration(rng.IntN(200)) * time.Millisecond
				g.Advance(now)
			}
			ends()
			back()
		}
		for range 400 {
			step(rng.IntN(13))
		}
		for n := 0; g.Sends() > 0; n++ {
			if n > 20_000 {
				t.Fatalf("seed %d: %d sends for ever", seed, g.Sends())
			}
			step(3 + rng.IntN(10))
		}
		if len(live) != 0 || g.Fenced(0, 1) || g.Fenced(0, 2) {
			t.Fatalf("seed %d: %d are left, fenced %v %v", seed, len(live), g.Fenced(0, 1), g.Fenced(0, 2))
		}
	}
}
