package cq

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
)

// A blockedStep is one thing that happens to a queue with blocked readers.
type blockedStep struct {
	op    string
	n     int
	rush  bool // the next one happens before anybody has run
	limit bool // a read has a timeout
}

// blockedScript is what rapid makes up.
func blockedScript(t *rapid.T) []blockedStep {
	return rapid.SliceOf(rapid.Custom(func(t *rapid.T) blockedStep {
		return blockedStep{
			op:    rapid.SampledFrom([]string{"sread", "sread", "sread", "put", "put", "error", "read", "signal", "bind", "time"}).Draw(t, "op"),
			n:     rapid.IntRange(1, 4).Draw(t, "n"),
			rush:  rapid.Bool().Draw(t, "rush"),
			limit: rapid.IntRange(0, 3).Draw(t, "limit") == 0,
		}
	})).Draw(t, "script")
}

// crowd is a queue, its blocked readers, and what became of its entries.
type crowd struct {
	q   *CQ
	put int

	mu     sync.Mutex
	seen   []int // how often each entry was read
	asleep int
	wrong  string
}

func (c *crowd) note(es []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range es {
		c.seen[e.Context.(int)]++
	}
}

// take reads what a blocked read was told of.
func (c *crowd) take(e []Entry, n int, err error) {
	c.note(e[:n])
	if err == fi.EAVAIL {
		var failed Error
		if k, _ := c.q.ReadErr(&failed, 0); k == 1 {
			c.note([]Entry{{Context: failed.Context}})
		}
	}
}

func (c *crowd) sread(n int, limit bool) {
	c.mu.Lock()
	c.asleep++
	c.mu.Unlock()
	timeout := time.Duration(-1)
	if limit {
		timeout = time.Second
	}
	go func() {
		e := make([]Entry, n)
		got, err := c.q.SRead(e, 1, timeout)
		c.take(e, got, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asleep--
		if got == 0 && err == nil {
			c.wrong = "a blocked read returned nothing"
		}
	}()
}

func (c *crowd) step(s blockedStep) {
	switch s.op {
	case "sread":
		c.sread(s.n, s.limit)
	case "put", "error":
		w := c.q.Begin()
		for range s.n {
			c.mu.Lock()
			c.seen = append(c.seen, 0)
			c.mu.Unlock()
			if s.op == "put" {
				w.Put(&Entry{Context: c.put}, 0, false)
			} else {
				w.PutErr(&Error{Context: c.put, Err: fi.EIO}, false)
			}
			c.put++
		}
		w.End()
	case "read":
		e := make([]Entry, s.n)
		n, err := c.q.Read(e)
		c.take(e, n, err)
	case "signal":
		c.q.Signal()
	case "bind": // one that comes and goes wakes those who drove nothing
		ep := new(idle)
		c.q.Bind(ep)
		c.q.Unbind(ep)
	case "time":
		time.Sleep(400 * time.Millisecond)
	}
}

// check holds when nobody runs.
func (c *crowd) check() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := 0
	for i, n := range c.seen {
		if n > 1 {
			return fmt.Sprintf("entry %d was read %d times", i, n)
		}
		left += 1 - n
	}
	switch {
	case c.wrong != "":
		return c.wrong
	case left > 0 && c.asleep > 0:
		return fmt.Sprintf("%d sleep over %d entries", c.asleep, left)
	case left != c.q.ring.len():
		return fmt.Sprintf("%d entries are unread, %d in the queue", left, c.q.ring.len())
	case left == 0 && c.q.w.Have() != 0:
		return "an empty queue shows something"
	}
	return ""
}

func TestBlockedReaders(t *testing.T) {
	// R-CQ-53, -67, -71, -72: whatever happens in whatever order, no reader sleeps
	// over an entry or error, each is read once, and none is lost.
	rapid.Check(t, func(rt *rapid.T) {
		script := blockedScript(rt)
		failure := ""
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{q: open(t, Attr{WaitObj: fi.WaitUnspec, Spin: -1, Size: 1 << 12})}
			for _, s := range script {
				c.step(s)
				if s.rush {
					continue
				}
				synctest.Wait()
				if failure = c.check(); failure != "" {
					break
				}
			}
			c.q.Close()
			synctest.Wait()
			if failure == "" && c.asleep > 0 {
				failure = "readers outlive their queue"
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func TestLoneReaderIsCancelled(t *testing.T) {
	// R-CQ-38, R-CQ-70: a reader that sleeps alone without a limit ends by a signal,
	// by close, and beside one that has a context.
	synctest.Test(t, func(t *testing.T) {
		q := sleepy(t)
		lone := sread(q, 0)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		other := make(chan error, 1)
		go func() {
			_, err := q.SReadContext(ctx, make([]Entry, 1))
			other <- err
		}()
		synctest.Wait()
		cancel()
		<-other
		q.Signal()
		wantErr(t, (<-lone).err, fi.EAGAIN)
		lone = sread(q, 0)
		synctest.Wait()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, (<-lone).err, fi.ECANCELED)
	})
}
