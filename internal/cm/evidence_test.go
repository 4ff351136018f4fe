package cm

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
)

// closedPort returns an address of this host where nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return addrPort(c.LocalAddr())
}

func TestF11DialToAClosedPortIsRefusedAtOnce(t *testing.T) {
	// The host says by ICMP that nobody listens. Sessions of the same node do not notice,
	// although the kernel reports that ICMP to whoever uses the socket next.
	if runtime.GOOS != "linux" {
		t.Skip("there is no error queue")
	}
	const patience = 20 * time.Second
	p := connect(t, Config{Handshake: patience})
	p.start()
	for range 3 {
		begin := time.Now()
		_, err := p.d.Dial(t.Context(), closedPort(t), params(1000), nil)
		if !errors.Is(err, errNobody) || !errors.Is(err, fi.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		if d := time.Since(begin); d > patience/4 {
			t.Errorf("refused after %v", d)
		}
	}
	p.wantQuiet(t)
	dial(t, p.d, p.l)
	if n := p.d.sock.watched.Load(); n != 0 {
		t.Errorf("%d addresses are still watched", n)
	}
}

func TestT34ForgedICMPEndsNoDial(t *testing.T) {
	// ICMP is evidence about an address to which a dial is under way, if it quotes a packet
	// that was sent there and if nothing was heard from there.
	initial := func(id string) []byte {
		b := append([]byte{0xc3, 0, 0, 0, 1, byte(len(id))}, id...)
		return append(b, bytes.Repeat([]byte{7}, 30)...)
	}
	to, other := netip.MustParseAddrPort("10.0.0.1:9"), netip.MustParseAddrPort("10.0.0.1:10")
	ours := initial("12345678")
	for _, c := range []struct {
		name  string
		about netip.AddrPort
		quote []byte
		heard netip.AddrPort
		told  bool
	}{
		{"ours", to, ours, netip.AddrPort{}, true},
		{"ours, as much as is quoted", to, ours[:14], other, true},
		{"another address", other, ours, netip.AddrPort{}, false},
		{"a guess", to, initial("12345679"), netip.AddrPort{}, false},
		{"the beginning of a guess", to, initial("1234567"), netip.AddrPort{}, false},
		{"no identifier", to, initial(""), netip.AddrPort{}, false},
		{"a router that quotes little", to, ours[:13], netip.AddrPort{}, false},
		{"nothing quoted", to, nil, netip.AddrPort{}, false},
		{"a packet of a connection that exists", to, append([]byte{0x43}, ours[1:]...), netip.AddrPort{}, false},
		{"somebody is there", to, ours, to, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := openSocket(loopback, portrange.Range{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.sent(ours, to) // before the dial: not remembered
			told := false
			stop := s.watch(to, &failure{func(no fi.Errno) { told = no == fi.ECONNREFUSED }})
			if s.closed(to, ours); told {
				t.Error("told of a packet from before the dial")
			}
			for i := range maxIDs {
				s.sent(initial(string(append([]byte("another"), byte(i)))), to)
			}
			s.sent(ours, to)
			s.sent(initial(""), to)
			if c.heard.IsValid() {
				s.heard(c.heard)
			}
			if s.closed(c.about, c.quote); told != c.told {
				t.Errorf("told: %v", told)
			}
			stop()
			told = false
			if s.closed(to, ours); told {
				t.Error("told after the end of the dial")
			}
		})
	}
}
