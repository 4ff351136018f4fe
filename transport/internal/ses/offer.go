package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file is the receiving side of deferrable sends (S-DEF). A message for which there is no
// receive and no room is kept as a header: it stands among the unexpected ones, in their order,
// and takes none of their memory. A receive that matches it is reserved for it, and an RTR asks
// for the message. What comes then goes straight to the receive. The RTR waits until the source is
// proven, because nothing is to be sent to where a forged packet says (T27); and what a source
// that may be forged holds is taken from it while something else waits (T15).
//
// A deferred message lives as long as the PDC on which it was deferred. If that fails, or the
// source has no such message any more, its receive goes back to its place in the order.

// An offerKey names a deferred message: its peer, and the restart token that the peer gave it. Our
// token for it is the same (S-DEF-06).
type offerKey struct {
	peer, token uint32
	pull        bool // a rendezvous send: token is its place in incoming.in
}

func (m *inmsg) offerKey(i int32) offerKey {
	if m.isPull() {
		return offerKey{m.peer, uint32(i), true}
	}
	return offerKey{m.peer, m.token, false}
}

// offering holds the messages of peers that were deferred and have not come again.
type offering struct {
	deferrals chains     // their places in incoming.in, by PDC and message id
	named     chains     // the same, by peer and restart token, or by the key of the memory that is offered
	nameLinks links      // of named
	token     uint32     // the restart token of the request being executed, 0: it is not deferrable
	unasked   []offerKey // those with a receive whose RTR has found no place among the sends
}

// mostNamed bounds the heads of deferrals and of named.
const mostNamed = 1 << 18

func (s *SES) pdcHash(pdc uint32, id uint16) uint32 {
	return s.hash(uint64(pdc)<<16|uint64(id), 5)
}

// deferralHash is the hash of the message at a place in deferrals. Those that nobody looks for make no long chain.
func (s *SES) deferralHash(i int32) uint32 {
	m := s.in.at(i)
	if m.aside {
		return s.placeHash(i)
	}
	return s.pdcHash(m.pdc, m.msgID)
}

func (s *SES) placeHash(i int32) uint32 { return s.hash(uint64(i), 6) }

// moveDeferral has a deferred message stand for another PDC, or noPDC. No packet comes by that which would be for it.
func (s *SES) moveDeferral(i int32, m *inmsg, pdc uint32) {
	s.deferrals.remove(i)
	m.pdc, m.aside = pdc, true
	s.deferrals.add(i)
}

func (s *SES) tokenHash(peer, token uint32) uint32 { return s.hash(uint64(token), 1<<32|uint64(peer)) }

// nameHash is the hash of the message at a place in named.
func (s *SES) nameHash(i int32) uint32 {
	m := s.in.at(i)
	switch {
	case m.isPull() && s.pullOf(m).is&pullOld != 0:
		return s.placeHash(i) // nobody looks for it
	case m.isPull():
		return s.lentHash(lentKey{m.peer, s.pullOf(m).key})
	}
	return s.tokenHash(m.peer, m.token)
}

// offerOf returns the place of the deferred message of a peer that has a restart token, or none.
func (s *SES) offerOf(peer, token uint32) int32 {
	if s.named.n == 0 {
		return none
	}
	for i := s.named.first(s.tokenHash(peer, token)); i != none; i = s.named.next(i) {
		if m := s.in.at(i); m.token == token && m.peer == peer && !m.isPull() {
			return i
		}
	}
	return none
}

// findDeferred returns the deferred message of which a packet of its first attempt came, nil if
// there is none.
func (s *SES) findDeferred(pdc uint32, id uint16) (int32, *inmsg) {
	for i := s.deferrals.first(s.pdcHash(pdc, id)); i != none; i = s.deferrals.next(i) {
		if m := s.in.at(i); m.pdc == pdc && m.msgID == id && !m.aside {
			return i, m
		}
	}
	return none, nil
}

