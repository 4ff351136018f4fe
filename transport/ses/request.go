package ses

import "github.com/uetkit/uetkit/transport/wire"

// A Reason says why a request could not even be answered.
type Reason uint8

// The reasons.
const (
	ReasonNone    Reason = iota
	ReasonShort          // shorter than its header (S-HDR-08)
	ReasonNextHdr        // next_hdr is not a request's
)

// A Result is what became of a request packet.
type Result struct {
	// Rsp is the response to give; Gtd says that it must not be lost (S-RSP-02).
	Rsp wire.Rsp
	Gtd bool
	// Nack, if not 0, refuses the packet: nothing happened, it is to be sent
	// again later.
	Nack wire.NackCode
	// Bad: the packet cannot be answered; count it under Reason and drop it.
	Bad    bool
	Reason Reason
}

// Request executes one request packet: b is the SES header and the payload, and
// is borrowed. The caller removed duplicates (S-RSM-03); packets of a message
// may come in any order. Each answer but a plain success is guaranteed.
//
// What the packets of one message are answered: while nothing is special, all
// get DEFAULT_RESPONSE OK. When the message met no receive or does not fit the
// one it met, the packet that was executed first carries that in a guaranteed
// RESPONSE, and the others get DEFAULT_RESPONSE NULL, which says nothing new: the
// initiator needs the news once, and one stored response per message is what it
// costs (S-RSP-03). After an error every packet gets that error
// (S-RSM-07).
//
// The Result is valid until the next call.
func (s *SES) Request(src Source, next wire.NextHdr, b []byte) *Result {
	r := &s.req
	n, err := r.Parse(b)
	if next != wire.NextReqStd || err != nil {
		s.src = src
		return s.answer(r, s.requestOther(next, b, r))
	}
	if s.plain(r, len(b)) {
		if s.simply(r, src.Peer, b) {
			return s.good(r)
		}
		s.src = src
		return s.answer(r, s.whole(r, b[n:n+int(r.ReqLen)]))
	}
	s.src = src
	return s.answer(r, s.request(r, b[n:]))
}

// good is the Result of done: most of it is what the last one left there.
func (s *SES) good(r *wire.ReqStd) *Result {
	s.Stats.Answers[wire.RCOK]++
	res := &s.res
	if !s.resGood {
		s.resGood = true
		*res = Result{Rsp: wire.Rsp{RC: wire.RCOK, JobID: s.cfg.JobID}}
	}
	res.Rsp.MsgID, res.Rsp.ModLen = r.MsgID, r.ReqLen
	return res
}

// answer makes the Result of a verdict.
func (s *SES) answer(r *wire.ReqStd, v verdict) *Result {
	res := &s.res
	s.resGood = false
	if v.not != 0 {
		*res = Result{}
		if v.not < notBad {
			res.Nack = wire.NackCode(v.not)
		} else {
			res.Bad, res.Reason = true, Reason(v.not-notBad)
		}
		return res
	}
	// S-RSP-04: no generation, because it is 0; a guaranteed one is a RESPONSE.
	s.Stats.Answers[v.rc&63]++
	res.Rsp.List, res.Rsp.Opcode, res.Rsp.RC, res.Rsp.Gen, res.Rsp.ModLen = wire.List(v.form>>6), v.op(), v.rc, 0, v.modified
	res.Rsp.MsgID, res.Rsp.JobID = r.MsgID, r.JobID
	res.Gtd = v.op() == wire.RspResponse
	res.Nack, res.Bad, res.Reason = 0, false, ReasonNone
	return res
}

// A verdict is a Result that the compiler keeps in registers, which it does with
// up to four fields.
type verdict struct {
	modified uint32
	not      uint16 // a NACK code, or notBad + Reason: no answer
	form     uint8  // list:2 opcode:6 of the response
	rc       wire.RC
}

const notBad = 0x100

func (v verdict) op() wire.RspOpcode { return wire.RspOpcode(v.form & 0x3f) }

