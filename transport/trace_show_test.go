package transport

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file prints packets of traces: the headers in the words of the specification, PSNs
// relative to the Start_PSN of their PDC, PDCIDs and message IDs by names in the order in
// which they appear. It leaves out what all packets of a trace have in common.

// show is the text of a packet. plain is the packet before it was sealed, nil in clear.
func (tr *trace) show(p *tracePkt, plain []byte) string {
	s := ""
	b := p.b
	if plain != nil {
		h, _, err := wire.ParseTSS(b)
		if err != nil {
			return err.Error()
		}
		s, b = fmt.Sprintf("TSS an=%d epoch=%d | ", h.AN, h.Epoch), plain
	} else if !strings.Contains(strings.Join(p.from.words, " "), "no_crc") {
		b = b[:len(b)-wire.CRCLen]
	}
	if dscp := p.tos >> 2; dscp != 0 {
		s = fmt.Sprintf("dscp=%d %s", dscp, s)
	}
	pro, err := wire.ParsePrologue(b)
	if err != nil {
		return s + err.Error()
	}
	switch pro.Type {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		return s + tr.showReq(p, b)
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		return s + tr.showAck(p, b)
	case wire.TypeNack, wire.TypeNackCCX:
		return s + tr.showNack(p, b)
	case wire.TypeCP:
		return s + tr.showCP(p, b)
	}
	return s + wire.Dump(b)
}

func traceFlags(f wire.Flags, pairs ...any) string {
	s := ""
	for i := 0; i < len(pairs); i += 2 {
		if f&pairs[i].(wire.Flags) != 0 {
			s += "+" + pairs[i+1].(string)
		}
	}
	if s == "" {
		return ""
	}
	return " " + s[1:]
}

// id is the name of a PDCID of a FEP.
func (tr *trace) id(n *traceNode, id uint16) string {
	if id == 0 {
		return "0"
	}
	k := tracePDCID{n.name, id}
	if tr.ids[k] == "" {
		n.ids++
		tr.ids[k] = fmt.Sprintf("%s%d", n.name, n.ids)
	}
	return tr.ids[k]
}

// startName is the name of a Start_PSN.
func (tr *trace) startName(s wire.PSN) string {
	if tr.names[s] == "" {
		tr.names[s] = fmt.Sprintf("S%d", len(tr.names)+1)
	}
	return tr.names[s]
}

// psn is a PSN relative to the Start_PSN of its PDC, or to another Start_PSN that is near.
func (tr *trace) psn(psn, start wire.PSN) string {
	if d := psn.Sub(start); d > -1<<16 && d < 1<<16 {
		return fmt.Sprint(d)
	}
	for s, name := range tr.names {
		if d := psn.Sub(s); d >= 0 && d < 1<<12 {
			return fmt.Sprintf("%s+%d", name, d)
		}
	}
	return "far"
}

// startOf is the Start_PSN of the PDC of a packet between two PDCIDs.
func (tr *trace) startOf(p *tracePkt, spdcid, dpdcid uint16) (wire.PSN, bool) {
	a, b := tracePDCID{p.from.name, spdcid}, tracePDCID{p.to.name, dpdcid}
	s, ok := tr.starts[a]
	if !ok {
		s, ok = tr.starts[b]
	}
	if ok && spdcid != 0 && dpdcid != 0 {
		tr.starts[a], tr.starts[b] = s, s
	}
	return s, ok
}

// showReq shows a request.
func (tr *trace) showReq(p *tracePkt, b []byte) string {
	h, n, err := wire.ParseReq(b)
	if err != nil {
		return err.Error()
	}
	p.spdcid, p.psn = h.SPDCID, h.PSN
	s := fmt.Sprintf("%v%s", h.Type, traceFlags(h.Flags, wire.FlagRETX, "RETX", wire.FlagAR, "AR", wire.FlagSYN, "SYN"))
	k, dest := tracePDCID{p.from.name, h.SPDCID}, ""
	if h.Flags&wire.FlagSYN != 0 {
		start := h.PSN.Add(-int(h.PSNOffset))
		dest = fmt.Sprintf("psn_offset=%d", h.PSNOffset)
		if old, ok := tr.starts[k]; ok && old != start {
			dest += " of " + tr.startName(start)
		}
		tr.startName(start)
		tr.starts[k] = start
	} else {
		dest = "dpdcid=" + tr.id(p.to, h.DPDCID)
	}
	start := tr.starts[k]
	if h.Flags&wire.FlagSYN == 0 {
		start, _ = tr.startOf(p, h.SPDCID, h.DPDCID) // in the return direction the first packet may be this one
	}
	s += fmt.Sprintf(" psn=%d clear_psn=%d spdcid=%s %s", h.PSN.Sub(start), h.PSN.Add(int(h.ClearOff)).Sub(start), tr.id(p.from, h.SPDCID), dest)
	return s + " | " + tr.showMsg(p, h.Next, b[n:])
}

