package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Closing (UE 3.5.8): only the initiator closes a PDC; a target asks for it.

// Close begins the orderly end of a PDC that this side opened. No new message may start. The
// owner calls Drained when no message is open any more.
func (t *Table) Close(now time.Duration, p *PDC) {
	if p.state == Creating || p.state == Established {
		p.state = Quiesce
		t.arm(p, now+1)
	}
}

// Drained tells that the owner has no open message on a quiescing PDC.
func (t *Table) Drained(now time.Duration, p *PDC) {
	if p.state == Quiesce {
		p.state = AckWait
		p.closeBy = now + min(8*p.rto(), t.cfg.RTOMax) // the end of mayLackAck; arbitrary
		if p.rx != nil {
			p.rx.asked = false // closeIfFinished asks for a CLEAR
		}
		p.closeIfFinished(now)
	}
}

// closeIfFinished moves a closing PDC to its next state when all its packets are finished.
func (p *PDC) closeIfFinished(now time.Duration) {
	tx := &p.tx
	for tx.una != tx.nxt && tx.at(tx.una).state == pktFinished {
		tx.una++
	}
	if tx.lostHint.Before(tx.una) {
		tx.lostHint = tx.una
	}
	if tx.una != tx.nxt {
		return
	}
	p.becomeIdle(now)
	if p.state != AckWait {
		return
	}
	if until := p.mayLackAck(now); until != 0 {
		if !p.rx.asked {
			p.rx.asked = true
			p.t.sendCP(p, wire.CP{Ctl: wire.CtlClearReq, SPDCID: p.id, DPDCID: p.remoteID, Payload: uint32(p.rx.max)})
		}
		p.t.arm(p, until)
		return
	}
	if p.remoteID == 0 {
		p.t.closeDone(now, p) // nothing of it ever reached a target
		return
	}
	p.state = CloseAckWait
	p.closeBy = now + max(p.t.cfg.CloseReqTime, 20*p.rto())
	p.pushCtl(now, wire.CtlClose)
	p.t.arm(p, p.closeBy)
}

// closeRequested handles a target's request to close the PDC.
func (p *PDC) closeRequested(now time.Duration) {
	if p.initiator {
		p.t.Close(now, p)
		p.wake()
	}
}

// ctlAnswered handles the ACK of a control packet that consumed a PSN.
func (p *PDC) ctlAnswered(c wire.CtlType) {
	if c == wire.CtlClose && p.state == CloseAckWait {
		p.t.closeDone(p.lastHeard, p)
	}
}

func (t *Table) closeDone(now time.Duration, p *PDC) {
	t.failPackets(p, Reason{Why: WhyClosed})
	t.remove(now, p, Reason{Why: WhyClosed})
}

// idleCloseAt is when an idle PDC closes. An initiator closes after IdleClose. A target asks
// for the close after twice that: the initiator is dead or has lost its state.
func (p *PDC) idleCloseAt() time.Duration {
	switch {
	case p.state != Creating && p.state != Established || p.tx.una != p.tx.nxt:
		return never
	case p.initiator:
		return p.idleAt + p.t.cfg.IdleClose
	}
	return max(p.lastHeard, p.idleAt) + 2*p.t.cfg.IdleClose
}

func (p *PDC) closeIdle(now time.Duration) time.Duration {
	t, cfg := p.t, &p.t.cfg
	switch {
	case p.initiator && t.owner.Pending(p):
		return now + cfg.IdleClose
	case p.initiator && t.owner.Awaits(p):
		// The PDC is not idle: read data is to come, or the RESPONSE of a message (S-CPL-04).
		// The ACK of a NOOP shows that the target lives, and the NOOP shows the target that this side does.
		p.pushCtl(now, wire.CtlNoop)
		return now + cfg.IdleClose
	case p.initiator:
		t.Close(now, p)
		p.wake() // the owner answers with Drained
		return now + cfg.RTOInit
	case t.owner.InboundOpen(p):
		// A PDC with an incomplete message is not idle: PeerTimeout ends it.
		return now + 2*cfg.IdleClose
	}
	p.RequestClose(now)
	return now + cfg.RTOInit
}

// drainAt is when the owner of a quiescing PDC is asked whether it is drained: at every look
// at the PDC.
func (p *PDC) drainAt() time.Duration {
	if p.state != Quiesce && p.state != AckWait {
		return never
	}
	return 0
}

func (p *PDC) drain(now time.Duration) time.Duration {
	if p.state == AckWait {
		p.closeIfFinished(now)
		if until := p.mayLackAck(now); until != 0 && p.state == AckWait {
			return until
		}
		return never
	}
	p.wake()
	return now + p.t.cfg.RTOInit
}

