package mp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// A nonblocking collective that has begun, and what is wrong with its result.
type begun struct {
	q     mp.Request
	wrong func() error
}

// nothing is what Ibarrier leaves.
func nothing() error { return nil }

// beginnings are the nonblocking collectives, with blocks of n elements.
var beginnings = map[mp.Kind]func(c *mp.Comm, n, root int) (begun, error){
	mp.KindBarrier: func(c *mp.Comm, n, root int) (begun, error) {
		q, err := c.Ibarrier()
		return begun{q, nothing}, err
	},
	mp.KindBcast: func(c *mp.Comm, n, root int) (begun, error) {
		v := make([]int64, n)
		if c.Rank() == root {
			v = vec(root, n)
		}
		q, err := mp.Ibcast(c, v, root)
		return begun{q, func() error { return same("ibcast", v, vec(root, n)) }}, err
	},
	mp.KindReduce: func(c *mp.Comm, n, root int) (begun, error) {
		out, want := make([]int64, n), make([]int64, n)
		if c.Rank() == root {
			want = sumOf(c.Size(), n)
		}
		q, err := mp.Ireduce(c, vec(c.Rank(), n), out, mp.Sum, root)
		return begun{q, func() error { return same("ireduce", out, want) }}, err
	},
	mp.KindAllreduce: func(c *mp.Comm, n, root int) (begun, error) {
		v := vec(c.Rank(), n)
		q, err := mp.Iallreduce(c, v, v, mp.Sum)
		return begun{q, func() error { return same("iallreduce", v, sumOf(c.Size(), n)) }}, err
	},
	mp.KindReduceScatter: func(c *mp.Comm, n, root int) (begun, error) {
		out := make([]int64, n)
		q, err := mp.IreduceScatter(c, vec(c.Rank(), n*c.Size()), out, mp.Sum)
		return begun{q, func() error { return same("ireducescatter", out, sumOf(c.Size(), n*c.Size())[c.Rank()*n:][:n]) }}, err
	},
	mp.KindScan: func(c *mp.Comm, n, root int) (begun, error) {
		v := vec(c.Rank(), n)
		q, err := mp.Iscan(c, v, v, mp.Sum)
		return begun{q, func() error { return same("iscan", v, sumOf(c.Rank()+1, n)) }}, err
	},
	mp.KindExscan: func(c *mp.Comm, n, root int) (begun, error) {
		v := vec(c.Rank(), n)
		want := sumOf(c.Rank(), n)
		if c.Rank() == 0 {
			want = vec(0, n)
		}
		q, err := mp.Iexscan(c, v, v, mp.Sum)
		return begun{q, func() error { return same("iexscan", v, want) }}, err
	},
	mp.KindGather: func(c *mp.Comm, n, root int) (begun, error) {
		var out, want []int64
		if c.Rank() == root {
			out, want = make([]int64, n*c.Size()), concat(c.Size(), func(r int) []int64 { return vec(r, n) })
		}
		q, err := mp.Igather(c, vec(c.Rank(), n), out, root)
		return begun{q, func() error { return same("igather", out, want) }}, err
	},
	mp.KindGatherv: func(c *mp.Comm, n, root int) (begun, error) {
		var out [][]int64
		var want []int64
		if c.Rank() == root {
			for r := range c.Size() {
				out = append(out, make([]int64, n+r))
			}
			want = concat(c.Size(), func(r int) []int64 { return vec(r, n+r) })
		}
		q, err := mp.Igatherv(c, vec(c.Rank(), n+c.Rank()), out, root)
		return begun{q, func() error { return same("igatherv", slices.Concat(out...), want) }}, err
	},
	mp.KindScatter: func(c *mp.Comm, n, root int) (begun, error) {
		var in []int64
		if c.Rank() == root {
			in = concat(c.Size(), func(r int) []int64 { return vec(r, n) })
		}
		out := make([]int64, n)
		q, err := mp.Iscatter(c, in, out, root)
		return begun{q, func() error { return same("iscatter", out, vec(c.Rank(), n)) }}, err
	},
	mp.KindScatterv: func(c *mp.Comm, n, root int) (begun, error) {
		var in [][]int64
		if c.Rank() == root {
			for r := range c.Size() {
				in = append(in, vec(r, n+r))
			}
		}
		out := make([]int64, n+c.Rank())
		q, err := mp.Iscatterv(c, in, out, root)
		return begun{q, func() error { return same("iscatterv", out, vec(c.Rank(), n+c.Rank())) }}, err
	},
	mp.KindAllgather: func(c *mp.Comm, n, root int) (begun, error) {
		out := make([]int64, n*c.Size())
		q, err := mp.Iallgather(c, vec(c.Rank(), n), out)
		return begun{q, func() error {
			return same("iallgather", out, concat(c.Size(), func(r int) []int64 { return vec(r, n) }))
		}}, err
	},
	mp.KindAllgatherv: func(c *mp.Comm, n, root int) (begun, error) {
		var out [][]int64
		for r := range c.Size() {
			out = append(out, make([]int64, n+r))
		}
		q, err := mp.Iallgatherv(c, vec(c.Rank(), n+c.Rank()), out)
		return begun{q, func() error {
			return same("iallgatherv", slices.Concat(out...), concat(c.Size(), func(r int) []int64 { return vec(r, n+r) }))
		}}, err
	},
	mp.KindAlltoall: func(c *mp.Comm, n, root int) (begun, error) {
		in := concat(c.Size(), func(r int) []int64 { return block(c.Rank(), r, n) })
		out := make([]int64, len(in))
		q, err := mp.Ialltoall(c, in, out)
		return begun{q, func() error {
			return same("ialltoall", out, concat(c.Size(), func(r int) []int64 { return block(r, c.Rank(), n) }))
		}}, err
	},
	mp.KindAlltoallv: func(c *mp.Comm, n, root int) (begun, error) {
		var in, out [][]int64
		for r := range c.Size() {
			in, out = append(in, block(c.Rank(), r, n+r)), append(out, make([]int64, n+c.Rank()))
		}
		q, err := mp.Ialltoallv(c, in, out)
		return begun{q, func() error {
			return same("ialltoallv", slices.Concat(out...), concat(c.Size(), func(r int) []int64 { return block(r, c.Rank(), n+c.Rank()) }))
		}}, err
	},
}

