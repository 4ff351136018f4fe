package ses

import "github.com/uetkit/uetkit/transport/wire"

// Request executes one request packet. b is the SES header and the payload; Request borrows it.
// It copies src. The caller has removed duplicates (S-RSM-03). The packets of a message may come in any order.
// The Result is valid until the next call.
//
// The packets of a message are answered as follows. Usually each gets DEFAULT_RESPONSE OK. If
// no receive matched, or the message does not fit its receive, a guaranteed RESPONSE to the
// packet that came first says so, and the others get DEFAULT_RESPONSE NULL. The initiator needs
// to know it once, and each guaranteed response must be stored (S-RSP-03). After an error every
// packet gets that error (S-RSM-07).
func (s *SES) Request(src *Source, next wire.NextHdr, b []byte) *Result {
	r := &s.req
	n, err := r.Parse(b)
	if next == wire.NextReqStd && err == nil && s.plain(s.to, r, len(b)) {
		return s.whole(src, b[wire.ReqStdLen:][:r.ReqLen])
	}
	s.src = *src
	if next != wire.NextReqStd || err != nil {
		return s.requestOther(next, b, r)
	}
	s.small = false
	if b = b[n:]; s.inner(s.to, r, len(b)) {
		return s.part(r, r.MsgOff, b)
	}
	return s.request(r, b)
}

const single = wire.SESSOM | wire.SESEOM

// plain reports whether a request of n bytes, header included, is a whole message for endpoint
// e with nothing special in its header. request would find the same more slowly.
func (s *SES) plain(e *endpoint, r *wire.ReqStd, n int) bool {
	return r.Flags&(single|wire.SESIE) == single && (r.Opcode == wire.OpTaggedSend || r.Opcode == wire.OpSend) &&
		e.is(r) && r.Gen == 0 && !e.closed &&
		uint64(r.ReqLen)+wire.ReqStdLen <= uint64(n) && r.ReqLen <= s.cfg.MaxMessage
}

// inner reports whether a request with n bytes of payload is one of the middle of a message for
// endpoint e, with nothing special in its header. request would find the same more slowly.
func (s *SES) inner(e *endpoint, r *wire.ReqStd, n int) bool {
	return r.Flags&(single|wire.SESIE) == 0 && (r.Opcode == wire.OpTaggedSend || r.Opcode == wire.OpSend) &&
		e.is(r) && r.Gen == 0 && !e.closed &&
		n != 0 && n == int(r.PayloadLen) && uint64(r.MsgOff)+uint64(n) <= uint64(r.ReqLen) && r.ReqLen <= s.cfg.MaxMessage
}

// request executes a decoded request. data is what follows the header. The order of its checks
// is that of S-ERR-54.
func (s *SES) request(r *wire.ReqStd, data []byte) *Result {
	if r.Opcode == wire.OpDeferrableRTR {
		return s.readyToRestart(&s.src, r)
	}
	if rc := s.check(r); rc != wire.RCNull {
		if r.Opcode == wire.OpRead && len(s.loans) != 0 && s.lentTo(s.src.Peer, r.Match) != nil {
			return s.serveRead(&s.src, r) // after Leave, too
		}
		return s.refuse(s.src, r, rc, uint32(r.PayloadLen))
	}
	switch r.Opcode {
	case wire.OpMsgError:
		return s.msgError(s.src, r)
	case wire.OpNoOp:
		if r.Match != 0 {
			return s.stillHere(r)
		}
		return s.done(0) // S-MSC-01
	case wire.OpRead:
		return s.serveRead(&s.src, r)
	case wire.OpDeferrableSend, wire.OpDeferrableTSend:
		return s.deferrableRequest(r, data)
	case wire.OpRendezvousSend, wire.OpRendezvousTSend:
		return s.rendezvousRequest(r, data)
	case wire.OpAtomic, wire.OpFetchAtomic:
		return s.atomic(&s.src, r, data)
	case wire.OpTSendAtomic, wire.OpTSendFetchAtomic:
		return s.taggedAtomic(r, data)
	}
	if isCommit(r, data) {
		return s.commitRequest(&s.src, r)
	}
	return s.payload(r, data)
}

