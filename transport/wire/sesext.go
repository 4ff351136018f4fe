package wire

import (
	"encoding/binary"
	"fmt"
)

// Rendezvous extension, 24 bytes behind a standard request: UE 3.4.2.
const RendezvousLen = 24 // bytes

var errRdvLen = &Invalid{"rendezvous extension", "length"}

// A Rendezvous is the rendezvous extension.
type Rendezvous struct {
	EagerLen     uint32
	ReadGen      uint8
	ReadPIDonFEP uint16 // 12 bit
	ReadRI       uint16 // 12 bit
	ReadOff      uint64
	ReadMatch    uint64 // memory key or match bits of the read
}

// ParseRendezvous decodes the extension at the front of b and reports the bytes read.
func ParseRendezvous(b []byte) (Rendezvous, int, error) {
	if len(b) < RendezvousLen {
		return Rendezvous{}, 0, errRdvLen
	}
	w := binary.BigEndian.Uint32(b[4:])
	return Rendezvous{binary.BigEndian.Uint32(b), uint8(w >> 24), uint16(w >> 12 & 0xfff), uint16(w & 0xfff),
		binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}, RendezvousLen, nil
}

// Append appends the extension to b. It panics if a field is out of range.
func (r Rendezvous) Append(b []byte) []byte {
	if r.ReadPIDonFEP > 0xfff || r.ReadRI > 0xfff {
		panic("BUG: wire: rendezvous field out of range")
	}
	b = binary.BigEndian.AppendUint32(b, r.EagerLen)
	b = binary.BigEndian.AppendUint32(b, uint32(r.ReadGen)<<24|uint32(r.ReadPIDonFEP)<<12|uint32(r.ReadRI))
	b = binary.BigEndian.AppendUint64(b, r.ReadOff)
	return binary.BigEndian.AppendUint64(b, r.ReadMatch)
}

func (r Rendezvous) String() string {
	return fmt.Sprintf("rendezvous eager=%d read_gen=%d read_pid=%d read_ri=%d read_off=%#x read_key=%#x", r.EagerLen, r.ReadGen, r.ReadPIDonFEP, r.ReadRI, r.ReadOff, r.ReadMatch)
}

// AtomicOp is an atomic operation, 8 bits (UE 3.4.1).
type AtomicOp uint8

// The atomic operations.
const (
	AtomicMin     AtomicOp = iota // min(T, I), where T is the target and I the operand
	AtomicMax                     // max(T, I)
	AtomicSum                     // T + I
	AtomicDiff                    // T − I
	AtomicProd                    // T · I
	AtomicLOr                     // logical or
	AtomicLAnd                    // logical and
	AtomicBOr                     // bitwise or
	AtomicBAnd                    // bitwise and
	AtomicLXor                    // logical exclusive or
	AtomicBXor                    // bitwise exclusive or
	AtomicRead                    // T
	AtomicWrite                   // I
	AtomicCSwap                   // I if C = T, where C is the compare value
	AtomicCSwapNE                 // I if C ≠ T
	AtomicCSwapLE                 // I if C ≤ T
	AtomicCSwapLT                 // I if C < T
	AtomicCSwapGE                 // I if C ≥ T
	AtomicCSwapGT                 // I if C > T
	AtomicMSwap                   // the bits of I that C masks
	AtomicInval                   // no operation
)

var atomicNames = [...]string{"MIN", "MAX", "SUM", "DIFF", "PROD", "LOR", "LAND", "BOR", "BAND", "LXOR", "BXOR", "READ", "WRITE",
	"CSWAP", "CSWAP_NE", "CSWAP_LE", "CSWAP_LT", "CSWAP_GE", "CSWAP_GT", "MSWAP", "INVAL"}

func (o AtomicOp) String() string { return name(atomicNames[:], int(o), "atomic") }

// Compares reports whether the operation carries the compare-and-swap extension.
func (o AtomicOp) Compares() bool { return o >= AtomicCSwap && o <= AtomicMSwap }

