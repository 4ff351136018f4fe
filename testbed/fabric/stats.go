package fabric

import (
	"net/netip"
	"time"
)

// A Why is what was decided about a packet.
type Why uint8

// The decisions.
const (
	Passed     Why = iota // left the switch
	NoRoute               // no port has the destination
	LostRandom            // Rule.Loss
	LostBurst
	LostExact // Rule.Drop, Rule.First
	LostBlackhole
	LostDown
	LostMTU
	LostQueue     // tail drop in the low class
	LostQueueHigh // tail drop in the high class
	Trimmed
	Marked
	Corrupted
	Duplicated
	Reordered // held until others have passed
	Delayed   // Rule.Delay
	Replayed
	NumWhys
)

// A Decision is one line of the log.
type Decision struct {
	At   time.Duration // of the switch's clock
	ID   uint64        // of the packet, from 1; copies have their original's
	Why  Why
	Line string // "h1.from", "spine.2", "h2.to"
	Rule string // name of the rule that did it
	Src  netip.AddrPort
	Dst  netip.AddrPort
	Len  int    // of the IP packet
	Kind string // as Match.Kind
	PSN  uint32 // of a request, and of an ack its ack_psn; 0 if not seen
	PDC  uint16 // SPDCID; 0 if not seen
}

// Stats is what the switch has done.
type Stats struct {
	Now      Duration             `json:"now"`
	Started  *Duration            `json:"started,omitempty"` // when the first UET packet came: zero of the Events
	Received uint64               `json:"received"`
	Sent     uint64               `json:"sent"`
	Lines    map[string]LineStats `json:"lines"`
	// Whys are the sums over all lines, by name ("lost_random").
	Whys map[string]uint64 `json:"whys"`
}

// LineStats is what one line has done.
type LineStats struct {
	Packets  uint64            `json:"packets"` // that entered
	Bytes    uint64            `json:"bytes"`
	Whys     map[string]uint64 `json:"whys"`
	Waiting  int64             `json:"waiting"`      // bytes, now
	MaxWait  int64             `json:"max_waiting"`  // bytes, the most so far
	SentB    uint64            `json:"sent_bytes"`   // that left
	SentPkts uint64            `json:"sent_packets"` // that left
}
