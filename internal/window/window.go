// Package window is a bitmap that slides over serial numbers. It tells which of the Size
// numbers from Base on have arrived. It serves as the receive window of a PDC and as the
// set of packets that a sender knows to be acknowledged, and knows nothing of either.
//
// Numbers are uint32 in serial order: n is before m if int32(n-m) < 0, so the window may
// span 2³². A Bitmap has no lock; its owner must have one.
package window

import (
	"fmt"
	"math/bits"

	"github.com/uetkit/uetkit/internal/invariant"
)

const (
	// MinSize and MaxSize are the bounds of the size of a Bitmap in bits. 32,768 is the
	// largest MP_RANGE (255 · 128, UE 3.5.11) rounded up to a power of two.
	MinSize = 64
	MaxSize = 32768
)

// A Bitmap has one bit for each of the Size numbers Base … Base+Size−1. A number before
// Base counts as set, because Base moved over it; a number beyond the window counts as not
// set. Init makes it ready. The zero Bitmap has Size 0 and accepts nothing.
//
// The bit of n is at n mod Size in a ring of words. When Base passes a bit the bit is
// cleared, so that its place is ready for the number Size further on.
// for the number Size further on.
type Bitmap struct {
	ring  []uint64
	mask  uint32 // of word indexes: len(ring)−1
	size  uint32 // bits
	base  uint32
	max   uint32 // highest number set, undefined while count is 0
	count uint32 // bits set
}

// Init makes w empty with the given base. size is the number of bits, a power of two from
// MinSize to MaxSize. Another size is a bug and panics. Init reuses the memory of an
// earlier Init if it is large enough.
func (w *Bitmap) Init(base uint32, size int) {
	if size < MinSize || size > MaxSize || size&(size-1) != 0 {
		panic(fmt.Sprintf("BUG: window: size %d is not a power of two from %d to %d", size, MinSize, MaxSize))
	}
	n := size / 64
	if cap(w.ring) >= n {
		w.ring = w.ring[:n]
		clear(w.ring)
	} else {
		w.ring = make([]uint64, n)
	}
	w.mask = uint32(n - 1)
	w.size = uint32(size)
	w.base, w.max, w.count = base, base, 0
}

// Base is the first number of the window, the one expected next.
func (w *Bitmap) Base() uint32 { return w.base }

// Size is the length of the window in bits.
func (w *Bitmap) Size() int { return int(w.size) }

// Count is the number of numbers at or after Base that are set. If Base is the next number
// expected, these arrived out of order (ooo_count).
func (w *Bitmap) Count() int { return int(w.count) }

// Max is the highest number set at or after Base. It returns false if there is none.
func (w *Bitmap) Max() (uint32, bool) { return w.max, w.count != 0 }

// Set marks n. It returns false and changes nothing if n was marked before, or lies before
// Base or beyond the window.
func (w *Bitmap) Set(n uint32) bool {
	if n-w.base >= w.size {
		return false
	}
	p, bit := &w.ring[n>>6&w.mask], uint64(1)<<(n&63)
	if *p&bit != 0 {
		return false
	}
	*p |= bit
	if w.count == 0 || int32(n-w.max) > 0 {
		w.max = n
	}
	w.count++
	return true
}

// Test reports whether n is marked: true before Base, false beyond the window.
func (w *Bitmap) Test(n uint32) bool {
	off := n - w.base
	if off >= w.size {
		return int32(off) < 0
	}
	return w.ring[n>>6&w.mask]>>(n&63)&1 != 0
}

// Take is a fast path of Set and Advance for an n that is Base while nothing is marked.
// Otherwise it returns false and changes nothing.
func (w *Bitmap) Take(n uint32) bool {
	if n != w.base || w.count != 0 || w.size == 0 {
		return false
	}
	w.base++ // the bit of n is clear, as required
	return true
}

// Advance moves Base over the marked numbers that follow it. It returns how many.
func (w *Bitmap) Advance() int {
	if w.count == 0 {
		return 0
	}
	return w.advance(w.count)
}

// AdvanceTo is like Advance, but moves Base at most to limit. It does nothing if limit is
// at or before Base.
func (w *Bitmap) AdvanceTo(limit uint32) int {
	room := limit - w.base
	if int32(room) <= 0 {
		return 0
	}
	return w.advance(min(room, w.count))
}

// advance moves base over at most room marked numbers, a word at a time. A run is at most
// count long, so it never reaches around the ring.
func (w *Bitmap) advance(room uint32) int {
	start := w.base
	for room > 0 {
		p, shift := &w.ring[w.base>>6&w.mask], w.base&63
		run := min(uint32(bits.TrailingZeros64(^(*p >> shift))), room)
		if run == 0 {
			break
		}
		// run is at most 64−shift. With run 64 the shift gives 0 in Go, so that the mask is all
		// ones.
		*p &^= (uint64(1)<<run - 1) << shift
		w.base += run
		room -= run
		if w.base&63 != 0 {
			break // the run ended within the word, or at the limit
		}
	}
	moved := w.base - start
	if invariant.On {
		invariant.Check(moved <= w.count, "window: base moved by %d over %d set bits", moved, w.count)
	}
	w.count -= moved
	return int(moved)
}

// Word returns the bits of n … n+63, with n in bit 0: a SACK bitmap with base n. As in
// Test, numbers before Base are 1 and numbers beyond the window 0.
func (w *Bitmap) Word(n uint32) uint64 {
	off := n - w.base
	if off >= w.size {
		if int32(off) >= 0 {
			return 0
		}
		before := w.base - n // at least 1
		if before >= 64 {
			return ^uint64(0)
		}
		return w.Word(w.base)<<before | (uint64(1)<<before - 1)
	}
	i, shift := n>>6, n&63
	// In Go a shift by 64 gives zero, which is right for shift 0.
	v := w.ring[i&w.mask]>>shift | w.ring[(i+1)&w.mask]<<(64-shift)
	if left := w.size - off; left < 64 {
		v &= uint64(1)<<left - 1 // the ring continues with the front of the window
	}
	return v
}

// Next0 returns the first number in the window, at or after from, that is not marked. It
// returns false if there is none.
func (w *Bitmap) Next0(from uint32) (uint32, bool) {
	return w.next(from, ^uint64(0), w.base+w.size)
}

// Next1 returns the first number in the window, at or after from, that is marked. It
// returns false if there is none.
func (w *Bitmap) Next1(from uint32) (uint32, bool) {
	if w.count == 0 {
		return 0, false
	}
	return w.next(from, 0, w.max+1)
}

// next finds the first number in [from, end) whose bit differs from that of flip, which is
// all zeros or all ones.
func (w *Bitmap) next(from uint32, flip uint64, end uint32) (uint32, bool) {
	if int32(from-w.base) < 0 {
		from = w.base
	}
	for left := int32(end - from); left > 0; {
		shift := from & 63
		v := (w.ring[from>>6&w.mask] ^ flip) >> shift
		if v != 0 {
			k := uint32(bits.TrailingZeros64(v))
			if int32(k) >= left {
				return 0, false
			}
			return from + k, true
		}
		from += 64 - shift
		left -= int32(64 - shift)
	}
	return 0, false
}
