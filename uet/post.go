package uet

import (
	"reflect"
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// What all posting calls have in common
//
// They return nil when the operation is accepted. Its completion follows, unless the
// operation writes none. Otherwise nothing was posted, and the error is
//	fi.EAGAIN       no room now: read the completion queues and try again (R-EP-20)
//	fi.EMSGSIZE     longer than Info.Ep.MaxMsgSize, or than Info.Tx.InjectSize for an
//	                injected message (R-MSG-02, R-MSG-05)
//	fi.EINVAL       the address is not in the AV (R-AV-19), more vector
//	                elements than IovLimit (R-MSG-17), or bits of a tag are
//	                ignored that the tag format does not allow (R-TAG-05)
//	fi.EOPBADSTATE  the endpoint is not enabled (R-EP-01)
//	fi.EBADF        the endpoint is closed
//	fi.EOPNOTSUPP   the endpoint lacks the capability (R-MSG-19), or the
//	                completion level is not offered (R-CMPL-12, R-CMPL-13)
//	fi.EBADFLAGS    a flag the call does not know
//
// buf, or the elements of iov, belong to the provider until the completion. Those of an
// injected message are the caller's again when the call returns. The slice iov itself is
// always the caller's again when the call returns. An empty message is legal; buf and iov
// may be nil. ctx comes back in the completion.

// Msg is the argument of SendMsg and RecvMsg (struct fi_msg). The call borrows
// it.
type Msg struct {
	Iov     [][]byte
	Addr    fi.Addr // destination, or source of a directed receive
	Context any
	Data    uint64 // remote CQ data, with fi.RemoteCQData
}

// TMsg is the argument of TSendMsg and TRecvMsg (struct fi_msg_tagged). The
// call borrows it.
type TMsg struct {
	Iov     [][]byte
	Addr    fi.Addr
	Tag     uint64
	Ignore  uint64 // bits of the tag that a receive does not look at
	Context any
	Data    uint64
}

// Send posts an untagged message (fi_send).
func (p *posts) Send(buf []byte, dest fi.Addr, ctx any) error {
	return p.sendShort(transport.OpSend, buf, dest, 0, ctx)
}

// Sendv posts the bytes of iov as one untagged message (fi_sendv).
func (p *posts) Sendv(iov [][]byte, dest fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpSend, Iov: iov, Context: ctx}
	return p.plain(&op, dest)
}

// SendData posts an untagged message with remote CQ data (fi_senddata).
func (p *posts) SendData(buf []byte, data uint64, dest fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpSend, Buf: buf, Data: data, HasData: true, Context: ctx}
	return p.plain(&op, dest)
}

// SendMsg posts an untagged message with flags that replace those of Info.Tx.OpFlags
// (fi_sendmsg): fi.Completion, fi.Inject, fi.More, fi.RemoteCQData and the completion
// levels.
func (p *posts) SendMsg(m *Msg, flags fi.Flags) error {
	if m == nil {
		return errNoMsg
	}
	if err := p.ready(); err != nil {
		return err
	}
	pl, err := p.planMsg(flags)
	if err != nil {
		return err
	}
	op := transport.Op{Kind: transport.OpSend, Iov: m.Iov, Data: m.Data, HasData: flags&fi.RemoteCQData != 0, Context: m.Context}
	return p.send(&op, m.Addr, &pl)
}

// Inject posts an untagged message and writes no completion unless it fails;
// buf may be used again when the call returns (fi_inject, R-MSG-05).
func (p *posts) Inject(buf []byte, dest fi.Addr) error {
	var op transport.Op // field by field: the compiler builds a literal elsewhere and copies it
	op.Kind, op.Buf = transport.OpSend, buf
	return p.injected(&op, dest)
}

// InjectData is Inject with remote CQ data (fi_injectdata).
func (p *posts) InjectData(buf []byte, data uint64, dest fi.Addr) error {
	op := transport.Op{Kind: transport.OpSend, Buf: buf, Data: data, HasData: true}
	return p.injected(&op, dest)
}

