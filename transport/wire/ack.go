package wire

import (
	"encoding/binary"
	"fmt"
)

// ACK, 12 bytes (16 with Expected_PSN), ACK_CC, 32 bytes, ACK_CCX, 40 bytes: UE 3.5.10.5,
// 3.5.10.6, 3.5.10.7.
const (
	ackOff    = 2  // int16, ack_psn relative to cack; with P probe_opaque
	ackCACK   = 4  // uint32
	ackSPDCID = 8  // uint16
	ackDPDCID = 10 // uint16
	ackEPSN   = 12 // uint32, type ACK with AckFlagEPSN
	ackCC     = 12 // cc_type:4 cc_flags:4
	ackMPR    = 13 // uint8, × 128 PSNs
	ackSACKO  = 14 // int16, SACK base relative to cack
	ackSACK   = 16 // uint64, bit i: base+i received
	ackState  = 24 // uint64
	ackCCX    = 32 // uint64

	AckLen     = 12 // bytes
	AckEPSNLen = 16 // bytes
	AckCCLen   = 32 // bytes
	AckCCXLen  = 40 // bytes
)

var (
	errAckLen  = &Invalid{"ACK", "length"}
	errAckType = &Invalid{"ACK", "type"}
)

// An Ack is the header of an ACK, ACK_CC or ACK_CCX.
type Ack struct {
	Type           Type
	Next           NextHdr
	Flags          Flags // AckFlagM, RETX, P; EPSN for type ACK
	Req            AckReq
	AckPSNOff      int16  // without P
	ProbeOpaque    uint16 // with P
	SPDCID, DPDCID uint16
	CACK           PSN
	EPSN           PSN // type ACK with AckFlagEPSN

	// Types ACK_CC and ACK_CCX only.
	CCType, CCFlags, MPR uint8 // 4 bit, 4 bit (reserved, 0), × 128 PSNs
	SACKOff              int16
	SACK, CCState        uint64
	CCX                  uint64 // type ACK_CCX only
}

// AckPSN is the PSN of the packet that the ACK names. It has no meaning with AckFlagP.
func (a *Ack) AckPSN() PSN { return a.CACK.Add(int(a.AckPSNOff)) }

// ParseAck decodes the ACK header at the front of b and reports the bytes read.
func ParseAck(b []byte) (a Ack, n int, err error) {
	n, err = a.Parse(b)
	if err != nil {
		a = Ack{}
	}
	return a, n, err
}

// DPDCID reads the DPDCID, by which a receiver finds the PDC, from the header at the front
// of b. b must have AckLen bytes and need not be verified. The field is at the same place
// in every PDS header except a request with SYN, which has none.
func DPDCID(b []byte) uint16 { return binary.BigEndian.Uint16(b[ackDPDCID:]) }

// Parse is ParseAck into a. After an error the content of a is undefined.
func (a *Ack) Parse(b []byte) (int, error) {
	if len(b) < AckLen {
		return 0, errAckLen
	}
	v, d := binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[ackSPDCID:])
	f := Flags(v >> 48 & 0x7f)
	a.Type, a.Next, a.Flags, a.Req = Type(v>>59), NextHdr(v>>55&15), f&ackFlags, AckReq(f&ackReqMask>>1)
	a.CACK = PSN(v)
	a.SPDCID, a.DPDCID = uint16(d>>16), uint16(d)
	a.AckPSNOff, a.ProbeOpaque = int16(v>>32), 0
	if f&AckFlagP != 0 {
		a.AckPSNOff, a.ProbeOpaque = 0, uint16(v>>32)
	}
	a.EPSN, a.CCX = 0, 0
	switch a.Type {
	case TypeAck:
		a.CCType, a.CCFlags, a.MPR, a.SACKOff, a.SACK, a.CCState = 0, 0, 0, 0, 0, 0
		if f&AckFlagEPSN == 0 {
			return AckLen, nil
		}
		if len(b) < AckEPSNLen {
			return 0, errAckLen
		}
		a.Flags |= AckFlagEPSN
		a.EPSN = PSN(binary.BigEndian.Uint32(b[ackEPSN:]))
		return AckEPSNLen, nil
	case TypeAckCC, TypeAckCCX:
		if len(b) < AckCCLen {
			return 0, errAckLen
		}
		c := binary.BigEndian.Uint32(b[ackCC:])
		a.CCType, a.CCFlags, a.MPR, a.SACKOff = uint8(c>>28), uint8(c>>24&15), uint8(c>>16), int16(c)
		a.SACK = binary.BigEndian.Uint64(b[ackSACK:])
		a.CCState = binary.BigEndian.Uint64(b[ackState:])
		if a.Type == TypeAckCC {
			return AckCCLen, nil
		}
		if len(b) < AckCCXLen {
			return 0, errAckLen
		}
		a.CCX = binary.BigEndian.Uint64(b[ackCCX:])
		return AckCCXLen, nil
	}
	return 0, errAckType
}

