package tss

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
)

// member returns the n-th sender of a domain in cluster mode, under keyOf(1).
func member(t testing.TB, cfg Config, n int) *Domain {
	t.Helper()
	cfg.Local = netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	cfg.SSI = uint32(n + 1)
	d := domain(t, cfg)
	install(t, d, 0, keyOf(1))
	use(t, d, 0, 0, 0, 100)
	return d
}

// hear makes b open a packet of d.
func hear(t testing.TB, b, d *Domain, why Drop) {
	t.Helper()
	want(t, b, 0, sealPacket(t, d, "x", nil), nil, d.cfg.Local, why, "x")
}

// MaxSources bounds the sources remembered under one key. At the bound one that was not heard
// lately is forgotten, and costs a derivation when it comes back.
func TestSourcesAreBounded(t *testing.T) {
	cfg := cluster
	cfg.MaxSources = 10
	b := member(t, cfg, 999)
	var all []*Domain
	for i := range 30 {
		all = append(all, member(t, cfg, i))
		hear(t, b, all[i], Good)
		hear(t, b, all[0], Good) // busy: it stays
	}
	s := b.Stats()
	if s.Sources != 10 || s.Evicted != 20 || s.Derived != 30 {
		t.Fatalf("%+v: the busy one was pushed out, or the bound does not hold", s)
	}
	for _, d := range all {
		hear(t, b, d, Good)
	}
	if s := b.Stats(); s.Sources != 10 || len(b.slots[0].peers.at) != 10 {
		t.Fatalf("%+v", s)
	}
	// Sources that are heard all the time stay while others come and go, wherever the search
	// for one to forget begins.
	derived := b.Stats().Derived
	for i := range 40 {
		for _, d := range all[:5] {
			hear(t, b, d, Good)
		}
		hear(t, b, member(t, cfg, 100+i), Good)
	}
	if n := b.Stats().Derived - derived; n > 40+5+5 {
		t.Fatalf("%d derivations for 40 new sources: busy ones were pushed out", n)
	}
	// The other key has a table of its own.
	install(t, b, 1, keyOf(2))
	install(t, all[3], 1, keyOf(2))
	use(t, all[3], 0, 1, 0, 0)
	hear(t, b, all[3], Good)
	if s := b.Stats(); s.Sources != 11 {
		t.Fatalf("%+v", s)
	}
	if b.Revoke(0); b.Stats().Sources != 1 {
		t.Fatalf("%+v", b.Stats())
	}
}

// T23: a source with a replay window is never forgotten while its key lives, because its
// packets could be repeated. With no other left, packets of new sources are dropped.
func TestT23WindowIsNeverForgotten(t *testing.T) {
	cfg := cluster
	cfg.MaxSources = 4
	b := member(t, cfg, 999)
	var uud [][]byte
	var from []netip.Addr
	for i := range 3 {
		d := member(t, cfg, i)
		pkt := sealPacket(t, d, "uud", nil)
		want(t, b, 0, pkt, nil, d.cfg.Local, Good, "uud")
		if !b.Fresh() {
			t.Fatal("fresh")
		}
		uud, from = append(uud, pkt), append(from, d.cfg.Local)
	}
	for i := range 100 {
		hear(t, b, member(t, cfg, 100+i), Good)
	}
	for i := range uud {
		want(t, b, 0, uud[i], nil, from[i], Good, "uud")
		if b.Fresh() {
			t.Fatalf("replay of %d after many others", i)
		}
	}
	last := member(t, cfg, 200)
	hear(t, b, last, Good)
	if !b.Fresh() {
		t.Fatal("fresh")
	}
	late := member(t, cfg, 201)
	hear(t, b, late, DropFull)
	if b.Fresh() {
		t.Fatal("of a packet refused")
	}
	hear(t, b, last, Good)
	if s := b.Stats(); s.Sources != 4 || s.Windows != 4 {
		t.Fatalf("%+v", s)
	}
	// All that ends with the key, and a new key makes room.
	b.Revoke(0)
	if s := b.Stats(); s.Sources != 0 || s.Windows != 0 {
		t.Fatalf("%+v", s)
	}
	install(t, b, 1, keyOf(2))
	install(t, late, 1, keyOf(2))
	use(t, late, 0, 1, 0, 0)
	hear(t, b, late, Good)
}

