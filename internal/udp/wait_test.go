package udp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

func deadline() time.Time { return time.Now().Add(tooLong) }

// A rest is a way to wait, and what ends it early.
type rest struct {
	wait func(*Conn, time.Time) error
	wake func(*Conn)
}

// nap is Conn.Nap with the deadline of Conn.Wait.
func nap(c *Conn, end time.Time) error {
	if end.IsZero() {
		end = time.Now().Add(time.Hour)
	}
	if !c.Naps() {
		return net.ErrClosed
	}
	return c.Nap(time.Until(end))
}

// A goroutine that is told to leave the socket may not be in Wait yet. A nap does not take the
// Wake from it: it would then wait for ever, and with it each later nap.
func TestNapLeavesWakesToWait(t *testing.T) {
	c := open(t, loopback4, Config{})
	if !c.Naps() {
		t.Skip("this system has no naps")
	}
	c.Wake()
	end := time.Now().Add(5 * time.Millisecond)
	if err := nap(c, end); err != nil || time.Now().Before(end) {
		t.Errorf("a Wake ended a nap: %v", err)
	}
	soon(t, "Wait", func() { _ = c.Wait(time.Time{}) })
}

// eachWaiter runs a test for each way to wait: backends, one path or several, on a thread of the
// runtime or on the caller's.
func eachWaiter(t *testing.T, f func(t *testing.T, cfg Config, by rest)) {
	for _, b := range backends {
		for _, k := range []int{1, 3} {
			if b.cfg.Portable && !b.cfg.readers && k > 1 {
				continue // these are the readers again
			}
			t.Run(fmt.Sprintf("%s/%d paths", b.name, k), func(t *testing.T) {
				cfg := b.cfg
				cfg.Paths = k
				f(t, cfg, rest{(*Conn).Wait, (*Conn).Wake})
			})
			if c := open(t, loopback4, b.cfg); c.Naps() {
				t.Run(fmt.Sprintf("%s/%d paths/nap", b.name, k), func(t *testing.T) {
					cfg := b.cfg
					cfg.Paths = k
					f(t, cfg, rest{nap, (*Conn).Rouse})
				})
			}
		}
	}
}

// soon fails the test if f does not return.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(tooLong):
		t.Fatalf("%s does not return", what)
	}
}

func TestWaitSeesWhatIsThere(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		a, b := open(t, loopback4, cfg), open(t, loopback4, cfg)
		// An event is seen as long as there is something, over several rounds, with Recv in
		// between or not.
		for i := range 20 {
			d := train(b, i, 10, 0)
			d.Remote = addrOf(b, i%cfg.Paths)
			send(t, a, d)
			for range 2 {
				if err := by.wait(b, deadline()); err != nil {
					t.Fatal(err)
				}
			}
			receive(t, b, 1)
		}
	})
}

func TestWaitDeadline(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		c := open(t, loopback4, cfg)
		for range 3 {
			end := time.Now().Add(5 * time.Millisecond)
			if err := by.wait(c, end); err != nil {
				t.Fatal(err)
			}
			if time.Now().Before(end) {
				t.Error("Wait ended early")
			}
		}
		soon(t, "Wait past its deadline", func() { _ = by.wait(c, time.Now().Add(-time.Second)) })
		// A deadline that has passed does not affect later waits.
		send(t, c, train(c, 0, 10, 0))
		if err := by.wait(c, deadline()); err != nil {
			t.Fatal(err)
		}
		receive(t, c, 1)
	})
}

func TestWakeBeforeWait(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		c := open(t, loopback4, cfg)
		for range 10 {
			by.wake(c)
			soon(t, "Wait", func() {
				if err := by.wait(c, time.Time{}); err != nil {
					t.Error(err)
				}
			})
		}
		// A Wake ends one wait.
		by.wake(c)
		by.wake(c)
		_ = by.wait(c, time.Time{})
		end := time.Now().Add(5 * time.Millisecond)
		_ = by.wait(c, end)
		if time.Now().Before(end) {
			t.Error("two Wakes ended two Waits")
		}
	})
}

