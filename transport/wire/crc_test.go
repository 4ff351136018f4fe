package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// UE 3.5: CRC-32C, sent most significant byte first.
func TestCRCKnown(t *testing.T) {
	for _, c := range []struct{ name, data, trailer string }{
		{"check value of CRC-32C", "123456789", "e3069283"},
		{"32 bytes of zero, RFC 3720 §B.4", string(make([]byte, 32)), "8a9136aa"},
		{"32 bytes of 0xff, RFC 3720 §B.4", string(bytes.Repeat([]byte{0xff}, 32)), "62a8ab43"},
		{"nothing", "", "00000000"},
	} {
		b := append([]byte("head"), c.data...)
		b = AppendCRC(b, 4, 0)
		if got := hex.EncodeToString(b[len(b)-CRCLen:]); got != c.trailer {
			t.Errorf("%s: %s, want %s", c.name, got, c.trailer)
		}
		if update(0, []byte(c.data)) != crc32.Update(0, castagnoli, []byte(c.data)) {
			t.Errorf("%s: not what crc32.Update gives", c.name)
		}
	}
}

// CRC gives what hash/crc32 gives, for any length, state and place in memory.
func TestCRCLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 9000+64)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	for n := range 2100 {
		b, state := buf[rng.IntN(64):][:n], rng.Uint32()
		if got, want := CRC(state, b), crc32.Update(state, castagnoli, b); got != want {
			t.Fatalf("%d bytes from %#x: %#x, want %#x", n, state, got, want)
		}
	}
	for range 2000 {
		b, state := buf[rng.IntN(64):][:rng.IntN(9000)], rng.Uint32()
		if got, want := CRC(state, b), crc32.Update(state, castagnoli, b); got != want {
			t.Fatalf("%d bytes from %#x: %#x, want %#x", len(b), state, got, want)
		}
	}
}

// Whole packets from the IP header on have the right CRC. It covers the addresses and
// everything behind the IP header, with a UDP checksum of 0.
func TestCRCPackets(t *testing.T) {
	for _, c := range []struct{ name, ip, body string }{
		{"A native", "45b8002c0000400040fd251b 0a000001 0a000002", "42420000 59000000000000000005000900012345 9a634f87"},
		{"B UDP", "45b8003000004000401126030a0000010a000002", "424212b9001c0000 59000000000000000005000900012345 9b31e464"},
		{"C native", "45b800280000400040fd251f0a0000020a000001", "42420000 380000010001234500090005 8f20e5fc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ip, _ := unhex(t, c.ip)
			b, _ := unhex(t, c.body)
			src, dst := netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
			var prefix uint32
			if ip[9] == 17 {
				sport, dport, udpLen := uint16(b[0])<<8|uint16(b[1]), uint16(b[2])<<8|uint16(b[3]), uint16(b[4])<<8|uint16(b[5])
				if dport != Port || int(udpLen) != len(b) {
					t.Fatalf("port %d, length %d", dport, udpLen)
				}
				prefix, b = CRCPrefix(src, dst, sport, dport, udpLen), b[8:]
			} else {
				e, n, err := ParseEntropy(b)
				if err != nil {
					t.Fatal(err)
				}
				prefix, b = CRCPrefixNative(src, dst, e.EV), b[n:]
			}
			checkTrailer(t, b, prefix)
		})
	}
}

// checkTrailer checks the three functions for trailers with b, which ends in one, and with
// b with each bit flipped.
func checkTrailer(t *testing.T, b []byte, prefix uint32) {
	t.Helper()
	n := len(b) - CRCLen
	if !VerifyCRC(b, prefix) {
		t.Errorf("CRC of %x does not verify", b)
	}
	if got := AppendCRC(append([]byte{1, 2, 3}, b[:n]...), 3, prefix); !bytes.Equal(got[3:], b) {
		t.Errorf("AppendCRC: %x, want %x", got[3:], b)
	}
	got := append(bytes.Clone(b[:n]), 0xa5, 0xa5, 0xa5, 0xa5)
	if PutCRC(got, prefix); !bytes.Equal(got, b) {
		t.Errorf("PutCRC: %x, want %x", got, b)
	}
	for i := range 8 * len(b) {
		got[i/8] ^= 1 << (i % 8)
		if VerifyCRC(got, prefix) {
			t.Errorf("bit %d flipped, and the CRC verifies", i)
		}
		got[i/8] ^= 1 << (i % 8)
	}
}

func TestCRCTooShort(t *testing.T) {
	for n := range CRCLen {
		if VerifyCRC(make([]byte, n), 0) {
			t.Errorf("%d bytes verify", n)
		}
	}
	if !VerifyCRC(make([]byte, 4), 0) { // no bytes covered, no prefix
		t.Error("the trailer of nothing does not verify")
	}
}

