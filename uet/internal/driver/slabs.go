package driver

import (
	"sync"

	"github.com/uetkit/uetkit/internal/dgram"
)

// spareMax is the most spare slabs, of 64 KiB each, that are kept.
const spareMax = 64

// sharedSlabs are the slabs of all Drivers. A Driver at rest has none, so thousands of idle
// endpoints share a few (docs/perf.md, bar S3).
type sharedSlabs struct {
	mu   sync.Mutex // guards pool
	pool dgram.Pool
}

var slabs = sharedSlabs{pool: dgram.Pool{Most: spareMax}}

// get returns an empty slab.
func (s *sharedSlabs) get() *dgram.Datagram {
	s.mu.Lock()
	d := s.pool.Get()
	s.mu.Unlock()
	return d
}

// put takes back a slab that get returned.
func (s *sharedSlabs) put(d *dgram.Datagram) {
	s.mu.Lock()
	s.pool.Put(d)
	s.mu.Unlock()
}
