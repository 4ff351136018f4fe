package memnet

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/udp"
)

const ms = time.Millisecond

func open(t *testing.T, n *Network, addr string, cfg udp.Config) *udp.Conn {
	t.Helper()
	cfg.Addr, cfg.Network = netip.AddrPortFrom(netip.MustParseAddr(addr), cfg.Addr.Port()), n
	c, err := udp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends n datagrams of seg bytes as one train. The first byte of each is its number.
func send(t *testing.T, c *udp.Conn, to netip.AddrPort, n, seg int) {
	t.Helper()
	d := &dgram.Datagram{Seg: seg, Remote: to}
	for i := range n {
		d.Data = append(d.Data, byte(i))
		d.Data = append(d.Data, make([]byte, seg-1)...)
	}
	if err := c.Send(d); err != nil {
		t.Fatal(err)
	}
}

// got returns the numbers of the datagrams that are here.
func got(t *testing.T, c *udp.Conn) (all []int) {
	t.Helper()
	d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	for {
		ok, err := c.Recv(d)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		for rest := d.Data; len(rest) > 0; {
			var one []byte
			one, rest = d.Next(rest)
			all = append(all, int(one[0]))
		}
	}
}

// A train arrives whole when the delay is over, and not before. Who waits for it sleeps until then.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Delay: 3 * ms})
		a, b := open(t, n, "127.0.0.1", udp.Config{}), open(t, n, "127.0.0.2", udp.Config{})
		begun := time.Now()
		send(t, a, b.LocalAddr(), 5, 100)
		if x := got(t, b); x != nil {
			t.Errorf("here before its time: %v", x)
		}
		if err := b.Wait(begun.Add(time.Hour)); err != nil || time.Since(begun) != 3*ms {
			t.Errorf("the wait ended with %v after %v", err, time.Since(begun))
		}
		d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
		if ok, err := b.Recv(d); !ok || err != nil || d.Segments() != 5 || d.Seg != 100 || d.Remote != a.LocalAddr() {
			t.Errorf("received %v %v: %d datagrams of %d from %v", ok, err, d.Segments(), d.Seg, d.Remote)
		}
		// One that waits without an end is woken by a packet that is sent later.
		go func() {
			time.Sleep(ms)
			send(t, a, b.LocalAddr(), 1, 7)
		}()
		begun = time.Now()
		if err := b.Nap(time.Hour); err != nil || time.Since(begun) != 4*ms {
			t.Errorf("the nap ended with %v after %v", err, time.Since(begun))
		}
		if x := got(t, b); !slices.Equal(x, []int{0}) {
			t.Errorf("got %v", x)
		}
	})
}

// Waits end by their limits, by Wake and Rouse, and by Close.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Delay: ms})
		a := open(t, n, "127.0.0.1", udp.Config{})
		begun := time.Now()
		if err := a.Wait(begun.Add(2 * ms)); err != nil || time.Since(begun) != 2*ms {
			t.Errorf("a limit: %v after %v", err, time.Since(begun))
		}
		go func() {
			time.Sleep(5 * ms)
			a.Rouse()
			a.Wake()
		}()
		begun = time.Now()
		if err := a.Wait(time.Time{}); err != nil || time.Since(begun) != 5*ms {
			t.Errorf("Wake: %v after %v", err, time.Since(begun))
		}
		if err := a.Nap(time.Hour); err != nil || time.Since(begun) != 5*ms {
			t.Errorf("Rouse: %v after %v", err, time.Since(begun))
		}
		a.Wake()
		if err := a.Wait(time.Time{}); err != nil {
			t.Errorf("Wake before Wait: %v", err)
		}
		go func() {
			time.Sleep(5 * ms)
			a.Close()
		}()
		if err := a.Wait(time.Time{}); err != nil {
			t.Errorf("the end of a wait by Close: %v", err)
		}
		if err := a.Wait(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a wait after Close: %v", err)
		}
	})
}

// Who waits while another naps does so afterwards, and time goes on meanwhile.
func TestOneSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, New(Config{Delay: ms}), "127.0.0.1", udp.Config{})
		begun := time.Now()
		var naps sync.WaitGroup
		defer naps.Wait()
		naps.Go(func() {
			if err := a.Nap(10 * ms); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		a.Wake()
		if err := a.Wait(time.Time{}); err != nil || time.Since(begun) != 10*ms {
			t.Errorf("the wait ended with %v after %v", err, time.Since(begun))
		}
	})
}

