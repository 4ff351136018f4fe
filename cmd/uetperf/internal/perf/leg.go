// Package perf is the engine of uetperf. It has both ends of every test on real endpoints,
// the control channel between them, the server, and the client's session with a server.
//
// A traffic.Spec describes a test. The client sends it to the server. Both ends open
// endpoints (legs), one pair per stream, and exchange their addresses. They then run the
// tests of package traffic, each leg in its own goroutine, whose loop allocates nothing per
// message.
//
// The client: client.go has the session, dial.go its begin, lost.go its end. clientrun.go
// has a run, clientlegs.go its legs, drive.go what happens while they run, result.go the
// result.
//
// The server: server.go has the server, listen.go its ports, admit.go the admission of
// clients, session.go a session. serverrun.go has a run, churn.go the connections that come
// and go beside its legs.
//
// control.go has the protocol between client and server.
package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A leg is one end of one stream with its endpoint. It is the traffic.Conn of its
// traffic.Leg. One goroutine runs it.
type leg struct {
	*traffic.Leg
	pat  *pattern.Pattern // nil unless data is checked
	end  *end
	mate mate
	// sharing has the legs that share the port; nil if it is the leg's own.
	sharing *sharing
	peer    fi.Addr
	remote  netip.AddrPort
	p       poller
	done    []traffic.Completion // those that are taken
	// Copies from the Spec that every message needs.
	tagged, numbered, inject, durable bool
	tells                             bool   // completions tell the numbers of messages
	ignore                            uint64 // bits of the tag that a receive ignores

	memory []byte     // that the client accesses; nil if it does not
	unmap  func()     // gives memory back
	key    uint64     // of memory
	msg    uet.RMAMsg // the durable write that is posted
	adds   []byte     // what a fetch-and-add adds
	gone   tally      // counters of endpoints that churn closed
	// dial opens another endpoint and connects it, for churn; nil if the test needs none.
	// abort ends ctx.
	dial   func(context.Context) (*end, error)
	ctx    context.Context
	cancel context.CancelFunc
	now    *end // the endpoint that dial opened; nil if there is none
}

const (
	tagBase = 0x7565_7400_0000_0000
	tagSeq  = 1<<40 - 1 // bits of the tag that hold the number of a message
)

