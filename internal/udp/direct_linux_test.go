package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// inject replaces the outcome of sends of c.
func inject(c *Conn, f func(n int) (int, syscall.Errno)) { directOf(c).inject = f }

func directOf(c *Conn) *direct {
	if s, ok := c.io.(*several); ok {
		return s.direct
	}
	return c.io.(*direct)
}

// script returns an inject function with these outcomes, one for each call. After them the
// kernel decides again.
func script(out ...syscall.Errno) func(int) (int, syscall.Errno) {
	return func(n int) (int, syscall.Errno) {
		if len(out) == 0 {
			return n, 0
		}
		e := out[0]
		out = out[1:]
		return n, e
	}
}

func needGSO(t *testing.T, c *Conn) {
	t.Helper()
	if i := c.Info(); !i.GSO.On {
		t.Skip(i.GSO.Why)
	}
}

// GSO is switched off for one destination on EIO, EINVAL or EMSGSIZE, and nothing is lost.
func TestFallbackForOneDestination(t *testing.T) {
	for _, e := range []syscall.Errno{unix.EIO, unix.EINVAL, unix.EMSGSIZE} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/batch %v", e, batch), func(t *testing.T) {
				a := open(t, loopback4, Config{})
				needGSO(t, a)
				b := open(t, loopback4, Config{})
				other := open(t, netip.MustParseAddr("127.0.0.2"), Config{})
				fail := script(e)
				if e == unix.EMSGSIZE {
					fail = script(e, e) // the first may be of an earlier packet
				}
				inject(a, fail)
				d := train(b, 1, 6500, 100)
				d.Seg = 200
				if batch {
					one := train(b, 2, 10, 0)
					if n, err := a.SendBatch([]*dgram.Datagram{d, one, d}); n != 3 || err != nil {
						t.Fatalf("SendBatch = %d, %v", n, err)
					}
					ps, _ := receive(t, b, 33+1+33)
					same(t, ps, slices.Concat(cut(d), cut(one), cut(d)))
				} else {
					send(t, a, d)
					ps, _ := receive(t, b, 33)
					same(t, ps, cut(d))
				}
				// It stays off for b, on any port, and on for others.
				before := a.Stats().Split
				send(t, a, d)
				if _, trains := receive(t, b, 33); trains != 33 {
					t.Errorf("received in %d trains after the fallback", trains)
				}
				if n := a.Stats().Split - before; n != 1 {
					t.Errorf("%d trains split, want 1", n)
				}
				d.Remote = other.LocalAddr()
				send(t, a, d)
				if _, trains := receive(t, other, 33); trains != 1 {
					t.Errorf("another destination received %d trains, want 1", trains)
				}
				i := a.Info()
				if !i.GSO.On || !strings.Contains(i.GSO.Why, "127.0.0.1: "+e.Error()) {
					t.Errorf("Info: GSO %+v", i.GSO)
				}
				if st := a.Stats(); st.Fallbacks != 1 || st.SendTooBig+st.SendLost != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// T34: GSO is tried again, for one destination as for all, because what switched it off may be
// over or have been forged. It is switched off again if it still fails.
func TestFallbackIsNotForGood(t *testing.T) {
	var told []Feature
	a := open(t, loopback4, Config{GSOChanged: func(f Feature) { told = append(told, f) }})
	needGSO(t, a)
	b := open(t, loopback4, Config{})
	d := train(b, 1, 400, 100)
	arrives := func(want int) {
		t.Helper()
		send(t, a, d)
		ps, trains := receive(t, b, 4)
		if same(t, ps, cut(d)); trains != want {
			t.Fatalf("received in %d trains, want %d", trains, want)
		}
	}
	inject(a, script(unix.EMSGSIZE, unix.EMSGSIZE))
	arrives(4)
	for range retryTrains {
		arrives(4)
	}
	if i := a.Info(); !i.GSO.On || i.GSO.Why != "" {
		t.Errorf("%+v", i.GSO)
	}
	arrives(1)
	if len(told) != 2 || !told[0].On || told[0].Why == "" || told[1] != a.Info().GSO {
		t.Errorf("told of %+v", told)
	}
	inject(a, script(unix.EIO))
	arrives(4) // and nothing is lost
	arrives(4)
	if i, st := a.Info(), a.Stats(); i.GSO.Why == "" || st.Fallbacks != 2 || st.SendTooBig+st.SendLost != 0 {
		t.Errorf("%+v, %+v", i.GSO, st)
	}
	io := directOf(a)
	for i := range maxNoGSO {
		io.switchOff(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), unix.EIO)
	}
	if i := a.Info(); i.GSO.On || told[len(told)-1] != i.GSO {
		t.Fatalf("%+v, told of %+v", i.GSO, told)
	}
	io.rest = 2
	arrives(4)
	arrives(4)
	arrives(1)
	if i := a.Info(); !i.GSO.On || i.GSO.Why != "" || told[len(told)-1] != i.GSO {
		t.Errorf("%+v, told of %+v", i.GSO, told)
	}
}

