package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file cuts messages into pieces and encodes them.

// Peek returns the piece that AppendPiece is to hand out next, of at most mtu payload bytes. It
// returns false if no piece is left: all were handed out, or the message was cancelled or
// failed, or it waits for others: then Hold keeps it. mtu is at most 16,383, and the same for all
// pieces of a message (S-SEG-01) unless the path turned out to carry less or more (S-MTU-03).
func (s *SES) Peek(h Handle, mtu int) (piece.Piece, bool) {
	_, m := s.lookup(h)
	if m == nil || m.phase != phaseData || s.numResources != 0 && m.ordered && m.next == 0 {
		return s.peekRare(h, m, uint32(mtu))
	}
	return m.peek(h, uint32(mtu)), true
}

// peek is Peek of a message of which data is left.
func (m *send) peek(h Handle, mtu uint32) piece.Piece {
	left := m.hdr.ReqLen - m.next
	n := min(left, mtu)
	kind := piece.Data
	if n == left { // S-SEG-02: an empty message has one piece
		kind = piece.Last
	}
	return piece.Piece{Msg: uint32(h), Off: m.next, Len: n, Kind: kind}
}

// peekRare is Peek of a message that waits for others, or has no data left; nil: that ended.
func (s *SES) peekRare(h Handle, m *send, mtu uint32) (piece.Piece, bool) {
	switch {
	case m == nil:
	case m.phase == phaseData:
		if !s.gated(m) {
			return m.peek(h, mtu), true
		}
	case m.phase == phaseError:
		kind := piece.Error
		if m.deferred && m.cause == OK {
			kind = piece.End
		}
		return piece.Piece{Msg: uint32(h), Off: m.next, Kind: kind | piece.Last}, true
	case m.phase == phaseRecut:
		return s.peekRecut(h, m, mtu), true
	case m.phase == phaseAsk && m.loan != nil:
		return s.peekLoan(h, m)
	case m.phase == phaseAsk && m.smallWrite():
		return s.peekSmall(h, m, mtu)
	case m.phase == phaseAsk:
		return s.peekAsk(h, m, mtu)
	}
	return piece.Piece{}, false
}

// Left returns how many bytes of a message no piece has. Of one that a MSG_ERROR will end it
// counts them until then. It returns 0 if the message ended.
func (s *SES) Left(h Handle) (n int) {
	_, m := s.lookup(h)
	if m == nil || m.phase != phaseData && m.phase != phaseError && m.phase != phaseRecut && (m.phase != phaseAsk || m.operands == 0 && m.loan == nil && !m.smallWrite()) {
		return 0
	}
	if m.loan != nil {
		return wire.RendezvousLen - int(m.next)
	}
	if m.phase == phaseRecut {
		for _, p := range s.recuts[m.self] {
			n += int(p.Len)
		}
	}
	return n + int(m.hdr.ReqLen-m.next)
}

// AppendPiece hands out the piece that Peek returned: it appends the piece as Append does, and
// the message waits for the answer to it.
func (s *SES) AppendPiece(b []byte, p piece.Piece) []byte {
	if p.Off != 0 || p.Kind != piece.Last {
		return s.encode(b, p, true)
	}
	_, m := s.lookup(Handle(p.Msg))
	if m == nil || m.scattered || s.numResources != 0 {
		return s.encode(b, p, true)
	}
	// The only piece of a message. Without this case 1 % more instructions (docs/perf.md, Fast paths);
	// with a call of Whole.Append 0.5 %.
	m.next = p.Len
	m.open++
	m.phase = phaseSent
	m.hdr.Flags = m.wireFlags | single
	return append(m.hdr.Append(b), m.buf...)
}

// A Whole is a message whose only piece is its next one.
type Whole struct{ m *send }

// Whole returns a message of h that one packet carries, and its length. The length is negative if the
// message has more than one piece, its first piece was handed out, or it needs a longer look: then Peek
// and AppendPiece do. Without it a small message takes 1 % more instructions (docs/perf.md, Fast paths).
func (s *SES) Whole(h Handle, mtu int) (Whole, int) {
	_, m := s.lookup(h)
	if m == nil || m.phase != phaseData || m.next != 0 || m.hdr.ReqLen > uint32(mtu) || m.scattered || s.numResources != 0 {
		return Whole{}, -1
	}
	return Whole{m}, int(m.hdr.ReqLen)
}

