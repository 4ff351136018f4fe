package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uetkit/uetkit/mp"
)

// MaxLocal is the largest number of ranks that share this process.
const MaxLocal = 256

// closeLimit is how long the end of a world waits for peers that do not take what was sent.
const closeLimit = 5 * time.Second

// Local makes a world of n ranks in this process, over the loopback interface if cfg names no
// address, and calls f for each in a goroutine of its own. It returns when all are done, with the
// error of rank 0 if it has one.
func Local(ctx context.Context, n int, cfg mp.Config, f func(ctx context.Context, w *mp.World) error) error {
	m := &meeting{cards: make([][]byte, n), full: make(chan struct{})}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			k := cfg
			k.Rank, k.Size, k.Address, k.Exchange = rank, n, cmp.Or(cfg.Address, "127.0.0.1"), &place{m, rank}
			w, err := mp.Init(ctx, k)
			if err != nil {
				m.fail(err)
				errs[rank] = err
				return
			}
			errs[rank] = Close(ctx, w, f(ctx, w))
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// Close ends a world after err. It returns err, or what went wrong in the end of the world if err
// is nil.
func Close(ctx context.Context, w *mp.World, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if e := w.Close(ctx); err == nil && e != nil && !errors.Is(e, mp.ErrClosed) {
		return e
	}
	return err
}

// A meeting is where the ranks of a process exchange cards.
type meeting struct {
	mu    sync.Mutex // guards what follows
	cards [][]byte
	have  int
	err   error
	full  chan struct{} // closed when all have come, or one has failed
	over  bool
}

func (m *meeting) fail(err error) { m.add(0, nil, err) }

func (m *meeting) add(rank int, card []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return
	}
	if err == nil {
		m.cards[rank] = card
		m.have++
	}
	if m.err = err; err != nil || m.have == len(m.cards) {
		m.over = true
		close(m.full)
	}
}

// A place is a meeting as one rank sees it.
type place struct {
	*meeting
	rank int
}

// Put implements mp.Exchange.
func (p *place) Put(ctx context.Context, card []byte) error {
	p.add(p.rank, card, nil)
	select {
	case <-p.full:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Card implements mp.Exchange.
func (p *place) Card(_ context.Context, rank int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cards[rank] == nil {
		return nil, fmt.Errorf("no card of rank %d", rank)
	}
	return p.cards[rank], nil
}

// Finalize implements mp.Exchange.
func (p *place) Finalize(context.Context) error { return nil }

// Abort implements mp.Exchange. It ends nothing: the other ranks share the process, and find this
// one gone.
func (p *place) Abort(int, string) {}
