package transport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
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

// guarded are what names the target at a path port: the CRC, or the ICV of a sealed packet.
func guarded(t *testing.T, f func(t *testing.T, change func(*Config), drop DropReason)) {
	t.Run("CRC", func(t *testing.T) { f(t, func(c *Config) { c.Paths = fourPorts }, DropCRC) })
	for _, oneRTT := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed, one RTT %v", oneRTT), func(t *testing.T) {
			sec := secured(t, nil)
			f(t, func(c *Config) { c.Paths = fourPorts; c.OneRTT = oneRTT; sec(c) }, DropAuth)
		})
	}
}

// A PDC that meets silence opens by a path port, and the answer comes from there.
func TestOpeningGoesAside(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		p := newPipe(t, change)
		p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, 100), Context: "r"})
		d, n := aside(p)
		path := slices.Index(fourPorts, d.Remote.Port())
		if n == 0 || path < 1 || d.Remote.Addr() != p.b.cfg.Local.Addr() {
			t.Fatalf("after %d timeouts a packet goes to %v", n, d.Remote)
		}
		answer := func() {
			t.Helper()
			p.b.Receive(p.now, &dgram.Datagram{Data: d.Data, Seg: d.Seg, Remote: p.a.cfg.Local, Path: path})
			p.b.Flush(p.now)
			if !p.b.Transmit(p.now, &p.d) || p.d.Path != path || p.d.Remote != p.a.cfg.Local {
				t.Fatalf("the answer goes to %v by path %d, and the packet came by %d", p.d.Remote, p.d.Path, path)
			}
			p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), fourPorts[path])})
		}
		answer()
		if p.a.cfg.OneRTT && p.a.cfg.TSS != nil {
			// That was the Start_PSN. The packets with it go aside by the same port.
			if !p.a.Transmit(p.now, &d) || d.Remote.Port() != fourPorts[path] {
				t.Fatalf("what has the Start_PSN of the target goes to %v", d.Remote)
			}
			answer()
		}
		p.want(p.b, "r ok len=100")
		p.want(p.a, "s ok")
		// It is open: what follows goes to the main port.
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
		if !p.a.Transmit(p.now, &p.d) || p.d.Remote != p.b.cfg.Local {
			t.Errorf("a packet of the open PDC goes to %v", p.d.Remote)
		}
	})
}

// The path port belongs to another FEP by now, which has the same name and key and waits for the same
// message: it takes the packet for a damaged one.
func TestOpeningAsideMeetsAnother(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), drop DropReason) {
		p := newPipe(t, change)
		d, _ := aside(p)
		for _, main := range []uint16{d.Remote.Port(), d.Remote.Port() + 7} {
			cfg := Config{Local: netip.AddrPortFrom(d.Remote.Addr(), main)}
			change(&cfg)
			cfg.Paths = []uint16{main, d.Remote.Port() + 20, d.Remote.Port()}
			other, err := New(cfg, rand.New(rand.NewPCG(3, 7)))
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
			if n := other.Stats().Drops[drop]; n != 1 || other.NextEvent() != nil || other.Pending() || other.PDCs() != 0 {
				t.Errorf("at port %d of a FEP at %d: %d dropped, pending %v, %d PDCs", d.Remote.Port(), main, n, other.Pending(), other.PDCs())
			}
		}
	})
}

// Packets with nothing in them that names the target never go aside.
func TestOpeningStays(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"no CRC", func(c *Config) { c.NoCRC = true }},
		{"standard", func(c *Config) { c.Encapsulation = wire.Standard }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts; c.change(cfg) })
			p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(20_000, 1)})
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

