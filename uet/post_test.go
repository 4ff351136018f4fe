package uet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// pattern fills a message so that messages differ from each other, and parts of one message
// from each other.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	_, _ = r.Read(b)
	return b
}

func TestEveryPostingCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, toA := r.pair()
	msg := pattern(300, 1)
	iov := [][]byte{msg[:1], msg[1:1], msg[1:200], msg[200:]}
	const tag, data = 0xfedcba9876543210, 0x1122334455667788
	type call struct {
		name   string
		post   func() error
		tagged bool
		data   bool
		silent bool
	}
	for _, c := range []call{
		{"send", func() error { return a.Send(msg, toB, "tx") }, false, false, false},
		{"sendv", func() error { return a.Sendv(iov, toB, "tx") }, false, false, false},
		{"senddata", func() error { return a.SendData(msg, data, toB, "tx") }, false, true, false},
		{"sendmsg", func() error { return a.SendMsg(&Msg{Iov: iov, Addr: toB, Context: "tx", Data: 7}, 0) }, false, false, false},
		{"sendmsg data", func() error {
			return a.SendMsg(&Msg{Iov: iov, Addr: toB, Context: "tx", Data: data}, fi.RemoteCQData)
		}, false, true, false},
		{"sendmsg inject", func() error { return a.SendMsg(&Msg{Iov: iov, Addr: toB, Context: "tx"}, fi.Inject) }, false, false, false},
		{"inject", func() error { return a.Inject(msg, toB) }, false, false, true},
		{"injectdata", func() error { return a.InjectData(msg, data, toB) }, false, true, true},
		{"tsend", func() error { return a.TSend(msg, toB, tag, "tx") }, true, false, false},
		{"tsendv", func() error { return a.TSendv(iov, toB, tag, "tx") }, true, false, false},
		{"tsenddata", func() error { return a.TSendData(msg, data, toB, tag, "tx") }, true, true, false},
		{"tsendmsg", func() error {
			return a.TSendMsg(&TMsg{Iov: iov, Addr: toB, Tag: tag, Context: "tx", Data: data}, fi.RemoteCQData|fi.Completion)
		}, true, true, false},
		{"tinject", func() error { return a.TInject(msg, toB, tag) }, true, false, true},
		{"tinjectdata", func() error { return a.TInjectData(msg, data, toB, tag) }, true, true, true},
	} {
		for _, rcv := range []string{"plain", "vector", "msg"} {
			t.Run(c.name+", "+rcv, func(t *testing.T) {
				buf := make([]byte, 400)
				parts := [][]byte{buf[:7], buf[7:7], buf[7:301], buf[301:]}
				switch {
				case c.tagged && rcv == "plain":
					ok(t, b.TRecv(buf, toA, tag, 0, "rx"))
				case c.tagged && rcv == "vector":
					ok(t, b.TRecvv(parts, toA, tag, 0, "rx"))
				case c.tagged:
					ok(t, b.TRecvMsg(&TMsg{Iov: parts, Addr: toA, Tag: tag + 5, Ignore: 0xff, Context: "rx"}, fi.Completion))
				case rcv == "plain":
					ok(t, b.Recv(buf, toA, "rx"))
				case rcv == "vector":
					ok(t, b.Recvv(parts, toA, "rx"))
				default:
					ok(t, b.RecvMsg(&Msg{Iov: parts, Addr: toA, Context: "rx"}, fi.More))
				}
				ok(t, c.post())
				e, src := wait(t, b.rx, a)
				// R-CQ-106, -107, -110, -111, -117; R-CQ-104: the sender's tag; R-MSG-07.
				w := cq.Entry{Context: "rx", Flags: fi.Recv | fi.Msg, Len: len(msg)}
				if c.tagged {
					w.Flags, w.Tag = fi.Recv|fi.Tagged, tag
				}
				if c.data {
					w.Flags, w.Data = w.Flags|fi.RemoteCQData, data
				}
				if e.Context != w.Context || e.Flags != w.Flags || e.Len != w.Len || e.Tag != w.Tag || e.Data != w.Data || e.Buf != nil {
					t.Errorf("receive %+v, want %+v", e, w)
				}
				if src != toA {
					t.Errorf("source %v", src)
				}
				if !bytes.Equal(buf[:len(msg)], msg) {
					t.Error("the bytes differ")
				}
				if c.silent {
					drain(t, a)
					return
				}
				e, src = wait(t, a.tx, b)
				w = cq.Entry{Context: "tx", Flags: fi.Send | fi.Msg}
				if c.tagged {
					w.Flags = fi.Send | fi.Tagged
				}
				if e.Context != w.Context || e.Flags != w.Flags || e.Len != 0 || e.Tag != 0 || e.Data != 0 { // R-CQ-101
					t.Errorf("send %+v, want %+v", e, w)
				}
				if src != fi.AddrNotAvail { // R-CQ-56
					t.Errorf("source of a send: %v", src)
				}
			})
		}
	}
}

