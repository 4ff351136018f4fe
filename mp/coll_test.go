package mp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// A case of a collective: what a rank does, checks, and how many messages all send together.
type collective struct {
	kind  mp.Kind
	algs  []mp.Algorithm
	roots bool
	// do runs it with blocks of n elements and returns what is wrong.
	do func(ctx context.Context, c *mp.Comm, n, root int) error
	// messages is the formula of the algorithm.
	messages func(a mp.Algorithm, p int) int
}

// val is element i of the vector of a rank.
func val(rank, i int) int64 { return int64(rank+1)*1000 + int64(i)*7 }

func vec(rank, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = val(rank, i)
	}
	return v
}

// block is element i of what a rank sends to another.
func block(from, to, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(from*100+to)*10000 + int64(i)
	}
	return v
}

func same(what string, got, want []int64) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: got %v, want %v", what, head(got), head(want))
	}
	return nil
}

func head(v []int64) []int64 { return v[:min(len(v), 8)] }

// sumOf is the sequential sum of the vectors of ranks 0 to p-1.
func sumOf(p, n int) []int64 {
	v := make([]int64, n)
	for r := range p {
		for i := range v {
			v[i] += val(r, i)
		}
	}
	return v
}

func log2(p int) int { return bits.Len(uint(p)) - 1 } // rounded down
func up2(p int) int  { return bits.Len(uint(p - 1)) } // rounded up

func foldedMessages(p, each int) int {
	q := 1 << log2(p)
	return q*each + 2*(p-q)
}

