package ses

import "slices"

// This file implements fences (R-ORD-07). A fenced send, and every later send of its endpoint to
// its peer, waits until all earlier ones have ended, successfully or not (R-ORD-13). Fences are
// rare, so only the case without one is fast.

// A fence is one fenced send that waits, and the sends behind it.
type fence struct {
	ep     EndpointID
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
	return len(s.fences) != 0 && s.fenced(id, peer)
}

func (s *SES) fenced(id EndpointID, peer uint32) bool {
	for i := range s.fences {
		if s.fences[i].is(id, peer) {
			return true
		}
	}
	return false
}

// Fence keeps back h, which Send has just accepted, if h is fenced and earlier sends have not
// ended, or if h is behind a fence. It reports whether it does. No piece of h may be handed out
// until Unfenced returns h.
func (s *SES) Fence(h Handle, isFence bool) bool {
	_, m := s.lookup(h)
	if m == nil {
		return false
	}
	last := -1
	for i := range s.fences {
		if s.fences[i].is(m.ep.id, m.peer) {
			last = i
		}
	}
	if !isFence {
		if last >= 0 {
			s.fences[last].behind = append(s.fences[last].behind, h)
		}
		return last >= 0
	}
	f := fence{ep: m.ep.id, peer: m.peer, seq: m.seq, behind: []Handle{h}}
	for i := range s.sends.used {
		if o := s.sends.at(i); o.phase != phaseFree && o.ep == m.ep && o.peer == m.peer && o.seq < m.seq {
			f.left++
		}
	}
	if f.left == 0 {
		return false
	}
	s.fences = append(s.fences, f)
	return true
}

// is reports whether the fence applies to sends of that endpoint to that peer.
func (f *fence) is(id EndpointID, peer uint32) bool { return f.ep == id && f.peer == peer }

// SomeFences reports whether there is any fence.
func (s *SES) SomeFences() bool { return len(s.fences) != 0 }

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

// unfence removes ended sends from the fences and from those to be returned by Unfenced, because
// their handles may come to name other sends.
func (s *SES) unfence() {
	ended := func(h Handle) bool { _, m := s.lookup(h); return m == nil }
	for i := range s.fences {
		s.fences[i].behind = slices.DeleteFunc(s.fences[i].behind, ended)
	}
	s.unfenced = slices.DeleteFunc(s.unfenced, ended)
}

// passed tells the fences that send m has ended.
func (s *SES) passed(m *send) {
	keep := s.fences[:0]
	for _, f := range s.fences {
		if f.is(m.ep.id, m.peer) && (f.question && m.seq == f.seq || !f.question && m.seq < f.seq) {
			f.left--
		}
		before := len(keep) - 1 // the last fence before f that is not open
		for before >= 0 && !keep[before].is(f.ep, f.peer) {
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
	clear(s.fences[len(keep):])
	s.fences = keep
}
