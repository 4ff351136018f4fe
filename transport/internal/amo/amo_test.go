package amo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/uetkit/uetkit/transport/wire"
)

const (
	types = wire.FP16 + 1
	ops   = wire.AtomicInval + 1
)

// memoryOf returns n bytes that begin at a multiple of 8.
func memoryOf(n int) []byte {
	w := make([]uint64, (n+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n)
}

// nativeBytes puts an element that is in network order in the order of this machine.
func nativeBytes(t wire.AtomicType, b []byte) []byte {
	b = slices.Clone(b)
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		part := t.Size()
		if classOf(t) == cplx {
			part /= 2
		}
		for p := range slices.Chunk(b, part) {
			slices.Reverse(p)
		}
	}
	return b
}

// TestValid holds which operation there is for which type, in each family.
func TestValid(t *testing.T) {
	// By operation: for integers, for reals, for complex numbers; the families as in the comment
	// of each column.
	const none, base, fetch, compare = "", "bf", "f", "c"
	want := map[wire.AtomicOp][3]string{
		wire.AtomicMin: {base, base, none}, wire.AtomicMax: {base, base, none},
		wire.AtomicSum: {base, base, base}, wire.AtomicDiff: {base, base, base}, wire.AtomicProd: {base, base, base},
		wire.AtomicLOr: {base, base, base}, wire.AtomicLAnd: {base, base, base}, wire.AtomicLXor: {base, base, base},
		wire.AtomicBOr: {base, none, none}, wire.AtomicBAnd: {base, none, none}, wire.AtomicBXor: {base, none, none},
		wire.AtomicRead: {fetch, fetch, fetch}, wire.AtomicWrite: {base, base, base},
		wire.AtomicCSwap: {compare, compare, compare}, wire.AtomicCSwapNE: {compare, compare, compare},
		wire.AtomicCSwapLE: {compare, compare, none}, wire.AtomicCSwapLT: {compare, compare, none},
		wire.AtomicCSwapGE: {compare, compare, none}, wire.AtomicCSwapGT: {compare, compare, none},
		wire.AtomicMSwap: {compare, none, none},
	}
	column := func(typ wire.AtomicType) int {
		switch typ {
		case wire.Float, wire.Double, wire.FP16, wire.BF16:
			return 1
		case wire.FloatComplex, wire.DoubleComplex:
			return 2
		}
		return 0
	}
	for op := range wire.AtomicOp(255) {
		for typ := range wire.AtomicType(255) {
			for f, name := range []string{"b", "f", "c"} {
				rc := wire.RCNull
				switch {
				case typ >= types || typ == wire.LongDouble || typ == wire.LongDoubleComplex:
					rc = wire.RCAMOUnsupportedDT
				case !bytes.Contains([]byte(want[op][column(typ)]), []byte(name)):
					rc = wire.RCAMOUnsupportedOp
				}
				if got := Valid(Family(f), op, typ); got != rc {
					t.Errorf("%v of %v in family %s: %v, want %v", op, typ, name, got, rc)
				}
			}
		}
	}
}

// TestApply holds each operation of each type against another computation, by big numbers.
func TestApply(t *testing.T) {
	for typ := range types {
		for op := range ops {
			f := Base
			switch {
			case op.Compares():
				f = Compare
			case op == wire.AtomicRead:
				f = Fetch
			}
			if Valid(f, op, typ) != wire.RCNull {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", op, typ), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(op), uint64(typ)))
				for range 300 {
					applyOnce(t, rnd, op, typ)
				}
			})
		}
	}
}

// draw draws the bytes of an element, in network order. One in four is near an edge.
func draw(rnd *rand.Rand, typ wire.AtomicType) []byte {
	b := make([]byte, typ.Size())
	fill := byte(0)
	switch rnd.IntN(4) {
	case 0:
		fill = 0xff
		fallthrough
	case 1:
		for i := range b {
			b[i] = fill
		}
		b[len(b)-1] ^= byte(rnd.IntN(3))
		b[0] ^= byte(rnd.IntN(2)) << 7
	default:
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
	}
	return b
}

