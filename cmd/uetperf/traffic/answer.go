package traffic

import "time"

// An answerer is the server's end of lat, ping, load and rr. It sends messages back, or
// answers a request with a reply that has the request's number.
type answerer struct {
	*Leg
	echo          bool
	got, answered int64
	later         []*Slot // answers that found no room
	m             meter
	said          bool
}

func newAnswerer(l *Leg) *answerer {
	t := &answerer{Leg: l, echo: l.Spec.Pingpong(), m: l.meter(&l.Res.Rx)}
	if l.Spec.Warmup == 0 {
		t.m.start(l.since(), 0)
	}
	if l.plain && t.echo && !l.Spec.Lossy() && l.Spec.Op == TSend {
		l.echoes = t
	}
	return t
}

// Post posts the answers that found no room.
func (t *answerer) Post() (time.Duration, error) {
	for k := len(t.later); k > 0; k-- {
		b := t.later[0]
		t.later = append(t.later[:0], t.later[1:]...)
		ok, err := t.answer(b)
		if err == nil && ok && t.Spec.Op == Inject {
			err = t.answeredOne(b)
		}
		if err != nil {
			return 0, err
		}
	}
	if len(t.later) > 0 {
		return 0, nil
	}
	return Idle, nil
}

func (t *answerer) answer(s *Slot) (ok bool, err error) {
	b := s.Reply
	if t.echo {
		b = s.Buf[:s.len]
	}
	if ok, err = t.Conn.Send(b, s.num, s); err != nil {
		return false, PostError(err)
	}
	if !ok {
		t.later = append(t.later, s)
	}
	return ok, nil
}

// answeredOne is called when an answer is complete. Its buffer may receive again.
func (t *answerer) answeredOne(s *Slot) error {
	t.answered++
	return t.recv(s)
}

// Take answers a message. It sends the answer first and verifies the message then. The
// buffer is not posted again before the answer has completed.
func (t *answerer) Take(c *Completion) error {
	if c.Sent {
		if t.Spec.Churn {
			_ = t.Conn.Close()
		}
		return t.answeredOne(c.Slot)
	}
	if t.Spec.Lossy() && !t.fresh(c) {
		return t.recv(c.Slot)
	}
	t.got++
	c.num, c.len = c.Seq, min(c.Len, len(c.Buf))
	if !t.echo {
		t.fill(c.Reply, uint64(c.Seq)|replyBit)
	}
	ok, err := t.answer(c.Slot)
	if err != nil {
		return err
	}
	t.verify(c)
	if !t.m.on && t.got >= t.Spec.Warmup {
		t.m.start(t.since(), t.got)
	}
	if ok && t.Spec.Op == Inject { // an injected answer has no completion
		return t.answeredOne(c.Slot)
	}
	return nil
}

func (t *answerer) Look(int) (bool, error) {
	if !t.echo {
		t.Live.Store(t.got)
	}
	// When a client of datagrams has told how many it sent, it waits for no answer.
	if peer := t.PeerSent.Load(); !t.said && peer >= 0 && (t.got >= peer || t.Spec.Lossy()) && t.answered >= t.got {
		t.said = true
		t.Finish()
		t.Complete()
	}
	return t.Over.Load(), nil
}

func (t *answerer) Finish() {
	t.m.end(t.since(), t.got)
	t.Res.Sent, t.Res.Received = t.answered, t.got
}
