package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// givenUp judges a PDC that has something outstanding (docs/faults.md:
// PeerTimeout, SuspectTimeout).
func (p *PDC) givenUp(now time.Duration) Reason {
	cfg := &p.t.cfg
	since := max(p.lastHeard, p.tx.owedSince)
	switch {
	case p.evidence != 0 && now-max(since, p.evidence-cfg.RTOMax) >= cfg.SuspectTimeout:
		return Reason{Why: WhyUnreachable}
	case now-since >= cfg.PeerTimeout:
		return Reason{Why: WhyTimeout}
	case cfg.SpecRetries && p.tx.rtos > 5:
		return Reason{Why: WhyTimeout}
	case p.tx.shortSince != 0 && now >= p.shortUntil():
		// F32: the target answers, but is short of something; or of what a former
		// life of it knew (F12).
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
	case !p.initiator:
		// What is refused is a CLOSE_REQ. It ends nothing that is under way (F28).
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

// hopeless reports whether the oldest packet was sent so long ago, and so often unless it
// arrived, that no outage that the peer survived explains it, and no pause of this side:
// the peer is heard, and answers the packet by nothing or by NACKs. One that is not
// ready is waited for (F18). A target has nothing to send but a CLOSE_REQ, which ends
// no operation.
func (p *PDC) hopeless(now time.Duration) bool {
	tx := &p.tx
	if !p.initiator || tx.una == tx.nxt {
		return false
	}
	k := tx.at(tx.una)
	return now-max(k.first, tx.rnrAt) >= 2*p.t.cfg.PeerTimeout && (k.tries >= hopelessTries || k.state == pktArrived)
}

// hopelessTries is far below what RTOMax makes of such a time. Arbitrary.
const hopelessTries = 8

// failSilent ends the other PDCs to a peer that is gone (F9: all operations to
// it fail): one that is in the middle of a message may have nothing outstanding,
// because what was in flight on the others kept the window closed. One on which
// the peer was heard since stays.
func (t *Table) failSilent(now time.Duration, peer uint32, why Reason) {
	// The last words of a peer do not reach all PDCs at the same time.
	gone := max(t.cfg.PeerTimeout-t.cfg.RTOMax, t.cfg.PeerTimeout/2)
	for _, q := range t.slots {
		if q == nil || q.Peer != peer || !q.initiator {
			continue
		}
		silent := now-q.lastHeard >= gone
		if q.evidence != 0 && now-max(q.lastHeard, q.evidence-t.cfg.RTOMax) >= t.cfg.SuspectTimeout {
			silent = true
		}
		if silent {
			t.fail(now, q, why)
		}
	}
}

// owes reports whether the peer owes this side something: the answer of a packet, or the
// ACK that opens the window again.
func (p *PDC) owes() bool { return p.Outstanding() > 0 || p.shut() }

// lookGiveUpAt is when to look whether the PDC is given up: whenever it is looked at, as
// givenUp has reasons that have no time.
func (p *PDC) lookGiveUpAt() time.Duration {
	if !p.owes() {
		return never
	}
	return 0
}

// giveUp ends the PDC if givenUp has a reason, and those beside it that are as silent.
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

// giveUpAt is when givenUp may say so at the earliest.
func (p *PDC) giveUpAt() time.Duration {
	cfg := &p.t.cfg
	since := max(p.lastHeard, p.tx.owedSince)
	at := since + cfg.PeerTimeout
	if p.evidence != 0 {
		at = min(at, max(since, p.evidence-cfg.RTOMax)+cfg.SuspectTimeout)
	}
	if p.tx.shortSince != 0 {
		at = min(at, p.shortUntil())
	}
	return at
}

// Suspect notes evidence that the address does not answer (F11): PDCs with
// something outstanding to it give up after SuspectTimeout unless they hear
// from the peer.
func (t *Table) Suspect(now time.Duration, p *PDC) {
	if p.evidence == 0 {
		p.evidence = now
	}
	if p.Outstanding() > 0 {
		t.arm(p, p.giveUpAt())
	}
}

// heard notes a valid packet from the peer.
func (p *PDC) heard(now time.Duration) {
	p.lastHeard = now
	p.evidence = 0
}
