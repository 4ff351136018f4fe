package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// smallKey is the key of a region that the small header reaches.
const smallKey = wire.MKeyOptimized | 0x123

// headers counts the requests that pass a pipe, by their next header.
func (p *pipe) headers() map[wire.NextHdr]int {
	seen := map[wire.NextHdr]int{}
	drop := p.drop
	p.drop = func(to *FEP, b []byte) bool {
		if t := wire.Type(b[0] >> 3); t == wire.TypeRUDReq || t == wire.TypeRODReq {
			seen[wire.NextHdr(b[0]&7)<<1|wire.NextHdr(b[1]>>7)]++
		}
		return drop != nil && drop(to, b)
	}
	return seen
}

func TestSmallHeaders(t *testing.T) {
	// R-RMA-13: what goes with the small header, and what keeps the standard one. S-HDR-01: either is taken.
	// S-HDR-02: the small one goes to a peer that takes it, and with one packet.
	for _, c := range []struct {
		name  string
		op    Op
		n     int
		small bool
	}{
		{"write", Op{Kind: OpWrite, Key: smallKey}, 100, true},
		{"write of nothing", Op{Kind: OpWrite, Key: smallKey}, 0, true},
		{"write, one packet", Op{Kind: OpWrite, Key: smallKey}, 1024, true},
		{"write, two packets", Op{Kind: OpWrite, Key: smallKey}, 1025, false},
		{"visible write", Op{Kind: OpWrite, Key: smallKey, Level: LevelDelivery}, 100, true},
		{"ordered write", Op{Kind: OpWrite, Key: smallKey, Ordered: true}, 100, true},
		{"injected write", Op{Kind: OpWrite, Key: smallKey, Inject: true}, 100, true},
		{"fenced write", Op{Kind: OpWrite, Key: smallKey, Fence: true}, 100, true},
		{"write with data", Op{Kind: OpWrite, Key: smallKey, HasData: true, Data: 7}, 100, false},
		{"write, other key", Op{Kind: OpWrite, Key: 5}, 100, false},
		{"write, RUDI allowed", Op{Kind: OpWrite, Key: smallKey + 1 | wire.MKeyIdempotent}, 100, false},
		{"read in an ACK", Op{Kind: OpRead, Key: smallKey}, 16, true},
		{"read", Op{Kind: OpRead, Key: smallKey}, 100, true},
		{"read of nothing", Op{Kind: OpRead, Key: smallKey}, 0, true},
		{"ordered read", Op{Kind: OpRead, Key: smallKey, Ordered: true}, 100, true},
		{"read, one packet", Op{Kind: OpRead, Key: smallKey}, 1024, true},
		{"read, two packets", Op{Kind: OpRead, Key: smallKey}, 1025, false},
		{"read, other key", Op{Kind: OpRead, Key: 5}, 100, false},
	} {
		for _, able := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, able), func(t *testing.T) {
				p := newPipe(t, nil)
				mem := pattern(3000, 1)
				for _, key := range []uint64{smallKey, smallKey + 1 | wire.MKeyIdempotent, 5} {
					if _, err := p.b.Register(RegionConfig{Key: key, Buf: mem, Access: RemoteRead | RemoteWrite, Endpoint: AllEndpoints}); err != nil {
						t.Fatal(err)
					}
				}
				seen := p.headers()
				for i := range 3 { // the PDC is opened by the first
					op := c.op
					op.Peer, op.RI, op.RemoteAddr, op.Optimized, op.Context = p.toB, 15, 100, able, "op"
					op.Buf = pattern(c.n, byte(i+50))
					p.post(p.a, op)
					p.exchange()
					p.want(p.a, "op ok")
					if !bytes.Equal(mem[100:100+c.n], op.Buf) {
						t.Error("other bytes")
					}
				}
				for p.b.NextEvent() != nil {
				}
				want := wire.NextReqStd
				if c.small && able {
					want = wire.NextReqSmall
				}
				if seen[wire.NextReqStd]+seen[wire.NextReqSmall] != seen[want] {
					t.Errorf("headers %v", seen)
				}
				p.pass()
				p.checkIdle()
			})
		}
	}
}

