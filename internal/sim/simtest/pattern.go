package simtest

import (
	"encoding/binary"
	"fmt"
)

// The bytes of every message are a function of its number and the offset. So any eight aligned
// bytes, in a packet or in a buffer, tell which message they belong to and where. Word k of
// message id is id·mulID in the upper half and k·mulOff + id in the lower half, most
// significant byte first.
const (
	mulID  = 0x9e3779b1
	mulOff = 0x85ebca6b
)

var inverseID, inverseOff = inverse(mulID), inverse(mulOff)

// inverse is the multiplicative inverse of an odd number modulo 2³².
func inverse(a uint32) uint32 {
	x := a
	for range 5 {
		x *= 2 - a*x
	}
	return x
}

func word(id uint32, k uint32) uint64 {
	return uint64(id*mulID)<<32 | uint64(k*mulOff+id)
}

// fillPattern writes bytes [off, off+len(b)) of message id. off must be a multiple of eight.
func fillPattern(b []byte, id uint32, off int) {
	k := uint32(off / 8)
	for len(b) >= 8 {
		binary.BigEndian.PutUint64(b, word(id, k))
		b, k = b[8:], k+1
	}
	var w [8]byte
	binary.BigEndian.PutUint64(w[:], word(id, k))
	copy(b, w[:])
}

// readPattern returns the message that b is from, and the offset. b must have at least eight
// bytes, from a multiple of eight.
func readPattern(b []byte) (id uint32, off int) {
	w := binary.BigEndian.Uint64(b)
	id = uint32(w>>32) * inverseID
	return id, int((uint32(w)-id)*inverseOff) * 8
}

// checkPattern returns an error for the first byte of b that is not byte off+i of message id.
func checkPattern(b []byte, id uint32, off int) error {
	k := uint32(off / 8)
	rest := b
	for len(rest) >= 8 {
		if binary.BigEndian.Uint64(rest) != word(id, k) {
			return patternError(b, id, off, len(b)-len(rest))
		}
		rest, k = rest[8:], k+1
	}
	var w [8]byte
	binary.BigEndian.PutUint64(w[:], word(id, k))
	for i := range rest {
		if rest[i] != w[i] {
			return patternError(b, id, off, len(b)-len(rest)+i)
		}
	}
	return nil
}

func patternError(b []byte, id uint32, off, at int) error {
	at &^= 7
	end := min(at+8, len(b))
	var want [8]byte
	binary.BigEndian.PutUint64(want[:], word(id, uint32((off+at)/8)))
	if end-at == 8 {
		gotID, gotOff := readPattern(b[at:])
		return fmt.Errorf("byte %d is % x, want % x (the bytes are those of message %d at %d)", off+at, b[at:end], want, gotID, gotOff)
	}
	return fmt.Errorf("byte %d is % x, want % x", off+at, b[at:end], want[:end-at])
}

// A buffer has a guard before and behind it. These are the values of the guards, of a receive
// buffer before the receive, and of any buffer after the operation.
const (
	guardLen = 16
	guard    = 0xbd
	soil     = 0xa5 // a receive buffer to which nothing was written
	spent    = 0xee // a buffer that was given back
)

// newBuffer makes a buffer of n bytes of soil between guards.
func newBuffer(n int) (whole, buf []byte) {
	whole = make([]byte, n+2*guardLen)
	set(whole, guard)
	buf = whole[guardLen : guardLen+n : guardLen+n]
	set(buf, soil)
	return whole, buf
}

func set(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// untouched returns the index of the first byte of b that is not v, or -1.
func untouched(b []byte, v byte) int {
	w := uint64(v) * 0x0101010101010101
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if binary.NativeEndian.Uint64(b[i:]) != w {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] != v {
			return i
		}
	}
	return -1
}

// guardsIntact reports whether nothing was written around a buffer.
func guardsIntact(whole []byte) bool {
	return untouched(whole[:guardLen], guard) < 0 && untouched(whole[len(whole)-guardLen:], guard) < 0
}
