package udp

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/portrange"
)

// MaxPaths is the most local ports of one Conn. Arbitrary, but not more than the 64 bits of the
// path sets inside a Conn.
const MaxPaths = 64

const (
	defaultBuf = 8 << 20
	maxBuf     = 1 << 30
)

// A Mode is whether a feature is wanted.
type Mode uint8

const (
	Auto Mode = iota // use it if the system has it
	On               // Open fails without it
	Off              // do not use it
)

// String returns "auto", "on" or "off".
func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case On:
		return "on"
	case Off:
		return "off"
	}
	return fmt.Sprintf("udp.Mode(%d)", uint8(m))
}

// Config is what Open is to open.
type Config struct {
	// Addr is the local address. The IP address must not be unspecified, because it is part of
	// what the protocol protects. An IPv6 link-local address needs its zone. Port 0 means an
	// ephemeral port.
	Addr netip.AddrPort
	// Paths is the number K of local ports, 1 to MaxPaths; 0 is 1. Path 0 has
	// the port of Addr, path 1 an ephemeral port. Each further one has the port that follows on that
	// of the path before, or an ephemeral one if it is taken.
	Paths int
	// Ports are the ports to take where an ephemeral one is asked for. The zero Range is those
	// of the system.
	Ports portrange.Range
	// Consecutive gives path i the port of path 0 plus i. With port 0, Open searches for a free
	// range.
	Consecutive bool

	// SendOnly means that path 0 alone receives. The other paths drop what comes to them, and
	// Echo may bind more ports to send from.
	SendOnly bool

	// NoChecksum sends datagrams with a UDP checksum of zero where the system can do that: on
	// Linux, but not in trains that leave whole (package comment).
	NoChecksum bool

	// GSO sends a train of several datagrams in one call (UDP_SEGMENT), GRO receives trains
	// that the kernel put together (UDP_GRO). The portable implementation has neither.
	GSO, GRO Mode
	// GSOChanged, if not nil, is called with the new Info.GSO when trains to some destination
	// no longer leave whole, or may again. Send calls it; it must not send.
	GSOChanged func(Feature)
	// RecvBuf and SendBuf are the sizes of the socket buffers to ask for, in bytes per path; 0
	// is 8 MiB. Info tells what the system gave.
	RecvBuf, SendBuf int
	// TOS is the traffic class of most trains. Each train with another one costs a control
	// message.
	TOS uint8
	// EveryClass asks for the traffic class of each datagram. Otherwise short datagrams that
	// come one by one are sampled, until one of them shows congestion (package comment).
	EveryClass bool
	// AllowFragments lets IP fragment what exceeds the MTU. Otherwise packets carry DF, and one
	// that does not fit fails with EMSGSIZE. What the kernel's path MTU discovery has learnt is
	// not believed, because anybody can forge it; it is evidence (NextError).
	AllowFragments bool
	// Portable uses the implementation for systems without one of their own.
	Portable bool
	// Network, if not nil, takes the place of the system's sockets.
	Network Network

	readers bool             // with Portable: receive as systems without batches do; for tests
	clock   func() time.Time // nil is time.Now; for tests
}

// check fills in the defaults and returns an error for the first contradiction.
func (c *Config) check() error {
	a := c.Addr.Addr().Unmap()
	c.Addr = netip.AddrPortFrom(a, c.Addr.Port())
	switch {
	case !a.IsValid():
		return fmt.Errorf("udp: Config.Addr %v is not an address", c.Addr)
	case a.IsUnspecified():
		return fmt.Errorf("udp: Config.Addr %v is unspecified", c.Addr)
	case a.IsMulticast():
		return fmt.Errorf("udp: Config.Addr %v is a group", c.Addr)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return fmt.Errorf("udp: Config.Addr %v is link-local and needs a zone", c.Addr)
	case c.Ports.Check() != nil:
		return fmt.Errorf("udp: Config.Ports: %w", c.Ports.Check())
	case c.GSO > Off || c.GRO > Off:
		return fmt.Errorf("udp: Config.GSO %v or GRO %v is unknown", c.GSO, c.GRO)
	case c.Portable && (c.GSO == On || c.GRO == On):
		return fmt.Errorf("udp: Config.Portable has no GSO and no GRO")
	}
	if c.Paths == 0 {
		c.Paths = 1
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	if c.Paths < 0 || c.Paths > MaxPaths {
		return fmt.Errorf("udp: Config.Paths %d is not 1 to %d", c.Paths, MaxPaths)
	}
	if p := int(c.Addr.Port()); c.Consecutive && p != 0 && p+c.Paths-1 > 65535 {
		return fmt.Errorf("udp: Config.Paths %d from port %d is beyond port 65535", c.Paths, p)
	}
	for _, b := range []struct {
		name string
		v    *int
	}{{"RecvBuf", &c.RecvBuf}, {"SendBuf", &c.SendBuf}} {
		if *b.v == 0 {
			*b.v = defaultBuf
		}
		if *b.v < 0 || *b.v > maxBuf {
			return fmt.Errorf("udp: Config.%s %d is not 0 to %d", b.name, *b.v, maxBuf)
		}
	}
	return nil
}

// mayTake reports whether an ephemeral port may be this one.
func (c *Config) mayTake(port uint16) bool {
	return port != 0 && (c.Ports.IsZero() || port >= c.Ports.First && port <= c.Ports.Last)
}
