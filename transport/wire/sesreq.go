package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Opcode is an SES request opcode, 6 bits (UE 3.4.1).
type Opcode uint8

// The request opcodes.
const (
	OpNoOp             Opcode = 0x00 // nothing
	OpWrite            Opcode = 0x01 // RMA write
	OpRead             Opcode = 0x02 // RMA read
	OpAtomic           Opcode = 0x03 // atomic without a result
	OpFetchAtomic      Opcode = 0x04 // atomic that returns the old value
	OpSend             Opcode = 0x05 // untagged message
	OpRendezvousSend   Opcode = 0x06 // untagged message whose rest the target reads
	OpDatagramSend     Opcode = 0x07 // untagged message by UUD
	OpDeferrableSend   Opcode = 0x08 // untagged message that the target may defer
	OpTaggedSend       Opcode = 0x09 // tagged message
	OpRendezvousTSend  Opcode = 0x0A // tagged message whose rest the target reads
	OpDeferrableTSend  Opcode = 0x0B // tagged message that the target may defer
	OpDeferrableRTR    Opcode = 0x0C // from the target: send the deferred message now
	OpTSendAtomic      Opcode = 0x0D // atomic on a tagged buffer
	OpTSendFetchAtomic Opcode = 0x0E // atomic on a tagged buffer that returns the old value
	OpMsgError         Opcode = 0x0F // ends a message abnormally
)

var opNames = [...]string{"NO_OP", "WRITE", "READ", "ATOMIC", "FETCHING_ATOMIC", "SEND", "RENDEZVOUS_SEND", "DATAGRAM_SEND",
	"DEFERRABLE_SEND", "TAGGED_SEND", "RENDEZVOUS_TSEND", "DEFERRABLE_TSEND", "DEFERRABLE_RTR", "TSEND_ATOMIC", "TSEND_FETCH_ATOMIC", "MSG_ERROR"}

func (o Opcode) String() string { return name(opNames[:], int(o), "opcode") }

// HasAtomic reports whether the atomic or compare-and-swap extension follows the
// request header.
func (o Opcode) HasAtomic() bool {
	return o == OpAtomic || o == OpFetchAtomic || o == OpTSendAtomic || o == OpTSendFetchAtomic
}

// HasRendezvous reports whether the rendezvous extension follows the standard
// header of a message's first packet.
func (o Opcode) HasRendezvous() bool { return o == OpRendezvousSend || o == OpRendezvousTSend }

// SESFlags are the flag bits in the second byte of a request. The upper two bits of that
// byte are the version.
type SESFlags uint8

// The request flags.
const (
	SESDC  SESFlags = 0x20 // delivery complete
	SESIE  SESFlags = 0x10 // initiator error
	SESREL SESFlags = 0x08 // relative addressing
	SESHD  SESFlags = 0x04 // header data present
	SESEOM SESFlags = 0x02 // last packet of the message
	SESSOM SESFlags = 0x01 // first packet of the message
)

func (f SESFlags) String() string {
	var set []string
	for _, e := range [...]struct {
		f SESFlags
		s string
	}{{SESDC, "DC"}, {SESIE, "IE"}, {SESREL, "REL"}, {SESHD, "HD"}, {SESEOM, "EOM"}, {SESSOM, "SOM"}} {
		if f&e.f != 0 {
			set = append(set, e.s)
		}
	}
	if set == nil {
		return "-"
	}
	return strings.Join(set, "+")
}

// Standard request, 44 bytes: UE 3.4.2.
const (
	stdMsgID     = 2  // uint16
	stdGen       = 4  // uint8, followed by job_id in 24 bits
	stdPID       = 8  // rsvd:4 pid_on_fep:12
	stdRI        = 10 // rsvd:4 resource_index:12
	stdBufOff    = 12 // uint64
	stdInitiator = 20 // uint32
	stdMatch     = 24 // uint64, memory key or match bits
	stdHD        = 32 // with SOM uint64 header data; else uint16 payload_length at 34
	stdMsgOff    = 36 // uint32, without SOM
	stdReqLen    = 40 // uint32
	ReqStdLen    = 44 // bytes
)

var (
	errStdLen     = &Invalid{"standard request", "length"}
	errStdVersion = &Invalid{"standard request", "version"}
)

