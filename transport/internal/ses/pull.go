package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file is the receiving side of rendezvous sends (UE 3.4, S-RDV). Such a message has a short
// beginning at most, the eager part, and says where in the memory of its initiator all of it lies. When
// a receive has it the target reads the rest, straight to the receive.
//
// A message without a receive is announced: its header stands among the unexpected messages, as that of
// a deferred one does (offer.go), and nothing else is kept; all of it is read later. Of one with a
// receive the eager part is placed as it comes. When that is there, or when an announced message gets its
// receive, the message is one that was asked for, until the read has ended. The read waits until the
// source is proven, because nothing is to be sent to where a forged packet says (T27).
//
// If the read brings nothing its receive goes back to its place in the order: the initiator does not
// offer the memory any more, because the send has ended there, or is gone. If it brings a part the
// receive ends in error, as after a part of any message.
//
// What does not fit into its receive, and a message that is discarded, is read all the same: the send
// ends when all of it was fetched (S-RDV-05).

// A pull is what a rendezvous send needs at its target beside its inmsg, whose token names it. There may be a million.
type pull struct {
	key, off uint64 // of the memory that is offered; valid if known, as the following
	pid, ri  uint16 // where it is
	gen      uint8
	is       pullMarks
	tries    uint8 // reads that failed and were begun anew
}

// pullMarks are what is known of a pull.
type pullMarks uint8

const (
	pullKnown   pullMarks = 1 << iota // its first packet by offset came
	pullMatched                       // it had a receive when it came: it counts in peerUse.pulls, not as a kept message
	pullOld                           // a later offer of its peer names the same memory
)

// noPull is the token of a rendezvous send that has no pull any more.
const noPull = 1<<32 - 1

// announce notes what the first packet of a message says of the memory that is offered.
func (p *pull) announce(x wire.Rendezvous) {
	p.key, p.off, p.pid, p.ri, p.gen = x.ReadMatch, x.ReadOff, x.ReadPIDonFEP, x.ReadRI, x.ReadGen
}

// from is the first byte to be read of an offer: of a message that had a receive when it came the eager part was placed.
func (s *SES) from(m *inmsg) uint32 {
	if s.pullOf(m).is&pullMatched != 0 {
		return s.more(m).end
	}
	return 0
}

// A lentKey names memory of a peer that it offers for one message.
type lentKey struct {
	peer uint32
	key  uint64
}

// pulling holds the rendezvous sends of peers.
type pulling struct {
	pulls table[pull]
	// had and hadOld are those of which all came lately: their initiators may lack the ACK that says so, and ask.
	had, hadOld map[lentKey]struct{}
}

// mostHad bounds had. Arbitrary.
const mostHad = 4096

// hasHad notes that all came of a rendezvous send.
func (s *SES) hasHad(key lentKey) {
	if len(s.had) >= mostHad {
		s.ageHad()
	}
	if s.had == nil {
		s.had = map[lentKey]struct{}{}
	}
	s.had[key] = struct{}{}
}

// ageHad forgets the older half of what came.
func (s *SES) ageHad() { s.had, s.hadOld = nil, s.had }

// rendezvous reports whether an opcode is that of a rendezvous send, tagged whether it is tagged.
func rendezvous(op wire.Opcode) bool {
	return op == wire.OpRendezvousSend || op == wire.OpRendezvousTSend
}

// ordinary is the opcode of a message that is no rendezvous send, but otherwise like one with opcode op.
func ordinary(op wire.Opcode) wire.Opcode {
	if op == wire.OpRendezvousTSend {
		return wire.OpTaggedSend
	}
	return wire.OpSend
}

// isPull reports whether a message that was offered is a rendezvous send.
func (m *inmsg) isPull() bool { return rendezvous(m.opcode) && m.token != noPull }

// pullOf returns the pull of a rendezvous send.
func (s *SES) pullOf(m *inmsg) *pull { return s.pulls.at(int32(m.token)) }

