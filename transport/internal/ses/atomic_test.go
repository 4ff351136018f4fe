package ses

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

var native = binary.NativeEndian

// An amoRig is two SES, of which b has a region of 4,096 bytes, in two parts, under key 5.
type amoRig struct {
	t      *testing.T
	a, b   *SES
	parts  [2][]byte
	region *Region
}

func newAMORig(t *testing.T, access Access) *amoRig {
	t.Helper()
	g := &amoRig{t: t, a: New(testConfig()), b: New(testConfig())}
	for i := range g.parts {
		words := make([]uint64, 256) // aligned
		b := make([]byte, 0, 8*len(words))
		for range words {
			b = native.AppendUint64(b, 0)
		}
		g.parts[i] = b
	}
	var err error
	g.region, err = g.b.Register(RegionConfig{Key: 5, Iov: g.parts[:], Access: access, Endpoint: AllEndpoints})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const allAccess = RemoteRead | RemoteWrite | RemoteAtomic

// op makes an atomic operation on the region.
func (g *amoRig) op(kind Kind, addr uint64, a *AMO, buf []byte) *Op {
	cfg := testConfig()
	return &Op{Kind: kind, Peer: 2, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Key: 5, RemoteAddr: addr, Buf: buf, AMO: a, Context: "op"}
}

// request hands out the one packet of an operation.
func (g *amoRig) request(op *Op) (Handle, piece.Piece, []byte) {
	g.t.Helper()
	h, err := g.a.send(1, op)
	if err != nil {
		g.t.Fatal(err)
	}
	g.a.On(h, 7)
	p, ok := g.a.Peek(h, 1024)
	if !ok || !p.Last() {
		g.t.Fatalf("piece %+v, %v", p, ok)
	}
	return h, p, g.a.AppendPiece(nil, p)
}

// returns carries what b returns to a.
func (g *amoRig) returns() {
	g.t.Helper()
	for pdc, ok := g.b.Owing(); ok; pdc, ok = g.b.Owing() {
		for p, ok := g.b.PeekReturn(pdc, 1024); ok; p, ok = g.b.PeekReturn(pdc, 1024) {
			pkt := g.b.AppendReturn(nil, p)
			if again := g.b.Append(nil, p); !bytes.Equal(again, pkt) {
				g.t.Errorf("sent again it is %x, and was %x", again, pkt)
			}
			if res := g.a.Request(&Source{Peer: 2, PDC: 7}, wire.NextRspData, pkt); res.Bad || res.Nack != 0 || res.Gtd {
				g.t.Fatalf("%+v", res)
			}
			g.b.Answered(Handle(p.Msg), nil)
		}
	}
}

// answered gives a the latest answer of b, with its data.
func (g *amoRig) answered(h Handle) {
	res := g.b.res
	if res.Rsp.Opcode == wire.RspWithData {
		r := &res.Rsp
		g.a.ReadData(7, &wire.RspData{RC: r.RC, MsgID: r.MsgID, ReadMsgID: r.MsgID, JobID: r.JobID, PayloadLen: uint16(len(res.Data)), ModLen: r.ModLen}, res.Data)
	}
	g.a.Answered(h, &res.Rsp)
}

// run executes an operation and returns its event.
func (g *amoRig) run(op *Op) *Event {
	g.t.Helper()
	h, _, pkt := g.request(op)
	rsp := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt).Rsp
	g.answered(h)
	g.returns()
	e := g.a.Event()
	if e == nil {
		g.t.Fatalf("no event, the answer was %v", rsp.String())
	}
	if !g.a.Idle() || !g.b.Idle() || g.b.fetched != 0 || len(g.b.serveOf) != 0 {
		g.t.Fatal("something is left")
	}
	return e
}

