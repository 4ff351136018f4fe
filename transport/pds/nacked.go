package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// ReceiveNack processes a RUD/ROD NACK (UE 3.5.12.7): it never moves CACK, and one
// for a PSN that is not outstanding is ignored.
func (t *Table) ReceiveNack(in *Arrival, n *wire.Nack) {
	t.Stats.NacksRx[n.Code]++
	p := t.Lookup(n.DPDCID)
	if p == nil {
		t.Stats.DropNoPDC++
		return
	}
	if in.From.Addr() != p.remote.Addr() || (n.SPDCID != 0 && p.remoteID != 0 && n.SPDCID != p.remoteID) {
		t.Stats.DropSource++
		t.guessed(in.Now, in.From)
		return
	}
	if p.who != in.Who && t.foreignNack(p, in.Who, n.Code) {
		return
	}
	tx := &p.tx
	if n.Code == wire.NackClosingInErr && p.proves(n) && (tx.una == tx.nxt || !p.initiator) {
		// The peer tears down a PDC on which nothing is outstanding.
		if p.confirmFatal(in.Now, n.Code) {
			t.fail(in.Now, p, Reason{WhyNack, n.Code})
			return
		}
		// T6: one is not believed, but checked: whoever has freed the PDC answers a
		// CLOSE_REQ with NACK 0E, or not at all; whoever has not closes in order.
		p.RequestClose(in.Now)
		return
	}
	psn := n.PSN
	if psn.Before(tx.una) || !psn.Before(tx.nxt) {
		if n.Code == wire.NackInvDPDCID && p.shut() && p.nackShut(in.Now, psn) {
			return
		}
		t.Stats.DropStale++
		if d := psn.Sub(tx.una); (d < -startGap || d > startGap) && psn != 0 {
			t.guessed(in.Now, in.From) // not merely late, and not about a PROBE, which has no PSN
		}
		return
	}
	k := tx.at(psn)
	if k.state == pktDone {
		t.Stats.DropStale++
		return
	}
	switch n.Code {
	case wire.NackTrimmed, wire.NackTrimmedLastHop:
		p.nackTrimmed(in.Now, psn, k, n)
	case wire.NackTrimmedAck:
		p.nackLost(in.Now, psn, k, n.Code)
	case wire.NackNoPDCAvail, wire.NackNoCCCAvail, wire.NackNoBitmap, wire.NackNoPktBuffer,
		wire.NackNoGtdDelAvail, wire.NackNoResource:
		p.short(in.Now, k, n.Code)
		if n.Code == wire.NackNoGtdDelAvail {
			tx.clearOwed = p.remoteID != 0
			p.oweAck()
		}
		p.backOff(in.Now, k, n.Code)
	case wire.NackNoSESMsgAvail:
		if k.ctl != 0 {
			// It is of messages, which may be waited for (F18). A control packet has
			// none: refused like this it is refused for want of something (F32).
			p.short(in.Now, k, n.Code)
		} else if tx.rnrAt = in.Now; tx.rnrSince == 0 {
			tx.rnrSince, tx.rough = in.Now, true
			p.tell(NewsRefused)
		}
		p.backOff(in.Now, k, n.Code)
	case wire.NackPSNOORWindow:
		// Beyond the peer's window: wait for it to move.
		p.short(in.Now, k, n.Code)
		p.backOff(in.Now, k, n.Code)
	case wire.NackRODOOO:
		// UE 3.5.12.7: go back to Expected_PSN.
		from := wire.PSN(n.Payload)
		if from.Before(tx.una) || !from.Before(tx.nxt) {
			from = psn
		}
		p.takenBack(in.Now, tx.at(from))
		for q := from; q != tx.nxt; q++ {
			if kq := tx.at(q); kq.state == pktFlight && int32(k.seq-kq.seq) >= 0 {
				p.nackLost(in.Now, q, kq, n.Code)
			}
		}
	case wire.NackPktNotRcvd, wire.NackAckWithData, wire.NackRcvrInferLoss, wire.NackExpNormal, wire.NackExpError:
		p.takenBack(in.Now, k)
		p.nackLost(in.Now, psn, k, n.Code)
	case wire.NackRcvdSESProcg:
		// Received, response not ready: ask again after the RTO. It may never be: a
		// ROD target that has the first packet we miss the answer of waits for an
		// earlier one, and all of those are answered, by a former life of it.
		p.short(in.Now, k, n.Code)
	case wire.NackNewStartPSN:
		// T7: without security never; with it until the target's first ACK.
		// Several packets of a burst get one each: the first counts.
		if start := wire.PSN(n.Payload); !t.secured() || p.remoteID != 0 || start == p.start {
			t.Stats.DropStale++
			return
		} else if !p.renumber(in, start) {
			return
		}
		p.heard(in.Now)
		p.wake()
		return
	case wire.NackInvalidSyn, wire.NackPDCHdrMismatch:
		if p.remoteID == 0 {
			// The target has a PDC of another life under our PDCID: no packet of
			// this one was taken. Start again under another PDCID.
			p.rebirth(in.Now)
			return
		}
		p.fatalNack(in.Now, n)
		return
	case wire.NackInvDPDCID:
		if p.state == CloseAckWait || p.state == CloseRequested {
			// UE 3.5.8: the peer freed it already.
			t.closeDone(in.Now, p)
			return
		}
		p.fatalNack(in.Now, n)
		return
	case wire.NackClosing, wire.NackClosingInErr, wire.NackGtdRespUnavail, wire.NackPDCModeMismatch, wire.NackExpFatal:
		p.fatalNack(in.Now, n)
		return
	case wire.NackUnexpEvent:
		if k.ctl != 0 {
			// "Unsupported": the control packet was ours.
			p.gone(p.finish(psn, k, nil))
			p.settle(in.Now)
			p.wake()
			return
		}
		p.fatalNack(in.Now, n)
		return
	default:
		t.Stats.DropStale++
		return
	}
	p.heard(in.Now)
	if tx.shortSince != 0 || tx.rnrSince != 0 {
		tx.rtos = 0 // the path works
	}
	if why := p.givenUp(in.Now); why.Why != WhyNone {
		t.fail(in.Now, p, why)
		return
	}
	if n.Code == wire.NackNoSESMsgAvail && t.cfg.RNRTimeout > 0 && in.Now-k.first >= t.cfg.RNRTimeout && k.state == pktHeld && k.ctl == 0 {
		p.giveUpNotReady(in.Now, psn, k)
	}
	p.wake()
}

