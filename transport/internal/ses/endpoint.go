package ses

import (
	"errors"
	"math/bits"

	"github.com/uetkit/uetkit/transport/wire"
)

// A FEP has one SES with one or more endpoints. A request names the endpoint it is for.

// An EndpointID is the number of an endpoint in its SES. New opens endpoint 0.
type EndpointID uint16

// An Identity is the name of an endpoint. A request names its target by JobID (24 bit),
// PIDonFEP (12 bit) and resource index (12 bit), which no two endpoints of a FEP share.
// Initiator names the endpoint as the source of a message.
type Identity struct {
	JobID     uint32
	PIDonFEP  uint16
	RI        uint16
	Initiator uint32
}

// EndpointConfig describes one endpoint. Zero fields have the stated defaults, except those of
// the Identity.
type EndpointConfig struct {
	Identity
	// Atomics is what tagged atomic operations of peers may do with the buffers of posted receives: as in
	// a region, RemoteWrite and RemoteAtomic, and RemoteRead to fetch. Without RemoteAtomic they are
	// answered UNSUPPORTED_OP.
	Atomics Access
	// MaxSends bounds the sends that have not ended (default 4096; 65,000 for all endpoints
	// together, because of the 16-bit message id), MaxRecvs the receives (default 8192).
	// Operations beyond it fail with ErrFull.
	MaxSends int
	MaxRecvs int
	// Admit reports whether there is room for one Event in addition to those of the posted
	// operations. It is called for each message for a multi-receive buffer; while it returns
	// false, such messages wait as unexpected ones. nil always admits. It must not call the
	// SES.
	Admit func() bool
}

func (c *EndpointConfig) fill() {
	if c.MaxSends <= 0 {
		c.MaxSends = 4096
	}
	if c.MaxRecvs <= 0 {
		c.MaxRecvs = 8192
	}
	c.MaxSends = min(c.MaxSends, maxSends)
}

// maxSends bounds the sends of all endpoints: message ids have 16 bits.
const maxSends = 65000

// maxEndpoints is how many endpoints a SES may have at a time. Arbitrary: a PIDonFEP has 12 bits, and 10,000 endpoints of a
// few jobs are to have room.
const maxEndpoints = 1 << 14

// Errors of Open.
var (
	ErrName      = errors.New("ses: JobID, PIDonFEP or resource index out of range")
	ErrInUse     = errors.New("ses: another endpoint has this JobID, PIDonFEP and resource index")
	ErrEndpoints = errors.New("ses: too many endpoints")
)

// An endpoint is what requests name: its receives, and what it has outstanding.
type endpoint struct {
	EndpointConfig
	id     EndpointID
	closed bool // LeaveEndpoint or CloseEndpoint was called
	gone   bool // CloseEndpoint was called
	sends  int  // not ended
	recvs  int  // not ended

	// mostSends and mostRecvs are MaxSends and MaxRecvs, and 0 when none may be posted any more.
	mostSends, mostRecvs int

	spaces [2]space
	claims []claim // unexpected messages that a peek reserved

	halts map[stream]Cause // streams of which a message failed, with Config.Halt

	// Lists of free sends and receives, the last one freed first.
	idleSend *send
	idleRecv *recv
	// All its places of SES.sends and SES.recvs, the free ones too.
	ownSends, ownRecvs roll

	reach  reach   // the regions that are reached through this endpoint alone
	fences []fence // of its sends
}

// A name is the part of an Identity that a request names. anyPart stands for a part that does
// not count.
type name struct {
	job     uint32
	pid, ri uint16
}

const anyPart = 1<<16 - 1 // longer than any PIDonFEP or resource index

// names maps names to endpoints, and counts the endpoints of each job and PIDonFEP (S-ERR-54).
type names struct {
	whole map[name]*endpoint
	parts map[name]int // endpoints of a job, and of a PIDonFEP of it
}

func (n *names) add(e *endpoint, by int) {
	if n.whole == nil {
		n.whole, n.parts = map[name]*endpoint{}, map[name]int{}
	}
	if by > 0 {
		n.whole[e.name()] = e
	} else {
		delete(n.whole, e.name())
	}
	for _, part := range [...]name{{e.JobID, anyPart, anyPart}, {e.JobID, e.PIDonFEP, anyPart}} {
		if n.parts[part] += by; n.parts[part] == 0 {
			delete(n.parts, part)
		}
	}
}

func (e *endpoint) name() name { return name{e.JobID, e.PIDonFEP, e.RI} }

