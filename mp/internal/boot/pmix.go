package boot

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// pmixService is a PMIx client as a service. The calls of the library cannot be ended: one
// that its context gives up runs on in its goroutine, and the next waits for it.
type pmixService struct {
	w    *World
	log  *logger
	c    Client
	turn chan struct{} // holds one token: whoever has it calls
	wg   sync.WaitGroup
}

const (
	abortTime = 5 * time.Second // how long a PMIx server has to take an abort
	pmixVal   = 8 << 10         // the longest value that is put; PMIx names no bound
)

func connectPMIx(ctx context.Context, connect Connector, f *finder, w *World) (service, error) {
	type answer struct {
		c   Client
		err error
	}
	done := make(chan answer, 1)
	go func() {
		c, err := connect(ctx)
		done <- answer{c, err}
	}()
	var c Client
	select {
	case a := <-done:
		if a.err != nil {
			return nil, a.err
		}
		c = a.c
	case <-ctx.Done():
		return nil, stopped(ctx, "the PMIx server")
	}
	w.Rank, w.Size, w.Job = c.Rank(), c.Size(), c.Job()
	p := &pmixService{w: w, log: f.log, c: c, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	if w.Size < 1 || w.Size > MaxSize || w.Rank < 0 || w.Rank >= w.Size {
		p.close()
		return nil, &ConfigError{What: "PMIx", Value: fmt.Sprintf("rank %d", w.Rank), Why: fmt.Sprintf("no rank of a world of %d", w.Size)}
	}
	return p, nil
}

// do makes one call, unless the context ends first.
func (p *pmixService) do(ctx context.Context, what string, call func() error) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return stopped(ctx, "the PMIx server, %s", what)
	}
	done := make(chan error, 1)
	p.wg.Go(func() {
		err := call()
		p.turn <- struct{}{}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return stopped(ctx, "the PMIx server, %s", what)
	}
}

func (p *pmixService) put(ctx context.Context, card []byte) error {
	parts := split(card, pmixVal)
	err := p.do(ctx, "put", func() error {
		for i, value := range parts {
			if err := p.c.Put(partKey(p.w.Rank, i), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	start := time.Now()
	stop := every(p.w.tick, func() {
		p.log.printf("waiting in the fence for the others, for %v", time.Since(start).Round(time.Second))
	})
	err = p.do(ctx, "fence", p.c.Fence)
	stop()
	if err != nil {
		if timeUp(ctx) {
			// Nobody asks for the cards that are there: mpirun of Open MPI 4 sometimes hangs or
			// crashes when a job ends soon after such questions.
			return &MissingError{Size: p.w.Size, After: time.Since(start)}
		}
		return err
	}
	mine, err := p.card(ctx, p.w.Rank)
	if err == nil && !bytes.Equal(mine, card) {
		err = &TwiceError{Rank: p.w.Rank}
	}
	return err
}

func (p *pmixService) card(ctx context.Context, rank int) ([]byte, error) {
	return join(func(i int) (value string, err error) {
		key := partKey(rank, i)
		var got string // not value: a call that was given up still writes it
		err = p.do(ctx, "get", func() (err error) {
			got, err = p.c.Get(rank, key)
			return err
		})
		if err != nil {
			return "", err
		}
		return got, nil
	})
}

func (p *pmixService) finalize(ctx context.Context) error {
	return p.do(ctx, "finalize", p.c.Finalize)
}

// close lets go without a word: the library has nothing between that and finalize.
func (p *pmixService) close() {}

func (p *pmixService) abort(code int, why string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.c.Abort(code, why)
	}()
	select {
	case <-done:
	case <-time.After(abortTime): // this process exits then, which the launcher sees
	}
}
