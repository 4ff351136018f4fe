package transport

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/wire"
)

// A star joins one FEP to many by a perfect network without delay.
type star struct {
	t    testing.TB
	now  time.Duration
	hub  *FEP
	leaf []*FEP
	to   []PeerID // the hub's numbers of the leaves
	at   map[netip.AddrPort]*FEP
	d    dgram.Datagram
}

func newStar(t testing.TB, n int, change ...func(*Config)) *star {
	s := &star{t: t, now: time.Second, at: make(map[netip.AddrPort]*FEP), d: dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}}
	mk := func(i int) *FEP {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 4793)
		cfg := Config{Local: a}
		for _, c := range change {
			c(&cfg)
		}
		f, err := New(cfg, rand.New(rand.NewPCG(uint64(i), 7)))
		if err != nil {
			t.Fatal(err)
		}
		s.at[a] = f
		return f
	}
	s.hub = mk(0)
	for i := range n {
		f := mk(i + 1)
		s.leaf = append(s.leaf, f)
	}
	return s
}

// know makes the hub intern the leaves.
func (s *star) know() {
	for _, f := range s.leaf {
		id, err := s.hub.Peer(f.cfg.Local, true)
		if err != nil {
			s.t.Fatal(err)
		}
		s.to = append(s.to, id)
	}
}

// exchange carries everything, including ACKs.
func (s *star) exchange() {
	for more := true; more; {
		more = s.drain(s.hub)
		for _, f := range s.leaf {
			more = s.drain(f) || more
		}
	}
}

func (s *star) drain(f *FEP) (any bool) {
	f.Flush(s.now)
	for f.Transmit(s.now, &s.d) {
		to := s.at[s.d.Remote]
		s.d.Remote = f.cfg.Local
		to.Receive(s.now, &s.d)
		any = true
	}
	return any
}

// rest consumes the events and lets idle timers run.
func (s *star) rest() {
	for _, f := range append(s.leaf, s.hub) {
		for f.NextEvent() != nil {
		}
		f.Advance(s.now)
	}
}

