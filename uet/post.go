package uet

import (
	"reflect"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet/driver"
)

// What all posting calls have in common
//
// They return nil when the operation is accepted; its completion follows, unless
// it is one that writes none. Otherwise nothing was posted and the error is
//
//	fi.EAGAIN       no room now: read the completion queues and try again (R-EP-20)
//	fi.EMSGSIZE     longer than MaxMsgSize, or than Info.Tx.InjectSize for an
//	                injected message (R-MSG-02, R-MSG-05)
//	fi.EINVAL       the address is not in the AV (R-AV-19), or more vector
//	                elements than IovLimit (R-MSG-17)
//	fi.EOPBADSTATE  the endpoint is not enabled (R-EP-01)
//	fi.EBADF        the endpoint is closed
//	fi.EOPNOTSUPP   the endpoint lacks the capability (R-MSG-19), or the
//	                completion level is not offered (R-CMPL-12, R-CMPL-13)
//	fi.EBADFLAGS    a flag the call does not know
//
// buf, or the elements of iov, belong to the provider until the completion;
// those of an injected message are the caller's again when the call returns, and
// so is the slice iov itself. An empty message is legal, buf and iov may be nil.
// ctx comes back in the completion.

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
func (ep *Endpoint) Send(buf []byte, dest fi.Addr, ctx any) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf, op.Context = transport.OpSend, buf, ctx
	return ep.send(&op, dest, &ep.txPlan)
}

// Sendv posts the bytes of iov as one untagged message (fi_sendv).
func (ep *Endpoint) Sendv(iov [][]byte, dest fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpSend, Iov: iov, Context: ctx}
	return ep.send(&op, dest, &ep.txPlan)
}

// SendData posts an untagged message with remote CQ data (fi_senddata).
func (ep *Endpoint) SendData(buf []byte, data uint64, dest fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpSend, Buf: buf, Data: data, HasData: true, Context: ctx}
	return ep.send(&op, dest, &ep.txPlan)
}

// SendMsg posts an untagged message with flags of its own, which replace those
// of Info.Tx.OpFlags (fi_sendmsg): fi.Completion, fi.Inject, fi.More,
// fi.RemoteCQData and the completion levels.
func (ep *Endpoint) SendMsg(m *Msg, flags fi.Flags) error {
	if m == nil {
		return fi.EINVAL
	}
	if err := ep.ready(); err != nil {
		return err
	}
	p, err := ep.planMsg(flags)
	if err != nil {
		return err
	}
	op := transport.Op{Kind: transport.OpSend, Iov: m.Iov, Data: m.Data, HasData: flags&fi.RemoteCQData != 0, Context: m.Context}
	return ep.send(&op, m.Addr, &p)
}

// Inject posts an untagged message and writes no completion unless it fails;
// buf may be used again when the call returns (fi_inject, R-MSG-05).
func (ep *Endpoint) Inject(buf []byte, dest fi.Addr) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf = transport.OpSend, buf
	return ep.send(&op, dest, &ep.injectPlan)
}

// InjectData is Inject with remote CQ data (fi_injectdata).
func (ep *Endpoint) InjectData(buf []byte, data uint64, dest fi.Addr) error {
	op := transport.Op{Kind: transport.OpSend, Buf: buf, Data: data, HasData: true}
	return ep.send(&op, dest, &ep.injectPlan)
}

// TSend posts a tagged message (fi_tsend).
func (ep *Endpoint) TSend(buf []byte, dest fi.Addr, tag uint64, ctx any) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf, op.Tag, op.Context = transport.OpTSend, buf, tag, ctx
	return ep.send(&op, dest, &ep.txPlan)
}

// TSendv posts the bytes of iov as one tagged message (fi_tsendv).
func (ep *Endpoint) TSendv(iov [][]byte, dest fi.Addr, tag uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTSend, Iov: iov, Tag: tag, Context: ctx}
	return ep.send(&op, dest, &ep.txPlan)
}

// TSendData posts a tagged message with remote CQ data (fi_tsenddata).
func (ep *Endpoint) TSendData(buf []byte, data uint64, dest fi.Addr, tag uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTSend, Buf: buf, Tag: tag, Data: data, HasData: true, Context: ctx}
	return ep.send(&op, dest, &ep.txPlan)
}

// TSendMsg posts a tagged message with flags of its own, as SendMsg does
// (fi_tsendmsg).
func (ep *Endpoint) TSendMsg(m *TMsg, flags fi.Flags) error {
	if m == nil {
		return fi.EINVAL
	}
	if err := ep.ready(); err != nil {
		return err
	}
	p, err := ep.planMsg(flags)
	if err != nil {
		return err
	}
	op := transport.Op{
		Kind: transport.OpTSend, Iov: m.Iov, Tag: m.Tag, Data: m.Data, HasData: flags&fi.RemoteCQData != 0, Context: m.Context,
	}
	return ep.send(&op, m.Addr, &p)
}

