package perf

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// A name of both families is tried by both, the other family second.
func TestFamilies(t *testing.T) {
	ip := netip.MustParseAddr
	four, six := netip.MustParseAddrPort("192.0.2.1:99"), netip.MustParseAddrPort("[2001:db8::1]:99")
	for _, c := range []struct {
		first netip.AddrPort
		ips   []netip.Addr
		want  []netip.AddrPort
	}{
		{four, []netip.Addr{ip("192.0.2.2"), ip("2001:db8::1"), ip("2001:db8::2")}, []netip.AddrPort{four, six}},
		{four, []netip.Addr{ip("::ffff:192.0.2.2"), ip("fe80::1")}, []netip.AddrPort{four}}, // of no zone: nobody can be reached there
		{six, []netip.Addr{ip("2001:db8::1"), ip("::ffff:192.0.2.1")}, []netip.AddrPort{six, four}},
	} {
		if got := families(c.first, c.ips); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ips, got, c.want)
		}
	}
}

// The error of a name that none of its addresses answers for says what was tried; one that
// answers is enough.
func TestDialAny(t *testing.T) {
	nobody := netip.MustParseAddrPort("127.0.0.1:9")
	_, _, err := DialAny(t.Context(), []netip.AddrPort{nobody, netip.MustParseAddrPort("127.0.0.2:9")}, ClientConfig{Timeout: time.Second})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:9") || !strings.Contains(err.Error(), "127.0.0.2:9") {
		t.Errorf("%v", err)
	}
	s, err := NewServer(ServerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), AnyPort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, at, err := DialAny(t.Context(), []netip.AddrPort{nobody, s.Addrs()[0]}, ClientConfig{Timeout: 5 * time.Second})
	if err != nil || at != s.Addrs()[0] {
		t.Fatalf("%v: %v", at, err)
	}
	c.Close()
}
