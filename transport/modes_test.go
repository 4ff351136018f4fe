package transport

import (
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// modeCounts are the counts of Stats.Ops, by mode.
type modeCounts struct{ rud, rod, rudi, uud uint64 }

func modesOf(f *FEP) modeCounts {
	s := f.Stats()
	return modeCounts{s.Ops(wire.RUD), s.Ops(wire.ROD), s.Ops(wire.RUDI), s.Ops(wire.UUD)}
}

// TestOpsByMode: each operation of each kind counts once, at the side that posted it, by the mode by which it went, also if
// packets are lost.
func TestOpsByMode(t *testing.T) {
	const plainKey = 7
	sum := func(fetch bool) *AMO {
		a := &AMO{Op: wire.AtomicSum, Type: wire.Uint64}
		if fetch {
			a.Result = make([]byte, 8)
		}
		return a
	}
	for _, loss := range []int{0, 5} {
		for name, c := range map[string]struct {
			ops  []Op
			want modeCounts
		}{
			"RUD": {[]Op{
				{Kind: OpSend, Buf: make([]byte, 5000)}, {Kind: OpTSend, Buf: make([]byte, 8)}, {Kind: OpTSend, Buf: make([]byte, 8), Inject: true, Level: LevelInject},
				{Kind: OpWrite, Key: plainKey, Buf: make([]byte, 5000)}, {Kind: OpWrite, Key: plainKey, Buf: make([]byte, 8), HasData: true}, {Kind: OpRead, Key: plainKey, Buf: make([]byte, 5000)},
				{Kind: OpAtomic, Key: plainKey, Buf: make([]byte, 8), AMO: sum(false)}, {Kind: OpFetch, Key: plainKey, Buf: make([]byte, 8), AMO: sum(true)},
			}, modeCounts{rud: 8}},
			"ROD": {[]Op{
				{Kind: OpSend, Buf: make([]byte, 5000), Ordered: true}, {Kind: OpTSend, Buf: make([]byte, 8), Ordered: true},
				{Kind: OpWrite, Key: plainKey, Buf: make([]byte, 5000), Ordered: true}, {Kind: OpRead, Key: plainKey, Buf: make([]byte, 5000), Ordered: true},
				{Kind: OpAtomic, Key: plainKey, Buf: make([]byte, 8), AMO: sum(false), Ordered: true}, {Kind: OpFetch, Key: plainKey, Buf: make([]byte, 8), AMO: sum(true), Ordered: true},
			}, modeCounts{rod: 6}},
			"RUDI": {[]Op{
				{Kind: OpWrite, Key: idemKey, Buf: make([]byte, 5000), Idempotent: true}, {Kind: OpWrite, Key: idemKey, Buf: make([]byte, 8), Idempotent: true},
				{Kind: OpRead, Key: idemKey, Buf: make([]byte, 5000), Idempotent: true},
			}, modeCounts{rudi: 3}},
			"order before RUDI": {[]Op{{Kind: OpWrite, Key: idemKey, Buf: make([]byte, 8), Idempotent: true, Ordered: true}}, modeCounts{rod: 1}},
			"data before RUDI":  {[]Op{{Kind: OpWrite, Key: idemKey, Buf: make([]byte, 8), Idempotent: true, HasData: true}}, modeCounts{rud: 1}},
			"refused": {[]Op{
				{Kind: OpWrite, Key: 99, Buf: make([]byte, 8)}, {Kind: OpRead, Key: 99, Buf: make([]byte, 8), Ordered: true},
				{Kind: OpWrite, Key: idemKey + 1, Buf: make([]byte, 8), Idempotent: true},
			}, modeCounts{}},
		} {
			t.Run(fmt.Sprintf("%s/loss=%d", name, loss), func(t *testing.T) {
				p := newIdem(t, nil)
				if _, err := p.b.Register(RegionConfig{Key: plainKey, Buf: make([]byte, 8000), Access: RemoteWrite | RemoteRead | RemoteAtomic, Endpoint: AllEndpoints}); err != nil {
					t.Fatal(err)
				}
				n := 0
				p.drop = func(*FEP, []byte) bool { n++; return loss > 0 && n%loss == 0 }
				for _, op := range c.ops {
					switch op.Kind {
					case OpSend:
						p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 5000)})
					case OpTSend:
						p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 5000)})
					}
					op.Peer, op.RI, op.Context = p.toB, 15, op.Kind
					p.post(p.a, op)
				}
				got := p.run(len(c.ops))
				c.want.rud++ // the one that opened the PDC
				if m := modesOf(p.a); m != c.want || p.a.Stats().MsgsTx != m.rud+m.rod+m.rudi+m.uud {
					t.Errorf("%+v, want %+v; %q", m, c.want, got)
				}
				if m := modesOf(p.b); m != (modeCounts{}) {
					t.Errorf("the target counts %+v", m)
				}
				for range c.ops { // in the places of those before
					p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: plainKey, Buf: make([]byte, 8), Context: "write"})
				}
				p.run(len(c.ops))
				if c.want.rud += uint64(len(c.ops)); modesOf(p.a) != c.want {
					t.Errorf("%+v after others, want %+v", modesOf(p.a), c.want)
				}
			})
		}
	}
	p := newGrams(t, nil)
	for i := range 3 {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 100), Ordered: i == 1, Inject: i == 2, Context: i})
	}
	p.exchange()
	if m := modesOf(p.a); m != (modeCounts{uud: 3}) {
		t.Errorf("datagrams: %+v", m)
	}
}

