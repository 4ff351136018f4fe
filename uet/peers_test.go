package uet

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestPeerCacheForgetsWithTheLastHandle(t *testing.T) {
	fep, err := transport.New(transport.Config{Local: netip.MustParseAddrPort("192.0.2.1:4793")}, rand.New(rand.NewPCG(1, 2)))
	ok(t, err)
	vec, err := av.New(av.Attr{}, nil)
	ok(t, err)
	c := peerCache{av: vec, fep: fep, refs: &peerRefs{}}
	addr := netip.MustParseAddrPort("192.0.2.2:4793")
	other := netip.MustParseAddrPort("192.0.2.3:4793")
	h := make([]fi.Addr, 2)
	_, err = vec.InsertAddrPorts([]netip.AddrPort{addr, addr}, h)
	ok(t, err)
	same := func(want transport.PeerID) bool {
		id, err := fep.Peer(addr, false)
		ok(t, err)
		return id == want
	}
	find := func(h fi.Addr) transport.PeerID {
		e, err := c.find(h)
		ok(t, err)
		return e.id
	}
	id := find(h[0])
	if find(h[1]) != id || !same(id) {
		t.Fatal("one address, two peers")
	}
	// When one handle comes to mean another peer, the other handle keeps its meaning.
	replace := func(i int) {
		ok(t, vec.Remove(h[i]))
		_, err = vec.InsertAddrPorts([]netip.AddrPort{other}, h[i:i+1])
		ok(t, err)
		if find(h[i]) == id {
			t.Error("the handle means its old peer")
		}
	}
	replace(0)
	if find(h[1]) != id || !same(id) {
		t.Error("the peer was forgotten though a handle names it")
	}
	replace(1)
	if same(id) {
		t.Error("the peer is kept though no handle names it")
	}
	if _, err := c.find(77); err != transport.ErrNoPeer {
		t.Errorf("an unset handle: %v", err)
	}
}

func TestSourceNeedsTheCapability(t *testing.T) {
	t.Parallel()
	// R-CQ-56
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged})
	a, b, toB, _ := r.pair()
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, nil))
	if _, src := wait(t, b.rx, a); src != fi.AddrNotAvail {
		t.Errorf("source %v on an endpoint without FI_SOURCE", src)
	}
	wait(t, a.tx, b)
}

func TestDirectedReceiveLooksAtTheInitiator(t *testing.T) {
	t.Parallel()
	// R-MSG-10
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	name, err := a.Name()
	ok(t, err)
	name.Initiator, name.Flags = 99, name.Flags|wire.AddrInitiatorValid
	h := make([]fi.Addr, 1)
	if n, err := b.vec.Insert(addrs(name), h, 0, nil); n != 1 {
		t.Fatal(err)
	}
	ok(t, b.TRecv(nil, h[0], 1, 0, "of another initiator"))
	ok(t, b.TRecv(nil, fi.AddrUnspec, 1, 0, "of anybody"))
	ok(t, a.TSend(nil, toB, 1, nil))
	if e, _ := wait(t, b.rx, a); e.Context != "of anybody" {
		t.Errorf("%+v", e)
	}
	wait(t, a.tx, b)
}

func TestKnownPeersOnlyHearsOfReplacedAddresses(t *testing.T) {
	t.Parallel()
	// The vector has the same length, but another address.
	r := newRig(t, &Info{Config: Config{KnownPeersOnly: true}})
	a, b, c := r.node(), r.node(), r.node()
	fromC := b.know(c)
	toB, cToB := a.know(b), c.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, c.Send(nil, cToB, nil))
	wait(t, b.rx, c)
	wait(t, c.tx, b)
	ok(t, b.vec.Remove(fromC))
	b.know(a)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
}