func TestFallbackForAll(t *testing.T) {
	a := open(t, loopback4, Config{})
	needGSO(t, a)
	for i := range maxNoGSO + 1 {
		b := open(t, netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), Config{})
		inject(a, script(unix.EIO))
		d := train(b, 1, 400, 100+4*(i%2)) // never a size of the socket's own
		send(t, a, d)
		ps, _ := receive(t, b, 4)
		same(t, ps, cut(d))
		if on := a.Info().GSO.On; on != (i < maxNoGSO) {
			t.Fatalf("GSO on = %v after %d destinations", on, i+1)
		}
	}
	b := open(t, loopback4, Config{})
	send(t, a, train(b, 1, 400, 100))
	if _, trains := receive(t, b, 4); trains != 4 {
		t.Errorf("received in %d trains", trains)
	}
	if i := a.Info(); i.GSO.Why == "" || strings.Contains(i.Method, "UDP_SEGMENT") {
		t.Errorf("%+v", i)
	}
}

// goesThrough sends n bytes in datagrams of seg from a to b, and checks that they arrive.
func goesThrough(t *testing.T, a, b *Conn, n, seg int) {
	t.Helper()
	d := train(b, 1, n, seg)
	send(t, a, d)
	want := cut(d)
	ps, _ := receive(t, b, len(want))
	same(t, ps, want)
}

// A socket whose trains were of short segments gives that size up when longer datagrams come singly:
// each of those would cost a control message.
func TestSegmentSizeIsGivenUp(t *testing.T) {
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	needGSO(t, a)
	s := &directOf(a).socks[0]
	through := func(n, seg int) { t.Helper(); goesThrough(t, a, b, n, seg) }
	for range stickAfter {
		through(72, 36)
	}
	if s.seg != 36 {
		t.Fatalf("segment size %d", s.seg)
	}
	for range stickAfter - 1 {
		through(48, 48)
	}
	if s.seg != 36 {
		t.Fatalf("segment size %d too early", s.seg)
	}
	through(48, 48)
	if s.seg != 0 {
		t.Errorf("segment size %d", s.seg)
	}
	through(48, 48)
}

// A socket whose datagrams and trains mostly have one length comes to have that size, whatever it
// had: then neither needs a control message. Few trains of another size do not take it away.
func TestSegmentSizeOfAMixture(t *testing.T) {
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	needGSO(t, a)
	s := &directOf(a).socks[0]
	through := func(n, seg int) { t.Helper(); goesThrough(t, a, b, n, seg) }
	for range stickAfter {
		through(72, 48) // what leaves while nothing goes well
	}
	if s.seg != 48 {
		t.Fatalf("segment size %d", s.seg)
	}
	for i := range 10 * stickAfter { // messages, some with an ACK behind them
		through(124, 124)
		if i%3 == 0 {
			through(172, 124)
		}
	}
	if s.seg != 124 {
		t.Fatalf("segment size %d", s.seg)
	}
	for range 4 * stickAfter {
		through(124, 124)
		through(72, 48)
	}
	if s.seg != 124 {
		t.Errorf("segment size %d", s.seg)
	}
	for range 2 * stickAfter {
		through(172, 124)
		through(72, 48)
		if s.seg != 124 {
			t.Fatalf("segment size %d", s.seg)
		}
	}
}

