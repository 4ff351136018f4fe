package traffic

import "time"

// A pingpong is the client's end of lat and ping: it sends one message at a time, which
// comes back.
type pingpong struct {
	*Leg
	total  int64 // round trips to make
	n      int64
	i      int   // index of the slot of round trip n
	done   int64 // sends completed
	got    int64 // messages received
	m      meter
	begin  time.Duration // of the current round trip
	rtt    time.Duration // duration of the last round trip
	last   time.Duration // end of the last round trip
	pause  time.Duration // ping: when the pause ends
	out    *Slot         // the slot whose receive is to be posted again
	missed int64         // round trips without an answer in time
	lost   bool          // the last one has none
	steady bool          // the round trips are Rounds
	until  time.Duration // when the test is to end by time
	// filled says that the next message only waits for room, away that it is under way, back
	// that it came back, drained that no other follows.
	filled, away, back, drained bool
}

func newPingpong(l *Leg) *pingpong {
	t := &pingpong{Leg: l, m: l.meter(&l.Res.Tx), total: 1<<63 - 1}
	if l.Spec.Iters > 0 {
		t.total = l.Spec.Warmup + l.Spec.Iters
	}
	if l.plain && !l.Spec.Lossy() {
		l.ping = t
	}
	return t
}

// slot returns the slot of the round trip.
func (t *pingpong) slot() *Slot { return &t.tx[t.i] }

// next returns the index of the slot of the following round trip. It is not computed from the
// number of the round trip, because a division takes as long as the rest of Look.
func (t *pingpong) next() int {
	if i := t.i + 1; i < len(t.tx) {
		return i
	}
	return 0
}

// Post begins the next round trip.
func (t *pingpong) Post() (time.Duration, error) {
	s := t.Spec
	switch {
	case t.away && s.Lossy():
		return max(t.begin+t.Spec.patience(answerTime)-t.since(), 1), nil
	case t.drained || t.away:
		return Idle, nil
	}
	if !t.filled {
		t.rests = false
		stop := t.n >= t.total || t.Stop.Load()
		if !stop && t.pause > 0 {
			if left := t.pause - t.since(); left > 0 {
				t.rests = true
				return left, nil
			}
			t.pause = 0
		}
		if !stop {
			t.begin = t.since()
			// The warm-up takes at most as long as the test.
			if t.n == s.Warmup || !t.m.on && s.Iters == 0 && t.begin >= s.Time {
				t.m.start(t.begin, t.n-t.missed)
				t.settle()
			}
			stop = s.Iters == 0 && t.m.on && t.begin-t.m.from >= s.Time
		}
		if stop {
			t.drained = true
			t.Finish()
			return 0, t.finishRound()
		}
		t.filled = true
	}
	b := t.slot()
	ok, err := t.post(b, t.n)
	if err != nil {
		return 0, PostError(err)
	}
	if !ok {
		return 0, nil
	}
	t.filled, t.away, t.back = false, true, false
	if s.Op == Inject {
		t.done++
	} else {
		b.busy = true
	}
	return Idle, t.finishRound()
}

// finishRound does what is left of the last round trip while the next one is under way.
func (t *pingpong) finishRound() error {
	if t.m.on && !t.lost && t.n-t.missed > t.m.base {
		d := t.rtt
		if t.Spec.Test == Lat && !t.Spec.OneSided() {
			d /= 2
		}
		t.hist.record(d, 1)
	}
	t.lost = false
	if b := t.out; b != nil {
		t.out = nil
		return t.recv(b)
	}
	return nil
}

func (t *pingpong) Take(c *Completion) error {
	if c.Sent {
		c.busy = false
		t.done++
		if t.Spec.OneSided() {
			t.back = true
			t.accessed(c)
		}
		return nil
	}
	if t.Spec.Lossy() && (!t.fresh(c) || !t.away || c.Seq != t.n) { // it came too late, or again
		return t.recv(c.Slot)
	}
	t.back = true
	t.got++
	t.out = c.Slot
	t.verify(c)
	return nil
}

// Look ends a round trip. The earlier message in the slot of the next one must have
// completed by then. The message of this round trip need not have: its ACK comes behind the
// answer and may report several messages (docs/decisions/0025), so waiting for it would add
// the ACK's way to each round trip.
func (t *pingpong) Look(int) (bool, error) {
	if t.drained && t.done >= t.n {
		return t.finished()
	}
	if t.away && !t.back && t.Spec.Lossy() && t.since()-t.begin >= t.Spec.patience(answerTime) {
		t.back, t.lost = true, true
		t.missed++
	}
	if t.drained || !t.away || !t.back || t.tx[t.next()].busy {
		return false, nil
	}
	t.away = false
	now := t.since()
	if t.rtt = 0; !t.lost {
		t.last, t.rtt = now, now-t.begin
	}
	if t.n == 0 {
		t.Res.First = t.rtt
	}
	t.n++
	t.i = t.next()
	t.Live.Store(t.n)
	if t.Reply != nil {
		t.Reply(t.n-1, t.rtt)
	}
	if d := t.Spec.Interval; d > 0 && t.n < t.total {
		t.pause = now + d
	}
	return false, nil
}

func (t *pingpong) Finish() {
	t.m.end(t.last, t.n-t.missed)
	t.Res.Sent, t.Res.Received = t.n, t.got
	if t.Spec.Lossy() {
		t.Res.Received = t.n - t.missed
	}
}
