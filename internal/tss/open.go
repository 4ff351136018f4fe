package tss

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A trial is the derived key of a packet whose source is unknown, or has no key for its TSC
// yet. It is kept for the source once the packet has verified. There is only one, which the
// next such packet replaces, so forged packets need no memory and displace no source (T25).
type trial struct {
	gen  uint64 // gen of the slot; 0: the trial is empty
	from sender
	addr netip.Addr
	packetKey
}

// Open verifies and decrypts a packet in place. pkt is a datagram from the security header to
// the ICV, outer is as for Seal, src is the address it came from; Open borrows all three. now
// is the caller's clock, by which keys expire.
//
// With Good, plain is the part of pkt from the PDS header on, and who is the life of its
// sender. That life stays at the address where it was first heard under this key. With any
// other Drop pkt may have been overwritten, and no answer is due.
func (d *Domain) Open(now time.Duration, pkt, outer []byte, src netip.Addr) (plain []byte, who Who, why Drop) {
	plain, who, _, why = d.OpenEither(now, pkt, outer, nil, src)
	return plain, who, why
}

// OpenEither is Open for a packet that was sealed with outer or with other, of which it says which one. It
// tries outer first, and copies the packet before. With other nil it is Open.
func (d *Domain) OpenEither(now time.Duration, pkt, outer, other []byte, src netip.Addr) (plain []byte, who Who, second bool, why Drop) {
	d.opened = nil
	plain, who, second, why = d.open(now, pkt, outer, other, src)
	if why != Good {
		d.stats.Drops[why]++
	} else {
		d.stats.In++
	}
	return plain, who, second, why
}

func (d *Domain) open(now time.Duration, pkt, outer, other []byte, src netip.Addr) (_ []byte, _ Who, second bool, _ Drop) {
	// The order of the checks: S-SEC-06.
	if len(pkt) == 0 {
		return nil, 0, false, DropShort
	}
	if wire.Type(pkt[0]>>3) != wire.TypeTSS {
		return nil, 0, false, DropClear
	}
	t, h, err := wire.ParseTSS(pkt)
	if err != nil || len(pkt)-h < wire.ICVLen {
		return nil, 0, false, DropShort
	}
	if t.SDI != d.cfg.SDI {
		return nil, 0, false, DropSDI
	}
	// A packet with SSI and one without could have the same source and IV, so a domain accepts
	// only one of the two kinds.
	if t.SP != d.cfg.UseSSI {
		if t.SP {
			return nil, 0, false, DropSSI
		}
		return nil, 0, false, DropNoSSI
	}
	if age := d.epoch - t.Epoch; d.cfg.EpochLifetime != 0 && age > d.cfg.EpochLifetime && age < 1<<15 {
		return nil, 0, false, DropLate
	}
	s := &d.slots[t.AN]
	if s.dying && now >= s.dies {
		d.kill(t.AN)
	}
	if !s.live {
		return nil, 0, false, DropAN
	}
	src = plainAddr(src)
	if src.Is6() != d.cfg.Local.Is6() || !src.IsValid() {
		return nil, 0, false, DropSource
	}
	from := sender{ssi: t.SSI, epoch: t.Epoch}
	if !t.SP {
		from = byAddr(src, t.Epoch)
	} else if d.cfg.PeerSSI != 0 && t.SSI != d.cfg.PeerSSI || t.SSI == d.cfg.SSI && src != d.cfg.Local {
		return nil, 0, false, DropSource
	}

	p := s.recent
	if p == nil || p.sender != from {
		p = s.peers.at[from]
	}
	if p != nil && p.addr != src { // T26: a source keeps its address
		return nil, 0, false, DropSource
	}
	rekey := d.rekey(t.TSC)
	var k *packetKey
	if p != nil {
		k = p.key(rekey)
	}
	known := k != nil
	if !known {
		k = d.try(s, &from, src, rekey)
	}
	if other != nil {
		d.spare = append(d.spare[:0], pkt[h:]...)
	}
	iv, aad := d.bind(k, pkt[:h], outer)
	plain, err := k.aead.Open(pkt[h:h], iv, pkt[h:], aad)
	if err != nil && other != nil {
		second = true
		copy(pkt[h:], d.spare) // the first try has cleared it
		iv, aad = d.bind(k, pkt[:h], other)
		plain, err = k.aead.Open(pkt[h:h], iv, pkt[h:], aad)
	}
	if err != nil {
		s.failures++
		return nil, 0, false, DropAuth
	}
	if !known {
		if p == nil {
			if p = d.remember(s, &from, src); p == nil {
				return nil, 0, false, DropFull
			}
		}
		p.add(k)
	}
	p.used = true
	s.recent = p
	d.opened, d.openedTSC = p, t.TSC
	return plain, p.who, second, Good
}

// try returns the key of a packet whose source has none: that of the last packet tried if it
// was from the same source, else a new one.
func (d *Domain) try(s *slot, from *sender, src netip.Addr, rekey uint32) *packetKey {
	t := &d.trial
	if t.gen != s.gen || t.rekey != rekey || t.from != *from || t.addr != src {
		t.gen, t.from, t.addr = s.gen, *from, src
		d.derive(&t.packetKey, s, from, src, rekey)
	}
	return &t.packetKey
}

// remember adds the source of a packet that verified. It returns nil if there is no room.
func (d *Domain) remember(s *slot, from *sender, src netip.Addr) *source {
	ok, evicted := s.peers.room(d.cfg.MaxSources)
	if !ok {
		return nil
	}
	if evicted {
		d.stats.Evicted++
		d.stats.Sources--
	}
	p := &source{sender: *from, addr: src, who: from.who()}
	s.peers.add(p)
	d.stats.Sources++
	return p
}
