package uet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestEndpointStates(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ep, err := r.domain.OpenEndpoint(r.info, "ctx")
	ok(t, err)
	q, err := r.domain.OpenCQ(cq.Attr{}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	e, err := r.fabric.OpenEQ(eq.Attr{}, nil)
	ok(t, err)
	if ep.Context() != "ctx" {
		t.Errorf("context %v", ep.Context())
	}
	want(t, ep.Send(nil, 0, nil), fi.EOPBADSTATE) // R-EP-01
	want(t, ep.TRecv(nil, 0, 0, 0, nil), fi.EOPBADSTATE)
	want(t, ep.SendMsg(&Msg{}, fi.Fence), fi.EOPBADSTATE)
	want(t, ep.Cancel("x"), fi.EOPBADSTATE)
	_, err = ep.Name() // R-CM-15
	want(t, err, fi.EOPBADSTATE)
	_, err = ep.PathInfo()
	want(t, err, fi.EOPBADSTATE)
	if s := ep.Stats(); s.TxPackets != 0 {
		t.Errorf("%+v", s)
	}

	want(t, ep.Enable(), fi.ENOCQ) // R-EP-02
	want(t, ep.BindCQ(nil, fi.Transmit), fi.EINVAL)
	want(t, ep.BindCQ(q, 0), fi.EBADFLAGS)                      // R-EP-03
	want(t, ep.BindCQ(q, fi.SelectiveCompletion), fi.EBADFLAGS) // R-EP-03
	want(t, ep.BindCQ(q, fi.Transmit|fi.RemoteWrite), fi.EBADFLAGS)
	ok(t, ep.BindCQ(q, fi.Transmit))
	want(t, ep.BindCQ(q, fi.Transmit), fi.EINVAL) // R-EP-04
	want(t, ep.Enable(), fi.ENOCQ)
	ok(t, ep.BindCQ(q, fi.Recv)) // R-CQ-34: one queue for both directions
	want(t, ep.BindCQ(q, fi.Recv), fi.EINVAL)
	want(t, ep.BindCQ(q, fi.Transmit|fi.Recv), fi.EINVAL)
	want(t, ep.Enable(), fi.ENOAV)
	want(t, ep.BindAV(nil), fi.EINVAL)
	ok(t, ep.BindAV(v))
	want(t, ep.BindAV(v), fi.EINVAL)
	want(t, ep.BindEQ(nil), fi.EINVAL)
	ok(t, ep.BindEQ(e))
	want(t, ep.BindEQ(e), fi.EINVAL)
	want(t, q.Close(), fi.EBUSY) // R-CQ-36, also before Enable
	ok(t, ep.Enable())
	want(t, ep.Enable(), fi.EOPBADSTATE)
	want(t, ep.BindCQ(q, fi.Recv), fi.EOPBADSTATE) // R-EP-05
	want(t, ep.BindAV(v), fi.EOPBADSTATE)
	want(t, ep.BindEQ(e), fi.EOPBADSTATE)
	want(t, ep.SetName(wire.Addr{}), fi.EOPBADSTATE)
	name, err := ep.Name()
	ok(t, err)
	if name.Port == 0 || ep.Info().SrcAddr != name {
		t.Errorf("name %v, info %v", name, ep.Info().SrcAddr)
	}

	// F29: no object can be closed while another one uses it.
	want(t, r.fabric.Close(), fi.EBUSY)
	want(t, r.domain.Close(), fi.EBUSY)
	want(t, q.Close(), fi.EBUSY)
	want(t, v.Close(), fi.EBUSY)
	want(t, e.Close(), fi.EBUSY)

	ok(t, ep.Close())
	want(t, ep.Close(), fi.EBADF)
	want(t, ep.Send(nil, 0, nil), fi.EBADF)
	want(t, ep.Recv(nil, 0, nil), fi.EBADF)
	want(t, ep.Enable(), fi.EBADF)
	want(t, ep.BindCQ(q, fi.Recv), fi.EBADF)
	want(t, ep.Cancel("x"), fi.EBADF)
	_, err = ep.Name()
	want(t, err, fi.EBADF)
	_ = ep.Stats()
	want(t, r.domain.Close(), fi.EBUSY) // the queue and the vector are still open
	ok(t, q.Close())
	ok(t, v.Close())
	ok(t, e.Close())
}

func TestCloseTwice(t *testing.T) {
	// Closing an object twice gives fi.EBADF, and so does opening something in it.
	in := loopback(t, nil)
	f, err := OpenFabric(in, 1)
	ok(t, err)
	d, err := f.OpenDomain(in, 2)
	ok(t, err)
	if f.Context() != 1 || d.Context() != 2 || d.Attr().Name != in.Domain.Name || f.Attr().Name != "uet" {
		t.Error("contexts or attributes are not kept")
	}
	ok(t, d.Close())
	want(t, d.Close(), fi.EBADF)
	_, err = d.OpenEndpoint(in, nil)
	want(t, err, fi.EBADF)
	_, err = d.OpenCQ(cq.Attr{}, nil)
	want(t, err, fi.EBADF)
	_, err = d.OpenAV(av.Attr{}, nil)
	want(t, err, fi.EBADF)
	ok(t, f.Close())
	want(t, f.Close(), fi.EBADF)
	_, err = f.OpenDomain(in, nil)
	want(t, err, fi.EBADF)
	_, err = f.OpenEQ(eq.Attr{}, nil)
	want(t, err, fi.EBADF)
}

func TestOpenNonsense(t *testing.T) {
	in := loopback(t, nil)
	_, err := OpenFabric(nil, nil)
	want(t, err, fi.EINVAL)
	_, err = OpenFabric(&Info{Fabric: FabricAttr{ProvName: "tcp"}}, nil)
	want(t, err, fi.EINVAL)
	f, err := OpenFabric(in, nil)
	ok(t, err)
	_, err = f.OpenDomain(nil, nil)
	want(t, err, fi.EINVAL)
	d, err := f.OpenDomain(in, nil)
	ok(t, err)
	for _, bad := range []*Info{
		nil, {}, {Ep: EpAttr{Type: 77}, SrcAddr: in.SrcAddr}, {Config: Config{PayloadMTU: 7}, SrcAddr: in.SrcAddr},
		{Config: Config{JobID: 1 << 24}, SrcAddr: in.SrcAddr}, {Config: Config{Paths: 1000}, SrcAddr: in.SrcAddr},
		{Ep: EpAttr{AuthKey: []byte{1}}, SrcAddr: in.SrcAddr},
	} {
		_, err = d.OpenEndpoint(bad, nil)
		want(t, err, fi.EINVAL)
	}
	_, err = d.OpenCQ(cq.Attr{Format: 77}, nil)
	want(t, err, fi.EINVAL)
	ok(t, d.Close()) // an object that failed to open does not count
	ok(t, f.Close())
}

func TestEnableAddressErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.node()
	name, err := a.Name()
	ok(t, err)
	try := func(src wire.Addr, e fi.Errno) {
		t.Helper()
		ep, err := r.domain.OpenEndpoint(r.info, nil)
		ok(t, err)
		ok(t, ep.SetName(src))
		ok(t, ep.BindCQ(a.tx, fi.Transmit|fi.Recv))
		ok(t, ep.BindAV(a.vec))
		want(t, ep.Enable(), e)
		ok(t, ep.Close()) // and leaks nothing
	}
	try(name, fi.EADDRINUSE) // R-CM-14, R-ADDR-09
	try(wire.SockAddr(netip.MustParseAddrPort("192.0.2.77:0")), fi.EADDRNOTAVAIL)
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	want(t, ep.SetName(wire.Addr{}), fi.EINVAL)
	ok(t, ep.SetName(wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:4999"))))
	if n, err := ep.Name(); err != nil || n.Port != 4999 {
		t.Errorf("name before Enable: %v, %v", n, err)
	}
	ok(t, ep.Close())
}

func TestCapabilitiesAreNeeded(t *testing.T) {
	t.Parallel()
	// R-MSG-19, R-EP-02: an endpoint that only receives tagged messages needs no queue for
	// sends and refuses everything else.
	r := newRig(t, &Info{Caps: fi.Tagged | fi.Recv})
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	q, err := r.domain.OpenCQ(cq.Attr{}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	ok(t, ep.BindCQ(q, fi.Recv))
	ok(t, ep.BindAV(v))
	ok(t, ep.Enable())
	ok(t, ep.TRecv(nil, fi.AddrUnspec, 0, 0, nil))
	want(t, ep.Recv(nil, fi.AddrUnspec, nil), fi.EOPNOTSUPP)
	want(t, ep.Send(nil, 0, nil), fi.EOPNOTSUPP)
	want(t, ep.TSend(nil, 0, 0, nil), fi.EOPNOTSUPP)
	want(t, ep.Inject(nil, 0), fi.EOPNOTSUPP)
	ok(t, ep.Close())
	ok(t, q.Close())
	ok(t, v.Close())
	// An endpoint for untagged messages refuses tagged ones, even to a known peer.
	r = newRig(t, &Info{Caps: fi.Msg})
	a, b, toB, _ := r.pair()
	for range 2 {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, toB, nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
		want(t, b.TRecv(nil, fi.AddrUnspec, 0, 0, nil), fi.EOPNOTSUPP)
		want(t, a.TSend(nil, toB, 0, nil), fi.EOPNOTSUPP)
		want(t, a.TInject(nil, toB, 0), fi.EOPNOTSUPP)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	// fabtests recv_cancel: one of two posted receives is cancelled, exactly
	// one error entry with the RECV flag; the other still matches.
	buf := make([]byte, 8)
	ok(t, b.TRecv(nil, fi.AddrUnspec, 1, 0, "one"))
	ok(t, b.TRecv(buf, fi.AddrUnspec, 2, 0, "two"))
	ok(t, b.Cancel("one"))
	e := waitErr(t, b.rx)
	if e.Err != fi.ECANCELED || e.Context != "one" || e.Flags != fi.Recv|fi.Tagged { // R-EP-10, R-CQ-88, R-CQ-90
		t.Errorf("cancelled: %+v", e)
	}
	if !errors.Is(&e, context.Canceled) {
		t.Error("a cancelled operation is not context.Canceled")
	}
	want(t, b.Cancel("one"), fi.ENOENT) // R-EP-11
	want(t, b.Cancel("never"), fi.ENOENT)
	want(t, b.Cancel(nil), fi.ENOENT)
	want(t, b.Cancel([]int{1}), fi.EINVAL)
	ok(t, a.TSend([]byte("x"), toB, 2, nil))
	if c, _ := wait(t, b.rx, a); c.Context != "two" {
		t.Errorf("completed %+v", c)
	}
	wait(t, a.tx, b)
	// R-EP-12: a send on the wire is not cancelled.
	ok(t, a.TSend([]byte("x"), toB, 3, "sent"))
	want(t, a.Cancel("sent"), fi.ENOENT)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 3, 0, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	// Of several operations with one context, Cancel ends one (R-EP-11).
	ok(t, b.Recv(nil, fi.AddrUnspec, "same"))
	ok(t, b.Recv(nil, fi.AddrUnspec, "same"))
	ok(t, b.Cancel("same"))
	waitErr(t, b.rx)
	ok(t, b.Cancel("same"))
	waitErr(t, b.rx)
	want(t, b.Cancel("same"), fi.ENOENT)
}

func TestCloseCancelsWhatIsOutstanding(t *testing.T) {
	t.Parallel()
	// F27: operations are cancelled before Close returns, each exactly once. R-EP-14: after
	// Close has begun, none of their packets is sent, and their buffers are free.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}}) // otherwise the messages may be there before
	a, b, toB, _ := r.pair()
	for i := range 10 {
		ok(t, b.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, i))
		ok(t, a.TSend(make([]byte, 1<<20), toB, 2, i)) // it has no receive
	}
	for _, n := range []*node{a, b} {
		ok(t, n.Close())
		q, flags := n.tx, fi.Send|fi.Tagged
		if n == b {
			q, flags = n.rx, fi.Recv|fi.Tagged
		}
		var got []any
		for {
			var e cq.Error
			if _, err := q.Read(make([]cq.Entry, 1)); !errors.Is(err, fi.EAVAIL) {
				break
			}
			if _, err := q.ReadErr(&e, 0); err != nil {
				t.Fatal(err)
			}
			if e.Err != fi.ECANCELED || e.Flags != flags {
				t.Errorf("%+v", e)
			}
			got = append(got, e.Context)
		}
		if len(got) != 10 {
			t.Errorf("%d operations ended in Close, want 10: %v", len(got), got)
		}
		if q.Reserved() != 0 {
			t.Errorf("%d places of the queue stay reserved", q.Reserved())
		}
		before := n.Stats().TxPackets
		n.drv.Poll()
		if after := n.Stats().TxPackets; after != before {
			t.Errorf("%d packets were sent after Close", after-before)
		}
	}
}

func TestSourceOfAStranger(t *testing.T) {
	t.Parallel()
	// R-CQ-61: FI_SOURCE, unknown source: success with FI_ADDR_NOTAVAIL.
	// R-AV-22: to receive from a peer it need not be in the AV.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.Source})
	a, b := r.node(), r.node()
	toB := a.know(b)
	buf := make([]byte, 8)
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	ok(t, a.Send([]byte("x"), toB, nil))
	if _, src := wait(t, b.rx, a); src != fi.AddrNotAvail {
		t.Errorf("source %v of a sender that is not in the AV", src)
	}
	wait(t, a.tx, b)
	// Once the source is inserted, its handle is reported and can be a destination (R-CQ-57).
	b.know(r.node()) // another address at handle 0
	b.know(a)
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	ok(t, a.Send([]byte("x"), toB, nil))
	_, src := wait(t, b.rx, a)
	if src != 1 {
		t.Fatalf("source %v, want 1", src)
	}
	wait(t, a.tx, b)
	ok(t, a.Recv(buf, fi.AddrUnspec, nil))
	ok(t, b.Send([]byte("back"), src, nil))
	if e, _ := wait(t, a.rx, b); e.Len != 4 {
		t.Errorf("%+v", e)
	}
	wait(t, b.tx, a)
}

func TestSourceErr(t *testing.T) {
	t.Parallel()
	// R-CQ-62, R-CQ-83, R-ERR-40: the transfer succeeded, and err_data is the address, which
	// can be inserted as it is.
	r := newRig(t, &Info{Caps: fi.Tagged | fi.Source | fi.SourceErr})
	a, b := r.node(), r.node()
	toB := a.know(b)
	buf := make([]byte, 8)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 7, 0, "ctx"))
	ok(t, a.TSendData([]byte("hello"), 99, toB, 7, nil))
	e := waitErr(t, b.rx, a)
	if e.Err != fi.EADDRNOTAVAIL || e.Len != 5 || e.Tag != 7 || e.Data != 99 || e.Context != "ctx" ||
		e.Flags != fi.Recv|fi.Tagged|fi.RemoteCQData || string(buf[:5]) != "hello" {
		t.Errorf("%+v %q", e, buf)
	}
	addr, _, err := wire.ParseAddrBinary(e.ErrData)
	ok(t, err)
	h := make([]fi.Addr, 1)
	if n, err := b.vec.Insert([]wire.Addr{addr}, h, 0, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	wait(t, a.tx, b)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 7, 0, nil))
	ok(t, a.TSend(nil, toB, 7, nil))
	if _, src := wait(t, b.rx, a); src != h[0] {
		t.Errorf("source %v, want %v", src, h[0])
	}
	wait(t, a.tx, b)
}

