package transport

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file follows a packet from the wire to its match: CRC, prologue, PDC, SES, response.

// An intake is the packet that is being processed. It is a field of the FEP because PDS
// passes headers through an interface, which would move local variables to the heap (see
// also wire.extend).
type intake struct {
	in    pds.Arrival
	meta  pds.Meta
	src   ses.Source // of the request that is executed
	rsp   wire.Rsp
	outer outer // of the train that the packet came in; remote only if seen is it
	main  outer // what outer would be at the main port; of sealed packets at path ports
	// seen is the source of the train: in.From, but with Standard encapsulation outer.remote, as there
	// in.From has another port.
	seen *netip.AddrPort
	req  wire.Req
	ack  wire.Ack
	read wire.RspData // of an ACK with read data
	data []byte       // behind it
}

// Receive processes a received train. It borrows d.
func (f *FEP) Receive(now time.Duration, d *dgram.Datagram) {
	f.now = now
	if f.watched {
		if f.suspected(d) {
			f.receiveSuspect(now, d)
			return
		}
		if f.notes != nil {
			f.notes.begin()
		}
		if f.ended {
			return
		}
	}
	f.rx.in.Now, f.rx.in.CE = now, d.ECN() == dgram.CE
	f.stats.RxTrains++
	f.stats.RxBytes += uint64(len(d.Data))
	// The source is checked again only if the train did not come the same way as the one
	// before.
	var p *pds.PDC // that the first packet names, if it was looked up
	if f.rx.outer.path != d.Path || *f.rx.seen != d.Remote {
		if p = f.familiar(d); p == nil {
			if f.own(d) {
				f.drop(DropSelf)
				f.notes.dropped(d, DropSelf)
				return
			}
			if !f.source(d) {
				f.drop(DropSource)
				f.notes.dropped(d, DropSource)
				return
			}
		}
	}
	if len(d.Data) == 0 {
		f.stats.RxPackets++
		f.drop(DropShort) // T30
		f.notes.dropped(d, DropShort)
		return
	}
	if f.notes != nil {
		for rest := d.Data; len(rest) > 0; {
			var b []byte
			b, rest = d.Next(rest)
			f.noted(d, b)
		}
		return
	}
	seg := d.Seg
	if seg <= 0 {
		seg = len(d.Data)
	}
	rest := d.Data
	for len(rest) > seg {
		f.packet(d, rest[:seg:seg], p)
		p, rest = nil, rest[seg:]
	}
	f.packet(d, rest, p)
}

// own reports whether a train names this FEP as its source and cannot be of it (T28). A FEP may
// send to itself; until it does, whatever comes from its own address is forged.
func (f *FEP) own(d *dgram.Datagram) bool {
	if d.Remote.Addr() != f.cfg.Local.Addr() || !f.form.standard && !slices.Contains(f.local, d.Remote) {
		return false
	}
	for _, a := range f.local {
		if f.peers[f.book.byAddr[a]].used {
			return false
		}
	}
	return true
}

// source sets address, path and outer of the arrival to those of the train. It returns
// false for a source address that cannot be answered.
func (f *FEP) source(d *dgram.Datagram) bool {
	if a := d.Remote.Addr(); !a.IsValid() || a.IsUnspecified() || a.Is4In6() || d.Remote.Port() == 0 || a.Is4() != f.cfg.Local.Addr().Is4() {
		return false
	}
	if d.Path < 0 || d.Path >= len(f.cfg.Paths) {
		d.Path = 0
	}
	if f.form.standard {
		d.Path = 0 // nothing arrives at another port
	}
	f.rx.outer.become(&d.Remote, d.Path, &d.Remote, &f.local[d.Path])
	f.rx.in.From, f.rx.in.Path = d.Remote, uint32(d.Path)
	if f.form.standard {
		// S-PDC-04: the peer is an IP address; the source port is the entropy value, which
		// answers repeat.
		f.rx.in.From = netip.AddrPortFrom(d.Remote.Addr(), wire.Port)
		f.rx.in.Path = uint32(f.echo(d.Remote.Port()))
	}
	return true
}

// echo returns the path of answers that repeat an entropy value: the index of the port if it
// is one of Config.Paths.
func (f *FEP) echo(ev uint16) int {
	if i := slices.Index(f.cfg.Paths, ev); i >= 0 {
		return i
	}
	return dgram.Echo(ev)
}

