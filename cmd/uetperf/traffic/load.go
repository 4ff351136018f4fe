package traffic

import "time"

// Load and rr exchange requests and replies. A reply has the number of its request, so
// replies may come in any order.
//
// With an operation on memory of the server a request ends with its completion, and nobody replies.
//
// Load is an open loop: each request has a time at which it is meant to begin, whatever
// became of earlier ones. Its latency counts from that time to the reply. A round trip
// needs only one clock, and ends with an act of the application at the other end rather
// than a promise of its transport. Requests that cannot begin in time wait. None is left
// out, so a stall of one end shows in every request that it delayed.

const (
	// LateAfter is how long after its intended time a request counts as late.
	LateAfter = 100 * time.Microsecond
	// drainPart of the time, at least drainLeast and at most drainMost, is how long waiting
	// requests have after the end before they are given up.
	drainPart  = 10
	drainLeast = 100 * time.Millisecond
	drainMost  = time.Second
	// Requests pile up if the last one was delayed by more than piledUp, or by more than a
	// hundredth of the time if that is longer.
	piledUp = 20 * time.Millisecond
	// lateShare: and if more than one in so many was late.
	lateShare = 10
	// replyBit distinguishes the contents of a reply from those of its request.
	replyBit = 1 << 62
	// A request may be at most seqAhead windows ahead of the oldest unanswered one.
	seqAhead = 4
)

// exchanged is what a client's leg measured of requests, besides its LegResult and
// histogram.
type exchanged struct {
	offered int64         // requests that were meant to begin
	late    int64         // of those, begun late or never
	unsent  int64         // of those, never begun
	span    time.Duration // the time in which they were meant to begin
	lag     time.Duration
	lastLag time.Duration // delay of the last request that began
	errors  int64
	lastErr error
	// opened and closed are the times of opening and closing with churn.
	opened, closed *histogram
}

// An exchange is the client's end of load, and of rr without churn.
type exchange struct {
	*Leg
	arr      *arrivals // nil means that a request begins when there is room
	window   int64
	due      []time.Duration // intended times, by number of the request modulo the length; -1 means answered
	ready    []*Slot
	asked    []time.Duration // as due, when requests that may be lost really began
	missed   int64           // those without a reply in time
	posted   int64           // requests posted
	sent     int64           // requests whose send completed
	got      int64           // replies
	oldest   int64           // oldest unanswered request
	first    int64           // first measured request; -1 means none yet
	from     time.Duration
	measured int64
	last     time.Duration
	now      time.Duration // time of the current completions
	fresh    bool          // now is valid
	closed   bool
	m        meter
}

const answered = time.Duration(-1)

func newExchange(l *Leg) *exchange {
	t := &exchange{Leg: l, window: int64(len(l.tx)), ready: l.free(), first: -1, m: l.meter(&l.Res.Tx)}
	if l.Spec.Test == Load {
		t.arr = newArrivals(l.Spec, l.Index)
	}
	ring := int64(1)
	for ring < seqAhead*t.window {
		ring *= 2
	}
	t.due = make([]time.Duration, ring)
	if l.Spec.Lossy() {
		t.asked = make([]time.Duration, ring)
	}
	return t
}

// at returns the intended time of a request.
func (t *exchange) at(seq int64) *time.Duration { return &t.due[seq&int64(len(t.due)-1)] }

// Post begins the requests that are due.
func (t *exchange) Post() (time.Duration, error) {
	ex := &t.ex
	now := t.since()
	for n := 0; !t.closed && n < len(t.tx); n++ {
		at := now
		if t.arr != nil {
			at = t.arr.next()
		}
		t.bound(now, at)
		if t.closed || at > now || !t.room() || t.posted-t.oldest >= seqAhead*t.window {
			break
		}
		b := t.ready[len(t.ready)-1]
		b.seq = t.posted
		if t.arr != nil {
			now = t.since()
		}
		ok, err := t.post(b, t.posted)
		if err != nil {
			return 0, PostError(err)
		}
		if !ok {
			break
		}
		t.ready = t.ready[:len(t.ready)-1]
		*t.at(t.posted) = at
		if t.asked != nil {
			t.asked[t.posted&int64(len(t.asked)-1)] = now
		}
		t.posted++
		if t.first >= 0 {
			ex.offered++
			ex.lastLag = now - at
			if ex.lag = max(ex.lag, ex.lastLag); ex.lastLag > LateAfter {
				ex.late++
			}
		}
		if t.arr != nil {
			t.arr.step()
		}
	}
	if t.arr != nil && !t.closed && t.room() {
		return t.arr.next() - t.since(), nil // negative means at once
	}
	return Idle, nil
}

