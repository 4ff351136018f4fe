package main

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/uetkit/uetkit/transport/wire"
)

// Numbers of the headers around UET.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	etherOld  = 0x9100

	protoUDP    = 17
	protoUET    = 253 // native IP: UE 3.5.10.1
	protoHop    = 0
	protoRoute  = 43
	protoFrag   = 44
	protoOpts   = 60
	maxIPv6Exts = 8
)

// A datagram is the part of an IP packet that may be UET: a UDP payload, or the bytes after
// the entropy header of native IP.
type datagram struct {
	src, dst netip.AddrPort // ports are 0 over native IP
	native   bool
	ev       uint16 // entropy header, or the UDP source port
	tos, ttl uint8
	// body has the captured bytes, len is their number on the wire.
	body []byte
	len  int
	// more says that the rest is in other IP fragments.
	more bool
}

// ip removes the link header of a frame and returns the rest, from the IP header on.
func ip(f *frame) ([]byte, bool) {
	b := f.data
	var proto uint16
	switch f.link {
	case layers.LinkTypeEthernet:
		if len(b) < 14 {
			return nil, false
		}
		proto, b = binary.BigEndian.Uint16(b[12:]), b[14:]
	case layers.LinkTypeLinuxSLL:
		if len(b) < 16 {
			return nil, false
		}
		proto, b = binary.BigEndian.Uint16(b[14:]), b[16:]
	case layers.LinkTypeLinuxSLL2:
		if len(b) < 20 {
			return nil, false
		}
		proto, b = binary.BigEndian.Uint16(b), b[20:]
	case layers.LinkTypeNull, layers.LinkTypeLoop:
		if len(b) < 4 {
			return nil, false
		}
		return b[4:], true // the IP version says what the family says
	case layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6, 12, 14: // DLT_RAW of several systems
		return b, true
	default:
		return nil, false
	}
	for proto == etherVLAN || proto == etherQinQ || proto == etherOld {
		if len(b) < 4 {
			return nil, false
		}
		proto, b = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	return b, proto == etherIPv4 || proto == etherIPv6
}

// parseDatagram finds the datagram in a frame. It reports false if there is none, or only a
// fragment without its headers.
func parseDatagram(f *frame, d *datagram) bool {
	b, ok := ip(f)
	if !ok || len(b) == 0 {
		return false
	}
	onWire := len(b) + f.len - len(f.data) // what the frame had from here on
	switch b[0] >> 4 {
	case 4:
		return d.ipv4(b, onWire)
	case 6:
		return d.ipv6(b, onWire)
	}
	return false
}

func (d *datagram) ipv4(b []byte, onWire int) bool {
	if len(b) < 20 {
		return false
	}
	h := int(b[0]&15) * 4
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n == 0 {
		n = onWire // offloaded segmentation, longer than the field can say
	}
	frag := binary.BigEndian.Uint16(b[6:])
	if h < 20 || n < h || frag&0x1fff != 0 || len(b) < h {
		return false
	}
	d.tos, d.ttl, d.more = b[1], b[8], frag&0x2000 != 0
	src, dst := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	return d.upper(src, dst, b[9], b[h:min(n, len(b))], min(n, onWire)-h)
}

func (d *datagram) ipv6(b []byte, onWire int) bool {
	const h = 40
	if len(b) < h {
		return false
	}
	n := h + int(binary.BigEndian.Uint16(b[4:]))
	if n == h {
		n = onWire
	}
	d.tos, d.ttl = b[0]<<4|b[1]>>4, b[7]
	src, dst, next := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), b[6]
	if src.Is4In6() || dst.Is4In6() {
		return false // never on a wire; what CRC and ICV cover could not be told
	}
	b, n = b[h:min(n, len(b))], min(n, onWire)-h
	for range maxIPv6Exts {
		var ext int
		switch next {
		case protoHop, protoRoute, protoOpts:
			if len(b) < 8 {
				return false
			}
			ext = 8 + int(b[1])*8
		case protoFrag:
			if len(b) < 8 || binary.BigEndian.Uint16(b[2:])>>3 != 0 {
				return false
			}
			d.more = b[3]&1 != 0
			ext = 8
		default:
			return d.upper(src, dst, next, b, n)
		}
		if len(b) < ext || n < ext {
			return false
		}
		next, b, n = b[0], b[ext:], n-ext
	}
	return false
}

// upper parses the payload of an IP packet: b as captured, n bytes on the wire.
func (d *datagram) upper(src, dst netip.Addr, proto uint8, b []byte, n int) bool {
	switch proto {
	case protoUDP:
		if len(b) < 8 || n < 8 {
			return false
		}
		d.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
		d.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
		d.ev = d.src.Port()
		if l := int(binary.BigEndian.Uint16(b[4:])); l >= 8 && l < n {
			n = l
		}
		d.body, d.len = b[8:min(n, len(b))], n-8
	case protoUET:
		if len(b) < wire.EntropyLen || n < wire.EntropyLen {
			return false
		}
		d.native = true
		d.src, d.dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
		d.ev = binary.BigEndian.Uint16(b)
		d.body, d.len = b[wire.EntropyLen:], n-wire.EntropyLen
	default:
		return false
	}
	return true
}

// prefix returns the CRC state before one packet of n bytes of the datagram.
func (d *datagram) prefix(n int) uint32 {
	if d.native {
		return wire.CRCPrefixNative(d.src.Addr(), d.dst.Addr(), d.ev)
	}
	return wire.CRCPrefix(d.src.Addr(), d.dst.Addr(), d.src.Port(), d.dst.Port(), uint16(8+n))
}

// outer returns the bytes before the security header that the ICV of one packet of n bytes
// covers.
func (d *datagram) outer(b *[wire.OuterMax]byte, n int) []byte {
	k := wire.PutOuter(b, &d.src, &d.dst, uint16(8+n))
	if d.native {
		binary.BigEndian.PutUint16(b[k-8:], d.ev)
		clear(b[k-6 : k-4])
		return b[:k-4]
	}
	return b[:k]
}