// Append hands out the only piece, of n bytes, as AppendPiece does.
func (w Whole) Append(b []byte, n int) []byte {
	m := w.m
	m.next = uint32(n)
	m.open++
	m.phase = phaseSent
	m.hdr.Flags = m.wireFlags | single
	return append(m.hdr.Append(b), m.buf...)
}

// Append appends the header, which is the standard one except for a piece of the kind Small, and the payload of a piece that was handed out and is
// neither answered nor failed (S-HDR-55). Retransmissions are encoded anew in this way.
func (s *SES) Append(b []byte, p piece.Piece) []byte { return s.encode(b, p, false) }

func (s *SES) encode(b []byte, p piece.Piece, first bool) []byte {
	_, m := s.lookup(Handle(p.Msg))
	if m == nil && p.Returns() {
		return s.encodeReturn(b, p)
	}
	if m == nil {
		panic("BUG: ses: a piece of a message that ended")
	}
	switch {
	case p.Kind&^piece.Last == piece.Data:
		if first {
			m.took(p)
		}
	case p.Kind&(piece.Void|piece.Noop) != 0:
		return s.encodeEmpty(b, m, p)
	case p.Kind&piece.Small != 0:
		return s.encodeSmallReq(b, m, p, first)
	case p.Kind&piece.End != 0:
		if first {
			m.took(p)
		}
		return s.encodeEnd(b, m, p)
	case p.Kind&piece.Atomic != 0 && p.Kind&(piece.Void|piece.Noop) == 0:
		return s.encodeAtomic(b, m, p, first)
	case p.Kind&piece.Loan != 0:
		return s.encodeLoan(b, m, p, first)
	case p.Kind&piece.Ask != 0:
		return s.encodeAsk(b, m, p, first)
	case p.Error():
		if first {
			m.took(p)
		}
		return s.encodeError(b, m, p, first)
	case first:
		s.tookRecut(m, p)
	}
	r, flags := &m.hdr, m.wireFlags
	if p.Off == 0 {
		flags |= wire.SESSOM // its packet has the header data: S-FLD-06
		if first && s.numResources != 0 {
			s.start(m) // S-GEN-03: the newest generation known
		}
	} else {
		r.MsgOff, r.PayloadLen = p.Off, uint16(p.Len)
	}
	if p.Off+p.Len == r.ReqLen {
		flags |= wire.SESEOM
	}
	r.Flags = flags
	b = r.Append(b)
	if m.iov != nil {
		return gather(b, m.iov, int(p.Off), int(p.Len))
	}
	return append(b, m.buf[p.Off:p.Off+p.Len]...)
}

// took notes that the piece p was handed out.
func (m *send) took(p piece.Piece) {
	m.next += p.Len
	m.open++
	if p.Last() {
		m.phase = phaseSent
	}
}

// encodeError appends the MSG_ERROR of a message (S-MSC-02).
func (s *SES) encodeError(b []byte, m *send, p piece.Piece, first bool) []byte {
	if first {
		s.Stats.MsgErrorsTx++
	}
	r := m.hdr
	r.Opcode, r.Flags = wire.OpMsgError, m.wireFlags&^wire.SESHD|wire.SESIE
	if p.Last() {
		r.Flags |= wire.SESEOM
	}
	if r.MsgOff, r.PayloadLen = p.Off, 0; p.Off == 0 {
		r.Flags |= wire.SESSOM
		r.HeaderData = 0
	}
	return r.Append(b)
}

// gather appends n bytes from offset off of the concatenation of iov.
func gather(b []byte, iov [][]byte, off, n int) []byte {
	for _, v := range iov {
		if n == 0 {
			break
		}
		if off >= len(v) {
			off -= len(v)
			continue
		}
		k := min(n, len(v)-off)
		b = append(b, v[off:off+k]...)
		off, n = 0, n-k
	}
	return b
}
