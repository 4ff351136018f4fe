package uet

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Both ends run in one goroutine, so the benchmarks measure the processor time of a message
// without any waiting. uetperf measures the time between two cores.

func benchPair(b *testing.B) (x, y *node, toY, toX fi.Addr) {
	r := newRig(b, &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	x, y = r.node(), r.node()
	b.ReportAllocs()
	return x, y, x.know(y), y.know(x)
}

func BenchmarkPingPong64(b *testing.B) {
	x, y, toY, toX := benchPair(b)
	buf, msg := make([]byte, 64), make([]byte, 64)
	var e [8]cq.Entry
	half := func(from, to *node, addr fi.Addr) {
		if err := to.TRecv(buf, fi.AddrUnspec, 1, 0, nil); err != nil {
			b.Fatal(err)
		}
		if err := from.TSend(msg, addr, 1, nil); err != nil {
			b.Fatal(err)
		}
		for n := 0; n < 1; n, _ = to.rx.Read(e[:]) {
		}
		_, _ = from.tx.Read(e[:]) // the completion of the previous send
	}
	for b.Loop() {
		half(x, y, toY)
		half(y, x, toX)
	}
}

func BenchmarkRate8(b *testing.B) {
	x, y, toY, _ := benchPair(b)
	buf, msg := make([]byte, 64), make([]byte, 8)
	e := make([]cq.Entry, 64)
	const window = 512
	n := 0
	for b.Loop() {
		if n++; n%window != 0 {
			continue
		}
		for range window {
			if err := y.TRecv(buf, fi.AddrUnspec, 1, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
		for range window {
			if err := x.TSend(msg, toY, 1, nil); err != nil {
				b.Fatal(err)
			}
		}
		for rx := 0; rx < window || x.tx.Reserved() > 0; {
			k, _ := y.rx.Read(e)
			rx += max(k, 0)
			_, _ = x.tx.Read(e)
		}
	}
}

func BenchmarkBandwidth1M(b *testing.B) {
	x, y, toY, _ := benchPair(b)
	buf, msg := make([]byte, 1<<20), make([]byte, 1<<20)
	e := make([]cq.Entry, 8)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if err := y.TRecv(buf, fi.AddrUnspec, 1, 0, nil); err != nil {
			b.Fatal(err)
		}
		if err := x.TSend(msg, toY, 1, nil); err != nil {
			b.Fatal(err)
		}
		for rx := 0; rx < 1 || x.tx.Reserved() > 0; {
			k, _ := y.rx.Read(e)
			rx += max(k, 0)
			_, _ = x.tx.Read(e)
		}
	}
}

func BenchmarkReadEmpty(b *testing.B) {
	x, _, _, _ := benchPair(b)
	e := make([]cq.Entry, 8)
	for b.Loop() {
		_, _ = x.rx.Read(e)
	}
}

// BenchmarkForgedFlood moves 1 MiB messages between sealed endpoints, with and without
// 50,000 forged packets a second for the receiver (T25). The ratio of the two is the speed
// that is left. The flood takes processor time here that it would not take if it came from
// another host.
func BenchmarkForgedFlood(b *testing.B) {
	for _, flood := range []bool{false, true} {
		b.Run(fmt.Sprintf("flood=%v", flood), func(b *testing.B) {
			key, err := NewClusterKey(NewKey(1))
			ok(b, err)
			r := newRig(b, &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}, Config: Config{Security: key}})
			x, y := r.node(), r.node()
			to := x.know(y)
			_ = y.know(x)
			if flood {
				stop := forge(b, y.name.AddrPort())
				defer stop()
			}
			buf, msg := make([]byte, 1<<20), make([]byte, 1<<20)
			var e [8]cq.Entry
			b.SetBytes(1 << 20)
			for b.Loop() {
				ok(b, y.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
				ok(b, x.TSend(msg, to, 1, nil))
				for n := 0; n < 1; n, _ = y.rx.Read(e[:]) {
					_, _ = x.tx.Read(e[:])
				}
			}
			b.ReportMetric(float64(y.Stats().Drops[transport.DropAuth])/b.Elapsed().Seconds(), "forged/s")
		})
	}
}

// forge sends 50,000 unsealed packets a second until stop is called.
func forge(b *testing.B, to netip.AddrPort) (stop func()) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	ok(b, err)
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer c.Close()
		t := time.NewTicker(time.Millisecond)
		defer t.Stop()
		key := NewKey(1)
		h := wire.TSS{SP: true, SDI: sdiCluster, AN: key.an()}
		p := make([]byte, 0, 128)
		for begun, sent := time.Now(), 0; ; {
			select {
			case <-done:
				return
			case <-t.C:
			}
			for ; sent < int(time.Since(begun).Seconds()*50_000); sent++ {
				h.SSI++
				h.TSC++
				p = append(h.Append(p[:0]), make([]byte, 100)...)
				_, _ = c.Write(p)
			}
		}
	}()
	return func() { close(done); <-over }
}
