package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Generating ACKs (UE §3.5.12). ACKs are cheap to coalesce: whatever became due
// in a turn leaves as one ACK, except guaranteed responses, which travel one by
// one.

// AckOwed reports whether NextAck has something.
func (p *PDC) AckOwed() bool {
	rx := p.rx
	return rx != nil && (rx.ackDue || rx.due > 0 || rx.nprobe > 0 || len(rx.once) > 0)
}

// AckTo is where ACKs go: to the port the packet came from, by the path it came
// by, so that the entropy value is echoed (design D5).
func (p *PDC) AckTo() (netip.AddrPort, uint8) { return p.rx.remote, p.rx.path }

// AtRest reports that the PDC has nothing in flight, stored or due.
func (p *PDC) AtRest() bool {
	rx := p.rx
	return p.tx.una == p.tx.nxt && !p.CtlOwed() && (rx == nil || (!rx.ackDue && rx.nprobe == 0 && len(rx.once) == 0 && len(rx.stored) == 0 && len(rx.held.q) == 0))
}

// An AckOut is one ACK to send, where to and by which path.
type AckOut struct {
	Ack    wire.Ack
	Rsp    wire.Rsp
	HasRsp bool
}

// NextAck takes the next ACK that is due.
func (p *PDC) NextAck(now time.Duration, out *AckOut) bool {
	rx := p.rx
	if rx == nil {
		return false
	}
	switch {
	case rx.due > 0:
		for i := rx.head; i < len(rx.stored); i++ {
			s := &rx.stored[i]
			if !s.due {
				continue
			}
			s.due = false
			rx.due--
			if p.t.Cause = CauseGtd; s.late {
				p.t.Cause = CauseGtdAgain
			}
			p.fillAck(now, out, s.psn, 0, s.retx, s.ce)
			if s.late {
				unmeasured(&out.Ack)
			}
			out.Ack.Req = wire.ReqClear
			out.HasRsp = true
			out.Rsp.Set(&s.rsp)
			out.Ack.Next = wire.NextRsp
			return true
		}
		panic("BUG: pds: a due response is counted but not found")
	case len(rx.once) > 0:
		s := &rx.once[rx.onceHead]
		p.t.Cause = CauseBehind
		p.fillAck(now, out, s.psn, 0, s.retx, s.ce)
		if s.late {
			unmeasured(&out.Ack)
		}
		out.HasRsp = true
		out.Rsp.Set(&s.rsp)
		out.Ack.Next = wire.NextRsp
		if rx.onceHead++; rx.onceHead == len(rx.once) {
			rx.once, rx.onceHead = rx.once[:0], 0
		}
		return true
	case rx.nprobe > 0:
		pr := rx.probes[0]
		rx.nprobe--
		p.t.Cause = CauseAckProbe
		copy(rx.probes[:], rx.probes[1:])
		p.fillAck(now, out, 0, 0, false, false)
		out.Ack.Flags |= wire.AckFlagP
		out.Ack.ProbeOpaque, out.Ack.AckPSNOff = pr.id, 0
		out.Ack.Next, out.HasRsp = wire.NextNone, false
		base := pr.base
		if d := base.Sub(out.Ack.CACK); d >= -int32(rx.win.Size()) && d <= int32(rx.win.Size()) {
			out.Ack.SACKOff = int16(d)
			out.Ack.SACK = p.bitmap(base)
		}
		return true
	case rx.ackDue:
		rx.ackDue = false
		p.t.Cause = rx.ackWhy
		rx.ackBytes = 0
		if rx.trig.has {
			tr := &rx.trig
			p.fillAck(now, out, tr.psn, now-tr.at, tr.retx, tr.ce)
			if tr.late {
				unmeasured(&out.Ack)
			}
			out.HasRsp = true
			out.Rsp.Set(&tr.rsp)
			out.Ack.Next = wire.NextRsp
			tr.ce = false
			return true
		}
		// Nothing new was executed: name the highest PSN below the window.
		p.fillAck(now, out, wire.PSN(rx.win.Base())-1, 0, false, rx.trig.ce)
		unmeasured(&out.Ack)
		rx.trig.ce = false
		out.Rsp, out.HasRsp = wire.Rsp{}, true
		out.Ack.Next = wire.NextRsp
		return true
	}
	return false
}

// bitmap is the SACK bitmap from base on: received and, on ROD, held PSNs.
func (p *PDC) bitmap(base wire.PSN) uint64 {
	rx := p.rx
	w := rx.win.Word(uint32(base))
	if d := wire.PSN(rx.win.Base()).Sub(base); d > 0 {
		if d >= 64 {
			return ^uint64(0)
		}
		w |= 1<<uint(d) - 1 // below the window everything was received
	}
	for i := range rx.held.q {
		if d := rx.held.q[i].psn.Sub(base); d >= 0 && d < 64 {
			w |= 1 << uint(d)
		}
	}
	return w
}

func (p *PDC) fillAck(now time.Duration, out *AckOut, psn wire.PSN, service time.Duration, retx, ce bool) {
	t, rx := p.t, p.rx
	cack := wire.PSN(rx.win.Base()) - 1
	out.HasRsp = false
	a := &out.Ack
	*a = wire.Ack{} // then field by field: a literal is built twice
	a.Type, a.CACK, a.AckPSNOff, a.SPDCID, a.DPDCID, a.MPR = wire.TypeAckCC, cack, int16(psn.Sub(cack)), p.id, p.remoteID, t.mpr
	if retx {
		a.Flags |= wire.AckFlagRETX
	}
	if ce {
		a.Flags |= wire.AckFlagM
	}
	if p.state == CloseRequested {
		a.Req = wire.ReqClose
	}
	// SACK: successive ACKs sweep the window from CACK to the highest PSN.
	ooo := 0
	if rx.max.After(cack) {
		base := rx.sackCur
		if !base.After(cack) || base.After(rx.max) {
			base = cack + 1
		}
		a.SACKOff = int16(base.Sub(cack))
		a.SACK = p.bitmap(base)
		rx.sackCur = base.Add(64)
		ooo = rx.win.Count() + len(rx.held.q)
	} else {
		a.SACKOff = 1
	}
	a.SetNSCC(uint16(min(uint64(max(service, 0))/128, 0xffff)), uint32((rx.rcvdBytes+255)>>8), uint16(min(ooo, 0xfffe)))
}

// unmeasured marks an ACK that is no direct answer: its service time is beyond
// what the field holds.
func unmeasured(a *wire.Ack) {
	a.CCState |= 0xffff << 48
}