// The answer to what went as usual, and to an error (S-RSP-03).
func done(modified uint32) verdict {
	return verdict{rc: wire.RCOK, modified: modified}
}
func refusal(rc wire.RC) verdict { return verdict{form: uint8(wire.RspResponse), rc: rc} }
func bad(why Reason) verdict     { return verdict{not: notBad + uint16(why)} }

// special makes of a plain success news: the message met no receive, or does not
// fit it.
func special(list wire.List, modified uint32) verdict {
	return verdict{form: uint8(list)<<6 | uint8(wire.RspResponse), rc: wire.RCOK, modified: modified}
}

// requestOther executes the optimized request forms: one packet, no message id.
// The decoded header is left in r.
func (s *SES) requestOther(next wire.NextHdr, b []byte, r *wire.ReqStd) verdict {
	switch next {
	case wire.NextReqStd:
		return s.malformed(next, b, r)
	case wire.NextReqMedium:
		h, n, err := wire.ParseReqMedium(b)
		if err != nil {
			return s.malformed(next, b, r)
		}
		*r = wire.ReqStd{Opcode: h.Opcode, Flags: h.Flags, Gen: h.Gen, JobID: h.JobID, PIDonFEP: h.PIDonFEP, RI: h.RI,
			Initiator: h.Initiator, BufOff: h.BufOff, Match: h.Match, HeaderData: h.HeaderData, ReqLen: uint32(h.ReqLen)}
		b = b[n:]
	case wire.NextReqSmall:
		h, n, err := wire.ParseReqSmall(b)
		if err != nil {
			return s.malformed(next, b, r)
		}
		if h.Opcode == wire.OpSend || h.Opcode == wire.OpTaggedSend || h.Opcode == wire.OpNoOp || h.Opcode == wire.OpMsgError {
			h.Opcode = 0x3F // S-HDR-03: RMA only; there is no initiator to match
		}
		*r = wire.ReqStd{Opcode: h.Opcode, Flags: h.Flags, Gen: h.Gen, JobID: h.JobID, PIDonFEP: h.PIDonFEP, RI: h.RI,
			BufOff: h.BufOff, ReqLen: uint32(h.ReqLen)}
		b = b[n:]
	default:
		s.Stats.Bad++
		return bad(ReasonNextHdr)
	}
	if r.Opcode == wire.OpNoOp || r.Opcode == wire.OpMsgError {
		return refusal(wire.RCUnsupportedOp) // standard header only
	}
	return s.request(r, b)
}

// malformed answers a request whose header does not parse: of another version
// (S-HDR-06), or of a one-packet form that claims to be part of something
// (S-HDR-07). It echoes what those fields would say.
func (s *SES) malformed(next wire.NextHdr, b []byte, r *wire.ReqStd) verdict {
	var h [wire.ReqStdLen]byte
	n := copy(h[:], b)
	rc := wire.RCOpViolation
	if n > 1 {
		if h[1]&0xc0 != 0 {
			rc = wire.RCUncor
		}
		h[1] = h[1]&0x3f | byte(single)
	}
	var err error
	switch next {
	case wire.NextReqStd:
		*r, _, err = wire.ParseReqStd(h[:n])
	case wire.NextReqMedium:
		var m wire.ReqMedium
		m, _, err = wire.ParseReqMedium(h[:n])
		*r = wire.ReqStd{JobID: m.JobID}
	default:
		var m wire.ReqSmall
		m, _, err = wire.ParseReqSmall(h[:n])
		*r = wire.ReqStd{JobID: m.JobID}
	}
	if err != nil {
		s.Stats.Bad++
		return bad(ReasonShort)
	}
	return refusal(rc)
}

const single = wire.SESSOM | wire.SESEOM

// plain reports whether a request, n bytes with its header, is a whole message for this
// endpoint with nothing special about it. It finds what request would, sooner.
func (s *SES) plain(r *wire.ReqStd, n int) bool {
	return r.Flags&(single|wire.SESIE) == single && (r.Opcode == wire.OpTaggedSend || r.Opcode == wire.OpSend) &&
		r.JobID == s.cfg.JobID && r.PIDonFEP == s.cfg.PIDonFEP && r.RI == s.cfg.RI && r.Gen == 0 && !s.closed &&
		uint64(r.ReqLen)+wire.ReqStdLen <= uint64(n) && r.ReqLen <= s.cfg.MaxMessage
}

