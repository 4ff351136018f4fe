package cm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// another returns a loopback address other than the first, if there is more than one.
func another(n byte) netip.AddrPort {
	if runtime.GOOS != "linux" {
		return loopback
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, n}), 0)
}

func udp(t *testing.T, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// initials returns first packets of many clients, which send nothing more.
func initials(t *testing.T, clients int) [][]byte {
	t.Helper()
	sink := udp(t, loopback)
	ctx, cancel := context.WithCancel(t.Context())
	s := newStranger(t)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { s.tr.Dial(ctx, sink.LocalAddr(), s.conf, nil) })
	}
	var all [][]byte
	for len(all) < 2*clients { // a first flight is two packets
		b := make([]byte, 2048)
		n, err := sink.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:n])
	}
	cancel()
	wg.Wait()
	return all
}

// joins fails the test unless the dialer gets a session within 2 s, several times in a row.
func joins(t *testing.T, d, l *Node) {
	t.Helper()
	for i := range 10 {
		begin := time.Now()
		s := dial(t, d, l)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%d: in after %v: %+v", i, took, l.Stats().Admission)
		}
		s.Start(quiet{})
		s.Close(nil)
	}
}

func TestT2InitialFlood(t *testing.T) {
	// T2: in a flood of first packets few get memory and the rest a Retry, and an honest peer
	// joins within 2 s. The flood is 5,000 packets a second from a hundred addresses.
	d, l := members(t, Config{MaxHandshakes: 64})
	listen(t, l, acceptAll(t))
	packets := initials(t, 100)
	var from []*net.UDPConn
	for i := range 100 {
		from = append(from, udp(t, another(byte(2+i))))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var most atomic.Int64
	sent := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ; round++ {
			for i := range 50 {
				k := round*50 + i
				from[k%len(from)].WriteToUDPAddrPort(packets[k%len(packets)], l.Addr())
			}
			if n := int64(l.Stats().Admission.Flight); n > most.Load() {
				most.Store(n)
			}
			if round == 20 {
				close(sent)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	<-sent // it is under way
	joins(t, d, l)
	close(stop)
	wg.Wait()
	st := l.Stats().Admission
	if st.Retries < 100 {
		t.Errorf("no flood: %+v", st)
	}
	if most.Load() > 64/16+2 {
		t.Errorf("%d handshakes in flight: %+v", most.Load(), st)
	}
}

// A deaf conn receives a few packets and then no more.
type deaf struct {
	*net.UDPConn
	left atomic.Int32
}

func (d *deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.UDPConn.ReadFrom(b)
		if err != nil || d.left.Add(-1) >= 0 {
			return n, from, err
		}
	}
}

// packetConn hides the other methods of a deaf conn, so that it is read as the test needs.
type packetConn struct{ net.PacketConn }

func (packetConn) SetReadBuffer(int) error  { return nil }
func (packetConn) SetWriteBuffer(int) error { return nil }

func TestT2SlowHandshakes(t *testing.T) {
	// The address of peers that answer the Retry and then send nothing has its share of
	// handshakes and no more.
	d, l := members(t, Config{MaxHandshakes: 64})
	listen(t, l, acceptAll(t))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 40 {
		c := &deaf{UDPConn: udp(t, another(3))}
		c.left.Store(1)
		tr := &quic.Transport{Conn: packetConn{c}}
		t.Cleanup(func() { tr.Close() })
		s := newStranger(t)
		wg.Go(func() { tr.Dial(ctx, net.UDPAddrFromAddrPort(l.Addr()), s.conf, nil) })
	}
	for st := l.Stats().Admission; st.BusyOne+st.BusyRate < 20; st = l.Stats().Admission {
		runtime.Gosched()
	}
	if runtime.GOOS == "linux" {
		joins(t, d, l)
	}
	// These are its share, that of sources without an address token, and a joiner.
	if st := l.Stats().Admission; st.Flight > 4+4+1 {
		t.Errorf("%+v", st)
	}
	cancel()
	wg.Wait()
}

func TestT2WrongCertificatesAreSlowed(t *testing.T) {
	good := authority(t)
	other := authority(t)
	l := open(t, Config{Security: SecTLS, TLS: good.TLS(issue(t, good, "l"))})
	d := open(t, Config{Security: SecTLS, TLS: good.TLS(issue(t, good, "d"))})
	listen(t, l, acceptAll(t))
	// It accepts any l, or it would not show its own certificate.
	conf := other.TLS(issue(t, other, "bad"))
	conf.RootCAs = good.TLS(issue(t, good, "x")).RootCAs
	conf.ClientCAs = conf.RootCAs
	bad := open(t, Config{Addr: another(4), Security: SecTLS, TLS: conf, Handshake: time.Second})
	begin := time.Now()
	const workers = 8
	busy := func() bool { st := l.Stats().Admission; return st.BusyRate+st.BusyOne > 0 }
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for !busy() {
				if s, err := bad.Dial(t.Context(), l.Addr(), params(1000), nil); err == nil {
					s.Close(nil)
					t.Error("joined")
				}
			}
		})
	}
	if runtime.GOOS == "linux" {
		joins(t, d, l)
	}
	wg.Wait()
	// These are the handshakes that were under way together, the burst, and the rate.
	limit := workers + 5 + 20*(time.Since(begin).Seconds()+1)
	if st := l.Stats().Admission; float64(st.Untrusted) > limit {
		t.Errorf("%+v in %v", st, time.Since(begin))
	}
}

func TestGarbageIsDropped(t *testing.T) {
	d, l := open(t, Config{}), open(t, Config{})
	listen(t, l, acceptAll(t))
	c := udp(t, loopback)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		b := make([]byte, rng.IntN(1400))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		switch {
		case len(b) > 1 && i%3 == 0: // a PDS request, an ACK, …: UE 3.5.10, type in the upper 5 bits
			b[0] = byte(1+i%14)<<3 | b[0]&7
		case len(b) > 5 && i%3 == 1: // a long header of QUIC
			b[0] |= 0xc0
			copy(b[1:], []byte{0, 0, 0, 1})
		}
		c.WriteToUDPAddrPort(b, l.Addr())
		c.WriteToUDPAddrPort(b, d.Addr())
	}
	// These are packets of ours, cut and changed.
	for _, p := range initials(t, 5) {
		for i := 0; i < len(p); i += 97 {
			q := bytes.Clone(p)
			q[i] ^= 0x10
			c.WriteToUDPAddrPort(q, l.Addr())
			c.WriteToUDPAddrPort(p[:i], l.Addr())
		}
	}
	joins(t, d, l)
	if st := l.Stats(); st.Wrong != 0 || st.Admission.Untrusted != 0 {
		t.Errorf("%+v", st)
	}
}
