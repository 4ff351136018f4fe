package uet

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// disabled returns an endpoint with its queues that is not enabled yet.
func (r *rig) disabled() (*Endpoint, *cq.CQ) {
	r.t.Helper()
	ep, err := r.domain.OpenEndpoint(r.info, "ep")
	ok(r.t, err)
	q, err := r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged}, nil)
	ok(r.t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(r.t, err)
	ok(r.t, ep.BindCQ(q, fi.Transmit|fi.Recv))
	ok(r.t, ep.BindAV(v))
	r.t.Cleanup(func() {
		if err := ep.Close(); err != nil && !errors.Is(err, fi.EBADF) {
			r.t.Error(err)
		}
		ok(r.t, q.Close())
		ok(r.t, v.Close())
	})
	return ep, q
}

func TestOptions(t *testing.T) {
	t.Parallel()
	// R-EP-18: the options that exist can be set within the attributes before Enable, the
	// minimum of multi-receive buffers also later. Others give FI_ENOPROTOOPT.
	r := newRig(t, &Info{Tx: TxAttr{Size: 100}})
	ep, _ := r.disabled()
	get := func(o fi.Opt, want uint64) {
		t.Helper()
		if v, err := ep.GetOpt(o); v != want || err != nil {
			t.Errorf("option %d: %d, %v; want %d", o, v, err, want)
		}
	}
	inject := uint64(r.info.Tx.InjectSize)
	for o, want := range map[fi.Opt]uint64{
		fi.OptMinMultiRecv: 64, fi.OptCMDataSize: 256, fi.OptMaxMsgSize: MaxMsgSize, fi.OptMaxTaggedSize: MaxMsgSize,
		fi.OptInjectMsgSize: inject, fi.OptInjectTaggedSize: inject, fi.OptTxSize: 100, fi.OptRxSize: 4096,
	} {
		get(o, want)
	}
	for o := fi.OptMinMultiRecv - 1; o < fi.OptInjectAtomicSize+2; o++ {
		switch o {
		case fi.OptMinMultiRecv, fi.OptMaxMsgSize, fi.OptMaxTaggedSize, fi.OptInjectMsgSize, fi.OptInjectTaggedSize,
			fi.OptTxSize, fi.OptRxSize, fi.OptSendBufSize, fi.OptRecvBufSize:
			want(t, ep.SetOpt(o, 1<<40), fi.EINVAL)
			if o != fi.OptMinMultiRecv {
				want(t, ep.SetOpt(o, 0), fi.EINVAL)
			}
		case fi.OptCMDataSize:
			want(t, ep.SetOpt(o, 1), fi.ENOPROTOOPT) // read-only
		default:
			want(t, ep.SetOpt(o, 1), fi.ENOPROTOOPT)
			_, err := ep.GetOpt(o)
			want(t, err, fi.ENOPROTOOPT)
		}
	}
	for o, most := range map[fi.Opt]uint64{
		fi.OptMinMultiRecv: MaxMsgSize, fi.OptMaxMsgSize: MaxMsgSize, fi.OptMaxTaggedSize: MaxMsgSize, fi.OptInjectMsgSize: inject, fi.OptInjectTaggedSize: inject,
		fi.OptTxSize: maxQueueSize, fi.OptRxSize: maxQueueSize, fi.OptSendBufSize: 1 << 30, fi.OptRecvBufSize: 1 << 30,
	} {
		ok(t, ep.SetOpt(o, most))
		get(o, most)
		want(t, ep.SetOpt(o, most+1), fi.EINVAL)
	}
	ok(t, ep.SetOpt(fi.OptMaxMsgSize, 1000))
	ok(t, ep.SetOpt(fi.OptMaxTaggedSize, 2000))
	ok(t, ep.SetOpt(fi.OptInjectMsgSize, 10))
	ok(t, ep.SetOpt(fi.OptInjectTaggedSize, 20))
	ok(t, ep.SetOpt(fi.OptTxSize, 3))
	ok(t, ep.SetOpt(fi.OptRxSize, 2))
	ok(t, ep.SetOpt(fi.OptSendBufSize, 1<<17))
	ok(t, ep.SetOpt(fi.OptRecvBufSize, 1<<16))
	_, err := ep.TxSizeLeft()
	want(t, err, fi.EOPBADSTATE)
	ok(t, ep.Enable())
	p, err := ep.PathInfo()
	ok(t, err)
	if p.Socket.SendBuf.Asked != 1<<17 || p.Socket.RecvBuf.Asked != 1<<16 {
		t.Errorf("buffers %+v, %+v", p.Socket.SendBuf, p.Socket.RecvBuf)
	}
	get(fi.OptRecvBufSize, 1<<16)
	for _, o := range []fi.Opt{fi.OptMaxMsgSize, fi.OptMaxTaggedSize, fi.OptInjectMsgSize, fi.OptInjectTaggedSize, fi.OptTxSize, fi.OptRxSize, fi.OptSendBufSize, fi.OptRecvBufSize} {
		want(t, ep.SetOpt(o, 1), fi.EOPBADSTATE)
	}
	ok(t, ep.SetOpt(fi.OptMinMultiRecv, 500)) // fabtests multi_recv sets it after Enable
	get(fi.OptMinMultiRecv, 500)
	name, err := ep.Name()
	ok(t, err)
	self, err := ep.av.InsertString(name.String())
	ok(t, err)
	buf := make([]byte, 3000)
	want(t, ep.Send(buf[:1001], self, nil), fi.EMSGSIZE)
	want(t, ep.TSend(buf[:2001], self, 0, nil), fi.EMSGSIZE)
	want(t, ep.Inject(buf[:11], self), fi.EMSGSIZE)
	want(t, ep.TInject(buf[:21], self, 0), fi.EMSGSIZE)
	left := func(tx, rx int) {
		t.Helper()
		a, err := ep.TxSizeLeft()
		ok(t, err)
		b, err := ep.RxSizeLeft()
		ok(t, err)
		if a != tx || b != rx {
			t.Errorf("%d sends and %d receives left, want %d and %d", a, b, tx, rx)
		}
	}
	left(3, 2)
	ok(t, ep.Recv(nil, fi.AddrUnspec, nil))
	ok(t, ep.Recv(nil, fi.AddrUnspec, nil))
	left(3, 0)
	want(t, ep.Recv(nil, fi.AddrUnspec, nil), fi.EAGAIN)
	ok(t, ep.TSend(buf[:2000], self, 0, nil))
	ok(t, ep.TInject(buf[:20], self, 0))
	left(1, 0)
	want(t, ep.Send(buf[:1001], self, nil), fi.EMSGSIZE) // also when the peer is known
	want(t, ep.TSend(buf[:2001], self, 0, nil), fi.EMSGSIZE)
	ok(t, ep.Close())
	want(t, ep.SetOpt(fi.OptMinMultiRecv, 1), fi.EBADF)
	_, err = ep.GetOpt(fi.OptMinMultiRecv)
	want(t, err, fi.EBADF)
	_, err = ep.RxSizeLeft()
	want(t, err, fi.EBADF)
}