// S-AMO-01, S-AMO-02, S-AMO-03, S-AMO-06, R-AMO-01..04, R-AMO-07, R-AMO-08, R-AMO-16: each operation on each type does what package
// amo says, over the wire, and fetches the old values; what there is not is refused and changes nothing.
func TestAtomicDoesWhatItSays(t *testing.T) {
	g := newAMORig(t, allAccess)
	rng := rand.New(rand.NewPCG(1, 2))
	done := 0
	for typ := wire.Int8; typ <= wire.FP16+1; typ++ {
		for op := wire.AtomicMin; op <= wire.AtomicInval; op++ {
			for _, f := range []amo.Family{amo.Base, amo.Fetch, amo.Compare} {
				if (f == amo.Compare) != op.Compares() || f == amo.Base && op == wire.AtomicRead {
					continue
				}
				size := max(typ.Size(), 1)
				count := 1 + rng.IntN(MaxAtomic/size)
				if f == amo.Compare {
					count = 1
				}
				addr := uint64(rng.IntN((2048-count*size)/16+1) * 16)
				part := g.parts[0]
				if rng.IntN(2) == 0 {
					addr, part = addr+2048, g.parts[1]
				}
				memory := part[addr%2048:][:count*size]
				for i := range memory {
					memory[i] = byte(rng.Uint32())
				}
				before := bytes.Clone(memory)
				a := &AMO{Op: op, Type: typ}
				operand := make([]byte, count*size)
				for i := range operand {
					operand[i] = byte(rng.Uint32())
				}
				kind := EvAtomic
				if f != amo.Base {
					kind, a.Result = EvFetch, make([]byte, count*size)
				}
				if f == amo.Compare {
					a.Compare = bytes.Clone(operand)
					if rng.IntN(2) == 0 {
						a.Compare = bytes.Clone(memory)
					}
				}
				if op == wire.AtomicRead {
					a.Bytes, operand = len(operand), nil
				}
				e := g.run(g.op(kind, addr, a, bytes.Clone(operand)))
				if rc := amo.Valid(f, op, typ); rc != wire.RCNull {
					if e.Cause != Rejected || e.RC != rc || !bytes.Equal(memory, before) {
						t.Fatalf("%v %v: %v %v, want %v", op, typ, e.Cause, e.RC, rc)
					}
					continue
				}
				if e.Cause != OK || e.Kind != kind {
					t.Fatalf("%v %v of %d: %v %v", op, typ, count, e.Cause, e.RC)
				}
				amo.Swap(operand, typ)
				compare := bytes.Clone(a.Compare)
				amo.Swap(compare, typ)
				want := make([]byte, 16+len(before))
				want = want[(16-int(address(want)%16))%16:][:len(before)]
				copy(want, before)
				if _, rc := amo.Apply(nil, op, typ, want, operand, compare); rc != wire.RCNull {
					t.Fatal(rc)
				}
				if !bytes.Equal(memory, want) {
					t.Fatalf("%v %v: %x became %x, want %x", op, typ, before, memory, want)
				}
				if f != amo.Base && !bytes.Equal(a.Result, before) {
					t.Fatalf("%v %v: fetched %x, was %x", op, typ, a.Result, before)
				}
				done++
			}
		}
	}
	if done < 300 {
		t.Errorf("only %d operations", done)
	}
}

// S-AMO-02: a compare-and-swap may have the length of its operand or of both slots.
func TestAtomicSwapLengths(t *testing.T) {
	for _, n := range []uint32{8, 32, 16} {
		g := newAMORig(t, allAccess)
		native.PutUint64(g.parts[0], 41)
		h, p, _ := g.request(g.op(EvFetch, 0, &AMO{Op: wire.AtomicCSwap, Type: wire.Uint64, Compare: native.AppendUint64(nil, 41), Result: make([]byte, 8)}, native.AppendUint64(nil, 42)))
		g.a.sends.at(int32(h & 0xffff)).operands = n
		res := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, g.a.Append(nil, p))
		if want := n != 16; (res.Rsp.RC == wire.RCOK) != want || (native.Uint64(g.parts[0]) == 42) != want {
			t.Errorf("%d bytes: %v, %d", n, res.Rsp.RC, native.Uint64(g.parts[0]))
		}
	}
}

