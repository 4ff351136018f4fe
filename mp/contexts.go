package mp

import "math/bits"

// maxComms is how many communicators a process can be in at a time.
const maxComms = 2048

// contexts are the numbers that communicators have in tags. A number is free for a new
// communicator if it is free at all of its ranks.
type contexts struct {
	free [maxComms / 64]uint64
	// waiting are the communicators on which a number is being agreed upon. One at a time, that
	// with the lowest number first, offers the free ones; the others offer none and try again.
	// So two at once never agree on the same.
	waiting map[uint32]bool
	owner   uint32
	owned   bool
}

// An offer is what a rank brings to the agreement: the numbers that are free, and in the last
// word 1 if it could offer any.
type offer [maxComms/64 + 1]uint64

func (x *contexts) init() {
	for i := range x.free {
		x.free[i] = ^uint64(0)
	}
	x.free[0] &^= 1 // the world
	x.waiting = map[uint32]bool{}
}

// offer begins an agreement on a communicator.
func (x *contexts) offer(of uint32) (o offer) {
	x.waiting[of] = true
	for id := range x.waiting {
		if id < of {
			return o
		}
	}
	if x.owned {
		return o
	}
	x.owned, x.owner = true, of
	copy(o[:], x.free[:])
	o[len(o)-1] = 1
	return o
}

// take ends an agreement with what all offered. again says that not all could offer; without it
// and without ok no number is free everywhere.
func (x *contexts) take(of uint32, o *offer) (id uint32, ok, again bool) {
	if x.owned && x.owner == of {
		x.owned = false
	}
	if o[len(o)-1] == 0 {
		return 0, false, true
	}
	delete(x.waiting, of)
	for i, v := range o[:len(o)-1] {
		if v != 0 {
			k := bits.TrailingZeros64(v)
			x.free[i] &^= 1 << k
			return uint32(i*64 + k), true, false
		}
	}
	return 0, false, false
}

// leave ends an agreement that failed.
func (x *contexts) leave(of uint32) {
	if x.owned && x.owner == of {
		x.owned = false
	}
	delete(x.waiting, of)
}

func (x *contexts) give(id uint32) { x.free[id/64] |= 1 << (id % 64) }
