package mp

import "context"

// Gather brings in of rank i to block i of out at the root.
func Gather[T Number](ctx context.Context, c *Comm, in, out []T, root int) error {
	a := c.choose(KindGather, len(bytesOf(in)), len(in))
	if err := c.enter(KindGather, elemType[T](), len(in), root, a); err != nil {
		return err
	}
	return c.leave(ctx, gather(ctx, c, in, out, root, a))
}

func gather[T Number](ctx context.Context, c *Comm, in, out []T, root int, a Algorithm) error {
	if c.rank == root {
		if err := lengths(KindGather, "out", len(out), c.size*len(in)); err != nil {
			return err
		}
	}
	if a == Binomial {
		return c.gatherTree(ctx, bytesOf(in), bytesOf(out), root)
	}
	return c.gatherFlat(ctx, bytesOf(in), bytesOf(out), root)
}

// gatherFlat: all send to the root.
func (c *Comm) gatherFlat(ctx context.Context, in, out []byte, root int) error {
	if c.rank != root {
		return c.put(root, in)
	}
	n := len(in)
	for i := range c.size {
		block := out[i*n : (i+1)*n]
		if i == root {
			copy(block, in)
		} else if err := c.get(ctx, i, block); err != nil {
			return err
		}
	}
	return nil
}

// gatherTree collects in a binomial tree: each rank gathers the blocks of those below it.
func (c *Comm) gatherTree(ctx context.Context, in, out []byte, root int) error {
	v, n := c.from(root), len(in)
	mine := scratch[byte](c, 0, c.size*n) // blocks from this rank's on, seen from the root
	copy(mine, in)
	for mask := 1; mask < c.size; mask *= 2 {
		if v&mask != 0 {
			return c.put(c.at(root, v-mask), mine[:min(mask, c.size-v)*n])
		}
		if v+mask < c.size {
			if err := c.get(ctx, c.at(root, v+mask), mine[mask*n:min(2*mask, c.size-v)*n]); err != nil {
				return err
			}
		}
	}
	for i := range c.size {
		copy(out[c.at(root, i)*n:], mine[i*n:(i+1)*n])
	}
	return nil
}

// Gatherv is Gather of slices of different lengths: out[i] has the length of in at rank i.
func Gatherv[T Number](ctx context.Context, c *Comm, in []T, out [][]T, root int) error {
	if err := c.enter(KindGatherv, elemType[T](), -1, root, 0); err != nil {
		return err
	}
	return c.leave(ctx, gatherv(ctx, c, in, out, root))
}

func gatherv[T Number](ctx context.Context, c *Comm, in []T, out [][]T, root int) error {
	if c.rank != root {
		return c.put(root, bytesOf(in))
	}
	err := lengths(KindGatherv, "out", len(out), c.size)
	if err == nil {
		err = lengths(KindGatherv, "out of the root", len(out[root]), len(in))
	}
	for i := 0; i < c.size && err == nil; i++ {
		if i == root {
			copy(out[i], in)
		} else {
			err = c.get(ctx, i, bytesOf(out[i]))
		}
	}
	return err
}

// Scatter brings block i of in at the root to out of rank i.
func Scatter[T Number](ctx context.Context, c *Comm, in, out []T, root int) error {
	a := c.choose(KindScatter, len(bytesOf(out)), len(out))
	if err := c.enter(KindScatter, elemType[T](), len(out), root, a); err != nil {
		return err
	}
	return c.leave(ctx, scatter(ctx, c, in, out, root, a))
}

func scatter[T Number](ctx context.Context, c *Comm, in, out []T, root int, a Algorithm) error {
	if c.rank == root {
		if err := lengths(KindScatter, "in", len(in), c.size*len(out)); err != nil {
			return err
		}
	}
	if a == Binomial {
		return c.scatterTree(ctx, bytesOf(in), bytesOf(out), root)
	}
	return c.scatterFlat(ctx, bytesOf(in), bytesOf(out), root)
}

