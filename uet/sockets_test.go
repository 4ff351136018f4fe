package uet

import (
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/udp"
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
}

func TestOffloads(t *testing.T) {
	t.Parallel()
	for o, m := range map[Offload]udp.Mode{OffloadAuto: udp.Auto, OffloadOn: udp.On, OffloadOff: udp.Off} {
		if udp.Mode(o) != m || o.String() != m.String() {
			t.Errorf("%v is %v for the sockets", o, udp.Mode(o))
		}
	}
}