// opened carries what a sends until it has nothing more to send, and then the answers. closed says that path
// ports let nothing through. It returns how many packets went to each port.
func opened(p *pipe, closed bool) map[uint16]int {
	p.t.Helper()
	went := map[uint16]int{}
	for again := true; again; {
		again = false
		p.a.Flush(p.now)
		for p.a.Transmit(p.now, &p.d) {
			again = true
			port := p.d.Remote.Port()
			went[port] += (len(p.d.Data) + p.d.Seg - 1) / p.d.Seg
			if port == 4793 || !closed {
				from := netip.AddrPortFrom(p.a.cfg.Local.Addr(), p.a.cfg.Paths[p.d.Path])
				p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: from, Path: slices.Index(fourPorts, port)})
			}
		}
		p.b.Flush(p.now)
		for p.b.Transmit(p.now, &p.d) {
			again = true
			from := netip.AddrPortFrom(p.b.cfg.Local.Addr(), fourPorts[p.d.Path])
			p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: from, Path: slices.Index(fourPorts, p.d.Remote.Port())})
		}
	}
	return went
}

// The packets that open a PDC take all ports of the target in turn, after the first ones. Those of an
// ordered message do not. Behind a firewall that lets nothing through but the main port the others are sent
// again, and the next PDC opens by the main port alone.
func TestOpeningSpreads(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		for _, c := range []struct {
			name            string
			closed, ordered bool
		}{{"open", false, false}, {"closed", true, false}, {"ordered", false, true}} {
			t.Run(c.name, func(t *testing.T) {
				p := newPipe(t, change)
				if p.a.cfg.TSS != nil && p.a.cfg.OneRTT {
					return // no more packets open than the main port gets
				}
				p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
				send := func(n int) map[uint16]int {
					t.Helper()
					p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, n), Context: "r"})
					p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(n, 1), Context: "s", Ordered: c.ordered})
					went := opened(p, c.closed)
					for range 100 {
						if !p.a.Busy() {
							break
						}
						p.now = p.a.NextTimeout()
						p.a.Advance(p.now)
						opened(p, c.closed)
					}
					p.want(p.b, fmt.Sprintf("r ok len=%d", n))
					p.want(p.a, "s ok")
					return went
				}
				went := send(62 << 10)
				if c.ordered {
					if len(went) != 1 {
						t.Errorf("ordered packets went to ports %v", went)
					}
					return
				}
				if went[4793] < mainFirst || went[50001] < 10 || went[50002] < 10 || went[50003] < 10 {
					t.Errorf("packets went to ports %v", went)
				}
				if went = send(10 << 10); c.closed != (len(went) == 1) { // by the PDC for short messages
					t.Errorf("packets of the next PDC went to ports %v", went)
				}
				if c.closed {
					return
				}
				for range spreadMisses {
					p.a.learnPath(p.a.peers[p.toB].short, noPath, pds.PathLost)
				}
				if p.a.peers[p.toB].paths.spread.until <= seconds(p.now) {
					t.Error("what is lost at path ports does not count")
				}
				p.a.learnPath(p.a.peers[p.toB].short, noPath, pds.PathGood)
				if p.a.peers[p.toB].paths.spread != (spread{}) {
					t.Error("what arrives at a path port does not count")
				}
			})
		}
	})
}

// An ACK to a path port of the peer does not join a train that goes aside to the same port.
func TestAckDoesNotGoAside(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		p := newPipe(t, change)
		p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
		for i, by := 0, 0; i < 100 && p.a.peers[p.toB].short == nil; i++ {
			p.post(p.a, Op{Kind: OpRecv, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "r"})
			p.post(p.b, Op{Kind: OpSend, Peer: p.toA, RI: 15, Buf: pattern(8, 1)})
			for p.b.Transmit(p.now, &p.d) {
				by = p.d.Path
				p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), fourPorts[by])})
			}
			if by == 2 { // its ACK waits, and what goes aside next goes to the same port
				p.a.peers[p.toB].turn = 1
				p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(5<<10, 1)})
			}
			opened(p, false)
		}
		if p.a.peers[p.toB].short == nil {
			t.Fatal("no packet came by that path")
		}
		for why, n := range p.b.Stats().Drops {
			if n != 0 {
				t.Errorf("%d packets dropped: %v", n, DropReason(why))
			}
		}
	})
}

