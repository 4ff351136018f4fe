package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file deals with paths that lose all packets above a size without a word (F7). It finds
// out that a path is one of them, and takes back what was sent and is too long. The owner
// chooses the size of new packets, and asks by padded PROBEs for the size that the path carries.

const (
	// safePayload is the payload in bytes that every path should carry.
	safePayload = 1024
	// A packet longer than that which was lost longLosses times and for longTime, each time
	// while later ones arrived, is too long for the path if no packet of its length arrived in
	// that time. From the loss longDoubt on, with each of which a PROBE of safePayload leaves,
	// only those losses count since whose transmission such a PROBE was answered: a path that
	// loses nearly all packets but the smallest, for whatever reason, would lose shorter ones,
	// too. With 30 % loss that happens by chance once in 400,000 to a packet that is alone in the
	// window, with 85 % once in 150. A queue that has room for short packets only is empty before
	// longTime is over. The search for the size that the path carries soon corrects a mistake.
	longLosses = 8
	longDoubt  = 2
	longTime   = 50 * time.Millisecond
	// A peer that never answers a padded PROBE may ignore them. Then weakLosses are enough
	// while PROBEs without padding are answered.
	weakLosses = 16
	// sizedProbe is set in the number of a PROBE that is padded. safeProbe is that of one of
	// safePayload, in the two bits that are the number of the size.
	sizedProbe = 1 << 15
	safeProbe  = 3
)

// bare is the nominal size of a request without payload.
func (t *Table) bare() int { return t.reqLen() + wire.ReqStdLen + t.cfg.Nominal }

// lostLong counts the loss of a packet that a path may not carry, which is about to be sent
// again because of k.cause. It follows one packet at a time, the oldest.
func (p *PDC) lostLong(now time.Duration, psn wire.PSN, k *txPkt) {
	tx := &p.tx
	safe := tx.safeHeard != 0 && int32(tx.safeHeard-microseconds(k.sentAt)) > 0
	switch k.cause {
	case CauseSACK, CauseReorder, CauseProbe, nacked(wire.NackRODOOO): // later ones arrived
	case CauseRTO:
		if tx.probeHeard <= k.sentAt && !safe {
			return // nothing arrives at all
		}
	default:
		return
	}
	if tx.longSince == 0 || psn.Before(tx.long) || !p.missing(tx.long) {
		tx.long, tx.longSince, tx.longLost, tx.longWeak = psn, k.sentAt, 0, 0
	}
	if psn != tx.long {
		return
	}
	switch {
	case safe || tx.longLost < longDoubt:
		tx.longLost = min(tx.longLost, 254) + 1
	default:
		tx.longWeak = min(tx.longWeak, 254) + 1
	}
	if tx.longLost >= longDoubt {
		p.t.ProbeSize(p, safeProbe, p.t.reqLen()+wire.ReqStdLen+safePayload-wire.CPLen)
	}
	if tx.longLost < longLosses && (tx.longWeak < weakLosses || tx.safeHeard != 0) || now-tx.longSince < longTime {
		return
	}
	for q := tx.una; q != tx.nxt; q++ {
		if o := tx.at(q); o.size >= k.size && (o.state == pktArrived || o.state == pktFinished) && o.sentAt >= tx.longSince {
			tx.longSince, tx.longLost, tx.longWeak = now, 0, 0
			return
		}
	}
	p.tell(NewsTooLong)
}

// missing reports whether a PSN is outstanding, as a packet that a path may not carry.
func (p *PDC) missing(psn wire.PSN) bool {
	tx := &p.tx
	if psn.Before(tx.una) || !psn.Before(tx.nxt) {
		return false
	}
	k := tx.at(psn)
	return int(k.size) > p.t.safe && k.state != pktArrived && k.state != pktFinished
}

// knock sends a NO_OP if only packets are outstanding that the path may not carry, and nothing
// of the target was ever heard. Its answer tells such a path from a target that is not there. A
// NO_OP is the smallest packet that opens a PDC. As long as it is not answered it goes again before
// all others, which may fill the window.
func (p *PDC) knock(now time.Duration) {
	tx := &p.tx
	if tx.hasFirst || !p.missing(tx.una) || !p.initiator || tx.nxt.Sub(p.start) > 4000 {
		return
	}
	psn := tx.nxt
	what, n := p.t.owner.Noop(tx.at(tx.una).piece)
	p.Push(now, what, n, 0)
	p.unsend(now, psn, tx.at(psn), CauseProbeOpen)
	tx.first, tx.hasFirst = psn, true
}

// Herald gives a PDC that opens a NOOP, the smallest packet that opens one. It goes again before all others as
// long as no target has answered. Nothing happens if the PDC has one already.
func (p *PDC) Herald(now time.Duration) {
	tx := &p.tx
	if tx.hasFirst || p.remoteID != 0 || !p.initiator || tx.nxt.Sub(p.start) > 4000 {
		return
	}
	tx.first, tx.hasFirst = tx.una, true
	if tx.una == tx.nxt || tx.at(tx.una).ctl != 1+uint8(wire.CtlNoop) { // else Announce sent one
		tx.first = tx.nxt
		p.Push(now, piece.Piece{}, p.t.ctlNominal(), 0)
		k := tx.at(tx.first)
		k.ctl = 1 + uint8(wire.CtlNoop)
		p.unsend(now, tx.first, k, CauseOpen)
	}
}

