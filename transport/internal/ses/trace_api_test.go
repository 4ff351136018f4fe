package ses_test

import (
	"strings"
	"time"

	part "github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file is what the traces know of package ses; no other file of theirs imports it. If the
// package gets another API, this file is changed, and the traces stay.

// A party is one endpoint of a trace.
type party struct {
	ses  *ses.SES
	room bool // for the event of one more message in a multi-receive buffer
}

type (
	handle = ses.Handle
	piece  = part.Piece
)

func newParty(c *partyConfig) *party {
	p := &party{room: true}
	p.ses = ses.New(ses.Config{
		EndpointConfig: ses.EndpointConfig{
			Identity: ses.Identity{JobID: c.job, PIDonFEP: c.pid, RI: c.ri, Initiator: c.initiator}, MaxSends: c.sends, MaxRecvs: c.recvs,
			Admit: func() bool { return p.room },
		},
		UnexpectedBytes: c.unexpectedBytes, UnexpectedMsgs: c.unexpectedMsgs, UnexpectedShare: c.share, OpenPerPeer: c.open,
		MaxMessage: c.maxMessage, RefuseTooLong: c.refuseTooLong, RNRTimeout: c.rnr, IdleTimeout: c.idle,
		Seed: 1,
	})
	return p
}

var levels = map[string]ses.Level{"": 0, "inject": ses.LevelInject, "transmit": ses.LevelTransmit, "delivery": ses.LevelDelivery}

var looks = map[string]ses.Look{"": ses.LookNone, "peek": ses.LookPeek, "peek and claim": ses.LookPeekClaim, "peek and discard": ses.LookPeekDiscard,
	"claim": ses.LookClaim, "claim and discard": ses.LookClaimDiscard}

// causes names the ways in which an operation ends, in the words of the traces.
var causes = map[ses.Cause]string{
	ses.OK: "ok", ses.Rejected: "rejected", ses.Truncated: "truncated", ses.Cancelled: "cancelled", ses.TimedOut: "timed out",
	ses.Unreachable: "unreachable", ses.Aborted: "aborted", ses.PeerError: "peer error", ses.NoResource: "no resource",
	ses.NotReady: "not ready", ses.TooBig: "too big", ses.NoKey: "no key", ses.Closed: "closed", ses.NoMessage: "no message",
}

func causeOf(words string) (ses.Cause, bool) {
	for c, w := range causes {
		if w == words {
			return c, true
		}
	}
	return 0, false
}

func errorWords(err error) string {
	return map[error]string{ses.ErrFull: "no room for another operation", ses.ErrTooLong: "message too long", ses.ErrClosed: "endpoint is closed",
		ses.ErrKey: "the key has a bit that it must not have", ses.ErrKeyInUse: "the key is in use", ses.ErrMemory: "no such memory"}[err]
}

// op makes the operation that a script asks for. Its context is o.
func (o *operation) op() *ses.Op {
	kind := ses.EvSend
	if o.recv {
		kind = ses.EvRecv
	}
	switch {
	case o.tagged:
		kind++
	case o.rma:
		kind = ses.EvWrite
	}
	return &ses.Op{
		Kind: kind, Peer: ses.PeerID(o.peer), PIDonFEP: o.pid, RI: o.ri, JobID: o.job, Absolute: o.absolute, SrcInitiator: o.initiator,
		Buf: o.buf, Iov: o.iov, Key: o.key, RemoteAddr: o.addr, Tag: o.tag, Ignore: o.ignore, Data: o.data, HasData: o.hasData, Inject: o.inject, Ordered: o.ordered,
		Fence: o.fence, Visible: o.visible, Multi: o.multi, MinFree: o.minFree, Look: looks[o.look], Silent: o.silent,
		Level: levels[o.level], Context: o,
	}
}

func (p *party) post(now time.Duration, o *operation) (handle, error) {
	if o.recv {
		return 0, p.ses.Recv(now, o.op())
	}
	op := o.op()
	return p.ses.Send(now, op, op.Bytes())
}

// fenced reports whether a send that was just accepted must wait until unfenced returns it.
func (p *party) fenced(o *operation) bool {
	return (o.fence || p.ses.Fenced(0, o.peer)) && p.ses.Fence(o.handle, o.fence)
}

// held reports whether a message of which no packet can leave is kept until resend returns it.
func (p *party) held(h handle) bool {
	_, ok := p.ses.Hold(h)
	return ok
}

func (p *party) unfenced() (handle, bool) { return p.ses.Unfenced() }
func (p *party) resend() (handle, bool)   { return p.ses.Resend() }

// leave makes the next packet of a message.
func (p *party) leave(h handle, mtu int) (piece, []byte, bool) {
	pc, ok := p.ses.Peek(h, mtu)
	if !ok {
		return pc, nil, false
	}
	return pc, p.ses.AppendPiece(nil, pc), true
}

func (p *party) again(h handle, pc piece) []byte { return p.ses.Append(nil, pc) }

// request executes a request packet. why tells what is wrong if it cannot be answered.
func (p *party) request(s *source, next wire.NextHdr, b []byte) (rsp wire.Rsp, guaranteed bool, nack wire.NackCode, why string) {
	r := p.ses.Request(&ses.Source{Peer: s.peer, PDC: s.pdc, Later: s.later, Behind: s.behind, Unproven: s.unproven, Now: s.now}, next, b)
	if r.Bad {
		why = map[ses.Reason]string{ses.ReasonShort: "shorter than its header", ses.ReasonNextHdr: "not a request"}[r.Reason]
	}
	return r.Rsp, r.Gtd, r.Nack, why
}

func (p *party) answered(h handle, rsp *wire.Rsp)           { p.ses.Answered(h, rsp) }
func (p *party) response(peer uint32, rsp *wire.Rsp) bool   { return p.ses.Response(peer, rsp) }
func (p *party) failed(h handle, c string, n wire.NackCode) { p.ses.Failed(h, causeNamed(c), n) }
func (p *party) broken(h handle, c string, n wire.NackCode) { p.ses.Break(h, causeNamed(c), n) }
func (p *party) abandon(h handle, c string)                 { p.ses.Abandon(h, causeNamed(c)) }
func (p *party) peerGone(peer uint32, c string)             { p.ses.PeerGone(peer, causeNamed(c)) }
func (p *party) pdcGone(pdc uint32, c string)               { p.ses.PDCGone(pdc, causeNamed(c)) }
func (p *party) proven(peer uint32)                         { p.ses.Proven(peer) }
func (p *party) closeAll()                                  { p.ses.CancelAll() }
func (p *party) end()                                       { p.ses.End() }
func (p *party) advance(now time.Duration)                  { p.ses.Advance(now) }
func (p *party) giveUp(h handle, pc piece, n wire.NackCode) (piece, bool) {
	return p.ses.GiveUp(pc, n)
}

func causeNamed(words string) ses.Cause {
	c, ok := causeOf(words)
	if !ok {
		panic("a trace names the cause " + words)
	}
	return c
}

func (p *party) cancel(o *operation) bool {
	if o.recv {
		return p.ses.CancelRecv(0, o)
	}
	_, ok := p.ses.CancelSend(0, o)
	return ok
}

// ended returns the next event.
func (p *party) ended() *ending {
	e := p.ses.Event()
	if e == nil {
		return nil
	}
	o, _ := e.Context.(*operation)
	region, _ := e.Context.(string)
	return &ending{
		op: o, remote: e.Kind == ses.EvRemoteWrite, region: region, recv: e.Kind.Recv(), tagged: e.Kind.Tagged(), cause: causes[e.Cause], rc: e.RC, nack: e.Nack, unknown: e.Unknown,
		multi: e.Multi, released: e.Released, buf: e.Buf, n: e.Len, over: int(e.OverLen), tag: e.Tag, data: e.Data, hasData: e.HasData,
		peer: uint32(e.Peer), initiator: e.Initiator,
	}
}

// A region is memory that an endpoint registered.
type region = ses.Region

// register makes memory accessible. Its name is the context.
func (p *party) register(m *memory) (*region, error) {
	cfg := ses.RegionConfig{Key: m.key, Buf: m.buf, Iov: m.iov, Base: m.base, JobID: m.job, Endpoint: ses.AllEndpoints, Counts: m.counts,
		SingleUse: m.once, Context: m.name}
	if strings.Contains(m.access, "r") {
		cfg.Access |= ses.RemoteRead
	}
	if strings.Contains(m.access, "w") {
		cfg.Access |= ses.RemoteWrite
	}
	return p.ses.Register(cfg)
}

func (p *party) deregister(r *region) { p.ses.Deregister(r) }

var stages = map[ses.Stage]string{ses.StageSend: "packets are left to send", ses.StageAnswers: "waits for responses",
	ses.StageAgain: "waits to go again", ses.StageResult: "waits for its result", ses.StageFenced: "waits behind a fence"}

// pending lists the operations that have not ended.
func (p *party) pending() (sends []pendingSend, recvs []pendingRecv, unexpected [2][]early, inProgress int) {
	p.ses.EachSend(ses.AllEndpoints, func(v *ses.SendView) {
		sends = append(sends, pendingSend{v.Context.(*operation), stages[v.Stage]})
	})
	p.ses.EachRecv(ses.AllEndpoints, func(v *ses.RecvView) {
		recvs = append(recvs, pendingRecv{v.Context.(*operation), v.Message, v.Got, v.Length, v.Starved})
	})
	for k := range unexpected {
		_, l := p.ses.UnexpectedOf(0, k == 1, 1000)
		for _, e := range l {
			unexpected[k] = append(unexpected[k], early{e.Tag, e.Peer, e.Length})
		}
	}
	return sends, recvs, unexpected, p.ses.InProgress()
}

// counts are the counters of what shows nowhere else.
func (p *party) counts() []count {
	s := &p.ses.Stats
	return []count{
		{"requests too short to answer", s.Bad}, {"responses that name another message", s.RspForeign},
		{"responses with a reserved opcode or list", s.RspUnknown}, {"late calls for messages that had ended", s.Stale},
		{"failures after success was reported", s.LateErrors},
	}
}
