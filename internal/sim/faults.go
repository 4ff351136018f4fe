package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// Faults is what a Line does to the datagrams that pass it. The zero Faults is a perfect wire:
// no delay, no limit, no loss. Probabilities are per datagram, 0 to 1.
type Faults struct {
	// Delay is the time a datagram takes. Jitter is added to it, uniform in [0, Jitter), and
	// makes datagrams overtake each other unless InOrder is set.
	Delay   time.Duration
	Jitter  time.Duration
	InOrder bool
	// Spike is the probability of an extra delay of up to SpikeDelay. It never delays other
	// datagrams.
	Spike      float64
	SpikeDelay time.Duration

	// Rate is in bytes per second, IP and UDP headers included; 0 means no limit. Queue is how
	// many bytes may wait for the rate; more are dropped; 0 means no limit. An ECT datagram
	// that finds more than Mark bytes waiting leaves with CE; 0 means never. If MarkAll is more
	// than Mark, the share that is marked grows evenly from 0 at Mark to 1 at MarkAll.
	Rate    int64
	Queue   int
	Mark    int
	MarkAll int
	// CE marks ECT datagrams at random.
	CE float64
	// MTU is the largest IP packet in bytes; larger ones vanish without an error (a black
	// hole). 0 means no limit. Holes are the times when a line has such a limit.
	MTU   int
	Holes []Hole

	// Loss is independent loss, Burst clustered loss. Drop lists the datagrams to drop by their
	// number on this line (the first is 0). Blackouts are the times when nothing passes.
	Loss      float64
	Burst     Burst
	Drop      []uint64
	Blackouts []Window

	// Reorder makes a datagram late until ReorderBy later ones have passed it (1 is a swap) or
	// ReorderHold is over (default 20 ms).
	Reorder     float64
	ReorderBy   int
	ReorderHold time.Duration
	// Reverse begins to hold back datagrams. When ReverseLen are held back or ReorderHold is
	// over, they leave in the opposite order.
	Reverse    float64
	ReverseLen int

	// Duplicate makes 1 to DuplicateMax copies (default 1), each late by up to DuplicateLate.
	Duplicate     float64
	DuplicateMax  int
	DuplicateLate time.Duration

	// Corrupt flips 1 to CorruptBits bits (default 1). Truncate cuts off the end at any length.
	// Pad adds up to 64 bytes.
	Corrupt     float64
	CorruptBits int
	Truncate    float64
	Pad         float64

	// Trim cuts packets that find too much waiting, instead of dropping them.
	Trim Trim

	// Paths adds to the above for datagrams by the local port they leave from. Nothing is added
	// for a path beyond the end of the slice.
	Paths []PathFaults

	// Filter, if not nil, decides about each datagram before all other faults. It borrows p. It
	// may read the protocol, which this package does not know.
	Filter func(now time.Duration, p *Packet) Verdict
}

// PathFaults are the Faults of one path (one entropy value).
type PathFaults struct {
	Delay time.Duration
	Loss  float64 // 1: dead
	CE    float64
}

// Trim is how a line cuts the payload off packets (UE packet trimming). The zero Trim cuts
// nothing. Only packets with one of two DSCP values are cut. They get another DSCP and leave
// before what waits, as packets of the class Control do. Packets of at most Keep bytes, and
// those that Pad has made longer, are not cut.
type Trim struct {
	Trimmable, TrimmableRTX, As, Control uint8

	// A Trimmable packet is cut if more than After bytes wait for the rate, a TrimmableRTX one
	// if more than AfterRTX do (default 1.5 × After). 0 in After means that none is cut so.
	After, AfterRTX int
	// Share and ShareRTX cut at random, whatever waits.
	Share, ShareRTX float64
	// Keep is how many bytes of a datagram stay. The default is 36, of the 64 that switches
	// keep of an IPv4 packet.
	Keep int
}

// on reports whether packets may be cut.
func (t *Trim) on() bool { return t.After > 0 || t.Share > 0 || t.ShareRTX > 0 }

// Burst is clustered loss.
type Burst = badnet.Burst

// A Window is the time from From until before To.
type Window struct{ From, To time.Duration }

// A Hole is a time when IP packets of more than MTU bytes vanish.
type Hole struct {
	Window
	MTU int
}

// A Verdict is what a Filter decides about a datagram.
type Verdict struct {
	Drop   bool
	Delay  time.Duration // delay in addition
	Copies int           // copies in addition
}

// check panics on values that make no sense, which is a test's bug. It returns the faults that
// badnet decides.
func (f *Faults) check() badnet.Faults {
	b := badnet.Faults{
		Loss: f.Loss, Burst: f.Burst, Corrupt: f.Corrupt, CorruptBits: badnet.Count{N: f.CorruptBits, UpTo: true}, CE: f.CE,
		Duplicate: f.Duplicate, Copies: badnet.Count{N: f.DuplicateMax, UpTo: true}, DuplicateLate: f.DuplicateLate,
		Reorder: f.Reorder, ReorderBy: badnet.Count{N: f.ReorderBy}, ReorderHold: f.ReorderHold, Delay: f.Delay, Jitter: f.Jitter,
	}
	err := b.Check()
	for _, p := range []float64{f.Spike, f.Reverse, f.Truncate, f.Pad, f.Trim.Share, f.Trim.ShareRTX} {
		err = cmp.Or(err, badnet.Share("spike, reverse, truncate, pad or trim", p))
	}
	if err != nil || f.SpikeDelay < 0 {
		panic(fmt.Sprintf("sim: Faults: %v, spike of %v", err, f.SpikeDelay))
	}
	if t := &f.Trim; t.on() && (t.As == t.Trimmable || t.As == t.TrimmableRTX) {
		panic("sim: Faults.Trim cuts what it has cut")
	}
	return b
}

// Healed returns f without what loses, changes, repeats or reorders datagrams. Delay, jitter,
// rate, queue, MTU and the trimming of what waits stay.
func (f Faults) Healed() Faults {
	f.Trim.Share, f.Trim.ShareRTX = 0, 0
	return Faults{Delay: f.Delay, Jitter: f.Jitter, InOrder: true, Rate: f.Rate, Queue: f.Queue, Mark: f.Mark, MarkAll: f.MarkAll, MTU: f.MTU, Trim: f.Trim}
}
