package wire

import (
	"fmt"
	"strings"
)

// Dump returns one packet as text on one line: the headers by their String methods,
// separated by " | ", and the number of bytes behind them. b begins at the PDS or security
// header and ends before the trailer; it is borrowed. Dump accepts any bytes. Bytes that do
// not parse are shown as an error and, the first of them, in hex.
//
// Dump allocates. It is for comments on packets and for people, not for every packet of a
// busy endpoint.
func Dump(b []byte) string { return DumpCut(b, 0) }

// DumpCut is Dump of a packet of which a capture left out the last cut bytes. They count as
// data.
func DumpCut(b []byte, cut int) string {
	d := dump{cut: cut}
	d.packet(b)
	return d.text.String()
}

// A dump is the text of one packet under construction.
type dump struct {
	text strings.Builder
	cut  int // bytes that the capture left out
}

// dumpHex is the most bytes that Dump shows in hex.
const dumpHex = 48

// part appends one part of the line.
func (d *dump) part(s string) {
	if d.text.Len() > 0 {
		d.text.WriteString(" | ")
	}
	d.text.WriteString(s)
}

// bad appends the reason why the bytes b do not parse.
func (d *dump) bad(err error, b []byte) {
	if len(b) > dumpHex {
		d.part(fmt.Sprintf("%v: %x… (%d bytes)", err, b[:dumpHex], len(b)))
		return
	}
	d.part(fmt.Sprintf("%v: %x", err, b))
}

// rest appends the number of bytes behind the headers.
func (d *dump) rest(what string, n int) {
	if n += d.cut; n > 0 {
		d.part(fmt.Sprintf("%s=%d", what, n))
	}
}

// dumpHeader parses one header, appends its text and returns the bytes behind it. It
// returns false if the header does not parse.
func dumpHeader[H any](d *dump, b []byte, parse func([]byte) (H, int, error), text func(*H) string) (*H, []byte, bool) {
	h, n, err := parse(b)
	if err != nil {
		d.bad(err, b)
		return nil, nil, false
	}
	d.part(text(&h))
	return &h, b[n:], true
}

// packet appends a packet.
func (d *dump) packet(b []byte) {
	p, err := ParsePrologue(b)
	if err != nil {
		d.bad(err, b)
		return
	}
	var rest []byte
	ok := false
	switch p.Type {
	case TypeTSS:
		if _, rest, ok = dumpHeader(d, b, ParseTSS, (*TSS).String); ok {
			d.rest("sealed", len(rest))
		}
		return
	case TypeRUDReq, TypeRODReq, TypeRUDCCReq, TypeRODCCReq:
		_, rest, ok = dumpHeader(d, b, ParseReq, (*Req).String)
	case TypeRUDIReq, TypeRUDIRsp:
		_, rest, ok = dumpHeader(d, b, ParseRUDI, (*RUDIHdr).String)
	case TypeUUDReq:
		_, rest, ok = dumpHeader(d, b, ParseUUD, (*UUDHdr).String)
	case TypeAck, TypeAckCC, TypeAckCCX:
		var h *Ack
		if h, rest, ok = dumpHeader(d, b, ParseAck, (*Ack).String); ok && h.Type != TypeAck && h.CCState != 0 {
			switch h.CCType {
			case CCNSCC:
				d.part(ParseNSCC(h.CCState).String())
			case CCCredit:
				d.part(ParseCredit(h.CCState).String())
			}
		}
	case TypeNack, TypeNackCCX:
		_, rest, ok = dumpHeader(d, b, ParseNack, (*Nack).String)
	case TypeCP:
		_, rest, ok = dumpHeader(d, b, ParseCP, (*CP).String)
	default:
		d.bad(&Invalid{"prologue", "type"}, b)
	}
	if !ok {
		return
	}
	if !p.Type.Carries(p.Next) {
		d.bad(&Invalid{p.Type.String(), "next_hdr " + p.Next.String()}, rest)
		return
	}
	d.message(p.Next, rest)
}

// message appends the SES header n at the front of b, its extension and the data.
func (d *dump) message(n NextHdr, b []byte) {
	var op Opcode
	rdv, ok := false, false
	switch n {
	case NextNone:
		ok = true
	case NextReqSmall:
		var h *ReqSmall
		if h, b, ok = dumpHeader(d, b, ParseReqSmall, (*ReqSmall).String); ok {
			op = h.Opcode
		}
	case NextReqMedium:
		var h *ReqMedium
		if h, b, ok = dumpHeader(d, b, ParseReqMedium, (*ReqMedium).String); ok {
			op = h.Opcode
		}
	case NextReqStd:
		var h *ReqStd
		if h, b, ok = dumpHeader(d, b, ParseReqStd, (*ReqStd).String); ok {
			op, rdv = h.Opcode, h.Opcode.HasRendezvous() && h.Flags&SESSOM != 0
		}
	case NextRsp:
		_, b, ok = dumpHeader(d, b, ParseRsp, (*Rsp).String)
	case NextRspData:
		_, b, ok = dumpHeader(d, b, ParseRspData, (*RspData).String)
	case NextRspDataSmall:
		_, b, ok = dumpHeader(d, b, ParseRspDataSmall, (*RspDataSmall).String)
	}
	switch {
	case !ok:
		return
	case rdv:
		_, b, ok = dumpHeader(d, b, ParseRendezvous, (*Rendezvous).String)
	case op.HasAtomic() && len(b) > 0 && AtomicOp(b[0]).Compares():
		_, b, ok = dumpHeader(d, b, ParseCSwap, (*CSwap).String)
	case op.HasAtomic():
		_, b, ok = dumpHeader(d, b, ParseAtomic, (*Atomic).String)
	}
	if ok {
		d.rest("data", len(b))
	}
}
