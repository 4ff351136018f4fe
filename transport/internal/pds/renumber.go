package pds

import (
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/wire"
)

// restamp gives another Start_PSN to a PDC of which no target ever accepted a packet. All
// its packets become lost ones that were never sent.
func (p *PDC) restamp(now time.Duration, start wire.PSN) {
	t, tx := p.t, &p.tx
	delta := int(start.Sub(p.start))
	n, una, old := int(tx.nxt.Sub(tx.una)), tx.una, tx.ring
	p.start = start
	tx.una, tx.nxt, tx.cack = tx.una.Add(delta), tx.nxt.Add(delta), tx.cack.Add(delta)
	tx.lostHint, tx.mprAt = tx.una, start-2
	tx.holeAt, tx.longSince = 0, 0
	tx.window, tx.room, tx.limited = defaultWindow, room{}, false
	tx.first = tx.first.Add(delta)
	if n == 0 {
		return
	}
	tx.ring = t.getRing(max(len(old), minRing))
	before, out := p.inFlight(), 0
	for i := range n {
		q := una.Add(i)
		k := tx.at(q.Add(delta))
		*k = old[uint32(q)&uint32(len(old)-1)]
		switch k.state {
		case pktFinished:
			continue
		case pktFlight:
			out += int(k.size)
		case pktArrived:
			panic("BUG: pds: a packet of a PDC that no target took has arrived")
		}
		p.unsend(now, q.Add(delta), k, CauseRenumber)
	}
	keep := tx.ring
	tx.ring = old
	t.putRing(p)
	tx.ring = keep
	if invariant.On && p.inFlight() != before-out {
		invariant.Check(false, "pds: %v: %d bytes in flight of %d, %d left it", p, p.inFlight(), before, out)
	}
}

// renumber follows a NACK 0x17: every packet is sent again, the first of them with the PSN
// that the target wants. It reports false if the PDC ended.
func (p *PDC) renumber(in *Arrival, start wire.PSN) bool {
	if in.Who == 0 {
		p.startsInClear++
	} else if p.renumberings++; p.renumberings > maxRenumberings {
		p.t.fail(in.Now, p, Reason{Why: WhyNack, Nack: wire.NackNewStartPSN})
		return false
	}
	p.t.Stats.Renumbered++
	p.restamp(in.Now, start)
	if in.Who != 0 {
		if p.t.askers == nil {
			p.t.askers = make(map[*PDC]uint64)
		}
		p.t.askers[p] = in.Who
	}
	tx := &p.tx
	// The target is there but has accepted no packet yet: earlier timeouts do not count.
	tx.backoff, tx.rtos, tx.progress = 0, 0, in.Now
	tx.waitUntil, tx.waitFor, tx.rnrSince, tx.shortSince = 0, 0, 0, 0
	p.checkTx()
	return true
}

// askedElsewhere ends a PDC that opens if another life of the peer refuses its Start_PSN than the one
// that asked for it, which may have executed what was sent under it before it ended (S-SYN-07). It
// reports whether it did.
func (p *PDC) askedElsewhere(in *Arrival) bool {
	if asker, ok := p.t.askers[p]; !ok || in.Who == 0 || asker == in.Who {
		return false
	}
	tx := &p.tx
	for psn := tx.una; psn != tx.nxt; psn++ {
		if k := tx.at(psn); !k.unsent() {
			p.t.fail(in.Now, p, Reason{Why: WhyNack, Nack: wire.NackInvDPDCID, Born: in.Now})
			return true
		}
	}
	return false
}

// unsent reports whether a packet never left under the Start_PSN that its PDC has.
func (k *txPkt) unsent() bool { return k.fresh && k.cause == CauseRenumber }

// rebirth gives a new PDCID and Start_PSN to a PDC that no target ever accepted, and sends
// everything again. A PDC may do so 8 times.
func (p *PDC) rebirth(now time.Duration) {
	t := p.t
	p.rebirths++
	id := t.newID(now)
	if p.rebirths > 8 || id == 0 {
		t.fail(now, p, Reason{Why: WhyNack, Nack: wire.NackInvalidSyn})
		return
	}
	// Packets of the old PDCID may still be in the network: quarantine the PDCID.
	t.quar.addID(now, t.cfg.Quarantine, p.id)
	t.retireID(p)
	p.id = id
	t.setID(id, p)
	if t.secured() {
		// A 0-RTT target that refused the old Start_PSN accepts none up to it.
		p.restamp(now, t.above(id, p.start.Add(startGap)))
	} else {
		p.restamp(now, t.away(id, p.start.Add(1<<17+int(t.rng.Uint32N(1<<30)))))
	}
	delete(t.askers, p)
	p.doubted = false
	p.checkTx()
	p.wake()
}