// rendezvousRequest executes one packet of a rendezvous send. data is what follows the standard header.
func (s *SES) rendezvousRequest(r *wire.ReqStd, data []byte) *Result {
	if bad := s.unfit(r, 0); bad != nil {
		if i, m := s.findDeferred(s.src.PDC, r.MsgID); m != nil && m.isPull() { // S-MSC-05
			s.loseOffer(i, m)
		}
		return bad
	}
	var ext wire.Rendezvous
	som := r.Flags&wire.SESSOM != 0
	off, n, most := uint64(r.MsgOff), uint64(r.PayloadLen), uint64(r.ReqLen)
	if som {
		x, k, err := wire.ParseRendezvous(data)
		if err != nil || x.EagerLen > r.ReqLen {
			return s.refuse(s.src, r, wire.RCOpViolation, 0)
		}
		ext, data, most = x, data[k:], uint64(x.EagerLen)
		off, n = 0, min(uint64(len(data)), most)
	}
	end := off + n
	if n > uint64(len(data)) || end > most || som && r.Flags&wire.SESEOM != 0 && end != most || n == 0 && !som {
		return s.refuse(s.src, r, wire.RCOpViolation, 0) // S-RSM-04, S-RDV-01
	}
	data = data[:n]
	i, m := s.findIn(s.src.PDC, r.MsgID)
	if m != nil && m.state == inGone && rendezvous(m.opcode) {
		if s.lateEager(i, m, r, uint32(n)) {
			return s.nothingNew()
		}
		m = nil
	}
	all := som && ext.EagerLen == r.ReqLen
	if m != nil && m.state == inDead && !m.same(r) && !(m.opcode == ordinary(r.Opcode) && m.length == r.ReqLen && (all || !som)) {
		s.forget(i, m)
		m = nil
	}
	if m == nil && all || m != nil && !rendezvous(m.opcode) {
		return s.allEager(r, uint32(off), data) // S-RDV-04
	}
	switch {
	case m == nil:
		if late := s.afterHeader(r, uint32(n)); late != nil {
			return late
		}
		return s.beginPull(r, ext, som, uint32(off), data)
	case m.state == inDead:
		rc := s.more(m).rc
		s.count(i, m, r, uint32(n))
		return s.rejected(rc)
	case s.eagerDiffers(m, r, som, uint32(off), uint32(n)) || m.tagged && m.tag != r.Match:
		return s.refuse(s.src, r, wire.RCOpViolation, 0)
	}
	in := s.more(m)
	quiet := in.quiet
	if p := s.pullOf(m); som {
		p.announce(ext)
		p.is |= pullKnown
		in.end = ext.EagerLen
	}
	if s.eager(i, m, r, uint32(off), data); quiet {
		return s.nothingNew()
	}
	return s.done(r.ReqLen)
}

// allEager executes a packet of a message of which nothing is left to be read: it is an ordinary one.
func (s *SES) allEager(r *wire.ReqStd, off uint32, data []byte) *Result {
	r.Opcode = ordinary(r.Opcode)
	if r.Flags&single == single {
		return s.whole(&s.src, data)
	}
	return s.part(r, off, data)
}

// afterHeader answers a packet with n bytes of a message of which only the header was kept. If its id means
// another message by now the header is forgotten, and afterHeader returns nil.
func (s *SES) afterHeader(r *wire.ReqStd, n uint32) *Result {
	if s.deferrals.n == 0 {
		return nil
	}
	i, m := s.findDeferred(s.src.PDC, r.MsgID)
	switch {
	case m == nil:
		return nil
	case m.isPull() && m.opcode == r.Opcode && m.length == r.ReqLen && m.init == r.Initiator && (!m.tagged || m.tag == r.Match) && r.Flags&wire.SESSOM == 0:
		m.got -= min(n, m.got)
		return s.nothingNew()
	}
	if m.isPull() {
		s.loseOffer(i, m)
	} else {
		s.moveDeferral(i, m, m.pdc)
	}
	return nil
}