// R-AMO-11, S-AMO-07, S-AMO-08, S-ERR-04: what is not allowed is refused and changes nothing.
func TestAtomicRefused(t *testing.T) {
	add := func(kind Kind, addr uint64, n int) func(g *amoRig) *Op {
		return func(g *amoRig) *Op {
			a := &AMO{Op: wire.AtomicSum, Type: wire.Uint64}
			if kind == EvFetch {
				a.Result = make([]byte, n)
			}
			return g.op(kind, addr, a, bytes.Repeat([]byte{1}, n))
		}
	}
	for name, c := range map[string]struct {
		access Access
		op     func(g *amoRig) *Op
		change func(r *wire.ReqStd, ext []byte)
		want   wire.RC
	}{
		"no atomics":                   {RemoteRead | RemoteWrite, add(EvAtomic, 0, 8), nil, wire.RCPermViolation},
		"no write":                     {RemoteRead | RemoteAtomic, add(EvAtomic, 0, 8), nil, wire.RCPermViolation},
		"no read":                      {RemoteWrite | RemoteAtomic, add(EvFetch, 0, 8), nil, wire.RCPermViolation},
		"beyond the end":               {allAccess, add(EvAtomic, 4096, 8), nil, wire.RCBadAddr},
		"over the end":                 {allAccess, add(EvFetch, 4088, 16), nil, wire.RCBadAddr},
		"over the last address":        {allAccess, add(EvFetch, ^uint64(7), 16), nil, wire.RCBadAddr},
		"in two parts":                 {allAccess, add(EvAtomic, 2040, 16), nil, wire.RCBadAddr},
		"not aligned":                  {allAccess, add(EvFetch, 4, 8), nil, wire.RCAMOUnaligned},
		"key":                          {allAccess, add(EvAtomic, 0, 8), func(r *wire.ReqStd, _ []byte) { r.Match = 6 }, wire.RCBadMKey},
		"generation":                   {allAccess, add(EvAtomic, 0, 8), func(r *wire.ReqStd, _ []byte) { r.Gen = 1 }, wire.RCBadGeneration},
		"initiator error":              {allAccess, add(EvAtomic, 0, 8), func(r *wire.ReqStd, _ []byte) { r.Flags |= wire.SESIE }, wire.RCInitiatorError},
		"not a whole message":          {allAccess, add(EvAtomic, 0, 8), func(r *wire.ReqStd, _ []byte) { r.Flags &^= wire.SESEOM }, wire.RCOpViolation},
		"no operands":                  {allAccess, add(EvFetch, 0, 8), func(r *wire.ReqStd, _ []byte) { r.ReqLen = 0 }, wire.RCAMOUnsupportedSize},
		"more than there are":          {allAccess, add(EvFetch, 0, 8), func(r *wire.ReqStd, _ []byte) { r.ReqLen = 16 }, wire.RCAMOUnsupportedSize},
		"half an element":              {allAccess, add(EvFetch, 0, 16), func(r *wire.ReqStd, _ []byte) { r.ReqLen = 12 }, wire.RCAMOUnsupportedSize},
		"a length of 4 GiB":            {allAccess, add(EvFetch, 0, 8), func(r *wire.ReqStd, ext []byte) { r.ReqLen, ext[0] = 1<<32-8, byte(wire.AtomicRead) }, wire.RCAMOUnsupportedSize},
		"unknown type":                 {allAccess, add(EvFetch, 0, 8), func(_ *wire.ReqStd, ext []byte) { ext[1] = 0x40 }, wire.RCAMOUnsupportedDT},
		"unknown operation":            {allAccess, add(EvFetch, 0, 8), func(_ *wire.ReqStd, ext []byte) { ext[0] = 0x40 }, wire.RCAMOUnsupportedOp},
		"no operation":                 {allAccess, add(EvFetch, 0, 8), func(_ *wire.ReqStd, ext []byte) { ext[0] = byte(wire.AtomicInval) }, wire.RCAMOUnsupportedOp},
		"swap without its extension":   {allAccess, add(EvFetch, 0, 8), func(_ *wire.ReqStd, ext []byte) { ext[0] = byte(wire.AtomicCSwap) }, wire.RCOpViolation},
		"compare that fetches nothing": {allAccess, add(EvAtomic, 0, 64), func(r *wire.ReqStd, ext []byte) { r.ReqLen, ext[0] = 8, byte(wire.AtomicCSwap) }, wire.RCAMOUnsupportedOp},
		"read that fetches nothing":    {allAccess, add(EvAtomic, 0, 8), func(_ *wire.ReqStd, ext []byte) { ext[0] = byte(wire.AtomicRead) }, wire.RCAMOUnsupportedOp},
		"swap of what is too long for it": {allAccess, add(EvFetch, 0, 64), func(r *wire.ReqStd, ext []byte) {
			r.ReqLen, ext[0], ext[1] = 32, byte(wire.AtomicCSwap), byte(wire.LongDoubleComplex)
		}, wire.RCAMOUnsupportedDT},
	} {
		t.Run(name, func(t *testing.T) {
			g := newAMORig(t, c.access)
			h, _, pkt := g.request(c.op(g))
			if c.change != nil {
				var r wire.ReqStd
				n, err := r.Parse(pkt)
				if err != nil {
					t.Fatal(err)
				}
				c.change(&r, pkt[n:])
				pkt = append(r.Append(nil), pkt[n:]...)
			}
			res := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt)
			if res.Bad || res.Nack != 0 || res.Rsp.RC != c.want || !res.Gtd {
				t.Errorf("answer %v, want %v", res.Rsp.String(), c.want)
			}
			for _, p := range g.parts {
				if !bytes.Equal(p, make([]byte, len(p))) {
					t.Error("memory has changed")
				}
			}
			if !g.b.Idle() || g.b.fetched != 0 {
				t.Error("something is left at the target")
			}
			rsp := res.Rsp
			g.a.Answered(h, &rsp)
			if c.want == wire.RCBadGeneration {
				return // it goes again, with the generation of the answer (S-GEN-03)
			}
			if e := g.a.Event(); e == nil || e.Cause != Rejected || e.RC != c.want || e.Unknown {
				t.Errorf("%+v", e)
			}
		})
	}
}

