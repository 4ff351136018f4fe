package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// RUD/ROD request, 12 bytes, and its CC variant, 16 bytes: UE §3.5.10.2 (format),
// §3.5.11 (fields).
const (
	reqClearOff = 2  // int16, CLEAR_PSN relative to PSN
	reqPSN      = 4  // uint32
	reqSPDCID   = 8  // uint16
	reqDPDCID   = 10 // uint16; with SYN: pdc_info:4 psn_offset:12
	reqCCC      = 12 // ccc_id:8 credit_target:24, types 13 and 14
	ReqLen      = 12 // bytes
	ReqCCLen    = 16 // bytes
)

var (
	errReqLen  = &Invalid{"RUD/ROD request", "length"}
	errReqType = &Invalid{"RUD/ROD request", "type"}
)

// A Req is the header of a RUD or ROD request.
type Req struct {
	Type   Type
	Next   NextHdr
	Flags  Flags // FlagRETX, FlagAR, FlagSYN
	SPDCID uint16
	// DPDCID is valid without SYN, PDCInfo (4 bit; 0 on send, not to be looked
	// at on receipt: pds.md 8) and PSNOffset (12 bit) with.
	DPDCID    uint16
	PSNOffset uint16
	PDCInfo   uint8
	// CCCID and CreditTarget (24 bit, 256-byte units) are carried by the CC
	// variants only.
	CCCID        uint8
	ClearOff     int16
	PSN          PSN
	CreditTarget uint32
}

// ParseReq decodes the request header at the front of b. It reports the bytes
// read, or an Invalid naming the first field at fault. It does not keep b.
func ParseReq(b []byte) (Req, int, error) {
	if len(b) < ReqLen {
		return Req{}, 0, errReqLen
	}
	v := binary.BigEndian.Uint16(b)
	r := Req{
		Type: Type(v >> 11), Next: NextHdr(v >> 7 & 15), Flags: Flags(v) & reqFlags,
		ClearOff: int16(binary.BigEndian.Uint16(b[reqClearOff:])),
		PSN:      PSN(binary.BigEndian.Uint32(b[reqPSN:])),
		SPDCID:   binary.BigEndian.Uint16(b[reqSPDCID:]),
	}
	d := binary.BigEndian.Uint16(b[reqDPDCID:])
	if r.Flags&FlagSYN != 0 {
		r.PDCInfo, r.PSNOffset = uint8(d>>12), d&0xfff
	} else {
		r.DPDCID = d
	}
	switch r.Type {
	case TypeRUDReq, TypeRODReq:
		return r, ReqLen, nil
	case TypeRUDCCReq, TypeRODCCReq:
		if len(b) < ReqCCLen {
			return Req{}, 0, errReqLen
		}
		c := binary.BigEndian.Uint32(b[reqCCC:])
		r.CCCID, r.CreditTarget = uint8(c>>24), c&0xffffff
		return r, ReqCCLen, nil
	}
	return Req{}, 0, errReqType
}

// Len is the length of the encoded header in bytes.
func (r Req) Len() int {
	if r.Type == TypeRUDCCReq || r.Type == TypeRODCCReq {
		return ReqCCLen
	}
	return ReqLen
}

// Mode is RUD or ROD.
func (r Req) Mode() Mode {
	if r.Type == TypeRODReq || r.Type == TypeRODCCReq {
		return ROD
	}
	return RUD
}

// Append appends the header to b. It panics if a field is out of range: our bug.
func (r Req) Append(b []byte) []byte {
	if r.Next > 15 || r.Flags&^reqFlags != 0 || r.PDCInfo > 15 || r.PSNOffset > 0xfff || r.CreditTarget > 0xffffff {
		panic("BUG: wire: request field out of range")
	}
	d := r.DPDCID
	if r.Flags&FlagSYN != 0 {
		d = uint16(r.PDCInfo)<<12 | r.PSNOffset
	}
	var h [ReqCCLen]byte
	binary.BigEndian.PutUint16(h[:], uint16(r.Type)<<11|uint16(r.Next)<<7|uint16(r.Flags))
	binary.BigEndian.PutUint16(h[reqClearOff:], uint16(r.ClearOff))
	binary.BigEndian.PutUint32(h[reqPSN:], uint32(r.PSN))
	binary.BigEndian.PutUint16(h[reqSPDCID:], r.SPDCID)
	binary.BigEndian.PutUint16(h[reqDPDCID:], d)
	if r.Type == TypeRUDReq || r.Type == TypeRODReq {
		return append(b, h[:ReqLen]...)
	}
	if r.Type != TypeRUDCCReq && r.Type != TypeRODCCReq {
		panic("BUG: wire: not a request type")
	}
	binary.BigEndian.PutUint32(h[reqCCC:], uint32(r.CCCID)<<24|r.CreditTarget)
	return append(b, h[:ReqCCLen]...)
}

func (r Req) String() string {
	s := fmt.Sprintf("%v %s nh=%v clear_off=%d psn=%#x spdcid=%d", r.Type, flagString(r.Flags, FlagRETX, "RETX", FlagAR, "AR", FlagSYN, "SYN"), r.Next, r.ClearOff, uint32(r.PSN), r.SPDCID)
	if r.Flags&FlagSYN != 0 {
		s += synString(r.PDCInfo, r.PSNOffset)
	} else {
		s += fmt.Sprintf(" dpdcid=%d", r.DPDCID)
	}
	if r.Len() == ReqCCLen {
		s += fmt.Sprintf(" ccc_id=%d credit_target=%d", r.CCCID, r.CreditTarget)
	}
	return s
}

// synString is what a SYN puts in the place of the DPDCID.
func synString(info uint8, off uint16) string {
	s := fmt.Sprintf(" psn_offset=%d", off)
	if info != 0 {
		s += fmt.Sprintf(" pdc_info=%#x", info)
	}
	return s
}

// flagString joins the names of the set flags with +; none is "-". The
// arguments are pairs of Flags and name.
func flagString(f Flags, pairs ...any) string {
	var set []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if f&pairs[i].(Flags) != 0 {
			set = append(set, pairs[i+1].(string))
		}
	}
	if set == nil {
		return "-"
	}
	return strings.Join(set, "+")
}
