package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file keeps unexpected messages. The first packet of a message reserves room for the
// whole message or is refused (NACK 09), so what was accepted can always be completed and is
// never dropped. Blocks and chunks that are filled by several packets are zeroed first: what a
// receive copies from an open message is never part of another message.

// chargeOf is the memory that a message of n bytes takes, beside its state.
func chargeOf(n int64) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 1<<maxBlock:
		return 1 << (classOf(int(n)) + minBlock)
	}
	return (n + chunkLen - 1) &^ (chunkLen - 1)
}

// reserve reports whether a message of n bytes may be kept for a peer; charge then finds the
// room. All sources that may be forged may use as much as one peer, or a few datagrams could
// use up all room (T1, T14).
func (s *SES) reserve(pu *peerUse, src *Source, n int64) bool {
	s.credit(pu, src)
	c := chargeOf(n)
	if !s.grants(pu, c) {
		return false
	}
	switch {
	case n == 0:
		return true
	case n <= 1<<maxBlock:
		return s.store.fits(classOf(int(n)))
	}
	return s.store.room(int(c >> chunkBits))
}

// credit notes whether what is kept for a peer from now on is of a source that may be forged.
func (s *SES) credit(pu *peerUse, src *Source) {
	switch {
	case !src.Unproven:
		s.prove(pu)
	case pu.kept == 0:
		pu.unproven = true
	}
}

// grantsPartial reports whether one more message of n bytes may be kept of which packets are missing. The first
// one may have any length that reserve grants: else it could never be received.
func (s *SES) grantsPartial(n int64) bool {
	if s.partial == 0 || s.partial+chargeOf(n) <= s.cfg.PartialBytes {
		return true
	}
	s.Stats.RefusedPartial++
	return false
}

// mostUnproven bounds the messages that are kept for all sources that may be forged: a flood of
// them costs their peers' state as well (T1).
const mostUnproven = 16384

// grants reports whether a peer may have one more message kept that takes c bytes.
func (s *SES) grants(pu *peerUse, c int64) bool {
	share := s.cfg.UnexpectedShare
	if s.kept >= s.cfg.UnexpectedMsgs || c > 0 && s.bytes+c > s.cfg.UnexpectedBytes {
		return false
	}
	over := func(kept int32, bytes int64) bool {
		return float64(kept)+1 > max(share*float64(s.cfg.UnexpectedMsgs), 1) || c > 0 && float64(bytes+c) > share*float64(s.cfg.UnexpectedBytes)
	}
	return !over(pu.kept, pu.bytes) && !(pu.unproven && (s.unproven.kept >= mostUnproven || over(s.unproven.kept, s.unproven.bytes)))
}

// Proven reports to the SES that a peer is not forged. What is kept for it then counts only as
// its own.
func (s *SES) Proven(peer uint32) {
	if s.unprovenServes > 0 || s.unproven.writing > 0 {
		s.proveAccesses(peer)
	}
	h := s.hash(uint64(peer), 2)
	for u := s.byPeer.first(h); u != none; u = s.byPeer.next(u) {
		if pu := s.peers.at(u); pu.peer == peer {
			s.prove(pu)
			return
		}
	}
}

func (s *SES) prove(pu *peerUse) {
	if pu.unproven {
		pu.unproven = false
		s.unproven.kept -= pu.kept
		s.unproven.bytes -= pu.bytes
		if s.deferrals.n != 0 {
			s.askProven(pu.peer)
		}
	}
}

// charge allocates the room of a message that reserve granted, and lists the message. zero
// means that packets will fill it in any order.
func (s *SES) charge(i int32, m *inmsg, zero bool) {
	s.Stats.Unexpected++
	s.allot(m, zero)
	s.list(i, m)
}

// allot allocates the room of a message that reserve granted.
func (s *SES) allot(m *inmsg, zero bool) {
	n := int(m.length)
	c := chargeOf(int64(n))
	s.countKept(s.peers.at(m.user), 1, c)
	if m.state == inOpen {
		s.partial += c
	}
	switch {
	case n == 0:
	case n <= 1<<maxBlock:
		m.room = s.store.block(classOf(n))
		if zero {
			clear(s.store.mem(m.room)[:n])
		}
	default:
		k := int(c >> chunkBits)
		s.store.reserved += k
		m.room = uint32(s.takeTab(k))
	}
}

// list puts an unexpected message where receives find it.
func (s *SES) list(i int32, m *inmsg) {
	sp := s.space(m.ep, m.tagged)
	sp.n++
	sp.order.add(i, 0)
	sp.bySource.add(i, s.sourceHash(m))
	if m.tagged {
		sp.byTag.add(i, s.tagHash(m.tag))
	}
}

// uncharge removes a message from the lists and frees its room.
func (s *SES) uncharge(i int32, m *inmsg) {
	if m.fetches(s) {
		s.giveOld(s.parted(m), wire.RCCancelled)
	}
	switch {
	case m.room == noBlock:
	case m.inBlock():
		s.store.put(m.room)
	default:
		s.putTab(int32(m.room))
	}
	m.room = noBlock
	if !m.claimed && !m.aside {
		s.unlist(i, m)
	}
	m.claimed, m.aside = false, false
	if m.state == inOpen {
		s.partial -= chargeOf(int64(m.length))
	}
	pu := s.peers.at(m.user)
	s.countKept(pu, -1, -chargeOf(int64(m.length)))
	s.putUser(m.user, pu)
}