// familiar is a fast path of source for a train from the peer of the PDC that its first
// packet names: it uses the CRC prefix that the PDC keeps instead of computing one. A
// forged PDCID gains nothing, because address and path are those of the train. It returns that
// PDC, nil if source is needed.
func (f *FEP) familiar(d *dgram.Datagram) *pds.PDC {
	b := d.Data
	if len(b) < wire.ReqLen || !f.form.crcOnly || d.Path != 0 {
		return nil
	}
	p := f.pds.Lookup(wire.DPDCID(b))
	if p == nil || p.Peer == 0 || *p.Remote() != d.Remote {
		return nil
	}
	f.rx.outer.path, f.rx.outer.prefix = 0, p.From
	*f.rx.seen, f.rx.in.Path = d.Remote, 0
	if f.form.standard {
		f.rx.in.From = d.Remote
	}
	return p
}

// drop counts a dropped packet.
func (f *FEP) drop(r DropReason) { f.stats.Drops[r]++ }

// dropInvalid counts a packet whose header did not parse.
func (f *FEP) dropInvalid(err error) {
	if inv, ok := err.(*wire.Invalid); ok && inv.Field != "length" {
		f.drop(DropHeader)
		return
	}
	f.drop(DropShort)
}

// packet processes one datagram of a train. p is the PDC that it names, nil if that was not looked up.
func (f *FEP) packet(d *dgram.Datagram, b []byte, p *pds.PDC) {
	f.stats.RxPackets++
	f.rx.meta.Size = len(b) + f.form.overhead // used if it is a request
	if n := len(b) - wire.CRCLen; f.form.crcOnly && n >= wire.ReqLen {
		if t := wire.Type(b[0] >> 3); p == nil && (t == wire.TypeAckCC || t == wire.TypeAck) {
			// With many peers the PDC is not in the cache. This early look fetches it while
			// the CRC is computed.
			p = f.pds.Lookup(wire.DPDCID(b))
		}
		if wire.CRC(f.rx.outer.prefix.CRC(len(b)), b[:n]) != binary.BigEndian.Uint32(b[n:]) {
			if !f.aside(d, b) {
				f.damaged(d, b)
				return
			}
		}
		b = b[:n]
	} else if b = f.unwrap(d, b); b == nil {
		return
	}
	if wire.IsPlainRequest(b) {
		h := (*wire.PlainReq)(b)
		if p := f.pds.ReceiveNext(&f.rx.in, h); p != nil {
			f.stats.RxData++
			m := &f.rx.meta
			m.PSN, m.Len, m.Next, m.AR, m.Retx, m.CE, m.Late = h.PSN(), len(b)-wire.ReqLen, true, h.AR(), false, f.rx.in.CE, f.rx.in.Paused
			m.Waited = f.rx.in.Waited
			f.execute(p, wire.NextReqStd, b[wire.ReqLen:])
			return
		}
	} else if wire.IsPlain(b) {
		h := (*wire.PlainAck)(b)
		if p == nil {
			p = f.pds.Lookup(h.DPDCID())
		}
		rsp := &f.rx.rsp
		if _, err := rsp.Parse(h.Rsp()); err == nil {
			if msg, ok := f.pds.ReceivePlain(&f.rx.in, p, h); ok {
				f.stats.AcksRx++
				f.heed()
				if rsp.Opcode == wire.RspDefault {
					f.ses.Answered(ses.Handle(msg), rsp)
				} else {
					if rsp.Opcode == wire.RspNone {
						p.Promised(f.now, h.CACK(), msg)
					}
					f.answered(p, ses.Handle(msg), rsp)
					f.responded(p, h.CACK(), rsp)
					if f.ses.Halted {
						f.ses.Halt()
					}
				}
				return
			}
		}
	}
	f.dispatch(d, b, p)
}

// unwrap is packet's part for a packet that is sealed, has no CRC or is too short. It
// returns the PDS packet inside, nil if it was dropped.
func (f *FEP) unwrap(d *dgram.Datagram, b []byte) []byte {
	switch {
	case f.sec != nil:
		return f.openPacket(d, b)
	case len(b) >= wire.ReqLen+f.form.trailer:
		return b
	case !f.trimmed(d, b):
		f.drop(DropShort)
	}
	return nil
}

