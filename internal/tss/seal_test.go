package tss

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/transport/wire"
)

// S-SEC-04, S-KEY-01: sixteen packets of another implementation are sealed to the same bytes
// and opened. Server mode is there as a warning: in frames 1 and 2 both directions have one
// source, key and IV (S-KEY-06).
func TestPacketAnswers(t *testing.T) {
	for _, c := range packetAnswers {
		t.Run(fmt.Sprintf("%s %d", c.file, c.frame), func(t *testing.T) {
			aad := unhex(t, c.aad)
			src, dst := addrA, addrB
			if len(aad) > 40 {
				src, dst = addrA6, addrB6
			}
			switch b := src.AsSlice(); {
			case string(aad[:len(b)]) == string(b):
			case string(aad[len(b):2*len(b)]) == string(b):
				src, dst = dst, src
			default:
				t.Fatalf("addresses of %x", aad)
			}
			a := answerDomain(t, &c, src, c.ssi)
			b := answerDomain(t, &c, dst, c.ssi+100)
			pkt, ok := a.Begin(nil)
			if !ok {
				t.Fatal("no packet")
			}
			h := len(pkt)
			outer, header := aad[:len(aad)-h], aad[len(aad)-h:]
			if string(pkt) != string(header) {
				t.Fatalf("header %x, want %x", pkt, header)
			}
			plain := unhex(t, c.plain)
			pkt = append(append(pkt, plain...), make([]byte, wire.ICVLen)...)
			a.Seal(pkt, outer)
			if fmt.Sprintf("%x", a.iv) != c.iv {
				t.Errorf("IV %x, want %s", a.iv, c.iv)
			}
			if fmt.Sprintf("%x", pkt[h:]) != c.sealed {
				t.Fatalf("sealed to %x, want %s", pkt[h:], c.sealed)
			}
			want(t, b, 0, pkt, outer, src, Good, string(plain))
		})
	}
}

// answerDomain returns a Domain that sends as c was sent, from local with ssi, and opens what
// c's source sends.
func answerDomain(t *testing.T, c *packetAnswer, local netip.Addr, ssi uint32) *Domain {
	t.Helper()
	cfg := Config{SDI: 1, Mode: c.mode, Local: local, UseSSI: c.sp}
	if c.sp {
		cfg.SSI = ssi
	}
	if c.mode == Cluster {
		cfg.RekeyMask, cfg.RekeyShift = 0xff00, 8
	}
	domainKey := Key(unhex(t, packetKeys[c.an]))
	if c.mode != Server {
		d := domain(t, cfg)
		install(t, d, c.an, domainKey)
		use(t, d, 0, c.an, 0, c.tsc)
		return d
	}
	// The server of these packets used its client's SSI as its own. No Server does that here,
	// and no Client accepts it; a Client that is given two other SSIs can open them.
	k, mask := ClientKey(domainKey, 0, 2, addrA)
	if fmt.Sprintf("%x", k[:]) != c.key {
		t.Fatal("client key")
	}
	cfg.Mode, cfg.PeerSSI = Client, 2
	if cfg.SSI == 2 {
		cfg.PeerSSI = 1
	}
	d := domain(t, cfg)
	if err := d.InstallClient(c.an, k, mask); err != nil {
		t.Fatal(err)
	}
	use(t, d, 0, c.an, 0, c.tsc)
	return d
}

// S-TSC-02, F34: the TSC rises by one for each packet, ends at 2^48-1 or at the limit of
// packets, and never wraps. A Begin that returns false is counted and does not change the
// buffer.
func TestF34TSCCeiling(t *testing.T) {
	for _, c := range []struct {
		name      string
		first     uint64
		maxFrames uint64
		left      uint64
	}{
		{"end of the TSC", wire.TSCMax - 2, 0, 3},
		{"the last TSC", wire.TSCMax, 0, 1},
		{"end of the TSC before that of packets", wire.TSCMax - 2, 4, 3},
		{"packets", 1 << 40, 5, 5},
		{"one packet", 0, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := cluster.at(addrA)
			cfg.MaxFrames = c.maxFrames
			d := domain(t, cfg)
			install(t, d, 0, keyOf(1))
			use(t, d, 0, 0, 9, c.first)
			for i := range c.left {
				if !d.Ready() || d.Left() != c.left-i {
					t.Fatalf("%d left, want %d", d.Left(), c.left-i)
				}
				h, _, err := wire.ParseTSS(sealPacket(t, d, "x", nil))
				if err != nil || h.TSC != c.first+i || h.Epoch != 9 {
					t.Fatalf("%v, %v", h, err)
				}
			}
			for range 3 {
				b, ok := d.Begin([]byte("abc"))
				if ok || string(b) != "abc" || d.Ready() || d.Left() != 0 {
					t.Fatalf("%q, %v, %d left", b, ok, d.Left())
				}
			}
			if s := d.Stats(); s.Exhausted != 3 || s.Out != c.left || s.NoKey != 0 {
				t.Fatalf("%+v", s)
			}
			install(t, d, 1, keyOf(2))
			use(t, d, 0, 1, 9, 0)
			sealPacket(t, d, "under a new key", nil)
		})
	}
}

