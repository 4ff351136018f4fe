package uet

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// ownLoopback returns an address of the loopback interface that no other test uses: with Standard
// encapsulation port 4793 is there once for each address.
func ownLoopback() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], rand.Uint32())
	return netip.AddrFrom4([4]byte{127, 1 + b[1]%254, b[2], 1 + b[3]%254})
}

// standardRig makes a rig whose nodes have Standard encapsulation; named gives each an address.
func standardRig(t *testing.T, change func(*Config)) *rig {
	h := &Info{Config: Config{Encapsulation: Standard, Paths: 4}}
	if change != nil {
		change(&h.Config)
	}
	return newRig(t, h)
}

func named(ip netip.Addr) func(*options) {
	return func(o *options) {
		o.bind = func(ep *Endpoint) { _ = ep.SetName(wire.Addr{IP: ip}) }
	}
}

// ports are what a Tap saw of one endpoint.
type ports struct {
	mu            sync.Mutex
	from, answers map[uint16]int // source ports of requests that came, and of ACKs that left
	wrong         []string
}

func (p *ports) tap(d *Tapped) {
	p.mu.Lock()
	defer p.mu.Unlock()
	typ := wire.Type(d.Data[0] >> 3)
	switch {
	case d.Sent && d.Remote.Port() != wire.Port || !d.Sent && d.Local.Port() != wire.Port:
		p.wrong = append(p.wrong, d.Local.String()+" "+d.Remote.String())
	case d.Sent && (typ == wire.TypeAck || typ == wire.TypeAckCC):
		p.answers[d.Local.Port()]++
	case !d.Sent && typ == wire.TypeRUDReq:
		p.from[d.Remote.Port()]++
	}
}

