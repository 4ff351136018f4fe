package simtest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"
)

// This file decodes packets for the checkers. It shares no code with transport/wire, so that a
// mistake in both directions of that codec does not escape the checkers.

type class uint8

const (
	classBad  class = iota
	classData       // RUD or ROD request
	classAck
	classNack
	classCP
	classRUDI // request or answer; psn is the packet id
	classUUD
	classOther
)

// A reading is what the checkers need to know of one packet.
type reading struct {
	class  class
	typ    uint8
	next   uint8 // next_hdr, or the control type of a CP
	flags  uint8
	psn    uint32
	spdcid uint16
	dpdcid uint16

	// Requests and CPs.
	syn      bool
	start    uint32 // with syn
	clear    uint32 // CLEAR_PSN, of a request or a CLEAR CP
	retx, ar bool
	rod      bool

	// ACKs.
	probe    bool
	ackPSN   uint32
	cack     uint32
	hasSACK  bool
	sackBase uint32
	sack     uint64
	mpr      uint8
	closing  bool // REQ=CLOSE
	rc       uint8
	rspOp    uint8
	deferred bool // it says that the message is deferred
	had      bool // of a rendezvous send: all of it came
	hasRsp   bool

	code uint8 // NACK

	// Requests with a standard or a small SES header.
	ses       bool
	opcode    uint8
	som, eom  bool
	dc        bool
	msgID     uint16
	tag       uint64
	bufOff    uint64
	initiator uint32
	pid, ri   uint16 // PIDonFEP and RI
	reqLen    uint32
	off       uint32
	header    uint64
	hasHeader bool
	payload   []byte
	n         int // bytes of payload
	// deferrable means that the opcode was that of a deferrable send, whose tokens are own and ours.
	deferrable bool
	own, ours  uint32
	// lent means that the opcode was that of a rendezvous send, whose memory has the key.
	lent bool
	key  uint64
}

const (
	opNoOp       = 0x00
	opWrite      = 0x01
	opRead       = 0x02
	opAtomic     = 0x03
	opFetch      = 0x04
	opTAtomic    = 0x0d
	opTFetch     = 0x0e
	opRTR        = 0x0c // the target asks for a message that it has deferred
	opEnd        = 0x80 // no opcode: no more follows of a message that was deferred
	opSend       = 0x05
	opLendSend   = 0x06
	opGram       = 0x07
	opDeferSend  = 0x08
	opTSend      = 0x09
	opLendTSend  = 0x0a
	opDeferTSend = 0x0b
	opMsgError   = 0x0f
	opVoid       = 0x2f // reserved: what it stands for is too long for the path
)

// nackNoAnswerYet is the code of a NACK that says that the packet came, and that its answer is not ready.
const nackNoAnswerYet = 0x18

// The next_hdr of requests and of read data.
const (
	nextSmall        = 1
	nextStd          = 3
	nextRspData      = 5
	nextRspDataSmall = 6
)

// returns reports whether it is read data.
func (r *reading) returns() bool {
	return r.class == classData && (r.next == nextRspData || r.next == nextRspDataSmall)
}

const (
	ctlNoop     = 0
	ctlAckReq   = 1
	ctlClear    = 2
	ctlClose    = 4
	ctlCloseReq = 5
	ctlProbe    = 6
	ctlNeg      = 9
)

