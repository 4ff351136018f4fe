package mp

import "unsafe"

// Number are the types of elements that can be computed with.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr | ~float32 | ~float64 | ~complex64 | ~complex128
}

// An elem is the kind of an element: what its bits mean.
type elem uint8

const (
	elemNone elem = iota
	elemBytes
	elemInt8
	elemInt16
	elemInt32
	elemInt64
	elemUint8
	elemUint16
	elemUint32
	elemUint64
	elemFloat32
	elemFloat64
	elemComplex64
	elemComplex128
	elems
)

var elemNames = [elems]string{
	"", "bytes", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128",
}

func (e elem) String() string {
	if e >= elems {
		return "unknown type"
	}
	return elemNames[e]
}

// size is the bytes of an element.
func (e elem) size() int {
	switch e {
	case elemInt16, elemUint16:
		return 2
	case elemInt32, elemUint32, elemFloat32:
		return 4
	case elemInt64, elemUint64, elemFloat64, elemComplex64:
		return 8
	case elemComplex128:
		return 16
	}
	return 1
}

func elemOf(name string) elem {
	for i, s := range elemNames {
		if s == name {
			return elem(i)
		}
	}
	return elems
}

// elemType is the kind of T, found by what arithmetic makes of it.
func elemType[T Number]() elem {
	var zero, one T
	one++
	size := unsafe.Sizeof(one)
	half := one / (one + one)
	if half != zero { // not an integer
		switch size {
		case 4:
			return elemFloat32
		case 16:
			return elemComplex128
		}
		if *(*uint64)(unsafe.Pointer(&one)) == 0x3ff0000000000000 {
			return elemFloat64
		}
		return elemComplex64
	}
	e := elemInt8
	if minus := zero - one; minus/(one+one) != zero {
		e = elemUint8
	}
	for ; size > 1; size /= 2 {
		e++
	}
	return e
}

// bytesOf are the bytes of a slice.
func bytesOf[T Number](s []T) []byte {
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(z)))
}