func TestOpsFlags(t *testing.T) {
	t.Parallel()
	// R-EP-16, R-EP-09: default flags are read and changed per direction.
	r := newRig(t, &Info{Tx: TxAttr{OpFlags: fi.Completion}})
	a, b, toB, _ := r.pair(func(o *options) { o.txFlags, o.rxFlags = fi.SelectiveCompletion, fi.SelectiveCompletion })
	for _, f := range []fi.Flags{0, fi.Transmit | fi.Recv, fi.Completion} {
		_, err := a.OpsFlags(f)
		want(t, err, fi.EINVAL)
		want(t, a.SetOpsFlags(f), fi.EINVAL)
	}
	get := func(which, want fi.Flags) {
		t.Helper()
		if f, err := a.OpsFlags(which); f != want || err != nil {
			t.Errorf("%v: %v, %v; want %v", which, f, err, want)
		}
	}
	get(fi.Transmit, fi.Completion)
	get(fi.Recv, 0)
	want(t, a.SetOpsFlags(fi.Transmit|fi.Fence), fi.EBADFLAGS)
	want(t, a.SetOpsFlags(fi.Recv|fi.Inject), fi.EBADFLAGS)
	want(t, a.SetOpsFlags(fi.Transmit|fi.CommitComplete), fi.EOPNOTSUPP) // R-CMPL-13
	get(fi.Transmit, fi.Completion)
	ok(t, a.SetOpsFlags(fi.Transmit|fi.MatchComplete))
	get(fi.Transmit, fi.MatchComplete)
	ok(t, a.SetOpsFlags(fi.Transmit|fi.Completion))
	ok(t, b.SetOpsFlags(fi.Recv|fi.Completion))
	for i := range 3 {
		ok(t, b.Recv(nil, fi.AddrUnspec, i))
	}
	ok(t, a.Send(nil, toB, "loud"))
	if e, _ := wait(t, a.tx, b); e.Context != "loud" {
		t.Errorf("%+v", e)
	}
	ok(t, a.SetOpsFlags(fi.Transmit|fi.DeliveryComplete))
	get(fi.Transmit, fi.DeliveryComplete)
	ok(t, a.Send(nil, toB, "quiet"))
	ok(t, a.SetOpsFlags(fi.Transmit|fi.Completion))
	ok(t, a.Send(nil, toB, "loud"))
	if e, _ := wait(t, a.tx, b); e.Context != "loud" {
		t.Errorf("%+v", e)
	}
	for range 3 {
		wait(t, b.rx, a)
	}
	// This works before Enable, too. Impossible flags are refused at once, not later.
	ep, q := r.disabled()
	ok(t, ep.SetOpsFlags(fi.Transmit|fi.InjectComplete))
	if f, err := ep.OpsFlags(fi.Transmit); f != fi.InjectComplete || err != nil {
		t.Error(f, err)
	}
	ok(t, ep.Enable())
	if pl, err := ep.planMsg(0); err != nil || pl.level != 1 {
		t.Errorf("%+v, %v", pl, err)
	}
	ok(t, ep.Close())
	_, err := ep.OpsFlags(fi.Recv)
	want(t, err, fi.EBADF)
	want(t, ep.SetOpsFlags(fi.Recv), fi.EBADF)
	_ = q
}

