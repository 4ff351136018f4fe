package ses

import (
	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file executes atomic operations on tagged receives (UE 3.4, S-AMO-10). Such an operation matches
// as a tagged message does, changes the buffer of its receive at buffer_offset, and ends the receive. One
// that no receive matches is kept as an unexpected message. If it fetches, its initiator hears at once that
// the old values come later, and gets them when a receive has matched (docs/decisions/0057).

// taggedAtomic executes an atomic operation on a tagged receive. data is what follows the header. An
// operation that is wrong whatever it meets, matches no receive.
func (s *SES) taggedAtomic(r *wire.ReqStd, data []byte) *Result {
	a, _, _, n, rc := s.parseAtomic(r, data)
	fetch, src := r.Opcode == wire.OpTSendFetchAtomic, &s.src
	switch {
	case s.to.Atomics&RemoteAtomic == 0:
		rc = wire.RCUnsupportedOp
	case rc != wire.RCNull:
	case s.to.Atomics&RemoteWrite == 0 || fetch && s.to.Atomics&RemoteRead == 0:
		rc = wire.RCPermViolation
	}
	if data = data[:min(spans(&a, n), len(data))]; rc == wire.RCNull && len(data) > 1<<maxBlock {
		rc = wire.RCAMOUnsupportedSize
	}
	if rc != wire.RCNull {
		return s.rejected(rc)
	}
	sv := none // what it returns has its place before it is executed (S-RSP-02)
	if fetch {
		if sv = s.newFetch(src, r, n); sv == none {
			return s.nack()
		}
	}
	_, rv := s.match(&s.to.spaces[1], r.Match, src.Peer, r.Initiator)
	if rv == nil {
		return s.keepAtomic(r, data, n, sv)
	}
	if src.Ordered {
		s.inOrder(src.Peer, rv)
	}
	rc = s.change(rv, r, src.Peer, data, sv)
	switch {
	case rc != wire.RCNull:
		if fetch {
			s.stopServe(sv, s.serves.at(sv))
		}
		return s.rejected(rc)
	case fetch && n <= maxInline && !src.Unproven: // S-RMA-12
		old := append(s.inline[:0], s.serves.at(sv).old...)
		s.stopServe(sv, s.serves.at(sv))
		return s.withData(old, r.ReqLen)
	case fetch:
		s.giveOld(sv, wire.RCNull)
	}
	return s.done(r.ReqLen)
}

// meetsNone reports whether m is an operation on a receive that its target keeps until a receive matches. It
// waits as long as its PDC lives.
func (m *send) meetsNone() bool {
	return m.phase == phaseSent && m.hdr.Opcode == wire.OpTSendFetchAtomic && m.read.promised
}

// spans is how many bytes an operation with n bytes of operands has behind the header.
func spans(a *wire.Atomic, n int) int {
	switch {
	case a.Op.Compares():
		return wire.CSwapLen
	case a.Op == wire.AtomicRead:
		return wire.AtomicLen
	}
	return wire.AtomicLen + n
}

// newFetch makes room for the n bytes of old values of an operation on a receive. It returns none if there
// is none.
func (s *SES) newFetch(src *Source, r *wire.ReqStd, n int) int32 {
	q := s.returnsOn(src.PDC)
	if len(q.q)-q.head >= maxReturns || s.fetched+n > maxFetched {
		return none
	}
	i := s.newServe(src, r, &s.buffers, q)
	if i != none {
		sv := s.serves.at(i)
		sv.old, sv.length, sv.asked, sv.pending = make([]byte, n), uint32(n), uint32(n), true
		s.fetched += n
	}
	return i
}

// waitingOld is the room of old values that operations of a peer have which wait for receives. A quarter
// of all is the most: others fetch, too.
func (s *SES) waitingOld(peer uint32) (n int) {
	for i := range s.serves.used {
		if sv := s.serves.at(i); sv.region != nil && sv.pending && sv.peer == peer {
			n += int(sv.length)
		}
	}
	return n
}

// giveOld returns the old values of an operation on a receive, or an error.
func (s *SES) giveOld(i int32, rc wire.RC) {
	sv := s.serves.at(i)
	n := sv.length
	if sv.rc = rc; rc != wire.RCNull {
		n = 0
	}
	sv.pending, sv.epoch = false, s.epoch
	sv.queued++
	q := s.returnsOn(sv.pdc)
	q.add(ret{serve: i, len: n})
	s.owe(sv.pdc, q)
}

// change executes an operation on the receive that match found for it, and ends the receive. Old values
// go where serve i has them, if i is not none. It returns RCNull, or the answer; then nothing was
// changed, and the receive ends in error.
func (s *SES) change(rv *recv, r *wire.ReqStd, peer uint32, data []byte, i int32) wire.RC {
	a, operand, compare, n, _ := s.parseAtomic(r, data)
	base, room := uint64(0), rv.size()
	if rv.multi { // its place is the next one, as that of a message
		base, room = rv.off, room-rv.off
	}
	end := r.BufOff + uint64(n)
	over := 0
	switch {
	case r.BufOff >= room || end < r.BufOff:
		over = n
	case end > room:
		over = int(end - room)
	}
	memory, rc := []byte(nil), wire.RCBadAddr
	if over == 0 {
		memory = rv.at(base+r.BufOff, n)
	}
	if memory != nil {
		var old []byte
		if i != none {
			old = s.serves.at(i).old[:0]
		}
		_, rc = amo.Apply(old, a.Op, a.Type, memory, operand, compare)
	}
	switch {
	case !rv.multi:
	case rc == wire.RCNull:
		s.pack(rv.self, rv, end)
	default:
		rv.refs++ // it gets an error and no place
	}
	e := s.recvEvent(rv, 0, r.Match, peer, r.Initiator)
	e.data(r.Flags&wire.SESHD != 0, r.HeaderData)
	switch {
	case rc == wire.RCNull:
		e.Len, base = n, base+r.BufOff
		s.arrived(e, 0)
	case over > 0:
		e.RC = rc
		s.arrived(e, over)
	default:
		e.Cause, e.RC = PeerError, rc
		s.Stats.RecvErrors++
	}
	s.unbind(rv.self, rv, e, base)
	return rc
}

// at returns the n bytes at an offset of a receive's memory, nil if they are not in one part of it.
func (r *recv) at(off uint64, n int) []byte {
	if r.iov == nil {
		return r.buf[off:][:n]
	}
	for _, v := range r.iov {
		if off < uint64(len(v)) {
			if uint64(len(v))-off < uint64(n) {
				return nil
			}
			return v[off:][:n]
		}
		off -= uint64(len(v))
	}
	return nil
}

// keepAtomic keeps an operation with n bytes of operands that no receive matched. sv is the serve of what
// it fetches, or none.
func (s *SES) keepAtomic(r *wire.ReqStd, data []byte, n int, sv int32) *Result {
	src := &s.src
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if s.in.live() >= s.maxState() || sv != none && s.waitingOld(src.Peer) > maxFetched/4 || !s.reserve(pu, src, int64(len(data))) {
		s.unserved(&s.to.spaces[1], r.Match, src.Peer, r.Initiator)
		s.putUser(u, pu)
		if sv != none {
			s.stopServe(sv, s.serves.at(sv))
		}
		return s.nack()
	}
	i := s.in.get()
	m := s.in.at(i)
	size := uint32(len(data))
	*m = inmsg{
		tag: r.Match, token: uint32(n), ep: s.to.id, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: size, got: size,
		user: u, room: noBlock, state: inUnexpected, opcode: r.Opcode, tagged: true, som: true, ordered: src.Ordered,
	}
	p := s.widen(i, m)
	p.bufOff = r.BufOff
	if r.Flags&wire.SESHD != 0 {
		m.hasData, m.data = true, r.HeaderData
	}
	s.charge(i, m, false)
	s.keepBytes(m, 0, data)
	s.contend()
	if sv == none {
		return s.special(wire.ListOverflow, r.ReqLen)
	}
	p.task, s.serves.at(sv).kept = sv+1, i+1
	return s.special(wire.ListOverflow, 0)
}

// takeAtomic gives an operation that was kept to a receive.
func (s *SES) takeAtomic(rv *recv, i int32, m *inmsg) {
	r := wire.ReqStd{Opcode: m.opcode, Flags: single, Initiator: m.init, BufOff: s.more(m).bufOff, Match: m.tag, ReqLen: m.token}
	if m.hasData {
		r.Flags, r.HeaderData = r.Flags|wire.SESHD, m.data
	}
	sv := none
	if m.fetches(s) {
		sv = s.parted(m)
	}
	rc := s.change(rv, &r, m.peer, s.store.mem(m.room)[:m.length], sv)
	s.uncharge(i, m)
	s.freeIn(i, m)
	if sv != none {
		s.giveOld(sv, rc)
	}
}

// fetches reports whether m is an operation that was kept and has the serve of what it fetches.
func (m *inmsg) fetches(s *SES) bool { return m.opcode.HasAtomic() && s.more(m).task != 0 }

// parted separates an operation that was kept from the serve of what it fetches, which it returns.
func (s *SES) parted(m *inmsg) int32 {
	p := s.more(m)
	i := p.task - 1
	p.task, s.serves.at(i).kept = 0, 0
	return i
}

// dropKept drops an operation that waits for a receive: nobody waits for what it fetches any more.
func (s *SES) dropKept(sv *serve) {
	i := sv.kept - 1
	m := s.in.at(i)
	s.parted(m)
	if m.claimed {
		s.loseClaim(i, Aborted, 0)
	}
	s.uncharge(i, m)
	s.freeIn(i, m)
}
