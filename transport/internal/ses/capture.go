package ses

// This file keeps what the reads of ROD PDCs return. What comes behind such a read may change the memory as
// soon as the read was executed: a write of the same peer, or the program that a message tells that the read
// is done. So each part is copied when its request is executed, and kept until the peer has it; the copy is
// what is sent, and sent again (S-RMA-72, docs/decisions/0062).

// maxCaptured bounds the bytes of all peers that are kept so, maxCapturedPeer those of one,
// maxCapturedUnproven those of sources that may be forged. A part counts as its length rounded up to a
// power of two of at least leastCaptured, so a peer has 4096 parts at most. maxParts bounds the parts of all
// peers, so that other reads find places. A request beyond a bound is refused (NACK 09), and comes again; those
// behind it wait, as order demands. This side asks for no more than maxAskedOrdered ahead.
const (
	maxCaptured         = 64 << 20
	maxCapturedPeer     = 4 << 20
	maxCapturedUnproven = 1 << 20
	maxAskedOrdered     = maxCapturedPeer / 2
	leastCaptured       = 1 << 10
	maxParts            = maxServes / 2
)

// captureClass is the class of the block for n bytes that are kept.
func captureClass(n int) int { return classOf(max(n, leastCaptured)) }

// capturing holds what is kept.
type capturing struct {
	captures         arena
	parts            int // places in serves that are parts of reads
	captured         int // bytes of blocks in use
	capturedUnproven int // what of them is of sources that may be forged
}

// Captured returns how many parts of ordered reads are kept, and the memory that the bytes of all take. A read of one
// part is none.
func (s *SES) Captured() (parts int, bytes int64) { return s.parts, int64(s.captured) }

// mayCapture reports whether there is room for n bytes that a source asks for, and for the state of one more read.
func (s *SES) mayCapture(src *Source, n int) bool {
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	most := min(maxCaptured-s.captured, maxCapturedPeer-pu.captured)
	s.putUser(u, pu)
	if src.Unproven {
		most = min(most, maxCapturedUnproven-s.capturedUnproven)
	}
	c := captureClass(n)
	return 1<<(c+minBlock) <= most && s.captures.fits(c) && s.parts < maxParts && s.numServes+2 <= maxServes
}

// capture copies n bytes at the offset off of the read i, for which there is room. It returns the place of the
// copy: that of the read if it is all of it, else one of its own, which ends when these bytes are answered.
func (s *SES) capture(src *Source, i int32, sv *serve, off, n uint32) int32 {
	base := sv.base + uint64(off)
	if n != sv.length {
		i, sv = s.newPart(src, i, sv, n)
	}
	sv.captured, sv.at, sv.block = true, off, s.captures.block(captureClass(int(n)))
	mem := s.captures.mem(sv.block)
	sv.old = sv.region.Append(mem[:0], base, uint64(n))
	s.captured += len(mem)
	s.peers.at(sv.user).captured += len(mem)
	if sv.unproven {
		s.capturedUnproven += len(mem)
	}
	return i
}

// uncapture frees the copy of sv.
func (s *SES) uncapture(sv *serve) {
	n := len(s.captures.mem(sv.block))
	s.captures.put(sv.block)
	s.captured -= n
	s.peers.at(sv.user).captured -= n
	if sv.unproven {
		s.capturedUnproven -= n
	}
	sv.captured, sv.old = false, nil
}

// newPart makes the place of a part of n bytes of the read i.
func (s *SES) newPart(src *Source, i int32, read *serve, n uint32) (int32, *serve) {
	j := s.serves.get()
	p := s.serves.at(j)
	*p = serve{region: read.region, base: read.base, pdc: read.pdc, peer: read.peer, init: read.init, ep: read.ep, length: n, modified: read.length, asked: n,
		job: read.job, user: read.user, msgID: read.msgID, unproven: src.Unproven, part: i + 1, next: read.parts}
	if read.parts != 0 {
		s.serves.at(read.parts - 1).prev = j + 1
	}
	read.parts = j + 1
	s.numServes++
	s.parts++
	return j, p
}

// endPart frees a part of which all was answered, or that is to be sent no more, and its read if that was the last.
func (s *SES) endPart(i int32, p *serve) {
	read := s.serves.at(p.part - 1)
	if p.prev != 0 {
		s.serves.at(p.prev - 1).next = p.next
	} else {
		read.parts = p.next
	}
	if p.next != 0 {
		s.serves.at(p.next - 1).prev = p.prev
	}
	s.numServes--
	s.parts--
	p.region = nil
	s.serves.put(i)
	s.endServe(p.part-1, read)
}

// stopParts ends the parts of a read that is to be sent no more, but for those that were handed out, and the
// read with the last of them.
func (s *SES) stopParts(read *serve) {
	for j := read.parts; j != 0; {
		p := s.serves.at(j - 1)
		i := j - 1
		j = p.next
		p.gone = true
		s.endServe(i, p)
	}
}

// proveServe takes a read, whose source is proven now, from those of sources that may be forged.
func (s *SES) proveServe(sv *serve) {
	sv.unproven = false
	if sv.part == 0 {
		s.unprovenServes--
	}
	if sv.captured {
		s.capturedUnproven -= len(s.captures.mem(sv.block))
	}
}
