package mp

import "context"

// Bcast copies s of the root to s of all ranks.
func Bcast[T Number](ctx context.Context, c *Comm, s []T, root int) error {
	b := bytesOf(s)
	a := c.choose(KindBcast, len(b), len(s))
	if err := c.enter(KindBcast, elemType[T](), len(s), root, a); err != nil {
		return err
	}
	return c.leave(ctx, c.bcast(ctx, b, root, a))
}

func (c *Comm) bcast(ctx context.Context, b []byte, root int, a Algorithm) error {
	switch a {
	case ScatterAllgather:
		return c.bcastLong(ctx, b, root)
	case Chain:
		return c.bcastChain(ctx, b, root)
	}
	return c.bcastTree(ctx, b, root)
}

// segmentLen is how many bytes the algorithms that go in segments pass on at a time: a chain, and pairs in an
// Allreduce. Parts of 64 KiB would be copied (eagerMax): 1 MiB by a chain took 1.4 to 1.7 times as long. With
// 256 KiB neither was faster.
const segmentLen = 128 << 10

// segmentsOf is how many segments so many bytes take.
func segmentsOf(bytes int) int { return max(1, (bytes+segmentLen-1)/segmentLen) }

// chainAhead is how many segments a rank of a chain awaits at a time.
const chainAhead = 8

// bcastChain passes segments from rank to rank. It is not chosen by itself: ranks that share processors
// get behind their left neighbour, and then copy all. No rank has more to send than the message
// itself, and the last receives its first segment when the root sends about the Size-th.
func (c *Comm) bcastChain(ctx context.Context, b []byte, root int) error {
	v := c.from(root)
	left, right := c.at(root, v+c.size-1), c.at(root, v+1)
	segments := segmentsOf(len(b))
	segment := func(k int) []byte { return b[k*segmentLen : min((k+1)*segmentLen, len(b))] }
	next := 0
	for k := range segments {
		if v != 0 {
			for ; next < min(k+chainAhead, segments); next++ {
				if err := c.await(left, segment(next)); err != nil {
					return err
				}
			}
			if err := c.awaited(ctx, segment(k)); err != nil {
				return err
			}
		}
		if v != c.size-1 {
			if err := c.put(right, segment(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bcastTree is by a binomial tree: a rank gets the message from the one whose number, seen from
// the root, lacks its lowest bit, and passes it on to those that have one bit more below it.
func (c *Comm) bcastTree(ctx context.Context, b []byte, root int) error {
	v := c.from(root)
	mask := 1
	for mask < c.size && v&mask == 0 {
		mask *= 2
	}
	if v != 0 {
		if err := c.get(ctx, c.at(root, v-mask), b); err != nil {
			return err
		}
	}
	for mask /= 2; mask > 0; mask /= 2 {
		if v+mask < c.size {
			if err := c.put(c.at(root, v+mask), b); err != nil {
				return err
			}
		}
	}
	return nil
}

// bcastLong scatters the parts of the message by a binomial tree and lets them go round in a
// ring: each rank sends and receives the message about twice, the root too.
func (c *Comm) bcastLong(ctx context.Context, b []byte, root int) error {
	v, p := c.from(root), c.size
	mask := 1
	for mask < p && v&mask == 0 {
		mask *= 2
	}
	if v != 0 {
		if err := c.get(ctx, c.at(root, v-mask), spans(b, v, min(v+mask, p), p)); err != nil {
			return err
		}
	}
	for mask /= 2; mask > 0; mask /= 2 {
		if v+mask < p {
			if err := c.put(c.at(root, v+mask), spans(b, v+mask, min(v+2*mask, p), p)); err != nil {
				return err
			}
		}
	}
	if err := c.sent(ctx); err != nil { // the ring brings these parts once more
		return err
	}
	return c.ring(ctx, root, func(i int) []byte { return span(b, i, p) })
}

// ring passes blocks round until all ranks have all. Seen from the root, each begins with the
// block of its number.
func (c *Comm) ring(ctx context.Context, root int, block func(i int) []byte) error {
	v, p := c.from(root), c.size
	right, left := c.at(root, v+1), c.at(root, v+p-1)
	for s := range p - 1 {
		if err := c.swap(ctx, right, block((v+p-s)%p), left, block((v+2*p-s-1)%p)); err != nil {
			return err
		}
	}
	return nil
}

// from is this rank's number seen from the root, at the rank that has a number.
func (c *Comm) from(root int) int  { return (c.rank - root + c.size) % c.size }
func (c *Comm) at(root, v int) int { return (v + root) % c.size }