// eachDeferral calls do for each deferred message. do may forget that message, and no other.
func (s *SES) eachDeferral(do func(i int32, m *inmsg)) {
	if s.deferrals.n == 0 {
		return
	}
	for b := range s.deferrals.heads {
		for i := s.deferrals.first(uint32(b)); i != none; {
			next := s.deferrals.next(i)
			do(i, s.in.at(i))
			i = next
		}
	}
}

// deferrableRequest executes one packet of a deferrable send. Apart from its tokens it is an
// ordinary send.
func (s *SES) deferrableRequest(r *wire.ReqStd, data []byte) *Result {
	own, ours := r.RestartTokens()
	if r.BufOff = 0; r.Opcode == wire.OpDeferrableTSend {
		r.Opcode = wire.OpTaggedSend
	} else {
		r.Opcode = wire.OpSend
	}
	_, m := s.findIn(s.src.PDC, r.MsgID)
	if r.Flags&single == wire.SESEOM && r.PayloadLen == 0 {
		switch {
		case m != nil: // S-MSC-04: no more comes of it.
			return s.msgError(s.src, r)
		case ours != 0:
			return s.recheckOffer(r, own, ours)
		}
		return s.nothingNew()
	}
	off, data, bad := s.extent(r, data)
	switch {
	case bad != nil:
		return bad
	case m != nil:
		return s.part(r, off, data)
	case ours != 0: // a message that was deferred, and comes again
		i, m := s.restarted(r, own, ours)
		if m == nil {
			return s.refuse(s.src, r, wire.RCUndeliverable, uint32(len(data)))
		}
		return s.resume(i, m, r, off, data)
	}
	if i, m := s.findDeferred(s.src.PDC, r.MsgID); m != nil && m.isPull() {
		s.moveDeferral(i, m, m.pdc) // its id has come to mean another message
	} else if m != nil {
		if r.Flags&wire.SESSOM != 0 {
			m.som, m.hasData, m.data = true, r.Flags&wire.SESHD != 0, r.HeaderData
		}
		return s.nothingNew()
	}
	s.token = own
	var res *Result
	if r.Flags&single == single {
		res = s.whole(&s.src, data)
	} else {
		res = s.part(r, off, data)
	}
	s.token = 0
	return res
}

// matchOnly reports whether the request being executed is of a message that is to be deferred while
// no receive has it, even if there is room: it is deferrable, and its initiator wants to know when it
// is where the application sees it (DC).
func (s *SES) matchOnly(r *wire.ReqStd) bool { return s.token != 0 && r.Flags&wire.SESDC != 0 }

// recheckOffer answers whether a deferred message is still here, whose PDC its initiator has closed. The
// PDC of the question takes its place.
func (s *SES) recheckOffer(r *wire.ReqStd, own, ours uint32) *Result {
	i, m := s.deferral(r, own, ours)
	if m == nil {
		return s.rejected(wire.RCUndeliverable)
	}
	s.moveDeferral(i, m, s.src.PDC)
	if m.intake != none {
		s.more(m).epoch = s.epoch
	}
	return s.special(wire.ListOverflow, 0)
}

// keepHeader keeps the header of a message for which there is no room, or refuses it if even that
// is too much. n is the number of payload bytes of the packet.
func (s *SES) keepHeader(r *wire.ReqStd, tag uint64, n int) *Result {
	src := &s.src
	if i := s.offerOf(src.Peer, s.token); i != none && !src.Later {
		// Tokens are unique among the sends of a peer, so the other message is of a former life. Its
		// receive may be for this one when it comes again.
		s.withdrawOffer(i, s.in.at(i))
		return s.nack()
	}
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	s.credit(pu, src)
	if src.Later || s.in.live() >= s.maxState() || !s.grants(pu, 0) {
		s.putUser(u, pu)
		return s.noRoom(n)
	}
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{
		tag: tag, ep: s.to.id, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: r.ReqLen, token: s.token, user: u,
		room: noBlock, intake: none, msgID: r.MsgID, state: inDeferred, opcode: r.Opcode, tagged: r.Opcode == wire.OpTaggedSend, ordered: src.Ordered,
	}
	if r.Flags&wire.SESSOM != 0 {
		m.som, m.hasData, m.data = true, r.Flags&wire.SESHD != 0, r.HeaderData
	}
	s.countKept(pu, 1, 0)
	s.deferrals.add(i)
	s.named.add(i)
	s.list(i, m)
	s.contend()
	s.Stats.Unexpected++
	s.Stats.Deferred++
	return s.special(wire.ListOverflow, 0) // S-DEF-03
}