// showMsg shows the SES header of a request and counts the data behind it.
func (tr *trace) showMsg(p *tracePkt, next wire.NextHdr, b []byte) string {
	if next == wire.NextRspData {
		d, _, err := wire.ParseRspData(b)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v rc=%v msg_id=%s payload_len=%d mod_len=%d msg_off=%d", d.Opcode, d.RC, tr.msg(p.to, p.from, d.ReadMsgID), d.PayloadLen, d.ModLen, d.MsgOff)
	}
	if next != wire.NextReqStd {
		return next.String()
	}
	h, n, err := wire.ParseReqStd(b)
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("%v %v msg_id=%s req_len=%d", h.Opcode, h.Flags, tr.msg(p.from, p.to, h.MsgID), h.ReqLen)
	if h.Opcode == wire.OpTaggedSend || h.Opcode == wire.OpTSendAtomic || h.Opcode == wire.OpTSendFetchAtomic {
		s += fmt.Sprintf(" match=%#x", h.Match)
	}
	if h.Opcode.HasAtomic() {
		s += fmt.Sprintf(" buf_off=%d", h.BufOff)
	}
	if h.Flags&wire.SESHD != 0 {
		s += fmt.Sprintf(" hdr_data=%#x", h.HeaderData)
	}
	if h.Flags&wire.SESSOM == 0 {
		s += fmt.Sprintf(" msg_off=%d payload_len=%d", h.MsgOff, h.PayloadLen)
	}
	for _, e := range []struct {
		name       string
		is, mostly uint32
	}{{"job", h.JobID, 1}, {"pid", uint32(h.PIDonFEP), 0}, {"ri", uint32(h.RI), 15}, {"initiator", h.Initiator, 16}} {
		if e.is != e.mostly {
			s += fmt.Sprintf(" %s=%d", e.name, e.is)
		}
	}
	if len(b) > n {
		s += fmt.Sprintf(" | %d bytes", len(b)-n)
	}
	return s
}

// msg is the name of a message.
func (tr *trace) msg(from, to *traceNode, id uint16) string {
	k := traceMsgID{from.name, to.name, from.life, id}
	if tr.msgs[k] == "" {
		tr.msgs[k] = fmt.Sprintf("m%d", len(tr.msgs)+1)
	}
	return tr.msgs[k]
}

// showAck shows an ACK and the response that it carries.
func (tr *trace) showAck(p *tracePkt, b []byte) string {
	h, n, err := wire.ParseAck(b)
	if err != nil {
		return err.Error()
	}
	start, _ := tr.startOf(p, h.SPDCID, h.DPDCID)
	s := fmt.Sprintf("%v%s", h.Type, traceFlags(h.Flags, wire.AckFlagM, "M", wire.AckFlagRETX, "RETX", wire.AckFlagP, "P", wire.AckFlagEPSN, "EPSN"))
	if h.Req != 0 {
		s += " req=" + [...]string{"", "CLEAR", "CLOSE", "3"}[h.Req]
	}
	s += fmt.Sprintf(" cack_psn=%d", h.CACK.Sub(start))
	if h.Flags&wire.AckFlagP != 0 {
		s += fmt.Sprintf(" probe_opaque=%d", h.ProbeOpaque)
	} else {
		s += fmt.Sprintf(" ack_psn=%d", h.AckPSN().Sub(start))
	}
	if h.SACK != 0 {
		s += " sack=" + ranges(h.SACK, int(h.CACK.Add(int(h.SACKOff)).Sub(start)))
	}
	s += fmt.Sprintf(" spdcid=%s dpdcid=%s", tr.id(p.from, h.SPDCID), tr.id(p.to, h.DPDCID))
	if h.Flags&wire.AckFlagEPSN != 0 {
		s += fmt.Sprintf(" expected_psn=%d", h.EPSN.Sub(start))
	}
	if h.Type != wire.TypeAck && h.MPR != 16 {
		s += fmt.Sprintf(" mpr=%d", h.MPR)
	}
	if h.Next == wire.NextNone {
		return s
	}
	if h.Next == wire.NextRspData {
		d, _, err := wire.ParseRspData(b[n:])
		if err != nil {
			return s + " | " + err.Error()
		}
		return s + fmt.Sprintf(" | %v rc=%v msg_id=%s payload_len=%d mod_len=%d", d.Opcode, d.RC, tr.msg(p.to, p.from, d.ReadMsgID), d.PayloadLen, d.ModLen)
	}
	r, _, err := wire.ParseRsp(b[n:])
	if err != nil {
		return s + " | " + err.Error()
	}
	if s += fmt.Sprintf(" | %v", r.Opcode); r.Opcode == wire.RspResponse {
		s += fmt.Sprintf(" rc=%v", r.RC)
		if r.List != wire.ListExpected {
			s += " list=OVERFLOW"
		}
		s += fmt.Sprintf(" msg_id=%s mod_len=%d", tr.msg(p.to, p.from, r.MsgID), r.ModLen)
	}
	return s
}

