package transport

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// readable registers memory that the peer may read, at offset 0.
func readable(t testing.TB, f *FEP, key uint64, buf []byte) *Region {
	t.Helper()
	g, err := f.Register(RegionConfig{Key: key, Buf: buf, Access: RemoteRead, Endpoint: AllEndpoints})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestReadSizes(t *testing.T) {
	// S-RMA-11, -16: reads of no bytes, of one packet and of many windows bring every byte.
	for _, n := range []int{0, 1, 8, 16, 17, 1023, 1024, 1025, 2048, 65536, 1<<20 + 1, 5 << 20} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprint(n, ordered), func(t *testing.T) {
				p := newPipe(t, nil)
				src, dst := pattern(n+100, 1), make([]byte, n)
				readable(t, p.b, 5, src)
				p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: dst, Key: 5, RemoteAddr: 100, Ordered: ordered, Context: "r"})
				p.exchange()
				p.want(p.a, "r ok")
				p.want(p.b)
				if !bytes.Equal(src[100:], dst) {
					t.Error("bytes differ")
				}
				p.checkIdle()
			})
		}
	}
}

func TestReadManyInFlight(t *testing.T) {
	// Many reads, short and long, scattered and whole, while messages go both ways.
	p := newPipe(t, nil)
	src := pattern(3<<20, 3)
	readable(t, p.b, 5, src)
	type read struct {
		at  int
		buf []byte
	}
	var reads []read
	for i := range 300 {
		n := []int{1, 64, 1000, 5000, 70000}[i%5]
		r := read{i * 7919 % (2 << 20), make([]byte, n)}
		reads = append(reads, r)
		op := Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: r.buf, Key: 5, RemoteAddr: uint64(r.at), Ordered: i%7 == 0, Context: "r"}
		if i%3 == 0 {
			op.Iov = [][]byte{r.buf[:n/3], nil, r.buf[n/3 : n/2], r.buf[n/2:]}
		}
		p.post(p.a, op)
	}
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 100000), Context: "m"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 100000), Context: "m"})
	p.exchange()
	for _, e := range p.events(p.a) {
		if e != "r ok" && e != "m ok" {
			t.Error(e)
		}
	}
	p.want(p.b, "m ok len=100000")
	for i, r := range reads {
		if !bytes.Equal(r.buf, src[r.at:r.at+len(r.buf)]) {
			t.Fatalf("read %d brought other bytes", i)
		}
	}
	p.checkIdle()
}

func TestReadRefused(t *testing.T) {
	// S-RMA-15: errors come once, with the code of the target. A read with an error disturbs no
	// other (S-ERR-03).
	p := newPipe(t, nil)
	src := pattern(5000, 1)
	readable(t, p.b, 5, src)
	if _, err := p.b.Register(RegionConfig{Key: 6, Buf: src, Access: RemoteWrite, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		key, addr uint64
		n         int
		want      wire.RC
	}{
		{"key", 7, 0, 10, wire.RCBadMKey}, {"key, nothing", 7, 0, 0, wire.RCBadMKey}, {"rights", 6, 0, 3000, wire.RCPermViolation},
		{"end", 5, 4000, 1001, wire.RCBadAddr}, {"overflow", 5, ^uint64(0), 10, wire.RCBadAddr}, {"long", 5, 1, 1 << 20, wire.RCBadAddr},
	} {
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: make([]byte, c.n), Key: c.key, RemoteAddr: c.addr, Context: c.name})
		good := make([]byte, 5000)
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: good, Key: 5, Context: "good"})
		p.exchange()
		var bad *Event
		ok := 0
		for e := p.a.NextEvent(); e != nil; e = p.a.NextEvent() {
			if e.Context == "good" {
				ok++
				continue
			}
			v := *e
			if bad != nil {
				t.Fatalf("%s: two events", c.name)
			}
			bad = &v
		}
		if bad == nil || bad.Cause != Rejected || bad.RC != c.want || bad.Unknown || ok != 1 || !bytes.Equal(good, src) {
			t.Errorf("%s: %+v, good %d", c.name, bad, ok)
		}
	}
	p.checkIdle()
}

