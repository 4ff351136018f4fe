package udp

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/internal/dgram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

// kinds are the ways to do I/O.
var kinds = []struct {
	name string
	cfg  Config
}{
	{"gso+gro", Config{}},
	{"gso", Config{GRO: Off}},
	{"gro", Config{GSO: Off}},
	{"none", Config{GSO: Off, GRO: Off}},
	{"portable", Config{Portable: true}},
	{"readers", Config{Portable: true, readers: true}},
}

// backends are the implementations.
var backends = []struct {
	name string
	cfg  Config
}{
	{"native", Config{}},
	{"portable", Config{Portable: true}},
	{"readers", Config{Portable: true, readers: true}},
}

// families are the address families of the machine.
func families(t testing.TB) []netip.Addr {
	t.Helper()
	c, err := Open(Config{Addr: netip.AddrPortFrom(loopback6, 0)})
	if err != nil {
		t.Logf("no IPv6: %v", err)
		return []netip.Addr{loopback4}
	}
	_ = c.Close()
	return []netip.Addr{loopback4, loopback6}
}

// open opens a Conn on ip and closes it when the test ends. The buffers are small enough for
// any machine unless cfg sets them.
func open(t testing.TB, ip netip.Addr, cfg Config) *Conn {
	t.Helper()
	if !cfg.Addr.IsValid() {
		cfg.Addr = netip.AddrPortFrom(ip, 0)
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pattern returns n bytes that depend on salt and position.
func pattern(salt, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + salt)
	}
	return b
}

// train makes a train of n bytes to c.
func train(c *Conn, salt, n, seg int) *dgram.Datagram {
	return &dgram.Datagram{Data: pattern(salt, n), Seg: seg, Remote: c.LocalAddr()}
}

func slab() *dgram.Datagram {
	return &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
}

// packet is one received datagram.
type packet struct {
	data   []byte
	remote netip.AddrPort
	path   int
	tos    uint8
}

func (p packet) String() string {
	return fmt.Sprintf("%d bytes %.4x… from %v on path %d, TOS %#02x", len(p.data), p.data, p.remote, p.path, p.tos)
}

// tooLong bounds every wait for something that must happen.
const tooLong = 20 * time.Second

// receive receives n datagrams from c, and returns in how many trains they came.
func receive(t testing.TB, c *Conn, n int) (ps []packet, trains int) {
	t.Helper()
	d := slab()
	end := time.Now().Add(tooLong)
	for len(ps) < n {
		d.Reset()
		ok, err := c.Recv(d)
		if err != nil {
			t.Fatalf("Recv: %v", err)
		}
		if !ok {
			if time.Now().After(end) {
				t.Fatalf("%d of %d datagrams came; %+v", len(ps), n, c.Stats())
			}
			if err := c.Wait(end); err != nil {
				t.Fatalf("Wait: %v", err)
			}
			continue
		}
		trains++
		got := d.Segments()
		for rest := d.Data; len(rest) > 0; got-- {
			var head []byte
			head, rest = d.Next(rest)
			ps = append(ps, packet{bytes.Clone(head), d.Remote, d.Path, d.TOS})
		}
		if got != 0 {
			t.Fatalf("train of %d bytes by %d: Segments() is off by %d", len(d.Data), d.Seg, got)
		}
	}
	if len(ps) > n {
		t.Fatalf("%d datagrams came, want %d", len(ps), n)
	}
	return ps, trains
}

// empty checks that c has nothing to receive.
func empty(t testing.TB, c *Conn) {
	t.Helper()
	d := slab()
	if ok, err := c.Recv(d); ok || err != nil {
		t.Errorf("Recv = %v, %v with %d bytes, want nothing", ok, err, len(d.Data))
	}
}

// cut returns the datagrams of a train.
func cut(d *dgram.Datagram) (out [][]byte) {
	for rest := d.Data; len(rest) > 0; {
		var head []byte
		head, rest = d.Next(rest)
		out = append(out, bytes.Clone(head))
	}
	return out
}

// same checks that ps are the datagrams of want.
func same(t testing.TB, ps []packet, want [][]byte) {
	t.Helper()
	if len(ps) != len(want) {
		t.Fatalf("%d datagrams, want %d", len(ps), len(want))
	}
	for i := range ps {
		if !bytes.Equal(ps[i].data, want[i]) {
			t.Fatalf("datagram %d of %d: %d bytes %.8x…, want %d bytes %.8x…",
				i, len(ps), len(ps[i].data), ps[i].data, len(want[i]), want[i])
		}
	}
}

func send(t testing.TB, c *Conn, ds ...*dgram.Datagram) {
	t.Helper()
	for _, d := range ds {
		if err := c.Send(d); err != nil {
			t.Fatalf("Send of %d bytes by %d to %v: %v", len(d.Data), d.Seg, d.Remote, err)
		}
	}
}

// addrOf returns the address of a path of c.
func addrOf(c *Conn, path int) netip.AddrPort {
	return netip.AddrPortFrom(c.LocalAddr().Addr(), c.Ports()[path])
}