// S-KEY-05: with rekey by TSC, packets of neighbouring intervals may overtake each other
// without a derivation each. More than two intervals at once only cost derivations.
func TestRekeyByTSC(t *testing.T) {
	cfg := cluster
	cfg.RekeyMask, cfg.RekeyShift = 0xff00, 8
	p := pairOf(t, cfg)
	var pkts [][]byte
	for range 600 { // TSC 100 to 699: intervals 0, 1, 2
		pkts = append(pkts, sealPacket(t, p.a, "x", nil))
	}
	if s := p.a.Stats(); s.Derived != 3 {
		t.Fatalf("sender: %+v", s)
	}
	for i := 0; i < 300; i += 2 { // intervals 0 and 1 in turn
		want(t, p.b, 0, pkts[i/2], nil, addrA, Good, "x")
		want(t, p.b, 0, pkts[156+i/2], nil, addrA, Good, "x")
	}
	if s := p.b.Stats(); s.Derived != 2 {
		t.Fatalf("receiver: %+v", s)
	}
	for range 5 {
		for _, i := range []int{0, 200, 500} {
			want(t, p.b, 0, pkts[i], nil, addrA, Good, "x")
		}
	}
	// A forged TSC does not push out the keys in use.
	derived := p.b.Stats().Derived
	want(t, p.b, 0, pkts[500], nil, addrA, Good, "x")
	want(t, p.b, 0, pkts[200], nil, addrA, Good, "x")
	for i := range byte(100) {
		bad := append([]byte(nil), pkts[500]...)
		binary.BigEndian.PutUint16(bad[14:], uint16(100+i)<<8)
		want(t, p.b, 0, bad, nil, addrA, DropAuth, "")
	}
	derived = p.b.Stats().Derived - derived
	if derived > 102 {
		t.Fatalf("%d derivations", derived)
	}
	want(t, p.b, 0, pkts[500], nil, addrA, Good, "x")
	want(t, p.b, 0, pkts[200], nil, addrA, Good, "x")
	if got := p.b.Stats(); got.Sources != 1 {
		t.Fatalf("%+v", got)
	}
}

// A source costs what the comment of Config.MaxSources says.
func TestSourceMemoryFormula(t *testing.T) {
	const n = 2000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rekey := cluster
	rekey.RekeyMask, rekey.RekeyShift = 1, 0
	direct := cluster
	direct.Mode = Direct
	for _, c := range []struct {
		name   string
		cfg    Config
		fresh  bool
		packet int
		limit  int64 // bytes per source
	}{
		{"cluster", cluster, false, 1, 1280},
		{"cluster with window", cluster, true, 1, 1280 + 1152},
		{"two intervals", rekey, false, 2, 2048},
		{"direct", direct, false, 1, 320},
	} {
		b := member(t, c.cfg, 60_000)
		var pkts [][]byte
		var from []netip.Addr
		for i := range n {
			d := member(t, c.cfg, i)
			for range c.packet {
				pkts, from = append(pkts, sealPacket(t, d, "x", nil)), append(from, d.cfg.Local)
			}
		}
		before := heap()
		for i, p := range pkts {
			if _, _, why := b.Open(0, p, nil, from[i]); why != Good || c.fresh && !b.Fresh() {
				t.Fatal(why)
			}
		}
		each := (heap() - before) / n
		if each > c.limit {
			t.Errorf("%s: %d bytes a source, more than %d", c.name, each, c.limit)
		}
		t.Logf("%s: %d bytes a source", c.name, each)
		runtime.KeepAlive(b)
		runtime.KeepAlive(pkts)
	}
}
