package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Generating ACKs (UE 3.5.12). All ACKs of one turn coalesce into one, except those with
// guaranteed responses, which are sent one by one.

// AckOwed reports whether NextAck has something.
func (p *PDC) AckOwed() bool {
	rx := p.rx
	return rx != nil && (p.ackReady() || rx.due > 0 || rx.nprobe > 0 || len(rx.once) > 0)
}

// ackReady reports whether an ACK is due and may leave. It waits while early packets are
// being executed: one ACK at their end says more (at 30 % loss that saves 7 % of the time).
func (p *PDC) ackReady() bool { return p.rx.ackDue && (p.mode != wire.ROD || !p.rx.earlyReady()) }

// OneAck reports whether NextAck has exactly one ACK, without a guaranteed response or PROBE
// answer.
func (p *PDC) OneAck() bool {
	rx := p.rx
	return rx != nil && p.ackReady() && rx.due == 0 && rx.nprobe == 0 && len(rx.once) == 0
}

// AckTo is the destination of ACKs: the port and path that the latest packet came by, so
// that the entropy value is echoed (S-PKT-03).
func (p *PDC) AckTo() (remote *netip.AddrPort, path uint32) { return &p.rx.remote, p.rx.path }

// AtRest reports whether the PDC has nothing in flight, stored or due.
func (p *PDC) AtRest() bool {
	rx := p.rx
	return p.tx.una == p.tx.nxt && !p.CtlOwed() && (rx == nil || (!rx.ackDue && rx.nprobe == 0 && len(rx.once) == 0 && len(rx.stored) == 0 && rx.early.n() == 0))
}

// AckLen is how many bytes NextAck will append.
func (p *PDC) AckLen() int {
	if rx := p.rx; rx.due > 0 || rx.nprobe > 0 {
		return p.otherAckLen()
	}
	return wire.AckCCLen + wire.RspLen
}

// otherAckLen is AckLen where a stored response or a PROBE is to be answered.
func (p *PDC) otherAckLen() int {
	switch rx := p.rx; {
	case rx.due > 0:
		return wire.AckCCLen + rx.firstDue().rspLen()
	case len(rx.once) == 0:
		return wire.AckCCLen
	}
	return wire.AckCCLen + wire.RspLen
}

// rspLen is the length of the response in an ACK, with its data.
func (s *answer) rspLen() int {
	switch {
	case s.n == 0:
		return wire.RspLen
	case s.small:
		return wire.RspDataSmallLen + int(s.n)
	}
	return wire.RspDataLen + int(s.n)
}

// OweAck makes an ACK due for received packets that asked for none.
func (p *PDC) OweAck() {
	if rx := p.rx; rx != nil && rx.ackBytes != 0 && !rx.ackDue {
		rx.ackDue, rx.ackWhy = true, CauseAckLast
		p.oweAck()
	}
}

// NextAck appends the next due ACK to b, with its response. The caller must check AckOwed
// first.
func (p *PDC) NextAck(now time.Duration, b []byte) []byte {
	t, rx := p.t, p.rx
	switch {
	case rx.due > 0:
		s := rx.nextDue()
		if t.Cause = CauseGtd; s.late {
			t.Cause = CauseGtdAgain
		}
		return p.appendAck(b, s, 0, wire.ReqClear)
	case len(rx.once) > 0:
		t.Cause = CauseBehind
		b = p.appendAck(b, &rx.once[rx.onceHead], 0, wire.ReqNone)
		if rx.onceHead++; rx.onceHead == len(rx.once) {
			rx.once, rx.onceHead = rx.once[:0], 0
		}
		return b
	case rx.nprobe > 0:
		t.Cause = CauseAckProbe
		return p.answerProbe(b)
	case p.ackReady():
		rx.ackDue, rx.ackBytes, t.Cause = false, 0, rx.ackWhy
		tr := &rx.trig
		if cack := wire.PSN(rx.win.Base()) - 1; tr.has && p.plain(&tr.answer, cack) {
			return wire.AppendPlain(b, cack, p.id, p.remoteID, t.mpr, rx.nscc(&tr.answer, now-tr.at, 0), &tr.rsp)
		} else if tr.has {
			b = p.appendAck(b, &tr.answer, now-tr.at, wire.ReqNone)
		} else {
			// Nothing new was executed: name the highest PSN below the window.
			b = p.appendAck(b, &answer{psn: wire.PSN(rx.win.Base()) - 1, late: true, ce: tr.ce}, 0, wire.ReqNone)
		}
		tr.ce = false
		return b
	}
	panic("BUG: pds: NextAck of a PDC that owes none")
}

// nextDue returns the first guaranteed response that is due, and marks it sent.
func (rx *rxDir) nextDue() *answer {
	s := rx.firstDue()
	s.due = false
	rx.due--
	return s
}

// firstDue returns the first guaranteed response that is due.
func (rx *rxDir) firstDue() *answer {
	for i := rx.head; i < len(rx.stored); i++ {
		if s := &rx.stored[i]; s.due {
			return s
		}
	}
	panic("BUG: pds: a due response is counted but not found")
}

