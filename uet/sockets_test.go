package uet

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestSocketSettings(t *testing.T) {
	t.Parallel()
	with := func(set func(*Socket)) SocketInfo {
		t.Helper()
		in := &Info{Caps: fi.Msg, Config: Config{Paths: 3}}
		set(&in.Config.Socket)
		p, err := newRig(t, in).node().PathInfo()
		ok(t, err)
		return p.Socket
	}
	if in := with(func(s *Socket) { s.RecvBuf, s.SendBuf = 1<<17, 1<<18 }); in.RecvBuf.Asked != 1<<17 || in.SendBuf.Asked != 1<<18 {
		t.Errorf("buffers %+v, %+v", in.RecvBuf, in.SendBuf)
	}
	if in := with(func(s *Socket) { s.GSO, s.GRO = OffloadOff, OffloadOff }); in.GSO.On || in.GRO.On {
		t.Errorf("offloads %+v, %+v", in.GSO, in.GRO)
	}
	if in := with(func(s *Socket) { s.ConsecutivePorts = true }); len(in.Ports) != 3 || in.Ports[1] != in.Ports[0]+1 || in.Ports[2] != in.Ports[0]+2 {
		t.Errorf("ports %d", in.Ports)
	}
	ports := PortRange{29000, 29011}
	for _, consecutive := range []bool{false, true} {
		in := with(func(s *Socket) { s.Ports, s.ConsecutivePorts = ports, consecutive })
		for i, p := range in.Ports {
			if p < ports.First || p > ports.Last || consecutive && p != in.Ports[0]+uint16(i) || len(in.Ports) != 3 {
				t.Errorf("ports %d of %v, consecutive: %v", in.Ports, ports, consecutive)
			}
		}
	}
	plain := with(func(s *Socket) {})
	if in := with(func(s *Socket) { s.AllowFragments = true }); in.DontFragment.On {
		t.Errorf("packets are not fragmented: %+v, else %+v", in.DontFragment, plain.DontFragment)
	}
	if in := with(func(s *Socket) { s.Portable = true }); in.GSO.On || in.GRO.On {
		t.Errorf("portable, by %s, with offloads", in.Method)
	}
	in := &Info{Caps: fi.Msg}
	in.Config.Socket.RecvBuf = -1
	ep, _ := newRig(t, in).disabled()
	want(t, ep.Enable(), fi.EINVAL)
	for _, c := range []Config{
		{Socket: Socket{Ports: PortRange{5, 4}}}, {Socket: Socket{Ports: PortRange{0, 4}}}, {Socket: Socket{Ports: PortRange{7, 9}}, Paths: 4},
	} {
		if err := c.check(); err == nil {
			t.Errorf("ports %v for %d paths are taken", c.Socket.Ports, c.Paths)
		}
	}
	// One port, and two endpoints that want it.
	in = &Info{Caps: fi.Msg}
	in.Config.Socket.Ports = PortRange{29020, 29020}
	r := newRig(t, in)
	if a := r.node(); a.Info().SrcAddr.Port != 29020 {
		t.Errorf("port %d", a.Info().SrcAddr.Port)
	}
	ep, _ = r.disabled()
	want(t, ep.Enable(), fi.EADDRINUSE)
}

func TestOffloads(t *testing.T) {
	t.Parallel()
	for o, m := range map[Offload]udp.Mode{OffloadAuto: udp.Auto, OffloadOn: udp.On, OffloadOff: udp.Off} {
		if udp.Mode(o) != m || o.String() != m.String() {
			t.Errorf("%v is %v for the sockets", o, udp.Mode(o))
		}
	}
}

func TestPortsOfConnections(t *testing.T) {
	// The socket of connection management takes its port from Socket.Ports, too.
	c := Config{Socket: Socket{Ports: PortRange{29030, 29032}}}
	var nodes []*cmNode
	for range 3 {
		n, err := openNode(netip.MustParseAddrPort("127.0.0.1:0"), &c, 0)
		ok(t, err)
		if p := n.Addr().Port(); p < 29030 || p > 29032 {
			t.Errorf("port %d", p)
		}
		nodes = append(nodes, n)
	}
	_, err := openNode(netip.MustParseAddrPort("127.0.0.1:0"), &c, 0)
	want(t, err, fi.EADDRINUSE)
	for _, n := range nodes {
		n.put()
	}
}

// The name of an endpoint says at which other ports it receives, as does the record of it.
func TestNameHasPathPorts(t *testing.T) {
	t.Parallel()
	in := &Info{Caps: fi.Msg, Config: Config{Paths: 3}}
	in.Config.Socket.ConsecutivePorts = true
	ep := newRig(t, in).node()
	name, err := ep.Name()
	ok(t, err)
	if p := name.AddrPort().Port(); name.Paths != (wire.PathPorts{First: p + 1, N: 2}) {
		t.Errorf("the name of an endpoint at port %d has the path ports %+v", p, name.Paths)
	}
	rec, err := name.AppendBinary(nil)
	ok(t, err)
	if a, _, err := wire.ParseAddrBinary(rec); err != nil || a != name {
		t.Errorf("%+v, %v, and the name is %+v", a, err, name)
	}
}

// An endpoint uses the path ports that a record names, when the main port is silent (decision 47).
func TestPathPortsOfRecordsAreUsed(t *testing.T) {
	t.Parallel()
	in := &Info{Caps: fi.Msg, Config: Config{Paths: 3}}
	a := newRig(t, in).node()
	path, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	ok(t, err)
	defer path.Close()
	addr, err := a.Name()
	ok(t, err)
	addr.Port = blackHole(t).Port()
	addr.Paths = wire.PathPorts{First: path.LocalAddr().(*net.UDPAddr).AddrPort().Port(), N: 1}
	rec, err := addr.AppendBinary(nil)
	ok(t, err)
	h := make([]fi.Addr, 1)
	_, err = a.vec.InsertRecords([][]byte{rec}, h, 0, nil)
	ok(t, err)
	ok(t, a.Send([]byte("x"), h[0], "x"))
	ok(t, path.SetReadDeadline(time.Now().Add(patience)))
	if n, from, err := path.ReadFromUDPAddrPort(make([]byte, 2048)); err != nil {
		t.Errorf("nothing came to the path port: %v", err)
	} else if main, _ := a.Name(); from != main.AddrPort() {
		t.Errorf("%d bytes came from %v, and the main port is %v", n, from, main.AddrPort())
	}
	ok(t, a.Abandon(h[0]))
}

// The engine knows what its socket holds, and what short datagrams take of that.
func TestEngineKnowsItsSocket(t *testing.T) {
	t.Parallel()
	conn, err := udp.Open(udp.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	ok(t, err)
	t.Cleanup(func() { ok(t, conn.Close()) })
	cfg := newRig(t, &Info{Caps: fi.Msg}).node().engine(conn, wire.Addr{}, 0)
	if cfg.RecvWindow <= 0 || cfg.RecvCost == nil {
		t.Fatalf("it holds %d bytes", cfg.RecvWindow)
	}
	full := cfg.PayloadMTU + headerBytes
	if n := cfg.RecvCost(full); n != full {
		t.Errorf("a full packet of %d bytes takes %d", full, n)
	}
	if n := cfg.RecvCost(100); n < 200 {
		t.Errorf("100 bytes take %d", n)
	}
}
