package traffic

import "time"

// A stream is the leg of bw and rate: a window of sends, receives that are posted again, or
// both.
type stream struct {
	*Leg
	inject            bool
	simple            bool  // postSimply posts
	total             int64 // messages to send; -1 means not known yet
	posted, done, got int64
	had, hadGot       int64 // done and got at the last look
	txm, rxm          meter
	txp, rxp          place
	ready             []*Slot       // free buffers to send from
	last              time.Duration // when something last completed
	closed, said      bool
	heard             time.Duration // when a message last came
	quiet             silence       // of datagrams
	pace              pace          // of datagrams
	// every says of how many messages one has its time taken, skip how many come before the next one.
	every, skip int
}

// The times of few messages are taken: a clock costs as much as a tenth of a small message. The
// number is odd, so that it is not always the same place in a window or a train of packets.
const (
	timedOf   = 17
	timedEach = 64 << 10 // bytes of a message whose time is always taken
)

func newStream(l *Leg) *stream {
	t := &stream{
		Leg: l, inject: l.Spec.Op == Inject, total: -1, ready: l.free(), closed: len(l.tx) == 0,
		txm: l.meter(&l.Res.Tx), rxm: l.meter(&l.Res.Rx), txp: place{muster: l.Group.both.tx}, rxp: place{muster: l.Group.both.rx},
	}
	if t.every = timedOf; l.Spec.Size >= timedEach {
		t.every = 1
	}
	if l.Spec.Iters > 0 {
		t.total = l.Spec.Warmup + l.Spec.Iters
	}
	if !l.Spec.Lossy() && l.check == nil {
		l.stream = t
		t.simple = !t.inject && !l.Spec.OneSided()
	}
	return t
}

// Post keeps the window full.
func (t *stream) Post() (time.Duration, error) {
	s := t.Spec
	t.had, t.hadGot = t.done, t.got
	if s.Lossy() {
		if err := t.pace.tell(t.Leg); err != nil {
			return 0, err
		}
		t.pace.look(s, t.since(), t.posted)
	}
	if t.open() && !t.closed {
		if t.Stop.Load() {
			t.total = t.posted
		}
		if !t.txm.on && s.Warmup == 0 && t.txp.begins() {
			t.txm.start(t.since(), t.done)
		}
		// With -n, the warm-up ends before the first measured message is sent. A message that was
		// under way together with the warm-up would seem to take no time.
		most := t.total
		if s.Iters > 0 && !t.inject && !t.txm.on {
			most = min(t.total, s.Warmup)
		}
		post := t.postEach
		if t.simple {
			post = t.postSimply
		}
		if err := post(most); err != nil {
			return 0, err
		}
		if t.posted == t.total {
			t.closed = true
			t.Res.Sent = t.posted
			t.tell()
		}
	}
	if !t.closed && t.pace.holds(s, t.posted) {
		return t.pace.left(t.Spec, t.since()), nil
	}
	if t.inject && !t.closed { // an injected message has no completion, so nothing would end a wait
		return 0, nil
	}
	return Idle, nil
}

// postEach posts messages or accesses one by one, while there is room, until most are posted.
func (t *stream) postEach(most int64) error {
	for n := 0; n < len(t.tx) && len(t.ready) > 0 && t.posted != most && !t.pace.holds(t.Spec, t.posted); n++ {
		b := t.ready[len(t.ready)-1]
		t.prepare(b, t.posted)
		timed := t.hist != nil && t.txm.on
		if timed {
			t.begin(b)
		}
		ok, err := t.call(b, t.posted)
		if err != nil {
			return PostError(err)
		}
		if !ok {
			if timed {
				t.unbegun(b)
			}
			return nil
		}
		t.posted++
		if t.inject {
			t.done++
		} else {
			t.ready = t.ready[:len(t.ready)-1]
		}
	}
	return nil
}

