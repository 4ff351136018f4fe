package av

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// The index maps a source to its lowest handle. A packet names its source by FEP and
// initiator (R-CQ-65). Thousands of handles may have the same source; they form a ring in
// ascending order.

// key names a source as packets do.
type key struct {
	fep       netip.AddrPort
	initiator uint32
}

func keyOf(a *wire.Addr) key { return key{a.AddrPort(), a.Initiator} }

// An index is a hash table with open addressing: handle + 1, 0 is free.
type index struct {
	tab  []uint32
	n    int
	seed [2]uint64
}

func (x *index) init() {
	*x = index{tab: make([]uint32, 16), seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// slot is where the search for k begins.
func (x *index) slot(k key) int {
	ip := k.fep.Addr().As16()
	a, b := binary.LittleEndian.Uint64(ip[:]), binary.LittleEndian.Uint64(ip[8:])
	hi, lo := bits.Mul64(a^x.seed[0], b^x.seed[1]|1)
	hi, lo = bits.Mul64(hi^lo^(uint64(k.initiator)<<16|uint64(k.fep.Port())), x.seed[1]^0x9e3779b97f4a7c15|1)
	hi, lo = bits.Mul64(hi^lo^0x2545f4914f6cdd1d, 0xff51afd7ed558ccd)
	return int(hi^lo) & (len(x.tab) - 1)
}

// Find returns the lowest handle of a source, or the user id of that handle (R-CQ-65, -66).
// It returns fi.AddrNotAvail if the source is not in the AV.
func (v *AV) Find(fep netip.AddrPort, initiator uint32) fi.Addr {
	h, _ := v.Source(fep, initiator)
	return h
}

// Source is Find that also reports whether the source is in the AV. If it is there but has no
// user id yet, Source returns fi.AddrNotAvail and true.
func (v *AV) Source(fep netip.AddrPort, initiator uint32) (h fi.Addr, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.gone() {
		return fi.AddrNotAvail, false
	}
	if j, ok := v.lookup(key{fep, initiator}); ok {
		return v.get(fi.Addr(v.index.tab[j] - 1)).user, true
	}
	return fi.AddrNotAvail, false
}

// lookup returns the slot of a source in the index, or the free slot where it would go, and
// whether the source is there.
func (v *AV) lookup(k key) (int, bool) {
	x := &v.index
	for j := x.slot(k); ; j = (j + 1) & (len(x.tab) - 1) {
		h := x.tab[j]
		if h == 0 {
			return j, false
		}
		if a := &v.get(fi.Addr(h - 1)).addr; a.Initiator == k.initiator && a.AddrPort() == k.fep {
			return j, true
		}
	}
}

// join puts handle h, whose record is in the table, into the index.
func (v *AV) join(h uint32, k key) {
	x := &v.index
	j, ok := v.lookup(k)
	if !ok {
		v.nodes[h].next, v.nodes[h].prev = h, h
		x.tab[j] = h + 1
		if x.n++; 2*x.n > len(x.tab) {
			v.widen()
		}
		return
	}
	// R-AV-12: the source has handles already. h goes behind the highest lower handle,
	// which is nearly always the last.
	first := x.tab[j] - 1
	at := v.nodes[first].prev
	if h < first {
		x.tab[j] = h + 1
	} else {
		for at > h {
			at = v.nodes[at].prev
		}
	}
	next := v.nodes[at].next
	v.nodes[h].prev, v.nodes[h].next = at, next
	v.nodes[at].next, v.nodes[next].prev = h, h
}

// leave removes handle h from the index.
func (v *AV) leave(h uint32, k key) {
	x := &v.index
	l := v.nodes[h]
	j, _ := v.lookup(k)
	if l.next != h {
		v.nodes[l.prev].next, v.nodes[l.next].prev = l.next, l.prev
		if x.tab[j] == h+1 {
			x.tab[j] = l.next + 1
		}
		return
	}
	x.n--
	x.tab[j] = 0
	m := len(x.tab) - 1
	for i := (j + 1) & m; x.tab[i] != 0; i = (i + 1) & m {
		// Entries that this one had displaced move up.
		home := x.slot(keyOf(&v.get(fi.Addr(x.tab[i] - 1)).addr))
		if (i-home)&m >= (i-j)&m {
			x.tab[j], x.tab[i] = x.tab[i], 0
			j = i
		}
	}
}

// widen doubles the size of the index.
func (v *AV) widen() {
	old := v.index.tab
	v.index.tab = make([]uint32, 2*len(old))
	for _, h := range old {
		if h == 0 {
			continue
		}
		j := v.index.slot(keyOf(&v.get(fi.Addr(h - 1)).addr))
		for v.index.tab[j] != 0 {
			j = (j + 1) & (len(v.index.tab) - 1)
		}
		v.index.tab[j] = h
	}
}
