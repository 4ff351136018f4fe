package transport

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// S-AMO-10: an operation that waits for a receive ends at once when the target turns to something else: its endpoint closes, it leaves, or
// it has room again for what a multi-receive buffer gets.
func TestTaggedAtomicWaits(t *testing.T) {
	for name, c := range map[string]struct {
		post  *Op
		turn  func(p *pipe, room *bool)
		want  string
		there []string
	}{
		"endpoint":    {nil, func(p *pipe, _ *bool) { p.b.CloseEndpoint(p.now, 0) }, "f refused", nil},
		"leave":       {nil, func(p *pipe, _ *bool) { p.b.Leave(p.now) }, "f refused", nil},
		"starved":     {&Op{Kind: OpTRecv, Tag: 7, Buf: make([]byte, 64), Multi: true, MinFree: 8, Context: "m"}, func(p *pipe, room *bool) { *room = true }, "f ok", []string{"m ok len=32"}},
		"receive":     {nil, func(p *pipe, _ *bool) { p.post(p.b, Op{Kind: OpTRecv, Tag: 7, Buf: make([]byte, 64), Context: "r"}) }, "f ok", []string{"r ok len=32"}},
		"other's end": {nil, func(p *pipe, _ *bool) { p.a.Abandon(p.now, p.toB) }, "f cancelled", nil},
	} {
		t.Run(name, func(t *testing.T) {
			room := false
			p := newPipe(t, func(c *Config) {
				c.Atomics = RemoteRead | RemoteWrite | RemoteAtomic
				c.Admit = func() bool { return room }
			})
			if c.post != nil {
				p.post(p.b, *c.post)
			}
			p.post(p.a, Op{Kind: OpFetch, Peer: p.toB, RI: 15, Tag: 7, Buf: make([]byte, 32), AMO: &AMO{Op: wire.AtomicSum, Type: wire.Uint64, Result: make([]byte, 32), Tagged: true}, Context: "f"})
			p.exchange()
			if got := p.events(p.a); len(got) != 0 {
				t.Fatalf("it has ended: %q", got)
			}
			c.turn(p, &room)
			if c.post != nil { // in time
				p.now += 10 * time.Millisecond
				p.b.Advance(p.now)
			}
			p.exchange()
			p.want(p.a, c.want)
			p.want(p.b, c.there...)
		})
	}
}