func TestSmallLoss(t *testing.T) {
	// R-RMA-13: requests, ACKs and read data that are lost are sent again, and a request is executed once.
	for _, ordered := range []bool{false, true} {
		for _, each := range []int{2, 3, 5, 7} {
			t.Run(fmt.Sprint(ordered, each), func(t *testing.T) {
				p := newPipe(t, nil)
				mem := make([]byte, 50000)
				if _, err := p.b.Register(RegionConfig{Key: smallKey, Buf: mem, Access: RemoteRead | RemoteWrite, Endpoint: AllEndpoints, CountsReads: true, Counts: true}); err != nil {
					t.Fatal(err)
				}
				k := 0
				p.drop = func(*FEP, []byte) bool { k++; return k%each == 1 }
				seen := p.headers()
				const n = 40
				var bufs [n][]byte
				for i := range n {
					op := Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: smallKey, RemoteAddr: uint64(1000 * i), Buf: pattern(i*20, byte(i)), Ordered: ordered, Optimized: true, Context: "w"}
					bufs[i] = op.Buf
					p.post(p.a, op)
				}
				wait := func(want int) {
					t.Helper()
					got := 0
					for end := p.now + 20*time.Second; p.now < end && got < want; p.now += 100 * time.Microsecond {
						p.a.Advance(p.now)
						p.b.Advance(p.now)
						p.exchange()
						for e := p.a.NextEvent(); e != nil; e = p.a.NextEvent() {
							if got++; e.Cause != OK {
								t.Fatalf("%+v", e)
							}
						}
					}
					if got != want {
						t.Fatalf("%d events, want %d", got, want)
					}
				}
				wait(n)
				var back [n][]byte
				for i := range n {
					back[i] = make([]byte, len(bufs[i]))
					p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: smallKey, RemoteAddr: uint64(1000 * i), Buf: back[i], Ordered: ordered, Optimized: true, Context: "r"})
				}
				wait(n)
				for i := range n {
					if !bytes.Equal(bufs[i], mem[1000*i:][:len(bufs[i])]) || !bytes.Equal(bufs[i], back[i]) {
						t.Fatalf("other bytes in %d", i)
					}
				}
				p.drop = nil
				p.pass()
				told := 0
				for p.b.NextEvent() != nil {
					told++
				}
				if told != 2*n || seen[wire.NextReqSmall] < 2*n || seen[wire.NextReqStd] != 0 {
					t.Errorf("%d events at the target, headers %v", told, seen)
				}
				p.checkIdle()
			})
		}
	}
}

func TestSmallRefused(t *testing.T) {
	// S-RSP-04: the answer to a small request has no message id, and says what that to a standard one would. A
	// resource index that is not there is a key that is not there.
	p := newPipe(t, nil)
	reg, err := p.b.Register(RegionConfig{Key: smallKey, Buf: make([]byte, 100), Access: RemoteWrite, Endpoint: AllEndpoints})
	if err != nil {
		t.Fatal(err)
	}
	do := func(kind OpKind, key, addr uint64, n int, want wire.RC) {
		t.Helper()
		p.post(p.a, Op{Kind: kind, Peer: p.toB, RI: 15, Key: key, RemoteAddr: addr, Buf: make([]byte, n), Optimized: true})
		p.exchange()
		if e := p.a.NextEvent(); e == nil || e.Kind != kind || e.RC != want || (e.Cause == Rejected) != (want != 0) {
			t.Errorf("key %#x: %+v, want %v", key, e, want)
		}
	}
	seen := p.headers()
	do(OpWrite, smallKey+1, 0, 10, wire.RCBadMKey)
	do(OpWrite, smallKey, 91, 10, wire.RCBadAddr)
	do(OpRead, smallKey, 0, 10, wire.RCPermViolation)
	do(OpWrite, smallKey, 90, 10, 0)
	p.b.Deregister(reg)
	do(OpWrite, smallKey, 90, 10, wire.RCBadMKey)
	if seen[wire.NextReqSmall] != 5 || seen[wire.NextReqStd] != 0 {
		t.Errorf("headers %v", seen)
	}
	p.checkIdle()
}