// reserveFor reserves a receive, or none, for a deferred message, and asks for the message. It goes to the
// memory of the receive from base on.
func (s *SES) reserveFor(rv, i int32, m *inmsg, base uint64) {
	if !m.claimed {
		s.unlist(i, m)
	}
	m.claimed = false
	m.state = inOffered
	s.narrow(m)
	p := s.widen(i, m)
	p.recv, p.base, p.began = rv, base, s.now
	s.askRestart(m.offerKey(i))
}

// offered returns the place of the message of an offer, or none.
func (s *SES) offered(key offerKey) int32 {
	if !key.pull {
		return s.offerOf(key.peer, key.token)
	}
	i := int32(key.token)
	if m := s.in.at(i); m.state == inOffered && m.isPull() && m.peer == key.peer {
		return i
	}
	return none
}

// askRestart sends an RTR, or begins to read a rendezvous send. If there is no place for it among the sends, Advance tries again.
func (s *SES) askRestart(key offerKey) {
	i := s.offered(key)
	if i == none {
		return // the message has ended
	}
	in := s.in.at(i)
	e := s.endpoints[in.ep]
	if s.peers.at(in.user).unproven {
		if in.pdc != noPDC {
			s.owing = append(s.owing, in.pdc) // S-CLR-08: it asks for the proof, and askProven goes on
		}
		return
	}
	if s.numSends >= mostAsks {
		s.unasked = append(s.unasked, key)
		return
	}
	if in.isPull() {
		if s.more(in).task == 0 { // it may be asked for twice: when its source is proven, and when there is a place
			s.pullRest(i, in)
		}
		return
	}
	s.rtr(e, in, e.JobID)
}

// notice queues a send without payload to a peer, which nobody posted, for the caller to fill in its header.
func (s *SES) notice(e *endpoint, peer uint32) *send {
	m := e.idleSend
	if m == nil {
		m = s.freshSend(e)
	}
	e.idleSend = m.idle
	s.numSends++
	e.sends++
	s.seq++
	m.buf, m.iov, m.context, m.flags, m.seq, m.peer, m.posted = nil, nil, nil, 0, s.seq, peer, s.now
	m.kind, m.match, m.block, m.tries, m.next, m.open = evNotice, false, noBlock, 0, 0, 0
	m.ordered, m.early, m.silent, m.odd, m.scattered, m.outcome = false, false, true, true, false, outcome{}
	m.wireFlags, m.hdr.MsgID = wire.SESREL, s.newID()
	m.phase = phaseReady
	s.ready.push(m, m.seq)
	return m
}

// turnAway has the messages that are deferred for an endpoint, which is closed, come to be refused:
// their senders would wait for ever. What finds no place among the sends is asked for by its sender
// (sweepDeferred).
func (s *SES) turnAway(e *endpoint) {
	if s.deferrals.n == 0 {
		return
	}
	by := s.oneOpen()
	if by == nil {
		return // all PDCs end
	}
	s.eachDeferralOf(e, func(_ int32, m *inmsg) {
		switch {
		case s.peers.at(m.user).unproven || s.numSends >= maxSends:
		case m.isPull():
			s.tellGivenUp(by, m)
		default:
			s.rtr(by, m, e.JobID)
		}
	})
}

