package mp

import (
	"context"
	"slices"
	"unsafe"
)

// Reduce combines in of all ranks into out of the root. out is not used elsewhere; in and out may
// be the same slice.
func Reduce[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], root int, opts ...Option) error {
	a := c.chooseReduction(KindReduce, len(bytesOf(in)), len(in), opts)
	if err := c.enter(KindReduce, elemType[T](), len(in), root, a); err != nil {
		return err
	}
	return c.leave(ctx, reduce(ctx, c, in, out, op, root, a, slices.Contains(opts, InOrder)))
}

func reduce[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], root int, a Algorithm, ordered bool) error {
	if c.rank == root {
		if err := lengths(KindReduce, "out", len(out), len(in)); err != nil {
			return err
		}
	}
	acc := scratch[T](c, 0, len(in))
	copy(acc, in)
	var err error
	if a == Ring {
		if err = reduceRing(ctx, c, acc, op); err == nil {
			err = gatherParts(ctx, c, acc, root)
		}
	} else {
		err = reduceTree(ctx, c, acc, op, root, ordered)
	}
	if err == nil && c.rank == root {
		copy(out, acc)
	}
	return err
}

// reduceTree is by a binomial tree. In order, the tree is that of rank 0, which passes the
// result on to the root.
func reduceTree[T Number](ctx context.Context, c *Comm, acc []T, op Op[T], root int, ordered bool) error {
	top := root
	if ordered {
		top = 0
	}
	v := c.from(top)
	in := scratch[T](c, 1, len(acc))
	for mask := 1; mask < c.size; mask *= 2 {
		if v&mask != 0 {
			if err := c.put(c.at(top, v-mask), bytesOf(acc)); err != nil {
				return err
			}
			break
		}
		if v+mask < c.size {
			if err := c.get(ctx, c.at(top, v+mask), bytesOf(in)); err != nil {
				return err
			}
			op(acc, in)
		}
	}
	switch {
	case top == root:
		return nil
	case c.rank == top:
		return c.put(root, bytesOf(acc))
	case c.rank == root:
		return c.getApart(ctx, top, bytesOf(in), func() { copy(acc, in) })
	}
	return nil
}

// getApart receives into a buffer that no send reads, and then lets use take it: acc may still
// be on its way.
func (c *Comm) getApart(ctx context.Context, src int, p []byte, use func()) error {
	if err := c.get(ctx, src, p); err != nil {
		return err
	}
	if err := c.sent(ctx); err != nil {
		return err
	}
	use()
	return nil
}

// sent waits until the buffers of all sends of this collective are free.
func (c *Comm) sent(ctx context.Context) error {
	for i, r := range c.coll.sends {
		if _, err := r.wait(ctx); err != nil {
			c.coll.sends = append(c.coll.sends[:0], c.coll.sends[i+1:]...)
			return err
		}
	}
	c.coll.sends = c.coll.sends[:0]
	return nil
}

