package pds

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Timers are fields; the heap holds for each PDC the earliest time at which one
// of them can be due. It is lazy: a deadline that moves later leaves the heap
// alone, and the PDC is put back when it is looked at too early.

// A timer is a PDC's place in the heap. Only the PDC that it is about is touched
// when it moves: the others are cold. So the time lies in the timer, and where each
// PDC's timer is lies in a table, by Slot.
type timer struct {
	at   time.Duration // PDC.heapAt
	slot uint32
}

// never is the heapAt of a PDC that is not in the heap.
const never = time.Duration(math.MaxInt64)

// arm makes the heap look at p no later than at.
func (t *Table) arm(p *PDC, at time.Duration) {
	if at < p.heapAt { // nearly always the heap looks before
		t.heapPut(p, at)
	}
}

// armTail is arm for the end of a silence of tailTime that begins now.
func (p *PDC) armTail(now time.Duration) {
	if p.heapAt > now+p.tailFloor() {
		p.t.arm(p, now+p.tailTime())
	}
}

// heapPut puts p into the heap, or moves it there, to be looked at earlier.
func (t *Table) heapPut(p *PDC, at time.Duration) {
	i := int(t.heapPos[p.Slot])
	if p.heapAt == never {
		i = len(t.heap)
		t.heap = append(t.heap, timer{})
	}
	p.heapAt = at
	t.up0(i, timer{at, p.Slot})
}

func (t *Table) heapRemove(p *PDC) {
	if p.heapAt == never {
		return
	}
	p.heapAt = never
	i, n := int(t.heapPos[p.Slot]), len(t.heap)-1
	last := t.heap[n]
	t.heap = t.heap[:n]
	if i != n {
		t.up0(i, last)
		t.down0(int(t.heapPos[last.slot]), last)
	}
}

// place puts an entry into place i.
func (t *Table) place(i int, x timer) {
	t.heap[i] = x
	t.heapPos[x.slot] = int32(i)
}

// up0 puts x into place i or above, moving down what is later.
func (t *Table) up0(i int, x timer) {
	for i > 0 {
		j := (i - 1) / 2
		if t.heap[j].at <= x.at {
			break
		}
		t.place(i, t.heap[j])
		i = j
	}
	t.place(i, x)
}

// down0 puts x into place i or below, moving up what is earlier.
func (t *Table) down0(i int, x timer) {
	for {
		j := 2*i + 1
		if j >= len(t.heap) {
			break
		}
		if j+1 < len(t.heap) && t.heap[j+1].at < t.heap[j].at {
			j++
		}
		if x.at <= t.heap[j].at {
			break
		}
		t.place(i, t.heap[j])
		i = j
	}
	t.place(i, x)
}

// NextTimeout is when Advance has something to look at, 0: never.
func (t *Table) NextTimeout() time.Duration {
	var at time.Duration
	if len(t.heap) > 0 {
		at = t.heap[0].at
	}
	if q := t.pend.first; q != nil {
		at = earlier(at, q.until)
	}
	return at
}

// Advance runs every timer that is due at or before now.
func (t *Table) Advance(now time.Duration) {
	if t.pend.first != nil || len(t.heap) != 0 && t.heap[0].at <= now {
		t.advance(now)
	}
}

func (t *Table) advance(now time.Duration) {
	t.pend.expire(now, t)
	for len(t.heap) > 0 && t.heap[0].at <= now {
		p := t.slots[t.heap[0].slot]
		if at := p.idleUntil(); at > now {
			// Most PDCs that are looked at were done long before.
			p.heapAt = at
			t.down0(0, timer{at, p.Slot})
			continue
		}
		t.heapRemove(p)
		if at := p.calmUntil(); at > now {
			t.arm(p, at)
			continue
		}
		if at := p.runTimers(now); at != 0 && p.state != Closed {
			t.arm(p, max(at, now+1))
		}
	}
}

// idleUntil is when the idle timer of an initiator's PDC is due to which nothing
// else can be; 0: runTimers knows.
func (p *PDC) idleUntil() time.Duration {
	if p.rx != nil || p.tx.una != p.tx.nxt || p.state != Established || p.shut() {
		return 0
	}
	return p.idleAt + p.t.cfg.IdleClose
}

// calmUntil is when runTimers would look again at an initiator's PDC that sends without
// any trouble, and would do nothing before; 0: runTimers knows. It asks nobody for the RTO.
func (p *PDC) calmUntil() time.Duration {
	t, tx := p.t, &p.tx
	if p.rx != nil || p.state != Established || tx.rough || tx.flight == 0 || tx.lost != 0 || tx.held != 0 || tx.rtt == 0 || tx.probes != 0 || tx.rtos != 0 || p.evidence != 0 {
		return 0
	}
	if k := tx.at(tx.una); k.state != pktFlight || k.tries != 0 {
		return 0 // it may be hopeless
	}
	at := max(tx.progress, tx.lastSend) + tx.silence(t.cfg.AckDelay)
	if at > tx.progress+t.rtoLeast {
		return 0 // the RTO may be earlier
	}
	return min(at, max(p.lastHeard, tx.owedSince)+t.cfg.PeerTimeout)
}

// runTimers does what is due and returns the next time to look, 0: none.
func (p *PDC) runTimers(now time.Duration) time.Duration {
	t := p.t
	if p.Outstanding() > 0 || p.shut() {
		if why := p.givenUp(now); why.Why != WhyNone {
			t.fail(now, p, why)
			if why.Why == WhyTimeout || why.Why == WhyUnreachable {
				t.failSilent(now, p.Peer, why)
			}
			return 0
		}
	}
	next := p.txTimers(now)
	if p.state == Closed {
		return 0
	}
	if p.rx != nil {
		next = earlier(next, p.rxTimers(now))
		if p.state == Closed {
			return 0
		}
	}
	return earlier(next, p.closeTimers(now))
}

// earlier is the smaller of two times where 0 means never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// givenUp judges a PDC that has something outstanding (faults.md §1:
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
		if p.state != CloseRequested || p.t.up.InboundOpen(p) {
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