// drain waits until nothing is outstanding at n's transmit queue. It fails the test if an
// entry was written.
func drain(t *testing.T, n *node) {
	t.Helper()
	for start := time.Now(); n.tx.Reserved() > 0; {
		if k, err := n.tx.Read(make([]cq.Entry, 1)); k != 0 || !errors.Is(err, fi.EAGAIN) {
			t.Fatalf("an entry for an operation that writes none: %d, %v", k, err)
		}
		if time.Since(start) > patience {
			t.Fatal("it does not end")
		}
	}
}

func TestPostingCallsRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Info{Tx: TxAttr{InjectSize: 1000}})
	a, b := r.node(), r.node()
	toB := a.know(b)
	p, err := a.PathInfo()
	ok(t, err)
	big := make([]byte, p.InjectSize+1)
	// R-MSG-05, R-MSG-06, R-TAG-12
	want(t, a.Inject(big, toB), fi.EMSGSIZE)
	want(t, a.InjectData(big, 1, toB), fi.EMSGSIZE)
	want(t, a.TInject(big, toB, 1), fi.EMSGSIZE)
	want(t, a.TInjectData(big, 1, toB, 1), fi.EMSGSIZE)
	want(t, a.SendMsg(&Msg{Iov: [][]byte{big}, Addr: toB}, fi.Inject), fi.EMSGSIZE)
	// R-MSG-17
	many := make([][]byte, IovLimit+1)
	want(t, a.Sendv(many, toB, nil), fi.EINVAL)
	want(t, a.TSendv(many, toB, 1, nil), fi.EINVAL)
	want(t, a.Recvv(many, toB, nil), fi.EINVAL)
	want(t, a.TRecvv(many, toB, 1, 0, nil), fi.EINVAL)
	// R-CMPL-13: levels are not weakened silently.
	for _, f := range []fi.Flags{fi.CommitComplete, fi.CommitComplete | fi.DeliveryComplete} {
		want(t, a.SendMsg(&Msg{Addr: toB}, f), fi.EOPNOTSUPP)
		want(t, a.TSendMsg(&TMsg{Addr: toB}, f), fi.EOPNOTSUPP)
	}
	// R-ORD-12, and other flags that are not offered. R-CQ-112: nothing is sent or received by multicast, so no entry has that flag.
	for _, f := range []fi.Flags{fi.Fence, fi.Trigger, fi.MultiRecv, fi.Peek, fi.Multicast} {
		want(t, a.SendMsg(&Msg{Addr: toB}, f), fi.EBADFLAGS)
		want(t, a.TSendMsg(&TMsg{Addr: toB}, f), fi.EBADFLAGS)
		if f != fi.MultiRecv {
			want(t, a.RecvMsg(&Msg{Addr: toB}, f), fi.EBADFLAGS)
		}
	}
	want(t, a.TRecvMsg(&TMsg{}, fi.Inject), fi.EBADFLAGS)
	for _, iov := range [][][]byte{nil, {nil}, {big, big}} {
		want(t, a.RecvMsg(&Msg{Iov: iov, Addr: fi.AddrUnspec}, fi.MultiRecv), fi.EINVAL)
	}
	for _, f := range []fi.Flags{fi.Discard, fi.Peek | fi.Claim | fi.Discard, fi.Peek | fi.MultiRecv} { // R-TAG-09
		want(t, a.TRecvMsg(&TMsg{Iov: [][]byte{big}, Addr: fi.AddrUnspec, Context: 1}, f), fi.EINVAL)
	}
	want(t, a.TRecvMsg(&TMsg{}, fi.Peek|fi.Claim), fi.EINVAL) // there is no context to claim by
	want(t, a.TRecvMsg(&TMsg{Context: []int{1}}, fi.Claim), fi.EINVAL)
	want(t, a.SendMsg(nil, 0), fi.EINVAL)
	want(t, a.TSendMsg(nil, 0), fi.EINVAL)
	want(t, a.RecvMsg(nil, 0), fi.EINVAL)
	want(t, a.TRecvMsg(nil, 0), fi.EINVAL)
	want(t, a.Send(nil, 77, nil), fi.EINVAL)        // R-AV-19
	want(t, a.Recv(nil, 77, nil), fi.EINVAL)        // a directed receive that names no peer
	want(t, a.TRecv(nil, 77, 0, 0, nil), fi.EINVAL) //
	if a.tx.Reserved() != 0 || a.rx.Reserved() != 0 {
		t.Errorf("%d and %d places stay reserved", a.tx.Reserved(), a.rx.Reserved())
	}
}