func TestSmallPromised(t *testing.T) {
	// S-CPL-04, S-RSP-04: after NO_RESPONSE the result has no message id either, and is that of the packet that its
	// ACK names.
	p := newPipe(t, func(c *Config) { c.NoCRC = true })
	var reqs []wire.Req
	for i := range 2 {
		p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: smallKey, Buf: make([]byte, 8), Optimized: true, Context: i})
		if !p.a.Transmit(p.now, &p.d) {
			t.Fatal("nothing left")
		}
		h, _, err := wire.ParseReq(p.d.Data)
		if err != nil || h.Next != wire.NextReqSmall {
			t.Fatal(h, err)
		}
		reqs = append(reqs, h)
	}
	answer := func(i int, op wire.RspOpcode, rc wire.RC) {
		a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: reqs[1].PSN, AckPSNOff: int16(i - 1), SPDCID: 77, DPDCID: reqs[i].SPDCID, MPR: 1, SACKOff: 1}
		if op == wire.RspNone {
			a.CACK, a.AckPSNOff = reqs[i].PSN, 0
		}
		b := (&wire.Rsp{Opcode: op, RC: rc, JobID: 1}).Append(a.Append(nil))
		p.a.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.b.cfg.Local})
	}
	answer(0, wire.RspNone, wire.RCNull)
	answer(1, wire.RspNone, wire.RCNull)
	p.want(p.a)
	answer(1, wire.RspResponse, wire.RCBadAddr)
	p.want(p.a, "1 refused")
	answer(0, wire.RspResponse, wire.RCOK)
	p.want(p.a, "0 ok")
}

func TestSmallByRUDI(t *testing.T) {
	// R-RMA-12, R-RMA-13: by RUDI the small header means the key with IDEMPOTENT_SAFE, also if another region has the
	// same RKEY. The answer to a read names the packet.
	p := newIdem(t, nil)
	both := wire.MKeyIdempotent | uint64(smallKey)
	mem, other := make([]byte, 5000), make([]byte, 5000)
	for key, buf := range map[uint64][]byte{both: mem, smallKey: other} {
		if _, err := p.b.Register(RegionConfig{Key: key, Buf: buf, Access: RemoteRead | RemoteWrite, Endpoint: AllEndpoints}); err != nil {
			t.Fatal(err)
		}
	}
	k, seen := 0, map[wire.NextHdr]int{}
	p.drop = func(_ *FEP, b []byte) bool {
		k++
		if h, _, err := wire.ParseRUDI(b); err == nil {
			seen[h.Next]++
		}
		return k%3 == 1
	}
	for _, n := range []int{0, 1, 16, 1000, 1024, 1025, 3000} {
		clear(seen)
		src, back := pattern(n, byte(n)), make([]byte, n)
		op := Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: both, RemoteAddr: 100, Buf: src, Context: "w", Idempotent: true, Optimized: true}
		p.post(p.a, op)
		if got := p.run(1); got[0] != "w ok" {
			t.Fatal(got)
		}
		op.Kind, op.Buf, op.Context = OpRead, back, "r"
		p.post(p.a, op)
		if got := p.run(1); got[0] != "r ok" {
			t.Fatal(got)
		}
		if !bytes.Equal(mem[100:100+n], src) || !bytes.Equal(back, src) || bytes.Count(other, []byte{0}) != 5000 {
			t.Errorf("%d bytes: others came", n)
		}
		if small := n <= 1024; small != (seen[wire.NextReqSmall] >= 2) || small == (seen[wire.NextReqStd] != 0) || n > 0 && small != (seen[wire.NextRspDataSmall] > 0) {
			t.Errorf("%d bytes: headers %v", n, seen)
		}
	}
	p.drop = nil
	op := Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: both + 1, Buf: make([]byte, 5), Idempotent: true, Optimized: true}
	p.post(p.a, op)
	p.exchange()
	if e := p.a.NextEvent(); e == nil || e.RC != wire.RCBadMKey {
		t.Errorf("another key: %+v", e)
	}
	p.checkIdle()
}

func TestSmallReadOpens(t *testing.T) {
	// R-RMA-13: the first packets of a PDC are sent again under other PSNs if the target asks for another Start_PSN, and
	// read data names those.
	seals := secured(t, nil)
	for name, change := range map[string]func(*Config){"clear": nil, "0-RTT": secured(t, nil), "1-RTT": func(c *Config) { seals(c); c.OneRTT = true }} {
		t.Run(name, func(t *testing.T) {
			p := newPipe(t, change)
			src := pattern(3000, 1)
			readable(t, p.b, smallKey, src)
			var back [3][]byte
			for i := range back {
				back[i] = make([]byte, 1000)
				p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: smallKey, RemoteAddr: uint64(1000 * i), Buf: back[i], Optimized: true, Context: "r"})
			}
			p.exchange()
			p.want(p.a, "r ok", "r ok", "r ok")
			if !bytes.Equal(slices.Concat(back[:]...), src) {
				t.Error("other bytes")
			}
			if s := p.a.Stats(); s.Small != 3 || name == "1-RTT" && s.Renumbered == 0 {
				t.Errorf("%d small headers, %d times other PSNs", s.Small, s.Renumbered)
			}
			p.pass()
			p.checkIdle()
		})
	}
}