var collectives = []collective{
	{
		kind: mp.KindBarrier, algs: []mp.Algorithm{mp.Dissemination},
		do:       func(ctx context.Context, c *mp.Comm, n, root int) error { return c.Barrier(ctx) },
		messages: func(_ mp.Algorithm, p int) int { return p * up2(p) },
	},
	{
		kind: mp.KindBcast, algs: []mp.Algorithm{mp.Binomial, mp.ScatterAllgather, mp.Chain}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			v := make([]int64, n)
			if c.Rank() == root {
				v = vec(root, n)
			}
			if err := mp.Bcast(ctx, c, v, root); err != nil {
				return err
			}
			return same("bcast", v, vec(root, n))
		},
		messages: func(a mp.Algorithm, p int) int {
			if a == mp.ScatterAllgather {
				return p - 1 + p*(p-1)
			}
			return p - 1
		},
	},
	{
		kind: mp.KindReduce, algs: []mp.Algorithm{mp.Binomial, mp.Ring}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			out := make([]int64, n)
			if err := mp.Reduce(ctx, c, vec(c.Rank(), n), out, mp.Sum, root); err != nil || c.Rank() != root {
				return err
			}
			return same("reduce", out, sumOf(c.Size(), n))
		},
		messages: func(a mp.Algorithm, p int) int {
			if a == mp.Ring {
				return p*(p-1) + p - 1
			}
			return p - 1
		},
	},
	{
		kind: mp.KindAllreduce, algs: []mp.Algorithm{mp.RecursiveDoubling, mp.Ring, mp.Rabenseifner, mp.Pairwise},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			v := vec(c.Rank(), n)
			if err := mp.Allreduce(ctx, c, v, v, mp.Sum); err != nil {
				return err
			}
			return same("allreduce", v, sumOf(c.Size(), n))
		},
		messages: func(a mp.Algorithm, p int) int {
			switch a {
			case mp.Ring, mp.Pairwise:
				return 2 * p * (p - 1)
			case mp.Rabenseifner:
				return foldedMessages(p, 2*log2(p))
			}
			return foldedMessages(p, log2(p))
		},
	},
	{
		kind: mp.KindReduceScatter, algs: []mp.Algorithm{mp.Ring, mp.Binomial},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			out := make([]int64, n)
			if err := mp.ReduceScatter(ctx, c, vec(c.Rank(), n*c.Size()), out, mp.Sum); err != nil {
				return err
			}
			return same("reduce-scatter", out, sumOf(c.Size(), n*c.Size())[c.Rank()*n:][:n])
		},
		messages: func(a mp.Algorithm, p int) int {
			if a == mp.Ring {
				return p * (p - 1)
			}
			return 2 * (p - 1)
		},
	},
	{
		kind: mp.KindScan, algs: []mp.Algorithm{mp.RecursiveDoubling},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			v := vec(c.Rank(), n)
			if err := mp.Scan(ctx, c, v, v, mp.Sum); err != nil {
				return err
			}
			return same("scan", v, sumOf(c.Rank()+1, n))
		},
		messages: func(_ mp.Algorithm, p int) (m int) {
			for d := 1; d < p; d *= 2 {
				m += p - d
			}
			return m
		},
	},
	{
		kind: mp.KindExscan, algs: []mp.Algorithm{mp.RecursiveDoubling},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			v := vec(c.Rank(), n)
			if err := mp.Exscan(ctx, c, v, v, mp.Sum); err != nil || c.Rank() == 0 {
				return errors.Join(err, same("exscan of rank 0", v, vec(c.Rank(), n)))
			}
			return same("exscan", v, sumOf(c.Rank(), n))
		},
		messages: func(_ mp.Algorithm, p int) (m int) {
			for d := 1; d < p; d *= 2 {
				m += p - d
			}
			return m
		},
	},
	{
		kind: mp.KindGather, algs: []mp.Algorithm{mp.Binomial, mp.Linear}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var out []int64
			if c.Rank() == root {
				out = make([]int64, n*c.Size())
			}
			if err := mp.Gather(ctx, c, vec(c.Rank(), n), out, root); err != nil || c.Rank() != root {
				return err
			}
			return same("gather", out, concat(c.Size(), func(r int) []int64 { return vec(r, n) }))
		},
		messages: func(_ mp.Algorithm, p int) int { return p - 1 },
	},
	{
		kind: mp.KindGatherv, algs: []mp.Algorithm{0}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var out [][]int64
			if c.Rank() == root {
				for r := range c.Size() {
					out = append(out, make([]int64, n+r))
				}
			}
			if err := mp.Gatherv(ctx, c, vec(c.Rank(), n+c.Rank()), out, root); err != nil || c.Rank() != root {
				return err
			}
			return same("gatherv", slices.Concat(out...), concat(c.Size(), func(r int) []int64 { return vec(r, n+r) }))
		},
		messages: func(_ mp.Algorithm, p int) int { return p - 1 },
	},
	{
		kind: mp.KindScatter, algs: []mp.Algorithm{mp.Binomial, mp.Linear}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var in []int64
			if c.Rank() == root {
				in = concat(c.Size(), func(r int) []int64 { return vec(r, n) })
			}
			out := make([]int64, n)
			if err := mp.Scatter(ctx, c, in, out, root); err != nil {
				return err
			}
			return same("scatter", out, vec(c.Rank(), n))
		},
		messages: func(_ mp.Algorithm, p int) int { return p - 1 },
	},
	{
		kind: mp.KindScatterv, algs: []mp.Algorithm{0}, roots: true,
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var in [][]int64
			if c.Rank() == root {
				for r := range c.Size() {
					in = append(in, vec(r, n+r))
				}
			}
			out := make([]int64, n+c.Rank())
			if err := mp.Scatterv(ctx, c, in, out, root); err != nil {
				return err
			}
			return same("scatterv", out, vec(c.Rank(), n+c.Rank()))
		},
		messages: func(_ mp.Algorithm, p int) int { return p - 1 },
	},
	{
		kind: mp.KindAllgather, algs: []mp.Algorithm{mp.Bruck, mp.Ring},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			out := make([]int64, n*c.Size())
			if err := mp.Allgather(ctx, c, vec(c.Rank(), n), out); err != nil {
				return err
			}
			return same("allgather", out, concat(c.Size(), func(r int) []int64 { return vec(r, n) }))
		},
		messages: func(a mp.Algorithm, p int) int {
			if a == mp.Bruck {
				return p * up2(p)
			}
			return p * (p - 1)
		},
	},
	{
		kind: mp.KindAllgatherv, algs: []mp.Algorithm{0},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var out [][]int64
			for r := range c.Size() {
				out = append(out, make([]int64, n+r))
			}
			if err := mp.Allgatherv(ctx, c, vec(c.Rank(), n+c.Rank()), out); err != nil {
				return err
			}
			return same("allgatherv", slices.Concat(out...), concat(c.Size(), func(r int) []int64 { return vec(r, n+r) }))
		},
		messages: func(_ mp.Algorithm, p int) int { return p * (p - 1) },
	},
	{
		kind: mp.KindAlltoall, algs: []mp.Algorithm{mp.Linear, mp.Pairwise},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			in := concat(c.Size(), func(r int) []int64 { return block(c.Rank(), r, n) })
			out := make([]int64, len(in))
			if err := mp.Alltoall(ctx, c, in, out); err != nil {
				return err
			}
			return same("alltoall", out, concat(c.Size(), func(r int) []int64 { return block(r, c.Rank(), n) }))
		},
		messages: func(_ mp.Algorithm, p int) int { return p * (p - 1) },
	},
	{
		kind: mp.KindAlltoallv, algs: []mp.Algorithm{0},
		do: func(ctx context.Context, c *mp.Comm, n, root int) error {
			var in, out [][]int64
			for r := range c.Size() {
				in, out = append(in, block(c.Rank(), r, n+r)), append(out, make([]int64, n+c.Rank()))
			}
			if err := mp.Alltoallv(ctx, c, in, out); err != nil {
				return err
			}
			return same("alltoallv", slices.Concat(out...), concat(c.Size(), func(r int) []int64 { return block(r, c.Rank(), n+c.Rank()) }))
		},
		messages: func(_ mp.Algorithm, p int) int { return p * (p - 1) },
	},
}

