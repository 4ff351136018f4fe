package mp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
	"github.com/uetkit/uetkit/uet"
)

// fast finds dead peers in a second instead of three.
var fast = mp.Config{Endpoint: uet.Config{Tuning: uet.Tuning{SuspectTimeout: 300 * time.Millisecond, PeerTimeout: 3 * time.Second}}}

// A rank that ends takes along every wait for it, and collectives at all ranks.
func TestDeadRank(t *testing.T) {
	const p, dead = 5, 3
	worlds := mptest.Worlds(t, p, fast)
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
	ok(t, worlds[dead].Vanish())
	var wg sync.WaitGroup
	for r, w := range worlds {
		if r == dead {
			continue
		}
		wg.Go(func() {
			c, ctx := w.World(), limit(t)
			wantDead := func(what string, err error) {
				var f *mp.ErrPeerFailed
				if !errors.As(err, &f) || f.Rank != dead || f.Why == "" {
					t.Errorf("rank %d: %s: %v", r, what, err)
				}
			}
			any, err := c.Irecv(make([]byte, 1), mp.AnySource, 7)
			ok(t, err)
			wantDead("barrier", c.Barrier(ctx))
			_, err = any.Wait(ctx)
			wantDead("receive from any that was posted before", err)
			wantDead("second barrier", c.Barrier(ctx))
			wantDead("send", c.Send(ctx, nil, dead, 1))
			_, err = c.Recv(ctx, nil, dead, 1)
			wantDead("receive", err)
			_, err = c.Probe(ctx, dead, 1)
			wantDead("probe", err)
			// The living go on.
			if r < 2 {
				b := make([]byte, 1)
				_, err = c.Sendrecv(ctx, []byte{byte(r)}, 1-r, 2, b, mp.AnySource, 2)
				if ok(t, err); b[0] != byte(1-r) {
					t.Errorf("rank %d got %d", r, b[0])
				}
			}
		})
	}
	wg.Wait()
	closeAll(t, append(worlds[:dead:dead], worlds[dead+1:]...))
}

// What a rank sent before it ended is received all the same.
func TestLastMessageOfTheDead(t *testing.T) {
	worlds := mptest.Worlds(t, 2, fast)
	ctx := limit(t)
	ok(t, worlds[0].World().Send(ctx, []byte("last"), 1, 1))
	ok(t, worlds[0].Close(ctx))
	b := make([]byte, 4)
	_, err := worlds[1].World().Recv(ctx, b, 0, 1)
	if ok(t, err); string(b) != "last" {
		t.Errorf("got %q", b)
	}
	ok(t, worlds[1].Close(ctx))
}

// Programs end without a barrier: the last call is Send here and Recv there.
func TestEndWithoutBarrier(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 10
	}
	for i := range n {
		size := []int{1, 100, 5000, 200_000}[i%4]
		mptest.Run(t, 2, func(c *mp.Comm) {
			ctx := limit(t)
			if c.Rank() == 0 {
				ok(t, c.Send(ctx, pattern(size, byte(i)), 1, 1))
				return
			}
			_, err := c.Recv(ctx, make([]byte, size), 0, 1)
			ok(t, err)
		})
	}
}