// payload executes a request that has bytes of a message or a write.
func (s *SES) payload(r *wire.ReqStd, data []byte) *Result {
	off, data, bad := s.extent(r, data)
	switch {
	case bad != nil:
		return bad
	case r.Opcode == wire.OpWrite:
		return s.write(&s.src, r, off, data)
	case r.Flags&single == single:
		return s.whole(&s.src, data)
	}
	return s.part(r, off, data)
}

// extent checks which bytes of its message a request has, and returns their offset and the
// bytes. bad is its answer if they cannot be taken.
func (s *SES) extent(r *wire.ReqStd, data []byte) (_ uint32, _ []byte, bad *Result) {
	var off uint64
	n := uint64(r.ReqLen) // payload bytes of the packet
	if r.Flags&wire.SESSOM != 0 {
		if uint64(len(data)) < n {
			n = uint64(len(data)) // S-FLD-02
		}
	} else {
		off, n = uint64(r.MsgOff), uint64(r.PayloadLen)
	}
	end := off + n
	if n > uint64(len(data)) || end > uint64(r.ReqLen) || r.Flags&wire.SESEOM != 0 && end != uint64(r.ReqLen) || n == 0 && r.Flags&wire.SESSOM == 0 {
		return 0, nil, s.refuse(s.src, r, wire.RCOpViolation, 0) // S-RSM-04
	}
	if bad = s.unfit(r, uint32(n)); bad != nil {
		return 0, nil, bad
	}
	return uint32(off), data[:n], nil
}

// unfit returns the answer to a request with n bytes that is refused whatever it wants to be done with
// them, nil if there is no such reason.
func (s *SES) unfit(r *wire.ReqStd, n uint32) *Result {
	switch {
	case r.ReqLen > s.cfg.MaxMessage:
		return s.refuse(s.src, r, wire.RCUnsupportedSize, n)
	case r.Gen != 0:
		return s.refuse(s.src, r, wire.RCBadGeneration, n) // our RIs are never disabled: their generation is 0
	case r.Flags&wire.SESIE != 0:
		return s.refuse(s.src, r, wire.RCInitiatorError, n) // S-MSC-05
	}
	return nil
}

// check finds the endpoint that the request names, and reports whether the request can be
// executed. A foreign JobID gets the same answer whether or not the rest of the name exists
// (T17).
func (s *SES) check(r *wire.ReqStd) wire.RC {
	if !s.to.is(r) || s.to.closed {
		e := s.names.whole[name{r.JobID, r.PIDonFEP, r.RI}]
		if e == nil || e.closed { // F27
			return s.unknown(r)
		}
		s.to = e
	}
	switch r.Opcode {
	case wire.OpSend, wire.OpTaggedSend, wire.OpRead, wire.OpWrite, wire.OpNoOp, wire.OpMsgError, wire.OpAtomic, wire.OpFetchAtomic,
		wire.OpTSendAtomic, wire.OpTSendFetchAtomic,
		wire.OpDeferrableSend, wire.OpDeferrableTSend, wire.OpRendezvousSend, wire.OpRendezvousTSend:
		return wire.RCNull
	}
	return wire.RCUnsupportedOp // DATAGRAM_SEND too: S-UUD-02
}

// unknown returns the answer to a request that names no endpoint.
func (s *SES) unknown(r *wire.ReqStd) wire.RC {
	switch {
	case s.names.parts[name{r.JobID, anyPart, anyPart}] != 0:
	case r.Flags&wire.SESREL != 0:
		return wire.RCBadJobID
	default:
		return wire.RCPermViolation
	}
	if s.names.parts[name{r.JobID, r.PIDonFEP, anyPart}] == 0 {
		return wire.RCBadPID
	}
	return wire.RCBadIndex
}

