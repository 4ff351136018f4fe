package fabric

import (
	_ "embed"
	"net/netip"

	"github.com/uetkit/uetkit/internal/badnet"
)

// ConfigSource is this file. Its comments are what `testbed explain` prints.
//
//go:embed config.go
var ConfigSource string

// A Config describes a switch. Topologies in scenario files have it as TOML, the HTTP
// interface of the switch program as JSON.
type Config struct {
	// Seed is the seed of all random numbers.
	Seed uint64 `toml:"seed" json:"seed"`
	// Ports connect hosts to the switch, one or more hosts to a port.
	Ports []Port `toml:"port" json:"ports"`
	// Spines are the parallel paths between ports. A packet's addresses and UDP source port
	// choose its spine (ECMP). Without spines, packets go directly from port to port.
	Spines []Line `toml:"spine" json:"spines,omitempty"`
	// Classes are the code points that trimming uses.
	Classes Classes `toml:"classes" json:"classes"`
	// Events happen at given times after the first UET packet that the switch receives, or
	// after Start.
	Events []Event `toml:"event" json:"events,omitempty"`

	// Log, if not nil, is called with each decision. It borrows its argument.
	Log func(*Decision) `toml:"-" json:"-"`
}

// A Port connects hosts to the switch.
type Port struct {
	Name string `toml:"name" json:"name"`
	// Addrs are the addresses of its hosts.
	Addrs []netip.Prefix `toml:"addrs" json:"addrs"`
	// From is the line of packets that come from the hosts. To is the line of packets that
	// go to them: the last hop, whose queue incast fills.
	From Line `toml:"from" json:"from"`
	To   Line `toml:"to" json:"to"`
}

// A Line is one part of a packet's way through the switch, in one direction. Empty it is
// a perfect wire without a rate limit.
type Line struct {
	// Rate is the rate of IP packets in bits per second; 0 means no limit. Delay is the delay of
	// a packet after its transmission. Jitter is added to it, uniform in [0, Jitter);
	// packets may overtake each other unless InOrder is set.
	Rate    Rate     `toml:"rate" json:"rate,omitempty"`
	Delay   Duration `toml:"delay" json:"delay,omitempty"`
	Jitter  Duration `toml:"jitter" json:"jitter,omitempty"`
	InOrder bool     `toml:"in_order" json:"in_order,omitempty"`
	// Queue is how many bytes of the low class may wait for the rate; packets beyond that
	// are dropped (tail drop). The packet being transmitted does not count. 0 means 1 MiB.
	// The high class (ACKs, control and trimmed packets) goes first and has
	// a queue of its own, of QueueHigh bytes (0 means Queue).
	Queue     Bytes `toml:"queue" json:"queue,omitempty"`
	QueueHigh Bytes `toml:"queue_high" json:"queue_high,omitempty"`
	// Small is up to how many bytes an IP packet of any class goes with the high class, before
	// larger ones that wait. 0 means that its length does not matter.
	Small Bytes `toml:"small" json:"small,omitempty"`
	// ECN marks ECT packets of the low class as they leave the queue. If more than Max
	// bytes of that class wait behind a packet it is always marked, up to Min bytes never;
	// in between the probability rises to Prob. Min = Max is a threshold.
	ECN *ECN `toml:"ecn" json:"ecn,omitempty"`
	// Trim trims packets of the trimmable classes that find more than After (resent
	// packets: AfterRTX) bytes of the low class waiting, or the queue full. The remaining
	// header goes on in the high class. If the queue is full, a packet without payload, or
	// of any other class, is dropped instead.
	Trim *Trim `toml:"trim" json:"trim,omitempty"`
	// MTU is the largest IP packet in bytes; larger ones are dropped silently. 0 means any size.
	MTU int `toml:"mtu" json:"mtu,omitempty"`
	// Down drops packets as they enter, and queued packets when their turn comes, like an
	// unplugged cable. Packets that have left the queue still arrive.
	Down bool `toml:"down" json:"down,omitempty"`
	// Rules do what a perfect line would not, in this order. Each sees the packets that those before it let through.
	Rules []Rule `toml:"rule" json:"rules,omitempty"`
}