// closeAt is when the close that this side asked for has taken too long.
func (p *PDC) closeAt() time.Duration {
	switch p.state {
	case CloseAckWait:
		return p.closeBy
	case CloseRequested:
		return 0 // endClosing extends closeBy while the initiator is heard
	}
	return never
}

func (p *PDC) endClosing(now time.Duration) time.Duration {
	t, cfg := p.t, &p.t.cfg
	if p.state == CloseAckWait {
		t.closeDone(now, p)
		return never
	}
	// The initiator is finishing its messages.
	if t.owner.InboundOpen(p) {
		p.closeBy = now + cfg.CloseReqTime
		return p.closeBy
	}
	wait := max(cfg.CloseReqTime, cfg.SuspectTimeout)
	if p.leftMax == 0 {
		// A blackout may hide an initiator that lacks an ACK (F8). It asks for it again afterwards.
		wait = max(wait, t.silentFor())
	}
	p.closeBy = max(p.closeBy, p.lastHeard+wait)
	if now >= p.closeBy {
		t.fail(now, p, Reason{Why: WhyClosed})
		return never
	}
	return p.closeBy
}

// resume withdraws the request to close because the initiator sends more. If it saw the
// request it closes, which is all right too.
func (p *PDC) resume(now time.Duration) {
	p.state = Established
	p.idleAt = now
}

// RequestClose asks the initiator of a target PDC to close it, by the REQ flag of ACKs and
// by a CLOSE_REQ, as no ACK may be about to leave.
func (p *PDC) RequestClose(now time.Duration) {
	if p.initiator || p.state != Established {
		return
	}
	p.state = CloseRequested
	p.closeBy = now + max(p.t.cfg.CloseReqTime, p.t.cfg.SuspectTimeout)
	p.pushCtl(now, wire.CtlCloseReq)
	p.t.arm(p, p.closeBy)
}

// ReceiveCP processes a control packet. It returns the PDC of one with SYN, which may be new,
// and nil otherwise.
func (t *Table) ReceiveCP(in *Arrival, c *wire.CP) *PDC {
	t.Stats.CPRx[c.Ctl&15]++
	if c.Flags&wire.FlagSYN != 0 {
		return t.receiveSynCP(in, c)
	}
	t.receiveCP(in, c)
	return nil
}

// receiveSynCP processes a control packet with SYN. Like the first request it may open the PDC
// (S-CTL-07). Only NOOP and NEGOTIATION, which have a PSN of their own, may carry SYN.
func (t *Table) receiveSynCP(in *Arrival, c *wire.CP) *PDC {
	if c.Ctl != wire.CtlNoop && c.Ctl != wire.CtlNegotiation {
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackUnexpEvent, PSN: c.PSN, DPDCID: c.SPDCID}) // T28: one NACK per packet
		return nil
	}
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: c.Flags & wire.FlagSYN, PSN: c.PSN, PSNOffset: c.PSNOffset, SPDCID: c.SPDCID}
	if c.Flags&wire.FlagISROD != 0 {
		h.Type = wire.TypeRODReq
	}
	p := t.findSyn(in, &h)
	switch {
	case p == nil:
	case p.mode != h.Mode():
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackPDCModeMismatch, PSN: c.PSN, SPDCID: p.id, DPDCID: p.remoteID})
	default:
		t.receivePSNCtl(in, p, c)
	}
	return p
}

