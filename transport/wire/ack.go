package wire

import (
	"encoding/binary"
	"fmt"
)

// ACK, 12 bytes (16 with Expected_PSN), ACK_CC, 32 bytes, ACK_CCX, 40 bytes:
// UE §3.5.10.4 to §3.5.10.6.
const (
	ackOff    = 2  // int16, ack_psn relative to cack; with P: probe_opaque
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

// AckPSN is the PSN of the packet the ACK names (not with AckFlagP).
func (a *Ack) AckPSN() PSN { return a.CACK.Add(int(a.AckPSNOff)) }

// ParseAck decodes the ACK header at the front of b and reports the bytes read.
func ParseAck(b []byte) (Ack, int, error) {
	if len(b) < AckLen {
		return Ack{}, 0, errAckLen
	}
	v := binary.BigEndian.Uint16(b)
	f := Flags(v & 0x7f)
	a := Ack{
		Type: Type(v >> 11), Next: NextHdr(v >> 7 & 15), Flags: f & ackFlags, Req: AckReq(f & ackReqMask >> 1),
		CACK:   PSN(binary.BigEndian.Uint32(b[ackCACK:])),
		SPDCID: binary.BigEndian.Uint16(b[ackSPDCID:]),
		DPDCID: binary.BigEndian.Uint16(b[ackDPDCID:]),
	}
	if o := binary.BigEndian.Uint16(b[ackOff:]); f&AckFlagP != 0 {
		a.ProbeOpaque = o
	} else {
		a.AckPSNOff = int16(o)
	}
	switch a.Type {
	case TypeAck:
		if f&AckFlagEPSN == 0 {
			return a, AckLen, nil
		}
		if len(b) < AckEPSNLen {
			return Ack{}, 0, errAckLen
		}
		a.Flags |= AckFlagEPSN
		a.EPSN = PSN(binary.BigEndian.Uint32(b[ackEPSN:]))
		return a, AckEPSNLen, nil
	case TypeAckCC, TypeAckCCX:
		n := AckCCLen
		if a.Type == TypeAckCCX {
			n = AckCCXLen
		}
		if len(b) < n {
			return Ack{}, 0, errAckLen
		}
		a.CCType, a.CCFlags, a.MPR = b[ackCC]>>4, b[ackCC]&15, b[ackMPR]
		a.SACKOff = int16(binary.BigEndian.Uint16(b[ackSACKO:]))
		a.SACK = binary.BigEndian.Uint64(b[ackSACK:])
		a.CCState = binary.BigEndian.Uint64(b[ackState:])
		if n == AckCCXLen {
			a.CCX = binary.BigEndian.Uint64(b[ackCCX:])
		}
		return a, n, nil
	}
	return Ack{}, 0, errAckType
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

// Append appends the header to b. It panics if a field is out of range: our bug.
func (a *Ack) Append(b []byte) []byte {
	flags := ackFlags
	if a.Type == TypeAck {
		flags |= AckFlagEPSN
	}
	if a.Next > 15 || a.Flags&^flags != 0 || a.Req > 3 || a.CCType > 15 || a.CCFlags > 15 {
		panic("BUG: wire: ACK field out of range")
	}
	var h [AckCCXLen]byte
	binary.BigEndian.PutUint16(h[:], uint16(a.Type)<<11|uint16(a.Next)<<7|uint16(a.Flags)|uint16(a.Req)<<1)
	o := uint16(a.AckPSNOff)
	if a.Flags&AckFlagP != 0 {
		o = a.ProbeOpaque
	}
	binary.BigEndian.PutUint16(h[ackOff:], o)
	binary.BigEndian.PutUint32(h[ackCACK:], uint32(a.CACK))
	binary.BigEndian.PutUint16(h[ackSPDCID:], a.SPDCID)
	binary.BigEndian.PutUint16(h[ackDPDCID:], a.DPDCID)
	switch a.Type {
	case TypeAck:
		binary.BigEndian.PutUint32(h[ackEPSN:], uint32(a.EPSN))
	case TypeAckCC, TypeAckCCX:
		h[ackCC], h[ackMPR] = a.CCType<<4|a.CCFlags, a.MPR
		binary.BigEndian.PutUint16(h[ackSACKO:], uint16(a.SACKOff))
		binary.BigEndian.PutUint64(h[ackSACK:], a.SACK)
		binary.BigEndian.PutUint64(h[ackState:], a.CCState)
		binary.BigEndian.PutUint64(h[ackCCX:], a.CCX)
	default:
		panic("BUG: wire: not an ACK type")
	}
	return append(b, h[:a.Len()]...)
}

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

// NSCCState is ack_cc_state with cc_type 0 (UE §3.6.13).
type NSCCState struct {
	ServiceTime uint16 // 128 ns units; 0 unknown, 0xFFFF ≥ 8.388 ms
	RestoreCwnd bool   // rc
	CwndPend    uint8  // rcv_cwnd_pend, 7 bit
	RcvdBytes   uint32 // 256-byte units, 24 bit, cumulative
	OOO         uint16 // PSNs above the first hole; 0xFFFF unknown
}

// Encode returns the 64 bits of the header.
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

// CreditState is ack_cc_state with cc_type 1.
type CreditState struct {
	Credit uint32 // 256-byte units, 24 bit, cumulative
	OOO    uint16
}

// Encode returns the 64 bits of the header.
func (s CreditState) Encode() uint64 {
	if s.Credit > 0xffffff {
		panic("BUG: wire: credit out of range")
	}
	return uint64(s.Credit)<<40 | uint64(s.OOO)
}

func (s CreditState) String() string { return fmt.Sprintf("credit=%d ooo_count=%d", s.Credit, s.OOO) }

// ParseCredit decodes ack_cc_state with cc_type 1.
func ParseCredit(v uint64) CreditState { return CreditState{uint32(v >> 40), uint16(v)} }
