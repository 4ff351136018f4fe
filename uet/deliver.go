package uet

import (
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// A sink writes completions in batches. It locks one queue at a time, so two endpoints
// that use the same two queues in opposite roles cannot block each other.
type sink struct {
	cq    *cq.CQ // locked; nil means none is
	batch batch  // of cq
	err   cq.Error
}

func (s *sink) to(b *binding) batch {
	if s.cq != b.cq {
		s.turn(b)
	}
	return s.batch
}

// turn is the slow path of to, for a queue that is not the locked one.
func (s *sink) turn(b *binding) {
	s.end()
	s.cq, s.batch = b.cq, b.q.Begin()
}

func (s *sink) end() {
	if s.cq != nil {
		s.cq = nil
		s.batch.End()
	}
}

// kindFlags are the flags of a completion that tell the kind of its operation (R-CQ-106
// to R-CQ-111).
var kindFlags = [...]fi.Flags{
	transport.OpSend:   fi.Send | fi.Msg,
	transport.OpTSend:  fi.Send | fi.Tagged,
	transport.OpWrite:  fi.Write | fi.RMA,
	transport.OpRead:   fi.Read | fi.RMA,
	transport.OpAtomic: fi.Write | fi.Atomic,
	transport.OpFetch:  fi.Read | fi.Atomic,
	transport.OpRecv:   fi.Recv | fi.Msg,
	transport.OpTRecv:  fi.Recv | fi.Tagged,

	transport.OpRemoteWrite:  fi.RemoteWrite | fi.RMA,
	transport.OpRemoteAtomic: fi.RemoteWrite | fi.Atomic,
	transport.OpCommitted:    fi.RemoteWrite | fi.RMA,
	transport.OpRemoteRead:   fi.RemoteRead | fi.RMA,
}

// receives reports whether operations of kind k are receives.
func receives(k transport.OpKind) bool { return k >= transport.OpRecv }

// An owner is the Endpoint as the driver sees it: its methods run under the
// driver's lock.
type owner Endpoint

var _ driver.Owner = (*owner)(nil)

// queueOf is the queue of an operation's direction.
func (o *owner) queueOf(k transport.OpKind) *binding {
	if receives(k) {
		return &o.rxq
	}
	return &o.txq
}

// Deliver writes the completions of n operations. A plain success takes a fast path,
// which is a single call if it is the only one.
func (o *owner) Deliver(n int) {
	alone := n == 1
	for ; n > 0; n-- {
		ev := o.fep.NextEvent()
		if !o.simple || ev.Cause != transport.OK || ev.Flags != 0 || ev.HasData || ev.Multi {
			o.deliver(ev)
		} else {
			b, length, tag, src := &o.txq, 0, uint64(0), fi.AddrNotAvail // R-CQ-101
			if receives(ev.Kind) {
				if b, length = &o.rxq, ev.Len; ev.Kind == transport.OpTRecv {
					tag = ev.Tag // R-CQ-104: the sender's
				}
				if o.source {
					src, _ = o.peers.source(ev.Peer, ev.Initiator)
				}
			}
			if alone && b.q.Complete(ev.Context, kindFlags[ev.Kind], length, tag, src) {
				ev.Context, ev.Buf = nil, nil // they are the user's
				return
			}
			if !o.out.to(b).Complete(ev.Context, kindFlags[ev.Kind], length, tag, src) {
				o.overrun(b.cq)
			}
		}
		ev.Context, ev.Buf = nil, nil
	}
	o.fep.EventsRead()
	o.delivered()
}

// deliver writes the completion of any operation, or of one message in a multi-receive
// buffer. The place of such a message was reserved when it matched
// (transport.Config.Admit). The place that the post reserved is for the release of the
// buffer. The release is part of the last entry; if that is an error or is not written, it
// is an entry of its own (R-MSG-12).
func (o *owner) deliver(ev *transport.Event) {
	if ev.Kind == transport.OpCommit {
		ev.Context.(*MR).persist.ask((*Endpoint)(o), ev.Data, ev.Tag, uint64(ev.Len))
		return
	}
	if len(o.cntrs.all) > 0 && ev.Flags&opLook == 0 && ev.Kind != transport.OpCommitted { // by a look no message was received or lost
		o.cntrs.of(ev.Kind).add(ev)
	}
	b, recv := &o.txq, receives(ev.Kind)
	if recv {
		b = &o.rxq
	}
	if ev.Flags&opRemote != 0 {
		if m := ev.Context.(*MR); m.tally != nil && m.counted&kindFlags[ev.Kind] != 0 && ev.Kind != transport.OpCommitted {
			m.tally.counting.Count(1, uint64(ev.Len))
		}
		if ev.Context = nil; !ev.HasData { // R-RMA-03
			return
		}
	}
	if ev.Cause != transport.OK {
		o.failed(b, ev)
		return
	}
	src := fi.AddrNotAvail
	if recv && o.source {
		known := false
		if src, known = o.peers.source(ev.Peer, ev.Initiator); !known && o.sourceErr {
			o.unknownSource(b, ev)
			o.release(b, ev)
			return
		}
	}
	if ev.Flags&opSilent != 0 {
		// R-EP-07: no entry for this success; its place goes back.
		if recv {
			o.rxBack++
			o.release(b, ev)
		} else {
			o.txBack++
		}
		return
	}
	e := o.out.to(b).Add(src, o.managed)
	if e == nil {
		o.overrun(b.cq)
		return
	}
	e.Context, e.Flags = ev.Context, kindFlags[ev.Kind]
	if !recv {
		return // R-CQ-101
	}
	e.Len = ev.Len
	if ev.Kind == transport.OpTRecv {
		e.Tag = ev.Tag // R-CQ-104: the sender's
	}
	if ev.HasData {
		e.Flags |= fi.RemoteCQData // R-CQ-117
		e.Data = ev.Data
	}
	if ev.Multi {
		e.Buf = ev.Buf // R-CQ-102
		if ev.Released {
			e.Flags |= fi.MultiRecv // R-CQ-118
			o.rxBack++
		}
	}
}

// release writes the entry that gives a released multi-receive buffer back to the user.
func (o *owner) release(b *binding, ev *transport.Event) {
	if !ev.Released {
		return
	}
	e := o.out.to(b).Add(fi.AddrNotAvail, o.managed)
	if e == nil {
		o.overrun(b.cq)
		return
	}
	e.Context, e.Flags = ev.Context, fi.MultiRecv
}

// failed writes the error entry of an operation; every failure has one
// (R-CQ-81).
func (o *owner) failed(b *binding, ev *transport.Event) {
	e := &o.out.err
	*e = cq.Error{
		Context: ev.Context, Flags: kindFlags[ev.Kind], Source: fi.AddrNotAvail,
		OutcomeUnknown: ev.Unknown,
	}
	e.Err, e.Prov = errno(ev.Cause, ev.RC, ev.Nack)
	if o.connection != nil && o.connection.why != 0 && e.Err == fi.ECANCELED {
		e.Err = o.connection.why
	}
	if receives(ev.Kind) {
		if ev.Cause == transport.Truncated { // R-CQ-89; otherwise nothing counts (F9, R-ERR-45)
			e.Len, e.OverLen = ev.Len, int(ev.OverLen)
			o.describe(e, ev)
			o.from(e, ev)
		}
	}
	switch ev.Cause {
	case transport.TimedOut, transport.Unreachable, transport.Aborted, transport.TooBig:
		o.peerLost(ev.Peer, e)
	}
	if ev.Multi {
		if ev.Cause == transport.Truncated {
			e.Buf = ev.Buf
		}
		o.putErr(b, e)
		o.release(b, ev)
		return
	}
	if ev.Released {
		e.Flags |= fi.MultiRecv // a buffer that was cancelled
	}
	o.putErr(b, e)
}

// unknownSource writes a completion that carries its source's address because
// it is not in the AV (R-CQ-62, R-CQ-83).
func (o *owner) unknownSource(b *binding, ev *transport.Event) {
	e := &o.out.err
	*e = cq.Error{Context: ev.Context, Flags: kindFlags[ev.Kind], Len: ev.Len, Source: fi.AddrNotAvail, Err: fi.EADDRNOTAVAIL}
	o.describe(e, ev)
	if ev.Multi {
		e.Buf = ev.Buf
	}
	e.ErrData = o.rawSource(ev)
	o.putErr(b, e)
}

func (o *owner) describe(e *cq.Error, ev *transport.Event) {
	if ev.Kind == transport.OpTRecv {
		e.Tag = ev.Tag
	}
	if ev.HasData {
		e.Flags |= fi.RemoteCQData
		e.Data = ev.Data
	}
}

// from names the source of a message in an error entry, as ReadFrom does for a completion. With
// FI_SOURCE_ERR it also has the address of a source that the AV does not have.
func (o *owner) from(e *cq.Error, ev *transport.Event) {
	if !o.source {
		return
	}
	known := false
	if e.Source, known = o.peers.source(ev.Peer, ev.Initiator); !known && o.sourceErr {
		e.ErrData = o.rawSource(ev)
	}
}

func (o *owner) putErr(b *binding, e *cq.Error) {
	w := o.out.to(b)
	if !o.managed && o.leaving() {
		w.OfferErr(e) // R-EP-14, R-EP-15: a discarded entry overruns no queue
	} else if !w.PutErr(e, o.managed) {
		o.overrun(b.cq)
	}
	*e = cq.Error{}
}

// leaving reports whether operations end because of Close or Shutdown, or because the
// endpoint is disabled.
func (o *owner) leaving() bool {
	return o.state.Load() >= stateDisabled || o.connection != nil && o.connection.state.Load() == connShut
}

// Refused writes the error entry of an operation that could not be posted after the driver
// had accepted it. The driver accepts operations unposted while another goroutine has the
// lock.
func (o *owner) Refused(op *transport.Op, err error) {
	e := &o.out.err
	*e = cq.Error{Context: op.Context, Flags: kindFlags[op.Kind], Source: fi.AddrNotAvail, Err: fi.ECANCELED}
	switch {
	case err == driver.ErrCancelled:
	case err != transport.ErrClosed:
		e.Err = fi.Of(postErr(err))
	case o.connection != nil && o.connection.why != 0:
		e.Err = o.connection.why // as in failed
	}
	if op.Multi {
		e.Flags |= fi.MultiRecv // the buffer is the user's again
	}
	if op.Flags&opLook == 0 { // as in Deliver
		o.cntrs.of(op.Kind).failed()
	}
	o.putErr(o.queueOf(op.Kind), e)
	// Write it at once: a batch keeps the lock of a queue, and the next request may ask for
	// room in that queue.
	o.delivered()
}

// delivered ends a batch.
func (o *owner) delivered() {
	o.out.end()
	if o.txBack|o.rxBack != 0 {
		o.giveBack()
	}
	if len(o.cntrs.all) > 0 {
		o.cntrs.tell()
	}
}

// giveBack returns the places that the batch did not need.
func (o *owner) giveBack() {
	if o.managed && o.txBack > 0 {
		o.txq.places.Unreserve(o.txBack)
	}
	if o.managed && o.rxBack > 0 {
		o.rxq.places.Unreserve(o.rxBack)
	}
	o.txBack, o.rxBack = 0, 0
}
