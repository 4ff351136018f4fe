package uet

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// An adder is a pair of nodes with tagged atomic operations, and what a posts and b receives.
type adder struct {
	*rig
	a, b *node
	toB  fi.Addr
}

func newAdder(t *testing.T, caps fi.Caps, opt ...func(*options)) *adder {
	r := newRig(t, &Info{Caps: fi.Tagged | fi.Atomic | caps, AddrFormat: fi.FormatSockaddr})
	g := &adder{rig: r, a: r.node(), b: r.node(opt...)}
	g.toB = g.a.know(g.b)
	return g
}

// add is an operation on a receive with a tag.
func (g *adder) add(tag, at uint64, result []byte, v ...uint64) *AtomicMsg {
	return &AtomicMsg{Buf: u64(v...), Result: result, Addr: g.toB, Key: tag, RMAAddr: at, Type: fi.Uint64, Op: fi.Sum, Context: "op"}
}

// received returns how a receive of b ended.
func received(t *testing.T, n *node) (cq.Entry, cq.Error) {
	t.Helper()
	var e [1]cq.Entry
	var fault cq.Error
	_, err := n.rx.SRead(e[:], 1, 10*time.Second)
	if err == fi.EAVAIL {
		_, err = n.rx.ReadErr(&fault, 0)
	}
	ok(t, err)
	return e[0], fault
}

func TestTaggedAtomics(t *testing.T) {
	t.Parallel()
	// R-AMO-12, R-CQ-104, R-CQ-107, R-CQ-109, R-CQ-111: with FI_TAGGED the key is the tag and the address the offset in the receive,
	// which completes with the operation like with a message.
	g := newAdder(t, 0)
	mem, w := words(64)
	w[0], w[1], w[2], w[3] = 10, 20, 30, 40
	post := func(ctx string) { ok(t, g.b.TRecv(mem, fi.AddrUnspec, 0x75, 0x0f, ctx)) }
	done := func(flags, remote fi.Flags, n int, data uint64) {
		t.Helper()
		e, err := ends(t, g.a.tx)
		ok(t, err)
		if e.Context != "op" || e.Flags != flags {
			t.Errorf("%+v", e)
		}
		e, fault := received(t, g.b)
		if fault.Err != 0 || e.Context != "recv" || e.Flags != fi.Recv|fi.Tagged|remote || e.Len != n || e.Tag != 0x77 || e.Data != data {
			t.Errorf("%+v, %v", e, fault.Err)
		}
	}
	post("recv")
	m := g.add(0x77, 8, nil, 1, 2)
	m.Data = 9
	ok(t, g.a.AtomicMsg(m, fi.Tagged|fi.RemoteCQData|fi.DeliveryComplete))
	done(fi.Write|fi.Atomic, fi.RemoteCQData, 16, 9)
	post("recv")
	old := make([]byte, 32)
	ok(t, g.a.FetchAtomicMsg(g.add(0x77, 0, old, 5, 5, 5, 5), fi.Tagged))
	done(fi.Read|fi.Atomic, 0, 32, 0)
	if !slices.Equal(w[:4], []uint64{15, 26, 37, 45}) || !slices.Equal(old, u64(10, 21, 32, 40)) {
		t.Error(w[:4], old)
	}
	post("recv")
	m = g.add(0x77, 24, old[:8], 7)
	m.Op, m.Compare = fi.CSwap, u64(45)
	ok(t, g.a.CompareAtomicMsg(m, fi.Tagged))
	done(fi.Read|fi.Atomic, 0, 8, 0)
	post("recv")
	m = g.add(0x77, 24, old[:8])
	m.Op = fi.AtomicRead
	ok(t, g.a.FetchAtomicMsg(m, fi.Tagged))
	done(fi.Read|fi.Atomic, 0, 8, 0)
	if w[3] != 7 || native.Uint64(old) != 7 {
		t.Error(w[3], old[:8])
	}
}

