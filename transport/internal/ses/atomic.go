package ses

import (
	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file has atomic operations on memory of a peer (UE 3.4, S-AMO). Each is one packet, whose
// header is that of a write with an extension behind it. PDS executes no packet twice, so an
// operation that has completed was executed once. A fetching one also returns the old values. They
// are guaranteed: the target keeps them until the initiator has answered that they came. They go as
// read data does, in the return direction of the PDC.

// MaxAtomic bounds the operands of an atomic operation that this side posts, in bytes. Any path
// carries them in one packet.
const MaxAtomic = 512

// An AMO says what an atomic operation does. The operands are Op.Buf, elements of Type in the order
// of this machine. READ has none: Bytes says how many there would be.
type AMO struct {
	Op   wire.AtomicOp
	Type wire.AtomicType
	// Compare has the value to compare with, of one element, in the family Compare.
	Compare []byte
	// Result gets the old values if the operation fetches. It is as long as the operands.
	Result []byte
	Bytes  int
	// Tagged aims it at a tagged receive of the peer: Op.Tag is the tag, and Op.RemoteAddr the offset in
	// the buffer of the receive that matches.
	Tagged bool
}

// length is the length of what an atomic operation sends behind the header.
func (a *AMO) length(operands int) int {
	if a.Op.Compares() {
		return wire.CSwapLen
	}
	return wire.AtomicLen + operands
}

// arm makes a send that was just accepted an atomic operation, and returns its opcode and key. Its
// bytes are the extension and the operands as they are on the wire.
func (s *SES) arm(m *send, op *Op) (wire.Opcode, uint64) {
	a := op.AMO
	m.odd, m.early, m.phase = true, false, phaseAsk
	m.hdr.BufOff, m.operands = op.RemoteAddr, uint32(max(len(op.Buf), a.Bytes))
	m.copied = true
	ext := wire.Atomic{Op: a.Op, Type: a.Type, Control: wire.AtomicCPUCoherent}
	n := a.length(len(op.Buf))
	m.block = s.copies.block(classOf(n))
	b := s.copies.mem(m.block)[:0:n]
	if a.Op.Compares() {
		c := wire.CSwap{Atomic: ext}
		rightAligned(c.Compare[:], a.Compare, a.Type)
		rightAligned(c.Swap[:], op.Buf, a.Type)
		m.buf, m.operands = c.Append(b), cswapOperands
	} else {
		m.buf = append(ext.Append(b), op.Buf...)
		amo.Swap(m.buf[wire.AtomicLen:], a.Type)
	}
	if op.Kind == EvFetch {
		s.readInto(m, a.Result)
		m.read.fetched = a.Type
	}
	switch {
	case a.Tagged && op.Kind == EvFetch:
		return wire.OpTSendFetchAtomic, op.Tag
	case a.Tagged:
		return wire.OpTSendAtomic, op.Tag
	case op.Kind == EvFetch:
		return wire.OpFetchAtomic, op.Key
	}
	return wire.OpAtomic, op.Key
}

// cswapOperands is the request_length of compare-and-swap: both slots (S-AMO-02).
const cswapOperands = 32

// rightAligned puts an element into a slot of the compare-and-swap extension.
func rightAligned(slot, element []byte, t wire.AtomicType) {
	element = element[:min(len(element), len(slot))] // no type that can be compared is longer
	at := slot[len(slot)-len(element):]
	copy(at, element)
	amo.Swap(at, t)
}

// peekAtomic is Peek of an atomic operation.
func (m *send) peekAtomic(h Handle) piece.Piece {
	return piece.Piece{Msg: uint32(h), Len: m.hdr.ReqLen, Kind: piece.Atomic | piece.Last}
}

// encodeAtomic appends the piece of an atomic operation.
func (s *SES) encodeAtomic(b []byte, m *send, p piece.Piece, first bool) []byte {
	switch {
	case !first:
	case p.Kind&piece.Recut != 0:
		s.tookRecut(m, p)
	default:
		m.took(p)
	}
	r := m.hdr
	r.Flags, r.ReqLen = m.wireFlags|single, m.operands
	return append(r.Append(b), m.buf...)
}

// atomic executes an atomic operation: data is what follows the header.
func (s *SES) atomic(src *Source, r *wire.ReqStd, data []byte) *Result {
	a, operand, compare, n, rc := s.parseAtomic(r, data)
	fetch := r.Opcode == wire.OpFetchAtomic
	var g *Region
	var memory []byte
	if rc == wire.RCNull {
		g, memory, rc = s.target(r, fetch, n)
	}
	hasData := r.Flags&wire.SESHD != 0
	switch {
	case rc != wire.RCNull:
		return s.rejected(rc)
	case hasData && !s.to.admits():
		return s.nack()
	}
	if fetch {
		return s.fetch(src, r, g, a, memory, operand, compare)
	}
	if _, rc := amo.Apply(nil, a.Op, a.Type, memory, operand, compare); rc != wire.RCNull {
		return s.rejected(rc)
	}
	s.written(s.to.id, EvRemoteAtomic, g, src.Peer, r.Initiator, uint32(n), hasData, r.HeaderData)
	return s.done(r.ReqLen)
}

// parseAtomic takes an atomic operation apart. n is the length of its operands. What is wrong is said in the order
// operation and type, length (S-AMO-08).
func (s *SES) parseAtomic(r *wire.ReqStd, data []byte) (a wire.Atomic, operand, compare []byte, n int, rc wire.RC) {
	a, ext, err := wire.ParseAtomic(data)
	switch {
	case err != nil || r.Flags&single != single: // S-AMO-01
		return a, nil, nil, 0, wire.RCOpViolation
	case r.Gen != 0:
		return a, nil, nil, 0, wire.RCBadGeneration
	case r.Flags&wire.SESIE != 0:
		return a, nil, nil, 0, wire.RCInitiatorError
	}
	if rc = amo.Valid(familyOf(a.Op, r.Opcode == wire.OpFetchAtomic || r.Opcode == wire.OpTSendFetchAtomic), a.Op, a.Type); rc != wire.RCNull {
		return a, nil, nil, 0, rc
	}
	size := a.Type.Size()
	if !a.Op.Compares() {
		operand, n = data[ext:], int(min(r.ReqLen, 0x3fff+1))
		switch {
		case n == 0 || n > 0x3fff || n%size != 0 || len(operand) < n && a.Op != wire.AtomicRead:
			rc = wire.RCAMOUnsupportedSize
		case a.Op != wire.AtomicRead:
			operand = operand[:n]
		}
		return a, operand, nil, n, rc
	}
	c, _, err := wire.ParseCSwap(data)
	switch {
	case err != nil:
		return a, nil, nil, 0, wire.RCOpViolation
	case r.ReqLen != cswapOperands && r.ReqLen != uint32(size): // S-AMO-02
		return a, nil, nil, 0, wire.RCAMOUnsupportedSize
	}
	return a, c.Swap[len(c.Swap)-size:], c.Compare[len(c.Compare)-size:], size, wire.RCNull
}

// familyOf is the family of an operation as it was asked for.
func familyOf(op wire.AtomicOp, fetch bool) amo.Family {
	switch {
	case !fetch:
		return amo.Base
	case op.Compares():
		return amo.Compare
	}
	return amo.Fetch
}

// target finds the memory that an atomic operation on n bytes is for (S-AMO-07). An element lies in
// one part of its region, and so do all elements of an operation.
func (s *SES) target(r *wire.ReqStd, fetch bool, n int) (*Region, []byte, wire.RC) {
	need := RemoteWrite | RemoteAtomic
	if fetch {
		need |= RemoteRead
	}
	whole := r.ReqLen
	r.ReqLen = uint32(n)
	g, rc := s.region(r, need)
	r.ReqLen = whole
	switch {
	case rc != wire.RCNull:
		return nil, nil, rc
	case g.taken:
		return nil, nil, wire.RCBadMKey // R-MR-18
	}
	var memory []byte
	g.each(g.Offset(r), uint64(n), func(p []byte) {
		if memory == nil {
			memory = p
		}
	})
	if len(memory) != n {
		return nil, nil, wire.RCBadAddr
	}
	return g, memory, wire.RCNull
}

// maxFetched bounds the old values that are kept until their initiators have them, in bytes.
const maxFetched = 16 << 20

// fetch executes a fetching operation. What it returns has its place before it is executed (S-RSP-02).
func (s *SES) fetch(src *Source, r *wire.ReqStd, g *Region, a wire.Atomic, memory, operand, compare []byte) *Result {
	n := len(memory)
	if s.small && n > int(src.Most) {
		return s.rejected(wire.RCUnsupportedSize) // S-RMA-71, before anything is executed
	}
	if n <= maxInline && !src.Unproven { // S-RMA-12
		old, rc := amo.Apply(s.inline[:0], a.Op, a.Type, memory, operand, compare)
		if rc != wire.RCNull {
			return s.rejected(rc)
		}
		s.wasRead(s.to.id, g, src.Peer, r.Initiator, uint32(n))
		s.fetchedFrom(src, r, g, a, n)
		if g.SingleUse {
			s.Deregister(g)
		}
		return s.withData(old, r.ReqLen)
	}
	q := s.returnsOn(src.PDC)
	if len(q.q)-q.head >= maxReturns || s.fetched+n > maxFetched {
		return s.nack()
	}
	i := s.newServe(src, r, g, q)
	if i == none {
		return s.nack()
	}
	sv := s.serves.at(i)
	old, rc := amo.Apply(make([]byte, 0, n), a.Op, a.Type, memory, operand, compare)
	if rc != wire.RCNull {
		s.stopServe(i, sv)
		return s.rejected(rc)
	}
	sv.old, sv.length, sv.asked, sv.epoch = old, uint32(n), uint32(n), s.epoch
	sv.queued++
	s.fetched += n
	q.add(ret{serve: i, len: uint32(n)})
	s.owe(src.PDC, q)
	s.fetchedFrom(src, r, g, a, n)
	return s.done(r.ReqLen)
}

// fetchedFrom reports a fetching operation that has changed memory to this side.
func (s *SES) fetchedFrom(src *Source, r *wire.ReqStd, g *Region, a wire.Atomic, n int) {
	if a.Op != wire.AtomicRead {
		s.written(s.to.id, EvRemoteAtomic, g, src.Peer, r.Initiator, uint32(n), r.Flags&wire.SESHD != 0, r.HeaderData)
	}
}
