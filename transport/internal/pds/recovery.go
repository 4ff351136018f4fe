package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// plainRTO is the retransmission timeout without back-off.
func (p *PDC) plainRTO() time.Duration {
	d := p.t.cfg.RTOInit
	if p.ccc != nil {
		d = max(d, p.ccc.RTO())
		if rtt := p.tx.rtt; rtt > 2*p.ccc.SRTT() {
			// Answers take much longer than the path, which is all that the CCC measures:
			// hosts pause. Pauses vary as much as they last.
			d = max(d, 4*rtt)
		}
	}
	return d
}

// rto is the retransmission timeout with back-off: it doubles up to RTOMax and varies by ±10
// % so that many senders do not fall into step.
func (p *PDC) rto() time.Duration {
	cfg := &p.t.cfg
	d := p.plainRTO()
	for range p.tx.backoff {
		if d >= cfg.RTOMax {
			break
		}
		d *= 2
	}
	d = min(d, cfg.RTOMax)
	// The jitter depends on the PDC and is not drawn per timer: arming must not change the
	// course of the random source.
	return d + d/10*time.Duration(int(p.id&0xff)-128)/128
}

// tailFloor is a lower bound of tailTime that is cheap: it does not ask the CCC.
func (p *PDC) tailFloor() time.Duration {
	d := p.t.rtoLeast
	if p.tx.rtt != 0 {
		d = min(d, p.tx.silence(p.t.cfg.AckDelay))
	}
	return d
}

// silence is the part of tailTime that depends on measured round trips only.
func (tx *txDir) silence(ackDelay time.Duration) time.Duration {
	return max(min(2*tx.rtt, 4*tx.minRTT)+2*ackDelay, silenceLeast)
}

// silenceLeast is the least silence: about the delay of a scheduler on a busy machine.
// Arbitrary otherwise.
const silenceLeast = 100 * time.Microsecond

// tailTime is how long the last packet may stay unanswered before a PROBE (UE 3.5.16,
// Tail_Loss_Time): two round trips or four of the least one, plus the peer's ACK delay.
// Without a measured round trip it is the RTO, but with a bounded back-off: on a path that
// loses each packet once no round trip is ever measured, and each flight would wait for
// RTOMax.
func (p *PDC) tailTime() time.Duration {
	tx := &p.tx
	if tx.rtt == 0 {
		d := p.rto()
		if tx.backoff > 1 {
			d = min(d, 2*p.t.cfg.RTOInit<<min(tx.probes, 16))
		}
		return d
	}
	// A PROBE or its answer may be lost too, so the second one comes after the same time.
	d := tx.silence(p.t.cfg.AckDelay) << min(tx.probes/2, 16)
	if d <= p.t.rtoLeast {
		return d
	}
	return min(d, p.rto())
}

// reorderTime is how long a hole that only few packets overtook may stay open before it is a
// loss. Packets of several paths pass queues of different length: up to three least round trips.
func (p *PDC) reorderTime() time.Duration {
	tx := &p.tx
	if tx.rtt == 0 {
		return p.t.cfg.RTOInit
	}
	d := max(tx.rtt/4, 20*time.Microsecond)
	if tx.reorder == maxReorder {
		d = max(d, min(3*tx.minRTT, unequalMost))
	}
	return d * time.Duration(1+tx.patience)
}

// shut reports whether the window is closed although nothing is in flight. Either every
// packet was named by an ACK but the ACK that moves CACK was lost, or all lost packets lie
// beyond a window that shrank. The peer sends no such ACK again by itself, so a PROBE asks.
func (p *PDC) shut() bool {
	tx := &p.tx
	switch {
	case tx.una == tx.nxt:
		return tx.nxt.Sub(tx.cack) > tx.window && (p.state == Established || p.state == Quiesce)
	case tx.flight > 0 || tx.waiting > 0 || tx.lost == 0 || p.remoteID == 0:
		return false
	}
	_, _, ok := p.NextLost()
	return !ok
}

// clearAgain owes a CLEAR if the CACK of the peer shows that it may have lost the last one:
// it holds guaranteed responses that this side has (S-CLR-05). The CLEAR leaves before the
// PROBE or the resend of the caller, whose answer then shows what it did.
func (p *PDC) clearAgain() {
	if tx := &p.tx; tx.cack.Before(p.clearPSN()) {
		tx.clearOwed = true
	}
}

// shutAt is when a shut PDC is looked at: always, as the time is counted from the first
// look.
func (p *PDC) shutAt() time.Duration {
	if !p.shut() {
		return never
	}
	return 0
}