// rtr queues the RTR of a deferred message for an endpoint with that JobID.
func (s *SES) rtr(by *endpoint, in *inmsg, job uint32) {
	m := s.notice(by, in.peer)
	m.hdr = wire.ReqStd{Opcode: wire.OpDeferrableRTR, MsgID: m.hdr.MsgID, JobID: job, Initiator: in.init} // S-DEF-05
	m.hdr.SetRTRTokens(in.token, in.token)
}

// askProven asks a peer, which has turned out to be no forgery, for what is reserved for it.
func (s *SES) askProven(peer uint32) {
	s.eachDeferral(func(i int32, m *inmsg) {
		if m.state == inOffered && m.peer == peer {
			s.unasked = append(s.unasked, m.offerKey(i))
		}
	})
}

// mayRelieveOffers reports whether a receive may be reserved for a source that may be forged.
func (s *SES) mayRelieveOffers() bool {
	return s.deferrals.n != 0 && (s.unproven.kept != 0 || s.pulls.live() != 0)
}

// relieveOffers takes back the receives that are reserved for sources that may be forged, while a message of
// another peer waits for them. One of the same peer does not: it was sent later, and the source may be
// honest and prove itself in a moment.
func (s *SES) relieveOffers(now time.Duration) {
	if !s.mayRelieveOffers() {
		return
	}
	look := relieveLook
	s.eachDeferral(func(i int32, m *inmsg) {
		if m.state != inOffered || !s.peers.at(m.user).unproven {
			return
		}
		p := s.more(m)
		if p.recv == none || now-p.began < slowAfter {
			return
		}
		r := s.recvs.at(p.recv)
		if r.fixed || r.multi {
			return
		}
		k, w := s.waitsOf(r, m.peer, &look), &r.space().wanted
		switch {
		case k != none && m.isPull() && s.putBack(i, m):
			s.take(r.self, r, k)
		case k != none, w.on && w.peer != m.peer && r.accepts(w.tag, w.peer, w.init):
			s.withdrawOffer(i, m)
		}
	})
}

// waitsOf finds the oldest unexpected message of another peer that a receive accepts and may have at once.
func (s *SES) waitsOf(r *recv, peer uint32, look *int) int32 {
	sp := r.space()
	for k := sp.order.first(0); k != none && *look > 0; k = sp.order.next(k) {
		*look--
		w := s.in.at(k)
		if w.peer != peer && (w.state == inUnexpected || w.state == inDeferred) && r.accepts(w.tag, w.peer, w.init) {
			return k
		}
	}
	return none
}

// putBack takes the receive of a rendezvous send that is not being read, which waits for another one from then on.
// Its initiator has heard that it is here, and would wait for ever if it was forgotten. putBack returns false
// if there is no room for its header.
func (s *SES) putBack(i int32, m *inmsg) bool {
	p := s.pullOf(m)
	if pu := s.peers.at(m.user); p.is&pullMatched != 0 {
		if !s.grants(pu, 0) {
			return false
		}
		p.is &^= pullMatched
		pu.pulls--
		s.countKept(pu, 1, 0)
	}
	s.Stats.TakenBack++
	m.state = inDeferred // what came of it was placed in the receive
	s.keepEpoch(i, m)
	s.list(i, m)
	return true
}

// sweepDeferrals gives up what was asked for and did not come for IdleTimeout (S-DEF-08), and what
// no PDC stands for any more. A source that sends others of its messages again may have this one
// still to send.
func (s *SES) sweepDeferrals() {
	s.eachDeferral(func(i int32, m *inmsg) {
		switch {
		case m.isPull() && (m.state == inDeferred || s.more(m).task != 0):
			// Whether it can still be read shows when it is. A read has an end of its own.
		case m.state == inOffered && s.expired(max(s.more(m).epoch, s.peers.at(m.user).restarted)),
			m.state == inDeferred && m.pdc == noPDC && s.expired(s.more(m).epoch):
			s.Stats.Expired++
			s.withdrawOffer(i, m)
		}
	})
}