// Whichever PDC is open to the peer, what may go by RUDI goes so.
func TestRUDIOnceAnyPDCIsOpen(t *testing.T) {
	for name, op := range map[string]Op{
		"short": {Buf: make([]byte, 8), Idempotent: true}, "long": {Buf: make([]byte, 300_000), Idempotent: true}, "ordered": {Buf: make([]byte, 8), Ordered: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t, nil)
			if _, err := p.b.Register(RegionConfig{Key: idemKey, Buf: make([]byte, 300_000), Access: RemoteWrite, Endpoint: AllEndpoints}); err != nil {
				t.Fatal(err)
			}
			op.Kind, op.Peer, op.RI, op.Key, op.Context = OpWrite, p.toB, 15, idemKey, "op"
			for i := range uint64(3) {
				p.post(p.a, op)
				p.exchange()
				p.want(p.a, "op ok")
				if got := p.a.Stats().Ops(wire.RUDI); got != i {
					t.Errorf("%d of %d by RUDI", got, i+1)
				}
				op.Idempotent, op.Ordered = true, false
			}
		})
	}
}

// An operation that goes by several PDCs, or first by RUDI and then by RUD, is one, of the mode by which it went in the end.
func TestOpsThatMoveCountOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(c *Config)
		arrange func(p *idemPipe)
		op      Op
		n       int
		during  func(p *idemPipe)
		want    modeCounts
	}{
		"to another PDC": {
			change:  func(c *Config) { c.Lanes = 1 },
			arrange: func(p *idemPipe) { p.drop = func(*FEP, []byte) bool { return true } },
			op:      Op{Kind: OpWrite, Key: idemKey, Buf: make([]byte, 300_000)}, n: 3,
			during: func(p *idemPipe) {
				p.a.pds.Close(p.now, p.a.peers[p.toB].long[0])
				p.a.wake(p.a.peers[p.toB].long[0])
				p.exchange()
				p.drop = nil
			},
			want: modeCounts{rud: 3},
		},
		"to RUD": {
			arrange: func(p *idemPipe) {
				for i := range p.b.peers {
					p.b.peers[i].proven, p.b.peers[i].known = false, false
				}
			},
			op: Op{Kind: OpRead, Key: idemKey, Buf: make([]byte, 4), Idempotent: true}, n: 1, want: modeCounts{rud: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIdem(t, c.change)
			was := modesOf(p.a)
			c.arrange(p)
			for range c.n {
				c.op.Peer, c.op.RI, c.op.Context = p.toB, 15, "op"
				p.post(p.a, c.op)
			}
			p.exchange()
			if c.during != nil {
				c.during(p)
			}
			for _, e := range p.run(c.n) {
				if e != "op ok" {
					t.Errorf("ends %q", e)
				}
			}
			m := modesOf(p.a)
			m.rud, m.rod, m.rudi = m.rud-was.rud, m.rod-was.rod, m.rudi-was.rudi
			if m != c.want {
				t.Errorf("%+v, want %+v", m, c.want)
			}
		})
	}
	// An ordered message that its target has deferred is asked for, and goes by RUD then.
	p := newPipe(t, func(c *Config) { c.DeferrableMin = 1 })
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(100, 1), Level: LevelMatch, Ordered: true, Context: "s"})
	p.turns(5)
	p.want(p.a)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 100), Context: "r"})
	p.turns(5)
	p.want(p.a, "s ok")
	if m := modesOf(p.a); m != (modeCounts{rud: 1}) {
		t.Errorf("deferred: %+v", m)
	}
	if m := modesOf(p.b); m != (modeCounts{}) {
		t.Errorf("the target of a deferral counts %+v", m)
	}
}