// room reports whether the window has room for a request.
func (t *exchange) room() bool { return len(t.ready) > 0 && t.posted-t.got-t.missed < t.window }

// bound finds out whether the next request, meant to begin at at, is the first measured
// one, or beyond the end.
func (t *exchange) bound(now, at time.Duration) {
	s := t.Spec
	// The warm-up takes at most as long as the test.
	if t.first < 0 && (t.posted == s.Warmup || s.Iters == 0 && now >= s.Time) {
		if t.first, t.from = t.posted, at; t.arr != nil {
			t.from = t.arr.since()
		}
		t.m.start(t.from, 0)
	}
	switch {
	case t.Stop.Load():
		t.giveUp(now)
	case t.first < 0:
	case s.Iters > 0 && t.posted == t.first+s.Iters, s.Iters == 0 && t.arr == nil && at-t.from >= s.Time, t.arr != nil && t.arr.over(t.from+s.Time):
		t.closed = true
	case t.arr != nil && now-t.from >= s.Time+min(max(s.Time/drainPart, drainLeast), drainMost):
		t.giveUp(t.from + s.Time)
	}
}

// giveUp counts the requests that were meant to begin before end and did not.
func (t *exchange) giveUp(end time.Duration) {
	t.closed = true
	if t.first < 0 || t.arr == nil {
		return
	}
	n := t.arr.until(end)
	t.ex.unsent += n
	t.ex.late += n
	t.ex.offered += n
	t.ex.span = end - t.from
	t.waited(n, end, t.since())
}

// waited records latencies for n requests that were given up: the time from their intended
// times until now, which is less than they would have taken.
func (t *exchange) waited(n int64, end, now time.Duration) {
	const parts = 1000
	for i := range int64(parts) {
		if k := n*(i+1)/parts - n*i/parts; k > 0 {
			at := t.arr.at + (float64(end)-t.arr.at)*(float64(i)+0.5)/parts
			t.hist.record(time.Duration(float64(now)-at), k)
		}
	}
}

func (t *exchange) Take(c *Completion) error {
	if !t.fresh { // completions that are read together came together
		t.now, t.fresh = t.since(), true
	}
	if c.Sent {
		t.sent++
		t.ready = append(t.ready, c.Slot)
		if t.Spec.OneSided() {
			t.accessed(c)
			t.replied(c.seq)
		}
		return nil
	}
	if t.Spec.Lossy() && !t.Leg.fresh(c) {
		return t.recv(c.Slot)
	}
	if known := t.replied(c.Seq); known || !t.Spec.Lossy() { // a datagram may come too late
		t.verifyReply(c, known)
	}
	return t.recv(c.Slot)
}

// replied ends a request. It reports whether it was unanswered.
func (t *exchange) replied(seq int64) bool {
	if seq < t.oldest || seq >= t.posted || *t.at(seq) == answered {
		return false
	}
	at := t.at(seq)
	if t.first >= 0 && seq >= t.first {
		t.measured++
		t.last = t.now
		t.hist.record(t.now-*at, 1)
	}
	*at = answered
	t.got++
	t.pass()
	return true
}

// pass finds the oldest unanswered request. One without a reply in time is lost, if it may be.
func (t *exchange) pass() {
	for ; t.oldest < t.posted; t.oldest++ {
		at := t.at(t.oldest)
		if *at == answered {
			continue
		}
		if t.asked == nil || t.since()-t.asked[t.oldest&int64(len(t.asked)-1)] < t.Spec.patience(answerTime) {
			return
		}
		*at = answered
		t.missed++
	}
}

func (t *exchange) Look(int) (bool, error) {
	t.fresh = false
	if t.asked != nil {
		t.pass()
	}
	t.Live.Store(t.got)
	if t.closed && t.got+t.missed == t.posted && t.sent == t.posted {
		return t.finished()
	}
	return false, nil
}

func (t *exchange) Finish() {
	t.m.end(t.last, t.measured)
	if t.arr != nil && t.first >= 0 && t.ex.span == 0 {
		t.ex.span = min(t.arr.next()-t.from, t.Spec.Time)
	}
	if t.Res.Tx.Msgs = t.measured; t.arr != nil && !t.Stop.Load() && !t.Aborted.Load() {
		t.Res.Tx.Duration = max(t.Res.Tx.Duration, t.Spec.Time)
	}
	t.Res.Sent, t.Res.Received = t.posted, t.got
}

// verifyReply checks a reply. known says that its request is unanswered.
func (l *Leg) verifyReply(c *Completion, known bool) {
	if l.check != nil {
		l.countChecked(!known, l.wrong(c, l.Spec.Reply, uint64(c.Seq)|replyBit))
	}
}