// read decodes a datagram whose last trailer bytes are the CRC.
func read(b []byte, trailer int) (r reading) {
	if len(b) < 12+trailer {
		return r
	}
	b = b[:len(b)-trailer]
	be := binary.BigEndian
	p := be.Uint16(b)
	r.typ, r.next, r.flags = uint8(p>>11), uint8(p>>7&15), uint8(p&0x7f)
	r.spdcid, r.dpdcid = be.Uint16(b[8:]), be.Uint16(b[10:])
	switch r.typ {
	case 2, 3, 13, 14:
		r.class = classData
		r.rod = r.typ == 3 || r.typ == 14
		r.psn = be.Uint32(b[4:])
		r.clear = r.psn + uint32(int32(int16(be.Uint16(b[2:]))))
		r.request()
		n := 12
		if r.typ >= 13 {
			n = 16
		}
		if len(b) < n {
			r.class = classBad
			return r
		}
		switch {
		case r.next == nextStd && len(b) >= n+44:
			r.readSES(b[n:])
		case r.next == nextSmall && len(b) >= n+20:
			r.readSmall(b[n:])
		case r.next == nextRspDataSmall && len(b) >= n+12:
			r.rc, r.payload, r.n = b[n+1]&0x3f, b[n+12:], len(b)-n-12
		case r.next == nextRspData && len(b) >= n+20:
			r.msgID, r.off, r.n = be.Uint16(b[n+8:]), be.Uint32(b[n+16:]), len(b)-n-20
			r.rc, r.payload = b[n+1]&0x3f, b[n+20:]
		}
	case 7, 8, 9:
		r.class = classAck
		r.cack = be.Uint32(b[4:])
		r.retx = r.flags&0x10 != 0
		r.probe = r.flags&0x08 != 0
		r.closing = r.flags>>1&3 == 2
		r.ackPSN = r.cack + uint32(int32(int16(be.Uint16(b[2:]))))
		n := 12
		if r.typ != 7 {
			n = 32
			if r.typ == 9 {
				n = 40
			}
			if len(b) < n {
				r.class = classBad
				return r
			}
			r.mpr = b[13]
			r.sackBase = r.cack + uint32(int32(int16(be.Uint16(b[14:]))))
			r.sack = be.Uint64(b[16:])
			r.hasSACK = true
		}
		if (r.next == 4 || r.next == nextRspData || r.next == nextRspDataSmall) && len(b) >= n+12 {
			r.hasRsp, r.rspOp, r.rc = true, b[n]&0x3f, b[n+1]&0x3f
			r.had = r.rspOp == 1 && r.rc == 1 && b[n]>>6 == 0
			r.deferred = r.rspOp == 1 && r.rc == 1 && b[n]>>6 == 1 && be.Uint32(b[n+8:]) == 0
		}
	case 10, 12:
		r.class = classNack
		r.code = b[2]
		r.psn = be.Uint32(b[4:])
	case 11:
		if len(b) < 16 {
			return r
		}
		r.class = classCP
		r.psn = be.Uint32(b[4:])
		r.request()
		if r.next == ctlClear {
			r.clear = be.Uint32(b[12:])
		}
	case 4, 5:
		r.class = classRUDI
		r.psn = be.Uint32(b[4:])
		r.retx = r.flags&0x10 != 0
		switch {
		case r.typ == 4 && r.next == nextSmall && len(b) >= 8+20:
			r.readSmall(b[8:])
		case r.typ == 4 && r.next != nextSmall && len(b) >= 8+44:
			r.readSES(b[8:])
		}
	case 6:
		if r.class = classUUD; r.next == nextStd && len(b) >= 4+44 {
			r.readSES(b[4:])
		}
	default:
		r.class = classOther
	}
	return r
}

func (r *reading) request() {
	r.retx = r.flags&0x10 != 0
	r.ar = r.flags&0x08 != 0
	if r.flags&0x04 != 0 {
		r.syn = true
		r.start = r.psn - uint32(r.dpdcid&0xfff)
		r.dpdcid = 0
	}
}

