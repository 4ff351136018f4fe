package ses

import "time"

// CancelAll closes all endpoints: every operation ends with a Cancelled event, and unexpected
// messages are dropped. Later requests are answered BAD_INDEX, later operations fail with
// ErrClosed, and calls with earlier handles do nothing.
func (s *SES) CancelAll() {
	if s.closed {
		return
	}
	s.closed = true
	s.closeRegions()
	s.cancelSends()
	s.dropInbound()
	for _, e := range s.endpoints {
		e.close()
		s.cancelInbound(e)
		s.cancelRecvs(e)
	}
}

// Leave closes all endpoints for what comes: every receive ends with a Cancelled event, and
// unexpected and incomplete messages are dropped. Later requests are answered BAD_INDEX, later
// operations fail with ErrClosed. Sends go on.
func (s *SES) Leave() {
	if s.closed || s.ended {
		return
	}
	s.closeRegions()
	for _, e := range s.endpoints {
		e.close()
		s.cancelInbound(e)
		s.cancelRecvs(e)
	}
	s.unstarve()
}

// Undelivered reports whether a message of an endpoint, or of AllEndpoints, is under way for which to(its peer) is true. A message
// of which only the promised result is missing is not. With taken only those count that the
// application takes for sent: they were injected, or success is never reported. With patience
// those do not count that their target has not been ready for so long.
func (s *SES) Undelivered(ep EndpointID, now, patience time.Duration, taken bool, to func(peer uint32) bool) bool {
	if s.numSends == 0 {
		return false
	}
	under := func(m *send) bool { return m.undelivered(now, patience, taken) && to(m.peer) }
	if ep != AllEndpoints {
		for m := s.firstSend(s.endpoint(ep)); m != nil; m = s.nextSend(m) {
			if under(m) {
				return true
			}
		}
		return false
	}
	for i := range s.sends.used {
		if under(s.sends.at(i)) {
			return true
		}
	}
	return false
}

// undelivered is Undelivered of one message, whatever its endpoint and its peer.
func (m *send) undelivered(now, patience time.Duration, taken bool) bool {
	switch {
	case m.phase == phaseFree || m.phase == phaseResult || m.kind == evNotice || m.meetsNone() || taken && !m.copied && !m.silent:
		return false
	case m.notReady == 0 || patience <= 0 || now-m.notReady < patience:
		return true
	}
	return m.phase != phaseWait && m.phase != phaseDeferred && (m.phase != phaseLent || m.loan.handed != 0)
}

// End is CancelAll that keeps the complete unexpected messages, because they may still be
// received though no more will come. A later receive gets one of them or ends at once as
// Cancelled; later sends fail with ErrClosed.
func (s *SES) End() {
	if s.closed || s.ended {
		return
	}
	s.ended = true
	for _, e := range s.endpoints {
		e.mostSends = 0
	}
	s.closeRegions()
	s.cancelSends()
	s.dropInbound()
	for _, e := range s.endpoints {
		s.cancelRecvs(e)
	}
	s.unstarve()
}

func (s *SES) cancelSends() {
	s.late = lateSend{}
	s.waiting, s.patient, s.ready, s.troubled, s.fresh, s.stirred, s.numFresh, s.nextRetry = nil, nil, nil, nil, nil, nil, 0, 0
	s.resources, s.watched, s.numResources = nil, nil, 0
	for _, e := range s.endpoints {
		e.fences = nil
	}
	s.numFences, s.unfenced = 0, nil
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase == phaseFree {
			continue
		}
		m.unexecuted = m.unexecuted || m.phase != phaseSent && m.phase != phaseResult
		m.cause, m.rc, m.nack = Cancelled, 0, 0
		m.res, m.place, m.fresh = nil, 0, false
		s.endSend(m)
	}
}

