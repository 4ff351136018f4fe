package driver

import (
	"sync"
	"time"

	"github.com/uetkit/uetkit/transport/dgram"
)

// A Driver that has nothing to do holds no buffers: thousands of idle endpoints share
// a few (docs/perf.md, bar S3).

const (
	// restAfter is how long a Driver has nothing to do before it gives its buffers
	// away. Arbitrary; taking one again costs 30 ns.
	restAfter = 100 * time.Millisecond
	// spareMax is how many nobody has are kept, 64 KiB each.
	spareMax = 64
)

// slabs are buffers that nobody has.
type slabs struct {
	mu   sync.Mutex // guards free
	free []*dgram.Datagram
}

var spare slabs

// get returns a Datagram with SlabLen bytes of room. Who fills it resets it first.
func (s *slabs) get() *dgram.Datagram {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		d := s.free[n-1]
		s.free[n-1], s.free = nil, s.free[:n-1]
		return d
	}
	return &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
}

// put takes d.
func (s *slabs) put(d *dgram.Datagram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < spareMax {
		s.free = append(s.free, d)
	}
}

// rest gives the buffers away that hold nothing.
func (d *Driver) rest() {
	if d.rx != nil {
		spare.put(d.rx)
		d.rx = nil
	}
	if len(d.unsent) > 0 {
		return
	}
	for i, t := range d.tx {
		if t == nil {
			break
		}
		spare.put(t)
		d.tx[i] = nil
	}
}
