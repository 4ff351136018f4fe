package uet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// newMsgRig makes a rig for connected endpoints.
func newMsgRig(t testing.TB, change ...func(*Info)) *rig {
	t.Helper()
	h := &Info{Ep: EpAttr{Type: fi.EpMsg}}
	for _, f := range change {
		f(h)
	}
	return newRig(t, h)
}

// eventQueue opens an event queue, which is closed with the test.
func (r *rig) eventQueue(size int) *eq.EQ {
	r.t.Helper()
	q, err := r.fabric.OpenEQ(eq.Attr{Size: size, WaitObj: fi.WaitUnspec}, nil)
	ok(r.t, err)
	r.t.Cleanup(func() {
		if err := q.Close(); err != nil {
			r.t.Errorf("event queue: %v", err)
		}
	})
	return q
}

// A listener is a passive endpoint with its event queue.
type listener struct {
	*PassiveEndpoint
	r    *rig
	evts *eq.EQ
	at   wire.Addr
}

func (r *rig) listener(change ...func(*PassiveEndpoint)) *listener {
	r.t.Helper()
	l := &listener{r: r, evts: r.eventQueue(0)}
	var err error
	l.PassiveEndpoint, err = r.fabric.OpenPassive(r.info, "pep")
	ok(r.t, err)
	r.t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, fi.EBADF) {
			r.t.Errorf("passive endpoint: %v", err)
		}
	})
	ok(r.t, l.BindEQ(l.evts))
	for _, f := range change {
		f(l.PassiveEndpoint)
	}
	ok(r.t, l.Listen())
	l.at, err = l.Name()
	ok(r.t, err)
	return l
}

// request waits for a request and returns the event with the Info to open an endpoint for
// it.
func (l *listener) request() (eq.Entry, *Info) {
	l.r.t.Helper()
	e := event(l.r.t, l.evts, fi.ConnReq)
	return e, e.Info.(*Info)
}

// plug makes an FI_EP_MSG endpoint with its queues, neither enabled nor connected.
func (r *rig) plug(info *Info, opt ...func(*options)) *node {
	r.t.Helper()
	return r.plugTo(info, r.eventQueue(0), opt...)
}

// plugTo is plug with the given event queue.
func (r *rig) plugTo(info *Info, evts *eq.EQ, opt ...func(*options)) *node {
	r.t.Helper()
	o := options{attr: cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}}
	for _, f := range opt {
		f(&o)
	}
	n := &node{t: r.t, evts: evts}
	var err error
	n.tx, err = r.domain.OpenCQ(o.attr, nil)
	ok(r.t, err)
	n.rx, err = r.domain.OpenCQ(o.attr, nil)
	ok(r.t, err)
	n.Endpoint, err = r.domain.OpenEndpoint(info, "ep")
	ok(r.t, err)
	r.t.Cleanup(func() {
		if err := n.Endpoint.Close(); err != nil && !errors.Is(err, fi.EBADF) {
			r.t.Errorf("endpoint: %v", err)
		}
		ok(r.t, n.tx.Close())
		ok(r.t, n.rx.Close())
	})
	ok(r.t, n.BindCQ(n.tx, fi.Transmit|o.txFlags))
	ok(r.t, n.BindCQ(n.rx, fi.Recv|o.rxFlags))
	ok(r.t, n.BindEQ(n.evts))
	if o.bind != nil {
		o.bind(n.Endpoint)
	}
	return n
}

// pair connects a new endpoint a to a new endpoint b through l.
func (l *listener) pair() (a, b *node) {
	l.r.t.Helper()
	a = l.r.plug(l.r.info)
	ok(l.r.t, a.Connect(l.at, nil))
	_, info := l.request()
	b = l.r.plug(info)
	ok(l.r.t, b.Accept(nil))
	event(l.r.t, a.evts, fi.Connected)
	event(l.r.t, b.evts, fi.Connected)
	return a, b
}

// event waits for the next event, which must be of that kind.
func event(t testing.TB, q *eq.EQ, kind fi.EQEvent) eq.Entry {
	t.Helper()
	e, err := q.SRead(0, patience)
	if errors.Is(err, fi.EAVAIL) {
		bad, _ := q.ReadErr(0)
		t.Fatalf("an error instead of %v: %v %q", kind, &bad, bad.ErrData)
	}
	if err != nil {
		t.Fatalf("no %v: %v", kind, err)
	}
	if e.Event != kind {
		t.Fatalf("event %v instead of %v", e.Event, kind)
	}
	return e
}

// eventErr waits for the next event, which must be an error.
func eventErr(t testing.TB, q *eq.EQ) eq.Error {
	t.Helper()
	e, err := q.SRead(0, patience)
	if !errors.Is(err, fi.EAVAIL) {
		t.Fatalf("event %v (%v) instead of an error", e.Event, err)
	}
	bad, err := q.ReadErr(0)
	ok(t, err)
	return bad
}

// quiet fails the test if there is an event.
func quiet(t testing.TB, q *eq.EQ) {
	t.Helper()
	if e, err := q.Read(0); !errors.Is(err, fi.EAGAIN) {
		t.Errorf("event %v, %v, want none", e.Event, err)
	}
}

