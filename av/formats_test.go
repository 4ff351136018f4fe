package av

import (
	"encoding/binary"
	"errors"
	"net/netip"
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
