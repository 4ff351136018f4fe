package ses

import (
	"cmp"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file takes receives back from messages that do not go on (T15). A message of several
// packets holds its receive from its first packet on, so a few datagrams that begin long messages
// could hold all receives of an endpoint. While something waits for a receive, a message loses
// its receive if it is slow, or if it stands still and its peer holds more than a share of the
// receives of that kind. All sources that may be forged share as one peer. The message is set
// aside: it goes on as an unexpected one and waits for a receive again when it is complete. If it
// cannot be kept, its packets are refused from then on (NO_MATCH), so that its sender sends all
// of it again; one such message of each peer keeps its receive, so that no slow sender begins
// anew for ever.
//
// Nothing here costs a message that finds a receive anything.

const (
	relieveEvery = 5 * time.Millisecond  // how often to look for messages that stand still, an initial RTO
	slowAfter    = 50 * time.Millisecond // how long a message must be slow
	slowRate     = 100 << 10             // bytes per second; a message is slow below it
	brokenAfter  = 2 * time.Second       // how long it must be slow before its receive ends in error
	recvShare    = 4                     // a peer's share is one in so many receives of a kind
	wantedFor    = time.Second           // how long a refused message is expected to come again
	relieveMost  = 64                    // receives taken back at once
	relieveLook  = 1 << 17               // unexpected messages looked at before others have their turn
)

// progress is what was seen of an incomplete message while something waited for its receive.
type progress struct {
	still, mark      time.Duration // since when no byte came, and since when got is compared with marked; 0: not seen yet
	stillGot, marked uint32
}

// A holding is a message that holds a receive which may be taken back.
type holding struct {
	m       *inmsg
	p       *intake
	r       *recv
	in      int32
	holder  uint64 // its peer, or allUnproven
	slow    bool
	stalled bool
}

const allUnproven = 1 << 32

// A wanted is a message that was refused because no receive matched and there was no room to keep
// it. It comes again.
type wanted struct {
	tag        uint64
	peer, init uint32
	on, met    bool
	at         time.Duration
}

// contended reports whether there may be a message from which a receive can be taken back.
func (s *SES) contended() bool { return s.open > 0 || s.mayRelieveOffers() }

// contend notes that a message waits for a receive which another one may hold.
func (s *SES) contend() {
	if at := max(s.relieved+relieveEvery, 1); s.contended() && (s.relieveAt == 0 || at < s.relieveAt) {
		s.relieveAt = at
	}
}

// unserved notes that a message was refused for want of a receive and of room.
func (s *SES) unserved(sp *space, tag uint64, peer, init uint32) {
	sp.wanted = wanted{tag: tag, peer: peer, init: init, on: true, at: s.now}
	s.contend()
}

// relieve takes receives back from messages that do not go on, for those that wait.
func (s *SES) relieve(now time.Duration) {
	s.relieveAt, s.relieved = 0, now
	s.holdings = s.holdings[:0]
	for b := range s.byPDC.buckets {
		for i := s.byPDC.first(uint32(b)); i != none; i = s.byPDC.next(i) {
			if m := s.in.at(i); m.state == inBound {
				s.consider(now, i, m)
			}
		}
	}
	s.relieveOffers(now)
	defer s.unwant(now)
	if len(s.holdings) == 0 {
		s.idle = 0
		if s.mayRelieveOffers() {
			s.relieveAt = now + slowAfter
		}
		return
	}
	// By kind, and in each kind by holder, those that go on first, then by the age of the receive.
	slices.SortFunc(s.holdings, func(a, b holding) int {
		return cmp.Or(a.r.kindCmp(b.r), cmp.Compare(a.holder, b.holder), cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.r.seq, b.r.seq),
			cmp.Compare(a.p.base, b.p.base))
	})
	taken, look := 0, relieveLook
	for from := 0; from < len(s.holdings) && taken < relieveMost && look > 0; {
		to := from + 1
		for to < len(s.holdings) && s.holdings[to].r.kindCmp(s.holdings[from].r) == 0 {
			to++
		}
		taken += s.relieveKind(now, s.holdings[from:to], relieveMost-taken, &look)
		from = to
	}
	// What waits may have what it needs. If not, something may be slow later.
	if s.idle++; taken > 0 {
		s.idle = 0
	}
	s.relieveAt = now + relieveEvery<<min(s.idle, 3) + time.Duration(len(s.holdings))*time.Microsecond
	clear(s.holdings)
}

// unwant forgets the refused messages that can have a receive now, or did not come again.
func (s *SES) unwant(now time.Duration) {
	for _, e := range s.endpoints {
		for k := range e.spaces {
			if w := &e.spaces[k].wanted; w.met || now-w.at > wantedFor {
				w.on = false
			}
		}
	}
}

