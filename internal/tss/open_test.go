package tss

import (
	"bytes"
	"net/netip"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/transport/wire"
)

// S-SEC-04: no bit of header, SSI, cipher text, ICV or outer headers may change.
func TestOpenRefusesEveryBitFlip(t *testing.T) {
	for _, ssi := range []bool{false, true} {
		for _, mode := range []Mode{Direct, Cluster} {
			p := pairOf(t, Config{SDI: 7, Mode: mode, UseSSI: ssi})
			pkt := sealPacket(t, p.a, "the PDS header and all that follows", outerAB)
			for i := range len(pkt) * 8 {
				bad := append([]byte(nil), pkt...)
				bad[i/8] ^= 1 << (i % 8)
				if plain, who, why := p.b.Open(0, bad, outerAB, addrA); why == Good || plain != nil || who != 0 {
					t.Fatalf("%v, SSI %v: bit %d of byte %d: %v", mode, ssi, i%8, i/8, why)
				}
			}
			for i := range len(outerAB) * 8 {
				bad := append([]byte(nil), outerAB...)
				bad[i/8] ^= 1 << (i % 8)
				want(t, p.b, 0, pkt, bad, addrA, DropAuth, "")
			}
			for i := range outerAB {
				want(t, p.b, 0, pkt, outerAB[i+1:], addrA, DropAuth, "")
			}
			if s := p.b.Stats(); s.In != 0 || s.Sources != 0 {
				t.Fatalf("%+v", s)
			}
			want(t, p.b, 0, pkt, outerAB, addrA, Good, "the PDS header and all that follows")
		}
	}
}

// A packet that was sealed with one of two outers opens, and the second of them is named. One with another
// outer is dropped, and fails once.
func TestOpenEither(t *testing.T) {
	p := pairOf(t, cluster)
	other := append([]byte(nil), outerAB...)
	other[len(other)-1] ^= 1
	for i, c := range []struct {
		outer, first, second []byte
		named                bool
		why                  Drop
	}{
		{outerAB, outerAB, other, false, Good}, {outerAB, other, outerAB, true, Good}, {outerAB, other, other, false, DropAuth}, {outerAB, outerAB, nil, false, Good},
	} {
		before := p.b.slots[0].failures
		plain, who, second, why := p.b.OpenEither(0, sealPacket(t, p.a, "the PDS header and all that follows", c.outer), c.first, c.second, addrA)
		if why != c.why || second != c.named || (who == 0) != (why != Good) {
			t.Errorf("row %d: %v from %v, second %v", i, why, who, second)
		}
		if why == Good && string(plain) != "the PDS header and all that follows" {
			t.Errorf("row %d: %q", i, plain)
		}
		if n := p.b.slots[0].failures - before; (n != 0) != (why != Good) || n > 1 {
			t.Errorf("row %d: failed %d times", i, n)
		}
	}
}

// Every shorter packet is dropped, and a longer one.
func TestOpenRefusesEveryPrefix(t *testing.T) {
	for _, ssi := range []bool{false, true} {
		p := pairOf(t, Config{SDI: 7, Mode: Cluster, UseSSI: ssi})
		pkt := sealPacket(t, p.a, "text", outerAB)
		for n := range pkt {
			why := DropShort
			if n >= p.b.Overhead() {
				why = DropAuth
			}
			want(t, p.b, 0, pkt[:n], outerAB, addrA, why, "")
		}
		want(t, p.b, 0, append(pkt, 0), outerAB, addrA, DropAuth, "")
		want(t, p.b, 0, nil, nil, addrA, DropShort, "")
		empty := sealPacket(t, p.a, "", outerAB)
		want(t, p.b, 0, empty, outerAB, addrA, Good, "")
	}
}