// damaged processes a packet with a wrong CRC.
func (f *FEP) damaged(d *dgram.Datagram, b []byte) {
	switch {
	case wire.Type(b[0]>>3) == wire.TypeTSS:
		f.dropFrom(DropSecured)
	case !f.trimmed(d, b):
		f.dropFrom(DropCRC)
	}
}

// dispatch processes any packet that is opened and verified, without head and trailer. p is
// the PDC of an ACK if it was looked up already.
func (f *FEP) dispatch(d *dgram.Datagram, b []byte, p *pds.PDC) {
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		f.request(d, b)
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		f.ackIn(d, b, p)
	case wire.TypeNack, wire.TypeNackCCX:
		n, _, err := wire.ParseNack(b)
		if err != nil {
			f.dropInvalid(err)
			return
		}
		switch {
		case n.Next != wire.NextNone:
			f.drop(DropHeader)
			return
		case n.Flags&wire.NackFlagNT != 0:
			f.idemRefused(&n)
			return
		}
		f.nackIn(&n)
	case wire.TypeCP:
		c, _, err := wire.ParseCP(b)
		if err != nil {
			f.dropInvalid(err)
			return
		}
		f.rx.in.Main = f.heraldOf(&c)
		if c.Flags&wire.FlagSYN != 0 && !f.maySYN() {
			f.rx.in.Main = 0
			return
		}
		f.rx.in.Small = false
		p := f.pds.ReceiveCP(&f.rx.in, &c)
		f.rx.in.Main = 0
		f.heed()
		if p != nil && p.Peer == 0 && !f.newSource(p) {
			return
		}
		if p == nil {
			p = f.pds.Lookup(c.DPDCID)
		}
		if p != nil && p.EarlyReady() && !f.lanes[p.Slot].early {
			f.release(f.now, p) // the control packet has a PSN, after which early packets may be next
		}
	case wire.TypeTSS:
		if f.sec == nil {
			f.dropFrom(DropSecured)
			return
		}
		f.drop(DropType) // sealed twice
	case wire.TypeUUDReq:
		f.datagram(b)
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		f.idempotent(b)
	default:
		f.drop(DropType)
	}
}

// cut reports whether a train has a code point that only trimming switches give. It is
// asked only about packets that do not verify.
func (f *FEP) cut(d *dgram.Datagram) bool {
	c := &f.cfg.Classes
	return f.cfg.Trimming && (d.DSCP() == c.Trimmed || d.DSCP() == c.TrimmedLastHop)
}

// trimmed processes a packet that a switch trimmed to its headers. It returns false for a
// packet of a train that no switch trimmed. Anybody can forge such a packet, so its only
// effect is a NACK, which costs the target nothing, and the source of the genuine packet
// one resend.
func (f *FEP) trimmed(d *dgram.Datagram, b []byte) bool {
	if !f.cut(d) {
		return false
	}
	f.stats.RxTrimmed++
	code := wire.NackTrimmed
	if d.DSCP() == f.cfg.Classes.TrimmedLastHop {
		code = wire.NackTrimmedLastHop
	}
	h := &f.rx.req
	// T27: the NACK to a source that is not proven is no longer than the packet that it
	// answers.
	small := len(b) < wire.NackLen+f.form.trailer
	if _, err := h.Parse(b); err != nil || !f.pds.ReceiveTrimmed(&f.rx.in, h, code, small) {
		f.drop(DropTrimmed)
	}
	f.heed()
	return true
}

// ackIn processes an ACK. p is its PDC if it was looked up already.
func (f *FEP) ackIn(d *dgram.Datagram, b []byte, p *pds.PDC) {
	a := &f.rx.ack
	n, err := a.Parse(b)
	if err != nil {
		f.dropInvalid(err)
		return
	}
	f.stats.AcksRx++
	if p == nil {
		p = f.pds.Lookup(a.DPDCID)
	}
	if p == nil || !f.unsure(p) {
		f.ackOf(p, b[n:])
		return
	}
	silent := p.Silences() > 0
	if f.ackOf(p, b[n:]); !f.unsure(p) {
		f.foundAt(p, silent)
	}
}

