package cm

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// An admitTest is an admission with a clock.
type admitTest struct {
	t   *testing.T
	a   *admission
	now time.Time
}

func newAdmitTest(t *testing.T) *admitTest {
	return &admitTest{t, newAdmission(64, 20, 5), time.Unix(1000, 0)}
}

func from(s string) net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(s), 9))
}

// admit fails the test unless a handshake is let in.
func (a *admitTest) admit(addr string, proven bool) *handshake {
	a.t.Helper()
	h, err := a.a.admit(from(addr), proven, a.now)
	if err != nil {
		a.t.Fatalf("%s refused: %+v", addr, a.a.snapshot())
	}
	return h
}

func (a *admitTest) refused(addr string, why func(AdmissionStats) uint64) {
	a.t.Helper()
	before := why(a.a.snapshot())
	if _, err := a.a.admit(from(addr), true, a.now); err == nil {
		a.t.Fatalf("%s let in: %+v", addr, a.a.snapshot())
	}
	if why(a.a.snapshot()) != before+1 {
		a.t.Fatalf("%s refused for another reason: %+v", addr, a.a.snapshot())
	}
}

func (a *admitTest) retry(addr string, want bool) {
	a.t.Helper()
	if got := a.a.verify(from(addr), a.now); got != want {
		a.t.Fatalf("retry of %s: %v, %+v", addr, got, a.a.snapshot())
	}
}

func busyRate(s AdmissionStats) uint64  { return s.BusyRate }
func busyOne(s AdmissionStats) uint64   { return s.BusyOne }
func busyTotal(s AdmissionStats) uint64 { return s.BusyTotal }

func TestT2RetryAboveThreshold(t *testing.T) {
	a := newAdmitTest(t)
	var in []*handshake
	for range 4 { // 1/16 of 64
		a.retry("10.0.0.1", false)
		in = append(in, a.admit("10.0.0.1", false))
	}
	a.retry("10.0.0.1", true)
	a.retry("10.0.0.2", true)
	// Sources that answered the Retry are let in.
	a.admit("10.0.0.2", true)
	// One ended, but sources without an address token have a rate of their own.
	in[0].end(nil, a.now)
	a.retry("10.0.0.3", true)
	a.now = a.now.Add(time.Second)
	a.retry("10.0.0.3", false)
}

func TestT2RatePerSource(t *testing.T) {
	// The default: 20 a second after a burst of 5.
	a := newAdmitTest(t)
	for range 5 {
		a.admit("10.0.0.1", true).end(nil, a.now)
	}
	a.refused("10.0.0.1", busyRate)
	a.retry("10.0.0.1", true) // nor without an address token
	a.admit("10.0.0.2", true) // other sources do not pay
	a.now = a.now.Add(50 * time.Millisecond)
	a.admit("10.0.0.1", true).end(nil, a.now)
	a.refused("10.0.0.1", busyRate)
	a.now = a.now.Add(time.Hour) // the burst again, not more
	for range 5 {
		a.admit("10.0.0.1", true).end(nil, a.now)
	}
	a.refused("10.0.0.1", busyRate)
}

func TestT2HandshakeThatLeadsToAPeerIsRefunded(t *testing.T) {
	// S3 opens 300 connections a second from one host.
	a := newAdmitTest(t)
	for range 1000 {
		h := a.admit("10.0.0.1", true)
		h.end(nil, a.now)
		h.trust()
		h.trust() // counts once
	}
	if s := a.a.find(netip.MustParseAddr("10.0.0.1")); s.tokens != 5 {
		t.Errorf("%v tokens", s.tokens)
	}
}

func TestT2RefusedCertificateIsCharged(t *testing.T) {
	a := newAdmitTest(t)
	cause := &quic.TransportError{ErrorCode: 0x100 + 48}
	for range 5 {
		a.retry("10.0.0.1", false)
		h := a.admit("10.0.0.1", false)
		h.end(cause, a.now)
		h.end(cause, a.now) // counts once
		a.now = a.now.Add(5 * time.Millisecond)
	}
	a.retry("10.0.0.1", true)
	a.refused("10.0.0.1", busyRate)
	// A certificate that the peer reports as refused, or a handshake that never ended, does not
	// prove whose it was.
	for _, cause := range []error{&quic.TransportError{Remote: true, ErrorCode: 0x100 + 48}, &quic.IdleTimeoutError{}} {
		for range 10 {
			a.admit("10.0.0.2", false).end(cause, a.now)
		}
	}
	a.admit("10.0.0.2", true)
	if n := a.a.snapshot().Untrusted; n != 5 {
		t.Errorf("%d untrusted", n)
	}
}

func TestT2HandshakesInFlightAreBounded(t *testing.T) {
	a := newAdmitTest(t)
	a.a.burst = 100
	for range 4 { // 1/16 each
		a.admit("10.0.0.1", true)
	}
	a.refused("10.0.0.1", busyOne)
	// All unknown sources together have three quarters,
	for i := range 44 {
		a.admit(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}).String(), true)
	}
	a.refused("10.0.0.2", busyTotal)
	// a source with a session the rest.
	member := netip.MustParseAddr("10.0.0.3")
	a.a.session(member, true, a.now)
	a.a.session(member, false, a.now)
	for range 16 {
		a.admit("10.0.0.3", true)
	}
	a.refused("10.0.0.3", busyTotal)
	a.now = a.now.Add(knownTime + time.Second)
	if a.a.isKnown(a.a.find(member), a.now) {
		t.Error("known for ever")
	}
}

func TestT39SourcesAreBounded(t *testing.T) {
	a := newAdmitTest(t)
	a.a.session(netip.MustParseAddr("192.0.2.1"), true, a.now)
	for i := range 3 * maxSources {
		h := a.admit(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), true)
		h.end(nil, a.now)
		h.trust()
	}
	if n := a.a.snapshot().Sources; n > maxSources+1 {
		t.Errorf("%d sources", n)
	}
	if s := a.a.find(netip.MustParseAddr("192.0.2.1")); s == nil || s.sessions != 1 {
		t.Errorf("the source of a session was forgotten: %+v", s)
	}
	// When all have something to remember, newcomers share one record.
	a = newAdmitTest(t)
	for i := range maxSources {
		a.admit(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), true).end(nil, a.now)
	}
	for i := range 5 {
		a.admit(netip.AddrFrom4([4]byte{11, 0, 0, byte(i)}).String(), true).end(nil, a.now)
	}
	a.refused("11.0.0.9", busyRate)
	// An IPv6 host may have many addresses, but one /64.
	for addr, same := range map[string]bool{"2001:db8::ffff:2": true, "2001:db8::ffff:0:0:2": true, "2001:db8:0:1::1": false, "2001:db9::1": false} {
		if x, y := sourceOf(from("2001:db8::1")), sourceOf(from(addr)); (x == y) != same {
			t.Errorf("%v, %v", x, y)
		}
	}
}
