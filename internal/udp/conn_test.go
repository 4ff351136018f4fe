package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
)

func TestOpenRefuses(t *testing.T) {
	lo := netip.AddrPortFrom(loopback4, 0)
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"no address", Config{}},
		{"unspecified", Config{Addr: netip.MustParseAddrPort("0.0.0.0:0")}},
		{"unspecified IPv6", Config{Addr: netip.MustParseAddrPort("[::]:0")}},
		{"group", Config{Addr: netip.MustParseAddrPort("224.0.0.1:0")}},
		{"link-local without zone", Config{Addr: netip.MustParseAddrPort("[fe80::1]:0")}},
		{"paths below 0", Config{Addr: lo, Paths: -1}},
		{"too many paths", Config{Addr: lo, Paths: MaxPaths + 1}},
		{"beyond the last port", Config{Addr: netip.AddrPortFrom(loopback4, 65535), Paths: 2, Consecutive: true}},
		{"unknown mode", Config{Addr: lo, GSO: Off + 1}},
		{"buffer below 0", Config{Addr: lo, RecvBuf: -1}},
		{"buffer too large", Config{Addr: lo, SendBuf: maxBuf + 1}},
		{"portable GSO", Config{Addr: lo, Portable: true, GSO: On}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if conn, err := Open(c.cfg); err == nil {
				_ = conn.Close()
				t.Error("Open accepts it")
			}
			if cfg := c.cfg; cfg.check() == nil {
				t.Error("only the system refuses it")
			}
		})
	}
}

func TestOpenPorts(t *testing.T) {
	for _, b := range backends {
		for _, ip := range families(t) {
			t.Run(fmt.Sprintf("%s/%v", b.name, ip), func(t *testing.T) {
				cfg := b.cfg
				cfg.Paths = 3
				a := open(t, ip, cfg)
				seen := map[uint16]bool{}
				for _, p := range a.Ports() {
					if p == 0 || seen[p] {
						t.Errorf("ports %v", a.Ports())
					}
					seen[p] = true
				}
				if want := netip.AddrPortFrom(ip, a.Ports()[0]); a.LocalAddr() != want {
					t.Errorf("LocalAddr() = %v, want %v", a.LocalAddr(), want)
				}

				// The same port cannot be opened again before Close, and can be at once after
				// it.
				cfg = b.cfg
				cfg.Addr = netip.AddrPortFrom(ip, a.Ports()[1])
				if c, err := Open(cfg); !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("Open of a port in use: %v, want EADDRINUSE", err)
					_ = c
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				c := open(t, ip, cfg)
				if c.LocalAddr() != cfg.Addr {
					t.Errorf("LocalAddr() = %v, want %v", c.LocalAddr(), cfg.Addr)
				}
			})
		}
	}
}

func TestOpenConsecutive(t *testing.T) {
	// The last port is 65535.
	for port, fits := range map[uint16]bool{65535 - 4: true, 65535 - 3: true, 65535 - 2: false, 65535: false} {
		cfg := Config{Addr: netip.AddrPortFrom(loopback4, port), Paths: 4, Consecutive: true}
		if err := cfg.check(); (err == nil) != fits {
			t.Errorf("4 paths from port %d: %v", port, err)
		}
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			cfg := b.cfg
			cfg.Paths, cfg.Consecutive = 4, true
			a := open(t, loopback4, cfg)
			for i, p := range a.Ports() {
				if p != a.Ports()[0]+uint16(i) {
					t.Fatalf("ports %v are not consecutive", a.Ports())
				}
			}
			// A range that is not free cannot be opened, and no part of it stays open.
			cfg.Addr = netip.AddrPortFrom(loopback4, a.Ports()[0]-1)
			if c, err := Open(cfg); err == nil {
				_ = c.Close()
				t.Error("Open takes ports in use")
			} else if !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("Open of a range in use: %v, want EADDRINUSE", err)
			}
		})
	}
}

