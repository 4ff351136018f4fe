package netswitch

import (
	"net/netip"
	"testing"
	"time"
)

var (
	neighNet = []netip.Prefix{netip.MustParsePrefix("198.18.100.0/24")}
	hostA    = netip.MustParseAddr("198.18.100.2")
	macA     = mac{2, 0, 0, 0, 0, 0xa}
)

func TestNeighbourIsAskedForAndGivenUp(t *testing.T) {
	n := newNeighbours(neighNet)
	if _, known, ask := n.find(0, hostA); known || !ask {
		t.Fatalf("known %v ask %v at first", known, ask)
	}
	for i := range maxPending + 1 {
		if ok := n.keep(hostA, []byte{byte(i)}); ok != (i < maxPending) {
			t.Fatalf("packet %d is kept: %v", i, ok)
		}
	}
	if _, _, ask := n.find(1, hostA); ask {
		t.Error("asked twice at once")
	}
	asked := 1
	now := time.Duration(1)
	for {
		lost, next, ok := n.tick(now, func(a netip.Addr) {
			if a != hostA {
				t.Errorf("asked for %v", a)
			}
			asked++
		})
		if lost > 0 {
			if lost != maxPending || ok || asked != askTimes || now < askTimes*askEvery {
				t.Errorf("%d lost after %d questions at %v", lost, asked, now)
			}
			break
		}
		if !ok || next <= now {
			t.Fatalf("next %v %v at %v", next, ok, now)
		}
		now = next
	}
	if _, _, ok := n.tick(now, nil); ok {
		t.Error("it wants to come again with nothing pending")
	}
}

func TestNeighbourAnswers(t *testing.T) {
	n := newNeighbours(neighNet)
	n.find(0, hostA)
	n.keep(hostA, []byte("one"))
	n.keep(hostA, []byte("two"))
	if got := n.learn(1, hostA, macA); len(got) != 2 || string(got[0]) != "one" || string(got[1]) != "two" {
		t.Errorf("%q waited", got)
	}
	if got := n.learn(2, hostA, macA); got != nil {
		t.Errorf("%q waited still", got)
	}
	if m, known, ask := n.find(3, hostA); m != macA || !known || ask {
		t.Errorf("%v %v %v", m, known, ask)
	}
	// The address of a host that was silent is used, and asked for once in a while.
	late := freshFor + time.Second
	if m, known, ask := n.find(late, hostA); m != macA || !known || !ask {
		t.Errorf("quiet: %v %v %v", m, known, ask)
	}
	if _, _, ask := n.find(late+1, hostA); ask {
		t.Error("asked twice at once")
	}
	other := mac{2, 0, 0, 0, 0, 0xb}
	n.learn(late+2, hostA, other)
	if m, known, ask := n.find(late+3, hostA); m != other || !known || ask {
		t.Errorf("replaced: %v %v %v", m, known, ask)
	}
}

func TestNeighboursAreBounded(t *testing.T) {
	n := newNeighbours([]netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")})
	n.learn(0, netip.MustParseAddr("198.19.0.1"), macA)
	if len(n.m) != 0 {
		t.Error("an address of elsewhere is learnt")
	}
	a := netip.MustParseAddr("198.18.0.0")
	for range maxNeighbours + 10 {
		n.learn(0, a, macA)
		a = a.Next()
	}
	if len(n.m) != maxNeighbours {
		t.Errorf("%d neighbours", len(n.m))
	}
	if _, known, ask := n.find(1, a); known || ask || n.keep(a, []byte("x")) {
		t.Error("one more is asked for")
	}
}