// reduceRing combines part i of acc at rank i, in Size-1 steps of a ring.
func reduceRing[T Number](ctx context.Context, c *Comm, acc []T, op Op[T]) error {
	p := c.size
	in := scratch[T](c, 1, (len(acc)+p-1)/p)
	right, left := (c.rank+1)%p, (c.rank+p-1)%p
	for s := 1; s < p; s++ {
		out := span(acc, (c.rank+2*p-s)%p, p)
		mine := span(acc, (c.rank+2*p-s-1)%p, p)
		part := in[:len(mine)]
		if err := c.swap(ctx, right, bytesOf(out), left, bytesOf(part)); err != nil {
			return err
		}
		op(mine, part)
		if err := c.sent(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gatherParts brings part i of acc from rank i to the root.
func gatherParts[T Number](ctx context.Context, c *Comm, acc []T, root int) error {
	if c.rank != root {
		return c.put(root, bytesOf(span(acc, c.rank, c.size)))
	}
	for i := range c.size {
		if i == root {
			continue
		}
		if err := c.get(ctx, i, bytesOf(span(acc, i, c.size))); err != nil {
			return err
		}
	}
	return nil
}

// Allreduce combines in of all ranks into out of all ranks. in and out may be the same slice.
func Allreduce[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], opts ...Option) error {
	a := c.chooseReduction(KindAllreduce, len(bytesOf(in)), len(in), opts)
	if err := c.enter(KindAllreduce, elemType[T](), len(in), -1, a); err != nil {
		return err
	}
	return c.leave(ctx, allreduceInto(ctx, c, in, out, op, a))
}

func allreduceInto[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], a Algorithm) error {
	if err := lengths(KindAllreduce, "out", len(out), len(in)); err != nil {
		return err
	}
	if a == Rabenseifner && c.size > 1 && c.size&(c.size-1) == 0 && !overlap(in, out) {
		return rabenseifner(ctx, c, in, out, op, fold{p: c.size, v: c.rank})
	}
	if a == Pairwise && !overlap(in, out) {
		return pairwise(ctx, c, in, out, op)
	}
	copy(out, in)
	return allreduce(ctx, c, out, op, a)
}

// overlap reports whether two slices share memory.
func overlap[T Number](a, b []T) bool {
	x, y := bytesOf(a), bytesOf(b)
	i, j := uintptr(unsafe.Pointer(unsafe.SliceData(x))), uintptr(unsafe.Pointer(unsafe.SliceData(y)))
	return i < j+uintptr(len(y)) && j < i+uintptr(len(x))
}

// allreduce combines acc of all ranks in place.
func allreduce[T Number](ctx context.Context, c *Comm, acc []T, op Op[T], a Algorithm) error {
	switch a {
	case Ring:
		if err := reduceRing(ctx, c, acc, op); err != nil {
			return err
		}
		return c.ring(ctx, 0, func(i int) []byte { return bytesOf(span(acc, i, c.size)) })
	case Rabenseifner:
		return folded(ctx, c, acc, op, func(ctx context.Context, c *Comm, acc []T, op Op[T], n fold) error {
			return rabenseifner(ctx, c, acc, acc, op, n)
		})
	case Pairwise:
		return pairwise(ctx, c, acc, acc, op)
	}
	return folded(ctx, c, acc, op, doubling[T])
}

// folded does a reduction of a power of two of ranks. Of the first ranks, as many pairs as there
// are too many, the even ones give their vector to their neighbours and get the result from
// them. Pairs are neighbours, so the order of ranks is kept.
func folded[T Number](ctx context.Context, c *Comm, acc []T, op Op[T], f func(context.Context, *Comm, []T, Op[T], fold) error) error {
	p := 1
	for 2*p <= c.size {
		p *= 2
	}
	rest := c.size - p
	n := fold{p: p, rest: rest, v: c.rank - rest}
	if c.rank < 2*rest {
		n.v = c.rank / 2
		if c.rank%2 == 0 {
			if err := c.put(c.rank+1, bytesOf(acc)); err != nil {
				return err
			}
			in := scratch[T](c, 1, len(acc))
			return c.getApart(ctx, c.rank+1, bytesOf(in), func() { copy(acc, in) })
		}
		in := scratch[T](c, 1, len(acc))
		if err := c.get(ctx, c.rank-1, bytesOf(in)); err != nil {
			return err
		}
		op(in, acc)
		copy(acc, in)
	}
	if err := f(ctx, c, acc, op, n); err != nil {
		return err
	}
	if c.rank < 2*rest {
		return c.put(c.rank-1, bytesOf(acc))
	}
	return nil
}

// A fold is a rank's place among a power of two of ranks.
type fold struct{ p, rest, v int }

// rank is the rank of a place.
func (n fold) rank(v int) int {
	if v < n.rest {
		return 2*v + 1
	}
	return v + n.rest
}

// doubling exchanges the whole vector with a rank at distance 1, 2, 4, …. Both combine the
// lower with the higher, so all have the same bits.
func doubling[T Number](ctx context.Context, c *Comm, acc []T, op Op[T], n fold) error {
	in := scratch[T](c, 1, len(acc))
	for d := 1; d < n.p; d *= 2 {
		to := n.rank(n.v ^ d)
		if err := c.swap(ctx, to, bytesOf(acc), to, bytesOf(in)); err != nil {
			return err
		}
		if err := c.sent(ctx); err != nil {
			return err
		}
		if n.v&d == 0 {
			op(acc, in)
		} else {
			op(in, acc)
			copy(acc, in)
		}
	}
	return nil
}

// rabenseifner halves the vector with a rank at distance p/2, p/4, … until each has one part,
// and then doubles it again. own is the vector of this rank: acc, or one that shares no memory
// with it. Then what comes first goes into acc, and nothing is copied.
func rabenseifner[T Number](ctx context.Context, c *Comm, own, acc []T, op Op[T], n fold) error {
	each := (len(acc) + n.p - 1) / n.p // numbers of a part, at most
	in := scratch[T](c, 1, n.p*each)
	apart := unsafe.SliceData(own) != unsafe.SliceData(acc)
	of := func(v []T, h half) []T { return spans(v, h.lo, h.hi, n.p) }
	// arriving is where the part is received that is combined with h. Each has its own place.
	arriving := func(h half) []T {
		mine, parts := of(acc, h), h.hi-h.lo
		if apart && 2*parts == n.p {
			return mine
		}
		at := (n.p - 2*parts) * each
		return in[at : at+len(mine)]
	}
	h := half{0, n.p}
	for d := n.p / 2; d > 0; d /= 2 {
		h = h.next(n.v, d)
		if err := c.await(n.rank(n.v^d), bytesOf(arriving(h))); err != nil {
			return err
		}
	}
	h = half{0, n.p}
	for d := n.p / 2; d > 0; d /= 2 {
		other := h.next(n.v^d, d)
		h = h.next(n.v, d)
		out, part := acc, arriving(h)
		if 2*d == n.p {
			out = own
		}
		if err := c.put(n.rank(n.v^d), bytesOf(of(out, other))); err != nil {
			return err
		}
		if err := c.awaited(ctx, bytesOf(part)); err != nil {
			return err
		}
		if mine := of(acc, h); unsafe.SliceData(part) == unsafe.SliceData(mine) {
			op(mine, of(own, h))
		} else {
			op(mine, part)
		}
	}
	if err := c.sent(ctx); err != nil { // what comes goes where that was
		return err
	}
	for d := 1; d < n.p; d *= 2 {
		if err := c.await(n.rank(n.v^d), bytesOf(of(acc, whole(n.v^d, d)))); err != nil {
			return err
		}
	}
	for d := 1; d < n.p; d *= 2 {
		if err := c.put(n.rank(n.v^d), bytesOf(of(acc, whole(n.v, d)))); err != nil {
			return err
		}
		if err := c.awaited(ctx, bytesOf(of(acc, whole(n.v^d, d)))); err != nil {
			return err
		}
	}
	return nil
}

// pairwise has each rank combine one part of the vector, which all others send to it, and send
// them the result. Long parts go in segments: while one is combined the next comes, and its
// result leaves before the last has come. own is the vector of this rank, as of rabenseifner.
func pairwise[T Number](ctx context.Context, c *Comm, own, acc []T, op Op[T]) error {
	if c.size == 1 {
		copy(acc, own)
		return nil
	}
	apart := unsafe.SliceData(own) != unsafe.SliceData(acc)
	each := (len(acc) + c.size - 1) / c.size // numbers of a part, at most
	bytes := each * int(unsafe.Sizeof(*new(T)))
	segments := segmentsOf(bytes)
	of := func(v []T, rank, s int) []T { return span(span(v, rank, c.size), s, segments) }
	mine := func(s int) []T { return of(acc, c.rank, s) }
	in := scratch[T](c, 1, (c.size-2)*each+len(span(acc, c.rank, c.size)))
	// arriving is where a segment of the own part is received from the k-th of the others.
	arriving := func(k, s int) []T {
		if apart && k == 0 {
			return mine(s)
		}
		return span(in[k*each:][:len(span(acc, c.rank, c.size))], s, segments)
	}
	// all calls f for each segment and each other rank, the k-th of them.
	all := func(f func(s, k, rank int) error) error {
		for s := range segments {
			for k := range c.size - 1 {
				if err := f(s, k, (c.rank+1+k)%c.size); err != nil {
					return err
				}
			}
		}
		return nil
	}
	results := func(s, _, rank int) error { return c.await(rank, bytesOf(of(acc, rank, s))) }
	err := all(func(s, k, rank int) error { return c.await(rank, bytesOf(arriving(k, s))) })
	if err == nil && apart {
		err = all(results)
	}
	if err == nil {
		err = all(func(s, _, rank int) error { return c.put(rank, bytesOf(of(own, rank, s))) })
	}
	if err != nil {
		return err
	}
	err = all(func(s, k, _ int) error {
		part := arriving(k, s)
		if err := c.awaited(ctx, bytesOf(part)); err != nil {
			return err
		}
		if apart && k == 0 {
			part = of(own, c.rank, s)
		}
		if op(mine(s), part); k < c.size-2 {
			return nil
		}
		for to := range c.size { // it was the last one
			if to != c.rank {
				if err := c.put(to, bytesOf(mine(s))); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && !apart {
		if err = c.sent(ctx); err == nil { // what comes goes where that was
			err = all(results)
		}
	}
	if err != nil {
		return err
	}
	return all(func(s, _, rank int) error { return c.awaited(ctx, bytesOf(of(acc, rank, s))) })
}

// A half is what a place has of a vector that a power of two of places divide: the parts from
// lo up to before hi.
type half struct{ lo, hi int }

// next is the half of h, which has 2·d parts, that belongs to place v.
func (h half) next(v, d int) half {
	if v&d == 0 {
		return half{h.lo, h.hi - d}
	}
	return half{h.lo + d, h.hi}
}

// whole is what place v has when d places have told each other: the parts of all of them.
func whole(v, d int) half { return half{v &^ (d - 1), v&^(d-1) + d} }

// ReduceScatter combines in of all ranks, and leaves block i of the result in out of rank i
// (MPI_Reduce_scatter_block): in has as many blocks of the length of out as there are ranks.
func ReduceScatter[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], opts ...Option) error {
	a := c.chooseReduction(KindReduceScatter, len(bytesOf(out)), len(out), opts)
	if err := c.enter(KindReduceScatter, elemType[T](), len(out), -1, a); err != nil {
		return err
	}
	return c.leave(ctx, reduceScatter(ctx, c, in, out, op, a))
}

func reduceScatter[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T], a Algorithm) error {
	if err := lengths(KindReduceScatter, "in", len(in), c.size*len(out)); err != nil {
		return err
	}
	acc := scratch[T](c, 0, len(in))
	copy(acc, in)
	if a == Ring {
		err := reduceRing(ctx, c, acc, op)
		copy(out, span(acc, c.rank, c.size))
		return err
	}
	if err := reduceTree(ctx, c, acc, op, 0, true); err != nil {
		return err
	}
	return c.scatterFlat(ctx, bytesOf(acc), bytesOf(out), 0)
}

// Scan combines in of the ranks up to this one into out (MPI_Scan). in and out may be the same
// slice.
func Scan[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T]) error {
	a := c.choose(KindScan, len(bytesOf(in)), len(in))
	if err := c.enter(KindScan, elemType[T](), len(in), -1, a); err != nil {
		return err
	}
	return c.leave(ctx, scan(ctx, c, in, out, op))
}

// Exscan combines in of the ranks below this one into out (MPI_Exscan). out of rank 0 is left as
// it is. in and out may be the same slice.
func Exscan[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T]) error {
	a := c.choose(KindExscan, len(bytesOf(in)), len(in))
	if err := c.enter(KindExscan, elemType[T](), len(in), -1, a); err != nil {
		return err
	}
	return c.leave(ctx, exscan(ctx, c, in, out, op))
}

func scan[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T]) error {
	if err := lengths(KindScan, "out", len(out), len(in)); err != nil {
		return err
	}
	copy(out, in)
	return prefixes(ctx, c, out, op, func([]T) {})
}