// AtomicType is an atomic datatype, 8 bits (UE 3.4.1).
type AtomicType uint8

// The atomic datatypes.
const (
	Int8 AtomicType = iota
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Int128
	Uint128
	Float
	Double
	FloatComplex
	DoubleComplex
	LongDouble
	LongDoubleComplex
	BF16
	FP16
)

var atomicSizes = [...]int{1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 8, 16, 16, 32, 2, 2}
var atomicTypeNames = [...]string{"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "INT128", "UINT128",
	"FLOAT", "DOUBLE", "FLOAT_COMPLEX", "DOUBLE_COMPLEX", "LONG_DOUBLE", "LONG_DOUBLE_COMPLEX", "BF16", "FP16"}

// Size is the length of an operand in bytes, 0 for an unknown type.
func (t AtomicType) Size() int {
	if int(t) < len(atomicSizes) {
		return atomicSizes[t]
	}
	return 0
}

func (t AtomicType) String() string { return name(atomicTypeNames[:], int(t), "datatype") }

// Semantic control bits of the atomic extension.
const (
	AtomicCacheable   uint8 = 0x01
	AtomicCPUCoherent uint8 = 0x02

	atomicControl = AtomicCacheable | AtomicCPUCoherent
)

// Atomic extension, 4 bytes: UE 3.4.2.
const AtomicLen = 4 // bytes

var errAtomicLen = &Invalid{"atomic extension", "length"}

// An Atomic is the atomic extension.
type Atomic struct {
	Op      AtomicOp
	Type    AtomicType
	Control uint8 // AtomicCacheable, AtomicCPUCoherent
}

// ParseAtomic decodes the extension at the front of b and reports the bytes read.
func ParseAtomic(b []byte) (Atomic, int, error) {
	if len(b) < AtomicLen {
		return Atomic{}, 0, errAtomicLen
	}
	return Atomic{AtomicOp(b[0]), AtomicType(b[1]), b[2] & atomicControl}, AtomicLen, nil
}

// Append appends the extension to b. It panics if a field is out of range.
func (a Atomic) Append(b []byte) []byte {
	if a.Control&^atomicControl != 0 {
		panic("BUG: wire: atomic field out of range")
	}
	return append(b, byte(a.Op), byte(a.Type), a.Control, 0)
}

func (a Atomic) String() string {
	return fmt.Sprintf("atomic %v %v control=%#x", a.Op, a.Type, a.Control)
}

// Compare-and-swap extension, 36 bytes: UE 3.4.2.
const (
	cswapCompare = 4  // 16 bytes, operand right-aligned
	cswapSwap    = 20 // 16 bytes, operand right-aligned
	CSwapLen     = 36 // bytes
)

var errCSwapLen = &Invalid{"compare-and-swap extension", "length"}

// A CSwap is the compare-and-swap extension.
type CSwap struct {
	Atomic
	Compare, Swap [16]byte
}

// ParseCSwap decodes the extension at the front of b and reports the bytes read.
func ParseCSwap(b []byte) (CSwap, int, error) {
	if len(b) < CSwapLen {
		return CSwap{}, 0, errCSwapLen
	}
	c := CSwap{Atomic: Atomic{AtomicOp(b[0]), AtomicType(b[1]), b[2] & atomicControl}}
	copy(c.Compare[:], b[cswapCompare:])
	copy(c.Swap[:], b[cswapSwap:])
	return c, CSwapLen, nil
}

// Append appends the extension to b. It panics if a field is out of range.
func (c CSwap) Append(b []byte) []byte {
	b = c.Atomic.Append(b)
	b = append(b, c.Compare[:]...)
	return append(b, c.Swap[:]...)
}

func (c CSwap) String() string {
	return fmt.Sprintf("%v compare=%x swap=%x", c.Atomic, c.Compare, c.Swap)
}
