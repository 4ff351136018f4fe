package ses

import "math/bits"

// This file matches messages with posted receives, and receives with unexpected messages.

const (
	numClassesMax = 16 // most classes of a space
	wildClass     = -1 // in the list of receives without a class
	boundClass    = -2 // not posted, or matched
	runClass      = -3 // in the run of its space
)

// A class is the receives of a space that compare the same bits of a message. They are found by
// hash. Untagged receives ignore all bits of the tag. Most programs have one to four classes.
// With more than 16 at a time, the receives of the others are searched one by one.
type class struct {
	mask           uint64 // bits of the tag that are compared
	n              int32
	byPeer, byInit bool
}

// A space is the posted receives of an endpoint and its unexpected messages: one space for
// tagged messages, one for untagged ones. They never match each other (R-TAG-04).
type space struct {
	// The run is a list of the oldest receives of the space as long as all of them accept the
	// same messages, so that a look at the first decides for all. It is used while no receive
	// has a class. run is the first, nil if the list is empty; last is not valid then. prev of
	// the first is never valid.
	run, last *recv

	classes [numClassesMax]class
	active  uint32 // bitmap of the classes with n > 0
	exact   index  // receives with a class
	wild    index  // receives without a class, in post order: one bucket
	wilds   int

	order    index // unexpected messages in arrival order: one bucket
	byTag    index // by tag; empty in the space of untagged messages
	bySource index // by tag and peer
	n        int   // unexpected messages
	// starved means that a message could not go into a multi-receive buffer because there was
	// no room for its Event. Nothing is matched here until feed finds room.
	starved bool
	wanted  wanted
	ep      EndpointID // the endpoint of the space
}

func (s *SES) initSpace(sp *space, id EndpointID, tagged bool, recvs, msgs int) {
	sp.ep = id
	sp.exact.init(recvs, 1, func(i int32) uint32 {
		r := s.recvs.at(i)
		return s.recvHash(int(r.class), r.tag, r.peer, r.init)
	})
	sp.wild.init(1, 1, nil)
	sp.order.init(1, 1, nil)
	sp.bySource.init(msgs, 2, func(i int32) uint32 { return s.sourceHash(s.in.at(i)) })
	if tagged {
		sp.byTag.init(msgs, 2, func(i int32) uint32 { return s.tagHash(s.in.at(i).tag) })
	}
}

// tagHash is the hash of a message, or a receive, in byTag.
func (s *SES) tagHash(tag uint64) uint32 { return s.hash(tag, 0) }

// sourceHash is the hash of a message in bySource.
func (s *SES) sourceHash(m *inmsg) uint32 { return s.hash(m.tag, uint64(m.peer)) }

// post puts a receive where messages find it.
func (s *SES) post(sp *space, i int32, r *recv) {
	if sp.active != 0 || sp.wilds != 0 {
		s.file(sp, i, r)
		return
	}
	if sp.run == nil {
		sp.run = r
	} else {
		l := sp.last
		if l.tag != r.tag || l.ignore != r.ignore || l.peer != r.peer || l.init != r.init {
			s.file(sp, i, r)
			return
		}
		l.next, r.prev = r, l
	}
	sp.last, r.class = r, runClass // next is nil
}

// file puts a receive into its class.
func (s *SES) file(sp *space, i int32, r *recv) {
	c := sp.classFor(^r.ignore, r.peer != 0, r.init != 0)
	r.class = int8(c)
	if c == wildClass {
		sp.wild.add(i, 0)
		sp.wilds++
		return
	}
	r.tag &= sp.classes[c].mask
	sp.exact.add(i, s.recvHash(c, r.tag, r.peer, r.init))
}

func (s *SES) recvHash(c int, tag uint64, peer, init uint32) uint32 {
	return s.hash(tag+uint64(c)<<59, uint64(peer)<<32|uint64(init))
}

