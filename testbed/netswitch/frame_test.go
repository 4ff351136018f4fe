package netswitch

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An IPv4 datagram "hello" from 192.0.2.1:1000 to 192.0.2.2:2000, sums worked out by hand:
// the UDP sum over 192.0.2.1, 192.0.2.2, 17, 13 and 03e8 07d0 000d 6865 6c6c 6f00.
const helloV4 = `4500 0021 0000 0000 4011 f6c8 c0000201 c0000202  03e8 07d0 000d 2c46 6865 6c6c 6f`

func TestCompleteChecksum(t *testing.T) {
	want := unhex(t, helloV4)
	b := bytes.Clone(want)
	for _, junk := range []string{"0000", "ffff", "1234"} {
		copy(b[26:], unhex(t, junk))
		if !completeChecksum(b) || !bytes.Equal(b, want) {
			t.Errorf("from %s: %x, want %x", junk, b[26:28], want[26:28])
		}
	}
	// A sum of 0 is sent as all ones, because 0 means that there is none (RFC 768).
	copy(b[28:30], []byte{0, 0})
	completeChecksum(b)
	copy(b[28:30], b[26:28]) // now the words add up to 0
	completeChecksum(b)
	if b[26] != 0xff || b[27] != 0xff {
		t.Errorf("a sum of 0 is sent as %x", b[26:28])
	}
	for name, f := range map[string]func([]byte) []byte{
		"fragment":       func(b []byte) []byte { b[6] = 0x20; return b },
		"other protocol": func(b []byte) []byte { b[9] = 47; return b },
		"short UDP":      func(b []byte) []byte { return b[:27] },
	} {
		if completeChecksum(f(bytes.Clone(want))) {
			t.Errorf("%s: a checksum was computed", name)
		}
	}
}

func TestParseIP(t *testing.T) {
	whole := unhex(t, helloV4)
	ip, src, dst, ok := parseIP(append(bytes.Clone(whole), make([]byte, 13)...)) // padding of the link
	if !ok || !bytes.Equal(ip, whole) || src.String() != "192.0.2.1" || dst.String() != "192.0.2.2" || ipDst(ip) != dst {
		t.Errorf("%x %v %v %v", ip, src, dst, ok)
	}
	v6 := appendSolicitation(nil, mac{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"))[ethHeader:]
	if ip, src, dst, ok := parseIP(v6); !ok || len(ip) != 72 || src.String() != "2001:db8::1" || dst.String() != "ff02::1:ff00:2" || ipDst(ip) != dst {
		t.Errorf("%x %v %v %v", ip, src, dst, ok)
	}
	for _, b := range [][]byte{whole, v6} {
		for n := range b {
			if _, _, _, ok := parseIP(b[:n:n]); ok {
				t.Fatalf("%d of %d bytes are a packet", n, len(b))
			}
		}
	}
	for name, c := range map[string]struct {
		at int
		v  byte
	}{"version": {0, 0x55}, "header length": {0, 0x44}, "length below the header": {3, 19}} {
		b := bytes.Clone(whole)
		b[c.at] = c.v
		if _, _, _, ok := parseIP(b); ok {
			t.Errorf("%s %#x is a packet", name, c.v)
		}
	}
}

func TestARP(t *testing.T) {
	us, them := mac{2, 0, 0, 0, 0, 1}, mac{2, 0, 0, 0, 0, 2}
	ourIP, theirIP := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	q := appendARPRequest(nil, us, ourIP, theirIP)
	want := unhex(t, `ffffffffffff 020000000001 0806  0001 0800 06 04 0001  020000000001 c0000201  000000000000 c0000202`)
	if !bytes.Equal(q, want) {
		t.Errorf("request\n%x, want\n%x", q, want)
	}
	if m, a, ok := parseARP(q[ethHeader:]); !ok || m != us || a != ourIP {
		t.Errorf("%v %v %v", m, a, ok)
	}
	r := unhex(t, `0001 0800 06 04 0002  020000000002 c0000202  020000000001 c0000201`)
	if m, a, ok := parseARP(r); !ok || m != them || a != theirIP {
		t.Errorf("%v %v %v", m, a, ok)
	}
	for n := range r {
		if _, _, ok := parseARP(r[:n:n]); ok {
			t.Fatalf("%d bytes are ARP", n)
		}
	}
	for _, c := range []struct {
		name string
		at   int
		v    byte
	}{{"hardware", 1, 6}, {"protocol", 2, 0x86}, {"operation", 7, 3}, {"a group's sender", 8, 3}} {
		b := bytes.Clone(r)
		b[c.at] = c.v
		if _, _, ok := parseARP(b); ok {
			t.Errorf("%s %#x is taken", c.name, c.v)
		}
	}
}

func TestNeighbourDiscovery(t *testing.T) {
	us := mac{2, 0, 0, 0, 0, 1}
	ours, theirs := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::c0:ffee")
	q := appendSolicitation(nil, us, ours, theirs)
	want := unhex(t, `3333ffc0ffee 020000000001 86dd  60000000 0020 3a ff  20010db8000000000000000000000001
		ff0200000000000000000001ffc0ffee  87 00 0000 00000000  20010db8000000000000000000c0ffee  01 01 020000000001`)
	sum := q[ethHeader+42 : ethHeader+44]
	copy(want[ethHeader+42:], sum)
	if !bytes.Equal(q, want) {
		t.Errorf("solicitation\n%x, want\n%x", q, want)
	}
	// With its checksum in place, pseudo header and message add up to all ones.
	if got := fold(addWords(addWords(protoICMPv6+32, q[ethHeader+8:ethHeader+40]), q[ethHeader+40:])); got != 0xffff {
		t.Errorf("checksum %x: the sum is %x", sum, got)
	}
	a := unhex(t, `60000000 0020 3a ff  20010db8000000000000000000c0ffee 20010db8000000000000000000000001
		88 00 0000 60000000  20010db8000000000000000000c0ffee  02 01 020000000002`)
	if m, who, ok := parseAdvertisement(a); !ok || who != theirs || m != (mac{2, 0, 0, 0, 0, 2}) {
		t.Errorf("%v %v %v", m, who, ok)
	}
	for n := range a {
		if _, _, ok := parseAdvertisement(a[:n:n]); ok {
			t.Fatalf("%d bytes are an advertisement", n)
		}
	}
}