// is reports whether a request names the endpoint.
func (e *endpoint) is(r *wire.ReqStd) bool {
	return r.JobID == e.JobID && r.PIDonFEP == e.PIDonFEP && r.RI == e.RI
}

// Open opens an endpoint. It fails with ErrName, ErrInUse, ErrEndpoints or ErrClosed.
func (s *SES) Open(cfg EndpointConfig) (EndpointID, error) {
	cfg.fill()
	switch {
	case s.closed || s.ended:
		return 0, ErrClosed
	case cfg.JobID > 0xffffff || cfg.PIDonFEP > 0xfff || cfg.RI > 0xfff:
		return 0, ErrName
	case s.names.whole[name{cfg.JobID, cfg.PIDonFEP, cfg.RI}] != nil:
		return 0, ErrInUse
	}
	id, old := s.number()
	if old == nil && int(id) == maxEndpoints {
		return 0, ErrEndpoints
	}
	e := &endpoint{EndpointConfig: cfg, id: id, mostSends: cfg.MaxSends, mostRecvs: cfg.MaxRecvs}
	share := func(n int) int { return min(max(1<<bits.Len(uint(n/2)), 64), 1<<15) }
	for i := range e.spaces {
		s.initSpace(&e.spaces[i], e.id, i == 1, share(cfg.MaxRecvs), share(s.cfg.UnexpectedMsgs))
	}
	if old != nil {
		s.maxRecvs -= old.MaxRecvs
		s.inherit(e, old)
		s.endpoints[id] = e
	} else {
		s.endpoints = append(s.endpoints, e)
	}
	s.maxRecvs += cfg.MaxRecvs
	s.lowOpen = min(s.lowOpen, int(id))
	s.names.add(e, 1)
	return e.id, nil
}

// mostUsedUp is how many closed endpoints Open looks at that have something under way, before it takes a new
// number. Arbitrary.
const mostUsedUp = 8

// number returns the number of an endpoint that opens, and the endpoint that had it, nil if none did. Those that
// closed first come first. While there are new numbers it looks at a few only, and those that are not done go
// behind the others: so a thousand that open do not look at a thousand that closed.
func (s *SES) number() (EndpointID, *endpoint) {
	for n := range len(s.gone) {
		s.walked++
		id := s.gone[0]
		if old := s.endpoints[id]; old.sends == 0 && old.recvs == 0 {
			s.gone = s.gone[1:]
			return id, old
		}
		if n == mostUsedUp && len(s.endpoints) < maxEndpoints {
			break
		}
		s.gone = append(s.gone[1:], id)
	}
	return EndpointID(len(s.endpoints)), nil
}

// inherit takes over the places of a closed endpoint. All are free.
func (s *SES) inherit(e, old *endpoint) {
	e.idleSend, e.idleRecv, e.ownSends, e.ownRecvs = old.idleSend, old.idleRecv, old.ownSends, old.ownRecvs
	for m := s.firstSend(e); m != nil; m = s.nextSend(m) {
		m.ep, m.hdr.Initiator = e, e.Initiator
	}
	for r := s.firstRecv(e); r != nil; r = s.nextRecv(r) {
		r.ep = e
	}
}

// Endpoints returns the number of open endpoints.
func (s *SES) Endpoints() int { return len(s.names.whole) }

// Name returns the Identity of an endpoint.
func (s *SES) Name(id EndpointID) Identity {
	if e := s.endpoint(id); e != nil {
		return e.Identity
	}
	return Identity{}
}

// PostedBy is the number of sends and of receives of an endpoint that have not ended.
func (s *SES) PostedBy(id EndpointID) (sends, recvs int) {
	if e := s.endpoint(id); e != nil {
		return e.sends, e.recvs
	}
	return 0, 0
}

// endpoint returns the endpoint with a number, nil if there never was one.
func (s *SES) endpoint(id EndpointID) *endpoint {
	if int(id) >= len(s.endpoints) {
		return nil
	}
	return s.endpoints[id]
}

// oneOpen returns the endpoint with the lowest number of those that have not begun to close, nil if there is none.
func (s *SES) oneOpen() *endpoint {
	for ; s.lowOpen < len(s.endpoints); s.lowOpen++ {
		if e := s.endpoints[s.lowOpen]; !e.closed {
			return e
		}
		s.walked++
	}
	return nil
}

// space returns the space of an endpoint for tagged or untagged messages.
func (s *SES) space(id EndpointID, tagged bool) *space {
	sp := &s.endpoints[id].spaces
	if tagged {
		return &sp[1]
	}
	return &sp[0]
}

