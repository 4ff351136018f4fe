package tss

import (
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

var benchSizes = []int{64, 1024, 8192}

func BenchmarkSeal(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := pairOf(b, cluster).a
			buf := make([]byte, 0, n+64)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				p, _ := d.Begin(buf)
				d.Seal(p[:len(p)+n+wire.ICVLen], outerAB)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := pairOf(b, cluster)
			pkt := sealPacket(b, p.a, string(make([]byte, n)), outerAB)
			buf := make([]byte, len(pkt))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				copy(buf, pkt)
				if _, _, why := p.b.Open(0, buf, outerAB, addrA); why != Good {
					b.Fatal(why)
				}
			}
		})
	}
}

// Each forged packet names a known source, or another source each time.
func BenchmarkOpenForged(b *testing.B) {
	for _, c := range []struct {
		name  string
		names bool
	}{{"known", false}, {"unknown", true}} {
		b.Run(c.name, func(b *testing.B) {
			p := pairOf(b, cluster)
			pkt := sealPacket(b, p.a, string(make([]byte, 1024)), outerAB)
			buf := append([]byte(nil), pkt...)
			p.b.Open(0, buf, outerAB, addrA)
			b.SetBytes(1024)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				copy(buf, pkt)
				buf[20] ^= 1
				if c.names {
					buf[4], buf[5], buf[6] = byte(i>>16), byte(i>>8), byte(i)|1
				}
				if _, _, why := p.b.Open(0, buf, outerAB, addrA); why != DropAuth {
					b.Fatal(why)
				}
			}
		})
	}
}

func BenchmarkFresh(b *testing.B) {
	var w window
	for i := uint64(0); b.Loop(); i++ {
		w.seen(i)
	}
}