// eagerDiffers reports whether a packet with n bytes contradicts the message (S-RSM-05).
func (s *SES) eagerDiffers(m *inmsg, r *wire.ReqStd, som bool, off, n uint32) bool {
	got := uint64(m.got) + uint64(n)
	if m.ep != s.to.id || m.opcode != r.Opcode || m.length != r.ReqLen || m.init != r.Initiator || s.more(m).bufOff != r.BufOff || som && m.som || got > uint64(m.length) {
		return true
	}
	all := s.more(m).end
	if s.pullOf(m).is&pullKnown == 0 {
		return false // of the first packet itself its extension was checked; what came before it, when it comes
	}
	return uint64(off)+uint64(n) > uint64(all) || got > uint64(all) || got == uint64(all) && s.more(m).edges+s.span(off, n) != s.span(0, all)
}

// awaitEager keeps what is needed to know the packets of an announced message that come after it has ended: the
// first that comes would begin it once more.
func (s *SES) awaitEager(i int32, m *inmsg) {
	pu := s.unoffer(i, m)
	m.state = inGone
	p := s.more(m)
	p.recv, p.end, p.epoch = none, m.got, s.epoch
	m.got = 0
	s.byPDC.add(i, s.hash(uint64(m.pdc), 1))
	s.open++
	pu.open++
}

// lateEager counts a packet with n bytes of a message that has ended. It returns false if the packet is of
// another message with the same id: then what was kept is forgotten.
func (s *SES) lateEager(i int32, m *inmsg, r *wire.ReqStd, n uint32) bool {
	same := m.opcode == r.Opcode && m.length == r.ReqLen && m.init == r.Initiator && (!m.tagged || m.tag == r.Match) && r.Flags&wire.SESSOM == 0
	if m.got += n; !same || m.got >= s.more(m).end {
		s.close(i, m)
		s.freeIn(i, m)
	}
	return same
}

// beginPull executes the first packet that arrives of a rendezvous send. known means that it is the first
// by offset, which has the extension.
func (s *SES) beginPull(r *wire.ReqStd, ext wire.Rendezvous, known bool, off uint32, data []byte) *Result {
	src := &s.src
	several := r.Flags&single != single
	if src.Later && several {
		return s.nack()
	}
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if several && s.fullOf(pu, src) || s.in.live() >= s.maxState() {
		s.putUser(u, pu)
		return s.nack()
	}
	tagged, tag := r.Opcode == wire.OpRendezvousTSend, r.Match
	if !tagged {
		tag = 0
	}
	sp := s.space(s.to.id, tagged)
	rv, q := s.match(sp, tag, src.Peer, r.Initiator)
	if q != nil && s.cfg.RefuseTooLong && uint64(r.ReqLen) > q.size()-q.off {
		s.putUser(u, pu)
		s.refuseTooLong(rv, q, r, tag)
		if several {
			s.entomb(*src, r, wire.RCTooLong, r.ReqLen, uint32(len(data)))
		}
		return s.rejected(wire.RCTooLong)
	}
	s.credit(pu, src)
	if rv == none {
		// Without its extension the message could not be read later. That packet comes first, or soon.
		if !known || src.Later || !s.grants(pu, 0) {
			if known && !src.Later {
				s.unserved(sp, tag, src.Peer, r.Initiator)
			}
			s.putUser(u, pu)
			return s.nack()
		}
		i, m, _ := s.newPull(r, ext, u, tag)
		m.som, m.hasData, m.data = true, r.Flags&wire.SESHD != 0, r.HeaderData
		m.state, m.got = inDeferred, ext.EagerLen-uint32(len(data))
		s.offer(i, m)
		s.countKept(pu, 1, 0)
		s.list(i, m)
		s.contend()
		s.Stats.Unexpected++
		s.Stats.Announced++
		return s.special(wire.ListOverflow, 0) // S-RDV-07
	}
	i, m, p := s.newPull(r, ext, u, tag)
	if p.is = pullMatched; known {
		p.is |= pullKnown
	}
	m.state = inBound
	in := s.widen(i, m)
	in.bufOff, in.began, in.recv, in.end = r.BufOff, src.Now, rv, ext.EagerLen
	pu.pulls++
	pu.open++
	s.open++
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.last = i
	if src.Ordered {
		s.inOrder(src.Peer, q)
	}
	room := q.size()
	if q.multi {
		room -= q.off
		in.base = s.pack(rv, q, uint64(r.ReqLen))
	}
	tooLong := uint64(r.ReqLen) > room
	in.quiet = tooLong || src.Unproven
	s.eager(i, m, r, off, data)
	switch {
	case tooLong:
		return s.special(wire.ListExpected, uint32(room))
	case src.Unproven:
		return s.special(wire.ListExpected, r.ReqLen) // its initiator will tell that it has this, which proves it
	}
	return s.done(r.ReqLen)
}