func concat(p int, f func(r int) []int64) (v []int64) {
	for r := range p {
		v = append(v, f(r)...)
	}
	return v
}

// Every collective, by each of its algorithms, for 1 to 9 ranks and every root, has the result
// of a sequential computation, and as many messages as the formula of the algorithm says.
func TestCollectives(t *testing.T) {
	for p := 1; p <= 9; p++ {
		if raceEnabled && p > 5 && p != 8 {
			continue
		}
		var algorithm atomic.Uint32
		counts := make([]int, p)
		cfg := mp.Config{Choose: func(mp.Call) mp.Algorithm { return mp.Algorithm(algorithm.Load()) }}
		worlds := mptest.Worlds(t, p, cfg)
		for _, k := range collectives {
			for _, a := range k.algs {
				algorithm.Store(uint32(a))
				roots := 1
				if k.roots {
					roots = p
				}
				for root := range roots {
					for _, n := range []int{0, 1, 5, 100, 10_000} {
						if n == 10_000 && (testing.Short() || raceEnabled || root > 0) || n == 100 && root > 2 {
							continue
						}
						err := all(worlds, func(c *mp.Comm) error {
							before := c.Parts()
							err := k.do(limit(t), c, n, root)
							counts[c.Rank()] = c.Parts() - before
							return err
						})
						name := fmt.Sprintf("%v by %v, %d ranks, %d elements, root %d", k.kind, a, p, n, root)
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
		}
		ok(t, all(worlds, func(c *mp.Comm) error { return nil }))
		closeAll(t, worlds)
	}
}

// A chain passes a long message on in segments, and more of them than it awaits at a time.
func TestBcastInSegments(t *testing.T) {
	const ranks, segments = 3, 20
	const n = (segments-1)*(128<<10) + 5
	cfg := mp.Config{Choose: func(c mp.Call) mp.Algorithm {
		if c.Kind == mp.KindBcast {
			return mp.Chain
		}
		return mp.Choice(c)
	}}
	mptest.RunWith(t, ranks, cfg, func(c *mp.Comm) {
		b, want := make([]byte, n), make([]byte, n)
		for i := range want {
			want[i] = byte(i % 251)
		}
		if c.Rank() == 1 {
			copy(b, want)
		}
		before := c.Parts()
		ok(t, mp.Bcast(limit(t), c, b, 1))
		switch sent := c.Parts() - before; {
		case !bytes.Equal(b, want):
			t.Errorf("rank %d has other bytes", c.Rank())
		case c.Rank() == 0 && sent != 0, c.Rank() != 0 && sent != segments:
			t.Errorf("rank %d sent %d segments", c.Rank(), sent)
		}
	})
}

// An Allreduce whose slices share no memory leaves in as it is. Rank 0 is late, so all that the
// others can send it is there before it combines anything.
func TestAllreduceLeavesIn(t *testing.T) {
	for _, a := range []mp.Algorithm{mp.RecursiveDoubling, mp.Ring, mp.Rabenseifner, mp.Pairwise} {
		for _, ranks := range []int{1, 2, 3, 4, 8} {
			synctest.Test(t, func(t *testing.T) {
				worlds := mp.MemoryWorlds(ranks, func(mp.Call) mp.Algorithm { return a })
				ok(t, all(worlds, func(c *mp.Comm) error {
					const n = 1003
					in, out := vec(c.Rank(), n), make([]int64, n)
					if c.Rank() == 0 {
						time.Sleep(time.Second)
					}
					if err := mp.Allreduce(context.Background(), c, in, out, mp.Sum); err != nil {
						return err
					}
					if err := same("in", in, vec(c.Rank(), n)); err != nil {
						return fmt.Errorf("%v, %d ranks: %w", a, ranks, err)
					}
					return same("out", out, sumOf(ranks, n))
				}))
			})
		}
	}
}

// A long Allreduce by pairs goes in segments, those of a result behind those of the parts.
func TestAllreduceInSegments(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for _, apart := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				worlds := mp.MemoryWorlds(ranks, func(mp.Call) mp.Algorithm { return mp.Pairwise })
				ok(t, all(worlds, func(c *mp.Comm) error {
					const segments = 4
					n := ranks*segments*(128<<10)/8 - 5 // the last part is shorter
					in, out := vec(c.Rank(), n), make([]int64, n)
					if !apart {
						out = in
					}
					before := c.Parts()
					if err := mp.Allreduce(context.Background(), c, in, out, mp.Sum); err != nil {
						return err
					}
					if sent := c.Parts() - before; sent != 2*(ranks-1)*segments {
						t.Errorf("rank %d of %d sent %d messages", c.Rank(), ranks, sent)
					}
					return same("out", out, sumOf(ranks, n))
				}))
			})
		}
	}
}

