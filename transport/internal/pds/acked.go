package pds

import (
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// finish ends a packet: its answer is known.
func (p *PDC) finish(psn wire.PSN, k *txPkt, rsp *wire.Rsp) (newly int) {
	tx := &p.tx
	newly = tx.setFinished(k)
	if k.nacked {
		// What it was refused for is there again: others are refused anew.
		tx.waitFor, tx.shortSince = 0, 0
		if tx.waiting > 0 && k.ctl == 0 {
			p.accepted(psn, k.piece.Msg)
		}
	}
	if k.tries == 0 {
		// It was not sent twice: the timeout in force is long enough (Karn).
		tx.backoff = 0
	}
	if k.ctl == 0 {
		p.t.news.put(News{Kind: NewsAnswered, PDC: p, Piece: k.piece, Rsp: rsp})
	} else {
		p.ctlAnswered(wire.CtlType(k.ctl - 1))
	}
	return newly
}

// passed is arrivedAs and finish for what CACK passes up to the first packet that may
// have more to tell than that it arrived. It returns their nominal bytes.
func (p *PDC) passed(newest *time.Duration) (newly int) {
	t, tx := p.t, &p.tx
	if t.cfg.Paths > 1 {
		return 0
	}
	msgs := t.news.msgs
	had := len(msgs)
	for ; tx.una != tx.nxt && !tx.una.After(tx.cack); tx.una++ {
		k := tx.at(tx.una)
		if k.state != pktFlight || k.ctl != 0 || k.tries != 0 || k.nacked || k.hole != 0 {
			break
		}
		if int32(k.seq-tx.sureSeq) > 0 {
			tx.sureSeq, *newest = k.seq, k.sentAt
			if int32(k.seq-tx.topSeq) > 0 {
				tx.topSeq = k.seq
			}
		}
		newly += int(k.size)
		tx.finishFlight(k)
		tx.backoff = 0
		msgs = append(msgs, k.piece.Msg)
	}
	if t.news.msgs = msgs; len(msgs) > had {
		t.news.put(News{Kind: NewsPassed, PDC: p, Msgs: msgs[had:]})
	}
	return newly
}

// odd reports whether a packet that arrived has more to tell than that.
func (p *PDC) odd(k *txPkt) bool { return k.tries != 0 || k.hole != 0 || p.t.cfg.Paths > 1 }

// oddArrival learns from an odd packet that arrived whether it was sent again in
// vain, what its path is like and how much that reorders. echo and certain are as
// of noteSpurious.
func (p *PDC) oddArrival(now time.Duration, k *txPkt, echo, certain bool) {
	tx := &p.tx
	p.noteSpurious(now, k, echo, certain)
	p.pathNews(k, PathGood)
	if over := int32(tx.topSeq - k.seq); over > 0 && k.hole != 0 && k.tries == 0 && uint32(over) >= tx.reorder {
		// It was missing when later ones were there, and was not sent again:
		// reordered.
		tx.reorder = min(uint32(over)+1, maxReorder)
		tx.patience = min(tx.patience+1, maxPatience)
	}
}

// arrivedAs notes the transmission number of something that arrived.
func (tx *txDir) arrivedAs(k *txPkt, newest *time.Duration) {
	if int32(k.seq-tx.topSeq) > 0 {
		tx.topSeq = k.seq
	}
	if k.tries == 0 && int32(k.seq-tx.sureSeq) > 0 {
		tx.sureSeq, *newest = k.seq, k.sentAt
	}
}

// measured takes in how long the latest packet took of which an ACK told: not
// packets before it, which earlier ACKs may have told of that were lost. rtt is what
// the packet says that the ACK names; measured returns what counts.
func (p *PDC) measured(in *Arrival, newest, rtt time.Duration, hole bool) time.Duration {
	tx := &p.tx
	if newest == 0 {
		return rtt
	}
	d := in.Now - newest
	tx.least(d)
	tx.smooth(d)
	if rtt == 0 && hole && p.mode == wire.ROD && !in.Paused {
		// A ROD target names only what is in order. Behind a hole no ACK
		// measures anything, and the window would follow old news.
		return d
	}
	return rtt
}

// least takes in a round trip as the least one.
func (tx *txDir) least(d time.Duration) {
	if tx.minRTT == 0 || d < tx.minRTT {
		tx.minRTT = d
	}
}

// smooth takes in how long a packet took, with the peer's ACK delay and the pauses of
// both sides: so long an answer may take.
func (tx *txDir) smooth(d time.Duration) {
	if tx.rtt == 0 {
		tx.rtt = d
	} else {
		tx.rtt += (d - tx.rtt) / 4
	}
}

// newest reports whether no ACK seen so far was made after this one, by the
// bytes that the peer had received (UE 3.6.9.2: rcvd_bytes). Then all that the
// others had seen is older than its bitmap.
func (tx *txDir) newest(s wire.NSCC) bool {
	const shift = 32 - 24 // rcvd_bytes has 24 bits and wraps
	n := s.RcvdBytes() << shift
	if n == 0 {
		return false // no state, a peer that does not count, or one that has wrapped
	}
	d := int32(n - tx.ackOrder)
	if d > 0 || tx.ackOrder == 0 {
		tx.ackOrder, tx.pastSeq = n, tx.sureSeq
		return true
	}
	return d == 0
}

// sample is the round trip that an ACK measured: d since the packet that it names
// was sent, less the time that the target took. 0: none, because the packet waited
// there for nobody knows how long, or the ACK here: that says nothing of the path.
func (tx *txDir) sample(d time.Duration, s wire.NSCC, paused bool) time.Duration {
	st := s.ServiceTime()
	rtt := d - time.Duration(st)*128
	if rtt <= 0 || st == 0xffff || paused {
		return 0
	}
	tx.least(rtt)
	return rtt
}

// ReceivePlain is ReceiveAckOf for nearly every ACK: a plain one that names the
// oldest request outstanding on an established PDC, which was sent once. That the packet
// was answered is no News: its Piece.Msg is returned. It reports false, and has done
// nothing, where there may be more to an ACK: then ReceiveAckOf looks at it.
func (t *Table) ReceivePlain(in *Arrival, p *PDC, h *wire.PlainAck) (msg uint32, ok bool) {
	if p == nil || p.state != Established || p.tx.rough || p.tx.lost != 0 {
		return 0, false
	}
	tx := &p.tx
	una := tx.una
	if una == tx.nxt || h.CACK() != una || h.SPDCID() != p.remoteID || p.who != in.Who || in.From.Addr() != p.remote.Addr() {
		return 0, false
	}
	// What waits for the reordering time makes the PDC rough: no hole.
	k := tx.at(una)
	if k.state != pktFlight || k.ctl != 0 || k.tries != 0 || t.cfg.Paths > 1 {
		return 0, false
	}
	p.strikes = 0
	p.heard(in.Now)
	s, msg, size, seq, d := h.NSCC(), k.piece.Msg, int(k.size), k.seq, in.Now-k.sentAt
	tx.newest(s)
	rtt := tx.sample(d, s, in.Paused)
	tx.finishFlight(k)
	tx.backoff = 0
	if int32(seq-tx.sureSeq) > 0 { // arrivedAs and measured
		tx.sureSeq = seq
		if int32(seq-tx.topSeq) > 0 {
			tx.topSeq = seq
		}
		tx.smooth(d)
		if rtt == 0 { // else it is less
			tx.least(d)
		}
	}
	tx.cack = una
	for tx.una = una + 1; tx.una != tx.nxt && tx.at(tx.una).state == pktFinished; {
		tx.una++ // was named before
	}
	tx.offered(una, h.MPR())
	// The rest is acked.
	p.reported(in.Now, size, rtt, false, s.CwndPend(), s.RestoreCwnd())
	tx.progress = in.Now
	tx.probes, tx.rtos = 0, 0
	if tx.una == tx.nxt {
		p.becomeIdle(in.Now)
		p.armShut(in.Now)
	} else {
		p.goesOn(in.Now, una)
	}
	if p.Awaited {
		p.wake()
	}
	return msg, true
}

// ReceiveAck processes an ACK, ACK_CC or ACK_CCX. rsp is the SES response it
// carries, nil if none; borrowed. It reports the PDC, or nil when the ACK was
// dropped (and counted).
func (t *Table) ReceiveAck(in *Arrival, a *wire.Ack, rsp *wire.Rsp) *PDC {
	return t.ReceiveAckOf(in, t.Lookup(a.DPDCID), a, rsp)
}

// ReceiveAckOf is ReceiveAck for an owner that has looked up the DPDCID already.
func (t *Table) ReceiveAckOf(in *Arrival, p *PDC, a *wire.Ack, rsp *wire.Rsp) *PDC {
	if p == nil {
		t.Stats.DropNoPDC++ // T28: an ACK never causes an answer
		return nil
	}
	if in.From.Addr() != p.remote.Addr() {
		t.Stats.DropSource++
		t.guessed(in.Now, in.From)
		return nil
	}
	tx := &p.tx
	if p.remoteID == 0 {
		if a.SPDCID == 0 {
			t.Stats.DropHeader++
			return nil
		}
	} else if a.SPDCID != p.remoteID {
		t.Stats.DropSource++
		t.guessed(in.Now, in.From)
		return nil
	}
	if p.who != in.Who && t.foreign(p, in.Who) {
		return nil
	}
	// T9: CACK, ACK_PSN and SACK name only what was sent, else nothing of the
	// packet counts. A CACK from before the window is an old ACK.
	if a.CACK.Sub(p.start-1) < 0 {
		t.Stats.DropStale++ // of another life under the same PDCID
		t.guessed(in.Now, in.From)
		return nil
	}
	isProbe := a.Flags&wire.AckFlagP != 0
	if !a.CACK.Before(tx.nxt) || !isProbe && !a.AckPSN().Before(tx.nxt) {
		t.unsent(in.Now, p)
		return nil
	}
	if a.SACK != 0 {
		top := a.CACK.Add(int(a.SACKOff)).Add(63 - bits.LeadingZeros64(a.SACK))
		if !top.Before(tx.nxt) {
			t.unsent(in.Now, p)
			return nil
		}
	}
	p.strikes = 0
	p.heard(in.Now)
	if p.remoteID == 0 {
		p.becomeEstablished(a.SPDCID, in.Who)
	}

	if a.Flags&wire.AckFlagEPSN != 0 && p.state == CloseAckWait && a.AckPSN() == tx.nxt-1 && t.secured() {
		t.expected.learn(p.remote, a.EPSN)
	}

	var newest time.Duration // when the latest packet left of which the ACK tells; 0: none
	newly := 0
	var rtt time.Duration
	before := tx.una
	state := a.NSCC()
	seen := tx.newest(state)
	// The packet the ACK names.
	if k := p.named(a, before); k != nil && k.state != pktFinished {
		// UE 3.5.20.3: which transmission was answered must be certain: RETX
		// not echoed is the first, echoed the second if there are two.
		echo := a.Flags&wire.AckFlagRETX != 0
		sent, certain := k.first, !k.nacked
		if echo {
			tx.echoes = true
			sent, certain = k.sentAt, certain && k.tries == 1
		}
		if certain && k.state != pktArrived {
			rtt = tx.sample(in.Now-sent, state, in.Paused)
		}
		if a.Next == wire.NextNone {
			rsp = nil
		}
		if p.odd(k) {
			p.oddArrival(in.Now, k, echo, tx.echoes)
		}
		tx.arrivedAs(k, &newest)
		if a.Flags&wire.AckFlagM != 0 {
			p.pathNews(k, PathMarked)
		}
		newly = p.finish(a.AckPSN(), k, rsp)
		if p.state == Closed {
			p.gone(newly)
			return nil
		}
	}
	// What the CACK passes had the default response (S-ACK-05).
	if a.CACK.After(tx.cack) {
		tx.cack = a.CACK
	}
	for {
		newly += p.passed(&newest)
		if tx.una == tx.nxt {
			break
		}
		k := tx.at(tx.una)
		if k.state != pktFinished {
			if tx.una.After(tx.cack) {
				break
			}
			if p.odd(k) {
				p.oddArrival(in.Now, k, false, false)
			}
			tx.arrivedAs(k, &newest)
			newly += p.finish(tx.una, k, nil)
			if p.state == Closed {
				p.gone(newly)
				return nil
			}
		}
		tx.una++
	}
	if tx.lostHint.Before(tx.una) {
		tx.lostHint = tx.una
	}
	if a.Type != wire.TypeAck {
		tx.offered(a.CACK, a.MPR)
	}
	if a.SACK != 0 {
		newly += p.sack(in.Now, a, before, seen, &newest)
	}
	if a.Req != 0 {
		p.requested(in.Now, a)
	}
	if isProbe {
		if at := p.probeAnswered(in.Now, a); at != 0 {
			newest = at
			rtt = tx.sample(in.Now-at, state, in.Paused) // UE 3.6.13: what a PROBE measures is certain
		}
	}
	if tx.rough && tx.flight == 0 {
		tx.holeAt = 0
	}
	rtt = p.measured(in, newest, rtt, a.SACK != 0)
	if newest != 0 && tx.rough && tx.holeAt != 0 {
		t.arm(p, tx.holeAt+p.reorderTime())
	}
	if a.Flags&wire.AckFlagM != 0 {
		t.Stats.AcksCE++
	}
	p.acked(in.Now, before, newly, rtt, a.Flags&wire.AckFlagM != 0, state)
	return p
}

// offered takes in the PSN window of an ACK. UE 3.5.12: MPR counts only from one
// newer than the last that set it.
func (tx *txDir) offered(cack wire.PSN, mpr uint8) {
	if !cack.After(tx.mprAt) {
		return
	}
	tx.mprAt = cack
	if tx.window = 128 * int32(mpr); mpr == 0 {
		tx.window = 1 << 30
	}
}

// acked draws the consequences of an ACK: what it told of packets is noted. before
// is tx.una before it; newly, rtt, ce and s are as of CCC.OnAck.
func (p *PDC) acked(now time.Duration, before wire.PSN, newly int, rtt time.Duration, ce bool, s wire.NSCC) {
	tx := &p.tx
	p.reported(now, newly, rtt, ce, s.CwndPend(), s.RestoreCwnd())
	if newly > 0 || tx.una != before {
		tx.progress = now
		tx.probes, tx.rtos = 0, 0
		if rtt > 0 {
			// Karn: a timeout that proved too short stays long until the round
			// trip is known.
			tx.backoff = 0
		}
	}
	if tx.una == tx.nxt {
		p.becomeIdle(now)
		p.armShut(now)
	} else {
		p.goesOn(now, before)
	}
	if p.Awaited || tx.lost != 0 || !p.Usable() {
		p.wake()
	}
}

// armShut is for a PDC that has nothing outstanding any more: it may be shut.
func (p *PDC) armShut(now time.Duration) {
	if tx := &p.tx; tx.nxt.Sub(tx.cack) > tx.window && p.shut() {
		p.t.arm(p, now+p.tailTime())
	}
}

// goesOn is what an ACK begins for a PDC that still has something outstanding.
func (p *PDC) goesOn(now time.Duration, before wire.PSN) {
	tx := &p.tx
	if p.heapAt > now+p.t.tailLeast {
		p.armTail(now)
	}
	if tx.flight == 0 && tx.lost == 0 && tx.una != before && tx.at(tx.una).state == pktArrived {
		// Answers were lost, not packets: ask for the next one now.
		tx.askOwed = true
		p.oweAck()
	}
}

// named is the packet that an ACK names, from una on; nil: none.
func (p *PDC) named(a *wire.Ack, una wire.PSN) *txPkt {
	if psn := a.AckPSN(); a.Flags&wire.AckFlagP == 0 && !psn.Before(una) {
		return p.tx.at(psn)
	}
	return nil
}

// requested does what an ACK asks for.
func (p *PDC) requested(now time.Duration, a *wire.Ack) {
	switch a.Req {
	case wire.ReqClear:
		// UE 3.5.20.1: deliver CLEAR_PSN promptly.
		if ap := a.AckPSN(); ap.Before(p.tx.una) {
			p.tx.clearOwed = true
			p.oweAck()
		}
	case wire.ReqClose:
		p.closeRequested(now)
	}
}

// probeAnswered takes the answer of a PROBE. It reports when that was sent, 0 for
// one of an earlier burst.
func (p *PDC) probeAnswered(now time.Duration, a *wire.Ack) time.Duration {
	tx := &p.tx
	n := tx.probeID - a.ProbeOpaque
	if n >= uint16(tx.burst) {
		return 0
	}
	tx.probeHeard = now
	if int32(tx.probeSeq-tx.sureSeq) > 0 {
		tx.sureSeq = tx.probeSeq
	}
	if int32(tx.probeSeq-tx.topSeq) > 0 {
		tx.topSeq = tx.probeSeq
	}
	p.probeMissing(now, a)
	if n == 0 && !tx.probeOwed {
		p.probeOn()
	}
	return tx.probeAt
}

// unsent counts a packet that acknowledges what was never sent (T9).
func (t *Table) unsent(now time.Duration, p *PDC) {
	t.Stats.DropUnsent++
	t.guessed(now, p.remote)
	if p.remoteID == 0 {
		return // it may be for a former life under this PDCID: nobody to blame
	}
	p.strikes++
	if p.strikes >= 16 {
		t.fail(now, p, Reason{Why: WhyProtocol})
	}
}

// becomeEstablished: the target's PDCID is known. One PROBE uses it at once: it
// measures the path without data (UE 3.6.13) and proves to the target that its
// packets arrive here.
func (p *PDC) becomeEstablished(remoteID uint16, who uint64) {
	if p.state == Creating {
		p.state = Established // not if it closes already
	}
	p.remoteID, p.who = remoteID, who
	p.tx.greet = true
	p.oweAck()
}

// becomeIdle: nothing is outstanding any more.
func (p *PDC) becomeIdle(now time.Duration) {
	tx := &p.tx
	p.t.putRing(p)
	p.idleAt = now
	if tx.rough {
		tx.waitFor, tx.rnrSince, tx.shortSince, tx.holeAt = 0, 0, 0, 0
		tx.rough = false
	}
	tx.probes, tx.rtos = 0, 0
	tx.probeOwed, tx.askOwed = false, false
	p.doubted = false
	p.evidence = 0
}

// sack takes in the bitmap: what arrived leaves flight. What is missing although
// later transmissions arrived is lost when tx.reorder of them did, else it may be
// reordered and gets some time. Only what this very ACK has seen is evidence: what
// other ACKs tell may be older or younger than its bitmap. una is tx.una before
// the ACK, seen what newest said.
func (p *PDC) sack(now time.Duration, a *wire.Ack, una wire.PSN, seen bool, newest *time.Duration) (newly int) {
	tx := &p.tx
	top := tx.pastSeq // the latest transmission this ACK is known to have seen, if seen
	if k := p.named(a, una); k != nil && a.Flags&wire.AckFlagRETX != 0 == (k.tries > 0) && k.tries <= 1 && (!seen || int32(k.seq-top) > 0) {
		top, seen = k.seq, true
	}
	base := a.CACK.Add(int(a.SACKOff))
	last := base.Add(63 - bits.LeadingZeros64(a.SACK))
	first := base
	if first.Before(una) {
		first = una
	}
	holes := false
	for psn := first; !psn.After(last); psn++ {
		k := tx.at(psn)
		if a.SACK>>uint(psn.Sub(base))&1 == 0 {
			holes = holes || k.state == pktFlight
			continue
		}
		if k.tries == 0 && (!seen || int32(k.seq-top) > 0) {
			top, seen = k.seq, true
		}
		if k.state == pktArrived || k.state == pktFinished {
			continue
		}
		if p.odd(k) {
			p.oddArrival(now, k, false, false)
		}
		tx.arrivedAs(k, newest)
		newly += tx.arrive(k)
		if tx.waiting > 0 && k.nacked && k.ctl == 0 {
			p.accepted(psn, k.piece.Msg)
		}
	}
	if !holes || !seen {
		return newly
	}
	for psn := first; psn.Before(last); psn++ {
		k := tx.at(psn)
		if k.state != pktFlight || a.SACK>>uint(psn.Sub(base))&1 != 0 {
			continue
		}
		switch over := int32(top - k.seq); {
		case over <= 0:
		case uint32(over) >= tx.reorder:
			p.lose(now, psn, k, CauseSACK)
		default:
			p.youngHole(now, k)
		}
	}
	return newly
}

// microseconds is the time as txPkt.hole has it: never 0, and wrapping.
func microseconds(now time.Duration) uint32 { return uint32(now/time.Microsecond) | 1 }

// youngHole starts the reordering time of a packet.
func (p *PDC) youngHole(now time.Duration, k *txPkt) {
	if k.hole == 0 {
		k.hole = microseconds(now)
	}
	if p.tx.holeAt == 0 {
		p.tx.holeAt, p.tx.rough = now, true
		p.t.arm(p, now+p.reorderTime())
	}
}

// probeMissing takes the answer of a PROBE: what its bitmap covers and does not
// show was not there when the PROBE arrived.
func (p *PDC) probeMissing(now time.Duration, a *wire.Ack) {
	tx := &p.tx
	base := a.CACK.Add(int(a.SACKOff))
	for i := range 64 {
		psn := base.Add(i)
		if psn.Before(tx.una) {
			continue
		}
		if !psn.Before(tx.nxt) {
			return
		}
		k := tx.at(psn)
		if k.state != pktFlight || int32(tx.probeSeq-k.seq) <= 0 || a.SACK>>uint(i)&1 != 0 {
			continue
		}
		if tx.probeAt-k.sentAt >= p.reorderTime() {
			p.lose(now, psn, k, CauseProbe)
			continue
		}
		p.youngHole(now, k)
	}
}

// probeOn asks for what a burst of PROBEs did not cover, in the next one. Whatever the
// answers covered: a peer may not look at what it is asked for.
func (p *PDC) probeOn() {
	tx := &p.tx
	if from := p.unknown(tx.probeFrom, tx.probeSeq); from.After(tx.una) && from != tx.nxt {
		tx.probeFrom, tx.probeOwed, tx.burst = from, true, 0
		p.oweAck()
	}
}

// unknown is the first packet from a PSN on that is in flight and was sent before
// a transmission; tx.nxt: none.
func (p *PDC) unknown(from wire.PSN, seq uint32) wire.PSN {
	tx := &p.tx
	if from.Before(tx.una) {
		from = tx.una
	}
	for ; from.Before(tx.nxt); from++ {
		if k := tx.at(from); k.state == pktFlight && int32(seq-k.seq) > 0 {
			return from
		}
	}
	return tx.nxt
}

// noteSpurious recognises a retransmission that was not needed: the first
// transmission was answered after all. The path reorders more than assumed.
// echo is the RETX flag of the ACK, certain that its absence says something: the
// packet is named, and the peer echoes the flag.
func (p *PDC) noteSpurious(now time.Duration, k *txPkt, echo, certain bool) {
	if k.tries == 0 || echo || p.ccc == nil {
		return
	}
	tx := &p.tx
	if !certain && k.state != pktLost && now-k.sentAt >= tx.minRTT*7/8 {
		return
	}
	p.t.Stats.RtxSpurious++
	if !k.gap { // a timer sent it: that the answer was late or lost is no reordering
		p.ccc.OnSpurious()
		return
	}
	tx.reorder = min(tx.reorder*2, maxReorder)
	tx.patience = min(tx.patience+1, maxPatience)
}