// consider lists a bound message if its receive may be taken back and something may wait for it,
// and measures how it goes on.
func (s *SES) consider(now time.Duration, i int32, m *inmsg) {
	in := s.more(m)
	r := s.recvs.at(in.recv)
	sp := r.space()
	if r.fixed || r.peer != 0 || sp.starved || r.multi && (!r.spent || r.cancelled) || sp.n == 0 && !sp.wanted.on {
		return
	}
	p := &in.seen
	if p.mark == 0 {
		p.still, p.mark = now, max(in.began, 1)
	}
	if m.got != p.stillGot {
		p.still, p.stillGot = now, m.got
	}
	h := holding{m: m, p: in, r: r, in: i, holder: uint64(m.peer), stalled: now-p.still >= relieveEvery}
	if s.peers.at(m.user).unproven {
		h.holder = allUnproven
	}
	if past := now - p.mark; past >= slowAfter {
		h.slow = float64(m.got-p.marked) < slowRate*past.Seconds()
		if !h.slow {
			p.mark, p.marked = now, m.got
		}
	}
	s.holdings = append(s.holdings, h)
}

// urgency orders the messages of a holder: those that are to keep their receives first.
func (h *holding) urgency() int {
	switch {
	case h.slow:
		return 2
	case h.stalled:
		return 1
	}
	return 0
}

