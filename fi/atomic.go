package fi

import "fmt"

// A Datatype is the type of the elements of an atomic operation (enum fi_datatype).
type Datatype uint8

// The datatypes. The element of a COMPLEX type is two numbers, the real part first.
const (
	Int8 Datatype = iota
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Float
	Double
	FloatComplex
	DoubleComplex
	LongDouble
	LongDoubleComplex
	Int128
	Uint128
	Float16
	BFloat16
)

var datatypes = [...]struct {
	name string
	size int
}{
	{"INT8", 1}, {"UINT8", 1}, {"INT16", 2}, {"UINT16", 2}, {"INT32", 4}, {"UINT32", 4}, {"INT64", 8}, {"UINT64", 8}, {"FLOAT", 4}, {"DOUBLE", 8},
	{"FLOAT_COMPLEX", 8}, {"DOUBLE_COMPLEX", 16}, {"LONG_DOUBLE", 16}, {"LONG_DOUBLE_COMPLEX", 32}, {"INT128", 16}, {"UINT128", 16}, {"FLOAT16", 2}, {"BFLOAT16", 2},
}

// Size is the length of an element in bytes, 0 for an unknown type.
func (d Datatype) Size() int {
	if int(d) < len(datatypes) {
		return datatypes[d].size
	}
	return 0
}

func (d Datatype) String() string {
	if int(d) < len(datatypes) {
		return datatypes[d].name
	}
	return fmt.Sprintf("datatype %d", uint8(d))
}

// An AtomicOp is an atomic operation (enum fi_op). T is the element in memory, I that of the call,
// C the value to compare with.
type AtomicOp uint8

// The atomic operations.
const (
	Min         AtomicOp = iota // min(T, I)
	Max                         // max(T, I)
	Sum                         // T + I
	Prod                        // T · I
	LOr                         // T or I is not 0
	LAnd                        // T and I are not 0
	BOr                         // T | I
	BAnd                        // T & I
	LXOr                        // one of T and I is not 0
	BXOr                        // T ^ I
	AtomicRead                  // T
	AtomicWrite                 // I
	CSwap                       // I if C = T
	CSwapNE                     // I if C ≠ T
	CSwapLE                     // I if C ≤ T
	CSwapLT                     // I if C < T
	CSwapGE                     // I if C ≥ T
	CSwapGT                     // I if C > T
	MSwap                       // the bits of I that C masks, the others of T
	Diff                        // T − I
)

var atomicOps = [...]string{"MIN", "MAX", "SUM", "PROD", "LOR", "LAND", "BOR", "BAND", "LXOR", "BXOR", "ATOMIC_READ", "ATOMIC_WRITE",
	"CSWAP", "CSWAP_NE", "CSWAP_LE", "CSWAP_LT", "CSWAP_GE", "CSWAP_GT", "MSWAP", "DIFF"}

func (o AtomicOp) String() string {
	if int(o) < len(atomicOps) {
		return atomicOps[o]
	}
	return fmt.Sprintf("atomic operation %d", uint8(o))
}
