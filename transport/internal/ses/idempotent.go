package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file has writes and reads by RUDI (UE 3.5.7.3): each packet stands for itself, has an answer of
// its own, and may be executed several times. Only regions with IDEMPOTENT_SAFE in their key allow it.

// NoPDC is the number of no PDC: a read that goes by it has its data in the answers.
const NoPDC uint32 = 1<<32 - 1

// An Answer is what the target answers to a request of RUDI: a response, and for a read the place of
// the bytes that go with it. They are copied when the answer is written.
type Answer struct {
	Rsp    wire.Rsp
	region *Region // nil unless it has data
	at     uint64  // in the region
	off    uint32  // in the message
	n      uint32
	small  bool // the request has no message id: the data goes with the small header, which has psn
	psn    wire.PSN
}

// Len is the length of the answer behind its RUDI header, in bytes.
func (a *Answer) Len() int {
	switch {
	case a.region == nil:
		return wire.RspLen
	case a.small:
		return wire.RspDataSmallLen + int(a.n)
	}
	return wire.RspDataLen + int(a.n)
}

// Reads reports whether the answer has read data.
func (a *Answer) Reads() bool { return a.region != nil }

// Next says which header the answer has.
func (a *Answer) Next() wire.NextHdr {
	switch {
	case a.region == nil:
		return wire.NextRsp
	case a.small:
		return wire.NextRspDataSmall
	}
	return wire.NextRspData
}

// Append appends the answer. If the region of the bytes was removed it has an error, and zeros in their
// place.
func (a *Answer) Append(b []byte) []byte {
	if a.region == nil {
		return a.Rsp.Append(b)
	}
	if a.small {
		h := wire.RspDataSmall{Opcode: wire.RspWithData, RC: wire.RCOK, JobID: a.Rsp.JobID, PayloadLen: uint16(a.n), ReqPSN: a.psn}
		if !a.region.Live() {
			h.RC, h.PayloadLen = wire.RCBadMKey, 0
			return append(h.Append(b), make([]byte, a.n)...)
		}
		return a.region.Append(h.Append(b), a.at, uint64(a.n))
	}
	h := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: a.Rsp.MsgID, ReadMsgID: a.Rsp.MsgID, JobID: a.Rsp.JobID,
		PayloadLen: uint16(a.n), ModLen: a.Rsp.ModLen, MsgOff: a.off}
	if !a.region.Live() {
		h.RC, h.PayloadLen, h.ModLen = wire.RCBadMKey, 0, 0
		return append(h.Append(b), make([]byte, a.n)...)
	}
	return a.region.Append(h.Append(b), a.at, uint64(a.n))
}

// GoesByRUDI notes that all pieces of h, which is a write or a read, go without a PDC.
func (s *SES) GoesByRUDI(h Handle) {
	if _, m := s.lookup(h); m != nil {
		m.byRUDI = true
		s.On(h, NoPDC)
	}
}

// Idempotent executes a request of RUDI. b is its header, of the kind next, and its payload, which it borrows. id is
// its id, with which the answer to a read without a message id says what it answers. The answer to a
// read has at most `most` bytes. A source that is not proven
// gets no read data. Idempotent returns false if nothing can be answered (S-RUDI-01, S-RUDI-02).
func (s *SES) Idempotent(next wire.NextHdr, b []byte, id uint32, most int, proven bool) (Answer, bool) {
	r := &s.req
	a := Answer{small: next != wire.NextReqStd, psn: wire.PSN(id)}
	n, err := 0, error(nil)
	if a.small {
		n, err = s.optimized(next, b, r, true)
	} else {
		n, err = r.Parse(b)
	}
	if err != nil {
		res := s.malformed(next, b, r)
		return Answer{Rsp: res.Rsp}, !res.Bad // S-HDR-06, S-HDR-07
	}
	rc := s.idempotent(r, b[n:], most, &a)
	if a.region != nil && !proven {
		rc = wire.RCPermViolation // T27
	}
	if rc != wire.RCNull {
		a = Answer{Rsp: s.rejected(rc).Rsp}
	} else {
		a.Rsp = s.done(r.ReqLen).Rsp
	}
	return a, true
}

