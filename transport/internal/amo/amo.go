// Package amo computes atomic operations on memory (UE 3.4, atomics): which operations there are
// for which types, and what one does to an array of elements. It knows no messages and no regions.
package amo

import "github.com/uetkit/uetkit/transport/wire"

// A Family says what an operation takes and returns.
type Family uint8

// The families (R-AMO-04).
const (
	Base    Family = iota // takes operands, returns nothing: fi_atomic
	Fetch                 // returns the old values, too: fi_fetch_atomic
	Compare               // takes compare values, too, and returns the old values: fi_compare_atomic
)

// class is what kind of number a type is.
type class uint8

const (
	unknown class = iota
	signed
	unsigned
	real
	cplx
)

// classes is by type. LONG_DOUBLE has another format on each platform; it is not here.
var classes = [...]class{
	wire.Int8: signed, wire.Int16: signed, wire.Int32: signed, wire.Int64: signed, wire.Int128: signed,
	wire.Uint8: unsigned, wire.Uint16: unsigned, wire.Uint32: unsigned, wire.Uint64: unsigned, wire.Uint128: unsigned,
	wire.Float: real, wire.Double: real, wire.BF16: real, wire.FP16: real,
	wire.FloatComplex: cplx, wire.DoubleComplex: cplx,
}

func classOf(t wire.AtomicType) class {
	if int(t) < len(classes) {
		return classes[t]
	}
	return unknown
}

// Valid reports whether there is an operation for a type in a family: RCNull, or the answer to who
// asks for it, AMO_UNSUPPORTED_DT or AMO_UNSUPPORTED_OP (R-AMO-04, R-AMO-05).
func Valid(f Family, op wire.AtomicOp, t wire.AtomicType) wire.RC {
	c := classOf(t)
	ok := false
	switch op {
	case wire.AtomicMin, wire.AtomicMax: // complex numbers have no order
		ok = f != Compare && c != cplx
	case wire.AtomicSum, wire.AtomicDiff, wire.AtomicProd, wire.AtomicLOr, wire.AtomicLAnd, wire.AtomicLXor, wire.AtomicWrite:
		ok = f != Compare
	case wire.AtomicBOr, wire.AtomicBAnd, wire.AtomicBXor:
		ok = f != Compare && c <= unsigned
	case wire.AtomicRead:
		ok = f == Fetch
	case wire.AtomicCSwap, wire.AtomicCSwapNE:
		ok = f == Compare
	case wire.AtomicCSwapLE, wire.AtomicCSwapLT, wire.AtomicCSwapGE, wire.AtomicCSwapGT:
		ok = f == Compare && c != cplx
	case wire.AtomicMSwap:
		ok = f == Compare && c <= unsigned
	}
	switch {
	case c == unknown:
		return wire.RCAMOUnsupportedDT
	case !ok:
		return wire.RCAMOUnsupportedOp
	}
	return wire.RCNull
}

// align is the alignment of a type in memory. Nothing needs more than a word of 64 bits.
func align(t wire.AtomicType) int { return min(t.Size(), 8) }

// Apply executes an operation on each element of memory, whose bytes are in the order of this
// machine. operand and compare are in network order, as old is, to which the old values are
// appended (R-AMO-16). compare is nil except in the family Compare, operand for READ.
//
// The caller has asked Valid. Other answers than RCNull: AMO_UNALIGNED, AMO_UNSUPPORTED_SIZE. Then
// nothing was changed.
//
// Elements of up to 64 bits change by one compare-and-swap of the processor, so Apply may run
// beside sync/atomic on the same words (R-AMO-14), and beside itself. There is none for 128 bits:
// there Apply takes turns with itself, and with nothing else.
func Apply(old []byte, op wire.AtomicOp, t wire.AtomicType, memory, operand, compare []byte) ([]byte, wire.RC) {
	size := t.Size()
	switch {
	case len(memory) == 0 || len(memory)%size != 0 ||
		op != wire.AtomicRead && len(operand) != len(memory) || op.Compares() && len(compare) != len(memory):
		return old, wire.RCAMOUnsupportedSize
	case !aligned(memory, align(t)):
		return old, wire.RCAMOUnaligned
	}
	for n := 0; n < len(memory); n += size {
		var i, c value
		if op != wire.AtomicRead {
			i = decode(t, operand[n:])
		}
		if op.Compares() {
			c = decode(t, compare[n:])
		}
		old = appendValue(old, t, change(memory[n:n+size], op, t, i, c))
	}
	return old, wire.RCNull
}
