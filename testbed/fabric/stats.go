package fabric

import (
	"net/netip"
	"strconv"
	"time"
)

// A Why is a decision about a packet.
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
	LostFull // the switch held all that it may: 256 MiB of packets
	NumWhys
)

var whyNames = [NumWhys]string{
	"passed", "no_route", "lost_random", "lost_burst", "lost_exact", "lost_blackhole", "lost_down", "lost_mtu", "lost_queue",
	"lost_queue_high", "trimmed", "marked", "corrupted", "duplicated", "reordered", "delayed", "replayed", "lost_full",
}

// String returns the name used in Stats.
func (w Why) String() string {
	if w < NumWhys {
		return whyNames[w]
	}
	return "why " + strconv.Itoa(int(w))
}

// Lost reports whether the decision ends a packet inside the switch.
func (w Why) Lost() bool { return w >= NoRoute && w <= LostQueueHigh || w == LostFull }

// A Decision is one line of the log.
type Decision struct {
	At   time.Duration // of the switch's clock
	ID   uint64        // of the packet, from 1; copies have their original's
	Why  Why
	Line string // "h1.from", "spine.2", "h2.to"
	Rule string // name of the rule that did it
	Src  netip.AddrPort
	Dst  netip.AddrPort
	Len  int    // of the IP packet; of one that is trimmed, before that
	Kind string // as Match.Kind
	PSN  uint32 // of a request, and of an ack its ack_psn; 0 if not seen
	PDC  uint16 // SPDCID; 0 if not seen
}

// Stats are the counters of a switch.
type Stats struct {
	Now      Duration  `json:"now"`
	Started  *Duration `json:"started,omitempty"` // when the first UET packet came: zero of the Events
	Received uint64    `json:"received"`
	Sent     uint64    `json:"sent"`
	// Inside are the packets on their way. Each packet ends in one way:
	// Received + duplicated + replayed = Sent + Inside + no_route + all that begin with lost_.
	Inside uint64               `json:"inside"`
	Lines  map[string]LineStats `json:"lines"`
	// Whys are the sums over all lines, by decision name ("lost_random").
	Whys map[string]uint64 `json:"whys"`
}

// LineStats are the counters of a line.
type LineStats struct {
	Packets  uint64            `json:"packets"` // that entered
	Bytes    uint64            `json:"bytes"`
	Whys     map[string]uint64 `json:"whys"`
	Waiting  int64             `json:"waiting"`      // bytes, now, both classes
	MaxWait  int64             `json:"max_waiting"`  // bytes, the most so far
	SentB    uint64            `json:"sent_bytes"`   // that left
	SentPkts uint64            `json:"sent_packets"` // that left
}

// Stats returns a copy of the counters.
func (s *Switch) Stats(now time.Duration) *Stats {
	s.Advance(now)
	st := &Stats{
		Now: Duration(s.now), Received: s.received, Sent: s.sentN, Inside: uint64(s.inside),
		Lines: make(map[string]LineStats, len(s.lines)), Whys: map[string]uint64{},
	}
	if s.started {
		zero := Duration(s.zero)
		st.Started = &zero
	}
	for _, l := range s.lines {
		ls := LineStats{
			Packets: l.packets, Bytes: l.bytes, Whys: map[string]uint64{}, Waiting: l.lowBytes + l.highBytes, MaxWait: l.maxWait,
			SentB: l.sentB, SentPkts: l.sentPackets,
		}
		for w, n := range l.whys {
			if n > 0 {
				ls.Whys[Why(w).String()] = n
				st.Whys[Why(w).String()] += n
			}
		}
		st.Lines[l.name] = ls
	}
	return st
}