func TestMessagesOfEverySize(t *testing.T) {
	t.Parallel()
	// R-MSG-02, R-MSG-03: from an empty message to many windows. Boundaries stay, the bytes
	// differ everywhere, the tags are out of order, expected and unexpected.
	for _, order := range []fi.Order{0, fi.OrderSAS} {
		t.Run(fmt.Sprintf("order %v", order), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &Info{Tx: TxAttr{MsgOrder: order}, Rx: RxAttr{MsgOrder: order}})
			a, b, toB, _ := r.pair()
			p, _ := a.PathInfo()
			m := p.PayloadMTU
			sizes := []int{0, 1, 7, 8, 1023, 1024, 1025, m - 1, m, m + 1, 2 * m, 3*m + 5, 64 * m, 65*m + 1, 1 << 20, 5<<20 + 3}
			bufs := make([][]byte, len(sizes))
			post := func(i int) {
				bufs[i] = bytes.Repeat([]byte{0xa5}, sizes[i]+1)
				ok(t, b.TRecv(bufs[i], fi.AddrUnspec, uint64(i), 0, i))
			}
			for i := 0; i < len(sizes); i += 2 {
				post(i)
			}
			for i := len(sizes) - 1; i >= 0; i-- {
				ok(t, a.TSend(pattern(sizes[i], uint64(i)), toB, uint64(i), i))
			}
			for i := 1; i < len(sizes); i += 2 {
				post(i)
			}
			for range sizes {
				e, _ := wait(t, b.rx, a)
				i := e.Context.(int)
				if e.Len != sizes[i] || e.Tag != uint64(i) {
					t.Errorf("message of %d bytes: %+v", sizes[i], e)
				}
				if !bytes.Equal(bufs[i][:sizes[i]], pattern(sizes[i], uint64(i))) {
					t.Errorf("message of %d bytes differs", sizes[i])
				}
				if bufs[i][sizes[i]] != 0xa5 {
					t.Errorf("message of %d bytes: a byte beyond it was written", sizes[i])
				}
			}
			for range sizes {
				wait(t, a.tx, b)
			}
		})
	}
}

func TestInjectedBytesAreCopied(t *testing.T) {
	t.Parallel()
	// fabtests inject_test: the buffer is overwritten directly after an inject, and after the
	// completion of an INJECT_COMPLETE send (R-CMPL-02). The receiver sees the old bytes.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	const n = 100
	want := pattern(1000, 3)
	for i := range n {
		buf := bytes.Clone(want)
		switch i % 4 {
		case 0:
			ok(t, a.TInject(buf, toB, 1))
		case 1:
			ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{buf[:10], buf[10:]}, Addr: toB, Tag: 1}, fi.Inject))
		case 2:
			ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{buf}, Addr: toB, Tag: 1}, fi.InjectComplete))
			for done := false; !done; {
				e, _ := wait(t, a.tx, b)
				done = e.Context == nil
			}
		case 3: // R-CMPL-16: inject and a level are independent
			ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{buf}, Addr: toB, Tag: 1, Context: "dc"}, fi.Inject|fi.DeliveryComplete))
			clear(buf)
			for done := false; !done; {
				e, _ := wait(t, a.tx, b)
				done = e.Context == "dc"
			}
		}
		clear(buf)
	}
	for range n {
		got := make([]byte, 1000)
		ok(t, b.TRecv(got, fi.AddrUnspec, 1, 0, nil))
		wait(t, b.rx, a)
		if !bytes.Equal(got, want) {
			t.Fatal("bytes changed after they were injected")
		}
	}
}

