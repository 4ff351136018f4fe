package transport

import (
	"net/netip"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file opens PDCs by other ports of the target where the way to its main port is silent
// (docs/decisions/0047).

// sidePath marks a path from the main port to a path port of the target, which stands above its lowest
// byte. That one is noPath.
const sidePath = 1<<24 | noPath

// noPath is the path, as PDS knows it, of packets to path ports: it is no index of Config.Paths, of
// which there are fewer.
const noPath = 255

// PeerPaths says which path ports the peer has. They must be those of one life of it.
func (f *FEP) PeerPaths(id PeerID, ports wire.PathPorts) {
	if id != NoPeer && int(id) < len(f.peers) {
		f.peers[id].ports = ports.Valid()
	}
}

// openingPath chooses the path of a packet of a PDC that the target does not know yet, with Symmetric
// encapsulation. The packet leaves from the main port, by which the target knows the source. It goes to the
// target's main port, and once a timeout has passed to any port of the target. A FEP without CRC has nothing
// that names the target at a path port, and the ICV of a sealed one names the port that the packet goes to.
func (f *FEP) openingPath(p *peer, pdc *pds.PDC) int {
	if p.ports.N == 0 || !f.form.crcOnly || pdc.Silences() == 0 {
		return 0
	}
	i := f.rng.IntN(int(p.ports.N) + 1)
	if i == 0 {
		return 0
	}
	return sidePath | (int(p.ports.First)+i-1)<<8
}

// startAside is start for a packet to a path port. Its CRC is that of the same packet to the main port: if
// the port has come to be of another FEP, that one finds the packet damaged and does not take a message that
// is not for it. No other packet shares the train.
func (f *FEP) startAside(remote *netip.AddrPort, path, n int, tos uint8) []byte {
	b := f.start(remote, 0, n, tos)
	f.out.d.Remote = netip.AddrPortFrom(remote.Addr(), uint16(path>>8))
	f.out.full = true
	return b
}

// aside reports whether a packet whose CRC is wrong for the port where it arrived is one that opens a PDC
// with this FEP by a path port.
func (f *FEP) aside(d *dgram.Datagram, b []byte) bool {
	if d.Path == 0 || b[1]&byte(wire.FlagSYN) == 0 {
		return false
	}
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq, wire.TypeCP:
		return wire.VerifyCRC(b, wire.PrefixOf(&d.Remote, &f.local[0]).CRC(len(b)))
	}
	return false
}
