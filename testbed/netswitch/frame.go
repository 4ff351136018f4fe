package netswitch

import (
	"encoding/binary"
	"net/netip"
)

// Ethernet, ARP and neighbour discovery, as far as the switch needs them to find hosts. The
// functions borrow their arguments.

const (
	ethHeader = 14
	typeIPv4  = 0x0800
	typeARP   = 0x0806
	typeIPv6  = 0x86dd

	arpLen     = 28
	arpRequest = 1
	arpReply   = 2

	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// A mac is an Ethernet address.
type mac [6]byte

var broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// unicast reports whether m can be the address of one interface.
func (m mac) unicast() bool { return m[0]&1 == 0 && m != mac{} }

// appendEthernet appends the header of a frame.
func appendEthernet(b []byte, dst, src mac, etherType uint16) []byte {
	b = append(b, dst[:]...)
	b = append(b, src[:]...)
	return binary.BigEndian.AppendUint16(b, etherType)
}

// parseIP finds the IP packet at the front of b, which may have padding behind it.
// ok is false if b is no whole IPv4 or IPv6 packet.
func parseIP(b []byte) (ip []byte, src, dst netip.Addr, ok bool) {
	if len(b) < 20 {
		return nil, src, dst, false
	}
	switch b[0] >> 4 {
	case 4:
		n := int(binary.BigEndian.Uint16(b[2:]))
		if hl := int(b[0]&15) * 4; hl < 20 || n < hl || n > len(b) {
			return nil, src, dst, false
		}
		return b[:n], netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), true
	case 6:
		if len(b) < 40 {
			return nil, src, dst, false
		}
		n := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if n > len(b) {
			return nil, src, dst, false
		}
		return b[:n], netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), true
	}
	return nil, src, dst, false
}

// ipDst returns the destination of a packet that parseIP accepted.
func ipDst(ip []byte) netip.Addr {
	if ip[0]>>4 == 6 {
		return netip.AddrFrom16([16]byte(ip[24:]))
	}
	return netip.AddrFrom4([4]byte(ip[16:]))
}

// completeChecksum writes the checksum of a TCP or UDP packet that its sender left to
// hardware which does not exist. It reports whether it could: it cannot for fragments, IPv6
// extension headers and other protocols.
func completeChecksum(ip []byte) bool {
	var proto uint8
	var l4, pseudo []byte
	if ip[0]>>4 == 4 {
		if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			return false
		}
		proto, pseudo, l4 = ip[9], ip[12:20], ip[int(ip[0]&15)*4:]
	} else {
		proto, pseudo, l4 = ip[6], ip[8:40], ip[40:]
	}
	var at int
	switch {
	case proto == protoUDP && len(l4) >= 8:
		at = 6
		if n := int(binary.BigEndian.Uint16(l4[4:])); n >= 8 && n < len(l4) {
			l4 = l4[:n]
		}
	case proto == protoTCP && len(l4) >= 20:
		at = 16
	case proto == protoICMPv6 && len(l4) >= 4 && ip[0]>>4 == 6:
		at = 2
	default:
		return false
	}
	l4[at], l4[at+1] = 0, 0
	sum := ^fold(addWords(addWords(uint64(proto)+uint64(len(l4)), pseudo), l4))
	if sum == 0 && proto == protoUDP {
		sum = 0xffff // 0 says that there is none
	}
	binary.BigEndian.PutUint16(l4[at:], sum)
	return true
}

// addWords adds b as 16-bit words to a ones' complement sum that is not yet folded.
func addWords(sum uint64, b []byte) uint64 {
	for ; len(b) >= 4; b = b[4:] {
		sum += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// parseARP reads the sender of an ARP packet for IPv4 over Ethernet.
func parseARP(b []byte) (m mac, a netip.Addr, ok bool) {
	if len(b) < arpLen || binary.BigEndian.Uint64(b)>>16 != 0x0001_0800_0604 {
		return m, a, false
	}
	if op := binary.BigEndian.Uint16(b[6:]); op != arpRequest && op != arpReply {
		return m, a, false
	}
	m = mac(b[8:14])
	return m, netip.AddrFrom4([4]byte(b[14:18])), m.unicast()
}

// appendARPRequest appends a frame with an ARP request for target.
func appendARPRequest(b []byte, from mac, fromIP, target netip.Addr) []byte {
	b = appendEthernet(b, broadcast, from, typeARP)
	b = append(b, 0, 1, 0x08, 0, 6, 4, 0, arpRequest)
	b = append(b, from[:]...)
	f, t := fromIP.As4(), target.As4()
	b = append(b, f[:]...)
	b = append(b, make([]byte, 6)...)
	return append(b, t[:]...)
}

// appendSolicitation appends a frame with a neighbour solicitation (RFC 4861 §4.3)
// for target.
func appendSolicitation(b []byte, from mac, fromIP, target netip.Addr) []byte {
	t, f := target.As16(), fromIP.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]}
	b = appendEthernet(b, mac{0x33, 0x33, 0xff, t[13], t[14], t[15]}, from, typeIPv6)
	at := len(b)
	b = append(b, 0x60, 0, 0, 0, 0, 32, protoICMPv6, 255)
	b = append(b, f[:]...)
	b = append(b, group[:]...)
	b = append(b, 135, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, t[:]...)
	b = append(b, 1, 1) // source link-layer address, 8 bytes
	b = append(b, from[:]...)
	completeChecksum(b[at:])
	return b
}

// parseAdvertisement reads the address that a neighbour advertisement announces.
func parseAdvertisement(ip []byte) (m mac, a netip.Addr, ok bool) {
	if len(ip) < 40+32 || ip[0]>>4 != 6 || ip[6] != protoICMPv6 || ip[40] != 136 || ip[64] != 2 || ip[65] != 1 {
		return m, a, false
	}
	m = mac(ip[66:72])
	return m, netip.AddrFrom16([16]byte(ip[48:64])), m.unicast()
}