func (r *reading) readSES(b []byte) {
	be := binary.BigEndian
	r.ses = true
	r.opcode = b[0] & 0x3f
	f := b[1]
	r.dc, r.hasHeader, r.eom, r.som = f&0x20 != 0, f&4 != 0 && f&1 != 0, f&2 != 0, f&1 != 0
	r.msgID = be.Uint16(b[2:])
	r.pid, r.ri = be.Uint16(b[8:]), be.Uint16(b[10:])
	r.initiator = be.Uint32(b[20:])
	r.bufOff, r.tag = be.Uint64(b[12:]), be.Uint64(b[24:])
	r.reqLen = be.Uint32(b[40:])
	if r.som {
		r.header = be.Uint64(b[32:])
	} else {
		r.off = be.Uint32(b[36:])
	}
	r.payload = b[44:]
	r.n = len(r.payload)
	switch r.opcode {
	case opDeferSend, opDeferTSend:
		r.deferrable, r.own, r.ours = true, be.Uint32(b[12:]), be.Uint32(b[16:])
		if r.opcode == opDeferSend {
			r.opcode = opSend
		} else {
			r.opcode = opTSend
		}
		if r.n == 0 && r.eom && !r.som {
			r.opcode = opEnd
		}
	case opLendSend, opLendTSend:
		if len(r.payload) >= 24 {
			r.lent, r.key = true, be.Uint64(r.payload[16:])
			r.payload, r.n = r.payload[24:], r.n-24
		}
		if r.opcode == opLendSend {
			r.opcode = opSend
		} else {
			r.opcode = opTSend
		}
	}
}

// readSmall reads a small header, which has no message id, key, initiator and header data.
func (r *reading) readSmall(b []byte) {
	be := binary.BigEndian
	r.ses, r.opcode = true, b[0]&0x3f
	f := b[1]
	r.dc, r.hasHeader, r.eom, r.som = f&0x20 != 0, f&4 != 0, f&2 != 0, f&1 != 0
	r.pid, r.ri = be.Uint16(b[8:]), be.Uint16(b[10:])
	r.bufOff, r.reqLen = be.Uint64(b[12:]), uint32(be.Uint16(b[2:]))
	r.payload = b[20:]
	r.n = len(r.payload)
}

// consumes reports whether the packet has a PSN of its own.
func (r *reading) consumes() bool {
	switch r.class {
	case classData:
		return true
	case classCP:
		return r.next == ctlNoop || r.next == ctlClose || r.next == ctlCloseReq || r.next == ctlNeg
	}
	return false
}

// crcOK checks the trailer as the standard says: CRC-32C over IP addresses, UDP header with
// checksum 0, and the datagram, most significant byte first.
func crcOK(src, dst netip.AddrPort, b []byte) bool {
	if len(b) < 4 {
		return false
	}
	return crcOf(src, dst, b[:len(b)-4]) == binary.BigEndian.Uint32(b[len(b)-4:])
}