// kindCmp compares the messages that two receives accept: it returns 0 if they are the same.
func (r *recv) kindCmp(o *recv) int {
	b := func(tagged bool) int {
		if tagged {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(r.ep.id, o.ep.id), cmp.Compare(b(r.tagged), b(o.tagged)), cmp.Compare(r.ignore, o.ignore),
		cmp.Compare(r.tag&^r.ignore, o.tag&^o.ignore), cmp.Compare(r.init, o.init))
}

// relieveKind takes back receives that accept the same messages, at most most, and returns how
// many.
func (s *SES) relieveKind(now time.Duration, hs []holding, most int, look *int) (taken int) {
	share := max(len(hs)/recvShare, 1)
	for from := 0; from < len(hs); {
		to := from + 1
		for to < len(hs) && hs[to].holder == hs[from].holder {
			to++
		}
		held := to - from
		for k := to - 1; k >= from && taken < most && *look > 0; k-- { // the worst first
			h := &hs[k]
			over := held > share
			if !h.slow && !(h.stalled && over) {
				continue
			}
			if s.takeBack(now, h, over, held > 1, look) {
				held--
				taken++
			}
		}
		from = to
	}
	return taken
}

// takeBack takes the receive of a message back if another message waits for it and may have it,
// and reports whether it did. over means that the message's peer holds more than its share, more
// that it holds more than one.
func (s *SES) takeBack(now time.Duration, h *holding, over, more bool, look *int) bool {
	m, r := h.m, h.r
	if m.state != inBound {
		return false
	}
	sp := r.space()
	k, own, behind, open := s.waits(sp, r, m.peer, look)
	again := k == none && sp.wanted.on && sp.wanted.peer != m.peer && r.accepts(sp.wanted.tag, sp.wanted.peer, sp.wanted.init)
	if again && (r.seq < s.topSeq || open) {
		again, behind = false, true
	}
	if k == none && !again {
		// S-MAT-04: what waits was sent behind messages that younger receives got. The receive
		// cannot have it any more; its user can post it again.
		if !behind || !over || r.multi || !(h.holder == allUnproven || h.slow && now-h.p.seen.mark >= brokenAfter) {
			return false
		}
	}
	pu := s.peers.at(m.user)
	// S-MAT-04: where a later message of its peer got a younger receive, only its own is in order.
	last := m.ordered && r.seq < s.top(m.peer)
	keep := !r.multi && !last && !h.p.matchOnly && !m.isPull() && uint64(m.length) <= r.size() && s.reserve(pu, &Source{Unproven: pu.unproven}, int64(m.length))
	if !keep {
		// It will be sent again from its beginning, or fail.
		if !more || !h.slow && h.holder != allUnproven || s.dead >= maxDead {
			return false
		}
		// A ROD message would come behind later ones, so it fails for good. The path of an
		// honest peer may be dark for a while (F8).
		if m.ordered && h.holder != allUnproven && !(last && over && h.slow && now-h.p.seen.mark >= brokenAfter) {
			return false
		}
	}
	s.Stats.TakenBack++
	rv := h.p.recv
	if r.multi {
		s.takeBackMulti(sp, h.in, m, r)
		return true
	}
	h.p.recv = none
	if keep {
		s.setAside(h.in, m, r)
	} else {
		s.sendAgain(h.in, m)
	}
	switch {
	case k != none:
		s.take(rv, r, k)
	case again:
		sp.wanted.met = true
		if own != none {
			s.take(rv, r, own)
			return true
		}
		s.repost(sp, rv, r)
	default:
		e := s.recvEvent(r, 0, m.tag, m.peer, m.init)
		e.Cause, e.RC = TimedOut, wire.RCDropped
		s.Stats.RecvErrors++
		s.freeRecv(r)
	}
	return true
}

// waits finds the oldest complete unexpected message of another peer that a receive accepts and
// may have, and the oldest of that peer. behind means that there is one that it may not have
// (S-MAT-04), open that an ordered one is not complete, which later ones of its peer may not overtake.
func (s *SES) waits(sp *space, r *recv, peer uint32, look *int) (k, own int32, behind, open bool) {
	own, s.unready = none, s.unready[:0]
	x, h := &sp.order, uint32(0)
	if r.tagged && r.ignore == 0 {
		x, h = &sp.byTag, s.tagHash(r.tag)
	}
	for k = x.first(h); k != none; k = x.next(k) {
		*look--
		w := s.in.at(k)
		switch {
		case !r.accepts(w.tag, w.peer, w.init):
		case w.state != inUnexpected:
			if w.ordered {
				open, s.unready = true, append(s.unready, w.peer)
			}
		case w.ordered && (r.seq < s.top(w.peer) || slices.Contains(s.unready, w.peer)):
			behind = behind || w.peer != peer
		case w.peer != peer:
			return k, own, false, open
		case own == none:
			own = k
		}
	}
	return none, own, behind, open
}

// setAside makes a bound message an unexpected one that no receive gets before it is complete.
// What came of it moves from the memory of its receive; what did not come is overwritten later.
func (s *SES) setAside(i int32, m *inmsg, r *recv) {
	m.state, m.aside = inOpen, true
	s.allot(m, false)
	if r.iov == nil {
		s.keepBytes(m, 0, r.buf[:m.length])
		return
	}
	off := uint32(0)
	for _, v := range r.iov {
		n := min(uint32(min(len(v), int(m.length))), m.length-off)
		s.keepBytes(m, off, v[:n])
		off += n
	}
}

// completed gives an unexpected message that is complete now to a receive that is posted: it was
// set aside, or the receive was taken back.
func (s *SES) completed(i int32, m *inmsg) {
	if m.claimed {
		return
	}
	sp := s.space(m.ep, m.tagged)
	if m.aside {
		m.aside = false
		s.list(i, m)
	}
	if rv, r := s.match(sp, m.tag, m.peer, m.init); r != nil {
		s.take(rv, r, i)
		return
	}
	s.contend()
}

// sendAgain ends a message that cannot be kept, so that its sender sends it again. A ROD message
// would come behind later ones, so it fails for good.
func (s *SES) sendAgain(i int32, m *inmsg) {
	if m.isPull() {
		s.freePull(m)
	}
	rc := wire.RCNoMatch
	if m.ordered {
		rc = wire.RCDropped
	}
	s.buryUnheard(i, m, rc)
}

// takeBackMulti ends a message in a multi-receive buffer that is spent. If the message is the
// last one in the buffer, the buffer has its room again.
func (s *SES) takeBackMulti(sp *space, i int32, m *inmsg, r *recv) {
	p := s.more(m)
	rv := p.recv
	if r.off == min(p.base+(uint64(m.length)+7)&^7, r.size()) && r.size()-p.base >= r.minFree && r.seq >= s.topSeq {
		r.off, r.spent = p.base, false
		s.repost(sp, rv, r)
	}
	s.end(m, i, PeerError, wire.RCDropped)
	s.sendAgain(i, m)
	if r.live && r.class != boundClass && sp.n > 0 {
		s.fill(sp, rv, r)
	}
}

// repost puts a receive back where messages find it, at its place in the order (S-MAT-04).
func (s *SES) repost(sp *space, i int32, r *recv) {
	r.next, r.prev = nil, nil
	q := sp.run
	switch {
	case q == nil:
	case sp.active == 0 && sp.wilds == 0 && r.kindCmp(q) == 0 && r.peer == q.peer:
		r.class = runClass
		if r.seq < q.seq {
			r.next, q.prev, sp.run = q, r, r
			return
		}
		for q.next != nil && q.next.seq < r.seq {
			q = q.next
		}
		if r.next, r.prev = q.next, q; r.next == nil {
			sp.last = r
		} else {
			r.next.prev = r
		}
		q.next = r
		return
	case r.seq < sp.last.seq:
		// The run is the oldest receives no more.
		for sp.run = nil; q != nil; {
			next := q.next
			s.fileInOrder(sp, q.self, q)
			q.next, q = nil, next
		}
	}
	if sp.run == nil && sp.active == 0 && sp.wilds == 0 {
		s.post(sp, i, r)
		return
	}
	s.fileInOrder(sp, i, r)
}

// fileInOrder puts a receive into its class, before the younger ones that are there.
func (s *SES) fileInOrder(sp *space, i int32, r *recv) {
	s.file(sp, i, r)
	x := &sp.exact
	if r.class == wildClass {
		x = &sp.wild
	}
	x.sort(i, func(j int32) bool { return s.recvs.at(j).seq > r.seq })
}

// top is the number of the youngest receive that an ordered message of a peer got, 0 if none did.
func (s *SES) top(peer uint32) uint64 {
	if int(peer) < len(s.tops) {
		return s.tops[peer]
	}
	return 0
}

// inOrder notes that an ordered message of a peer got a receive.
func (s *SES) inOrder(peer uint32, r *recv) {
	for int(peer) >= len(s.tops) {
		s.tops = append(s.tops, 0)
	}
	s.tops[peer] = max(s.tops[peer], r.seq)
	s.topSeq = max(s.topSeq, r.seq)
}