func TestSmallTooLong(t *testing.T) {
	// R-RMA-13, F7: what the path does not carry comes back, and goes again in standard packets.
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint(ordered), func(t *testing.T) {
			p := newPipe(t, func(c *Config) { c.PayloadMTU = 8192 })
			mem := make([]byte, 10000)
			if _, err := p.b.Register(RegionConfig{Key: smallKey, Buf: mem, Access: RemoteRead | RemoteWrite, Endpoint: AllEndpoints, Counts: true}); err != nil {
				t.Fatal(err)
			}
			p.drop = func(_ *FEP, b []byte) bool { return len(b) > 1472 }
			seen := p.headers()
			op := Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: smallKey, Buf: pattern(10, 1), Ordered: ordered, Optimized: true, Context: "short"}
			p.post(p.a, op)
			p.exchange()
			p.want(p.a, "short ok")
			op.Buf, op.RemoteAddr, op.Context = pattern(5000, 2), 100, "long"
			p.post(p.a, op)
			back := make([]byte, 10)
			p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: smallKey, Buf: back, Ordered: ordered, Optimized: true, Context: "read"})
			p.exchange()
			p.a.TooLong(p.now, p.b.cfg.Local, 8200)
			p.exchange()
			if got := p.events(p.a); len(got) != 2 || !slices.Contains(got, "long ok") || !slices.Contains(got, "read ok") {
				t.Fatal(got)
			}
			if !bytes.Equal(mem[100:5100], op.Buf) || !bytes.Equal(back, mem[:10]) {
				t.Error("other bytes")
			}
			writes := 0
			for e := p.b.NextEvent(); e != nil; e = p.b.NextEvent() {
				writes++
			}
			if writes != 2 || seen[wire.NextReqStd] < 6 {
				t.Errorf("%d writes at the target, headers %v", writes, seen)
			}
			p.pass()
			p.checkIdle()
		})
	}
}

func TestSmallUnequal(t *testing.T) {
	// S-RMA-71: ends with unequal MTUs: what is asked for with the small header fits any packet back.
	p := newPipe(t, nil)
	cfg := p.a.cfg
	cfg.PayloadMTU = 8192
	var err error
	if p.a, err = New(cfg, rand.New(rand.NewPCG(9, 9))); err != nil {
		t.Fatal(err)
	}
	p.toB, _ = p.a.Peer(p.b.cfg.Local, true)
	src := pattern(9000, 1)
	readable(t, p.b, smallKey, src)
	for _, n := range []int{1024, 1025, 8192} {
		back := make([]byte, n)
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: smallKey, Buf: back, Ordered: true, Optimized: true, Context: "r"})
		p.exchange()
		p.want(p.a, "r ok")
		if !bytes.Equal(back, src[:n]) {
			t.Error("other bytes")
		}
	}
	if s := p.a.Stats(); s.Small != 1 || s.SendErrors != 0 {
		t.Errorf("%d small headers", s.Small)
	}
}

// S-RMA-12: read data names the packet that its ACK names, or it counts for neither.
func TestSmallDataOfAnotherPacket(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.NoCRC = true })
	var reqs []wire.Req
	for i := range 2 {
		p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: smallKey, Buf: make([]byte, 8), Optimized: true, Context: i})
		if !p.a.Transmit(p.now, &p.d) {
			t.Fatal("nothing left")
		}
		h, _, err := wire.ParseReq(p.d.Data)
		if err != nil || h.Next != wire.NextReqSmall {
			t.Fatal(h, err)
		}
		reqs = append(reqs, h)
	}
	answer := func(acked, data int) {
		a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRspDataSmall, CACK: reqs[acked].PSN, SPDCID: 77, DPDCID: reqs[acked].SPDCID, MPR: 1, SACKOff: 1}
		b := wire.RspDataSmall{Opcode: wire.RspWithData, RC: wire.RCOK, ReqPSN: reqs[data].PSN, JobID: 1, PayloadLen: 8}.Append(a.Append(nil))
		b = append(b, pattern(8, 1)...)
		p.a.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.b.cfg.Local})
	}
	before := p.a.Stats().Drops[DropHeader]
	answer(0, 1)
	p.want(p.a)
	if n := p.a.Stats().Drops[DropHeader] - before; n != 1 {
		t.Errorf("%d packets dropped, want 1", n)
	}
	answer(0, 0)
	p.want(p.a, "0 ok")
	answer(1, 1)
	p.want(p.a, "1 ok")
}