// A segment size that keeps coming becomes the socket's own. Other sizes, and longer datagrams,
// still arrive as they were cut.
func TestSegmentSizeSticks(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch %v", batch), func(t *testing.T) {
			a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
			needGSO(t, a)
			through := func(n, seg int) {
				t.Helper()
				ds := []*dgram.Datagram{train(b, 1, n, seg)}
				want := cut(ds[0])
				if batch {
					ds = append(ds, train(b, 2, n, seg))
					want = append(want, cut(ds[1])...)
				}
				if k, err := a.SendBatch(ds); err != nil || k != len(ds) {
					t.Fatalf("SendBatch: %d, %v", k, err)
				}
				ps, _ := receive(t, b, len(want))
				same(t, ps, want)
			}
			s := &directOf(a).socks[0]
			for range stickAfter {
				through(400, 100)
			}
			for range stickAfter {
				d := train(b, 1, 400, 100)
				send(t, a, d)
				ps, _ := receive(t, b, 4)
				same(t, ps, cut(d))
			}
			if s.seg != 100 {
				t.Fatalf("the socket has segment size %d", s.seg)
			}
			for _, n := range []int{40, 100, 101, 300} {
				through(n, n) // one datagram each
			}
			through(350, 100)
			through(500, 60)
			through(500, 300)

			// A socket whose own size causes an error loses the size, and nothing else.
			inject(a, script(unix.EINVAL))
			through(40, 40)
			if s.seg != 0 {
				t.Errorf("segment size %d after EINVAL", s.seg)
			}
			inject(a, nil)
			for range 2 * stickAfter {
				through(400, 100)
			}
			if s.seg != 0 {
				t.Errorf("segment size %d again", s.seg)
			}
			// The cause may have passed, so later the socket has a size again.
			back := func() {
				t.Helper()
				for range retryTrains + stickAfter {
					d := train(b, 1, 400, 100)
					send(t, a, d)
					ps, _ := receive(t, b, 4)
					same(t, ps, cut(d))
				}
				if s.seg != 100 {
					t.Errorf("segment size %d long after the trouble", s.seg)
				}
			}
			back()
			if s.stick(1 << 17) {
				t.Fatal("a segment longer than a datagram")
			}
			if !s.stick(0) {
				t.Fatal("the size cannot be taken away")
			}
			back()
			if st := a.Stats(); st.Fallbacks+st.SendTooBig+st.SendLost != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// An error that also comes without GSO does not switch GSO off.
func TestTooBigIsNoFallback(t *testing.T) {
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	needGSO(t, a)
	inject(a, func(n int) (int, syscall.Errno) { return n, unix.EMSGSIZE })
	if err := a.Send(train(b, 1, 400, 100)); err != unix.EMSGSIZE {
		t.Fatalf("Send: %v, want EMSGSIZE", err)
	}
	inject(a, nil)
	send(t, a, train(b, 1, 400, 100))
	if _, trains := receive(t, b, 4); trains != 1 {
		t.Errorf("received in %d trains", trains)
	}
	if st := a.Stats(); st.Fallbacks != 0 || st.SendTooBig != 1 {
		t.Errorf("%+v", st)
	}
}

// EAGAIN keeps the train, whole or what is left of it.
func TestAgainKeepsTheTrain(t *testing.T) {
	for _, cfg := range []Config{{}, {GSO: Off}} {
		t.Run(cfg.GSO.String(), func(t *testing.T) {
			a, b := open(t, loopback4, cfg), open(t, loopback4, Config{})
			d := train(b, 1, 120*10+3, 10)
			want := cut(d)
			// A call sends at most 7 datagrams, and every other call finds no room.
			call := 0
			inject(a, func(n int) (int, syscall.Errno) {
				if call++; call%2 == 1 {
					return n, unix.EAGAIN
				}
				return min(n, 7), 0
			})
			again := 0
			for {
				err := a.Send(d)
				if err == nil {
					break
				}
				if err != dgram.ErrNoRoom {
					t.Fatal(err)
				}
				if again++; again > 1000 {
					t.Fatal("no progress")
				}
			}
			ps, _ := receive(t, b, len(want))
			same(t, ps, want)
			empty(t, b)
			if st := a.Stats(); st.SendAgain != uint64(again) || st.SendTrains != 1 || st.SendLost != 0 {
				t.Errorf("%d times again; %+v", again, st)
			}
		})
	}
}

func TestAgainStopsABatch(t *testing.T) {
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	var ds []*dgram.Datagram
	var want [][]byte
	for i := range 10 {
		ds = append(ds, train(b, i, 30, 10))
		want = append(want, cut(ds[i])...)
	}
	call := 0
	inject(a, func(n int) (int, syscall.Errno) {
		if call++; call%2 == 0 {
			return n, unix.EAGAIN
		}
		return min(n, 3), 0
	})
	var ns []int
	for len(ds) > 0 {
		n, err := a.SendBatch(ds)
		if err != nil && err != dgram.ErrNoRoom || len(ns) > 10 {
			t.Fatal(n, err)
		}
		ns = append(ns, n)
		ds = ds[n:]
	}
	if !slices.Equal(ns, []int{3, 3, 3, 1}) {
		t.Errorf("sent %v", ns)
	}
	ps, _ := receive(t, b, len(want))
	same(t, ps, want)
}

// F23: a full device queue and a firewall lose what they drop, not the rest.
func TestRefusedIsLostAlone(t *testing.T) {
	for _, e := range []syscall.Errno{unix.ENOBUFS, unix.EPERM} {
		t.Run(e.Error(), func(t *testing.T) {
			a, b := open(t, loopback4, Config{GSO: Off}), open(t, loopback4, Config{})
			call := 0
			inject(a, func(n int) (int, syscall.Errno) {
				if call++; call == 2 {
					return n, e
				}
				return min(n, 2), 0
			})
			d := train(b, 1, 50, 10)
			if err := a.Send(d); err != e {
				t.Errorf("Send: %v, want %v", err, e)
			}
			want := cut(d)
			ps, _ := receive(t, b, 4)
			same(t, ps, slices.Delete(want, 2, 3))

			inject(a, script(0, e))
			ds := []*dgram.Datagram{train(b, 1, 10, 0), train(b, 2, 10, 0)}
			inject(a, script(e))
			if n, err := a.SendBatch(ds); n != 0 || err != e {
				t.Errorf("SendBatch = %d, %v, want 0, %v", n, err, e)
			}
			st := a.Stats()
			if st.SendNoBufs+st.SendLost != 2 || (e == unix.ENOBUFS) != (st.SendNoBufs == 2) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// An error that an earlier packet left behind on the socket does not fail this one.
func TestPendingErrorIsNotOurs(t *testing.T) {
	for _, ip := range families(t) {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/batch %v", ip, batch), func(t *testing.T) {
				a, b, dead := open(t, ip, Config{}), open(t, ip, Config{}), open(t, ip, Config{})
				_ = dead.Close()
				for i := range 20 {
					// The ICMP message is there when the first Send returns.
					send(t, a, train(dead, i, 10, 0))
					var err error
					if d := train(b, i, 300, 100); batch {
						_, err = a.SendBatch([]*dgram.Datagram{d, d})
					} else {
						err = a.Send(d)
					}
					if err != nil {
						t.Fatalf("Send to a living peer: %v", err)
					}
				}
				n := 60
				if batch {
					n *= 2
				}
				receive(t, b, n)
				// Recv does not return it either.
				send(t, a, train(dead, 0, 10, 0))
				empty(t, a)
				if st := a.Stats(); st.Pending != 21 || st.SendLost != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// F11, T34: evidence tells destination and path, and quotes the packet.
func TestEvidenceOfAClosedPort(t *testing.T) {
	for _, ip := range families(t) {
		for _, k := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v/%d paths", ip, k), func(t *testing.T) {
				a := open(t, ip, Config{Paths: k})
				dead := []*Conn{open(t, ip, Config{}), open(t, ip, Config{})}
				for _, d := range dead {
					_ = d.Close()
				}
				if a.NextError(new(Evidence)) {
					t.Fatal("evidence of nothing")
				}
				for i, c := range dead {
					d := train(c, i, 100, 0)
					d.Path = (k - 1) * i
					send(t, a, d)
				}
				// It ends a Wait.
				start := time.Now()
				if err := a.Wait(deadline()); err != nil || time.Since(start) >= tooLong {
					t.Fatalf("Wait: %v", err)
				}
				empty(t, a)
				var got []Evidence
				n := a.Errors(func(e *Evidence) {
					c := *e
					c.Payload = bytes.Clone(e.Payload)
					got = append(got, c)
				})
				if n != 2 || len(got) != 2 {
					t.Fatalf("Errors = %d, %+v", n, got)
				}
				slices.SortFunc(got, func(x, y Evidence) int { return int(x.Payload[0]) - int(y.Payload[0]) })
				for i, e := range got {
					want := Evidence{
						Remote: dead[i].LocalAddr(), Path: (k - 1) * i, Errno: unix.ECONNREFUSED,
						Origin: OriginICMP, Type: 3, Code: 3, Offender: ip,
					}
					if ip.Is6() {
						want.Origin, want.Type, want.Code = OriginICMP6, 1, 4
					}
					if !bytes.HasPrefix(pattern(i, 100), e.Payload) || len(e.Payload) < 8 {
						t.Errorf("quotes %d bytes %x", len(e.Payload), e.Payload)
					}
					e.Payload = nil
					if e.Remote != want.Remote || e.Path != want.Path || e.Errno != want.Errno || e.Origin != want.Origin ||
						e.Type != want.Type || e.Code != want.Code || e.Offender != want.Offender || e.MTU != 0 {
						t.Errorf("evidence %+v, want %+v", e, want)
					}
				}
				if st := a.Stats(); st.Evidence != 2 || st.EvidenceLost != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// Evidence that nobody reads does not keep Wait from waiting.
func TestEvidenceNobodyWants(t *testing.T) {
	for _, k := range []int{1, 3} {
		a, dead := open(t, loopback4, Config{Paths: k}), open(t, loopback4, Config{})
		_ = dead.Close()
		for range 5 {
			send(t, a, train(dead, 0, 100, 0))
		}
		slept := false
		for range 100 { // on a busy host a Wait that was woken may return late, too
			end := time.Now().Add(2 * time.Millisecond)
			if err := a.Wait(end); err != nil {
				t.Fatal(err)
			}
			if slept = !time.Now().Before(end); slept && a.Stats().EvidenceLost > 0 {
				break
			}
			empty(t, a)
		}
		if !slept {
			t.Errorf("%d paths: Wait does not sleep", k)
		}
		if n := a.Stats().EvidenceLost; n != 5 {
			t.Errorf("%d paths: EvidenceLost = %d, want 5", k, n)
		}
	}
}

func TestEvidenceTooBigHere(t *testing.T) {
	a, b := open(t, loopback6, Config{}), open(t, loopback6, Config{})
	d := train(b, 1, dgram.MaxTrain, 0)
	if err := a.Send(d); err != unix.EMSGSIZE {
		t.Fatalf("Send: %v, want EMSGSIZE", err)
	}
	var e Evidence
	for a.NextError(&e) {
		if e.Errno != unix.EMSGSIZE || e.Origin != OriginLocal || e.MTU < 1280 || e.Remote != b.LocalAddr() {
			t.Errorf("%+v", e)
		}
	}
	if st := a.Stats(); st.Evidence == 0 || st.SendTooBig != 1 {
		t.Errorf("%+v", st)
	}
}

// F24: what the kernel drops for lack of buffer is counted, and the buffer holds at least what
// Usable promises.
func TestKernelDrops(t *testing.T) {
	for _, size := range []int{1, 68, 1400, 4200, 8300} {
		a := open(t, loopback4, Config{GSO: Off})
		b := open(t, loopback4, Config{RecvBuf: 200_000, GRO: Off, Paths: 2})
		usable := b.Info().RecvBuf.Usable(size)
		sent := 0
		d := train(b, 1, size, 0)
		for sent*size <= 2*200_000 && sent < 2000 || sent < 10 {
			send(t, a, d)
			sent++
		}
		g := slab()
		got := 0
		for ok := true; ok; {
			var err error
			if ok, err = b.Recv(g); err != nil {
				t.Fatal(err)
			} else if ok {
				got++
			}
		}
		if drops := b.Stats().KernelDrops; got == sent || drops != uint64(sent-got) {
			t.Errorf("size %d: sent %d, received %d, KernelDrops = %d", size, sent, got, drops)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if drops := b.Stats().KernelDrops; drops != uint64(sent-got) {
			t.Errorf("size %d: KernelDrops = %d after Close, %d dropped", size, drops, sent-got)
		}
		t.Logf("size %d: buffer %d held %d bytes, Usable says %d", size, b.Info().RecvBuf.Got, got*size, usable)
		if got*size < usable || usable == 0 {
			t.Errorf("size %d: the buffer held %d bytes, Usable promised %d", size, got*size, usable)
		}
	}
}

func TestUsable(t *testing.T) {
	b := Buffer{Got: 1 << 20}
	if b.Usable(0) != 0 || (Buffer{}).Usable(100) != 0 {
		t.Error("something of nothing")
	}
	if n := b.Usable(1100); n < 1<<18 || n > 1<<20 {
		t.Errorf("Usable(1100) = %d of %d", n, b.Got)
	}
	// 256 and 2048 bytes for each, in three quarters of the buffer.
	if n, want := b.Usable(1100), (1<<20-1<<18)/(256+2048)*1100; n != want {
		t.Errorf("Usable(1100) = %d of %d, want %d", n, b.Got, want)
	}
	for _, size := range []int{1, 50, 60, 66, 200, 500, 1100, 4000} {
		if n := b.Usable(1100) / Cost(size, 1100) * size; n < b.Usable(size)*97/100 || n > b.Usable(size)*103/100 {
			t.Errorf("datagrams of %d bytes: by Cost the buffer holds %d bytes, by Usable %d", size, n, b.Usable(size))
		}
	}
}

func TestPortsByteOrder(t *testing.T) {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], htons(0x1234))
	if b != [2]byte{0x12, 0x34} || ntohs(htons(0x1234)) != 0x1234 {
		t.Errorf("htons writes %x", b)
	}
}

func TestSendRecvNoAllocs(t *testing.T) {
	for _, ip := range families(t) {
		for _, k := range kinds[:4] {
			for _, paths := range []int{1, 3} {
				cfg := k.cfg
				cfg.Paths = paths
				a, b := open(t, ip, cfg), open(t, ip, cfg)
				one, many := train(b, 1, 100, 0), train(b, 2, 64*100, 100)
				many.TOS = dgram.ECT0
				to2 := train(b, 3, 100, 0)
				to2.Remote = addrOf(b, paths-1)
				batch := []*dgram.Datagram{one, to2, one, to2}
				d := slab()
				var e Evidence
				fatal := false
				n := testing.AllocsPerRun(50, func() {
					fatal = fatal || a.Send(one) != nil || a.Send(many) != nil || a.Send(to2) != nil
					_, err := a.SendBatch(batch)
					fatal = fatal || err != nil || a.NextError(&e)
					fatal = fatal || b.Wait(time.Time{}) != nil
					for want := 1 + 64 + 1 + 4; want > 0; want -= d.Segments() {
						for ok := false; !ok; {
							ok, err = b.Recv(d)
							fatal = fatal || err != nil
						}
					}
					ok, err := b.Recv(d) // empty
					fatal = fatal || ok || err != nil
				})
				if fatal || n != 0 {
					t.Errorf("%v/%s/%d paths: %v allocations, failed: %v", ip, k.name, paths, n, fatal)
				}
			}
		}
	}
}

// Parking allocates nothing either: SRead does it all the time.
func TestWaitNoAllocs(t *testing.T) {
	c := open(t, loopback4, Config{})
	if n := testing.AllocsPerRun(20, func() { _ = c.Wait(time.Now().Add(100 * time.Microsecond)) }); n != 0 {
		t.Errorf("Wait allocates %v times", n)
	}
	if !c.Naps() {
		t.Fatal("no naps")
	}
	if n := testing.AllocsPerRun(20, func() { _ = c.Nap(100 * time.Microsecond) }); n != 0 {
		t.Errorf("Nap allocates %v times", n)
	}
}

// A train tells how long it was in the socket while it is asked for.
func TestStamps(t *testing.T) {
	for _, ip := range families(t) {
		a, b := open(t, ip, Config{}), open(t, ip, Config{})
		next := func(n, seg int) time.Duration {
			t.Helper()
			begin := time.Now()
			g := train(a, 1, n, seg)
			g.Remote = addrOf(b, 0)
			send(t, a, g)
			d := slab()
			for ok := false; !ok; {
				var err error
				if ok, err = b.Recv(d); err != nil {
					t.Fatal(err)
				}
			}
			if most := time.Since(begin); d.Waited < 0 || d.Waited > most {
				t.Errorf("%v: it waited %v of %v", ip, d.Waited, most)
			}
			return d.Waited
		}
		if w := next(100, 100); w != 0 {
			t.Errorf("%v: it waited %v though nobody asked", ip, w)
		}
		if !b.Stamps(true) {
			t.Fatal("no stamps")
		}
		for _, size := range []struct{ n, seg int }{{100, 100}, {3000, 1000}} {
			// The first may have come before the system had begun to look at the clock.
			if w := max(next(size.n, size.seg), next(size.n, size.seg)); w == 0 {
				t.Errorf("%v: no time for %d bytes", ip, size.n)
			}
		}
		b.Stamps(false)
		if w := next(100, 100); w != 0 {
			t.Errorf("%v: it waited %v though nobody asks any more", ip, w)
		}
	}
}

// Nothing that the kernel could write makes us read past the end.
func FuzzControl(f *testing.F) {
	var b [sendCtl]byte
	var m unix.Msghdr
	(&direct{}).compose(&m, b[:], 1400, 2)
	f.Add(b[:m.Controllen])
	f.Fuzz(func(t *testing.T, in []byte) {
		buf := make([]uint64, (len(in)+7)/8+1) // aligned as the kernel's
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), len(in))
		copy(raw, in)
		control(raw)
		var e Evidence
		(&direct{}).extended(raw, &e)
	})
}

func TestControlDecodes(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		var b [sendCtl]byte
		var m unix.Msghdr
		(&direct{v6: v6}).compose(&m, b[:], 1400, 0x2e)
		// UDP_GRO is UDP_SEGMENT plus one, so the same bytes decode the other way.
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		h.Type = unix.UDP_GRO
		c := control(b[:m.Controllen])
		if c.seg != 1400 || c.tos != 0x2e {
			t.Errorf("v6 %v: %+v", v6, c)
		}
	}
}

func TestZoneUnknown(t *testing.T) {
	a := open(t, loopback6, Config{})
	d := &dgram.Datagram{Data: []byte{1}, Remote: netip.MustParseAddrPort("[fe80::1%nosuch]:9")}
	if err := a.Send(d); !errors.Is(err, unix.ENODEV) {
		t.Errorf("Send: %v, want ENODEV", err)
	}
}

// UE 3.5.10.1 has UDP checksums of zero, and the kernel drops those over IPv6 unless the socket
// hears them (S-PKT-05).
func TestZeroChecksumIsHeard(t *testing.T) {
	for _, ip := range families(t) {
		for _, b := range backends {
			for _, paths := range []int{1, 2} {
				t.Run(fmt.Sprintf("%v/%s/%d", ip, b.name, paths), func(t *testing.T) {
					cfg := b.cfg
					cfg.Paths = paths
					c := open(t, ip, cfg)
					if i := c.Info(); !i.Unsummed.On {
						t.Errorf("Info says %+v", i.Unsummed)
					}
					other := open(t, ip, b.cfg)
					for p, port := range c.Ports() {
						to := netip.AddrPortFrom(ip, port)
						from := unsummed(t, ip, to, []byte{byte(p), 2, 3})
						// If it was dropped, the one with a checksum behind it comes first.
						send(t, other, &dgram.Datagram{Data: []byte("with a checksum"), Remote: to})
						ps, _ := receive(t, c, 1)
						if ps[0].path != p || ps[0].remote != from || !bytes.Equal(ps[0].data, []byte{byte(p), 2, 3}) {
							t.Fatalf("%v came first", ps[0])
						}
						receive(t, c, 1)
					}
				})
			}
		}
	}
}

// unsummed sends a datagram with checksum zero to an address and returns where it came from.
func unsummed(t *testing.T, ip netip.Addr, to netip.AddrPort, data []byte) netip.AddrPort {
	t.Helper()
	family, level, opt := unix.AF_INET, unix.SOL_SOCKET, unix.SO_NO_CHECK
	if ip.Is6() {
		family, level, opt = unix.AF_INET6, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, level, opt, 1); err != nil {
		t.Fatal(err)
	}
	var d direct
	d.v6 = ip.Is6()
	var name unix.RawSockaddrInet6
	n, _ := d.encode(&name, to)
	if _, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), 0, uintptr(unsafe.Pointer(&name)), uintptr(n)); e != 0 {
		t.Fatal(e)
	}
	n = uint32(unsafe.Sizeof(name))
	if _, _, e := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&n))); e != 0 {
		t.Fatal(e)
	}
	return netip.AddrPortFrom(ip, d.decode(&name).Port())
}

