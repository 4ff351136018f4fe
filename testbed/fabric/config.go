package fabric

import "net/netip"

// A Config describes a switch. It is what topologies in scenario files and the
// HTTP interface of the switch program carry, as TOML and as JSON.
type Config struct {
	// Seed decides everything random.
	Seed uint64 `toml:"seed" json:"seed"`
	// Ports join hosts to the switch, one each or more behind one port.
	Ports []Port `toml:"port" json:"ports"`
	// Spines are the parallel paths between ports. A packet takes the one that
	// its addresses and its UDP source port choose (ECMP). None: ports meet directly.
	Spines []Line `toml:"spine" json:"spines,omitempty"`
	// Classes are the code points that trimming goes by.
	Classes Classes `toml:"classes" json:"classes"`
	// Events happen by themselves, their time counted from the first UET packet
	// that the switch sees (or from Start).
	Events []Event `toml:"event" json:"events,omitempty"`

	// Log, if not nil, is told of each decision. It borrows its argument.
	Log func(*Decision) `toml:"-" json:"-"`
}

// A Port is where hosts are joined.
type Port struct {
	Name string `toml:"name" json:"name"`
	// Addrs are the addresses behind it.
	Addrs []netip.Prefix `toml:"addrs" json:"addrs"`
	// From is what happens to packets that come from the hosts, To to those that
	// go to them: the last hop, whose queue is the one that incast fills.
	From Line `toml:"from" json:"from"`
	To   Line `toml:"to" json:"to"`
}

// A Line is one stretch of the way, in one direction. The zero Line is a perfect
// wire without limit.
type Line struct {
	// Rate is bits per second of IP packets, 0: no limit. Delay is the time a
	// packet takes beyond its turn, Jitter is added to it, uniform in [0, Jitter);
	// it overtakes unless InOrder.
	Rate    Rate     `toml:"rate" json:"rate,omitempty"`
	Delay   Duration `toml:"delay" json:"delay,omitempty"`
	Jitter  Duration `toml:"jitter" json:"jitter,omitempty"`
	InOrder bool     `toml:"in_order" json:"in_order,omitempty"`
	// Queue is how many bytes may wait for the rate, in the low class; more is
	// dropped (tail drop). The packet that is being sent waits no more. 0: 1 MiB
	// (DefaultQueue). The high class (acks, control, trimmed
	// packets) has a queue of its own of QueueHigh bytes (0: as Queue), which goes first.
	Queue     Bytes `toml:"queue" json:"queue,omitempty"`
	QueueHigh Bytes `toml:"queue_high" json:"queue_high,omitempty"`
	// ECN marks ECT packets of the low class as they leave the queue: all of them
	// when more than Max bytes of that class wait behind them, none up to Min, in
	// between with a probability that rises to Prob. Min = Max is a threshold.
	ECN *ECN `toml:"ecn" json:"ecn,omitempty"`
	// Trim cuts the payload off packets of the trimmable classes that find more
	// than After (resent ones: AfterRTX) bytes of the low class waiting, or the queue
	// full, and sends the header on in the high class. A packet without payload is not
	// trimmed but dropped when the queue is full, as is one of any other class.
	Trim *Trim `toml:"trim" json:"trim,omitempty"`
	// MTU is the largest IP packet in bytes; larger ones are dropped without a
	// word. 0: any.
	MTU int `toml:"mtu" json:"mtu,omitempty"`
	// Down drops packets as they enter, and queued ones when their turn comes, like a
	// cable that is out. Packets that have left the queue arrive.
	Down bool `toml:"down" json:"down,omitempty"`
	// Rules are judged in order, each on what those before it let through.
	Rules []Rule `toml:"rule" json:"rules,omitempty"`
}

// ECN is how a queue marks.
type ECN struct {
	Min  Bytes   `toml:"min" json:"min"`
	Max  Bytes   `toml:"max" json:"max"`
	Prob float64 `toml:"prob" json:"prob,omitempty"` // at Max; 0: 1
}

