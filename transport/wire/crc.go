package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// CRC-32C trailer, 4 bytes, most significant byte first: UE 3.5. It covers the IP source and
// destination address, the UDP header with a checksum of 0 (or the entropy header), and
// everything up to the trailer.
const CRCLen = 4 // bytes

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRCPrefix is the CRC state after the IP addresses and the UDP header. udpLen is the UDP
// length field: 8 plus the length of the datagram with its trailer. All packets of a train
// share the state, so callers may keep it.
func CRCPrefix(src, dst netip.Addr, sport, dport, udpLen uint16) uint32 {
	var a [40]byte
	n := putAddrs(&a, src, dst)
	binary.BigEndian.PutUint16(a[n:], sport)
	binary.BigEndian.PutUint16(a[n+2:], dport)
	binary.BigEndian.PutUint16(a[n+4:], udpLen)
	return update(0, a[:n+8])
}

// A Prefix is the CRC state after the IP addresses and a UDP header with length 0. All
// packets from one address and port to another share it.
type Prefix uint32

// PrefixOf is the Prefix of packets from src to dst.
func PrefixOf(src, dst *netip.AddrPort) Prefix {
	var b [OuterMax]byte
	return Prefix(update(0, b[:PutOuter(&b, src, dst, 0)]))
}

// CRC is the state that CRCPrefix computes, for a packet of n bytes with its trailer. It is
// cheap because CRC-32C is linear: a length changes any state in the same way.
func (p Prefix) CRC(n int) uint32 {
	n += 8
	return uint32(p) ^ lengths[0][uint8(n>>8)] ^ lengths[1][uint8(n)]
}

// lengths is what each of the two bytes of the UDP length, followed by the checksum of 0,
// changes in the state.
var lengths = func() (t [2][256]uint32) {
	for v := range 256 {
		low := castagnoli[v]
		for range 2 {
			low = castagnoli[byte(low)] ^ low>>8
		}
		t[0][v], t[1][v] = castagnoli[byte(low)]^low>>8, low
	}
	return t
}()

// CRC returns the CRC state after b. From state 0 over the bytes of PutOuter it is the
// state that CRCPrefix gives. From there over the packet it is the value of the trailer.
// CRC borrows b, which escapes to the heap.
func CRC(state uint32, b []byte) uint32 {
	if len(b) < shortLen {
		return crcShort(state, b)
	}
	return long(state, b)
}

// long is CRC of shortLen bytes or more.
func long(state uint32, b []byte) uint32 {
	if hasLong {
		n := len(b) &^ 63
		return crcShort(crcLong(state, b[:n]), b[n:])
	}
	return crc32.Update(state, castagnoli, b)
}

// CRCPrefixNative is CRCPrefix for native IP, with the entropy header in place of the UDP
// header.
func CRCPrefixNative(src, dst netip.Addr, ev uint16) uint32 {
	var a [40]byte
	n := putAddrs(&a, src, dst)
	binary.BigEndian.PutUint16(a[n:], ev)
	return update(0, a[:n+4])
}

// OuterMax is the most bytes that PutOuter writes: two IPv6 addresses and a UDP header.
const OuterMax = 40

// PutOuter writes the bytes that CRC and ICV cover in front of a packet over UDP: the IP
// addresses and the UDP header with a checksum of 0. udpLen is that of CRCPrefix; it begins
// at the fourth byte from the end. PutOuter returns the number of bytes.
func PutOuter(b *[OuterMax]byte, src, dst *netip.AddrPort, udpLen uint16) int {
	s, d := src.Addr(), dst.Addr()
	n := 8
	if s.Is4() && d.Is4() {
		// Write whole words, because the reader soon loads whole words
		// (docs/decisions/0006).
		s, d := s.As4(), d.As4()
		binary.LittleEndian.PutUint64(b[:], uint64(binary.LittleEndian.Uint32(s[:]))|uint64(binary.LittleEndian.Uint32(d[:]))<<32)
	} else {
		n = putAddrs(b, s, d)
	}
	binary.BigEndian.PutUint64(b[n:], uint64(src.Port())<<48|uint64(dst.Port())<<32|uint64(udpLen)<<16)
	return n + 8
}

// update is crc32.Update for a few bytes. It does not let them escape to the heap.
func update(state uint32, b []byte) uint32 {
	c := ^state
	for _, v := range b {
		c = castagnoli[byte(c)^v] ^ c>>8
	}
	return ^c
}

// putAddrs writes the two addresses and returns the number of bytes.
func putAddrs(a *[40]byte, src, dst netip.Addr) int {
	src, dst = src.Unmap(), dst.Unmap()
	if src.Is4() != dst.Is4() {
		panic("BUG: wire: CRC over addresses of two families")
	}
	if src.Is4() {
		s, d := src.As4(), dst.As4()
		copy(a[:], s[:])
		copy(a[4:], d[:])
		return 8
	}
	s, d := src.As16(), dst.As16()
	copy(a[:], s[:])
	copy(a[16:], d[:])
	return 32
}

// AppendCRC appends the trailer of b[from:] to b.
func AppendCRC(b []byte, from int, prefix uint32) []byte {
	return binary.BigEndian.AppendUint32(b, CRC(prefix, b[from:]))
}

// PutCRC overwrites the last four bytes of b with the trailer of the bytes before them.
func PutCRC(b []byte, prefix uint32) {
	n := len(b) - CRCLen
	binary.BigEndian.PutUint32(b[n:], CRC(prefix, b[:n]))
}

// VerifyCRC reports whether the last four bytes of b are the trailer of the bytes before
// them.
func VerifyCRC(b []byte, prefix uint32) bool {
	n := len(b) - CRCLen
	if n < 0 {
		return false
	}
	return CRC(prefix, b[:n]) == binary.BigEndian.Uint32(b[n:])
}