// answerProbe removes the oldest PROBE and appends its answer.
func (p *PDC) answerProbe(b []byte) []byte {
	rx := p.rx
	pr := rx.probes[0]
	rx.nprobe--
	copy(rx.probes[:], rx.probes[1:])
	var a wire.Ack
	p.fillAck(&a, &answer{late: pr.late}, 0)
	a.Flags |= wire.AckFlagP
	a.ProbeOpaque, a.AckPSNOff = pr.id, 0
	a.Next = wire.NextNone
	if d := pr.base.Sub(a.CACK); d >= -int32(rx.win.Size()) && d <= int32(rx.win.Size()) {
		a.SACKOff = int16(d)
		a.SACK = p.bitmap(pr.base)
	}
	return a.Append(b)
}

// bitmap is the SACK bitmap from base on: received and, on ROD, early PSNs.
func (p *PDC) bitmap(base wire.PSN) uint64 {
	rx := p.rx
	w := rx.win.Word(uint32(base))
	if d := wire.PSN(rx.win.Base()).Sub(base); d > 0 {
		if d >= 64 {
			return ^uint64(0)
		}
		w |= 1<<uint(d) - 1 // everything below the window was received
	}
	for _, k := range rx.early.list()[rx.early.from(base):] {
		d := k.psn.Sub(base)
		if d >= 64 {
			break
		}
		w |= 1 << uint(d)
	}
	return w
}

// appendAck appends the ACK that names the packet of s, with its response. service is how
// long this side took to answer.
func (p *PDC) appendAck(b []byte, s *answer, service time.Duration, req wire.AckReq) []byte {
	rx := p.rx
	cack := wire.PSN(rx.win.Base()) - 1
	if req == wire.ReqNone && p.plain(s, cack) {
		return wire.AppendPlain(b, cack, p.id, p.remoteID, p.t.mpr, rx.nscc(s, service, 0), &s.rsp)
	}
	var a wire.Ack
	p.fillAck(&a, s, service)
	if req != wire.ReqNone {
		a.Req = req
	}
	if s.n == 0 {
		return s.rsp.Append(a.Append(b))
	}
	if s.small { // S-RMA-71
		a.Next = wire.NextRspDataSmall
		h := wire.RspDataSmall{List: s.rsp.List, Opcode: wire.RspWithData, RC: s.rsp.RC, JobID: s.rsp.JobID, PayloadLen: uint16(s.n), ReqPSN: s.psn}
		return append(h.Append(a.Append(b)), s.data[:s.n]...)
	}
	a.Next = wire.NextRspData
	h := wire.RspData{List: s.rsp.List, Opcode: wire.RspWithData, RC: s.rsp.RC, MsgID: s.rsp.MsgID, ReadMsgID: s.rsp.MsgID, JobID: s.rsp.JobID,
		PayloadLen: uint16(s.n), ModLen: s.rsp.ModLen}
	return append(h.Append(a.Append(b)), s.data[:s.n]...)
}

// plain reports whether the ACK of s is a wire.PlainAck.
func (p *PDC) plain(s *answer, cack wire.PSN) bool {
	return s.psn == cack && p.rx.max == cack && !s.retx && !s.ce && p.state != CloseRequested && (p.rx.proofAt == 0 || !p.Unproven())
}

// fillAck fills in the header of the ACK of s.
func (p *PDC) fillAck(a *wire.Ack, s *answer, service time.Duration) {
	rx := p.rx
	cack := wire.PSN(rx.win.Base()) - 1
	a.Type, a.Next, a.CACK, a.AckPSNOff, a.SPDCID, a.DPDCID, a.MPR = wire.TypeAckCC, wire.NextRsp, cack, int16(s.psn.Sub(cack)), p.id, p.remoteID, p.t.mpr
	if s.retx {
		a.Flags |= wire.AckFlagRETX
	}
	if s.ce {
		a.Flags |= wire.AckFlagM
	}
	switch {
	case p.state == CloseRequested:
		a.Req = wire.ReqClose
	case p.wantsProof():
		a.Req = wire.ReqClear
	}
	// SACK: successive ACKs sweep the window from CACK to the highest PSN.
	a.SACKOff = 1
	ooo := 0
	if rx.max.After(cack) {
		base := rx.sackCur
		if !base.After(cack) || base.After(rx.max) {
			base = cack + 1
		}
		a.SACKOff = int16(base.Sub(cack))
		a.SACK = p.bitmap(base)
		rx.sackCur = base.Add(64)
		ooo = min(rx.win.Count()+rx.early.n(), 0xfffe)
	}
	a.CCState = uint64(rx.nscc(s, service, uint16(ooo)))
}

// nscc is the congestion state that an ACK carries: service time, received bytes, packets
// out of order.
func (rx *rxDir) nscc(s *answer, service time.Duration, ooo uint16) wire.NSCC {
	st := min(uint64(max(service, 0))/128, 0xffff)
	if s.late {
		st = 0xffff // not a direct answer: the highest value says so
	}
	return wire.NewNSCC(uint16(st), uint32((rx.rcvdBytes+255)>>8), ooo)
}
