package transport

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// met is a pipe over which a message has already gone.
func met(t *testing.T, change func(*Config)) *pipe {
	p := newPipe(t, change)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(64, 1), Context: "first"})
	p.exchange()
	p.want(p.a, "first ok")
	return p
}

// The fast path of a train makes the same train as the general path, and leaves the same
// state.
func TestLoneIsAsOthers(t *testing.T) {
	for _, kind := range []string{"clear", "without CRC", "sealed", "paths", "trimming"} {
		t.Run(kind, func(t *testing.T) {
			var trains [2]*dgram.Datagram
			var dumps [2]string
			for i := range trains {
				change := func(c *Config) {
					c.NoCRC, c.Trimming = kind == "without CRC", kind == "trimming"
					if kind == "paths" {
						c.Paths = []uint16{4793, 4794, 4795}
					}
				}
				if kind == "sealed" {
					change = secured(t, nil)
				}
				p := met(t, change)
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(64, 2), Context: "s"})
				f, d := p.a, &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
				f.begin(d)
				if i == 1 {
					f.fillData(p.now, p.toB, &f.peers[p.toB])
					f.follow()
				} else if !f.fillAlone(p.now, p.toB, &f.peers[p.toB]) {
					t.Fatal("not taken for a lone one")
				}
				trains[i], dumps[i] = d, f.Dump()
			}
			x, y := trains[0], trains[1]
			if !bytes.Equal(x.Data, y.Data) || x.Seg != y.Seg || x.Remote != y.Remote || x.Path != y.Path || x.TOS != y.TOS {
				t.Errorf("%+v, want %+v", x, y)
			}
			if dumps[0] != dumps[1] {
				t.Errorf("%s\nwant %s", dumps[0], dumps[1])
			}
		})
	}
}

// A packet that is not all there is to send, or that must not be sent, does not use the
// fast path.
func TestLoneIsNotTaken(t *testing.T) {
	send := func(p *pipe, n int) {
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Context: "s"})
	}
	leave := func(p *pipe) {
		for p.a.Transmit(p.now, &p.d) {
		}
	}
	lose := func(p *pipe) { // loses what was sent
		for lost := false; !lost; p.a.pds.Each(func(pdc *pds.PDC) { lost = lost || pdc.Lost() }) {
			p.now = max(p.now, p.a.NextTimeout())
			p.a.Advance(p.now)
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		post   func(p *pipe)
		to     func(p *pipe) PeerID
	}{
		"two messages":      {post: func(p *pipe) { send(p, 64); send(p, 64) }},
		"two packets":       {post: func(p *pipe) { send(p, 1500) }},
		"one lost before":   {post: func(p *pipe) { send(p, 64); leave(p); lose(p); send(p, 64) }},
		"others were lost":  {post: func(p *pipe) { send(p, 60<<10); leave(p); send(p, 64); lose(p) }},
		"a closed window":   {change: narrow, post: func(p *pipe) { send(p, 900); send(p, 900); leave(p); send(p, 900) }},
		"a PDC that closes": {post: func(p *pipe) { send(p, 64); p.a.Quiesce(p.now, p.toB) }},
		"cancelled":         {post: func(p *pipe) { send(p, 64); p.a.Cancel(p.now, 0, "s") }},
		"the place is another's": {post: func(p *pipe) { send(p, 64) }, to: func(p *pipe) PeerID {
			id, _ := p.a.Peer(netip.MustParseAddrPort("198.18.0.9:4793"), true)
			p.a.peers[id].data.push(p.a.peers[p.toB].short.Slot)
			return id
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := met(t, c.change)
			c.post(p)
			id := p.toB
			if c.to != nil {
				id = c.to(p)
			}
			was := p.a.Dump()
			d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
			p.a.begin(d)
			if p.a.fillAlone(p.now, id, &p.a.peers[id]) || len(d.Data) > 0 {
				t.Errorf("taken for a lone one:\n%s", was)
			}
			if is := p.a.Dump(); is != was {
				t.Errorf("%s\nwas %s", is, was)
			}
		})
	}
}

// owing is a pipe whose b owes an ACK that is due, for a message that a receive got.
func owing(t *testing.T, change func(*Config)) *pipe {
	p := newPipe(t, change)
	for i := range 2 {
		p.exchange()
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 64)})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(64, byte(i))})
	}
	p.move(p.a, p.b)
	p.b.Flush(p.now)
	return p
}

