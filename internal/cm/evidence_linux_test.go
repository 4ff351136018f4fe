package cm

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
)

func TestICMPDoesNotEndTheSocket(t *testing.T) {
	// The kernel reports ICMP to the next call, whatever it is about. A receive then goes on,
	// and a send is tried again. Both pass on what the ICMP says.
	s, err := openSocket(loopback, portrange.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	there, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	patience := time.Now().Add(10 * time.Second)
	_, _ = s.SetReadDeadline(patience), there.SetReadDeadline(patience)
	closed := net.UDPAddrFromAddrPort(closedPort(t))
	told := 0
	defer s.watch(closed.AddrPort(), &failure{func(no fi.Errno) {
		if no == fi.ECONNREFUSED {
			told++
		}
	}})()
	initial := append([]byte{0xc3, 0, 0, 0, 1, 8}, "12345678 and more"...)
	send := func() {
		t.Helper()
		if _, _, err := s.WriteMsgUDP(initial, nil, closed); err != nil {
			t.Fatal(err)
		}
	}
	want := func(n int) {
		t.Helper()
		if told != n {
			t.Errorf("told %d times, want %d", told, n)
		}
	}
	send() // the answer of a loopback address is there when this returns
	want(0)
	if _, err := there.WriteTo([]byte("x"), s.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	ms := []ipv4.Message{{Buffers: [][]byte{make([]byte, 9)}}}
	if n, err := s.ReadBatch(ms, 0); n != 1 || err != nil || ms[0].N != 1 {
		t.Fatalf("received %d: %v", n, err)
	}
	want(1)
	send()
	if _, _, err := s.WriteMsgUDP([]byte("y"), nil, there.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	want(2)
	var b [9]byte
	if n, _, err := there.ReadFrom(b[:]); n != 1 || err != nil || s.lost != 0 {
		t.Errorf("received %d: %v; %d sends failed", n, err, s.lost)
	}
}