func TestTaggedAtomicsWait(t *testing.T) {
	t.Parallel()
	// R-AMO-12, R-TAG-08, R-TAG-09: an operation without a receive waits for one, in the order of messages. It can be looked for,
	// claimed and discarded.
	g := newAdder(t, 0)
	mem, w := words(64)
	ok(t, g.a.AtomicMsg(g.add(7, 0, nil, 1), fi.Tagged)) // like a message it has succeeded
	_, err := ends(t, g.a.tx)
	ok(t, err)
	old := make([]byte, 16)
	ok(t, g.a.FetchAtomicMsg(g.add(7, 8, old, 2, 3), fi.Tagged))
	ok(t, g.a.TSend([]byte("message."), g.toB, 8, "msg"))
	if e, err := ends(t, g.a.tx); err != nil || e.Context != "msg" { // the value is not there yet
		t.Fatal(e, err)
	}
	w[1], w[2] = 40, 50
	for _, c := range []struct {
		n   int
		ctx string
	}{{8, "first"}, {16, "second"}} {
		ok(t, g.b.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 7, Context: "peek"}, fi.Peek))
		if e, fault := received(t, g.b); fault.Err != 0 || e.Context != "peek" || e.Len != c.n {
			t.Fatalf("%+v, %v", e, fault.Err)
		}
		ok(t, g.b.TRecv(mem, fi.AddrUnspec, 7, 0, c.ctx))
		if e, fault := received(t, g.b); fault.Err != 0 || e.Context != c.ctx || e.Len != c.n {
			t.Fatalf("%+v, %v", e, fault.Err)
		}
	}
	_, err = ends(t, g.a.tx)
	ok(t, err)
	if !slices.Equal(w[:3], []uint64{1, 42, 53}) || !slices.Equal(old, u64(40, 50)) {
		t.Error(w[:3], old)
	}
	for _, discard := range []bool{false, true} {
		ok(t, g.a.FetchAtomicMsg(g.add(9, 0, old[:8], 1), fi.Tagged))
		for start := time.Now(); ; {
			ok(t, g.b.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 9, Context: "claim"}, fi.Peek|fi.Claim))
			if _, fault := received(t, g.b); fault.Err == 0 {
				break
			}
			if time.Since(start) > patience {
				t.Fatal("it does not come")
			}
		}
		m := &TMsg{Iov: [][]byte{mem}, Addr: fi.AddrUnspec, Tag: 9, Context: "claim"}
		if discard {
			ok(t, g.b.TRecvMsg(m, fi.Claim|fi.Discard))
		} else {
			ok(t, g.b.TRecvMsg(m, fi.Claim))
		}
		if e, fault := received(t, g.b); fault.Err != 0 || e.Len != 8 {
			t.Fatalf("%+v, %v", e, fault.Err)
		}
		_, err = ends(t, g.a.tx)
		if discard {
			want(t, err, fi.ECANCELED)
		} else {
			ok(t, err)
		}
	}
	if w[0] != 2 {
		t.Error(w[0])
	}
}

func TestTaggedAtomicsRefused(t *testing.T) {
	t.Parallel()
	// R-AMO-12, R-ERR-05, -17, -20, -26, R-CMPL-12, R-CMPL-13: what cannot be is refused by the call or by the peer; elements that do not lie in
	// the receive end both in error, and change nothing.
	g := newAdder(t, fi.RMAPmem)
	m := g.add(7, 0, nil, 1)
	for _, f := range []struct {
		flags fi.Flags
		err   fi.Errno
	}{{fi.MatchComplete, fi.EOPNOTSUPP}, {fi.CommitComplete, fi.EOPNOTSUPP}, {fi.Peek, fi.EBADFLAGS}} {
		want(t, g.a.AtomicMsg(m, fi.Tagged|f.flags), f.err)
	}
	mem, w := words(32)
	for _, c := range []struct {
		at         uint64
		err, there fi.Errno
	}{{32, fi.EFAULT, fi.ETRUNC}, {28, fi.EFAULT, fi.ETRUNC}, {1 << 40, fi.EFAULT, fi.ETRUNC}, {4, fi.EINVAL, fi.EIO}} {
		for _, late := range []bool{false, true} {
			if !late {
				ok(t, g.b.TRecv(mem, fi.AddrUnspec, 7, 0, "recv"))
			}
			ok(t, g.a.FetchAtomicMsg(g.add(7, c.at, make([]byte, 8), 1), fi.Tagged))
			if late {
				time.Sleep(time.Millisecond)
				ok(t, g.b.TRecv(mem, fi.AddrUnspec, 7, 0, "recv"))
			}
			_, err := ends(t, g.a.tx)
			want(t, err, c.err)
			if _, fault := received(t, g.b); fault.Err != c.there || fault.Context != "recv" || fault.Len != 0 || fault.Flags != fi.Recv|fi.Tagged {
				t.Errorf("%d: %+v", c.at, fault)
			}
		}
	}
	if !slices.Equal(w, make([]uint64, 4)) {
		t.Error("memory has changed")
	}
	// An endpoint that does not offer atomics, or no reads of its memory, is no target.
	for _, c := range []struct {
		take fi.Caps
		err  fi.Errno
	}{{fi.Atomic | fi.RemoteRead | fi.RemoteWrite, fi.EOPNOTSUPP}, {fi.RemoteRead, fi.EACCES}} {
		caps := fi.Tagged | fi.Send | fi.Recv | fi.Atomic | fi.Read | fi.Write | fi.RemoteRead | fi.RemoteWrite
		r := newRig(t, &Info{Caps: caps, AddrFormat: fi.FormatSockaddr})
		a := r.node()
		less := *r.info
		less.Caps, less.Tx.Caps, less.Rx.Caps = less.Caps&^c.take, less.Tx.Caps&^c.take, less.Rx.Caps&^c.take
		r.info = &less
		b := r.node()
		g := &adder{r, a, b, a.know(b)}
		ok(t, b.TRecv(mem, fi.AddrUnspec, 7, 0, "recv"))
		ok(t, a.FetchAtomicMsg(g.add(7, 0, make([]byte, 8), 1), fi.Tagged))
		_, err := ends(t, a.tx)
		want(t, err, c.err)
	}
}

