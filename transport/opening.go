package transport

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file opens PDCs by other ports of the target, where the way to its main port is silent and where many
// packets open one (docs/decisions/0047, 0061).

// sidePath marks a path from the main port to a path port of the target, which stands above its lowest
// byte. That one is noPath. farPath is the same for packets of a PDC that is open, of which nothing but the
// port is unusual.
const (
	sidePath = 1<<24 | noPath
	farPath  = 1<<25 | noPath
)

// noPath is the path, as PDS knows it, of packets to path ports: it is no index of Config.Paths, of
// which there are fewer.
const noPath = 255

// PeerPaths says which path ports the peer has. They must be those of one life of it.
func (f *FEP) PeerPaths(id PeerID, ports wire.PathPorts) {
	if id != NoPeer && int(id) < len(f.peers) {
		p := &f.peers[id]
		if ports = ports.Valid(); ports != p.ports {
			f.forgetAsides(id, p)
			if q := f.idem.queues[id]; q != nil {
				q.port = 0
			}
			p.ports, p.via, p.by, p.turn = ports, 0, 0, 0
			p.spreads()
		}
		if ports.N > 0 && !f.form.standard {
			f.form.chooses = true
		}
	}
}

// A spread is what became of the packets to the path ports of a peer.
type spread struct {
	until  uint32 // PDCs open without path ports until then, as behind a firewall that lets nothing through to them; s
	missed uint8  // packets lost since one arrived, or since until
	rests  uint8  // how often until was set since one arrived
}

// After spreadMisses packets to path ports of which none arrived PDCs open without them, for one to two seconds and
// twice as long each time, up to 2^spreadRests seconds. Where a fourth of all paths is dead chance loses so many in a
// row once in seven hundred times.
const (
	spreadMisses = 8
	spreadRests  = 6
)

// seconds is a time in the unit of spread.until.
func seconds(now time.Duration) uint32 { return uint32(now / time.Second) }

// spreads notes that packets arrive at the path ports of the peer, or that it has others.
func (p *peer) spreads() {
	if p.paths != nil {
		p.paths.spread = spread{}
	}
}

// learn notes what became of a packet to a path port.
func (s *spread) learn(now time.Duration, news pds.PathNews) {
	switch {
	case news != pds.PathLost:
		*s = spread{}
	case seconds(now) < s.until: // sent before
	default:
		if s.missed++; s.missed == spreadMisses {
			s.until, s.missed, s.rests = seconds(now)+1+1<<s.rests, 0, min(s.rests+1, spreadRests)
		}
	}
}

// mainFirst is how many packets of a PDC that opens are under way to the main port before a train goes to a
// path port: as many as open a sealed PDC (S-SYN-08).
const mainFirst = 2

// openingPath chooses the path of a packet of a PDC that the target does not know yet, with Symmetric
// encapsulation. The packet leaves from the main port, by which the target knows the source. It goes where
// the target answered last, at first its main port. Once mainFirst packets have, the others take all ports
// of the target in turn (RUD), and after a timeout all take a path port or, after every second one, the main
// port. A FEP with neither CRC nor ICV has nothing that names the target at a path port.
func (f *FEP) openingPath(p *peer, pdc *pds.PDC) int {
	switch {
	case p.ports.N == 0 || f.form.trailer == 0:
		return 0
	case pdc.Silences() > 0:
		return f.anyPort(p, sidePath, pdc.Silences()%2 == 0)
	case f.form.sprays && (p.paths == nil || seconds(f.now) >= p.paths.spread.until) && pdc.Mode() == wire.RUD && pdc.Flying() >= mainFirst:
		if p.turn == 0 { // flows of many peers begin at different ports
			p.turn = uint8(f.rng.IntN(int(p.ports.N))) + 1
		}
		p.turn = p.turn%p.ports.N + 1
		return portPath(sidePath, p.ports.First+uint16(p.turn)-1)
	}
	return portPath(sidePath, p.via)
}

// openPath chooses the path of a packet of an open PDC for a FEP with one port: to the port of the peer from
// which it answered last, or to any of them if two timeouts have passed, the main port each second time.
func (f *FEP) openPath(p *peer, pdc *pds.PDC) int {
	switch {
	case p.ports.N == 0 || f.form.trailer == 0:
		return 0
	case pdc.Silences() > 1:
		return f.anyPort(p, farPath, pdc.Silences()%2 != 0)
	}
	return portPath(farPath, p.via)
}

// anyPort returns the path to a path port of the peer, drawn from all, or to its main port: the path ports may
// be shut, or those of a life that has ended.
func (f *FEP) anyPort(p *peer, kind int, main bool) int {
	if main {
		return 0
	}
	return portPath(kind, p.ports.First+uint16(f.rng.IntN(int(p.ports.N))))
}

// portPath returns the path to a path port; 0 is the main port.
func portPath(kind int, port uint16) int {
	if port == 0 {
		return 0
	}
	return kind | int(port)<<8
}

// heralds reports whether a PDC opens by another port of this FEP than the main one, after a silence or because
// the last one did so. It is how a FEP with several ports opens where it cannot go to a path port of the target:
// none is known, or nothing in its packets would name the target there. A NOOP goes by that port and names the
// main one (heraldOf). The main port of the target is its destination, so it meets nobody else.
func (f *FEP) heralds(p *peer, pdc *pds.PDC) bool {
	return pdc.RemoteID() == 0 && f.form.sprays && !f.form.standard && (p.ports.N == 0 || f.form.trailer == 0) && (p.by != 0 || pdc.Silences() > 0)
}

