package pds

import "time"

// This file makes room where PDCs are few (docs/decisions/0068): each side may open some whatever the other
// opens, and a PDC that is idle closes when somebody lacks one.

// reserved is how many of MaxPDCs are for PDCs that this side opens alone, and how many for those that others open. Without
// them two sides that had opened all that they may would refuse each other for ever. Three is what a peer may need at a time:
// one for short messages, one for long or ordered ones, one to read by.
func (t *Table) reserved() int { return min(3, t.cfg.MaxPDCs/2) }

// mayOpen and mayAccept report whether the bounds leave room for a PDC that this side opens, and for one that another does.
func (t *Table) mayOpen() bool {
	return t.live < t.cfg.MaxPDCs && t.own < t.cfg.MaxPDCs-t.reserved()
}

func (t *Table) mayAccept() bool {
	return t.live < t.cfg.MaxPDCs && t.live-t.own < t.cfg.MaxPDCs-t.reserved()
}

// A leaver is a PDC that CloseIdle closes.
type leaver struct {
	p  *PDC
	by time.Duration // when another may be closed in its place
}

// The bounds of CloseIdle. It looks at spareLooks PDCs in a call, and on with the next ones in the next call. It asks
// the owner of spareAsks of them at most. No more than maxLeavers close at a time. All are arbitrary.
const (
	spareLooks = 64
	spareAsks  = 8
	maxLeavers = 8
)

// CloseIdle closes PDCs that are idle, those first that are idle for longest, so that want PDCs may be opened: by this
// side if own is set, by others if not. It counts those that close already. keep says which PDCs of this side are not idle
// though nothing is outstanding. It takes the oldest of those that a call looks at: of all, if there are 64 or fewer.
func (t *Table) CloseIdle(now time.Duration, own bool, want int, keep func(*PDC) bool) {
	most := t.cfg.MaxPDCs - t.reserved()
	mine, theirs := own || t.live-t.own < most, !own || t.own < most // which of the two make room
	left := t.leavers[:0]
	for _, l := range t.leavers {
		if l.p.state == Closed || now >= l.by {
			continue
		}
		left = append(left, l)
		if l.p.initiator && mine || !l.p.initiator && theirs {
			want--
		}
	}
	t.leavers = left
	if own && t.mayOpen() || !own && t.mayAccept() {
		want--
	}
	n := len(t.slots)
	if n == 0 {
		return
	}
	looks := min(n, spareLooks)
	var kept [spareAsks]*PDC
	for asks := 0; want > 0 && len(t.leavers) < maxLeavers && asks < spareAsks; {
		var oldest *PDC
		for i := range looks {
			p := t.slots[(t.hand+i)%n]
			if p == nil || !(p.initiator && mine || !p.initiator && theirs) || !p.spare() || oldest != nil && p.idleSince() >= oldest.idleSince() {
				continue
			}
			seen := false
			for _, q := range kept[:asks] {
				seen = seen || p == q
			}
			if !seen {
				oldest = p
			}
		}
		if oldest == nil {
			break
		}
		kept[asks] = oldest
		asks++
		if oldest.initiator && keep(oldest) {
			continue
		}
		t.leavers = append(t.leavers, leaver{oldest, now + max(t.cfg.RTOInit, 4*oldest.tx.rtt)})
		if want--; oldest.initiator {
			t.Close(now, oldest)
			oldest.wake() // the owner answers with Drained
		} else {
			oldest.RequestClose(now)
		}
	}
	t.hand = (t.hand + looks) % n
}

// idleSince is since when a PDC that is idle is.
func (p *PDC) idleSince() time.Duration { return max(p.lastHeard, p.idleAt) }

// spare reports whether nothing is outstanding or arrives on a PDC, as far as this side can see.
func (p *PDC) spare() bool {
	if p.tx.una != p.tx.nxt {
		return false
	}
	if p.initiator {
		return (p.state == Creating || p.state == Established) && !p.t.owner.Pending(p)
	}
	// What a stranger opened ends with the bounds of strangers.
	return p.state == Established && !p.Unproven() && (p.rx == nil || p.rx.early.n() == 0) && !p.t.owner.InboundOpen(p)
}
