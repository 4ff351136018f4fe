package pds

import (
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// Secured establishment (UE 3.5.8, S-SYN-02, S-SYN-03) protects from replayed packets. Those
// of a PDC that exists are duplicates. A replayed SYN could open a PDC again; its Start_PSN
// tells an old SYN from a new one:
//
//   - 0-RTT: the target keeps a floor (Expected_PSN) for all initiators, above the
//     Start_PSN of every PDC that ended. The floor begins with the Table, so 0-RTT is safe
//     with a key that no earlier Table used.
//   - 1-RTT: the target draws the Start_PSN of each PDC. It need not remember old ones, so
//     1-RTT is safe with a key that outlives a target. A replayed SYN opens a PDC if its
//     Start_PSN is the one just drawn for its address and PDCID: with probability 2⁻³¹ for
//     each recorded life of these two.
//
// In both cases NACK 0x17 tells an initiator which Start_PSN to use. An initiator believes
// it until the first ACK.

const (
	// Start_PSNs are drawn from [firstStart, lastStart), as the reference provider does, so
	// that the 2³¹ PSNs that a PDC may use do not wrap.
	firstStart = 1 << 16
	lastStart  = 1 << 31
	// maxRenumberings is the most NACKs 0x17 that one PDC follows. A PDC also follows that
	// many unauthenticated ones and ignores the others.
	maxRenumberings = 8
	// maxExpected is the most targets whose Expected_PSN is remembered, 40 bytes each. When
	// it is reached, the one learned first is forgotten, which costs a round trip.
	maxExpected = 4096
	// nobody is the who of a PDC that no target has answered yet.
	nobody = ^uint64(0)
)

// secured reports whether packets are authenticated.
func (t *Table) secured() bool { return t.cfg.Secure != SecureNone }

// Who is the life of the peer that the PDC belongs to (Arrival.Who). It is 0 without
// security and until a target has answered.
func (p *PDC) Who() uint64 {
	if p.who == nobody {
		return 0
	}
	return p.who
}

// Knows reports whether a peer of that address has shown by an open PDC that it fits.
func (t *Table) Knows(remote netip.AddrPort) (known bool) {
	t.Each(func(p *PDC) { known = known || p.remoteID != 0 && p.remote == remote })
	return known
}

// foreign reports whether to drop a packet whose who is not that of p, and counts the drop.
// It drops all such packets, except authenticated ones for a PDC that no target has
// answered yet. T8: no unauthenticated packet changes a secured PDC.
func (t *Table) foreign(p *PDC, who uint64) bool {
	if p.who == nobody && who != 0 {
		return false
	}
	t.Stats.DropBinding++
	return true
}

// foreignNack is foreign for NACKs. A new life of the peer may say that it does not know
// the PDC (F12). An unauthenticated NACK 0x17 comes this far only if the owner passes it
// on, for targets that send it in clear (T7).
func (t *Table) foreignNack(p *PDC, who uint64, c wire.NackCode) bool {
	switch c {
	case wire.NackNewStartPSN:
		if p.who == nobody && (who != 0 || p.startsInClear < maxRenumberings) {
			return false
		}
	case wire.NackInvDPDCID, wire.NackPDCHdrMismatch, wire.NackInvalidSyn:
		if who != 0 && t.secured() {
			return false
		}
	}
	return t.foreign(p, who)
}

// secureStart chooses the first PSN of a secured PDC that this side opens under id: the one
// that the target expects if that is known, else a random one.
func (t *Table) secureStart(id uint16, remote netip.AddrPort) wire.PSN {
	if s, ok := t.expected.psn[remote]; ok {
		return t.above(id, s)
	}
	if t.cfg.StartPSN != nil {
		// StartPSN is mapped into the range. PSNs outside would be old to a target with a
		// low floor, and new once the floor is higher.
		return t.above(id, firstStart+(t.cfg.StartPSN()-firstStart)%(lastStart-firstStart))
	}
	return t.above(id, t.drawStart())
}

// drawStart draws a Start_PSN.
func (t *Table) drawStart() wire.PSN {
	return firstStart + wire.PSN(t.rng.Uint32N(lastStart-firstStart))
}

// above is s, or a PSN beyond those that id was last used with if s is not beyond them. A
// target that still has the PDC takes SYN packets with lower PSNs for late ones.
func (t *Table) above(id uint16, s wire.PSN) wire.PSN {
	if l := t.lastUse(id); l.first != l.end && s.Before(l.end.Add(startGap)) {
		return l.end.Add(startGap)
	}
	return s
}

// expectedTable holds the Expected_PSNs of targets.
type expectedTable struct {
	psn   map[netip.AddrPort]wire.PSN
	order []netip.AddrPort // ring of the keys; when it is full, the one learned first is at head
	head  int
}

// learn stores the Expected_PSN of a closing ACK if it is newer than the stored one.
func (e *expectedTable) learn(remote netip.AddrPort, psn wire.PSN) {
	old, ok := e.psn[remote]
	switch {
	case ok:
		if !psn.After(old) {
			return
		}
	case e.psn == nil:
		e.psn = make(map[netip.AddrPort]wire.PSN)
		e.order = append(e.order, remote)
	case len(e.order) < maxExpected:
		e.order = append(e.order, remote)
	default:
		delete(e.psn, e.order[e.head])
		e.order[e.head] = remote
		e.head = (e.head + 1) % maxExpected
	}
	e.psn[remote] = psn
}

// below reports whether a Start_PSN is older than floor. Both conditions matter: the serial
// one is the rule (S-SYN-02), and without the other a floor that has gone half round would
// make packets of the first PDCs look new.
func below(start wire.PSN, floor uint64) bool {
	return uint64(start) < floor || uint64(start)-floor >= 1<<31
}

// raiseFloor raises the floor above the Start_PSN of a PDC that ended, or that must never
// open.
func (t *Table) raiseFloor(start wire.PSN) {
	if t.cfg.Secure == SecureZeroRTT && uint64(start) >= t.floor {
		t.floor = uint64(start) + 1
	}
}

// zeroRTT reports whether the floor decides about SYN packets. Once the floor is above all
// PSNs it no longer does, and opening a PDC costs a round trip.
func (t *Table) zeroRTT() bool {
	return t.cfg.Secure == SecureZeroRTT && t.floor <= 1<<32-1
}

// otherStart answers a SYN packet with the PDCID of an existing PDC, but another Start_PSN.
func (t *Table) otherStart(in *Arrival, h *wire.Req, start wire.PSN, p *PDC) {
	if t.zeroRTT() && p.who == in.Who && below(start, uint64(p.start)) {
		// The packet was sent before its initiator followed a NACK 0x17. The initiator
		// could take an answer for one to another packet, which now has this PSN.
		t.Stats.DropStale++
		return
	}
	// This is another life. Its initiator will send the same messages under another PDCID,
	// so no copy of this packet may open a PDC once p is gone.
	t.raiseFloor(start)
	t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackInvalidSyn, PSN: h.PSN, DPDCID: h.SPDCID})
}

