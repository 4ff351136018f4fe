package pds

import (
	"net/netip"
	"time"
)

// An Arrival says where and when a packet arrived. The owner of the Table fills it for each
// packet and lends it for the call.
type Arrival struct {
	Now time.Duration
	// From is the address of the sender, which its packets and their answers go to.
	From netip.AddrPort
	// Main is the main port of the sender, by which it is known, if the packet came from another port
	// and says so; else 0.
	Main uint16
	// Path is the path that an answer leaves by (S-PKT-03), as the owner numbers paths.
	Path uint32

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
	// Taken means that other threads take the processor of this side for milliseconds.
	Taken bool

	// Waited is how long the packet is known to have waited on this side, not on the path.
	Waited time.Duration
}

// source is the address by which the sender is known.
func (in *Arrival) source() netip.AddrPort {
	if in.Main == 0 {
		return in.From
	}
	return netip.AddrPortFrom(in.From.Addr(), in.Main)
}
