package av

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestInsertRecords(t *testing.T) {
	// R-ADDR-01, R-ADDR-14: every form of an address as bytes; what
	// is malformed fails by itself with EINVAL (R-ADDR-04).
	record := func(s string) []byte {
		a, err := wire.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := a.AppendBinary(nil)
		return b
	}
	v1, v2 := record("fi_addr_uet://198.18.0.1/3/7/99"), record("fi_addr_uet://198.18.0.1:5000/3/7/99")
	if len(v1) != wire.AddrV1Len || len(v2) != wire.AddrV2Len {
		t.Fatal(len(v1), len(v2))
	}
	in4 := binary.NativeEndian.AppendUint16(nil, syscall.AF_INET)
	in4 = append(binary.BigEndian.AppendUint16(in4, 5001), 198, 18, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	in6 := binary.NativeEndian.AppendUint16(nil, syscall.AF_INET6)
	in6 = append(binary.BigEndian.AppendUint16(in6, 0), 0, 0, 0, 0)
	ip := netip.MustParseAddr("2001:db8::1").As16()
	in6 = append(append(in6, ip[:]...), 0, 0, 0, 0)
	noIP := append([]byte(nil), v1...)
	noIP[2] &^= wire.AddrIPValid
	badVersion := append([]byte(nil), v1...)
	badVersion[1] = 9
	recs := [][]byte{
		v1, v2, in4, in6, []byte("fi_addr_uet://198.18.0.3/1/2/3"),
		nil, v1[:31], v2[:39], badVersion, noIP, in4[:15], in6[:27], {0x56}, make([]byte, 40), []byte("fi_addr_uet://x"),
	}
	v := open(t, Attr{})
	h, errs := make([]fi.Addr, len(recs)), make([]fi.Errno, len(recs))
	n, err := v.InsertRecords(recs, h, fi.SyncErr, errs)
	if n != 5 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []string{
		"fi_addr_uet://198.18.0.1:4793/3/7/99", "fi_addr_uet://198.18.0.1:5000/3/7/99", "fi_addr_uet://198.18.0.2:5001/0/15/16",
		"fi_addr_uet://[2001:db8::1]:4793/0/15/16", "fi_addr_uet://198.18.0.3:4793/1/2/3",
	} {
		if a, err := v.Lookup(h[i]); err != nil || a.String() != want {
			t.Errorf("%d: %v %v, want %s", i, a, err, want)
		}
	}
	for i := 5; i < len(recs); i++ { // R-AV-04, R-AV-05
		if h[i] != fi.AddrNotAvail || errs[i] != fi.EINVAL {
			t.Errorf("%d: %d %v", i, h[i], errs[i])
		}
	}
	// R-AV-13: a short buffer is filled as far as it goes, the size is told.
	for _, size := range []int{0, 10, 40, 64} {
		b := make([]byte, size)
		k, err := v.LookupRecord(h[1], b)
		if k != 40 || err != nil || string(b[:min(40, size)]) != string(v2[:min(40, size)]) {
			t.Error(size, k, err)
		}
	}
	if _, err := v.LookupRecord(99, nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	// R-AV-14, R-ADDR-06: any well-formed record, inserted or not.
	b := make([]byte, 100)
	if k := v.StrRecord(v2, b); string(b[:k]) != "fi_addr_uet://198.18.0.1:5000/3/7/99" {
		t.Errorf("%q", b[:k])
	}
	if k := v.StrRecord(record("fi_addr_uet://198.18.7.7:5000/3/7/99"), b); string(b[:k]) != "fi_addr_uet://198.18.7.7:5000/3/7/99" {
		t.Errorf("never inserted: %q", b[:k])
	}
	if k := v.StrRecord(noIP, b[:5]); k != len("fi_addr_uet://invalid") || string(b[:5]) != "fi_ad" {
		t.Errorf("%d %q", k, b[:5])
	}
}

func TestRecordsHaveTheFormatOfTheVector(t *testing.T) {
	// R-AV-13, R-INFO-22: what a lookup writes has the format that was announced, its
	// length too, and can be inserted.
	const four, six = "fi_addr_uet://198.18.0.1:5000/0/15/16", "fi_addr_uet://[2001:db8::1]:5001/0/15/16"
	head := func(family, length int) []byte {
		switch runtime.GOOS {
		case "darwin", "freebsd":
			return []byte{byte(length), byte(family)}
		}
		return binary.NativeEndian.AppendUint16(nil, uint16(family))
	}
	ip := netip.MustParseAddr("2001:db8::1").AsSlice()
	in4 := append(head(syscall.AF_INET, 16), 5000>>8, 5000&0xff, 198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	in6 := append(append(append(head(syscall.AF_INET6, 28), 5001>>8, 5001&0xff, 0, 0, 0, 0), ip...), 0, 0, 0, 0)
	own := func(s string) []byte {
		a, err := wire.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := a.AppendBinary(nil)
		return b
	}
	for f, want := range map[fi.AddrFormat][2][]byte{
		fi.FormatSockaddr: {in4, in6}, fi.FormatSockaddrs: {in4, in6}, fi.FormatSockaddr4: {in4, in6}, fi.FormatSockaddr6: {in4, in6},
		fi.FormatStr: {[]byte(four), []byte(six)}, fi.FormatUnspec: {own(four), own(six)},
	} {
		v := open(t, Attr{Format: f})
		for i, s := range []string{four, six} {
			h, err := v.InsertString(s)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, MaxRecord)
			n, err := v.LookupRecord(h, b)
			if err != nil || !bytes.Equal(b[:n], want[i]) {
				t.Errorf("%v: %d bytes %x, %v, want %x", f, n, b[:n], err, want[i])
			}
			few := []byte{9, 9, 9, 9, 9}
			if n, err := v.LookupRecord(h, few[:3]); n != len(want[i]) || err != nil || !bytes.Equal(few, append(want[i][:3:3], 9, 9)) {
				t.Errorf("%v: %d bytes needed, %v, %x, want %d", f, n, err, few, len(want[i]))
			}
			again := []fi.Addr{0}
			if _, err := v.InsertRecords([][]byte{b[:n]}, again, 0, nil); err != nil {
				t.Fatal(err)
			}
			if a, err := v.Lookup(again[0]); err != nil || a.String() != s {
				t.Errorf("%v: %v, %v, want %s", f, a, err, s)
			}
		}
	}
	if _, err := New(Attr{Format: 5}, nil); !errors.Is(err, fi.EINVAL) {
		t.Errorf("an unknown format: %v", err)
	}
	// A link-local address keeps its interface.
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) == 0 {
		t.Fatal(interfaces, err)
	}
	a := netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(interfaces[0].Name), 5)
	if got, err := ParseRecord(appendSockaddr(nil, a)); err != nil || got.AddrPort() != a {
		t.Errorf("%v, %v, want %v", got, err, a)
	}
	// The longest text there is.
	a = netip.AddrPortFrom(netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").WithZone("fifteen_letters"), 65535)
	long := wire.Addr{IP: a.Addr(), Port: a.Port(), PIDonFEP: 4095, RI: 4095, Initiator: 1<<32 - 1}
	if n := len(long.String()); n > MaxRecord {
		t.Errorf("%d bytes, MaxRecord is %d", n, MaxRecord)
	}
}

func TestInsertIsAborted(t *testing.T) {
	// R-AV-10: what a failing call did not come to is FI_ECANCELED.
	v := open(t, Attr{})
	v.max = 2
	errs := make([]fi.Errno, 4)
	n, err := v.Insert([]wire.Addr{addr(0), addr(1), addr(2), addr(3)}, nil, fi.SyncErr, errs)
	if n != 2 || err != nil || errs[1] != 0 || errs[2] != fi.ENOMEM || errs[3] != fi.ECANCELED {
		t.Error(n, err, errs)
	}
	v.Remove(1)
	if h, err := v.InsertString("198.18.0.9"); h != 1 || err != nil {
		t.Error(h, err)
	}
	// R-AV-09: an event queue hears of each of them.
	v = open(t, Attr{Flags: fi.Event})
	v.max = 1
	var e events
	if err := v.BindEvents(&e); err == nil {
		t.Fatal("bound to a closed queue")
	}
	e = events{}
	if err := v.BindEvents(&e); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Insert([]wire.Addr{addr(0), addr(1), addr(2)}, nil, 0, "c"); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(e); got != "[bind error c 1 error c 2 complete c 1]" {
		t.Error(got)
	}
}

func FuzzParseRecord(f *testing.F) {
	a := wire.SockAddr(netip.MustParseAddrPort("[2001:db8::1]:77"))
	b, _ := a.AppendBinary(nil)
	f.Add(b)
	f.Add(binary.NativeEndian.AppendUint16(nil, syscall.AF_INET))
	f.Add([]byte("fi_addr_uet://198.18.0.3/1/2/3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseRecord(b)
		if err != nil {
			return
		}
		if strings.HasSuffix(a.String(), "invalid") {
			t.Fatalf("%x is taken and has no text", b)
		}
	})
}

// A host name is resolved, and what cannot be one says what is taken.
func TestInsertStringResolves(t *testing.T) {
	v := open(t, Attr{})
	h, err := v.InsertString("localhost:5000")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := v.Lookup(h); err != nil || !a.IP.IsLoopback() || a.Port != 5000 {
		t.Errorf("%v, %v", a, err)
	}
	if h, err = v.InsertString("localhost"); err != nil {
		t.Fatal(err)
	}
	if a, err := v.Lookup(h); err != nil || a.Port != wire.Port {
		t.Errorf("%v, %v", a, err)
	}
	for _, bad := range []string{"", "a b", "localhost:", ":5000", "localhost:nosuchservice", "1:2:3", "tcp://localhost:1"} {
		if h, err := v.InsertString(bad); !errors.Is(err, fi.EINVAL) || h != fi.AddrNotAvail || !strings.Contains(err.Error(), "it takes host:port") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
