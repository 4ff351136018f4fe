package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// ReceiveNack processes a RUD/ROD NACK (UE 3.5.12.7). A NACK never moves CACK. One for a PSN
// that is not outstanding is ignored.
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
		// The peer aborts a PDC on which nothing is outstanding.
		if p.confirmFatal(in.Now, n.Code) {
			t.fail(in.Now, p, Reason{Why: WhyNack, Nack: n.Code})
			return
		}
		// T6: a single NACK is checked, not believed. A peer that has freed the PDC answers
		// a CLOSE or CLOSE_REQ with NACK 0E or not at all. For a peer that has not, the PDC
		// ends in order. Either way no message has to find out.
		if p.initiator {
			p.closeRequested(in.Now)
		} else {
			p.RequestClose(in.Now)
		}
		return
	}
	psn := n.PSN
	if n.Code == wire.NackUnexpEvent && p.creditRefused(in.Now, n) {
		return
	}
	if psn.Before(tx.una) || !psn.Before(tx.nxt) {
		if tx.late && p.promiseNacked(in.Now, n) {
			return
		}
		if n.Code == wire.NackInvDPDCID && p.shut() && p.nackShut(in.Now, psn) {
			return
		}
		t.Stats.DropStale++
		if d := psn.Sub(tx.una); (d < -startGap || d > startGap) && psn != 0 {
			t.guessed(in.Now, in.From) // neither merely late nor about a PROBE, which has no PSN
		}
		return
	}
	k := tx.at(psn)
	if k.state == pktFinished {
		if tx.late && p.promiseNacked(in.Now, n) {
			return
		}
		t.Stats.DropStale++
		return
	}
	if int(k.size) > t.safe {
		tx.longSince = 0 // packets of that length arrive, or a switch that is busy cuts them
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
			p.letGo()
			p.oweAck()
		}
		p.backOff(in.Now, k, n.Code)
	case wire.NackNoSESMsgAvail:
		if k.ctl != 0 {
			// NACK 09 is about messages, which may wait (F18). A control packet has no
			// message: its target is short of something (F32).
			p.short(in.Now, k, n.Code)
		} else if tx.rnrAt = in.Now; tx.rnrSince == 0 {
			tx.rnrSince, tx.rough = in.Now, true
			p.tell(NewsRefused)
		}
		if p.backOff(in.Now, k, n.Code); tx.tookBack && k.state == pktWaiting && !k.piece.Void() && k.ctl == 0 {
			t.news.put(News{Kind: NewsBlocks, PDC: p, Piece: k.piece})
		}
	case wire.NackPSNOORWindow:
		p.beyond(in.Now, psn, k)
	case wire.NackRODOOO:
		// UE 3.5.12.7: go back to Expected_PSN.
		p.early(in, n)
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
		// The packet arrived but has no response yet: ask again after the RTO. The response
		// may never come: a ROD target may wait for an earlier packet that a former life of
		// it has answered.
		p.early(in, n)
		p.short(in.Now, k, n.Code)
	case wire.NackNewStartPSN:
		// T7: a PDC without security ignores it. A secured PDC follows it until the target's
		// first ACK. Each packet of a burst gets such a NACK: the first one counts.
		if start := wire.PSN(n.Payload); !t.secured() || p.remoteID != 0 || start == p.start {
			t.Stats.DropStale++
			return
		} else if p.askedElsewhere(in) || !p.renumber(in, start) {
			return
		}
		p.heard(in.Now)
		p.wake()
		return
	case wire.NackInvalidSyn, wire.NackPDCHdrMismatch:
		if p.remoteID == 0 && n.Code == wire.NackInvalidSyn && n.SPDCID != 0 && psn.Sub(tx.cack) > 1 {
			// UE 3.5.12.6: of a SYN, the target says so that its PSN is beyond the window. It
			// names the PDC, so it has this life of it.
			p.beyond(in.Now, psn, k)
			break
		}
		if p.remoteID == 0 {
			if !p.askedElsewhere(in) {
				p.refusedOpening(in.Now, k, n.Code)
			}
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
			// The NACK says that our control packet is unsupported.
			p.gone(p.finish(psn, k, nil))
			p.closeIfFinished(in.Now)
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
	if n.Code == wire.NackNoSESMsgAvail && t.cfg.RNRTimeout > 0 && in.Now-k.first >= t.cfg.RNRTimeout && k.state == pktWaiting && k.ctl == 0 {
		p.giveUpNotReady(in.Now, psn, k)
	}
	p.wake()
}