func TestUserIDs(t *testing.T) {
	t.Parallel()
	// R-CQ-66: the user's identifier is the source of a message. Until it is set, an inserted
	// peer is known without one, which is no error.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Source | fi.SourceErr | fi.AVUserID})
	a, b := r.node(), r.node(func(o *options) { o.av.Flags = fi.AVUserID })
	toB, toA := a.know(b), b.know(a)
	for _, id := range []fi.Addr{fi.AddrNotAvail, 1 << 40} {
		if id != fi.AddrNotAvail {
			ok(t, b.vec.SetUserID(toA, id))
		}
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, toB, nil))
		if _, src := wait(t, b.rx, a); src != id {
			t.Errorf("source %v, want %v", src, id)
		}
		wait(t, a.tx, b)
	}
}

func TestRemoveAndReinsert(t *testing.T) {
	t.Parallel()
	// fabtests av_xfer; R-AV-11, R-AV-12: a handle means its present address.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	c := r.node()
	buf := make([]byte, 8)
	send := func(to fi.Addr, from, dst *node, text string) {
		t.Helper()
		ok(t, dst.Recv(buf, fi.AddrUnspec, text))
		ok(t, from.Send([]byte(text), to, nil))
		if e, _ := wait(t, dst.rx, from); e.Context != text || string(buf[:e.Len]) != text {
			t.Errorf("%+v %q", e, buf)
		}
		wait(t, from.tx, dst)
	}
	send(toB, a, b, "one")
	ok(t, a.vec.Remove(toB))
	want(t, a.Send(nil, toB, nil), fi.EINVAL) // R-AV-19
	want(t, a.Send(nil, 12345, nil), fi.EINVAL)
	want(t, a.Send(nil, fi.AddrUnspec, nil), fi.EINVAL)
	if h := a.know(c); h != toB {
		t.Fatalf("handle %v is not used again", toB)
	}
	send(toB, a, c, "two") // the same handle, another peer
	ok(t, a.vec.Remove(toB))
	if h := a.know(b); h != toB {
		t.Fatal("handle is not used again")
	}
	send(toB, a, b, "three")
	// Either of two handles of one peer may be removed.
	again := a.know(b)
	send(again, a, b, "four")
	ok(t, a.vec.Remove(toB))
	send(again, a, b, "five")
}

