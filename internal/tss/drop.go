package tss

import "strconv"

// A Drop is the reason why Open dropped a packet. Nothing answers such a packet
// (S-SEC-05).
type Drop uint8

const (
	Good       Drop = iota
	DropShort       // ends inside the security header or the ICV
	DropClear       // has no security header: nothing in clear gets in (T8)
	DropSDI         // of another secure domain
	DropNoSSI       // without SSI, and the domain uses it
	DropSSI         // with SSI, and the domain does not use it
	DropAN          // no key under this association number, or none any more
	DropLate        // of an epoch too long ago
	DropSource      // of a source that is not the peer, or from an address that is not the source's
	DropAuth        // the tag is wrong
	DropFull        // authentic, but there is no room to remember another source
	NumDrops        // how many there are
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

// Stats are what a Domain counted since New.
type Stats struct {
	In    uint64           // packets that Open accepted
	Out   uint64           // packets sealed
	Drops [NumDrops]uint64 // packets that Open dropped, by reason
	// NoKey and Exhausted are packets that Begin refused: there was no key to send
	// with, or no TSC left under it.
	NoKey     uint64
	Exhausted uint64
	Replayed  uint64 // packets that Fresh refused
	Late      uint64 // of them, older than the window, seen or not
	Derived   uint64 // keys derived
	Evicted   uint64 // sources forgotten for new ones
	Sources   int    // sources remembered now
	Windows   int    // of them, with a replay window
}