// knocks reports whether the NO_OP of knock, or the NOOP of Herald, is in flight.
func (p *PDC) knocks() bool {
	tx := &p.tx
	return tx.hasFirst && !tx.first.Before(tx.una) && tx.at(tx.first).state == pktFlight
}

// Void takes back every outstanding packet that is not known to have arrived and is longer than
// a path carries for sure. Of a ROD PDC that this side opened it takes all back, because those behind a
// packet that was taken back must not overtake it.
//
// A PSN that was used cannot be given up, and the target may yet get the packet, or have it. So
// a void packet takes the place of each, under its PSN (UE 3.5.12: a target executes one packet
// for a PSN). The target answers it by an error, which is guaranteed; any other answer is that
// to the packet itself. So the answer tells for sure whether the target executed the packet,
// and that it never will.
func (t *Table) Void(now time.Duration, p *PDC) {
	tx := &p.tx
	if p.state == Closed || p.state == CloseAckWait {
		return
	}
	long := false
	for psn := tx.una; psn != tx.nxt && !long; psn++ {
		long = p.missing(psn) && tx.at(psn).ctl == 0
	}
	if long {
		t.takeBack(now, p)
	}
}

// VoidBlocked is Void of a ROD PDC for the sake of a packet that is not too long: it waits for a
// receive, and stands before what was taken back and sent again (NewsBlocks).
func (t *Table) VoidBlocked(now time.Duration, p *PDC) {
	if p.state != Closed && p.state != CloseAckWait {
		t.takeBack(now, p)
	}
}

// takeBack is Void of a PDC on which it is needed.
func (t *Table) takeBack(now time.Duration, p *PDC) {
	tx := &p.tx
	n := tx.voids
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.ctl != 0 || k.state == pktArrived || k.state == pktFinished || k.piece.Kind&(piece.Void|piece.Error|piece.End|piece.Noop) != 0 || !p.inOrder() && int(k.size) <= t.safe {
			continue
		}
		switch k.state {
		case pktFlight:
			p.lose(now, psn, k, CauseTooLong)
		case pktWaiting:
			tx.release(psn, k)
		}
		k.cause, k.gap, k.nacked, k.hole = CauseTooLong, false, true, 0
		k.piece.Kind |= piece.Void
		k.size = uint16(t.bare())
		if k.fresh {
			k.tries = 1 // of a void packet Resend and the fast paths of ACKs must know
		}
		tx.voids++
		t.Stats.TooLong++
	}
	if tx.voids == n {
		return
	}
	if p.inOrder() {
		tx.tookBack, tx.rough = true, true
	}
	if p.state == AckWait {
		p.state = Quiesce // parts of messages will be sent once more
	}
	tx.backoff, tx.rtos, tx.probes, tx.longSince, tx.progress = 0, 0, 0, 0, now
	t.arm(p, now+p.tailTime())
	p.wake()
}

// Voids reports whether void packets are outstanding.
func (p *PDC) Voids() bool { return p.tx.voids&^held != 0 }

// held in txDir.voids says that the owner holds the PDC.
const held = 1 << 30

// Hold keeps a ROD PDC Stopped though no void packets are outstanding, until it is called with false.
func (p *PDC) Hold(on bool) {
	p.tx.voids &^= held
	if on {
		p.tx.voids |= held
	}
}

// Stopped reports whether no new packet may leave: void packets are outstanding on a ROD PDC, and
// what they stand for goes first; or the owner holds it.
func (p *PDC) Stopped() bool { return p.inOrder() && p.tx.voids != 0 }

// inOrder reports whether packets that are sent must not overtake each other. Read data may, by ROD, too:
// each part has its place.
func (p *PDC) inOrder() bool { return p.mode == wire.ROD && p.initiator }

// ProbeSize sends a PROBE with n bytes behind its header, if the target's PDCID is known. If it is
// answered NewsCarried has its number, of which ProbeSize sets the highest bit. The two lowest
// are 3 if n is as much as every path should carry. Nothing happens if it is lost.
func (t *Table) ProbeSize(p *PDC, number uint16, n int) {
	if p.remoteID == 0 {
		return
	}
	t.Stats.CPTx[wire.CtlProbe]++
	var a [32]byte
	b := wire.CP{Ctl: wire.CtlProbe, ProbeOpaque: number | sizedProbe, SPDCID: p.id, DPDCID: p.remoteID, Payload: uint32(p.tx.una)}.Append(a[:0])
	if l := t.pushLoose(p.remote, 0, b); l != nil {
		l.Pad = uint16(n)
	}
}
