package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file writes to memory regions (UE 3.4, RMA). The initiator's part is small: a write is a
// message with other fields in its header. At the target each packet is placed where its header
// says. A write of several packets has state, because only its first packet by offset says
// whether it has header data.

// aim makes a send that was just accepted a write, and returns its opcode and key.
func (s *SES) aim(m *send, op *Op) (wire.Opcode, uint64) {
	m.odd = true
	m.hdr.BufOff = op.RemoteAddr
	if m.small = op.small(); m.small {
		m.phase = phaseAsk
	}
	return wire.OpWrite, op.Key
}

// maxWrites bounds the open writes of all peers together, at a target. Those of sources that may
// be forged together are bounded as those of one peer are (OpenPerPeer).
const maxWrites = 1 << 16

// write executes one packet of a write: data is what lies at offset off of the message.
func (s *SES) write(src *Source, r *wire.ReqStd, off uint32, data []byte) *Result {
	g, rc := s.region(r, RemoteWrite)
	if r.Flags&single == single {
		return s.writeWhole(src, r, g, rc, data)
	}
	i, m := s.findIn(src.PDC, r.MsgID)
	if m != nil && m.state == inDead && !m.same(r) {
		s.forget(i, m)
		m = nil
	}
	switch {
	case m == nil && rc == wire.RCNull && g.taken:
		return s.refuse(*src, r, wire.RCBadMKey, uint32(len(data))) // R-MR-18
	case m == nil && rc == wire.RCNull:
		if i = s.beginWrite(src, r, g, off, len(data)); i == none {
			return s.nack()
		}
		m = s.in.at(i)
	case m == nil:
		return s.refuse(*src, r, rc, uint32(len(data)))
	case m.state == inDead:
		rc = s.more(m).rc
		s.count(i, m, r, uint32(len(data)))
		return s.rejected(rc)
	case m.state != inWriting || s.differs(m, r, off, uint32(len(data))) || m.tag != r.Match:
		return s.refuse(*src, r, wire.RCOpViolation, 0)
	case rc != wire.RCNull || g.serial != s.more(m).base: // R-MR-12: its region was removed, even if another one has the key now
		return s.refuse(*src, r, wire.RCBadMKey, uint32(len(data)))
	}
	if m.lastPart(r, len(data)) && (m.hasData || r.Flags&wire.SESHD != 0) && !s.to.admits() {
		return s.nack() // nothing was written: the packet comes again, and ends the message then
	}
	g.write(g.Offset(r)+uint64(off), data)
	s.put(i, m, r, off, data)
	return s.done(r.ReqLen)
}

// writeWhole executes a write of one packet. g is its region; rc is why it has none.
func (s *SES) writeWhole(src *Source, r *wire.ReqStd, g *Region, rc wire.RC, data []byte) *Result {
	hasData := r.Flags&wire.SESHD != 0
	switch {
	case rc != wire.RCNull:
		return s.rejected(rc)
	case g.taken:
		return s.rejected(wire.RCBadMKey)
	case hasData && !s.to.admits():
		return s.nack()
	}
	g.write(g.Offset(r), data)
	s.written(s.to.id, EvRemoteWrite, g, src.Peer, r.Initiator, r.ReqLen, hasData, r.HeaderData)
	return s.done(r.ReqLen)
}

// admits asks for room for an event that no posted operation has reserved.
func (e *endpoint) admits() bool { return e.Admit == nil || e.Admit() }

// beginWrite makes the state of a write of several packets, when the first of them arrives. It
// returns none if there is no room.
func (s *SES) beginWrite(src *Source, r *wire.ReqStd, g *Region, off uint32, n int) int32 {
	if src.Later && !sent(src, r, off, n) {
		return none // as begin
	}
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if s.fullOf(pu, src) || s.in.live() >= s.maxState() || s.writing >= maxWrites ||
		src.Unproven && s.unproven.writing >= s.cfg.OpenPerPeer {
		s.putUser(u, pu)
		return none
	}
	i := s.in.get()
	m := s.in.at(i)
	*m = inmsg{
		tag: r.Match, ep: s.to.id, pdc: src.PDC, peer: src.Peer, init: r.Initiator, length: r.ReqLen,
		user: u, room: noBlock, msgID: r.MsgID, opcode: r.Opcode, ordered: src.Ordered, state: inWriting,
	}
	p := s.widen(i, m)
	p.bufOff, p.base, p.began, p.unproven = r.BufOff, g.serial, src.Now, src.Unproven
	g.taken = g.SingleUse
	pu.open++
	s.open++
	s.writing++
	if src.Unproven {
		s.unproven.writing++
	}
	s.byPDC.add(i, s.hash(uint64(src.PDC), 1))
	s.last = i
	return i
}

// lastPart reports whether a packet with n bytes makes the message complete (S-RSM-06).
func (m *inmsg) lastPart(r *wire.ReqStd, n int) bool {
	return uint64(m.got)+uint64(n) == uint64(m.length) && (m.som || r.Flags&wire.SESSOM != 0)
}

// written reports a write or an atomic operation that is complete to this side, if anybody asked: the peer by header
// data, or the owner of the region by Counts. It removes a region of a single use.
func (s *SES) written(ep EndpointID, kind Kind, g *Region, peer, initiator, n uint32, hasData bool, data uint64) {
	s.Stats.MsgsRx++
	s.Stats.BytesRx += uint64(n)
	if hasData || g.Counts {
		e := s.events.add()
		e.init(ep, kind, g.Context, g.Flags, nil, int(n), 0, PeerID(peer), initiator)
		e.data(hasData, data)
	}
	if g.SingleUse {
		s.Deregister(g)
	}
}

// wrote ends the write m, all of whose bytes are in its region.
func (s *SES) wrote(m *inmsg) {
	g := s.regionOf(m)
	s.unwrite(m)
	s.written(m.ep, EvRemoteWrite, g, m.peer, m.init, m.length, m.hasData, m.data)
}

// unwritten ends the write m in error. This side does not hear of it (R-RMA-09).
func (s *SES) unwritten(m *inmsg) {
	if g := s.regionOf(m); g != nil && g.SingleUse {
		s.Deregister(g)
	}
	s.unwrite(m)
}

// unwrite uncounts an open write.
func (s *SES) unwrite(m *inmsg) {
	s.writing--
	if s.more(m).unproven {
		s.unproven.writing--
	}
}

// regionOf returns the region of a write, nil if it was removed.
func (s *SES) regionOf(m *inmsg) *Region {
	g := s.byKey[m.tag]
	for g != nil && g.serial != s.more(m).base {
		g = g.other
	}
	return g
}