// askAgain sends the RTRs for which there was no place.
func (s *SES) askAgain() {
	keys := s.unasked
	s.unasked = nil
	for _, key := range keys {
		s.askRestart(key)
	}
}

// endNotice notes that a notice has ended, and gives its place the header of ordinary sends back. If
// it was an RTR and was refused the message will not come.
func (s *SES) endNotice(m *send) {
	op := m.hdr.Opcode
	token, _ := m.hdr.RTRTokens()
	if op == wire.OpDeferrableRTR && token == 0 && !s.closed && !s.ended {
		s.supportAnswered(m)
	}
	switch {
	case op != wire.OpNoOp || s.closed || s.ended:
	case m.flags&asksReader != 0:
		s.readerAnswered(m)
	default:
		s.lentAnswered(m)
	}
	hdr := m.hdr
	m.hdr.Initiator, m.hdr.BufOff = m.ep.Initiator, 0
	if op == wire.OpRead {
		s.pullEnded(m)
		return
	}
	if m.cause == OK || op != wire.OpDeferrableRTR || s.closed || s.ended {
		return
	}
	key := offerKey{peer: m.peer, token: token}
	i := s.offerOf(m.peer, token)
	ok := i != none
	switch {
	case !ok && m.cause == Aborted && token != 0 && m.tries < maxTransient && !m.ep.closed && s.numSends < maxSends: // it was that of turnAway
		n := s.notice(m.ep, m.peer)
		hdr.MsgID = n.hdr.MsgID
		n.hdr, n.tries = hdr, m.tries+1
	case !ok:
	case m.cause == Aborted: // its PDC was of a former life, of the peer or of what the peer knows
		s.unasked = append(s.unasked, key)
	case m.cause == TimedOut || m.cause == Unreachable: // no other message of the peer will come either
		s.eachDeferral(func(i int32, in *inmsg) {
			if in.peer == key.peer && !in.isPull() {
				s.withdrawOffer(i, in)
			}
		})
	default:
		s.withdrawOffer(i, s.in.at(i))
	}
}

// restarted returns the deferred message that the packet with these tokens restarts, nil if there is
// none.
func (s *SES) restarted(r *wire.ReqStd, own, ours uint32) (int32, *inmsg) {
	i, m := s.deferral(r, own, ours)
	if m == nil || m.state != inOffered {
		return none, nil
	}
	return i, m
}

// deferral returns the deferred message of which the packet with these tokens is, nil if there is none.
func (s *SES) deferral(r *wire.ReqStd, own, ours uint32) (int32, *inmsg) {
	i := s.offerOf(s.src.Peer, own)
	if i == none || own != ours {
		return none, nil
	}
	m := s.in.at(i)
	if m.ep != s.to.id || m.opcode != r.Opcode || m.length != r.ReqLen || m.init != r.Initiator || m.tagged && m.tag != r.Match {
		return none, nil
	}
	return i, m
}

// resume executes the first packet of a deferred message that comes again. It is an ordinary
// message with a receive from now on.
func (s *SES) resume(i int32, m *inmsg, r *wire.ReqStd, off uint32, data []byte) *Result {
	pu := s.unoffer(i, m)
	m.pdc, m.msgID, m.token, m.som, m.hasData = s.src.PDC, r.MsgID, 0, false, false
	p := s.more(m)
	p.began = s.src.Now
	pu.open++
	pu.restarted = s.epoch
	s.open++
	s.byPDC.add(i, s.hash(uint64(m.pdc), 1))
	s.last = i
	if p.recv == none {
		m.state = inGone
		s.put(i, m, r, off, data)
		return s.done(r.ReqLen)
	}
	m.state, p.matchOnly = inBound, r.Flags&wire.SESDC != 0
	room := s.recvs.at(p.recv).size() - p.base
	tooLong := uint64(m.length) > room
	p.quiet = tooLong
	s.put(i, m, r, off, data)
	if tooLong {
		return s.special(wire.ListExpected, uint32(room))
	}
	return s.done(r.ReqLen)
}

