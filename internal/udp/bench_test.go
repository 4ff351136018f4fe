package udp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// drain receives n datagrams from c into d.
func drain(b *testing.B, c *Conn, d *dgram.Datagram, n int) {
	for n > 0 {
		d.Reset()
		ok, err := c.Recv(d)
		if err != nil {
			b.Fatal(err)
		}
		if ok {
			n -= d.Segments()
		} else if err := c.Wait(time.Now().Add(tooLong)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlow measures what the calls of both ends cost: it moves trains of 64 datagrams from
// one socket to another, one train in flight, on one goroutine.
func BenchmarkFlow(b *testing.B) {
	for _, ip := range families(b) {
		for _, size := range []int{64, 1024} {
			for _, paths := range []int{1, 4} {
				for _, m := range kinds {
					family := "v4"
					if ip.Is6() {
						family = "v6"
					}
					if paths > 1 && (ip.Is6() || size != 1024) {
						continue
					}
					b.Run(fmt.Sprintf("%s/%dB/paths=%d/%s", family, size, paths, m.name), func(b *testing.B) {
						cfg := m.cfg
						cfg.Paths = paths
						from, to := open(b, ip, cfg), open(b, ip, cfg)
						n := min(dgram.MaxSegments, dgram.MaxTrain/size)
						whole := pattern(1, n*size)
						t := &dgram.Datagram{}
						d := slab()
						b.SetBytes(int64(n * size))
						b.ReportAllocs()
						var addrs []netip.AddrPort
						for p := range paths {
							addrs = append(addrs, addrOf(to, p))
						}
						i := 0
						for b.Loop() {
							// Send removes what it has sent from a train that leaves in parts.
							*t = dgram.Datagram{Data: whole, Seg: size, Remote: addrs[i%paths], Path: i % paths}
							if err := from.Send(t); err != nil {
								b.Fatal(err)
							}
							drain(b, to, d, n)
							i++
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/datagram")
					})
				}
			}
		}
	}
}

// BenchmarkTurn measures the calls of a round trip without waiting: one 64-byte datagram there
// and back between two sockets, on one goroutine.
func BenchmarkTurn(b *testing.B) {
	for _, m := range kinds {
		b.Run(m.name, func(b *testing.B) {
			x, y := open(b, loopback4, m.cfg), open(b, loopback4, m.cfg)
			d, there, back := slab(), train(y, 1, 64, 64), train(x, 2, 64, 64)
			b.ReportAllocs()
			for b.Loop() {
				if x.Send(there) != nil {
					b.Fatal("Send")
				}
				drain(b, y, d, 1)
				if y.Send(back) != nil {
					b.Fatal("Send")
				}
				drain(b, x, d, 1)
			}
		})
	}
}

// BenchmarkRecvEmpty measures a look at sockets with nothing to receive, which a polling reader
// does most of the time.
func BenchmarkRecvEmpty(b *testing.B) {
	for _, m := range kinds {
		for _, paths := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/paths=%d", m.name, paths), func(b *testing.B) {
				cfg := m.cfg
				cfg.Paths = paths
				c := open(b, loopback4, cfg)
				d := slab()
				for b.Loop() {
					d.Reset()
					if ok, err := c.Recv(d); ok || err != nil {
						b.Fatal(ok, err)
					}
				}
			})
		}
	}
}

// F9: sending and receiving allocate nothing, in one call or in many.
func TestNoAllocs(t *testing.T) {
	for _, m := range kinds[:4] {
		for _, paths := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/paths=%d", m.name, paths), func(t *testing.T) {
				cfg := m.cfg
				cfg.Paths = paths
				from, to := open(t, loopback4, cfg), open(t, loopback4, cfg)
				d := slab()
				ts := []*dgram.Datagram{{}, {}}
				data := pattern(1, 6400)
				var addrs []netip.AddrPort
				for p := range paths {
					addrs = append(addrs, addrOf(to, p))
				}
				round := func() {
					for p := range paths {
						for i := range ts {
							*ts[i] = dgram.Datagram{Data: data, Seg: 1000 - 100*i, Remote: addrs[p], Path: p}
						}
						if n, err := from.SendBatch(ts); n != len(ts) || err != nil {
							t.Fatal(n, err)
						}
						for left := 7 + 8; left > 0; {
							d.Reset()
							ok, err := to.Recv(d)
							switch {
							case err != nil:
								t.Fatal(err)
							case ok:
								left -= d.Segments()
							}
						}
					}
				}
				round()
				if n := testing.AllocsPerRun(100, round); n != 0 {
					t.Errorf("%v allocations", n)
				}
			})
		}
	}
}
