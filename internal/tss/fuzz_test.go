package tss

import (
	"bytes"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// FuzzOpen opens any bytes as a packet. The first bytes choose the domain, the source and the
// outer headers. Nothing panics, and only what was sealed is accepted.
func FuzzOpen(f *testing.F) {
	cfgs := []Config{
		{SDI: 7, Mode: Direct},
		cluster,
		{SDI: 7, Mode: Cluster, UseSSI: true, PeerSSI: 0xa, RekeyMask: 0xff00, RekeyShift: 8, EpochLifetime: 16},
		{SDI: 7, Mode: Server, UseSSI: true, PeerSSI: 0xa},
	}
	var pairs []pair
	honest := map[string]bool{}
	outers := [][]byte{nil, outerAB}
	for i, cfg := range cfgs {
		ca, cb := cfg.at(addrA), cfg.at(addrB)
		if cfg.UseSSI {
			ca.SSI, cb.SSI, ca.PeerSSI = 0xa, 0xb, 0
		}
		if cfg.Mode == Server {
			ca.Mode, ca.PeerSSI = Client, 0xb
		}
		p := pair{domain(f, ca), domain(f, cb)}
		for an := range uint8(2) {
			install(f, p.b, an, keyOf(uint64(an)))
		}
		if cfg.Mode == Server {
			k, mask := ClientKey(keyOf(0), 3, 0xa, addrA)
			if err := p.a.InstallClient(0, k, mask); err != nil {
				f.Fatal(err)
			}
		} else {
			install(f, p.a, 0, keyOf(0))
		}
		use(f, p.a, 0, 0, 3, 100)
		use(f, p.b, 0, 0, 3, 100)
		for k, plain := range []string{"", "\x3a", "a plain text that is longer"} {
			s := append([]byte{byte(i)}, sealPacket(f, p.a, plain, outers[k&1])...)
			s[0] |= byte(k&1) << 4
			honest[string(s)] = true
			f.Add(s)
		}
		pairs = append(pairs, p)
	}
	f.Add([]byte{1})
	f.Add(append([]byte{1}, wire.TSS{SP: true, AN: 1, SDI: 7, TSC: wire.TSCMax}.Append(nil)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		b := pairs[in[0]&3].b
		outer := outers[in[0]>>4&1]
		src := addrA
		if in[0]>>5 != 0 {
			src = addrC
		}
		pkt := bytes.Clone(in[1:])
		plain, who, why := b.Open(time.Second, pkt, outer, src)
		// Only the bits of the first byte that are used distinguish inputs.
		name := append([]byte{in[0] & 0x13}, in[1:]...)
		if good := why == Good; good != (src == addrA && honest[string(name)]) {
			t.Fatal(why)
		}
		if why == Good && (who == 0 || len(plain) != len(pkt)-b.Overhead()) || why != Good && (who != 0 || plain != nil) {
			t.Fatalf("%v from %v: %x", why, who, plain)
		}
		b.Fresh()
		if s := b.Stats(); s.Sources > 1 {
			t.Fatalf("%+v", s)
		}
	})
}