// Ranks of one host pass a long message on by a tree, which moves the fewest bytes in all; those of
// several hosts divide it, so that each sends few.
func TestChoiceOfLongBcast(t *testing.T) {
	for one, want := range map[bool]mp.Algorithm{true: mp.Binomial, false: mp.ScatterAllgather} {
		if got := mp.Choice(mp.Call{Kind: mp.KindBcast, Ranks: 8, Bytes: 1 << 20, OneHost: one}); got != want {
			t.Errorf("on one host %v: %v", one, got)
		}
	}
	var asked atomic.Int32
	cfg := mp.Config{Choose: func(c mp.Call) mp.Algorithm {
		if c.OneHost {
			asked.Add(1)
		}
		return mp.Choice(c)
	}}
	mptest.RunWith(t, 2, cfg, func(c *mp.Comm) { ok(t, mp.Bcast(limit(t), c, make([]int64, 8), 0)) })
	if asked.Load() == 0 {
		t.Error("ranks at 127.0.0.1 are not said to be on one host")
	}
}

// The same for up to 256 ranks, in memory.
func TestCollectivesOfManyRanks(t *testing.T) {
	sizes := []int{16, 33}
	if !testing.Short() && !raceEnabled {
		sizes = append(sizes, 255, 256)
	}
	for _, p := range sizes {
		var algorithm atomic.Uint32
		counts := make([]int, p)
		worlds := mp.MemoryWorlds(p, func(mp.Call) mp.Algorithm { return mp.Algorithm(algorithm.Load()) })
		for _, k := range collectives {
			for _, a := range k.algs {
				algorithm.Store(uint32(a))
				err := all(worlds, func(c *mp.Comm) error {
					before := c.Parts()
					err := k.do(context.Background(), c, 2, p-1)
					counts[c.Rank()] = c.Parts() - before
					return err
				})
				if err != nil {
					t.Fatalf("%v by %v, %d ranks: %v", k.kind, a, p, err)
				}
				sum := 0
				for _, m := range counts {
					sum += m
				}
				if want := k.messages(a, p); sum != want {
					t.Errorf("%v by %v, %d ranks: %d messages, want %d", k.kind, a, p, sum, want)
				}
			}
		}
	}
}