func (t *Table) receiveCP(in *Arrival, c *wire.CP) {
	p := t.Lookup(c.DPDCID)
	if p == nil || in.From.Addr() != p.remote.Addr() || (p.remoteID != 0 && c.SPDCID != p.remoteID) {
		t.Stats.DropNoPDC++
		if p != nil {
			t.guessed(in.Now, in.From)
		}
		switch c.Ctl {
		case wire.CtlClose, wire.CtlAckReq, wire.CtlProbe, wire.CtlNoop, wire.CtlCloseReq, wire.CtlNegotiation:
			// UE 3.5.8: a CLOSE that comes after the PDC was freed gets NACK 0E, which its
			// sender reads as success.
			t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: c.PSN, DPDCID: c.SPDCID})
		}
		return
	}
	if p.who != in.Who && t.foreign(p, in.Who) {
		return
	}
	if p.remoteID == 0 {
		t.Stats.DropStale++
		return
	}
	switch c.Ctl {
	case wire.CtlCredit, wire.CtlCreditReq:
		if t.cfg.Credit {
			p.creditCP(in.Now, c)
			return
		}
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackUnexpEvent, PSN: c.PSN, SPDCID: p.id, DPDCID: p.remoteID})
		return
	case wire.CtlClearReq:
		clear := wire.PSN(c.Payload)
		if clear.Before(p.tx.una) {
			p.letGo()
			p.tx.clearOwed = true
			p.oweAck()
		} else {
			// The PSN is not acknowledged yet: ask what became of it.
			p.tx.askOwed = p.tx.una != p.tx.nxt
			p.oweAck()
		}
		p.heard(in.Now)
		return
	}
	p.markProven()
	rx := p.rx
	if rx == nil {
		if c.Ctl != wire.CtlCloseReq && c.Ctl != wire.CtlNoop && c.Ctl != wire.CtlNegotiation && !t.owner.Asked(p) {
			t.Stats.DropStale++
			return
		}
		rx = t.getRx(p)
	}
	switch c.Ctl {
	case wire.CtlAckReq:
		p.heard(in.Now)
		t.answerAckReq(in, p, c.PSN)
	case wire.CtlProbe:
		p.heard(in.Now)
		if int(rx.nprobe) == len(rx.probes) {
			rx.nprobe-- // the new PROBE replaces the last one
		}
		rx.probes[rx.nprobe] = probe{c.ProbeOpaque, in.Paused || in.Waited > 0, wire.PSN(c.Payload)}
		rx.nprobe++
		rx.note(in.From, in.Path)
		p.oweAck()
	case wire.CtlClear:
		clear := wire.PSN(c.Payload)
		if clear.After(rx.max) {
			t.unsent(in.Now, p)
			return
		}
		p.heard(in.Now)
		p.cleared(in.Now, clear)
	case wire.CtlNoop, wire.CtlClose, wire.CtlCloseReq, wire.CtlNegotiation:
		// Of a NEGOTIATION this side makes no use: what it offers stays off.
		t.receivePSNCtl(in, p, c)
	}
}

// receivePSNCtl handles the control packets that consume a PSN.
func (t *Table) receivePSNCtl(in *Arrival, p *PDC, c *wire.CP) {
	rx := p.rx
	d := c.PSN.Sub(wire.PSN(rx.win.Base()))
	// UE 3.5.8: a CLOSE clears everything, so it is valid even if the window before it is
	// full.
	if n := int32(rx.win.Size()); (d >= n || d < -n) && (c.Ctl != wire.CtlClose || c.PSN != rx.max+1) {
		t.Stats.DropStale++
		t.guessed(in.Now, in.From)
		return
	}
	p.heard(in.Now)
	ack := wire.Ack{Type: wire.TypeAck, Next: wire.NextNone, SPDCID: p.id, DPDCID: p.remoteID}
	if c.Ctl == wire.CtlClose {
		if p.initiator {
			t.Stats.DropStale++ // only an initiator sends CLOSE
			return
		}
		// A CLOSE_REQ that is outstanding is granted by it, return data is not.
		out := p.dataOut()
		if out {
			rx.noteMax(c.PSN) // the NACK names the CLOSE
		}
		if out || t.owner.InboundOpen(p) {
			t.fail(in.Now, p, Reason{Why: WhyProtocol})
			return
		}
		// UE 3.5.8: a CLOSE clears everything; the closing ACK's CACK is one
		// below the CLOSE's PSN, as the reference sends it.
		ack.CACK, ack.AckPSNOff = c.PSN-1, 1
		// Only 0-RTT has a floor to announce: in 1-RTT every PDC costs its initiator a round
		// trip.
		if t.raiseFloor(p.start); t.zeroRTT() {
			ack.Flags, ack.EPSN = wire.AckFlagEPSN, wire.PSN(t.floor)
		}
		var a [64]byte
		t.pushLoose(in.From, in.Path, ack.Append(a[:0]))
		if c.PSN.After(rx.max) {
			rx.max = c.PSN
		}
		t.closeDone(in.Now, p)
		return
	}
	if rx.isEarly(c.PSN) {
		t.Stats.DropStale++ // an early request has this PSN
		return
	}
	if d >= 0 && rx.win.Set(uint32(c.PSN)) {
		rx.noteMax(c.PSN)
		if p.mode == wire.ROD && c.PSN == rx.rodNext {
			rx.rodPast(c.PSN)
		}
		p.advance()
	} else {
		t.Stats.RxDup++
	}
	ack.CACK = wire.PSN(rx.win.Base()) - 1
	ack.AckPSNOff = int16(c.PSN.Sub(ack.CACK))
	var a [64]byte
	t.pushLoose(in.From, in.Path, ack.Append(a[:0]))
	if c.Ctl == wire.CtlCloseReq && p.initiator {
		p.closeRequested(in.Now)
	}
}