// ackOf processes the ACK f.rx.ack of the PDC p, nil if there is none. b is what follows its header.
func (f *FEP) ackOf(p *pds.PDC, b []byte) {
	a, rsp := &f.rx.ack, &f.rx.rsp
	switch a.Next {
	case wire.NextNone:
		f.pds.ReceiveAckOf(&f.rx.in, p, a, nil)
		f.heed()
		return
	case wire.NextRsp:
		if _, err := rsp.Parse(b); err != nil {
			f.dropInvalid(err)
			return
		}
	case wire.NextRspData, wire.NextRspDataSmall:
		if p == nil {
			f.pds.ReceiveAckOf(&f.rx.in, nil, a, nil) // of a PDC that is gone
			return
		}
		if p.Initiator() && f.lanes[p.Slot].asked && !p.AnswersCtl(a) {
			f.readAck(p, a, b)
			return
		}
		fallthrough
	default:
		if p == nil || !p.AnswersCtl(a) {
			f.drop(DropNextHdr) // for example read data that this side never asked for
			return
		}
		// S-ACK-12: a control packet has no response, whatever else the ACK carries.
		a.Next = wire.NextNone
		f.pds.ReceiveAckOf(&f.rx.in, p, a, nil)
		f.heed()
		return
	}
	p = f.pds.ReceiveAckOf(&f.rx.in, p, a, rsp)
	f.heed()
	if p != nil {
		f.responded(p, a.AckPSN(), rsp)
	}
}

// nackIn processes the NACK to a packet of a PDC.
func (f *FEP) nackIn(n *wire.Nack) {
	if p := f.pds.Lookup(n.DPDCID); p != nil && p.Silences() > 0 && f.unsure(p) {
		if f.pds.ReceiveNack(&f.rx.in, n); p.Silences() == 0 {
			f.foundAt(p, true) // it has the Start_PSN of the target
		}
	} else {
		f.pds.ReceiveNack(&f.rx.in, n)
	}
	f.heed()
}

// readAck processes an ACK with read data (S-RMA-12), which counts if the ACK answers the packet that
// asked for it.
func (f *FEP) readAck(p *pds.PDC, a *wire.Ack, b []byte) {
	var h wire.RspData
	var n int
	var err error
	if a.Next == wire.NextRspDataSmall {
		var small wire.RspDataSmall
		if small, n, err = wire.ParseRspDataSmall(b); err == nil && small.ReqPSN != a.AckPSN() {
			f.drop(DropHeader)
			return
		}
		h = f.ses.SmallData(p.Slot, &small)
	} else {
		h, n, err = wire.ParseRspData(b)
	}
	if err != nil {
		f.dropInvalid(err)
		return
	}
	f.rx.read, f.rx.data = h, b[n:]
	f.rx.rsp = wire.Rsp{List: h.List, Opcode: wire.RspWithData, RC: h.RC, MsgID: h.ReadMsgID, JobID: h.JobID, ModLen: h.ModLen}
	f.pds.ReceiveAckOf(&f.rx.in, p, a, &f.rx.rsp)
	f.heed()
	f.rx.data = nil
}

// responded passes a result that belongs to no outstanding packet to SES. S-CPL-04: if
// NO_RESPONSE answered the last packet of a message, the result of the message comes later,
// in an ACK that names no outstanding packet.
// psn is the packet that the ACK names.
func (f *FEP) responded(p *pds.PDC, psn wire.PSN, rsp *wire.Rsp) {
	if rsp.Opcode != wire.RspResponse {
		return
	}
	if rsp.MsgID == 0 { // S-RSP-04
		if msg, ok := p.PromisedTo(psn); ok {
			f.ses.ResponseTo(ses.Handle(msg), rsp)
			return
		}
	}
	f.ses.Response(p.Peer, rsp)
}