// The seed decides what is lost, repeated and late, for each direction by itself.
func TestFates(t *testing.T) {
	const count = 2000
	run := func(seed uint64, talk bool) (fate []int, c Count) {
		synctest.Test(t, func(t *testing.T) {
			n := New(Config{Seed: seed, Delay: ms, Faults: badnet.Faults{Loss: 0.1, Duplicate: 0.05, DuplicateLate: ms, Late: 0.2, Delay: ms, Jitter: 10 * ms}})
			a, b := open(t, n, "127.0.0.1", udp.Config{}), open(t, n, "127.0.0.2", udp.Config{})
			for i := range count / 40 {
				if talk { // the other direction draws by itself
					send(t, b, a.LocalAddr(), 1+i%7, 10)
				}
				send(t, a, b.LocalAddr(), 40, 10)
			}
			time.Sleep(time.Second)
			fate = got(t, b)
			c = n.Count()
		})
		return fate, c
	}
	one, c := run(1, false)
	if c.Sent != count || c.Lost < count/20 || c.Lost > count/5 || c.Copied < count/50 || c.Late < count/10 {
		t.Errorf("of %d sent: %+v", count, c)
	}
	if uint64(len(one)) != c.Sent-c.Lost+c.Copied {
		t.Errorf("%d have arrived: %+v", len(one), c)
	}
	if slices.IsSorted(one[:40]) {
		t.Error("none is out of order")
	}
	if again, _ := run(1, true); !slices.Equal(one, again) {
		t.Error("the same seed has another outcome")
	}
	if other, _ := run(2, false); slices.Equal(one, other) {
		t.Error("another seed has the same outcome")
	}
}

// What exceeds the receive buffer is lost and counted, as a system does it.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Delay: ms})
		a, b := open(t, n, "127.0.0.1", udp.Config{}), open(t, n, "127.0.0.2", udp.Config{RecvBuf: 2500})
		for range 3 {
			send(t, a, b.LocalAddr(), 10, 100)
		}
		time.Sleep(ms)
		if x, s := got(t, b), b.Stats(); len(x) != 20 || s.KernelDrops != 10 || s.RecvSegments != 20 {
			t.Errorf("%d are here: %+v", len(x), s)
		}
		send(t, a, b.LocalAddr(), 10, 100)
		time.Sleep(ms)
		if x := got(t, b); len(x) != 10 {
			t.Errorf("there is room again: %d are here", len(x))
		}
	})
}

// Ports are taken once and free after Close, paths have one each, and what is too long for the
// network does not leave.
func TestPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Delay: ms, MTU: 1500})
		a := open(t, n, "127.0.0.1", udp.Config{Paths: 3})
		taken := udp.Config{Addr: a.LocalAddr(), Network: n}
		if _, err := udp.Open(taken); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a port that is taken: %v", err)
		}
		b := open(t, n, "127.0.0.1", udp.Config{})
		if p := a.Ports(); len(p) != 3 || slices.Contains(p, b.Ports()[0]) {
			t.Errorf("ports %v and %v", p, b.Ports())
		}
		d := &dgram.Datagram{Data: bytes.Repeat([]byte("x"), 1472), Remote: b.LocalAddr(), Path: 2}
		if err := a.Send(d); err != nil {
			t.Error(err)
		}
		time.Sleep(ms)
		in := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
		if ok, err := b.Recv(in); !ok || err != nil || in.Remote.Port() != a.Ports()[2] {
			t.Errorf("%v %v from %v, want port %d", ok, err, in.Remote, a.Ports()[2])
		}
		d.Data = append(d.Data, 'x')
		if err := a.Send(d); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("a packet of 1501 bytes: %v", err)
		}
		send(t, b, netip.AddrPortFrom(a.LocalAddr().Addr(), a.Ports()[1]), 1, 9)
		time.Sleep(ms)
		if ok, err := a.Recv(in); !ok || err != nil || in.Path != 1 {
			t.Errorf("%v %v by path %d", ok, err, in.Path)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		send(t, b, taken.Addr, 1, 9) // nobody is there
		if c, err := udp.Open(taken); err != nil {
			t.Errorf("a port that is free again: %v", err)
		} else if x := got(t, c); x != nil {
			t.Errorf("what was sent before: %v", x)
		}
	})
}