// early learns the target's PDCID from a NACK that says that a packet of a PDC that opens came
// before another. Such a target may send no ACK before that other packet comes (F7).
func (p *PDC) early(in *Arrival, n *wire.Nack) {
	if p.remoteID == 0 && n.SPDCID != 0 {
		p.becomeEstablished(n.SPDCID, in.Who)
	}
}

// Refused reports whether the target has no room for messages of the PDC.
func (p *PDC) Refused() bool { return p.tx.rnrSince != 0 }

// short notes that the target is short of something and therefore does not accept or answer
// a packet. It notes so even if the packet is already to be resent: the answer to the resend
// shows the end of the shortage.
func (p *PDC) short(now time.Duration, k *txPkt, code wire.NackCode) {
	tx := &p.tx
	k.nacked = true
	if tx.shortSince == 0 {
		tx.shortSince, tx.shortCode, tx.rough = now, code, true
	}
}

// proves reports whether a NACK shows knowledge of the PDC beyond its PDCID.
func (p *PDC) proves(n *wire.Nack) bool { return n.SPDCID != 0 && n.SPDCID == p.remoteID }

// nackLost queues a refused packet for resending. A NACK that comes sooner after a resend
// than any answer ever came is about an earlier transmission, or part of a storm: one resend
// per PSN and round trip (T33).
func (p *PDC) nackLost(now time.Duration, psn wire.PSN, k *txPkt, code wire.NackCode) bool {
	if k.state != pktFlight || k.tries > 0 && now-k.sentAt < p.leastRTT() {
		return false
	}
	p.lose(now, psn, k, nacked(code))
	return true
}

// leastRTT is the shortest time after which a NACK can answer a resend: 7/8 of the least
// round trip, or RTOInit before the first measurement.
func (p *PDC) leastRTT() time.Duration {
	if p.tx.minRTT == 0 {
		return p.t.cfg.RTOInit
	}
	return p.tx.minRTT * 7 / 8
}

// trimPatience is how often a trimmed packet is resent at once. After that it is resent once
// a round trip.
const trimPatience = 16

// nackTrimmed resends a packet that a switch trimmed. The path gets the blame unless the
// last hop trimmed it (UE 3.6.16): then too many senders use one target, on whatever path.
//
// Of the packets that were already resent trimPatience times, one is resent per round trip,
// the others when the RTO says so. Trimmed packets pass the data at a switch. A few packets
// that are resent at once whenever they are trimmed can keep a slow line so busy that no
// data leaves its queue, theirs included.
func (p *PDC) nackTrimmed(now time.Duration, psn wire.PSN, k *txPkt, n *wire.Nack) {
	if k.tries >= trimPatience && now-p.tx.progress < max(p.tx.rtt, p.leastRTT()) {
		p.t.Stats.DropStale++
		return
	}
	// After a resend the NACK may be a late copy of one for an earlier transmission. Only one that comes within
	// an RTO of the resend counts as its answer: a path that brings copies for seconds must not put off the
	// timers for as long.
	fresh := k.tries == 0 || now-k.sentAt <= p.plainRTO()
	if !p.nackLost(now, psn, k, n.Code) {
		return
	}
	if p.pathNews(k, PathGood); n.Code == wire.NackTrimmed || n.Flags&wire.NackFlagM != 0 {
		p.pathNews(k, PathMarked)
	}
	if fresh {
		// The header and the NACK got through: the timers of silence start again.
		p.tx.progress = now
		p.tx.probes, p.tx.rtos = 0, 0
	}
}

// backOff makes a refused packet wait for the back-off: 1 ms doubling to RTOMax (F32). Where
// packets that are tried again queue for the window, all wait as long after the latest one left as
// it queued, but no longer than queueMost RTOMax: tries then take half of the window at most, and
// leave the rest to packets that the target may take.
func (p *PDC) backOff(now time.Duration, k *txPkt, code wire.NackCode) {
	if p.mode == wire.ROD {
		p.takenBack(now, k) // it was early there, and refused when its turn came
	}
	if k.state != pktFlight {
		return
	}
	tx := &p.tx
	queued := time.Duration(0)
	if k.nacked && k.cause == nacked(code) { // it left because the wait was over
		queued = min(time.Duration(int32(microseconds(k.sentAt)-tx.freedAt))*time.Microsecond, queueMost*p.t.cfg.RTOMax)
	}
	k.nacked = true
	p.setWaiting(now, k, code)
	// Several packets refused in one flight are one event.
	if now >= tx.waitUntil {
		if tx.waitFor == 0 {
			tx.waitFor, tx.rough = time.Millisecond, true
		} else {
			tx.waitFor = min(2*tx.waitFor, p.t.cfg.RTOMax)
		}
		tx.waitUntil = now + tx.waitFor
	}
	tx.waitUntil = max(tx.waitUntil, k.sentAt+queued)
	p.t.arm(p, tx.waitUntil)
}