// TSend posts a tagged message (fi_tsend).
func (p *posts) TSend(buf []byte, dest fi.Addr, tag uint64, ctx any) error {
	return p.sendShort(transport.OpTSend, buf, dest, tag, ctx)
}

// TSendv posts the bytes of iov as one tagged message (fi_tsendv).
func (p *posts) TSendv(iov [][]byte, dest fi.Addr, tag uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTSend, Iov: iov, Tag: tag, Context: ctx}
	return p.plain(&op, dest)
}

// TSendData posts a tagged message with remote CQ data (fi_tsenddata).
func (p *posts) TSendData(buf []byte, data uint64, dest fi.Addr, tag uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTSend, Buf: buf, Tag: tag, Data: data, HasData: true, Context: ctx}
	return p.plain(&op, dest)
}

// TSendMsg posts a tagged message with flags, as SendMsg does (fi_tsendmsg).
func (p *posts) TSendMsg(m *TMsg, flags fi.Flags) error {
	if m == nil {
		return errNoMsg
	}
	if err := p.ready(); err != nil {
		return err
	}
	pl, err := p.planMsg(flags)
	if err != nil {
		return err
	}
	op := transport.Op{
		Kind: transport.OpTSend, Iov: m.Iov, Tag: m.Tag, Data: m.Data, HasData: flags&fi.RemoteCQData != 0, Context: m.Context,
	}
	return p.send(&op, m.Addr, &pl)
}

// TInject is Inject for a tagged message (fi_tinject).
func (p *posts) TInject(buf []byte, dest fi.Addr, tag uint64) error {
	var op transport.Op // field by field: the compiler builds a literal elsewhere and copies it
	op.Kind, op.Buf, op.Tag = transport.OpTSend, buf, tag
	return p.injected(&op, dest)
}

// TInjectData is TInject with remote CQ data (fi_tinjectdata).
func (p *posts) TInjectData(buf []byte, data uint64, dest fi.Addr, tag uint64) error {
	op := transport.Op{Kind: transport.OpTSend, Buf: buf, Tag: tag, Data: data, HasData: true}
	return p.injected(&op, dest)
}

// Recv posts a buffer for an untagged message (fi_recv). Receives are matched in post order
// (R-MSG-08). With the capability fi.DirectedRecv, only messages from src match, and
// fi.AddrUnspec stands for any source (R-MSG-09); without it src is ignored.
func (p *posts) Recv(buf []byte, src fi.Addr, ctx any) error {
	return p.recvShort(transport.OpRecv, buf, src, 0, 0, ctx)
}

// Recvv posts a vector of buffers for one untagged message (fi_recvv).
func (p *posts) Recvv(iov [][]byte, src fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpRecv, Iov: iov, Context: ctx}
	return p.recv(&op, src, fi.Flags(p.rxFlags.Load()))
}

// RecvMsg is Recvv with flags that replace those of Info.Rx.OpFlags (fi_recvmsg):
// fi.Completion, fi.More, and with the capability fi.MultiRecv the flag of that name, which
// packs messages one after another into one buffer (R-MSG-12). Each message has a
// completion with the context of the receive; its Buf is where the message lies. The last
// completion, or an entry of its own, has the flag fi.MultiRecv and says that the buffer is
// the caller's again. fi.TransmitComplete and fi.DeliveryComplete are accepted and change
// nothing: memory here needs no flush (R-TGT-07).
func (p *posts) RecvMsg(m *Msg, flags fi.Flags) error {
	if m == nil {
		return errNoMsg
	}
	if flags&^rxCallFlags != 0 {
		return errCallFlags
	}
	if err := p.ready(); err != nil {
		return err
	}
	if flags&fi.MultiRecv != 0 && p.ep.rxCaps&fi.MultiRecv == 0 {
		return fi.EINVAL
	}
	op := transport.Op{Kind: transport.OpRecv, Iov: m.Iov, Context: m.Context}
	return p.recv(&op, m.Addr, flags)
}

