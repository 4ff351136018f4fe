package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// rto is the retransmission timeout with back-off (doubling to
// RTOMax, ±10 % so that many senders do not fall into step).
func (p *PDC) rto() time.Duration {
	cfg := &p.t.cfg
	d := cfg.RTOInit
	if p.ccc != nil {
		d = max(d, p.ccc.RTO())
		if rtt := p.tx.rtt; rtt > 2*p.ccc.SRTT() {
			// What answers take is not the path, of which alone the CCC hears, but
			// pauses of a host, which vary as much as they last.
			d = max(d, 4*rtt)
		}
	}
	for range p.tx.backoff {
		if d >= cfg.RTOMax {
			break
		}
		d *= 2
	}
	d = min(d, cfg.RTOMax)
	// The jitter is a function of the PDC, not of a draw per timer: arming must
	// not change the course of the random source.
	return d + d/10*time.Duration(int(p.id&0xff)-128)/128
}

// tailFloor is at most tailTime, and cheap: it does not ask the CCC.
func (p *PDC) tailFloor() time.Duration {
	d := p.t.rtoLeast
	if p.tx.rtt != 0 {
		d = min(d, p.tx.silence(p.t.cfg.AckDelay))
	}
	return d
}

// silence is tailTime before the RTO and repetition have their say.
func (tx *txDir) silence(ackDelay time.Duration) time.Duration {
	return max(min(2*tx.rtt, 4*tx.minRTT)+2*ackDelay, silenceLeast)
}

// silenceLeast is what a scheduler on a busy machine costs; arbitrary otherwise.
const silenceLeast = 100 * time.Microsecond

// tailTime is how long the last packet may stay unanswered before it is probed
// (UE 3.5.16, Tail_Loss_Time): two round trips or four of the least one, and the
// peer's ACK delay. A path without a sample waits for the RTO, but not for all that a
// back-off made of it: where each packet is lost once none is ever a sample, and each
// flight would wait for RTOMax.
func (p *PDC) tailTime() time.Duration {
	tx := &p.tx
	if tx.rtt == 0 {
		d := p.rto()
		if tx.backoff > 1 {
			d = min(d, 2*p.t.cfg.RTOInit<<min(tx.probes, 16))
		}
		return d
	}
	// A PROBE or its answer may be lost as well: the second comes as soon.
	d := tx.silence(p.t.cfg.AckDelay) << min(tx.probes/2, 16)
	if d <= p.t.rtoLeast {
		return d
	}
	return min(d, p.rto())
}

// reorderTime is how long a hole that few packets overtook may stay open.
func (p *PDC) reorderTime() time.Duration {
	if p.tx.rtt == 0 {
		return p.t.cfg.RTOInit
	}
	return max(p.tx.rtt/4, 20*time.Microsecond) * time.Duration(1+p.tx.patience)
}

// shut reports that nothing is under way and yet nothing may be sent: the ACKs that
// named each packet came, the one that moved CACK did not; or all that is to go again
// lies beyond a window that shrank. Nobody would send that ACK again, so a PROBE asks.
func (p *PDC) shut() bool {
	tx := &p.tx
	switch {
	case tx.una == tx.nxt:
		return tx.nxt.Sub(tx.cack) > tx.window && (p.state == Established || p.state == Quiesce)
	case tx.flight > 0 || tx.held > 0 || tx.lost == 0 || p.remoteID == 0:
		return false
	}
	_, _, ok := p.NextLost()
	return !ok
}

// shutAt is when a shut PDC asks for its window again: it is looked at whenever the PDC is,
// as the time is counted from the first look.
func (p *PDC) shutAt() time.Duration {
	if !p.shut() {
		return never
	}
	return 0
}

// probeShut asks for the window of a shut PDC now and then, and gives it up when CACK
// did not move for PeerTimeout, whatever the peer says. It reports when to look again.
func (p *PDC) probeShut(now time.Duration) time.Duration {
	tx, cfg := &p.tx, &p.t.cfg
	if tx.shutSince == 0 || tx.shutAt != tx.cack {
		tx.shutSince, tx.shutAt = now, tx.cack
	}
	giveUp := tx.shutSince + cfg.PeerTimeout
	if now >= giveUp {
		p.t.fail(now, p, Reason{WhyNoResource, wire.NackPSNOORWindow})
		return never
	}
	at := tx.progress + min(p.tailTime()<<min(tx.probes, 16), cfg.RTOMax)
	if now >= at {
		if tx.probes < 255 {
			tx.probes++
		}
		tx.progress, at = now, now+p.tailTime()
		tx.probeOwed, tx.burst = true, 0
		p.oweAck()
	}
	return min(at, giveUp)
}

// releaseAt is when the back-off of refused packets ends.
func (p *PDC) releaseAt() time.Duration {
	if p.tx.held == 0 || p.shut() {
		return never
	}
	return p.tx.heldUntil
}

// releaseDue lets refused packets go again.
func (p *PDC) releaseDue(now time.Duration) time.Duration {
	p.releaseHeld(now)
	return never
}