// idempotent executes a request and says what of a region goes with the answer. It returns RCNull, or
// the error. The order of its checks is that of S-ERR-54.
func (s *SES) idempotent(r *wire.ReqStd, data []byte, most int, a *Answer) wire.RC {
	if rc := s.check(r); rc != wire.RCNull {
		return rc
	}
	want, n := RemoteWrite, uint64(0)
	var off uint64
	switch {
	case r.Opcode == wire.OpRead:
		want = RemoteRead
		off, n = s.asked(r)
	case r.Opcode != wire.OpWrite || r.Flags&wire.SESHD != 0 || isCommit(r, data):
		return wire.RCOpViolation
	case r.Flags&wire.SESSOM != 0:
		n = min(uint64(len(data)), uint64(r.ReqLen)) // S-FLD-02
	default:
		off, n = uint64(r.MsgOff), uint64(r.PayloadLen)
	}
	end := off + n
	switch {
	case r.Match&wire.MKeyIdempotent == 0:
		return wire.RCOpViolation // S-RMA-05
	case end > uint64(r.ReqLen) || r.Flags&wire.SESEOM != 0 && end != uint64(r.ReqLen) || n == 0 && r.ReqLen != 0 || want == RemoteWrite && n > uint64(len(data)):
		return wire.RCOpViolation
	case r.ReqLen > s.cfg.MaxMessage || want == RemoteRead && n > uint64(most):
		return wire.RCUnsupportedSize
	case r.Gen != 0:
		return wire.RCBadGeneration
	case r.Flags&wire.SESIE != 0:
		return wire.RCInitiatorError
	}
	g, rc := s.region(r, want)
	switch {
	case rc != wire.RCNull:
		return rc
	case g.SingleUse || g.Counts:
		return wire.RCOpViolation // what may happen twice can neither be counted nor be the last
	case want == RemoteWrite:
		g.write(g.Offset(r)+off, data[:n])
	case n > 0:
		a.region, a.at, a.off, a.n = g, g.Offset(r)+off, uint32(off), uint32(n)
	}
	return wire.RCNull
}

// IdempotentAnswer takes the answer to a piece that went by RUDI: a response, and data if the response
// is about read data.
func (s *SES) IdempotentAnswer(p piece.Piece, rsp *wire.Rsp, h *wire.RspData, data []byte) {
	_, m := s.lookup(Handle(p.Msg))
	if m != nil && m.read != nil && m.cause == OK && (rsp.RC == wire.RCOK || rsp.RC == wire.RCNull) {
		n := m.asks(p.Off)
		switch {
		case n == 0:
		case h == nil || h.MsgOff != p.Off || uint32(h.PayloadLen) != n || int(n) > len(data):
			m.cause, m.rc = PeerError, wire.RCOpViolation
			s.phaseOut(m)
		default:
			m.scatter(p.Off, data[:n])
			m.read.got += n
			m.read.epoch = s.epoch
		}
	}
	s.Answered(Handle(p.Msg), rsp)
}

// isForRUD reports whether the target of a read by RUDI has refused what it may allow by RUD: its packets
// take less than was asked for, or it does not know yet that this side is no forgery.
func (m *send) isForRUD() bool {
	if m.small && m.read != nil && !m.ordered && m.cause == Rejected && m.rc == wire.RCUnsupportedSize {
		return true
	}
	return m.read != nil && m.read.pdc == NoPDC && m.cause == Rejected && (m.rc == wire.RCUnsupportedSize || m.rc == wire.RCPermViolation)
}

// phaseOut hands out no more of a message that goes by RUDI: its target keeps nothing that an end would
// free.
func (s *SES) phaseOut(m *send) {
	if m.phase == phaseAsk || m.phase == phaseData || m.phase == phaseError {
		m.odd, m.phase = true, phaseSent
	}
}

// GiveUpIdempotent ends a message that goes by RUDI and was withdrawn or refused, as soon as its last
// piece is answered.
func (s *SES) GiveUpIdempotent(h Handle) {
	if _, m := s.lookup(h); m != nil {
		s.stop(m, Closed, 0)
	}
}