// Trim is how a queue trims (UE 1.0.1, packet trimming).
type Trim struct {
	After    Bytes `toml:"after" json:"after"`
	AfterRTX Bytes `toml:"after_rtx" json:"after_rtx,omitempty"` // 0: 1.5 × After
	// Keep is how many bytes stay, from the IP header on; 0: up to the end of the
	// PDS and SES headers (at least 64). Of a sealed packet, whose headers cannot be
	// seen, as much as the longest of them take.
	Keep int `toml:"keep" json:"keep,omitempty"`
	// LastHop says which of the two code points trimmed packets get: that of the
	// last hop (incast, no fault of the path) or that of a hop before it. Empty: last
	// hop on a To line, else not.
	LastHop *bool `toml:"last_hop" json:"last_hop,omitempty"`
}

// Classes are the DSCP values (0 to 63) that hosts and switch agree on. The zero
// value stands for DefaultClasses.
type Classes struct {
	Trimmable      uint8 `toml:"trimmable" json:"trimmable"`
	TrimmableRTX   uint8 `toml:"trimmable_rtx" json:"trimmable_rtx"`
	Trimmed        uint8 `toml:"trimmed" json:"trimmed"`
	TrimmedLastHop uint8 `toml:"trimmed_last_hop" json:"trimmed_last_hop"`
	// Control is the code point of acks and control packets: the high class, never trimmed.
	Control uint8 `toml:"control" json:"control"`
}

// DefaultClasses are uetkit's (transport.DefaultClasses has the same; UE leaves
// the numbers to the deployment): AF11, AF12, AF31, AF32, EF.
var DefaultClasses = Classes{Trimmable: 10, TrimmableRTX: 12, Trimmed: 26, TrimmedLastHop: 28, Control: 46}

// A Rule does something to the packets that match. A field that is 0 or empty does
// nothing; several may be set. Loss comes first, then corruption, CE, trimming, copies,
// and last either reordering or delay.
//
// Its random numbers are a stream of its own, made of the seed and the names of
// line and rule (and of how many rules of the name the line has had): other rules
// change nothing in it.
type Rule struct {
	// Name is how Events and the Log call it. Empty: the first thing it does ("loss").
	Name string `toml:"name" json:"name"`
	// Match are the packets it is about; the zero Match is all of them.
	Match Match `toml:"match" json:"match"`

	// Loss is the share that is lost, independently. Burst is clustered loss.
	Loss  float64 `toml:"loss" json:"loss,omitempty"`
	Burst *Burst  `toml:"burst" json:"burst,omitempty"`
	// Drop are the exact packets, by their number among those that match (the
	// first is 0). First drops that many UET packets at the start of each PDC's
	// direction (source address and port, SPDCID; a SYN with another Start_PSN is
	// another PDC).
	Drop  []uint64 `toml:"drop" json:"drop,omitempty"`
	First int      `toml:"first" json:"first,omitempty"`
	// Blackhole drops all.
	Blackhole bool `toml:"blackhole" json:"blackhole,omitempty"`

	// Delay is added to the way of a share Late (0: all) of the packets; others overtake them.
	Delay Duration `toml:"delay" json:"delay,omitempty"`
	Late  float64  `toml:"late" json:"late,omitempty"`
	// Reorder makes a share late until ReorderBy (0: 1, a swap) later ones passed
	// or ReorderHold (0: 20 ms) is over.
	Reorder     float64  `toml:"reorder" json:"reorder,omitempty"`
	ReorderBy   int      `toml:"reorder_by" json:"reorder_by,omitempty"`
	ReorderHold Duration `toml:"reorder_hold" json:"reorder_hold,omitempty"`

	// Duplicate sends a share again, Copies (0: 1) times, each late by up to
	// DuplicateLate. Of the copies that several rules make of copies, those of the
	// third generation are copied no more.
	Duplicate     float64  `toml:"duplicate" json:"duplicate,omitempty"`
	Copies        int      `toml:"copies" json:"copies,omitempty"`
	DuplicateLate Duration `toml:"duplicate_late" json:"duplicate_late,omitempty"`
	// Corrupt flips CorruptBits (0: 1) bits of the UDP payload of a share. The UDP
	// checksum is made right again, so that it is the transport that must notice.
	Corrupt     float64 `toml:"corrupt" json:"corrupt,omitempty"`
	CorruptBits int     `toml:"corrupt_bits" json:"corrupt_bits,omitempty"`
	// CE marks a share of the ECT packets.
	CE float64 `toml:"ce" json:"ce,omitempty"`
	// Trim trims a share of those of the trimmable classes, whatever waits.
	Trim float64 `toml:"trim" json:"trim,omitempty"`
	// Replay is an adversary that records packets, lost ones too, and sends them
	// again later, as they were.
	Replay *Replay `toml:"replay" json:"replay,omitempty"`
}