// crcOf returns the trailer of a datagram that is b without it.
func crcOf(src, dst netip.AddrPort, b []byte) uint32 {
	var pseudo []byte
	pseudo = append(pseudo, src.Addr().AsSlice()...)
	pseudo = append(pseudo, dst.Addr().AsSlice()...)
	be := binary.BigEndian
	pseudo = be.AppendUint16(pseudo, src.Port())
	pseudo = be.AppendUint16(pseudo, dst.Port())
	pseudo = be.AppendUint16(pseudo, uint16(8+len(b)+4))
	pseudo = be.AppendUint16(pseudo, 0)
	return crc32.Update(crc32.Checksum(pseudo, castagnoli), castagnoli, b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	typeNames = map[uint8]string{1: "TSS", 2: "RUD", 3: "ROD", 4: "RUDI", 5: "RUDIrsp", 6: "UUD", 7: "ACK", 8: "ACK_CC", 9: "ACK_CCX",
		10: "NACK", 11: "CP", 12: "NACK_CCX", 13: "RUD_CC", 14: "ROD_CC"}
	ctlNames = []string{"NOOP", "ACK_REQ", "CLEAR", "CLEAR_REQ", "CLOSE", "CLOSE_REQ", "PROBE", "CREDIT", "CREDIT_REQ", "NEGOTIATION"}
)

// String returns one line of the trace.
func (r *reading) String() string {
	var s strings.Builder
	name := typeNames[r.typ]
	if name == "" {
		name = fmt.Sprintf("type%d", r.typ)
	}
	flag := func(on bool, n string) {
		if on {
			s.WriteString(" " + n)
		}
	}
	switch r.class {
	case classBad:
		return "too short"
	case classRUDI:
		fmt.Fprintf(&s, "%s id %d", name, r.psn)
		flag(r.retx, "RETX")
		flag(r.next == nextRspData || r.next == nextRspDataSmall, "| DATA")
		if r.ses {
			fmt.Fprintf(&s, " | op %d msg %d at %d+%d of %d", r.opcode, r.msgID, r.off, r.n, r.reqLen)
		}
	case classData:
		fmt.Fprintf(&s, "%s psn %d pdc %d>%d", name, r.psn, r.spdcid, r.dpdcid)
		if r.syn {
			fmt.Fprintf(&s, " SYN start %d", r.start)
		}
		flag(r.retx, "RETX")
		flag(r.ar, "AR")
		fmt.Fprintf(&s, " clear %d", r.clear)
		if r.returns() {
			fmt.Fprintf(&s, " | DATA msg %d at %d+%d", r.msgID, r.off, r.n)
		}
		if r.ses {
			switch r.opcode {
			case opRead:
				s.WriteString(" | READ")
			case opWrite:
				s.WriteString(" | WRITE")
			case opAtomic, opFetch, opTAtomic, opTFetch:
				s.WriteString(" | ADD")
			case opSend:
				s.WriteString(" | SEND")
			case opTSend:
				fmt.Fprintf(&s, " | TSEND tag %#x", r.tag)
			case opMsgError:
				s.WriteString(" | MSG_ERROR")
			case opRTR:
				fmt.Fprintf(&s, " | RTR %#x", r.tag)
			case opEnd:
				s.WriteString(" | END")
			default:
				fmt.Fprintf(&s, " | op %#x", r.opcode)
			}
			fmt.Fprintf(&s, " msg %d at %d+%d of %d", r.msgID, r.off, r.n, r.reqLen)
			flag(r.next == nextSmall, "SMALL")
			if r.deferrable {
				fmt.Fprintf(&s, " tokens %d,%d", r.own, r.ours)
			}
			flag(r.lent, "LENT")
			flag(r.som, "SOM")
			flag(r.eom, "EOM")
			flag(r.dc, "DC")
		}
	case classAck:
		fmt.Fprintf(&s, "%s cack %d", name, r.cack)
		if r.probe {
			s.WriteString(" probe")
		} else {
			fmt.Fprintf(&s, " psn %d", r.ackPSN)
		}
		fmt.Fprintf(&s, " pdc %d>%d", r.spdcid, r.dpdcid)
		if r.hasSACK {
			fmt.Fprintf(&s, " sack %d:%#x mpr %d", r.sackBase, r.sack, r.mpr)
		}
		flag(r.retx, "RETX")
		flag(r.flags&0x20 != 0, "M")
		flag(r.flags>>1&3 == 1, "REQ=CLEAR")
		flag(r.closing, "REQ=CLOSE")
		if r.hasRsp {
			fmt.Fprintf(&s, " | rsp op %d rc %d", r.rspOp, r.rc)
		}
	case classNack:
		fmt.Fprintf(&s, "%s code %#02x psn %d pdc %d>%d", name, r.code, r.psn, r.spdcid, r.dpdcid)
	case classCP:
		ctl := fmt.Sprint(r.next)
		if int(r.next) < len(ctlNames) {
			ctl = ctlNames[r.next]
		}
		fmt.Fprintf(&s, "CP %s psn %d pdc %d>%d", ctl, r.psn, r.spdcid, r.dpdcid)
		flag(r.syn, "SYN")
		flag(r.retx, "RETX")
		if r.next == ctlClear {
			fmt.Fprintf(&s, " clear %d", r.clear)
		}
	default:
		s.WriteString(name)
	}
	return s.String()
}

// accesses reports whether it is a write or an atomic operation.
func (r *reading) accesses() bool {
	switch r.opcode {
	case opWrite, opAtomic, opFetch, opTAtomic, opTFetch:
		return true
	}
	return false
}
