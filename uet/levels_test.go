package uet

import (
	"bytes"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestInjectCompleteIsNotLimited(t *testing.T) {
	t.Parallel()
	// R-CMPL-03: INJECT_COMPLETE is about when the entry is written. inject_size does not
	// limit it, and calls that write no entry do not have it.
	r := newRig(t, &Info{Tx: TxAttr{OpFlags: fi.InjectComplete}})
	a, b, toB, _ := r.pair()
	n := 5 * a.Info().Tx.InjectSize
	buf := make([]byte, n)
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	ok(t, a.Send(pattern(n, 1), toB, "long"))
	if e, _ := wait(t, a.tx, b); e.Context != "long" {
		t.Errorf("%+v", e)
	}
	if e, _ := wait(t, b.rx, a); e.Len != n || !bytes.Equal(buf, pattern(n, 1)) {
		t.Errorf("%+v", e)
	}
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	ok(t, a.Inject([]byte("x"), toB))
	wait(t, b.rx, a)
	drain(t, a)
}

func TestOrderedSendsAskForROD(t *testing.T) {
	t.Parallel()
	// R-ORD-01: ordered sends use ROD. R-ORD-04: an order that was not asked for is not
	// reported.
	for o, ordered := range map[fi.Order]bool{0: false, fi.OrderSAS: true, fi.OrderSAR: true, fi.OrderRAS: true, fi.OrderWAR: false} {
		r := newRig(t, &Info{Tx: TxAttr{MsgOrder: o}})
		if r.info.Tx.MsgOrder != o {
			t.Errorf("asked for %v, granted %v", o, r.info.Tx.MsgOrder)
		}
		if n := r.node(); n.ordered != ordered {
			t.Errorf("%v: ordered is %v", o, n.ordered)
		}
	}
}

func TestOrderedRMAAsksForROD(t *testing.T) {
	t.Parallel()
	// R-ORD-01: each order of writes, reads or atomic operations that is granted lets all of them go by
	// ROD; the orders of sends alone do not. What is on its way to nobody tells its mode.
	orders := map[fi.Order]wire.Mode{0: wire.RUD, fi.OrderSAS: wire.RUD}
	for bit := range 64 {
		if o := fi.Order(1) << bit; o&(rmaOrder|atomicOrder) != 0 {
			orders[o] = wire.ROD
		}
	}
	if len(orders) != 2+16 {
		t.Fatalf("%d orders", len(orders))
	}
	for o, mode := range orders {
		h := rma(fi.Atomic, 0)
		h.Tx.MsgOrder = o
		r := newRig(t, h)
		a, b, toB, _ := r.pair()
		ok(t, b.Close())
		buf := make([]byte, 8)
		ok(t, a.Write(buf, toB, 0, 1, "write"))
		ok(t, a.Read(buf, toB, 0, 1, "read"))
		ok(t, a.Atomic(buf, toB, 0, 1, fi.Uint64, fi.Sum, "atomic"))
		ok(t, a.FetchAtomic(buf, make([]byte, 8), toB, 0, 1, fi.Uint64, fi.Sum, "fetch"))
		list := a.Diagnose()
		if len(list) != 4 {
			t.Fatalf("%v: %d operations: %v", o, len(list), list)
		}
		for i := range list {
			if list[i].Mode != mode {
				t.Errorf("%v: %s", o, list[i].String())
			}
		}
	}
}

func TestReceiveLevels(t *testing.T) {
	t.Parallel()
	// R-TGT-07: a receive may ask for less than delivery. Host memory has the bytes all the
	// same. The stronger levels of messages do not concern a receive.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	for _, f := range []fi.Flags{fi.TransmitComplete, fi.DeliveryComplete} {
		buf := make([]byte, 5)
		ok(t, b.RecvMsg(&Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec}, f))
		ok(t, a.Send([]byte("hello"), toB, nil))
		wait(t, b.rx, a)
		if string(buf) != "hello" {
			t.Errorf("%q", buf)
		}
		wait(t, a.tx, b)
	}
	want(t, b.RecvMsg(&Msg{}, fi.CommitComplete), fi.EBADFLAGS)
}