// A damaged packet is dropped at a path port as anywhere, and only what opens a PDC goes aside.
func TestOpeningAsideDamaged(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		p := newPipe(t, change)
		d, _ := aside(p)
		path := slices.Index(fourPorts, d.Remote.Port())
		for bit := range 8 * len(d.Data) {
			b := slices.Clone(d.Data)
			b[bit/8] ^= 1 << (bit % 8)
			p.b.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.a.cfg.Local, Path: path})
		}
		dropped := uint64(0)
		for _, n := range p.b.Stats().Drops {
			dropped += n
		}
		if int(dropped) != 8*len(d.Data) || p.b.PDCs() != 0 {
			t.Errorf("%d of %d damaged packets were dropped, %d PDCs", dropped, 8*len(d.Data), p.b.PDCs())
		}
	})
}

// A sealed packet that opens nothing is not taken at a path port if its ICV names the main port.
func TestOnlyOpeningsGoAside(t *testing.T) {
	sec := secured(t, nil)
	p := newPipe(t, func(c *Config) { c.Paths = fourPorts; sec(c) })
	p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, 100), Context: "r"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s"})
	p.exchange()
	p.want(p.b, "r ok len=8")
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
	if !p.a.Transmit(p.now, &p.d) {
		t.Fatal("nothing to send")
	}
	p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.a.cfg.Local.Addr(), fourPorts[p.d.Path]), Path: 1})
	if n := p.b.Stats().Drops[DropAuth]; n != 1 || p.b.Unexpected() != 0 {
		t.Errorf("%d dropped, %d messages", n, p.b.Unexpected())
	}
}

// A FEP with one port opens aside, too, and keeps to the port of the target that answered. When that one is
// silent it tries others.
func TestOnePortGoesToPathPorts(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		several := false // b has several ports
		p := newPipe(t, func(c *Config) {
			if change(c); !several {
				c.Paths = nil
			}
			several = true
		})
		p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
		dead := map[uint16]bool{4793: true}
		var last uint16 // where a sends to
		carry := func() {
			for again := true; again; {
				again = false
				p.a.Flush(p.now)
				for p.a.Transmit(p.now, &p.d) {
					again = true
					if last = p.d.Remote.Port(); !dead[last] {
						p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: p.a.cfg.Local, Path: slices.Index(fourPorts, last)})
					}
				}
				p.b.Flush(p.now)
				for p.b.Transmit(p.now, &p.d) {
					again = true
					if from := fourPorts[p.d.Path]; !dead[from] {
						p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), from)})
					}
				}
			}
		}
		send := func(timeouts int) {
			t.Helper()
			p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, 4000), Context: "r"})
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(4000, 1), Context: "s"})
			n := 0
			for carry(); p.a.Busy() && n < 100; n++ {
				p.now = p.a.NextTimeout()
				p.a.Advance(p.now)
				carry()
			}
			p.want(p.b, "r ok len=4000")
			p.want(p.a, "s ok")
			if (n == 0) != (timeouts == 0) {
				t.Errorf("the message took %d timeouts", n)
			}
		}
		send(1)
		was := last
		if send(0); last != was || dead[was] {
			t.Errorf("packets went to port %d, and now to %d", was, last)
		}
		dead[was] = true
		send(1)
		if last == was {
			t.Errorf("packets go to port %d, which is silent", was)
		}
		send(0)
	})
}

// A target whose path ports are shut, or those of a life that has ended, is reached by its main port
// after two timeouts at most. The port that answered last is forgotten with the path ports it was one of.
func TestOpeningReachesTheMainPort(t *testing.T) {
	guarded(t, func(t *testing.T, change func(*Config), _ DropReason) {
		for seed := range uint64(8) {
			p := newPipe(t, change)
			p.a.rng = rand.New(rand.NewPCG(seed, 1))
			d, _ := aside(p)
			p.a.peers[p.toB].via, p.a.peers[p.toB].by, p.a.peers[p.toB].turn = d.Remote.Port(), 1, 1
			p.a.choosePaths(&p.a.peers[p.toB])
			p.a.peers[p.toB].paths.spread = spread{until: 9}
			for range 2 {
				before := silences(p.a)
				if after := p.untilMain(); after > before+2 {
					t.Fatalf("seed %d: a packet goes to the main port after %d timeouts, the last one went there after %d", seed, after, before)
				}
			}
			p.a.PeerPaths(p.toB, wire.PathPortsOf([]uint16{4793, 60001}))
			if q := &p.a.peers[p.toB]; q.via != 0 || q.by != 0 || q.turn != 0 || q.paths.spread != (spread{}) {
				t.Errorf("of the life before: %d, %d, %d, %v", q.via, q.by, q.turn, q.paths.spread)
			}
		}
	})
}

