package pds

import (
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// Every PSN that was sent and is not finished lies in the transmit ring with one of
// five states. This file alone changes a state, keeps the counters of the states, and
// tells the congestion context what became of a packet.
//
//	Push ────────▶ in flight ◀───────── resend ─────────┐
//	                │  │  │ ▲                           │
//	                │  │  │ └─ takenBack ─┐             │
//	                │  │  └── arrive ──▶ arrived        │   arrived: a SACK shows it
//	                │  └── setWaiting ─▶ waiting        │   waiting: refused
//	                │                     │ release     │
//	                └──────── lose ──────▶└──────────▶ lost
//
//	each of the four ── setFinished ──▶ finished: answered, or failed with its PDC
//
// A lost or waiting packet that a SACK shows becomes arrived, too: it need not go again.
const (
	pktFlight   uint8 = iota + 1 // sent, nothing known
	pktLost                      // to be sent again as soon as the window allows
	pktWaiting                   // refused; to be sent again at tx.waitUntil
	pktArrived                   // a SACK said it arrived; its response is not known
	pktFinished                  // answered
)

// A txPkt is a PSN that was sent. The encoded bytes are not kept: a resend is
// encoded anew from its piece.
type txPkt struct {
	piece  piece.Piece
	first  time.Duration // first transmission
	sentAt time.Duration // last transmission
	seq    uint32        // number of the last transmission, counts all of the PDC
	size   uint16        // nominal bytes
	path   uint8
	state  uint8 // pktFlight to pktFinished
	// The fields below are 0 in a packet that is sent for the first time.
	tries  uint8 // resends, saturating
	ctl    uint8 // 1 + CtlType of a control packet that consumes a PSN, 0 for a request
	cause  Cause // why it is sent again
	gap    bool  // its latest resend was because of a hole
	nacked bool  // refused at least once, so which transmission arrived is not known
	fresh  bool  // lost, but not yet sent under its PSN
	// unknown counts the NACKs 0E that named the packet, at most one for each transmission.
	unknown uint8
	hole    uint32 // when a SACK first showed its last transmission missing, in µs; 0 if none did
}

// at is the packet with a PSN, which must be from una on and below nxt.
func (tx *txDir) at(psn wire.PSN) *txPkt { return &tx.ring[uint32(psn)&uint32(len(tx.ring)-1)] }

// getRing returns a ring of n packets. n must be a power of two.
func (t *Table) getRing(n int) []txPkt {
	c := bits.Len(uint(n - 1))
	if l := t.rings[c]; len(l) > 0 {
		r := l[len(l)-1]
		t.rings[c] = l[:len(l)-1]
		t.ringKept -= n
		return r
	}
	return make([]txPkt, 1<<c)
}

// putRing takes the ring from a PDC and keeps it for the next PDC that needs one. The
// caller must have copied the packets in the ring that it still needs.
func (t *Table) putRing(p *PDC) {
	n := len(p.tx.ring)
	if n == 1 {
		return // tx.one
	}
	if c := bits.Len(uint(n - 1)); t.ringKept+n <= maxRingKept {
		t.rings[c] = append(t.rings[c], p.tx.ring)
		t.ringKept += n
	}
	p.tx.ring = p.tx.one[:]
	p.tx.ringHint = uint8(min(n, maxRingHint))
}

// grow replaces the ring by one with room for more packets.
func (p *PDC) grow() {
	tx := &p.tx
	old := tx.ring
	nw := p.t.getRing(max(2*len(old), minRing, int(tx.ringHint)))
	for psn := tx.una; psn != tx.nxt; psn++ {
		nw[uint32(psn)&uint32(len(nw)-1)] = old[uint32(psn)&uint32(len(old)-1)]
	}
	p.t.putRing(p)
	tx.ring = nw
}

// Push gives a new packet the next PSN; Header appends its header. CanPush must have
// returned true. n is the nominal size, path the index of the local port.
func (p *PDC) Push(now time.Duration, what piece.Piece, n int, path uint8) {
	t, tx := p.t, &p.tx
	t.Cause = CauseNew
	psn := tx.nxt
	out := psn.Sub(tx.una)
	if tx.flight == 0 {
		tx.progress = now // the RTO of this packet begins now
		if out == 0 {
			tx.owedSince = now
		}
	}
	if int(out) == len(tx.ring) {
		p.grow()
	}
	k, seq := tx.at(psn), tx.seq+1
	tx.nxt, tx.seq, tx.lastSend = psn+1, seq, now
	tx.flight++
	// Set field by field: the compiler would build a composite literal twice.
	k.piece.Msg, k.piece.Off, k.piece.Len, k.piece.Kind = what.Msg, what.Off, what.Len, what.Kind
	k.first, k.sentAt, k.seq, k.size, k.path = now, now, seq, uint16(n), path
	k.state, k.tries, k.ctl, k.cause, k.gap, k.nacked, k.fresh, k.unknown, k.hole = pktFlight, 0, 0, 0, false, false, false, 0, 0
	if tx.nxt.Sub(p.start) == t.cfg.MaxRange {
		t.rangeUsed(now, p)
	}
	if p.heapAt > now+t.tailLeast {
		p.armTail(now)
	}
	tx.wantAR = p.ccc != nil && p.ccc.OnSend(now, n)
}

// rangeUsed ends a PDC in order that has used MaxRange PSNs (F34). A message that has begun goes on.
// A target asks for the end (ReturnHeader).
func (t *Table) rangeUsed(now time.Duration, p *PDC) {
	if p.initiator {
		t.Close(now, p)
	}
}

// unsend undoes the sending of a packet: Resend will send it as if for the first time.
func (p *PDC) unsend(now time.Duration, psn wire.PSN, k *txPkt, why Cause) {
	if k.state == pktFlight {
		p.lose(now, psn, k, why)
	} else {
		p.tx.count(k.state, -1)
		k.cause = why
		p.tx.queue(psn, k)
	}
	k.tries, k.hole, k.gap, k.nacked, k.fresh, k.unknown = 0, 0, false, false, true, 0
	if k.piece.Void() {
		k.tries, k.nacked = 1, true // as Void has it
	}
}

// Resend sends the lost packet that NextLost found again and returns it. CanResend must have returned
// true.
func (p *PDC) Resend(now time.Duration, path uint8) Again {
	tx := &p.tx
	p.NextLost()
	psn := tx.pick
	k := tx.at(psn)
	if k.state != pktLost {
		panic("BUG: pds: Resend without CanResend")
	}
	p.t.Cause = k.cause
	p.t.Stats.resent(k.cause)
	if tx.flight == 0 {
		tx.progress = now
	}
	tx.lost--
	tx.flight++
	tx.seq++
	k.state, k.sentAt, k.seq, k.path, k.hole = pktFlight, now, tx.seq, path, 0
	if k.fresh {
		k.fresh, k.first = false, now
	} else if k.tries < 255 {
		k.tries++
	}
	tx.lastSend = now
	if p.ccc != nil {
		p.ccc.OnSend(now, int(k.size))
	}
	p.t.arm(p, now+p.tailTime())
	if k.ctl != 0 {
		return Again{IsCP: true, CP: p.ctlHeader(psn, k)}
	}
	pc := k.piece
	if pc.Void() && !pc.Returns() {
		if pc.Len = 0; p.inOrder() {
			pc.Len = uint32(tx.nxt.Sub(psn) - 1) // the PDC is stopped: nothing new has left since
		}
	}
	return Again{Req: p.header(psn, k), Piece: pc}
}

// resent counts a retransmission.
func (s *Stats) resent(c Cause) {
	switch c {
	case CauseRTO:
		s.RtxRTO++
	case CauseSACK, CauseReorder, CauseProbe:
		s.RtxSACK++
	case CauseTail:
		s.RtxProbe++
	case CauseClose, CauseTooLong, CauseProbeOpen, CauseOpen: // sent for the first time
	default: // a NACK
		s.RtxNack++
	}
}

// lose takes a packet out of flight, to be sent again because of why.
func (p *PDC) lose(now time.Duration, psn wire.PSN, k *txPkt, why Cause) {
	k.cause = why
	if why < causeNack {
		k.gap = why == CauseSACK || why == CauseReorder || why == CauseProbe
	}
	p.tx.flight--
	p.tx.queue(psn, k)
	p.leftFlight(now, k)
	if int(k.size) > p.t.safe {
		p.lostLong(now, psn, k)
	}
}

// setWaiting takes a refused packet out of flight. It waits for release.
func (p *PDC) setWaiting(now time.Duration, k *txPkt, code wire.NackCode) {
	k.state, k.cause = pktWaiting, nacked(code)
	p.tx.flight--
	p.tx.waiting++
	p.leftFlight(now, k)
}

// release queues a waiting packet for resending.
func (tx *txDir) release(psn wire.PSN, k *txPkt) {
	tx.waiting--
	tx.queue(psn, k)
}

// queue makes a packet a lost one. Resend sends lost packets in the order of PSN.
func (tx *txDir) queue(psn wire.PSN, k *txPkt) {
	k.state = pktLost
	if tx.lost == 0 || psn.Before(tx.lostHint) {
		tx.lostHint = psn
	}
	tx.lost++
}

// arrive notes that a packet arrived whose response is not known. It returns the bytes that
// leave flight.
func (tx *txDir) arrive(k *txPkt) (newly int) {
	newly = tx.leave(k)
	k.state = pktArrived
	tx.arrived++
	return newly
}

// takenBack returns an arrived packet to flight, because the target reported it as arrived
// and now denies having it. Either the target lost the response, or it kept the packet
// early on a ROD PDC and its message layer refused it later. The target may refuse all
// packets behind this one until it is sent again.
func (p *PDC) takenBack(now time.Duration, k *txPkt) {
	if k.state != pktArrived {
		return
	}
	tx := &p.tx
	k.state = pktFlight
	tx.arrived--
	tx.flight++
	if p.ccc != nil {
		p.ccc.OnSend(now, int(k.size))
	}
}

// setFinished finishes a packet. It returns the bytes that leave flight.
func (tx *txDir) setFinished(k *txPkt) (newly int) {
	newly = tx.leave(k)
	k.state = pktFinished
	return newly
}

// finishFlight is setFinished for a packet in flight.
func (tx *txDir) finishFlight(k *txPkt) {
	tx.flight--
	k.state = pktFinished
}

// leave removes a packet from the counter of its state. It returns the bytes that leave
// flight.
func (tx *txDir) leave(k *txPkt) (newly int) {
	if k.state == pktFlight {
		newly = int(k.size)
	}
	tx.count(k.state, -1)
	return newly
}

// count adds by to the counter of a state.
func (tx *txDir) count(state uint8, by int32) {
	switch state {
	case pktFlight:
		tx.flight += by
	case pktLost:
		tx.lost += by
	case pktWaiting:
		tx.waiting += by
	case pktArrived:
		tx.arrived += by
	}
}

// failPackets finishes every packet, reports each unfinished request as failed, and takes
// the packets out of flight.
func (t *Table) failPackets(p *PDC, why Reason) {
	tx := &p.tx
	unrun, msg := false, uint32(0) // of the latest packet, and its message
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if why.Born != 0 && k.ctl == 0 && p.initiator && (psn == tx.una || k.piece.Msg != msg) {
			unrun, msg = p.unrun(psn, why.Born), k.piece.Msg
		}
		if k.state == pktFlight && p.ccc != nil {
			p.ccc.OnGone(int(k.size))
		}
		if k.state != pktFinished {
			k.state = pktFinished
			if k.ctl == 0 {
				t.news.put(News{Kind: NewsFailed, PDC: p, Piece: k.piece, Why: why, Unrun: unrun})
			}
		}
	}
	tx.una = tx.nxt
	tx.flight, tx.lost, tx.waiting, tx.arrived, tx.voids = 0, 0, 0, 0, 0
}