func TestMatchComplete(t *testing.T) {
	t.Parallel()
	// R-CMPL-12, R-TAG-11: the entry comes when a receive has the message, not before. A later
	// message shows that the first one is there.
	r := newRig(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Rx: RxAttr{MsgOrder: fi.OrderSAS}})
	a, b, toB, _ := r.pair()
	for _, n := range []int{0, 100, 100_000} {
		ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{pattern(n, 1)}, Addr: toB, Tag: 1, Context: "tagged"}, fi.MatchComplete))
		ok(t, a.SendMsg(&Msg{Iov: [][]byte{pattern(n, 2)}, Addr: toB, Context: "untagged"}, fi.MatchComplete))
		ok(t, a.TSend([]byte("later"), toB, 2, "later"))
		if e, _ := wait(t, a.tx, b); e.Context != "later" {
			t.Fatalf("%v of %d bytes completes without a receive", e.Context, n)
		}
		ok(t, b.TRecv(make([]byte, 5), fi.AddrUnspec, 2, 0, nil))
		wait(t, b.rx, a)
		buf := make([]byte, n)
		ok(t, b.Recv(buf, fi.AddrUnspec, nil))
		if e, _ := wait(t, a.tx, b); e.Context != "untagged" {
			t.Errorf("%v completes, and the receive was for the untagged message", e.Context)
		}
		if e, _ := wait(t, b.rx, a); e.Len != n || !bytes.Equal(buf, pattern(n, 2)) {
			t.Errorf("%+v", e)
		}
		ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		if e, _ := wait(t, a.tx, b); e.Context != "tagged" {
			t.Errorf("%+v", e)
		}
		if e, _ := wait(t, b.rx, a); e.Len != n || !bytes.Equal(buf, pattern(n, 1)) {
			t.Errorf("%+v", e)
		}
	}
	// R-CMPL-12: an operation on a region of the peer is never matched.
	want(t, a.WriteMsg(&RMAMsg{RMAIov: []RMAIov{{}}, Addr: toB}, fi.MatchComplete), fi.EOPNOTSUPP)
	drain(t, a)
}

func TestEntryPublishesTheBytes(t *testing.T) {
	t.Parallel()
	// R-TGT-12: the reader of the entry may read the buffer, on whatever goroutine. Under
	// -race this fails if the bytes were not placed before. The progress goroutine places
	// them, another goroutine reads.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	const n = 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		bufs := [8][]byte{}
		for i := range bufs {
			bufs[i] = make([]byte, 2000)
			ok(t, b.Recv(bufs[i], fi.AddrUnspec, i))
		}
		es := make([]cq.Entry, 1)
		for got := uint64(0); got < n; got++ {
			if k, err := b.rx.SRead(es, 1, patience); k != 1 {
				t.Errorf("%d, %v", k, err)
				return
			}
			i := es[0].Context.(int)
			if !bytes.Equal(bufs[i][:es[0].Len], pattern(es[0].Len, es[0].Data)) {
				t.Errorf("message %d differs", es[0].Data)
			}
			clear(bufs[i])
			ok(t, b.Recv(bufs[i], fi.AddrUnspec, i))
		}
	}()
	for i := range uint64(n) {
		ok(t, a.SendData(pattern(int(i)*9, i), i, toB, nil))
		wait(t, a.tx)
	}
	<-done
}

