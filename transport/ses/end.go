package ses

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

// unstarve says that no message waits for room for an Event: none is left that could, or
// it is to be tried again.
func (s *SES) unstarve() { s.starved, s.spaces[0].starved, s.spaces[1].starved = false, false, false }

// lateRecv ends a receive that was posted just now and that nothing will match any
// more.
func (s *SES) lateRecv(i int32, r *recv) {
	if s.ended && r.live && r.class != boundClass {
		s.cancelRecv(i)
		s.unstarve()
	}
}
