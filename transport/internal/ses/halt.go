package ses

import "errors"

// This file ends the ordered messages behind one that failed, with Config.Halt. Otherwise one of them might be
// matched in its place.

// ErrHalted says that an ordered message to the peer failed before.
var ErrHalted = errors.New("ses: an ordered message to the peer failed before")

// A stream is the ordered messages of an endpoint to a peer that may be matched in each other's place.
type stream struct {
	peer   uint32
	tagged bool
}

// inStream reports whether a message is one of a stream, and which.
func (m *send) inStream() (stream, bool) {
	return stream{m.peer, m.kind == EvTSend}, (m.kind == EvTSend || m.kind == EvSend) && (m.ordered || m.mayDefer() && m.wasOrdered)
}

// halt notes that a message failed.
func (s *SES) halt(m *send) {
	to, ok := m.inStream()
	if _, had := m.ep.halts[to]; !ok || had || m.cause == Cancelled || s.closed || s.ended {
		return
	}
	if m.ep.halts == nil {
		m.ep.halts = map[stream]Cause{}
	}
	m.ep.halts[to] = m.cause
	s.Halted = true
}

// halted reports whether op is of a stream of which a message failed.
func (e *endpoint) halted(op *Op) bool {
	_, ok := e.halts[stream{uint32(op.Peer), op.Kind == EvTSend}]
	return ok && (op.Kind == EvTSend || op.Kind == EvSend)
}

// Halt ends the messages of streams that halted since the last call, as the one that failed. Of those that left
// before, the target may have executed some.
func (s *SES) Halt() {
	s.Halted = false
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase == phaseFree || m.cause != OK {
			continue
		}
		if to, ok := m.inStream(); ok {
			if c, halted := m.ep.halts[to]; halted {
				s.Abandon(handleOf(i, m), c)
			}
		}
	}
}

// Unhalt lets messages to a peer go again.
func (s *SES) Unhalt(peer uint32) {
	for _, e := range s.endpoints {
		delete(e.halts, stream{peer, false})
		delete(e.halts, stream{peer, true})
	}
}