// Each nonblocking collective has the result of a sequential computation and as many messages
// as the blocking one, by each algorithm.
func TestNonblocking(t *testing.T) {
	for _, p := range []int{1, 2, 3, 4, 7} {
		var algorithm atomic.Uint32
		counts := make([]int, p)
		cfg := mp.Config{Choose: func(mp.Call) mp.Algorithm { return mp.Algorithm(algorithm.Load()) }}
		worlds := mptest.Worlds(t, p, cfg)
		for _, k := range collectives {
			begin := beginnings[k.kind]
			if begin == nil {
				t.Fatalf("%v does not begin", k.kind)
			}
			for _, a := range k.algs {
				algorithm.Store(uint32(a))
				for _, n := range []int{0, 1, 16_000} {
					if n > 1 && testing.Short() {
						continue
					}
					err := all(worlds, func(c *mp.Comm) error {
						before := c.Parts()
						b, err := begin(c, n, p-1)
						if err == nil {
							_, err = b.q.Wait(limit(t))
						}
						counts[c.Rank()] = c.Parts() - before
						return errors.Join(err, b.wrong())
					})
					name := fmt.Sprintf("%v by %v, %d ranks, %d elements", k.kind, a, p, n)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					sum := 0
					for _, m := range counts {
						sum += m
					}
					if want := k.messages(a, p); sum != want {
						t.Errorf("%s: %d messages, want %d", name, sum, want)
					}
				}
			}
		}
		closeAll(t, worlds)
	}
}

