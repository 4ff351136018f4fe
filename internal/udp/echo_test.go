package udp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// lonely returns a loopback address that nothing else uses, so that all its ports are free.
func lonely() netip.Addr {
	b := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, 1 + byte(b)%254, byte(b >> 8), 1 + byte(b>>16)%254})
}

// repeater opens a Conn of which path 0 alone receives, with a clock of its own.
func repeater(t *testing.T, cfg Config) (*Conn, *time.Time) {
	now := time.Unix(1000, 0)
	cfg.SendOnly, cfg.clock = true, func() time.Time { return now }
	return open(t, lonely(), cfg), &now
}

// A train leaves from the port that Echo bound, which need not be a path.
func TestEchoSendsFromThePort(t *testing.T) {
	for _, b := range backends {
		for _, paths := range []int{1, MaxPaths} {
			t.Run(fmt.Sprintf("%s/%d", b.name, paths), func(t *testing.T) {
				cfg := b.cfg
				cfg.Paths = paths
				a, _ := repeater(t, cfg)
				c := open(t, lonely(), b.cfg)
				for ev := uint16(20_000); ev < 20_003; ev++ {
					for range 2 {
						if !a.Echo(ev) {
							t.Fatalf("no port %d", ev)
						}
					}
					for _, batch := range []bool{false, true} {
						d := train(c, int(ev), 3000, 1000)
						d.Path = dgram.Echo(ev)
						if batch {
							main := train(c, 0, 500, 0)
							if n, err := a.SendBatch([]*dgram.Datagram{main, d}); n != 2 || err != nil {
								t.Fatalf("SendBatch = %d, %v", n, err)
							}
							receive(t, c, 1)
						} else {
							send(t, a, d)
						}
						ps, _ := receive(t, c, 3)
						if want := netip.AddrPortFrom(a.LocalAddr().Addr(), ev); ps[0].remote != want || d.Path != dgram.Echo(ev) {
							t.Errorf("it came from %v, not %v", ps[0].remote, want)
						}
					}
				}
				if n := a.Stats().EchoBound; n != 3 {
					t.Errorf("%d ports were bound for 3", n)
				}
			})
		}
	}
}

// At most MaxEchoes ports are bound. Another takes the place of the one used least recently, once
// that has rested, and its port is free then.
func TestEchoPortsAreBounded(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			a, now := repeater(t, b.cfg)
			first := uint16(20_000)
			for i := range uint16(MaxEchoes) {
				*now = now.Add(time.Microsecond)
				if !a.Echo(first + i) {
					t.Fatalf("port %d of %d is refused", i, MaxEchoes)
				}
			}
			for range 10 {
				if a.Echo(30_000) {
					t.Fatalf("%d ports are bound", MaxEchoes+1)
				}
			}
			*now = now.Add(echoRest)
			a.Echo(first) // used, so the second has rested longest
			if !a.Echo(30_000) || a.Echo(30_001) != true {
				t.Error("no port makes room for another")
			}
			if n := a.Stats().EchoBound; n != MaxEchoes+2 {
				t.Errorf("%d ports were bound", n)
			}
			for port, free := range map[uint16]bool{first: false, first + 1: true, first + 2: true, first + 3: false, 30_000: false} {
				c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.LocalAddr().Addr(), port)))
				if (err == nil) != free {
					t.Errorf("port %d: %v, want free %v", port, err, free)
				}
				if err == nil {
					_ = c.Close()
				}
			}
			d := train(a, 0, 10, 0)
			d.Path = dgram.Echo(first + 1)
			if err := a.Send(d); err == nil || a.Stats().SendLost != 1 {
				t.Errorf("sent from a port that is not bound any more: %v, %+v", err, a.Stats())
			}
		})
	}
}

// A port that somebody else has is not tried for each packet, and is tried again later.
func TestEchoOfATakenPort(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			a, now := repeater(t, b.cfg)
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.LocalAddr().Addr(), 20_000)))
			if err != nil {
				t.Fatal(err)
			}
			if a.Echo(20_000) {
				t.Error("it has a port of another socket")
			}
			_ = c.Close()
			if a.Echo(20_000) {
				t.Error("it tries again at once")
			}
			*now = now.Add(echoRest)
			if !a.Echo(20_000) {
				t.Error("it does not try again")
			}
		})
	}
}

// What comes to a port that sends only is dropped, and does not end a Wait.
func TestSendOnlyIsDeaf(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			cfg := b.cfg
			cfg.Paths = 2
			a, _ := repeater(t, cfg)
			if !a.Echo(20_000) {
				t.Fatal("no port")
			}
			ip := a.LocalAddr().Addr()
			c := open(t, lonely(), b.cfg)
			for _, port := range []uint16{a.Ports()[1], 20_000} {
				send(t, c, &dgram.Datagram{Data: []byte("nobody hears it"), Remote: netip.AddrPortFrom(ip, port)})
			}
			start := time.Now()
			if err := a.Wait(start.Add(50 * time.Millisecond)); err != nil || time.Since(start) < 50*time.Millisecond {
				t.Errorf("Wait ended after %v: %v", time.Since(start), err)
			}
			empty(t, a)
			send(t, c, &dgram.Datagram{Data: []byte("heard"), Remote: a.LocalAddr()})
			if ps, _ := receive(t, a, 1); string(ps[0].data) != "heard" || ps[0].path != 0 {
				t.Errorf("%v came", ps[0])
			}
		})
	}
}