func applyOnce(t *testing.T, rnd *rand.Rand, op wire.AtomicOp, typ wire.AtomicType) {
	t.Helper()
	n := 1 + rnd.IntN(3)
	size := typ.Size()
	memory := memoryOf(n * size)
	var target, operand, compare, want []byte
	for range n {
		v, i, c := draw(rnd, typ), draw(rnd, typ), draw(rnd, typ)
		if rnd.IntN(3) == 0 {
			c = v
		}
		if rnd.IntN(8) == 0 {
			i = v
		}
		copy(memory[len(target):], nativeBytes(typ, v))
		target, operand, compare = append(target, v...), append(operand, i...), append(compare, c...)
		want = append(want, oracle(op, typ, v, i, c)...)
	}
	if !op.Compares() {
		compare = nil
	}
	if op == wire.AtomicRead {
		operand = nil // nobody looks at it
	}
	old, rc := Apply([]byte("x"), op, typ, memory, operand, compare)
	if rc != wire.RCNull || !bytes.Equal(old, append([]byte("x"), target...)) {
		t.Fatalf("%v %v: %v, old values %x, want %x", op, typ, rc, old[1:], target)
	}
	for k := range n {
		got := nativeBytes(typ, memory[k*size:][:size])
		if w := want[k*size:][:size]; !bytes.Equal(got, w) && !(nan(typ, got) && nan(typ, w)) {
			t.Fatalf("%v %v: %x by %x, compared %x: %x, want %x", op, typ, target[k*size:][:size], operand, compare, got, w)
		}
	}
}

// nan reports whether some part of an element is a NaN.
func nan(typ wire.AtomicType, b []byte) bool {
	for _, x := range floats(typ, b) {
		if math.IsNaN(x) {
			return true
		}
	}
	return false
}

// floats returns the real parts of an element, none for an integer.
func floats(typ wire.AtomicType, b []byte) []float64 {
	switch typ {
	case wire.Float, wire.FloatComplex:
		var out []float64
		for p := range slices.Chunk(b, 4) {
			out = append(out, float64(math.Float32frombits(binary.BigEndian.Uint32(p))))
		}
		return out
	case wire.Double, wire.DoubleComplex:
		var out []float64
		for p := range slices.Chunk(b, 8) {
			out = append(out, math.Float64frombits(binary.BigEndian.Uint64(p)))
		}
		return out
	case wire.BF16: // the upper half of a float
		return []float64{float64(math.Float32frombits(uint32(binary.BigEndian.Uint16(b)) << 16))}
	case wire.FP16:
		h := binary.BigEndian.Uint16(b)
		f := math.Ldexp(float64(h&0x3ff), -24)
		switch e := int(h >> 10 & 31); {
		case e == 31 && h&0x3ff != 0:
			f = math.NaN()
		case e == 31:
			f = math.Inf(1)
		case e > 0:
			f = math.Ldexp(1024+float64(h&0x3ff), e-25)
		}
		if h>>15 != 0 {
			f = -f
		}
		return []float64{f}
	}
	return nil
}

// unfloats is the inverse of floats. Types of 16 bits are searched for.
func unfloats(typ wire.AtomicType, fs ...*big.Float) []byte {
	var out []byte
	for _, f := range fs {
		switch typ {
		case wire.Float, wire.FloatComplex:
			x, _ := f.Float32()
			out = binary.BigEndian.AppendUint32(out, math.Float32bits(x))
		case wire.Double, wire.DoubleComplex:
			x, _ := f.Float64()
			out = binary.BigEndian.AppendUint64(out, math.Float64bits(x))
		default:
			out = append(out, nearest(typ, f)...)
		}
	}
	return out
}

