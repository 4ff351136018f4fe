package wire

import "encoding/binary"

// UUD request, 4 bytes: UE 3.5.10.12.
const UUDLen = 4 // bytes: prologue, reserved u16

var (
	errUUDLen  = &Invalid{"UUD", "length"}
	errUUDType = &Invalid{"UUD", "type"}
)

// A UUDHdr is the header of an unreliable request.
type UUDHdr struct {
	Next NextHdr // all flags are reserved
}

// ParseUUD decodes the header at the front of b and reports the bytes read.
func ParseUUD(b []byte) (UUDHdr, int, error) {
	if len(b) < UUDLen {
		return UUDHdr{}, 0, errUUDLen
	}
	v := binary.BigEndian.Uint16(b)
	if Type(v>>11) != TypeUUDReq {
		return UUDHdr{}, 0, errUUDType
	}
	return UUDHdr{NextHdr(v >> 7 & 15)}, UUDLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (u UUDHdr) Append(b []byte) []byte {
	if u.Next > 15 {
		panic("BUG: wire: UUD field out of range")
	}
	b = binary.BigEndian.AppendUint16(b, uint16(TypeUUDReq)<<11|uint16(u.Next)<<7)
	return append(b, 0, 0)
}

func (u UUDHdr) String() string { return "UUD_REQ nh=" + u.Next.String() }