func TestRemoveKeepsDirectedReceives(t *testing.T) {
	t.Parallel()
	// R-AV-11, R-AV-23: a receive directed at an address that is removed goes on. It gets a
	// message of that address, whose source then has no handle, and none of the address that has
	// the handle now. It can be cancelled.
	r := newRig(t, &Info{Caps: fi.Tagged | fi.DirectedRecv | fi.Source})
	a, b := r.node(), r.node()
	c := r.node()
	fromB := a.know(b)
	toA, cToA := b.know(a), c.know(a)
	for _, ctx := range []string{"message", "cancel"} {
		ok(t, a.TRecv(make([]byte, 8), fromB, 1, 0, ctx))
	}
	ok(t, a.vec.Remove(fromB))
	if h := a.know(c); h != fromB {
		t.Fatalf("handle %v is not used again", fromB)
	}
	want(t, a.TRecv(make([]byte, 8), fromB+1, 1, 0, nil), fi.EINVAL)
	ok(t, a.TRecv(make([]byte, 8), fromB, 1, 0, "from c"))
	ok(t, c.TSend([]byte("c"), cToA, 1, nil))
	if e, src := wait(t, a.rx, c); e.Context != "from c" || src != fromB {
		t.Errorf("%v got the message of the new address, from %v", e.Context, src)
	}
	ok(t, b.TSend([]byte("b"), toA, 1, nil))
	if e, src := wait(t, a.rx, b); e.Context != "message" || src != fi.AddrNotAvail {
		t.Errorf("%v got the message of the removed address, from %v", e.Context, src)
	}
	ok(t, a.Cancel("cancel"))
	if e := waitErr(t, a.rx); e.Context != "cancel" || e.Err != fi.ECANCELED {
		t.Errorf("%+v", e)
	}
}