// Path ports follow one on the other where they are free, within the ports to take.
func TestOpenPathPorts(t *testing.T) {
	some := Config{Ports: portrange.Range{First: 10, Last: 12}}
	for port, may := range map[uint16]bool{0: false, 9: false, 10: true, 12: true, 13: false} {
		if some.mayTake(port) != may || new(Config).mayTake(port) != (port != 0) {
			t.Errorf("port %d", port)
		}
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			cfg := b.cfg
			cfg.Paths = 4
			const tries = 20 // the port behind an ephemeral one may be in use
			for try := 0; ; try++ {
				p := open(t, loopback4, cfg).Ports()
				if p[2] == p[1]+1 && p[3] == p[1]+2 {
					break
				}
				if try == tries {
					t.Fatalf("ports %v do not follow one on the other", p)
				}
			}
		})
	}
}

func TestOpenNotOurAddress(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			cfg := b.cfg
			cfg.Addr = netip.MustParseAddrPort("192.0.2.254:0")
			c, err := Open(cfg)
			if !errors.Is(err, syscall.EADDRNOTAVAIL) {
				t.Errorf("Open: %v, want EADDRNOTAVAIL", err)
			}
			if err == nil {
				_ = c.Close()
			}
		})
	}
}

// Every way to send works with every way to receive: the datagrams are the same.
func TestTrainArrives(t *testing.T) {
	shapes := []struct {
		name   string
		n, seg int
	}{
		{"one byte", 1, 0},
		{"one datagram", 1400, 1400},
		{"one datagram, seg beyond", 1400, 9000},
		{"two", 200, 100},
		{"short last", 10*1400 + 1, 1400},
		{"64 of one byte", 64, 1},
		{"64 of 1023", 64 * 1023, 1023},
		{"64 with a short last", 63*1023 + 5, 1023},
		{"64 KiB", dgram.MaxTrain, 1400},
		{"two large", 2 * 30000, 30000},
		{"128", 128 * 100, 100},
		{"129, more than one call takes", 129 * 100, 100},
		{"200 with a short last", 199*100 + 1, 100},
	}
	for _, ip := range families(t) {
		for _, from := range kinds {
			for _, to := range kinds {
				t.Run(fmt.Sprintf("%v/%s to %s", ip, from.name, to.name), func(t *testing.T) {
					a, b := open(t, ip, from.cfg), open(t, ip, to.cfg)
					left := 0 // trains that must leave
					for i, s := range shapes {
						d := train(b, i, s.n, s.seg)
						if left++; a.Info().GSO.On {
							left += (d.Segments() - 1) / dgram.MaxSegments
						}
						want := cut(d)
						before := a.Stats().SendCalls
						send(t, a, d)
						if !bytes.Equal(d.Data, pattern(i, s.n)) {
							t.Fatalf("%s: Send changed the train", s.name)
						}
						ps, trains := receive(t, b, len(want))
						same(t, ps, want)
						for _, p := range ps {
							if p.remote != a.LocalAddr() || p.path != 0 || p.tos != 0 {
								t.Errorf("%s: got %v, want it from %v", s.name, p, a.LocalAddr())
							}
						}
						// If both ends have trains, one call is enough at each.
						if a.Info().GSO.On && len(want) <= dgram.MaxSegments {
							if calls := a.Stats().SendCalls - before; calls != 1 {
								t.Errorf("%s: sent in %d calls", s.name, calls)
							}
							// (Linux accepts at most 64 KiB with all headers in one buffer; it
							// cuts the longest train.)
							if b.Info().GRO.On && trains != 1 && s.n < dgram.MaxTrain {
								t.Errorf("%s: received in %d trains", s.name, trains)
							}
						}
					}
					empty(t, b)
					st := a.Stats()
					if st.SendTrains != uint64(left) || st.SendLost+st.SendAgain+st.SendTooBig != 0 {
						t.Errorf("sender: %+v", st)
					}
					if rt := b.Stats(); rt.RecvSegments != st.SendSegments || rt.RecvBytes != st.SendBytes {
						t.Errorf("received %d datagrams, %d bytes; sent %d, %d", rt.RecvSegments, rt.RecvBytes, st.SendSegments, st.SendBytes)
					}
				})
			}
		}
	}
}

