package mp

import (
	"sync"
	"sync/atomic"
)

// A Comm is a communicator: some ranks of a world, numbered from 0, and messages that no other
// communicator gets.
type Comm struct {
	w     *World
	id    uint32
	rank  int
	size  int
	ranks []int32 // in the world; nil: the same
	freed atomic.Bool
	// broken is why collectives are not possible any more. What is under way of the
	// communicator shares it.
	broken *atomic.Pointer[error]
	// stream is the tag of the messages of collectives: 0, or the number of a nonblocking one.
	stream int

	mu   sync.Mutex // held during a collective
	coll coll
}

// newComm makes a communicator and lets the world find it.
func (w *World) newComm(id uint32, ranks []int32, rank int) *Comm {
	c := &Comm{w: w, id: id, rank: rank, size: w.size, ranks: ranks, broken: new(atomic.Pointer[error])}
	if ranks != nil {
		c.size = len(ranks)
	}
	w.mu.Lock()
	w.comms[id] = c
	w.mu.Unlock()
	return c
}

// Rank is this process's rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of its ranks.
func (c *Comm) Size() int { return c.size }

// WorldRank is the rank in the world of a rank of the communicator.
func (c *Comm) WorldRank(rank int) (int, error) {
	if rank < 0 || rank >= c.size {
		return 0, c.badRank("WorldRank", rank)
	}
	return int(c.global(rank)), nil
}

func (c *Comm) global(rank int) int32 {
	if c.ranks == nil {
		return int32(rank)
	}
	return c.ranks[rank]
}

// has reports whether a rank of the world is a member.
func (c *Comm) has(world int32) bool {
	if c.ranks == nil {
		return true
	}
	for _, r := range c.ranks {
		if r == world {
			return true
		}
	}
	return false
}

func (c *Comm) usable() error {
	switch {
	case c.w.closed.Load():
		return ErrClosed
	case c.freed.Load():
		return ErrFreed
	}
	return nil
}

// Free ends the communicator at this rank. All its ranks call it, when what was sent on it has
// been received. The communicator of the world cannot be freed.
func (c *Comm) Free() error {
	if c.id == 0 {
		return &ErrArg{"Free", "communicator", "World", "it ends with the world"}
	}
	if c.freed.Swap(true) {
		return ErrFreed
	}
	w := c.w
	w.mu.Lock()
	delete(w.comms, c.id)
	if c.broken.Load() == nil {
		w.ids.give(c.id) // of a broken one there may be messages on their way
	}
	w.mu.Unlock()
	return nil
}
