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
