// Package badnet is the model of a bad network: what becomes of a datagram on its way.
// The links of the simulator, the lines and rules of the testbed's switch, and the
// relay of uetperf decide by it, so that a knob means the same in all three.
//
// It decides and moves nothing. It reads no clock, starts no goroutine and takes
// randomness only from what it was given.
//
// A rate and its queue are not in it, for they have only their names in common: the
// simulator computes when a datagram leaves as it enters, the switch has queues of two
// classes and looks at them again when a packet leaves or the rate changes, and the
// relay has none.
package badnet

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Faults are the knobs. A share is that of the datagrams to which it happens, 0 to 1.
// The zero Faults are a perfect wire.
type Faults struct {
	// Loss is the share that is lost, each by itself. Burst is clustered loss of the
	// others.
	Loss  float64
	Burst Burst
	// Corrupt is the share of which CorruptBits bits flip. Of a number "up to", a bit
	// may be drawn twice, which makes it what it was.
	Corrupt     float64
	CorruptBits Count
	// CE is the share of the ECT datagrams that are marked, Trim that of the trimmable
	// ones that are trimmed.
	CE, Trim float64
	// Duplicate is the share that Copies follow, each late by up to DuplicateLate.
	Duplicate     float64
	Copies        Count
	DuplicateLate time.Duration
	// Reorder is the share that is held until ReorderBy others have passed or
	// ReorderHold (0: DefaultHold) is over.
	Reorder     float64
	ReorderBy   Count
	ReorderHold time.Duration
	// Delay is the time that a share Late (0: all) takes. Jitter is added, uniform in
	// [0, Jitter).
	Delay, Jitter time.Duration
	Late          float64
}

// Burst is a Gilbert-Elliott process: in the bad state datagrams are lost with
// probability Loss, in the good state none are.
type Burst struct {
	Enter float64 `toml:"enter" json:"enter"`         // good to bad, per datagram
	Leave float64 `toml:"leave" json:"leave"`         // bad to good, per datagram: 1/mean length
	Loss  float64 `toml:"loss" json:"loss,omitempty"` // 0: 1
	// Max is the longest time in the bad state, 0: any. A process that counts
	// datagrams is hard on a sender that has slowed down to one per RTO.
	Max time.Duration `toml:"-" json:"-"`
}

// A Count is how many: N (0: 1), or each number from 1 to N alike.
type Count struct {
	N    int
	UpTo bool
}

func (c Count) draw(r *rand.Rand) int {
	if c.UpTo {
		return 1 + r.IntN(max(c.N, 1))
	}
	return max(c.N, 1)
}

// DefaultHold is Faults.ReorderHold's default. It is longer than a round trip of most
// tests.
const DefaultHold = 20 * time.Millisecond

// Hold is how long a datagram is held for reordering at most.
func (f *Faults) Hold() time.Duration { return cmp.Or(f.ReorderHold, DefaultHold) }

// Check names the first knob that cannot be meant.
func (f *Faults) Check() error {
	b := &f.Burst
	err := cmp.Or(
		Share("loss", f.Loss), Share("late", f.Late), Share("reorder", f.Reorder), Share("duplicate", f.Duplicate), Share("corrupt", f.Corrupt),
		Share("ce", f.CE), Share("trim", f.Trim), Share("burst: enter", b.Enter), Share("burst: leave", b.Leave), Share("burst: loss", b.Loss),
	)
	switch {
	case err != nil:
		return err
	case b.Enter > 0 && b.Leave == 0:
		return errors.New("burst: leave: 0: it never ends; a loss of 1 does that")
	case min(f.Delay, f.Jitter, f.ReorderHold, f.DuplicateLate, b.Max) < 0:
		return errors.New("a time is negative")
	}
	return nil
}

// Share is the error of a share that is none.
func Share(name string, p float64) error {
	if p >= 0 && p <= 1 {
		return nil
	}
	return fmt.Errorf("%s: %v is no share: give 0 to 1", name, p)
}

// A Draw is a kind of decision that needs random numbers.
type Draw int

// The kinds of decisions. A user's own go on from NumDraws.
const (
	DrawLoss Draw = iota
	DrawBurst
	DrawCorrupt
	DrawCE
	DrawTrim
	DrawDuplicate
	DrawReorder
	DrawLate
	DrawJitter
	NumDraws
)

// One is a Line.Rand with one stream for all kinds.
func One(r *rand.Rand) func(Draw) *rand.Rand { return func(Draw) *rand.Rand { return r } }

