package ses

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// answerOf executes one request at a target, and returns the answer.
func (g *rig) answerOf(change func(r *wire.ReqStd), body []byte) *Result {
	r := wire.ReqStd{Flags: single | wire.SESREL, MsgID: 9, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Match: 1}
	change(&r)
	return g.deliver(srcA, append(r.Append(nil), body...))
}

// S-RMA-02: the target of a write hears of it if it has header data, or if its region counts; of a write of no bytes, too, which is
// checked like any other (S-RMA-04).
func TestWriteIsToldOf(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		for _, c := range []struct {
			key     uint64
			hasData bool
			want    wire.RC
			told    bool
		}{
			{1, false, wire.RCOK, false}, {1, true, wire.RCOK, true}, {2, false, wire.RCOK, true}, {2, true, wire.RCOK, true},
			{3, true, wire.RCPermViolation, false}, {4, true, wire.RCBadMKey, false},
		} {
			g := newRig(t)
			buf := make([]byte, 100)
			g.region(RegionConfig{Key: 1, Buf: buf, Access: RemoteWrite})
			g.region(RegionConfig{Key: 2, Buf: buf, Access: RemoteWrite, Counts: true})
			g.region(RegionConfig{Key: 3, Buf: buf, Access: RemoteRead})
			res := g.answerOf(func(r *wire.ReqStd) {
				r.Opcode, r.Match, r.ReqLen = wire.OpWrite, c.key, uint32(n)
				if c.hasData {
					r.Flags, r.HeaderData = r.Flags|wire.SESHD, 77
				}
			}, make([]byte, n))
			e := g.Event()
			if res.Rsp.RC != c.want || (e != nil) != c.told || e != nil && (e.Kind != EvRemoteWrite || e.Len != n || e.HasData != c.hasData || c.hasData && e.Data != 77) {
				t.Errorf("%d bytes, key %d, data %v: %v, event %+v", n, c.key, c.hasData, res.Rsp.RC, e)
			}
		}
	}
}

// S-RMA-13: what a read brings goes with the id of the read in both places, and is acknowledged by the default response,
// which is not guaranteed.
func TestReturnedDataIsNotGuaranteed(t *testing.T) {
	g := newRig(t)
	g.region(RegionConfig{Key: 1, Buf: pattern(3000), Access: RemoteRead})
	g.answerOf(func(r *wire.ReqStd) { r.Opcode, r.ReqLen = wire.OpRead, 3000 }, nil)
	pdc, ok := g.Owing()
	if !ok {
		t.Fatal("nothing is returned")
	}
	for parts := 0; ; parts++ {
		p, ok := g.PeekReturn(pdc, 1024)
		if !ok {
			if parts != 3 {
				t.Errorf("%d parts", parts)
			}
			break
		}
		pkt := g.AppendReturn(nil, p)
		if h, _, err := wire.ParseRspData(pkt); err != nil || h.MsgID != 9 || h.ReadMsgID != 9 {
			t.Errorf("%+v, %v", h, err)
		}
		a := newRig(t)
		res := a.Request(&Source{Peer: 2, PDC: 7}, wire.NextRspData, pkt)
		if res.Gtd || res.Rsp.Opcode != wire.RspDefault || res.Rsp.RC != wire.RCOK || res.Rsp.ModLen != 0 {
			t.Errorf("the answer to it is %v, guaranteed %v", res.Rsp.String(), res.Gtd)
		}
	}
}

// S-AMO-04: an operation that fetches nothing is answered by the default response, which is not guaranteed.
func TestAtomicAnswer(t *testing.T) {
	g := newAMORig(t, allAccess)
	_, _, pkt := g.request(g.op(EvAtomic, 0, &AMO{Op: wire.AtomicSum, Type: wire.Uint64}, make([]byte, 24)))
	if res := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt); res.Gtd || res.Rsp.Opcode != wire.RspDefault || res.Rsp.RC != wire.RCOK || res.Rsp.ModLen != 24 {
		t.Errorf("%v, guaranteed %v", res.Rsp.String(), res.Gtd)
	}
}

