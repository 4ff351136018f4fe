package mptest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/memnet"
	"github.com/uetkit/uetkit/mp"
)

// A Net is a network in memory. The zero Net has no faults.
type Net struct {
	// Seed draws what happens to the packets of each direction between two ranks: the k-th has the
	// same fate in every run. Which packet is the k-th depends on the order in which
	// goroutines run.
	Seed uint64
	// Delay is the time of a packet from end to end. 0: 10 µs.
	Delay time.Duration
	// Loss, Duplicate and Reorder are shares of the packets, 0 to 1: lost, come twice, come later
	// than others that were sent after them, by up to ten times Delay.
	Loss, Duplicate, Reorder float64
	// MTU, if not 0, is the longest IP packet in bytes that gets from rank to rank, while the ranks believe that
	// the path carries a payload of 8192 bytes: longer ones are lost without a word, from HoleAfter on. With Refused
	// the system refuses to send them, from the beginning.
	MTU       int
	HoleAfter time.Duration
	Refused   bool
	// Limit is how much time the ranks may take, in virtual time; then their worlds are closed
	// and the test fails. 0: 10 minutes.
	Limit time.Duration
}

func (n Net) String() string {
	return fmt.Sprintf("mptest.Net{Seed: %d, Delay: %d, Loss: %v, Duplicate: %v, Reorder: %v, MTU: %d, HoleAfter: %d, Refused: %v}",
		n.Seed, n.Delay, n.Loss, n.Duplicate, n.Reorder, n.MTU, n.HoleAfter, n.Refused)
}

// open makes the network.
func (n Net) open() (*memnet.Network, error) {
	if n.Delay == 0 {
		n.Delay = 10 * time.Microsecond
	}
	cfg := memnet.Config{Seed: n.Seed, Delay: n.Delay, Faults: badnet.Faults{Loss: n.Loss, Duplicate: n.Duplicate, DuplicateLate: 10 * n.Delay}}
	if n.Reorder > 0 {
		cfg.Faults.Late, cfg.Faults.Delay, cfg.Faults.Jitter = n.Reorder, 1, 10*n.Delay
	}
	if n.Refused {
		cfg.MTU = n.MTU
	} else {
		cfg.Hole, cfg.HoleAfter = n.MTU, n.HoleAfter
	}
	return memnet.New(cfg), cfg.Faults.Check()
}

// Memory puts the ranks on a network in memory in place of the loopback interface: everything
// above the sockets is as it is in a program. Inside a bubble of testing/synctest time is
// virtual: waits and resends take no time, and goroutines go on until all of them wait.
func Memory(n Net) Option {
	return func(m *meeting) { m.memory = &n }
}

// Absent adds ranks to the world that never come: the last ones. Nobody may speak to them. It is for
// tests of what large worlds cost.
func Absent(ranks int) Option {
	return func(m *meeting) { m.absent = ranks }
}

// RunVirtual is Run on a network in memory and in virtual time. It runs f in a bubble of testing/synctest: f
// must not use channels, timers and contexts with ends from outside. A test that needs more, settings
// for instance, calls synctest.Test itself, and RunWith or Worlds with Memory in it.
func RunVirtual(t *testing.T, n int, net Net, f func(c *mp.Comm)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { RunWith(t, n, mp.Config{}, f, Memory(net)) })
}

// watch closes the worlds of ranks that take too long, until the function that it returns is
// called.
func (m *meeting) watch(t testing.TB, worlds []*mp.World) (stop func()) {
	if m.memory == nil {
		return func() {}
	}
	limit := cmp.Or(m.memory.Limit, 10*time.Minute)
	closed := make(chan struct{})
	late := time.AfterFunc(limit, func() {
		defer close(closed)
		t.Errorf("mptest: the ranks have not ended after %v", limit)
		for _, w := range worlds {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = w.Close(ctx)
			cancel()
		}
	})
	return func() {
		if !late.Stop() {
			<-closed
		}
	}
}

// join lets a rank use the network in memory. Each rank has an address of its own, so that what
// the seed draws for it does not depend on who comes first.
func (m *meeting) join(k *mp.Config, rank int) {
	k.Address = netip.AddrFrom4([4]byte{127, 1, byte(rank >> 8), byte(rank)}).String()
	if k.Endpoint.PayloadMTU == 0 {
		k.Endpoint.PayloadMTU = 1024 // as on Ethernet, so that a long message has many packets to lose
		if m.memory.MTU != 0 {
			k.Endpoint.PayloadMTU = 8192
		}
	}
	door.Network(&k.Endpoint, m.mem)
}
