package mp_test

import (
	"context"
	"testing"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// A message in steady state allocates nothing, at neither end, with a context that can end
// and with one that cannot.
func TestNoAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector a sync.Pool forgets at random")
	}
	background := context.Background()
	for _, k := range []struct {
		name string
		ctx  context.Context
		do   func(ctx context.Context, c *mp.Comm, x, y []int64) error
		n    int
	}{
		{"echo", background, echo, 1},
		{"echo with a limit", limit(t), echo, 1},
		{"echo of 4 KiB", background, echo, 512},
		{"echo of 200 KB", background, echo, 25_000},
		{"requests", background, requests, 4},
		{"barrier", background, func(ctx context.Context, c *mp.Comm, x, y []int64) error { return c.Barrier(ctx) }, 1},
		{"allreduce", background, func(ctx context.Context, c *mp.Comm, x, y []int64) error {
			return mp.Allreduce(ctx, c, x, y, mp.Sum)
		}, 8},
		{"allgather", background, func(ctx context.Context, c *mp.Comm, x, y []int64) error {
			return mp.Allgather(ctx, c, x, y)
		}, 8},
		{"bcast", background, func(ctx context.Context, c *mp.Comm, x, y []int64) error {
			if err := mp.Bcast(ctx, c, x, 0); err != nil {
				return err
			}
			return mp.Bcast(ctx, c, x, 1)
		}, 8},
	} {
		t.Run(k.name, func(t *testing.T) {
			worlds := mptest.Worlds(t, 2, mp.Config{})
			vec := func() ([]int64, []int64) {
				if k.name == "allgather" {
					return make([]int64, k.n), make([]int64, 2*k.n)
				}
				return make([]int64, k.n), make([]int64, k.n)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				x, y := vec()
				for k.do(k.ctx, worlds[1].World(), x, y) == nil {
				}
			}()
			x, y := vec()
			round := func() {
				if err := k.do(k.ctx, worlds[0].World(), x, y); err != nil {
					t.Fatal(err)
				}
			}
			for range 300 {
				round()
			}
			// On a busy host rounds take longer than firstLook, and then each arranges to be woken by its
			// context, which allocates. So the least of several runs counts.
			least := testing.AllocsPerRun(50, round)
			for i := 0; i < 40 && least > 0; i++ {
				least = min(least, testing.AllocsPerRun(50, round))
			}
			if least != 0 {
				t.Errorf("%v allocations", least)
			}
			ok(t, worlds[1].Close(limit(t)))
			ok(t, worlds[0].Close(limit(t)))
			<-done
		})
	}
}

// echo sends there and back.
func echo(ctx context.Context, c *mp.Comm, x, y []int64) error {
	if c.Rank() == 1 {
		if _, err := mp.Recv(ctx, c, y, 0, 1); err != nil {
			return err
		}
	}
	if err := mp.Send(ctx, c, x, 1-c.Rank(), 1); err != nil || c.Rank() == 1 {
		return err
	}
	_, err := mp.Recv(ctx, c, y, 1, 1)
	return err
}

// requests does the same by requests, with any source and any tag.
func requests(ctx context.Context, c *mp.Comm, x, y []int64) error {
	var qs [2]mp.Request
	var err error
	if qs[0], err = mp.Irecv(c, y, mp.AnySource, mp.AnyTag); err != nil {
		return err
	}
	if qs[1], err = mp.Isend(c, x, 1-c.Rank(), 1); err != nil {
		return err
	}
	return mp.Waitall(ctx, qs[:], nil)
}