func TestKnownPeersOnlyHearsOfRemovedAddresses(t *testing.T) {
	t.Parallel()
	// A removed address is treated like one that was never inserted. An existing conversation
	// goes on (R-AV-11).
	r := newRig(t, &Info{Config: Config{KnownPeersOnly: true}})
	b, c := r.node(), r.node()
	name, err := c.Name()
	ok(t, err)
	fromC, toB := b.know(c), c.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, c.Send(nil, toB, nil))
	wait(t, b.rx, c)
	wait(t, c.tx, b)
	ok(t, b.vec.Remove(fromC))
	ok(t, c.Endpoint.Close())
	again := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.SetName(name)) } })
	toB = again.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, again.Send(nil, toB, nil))
	refused := func() bool { return b.Stats().Drops[transport.DropUnknown] > 0 }
	for start := time.Now(); !refused(); {
		if n, err := b.rx.Read(make([]cq.Entry, 1)); n != 0 || err != fi.EAGAIN || time.Since(start) > patience {
			t.Fatalf("%d, %v", n, err)
		}
		_, _ = again.tx.Read(nil)
	}
	fromC = b.know(again)
	if _, src := wait(t, b.rx, again); src != fromC {
		t.Error(src)
	}
	wait(t, again.tx, b)
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	infos, err := GetInfo("::1", "", fi.Source, nil)
	if err != nil {
		t.Skip("no IPv6 loopback address here")
	}
	r := &rig{t: t, info: infos[0]}
	r.fabric, err = OpenFabric(r.info, nil)
	ok(t, err)
	r.domain, err = r.fabric.OpenDomain(r.info, nil)
	ok(t, err)
	a, b, toB, toA := r.pair()
	buf := make([]byte, 100_000)
	ok(t, b.TRecv(buf, toA, 1, 0, nil))
	ok(t, a.TSend(pattern(len(buf), 6), toB, 1, nil))
	if e, src := wait(t, b.rx, a); e.Len != len(buf) || src != toA {
		t.Errorf("%+v from %v", e, src)
	}
	wait(t, a.tx, b)
	// An address of the other family cannot be a peer.
	h, err := a.vec.InsertString("127.0.0.1:4793")
	ok(t, err)
	want(t, a.Send(nil, h, nil), fi.EINVAL)
}

func TestZonesByNumber(t *testing.T) {
	t.Parallel()
	// An interface has a name and a number, and either can be a zone. The AV and the socket
	// may use different ones for the same address.
	ip := linkLocal(t)
	ifc, err := net.InterfaceByName(ip.Zone())
	ok(t, err)
	infos, err := GetInfo(ip.String(), "", fi.Source, nil)
	ok(t, err)
	r := newRig(t, nil)
	r = &rig{t: t, info: infos[0], fabric: r.fabric, domain: r.domain}
	a, b := r.node(), r.node()
	name, err := b.Name()
	ok(t, err)
	name.IP = ip.WithZone(strconv.Itoa(ifc.Index))
	fromB, err := a.vec.InsertString(name.String())
	ok(t, err)
	toA := b.know(a)
	for range 2 {
		ok(t, a.Recv(nil, fromB, "directed"))
		ok(t, b.Send(nil, toA, nil))
		if _, src := wait(t, a.rx, b); src != fromB {
			t.Errorf("source %v, want %v", src, fromB)
		}
		wait(t, b.tx, a)
		ok(t, b.Recv(nil, toA, nil))
		ok(t, a.Send(nil, fromB, nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
	}
}

func TestManyPaths(t *testing.T) {
	t.Parallel()
	// An endpoint with several ports, and a different payload size at each end.
	r := newRig(t, &Info{Config: Config{Paths: 4, PayloadMTU: 1024}})
	a := r.node()
	r.info.Config.PayloadMTU, r.info.Config.Paths = 4096, 1
	b := r.node()
	toB, toA := a.know(b), b.know(a)
	for i, x := range []struct {
		from, dst *node
		to        fi.Addr
	}{{a, b, toB}, {b, a, toA}} {
		buf := make([]byte, 1<<20)
		ok(t, x.dst.Recv(buf, fi.AddrUnspec, nil))
		ok(t, x.from.Send(pattern(len(buf), uint64(i)), x.to, nil))
		wait(t, x.dst.rx, x.from)
		if string(buf) != string(pattern(len(buf), uint64(i))) {
			t.Error("the bytes differ")
		}
		wait(t, x.from.tx, x.dst)
	}
}

func TestManyEndpointsShareAQueue(t *testing.T) {
	t.Parallel()
	// R-CQ-34, R-EP-22, fabtests multi_ep.
	r := newRig(t, nil)
	q, err := r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged}, nil)
	ok(t, err)
	vec, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	const n = 5
	eps := make([]*Endpoint, n)
	h := make([]fi.Addr, n)
	for i := range eps {
		eps[i], err = r.domain.OpenEndpoint(r.info, nil)
		ok(t, err)
		ok(t, eps[i].BindCQ(q, fi.Transmit|fi.Recv))
		ok(t, eps[i].BindAV(vec))
		ok(t, eps[i].Enable())
		name, err := eps[i].Name()
		ok(t, err)
		h[i], err = vec.InsertString(name.String())
		ok(t, err)
	}
	for i := range eps {
		for j := range eps {
			ok(t, eps[j].TRecv(make([]byte, 8), h[i], uint64(i), 0, "rx"))
			ok(t, eps[i].TSend([]byte("x"), h[j], uint64(i), "tx"))
		}
	}
	got := map[any]int{}
	for range 2 * n * n {
		e, src := wait(t, q)
		got[e.Context]++
		if e.Context == "rx" && src != h[e.Tag] {
			t.Errorf("message of %d comes from %v", e.Tag, src)
		}
	}
	if got["rx"] != n*n || got["tx"] != n*n {
		t.Errorf("%v", got)
	}
	for _, ep := range eps {
		want(t, q.Close(), fi.EBUSY)
		ok(t, ep.Close())
	}
	ok(t, q.Close())
	ok(t, vec.Close())
}