// S-AMO-05: an operation whose answer does not come may have been executed, and is not sent again; one
// that was refused for now is. A fetching one that was executed waits for the old values.
func TestAtomicEndsOnce(t *testing.T) {
	sum := func(kind Kind) *AMO {
		a := &AMO{Op: wire.AtomicSum, Type: wire.Uint64}
		if kind == EvFetch {
			a.Result = make([]byte, 8)
		}
		return a
	}
	for _, kind := range []Kind{EvAtomic, EvFetch} {
		g := newAMORig(t, allAccess)
		one := native.AppendUint64(nil, 1)
		h, _, _ := g.request(g.op(kind, 0, sum(kind), one))
		g.a.Failed(h, TimedOut, 0)
		if e := g.a.Event(); e == nil || e.Cause != TimedOut || !e.Unknown {
			t.Errorf("%v: %+v", kind, e)
		}
		h, _, _ = g.request(g.op(kind, 0, sum(kind), one))
		g.a.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUncorTrnsnt, MsgID: g.a.lastID})
		if e := g.a.Event(); e == nil || e.Cause != Rejected {
			t.Errorf("%v after UNCOR_TRNSNT: %+v", kind, e)
		}
		if !g.a.Idle() {
			t.Errorf("%v: something is left", kind)
		}
	}
	g := newAMORig(t, allAccess)
	h, _, _ := g.request(g.op(EvFetch, 0, sum(EvFetch), native.AppendUint64(nil, 1)))
	g.a.Answered(h, nil)
	if e := g.a.Event(); e != nil {
		t.Fatalf("ended without the old value: %+v", e)
	}
	g.a.PDCGone(7, Aborted)
	if e := g.a.Event(); e == nil || e.Cause != Aborted || !e.Unknown || !g.a.Idle() {
		t.Errorf("%+v", e)
	}
}

// S-RSP-02, S-AMO-03: old values have room before anything is executed, and it is free when they have come. They
// come though the region was removed meanwhile.
func TestAtomicKeepsWhatItFetched(t *testing.T) {
	g := newAMORig(t, allAccess)
	g.b.fetched = maxFetched - 23
	_, p, pkt := g.request(g.op(EvFetch, 8, &AMO{Op: wire.AtomicSum, Type: wire.Uint64, Result: make([]byte, 24)}, slices.Repeat(native.AppendUint64(nil, 3), 3)))
	if res := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt); res.Nack != wire.NackNoSESMsgAvail {
		t.Fatalf("%+v", res)
	}
	if native.Uint64(g.parts[0][8:]) != 0 {
		t.Fatal("it was executed")
	}
	g.b.fetched = 0
	native.PutUint64(g.parts[0][8:], 39)
	res := g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, g.a.Append(nil, p))
	if res.Rsp.RC != wire.RCOK || g.b.fetched != 24 {
		t.Fatalf("%v, %d bytes are kept", res.Rsp.RC, g.b.fetched)
	}
	g.b.Deregister(g.region)
	rsp := res.Rsp
	g.a.Answered(Handle(p.Msg), &rsp)
	g.returns()
	if e := g.a.Event(); e == nil || e.Cause != OK {
		t.Errorf("%+v", e)
	}
	if native.Uint64(g.parts[0][8:]) != 42 || g.b.fetched != 0 || !g.b.Idle() {
		t.Errorf("%d in memory, %d bytes are kept", native.Uint64(g.parts[0][8:]), g.b.fetched)
	}
}

// R-AMO-09: an operation with header data, or on a region that counts, is told of at the target when it
// was executed.
func TestAtomicIsToldOf(t *testing.T) {
	g := newAMORig(t, allAccess)
	g.region.Counts = true
	for _, kind := range []Kind{EvAtomic, EvFetch} {
		a := &AMO{Op: wire.AtomicSum, Type: wire.Uint64}
		if kind == EvFetch {
			a.Result = make([]byte, 8)
		}
		op := g.op(kind, 16, a, native.AppendUint64(nil, 1))
		op.HasData, op.Data = true, 77
		h, _, pkt := g.request(op)
		g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt)
		e := g.b.Event()
		if e == nil || e.Kind != EvRemoteAtomic || !e.HasData || e.Data != 77 || e.Len != 8 {
			t.Fatalf("%+v", e)
		}
		g.answered(h)
		g.returns()
		if e := g.a.Event(); e == nil || e.Cause != OK {
			t.Fatalf("%+v", e)
		}
	}
	if native.Uint64(g.parts[0][16:]) != 2 {
		t.Error(native.Uint64(g.parts[0][16:]))
	}
}

// address is where memory begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