// queueMost bounds a back-off, in RTOMax. Arbitrary.
const queueMost = 8

// confirmFatal applies T6: on a PDC without security a fatal NACK takes effect only when a
// second one comes at least one RTO later.
func (p *PDC) confirmFatal(now time.Duration, code wire.NackCode) bool {
	if p.t.secured() {
		return true // the NACK is authenticated
	}
	gap := p.t.cfg.RTOInit
	if !p.doubted || p.fatal != code {
		p.doubted, p.checked, p.fatal, p.fatalAt = true, false, code, now
		return false
	}
	return now-p.fatalAt >= gap
}

// fatalNack ends the PDC when the NACK is confirmed. The first one resends the packet so
// that an honest peer repeats the NACK. Of several packets that NACK 0E refused, one is resent
// first: that of the others no life of the target has a copy stays provable (S-LIFE-03).
func (p *PDC) fatalNack(now time.Duration, n *wire.Nack) {
	tx := &p.tx
	k := tx.at(n.PSN)
	if n.Code == wire.NackInvDPDCID && k.unknown <= k.tries {
		k.unknown++
	}
	if p.confirmFatal(now, n.Code) {
		p.t.fail(now, p, Reason{Why: WhyNack, Nack: n.Code, Born: bornBy(now, n)})
		return
	}
	p.askAgain(now, k, n.Code)
}

// refusedOpening begins a PDC that opens anew under another PDCID: the target has a PDC of
// another life under ours. The first NACK may be late, and a target that has started since may
// have executed a resend. So the NACK must come that answers what was sent after the first one.
func (p *PDC) refusedOpening(now time.Duration, k *txPkt, code wire.NackCode) {
	doubted := p.doubted && p.fatal == code
	if p.confirmFatal(now, code) {
		p.rebirth(now)
		return
	}
	if !doubted {
		p.fatalAt += now - k.first // what was sent before it is answered until then
	}
	p.askAgain(now, k, code)
}

// askAgain has a refused packet sent again after a little more than an RTO.
func (p *PDC) askAgain(now time.Duration, k *txPkt, code wire.NackCode) {
	if k.state == pktFlight {
		p.tx.waitUntil = now + p.t.cfg.RTOInit + p.t.cfg.RTOInit/4
		p.setWaiting(now, k, code)
		p.t.arm(p, p.tx.waitUntil)
	}
}

// nackShut handles NACK 0E on a shut PDC: the peer does not know the PDC (F12). A NACK that
// names the expected PSN is believed, as are other fatal NACKs (T6). A NACK for a PROBE
// names no PSN, so an ACK_REQ follows, which has one. nackShut reports false if the NACK
// proves nothing.
func (p *PDC) nackShut(now time.Duration, psn wire.PSN) bool {
	tx := &p.tx
	switch {
	case psn == tx.cack+1 && tx.una == tx.nxt:
		if p.confirmFatal(now, wire.NackInvDPDCID) {
			p.t.fail(now, p, Reason{Why: WhyNack, Nack: wire.NackInvDPDCID})
		}
	case tx.burst != 0:
		tx.burst, tx.askOwed = 0, true // one ACK_REQ for each PROBE
		p.oweAck()
	default:
		return false
	}
	return true
}

// giveUpNotReady ends a packet whose target was not ready for RNRTimeout. Its PSN must still
// be used. The owner's replacement gets the PSN and half of RNRTimeout; without a
// replacement a NOOP gets it.
func (p *PDC) giveUpNotReady(now time.Duration, psn wire.PSN, k *txPkt) {
	msg := k.piece.Msg
	ref, n := p.t.owner.GiveUp(p, k.piece, wire.NackNoSESMsgAvail)
	if n == 0 {
		k.ctl, n = 1+uint8(wire.CtlNoop), p.t.ctlNominal()
	} else {
		k.first = now - p.t.cfg.RNRTimeout/2
	}
	if k.piece.Void() {
		p.tx.voids--
	}
	k.piece, k.size = ref, uint16(n)
	p.accepted(psn, msg) // release the rest of the message
	p.releaseWaiting(now)
}
