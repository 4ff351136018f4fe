package cm

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// members returns two nodes with certificates of one authority.
func members(t testing.TB, more Config) (dialer, listener *Node) {
	t.Helper()
	a := authority(t)
	cfg := func(name string) Config {
		c := more
		c.Security, c.TLS = SecTLS, a.TLS(issue(t, a, name))
		return c
	}
	return open(t, cfg("dialer")), open(t, cfg("listener"))
}

// BenchmarkConnect opens connections with mutual TLS, 16 at a time, with both ends in this
// process. docs/perf.md, bar S3, wants 300 a second on two cores.
func BenchmarkConnect(b *testing.B) {
	for _, sec := range []Security{SecOff, SecTLS, SecPSK} {
		b.Run(sec.String(), func(b *testing.B) {
			var d, l *Node
			switch sec {
			case SecOff:
				d, l = open(b, Config{}), open(b, Config{})
			case SecTLS:
				d, l = members(b, Config{})
			case SecPSK:
				keys := func() [][]byte { return [][]byte{key(1)} }
				d, l = open(b, Config{Security: SecPSK, PSK: keys}), open(b, Config{Security: SecPSK, PSK: keys})
			}
			listen(b, l, func(r *Request) {
				s, err := r.Accept(params(2000), nil)
				if err != nil {
					b.Error(err)
					return
				}
				s.Start(quiet{})
			})
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for g := range 16 {
				wg.Go(func() {
					for i := g; i < b.N; i += 16 {
						s, err := d.Dial(b.Context(), l.Addr(), params(1000), nil)
						if err != nil {
							b.Error(err)
							return
						}
						s.Start(quiet{})
						s.Close(nil)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conn/s")
			b.Logf("%+v", l.Stats())
		})
	}
}

// memory returns the memory of the process: heap in use and stacks.
func memory() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkIdleSession reports the memory of an idle session at both ends together.
func BenchmarkIdleSession(b *testing.B) {
	const n = 500
	d, l := members(b, Config{MaxSessions: 2 * n})
	accepted := make(chan *Session, n)
	listen(b, l, func(r *Request) {
		s, err := r.Accept(params(2000), nil)
		if err != nil {
			b.Error(err)
		}
		accepted <- s
	})
	for range b.N {
		before, g := memory(), runtime.NumGoroutine()
		var all []*Session
		for range n {
			s, err := d.Dial(b.Context(), l.Addr(), params(1000), nil)
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, s, <-accepted)
		}
		for _, s := range all {
			s.Start(quiet{})
		}
		time.Sleep(time.Second) // lets the connections come to rest; the result does not depend on it
		b.ReportMetric(float64(memory()-before)/n/2/1024, "KiB/session")
		b.ReportMetric(float64(runtime.NumGoroutine()-g)/n/2, "goroutines/session")
		for _, s := range all {
			s.Close(nil)
		}
		for d.Stats().Sessions+l.Stats().Sessions > 0 {
			runtime.Gosched()
		}
	}
}
