package amo

import (
	"math"
	"math/bits"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file has the arithmetic.

// compute returns what becomes of the element v by the operand i and the compare value c. Integers
// wrap around. What is not an integer is rounded to the nearest, and a NaN is neither less nor more
// than anything.
func compute(op wire.AtomicOp, t wire.AtomicType, v, i, c value) value {
	switch op {
	case wire.AtomicRead:
		return v
	case wire.AtomicWrite:
		return i
	case wire.AtomicBOr:
		return value{v.hi | i.hi, v.lo | i.lo}
	case wire.AtomicBAnd:
		return value{v.hi & i.hi, v.lo & i.lo}
	case wire.AtomicBXor:
		return value{v.hi ^ i.hi, v.lo ^ i.lo}
	case wire.AtomicMSwap:
		return value{i.hi&c.hi | v.hi&^c.hi, i.lo&c.lo | v.lo&^c.lo}
	case wire.AtomicLOr:
		return truth(t, !zero(t, v) || !zero(t, i))
	case wire.AtomicLAnd:
		return truth(t, !zero(t, v) && !zero(t, i))
	case wire.AtomicLXor:
		return truth(t, zero(t, v) != zero(t, i))
	case wire.AtomicSum, wire.AtomicDiff, wire.AtomicProd:
		return arithmetic(op, t, v, i)
	}
	swap := false
	switch op {
	case wire.AtomicMin:
		swap = less(t, i, v)
	case wire.AtomicMax:
		swap = less(t, v, i)
	case wire.AtomicCSwap:
		swap = equal(t, c, v)
	case wire.AtomicCSwapNE:
		swap = !equal(t, c, v)
	case wire.AtomicCSwapLE:
		swap = less(t, c, v) || equal(t, c, v)
	case wire.AtomicCSwapLT:
		swap = less(t, c, v)
	case wire.AtomicCSwapGE:
		swap = less(t, v, c) || equal(t, c, v)
	case wire.AtomicCSwapGT:
		swap = less(t, v, c)
	}
	if swap {
		return i
	}
	return v
}

// arithmetic adds, subtracts or multiplies.
func arithmetic(op wire.AtomicOp, t wire.AtomicType, v, i value) value {
	switch classOf(t) {
	case real:
		return value{lo: bitsOf(t, reals(op, number(t, v.lo), number(t, i.lo)))}
	case cplx:
		part := partOf(t)
		a, b := number(part, v.hi), number(part, v.lo)
		c, d := number(part, i.hi), number(part, i.lo)
		if op != wire.AtomicProd {
			return value{bitsOf(part, reals(op, a, c)), bitsOf(part, reals(op, b, d))}
		}
		// The conversions forbid fused operations: all machines get the same bits.
		return value{bitsOf(part, float64(a*c)-float64(b*d)), bitsOf(part, float64(a*d)+float64(b*c))}
	}
	var r value
	var carry uint64
	switch op {
	case wire.AtomicSum:
		r.lo, carry = bits.Add64(v.lo, i.lo, 0)
		r.hi, _ = bits.Add64(v.hi, i.hi, carry)
	case wire.AtomicDiff:
		r.lo, carry = bits.Sub64(v.lo, i.lo, 0)
		r.hi, _ = bits.Sub64(v.hi, i.hi, carry)
	default:
		r.hi, r.lo = bits.Mul64(v.lo, i.lo)
		r.hi += v.hi*i.lo + v.lo*i.hi
	}
	return r.cut(t)
}

// cut makes an integer one of the type: it drops the upper bits and extends the rest.
func (v value) cut(t wire.AtomicType) value {
	if t.Size() == 16 {
		return v
	}
	shift := 64 - 8*t.Size()
	if classOf(t) == signed {
		lo := int64(v.lo<<shift) >> shift
		return value{uint64(lo >> 63), uint64(lo)}
	}
	return value{0, v.lo << shift >> shift}
}

func reals(op wire.AtomicOp, a, b float64) float64 {
	switch op {
	case wire.AtomicSum:
		return a + b
	case wire.AtomicDiff:
		return a - b
	}
	return a * b
}

// truth is 1 or 0 in some type.
func truth(t wire.AtomicType, yes bool) value {
	switch {
	case !yes:
		return value{}
	case classOf(t) == real:
		return value{lo: bitsOf(t, 1)}
	case classOf(t) == cplx:
		return value{hi: bitsOf(partOf(t), 1)}
	}
	return value{lo: 1}
}

func zero(t wire.AtomicType, v value) bool { return equal(t, v, value{}) }

func equal(t wire.AtomicType, a, b value) bool {
	switch classOf(t) {
	case real:
		return number(t, a.lo) == number(t, b.lo)
	case cplx:
		return number(partOf(t), a.hi) == number(partOf(t), b.hi) && number(partOf(t), a.lo) == number(partOf(t), b.lo)
	}
	return a == b
}

// less reports whether a < b. Complex numbers have no order.
func less(t wire.AtomicType, a, b value) bool {
	switch {
	case classOf(t) == real:
		return number(t, a.lo) < number(t, b.lo)
	case a.hi == b.hi:
		return a.lo < b.lo
	case classOf(t) == signed:
		return int64(a.hi) < int64(b.hi)
	}
	return a.hi < b.hi
}

// partOf is the type of the two parts of a complex type.
func partOf(t wire.AtomicType) wire.AtomicType {
	if t == wire.FloatComplex {
		return wire.Float
	}
	return wire.Double
}

// A short is a format of 16 bits.
type short struct{ fraction, least int } // bits of the fraction; exponent of the least normal number

var (
	bf16 = short{7, -126}
	fp16 = short{10, -14}
)

// number returns the value of a real type's bits. A double holds each of them.
func number(t wire.AtomicType, b uint64) float64 {
	switch t {
	case wire.Double:
		return math.Float64frombits(b)
	case wire.FP16:
		return fp16.number(uint16(b))
	case wire.BF16:
		return bf16.number(uint16(b))
	}
	return float64(math.Float32frombits(uint32(b)))
}

// bitsOf rounds to a real type. That a sum, a difference or a product was rounded to a double
// before changes nothing: a double has more than twice the bits of each smaller type.
func bitsOf(t wire.AtomicType, f float64) uint64 {
	switch t {
	case wire.Double:
		return math.Float64bits(f)
	case wire.FP16:
		return uint64(fp16.bits(f))
	case wire.BF16:
		return uint64(bf16.bits(f))
	}
	return uint64(math.Float32bits(float32(f)))
}

func (s short) number(b uint16) float64 {
	fraction := int(b) & (1<<s.fraction - 1)
	exp := int(b&0x7fff) >> s.fraction
	f := 0.0
	switch {
	case exp == 0x7fff>>s.fraction && fraction != 0:
		f = math.NaN()
	case exp == 0x7fff>>s.fraction:
		f = math.Inf(1)
	case exp == 0:
		f = math.Ldexp(float64(fraction), s.least-s.fraction)
	default:
		f = math.Ldexp(float64(fraction|1<<s.fraction), exp-1+s.least-s.fraction)
	}
	if b&0x8000 != 0 {
		return -f
	}
	return f
}

func (s short) bits(f float64) uint16 {
	sign := uint16(math.Float64bits(f) >> 48 & 0x8000)
	infinity := 0x7fff >> s.fraction << s.fraction
	f = math.Abs(f)
	switch {
	case math.IsNaN(f):
		return sign | uint16(infinity|1<<(s.fraction-1))
	case math.IsInf(f, 0):
		return sign | uint16(infinity)
	case f == 0:
		return sign
	}
	exp := max(math.Ilogb(f), s.least)
	units := int(math.RoundToEven(math.Ldexp(f, s.fraction-exp))) // of the last place
	return sign | uint16(min((exp-s.least)<<s.fraction+units, infinity))
}
