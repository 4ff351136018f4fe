package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// RUD/ROD request, 12 bytes, and its CC variant, 16 bytes: UE 3.5.10.3, 3.5.10.4 (formats),
// UE 3.5.11 (fields).
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
	// DPDCID is valid without SYN. With SYN, PSNOffset (12 bit) and PDCInfo (4 bit) are
	// valid; PDCInfo is sent as 0 and ignored on receipt.
	DPDCID    uint16
	PSNOffset uint16
	PDCInfo   uint8
	// CCCID and CreditTarget (24 bit, units of 256 bytes) exist in the CC variants only.
	CCCID        uint8
	ClearOff     int16
	PSN          PSN
	CreditTarget uint32
}

// ParseReq decodes the request header at the front of b. It reports the bytes read, or an
// Invalid that names the first wrong field. It does not keep b.
func ParseReq(b []byte) (r Req, n int, err error) {
	n, err = r.Parse(b)
	if err != nil {
		r = Req{}
	}
	return r, n, err
}

// Parse is ParseReq into r. After an error the content of r is undefined.
func (r *Req) Parse(b []byte) (int, error) {
	if len(b) < ReqLen {
		return 0, errReqLen
	}
	v, d := binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[reqSPDCID:])
	r.Type, r.Next, r.Flags = Type(v>>59), NextHdr(v>>55&15), Flags(v>>48)&reqFlags
	r.ClearOff, r.PSN = int16(v>>32), PSN(v)
	r.SPDCID = uint16(d >> 16)
	r.CCCID, r.CreditTarget = 0, 0
	if r.Flags&FlagSYN != 0 {
		r.DPDCID, r.PDCInfo, r.PSNOffset = 0, uint8(d>>12&15), uint16(d&0xfff)
	} else {
		r.DPDCID, r.PDCInfo, r.PSNOffset = uint16(d), 0, 0
	}
	switch r.Type {
	case TypeRUDReq, TypeRODReq:
		return ReqLen, nil
	case TypeRUDCCReq, TypeRODCCReq:
		if len(b) < ReqCCLen {
			return 0, errReqLen
		}
		c := binary.BigEndian.Uint32(b[reqCCC:])
		r.CCCID, r.CreditTarget = uint8(c>>24), c&0xffffff
		return ReqCCLen, nil
	}
	return 0, errReqType
}

// Len is the length of the encoded header in bytes.
func (r *Req) Len() int {
	if r.Type == TypeRUDCCReq || r.Type == TypeRODCCReq {
		return ReqCCLen
	}
	return ReqLen
}

// Mode is RUD or ROD.
func (r *Req) Mode() Mode {
	if r.Type == TypeRODReq || r.Type == TypeRODCCReq {
		return ROD
	}
	return RUD
}

// Append appends the header to b. It panics if a field is out of range.
func (r *Req) Append(b []byte) []byte {
	if uint8(r.Next)|r.PDCInfo > 15 || r.Flags&^reqFlags != 0 || r.PSNOffset > 0xfff || r.CreditTarget > 0xffffff {
		panic("BUG: wire: request field out of range")
	}
	d := r.DPDCID
	if r.Flags&FlagSYN != 0 {
		d = uint16(r.PDCInfo)<<12 | r.PSNOffset
	}
	b, tail := extend(b, ReqLen)
	h := (*[ReqLen]byte)(tail)
	binary.BigEndian.PutUint64(h[:], uint64(r.Type)<<59|uint64(r.Next)<<55|uint64(r.Flags)<<48|uint64(uint16(r.ClearOff))<<32|uint64(r.PSN))
	binary.BigEndian.PutUint32(h[reqSPDCID:], uint32(r.SPDCID)<<16|uint32(d))
	switch r.Type {
	case TypeRUDReq, TypeRODReq:
	case TypeRUDCCReq, TypeRODCCReq:
		b = binary.BigEndian.AppendUint32(b, uint32(r.CCCID)<<24|r.CreditTarget)
	default:
		panic("BUG: wire: not a request type")
	}
	return b
}

// A PlainReq is a request of the most common form, read in place without decoding: of type
// RUD, without flags except AR, followed by a standard header.
type PlainReq [ReqLen]byte

// plainReqHead is the front of a PlainReq without AR: type, next header, no flags.
const plainReqHead = uint16(TypeRUDReq)<<11 | uint16(NextReqStd)<<7

// IsPlainRequest reports whether b begins with a PlainReq and the standard header.
func IsPlainRequest(b []byte) bool {
	return len(b) >= ReqLen+ReqStdLen && binary.BigEndian.Uint16(b)&^uint16(FlagAR) == plainReqHead
}

// PlainRequest returns the PlainReq at the front of b, nil if there is none. The standard
// header follows it.
func PlainRequest(b []byte) *PlainReq {
	if !IsPlainRequest(b) {
		return nil
	}
	return (*PlainReq)(b)
}

func (h *PlainReq) AR() bool        { return h[1]&byte(FlagAR) != 0 }
func (h *PlainReq) ClearOff() int16 { return int16(binary.BigEndian.Uint16(h[reqClearOff:])) }
func (h *PlainReq) PSN() PSN        { return PSN(binary.BigEndian.Uint32(h[reqPSN:])) }
func (h *PlainReq) SPDCID() uint16  { return binary.BigEndian.Uint16(h[reqSPDCID:]) }
func (h *PlainReq) DPDCID() uint16  { return binary.BigEndian.Uint16(h[reqDPDCID:]) }

// AppendPlainReq appends the header of a request without flags and CC fields that a
// standard header follows, as Append does for such a Req.
func AppendPlainReq(b []byte, t Type, clearOff int16, psn PSN, spdcid, dpdcid uint16) []byte {
	b, tail := extend(b, ReqLen)
	h := (*[ReqLen]byte)(tail)
	binary.BigEndian.PutUint64(h[:], uint64(t)<<59|uint64(NextReqStd)<<55|uint64(uint16(clearOff))<<32|uint64(psn))
	binary.BigEndian.PutUint32(h[reqSPDCID:], uint32(spdcid)<<16|uint32(dpdcid))
	return b
}

func (r *Req) String() string {
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

// synString is the text of the fields that a SYN has in place of the DPDCID.
func synString(info uint8, off uint16) string {
	s := fmt.Sprintf(" psn_offset=%d", off)
	if info != 0 {
		s += fmt.Sprintf(" pdc_info=%#x", info)
	}
	return s
}

// flagString joins the names of the set flags with "+", "-" if none is set. pairs are Flags
// and names by turns.
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