// probeShut asks for the window of a shut PDC from time to time. It fails the PDC when CACK
// did not move for PeerTimeout, whatever else the peer says. It returns when to look again.
func (p *PDC) probeShut(now time.Duration) time.Duration {
	tx, cfg := &p.tx, &p.t.cfg
	if tx.shutSince == 0 || tx.shutAt != tx.cack {
		tx.shutSince, tx.shutAt = now, tx.cack
	}
	giveUp := tx.shutSince + cfg.PeerTimeout
	if now >= giveUp {
		p.t.fail(now, p, Reason{Why: WhyNoResource, Nack: wire.NackPSNOORWindow})
		return never
	}
	at := tx.progress + min(p.tailTime()<<min(tx.probes, 16), cfg.RTOMax)
	if now >= at {
		if tx.probes < 255 {
			tx.probes++
		}
		tx.progress, at = now, now+p.tailTime()
		tx.probeOwed, tx.burst = true, 0
		p.clearAgain()
		p.oweAck()
	}
	return min(at, giveUp)
}

// releaseAt is when the back-off of refused packets ends.
func (p *PDC) releaseAt() time.Duration {
	if p.tx.waiting == 0 || p.shut() {
		return never
	}
	return p.tx.waitUntil
}

// releaseDue releases waiting packets at the end of their back-off.
func (p *PDC) releaseDue(now time.Duration) time.Duration {
	p.releaseWaiting(now)
	return never
}

// reorderAt is when the oldest hole is taken for a loss.
func (p *PDC) reorderAt() time.Duration {
	if p.tx.holeAt == 0 || p.tx.una == p.tx.nxt || p.shut() {
		return never
	}
	return p.tx.holeAt + p.reorderTime()
}

// keptBack reports whether every unanswered packet is lost and only the window or the owner
// keeps it from being resent.
func (p *PDC) keptBack() bool { return p.tx.flight == 0 && p.tx.lost > 0 && !p.shut() }

// lostAt is when the owner is woken for packets that are kept back. They do not count as
// overdue.
func (p *PDC) lostAt() time.Duration {
	if !p.keptBack() {
		return never
	}
	return 0
}

func (p *PDC) wakeLost(now time.Duration) time.Duration {
	p.wake()
	return now + p.rto()
}

// overdue reports whether the PDC waits for answers whose absence is a reason to act.
func (p *PDC) overdue() bool {
	tx := &p.tx
	if tx.una == tx.nxt || p.shut() || p.keptBack() {
		return false
	}
	return tx.flight != 0 || tx.waiting == 0 || tx.arrived != 0
}

// rtoAt is when the next RTO passes.
func (p *PDC) rtoAt() time.Duration {
	if !p.overdue() {
		return never
	}
	return p.tx.progress + p.rto()
}

// tailAt is when the next tail probe is due.
func (p *PDC) tailAt() time.Duration {
	tx := &p.tx
	if tx.flight == 0 || tx.probes >= tailProbes || p.remoteID == 0 || !p.mayRepeat() || !p.overdue() {
		return never
	}
	return max(tx.progress, tx.lastSend) + p.tailTime()
}

// probeTail sends a PROBE after silence behind the last packet (UE 3.5.16). A PROBE is
// small, and its answer shows what is missing, so nothing is resent that only waits for a
// peer that is not running. Once, the lowest and the highest packet in flight are resent
// instead: some peers do not support PROBE.
func (p *PDC) probeTail(now time.Duration) time.Duration {
	tx := &p.tx
	tx.probes++
	p.tell(NewsSilent)
	if tx.probes == dataProbe {
		p.resendEnds(now, CauseTail)
	} else {
		tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
		p.clearAgain()
		p.oweAck()
	}
	if tx.probes >= tailProbes {
		return never
	}
	return now + p.tailTime()
}

// resendEnds queues the lowest and the highest packet in flight for resending.
func (p *PDC) resendEnds(now time.Duration, why Cause) {
	tx := &p.tx
	for psn := tx.nxt - 1; !psn.Before(tx.una); psn-- {
		if k := tx.at(psn); k.state == pktFlight {
			p.lose(now, psn, k, why)
			break
		}
	}
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.state == pktFlight {
			p.lose(now, psn, k, why)
		}
		if k.state != pktFinished && k.state != pktArrived {
			break
		}
	}
	p.wake()
}

// hastyRTOs is the RTO without an answer between them that takes every packet in flight for
// lost. Those before resend the ends only and ask for the others by a PROBE: a peer that was not
// running answers all when it runs again. The ACKs of the ends alone may not show what is missing
// between them, because a bitmap has 64 bits.
const hastyRTOs = 3