// A ReqStd is the standard request header.
type ReqStd struct {
	Opcode     Opcode
	Flags      SESFlags
	Gen        uint8
	MsgID      uint16
	PIDonFEP   uint16 // 12 bit
	RI         uint16 // 12 bit
	JobID      uint32 // 24 bit
	Initiator  uint32
	BufOff     uint64
	Match      uint64 // memory key or match bits
	HeaderData uint64 // with SESSOM; has a meaning if SESHD is set
	MsgOff     uint32 // without SESSOM
	ReqLen     uint32
	PayloadLen uint16 // without SESSOM, 14 bit
}

// ParseReqStd decodes the header at the front of b and reports the bytes read. A version
// other than 0 is an error.
func ParseReqStd(b []byte) (r ReqStd, n int, err error) {
	n, err = r.Parse(b)
	if err != nil {
		r = ReqStd{}
	}
	return r, n, err
}

// Parse is ParseReqStd into r. After an error r is unchanged.
func (r *ReqStd) Parse(b []byte) (int, error) {
	if len(b) < ReqStdLen {
		return 0, errStdLen
	}
	flags := b[1]
	if flags>>6 != 0 {
		return 0, errStdVersion
	}
	j, d := binary.BigEndian.Uint32(b[stdGen:]), binary.BigEndian.Uint32(b[stdPID:])
	r.Opcode, r.Flags, r.MsgID = Opcode(b[0]&0x3f), SESFlags(flags), binary.BigEndian.Uint16(b[stdMsgID:])
	r.Gen, r.JobID = uint8(j>>24), j&0xffffff
	r.PIDonFEP, r.RI = uint16(d>>16&0xfff), uint16(d&0xfff)
	r.BufOff = binary.BigEndian.Uint64(b[stdBufOff:])
	r.Initiator = binary.BigEndian.Uint32(b[stdInitiator:])
	r.Match = binary.BigEndian.Uint64(b[stdMatch:])
	r.ReqLen = binary.BigEndian.Uint32(b[stdReqLen:])
	h := binary.BigEndian.Uint64(b[stdHD:])
	if flags&byte(SESSOM) != 0 {
		r.HeaderData, r.PayloadLen, r.MsgOff = h, 0, 0
	} else {
		r.Flags &^= SESHD // has no meaning without SOM
		r.HeaderData, r.PayloadLen, r.MsgOff = 0, uint16(h>>32&0x3fff), uint32(h)
	}
	return ReqStdLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r *ReqStd) Append(b []byte) []byte {
	if uint8(r.Opcode)|uint8(r.Flags) > 0x3f || r.JobID > 0xffffff || r.PIDonFEP|r.RI > 0xfff || r.PayloadLen > 0x3fff {
		panic("BUG: wire: standard request field out of range")
	}
	b, tail := extend(b, ReqStdLen)
	h := (*[ReqStdLen]byte)(tail)
	binary.BigEndian.PutUint64(h[:], uint64(r.Opcode)<<56|uint64(r.Flags)<<48|uint64(r.MsgID)<<32|uint64(r.Gen)<<24|uint64(r.JobID))
	binary.BigEndian.PutUint32(h[stdPID:], uint32(r.PIDonFEP)<<16|uint32(r.RI))
	binary.BigEndian.PutUint64(h[stdBufOff:], r.BufOff)
	binary.BigEndian.PutUint32(h[stdInitiator:], r.Initiator)
	binary.BigEndian.PutUint64(h[stdMatch:], r.Match)
	if r.Flags&SESSOM != 0 {
		binary.BigEndian.PutUint64(h[stdHD:], r.HeaderData)
	} else {
		h[1] &^= byte(SESHD)
		binary.BigEndian.PutUint64(h[stdHD:], uint64(r.PayloadLen)<<32|uint64(r.MsgOff))
	}
	binary.BigEndian.PutUint32(h[stdReqLen:], r.ReqLen)
	return b
}

func (r *ReqStd) String() string {
	s := fmt.Sprintf("%v %v msg_id=%#x gen=%d job=%d pid=%d ri=%d buf_off=%#x initiator=%d match/key=%#x", r.Opcode, r.Flags, r.MsgID,
		r.Gen, r.JobID, r.PIDonFEP, r.RI, r.BufOff, r.Initiator, r.Match)
	if r.Flags&SESSOM != 0 {
		s += fmt.Sprintf(" hdr_data=%#x", r.HeaderData)
	} else {
		s += fmt.Sprintf(" payload_len=%d msg_off=%d", r.PayloadLen, r.MsgOff)
	}
	return s + fmt.Sprintf(" req_len=%d", r.ReqLen)
}