// all runs f at all ranks at once and returns an error of one.
func all(worlds []*mp.World, f func(c *mp.Comm) error) error {
	errs := make(chan error, len(worlds))
	for _, w := range worlds {
		go func() { errs <- f(w.World()) }()
	}
	var first error
	for range worlds {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// A rank that heard from another one why a barrier is in vain, and leaves, says why first: the
// rank that waits for it may not have heard it yet.
func TestMismatchBeforeLeaving(t *testing.T) {
	worlds := mptest.Worlds(t, 3, mp.Config{})
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) })) // all know each other
	waits := make(chan error, 1)
	go func() { waits <- worlds[2].World().Barrier(limit(t)) }()
	worlds[1].World().HearBroken(&mp.ErrMismatch{A: mp.CallSite{Rank: 0}, B: mp.CallSite{Rank: 1}})
	ok(t, worlds[1].Close(limit(t)))
	if err := <-waits; !errors.As(err, new(*mp.ErrMismatch)) {
		t.Errorf("the rank that waits: %v", err)
	}
	closeAll(t, []*mp.World{worlds[0], worlds[2]})
}

func closeAll(t *testing.T, worlds []*mp.World) {
	t.Helper()
	errs := make(chan error, len(worlds))
	for _, w := range worlds {
		go func() { errs <- w.Close(limit(t)) }()
	}
	for range worlds {
		ok(t, <-errs)
	}
}

// InOrder keeps the order of ranks, for an operator that does not commute.
func TestInOrder(t *testing.T) {
	// 2×2 matrices of determinant 1, multiplied modulo a prime.
	mul := func(dst, src []int64) {
		const m = 1_000_003
		for i := 0; i+3 < len(dst); i += 4 {
			a, b := dst[i:i+4], src[i:i+4]
			w := [4]int64{(a[0]*b[0] + a[1]*b[2]) % m, (a[0]*b[1] + a[1]*b[3]) % m, (a[2]*b[0] + a[3]*b[2]) % m, (a[2]*b[1] + a[3]*b[3]) % m}
			copy(a, w[:])
		}
	}
	matrix := func(r int) []int64 { return []int64{int64(r + 2), int64(r + 1), 1, 1} }
	product := func(p int) []int64 {
		v := matrix(0)
		for r := 1; r < p; r++ {
			mul(v, matrix(r))
		}
		return v
	}
	for p := 1; p <= 9; p++ {
		mptest.Run(t, p, func(c *mp.Comm) {
			ctx := limit(t)
			out := make([]int64, 4)
			ok(t, mp.Allreduce(ctx, c, matrix(c.Rank()), out, mul, mp.InOrder))
			ok(t, same("allreduce", out, product(p)))
			for root := range p {
				ok(t, mp.Reduce(ctx, c, matrix(c.Rank()), out, mul, root, mp.InOrder))
				if c.Rank() == root {
					ok(t, same("reduce", out, product(p)))
				}
			}
			ok(t, mp.Scan(ctx, c, matrix(c.Rank()), out, mul))
			ok(t, same("scan", out, product(c.Rank()+1)))
			ok(t, mp.Exscan(ctx, c, matrix(c.Rank()), out, mul))
			if c.Rank() > 0 {
				ok(t, same("exscan", out, product(c.Rank())))
			}
		})
	}
}

