package traffic

import "time"

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
		return PostError(err)
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

// Rounds are the round trips of a pingpong that are like each other: nothing is lost, checked, numbered
// or injected. The owner of the leg may make them itself, which takes less time than turns: it calls Took
// for each completion, and Next when one has ended.
type Rounds struct{ *pingpong }

// Rounds returns the round trips that the owner of the leg may make now. ok is false if it must take turns.
func (l *Leg) Rounds() (r Rounds, ok bool) {
	t := l.ping
	return Rounds{t}, t != nil && t.steady && t.away && !l.linger
}

// Took is Take for one completion.
func (t *pingpong) Took(s *Slot, sent bool) {
	if sent {
		s.busy = false
		t.done++
		return
	}
	t.back = true
	t.got++
	t.out = s
}

// Ended reports whether the round trip has ended, so that Next may be called.
func (r Rounds) Ended() bool {
	return r.away && r.back && !r.tx[r.next()].busy
}

// Next begins the next round trip: the owner sends the bytes of the slot and calls Sent or, if there is no
// room, Full. Next returns nil if a turn must be taken first. now is the time by the Conn.
func (r Rounds) Next(now time.Duration) *Slot {
	t := r.pingpong
	now -= t.begun
	if t.n+1 >= t.total || now >= t.until || len(t.again) > 0 || t.Stop.Load() || t.Aborted.Load() {
		return nil
	}
	t.rtt = now - t.begin
	t.begin, t.last, t.n, t.i = now, now, t.n+1, t.next()
	return &t.tx[t.i]
}

// Full leaves it to turns to send what Next returned.
func (r Rounds) Full() { r.filled, r.away = true, false }

// Sent does what is left of the last round trip while the next is under way. It returns the slot to
// receive in again. The owner calls Refused if that is not possible.
func (r Rounds) Sent() *Slot {
	t := r.pingpong
	t.tx[t.i].busy, t.back = true, false
	t.Live.Store(t.n)
	t.hist.record(t.rtt/2, 1)
	s := t.out
	t.out = nil
	s.seq = t.posts
	t.posts++
	return s
}

// Refused is called when a receive was not posted. A turn tries again, unless err says that there is more
// to it than room.
func (l *Leg) Refused(s *Slot, err error) error {
	l.posts--
	return l.unposted(s, err)
}

// settle is called when the clock of the test has started. From now on a round trip of many is like the
// one before.
func (t *pingpong) settle() {
	s := t.Spec
	t.steady = t.ping == t && s.Test == Lat && s.Op == TSend && s.Interval == 0 && t.Reply == nil
	if t.until = 1<<63 - 1; s.Iters == 0 {
		t.until = t.m.from + s.Time
	}
}

// Echoes are the messages of a pingpong that the server sends back, where they are like those of Rounds. The
// owner of the leg may do it itself: for each completion of a receive it calls Got and sends the bytes,
// for each of a send it calls Back and posts the receive. The answers come first: receives are posted
// again while they are under way.
type Echoes struct{ *answerer }

// Echoes returns the messages that the owner of the leg may send back now. ok is false if it must take
// turns.
func (l *Leg) Echoes() (e Echoes, ok bool) {
	t := l.echoes
	if t == nil || l.linger {
		return Echoes{}, false
	}
	return Echoes{t}, t.m.on && Echoes{t}.Goes()
}

// Goes reports whether the owner may go on. Otherwise it must take a turn.
func (e Echoes) Goes() bool {
	return e.PeerSent.Load() < 0 && len(e.later) == 0 && len(e.again) == 0 && !e.Aborted.Load()
}

// Got returns the bytes of a message to send back. The owner calls Full if there is no room for them.
func (e Echoes) Got(s *Slot, n int) []byte {
	e.got++
	s.len = min(n, len(s.Buf))
	return s.Buf[:s.len]
}

// Full leaves it to turns to send a message back.
func (e Echoes) Full(s *Slot) { e.later = append(e.later, s) }

// Back is called when a message was sent back. The owner posts the receive, or calls Refused.
func (e Echoes) Back(s *Slot) {
	e.answered++
	s.seq = e.posts
	e.posts++
}
