package ses

import (
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file serves the reads of peers (S-RMA-10..16). Each request packet of a read asks for a part.
// It is answered at once; the part follows in the return direction of the PDC, as soon as the
// windows let it. The bytes are copied when the packet is made, and again when it is sent again, unless
// the read is an ordered one (capture.go).

// A serve is the read of a peer that is being served. Its pieces have its place plus 1 as Msg, which
// no Handle of a send equals.
type serve struct {
	region   *Region
	base     uint64 // where the message begins in the region
	pdc      uint32
	peer     uint32
	init     uint32
	ep       EndpointID // that was named
	length   uint32
	modified uint32 // its request_length
	asked    uint32 // bytes asked for so far
	queued   int32  // parts to be sent
	open     int32  // pieces handed out that are neither answered nor failed
	epoch    uint32 // sweep in which it was asked for something last
	job      uint32
	user     int32 // its peer's place in SES.peers
	msgID    uint16
	gone     bool   // nothing more is to be sent
	old      []byte // of a fetching operation: what it returns; if captured, the bytes from the offset at of the read on
	at       uint32
	block    uint32 // of old in SES.captures
	captured bool
	part     int32 // it is a part of a read that has a place of its own: that of the read plus 1, else 0
	parts    int32 // of a read: its first part plus 1, 0: there is none
	next     int32 // of a part: the neighbours in this list plus 1
	prev     int32
	kept     int32   // the operation waits for a receive: its place in SES.in plus 1, else 0
	commit   uint64  // of a commit: its number
	pending  bool    // Committed has not told yet what became of it, or no receive has matched it
	rc       wire.RC // then: what
	unproven bool    // counted in SES.unprovenServes
	small    bool    // its request has no message id: one packet answers the request with that PSN
	psn      wire.PSN
}

// A serveKey names a read at its target.
type serveKey struct {
	pdc   uint32
	msgID uint16
}

// A ret is a part of a read that is to be sent.
type ret struct {
	serve    int32
	off, len uint32
	cut      bool // the path did not carry it: it goes in parts of recutLen (F7)
}

// A returns is what is to be sent on one PDC, oldest first.
type returns struct {
	q      []ret
	head   int
	bytes  int   // of all its parts
	serves int   // reads being served on the PDC
	last   int32 // the newest of them, or one that has ended
	listed bool  // in SES.owing
}

// serving holds the reads of peers.
type serving struct {
	serves         table[serve]
	serveOf        map[serveKey]int32
	returns        []*returns // by PDC
	owing          []uint32   // PDCs with something to return since the last call of Owing
	numServes      int
	unprovenServes int
	capturing
	fetched    int    // bytes of old values that are kept
	buffers    Region // stands for the receives that fetching operations are for
	commits    map[uint64]*commit
	lastCommit uint64
}

const (
	// maxServes bounds the reads of all peers that are served at a time, with the parts of ordered ones,
	// maxServesPeer those of one peer without them, maxReturns the parts that wait on one PDC. Sources that may be forged together
	// have as many as Config.OpenPerPeer. Beyond a bound a request is refused (NACK 09), and
	// comes again.
	maxServes     = 1<<16 - 2
	maxServesPeer = 4096
	maxReturns    = 8192
)

// serveRead executes one request of a read.
func (s *SES) serveRead(src *Source, r *wire.ReqStd) *Result {
	off, n := s.asked(r)
	end := off + n
	switch {
	case end > uint64(r.ReqLen) || r.Flags&wire.SESEOM != 0 && end != uint64(r.ReqLen) || n > 0x3fff || n == 0 && r.ReqLen != 0:
		return s.rejected(wire.RCOpViolation)
	case r.ReqLen > s.cfg.MaxMessage:
		return s.rejected(wire.RCUnsupportedSize)
	case r.Gen != 0:
		return s.rejected(wire.RCBadGeneration)
	case r.Flags&wire.SESIE != 0:
		return s.rejected(wire.RCInitiatorError)
	case s.small && n > uint64(src.Most):
		return s.rejected(wire.RCUnsupportedSize) // S-RMA-71
	}
	g, rc := s.region(r, RemoteRead)
	if rc == wire.RCBadMKey && len(s.loans) != 0 {
		g, rc = s.borrowed(src, r)
	}
	i, known := s.serveFor(src.PDC, r.MsgID)
	known = known && !s.small
	switch {
	case rc != wire.RCNull:
	case !known && g.taken:
		rc = wire.RCBadMKey // R-MR-18
	case known && s.serves.at(i).region != g:
		rc = wire.RCBadMKey // its region was removed, even if another one has the key now
	case known && s.serves.at(i).differs(g, r, n):
		rc = wire.RCOpViolation
	}
	if rc != wire.RCNull {
		if known {
			s.stopServe(i, s.serves.at(i)) // the initiator gives the read up
		}
		return s.rejected(rc)
	}
	if r.ReqLen == 0 {
		s.wasRead(s.to.id, g, src.Peer, r.Initiator, 0)
		if g.SingleUse {
			s.Deregister(g)
		}
		return s.done(0) // S-RMA-16
	}
	// S-RMA-12. The reference provider asks for all of a short read without EOM.
	if g.loan == nil && r.ReqLen <= maxInline && r.Flags&wire.SESSOM != 0 && end == uint64(r.ReqLen) && !known && !src.Unproven {
		data := g.Append(s.inline[:0], g.Offset(r), n)
		s.wasRead(s.to.id, g, src.Peer, r.Initiator, r.ReqLen)
		if g.SingleUse {
			s.Deregister(g)
		}
		return s.withData(data, r.ReqLen)
	}
	q := s.returnsOn(src.PDC)
	if len(q.q)-q.head >= maxReturns {
		return s.nack()
	}
	captures := src.Ordered && g.loan == nil
	if captures && !s.mayCapture(src, int(n)) {
		return s.nack()
	}
	if !known {
		if i = s.newServe(src, r, g, q); i == none {
			return s.nack()
		}
	}
	sv := s.serves.at(i)
	sv.asked += uint32(n)
	sv.epoch = s.epoch
	if captures {
		i = s.capture(src, i, sv, uint32(off), uint32(n))
	}
	s.serves.at(i).queued++
	q.add(ret{serve: i, off: uint32(off), len: uint32(n)})
	s.owe(src.PDC, q)
	return s.done(r.ReqLen)
}

// asked is the part of a read that a request asks for. The first of several requests has its length
// only if this implementation sent it (encodeAsk); else it is the MTU, which both sides share.
func (s *SES) asked(r *wire.ReqStd) (off, n uint64) {
	switch {
	case r.Flags&wire.SESSOM == 0:
		return uint64(r.MsgOff), uint64(r.PayloadLen)
	case r.Flags&wire.SESEOM != 0:
		return 0, uint64(r.ReqLen)
	case r.Flags&wire.SESHD == 0 && r.HeaderData != 0:
		return 0, min(r.HeaderData>>32, uint64(r.ReqLen))
	}
	return 0, uint64(min(uint32(s.cfg.FirstAsk), r.ReqLen))
}

// differs reports whether a request for n bytes contradicts the read that it belongs to.
func (sv *serve) differs(g *Region, r *wire.ReqStd, n uint64) bool {
	return sv.base != g.Offset(r) || sv.length != r.ReqLen || sv.job != r.JobID || uint64(sv.asked)+n > uint64(sv.length)
}

// serveFor finds the read that is served for a message. Mostly it is the last that began on its PDC.
func (s *SES) serveFor(pdc uint32, msg uint16) (i int32, known bool) {
	if q := s.returning(pdc); q != nil && q.serves != 0 {
		sv := s.serves.at(q.last)
		if sv.msgID == msg && sv.pdc == pdc && sv.region != nil && !sv.gone && !sv.small && sv.part == 0 {
			return q.last, true
		}
		i, known = s.serveOf[serveKey{pdc, msg}]
	}
	return i, known
}

// returning is what is to be returned on a PDC, nil if nothing ever was.
func (s *SES) returning(pdc uint32) *returns {
	if int(pdc) < len(s.returns) {
		return s.returns[pdc]
	}
	return nil
}

// returnsOn makes or finds what is to be returned on a PDC.
func (s *SES) returnsOn(pdc uint32) *returns {
	q := s.returning(pdc)
	if q == nil {
		if s.serveOf == nil {
			s.serveOf = make(map[serveKey]int32)
		}
		for int(pdc) >= len(s.returns) {
			s.returns = append(s.returns, nil)
		}
		q = new(returns)
		s.returns[pdc] = q
	}
	return q
}

// add puts a part behind the others.
func (q *returns) add(r ret) {
	q.q = append(q.q, r)
	q.bytes += int(r.len)
}

// ToReturn is how many parts of reads wait to be sent on a PDC, and their bytes.
func (s *SES) ToReturn(pdc uint32) (parts, bytes int) {
	q := s.returning(pdc)
	if q == nil {
		return 0, 0
	}
	return len(q.q) - q.head, q.bytes
}

// newServe begins to serve a read. It returns none if there is no room.
func (s *SES) newServe(src *Source, r *wire.ReqStd, g *Region, q *returns) int32 {
	u := s.user(src.Peer)
	pu := s.peers.at(u)
	if s.numServes >= maxServes || pu.serves >= maxServesPeer || src.Unproven && s.unprovenServes >= s.cfg.OpenPerPeer {
		s.putUser(u, pu)
		return none
	}
	pu.serves++
	q.serves++
	s.numServes++
	if src.Unproven {
		s.unprovenServes++
	}
	if g.loan != nil {
		g.loan.serves++
	}
	g.taken = g.SingleUse
	i := s.serves.get()
	*s.serves.at(i) = serve{region: g, base: g.Offset(r), pdc: src.PDC, peer: src.Peer, init: r.Initiator, ep: s.to.id, length: r.ReqLen, modified: r.ReqLen, job: r.JobID, user: u, msgID: r.MsgID, unproven: src.Unproven, small: s.small, psn: src.PSN}
	if !s.small {
		q.last, s.serveOf[serveKey{src.PDC, r.MsgID}] = i, i
	}
	return i
}

// proveAccesses takes the reads and writes of a peer, which is proven now, from those of sources that may
// be forged: these leave no room for others that begin.
func (s *SES) proveAccesses(peer uint32) {
	for i := range s.serves.used {
		if sv := s.serves.at(i); sv.region != nil && sv.peer == peer && sv.unproven {
			s.proveServe(sv)
		}
	}
	for i := range s.in.used {
		if m := s.in.at(i); m.state == inWriting && m.peer == peer && s.more(m).unproven {
			s.more(m).unproven = false
			s.unproven.writing--
		}
	}
}

// owe lists a PDC that has something to return.
func (s *SES) owe(pdc uint32, q *returns) {
	if !q.listed {
		q.listed = true
		s.owing = append(s.owing, pdc)
	}
}

// OwesReturns reports whether Owing has something.
func (s *SES) OwesReturns() bool { return len(s.owing) != 0 }

// Owing removes and returns a PDC that has something to return, for PeekReturn.
func (s *SES) Owing() (pdc uint32, ok bool) {
	n := len(s.owing) - 1
	if n < 0 {
		return 0, false
	}
	pdc = s.owing[n]
	s.owing = s.owing[:n]
	if q := s.returning(pdc); q != nil {
		q.listed = false
	}
	return pdc, true
}

// Serving reports whether a read of a peer is being served on a PDC.
func (s *SES) Serving(pdc uint32) bool {
	q := s.returning(pdc)
	return q != nil && q.serves != 0
}

// PeekReturn returns the piece that AppendReturn is to hand out next on a PDC, of at most mtu bytes.
// It returns false if there is none.
func (s *SES) PeekReturn(pdc uint32, mtu int) (piece.Piece, bool) {
	q := s.returning(pdc)
	if q == nil || q.head == len(q.q) {
		return piece.Piece{}, false
	}
	r := &q.q[q.head]
	if s.serves.at(r.serve).small {
		if r.cut || int(r.len) > mtu {
			q.bytes -= int(r.len)
			r.len, s.serves.at(r.serve).rc = 0, wire.RCUnsupportedSize // the path carries less than when it was asked for
		}
		return piece.Piece{Msg: uint32(r.serve) + 1, Len: r.len, Kind: piece.Return | piece.Small}, true
	}
	if r.cut {
		mtu = min(mtu, recutLen)
	}
	return piece.Piece{Msg: uint32(r.serve) + 1, Off: r.off, Len: min(r.len, uint32(mtu)), Kind: piece.Return}, true
}

// AppendReturn hands out the piece that PeekReturn returned: it appends the piece as Append does, and
// the read waits for the answer to it.
func (s *SES) AppendReturn(b []byte, p piece.Piece) []byte {
	sv := s.serves.at(int32(p.Msg - 1))
	if sv.open++; sv.region.loan != nil {
		s.lentOut(sv.region.loan, p.Len)
	}
	q := s.returning(sv.pdc)
	r := &q.q[q.head]
	q.bytes -= int(p.Len)
	if r.off, r.len = r.off+p.Len, r.len-p.Len; r.len == 0 {
		sv.queued--
		if q.head++; q.head == len(q.q) {
			q.q, q.head = q.q[:0], 0
		} else if q.head >= 256 && 2*q.head >= len(q.q) {
			q.q, q.head = q.q[:copy(q.q, q.q[q.head:])], 0
		}
	}
	return s.encodeReturn(b, p)
}

// encodeReturn appends a response with data, S-RMA-11. If the region was removed it has an error and,
// because the packet has its length, zeros that payload_length does not count.
func (s *SES) encodeReturn(b []byte, p piece.Piece) []byte {
	sv := s.serves.at(int32(p.Msg - 1))
	if sv.small {
		return s.encodeSmall(b, p, sv)
	}
	h := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: sv.msgID, ReadMsgID: sv.msgID, JobID: sv.job,
		PayloadLen: uint16(p.Len), ModLen: sv.modified, MsgOff: p.Off}
	if p.Void() {
		h.List, h.RC, h.PayloadLen, h.ModLen = listVoid, wire.RCUncorTrnsnt, 0, 0
		return append(h.Append(b), make([]byte, wire.ReqStdLen-wire.RspDataLen)...) // as long as any void packet
	}
	if sv.commit != 0 || sv.rc != wire.RCNull {
		if h.RC = sv.rc; h.RC != wire.RCOK {
			h.ModLen = 0
		}
		return h.Append(b)
	}
	if sv.old != nil {
		return append(h.Append(b), sv.old[p.Off-sv.at:][:p.Len]...)
	}
	if !sv.region.Live() {
		h.RC, h.PayloadLen, h.ModLen = wire.RCBadMKey, 0, 0
		return append(h.Append(b), make([]byte, p.Len)...)
	}
	return sv.region.Append(h.Append(b), sv.base+uint64(p.Off), uint64(p.Len))
}

