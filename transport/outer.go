package transport

import (
	"encoding/binary"
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// An outer is what CRC and ICV cover in front of the packets of a train: IP addresses
// and the UDP header with a checksum of zero. Each direction has one, that of its
// last train, which the next one mostly shares.
type outer struct {
	remote netip.AddrPort
	path   int
	prefix wire.Prefix
	n      int    // bytes in b, 0: not yet written
	udp    uint64 // the UDP header without its length
	b      [wire.OuterMax]byte
}

// of reports whether it is that of trains to or from remote by path.
func (o *outer) of(remote *netip.AddrPort, path int) bool {
	return o.path == path && o.remote == *remote
}

// become makes it that of trains by path from src to dst, one of which is remote.
func (o *outer) become(remote *netip.AddrPort, path int, src, dst *netip.AddrPort) {
	o.remote, o.path = *remote, path
	o.n = wire.PutOuter(&o.b, src, dst, 0)
	o.udp = binary.BigEndian.Uint64(o.b[o.n-8:])
	o.prefix = wire.Prefix(wire.CRC(0, o.b[:o.n]))
}

// aad is what it is in front of a packet of n bytes. It is valid until the next
// call.
func (o *outer) aad(n int) []byte {
	binary.BigEndian.PutUint64(o.b[o.n-8:], o.udp|uint64(8+n)<<16) // whole: it is read as a word at once
	return o.b[:o.n]
}
