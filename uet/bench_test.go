package uet

import (
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// Both ends in one goroutine: what a message costs the processor, with nothing
// to wait for. What it takes between two cores is measured by uetperf.

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
		_, _ = from.tx.Read(e[:]) // the completion of the send before
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