func TestTruncation(t *testing.T) {
	t.Parallel()
	// R-MSG-11, R-CQ-89: FI_ETRUNC with len = placed and olen = lost, both for expected and
	// for unexpected messages.
	for _, unexpected := range []bool{false, true} {
		r := newRig(t, nil)
		a, b, toB, _ := r.pair()
		buf := make([]byte, 100)
		msg := pattern(5000, 9)
		post := func() { ok(t, b.TRecv(buf[:60], fi.AddrUnspec, 4, 0, "short")) }
		if !unexpected {
			post()
		}
		ok(t, a.TSendData(msg, 11, toB, 4, nil))
		if unexpected {
			for range 1000 {
				_, _ = b.rx.Read(nil)
				_, _ = a.tx.Read(nil)
			}
			post()
		}
		e := waitErr(t, b.rx, a)
		if e.Err != fi.ETRUNC || e.Len != 60 || e.OverLen != 4940 || e.Tag != 4 || e.Data != 11 || e.Context != "short" {
			t.Errorf("%+v", e)
		}
		if !bytes.Equal(buf[:60], msg[:60]) || !bytes.Equal(buf[60:], make([]byte, 40)) {
			t.Error("the bytes placed are wrong")
		}
	}
}

func TestTruncationNamesItsSource(t *testing.T) {
	t.Parallel()
	// R-CQ-87: the error entry of a message that was too long has its source, if the endpoint
	// reports sources. With FI_SOURCE_ERR a source that the AV does not have is in err_data.
	for _, c := range []struct {
		caps  fi.Caps
		known bool
	}{{fi.Tagged | fi.Source, true}, {fi.Tagged | fi.Source | fi.SourceErr, true}, {fi.Tagged | fi.Source, false}, {fi.Tagged | fi.Source | fi.SourceErr, false}, {fi.Tagged, true}} {
		r := newRig(t, &Info{Caps: c.caps})
		a, b := r.node(), r.node()
		toB := a.know(b)
		want := fi.AddrNotAvail
		if c.known {
			b.know(b) // so that the handle is not 0
			if toA := b.know(a); c.caps&fi.Source != 0 {
				want = toA
			}
		}
		ok(t, b.TRecv(make([]byte, 60), fi.AddrUnspec, 4, 0, "short"))
		ok(t, a.TSend(make([]byte, 100), toB, 4, nil))
		e := waitErr(t, b.rx, a)
		if e.Err != fi.ETRUNC || e.Source != want || e.OverLen != 40 {
			t.Errorf("%v known %v: %+v, want source %v", c.caps, c.known, e, want)
		}
		if (e.ErrData != nil) != (c.caps&fi.SourceErr != 0 && !c.known) {
			t.Errorf("%v known %v: err_data %x", c.caps, c.known, e.ErrData)
		} else if e.ErrData != nil {
			addr, _, err := wire.ParseAddrBinary(e.ErrData)
			name, _ := a.Name()
			if err != nil || addr.AddrPort() != name.AddrPort() {
				t.Errorf("err_data names %v, %v", addr, err)
			}
		}
	}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, toA := r.pair()
	c := r.node()
	cToB := c.know(b)
	fromC := b.know(c)
	buf := make([]byte, 8)
	next := func() any {
		t.Helper()
		e, _ := wait(t, b.rx, a, c)
		return e.Context
	}
	send := func(n *node, to fi.Addr, tag uint64) {
		t.Helper()
		ok(t, n.TSend(nil, to, tag, nil))
		wait(t, n.tx, b)
	}
	t.Run("post order", func(t *testing.T) { // R-MSG-08, R-TAG-02
		ok(t, b.TRecv(buf, fi.AddrUnspec, 0x10, 0x0f, "wild"))
		ok(t, b.TRecv(buf, fi.AddrUnspec, 0x12, 0, "exact"))
		send(a, toB, 0x12)
		send(a, toB, 0x12)
		if x, y := next(), next(); x != "wild" || y != "exact" {
			t.Errorf("%v, %v", x, y)
		}
	})
	t.Run("tagged and untagged apart", func(t *testing.T) { // R-TAG-04
		ok(t, b.Recv(buf, fi.AddrUnspec, "untagged"))
		ok(t, b.TRecv(buf, fi.AddrUnspec, 0, ^uint64(0), "tagged"))
		send(a, toB, 5)
		if x := next(); x != "tagged" {
			t.Errorf("%v", x)
		}
		ok(t, a.Send(nil, toB, nil))
		wait(t, a.tx, b)
		if x := next(); x != "untagged" {
			t.Errorf("%v", x)
		}
	})
	t.Run("directed", func(t *testing.T) { // R-MSG-09, R-MSG-10
		ok(t, b.TRecv(buf, fromC, 1, 0, "of c"))
		ok(t, b.TRecv(buf, toA, 1, 0, "of a"))
		send(a, toB, 1)
		send(c, cToB, 1)
		if x, y := next(), next(); x != "of a" || y != "of c" {
			t.Errorf("%v, %v", x, y)
		}
	})
	t.Run("to itself", func(t *testing.T) { // fabtests loopback
		self := a.know(a)
		ok(t, a.TRecv(buf, self, 1, 0, "self"))
		ok(t, a.TSend([]byte("me"), self, 1, nil))
		if e, _ := wait(t, a.rx); e.Len != 2 {
			t.Errorf("%+v", e)
		}
		wait(t, a.tx)
	})
}

