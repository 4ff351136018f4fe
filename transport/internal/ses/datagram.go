package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file has messages that are one packet of no PDC (UUD, UE 3.5.7.4). Nothing answers them: one
// that is lost, or that no receive waits for, is gone (R-MSG-16).

// AppendDatagram appends the packet of a message, header and payload, and ends the message: it is with
// the network (S-UUD-01, S-CPL-06). It returns false if the message has ended before.
func (s *SES) AppendDatagram(b []byte, h Handle) ([]byte, bool) {
	_, m := s.lookup(h)
	if m == nil || m.phase != phaseData {
		return b, false
	}
	r := m.hdr
	r.Opcode, r.MsgID, r.Flags = wire.OpDatagramSend, 0, m.wireFlags|single
	b = r.Append(b)
	if m.iov != nil {
		b = gather(b, m.iov, 0, int(r.ReqLen))
	} else {
		b = append(b, m.buf...)
	}
	m.open++
	m.phase, m.ordered = phaseSent, false // nothing keeps datagrams in order
	s.Answered(h, nil)
	s.Stats.byUUD++
	return b, true
}

// Datagram executes a packet of UUD. b is the header and the payload, which Datagram borrows. A packet
// that is not for an endpoint of this side counts as Bad, one that no receive waits for as Unwanted.
func (s *SES) Datagram(now time.Duration, peer uint32, b []byte) {
	r := &s.req
	n, err := r.Parse(b)
	if err != nil || r.Flags&(single|wire.SESIE) != single || uint64(len(b)-n) < uint64(r.ReqLen) || r.Gen != 0 ||
		r.Opcode != wire.OpDatagramSend && r.Opcode != wire.OpSend {
		s.Stats.Bad++
		return
	}
	if !s.to.is(r) || s.to.closed {
		e := s.names.whole[name{r.JobID, r.PIDonFEP, r.RI}]
		if e == nil || e.closed {
			s.Stats.Bad++
			return
		}
		s.to = e
	}
	s.src = Source{Peer: peer, Now: now}
	_, rv := s.match(&s.to.spaces[0], 0, peer, r.Initiator)
	if rv == nil {
		s.Stats.Unwanted++
		return
	}
	s.receiveWhole(rv, r, 0, b[n:][:r.ReqLen])
}
