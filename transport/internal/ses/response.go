package ses

import "github.com/uetkit/uetkit/transport/wire"

// A Reason says why a request cannot even be answered.
type Reason uint8

// The reasons.
const (
	ReasonNone    Reason = iota
	ReasonShort          // shorter than its header (S-HDR-08)
	ReasonNextHdr        // next_hdr is not a request's
)

// A Result is the outcome of a request packet.
type Result struct {
	// Rsp is the response to give. Gtd means that it is guaranteed (S-RSP-02).
	Rsp wire.Rsp
	Gtd bool
	// Data, of a response RspWithData, goes with it, in the ACK.
	Data []byte
	// Small, with Data, means that the request has no message id.
	Small bool
	// Nack, if not 0, refuses the packet: nothing happened, and it is to be sent again later.
	Nack wire.NackCode
	// NoRoom, with Nack, means that the message has neither a receive nor room, and that TurnAway can
	// answer the packet.
	NoRoom bool
	// Bad means that the packet cannot be answered: the caller drops it and counts it under
	// Reason.
	Bad    bool
	Reason Reason
}

// respond makes the Result of the request in s.req. A response that says more than plain
// success is a RESPONSE, which is guaranteed.
func (s *SES) respond(op wire.RspOpcode, list wire.List, rc wire.RC, modified uint32) *Result {
	s.Stats.Answers[rc&63]++
	res, p := &s.res, &s.res.Rsp
	// S-RSP-04: no generation, because it is 0.
	p.List, p.Opcode, p.RC, p.Gen, p.MsgID, p.JobID, p.ModLen = list, op, rc, 0, s.req.MsgID, s.req.JobID, modified
	res.Gtd, res.Nack, res.Bad, res.Reason = op == wire.RspResponse, 0, false, ReasonNone
	return res
}

// done answers plain success. modified is the number of bytes that the packet's message
// changes.
func (s *SES) done(modified uint32) *Result {
	return s.respond(wire.RspDefault, wire.ListExpected, wire.RCOK, modified)
}

// special answers a success that the initiator must know of: no receive matched the message, or
// it does not fit its receive.
func (s *SES) special(list wire.List, modified uint32) *Result {
	return s.respond(wire.RspResponse, list, wire.RCOK, modified)
}

// maxInline is how many bytes of read data go in the ACK of the request.
const maxInline = 16

// withData answers a request with the bytes that it asks for, maxInline at most, of which s.inline is
// the place. The response is guaranteed: nobody asks again. modified is its modified_length, which is the
// request_length (S-AMO-02).
func (s *SES) withData(data []byte, modified uint32) *Result {
	s.respond(wire.RspWithData, wire.ListExpected, wire.RCOK, modified)
	s.res.Gtd, s.res.Data, s.res.Small = true, data, s.small
	return &s.res
}

// nothingNew answers another packet of a message that had a special answer.
func (s *SES) nothingNew() *Result {
	return s.respond(wire.RspDefault, wire.ListExpected, wire.RCNull, 0)
}

// rejected answers an error.
func (s *SES) rejected(rc wire.RC) *Result {
	return s.respond(wire.RspResponse, wire.ListExpected, rc, 0)
}

// nack refuses a packet for lack of room: nothing happened (S-RSM-09).
func (s *SES) nack() *Result {
	s.Stats.Refused++
	s.res = Result{Nack: wire.NackNoSESMsgAvail}
	return &s.res
}

// turnMost bounds the length of messages that are turned away. Each try of one that waits sends all of it.
// It is the length from which on messages may be deferred.
const turnMost = 16 << 10

// noRoom refuses a packet of a message that has neither a receive nor room. n is the number of payload
// bytes of the packet.
func (s *SES) noRoom(n int) *Result {
	res := s.nack()
	res.NoRoom, s.turned = s.req.ReqLen < turnMost, uint32(n)
	return res
}

// TurnAway answers the packet that Request has just refused, with NoRoom: its message is not taken now
// (NO_MATCH), and is to be sent again as a whole. The packet is done then, where a refused one stays in the
// window of its initiator. TurnAway returns nil if the packet is to be refused nevertheless: the other
// packets of a message of several are answered so only while there is a place to remember the message.
func (s *SES) TurnAway() *Result {
	r := &s.req
	if r.Flags&single != single {
		u := s.user(s.src.Peer)
		pu := s.peers.at(u)
		room := int(pu.dead) < s.cfg.OpenPerPeer && s.dead < maxDead && s.in.live() < s.maxState()
		s.putUser(u, pu)
		if !room {
			return nil
		}
		s.entomb(s.src, r, wire.RCNoMatch, r.ReqLen, s.turned)
	}
	s.Stats.Refused--
	return s.rejected(wire.RCNoMatch)
}

// bad drops a packet that cannot be answered.
func (s *SES) bad(why Reason) *Result {
	s.Stats.Bad++
	s.res = Result{Bad: true, Reason: why}
	return &s.res
}
