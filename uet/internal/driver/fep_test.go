package driver

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

// These tests run two drivers with real FEPs on a wire, mostly without faults.

// A plug is one end of the wire.
type plug struct {
	addr  netip.AddrPort
	peer  *plug
	ready chan struct{}

	mu    sync.Mutex
	in    []*dgram.Datagram
	sends int // calls
	waits int
	// drop, if not nil, reports for each outgoing datagram whether it is lost.
	drop func() bool
	// odd, if not nil, returns the result of sending the next train.
	odd func() error
	// broken, if not nil, is the error of Recv.
	broken error
}

func (p *plug) Recv(d *dgram.Datagram) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.in) == 0 || p.broken != nil {
		return false, p.broken
	}
	e := p.in[0]
	p.in = p.in[1:]
	d.Data, d.Seg, d.Remote, d.TOS = append(d.Data[:0], e.Data...), e.Seg, p.peer.addr, e.TOS
	return true, nil
}

func (p *plug) Send(d *dgram.Datagram) error {
	_, err := p.SendBatch([]*dgram.Datagram{d})
	return err
}

func (p *plug) SendBatch(ds []*dgram.Datagram) (int, error) {
	p.mu.Lock()
	p.sends += len(ds)
	p.mu.Unlock()
	var err error
	for i := range ds {
		if p.odd != nil {
			if err = p.odd(); err != nil {
				ds = ds[:i]
				break
			}
		}
	}
	p.peer.mu.Lock()
	for _, d := range ds {
		if d.Remote != p.peer.addr {
			continue
		}
		// Like GRO, put equal datagrams together; a shorter one ends the train.
		t := &dgram.Datagram{Seg: d.Seg, TOS: d.TOS}
		for rest := d.Data; len(rest) > 0; {
			var one []byte
			one, rest = d.Next(rest)
			if p.drop == nil || !p.drop() {
				t.Data = append(t.Data, one...)
			}
		}
		if len(t.Data) > 0 {
			p.peer.in = append(p.peer.in, t)
		}
	}
	p.peer.mu.Unlock()
	p.peer.Wake()
	return len(ds), err
}

func (p *plug) Wait(timeout time.Duration) error {
	var after <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		after = t.C
	}
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	select {
	case <-p.ready:
	case <-after:
	}
	return nil
}

func (p *plug) Forgo() {}

func (p *plug) Naps() bool { return false }

func (p *plug) Stamps(bool) bool { return false }

func (p *plug) Rouse() {}

func (p *plug) Nap(time.Duration) error { return nil }

func (p *plug) Wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *plug) Unreachable() (a netip.AddrPort, ok bool) { return a, false }
func (p *plug) Close() error                             { return nil }

func (p *plug) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends
}

// An end is a minimal endpoint. It counts completions.
type end struct {
	*Driver
	fep  *transport.FEP
	plug *plug
	peer transport.PeerID

	mu           sync.Mutex
	sent, recved int
	bytes        int
	bad          []transport.Event
	arrived      chan struct{}
}

func (e *end) Known(uint64, transport.OpKind, int) error { return nil }

func (e *end) Resolve(op *transport.Op, _ uint64) error {
	op.Peer, op.RI = e.peer, 15
	return nil
}

func (e *end) Deliver(n int) {
	defer e.delivered()
	e.mu.Lock()
	defer e.mu.Unlock()
	for range n {
		switch ev := e.fep.NextEvent(); {
		case ev.Cause != transport.OK:
			e.bad = append(e.bad, *ev)
		case ev.Kind.Recv():
			e.recved++
			e.bytes += ev.Len
		default:
			e.sent++
		}
	}
}

func (e *end) Refused(*transport.Op, error) {}

func (e *end) delivered() {
	select {
	case e.arrived <- struct{}{}:
	default:
	}
}

func (e *end) Trouble(error) {}

func (e *end) counts() (sent, recved int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.recved
}

func newEnds(t *testing.T, auto bool) (a, b *end) {
	t.Helper()
	pa := &plug{addr: netip.MustParseAddrPort("192.0.2.1:4793"), ready: make(chan struct{}, 1)}
	pb := &plug{addr: netip.MustParseAddrPort("192.0.2.2:4793"), ready: make(chan struct{}, 1), peer: pa}
	pa.peer = pb
	mk := func(p *plug, seed uint64) *end {
		fep, err := transport.New(transport.Config{Local: p.addr}, rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			t.Fatal(err)
		}
		e := &end{plug: p, fep: fep, arrived: make(chan struct{}, 1)}
		if e.peer, err = fep.Peer(p.peer.addr, true); err != nil {
			t.Fatal(err)
		}
		e.Driver = New(Config{Core: fep, Mover: p, Conn: p, Owner: e, Auto: auto, Clock: bubbleClock()})
		return e
	}
	return mk(pa, 1), mk(pb, 2)
}

