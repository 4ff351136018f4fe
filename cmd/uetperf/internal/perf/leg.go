package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// How a leg's life goes, at both ends:
//
//  1. post posts receives, run begins to poll; a side that sends starts when its
//     gate is opened: the peer's leg is there.
//  2. Whoever has posted its last message tells the other how many there were
//     (sent). A leg is complete when its own sends have completed and all
//     messages of the other side have arrived.
//  3. The server's leg says so (complete) and goes on polling, because the client
//     may still need an answer. The client's leg ends when it is complete and the
//     server's is (over); then the server's is told to end (over).

// errAborted ends a leg from outside.
var errAborted = errors.New("aborted")

// A Measure is what one direction of a leg measured: messages and the time they
// took, warm-up and drain left out.
type Measure struct {
	Msgs int64 `json:"msgs"`
	// Begin is when the clock started, the same for all legs of an end; an older
	// release does not tell.
	Begin    time.Duration `json:"begin,omitempty"`
	Duration time.Duration `json:"duration"`
	User     time.Duration `json:"user"` // processor time of the process; not known if both are 0
	Sys      time.Duration `json:"sys"`
}

// A LegResult is what a leg did.
type LegResult struct {
	Sent     int64           `json:"sent"`     // messages, warm-up included
	Received int64           `json:"received"` // messages, warm-up included
	Tx       Measure         `json:"tx"`
	Rx       Measure         `json:"rx"`
	First    time.Duration   `json:"first,omitempty"` // first round trip
	Check    *record.Check   `json:"check,omitempty"`
	Counters record.Counters `json:"counters"`
	// Echoed are the congestion marks that the leg's sends met, as its peer told.
	Echoed uint64 `json:"echoed,omitempty"`
	// Waiting is what the operations waited for that had not ended, if the run
	// failed.
	Waiting []string `json:"waiting,omitempty"`
}

// add adds what another connection of the same stream did.
func (r *LegResult) add(o *LegResult) {
	r.Sent += o.Sent
	r.Received += o.Received
	r.Echoed += o.Echoed
	r.Counters.Add(&o.Counters)
	if o.Check != nil {
		if r.Check == nil {
			r.Check = &record.Check{}
		}
		r.Check.Add(o.Check)
	}
}

// A leg is one end of one stream.
type leg struct {
	spec   *Spec
	pat    *pattern.Pattern
	end    *end
	peer   fi.Addr
	remote netip.AddrPort
	index  int // of the stream
	server bool
	info   *uet.Info

	p     poller
	begun time.Time
	// opened is when the leg found its gate open.
	opened time.Duration
	tx     []slot
	rx     []slot
	again  []*slot // receives that found no room
	posts  int64   // receives posted

	check  *record.Check
	ledger *pattern.Ledger

	// hist takes the measured round trips: half of each, but all of a ping's.
	hist *histogram
	ex   exchanged // of load and rr
	gone tally     // of endpoints that churn has closed
	// dial opens another endpoint and connects it, for churn; ctx ends with abort.
	dial   func(context.Context) (*end, error)
	ctx    context.Context
	cancel context.CancelFunc
	race   *race // of the legs of an incast
	sink   *sink // of the receiver of an incast
	// both are those of all streams of this end.
	both musters
	// onReply hears of every round trip of a ping.
	onReply func(n int64, rtt time.Duration)

	// Set by the goroutine of the control channel, which then wakes the leg.

	gate     atomic.Bool // post messages: the other leg is there
	stop     atomic.Bool // post no more messages
	over     atomic.Bool // see above
	peerSent atomic.Int64
	aborted  atomic.Bool

	// What the leg tells. Called from its goroutine.

	sent     func(n int64)
	complete func()

	live atomic.Int64 // messages so far, for interval lines
	told bool
	res  LegResult
}

// A slot is a message buffer; its address is the context of the operation that
// has it.
type slot struct {
	buf    []byte
	seq    int64 // receives: the how manieth that was posted
	isRecv bool
	busy   bool   // of lat and ping: posted and not completed
	reply  []byte // what answers a request that came to buf
	num    int64  // of that request
}