func TestDirectedReceiveNeedsTheCapability(t *testing.T) {
	t.Parallel()
	// R-MSG-09: without the capability the source is ignored, whatever it is; R-TAG-03.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged})
	a, b := r.node(), r.node()
	toB := a.know(b)
	ok(t, b.Recv(nil, 4711, "any"))
	ok(t, b.TRecv(nil, 4711, 1, 0, "tagged"))
	ok(t, a.Send(nil, toB, nil))
	wait(t, b.rx, a)
	ok(t, a.TSend(nil, toB, 1, nil))
	wait(t, b.rx, a)

	r = newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.TaggedDirectedRecv})
	n := r.node()
	ok(t, n.Recv(nil, 4711, nil))
	want(t, n.TRecv(nil, 4711, 1, 0, nil), fi.EINVAL)
}

func TestSendOrder(t *testing.T) {
	t.Parallel()
	// R-ORD-05: with SAS, two sends that match the same receives match in post order, whatever
	// their lengths and calls.
	r := newRig(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Rx: RxAttr{MsgOrder: fi.OrderSAS}})
	a, b, toB, _ := r.pair()
	const n = 200
	big := make([]byte, 100_000)
	for i := range n {
		ok(t, b.TRecv(make([]byte, len(big)), fi.AddrUnspec, 0, ^uint64(0), i))
		switch i % 4 {
		case 0:
			ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{big[:i]}, Addr: toB, Tag: uint64(i)}, fi.Inject))
		case 1:
			ok(t, a.TInject(big[:i], toB, uint64(i)))
		default:
			ok(t, a.TSend(big[:(i*7919)%len(big)], toB, uint64(i), nil))
		}
	}
	for i := range n {
		e, _ := wait(t, b.rx, a)
		if e.Context != int(e.Tag) {
			t.Fatalf("message %d: receive %v took message %d", i, e.Context, e.Tag)
		}
	}
	for range n - n/4 { // an inject call writes no entry
		wait(t, a.tx, b)
	}
}