// Collectives that do not match are named at all ranks, with both calls, and nobody hangs.
func TestMismatch(t *testing.T) {
	v := func(n int) []int64 { return make([]int64, n) }
	for _, k := range []struct {
		name string
		do   func(ctx context.Context, c *mp.Comm) error
		says []string
	}{
		{"kind", func(ctx context.Context, c *mp.Comm) error {
			if c.Rank() == 2 {
				return mp.Bcast(ctx, c, v(3), 2)
			}
			return c.Barrier(ctx)
		}, []string{"Bcast of 3 int64, root 2", "Barrier", "mp/failure_test.go:"}},
		{"sequence", func(ctx context.Context, c *mp.Comm) error {
			if c.Rank() == 1 {
				return mp.Bcast(ctx, c, v(1), 0)
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			return mp.Bcast(ctx, c, v(1), 0)
		}, []string{"Bcast", "Barrier"}},
		{"count", func(ctx context.Context, c *mp.Comm) error {
			return mp.Allreduce(ctx, c, v(4+c.Rank()/3), v(4+c.Rank()/3), mp.Sum)
		}, []string{"4 int64", "5 int64"}},
		{"type", func(ctx context.Context, c *mp.Comm) error {
			if c.Rank() == 0 {
				return mp.Allreduce(ctx, c, make([]float64, 2), make([]float64, 2), mp.Sum)
			}
			return mp.Allreduce(ctx, c, v(2), v(2), mp.Sum)
		}, []string{"2 int64", "2 float64"}},
		{"root", func(ctx context.Context, c *mp.Comm) error {
			return mp.Reduce(ctx, c, v(2), v(2), mp.Sum, c.Rank()/3)
		}, []string{"root 0", "root 1"}},
		{"roots that all send", func(ctx context.Context, c *mp.Comm) error {
			if err := mp.Bcast(ctx, c, v(2), c.Rank()); err != nil {
				return err
			}
			return c.Barrier(ctx)
		}, []string{"Bcast"}},
		{"nobody sends", func(ctx context.Context, c *mp.Comm) error {
			return mp.Bcast(ctx, c, v(2), (c.Rank()+1)%c.Size())
		}, []string{"Bcast of 2 int64, root "}},
		{"lengths", func(ctx context.Context, c *mp.Comm) error {
			out := [][]int64{v(1), v(1), v(1), v(1)}
			return mp.Allgatherv(ctx, c, v(1+c.Rank()/3), append(out[:3], v(1+c.Rank()/3)))
		}, []string{"Allgatherv of 1 int64", "Allgatherv of 2 int64"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			mptest.RunWith(t, 4, fast, func(c *mp.Comm) {
				ctx := limit(t)
				err := k.do(ctx, c)
				if err == nil {
					err = c.Barrier(ctx) // from this collective or the next
				}
				var mis *mp.ErrMismatch
				if !errors.As(err, &mis) {
					t.Errorf("rank %d: %v", c.Rank(), err)
					return
				}
				for _, s := range k.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("rank %d: %q does not say %q", c.Rank(), err, s)
					}
				}
				// Messages between two ranks go on.
				b := make([]byte, 1)
				_, err = c.Sendrecv(ctx, []byte{9}, c.Rank()^1, 1, b, c.Rank()^1, 1)
				ok(t, err)
			})
		})
	}
}

// A rank that leaves a collective because its context ends takes the others along.
func TestCollectiveIsLeft(t *testing.T) {
	mptest.Run(t, 3, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			if err := c.Barrier(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("barrier: %v", err)
			}
			ok(t, c.Send(ctx, nil, 2, 1))
			return
		}
		if c.Rank() == 2 { // comes when rank 0 has left
			_, err := c.Recv(ctx, nil, 0, 1)
			ok(t, err)
		}
		var left *mp.ErrLeft
		if err := c.Barrier(ctx); !errors.As(err, &left) || left.At.Rank != 0 || left.At.Kind != mp.KindBarrier {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	})
}

// A slice of a wrong length at one rank is an error at all.
func TestWrongLengthAtTheRoot(t *testing.T) {
	mptest.Run(t, 3, func(c *mp.Comm) {
		ctx := limit(t)
		out := make([]int64, 5) // needs 6
		err := mp.Gather(ctx, c, make([]int64, 2), out, 0)
		if c.Rank() == 0 {
			if !errors.As(err, new(*mp.ErrArg)) {
				t.Errorf("root: %v", err)
			}
			return
		}
		if err == nil { // it had sent its part already
			err = c.Barrier(ctx)
		}
		if !errors.As(err, new(*mp.ErrLeft)) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	})
}

