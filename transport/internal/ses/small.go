package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file sends writes and reads with the small header (S-HDR-02, S-HDR-03). It has no message id: the
// answers name the PSN. It fits a message of one packet without header data, to a region that its RKEY
// names. Everything else, and what such a message becomes when it is cut anew or refused for now, has
// the standard header.

// mostSmallRead is how many bytes a read with the small header asks for at most: as one packet answers it, no more than
// every packet carries, whatever the MTU of the target (S-RMA-71).
const mostSmallRead = recutLen

// small reports whether a write or a read may go with the small header.
func (op *Op) small() bool {
	_, ok := wire.MKeySmall(op.Key)
	return ok && op.Optimized && !op.HasData
}

// Optimize has a write or a read, which was just accepted and goes by RUDI, go with the small header if it can. Its
// key has IDEMPOTENT_SAFE. A small request by RUD means the key without it, and one by RUDI the key with it, if
// there are both (keyOf).
func (s *SES) Optimize(h Handle) {
	_, m := s.lookup(h)
	if _, ok := wire.MKeySmall(m.hdr.Match &^ wire.MKeyIdempotent); ok {
		m.small, m.phase = true, phaseAsk
	}
}

// smallWrite reports whether m is a write that is to go with the small header.
func (m *send) smallWrite() bool { return m.small && m.read == nil }

// peekSmall is Peek of such a write. If it is longer than a packet, or its resource has refused something, it
// becomes one with the standard header.
func (s *SES) peekSmall(h Handle, m *send, mtu uint32) (piece.Piece, bool) {
	if m.hdr.ReqLen > mtu || s.numResources != 0 {
		m.small, m.phase = false, phaseData
		return s.Peek(h, int(mtu))
	}
	return piece.Piece{Msg: uint32(h), Len: m.hdr.ReqLen, Kind: piece.Small | piece.Last}, true
}

// askSmall decides at the first piece of a read which header it has.
func (s *SES) askSmall(m *send, p *piece.Piece, mtu uint32) {
	if m.small = p.Off == 0 && p.Last() && m.hdr.ReqLen <= min(mtu, mostSmallRead); m.small {
		p.Kind |= piece.Small
	}
}

// encodeSmallReq appends a piece with the small header.
func (s *SES) encodeSmallReq(b []byte, m *send, p piece.Piece, first bool) []byte {
	r, asks := &m.hdr, p.Kind&piece.Ask != 0
	if first {
		s.Stats.Small++
		if asks {
			s.tookAsk(m, p, r.ReqLen)
		} else {
			m.took(p)
		}
	}
	ri, _ := wire.MKeySmall(r.Match)
	b = wire.ReqSmall{Opcode: r.Opcode, Flags: m.wireFlags | single, ReqLen: uint16(r.ReqLen), PIDonFEP: r.PIDonFEP, RI: ri, JobID: r.JobID, BufOff: r.BufOff}.Append(b)
	switch {
	case asks:
		return b
	case m.iov != nil:
		return gather(b, m.iov, 0, int(p.Len))
	}
	return append(b, m.buf...)
}

// A psnKey names a request at its initiator.
type psnKey struct {
	pdc uint32
	psn wire.PSN
}

// AskedAs tells which PSN the packet of a read with the small header has. Another call says that it has another one
// now, as no target took the first.
func (s *SES) AskedAs(h Handle, psn wire.PSN) {
	_, m := s.lookup(h)
	if m == nil || m.read == nil {
		return
	}
	rd := m.read
	if rd.byPSN {
		s.forgetPSN(rd)
	}
	if s.readsByPSN == nil {
		s.readsByPSN = make(map[psnKey]*reading)
	}
	rd.psn, rd.byPSN = psn, true
	s.readsByPSN[psnKey{rd.pdc, psn}] = rd
}

// forgetPSN undoes AskedAs.
func (s *SES) forgetPSN(rd *reading) {
	if key := (psnKey{rd.pdc, rd.psn}); s.readsByPSN[key] == rd { // when PSNs change, another read may have its former one
		delete(s.readsByPSN, key)
	}
	rd.byPSN = false
}

// SmallData makes the response to a read without a message id one that has it: that of the read with that PSN on a
// PDC, 0 if there is none.
func (s *SES) SmallData(pdc uint32, h *wire.RspDataSmall) wire.RspData {
	d := wire.RspData{List: h.List, Opcode: h.Opcode, RC: h.RC, JobID: h.JobID, PayloadLen: h.PayloadLen}
	if rd := s.readsByPSN[psnKey{pdc, h.ReqPSN}]; rd != nil {
		d.ReadMsgID = rd.m.hdr.MsgID
	}
	return d
}

// returnedSmall is returned for a response without a message id.
func (s *SES) returnedSmall(src *Source, b []byte) *Result {
	small, n, err := wire.ParseRspDataSmall(b)
	if err != nil {
		return s.bad(ReasonShort)
	}
	s.req.MsgID, s.req.JobID = 0, small.JobID
	h := s.SmallData(src.PDC, &small)
	s.ReadData(src.PDC, &h, b[n:])
	return s.done(0)
}
