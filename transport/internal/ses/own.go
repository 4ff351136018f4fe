package ses

// This file finds what one endpoint has without a look at what the others have: an endpoint that closes costs what it
// owns, however many share the SES (docs/decisions/0069). Its sends and receives are in its rolls, its unexpected messages in
// the lists of its spaces, its other messages in byEndpoint, its regions in its reach.

// A roll lists the places of a table that one endpoint took first. They are its own for ever, free or not, so an operation that
// begins or ends has nothing to do with it. The links are in the places, and are, as those here, place numbers plus 1.
type roll struct{ first, last int32 }

// add puts place i, which is new, at the end of the roll. It returns the place before it, whose link is to become i+1,
// or none.
func (r *roll) add(i int32) int32 {
	last := r.last
	if r.last = i + 1; last == 0 {
		r.first = i + 1
	}
	return last - 1
}

// firstSend returns the first place for sends of an endpoint, nil if it has none.
func (s *SES) firstSend(e *endpoint) *send {
	if e == nil {
		return nil
	}
	return s.sendAt(e.ownSends.first)
}

// nextSend returns the place after one that firstSend or nextSend returned.
func (s *SES) nextSend(m *send) *send { return s.sendAt(m.sibling) }

func (s *SES) sendAt(link int32) *send {
	if link == 0 {
		return nil
	}
	s.walked++
	return s.sends.at(link - 1)
}

// firstRecv returns the first place for receives of an endpoint, nil if it has none.
func (s *SES) firstRecv(e *endpoint) *recv {
	if e == nil {
		return nil
	}
	return s.recvAt(e.ownRecvs.first)
}

// nextRecv returns the place after one that firstRecv or nextRecv returned.
func (s *SES) nextRecv(r *recv) *recv { return s.recvAt(r.sibling) }

func (s *SES) recvAt(link int32) *recv {
	if link == 0 {
		return nil
	}
	s.walked++
	return s.recvs.at(link - 1)
}

// eachIntake calls do for each message for an endpoint that has an intake. do may forget that message, and no other.
func (s *SES) eachIntake(e *endpoint, do func(i int32, m *inmsg)) {
	for k := s.byEndpoint.first(uint32(e.id)); k != none; {
		s.walked++
		next, i := s.byEndpoint.next(k), s.intakes.at(k).in
		if m := s.in.at(i); m.ep == e.id {
			do(i, m)
		}
		k = next
	}
}

// eachDeferralOf calls do for each deferred message for an endpoint, as eachDeferral does: those that wait for a receive, and
// those that have one, or were discarded.
func (s *SES) eachDeferralOf(e *endpoint, do func(i int32, m *inmsg)) {
	if s.deferrals.n == 0 {
		return
	}
	for k := range e.claims {
		if i := e.claims[k].msg; i != none && s.in.at(i).state == inDeferred {
			do(i, s.in.at(i))
		}
	}
	for k := range e.spaces {
		x := &e.spaces[k].order
		for i := x.first(0); i != none; {
			s.walked++
			next := x.next(i)
			if m := s.in.at(i); m.state == inDeferred {
				do(i, m)
			}
			i = next
		}
	}
	s.eachIntake(e, func(i int32, m *inmsg) {
		if m.state == inOffered {
			do(i, m)
		}
	})
}

// A reach is a list of the regions that are reached through one endpoint alone, or through all.
type reach struct {
	first *Region // the youngest
	n     int
}

func (l *reach) add(g *Region) {
	if g.after = l.first; g.after != nil {
		g.after.before = g
	}
	l.first = g
	l.n++
}

func (l *reach) remove(g *Region) {
	if g.before == nil {
		l.first = g.after
	} else {
		g.before.after = g.after
	}
	if g.after != nil {
		g.after.before = g.before
	}
	g.before, g.after = nil, nil
	l.n--
}