// scatterFlat: the root sends to all.
func (c *Comm) scatterFlat(ctx context.Context, in, out []byte, root int) error {
	if c.rank != root {
		return c.get(ctx, root, out)
	}
	n := len(out)
	for i := range c.size {
		block := in[i*n : (i+1)*n]
		if i == root {
			copy(out, block)
		} else if err := c.put(i, block); err != nil {
			return err
		}
	}
	return nil
}

// scatterTree is gatherTree backwards.
func (c *Comm) scatterTree(ctx context.Context, in, out []byte, root int) error {
	v, n := c.from(root), len(out)
	mine := scratch[byte](c, 0, c.size*n)
	mask := 1
	for mask < c.size && v&mask == 0 {
		mask *= 2
	}
	if v == 0 {
		for i := range c.size {
			copy(mine[i*n:(i+1)*n], in[c.at(root, i)*n:])
		}
	} else if err := c.get(ctx, c.at(root, v-mask), mine[:min(mask, c.size-v)*n]); err != nil {
		return err
	}
	for mask /= 2; mask > 0; mask /= 2 {
		if v+mask < c.size {
			if err := c.put(c.at(root, v+mask), mine[mask*n:min(2*mask, c.size-v)*n]); err != nil {
				return err
			}
		}
	}
	copy(out, mine[:n])
	return nil
}

// Scatterv is Scatter of slices of different lengths: out of rank i has the length of in[i].
func Scatterv[T Number](ctx context.Context, c *Comm, in [][]T, out []T, root int) error {
	if err := c.enter(KindScatterv, elemType[T](), -1, root, 0); err != nil {
		return err
	}
	return c.leave(ctx, scatterv(ctx, c, in, out, root))
}

func scatterv[T Number](ctx context.Context, c *Comm, in [][]T, out []T, root int) error {
	if c.rank != root {
		return c.get(ctx, root, bytesOf(out))
	}
	err := lengths(KindScatterv, "in", len(in), c.size)
	if err == nil {
		err = lengths(KindScatterv, "out of the root", len(out), len(in[root]))
	}
	for i := 0; i < c.size && err == nil; i++ {
		if i == root {
			copy(out, in[i])
		} else {
			err = c.put(i, bytesOf(in[i]))
		}
	}
	return err
}

// Allgather brings in of rank i to block i of out at all ranks.
func Allgather[T Number](ctx context.Context, c *Comm, in, out []T) error {
	a := c.choose(KindAllgather, len(bytesOf(in)), len(in))
	if err := c.enter(KindAllgather, elemType[T](), len(in), -1, a); err != nil {
		return err
	}
	return c.leave(ctx, allgather(ctx, c, in, out, a))
}

func allgather[T Number](ctx context.Context, c *Comm, in, out []T, a Algorithm) error {
	if err := lengths(KindAllgather, "out", len(out), c.size*len(in)); err != nil {
		return err
	}
	return c.allgather(ctx, bytesOf(in), bytesOf(out), a)
}

func (c *Comm) allgather(ctx context.Context, in, out []byte, a Algorithm) error {
	n := len(in)
	if a == Bruck {
		return c.allgatherBruck(ctx, in, out)
	}
	copy(out[c.rank*n:], in)
	return c.ring(ctx, 0, func(i int) []byte { return out[i*n : (i+1)*n] })
}

// allgatherBruck doubles the number of blocks in each step: those of the ranks from this one
// on.
func (c *Comm) allgatherBruck(ctx context.Context, in, out []byte) error {
	n, p := len(in), c.size
	mine := scratch[byte](c, 0, p*n)
	copy(mine, in)
	for d := 1; d < p; d *= 2 {
		k := min(d, p-d)
		if err := c.swap(ctx, (c.rank-d+p)%p, mine[:k*n], (c.rank+d)%p, mine[d*n:(d+k)*n]); err != nil {
			return err
		}
	}
	for i := range p {
		copy(out[(c.rank+i)%p*n:], mine[i*n:(i+1)*n])
	}
	return nil
}

// Allgatherv is Allgather of slices of different lengths: out[i] has the length of in at rank i.
func Allgatherv[T Number](ctx context.Context, c *Comm, in []T, out [][]T) error {
	if err := c.enter(KindAllgatherv, elemType[T](), -1, -1, 0); err != nil {
		return err
	}
	return c.leave(ctx, allgatherv(ctx, c, in, out))
}