// Refused reports whether the target has no room for messages of the PDC.
func (p *PDC) Refused() bool { return p.tx.rnrSince != 0 }

// short notes that the target does not take a packet, or not answer it, for want of
// something. Also if the packet is to be sent again anyway: its answer says that the
// shortage ended.
func (p *PDC) short(now time.Duration, k *txPkt, code wire.NackCode) {
	tx := &p.tx
	k.nacked = true
	if tx.shortSince == 0 {
		tx.shortSince, tx.shortCode, tx.rough = now, code, true
	}
}

// proves reports whether a NACK shows knowledge of the PDC beyond its PDCID.
func (p *PDC) proves(n *wire.Nack) bool { return n.SPDCID != 0 && n.SPDCID == p.remoteID }

// nackLost sends a refused packet again as soon as the window allows. A NACK
// that comes sooner after a resend than any answer ever came is about an earlier
// transmission, or a storm: one resend per PSN and round trip (T33).
func (p *PDC) nackLost(now time.Duration, psn wire.PSN, k *txPkt, code wire.NackCode) bool {
	if k.state != pktFlight || k.tries > 0 && now-k.sentAt < p.leastRTT() {
		return false
	}
	p.lose(now, psn, k, nacked(code))
	return true
}

// leastRTT is how long the answer to a resend takes at least, less some doubt. Before
// anything was measured no NACK is taken for that answer: the RTO goes before.
func (p *PDC) leastRTT() time.Duration {
	if p.tx.minRTT == 0 {
		return p.t.cfg.RTOInit
	}
	return p.tx.minRTT * 7 / 8
}

// trimPatience is how often a packet is sent again without regard to the others.
const trimPatience = 16