// leftFlight tells the congestion context, and the path choice, of a packet that left
// flight unanswered because of k.cause.
func (p *PDC) leftFlight(now time.Duration, k *txPkt) {
	n, why := int(k.size), k.cause
	switch {
	case why >= causeNack:
		// UE 3.6.13: a trimmed packet is a sign of congestion. Other NACKs are not; code 03
		// is about the way back. With credit the last hop tells nothing new: its destination
		// grants what that hop takes.
		if p.ccc != nil {
			p.ccc.OnNack(now, n, why == nacked(wire.NackTrimmed) || why == nacked(wire.NackTrimmedLastHop) && !p.credited())
		}
	case why == CauseTail, why == CauseRenumber, why == CauseClose, why == CauseTooLong, why == CauseProbeOpen, why == CauseOpen:
		p.gone(n) // OnSend counts it again
	default:
		if p.ccc != nil {
			p.ccc.OnLoss(now, n, why == CauseRTO)
		}
		p.pathNews(k, PathLost)
	}
}

// gone takes n bytes out of flight that no ACK will report.
func (p *PDC) gone(n int) {
	if p.ccc != nil && n > 0 {
		p.ccc.OnGone(n)
	}
}

// reported tells the congestion context of an ACK, see CCC.OnAck.
func (p *PDC) reported(now time.Duration, newly int, rtt time.Duration, ce bool, pend uint8, restore bool) {
	if p.ccc != nil {
		p.ccc.OnAck(now, newly, rtt, ce, pend, restore)
	}
}

