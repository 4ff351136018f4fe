package transport

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// earlyROD is a pipe in which all but the first of n ordered messages wait at b. The first
// is under way and is returned.
func earlyROD(t *testing.T, n int) (*pipe, *dgram.Datagram) {
	t.Helper()
	p := newPipe(t, func(c *Config) { c.Window = 4 << 20 })
	send := func(i int) {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: i})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Ordered: true, Context: i})
	}
	send(-1) // opens the PDC
	p.exchange()
	p.events(p.b)
	for i := range n {
		send(i)
	}
	var first *dgram.Datagram
	p.drop = func(from *FEP, b []byte) bool {
		if first == nil && from == p.a {
			first = &dgram.Datagram{Data: append([]byte(nil), b...), Remote: p.a.cfg.Local}
			return true
		}
		return false
	}
	for p.move(p.a, p.b) {
	}
	p.drop = nil
	p.want(p.b)
	return p, first
}

// inOrder checks that the events are those of earlyROD's messages from next on, and returns
// the number of the message that follows.
func inOrder(t *testing.T, events []string, next int) int {
	t.Helper()
	for _, e := range events {
		if want := fmt.Sprintf("%d ok len=8", next); e != want {
			t.Fatalf("%q, want %q", e, want)
		}
		next++
	}
	return next
}

func TestFEPExecutesAQuantumOfAPDC(t *testing.T) {
	// T31, T38: one packet that makes a whole window of early packets ready does not cause
	// a turn of a whole window. 64 packets of the PDC are executed now and the rest at the
	// next moment, in order. One ACK covers them all.
	const n = 1000
	p, first := earlyROD(t, n)
	p.b.Receive(p.now, first)
	next, turns := 0, 1
	take := func(most int) {
		t.Helper()
		ev := p.events(p.b)
		if len(ev) > most {
			t.Fatalf("turn %d executed %d packets of the PDC", turns, len(ev))
		}
		next = inOrder(t, ev, next)
	}
	take(1 + quantum)
	for ; p.b.NextTimeout() <= p.now+1 && turns < n; turns++ {
		if p.b.Flush(p.now); p.move(p.b, p.a) {
			t.Fatalf("an ACK leaves after turn %d", turns)
		}
		p.now++
		p.b.Advance(p.now)
		take(quantum)
	}
	if p.b.Flush(p.now); !p.move(p.b, p.a) {
		t.Error("no ACK leaves at the end")
	}
	if next != n || turns != 1+(n-2)/quantum {
		t.Errorf("%d of %d packets after %d turns", next, n, turns)
	}
	p.exchange()
	p.events(p.a)
	p.checkIdle()
}

func TestFEPQuantumLeavesRoomForOthers(t *testing.T) {
	// A message of another PDC that comes between two quanta is executed. Packets that come
	// again while they wait are duplicates.
	p, first := earlyROD(t, 300)
	p.b.Receive(p.now, first)
	p.events(p.b)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 5, Context: "other"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Tag: 5, Context: "other"})
	p.move(p.a, p.b)
	p.want(p.b, "other ok len=8")

	// Nothing is acknowledged yet, so a resends after its RTO.
	dup := p.b.Stats().RxDup
	p.now += 20 * time.Millisecond
	p.a.Advance(p.now)
	for p.move(p.a, p.b) {
	}
	if p.b.Stats().RxDup == dup {
		t.Fatal("nothing came again: the test does not test")
	}
	p.want(p.b)
	p.rest(t, 1+quantum, 300)
}

// rest lets b execute what waits, from packet next on, and checks that n packets are
// executed in the end.
func (p *pipe) rest(t *testing.T, next, n int) {
	t.Helper()
	for turns := 0; p.b.NextTimeout() <= p.now+1 && turns < n; turns++ {
		p.now++
		p.b.Advance(p.now)
		next = inOrder(t, p.events(p.b), next)
	}
	if next != n {
		t.Errorf("%d of %d were executed", next, n)
	}
	p.exchange()
	p.events(p.a)
	p.checkIdle()
}

// control delivers a control packet of a's ordered PDC to b.
func (p *pipe) control(c wire.CP) {
	p.a.pds.Each(func(pdc *pds.PDC) { c.SPDCID, c.DPDCID = pdc.ID(), pdc.RemoteID() })
	b := c.Append(nil)
	from, to := p.a.cfg.Local, p.b.cfg.Local
	b = wire.AppendCRC(b, 0, wire.CRCPrefix(from.Addr(), to.Addr(), from.Port(), to.Port(), uint16(8+len(b)+wire.CRCLen)))
	p.b.Receive(p.now, &dgram.Datagram{Data: b, Remote: from})
}