// ECN configures how a queue marks.
type ECN struct {
	// Up to Min bytes waiting nothing is marked, beyond Max all.
	Min  Bytes   `toml:"min" json:"min"`
	Max  Bytes   `toml:"max" json:"max"`
	Prob float64 `toml:"prob" json:"prob,omitempty"` // the probability at Max; 0 means 1
}

// Trim configures how a queue trims (UE 1.0.1, packet trimming).
type Trim struct {
	// After is how many bytes must wait for packets to be trimmed, AfterRTX how many for resent ones
	// (0 means 1.5 × After).
	After    Bytes `toml:"after" json:"after"`
	AfterRTX Bytes `toml:"after_rtx" json:"after_rtx,omitempty"`
	// Keep is how many bytes of a trimmed packet stay, from the IP header on. 0 means up to the
	// end of the PDS and SES headers (at least 64). Of a sealed packet, whose headers
	// cannot be read, the longest possible headers stay.
	Keep int `toml:"keep" json:"keep,omitempty"`
	// LastHop chooses the code point of trimmed packets: that of the last hop (incast, no
	// fault of the path) or that of an earlier hop. Empty means last hop on the line to a host, earlier
	// hop on the others.
	LastHop *bool `toml:"last_hop" json:"last_hop,omitempty"`
}

// Classes are the DSCP values (0 to 63) that hosts and switch agree on. Left out they
// are 10, 12, 26, 28 and 46 in this order.
type Classes struct {
	// Trimmable packets may be trimmed, TrimmableRTX are those that are sent again. Trimmed and
	// TrimmedLastHop is what they become.
	Trimmable      uint8 `toml:"trimmable" json:"trimmable"`
	TrimmableRTX   uint8 `toml:"trimmable_rtx" json:"trimmable_rtx"`
	Trimmed        uint8 `toml:"trimmed" json:"trimmed"`
	TrimmedLastHop uint8 `toml:"trimmed_last_hop" json:"trimmed_last_hop"`
	// Control is the code point of ACKs and control packets, which are of the high class
	// and never trimmed.
	Control uint8 `toml:"control" json:"control"`
}

// DefaultClasses are uetkit's code points: AF11, AF12, AF31, AF32, EF.
// transport.DefaultClasses has the same; UE leaves the numbers to the deployment.
var DefaultClasses = Classes{Trimmable: 10, TrimmableRTX: 12, Trimmed: 26, TrimmedLastHop: 28, Control: 46}

// A Rule does something to the packets that match. A field that is 0 or empty does nothing;
// several may be set. They act in this order: loss, corruption, CE, trimming, copies, and
// last either reordering or delay.
//
// Each rule has its own stream of random numbers. The seed, the names of line and rule, and
// the count of earlier rules of that name on the line determine it; other rules do not
// change it.
type Rule struct {
	// Name identifies the rule in events and in the log of the switch. Empty means the first thing it does
	// ("loss").
	Name string `toml:"name" json:"name"`
	// Match selects packets; an empty one selects all.
	Match Match `toml:"match" json:"match"`

	// Loss is the share that is lost, independently. Burst is clustered loss of the others.
	Loss  float64 `toml:"loss" json:"loss,omitempty"`
	Burst *Burst  `toml:"burst" json:"burst,omitempty"`
	// Drop lists packets by their number among those that match (the first is 0). First
	// drops that many UET packets at the start of each direction of a PDC (source address
	// and port, SPDCID; a SYN with another Start_PSN is another PDC).
	Drop  []uint64 `toml:"drop" json:"drop,omitempty"`
	First int      `toml:"first" json:"first,omitempty"`
	// Blackhole drops all.
	Blackhole bool `toml:"blackhole" json:"blackhole,omitempty"`

	// Delay is added to a share Late (0 means all) of the packets; others overtake them.
	Delay Duration `toml:"delay" json:"delay,omitempty"`
	Late  float64  `toml:"late" json:"late,omitempty"`
	// Reorder is a share of packets held back until ReorderBy (0 means 1, a swap) later ones
	// have passed or ReorderHold (0 means 20 ms) is over.
	Reorder     float64  `toml:"reorder" json:"reorder,omitempty"`
	ReorderBy   int      `toml:"reorder_by" json:"reorder_by,omitempty"`
	ReorderHold Duration `toml:"reorder_hold" json:"reorder_hold,omitempty"`

	// Duplicate is a share that is sent again, Copies (0 means 1) times, each late by up to
	// DuplicateLate. If several rules copy copies, those of the third generation are copied
	// no more.
	Duplicate     float64  `toml:"duplicate" json:"duplicate,omitempty"`
	Copies        int      `toml:"copies" json:"copies,omitempty"`
	DuplicateLate Duration `toml:"duplicate_late" json:"duplicate_late,omitempty"`
	// Corrupt is a share in which CorruptBits (0 means 1) bits of the UDP payload flip. The UDP
	// checksum is corrected, so that only the transport can notice.
	Corrupt     float64 `toml:"corrupt" json:"corrupt,omitempty"`
	CorruptBits int     `toml:"corrupt_bits" json:"corrupt_bits,omitempty"`
	// CE is a share of the ECT packets that is marked.
	CE float64 `toml:"ce" json:"ce,omitempty"`
	// Trim is a share of the packets of the trimmable classes that is trimmed, however full
	// the queue is.
	Trim float64 `toml:"trim" json:"trim,omitempty"`
	// Replay is an adversary that records packets, lost ones too, and sends them again
	// later, unchanged.
	Replay *Replay `toml:"replay" json:"replay,omitempty"`
}