func (e *end) post(t *testing.T, op transport.Op) {
	t.Helper()
	to := uint64(0)
	if op.Kind.Recv() {
		to = NoAddr
	}
	if err := e.Post(&op, to, false); err != nil {
		t.Fatal(err)
	}
}

func TestAcksOfAnEcho(t *testing.T) {
	// If the processor is shared and each poll finds something, reply and ACK leave in one
	// system call. An end with time to spare sends the reply first, alone.
	for _, shared := range []bool{true, false} {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprintf("shared=%v/busy=%v", shared, busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { echoes(t, shared, busy) })
			})
		}
	}
}

func TestAnAnswerDoesNotWaitForCompany(t *testing.T) {
	// Decision 17: the ACK of the previous answer may still be to come.
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, false)
		msg := make([]byte, 64)
		for range 2 {
			b.post(t, transport.Op{Kind: transport.OpTRecv, Buf: make([]byte, 64)})
			a.post(t, transport.Op{Kind: transport.OpTSend, Buf: msg})
			time.Sleep(time.Millisecond) // of virtual time, so that the second send is no burst
		}
		for i := range 2 {
			for n := 0; n <= i; _, n = b.counts() {
				b.Poll()
			}
			before := b.plug.sent()
			b.post(t, transport.Op{Kind: transport.OpTSend, Buf: msg})
			if b.plug.sent() == before {
				t.Errorf("answer %d waits", i)
			}
		}
		_, _ = a.Close(), b.Close()
	})
}

func echoes(t *testing.T, shared, busy bool) {
	a, b := newEnds(t, false)
	a.cpu.shared.Store(shared)
	b.cpu.shared.Store(shared)
	buf, msg := make([]byte, 64), make([]byte, 64)
	const rounds = 200
	until := func(e *end, n int) {
		for i := 0; ; i++ {
			if _, r := e.counts(); r >= n {
				return
			}
			if i > 100 {
				t.Fatal("a message does not arrive")
			}
			e.Poll()
		}
	}
	for i := range rounds {
		a.post(t, transport.Op{Kind: transport.OpTRecv, Buf: buf})
		b.post(t, transport.Op{Kind: transport.OpTRecv, Buf: buf})
		a.post(t, transport.Op{Kind: transport.OpTSend, Buf: msg})
		until(b, i+1)
		before := b.plug.sent()
		b.post(t, transport.Op{Kind: transport.OpTSend, Buf: msg})
		want := 2
		if shared || busy {
			want = 1
		}
		if n := b.plug.sent() - before; i > sparePosts && n != want {
			t.Fatalf("round %d: the reply left in %d sends, want %d", i, n, want)
		}
		until(a, i+1)
		if !busy {
			for a.Poll() || b.Poll() { // until both had an empty poll
			}
			b.Poll()
		}
	}
	most := rounds + sparePosts + 2
	if !busy { // an empty poll also sends the ACK
		most = 2*rounds + 2
	}
	for _, e := range []*end{a, b} {
		if n := e.plug.sent(); n > most {
			t.Errorf("%d sends, want at most %d", n, most)
		}
	}
	_, _ = a.Close(), b.Close()
}

func TestSmallMessagesLeaveInTrains(t *testing.T) {
	// Posts may wait for company; bar F4 depends on it.
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, false)
		msg := make([]byte, 8)
		const rounds, window = 50, 256
		for i := range rounds {
			for range window {
				b.post(t, transport.Op{Kind: transport.OpTRecv, Buf: make([]byte, 8)})
			}
			for range window {
				a.post(t, transport.Op{Kind: transport.OpTSend, Buf: msg})
			}
			for s := 0; s < (i+1)*window; s, _ = a.counts() {
				a.Poll()
				b.Poll()
			}
		}
		if n, most := a.plug.sent(), rounds*(window/dgram.MaxSegments+3); n > most {
			t.Errorf("%d sends for %d messages, want at most %d", n, rounds*window, most)
		}
		if _, r := b.counts(); r != rounds*window {
			t.Errorf("%d of %d messages arrived", r, rounds*window)
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestAutoBothEndsSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, true)
		buf, msg := make([]byte, 1<<20), make([]byte, 1<<20)
		for i := range 20 {
			b.post(t, transport.Op{Kind: transport.OpRecv, Buf: buf})
			a.post(t, transport.Op{Kind: transport.OpSend, Buf: msg})
			a.Arm()
			b.Arm()
			for s := 0; s <= i; s, _ = a.counts() {
				<-a.arrived
			}
			a.Disarm()
			b.Disarm()
		}
		if b.bytes != 20<<20 {
			t.Errorf("%d bytes arrived", b.bytes)
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestAutoSilentPeerEndsTheSend(t *testing.T) {
	// F9: silence for longer than PeerTimeout fails the operation within a second, even if the
	// application sleeps or does nothing.
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, true)
		_ = b.Close()
		start := time.Now()
		a.post(t, transport.Op{Kind: transport.OpSend, Buf: []byte("x")})
		<-a.arrived
		if d := time.Since(start); d < 40*time.Second || d > 41*time.Second {
			t.Errorf("it ended after %v", d)
		}
		if len(a.bad) != 1 || a.bad[0].Cause != transport.TimedOut {
			t.Errorf("events %+v", a.bad)
		}
		_ = a.Close()
	})
}