const (
	tagBase = 0x7565_7400_0000_0000
	tagSeq  = 1<<40 - 1 // bits that hold the number of a message, if it has one
	// Where one receiver has many senders, tagSender of those bits hold the sender,
	// senderSeq the number.
	senderShift = 32
	senderSeq   = 1<<senderShift - 1
	tagSender   = 0xff << senderShift
)

// newLeg opens a leg's endpoint.
func newLeg(s *Spec, server bool, info *uet.Info) (*leg, error) {
	l := &leg{spec: s, server: server, info: info}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.peerSent.Store(-1)
	tx, txBufs, rx, rxBufs := s.slots()
	if s.Test == Incast && server {
		rx *= s.Parallel
		if s.Check {
			rxBufs = rx
		}
	}
	e, err := openEnd(info, 2*(tx+rx)+64)
	if err != nil {
		l.cancel()
		return nil, err
	}
	l.end = e
	l.p = poller{end: e, block: s.Progress == "auto", ents: make([]cq.Entry, 128)}
	if s.Check {
		l.pat = pattern.New(s.Seed)
		l.check = &record.Check{}
		// A sender is at most a window ahead of the slowest message; twice that
		// and what a batch of completions adds.
		l.ledger = pattern.NewLedger(4*s.Window + 1024)
	}
	if !server && (s.pingpong() || s.exchanges()) {
		l.hist = newHistogram()
	}
	mem := func(n, bufs int, bytes int64, recv bool) []slot {
		slots, size := make([]slot, n), int(bytes)
		slab := make([]byte, max(1, bufs*size)) // never nil: an address even for empty messages
		for i := range slots {
			b := i % bufs * size
			slots[i] = slot{buf: slab[b : b+size : b+size], isRecv: recv}
		}
		return slots
	}
	back := s.Size // of what comes back
	if s.exchanges() {
		back = s.Reply
	}
	if s.sends(server) {
		l.tx = mem(tx, txBufs, s.Size, false)
	}
	switch {
	case s.sends(!server):
		l.rx = mem(rx, rxBufs, s.Size, true)
	case s.pingpong() || s.exchanges():
		l.rx = mem(rx, rxBufs, back, true)
	}
	l.again = make([]*slot, 0, len(l.rx))
	if s.exchanges() && server {
		for i, r := range mem(rx, rxBufs, back, false) {
			l.rx[i].reply = r.buf
		}
	}
	if s.Test == Incast && server {
		l.sink = newSink(s)
	}
	return l, nil
}

// addr is what the peer sends to.
func (l *leg) addr() netip.AddrPort { return l.end.local }

// connect makes the other leg's address the destination.
func (l *leg) connect(a netip.AddrPort) (err error) {
	l.remote = a
	l.peer, err = l.end.insert(a)
	return err
}

// post posts the receives.
func (l *leg) post() error {
	for i := range l.rx {
		if err := l.recv(&l.rx[i]); err != nil {
			return err
		}
	}
	return nil
}

// wake makes a leg that sleeps look at what was set.
func (l *leg) wake() { _ = l.end.cq.Signal() }

// abort ends the leg soon.
func (l *leg) abort() {
	l.aborted.Store(true)
	l.cancel()
	l.wake()
}

// run runs the leg to its end. What it measured is in l.res, also after an
// error.
func (l *leg) run() error {
	if !l.p.block {
		polling.Add(1)
		defer polling.Add(-1)
	}
	l.begun = time.Now()
	var err error
	switch {
	case l.sink != nil:
		err = l.collect()
	case l.race != nil:
		err = l.incast()
	case l.spec.exchanges() && l.server:
		err = l.respond()
	case l.spec.Churn:
		err = l.churn()
	case l.spec.exchanges():
		err = l.exchange()
	case !l.spec.pingpong():
		err = l.stream()
	case l.server:
		err = l.echo()
	default:
		err = l.pingpong()
	}
	l.tell()
	if l.check != nil {
		if n := l.peerSent.Load(); err == nil && n >= 0 && !l.spec.pingpong() && !l.spec.Churn && l.sink == nil {
			l.check.Wrong += int64(l.ledger.Gaps(uint64(n)))
		}
		l.res.Check = l.check
	}
	l.res.Counters = l.counters()
	l.res.Echoed = l.end.ep.Stats().AcksCE
	return err
}