// CancelPeer ends every operation to and from one peer with a Cancelled event: the sends to it,
// the receives from it alone, and those that have a part of a message of it. Its unexpected
// messages are dropped, those that a peek reserved, too. A send may have taken effect
// (Event.Unknown) if all of its pieces were handed out and the target refused none. Calls with
// the handles of these sends do nothing.
func (s *SES) CancelPeer(peer uint32) {
	s.Unhalt(peer)
	for i := range s.sends.used {
		if m := s.sends.at(i); m.phase != phaseFree && m.peer == peer {
			m.unexecuted = m.unexecuted || m.cause == Rejected || m.phase != phaseSent && m.phase != phaseResult
			s.unwait(m)
			m.cause, m.rc, m.nack = Cancelled, 0, 0
			s.endSend(m)
		}
	}
	s.unfenceAll()
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			next := s.byPDC.next(i)
			if m := s.in.at(i); m.peer == peer {
				s.drop(i, m, Cancelled)
			}
			i = next
		}
	}
	s.eachDeferral(func(i int32, m *inmsg) {
		if m.peer == peer {
			s.dropDeferral(i, m, Cancelled)
		}
	})
	for _, e := range s.endpoints {
		s.dropUnexpected(e, peer)
	}
	for i := range s.recvs.used {
		if r := s.recvs.at(i); r.live && r.peer == peer && r.class != boundClass {
			s.cancelRecv(i)
		}
	}
}

// dropUnexpected drops the complete unexpected messages of a peer for an endpoint.
func (s *SES) dropUnexpected(e *endpoint, peer uint32) {
	for _, c := range e.claims {
		if c.msg == none {
			continue
		}
		if m := s.in.at(c.msg); m.peer == peer {
			s.loseClaim(c.msg, Cancelled, 0)
			s.uncharge(c.msg, m)
			s.freeIn(c.msg, m)
		}
	}
	for k := range e.spaces {
		sp := &e.spaces[k]
		for i := sp.order.first(0); i != none; {
			next := sp.order.next(i)
			if m := s.in.at(i); m.peer == peer {
				s.uncharge(i, m)
				s.freeIn(i, m)
			}
			i = next
		}
	}
}

// dropInbound ends every incomplete inbound message.
func (s *SES) dropInbound() {
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; {
			next := s.byPDC.next(i)
			s.drop(i, s.in.at(i), Cancelled)
			i = next
		}
	}
	s.eachDeferral(func(i int32, m *inmsg) { s.dropDeferral(i, m, Cancelled) })
}

// cancelInbound drops every inbound message for an endpoint that closes.
func (s *SES) cancelInbound(e *endpoint) {
	s.eachIntake(e, func(i int32, m *inmsg) {
		switch m.state {
		case inBound, inOpen, inGone, inWriting:
			s.drop(i, m, Cancelled)
		}
	})
	s.eachDeferralOf(e, func(i int32, m *inmsg) { s.dropDeferral(i, m, Cancelled) })
	for _, c := range e.claims {
		if c.msg != none {
			m := s.in.at(c.msg)
			s.uncharge(c.msg, m)
			s.freeIn(c.msg, m)
		}
	}
	e.claims = nil
	for k := range e.spaces {
		for i := e.spaces[k].order.first(0); i != none; i = e.spaces[k].order.first(0) {
			m := s.in.at(i)
			s.uncharge(i, m)
			s.freeIn(i, m)
		}
	}
}

func (s *SES) cancelRecvs(e *endpoint) {
	for r := s.firstRecv(e); r != nil; r = s.nextRecv(r) {
		if r.live {
			s.cancelRecv(r.self)
		}
	}
}

// lateRecv ends a receive posted after End, which no message will match any more.
func (s *SES) lateRecv(i int32, r *recv) {
	if s.ended && r.live && r.class != boundClass {
		s.cancelRecv(i)
		s.unstarve()
	}
}

// unstarve clears the marks of spaces whose messages wait for room for an Event: no such
// message is left, or all are to be tried again.
func (s *SES) unstarve() {
	if !s.starved {
		return
	}
	s.starved = false
	for _, e := range s.endpoints {
		e.spaces[0].starved, e.spaces[1].starved = false, false
	}
}

// PeerGone ends the sends to a peer of which nothing is under way: those behind a fence, those
// that wait to be sent again, and those that wait for a promised response.
func (s *SES) PeerGone(peer uint32, c Cause) {
	for i := range s.sends.used {
		m := s.sends.at(i)
		switch {
		case m.phase == phaseFree || m.peer != peer:
		case m.phase == phaseResult || m.phase == phaseLent:
			s.stop(m, c, 0)
		case m.phase == phaseWait || m.phase == phaseReady || m.unbegun() && m.open == 0:
			s.Abandon(handleOf(i, m), c)
		}
	}
	s.unfenceAll()
}
