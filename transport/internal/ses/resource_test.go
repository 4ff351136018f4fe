package ses

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// TestResourcesAreBounded shows that the resources of peers are bounded, and that those with
// messages are kept.
func TestResourcesAreBounded(t *testing.T) {
	g := newRig(t)
	send := func(n int, ctx any) Handle {
		to := Target{JobID: 1, PIDonFEP: uint16(n >> 12 & 0xfff), RI: uint16(n & 0xfff)}
		return g.send(Send{Buf: pattern(10), Peer: 1, Ordered: true, Target: to, Context: ctx})
	}
	h := send(0, "waits")
	g.refuseOnce(h, wire.RCDisabledGen, 0)
	g.Advance(time.Second)
	for n := 1; n < maxResources+100; n++ {
		o := send(n, nil)
		p, _ := g.Next(o, 1024)
		g.adopt(g.sends.at(int32(p.Msg&0xffff)), 5)
		g.Answered(o, nil)
		g.event()
		g.Advance(time.Second)
	}
	if n := g.numResources; n > maxResources || n < 2 {
		t.Errorf("%d resources", n)
	}
	g.Advance(2 * time.Second)
	if o, ok := g.Resend(); !ok || o != h {
		t.Fatalf("%v %v comes again, want %v", o, ok, h)
	}
	g.through(h)
	g.wantEvent(EvSend, OK, "waits", 10)
}