func TestLostSourceOfAReceive(t *testing.T) {
	t.Parallel()
	// F9, F12: a receive directed at a peer that is gone stays, and no operation fails: the send
	// was told as successful when its bytes were copied. Diagnose says what the receive waits for,
	// and one event names the peer, however many operations there are.
	hints := &Info{Caps: fi.Tagged | fi.DirectedRecv}
	hints.Config.Tuning.PeerTimeout = 200 * time.Millisecond
	r := newRig(t, hints)
	a := r.node()
	peer := blackHole(t)
	gone, err := a.vec.InsertString(peer.String())
	ok(t, err)
	for range 20 {
		ok(t, a.TRecv(make([]byte, 10), gone, 1, 0, "stays"))
		ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{{1}}, Addr: gone, Tag: 1}, fi.Inject|fi.InjectComplete))
		wait(t, a.tx)
	}
	var e eq.Error
	for start := time.Now(); ; runtime.Gosched() {
		_, _ = a.rx.Read(nil)
		if e, err = a.evts.ReadErr(0); err == nil {
			break
		}
		if time.Since(start) > patience {
			t.Fatal("no event")
		}
	}
	addr, _, err := wire.ParseAddrBinary(e.ErrData)
	if err != nil || e.Err != fi.ETIMEDOUT || e.Prov != ProvGaveUp || e.Fid != a.Endpoint || addr.AddrPort() != peer {
		t.Errorf("%+v names %v", e, addr)
	}
	_, err = a.evts.ReadErr(0)
	want(t, err, fi.EAGAIN)
	if n := a.tx.Unread() + a.rx.Unread(); n != 0 {
		t.Errorf("%d operations ended", n)
	}
	w := a.Diagnose()
	if len(w) != 20 || w[0].Cause != WaitLost || w[0].Context != "stays" {
		t.Errorf("%d operations: %+v", len(w), w)
	}
}

