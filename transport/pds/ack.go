package pds

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// finish ends a packet: its answer is known.
func (p *PDC) finish(k *txPkt, rsp *wire.Rsp) (newly int) {
	tx := &p.tx
	switch k.state {
	case pktFlight:
		tx.flight--
		newly = int(k.size)
	case pktLost:
		tx.lost--
	case pktHeld:
		tx.held--
	case pktArrived:
		tx.arrived--
	}
	k.state = pktDone
	if k.nacked {
		// What it was refused for is there again: others are refused anew.
		tx.heldFor, tx.shortSince = 0, 0
	}
	if k.tries == 0 {
		// It was not sent twice: the timeout in force is long enough (Karn).
		tx.backoff = 0
	}
	if k.ctl == 0 {
		p.t.up.Answered(p, k.ref, rsp)
	} else {
		p.ctlAnswered(wire.CtlType(k.ctl - 1))
	}
	return newly
}

// arrivedAs notes the transmission number of something that arrived and learns
// from it how much the path reorders.
func (p *PDC) arrivedAs(k *txPkt) {
	tx := &p.tx
	p.pathNews(k, PathGood)
	if over := int32(tx.topSeq - k.seq); over > 0 && k.hole && k.tries == 0 && uint32(over) >= tx.reorder {
		// It was missing when later ones were there, and was not sent again:
		// reordered.
		tx.reorder = min(uint32(over)+1, maxReorder)
		tx.patience = min(tx.patience+1, maxPatience)
	}
	if int32(k.seq-tx.topSeq) > 0 {
		tx.topSeq = k.seq
	}
}

// ReceiveAck processes an ACK, ACK_CC or ACK_CCX. rsp is the SES response it
// carries, nil if none; borrowed. It reports the PDC, or nil when the ACK was
// dropped (and counted).
func (t *Table) ReceiveAck(now time.Duration, from netip.AddrPort, a *wire.Ack, rsp *wire.Rsp) *PDC {
	p := t.Lookup(a.DPDCID)
	if p == nil {
		t.Stats.DropNoPDC++ // T28: an ACK never causes an answer
		return nil
	}
	if from.Addr() != p.remote.Addr() {
		t.Stats.DropSource++
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
		return nil
	}
	// T9: CACK, ACK_PSN and SACK name only what was sent, else nothing of the
	// packet counts. A CACK from before the window is an old ACK.
	last := tx.nxt - 1
	if a.CACK.Sub(p.start-1) < 0 {
		t.Stats.DropStale++ // of another life under the same PDCID
		return nil
	}
	isProbe := a.Flags&wire.AckFlagP != 0
	if a.CACK.After(last) || (!isProbe && a.AckPSN().After(last)) {
		t.unsent(now, p)
		return nil
	}
	hasSACK := a.Type != wire.TypeAck && a.SACK != 0
	if hasSACK {
		top := a.CACK.Add(int(a.SACKOff)).Add(63 - bits.LeadingZeros64(a.SACK))
		if top.After(last) {
			t.unsent(now, p)
			return nil
		}
	}
	p.strikes = 0
	p.heard(now)
	if p.remoteID == 0 {
		p.becomeEstablished(a.SPDCID)
	}

	newly := 0
	var rtt time.Duration
	before := tx.una
	var top uint32 // the latest transmission this ACK is known to have seen
	seen := false
	// The packet the ACK names.
	if !isProbe {
		if ap := a.AckPSN(); !ap.Before(tx.una) {
			k := tx.at(ap)
			echo := a.Flags&wire.AckFlagRETX != 0
			if echo == (k.tries > 0) {
				top, seen = k.seq, true
			}
			if k.state != pktDone {
				// UE §3.5.15: which transmission was answered must be certain: RETX
				// not echoed is the first, echoed the second if there are two.
				if k.state != pktArrived && !k.nacked && (!echo || k.tries == 1) {
					if rtt = now - k.first; echo {
						rtt = now - k.sentAt
					}
					if a.Type != wire.TypeAck && a.CCType == 0 {
						st := wire.ParseNSCC(a.CCState).ServiceTime
						if rtt -= time.Duration(st) * 128; st == 0xffff {
							rtt = 0 // too late to measure anything
						}
					}
					rtt = max(rtt, 0)
				}
				p.noteSpurious(now, k, echo)
				p.arrivedAs(k)
				if a.Flags&wire.AckFlagM != 0 {
					p.pathNews(k, PathMarked)
				}
				if a.Next == wire.NextNone {
					newly += p.finish(k, nil)
				} else {
					newly += p.finish(k, rsp)
				}
				if p.state == Closed {
					p.gone(newly)
					return nil
				}
			}
		}
	}
	// What the CACK passes had the default response (design D7).
	if a.CACK.After(tx.cack) {
		tx.cack = a.CACK
	}
	for psn := tx.una; !psn.After(tx.cack); psn++ {
		if k := tx.at(psn); k.state != pktDone {
			p.noteSpurious(now, k, false)
			p.arrivedAs(k)
			newly += p.finish(k, nil)
			if p.state == Closed {
				p.gone(newly)
				return nil
			}
		}
	}
	if a.Type != wire.TypeAck {
		// UE §3.5.12: MPR counts only from an ACK newer than the last that set it.
		if !tx.mprSeen || a.CACK.After(tx.mprAt) {
			tx.mprSeen, tx.mprAt = true, a.CACK
			if a.MPR == 0 {
				tx.window = 1 << 30
			} else {
				tx.window = 128 * int32(a.MPR)
			}
		}
	}
	if hasSACK {
		newly += p.sack(now, a, top, seen)
	}
	for tx.una != tx.nxt && tx.at(tx.una).state == pktDone {
		tx.una++
	}
	if tx.lostHint.Before(tx.una) {
		tx.lostHint = tx.una
	}
	switch a.Req {
	case wire.ReqClear:
		// UE §3.5.13: deliver CLEAR_PSN promptly.
		if ap := a.AckPSN(); ap.Before(tx.una) {
			tx.clearOwed = true
			t.up.WakeAck(p)
		}
	case wire.ReqClose:
		p.closeRequested(now)
	}
	if isProbe {
		if a.ProbeOpaque == tx.probeID && tx.probeSeq != 0 {
			tx.probeHeard = now
			if int32(tx.probeSeq-tx.topSeq) > 0 {
				tx.topSeq = tx.probeSeq
			}
			p.probeMissing(now, a)
		}
	}
	if tx.flight == 0 {
		tx.holeAt = 0
	}
	if p.ccc != nil {
		var pend uint8
		var restore bool
		if a.Type != wire.TypeAck && a.CCType == 0 {
			st := wire.ParseNSCC(a.CCState)
			pend, restore = st.CwndPend, st.RestoreCwnd
		}
		p.ccc.OnAck(now, newly, rtt, a.Flags&wire.AckFlagM != 0, pend, restore)
	}
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
		if p.shut() {
			p.t.arm(p, now+p.tailTime())
		}
	} else {
		p.t.arm(p, now+p.tailTime())
		if tx.una != before && tx.flight == 0 && tx.lost == 0 && tx.at(tx.una).state == pktArrived {
			// Answers were lost, not packets: ask for the next one now.
			tx.askOwed = true
			t.up.WakeAck(p)
		}
	}
	t.up.Wake(p)
	return p
}