// classFor counts a receive into its class, which it returns, or wildClass if all are in use.
func (sp *space) classFor(mask uint64, byPeer, byInit bool) int {
	free := wildClass
	for c := range sp.classes {
		k := &sp.classes[c]
		if k.n == 0 {
			if free == wildClass {
				free = c
			}
			if sp.active>>c == 0 {
				break // no class in use follows
			}
		} else if k.mask == mask && k.byPeer == byPeer && k.byInit == byInit {
			k.n++
			return c
		}
	}
	if free != wildClass {
		sp.classes[free] = class{mask, 1, byPeer, byInit}
		sp.active |= 1 << free
	}
	return free
}

// unpost removes a receive from where messages find it.
func (s *SES) unpost(sp *space, i int32, r *recv) {
	switch r.class {
	case runClass:
		switch {
		case sp.run == r:
			sp.run = r.next
		case sp.last == r:
			sp.last = r.prev
			r.prev.next = nil
		default:
			r.prev.next, r.next.prev = r.next, r.prev
		}
	case wildClass:
		sp.wild.remove(i)
		sp.wilds--
	default:
		sp.exact.remove(i)
		k := &sp.classes[r.class]
		if k.n--; k.n == 0 {
			sp.active &^= 1 << r.class
		}
	}
	r.class = boundClass
}

// first returns the oldest receive of a space if it is in the run and accepts a message; no
// other need be searched then. If it returns nil, another receive may match.
func (sp *space) first(tag uint64, peer, init uint32) *recv {
	if r := sp.run; r != nil && !sp.starved && r.accepts(tag, peer, init) {
		return r
	}
	return nil
}

// match finds the oldest posted receive for a message and removes it from its space (S-MAT-01,
// -02, -04). A multi-receive buffer stays: pack finds the place of the message in it.
func (s *SES) match(sp *space, tag uint64, peer, init uint32) (int32, *recv) {
	if sp.starved {
		return none, nil // not before the messages that wait
	}
	r := sp.first(tag, peer, init)
	if r == nil {
		i := s.search(sp, tag, peer, init)
		if i == none {
			return none, nil
		}
		r = s.recvs.at(i)
	}
	if !r.multi {
		s.unpost(sp, r.self, r)
	} else if !s.admit(sp) {
		return none, nil
	}
	return r.self, r
}

// search finds the oldest posted receive for a message if first does not.
func (s *SES) search(sp *space, tag uint64, peer, init uint32) int32 {
	best := none
	var seq uint64
	for a := sp.active; a != 0; a &= a - 1 {
		c := bits.TrailingZeros32(a)
		k := &sp.classes[c]
		t, p, in := tag&k.mask, uint32(0), uint32(0)
		if k.byPeer {
			p = peer
		}
		if k.byInit {
			in = init
		}
		for i := sp.exact.first(s.recvHash(c, t, p, in)); i != none; i = sp.exact.next(i) {
			r := s.recvs.at(i)
			if r.tag == t && int(r.class) == c && r.peer == p && r.init == in {
				if best == none || r.seq < seq {
					best, seq = i, r.seq
				}
				break
			}
		}
	}
	if sp.wilds > 0 {
		for i := sp.wild.first(0); i != none; i = sp.wild.next(i) {
			r := s.recvs.at(i)
			if best != none && r.seq > seq {
				break
			}
			if r.accepts(tag, peer, init) {
				best = i
				break
			}
		}
	}
	return best
}

// accepts reports whether the receive matches a message of its space.
func (r *recv) accepts(tag uint64, peer, init uint32) bool {
	return (tag^r.tag)&^r.ignore == 0 && (r.peer == 0 || r.peer == peer) && (r.init == 0 || r.init == init)
}

// findUnexpected finds the oldest unexpected message that r accepts. It searches the whole
// space if r has an ignore mask, else only the messages with r's tag and, if r names a source,
// from that peer.
func (s *SES) findUnexpected(sp *space, r *recv) int32 {
	x, h := &sp.order, uint32(0)
	switch {
	case r.tagged && r.ignore != 0:
	case r.peer != 0:
		x, h = &sp.bySource, s.hash(r.tag, uint64(r.peer))
	case r.tagged:
		x, h = &sp.byTag, s.tagHash(r.tag)
	}
	for k := x.first(h); k != none; k = x.next(k) {
		m := s.in.at(k)
		if r.accepts(m.tag, m.peer, m.init) {
			return k
		}
	}
	return none
}
