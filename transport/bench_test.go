package transport

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkFEPSmall measures the protocol's cost of an 8-byte tagged message at both ends,
// without sockets: post, encode, decode, match, complete, ACK.
func BenchmarkFEPSmall(b *testing.B) {
	for _, c := range []struct {
		batch  int
		sealed bool
	}{{1, false}, {64, false}, {1, true}, {64, true}} {
		batch := c.batch
		b.Run(fmt.Sprintf("batch=%d/sealed=%v", batch, c.sealed), func(b *testing.B) {
			var change func(*Config)
			if c.sealed {
				change = secured(b, nil)
			}
			p := newPipe(b, change)
			buf, dst := make([]byte, 8), make([]byte, 8)
			send := Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: buf, Tag: 1}
			recv := Op{Kind: OpTRecv, Buf: dst, Tag: 1}
			b.ReportAllocs()
			for i := 0; i < b.N; i += batch {
				for range batch {
					p.b.Post(p.now, &recv)
					p.a.Post(p.now, &send)
				}
				p.exchange()
				for p.a.NextEvent() != nil {
				}
				for p.b.NextEvent() != nil {
				}
				p.now += 20 * time.Microsecond
				p.a.Advance(p.now)
				p.b.Advance(p.now)
			}
		})
	}
}

// BenchmarkFEPBulk measures the same for messages of 1 MiB. It reports the time per packet,
// both ends together.
func BenchmarkFEPBulk(b *testing.B) {
	for _, with := range []string{"crc", "nothing", "seal"} {
		b.Run("with="+with, func(b *testing.B) {
			change := func(c *Config) { c.NoCRC = with == "nothing" }
			if with == "seal" {
				change = secured(b, nil)
			}
			p := newPipe(b, change)
			src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for range b.N {
				p.post(p.b, Op{Kind: OpTRecv, Buf: dst, Tag: 1})
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 1})
				p.exchange()
				for p.a.NextEvent() != nil {
				}
				for p.b.NextEvent() != nil {
				}
				p.now += 300 * time.Microsecond
				p.a.Advance(p.now)
				p.b.Advance(p.now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/packet")
		})
	}
}

// BenchmarkFEPRead measures the same for reads of 1 MiB: a request for each packet of data. The target of one by ROD
// copies what it returns.
func BenchmarkFEPRead(b *testing.B) {
	for _, by := range []string{"RUD", "ROD"} {
		b.Run("by="+by, func(b *testing.B) {
			p := newPipe(b, nil)
			mem, dst := make([]byte, 1<<20), make([]byte, 1<<20)
			if _, err := p.b.Register(RegionConfig{Key: 5, Buf: mem, Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for range b.N {
				p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: dst, Key: 5, Ordered: by == "ROD"})
				p.exchange()
				for p.a.NextEvent() != nil {
				}
				p.now += 300 * time.Microsecond
				p.a.Advance(p.now)
				p.b.Advance(p.now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/packet")
		})
	}
}

// BenchmarkFEPPing measures the protocol's cost of a ping-pong of 8 bytes at both ends,
// without sockets: each message carries the ACK of the one before.
func BenchmarkFEPPing(b *testing.B) {
	p := newPipe(b, nil)
	buf, dst := make([]byte, 8), make([]byte, 8)
	there := Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: buf, Tag: 1}
	back := Op{Kind: OpTSend, Peer: p.toA, RI: 15, Buf: buf, Tag: 1}
	recv := Op{Kind: OpTRecv, Buf: dst, Tag: 1}
	for i := 0; i < b.N; i++ {
		p.b.Post(p.now, &recv)
		p.a.Post(p.now, &recv)
		p.a.Post(p.now, &there)
		for p.move(p.a, p.b) {
		}
		p.b.Post(p.now, &back)
		for p.move(p.b, p.a) {
		}
		for p.a.NextEvent() != nil {
		}
		for p.b.NextEvent() != nil {
		}
		p.now += 10 * time.Microsecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
	}
}