// Burst is clustered loss: packets begin and end bursts by chance, and those of a burst are lost by
// chance. Its longest time cannot be set in scenarios.
type Burst = badnet.Burst

// Replay records up to Keep packets (0 means 4096) and resends Rate of them per second, chosen
// at random, each at least After old. When it is full, a new packet replaces a random one
// that is old enough to be resent.
type Replay struct {
	// Keep is how many packets are kept, Rate how many are sent a second, After how old they are at least.
	Keep  int      `toml:"keep" json:"keep,omitempty"`
	Rate  float64  `toml:"rate" json:"rate"`
	After Duration `toml:"after" json:"after,omitempty"`
}

// A Match selects the packets that meet all of its conditions.
type Match struct {
	// Kind is data (any request), ack (RUDI responses too), nack, control, sealed (TSS:
	// nothing more can be read) or other (not UET); a leading ! negates it. UET is a UDP
	// payload on any port that parses as such. If it might also be QUIC (types 8 to 15),
	// the port must be 4793, the DSCP one of Classes, or the CRC right.
	Kind string `toml:"kind" json:"kind,omitempty"`
	// Flag is a flag of the PDS header: syn, retx, ar; a leading ! means "without".
	Flag string `toml:"flag" json:"flag,omitempty"`
	// SrcPort and DstPort are UDP ports; 0 means any. Src and Dst are addresses.
	SrcPort uint16       `toml:"src_port" json:"src_port,omitempty"`
	DstPort uint16       `toml:"dst_port" json:"dst_port,omitempty"`
	Src     netip.Prefix `toml:"src" json:"src,omitzero"`
	Dst     netip.Prefix `toml:"dst" json:"dst,omitzero"`
	// EOM selects packets that end a message.
	EOM bool `toml:"eom" json:"eom,omitempty"`
	// MinLen is the least length of the IP packet in bytes.
	MinLen int `toml:"min_len" json:"min_len,omitempty"`
}

// An Event changes the switch while it runs.
type Event struct {
	// At is when the event happens, For how long its changes last. Then they are undone,
	// except where later events have changed the same field. With For 0 they are permanent.
	// A temporary change of a later event hides them only while it lasts.
	At  Duration `toml:"at" json:"at"`
	For Duration `toml:"for" json:"for,omitempty"`
	// Every repeats the event, Times times (0 means until the end), for example for a line that
	// flaps.
	Every Duration `toml:"every" json:"every,omitempty"`
	Times int      `toml:"times" json:"times,omitempty"`
	// On names the lines: "PORT.from", "PORT.to", "PORT" (both), "spine.N" (N from 0), "*".
	On []string `toml:"on" json:"on"`
	// Set replaces the fields that are set in it (rate, delay, jitter, queue, ecn, trim,
	// mtu). Down takes the line down. Clear removes the rules of that name. Rule adds a
	// rule behind the others. They act in this order.
	Set   *Line  `toml:"set" json:"set,omitempty"`
	Down  bool   `toml:"down" json:"down,omitempty"`
	Rule  *Rule  `toml:"rule" json:"rule,omitempty"`
	Clear string `toml:"clear" json:"clear,omitempty"`
}