// The largest datagram arrives. With IPv6 the headers need more of the 64 KiB that the loopback
// interface accepts.
func TestTrainOfOneLargest(t *testing.T) {
	for _, ip := range families(t) {
		n := dgram.MaxTrain
		if ip.Is6() {
			n = 65536 - 40 - 8
		}
		for _, k := range kinds {
			t.Run(fmt.Sprintf("%v/%s", ip, k.name), func(t *testing.T) {
				a, b := open(t, ip, k.cfg), open(t, ip, k.cfg)
				d := train(b, 1, n, 0)
				send(t, a, d)
				ps, _ := receive(t, b, 1)
				same(t, ps, [][]byte{d.Data})
			})
		}
	}
}

func TestTrainOfNothing(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			a, b := open(t, loopback4, k.cfg), open(t, loopback4, k.cfg)
			send(t, a, &dgram.Datagram{Remote: b.LocalAddr()})
			if n := a.Stats().SendCalls; n != 0 {
				t.Errorf("%d calls to send nothing", n)
			}
			empty(t, b)
		})
	}
}

// T30: an empty datagram is received as such. Its reader counts it.
func TestRecvEmptyDatagram(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			a := open(t, loopback4, k.cfg)
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(a.LocalAddr()))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 2 {
				if _, err := c.Write(nil); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := a.Wait(deadline()); err != nil {
					t.Fatal(err)
				}
				d := slab()
				d.Data = append(d.Data, 1, 2, 3)
				if ok, err := a.Recv(d); !ok || err != nil || len(d.Data) != 0 {
					t.Fatalf("Recv = %v, %v with %d bytes", ok, err, len(d.Data))
				}
			}
			empty(t, a)
		})
	}
}

func TestRecvTooSmallBufferDrops(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			a, b := open(t, loopback4, k.cfg), open(t, loopback4, k.cfg)
			send(t, a, train(b, 1, 200, 0), train(b, 2, 100, 0))
			d := &dgram.Datagram{Data: make([]byte, 0, 100)}
			for ok := false; !ok; {
				if err := b.Wait(deadline()); err != nil {
					t.Fatal(err)
				}
				var err error
				if ok, err = b.Recv(d); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(d.Data, pattern(2, 100)) {
				t.Errorf("received %d bytes, want the datagram that fits", len(d.Data))
			}
			if n := b.Stats().RecvCut; n != 1 {
				t.Errorf("RecvCut = %d, want 1", n)
			}
		})
	}
}

func TestMisusePanics(t *testing.T) {
	for _, k := range backends {
		c := open(t, loopback4, k.cfg)
		d := train(c, 0, 1, 0)
		d.Path = 1
		for name, f := range map[string]func(){
			"Recv without room": func() { _, _ = c.Recv(new(dgram.Datagram)) },
			"Send by no path":   func() { _ = c.Send(d) },
			"SendBatch":         func() { _, _ = c.SendBatch([]*dgram.Datagram{d}) },
			"WaitWritable":      func() { _ = c.WaitWritable(-1, deadline()) },
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				f()
			})
		}
		// The Conn still works.
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Each train has its own traffic class. Trains with different classes are not mixed up,
// whatever came before.
func TestTrainsAreOfOneKind(t *testing.T) {
	// However many datagrams wait, what is received together has one sender, one class and one
	// size, except for a shorter last one.
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			a, b, to := open(t, loopback4, Config{GSO: Off}), open(t, loopback4, Config{GSO: Off}), open(t, loopback4, k.cfg)
			type sent struct {
				by    *Conn
				n     int
				class uint8
			}
			all := []sent{{a, 100, 0}, {a, 100, 0}, {b, 100, 0}, {a, 100, 0}, {a, 100, dgram.ECT0}, {a, 100, 0}, {a, 150, 0}, {a, 150, 0}, {a, 40, 0}, {a, 150, 0}}
			for i, s := range all {
				d := train(to, i, s.n, 0)
				d.TOS = s.class
				send(t, s.by, d)
			}
			ps, _ := receive(t, to, len(all))
			for i, p := range ps {
				s := all[i]
				if p.remote != s.by.LocalAddr() || p.tos != s.class && to.Info().ECN.On || !bytes.Equal(p.data, pattern(i, s.n)) {
					t.Errorf("datagram %d: %v, want %d bytes from %v, TOS %#02x", i, p, s.n, s.by.LocalAddr(), s.class)
				}
			}
		})
	}
}

