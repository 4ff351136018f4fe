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
	t, rx := p.t, p.rx
	switch {
	case rx == nil:
		return false
	case rx.due > 0:
		s := rx.nextDue()
		if t.Cause = CauseGtd; s.late {
			t.Cause = CauseGtdAgain
		}
		p.fillAck(out, s, 0)
		out.Ack.Req = wire.ReqClear
	case len(rx.once) > 0:
		t.Cause = CauseBehind
		p.fillAck(out, &rx.once[rx.onceHead], 0)
		if rx.onceHead++; rx.onceHead == len(rx.once) {
			rx.once, rx.onceHead = rx.once[:0], 0
		}
	case rx.nprobe > 0:
		p.answerProbe(out)
	case rx.ackDue:
		rx.ackDue, rx.ackBytes, t.Cause = false, 0, rx.ackWhy
		tr := &rx.trig
		if tr.has {
			p.fillAck(out, &tr.answer, now-tr.at)
		} else {
			// Nothing new was executed: name the highest PSN below the window.
			p.fillAck(out, &answer{psn: wire.PSN(rx.win.Base()) - 1, late: true, ce: tr.ce}, 0)
		}
		tr.ce = false
	default:
		return false
	}
	return true
}

// nextDue takes the first guaranteed response that is to be sent.
func (rx *rxDir) nextDue() *answer {
	for i := rx.head; i < len(rx.stored); i++ {
		if s := &rx.stored[i]; s.due {
			s.due = false
			rx.due--
			return s
		}
	}
	panic("BUG: pds: a due response is counted but not found")
}

// answerProbe makes the answer of the first PROBE.
func (p *PDC) answerProbe(out *AckOut) {
	rx := p.rx
	pr := rx.probes[0]
	rx.nprobe--
	p.t.Cause = CauseAckProbe
	copy(rx.probes[:], rx.probes[1:])
	p.fillAck(out, &answer{}, 0)
	out.Ack.Flags |= wire.AckFlagP
	out.Ack.ProbeOpaque, out.Ack.AckPSNOff = pr.id, 0
	out.Ack.Next, out.HasRsp = wire.NextNone, false
	if d := pr.base.Sub(out.Ack.CACK); d >= -int32(rx.win.Size()) && d <= int32(rx.win.Size()) {
		out.Ack.SACKOff = int16(d)
		out.Ack.SACK = p.bitmap(pr.base)
	}
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

// fillAck makes the ACK that names a packet and carries its response. service is
// how long that took.
func (p *PDC) fillAck(out *AckOut, s *answer, service time.Duration) {
	rx := p.rx
	cack := wire.PSN(rx.win.Base()) - 1
	out.HasRsp = true
	out.Rsp.Set(&s.rsp)
	a := &out.Ack
	*a = wire.Ack{} // then field by field: a literal is built twice
	a.Type, a.Next, a.CACK, a.AckPSNOff, a.SPDCID, a.DPDCID, a.MPR = wire.TypeAckCC, wire.NextRsp, cack, int16(s.psn.Sub(cack)), p.id, p.remoteID, p.t.mpr
	if s.retx {
		a.Flags |= wire.AckFlagRETX
	}
	if s.ce {
		a.Flags |= wire.AckFlagM
	}
	if p.state == CloseRequested {
		a.Req = wire.ReqClose
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
		ooo = min(rx.win.Count()+len(rx.held.q), 0xfffe)
	}
	st := min(uint64(max(service, 0))/128, 0xffff)
	if s.late {
		st = 0xffff // no direct answer: beyond what the field holds
	}
	a.SetNSCC(uint16(st), uint32((rx.rcvdBytes+255)>>8), uint16(ooo))
}
