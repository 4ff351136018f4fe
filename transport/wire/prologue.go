package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Headers are written in place, parsed into memory of the caller and passed by pointer. A
// struct whose small fields were just stored one by one, and which is then copied in wide
// words, stalls the processor for 5 ns, and that would happen a dozen times for each packet.

// extend lengthens b by n bytes. It returns all of b, and the new bytes, whose content is
// undefined.
func extend(b []byte, n int) (whole, tail []byte) {
	k := len(b)
	m := k + n
	if uint(m) > uint(cap(b)) { // unsigned and in terms of m, so that the compiler drops later bounds checks
		b = slices.Grow(b, n)
	}
	b = b[:m]
	return b, b[k:m]
}

// The first 16 bits of every PDS header but TSS: UE 3.5.10.2.
const (
	PrologueLen = 2 // type:5 next_hdr:4 flags:7
)

var errPrologueLen = &Invalid{"prologue", "length"}

// A Prologue is the common start of the PDS headers.
type Prologue struct {
	Type  Type
	Next  NextHdr // all types but TypeCP
	Ctl   CtlType // TypeCP
	Flags Flags   // including reserved ones
}

// ParsePrologue decodes the first 16 bits of b. It accepts any type.
func ParsePrologue(b []byte) (Prologue, error) {
	if len(b) < PrologueLen {
		return Prologue{}, errPrologueLen
	}
	v := binary.BigEndian.Uint16(b)
	p := Prologue{Type: Type(v >> 11), Flags: Flags(v & 0x7f)}
	if p.Type == TypeCP {
		p.Ctl = CtlType(v >> 7 & 15)
	} else {
		p.Next = NextHdr(v >> 7 & 15)
	}
	return p, nil
}

// Append appends the 16 bits to b.
func (p Prologue) Append(b []byte) []byte {
	mid := uint16(p.Next)
	if p.Type == TypeCP {
		mid = uint16(p.Ctl)
	}
	if p.Type > 31 || mid > 15 || p.Flags > 0x7f {
		panic("BUG: wire: prologue field out of range")
	}
	return binary.BigEndian.AppendUint16(b, uint16(p.Type)<<11|mid<<7|uint16(p.Flags))
}

func (p Prologue) String() string {
	if p.Type == TypeCP {
		return fmt.Sprintf("%v %v flags=%#x", p.Type, p.Ctl, uint8(p.Flags))
	}
	return fmt.Sprintf("%v nh=%v flags=%#x", p.Type, p.Next, uint8(p.Flags))
}