// The fast path of an ACK makes the same train as the general path, and leaves the same
// state.
func TestLoneAckIsAsOthers(t *testing.T) {
	for _, kind := range []string{"clear", "without CRC", "sealed", "trimming"} {
		t.Run(kind, func(t *testing.T) {
			var trains [2]*dgram.Datagram
			var dumps [2]string
			for i := range trains {
				change := func(c *Config) { c.NoCRC, c.Trimming = kind == "without CRC", kind == "trimming" }
				if kind == "sealed" {
					change = secured(t, nil)
				}
				p := owing(t, change)
				f, d := p.b, &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
				f.begin(d)
				if i == 1 {
					f.fillControl(p.now)
				} else if !f.fillAckAlone(p.now) {
					t.Fatal("not taken for a lone one")
				}
				if trains[i], dumps[i] = d, f.Dump(); f.Pending() || f.Owes() {
					t.Error("something is left")
				}
			}
			x, y := trains[0], trains[1]
			if !bytes.Equal(x.Data, y.Data) || x.Seg != y.Seg || x.Remote != y.Remote || x.Path != y.Path || x.TOS != y.TOS {
				t.Errorf("%+v, want %+v", x, y)
			}
			if dumps[0] != dumps[1] {
				t.Errorf("%s\nwant %s", dumps[0], dumps[1])
			}
		})
	}
}

// Anything but a single ACK that is all that is due does not use the fast path.
func TestLoneAckIsNotTaken(t *testing.T) {
	for name, more := range map[string]func(p *pipe) *pipe{
		"not due": func(p *pipe) *pipe {
			p.b.todo.flush = false
			return p
		},
		"another peer": func(p *pipe) *pipe {
			id, _ := p.b.Peer(netip.MustParseAddrPort("198.18.0.9:4793"), true)
			p.b.todo.acks.push(id)
			return p
		},
		"another PDC": func(p *pipe) *pipe {
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(64, 2), Ordered: true})
			p.move(p.a, p.b)
			return p
		},
		"a PDC that is gone": func(p *pipe) *pipe {
			p.b.lanes[p.b.peers[p.toA].owing.front()].pdc = nil
			return p
		},
		"a result": func(p *pipe) *pipe {
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(64, 2)}) // without a receive its response is guaranteed
			p.move(p.a, p.b)
			return p
		},
		"a probe": func(p *pipe) *pipe {
			p.drop = func(from *FEP, _ []byte) bool { return from == p.b }
			p.move(p.b, p.a)
			for probes := p.a.Stats().CPTx; p.a.Stats().CPTx == probes; p.move(p.a, p.b) {
				p.now = max(p.now, p.a.NextTimeout())
				p.a.Advance(p.now)
			}
			p.b.Flush(p.now)
			return p
		},
		"a lane given anew": func(p *pipe) *pipe {
			p.b.lanes[p.b.peers[p.toA].owing.front()].owing = false
			return p
		},
		"an answer to a stranger": func(p *pipe) *pipe {
			p.b.Receive(p.now, &dgram.Datagram{Data: strange(p), Remote: p.a.cfg.Local})
			if !p.b.pds.Loose() {
				p.t.Fatal("no answer")
			}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := more(owing(t, nil))
			f, was := p.b, p.b.Dump()
			d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
			f.begin(d)
			if f.fillAckAlone(p.now) || len(d.Data) > 0 {
				t.Errorf("taken for a lone one:\n%s", was)
			}
			if is := f.Dump(); is != was {
				t.Errorf("%s\nwas %s", is, was)
			}
		})
	}
}

// strange is a request of a for a PDC that b does not have. A NACK answers it.
func strange(p *pipe) []byte {
	b := (&wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, SPDCID: 77, DPDCID: 88, ClearOff: -1}).Append(nil)
	b = (&wire.ReqStd{}).Append(b)
	a, z := p.a.cfg.Local, p.b.cfg.Local
	return wire.AppendCRC(b, 0, wire.CRCPrefix(a.Addr(), z.Addr(), a.Port(), z.Port(), uint16(8+len(b)+wire.CRCLen)))
}

// closer is a CCC that closes the PDC when its next packet leaves, as if its PSNs were used
// up.
type closer struct {
	pds.CCC
	onSend func()
}

func (c *closer) OnSend(now time.Duration, n int) bool {
	if c.onSend != nil {
		c.onSend()
	}
	return c.CCC.OnSend(now, n)
}

// F34: after the message with the last PSN, its PDC still has something to do.
func TestLoneWithTheLastPSN(t *testing.T) {
	var c *closer
	p := met(t, func(cfg *Config) {
		cfg.NewCCC = func(window int) pds.CCC {
			c = &closer{CCC: cms.New(cms.Config{MTU: 2048, Window: window, BaseRTT: 50 * time.Microsecond, RTOInit: time.Millisecond, RTOMax: time.Second})}
			return c
		}
	})
	c.onSend = func() { p.a.pds.Each(func(pdc *pds.PDC) { p.a.pds.Close(p.now, pdc) }) }
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 64), Context: "s"})
	p.move(p.a, p.b)
	p.a.pds.Each(func(pdc *pds.PDC) {
		if s := pdc.State(); s != pds.AckWait {
			t.Errorf("it left, and the PDC is %v", s)
		}
	})
	p.exchange()
	for range 10 {
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
	p.want(p.a, "s ok")
	if s := p.a.Stats(); s.PDCOpened != 1 || s.PDCClosed != 1 || p.a.PDCs() != 0 {
		t.Errorf("%d PDCs opened, %d closed, %d left", s.PDCOpened, s.PDCClosed, p.a.PDCs())
	}
}