// silences is how many timeouts the PDC of a FEP has met.
func silences(f *FEP) (n int) {
	f.pds.Each(func(pdc *pds.PDC) { n = pdc.Silences() })
	return n
}

// untilMain lets time pass until a packet of a goes to the main port of b, and returns how many timeouts the PDC
// has met then.
func (p *pipe) untilMain() int {
	for {
		n := silences(p.a)
		p.now = p.a.NextTimeout()
		p.a.Advance(p.now)
		again := silences(p.a) > n
		for p.a.Transmit(p.now, &p.d) {
			again = again && p.d.Remote != p.b.cfg.Local
		}
		if m := silences(p.a); m > n && !again || m == 0 || m > 20 {
			return m
		}
	}
}

// What the system says of a path port is said of the peer that has it.
func TestEvidenceFromPathPorts(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = fourPorts })
	d, _ := aside(p)
	if id, ok := p.a.peerAt(d.Remote); !ok || id != p.toB {
		t.Errorf("%v is of peer %d, %v", d.Remote, id, ok)
	}
	for _, port := range []uint16{50000, 50004} {
		if id, ok := p.a.peerAt(netip.AddrPortFrom(d.Remote.Addr(), port)); ok {
			t.Errorf("port %d is of peer %d", port, id)
		}
	}
	suspects := 0
	p.a.Unreachable(p.now, d.Remote) // the port is shut, and so is the process
	p.a.pds.Each(func(pdc *pds.PDC) {
		if pdc.View().Evidence != 0 {
			suspects++
		}
	})
	if suspects != 1 {
		t.Errorf("%d suspects", suspects)
	}
}

// Losses at path ports count only while nothing arrives there, and not for ever.
func TestSpreadIsTriedAgain(t *testing.T) {
	var s spread
	now := time.Second
	lose := func(n int) {
		for range n {
			s.learn(now, pds.PathLost)
		}
	}
	lose(spreadMisses - 1)
	s.learn(now, pds.PathGood)
	if lose(spreadMisses - 1); s.until != 0 {
		t.Fatalf("%v after %d losses in a row", s, spreadMisses-1)
	}
	for i, want := range []uint32{1, 2, 4, 8, 16, 32, 64, 64} {
		if lose(2 * spreadMisses); s.until != seconds(now)+1+want {
			t.Errorf("after %d rests: %v at %v, want %d s", i, s, now, want)
		}
		now = time.Duration(s.until) * time.Second
	}
}

// deadMain carries packets both ways. The path between the main ports is dead; if alone is set all others are.
func (p *pipe) deadMain(alone bool) {
	dead := func(src, dst uint16) bool { return (src == 4793 && dst == 4793) != alone }
	for again := true; again; {
		again = false
		for _, way := range [][2]*FEP{{p.a, p.b}, {p.b, p.a}} {
			from, to := way[0], way[1]
			from.Flush(p.now)
			for from.Transmit(p.now, &p.d) {
				again = true
				at := netip.AddrPortFrom(from.cfg.Local.Addr(), from.local[p.d.Path].Port())
				path := slices.IndexFunc(to.local, func(a netip.AddrPort) bool { return a == p.d.Remote })
				if path < 0 {
					p.t.Fatalf("a train goes to %v", p.d.Remote)
				}
				if !dead(at.Port(), p.d.Remote.Port()) {
					to.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: at, Path: path})
				}
			}
		}
	}
}

