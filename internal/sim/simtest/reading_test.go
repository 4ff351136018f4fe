package simtest

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestPatternNamesItself(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		id, off, n := 1+rng.Uint32N(1<<24), 8*rng.IntN(1<<20), rng.IntN(3000)
		b := make([]byte, n)
		fillPattern(b, id, off)
		if err := checkPattern(b, id, off); err != nil {
			t.Fatal(err)
		}
		if n >= 8 {
			if i, o := readPattern(b); i != id || o != off {
				t.Fatalf("message %d at %d reads as %d at %d", id, off, i, o)
			}
		}
		if n > 0 {
			b[rng.IntN(n)] ^= 1 << rng.IntN(8)
			if checkPattern(b, id, off) == nil {
				t.Fatal("a flipped bit was not seen")
			}
		}
	}
}

func TestBitsetFull(t *testing.T) {
	var b bitset
	for i := range uint32(300) {
		if i != 170 {
			b.set(i)
		}
	}
	for _, c := range []struct {
		below, n uint32
		want     bool
	}{{0, 0, true}, {0, 170, true}, {0, 171, false}, {171, 300, true}, {100, 171, false}, {171, 301, false}, {64, 128, true}, {128, 192, false}} {
		if got := b.full(c.below, c.n); got != c.want {
			t.Errorf("full(%d, %d) = %v", c.below, c.n, got)
		}
	}
}

// This second reading agrees with the codec on what both read.
func TestReadingAgreesWithWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 2000 {
		h := wire.Req{Type: []wire.Type{wire.TypeRUDReq, wire.TypeRODReq}[rng.IntN(2)], Next: wire.NextReqStd, PSN: wire.PSN(rng.Uint32()),
			SPDCID: uint16(rng.Uint32()), ClearOff: int16(rng.Uint32())}
		if rng.IntN(2) == 0 {
			h.Flags, h.PSNOffset = wire.FlagSYN|wire.FlagRETX, uint16(rng.IntN(4096))
		} else {
			h.Flags, h.DPDCID = wire.FlagAR, uint16(rng.Uint32())
		}
		q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESREL | wire.SESDC, MsgID: uint16(rng.Uint32()), JobID: 1, Initiator: rng.Uint32(),
			Match: rng.Uint64(), ReqLen: rng.Uint32()}
		if rng.IntN(2) == 0 {
			q.Flags |= wire.SESSOM | wire.SESHD
			q.HeaderData = rng.Uint64()
		} else {
			q.Flags |= wire.SESEOM
			q.MsgOff, q.PayloadLen = rng.Uint32(), uint16(rng.IntN(1<<14))
		}
		r := read(append(q.Append(h.Append(nil)), 1, 2, 3, 0, 0, 0, 0), 4)
		start := uint32(h.PSN) - uint32(h.PSNOffset)
		if r.class != classData || r.psn != uint32(h.PSN) || r.spdcid != h.SPDCID || r.dpdcid != h.DPDCID || r.clear != uint32(h.PSN.Add(int(h.ClearOff))) ||
			r.syn != (h.Flags&wire.FlagSYN != 0) || r.syn && r.start != start || r.retx != r.syn || r.ar == r.syn || r.rod != (h.Type == wire.TypeRODReq) {
			t.Fatalf("%v reads as %v", h, &r)
		}
		if !r.ses || r.opcode != opTSend || r.msgID != q.MsgID || r.tag != q.Match || r.initiator != q.Initiator || r.reqLen != q.ReqLen || !r.dc ||
			r.som != (q.Flags&wire.SESSOM != 0) || r.eom == r.som || r.off != q.MsgOff || r.header != q.HeaderData || r.hasHeader != r.som || r.n != 3 {
			t.Fatalf("%v reads as %v", &q, &r)
		}
		a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, Flags: wire.AckFlagRETX, Req: wire.ReqClose, AckPSNOff: int16(rng.Uint32()), CACK: wire.PSN(rng.Uint32()),
			SPDCID: uint16(rng.Uint32()), DPDCID: uint16(rng.Uint32()), MPR: uint8(rng.Uint32()), SACKOff: int16(rng.Uint32()), SACK: rng.Uint64()}
		p := wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch}
		r = read(append(p.Append(a.Append(nil)), 0, 0, 0, 0), 4)
		if r.class != classAck || r.cack != uint32(a.CACK) || r.ackPSN != uint32(a.AckPSN()) || r.spdcid != a.SPDCID || r.dpdcid != a.DPDCID || r.mpr != a.MPR ||
			r.sackBase != uint32(a.CACK.Add(int(a.SACKOff))) || r.sack != a.SACK || !r.closing || !r.retx || r.rc != uint8(wire.RCNoMatch) {
			t.Fatalf("%v reads as %v", &a, &r)
		}
		c := wire.CP{Ctl: wire.CtlClear, SPDCID: 3, DPDCID: 4, Payload: rng.Uint32()}
		if r = read(append(c.Append(nil), 0, 0, 0, 0), 4); r.class != classCP || r.clear != c.Payload || r.consumes() {
			t.Fatalf("%v reads as %v", c, &r)
		}
		n := wire.Nack{Type: wire.TypeNack, Code: wire.NackRODOOO, PSN: wire.PSN(rng.Uint32()), SPDCID: 7, DPDCID: 8}
		if r = read(append(n.Append(nil), 0, 0, 0, 0), 4); r.class != classNack || r.code != uint8(n.Code) || r.psn != uint32(n.PSN) {
			t.Fatalf("%v reads as %v", n, &r)
		}
	}
}

func TestTrailerAgreesWithWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		src, dst := netip.MustParseAddrPort("10.1.2.3:4793"), netip.MustParseAddrPort("10.3.2.1:5000")
		if rng.IntN(2) == 0 {
			src, dst = netip.MustParseAddrPort("[fd00::1]:4793"), netip.MustParseAddrPort("[fd00::2]:9")
		}
		b := make([]byte, 12+rng.IntN(1500))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		p := wire.CRCPrefix(src.Addr(), dst.Addr(), src.Port(), dst.Port(), uint16(8+len(b)+4))
		if !crcOK(src, dst, wire.AppendCRC(b, 0, p)) {
			t.Fatal("the two readings of the trailer differ")
		}
	}
}
