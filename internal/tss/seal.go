package tss

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// sealedLen bounds the packets that were begun and not sealed.
const sealedLen = 1 << 10

// sealed tracks which of the last sealedLen TSCs may still be sealed, each once: those that
// were begun and not sealed. A TSC that was sealed twice would be an IV used twice.
type sealed struct{ bits [sealedLen / 64]uint64 }

// init allows no TSC.
func (s *sealed) init() {
	for i := range s.bits {
		s.bits[i] = ^uint64(0)
	}
}

// begin allows tsc, which must be one more than the last one.
func (s *sealed) begin(tsc uint64) { s.bits[tsc%sealedLen/64] &^= 1 << (tsc % 64) }

// end marks tsc as sealed. It returns false if tsc may not be sealed.
func (s *sealed) end(tsc uint64) bool {
	w, bit := &s.bits[tsc%sealedLen/64], uint64(1)<<(tsc%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// Begin appends the security header of the next packet to b. Each call consumes a TSC, even if
// the packet is a resend or is never sent (S-TSC-01). If there is no key to seal with or no TSC
// left, it returns false and b unchanged.
//
// The caller appends the plain text and room for the ICV. Then it calls Seal, before the 1024th
// Begin after this one and before Use or Revoke.
func (d *Domain) Begin(b []byte) ([]byte, bool) {
	if d.send < 0 {
		d.stats.NoKey++
		return b, false
	}
	if d.next >= d.end {
		d.stats.Exhausted++
		return b, false
	}
	tsc := d.next
	d.next++
	d.seal.begin(tsc)
	return binary.BigEndian.AppendUint64(append(b, d.head...), uint64(d.epoch)<<48|tsc), true
}

// Seal encrypts a packet in place and writes its ICV. pkt begins with the header that Begin
// appended, unchanged, and ends with 16 bytes of room for the ICV. outer is what the receiver
// passes to Open as outer: IP addresses and UDP or entropy header (S-SEC-04). Seal borrows
// both.
//
// It panics if the header is not from Begin under the current key, or if the packet was sealed
// before, which would repeat an IV. For a resend, call Begin again.
func (d *Domain) Seal(pkt, outer []byte) {
	h := d.HeaderLen()
	n := len(pkt) - wire.ICVLen
	if n < h {
		panic(fmt.Sprintf("BUG: tss: %d bytes have no room for security header and ICV", len(pkt)))
	}
	count := binary.BigEndian.Uint64(pkt[h-8:])
	tsc := count & wire.TSCMax
	if d.send < 0 || !bytes.Equal(pkt[:h-8], d.head) || uint16(count>>48) != d.epoch || d.next-tsc-1 >= sealedLen {
		panic(fmt.Sprintf("BUG: tss: sealing what was not begun: %x", pkt[:h]))
	}
	if !d.seal.end(tsc) {
		panic(fmt.Sprintf("BUG: tss: sealed twice, or begun under another key: %x", pkt[:h]))
	}
	s := &d.slots[d.send]
	rekey := d.rekey(tsc)
	k := s.own.key(rekey)
	if k == nil {
		var fresh packetKey
		d.derive(&fresh, s, &s.own.sender, d.cfg.Local, rekey)
		s.own.add(&fresh)
		k = &s.own.keys[0]
	}
	iv, aad := d.bind(k, pkt[:h], outer)
	k.aead.Seal(pkt[h:h], iv, pkt[h:n], aad)
	d.stats.Out++
}

// bind returns the IV (S-KEY-01) and the AAD (S-SEC-04) of a packet.
func (d *Domain) bind(k *packetKey, header, outer []byte) (iv, aad []byte) {
	binary.BigEndian.PutUint32(d.iv[:], k.s)
	binary.BigEndian.PutUint64(d.iv[4:], k.iv^binary.BigEndian.Uint64(header[len(header)-8:]))
	d.aad = append(append(d.aad[:0], outer...), header...)
	return d.iv[:], d.aad
}

// rekey returns the part of a TSC that goes into the key derivation.
func (d *Domain) rekey(tsc uint64) uint32 { return uint32((tsc & d.cfg.RekeyMask) >> d.cfg.RekeyShift) }

// derive fills k with the key and IV mask for packets of from (S-KEY-02).
func (d *Domain) derive(k *packetKey, s *slot, from *sender, addr netip.Addr, rekey uint32) {
	s0 := from.ssi
	if from.addr.Is6() { // IPv6 without SSI: only the key tells sources apart
		s0 = d.cfg.SDI
	}
	k.rekey = rekey
	switch d.cfg.Mode {
	case Direct, Client:
		k.aead = s.aead
		k.setIV(s0, s.mask[:])
		return
	case Cluster:
		d.kdf.derive(&s.mac, labelCluster, from.epoch, rekey, from.ssi, addr)
	case Server: // both directions have the client's key, and their own SSI in the IVs
		client := addr
		if addr.Is6() {
			client = d.cfg.Peer
		}
		d.kdf.derive(&s.mac, labelServer, from.epoch, 0, d.cfg.PeerSSI, client)
	}
	k.aead = newAEAD(newBlock(d.kdf.key()))
	k.setIV(s0, d.kdf.mask())
	d.kdf.wipe()
	d.stats.Derived++
}

func (k *packetKey) setIV(s uint32, mask []byte) {
	k.s = s ^ binary.BigEndian.Uint32(mask)
	k.iv = binary.BigEndian.Uint64(mask[4:])
}