// TRecv posts a buffer for a tagged message (fi_trecv). It matches a message whose tag
// equals tag in all bits that are 0 in ignore (R-TAG-02). src is as in Recv, also with the
// capability fi.TaggedDirectedRecv.
func (p *posts) TRecv(buf []byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	return p.recvShort(transport.OpTRecv, buf, src, tag, ignore, ctx)
}

// TRecvv posts a vector of buffers for one tagged message (fi_trecvv).
func (p *posts) TRecvv(iov [][]byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTRecv, Iov: iov, Tag: tag, Ignore: ignore, Context: ctx}
	return p.recv(&op, src, fi.Flags(p.rxFlags.Load()))
}

// TRecvMsg is TRecvv with flags (fi_trecvmsg): those of RecvMsg, where fi.MultiRecv needs
// the capability fi.TaggedMultiRecv, and those that look at unexpected messages (R-TAG-08,
// R-TAG-09):
//
//	fi.Peek             report the oldest that would match, without its bytes
//	fi.Peek|fi.Claim    the same, and reserve it
//	fi.Claim            receive what was reserved with the same context
//	fi.Discard          with either: drop it; the buffers are ignored
//
// If there is no such message, the call completes with fi.ENOMSG. Len is the length of the
// message. A look always writes its completion. fi.EINVAL: another combination, or a
// context that cannot be compared.
func (p *posts) TRecvMsg(m *TMsg, flags fi.Flags) error {
	if m == nil {
		return errNoMsg
	}
	if flags&^(rxCallFlags|fi.Peek|fi.Claim|fi.Discard) != 0 {
		return errCallFlags
	}
	op := transport.Op{Kind: transport.OpTRecv, Iov: m.Iov, Tag: m.Tag, Ignore: m.Ignore, Context: m.Context}
	switch flags & (fi.Peek | fi.Claim | fi.Discard) {
	case 0:
	case fi.Peek:
		op.Look = transport.LookPeek
	case fi.Peek | fi.Claim:
		op.Look = transport.LookPeekClaim
	case fi.Claim:
		op.Look = transport.LookClaim
	case fi.Peek | fi.Discard:
		op.Look = transport.LookPeekDiscard
	case fi.Claim | fi.Discard:
		op.Look = transport.LookClaimDiscard
	default:
		return fi.EINVAL
	}
	if flags&fi.Claim != 0 && (m.Context == nil || !reflect.ValueOf(m.Context).Comparable()) {
		return fi.EINVAL
	}
	if err := p.ready(); err != nil {
		return err
	}
	if flags&fi.MultiRecv != 0 && (op.Look != 0 || p.ep.rxCaps&fi.TaggedMultiRecv == 0) {
		return fi.EINVAL // R-TAG-10
	}
	if op.Look != 0 {
		p.ep.progress().Poll() // a loop of looks sees what arrives
	}
	return p.recv(&op, m.Addr, flags)
}

// Cancel ends one pending operation with that context (fi_cancel): an unmatched receive, or
// a send of which nothing has left. It ends with fi.ECANCELED. Any other operation goes on
// as if Cancel had not been called (R-EP-10, R-EP-12). If several have the context, one is
// cancelled.
//
// fi.ENOENT: nothing pending has the context, or it is nil (R-EP-11).
// fi.EINVAL: the context cannot be compared.
func (p *posts) Cancel(ctx any) error {
	if err := p.ready(); err != nil {
		return err
	}
	if ctx == nil {
		return fi.ENOENT
	}
	if !reflect.ValueOf(ctx).Comparable() {
		return fi.EINVAL
	}
	if !p.ep.cancel(ctx) {
		return fi.ENOENT
	}
	return nil
}