// reorderAt is when the oldest hole is taken for a loss.
func (p *PDC) reorderAt() time.Duration {
	if p.tx.holeAt == 0 || p.tx.una == p.tx.nxt || p.shut() {
		return never
	}
	return p.tx.holeAt + p.reorderTime()
}

// keptBack reports whether all that is unanswered is lost: the window or the owner keeps it.
func (p *PDC) keptBack() bool { return p.tx.flight == 0 && p.tx.lost > 0 && !p.shut() }

// lostAt is when the owner is woken for packets that are kept back: they are not overdue.
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

// overdue reports whether an answer that is missing for too long is a reason to act.
func (p *PDC) overdue() bool {
	tx := &p.tx
	if tx.una == tx.nxt || p.shut() || p.keptBack() {
		return false
	}
	return tx.flight != 0 || tx.held == 0 || tx.arrived != 0
}

// rtoAt is when all in flight is taken for lost.
func (p *PDC) rtoAt() time.Duration {
	if !p.overdue() {
		return never
	}
	return p.tx.progress + p.rto()
}

// tailAt is when the silence after the last packet is broken.
func (p *PDC) tailAt() time.Duration {
	tx := &p.tx
	if tx.flight == 0 || tx.probes >= tailProbes || p.remoteID == 0 || !p.initiator && !p.proven || !p.overdue() {
		return never
	}
	return max(tx.progress, tx.lastSend) + p.tailTime()
}

// probeTail breaks the silence after the last packet by a PROBE (UE 3.5.16),
// which is small: its answer shows what is missing, and nothing is sent again
// that only waits for a peer that is not running. Once the lowest and the highest
// packet in flight go again: some peers know no PROBE.
func (p *PDC) probeTail(now time.Duration) time.Duration {
	tx := &p.tx
	tx.probes++
	p.tell(NewsSilent)
	if tx.probes == dataProbe {
		p.resendEnds(now)
	} else {
		tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
		p.oweAck()
	}
	if tx.probes >= tailProbes {
		return never
	}
	return now + p.tailTime()
}

// resendEnds sends the lowest and the highest packet in flight again.
func (p *PDC) resendEnds(now time.Duration) {
	tx := &p.tx
	for psn := tx.nxt - 1; !psn.Before(tx.una); psn-- {
		if k := tx.at(psn); k.state == pktFlight {
			p.lose(now, psn, k, CauseTail)
			break
		}
	}
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.state == pktFlight {
			p.lose(now, psn, k, CauseTail)
		}
		if k.state != pktDone && k.state != pktArrived {
			break
		}
	}
	p.wake()
}

// onRTO takes everything in flight for lost. What a SACK reported as arrived is
// asked about instead (UE 3.5.20.3).
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
	if !p.initiator && !p.proven {
		return tx.progress + p.rto() // T27: nothing is repeated to a source that may be forged
	}
	for psn := tx.una; psn != tx.nxt; psn++ {
		if k := tx.at(psn); k.state == pktFlight {
			p.lose(now, psn, k, CauseRTO)
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
			p.oweAck()
			if tx.rtos >= bigRTOs && tx.probeHeard != 0 && now-tx.probeHeard < 4*p.t.cfg.RTOMax && tx.at(tx.una).size > 512 {
				p.t.fail(now, p, Reason{Why: WhyTooBig})
				return never
			}
		}
	}
	p.wake()
	return tx.progress + p.rto()
}

// declareHoles takes every packet for lost that a SACK showed missing while a
// later one had arrived, and that stayed missing for the reordering time.
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

// releaseHeld lets refused packets go again. Of a message that the target has no room
// for, one goes, for all: see accepted.
func (p *PDC) releaseHeld(now time.Duration) {
	tx := &p.tx
	asked := false
	var msg uint32 // asked about last
	for psn := tx.una; psn != tx.nxt && tx.held > 0; psn++ {
		k := tx.at(psn)
		whole := p.wholeRefused(k)
		switch {
		case k.state == pktHeld && !(whole && asked && k.ref.Msg == msg):
			tx.release(psn, k)
		case k.state != pktFlight && k.state != pktLost:
			continue
		}
		if whole {
			asked, msg = true, k.ref.Msg
		}
	}
	p.wake()
}

// wholeRefused reports whether a packet was refused with its message: the target has no
// room for that, and is short of nothing else.
func (p *PDC) wholeRefused(k *txPkt) bool {
	return k.ctl == 0 && k.cause == nacked(wire.NackNoSESMsgAvail) && p.mode == wire.RUD
}

// accepted lets what was refused of the message of an answered packet go again, as far
// as none is under way: that says more when it is answered.
func (p *PDC) accepted(psn wire.PSN, msg uint32) {
	tx := &p.tx
	held := tx.held
	more := func(q wire.PSN) bool {
		k := tx.at(q)
		if k.ctl != 0 || k.ref.Msg != msg || k.state == pktFlight || k.state == pktLost {
			return false
		}
		if k.state == pktHeld && p.wholeRefused(k) {
			tx.release(q, k)
		}
		return tx.held > 0
	}
	for q := psn + 1; q != tx.nxt && more(q); q++ {
	}
	for q := psn; q != tx.una && more(q-1); q-- {
	}
	if tx.held != held {
		p.wake()
	}
}