func TestDefaultFlagsBeforeTheQueueIsBound(t *testing.T) {
	t.Parallel()
	// R-EP-07: the queue that is bound in the end decides whether a success is silent.
	r := newRig(t, nil)
	a := r.node()
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	ok(t, ep.SetOpsFlags(fi.Transmit|fi.DeliveryComplete))
	ok(t, ep.BindCQ(a.tx, fi.Transmit|fi.Recv|fi.SelectiveCompletion))
	ok(t, ep.BindAV(a.vec))
	ok(t, ep.Enable())
	if d := ep.tx.Load(); !d.plan.silent || d.flags != fi.DeliveryComplete || d.plan.level != transport.LevelDelivery {
		t.Errorf("%+v", d)
	}
	ok(t, ep.Close())
}

func TestAlias(t *testing.T) {
	t.Parallel()
	// R-EP-17: an alias is the same endpoint with other default flags. The endpoint can be
	// closed only after its aliases.
	r := newRig(t, nil)
	n, _ := r.disabled()
	_, err := n.Alias(fi.Transmit)
	want(t, err, fi.EOPBADSTATE)
	a, b, toB, toA := r.pair(func(o *options) { o.txFlags = fi.SelectiveCompletion })
	_, err = a.Alias(0)
	want(t, err, fi.EINVAL)
	_, err = a.Alias(fi.Transmit | fi.Fence)
	want(t, err, fi.EBADFLAGS)
	loud, err := a.Alias(fi.Transmit | fi.Completion)
	ok(t, err)
	want(t, a.Close(), fi.EBUSY)
	for i := range 2 {
		ok(t, b.Recv(nil, fi.AddrUnspec, i))
	}
	ok(t, a.Send(nil, toB, "quiet"))
	ok(t, loud.Send(nil, toB, "loud"))
	if e, _ := wait(t, a.tx, b); e.Context != "loud" {
		t.Errorf("%+v", e)
	}
	ok(t, loud.SetOpsFlags(fi.Transmit)) // this changes its own flags only
	ok(t, a.SetOpsFlags(fi.Transmit|fi.Completion))
	if f, _ := loud.OpsFlags(fi.Transmit); f != 0 {
		t.Errorf("flags of the alias: %v", f)
	}
	ok(t, loud.Recv(nil, fi.AddrUnspec, "by alias"))
	ok(t, b.Send(nil, toA, nil))
	if e, _ := wait(t, a.rx, b); e.Context != "by alias" {
		t.Errorf("%+v", e)
	}
	ok(t, loud.Recv(nil, fi.AddrUnspec, "gone"))
	ok(t, loud.Cancel("gone"))
	waitErr(t, a.rx)
	ok(t, loud.Close())
	want(t, loud.Close(), fi.EBADF)
	want(t, loud.Send(nil, toB, nil), fi.EBADF)
	want(t, loud.SendMsg(&Msg{Addr: toB}, 0), fi.EBADF)
	want(t, loud.Recv(nil, fi.AddrUnspec, nil), fi.EBADF)
	want(t, loud.Cancel("x"), fi.EBADF)
	want(t, loud.SetOpsFlags(fi.Recv), fi.EBADF)
	_, err = loud.OpsFlags(fi.Recv)
	want(t, err, fi.EBADF)
	ok(t, a.Close())
	_, err = a.Alias(fi.Transmit)
	want(t, err, fi.EBADF)
}

func TestObjectsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	// fi_endpoint(3): bound objects belong to the same domain, the event queue to the same
	// fabric.
	r, o := newRig(t, nil), newRig(t, nil)
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	q, err := o.domain.OpenCQ(cq.Attr{}, nil)
	ok(t, err)
	v, err := o.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	e, err := o.fabric.OpenEQ(eq.Attr{}, nil)
	ok(t, err)
	own, err := cq.New(cq.Attr{}, nil)
	ok(t, err)
	want(t, ep.BindCQ(own, fi.Transmit), fi.EDOMAIN)
	ok(t, own.Close())
	want(t, ep.BindCQ(q, fi.Transmit), fi.EDOMAIN)
	want(t, ep.BindAV(v), fi.EDOMAIN)
	want(t, ep.BindEQ(e), fi.EDOMAIN)
	n, err := o.domain.OpenCntr(cntr.Attr{}, nil)
	ok(t, err)
	want(t, ep.BindCntr(n, fi.Send), fi.EDOMAIN)
	for _, c := range []interface{ Close() error }{q, v, e, n} {
		ok(t, c.Close()) // nothing uses them
	}
	// Closed objects of the right domain are refused, too.
	q, _ = r.domain.OpenCQ(cq.Attr{}, nil)
	v, _ = r.domain.OpenAV(av.Attr{}, nil)
	e, _ = r.fabric.OpenEQ(eq.Attr{}, nil)
	for _, c := range []interface{ Close() error }{q, v, e} {
		ok(t, c.Close())
	}
	want(t, ep.BindCQ(q, fi.Recv), fi.EBADF)
	want(t, ep.BindAV(v), fi.EBADF)
	want(t, ep.BindEQ(e), fi.EBADF)
	ok(t, ep.Close())
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	// Every misuse has its own errno, which errors.Is finds, and changes nothing: R-ERR-42,
	// R-ERR-43, R-EP-01, R-EP-02, R-MSG-02, R-AV-19.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	fresh, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	gone := r.node()
	ok(t, gone.Close())
	big := make([]byte, a.Info().Tx.InjectSize+1)
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"unbound completion queue", fresh.Enable, fi.ENOCQ},
		{"post before enable", func() error { return fresh.Send(nil, 0, nil) }, fi.EOPBADSTATE},
		{"alias before enable", func() error { _, err := fresh.Alias(fi.Transmit); return err }, fi.EOPBADSTATE},
		{"no completion queue", func() error { return fresh.BindCQ(nil, fi.Recv) }, fi.EINVAL},
		{"send on a closed endpoint", func() error { return gone.Send(nil, 0, nil) }, fi.EBADF},
		{"receive on a closed endpoint", func() error { return gone.TRecv(nil, fi.AddrUnspec, 0, 0, nil) }, fi.EBADF},
		{"message on a closed endpoint", func() error { return gone.TSendMsg(&TMsg{}, 0) }, fi.EBADF},
		{"look on a closed endpoint", func() error { return gone.TRecvMsg(&TMsg{}, fi.Peek) }, fi.EBADF},
		{"close twice", gone.Close, fi.EBADF},
		{"nil message", func() error { return a.SendMsg(nil, 0) }, fi.EINVAL},
		{"commit complete, not offered", func() error { return a.TSendMsg(&TMsg{Addr: toB}, fi.CommitComplete) }, fi.EOPNOTSUPP},
		{"commit complete of a message", func() error { return a.SendMsg(&Msg{Addr: toB}, fi.CommitComplete) }, fi.EOPNOTSUPP},
		{"too long to inject", func() error { return a.Inject(big, toB) }, fi.EMSGSIZE},
		{"address never inserted", func() error { return a.Send(nil, 4711, nil) }, fi.EINVAL},
		{"address unspecified", func() error { return a.Send(nil, fi.AddrUnspec, nil) }, fi.EINVAL},
		{"address beyond all handles", func() error { return a.Send(nil, 1<<32|toB, nil) }, fi.EINVAL},
		{"directed receive of nobody", func() error { return a.Recv(nil, 4711, nil) }, fi.EINVAL},
		{"vector too long", func() error { return a.Sendv(make([][]byte, IovLimit+1), toB, nil) }, fi.EINVAL},
		{"unknown flags", func() error { return a.SendMsg(&Msg{Addr: toB}, 1<<40) }, fi.EBADFLAGS},
		{"fence without the capability", func() error { return a.SendMsg(&Msg{Addr: toB}, fi.Fence) }, fi.EBADFLAGS}, // R-ORD-12
		{"cancel of nothing", func() error { return a.Cancel("nothing") }, fi.ENOENT},
		{"unknown option", func() error { _, err := a.GetOpt(99); return err }, fi.ENOPROTOOPT},
		{"shared vector", func() error { _, err := r.domain.OpenAV(av.Attr{Name: "x", Flags: fi.Read}, nil); return err }, fi.ENOSYS}, // R-AV-18, R-ERR-44
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if a.tx.Reserved() != 0 || a.rx.Reserved() != 0 {
		t.Errorf("%d and %d places stay reserved", a.tx.Reserved(), a.rx.Reserved())
	}
	// A nil buffer is an empty message (R-MSG-02).
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Sendv(nil, toB, nil))
	if e, _ := wait(t, b.rx, a); e.Len != 0 {
		t.Errorf("%+v", e)
	}
	ok(t, fresh.Close())
}