// heraldPath chooses the path of the NOOP: the one where the target answered last, and after a silence any or,
// after every second one, the main path, as a firewall may let nothing else through.
func (f *FEP) heraldPath(p *peer, pdc *pds.PDC) int {
	switch n := pdc.Silences(); {
	case n == 0:
		return int(p.by)
	case n%2 == 0:
		return 0
	}
	return 1 + f.rng.IntN(len(f.cfg.Paths)-1)
}

// heraldCopies is how many more NOOPs go by other ports after a silence. Where a fourth of the paths is dead, there
// and back, all are lost once in seven hundred times.
const heraldCopies = 7

// herald makes a packet that leaves by a path name the main port, unless it leaves by that one, and after a silence
// sends copies of it by other ports.
func (f *FEP) herald(p *peer, pdc *pds.PDC, c *wire.CP, path int) {
	name := *c
	if name.Payload = uint32(f.cfg.Local.Port()); path != 0 {
		*c = name
	}
	if pdc.Silences() > 0 {
		name.Flags |= wire.FlagRETX
		for range heraldCopies {
			f.pds.SendLoose(p.addr, uint32(1+f.rng.IntN(len(f.cfg.Paths)-1)), name)
		}
	}
}

// heraldOf returns the main port that a packet names which opens a PDC from another port, 0 for any other
// packet. Only a NOOP does so, in its payload, which is 0 otherwise.
func (f *FEP) heraldOf(c *wire.CP) uint16 {
	if f.form.standard || c.Ctl != wire.CtlNoop || c.Flags&wire.FlagSYN == 0 || c.Payload>>16 != 0 {
		return 0
	}
	return uint16(c.Payload)
}

// unsure reports whether the next answer to a PDC says where the peer can be reached: the PDC is opening, or
// nothing else chooses among paths and the way was silent.
func (f *FEP) unsure(pdc *pds.PDC) bool {
	return f.form.chooses && (pdc.RemoteID() == 0 || !f.form.sprays && pdc.Silences() > 0)
}

// foundAt notes that the packet which is being processed answered a PDC that was unsure. If there was no
// silence before, nothing speaks against the port of last time.
func (f *FEP) foundAt(pdc *pds.PDC, silent bool) {
	p, port := &f.peers[pdc.Peer], f.rx.in.From.Port()
	if !p.hasPath(port) {
		port = 0 // the main port, or one that nobody named
	}
	if port != 0 {
		p.spreads()
	}
	if silent {
		p.via = port
		if f.form.sprays && !f.form.standard {
			p.by = uint8(f.rx.in.Path)
		}
	}
}

// hasPath reports whether a port is a path port of the peer.
func (p *peer) hasPath(port uint16) bool {
	i := int(port) - int(p.ports.First)
	return i >= 0 && i < int(p.ports.N)
}

// peerAt returns the peer that receives at an address, at its main port or a path port.
func (f *FEP) peerAt(at netip.AddrPort) (PeerID, bool) {
	if id, ok := f.book.byAddr[at]; ok || !f.form.chooses {
		return id, ok
	}
	for i := range f.peers {
		if p := &f.peers[i]; p.hasPath(at.Port()) && p.addr.Addr() == at.Addr() {
			return PeerID(i), true
		}
	}
	return NoPeer, false
}

// startAside is start for a packet to a path port. If it opens a PDC, its CRC or ICV is that of the same packet
// to the main port: if the port has come to be of another FEP, that one finds the packet damaged and does not
// take a message that is not for it. An ACK to the same port does not share the train.
func (f *FEP) startAside(remote *netip.AddrPort, path, n int, tos uint8) []byte {
	if path >= farPath {
		at := netip.AddrPortFrom(remote.Addr(), uint16(path>>8))
		return f.start(&at, 0, n, tos)
	}
	b := f.start(remote, 0, n, tos)
	f.out.d.Remote = netip.AddrPortFrom(remote.Addr(), uint16(path>>8))
	f.out.side = true
	return b
}

// aside reports whether a packet whose CRC is wrong for the port where it arrived is one that this FEP takes at a
// path port.
func (f *FEP) aside(d *dgram.Datagram, b []byte) bool {
	return d.Path != 0 && goesAside(b) && wire.VerifyCRC(b, wire.PrefixOf(&d.Remote, &f.local[0]).CRC(len(b)))
}

// mainOuter returns the bytes in front of a packet of n bytes that arrived at a path port, as they would be
// at the main port: with them a packet that goes aside is sealed. They are valid until the next call.
func (f *FEP) mainOuter(d *dgram.Datagram, n int) []byte {
	if o := &f.rx.main; o.n == 0 || o.remote != d.Remote {
		o.become(&d.Remote, 0, &d.Remote, &f.local[0])
	}
	return f.rx.main.aad(n)
}

// goesAside reports whether a packet, which has at least wire.ReqLen bytes, may go to a path port with the CRC or
// ICV for the main port: a request or a control packet with SYN, which may open a PDC, and a request of RUDI.
func goesAside(b []byte) bool {
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq, wire.TypeCP:
		return b[1]&byte(wire.FlagSYN) != 0
	case wire.TypeRUDIReq:
		return true
	}
	return false
}