func TestSelectiveCompletion(t *testing.T) {
	t.Parallel()
	// R-EP-07 to R-EP-09.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair(func(o *options) { o.txFlags, o.rxFlags = fi.SelectiveCompletion, fi.SelectiveCompletion })
	for i := range 4 {
		ok(t, b.Recv(nil, fi.AddrUnspec, i))
	}
	ok(t, b.RecvMsg(&Msg{Addr: fi.AddrUnspec, Context: "asked"}, fi.Completion))
	for i := range 4 {
		ok(t, a.Send(nil, toB, i))
	}
	ok(t, a.SendMsg(&Msg{Addr: toB, Context: "asked"}, fi.Completion))
	if e, _ := wait(t, a.tx, b); e.Context != "asked" {
		t.Errorf("send %+v", e)
	}
	if e, _ := wait(t, b.rx, a); e.Context != "asked" {
		t.Errorf("receive %+v", e)
	}
	drain(t, a)
	if n := b.rx.Reserved(); n != 0 {
		t.Errorf("%d places of silent receives stay reserved", n)
	}
	// Failures are written all the same.
	ok(t, b.Recv(make([]byte, 1), fi.AddrUnspec, "short"))
	ok(t, a.Send(make([]byte, 2), toB, nil))
	if e := waitErr(t, b.rx, a); e.Err != fi.ETRUNC || e.Context != "short" {
		t.Errorf("%+v", e)
	}
	drain(t, a)

	// With FI_COMPLETION among the endpoint's flags, calls without flags write entries. A call
	// with flags that lack it does not.
	r = newRig(t, &Info{Tx: TxAttr{OpFlags: fi.Completion}, Rx: RxAttr{OpFlags: fi.Completion}})
	a, b, toB, _ = r.pair(func(o *options) { o.txFlags, o.rxFlags = fi.SelectiveCompletion, fi.SelectiveCompletion })
	ok(t, b.RecvMsg(&Msg{Addr: fi.AddrUnspec, Context: "quiet"}, 0))
	ok(t, b.Recv(nil, fi.AddrUnspec, "loud"))
	ok(t, a.SendMsg(&Msg{Addr: toB, Context: "quiet"}, 0))
	ok(t, a.Send(nil, toB, "loud"))
	if e, _ := wait(t, a.tx, b); e.Context != "loud" {
		t.Errorf("send %+v", e)
	}
	if e, _ := wait(t, b.rx, a); e.Context != "loud" {
		t.Errorf("receive %+v", e)
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name      string
		flags     fi.Flags
		selective bool
		want      plan
		err       error
	}{
		{name: "default", want: plan{level: transport.LevelTransmit}}, // R-CMPL-10
		{name: "inject complete", flags: fi.InjectComplete, want: plan{level: transport.LevelInject}},
		{name: "strongest wins", flags: fi.InjectComplete | fi.TransmitComplete, want: plan{level: transport.LevelTransmit}}, // R-CMPL-15
		{name: "delivery", flags: fi.Levels &^ (fi.MatchComplete | fi.CommitComplete), want: plan{level: transport.LevelDelivery}},
		{name: "match", flags: fi.MatchComplete | fi.DeliveryComplete, want: plan{level: transport.LevelMatch}}, // R-CMPL-15
		{name: "commit", flags: fi.CommitComplete | fi.DeliveryComplete, err: fi.EOPNOTSUPP},                    // R-CMPL-13
		{name: "inject", flags: fi.Inject | fi.DeliveryComplete, want: plan{level: transport.LevelDelivery, inject: true}},
		{name: "selective", selective: true, want: plan{level: transport.LevelTransmit, silent: true}},
		{name: "selective, asked", selective: true, flags: fi.Completion, want: plan{level: transport.LevelTransmit}},
		{name: "more", flags: fi.More, want: plan{level: transport.LevelTransmit, more: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ep := &Endpoint{txq: binding{selective: c.selective}}
			got, err := ep.planOf(c.flags)
			if err != c.err || err == nil && got != c.want {
				t.Errorf("%+v, %v; want %+v, %v", got, err, c.want, c.err)
			}
		})
	}
	// R-CMPL-14: the flags of a call replace the endpoint's. If they have no level, the
	// endpoint's level applies.
	ep := &Endpoint{}
	ep.ep = ep
	ep.tx.Store(&txDefaults{flags: fi.DeliveryComplete | fi.Inject})
	if p, _ := ep.planMsg(0); p.level != transport.LevelDelivery || p.inject {
		t.Errorf("%+v", p)
	}
	if p, _ := ep.planMsg(fi.InjectComplete); p.level != transport.LevelInject {
		t.Errorf("%+v", p)
	}
}

