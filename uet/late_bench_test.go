package uet

import (
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/units"
)

// BenchmarkLateReceive measures 8 messages whose receives are posted when all of them have arrived: sent, kept and
// copied to their receives, or announced and read. It counts the time from the first send to the last receive, and
// what of it lies behind the first receive.
func BenchmarkLateReceive(b *testing.B) {
	for _, size := range []int{16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, how := range []string{"sent", "announced"} {
			b.Run("size="+units.Size(int64(size))+"/"+how, func(b *testing.B) { lateReceives(b, size, how == "announced") })
		}
	}
}

func lateReceives(b *testing.B, size int, announced bool) {
	const many = 8
	h := &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}}
	if announced {
		h.Config.Tuning.RendezvousMin = size
	}
	r := newRig(b, h)
	x, y := r.node(), r.node()
	toY := x.know(y)
	y.know(x)
	var msg, buf [many][]byte
	for i := range many {
		msg[i], buf[i] = make([]byte, size), make([]byte, size)
	}
	e := make([]cq.Entry, many)
	came, sent := 0, 0
	turn := func() {
		n, _ := y.rx.Read(e)
		came += max(n, 0)
		n, _ = x.tx.Read(e)
		sent += max(n, 0)
	}
	b.SetBytes(many * int64(size))
	var behind int64
	for round := uint64(1); b.Loop(); round++ {
		came, sent = 0, 0
		for i := range many {
			if err := x.TSend(msg[i], toY, uint64(i), nil); err != nil {
				b.Fatal(err)
			}
		}
		for announced && y.Stats().Unexpected < round*many || !announced && sent < many {
			turn()
		}
		posted := b.Elapsed()
		for i := range many {
			if err := y.TRecv(buf[i], fi.AddrUnspec, uint64(i), 0, nil); err != nil {
				b.Fatal(err)
			}
		}
		for came < many || sent < many {
			turn()
		}
		behind += int64(b.Elapsed() - posted)
	}
	b.ReportMetric(float64(behind)/float64(b.N)/1000, "µs-behind/op")
}
