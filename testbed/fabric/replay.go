package fabric

import "time"

// A tape has the packets that a rule's adversary has recorded.
type tape struct {
	keep  int
	every time.Duration
	after time.Duration
	young fifo      // not yet old enough, oldest first; packet.at is when they were recorded
	ready []*packet // may be sent again
	runs  bool      // a replay is on the agenda
}

const (
	defaultTape = 4096
	// Packets on tapes may use 1/maxTapeShare of the switch's memory. Beyond that nothing
	// more is recorded.
	maxTapeShare = 2
)

func newTape(r *Replay) *tape {
	t := &tape{keep: r.Keep, every: time.Duration(float64(time.Second) / r.Rate), after: time.Duration(r.After)}
	if t.keep == 0 {
		t.keep = defaultTape
	}
	return t
}

// promote moves the packets that have grown old enough from young to ready.
func (t *tape) promote(now time.Duration) {
	for t.young.n > 0 && t.young.ring[t.young.head].at+t.after <= now {
		t.ready = append(t.ready, t.young.pop())
	}
}

// record records a copy of p. A full tape replaces a random packet that is old enough to be
// resent; if there is none, p is not recorded.
func (s *Switch) record(r *rule, p *packet) {
	t := r.tape
	t.promote(s.now)
	if t.young.n+len(t.ready) >= t.keep || s.pool.taped > maxInside/maxTapeShare {
		n := len(t.ready)
		if n == 0 {
			return
		}
		i := r.rng.IntN(n)
		s.untape(t.ready[i])
		t.ready[i] = t.ready[n-1]
		t.ready[n-1] = nil
		t.ready = t.ready[:n-1]
	}
	c := s.clone(p)
	if c == nil {
		return
	}
	s.inside--
	s.pool.taped += len(c.buf)
	c.at = s.now
	t.young.push(c)
	if !t.runs {
		t.runs = true
		s.due(s.now+max(t.every, t.after), event{kind: evReplay, rule: r})
	}
}

func (s *Switch) untape(p *packet) {
	s.pool.taped -= len(p.buf)
	s.pool.put(p)
}

// replay resends one recorded packet.
func (s *Switch) replay(r *rule) {
	t := r.tape
	if r.gone || r.off > 0 || t.young.n+len(t.ready) == 0 {
		t.runs = false // the next packet that is recorded starts it again
		return
	}
	next := s.now + t.every
	t.promote(s.now)
	if n := len(t.ready); n > 0 {
		if c := s.clone(t.ready[r.rng.IntN(n)]); c != nil {
			s.note(r.line, r, c, Replayed)
			s.applyRules(r.line, c, r.ord+1)
		}
	} else {
		next = max(next, t.young.ring[t.young.head].at+t.after)
	}
	s.due(next, event{kind: evReplay, rule: r})
}

// wipe frees the packets of a tape whose rule is gone.
func (s *Switch) wipe(t *tape) {
	for t.young.n > 0 {
		s.untape(t.young.pop())
	}
	for _, p := range t.ready {
		s.untape(p)
	}
	t.ready = nil
}
