package pds

import "time"

// A deadline is something that a PDC does at a certain time unless something else happens
// before. No deadline is armed or stopped. The table below computes each one from the state
// of the PDC, so none can be forgotten. Table.heap holds for each PDC the earliest time at
// which a deadline can be due. The heap is lazy: when a deadline moves later the heap entry
// stays, and the PDC is put back when it is looked at too early. A deadline that moves
// earlier calls arm.
type deadline uint8

// The deadlines. Those that are due at the same time run in this order.
const (
	deadlineGiveUp  deadline = iota // the peer is gone, or its answers lead nowhere
	deadlineShut                    // the window is closed: ask whether it opened
	deadlineRelease                 // the back-off of refused packets ends
	deadlineReorder                 // a hole lasted too long for reordering: the packet is lost
	deadlineLost                    // the owner has packets to send again
	deadlineRTO                     // the retransmission timeout
	deadlineTail                    // silence after the last packet: send a PROBE
	deadlineUnused                  // target: the PDC never accepted a packet
	deadlineMessage                 // target: the initiator stopped in the middle of a message
	deadlineClear                   // target: a guaranteed response is not cleared
	deadlineProof                   // target: what is to be returned waits for a proof of the source: ask
	deadlinePromise                 // a promised RESPONSE did not come: ask
	deadlineAwait                   // read data does not come: ask whether the target has the PDC
	deadlineIdle                    // the PDC was idle for long: close it
	deadlineDrain                   // quiescing: ask the owner whether it is drained
	deadlineClose                   // closing takes too long
	numDeadlines
)

// deadlines holds two functions for each deadline. at returns when it is due, never if it is
// not set. run acts and returns when to look at the deadline again; it may end the PDC.
//
// init fills the table because run changes deadlines: a literal would be an initialization
// cycle.
var deadlines [numDeadlines]struct {
	at  func(p *PDC) time.Duration
	run func(p *PDC, now time.Duration) time.Duration
}

func init() {
	d := &deadlines
	d[deadlineGiveUp].at, d[deadlineGiveUp].run = (*PDC).lookGiveUpAt, (*PDC).giveUp
	d[deadlineShut].at, d[deadlineShut].run = (*PDC).shutAt, (*PDC).probeShut
	d[deadlineRelease].at, d[deadlineRelease].run = (*PDC).releaseAt, (*PDC).releaseDue
	d[deadlineReorder].at, d[deadlineReorder].run = (*PDC).reorderAt, (*PDC).declareHoles
	d[deadlineLost].at, d[deadlineLost].run = (*PDC).lostAt, (*PDC).wakeLost
	d[deadlineRTO].at, d[deadlineRTO].run = (*PDC).rtoAt, (*PDC).onRTO
	d[deadlineTail].at, d[deadlineTail].run = (*PDC).tailAt, (*PDC).probeTail
	d[deadlineUnused].at, d[deadlineUnused].run = (*PDC).unusedAt, (*PDC).endUnused
	d[deadlineMessage].at, d[deadlineMessage].run = (*PDC).messageAt, (*PDC).endSilent
	d[deadlineClear].at, d[deadlineClear].run = (*PDC).clearAt, (*PDC).askClear
	d[deadlineProof].at, d[deadlineProof].run = (*PDC).proofAt, (*PDC).askProof
	d[deadlinePromise].at, d[deadlinePromise].run = (*PDC).promiseAt, (*PDC).askPromised
	d[deadlineAwait].at, d[deadlineAwait].run = (*PDC).awaitAt, (*PDC).askAwaited
	d[deadlineIdle].at, d[deadlineIdle].run = (*PDC).idleCloseAt, (*PDC).closeIdle
	d[deadlineDrain].at, d[deadlineDrain].run = (*PDC).drainAt, (*PDC).drain
	d[deadlineClose].at, d[deadlineClose].run = (*PDC).closeAt, (*PDC).endClosing
}

// runDeadlines runs the deadlines that are due. It returns when to look again, never if the
// PDC ended. Each deadline is computed after the ones before it ran.
func (p *PDC) runDeadlines(now time.Duration) time.Duration {
	next := never
	for i := range deadlines {
		d := &deadlines[i]
		at := d.at(p)
		if at <= now {
			at = d.run(p, now)
			if p.state == Closed {
				return never
			}
		}
		next = min(next, at)
	}
	return next
}

// NextTimeout is when Advance must be called next, 0: never.
func (t *Table) NextTimeout() time.Duration {
	var at time.Duration
	if len(t.heap) > 0 {
		at = t.heap[0].at
	}
	if q := t.pend.first; q != nil && (at == 0 || q.until < at) {
		at = q.until
	}
	return at
}

// Advance does everything that is due at or before now.
func (t *Table) Advance(now time.Duration) {
	if t.pend.first != nil || len(t.heap) != 0 && t.heap[0].at <= now {
		t.advance(now)
	}
}

func (t *Table) advance(now time.Duration) {
	t.pend.expire(now, t)
	for len(t.heap) > 0 && t.heap[0].at <= now {
		p := t.slots[t.heap[0].slot]
		t.heapRemove(p)
		at := p.calmUntil()
		if at <= now {
			at = p.runDeadlines(now)
		}
		if p.state != Closed && at != never {
			t.arm(p, max(at, now+1))
		}
	}
}

// calmUntil is a fast path of runDeadlines for an initiator's PDC that sends without
// trouble. It returns the time until which runDeadlines would do nothing, 0 if only
// runDeadlines knows. It does not ask the congestion context for the RTO.
//
// Without it a ping-pong takes 2.9 % more instructions (docs/perf.md, Fast paths).
func (p *PDC) calmUntil() time.Duration {
	t, tx := p.t, &p.tx
	if p.rx != nil || p.state != Established || tx.rough || tx.flight == 0 || tx.lost != 0 || tx.waiting != 0 || tx.rtt == 0 || tx.probes != 0 || tx.rtos != 0 || tx.late || p.evidence != 0 {
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

// armTail arms the tail probe for a silence that begins now.
func (p *PDC) armTail(now time.Duration) {
	if p.heapAt > now+p.tailFloor() {
		p.t.arm(p, now+p.tailTime())
	}
}