// Nothing waits in a socket that nobody reads.
func TestSendOnlyKeepsNothing(t *testing.T) {
	a, _ := repeater(t, Config{Paths: 2})
	if !a.Echo(20_000) {
		t.Fatal("no port")
	}
	ip, c := a.LocalAddr().Addr(), open(t, lonely(), Config{})
	socks := a.io.(*sendOnly).socks
	for path, port := range map[int]uint16{0: a.Ports()[0], 1: a.Ports()[1], 2: 20_000} {
		send(t, c, &dgram.Datagram{Data: []byte("x"), Remote: netip.AddrPortFrom(ip, port)})
		if got := waiting(socks[path].fd); got != (path == 0) {
			t.Errorf("path %d: something waits: %v", path, got)
		}
	}
}

// F11: evidence about what left from a port that sends only ends a Wait, and tells the port.
func TestEvidenceOfAnEcho(t *testing.T) {
	for _, paths := range []int{1, 2, MaxPaths} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			a, _ := repeater(t, Config{Paths: paths})
			dead := open(t, lonely(), Config{})
			_ = dead.Close()
			by := []int{dgram.Echo(20_000), dgram.Echo(20_001)}
			if paths > 1 {
				by = append(by, paths-1)
			}
			for i, path := range by {
				if ev, ok := dgram.EchoOf(path); ok && !a.Echo(ev) {
					t.Fatal("no port")
				}
				d := train(dead, i, 100, 0)
				d.Path = path
				send(t, a, d)
			}
			left := slices.Clone(by)
			var e Evidence
			for len(left) > 0 {
				start := time.Now()
				if err := a.Wait(start.Add(5 * time.Second)); err != nil || time.Since(start) >= 5*time.Second {
					t.Fatalf("Wait ended after %v: %v; no evidence of %v", time.Since(start), err, left)
				}
				for a.NextError(&e) {
					i := slices.Index(left, e.Path)
					if i < 0 || e.Remote != dead.LocalAddr() || e.Errno != unix.ECONNREFUSED {
						t.Fatalf("evidence %+v, left %v", e, left)
					}
					left = slices.Delete(left, i, i+1)
				}
			}
			// Nothing is left that would end a Wait.
			start := time.Now()
			if err := a.Wait(start.Add(20 * time.Millisecond)); err != nil || time.Since(start) < 20*time.Millisecond {
				t.Errorf("Wait ended after %v: %v", time.Since(start), err)
			}
		})
	}
}