func TestTagFormats(t *testing.T) {
	t.Parallel()
	// R-TAG-05: exact match only. R-TAG-06: whole fields only.
	const all, tag32, pay8 = ^uint64(0), uint64(1<<32 - 1), uint64(0xff << 32)
	for _, c := range []struct {
		format uint64
		yes    []uint64
		no     []uint64
	}{
		{fi.TagBits, []uint64{0, 1, all, tag32}, nil},
		{fi.TagMPI, []uint64{0, tag32, pay8, tag32 | pay8, all}, []uint64{1, tag32 >> 1, pay8 << 1, tag32 | 1<<32}},
		{fi.TagCCL, []uint64{0}, []uint64{1, all}},
	} {
		r := newRig(t, &Info{Ep: EpAttr{MemTagFormat: c.format}})
		n := r.node()
		for _, ignore := range c.yes {
			ok(t, n.TRecv(nil, fi.AddrUnspec, 0, ignore, nil))
		}
		for _, ignore := range c.no {
			want(t, n.TRecv(nil, fi.AddrUnspec, 0, ignore, nil), fi.EINVAL)
			want(t, n.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Ignore: ignore}, 0), fi.EINVAL)
		}
	}
}

func TestExactDirectedReceive(t *testing.T) {
	t.Parallel()
	// R-MSG-09: with FI_EXACT_DIRECTED_RECV a receive must name its source.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.DirectedRecv | fi.ExactDirectedRecv})
	a, b, toB, toA := r.pair()
	want(t, b.Recv(nil, fi.AddrUnspec, nil), fi.EINVAL)
	want(t, b.TRecv(nil, fi.AddrUnspec, 0, 0, nil), fi.EINVAL)
	ok(t, b.Recv(nil, toA, "of a"))
	ok(t, a.Send(nil, toB, nil))
	if e, _ := wait(t, b.rx, a); e.Context != "of a" {
		t.Errorf("%+v", e)
	}
}