// taken tells the congestion context that others take the processor of this host.
func (p *PDC) taken() {
	if p.ccc != nil {
		p.ccc.OnTaken()
	}
}

// inFlight is the number of bytes that the congestion window counts, of this PDC and of
// those that share the window.
func (p *PDC) inFlight() int {
	if p.ccc == nil {
		return 0
	}
	return p.ccc.InFlight()
}

// checkTx checks that the counters of the sending side match its packets.
func (p *PDC) checkTx() {
	if !invariant.On {
		return
	}
	tx := &p.tx
	var n [pktFinished + 1]int32
	bytes := 0
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		n[k.state]++
		if k.state == pktFlight {
			bytes += int(k.size)
		}
		if k.state == pktLost && psn.Before(tx.lostHint) {
			invariant.Check(false, "pds: %v: lost packet %#x before the hint %#x", p, uint32(psn), uint32(tx.lostHint))
		}
	}
	if n[pktFlight] != tx.flight || n[pktLost] != tx.lost || n[pktWaiting] != tx.waiting || n[pktArrived] != tx.arrived {
		invariant.Check(false, "pds: %v: counted %v", p, n)
	}
	if p.ccc != nil && p.inFlight() < bytes {
		invariant.Check(false, "pds: %v: %d bytes in flight", p, bytes)
	}
}