// RestartTokens are the tokens of a deferrable send, which are in place of the buffer
// offset.
func (r *ReqStd) RestartTokens() (initiator, target uint32) {
	return uint32(r.BufOff >> 32), uint32(r.BufOff)
}

// SetRestartTokens is the inverse of RestartTokens.
func (r *ReqStd) SetRestartTokens(initiator, target uint32) {
	r.BufOff = uint64(initiator)<<32 | uint64(target)
}

// RTRTokens are the tokens of a ready-to-restart, which are in place of the match bits.
func (r *ReqStd) RTRTokens() (initiator, target uint32) {
	return uint32(r.Match >> 32), uint32(r.Match)
}

// SetRTRTokens is the inverse of RTRTokens.
func (r *ReqStd) SetRTRTokens(initiator, target uint32) {
	r.Match = uint64(initiator)<<32 | uint64(target)
}

// Medium request, 32 bytes: UE 3.4.2.
const (
	medLen       = 2  // rsvd:2 request_length:14
	medHD        = 12 // uint64, header data (HD) or buffer offset
	medInitiator = 20 // uint32
	medMatch     = 24 // uint64
	ReqMediumLen = 32 // bytes
)

var (
	errMedLen     = &Invalid{"medium request", "length"}
	errMedVersion = &Invalid{"medium request", "version"}
	errMedOneShot = &Invalid{"medium request", "SOM/EOM"}
)

// A ReqMedium is the medium request header. The caller must set SOM and EOM.
type ReqMedium struct {
	Opcode       Opcode
	Flags        SESFlags
	Gen          uint8
	ReqLen       uint16 // 14 bit
	PIDonFEP, RI uint16 // 12 bit
	JobID        uint32 // 24 bit
	Initiator    uint32
	BufOff       uint64 // without SESHD
	HeaderData   uint64 // with SESHD
	Match        uint64
}

// ParseReqMedium decodes the header at the front of b and reports the bytes
// read. A header without SOM and EOM is an error: the packet must be a whole message.
func ParseReqMedium(b []byte) (ReqMedium, int, error) {
	if len(b) < ReqMediumLen {
		return ReqMedium{}, 0, errMedLen
	}
	if b[1]>>6 != 0 {
		return ReqMedium{}, 0, errMedVersion
	}
	g := binary.BigEndian.Uint32(b[stdGen:])
	r := ReqMedium{
		Opcode: Opcode(b[0] & 0x3f), Flags: SESFlags(b[1]),
		ReqLen: binary.BigEndian.Uint16(b[medLen:]) & 0x3fff,
		Gen:    uint8(g >> 24), JobID: g & 0xffffff,
		PIDonFEP:  binary.BigEndian.Uint16(b[stdPID:]) & 0xfff,
		RI:        binary.BigEndian.Uint16(b[stdRI:]) & 0xfff,
		Initiator: binary.BigEndian.Uint32(b[medInitiator:]),
		Match:     binary.BigEndian.Uint64(b[medMatch:]),
	}
	if r.Flags&(SESSOM|SESEOM) != SESSOM|SESEOM {
		return ReqMedium{}, 0, errMedOneShot
	}
	if v := binary.BigEndian.Uint64(b[medHD:]); r.Flags&SESHD != 0 {
		r.HeaderData = v
	} else {
		r.BufOff = v
	}
	return r, ReqMediumLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r ReqMedium) Append(b []byte) []byte {
	if r.Opcode > 0x3f || r.Flags > 0x3f || r.ReqLen > 0x3fff || r.JobID > 0xffffff || r.PIDonFEP > 0xfff || r.RI > 0xfff {
		panic("BUG: wire: medium request field out of range")
	}
	var h [ReqMediumLen]byte
	h[0], h[1] = byte(r.Opcode), byte(r.Flags)
	binary.BigEndian.PutUint16(h[medLen:], r.ReqLen)
	binary.BigEndian.PutUint32(h[stdGen:], uint32(r.Gen)<<24|r.JobID)
	binary.BigEndian.PutUint16(h[stdPID:], r.PIDonFEP)
	binary.BigEndian.PutUint16(h[stdRI:], r.RI)
	if r.Flags&SESHD != 0 {
		binary.BigEndian.PutUint64(h[medHD:], r.HeaderData)
	} else {
		binary.BigEndian.PutUint64(h[medHD:], r.BufOff)
	}
	binary.BigEndian.PutUint32(h[medInitiator:], r.Initiator)
	binary.BigEndian.PutUint64(h[medMatch:], r.Match)
	return append(b, h[:]...)
}

