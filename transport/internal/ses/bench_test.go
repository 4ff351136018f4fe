package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// allocsPerRun is testing.AllocsPerRun after a warm-up.
func allocsPerRun(f func()) float64 {
	for range 300 {
		f()
	}
	return testing.AllocsPerRun(1000, f)
}

var benchCtx any = new(int)

func TestSendAllocatesNothing(t *testing.T) {
	a := New(testConfig())
	small, big := make([]byte, 64), make([]byte, 10_000)
	iov := [][]byte{big[:100], big[100:5000], big[5000:]}
	var pkt []byte = make([]byte, 0, 2048)
	for _, c := range []struct {
		name string
		op   Send
	}{
		{"small", Send{Tagged: true, Buf: small}},
		{"copied", Send{Tagged: true, Buf: small, Copy: true}},
		{"copied early", Send{Buf: small, Copy: true, Early: true}},
		{"segmented", Send{Buf: big}},
		{"segmented copy", Send{Buf: big, Copy: true}},
		{"gathered", Send{Iov: iov}},
	} {
		op := c.op.op()
		op.Context = benchCtx
		n := allocsPerRun(func() {
			h, err := a.send(0, op)
			if err != nil {
				t.Fatal(err)
			}
			k := 0
			for {
				p, ok := a.Next(h, 1024)
				if !ok {
					break
				}
				pkt = a.Append(pkt[:0], p)
				k++
			}
			for range k {
				a.Answered(h, nil)
			}
			if e := a.Event(); e == nil || e.Cause != OK {
				t.Fatalf("event %+v", e)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func TestRecvAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name       string
		unexpected bool
		size       int
		recv       Recv
	}{
		{"small", false, 64, Recv{Tagged: true, Tag: 7}},
		{"small wildcard", false, 64, Recv{Tagged: true, Ignore: 0xff}},
		{"small directed", false, 64, Recv{Tagged: true, Tag: 7, SourcePeer: 3}},
		{"bulk", false, 100_000, Recv{Tagged: true, Tag: 7}},
		{"small unexpected", true, 64, Recv{Tagged: true, Tag: 7}},
		{"bulk unexpected", true, 100_000, Recv{Tagged: true, Tag: 7}},
		{"scattered", false, 10_000, Recv{Tagged: true, Tag: 7, Iov: [][]byte{make([]byte, 3), make([]byte, 10_000)}}},
	} {
		a, b := New(testConfig()), New(testConfig())
		msg := pattern(c.size)
		pkts := packets(a, &Send{Tagged: true, Tag: 7, Buf: msg, Target: self(a)}, 1024)
		op := c.recv.op()
		if op.Iov == nil {
			op.Buf = make([]byte, c.size)
		}
		op.Context = benchCtx
		n := allocsPerRun(func() {
			if !c.unexpected {
				b.Recv(0, op)
			}
			for _, p := range pkts {
				if r := b.Request(&Source{Peer: 3, PDC: 5}, wire.NextReqStd, p); r.Rsp.RC != wire.RCOK && r.Rsp.RC != wire.RCNull {
					t.Fatalf("%+v", r)
				}
			}
			if c.unexpected {
				b.Recv(0, op)
			}
			if e := b.Event(); e == nil || e.Cause != OK || e.Len != c.size {
				t.Fatalf("%s: event %+v", c.name, e)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// BenchmarkSendSmall measures the initiator's work for one message of one packet: post, piece,
// encoding of 64 bytes, default response, event.
func BenchmarkSendSmall(b *testing.B) {
	for _, c := range []struct {
		name string
		op   Send
	}{
		{"plain", Send{Tagged: true, Tag: 7, Buf: make([]byte, 64), Context: benchCtx}},
		{"copy", Send{Tagged: true, Tag: 7, Buf: make([]byte, 64), Context: benchCtx, Copy: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, op := New(testConfig()), c.op.op()
			pkt := make([]byte, 0, 256)
			// 64 messages are outstanding, as with a window.
			var hs [64]Handle
			for i := range hs {
				hs[i], _ = s.send(0, op)
				p, _ := s.Next(hs[i], 1024)
				pkt = s.Append(pkt[:0], p)
			}
			i := 0
			for b.Loop() {
				s.Answered(hs[i], nil)
				s.Event()
				h, _ := s.send(0, op)
				p, _ := s.Next(h, 1024)
				pkt = s.Append(pkt[:0], p)
				hs[i] = h
				i = (i + 1) & 63
			}
		})
	}
}

// BenchmarkRecvSmallExpected measures the target's work for one message of one packet of 64
// bytes that matches a posted receive: post, match, copy, event.
func BenchmarkRecvSmallExpected(b *testing.B) {
	for _, c := range []struct {
		name   string
		posted int
		recv   Recv
		others int // receives posted that never match
	}{
		{"exact", 64, Recv{Tagged: true, Tag: 7}, 0},
		{"exact/8000 others", 64, Recv{Tagged: true, Tag: 7}, 8000},
		{"untagged", 64, Recv{}, 0},
		{"wildcard", 64, Recv{Tagged: true, Tag: 7, Ignore: 0xff}, 0},
		{"directed", 64, Recv{Tagged: true, Tag: 7, SourcePeer: 3}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := New(testConfig())
			pkt := packets(New(testConfig()), &Send{Tagged: c.recv.Tagged, Tag: 7, Buf: make([]byte, 64), Target: self(s)}, 1024)[0]
			for i := range c.others {
				s.recvOp(&Recv{Tagged: true, Tag: uint64(1000 + i)})
			}
			c.recv.Buf = make([]byte, 64)
			c.recv.Context = benchCtx
			op := c.recv.op()
			for range c.posted {
				s.Recv(0, op)
			}
			for b.Loop() {
				s.Request(&Source{Peer: 3, PDC: 5}, wire.NextReqStd, pkt)
				s.Event()
				s.Recv(0, op)
			}
		})
	}
}

// BenchmarkRecvSmallUnexpected measures the same for a message that comes before its receive.
func BenchmarkRecvSmallUnexpected(b *testing.B) {
	s := New(testConfig())
	pkt := packets(New(testConfig()), &Send{Tagged: true, Tag: 7, Buf: make([]byte, 64), Target: self(s)}, 1024)[0]
	r := Op{Kind: EvTRecv, Tag: 7, Buf: make([]byte, 64), Context: benchCtx}
	for b.Loop() {
		s.Request(&Source{Peer: 3, PDC: 5}, wire.NextReqStd, pkt)
		s.Recv(0, &r)
		s.Event()
	}
}

// BenchmarkRecvBulk measures the target's work per packet of 1024 bytes of a message of 1 MiB.
func BenchmarkRecvBulk(b *testing.B) {
	s := New(testConfig())
	buf := make([]byte, 1<<20)
	pkts := packets(New(testConfig()), &Send{Tagged: true, Tag: 7, Buf: buf, Target: self(s)}, 1024)
	dst := make([]byte, 1<<20)
	b.SetBytes(1024)
	i := 0
	for b.Loop() {
		if i == 0 {
			s.Recv(0, &Op{Kind: EvTRecv, Tag: 7, Buf: dst, Context: benchCtx})
		}
		s.Request(&Source{Peer: 3, PDC: 5}, wire.NextReqStd, pkts[i])
		if i++; i == len(pkts) {
			s.Event()
			i = 0
		}
	}
}

// BenchmarkSendBulk measures the initiator's work per packet of 1024 bytes.
func BenchmarkSendBulk(b *testing.B) {
	s := New(testConfig())
	op := Op{Kind: EvTSend, Tag: 7, Buf: make([]byte, 1<<20), Context: benchCtx}
	pkt := make([]byte, 0, 2048)
	b.SetBytes(1024)
	h, _ := s.send(0, &op)
	for b.Loop() {
		p, ok := s.Next(h, 1024)
		if !ok {
			s.Event()
			h, _ = s.send(0, &op)
			p, _ = s.Next(h, 1024)
		}
		pkt = s.Append(pkt[:0], p)
		s.Answered(h, nil)
	}
}
