package perf

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Resources are what a process holds, after it has given back what it does not
// need. -1: this system does not tell.
type Resources struct {
	RSS        int64 `json:"rss"`  // bytes
	Heap       int64 `json:"heap"` // bytes in use
	Goroutines int64 `json:"goroutines"`
	FDs        int64 `json:"fds"`
}

// Own are those of this process. It collects garbage.
func Own() Resources {
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

// ownEvery is how often a server looks for those who ask.
const ownEvery = 100 * time.Millisecond

// resources keeps a server from collecting garbage whenever somebody asks.
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

// Resources asks the server for its resources. There must be no run.
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
