package perf

import (
	"errors"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// Load and rr exchange requests and replies. A request says its number, and so
// does its reply, so that replies may come in any order.
//
// Load is an open loop: each request has a time at which it is meant to begin,
// whatever became of those before, and its latency counts from that time to the
// reply. A round trip needs one clock, and its end is what the application at the
// other end did, not what its transport promised. What cannot begin in time waits
// its turn; nothing is left out, so an end that stalls shows in every request that
// the stall delayed.

const (
	// LateAfter is how long after its intended time a request has begun late.
	LateAfter = 100 * time.Microsecond
	// drainPart of the time, but at least drainLeast and at most drainMost, is
	// what requests that wait have after the end before they are given up.
	drainPart  = 10
	drainLeast = 100 * time.Millisecond
	drainMost  = time.Second
	// piledUp, or a hundredth of the time if that is more, is the delay of the last
	// request that says that requests pile up.
	piledUp = 20 * time.Millisecond
	// replyBit tells the contents of a reply from that of its request.
	replyBit = 1 << 62
	// seqAhead times the window is how far a request may be ahead of the oldest
	// one that is not answered.
	seqAhead = 4
)

// exchanged is what a client's leg found, besides its LegResult and histogram:
// of requests that were measured.
type exchanged struct {
	offered int64         // meant to begin
	late    int64         // of those
	unsent  int64         // of those, never begun
	span    time.Duration // in which they were meant to
	lag     time.Duration
	lastLag time.Duration // of the last that began
	errors  int64
	lastErr error
	// opened and closed are the times of churn.
	opened, closed *histogram
}

// exchange is the client's loop of load, and of rr without churn.
func (l *leg) exchange() error {
	s := l.spec
	var arr *arrivals
	if s.Test == Load {
		arr = newArrivals(s, l.index)
	}
	window := int64(len(l.tx))
	ring := int64(1)
	for ring < seqAhead*window {
		ring *= 2
	}
	var (
		due      = make([]time.Duration, ring) // by number; gone: answered
		free     = make([]*slot, 0, window)
		posted   int64 // requests
		sent     int64 // requests that completed
		got      int64 // replies
		oldest   int64 // request that is not answered
		first    = int64(-1)
		from     time.Duration // the time of first
		measured int64
		last     time.Duration
		closed   bool
		m        = l.meter(&l.res.Tx)
		ex       = &l.ex
	)
	const gone = time.Duration(-1)
	for i := range l.tx {
		free = append(free, &l.tx[i])
	}
	finish := func() {
		m.end(last, measured)
		if arr != nil && first >= 0 && ex.span == 0 {
			ex.span = min(arr.next()-from, s.Time)
		}
		if l.res.Tx.Msgs = measured; arr != nil && !l.stop.Load() && !l.aborted.Load() {
			l.res.Tx.Duration = max(l.res.Tx.Duration, s.Time)
		}
		l.res.Sent, l.res.Received = posted, got
	}
	// giveUp counts what was meant to begin before a time and did not.
	giveUp := func(end time.Duration) {
		closed = true
		if first < 0 || arr == nil {
			return
		}
		n := arr.until(end)
		ex.unsent += n
		ex.late += n
		ex.offered += n
		ex.span = end - from
		l.waited(arr, n, end, l.since())
	}
	for {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		now := l.since()
		for n := 0; !closed && n < len(l.tx); n++ {
			at := now
			if arr != nil {
				at = arr.next()
			}
			// A warm-up that takes as long as the test is one.
			if first < 0 && (posted == s.Warmup || s.Iters == 0 && now >= s.Time) {
				if first, from = posted, at; arr != nil {
					from = arr.since()
				}
				m.start(from, 0)
			}
			switch {
			case l.stop.Load():
				giveUp(now)
			case first < 0:
			case s.Iters > 0 && posted == first+s.Iters, s.Iters == 0 && arr == nil && at-from >= s.Time, arr != nil && arr.over(from+s.Time):
				closed = true
			case arr != nil && now-from >= s.Time+min(max(s.Time/drainPart, drainLeast), drainMost):
				giveUp(from + s.Time)
			}
			if closed || at > now || len(free) == 0 || posted-got >= window || posted-oldest >= seqAhead*window {
				break
			}
			b := free[len(free)-1]
			if l.check != nil {
				l.pat.Fill(b.buf, uint64(posted))
			}
			if arr != nil {
				now = l.since()
			}
			err := l.send(b.buf, posted, b)
			if err == fi.EAGAIN {
				break
			}
			if err != nil {
				finish()
				return fmt.Errorf("post: %w", err)
			}
			free = free[:len(free)-1]
			due[posted&(ring-1)] = at
			posted++
			if first >= 0 {
				ex.offered++
				ex.lastLag = now - at
				if ex.lag = max(ex.lag, ex.lastLag); ex.lastLag > LateAfter {
					ex.late++
				}
			}
			if arr != nil {
				arr.step()
			}
		}
		wait := waitSlice
		if arr != nil && !closed && posted-got < window && len(free) > 0 {
			wait = arr.next() - l.since() // negative: at once
		}
		n, err := l.p.readFor(wait)
		if err != nil {
			finish()
			return err
		}
		if n > 0 {
			now = l.since()
		}
		for i := range n {
			e := &l.p.ents[i]
			b := e.Context.(*slot)
			if !b.isRecv {
				sent++
				free = append(free, b)
				continue
			}
			seq := l.seqOf(e)
			known := seq >= oldest && seq < posted && due[seq&(ring-1)] != gone
			if known {
				at := &due[seq&(ring-1)]
				if first >= 0 && seq >= first {
					measured++
					last = now
					l.took(l.hist, now-*at)
				}
				*at = gone
				got++
				for oldest < posted && due[oldest&(ring-1)] == gone {
					oldest++
				}
			}
			l.verifyReply(e, b, seq, known)
			if err := l.recv(b); err != nil {
				finish()
				return fmt.Errorf("post: %w", err)
			}
		}
		if err := l.recvAgain(); err != nil {
			finish()
			return err
		}
		l.live.Store(got)
		if closed && got == posted && sent == posted {
			finish()
			l.tell()
			return l.linger()
		}
	}
}

// took records a latency.
func (l *leg) took(h *histogram, d time.Duration) {
	h.record(d, 1)
}

// waited records for n requests that were given up the time that they waited, from
// their intended times until now: less than it would have become.
func (l *leg) waited(a *arrivals, n int64, end, now time.Duration) {
	const parts = 1000
	for i := range int64(parts) {
		if k := n*(i+1)/parts - n*i/parts; k > 0 {
			at := a.at + (float64(end)-a.at)*(float64(i)+0.5)/parts
			l.hist.record(time.Duration(float64(now)-at), k)
		}
	}
}

// recvAgain posts receives that found no room.
func (l *leg) recvAgain() error {
	for k := len(l.again); k > 0; k-- {
		b := l.again[0]
		l.again = append(l.again[:0], l.again[1:]...)
		if err := l.recv(b); err != nil {
			return fmt.Errorf("post: %w", err)
		}
	}
	return nil
}

// verifyReply checks a reply; known says that its request waits for one.
func (l *leg) verifyReply(e *cq.Entry, s *slot, seq int64, known bool) {
	if l.check == nil {
		return
	}
	wrong := 0
	if n := int64(e.Len); n != l.spec.Reply {
		wrong = int(max(n, l.spec.Reply) - min(n, l.spec.Reply))
	}
	wrong += l.pat.Verify(s.buf[:min(e.Len, len(s.buf))], uint64(seq)|replyBit)
	l.check.WrongBytes += int64(wrong)
	switch {
	case !known:
		l.check.Dup++
		l.check.Wrong++
	case wrong > 0:
		l.check.Wrong++
	default:
		l.check.OK++
	}
}

// respond is the server's loop of load and rr: it answers what comes.
func (l *leg) respond() error {
	var (
		got, replied int64
		later        []*slot // replies that found no room
		m            = l.meter(&l.res.Rx)
		said         = false
		churn        = l.spec.Churn && l.spec.service().ep == RDM
	)
	finish := func() {
		m.end(l.since(), got)
		l.res.Sent, l.res.Received = replied, got
	}
	reply := func(b *slot) error {
		switch err := l.send(b.reply, b.num, b); err {
		case nil:
			return nil
		case fi.EAGAIN:
			later = append(later, b)
			return nil
		default:
			return fmt.Errorf("post: %w", err)
		}
	}
	if l.spec.Warmup == 0 {
		m.start(l.since(), 0)
	}
	for !l.over.Load() {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		n, err := l.p.read(len(later) == 0)
		if err != nil {
			finish()
			return err
		}
		for i := range n {
			e := &l.p.ents[i]
			b := e.Context.(*slot)
			if e.Flags&fi.Send != 0 {
				replied++
				if churn {
					_ = l.end.ep.Quiesce(l.peer)
				}
				err = l.recv(b)
			} else {
				got++
				b.num = l.seqOf(e)
				if l.check != nil {
					l.pat.Fill(b.reply, uint64(b.num)|replyBit)
				}
				// The reply leaves first, then the request is looked at. Its
				// buffer is not posted again before the reply has completed.
				if err = reply(b); l.check != nil {
					l.verify(e, b)
				}
				if !m.on && got >= l.spec.Warmup {
					m.start(l.since(), got)
				}
			}
			if err != nil {
				finish()
				return err
			}
		}
		for k := len(later); k > 0 && err == nil; k-- {
			b := later[0]
			later = append(later[:0], later[1:]...)
			err = reply(b)
		}
		if err == nil {
			err = l.recvAgain()
		}
		if err != nil {
			finish()
			return err
		}
		l.live.Store(got)
		if peer := l.peerSent.Load(); !said && peer >= 0 && got >= peer && replied >= got {
			said = true
			finish()
			l.complete()
		}
	}
	finish()
	return nil
}

const (
	// churnErrors transactions in a row that fail end the test.
	churnErrors = 5
	// closeWait is how long a close may take, closeLook how often it is looked
	// whether it has ended by those who do not poll.
	closeWait = time.Second
	closeLook = 50 * time.Microsecond
)

var (
	errNoReply  = errors.New("no reply came")
	errNotEnded = fmt.Errorf("the packet delivery contexts did not end within %v", closeWait)
)

// churn is the client's loop of rr that opens and closes what carries a
// transaction. With rdm these are the packet delivery contexts of both ends, which
// open with the data in their first packets; with msg endpoint and connection.
func (l *leg) churn() error {
	s, ex := l.spec, &l.ex
	ex.opened, ex.closed = newHistogram(), newHistogram()
	var (
		n, good, row int64 // transactions, those that went well, failures in a row
		measured     int64
		last         time.Duration
		m            = l.meter(&l.res.Tx)
		tx, rx       = &l.tx[0], &l.rx[0]
	)
	finish := func() {
		m.end(last, measured)
		l.res.Tx.Msgs = measured
		l.res.Sent, l.res.Received = good, good
	}
	for !l.stop.Load() {
		begin := l.since()
		if !m.on && (n >= s.Warmup || s.Iters == 0 && begin >= s.Time) {
			m.start(begin, 0)
		}
		if m.on && (s.Iters > 0 && n == s.Warmup+s.Iters || s.Iters == 0 && begin-m.from >= s.Time) {
			break
		}
		t, err := l.transaction(n, tx, rx)
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		n++
		last = l.since()
		if err != nil {
			if ex.lastErr = err; m.on {
				ex.errors++
			}
			if row++; row == churnErrors {
				finish()
				return err
			}
			continue
		}
		row = 0
		good++
		l.live.Store(good)
		if m.on {
			measured++
			l.took(l.hist, t.answered)
			l.took(ex.opened, t.opened)
			l.took(ex.closed, t.closed)
		}
	}
	finish()
	if l.told = true; l.dial != nil {
		l.sent(0) // nothing went by the connection that stays
	} else {
		l.sent(good)
	}
	return l.linger()
}

// times of one transaction: until what carries it was open, from then (rdm: from
// the begin, as the data opens it) to the reply, and until all was closed.
type times struct{ opened, answered, closed time.Duration }

// transaction opens, asks, and closes.
func (l *leg) transaction(seq int64, tx, rx *slot) (t times, err error) {
	begin := time.Now()
	e, p, peer := l.end, &l.p, l.peer
	if l.dial != nil {
		if e, err = l.dial(l.ctx); err != nil {
			return t, err
		}
		defer func() {
			from := time.Now()
			l.gone.add(e)
			e.close()
			t.closed = time.Since(from)
		}()
		p, peer = &poller{end: e, block: l.p.block, ents: l.p.ents}, fi.AddrUnspec
		if err = l.recvOn(e, rx); err != nil {
			return t, err
		}
		t.opened = time.Since(begin)
	}
	asked := time.Now()
	if l.check != nil {
		l.pat.Fill(tx.buf, uint64(seq))
	}
	giveUp := asked.Add(l.patience())
	for {
		if err = l.sendOn(e, peer, tx.buf, seq, tx); err != fi.EAGAIN {
			break
		}
		if l.aborted.Load() || time.Now().After(giveUp) {
			break
		}
		_, _ = e.cq.Read(nil) // makes progress
	}
	if err != nil {
		return t, fmt.Errorf("post: %w", err)
	}
	for sent, back := false, false; !sent || !back; {
		k, err := p.read(true)
		switch {
		case err != nil:
			return t, err
		case l.aborted.Load():
			return t, errAborted
		case k == 0 && time.Now().After(giveUp):
			return t, errNoReply
		}
		for i := range k {
			c := &p.ents[i]
			b := c.Context.(*slot)
			if !b.isRecv {
				sent = true
				if l.dial == nil {
					t.opened = time.Since(begin)
				}
				continue
			}
			// One of a transaction that failed may come late.
			if got := l.seqOf(c); got == seq || l.dial != nil {
				back = true
				t.answered = time.Since(asked)
				l.verifyReply(c, b, got, got == seq)
			}
			if l.dial == nil {
				if err := l.recv(b); err != nil {
					return t, fmt.Errorf("post: %w", err)
				}
			}
		}
	}
	if l.dial != nil {
		return t, nil
	}
	from := time.Now()
	if err = e.ep.Quiesce(peer); err != nil {
		return t, err
	}
	for e.ep.Load().PDCs > 0 {
		if time.Since(from) > closeWait {
			return t, errNotEnded
		}
		if l.aborted.Load() {
			return t, errAborted
		}
		// Nothing completes when a context is gone: look now and then.
		if _, err := p.readFor(closeLook); err != nil {
			return t, err
		}
	}
	t.closed = time.Since(from)
	return t, nil
}

// patience is how long a transaction may take.
func (l *leg) patience() time.Duration {
	if d := l.spec.PeerTimeout; d > 0 {
		return d
	}
	return 8 * time.Second
}