// counters are those of all endpoints of the leg.
func (l *leg) counters() record.Counters {
	c := l.end.counters()
	l.gone.read(&c)
	return c
}

// A tally keeps what endpoints have counted that are closed.
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

// open reports whether messages may be posted.
func (l *leg) open() bool {
	if l.opened == 0 && l.gate.Load() {
		l.opened = max(1, l.since())
	}
	return l.opened != 0
}

// tell tells how many messages were sent, once.
func (l *leg) tell() {
	if !l.told && len(l.tx) > 0 {
		l.told = true
		l.sent(l.res.Sent)
	}
}

// recv posts a receive.
func (l *leg) recv(s *slot) error {
	s.seq = l.posts
	err := l.recvOn(l.end, s)
	switch err {
	case nil:
		l.posts++
	case fi.EAGAIN:
		l.again = append(l.again, s)
		err = nil
	}
	return err
}

// recvOn posts a receive at an endpoint. fi.EAGAIN: not now.
func (l *leg) recvOn(e *end, s *slot) error {
	switch {
	case !l.spec.tagged():
		return e.ep.Recv(s.buf, fi.AddrUnspec, s)
	case l.spec.numbered():
		return e.ep.TRecv(s.buf, fi.AddrUnspec, tagBase, tagSeq, s)
	}
	return e.ep.TRecv(s.buf, fi.AddrUnspec, tagBase, 0, s)
}

// send posts a message. fi.EAGAIN: not now.
func (l *leg) send(b []byte, seq int64, s *slot) error { return l.sendOn(l.end, l.peer, b, seq, s) }

// sendOn posts a message at an endpoint.
func (l *leg) sendOn(e *end, peer fi.Addr, b []byte, seq int64, s *slot) error {
	ep := e.ep
	switch {
	case !l.spec.numbered():
		switch l.spec.Op {
		case Send:
			return ep.Send(b, peer, s)
		case TSend:
			return ep.TSend(b, peer, tagBase, s)
		}
		return ep.TInject(b, peer, tagBase)
	case l.spec.Op == Send:
		return ep.SendData(b, uint64(seq), peer, s)
	case l.spec.Op == TSend:
		return ep.TSend(b, peer, l.tag(seq), s)
	}
	return ep.TInject(b, peer, l.tag(seq))
}

// tag is that of a numbered message.
func (l *leg) tag(seq int64) uint64 {
	if l.race != nil {
		return tagBase | uint64(l.index)<<senderShift | uint64(seq)&senderSeq
	}
	return tagBase | uint64(seq)&tagSeq
}

// seqOf is the number that a numbered message carries, -1 if none.
func (l *leg) seqOf(e *cq.Entry) int64 {
	if l.spec.tagged() {
		return int64(e.Tag & tagSeq)
	}
	if e.Flags&fi.RemoteCQData == 0 {
		return -1
	}
	return int64(e.Data)
}

// verify checks a message that came to slot s.
func (l *leg) verify(e *cq.Entry, s *slot) {
	seq := l.seqOf(e)
	wrong := 0
	if n := int64(e.Len); n != l.spec.Size {
		wrong = int(max(n, l.spec.Size) - min(n, l.spec.Size))
	}
	wrong += l.pat.Verify(s.buf[:min(e.Len, len(s.buf))], uint64(seq))
	l.check.WrongBytes += int64(wrong)
	// Messages of an ordered endpoint take the receives in the order posted.
	dup := seq < 0
	if !dup && !l.spec.Churn { // transactions that failed leave gaps
		dup = !l.ledger.Take(uint64(seq)) || l.spec.Mode == "rod" && seq != s.seq
	}
	switch {
	case dup:
		l.check.Dup++
		l.check.Wrong++
	case wrong > 0:
		l.check.Wrong++
	default:
		l.check.OK++
	}
}

