package wire

import (
	"encoding/binary"
	"fmt"
)

// RUDI request and response, 8 bytes: UE 3.5.10.9.
const (
	rudiPktID = 4 // uint32
	RUDILen   = 8 // bytes
)

var (
	errRUDILen  = &Invalid{"RUDI", "length"}
	errRUDIType = &Invalid{"RUDI", "type"}
)

// A RUDIHdr is the header of a RUDI request or response.
type RUDIHdr struct {
	Type  Type
	Next  NextHdr
	Flags Flags // RUDIFlagM (response), RUDIFlagRETX
	PktID uint32
}

// ParseRUDI decodes the header at the front of b and reports the bytes read.
func ParseRUDI(b []byte) (RUDIHdr, int, error) {
	if len(b) < RUDILen {
		return RUDIHdr{}, 0, errRUDILen
	}
	v := binary.BigEndian.Uint16(b)
	r := RUDIHdr{Type(v >> 11), NextHdr(v >> 7 & 15), Flags(v) & rudiFlags, binary.BigEndian.Uint32(b[rudiPktID:])}
	if r.Type != TypeRUDIReq && r.Type != TypeRUDIRsp {
		return RUDIHdr{}, 0, errRUDIType
	}
	return r, RUDILen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r RUDIHdr) Append(b []byte) []byte {
	if (r.Type != TypeRUDIReq && r.Type != TypeRUDIRsp) || r.Next > 15 || r.Flags&^rudiFlags != 0 {
		panic("BUG: wire: RUDI field out of range")
	}
	b = binary.BigEndian.AppendUint16(b, uint16(r.Type)<<11|uint16(r.Next)<<7|uint16(r.Flags))
	b = append(b, 0, 0)
	return binary.BigEndian.AppendUint32(b, r.PktID)
}

func (r RUDIHdr) String() string {
	return fmt.Sprintf("%v %s nh=%v pkt_id=%#x", r.Type, flagString(r.Flags, RUDIFlagM, "M", RUDIFlagRETX, "RETX"), r.Next, r.PktID)
}