func TestKnownPeersOnly(t *testing.T) {
	t.Parallel()
	// An address in the AV is known even if nothing was sent to it.
	r := newRig(t, &Info{Config: Config{KnownPeersOnly: true}})
	a, b := r.node(), r.node()
	toB := a.know(b)
	buf := make([]byte, 8)
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	ok(t, a.Send([]byte("x"), toB, nil))
	dropped := func() bool {
		for _, d := range b.Stats().Drops {
			if d > 0 {
				return true
			}
		}
		return false
	}
	for start := time.Now(); !dropped() && time.Since(start) < patience; {
		_, err := b.rx.Read(make([]cq.Entry, 1))
		want(t, err, fi.EAGAIN)
		_, _ = a.tx.Read(nil)
	}
	b.know(a)
	wait(t, b.rx, a)
	wait(t, a.tx, b)
}

// blackHole returns a port that receives packets and never answers.
func blackHole(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestSilentPeer(t *testing.T) {
	t.Parallel()
	// F9: FI_ETIMEDOUT with prov_errno 0x1FF and an EQ event, and never a hang, also for calls
	// that write no entry when they succeed (R-CQ-81, R-CQ-82).
	hints := &Info{}
	hints.Config.Tuning.PeerTimeout = 200 * time.Millisecond
	r := newRig(t, hints)
	a := r.node()
	h, err := a.vec.InsertString(blackHole(t).String())
	ok(t, err)
	ok(t, a.TSend(make([]byte, 100_000), h, 1, "lost"))
	ok(t, a.Inject([]byte("x"), h))
	got := []cq.Error{waitErr(t, a.tx), waitErr(t, a.tx)}
	for _, e := range got {
		if e.Err != fi.ETIMEDOUT || e.Prov != 0x1FF || !e.OutcomeUnknown {
			t.Errorf("%+v", e)
		}
	}
	if !slices.ContainsFunc(got, func(e cq.Error) bool { return e.Context == "lost" && e.Flags == fi.Send|fi.Tagged }) ||
		!slices.ContainsFunc(got, func(e cq.Error) bool { return e.Context == nil && e.Flags == fi.Send|fi.Msg }) {
		t.Errorf("%+v", got)
	}
	if s := a.tx.StrError(0x1FF); s != ProvString(0x1FF) {
		t.Errorf("StrError: %q", s)
	}
	ev, err := a.evts.ReadErr(0)
	ok(t, err)
	if ev.Fid != a.Endpoint || ev.Context != "ep" || ev.Err != fi.ETIMEDOUT || ev.Prov != 0x1FF {
		t.Errorf("%+v", ev)
	}
	_, err = a.evts.ReadErr(0) // T29: one event per peer
	want(t, err, fi.EAGAIN)
}

func TestDeadPeer(t *testing.T) {
	t.Parallel()
	// F11: if the port is closed and nobody was heard there, FI_EHOSTUNREACH comes after a
	// third of SuspectTimeout (which is 3 s), not at once.
	r := newRig(t, &Info{})
	a, b := r.node(), r.node()
	toB := a.know(b)
	ok(t, b.Close())
	start := time.Now()
	ok(t, a.TSend([]byte("x"), toB, 1, nil))
	e := waitErr(t, a.tx)
	if e.Err != fi.EHOSTUNREACH {
		t.Errorf("%+v", e)
	}
	if d := time.Since(start); d < 900*time.Millisecond || d > 2900*time.Millisecond {
		t.Errorf("given up after %v", d)
	}
}

func TestSleepersAreWoken(t *testing.T) {
	t.Parallel()
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			// Both ends only sleep, so the progress goroutine does everything else.
			r := newRig(t, &Info{Domain: DomainAttr{DataProgress: p}})
			a, b, toB, toA := r.pair(func(o *options) { o.attr.Spin = -1 })
			const rounds = 200
			var wg sync.WaitGroup
			play := func(n *node, to fi.Addr, first bool) {
				buf := make([]byte, 8)
				var e [1]cq.Entry
				for range rounds {
					if err := n.TRecv(buf, fi.AddrUnspec, 1, 0, nil); err != nil {
						t.Error(err)
						return
					}
					if first {
						if err := n.TInject([]byte("ping"), to, 1); err != nil {
							t.Error(err)
							return
						}
					}
					if k, err := n.rx.SRead(e[:], 0, patience); k != 1 {
						t.Error(k, err)
						return
					}
					if !first {
						if err := n.TInject([]byte("pong"), to, 1); err != nil {
							t.Error(err)
							return
						}
					}
				}
				// The last message must be acknowledged before the other end closes.
				for n.tx.Reserved() > 0 {
					_, _ = n.tx.SRead(e[:], 0, time.Millisecond)
				}
			}
			wg.Go(func() { play(a, toB, true) })
			wg.Go(func() { play(b, toA, false) })
			wg.Wait()
		})
	}
}

