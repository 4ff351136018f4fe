package uet

import (
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

func init() {
	door.Network = func(cfg, network any) { cfg.(*Config).network = network.(udp.Network) }
}

// A paced driver is that of an endpoint on a network in memory, where time may be virtual: it
// goes on when all goroutines sleep (testing/synctest). So a blocked reader does not poll, and
// whoever polls in a loop sleeps a little between polls that found nothing. It is not on the
// path of endpoints with sockets.
type paced struct {
	*driver.Driver
	idle atomic.Int32
}

var _ door.Progress = (*paced)(nil)

// Every pollsPerNap-th poll in a row that finds nothing sleeps for pollNap. Arbitrary: polls of
// a socket take about as long.
const (
	pollsPerNap = 16
	pollNap     = 5 * time.Microsecond
)

// Poll makes progress, or sleeps a little. It is called without locks.
func (p *paced) Poll() bool {
	worked := p.Driver.Poll()
	switch {
	case worked:
		p.idle.Store(0)
	case p.idle.Add(1)%pollsPerNap == 0:
		time.Sleep(pollNap)
	}
	return worked
}

// Yield does nothing: no other thread is in question.
func (p *paced) Yield() {}

// Shared says that a reader may look at once.
func (p *paced) Shared() bool { return false }

// Crowded says that a reader had better sleep than poll.
func (p *paced) Crowded() bool { return true }

// progress is what queues, counters and posts drive.
func (ep *Endpoint) progress() door.Progress {
	if ep.paced != nil {
		return ep.paced
	}
	return ep.drv
}