// startAgreed reports whether a SYN packet without a PDC may open one. If not, NACK 0x17
// asks for another Start_PSN.
func (t *Table) startAgreed(in *Arrival, h *wire.Req, start wire.PSN) bool {
	t.pend.expire(in.Now, t)
	key := pendKey{t.fepKey(in.source(), h.SPDCID), in.Who}
	e := t.pend.m[key]
	zero := t.zeroRTT()
	if e != nil && e.start == start || zero && !below(start, t.floor) {
		if e != nil {
			t.pend.remove(e)
		}
		return true
	}
	if !t.mayNack(in.Now) {
		return false // without drawing a Start_PSN that could not be announced
	}
	if e == nil {
		give := wire.PSN(t.floor)
		if !zero {
			give = t.mint(start)
		}
		e = t.pend.add(in.Now+t.cfg.NewPDCTime, key, give, t.cfg.MaxPending, t.cfg.MaxPendingPerSource)
		t.Stats.Pending++
	}
	if !e.answer(in.Now, start) {
		t.Stats.DropRate++
		return false
	}
	t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackNewStartPSN, PSN: h.PSN, DPDCID: h.SPDCID, Payload: uint32(e.start)})
	return false
}

// mint draws a Start_PSN for an initiator that offered another. It is far from the offered
// one, so that late packets with old PSNs do not match new ones.
func (t *Table) mint(offered wire.PSN) wire.PSN {
	s := t.drawStart()
	if d := s.Sub(offered); d < -startGap || d > startGap {
		return s
	}
	if s.Before(lastStart / 2) {
		return s + 3*startGap
	}
	return s - 3*startGap
}