func TestTOSOfEachTrain(t *testing.T) {
	classes := []uint8{0, dgram.ECT0, dgram.ECT1, dgram.CE, 46<<2 | dgram.ECT0, 0, 0x08 | dgram.CE, dgram.ECT0}
	for _, ip := range families(t) {
		for _, from := range kinds {
			for _, to := range kinds {
				t.Run(fmt.Sprintf("%v/%s to %s", ip, from.name, to.name), func(t *testing.T) {
					for _, own := range []uint8{0, dgram.ECT0} {
						cfg := from.cfg
						cfg.TOS = own
						a, b := open(t, ip, cfg), open(t, ip, to.cfg)
						if !b.Info().ECN.On {
							t.Skipf("traffic class not received: %s", b.Info().ECN.Why)
						}
						for i, c := range classes {
							d := train(b, i, 2500, 1000)
							d.TOS = c
							send(t, a, d)
						}
						ps, _ := receive(t, b, 3*len(classes))
						for i, p := range ps {
							if want := classes[i/3]; p.tos != want {
								t.Errorf("socket with %#02x: datagram %d has TOS %#02x, want %#02x", own, i, p.tos, want)
							}
						}
					}
				})
			}
		}
	}
}

// Each datagram is reported with its own sender, and goes to its own destination, whoever sent
// the one before.
func TestRemoteOfEachTrain(t *testing.T) {
	for _, ip := range families(t) {
		for _, k := range kinds {
			t.Run(fmt.Sprintf("%v/%s", ip, k.name), func(t *testing.T) {
				to := [2]*Conn{open(t, ip, k.cfg), open(t, ip, k.cfg)}
				from := [2]*Conn{open(t, ip, k.cfg), open(t, ip, k.cfg)}
				for i, c := range []int{0, 0, 1, 0, 1, 1, 3, 2, 2, 3, 0, 3} {
					f, b := from[c&1], to[c>>1]
					send(t, f, train(b, i, 64, 64))
					ps, _ := receive(t, b, 1)
					same(t, ps, [][]byte{pattern(i, 64)})
					if ps[0].remote != f.LocalAddr() {
						t.Errorf("datagram %d is from %v, want %v", i, ps[0].remote, f.LocalAddr())
					}
				}
			})
		}
	}
}

func TestPathsSendAndReceive(t *testing.T) {
	const k = 4
	for _, ip := range families(t) {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v/%s", ip, kind.name), func(t *testing.T) {
				cfg := kind.cfg
				cfg.Paths = k
				a, b := open(t, ip, cfg), open(t, ip, cfg)
				want := map[string]bool{}
				for from := range k {
					for to := range k {
						d := train(b, 16*from+to, 300, 100)
						d.Path = from
						d.Remote = netip.AddrPortFrom(ip, b.Ports()[to])
						for _, p := range cut(d) {
							want[packet{p, netip.AddrPortFrom(ip, a.Ports()[from]), to, 0}.String()] = true
						}
						send(t, a, d)
					}
				}
				ps, _ := receive(t, b, 3*k*k)
				for _, p := range ps {
					if !want[p.String()] {
						t.Errorf("got %v", p)
					}
				}
			})
		}
	}
}