// Many are under way, mixed with blocking collectives and messages, and each rank waits for them
// in an order of its own, by Wait, Test, Waitany or Waitall.
func TestNonblockingMixed(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	kinds := make([]mp.Kind, 0, len(beginnings))
	for k := range beginnings {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	mptest.Run(t, 5, func(c *mp.Comm) {
		ctx := limit(t)
		same := rand.New(rand.NewPCG(1, 2)) // the same at all ranks
		own := rand.New(rand.NewPCG(uint64(c.Rank()), 3))
		for round := range rounds {
			var open []begun
			for range 20 {
				k, n, root := kinds[same.IntN(len(kinds))], []int{0, 1, 40, 3000}[same.IntN(4)], same.IntN(c.Size())
				b, err := beginnings[k](c, n, root)
				if err != nil {
					t.Errorf("rank %d, round %d, %v: %v", c.Rank(), round, k, err)
					return
				}
				open = append(open, b)
				switch same.IntN(4) {
				case 0:
					v := []int64{1}
					ok(t, mp.Allreduce(ctx, c, v, v, mp.Sum))
					if v[0] != int64(c.Size()) {
						t.Errorf("a blocking one beside them has %d", v[0])
					}
				case 1:
					right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
					b := []byte{byte(round), 0}
					_, err := c.Sendrecv(ctx, b[:1], right, 1, b[1:], left, 1)
					if ok(t, err); b[1] != byte(round) {
						t.Errorf("a message beside them: %v", b)
					}
				}
			}
			own.Shuffle(len(open), func(i, k int) { open[i], open[k] = open[k], open[i] })
			qs := make([]mp.Request, len(open))
			for i, b := range open {
				qs[i] = b.q
			}
			var err error
			switch own.IntN(4) {
			case 0:
				for _, q := range qs {
					_, e := q.Wait(ctx)
					err = errors.Join(err, e)
				}
			case 1:
				for i := 0; i >= 0 && err == nil; {
					if i, _, err = mp.Waitany(ctx, qs); errors.Is(err, mp.ErrEnded) {
						i, err = -1, nil
					}
				}
			case 2:
				err = mp.Waitall(ctx, qs, nil)
			case 3:
				for left := len(qs); left > 0 && err == nil; {
					for _, q := range qs {
						_, done, e := q.Test()
						if errors.Is(e, mp.ErrEnded) {
							continue
						}
						if err = errors.Join(err, e); done {
							left--
						}
					}
					err = errors.Join(err, ctx.Err())
				}
			}
			ok(t, err)
			for _, b := range open {
				ok(t, b.wrong())
			}
			if t.Failed() {
				return
			}
		}
	})
}

// It goes on while no rank waits for it.
func TestNonblockingGoesOnAlone(t *testing.T) {
	mptest.Run(t, 4, func(c *mp.Comm) {
		v := vec(c.Rank(), 100)
		q, err := mp.Iallreduce(c, v, v, mp.Sum)
		ok(t, err)
		ctx := limit(t)
		for done := false; !done && ctx.Err() == nil && err == nil; {
			time.Sleep(time.Millisecond) // it computes
			_, done, err = q.Test()
		}
		ok(t, errors.Join(err, ctx.Err()))
		ok(t, same("iallreduce", v, sumOf(4, 100)))
	})
}

// A nonblocking collective does not match another one, nor the blocking one of its kind; all
// ranks are told.
func TestNonblockingMismatch(t *testing.T) {
	mptest.Run(t, 3, func(c *mp.Comm) {
		var err error
		if c.Rank() == 1 {
			err = c.Barrier(limit(t))
		} else if q, e := c.Ibarrier(); e != nil {
			err = e
		} else {
			err = end(limit(t), q)
		}
		var mis *mp.ErrMismatch
		if !errors.As(err, &mis) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		} else if mis.A.Nonblocking == mis.B.Nonblocking {
			t.Errorf("rank %d: both wait, or neither does: %v", c.Rank(), mis)
		}
	})
	mptest.Run(t, 3, func(c *mp.Comm) {
		v := []int64{1}
		var q mp.Request
		var err error
		if c.Rank() == 2 {
			q, err = c.Ibarrier()
		} else {
			q, err = mp.Iallreduce(c, v, v, mp.Sum)
		}
		ok(t, err)
		var mis *mp.ErrMismatch
		if err := end(limit(t), q); !errors.As(err, &mis) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	})
}

func end(ctx context.Context, q mp.Request) error {
	_, err := q.Wait(ctx)
	return err
}

// A wait whose context ends leaves the collective: the others get an ErrLeft. Closing the world
// ends those that nobody waits for.
func TestNonblockingIsLeft(t *testing.T) {
	mptest.Run(t, 3, func(c *mp.Comm) {
		if c.Rank() == 2 {
			_, err := c.Recv(limit(t), nil, 0, 1) // it never begins
			ok(t, err)
			return
		}
		q, err := c.Ibarrier()
		ok(t, err)
		ctx := limit(t)
		if c.Rank() == 1 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			ctx = short
		}
		err = end(ctx, q)
		var left *mp.ErrLeft
		if !errors.As(err, &left) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
		if c.Rank() == 1 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it does not say why: %v", err)
		}
		if c.Rank() == 0 {
			ok(t, c.Send(limit(t), nil, 2, 1))
		}
	})
	worlds := mptest.Worlds(t, 2, mp.Config{})
	q, err := worlds[0].World().Ibarrier()
	ok(t, err)
	ok(t, worlds[0].Close(limit(t)))
	if err := end(limit(t), q); err == nil {
		t.Error("a barrier of one of two ranks")
	}
	if _, err := worlds[0].World().Ibarrier(); !errors.Is(err, mp.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	ok(t, worlds[1].Close(limit(t)))
}
