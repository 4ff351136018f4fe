package ses

// CancelAll ends every operation with a Cancelled event: the endpoint closes.
// Unexpected messages are dropped; later requests are answered BAD_INDEX, later
// operations get ErrClosed, and calls for earlier handles do nothing.
func (s *SES) CancelAll() {
	if s.closed {
		return
	}
	s.closed = true
	s.cancelSends()
	s.cancelInbound()
	s.cancelRecvs()
}

// End ends every operation with a Cancelled event, as CancelAll does, but keeps
// the whole messages that no receive matched yet: nothing comes any more, and what
// came may still be received. Later receives take one of those or end at once,
// Cancelled; later sends get ErrClosed.
func (s *SES) End() {
	if s.closed || s.ended {
		return
	}
	s.ended = true
	s.cancelSends()
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			next := s.byPDC.next(i)
			s.drop(i, s.in.at(i), Cancelled)
			i = next
		}
	}
	s.cancelRecvs()
	s.unstarve()
}

func (s *SES) cancelSends() {
	s.waiting, s.ready, s.nextRetry, s.unstamped = nil, nil, 0, false
	s.fences, s.unfenced = nil, nil
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase == phaseFree {
			continue
		}
		m.unexecuted = m.unexecuted || m.phase != phaseSent && m.phase != phaseResult
		m.cause, m.rc, m.nack = Cancelled, 0, 0
		s.finish(m)
	}
}

// cancelInbound drops every message: the endpoint closes.
func (s *SES) cancelInbound() {
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			next := s.byPDC.next(i)
			s.drop(i, s.in.at(i), Cancelled)
			i = next
		}
	}
	for _, c := range s.claims {
		if c.msg != none {
			m := s.in.at(c.msg)
			s.uncharge(c.msg, m)
			s.freeIn(c.msg, m)
		}
	}
	s.claims = nil
	for k := range s.spaces {
		for i := s.spaces[k].order.first(0); i != none; i = s.spaces[k].order.first(0) {
			m := s.in.at(i)
			s.uncharge(i, m)
			s.freeIn(i, m)
		}
	}
}

func (s *SES) cancelRecvs() {
	for i := range s.recvs.used {
		if s.recvs.at(i).live {
			s.cancelRecv(i)
		}
	}
}

// lateRecv ends a receive that was posted just now and that nothing will match any
// more.
func (s *SES) lateRecv(i int32, r *recv) {
	if s.ended && r.live && r.class != boundClass {
		s.cancelRecv(i)
		s.unstarve()
	}
}

// unstarve says that no message waits for room for an Event: none is left that could, or
// it is to be tried again.
func (s *SES) unstarve() { s.starved, s.spaces[0].starved, s.spaces[1].starved = false, false, false }

// PeerGone ends the sends to a peer of which nothing is under way: what a fence keeps,
// what waits to be sent again, and what a response was promised for.
func (s *SES) PeerGone(peer uint32, c Cause) {
	for i := range s.sends.used {
		m := s.sends.at(i)
		switch {
		case m.phase == phaseFree || m.peer != peer:
		case m.phase == phaseResult:
			s.stop(i, m, c, 0)
		case m.phase == phaseWait || m.phase == phaseReady || m.phase == phaseData && m.next == 0 && m.open == 0:
			s.Abandon(handleOf(i, m), c)
		}
	}
	s.unfence()
}
