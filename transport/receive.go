package transport

import (
	"encoding/binary"
	"time"

	"github.com/uetkit/uetkit/transport/dgram"
	"github.com/uetkit/uetkit/transport/pds"
	"github.com/uetkit/uetkit/transport/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// One packet's life, wire to match: CRC, prologue, PDC, SES, response.

// Receive processes a received train; d is borrowed.
func (f *FEP) Receive(now time.Duration, d *dgram.Datagram) {
	f.now = now
	if f.notes != nil {
		f.notes.begin()
	}
	if f.ended {
		return
	}
	f.stats.RxTrains++
	f.stats.RxBytes += uint64(len(d.Data))
	if !d.Remote.IsValid() || d.Remote.Addr().Is4() != f.cfg.Local.Addr().Is4() {
		f.drop(DropSource)
		f.notes.dropped(d, DropSource)
		return
	}
	if d.Path < 0 || d.Path >= len(f.cfg.Paths) {
		d.Path = 0
	}
	ce := d.ECN() == dgram.CE
	if len(d.Data) == 0 {
		f.stats.RxPackets++
		f.drop(DropShort) // T30
		f.notes.dropped(d, DropShort)
		return
	}
	b, rest := d.Next(d.Data)
	for {
		if f.notes != nil {
			f.noted(now, d, b, ce)
		} else {
			f.packet(now, d, b, ce)
		}
		if len(rest) == 0 {
			return
		}
		b, rest = d.Next(rest)
	}
}

func (f *FEP) drop(r DropReason) { f.stats.Drops[r]++ }

// dropInvalid counts a packet whose header did not parse.
func (f *FEP) dropInvalid(err error) {
	if inv, ok := err.(*wire.Invalid); ok && inv.Field != "length" {
		f.drop(DropHeader)
		return
	}
	f.drop(DropShort)
}

// packet processes one datagram.
func (f *FEP) packet(now time.Duration, d *dgram.Datagram, b []byte, ce bool) {
	f.stats.RxPackets++
	size := len(b) + f.overhead
	var p *pds.PDC // of an ACK
	if f.sec != nil {
		if b = f.openPacket(now, d, b); b == nil {
			return
		}
	} else if len(b) < wire.ReqLen+f.trailer {
		if f.cut(d) {
			f.trimmed(now, d, b, ce)
			return
		}
		f.drop(DropShort)
		return
	}
	t := wire.Type(b[0] >> 3)
	if f.sec == nil && t == wire.TypeTSS {
		f.dropFrom(now, d, DropSecured)
		return
	}
	if f.sec == nil && f.trailer != 0 {
		if t == wire.TypeAckCC || t == wire.TypeAck {
			// The PDC of one of many peers is not in the cache: it is on its way
			// while the CRC is computed.
			p = f.pds.Lookup(wire.AckDPDCID(b))
		}
		n := len(b) - wire.CRCLen
		if wire.CRC(f.rxCRC.prefix(f, false, d, len(b)), b[:n]) != binary.BigEndian.Uint32(b[n:]) {
			if f.cut(d) {
				f.trimmed(now, d, b, ce)
				return
			}
			f.dropFrom(now, d, DropCRC)
			return
		}
		b = b[:n]
	}
	switch t {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		f.request(now, d, b, size, ce)
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		f.ackIn(now, d, b, p)
	case wire.TypeNack, wire.TypeNackCCX:
		n, _, err := wire.ParseNack(b)
		if err != nil {
			f.dropInvalid(err)
			return
		}
		if n.Flags&wire.NackFlagNT != 0 || n.Next != wire.NextNone {
			f.drop(DropHeader)
			return
		}
		f.pds.ReceiveNack(now, d.Remote, &n)
	case wire.TypeCP:
		c, _, err := wire.ParseCP(b)
		if err != nil {
			f.dropInvalid(err)
			return
		}
		f.pds.ReceiveCP(now, d.Remote, uint8(d.Path), &c)
	default:
		f.drop(DropType)
	}
}

// cut reports whether a train has the code point of those that a switch cut. It is
// asked only of packets that do not verify.
func (f *FEP) cut(d *dgram.Datagram) bool {
	c := &f.cfg.Classes
	return f.cfg.Trimming && (d.DSCP() == c.Trimmed || d.DSCP() == c.TrimmedLastHop)
}

// trimmed processes a packet of which a switch left the headers at most. Anybody
// may have sent it: all that it can do is to be answered by a NACK, which costs
// its target nothing and the source of the true one a resend.
func (f *FEP) trimmed(now time.Duration, d *dgram.Datagram, b []byte, ce bool) {
	f.stats.RxTrimmed++
	code := wire.NackTrimmed
	if d.DSCP() == f.cfg.Classes.TrimmedLastHop {
		code = wire.NackTrimmedLastHop
	}
	h := &f.reqRx
	// T27: where nobody has proved to be there the NACK is no longer than what it
	// answers.
	small := len(b) < wire.NackLen+f.trailer
	if _, err := h.Parse(b); err != nil || !f.pds.ReceiveTrimmed(now, d.Remote, uint8(d.Path), h, code, ce, small) {
		f.drop(DropTrimmed)
	}
}

// ackIn processes an ACK. p is its PDC if that was looked up already.
func (f *FEP) ackIn(now time.Duration, d *dgram.Datagram, b []byte, p *pds.PDC) {
	// The two headers live in the FEP: PDS hands them on through an interface,
	// and the stack would not hold them.
	a, rsp := &f.ackRx, &f.rspRx
	var n int
	var err error
	if n, err = a.Parse(b); err != nil {
		f.dropInvalid(err)
		return
	}
	f.stats.AcksRx++
	if p == nil {
		p = f.pds.Lookup(a.DPDCID)
	}
	switch a.Next {
	case wire.NextNone:
		f.pds.ReceiveAckOf(now, p, &d.Remote, a, nil)
		return
	case wire.NextRsp:
		if _, err = rsp.Parse(b[n:]); err != nil {
			f.dropInvalid(err)
			return
		}
	default:
		f.drop(DropNextHdr) // read data that nobody asked for
		return
	}
	p = f.pds.ReceiveAckOf(now, p, &d.Remote, a, rsp)
	if p != nil && rsp.Opcode == wire.RspResponse {
		// S-CPL-04: the result of a message whose packets are all answered, the
		// last of them by NO_RESPONSE, names no packet that is outstanding.
		f.ses.Response(p.Peer, rsp)
	}
}

// request processes a request: it goes to the message layer if it is new, and its
// response back to PDS.
func (f *FEP) request(now time.Duration, d *dgram.Datagram, b []byte, size int, ce bool) {
	h := &f.reqRx
	n, err := h.Parse(b)
	if err != nil {
		f.dropInvalid(err)
		return
	}
	body := b[n:]
	if len(body) < minSES(h.Next) {
		f.drop(DropShort)
		return
	}
	if h.Flags&wire.FlagSYN != 0 {
		if d.Remote == f.cfg.Local {
			// T28: sending to oneself is legal, but only what this side sent.
			if !f.peers[f.byAddr[d.Remote]].used {
				f.drop(DropSelf)
				return
			}
		}
		if f.cfg.KnownPeersOnly {
			if id, ok := f.byAddr[d.Remote]; !ok || !f.peers[id].known {
				f.drop(DropUnknown)
				return
			}
		}
	}
	p, v := f.pds.ReceiveReq(now, d.Remote, uint8(d.Path), h, ce)
	f.stats.RxData++
	if p == nil {
		return
	}
	if p.Peer == 0 {
		if !f.newSource(p) {
			return
		}
	}
	if v == pds.Drop {
		return
	}
	m := &f.metaRx
	m.PSN, m.Size, m.Len, m.CE = h.PSN, size, len(body), ce
	m.AR, m.Retx = h.Flags&(wire.FlagAR|wire.FlagSYN) != 0, h.Flags&wire.FlagRETX != 0
	if v == pds.Hold {
		p.Hold(now, m, h.Next, body)
		return
	}
	res := f.ses.Request(ses.Source{Peer: p.Peer, PDC: p.Slot, Later: p.Later(m.PSN), Now: now}, h.Next, body)
	switch {
	case res.Nack != 0:
		p.Refuse(now, m.PSN, res.Nack)
		return
	case res.Bad:
		f.drop(DropHeader)
		return
	}
	p.Accept(now, m, &res.Rsp, res.Gtd)
	if p.Mode() == wire.ROD {
		f.release(now, p)
	}
}

// release executes the ROD packets that waited for the one before them.
func (f *FEP) release(now time.Duration, p *pds.PDC) {
	for {
		m, next, body, ok := p.NextHeld()
		if !ok {
			return
		}
		res := f.ses.Request(ses.Source{Peer: p.Peer, PDC: p.Slot, Now: now}, next, body)
		switch {
		case res.Bad:
			f.drop(DropHeader)
			p.HeldDone()
			return
		case res.Nack != 0:
			p.HeldLater(now, res.Nack)
			return
		}
		p.Accept(now, &m, &res.Rsp, res.Gtd)
		p.HeldDone()
	}
}

// newSource gives a PDC that a source opened its place.
func (f *FEP) newSource(p *pds.PDC) bool {
	id, err := f.intern(p.Remote())
	if err != nil {
		f.drop(DropSource)
		return false
	}
	p.SetPeer(uint32(id), f.peers[id].known)
	f.peers[id].pdcs++
	f.adopt(p)
	return true
}

// minSES is the shortest SES header of each kind of request.
func minSES(n wire.NextHdr) int {
	switch n {
	case wire.NextReqSmall:
		return wire.ReqSmallLen
	case wire.NextReqMedium:
		return wire.ReqMediumLen
	case wire.NextReqStd:
		return wire.ReqStdLen
	case wire.NextRspData:
		return wire.RspDataLen
	case wire.NextRspDataSmall:
		return wire.RspDataSmallLen
	}
	return 0
}