// gone takes n bytes out of flight that no ACK will report.
func (p *PDC) gone(n int) {
	if p.ccc != nil && n > 0 {
		p.ccc.OnGone(n)
	}
}

// unsent counts a packet that acknowledges what was never sent (T9).
func (t *Table) unsent(now time.Duration, p *PDC) {
	t.Stats.DropUnsent++
	p.strikes++
	if p.strikes >= 16 {
		t.fail(now, p, Reason{Why: WhyProtocol})
	}
}

// becomeEstablished: the target's PDCID is known. One PROBE uses it at once: it
// measures the path without data (UE §3.6.13) and proves to the target that its
// packets arrive here.
func (p *PDC) becomeEstablished(remoteID uint16) {
	if p.state == Creating {
		p.state = Established // not if it closes already
	}
	p.remoteID = remoteID
	p.tx.greet = true
	p.t.up.WakeAck(p)
}

// becomeIdle: nothing is outstanding any more.
func (p *PDC) becomeIdle(now time.Duration) {
	tx := &p.tx
	p.t.putRing(p)
	p.idleAt = now
	tx.heldFor, tx.rnrSince, tx.shortSince, tx.holeAt = 0, 0, 0, 0
	tx.probes, tx.rtos = 0, 0
	tx.probeOwed, tx.askOwed = false, false
	p.fatal = fatalMark{}
	p.evidence = 0
}

// sack takes in the bitmap: what arrived leaves flight. What is missing although
// later transmissions arrived is lost when tx.reorder of them did, else it may be
// reordered and gets some time. Only what this very ACK has seen is evidence: what
// other ACKs tell may be older or younger than its bitmap. top is the
// transmission of the packet it names, if seen.
func (p *PDC) sack(now time.Duration, a *wire.Ack, top uint32, seen bool) (newly int) {
	tx := &p.tx
	base := a.CACK.Add(int(a.SACKOff))
	last := base.Add(63 - bits.LeadingZeros64(a.SACK))
	first := base
	if first.Before(tx.una) {
		first = tx.una
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
		switch k.state {
		case pktFlight:
			tx.flight--
			newly += int(k.size)
		case pktLost:
			tx.lost--
		case pktHeld:
			tx.held--
		default:
			continue
		}
		p.noteSpurious(now, k, false)
		p.arrivedAs(k)
		k.state = pktArrived
		tx.arrived++
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
			p.markLost(now, psn, k, false)
			p.t.Stats.RtxSACK++
		default:
			k.hole = true
			p.youngHole(now)
		}
	}
	return newly
}

// youngHole starts the reordering time.
func (p *PDC) youngHole(now time.Duration) {
	if p.tx.holeAt == 0 {
		p.tx.holeAt = now
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
		if k := tx.at(psn); k.state == pktFlight && int32(tx.probeSeq-k.seq) > 0 && a.SACK>>uint(i)&1 == 0 {
			k.hole = true
			p.youngHole(now)
		}
	}
}

// noteSpurious recognises a retransmission that was not needed: the first
// transmission was answered after all. The path reorders more than assumed.
func (p *PDC) noteSpurious(now time.Duration, k *txPkt, echo bool) {
	if k.tries == 0 || echo || p.ccc == nil {
		return
	}
	tx := &p.tx
	if k.state == pktLost || now-k.sentAt < p.ccc.SRTT()/2 {
		p.t.Stats.RtxSpurious++
		tx.reorder = min(tx.reorder*2, maxReorder)
		tx.patience = min(tx.patience+1, maxPatience)
	}
}