// Len is the length of the encoded header in bytes.
func (a *Ack) Len() int {
	switch {
	case a.Type == TypeAckCC:
		return AckCCLen
	case a.Type == TypeAckCCX:
		return AckCCXLen
	case a.Flags&AckFlagEPSN != 0:
		return AckEPSNLen
	}
	return AckLen
}

// Append appends the header to b. It panics if a field is out of range.
func (a *Ack) Append(b []byte) []byte {
	flags := ackFlags
	if a.Type == TypeAck {
		flags |= AckFlagEPSN
	}
	if uint8(a.Next)|a.CCType|a.CCFlags > 15 || a.Flags&^flags != 0 || a.Req > 3 {
		panic("BUG: wire: ACK field out of range")
	}
	o := uint16(a.AckPSNOff)
	if a.Flags&AckFlagP != 0 {
		o = a.ProbeOpaque
	}
	b, tail := extend(b, AckCCLen)
	h := (*[AckCCLen]byte)(tail)
	binary.BigEndian.PutUint64(h[:], uint64(a.Type)<<59|uint64(a.Next)<<55|(uint64(a.Flags)|uint64(a.Req)<<1)<<48|uint64(o)<<32|uint64(a.CACK))
	binary.BigEndian.PutUint32(h[ackSPDCID:], uint32(a.SPDCID)<<16|uint32(a.DPDCID))
	if a.Type != TypeAckCC {
		return a.appendOther(b)
	}
	a.putCC(h)
	return b
}

// putCC writes the fields that only ACK_CC and ACK_CCX have.
func (a *Ack) putCC(h *[AckCCLen]byte) {
	binary.BigEndian.PutUint32(h[ackCC:], uint32(a.CCType)<<28|uint32(a.CCFlags)<<24|uint32(a.MPR)<<16|uint32(uint16(a.SACKOff)))
	binary.BigEndian.PutUint64(h[ackSACK:], a.SACK)
	binary.BigEndian.PutUint64(h[ackState:], a.CCState)
}

// appendOther turns the last AckCCLen bytes of b, of which those up to AckLen are written,
// into the header of an ACK or ACK_CCX.
func (a *Ack) appendOther(b []byte) []byte {
	at := len(b) - AckCCLen
	switch a.Type {
	case TypeAckCCX:
		a.putCC((*[AckCCLen]byte)(b[at:]))
		return binary.BigEndian.AppendUint64(b, a.CCX)
	case TypeAck:
		b = b[:at+AckLen]
		if a.Flags&AckFlagEPSN != 0 {
			b = binary.BigEndian.AppendUint32(b, uint32(a.EPSN))
		}
		return b
	}
	panic("BUG: wire: not an ACK type")
}

// A PlainAck is an ACK of the most common form, read in place without decoding: an
// ACK_CC without flags or a request, whose ACK_PSN is its CACK and whose SACK bitmap is
// empty, with an NSCC state, followed by a response and nothing else.
type PlainAck [AckCCLen + RspLen]byte

// plainHead is the front of a PlainAck: type, next header, no flags, ack_psn_off 0.
const plainHead = uint32(TypeAckCC)<<27 | uint32(NextRsp)<<23

// IsPlain reports whether b begins with a PlainAck.
func IsPlain(b []byte) bool {
	return len(b) >= AckCCLen+RspLen && binary.BigEndian.Uint32(b) == plainHead && b[ackCC] == 0 && binary.BigEndian.Uint64(b[ackSACK:]) == 0
}

// Plain returns the PlainAck at the front of b, nil if there is none.
func Plain(b []byte) *PlainAck {
	if !IsPlain(b) {
		return nil
	}
	return (*PlainAck)(b)
}

// AppendPlain appends a PlainAck and its response to b. It panics if a field of the
// response is out of range.
func AppendPlain(b []byte, cack PSN, spdcid, dpdcid uint16, mpr uint8, s NSCC, rsp *Rsp) []byte {
	b, tail := extend(b, AckCCLen+RspLen)
	h := (*PlainAck)(tail)
	binary.BigEndian.PutUint64(h[:], uint64(plainHead)<<32|uint64(cack))
	binary.BigEndian.PutUint64(h[ackSPDCID:], uint64(spdcid)<<48|uint64(dpdcid)<<32|uint64(mpr)<<16|1) // sack_off 1: the bitmap begins behind CACK
	binary.BigEndian.PutUint64(h[ackSACK:], 0)
	binary.BigEndian.PutUint64(h[ackState:], uint64(s))
	rsp.put((*[RspLen]byte)(h[AckCCLen:]))
	return b
}

func (h *PlainAck) CACK() PSN      { return PSN(binary.BigEndian.Uint32(h[ackCACK:])) }
func (h *PlainAck) SPDCID() uint16 { return binary.BigEndian.Uint16(h[ackSPDCID:]) }
func (h *PlainAck) DPDCID() uint16 { return binary.BigEndian.Uint16(h[ackDPDCID:]) }
func (h *PlainAck) MPR() uint8     { return h[ackMPR] }
func (h *PlainAck) Rsp() []byte    { return h[AckCCLen:] }
func (h *PlainAck) NSCC() NSCC     { return NSCC(binary.BigEndian.Uint64(h[ackState:])) }

