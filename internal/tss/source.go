package tss

import (
	"crypto/cipher"
	"net/netip"
	"strconv"
)

// A Who is one life of one sender: its epoch, and its SSI or, where the domain uses no SSI, its
// address. It stays the same when keys change and the epoch does not. The zero Who is nobody.
//
// For an IPv6 source without SSI it has a hash of 47 bits of the address, so a comparison must
// look at the address, too.
type Who uint64

const whoSomebody = 1 << 63 // so that SSI 0 in epoch 0 is not nobody

// WhoOf returns the Who of a sender with SSI.
func WhoOf(ssi uint32, epoch uint16) Who { return whoSomebody | Who(ssi)<<16 | Who(epoch) }

// SSI returns the SSI, or the IPv4 address in its place.
func (w Who) SSI() uint32 { return uint32(w >> 16) }

// Epoch returns the epoch of the sender's life.
func (w Who) Epoch() uint16 { return uint16(w) }

func (w Who) String() string {
	if w == 0 {
		return "nobody"
	}
	return "ssi " + strconv.FormatUint(uint64(w&^whoSomebody)>>16, 16) + " epoch " + strconv.Itoa(int(w.Epoch()))
}

// A sender names a source in a packet.
type sender struct {
	addr  netip.Addr // the IPv6 address of a source without SSI
	ssi   uint32     // the SSI, or the IPv4 address of a source without SSI
	epoch uint16
}

func (s *sender) who() Who {
	if !s.addr.Is6() {
		return WhoOf(s.ssi, s.epoch)
	}
	h := uint64(14695981039346656037) // FNV-1a: it must spread, not hide
	a := s.addr.As16()
	for _, b := range a {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return whoSomebody | Who(h>>17)<<16 | Who(s.epoch)
}

// A packetKey seals and opens packets. It has an AEAD, and the IV without the epoch and TSC of
// the packet.
type packetKey struct {
	aead  cipher.AEAD
	iv    uint64 // last 8 bytes of the IV, to be XORed with those of the header
	s     uint32 // first 4 bytes of the IV
	rekey uint32 // the rekey value of the TSCs it is for
}

// A source is a sender whose packets verified.
type source struct {
	sender
	addr netip.Addr // the address it sends from
	who  Who
	keys [2]packetKey // newest first; the second only while automatic rekey is on
	win  *window
	used bool // a packet came since the clock hand of room passed
}

func (s *source) key(rekey uint32) *packetKey {
	for i := range s.keys {
		if k := &s.keys[i]; k.rekey == rekey && k.aead != nil {
			return k
		}
	}
	return nil
}

// add keeps a key. Two are enough: if packets of three rekey intervals come at once, that only
// costs derivations.
func (s *source) add(k *packetKey) {
	s.keys[1] = s.keys[0]
	s.keys[0] = *k
}

// sources has the sources seen under one key. A source has derived keys, which can be derived
// again, and may have a replay window, which cannot be replaced. So a source with a window
// stays as long as the key.
type sources struct {
	at   map[sender]*source
	ring []*source
	hand int
}

// evictLook is how many sources are looked at to find one to forget.
const evictLook = 64

// room makes room for one more source, so that there are at most limit. If it must evict one,
// it chooses one that was not used since the clock hand last passed, else the first without a
// window. It reports whether there is room, and whether a source was evicted. There is no room
// if every source that it looked at has a window.
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
