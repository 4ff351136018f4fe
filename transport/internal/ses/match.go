package ses

import "math/bits"

// Matching: which posted receive a message gets, and which unexpected message a receive.

const (
	numClassesMax = 16 // different masks looked up by hash
	wildClass     = -1 // in the list of those beyond
	boundClass    = -2 // in none: matched, or not posted yet
	runClass      = -3 // in the run of its space
)

// A class is the receives of a space that look at the same bits of a message:
// they are found by hash. Untagged receives ignore all bits of the tag. Most
// programs have one to four classes; the receives of more than 16 at a time are
// searched one by one.
type class struct {
	mask           uint64 // bits of the tag that count
	n              int32
	byPeer, byInit bool
}

// A space is one of the two spaces of an endpoint whose messages never match each other's
// receives (R-TAG-04): posted receives and unexpected messages.
type space struct {
	// The run is the oldest receives of the space, linked, as long as all of them look for
	// the same: a look at the first decides for all. It is used while no receive has a
	// class. run is its first, nil if it is empty; then last means nothing, and prev of the
	// first never does.
	run, last *recv

	classes [numClassesMax]class
	active  uint32 // classes with n > 0
	exact   index  // receives with a class
	wild    index  // the others, in post order: one bucket
	wilds   int

	order    index // unexpected messages in arrival order: one bucket
	byTag    index // by tag; not of untagged ones
	bySource index // by tag and peer
	n        int   // unexpected messages
	// starved: a multi-receive buffer could not take a message for lack of room
	// for its Event. Until feed found some, nothing is matched here.
	starved bool
	ep      EndpointID // whose it is
}

func (sp *space) init(id EndpointID, tagged bool, recvs, msgs int) {
	sp.ep = id
	sp.exact.init(recvs)
	sp.wild.init(1)
	sp.order.init(1)
	sp.bySource.init(msgs)
	if tagged {
		sp.byTag.init(msgs)
	}
}

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

// classFor counts a receive into its class, or wildClass.
func (sp *space) classFor(mask uint64, byPeer, byInit bool) int {
	free := wildClass
	for c := range sp.classes {
		k := &sp.classes[c]
		if k.n == 0 {
			if free == wildClass {
				free = c
			}
			if sp.active>>c == 0 {
				break // none behind
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

// unpost takes a receive away from where messages find it.
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

// first is the oldest receive of a space if it is in the run and accepts a message: then no
// other is to be looked for. nil says nothing.
func (sp *space) first(tag uint64, peer, init uint32) *recv {
	if r := sp.run; r != nil && !sp.starved && r.accepts(tag, peer, init) {
		return r
	}
	return nil
}

// match finds the first posted receive for a message and takes it out of its
// space (S-MAT-01, -02, -04).
//
// A multi-receive buffer stays: pack says where in it the message goes.
func (s *SES) match(sp *space, tag uint64, peer, init uint32) (int32, *recv) {
	if sp.starved {
		return none, nil // not past those that wait
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

// search finds the first posted receive for a message if the run has none.
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

// accepts reports whether a message of the receive's space matches it.
func (r *recv) accepts(tag uint64, peer, init uint32) bool {
	return (tag^r.tag)&^r.ignore == 0 && (r.peer == 0 || r.peer == peer) && (r.init == 0 || r.init == init)
}

// findUnexpected finds the oldest unexpected message that r accepts. Receives
// with an ignore mask search all of the space, others only messages with their
// tag (and, with a source, from their peer).
func (s *SES) findUnexpected(sp *space, r *recv) int32 {
	x, h := &sp.order, uint32(0)
	switch {
	case r.tagged && r.ignore != 0:
	case r.peer != 0:
		x, h = &sp.bySource, s.hash(r.tag, uint64(r.peer))
	case r.tagged:
		x, h = &sp.byTag, s.hash(r.tag, 0)
	}
	for k := x.first(h); k != none; k = x.next(k) {
		m := s.in.at(k)
		if r.accepts(m.tag, m.peer, m.init) {
			return k
		}
	}
	return none
}
