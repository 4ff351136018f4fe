package pds

import (
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// finish finishes a packet whose answer is known. rsp is its response, nil for the default
// response.
func (p *PDC) finish(psn wire.PSN, k *txPkt, rsp *wire.Rsp) (newly int) {
	tx := &p.tx
	newly = tx.setFinished(k)
	if k.nacked {
		if k.piece.Void() {
			tx.voids--
		}
		// The shortage that caused the refusal is over: the next refusal begins a new one.
		tx.waitFor, tx.shortSince = 0, 0
		if tx.waiting > 0 && k.ctl == 0 {
			p.accepted(psn, k.piece.Msg)
		}
	}
	if k.tries == 0 {
		// The packet was sent once only: the current timeout is long enough (Karn).
		tx.backoff = 0
	}
	if k.ctl == 0 {
		if rsp != nil && rsp.Opcode == wire.RspNone && p.initiator {
			p.Promised(p.lastHeard, psn, k.piece.Msg)
		}
		p.t.news.put(News{Kind: NewsAnswered, PDC: p, Piece: k.piece, Rsp: rsp})
	} else {
		p.ctlAnswered(wire.CtlType(k.ctl - 1))
	}
	return newly
}

// passed is a fast path of arrivedAs and finish: it finishes the packets up to CACK until
// it finds one that needs more. It returns their nominal bytes.
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

// odd reports whether oddArrival can learn something from the arrival of a packet.
func (p *PDC) odd(k *txPkt) bool { return k.tries != 0 || k.hole != 0 || p.t.cfg.Paths > 1 }

// oddArrival learns from the arrival of an odd packet: whether a resend was needless, the
// state of its path, and how much the path reorders. echo and certain are those of
// noteSpurious.
func (p *PDC) oddArrival(now time.Duration, k *txPkt, echo, certain bool) {
	tx := &p.tx
	p.noteSpurious(now, k, echo, certain)
	p.pathNews(k, PathGood)
	if k.tries == 1 && k.state != pktArrived && k.cause == nacked(wire.NackTrimmed) && p.t.cfg.Paths > 1 {
		p.t.passed += int(k.size)
	}
	if over := int32(tx.topSeq - k.seq); over > 0 && k.hole != 0 && k.tries == 0 && uint32(over) >= tx.reorder {
		// The packet was missing when later ones had arrived, and was not sent again: the
		// path reordered it.
		tx.reorder = min(uint32(over)+1, maxReorder)
		tx.patience = min(tx.patience+1, maxPatience)
	}
}

// arrivedAs notes the number of the transmission that arrived, and in newest the time of
// the latest one that is certain.
func (tx *txDir) arrivedAs(k *txPkt, newest *time.Duration) {
	if int32(k.seq-tx.topSeq) > 0 {
		tx.topSeq = k.seq
	}
	if k.tries == 0 && int32(k.seq-tx.sureSeq) > 0 {
		tx.sureSeq, *newest = k.seq, k.sentAt
	}
}

// measured updates the round trip times with the latest packet that the ACK covers. Earlier
// packets do not serve: ACKs that were lost may have covered them. rtt is the sample of the
// packet that the ACK names. measured returns the sample for the congestion context, 0 if
// there is none.
func (p *PDC) measured(in *Arrival, newest, rtt time.Duration, hole bool) time.Duration {
	tx := &p.tx
	if newest == 0 {
		return rtt
	}
	d := in.Now - newest
	tx.least(d)
	tx.smooth(d)
	if rtt == 0 && hole && p.mode == wire.ROD && !in.Paused {
		// An ACK of a ROD target names only packets in order. Behind a hole no ACK gives a
		// sample, and the window would follow old ones.
		return d - in.Waited
	}
	return rtt
}

// least lowers minRTT to d if d is less.
func (tx *txDir) least(d time.Duration) {
	if tx.minRTT == 0 || d < tx.minRTT {
		tx.minRTT = d
	}
}

// smooth adds a round trip to the smoothed one. It includes the ACK delay of the peer and
// the pauses of both sides, because an answer may take that long.
func (tx *txDir) smooth(d time.Duration) {
	if tx.rtt == 0 {
		tx.rtt = d
	} else {
		tx.rtt += (d - tx.rtt) / 4
	}
}

// newest reports whether the peer made no ACK seen so far after this one. rcvd_bytes (UE
// 3.6.9.2) tells the order. If it returns true, the bitmap of this ACK is newer than
// everything that other ACKs reported.
func (tx *txDir) newest(s wire.NSCC) bool {
	const shift = 32 - 24 // rcvd_bytes has 24 bits and wraps
	n := s.RcvdBytes() << shift
	if n == 0 {
		return false // no congestion state, a peer that does not count, or a count that just wrapped
	}
	d := int32(n - tx.ackOrder)
	if d > 0 || tx.ackOrder == 0 {
		tx.ackOrder, tx.pastSeq = n, tx.sureSeq
		return true
	}
	return d == 0
}

// sample is the round trip that an ACK measured: d, the time since the named packet was
// sent, less the service time of the target and the time that the ACK waited here. It returns 0,
// no sample, if the packet or the ACK may have waited for an unknown time on a host: that says
// nothing about the path.
func (tx *txDir) sample(in *Arrival, d time.Duration, s wire.NSCC) time.Duration {
	st := s.ServiceTime()
	rtt := d - time.Duration(st)*128 - in.Waited
	if rtt <= 0 || st == 0xffff || in.Paused {
		return 0
	}
	tx.least(rtt)
	return rtt
}

// ReceivePlain is a fast path of ReceiveAckOf for nearly every ACK: a plain ACK on an
// established PDC that names the oldest outstanding request, which was sent once. It
// returns the Piece.Msg of the answered packet, which causes no News. It returns false,
// having done nothing, if ReceiveAckOf is needed.
func (t *Table) ReceivePlain(in *Arrival, p *PDC, h *wire.PlainAck) (msg uint32, ok bool) {
	if p == nil || p.state != Established || p.tx.rough || p.tx.lost != 0 {
		return 0, false
	}
	tx := &p.tx
	una := tx.una
	if una == tx.nxt || h.CACK() != una || h.SPDCID() != p.remoteID || p.who != in.Who || in.From.Addr() != p.remote.Addr() {
		return 0, false
	}
	// There is no hole: packets that wait for the reordering time make the PDC rough.
	k := tx.at(una)
	if k.state != pktFlight || k.ctl != 0 || k.tries != 0 || t.cfg.Paths > 1 {
		return 0, false
	}
	p.strikes = 0
	p.heard(in.Now)
	s, msg, size, seq, d := h.NSCC(), k.piece.Msg, int(k.size), k.seq, in.Now-k.sentAt
	tx.newest(s)
	rtt := tx.sample(in, d, s)
	tx.finishFlight(k)
	tx.backoff = 0
	if int32(seq-tx.sureSeq) > 0 { // arrivedAs and measured
		tx.sureSeq = seq
		if int32(seq-tx.topSeq) > 0 {
			tx.topSeq = seq
		}
		tx.smooth(d)
		if rtt == 0 { // otherwise sample did it with rtt, which is less
			tx.least(d)
		}
	}
	tx.cack = una
	for tx.una = una + 1; tx.una != tx.nxt && tx.at(tx.una).state == pktFinished; {
		tx.una++ // an earlier ACK named it
	}
	if !tx.limited {
		tx.mprAt, tx.window = una, windowOf(h.MPR())
	} else {
		tx.offered(una, h.MPR())
	}
	// The rest does what acked does.
	if in.Taken {
		p.taken()
	}
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

// ReceiveAck processes an ACK, ACK_CC or ACK_CCX. rsp is the SES response in it, nil if
// there is none; it is borrowed. ReceiveAck returns the PDC, or nil if the ACK was dropped
// (and counted).
func (t *Table) ReceiveAck(in *Arrival, a *wire.Ack, rsp *wire.Rsp) *PDC {
	return t.ReceiveAckOf(in, t.Lookup(a.DPDCID), a, rsp)
}

// ReceiveAckOf is ReceiveAck for an owner that has already looked up the DPDCID. p may be
// nil.
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
	// T9: CACK, ACK_PSN and SACK may name only PSNs that were sent, otherwise the whole ACK
	// is dropped. A CACK below the window is that of an old ACK.
	if a.CACK.Sub(p.start-1) < 0 {
		t.Stats.DropStale++ // meant for an earlier PDC with the same PDCID
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
	if !p.proven {
		p.markProven()
	}
	p.heardAt(in.Path)
	if p.remoteID == 0 {
		p.becomeEstablished(a.SPDCID, in.Who)
	}

	if a.Flags&wire.AckFlagEPSN != 0 && p.state == CloseAckWait && a.AckPSN() == tx.nxt-1 && t.secured() {
		t.expected.learn(p.remote, a.EPSN)
	}

	var newest time.Duration // send time of the latest packet that the ACK covers, 0 if it covers none
	newly := 0
	var rtt time.Duration
	before := tx.una
	state := a.NSCC()
	seen := tx.newest(state)
	t.passed = 0
	// The packet that the ACK names.
	if k := p.named(a, before); k != nil && k.state != pktFinished {
		// UE 3.5.20.3: it must be certain which transmission was answered. If RETX is not
		// echoed it was the first one, if RETX is echoed and there are two it was the
		// second.
		echo := a.Flags&wire.AckFlagRETX != 0
		sent, certain := k.first, !k.nacked
		if echo {
			tx.echoes = true
			sent, certain = k.sentAt, certain && k.tries == 1
		}
		if certain && k.state != pktArrived {
			rtt = tx.sample(in, in.Now-sent, state)
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
	} else if tx.late && !isProbe && rsp != nil && a.Next != wire.NextNone {
		p.promiseAcked(in.Now, a.AckPSN(), rsp)
	}
	// Packets that only CACK covers had the default response (S-ACK-05).
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
		if a.CCType == wire.CCCredit && p.credited() {
			p.t.news.put(News{Kind: NewsCredit, PDC: p, Msg: wire.ParseCredit(a.CCState).Credit})
		}
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
			rtt = tx.sample(in, in.Now-at, state) // UE 3.6.13: the sample of a PROBE is certain
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
	p.acked(in, before, newly, rtt, a.Flags&wire.AckFlagM != 0, state)
	return p
}

// offered sets the PSN window from an ACK. UE 3.5.12: MPR counts only if the CACK is above
// the one of the ACK that set the window last.
func (tx *txDir) offered(cack wire.PSN, mpr uint8) {
	if !cack.After(tx.mprAt) {
		return
	}
	n := windowOf(mpr)
	if tx.limited {
		n = tx.wider(cack, n)
	}
	tx.mprAt, tx.window = cack, n
}

// windowOf is the window that MPR says. S-WIN-04: a peer that offers 0 has the default window.
func windowOf(mpr uint8) int32 { return defaultWindow * int32(max(mpr, 1)) }

// acked acts on an ACK after the states of its packets are set. before is tx.una before the
// ACK; newly, rtt, ce and s are those of CCC.OnAck.
func (p *PDC) acked(in *Arrival, before wire.PSN, newly int, rtt time.Duration, ce bool, s wire.NSCC) {
	tx, now := &p.tx, in.Now
	if in.Taken {
		p.taken()
	}
	p.reported(now, newly, rtt, ce, s.CwndPend(), s.RestoreCwnd())
	if n := p.t.passed; n > 0 {
		if c, ok := p.ccc.(Unequal); ok && rtt > 0 && !ce {
			c.OnPassed(n, rtt)
		}
	}
	if newly > 0 || tx.una != before {
		tx.progress = now
		tx.probes, tx.rtos = 0, 0
		if rtt > 0 {
			// Karn: the timeout stays long until there is a sample.
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

// armShut arms the timer of a PDC without outstanding packets if it is shut.
func (p *PDC) armShut(now time.Duration) {
	if tx := &p.tx; tx.nxt.Sub(tx.cack) > tx.window && p.shut() {
		p.t.arm(p, now+p.tailTime())
	}
}

// goesOn acts on an ACK that leaves packets outstanding.
func (p *PDC) goesOn(now time.Duration, before wire.PSN) {
	tx := &p.tx
	if p.heapAt > now+p.t.tailLeast {
		p.armTail(now)
	}
	if tx.flight == 0 && tx.lost == 0 && tx.una != before && tx.at(tx.una).state == pktArrived {
		// The oldest packet arrived: its answer was lost, not the packet. Ask for the
		// answer now.
		tx.askOwed = true
		p.oweAck()
	}
}

// AnswersCtl reports whether an ACK answers a control packet of the PDC: a PROBE, or one that
// has a PSN and is not finished.
func (p *PDC) AnswersCtl(a *wire.Ack) bool {
	if a.Flags&wire.AckFlagP != 0 {
		return true
	}
	psn := a.AckPSN()
	return !psn.Before(p.tx.una) && psn.Before(p.tx.nxt) && p.tx.at(psn).ctl != 0
}

// named is the packet that an ACK names, nil if it names none from una on.
func (p *PDC) named(a *wire.Ack, una wire.PSN) *txPkt {
	if psn := a.AckPSN(); a.Flags&wire.AckFlagP == 0 && !psn.Before(una) {
		return p.tx.at(psn)
	}
	return nil
}

// requested does what the REQ field of an ACK asks for.
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

// probeAnswered processes the answer to a PROBE. It returns when the PROBE was sent, 0 for
// an answer to an earlier burst.
func (p *PDC) probeAnswered(now time.Duration, a *wire.Ack) time.Duration {
	tx := &p.tx
	if a.ProbeOpaque&sizedProbe != 0 {
		if a.ProbeOpaque&safeProbe == safeProbe {
			tx.safeHeard = microseconds(now)
		}
		p.t.news.put(News{Kind: NewsCarried, PDC: p, Probe: a.ProbeOpaque})
		return 0
	}
	n := (tx.probeID - a.ProbeOpaque) &^ sizedProbe
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

// unsent counts a packet that acknowledges a PSN that was never sent (T9). Many in a row
// end the PDC. While it opens they may be late and meant for a former life with this PDCID, so
// that they are evidence: only if no true answer comes, they end it after SuspectTimeout.
func (t *Table) unsent(now time.Duration, p *PDC) {
	t.Stats.DropUnsent++
	t.guessed(now, p.remote)
	p.strikes = min(p.strikes+1, 16)
	if p.strikes < 16 {
		return
	}
	if p.remoteID == 0 {
		t.Suspect(now, p, false)
	} else {
		t.fail(now, p, Reason{Why: WhyProtocol})
	}
}

// becomeEstablished stores the target's PDCID and who the target is. One PROBE uses the
// PDCID at once: it measures the path without data (UE 3.6.13) and proves to the target
// that its packets arrive here.
func (p *PDC) becomeEstablished(remoteID uint16, who uint64) {
	if p.state == Creating {
		p.state = Established // a PDC that closes already keeps its state
	}
	p.remoteID, p.who = remoteID, who
	delete(p.t.askers, p)
	p.tx.greet = true
	p.oweAck()
}

// becomeIdle clears the state of loss recovery: nothing is outstanding any more.
func (p *PDC) becomeIdle(now time.Duration) {
	tx := &p.tx
	p.t.putRing(p)
	p.idleAt = now
	if tx.rough {
		tx.waitFor, tx.rnrSince, tx.shortSince, tx.holeAt = 0, 0, 0, 0
		tx.rough, tx.tookBack = false, false
	}
	if tx.rtos = 0; tx.probes != 0 && (tx.shutSince == 0 || tx.shutAt != tx.cack) {
		tx.probes = 0 // otherwise the PDC is shut, and they are the questions why
	}
	tx.probeOwed, tx.askOwed = false, false
	p.doubted = false
	p.evidence = 0
}

// sack processes the bitmap of an ACK. Packets that it shows arrive. A missing packet is
// lost if at least tx.reorder later transmissions arrived, otherwise it may be reordered
// and gets the reordering time. Only what this ACK itself reports is evidence, because
// other ACKs may be older or newer than its bitmap. una is tx.una before the ACK, seen the
// result of newest.
func (p *PDC) sack(now time.Duration, a *wire.Ack, una wire.PSN, seen bool, newest *time.Duration) (newly int) {
	tx := &p.tx
	top := tx.pastSeq // if seen: the latest transmission known to have arrived before this ACK was made
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

// microseconds is a time in the form of txPkt.hole: never 0, and wrapping around.
func microseconds(now time.Duration) uint32 { return uint32(now/time.Microsecond) | 1 }

// youngHole starts the reordering time of a missing packet.
func (p *PDC) youngHole(now time.Duration, k *txPkt) {
	if k.hole == 0 {
		k.hole = microseconds(now)
	}
	if p.tx.holeAt == 0 {
		p.tx.holeAt, p.tx.rough = now, true
		p.t.arm(p, now+p.reorderTime())
	}
}

// probeMissing processes the bitmap of a PROBE's answer: packets that it covers and does
// not show had not arrived when the PROBE did.
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

// probeOn makes the next PROBE ask for the PSNs that the last burst did not cover. It
// assumes what the burst asked for and not what the answers covered: a peer may ignore what
// it is asked for.
func (p *PDC) probeOn() {
	tx := &p.tx
	if from := p.unknown(tx.probeFrom, tx.probeSeq); from.After(tx.una) && from != tx.nxt {
		tx.probeFrom, tx.probeOwed, tx.burst = from, true, 0
		p.oweAck()
	}
}

// unknown is the PSN of the first packet at or behind from that is in flight and was sent
// before transmission seq, tx.nxt if there is none.
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

// noteSpurious recognises a needless resend: an earlier transmission was answered, so the
// path reorders more than assumed. echo is the RETX flag of the ACK. certain says that a
// missing flag is meaningful: the ACK names the packet, and the peer echoes the flag.
func (p *PDC) noteSpurious(now time.Duration, k *txPkt, echo, certain bool) {
	if k.tries == 0 || echo || p.ccc == nil {
		return
	}
	tx := &p.tx
	if !certain && k.state != pktLost && now-k.sentAt >= tx.minRTT*7/8 {
		return
	}
	p.t.Stats.RtxSpurious++
	if !k.gap { // a timer resent it: the answer was late or lost, which is no reordering
		p.ccc.OnSpurious()
		return
	}
	tx.reorder = min(tx.reorder*2, maxReorder)
	tx.patience = min(tx.patience+1, maxPatience)
}