func (a *Ack) String() string {
	s := fmt.Sprintf("%v %s req=%d nh=%v", a.Type, flagString(a.Flags, AckFlagM, "M", AckFlagRETX, "RETX", AckFlagP, "P", AckFlagEPSN, "EPSN"), a.Req, a.Next)
	if a.Flags&AckFlagP != 0 {
		s += fmt.Sprintf(" probe_opaque=%#x", a.ProbeOpaque)
	} else {
		s += fmt.Sprintf(" ack_off=%d", a.AckPSNOff)
	}
	s += fmt.Sprintf(" cack=%#x spdcid=%d dpdcid=%d", uint32(a.CACK), a.SPDCID, a.DPDCID)
	if a.Type == TypeAck {
		if a.Flags&AckFlagEPSN != 0 {
			s += fmt.Sprintf(" expected_psn=%#x", uint32(a.EPSN))
		}
		return s
	}
	s += fmt.Sprintf(" cc_type=%d cc_flags=%#x mpr=%d sack_off=%d sack=%#x cc_state=%#x", a.CCType, a.CCFlags, a.MPR, a.SACKOff, a.SACK, a.CCState)
	if a.Type == TypeAckCCX {
		s += fmt.Sprintf(" ccx=%#x", a.CCX)
	}
	return s
}

// An NSCCState is the ack_cc_state of cc_type 0 (UE 3.6.9.2).
type NSCCState struct {
	ServiceTime uint16 // units of 128 ns; 0 means unknown, 0xFFFF at least 8.388 ms
	RestoreCwnd bool   // rc
	CwndPend    uint8  // rcv_cwnd_pend, 7 bit
	RcvdBytes   uint32 // 256-byte units, 24 bit, cumulative
	OOO         uint16 // PSNs received above the first hole; 0xFFFF means unknown
}

// Encode returns the 64 bits of the field.
func (s NSCCState) Encode() uint64 {
	if s.CwndPend > 0x7f || s.RcvdBytes > 0xffffff {
		panic("BUG: wire: NSCC state field out of range")
	}
	v := uint64(s.ServiceTime)<<48 | uint64(s.CwndPend)<<40 | uint64(s.RcvdBytes)<<16 | uint64(s.OOO)
	if s.RestoreCwnd {
		v |= 1 << 47
	}
	return v
}

func (s NSCCState) String() string {
	return fmt.Sprintf("service_time=%d rc=%t rcv_cwnd_pend=%d rcvd_bytes=%d ooo_count=%d", s.ServiceTime, s.RestoreCwnd, s.CwndPend, s.RcvdBytes, s.OOO)
}

// ParseNSCC decodes ack_cc_state with cc_type 0.
func ParseNSCC(v uint64) NSCCState {
	return NSCCState{uint16(v >> 48), v>>47&1 != 0, uint8(v>>40) & 0x7f, uint32(v>>16) & 0xffffff, uint16(v)}
}

// NSCC is an encoded NSCCState whose fields are read one by one. It fits into a register,
// unlike the decoded struct.
type NSCC uint64

// ServiceTime, RestoreCwnd, CwndPend and RcvdBytes are the fields of NSCCState.
func (s NSCC) ServiceTime() uint16 { return uint16(s >> 48) }
func (s NSCC) RestoreCwnd() bool   { return s>>47&1 != 0 }
func (s NSCC) CwndPend() uint8     { return uint8(s>>40) & 0x7f }
func (s NSCC) RcvdBytes() uint32   { return uint32(s>>16) & 0xffffff }

// NSCC is the state of an ACK with cc_type 0. For another cc_type it is 0, which reports
// nothing.
func (a *Ack) NSCC() NSCC {
	if a.CCType != CCNSCC {
		return 0
	}
	return NSCC(a.CCState)
}

// NewNSCC is the state with these fields and no flow control. It keeps the lower 24 bits of
// rcvd.
func NewNSCC(service uint16, rcvd uint32, ooo uint16) NSCC {
	return NSCC(service)<<48 | NSCC(rcvd&0xffffff)<<16 | NSCC(ooo)
}

// The values of cc_type.
const (
	CCNSCC   = 0 // ack_cc_state is an NSCCState
	CCCredit = 1 // ack_cc_state is a CreditState
)

// A CreditState is the ack_cc_state of cc_type 1.
type CreditState struct {
	Credit uint32 // 256-byte units, 24 bit, cumulative
	OOO    uint16
}

// Encode returns the 64 bits of the field.
func (s CreditState) Encode() uint64 {
	if s.Credit > 0xffffff {
		panic("BUG: wire: credit out of range")
	}
	return uint64(s.Credit)<<40 | uint64(s.OOO)
}

func (s CreditState) String() string { return fmt.Sprintf("credit=%d ooo_count=%d", s.Credit, s.OOO) }

// ParseCredit decodes ack_cc_state with cc_type 1.
func ParseCredit(v uint64) CreditState { return CreditState{uint32(v >> 40), uint16(v)} }