// No Wake is lost, whenever it comes: each round has one Wait and one Wake.
func TestWakeDuringWait(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		c := open(t, loopback4, cfg)
		back := make(chan struct{})
		go func() {
			defer close(back)
			for range 2000 {
				if err := by.wait(c, time.Time{}); err != nil {
					t.Error(err)
				}
				back <- struct{}{}
			}
		}()
		for i := range 2000 {
			if i%3 == 0 {
				time.Sleep(time.Microsecond) // so that it parks sometimes
			}
			by.wake(c)
			select {
			case <-back:
			case <-time.After(tooLong):
				t.Fatal("a Wake was lost")
			}
		}
		<-back
	})
}

// No datagram is missed by a sleeper, even with a Wake now and then.
func TestWaitPingPong(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		const rounds = 1000
		a, b := open(t, loopback4, cfg), open(t, loopback4, cfg)
		var wg sync.WaitGroup
		play := func(c, peer *Conn, first bool) {
			defer wg.Done()
			d, out := slab(), train(peer, 0, 10, 0)
			for i := 0; i < rounds; {
				if first {
					out.Remote, out.Path = addrOf(peer, i%cfg.Paths), i%cfg.Paths
					send(t, c, out)
					first = false
				}
				ok, err := c.Recv(d)
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					i++
					first = true
					continue
				}
				if i%7 == 0 {
					by.wake(peer)
				}
				end := deadline()
				if err := by.wait(c, end); err != nil || time.Now().After(end) {
					t.Errorf("round %d: Wait: %v", i, err)
					return
				}
			}
			if first { // the last answer
				send(t, c, out)
			}
		}
		wg.Add(2)
		go play(a, b, true)
		go play(b, a, false)
		wg.Wait()
	})
}

func TestCloseEndsWait(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		for i := range 50 {
			c := open(t, loopback4, cfg)
			got := make(chan error)
			go func() {
				for {
					if err := by.wait(c, time.Time{}); err != nil {
						got <- err
						return
					}
				}
			}()
			if i%2 == 0 {
				time.Sleep(time.Microsecond)
			}
			soon(t, "Close", func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := <-got; !errors.Is(err, net.ErrClosed) {
				t.Fatalf("Wait: %v, want net.ErrClosed", err)
			}
		}
	})
}

// Everything that may run concurrently does, and Close comes in between. Other Conns reuse the
// descriptors' numbers at once, so a call on a closed one would reach another file.
func TestCloseRace(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		peer := open(t, loopback4, cfg)
		for range 30 {
			c := open(t, loopback4, cfg)
			var wg sync.WaitGroup
			run := func(f func() error) {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						if err := f(); errors.Is(err, net.ErrClosed) {
							return
						} else if err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			d, out := slab(), train(peer, 0, 300, 100)
			var e Evidence
			sent := 0
			enough := make(chan struct{})
			run(func() error { // the owner of Recv and Send
				if _, err := c.Recv(d); err != nil {
					return err
				}
				c.NextError(&e)
				_ = c.Stats()
				if sent++; sent == 20 {
					close(enough)
				}
				err := c.Send(out)
				if err == dgram.ErrNoRoom {
					err = nil
				}
				return err
			})
			run(func() error { return by.wait(c, time.Now().Add(time.Millisecond)) })
			run(func() error { return c.WaitWritable(cfg.Paths-1, time.Now().Add(time.Millisecond)) })
			stop := make(chan struct{})
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
						by.wake(c)
						_ = c.Info()
						_, _ = c.RouteMTU(loopback4)
					}
				}
			}()
			<-enough
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			close(stop)
			wg.Wait()
		}
	})
}

func TestWaitWritableAtOnce(t *testing.T) {
	eachWaiter(t, func(t *testing.T, cfg Config, by rest) {
		c := open(t, loopback4, cfg)
		for p := range cfg.Paths {
			soon(t, "WaitWritable", func() {
				if err := c.WaitWritable(p, time.Time{}); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func TestGateDrain(t *testing.T) {
	g := gate{idle: make(chan struct{}, 1)}
	for range 2 {
		if !g.enter() {
			t.Fatal("an open gate refuses")
		}
	}
	if !g.shut() {
		t.Fatal("shut says the gate was shut already")
	}
	if g.enter() || g.shut() {
		t.Fatal("a shut gate lets in")
	}
	done := make(chan struct{})
	go func() { g.drain(); close(done) }()
	g.leave()
	if g.enter() {
		t.Fatal("a shut gate lets in")
	}
	select {
	case <-done:
		t.Fatal("drain did not wait for the last call")
	default:
	}
	g.leave()
	<-done
}
