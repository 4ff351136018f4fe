package capture

import (
	"fmt"
	"strings"

	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// comment says what a packet is: why it was sent, as far as it tells itself, and
// its headers.
func comment(p *uet.Tapped) string {
	verb := "received"
	if p.Sent {
		verb = "sent"
	}
	kind, text := decode(p.Data)
	return verb + " " + kind + ": " + text
}

// decode parses one packet. The core does not tell why it sends; the packet has
// the traces: RETX on what is sent again, SYN before the peer has answered.
func decode(b []byte) (kind, text string) {
	if len(b) == 0 {
		return "nothing", "empty datagram"
	}
	var parts []string
	broken := func(err error) (string, string) { return "what does not parse", fmt.Sprintf("%v: %.24x", err, b) }
	next, rest := wire.NextNone, b
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		h, n, err := wire.ParseReq(b)
		if err != nil {
			return broken(err)
		}
		kind, next, rest = "data", h.Next, b[n:]
		if h.Flags&wire.FlagSYN != 0 {
			kind = "data that opens a PDC"
		}
		if h.Flags&wire.FlagRETX != 0 {
			kind += ", again"
		}
		parts = append(parts, h.String())
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		h, n, err := wire.ParseAck(b)
		if err != nil {
			return broken(err)
		}
		kind, next, rest = "ACK", h.Next, b[n:]
		parts = append(parts, h.String())
	case wire.TypeNack, wire.TypeNackCCX:
		h, _, err := wire.ParseNack(b)
		if err != nil {
			return broken(err)
		}
		kind = "NACK " + h.Code.String()
		parts = append(parts, h.String())
	case wire.TypeCP:
		h, _, err := wire.ParseCP(b)
		if err != nil {
			return broken(err)
		}
		kind = "control " + h.Ctl.String()
		parts = append(parts, h.String())
	default:
		p, err := wire.ParsePrologue(b)
		if err != nil {
			return broken(err)
		}
		kind = p.Type.String()
		parts = append(parts, p.String())
	}
	if s := message(next, rest); s != "" {
		parts = append(parts, s)
	}
	return kind, strings.Join(parts, " | ")
}

// message is the SES header n at the front of b.
func message(n wire.NextHdr, b []byte) string {
	switch n {
	case wire.NextReqStd:
		if h, _, err := wire.ParseReqStd(b); err == nil {
			return h.String()
		}
	case wire.NextReqMedium:
		if h, _, err := wire.ParseReqMedium(b); err == nil {
			return h.String()
		}
	case wire.NextReqSmall:
		if h, _, err := wire.ParseReqSmall(b); err == nil {
			return h.String()
		}
	case wire.NextRsp:
		if h, _, err := wire.ParseRsp(b); err == nil {
			return h.String()
		}
	case wire.NextNone:
		return ""
	}
	return n.String()
}