// newPull makes the state of a rendezvous send, the first packet of which is being executed.
func (s *SES) newPull(r *wire.ReqStd, ext wire.Rendezvous, u int32, tag uint64) (int32, *inmsg, *pull) {
	src := &s.src
	i, k := s.in.get(), s.pulls.get()
	m, p := s.in.at(i), s.pulls.at(k)
	*p = pull{is: pullKnown}
	p.announce(ext)
	*m = inmsg{
		tag: tag, ep: s.to.id, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: r.ReqLen, token: uint32(k),
		user: u, room: noBlock, intake: none, msgID: r.MsgID, opcode: r.Opcode,
		tagged: r.Opcode == wire.OpRendezvousTSend, ordered: src.Ordered,
	}
	return i, m, p
}

// freePull frees what a rendezvous send needed, whose message ends.
func (s *SES) freePull(m *inmsg) {
	if m.intake != none {
		s.stopRead(s.more(m))
	}
	if s.pullOf(m).is&pullMatched != 0 {
		s.peers.at(m.user).pulls--
	}
	s.pulls.put(int32(m.token))
	m.token = noPull
}

// offer puts a rendezvous send among the offers.
func (s *SES) offer(i int32, m *inmsg) {
	s.deferrals.add(i)
	// Only the latest that names the memory is found. So what one peer offers again and again makes no long chain.
	if j, old := s.lent(lentKey{m.peer, s.pullOf(m).key}); old != nil {
		s.named.remove(j)
		s.pullOf(old).is |= pullOld
		s.named.add(j)
	}
	s.named.add(i)
}

// eager places the bytes of one packet of a rendezvous send, and goes on if no byte of the eager part is
// missing.
func (s *SES) eager(i int32, m *inmsg, r *wire.ReqStd, off uint32, data []byte) {
	in := s.more(m)
	in.epoch = s.epoch
	if r.Flags&wire.SESSOM != 0 {
		m.som = true
		if m.hasData = r.Flags&wire.SESHD != 0; m.hasData {
			m.data = r.HeaderData
		}
	}
	m.got += uint32(len(data))
	in.edges += s.span(off, uint32(len(data)))
	s.recvs.at(in.recv).place(in.base+uint64(off), data)
	switch all := in.end; {
	case s.pullOf(m).is&pullKnown == 0 || m.got < all:
		return
	case m.got > all || in.edges != s.span(0, all): // what came before the first packet does not fit to it
		s.fail(i, m, PeerError, wire.RCOpViolation)
		return
	}
	s.close(i, m)
	if m.got == m.length {
		s.deliver(in.recv, s.recvs.at(in.recv), m, in.base)
		s.endPull(i, m)
		return
	}
	m.state, m.got, in.began = inOffered, 0, s.now
	s.offer(i, m)
	s.askRestart(m.offerKey(i))
}

// endPull frees a rendezvous send that is no offer.
func (s *SES) endPull(i int32, m *inmsg) {
	s.freePull(m)
	s.putUser(m.user, s.peers.at(m.user))
	s.freeIn(i, m)
}

