package tss

import (
	"crypto/cipher"
	"net/netip"
	"strconv"
)

// A Who is one life of one sender: its SSI, or its address where the domain uses no SSI,
// and its epoch. It stays the same across a rotation of keys that keeps the epoch. The
// zero Who is nobody.
//
// For an IPv6 source without SSI it holds a hash of 47 bits of the address, so a
// comparison must look at the address, too.
type Who uint64

const whoSomebody = 1 << 63 // so that SSI 0 in epoch 0 is not nobody

// WhoOf is the Who of a sender with SSI.
func WhoOf(ssi uint32, epoch uint16) Who { return whoSomebody | Who(ssi)<<16 | Who(epoch) }

// SSI is the SSI, or the IPv4 address that stands for it.
func (w Who) SSI() uint32 { return uint32(w >> 16) }

// Epoch is the epoch of the sender's life.
func (w Who) Epoch() uint16 { return uint16(w) }

func (w Who) String() string {
	if w == 0 {
		return "nobody"
	}
	return "ssi " + strconv.FormatUint(uint64(w&^whoSomebody)>>16, 16) + " epoch " + strconv.Itoa(int(w.Epoch()))
}

// A sender is the name of a source in a packet: its SSI, or its address without one.
type sender struct {
	addr  netip.Addr // without SSI
	ssi   uint32     // with it; else an IPv4 address
	epoch uint16
}

func (s *sender) who() Who {
	if !s.addr.Is6() {
		return WhoOf(s.ssi, s.epoch)
	}
	h := uint64(14695981039346656037) // FNV-1a: it has to spread, not to hide
	a := s.addr.As16()
	for _, b := range a {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return whoSomebody | Who(h>>17)<<16 | Who(s.epoch)
}

// A packetKey seals and opens packets: an AEAD, and the IV without the epoch and the TSC
// of the packet.
type packetKey struct {
	aead  cipher.AEAD
	iv    uint64 // its last 8 bytes, to be XORed with those of the header
	s     uint32 // its first 4 bytes
	rekey uint32 // the rekey value of the TSCs it is for
}

// A source is a sender whose packets verified.
type source struct {
	sender
	addr netip.Addr // where it sends from
	who  Who
	keys [2]packetKey // newest first; the second only while automatic rekey is on
	win  *window
	used bool // since the clock hand of room passed it
}

func (s *source) key(rekey uint32) *packetKey {
	for i := range s.keys {
		if k := &s.keys[i]; k.rekey == rekey && k.aead != nil {
			return k
		}
	}
	return nil
}

// add keeps a key. Two are enough: packets of three rekey intervals at once only cost
// derivations.
func (s *source) add(k *packetKey) {
	s.keys[1] = s.keys[0]
	s.keys[0] = *k
}

// sources are the sources seen under one key. A source has derived keys, which can be
// derived again, and may have a replay window, which cannot be replaced: a source with a
// window stays as long as the key.
type sources struct {
	at   map[sender]*source
	ring []*source
	hand int
}

// evictLook is how many sources are looked at for one to forget.
const evictLook = 64

// room makes room for one source among at most limit. It evicts one, if it must, that
// was not heard since the clock hand last passed, else the first without a window. It
// reports whether there is room and whether a source was evicted; there is no room if
// all that it looked at have a window.
func (t *sources) room(limit int) (ok, evicted bool) {
	if len(t.ring) < limit {
		return true, false
	}
	out := -1
	for range min(evictLook, len(t.ring)) {
		if t.hand++; t.hand >= len(t.ring) {
			t.hand = 0
		}
		s := t.ring[t.hand]
		if s.win != nil {
			continue
		}
		if out < 0 || !s.used {
			out = t.hand
		}
		if !s.used {
			break
		}
		s.used = false
	}
	if out < 0 {
		return false, false
	}
	delete(t.at, t.ring[out].sender)
	last := len(t.ring) - 1
	t.ring[out] = t.ring[last]
	t.ring[last] = nil
	t.ring = t.ring[:last]
	return true, true
}

func (t *sources) add(s *source) {
	if t.at == nil {
		t.at = make(map[sender]*source)
	}
	t.at[s.sender] = s
	t.ring = append(t.ring, s)
}