// request processes a request. A new one goes to the message layer, whose response goes
// back to PDS.
func (f *FEP) request(d *dgram.Datagram, b []byte) {
	now, m := f.now, &f.rx.meta // packet has set its Size
	m.CE, m.Late, m.Waited = f.rx.in.CE, f.rx.in.Paused, f.rx.in.Waited
	h := &f.rx.req
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
	if h.Flags&wire.FlagSYN != 0 && !f.maySYN() {
		return
	}
	f.rx.in.Small = len(b) < wire.NackLen
	p, v := f.pds.ReceiveReq(&f.rx.in, h)
	f.heed()
	f.stats.RxData++
	if p == nil {
		return
	}
	if p.Peer == 0 {
		if !f.newSource(p) {
			return
		}
	}
	if f.credit != nil && h.Len() == wire.ReqCCLen {
		f.demanded(p, h, m.Size, v == pds.Drop)
	}
	if v == pds.Drop {
		return
	}
	m.PSN, m.Len, m.Next = h.PSN, len(body), false
	m.AR, m.Retx = h.Flags&(wire.FlagAR|wire.FlagSYN) != 0, h.Flags&wire.FlagRETX != 0
	if v == pds.Keep {
		if !p.KeepEarly(now, m, h.Next, body) {
			f.refusedOne(p, m.Size)
		}
		f.heed()
		return
	}
	f.execute(p, h.Next, body)
}

// maySYN reports whether a packet with SYN may come from the source that it has. If not it
// counts the drop.
func (f *FEP) maySYN() bool {
	if f.cfg.Datagram {
		f.drop(DropType)
		return false
	}
	return f.mayTalk()
}

// mayTalk reports whether messages from this source are taken. If not it counts the drop.
func (f *FEP) mayTalk() bool {
	if f.cfg.KnownPeersOnly {
		in := &f.rx.in
		id, ok := f.book.byAddr[in.From]
		if in.Main != 0 {
			// In clear any process of that host could name the port of a peer.
			id, ok = f.book.byAddr[netip.AddrPortFrom(in.From.Addr(), in.Main)]
			ok = ok && (f.sec != nil || f.peers[id].hasPath(in.From.Port()))
		}
		if !ok || !f.peers[id].known {
			f.drop(DropUnknown)
			return false
		}
	}
	return true
}

// execute passes a request to the message layer, and the response to PDS. f.rx.meta must be
// filled.
func (f *FEP) execute(p *pds.PDC, next wire.NextHdr, body []byte) {
	now, m := f.now, &f.rx.meta
	// Assigned field by field, because the compiler builds a literal on the stack.
	src := &f.rx.src
	src.Peer, src.PDC, src.Now, src.Behind = p.Peer, p.Slot, now, 0
	src.Later, src.First, src.Unproven, src.Ordered = false, false, false, false
	if !m.Next { // the next packet is of a RUD PDC of a source that is proven, and none before it is missing
		src.First, src.Unproven, src.Ordered = p.First(m.PSN), p.Unproven(), p.Mode() == wire.ROD
		if p.Later(m.PSN) {
			src.Later, src.Behind = true, p.Behind(m.PSN)
		}
	}
	if next != wire.NextReqStd {
		src.PSN, src.Most = m.PSN, uint32(f.peers[p.Peer].mtu)
	}
	var res *ses.Result
	if src.Ordered {
		res = f.asked(p, m.PSN, src, next, body)
	} else {
		res = f.ses.Request(src, next, body)
	}
	switch {
	case res.Nack != 0:
		if res = f.turnedAway(p, m, res); res == nil {
			return
		}
	case res.Bad:
		f.drop(DropHeader)
		return
	}
	owes := p.Accept(now, m, &res.Rsp, res.Gtd)
	if res.Rsp.Opcode == wire.RspWithData {
		p.AddData(m.PSN, res.Data, res.Small)
		f.todo.flush = true // who asked waits for the data: the ACK does not wait for company
	}
	if owes {
		f.oweAck(p)
	}
	f.heed()
	if f.ses.OwesReturns() {
		f.queueReturns()
	}
	if p.Initiator() {
		f.cameBack(p)
	}
	f.hear(PeerID(p.Peer))
	if p.Mode() == wire.ROD {
		f.release(now, p)
	}
}

// turnedAway refuses a packet, and returns nil, or returns the answer by which it is turned away
// because too many refused ones stand in the window.
func (f *FEP) turnedAway(p *pds.PDC, m *pds.Meta, res *ses.Result) *ses.Result {
	nack := res.Nack
	if res.NoRoom && p.TurnsAway(f.now, m.PSN) {
		if res = f.ses.TurnAway(); res != nil {
			return res
		}
	}
	p.Refuse(f.now, m.PSN, nack)
	f.refusedOne(p, m.Size)
	return nil
}