// since is the leg's clock.
func (l *leg) since() time.Duration { return time.Since(l.begun) }

// A meter measures one direction.
type meter struct {
	m         *Measure
	clock     func() time.Duration // the leg's
	zero      time.Duration        // of clock, since origin
	on, ended bool
	base      int64
	from      time.Duration
	late      time.Duration // from when on user and sys are, after from
	user, sys time.Duration
}

// origin is what the legs of a process have in common.
var origin = time.Now()

func (l *leg) meter(m *Measure) meter {
	return meter{m: m, clock: l.since, zero: l.begun.Sub(origin)}
}

func (m *meter) start(now time.Duration, done int64) {
	m.on, m.base, m.from = true, done, now
	m.user, m.sys = usage()
}

// startWithin starts the clock of a stream that had had messages at before, has done
// at now, and finds its warm-up over. Messages complete in batches: with -n all but
// those of the warm-up count, as if those of the batch had come one by one. before of a
// first batch is when the leg found its gate open, 0 if the batch was faster.
func (m *meter) startWithin(s *Spec, before, now time.Duration, had, done int64) {
	if s.Iters == 0 || done <= s.Warmup {
		m.start(now, done)
		return
	}
	at := before + time.Duration(float64(now-before)*float64(s.Warmup-had)/float64(done-had))
	m.start(at, s.Warmup)
	m.late = now - at
}

func (m *meter) end(now time.Duration, done int64) {
	if !m.on || m.ended {
		return
	}
	m.ended = true
	m.m.Msgs, m.m.Begin, m.m.Duration = done-m.base, m.zero+m.from, max(0, now-m.from)
	// The leg may end later than its last message came. What it used is told for the
	// measured time; but what it used while it looked for a peer that was gone says
	// nothing of the messages before.
	over := max(0, m.clock()-now)
	if over > max(m.m.Duration/usageSlack, usageLeast) || m.late > m.m.Duration/usageSlack {
		return
	}
	u, s := usage()
	part := float64(m.m.Duration) / max(1, float64(m.m.Duration+over))
	m.m.User, m.m.Sys = time.Duration(float64(u-m.user)*part), time.Duration(float64(s-m.sys)*part)
}

// usageSlack is the part of the measured time by which the processor time may be of
// a longer one, usageLeast by how much it always may.
const (
	usageSlack = 10
	usageLeast = 250 * time.Millisecond
)

