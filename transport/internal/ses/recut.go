package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file takes back pieces that are too long for the path, and cuts them anew (F7). PDS sends
// a void packet in place of such a piece, under its PSN. The answer says what to do: the target
// had the piece before, or it has not and never will.

// opVoid is an opcode that the specification reserves: every target answers it by an error, which
// is guaranteed, and does nothing else.
const opVoid wire.Opcode = 0x2f

// recutLen is the most bytes of a part that is sent again: what every path should carry, also
// if the search for more succeeds meanwhile.
const recutLen = 1024

// encodeEmpty appends a packet that concerns no message: a void packet or a NO_OP. A void packet
// has a message id of its own, which tells its answer from that to a piece of the message.
func (s *SES) encodeEmpty(b []byte, m *send, p piece.Piece) []byte {
	r := m.hdr
	r.Opcode, r.Flags = wire.OpNoOp, m.wireFlags&wire.SESREL|single
	if p.Void() {
		r.Opcode = opVoid
		r.MsgID = s.newID()
		s.freeID(r.MsgID) // nothing waits for it
	}
	r.BufOff, r.Match, r.HeaderData, r.ReqLen = 0, 0, 0, 0
	if p.Void() && p.Len != 0 {
		r.HeaderData = voidBehind<<32 | uint64(p.Len)
	}
	return r.Append(b)
}

// voidBehind is in the header data of a void packet on a ROD PDC, above the number of PSNs behind it whose
// packets shall not be executed either (S-VOID-06). A target of another make ignores that.
const voidBehind = 0x766f6964

// VoidBehind returns that number for a request that was answered by UNSUPPORTED_OP, 0 if it is another.
func VoidBehind(next wire.NextHdr, b []byte) int {
	var r wire.ReqStd
	if _, err := r.Parse(b); next != wire.NextReqStd || err != nil || r.Opcode != opVoid || r.HeaderData>>32 != voidBehind {
		return 0
	}
	return int(uint32(r.HeaderData))
}

// TakenBack makes the Result of a packet that is refused because a void packet was executed before it, which
// had the response rsp. Requests that carry nothing of a message, or end one, are not refused: TakenBack
// returns nil.
func (s *SES) TakenBack(rsp *wire.Rsp, next wire.NextHdr, b []byte) *Result {
	var r wire.ReqStd
	if _, err := r.Parse(b); next == wire.NextReqStd && err == nil {
		if r.Opcode == wire.OpNoOp || r.Opcode == wire.OpMsgError || r.Flags&wire.SESSOM == 0 && r.PayloadLen == 0 {
			return nil
		}
	}
	s.Stats.Answers[rsp.RC&63]++
	s.res = Result{Rsp: *rsp, Gtd: true}
	return &s.res
}

// Noop hands out a NO_OP to the target of a message, which then waits for the answer to it.
func (s *SES) Noop(h Handle) piece.Piece {
	if _, m := s.lookup(h); m != nil {
		m.open++
		m.odd = true
	}
	return piece.Piece{Msg: uint32(h), Kind: piece.Noop}
}

// Voided reports whether the answer to a void packet says that it was executed, so the target
// has not executed the piece of h for which it stands, and never will.
func (s *SES) Voided(h Handle, rsp *wire.Rsp) bool {
	_, m := s.lookup(h)
	return m != nil && rsp != nil && rsp.Opcode == wire.RspResponse && rsp.RC != wire.RCOK && rsp.RC != wire.RCNull && rsp.MsgID != m.hdr.MsgID && (rsp.MsgID != 0 || !m.small)
}

// Untouched reports whether n bytes are all that was handed out of a message.
func (s *SES) Untouched(h Handle, n uint32) bool {
	_, m := s.lookup(h)
	return m != nil && m.next == n
}

// Recut takes back a piece that the target has not executed. The bytes are sent again, cut to
// recutLen, on the same PDC. Recut returns false if there is nothing to be sent,
// because the message has failed.
func (s *SES) Recut(h Handle, p piece.Piece) bool {
	i, m := s.lookup(h)
	if m == nil {
		return false
	}
	m.open--
	m.odd, m.small = true, false
	if m.deferred && m.cause == OK {
		if m.open == 0 && m.phase == phaseSent {
			s.allAnswered(m)
		}
		return false
	}
	if m.cause != OK {
		m.unexecuted = true
		switch {
		case m.phase != phaseSent:
		case m.cause != Rejected:
			m.phase = phaseError // S-SEG-08: the target may have a part of it
			return true
		case m.open == 0:
			s.allAnswered(m)
		}
		return false
	}
	if m.loan != nil {
		m.next, m.phase = 0, phaseAsk
		return true
	}
	if s.recuts == nil {
		s.recuts = make(map[int32][]piece.Piece)
	}
	s.recuts[i] = append(s.recuts[i], p)
	m.phase = phaseRecut
	return true
}

// peekRecut is Peek for a message with parts to be sent again.
func (s *SES) peekRecut(h Handle, m *send, mtu uint32) piece.Piece {
	parts := s.recuts[m.self]
	p := piece.Piece{Msg: uint32(h), Off: parts[0].Off, Len: min(parts[0].Len, mtu, recutLen), Kind: piece.Recut | parts[0].Kind&(piece.Ask|piece.Atomic)}
	if len(parts) == 1 && p.Len == parts[0].Len && m.next == m.hdr.ReqLen {
		p.Kind |= piece.Last
	}
	return p
}

// tookRecut notes that the piece p of peekRecut was handed out.
func (s *SES) tookRecut(m *send, p piece.Piece) {
	m.open++
	parts := s.recuts[m.self]
	if parts[0].Off += p.Len; parts[0].Len > p.Len {
		parts[0].Len -= p.Len
		return
	}
	if len(parts) > 1 {
		s.recuts[m.self] = parts[1:]
		return
	}
	delete(s.recuts, m.self)
	if m.phase = phaseData; p.Last() {
		m.phase = phaseSent
	}
}

// dropRecut gives up the parts of a message that were to be sent again: the message has failed,
// and the target cannot have all of it. A MSG_ERROR follows if other pieces were not sent yet.
func (s *SES) dropRecut(m *send) {
	delete(s.recuts, m.self)
	m.unexecuted = true
	if m.phase = phaseSent; m.next < m.hdr.ReqLen {
		m.phase = phaseError
	}
}

// listVoid is the list of a void packet in place of read data that is too long for the path. The
// specification leaves that list to vendors. The initiator of a read answers such a packet by an error,
// which is guaranteed, and does nothing else. One of another make takes it for the error that it
// tells, and its read ends: nobody could tell it later what it lacks.
const listVoid wire.List = 3

// voidReturn reports whether a packet of the return direction is a void packet.
func voidReturn(h *wire.RspData) bool {
	return h.List == listVoid && h.RC == wire.RCUncorTrnsnt && h.PayloadLen == 0
}

// RecutReturn acts on the answer to a void packet that stands for the piece p of read data. If it says that
// the initiator has executed the void packet, it has not executed p, and never will: the bytes
// are sent again, cut to recutLen, and RecutReturn returns true. They need no order.
func (s *SES) RecutReturn(p piece.Piece, rsp *wire.Rsp) bool {
	i := int32(p.Msg) - 1
	sv := s.serves.at(i)
	if rsp == nil || rsp.Opcode != wire.RspResponse || rsp.RC == wire.RCOK || rsp.RC == wire.RCNull || sv.gone {
		return false
	}
	q := s.returning(sv.pdc)
	sv.open--
	sv.queued++
	q.add(ret{serve: i, off: p.Off, len: p.Len, cut: true})
	s.owe(sv.pdc, q)
	return true
}
