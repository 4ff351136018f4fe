package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestUnrunBeginsAnew(t *testing.T) {
	// S-LIFE-03: a message whose pieces all came back begins anew under another message id, with
	// whatever part of it was answered or not handed out.
	for _, c := range []struct {
		name                string
		handed, answered, n int
	}{{"all of it was sent", 3, 0, 3000}, {"half of it was sent", 2, 0, 3000}, {"a former life had the beginning", 3, 1, 3000}, {"one piece", 1, 0, 10}, {"empty", 1, 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			h := g.send(Send{Buf: pattern(c.n), Context: c.name, Target: self(g.SES)})
			id := g.sends.at(int32(h & 0xffff)).hdr.MsgID
			for range c.handed {
				g.Next(h, 1024)
			}
			for range c.answered {
				g.Answered(h, nil)
			}
			for i := range c.handed - c.answered {
				if g.Unbegun(h) {
					t.Fatal("it has not begun although pieces are out")
				}
				if got := g.Unrun(h); got != (i == c.handed-c.answered-1) {
					t.Fatalf("piece %d: begins anew: %v", i, got)
				}
			}
			g.quiet()
			if !g.Unbegun(h) || g.sends.at(int32(h&0xffff)).hdr.MsgID == id {
				t.Error("it has begun, or has the message id of before")
			}
			got := drain(g.SES, h, 1024)
			if want := max(1, (c.n+1023)/1024); len(got) != want {
				t.Fatalf("%d pieces, want %d", len(got), want)
			}
			for range got {
				g.Answered(h, nil)
			}
			g.wantEvent(EvSend, OK, c.name, c.n)
			if g.Unrun(h) || g.Stats.Stale != 1 {
				t.Error("a message that ended was taken back")
			}
			g.rest()
		})
	}
}

func TestUnrunOfWhatEnds(t *testing.T) {
	// A message that was refused, given up or withdrawn does not begin anew: it ends with that
	// cause, and for certain.
	for _, c := range []struct {
		name  string
		end   func(g *rig, h Handle)
		cause Cause
		out   int // pieces that come back
	}{
		{"refused", func(g *rig, h Handle) { g.Answered(h, perm) }, Rejected, 2},
		{"failed", func(g *rig, h Handle) { g.Failed(h, TimedOut, 0) }, TimedOut, 2},
		{"withdrawn", func(g *rig, h Handle) { g.CloseEndpoint(0) }, Cancelled, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			h := g.send(Send{Buf: pattern(3000), Context: c.name, Target: self(g.SES)})
			drain(g.SES, h, 1024)
			c.end(g, h)
			for range c.out {
				g.quiet()
				if g.Unrun(h) {
					t.Fatal("it begins anew")
				}
			}
			if e := g.wantEvent(EvSend, c.cause, c.name, 3000); e.Unknown || c.cause == Rejected && e.RC != wire.RCPermViolation {
				t.Errorf("unknown %v, %v", e.Unknown, e.RC)
			}
		})
	}
}