func TestTrafficClass(t *testing.T) {
	t.Parallel()
	// R-INFO-23: the class of the endpoint, or else of the domain, sets the DSCP of every
	// packet.
	for _, c := range []struct {
		tx, domain fi.TClass
		want       uint8
	}{{0, 0, 0}, {fi.TCDSCP(11), fi.TCBulkData, 11}, {0, fi.TCLowLatency, 46}} {
		r := newRig(t, &Info{Tx: TxAttr{TClass: c.tx}, Domain: DomainAttr{TClass: c.domain}})
		n := r.node()
		if got := n.fep.Config().DSCP; got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	r := newRig(t, nil)
	ep, _ := r.disabled()
	ep.info.Tx.TClass = 5
	want(t, ep.Enable(), fi.EINVAL)
}

func TestHandleTakenOverWhileAnOperationWaits(t *testing.T) {
	t.Parallel()
	// If an operation waits for the driver's lock while its handle comes to mean another peer,
	// it ends in error. It never goes to that peer.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	c := r.node()
	var wg sync.WaitGroup
	a.drv.With(func() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ok(t, a.Send([]byte("for b"), toB, "late"))
			ok(t, a.vec.Remove(toB))
			if h := a.know(c); h != toB {
				t.Error("the handle is not used again")
			}
		}()
		wg.Wait()
	})
	if e := waitErr(t, a.tx, b, c); e.Err != fi.EINVAL || e.Context != "late" {
		t.Errorf("%+v", e)
	}
	if a.Stats().TxPackets != 0 {
		t.Error("something was sent")
	}
	ok(t, c.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, nil)) // the handle means c now
	wait(t, c.rx, a)
}

func TestRefusedLookIsNotCounted(t *testing.T) {
	t.Parallel()
	// A look that could not be made lost no message.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.DirectedRecv})
	c := r.counter(cntr.Attr{})
	a := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(c, fi.Recv)) } })
	b := r.node()
	fromB := a.know(b)
	done := make(chan error)
	a.drv.With(func() {
		go func() {
			err := a.TRecvMsg(&TMsg{Addr: fromB, Context: "look"}, fi.Peek)
			if err == nil {
				err = a.vec.Remove(fromB)
			}
			done <- err
		}()
		ok(t, <-done)
	})
	if e := waitErr(t, a.rx); e.Err != fi.EINVAL || e.Context != "look" {
		t.Errorf("%+v", e)
	}
	if n := c.ReadErr(); n != 0 {
		t.Errorf("%d errors counted", n)
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	// R-MSG-20, R-ORD-07: no byte of a fenced message, or of later ones, is there before a
	// long message that was posted earlier, although short messages overtake long ones
	// otherwise, and whatever the level of the fenced one. R-ORD-09: the entry of the earlier
	// one keeps its level; here it is written at once.
	for _, level := range []fi.Flags{fi.DeliveryComplete, 0, fi.InjectComplete} {
		r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.Fence})
		a, b, toB, _ := r.pair()
		for k := range 3 {
			ok(t, b.TRecv(make([]byte, 1<<20), fi.AddrUnspec, uint64(k), 0, k))
		}
		msg := func(k, n int, flags fi.Flags) {
			t.Helper()
			ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{make([]byte, n)}, Addr: toB, Tag: uint64(k), Context: k}, flags))
		}
		msg(0, 1<<20, fi.InjectComplete)
		msg(1, 8, fi.Fence|level)
		msg(2, 8, 0)
		if e, _ := wait(t, b.rx, a); e.Context != 0 {
			t.Errorf("level %v: message %v is there first", level, e.Context)
		}
		wait(t, b.rx, a)
		wait(t, b.rx, a)
		order := []any{}
		for range 3 {
			e, _ := wait(t, a.tx, b)
			order = append(order, e.Context)
		}
		if level == fi.DeliveryComplete && order[0] != 0 { // R-ORD-08: the fenced one's entry means that the first one is there, too
			t.Errorf("entries %v", order)
		}
		// A fence with nothing before it does not wait.
		ok(t, b.TRecv(nil, fi.AddrUnspec, 9, 0, nil))
		msg(9, 0, fi.Fence|level)
		wait(t, b.rx, a)
		wait(t, a.tx, b)
	}
}