// T24: Seal panics if it would use an IV twice, or one that is not its own.
func TestT24SealRefuses(t *testing.T) {
	begin := func(d *Domain) []byte {
		b, _ := d.Begin(nil)
		return append(b, make([]byte, 20+wire.ICVLen)...)
	}
	for _, c := range []struct {
		name string
		f    func(d *Domain)
		says string
	}{
		{"twice", func(d *Domain) { p := begin(d); d.Seal(p, nil); d.Seal(p, nil) }, "sealed twice"},
		{"a copy", func(d *Domain) {
			p := begin(d)
			q := append([]byte(nil), p...)
			d.Seal(p, nil)
			begin(d)
			d.Seal(q, nil)
		}, "sealed twice"},
		{"another TSC", func(d *Domain) { p := begin(d); p[15]++; d.Seal(p, nil) }, "not begun"},
		{"a TSC before the first", func(d *Domain) { p := begin(d); p[15]--; d.Seal(p, nil) }, "under another key"},
		{"a TSC far back", func(d *Domain) {
			p := begin(d)
			for range sealedLen {
				begin(d)
			}
			d.Seal(p, nil)
		}, "not begun"},
		{"another epoch", func(d *Domain) { p := begin(d); p[9]++; d.Seal(p, nil) }, "not begun"},
		{"another SSI", func(d *Domain) { p := begin(d); p[7]++; d.Seal(p, nil) }, "not begun"},
		{"another SDI", func(d *Domain) { p := begin(d); p[3]++; d.Seal(p, nil) }, "not begun"},
		{"another AN", func(d *Domain) { p := begin(d); p[0] ^= 1; d.Seal(p, nil) }, "not begun"},
		{"no header", func(d *Domain) { d.Seal(make([]byte, 40), nil) }, "not begun"},
		{"no room", func(d *Domain) { d.Seal(begin(d)[:16+15], nil) }, "no room"},
		{"after Use", func(d *Domain) {
			p := begin(d)
			install(t, d, 1, keyOf(2))
			use(t, d, 0, 1, 0, 100)
			d.Seal(p, nil)
		}, "not begun"},
		{"after Revoke", func(d *Domain) { p := begin(d); d.Revoke(0); d.Seal(p, nil) }, "not begun"},
		{"after Use with the same AN and count", func(d *Domain) {
			install(t, d, 1, keyOf(2))
			use(t, d, 0, 1, 0, 100)
			p := begin(d)
			d.Revoke(1)
			install(t, d, 1, keyOf(3))
			use(t, d, 0, 1, 0, 101)
			begin(d)
			d.Seal(p, nil)
		}, "under another key"},
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "BUG: tss: ") || !strings.Contains(s, c.says) {
					t.Errorf("%s: panic %q", c.name, s)
				}
			}()
			c.f(pairOf(t, cluster).a)
		}()
	}
	// It does not panic for packets that were begun long before and are sealed in another
	// order.
	d := pairOf(t, cluster).a
	first, second := begin(d), begin(d)
	for range sealedLen - 2 {
		begin(d)
	}
	d.Seal(second, nil)
	d.Seal(first, nil)
	for range 3 * sealedLen {
		d.Seal(begin(d), nil)
	}
	if d.kdf.out != [len(d.kdf.out)]byte{} {
		t.Error("a derived key stays in the buffer")
	}
}

