package wire

import (
	"encoding/binary"
	"fmt"
)

// NACK, 16 bytes, and NACK_CCX, 32 bytes: UE 3.5.10.10, 3.5.10.11. Other implementations
// send a NACK_CCX of 24 or 28 bytes; of those only the fields of a NACK are read.
const (
	nackCode    = 2  // uint8
	nackVendor  = 3  // uint8
	nackPSN     = 4  // uint32; with NT the packet ID of a RUDI request
	nackSPDCID  = 8  // uint16
	nackDPDCID  = 10 // uint16
	nackPayload = 12 // uint32, meaning by code
	nackCCX0    = 16 // nccx_type:4 state:60
	nackCCX1    = 24 // uint64
	NackLen     = 16 // bytes
	NackCCXLen  = 32 // bytes
)

// VendorLife is the Vendor of a NACK 0E by which a uetkit target says that it never had the
// PDC. Payload is then for how many milliseconds it has lived (S-LIFE-01). UE leaves Vendor to
// the vendor.
const VendorLife = 0x75

var (
	errNackLen  = &Invalid{"NACK", "length"}
	errNackType = &Invalid{"NACK", "type"}
)

// A Nack is the header of a NACK or NACK_CCX.
type Nack struct {
	Type           Type
	Next           NextHdr // NextNone, as nothing follows a NACK
	Flags          Flags   // NackFlagM, RETX, NT
	Code           NackCode
	Vendor         uint8
	PSN            PSN
	SPDCID, DPDCID uint16 // SPDCID is 0 if the sender has no PDC to name
	Payload        uint32
	CCXType        uint8  // 4 bit; this and the next two only in a whole NACK_CCX
	CCX0           uint64 // 60 bit
	CCX1           uint64
}

// ParseNack decodes the NACK header at the front of b and reports the bytes read. Of a
// NACK_CCX shorter than NackCCXLen it reads the first NackLen bytes.
func ParseNack(b []byte) (Nack, int, error) {
	if len(b) < NackLen {
		return Nack{}, 0, errNackLen
	}
	v := binary.BigEndian.Uint16(b)
	n := Nack{
		Type: Type(v >> 11), Next: NextHdr(v >> 7 & 15), Flags: Flags(v) & nackFlags,
		Code: NackCode(b[nackCode]), Vendor: b[nackVendor],
		PSN:     PSN(binary.BigEndian.Uint32(b[nackPSN:])),
		SPDCID:  binary.BigEndian.Uint16(b[nackSPDCID:]),
		DPDCID:  binary.BigEndian.Uint16(b[nackDPDCID:]),
		Payload: binary.BigEndian.Uint32(b[nackPayload:]),
	}
	switch n.Type {
	case TypeNack:
		return n, NackLen, nil
	case TypeNackCCX:
		if len(b) < NackCCXLen {
			return n, NackLen, nil
		}
		c := binary.BigEndian.Uint64(b[nackCCX0:])
		n.CCXType, n.CCX0, n.CCX1 = uint8(c>>60), c<<4>>4, binary.BigEndian.Uint64(b[nackCCX1:])
		return n, NackCCXLen, nil
	}
	return Nack{}, 0, errNackType
}

// Append appends the header to b. It panics if a field is out of range.
func (n Nack) Append(b []byte) []byte {
	if n.Next > 15 || n.Flags&^nackFlags != 0 || n.CCXType > 15 || n.CCX0>>60 != 0 {
		panic("BUG: wire: NACK field out of range")
	}
	var h [NackCCXLen]byte
	binary.BigEndian.PutUint16(h[:], uint16(n.Type)<<11|uint16(n.Next)<<7|uint16(n.Flags))
	h[nackCode], h[nackVendor] = byte(n.Code), n.Vendor
	binary.BigEndian.PutUint32(h[nackPSN:], uint32(n.PSN))
	binary.BigEndian.PutUint16(h[nackSPDCID:], n.SPDCID)
	binary.BigEndian.PutUint16(h[nackDPDCID:], n.DPDCID)
	binary.BigEndian.PutUint32(h[nackPayload:], n.Payload)
	switch n.Type {
	case TypeNack:
		return append(b, h[:NackLen]...)
	case TypeNackCCX:
		binary.BigEndian.PutUint64(h[nackCCX0:], uint64(n.CCXType)<<60|n.CCX0)
		binary.BigEndian.PutUint64(h[nackCCX1:], n.CCX1)
		return append(b, h[:]...)
	}
	panic("BUG: wire: not a NACK type")
}

func (n Nack) String() string {
	id := "psn"
	if n.Flags&NackFlagNT != 0 {
		id = "pkt_id"
	}
	s := fmt.Sprintf("%v %s nh=%v code=%v vendor=%#x %s=%#x spdcid=%d dpdcid=%d payload=%#x", n.Type,
		flagString(n.Flags, NackFlagM, "M", NackFlagRETX, "RETX", NackFlagNT, "NT"), n.Next, n.Code, n.Vendor, id, uint32(n.PSN), n.SPDCID, n.DPDCID, n.Payload)
	if n.Type == TypeNackCCX {
		s += fmt.Sprintf(" nccx_type=%d state=%#x,%#x", n.CCXType, n.CCX0, n.CCX1)
	}
	return s
}
