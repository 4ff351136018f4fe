package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// givenUp returns why a PDC with something outstanding must end, WhyNone if it need not
// (docs/faults.md: PeerTimeout, SuspectTimeout).
func (p *PDC) givenUp(now time.Duration) Reason {
	cfg := &p.t.cfg
	since := max(p.lastHeard, p.tx.owedSince)
	switch {
	case p.evidence != 0 && now-max(since, p.evidence-cfg.RTOMax) >= p.suspectTime() && !p.refuted():
		return Reason{Why: WhyUnreachable}
	case now-since >= cfg.PeerTimeout:
		return Reason{Why: WhyTimeout}
	case cfg.SpecRetries && p.tx.rtos > 5:
		return Reason{Why: WhyTimeout}
	case p.tx.shortSince != 0 && now >= p.shortUntil():
		// F32: the target answers but is short of something, or has lost what a former life
		// of it knew (F12).
		if p.tx.shortCode == wire.NackRcvdSESProcg {
			return Reason{Why: WhyNack, Nack: p.tx.shortCode}
		}
		return Reason{Why: WhyNoResource, Nack: p.tx.shortCode}
	case p.hopeless(now):
		return Reason{Why: WhyTimeout}
	}
	return Reason{}
}

// shortUntil is when the shortage of the target ends the PDC (F32).
func (p *PDC) shortUntil() time.Duration {
	tx, wait := &p.tx, p.t.cfg.PeerTimeout
	switch {
	case p.asksOnly():
		// The refusal of a CLOSE_REQ does not end a message that is under way (F28).
		if p.state != CloseRequested || p.t.owner.InboundOpen(p) {
			return never
		}
		return max(tx.shortSince, p.idleAt) + wait
	case tx.shortCode == wire.NackPSNOORWindow:
		// A target that is not ready (F18) does not move its window.
		return max(tx.shortSince, tx.rnrAt) + wait
	}
	return tx.shortSince + wait
}

// hopeless reports whether the oldest packet of a PDC can no longer be expected to
// finish. It was first sent at least 2 × PeerTimeout ago, and it arrived or was resent at
// least hopelessTries times. Neither an outage that the peer survived nor a pause of this
// side explains that: the peer is heard but does not answer this packet, or answers by
// NACKs. Time in which the target was not ready does not count (F18). The CLOSE_REQ of a
// target is never hopeless: it ends no operation.
func (p *PDC) hopeless(now time.Duration) bool {
	tx := &p.tx
	if tx.una == tx.nxt || p.asksOnly() {
		return false
	}
	k := tx.at(tx.una)
	return now-max(k.first, tx.rnrAt) >= 2*p.t.cfg.PeerTimeout && (k.tries >= hopelessTries || k.state == pktArrived)
}

// hopelessTries is far fewer resends than RTOMax allows in 2 × PeerTimeout. Arbitrary.
const hopelessTries = 8

// failSilent fails the other silent PDCs to a peer that is gone (F9: all operations to it
// fail). Such a PDC may be in the middle of a message with nothing outstanding, because
// packets in flight on the others kept the window closed. A PDC on which the peer was heard
// since stays. One on which it was never heard is as silent as the others, however late it
// was opened.
func (t *Table) failSilent(now time.Duration, peer uint32, why Reason) {
	gone := t.silentFor()
	heard := false
	for _, q := range t.slots {
		heard = heard || q != nil && q.Peer == peer && q.Met() && now-q.lastHeard < gone
	}
	for _, q := range t.slots {
		if q == nil || q.Peer != peer || !q.initiator {
			continue
		}
		silent := now-q.lastHeard >= gone || why.Why == WhyTimeout && !q.Met() && !heard
		if q.evidence != 0 && now-max(q.lastHeard, q.evidence-t.cfg.RTOMax) >= q.suspectTime() && !q.refuted() {
			silent = true
		}
		if silent {
			t.fail(now, q, why)
		}
	}
}

