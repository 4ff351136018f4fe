package mp

import (
	"context"
	"errors"
	"slices"
)

// Nonblocking collectives
//
// Each begins a collective and returns a Request, whose Wait, Test and relatives tell when it is
// over at this rank. Buffers are the operation's until then. All ranks begin those of a
// communicator in the same order, and blocking ones in the same place among them; several may be under
// way, and they may be waited for in any order. A goroutine does the steps, so they go on
// while the program computes.

// spares is how many communicators of ended collectives are kept, for the memory that they have.
const spares = 4

// fork begins a nonblocking collective. It returns the communicator on which its steps are
// done: the same ranks, with messages of their own.
func (c *Comm) fork(kind Kind, t elem, count, root int, a Algorithm) (*Comm, error) {
	if err := c.begin(4, kind, t, count, root, a, true); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	k := &c.coll
	k.mu.Lock()
	defer k.mu.Unlock()
	var s *Comm
	if n := len(k.idle); n > 0 {
		s, k.idle = k.idle[n-1], k.idle[:n-1]
	} else {
		s = &Comm{w: c.w, id: c.id, rank: c.rank, size: c.size, ranks: c.ranks, broken: c.broken}
	}
	s.mu.Lock() // until leave
	s.stream = 1 + k.begun%MaxTag
	k.begun++
	s.coll.mu.Lock()
	s.coll.seq, s.coll.mark = k.seq, k.mark
	*s.head() = *c.head()
	s.coll.mu.Unlock()
	return s, nil
}

// aside does the steps of a collective, f, on the communicator that fork made.
func (c *Comm) aside(s *Comm, f func(context.Context) error) (Request, error) {
	w := c.w
	w.mu.Lock()
	if w.closed.Load() {
		w.mu.Unlock()
		return Request{}, ErrClosed
	}
	w.aside.Add(1)
	w.mu.Unlock()
	ctx, stop := context.WithCancelCause(context.Background())
	r := w.newRequest(0)
	r.kind, r.c, r.peer, r.stop, r.status = opColl, c, AnySource, stop, Status{}
	q := r.handle()
	go func() {
		defer w.aside.Done()
		err := f(ctx)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		err = s.leave(ctx, err)
		stop(nil)
		c.ended(s)
		r.finish(err)
	}()
	return q, nil
}

// ended keeps the communicator of a collective that has ended for the next one.
func (c *Comm) ended(s *Comm) {
	k := &c.coll
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away += s.coll.parts
	s.coll.parts = 0
	if len(k.idle) < spares {
		k.idle = append(k.idle, s)
	}
}

// watch waits until a nonblocking collective is over, or ctx ends. Its goroutine drives the
// endpoint, if nobody else does.
func (r *request) watch(ctx context.Context) error {
	w := r.w
	w.mu.Lock()
	wt := w.waiter()
	w.mu.Unlock()
	r.waiter.Store(wt)
	var err error
	for err == nil && !r.done.Load() {
		select {
		case <-wt.ch:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	r.waiter.Store(nil)
	w.mu.Lock()
	w.spared(wt)
	w.mu.Unlock()
	return err
}

// Ibarrier begins a Barrier (MPI_Ibarrier).
func (c *Comm) Ibarrier() (Request, error) {
	s, err := c.fork(KindBarrier, elemNone, 0, -1, c.choose(KindBarrier, 0, 0))
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, s.barrier)
}

// Ibcast begins a Bcast (MPI_Ibcast).
func Ibcast[T Number](c *Comm, v []T, root int) (Request, error) {
	a := c.choose(KindBcast, len(bytesOf(v)), len(v))
	s, err := c.fork(KindBcast, elemType[T](), len(v), root, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return s.bcast(ctx, bytesOf(v), root, a) })
}

// Ireduce begins a Reduce (MPI_Ireduce).
func Ireduce[T Number](c *Comm, in, out []T, op Op[T], root int, opts ...Option) (Request, error) {
	a := c.chooseReduction(KindReduce, len(bytesOf(in)), len(in), opts)
	ordered := slices.Contains(opts, InOrder)
	s, err := c.fork(KindReduce, elemType[T](), len(in), root, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return reduce(ctx, s, in, out, op, root, a, ordered) })
}