func exscan[T Number](ctx context.Context, c *Comm, in, out []T, op Op[T]) error {
	if err := lengths(KindExscan, "out", len(out), len(in)); err != nil {
		return err
	}
	acc := scratch[T](c, 0, len(in))
	copy(acc, in)
	first := true
	return prefixes(ctx, c, acc, op, func(below []T) {
		if !first {
			both := scratch[T](c, 2, len(in))
			copy(both, below)
			op(both, out)
			below = both
		}
		copy(out, below)
		first = false
	})
}

// prefixes combines acc with what the ranks below gave: after step d it has what the 2d ranks up
// to this one gave. got sees what comes in each step, of the ranks just below those so far.
func prefixes[T Number](ctx context.Context, c *Comm, acc []T, op Op[T], got func([]T)) error {
	in := scratch[T](c, 1, len(acc))
	for d := 1; d < c.size; d *= 2 {
		if c.rank+d < c.size {
			if err := c.put(c.rank+d, bytesOf(acc)); err != nil {
				return err
			}
		}
		if c.rank < d {
			continue
		}
		if err := c.get(ctx, c.rank-d, bytesOf(in)); err != nil {
			return err
		}
		if err := c.sent(ctx); err != nil {
			return err
		}
		got(in)
		op(in, acc)
		copy(acc, in)
	}
	return nil
}

// chooseReduction is choose; in order only some algorithms do.
func (c *Comm) chooseReduction(k Kind, bytes, count int, opts []Option) Algorithm {
	if slices.Contains(opts, InOrder) {
		return inOrder[k]
	}
	return c.choose(k, bytes, count)
}

var inOrder = map[Kind]Algorithm{KindReduce: Binomial, KindAllreduce: RecursiveDoubling, KindReduceScatter: Binomial}