// request executes a decoded request. data is what follows the header.
func (s *SES) request(r *wire.ReqStd, data []byte) verdict {
	// The order of the checks: S-ERR-04.
	if rc := s.check(r); rc != wire.RCNull {
		return s.refuse(s.src, r, rc, uint32(r.PayloadLen))
	}
	if r.Opcode != wire.OpSend && r.Opcode != wire.OpTaggedSend {
		if r.Opcode == wire.OpMsgError {
			return s.msgError(s.src, r)
		}
		return done(0) // S-MSC-01: NO_OP
	}
	var off uint64
	n := uint64(r.ReqLen) // payload bytes
	if r.Flags&wire.SESSOM != 0 {
		if uint64(len(data)) < n {
			n = uint64(len(data)) // S-FLD-02
		}
	} else {
		off, n = uint64(r.MsgOff), uint64(r.PayloadLen)
	}
	end := off + n
	if n > uint64(len(data)) || end > uint64(r.ReqLen) || r.Flags&wire.SESEOM != 0 && end != uint64(r.ReqLen) || n == 0 && r.Flags&wire.SESSOM == 0 {
		return s.refuse(s.src, r, wire.RCOpViolation, 0) // S-RSM-04
	}
	if r.ReqLen > s.cfg.MaxMessage {
		return s.refuse(s.src, r, wire.RCUnsupportedSize, uint32(n))
	}
	if r.Gen != 0 {
		return s.refuse(s.src, r, wire.RCBadGeneration, uint32(n)) // our RIs never disable themselves
	}
	if r.Flags&wire.SESIE != 0 {
		return s.refuse(s.src, r, wire.RCInitiatorError, uint32(n)) // S-MSC-05
	}
	data = data[:n]
	if r.Flags&single == single {
		return s.whole(r, data)
	}
	return s.part(s.src, r, uint32(off), data)
}

// check looks whether the request is for this endpoint and can be executed. A
// foreign JobID gets the same answer whether or not the rest of the name exists
// (T17).
func (s *SES) check(r *wire.ReqStd) wire.RC {
	switch {
	case r.JobID != s.cfg.JobID:
		if r.Flags&wire.SESREL != 0 {
			return wire.RCBadJobID
		}
		return wire.RCPermViolation
	case s.closed:
		return wire.RCBadIndex // F27
	case r.PIDonFEP != s.cfg.PIDonFEP:
		return wire.RCBadPID
	case r.RI != s.cfg.RI:
		return wire.RCBadIndex
	}
	switch r.Opcode {
	case wire.OpSend, wire.OpTaggedSend, wire.OpNoOp, wire.OpMsgError:
		return wire.RCNull
	}
	return wire.RCUnsupportedOp // DATAGRAM_SEND too: S-UUD-02
}

// refuse answers an error. It ends the message, if it is known; if it is not,
// its other packets must not begin it, and their MSG_ERROR must find it
// (S-RSM-07). n is the payload bytes of the packet, 0 if they cannot be told.
func (s *SES) refuse(src Source, r *wire.ReqStd, rc wire.RC, n uint32) verdict {
	if r.Flags&single == single {
		return refusal(rc)
	}
	i, m := s.findIn(src.PDC, r.MsgID)
	switch {
	case m != nil && m.state == inDead && m.same(r):
		rc = m.rc
		s.count(i, m, r, n)
	case m != nil && m.state != inDead:
		if s.fail(i, m, PeerError, rc) {
			s.count(i, m, r, n)
		}
	case rc == wire.RCBadJobID || rc == wire.RCPermViolation || rc == wire.RCBadPID || rc == wire.RCBadIndex:
		// Not for this endpoint, and neither is the rest of it.
	default:
		s.entomb(src, r, rc, uint64(r.ReqLen), n)
	}
	return refusal(rc)
}

func (s *SES) nack() verdict {
	s.Stats.Refused++
	return verdict{not: uint16(wire.NackNoSESMsgAvail)} // S-RSM-09
}

