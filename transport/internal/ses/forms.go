package ses

import "github.com/uetkit/uetkit/transport/wire"

// This file executes requests whose headers are not standard, or do not parse.

// requestOther executes a request with an optimized header, which has one packet and no message
// id, or with one that does not parse. It leaves the decoded header in r.
func (s *SES) requestOther(next wire.NextHdr, b []byte, r *wire.ReqStd) *Result {
	s.small = next == wire.NextReqMedium || next == wire.NextReqSmall
	switch next {
	case wire.NextRspData, wire.NextRspDataSmall:
		return s.returned(&s.src, next, b)
	case wire.NextReqStd:
		return s.malformed(next, b, r)
	case wire.NextReqMedium, wire.NextReqSmall:
		n, err := s.optimized(next, b, r, false)
		if err != nil {
			return s.malformed(next, b, r)
		}
		b = b[n:]
	default:
		return s.bad(ReasonNextHdr)
	}
	switch r.Opcode {
	case wire.OpNoOp, wire.OpMsgError, wire.OpDeferrableSend, wire.OpDeferrableTSend, wire.OpDeferrableRTR, wire.OpRendezvousSend, wire.OpRendezvousTSend,
		wire.OpTSendAtomic, wire.OpTSendFetchAtomic:
		return s.rejected(wire.RCUnsupportedOp) // standard header only
	}
	return s.request(r, b)
}

// optimized decodes an optimized header into the fields of a standard one, and reports the bytes read.
// idempotent says that the packet is one of RUDI.
func (s *SES) optimized(next wire.NextHdr, b []byte, r *wire.ReqStd, idempotent bool) (int, error) {
	if next == wire.NextReqMedium {
		h, n, err := wire.ParseReqMedium(b)
		*r = wire.ReqStd{Opcode: h.Opcode, Flags: h.Flags, Gen: h.Gen, JobID: h.JobID, PIDonFEP: h.PIDonFEP, RI: h.RI,
			Initiator: h.Initiator, BufOff: h.BufOff, Match: h.Match, HeaderData: h.HeaderData, ReqLen: uint32(h.ReqLen)}
		return n, err
	}
	h, n, err := wire.ParseReqSmall(b)
	if err != nil {
		return 0, err
	}
	*r = wire.ReqStd{Opcode: h.Opcode, Flags: h.Flags, Gen: h.Gen, JobID: h.JobID, PIDonFEP: h.PIDonFEP, RI: h.RI,
		BufOff: h.BufOff, ReqLen: uint32(h.ReqLen)}
	switch h.Opcode {
	case wire.OpWrite, wire.OpRead, wire.OpAtomic, wire.OpFetchAtomic:
	default:
		r.Opcode = 0x3F // S-HDR-03: RMA only; there is no initiator to match
	}
	s.keyOf(r, idempotent)
	return n, nil
}

// keyOf completes the header of a small request, whose resource index is the RKEY of a region
// (S-HDR-03): it sets the key, and the resource index of an endpoint that has the region. Of two keys with that
// RKEY a packet of RUDI means the one that allows RUDI, and any other packet the other one.
func (s *SES) keyOf(r *wire.ReqStd, idempotent bool) {
	r.Match = wire.MKeyOptimized | uint64(r.RI)
	keys := [...]uint64{r.Match, r.Match | wire.MKeyIdempotent}
	if idempotent {
		keys[0], keys[1] = keys[1], keys[0]
	}
	for _, key := range keys {
		if s.byKey[key] == nil {
			continue
		}
		for _, e := range s.endpoints {
			if !e.closed && e.JobID == r.JobID && e.PIDonFEP == r.PIDonFEP && s.lookRegion(key, e.id) != nil {
				r.Match, r.RI = key, e.RI
				return
			}
		}
	}
}

// malformed answers a request whose header does not parse. The header has another version
// (S-HDR-06), or is of a form for one packet but claims to be part of a longer message
// (S-HDR-07). malformed reads the header with these fields corrected, so that the response can
// echo the others.
func (s *SES) malformed(next wire.NextHdr, b []byte, r *wire.ReqStd) *Result {
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
		return s.bad(ReasonShort)
	}
	return s.rejected(rc)
}
