// Package mptest makes worlds of ranks inside one test process.
package mptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/memnet"
	"github.com/uetkit/uetkit/mp"
)

// An Option changes the network between the ranks.
type Option func(*meeting)

// Loss loses a share of the packets, 0 to 1, between each two ranks, as a seed says: packets go
// through relays. It is for ranks without Config.Endpoint.Security, which have no checksum on
// loopback addresses.
func Loss(share float64, seed uint64) Option {
	return func(m *meeting) { m.net = newLossy(share, seed) }
}

// Run makes a world of n ranks over the loopback interface and calls f for each, in a goroutine
// of its own. It returns when all have returned and the world is closed. A panic or a FailNow
// of one rank fails the test; the others then find that it is gone.
func Run(t testing.TB, n int, f func(c *mp.Comm)) {
	t.Helper()
	RunWith(t, n, mp.Config{}, f)
}

// RunWith is Run with settings. Rank, Size, Exchange and Address are Run's own.
func RunWith(t testing.TB, n int, cfg mp.Config, f func(c *mp.Comm), opts ...Option) {
	t.Helper()
	m, worlds := open(t, n, cfg, opts)
	defer m.watch(t, worlds)()
	var wg sync.WaitGroup
	for rank, w := range worlds {
		wg.Go(func() {
			returned := false
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("rank %d: panic: %v\n%s", rank, p, debug.Stack())
				} else if !returned && !t.Failed() {
					t.Errorf("rank %d: ended by Goexit", rank)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := w.Close(ctx); err != nil && !errors.Is(err, mp.ErrClosed) {
					t.Errorf("rank %d: close: %v", rank, err)
				}
			}()
			f(w.World())
			returned = true
		})
	}
	wg.Wait()
}

// Worlds makes the n worlds of Run, one for each rank. The caller closes them.
func Worlds(t testing.TB, n int, cfg mp.Config, opts ...Option) []*mp.World {
	t.Helper()
	_, worlds := open(t, n, cfg, opts)
	return worlds
}

// jobs counts the worlds: what comes late of one is not of another.
var jobs atomic.Int64

func open(t testing.TB, n int, cfg mp.Config, opts []Option) (*meeting, []*mp.World) {
	t.Helper()
	m := newMeeting(n)
	for _, o := range opts {
		o(m)
	}
	if m.memory != nil {
		var err error
		if m.mem, err = m.memory.open(); err != nil {
			t.Fatalf("mptest: %v", err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("mptest: the network was %v", m.memory)
			}
		})
	}
	if m.net != nil {
		t.Cleanup(m.net.close)
	}
	worlds, errs := make([]*mp.World, n), make([]error, n)
	job := fmt.Sprintf("test %d of process %d", jobs.Add(1), os.Getpid())
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			k := cfg
			k.Rank, k.Size, k.Address = rank, n+m.absent, "127.0.0.1"
			k.Exchange = &exchange{meeting: m, rank: rank}
			if k.Job == "" {
				k.Job = job
			}
			if m.mem != nil {
				m.join(&k, rank)
			}
			worlds[rank], errs[rank] = mp.Init(context.Background(), k)
			if errs[rank] != nil {
				m.fail(errs[rank])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("init: %v", err)
	}
	return m, worlds
}

// A meeting is where the ranks of a process exchange cards.
type meeting struct {
	mu    sync.Mutex
	cards map[int][]byte
	size  int
	err   error
	full  chan struct{} // closed when all have come, or one has failed
	net   *lossy        // nil: no relays
	// memory is what Memory says and mem the network, nil on the loopback interface.
	memory *Net
	mem    *memnet.Network
	absent int // ranks of the world that never come
}

func newMeeting(size int) *meeting {
	return &meeting{cards: map[int][]byte{}, size: size, full: make(chan struct{})}
}

func (m *meeting) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && len(m.cards) < m.size {
		m.err = err
		close(m.full)
	}
}

// An exchange is a meeting as one rank sees it.
type exchange struct {
	*meeting
	rank int
}

// Put implements mp.Exchange.
func (x *exchange) Put(ctx context.Context, card []byte) error {
	x.mu.Lock()
	if x.err == nil {
		x.cards[x.rank] = card
		if len(x.cards) == x.size {
			close(x.full)
		}
	}
	x.mu.Unlock()
	select {
	case <-x.full:
		return x.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Card implements mp.Exchange.
func (x *exchange) Card(_ context.Context, rank int) ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	card, ok := x.cards[rank]
	if !ok {
		return nil, fmt.Errorf("mptest: no card of rank %d", rank)
	}
	if x.net == nil || rank == x.rank {
		return card, nil
	}
	return x.net.card(x.rank, x.cards[x.rank], rank, card)
}

// Finalize implements mp.Exchange.
func (x *exchange) Finalize(context.Context) error { return nil }

// Abort implements mp.Exchange. It does not end the process: it is the test's.
func (x *exchange) Abort(int, string) {}