// countKept counts n more messages of a peer that are kept, and their room.
func (s *SES) countKept(pu *peerUse, n int32, bytes int64) {
	s.kept += int(n)
	s.bytes += bytes
	pu.kept += n
	pu.bytes += bytes
	if pu.unproven {
		s.unproven.kept += n
		s.unproven.bytes += bytes
	}
}

// unlist removes a message from where receives find it.
func (s *SES) unlist(i int32, m *inmsg) {
	sp := s.space(m.ep, m.tagged)
	sp.n--
	sp.order.remove(i)
	sp.bySource.remove(i)
	if m.tagged {
		sp.byTag.remove(i)
	}
}

func (s *SES) takeTab(k int) int32 {
	var t int32
	if n := len(s.tabs0); n > 0 {
		t = s.tabs0[n-1]
		s.tabs0 = s.tabs0[:n-1]
	} else {
		s.tabs = append(s.tabs, chunkTab{})
		t = int32(len(s.tabs) - 1)
	}
	ids := s.tabs[t].ids
	if cap(ids) < k {
		ids = make([]int32, k)
	}
	ids = ids[:k]
	for j := range ids {
		ids[j] = none
	}
	s.tabs[t].ids = ids
	return t
}

func (s *SES) putTab(t int32) {
	for _, c := range s.tabs[t].ids {
		if c == none {
			s.store.reserved--
		} else {
			s.store.putChunk(c)
		}
	}
	s.tabs0 = append(s.tabs0, t)
}

// inBlock reports whether what is kept of a message is in one block.
func (m *inmsg) inBlock() bool { return m.length <= 1<<maxBlock }

// keepBytes stores bytes of an unexpected message.
func (s *SES) keepBytes(m *inmsg, off uint32, data []byte) {
	if m.room == noBlock {
		return // an empty message
	}
	if m.inBlock() {
		copy(s.store.mem(m.room)[off:], data)
		return
	}
	ids := s.tabs[m.room].ids
	for len(data) > 0 {
		k := off >> chunkBits
		if ids[k] == none {
			s.store.reserved--
			ids[k] = s.store.chunk()
			clear(s.store.chunks[ids[k]].mem)
		}
		n := copy(s.store.chunks[ids[k]].mem[off&(chunkLen-1):], data)
		off += uint32(n)
		data = data[n:]
	}
}

// keep keeps a message of one packet that no receive matched.
func (s *SES) keep(src Source, r *wire.ReqStd, tag uint64, data []byte) *Result {
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if s.matchOnly(r) || s.in.live() >= s.maxState() || !s.reserve(pu, &src, int64(len(data))) {
		if s.token != 0 {
			s.putUser(u, pu)
			return s.keepHeader(r, tag, len(data))
		}
		s.unserved(s.space(s.to.id, r.Opcode == wire.OpTaggedSend), tag, src.Peer, r.Initiator)
		s.putUser(u, pu)
		return s.noRoom(len(data))
	}
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{
		tag: tag, ep: s.to.id, peer: src.Peer, init: r.Initiator, length: r.ReqLen, got: r.ReqLen, user: u, room: noBlock, intake: none,
		state: inUnexpected, opcode: r.Opcode, tagged: r.Opcode == wire.OpTaggedSend, som: true, ordered: src.Ordered,
	}
	if r.Flags&wire.SESHD != 0 {
		m.hasData, m.data = true, r.HeaderData
	}
	s.charge(i, m, false)
	s.keepBytes(m, 0, data)
	s.contend()
	return s.special(wire.ListOverflow, r.ReqLen)
}

// take gives an unexpected message to a receive. It copies what has arrived; parts that are
// missing will go to the receive directly.
func (s *SES) take(rv int32, r *recv, i int32) {
	m := s.in.at(i)
	if m.ordered {
		s.inOrder(m.peer, r)
	}
	if m.opcode.HasAtomic() {
		s.takeAtomic(r, i, m)
		return
	}
	base := uint64(0)
	if r.multi {
		base = s.pack(rv, r, uint64(m.length))
	}
	if m.state == inDeferred {
		s.reserveFor(rv, i, m, base)
		return
	}
	switch {
	case m.room == noBlock:
	case m.inBlock():
		r.place(base, s.store.mem(m.room)[:m.length])
	default:
		for k, c := range s.tabs[m.room].ids {
			if c != none {
				off := uint64(k) << chunkBits
				r.place(base+off, s.store.chunks[c].mem[:min(chunkLen, uint64(m.length)-off)])
			}
		}
	}
	if m.state == inUnexpected {
		s.deliver(rv, r, m, base)
		s.uncharge(i, m)
		s.freeIn(i, m)
		return
	}
	s.uncharge(i, m)
	m.state = inBound
	p := s.more(m)
	p.recv, p.base = rv, base
	if r.space().n > 0 {
		s.contend() // what stands still may hold the receive from now on
	}
}
