package transport

import (
	"net/netip"

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
			p.ports, p.via, p.turn, p.spread = ports, 0, 0, spreadUntried
		}
		if ports.N > 0 && !f.form.standard {
			f.form.chooses = true
		}
	}
}

// A spread says whether many packets that open a PDC may go to several ports of a peer.
type spread uint8

const (
	spreadUntried spread = iota
	spreadArrives        // packets to path ports arrived
	spreadLost           // only those to the main port did, as behind a firewall that lets nothing else through
)

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
	case f.form.sprays && p.spread != spreadLost && pdc.Mode() == wire.RUD && pdc.Outstanding() >= mainFirst:
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

// learnSpread notes what became of a packet to a path port.
func (p *peer) learnSpread(news pds.PathNews) {
	switch {
	case news != pds.PathLost:
		p.spread = spreadArrives
	case p.spread == spreadUntried:
		p.spread = spreadLost
	}
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
		p.spread = spreadArrives
	}
	if silent {
		p.via = port
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

// aside reports whether a packet whose CRC is wrong for the port where it arrived is one that opens a PDC
// with this FEP by a path port.
func (f *FEP) aside(d *dgram.Datagram, b []byte) bool {
	return d.Path != 0 && opens(b) && wire.VerifyCRC(b, wire.PrefixOf(&d.Remote, &f.local[0]).CRC(len(b)))
}

// mainOuter returns the bytes in front of a packet of n bytes that arrived at a path port, as they would be
// at the main port: with them a packet that goes aside is sealed. They are valid until the next call.
func (f *FEP) mainOuter(d *dgram.Datagram, n int) []byte {
	if o := &f.rx.main; o.n == 0 || o.remote != d.Remote {
		o.become(&d.Remote, 0, &d.Remote, &f.local[0])
	}
	return f.rx.main.aad(n)
}

// opens reports whether a packet, which has at least wire.ReqLen bytes, may open a PDC: a request or a
// control packet with SYN.
func opens(b []byte) bool {
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq, wire.TypeCP:
		return b[1]&byte(wire.FlagSYN) != 0
	}
	return false
}