func TestSplit(t *testing.T) {
	mptest.Run(t, 7, func(c *mp.Comm) {
		ctx := limit(t)
		odd, err := c.Split(ctx, c.Rank()%2, -c.Rank())
		ok(t, err)
		if err != nil {
			return
		}
		if want := (7 - c.Rank()%2 + 0) / 2; odd.Size() != want+1-c.Rank()%2 && odd.Size() != want {
			t.Errorf("size %d", odd.Size())
		}
		// Numbered backwards, by the keys.
		r := make([]int64, odd.Size())
		ok(t, mp.Allgather(ctx, odd, []int64{int64(c.Rank())}, r))
		want := []int64{6, 4, 2, 0}
		if c.Rank()%2 == 1 {
			want = []int64{5, 3, 1}
		}
		ok(t, same("ranks", r, want))
		if w, err := odd.WorldRank(odd.Rank()); err != nil || w != c.Rank() {
			t.Errorf("WorldRank: %d, %v", w, err)
		}
		none, err := c.Split(ctx, map[bool]int{true: 0, false: mp.Undefined}[c.Rank() == 3], 0)
		ok(t, err)
		if (none != nil) != (c.Rank() == 3) {
			t.Errorf("rank %d: %v", c.Rank(), none)
		}
		// A message of one communicator is not for another.
		dup, err := c.Dup(ctx)
		ok(t, err)
		right, left := (c.Rank()+1)%7, (c.Rank()+6)%7
		ok(t, c.Send(ctx, []byte{1}, right, 4))
		ok(t, dup.Send(ctx, []byte{2}, right, 4))
		b := make([]byte, 1)
		_, err = dup.Recv(ctx, b, left, 4)
		if ok(t, err); b[0] != 2 {
			t.Errorf("the message of another communicator: %d", b[0])
		}
		_, err = c.Recv(ctx, b, left, 4)
		ok(t, err)
		ok(t, dup.Free())
		if err := dup.Barrier(ctx); err != mp.ErrFreed {
			t.Errorf("barrier of a freed communicator: %v", err)
		}
	})
}

// Numbers of communicators come back: more can be made in a row than there may be at a time.
func TestFreedNumbersComeBack(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		for i := range 2100 {
			d, err := c.Dup(ctx)
			if err != nil {
				t.Errorf("number %d: %v", i, err)
				return
			}
			ok(t, d.Free())
		}
	})
}

// Config.Debug gets a line for each algorithm that is taken, of rank 0.
func TestChoicesArePrinted(t *testing.T) {
	var out strings.Builder // rank 0 alone writes
	mptest.RunWith(t, 4, mp.Config{Debug: &out}, func(c *mp.Comm) {
		ctx := limit(t)
		for _, n := range []int{1, 1, 10_000, 1_000_000} {
			v := make([]int64, n)
			ok(t, mp.Allreduce(ctx, c, v, v, mp.Max))
		}
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("lines: %q", lines)
	}
	for i, a := range []mp.Algorithm{mp.RecursiveDoubling, mp.Rabenseifner, mp.Ring} {
		if !strings.Contains(lines[i], "mp coll: rank 0 is in Allreduce") || !strings.Contains(lines[i], "by "+a.String()) {
			t.Errorf("line %q does not say %v", lines[i], a)
		}
	}
}
