package ses

import "slices"

// This file implements fences (R-ORD-07). A fenced send, and every later send of its endpoint to
// its peer, waits until all earlier ones have ended, successfully or not (R-ORD-13). Fences are
// rare, so only the case without one is fast.

// A fence is one fenced send that waits, and the sends behind it.
type fence struct {
	peer   uint32
	seq    uint64   // of the fenced send
	left   int      // earlier sends to the peer that have not ended
	behind []Handle // the fenced send and those behind it, up to the next fence
	// question means that this is no fence of the application's: what is behind it waits for the
	// end of the send that has the number seq.
	question bool
	reader   bool // then: whether the peer reads rendezvous sends, and not whether it knows RTRs
}

// Fenced reports whether sends of an endpoint to the peer must go through Fence.
func (s *SES) Fenced(id EndpointID, peer uint32) bool {
	return s.numFences != 0 && s.endpoints[id].fenced(peer)
}

func (e *endpoint) fenced(peer uint32) bool {
	return slices.ContainsFunc(e.fences, func(f fence) bool { return f.peer == peer })
}

// addFence makes one more fence of an endpoint.
func (s *SES) addFence(e *endpoint, f fence) {
	e.fences = append(e.fences, f)
	s.numFences++
}

// eachFence calls do for the fences of all endpoints.
func (s *SES) eachFence(do func(f *fence)) {
	if s.numFences == 0 {
		return
	}
	for _, e := range s.endpoints {
		for i := range e.fences {
			do(&e.fences[i])
		}
	}
}

// Fence keeps back h, which Send has just accepted, if h is fenced and earlier sends have not
// ended, or if h is behind a fence. It reports whether it does. No piece of h may be handed out
// until Unfenced returns h.
func (s *SES) Fence(h Handle, isFence bool) bool {
	_, m := s.lookup(h)
	if m == nil {
		return false
	}
	e, last := m.ep, -1
	for i := range e.fences {
		if e.fences[i].peer == m.peer {
			last = i
		}
	}
	if !isFence {
		if last >= 0 {
			e.fences[last].behind = append(e.fences[last].behind, h)
		}
		return last >= 0
	}
	f := fence{peer: m.peer, seq: m.seq, behind: []Handle{h}}
	for o := s.firstSend(e); o != nil; o = s.nextSend(o) {
		if o.phase != phaseFree && o.peer == m.peer && o.seq < m.seq {
			f.left++
		}
	}
	if f.left == 0 {
		return false
	}
	s.addFence(e, f)
	return true
}

// SomeFences reports whether there is any fence.
func (s *SES) SomeFences() bool { return s.numFences != 0 }

// SomeUnfenced reports whether Unfenced may return a send.
func (s *SES) SomeUnfenced() bool { return len(s.unfenced) > 0 }

// Unfenced returns the next send, in the order of posting, that Fence kept back and that may be
// sent now.
func (s *SES) Unfenced() (Handle, bool) {
	if len(s.unfenced) == 0 {
		return 0, false
	}
	return s.nextUnfenced()
}

func (s *SES) nextUnfenced() (Handle, bool) {
	for len(s.unfenced) > 0 {
		h := s.unfenced[0]
		s.unfenced = append(s.unfenced[:0], s.unfenced[1:]...)
		if _, m := s.lookup(h); m != nil { // not cancelled meanwhile
			return h, true
		}
	}
	return 0, false
}

// unfence removes ended sends of an endpoint from its fences, and from those to be returned by Unfenced, because
// their handles may come to name other sends.
func (s *SES) unfence(e *endpoint) {
	for i := range e.fences {
		s.walked++
		e.fences[i].behind = slices.DeleteFunc(e.fences[i].behind, s.hasEnded)
	}
	s.unfenced = slices.DeleteFunc(s.unfenced, s.hasEnded)
}

// unfenceAll is unfence of all endpoints.
func (s *SES) unfenceAll() {
	s.eachFence(func(f *fence) { f.behind = slices.DeleteFunc(f.behind, s.hasEnded) })
	s.unfenced = slices.DeleteFunc(s.unfenced, s.hasEnded)
}

func (s *SES) hasEnded(h Handle) bool { _, m := s.lookup(h); return m == nil }

// passed tells the fences that send m has ended.
func (s *SES) passed(m *send) {
	e := m.ep
	keep := e.fences[:0]
	for _, f := range e.fences {
		s.walked++
		if f.peer == m.peer && (f.question && m.seq == f.seq || !f.question && m.seq < f.seq) {
			f.left--
		}
		before := len(keep) - 1 // the last fence before f that is not open
		for before >= 0 && keep[before].peer != f.peer {
			before--
		}
		switch {
		case f.left != 0:
			keep = append(keep, f)
		case before >= 0: // a question is answered, and the application's fence before it is not open yet
			keep[before].behind = append(keep[before].behind, f.behind...)
		default:
			s.unfenced = append(s.unfenced, f.behind...)
		}
	}
	s.numFences -= len(e.fences) - len(keep)
	clear(e.fences[len(keep):])
	e.fences = keep
}