// LeaveEndpoint is the first half of CloseEndpoint: it closes one endpoint for what comes. Its receives end with a
// Cancelled event, and the messages that came for it are dropped. Later requests for it are answered
// as if it had never existed, later operations fail with ErrClosed. Sends go on.
func (s *SES) LeaveEndpoint(id EndpointID) {
	if e := s.endpoint(id); e != nil && !e.closed {
		s.bar(e)
		s.clearOut(e)
	}
}

// bar lets nothing name the endpoint any more.
func (s *SES) bar(e *endpoint) {
	e.close()
	s.closeReach(&e.reach)
	s.names.add(e, -1)
	s.turnAway(e)
}

// clearOut ends the receives of an endpoint, and drops what came for it.
func (s *SES) clearOut(e *endpoint) {
	s.cancelInbound(e)
	s.cancelRecvs(e)
	e.spaces[0].starved, e.spaces[1].starved = false, false
}

// CloseEndpoint closes one endpoint, as LeaveEndpoint does, and its sends end with a Cancelled event,
// too. One of which a part has left ends when the target was told (MSG_ERROR) or the PDC is gone, if
// ReleaseEndpoint does not end it before. CloseEndpoint returns how many sends have ended of which nothing had left.
func (s *SES) CloseEndpoint(id EndpointID) (ended int) {
	e := s.endpoint(id)
	if e == nil || e.gone || s.closed {
		return 0
	}
	e.gone = true
	s.gone = append(s.gone, id)
	left := e.closed
	if !left {
		s.bar(e)
	}
	for m := s.firstSend(e); m != nil; m = s.nextSend(m) {
		if m.phase == phaseFree {
			continue
		}
		unbegun := m.unbegun()
		if s.withdraw(m); unbegun && m.phase == phaseFree {
			ended++
		}
	}
	s.unfence(e)
	if !left {
		s.clearOut(e)
	}
	return ended
}

// ReleaseEndpoint makes the events of all sends that have not ended of an endpoint that CloseEndpoint
// closed. From then on no byte of its buffers is read or written: where a packet of a send may have to be
// sent again, that is done from a copy of what has left. Others use its PDC, so that cannot end.
func (s *SES) ReleaseEndpoint(id EndpointID) {
	e := s.endpoint(id)
	if e == nil || !e.gone {
		return
	}
	for m := s.firstSend(e); m != nil; m = s.nextSend(m) {
		if m.phase != phaseFree && m.kind != evNotice && !m.told {
			s.takeOver(m)
		}
	}
}

// takeOver makes the event of a send that was withdrawn and has packets under way, and takes its bytes from
// the user. Read data that still comes is dropped, as the send has failed.
func (s *SES) takeOver(m *send) {
	s.failed(m)
	m.told, m.odd, m.context = true, true, nil
	if m.copied {
		return
	}
	var kept []byte
	if m.read == nil && m.loan == nil {
		kept = make([]byte, 0, m.next)
		if m.iov != nil {
			kept = gather(kept, m.iov, 0, int(m.next))
		} else {
			kept = append(kept, m.buf[:m.next]...)
		}
	}
	if m.iov != nil {
		s.putIov(m.iov)
		m.iov = nil
	}
	m.buf, m.scattered = kept, false
}

func (e *endpoint) close() { e.closed, e.mostSends, e.mostRecvs = true, 0, 0 }

// withdraw cancels a send. If a part of it has left, the send goes on as one that was given up.
// If its success was reported, it goes on unchanged.
func (s *SES) withdraw(m *send) {
	switch {
	case m.told || m.kind == evNotice && m.hdr.Opcode == wire.OpMsgError:
	case m.unbegun():
		s.unwait(m)
		s.tellCancelled(m)
		m.cause, m.rc, m.unexecuted = Cancelled, 0, true
		s.endSend(m)
	case m.phase == phaseLent:
		s.unwait(m)
		s.recall(m)
		m.cause = Cancelled
		s.endSend(m)
	case m.phase == phaseResult || m.phase == phaseSent && m.open == 0:
		m.cause = Cancelled
		s.endSend(m)
	default:
		if m.odd = true; m.loan != nil {
			s.callIn(m.loan)
		}
		if m.cause == OK {
			m.cause = Cancelled
		}
		switch m.phase {
		case phaseData, phaseAsk:
			m.phase, m.unexecuted = phaseError, true
		case phaseRecut:
			s.dropRecut(m)
			m.phase = phaseError
		}
	}
}