// Burst is a Gilbert-Elliott process: in the bad state packets are lost with
// probability Loss, in the good state none are.
type Burst struct {
	Enter float64 `toml:"enter" json:"enter"`         // good to bad, per packet
	Leave float64 `toml:"leave" json:"leave"`         // bad to good, per packet
	Loss  float64 `toml:"loss" json:"loss,omitempty"` // 0: 1
}

// Replay keeps up to Keep packets (0: 4096) and sends Rate of them per second
// again, chosen at random, each at least After old. When it has its fill, a new
// packet takes the place of one at random that is old enough to have been sent.
type Replay struct {
	Keep  int      `toml:"keep" json:"keep,omitempty"`
	Rate  float64  `toml:"rate" json:"rate"`
	After Duration `toml:"after" json:"after,omitempty"`
}

// A Match chooses packets. All that is set must hold.
type Match struct {
	// Kind: data (any request), ack (RUDI responses too), nack, control, sealed (TSS:
	// nothing more is seen), other (not UET); a leading ! is "all but". UET is a UDP
	// payload that parses as such, on whatever port; where it might be QUIC too (types
	// 8 to 15), the port must be 4793, the DSCP one of Classes, or the CRC right.
	Kind string `toml:"kind" json:"kind,omitempty"`
	// Flag of the PDS header: syn, retx, ar; a leading ! is "without".
	Flag string `toml:"flag" json:"flag,omitempty"`
	// SrcPort and DstPort are UDP ports, 0: any. Src and Dst are addresses.
	SrcPort uint16       `toml:"src_port" json:"src_port,omitempty"`
	DstPort uint16       `toml:"dst_port" json:"dst_port,omitempty"`
	Src     netip.Prefix `toml:"src" json:"src,omitzero"`
	Dst     netip.Prefix `toml:"dst" json:"dst,omitzero"`
	// EOM are packets that end a message (the tail).
	EOM bool `toml:"eom" json:"eom,omitempty"`
	// MinLen is the least length of the IP packet in bytes.
	MinLen int `toml:"min_len" json:"min_len,omitempty"`
}

// An Event changes the switch while it runs.
type Event struct {
	// At is when the event happens, For how long its changes last. Then they are taken
	// back, except where other events have changed the same since. With For 0 they last,
	// and show again when a change on top of them, which was made for a while, ends.
	At  Duration `toml:"at" json:"at"`
	For Duration `toml:"for" json:"for,omitempty"`
	// Every repeats it, Times times (0: until the end), for a link that flaps.
	Every Duration `toml:"every" json:"every,omitempty"`
	Times int      `toml:"times" json:"times,omitempty"`
	// On names the lines: "PORT.from", "PORT.to", "PORT" (both), "spine.N" (from
	// 0), "*".
	On []string `toml:"on" json:"on"`
	// Set replaces the fields that are set in it (rate, delay, jitter, queue, ecn, trim,
	// mtu), leaving the rest; Down takes the line down; Clear removes the rules of that name,
	// Rule adds one, in this order, behind the others.
	Set   *Line  `toml:"set" json:"set,omitempty"`
	Down  bool   `toml:"down" json:"down,omitempty"`
	Rule  *Rule  `toml:"rule" json:"rule,omitempty"`
	Clear string `toml:"clear" json:"clear,omitempty"`
}
