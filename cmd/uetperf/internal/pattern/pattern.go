// Package pattern makes and verifies the contents of test messages at the
// speed of memory: every byte is a function of the test's seed, the message's
// sequence number and the byte's offset.
package pattern

import (
	"bytes"
	"math/rand/v2"
)

const (
	// chunk is how many bytes of a message are one slice of the block. Where
	// the slice begins depends on all of seed, sequence and chunk number.
	chunk = 4 << 10
	// starts is the number of places where a slice may begin.
	starts = 1 << 16
)

// A Pattern belongs to one test; it is constant and may be shared.
type Pattern struct {
	seed  uint64
	block [starts + chunk]byte
}

// New returns the pattern of a seed.
func New(seed uint64) *Pattern {
	p := &Pattern{seed: seed}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(p.block[:]) // never fails
	return p
}

// slice returns what stands from byte n·chunk of message seq on.
func (p *Pattern) slice(seq uint64, n int) []byte {
	// The finaliser of SplitMix64: neighbours in seq or n are far apart.
	x := p.seed ^ seq*0x9e3779b97f4a7c15 ^ uint64(n)*0xd6e8feb86659fd93
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	i := (x ^ x>>31) & (starts - 1)
	return p.block[i : i+chunk : i+chunk]
}

// Fill writes message seq into b.
func (p *Pattern) Fill(b []byte, seq uint64) {
	for n := 0; len(b) > 0; n++ {
		b = b[copy(b, p.slice(seq, n)):]
	}
}

// Verify reports how many bytes of b are not those of message seq.
func (p *Pattern) Verify(b []byte, seq uint64) (wrong int) {
	for n := 0; len(b) > 0; n++ {
		want := p.slice(seq, n)
		m := min(len(b), len(want))
		if !bytes.Equal(b[:m], want[:m]) {
			for i := range m {
				if b[i] != want[i] {
					wrong++
				}
			}
		}
		b = b[m:]
	}
	return wrong
}

// A Ledger notes which sequence numbers have come, each of which must come once.
// They may come up to its span out of order.
type Ledger struct {
	bits []uint64
	next uint64 // all below have come
	top  uint64 // all from here on have not
}

// NewLedger returns a Ledger for numbers from 0 on. span is how far a number
// may be ahead of the lowest one that has not come.
func NewLedger(span int) *Ledger {
	n := 1
	for n*64 < span {
		n *= 2
	}
	return &Ledger{bits: make([]uint64, n)}
}

// Take notes seq and reports whether it is news. It is none when it came
// before, or is further ahead than anything can be.
func (l *Ledger) Take(seq uint64) bool {
	mask := uint64(len(l.bits))*64 - 1
	if seq < l.next || seq-l.next > mask {
		return false
	}
	w, bit := &l.bits[seq&mask/64], uint64(1)<<(seq%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	l.top = max(l.top, seq+1)
	for l.next < l.top {
		w, bit := &l.bits[l.next&mask/64], uint64(1)<<(l.next%64)
		if *w&bit == 0 {
			break
		}
		*w &^= bit
		l.next++
	}
	return true
}

// Gaps reports how many numbers below n have not come.
func (l *Ledger) Gaps(n uint64) uint64 {
	mask := uint64(len(l.bits))*64 - 1
	gaps := uint64(0)
	for s := l.next; s < n; s++ {
		if s >= l.top || l.bits[s&mask/64]&(1<<(s%64)) == 0 {
			gaps++
		}
	}
	return gaps
}
