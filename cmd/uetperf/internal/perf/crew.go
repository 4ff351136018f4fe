package perf

import (
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
)

// A crew runs legs that share a completion queue in one goroutine, which costs each turn what has
// completed, not how many legs there are.
type crew struct {
	p      poller
	done   func(i int, err error) // a leg has ended
	wg     *sync.WaitGroup        // of its goroutine
	whose  []*leg                 // by entry
	todo   []*leg                 // legs that take a turn next; they are listed
	early  []cq.Entry             // completions of legs that have not joined
	looked time.Time              // when all legs last took a turn

	mu      sync.Mutex
	legs    []*leg // by index; nil before they join
	woken   []*leg
	joined  int
	ended   int
	running bool
	closed  bool // no leg joins any more
}

// A mate is what a crew knows of a leg.
type mate struct {
	crew   *crew // nil if the leg runs alone
	inLine bool  // in crew.woken; crew.mu guards it
	listed bool  // in crew.todo
	turned bool  // it had its first turn
	over   bool
	took   int // completions since the last turn
}

func newCrew(s *traffic.Spec, wg *sync.WaitGroup, done func(int, error)) *crew {
	return &crew{p: poller{block: s.Progress == "auto", ents: make([]cq.Entry, 128)}, done: done, wg: wg, legs: make([]*leg, s.Parallel)}
}

// join makes the crew run a leg. The first one starts its goroutine.
func (c *crew) join(l *leg) {
	c.mu.Lock()
	c.legs[l.Index] = l
	c.joined++
	if !c.running {
		c.running, c.p.end = true, l.end
		c.wg.Go(c.run)
	}
	c.mu.Unlock()
	c.wake(l)
}

// close says that no leg joins any more.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.p.end != nil {
		_ = c.p.end.cq.Signal()
	}
}

// wake makes a leg look at its signals.
func (c *crew) wake(l *leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.legs[l.Index] != l || l.mate.inLine {
		return // it looks when it joins, or is about to
	}
	l.mate.inLine = true
	c.woken = append(c.woken, l)
	_ = c.p.end.cq.Signal()
}

// run runs the legs until all have ended.
func (c *crew) run() {
	if !c.p.block {
		polling.Add(1)
		defer polling.Add(-1)
	}
	for c.gather() {
		wait := c.turns()
		if len(c.early) > 0 {
			early := c.early
			c.early = nil
			c.take(early)
		}
		n, err := c.p.read(wait, false)
		if err != nil {
			c.fail(err)
			continue
		}
		c.take(c.p.ents[:n])
	}
}

// take gives completions to their legs, and keeps those of a leg that has not joined yet: its
// connection is open before it does.
func (c *crew) take(entries []cq.Entry) {
	for i, l := range c.of(entries) {
		switch {
		case entries[i].Context == nil: // it tells of no message of a leg
			continue
		case l == nil || !l.mate.turned:
			c.early = append(c.early, entries[i])
			continue
		case l.mate.over:
			continue
		}
		if err := l.Take(l.completed(entries[i : i+1])); err != nil {
			c.over(l, err)
			continue
		}
		l.mate.took++
		c.list(l)
	}
}

// of returns the leg of each entry, nil if it has not joined.
func (c *crew) of(entries []cq.Entry) []*leg {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whose = c.whose[:0]
	for i := range entries {
		var l *leg
		if s, ok := entries[i].Context.(*traffic.Slot); ok {
			l = c.legs[s.Leg]
		}
		c.whose = append(c.whose, l)
	}
	return c.whose
}

// gather lists the legs that were woken, or all now and then, for their clocks. It reports false
// when all have ended.
func (c *crew) gather() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.woken {
		l.mate.inLine = false
		c.list(l)
	}
	c.woken = c.woken[:0]
	if now := time.Now(); now.Sub(c.looked) >= traffic.Idle {
		c.looked = now
		for _, l := range c.legs {
			if l != nil {
				c.list(l)
			}
		}
	}
	return c.ended < c.joined || c.joined < len(c.legs) && !c.closed
}

func (c *crew) list(l *leg) {
	if !l.mate.listed && !l.mate.over {
		l.mate.listed = true
		c.todo = append(c.todo, l)
	}
}

// turns lets the listed legs take a turn. It returns how long to wait for completions. A leg that
// waits for less than others stays in the list.
func (c *crew) turns() time.Duration {
	wait := traffic.Idle
	todo := c.todo
	c.todo = c.todo[:0]
	for _, l := range todo {
		m := &l.mate
		if m.listed = false; m.over {
			continue
		}
		m.turned = true
		w, over, err := l.Turn(m.took)
		m.took = 0
		switch {
		case over || err != nil:
			c.over(l, err)
		case w < traffic.Idle:
			wait = min(wait, w)
			c.list(l) // into the part of the list that was read
		}
	}
	return wait
}

// over ends a leg.
func (c *crew) over(l *leg, err error) {
	l.mate.over = true
	l.close(err)
	c.mu.Lock()
	c.ended++
	c.mu.Unlock()
	c.done(l.Index, err)
}

// fail ends all legs because of an operation that failed. The first one tells why.
func (c *crew) fail(err error) {
	c.mu.Lock()
	legs := append([]*leg(nil), c.legs...)
	c.mu.Unlock()
	for _, l := range legs {
		if l != nil && !l.mate.over {
			c.over(l, err)
			err = traffic.ErrAborted
		}
	}
}