// bothSleep waits until n messages of a, total bytes in all, have arrived at b, and both
// ends sleep.
func bothSleep(t *testing.T, a, b *end, n, total int) {
	t.Helper()
	a.Arm()
	b.Arm()
	for s, r := 0, 0; s < n || r < n; {
		select {
		case <-a.arrived:
		case <-b.arrived:
		}
		s, _ = a.counts()
		_, r = b.counts()
	}
	if b.bytes != total || len(a.bad)+len(b.bad) != 0 {
		t.Errorf("%d of %d bytes, errors %v %v", b.bytes, total, a.bad, b.bad)
	}
}

func TestLossyWireBothEndsSleep(t *testing.T) {
	// F1 through the driver: everything arrives once, by timers that only the progress
	// goroutines run.
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, true)
		rng := rand.New(rand.NewPCG(7, 7))
		var mu sync.Mutex
		drop := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(100) < 10
		}
		a.plug.drop, b.plug.drop = drop, drop
		const n = 300
		total := 0
		for i := range n {
			size := i * 37 % 20_000
			total += size
			b.post(t, transport.Op{Kind: transport.OpTRecv, Tag: uint64(i), Buf: make([]byte, size)})
			a.post(t, transport.Op{Kind: transport.OpTSend, Tag: uint64(i), Buf: make([]byte, size)})
		}
		bothSleep(t, a, b, n, total)
		a.Disarm()
		b.Disarm()
		_, _ = a.Close(), b.Close()
	})
}

func TestOddSocketBothEndsSleep(t *testing.T) {
	// F23 through the driver: trains that find no room leave later, once and in order. Packets
	// of trains that the socket refuses are sent again.
	synctest.Test(t, func(t *testing.T) {
		a, b := newEnds(t, true)
		for i, e := range []*end{a, b} {
			rng := rand.New(rand.NewPCG(23, uint64(i)))
			e.plug.odd = func() error {
				e.plug.mu.Lock()
				defer e.plug.mu.Unlock()
				switch rng.IntN(8) {
				case 0, 1:
					return dgram.ErrNoRoom
				case 2:
					return syscall.ENOBUFS
				}
				return nil
			}
		}
		const n = 300
		total := 0
		for i := range n {
			size := i * 37 % 20_000
			total += size
			b.post(t, transport.Op{Kind: transport.OpRecv, Buf: make([]byte, size)})
			a.post(t, transport.Op{Kind: transport.OpSend, Ordered: true, Buf: make([]byte, size)})
		}
		bothSleep(t, a, b, n, total)
		if s := a.Stats(); s.NoRoom == 0 || s.SendError == 0 {
			t.Errorf("%+v", s)
		}
		a.Disarm()
		b.Disarm()
		_, _ = a.Close(), b.Close()
	})
}

func TestAutoBrokenSocketEndsTheSend(t *testing.T) {
	// docs/faults.md rule 1, as F9: nobody polls or sleeps, and the socket is broken. Posted
	// operations end nevertheless.
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newEnds(t, true)
			_ = b.Close()
			synctest.Wait()
			post := func() { a.post(t, transport.Op{Kind: transport.OpSend, Buf: []byte("x")}) }
			if before {
				post()
			}
			a.plug.mu.Lock()
			a.plug.broken = syscall.EBADF
			a.plug.mu.Unlock()
			a.plug.Wake()
			synctest.Wait()
			if !before {
				post()
			}
			start := time.Now()
			select {
			case <-a.arrived:
			case <-time.After(time.Hour):
				t.Error("it never ends")
			}
			if d := time.Since(start); d > 41*time.Second {
				t.Errorf("it ended after %v", d)
			}
			if len(a.bad) != 1 || a.bad[0].Cause != transport.TimedOut {
				t.Errorf("events %+v", a.bad)
			}
			_ = a.Close()
		})
	}
}