// encodeSmall is encodeReturn for a read without a message id (S-RMA-71). There are no parts in which the bytes
// could come if the path does not carry the packet, so a void packet says that they do not come.
func (s *SES) encodeSmall(b []byte, p piece.Piece, sv *serve) []byte {
	h := wire.RspDataSmall{Opcode: wire.RspWithData, RC: wire.RCOK, JobID: sv.job, PayloadLen: uint16(p.Len), ReqPSN: sv.psn}
	switch {
	case p.Void():
		h.RC, h.PayloadLen = wire.RCUnsupportedSize, 0
		return append(h.Append(b), make([]byte, wire.ReqStdLen-wire.RspDataSmallLen)...)
	case sv.rc != wire.RCNull:
		h.RC, h.PayloadLen = sv.rc, 0
		return h.Append(b)
	case sv.old != nil:
		return append(h.Append(b), sv.old...)
	case !sv.region.Live():
		h.RC, h.PayloadLen = wire.RCBadMKey, 0
		return append(h.Append(b), make([]byte, p.Len)...)
	}
	return sv.region.Append(h.Append(b), sv.base, uint64(p.Len))
}

// servedPiece notes that a piece of a read was answered.
func (s *SES) servedPiece(h Handle) {
	i := int32(h) - 1
	sv := s.serves.at(i)
	sv.open--
	s.endServe(i, sv)
}