// unoffer takes a message from those that wait for their restart, or are read.
func (s *SES) unoffer(i int32, m *inmsg) *peerUse {
	s.named.remove(i)
	s.deferrals.remove(i)
	m.aside = false
	pu := s.peers.at(m.user)
	if !m.isPull() || s.pullOf(m).is&pullMatched == 0 {
		s.countKept(pu, -1, 0)
	}
	if m.isPull() {
		s.freePull(m)
	}
	return pu
}

// dropOffer forgets a deferred message without a receive.
func (s *SES) dropOffer(i int32, m *inmsg) {
	if m.state == inDeferred {
		if !m.claimed {
			s.unlist(i, m)
		}
		m.claimed = false
	}
	s.forgetOffer(i, m)
}

// forgetOffer frees a deferred message that is not in the lists of its space.
func (s *SES) forgetOffer(i int32, m *inmsg) {
	s.putUser(m.user, s.unoffer(i, m))
	s.freeIn(i, m)
}

// dropDeferral ends a deferred message whose PDC is gone, or whose peer or endpoint. A PDC that was closed in
// order says nothing of the message, unless its source may be forged: who closes has had the answer, and is proven by that.
func (s *SES) dropDeferral(i int32, m *inmsg, c Cause) {
	switch {
	case s.closed || s.ended || s.endpoints[m.ep].closed:
		s.endOffer(i, m, c, 0)
	case c == Closed && s.peers.at(m.user).unproven:
		s.withdrawOffer(i, m)
	case c == Closed || m.isPull() && m.state == inOffered && s.more(m).task != 0: // the read has a PDC of its own
		s.moveDeferral(i, m, noPDC)
		if m.state == inDeferred {
			s.keepEpoch(i, m)
		}
	default:
		s.withdrawOffer(i, m)
	}
}

// keepEpoch notes the time of a deferred message without a receive, if no PDC stands for it: the sweep gives it up.
func (s *SES) keepEpoch(i int32, m *inmsg) {
	s.narrow(m)
	if m.pdc == noPDC {
		s.widen(i, m)
	}
}

// noPDC is the PDC of a deferred message whose PDC was closed.
const noPDC = 1<<32 - 1

// withdrawOffer forgets a deferred message that will not come. Its receive goes back to its place in
// the order, unless something else is in the same buffer, or the application has claimed the message.
func (s *SES) withdrawOffer(i int32, m *inmsg) {
	c := PeerError
	if m.state == inDeferred && m.claimed {
		s.loseClaim(i, c, wire.RCUndeliverable)
	}
	if m.state == inDeferred || s.more(m).recv == none {
		s.dropOffer(i, m)
		return
	}
	rv := s.more(m).recv
	r := s.recvs.at(rv)
	if r.fixed || r.multi {
		s.endOffer(i, m, c, wire.RCUndeliverable)
		return
	}
	s.Stats.TakenBack++
	s.Stats.Withdrawn++
	s.more(m).recv = none
	s.dropOffer(i, m)
	sp := r.space()
	// An ordered message may get it though one before it got a younger one: the receive was not there
	// then. Otherwise it would wait beside a message that it accepts, for ever.
	if k := s.findUnexpected(sp, r); k != none {
		s.take(rv, r, k)
		return
	}
	s.repost(sp, rv, r)
}

// endOffer forgets a deferred message, and ends its receive in error.
func (s *SES) endOffer(i int32, m *inmsg, c Cause, rc wire.RC) {
	if m.state == inDeferred && m.claimed {
		s.loseClaim(i, c, rc)
	}
	if m.state == inOffered && s.more(m).recv != none {
		s.failRecv(m, c, rc)
	}
	s.dropOffer(i, m)
}