// S-PKT-05: with NoChecksum a datagram that leaves alone has a UDP checksum of zero. A train, which
// the kernel refuses without checksums, has them and leaves in one call; so have the next datagrams.
func TestNoChecksumAlone(t *testing.T) {
	for _, ip := range []netip.Addr{lonely(), loopback6} {
		t.Run(ip.String(), func(t *testing.T) {
			raw := sniffer(t, ip)
			a := open(t, ip, Config{SendOnly: true, NoChecksum: true, GRO: Off})
			needGSO(t, a)
			b := open(t, ip, Config{})
			one := func() bool {
				send(t, a, train(b, 1, 10, 0))
				return raw(a.LocalAddr().Port()) == 0
			}
			if !one() {
				t.Error("a datagram alone has a checksum")
			}
			if !a.Echo(20_000) {
				t.Fatal("no port")
			}
			d := train(b, 1, 10, 0)
			d.Path = dgram.Echo(20_000)
			send(t, a, d)
			if raw(20_000) != 0 {
				t.Error("a datagram of Echo's path has a checksum")
			}
			for range 2 * stickAfter { // so that the socket has a size of its own
				before := a.Stats()
				send(t, a, train(b, 1, 300, 100))
				if s := a.Stats(); s.SendCalls != before.SendCalls+1 || s.Split != 0 {
					t.Fatalf("a train took %d calls, %d were split", s.SendCalls-before.SendCalls, s.Split)
				}
				if raw(a.LocalAddr().Port()) == 0 {
					t.Fatal("a train has no checksum")
				}
			}
			for i := range zeroAfter + 2 {
				if got, want := one(), i >= zeroAfter-1; got != want {
					t.Fatalf("datagram %d after a train has a checksum of zero: %v", i+1, got)
				}
			}
			n, err := a.SendBatch([]*dgram.Datagram{train(b, 1, 10, 0), train(b, 1, 300, 100)})
			if n != 2 || err != nil || a.Stats().Split != 0 || a.Stats().SendLost != 0 {
				t.Errorf("SendBatch = %d, %v: %+v", n, err, a.Stats())
			}
		})
	}
}