// pullRest reads what is missing of a rendezvous send that has its receive, or none because it was
// discarded. There is a place among the sends.
func (s *SES) pullRest(i int32, in *inmsg) {
	p := s.pullOf(in)
	from, e := s.from(in), s.endpoints[in.ep]
	m := s.notice(e, in.peer)
	m.hdr = wire.ReqStd{ // S-RDV-02, S-RDV-03
		Opcode: wire.OpRead, MsgID: m.hdr.MsgID, JobID: e.JobID, PIDonFEP: p.pid, RI: p.ri, Gen: p.gen,
		Match: p.key, BufOff: p.off + uint64(from), Initiator: e.Initiator, ReqLen: in.length - from,
	}
	m.flags = uint64(i)
	w := s.more(in)
	if w.recv != none {
		s.readTo(m, s.recvs.at(w.recv), w.base+uint64(from), w.base+uint64(in.length))
	}
	s.readInto(m, nil)
	w.task = int32(handleOf(m.self, m))
}

// pulledBy returns the rendezvous send that m reads and its place, nil if stopRead was called.
func (s *SES) pulledBy(m *send) (int32, *inmsg) {
	i := int32(m.flags)
	in := s.in.at(i)
	if in.state != inOffered || !in.isPull() || s.more(in).task != int32(handleOf(m.self, m)) {
		return none, nil
	}
	return i, in
}

// readTo makes the bytes from off to end of the memory of a receive, as far as there are, those that the
// read m is for.
func (s *SES) readTo(m *send, r *recv, off, end uint64) {
	end = min(end, r.size())
	if off >= end {
		return
	}
	if r.iov == nil {
		m.buf = r.buf[off:end]
		return
	}
	m.iov = s.iov()
	for _, v := range r.iov {
		n := uint64(len(v))
		if off < n {
			m.iov = append(m.iov, v[off:min(n, end)])
		}
		if end <= n {
			break
		}
		off, end = off-min(off, n), end-n
	}
}

// Pulls reports whether h reads the rest of a rendezvous send.
func (s *SES) Pulls(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.kind == evNotice && m.read != nil
}

// stopRead ends the read of a rendezvous send. No byte is written any more when it returns. The initiator is
// told, if the read has begun.
func (s *SES) stopRead(p *intake) {
	_, m := s.lookup(Handle(p.task))
	p.task = 0
	if m == nil || m.read == nil {
		return
	}
	m.buf = nil
	if m.iov != nil {
		s.putIov(m.iov)
		m.iov = nil
	}
	if m.cause == OK {
		s.withdraw(m)
	}
}

// pulled ends a rendezvous send all of which was read. The initiator takes it for received, so the receive does not wait
// for the answers to the requests. Nothing is written to it any more.
func (s *SES) pulled(m *send) {
	i, in := s.pulledBy(m)
	if in == nil {
		return
	}
	m.buf = nil
	if m.iov != nil {
		s.putIov(m.iov)
		m.iov = nil
	}
	w := s.more(in)
	if w.task = 0; w.recv != none {
		s.deliver(w.recv, s.recvs.at(w.recv), in, w.base)
	}
	s.hasHad(lentKey{in.peer, m.hdr.Match})
	s.Stats.Pulled++
	if in.pdc != noPDC && in.got != 0 {
		s.awaitEager(i, in)
		return
	}
	s.forgetOffer(i, in)
}

// pullEnded ends a rendezvous send whose read m has ended in error, or begins another one. Of one whose read brought all,
// pulled was called.
func (s *SES) pullEnded(m *send) {
	i, in := s.pulledBy(m)
	if in == nil {
		return
	}
	s.more(in).task = 0
	if m.cause == TimedOut || m.cause == Unreachable {
		// Nothing else of the peer can be read either. Otherwise each receive would wait as long for the next one.
		s.eachDeferral(func(k int32, o *inmsg) {
			if o.peer == in.peer && o.isPull() && o.state == inDeferred {
				s.withdrawOffer(k, o)
			}
		})
	}
	switch {
	case m.cause == Cancelled || s.closed || s.ended:
		s.endOffer(i, in, Cancelled, 0)
	case (m.cause == Aborted || m.cause == TooBig || m.cause == NoResource) && s.pullOf(in).tries < maxTransient:
		// Its PDC has ended, not its initiator. If that has forgotten the send it says so now.
		s.pullOf(in).tries++
		s.askRestart(in.offerKey(i))
	case m.read.got == 0:
		s.withdrawOffer(i, in)
	case m.cause == Rejected:
		s.endOffer(i, in, PeerError, m.rc)
	default:
		s.endOffer(i, in, m.cause, m.rc)
	}
}

