package pds

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file proves that no former life of a target executed a message (F12). A target that
// gets a request for a PDC that it never had says in its NACK 0E for how long it has lived
// (S-LIFE-01). So the source knows when that life began at the latest. Whatever the source
// sent for the first time after that moment cannot have reached a former life.

// refuseUnknown answers a request for a PDC that does not exist.
func (t *Table) refuseUnknown(in *Arrival, h *wire.Req) {
	if in.Small {
		return
	}
	n := wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: h.PSN, DPDCID: h.SPDCID}
	if t.neverHad(in.Now, h.DPDCID) {
		n.Vendor = wire.VendorLife
		n.Payload = uint32(min((in.Now-t.cfg.Born)/time.Millisecond, math.MaxUint32))
	}
	t.sendNack(in.Now, in.From, in.Path, n)
}

// neverHad reports whether no PDC of this side ever had that PDCID, nor will have it until no
// packet for it can be under way any more.
func (t *Table) neverHad(now time.Duration, id uint16) bool {
	if t.cfg.Born == 0 || now <= t.cfg.Born || t.had != nil && t.had[id>>6]>>(id&63)&1 != 0 {
		return false
	}
	return t.shunned.add(now, t.cfg.Quarantine, id)
}

// bornBy is the moment at which the life that sent a NACK 0E began at the latest, 0 if the NACK
// does not tell. The clocks of two hosts run at speeds that differ by far less than 1/256.
func bornBy(now time.Duration, n *wire.Nack) time.Duration {
	if n.Code != wire.NackInvDPDCID || n.Vendor != wire.VendorLife {
		return 0
	}
	lived := time.Duration(n.Payload) * time.Millisecond
	return max(now-lived+lived/256, 1)
}

// unrun reports whether the message that begins, as far as it is outstanding, with the packet
// psn cannot have been executed: one of its packets never left, or was sent for the first time when
// the life that does not know the PDC had begun, and each transmission of that packet was answered by
// NACK 0E. A message is executed only if all of its packets are. The second condition would
// follow from the first if clocks never stood still, as they do in a suspended host.
func (p *PDC) unrun(psn wire.PSN, born time.Duration) bool {
	tx := &p.tx
	for msg := tx.at(psn).piece.Msg; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.ctl != 0 || k.piece.Msg != msg {
			break
		}
		if k.state != pktFinished && (k.unsent() || k.first >= born && k.unknown > k.tries) {
			return true
		}
	}
	return false
}

// shunned is the PDCIDs that this side does not give to a PDC for a while, because it said that
// it never had them. A late SYN packet must not open a PDC under one of them: other packets of
// the PDC that the NACK ended would then be executed. Two bitmaps take turns, so that a flood
// of forged packets costs no memory.
type shunned struct {
	turn time.Duration // when cur was begun
	cur  *shunMap
	old  *shunMap
}

// A shunMap has a bit for each PDCID, and the number of bits that are set.
type shunMap struct {
	bits [1 << 16 / 64]uint64
	n    int
}

// maxShunned bounds the PDCIDs that are shunned at a time to twice as many. Beyond it there
// are no proofs.
const maxShunned = 4096

// roll begins another bitmap if the current one is as old as keep.
func (s *shunned) roll(now, keep time.Duration) {
	if s.cur == nil && s.old == nil || now-s.turn < keep {
		return
	}
	s.old, s.cur = s.cur, nil
	if now-s.turn >= 2*keep {
		s.old = nil
	}
	s.turn = now
}

// add shuns a PDCID for keep at least. It reports false if there are too many.
func (s *shunned) add(now, keep time.Duration, id uint16) bool {
	s.roll(now, keep)
	if s.cur == nil {
		s.cur = new(shunMap)
		if s.old == nil {
			s.turn = now
		}
	}
	w, bit := &s.cur.bits[id>>6], uint64(1)<<(id&63)
	if *w&bit == 0 {
		if s.cur.n == maxShunned {
			return false
		}
		*w |= bit
		s.cur.n++
	}
	return true
}

// has reports whether a PDCID is shunned.
func (s *shunned) has(now, keep time.Duration, id uint16) bool {
	if s.cur == nil && s.old == nil {
		return false
	}
	s.roll(now, keep)
	for _, m := range [...]*shunMap{s.cur, s.old} {
		if m != nil && m.bits[id>>6]>>(id&63)&1 != 0 {
			return true
		}
	}
	return false
}
