package mp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// pair is two ranks, the second of which does f until the first is done with b.
func pair(b *testing.B, ctx context.Context, f func(c *mp.Comm) error, g func(c *mp.Comm) error) {
	worlds := mptest.Worlds(b, 2, mp.Config{})
	done := make(chan error, 1)
	go func() {
		for {
			if err := g(worlds[1].World()); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 100 {
		if err := f(worlds[0].World()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := f(worlds[0].World()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	for i := range worlds {
		if err := worlds[1-i].Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}

// BenchmarkHalfRoundTrip is half of the time of 8 bytes there and back, between two goroutines.
func BenchmarkHalfRoundTrip(b *testing.B) {
	for _, n := range []int{8, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := context.Background()
			out, in, back := make([]byte, n), make([]byte, n), make([]byte, n)
			pair(b, ctx, func(c *mp.Comm) error {
				if err := c.Send(ctx, out, 1, 1); err != nil {
					return err
				}
				_, err := c.Recv(ctx, in, 1, 1)
				return err
			}, func(c *mp.Comm) error {
				if _, err := c.Recv(ctx, back, 0, 1); err != nil {
					return err
				}
				return c.Send(ctx, back, 0, 1)
			})
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
		})
	}
}

// BenchmarkStream is messages of 64 KiB in one direction, 64 at a time.
func BenchmarkStream(b *testing.B) {
	const n, window = 64 << 10, 64
	ctx := context.Background()
	out, in := make([]byte, n), make([]byte, n)
	qs, rs := make([]mp.Request, window), make([]mp.Request, window)
	b.SetBytes(n * window)
	pair(b, ctx, func(c *mp.Comm) error {
		for i := range qs {
			var err error
			if qs[i], err = c.Isend(out, 1, 1); err != nil {
				return err
			}
		}
		if err := mp.Waitall(ctx, qs, nil); err != nil {
			return err
		}
		_, err := c.Recv(ctx, nil, 1, 2)
		return err
	}, func(c *mp.Comm) error {
		for i := range rs {
			var err error
			if rs[i], err = c.Irecv(in, 0, 1); err != nil {
				return err
			}
		}
		if err := mp.Waitall(ctx, rs, nil); err != nil {
			return err
		}
		return c.Send(ctx, nil, 0, 2)
	})
}

// collectiveOf measures what do makes of 4 ranks, after 100 rounds.
func collectiveOf(b *testing.B, do func(ctx context.Context, rank *mp.Comm) func() error) {
	ctx := context.Background()
	worlds := mptest.Worlds(b, 4, mp.Config{})
	run := func(n int) {
		err := all(worlds, func(c *mp.Comm) error {
			once := do(ctx, c)
			for range n {
				if err := once(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	run(100)
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	for _, w := range worlds {
		if err := w.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAllreduce8 is one element over four ranks.
func BenchmarkAllreduce8(b *testing.B) {
	collectiveOf(b, func(ctx context.Context, c *mp.Comm) func() error {
		x := []int64{1}
		return func() error { return mp.Allreduce(ctx, c, x, x, mp.Max) }
	})
}

// BenchmarkAlltoall16K is 16 KiB from each of four ranks to each.
func BenchmarkAlltoall16K(b *testing.B) {
	collectiveOf(b, func(ctx context.Context, c *mp.Comm) func() error {
		in, out := make([]byte, 64<<10), make([]byte, 64<<10)
		return func() error { return mp.Alltoall(ctx, c, in, out) }
	})
}
