package ses

import (
	"slices"
	"time"
)

// This file implements multi-receive buffers, which receive message after message (R-MSG-12).
// Such a receive stays posted, and keeps its place in the order of receives, until it is spent:
// fewer than minFree bytes are left. It is released with the last of its messages to complete;
// they may complete in any order.

// feedEvery is how often to try again the messages that wait for room for their Event. The
// value is arbitrary: such an application is behind by a whole queue.
const feedEvery = time.Millisecond

// postMulti posts a multi-receive buffer and gives it the unexpected messages that match.
func (s *SES) postMulti(sp *space, i int32, r *recv, minFree int) {
	r.minFree, r.off = uint64(max(minFree, 1)), 0
	s.post(sp, i, r)
	if sp.n > 0 && !sp.starved {
		s.fill(sp, i, r)
	}
}

// fill gives unexpected messages to a posted multi-receive buffer. It returns false if there is
// no room for an Event.
func (s *SES) fill(sp *space, i int32, r *recv) bool {
	for r.class != boundClass {
		k := s.findUnexpected(sp, r)
		if k == none {
			break
		}
		if !s.admit(sp) {
			return false
		}
		s.take(i, r, k)
	}
	return true
}

// admit asks the owner for room for one more Event. If there is none, the space is starved.
func (s *SES) admit(sp *space) bool {
	if admit := s.endpoints[sp.ep].Admit; admit == nil || admit() {
		return true
	}
	sp.starved = true
	s.starved, s.feedAt = true, 0
	return false
}

// pack allocates n bytes of a multi-receive buffer for a message, and returns where they begin.
// What exceeds the room left is lost (R-MSG-13).
func (s *SES) pack(i int32, r *recv, n uint64) (base uint64) {
	base = r.off
	r.refs++
	r.off = min(base+(n+7)&^7, r.size())
	if r.size()-r.off < r.minFree {
		s.unpost(r.space(), i, r)
		r.spent = true
	}
	return base
}

// unbind separates a message from its receive. e is the event of the message, with Len set;
// base is where the message begins in a multi-receive buffer.
func (s *SES) unbind(i int32, r *recv, e *Event, base uint64) {
	if !r.multi {
		s.freeRecv(r)
		return
	}
	r.refs--
	e.Multi = true
	e.Buf = r.buf[base : base+uint64(e.Len) : base+uint64(e.Len)]
	switch {
	case !r.spent || r.refs > 0:
	case r.cancelled:
		s.cancelled(i, r)
	default:
		e.Released = true
		s.freeRecv(r)
	}
}

// feed matches the messages that wait for room for an Event, as if they arrived now: receives
// in post order, messages in order of arrival.
func (s *SES) feed(now time.Duration) {
	var posted []int32 // in post order
	for i := range s.recvs.used {
		if r := s.recvs.at(i); r.live && r.class != boundClass {
			posted = append(posted, i)
		}
	}
	slices.SortFunc(posted, func(a, b int32) int {
		if s.recvs.at(a).seq < s.recvs.at(b).seq {
			return -1
		}
		return 1
	})
	s.unstarve()
	for _, i := range posted {
		r := s.recvs.at(i)
		sp := r.space()
		if sp.n == 0 || sp.starved {
			continue
		}
		if r.multi {
			if !s.fill(sp, i, r) {
				s.feedAt = now + feedEvery
			}
		} else if k := s.findUnexpected(sp, r); k != none {
			s.unpost(sp, i, r)
			s.take(i, r, k)
		}
	}
}
