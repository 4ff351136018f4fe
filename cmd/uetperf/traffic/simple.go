package traffic

// postSimply is postEach for many messages of a stream of which nothing is lost, checked or
// injected. A sender of 8-byte messages does little else than this for each.
func (t *stream) postSimply(most int64) error {
	n := min(len(t.tx), len(t.ready))
	if most >= 0 {
		n = int(min(int64(n), most-t.posted))
	}
	if n <= 0 {
		return nil
	}
	kept := len(t.ready) - n
	next, timed := t.ready[kept:], t.hist != nil && t.txm.on
	var err error
	for len(next) > 0 {
		some := next
		if timed {
			some = t.beginAll(next)
		}
		var sent int
		sent, err = t.Conn.SendAll(some, t.posted)
		if timed {
			t.begunAll(some, sent)
		}
		t.posted += int64(sent)
		next = next[sent:]
		if sent < len(some) {
			break
		}
	}
	t.ready = append(t.ready[:kept], next...)
	if err != nil {
		return postError(err)
	}
	return nil
}

// beginAll returns those of the next slots that can be posted before the clock is read again. It notes
// when the first begins, if its time is to be taken.
func (t *stream) beginAll(next []*Slot) []*Slot {
	if t.skip > 0 {
		return next[:min(len(next), t.skip)]
	}
	next[0].at = max(1, t.since())
	return next[:min(len(next), t.every)]
}

// begunAll notes how many of those were posted.
func (t *stream) begunAll(some []*Slot, sent int) {
	switch {
	case some[0].at == 0:
		t.skip -= sent
	case sent == 0:
		some[0].at = 0
	default:
		t.skip = t.every - sent
	}
}

// Plain reports whether the owner of the leg may call Note for each completion, where it otherwise calls
// Take.
func (l *Leg) Plain() bool { return l.ping != nil && !l.linger }

// Note is Take for one completion of a Plain leg.
func (l *Leg) Note(s *Slot, sent bool) {
	t := l.ping
	if sent {
		s.busy = false
		t.done++
		return
	}
	t.back = true
	t.got++
	t.out = s
}

// settle is called when the clock of the test has started. From now on a round trip of many is like the
// one before.
func (t *pingpong) settle() {
	s := t.Spec
	t.steady = t.ping == t && s.Test == Lat && s.Op != Inject && s.Interval == 0 && t.Reply == nil
	if t.until = 1<<63 - 1; s.Iters == 0 {
		t.until = t.m.from + s.Time
	}
}

// turnSimply is Turn where a round trip has ended that was like the one before, and another follows. It
// returns false if that is not so, or if there is no room: a usual turn does what is to be done then. The
// other end waits for what is done before the message is sent, so most is done after that.
func (t *pingpong) turnSimply() (bool, error) {
	i := t.next()
	b := &t.tx[i]
	if !t.steady || !t.away || !t.back || b.busy || t.n+1 >= t.total || len(t.again) > 0 || t.Stop.Load() || t.Aborted.Load() {
		return false, nil
	}
	now := t.since()
	if now >= t.until {
		return false, nil
	}
	rtt := now - t.begin
	t.begin, t.last, t.n, t.i = now, now, t.n+1, i
	ok, err := t.Conn.Send(b.Buf, t.n, b)
	if err != nil {
		return false, postError(err)
	}
	if !ok { // Post tries again
		t.rtt, t.filled, t.away = rtt, true, false
		return false, nil
	}
	b.busy, t.back = true, false
	t.Live.Store(t.n)
	t.hist.record(rtt/2, 1)
	out := t.out
	t.out = nil
	return true, t.recv(out)
}

// takeSimply is Take for messages that are sent back, and are neither lost nor checked. The answers come
// first: receives are posted again while they are under way.
func (t *answerer) takeSimply(cs []Completion) error {
	for i := range cs {
		c := &cs[i]
		if c.Sent {
			continue
		}
		t.got++
		c.num, c.len = c.Seq, min(c.Len, len(c.Buf))
		if _, err := t.answer(c.Slot); err != nil {
			return err
		}
	}
	if !t.m.on && t.got >= t.Spec.Warmup {
		t.m.start(t.since(), t.got)
	}
	for i := range cs {
		if !cs[i].Sent {
			continue
		}
		if err := t.answeredOne(cs[i].Slot); err != nil {
			return err
		}
	}
	return nil
}
