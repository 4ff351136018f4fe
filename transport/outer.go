package transport

import (
	"encoding/binary"
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// An outer is what CRC and ICV cover in front of the packets of a train: IP addresses
// and the UDP header with a checksum of zero. Each direction has one, that of its
// last train, which the next one mostly shares. For a train that does not it costs
// less than a cache line in each peer would.
type outer struct {
	remote netip.AddrPort
	path   int
	n      int    // bytes in b
	udp    uint64 // the UDP header without its length
	// The CRC states behind it for packets of two lengths: those of a train share
	// one, and the data and the ACKs of a conversation differ.
	one, two crcState
	b        [wire.OuterMax]byte
}

type crcState struct {
	n     int // bytes of the packet with trailer, 0: none
	state uint32
}

// of reports whether it is that of trains to or from remote by path.
func (o *outer) of(remote *netip.AddrPort, path int) bool {
	return o.path == path && o.remote == *remote
}

// become makes it that of trains by path from src to dst, one of which is remote.
func (o *outer) become(remote *netip.AddrPort, path int, src, dst *netip.AddrPort) {
	o.remote, o.path = *remote, path
	o.one.n, o.two.n = 0, 0
	o.n = wire.PutOuter(&o.b, src, dst, 0)
	o.udp = binary.BigEndian.Uint64(o.b[o.n-8:])
}

// aad is what it is in front of a packet of n bytes. It is valid until the next
// call.
func (o *outer) aad(n int) []byte {
	binary.BigEndian.PutUint64(o.b[o.n-8:], o.udp|uint64(8+n)<<16) // whole: it is read as a word at once
	return o.b[:o.n]
}

// crc is the CRC state behind it for a packet of n bytes with trailer.
func (o *outer) crc(n int) uint32 {
	switch n {
	case o.one.n:
		return o.one.state
	case o.two.n:
		return o.two.state
	}
	return o.compute(n)
}

func (o *outer) compute(n int) uint32 {
	o.two = o.one
	o.one.n, o.one.state = n, wire.CRC(0, o.aad(n))
	return o.one.state
}