// stream is the loop of bw and rate: a window of sends, receives that are
// posted again, or both.
func (l *leg) stream() error {
	s := l.spec
	inject := s.Op == Inject
	sends, receives := len(l.tx) > 0, len(l.rx) > 0
	window := len(l.tx)
	total := int64(-1) // messages to send, once known
	if s.Iters > 0 {
		total = s.Warmup + s.Iters
	}
	var (
		posted, done, got int64
		txm               = l.meter(&l.res.Tx)
		rxm               = l.meter(&l.res.Rx)
		txp               = place{muster: l.both.tx}
		rxp               = place{muster: l.both.rx}
		free              = make([]*slot, 0, window) // buffers to send from
		last              time.Duration              // something completed
		closed            = !sends
		said              bool
	)
	for i := range l.tx {
		free = append(free, &l.tx[i])
	}
	finish := func() {
		txm.end(last, done)
		rxm.end(last, got)
		l.res.Sent, l.res.Received = posted, got
	}
	for {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		had, hadGot := done, got
		if opened := l.open(); opened && !closed {
			if l.stop.Load() {
				total = posted
			}
			if !txm.on && s.Warmup == 0 && txp.begins() {
				txm.start(l.since(), done)
			}
			// With -n the warm-up ends before the first message that counts is sent: one
			// that was under way with it would seem to take no time.
			most := total
			if s.Iters > 0 && !inject && !txm.on {
				most = min(total, s.Warmup)
			}
			for n := 0; n < window && len(free) > 0 && posted != most; n++ {
				b := free[len(free)-1]
				if l.check != nil {
					l.pat.Fill(b.buf, uint64(posted))
				}
				err := l.send(b.buf, posted, b)
				if err == fi.EAGAIN {
					break
				}
				if err != nil {
					finish()
					return fmt.Errorf("post: %w", err)
				}
				posted++
				if inject {
					done++
				} else {
					free = free[:len(free)-1]
				}
			}
			if posted == total {
				closed = true
				l.res.Sent = posted
				l.tell()
			}
		}
		// Injected messages complete in silence: nothing would end a wait.
		n, err := l.p.read(!inject || closed)
		if err != nil {
			finish()
			return err
		}
		for i := range n {
			e := &l.p.ents[i]
			b := e.Context.(*slot)
			if !b.isRecv {
				done++
				free = append(free, b)
				continue
			}
			got++
			if l.check != nil {
				l.verify(e, b)
			}
			if err := l.recv(b); err != nil {
				finish()
				return fmt.Errorf("post: %w", err)
			}
		}
		for k := len(l.again); k > 0; k-- {
			b := l.again[0]
			l.again = append(l.again[:0], l.again[1:]...)
			if err := l.recv(b); err != nil {
				finish()
				return fmt.Errorf("post: %w", err)
			}
		}
		if n > 0 || inject {
			now, before := l.since(), max(last, l.opened)
			if n > 0 || !closed {
				last = now
			}
			// A warm-up that takes as long as the test is one.
			warm := total < 0 && now-l.opened >= s.Time
			if sends && !txm.on && (done >= s.Warmup && txp.begins() || warm) {
				txm.startWithin(s, before, now, had, done)
			}
			if receives && !rxm.on && (got >= s.Warmup && rxp.begins() || warm) {
				rxm.startWithin(s, before, now, hadGot, got)
			}
			switch {
			case txm.on && total < 0 && txp.over(now-txm.from, s.Time):
				txm.end(now, done)
				total = posted
			case txm.on && done == total:
				txm.end(now, done)
			}
			l.live.Store(done + got)
		}
		if !closed || posted != done {
			continue
		}
		if peer := l.peerSent.Load(); receives && (peer < 0 || got < peer) {
			continue
		}
		if !said {
			said = true
			finish()
			l.complete()
		}
		if l.over.Load() {
			return nil
		}
	}
}

// pingpong is the client's loop of lat and ping.
func (l *leg) pingpong() error {
	s := l.spec
	total := int64(1<<63 - 1)
	if s.Iters > 0 {
		total = s.Warmup + s.Iters
	}
	inject, slots := s.Op == Inject, int64(len(l.tx))
	var (
		n     int64 // round trips
		got   int64 // messages received
		out   *slot // receive to post again
		m     = l.meter(&l.res.Tx)
		rtt   time.Duration
		last  time.Duration // end of the last round trip
		done  int64         // sends completed
		pause = time.NewTimer(0)
	)
	defer pause.Stop()
	finish := func() {
		m.end(last, n)
		l.res.Sent, l.res.Received = n, got
	}
	// What the last round trip leaves to do is done while the next is under way.
	settle := func() error {
		if m.on && n > m.base {
			d := rtt
			if s.Test == Lat {
				d /= 2
			}
			l.hist.record(d, 1)
		}
		if out != nil {
			b := out
			out = nil
			return l.recv(b)
		}
		return nil
	}
	for n < total && !l.stop.Load() {
		tx := &l.tx[n%slots]
		if l.check != nil {
			l.pat.Fill(tx.buf, uint64(n))
		}
		begin := l.since()
		// A warm-up that takes as long as the test is one.
		if n == s.Warmup || !m.on && s.Iters == 0 && begin >= s.Time {
			m.start(begin, n)
		}
		if s.Iters == 0 && m.on && begin-m.from >= s.Time {
			break
		}
		for {
			err := l.send(tx.buf, n, tx)
			if err == nil {
				break
			}
			if err != fi.EAGAIN || l.aborted.Load() {
				finish()
				return fmt.Errorf("post: %w", err)
			}
			_, _ = l.end.cq.Read(nil) // makes progress
		}
		if err := settle(); err != nil {
			finish()
			return fmt.Errorf("post: %w", err)
		}
		// The one that had the next one's place has to complete by now. One ACK, behind
		// an answer, may tell of several messages (docs/decisions/0025), so to wait for
		// this one would add the ACK's way to each round trip.
		back := false
		if inject {
			done++
		} else {
			tx.busy = true
		}
		for next := &l.tx[(n+1)%slots]; next.busy || !back; {
			k, err := l.p.read(true)
			if err != nil || l.aborted.Load() {
				if err == nil {
					err = errAborted
				}
				finish()
				return err
			}
			for i := range k {
				e := &l.p.ents[i]
				b := e.Context.(*slot)
				if !b.isRecv {
					b.busy = false
					done++
					continue
				}
				back = true
				got++
				out = b
				if l.check != nil {
					l.verify(e, b)
				}
			}
		}
		last = l.since()
		rtt = last - begin
		if n == 0 {
			l.res.First = rtt
		}
		n++
		l.live.Store(n)
		if l.onReply != nil {
			l.onReply(n-1, rtt)
		}
		if s.Interval > 0 && n < total {
			pause.Reset(s.Interval)
			for waiting := true; waiting && !l.stop.Load() && !l.aborted.Load(); {
				select {
				case <-pause.C:
					waiting = false
				case <-time.After(min(s.Interval, waitSlice)):
				}
			}
		}
	}
	finish()
	if err := settle(); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	for done < n {
		k, err := l.p.read(true)
		if err != nil {
			return err
		}
		if l.aborted.Load() {
			return errAborted
		}
		for i := range k {
			if !l.p.ents[i].Context.(*slot).isRecv {
				done++
			}
		}
	}
	l.tell()
	return l.linger()
}

