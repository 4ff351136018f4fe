package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// R-ADDR-01: the binary form, field by field.
func TestAddrBinary(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		want        Addr
		text        string
	}{
		{
			"IPv4", `
				55    # magic
				01    # version 1
				1a    # flags: fa, RI, initiator valid
				00/ff # 0
				0000/ffff # FEP capabilities: not valid
				0000/ffff # PIDonFEP: not valid
				0123  # resource index; the upper 4 bits are refused
				0002  # number of indices
				00000007 # initiator
				c0000201 000000000000000000000000/ffffffffffffffffffffffff # 192.0.2.1`,
			Addr{Flags: AddrIPValid | AddrRIValid | AddrInitiatorValid, Port: Port, RI: 0x123, NumRI: 2, Initiator: 7, IP: netip.MustParseAddr("192.0.2.1")},
			"fi_addr_uet://192.0.2.1:4793/0/291/7",
		},
		{
			"IPv6", `
				55    # magic
				01    # version 1
				df    # flags: all fields valid, IPv6, one MTU a message
				00/ff # 0
				00c6  # FEP capabilities: AI Full, HPC, reorder, optimized headers
				0abc  # PIDonFEP; the upper 4 bits are refused
				0001  # resource index
				0004  # number of indices
				89abcdef # initiator
				20010db8000000000000000000000001 # 2001:db8::1`,
			Addr{
				Flags: AddrCapsValid | AddrIPValid | AddrPIDValid | AddrRIValid | AddrInitiatorValid | AddrIPv6 | AddrMTUMessage, Caps: CapAIFull | CapHPC | CapReorder | CapOptimized, Port: Port, PIDonFEP: 0xabc, RI: 1, NumRI: 4, Initiator: 0x89abcdef,
				IP: netip.MustParseAddr("2001:db8::1"),
			},
			"fi_addr_uet://[2001:db8::1]:4793/2748/1/2309737967",
		},
		{
			"version 2", `
				55    # magic
				02    # version 2: ours
				02    # flags: fa valid
				00/ff # 0
				0000/ffff # FEP capabilities: not valid
				0000/ffff # PIDonFEP: not valid
				000f/ffff # resource index: not valid, the default
				0001/ffff # number of indices: not valid
				00000010/ffffffff # initiator: not valid, the default
				c0000201 000000000000000000000000/ffffffffffffffffffffffff # 192.0.2.1
				8235  # UDP port 33333
				04    # payload MTU 8192
				01    # encapsulation: UDP standard
				00000000/ffffffff # reserved`,
			Addr{
				Flags: AddrIPValid, Port: 33333, MTUCode: 4, Encap: 1, RI: DefaultRI, NumRI: 1, Initiator: DefaultInitiator,
				IP: netip.MustParseAddr("192.0.2.1"),
			},
			"fi_addr_uet://192.0.2.1:33333/0/15/16",
		},
		{
			"path ports", `
				55    # magic
				02    # version 2: ours
				02    # flags: fa valid
				00/ff # 0
				0000/ffff # FEP capabilities: not valid
				0000/ffff # PIDonFEP: not valid
				000f/ffff # resource index: not valid, the default
				0001/ffff # number of indices: not valid
				00000010/ffffffff # initiator: not valid, the default
				c0000201 000000000000000000000000/ffffffffffffffffffffffff # 192.0.2.1
				12b9  # UDP port 4793
				00    # payload MTU: unknown
				00    # encapsulation: UDP symmetric
				9c41  # the first path port, 40001
				03    # the number of path ports
				00/ff # reserved`,
			Addr{
				Flags: AddrIPValid, Port: Port, Paths: PathPorts{40001, 3}, RI: DefaultRI, NumRI: 1, Initiator: DefaultInitiator,
				IP: netip.MustParseAddr("192.0.2.1"),
			},
			"fi_addr_uet://192.0.2.1:4793/0/15/16",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, reserved := unhex(t, c.bytes)
			whole := append(bytes.Clone(b), 0xff)
			a, n, err := ParseAddrBinary(whole)
			if err != nil || n != len(b) || a != c.want {
				t.Fatalf("%+v, %d, %v\nwant %+v", a, n, err, c.want)
			}
			if a.String() != c.text {
				t.Errorf("%s, want %s", a, c.text)
			}
			dirty := bytes.Repeat([]byte{0xa5}, 64)
			if out, err := a.AppendBinary(dirty[:1]); err != nil || !bytes.Equal(out[1:], b) || dirty[len(out)] != 0xa5 {
				t.Errorf("%v, wrote %x\nwant %x", err, out[1:], b)
			}
			for i := range b {
				if _, n, err := ParseAddrBinary(b[:i]); !errors.Is(err, ErrAddrShort) || n != 0 {
					t.Errorf("%d of %d bytes: %v", i, len(b), err)
				}
			}
			for i := range 8 * len(b) {
				bit := byte(0x80) >> (i % 8)
				whole[i/8] ^= bit
				got, _, err := ParseAddrBinary(whole)
				if same := err == nil && got == a; same != (reserved[i/8]&bit != 0) {
					t.Errorf("bit %#x of byte %d flipped: %+v, %v", bit, i/8, got, err)
				}
				whole[i/8] ^= bit
			}
			// R-ADDR-03: the C layout has the same values of the fields that it has.
			cb, err := a.AppendC(nil)
			if err != nil || len(cb) != AddrCLen {
				t.Fatalf("C layout: %d bytes, %v", len(cb), err)
			}
			want := a
			want.Port, want.MTUCode, want.Encap, want.Paths = Port, 0, 0, PathPorts{}
			want.Flags |= AddrPIDValid | AddrRIValid | AddrInitiatorValid
			if got, err := ParseAddrC(cb); err != nil || got != want {
				t.Errorf("C layout: %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// The C layout has the offsets of struct uet_addr, in host byte order.
func TestAddrC(t *testing.T) {
	a := Addr{
		Flags: AddrCapsValid | AddrAbsolute, Caps: CapAIBase | CapHPC, PIDonFEP: 0x123, RI: 0x456, NumRI: 0x789, Initiator: 0x89abcdef,
		IP: netip.MustParseAddr("192.0.2.1"),
	}
	b, err := a.AppendC([]byte{0xa5})
	if err != nil || b[0] != 0xa5 {
		t.Fatal(b, err)
	}
	b = b[1:]
	if len(b) != 32 {
		t.Fatalf("%d bytes, want 32", len(b))
	}
	ne := binary.NativeEndian
	if b[0] != 0 || b[1] != 0x3f || b[2] != 0x05 || b[3] != 0 || ne.Uint32(b[4:]) != 0xc0000201 || !bytes.Equal(b[8:20], make([]byte, 12)) ||
		ne.Uint16(b[20:]) != 0x123 || ne.Uint16(b[22:]) != 0x456 || ne.Uint16(b[24:]) != 0x789 || b[26] != 0 || b[27] != 0 || ne.Uint32(b[28:]) != 0x89abcdef {
		t.Errorf("%x", b)
	}
	a.IP = netip.MustParseAddr("2001:db8::1")
	if b, err = a.AppendC(nil); err != nil || b[1] != 0x7f || netip.AddrFrom16([16]byte(b[4:20])) != a.IP {
		t.Errorf("%x, %v", b, err)
	}
	for n := range b {
		if _, err := ParseAddrC(b[:n]); !errors.Is(err, ErrAddrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	b[0] = 0x10
	if _, err := ParseAddrC(b); !errors.Is(err, ErrAddrVersion) {
		t.Errorf("version 1: %v", err)
	}
	b[0], b[1] = 0x0f, 0x7d // the low bits are ignored; the IP address is not valid
	if _, err := ParseAddrC(b); !errors.Is(err, ErrAddrNoIP) {
		t.Errorf("without IP: %v", err)
	}
}

// R-ADDR-04, R-ADDR-05: what does not parse, and with which error.
func TestAddrRefused(t *testing.T) {
	good, _ := unhex(t, "55 01 1e 00 0000 0001 000f 0001 00000010 c0000201 000000000000000000000000")
	for _, c := range []struct {
		name string
		at   int
		b    byte
		want error
	}{
		{"magic", 0, 0x54, ErrAddrMagic},
		{"version 0", 1, 0, ErrAddrVersion},
		{"version 3", 1, 3, ErrAddrVersion},
		{"version 2 in 32 bytes", 1, 2, ErrAddrShort},
		{"no IP", 2, 0x1c, ErrAddrNoIP},
		{"PIDonFEP", 6, 0x10, ErrAddrField},
		{"RI", 8, 0x10, ErrAddrField},
	} {
		b := bytes.Clone(good)
		b[c.at] = c.b
		if a, n, err := ParseAddrBinary(b); !errors.Is(err, c.want) || n != 0 || a != (Addr{}) {
			t.Errorf("%s: %+v, %d, %v", c.name, a, n, err)
		}
	}
	ip := netip.MustParseAddr("192.0.2.1")
	if _, err := (Addr{IP: ip, PIDonFEP: 0xfff, RI: 0xfff}).AppendBinary(nil); err != nil {
		t.Errorf("the most that fits: %v", err)
	}
	for _, c := range []struct {
		a    Addr
		want error
	}{{Addr{}, ErrAddrNoIP}, {Addr{IP: ip, PIDonFEP: 0x1000}, ErrAddrField}, {Addr{IP: ip, RI: 0x1000}, ErrAddrField}} {
		if b, err := c.a.AppendBinary([]byte{1}); !errors.Is(err, c.want) || len(b) != 1 {
			t.Errorf("AppendBinary of %+v: %x, %v", c.a, b, err)
		}
		if b, err := c.a.AppendC([]byte{1}); !errors.Is(err, c.want) || len(b) != 1 {
			t.Errorf("AppendC of %+v: %x, %v", c.a, b, err)
		}
	}
}

// One endpoint has one Addr, in whatever form its record has the default port or an IPv4
// address.
func TestAddrCanonical(t *testing.T) {
	want := SockAddr(netip.MustParseAddrPort("192.0.2.1:4793"))
	for _, s := range []string{
		"55 01 02 00 0000 0000 0000 0000 00000000 c0000201 000000000000000000000000",
		"55 01 42 00 0000 0000 0000 0000 00000000 00000000000000000000ffffc0000201",
		"55 02 02 00 0000 0000 0000 0000 00000000 c0000201 000000000000000000000000 0000 00 00 00000000",
	} {
		b, _ := unhex(t, s)
		if a, _, err := ParseAddrBinary(b); err != nil || a != want {
			t.Errorf("%s: %+v, %v\nwant %+v", s, a, err, want)
		}
	}
	// Version 1 has no port: another port needs version 2.
	for port, version := range map[uint16]byte{0: 1, Port: 1, 4794: 2} {
		a := want
		a.Port = port
		if b, err := a.AppendBinary(nil); err != nil || b[1] != version {
			t.Errorf("port %d: version %d, %v", port, b[1], err)
		}
	}
}

// R-ADDR-05: fields other than the default are marked valid and are read back, whoever made
// the Addr. Fields that version 1 does not have make it version 2.
func TestAddrMarksWhatItSays(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     func(*Addr)
		version byte
		flags   uint8
	}{
		{"nothing", func(*Addr) {}, 1, AddrIPValid},
		{"IPv6", func(a *Addr) { a.IP = netip.MustParseAddr("2001:db8::1") }, 1, AddrIPValid | AddrIPv6},
		{"IPv6 no longer", func(a *Addr) { a.Flags |= AddrIPv6 }, 1, AddrIPValid},
		{"capabilities", func(a *Addr) { a.Caps = CapHPC }, 1, AddrIPValid | AddrCapsValid},
		{"PIDonFEP", func(a *Addr) { a.PIDonFEP = 1 }, 1, AddrIPValid | AddrPIDValid},
		{"RI", func(a *Addr) { a.RI = 1 }, 1, AddrIPValid | AddrRIValid},
		{"indices", func(a *Addr) { a.NumRI = 2 }, 1, AddrIPValid | AddrRIValid},
		{"initiator", func(a *Addr) { a.Initiator = 1 }, 1, AddrIPValid | AddrInitiatorValid},
		{"absolute", func(a *Addr) { a.Flags |= AddrAbsolute }, 1, AddrIPValid | AddrAbsolute},
		{"port", func(a *Addr) { a.Port = 1 }, 2, AddrIPValid},
		{"MTU", func(a *Addr) { a.MTUCode = 1 }, 2, AddrIPValid},
		{"encapsulation", func(a *Addr) { a.Encap = 2 }, 2, AddrIPValid},
	} {
		a := SockAddr(netip.MustParseAddrPort("192.0.2.1:4793"))
		a.Flags = 0
		c.set(&a)
		b, err := a.AppendBinary(nil)
		if err != nil || b[1] != c.version || b[2] != c.flags {
			t.Errorf("%s: version %d, flags %#x, %v, want %d, %#x", c.name, b[1], b[2], err, c.version, c.flags)
		}
		a.Flags = c.flags
		if got, n, err := ParseAddrBinary(b); err != nil || n != len(b) || got != a {
			t.Errorf("%s: %+v, %v\nwant %+v", c.name, got, err, a)
		}
	}
}

// R-ADDR-06: the string form, and what may be missing in it.
func TestAddrString(t *testing.T) {
	for _, c := range []struct {
		in, out string // out is "" if in does not parse
	}{
		{"192.0.2.1:33333/1/2/3", "192.0.2.1:33333/1/2/3"},
		{"192.0.2.1", "192.0.2.1:4793/0/15/16"},
		{"192.0.2.1/7", "192.0.2.1:4793/7/15/16"},
		{"192.0.2.1:1/7/8", "192.0.2.1:1/7/8/16"},
		{"[2001:db8::1]:4793/0/15/16", "[2001:db8::1]:4793/0/15/16"},
		{"[2001:db8::1]/0", "[2001:db8::1]:4793/0/15/16"},
		{"2001:db8::1", "[2001:db8::1]:4793/0/15/16"},
		{"::ffff:192.0.2.1", "192.0.2.1:4793/0/15/16"},
		{"192.0.2.1/4095/4095/4294967295", "192.0.2.1:4793/4095/4095/4294967295"},
		{"192.0.2.1/4096", ""},
		{"192.0.2.1/0/4096", ""},
		{"192.0.2.1/0/0/4294967296", ""},
		{"192.0.2.1/0/0/0/0", ""},
		{"192.0.2.1/-1", ""},
		{"192.0.2.1/", ""},
		{"192.0.2.1:65536", ""},
		{"host", ""},
		{"invalid", ""},
		{"", ""},
	} {
		a, err := ParseAddr(AddrScheme + c.in)
		if c.out == "" {
			if err == nil {
				t.Errorf("%q is %v", c.in, a)
			}
			continue
		}
		if err != nil || a.String() != AddrScheme+c.out {
			t.Errorf("%q is %v, %v, want %s", c.in, a, err, c.out)
		}
		if again, err := ParseAddr(a.String()); err != nil || again.String() != a.String() {
			t.Errorf("%v is %v, %v", a, again, err)
		}
	}
	if _, err := ParseAddr("192.0.2.1:4793/0/15/16"); err == nil || !strings.Contains(err.Error(), AddrScheme) {
		t.Errorf("without scheme: %v", err)
	}
	if s := (Addr{}).String(); s != "fi_addr_uet://invalid" {
		t.Error(s)
	}
}

func FuzzAddr(f *testing.F) {
	for _, s := range []string{
		"55 01 1e 00 0000 0001 000f 0001 00000010 c0000201 000000000000000000000000",
		"55 02 de 00 00c6 0abc 0001 0004 89abcdef 20010db8000000000000000000000001 8235 04 01 00000000",
	} {
		b, _ := unhex(f, s)
		f.Add(b)
	}
	f.Add([]byte(AddrScheme + "192.0.2.1:33333/1/2/3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, n, err := ParseAddrBinary(b); err == nil {
			out, err := a.AppendBinary(nil)
			if err != nil || n > len(b) {
				t.Fatalf("%x is %+v: %d bytes, %v", b, a, n, err)
			}
			once, n, err := ParseAddrBinary(out)
			if err != nil || n != len(out) || once.String() != a.String() {
				t.Fatalf("%x is %v, written as %x, which is %v, %v", b, a, out, once, err)
			}
			// Writing the parsed form again changes nothing.
			if again, err := once.AppendBinary(nil); err != nil || !bytes.Equal(again, out) {
				t.Fatalf("%x is written as %x, %v", out, again, err)
			}
		}
		if a, err := ParseAddrC(b); err == nil {
			out, err := a.AppendC(nil)
			if once, perr := ParseAddrC(out); err != nil || perr != nil || once.String() != a.String() {
				t.Fatalf("%x is %v, written as %x, which is %v, %v, %v", b, a, out, once, err, perr)
			}
		}
		if a, err := ParseAddr(string(b)); err == nil {
			if again, err := ParseAddr(a.String()); err != nil || again.AddrPort() != a.AddrPort() || again.String() != a.String() {
				t.Fatalf("%s is %v, which is %v, %v", b, a, again, err)
			}
		}
	})
}

// Path ports are those that follow on the second, and never beyond the last port.
func TestPathPorts(t *testing.T) {
	for _, c := range []struct {
		ports []uint16
		want  PathPorts
	}{
		{nil, PathPorts{}},
		{[]uint16{4793}, PathPorts{}},
		{[]uint16{4793, 4794}, PathPorts{4794, 1}},
		{[]uint16{4793, 40001, 40002, 40003}, PathPorts{40001, 3}},
		{[]uint16{4793, 40001, 40002, 50001}, PathPorts{40001, 2}},
		{[]uint16{4793, 65535, 0}, PathPorts{65535, 1}},
	} {
		if got := PathPortsOf(c.ports); got != c.want || got.Valid() != got {
			t.Errorf("%v: %v, want %v", c.ports, got, c.want)
		}
	}
	for _, p := range []PathPorts{{0, 1}, {1, 0}, {65535, 2}, {1, 255}} {
		if got := p.Valid(); got != (PathPorts{}) {
			t.Errorf("%v is taken for valid", p)
		}
	}
}