func TestAutoProgressWithoutTheApplication(t *testing.T) {
	t.Parallel()
	// The receiver makes no call after its post. The sender's message completes all the same,
	// and its entry is there when the receiver looks.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressAuto}})
	a, b, toB, _ := r.pair()
	buf := make([]byte, 1<<20)
	ok(t, b.Recv(buf, fi.AddrUnspec, nil))
	msg := make([]byte, 1<<20)
	for i := range msg {
		msg[i] = byte(i * 7)
	}
	ok(t, a.Send(msg, toB, nil))
	wait(t, a.tx)
	if e, _ := wait(t, b.rx); e.Len != 1<<20 || !slices.Equal(buf, msg) {
		t.Errorf("%+v", e)
	}
}

func TestSignalEndsARead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.node()
	ok(t, a.rx.Signal())
	_, err := a.rx.SRead(make([]cq.Entry, 1), 0, -1)
	want(t, err, fi.EAGAIN) // R-CQ-70
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.rx.SReadContext(ctx, make([]cq.Entry, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("SReadContext: %v", err)
	}
}

func TestConcurrentUseAndClose(t *testing.T) {
	t.Parallel()
	// T37: races of Close and post, also while the FEPs are short of room for unexpected messages
	// and of PDCs, so that they refuse all the time.
	for _, c := range []struct {
		p     fi.Progress
		short bool
	}{{fi.ProgressAuto, false}, {fi.ProgressManual, false}, {fi.ProgressAuto, true}, {fi.ProgressManual, true}} {
		t.Run(fmt.Sprintf("%v short=%v", c.p, c.short), func(t *testing.T) {
			t.Parallel()
			info := &Info{Domain: DomainAttr{DataProgress: c.p}, Tx: TxAttr{Size: 64}, Rx: RxAttr{Size: 64}}
			if c.short {
				info.Config.Tuning.UnexpectedMsgs, info.Config.Tuning.UnexpectedShare, info.Config.Tuning.MaxPDCs = 2, 1, 1
			}
			r := newRig(t, info)
			a, b, toB, toA := r.pair()
			var wg sync.WaitGroup
			use := func(n *node, to fi.Addr) {
				buf := make([]byte, 100)
				e := make([]cq.Entry, 16)
				for i := 0; ; i++ {
					var err error
					switch i % 10 {
					case 0:
						err = n.TSend(buf, to, 1, i)
					case 1:
						err = n.TRecv(make([]byte, 50), fi.AddrUnspec, 1, 0, i)
					case 2:
						err = n.TInject(buf[:8], to, 1)
					case 3:
						err = n.Sendv([][]byte{buf[:10], buf[10:]}, to, i)
					case 4:
						err = n.Recvv([][]byte{make([]byte, 10), make([]byte, 90)}, to, i)
					case 5:
						err = n.RecvMsg(&Msg{Iov: [][]byte{make([]byte, 300)}, Addr: fi.AddrUnspec, Context: i}, fi.MultiRecv)
					case 6:
						err = n.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 1, Context: 6}, fi.Peek|fi.Claim)
					case 7:
						err = n.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 1, Context: 6}, fi.Claim|fi.Discard)
					case 8:
						err = n.SetOpsFlags(fi.Transmit | fi.DeliveryComplete)
						_, _ = n.TxSizeLeft()
					case 9:
						if err = n.SetOpt(fi.OptMinMultiRecv, uint64(i)); err == nil {
							err = n.SendMsg(&Msg{Iov: [][]byte{buf}, Addr: to, Context: i}, fi.Inject|fi.More)
						}
					}
					switch {
					case errors.Is(err, fi.EBADF):
						return
					case err != nil && !errors.Is(err, fi.EAGAIN):
						t.Errorf("post: %v", err)
						return
					}
					for _, q := range []*cq.CQ{n.tx, n.rx} {
						if _, err := q.Read(e); errors.Is(err, fi.EAVAIL) {
							var ce cq.Error
							_, _ = q.ReadErr(&ce, 0)
						}
					}
					if i%50 == 0 {
						_ = n.Cancel(i - 4)
						_ = n.Stats()
						_, _ = n.PathInfo()
					}
					if i == 3000 {
						wg.Go(func() { _ = n.Close() })
					}
				}
			}
			for _, n := range []struct {
				n  *node
				to fi.Addr
			}{{a, toB}, {b, toA}} {
				for range 2 {
					wg.Go(func() { use(n.n, n.to) })
				}
			}
			wg.Wait()
			for _, n := range []*node{a, b} {
				if k := n.tx.Reserved() + n.rx.Reserved(); k != 0 {
					t.Errorf("%d operations never ended", k)
				}
			}
			st, su := a.Stats(), b.Stats()
			refused, limit := st.Refused+su.Refused, st.Drops[transport.DropLimit]+su.Drops[transport.DropLimit]+st.NacksTx[wire.NackNoPDCAvail]+su.NacksTx[wire.NackNoPDCAvail]
			if t.Logf("%d packets refused for want of room, %d for want of PDCs", refused, limit); c.short && refused+limit == 0 {
				t.Error("nothing was refused: the test does not test")
			}
		})
	}
}

func TestPathInfoSaysWhatIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Info{Config: Config{PayloadMTU: 2048, Paths: 3, JobID: 77}})
	a := r.node()
	p, err := a.PathInfo()
	ok(t, err)
	if p.PayloadMTU != 2048 || len(p.Socket.Ports) != 3 || p.JobID != 77 || !p.CRC || !p.Auto || p.InjectSize != 2048 {
		t.Errorf("%+v", p)
	}
	if name, _ := a.Name(); name != p.Local || p.Socket.Ports[0] != name.Port {
		t.Errorf("name %v, path %+v", name, p)
	}
}

func TestEnableThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	// R-CM-15, R-EP-02: what Enable chose before it failed does not stay. The endpoint has no
	// name, and the next Enable asks for a free port again.
	r := newRig(t, nil)
	info := *r.info
	sec, err := NewClusterKey(NewKey(1))
	ok(t, err)
	info.Config.Security = sec
	ok(t, sec.Close()) // before Enable
	ep, err := r.domain.OpenEndpoint(&info, nil)
	ok(t, err)
	defer ep.Close()
	q, err := r.domain.OpenCQ(cq.Attr{}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	defer v.Close()
	defer q.Close()
	ok(t, ep.BindCQ(q, fi.Transmit|fi.Recv))
	ok(t, ep.BindAV(v))
	before, inject := ep.Info(), uint64(0)
	for range 2 {
		want(t, ep.Enable(), fi.EBADF)
		_, err = ep.Name()
		want(t, err, fi.EOPBADSTATE)
		if in := ep.Info(); in.SrcAddr != before.SrcAddr || in.Tx != before.Tx {
			t.Errorf("%v, want %v", in.SrcAddr, before.SrcAddr)
		}
		want(t, ep.Send(nil, 0, nil), fi.EOPBADSTATE)
		inject, err = ep.GetOpt(fi.OptInjectMsgSize)
		if err != nil || inject != uint64(before.Tx.InjectSize) {
			t.Error(inject, err)
		}
	}
	ok(t, ep.Close())
}