// T24: no key and IV are used twice, whatever is sent, sent again, begun and not sealed,
// rotated, rekeyed by TSC or revoked, in both directions of any mode. Two packets of zeros
// under one key and IV would have one cipher text.
func TestT24NoIVTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was := map[string]bool{}
		type end struct {
			d    *Domain
			keys int
		}
		mode := rapid.SampledFrom([]Mode{Direct, Cluster, Server}).Draw(t, "mode")
		v6, ssi := rapid.Bool().Draw(t, "IPv6"), rapid.Bool().Draw(t, "SSI")
		a, b := addrA, addrB
		if v6 {
			a, b = addrA6, addrB6
		}
		cfg := Config{SDI: 7, Mode: mode, UseSSI: ssi || mode == Server || v6 && mode == Direct}
		if mode == Cluster && rapid.Bool().Draw(t, "rekey") {
			cfg.RekeyMask, cfg.RekeyShift = 0x0c, 2
		}
		cfg.MaxFrames = rapid.SampledFrom([]uint64{0, 20}).Draw(t, "max frames")
		ca, cb := cfg, cfg
		ca.Local, cb.Local = a, b
		if cfg.UseSSI {
			ca.SSI, cb.SSI = 1, 2
		}
		if mode == Server {
			ca.PeerSSI, cb.PeerSSI, ca.Peer = 2, 1, b
			cb.Mode = Client
		}
		ends := []*end{{d: domainRapid(t, ca)}, {d: domainRapid(t, cb)}}
		epoch := uint16(0)
		give := func(e *end, an uint8, n int) error { // key n, to a client as it gets it
			if e.d.cfg.Mode == Client {
				k, mask := ClientKey(keyOf(uint64(n)), epoch, 2, b)
				return e.d.InstallClient(an, k, mask)
			}
			return e.d.Install(an, keyOf(uint64(n)))
		}
		firsts := rapid.SampledFrom([]uint64{0, 1, 60, wire.TSCMax - 10})
		an := rapid.Uint8Range(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				d := rapid.SampledFrom(ends).Draw(t, "end").d
				for range rapid.IntRange(1, 20).Draw(t, "packets") {
					pkt, ok := d.Begin(nil)
					if !ok {
						return
					}
					if rapid.IntRange(0, 9).Draw(t, "sealed") == 0 {
						continue
					}
					h := len(pkt)
					pkt = append(pkt, make([]byte, 32+wire.ICVLen)...)
					d.Seal(pkt, nil)
					if text := string(pkt[h : h+32]); was[text] {
						t.Fatalf("key and IV used twice, at last for %x by %v", pkt[:h], d)
					} else {
						was[text] = true
					}
				}
			},
			"install": func(t *rapid.T) { // an old key, the other end's, or a new one
				e := rapid.SampledFrom(ends).Draw(t, "end")
				n := rapid.IntRange(1, e.keys+1).Draw(t, "key")
				if give(e, an.Draw(t, "AN"), n) == nil {
					e.keys = max(e.keys, n)
				}
			},
			"use": func(t *rapid.T) {
				e := rapid.SampledFrom(ends).Draw(t, "end")
				_ = e.d.Use(0, an.Draw(t, "AN"), epoch, firsts.Draw(t, "TSC"))
			},
			"revoke": func(t *rapid.T) {
				rapid.SampledFrom(ends).Draw(t, "end").d.Revoke(an.Draw(t, "AN"))
			},
			"time": func(t *rapid.T) {
				rapid.SampledFrom(ends).Draw(t, "end").d.expire(time.Hour)
			},
		})
	})
}

func domainRapid(t *rapid.T, cfg Config) *Domain {
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// S-KEY-06: in server mode the two directions have one key and two sources. The client does not
// accept a server that uses the client's SSI as its own, as the reference does.
func TestT24ServerMode(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		a, b := addrA, addrB // client, server
		if v6 {
			a, b = addrA6, addrB6
		}
		srv := domain(t, Config{SDI: 1, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 2, Local: b, Peer: a})
		cli := domain(t, Config{SDI: 1, Mode: Client, UseSSI: true, SSI: 2, PeerSSI: 1, Local: a})
		bad := domain(t, Config{SDI: 1, Mode: Client, UseSSI: true, SSI: 2, PeerSSI: 3, Local: b})
		install(t, srv, 0, keyOf(1))
		k, mask := ClientKey(keyOf(1), 5, 2, a)
		for _, d := range []*Domain{cli, bad} {
			if err := d.InstallClient(0, k, mask); err != nil {
				t.Fatal(err)
			}
			use(t, d, 0, 0, 5, 0)
		}
		use(t, srv, 0, 0, 5, 0)
		up, down := sealPacket(t, cli, "up", nil), sealPacket(t, srv, "down", nil)
		if srv.iv == cli.iv {
			t.Fatal("one IV for both directions")
		}
		want(t, srv, 0, up, nil, a, Good, "up")
		want(t, cli, 0, down, nil, b, Good, "down")
		want(t, cli, 0, sealPacket(t, bad, "as the reference", nil), nil, b, DropSource, "")
		// Another client's key opens nothing here.
		other := domain(t, Config{SDI: 1, Mode: Client, UseSSI: true, SSI: 4, PeerSSI: 1, Local: addrC})
		k4, mask4 := ClientKey(keyOf(1), 5, 4, addrC)
		if k4 == k {
			t.Fatal("two clients have one key")
		}
		if err := other.InstallClient(0, k4, mask4); err != nil {
			t.Fatal(err)
		}
		use(t, other, 0, 0, 5, 0)
		pkt := sealPacket(t, other, "x", nil)
		pkt[7] = 2 // SSI
		want(t, srv, 0, pkt, nil, a, DropAuth, "")
	}
}

// Begin and Seal allocate nothing.
func TestSealAllocatesNothing(t *testing.T) {
	d := pairOf(t, cluster).a
	buf := make([]byte, 0, 2048)
	round := func() {
		b, _ := d.Begin(buf[:0])
		d.Seal(b[:len(b)+1024+wire.ICVLen], outerAB)
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