// newLeg opens the endpoint of a leg, which may change info.
// With c it is one of a crew, and shares the queue of first, the first leg, if that is not nil; with a Spec whose streams
// are together it shares the other objects of first, and its port if the Spec says so.
func newLeg(s *traffic.Spec, index int, server bool, info *uet.Info, g *traffic.Group, c *crew, first *leg) (*leg, error) {
	l := &leg{Leg: traffic.NewLeg(s, index, server, g), tagged: s.Tagged(), numbered: s.Numbered(), inject: s.Op == traffic.Inject, durable: s.Durable(), tells: s.Numbered() || s.Op == traffic.WriteData, unmap: func() {}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	tx, rx := s.Depth()
	if s.Test == traffic.Incast && server {
		rx *= s.Parallel
	}
	size := 2*(tx+rx) + 64
	if c != nil {
		size *= s.Parallel
	}
	var beside *end
	if first != nil {
		beside = first.end
	}
	if s.SharePort {
		below(beside, s, index, info)
	}
	e, err := openEndBeside(beside, c != nil, info, size)
	if err != nil {
		l.cancel()
		return nil, err
	}
	l.end, l.Conn = e, l
	if s.Check {
		l.pat = pattern.New(s.Seed)
	}
	if s.OneSided() {
		if err := l.lend(s, server); err != nil {
			l.cancel()
			e.close()
			l.unmap()
			return nil, err
		}
	}
	entries := 128
	if c != nil {
		entries = 1
	}
	l.mate.crew = c
	l.p = poller{end: e, block: s.Progress == "auto", ents: make([]cq.Entry, entries)}
	l.done = make([]traffic.Completion, len(l.p.ents))
	for i := range l.done {
		l.done[i].Seq = -1
	}
	if l.numbered {
		l.ignore = tagSeq
	}
	if s.SharePort {
		if l.sharing = new(sharing); first != nil {
			l.sharing = first.sharing
		}
		l.sharing.left.Add(1)
	}
	return l, nil
}

// noFiles says of an error what to do if the process has no descriptor left.
func noFiles(s *traffic.Spec, err error) error {
	most, known := openFiles()
	if !known || !errors.Is(err, fi.EMFILE) && !errors.Is(err, syscall.EMFILE) {
		return err
	}
	return fmt.Errorf("%d streams take up to %d files each, and this process may have %d open: take fewer, or raise the limit (ulimit -Hn): %w", s.Parallel, filesEach, most, err)
}

// filesEach is how many descriptors an endpoint takes at most on Linux: the socket, and, once somebody
// waits for it alone, what waits and what ends a wait.
const filesEach = 3

// addr is the address that the peer sends to.
func (l *leg) addr() netip.AddrPort { return l.end.local }

// connect makes the address of the other leg the destination.
func (l *leg) connect(a netip.AddrPort) (err error) {
	l.remote = a
	l.peer, err = l.end.insertName(a, pidOf(l.Spec, l.Index))
	return err
}

// wake makes a sleeping leg look at its signals.
func (l *leg) wake() {
	if c := l.mate.crew; c != nil {
		c.wake(l)
		return
	}
	_ = l.end.cq.Signal()
}

// abort makes the leg end soon.
func (l *leg) abort() {
	l.Aborted.Store(true)
	l.cancel()
	l.wake()
}

// run runs the leg until it ends. l.Res has what it measured, also after an error.
func (l *leg) run() error {
	if !l.p.block {
		polling.Add(1)
		defer polling.Add(-1)
	}
	err := l.loop()
	l.close(err)
	return err
}

// close ends what run or a crew began, and notes what the endpoint counted.
func (l *leg) close(err error) {
	if l.memory != nil {
		l.returned()
	}
	l.End(err)
	if l.now != nil {
		l.hangUp()
	}
	l.counted()
}

// loop takes turns until the leg ends.
func (l *leg) loop() error {
	for n := 0; ; {
		wait, over, err := l.Turn(n)
		if over || err != nil {
			return err
		}
		if r, ok := l.Rounds(); ok {
			if err := l.rounds(r); err != nil {
				return err
			}
			continue
		}
		if e, ok := l.Echoes(); ok {
			if err := l.echo(e); err != nil {
				return err
			}
			continue
		}
		if n, err = l.p.read(wait, l.Rests()); err != nil {
			if err = l.Failed(err); err != nil {
				return err
			}
		}
		if n == 0 {
			continue
		}
		if err := l.Take(l.completed(l.p.ents[:n])); err != nil {
			return err
		}
	}
}

// completed returns what entries of the completion queue tell a test.
func (l *leg) completed(entries []cq.Entry) []traffic.Completion {
	done := l.done[:len(entries)]
	for i := range entries {
		e, c := &entries[i], &done[i]
		c.Slot, _ = e.Context.(*traffic.Slot) // there is none of a write of the other end
		c.Sent, c.Len = e.Flags&(fi.Send|fi.Write|fi.Read) != 0, e.Len
		if l.tells {
			c.Seq = l.number(e)
		}
	}
	return done
}

// number returns the number of the message that an entry tells of, -1 if it has none.
func (l *leg) number(e *cq.Entry) int64 {
	switch {
	case l.tagged:
		return int64(e.Tag & tagSeq)
	case e.Flags&fi.RemoteCQData != 0:
		return int64(e.Data)
	}
	return -1
}

// The following methods implement traffic.Conn.

// origin is the origin of the clocks of all legs of the process.
var origin = time.Now()

func (l *leg) Now() time.Duration               { return time.Since(origin) }
func (l *leg) Usage() (user, sys time.Duration) { return Usage() }

func (l *leg) Fill(b []byte, n uint64)             { l.pat.Fill(b, n) }
func (l *leg) Verify(b []byte, n uint64) (bad int) { return l.pat.Verify(b, n) }

// posted converts the result of a post to that of a traffic.Conn.
func posted(err error) (bool, error) {
	switch err {
	case nil:
		return true, nil
	case fi.EAGAIN:
		return false, nil
	}
	return false, err
}

func (l *leg) Recv(s *traffic.Slot) (bool, error) {
	if l.tagged {
		return posted(l.p.end.ep.TRecv(s.Buf, fi.AddrUnspec, tagBase, l.ignore, s))
	}
	return posted(l.p.end.ep.Recv(s.Buf, fi.AddrUnspec, s))
}

func (l *leg) Send(b []byte, seq int64, s *traffic.Slot) (bool, error) {
	ep, peer := l.p.end.ep, l.peer
	if l.now != nil {
		peer = fi.AddrUnspec
	}
	tag := uint64(tagBase)
	if l.numbered {
		tag |= uint64(seq) & tagSeq
	}
	switch {
	case l.inject:
		return posted(ep.TInject(b, peer, tag))
	case l.tagged:
		return posted(ep.TSend(b, peer, tag, s))
	case l.numbered:
		return posted(ep.SendData(b, uint64(seq), peer, s))
	}
	return posted(ep.Send(b, peer, s))
}

func (l *leg) SendAll(slots []*traffic.Slot, seq int64) (int, error) {
	ep, peer, simple := l.p.end.ep, l.peer, l.tagged && !l.inject && l.now == nil
	for i, s := range slots {
		if !simple {
			if ok, err := l.Send(s.Buf, seq+int64(i), s); !ok {
				return i, err
			}
			continue
		}
		tag := uint64(tagBase)
		if l.numbered {
			tag |= uint64(seq+int64(i)) & tagSeq
		}
		if err := ep.TSend(s.Buf, peer, tag, s); err != nil {
			_, err = posted(err)
			return i, err
		}
	}
	return len(slots), nil
}

// Open opens a connection for a transaction, if the test has connections.
func (l *leg) Open() (own bool, err error) {
	if l.dial == nil {
		return false, nil
	}
	if l.now, err = l.dial(l.ctx); err != nil {
		return false, err
	}
	l.p.end = l.now
	return true, nil
}

// Close closes the connection of the transaction, or the packet delivery contexts to the
// peer.
func (l *leg) Close() error {
	switch {
	case l.now != nil:
		l.hangUp()
		return nil
	case l.Spec.Endpoint() == traffic.RDM:
		return l.end.ep.Quiesce(l.peer)
	}
	return nil
}

func (l *leg) hangUp() {
	l.gone.add(l.now)
	l.now.close()
	l.now, l.p.end = nil, l.end
}

// Closed reports whether the packet delivery contexts have ended. A connection has ended
// when Close returns.
func (l *leg) Closed() bool { return l.dial != nil || l.end.ep.Load().PDCs == 0 }

// counters adds up all endpoints of the leg.
func (l *leg) counters() record.Counters {
	c := l.end.counters()
	l.gone.read(&c)
	return c
}

// A tally adds up the counters of closed endpoints.
type tally struct {
	mu  sync.Mutex // guards sum
	sum record.Counters
}

func (t *tally) add(e *end) {
	c := e.counters()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Add(&c)
}

func (t *tally) read(c *record.Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Add(&t.sum)
}