// A Line decides for the datagrams that pass it one way.
type Line struct {
	Faults
	// Rand gives the stream of random numbers for a kind of decision. With a stream for
	// each, no kind changes what the others draw.
	Rand func(Draw) *rand.Rand

	bad   bool          // Burst is in its bad state
	since time.Duration // when that began
	flips []int
}

// A Datagram is what Fate must know of one.
type Datagram struct {
	Bytes          int // that Corrupt may hit
	ECT, Trimmable bool
	NoCopy, NoHold bool // there is no room for copies, or to hold it
}

// A Fate is what becomes of a datagram, in this order.
type Fate struct {
	Lost            Why
	Flips           []int // for Flip
	Marked, Trimmed bool
	Copies          int           // follow it, each after CopyLate
	By              int           // it is held until so many have passed; 0: it is not
	Delay           time.Duration // it goes on so much later
}

// Why is why a datagram is lost.
type Why uint8

// The reasons.
const (
	Passed   Why = iota // it is not
	ByChance            // Faults.Loss
	InBurst             // Faults.Burst
)

// Fate decides everything about a datagram that comes now. The methods below decide one
// thing each, for a user whose own faults stand between them.
func (l *Line) Fate(now time.Duration, d Datagram) (f Fate) {
	if f.Lost = l.Lost(now); f.Lost != Passed {
		return f
	}
	f.Flips = l.Flips(d.Bytes)
	f.Marked = d.ECT && l.Hits(DrawCE, l.CE)
	f.Trimmed = d.Trimmable && l.Hits(DrawTrim, l.Trim)
	if !d.NoCopy {
		f.Copies = l.Copied()
	}
	if !d.NoHold && l.Hits(DrawReorder, l.Reorder) {
		f.By = l.By()
	} else {
		f.Delay = l.Delayed()
	}
	return f
}

// Hits is true with probability p. It draws nothing where there is no choice.
func (l *Line) Hits(d Draw, p float64) bool {
	return p >= 1 || p > 0 && l.Rand(d).Float64() < p
}

// Lost is why a datagram that comes now is lost. Burst counts those that Loss leaves.
func (l *Line) Lost(now time.Duration) Why {
	if l.Hits(DrawLoss, l.Loss) {
		return ByChance
	}
	b := &l.Burst
	if l.bad {
		l.bad = !l.Hits(DrawBurst, b.Leave) && (b.Max == 0 || now-l.since < b.Max)
	} else if l.Hits(DrawBurst, b.Enter) {
		l.bad, l.since = true, now
	}
	if l.bad && (b.Loss == 0 || l.Hits(DrawBurst, b.Loss)) {
		return InBurst
	}
	return Passed
}

// Flips are the bits that change of n bytes, valid until the next call.
func (l *Line) Flips(n int) []int {
	if n == 0 || !l.Hits(DrawCorrupt, l.Corrupt) {
		return nil
	}
	r, upTo := l.Rand(DrawCorrupt), l.CorruptBits.UpTo
	l.flips = l.flips[:0]
	for left := l.CorruptBits.draw(r); left > 0 && (upTo || len(l.flips) < 8*n); left-- {
		bit := r.IntN(8 * n)
		for !upTo && slices.Contains(l.flips, bit) {
			bit = r.IntN(8 * n)
		}
		if i := slices.Index(l.flips, bit); i >= 0 {
			l.flips = slices.Delete(l.flips, i, i+1)
		} else {
			l.flips = append(l.flips, bit)
		}
	}
	return l.flips
}

// Flip flips bits, counted from the lowest of the first byte.
func Flip(b []byte, bits []int) {
	for _, bit := range bits {
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// Copied is how many copies follow a datagram.
func (l *Line) Copied() int {
	if !l.Hits(DrawDuplicate, l.Duplicate) {
		return 0
	}
	return l.Copies.draw(l.Rand(DrawDuplicate))
}

// CopyLate is how late a copy is.
func (l *Line) CopyLate() time.Duration { return l.uniform(DrawDuplicate, l.DuplicateLate) }

// By is how many have to pass a datagram that is held.
func (l *Line) By() int { return l.ReorderBy.draw(l.Rand(DrawReorder)) }

// Delayed is the time that a datagram takes.
func (l *Line) Delayed() time.Duration {
	if l.Late > 0 && !l.Hits(DrawLate, l.Late) {
		return 0
	}
	return l.Delay + l.uniform(DrawJitter, l.Jitter)
}

// uniform is a time in [0, d).
func (l *Line) uniform(k Draw, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(l.Rand(k).Int64N(int64(d)))
}