func TestConnectedMessage(t *testing.T) {
	t.Parallel()
	// R-CM-06, R-EQ-36: both sides get an event about the endpoint that they made the call
	// for. Then messages go both ways, whatever destination a call names.
	r := newMsgRig(t)
	l := r.listener()
	a := r.plug(r.info)
	ok(t, a.Connect(l.at, []byte("let me in")))
	e, info := l.request()
	// R-EQ-35: the request is an event of the passive endpoint, with a description and the
	// data.
	if e.Fid != l.PassiveEndpoint || string(e.Bytes) != "let me in" || info.Ep.Type != fi.EpMsg {
		t.Errorf("request %+v of type %v", e, info.Ep.Type)
	}
	b := r.plug(info)
	ok(t, b.Accept([]byte("welcome")))
	// R-EQ-43: the connecting side gets the data of Accept, the other side gets nothing.
	if e := event(t, a.evts, fi.Connected); e.Fid != a.Endpoint || string(e.Bytes) != "welcome" {
		t.Errorf("connecting side: %+v", e)
	}
	if e := event(t, b.evts, fi.Connected); e.Fid != b.Endpoint || len(e.Bytes) != 0 {
		t.Errorf("accepting side: %+v", e)
	}
	for i, n := range []*node{a, b} {
		to := []*node{b, a}[i]
		buf := make([]byte, 5000)
		ok(t, to.TRecv(buf, fi.AddrUnspec, 7, 0, "recv"))
		ok(t, n.TSend(pattern(5000, uint64(i)), 4711, 7, "send"))
		if e, src := wait(t, to.rx, n); e.Context != "recv" || e.Len != 5000 || src != fi.AddrNotAvail || !bytes.Equal(buf, pattern(5000, uint64(i))) {
			t.Errorf("%+v from %v", e, src)
		}
		wait(t, n.tx, to)
	}
	quiet(t, a.evts)
	quiet(t, b.evts)
	quiet(t, l.evts)
	for _, s := range []ConnStats{l.ConnStats(), r.domain.ConnStats()} {
		if s.Open != 1 || s.Opened != 1 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestListenNeedsAQueue(t *testing.T) {
	t.Parallel()
	// R-CM-01, and the states of a passive endpoint.
	r := newMsgRig(t)
	p, err := r.fabric.OpenPassive(r.info, "ctx")
	ok(t, err)
	q := r.eventQueue(0)
	want(t, p.Listen(), fi.ENOEQ)
	want(t, p.BindEQ(nil), fi.EINVAL)
	want(t, p.SetBacklog(0), fi.EINVAL)
	want(t, p.SetName(wire.Addr{}), fi.EINVAL)
	_, err = p.Name()
	want(t, err, fi.EOPBADSTATE) // R-CM-15
	ok(t, p.BindEQ(q))
	want(t, p.BindEQ(q), fi.EINVAL)
	ok(t, p.SetBacklog(3))
	ok(t, p.Listen())
	name, err := p.Name()
	ok(t, err)
	if name.Port == 0 || name.IP != r.info.SrcAddr.IP || p.Context() != "ctx" || p.Info().SrcAddr != name {
		t.Errorf("name %v", name)
	}
	for _, err := range []error{p.Listen(), p.BindEQ(q), p.SetBacklog(3), p.SetName(name)} {
		want(t, err, fi.EOPBADSTATE)
	}
	want(t, q.Close(), fi.EBUSY)
	// R-CM-14: the address is in use; a call that fails leaks nothing.
	other, err := r.fabric.OpenPassive(r.info, nil)
	ok(t, err)
	ok(t, other.BindEQ(q))
	ok(t, other.SetName(name))
	if n, err := other.Name(); err != nil || n != name { // R-CM-15
		t.Errorf("name before Listen: %v, %v", n, err)
	}
	want(t, other.Listen(), fi.EADDRINUSE)
	ok(t, other.Close())
	want(t, r.fabric.Close(), fi.EBUSY)
	ok(t, p.Close())
	want(t, p.Close(), fi.EBADF)
	for _, err := range []error{p.Listen(), p.BindEQ(q), p.SetBacklog(3), p.SetName(name)} {
		want(t, err, fi.EBADF)
	}
	_, err = p.Name()
	want(t, err, fi.EBADF)

	for _, bad := range []*Info{nil, {}, {SrcAddr: r.info.SrcAddr}, {Ep: EpAttr{Type: fi.EpRDM}, SrcAddr: r.info.SrcAddr}, {
		Ep: EpAttr{Type: fi.EpMsg}, SrcAddr: r.info.SrcAddr, Config: Config{PayloadMTU: 7},
	}} {
		_, err := r.fabric.OpenPassive(bad, nil)
		want(t, err, fi.EINVAL)
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	// R-CM-02: unanswered requests wait, up to the backlog. Further ones are refused.
	r := newMsgRig(t)
	l := r.listener(func(p *PassiveEndpoint) {
		want(t, p.SetBacklog(0), fi.EINVAL)
		want(t, p.SetBacklog(-1), fi.EINVAL)
		ok(t, p.SetBacklog(2))
	})
	want(t, l.SetBacklog(3), fi.EOPBADSTATE)
	var waiting []*node
	for range 2 {
		n := r.plug(r.info)
		ok(t, n.Connect(l.at, nil))
		waiting = append(waiting, n)
	}
	_, first := l.request()
	l.request()
	third := r.plug(r.info)
	ok(t, third.Connect(l.at, nil))
	if e := eventErr(t, third.evts); e.Err != fi.ECONNREFUSED || e.Fid != third.Endpoint {
		t.Errorf("%+v", e)
	}
	quiet(t, l.evts)
	if s := l.ConnStats(); s.Refused != 1 || s.Waiting != 2 {
		t.Errorf("%+v", s)
	}
	// An answer makes room.
	ok(t, l.Reject(first.Handle, nil))
	for _, n := range waiting {
		if n.Info().SrcAddr == first.DestAddr {
			eventErr(t, n.evts)
		}
	}
	fourth := r.plug(r.info)
	ok(t, fourth.Connect(l.at, nil))
	l.request()
}

func TestWithdrawnRequestsMakeRoom(t *testing.T) {
	t.Parallel()
	// R-CM-02, T39: a host that requests and leaves, again and again, does not use up the
	// backlog of an application that answers nobody.
	r := newMsgRig(t, func(in *Info) { in.Config.CM.Rate, in.Config.CM.Burst = 1e6, 1e6 })
	l := r.listener(func(p *PassiveEndpoint) { ok(t, p.SetBacklog(1)) })
	for range 5 {
		a := r.plug(r.info)
		ok(t, a.Connect(l.at, nil))
		l.request()
		ok(t, a.Close())
		for start := time.Now(); l.ConnStats().Waiting > 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > patience {
				t.Fatal("a request that was withdrawn waits for an answer")
			}
		}
	}
	l.pair()
}

func TestUnequalEnds(t *testing.T) {
	t.Parallel()
	// The ends have different payload MTUs and numbers of paths. Neither sends more than both
	// can, and all paths of the peer count as its own.
	var mu sync.Mutex
	most := 0
	r := newMsgRig(t, func(in *Info) {
		in.Config.Tap = func(d *Tapped) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, len(d.Data))
		}
	})
	for name, c := range map[string]struct {
		mtu   [2]int
		paths [2]int
	}{
		"small at the acceptor":  {[2]int{8192, 1024}, [2]int{1, 1}},
		"small at the connector": {[2]int{1024, 8192}, [2]int{1, 1}},
		"paths":                  {[2]int{2048, 4096}, [2]int{4, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			mine, theirs := *r.info, *r.info
			mine.Config.PayloadMTU, theirs.Config.PayloadMTU = c.mtu[0], c.mtu[1]
			mine.Config.Paths, theirs.Config.Paths = c.paths[0], c.paths[1]
			rr := &rig{t: t, info: &theirs, fabric: r.fabric, domain: r.domain}
			l := rr.listener()
			a := rr.plug(&mine)
			ok(t, a.Connect(l.at, nil))
			_, info := l.request()
			b := rr.plug(info)
			ok(t, b.Accept(nil))
			event(t, a.evts, fi.Connected)
			event(t, b.evts, fi.Connected)
			mu.Lock()
			most = 0
			mu.Unlock()
			for i, n := range []*node{a, b} {
				to := []*node{b, a}[i]
				buf := make([]byte, 300_000)
				ok(t, to.TRecv(buf, 0, 1, 0, nil))
				ok(t, n.TSend(pattern(len(buf), uint64(i)), 0, 1, nil))
				wait(t, to.rx, n)
				wait(t, n.tx, to)
				if !bytes.Equal(buf, pattern(len(buf), uint64(i))) {
					t.Error("other bytes than were sent")
				}
			}
			for _, n := range []*node{a, b} {
				if d := n.Stats().Drops[transport.DropUnknown]; d != 0 {
					t.Errorf("%d packets of a path that was not known", d)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if least := min(c.mtu[0], c.mtu[1]); most < least || most > least+headerBytes {
				t.Errorf("datagrams of up to %d bytes with payloads of %d and %d", most, c.mtu[0], c.mtu[1])
			}
		})
	}
}

func TestStrangersAreNotHeard(t *testing.T) {
	t.Parallel()
	// A connected endpoint accepts messages from its peer only.
	r := newMsgRig(t)
	_, b := r.listener().pair()
	buf := make([]byte, 8)
	ok(t, b.TRecv(buf, 0, 1, 0, nil))
	in := *r.info
	in.Ep.Type = fi.EpRDM
	stranger := (&rig{t: t, info: &in, fabric: r.fabric, domain: r.domain}).node()
	ok(t, stranger.TSend([]byte("psst"), stranger.know(b), 1, nil))
	for start := time.Now(); b.Stats().Drops[transport.DropUnknown] == 0; empty(t, b.rx) {
		if time.Since(start) > patience {
			t.Fatal("nothing was dropped")
		}
	}
	empty(t, b.rx)
}

func TestConnectOverIPv6(t *testing.T) {
	t.Parallel()
	infos, err := GetInfo("::1", "", fi.Source, &Info{Ep: EpAttr{Type: fi.EpMsg}})
	if err != nil {
		t.Skip("no IPv6 here")
	}
	r := newMsgRig(t)
	rr := &rig{t: t, info: infos[0], fabric: r.fabric, domain: r.domain}
	a, b := rr.listener().pair()
	talk(t, a, b, "hello")
	talk(t, b, a, "hello yourself")
}

func TestConnectOverLinkLocal(t *testing.T) {
	t.Parallel()
	// The zone of a link-local address is valid on its host only. Neither side sends it; each
	// uses its own.
	ip := linkLocal(t)
	infos, err := GetInfo(ip.String(), "", fi.Source, &Info{Ep: EpAttr{Type: fi.EpMsg}})
	ok(t, err)
	r := newMsgRig(t)
	rr := &rig{t: t, info: infos[0], fabric: r.fabric, domain: r.domain}
	a, b := rr.listener().pair()
	talk(t, a, b, "hello")
	talk(t, b, a, "hello yourself")
}

// linkLocal returns an IPv6 address of this host with a zone.
func linkLocal(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.Interfaces()
	ok(t, err)
	for i := range all {
		ips, err := addrsOf(&all[i])
		ok(t, err)
		for _, ip := range ips {
			if ip.Zone() != "" {
				return ip
			}
		}
	}
	t.Skip("no link-local address here")
	return netip.Addr{}
}

func TestListenOnAllAddresses(t *testing.T) {
	t.Parallel()
	// R-CM-14: 0.0.0.0 means every address of this host. The endpoint of a request gets the
	// one that leads to the peer.
	r := newMsgRig(t)
	l := r.listener(func(p *PassiveEndpoint) { ok(t, p.SetName(wire.Addr{IP: netip.IPv4Unspecified()})) })
	if !l.at.IP.IsUnspecified() || l.at.Port == 0 {
		t.Errorf("listens at %v", l.at)
	}
	l.at.IP = netip.MustParseAddr("127.0.0.1")
	a, b := l.pair()
	talk(t, a, b, "hello")
	if name, err := b.Name(); err != nil || name.IP != l.at.IP {
		t.Errorf("accepted at %v, %v", name, err)
	}
}

func TestConnectOnce(t *testing.T) {
	t.Parallel()
	// R-CM-03 in every state.
	r := newMsgRig(t)
	l := r.listener()
	a := r.plug(r.info)
	ok(t, a.Connect(l.at, nil))
	want(t, a.Connect(l.at, nil), fi.EOPBADSTATE)
	_, info := l.request()
	b := r.plug(info)
	want(t, b.Connect(l.at, nil), fi.EOPBADSTATE) // b is for a request
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	want(t, a.Connect(l.at, nil), fi.EISCONN)
	event(t, b.evts, fi.Connected)
	want(t, b.Accept(nil), fi.EISCONN)
	ok(t, a.Shutdown())
	want(t, a.Connect(l.at, nil), fi.EOPBADSTATE)
	event(t, b.evts, fi.Shutdown)
	want(t, b.Accept(nil), fi.EOPBADSTATE)
	ok(t, a.Close())
	want(t, a.Connect(l.at, nil), fi.EBADF)
	ok(t, b.Close())
	want(t, b.Accept(nil), fi.EBADF)
	// The same holds after a rejection.
	c := r.plug(r.info)
	ok(t, c.Connect(l.at, nil))
	_, info = l.request()
	ok(t, l.Reject(info.Handle, nil))
	if e := eventErr(t, c.evts); e.Err != fi.ECONNREFUSED {
		t.Errorf("%+v", &e)
	}
	want(t, c.Connect(l.at, nil), fi.EOPBADSTATE)
}

func TestConnectEnables(t *testing.T) {
	t.Parallel()
	// R-CM-04, R-EP-02: Connect and Accept enable the endpoint, and fail if something is
	// missing.
	r := newMsgRig(t)
	l := r.listener()
	bare, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	want(t, bare.Connect(l.at, nil), fi.ENOCQ)
	a := r.plug(r.info)
	ok(t, bare.BindCQ(a.tx, fi.Transmit|fi.Recv))
	want(t, bare.Connect(l.at, nil), fi.ENOEQ)
	want(t, bare.Enable(), fi.ENOEQ)
	want(t, bare.Accept(nil), fi.EINVAL) // R-CM-05
	ok(t, bare.Close())

	_, err = a.Name()
	want(t, err, fi.EOPBADSTATE)
	ok(t, a.Connect(l.at, nil))
	_, err = a.Name()
	ok(t, err)
	want(t, a.Enable(), fi.EOPBADSTATE)
	_, info := l.request()
	b := r.plug(info)
	ok(t, b.Enable()) // it may also be enabled before
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
}

func TestAcceptNeedsTheRequest(t *testing.T) {
	t.Parallel()
	// R-CM-05, R-EQ-40, R-EQ-41: the Info of a request belongs to the application, and a peek
	// returns the same. Its handle stands for the request, which can be answered once.
	r := newMsgRig(t)
	l := r.listener()
	stranger := r.plug(r.info)
	want(t, stranger.Accept(nil), fi.EINVAL)
	a := r.plug(r.info)
	ok(t, a.Connect(l.at, nil))
	for {
		if _, err := l.evts.Read(fi.Peek); err == nil {
			break
		}
	}
	peeked, err := l.evts.Read(fi.Peek)
	ok(t, err)
	e, info := l.request()
	if peeked.Info != e.Info {
		t.Error("a peek shows another Info than the read")
	}
	q := info.Handle.(*ConnReq)
	if q.Member() != "" || q.Remote().IP != r.info.SrcAddr.IP {
		t.Errorf("request of %q at %v", q.Member(), q.Remote())
	}
	name, err := a.Name()
	ok(t, err)
	if info.DestAddr != name || info.SrcAddr.IP != l.at.IP || info.SrcAddr.Port != 0 {
		t.Errorf("from %v to %v, want from %v", info.SrcAddr, info.DestAddr, name)
	}
	rdm := *info
	rdm.Ep.Type = fi.EpRDM
	_, err = r.domain.OpenEndpoint(&rdm, nil)
	want(t, err, fi.EINVAL)
	b := r.plug(info)
	_, err = r.domain.OpenEndpoint(info, nil) // the request has an endpoint
	want(t, err, fi.EBUSY)
	ok(t, b.Close())
	b = r.plug(info) // the request has no endpoint any more
	ok(t, b.Accept(nil))
	want(t, b.Accept(nil), fi.EOPBADSTATE)
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
	want(t, l.Reject(info.Handle, nil), fi.EINVAL)
	_, err = r.domain.OpenEndpoint(info, nil)
	want(t, err, fi.EINVAL)
}

func TestReject(t *testing.T) {
	t.Parallel()
	// R-CM-07: the connecting side gets an error with the data given to Reject.
	r := newMsgRig(t)
	l := r.listener()
	a := r.plug(r.info)
	ok(t, a.Connect(l.at, nil))
	_, info := l.request()
	other := r.listener()
	want(t, other.Reject(info.Handle, nil), fi.EINVAL) // not a request of this listener
	want(t, l.Reject(nil, nil), fi.EINVAL)
	want(t, l.Reject(l.PassiveEndpoint, nil), fi.EINVAL)
	want(t, l.Reject((*ConnReq)(nil), nil), fi.EINVAL)
	b := r.plug(info)
	ok(t, l.Reject(info.Handle, []byte("no room")))
	want(t, l.Reject(info.Handle, nil), fi.EINVAL) // only once
	want(t, b.Accept(nil), fi.EINVAL)
	e := eventErr(t, a.evts)
	if e.Err != fi.ECONNREFUSED || string(e.ErrData) != "no room" || e.Fid != a.Endpoint || e.Context != "ep" { // R-EQ-55, R-EP-21
		t.Errorf("%+v %q", e, e.ErrData)
	}
	want(t, a.Connect(l.at, nil), fi.EOPBADSTATE)
	want(t, a.TSend(nil, 0, 1, nil), fi.ENOTCONN)
	want(t, a.TRecv(nil, 0, 1, 0, nil), fi.ENOTCONN)
	want(t, a.Shutdown(), fi.ENOTCONN)
	quiet(t, a.evts)
}

func TestSendBeforeConnected(t *testing.T) {
	t.Parallel()
	// R-CM-08: receives may be posted after Enable, sends after fi.Connected.
	r := newMsgRig(t)
	l := r.listener()
	a := r.plug(r.info)
	want(t, a.TSend(nil, 0, 1, nil), fi.EOPBADSTATE) // R-EP-01
	ok(t, a.Enable())
	buf := make([]byte, 8)
	ok(t, a.TRecv(buf, fi.AddrUnspec, 1, 0, "early"))
	if w := a.Diagnose(); len(w) != 1 || w[0].Cause != WaitConnection {
		t.Errorf("%+v", w)
	}
	want(t, a.TSend(nil, 0, 1, nil), fi.ENOTCONN)
	want(t, a.Inject(nil, 0), fi.ENOTCONN)
	ok(t, a.Connect(l.at, nil))
	want(t, a.Send(nil, 0, nil), fi.ENOTCONN)
	_, err := a.Peer()
	want(t, err, fi.ENOTCONN) // R-CM-16
	want(t, a.Shutdown(), fi.ENOTCONN)
	_, info := l.request()
	b := r.plug(info)
	ok(t, b.Accept(nil))
	event(t, b.evts, fi.Connected)
	ok(t, b.TSend([]byte("hello"), 0, 1, nil))
	if e, _ := wait(t, a.rx, b); e.Context != "early" || string(buf[:e.Len]) != "hello" {
		t.Errorf("%+v %q", e, buf)
	}
	event(t, a.evts, fi.Connected)
	// R-CM-16: each side returns the other's own name.
	for i, n := range []*node{a, b} {
		peer, err := n.Peer()
		ok(t, err)
		name, err := []*node{b, a}[i].Name()
		ok(t, err)
		if peer != name {
			t.Errorf("peer %v, its name is %v", peer, name)
		}
	}
	wait(t, b.tx, a)
}

func TestPrivateDataIsCut(t *testing.T) {
	t.Parallel()
	// R-CM-09, R-EQ-42: private data is cut silently to the size in the option.
	r := newMsgRig(t)
	l := r.listener()
	a := r.plug(r.info)
	n, err := a.GetOpt(fi.OptCMDataSize)
	ok(t, err)
	if n != 256 || CMDataSize != 256 {
		t.Errorf("%d bytes of private data", n)
	}
	long := pattern(1000, 1)
	ok(t, a.Connect(l.at, long))
	e, info := l.request()
	if !bytes.Equal(e.Bytes, long[:n]) {
		t.Errorf("%d bytes came with the request", len(e.Bytes))
	}
	b := r.plug(info)
	ok(t, b.Accept(long))
	if e := event(t, a.evts, fi.Connected); !bytes.Equal(e.Bytes, long[:n]) {
		t.Errorf("%d bytes came with the answer", len(e.Bytes))
	}
	c := r.plug(r.info)
	ok(t, c.Connect(l.at, []byte{}))
	e, info = l.request()
	if len(e.Bytes) != 0 {
		t.Errorf("%d bytes of none", len(e.Bytes))
	}
	ok(t, l.Reject(info.Handle, long))
	if e := eventErr(t, c.evts); !bytes.Equal(e.ErrData, long[:n]) {
		t.Errorf("%d bytes came with the rejection", len(e.ErrData))
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	// R-CM-10: outstanding operations are cancelled before Shutdown returns, each once, and
	// entries in the queue stay. R-CM-11, R-CM-13, R-EQ-37: the peer gets one event, this side
	// none. R-EQ-38: in the life of a connection nobody gets FI_NOTIFY.
	r := newMsgRig(t)
	a, b := r.listener().pair()
	ok(t, a.TRecv(nil, 0, 1, 0, "done"))
	ok(t, b.TSend(nil, 0, 1, nil))
	for {
		if n, err := a.rx.SRead(nil, 1, patience); n == 0 && err == nil || errors.Is(err, fi.EAGAIN) {
			break
		}
	}
	waitQueued(t, a)
	for i := range 5 {
		ok(t, a.TRecv(make([]byte, 8), 0, 2, 0, i))
		ok(t, b.TRecv(make([]byte, 8), 0, 3, 0, i))
	}
	ok(t, a.Shutdown())
	if n := a.rx.Unread(); n != 6 { // before the call returns, without any wait or poll
		t.Errorf("%d entries when Shutdown has returned, want 6", n)
	}
	if e, _ := wait(t, a.rx); e.Context != "done" {
		t.Errorf("%+v", e)
	}
	for i := range 5 {
		if e := waitErr(t, a.rx); e.Err != fi.ECANCELED || e.Context != i {
			t.Errorf("%+v", &e)
		}
	}
	empty(t, a.rx)
	e := event(t, b.evts, fi.Shutdown)
	if e.Fid != b.Endpoint {
		t.Errorf("%+v", e)
	}
	for i := range 5 {
		if e := waitErr(t, b.rx); e.Err != fi.ESHUTDOWN && e.Err != fi.ECONNABORTED || e.Context != i {
			t.Errorf("%+v", &e)
		}
	}
	// F28: neither side can send any more.
	want(t, a.TSend(nil, 0, 1, nil), fi.ESHUTDOWN)
	want(t, a.TRecv(nil, 0, 1, 0, nil), fi.ESHUTDOWN)
	want(t, b.TSend(nil, 0, 1, nil), fi.ESHUTDOWN)
	want(t, a.Shutdown(), fi.ENOTCONN)
	ok(t, b.Shutdown())
	want(t, b.Shutdown(), fi.ENOTCONN)
	ok(t, b.Close())
	quiet(t, a.evts)
	quiet(t, b.evts)
}

// waitQueued waits for an entry in the receive queue and leaves it there.
func waitQueued(t testing.TB, n *node) {
	t.Helper()
	for start := time.Now(); !n.rx.Poll(); {
		if time.Since(start) > patience {
			t.Fatal("no completion")
		}
	}
}

// empty fails the test if the queue has an entry.
func empty(t testing.TB, q *cq.CQ) {
	t.Helper()
	var e [1]cq.Entry
	if n, err := q.Read(e[:]); n != 0 || !errors.Is(err, fi.EAGAIN) {
		t.Errorf("%d entries, %v, want none", n, err)
	}
}

func TestCloseTellsThePeer(t *testing.T) {
	t.Parallel()
	// R-CM-11, F27: the endpoint is closed without Shutdown.
	r := newMsgRig(t)
	a, b := r.listener().pair()
	start := time.Now()
	ok(t, a.Close())
	event(t, b.evts, fi.Shutdown)
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("the peer heard after %v", d)
	}
	ok(t, b.Close())
	quiet(t, a.evts)
	quiet(t, b.evts)
}

func TestWhatArrivedOutlivesTheConnection(t *testing.T) {
	t.Parallel()
	// A completed send is not lost because its sender leaves. Receives of the peer still get
	// the message, and end at once when there is none.
	r := newMsgRig(t)
	a, b := r.listener().pair()
	ok(t, a.TSend([]byte("last words"), 0, 1, nil))
	wait(t, a.tx, b)
	ok(t, a.Close())
	event(t, b.evts, fi.Shutdown)
	buf := make([]byte, 16)
	ok(t, b.TRecv(buf, 0, 1, 0, "there"))
	if e, _ := wait(t, b.rx); e.Context != "there" || string(buf[:e.Len]) != "last words" {
		t.Errorf("%+v %q", e, buf)
	}
	ok(t, b.TRecv(buf, 0, 1, 0, "none"))
	if e := waitErr(t, b.rx); e.Err != fi.ESHUTDOWN || e.Context != "none" {
		t.Errorf("%+v", &e)
	}
}

func TestWhatIsInTheSocketOutlivesTheConnection(t *testing.T) {
	t.Parallel()
	// The same holds for messages that no endpoint has read when the session ends. A holder of
	// the driver's lock delays the end and loses nothing.
	r := newMsgRig(t, func(in *Info) { in.Domain.DataProgress = fi.ProgressManual })
	a, b := r.listener().pair()
	ok(t, b.TRecv(make([]byte, 8), 0, 1, 0, "there"))
	b.drv.With(func() {
		ok(t, a.TInject([]byte("x"), 0, 1))
		ok(t, a.Shutdown())
		for b.connection.state.Load() != connDown {
			runtime.Gosched()
		}
		for range 1000 { // let the end get as far as it can
			runtime.Gosched()
		}
	})
	event(t, b.evts, fi.Shutdown)
	if e, _ := wait(t, b.rx); e.Context != "there" || e.Len != 1 {
		t.Errorf("%+v", e)
	}
}

func TestAnswerAndClose(t *testing.T) {
	t.Parallel()
	// R-CMPL: what the peer answered it has received. So it is no error if it closes then,
	// although most messages of a conversation did not ask for an ACK.
	manual := &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}}
	for _, c := range []struct {
		name string
		pair func(t *testing.T) (a, b *node, toB, toA fi.Addr)
	}{
		{"rdm", func(t *testing.T) (a, b *node, toB, toA fi.Addr) { return newRig(t, manual).pair() }},
		{"msg", func(t *testing.T) (a, b *node, toB, toA fi.Addr) {
			a, b = newMsgRig(t, func(in *Info) { in.Domain.DataProgress = fi.ProgressManual }).listener().pair()
			return a, b, 0, 0
		}},
	} {
		for extra := range 4 {
			t.Run(fmt.Sprintf("%s, %d", c.name, extra), func(t *testing.T) {
				a, b, toB, toA := c.pair(t)
				buf := make([]byte, 8)
				rounds := 1500 + extra
				for n := range rounds {
					ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, n))
					ok(t, a.TRecv(buf, fi.AddrUnspec, 2, 0, n))
					ok(t, a.TSend(buf, toB, 1, n))
					wait(t, b.rx)
					ok(t, b.TInject(buf, toA, 2))
					wait(t, a.rx)
				}
				ok(t, b.Close())
				for range rounds {
					wait(t, a.tx, a)
				}
			})
		}
	}
}