// A Mover sends, receives and counts like its Conn.
func TestMoverIsTheConn(t *testing.T) {
	for _, k := range []int{1, 3} {
		for _, backend := range backends {
			t.Run(fmt.Sprintf("%d/%s", k, backend.name), func(t *testing.T) {
				cfg := backend.cfg
				cfg.Paths = k
				a, b := open(t, loopback4, cfg), open(t, loopback4, cfg)
				var ds []*dgram.Datagram
				for p := range k {
					d := train(b, p, 300, 100)
					d.Path, d.Remote = p, addrOf(b, p)
					ds = append(ds, d)
					if err := a.Mover().Send(d); err != nil {
						t.Fatal(err)
					}
				}
				if n, err := a.Mover().SendBatch(ds); n != k || err != nil {
					t.Fatalf("SendBatch: %d, %v", n, err)
				}
				got := slab()
				for end := time.Now().Add(tooLong); b.Stats().RecvSegments < uint64(6*k) && time.Now().Before(end); {
					got.Reset()
					if ok, err := b.Mover().Recv(got); err != nil {
						t.Fatal(err)
					} else if !ok {
						_ = b.Wait(end)
					}
				}
				if n, m := a.Stats().SendSegments, b.Stats().RecvSegments; n != uint64(6*k) || m != n {
					t.Errorf("%d datagrams sent, %d received, want %d", n, m, 6*k)
				}
			})
		}
	}
}

// A path with much to receive does not delay the others.
func TestPathsTakeTurns(t *testing.T) {
	const k, many = 8, 100
	a := open(t, loopback4, Config{})
	b := open(t, loopback4, Config{Paths: k})
	to := func(path int) *dgram.Datagram {
		d := train(b, path, 50, 0)
		d.Remote = netip.AddrPortFrom(loopback4, b.Ports()[path])
		return d
	}
	for range many {
		send(t, a, to(2))
	}
	for p := range k {
		send(t, a, to(p))
	}
	ps, _ := receive(t, b, many+k)
	first := map[int]int{}
	for i, p := range ps {
		if _, ok := first[p.path]; !ok {
			first[p.path] = i
		}
	}
	for p := range k {
		if first[p] >= k {
			t.Errorf("path %d had its first turn after %d others", p, first[p])
		}
	}
}

func TestSendBatchOrder(t *testing.T) {
	for _, ip := range families(t) {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v/%s", ip, kind.name), func(t *testing.T) {
				cfg := kind.cfg
				cfg.Paths = 2
				a := open(t, ip, cfg)
				bs := []*Conn{open(t, ip, cfg), open(t, ip, cfg), open(t, ip, cfg)}
				want := make([][][]byte, len(bs))
				var ds []*dgram.Datagram
				// The batch has single datagrams, trains, too long trains and empty ones; paths
				// change.
				for i := range 150 {
					n := []int{40, 500, 0, 7000}[i%4]
					d := train(bs[i%3], i, n, 100)
					d.Path = i / 50 % 2
					ds = append(ds, d)
					want[i%3] = append(want[i%3], cut(d)...)
				}
				n, err := a.SendBatch(ds)
				if n != len(ds) || err != nil {
					t.Fatalf("SendBatch = %d, %v, want %d", n, err, len(ds))
				}
				for i, b := range bs {
					ps, _ := receive(t, b, len(want[i]))
					for _, p := range ps {
						if p.path != 0 {
							t.Errorf("got %v", p)
						}
					}
					same(t, ps, want[i])
				}
			})
		}
	}
}