// TInject is Inject for a tagged message (fi_tinject).
func (ep *Endpoint) TInject(buf []byte, dest fi.Addr, tag uint64) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf, op.Tag = transport.OpTSend, buf, tag
	return ep.send(&op, dest, &ep.injectPlan)
}

// TInjectData is TInject with remote CQ data (fi_tinjectdata).
func (ep *Endpoint) TInjectData(buf []byte, data uint64, dest fi.Addr, tag uint64) error {
	op := transport.Op{Kind: transport.OpTSend, Buf: buf, Tag: tag, Data: data, HasData: true}
	return ep.send(&op, dest, &ep.injectPlan)
}

// Recv posts a buffer for an untagged message (fi_recv). Receives are matched
// in post order (R-MSG-08). src, looked at only with the capability
// fi.DirectedRecv, is the only source whose messages match; fi.AddrUnspec is
// any (R-MSG-09).
func (ep *Endpoint) Recv(buf []byte, src fi.Addr, ctx any) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf, op.Context = transport.OpRecv, buf, ctx
	return ep.recv(&op, src, rxDefault)
}

// Recvv posts a vector of buffers for one untagged message (fi_recvv).
func (ep *Endpoint) Recvv(iov [][]byte, src fi.Addr, ctx any) error {
	op := transport.Op{Kind: transport.OpRecv, Iov: iov, Context: ctx}
	return ep.recv(&op, src, rxDefault)
}

// RecvMsg is Recvv with flags of its own, which replace those of
// Info.Rx.OpFlags (fi_recvmsg): fi.Completion and fi.More.
func (ep *Endpoint) RecvMsg(m *Msg, flags fi.Flags) error {
	if m == nil {
		return fi.EINVAL
	}
	if flags&^rxCallFlags != 0 {
		return fi.EBADFLAGS
	}
	op := transport.Op{Kind: transport.OpRecv, Iov: m.Iov, Context: m.Context}
	return ep.recv(&op, m.Addr, rxReport(flags))
}

// TRecv posts a buffer for a tagged message (fi_trecv). It takes a message
// whose tag equals tag in all bits that ignore does not name (R-TAG-02). src as
// in Recv, also with the capability fi.TaggedDirectedRecv.
func (ep *Endpoint) TRecv(buf []byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	var op transport.Op // field by field: a literal is built twice
	op.Kind, op.Buf, op.Tag, op.Ignore, op.Context = transport.OpTRecv, buf, tag, ignore, ctx
	return ep.recv(&op, src, rxDefault)
}

// TRecvv posts a vector of buffers for one tagged message (fi_trecvv).
func (ep *Endpoint) TRecvv(iov [][]byte, src fi.Addr, tag, ignore uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpTRecv, Iov: iov, Tag: tag, Ignore: ignore, Context: ctx}
	return ep.recv(&op, src, rxDefault)
}

// TRecvMsg is TRecvv with flags of its own, as RecvMsg (fi_trecvmsg).
func (ep *Endpoint) TRecvMsg(m *TMsg, flags fi.Flags) error {
	if m == nil {
		return fi.EINVAL
	}
	if flags&fi.MultiRecv != 0 { // R-TAG-10
		return fi.EINVAL
	}
	if flags&^rxCallFlags != 0 {
		return fi.EBADFLAGS
	}
	op := transport.Op{Kind: transport.OpTRecv, Iov: m.Iov, Tag: m.Tag, Ignore: m.Ignore, Context: m.Context}
	return ep.recv(&op, m.Addr, rxReport(flags))
}

// Cancel ends one pending operation with that context (fi_cancel): a receive
// that nothing matched, or a send of which nothing has left. It completes with
// fi.ECANCELED; any other completes as if nothing had been asked (R-EP-10,
// R-EP-12). Of several with one context one is cancelled.
//
// fi.ENOENT: nothing pending has the context, or it is nil (R-EP-11).
// fi.EINVAL: the context cannot be compared.
func (ep *Endpoint) Cancel(ctx any) error {
	if err := ep.ready(); err != nil {
		return err
	}
	if ctx == nil {
		return fi.ENOENT
	}
	if !reflect.ValueOf(ctx).Comparable() {
		return fi.EINVAL
	}
	if !ep.drv.Cancel(ctx) {
		return fi.ENOENT
	}
	return nil
}