// S-AMO-09: what the reference provider can do, in its own bytes: additions, with and without the old value, and compare-and-swap
// with a length of 32, on numbers of 64 bits in network order (S-AMO-06). An old value is a guaranteed response (S-AMO-03).
func TestAtomicsOfTheReferenceProvider(t *testing.T) {
	cfg := testConfig()
	cfg.Identity = Identity{JobID: 0x012345, PIDonFEP: 0x00a, RI: 0x00f}
	s := New(cfg)
	mem := g64(40, 10, 10)
	if _, err := s.Register(RegionConfig{Key: 0x42, Buf: mem, Access: allAccess, Endpoint: AllEndpoints, Base: 0x38}); err != nil {
		t.Fatal(err)
	}
	const head = "00 01 23 45 00 0a 00 0f 00 00 00 00 00 00 00 40 00 00 00 10 00 00 00 00 00 00 00 42 00 00 00 00 00 00 00 00"
	const swap = " 00 00 00 20 0d 07 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 14"
	for _, c := range []struct {
		bytes string
		old   uint64 // of the second word
		now   uint64
		n     uint32
	}{
		{"03 0b 01 05 " + head + " 00 00 00 08 02 07 02 00 00 00 00 00 00 00 00 05", 0, 15, 8},
		{"04 0b 01 06 " + head + " 00 00 00 08 02 07 02 00 00 00 00 00 00 00 00 05", 15, 20, 8},
		{"04 0b 01 07 " + head + swap, 20, 20, 32},
		{"03 0b 01 08 " + head + " 00 00 00 08 02 07 02 00 ff ff ff ff ff ff ff f6", 0, 10, 8},
		{"04 0b 01 09 " + head + swap, 10, 20, 32},
	} {
		pkt, err := hex.DecodeString(strings.ReplaceAll(c.bytes, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		res := s.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt)
		fetches := pkt[0] == byte(wire.OpFetchAtomic)
		if res.Rsp.RC != wire.RCOK || res.Rsp.ModLen != c.n || res.Gtd != fetches || (res.Rsp.Opcode == wire.RspWithData) != fetches {
			t.Errorf("%s: %v, guaranteed %v", c.bytes[:11], res.Rsp.String(), res.Gtd)
		}
		if fetches && (len(res.Data) != 8 || binary.BigEndian.Uint64(res.Data) != c.old) {
			t.Errorf("%s: the old value is % x", c.bytes[:11], res.Data)
		}
		if !bytes.Equal(mem, g64(40, c.now, 10)) {
			t.Errorf("%s: memory is % x", c.bytes[:11], mem)
		}
	}
}

// g64 is a run of words.
func g64(words ...uint64) (b []byte) {
	for _, w := range words {
		b = native.AppendUint64(b, w)
	}
	return slices.Clip(b)
}

// S-AMO-11: what another target says of numbers of floating point is the failure of the operation, and it does not go again.
func TestAtomicFloatingPointCodes(t *testing.T) {
	for rc := wire.RCAMOFPNaN; rc <= wire.RCAMOFPInexact; rc++ {
		for _, kind := range []Kind{EvAtomic, EvFetch} {
			g := newAMORig(t, allAccess)
			a := &AMO{Op: wire.AtomicSum, Type: wire.Double}
			if kind == EvFetch {
				a.Result = make([]byte, 8)
			}
			h, p, _ := g.request(g.op(kind, 0, a, make([]byte, 8)))
			_ = p
			g.a.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: rc, MsgID: g.a.lastID})
			if e := g.a.Event(); e == nil || e.Cause != Rejected || e.RC != rc || !g.a.Idle() {
				t.Errorf("%v: %+v", rc, e)
			}
		}
	}
}

// S-ADDR-04: an index names a resource for messages, one for tagged messages and one for accesses to memory: each is found by its opcode.
func TestOneIndexInThreeSpaces(t *testing.T) {
	g := newRig(t)
	buf := make([]byte, 8)
	g.region(RegionConfig{Key: 1, Buf: buf, Access: RemoteWrite})
	g.recv(Recv{Context: "untagged", Buf: make([]byte, 8)})
	g.recv(Recv{Context: "tagged", Tagged: true, Tag: 1, Buf: make([]byte, 8)})
	g.answerOf(func(r *wire.ReqStd) { r.Opcode, r.ReqLen = wire.OpTaggedSend, 1 }, []byte{1})
	g.wantEvent(EvTRecv, OK, "tagged", 1)
	g.answerOf(func(r *wire.ReqStd) { r.Opcode, r.ReqLen = wire.OpWrite, 1 }, []byte{2})
	g.quiet()
	g.answerOf(func(r *wire.ReqStd) { r.Opcode, r.ReqLen = wire.OpSend, 1 }, []byte{3})
	g.wantEvent(EvRecv, OK, "untagged", 1)
	if buf[0] != 2 {
		t.Errorf("memory is % x", buf)
	}
}

// S-ADDR-05: a byte lies at the base of its region, the offset of its message there, the offset of its packet in the message and
// its place in the packet, added up.
func TestWhereAByteLies(t *testing.T) {
	g := newRig(t)
	mem, body := make([]byte, 3000), pattern(2000)
	g.region(RegionConfig{Key: 1, Iov: [][]byte{mem[:1234], mem[1234:]}, Base: 1 << 40, Access: RemoteWrite})
	for _, at := range []uint32{1024, 0} { // the last packet comes first
		g.answerOf(func(r *wire.ReqStd) {
			r.Opcode, r.BufOff, r.ReqLen, r.Flags = wire.OpWrite, 1<<40+500, 2000, wire.SESREL|wire.SESSOM
			if at != 0 {
				r.Flags, r.MsgOff, r.PayloadLen = wire.SESREL|wire.SESEOM, at, 2000-1024
			}
		}, body[at:min(at+1024, 2000)])
	}
	if !bytes.Equal(mem[500:2500], body) || bytes.Count(mem[:500], []byte{0}) != 500 || bytes.Count(mem[2500:], []byte{0}) != 500 {
		t.Error("bytes are elsewhere")
	}
}

// S-ADDR-06: the resource index of a small request is the key of the one region that it is for.
func TestSmallRequestNamesItsRegion(t *testing.T) {
	g := newRig(t)
	var mem [3][8]byte
	for i := range mem {
		g.region(RegionConfig{Key: wire.MKeyOptimized | uint64(100+i), Buf: mem[i][:], Access: RemoteWrite})
	}
	for i := range mem {
		r := wire.ReqSmall{Opcode: wire.OpWrite, Flags: single | wire.SESREL, ReqLen: 1, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: uint16(100 + i)}
		if res := g.Request(&srcA, wire.NextReqSmall, append(r.Append(nil), byte(i+1))); res.Rsp.RC != wire.RCOK {
			t.Errorf("region %d: %v", i, res.Rsp.RC)
		}
	}
	if mem != [3][8]byte{{1}, {2}, {3}} {
		t.Errorf("memory is %v", mem)
	}
}