// A post that finds the FEP busy is refused for the same reasons as any other, and at once.
func TestRefusedWhileBusy(t *testing.T) {
	r := newRig(t, nil)
	n := r.node()
	h, err := n.vec.InsertString("[::1]:4793")
	ok(t, err)
	n.drv.With(func() { // with the lock held
		done := make(chan error)
		go func() { done <- n.Send(nil, h, nil) }()
		want(t, <-done, fi.EINVAL)
	})
}

func TestOwnZoneByNumber(t *testing.T) {
	t.Parallel()
	// The endpoint's own address has its zone by name, in whatever form it was given, and the
	// zone in a hint has effect.
	ip := linkLocal(t)
	ifc, err := net.InterfaceByName(ip.Zone())
	ok(t, err)
	number := ip.WithZone(strconv.Itoa(ifc.Index))
	_, err = GetInfo("", "", 0, &Info{SrcAddr: wire.Addr{IP: ip.WithZone("1")}}) // of lo
	want(t, err, fi.ENODATA)
	infos, err := GetInfo("", "", 0, &Info{SrcAddr: wire.Addr{IP: number}, Ep: EpAttr{Type: fi.EpMsg}})
	ok(t, err)
	if len(infos) != 1 || infos[0].SrcAddr.IP != ip {
		t.Fatalf("%d, %v", len(infos), infos[0].SrcAddr)
	}
	r := newMsgRig(t)
	check := func(what string, name wire.Addr, err error) {
		t.Helper()
		if err != nil || name.IP != ip {
			t.Errorf("%s: %v, %v, want %v", what, name, err, ip)
		}
	}
	rdm := newRig(t, nil)
	info := *rdm.info
	info.SrcAddr = wire.Addr{IP: number}
	rdm = &rig{t: t, info: &info, fabric: rdm.fabric, domain: rdm.domain}
	a := rdm.node()
	b := rdm.node(func(o *options) {
		o.bind = func(ep *Endpoint) { ok(t, ep.SetName(wire.Addr{IP: number})) }
	})
	for what, n := range map[string]*node{"opened": a, "named": b} {
		name, err := n.Name()
		check(what, name, err)
		check(what, n.Info().SrcAddr, nil)
	}
	toB, toA := a.know(b), b.know(a)
	ok(t, b.Recv(nil, toA, nil))
	ok(t, a.Send(nil, toB, nil))
	if _, src := wait(t, b.rx, a); src != toA {
		t.Errorf("source %v, want %v", src, toA)
	}
	// The same for connections: the passive end, and the destination of Connect.
	minfo := *infos[0]
	minfo.SrcAddr.IP = number
	m := &rig{t: t, info: &minfo, fabric: r.fabric, domain: r.domain}
	l := m.listener(func(p *PassiveEndpoint) { ok(t, p.SetName(wire.Addr{IP: number})) })
	check("passive", l.at, nil)
	l.at.IP = number
	c, d := l.pair()
	talk(t, c, d, "hello")
	talk(t, d, c, "hello yourself")
	peer, err := c.Peer()
	check("peer", peer, err)
}

func TestFarHandleTakesOnePage(t *testing.T) {
	// Thousands of endpoints share a vector, and each sends to another peer: what one keeps grows
	// by 8 bytes for 32 handles, not by an entry each.
	fep, err := transport.New(transport.Config{Local: netip.MustParseAddrPort("192.0.2.1:4793")}, rand.New(rand.NewPCG(1, 2)))
	ok(t, err)
	vec, err := av.New(av.Attr{}, nil)
	ok(t, err)
	c := peerCache{av: vec, fep: fep, refs: &peerRefs{}}
	var addrs []netip.AddrPort
	for i := range 2000 {
		addrs = append(addrs, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(1024+i)))
	}
	h := make([]fi.Addr, len(addrs))
	_, err = vec.InsertAddrPorts(addrs, h)
	ok(t, err)
	far := h[len(h)-1]
	_, err = c.find(far)
	ok(t, err)
	pages := 0
	for _, p := range c.tab {
		if p != nil {
			pages++
		}
	}
	if pages != 1 || c.at(far) == nil || c.at(far).gen == 0 || c.at(0) != nil || c.at(fi.AddrUnspec) != nil {
		t.Errorf("%d pages for handle %d, entry %+v", pages, far, c.at(far))
	}
}
