package perf

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
)

// A churn has the connections for single transactions, which come and go beside those of
// the legs.
type churn struct {
	mu    sync.Mutex // guards the fields below
	live  map[*leg]struct{}
	asked int // connections that are being opened or are live
	done  map[int]*traffic.LegResult
	ended bool
}

// churnMore is how many connections for transactions may exist beyond two for each leg: the
// last ones may still be closing.
const churnMore = 8

// answerAgain opens an endpoint for the connection of one transaction, serves it and closes
// it. It does so in another goroutine.
func (ss *session) answerAgain(in *incoming) error {
	r, i := ss.cur, in.call.Leg
	if r == nil || r.id != in.call.Run || i < 0 || i >= len(r.legs) || !r.spec.Churn || r.legs[i] == nil && !r.opened {
		return errors.New("no such stream makes more connections")
	}
	// The client asks only after it has begun. Its message about that comes by another
	// connection and may arrive later.
	r.begin()
	c := &r.churn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked >= 2*len(r.legs)+churnMore {
		return fmt.Errorf("%d connections of this test are open: close some", c.asked)
	}
	c.asked++
	r.wg.Go(func() {
		res, err := ss.once(r, in, i)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked--
		if err != nil {
			ss.srv.cfg.Log("%v: no connection for a transaction: %v", ss.addr, err)
			in.reject("%s", oneLine(err))
			return
		}
		if c.done == nil {
			c.done = map[int]*traffic.LegResult{}
		}
		if c.done[i] == nil {
			c.done[i] = &traffic.LegResult{Counters: record.Counters{Drops: map[string]uint64{}}}
		}
		c.done[i].Add(res)
	})
	return nil
}

// once serves a connection until its end.
func (ss *session) once(r *serverRun, in *incoming, i int) (*traffic.LegResult, error) {
	info, err := in.open(ss.legHints(r.spec))
	if err != nil {
		return nil, err
	}
	l, err := newLeg(r.spec, i, true, info, r.group, nil, nil)
	if err != nil {
		return nil, err
	}
	ss.srv.cfg.Opened(l.end.ep, "test")
	defer ss.closeLeg(l)
	r.churn.add(l)
	defer r.churn.remove(l)
	if err = l.connect(netip.AddrPort{}); err == nil {
		err = l.Start()
	}
	if err == nil {
		err = l.end.accept(l.ctx)
	}
	if err != nil {
		return nil, err
	}
	// The connection ends when the client closes it.
	if err := l.run(); err != nil && err != traffic.ErrAborted && !errors.Is(err, fi.ESHUTDOWN) && !errors.Is(err, fi.ECANCELED) {
		ss.srv.cfg.Log("%v: a transaction: %v", ss.addr, err)
	}
	return &l.Res, nil
}

// add adds a connection, and aborts it if the test has ended.
func (c *churn) add(l *leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		c.live = map[*leg]struct{}{}
	}
	c.live[l] = struct{}{}
	if c.ended {
		l.abort()
	}
}

func (c *churn) remove(l *leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, l)
}

// end makes all connections end soon.
func (c *churn) end(abort bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for l := range c.live {
		l.Over.Store(true)
		l.wake()
		if abort {
			l.abort()
		}
	}
}
