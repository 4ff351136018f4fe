package ses

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file shows what operations wait for. It changes nothing.

// A Stage says how far a send has come.
type Stage uint8

// The stages.
const (
	StageSend    Stage = iota + 1 // pieces are left to hand out
	StageAnswers                  // all were handed out, some are not answered
	StageAgain                    // the target refused it for now; it will be sent again
	StageResult                   // all were answered; the promised result is missing
	StageFenced                   // it waits for earlier sends, because of a fence
	StageLent                     // its target has its announcement, and is to read it
)

// A SendView is one send that has not ended.
type SendView struct {
	Handle   Handle
	Endpoint EndpointID
	Context  any
	Kind     Kind
	Ordered  bool
	Tag      uint64
	Peer     uint32
	Posted   time.Duration
	Length   uint32
	Taken    uint32 // bytes
	// Got is the number of bytes that came back for a read.
	Got   uint32
	Stage Stage
	// RC is the answer of the target that refused it, Tries how often it was sent again,
	// RetryAt when it will be sent next (0: not known yet).
	RC      wire.RC
	Tries   int
	RetryAt time.Duration
	Since   time.Duration // StageAgain: when the target became not ready
}

// EachSend calls fn for every send, of an endpoint or of AllEndpoints, that has not ended and whose success was not
// reported. v is valid only during the call.
func (s *SES) EachSend(ep EndpointID, fn func(v *SendView)) {
	fenced := map[Handle]bool{}
	note := func(f *fence) {
		for _, h := range f.behind {
			fenced[h] = true
		}
	}
	var v SendView
	if ep == AllEndpoints {
		s.eachFence(note)
		for i := range s.sends.used {
			if s.sends.at(i).view(&v, fenced) {
				fn(&v)
			}
		}
		return
	}
	e := s.endpoint(ep)
	if e == nil {
		return
	}
	for i := range e.fences {
		note(&e.fences[i])
	}
	for m := s.firstSend(e); m != nil; m = s.nextSend(m) {
		if m.view(&v, fenced) {
			fn(&v)
		}
	}
}

// View returns what EachSend would say of a send, which is behind no fence. It returns false if EachSend would say nothing.
func (s *SES) View(h Handle) (v SendView, ok bool) {
	if _, m := s.lookup(h); m != nil {
		ok = m.view(&v, nil)
	}
	return v, ok
}

// Of reports whether a send that has not ended is one of an endpoint.
func (s *SES) Of(h Handle, ep EndpointID) bool {
	_, m := s.lookup(h)
	return m != nil && m.ep.id == ep
}

// view sets v, and returns false if there is nothing to say. fenced are the sends behind fences.
func (m *send) view(v *SendView, fenced map[Handle]bool) bool {
	if m.phase == phaseFree || m.told || m.kind == evNotice {
		return false
	}
	*v = SendView{
		Handle: handleOf(m.self, m), Endpoint: m.ep.id, Context: m.context, Kind: m.kind, Ordered: m.ordered, Tag: m.hdr.Match, Peer: m.peer, Posted: m.posted,
		Length: m.hdr.ReqLen, Taken: m.next, RC: m.rc, Tries: int(m.tries), RetryAt: m.retryAt, Since: m.notReady,
	}
	if m.kind == EvRead && m.read != nil {
		v.Got = m.read.got
	}
	switch m.phase {
	case phaseData, phaseError, phaseRecut, phaseAsk:
		if v.Stage = StageSend; fenced[v.Handle] {
			v.Stage = StageFenced
		}
	case phaseSent:
		if v.Stage = StageAnswers; m.meetsNone() {
			v.Stage = StageResult
		}
	case phaseWait, phaseReady:
		v.Stage, v.Taken = StageAgain, 0
	case phaseResult, phaseDeferred:
		v.Stage = StageResult
	case phaseLent:
		v.Stage, v.Taken = StageLent, uint32(min(m.loan.handed, m.loan.size))
	}
	return true
}

// A RecvView is one receive that has not ended.
type RecvView struct {
	Endpoint  EndpointID
	Context   any
	Tagged    bool
	Tag       uint64
	Ignore    uint64
	HasSource bool
	Peer      uint32 // the sender of the message, or else the only source accepted
	Posted    time.Duration
	Size      uint64
	// Message reports that a message has matched. Got of its Length bytes came by PDC, the
	// first at Began.
	Message     bool
	Got, Length uint32
	Began       time.Duration
	PDC         uint32
	// Starved reports that messages wait for room for an event.
	Starved bool
}

// EachRecv calls fn for every receive, of an endpoint or of AllEndpoints, that has not ended. v is valid only during the call.
func (s *SES) EachRecv(ep EndpointID, fn func(v *RecvView)) {
	bound := map[int32]*inmsg{}
	note := func(_ int32, m *inmsg) {
		if m.state == inBound || m.state == inOffered {
			if rv := s.more(m).recv; rv != none && bound[rv] == nil {
				bound[rv] = m
			}
		}
	}
	if ep != AllEndpoints {
		e := s.endpoint(ep)
		if e == nil {
			return
		}
		s.eachIntake(e, note)
		for r := s.firstRecv(e); r != nil; r = s.nextRecv(r) {
			s.viewRecv(r, bound, fn)
		}
		return
	}
	for i := range s.in.used {
		note(i, s.in.at(i))
	}
	for i := range s.recvs.used {
		s.viewRecv(s.recvs.at(i), bound, fn)
	}
}

// viewRecv calls fn for a receive, if it has not ended. bound are the messages of receives.
func (s *SES) viewRecv(r *recv, bound map[int32]*inmsg, fn func(v *RecvView)) {
	if !r.live {
		return
	}
	v := RecvView{
		Endpoint: r.ep.id, Context: r.context, Tagged: r.tagged, Tag: r.tag, Ignore: r.ignore, HasSource: r.peer != 0, Peer: r.peer, Posted: r.posted, Size: r.size(),
		Starved: r.space().starved && r.class != boundClass,
	}
	if m := bound[r.self]; m != nil {
		v.Message, v.Got, v.Length, v.Began, v.PDC, v.Peer = true, m.got, m.length, s.more(m).began, m.pdc, m.peer
		if m.state == inOffered && m.isPull() {
			v.Got = s.from(m)
		}
	}
	fn(&v)
}

// An Early message is one that no receive has matched.
type Early struct {
	Tag    uint64
	Peer   uint32
	Length uint32
}

// UnexpectedOf returns the number of unexpected messages of an endpoint, either tagged or
// untagged ones, and the oldest of them, at most most.
func (s *SES) UnexpectedOf(id EndpointID, tagged bool, most int) (n int, oldest []Early) {
	sp := s.space(id, tagged)
	for i := sp.order.first(0); i != none && len(oldest) < most; i = sp.order.next(i) {
		m := s.in.at(i)
		oldest = append(oldest, Early{m.tag, m.peer, m.length})
	}
	return sp.n, oldest
}