func TestNoReceiveIsWaitedFor(t *testing.T) {
	t.Parallel()
	// R-MSG-16: with resource management, a message without a receive and without room waits
	// at its sender until there is one, and nothing is lost.
	hints := &Info{}
	hints.Config.Tuning.UnexpectedBytes, hints.Config.Tuning.UnexpectedShare = 1<<16, 1
	r := newRig(t, hints)
	a, b, toB, _ := r.pair()
	const n, size = 20, 20_000
	for i := range n {
		ok(t, a.TSend(pattern(size, uint64(i)), toB, uint64(i), i))
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		_, _ = b.rx.Read(nil)
		_, _ = a.tx.Read(nil)
	}
	held := 0
	a.drv.With(func() { held = a.fep.Sends() })
	if held == 0 {
		t.Error("nothing was held back")
	}
	for i := range n {
		buf := make([]byte, size)
		ok(t, b.TRecv(buf, fi.AddrUnspec, uint64(i), 0, i))
		if e, _ := wait(t, b.rx, a); e.Context != i || !bytes.Equal(buf, pattern(size, uint64(i))) {
			t.Errorf("%+v", e)
		}
	}
	for range n {
		wait(t, a.tx, b)
	}
}

func TestInsertNeedsNoTraffic(t *testing.T) {
	t.Parallel()
	// R-AV-20: insertion sends nothing and checks nothing. The first operation shows whether
	// the peer exists.
	r := newRig(t, nil)
	a := r.node()
	h, err := a.vec.InsertString("198.18.255.254:4793")
	ok(t, err)
	if s := a.Stats(); s.TxPackets != 0 || a.fep.PDCs() != 0 {
		t.Errorf("%d packets, %d PDCs", s.TxPackets, a.fep.PDCs())
	}
	ok(t, a.vec.Remove(h))
}

func TestRemoveUnderAnOperation(t *testing.T) {
	t.Parallel()
	// R-AV-23 permits refusing the removal. Here it succeeds: the operation in flight ends as
	// usual, and the next one is refused. R-AV-11: the peer may still send.
	r := newRig(t, nil)
	a, b, toB, toA := r.pair()
	ok(t, a.TSend(pattern(1<<20, 1), toB, 1, "in flight"))
	a.drv.Do(func(time.Duration) {}) // it was posted, even if another goroutine had the driver's lock
	ok(t, a.vec.Remove(toB))
	want(t, a.TSend(nil, toB, 1, nil), fi.EINVAL)
	buf := make([]byte, 1<<20)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
	wait(t, b.rx, a)
	if e, _ := wait(t, a.tx, b); e.Context != "in flight" || !bytes.Equal(buf, pattern(1<<20, 1)) {
		t.Errorf("%+v", e)
	}
	ok(t, a.Recv(nil, fi.AddrUnspec, nil))
	ok(t, b.Send(nil, toA, nil))
	if _, src := wait(t, a.rx, b); src != fi.AddrNotAvail {
		t.Errorf("source %v", src)
	}
}

func TestOrderIsPerPair(t *testing.T) {
	t.Parallel()
	// R-ORD-03: order holds between two endpoints. A destination that does not answer delays
	// no other.
	r := newRig(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}})
	a, b, toB, _ := r.pair()
	h, err := a.vec.InsertString(blackHole(t).String())
	ok(t, err)
	ok(t, a.Send(nil, h, "never"))
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, "now"))
	wait(t, b.rx, a)
	if e, _ := wait(t, a.tx, b); e.Context != "now" {
		t.Errorf("%+v", e)
	}
}

