package pds

import (
	"net/netip"
	"time"
)

// An Arrival says where and when a packet arrived. The owner of the Table fills it for each
// packet and lends it for the call.
type Arrival struct {
	Now  time.Duration
	From netip.AddrPort
	Path uint8 // index of the local port that received it

	// Who is the authenticated life of the sender: any number but 0 and the highest. 0 means
	// not authenticated, as always with SecureNone. A target's PDC belongs to the sender of
	// its SYN, an initiator's PDC to the sender of its first ACK.
	Who uint64

	// Small means that the packet, a request, is shorter than a NACK.
	Small bool

	CE bool // a switch marked it (ECN congestion experienced)

	// Paused means that this side did not read the network for a while. The packet may have
	// waited here, so it must not serve to measure the path.
	Paused bool
}
