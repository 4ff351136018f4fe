package pds

import "time"

// Leave asks the initiators of the PDCs on which an ACK may be lost to close them (UE 3.5.8).
// An initiator closes when it has all ACKs, so its CLOSE says that nothing is owed any more.
// What comes meanwhile is answered as before.
func (t *Table) Leave(now time.Duration) {
	t.leftAt = now
	for _, p := range t.slots {
		if p != nil && !p.initiator && p.rx != nil && p.rx.clear.Before(p.rx.max) && now-p.lastHeard < 2*t.cfg.RTOMax {
			p.leftMax = p.rx.max
			p.RequestClose(now)
		}
	}
}

// MayLack reports whether an initiator may lack an ACK of a packet that came before Leave: it
// has neither cleared the packet nor closed the PDC, and it was heard less than quiet ago. It
// asks for an ACK that it lacks.
func (t *Table) MayLack(now, quiet time.Duration) bool {
	for _, p := range t.slots {
		if p != nil && p.leftMax != 0 && p.rx.clear.Before(p.leftMax) && now-max(p.lastHeard, t.leftAt) < quiet {
			return true
		}
	}
	return false
}

// Hopeless reports whether the outstanding packets of a PDC are not worth waiting for: its
// target was silent for patience, or not ready; or there is evidence that it does not answer,
// and it was not heard since for quiet.
func (p *PDC) Hopeless(now, patience, quiet time.Duration) bool {
	tx := &p.tx
	if p.Outstanding() == 0 {
		return false
	}
	since := max(p.lastHeard, tx.owedSince)
	if p.evidence != 0 && now-max(since, p.evidence) >= quiet {
		return true
	}
	for _, short := range [...]time.Duration{tx.rnrSince, tx.shortSince} {
		if short != 0 {
			since = min(since, short)
		}
	}
	return now-since >= patience
}
