package capture

import (
	"strings"

	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// comment describes a packet: why it was sent, if that is known, and its headers.
func comment(p *uet.Tapped) string {
	verb := "received"
	if p.Sent {
		verb = "sent"
	}
	why := ""
	if p.Why != "" {
		why = " (" + p.Why + ")"
	}
	b := p.Packet()
	if len(b) == 0 {
		return verb + " nothing" + why
	}
	text := verb + " " + kind(b) + why
	if p.TSS != nil {
		text += ", sealed as " + strings.TrimPrefix(p.TSS.String(), "TSS ")
	}
	return text + ": " + wire.Dump(b)
}

// kind names the kind of a packet.
func kind(b []byte) string {
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		h, _, err := wire.ParseReq(b)
		if err != nil {
			break
		}
		s := "data"
		if h.Flags&wire.FlagSYN != 0 {
			s = "data that opens a PDC"
		}
		if h.Flags&wire.FlagRETX != 0 {
			s += ", again"
		}
		return s
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		return "ACK"
	case wire.TypeNack, wire.TypeNackCCX:
		if h, _, err := wire.ParseNack(b); err == nil {
			return "NACK " + h.Code.String()
		}
	case wire.TypeTSS:
		return "what does not open"
	case wire.TypeCP:
		if h, _, err := wire.ParseCP(b); err == nil {
			return "control " + h.Ctl.String()
		}
	}
	return "what does not parse"
}