// silentFor is how long a PDC of a peer that is gone was silent: nearly PeerTimeout, as the peer was
// not last heard on all PDCs at the same time.
func (t *Table) silentFor() time.Duration {
	return max(t.cfg.PeerTimeout-t.cfg.RTOMax, t.cfg.PeerTimeout/2)
}

// owes reports whether the peer owes this side an answer to a packet, or the ACK that opens
// the window.
func (p *PDC) owes() bool { return p.Outstanding() > 0 || p.shut() }

// lookGiveUpAt is when to check givenUp: at every look at the PDC, as some of its reasons
// have no fixed time.
func (p *PDC) lookGiveUpAt() time.Duration {
	if !p.owes() {
		return never
	}
	return 0
}

// giveUp fails the PDC if givenUp has a reason. If the peer is gone it also fails the peer's
// other silent PDCs.
func (p *PDC) giveUp(now time.Duration) time.Duration {
	why := p.givenUp(now)
	if why.Why == WhyNone {
		return p.giveUpAt()
	}
	p.t.fail(now, p, why)
	if why.Why == WhyTimeout || why.Why == WhyUnreachable {
		p.t.failSilent(now, p.Peer, why)
	}
	return never
}

// giveUpAt is the earliest time at which givenUp has a reason that depends on time.
func (p *PDC) giveUpAt() time.Duration {
	cfg := &p.t.cfg
	since := max(p.lastHeard, p.tx.owedSince)
	at := since + cfg.PeerTimeout
	if p.evidence != 0 {
		at = min(at, max(since, p.evidence-cfg.RTOMax)+p.suspectTime())
	}
	if p.tx.shortSince != 0 {
		at = min(at, p.shortUntil())
	}
	return at
}

// Suspect notes evidence that the peer's address does not answer (F11). A PDC with
// outstanding packets then ends after SuspectTimeout unless it hears from the peer, earlier if
// the evidence repeats and strange says that nothing was ever heard from that address.
func (t *Table) Suspect(now time.Duration, p *PDC, strange bool) {
	p.nobody = strange && p.evidence != 0
	if p.evidence == 0 {
		p.evidence = now
	}
	if p.Outstanding() > 0 {
		t.arm(p, p.giveUpAt())
	}
}

// refuted reports whether the peer was heard on another PDC since there is evidence that it does not answer.
// Then it is there, and may have begun a new life, which does not know this PDC and says so when it is asked
// (F12). The evidence counts no more.
func (p *PDC) refuted() bool {
	for _, q := range p.t.slots {
		if q != nil && q != p && q.Peer == p.Peer && q.lastHeard > max(p.evidence, q.opened) {
			p.evidence = 0
			return true
		}
	}
	return false
}

// suspectTime is how long a peer may be silent if there is evidence that it does not answer.
// One that was heard may be restarting. Where nobody was ever heard, probably nobody is.
func (p *PDC) suspectTime() time.Duration {
	if p.nobody {
		return p.t.cfg.SuspectTimeout / 3
	}
	return p.t.cfg.SuspectTimeout
}

// Unanswered reports whether more than one PROBE was sent, or more than one timeout has passed, since the
// peer last answered.
func (p *PDC) Unanswered() bool { return p.tx.probes > 1 || p.tx.rtos > 1 }

// Silences is how many timeouts have passed since the peer last answered.
func (p *PDC) Silences() int { return int(p.tx.rtos) }

// HeardBy is the path by which the peer last answered. Its answers come by the path of what they answer, so it
// carried a packet and the answer.
func (p *PDC) HeardBy() int { return int(p.tx.heardBy) }

// heardAt notes the path that an answer came by.
func (p *PDC) heardAt(path uint32) {
	if path < uint32(p.t.cfg.Paths) {
		p.tx.heardBy = uint8(path)
	}
}

// Met reports whether a packet of the peer belonged to the PDC.
func (p *PDC) Met() bool { return !p.initiator || p.remoteID != 0 || p.lastHeard > p.opened }

// heard notes a valid packet from the peer.
func (p *PDC) heard(now time.Duration) {
	p.lastHeard = now
	p.evidence = 0
}
