package pds

import (
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// Secured establishment (UE 3.5.8, S-SYN-02, S-SYN-03). Whoever replays authentic packets
// of a PDC that lives sends duplicates. What could open a PDC again is a SYN, and
// Start_PSN tells an old one from a new one:
//
//   - 0-RTT: the target keeps a floor (Expected_PSN) for all initiators, above the
//     Start_PSN of every PDC that ended. It is as old as the Table, so it serves
//     for a key that no earlier Table used.
//   - 1-RTT: the target draws the Start_PSN of each PDC. It needs to remember
//     nothing and serves for a key that outlives a target. A replayed SYN opens
//     something when its Start_PSN is the one just drawn for its address and
//     PDCID: once in 2³¹ for each life that was recorded of the two.
//
// An initiator learns either way what to use from NACK 0x17, which an initiator
// believes until the first ACK.

const (
	// Start_PSNs are drawn from [firstStart, lastStart), as the reference does:
	// the 2³¹ PSNs a PDC may use do not wrap.
	firstStart = 1 << 16
	lastStart  = 1 << 31
	// maxRenumberings bounds how often one PDC follows a NACK 0x17,
	// and once more as many that nobody authenticated: those are ignored then.
	maxRenumberings = 8
	// maxExpected bounds how many targets' Expected_PSN are remembered, 40 bytes
	// each; the one learned first makes room. Forgetting costs a round trip.
	maxExpected = 4096
	// nobody is the who of a PDC whose target has not answered yet.
	nobody = ^uint64(0)
)

func (t *Table) secured() bool { return t.cfg.Secure != SecureNone }

// Who is the life of the peer that the PDC is bound to, see Arrival.Who; 0 without
// security and while no target has answered.
func (p *PDC) Who() uint64 {
	if p.who == nobody {
		return 0
	}
	return p.who
}

// foreign reports whether to drop a packet for p whose who is not p's, and counts it if so:
// all are dropped but those for a PDC that is bound to nobody yet. T8: nothing
// unauthenticated touches a secured PDC.
func (t *Table) foreign(p *PDC, who uint64) bool {
	if p.who == nobody && who != 0 {
		return false
	}
	t.Stats.DropBinding++
	return true
}

// foreignNack is foreign for NACKs. A new life of the peer may say that it knows
// nothing of the PDC (F12). A NACK 0x17 that nobody authenticated comes this far
// when the owner wants it to, for targets that send it in clear (T7).
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

// secureStart chooses the first PSN of a secured PDC that this side opens under
// id: what the target said it expects, or a random one.
func (t *Table) secureStart(id uint16, remote netip.AddrPort) wire.PSN {
	if s, ok := t.expected.psn[remote]; ok {
		return t.above(id, s)
	}
	if t.cfg.StartPSN != nil {
		// Within the range: a target whose floor is low takes the half above it
		// for old and, when the floor is higher, for new.
		return t.above(id, firstStart+(t.cfg.StartPSN()-firstStart)%(lastStart-firstStart))
	}
	return t.above(id, t.drawStart())
}

func (t *Table) drawStart() wire.PSN {
	return firstStart + wire.PSN(t.rng.Uint32N(lastStart-firstStart))
}

// above is s, or the first PSN beyond what id was last used with if s is not: a
// target takes SYN packets below those of the PDC it has under the PDCID for late
// ones.
func (t *Table) above(id uint16, s wire.PSN) wire.PSN {
	if l := t.lastUse(id); l.first != l.end && s.Before(l.end.Add(startGap)) {
		return l.end.Add(startGap)
	}
	return s
}

// expectedTable is the Expected_PSN of targets.
type expectedTable struct {
	psn   map[netip.AddrPort]wire.PSN
	order []netip.AddrPort // ring of the keys, the one learned first at head when full
	head  int
}

// learn takes the Expected_PSN of a closing ACK; only a newer one counts.
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

// below reports whether a Start_PSN is older than floor. Both conditions matter:
// the serial one is the rule (S-SYN-02), and without the other the floor, once it
// has gone half round, would take the first PDCs' packets for new ones.
func below(start wire.PSN, floor uint64) bool {
	return uint64(start) < floor || uint64(start)-floor >= 1<<31
}

// raiseFloor: a PDC with that Start_PSN ended, or never will be.
func (t *Table) raiseFloor(start wire.PSN) {
	if t.cfg.Secure == SecureZeroRTT && uint64(start) >= t.floor {
		t.floor = uint64(start) + 1
	}
}

// zeroRTT reports whether the floor decides on SYN packets. When the floor is above all PSNs
// it decides no more, and each PDC costs a round trip.
func (t *Table) zeroRTT() bool {
	return t.cfg.Secure == SecureZeroRTT && t.floor <= 1<<32-1
}

// otherStart answers a SYN packet for the PDCID of a PDC that has another
// Start_PSN.
func (t *Table) otherStart(in *Arrival, h *wire.Req, start wire.PSN, p *PDC) {
	if t.zeroRTT() && p.who == in.Who && below(start, uint64(p.start)) {
		// It left before a NACK 0x17 of which its initiator knows by in.Now. Any
		// answer could be taken for one to the packet that has its PSN in.Now.
		t.Stats.DropStale++
		return
	}
	// Another life. Its initiator will send the same messages under another
	// PDCID: no copy of this packet may be taken once p is gone.
	t.raiseFloor(start)
	t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackInvalidSyn, PSN: h.PSN, DPDCID: h.SPDCID})
}

// startAgreed reports whether a SYN packet of no PDC may open one. If not, NACK
// 0x17 asks for another Start_PSN.
func (t *Table) startAgreed(in *Arrival, h *wire.Req, start wire.PSN) bool {
	t.pend.expire(in.Now, t)
	key := synKey{in.From, h.SPDCID}
	e := t.pend.m[key]
	zero := t.zeroRTT()
	if e != nil && e.start == start || zero && !below(start, t.floor) {
		if e != nil {
			t.pend.remove(e)
		}
		return true
	}
	if !t.mayNack(in.Now) {
		return false // and nothing is drawn that nobody would be told
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

// mint draws a Start_PSN for an initiator that offered another, far from it: late
// packets with the PSNs of before are not taken for those of after.
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
