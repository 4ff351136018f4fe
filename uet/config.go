package uet

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport/wire"
)

// Config holds the settings of an endpoint that libfabric has no attribute for. Set it in
// the hints of GetInfo, or in the Info before OpenEndpoint. The zero Config is the default.
type Config struct {
	// PayloadMTU is the most message bytes per packet: 1024, 2048, 4096 or 8192. Default:
	// the largest that fits the MTU of the interface (R-INFO-28). The two ends may differ.
	PayloadMTU int
	// NoCRC leaves out the checksum (CRC-32C) at the end of each packet. Default false.
	// Both ends must agree.
	NoCRC bool
	// Encapsulation says what names an endpoint's FEP in the network. Default Symmetric: an IP
	// address and a port, so that any number of processes share an address. Standard: an IP
	// address alone, as the specification has it. Packets then go to port 4793 whatever port
	// they come from, and the endpoint owns that port of its address: Enable of a second one on
	// the address fails with fi.EADDRINUSE. Both ends must agree.
	Encapsulation Encapsulation
	// Paths is how many UDP ports the endpoint sends from, 1 to MaxPaths. Switches may use
	// the port (entropy value) to choose among parallel lines. Default 1.
	Paths int
	// JobID is the job, 24 bits, which must be the same at both ends. Default: that of the
	// authorization key, else 1 (R-ADDR-07).
	JobID uint32
	// SharePort lets the endpoint share its address and port, with their sockets, with other endpoints of its domain
	// that ask for the same: the first that is enabled opens the port, the last that is closed closes it. Port 0
	// (SrcAddr) is always a new one: the next endpoints name that of the first, which Name tells. Default false: the
	// port is the endpoint's, and a second one gets fi.EADDRINUSE. Peers tell the endpoints apart by JobID, PIDonFEP
	// and resource index, which Name returns. An endpoint that asks for no PIDonFEP (SrcAddr) gets the first that is
	// free. The endpoints of a port have their Config in common but for JobID, RUDI, Logger and Tuning.Linger, and
	// their type, kind of progress, traffic class and socket buffers, too; Enable names a field that differs
	// (fi.EINVAL). Stats, Load, Quiesce and Abandon are then about the port. Its bounds are for all endpoints
	// together, and all together have at most 65,000 sends under way. There may be 16,384 of them, 4,096 for a JobID
	// and resource index. Not for FI_EP_MSG. It is for processes with very many endpoints: a post waits while
	// another thread is in the port.
	SharePort bool
	// KnownPeersOnly drops packets from addresses that are not in the address vector.
	// Default false: messages from unknown sources are accepted.
	KnownPeersOnly bool
	// RUDI lets writes and reads go by RUDI where the key of the region has IdempotentKey and
	// nothing needs a PDC: remote CQ data, an order, a fence, durability. Their packets have no
	// PDC, and an answer each. The peer may execute one several times and keeps no state for it; who
	// asks keeps at most 64 packets under way to a peer. In clear, operations go by RUD until a PDC
	// is open to the peer. Default false.
	RUDI bool
	// Logger gets the few events that somebody should act on, never a line per packet. It
	// is called from a goroutine of its own without locks, so it may block and may call the
	// endpoint. It must not call Close, which waits until all lines are written. nil
	// disables logging. Package uet/zaplog makes one of a zap logger.
	Logger *slog.Logger
	// Tap, if not nil, is called with every datagram that the endpoint sends or receives,
	// damaged ones too, in the order of the socket calls. It must not keep its argument.
	// The endpoint is locked meanwhile: Tap must neither block nor call the endpoint
	// or its queues. Endpoints that share a Tap call it concurrently. Of a port that endpoints share it sees all
	// datagrams: the endpoint that opens the port may have one, and one of another is refused by Enable (fi.EINVAL).
	Tap func(*Tapped)
	// Security authenticates peers and seals packets; nil means neither. Certificates
	// are only for FI_EP_MSG endpoints.
	Security *Security
	// CM are the times and bounds of connections.
	CM CMConfig

	// Tuning are the knobs of the protocol: times, bounds, and whether switches trim.
	Tuning Tuning
	// Socket holds the settings of the endpoint's UDP sockets: buffers and offloads.
	Socket Socket

	network udp.Network // instead of sockets, for tests of whole programs (internal/door)
}

// An Encapsulation is how packets lie in IP packets (Config.Encapsulation).
type Encapsulation = wire.Encapsulation

// The encapsulations of an endpoint.
const (
	Symmetric = wire.Symmetric
	Standard  = wire.Standard
)

// port returns the port of an endpoint that asks for port asked.
func (c *Config) port(asked uint16) uint16 {
	if c.Encapsulation == Standard && asked == 0 {
		return wire.Port
	}
	return asked
}

func (c *Config) check() error {
	switch c.PayloadMTU {
	case 0, 1024, 2048, 4096, 8192:
	default:
		return fmt.Errorf("uet: PayloadMTU %d is not 1024, 2048, 4096 or 8192", c.PayloadMTU)
	}
	if c.JobID >= 1<<24 {
		return fmt.Errorf("uet: JobID %#x is longer than 24 bits", c.JobID)
	}
	if c.Encapsulation > Standard {
		return fmt.Errorf("uet: Encapsulation %v is neither symmetric nor standard", c.Encapsulation)
	}
	if c.Paths < 0 || c.Paths > MaxPaths {
		return fmt.Errorf("uet: Paths %d is not 0 to %d", c.Paths, MaxPaths)
	}
	if r := portrange.Range(c.Socket.Ports); r.Check() != nil {
		return fmt.Errorf("uet: Socket.Ports: %w", r.Check())
	} else if c.Paths > 1 && !r.IsZero() && r.Len() < c.Paths {
		return fmt.Errorf("uet: Socket.Ports %v are fewer than Paths %d", r, c.Paths)
	}
	if c.Tuning.Trimming && c.NoCRC && c.Security == nil {
		return errors.New("uet: Tuning.Trimming needs the CRC, which tells a whole packet from one that was cut: not with NoCRC")
	}
	return c.Tuning.check()
}
