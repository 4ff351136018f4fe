package mp_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// The same as the benchmarks of mp, without mp: what the provider alone takes.

type rawEnd struct {
	*uet.Endpoint
	cq *cq.CQ
	av *av.AV
	to fi.Addr
	e  [64]cq.Entry
}

func rawPair(b testing.TB, order fi.Order) (ends [2]*rawEnd) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	infos, err := uet.GetInfo("127.0.0.1", "", fi.Source, &uet.Info{
		Caps: fi.Tagged, Tx: uet.TxAttr{MsgOrder: order}, Rx: uet.RxAttr{MsgOrder: order},
		Config: uet.Config{NoCRC: true}, // as mp has it there
	})
	must(err)
	fabric, err := uet.OpenFabric(infos[0], nil)
	must(err)
	domain, err := fabric.OpenDomain(infos[0], nil)
	must(err)
	var vs [2]*av.AV
	for i := range ends {
		x := &rawEnd{}
		x.Endpoint, err = domain.OpenEndpoint(infos[0], nil)
		must(err)
		x.cq, err = domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
		must(err)
		vs[i], err = domain.OpenAV(av.Attr{}, nil)
		must(err)
		must(errors.Join(x.BindCQ(x.cq, fi.Transmit|fi.Recv), x.BindAV(vs[i]), x.Enable()))
		x.av, ends[i] = vs[i], x
		b.Cleanup(func() { _ = x.Close(); _ = x.cq.Close() })
	}
	for i, x := range ends {
		name, err := ends[1-i].Name()
		must(err)
		x.to, err = vs[i].InsertString(name.String())
		must(err)
	}
	return ends
}

// await reads completions until n receives have ended.
func (x *rawEnd) await(n int, stop *atomic.Bool) bool {
	for n > 0 {
		k, err := x.cq.SRead(x.e[:], 1, 100*time.Millisecond)
		if err != nil && stop.Load() {
			return false
		}
		for _, e := range x.e[:k] {
			if e.Flags&fi.Recv != 0 {
				n--
			}
		}
	}
	return true
}

func BenchmarkRawHalfRoundTrip(b *testing.B) {
	for _, n := range []int{8, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ends := rawPair(b, fi.OrderSAS)
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf, x := make([]byte, n), ends[1]
				for {
					if x.TRecv(buf, fi.AddrUnspec, 1, 0, nil) != nil || !x.await(1, &stop) || x.TSend(buf, x.to, 1, nil) != nil {
						return
					}
				}
			}()
			out, in, x := make([]byte, n), make([]byte, n), ends[0]
			for b.Loop() {
				if err := errors.Join(x.TRecv(in, fi.AddrUnspec, 1, 0, nil), x.TSend(out, x.to, 1, nil)); err != nil {
					b.Fatal(err)
				}
				x.await(1, &stop)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
			stop.Store(true)
			<-done
		})
	}
}

func BenchmarkRawStream(b *testing.B) {
	const n, window = 64 << 10, 64
	ends := rawPair(b, fi.OrderSAS)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf, x := make([]byte, n), ends[1]
		for {
			for range window {
				if x.TRecv(buf, fi.AddrUnspec, 1, 0, nil) != nil {
					return
				}
			}
			if !x.await(window, &stop) || x.TSend(nil, x.to, 2, nil) != nil {
				return
			}
		}
	}()
	out, x := make([]byte, n), ends[0]
	b.SetBytes(n * window)
	for b.Loop() {
		for range window {
			if err := x.TSend(out, x.to, 1, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := x.TRecv(nil, fi.AddrUnspec, 2, 0, nil); err != nil {
			b.Fatal(err)
		}
		x.await(1, &stop)
	}
	stop.Store(true)
	<-done
}