func TestCloseDoesNotOverrun(t *testing.T) {
	t.Parallel()
	// R-EP-14, R-CQ-129: without resource management a queue may lack room for the operations
	// that a Close cancels. Close drops those entries, so that a queue shared with others,
	// which had room for everything else, does not overrun.
	r := newRig(t, &Info{Domain: DomainAttr{ResourceMgmt: fi.RMDisabled}})
	b := r.node(func(o *options) { o.attr.Size, o.oneCQ = 64, true })
	ep, err := r.domain.OpenEndpoint(r.info, "leaves")
	ok(t, err)
	ok(t, ep.BindCQ(b.rx, fi.Transmit|fi.Recv))
	ok(t, ep.BindAV(b.vec))
	ok(t, ep.BindEQ(b.evts))
	ok(t, ep.Enable())
	for range b.rx.Attr().Size + 10 {
		ok(t, ep.Recv(nil, fi.AddrUnspec, "cancelled"))
	}
	ok(t, ep.Close())
	if b.rx.Overrun() {
		t.Error("overrun")
	}
	_, err = b.evts.Read(0)
	want(t, err, fi.EAGAIN)
	var e cq.Error
	for range b.rx.Unread() {
		if _, err := b.rx.ReadErr(&e, 0); err != nil || e.Err != fi.ECANCELED || e.Context != "cancelled" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	self := b.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, "goes on"))
	ok(t, b.Send(nil, self, nil))
	wait(t, b.rx)
	wait(t, b.rx)
}

func TestCancelRaces(t *testing.T) {
	t.Parallel()
	// R-EP-10, R-EP-13: a receive that is cancelled while its message arrives ends once, with
	// the message or with FI_ECANCELED, and Cancel says which.
	const n = 400
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	ended := make([]int, n)
	var cancelled, said int
	for base := 0; base < n; base += 20 {
		for i := range 20 {
			ok(t, b.TRecv(make([]byte, 1), fi.AddrUnspec, uint64(base+i), 0, base+i))
		}
		done := make(chan error, 1)
		go func() {
			for i := range 20 {
				if err := a.TSend([]byte{1}, toB, uint64(base+i), nil); err != nil {
					done <- err
					return
				}
				_, _ = a.tx.Read(make([]cq.Entry, 8))
			}
			done <- nil
		}()
		for start := time.Now(); b.rx.Unread() == 0 && time.Since(start) < patience; {
			_, _ = b.rx.Read(nil)
		}
		for i := range 20 { // from the other end, until they meet
			switch err := b.Cancel(base + 19 - i); err {
			case nil:
				said++
			case fi.ENOENT:
			default:
				t.Error(err)
			}
		}
		ok(t, <-done)
		for got, start := 0, time.Now(); got < 20 && time.Since(start) < patience; {
			var es [8]cq.Entry
			k, err := b.rx.Read(es[:])
			for _, e := range es[:max(k, 0)] {
				ended[e.Context.(int)]++
				got++
			}
			if err == fi.EAVAIL {
				var ce cq.Error
				if _, err := b.rx.ReadErr(&ce, 0); err == nil {
					if ce.Err != fi.ECANCELED {
						t.Errorf("%+v", ce)
					}
					ended[ce.Context.(int)]++
					cancelled++
					got++
				}
			}
			_, _ = a.tx.Read(make([]cq.Entry, 8))
		}
	}
	for i, k := range ended {
		if k != 1 {
			t.Errorf("receive %d ended %d times", i, k)
		}
	}
	if cancelled != said {
		t.Errorf("%d were cancelled, Cancel said so of %d", cancelled, said)
	}
}