func TestSendBatchSkipsTheOneAtFault(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			a, b := open(t, loopback4, k.cfg), open(t, loopback4, k.cfg)
			ds := []*dgram.Datagram{train(b, 0, 10, 0), train(b, 1, 10, 0), train(b, 2, 10, 0), train(b, 3, 10, 0)}
			ds[2].Remote = netip.MustParseAddrPort("[::1]:9")
			n, err := a.SendBatch(ds)
			if n != 2 || err != syscall.EAFNOSUPPORT {
				t.Fatalf("SendBatch = %d, %v, want 2, EAFNOSUPPORT", n, err)
			}
			if n, err := a.SendBatch(ds[3:]); n != 1 || err != nil {
				t.Fatalf("SendBatch of the rest = %d, %v", n, err)
			}
			if n, err := a.SendBatch(nil); n != 0 || err != nil {
				t.Fatalf("SendBatch of none = %d, %v", n, err)
			}
			ps, _ := receive(t, b, 3)
			same(t, ps, [][]byte{pattern(0, 10), pattern(1, 10), pattern(3, 10)})
			if st := a.Stats(); st.SendLost != 1 || st.SendTrains != 3 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestSendNowhere(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			a := open(t, loopback4, k.cfg)
			d := &dgram.Datagram{Data: []byte{1}}
			for _, to := range []netip.AddrPort{{}, netip.MustParseAddrPort("[::1]:9")} {
				d.Remote = to
				if err := a.Send(d); err != syscall.EAFNOSUPPORT {
					t.Errorf("Send to %v: %v, want EAFNOSUPPORT", to, err)
				}
			}
			// Later sends are not disturbed. An IPv4 address in IPv6 form is an IPv4 address.
			b := open(t, loopback4, k.cfg)
			d.Remote = netip.AddrPortFrom(netip.AddrFrom16(loopback4.As16()), b.LocalAddr().Port())
			send(t, a, d)
			receive(t, b, 1)
		})
	}
}

func TestClosed(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			c := open(t, loopback4, k.cfg)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			for name, err := range map[string]error{
				"Close":        c.Close(),
				"Send":         c.Send(train(c, 0, 1, 0)),
				"Wait":         c.Wait(deadline()),
				"WaitWritable": c.WaitWritable(0, deadline()),
				"Recv":         func() error { _, err := c.Recv(slab()); return err }(),
				"SendBatch":    func() error { _, err := c.SendBatch(nil); return err }(),
				"RouteMTU":     func() error { _, err := c.RouteMTU(loopback4); return err }(),
			} {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("%s after Close: %v, want net.ErrClosed", name, err)
				}
			}
			if c.NextError(new(Evidence)) {
				t.Error("NextError after Close")
			}
			c.Wake()
			_, _ = c.Info(), c.Stats()
		})
	}
}

func TestInfo(t *testing.T) {
	for _, ip := range families(t) {
		for _, k := range kinds {
			t.Run(fmt.Sprintf("%v/%s", ip, k.name), func(t *testing.T) {
				cfg := k.cfg
				cfg.Paths, cfg.RecvBuf, cfg.SendBuf = 2, 100_000, 50_000
				i := open(t, ip, cfg).Info()
				if len(i.Ports) != 2 || i.Local != netip.AddrPortFrom(ip, i.Ports[0]) || i.Method == "" {
					t.Errorf("%+v", i)
				}
				if i.RecvBuf.Asked != 100_000 || i.SendBuf.Asked != 50_000 || i.RecvBuf.Got < 100_000 || i.RecvBuf.Short || i.SendBuf.Short {
					t.Errorf("buffers %+v, %+v", i.RecvBuf, i.SendBuf)
				}
				if i.Interface == "" || i.MTU < 1280 {
					t.Errorf("interface %q with MTU %d", i.Interface, i.MTU)
				}
				for name, f := range map[string]Feature{"GSO": i.GSO, "GRO": i.GRO, "ECN": i.ECN, "Evidence": i.Evidence, "DF": i.DontFragment} {
					if f.On == (f.Why != "") {
						t.Errorf("%s: %+v", name, f)
					}
				}
				if (cfg.GSO == Off || cfg.Portable) && i.GSO.On || (cfg.GRO == Off || cfg.Portable) && i.GRO.On {
					t.Errorf("GSO %+v, GRO %+v", i.GSO, i.GRO)
				}
			})
		}
	}
}

func TestModeString(t *testing.T) {
	for m, want := range map[Mode]string{Auto: "auto", On: "on", Off: "off", 9: "udp.Mode(9)"} {
		if m.String() != want {
			t.Errorf("%d is %q, want %q", uint8(m), m, want)
		}
	}
}

func TestRouteMTULoopback(t *testing.T) {
	for _, k := range backends {
		t.Run(k.name, func(t *testing.T) {
			n, err := open(t, loopback4, k.cfg).RouteMTU(loopback4)
			if err != nil || n < 1280 {
				t.Errorf("RouteMTU = %d, %v", n, err)
			}
		})
	}
}
