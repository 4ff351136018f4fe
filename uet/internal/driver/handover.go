package driver

import (
	"sync"
	"sync/atomic"
)

// A handover is a lock whose contenders leave work behind instead of waiting
// (docs/architecture.md#who-drives-a-fep). The work itself lies in a queue of the owner.
// The handover has the lock and one flag, "there is work".
//
// Three rules keep work from being lost. The model in handover_test.go finds lost work in
// every other order:
//
//   - A caller puts its work into the queue, then sets the flag, then tries the lock: offer.
//   - A holder clears the flag, then empties the queue: take, then the owner's loop.
//   - A holder releases the lock, then looks at the flag, and tries the lock again if it is
//     set: release. If that fails, another holder has the lock and will look at the flag
//     after releasing it.
//
// The zero handover is free.
type handover struct {
	mu   sync.Mutex
	work atomic.Bool
}

// try takes the lock if it is free and reports whether it did.
func (h *handover) try() bool { return h.mu.TryLock() }

// lock waits for the lock. Its holder must call release, too.
func (h *handover) lock() { h.mu.Lock() }

// offer says that work was put into the queue. It reports whether the caller now holds the
// lock and must do the work itself. Otherwise the holder will do it.
func (h *handover) offer() bool {
	h.work.Store(true)
	return h.mu.TryLock()
}

// take clears the flag and reports whether it was set. Only the holder calls it, before it
// empties the queue.
func (h *handover) take() bool {
	if !h.work.Load() {
		return false
	}
	h.work.Store(false)
	return true
}

// release releases the lock. It reports whether the caller holds the lock again because
// work was offered meanwhile. The caller must then take that work and release again.
func (h *handover) release() bool {
	h.free()
	return h.left() && h.try()
}

// free, left and try are the steps of release, for callers on a path where each call
// counts.
func (h *handover) free()      { h.mu.Unlock() }
func (h *handover) left() bool { return h.work.Load() }