// posts has the posting calls of an endpoint or of an alias of it.
type posts struct {
	ep *Endpoint
	// The default flags of calls that have no flags argument (R-EP-09).
	tx      atomic.Pointer[txDefaults] // nil until they are known
	rxFlags atomic.Uint64
	closed  atomic.Bool // of an alias
}

// txDefaults is the plan that the default flags of sends make.
type txDefaults struct {
	flags        fi.Flags
	plan, inject plan
	// plain: the flags set no more than the level and flags of the operation.
	plain   bool
	opFlags uint64
}

func (ep *Endpoint) txDefaultsOf(flags fi.Flags) (*txDefaults, error) {
	pl, err := ep.planOf(flags)
	if err != nil {
		return nil, err
	}
	t := &txDefaults{flags: flags, plan: pl, inject: pl, plain: !pl.inject && !pl.more && !pl.fence, opFlags: pl.flags()}
	t.inject.inject, t.inject.silent = true, true // R-MSG-05
	return t, nil
}

const (
	txCallFlags = fi.Completion | fi.Inject | fi.More | fi.RemoteCQData | fi.Fence | fi.Levels
	rxCallFlags = fi.Completion | fi.More | fi.MultiRecv | fi.TransmitComplete | fi.DeliveryComplete
)

// Flags of an operation that its event repeats.
const (
	opSilent uint64 = 1 << iota // success writes no entry
	opLook                      // a look: nothing is received
	opRemote                    // what a peer did to a region of this side
)

// A plan is what the flags of a send mean.
type plan struct {
	level  transport.Level
	inject bool
	silent bool
	more   bool
	fence  bool
}

// flags are those of the operation.
func (p *plan) flags() uint64 {
	if p.silent {
		return opSilent
	}
	return 0
}

// planOf turns operation flags into a plan.
func (ep *Endpoint) planOf(flags fi.Flags) (plan, error) {
	p := plan{
		level:  transport.LevelTransmit, // R-CMPL-10
		inject: flags&fi.Inject != 0,    // R-CMPL-16: whatever the level
		silent: ep.txq.selective && flags&fi.Completion == 0,
		more:   flags&fi.More != 0,
		fence:  flags&fi.Fence != 0,
	}
	switch { // R-CMPL-15: the strongest wins
	case flags&fi.Levels&^kindOf(ep.info.Ep.Type).levels != 0:
		return p, fi.EOPNOTSUPP // nothing tells of it
	case flags&fi.CommitComplete != 0:
		return p, fi.EOPNOTSUPP // R-CMPL-13: planDurable has what can be durable; not silently weaker
	case flags&fi.MatchComplete != 0:
		p.level = transport.LevelMatch
	case flags&fi.DeliveryComplete != 0:
		p.level = transport.LevelDelivery
	case flags&fi.TransmitComplete != 0:
	case flags&fi.InjectComplete != 0:
		p.level = transport.LevelInject
	}
	return p, nil
}

// planMsg is planOf for a call with flags. R-CMPL-14: they replace those of the
// endpoint, but without a level among them the endpoint's applies.
func (p *posts) planMsg(flags fi.Flags) (plan, error) {
	if flags&^txCallFlags != 0 || flags&fi.Fence != 0 && p.ep.txCaps&fi.Fence == 0 { // R-ORD-12 among others
		return plan{}, errCallFlags
	}
	if flags&fi.Levels == 0 {
		flags |= p.tx.Load().flags & fi.Levels
	}
	return p.ep.planOf(flags)
}

// planDurable is planMsg of a one-sided operation. writes says that it can be durable.
func (p *posts) planDurable(flags fi.Flags, writes bool) (plan, error) {
	if flags&fi.CommitComplete == 0 {
		return p.planMsg(flags)
	}
	if !writes || p.ep.txCaps&fi.RMAPmem == 0 { // R-CMPL-13
		return plan{}, fi.EOPNOTSUPP
	}
	pl, err := p.planMsg(flags&^fi.Levels | fi.DeliveryComplete)
	pl.level = transport.LevelCommit
	return pl, err
}