// carried posts a message of n bytes, which b receives from a alone, and returns how many timeouts it takes.
func (p *pipe) carried(n int, ordered, alone bool) (timeouts int) {
	p.t.Helper()
	p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, RI: 15, Buf: make([]byte, n), Context: "r"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(n, 1), Context: "s", Ordered: ordered})
	for p.deadMain(alone); p.a.Busy() && timeouts < 200; timeouts++ {
		p.now = p.a.NextTimeout()
		if t := p.b.NextTimeout(); t != 0 && t < p.now {
			p.now = t
		}
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.deadMain(alone)
	}
	p.want(p.b, fmt.Sprintf("r ok len=%d", n))
	p.want(p.a, "s ok")
	return timeouts
}

// A FEP that cannot open by a path port of its peer opens by a port of its own: the peer is known by an address
// that does not name its path ports, or nothing in packets names the target. The peer knows the source by its main
// port. What opens next does so at once.
func TestOpeningByAnotherPort(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		ports  bool // the address names the path ports
	}{
		{"text address", func(*Config) {}, false},
		{"no CRC", func(c *Config) { c.NoCRC = true }, true},
		{"no CRC, text address", func(c *Config) { c.NoCRC = true }, false},
		{"sealed", secured(t, nil), false},
		{"sealed, one RTT", func() func(*Config) {
			sec := secured(t, nil)
			return func(c *Config) { c.OneRTT = true; sec(c) }
		}(), false},
		{"credit", func(c *Config) { c.Congestion = RCCC }, false},
	} {
		for _, ordered := range []bool{false, true} {
			for _, alone := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, ordered %v, only the main path %v", c.name, ordered, alone), func(t *testing.T) {
					p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts; c.change(cfg) })
					if c.ports {
						p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
					}
					first := p.carried(3000, ordered, alone)
					if alone {
						return
					}
					if first == 0 {
						t.Error("the message took no timeout")
					}
					if by := p.a.peers[p.toB].by; by == 0 {
						t.Error("nobody noted by which path the answer came")
					}
					if p.toA != p.b.book.byAddr[p.a.cfg.Local] || len(p.b.peers) != 2 {
						t.Errorf("%d peers: the source is not known by its main port", len(p.b.peers))
					}
					p.carried(100_000, false, false) // by a PDC of its own
				})
			}
		}
	}
}

// What opens by another port begins with its NOOP if the last opening did, and data waits for the answer.
func TestOpeningByAnotherPortAtOnce(t *testing.T) {
	p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts })
	p.a.peers[p.toB].by = 2
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(3000, 1), Context: "s"})
	if !p.a.Transmit(p.now, &p.d) || p.d.Path != 2 || p.d.Remote != p.b.cfg.Local || len(p.d.Data) != wire.CPLen+wire.CRCLen {
		t.Fatalf("%d bytes leave by path %d", len(p.d.Data), p.d.Path)
	}
	if c, _, err := wire.ParseCP(p.d.Data); err != nil || c.Ctl != wire.CtlNoop || c.Payload != 4793 || c.Flags&wire.FlagSYN == 0 {
		t.Fatalf("%v, %v", c, err)
	}
	d := slices.Clone(p.d.Data)
	if p.a.Transmit(p.now, &p.d) {
		t.Fatalf("data leaves by path %d", p.d.Path)
	}
	p.b.Receive(p.now, &dgram.Datagram{Data: d, Remote: netip.AddrPortFrom(p.a.cfg.Local.Addr(), fourPorts[2])})
	if !p.b.Transmit(p.now, &p.d) || p.d.Remote.Port() != fourPorts[2] {
		t.Fatalf("the answer goes to %v", p.d.Remote)
	}
	p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Remote: p.b.cfg.Local, Path: 2})
	if !p.a.Transmit(p.now, &p.d) {
		t.Fatal("no data leaves after the answer")
	}
}