// T8, S-SEC-06: a packet that is not of this domain is dropped for its own reason, before any
// key is used.
func TestT8OpenRefusals(t *testing.T) {
	p := pairOf(t, cluster)
	good := sealPacket(t, p.a, "x", nil)
	mod := func(f func(h *wire.TSS)) []byte {
		h, n, err := wire.ParseTSS(good)
		if err != nil {
			t.Fatal(err)
		}
		f(&h)
		return append(h.Append(nil), good[n:]...)
	}
	nack := wire.Nack{Type: wire.TypeNack, Code: wire.NackNewStartPSN}.Append(nil)
	for _, c := range []struct {
		name string
		pkt  []byte
		src  netip.Addr
		why  Drop
	}{
		{"security stripped", []byte("\x11\x8c\xff\xff, a request"), addrA, DropClear},
		{"T7: clear NACK 17", nack, addrA, DropClear},
		{"type 0", make([]byte, 60), addrA, DropClear},
		{"one byte of a header", good[:1], addrA, DropShort},
		{"other SDI", mod(func(h *wire.TSS) { h.SDI = 8 }), addrA, DropSDI},
		{"SSI left out", mod(func(h *wire.TSS) { h.SP = false }), addrA, DropNoSSI},
		{"other AN", mod(func(h *wire.TSS) { h.AN = 1 }), addrA, DropAN},
		{"other SSI", mod(func(h *wire.TSS) { h.SSI = 0xc }), addrA, DropAuth},
		{"our SSI", mod(func(h *wire.TSS) { h.SSI = 0xb }), addrA, DropSource},
		{"our SSI, from us", mod(func(h *wire.TSS) { h.SSI = 0xb }), addrB, DropAuth},
		{"other family", good, addrA6, DropSource},
		{"no address", good, netip.Addr{}, DropSource},
		{"as IPv4 in IPv6", good, netip.MustParseAddr("::ffff:192.0.2.1"), Good},
		{"T26: from elsewhere, once known", good, addrC, DropSource},
	} {
		before := p.b.Stats()
		if _, _, why := p.b.Open(0, append([]byte(nil), c.pkt...), nil, c.src); why != c.why {
			t.Errorf("%s: %v, want %v", c.name, why, c.why)
		}
		after := p.b.Stats()
		if c.why != Good && after.Drops[c.why] != before.Drops[c.why]+1 {
			t.Errorf("%s: %+v", c.name, after)
		}
		if derived := after.Derived != before.Derived; derived != (c.why == DropAuth || c.why == Good) {
			t.Errorf("%s: derived a key: %v", c.name, derived)
		}
	}

	// T28: a packet to oneself is legal.
	self := sealPacket(t, p.b, "me", nil)
	want(t, p.b, 0, self, nil, addrB, Good, "me")
	want(t, p.b, 0, self, nil, addrC, DropSource, "")

	// A domain without SSI drops packets with one: SSI 192.0.2.1 would be the source of address
	// 192.0.2.1, key and IV included.
	q := pairOf(t, Config{SDI: 7, Mode: Cluster})
	cfg := Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 192<<24 | 2<<8 | 1, Local: addrA}
	d := domain(t, cfg)
	install(t, d, 0, keyOf(1))
	use(t, d, 0, 0, 0, 100)
	one, two := sealPacket(t, d, "same", nil), sealPacket(t, q.a, "same", nil)
	if !bytes.Equal(one[16:20], two[12:16]) {
		t.Fatal("this test assumes one key and IV")
	}
	want(t, q.b, 0, one, nil, addrA, DropSSI, "")
	want(t, q.b, 0, two, nil, addrA, Good, "same")
}

// In a session of two only the peer is accepted; others are not, with the key or without.
func TestT26SessionOfTwo(t *testing.T) {
	dom := func(ssi, peer uint32, a netip.Addr) *Domain {
		d := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: ssi, PeerSSI: peer, Local: a})
		install(t, d, 0, keyOf(1))
		use(t, d, 0, 0, 0, 0)
		return d
	}
	a, b, c := dom(1, 2, addrA), dom(2, 1, addrB), dom(3, 2, addrC)
	want(t, b, 0, sealPacket(t, a, "x", nil), nil, addrA, Good, "x")
	want(t, a, 0, sealPacket(t, b, "y", nil), nil, addrB, Good, "y")
	want(t, b, 0, sealPacket(t, c, "z", nil), nil, addrC, DropSource, "")
	// Its own packet sent back to it is not the peer's.
	want(t, a, 0, sealPacket(t, a, "x", nil), nil, addrA, DropSource, "")
}

