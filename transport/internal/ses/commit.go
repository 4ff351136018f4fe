package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file makes what was written to a region durable (FI_COMMIT_COMPLETE). The specification has no
// message for it, so it goes as one that other targets refuse: a write of one packet that has the bit
// DC, names the bytes that were written, and carries none of them. Its sender sends it when the write,
// or the atomic operation, has completed at LevelDelivery. The target answers at once that the result
// comes later. It hands out an EvCommit, and when Committed says what became of that, it returns a
// response of no bytes, as it returns read data (docs/decisions/0040).

// A commit is what a target is making durable.
type commit struct {
	region    *Region
	serve     int32 // which returns the answer; none: nobody waits for it any more
	ep        EndpointID
	peer      uint32
	initiator uint32
	length    uint32
	hasData   bool
	data      uint64
}

// maxCommits bounds what is being made durable at a time, for all peers.
const maxCommits = 1 << 14

// commits reports whether a send that was just accepted is to be durable at its target.
func commits(op *Op) bool {
	return op.Level == LevelCommit && (op.Kind == EvWrite || op.Kind == EvAtomic && !op.AMO.Tagged) && op.Bytes() != 0
}

// askCommit makes a write that its target has executed the question that has it made durable.
func (s *SES) askCommit(m *send) {
	s.freeBytes(m)
	m.small = false
	m.block = noBlock
	if m.operands != 0 {
		m.hdr.ReqLen, m.operands = m.operands, 0
	}
	s.readInto(m, nil)
	m.read.commit, m.read.step = true, m.hdr.ReqLen
	m.hdr.Opcode = wire.OpWrite
	if m.commit = commitAsked; m.withData {
		m.wireFlags |= wire.SESHD
	}
	s.freeID(m.hdr.MsgID)
	m.hdr.MsgID = s.newID()
	m.cause, m.rc, m.nack, m.response, m.noResponse = OK, 0, 0, false, false
	m.phase = phaseReady
	s.ready.push(m, m.seq)
}

// isCommit reports whether a request asks to make something durable.
func isCommit(r *wire.ReqStd, data []byte) bool {
	return r.Opcode == wire.OpWrite && len(data) == 0 && r.ReqLen != 0 && r.Flags&(single|wire.SESDC|wire.SESIE) == single|wire.SESDC
}

// commitRequest has the bytes that a request names made durable.
func (s *SES) commitRequest(src *Source, r *wire.ReqStd) *Result {
	g, rc := s.region(r, RemoteWrite)
	q := s.returnsOn(src.PDC)
	switch {
	case rc != wire.RCNull:
		return s.rejected(rc)
	case r.Gen != 0:
		return s.rejected(wire.RCBadGeneration)
	case !g.Persistent:
		return s.rejected(wire.RCUnsupportedOp)
	case len(s.commits) >= maxCommits || len(q.q)-q.head >= maxReturns:
		return s.nack()
	}
	hasData := r.Flags&wire.SESHD != 0
	i := s.newServe(src, r, g, q)
	if i == none {
		return s.nack()
	}
	sv := s.serves.at(i)
	sv.length = 0
	if hasData && !s.to.admits() {
		s.stopServe(i, sv)
		return s.nack()
	}
	if s.commits == nil {
		s.commits = make(map[uint64]*commit)
	}
	s.lastCommit++
	sv.commit, sv.pending = s.lastCommit, true
	s.commits[sv.commit] = &commit{region: g, serve: i, ep: s.to.id, peer: src.Peer, initiator: r.Initiator, length: r.ReqLen, hasData: hasData, data: r.HeaderData}
	e := s.events.add()
	e.init(s.to.id, EvCommit, g.Context, g.Flags, nil, int(r.ReqLen), g.Offset(r), PeerID(src.Peer), r.Initiator)
	e.Data = sv.commit
	return s.special(wire.ListOverflow, 0)
}

// Committed says what became of the EvCommit with that number: RCOK if the bytes are durable. The
// initiator hears it.
func (s *SES) Committed(id uint64, rc wire.RC) {
	c := s.commits[id]
	if c == nil || s.ended {
		return
	}
	delete(s.commits, id)
	if rc == wire.RCOK && !c.region.Live() {
		rc = wire.RCBadMKey
	}
	if e := s.endpoint(c.ep); c.hasData && e != nil && !e.closed {
		ev := s.events.add()
		ev.init(c.ep, EvCommitted, c.region.Context, c.region.Flags, nil, int(c.length), 0, PeerID(c.peer), c.initiator)
		if ev.data(true, c.data); rc != wire.RCOK {
			ev.Cause, ev.RC = Rejected, rc
		}
	}
	if c.serve == none {
		return
	}
	sv := s.serves.at(c.serve)
	q := s.returnsOn(sv.pdc)
	sv.pending, sv.rc, sv.epoch = false, rc, s.epoch
	sv.queued++
	q.add(ret{serve: c.serve})
	s.owe(sv.pdc, q)
}

// leaveCommit notes that nobody waits for the commit of a serve any more.
func (s *SES) leaveCommit(sv *serve) {
	if c := s.commits[sv.commit]; c != nil {
		c.serve = none
	}
	sv.commit, sv.pending = 0, false
}

// committed ends the question of m: the target has answered.
func (s *SES) committed(m *send) {
	m.read.got = m.read.length()
	if m.open == 0 && m.phase == phaseSent {
		s.allAnswered(m)
	}
}