// The short way of a post
//
// Send, TSend, Recv and TRecv with plain default flags, on an endpoint without special
// capabilities (Endpoint.short), write the operation directly into the driver, if its
// lock is free. The checks are those of send and recv, in as few comparisons as possible.
// If one fails, nothing has been done, and the general path is taken.
//
// The code is written for what the compiler makes of it: loads stand before the condition
// that tests them, an Op is filled field by field, and the general paths are not inlined,
// so that the stack frames of the short ones stay small.

// sendShort posts a send that needs no more than these arguments.
func (p *posts) sendShort(kind transport.OpKind, buf []byte, dest fi.Addr, tag uint64, ctx any) error {
	ep, t := p.ep, p.tx.Load()
	if ep == nil {
		return errZero
	}
	closed, state, pushed := p.closed.Load(), ep.state.Load(), ep.pushed.Load()
	if closed || state != stateEnabled || pushed || uint64(len(buf)) >= ep.short[kind] || !t.plain || !ep.drv.TryLock() {
		return p.sendLong(kind, buf, dest, tag, ctx)
	}
	op, e := ep.drv.Op(), ep.peers.at(dest)
	gen := ep.av.Gen(dest)
	if op == nil || e == nil || e.plain != gen || gen == 0 || !ep.txq.places.Take() {
		ep.drv.Return()
		return p.sendLong(kind, buf, dest, tag, ctx)
	}
	op.Kind, op.Peer, op.PIDonFEP, op.RI, op.Absolute = kind, e.id, e.pid, e.ri, e.absolute
	op.Level, op.Ordered, op.Visible, op.Flags = t.plan.level, ep.ordered, ep.visible, t.opFlags
	op.Buf, op.Tag, op.Context = buf, tag, ctx
	if err := ep.drv.SubmitSend(false); err != nil {
		return ep.unsent(err)
	}
	return nil
}

// sendLong posts the same by the general path.
//
//go:noinline
func (p *posts) sendLong(kind transport.OpKind, buf []byte, dest fi.Addr, tag uint64, ctx any) error {
	var op transport.Op
	op.Kind, op.Buf, op.Tag, op.Context = kind, buf, tag, ctx
	return p.plain(&op, dest)
}

// recvShort posts a receive that needs no more than these arguments.
func (p *posts) recvShort(kind transport.OpKind, buf []byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	ep := p.ep
	if ep == nil {
		return errZero
	}
	closed, state, flags := p.closed.Load(), ep.state.Load(), fi.Flags(p.rxFlags.Load())
	if closed || state != stateEnabled || flags&fi.MultiRecv != 0 || ep.short[kind] == 0 || ignore != 0 && !ep.mayIgnore(ignore) || !ep.drv.TryLock() {
		return p.recvLong(kind, buf, src, tag, ignore, ctx)
	}
	op := ep.drv.Op()
	if op == nil || !ep.rxq.places.Take() {
		ep.drv.Return()
		return p.recvLong(kind, buf, src, tag, ignore, ctx)
	}
	op.Kind, op.Buf, op.Tag, op.Ignore, op.Context = kind, buf, tag, ignore, ctx
	if err := ep.drv.SubmitRecv(); err != nil {
		return ep.unposted(err)
	}
	return nil
}

// recvLong posts the same by the general path.
//
//go:noinline
func (p *posts) recvLong(kind transport.OpKind, buf []byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	var op transport.Op
	op.Kind, op.Buf, op.Tag, op.Ignore, op.Context = kind, buf, tag, ignore, ctx
	return p.recv(&op, src, fi.Flags(p.rxFlags.Load()))
}