// T26: a life that was heard from one address is not accepted from a second; a new life is. In
// cluster mode the members have each other's keys, so that one may pass for another; this is
// what can be seen of it.
func TestT26SSIAndSourceAgree(t *testing.T) {
	p := pairOf(t, cluster)
	want(t, p.b, 0, sealPacket(t, p.a, "x", nil), nil, addrA, Good, "x")
	sibling := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 0xa, Local: addrC})
	install(t, sibling, 0, keyOf(1))
	use(t, sibling, 0, 0, 0, 5000)
	want(t, p.b, 0, sealPacket(t, sibling, "y", nil), nil, addrC, DropSource, "")

	moved := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 0xa, Local: addrC})
	install(t, moved, 0, keyOf(1))
	use(t, moved, 0, 0, 1, 0)
	pkt := sealPacket(t, moved, "z", nil)
	_, who, why := p.b.Open(0, pkt, nil, addrC)
	if why != Good || who != WhoOf(0xa, 1) || who == p.a.Self() {
		t.Fatal(who, why)
	}

	// Nobody else may have the SSI of the receiver, not even with the key.
	twin := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 0xb, Local: addrC})
	install(t, twin, 0, keyOf(1))
	use(t, twin, 0, 0, 0, 0)
	want(t, p.b, 0, sealPacket(t, twin, "x", nil), nil, addrC, DropSource, "")
	want(t, p.b, 0, sealPacket(t, p.b, "to itself", nil), nil, addrB, Good, "to itself")
}

// A Who distinguishes lives by SSI, address and epoch.
func TestWho(t *testing.T) {
	seen := map[Who]string{}
	for _, c := range []struct {
		name string
		s    sender
	}{
		{"SSI 0", sender{}}, {"SSI 0, epoch 1", sender{epoch: 1}}, {"SSI 1", sender{ssi: 1}}, {"last SSI", sender{ssi: 1<<32 - 1, epoch: 1<<16 - 1}},
		{"IPv4", byAddr(addrA, 0)}, {"IPv6", byAddr(addrA6, 0)}, {"IPv6 again", byAddr(addrB6, 0)}, {"IPv6, epoch 1", byAddr(addrA6, 1)},
		{"::", byAddr(netip.IPv6Unspecified(), 0)},
	} {
		w := c.s.who()
		if w == 0 || seen[w] != "" {
			t.Errorf("%s: %v, as %s", c.name, w, seen[w])
		}
		if w.Epoch() != c.s.epoch || !c.s.addr.IsValid() && w.SSI() != c.s.ssi {
			t.Errorf("%s: SSI %d, epoch %d", c.name, w.SSI(), w.Epoch())
		}
		seen[w] = c.name
	}
	if s := WhoOf(0xab, 3).String(); s != "ssi ab epoch 3" {
		t.Error(s)
	}
	if s := Who(0).String(); s != "nobody" {
		t.Error(s)
	}
	for d := range NumDrops {
		if dropNames[d] == "" || d.String() != dropNames[d] {
			t.Errorf("drop %d has no name", d)
		}
	}
	if NumDrops.String() != "drop 11" {
		t.Error(NumDrops)
	}
}