// S-PKT-02, S-PKT-03: with Standard encapsulation every packet goes to port 4793, and answers
// repeat the source ports of what they answer.
func TestStandardBothWays(t *testing.T) {
	t.Parallel()
	for _, portable := range []bool{false, true} {
		t.Run(map[bool]string{false: "native", true: "portable"}[portable], func(t *testing.T) {
			t.Parallel()
			r := standardRig(t, func(c *Config) { c.Socket.Portable = portable })
			var seen [2]ports
			var nodes [2]*node
			for i := range nodes {
				seen[i] = ports{from: map[uint16]int{}, answers: map[uint16]int{}}
				r.info.Config.Tap = seen[i].tap
				nodes[i] = r.node(named(ownLoopback()))
			}
			a, b := nodes[0], nodes[1]
			toB, toA := a.know(b), b.know(a)
			for i, x := range []struct {
				from, dst *node
				to        fi.Addr
			}{{a, b, toB}, {b, a, toA}} {
				for _, n := range []int{0, 100, 5000, 1 << 20, 4 << 20} {
					buf := make([]byte, n)
					ok(t, x.dst.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
					ok(t, x.from.TSend(pattern(n, uint64(i)), x.to, 1, nil))
					if _, src := wait(t, x.dst.rx, x.from); src != 0 {
						t.Errorf("the source is %v, not the one that the vector knows", src)
					}
					if string(buf) != string(pattern(n, uint64(i))) {
						t.Error("the bytes differ")
					}
					wait(t, x.from.tx, x.dst)
				}
			}
			for i := range seen {
				p := &seen[i]
				p.mu.Lock()
				if len(p.wrong) > 0 {
					t.Errorf("node %d: %d packets not to port 4793: %v", i, len(p.wrong), p.wrong[0])
				}
				if len(p.from) != 4 || len(p.answers) < 2 {
					t.Errorf("node %d: requests came from the ports %v, answers left from %v", i, p.from, p.answers)
				}
				for port := range p.answers {
					if p.from[port] == 0 {
						t.Errorf("node %d answered from port %d, from which nothing came", i, port)
					}
				}
				p.mu.Unlock()
				if s := nodes[i].Stats(); s.EVsUnbound != 0 || s.Socket.EchoBound == 0 {
					t.Errorf("node %d: %d answers could not repeat, %d ports were bound", i, s.EVsUnbound, s.Socket.EchoBound)
				}
			}
		})
	}
}

// An entropy value whose port another socket has is not repeated: the answer leaves from 4793, and
// is counted.
func TestStandardTakenEVIsAnsweredFrom4793(t *testing.T) {
	t.Parallel()
	r := standardRig(t, nil)
	p := ports{from: map[uint16]int{}, answers: map[uint16]int{}}
	a := r.node(named(ownLoopback()))
	r.info.Config.Tap = p.tap
	b := r.node(named(ownLoopback()))
	name, err := b.Name()
	ok(t, err)
	info, err := a.PathInfo()
	ok(t, err)
	for _, port := range info.Socket.Ports[1:] {
		defer hold(t, netip.AddrPortFrom(name.IP, port))()
	}
	toB := a.know(b)
	buf := make([]byte, 1<<20)
	// Few ACKs answer a message, and those that name a packet from 4793 repeat its value.
	for i := 0; i < 50 && (i == 0 || b.Stats().EVsUnbound == 0); i++ {
		ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		ok(t, a.TSend(pattern(len(buf), 1), toB, 1, nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.from) != 4 || len(p.answers) != 1 || p.answers[wire.Port] == 0 {
		t.Errorf("requests came from the ports %v, answers left from %v", p.from, p.answers)
	}
	if n := b.Stats().EVsUnbound; n == 0 {
		t.Error("no answer is counted that could not repeat its entropy value")
	}
}

// One endpoint of an address may have Standard encapsulation. The error of a second one says what
// to do.
func TestStandardSecondEndpointIsRefused(t *testing.T) {
	t.Parallel()
	r := standardRig(t, nil)
	ip := ownLoopback()
	r.node(named(ip))
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	defer func() { ok(t, ep.Close()) }()
	other := r.node(named(ownLoopback())) // its queues serve
	ok(t, ep.BindCQ(other.tx, fi.Transmit|fi.Recv))
	ok(t, ep.BindAV(other.vec))
	ok(t, ep.SetName(wire.Addr{IP: ip}))
	err = ep.Enable()
	want(t, err, fi.EADDRINUSE)
	for _, s := range []string{"port 4793 of " + ip.String(), "an address of its own", "symmetric"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
	// Another address does.
	ok(t, ep.SetName(wire.Addr{IP: ownLoopback()}))
	ok(t, ep.Enable())
}

// F11: an ICMP message about a packet from any of the ports is evidence against the peer.
func TestStandardDeadPeer(t *testing.T) {
	t.Parallel()
	r := standardRig(t, func(c *Config) { c.Tuning.SuspectTimeout = 100e6 })
	a, b := r.node(named(ownLoopback())), r.node(named(ownLoopback()))
	toB := a.know(b)
	ok(t, b.Close())
	ok(t, a.TSend(make([]byte, 100_000), toB, 1, nil))
	if e := waitErr(t, a.tx); e.Err != fi.EHOSTUNREACH {
		t.Errorf("%+v", e)
	}
}

// S-PKT-02: an address record names the encapsulation, and a peer of another one is refused where
// it is named, and not by silence. With Standard encapsulation the port is 4793.
func TestStandardAddresses(t *testing.T) {
	t.Parallel()
	r := standardRig(t, nil)
	if a := r.info.SrcAddr; a.Port != wire.Port || a.Encap != wire.Standard {
		t.Errorf("GetInfo returns %+v", a)
	}
	a := r.node(named(ownLoopback()))
	name, err := a.Name()
	ok(t, err)
	b, err := name.AppendBinary(nil)
	ok(t, err)
	if got, _, err := wire.ParseAddrBinary(b); err != nil || got.Encap != wire.Standard || got.Port != wire.Port {
		t.Errorf("the record of %v is %+v, %v", name, got, err)
	}
	r.info.Config.Encapsulation = Symmetric
	c := r.node()
	for _, x := range []struct {
		what string
		n    *node
		to   wire.Addr
		err  error
	}{
		{"symmetric to standard", c, name, fi.EOPNOTSUPP},
		{"standard to another port", a, wire.SockAddr(netip.AddrPortFrom(ownLoopback(), 5000)), fi.EOPNOTSUPP},
		{"native IP", a, wire.Addr{IP: ownLoopback(), RI: 15, NumRI: 1, Initiator: 16, Encap: wire.NativeIP}, fi.EOPNOTSUPP},
		{"standard to one that does not say", a, wire.SockAddr(netip.AddrPortFrom(ownLoopback(), 0)), nil},
	} {
		h := make([]fi.Addr, 1)
		if _, err := x.n.vec.Insert(addrs(x.to), h, 0, nil); err != nil {
			t.Fatal(err)
		}
		if err := x.n.TInject(nil, h[0], 1); err != x.err {
			t.Errorf("%s: %v, want %v", x.what, err, x.err)
		}
	}
}

// A port that Standard encapsulation does not have is refused with a reason.
func TestStandardPortIsRefused(t *testing.T) {
	t.Parallel()
	for field, h := range map[string]*Info{
		"SrcAddr":  {SrcAddr: wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:5000"))},
		"DestAddr": {DestAddr: wire.SockAddr(netip.MustParseAddrPort("127.0.0.1:5000"))},
		"Config":   {Config: Config{Encapsulation: wire.NativeIP}},
	} {
		if field != "Config" {
			h.Config.Encapsulation = Standard
		}
		_, err := GetInfo("", "", 0, h)
		want(t, err, fi.ENODATA)
		found := false
		for _, r := range Explain(h) {
			found = found || r.Field == field && (field == "Config" || strings.Contains(r.Why, "4793"))
		}
		if !found {
			t.Errorf("no reason names %s: %v", field, Explain(h))
		}
	}
}

// A connection with Standard encapsulation has an address at each end, and its management a port
// of its own.
func TestStandardConnection(t *testing.T) {
	t.Parallel()
	r := newMsgRig(t, func(h *Info) { h.Config.Encapsulation, h.Config.Paths = Standard, 4 })
	r.info.SrcAddr.IP = ownLoopback()
	taken := *r.info
	taken.SrcAddr.Port = wire.Port
	pep, err := r.fabric.OpenPassive(&taken, nil)
	ok(t, err)
	ok(t, pep.BindEQ(r.eventQueue(0)))
	want(t, pep.Listen(), fi.EINVAL)
	ok(t, pep.Close())
	l := r.listener()
	info := *r.info
	info.SrcAddr.IP = ownLoopback()
	a := r.plug(&info)
	ok(t, a.Connect(l.at, nil))
	_, req := l.request()
	b := r.plug(req)
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
	for _, n := range []*node{a, b} {
		if name, err := n.Name(); err != nil || name.Port != wire.Port {
			t.Errorf("%v, %v", name, err)
		}
	}
	buf := make([]byte, 1<<20)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
	ok(t, a.TSend(pattern(len(buf), 1), 0, 1, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	if string(buf) != string(pattern(len(buf), 1)) {
		t.Error("the bytes differ")
	}
}

// hold binds an address until the function that it returns is called.
func hold(t *testing.T, a netip.AddrPort) func() {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(a))
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = c.Close() }
}

// On Linux all of 127.0.0.0/8 is local, so that endpoints of one host can each have an address.
func TestEveryLoopbackAddress(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	ip := ownLoopback()
	infos, err := GetInfo(ip.String(), "", fi.Source, &Info{Config: Config{Encapsulation: Standard}})
	ok(t, err)
	if len(infos) != 1 || infos[0].SrcAddr.AddrPort() != netip.AddrPortFrom(ip, wire.Port) {
		t.Errorf("GetInfo returns %d, first %v", len(infos), infos[0].SrcAddr)
	}
}