func TestQueueRoomIsReserved(t *testing.T) {
	t.Parallel()
	// R-CQ-127, R-CQ-128, F20: with resource management, an operation is refused if its
	// completion has no place, and nothing is lost.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair(func(o *options) { o.attr.Size = 64 })
	size := a.tx.Attr().Size
	posted := 0
	for posted < 10*size && a.Send(nil, toB, posted) == nil {
		posted++
	}
	if posted != size {
		t.Errorf("%d sends were taken for a queue of %d", posted, size)
	}
	want(t, a.Send(nil, toB, nil), fi.EAGAIN) // R-EP-20
	want(t, a.Inject(nil, toB), fi.EAGAIN)    // a failure of it would need a place
	for i := range size {
		ok(t, b.Recv(nil, fi.AddrUnspec, i))
	}
	want(t, b.Recv(nil, fi.AddrUnspec, nil), fi.EAGAIN)
	for range size {
		wait(t, b.rx, a)
	}
	for range size {
		wait(t, a.tx, b)
	}
	ok(t, a.Send(nil, toB, nil)) // reading made room
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
}

func TestOverrunWithoutManagement(t *testing.T) {
	t.Parallel()
	// R-CQ-126, R-CQ-129, R-ERR-41, R-EP-15: without resource management the queue overruns,
	// the event queue reports it, and the endpoint is disabled (R-EQ-46).
	h := &Info{Domain: DomainAttr{ResourceMgmt: fi.RMDisabled}}
	h.Config.Tuning.PeerTimeout = 5 * time.Second // long enough for a busy machine, because only the last send waits for it
	r := newRig(t, h)
	// Only b's queue is to overrun: that of a may get an error of each injected message.
	a, b := r.node(), r.node(func(o *options) { o.attr.Size = 64 })
	toB, toA := a.know(b), b.know(a)
	ok(t, b.TSend(make([]byte, 64<<20), toA, 1, "pending")) // more than a keeps
	for range b.rx.Attr().Size + 2 {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Inject(nil, toB))
	}
	for start := time.Now(); !b.rx.Overrun(); {
		_, _ = b.rx.Read(nil)
		_, _ = a.tx.Read(nil)
		if time.Since(start) > patience {
			t.Fatal("no overrun")
		}
	}
	e, err := b.evts.ReadErr(0)
	ok(t, err)
	if e.Fid != b.rx || e.Err != fi.EOVERRUN {
		t.Errorf("%+v", e)
	}
	want(t, b.Send(nil, 0, nil), fi.EOPBADSTATE)
	want(t, b.Enable(), fi.EOPBADSTATE)
	if _, err := b.Name(); err != nil {
		t.Error(err)
	}
	// R-EP-15: pending messages are discarded. None goes into a receive whose end nobody will
	// learn of, and its sender does not count it as received.
	if e := waitErr(t, b.tx, a); e.Context != "pending" || e.Err != fi.ECANCELED {
		t.Errorf("%+v", e)
	}
	for n := 1; n > 0; n, _ = a.tx.Read(make([]cq.Entry, 64)) {
	}
	ok(t, a.Send(nil, toB, "late"))
	late := waitErr(t, a.tx, b)
	for late.Context == nil && late.Err != fi.EOVERRUN { // of an injected message that was under way when b's queue overran
		late = waitErr(t, a.tx, b)
	}
	if late.Context != "late" {
		t.Errorf("%+v", late)
	}
}

func TestSendQueueIsBounded(t *testing.T) {
	t.Parallel()
	// R-EP-20: a full transmit or receive queue gives FI_EAGAIN. No other goroutine may drive
	// the endpoint here, because a post left to it would wait for room in its queue.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}, Tx: TxAttr{Size: 16}, Rx: RxAttr{Size: 16}})
	a, b, toB, _ := r.pair()
	n, k := 0, 0
	for n < 100 && a.Send(nil, toB, nil) == nil {
		n++
	}
	for k < 100 && a.Recv(nil, fi.AddrUnspec, nil) == nil {
		k++
	}
	if n != 16 || k != 16 {
		t.Errorf("%d sends and %d receives were taken, want 16", n, k)
	}
	want(t, a.TSend(nil, toB, 0, nil), fi.EAGAIN)
	want(t, a.TRecv(nil, fi.AddrUnspec, 0, 0, nil), fi.EAGAIN)
	for range n {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		wait(t, b.rx, a)
	}
	for range n {
		wait(t, a.tx, b)
	}
}

