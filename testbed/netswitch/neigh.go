package netswitch

import (
	"net/netip"
	"slices"
	"time"
)

// Bounds of the neighbour table of one port.
const (
	// maxNeighbours is the most hosts behind a port; further hosts cannot be reached.
	maxNeighbours = 4096
	// maxPending is how many packets wait for the address of one host; more are lost,
	// as in the kernel (unres_qlen).
	maxPending = 128
	// askEvery is the interval between requests for a host's address. askTimes is how many
	// requests are sent before the packets that wait for it are dropped.
	askEvery = 250 * time.Millisecond
	askTimes = 4
	// freshFor is how long a host counts as present after it was heard. An older one is
	// asked for again while packets are sent to it, because another host may have taken its
	// address.
	freshFor = time.Second
)

// A neighbour is a host behind a port.
type neighbour struct {
	mac     mac
	known   bool
	heard   time.Duration
	asked   time.Duration // last; with asks
	asks    int           // without an answer
	pending [][]byte      // packets that wait for mac
}

// neighbours are the hosts behind one port. The type uses no clock and no socket.
type neighbours struct {
	addrs   []netip.Prefix // where they may be
	m       map[netip.Addr]*neighbour
	waiting int // entries with pending packets

	last    netip.Addr // the one that find found last
	lastN   *neighbour
	learnt  netip.Addr // and learn
	learntN *neighbour
}

func newNeighbours(addrs []netip.Prefix) *neighbours {
	return &neighbours{addrs: addrs, m: map[netip.Addr]*neighbour{}}
}

// contains reports whether a may be behind the port. It keeps forged addresses out of the
// table.
func (t *neighbours) contains(a netip.Addr) bool {
	return slices.ContainsFunc(t.addrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// learn notes that a has address m, and returns the packets that waited for it; the caller
// owns them. Addresses outside the port's prefixes are ignored.
func (t *neighbours) learn(now time.Duration, a netip.Addr, m mac) [][]byte {
	n := t.learntN
	if n == nil || t.learnt != a {
		if n = t.m[a]; n == nil {
			if len(t.m) >= maxNeighbours || !t.contains(a) {
				return nil
			}
			n = &neighbour{}
			t.m[a] = n
		}
		t.learnt, t.learntN = a, n
	}
	n.mac, n.known, n.heard, n.asks = m, true, now, 0
	if n.pending == nil {
		return nil
	}
	h := n.pending
	n.pending = nil
	t.waiting--
	return h
}

// find returns the address of a host, whether it is known, and whether to ask for it now.
func (t *neighbours) find(now time.Duration, a netip.Addr) (m mac, known, ask bool) {
	n := t.lastN
	if n == nil || t.last != a {
		if n = t.m[a]; n == nil {
			if len(t.m) >= maxNeighbours {
				return m, false, false
			}
			n = &neighbour{}
			t.m[a] = n
		}
		t.last, t.lastN = a, n
	}
	if n.known && now-n.heard < freshFor {
		return n.mac, true, false
	}
	if n.asked == 0 || now-n.asked >= askEvery {
		n.asked, ask = max(now, 1), true
		n.asks++
	}
	return n.mac, n.known, ask
}

// keep stores a copy of a packet until its destination is known. It reports false
// if there are too many already.
func (t *neighbours) keep(a netip.Addr, ip []byte) bool {
	n := t.m[a]
	if n == nil || len(n.pending) >= maxPending {
		return false
	}
	if n.pending == nil {
		t.waiting++
	}
	n.pending = append(n.pending, append([]byte(nil), ip...))
	return true
}

// tick asks again for hosts that packets wait for. It returns how many packets were
// dropped, and when to call it next (ok is false if it need not be).
func (t *neighbours) tick(now time.Duration, ask func(netip.Addr)) (lost int, next time.Duration, ok bool) {
	if t.waiting == 0 {
		return 0, 0, false
	}
	for a, n := range t.m {
		if n.pending == nil {
			continue
		}
		due := n.asked + askEvery
		if now >= due {
			if n.asks >= askTimes {
				lost += len(n.pending)
				n.pending, n.asks = nil, 0
				t.waiting--
				continue
			}
			n.asked = now
			n.asks++
			ask(a)
			due = now + askEvery
		}
		if !ok || due < next {
			next, ok = due, true
		}
	}
	return lost, next, ok
}
