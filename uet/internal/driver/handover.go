package driver

import (
	"sync"
	"sync/atomic"
)

// A handover is a lock whose contenders leave work behind instead of waiting
// (docs/architecture.md#who-drives-a-fep). The work itself lies in a queue of the owner's;
// the handover holds the lock and one flag, "there is work".
//
// Three rules, and no other order of them is right (the model in
// handover_test.go finds lost work in each other one):
//
//   - A caller puts its work into the queue, then sets the flag, then tries the
//     lock: offer.
//   - A holder clears the flag, then empties the queue: take, then the owner's
//     loop.
//   - A holder lets go of the lock, then looks at the flag, and if it is set
//     tries the lock again: release. If that fails, somebody else holds the
//     lock and has not yet let go of it, so will look at the flag after us.
//
// The zero handover is free.
type handover struct {
	mu   sync.Mutex
	work atomic.Bool
}

// try takes the lock if it is free and reports whether it did.
func (h *handover) try() bool { return h.mu.TryLock() }

// lock waits for the lock. The holder must release like any other.
func (h *handover) lock() { h.mu.Lock() }

// offer says that work was put into the queue. It reports whether the caller
// now holds the lock and must do the work itself; otherwise the holder will.
func (h *handover) offer() bool {
	h.work.Store(true)
	return h.mu.TryLock()
}

// take reports whether work was offered and clears the flag. Only the holder
// calls it, before it empties the queue.
func (h *handover) take() bool {
	if !h.work.Load() {
		return false
	}
	h.work.Store(false)
	return true
}

// release lets go of the lock. It reports whether the caller holds the lock
// again because work was offered in the meantime; it must then take that work
// and release again.
func (h *handover) release() bool {
	h.free()
	return h.left() && h.try()
}

// free, left and try are the steps of release, for a caller on whose way every
// call counts.
func (h *handover) free()      { h.mu.Unlock() }
func (h *handover) left() bool { return h.work.Load() }