// shortWays sets, for each kind of operation, from how many bytes on the fast path is
// closed; 0 closes it altogether. It is open for kinds that the endpoint may post
// (R-MSG-19) and whose queue reserves places. Receives must also write completions and
// accept any source.
func (ep *Endpoint) shortWays() (short [transport.OpTRecv + 1]uint64) {
	if ep.connection != nil || !ep.managed || ep.port != nil {
		return short
	}
	for i, need := range []fi.Caps{fi.Msg, fi.Tagged} {
		if ep.txCaps&need != 0 {
			short[int(transport.OpSend)+i] = ep.opts.maxLen[i] + 1
		}
		if ep.rxCaps&need != 0 && ep.rxCaps&(fi.DirectedRecv|fi.TaggedDirectedRecv) == 0 && !ep.rxq.selective {
			short[int(transport.OpRecv)+i] = 1
		}
	}
	return short
}

// gone reports whether an alias is closed, or an endpoint or alias was never opened.
func (p *posts) gone() bool { return p.ep == nil || p.closed.Load() }

// ready returns why nothing can be posted; nil if something can.
func (p *posts) ready() error {
	switch {
	case p.ep == nil:
		return errZero
	case p.closed.Load():
		return errClosed
	}
	switch p.ep.state.Load() {
	case stateEnabled:
		return nil
	case stateClosed:
		return errClosed
	}
	return errNotEnabled
}

// plain posts a send with the default flags; injected says that an inject call posts it.
func (p *posts) plain(op *transport.Op, dest fi.Addr) error {
	if err := p.ready(); err != nil {
		return err
	}
	return p.send(op, dest, &p.tx.Load().plan)
}

func (p *posts) injected(op *transport.Op, dest fi.Addr) error {
	if err := p.ready(); err != nil {
		return err
	}
	return p.send(op, dest, &p.tx.Load().inject)
}

// send posts a send of an endpoint that is ready.
func (p *posts) send(op *transport.Op, dest fi.Addr, pl *plan) error {
	ep := p.ep
	need, kind, ordered, inject := fi.Msg, 0, ep.ordered, pl.inject
	switch op.Kind {
	case transport.OpTSend:
		need, kind = fi.Tagged, 1
	case transport.OpWrite:
		need, kind, ordered = fi.RMA|fi.Write, 2, ep.orderedRMA
		op.Idempotent = ep.info.Config.RUDI && op.Key&IdempotentKey != 0 // R-RMA-12
	case transport.OpAtomic:
		need, kind, ordered = fi.Atomic|fi.Write, 2, ep.orderedRMA
	case transport.OpFetch:
		need, kind, ordered = fi.Atomic|fi.Read|fi.Write, 2, ep.orderedRMA
	case transport.OpRead:
		need, kind, ordered, inject = fi.RMA|fi.Read, 2, ep.orderedRMA, false // the buffer is needed to the end
		op.Idempotent = ep.info.Config.RUDI && op.Key&IdempotentKey != 0
	}
	if op.AMO != nil && op.AMO.Tagged { // it matches in the order of messages
		need, ordered = need|fi.Tagged, ordered || ep.ordered
	}
	if ep.txCaps&need != need {
		return ep.refused(errNoCap) // R-MSG-19
	}
	if ep.connection != nil {
		if err := ep.connection.maySend(); err != nil {
			return ep.refused(err)
		}
	}
	if len(op.Iov) > IovLimit {
		return ep.refused(errIov)
	}
	if n := uint64(op.Bytes()); n > ep.opts.maxLen[kind] || inject && n > ep.opts.maxInject[kind] {
		return ep.refused(errTooLong)
	}
	to, err := ep.dest(dest) // R-AV-19: fi.AddrUnspec is in no AV
	if err != nil {
		return ep.refused(err)
	}
	op.Level, op.Inject, op.Ordered, op.Fence = pl.level, inject, ordered, pl.fence
	op.Visible = ep.visible
	op.Flags = pl.flags()
	if ep.managed && !ep.txq.q.Reserve(1) { // R-CQ-127
		return ep.refused(fi.EAGAIN)
	}
	if err := ep.post(op, to, pl.more); err != nil {
		return ep.unsent(err)
	}
	if pl.more != ep.pushed.Load() {
		ep.pushed.Store(pl.more)
	}
	return nil
}