// simply is whole for nearly every plain message: it fits into the memory, one piece, of
// the first receive of the run. It reports false, and has done nothing, where that is
// not so. The message is behind the header in b.
func (s *SES) simply(r *wire.ReqStd, peer uint32, b []byte) bool {
	sp, tag, k := &s.spaces[1], r.Match, EvTRecv
	if r.Opcode != wire.OpTaggedSend {
		sp, tag, k = &s.spaces[0], 0, EvRecv // S-FLD-05
	}
	rv, n := sp.run, int(r.ReqLen)
	if rv == nil || sp.starved {
		return false
	}
	buf := rv.buf
	if !rv.simple || n > len(buf) || !s.events.fits() || !rv.accepts(tag, peer, r.Initiator) {
		return false
	}
	e := s.events.put()
	e.Kind, e.HasData, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = k, false, OK, 0, 0, false, false, false
	e.Flags, e.Len, e.OverLen, e.Tag, e.Data, e.Peer, e.Initiator = rv.flags, n, 0, tag, 0, PeerID(peer), r.Initiator
	e.Buf, e.Context = buf, rv.context
	if r.Flags&wire.SESHD != 0 {
		e.HasData, e.Data = true, r.HeaderData
	}
	s.Stats.Received++
	s.Stats.ReceivedBytes += uint64(n)
	s.numRecvs--
	rv.live = false
	sp.run, rv.next, s.idleRecv, rv.buf, rv.context = rv.next, s.idleRecv, rv, nil, nil
	copy(buf, b[wire.ReqStdLen:wire.ReqStdLen+n])
	return true
}

// whole executes a message of one packet: no state besides the receive.
func (s *SES) whole(r *wire.ReqStd, data []byte) verdict {
	sp, tag := &s.spaces[1], r.Match
	if r.Opcode != wire.OpTaggedSend {
		sp, tag = &s.spaces[0], 0 // S-FLD-05
	}
	i, rv := s.match(sp, tag, s.src.Peer, r.Initiator)
	if rv == nil {
		return s.keep(s.src, r, tag, data)
	}
	e := s.events.add()
	rv.event(e)
	e.Tag, e.Peer, e.Initiator = tag, PeerID(s.src.Peer), r.Initiator
	if r.Flags&wire.SESHD != 0 {
		e.HasData, e.Data = true, r.HeaderData
	}
	if rv.multi || rv.iov != nil || uint64(len(data)) > rv.size {
		return s.fit(i, rv, e, r, data)
	}
	copy(rv.buf, data)
	s.arrived(e, len(data), 0)
	s.freeRecv(rv)
	return done(r.ReqLen)
}

// fit gives a receive a message that does not simply go into its buffer.
func (s *SES) fit(i int32, rv *recv, e *Event, r *wire.ReqStd, data []byte) verdict {
	placed := len(data)
	v := done(r.ReqLen)
	room, base := rv.size, uint64(0)
	if rv.multi {
		room -= rv.off
		if uint64(placed) <= room || !s.cfg.RefuseTooLong {
			base = s.pack(i, rv, uint64(placed))
		} else {
			rv.refs++ // it gets an error and no place
		}
	}
	switch {
	case uint64(placed) <= room:
	case s.cfg.RefuseTooLong:
		placed = 0
		v = refusal(wire.RCTooLong)
		e.RC = wire.RCTooLong
	default:
		placed = int(room) // S-MAT-08
		v = special(wire.ListExpected, uint32(placed))
	}
	if rv.iov == nil {
		copy(rv.buf[base:], data[:placed])
	} else {
		rv.place(0, data[:placed])
	}
	s.arrived(e, placed, len(data)-placed)
	s.unbind(i, rv, e, base)
	return v
}

// arrived completes the event of a receive whose message is all there.
func (s *SES) arrived(e *Event, placed, over int) {
	e.Len, e.OverLen = placed, over
	s.Stats.Received++
	s.Stats.ReceivedBytes += uint64(placed)
	if over > 0 {
		e.Cause = Truncated
		s.Stats.Truncated++
	}
}