// failedServe notes that a piece of a read will never be answered: nobody knows whether the peer has it.
func (s *SES) failedServe(h Handle) {
	i := int32(h) - 1
	sv := s.serves.at(i)
	sv.open--
	s.stopServe(i, sv)
}

// endServe frees a read of which all was sent and answered.
func (s *SES) endServe(i int32, sv *serve) {
	if sv.open != 0 || sv.queued != 0 || sv.parts != 0 || (sv.asked != sv.length || sv.pending) && !sv.gone {
		return
	}
	if sv.captured {
		s.uncapture(sv)
	}
	if sv.part != 0 {
		s.endPart(i, sv)
		return
	}
	key := serveKey{sv.pdc, sv.msgID}
	if k, ok := s.serveOf[key]; ok && k == i {
		delete(s.serveOf, key)
	}
	if q := s.returning(sv.pdc); q != nil {
		q.serves--
	}
	pu := s.peers.at(sv.user)
	pu.serves--
	s.putUser(sv.user, pu)
	s.numServes--
	if sv.unproven {
		s.unprovenServes--
	}
	if !sv.gone && sv.commit == 0 && sv.rc == wire.RCNull {
		s.wasRead(sv.ep, sv.region, sv.peer, sv.init, sv.length)
	}
	if sv.region.SingleUse {
		s.Deregister(sv.region)
	}
	if sv.commit != 0 {
		s.leaveCommit(sv)
	}
	s.fetched -= len(sv.old)
	l, off, length, whole := sv.region.loan, sv.base, sv.length, !sv.gone
	sv.region, sv.old = nil, nil
	s.serves.put(i)
	if l != nil {
		s.returnedLoan(l, off, length, whole)
	}
}

