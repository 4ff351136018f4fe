package transport

import (
	"encoding/binary"
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// An outer holds the bytes that CRC and ICV cover in front of a packet: IP addresses and
// the UDP header, with a checksum of 0. Each direction keeps the outer of its latest train,
// because the next train usually goes the same way.
type outer struct {
	remote netip.AddrPort
	path   int
	prefix wire.Prefix
	n      int    // bytes in b, 0 if there are none yet
	udp    uint64 // the UDP header without its length
	b      [wire.OuterMax]byte
}

// of reports whether o is the outer of trains to or from remote by path.
func (o *outer) of(remote *netip.AddrPort, path int) bool {
	return o.path == path && o.remote == *remote
}

// become sets o for trains by path from src to dst. remote is one of these two.
func (o *outer) become(remote *netip.AddrPort, path int, src, dst *netip.AddrPort) {
	o.remote, o.path = *remote, path
	o.n = wire.PutOuter(&o.b, src, dst, 0)
	o.udp = binary.BigEndian.Uint64(o.b[o.n-8:])
	o.prefix = wire.Prefix(wire.CRC(0, o.b[:o.n]))
}

// aad returns the bytes in front of a packet of n bytes. They are valid until the next
// call.
func (o *outer) aad(n int) []byte {
	binary.BigEndian.PutUint64(o.b[o.n-8:], o.udp|uint64(8+n)<<16) // one store of eight bytes, which the reader then loads as one word
	return o.b[:o.n]
}