func TestTaggedAtomicsInOrder(t *testing.T) {
	t.Parallel()
	// R-AMO-12, R-ORD-02: tagged messages and operations on receives match in the order in which they were posted.
	r := newRig(t, &Info{Caps: fi.Tagged | fi.Atomic, AddrFormat: fi.FormatSockaddr, Tx: TxAttr{MsgOrder: fi.OrderSAS}})
	g := &adder{rig: r, a: r.node(), b: r.node()}
	g.toB = g.a.know(g.b)
	bufs := make([][]byte, 200)
	for i := range bufs {
		bufs[i], _ = words(8)
		if i%2 == 1 {
			ok(t, g.b.TRecv(bufs[i-1], fi.AddrUnspec, 7, 0, i-1))
			ok(t, g.b.TRecv(bufs[i], fi.AddrUnspec, 7, 0, i))
		}
	}
	for i := range bufs {
		if v := uint64(i + 1); i%3 == 0 {
			ok(t, g.a.TSend(u64(v), g.toB, 7, nil))
		} else {
			ok(t, g.a.AtomicMsg(g.add(7, 0, nil, v), fi.Tagged))
		}
	}
	for range bufs {
		_, err := ends(t, g.a.tx)
		ok(t, err)
		if _, fault := received(t, g.b); fault.Err != 0 {
			t.Fatal(fault)
		}
	}
	for i, b := range bufs {
		if native.Uint64(b) != uint64(i+1) {
			t.Fatalf("receive %d has %d", i, native.Uint64(b))
		}
	}
}

func TestTaggedAtomicsAreCounted(t *testing.T) {
	t.Parallel()
	// R-CNTR-03: at the target an operation counts as what it ends, a receive.
	var recvs, writes *cntr.Counter
	r := newRig(t, &Info{Caps: fi.Tagged | fi.Atomic | fi.RMAEvent, AddrFormat: fi.FormatSockaddr})
	for _, c := range []**cntr.Counter{&recvs, &writes} {
		var err error
		*c, err = r.domain.OpenCntr(cntr.Attr{WaitObj: fi.WaitUnspec}, nil)
		ok(t, err)
		defer (*c).Close()
	}
	g := &adder{rig: r, a: r.node(), b: r.node(func(o *options) {
		o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(recvs, fi.Recv)); ok(t, ep.BindCntr(writes, fi.RemoteWrite)) }
	})}
	g.toB = g.a.know(g.b)
	mem, w := words(8)
	for range 3 {
		ok(t, g.b.TRecv(mem, fi.AddrUnspec, 7, 0, nil))
		ok(t, g.a.AtomicMsg(g.add(7, 0, nil, 1), fi.Tagged))
		_, err := ends(t, g.a.tx)
		ok(t, err)
	}
	ok(t, recvs.Wait(3, 10*time.Second))
	if recvs.Read() != 3 || writes.Read() != 0 || atomic.LoadUint64(&w[0]) != 3 {
		t.Error(recvs.Read(), writes.Read(), w[0])
	}
	ok(t, g.b.Close())
}