// onRTO resends the lowest and the highest packet in flight, or takes all for lost. If a SACK reported the oldest packet as
// arrived, it asks for the response instead (UE 3.5.20.3).
func (p *PDC) onRTO(now time.Duration) time.Duration {
	tx := &p.tx
	p.tell(NewsSilent)
	if tx.rtos < 255 {
		tx.rtos++
	}
	if tx.backoff < 16 {
		tx.backoff++
	}
	tx.probes = 0
	tx.progress = now
	tx.holeAt = 0
	tx.freedAt = microseconds(now) // what waited while nothing passed has not queued (backOff)
	if !p.mayRepeat() {
		return tx.progress + p.rto() // T27: nothing is repeated to a source that may be forged
	}
	if p.remoteID != 0 && tx.rtos < hastyRTOs {
		if p.resendEnds(now, CauseRTO); tx.flight > 0 {
			tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
			p.oweAck()
		}
	} else {
		for psn := tx.una; psn != tx.nxt; psn++ {
			if k := tx.at(psn); k.state == pktFlight {
				p.lose(now, psn, k, CauseRTO)
			}
		}
	}
	if p.remoteID != 0 {
		if tx.at(tx.una).state == pktArrived {
			tx.askOwed = true
			p.oweAck()
		} else if tx.rtos >= 2 {
			// A small packet tells a dead peer from a path that does not carry
			// full-size packets (F7).
			tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
			p.clearAgain()
			p.oweAck()
			if tx.rtos >= hardRTOs && tx.probeHeard != 0 && now-tx.probeHeard < 4*p.t.cfg.RTOMax && tx.at(tx.una).size > 512 {
				if int(tx.at(tx.una).size) <= p.t.safe {
					p.t.fail(now, p, Reason{Why: WhyTooBig})
					return never
				}
				p.tell(NewsTooLong)
			}
		}
	} else if tx.rtos >= 2 {
		p.knock(now)
	}
	p.wake()
	return tx.progress + p.rto()
}

// declareHoles takes every packet for lost that a SACK showed missing and that stayed
// missing for the reordering time.
func (p *PDC) declareHoles(now time.Duration) time.Duration {
	tx := &p.tx
	wait := p.reorderTime()
	tx.holeAt = 0
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.state != pktFlight || k.hole == 0 {
			continue
		}
		age := time.Duration(microseconds(now)-k.hole) * time.Microsecond
		if age >= wait-2*time.Microsecond {
			p.lose(now, psn, k, CauseReorder)
		} else if at := now - age; tx.holeAt == 0 || at < tx.holeAt {
			tx.holeAt = at
		}
	}
	if tx.lost > 0 {
		p.wake()
	}
	return p.reorderAt()
}

// releaseWaiting queues waiting packets for resending. Of a message that the target has no
// room for it releases only one packet, which tests whether there is room now; accepted
// releases the rest.
func (p *PDC) releaseWaiting(now time.Duration) {
	tx := &p.tx
	tx.freedAt = microseconds(now)
	asked := false
	var msg uint32 // message of the latest test packet
	// One packet checks a NACK 0E. Without an answer the others go, too.
	check := p.doubted && p.fatal == wire.NackInvDPDCID && !p.checked
	for psn := tx.una; psn != tx.nxt && tx.waiting > 0; psn++ {
		k := tx.at(psn)
		whole := p.wholeRefused(k)
		switch {
		case k.state == pktWaiting && k.cause == nacked(wire.NackInvDPDCID) && check:
			if !p.checked {
				p.checked = true
				tx.release(psn, k)
			}
		case k.state == pktWaiting && !(whole && asked && k.piece.Msg == msg):
			tx.release(psn, k)
		case k.state != pktFlight && k.state != pktLost:
			continue
		}
		if whole {
			asked, msg = true, k.piece.Msg
		}
	}
	if p.checked && check && tx.waiting > 0 {
		// The packet is sent again after RTOs, as any. A target sends no more than 100 such NACKs
		// in 10 ms.
		tx.waitUntil = now + max(4*p.t.cfg.RTOInit, 20*time.Millisecond)
		p.t.arm(p, tx.waitUntil)
	}
	p.wake()
}

// wholeRefused reports whether the target refused a packet because it has no room for the
// message (NACK 09, RUD).
func (p *PDC) wholeRefused(k *txPkt) bool {
	return k.ctl == 0 && k.cause == nacked(wire.NackNoSESMsgAvail) && p.mode == wire.RUD
}

// accepted releases the waiting packets of a message, of which the packet psn was answered.
// On each side of psn it stops at the first packet that is in flight or lost: the answer to
// that one says more.
func (p *PDC) accepted(psn wire.PSN, msg uint32) {
	tx := &p.tx
	before := tx.waiting
	more := func(q wire.PSN) bool {
		k := tx.at(q)
		if k.ctl != 0 || k.piece.Msg != msg || k.state == pktFlight || k.state == pktLost {
			return false
		}
		if k.state == pktWaiting && p.wholeRefused(k) {
			tx.release(q, k)
		}
		return tx.waiting > 0
	}
	for q := psn + 1; q != tx.nxt && more(q); q++ {
	}
	for q := psn; q != tx.una && more(q-1); q-- {
	}
	if tx.waiting != before {
		tx.freedAt = microseconds(p.lastHeard)
		p.wake()
	}
}
