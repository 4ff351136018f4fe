package pds

import (
	"net/netip"
	"time"
)

// An Arrival is how a packet came here. The owner of the Table fills it for each packet and
// lends it for the call.
type Arrival struct {
	Now  time.Duration
	From netip.AddrPort
	Path uint8 // index of the local port it came to

	// Who is the authenticated life of the sender, any number but 0 and the highest; 0:
	// nobody, always where Config.Secure is SecureNone. A PDC belongs to one: a target's
	// to that of its SYN, an initiator's to that of its first ACK.
	Who uint64

	CE bool // a switch marked it: congestion experienced

	// Paused: nobody looked at the network for a while before. The packet waited here for
	// an unknown part of that, which is no delay of the path.
	Paused bool
}
