package uet

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/uetkit/uetkit/transport/udp"
)

// Config holds the settings of an endpoint that libfabric has no attribute for.
// It travels in Info: set it in the hints of GetInfo, or in the Info before
// OpenEndpoint. The zero Config is the default.
type Config struct {
	// PayloadMTU is the most message bytes per packet: 1024, 2048, 4096 or
	// 8192. 0: the largest that fits the interface (R-INFO-28). Peers may
	// differ.
	PayloadMTU int
	// NoCRC leaves out the CRC-32C trailer. Both ends must agree.
	NoCRC bool
	// Paths is the number of UDP ports (entropy values) of the
	// endpoint. 0: 1.
	Paths int
	// JobID is the 24-bit job that peers must share. 0: the job
	// of the authorization key, else 1 (R-ADDR-07).
	JobID uint32
	// KnownPeersOnly refuses packets from addresses that are not in the AV.
	KnownPeersOnly bool
	// Seed, if not 0, makes the endpoint's random numbers repeatable: packet
	// numbers, context ids, jitter. For tests; an attacker could guess them.
	Seed uint64
	// Logger gets the few events that somebody should act on, never a line per packet.
	// A goroutine without locks calls it, so it may block, and may call the endpoint,
	// except Close, which waits until everything is written. nil disables logging.
	Logger *zap.Logger
	// Tap, if not nil, sees every datagram that the endpoint sends and every
	// one that it receives, damaged ones too, in the order of the socket
	// calls, with the reason of the send or what became of the packet. Of a secured
	// endpoint it sees the packets before they are sealed. It borrows its argument. It
	// is called with the endpoint locked: it must neither block nor call the endpoint
	// or its queues. Endpoints that share a Tap call it concurrently.
	Tap func(*Tapped)
	// Security authenticates peers and seals packets; nil: neither. Certificates are
	// for FI_EP_MSG endpoints.
	Security *Security
	// CM are the times and bounds of connections.
	CM CMConfig

	// Tuning are the knobs of the protocol: times, bounds, and whether switches trim.
	Tuning Tuning
	// Socket are the settings of the UDP sockets. uet sets the addresses and
	// GSOChanged.
	Socket udp.Config
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
	if c.Paths < 0 || c.Paths > udp.MaxPaths {
		return fmt.Errorf("uet: Paths %d is not 0 to %d", c.Paths, udp.MaxPaths)
	}
	if c.Tuning.Trimming && c.NoCRC && c.Security == nil {
		return errors.New("uet: Tuning.Trimming needs the CRC, which tells a whole packet from one that was cut: not with NoCRC")
	}
	return c.Tuning.check()
}
