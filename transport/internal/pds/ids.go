package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// An idTable finds PDCs by their own PDCIDs. Its length is a power of two, and the upper
// bits of a PDCID are its index. PDCIDs are drawn so that no two share an index. So a lookup
// touches one cache line of a small table and one of the PDC.
type idTable struct {
	pdc   []*PDC
	shift uint8 // a PDCID shifted right by it is its index
}

const minIDs = 16

// find is the PDC with that PDCID, or nil.
func (x *idTable) find(id uint16) *PDC {
	if i := int(id >> (x.shift & 15)); i < len(x.pdc) {
		if p := x.pdc[i]; p != nil && p.id == id {
			return p
		}
	}
	return nil
}

// taken reports whether the index of a PDCID is in use.
func (x *idTable) taken(id uint16) bool { return x.pdc[id>>x.shift] != nil }

// grow doubles the table. Every entry keeps an index of its own.
func (x *idTable) grow() {
	old := x.pdc
	if len(old) == 0 {
		x.pdc, x.shift = make([]*PDC, minIDs), 16-4
		return
	}
	x.pdc = make([]*PDC, 2*len(old))
	x.shift--
	for _, p := range old {
		if p != nil {
			x.pdc[p.id>>x.shift] = p
		}
	}
}

// Lookup finds a PDC by its own PDCID, or nil.
func (t *Table) Lookup(id uint16) *PDC { return t.ids.find(id) }

// setID enters a PDC under its PDCID. A nil p removes the entry.
func (t *Table) setID(id uint16, p *PDC) {
	x := &t.ids
	if p == nil {
		if x.find(id) != nil {
			x.pdc[id>>x.shift] = nil
		}
		return
	}
	for len(x.pdc) == 0 || x.taken(id) {
		x.grow()
	}
	if t.had == nil {
		t.had = new([1 << 16 / 64]uint64)
	}
	t.had[id>>6] |= 1 << (id & 63)
	x.pdc[id>>x.shift] = p
}

// newID draws a PDCID that is neither in use nor in quarantine; 0: none left.
// UE 3.5.8: PDCID 0 is never valid. T3: never sequential.
func (t *Table) newID(now time.Duration) uint16 {
	x := &t.ids
	for len(x.pdc) < 1<<16 && 2*t.live >= len(x.pdc) {
		x.grow() // so at least every second draw finds a free index
	}
	id := uint16(t.rng.Uint32())
	for {
		for range 1 << 16 {
			if id != 0 && !x.taken(id) && !t.quar.hasID(now, id) && !t.shunned.has(now, t.cfg.Quarantine, id) {
				return id
			}
			id = id*5 + 12345 // full period: every id is tried once
		}
		if len(x.pdc) == 1<<16 {
			return 0
		}
		x.grow() // every free PDCID of this table is in quarantine
	}
}

// A psnRange is the PSNs from first up to, but not including, end. It is empty if they are
// equal.
type psnRange struct{ first, end wire.PSN }

// A lastPage holds the psnRange of the last PDC that this side opened under each of 16
// PDCIDs. Pages are allocated at first use.
type lastPage [1 << lastBits]psnRange

const (
	lastBits = 4
	lastMask = 1<<lastBits - 1
)

// lastUse is the PSNs that the last PDC of this side had under a PDCID.
func (t *Table) lastUse(id uint16) psnRange {
	if t.last == nil || t.last[id>>lastBits] == nil {
		return psnRange{}
	}
	return t.last[id>>lastBits][id&lastMask]
}

// retireID frees the PDCID of a PDC and remembers the PSNs it was used with.
func (t *Table) retireID(p *PDC) {
	t.setID(p.id, nil)
	if !p.initiator {
		return
	}
	if t.last == nil {
		t.last = new([1 << (16 - lastBits)]*lastPage)
	}
	pg := t.last[p.id>>lastBits]
	if pg == nil {
		pg = new(lastPage)
		t.last[p.id>>lastBits] = pg
	}
	pg[p.id&lastMask] = psnRange{p.start, p.tx.nxt + 1}
}

// startGap is the least distance of a Start_PSN from the PSNs that its PDCID was last used
// with (S-PSN-03).
const startGap = 1 << 16

// newStart chooses the first PSN of a PDC that this side opens under id.
func (t *Table) newStart(id uint16) wire.PSN {
	if t.cfg.StartPSN != nil {
		return t.away(id, t.cfg.StartPSN())
	}
	return t.away(id, wire.PSN(t.rng.Uint32()))
}

// away is s, or another PSN if s is within startGap of the last use of id.
func (t *Table) away(id uint16, s wire.PSN) wire.PSN {
	if l := t.lastUse(id); l.first != l.end && !s.Before(l.first-startGap) && s.Before(l.end+startGap) {
		// A PDC uses at most MaxRange PSNs, so the PSNs beyond them are free.
		return l.end.Add(startGap + int(t.rng.Uint32N(1<<28)))
	}
	return s
}