func allgatherv[T Number](ctx context.Context, c *Comm, in []T, out [][]T) error {
	err := lengths(KindAllgatherv, "out", len(out), c.size)
	if err == nil {
		err = lengths(KindAllgatherv, "out of this rank", len(out[c.rank]), len(in))
	}
	if err != nil {
		return err
	}
	copy(out[c.rank], in)
	return c.ring(ctx, 0, func(i int) []byte { return bytesOf(out[i]) })
}

// Alltoall brings block i of in at rank k to block k of out at rank i. in and out are different
// slices.
func Alltoall[T Number](ctx context.Context, c *Comm, in, out []T) error {
	count := len(in) / c.size
	a := c.choose(KindAlltoall, len(bytesOf(in))/c.size, count)
	if err := c.enter(KindAlltoall, elemType[T](), count, -1, a); err != nil {
		return err
	}
	return c.leave(ctx, alltoall(ctx, c, in, out, a))
}

func alltoall[T Number](ctx context.Context, c *Comm, in, out []T, a Algorithm) error {
	count := len(in) / c.size
	err := lengths(KindAlltoall, "in", len(in), c.size*count)
	if err == nil {
		err = lengths(KindAlltoall, "out", len(out), len(in))
	}
	if err != nil {
		return err
	}
	block := func(v []T, i int) []byte { return bytesOf(v[i*count : (i+1)*count]) }
	if a == Linear {
		return c.alltoallFlat(ctx, func(i int) []byte { return block(in, i) }, func(i int) []byte { return block(out, i) })
	}
	return c.alltoallPairs(ctx, func(i int) []byte { return block(in, i) }, func(i int) []byte { return block(out, i) })
}

// Alltoallv is Alltoall of slices of different lengths: out[k] at rank i has the length of in[i]
// at rank k.
func Alltoallv[T Number](ctx context.Context, c *Comm, in, out [][]T) error {
	if err := c.enter(KindAlltoallv, elemType[T](), -1, -1, 0); err != nil {
		return err
	}
	return c.leave(ctx, alltoallv(ctx, c, in, out))
}

func alltoallv[T Number](ctx context.Context, c *Comm, in, out [][]T) error {
	err := lengths(KindAlltoallv, "in", len(in), c.size)
	if err == nil {
		err = lengths(KindAlltoallv, "out", len(out), c.size)
	}
	if err == nil {
		err = lengths(KindAlltoallv, "out of this rank", len(out[c.rank]), len(in[c.rank]))
	}
	if err != nil {
		return err
	}
	return c.alltoallFlat(ctx, func(i int) []byte { return bytesOf(in[i]) }, func(i int) []byte { return bytesOf(out[i]) })
}

// alltoallPairs exchanges with one rank at a time.
func (c *Comm) alltoallPairs(ctx context.Context, in, out func(int) []byte) error {
	p := c.size
	copy(out(c.rank), in(c.rank))
	for d := 1; d < p; d++ {
		to, from := (c.rank+d)%p, (c.rank+p-d)%p
		if err := c.swap(ctx, to, in(to), from, out(from)); err != nil {
			return err
		}
	}
	return nil
}

// alltoallFlat begins all receives and sends at once.
func (c *Comm) alltoallFlat(ctx context.Context, in, out func(int) []byte) error {
	p := c.size
	for i := range p {
		if c.pieces(in(i)) > 1 || c.pieces(out(i)) > 1 {
			return c.alltoallPairs(ctx, in, out)
		}
	}
	copy(out(c.rank), in(c.rank))
	for d := 1; d < p; d++ {
		from := (c.rank + p - d) % p
		if err := c.await(from, out(from)); err != nil {
			return err
		}
	}
	for d := 1; d < p; d++ {
		to := (c.rank + d) % p
		if err := c.put(to, in(to)); err != nil {
			return err
		}
	}
	for d := 1; d < p; d++ {
		if err := c.awaited(ctx, out((c.rank+p-d)%p)); err != nil {
			return err
		}
	}
	return nil
}
