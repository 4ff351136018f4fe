package mp

// An Op combines vectors element by element: dst = dst ∘ src. It must be associative. Sum,
// Prod, Min, Max, And, Or and Xor are Ops; programs may have their own. An Op that does not
// commute needs the option InOrder. Results do not depend on the order in which messages
// arrive: the same call with the same ranks gives the same bits.
type Op[T any] func(dst, src []T)

// An Option changes how a reduction is done.
type Option uint8

// InOrder combines in the order of ranks, for operators that do not commute.
const InOrder Option = 1

// Integer are the types with bits.
type Integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr
}

// Real are the types with an order.
type Real interface {
	Integer | ~float32 | ~float64
}

// Sum adds (MPI_SUM).
func Sum[T Number](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

// Prod multiplies (MPI_PROD).
func Prod[T Number](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] *= src[i]
	}
}

// Min is the smaller (MPI_MIN).
func Min[T Real](dst, src []T) {
	for i := range dst {
		dst[i] = min(dst[i], src[i])
	}
}

// Max is the larger (MPI_MAX).
func Max[T Real](dst, src []T) {
	for i := range dst {
		dst[i] = max(dst[i], src[i])
	}
}

// And is bitwise (MPI_BAND).
func And[T Integer](dst, src []T) {
	for i := range dst {
		dst[i] &= src[i]
	}
}

// Or is bitwise (MPI_BOR).
func Or[T Integer](dst, src []T) {
	for i := range dst {
		dst[i] |= src[i]
	}
}

// Xor is bitwise (MPI_BXOR).
func Xor[T Integer](dst, src []T) {
	for i := range dst {
		dst[i] ^= src[i]
	}
}