// begin notes when an operation begins, if its time is to be taken.
func (t *stream) begin(b *Slot) {
	if t.skip > 0 {
		t.skip--
		return
	}
	t.skip = t.every - 1
	b.at = max(1, t.since())
}

// unbegun forgets an operation that found no room. It begins later.
func (t *stream) unbegun(b *Slot) {
	if b.at > 0 {
		b.at, t.skip = 0, 0
		return
	}
	t.skip++
}

// ended takes the time of an operation that has completed.
func (t *stream) ended(b *Slot, now time.Duration) {
	t.hist.record(now-b.at, 1)
	b.at = 0
}

func (t *stream) Take(c *Completion) error {
	if t.Spec.Lossy() && (c.word || !c.Sent && c.Seq >= wordBit) {
		return t.pace.take(t.Leg, c)
	}
	if c.Sent {
		if c.at > 0 {
			t.ended(c.Slot, t.since())
		}
		t.done++
		t.ready = append(t.ready, c.Slot)
		t.accessed(c)
		return nil
	}
	if t.Spec.Lossy() && !t.fresh(c) {
		return t.recv(c.Slot)
	}
	t.got++
	t.pace.came(c)
	t.verify(c)
	return t.recv(c.Slot)
}

// takeSimply is Take for many completions of a stream of which nothing is lost or checked. A receiver of 8-byte messages does
// little else than this for each.
func (t *stream) takeSimply(cs []Completion) error {
	conn, reads, now := t.Conn, t.Spec.OneSided(), time.Duration(0)
	for i := range cs {
		c := &cs[i]
		s := c.Slot
		if c.Sent {
			if s.at > 0 {
				if now == 0 {
					now = t.since()
				}
				t.ended(s, now)
			}
			t.done++
			t.ready = append(t.ready, s)
			if reads {
				t.accessed(c)
			}
			continue
		}
		t.got++
		s.seq = t.posts
		ok, err := conn.Recv(s)
		if !ok {
			if err := t.unposted(s, err); err != nil {
				return err
			}
			continue
		}
		t.posts++
	}
	return nil
}

// Look starts and stops the clocks.
func (t *stream) Look(n int) (bool, error) {
	s := t.Spec
	if n > 0 || t.inject {
		now, before := t.since(), max(t.last, t.opened)
		if t.got > t.hadGot {
			t.heard = now
		}
		if n > 0 || !t.closed {
			t.last = now
		}
		// The warm-up takes at most as long as the test.
		warm := t.total < 0 && now-t.opened >= s.Time
		if len(t.tx) > 0 && !t.txm.on && (t.done >= s.Warmup && t.txp.begins() || warm) {
			t.txm.startWithin(s, before, now, t.had, t.done)
		}
		if len(t.rx) > 0 && !t.rxm.on && (t.got >= s.Warmup && t.rxp.begins() || warm) {
			t.rxm.startWithin(s, before, now, t.hadGot, t.got)
		}
		switch {
		case t.txm.on && t.total < 0 && t.txp.over(now-t.txm.from, s.Time):
			t.txm.end(now, t.done)
			t.total = t.posted
		case t.txm.on && t.done == t.total:
			t.txm.end(now, t.done)
		}
		t.Live.Store(t.done + t.got)
	}
	if !t.closed || t.posted != t.done {
		return false, nil
	}
	if peer := t.PeerSent.Load(); len(t.rx) > 0 && (peer < 0 || t.got < peer) {
		if peer < 0 || !s.Lossy() || !t.quiet.lasts(t.since(), s.patience(lossyQuiet), t.got) {
			return false, nil
		}
	}
	if !t.said {
		t.said = true
		t.Finish()
		t.Complete()
	}
	return t.Over.Load(), nil
}

func (t *stream) Finish() {
	t.txm.end(t.last, t.done)
	t.rxm.end(t.heard, t.got)
	t.Res.Sent, t.Res.Received = t.posted, t.got
}