// linger polls until the other side is complete.
func (l *leg) linger() error {
	for !l.over.Load() {
		if l.aborted.Load() {
			return errAborted
		}
		if _, err := l.p.read(true); err != nil {
			return err
		}
	}
	return nil
}

// echo is the server's loop of lat and ping: it sends back what it receives.
func (l *leg) echo() error {
	inject := l.spec.Op == Inject
	var got, done int64
	m := l.meter(&l.res.Rx)
	if l.spec.Warmup == 0 {
		m.start(l.since(), 0)
	}
	said := false
	finish := func() {
		m.end(l.since(), got)
		l.res.Sent, l.res.Received = done, got
	}
	for !l.over.Load() {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		n, err := l.p.read(true)
		if err != nil {
			finish()
			return err
		}
		for i := range n {
			e := &l.p.ents[i]
			b := e.Context.(*slot)
			if !b.isRecv {
				continue
			}
			got++
			// The reply leaves first, then the message is looked at. Its buffer
			// is not posted again before the reply has completed.
			back := b.buf[:min(e.Len, len(b.buf))]
			seq := int64(0)
			if l.check != nil {
				seq = l.seqOf(e)
			}
			for {
				b.isRecv = false
				err := l.send(back, seq, b)
				if err == nil {
					break
				}
				if err != fi.EAGAIN || l.aborted.Load() {
					finish()
					return fmt.Errorf("post: %w", err)
				}
				_, _ = l.end.cq.Read(nil) // makes progress
			}
			if l.check != nil {
				l.verify(e, b)
			}
			if inject {
				done++
				b.isRecv = true
				if err := l.recv(b); err != nil {
					finish()
					return fmt.Errorf("post: %w", err)
				}
			}
			if !m.on && got >= l.spec.Warmup {
				m.start(l.since(), got)
			}
		}
		for i := range n {
			e := &l.p.ents[i]
			if b := e.Context.(*slot); e.Flags&fi.Send != 0 {
				done++
				b.isRecv = true
				if err := l.recv(b); err != nil {
					finish()
					return fmt.Errorf("post: %w", err)
				}
			}
		}
		if peer := l.peerSent.Load(); !said && peer >= 0 && got >= peer && done >= got {
			said = true
			finish()
			l.complete()
		}
	}
	finish()
	return nil
}
