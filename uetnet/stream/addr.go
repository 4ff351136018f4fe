package stream

import (
	"net"

	"github.com/uetkit/uetkit/transport/wire"
)

// Network is what the addresses of streams return from Network.
const Network = "uet"

// An Addr is the address of one end of a stream, or of a Listener: an IP address and a UDP port.
type Addr struct{ wire.Addr }

// Network returns "uet".
func (Addr) Network() string { return Network }

// String returns ip:port.
func (a Addr) String() string { return a.AddrPort().String() }

var _ net.Addr = Addr{}