func TestForeignJobIsRefused(t *testing.T) {
	t.Parallel()
	// R-ADDR-07, R-ADDR-08, T17: the JobID of domain or endpoint key is checked for each
	// request.
	r := newRig(t, nil)
	a := r.node()
	r.info.Ep.AuthKey = []byte{0, 0, 42}
	b := r.node()
	toB := a.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, "foreign"))
	e := waitErr(t, a.tx, b)
	if e.Err != fi.EACCES || e.Prov == 0 || e.OutcomeUnknown {
		t.Errorf("%+v", e)
	}
	c := r.node()
	toB = c.know(b)
	ok(t, c.Send(nil, toB, nil))
	wait(t, b.rx, c)
	wait(t, c.tx, b)
	// The key of the endpoint takes precedence over that of the domain.
	r.info.Domain.AuthKey = []byte{0, 0, 7}
	d := r.node()
	toB = d.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, d.Send(nil, toB, nil))
	wait(t, b.rx, d)
	wait(t, d.tx, b)
	r.info.Ep.AuthKey = nil
	e7 := r.node()
	toB = e7.know(b)
	ok(t, e7.Send(nil, toB, nil))
	if e := waitErr(t, e7.tx, b); e.Err != fi.EACCES {
		t.Errorf("%+v", e)
	}
}

func TestOtherEndpointOfTheAddressIsRefused(t *testing.T) {
	t.Parallel()
	// S-ADDR-01, R-ERR-22, R-ERR-23: BAD_PID, BAD_INDEX.
	r := newRig(t, nil)
	a, b := r.node(), r.node()
	name, err := b.Name()
	ok(t, err)
	for _, s := range []string{"/5/15", "/0/16"} {
		h, err := a.vec.InsertString("fi_addr_uet://" + name.AddrPort().String() + s)
		ok(t, err)
		ok(t, a.Send(nil, h, nil))
		if e := waitErr(t, a.tx, b); e.Err != fi.ECONNREFUSED {
			t.Errorf("%s: %+v", s, e)
		}
	}
}

func TestLimitedPeers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b := r.node(), r.node()
	name, err := b.Name()
	ok(t, err)
	insert := func(flags uint8, caps uint16) fi.Addr {
		t.Helper()
		n := name
		n.Flags, n.Caps = n.Flags&^wire.AddrCapsValid|flags, caps
		h := make([]fi.Addr, 1)
		if k, err := a.vec.Insert(addrs(n), h, 0, nil); k != 1 {
			t.Fatal(err)
		}
		return h[0]
	}
	p, _ := a.PathInfo()
	one := insert(1<<7, 0) // R-ADDR-12, S-SEG-10: messages limited to one MTU
	want(t, a.Send(make([]byte, p.PayloadMTU+1), one, nil), fi.EMSGSIZE)
	ok(t, b.Recv(make([]byte, p.PayloadMTU), fi.AddrUnspec, nil))
	ok(t, a.Send(make([]byte, p.PayloadMTU), one, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	want(t, a.Send(make([]byte, p.PayloadMTU+1), one, nil), fi.EMSGSIZE) // also once the peer is known
	to, err := a.dest(one)
	ok(t, err)
	want(t, (*owner)(a.Endpoint).Known(to, transport.OpTSend, p.PayloadMTU+1), fi.EMSGSIZE) // also when another goroutine drives
	none := insert(1, 1<<5)                                                                 // R-ADDR-11: no profile in common
	want(t, a.Send(nil, none, nil), fi.EOPNOTSUPP)
}

func TestPostNoAllocs(t *testing.T) {
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	a, b := r.node(), r.node()
	toB := a.know(b)
	buf, msg := make([]byte, 5000), make([]byte, 5000)
	iov := [][]byte{msg[:100], msg[100:]}
	es := make([]cq.Entry, 64)
	round := func() {
		for i := range 8 {
			var err error
			if err = b.TRecv(buf, fi.AddrUnspec, 1, 0, &buf); err == nil {
				switch i % 4 {
				case 0:
					err = a.TSend(msg, toB, 1, &buf)
				case 1:
					err = a.TSendv(iov, toB, 1, &buf)
				case 2:
					err = a.TInject(msg[:8], toB, 1)
				case 3:
					err = a.TSendMsg(&TMsg{Iov: iov, Addr: toB, Tag: 1, Context: &buf}, fi.DeliveryComplete)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for rx := 0; rx < 8 || a.tx.Reserved() > 0; {
			n, _ := b.rx.Read(es)
			rx += max(n, 0)
			_, _ = a.tx.Read(es)
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 { // F9
		t.Errorf("%v allocations for 8 messages", n)
	}
}