func TestPassiveTransfersNothing(t *testing.T) {
	t.Parallel()
	// R-CM-18: a passive endpoint cannot transfer data. Another endpoint takes over its
	// address, and it is of no use any more.
	r := newMsgRig(t)
	l := r.listener()
	if _, can := any(l.PassiveEndpoint).(interface {
		Send([]byte, fi.Addr, any) error
	}); can {
		t.Error("a passive endpoint can send")
	}
	_, err := r.domain.OpenEndpoint(withHandle(r.info, l.PassiveEndpoint), nil)
	want(t, err, fi.EOPBADSTATE) // it listens

	p, err := r.fabric.OpenPassive(r.info, nil)
	ok(t, err)
	probe := r.listener()
	ok(t, probe.Close())
	ok(t, p.SetName(probe.at)) // a port that is free
	a := r.plug(withHandle(r.info, p))
	_, err = r.domain.OpenEndpoint(withHandle(r.info, p), nil)
	want(t, err, fi.EOPBADSTATE)
	want(t, p.Listen(), fi.EOPBADSTATE)
	want(t, p.SetName(l.at), fi.EOPBADSTATE)
	ok(t, a.Connect(l.at, nil))
	_, info := l.request()
	if from := info.Handle.(*ConnReq).Remote(); from.AddrPort() != probe.at.AddrPort() {
		t.Errorf("the request comes from %v, not from the passive endpoint's %v", from, probe.at)
	}
	ok(t, l.Reject(info.Handle, nil))
	eventErr(t, a.evts)
	ok(t, p.Close())
}