// ranges prints the bits of a bitmap as numbers from base on: 2,4-7.
func ranges(m uint64, base int) string {
	var out []string
	for m != 0 {
		i := bits.TrailingZeros64(m)
		n := bits.TrailingZeros64(^(m >> i))
		if n == 1 {
			out = append(out, fmt.Sprint(base+i))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", base+i, base+i+n-1))
		}
		if i+n >= 64 {
			break
		}
		m &= ^uint64(0) << (i + n)
	}
	return strings.Join(out, ",")
}

// showNack shows a NACK.
func (tr *trace) showNack(p *tracePkt, b []byte) string {
	h, _, err := wire.ParseNack(b)
	if err != nil {
		return err.Error()
	}
	start, known := tr.startOf(p, h.SPDCID, h.DPDCID)
	psn := "none"
	if known && (h.PSN != 0 || !p.from.answersNoPSN(h.DPDCID)) {
		psn = tr.psn(h.PSN, start)
	}
	s := fmt.Sprintf("%v%s code=%v psn=%s spdcid=%s dpdcid=%s", h.Type, traceFlags(h.Flags, wire.NackFlagM, "M", wire.NackFlagRETX, "RETX"), h.Code, psn,
		tr.id(p.from, h.SPDCID), tr.id(p.to, h.DPDCID))
	switch h.Code {
	case wire.NackRODOOO:
		s += fmt.Sprintf(" expected_psn=%d", wire.PSN(h.Payload).Sub(start))
	case wire.NackNewStartPSN:
		s += " start_psn=" + tr.startName(wire.PSN(h.Payload))
	default:
		if h.Payload != 0 {
			s += fmt.Sprintf(" payload=%#x", h.Payload)
		}
	}
	return s
}

// answersNoPSN reports whether a NACK of PSN 0 answers a control packet that has no PSN.
// Packets are answered in the order in which they came.
func (n *traceNode) answersNoPSN(id uint16) bool {
	for i, p := range n.got {
		if p.spdcid == id && (p.noPSN || p.psn == 0) {
			n.got = slices.Delete(n.got, i, i+1)
			return p.noPSN
		}
	}
	return false
}

// showCP shows a control packet.
func (tr *trace) showCP(p *tracePkt, b []byte) string {
	h, _, err := wire.ParseCP(b)
	if err != nil {
		return err.Error()
	}
	p.spdcid, p.psn = h.SPDCID, h.PSN
	start, _ := tr.startOf(p, h.SPDCID, h.DPDCID)
	s := fmt.Sprintf("CTRL %v%s", h.Ctl, traceFlags(h.Flags, wire.FlagISROD, "ISROD", wire.FlagRETX, "RETX", wire.FlagAR, "AR", wire.FlagSYN, "SYN"))
	switch h.Ctl {
	case wire.CtlProbe:
		p.noPSN = true
		s += fmt.Sprintf(" probe_opaque=%d sack_base=%d", h.ProbeOpaque, wire.PSN(h.Payload).Sub(start))
	case wire.CtlClear, wire.CtlClearReq:
		s += fmt.Sprintf(" clear_psn=%d", wire.PSN(h.Payload).Sub(start))
	default:
		s += fmt.Sprintf(" psn=%d", h.PSN.Sub(start))
		if h.Payload != 0 {
			s += fmt.Sprintf(" payload=%#x", h.Payload)
		}
	}
	return s + fmt.Sprintf(" spdcid=%s dpdcid=%s", tr.id(p.from, h.SPDCID), tr.id(p.to, h.DPDCID))
}