// asked passes a request of a ROD PDC to the message layer, unless its sender has taken it back with a packet before
// it, and returns the answer.
func (f *FEP) asked(p *pds.PDC, psn wire.PSN, src *ses.Source, next wire.NextHdr, body []byte) *ses.Result {
	if rsp := p.TakenBack(psn); rsp != nil {
		if res := f.ses.TakenBack(rsp, next, body); res != nil {
			return res
		}
	}
	res := f.ses.Request(src, next, body)
	if res.Gtd && res.Rsp.RC == wire.RCUnsupportedOp {
		if n := ses.VoidBehind(next, body); n != 0 {
			p.TakeBack(psn.Add(n), &res.Rsp)
		}
	}
	return res
}

// quantum is the number of early packets of a PDC that are executed before other PDCs get
// their turn. It is the capacity of a train.
const quantum = dgram.MaxSegments

// release executes early ROD packets that are next in order: a quantum now, the rest by
// Advance.
func (f *FEP) release(now time.Duration, p *pds.PDC) {
	for n := 0; n < quantum && f.releaseOne(now, p); n++ {
	}
	ln := &f.lanes[p.Slot]
	switch {
	case !p.EarlyReady():
		if p.AckOwed() {
			f.oweAck(p) // the ACK waited for the last early packet
		}
	case !ln.early:
		ln.early = true
		f.todo.early.push(p.Slot)
		f.todo.earlyAt = now + 1
	}
}

// releaseOne executes the next early packet and reports whether there was one.
func (f *FEP) releaseOne(now time.Duration, p *pds.PDC) bool {
	m, next, body, ok := p.NextEarly()
	if !ok {
		return false
	}
	res := f.asked(p, m.PSN, &ses.Source{Peer: p.Peer, PDC: p.Slot, Unproven: p.Unproven(), Ordered: true, Now: now, PSN: m.PSN, Most: uint32(f.peers[p.Peer].mtu)}, next, body)
	switch {
	case res.Bad:
		f.drop(DropHeader)
		p.EarlyDone()
		return false
	case res.Nack != 0:
		p.EarlyRefused(now, res.Nack)
		f.refusedOne(p, m.Size)
		return false
	}
	owes := p.Accept(now, &m, &res.Rsp, res.Gtd)
	if res.Rsp.Opcode == wire.RspWithData {
		p.AddData(m.PSN, res.Data, res.Small)
		f.todo.flush = true // as in execute
	}
	if owes {
		f.oweAck(p)
	}
	f.heed()
	p.EarlyDone()
	if f.ses.OwesReturns() {
		f.queueReturns()
	}
	if p.Initiator() {
		f.cameBack(p)
	}
	return true
}

// releaseMore executes one more quantum of each PDC that has early packets to execute.
func (f *FEP) releaseMore(now time.Duration) {
	f.todo.earlyAt = 0
	for n := f.todo.early.len(); n > 0; n-- {
		ln := &f.lanes[f.todo.early.pop()]
		ln.early = false
		if ln.pdc != nil {
			f.release(now, ln.pdc)
		}
	}
}

// newSource gives the PDC that a source opened its peer and its lane. It returns false if
// the source cannot be a peer.
func (f *FEP) newSource(p *pds.PDC) bool {
	id, err := f.intern(*p.Remote())
	if err != nil {
		f.drop(DropSource)
		return false
	}
	p.SetPeer(uint32(id), f.peers[id].known)
	f.peers[id].proven = f.peers[id].proven || !p.Unproven()
	f.peers[id].pdcs++
	f.adopt(p)
	return true
}

// minSES is the length of the shortest SES header after a PDS header of this kind.
func minSES(n wire.NextHdr) int {
	switch n {
	case wire.NextReqSmall:
		return wire.ReqSmallLen
	case wire.NextReqMedium:
		return wire.ReqMediumLen
	case wire.NextReqStd:
		return wire.ReqStdLen
	case wire.NextRsp:
		return wire.RspLen
	case wire.NextRspData:
		return wire.RspDataLen
	case wire.NextRspDataSmall:
		return wire.RspDataSmallLen
	}
	return 0
}
