package transport

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
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

// The ACK with the data of a short read leaves before the turn of the target ends: nothing will keep
// it company. That of a message waits for an answer of the application.
func TestDataInAnAckLeavesAtOnce(t *testing.T) {
	p := newPipe(t, nil)
	src, dst := pattern(8, 1), make([]byte, 8)
	readable(t, p.b, 5, src)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 1})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: dst, Tag: 1, Context: "m"})
	p.exchange() // so the PDC is there
	p.events(p.a)
	p.events(p.b)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 1})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: dst, Tag: 1, Context: "m"})
	p.turn()
	p.want(p.a)
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: dst, Key: 5, Context: "r"})
	p.turn()
	p.want(p.a, "r ok", "m ok")
	if !bytes.Equal(src, dst) {
		t.Error("bytes differ")
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
	p.pass()
	p.checkIdle()
}

// pass lets the time pass in which the ends clear what was guaranteed.
func (p *pipe) pass() {
	for range 100 {
		p.now += 10 * time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
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
	// S-RMA-68: a read asks for at most ReadWindow bytes that have not come, and goes on when some come.
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

// S-RMA-69, T13: a peer asks for more and more and acknowledges no read data. What is served to it is bounded,
// others read meanwhile, and when it is given up nothing of it is left.
func TestT13NeverTakesReturnData(t *testing.T) {
	s := newStar(t, 2, func(c *Config) { c.PeerTimeout, c.MaxSends, c.MPRange = 2*time.Second, 10_000, 16384 })
	greedy, honest := s.leaf[0], s.leaf[1]
	src := pattern(1<<20, 3)
	readable(t, s.hub, 5, src)
	to, _ := greedy.Peer(s.hub.cfg.Local, true)
	for range 6000 {
		if err := greedy.Post(s.now, &Op{Kind: OpRead, Peer: to, RI: 15, Buf: make([]byte, 1000), Key: 5}); err != nil {
			t.Fatal(err)
		}
	}
	// deaf carries what the greedy peer sends, but for its ACKs.
	deaf := func() {
		greedy.Flush(s.now)
		for greedy.Transmit(s.now, &s.d) {
			for rest := s.d.Data; len(rest) > 0; {
				var b []byte
				b, rest = s.d.Next(rest)
				if k := wire.Type(b[0] >> 3); k == wire.TypeAck || k == wire.TypeAckCC || k == wire.TypeAckCCX {
					continue
				}
				s.hub.Receive(s.now, &dgram.Datagram{Data: append([]byte(nil), b...), Remote: greedy.cfg.Local})
			}
		}
	}
	at, _ := honest.Peer(s.hub.cfg.Local, true)
	reads, begun := 0, s.now
	buf := make([]byte, 100_000)
	post := func() {
		clear(buf)
		if err := honest.Post(s.now, &Op{Kind: OpRead, Peer: at, RI: 15, Buf: buf, Key: 5, RemoteAddr: 77}); err != nil {
			t.Fatal(err)
		}
	}
	post()
	for s.now-begun < 5*time.Second {
		deaf()
		s.drain(s.hub)
		s.drain(honest)
		for _, f := range []*FEP{s.hub, greedy, honest} {
			f.Advance(s.now)
		}
		for e := honest.NextEvent(); e != nil; e = honest.NextEvent() {
			if e.Cause != OK || !bytes.Equal(buf, src[77:77+len(buf)]) {
				t.Fatalf("read %d: %v", reads, e.Cause)
			}
			reads++
			post()
		}
		for greedy.NextEvent() != nil {
		}
		s.now += time.Millisecond
	}
	if n := greedy.Stats().NacksRx[wire.NackNoSESMsgAvail]; n < 6000-4096 {
		t.Errorf("only %d of 6000 reads were refused", n)
	}
	if reads < 1000 {
		t.Errorf("%d reads of others in 5 s", reads)
	}
	greedy.Close(s.now)
	for end := s.now + 4*time.Second; s.now < end; s.now += 10 * time.Millisecond {
		s.drain(s.hub)
		s.drain(honest)
		s.hub.Advance(s.now)
		honest.Advance(s.now)
		for e := honest.NextEvent(); e != nil; e = honest.NextEvent() {
			reads++
		}
	}
	if !s.hub.Idle() {
		t.Errorf("something of the greedy peer is left\n%s", s.hub.Dump())
	}
}

func TestSmallReadsComeInTheACK(t *testing.T) {
	// S-RMA-12, S-RMA-14: up to 16 bytes of a read, or of old values, come in the ACK of the request, guaranteed:
	// ACKs that are lost come again with the same bytes, and nothing is executed twice.
	for _, ordered := range []bool{false, true} {
		p := newPipe(t, nil)
		mem := pattern(100, 1)
		if _, err := p.b.Register(RegionConfig{Key: 5, Buf: mem, Access: RemoteRead | RemoteWrite | RemoteAtomic, Endpoint: AllEndpoints}); err != nil {
			t.Fatal(err)
		}
		read := func(n int) []byte {
			buf := make([]byte, n)
			p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: buf, Key: 5, RemoteAddr: 40, Ordered: ordered, Context: "r"})
			return buf
		}
		for n, packets := range map[int]uint64{1: 0, 8: 0, 16: 0, 17: 1} {
			was := p.b.Stats().TxData
			buf := read(n)
			p.exchange()
			p.want(p.a, "r ok")
			if got := p.b.Stats().TxData - was; got != packets || !bytes.Equal(buf, mem[40:40+n]) {
				t.Errorf("%d bytes: %d packets of data, %x", n, got, buf)
			}
		}
		k := 0
		p.drop = func(from *FEP, b []byte) bool { k++; return from == p.b && k%3 != 0 }
		clear(mem[:8])
		for i := range 40 {
			res := make([]byte, 8)
			one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
			p.post(p.a, Op{Kind: OpFetch, Peer: p.toB, RI: 15, Buf: one, Key: 5, Ordered: ordered, AMO: &AMO{Op: wire.AtomicSum, Type: wire.Uint64, Result: res}, Context: i})
			var got []string
			for end := p.now + 10*time.Second; len(got) == 0 && p.now < end; p.now += 100 * time.Microsecond {
				p.a.Advance(p.now)
				p.b.Advance(p.now)
				p.exchange()
				got = p.events(p.a)
			}
			if len(got) != 1 || got[0] != fmt.Sprint(i, " ok") || res[0] != byte(i) {
				t.Fatalf("addition %d: %q, the old value is %d", i, got, res[0])
			}
		}
		if mem[0] != 40 {
			t.Errorf("40 additions make %d", mem[0])
		}
		p.drop = nil
		p.pass()
		p.checkIdle()
	}
}

func TestSmallReadsOfStrangersDoNotComeInTheACK(t *testing.T) {
	// S-RMA-69, T27: nothing of a region goes to who may be a forgery.
	s := newStar(t, 1)
	mem := []byte("secret")
	readable(t, s.hub, 5, mem)
	to, _ := s.leaf[0].Peer(s.hub.cfg.Local, true)
	if err := s.leaf[0].Post(s.now, &Op{Kind: OpRead, Peer: to, RI: 15, Buf: make([]byte, 6), Key: 5}); err != nil {
		t.Fatal(err)
	}
	s.leaf[0].Transmit(s.now, &s.d)
	s.d.Remote = s.leaf[0].cfg.Local
	s.hub.Receive(s.now, &s.d)
	s.hub.Flush(s.now)
	for s.hub.Transmit(s.now, &s.d) {
		if bytes.Contains(s.d.Data, mem) {
			t.Error("it is in the first answer")
		}
	}
}
