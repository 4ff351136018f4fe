package amo

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file changes elements where they lie.

var (
	native = binary.NativeEndian
	little = native.Uint16([]byte{1, 0}) == 1 // the order of this machine
)

// wide is held while an element of 128 bits changes.
var wide sync.Mutex

// aligned reports whether memory begins at a multiple of n bytes.
func aligned(memory []byte, n int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%uintptr(n) == 0
}

// change executes an operation on one element and returns its old value.
func change(p []byte, op wire.AtomicOp, t wire.AtomicType, i, c value) value {
	var buf [16]byte
	switch len(p) {
	case 8:
		w := (*uint64)(unsafe.Pointer(&p[0]))
		for {
			was := atomic.LoadUint64(w)
			native.PutUint64(buf[:], was)
			old, changed := replace(buf[:8], op, t, i, c)
			if !changed || atomic.CompareAndSwapUint64(w, was, native.Uint64(buf[:])) {
				return old
			}
		}
	case 4, 2, 1:
		// Less than 32 bits are part of an aligned word, whose other bytes stay as they are. The
		// word is in the same page, and in the same block of the allocator.
		at := int(uintptr(unsafe.Pointer(&p[0])) % 4)
		w := (*uint32)(unsafe.Add(unsafe.Pointer(&p[0]), -at))
		for {
			was := atomic.LoadUint32(w)
			native.PutUint32(buf[:], was)
			old, changed := replace(buf[at:at+len(p)], op, t, i, c)
			if !changed || atomic.CompareAndSwapUint32(w, was, native.Uint32(buf[:])) {
				return old
			}
		}
	}
	wide.Lock()
	defer wide.Unlock()
	old, _ := replace(p, op, t, i, c)
	return old
}

// replace executes an operation on the bytes of one element, which nobody else changes. It reports
// whether there is another value now.
func replace(b []byte, op wire.AtomicOp, t wire.AtomicType, i, c value) (value, bool) {
	flip(t, b)
	old := decode(t, b)
	now := compute(op, t, old, i, c)
	appendValue(b[:0], t, now)
	flip(t, b)
	return old, now != old
}

// flip turns an element from the order of this machine to that of the network, or back.
func flip(t wire.AtomicType, b []byte) {
	switch {
	case !little:
	case classOf(t) == cplx:
		slices.Reverse(b[:len(b)/2])
		slices.Reverse(b[len(b)/2:])
	default:
		slices.Reverse(b)
	}
}

// Swap turns elements of a type from the order of this machine to that of the network, or back. b is
// a multiple of their size; what is left over stays.
func Swap(b []byte, t wire.AtomicType) {
	size := t.Size()
	if size == 0 || !little {
		return
	}
	for ; len(b) >= size; b = b[size:] {
		flip(t, b[:size])
	}
}

// A value is an element of any type. Integers are extended to 128 bits, hi and lo. Complex numbers
// have the bits of their real part in hi and of their imaginary part in lo. Others are bits in lo.
type value struct{ hi, lo uint64 }

// decode reads an element in network order.
func decode(t wire.AtomicType, b []byte) value {
	var v value
	switch t.Size() {
	case 1:
		v.lo = uint64(b[0])
	case 2:
		v.lo = uint64(binary.BigEndian.Uint16(b))
	case 4:
		v.lo = uint64(binary.BigEndian.Uint32(b))
	case 8:
		if t == wire.FloatComplex {
			return value{uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))}
		}
		v.lo = binary.BigEndian.Uint64(b)
	default:
		return value{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	}
	return v.cut(t)
}

// appendValue is the inverse of decode. It cuts integers to their length.
func appendValue(b []byte, t wire.AtomicType, v value) []byte {
	switch t.Size() {
	case 1:
		return append(b, byte(v.lo))
	case 2:
		return binary.BigEndian.AppendUint16(b, uint16(v.lo))
	case 4:
		return binary.BigEndian.AppendUint32(b, uint32(v.lo))
	case 8:
		if t == wire.FloatComplex {
			return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(v.hi)), uint32(v.lo))
		}
		return binary.BigEndian.AppendUint64(b, v.lo)
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, v.hi), v.lo)
}