// unsent ends a send that the driver did not accept.
func (ep *Endpoint) unsent(err error) error {
	if ep.managed {
		ep.txq.places.Unreserve(1)
	}
	return ep.refused(ep.postErr(err))
}

// refused ends a send that was not posted. R-MSG-15: if a post fails, the sends that wait
// for it because of fi.More leave.
func (ep *Endpoint) refused(err error) error {
	if ep.pushed.Load() {
		ep.pushed.Store(false)
		ep.progress().Poll()
	}
	return err
}

// recv posts a receive. Of flags only fi.Completion and fi.MultiRecv count.
func (p *posts) recv(op *transport.Op, src fi.Addr, flags fi.Flags) error {
	if err := p.ready(); err != nil {
		return err
	}
	ep := p.ep
	need, directed, multi := fi.Msg, fi.DirectedRecv, fi.MultiRecv
	if op.Kind == transport.OpTRecv {
		need, directed, multi = fi.Tagged, fi.DirectedRecv|fi.TaggedDirectedRecv, fi.TaggedMultiRecv // R-TAG-03
		if op.Ignore != 0 && !ep.mayIgnore(op.Ignore) {
			return fi.EINVAL
		}
	}
	if ep.rxCaps&need == 0 {
		return errNoCap
	}
	if ep.connection != nil {
		if err := ep.connection.mayRecv(); err != nil {
			return err
		}
	}
	if len(op.Iov) > IovLimit {
		return errIov
	}
	// A default flag without the capability for this kind does not count.
	if flags&fi.MultiRecv != 0 && ep.rxCaps&multi != 0 {
		if len(op.Iov) > 1 || len(op.Iov) == 1 && len(op.Iov[0]) == 0 || len(op.Iov) == 0 && len(op.Buf) == 0 {
			return fi.EINVAL // one buffer
		}
		op.Multi, op.MinFree = true, int(ep.opts.minMulti.Load())
	}
	from := driver.NoAddr
	if ep.rxCaps&directed != 0 { // R-MSG-09
		if src != fi.AddrUnspec {
			var err error
			if from, err = ep.dest(src); err != nil {
				return err
			}
		} else if ep.exact && op.Look != transport.LookClaim && op.Look != transport.LookClaimDiscard {
			return fi.EINVAL
		}
	}
	if ep.rxq.selective && flags&fi.Completion == 0 && op.Look == 0 {
		op.Flags = opSilent // R-EP-07
	}
	if op.Look != 0 && op.Look != transport.LookClaim {
		op.Flags |= opLook
	}
	if ep.managed && !ep.rxq.q.Reserve(1) {
		return fi.EAGAIN
	}
	if err := ep.post(op, from, false); err != nil {
		return ep.unposted(err)
	}
	return nil
}

// unposted ends a receive that the driver did not accept.
func (ep *Endpoint) unposted(err error) error {
	if ep.managed {
		ep.rxq.places.Unreserve(1)
	}
	return ep.postErr(err)
}

// mayIgnore reports whether a receive may ignore these bits of a tag.
func (ep *Endpoint) mayIgnore(ignore uint64) bool {
	switch ep.info.Ep.MemTagFormat {
	case fi.TagCCL: // R-TAG-05
		return false
	case fi.TagMPI: // R-TAG-06: whole fields; the bits above them are not checked
		tag, payload := uint32(ignore), uint8(ignore>>32)
		return (tag == 0 || tag == 1<<32-1) && (payload == 0 || payload == 1<<8-1)
	}
	return true
}

// postErr is what a posting call returns for an error of the transport.
func (ep *Endpoint) postErr(err error) error {
	if err == transport.ErrClosed && ep.connection != nil && ep.state.Load() != stateClosed {
		return fi.ESHUTDOWN // the connection ended meanwhile
	}
	return postErr(err)
}
