package ses

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Look is the way in which a tagged receive looks at unexpected messages (fi_tagged(3):
// FI_PEEK, FI_CLAIM, FI_DISCARD).
type Look uint8

// The ways to look. Those of LookPeek find the oldest unexpected message that the receive
// accepts, and report it without its bytes, or NoMessage if there is none.
const (
	LookNone         Look = iota
	LookPeek              // leave it where it is
	LookPeekClaim         // reserve it for a LookClaim with the same context
	LookPeekDiscard       // drop it
	LookClaim             // receive the message that LookPeekClaim reserved
	LookClaimDiscard      // drop the message that LookPeekClaim reserved
)

// A claim is an unexpected message that a peek reserved. msg is none if the message has since
// ended in error, with that cause and rc.
type claim struct {
	ctx   any
	msg   int32
	cause Cause
	rc    wire.RC
}

// look executes a receive with a Look.
func (s *SES) look(now time.Duration, e *endpoint, op *Op) error {
	if op.Look == LookClaim || op.Look == LookClaimDiscard {
		s.claim(now, e, op)
		return nil
	}
	if op.Look == LookPeekClaim && len(e.claims) >= s.cfg.UnexpectedMsgs {
		return ErrFull
	}
	r := recv{tag: op.Tag, ignore: op.Ignore, peer: uint32(op.Peer), init: op.SrcInitiator, tagged: op.Kind.Tagged()}
	if !r.tagged {
		r.tag, r.ignore = 0, ^uint64(0)
	}
	i := none
	if sp := s.space(e.id, r.tagged); sp.n > 0 {
		i = s.findUnexpected(sp, &r)
	}
	if i == none || !s.in.at(i).som {
		// Only the first packet of the message tells whether it has remote CQ data.
		s.lookEvent(op).Cause = NoMessage
		return nil
	}
	m := s.in.at(i)
	s.found(op, m)
	switch op.Look {
	case LookPeekClaim:
		s.unlist(i, m)
		m.claimed = true
		e.claims = append(e.claims, claim{ctx: op.Context, msg: i})
	case LookPeekDiscard:
		s.discard(i, m)
	}
	return nil
}

// claim executes a receive of a reserved message.
func (s *SES) claim(now time.Duration, e *endpoint, op *Op) {
	k := slices.IndexFunc(e.claims, func(c claim) bool { return same(c.ctx, op.Context) })
	if k < 0 {
		s.lookEvent(op).Cause = NoMessage
		return
	}
	c := e.claims[k]
	e.claims = slices.Delete(e.claims, k, k+1)
	switch {
	case c.msg == none:
		ev := s.lookEvent(op)
		ev.Cause, ev.RC = c.cause, c.rc
		s.Stats.RecvErrors++
	case op.Look == LookClaimDiscard:
		m := s.in.at(c.msg)
		s.found(op, m)
		s.discard(c.msg, m)
	default:
		r := e.idleRecv
		if r == nil {
			r = s.freshRecv(e)
		}
		e.recvs++
		e.idleRecv, r.next = r.next, nil
		i := r.self
		s.seq++
		r.tag, r.ignore, r.seq, r.posted, r.peer, r.init = op.Tag, op.Ignore, s.seq, now, uint32(op.Peer), op.SrcInitiator
		r.live, r.tagged, r.simple, r.fixed, r.class = true, op.Kind.Tagged(), false, true, boundClass
		r.buf, r.context, r.flags = op.Buf, op.Context, op.Flags
		if len(op.Iov) > 0 {
			r.buf = nil
			r.iov, r.iovLen = append(s.iov(), op.Iov...), uint64(total(op.Iov))
		}
		s.take(i, r, c.msg)
	}
}

// lookEvent makes the event of a receive with a Look that has no message.
func (s *SES) lookEvent(op *Op) *Event {
	e := s.events.add()
	e.init(op.Endpoint, op.Kind, op.Context, op.Flags, nil, 0, 0, NoPeer, 0)
	return e
}

// found makes the event of a receive with a Look that found a message.
func (s *SES) found(op *Op, m *inmsg) {
	e := s.events.add()
	n := int(m.length)
	if m.opcode.HasAtomic() {
		n = int(m.token)
	}
	e.init(op.Endpoint, op.Kind, op.Context, op.Flags, nil, n, m.tag, PeerID(m.peer), m.init)
	e.data(m.hasData, m.data)
}

// discard drops an unexpected message. Parts of it that still come are answered as if a receive
// had matched it.
func (s *SES) discard(i int32, m *inmsg) {
	if m.state == inDeferred {
		s.reserveFor(none, i, m, 0)
		return
	}
	complete := m.state == inUnexpected
	s.uncharge(i, m)
	if complete {
		s.freeIn(i, m)
		return
	}
	m.state = inGone
}

// loseClaim notes that a reserved message ended in error.
func (s *SES) loseClaim(i int32, c Cause, rc wire.RC) {
	claims := s.endpoints[s.in.at(i).ep].claims
	for k := range claims {
		if claims[k].msg == i {
			claims[k].msg, claims[k].cause, claims[k].rc = none, c, rc
		}
	}
}
