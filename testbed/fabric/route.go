package fabric

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// routes finds the port of an address: the one with the longest matching prefix.
type routes []routeTable // longest prefix first

// A routeTable has the prefixes of one length and family.
type routeTable struct {
	bits  int
	v6    bool
	ports map[netip.Addr]int32
}

func newRoutes(ports []Port) routes {
	var rs routes
	for i := range ports {
		for _, a := range ports[i].Addrs {
			a = a.Masked()
			k := slices.IndexFunc(rs, func(t routeTable) bool { return t.bits == a.Bits() && t.v6 == a.Addr().Is6() })
			if k < 0 {
				k = len(rs)
				rs = append(rs, routeTable{a.Bits(), a.Addr().Is6(), map[netip.Addr]int32{}})
			}
			rs[k].ports[a.Addr()] = int32(i)
		}
	}
	slices.SortStableFunc(rs, func(a, b routeTable) int { return b.bits - a.bits })
	return rs
}

// find returns the port, or -1.
func (rs routes) find(a netip.Addr) int32 {
	for i := range rs {
		t := &rs[i]
		if t.v6 != a.Is6() {
			continue
		}
		m, err := a.Prefix(t.bits)
		if err != nil {
			continue
		}
		if p, ok := t.ports[m.Addr()]; ok {
			return p
		}
	}
	return -1
}

// choose returns the spine of a packet, the same for all packets with the same addresses
// and ports; -1 if there are no spines.
func (s *Switch) choose(p *packet) int32 {
	if s.spines == 0 {
		return -1
	}
	h := s.ecmp
	if p.v6 {
		a, b := p.src.Addr().As16(), p.dst.Addr().As16()
		h = mix(h ^ binary.BigEndian.Uint64(a[:]))
		h = mix(h ^ binary.BigEndian.Uint64(a[8:]))
		h = mix(h ^ binary.BigEndian.Uint64(b[:]))
		h = mix(h ^ binary.BigEndian.Uint64(b[8:]))
	} else {
		a, b := p.src.Addr().As4(), p.dst.Addr().As4()
		h = mix(h ^ uint64(binary.BigEndian.Uint32(a[:]))<<32 ^ uint64(binary.BigEndian.Uint32(b[:])))
	}
	h = mix(h ^ uint64(p.src.Port())<<16 ^ uint64(p.dst.Port()))
	hi, _ := bits.Mul64(h, uint64(s.spines))
	return int32(hi)
}

// mix spreads each bit of x over all (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName returns the FNV-1a hash of a name.
func hashName(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}