func TestFEPControlPacketsBringNoQuantum(t *testing.T) {
	// T38: 64 packets of a PDC were executed in this turn. A PROBE of the PDC causes no
	// more of them, otherwise a train of 64 PROBEs would make a turn of the whole window.
	p, first := earlyROD(t, 300)
	p.b.Receive(p.now, first)
	next := inOrder(t, p.events(p.b), 0)
	p.control(wire.CP{Ctl: wire.CtlProbe})
	p.want(p.b)
	if p.b.Flush(p.now); !p.move(p.b, p.a) {
		t.Error("the PROBE is not answered")
	}
	p.rest(t, next, 300)
}

func TestFEPQuantumOfAPDCThatIsGone(t *testing.T) {
	// Packets that still wait when their PDC ends are gone with it, and no timer stays.
	p, first := earlyROD(t, 300)
	p.b.Receive(p.now, first)
	p.b.Close(p.now)
	p.now++
	p.b.Advance(p.now)
	if at := p.b.NextTimeout(); at != 0 && at <= p.now+1 {
		t.Errorf("a timer at %v of %v", at, p.now)
	}
}

func TestFEPSendsAQuantumToAPeer(t *testing.T) {
	// T38: one train, 64 packets at most, goes to a peer, then one to the next peer that
	// has something to get.
	const peers, size = 5, 60 << 10
	s := newStar(t, peers)
	s.know()
	for i := range peers {
		s.message(i, make([]byte, 64)) // opens the PDCs
	}
	s.exchange()
	s.rest()
	name := map[netip.AddrPort]int{}
	for i, f := range s.leaf {
		name[f.cfg.Local] = i
	}
	// Sixteen messages to the first peer are queued before one to any other.
	for range 16 {
		s.message(0, make([]byte, size))
	}
	for range 2 {
		for i := 1; i < peers; i++ {
			s.message(i, make([]byte, size))
		}
	}
	var order []int
	since := map[int]int{} // datagrams to a peer while others wait
	for len(order) < 2*peers && s.hub.Transmit(s.now, &s.d) {
		i := name[s.d.Remote]
		order = append(order, i)
		if since[i] += s.d.Segments(); since[i] > 2*quantum {
			t.Errorf("%d datagrams to peer %d: order %v", since[i], i, order)
		}
	}
	for i := 0; i+1 < len(order) && len(order) == 2*peers; i++ {
		if order[i] == order[i+1] {
			t.Errorf("two trains in a row to peer %d while others have some: %v", order[i], order)
		}
	}
	if len(order) != 2*peers {
		t.Errorf("order %v", order)
	}
}

func TestT38GreedyPeer(t *testing.T) {
	// T38: when all wait for the socket, a peer for which the application posted hundreds
	// of long messages gets no more of it than each other peer, whose messages are long,
	// short, or small ones one after another.
	const peers, trains = 8, 4000
	const long, short, small = 64 << 10, 900, 64
	kind := [peers]int{long, long, long, short, short, small, small, small}
	depth := map[int]int{long: 2, short: 128, small: 1}
	s := newStar(t, peers)
	s.know()
	for i := range peers {
		s.message(i, make([]byte, small)) // opens the PDCs
	}
	s.exchange()
	s.rest()
	buf := make([]byte, long)
	var sent, done [peers]int
	post := func(i int) {
		if err := s.leaf[i].Post(s.now, &Op{Kind: OpTRecv, Buf: buf[:kind[i]], Tag: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.hub.Post(s.now, &Op{Kind: OpTSend, Peer: s.to[i], RI: 15, Buf: buf[:kind[i]], Tag: 1, Context: i}); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		post(0)
	}
	for i := 1; i < peers; i++ {
		for range depth[kind[i]] {
			post(i)
		}
	}
	index := map[netip.AddrPort]int{}
	for i, f := range s.leaf {
		index[f.cfg.Local] = i
	}
	for n := 0; n < trains; n++ {
		s.now += 10 * time.Microsecond
		s.hub.Advance(s.now)
		if !s.hub.Transmit(s.now, &s.d) { // one train: the socket has no room for more
			t.Fatalf("nothing to send after %d trains", n)
		}
		i := index[s.d.Remote]
		sent[i] += len(s.d.Data)
		f := s.leaf[i]
		s.d.Remote = s.hub.cfg.Local
		f.Receive(s.now, &s.d)
		s.drain(f)
		for f.NextEvent() != nil {
		}
		for ev := s.hub.NextEvent(); ev != nil; ev = s.hub.NextEvent() {
			i := ev.Context.(int)
			done[i]++
			post(i)
		}
	}
	t.Logf("bytes sent %v, messages done %v", sent, done)
	total := 0
	for i := range peers {
		if kind[i] != small {
			total += sent[i]
		}
	}
	for i := range peers {
		switch {
		case kind[i] == small:
			// Its share is one message in each round of trains.
			if done[i] < trains/peers*8/10 {
				t.Errorf("peer %d: %d small messages in %d trains", i, done[i], trains)
			}
		case sent[i] < total/5*8/10:
			t.Errorf("peer %d got %d of %d bytes", i, sent[i], total)
		}
	}
}
