package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file has what is particular to the return direction of a PDC (UE 3.5.8): the target sends
// read data in requests of its own. Their PSNs begin at the same Start_PSN. All else, ACKs,
// recovery from loss and windows, is the same in both directions.

// SetCCC gives the PDC of a target the congestion control context of what it returns. It is called
// once, before the first packet is pushed.
func (p *PDC) SetCCC(now time.Duration, ccc CCC) {
	p.ccc = ccc
	if p.t.cfg.Credit {
		p.t.addCredit(p)
	}
	tx := &p.tx
	for psn := tx.una; psn != tx.nxt; psn++ {
		if k := tx.at(psn); k.state == pktFlight { // a CLOSE_REQ
			ccc.OnSend(now, int(k.size))
		}
	}
}

// CanReturn is CanPush for return data. T27: nothing is sent to a source that may be forged, whose
// request is much shorter than what it asks for. Behind lost packets it waits: one of them may be a
// CLOSE_REQ that has not left, and the PSNs leave in their order. That holds also when the initiator went
// on meanwhile, which takes the request for the close back, but not its PSN.
func (p *PDC) CanReturn(n int) bool {
	return !p.Unproven() && p.tx.lost == 0 && p.CanPush(n)
}

// WantProof tells that there is something to return, which waits until the source is proven (S-CLR-08). From
// now on the ACKs of the PDC ask for a CLEAR: it has our PDCID, and a source that goes on sending with SYN
// may send nothing else that has it.
func (p *PDC) WantProof(now time.Duration) {
	if rx := p.rx; rx != nil && rx.proofAt == 0 && p.Unproven() {
		rx.proofAt = now + 4*p.t.cfg.RTOInit
		p.t.arm(p, rx.proofAt)
	}
}

// wantsProof reports whether something to return waits until the source is proven.
func (p *PDC) wantsProof() bool { return p.rx.proofAt != 0 && p.Unproven() }

// proofAsks is how many CLEAR_REQs ask a source for its proof: the ACK or the CLEAR may be lost, and the
// source may be forged. All of them are shorter than three requests.
const proofAsks = 6

// proofAt is when the next of them is sent.
func (p *PDC) proofAt() time.Duration {
	if p.rx == nil || !p.wantsProof() || p.asks >= proofAsks {
		return never
	}
	return p.rx.proofAt
}

// askProof asks by a CLEAR_REQ. Each doubles the wait.
func (p *PDC) askProof(now time.Duration) time.Duration {
	p.asks++
	p.rx.proofAt = now + 4*p.t.cfg.RTOInit<<p.asks
	p.t.sendCP(p, wire.CP{Ctl: wire.CtlClearReq, SPDCID: p.id, DPDCID: p.remoteID, Payload: uint32(p.rx.max)})
	return p.proofAt()
}

// ReturnHeader is Header for return data.
func (p *PDC) ReturnHeader(now time.Duration, b []byte) []byte {
	psn := p.tx.nxt - 1
	b = p.header(psn, p.tx.at(psn)).Append(b)
	if sent := psn.Sub(p.start) + 1; sent%p.t.cfg.MaxRange == 0 {
		p.RequestClose(now) // F34: what the initiator asked for goes on
	}
	return b
}

// dataOut reports whether a target has return data outstanding.
func (p *PDC) dataOut() bool {
	tx := &p.tx
	if p.initiator {
		return false
	}
	for psn := tx.una; psn != tx.nxt; psn++ {
		if k := tx.at(psn); k.ctl == 0 && k.state != pktFinished {
			return true
		}
	}
	return false
}

// asksOnly reports whether a target has nothing outstanding but CLOSE_REQs, which end no operation.
func (p *PDC) asksOnly() bool { return !p.initiator && !p.dataOut() }

// mayRepeat reports whether what is outstanding may be sent again (T27). Return data may: it went only
// to a source that is proven or that the application named, and its loss must not depend on whether
// the packets arrive that would prove the source.
func (p *PDC) mayRepeat() bool { return p.initiator || p.proven || p.dataOut() }

// isReturn reports whether what follows the PDS header is read data. Packets of the return
// direction carry nothing else.
func isReturn(n wire.NextHdr) bool { return n == wire.NextRspData || n == wire.NextRspDataSmall }

// answeredBy reports whether return data comes from the target that a PDC being created waits for.
// It tells the target's PDCID as well as an ACK does (UE 3.5.8).
func (t *Table) answeredBy(p *PDC, h *wire.Req) bool {
	d := h.PSN.Sub(p.start)
	return p.initiator && h.SPDCID != 0 && isReturn(h.Next) && p.mode == h.Mode() && d >= 0 && d < int32(t.cfg.MPRange) &&
		p.tx.nxt != p.start && t.owner.Asked(p)
}

// returns reports whether a request that came to an initiator is return data. It refuses any
// other: what this side never asked for, and what has another next header.
func (t *Table) returns(in *Arrival, p *PDC, h *wire.Req) bool {
	asked := t.owner.Asked(p)
	if asked && isReturn(h.Next) {
		if p.rx == nil {
			t.getRx(p)
		}
		p.asks = 0
		return true
	}
	base, fresh := p.start, true
	if rx := p.rx; rx != nil {
		base, fresh = wire.PSN(rx.win.Base()), !rx.win.Test(uint32(h.PSN))
	}
	d, n := h.PSN.Sub(base), int32(t.cfg.MPRange)
	code := wire.NackPDCHdrMismatch
	switch {
	case d < -n || d >= n:
		t.guessed(in.Now, in.From)
		code = wire.NackPSNOORWindow
	case d < 0:
		fresh = false
	case isReturn(h.Next):
		code = wire.NackUnexpEvent
	}
	t.misfit(in, p, h, fresh, code)
	return false
}

// mayLackAck reports until when the target may lack an ACK of return data: it has not said that it
// has them all, and it sends again what is not acknowledged. A CLOSE that came before would end
// its PDC in error (UE 3.5.8). It is asked, and heard again and again in vain only where the network brings
// what is old. 0 means that it lacks none.
func (p *PDC) mayLackAck(now time.Duration) time.Duration {
	rx := p.rx
	if rx == nil || !rx.clear.Before(rx.max) || !p.t.owner.Asked(p) {
		return 0
	}
	if until := min(p.lastHeard+2*p.rto(), p.closeBy); now < until {
		return until
	}
	return 0
}

// awaitAt is when an initiator that waits for read data and has nothing outstanding asks for a sign
// of the target: no timer of packets would tell that the target has ended the PDC. A target that
// returns nothing before its source is proven may have missed the one packet that proves it. The
// first question comes after 20 ms of silence; each doubles the wait.
func (p *PDC) awaitAt() time.Duration {
	if !p.initiator || p.tx.una != p.tx.nxt || p.state != Established && p.state != Quiesce || !p.t.owner.Asked(p) || !p.t.owner.Awaits(p) {
		return never
	}
	cfg := &p.t.cfg
	return max(p.lastHeard, p.idleAt) + min(4*cfg.RTOInit<<min(p.asks, 16), 4*cfg.RTOMax)
}

// askAwaited asks by a NOOP.
func (p *PDC) askAwaited(now time.Duration) time.Duration {
	if p.asks < 255 {
		p.asks++
	}
	p.pushCtl(now, wire.CtlNoop)
	return never
}