const (
	txCallFlags = fi.Completion | fi.Inject | fi.More | fi.RemoteCQData | fi.Levels
	rxCallFlags = fi.Completion | fi.More
)

// Flags of an operation that come back in its event.
const (
	opSilent uint64 = 1 << iota // success writes no entry
)

// A plan is what the flags of a send mean.
type plan struct {
	level  transport.Level
	inject bool
	silent bool
	more   bool
}

// planOf turns operation flags into a plan.
func planOf(flags fi.Flags, selective bool) (plan, error) {
	p := plan{
		level:  transport.LevelTransmit, // R-CMPL-10
		inject: flags&fi.Inject != 0,    // R-CMPL-16: whatever the level
		silent: selective && flags&fi.Completion == 0,
		more:   flags&fi.More != 0,
	}
	switch { // R-CMPL-15: the strongest wins
	case flags&(fi.CommitComplete|fi.MatchComplete) != 0:
		return p, fi.EOPNOTSUPP // R-CMPL-12, R-CMPL-13: not silently weaker
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
func (ep *Endpoint) planMsg(flags fi.Flags) (plan, error) {
	if flags&^txCallFlags != 0 { // R-ORD-12 among others
		return plan{}, fi.EBADFLAGS
	}
	if flags&fi.Levels == 0 {
		flags |= ep.info.Tx.OpFlags & fi.Levels
	}
	return planOf(flags, ep.txq.selective)
}

// ready reports why nothing can be posted, if so.
func (ep *Endpoint) ready() error {
	switch ep.state.Load() {
	case stateEnabled:
		return nil
	case stateClosed:
		return fi.EBADF
	}
	return fi.EOPBADSTATE // R-EP-01
}

// send posts a send.
func (ep *Endpoint) send(op *transport.Op, dest fi.Addr, p *plan) error {
	if err := ep.ready(); err != nil {
		return err
	}
	need := fi.Msg
	if op.Kind == transport.OpTSend {
		need = fi.Tagged
	}
	if ep.txCaps&need == 0 {
		return fi.EOPNOTSUPP // R-MSG-19
	}
	n := len(op.Buf)
	if op.Iov != nil {
		if len(op.Iov) > IovLimit {
			return fi.EINVAL
		}
		for _, b := range op.Iov {
			n += len(b)
		}
	}
	if uint64(n) > MaxMsgSize || p.inject && n > ep.injectSize {
		return fi.EMSGSIZE
	}
	if dest == fi.AddrUnspec {
		return fi.EINVAL // R-AV-19
	}
	op.Level, op.Inject, op.Ordered = p.level, p.inject, ep.ordered
	if p.silent {
		op.Flags = opSilent
	}
	if ep.managed && !ep.txq.q.Reserve(1) { // R-CQ-127
		return fi.EAGAIN
	}
	if err := ep.drv.Post(op, uint64(dest), p.more); err != nil {
		if ep.managed {
			ep.txq.q.Unreserve(1)
		}
		return postErr(err)
	}
	return nil
}

// A report says whether a receive writes an entry when it succeeds on an
// endpoint with selective completion.
type report uint8

const (
	rxDefault report = iota // as Info.Rx.OpFlags says (R-EP-09)
	rxQuiet
	rxWrite
)

func rxReport(flags fi.Flags) report {
	if flags&fi.Completion != 0 {
		return rxWrite
	}
	return rxQuiet
}

// recv posts a receive.
func (ep *Endpoint) recv(op *transport.Op, src fi.Addr, report report) error {
	if err := ep.ready(); err != nil {
		return err
	}
	need, directed := fi.Msg, fi.DirectedRecv
	if op.Kind == transport.OpTRecv {
		need, directed = fi.Tagged, fi.DirectedRecv|fi.TaggedDirectedRecv // R-TAG-03
	}
	if ep.rxCaps&need == 0 {
		return fi.EOPNOTSUPP
	}
	if len(op.Iov) > IovLimit {
		return fi.EINVAL
	}
	from := uint64(src)
	if src == fi.AddrUnspec || ep.rxCaps&directed == 0 { // R-MSG-09
		from = driver.NoAddr
	}
	if ep.rxq.selective && (report == rxQuiet || report == rxDefault && ep.info.Rx.OpFlags&fi.Completion == 0) {
		op.Flags = opSilent // R-EP-07
	}
	if ep.managed && !ep.rxq.q.Reserve(1) {
		return fi.EAGAIN
	}
	if err := ep.drv.Post(op, from, false); err != nil {
		if ep.managed {
			ep.rxq.q.Unreserve(1)
		}
		return postErr(err)
	}
	return nil
}