// nackTrimmed sends a packet again of which a switch left the header. The path is to
// blame for it unless it was the last hop (UE 3.6.16): too many sent to one target,
// whatever path they took.
//
// Of those that were sent again trimPatience times one goes a round trip, the others
// when the RTO says so. What is left of trimmed packets passes the data at a switch: a
// few that come again at once, whenever they are trimmed, can keep a slow link so busy
// that no data leaves its queue, theirs included.
func (p *PDC) nackTrimmed(now time.Duration, psn wire.PSN, k *txPkt, n *wire.Nack) {
	if k.tries >= trimPatience && now-p.tx.progress < max(p.tx.rtt, p.leastRTT()) {
		p.t.Stats.DropStale++
		return
	}
	if !p.nackLost(now, psn, k, n.Code) {
		return
	}
	if p.pathNews(k, PathGood); n.Code == wire.NackTrimmed || n.Flags&wire.NackFlagM != 0 {
		p.pathNews(k, PathMarked)
	}
	// Its header arrived, and the NACK did: the timers of silence begin anew.
	p.tx.progress = now
	p.tx.probes, p.tx.rtos = 0, 0
}

// backOff holds a refused packet until the back-off passed: 1 ms doubling to
// RTOMax (F32).
func (p *PDC) backOff(now time.Duration, k *txPkt, code wire.NackCode) {
	if p.mode == wire.ROD {
		p.takenBack(now, k) // it was held there, and refused when its turn came
	}
	if k.state != pktFlight {
		return
	}
	tx := &p.tx
	k.nacked = true
	p.hold(now, k, code)
	// Several packets refused in one flight are one event.
	if now >= tx.heldUntil {
		if tx.heldFor == 0 {
			tx.heldFor, tx.rough = time.Millisecond, true
		} else {
			tx.heldFor = min(2*tx.heldFor, p.t.cfg.RTOMax)
		}
		tx.heldUntil = now + tx.heldFor
	}
	p.t.arm(p, tx.heldUntil)
}

// confirmFatal applies T6: on a PDC without security a fatal NACK counts only
// when a second one comes at least one RTO later.
func (p *PDC) confirmFatal(now time.Duration, code wire.NackCode) bool {
	if p.t.secured() {
		return true // it is authenticated
	}
	gap := p.t.cfg.RTOInit
	if !p.doubted || p.fatal != code {
		p.doubted, p.fatal, p.fatalAt = true, code, now
		return false
	}
	return now-p.fatalAt >= gap
}

// fatalNack ends the PDC when confirmed; the first one makes the packet go out
// again so that an honest peer repeats it.
func (p *PDC) fatalNack(now time.Duration, n *wire.Nack) {
	if p.confirmFatal(now, n.Code) {
		p.t.fail(now, p, Reason{WhyNack, n.Code})
		return
	}
	tx := &p.tx
	if k := tx.at(n.PSN); k.state == pktFlight {
		tx.heldUntil = now + p.t.cfg.RTOInit + p.t.cfg.RTOInit/4
		p.hold(now, k, n.Code)
		p.t.arm(p, tx.heldUntil)
	}
}

// nackShut takes it that the peer does not know a shut PDC (F12), and reports false if
// that says nothing. Who knows a PSN is believed, as with other fatal NACKs (T6). What
// a PROBE gets names none, so an ACK_REQ follows that does.
func (p *PDC) nackShut(now time.Duration, psn wire.PSN) bool {
	tx := &p.tx
	switch {
	case psn == tx.cack+1 && tx.una == tx.nxt:
		if p.confirmFatal(now, wire.NackInvDPDCID) {
			p.t.fail(now, p, Reason{WhyNack, wire.NackInvDPDCID})
		}
	case tx.burst != 0:
		tx.burst, tx.askOwed = 0, true // one for each PROBE
		p.oweAck()
	default:
		return false
	}
	return true
}

// giveUpNotReady ends a packet that its target was not ready for in RNRTimeout.
// Nobody may ever take its PSN, so what the owner has to say instead has it, and half
// of that time; or a NOOP fills the gap.
func (p *PDC) giveUpNotReady(now time.Duration, psn wire.PSN, k *txPkt) {
	msg := k.ref.Msg
	ref, n := p.t.owner.GiveUp(p, k.ref, wire.NackNoSESMsgAvail)
	if n == 0 {
		k.ctl, n = 1+uint8(wire.CtlNoop), p.t.ctlNominal()
	} else {
		k.first = now - p.t.cfg.RNRTimeout/2
	}
	k.ref, k.size = ref, uint16(n)
	p.accepted(psn, msg) // what is left of the message
	p.releaseHeld(now)
}
