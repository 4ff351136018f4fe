package fabric

import (
	"encoding/binary"
	"math/bits"
)

// tos returns the byte of DSCP and ECN.
func tos(ip []byte, v6 bool) uint8 {
	if v6 {
		return ip[0]<<4 | ip[1]>>4
	}
	return ip[1]
}

// setTOS replaces the byte of DSCP and ECN. It updates the checksum of an IPv4 header
// incrementally, so that a wrong checksum stays wrong.
func setTOS(ip []byte, v6 bool, v uint8) {
	if v6 {
		ip[0], ip[1] = ip[0]&0xf0|v>>4, ip[1]&0x0f|v<<4
		return
	}
	// RFC 1624: HC' = ~(~HC + ~m + m').
	sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^binary.BigEndian.Uint16(ip))
	ip[1] = v
	sum += uint32(binary.BigEndian.Uint16(ip))
	binary.BigEndian.PutUint16(ip[10:], ^fold(uint64(sum)))
}

const (
	ecnMask = 3
	ecnCE   = 3
)

// markable reports whether a packet is ECT and not marked yet.
func markable(tos uint8) bool { return tos&ecnMask == 1 || tos&ecnMask == 2 }

// putIPSum writes the correct checksum of an IPv4 header.
func putIPSum(ip []byte) {
	h := ip[:int(ip[0]&15)*4]
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], ^fold(sum(0, h)))
}

// putUDPSum writes the correct checksum of the UDP datagram at ip[udp:end]. An absent
// checksum stays absent.
func putUDPSum(ip []byte, v6 bool, udp, end int) {
	u := ip[udp:end]
	if u[6] == 0 && u[7] == 0 && !v6 {
		return
	}
	u[6], u[7] = 0, 0
	s := sum(uint64(len(u))+protUDP, u)
	if v6 {
		s = sum(s, ip[8:40])
	} else {
		s = sum(s, ip[12:20])
	}
	c := ^fold(s)
	if c == 0 {
		c = 0xffff // 0 is "none"
	}
	binary.BigEndian.PutUint16(u[6:], c)
}

// sum adds the 16-bit words of b to s in one's complement arithmetic. It adds 64 bits at a
// time, which gives the same sum because carries wrap around.
func sum(s uint64, b []byte) uint64 {
	var c uint64
	for ; len(b) >= 8; b = b[8:] {
		s, c = bits.Add64(s, binary.BigEndian.Uint64(b), c)
	}
	s, c = bits.Add64(s, 0, c)
	s += c
	for ; len(b) >= 2; b = b[2:] {
		s, c = bits.Add64(s, uint64(binary.BigEndian.Uint16(b)), 0)
		s += c
	}
	if len(b) == 1 {
		s, c = bits.Add64(s, uint64(b[0])<<8, 0)
		s += c
	}
	return s
}

func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// putTrimmed corrects lengths and checksums of a UDP packet whose end was cut off.
func putTrimmed(ip []byte, v6 bool, udp int) {
	if v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ipv6Len))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		putIPSum(ip)
	}
	binary.BigEndian.PutUint16(ip[udp+4:], uint16(len(ip)-udp))
	putUDPSum(ip, v6, udp, len(ip))
}
