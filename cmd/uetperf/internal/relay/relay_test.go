package relay

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// An end sends and receives datagrams with a trailer.
type end struct {
	t    *testing.T
	c    *net.UDPConn
	addr netip.AddrPort
	peer netip.AddrPort
}

func newEnd(t *testing.T) *end {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	a := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return &end{t: t, c: c, addr: netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}
}

func prefixOf(src, dst netip.AddrPort, n int) uint32 {
	return wire.CRCPrefix(src.Addr(), dst.Addr(), src.Port(), dst.Port(), uint16(8+n))
}

func (e *end) send(payload []byte) {
	e.t.Helper()
	b := append(bytes.Clone(payload), 0, 0, 0, 0)
	wire.PutCRC(b, prefixOf(e.addr, e.peer, len(b)))
	if _, err := e.c.WriteToUDPAddrPort(b, e.peer); err != nil {
		e.t.Fatal(err)
	}
}

// recv receives a datagram. It returns the payload and whether the trailer is right; ok is
// false if none arrives for a while.
func (e *end) recv() (payload []byte, right, ok bool) {
	e.t.Helper()
	_ = e.c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	b := make([]byte, 65536)
	n, from, err := e.c.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil, false, false
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if from != e.peer {
		e.t.Errorf("a datagram from %v, not the relay at %v", from, e.peer)
	}
	return b[:n-4], wire.VerifyCRC(b[:n], prefixOf(from, e.addr, n)), true
}

// pair returns two ends with a relay between them.
func pair(t *testing.T, f Faults) (client, server *end, r *Relay) {
	t.Helper()
	client, server = newEnd(t), newEnd(t)
	r, err := Open(Config{Local: loopback, Faults: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.Connect(client.addr, server.addr)
	client.peer, server.peer = r.FacingClient(), r.FacingServer()
	return client, server, r
}

func TestRelayPassesBothWays(t *testing.T) {
	a, b, r := pair(t, Faults{})
	for i := range 200 {
		p := bytes.Repeat([]byte{byte(i)}, i*7+1)
		a.send(p)
		got, right, ok := b.recv()
		if !ok || !right || !bytes.Equal(got, p) {
			t.Fatalf("datagram %d: %v %v %d bytes", i, ok, right, len(got))
		}
		b.send(got)
		if got, right, ok := a.recv(); !ok || !right || !bytes.Equal(got, p) {
			t.Fatalf("answer %d: %v %v %d bytes", i, ok, right, len(got))
		}
	}
	if s := r.Stats(); s.In != 400 || s.Out != 400 || s.Lost+s.BadCRC+s.Strange+s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// flow sends n numbered datagrams. It returns the numbers that arrived, in order, and how
// many trailers were wrong.
func flow(t *testing.T, a, b *end, n int) (got []uint32, wrong int) {
	t.Helper()
	for i := range n {
		p := make([]byte, 100)
		binary.BigEndian.PutUint32(p, uint32(i))
		a.send(p)
		if i%64 == 63 { // socket buffers hold no more at once
			for {
				p, right, ok := recvNow(b)
				if !ok {
					break
				}
				if !right {
					wrong++
				} else {
					got = append(got, binary.BigEndian.Uint32(p))
				}
			}
		}
	}
	for {
		p, right, ok := b.recv()
		if !ok {
			return got, wrong
		}
		if !right {
			wrong++
		} else {
			got = append(got, binary.BigEndian.Uint32(p))
		}
	}
}

// recvNow receives what arrives within a moment.
func recvNow(e *end) ([]byte, bool, bool) {
	_ = e.c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	b := make([]byte, 2048)
	n, from, err := e.c.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil, false, false
	}
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	return b[:n-4], wire.VerifyCRC(b[:n], prefixOf(from, e.addr, n)), true
}

func TestRelayFaults(t *testing.T) {
	const n = 4000
	for name, c := range map[string]struct {
		f   Faults
		got func(Stats) uint64
	}{
		"loss":      {Faults{Loss: 0.1}, func(s Stats) uint64 { return s.Lost }},
		"burst":     {Faults{Loss: 0.1, Burst: 8}, func(s Stats) uint64 { return s.Lost }},
		"reorder":   {Faults{Reorder: 0.1}, func(s Stats) uint64 { return s.Reordered }},
		"duplicate": {Faults{Duplicate: 0.1}, func(s Stats) uint64 { return s.Duplicated }},
		"corrupt":   {Faults{Corrupt: 0.1}, func(s Stats) uint64 { return s.Corrupted }},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.Seed = 1
			a, b, r := pair(t, c.f)
			got, wrong := flow(t, a, b, n)
			s := r.Stats()
			if k := c.got(s); k < 0.06*n || k > 0.15*n || k != s.Lost+s.Reordered+s.Duplicated+s.Corrupted {
				t.Errorf("%d of %d, want about %.0f, and nothing else: %+v", k, n, 0.1*n, s)
			}
			late, twice, gaps, high, seen := 0, 0, 0, int64(-1), map[uint32]bool{}
			for _, g := range got {
				switch {
				case seen[g]:
					twice++
				case int64(g) < high:
					late++
				case int64(g) > high+1:
					gaps++
				}
				seen[g] = true
				high = max(high, int64(g))
			}
			if uint64(len(got)+wrong) != n-s.Lost+s.Duplicated || uint64(wrong) != s.Corrupted || uint64(twice) != s.Duplicated ||
				late < int(s.Reordered)/3 || late > int(s.Reordered) {
				t.Errorf("%d arrived, %d wrong, %d late, %d twice: %+v", len(got), wrong, late, twice, s)
			}
			if mean := float64(s.Lost) / float64(gaps); c.f.Burst > 1 && !(mean >= 5 && mean <= 13) {
				t.Errorf("bursts of %.1f on average, want 8", mean)
			}
		})
	}
}