func TestFencesNeedVisibleMessages(t *testing.T) {
	t.Parallel()
	// R-ORD-08, R-ORD-10: if a fence may follow, the transport must answer every message when
	// it is visible, whichever call posts it. Otherwise that would only delay messages.
	for caps, visible := range map[fi.Caps]bool{fi.Msg | fi.Tagged: false, fi.Msg | fi.Tagged | fi.Fence: true} {
		r := newRig(t, &Info{Caps: caps, Domain: DomainAttr{DataProgress: fi.ProgressManual}})
		a, _, toB, _ := r.pair()
		rec := a.record()
		ok(t, a.Send(nil, toB, nil)) // the next one takes the fast path
		ok(t, a.Send(nil, toB, nil))
		ok(t, a.TSend(nil, toB, 1, nil))
		ok(t, a.Inject(nil, toB))
		ok(t, a.SendMsg(&Msg{Addr: toB}, fi.InjectComplete))
		ok(t, a.TSendData(nil, 1, toB, 1, nil))
		if len(rec.ops) != 6 {
			t.Fatalf("%d operations", len(rec.ops))
		}
		for _, op := range rec.ops {
			if strings.Contains(op, "Visible:true") != visible {
				t.Errorf("%v: %s", caps, op)
			}
		}
	}
}

func TestMoreIsFlushedByAFailure(t *testing.T) {
	t.Parallel()
	// R-MSG-15: messages that FI_MORE delayed leave when a later post fails, or with the first
	// post without it.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	a, b, toB, _ := r.pair()
	for _, bad := range []func() error{
		func() error { return a.Send(nil, 4711, nil) },
		func() error { return a.Inject(make([]byte, 1<<20), toB) },
	} {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.SendMsg(&Msg{Addr: toB}, fi.More))
		if bad() == nil {
			t.Fatal("taken")
		}
		wait(t, b.rx) // a makes no further call
		wait(t, a.tx, b)
	}
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.SendMsg(&Msg{Addr: toB}, fi.More))
	ok(t, a.SendMsg(&Msg{Addr: toB}, 0))
	wait(t, b.rx)
	wait(t, b.rx)
	wait(t, a.tx, b)
	wait(t, a.tx, b)
}

func TestAsynchronousInsertion(t *testing.T) {
	t.Parallel()
	// R-AV-08, R-AV-09, R-EQ-33: the event queue gets each failure and then the end. It cannot
	// be closed while the vector uses it.
	r := newRig(t, nil)
	q, err := r.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{Flags: fi.Event}, nil)
	ok(t, err)
	a := wire.Addr{}
	_, err = v.Insert(addrs(a), nil, 0, nil)
	want(t, err, fi.ENOEQ)
	want(t, v.BindEvents(AVEvents(nil)), fi.EINVAL)
	ok(t, v.BindEvents(AVEvents(q)))
	want(t, q.Close(), fi.EBUSY)
	good, err := wire.ParseAddr("fi_addr_uet://198.18.0.1")
	ok(t, err)
	n, err := v.Insert(addrs(a, good), nil, 0, "call")
	if n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err = q.SRead(0, time.Second)
	want(t, err, fi.EAVAIL)
	e, err := q.ReadErr(0)
	ok(t, err)
	if e.Fid != v || e.Context != "call" || e.Data != 0 || e.Err != fi.EINVAL {
		t.Errorf("%+v", e)
	}
	c, err := q.SRead(0, time.Second)
	ok(t, err)
	if c.Event != fi.AVComplete || c.Fid != v || c.Context != "call" || c.Data != 1 {
		t.Errorf("%+v", c)
	}
	// R-AV-17: queued events about a vector outlive it.
	_, err = v.Insert(addrs(good), nil, 0, "last")
	ok(t, err)
	ok(t, v.Close())
	if c, err := q.Read(0); err != nil || c.Fid != v || c.Context != "last" {
		t.Errorf("%+v, %v", c, err)
	}
	ok(t, q.Close())
}
