package perf

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Resources are what a process uses, after it returned unused memory to the system. -1
// means that this system does not tell.
type Resources struct {
	RSS        int64 `json:"rss"`  // bytes
	Heap       int64 `json:"heap"` // bytes in use
	Goroutines int64 `json:"goroutines"`
	FDs        int64 `json:"fds"`
}

// Own returns the resources of this process. It collects garbage twice: what a sync.Pool holds outlives
// the first time.
func Own() Resources {
	runtime.GC()
	debug.FreeOSMemory()
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	r := Resources{Heap: -1, Goroutines: int64(runtime.NumGoroutine())}
	if s[0].Value.Kind() == metrics.KindUint64 {
		r.Heap = int64(s[0].Value.Uint64())
	}
	r.RSS, r.FDs = resident(), descriptors()
	return r
}

// ownEvery is the least time between two measurements of a server's resources.
const ownEvery = 100 * time.Millisecond

// resources caches a measurement, so that many requests do not make a server collect
// garbage all the time.
type resources struct {
	mu   sync.Mutex
	last Resources
	at   time.Time
}

func (r *resources) get() Resources {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.at.IsZero() || now.Sub(r.at) >= ownEvery {
		r.last, r.at = Own(), now
	}
	return r.last
}

// Resources asks the server for its resources. No run may be under way.
func (c *Client) Resources(ctx context.Context) (Resources, error) {
	if err := c.send(&message{Type: mResources}); err != nil {
		return Resources{}, err
	}
	m, err := c.await(ctx, c.cfg.Timeout, mResources)
	if err != nil {
		return Resources{}, c.reason(err)
	}
	if m.Resources == nil {
		return Resources{}, nil
	}
	return *m.Resources, nil
}