// loseOffer ends a rendezvous send that its initiator has given up, whatever this side has done for it.
func (s *SES) loseOffer(i int32, m *inmsg) {
	if m.state == inOffered {
		if _, rd := s.lookup(Handle(s.more(m).task)); rd != nil && rd.read != nil && rd.read.got != 0 {
			s.endOffer(i, m, PeerError, wire.RCInitiatorError)
			return
		}
	}
	s.withdrawOffer(i, m)
}

func (s *SES) lentHash(name lentKey) uint32 { return s.hash(name.key, 2<<32|uint64(name.peer)) }

// lentOf returns the offer of the peer of the request that names memory by that key, nil if there is none.
func (s *SES) lentOf(key uint64) (int32, *inmsg) {
	if s.pulls.live() == 0 || s.named.n == 0 {
		return none, nil
	}
	return s.lent(lentKey{s.src.Peer, key})
}

// lent returns the latest offer of a peer that names memory by a key, nil if there is none.
func (s *SES) lent(name lentKey) (int32, *inmsg) {
	for i := s.named.first(s.lentHash(name)); i != none; i = s.named.next(i) {
		if m := s.in.at(i); m.peer == name.peer && m.isPull() && s.pullOf(m).key == name.key && s.pullOf(m).is&pullOld == 0 {
			return i, m
		}
	}
	return none, nil
}

// stillHere answers whether a rendezvous send whose memory has a key is still here. Its initiator asks by a
// NO_OP with the key, which everybody else answers with OK, when the PDC is gone by which it was announced. The PDC
// of the question takes its place. A response with the list EXPECTED says that all of it came.
func (s *SES) stillHere(r *wire.ReqStd) *Result {
	i, m := s.lentOf(r.Match)
	if m == nil {
		key := lentKey{s.src.Peer, r.Match}
		if _, ok := s.had[key]; ok {
			return s.special(wire.ListExpected, 0)
		}
		if _, ok := s.hadOld[key]; ok {
			return s.special(wire.ListExpected, 0)
		}
		return s.rejected(wire.RCUndeliverable)
	}
	if m.intake != none {
		s.more(m).epoch = s.epoch
	}
	s.moveDeferral(i, m, s.src.PDC)
	m.got = 0
	return s.special(wire.ListOverflow, 0)
}

// tellGivenUp tells the initiator of a rendezvous send that nobody will read the rest of it.
func (s *SES) tellGivenUp(by *endpoint, in *inmsg) {
	p := s.pullOf(in)
	m := s.notice(by, in.peer)
	m.hdr = wire.ReqStd{Opcode: wire.OpMsgError, MsgID: m.hdr.MsgID, JobID: s.endpoints[in.ep].JobID, PIDonFEP: p.pid, RI: p.ri, Gen: p.gen,
		Match: p.key, BufOff: p.off, Initiator: by.Initiator}
	m.wireFlags |= wire.SESIE
}

// rendezvousError ends the rendezvous send that a MSG_ERROR gives up, by the key of its memory or by its message id.
func (s *SES) rendezvousError(src Source, r *wire.ReqStd) bool {
	i, m := s.lentOf(r.BufOff)
	if r.BufOff == 0 || m == nil {
		if i, m = s.findDeferred(src.PDC, r.MsgID); m == nil || !m.isPull() {
			return false
		}
	}
	s.loseOffer(i, m)
	return true
}
