package main

import "github.com/uetkit/uetkit/transport/wire"

// A message has the parsed headers of a packet in clear. One of the first six fields is not
// nil, unless the packet did not parse.
type message struct {
	typ  wire.Type
	next wire.NextHdr
	req  *wire.Req
	ack  *wire.Ack
	nack *wire.Nack
	cp   *wire.CP
	rudi *wire.RUDIHdr
	uud  *wire.UUDHdr

	// At most one of these.
	small  *wire.ReqSmall
	medium *wire.ReqMedium
	std    *wire.ReqStd
	rsp    *wire.Rsp
	rdata  *wire.RspData
	rsmall *wire.RspDataSmall
	atomic *wire.Atomic     // the extension of an atomic operation
	lent   *wire.Rendezvous // the extension of a rendezvous send

	headers int // bytes of PDS, SES and extension headers on the wire
	ses     int // where the SES header begins
	err     error
}

// parseMessage reads the headers of a packet in clear without trailer.
func parseMessage(b []byte) *message {
	m := &message{}
	p, err := wire.ParsePrologue(b)
	if err != nil {
		m.err = err
		return m
	}
	m.typ = p.Type
	var h int
	switch p.Type {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		m.req, h, m.err = parsed(wire.ParseReq(b))
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		m.rudi, h, m.err = parsed(wire.ParseRUDI(b))
	case wire.TypeUUDReq:
		m.uud, h, m.err = parsed(wire.ParseUUD(b))
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		m.ack, h, m.err = parsed(wire.ParseAck(b))
	case wire.TypeNack, wire.TypeNackCCX:
		m.nack, h, m.err = parsed(wire.ParseNack(b))
	case wire.TypeCP:
		m.cp, h, m.err = parsed(wire.ParseCP(b))
	default:
		m.err = &wire.Invalid{Header: "prologue", Field: "type"}
	}
	if m.headers, m.ses = h, h; m.err != nil {
		return m
	}
	if p.Type == wire.TypeCP {
		return m
	}
	if !p.Type.Carries(p.Next) {
		m.err = &wire.Invalid{Header: p.Type.String(), Field: "next_hdr " + p.Next.String()}
		return m
	}
	m.next = p.Next
	b = b[h:]
	var k int
	var op wire.Opcode
	rdv := false
	switch p.Next {
	case wire.NextReqSmall:
		if m.small, k, m.err = parsed(wire.ParseReqSmall(b)); m.err == nil {
			op = m.small.Opcode
		}
	case wire.NextReqMedium:
		if m.medium, k, m.err = parsed(wire.ParseReqMedium(b)); m.err == nil {
			op = m.medium.Opcode
		}
	case wire.NextReqStd:
		if m.std, k, m.err = parsed(wire.ParseReqStd(b)); m.err == nil {
			op = m.std.Opcode
			rdv = op.HasRendezvous() && m.std.Flags&wire.SESSOM != 0
		}
	case wire.NextRsp:
		m.rsp, k, m.err = parsed(wire.ParseRsp(b))
	case wire.NextRspData:
		m.rdata, k, m.err = parsed(wire.ParseRspData(b))
	case wire.NextRspDataSmall:
		m.rsmall, k, m.err = parsed(wire.ParseRspDataSmall(b))
	}
	if m.err != nil {
		return m
	}
	b = b[k:]
	m.headers += k + extension(op, rdv, b)
	switch { // one that is cut off is none
	case op.HasAtomic():
		m.atomic, _, _ = parsed(wire.ParseAtomic(b))
	case rdv:
		m.lent, _, _ = parsed(wire.ParseRendezvous(b))
	}
	return m
}

// parsed turns the result of a parse function into a pointer to the header, nil if there is
// none.
func parsed[H any](h H, n int, err error) (*H, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return &h, n, nil
}

// msgID returns the message of a packet, if its headers name one.
func (m *message) msgID() (uint16, bool) {
	switch {
	case m.std != nil:
		return m.std.MsgID, true
	case m.rsp != nil:
		return m.rsp.MsgID, true
	case m.rdata != nil:
		return m.rdata.ReadMsgID, true
	}
	return 0, false
}

// psn returns the packet sequence number of a packet that has one: requests and the control
// packets that consume one.
func (m *message) psn() (wire.PSN, bool) {
	switch {
	case m.req != nil:
		return m.req.PSN, true
	case m.cp != nil:
		switch m.cp.Ctl {
		case wire.CtlNoop, wire.CtlClose, wire.CtlCloseReq, wire.CtlNegotiation:
			return m.cp.PSN, true
		}
	}
	return 0, false
}

// ids returns the PDCIDs in a packet, of its sender and of its receiver. One that is
// missing, as in a SYN, is 0.
func (m *message) ids() (spdcid, dpdcid uint16) {
	switch {
	case m.req != nil:
		return m.req.SPDCID, m.req.DPDCID
	case m.ack != nil:
		return m.ack.SPDCID, m.ack.DPDCID
	case m.nack != nil:
		return m.nack.SPDCID, m.nack.DPDCID
	case m.cp != nil:
		return m.cp.SPDCID, m.cp.DPDCID
	}
	return 0, 0
}