// Iallreduce begins an Allreduce (MPI_Iallreduce).
func Iallreduce[T Number](c *Comm, in, out []T, op Op[T], opts ...Option) (Request, error) {
	a := c.chooseReduction(KindAllreduce, len(bytesOf(in)), len(in), opts)
	s, err := c.fork(KindAllreduce, elemType[T](), len(in), -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return allreduceInto(ctx, s, in, out, op, a) })
}

// IreduceScatter begins a ReduceScatter (MPI_Ireduce_scatter_block).
func IreduceScatter[T Number](c *Comm, in, out []T, op Op[T], opts ...Option) (Request, error) {
	a := c.chooseReduction(KindReduceScatter, len(bytesOf(out)), len(out), opts)
	s, err := c.fork(KindReduceScatter, elemType[T](), len(out), -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return reduceScatter(ctx, s, in, out, op, a) })
}

// Iscan begins a Scan (MPI_Iscan).
func Iscan[T Number](c *Comm, in, out []T, op Op[T]) (Request, error) {
	a := c.choose(KindScan, len(bytesOf(in)), len(in))
	s, err := c.fork(KindScan, elemType[T](), len(in), -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return scan(ctx, s, in, out, op) })
}

// Iexscan begins an Exscan (MPI_Iexscan).
func Iexscan[T Number](c *Comm, in, out []T, op Op[T]) (Request, error) {
	a := c.choose(KindExscan, len(bytesOf(in)), len(in))
	s, err := c.fork(KindExscan, elemType[T](), len(in), -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return exscan(ctx, s, in, out, op) })
}

// Igather begins a Gather (MPI_Igather).
func Igather[T Number](c *Comm, in, out []T, root int) (Request, error) {
	a := c.choose(KindGather, len(bytesOf(in)), len(in))
	s, err := c.fork(KindGather, elemType[T](), len(in), root, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return gather(ctx, s, in, out, root, a) })
}

// Iscatter begins a Scatter (MPI_Iscatter).
func Iscatter[T Number](c *Comm, in, out []T, root int) (Request, error) {
	a := c.choose(KindScatter, len(bytesOf(out)), len(out))
	s, err := c.fork(KindScatter, elemType[T](), len(out), root, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return scatter(ctx, s, in, out, root, a) })
}

// Iallgather begins an Allgather (MPI_Iallgather).
func Iallgather[T Number](c *Comm, in, out []T) (Request, error) {
	a := c.choose(KindAllgather, len(bytesOf(in)), len(in))
	s, err := c.fork(KindAllgather, elemType[T](), len(in), -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return allgather(ctx, s, in, out, a) })
}

// Ialltoall begins an Alltoall (MPI_Ialltoall).
func Ialltoall[T Number](c *Comm, in, out []T) (Request, error) {
	count := len(in) / c.size
	a := c.choose(KindAlltoall, len(bytesOf(in))/c.size, count)
	s, err := c.fork(KindAlltoall, elemType[T](), count, -1, a)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return alltoall(ctx, s, in, out, a) })
}

// Igatherv begins a Gatherv (MPI_Igatherv).
func Igatherv[T Number](c *Comm, in []T, out [][]T, root int) (Request, error) {
	s, err := c.fork(KindGatherv, elemType[T](), -1, root, 0)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return gatherv(ctx, s, in, out, root) })
}

// Iscatterv begins a Scatterv (MPI_Iscatterv).
func Iscatterv[T Number](c *Comm, in [][]T, out []T, root int) (Request, error) {
	s, err := c.fork(KindScatterv, elemType[T](), -1, root, 0)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return scatterv(ctx, s, in, out, root) })
}

// Iallgatherv begins an Allgatherv (MPI_Iallgatherv).
func Iallgatherv[T Number](c *Comm, in []T, out [][]T) (Request, error) {
	s, err := c.fork(KindAllgatherv, elemType[T](), -1, -1, 0)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return allgatherv(ctx, s, in, out) })
}

// Ialltoallv begins an Alltoallv (MPI_Ialltoallv).
func Ialltoallv[T Number](c *Comm, in, out [][]T) (Request, error) {
	s, err := c.fork(KindAlltoallv, elemType[T](), -1, -1, 0)
	if err != nil {
		return Request{}, err
	}
	return c.aside(s, func(ctx context.Context) error { return alltoallv(ctx, s, in, out) })
}
