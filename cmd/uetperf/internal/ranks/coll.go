package ranks

import (
	"context"
	"sync"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/mp"
)

// kinds are the collectives of mp.
var kinds = map[string]mp.Kind{
	Allreduce: mp.KindAllreduce, Allgather: mp.KindAllgather, ReduceScatter: mp.KindReduceScatter, Alltoall: mp.KindAlltoall, Bcast: mp.KindBcast,
	Reduce: mp.KindReduce, Gather: mp.KindGather, Scatter: mp.KindScatter, Scan: mp.KindScan, Barrier: mp.KindBarrier,
}

// Algorithms remembers which algorithms mp chose. Its Choose goes into the Config of the world.
type Algorithms struct {
	mu   sync.Mutex // guards last
	last map[mp.Kind]mp.Algorithm
}

// Choose is mp.Choice.
func (a *Algorithms) Choose(c mp.Call) mp.Algorithm {
	x := mp.Choice(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[mp.Kind]mp.Algorithm{}
	}
	a.last[c.Kind] = x
	return x
}

// of is the name of the latest choice, empty if there was none.
func (a *Algorithms) of(k mp.Kind) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.last[k]; x != 0 {
		return x.String()
	}
	return ""
}

// collective makes the operation of this rank.
func (b *bench) collective(x Shape) *op {
	if b.Op == Barrier {
		return &op{run: b.c.Barrier}
	}
	switch b.Type {
	case "float32":
		return collective[float32](b, x)
	case "float64":
		return collective[float64](b, x)
	case "int8":
		return collective[int8](b, x)
	case "uint8":
		return collective[uint8](b, x)
	case "int32":
		return collective[int32](b, x)
	case "uint32":
		return collective[uint32](b, x)
	case "int64":
		return collective[int64](b, x)
	case "uint64":
		return collective[uint64](b, x)
	}
	panic("BUG: ranks: type " + b.Type)
}

func collective[T mp.Real](b *bench, x Shape) *op {
	c, n, me, root := b.c, b.c.Size(), b.c.Rank(), b.Root
	combine := reduction[T](b.Reduction)
	in, out := make([]T, elements(b.Op, x.Count, n, me, root, true)), make([]T, elements(b.Op, x.Count, n, me, root, false))
	var run func(ctx context.Context) error
	switch b.Op {
	case Allreduce:
		run = func(ctx context.Context) error { return mp.Allreduce(ctx, c, in, out, combine) }
	case Reduce:
		run = func(ctx context.Context) error { return mp.Reduce(ctx, c, in, out, combine, root) }
	case Scan:
		run = func(ctx context.Context) error { return mp.Scan(ctx, c, in, out, combine) }
	case ReduceScatter:
		run = func(ctx context.Context) error { return mp.ReduceScatter(ctx, c, in, out, combine) }
	case Allgather:
		run = func(ctx context.Context) error { return mp.Allgather(ctx, c, in, out) }
	case Gather:
		run = func(ctx context.Context) error { return mp.Gather(ctx, c, in, out, root) }
	case Scatter:
		run = func(ctx context.Context) error { return mp.Scatter(ctx, c, in, out, root) }
	case Alltoall:
		run = func(ctx context.Context) error { return mp.Alltoall(ctx, c, in, out) }
	case Bcast:
		run = func(ctx context.Context) error { return mp.Bcast(ctx, c, out, root) }
	}
	p := pattern[T]{spec: b.Spec, count: int(x.Count), ranks: n, me: me}
	return &op{
		run: run,
		fill: func(round uint64) {
			for i := range in {
				in[i] = p.value(round, me, i)
			}
			for i := range out {
				if out[i] = p.want(round, i); b.Op != Bcast || me != root {
					out[i]++ // nothing that is left of it passes
				}
			}
		},
		verify: func(round uint64) (c record.Check, elements int64) {
			for i, v := range out {
				if v != p.want(round, i) {
					elements++
				}
			}
			switch {
			case elements > 0:
				c.Wrong, c.WrongBytes = 1, elements*b.width()
			case len(out) > 0:
				c.OK = 1
			}
			return c, elements
		},
	}
}

// elements is how many elements a rank gives, or gets, if a block has count. Bcast has one buffer
// for both.
func elements(op string, count int64, ranks, me, root int, gives bool) int64 {
	all := count * int64(ranks)
	switch op {
	case ReduceScatter:
		if gives {
			return all
		}
	case Allgather:
		if !gives {
			return all
		}
	case Alltoall:
		return all
	case Bcast:
		if gives {
			return 0
		}
	case Reduce:
		if !gives && me != root {
			return 0
		}
	case Gather:
		if !gives {
			if me != root {
				return 0
			}
			return all
		}
	case Scatter:
		if gives {
			if me != root {
				return 0
			}
			return all
		}
	}
	return count
}

func reduction[T mp.Real](name string) mp.Op[T] {
	switch name {
	case "prod":
		return mp.Prod[T]
	case "min":
		return mp.Min[T]
	case "max":
		return mp.Max[T]
	}
	return mp.Sum[T]
}

// A pattern says what the buffers of a round contain.
type pattern[T mp.Real] struct {
	spec             *Spec
	count, ranks, me int
}

// value is element i of what a rank gives. What is added up are small numbers, and what is
// multiplied are a few twos among ones, so that numbers with a point are exact.
func (p *pattern[T]) value(round uint64, rank, i int) T {
	x := mix(round, rank, uint64(i))
	if !p.spec.Reduces() {
		if half := T(1); half/2 != 0 { // a number with a point
			return T(x & (1<<22 - 1))
		}
		return T(x)
	}
	switch p.spec.Reduction {
	case "prod":
		if x%uint64(p.ranks) == 0 {
			return 2
		}
		return 1
	case "min", "max":
		return T(x & 0x7f)
	}
	return T(x & 7)
}

// mix makes a number of a round, a rank and a place.
func mix(round uint64, rank int, place uint64) uint64 {
	return scramble(scramble(round<<32^uint64(rank)) + place*0x9e3779b97f4a7c15)
}

// scramble is the end of SplitMix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// want is element i of what this rank gets.
func (p *pattern[T]) want(round uint64, i int) T {
	mine := p.me*p.count + i // of a buffer with a block for each rank
	switch p.spec.Op {
	case Bcast:
		return p.value(round, p.spec.Root, i)
	case Allgather, Gather:
		return p.value(round, i/p.count, i%p.count)
	case Alltoall:
		return p.value(round, i/p.count, p.me*p.count+i%p.count)
	case Scatter:
		return p.value(round, p.spec.Root, mine)
	case ReduceScatter:
		return p.combined(round, mine, p.ranks)
	case Scan:
		return p.combined(round, i, p.me+1)
	}
	return p.combined(round, i, p.ranks)
}

// combined is what the reduction makes of element i of the first ranks.
func (p *pattern[T]) combined(round uint64, i, ranks int) T {
	v := p.value(round, 0, i)
	for r := 1; r < ranks; r++ {
		switch x := p.value(round, r, i); p.spec.Reduction {
		case "prod":
			v *= x
		case "min":
			v = min(v, x)
		case "max":
			v = max(v, x)
		default:
			v += x
		}
	}
	return v
}