func withHandle(in *Info, h Handle) *Info {
	c := *in
	c.clone()
	c.Handle = h
	return &c
}

func TestConnectAddresses(t *testing.T) {
	t.Parallel()
	r := newMsgRig(t)
	for _, bad := range []string{"[::1]:5000", "0.0.0.0:5000", "127.0.0.1:0", "224.0.0.1:5000"} {
		a := r.plug(r.info)
		want(t, a.Connect(wire.SockAddr(netip.MustParseAddrPort(bad)), nil), fi.EINVAL)
		want(t, a.Connect(wire.Addr{}, nil), fi.EINVAL) // DestAddr is not set either
		ok(t, a.Enable())                               // the endpoint can still be used
	}
	rdm := newRig(t, nil).node()
	want(t, rdm.Connect(wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:5000")), nil), fi.ENOSYS)
	want(t, rdm.Accept(nil), fi.ENOSYS)
	want(t, rdm.Shutdown(), fi.ENOSYS)
	_, err := rdm.Peer()
	want(t, err, fi.ENOSYS)

	// The destination that GetInfo resolved suffices.
	l := r.listener()
	info := *r.info
	info.DestAddr = l.at
	a := r.plug(&info)
	ok(t, a.Connect(wire.Addr{}, nil))
	l.request()
}

func TestF30EndsThatDoNotFit(t *testing.T) {
	t.Parallel()
	// F30, F31: if the ends do not fit, both sides learn when they connect what differs,
	// instead of dropping packets silently.
	r := newMsgRig(t)
	l := r.listener()
	for what, change := range map[string]func(*Config){
		"JobID":         func(c *Config) { c.JobID = 7 },
		"CRC":           func(c *Config) { c.NoCRC = true },
		"encapsulation": func(c *Config) { c.Encapsulation = Standard },
	} {
		info := *r.info
		change(&info.Config)
		info.SrcAddr.IP = ownLoopback()
		a := r.plug(&info)
		ok(t, a.Connect(l.at, nil))
		_, req := l.request()
		b := r.plug(req)
		ok(t, b.Accept(nil))
		for _, n := range []*node{a, b} {
			if e := eventErr(t, n.evts); e.Err != fi.EPROTO || !strings.Contains(string(e.ErrData), what+" differs") {
				t.Errorf("%s: %+v %s", what, &e, e.ErrData)
			}
		}
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	// F11: on Linux the ICMP of the host ends Connect at once, elsewhere its time does.
	r := newMsgRig(t)
	want, within := fi.ECONNREFUSED, 5*time.Second // half the time of a handshake
	if runtime.GOOS != "linux" {
		want = fi.ETIMEDOUT
		r.info.Config.CM.Handshake = 500 * time.Millisecond
	}
	l := r.listener()
	ok(t, l.Close())
	a := r.plug(r.info)
	begin := time.Now()
	ok(t, a.Connect(l.at, nil))
	if e := eventErr(t, a.evts); e.Err != want || e.Fid != a.Endpoint {
		t.Errorf("%+v", &e)
	}
	if d := time.Since(begin); d > within {
		t.Errorf("the event came after %v", d)
	}
	quiet(t, a.evts)
}

func TestRequesterLeaves(t *testing.T) {
	t.Parallel()
	// If the requester gives up before the answer, Accept reports it by the event queue, and
	// Reject has nobody to reach.
	r := newMsgRig(t)
	l := r.listener()
	for _, accept := range []bool{true, false} {
		a := r.plug(r.info)
		ok(t, a.Connect(l.at, nil))
		_, info := l.request()
		ok(t, a.Close())
		<-info.Handle.(*ConnReq).req.Withdrawn()
		if !accept {
			ok(t, l.Reject(info.Handle, nil))
			continue
		}
		b := r.plug(info)
		ok(t, b.Accept(nil))
		if e := eventErr(t, b.evts); e.Err != fi.ECONNABORTED || e.Fid != b.Endpoint {
			t.Errorf("%+v %s", &e, e.ErrData)
		}
		quiet(t, a.evts)
	}
}

func TestPassiveClose(t *testing.T) {
	t.Parallel()
	// Closing a passive endpoint refuses the requests without an endpoint. Requests that have
	// one, and connections, live on.
	r := newMsgRig(t)
	l := r.listener()
	a, b := l.pair()
	held, lost := r.plug(r.info), r.plug(r.info)
	ok(t, held.Connect(l.at, nil))
	_, info := l.request()
	taken := r.plug(info)
	ok(t, lost.Connect(l.at, nil))
	_, left := l.request()
	ok(t, l.Close())
	if e := eventErr(t, lost.evts); e.Err != fi.ECONNREFUSED {
		t.Errorf("%+v", &e)
	}
	_, err := r.domain.OpenEndpoint(left, nil)
	want(t, err, fi.EINVAL)
	ok(t, taken.Accept(nil))
	event(t, held.evts, fi.Connected)
	event(t, taken.evts, fi.Connected)
	ok(t, a.TSend([]byte("x"), 0, 1, nil))
	ok(t, b.TRecv(make([]byte, 1), 0, 1, 0, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
}

func TestF37RequestsDoNotFillTheQueue(t *testing.T) {
	t.Parallel()
	// F37, R-EQ-68: nobody reads the event queue. Requests beyond its room are refused and the
	// queue does not overrun. Connections still get their events.
	r := newMsgRig(t, func(in *Info) { in.Config.CM.Rate, in.Config.CM.Burst = 1e6, 1e6 })
	q := r.eventQueue(4)
	p, err := r.fabric.OpenPassive(r.info, nil)
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	ok(t, p.BindEQ(q))
	ok(t, p.Listen())
	at, err := p.Name()
	ok(t, err)
	var all []*node
	for range 12 {
		n := r.plug(r.info)
		ok(t, n.Connect(at, nil))
		all = append(all, n)
	}
	for refused, start := 0, time.Now(); refused < 8; {
		if time.Since(start) > patience {
			t.Fatalf("%d requests refused, want 8", refused)
		}
		for _, n := range all {
			if _, err := n.evts.Read(0); errors.Is(err, fi.EAVAIL) {
				if e, _ := n.evts.ReadErr(0); e.Err != fi.ECONNREFUSED {
					t.Fatalf("%+v", &e)
				}
				refused++
			}
		}
	}
	for range 4 {
		event(t, q, fi.ConnReq)
	}
	quiet(t, q)
	if s := p.ConnStats(); s.NoRoom != 8 || s.Waiting != 4 || s.Begun < 12 || s.Open != 0 {
		t.Errorf("%+v", s)
	}
}

// connected waits until both ends may send, without reading their queues.
func connected(t *testing.T, a, b *node) {
	t.Helper()
	for start := time.Now(); a.connection.maySend() != nil || b.connection.maySend() != nil; time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("not connected")
		}
	}
}

func TestF37StuckReader(t *testing.T) {
	t.Parallel()
	// F37: nobody reads an event queue with one place, and it gets more trouble than it holds.
	// Messages go on, and the queue says how much it lost.
	r := newMsgRig(t)
	q := r.eventQueue(1)
	l := r.listener()
	a := r.plugTo(r.info, q)
	ok(t, a.Connect(l.at, nil))
	_, info := l.request()
	b := r.plugTo(info, q)
	ok(t, b.Accept(nil))
	connected(t, a, b)
	for range 10 {
		(*owner)(a.Endpoint).report(eq.Error{Fid: a.Endpoint, Err: fi.ENETDOWN})
		talk(t, a, b, "goes on")
		talk(t, b, a, "so does this")
	}
	kinds := map[fi.EQEvent]int{}
	for {
		e, err := q.Read(0)
		if err == nil {
			kinds[e.Event]++
			continue
		}
		bad, err := q.ReadErr(0)
		ok(t, err)
		if bad.Err == fi.EOVERRUN {
			if bad.Lost == 0 {
				t.Error("an overrun that lost nothing")
			}
			break
		}
	}
	if kinds[fi.Connected] != 2 {
		t.Errorf("%v: not both were told", kinds)
	}
}

func TestClosedEndpointsLeaveRoom(t *testing.T) {
	t.Parallel()
	// R-EQ-68: unread events of closed endpoints take no room from later endpoints.
	const pairs = 3
	r := newMsgRig(t)
	q := r.eventQueue(1)
	l := r.listener()
	for range pairs {
		a := r.plugTo(r.info, q)
		ok(t, a.Connect(l.at, nil))
		_, info := l.request()
		b := r.plugTo(info, q)
		ok(t, b.Accept(nil))
		connected(t, a, b)
		ok(t, a.Close())
		ok(t, b.Close())
	}
	told := 0
	for {
		e, err := q.Read(0)
		if errors.Is(err, fi.EAGAIN) {
			break
		}
		ok(t, err)
		if e.Event == fi.Connected {
			told++
		}
	}
	if told != 2*pairs {
		t.Errorf("%d ends were told of their connection, want %d", told, 2*pairs)
	}
}

func TestConnectionRaces(t *testing.T) {
	t.Parallel()
	// T37: Connect, Accept, Shutdown, Close and posts race from all sides. Every operation
	// ends, nothing hangs, and no event comes after Close.
	r := newMsgRig(t, func(in *Info) { in.Config.CM.Rate, in.Config.CM.Burst = 1e6, 1e6 })
	l := r.listener()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		a := r.plug(r.info)
		ok(t, a.Connect(l.at, nil))
		if i%4 == 0 {
			ok(t, a.Close())
		}
		var info *Info
		for info == nil && i%4 != 0 {
			if e, err := l.evts.SRead(0, patience); err == nil {
				if in := e.Info.(*Info); in.DestAddr == a.Info().SrcAddr {
					info = in
				}
			}
		}
		if info == nil {
			continue
		}
		b := r.plug(info)
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { _ = b.Accept(nil) },
			func() { _ = a.TRecv(make([]byte, 8), 0, 1, 0, nil) },
			func() {
				for range 50 {
					_ = a.TInject([]byte("x"), 0, 2)
					_ = b.TInject([]byte("x"), 0, 1)
				}
			},
			func() {
				if i%4 == 1 {
					_ = a.Shutdown()
				}
				_ = a.Close()
			},
			func() {
				if i%4 == 2 {
					_ = b.Shutdown()
				}
				_, _ = b.Peer()
				_ = b.Close()
			},
		} {
			wg.Go(f)
		}
		wg.Wait()
		for _, n := range []*node{a, b} {
			for {
				e, err := n.evts.Read(0)
				if errors.Is(err, fi.EAVAIL) {
					_, _ = n.evts.ReadErr(0)
					continue
				}
				if err != nil {
					break
				}
				if e.Fid != n.Endpoint {
					t.Errorf("%+v", e)
				}
			}
		}
	}
}

func TestEveryOperationOfAConnectionEnds(t *testing.T) {
	t.Parallel()
	// docs/faults.md rule 1, R-CM-10, R-CM-12: whichever side ends the connection, and
	// however, in the middle of posts from both sides, each accepted operation has one entry,
	// and none comes after Close.
	r := newMsgRig(t, func(in *Info) {
		in.Config.CM.Rate, in.Config.CM.Burst = 1e6, 1e6
		in.Tx.Size, in.Rx.Size = 64, 64
	})
	l := r.listener()
	rounds := 30
	if testing.Short() {
		rounds = 6
	}
	for round := range rounds {
		a, b := l.pair()
		var wg sync.WaitGroup
		posted := make([]int, 4) // a's sends, a's receives, b's …
		got := make([]int, 4)
		for i, n := range []*node{a, b} {
			// One goroutine posts, another reads.
			wg.Go(func() {
				buf := make([]byte, 3000)
				for k := 0; ; k++ {
					size := k * 37 % 3000
					err := n.TSend(buf[:size], 0, uint64(k%3), k)
					if err == nil {
						posted[2*i]++
					}
					err2 := n.TRecv(make([]byte, 3000), 0, uint64(k%4), 0, k)
					if err2 == nil {
						posted[2*i+1]++
					}
					if errors.Is(err, fi.EBADF) && errors.Is(err2, fi.EBADF) {
						return
					}
					if k%16 == 0 {
						runtime.Gosched()
					}
				}
			})
			for d, q := range []*cq.CQ{n.tx, n.rx} {
				wg.Go(func() {
					for closed := false; ; {
						var es [16]cq.Entry
						k, err := q.Read(es[:])
						switch {
						case k > 0:
							got[2*i+d] += k
						case errors.Is(err, fi.EAVAIL):
							var e cq.Error
							_, err := q.ReadErr(&e, 0)
							ok(t, err)
							got[2*i+d]++
						case closed:
							return
						default:
							// Read once more after Close, which may have written entries.
							closed = n.state.Load() == stateClosed && n.done.Load()
							runtime.Gosched()
						}
					}
				})
			}
		}
		time.Sleep(time.Duration(round%5) * time.Millisecond)
		first, second := a, b
		if round%2 == 0 {
			first, second = b, a
		}
		if round%3 == 0 {
			ok(t, first.Shutdown())
		} else {
			ok(t, first.Close())
		}
		event(t, second.evts, fi.Shutdown)
		for _, n := range []*node{second, first} {
			if err := n.Close(); err != nil && !errors.Is(err, fi.EBADF) {
				t.Error(err)
			}
			n.done.Store(true)
		}
		wg.Wait()
		for i, what := range []string{"sends of a", "receives of a", "sends of b", "receives of b"} {
			if got[i] != posted[i] {
				t.Fatalf("round %d: %d of %d %s have ended", round, got[i], posted[i], what)
			}
		}
	}
}

func TestConnectedPostNoAllocs(t *testing.T) {
	// Posting, matching and completing on a connection allocate nothing, sealed or not.
	key, err := NewClusterKey(NewKey(1))
	ok(t, err)
	for name, sec := range map[string]*Security{"clear": nil, "sealed": key} {
		t.Run(name, func(t *testing.T) {
			r := newMsgRig(t, secured(fi.EpMsg, sec), func(in *Info) { in.Domain.DataProgress = fi.ProgressManual })
			a, b := r.listener().pair()
			buf, msg := make([]byte, 5000), make([]byte, 5000)
			es := make([]cq.Entry, 64)
			round := func() {
				for range 8 {
					if err := errors.Join(b.TRecv(buf, 0, 1, 0, &buf), a.TSend(msg, 0, 1, &buf)); err != nil {
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
			if n := testing.AllocsPerRun(200, round); n != 0 {
				t.Errorf("%v allocations for 8 messages", n)
			}
		})
	}
}

func TestLeftOperationEndsAsTheConnectionDid(t *testing.T) {
	t.Parallel()
	// R-CM-12: a send that waits for the driver's lock when the peer is lost is outstanding
	// like any other.
	r := newMsgRig(t)
	a, _ := r.listener().pair()
	done := make(chan error)
	a.drv.With(func() {
		go func() { done <- a.Send(nil, 0, "late") }()
		ok(t, <-done)
		a.connection.why = fi.ETIMEDOUT
		a.fep.End(1)
	})
	if e := waitErr(t, a.tx); e.Err != fi.ETIMEDOUT || e.Context != "late" {
		t.Errorf("%+v", e)
	}
}

func TestOverrunEndsTheConnection(t *testing.T) {
	t.Parallel()
	// R-EP-15, R-CM-11, R-CM-13: a disabled endpoint has lost its connection, and each side
	// gets one event.
	r := newMsgRig(t, func(in *Info) { in.Domain.ResourceMgmt = fi.RMDisabled })
	l := r.listener()
	small := func(o *options) { o.attr.Size = 64 }
	a := r.plug(r.info, small)
	ok(t, a.Connect(l.at, nil))
	_, info := l.request()
	b := r.plug(info, small)
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
	for range b.rx.Attr().Size + 2 {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Inject(nil, 0))
	}
	if e := eventErr(t, b.evts); e.Err != fi.EOVERRUN || e.Fid != b.rx {
		t.Errorf("%+v", e)
	}
	event(t, b.evts, fi.Shutdown)
	event(t, a.evts, fi.Shutdown)
	want(t, b.Send(nil, 0, nil), fi.EOPBADSTATE)
	want(t, a.Send(nil, 0, nil), fi.ESHUTDOWN)
	ok(t, b.Close())
	ok(t, a.Close())
	for _, n := range []*node{a, b} {
		_, err := n.evts.Read(0)
		want(t, err, fi.EAGAIN)
	}
}
