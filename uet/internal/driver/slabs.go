package driver

import (
	"sync"

	"github.com/uetkit/uetkit/internal/dgram"
)

// spareMax is how many slabs are kept that no Driver has, 64 KiB each.
const spareMax = 64

// sharedSlabs are the slabs of all Drivers. One that rests holds none: thousands of idle
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

// put gives back what get returned.
func (s *sharedSlabs) put(d *dgram.Datagram) {
	s.mu.Lock()
	s.pool.Put(d)
	s.mu.Unlock()
}