// A receive finds out that its source is dead though nobody sends to that.
func TestDeadSource(t *testing.T) {
	worlds := mptest.Worlds(t, 2, fast)
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
	ok(t, worlds[1].Vanish())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var f *mp.ErrPeerFailed
	if _, err := worlds[0].World().Recv(ctx, nil, 1, 1); !errors.As(err, &f) || f.Rank != 1 {
		t.Errorf("receive: %v", err)
	}
	ok(t, worlds[0].Close(limit(t)))
}

// So does a probe, from any source too.
func TestDeadSourceOfAProbe(t *testing.T) {
	for _, src := range []int{1, mp.AnySource} {
		worlds := mptest.Worlds(t, 2, fast)
		ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
		ok(t, worlds[1].Vanish())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var f *mp.ErrPeerFailed
		if _, err := worlds[0].World().Probe(ctx, src, 1); !errors.As(err, &f) || f.Rank != 1 {
			t.Errorf("probe of %d: %v", src, err)
		}
		cancel()
		ok(t, worlds[0].Close(limit(t)))
	}
}

// A rank that is told of a death ends its waits though it does not ask itself.
func TestTheDeadAreTold(t *testing.T) {
	worlds := mptest.Worlds(t, 3, fast)
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
	ok(t, worlds[2].Vanish())
	told := make(chan error, 1)
	// Rank 1 waits for rank 0. It learns of rank 2 by a message alone.
	go func() {
		_, err := worlds[1].World().Recv(limit(t), nil, 0, 1)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			_, err = worlds[1].World().Recv(ctx, nil, 2, 1)
		}
		told <- err
	}()
	if err := worlds[0].World().Ssend(limit(t), nil, 2, 1); !errors.As(err, new(*mp.ErrPeerFailed)) {
		t.Errorf("Ssend: %v", err)
	}
	ok(t, worlds[0].World().Send(limit(t), nil, 1, 1))
	var f *mp.ErrPeerFailed
	if err := <-told; !errors.As(err, &f) || f.Rank != 2 || f.Err != nil {
		t.Errorf("rank 1: %v", err)
	}
	for _, w := range worlds[:2] {
		ok(t, w.Close(limit(t)))
	}
}

// A rank that closes in order is no failure for those who wait for somebody else.
func TestRankLeaves(t *testing.T) {
	worlds := mptest.Worlds(t, 3, fast)
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
	any, err := worlds[0].World().Irecv(make([]byte, 1), mp.AnySource, 1)
	ok(t, err)
	ok(t, worlds[2].Close(limit(t)))
	ok(t, all(worlds[:2], func(c *mp.Comm) error {
		ctx := limit(t)
		if c.Rank() == 1 {
			// Longer than it takes until rank 0 asks for signs of life, twice.
			short, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
			defer cancel()
			if _, err := c.Recv(short, nil, 0, 2); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("receive from rank 0: %v", err)
			}
			return c.Send(ctx, []byte{7}, 0, 1)
		}
		st, err := any.Wait(ctx)
		if err != nil || st.Source != 1 {
			t.Errorf("receive from any: %+v, %v", st, err)
		}
		var f *mp.ErrPeerFailed
		if _, err := c.Recv(ctx, nil, 2, 1); !errors.As(err, &f) || f.Rank != 2 || f.Why != "it closed its world" {
			t.Errorf("receive from it: %v", err)
		}
		return nil
	}))
	var f *mp.ErrPeerFailed
	if err := worlds[1].World().Barrier(limit(t)); !errors.As(err, &f) || f.Rank != 2 {
		t.Errorf("barrier: %v", err)
	}
	closeAll(t, worlds[:2])
}