// The share of lost datagrams is Loss. Bursts have the mean length Burst, or a greater one
// if Loss requires it, because only the datagrams that pass lie between them.
func TestBurstKeepsLoss(t *testing.T) {
	for _, c := range []struct{ loss, burst, mean float64 }{{0.01, 3, 3}, {0.5, 2, 2}, {2. / 3, 2, 2}, {0.8, 2, 4}, {0.9, 10000, 10000}} {
		f := Faults{Loss: c.loss, Burst: c.burst}
		m := f.model()
		b := m.Burst
		if share := b.Enter / (b.Enter + b.Leave); math.Abs(share-c.loss) > 1e-9 || math.Abs(1/b.Leave-c.mean) > 1e-9*c.mean || m.Loss != 0 || m.Check() != nil {
			t.Errorf("%v: %+v loses %v, %v in a row", f, b, share, 1/b.Leave)
		}
	}
	for _, f := range []Faults{{Loss: 0.1}, {Loss: 0.1, Burst: 1}, {Loss: 1, Burst: 3}, {Burst: 3}} {
		if m := f.model(); m.Loss != f.Loss || m.Burst.Enter != 0 {
			t.Errorf("%v is %+v", f, m)
		}
	}
}

// A wrong trailer stays wrong, and datagrams from strangers are dropped.
func TestRelayMendsNothing(t *testing.T) {
	a, b, r := pair(t, Faults{})
	if _, err := a.c.WriteToUDPAddrPort([]byte("no trailer of the right kind"), a.peer); err != nil {
		t.Fatal(err)
	}
	if _, right, ok := b.recv(); !ok || right {
		t.Errorf("arrived %v, right %v", ok, right)
	}
	stranger := newEnd(t)
	stranger.peer = a.peer
	stranger.send([]byte("hello"))
	if _, _, ok := b.recv(); ok {
		t.Error("a stranger's datagram was passed on")
	}
	if s := r.Stats(); s.BadCRC != 1 || s.Strange != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRelaySameSeedSameFaults(t *testing.T) {
	lost := func(seed uint64) []uint32 {
		a, b, _ := pair(t, Faults{Loss: 0.2, Seed: seed})
		got, _ := flow(t, a, b, 500)
		return got
	}
	x, y, z := lost(9), lost(9), lost(10)
	if !reflect.DeepEqual(x, y) {
		t.Error("one seed lost different datagrams")
	}
	if reflect.DeepEqual(x, z) {
		t.Error("two seeds lost the same datagrams")
	}
}

func TestParseFaults(t *testing.T) {
	for in, want := range map[string]Faults{
		"loss=1%": {Loss: 0.01}, "loss=0.05,burst=3": {Loss: 0.05, Burst: 3}, "reorder=1%,dup=2%,corrupt=3%": {Reorder: 0.01, Duplicate: 0.02, Corrupt: 0.03}, "loss=0": {},
	} {
		got, err := ParseFaults(in)
		if err != nil || got != want {
			t.Errorf("ParseFaults(%q) = %+v, %v", in, got, err)
		}
		if back, err := ParseFaults(got.String()); err != nil || back != got {
			t.Errorf("%q reads back as %+v, %v", got.String(), back, err)
		}
	}
	for _, in := range []string{"", "loss", "loss=2", "loss=x", "nonsense=1%", "burst=0", "burst=x", "loss=1%,,"} {
		if got, err := ParseFaults(in); err == nil {
			t.Errorf("ParseFaults(%q) = %+v, want an error", in, got)
		}
	}
}
