// Package badnet is the model of a bad network. It decides what becomes of a datagram. The
// simulator, the testbed's switch and the relay of uetperf use it, so that a knob means the
// same in all three.
//
// It only decides. It moves no data, reads no clock, starts no goroutine and takes
// randomness only from its caller.
//
// It does not model a rate and its queue, because these differ: the simulator computes when
// a datagram leaves as it enters; the switch has queues of two classes and looks at them
// again when a packet leaves or the rate changes; the relay has none.
package badnet

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Faults are the knobs. A share, 0 to 1, is the part of the datagrams to which the fault
// happens. The zero Faults are a perfect wire.
type Faults struct {
	// Loss is the share that is lost independently. Burst is clustered loss of the others.
	Loss  float64
	Burst Burst
	// Corrupt is the share in which CorruptBits bits flip. If that count is UpTo, a bit may be
	// drawn twice and so stay as it was.
	Corrupt     float64
	CorruptBits Count
	// CE is the share of ECT datagrams that are marked, Trim the share of trimmable ones that
	// are trimmed.
	CE, Trim float64
	// Duplicate is the share that is followed by Copies copies, each late by up to
	// DuplicateLate.
	Duplicate     float64
	Copies        Count
	DuplicateLate time.Duration
	// Reorder is the share that is held back until ReorderBy others passed or ReorderHold (0
	// means DefaultHold) is over.
	Reorder     float64
	ReorderBy   Count
	ReorderHold time.Duration
	// Delay is the delay of a share Late (0 means all). Jitter is added to it, uniform in [0,
	// Jitter).
	Delay, Jitter time.Duration
	Late          float64
}

// Burst is a Gilbert-Elliott process: in the bad state datagrams are lost with
// probability Loss, in the good state none are.
type Burst struct {
	Enter float64 `toml:"enter" json:"enter"`         // good to bad, per datagram
	Leave float64 `toml:"leave" json:"leave"`         // bad to good, per datagram: 1/mean length
	Loss  float64 `toml:"loss" json:"loss,omitempty"` // 0 means 1
	// Max is the longest time in the bad state; 0 means no limit. Without it, a process that
	// counts datagrams is hard on a sender that has slowed down to one per RTO.
	Max time.Duration `toml:"-" json:"-"`
}

// A Count is a number N (0 means 1), or with UpTo any number from 1 to N with equal
// probability.
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

// DefaultHold is the default of Faults.ReorderHold. It is longer than a round trip in most
// tests.
const DefaultHold = 20 * time.Millisecond

// Hold is the longest time that a datagram is held back for reordering.
func (f *Faults) Hold() time.Duration { return cmp.Or(f.ReorderHold, DefaultHold) }

// Check returns an error for the first knob that makes no sense.
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

// Share returns an error if p is not between 0 and 1.
func Share(name string, p float64) error {
	if p >= 0 && p <= 1 {
		return nil
	}
	if p > 1 && p <= 100 {
		return fmt.Errorf("%s: %v is no share of 1: %s = %g is meant (%v %%)?", name, p, name, p/100, p)
	}
	return fmt.Errorf("%s: %v is no share: give 0 to 1", name, p)
}

// A Draw is a kind of decision that needs random numbers.
type Draw int

// The kinds of decisions. A user may add kinds from NumDraws on.
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

// One returns a Line.Rand that uses one stream for all kinds.
func One(r *rand.Rand) func(Draw) *rand.Rand { return func(Draw) *rand.Rand { return r } }

// A Line decides for the datagrams that pass in one direction.
type Line struct {
	Faults
	// Rand returns the stream of random numbers for a kind of decision. If each kind has its
	// own stream, no kind changes the draws of another.
	Rand func(Draw) *rand.Rand

	bad   bool          // Burst is in its bad state
	since time.Duration // when the bad state began
	flips []int
}

// A Datagram has what Fate must know about a datagram.
type Datagram struct {
	Bytes          int // bytes that Corrupt may change
	ECT, Trimmable bool
	NoCopy, NoHold bool // there is no room for copies, or for holding it back
}

// A Fate is what becomes of a datagram. Its parts apply in the order of the fields.
type Fate struct {
	Lost            Why
	Flips           []int // for Flip
	Marked, Trimmed bool
	Copies          int           // copies that follow, each after CopyLate
	By              int           // hold it back until so many passed; 0 means not at all
	Delay           time.Duration // extra delay
}

// Why tells why a datagram is lost.
type Why uint8

// The reasons.
const (
	Passed   Why = iota // it is not lost
	ByChance            // Faults.Loss
	InBurst             // Faults.Burst
)

// Fate decides everything about a datagram that comes now. Each of the methods below
// decides one thing, for users that have faults of their own in between.
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

// Hits returns true with probability p. It draws only if p is between 0 and 1.
func (l *Line) Hits(d Draw, p float64) bool {
	return p >= 1 || p > 0 && l.Rand(d).Float64() < p
}

// Lost decides whether a datagram that comes now is lost, and why. Burst sees only the
// datagrams that Loss spares.
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

// Flips returns the bits that change in n bytes. The slice is valid until the next call.
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

// Flip flips bits, numbered from the lowest bit of the first byte.
func Flip(b []byte, bits []int) {
	for _, bit := range bits {
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// Copied returns how many copies follow a datagram.
func (l *Line) Copied() int {
	if !l.Hits(DrawDuplicate, l.Duplicate) {
		return 0
	}
	return l.Copies.draw(l.Rand(DrawDuplicate))
}

// CopyLate returns the delay of a copy.
func (l *Line) CopyLate() time.Duration { return l.uniform(DrawDuplicate, l.DuplicateLate) }

// By returns how many must pass a datagram that is held back.
func (l *Line) By() int { return l.ReorderBy.draw(l.Rand(DrawReorder)) }

// Delayed returns the delay of a datagram.
func (l *Line) Delayed() time.Duration {
	if l.Late > 0 && !l.Hits(DrawLate, l.Late) {
		return 0
	}
	return l.Delay + l.uniform(DrawJitter, l.Jitter)
}

// uniform draws a time in [0, d).
func (l *Line) uniform(k Draw, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(l.Rand(k).Int64N(int64(d)))
}
