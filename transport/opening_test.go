package transport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

var fourPorts = []uint16{4793, 50001, 50002, 50003}

// aside posts a message from a to b, loses what goes to the main port of b until a packet goes to a
// path port of it, and returns that train and how many timeouts it took.
func aside(p *pipe) (d dgram.Datagram, timeouts int) {
	p.t.Helper()
	p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(100, 1), Context: "s"})
	for ; timeouts < 30; timeouts++ {
		for p.a.Transmit(p.now, &p.d) {
			if p.d.Path != 0 {
				p.t.Fatalf("an opening packet leaves by path %d, and the target knows the main port", p.d.Path)
			}
			if p.d.Remote != p.b.cfg.Local {
				d = p.d
				d.Data = slices.Clone(p.d.Data)
				return d, timeouts
			}
		}
		p.now = p.a.NextTimeout()
		p.a.Advance(p.now)
	}
	return d, timeouts
}

// A PDC that meets silence opens by a path port, and the answer comes from there.
func TestOpeningGoesAside(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = fourPorts })
	p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, 100), Context: "r"})
	d, n := aside(p)
	path := slices.Index(fourPorts, d.Remote.Port())
	if n == 0 || path < 1 || d.Remote.Addr() != p.b.cfg.Local.Addr() {
		t.Fatalf("after %d timeouts a packet goes to %v", n, d.Remote)
	}
	p.b.Receive(p.now, &dgram.Datagram{Data: d.Data, Seg: d.Seg, Remote: p.a.cfg.Local, Path: path})
	p.want(p.b, "r ok len=100")
	p.b.Flush(p.now)
	if !p.b.Transmit(p.now, &p.d) || p.d.Path != path || p.d.Remote != p.a.cfg.Local {
		t.Fatalf("the answer goes to %v by path %d, and the packet came by %d", p.d.Remote, p.d.Path, path)
	}
	p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), fourPorts[path])})
	p.want(p.a, "s ok")
	// It is open: what follows goes to the main port.
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
	if !p.a.Transmit(p.now, &p.d) || p.d.Remote != p.b.cfg.Local {
		t.Errorf("a packet of the open PDC goes to %v", p.d.Remote)
	}
}

// The path port belongs to another FEP by now, which has the same name and waits for the same message:
// it takes the packet for a damaged one.
func TestOpeningAsideMeetsAnother(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = fourPorts })
	d, _ := aside(p)
	for _, main := range []uint16{d.Remote.Port(), d.Remote.Port() + 7} {
		other, err := New(Config{Local: netip.AddrPortFrom(d.Remote.Addr(), main), Paths: []uint16{main, d.Remote.Port() + 20, d.Remote.Port()}}, rand.New(rand.NewPCG(3, 7)))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Post(p.now, &Op{Kind: OpRecv, RI: 15, Buf: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		path := 0
		if main != d.Remote.Port() {
			path = 2
		}
		other.Receive(p.now, &dgram.Datagram{Data: slices.Clone(d.Data), Seg: d.Seg, Remote: p.a.cfg.Local, Path: path})
		if n := other.Stats().Drops[DropCRC]; n != 1 || other.NextEvent() != nil || other.Pending() || other.PDCs() != 0 {
			t.Errorf("at port %d of a FEP at %d: %d dropped, pending %v, %d PDCs", d.Remote.Port(), main, n, other.Pending(), other.PDCs())
		}
	}
}

// Packets with nothing in them that names the target never go aside.
func TestOpeningStays(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"no CRC", func(c *Config) { c.NoCRC = true }},
		{"one port", func(c *Config) { c.Paths = nil }},
		{"standard", func(c *Config) { c.Encapsulation = wire.Standard }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts; c.change(cfg) })
			p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(100, 1)})
			was := ""
			for range 12 {
				for p.a.Transmit(p.now, &p.d) {
					if p.d.Remote != p.b.cfg.Local {
						t.Fatalf("a packet goes to %v", p.d.Remote)
					}
					was += fmt.Sprint(p.d.Path)
				}
				p.now = p.a.NextTimeout()
				p.a.Advance(p.now)
			}
			if len(was) < 5 {
				t.Errorf("paths %s: the test does not test", was)
			}
		})
	}
}

// A damaged packet is dropped at a path port as anywhere, and only what opens a PDC goes aside.
func TestOpeningAsideDamaged(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = fourPorts })
	d, _ := aside(p)
	path := slices.Index(fourPorts, d.Remote.Port())
	for bit := range 8 * len(d.Data) {
		b := slices.Clone(d.Data)
		b[bit/8] ^= 1 << (bit % 8)
		p.b.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.a.cfg.Local, Path: path})
	}
	if n := p.b.Stats().Drops[DropCRC]; int(n) != 8*len(d.Data) || p.b.PDCs() != 0 {
		t.Errorf("%d of %d damaged packets were dropped, %d PDCs", n, 8*len(d.Data), p.b.PDCs())
	}
}
