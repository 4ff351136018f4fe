// Package pattern makes and verifies the contents of test messages at memory speed. Every
// byte is a function of the test's seed, the message's sequence number and the byte's
// offset.
package pattern

import (
	"bytes"
	"math/rand/v2"
)

const (
	// chunk is the number of bytes that come from one slice of the block. The start of the
	// slice depends on seed, sequence number and chunk number.
	chunk = 4 << 10
	// starts is the number of places at which a slice may begin.
	starts = 1 << 16
)

// A Pattern belongs to one test. It never changes and may be shared.
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

// slice returns the bytes of message seq from n·chunk on.
func (p *Pattern) slice(seq uint64, n int) []byte {
	// This is the finaliser of SplitMix64: neighbouring seq or n give distant results.
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

// Verify returns how many bytes of b differ from message seq.
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

// A Ledger notes which sequence numbers came. Each must come once, and may come out of
// order up to the ledger's span.
type Ledger struct {
	bits []uint64
	next uint64 // all below came
	top  uint64 // none from here on came
	lost uint64 // those below were given up if they did not come
}

// NewLedger returns a Ledger for numbers from 0 on. span is how far a number may be ahead
// of the lowest one that is missing.
func NewLedger(span int) *Ledger {
	n := 1
	for n*64 < span {
		n *= 2
	}
	return &Ledger{bits: make([]uint64, n)}
}

// Take notes seq and reports whether it is new. It returns false for a number that came
// before or is too far ahead.
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

// What came, as Pass finds out.
type Came int

const (
	Fresh Came = iota
	Again      // it came before
	Late       // it is too old to tell
)

// Pass is Take for numbers that may never come: seq may be ahead by any amount. The oldest numbers are
// then given up.
func (l *Ledger) Pass(seq uint64) Came {
	span := uint64(len(l.bits)) * 64
	switch {
	case seq < l.lost:
		return Late
	case seq >= l.next+span:
		l.giveUp(seq - span + 1)
	}
	if l.Take(seq) {
		return Fresh
	}
	return Again
}

// giveUp gives up all numbers below n that did not come.
func (l *Ledger) giveUp(n uint64) {
	mask := uint64(len(l.bits))*64 - 1
	if l.lost = n; n >= l.top {
		clear(l.bits)
		l.next, l.top = n, n
		return
	}
	for ; l.next < n || l.bits[l.next&mask/64]&(1<<(l.next%64)) != 0; l.next++ {
		l.bits[l.next&mask/64] &^= 1 << (l.next % 64)
	}
}

// Gaps returns how many numbers below n did not come.
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