func TestReadWindow(t *testing.T) {
	// S-RMA-18: a read asks for at most ReadWindow bytes that have not come, and goes on when some come.
	p := newPipe(t, func(c *Config) { c.ReadWindow = 10_000 })
	src, dst := pattern(1<<20, 1), make([]byte, 1<<20)
	readable(t, p.b, 5, src)
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: dst, Key: 5, Context: "r"})
	asked := 0
	for p.a.Transmit(p.now, &p.d) {
		asked += p.d.Segments()
		p.d.Remote = p.a.cfg.Local
		p.b.Receive(p.now, &p.d)
	}
	if asked != 9 { // of 1,024 bytes each
		t.Errorf("%d requests left before anything came", asked)
	}
	p.exchange()
	p.want(p.a, "r ok")
	if !bytes.Equal(src, dst) {
		t.Error("bytes differ")
	}
	p.checkIdle()
}

func TestReadOfRegionThatIsRemoved(t *testing.T) {
	// S-RMA-15: when Deregister returns nothing of the region is read any more. What the peer asked
	// for comes without data, also if a packet of it must be sent again.
	for moves := range 3 {
		p := newPipe(t, func(c *Config) { c.Window = 20_000 })
		g := readable(t, p.b, 5, pattern(60_000, 1))
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: make([]byte, 60_000), Key: 5, Context: "r"})
		lost := 0
		p.drop = func(from *FEP, _ []byte) bool { lost++; return from == p.b && lost%50 == 0 }
		for range moves {
			p.move(p.a, p.b)
			p.move(p.b, p.a)
		}
		p.b.Deregister(g)
		p.drop = nil
		for range 20 {
			p.exchange()
			p.now += 100_000_000
			p.a.Advance(p.now)
			p.b.Advance(p.now)
		}
		p.exchange()
		p.want(p.a, "r refused")
		p.checkIdle()
	}
}

func TestReadPassesNoMessageOfItsLane(t *testing.T) {
	// S-PDC-09: a read that waits for its window is not interleaved with what is behind it, which
	// goes on when it ends.
	p := newPipe(t, func(c *Config) { c.ReadWindow = 4096 })
	readable(t, p.b, 5, pattern(1<<20, 1))
	for range 3 {
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: make([]byte, 100_000), Key: 5, Ordered: true, Context: "r"})
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 20_000), Context: "m"})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 20_000), Ordered: true, Context: "m"})
	}
	p.exchange()
	if got := p.events(p.a); len(got) != 6 {
		t.Errorf("events %q", got)
	}
	p.want(p.b, "m ok len=20000", "m ok len=20000", "m ok len=20000")
	p.checkIdle()
}

func TestReadOfSingleUse(t *testing.T) {
	// R-MR-18: the region of a single use goes when the read of it ends, and no other read begins.
	p := newPipe(t, nil)
	src, dst := pattern(100_000, 1), make([]byte, 100_000)
	g, err := p.b.Register(RegionConfig{Key: 5, Buf: src, Access: RemoteRead, Endpoint: AllEndpoints, SingleUse: true})
	if err != nil {
		t.Fatal(err)
	}
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: dst, Key: 5, Context: "first"})
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: make([]byte, 10), Key: 5, Context: "second"})
	p.move(p.a, p.b)
	if !g.Live() {
		t.Fatal("the region is gone before the read has ended")
	}
	p.exchange()
	got := p.events(p.a)
	slices.Sort(got)
	// They go by two PDCs: either may come first.
	if s := fmt.Sprint(got); s != "[first ok second refused]" && s != "[first refused second ok]" || g.Live() {
		t.Errorf("%q, live %v", got, g.Live())
	}
	p.checkIdle()
}
