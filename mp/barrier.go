package mp

import "context"

// Barrier returns when all ranks of the communicator have called it.
func (c *Comm) Barrier(ctx context.Context) error {
	if err := c.enter(KindBarrier, elemNone, 0, -1, c.choose(KindBarrier, 0, 0)); err != nil {
		return err
	}
	return c.leave(ctx, c.barrier(ctx))
}

// barrier is by dissemination: in step k each rank hears from the one that is 2^k before it,
// so after log2 of the size each has heard of all.
func (c *Comm) barrier(ctx context.Context) error {
	for d := 1; d < c.size; d *= 2 {
		if err := c.swap(ctx, (c.rank+d)%c.size, nil, (c.rank+c.size-d)%c.size, nil); err != nil {
			return err
		}
	}
	return nil
}

// choose picks the algorithm of a collective.
func (c *Comm) choose(k Kind, bytes, count int) Algorithm {
	return c.w.cfg.Choose(Call{Kind: k, Ranks: c.size, Bytes: bytes, Count: count, OneHost: c.w.oneHost})
}
