package mp

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// Undefined is the color of a rank that joins none of the communicators of a Split.
const Undefined = -1

// Split makes a communicator of the ranks with the same color, numbered by key and then by
// rank. It returns nil for the color Undefined. All ranks of the communicator call it.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if err := c.enter(KindSplit, elemNone, 0, -1, 0); err != nil {
		return nil, err
	}
	if color < Undefined {
		return nil, c.leave(ctx, &ErrArg{"Split", "color", color, "negative and not Undefined"})
	}
	n, err := c.split(ctx, color, key)
	if err = c.leave(ctx, err); err != nil {
		return nil, err
	}
	return n, nil
}

// Dup makes a communicator of the same ranks.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	if err := c.enter(KindSplit, elemNone, 1, -1, 0); err != nil {
		return nil, err
	}
	n, err := c.split(ctx, 0, c.rank)
	if err = c.leave(ctx, err); err != nil {
		return nil, err
	}
	return n, nil
}

func (c *Comm) split(ctx context.Context, color, key int) (*Comm, error) {
	const size = 16
	mine := binary.LittleEndian.AppendUint64(nil, uint64(int64(color)))
	mine = binary.LittleEndian.AppendUint64(mine, uint64(int64(key)))
	all := make([]byte, size*c.size)
	if err := c.allgather(ctx, mine, all, Bruck); err != nil {
		return nil, err
	}
	id, err := c.agree(ctx)
	if err != nil || color == Undefined {
		if err == nil {
			c.w.mu.Lock()
			c.w.ids.give(id)
			c.w.mu.Unlock()
		}
		return nil, err
	}
	type member struct{ key, rank int }
	var group []member
	for i := range c.size {
		b := all[i*size:]
		if int(int64(binary.LittleEndian.Uint64(b))) == color {
			group = append(group, member{int(int64(binary.LittleEndian.Uint64(b[8:]))), i})
		}
	}
	slices.SortStableFunc(group, func(a, b member) int {
		if a.key != b.key {
			if a.key < b.key {
				return -1
			}
			return 1
		}
		return a.rank - b.rank
	})
	ranks, rank := make([]int32, len(group)), 0
	for i, m := range group {
		ranks[i] = c.global(m.rank)
		if m.rank == c.rank {
			rank = i
		}
	}
	return c.w.newComm(id, ranks, rank), nil
}

// agree finds a number that is free at all ranks. The groups of one Split may have the same: no
// rank is in two of them.
func (c *Comm) agree(ctx context.Context) (uint32, error) {
	w := c.w
	for {
		w.mu.Lock()
		o := w.ids.offer(c.id)
		w.mu.Unlock()
		err := allreduce(ctx, c, o[:], And[uint64], RecursiveDoubling)
		w.mu.Lock()
		if err != nil {
			w.ids.leave(c.id)
			w.mu.Unlock()
			return 0, err
		}
		id, ok, again := w.ids.take(c.id, &o)
		w.mu.Unlock()
		switch {
		case ok:
			return id, nil
		case !again:
			return 0, &ErrArg{"Split", "communicators", maxComms, fmt.Sprintf("rank %d or another has that many", c.rank)}
		}
	}
}
