package boot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// A pmixServer is what the clients of a world have in common.
type pmixServer struct {
	size int
	// fail, if set, may make a call of a rank fail or hang.
	fail func(rank int, call string) error

	mu     sync.Mutex
	kvs    map[string]string // what was put, and is not to be seen before the fence
	inside int
	open   chan struct{}
}

func newPMIxServer(size int) *pmixServer {
	return &pmixServer{size: size, kvs: map[string]string{}, open: make(chan struct{})}
}

func (s *pmixServer) rank(rank int) Options {
	o := Options{Env: env("PMIX_RANK=x", "PMIX_NAMESPACE=y")}
	o.net.pmix = func(context.Context) (Client, error) {
		return &pmixClient{s, rank}, s.may(rank, "init")
	}
	return o
}

func (s *pmixServer) may(rank int, call string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(rank, call)
}

type pmixClient struct {
	*pmixServer
	me int
}

func (c *pmixClient) Rank() int   { return c.me }
func (c *pmixClient) Size() int   { return c.size }
func (c *pmixClient) Job() string { return "prte-1" }

func (c *pmixClient) Put(key, value string) error {
	c.mu.Lock()
	c.kvs[key] = value
	c.mu.Unlock()
	return c.may(c.me, "put")
}

func (c *pmixClient) Fence() error {
	c.mu.Lock()
	if c.inside++; c.inside == c.size {
		close(c.open)
	}
	c.mu.Unlock()
	if err := c.may(c.me, "fence"); err != nil {
		return err
	}
	<-c.open
	return nil
}

func (c *pmixClient) Get(rank int, key string) (string, error) {
	if err := c.may(c.me, "get"); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.open:
	default:
		return "", errors.New("before the fence")
	}
	v, ok := c.kvs[key]
	if !ok {
		return "", fmt.Errorf("rank %d has no %s", rank, key)
	}
	return v, nil
}

func (c *pmixClient) Finalize() error   { return c.may(c.me, "finalize") }
func (c *pmixClient) Abort(int, string) { c.may(c.me, "abort") }

func TestPMIxWorlds(t *testing.T) {
	for _, size := range []int{1, 2, 16} {
		run(t, size, newPMIxServer(size).rank)
	}
}

func TestPMIxFails(t *testing.T) {
	bad := errors.New("it does not work")
	for _, call := range []string{"init", "put", "fence", "get", "finalize"} {
		t.Run(call, func(t *testing.T) {
			ctx := testContext(t)
			s := newPMIxServer(1)
			s.fail = func(_ int, c string) error {
				if c == call {
					return bad
				}
				return nil
			}
			w, err := Find(ctx, s.rank(0))
			if err == nil {
				err = w.Put(ctx, nil)
			}
			if err == nil {
				err = w.Finalize(ctx)
			}
			if !errors.Is(err, bad) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A library that hangs does not hang its caller.
func TestPMIxHangs(t *testing.T) {
	for _, call := range []string{"init", "put", "fence", "get", "finalize"} {
		t.Run(call, func(t *testing.T) {
			ctx := testContext(t)
			s := newPMIxServer(1)
			release, hung := make(chan struct{}), make(chan struct{}, 1)
			s.fail = func(_ int, c string) error {
				if c == call {
					hung <- struct{}{}
					<-release
				}
				return nil
			}
			defer close(release)
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { <-hung; cancel() }()
			w, err := Find(short, s.rank(0))
			if err == nil {
				err = w.Put(short, nil)
			}
			if err == nil {
				err = w.Finalize(short)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestPMIxRankMissing(t *testing.T) {
	ctx := testContext(t)
	s := newPMIxServer(2)
	o := s.rank(0)
	o.net.tick = time.Millisecond
	debug := newRecord()
	o.Debug = debug
	w, err := Find(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	put, timeIsUp := putUntil(ctx, w, nil)
	debug.wait(t, "waiting in the fence")
	timeIsUp()
	wantError[*MissingError](t, <-put, "not all 2 ranks have come")
	if err := w.Finalize(ctx); err != nil {
		t.Error(err)
	}
	close(s.open) // the fence of the library ends some time
}

func TestPMIxBadRanks(t *testing.T) {
	for _, c := range [][2]int{{0, 0}, {2, 2}, {-1, 2}, {0, MaxSize + 1}} {
		_, err := Find(testContext(t), newPMIxServer(c[1]).rank(c[0]))
		if e := wantError[*ConfigError](t, err, "no rank of a world"); e.What != "PMIx" {
			t.Errorf("it names %s", e.What)
		}
	}
	// Two processes with one rank.
	ctx := testContext(t)
	s := newPMIxServer(2)
	errs := make(chan error, 2)
	for i := range 2 {
		w, err := Find(ctx, s.rank(1))
		if err != nil {
			t.Fatal(err)
		}
		go func() { errs <- w.Put(ctx, cardOf(i)) }()
	}
	a, b := <-errs, <-errs
	if a == nil {
		a, b = b, a
	}
	if e := wantError[*TwiceError](t, a, "rank 1"); e.Rank != 1 || b != nil {
		t.Errorf("%v, %v", a, b)
	}
}