// A rank that got a message of another collective waits for the word of its sender: as long as
// that computes, but not for ever for one that has freed the communicator.
func TestMismatchWithABusyRank(t *testing.T) {
	for _, frees := range []bool{false, true} {
		t.Run(fmt.Sprintf("frees=%v", frees), func(t *testing.T) {
			mptest.RunVirtual(t, 2, mptest.Net{Delay: time.Millisecond}, func(c *mp.Comm) {
				ctx := context.Background()
				d, err := c.Dup(ctx)
				ok(t, err)
				if c.Rank() == 0 {
					ok(t, mp.Bcast(ctx, d, make([]int64, 1), 0))
					if frees {
						ok(t, d.Free())
					}
					time.Sleep(5 * time.Second)
					_, err = c.Recv(ctx, nil, 1, 1)
					ok(t, err)
					return
				}
				begun := time.Now()
				err = d.Barrier(ctx)
				took := time.Since(begun)
				var mis *mp.ErrMismatch
				if !errors.As(err, &mis) || mis.A.Kind != mp.KindBarrier || mis.B.Rank != 0 || took < 5*time.Second || took > 11*time.Second {
					t.Errorf("after %v: %v", took, err)
				} else if frees == (mis.B.Kind == mp.KindBcast) {
					t.Errorf("rank 0 freed the communicator: %v; it told %v", frees, mis.B)
				}
				ok(t, c.Send(ctx, nil, 0, 1))
			})
		})
	}
}

// Ranks in different collectives are named, whatever the one whose message told of it does then.
func TestMismatchIsCertain(t *testing.T) {
	one := make([]int64, 1)
	for _, k := range []struct {
		name          string
		first, second func(ctx context.Context, c *mp.Comm) error // at ranks 0 and 1
		rests         time.Duration                               // rank 0, behind its call
		limit         time.Duration                               // of the call of rank 1
		says          []string
	}{
		{"closes", func(ctx context.Context, c *mp.Comm) error { return mp.Bcast(ctx, c, one, 0) },
			func(ctx context.Context, c *mp.Comm) error { return mp.Reduce(ctx, c, one, one, mp.Sum, 1) }, 0, time.Minute,
			[]string{"Reduce", "rank 0 is in "}},
		{"computes", func(ctx context.Context, c *mp.Comm) error { return mp.Bcast(ctx, c, one, 0) },
			func(ctx context.Context, c *mp.Comm) error { return c.Barrier(ctx) }, 7 * time.Second, 3 * time.Second,
			[]string{"Barrier", "rank 0 is in another, number 1"}},
		{"computes, lengths", func(ctx context.Context, c *mp.Comm) error { return mp.Gatherv(ctx, c, make([]int64, 2), nil, 1) },
			func(ctx context.Context, c *mp.Comm) error {
				return mp.Gatherv(ctx, c, one, [][]int64{make([]int64, 3), one}, 1)
			}, 15 * time.Second, time.Minute, []string{"rank 1 is in Gatherv of 3 int64", "rank 0 is in Gatherv of 2 int64"}},
		{"is far ahead", func(ctx context.Context, c *mp.Comm) (err error) {
			for range 20 {
				err = errors.Join(err, mp.Bcast(ctx, c, one, 0))
			}
			_, e := c.Recv(ctx, nil, 1, 1)
			return errors.Join(err, e)
		}, func(ctx context.Context, c *mp.Comm) error {
			err := c.Barrier(ctx)
			ok(t, c.Send(ctx, nil, 0, 1))
			return err
		}, 0, time.Minute, []string{"Barrier, by dissemination, number 1", "rank 0 is in another, number 1"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			mptest.RunVirtual(t, 2, mptest.Net{Delay: time.Millisecond}, func(c *mp.Comm) {
				if c.Rank() == 0 {
					ok(t, k.first(context.Background(), c))
					time.Sleep(k.rests)
					return
				}
				time.Sleep(200 * time.Millisecond)
				ctx, stop := context.WithTimeout(context.Background(), k.limit)
				defer stop()
				err := k.second(ctx, c)
				if !errors.As(err, new(*mp.ErrMismatch)) {
					t.Fatal(err)
				}
				for _, s := range k.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%q does not say %q", err, s)
					}
				}
			})
		})
	}
}