func (r ReqMedium) String() string {
	s := fmt.Sprintf("%v %v gen=%d job=%d pid=%d ri=%d", r.Opcode, r.Flags, r.Gen, r.JobID, r.PIDonFEP, r.RI)
	if r.Flags&SESHD != 0 {
		s += fmt.Sprintf(" hdr_data=%#x", r.HeaderData)
	} else {
		s += fmt.Sprintf(" buf_off=%#x", r.BufOff)
	}
	return s + fmt.Sprintf(" initiator=%d match/key=%#x req_len=%d", r.Initiator, r.Match, r.ReqLen)
}

// Small request (optimized, non-matching), 20 bytes: UE 3.4.2.
const (
	smallBufOff = 12 // uint64
	ReqSmallLen = 20 // bytes
)

var (
	errSmallLen     = &Invalid{"small request", "length"}
	errSmallVersion = &Invalid{"small request", "version"}
	errSmallOneShot = &Invalid{"small request", "SOM/EOM"}
)

// A ReqSmall is the small request header. The caller must set SOM and EOM; HD is reserved.
type ReqSmall struct {
	Opcode       Opcode
	Flags        SESFlags
	Gen          uint8
	ReqLen       uint16 // 14 bit
	PIDonFEP, RI uint16 // 12 bit
	JobID        uint32 // 24 bit
	BufOff       uint64
}

// ParseReqSmall decodes the header at the front of b and reports the bytes
// read. A header without SOM and EOM is an error: the packet must be a whole message.
func ParseReqSmall(b []byte) (ReqSmall, int, error) {
	if len(b) < ReqSmallLen {
		return ReqSmall{}, 0, errSmallLen
	}
	if b[1]>>6 != 0 {
		return ReqSmall{}, 0, errSmallVersion
	}
	g := binary.BigEndian.Uint32(b[stdGen:])
	r := ReqSmall{
		Opcode: Opcode(b[0] & 0x3f), Flags: SESFlags(b[1]) &^ SESHD,
		ReqLen: binary.BigEndian.Uint16(b[medLen:]) & 0x3fff,
		Gen:    uint8(g >> 24), JobID: g & 0xffffff,
		PIDonFEP: binary.BigEndian.Uint16(b[stdPID:]) & 0xfff,
		RI:       binary.BigEndian.Uint16(b[stdRI:]) & 0xfff,
		BufOff:   binary.BigEndian.Uint64(b[smallBufOff:]),
	}
	if r.Flags&(SESSOM|SESEOM) != SESSOM|SESEOM {
		return ReqSmall{}, 0, errSmallOneShot
	}
	return r, ReqSmallLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r ReqSmall) Append(b []byte) []byte {
	if r.Opcode > 0x3f || r.Flags > 0x3f || r.Flags&SESHD != 0 || r.ReqLen > 0x3fff || r.JobID > 0xffffff || r.PIDonFEP > 0xfff || r.RI > 0xfff {
		panic("BUG: wire: small request field out of range")
	}
	var h [ReqSmallLen]byte
	h[0], h[1] = byte(r.Opcode), byte(r.Flags)
	binary.BigEndian.PutUint16(h[medLen:], r.ReqLen)
	binary.BigEndian.PutUint32(h[stdGen:], uint32(r.Gen)<<24|r.JobID)
	binary.BigEndian.PutUint16(h[stdPID:], r.PIDonFEP)
	binary.BigEndian.PutUint16(h[stdRI:], r.RI)
	binary.BigEndian.PutUint64(h[smallBufOff:], r.BufOff)
	return append(b, h[:]...)
}

func (r ReqSmall) String() string {
	return fmt.Sprintf("%v %v gen=%d job=%d pid=%d ri=%d buf_off=%#x req_len=%d", r.Opcode, r.Flags, r.Gen, r.JobID, r.PIDonFEP, r.RI, r.BufOff, r.ReqLen)
}
