package wire

import (
	"encoding/binary"
	"fmt"
)

// Control packet, 16 bytes: UE 3.5.10.8.
const (
	cpProbe   = 2  // uint16, PROBE only, else reserved
	cpPSN     = 4  // uint32
	cpSPDCID  = 8  // uint16
	cpDPDCID  = 10 // uint16; with SYN: pdc_info:4 psn_offset:12
	cpPayload = 12 // uint32, meaning by ctl_type
	CPLen     = 16 // bytes
)

var (
	errCPLen  = &Invalid{"control packet", "length"}
	errCPType = &Invalid{"control packet", "type"}
	errCPCtl  = &Invalid{"control packet", "ctl_type"}
)

// A CP is a control packet.
type CP struct {
	Ctl         CtlType
	Flags       Flags  // FlagISROD, RETX, AR, SYN
	ProbeOpaque uint16 // PROBE only
	PSN         PSN
	SPDCID      uint16
	DPDCID      uint16 // without SYN
	PDCInfo     uint8  // with SYN, 4 bit
	PSNOffset   uint16 // with SYN, 12 bit
	Payload     uint32 // by Ctl: CPCredit, CPCreditReq, a PSN (CLEAR_CMD, CLEAR_REQ, PROBE) or 0
}

// A CPCredit is the payload of a CREDIT. Its low 8 bits are reserved.
type CPCredit struct {
	Credit uint32 // 256-byte units, 24 bit, cumulative
}

// Encode returns the 32 bits of the field. It panics if Credit has more than 24.
func (c CPCredit) Encode() uint32 {
	if c.Credit > 0xffffff {
		panic("BUG: wire: credit out of range")
	}
	return c.Credit << 8
}

// ParseCPCredit decodes the payload of a CREDIT.
func ParseCPCredit(v uint32) CPCredit { return CPCredit{v >> 8} }

func (c CPCredit) String() string { return fmt.Sprintf("credit=%d", c.Credit) }

// A CPCreditReq is the payload of a CREDIT_REQ. Its fields are those of a CC request.
type CPCreditReq struct {
	CCCID        uint8
	CreditTarget uint32 // 256-byte units, 24 bit
}

// Encode returns the 32 bits of the field. It panics if CreditTarget has more than 24.
func (c CPCreditReq) Encode() uint32 {
	if c.CreditTarget > 0xffffff {
		panic("BUG: wire: credit target out of range")
	}
	return uint32(c.CCCID)<<24 | c.CreditTarget
}

// ParseCPCreditReq decodes the payload of a CREDIT_REQ.
func ParseCPCreditReq(v uint32) CPCreditReq { return CPCreditReq{uint8(v >> 24), v & 0xffffff} }

func (c CPCreditReq) String() string {
	return fmt.Sprintf("ccc_id=%d credit_target=%d", c.CCCID, c.CreditTarget)
}

// ParseCP decodes the control packet at the front of b and reports the bytes read.
func ParseCP(b []byte) (CP, int, error) {
	if len(b) < CPLen {
		return CP{}, 0, errCPLen
	}
	v := binary.BigEndian.Uint16(b)
	if Type(v>>11) != TypeCP {
		return CP{}, 0, errCPType
	}
	c := CP{
		Ctl: CtlType(v >> 7 & 15), Flags: Flags(v) & cpFlags,
		PSN:     PSN(binary.BigEndian.Uint32(b[cpPSN:])),
		SPDCID:  binary.BigEndian.Uint16(b[cpSPDCID:]),
		Payload: binary.BigEndian.Uint32(b[cpPayload:]),
	}
	if c.Ctl > CtlNegotiation {
		return CP{}, 0, errCPCtl
	}
	if c.Ctl == CtlProbe {
		c.ProbeOpaque = binary.BigEndian.Uint16(b[cpProbe:])
	}
	d := binary.BigEndian.Uint16(b[cpDPDCID:])
	if c.Flags&FlagSYN != 0 {
		c.PDCInfo, c.PSNOffset = uint8(d>>12), d&0xfff
	} else {
		c.DPDCID = d
	}
	return c, CPLen, nil
}

// Append appends the packet to b. It panics if a field is out of range.
func (c CP) Append(b []byte) []byte {
	if c.Ctl > CtlNegotiation || c.Flags&^cpFlags != 0 || c.PDCInfo > 15 || c.PSNOffset > 0xfff {
		panic("BUG: wire: control packet field out of range")
	}
	d := c.DPDCID
	if c.Flags&FlagSYN != 0 {
		d = uint16(c.PDCInfo)<<12 | c.PSNOffset
	}
	var h [CPLen]byte
	binary.BigEndian.PutUint16(h[:], uint16(TypeCP)<<11|uint16(c.Ctl)<<7|uint16(c.Flags))
	if c.Ctl == CtlProbe {
		binary.BigEndian.PutUint16(h[cpProbe:], c.ProbeOpaque)
	}
	binary.BigEndian.PutUint32(h[cpPSN:], uint32(c.PSN))
	binary.BigEndian.PutUint16(h[cpSPDCID:], c.SPDCID)
	binary.BigEndian.PutUint16(h[cpDPDCID:], d)
	binary.BigEndian.PutUint32(h[cpPayload:], c.Payload)
	return append(b, h[:]...)
}

func (c CP) String() string {
	s := fmt.Sprintf("CTRL %v %s", c.Ctl, flagString(c.Flags, FlagISROD, "ISROD", FlagRETX, "RETX", FlagAR, "AR", FlagSYN, "SYN"))
	if c.Ctl == CtlProbe {
		s += fmt.Sprintf(" probe_opaque=%#x", c.ProbeOpaque)
	}
	s += fmt.Sprintf(" psn=%#x spdcid=%d", uint32(c.PSN), c.SPDCID)
	if c.Flags&FlagSYN != 0 {
		s += synString(c.PDCInfo, c.PSNOffset)
	} else {
		s += fmt.Sprintf(" dpdcid=%d", c.DPDCID)
	}
	switch c.Ctl {
	case CtlCredit:
		if c.Payload&0xff == 0 {
			return s + " " + ParseCPCredit(c.Payload).String()
		}
	case CtlCreditReq:
		return s + " " + ParseCPCreditReq(c.Payload).String()
	}
	return s + fmt.Sprintf(" payload=%#x", c.Payload)
}
