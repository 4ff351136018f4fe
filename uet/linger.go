package uet

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/uetkit/uetkit/uet/internal/driver"
)

// defaultLinger is the default of Tuning.Linger.
const defaultLinger = time.Second

// leastLinger is how long the last endpoint of a port lingers whose time the others have taken: long enough to tell peers
// what arrived. Arbitrary.
const leastLinger = time.Millisecond

// linger waits for what Close waits for, which began to wait at begun.
func (ep *Endpoint) linger(begun time.Time) {
	m := &ep.domain.manual
	m.remove(ep.drv)
	most := cmp.Or(ep.info.Config.Tuning.Linger, defaultLinger)
	if most <= 0 {
		return
	}
	var others func()
	if m.some() {
		others = m.poll
	}
	ep.drv.Leave(max(most-time.Since(begun), leastLinger), most, others)
}

// manual holds the drivers of a domain that nobody drives while the application does not. Who
// waits in Close drives them: they may be closed next, and the peers of both may wait for each
// other.
type manual struct {
	mu      sync.Mutex
	drivers map[*driver.Driver]struct{}
}

func (m *manual) add(d *driver.Driver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drivers == nil {
		m.drivers = map[*driver.Driver]struct{}{}
	}
	m.drivers[d] = struct{}{}
}

func (m *manual) remove(d *driver.Driver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.drivers, d)
}

// some reports whether there are any.
func (m *manual) some() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.drivers) > 0
}

// poll takes a turn of each driver.
func (m *manual) poll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := range m.drivers {
		d.Poll()
	}
}

// Flush waits until every message that was posted before is delivered or has failed, injected
// ones too, and lets the ACKs leave that are owed to peers. A program that ends without Close
// calls it last: what waits in an endpoint is lost with the process. Failures are in the
// completion queues, as always. Flush also makes progress.
//
// It returns the error of ctx if that ends first. fi.EOPBADSTATE: the endpoint is not enabled.
// fi.EBADF: it is closed.
func (ep *Endpoint) Flush(ctx context.Context) error {
	const least, most = 20 * time.Microsecond, time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := least; ; wait = min(2*wait, most) {
		if err := ep.flushable(); err != nil {
			return err
		}
		if ep.flushed() {
			return nil
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// flushable returns why Flush cannot wait, nil if it can.
func (ep *Endpoint) flushable() error {
	switch ep.state.Load() {
	case stateNew:
		if ep.domain == nil {
			return errUnopened
		}
		return errNotEnabled
	case stateClosed:
		return errClosed
	}
	return nil
}