// What was sealed opens to the same bytes and the same sender, in any order, with losses and
// repetitions, in all modes and families and with keys by TSC.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6 := rapid.Bool().Draw(t, "IPv6")
		mode := rapid.SampledFrom([]Mode{Direct, Cluster}).Draw(t, "mode")
		cfg := Config{SDI: rapid.Uint32Range(0, maxSDI).Draw(t, "SDI"), Mode: mode, UseSSI: rapid.Bool().Draw(t, "SSI") || v6 && mode == Direct}
		if mode == Cluster && rapid.Bool().Draw(t, "rekey") {
			cfg.RekeyMask, cfg.RekeyShift = 0xc, 2
		}
		a, b := addrA, addrB
		if v6 {
			a, b = addrA6, addrB6
		}
		ca, cb := cfg.at(a), cfg.at(b)
		if cfg.UseSSI {
			ca.SSI = rapid.Uint32().Draw(t, "own SSI")
			cb.SSI = ca.SSI + 1
		}
		an := rapid.Uint8Range(0, 1).Draw(t, "AN")
		da, db := domainRapid(t, ca), domainRapid(t, cb)
		for _, d := range []*Domain{da, db} {
			if err := d.Install(an, keyOf(1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := da.Use(0, an, rapid.Uint16().Draw(t, "epoch"), rapid.Uint64Range(0, wire.TSCMax-100).Draw(t, "TSC")); err != nil {
			t.Fatal(err)
		}
		type sent struct{ plain, pkt, outer []byte }
		var all []sent
		for range rapid.IntRange(1, 20).Draw(t, "packets") {
			s := sent{plain: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "plain"), outer: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "outer")}
			front := rapid.IntRange(0, 3).Draw(t, "front") // Begin appends
			pkt, ok := da.Begin(make([]byte, front))
			if !ok {
				t.Fatal("no packet")
			}
			s.pkt = append(append(pkt, s.plain...), make([]byte, wire.ICVLen)...)[front:]
			da.Seal(s.pkt, s.outer)
			all = append(all, s)
		}
		for range 2 * len(all) {
			s := rapid.SampledFrom(all).Draw(t, "arrives")
			plain, who, why := db.Open(0, bytes.Clone(s.pkt), s.outer, a)
			if why != Good || !bytes.Equal(plain, s.plain) || who != da.Self() {
				t.Fatalf("%v from %v: %x, want %x from %v", why, who, plain, s.plain, da.Self())
			}
		}
		if s := db.Stats(); s.Sources != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// T25: forged packets of unknown sources leave nothing behind: no source is remembered or
// pushed out, no memory is kept, and honest packets pass in between.
func TestT25ForgedFlood(t *testing.T) {
	cfg := cluster
	cfg.MaxSources = 2
	p := pairOf(t, cfg)
	c := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 0xc, Local: addrC})
	install(t, c, 0, keyOf(1))
	use(t, c, 0, 0, 0, 0)
	honest := func() {
		t.Helper()
		want(t, p.b, 0, sealPacket(t, p.a, "a", nil), nil, addrA, Good, "a")
		want(t, p.b, 0, sealPacket(t, c, "c", nil), nil, addrC, Good, "c")
	}
	honest()
	forged := make([]byte, 100)
	flood := func(n int) {
		for i := range n {
			h := wire.TSS{SP: true, SDI: 7, SSI: uint32(i + 1000), Epoch: uint16(i), TSC: uint64(i)}
			if _, _, why := p.b.Open(0, append(h.Append(forged[:0]), forged[16:]...), nil, addrA); why != DropAuth {
				t.Fatal(why)
			}
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	flood(1000)
	before, derived := heap(), p.b.Stats().Derived
	for range 10 {
		flood(5000)
		honest()
	}
	if grown := heap() - before; grown > 64<<10 {
		t.Errorf("%d bytes more after 50,000 forged packets", grown)
	}
	s := p.b.Stats()
	if s.Sources != 2 || s.Evicted != 0 || s.Drops[DropAuth] != 51_000 || s.In != 22 {
		t.Errorf("%+v", s)
	}
	if s.Derived-derived > 50_000 {
		t.Errorf("%d keys derived: the honest ones had to be derived again", s.Derived-derived)
	}
}

// T25: a key tried for a forged packet is not used for the next packet, whatever of source and
// TSC they share.
func TestT25HonestAfterForged(t *testing.T) {
	cfg := cluster
	cfg.RekeyMask, cfg.RekeyShift = 1, 0
	for _, v6 := range []bool{false, true} {
		a, b, c := addrA, addrB, addrC
		if v6 {
			a, b, c = addrA6, addrB6, netip.MustParseAddr("2001:db8::3")
		}
		for _, f := range []struct {
			name string
			byte int // index in the packet of the byte that changes by 1
			src  netip.Addr
		}{{"other SSI", 7, a}, {"other epoch", 9, a}, {"other TSC", 15, a}, {"other address", 16, c}, {"other AN", 0, a}} {
			ca, cb := cfg.at(a), cfg.at(b)
			ca.SSI, cb.SSI = 0xa, 0xb
			da, db := domain(t, ca), domain(t, cb)
			for an := range uint8(2) {
				install(t, da, an, keyOf(uint64(an)))
				install(t, db, an, keyOf(uint64(an)))
			}
			use(t, da, 0, 0, 0, 100)
			for range 3 {
				pkt := sealPacket(t, da, "honest", nil)
				forged := bytes.Clone(pkt)
				forged[f.byte] ^= 1
				if _, _, why := db.Open(0, forged, nil, f.src); why != DropAuth && why != DropSource {
					t.Fatal(f.name, why)
				}
				want(t, db, 0, pkt, nil, a, Good, "honest")
			}
		}
	}
}

// A zone means something on this host only: with it or without it is one source.
func TestOpenIgnoresZones(t *testing.T) {
	cfg := Config{SDI: 7, Mode: Cluster}
	local := netip.MustParseAddr("fe80::1%eth0")
	a, b := domain(t, cfg.at(local)), domain(t, cfg.at(netip.MustParseAddr("fe80::2%eth1")))
	install(t, a, 0, keyOf(1))
	install(t, b, 0, keyOf(1))
	use(t, a, 0, 0, 0, 0)
	want(t, b, 0, sealPacket(t, a, "x", nil), nil, local, Good, "x")
	want(t, b, 0, sealPacket(t, a, "y", nil), nil, local.WithZone(""), Good, "y")
	want(t, b, 0, sealPacket(t, a, "z", nil), nil, local.WithZone("other"), Good, "z")
	if s := b.Stats(); s.Sources != 1 || s.Derived != 1 {
		t.Fatalf("%+v", s)
	}
}

// T25: a flood in the name of a known source costs a verification each and allocates nothing;
// so does one in the name of one unknown source. A flood in many names costs a derivation each,
// which is garbage.
func TestOpenAllocatesNothing(t *testing.T) {
	for _, cfg := range []Config{cluster, {SDI: 7, Mode: Direct}, {SDI: 7, Mode: Cluster}} {
		p := pairOf(t, cfg)
		pkt := sealPacket(t, p.a, string(make([]byte, 1000)), outerAB)
		buf := make([]byte, len(pkt))
		open := func(name string, src netip.Addr, why Drop, limit float64, change func(b []byte)) {
			t.Helper()
			round := func() {
				copy(buf, pkt)
				change(buf)
				if _, _, got := p.b.Open(0, buf, outerAB, src); got != why {
					t.Fatalf("%v %s: %v", cfg.Mode, name, got)
				}
			}
			round()
			if n := testing.AllocsPerRun(100, round); n > limit {
				t.Errorf("%v %s: %v allocations", cfg.Mode, name, n)
			}
		}
		open("honest", addrA, Good, 0, func([]byte) {})
		open("known name", addrA, DropAuth, 0, func(b []byte) { b[len(b)-1] ^= 1 })
		open("fresh", addrA, Good, 0, func([]byte) { p.b.Fresh() })
		if cfg.UseSSI {
			open("unknown name", addrC, DropAuth, 0, func(b []byte) { b[7] = 0x77 })
			n := byte(0)
			open("many names", addrC, DropAuth, 4, func(b []byte) { n++; b[6] = n })
		} else {
			open("unknown name", addrC, DropAuth, 0, func([]byte) {})
		}
	}
}