// wasRead reports a read to this side, if its owner asked (R-CQ-115, R-CNTR-07).
func (s *SES) wasRead(ep EndpointID, g *Region, peer, initiator, n uint32) {
	if g.CountsReads && g.Live() {
		s.events.add().init(ep, EvRemoteRead, g.Context, g.Flags, nil, int(n), 0, PeerID(peer), initiator)
	}
}

// stopServe sends no more of a read. That of a part stops the read.
func (s *SES) stopServe(i int32, sv *serve) {
	if sv.part != 0 {
		if read := s.serves.at(sv.part - 1); !read.gone {
			s.stopServe(sv.part-1, read)
			return
		}
		s.endServe(i, sv)
		return
	}
	if sv.kept != 0 {
		s.dropKept(sv)
	}
	if sv.queued > 0 || sv.parts != 0 {
		q := s.returning(sv.pdc)
		keep := q.q[:0]
		for _, r := range q.q[q.head:] {
			if of := s.serves.at(r.serve); r.serve != i && of.part != i+1 {
				keep = append(keep, r)
			} else {
				q.bytes -= int(r.len)
				of.queued--
			}
		}
		q.q, q.head = keep, 0
	}
	sv.gone = true
	if !sv.small {
		delete(s.serveOf, serveKey{sv.pdc, sv.msgID})
	}
	if sv.parts != 0 {
		s.stopParts(sv)
		return
	}
	s.endServe(i, sv)
}

// unserve ends the reads that are served on a PDC that is gone. None of their pieces is outstanding.
func (s *SES) unserve(pdc uint32) {
	q := s.returning(pdc)
	if q == nil {
		return
	}
	for i := int32(0); q.serves > 0 && i < s.serves.used; i++ {
		if sv := s.serves.at(i); sv.region != nil && sv.pdc == pdc && sv.part == 0 {
			sv.open = 0
			for j := sv.parts; j != 0; j = s.serves.at(j - 1).next {
				s.serves.at(j - 1).open = 0
			}
			s.stopServe(i, sv)
		}
	}
	s.returns[pdc] = nil
}

// sweepServes forgets the reads that ask for no more, without an end.
func (s *SES) sweepServes() {
	if s.numServes == 0 {
		return
	}
	for i := range s.serves.used {
		if sv := s.serves.at(i); sv.region != nil && sv.queued == 0 && sv.part|sv.parts == 0 && s.expired(sv.epoch) && !sv.gone && !sv.pending {
			s.Stats.Expired++
			s.stopServe(i, sv)
		}
	}
}