// nearest finds the number of 16 bits that is next to f, the even one of two.
func nearest(typ wire.AtomicType, f *big.Float) []byte {
	value := func(i int) float64 { return floats(typ, []byte{byte(i >> 8), byte(i)})[0] }
	top := 0x7c00
	if typ == wire.BF16 {
		top = 0x7f80
	}
	exact := func(i int) *big.Float {
		if i == top { // infinity is where the next number would be
			last, before := value(top-1), value(top-2)
			return new(big.Float).SetPrec(600).SetFloat64(last + (last - before))
		}
		return new(big.Float).SetPrec(600).SetFloat64(value(i))
	}
	abs := new(big.Float).SetPrec(600).Abs(f)
	lo, hi := 0, top
	if abs.Cmp(exact(top)) >= 0 {
		lo = top
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; exact(mid).Cmp(abs) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo < top {
		down := new(big.Float).SetPrec(600).Sub(abs, exact(lo))
		up := new(big.Float).SetPrec(600).Sub(exact(lo+1), abs)
		if c := down.Cmp(up); c > 0 || c == 0 && lo&1 == 1 {
			lo++
		}
	}
	if f.Signbit() {
		lo |= 0x8000
	}
	return []byte{byte(lo >> 8), byte(lo)}
}

// integer returns the value of an integer.
func integer(typ wire.AtomicType, b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if typ%2 == 0 && b[0]&0x80 != 0 { // signed types have even numbers
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// oracle returns what becomes of v.
func oracle(op wire.AtomicOp, typ wire.AtomicType, v, i, c []byte) []byte {
	compare, isZero := func(a, b []byte) int { return integer(typ, a).Cmp(integer(typ, b)) }, func(a []byte) bool { return len(bytes.Trim(a, "\x00")) == 0 }
	unordered := func(a, b []byte) bool { return nan(typ, a) || nan(typ, b) }
	one := make([]byte, typ.Size())
	one[len(one)-1] = 1
	if fs := floats(typ, v); fs != nil {
		compare = func(a, b []byte) int {
			x, y := floats(typ, a), floats(typ, b)
			for k := range x {
				switch {
				case x[k] < y[k]:
					return -1
				case x[k] > y[k]:
					return 1
				}
			}
			return 0
		}
		isZero = func(a []byte) bool { return !nan(typ, a) && compare(a, make([]byte, len(a))) == 0 }
		ones := []*big.Float{big.NewFloat(1)}
		if len(fs) == 2 {
			ones = append(ones, new(big.Float))
		}
		one = unfloats(typ, ones...)
	}
	if (op == wire.AtomicSum || op == wire.AtomicDiff || op == wire.AtomicProd) && floats(typ, v) != nil {
		return sumOrProduct(op, typ, v, i)
	}
	yes := func(ok bool, a, b []byte) []byte {
		if ok {
			return a
		}
		return b
	}
	ordered := !unordered(v, i)
	matched := !unordered(v, c)
	switch op {
	case wire.AtomicMin:
		return yes(ordered && compare(i, v) < 0, i, v)
	case wire.AtomicMax:
		return yes(ordered && compare(i, v) > 0, i, v)
	case wire.AtomicLOr:
		return yes(!isZero(v) || !isZero(i), one, make([]byte, len(one)))
	case wire.AtomicLAnd:
		return yes(!isZero(v) && !isZero(i), one, make([]byte, len(one)))
	case wire.AtomicLXor:
		return yes(isZero(v) != isZero(i), one, make([]byte, len(one)))
	case wire.AtomicRead:
		return v
	case wire.AtomicWrite:
		return i
	case wire.AtomicCSwap:
		return yes(matched && compare(c, v) == 0, i, v)
	case wire.AtomicCSwapNE:
		return yes(!matched || compare(c, v) != 0, i, v)
	case wire.AtomicCSwapLE:
		return yes(matched && compare(c, v) <= 0, i, v)
	case wire.AtomicCSwapLT:
		return yes(matched && compare(c, v) < 0, i, v)
	case wire.AtomicCSwapGE:
		return yes(matched && compare(c, v) >= 0, i, v)
	case wire.AtomicCSwapGT:
		return yes(matched && compare(c, v) > 0, i, v)
	}
	x, y, m, r := integer(typ, v), integer(typ, i), integer(typ, c), new(big.Int)
	switch op {
	case wire.AtomicSum:
		r.Add(x, y)
	case wire.AtomicDiff:
		r.Sub(x, y)
	case wire.AtomicProd:
		r.Mul(x, y)
	case wire.AtomicBOr:
		r.Or(x, y)
	case wire.AtomicBAnd:
		r.And(x, y)
	case wire.AtomicBXor:
		r.Xor(x, y)
	case wire.AtomicMSwap:
		r.Or(new(big.Int).And(y, m), new(big.Int).AndNot(x, m))
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*len(v)))
	return new(big.Int).Mod(r, modulus).FillBytes(make([]byte, len(v)))
}

// sumOrProduct computes exactly and rounds once, but for products of complex numbers.
func sumOrProduct(op wire.AtomicOp, typ wire.AtomicType, v, i []byte) []byte {
	x, y := floats(typ, v), floats(typ, i)
	odd := false
	for _, f := range append(slices.Clone(x), y...) {
		odd = odd || math.IsNaN(f) || math.IsInf(f, 0)
	}
	if odd || len(x) == 2 && op == wire.AtomicProd {
		var r []float64
		switch {
		case op == wire.AtomicProd && len(x) == 2:
			r = []float64{float64(x[0]*y[0]) - float64(x[1]*y[1]), float64(x[0]*y[1]) + float64(x[1]*y[0])}
		default:
			for k := range x {
				r = append(r, map[wire.AtomicOp]float64{wire.AtomicSum: x[k] + y[k], wire.AtomicDiff: x[k] - y[k], wire.AtomicProd: x[k] * y[k]}[op])
			}
		}
		var out []byte
		for _, f := range r {
			switch {
			case !math.IsNaN(f):
				out = append(out, unfloats(typ, new(big.Float).SetPrec(600).SetFloat64(f))...)
			case typ == wire.Float || typ == wire.FloatComplex:
				out = binary.BigEndian.AppendUint32(out, math.Float32bits(float32(f)))
			case typ == wire.Double || typ == wire.DoubleComplex:
				out = binary.BigEndian.AppendUint64(out, math.Float64bits(f))
			default:
				out = append(out, 0x7f, 0xff)
			}
		}
		return out
	}
	var r []*big.Float
	for k := range x {
		a, b := new(big.Float).SetPrec(2200).SetFloat64(x[k]), new(big.Float).SetPrec(2200).SetFloat64(y[k])
		z := new(big.Float).SetPrec(2200)
		switch op {
		case wire.AtomicSum:
			z.Add(a, b)
		case wire.AtomicDiff:
			z.Sub(a, b)
		default:
			z.Mul(a, b)
		}
		r = append(r, z)
	}
	return unfloats(typ, r...)
}

// TestApplyRefuses holds that what is not aligned, or no whole number of elements, changes
// nothing.
func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct {
		name                  string
		op                    wire.AtomicOp
		typ                   wire.AtomicType
		at, n, operand, other int
		want                  wire.RC
	}{
		{"no element", wire.AtomicSum, wire.Uint64, 0, 0, 0, 0, wire.RCAMOUnsupportedSize},
		{"half of one", wire.AtomicSum, wire.Uint64, 0, 12, 12, 0, wire.RCAMOUnsupportedSize},
		{"operand too short", wire.AtomicSum, wire.Uint64, 0, 16, 8, 0, wire.RCAMOUnsupportedSize},
		{"nothing to compare", wire.AtomicCSwap, wire.Uint64, 0, 8, 8, 0, wire.RCAMOUnsupportedSize},
		{"64 bits at 4", wire.AtomicSum, wire.Uint64, 4, 8, 8, 0, wire.RCAMOUnaligned},
		{"128 bits at 4", wire.AtomicSum, wire.Int128, 4, 16, 16, 0, wire.RCAMOUnaligned},
		{"32 bits at 2", wire.AtomicSum, wire.Float, 2, 4, 4, 0, wire.RCAMOUnaligned},
		{"16 bits at 1", wire.AtomicCSwap, wire.FP16, 1, 2, 2, 2, wire.RCAMOUnaligned},
		{"32 bits at 4", wire.AtomicSum, wire.Uint32, 4, 4, 4, 0, wire.RCNull},
	} {
		all := memoryOf(64)
		ones := bytes.Repeat([]byte{1}, 64)
		old, rc := Apply(nil, c.op, c.typ, all[c.at:][:c.n], ones[:c.operand], ones[:c.other])
		if rc != c.want {
			t.Errorf("%s: %v, want %v", c.name, rc, c.want)
		}
		if changed := !bytes.Equal(all, make([]byte, 64)); changed != (rc == wire.RCNull) || (len(old) > 0) != changed {
			t.Errorf("%s: memory changed %t, %d bytes of old values", c.name, changed, len(old))
		}
	}
}

// TestApplyBesideTheProgram holds that no sum is lost among those of Apply in
// several threads and those of sync/atomic; short elements leave their neighbours alone.
func TestApplyBesideTheProgram(t *testing.T) {
	const rounds, threads = 200_000, 4
	for _, typ := range []wire.AtomicType{wire.Uint8, wire.Uint16, wire.Uint32, wire.Uint64} {
		memory := memoryOf(8)
		size := typ.Size()
		one := make([]byte, size)
		one[size-1] = 1
		var all sync.WaitGroup
		var waiting atomic.Int32 // they begin together: what runs alone overtakes nobody
		waiting.Store(threads)
		for k := range threads {
			all.Go(func() {
				for waiting.Add(-1); waiting.Load() > 0; {
					runtime.Gosched()
				}
				p := memory[:size]
				if size < 4 { // two threads add to each of two neighbours
					p = memory[k%2*size:][:size]
				}
				for range rounds {
					if size >= 4 && k == 0 {
						if size == 8 {
							atomic.AddUint64((*uint64)(unsafe.Pointer(&p[0])), 1)
						} else {
							atomic.AddUint32((*uint32)(unsafe.Pointer(&p[0])), 1)
						}
						continue
					}
					if _, rc := Apply(nil, wire.AtomicSum, typ, p, one, nil); rc != wire.RCNull {
						t.Error(rc)
						return
					}
				}
			})
		}
		all.Wait()
		sum := make([]byte, 8)
		want := make([]byte, 8)
		binary.BigEndian.PutUint64(sum, rounds*threads)
		if size < 4 {
			binary.BigEndian.PutUint64(sum, rounds*threads/2)
			copy(want[size:], nativeBytes(typ, sum[8-size:]))
		}
		copy(want, nativeBytes(typ, sum[8-size:]))
		if !bytes.Equal(memory, want) {
			t.Errorf("%v: %x, want %x", typ, memory, want)
		}
	}
}

// TestApplyDoesNotAllocate holds that a peer's atomics make no garbage.
func TestApplyDoesNotAllocate(t *testing.T) {
	memory, operand, old := memoryOf(64), make([]byte, 64), make([]byte, 0, 64)
	operand[7] = 1
	for typ := range types {
		if classOf(typ) == unknown {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { Apply(old, wire.AtomicSum, typ, memory, operand, nil) }); n != 0 {
			t.Errorf("%v: %v allocations", typ, n)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add(uint8(2), uint8(7), bytes.Repeat([]byte{1}, 16))
	f.Fuzz(func(t *testing.T, op, typ uint8, b []byte) {
		o, ty := wire.AtomicOp(op), wire.AtomicType(typ)
		if Valid(Base, o, ty) != wire.RCNull && Valid(Compare, o, ty) != wire.RCNull || len(b) < 3*ty.Size() {
			return
		}
		n := ty.Size()
		v, i, c := b[:n], b[n:2*n], b[2*n:3*n]
		memory := memoryOf(n)
		copy(memory, nativeBytes(ty, v))
		if old, rc := Apply(nil, o, ty, memory, i, c); rc != wire.RCNull || !bytes.Equal(old, v) {
			t.Fatalf("%v, old %x", rc, old)
		}
		if got, want := nativeBytes(ty, memory), oracle(o, ty, v, i, c); !bytes.Equal(got, want) && !(nan(ty, got) && nan(ty, want)) {
			t.Fatalf("%v %v: %x by %x, compared %x: %x, want %x", o, ty, v, i, c, got, want)
		}
	})
}