// message sends a message from the hub to leaf i.
func (s *star) message(i int, buf []byte) {
	if err := s.leaf[i].Post(s.now, &Op{Kind: OpTRecv, Buf: buf, Tag: 1}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.hub.Post(s.now, &Op{Kind: OpTSend, Peer: s.to[i], RI: 15, Buf: buf, Tag: 1}); err != nil {
		s.t.Fatal(err)
	}
}

// memStats is the memory in use after all garbage is collected.
func memStats() *runtime.MemStats {
	runtime.GC()
	runtime.GC() // frees what the first run finalized
	m := new(runtime.MemStats)
	runtime.ReadMemStats(m)
	return m
}

// Bar F7: an idle pair of PDCs, with what both ends know of each other, uses 4 KiB at most.
func TestMemoryOfIdlePDCs(t *testing.T) {
	if invariant.On {
		t.Skip("the race detector has its own memory")
	}
	const n = 1000
	heap := func() int64 { return int64(memStats().HeapAlloc) }
	buf := make([]byte, 64)
	s := newStar(t, n+1)
	talk := func(from, to int) {
		for i := from; i < to; i++ {
			s.message(i, buf)
		}
		s.exchange()
		s.now += 100 * time.Millisecond
		s.exchange()
		s.rest()
	}
	// Every FEP has had a PDC before, so that its own tables exist.
	first := s.hub
	s.know()
	talk(0, n+1)
	s.hub = s.leaf[n]
	s.leaf = s.leaf[:n]
	s.to = nil
	before := heap()
	s.know()
	talk(0, n)
	per := (heap() - before) / n
	if got := s.hub.PDCs(); got != n+1 {
		t.Fatalf("%d PDCs", got)
	}
	t.Logf("%d B for each pair of idle PDCs", per)
	if per > 4096 {
		t.Errorf("%d B for each pair of idle PDCs, want at most 4096", per)
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(s)
}

// An answerer replaces the far end of a PDC: it acknowledges what comes in order and does
// nothing else, in little memory. A real receiver is a host of its own; a thousand FEPs in
// this process would push the sender's state out of the cache.
type answerer struct {
	from  netip.AddrPort
	ack   wire.Ack
	rsp   wire.Rsp
	bytes uint64
}

// learn stores the parts of a real receiver's ACK that do not change.
func (a *answerer) learn(t testing.TB, d *dgram.Datagram) {
	n, err := a.ack.Parse(d.Data)
	if err == nil {
		_, err = a.rsp.Parse(d.Data[n:])
	}
	if err != nil || a.ack.Type != wire.TypeAckCC || a.ack.Next != wire.NextRsp {
		t.Fatalf("no ACK with a response: %v, %v", &a.ack, err)
	}
}

// answer turns a train of requests into its ACK.
func (a *answerer) answer(d *dgram.Datagram, to netip.AddrPort) {
	var last []byte
	for rest := d.Data; len(rest) > 0; {
		last, rest = d.Next(rest)
		a.bytes += uint64(len(last) + 46)
	}
	a.ack.CACK = wire.PSN(binary.BigEndian.Uint32(last[4:]))
	a.ack.CCState = uint64(wire.NewNSCC(0, uint32((a.bytes+255)>>8), 0))
	a.rsp.MsgID = binary.BigEndian.Uint16(last[wire.ReqLen+2:])
	d.Data = a.rsp.Append(a.ack.Append(d.Data[:0]))
	n := len(d.Data) + wire.CRCLen
	d.Data = wire.AppendCRC(d.Data, 0, wire.CRCPrefix(a.from.Addr(), to.Addr(), a.from.Port(), to.Port(), uint16(8+n)))
	d.Remote, d.Seg = a.from, n
}

// BenchmarkFEPPeers measures bar F8 without sockets: the sender's cost of 64-byte messages
// to many peers in turn, in ns/message. The time of the receivers does not count.
func BenchmarkFEPPeers(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			s := newStar(b, n, func(cfg *Config) {
				if n > 1000 {
					cfg.MaxSends = 2 * n
				}
			})
			s.know()
			buf := make([]byte, 64)
			far := make([]answerer, n)
			at := make(map[netip.AddrPort]*answerer)
			// The PDCs open. The first ACK of each peer comes from a real receiver.
			for range 2 {
				for i := range n {
					s.message(i, buf)
				}
				for s.hub.Transmit(s.now, &s.d) {
					to := s.at[s.d.Remote]
					s.d.Remote = s.hub.cfg.Local
					to.Receive(s.now, &s.d)
				}
				for i, f := range s.leaf {
					f.Flush(s.now)
					for f.Transmit(s.now, &s.d) {
						far[i].from = f.cfg.Local
						at[f.cfg.Local] = &far[i]
						far[i].learn(b, &s.d)
						s.d.Remote = f.cfg.Local
						s.hub.Receive(s.now, &s.d)
					}
				}
				s.rest()
			}
			const window = 500
			// Trains under way, and unused ones. They are made once, as in a driver.
			var way, room []*dgram.Datagram
			for range window + 1 {
				room = append(room, &dgram.Datagram{Data: make([]byte, 0, 1<<13)})
			}
			var sender time.Duration
			k, sent, done := 0, 0, 0
			runtime.GC() // or the garbage of a thousand receivers is collected while the time runs
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += window {
				begin := time.Now()
				for range window {
					if err := s.hub.Post(s.now, &Op{Kind: OpTSend, Peer: s.to[k], RI: 15, Buf: buf, Tag: 1}); err != nil {
						b.Fatal(err)
					}
					k = (k + 1) % n
				}
				for s.hub.Transmit(s.now, room[len(room)-1]) {
					way = append(way, room[len(room)-1])
					room = room[:len(room)-1]
				}
				sender += time.Since(begin)
				for _, d := range way {
					at[d.Remote].answer(d, s.hub.cfg.Local)
				}
				begin = time.Now()
				for _, d := range way {
					s.hub.Receive(s.now, d)
				}
				for s.hub.NextEvent() != nil {
					done++
				}
				s.now += 50 * time.Microsecond
				s.hub.Advance(s.now)
				sender += time.Since(begin)
				sent += window
				room = append(room, way...)
				way = way[:0]
			}
			if done != sent {
				b.Fatalf("%d of %d messages completed: %+v", done, sent, s.hub.Stats())
			}
			b.ReportMetric(float64(sender.Nanoseconds())/float64(sent), "ns/message")
		})
	}
}