// The prefix is crc32.Update over addresses and UDP or entropy header. Each bit of each of
// them counts, and an IPv4-mapped address is the IPv4 address.
func TestCRCPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var buf [48]byte
		for i := range buf {
			buf[i] = byte(rng.Uint32())
		}
		for _, size := range []int{4, 16} {
			src, _ := netip.AddrFromSlice(buf[:size])
			dst, _ := netip.AddrFromSlice(buf[size : 2*size])
			if src.Is4In6() || dst.Is4In6() {
				continue
			}
			h := buf[2*size : 2*size+8]
			u16 := func(i int) uint16 { return uint16(h[i])<<8 | uint16(h[i+1]) }
			h[6], h[7] = 0, 0
			if got, want := CRCPrefix(src, dst, u16(0), u16(2), u16(4)), crc32.Update(0, castagnoli, buf[:2*size+8]); got != want {
				t.Fatalf("%v %v %x: %#x, want %#x", src, dst, h, got, want)
			}
			h[2], h[3] = 0, 0
			if got, want := CRCPrefixNative(src, dst, u16(0)), crc32.Update(0, castagnoli, buf[:2*size+4]); got != want {
				t.Fatalf("%v %v %x native: %#x, want %#x", src, dst, h[:4], got, want)
			}
		}
	}
	four, mapped := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")
	if CRCPrefix(four, four, 1, 2, 3) != CRCPrefix(mapped, four, 1, 2, 3) {
		t.Error("an IPv4 address and its mapped form give two CRCs")
	}
	wantBug(t, func() { CRCPrefix(four, netip.MustParseAddr("2001:db8::1"), 1, 2, 3) })
	wantBug(t, func() { CRCPrefixNative(netip.MustParseAddr("2001:db8::1"), four, 1) })
}

func TestCRCNoAllocs(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	b := make([]byte, 1024, 2048)
	at4, at6 := netip.AddrPortFrom(v4, 1), netip.AddrPortFrom(v6, 1)
	for name, f := range map[string]func(){
		"PrefixOf":          func() { PrefixOf(&at4, &at4) },
		"PrefixOf IPv6":     func() { PrefixOf(&at6, &at6) },
		"CRCPrefix":         func() { CRCPrefix(v4, v4, 1, 2, 3) },
		"CRCPrefix IPv6":    func() { CRCPrefix(v6, v6, 1, 2, 3) },
		"CRCPrefixNative":   func() { CRCPrefixNative(v4, v4, 1) },
		"CRCPrefixNative 6": func() { CRCPrefixNative(v6, v6, 1) },
		"AppendCRC":         func() { AppendCRC(b, 0, 0) },
		"PutCRC":            func() { PutCRC(b, 0) },
		"VerifyCRC":         func() { VerifyCRC(b, 0) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func FuzzCRC(f *testing.F) {
	f.Add([]byte("123456789"), uint32(0), uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, prefix uint32, flip uint16) {
		b = AppendCRC(b, 0, prefix)
		if !VerifyCRC(b, prefix) {
			t.Fatalf("%x: a CRC of ours does not verify", b)
		}
		i := int(flip) % (8 * len(b))
		b[i/8] ^= 1 << (i % 8)
		if VerifyCRC(b, prefix) {
			t.Fatalf("%x: bit %d flipped, and the CRC verifies", b, i)
		}
	})
}

func BenchmarkCRC(b *testing.B) {
	addr := netip.MustParseAddr("192.0.2.1")
	b.Run("prefix", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			CRCPrefix(addr, addr, 1, 2, 3)
		}
	})
	for _, n := range []int{64, 1024, 8192} {
		buf := make([]byte, n)
		b.Run(fmt.Sprintf("put/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for b.Loop() {
				PutCRC(buf, 1)
			}
		})
		b.Run(fmt.Sprintf("verify/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for b.Loop() {
				VerifyCRC(buf, 1)
			}
		})
	}
}

// PutOuter writes the bytes that CRCPrefix covers.
func TestCRCOuter(t *testing.T) {
	for _, c := range []struct{ src, dst, want string }{
		{"192.0.2.1:258", "198.51.100.2:4793", "c0000201 c6336402 0102 12b9 0405 0000"},
		{"[::ffff:192.0.2.1]:258", "198.51.100.2:4793", "c0000201 c6336402 0102 12b9 0405 0000"},
		{"[2001:db8::1]:258", "[2001:db8::2]:4793", "20010db8000000000000000000000001 20010db8000000000000000000000002 0102 12b9 0405 0000"},
	} {
		src, dst := netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst)
		var b [OuterMax]byte
		for i := range b {
			b[i] = 0xa5
		}
		n := PutOuter(&b, &src, &dst, 0x405)
		if want, _ := unhex(t, c.want); !bytes.Equal(b[:n], want) {
			t.Errorf("%v %v: %x, want %x", src, dst, b[:n], want)
		}
		if got, want := CRC(0, b[:n]), CRCPrefix(src.Addr(), dst.Addr(), 258, 4793, 0x405); got != want {
			t.Errorf("%v %v: CRC %#x, want %#x", src, dst, got, want)
		}
	}
}

// A Prefix with a length is the CRC state that CRCPrefix computes, for all lengths of UDP.
func TestPrefix(t *testing.T) {
	for _, c := range []struct{ src, dst string }{
		{"192.0.2.1:258", "198.51.100.2:4793"},
		{"[::ffff:192.0.2.1]:65535", "198.51.100.2:1"},
		{"[2001:db8::1]:4793", "[2001:db8::2]:49152"},
	} {
		src, dst := netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst)
		p := PrefixOf(&src, &dst)
		for n := range 65536 - 8 {
			if got, want := p.CRC(n), CRCPrefix(src.Addr(), dst.Addr(), src.Port(), dst.Port(), uint16(8+n)); got != want {
				t.Fatalf("%v %v, %d bytes: %#x, want %#x", src, dst, n, got, want)
			}
		}
	}
}

// CRC is crc32.Update for all lengths and alignments, from any state, and reads nothing
// behind b.
func TestCRCLengths(t *testing.T) {
	buf := make([]byte, 1100)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	for n := range 1040 {
		for at := range 9 {
			b, state := buf[at:at+n], rng.Uint32()
			if got, want := CRC(state, b), crc32.Update(state, castagnoli, b); got != want {
				t.Fatalf("%d bytes at %d from %#x: %#x, want %#x", n, at, state, got, want)
			}
		}
	}
}
