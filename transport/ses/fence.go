package ses

import "slices"

// Fences (R-ORD-07). A fenced send waits until every send to its peer that was
// accepted before it has ended, in whatever way (R-ORD-13), and so do all that
// are accepted after it. Fences are rare: nothing here is fast but the case that
// there is none.

// A fence is one fenced send that waits, with the sends behind it.
type fence struct {
	peer   uint32
	seq    uint64   // of the fenced send
	left   int      // earlier sends to the peer that have not ended
	behind []Handle // the fenced send and those behind it, up to the next fence
}

// Fenced reports whether sends to the peer must go through Fence.
func (s *SES) Fenced(peer uint32) bool { return len(s.fences) != 0 && s.fenced(peer) }

func (s *SES) fenced(peer uint32) bool {
	for i := range s.fences {
		if s.fences[i].peer == peer {
			return true
		}
	}
	return false
}

// Fence keeps back h, just accepted, if it is a fence with sends before it or
// comes behind one. It reports whether it does; Unfenced gives h back when it
// may go. No piece of h may be handed out before.
func (s *SES) Fence(h Handle, isFence bool) bool {
	_, m := s.lookup(h)
	if m == nil {
		return false
	}
	last := -1
	for i := range s.fences {
		if s.fences[i].peer == m.peer {
			last = i
		}
	}
	if !isFence {
		if last >= 0 {
			s.fences[last].behind = append(s.fences[last].behind, h)
		}
		return last >= 0
	}
	f := fence{peer: m.peer, seq: m.seq, behind: []Handle{h}}
	for i := range s.sends.used {
		if o := s.sends.at(i); o.phase != phaseFree && o.peer == m.peer && o.seq < m.seq {
			f.left++
		}
	}
	if f.left == 0 {
		return false
	}
	s.fences = append(s.fences, f)
	return true
}

// SomeUnfenced reports whether Unfenced may have one.
func (s *SES) SomeUnfenced() bool { return len(s.unfenced) > 0 }

// Unfenced returns a send that Fence kept back and that may go now, in the order
// of posts.
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

// unfence takes what has ended out of what fences keep or gave back: its handle may
// come to name another send.
func (s *SES) unfence() {
	ended := func(h Handle) bool { _, m := s.lookup(h); return m == nil }
	for i := range s.fences {
		s.fences[i].behind = slices.DeleteFunc(s.fences[i].behind, ended)
	}
	s.unfenced = slices.DeleteFunc(s.unfenced, ended)
}

// passed tells the fences that a send ended.
func (s *SES) passed(m *send) {
	keep := s.fences[:0]
	for _, f := range s.fences {
		if f.peer == m.peer && m.seq < f.seq {
			f.left--
		}
		if f.left == 0 {
			s.unfenced = append(s.unfenced, f.behind...)
		} else {
			keep = append(keep, f)
		}
	}
	clear(s.fences[len(keep):])
	s.fences = keep
}
