package tss

import "strconv"

// A Drop is the reason why Open dropped a packet. Such a packet gets no answer (S-SEC-05).
type Drop uint8

const (
	Good       Drop = iota
	DropShort       // it ends inside the security header or the ICV
	DropClear       // it has no security header: packets in clear are not accepted (T8)
	DropSDI         // it is of another secure domain
	DropNoSSI       // it has no SSI, and the domain uses it
	DropSSI         // it has an SSI, and the domain does not use it
	DropAN          // there is no key under its association number
	DropLate        // its epoch is too old
	DropSource      // its source is not the peer, or its address is not the source's
	DropAuth        // its tag is wrong
	DropFull        // it is authentic, but there is no room for another source
	NumDrops        // the number of reasons
)

var dropNames = [NumDrops]string{
	"good", "short", "clear", "other SDI", "no SSI", "unwanted SSI", "no key for AN", "late epoch", "other source", "authentication failed", "too many sources",
}

func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "drop " + strconv.Itoa(int(d))
}

// Stats counts what a Domain did since New.
type Stats struct {
	In    uint64           // packets that Open accepted
	Out   uint64           // packets sealed
	Drops [NumDrops]uint64 // packets that Open dropped, by reason
	// NoKey and Exhausted are packets for which Begin returned false: there was no key to send
	// with, or no TSC left under it.
	NoKey     uint64
	Exhausted uint64
	Replayed  uint64 // packets for which Fresh returned false
	Late      uint64 // those of them that were older than the window, seen or not
	Derived   uint64 // keys derived
	Evicted   uint64 // sources forgotten for new ones
	Sources   int    // sources remembered now
	Windows   int    // those of them with a replay window
}