// refuse answers an error and ends the message. A message that was not known is remembered as
// dead: its other packets must not begin it, and their MSG_ERROR must find it (S-RSM-07). n is
// the number of payload bytes of the packet, 0 if it is not known.
func (s *SES) refuse(src Source, r *wire.ReqStd, rc wire.RC, n uint32) *Result {
	if r.Flags&single == single {
		return s.rejected(rc)
	}
	i, m := s.findIn(src.PDC, r.MsgID)
	switch {
	case m != nil && m.state == inDead && m.same(r):
		rc = s.more(m).rc
		s.count(i, m, r, n)
	case m != nil && m.state != inDead:
		if s.fail(i, m, PeerError, rc) {
			s.count(i, m, r, n)
		}
	case rc == wire.RCBadJobID || rc == wire.RCPermViolation || rc == wire.RCBadPID || rc == wire.RCBadIndex:
		// The rest of the message is not for this endpoint either.
	default:
		s.entomb(src, r, rc, r.ReqLen, n)
	}
	return s.rejected(rc)
}

// whole executes a message of one packet, the request in s.req, for s.to. Unless it is kept, it
// needs no state but its receive. If the first receive of the run accepts it into one buffer, that
// is done here; fit does all else.
func (s *SES) whole(src *Source, data []byte) *Result {
	to, r := s.to, &s.req
	sp, tag, k := &to.spaces[1], r.Match, EvTRecv
	if r.Opcode != wire.OpTaggedSend {
		sp, tag, k = &to.spaces[0], 0, EvRecv // S-FLD-05
	}
	rv := sp.first(tag, src.Peer, r.Initiator)
	if rv == nil || !rv.simple || len(data) > len(rv.buf) {
		s.src = *src
		return s.fit(sp, r, tag, data)
	}
	sp.run = rv.next // as match does
	if src.Ordered {
		s.inOrder(src.Peer, rv)
	}
	e := s.events.add()
	e.init(to.id, k, rv.context, rv.flags, rv.buf, len(data), tag, PeerID(src.Peer), r.Initiator)
	e.data(r.Flags&wire.SESHD != 0, r.HeaderData)
	s.arrived(e, 0)
	copy(rv.buf, data)
	rv.retire()
	return s.done(r.ReqLen)
}

// fit executes a message of one packet that no receive matches, or that does not simply go into
// a buffer.
func (s *SES) fit(sp *space, r *wire.ReqStd, tag uint64, data []byte) *Result {
	_, rv := s.match(sp, tag, s.src.Peer, r.Initiator)
	if rv == nil {
		return s.keep(s.src, r, tag, data)
	}
	return s.receiveWhole(rv, r, tag, data)
}

// receiveWhole puts a message of one packet into the receive that match found for it.
func (s *SES) receiveWhole(rv *recv, r *wire.ReqStd, tag uint64, data []byte) *Result {
	if s.src.Ordered {
		s.inOrder(s.src.Peer, rv)
	}
	n, room, base := uint64(len(data)), rv.size(), uint64(0)
	if rv.multi {
		room -= rv.off
	}
	refused := s.cfg.RefuseTooLong && n > room
	placed := min(n, room) // S-MAT-08
	if refused {
		placed = 0
	}
	switch {
	case !rv.multi:
	case refused:
		rv.refs++ // the message gets an error and no place
	default:
		base = s.pack(rv.self, rv, n)
	}
	rv.place(base, data[:placed])
	e := s.recvEvent(rv, int(placed), tag, s.src.Peer, r.Initiator)
	e.data(r.Flags&wire.SESHD != 0, r.HeaderData)
	s.arrived(e, int(n-placed))
	if refused {
		e.RC = wire.RCTooLong
	}
	s.unbind(rv.self, rv, e, base)
	switch {
	case refused:
		return s.rejected(wire.RCTooLong)
	case placed < n:
		return s.special(wire.ListExpected, uint32(placed))
	}
	return s.done(r.ReqLen)
}