// sniffer returns a function that reads the next datagram which has left from a port of an address
// and returns its UDP checksum.
func sniffer(t *testing.T, ip netip.Addr) func(port uint16) uint16 {
	t.Helper()
	var d direct
	d.v6 = ip.Is6()
	family := unix.AF_INET
	if d.v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		t.Skipf("a raw socket: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	var name unix.RawSockaddrInet6
	n, _ := d.encode(&name, netip.AddrPortFrom(ip, 0))
	if _, _, e := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(n)); e != 0 {
		t.Fatal(e)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	return func(port uint16) uint16 {
		t.Helper()
		for {
			n, err := unix.Read(fd, b)
			if err != nil {
				t.Fatalf("nothing from port %d: %v", port, err)
			}
			u := b[:n]
			if !d.v6 {
				u = u[int(u[0]&15)*4:]
			}
			if binary.BigEndian.Uint16(u) == port {
				return binary.BigEndian.Uint16(u[6:])
			}
		}
	}
}

// A kernel that takes fewer datagrams in a train gets longer trains in parts, of as many as it
// takes, and nothing is lost.
func TestTrainInParts(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch %v", batch), func(t *testing.T) {
			a := open(t, loopback4, Config{})
			needGSO(t, a)
			b := open(t, loopback4, Config{})
			inject(a, script(unix.EINVAL))
			for i := range 3 {
				d := train(b, i, 40*dgram.MaxSegments-3, 40)
				if batch {
					if n, err := a.SendBatch([]*dgram.Datagram{d, train(b, i, 40, 40)}); n != 2 || err != nil {
						t.Fatal(n, err)
					}
				} else {
					send(t, a, d)
				}
				want := cut(d)
				if batch {
					want = append(want, want[0])
				}
				ps, trains := receive(t, b, len(want))
				if same(t, ps, want); trains != (len(want)+fewSegments-1)/fewSegments {
					t.Errorf("received in %d trains", trains)
				}
			}
			if i, st := a.Info(), a.Stats(); !i.GSO.On || i.GSO.Why != "" || st.Fallbacks+st.Split+st.SendLost != 0 {
				t.Errorf("%+v, %+v", i.GSO, st)
			}
		})
	}
}

// If there is no room for a part, the sender keeps it and what is behind it.
func TestNoRoomForAPart(t *testing.T) {
	for part := range 2 {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			a := open(t, loopback4, Config{})
			needGSO(t, a)
			b := open(t, loopback4, Config{})
			directOf(a).most = fewSegments
			inject(a, script([]syscall.Errno{0, unix.EAGAIN}[1-part:]...))
			d := train(b, 1, 40*dgram.MaxSegments, 40)
			want := cut(d)
			if err := a.Send(d); err != dgram.ErrNoRoom || d.Segments() != dgram.MaxSegments-part*fewSegments {
				t.Fatalf("%v, %d datagrams left", err, d.Segments())
			}
			send(t, a, d)
			ps, _ := receive(t, b, len(want))
			same(t, ps, want)
		})
	}
}
