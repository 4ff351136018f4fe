package tss

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

var (
	addrA  = netip.MustParseAddr("192.0.2.1")
	addrB  = netip.MustParseAddr("192.0.2.2")
	addrC  = netip.MustParseAddr("192.0.2.3")
	addrA6 = netip.MustParseAddr("2001:db8::1")
	addrB6 = netip.MustParseAddr("2001:db8::2")
)

// outerAB returns addresses and UDP header of a packet, as they are authenticated.
var outerAB = []byte{192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0xb9, 0x12, 0xb9, 0, 40, 0, 0}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keyOf returns the n-th key for tests.
func keyOf(n uint64) (k Key) {
	r := rand.NewPCG(n, 0x7e57)
	for i := 0; i < len(k); i += 8 {
		for j, v := 0, r.Uint64(); j < 8; j++ {
			k[i+j] = byte(v >> (8 * j))
		}
	}
	return k
}

func domain(t testing.TB, cfg Config) *Domain {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func install(t testing.TB, d *Domain, an uint8, k Key) {
	t.Helper()
	if err := d.Install(an, k); err != nil {
		t.Fatal(err)
	}
}

func use(t testing.TB, d *Domain, now time.Duration, an uint8, epoch uint16, tsc uint64) {
	t.Helper()
	if err := d.Use(now, an, epoch, tsc); err != nil {
		t.Fatal(err)
	}
}

// sealPacket returns a packet from d.
func sealPacket(t testing.TB, d *Domain, plain string, outer []byte) []byte {
	t.Helper()
	b, ok := d.Begin(nil)
	if !ok {
		t.Fatalf("no packet from %v", d)
	}
	if len(b) != d.HeaderLen() {
		t.Fatalf("header of %d bytes, HeaderLen is %d", len(b), d.HeaderLen())
	}
	b = append(append(b, plain...), make([]byte, wire.ICVLen)...)
	if len(b) != d.Overhead()+len(plain) {
		t.Fatalf("%d bytes more, Overhead is %d", len(b)-len(plain), d.Overhead())
	}
	d.Seal(b, outer)
	return b
}

// want opens a copy of pkt and checks the result. With why Good, plain must be the text.
func want(t testing.TB, d *Domain, now time.Duration, pkt, outer []byte, src netip.Addr, why Drop, plain string) {
	t.Helper()
	before := d.Stats()
	got, who, w := d.Open(now, append([]byte(nil), pkt...), outer, src)
	after := d.Stats()
	if w != why {
		t.Fatalf("opened: %v, want %v", w, why)
	}
	if why != Good {
		if got != nil || who != 0 {
			t.Fatalf("refused (%v), yet %x from %v", why, got, who)
		}
		if after.Drops[why] != before.Drops[why]+1 || after.In != before.In {
			t.Fatalf("not counted as %v: %+v", why, after)
		}
		return
	}
	if string(got) != plain || who == 0 {
		t.Fatalf("%q from %v, want %q", got, who, plain)
	}
	if after.In != before.In+1 {
		t.Fatalf("not counted: %+v", after)
	}
}

// A pair is two Domains that share a key under AN 0 and send with it.
type pair struct{ a, b *Domain }

func pairOf(t testing.TB, cfg Config) pair {
	t.Helper()
	ca, cb := cfg, cfg
	ca.Local, cb.Local = addrA, addrB
	if cfg.UseSSI {
		ca.SSI, cb.SSI = 0xa, 0xb
	}
	p := pair{domain(t, ca), domain(t, cb)}
	for i, d := range []*Domain{p.a, p.b} {
		install(t, d, 0, keyOf(1))
		use(t, d, 0, 0, uint16(i), 100)
	}
	return p
}

var cluster = Config{SDI: 7, Mode: Cluster, UseSSI: true}