func TestAddressesHaveTheAnnouncedFormat(t *testing.T) {
	t.Parallel()
	// R-INFO-22, R-ADDR-01, R-CQ-83, R-INFO-26: lookups and the errors about unknown sources
	// have addresses in the format and length that the Info announces, and errors have room
	// for them. The address of an error makes the source known.
	for ask, length := range map[fi.AddrFormat]int{fi.FormatSockaddr: 16, fi.FormatSockaddr4: 16, fi.FormatUnspec: 40, fi.FormatStr: 0} {
		r := newRig(t, &Info{AddrFormat: ask, Caps: fi.Msg | fi.Source | fi.SourceErr})
		a, b, toB, _ := r.pair()
		ok(t, b.vec.Remove(0)) // a is unknown again
		name, err := a.Name()
		ok(t, err)
		if ask == fi.FormatStr {
			length = len(name.String())
		}
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, toB, nil))
		e := waitErr(t, b.rx, a)
		wait(t, a.tx, b)
		if e.Err != fi.EADDRNOTAVAIL || len(e.ErrData) != length || length > r.info.Domain.MaxErrData {
			t.Errorf("%v: %v with %x, want %d bytes, MaxErrData %d", ask, &e, e.ErrData, length, r.info.Domain.MaxErrData)
		}
		h := []fi.Addr{0}
		if n, err := b.vec.InsertRecords([][]byte{e.ErrData}, h, 0, nil); n != 1 {
			t.Fatal(err)
		}
		rec := make([]byte, 200)
		n, err := b.vec.LookupRecord(h[0], rec)
		if err != nil || !bytes.Equal(rec[:n], e.ErrData) {
			t.Errorf("%v: looked up %x, %v, want %x", ask, rec[:n], err, e.ErrData)
		}
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, toB, nil))
		if _, src := wait(t, b.rx, a); src != h[0] {
			t.Errorf("%v: source %v, want %v", ask, src, h[0])
		}
		wait(t, a.tx, b)
	}
}

func TestAddressForms(t *testing.T) {
	// R-ADDR-03: conversion to the C layout of the reference provider and back. R-ADDR-05:
	// fields that are not valid take their default.
	a, err := wire.ParseAddr("fi_addr_uet://198.18.0.1/3/7/99")
	ok(t, err)
	c, err := a.AppendC(nil)
	ok(t, err)
	back, err := wire.ParseAddrC(c)
	ok(t, err)
	if back.String() != a.String() {
		t.Errorf("%v became %v", a, back)
	}
	b, err := a.AppendBinary(nil)
	ok(t, err)
	b[2] &^= wire.AddrPIDValid | wire.AddrRIValid | wire.AddrInitiatorValid
	d, _, err := wire.ParseAddrBinary(b)
	ok(t, err)
	if d.PIDonFEP != 0 || d.RI != 15 || d.NumRI != 1 || d.Initiator != 16 {
		t.Errorf("%+v", d)
	}
}

func TestGetInfoReportsWhatIsThere(t *testing.T) {
	in := loopback(t, nil)
	// R-INFO-04: the primary capabilities of messages.
	if w := fi.Msg | fi.Tagged | fi.DirectedRecv | fi.Send | fi.Recv; in.Caps&w != w || in.Caps&(fi.RMA|fi.Atomic) != 0 {
		t.Errorf("caps %v", in.Caps)
	}
	// R-INFO-22: addresses have the form of the socket's, or are text or UET records if asked
	// for.
	if in.AddrFormat != fi.FormatSockaddr4 {
		t.Errorf("format %v", in.AddrFormat)
	}
	for ask, w := range map[fi.AddrFormat]fi.AddrFormat{
		fi.FormatUnspec: fi.FormatUnspec, fi.FormatSockaddr: fi.FormatSockaddr4, fi.FormatSockaddrs: fi.FormatSockaddr4, fi.FormatStr: fi.FormatStr,
	} {
		if in := loopback(t, &Info{AddrFormat: ask}); in.AddrFormat != w {
			t.Errorf("asked for %v, granted %v", ask, in.AddrFormat)
		}
	}
	// R-INFO-25: so many endpoints, each with a transmit and a receive context, and memory
	// regions.
	d := in.Domain
	if d.EpCnt < 1 || d.TxCtxCnt != d.EpCnt || d.RxCtxCnt != d.EpCnt || d.CQCnt < 1 || d.MRCnt < 1 || d.MaxEpTxCtx != 1 || d.MaxEpRxCtx != 1 {
		t.Errorf("%+v", d)
	}
	r := newRig(t, nil)
	eps := make([]*Endpoint, d.EpCnt)
	for i := range eps {
		var err error
		eps[i], err = r.domain.OpenEndpoint(r.info, nil)
		ok(t, err)
	}
	for _, ep := range eps {
		ok(t, ep.Close())
	}
}