// What opens goes by the main path again once that has carried a packet of an open PDC and its answer, and not before.
func TestOpeningByAnotherPortGoesBack(t *testing.T) {
	p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts })
	p.carried(3000, false, false)
	p.carried(100_000, false, false)
	if p.a.peers[p.toB].by == 0 {
		t.Fatal("the main path is dead, and PDCs open there again")
	}
	p.carried(100_000, false, true)
	if by := p.a.peers[p.toB].by; by != 0 {
		t.Errorf("the main path is well, and PDCs open by path %d", by)
	}
}

// Any process of a host could name the port of another. Who takes known peers only believes it of the ports that
// the peer's address names, and of packets that are sealed.
func TestOpeningByAnotherPortOfAKnownPeer(t *testing.T) {
	for _, c := range []struct {
		name         string
		sealed, path bool
		want         bool
	}{{"text address", false, false, false}, {"address", false, true, true}, {"sealed", true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			sec := secured(t, nil)
			p := newPipe(t, func(cfg *Config) {
				cfg.Paths, cfg.KnownPeersOnly = fourPorts, true
				if c.sealed {
					sec(cfg)
				}
			})
			if c.path {
				p.b.PeerPaths(p.toA, wire.PathPortsOf(fourPorts))
			}
			p.a.peers[p.toB].by = 2
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(100, 1), Context: "s"})
			if p.deadMain(false); (p.b.PDCs() == 1) != c.want || (p.b.Stats().Drops[DropUnknown] == 0) != c.want {
				t.Errorf("%d PDCs, %d dropped", p.b.PDCs(), p.b.Stats().Drops[DropUnknown])
			}
		})
	}
}

// The packets that follow a Start_PSN go first where it came from, and not at once to all ports.
func TestOpeningStaysWhereItsStartIs(t *testing.T) {
	sec := secured(t, nil)
	p := newPipe(t, func(c *Config) { c.Paths, c.OneRTT = fourPorts, true; sec(c) })
	p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
	p.a.peers[p.toB].via = 50002
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(62<<10, 1), Context: "s"})
	for p.a.Transmit(p.now, &p.d) {
		if p.d.Remote.Port() != 50002 {
			t.Fatalf("a packet goes to port %d", p.d.Remote.Port())
		}
		p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: p.a.cfg.Local, Path: 2})
	}
	for p.b.Transmit(p.now, &p.d) {
		p.a.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.b.cfg.Local.Addr(), 50002)})
	}
	went := map[uint16]int{}
	for n := 0; p.a.Transmit(p.now, &p.d); n += (len(p.d.Data) + p.d.Seg - 1) / p.d.Seg {
		if went[p.d.Remote.Port()]++; n < mainFirst && p.d.Remote.Port() != 50002 {
			t.Errorf("packet %d goes to port %d", n, p.d.Remote.Port())
		}
	}
	if len(went) != 3 {
		t.Errorf("trains went to ports %v", went)
	}
}

// PROBEs of a size go by a path of their PDC: with one port to the port of the peer that answered.
func TestSizedProbeGoesByItsPDC(t *testing.T) {
	for _, several := range []bool{false, true} {
		p := newPipe(t, func(c *Config) {
			if several || c.Local.Addr() == netip.MustParseAddr("198.18.0.2") {
				c.Paths = fourPorts
			}
		})
		p.a.PeerPaths(p.toB, wire.PathPortsOf(fourPorts))
		p.carried(3000, false, false)
		p.a.pds.Each(func(pdc *pds.PDC) { p.a.pds.ProbeSize(pdc, 0, 1000) })
		n := 0
		for p.a.Transmit(p.now, &p.d) {
			if c, _, err := wire.ParseCP(p.d.Data); err == nil && c.Ctl == wire.CtlProbe && len(p.d.Data) > 1000 {
				if n++; p.d.Path == 0 && p.d.Remote == p.b.cfg.Local {
					t.Errorf("several ports %v: the PROBE goes by the dead path", several)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d PROBEs", n)
		}
	}
}

// One PSN of the window is left for the NOOP.
func TestOpeningByAnotherPortWithAFullWindow(t *testing.T) {
	p := newPipe(t, func(cfg *Config) { cfg.Paths = fourPorts })
	p.carried(200_000, false, false)
}
