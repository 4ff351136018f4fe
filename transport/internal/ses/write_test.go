package ses

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

var forged = flag.Int("forged", 200_000, "TestForged*: send this many requests")

func TestForgedWritesStayInside(t *testing.T) {
	// S-RMA-01, S-RMA-03: whatever the fields of a request are, it writes inside the region that
	// its key names, or nothing; and after Deregister nothing (R-MR-12).
	g := newRig(t)
	rng := rand.New(rand.NewPCG(5, 6))
	const size, guard = 3000, 64
	mem := bytes.Repeat([]byte{0xee}, size+2*guard)
	readOnly := bytes.Repeat([]byte{0xee}, size)
	open := g.region(RegionConfig{Key: 1, Buf: mem[guard : guard+size], Access: RemoteWrite})
	g.region(RegionConfig{Key: 2, Buf: readOnly, Access: RemoteRead})
	g.region(RegionConfig{Key: 3, Buf: readOnly, Access: RemoteWrite, JobID: 9})
	const top = ^uint64(0)
	addrs := []uint64{0, 1, size - 1, size, size + 1, 1 << 32, top, top - 1, top - size, 1 << 63}
	lens := []uint32{0, 1, 100, 1024, 2048, size, size + 1, 1<<32 - 1, 1<<32 - 2, 1 << 31}
	body := bytes.Repeat([]byte{0x11}, 2000)
	written := 0
	for i := range *forged {
		if i == *forged/4*3 {
			wantGuards(t, mem, guard)
			copy(mem, bytes.Repeat([]byte{0xee}, len(mem)))
			g.Deregister(open)
		}
		r := wire.ReqStd{Opcode: wire.OpWrite, MsgID: uint16(rng.IntN(4)), JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI,
			BufOff: addrs[rng.IntN(len(addrs))], Match: uint64(rng.IntN(5)), ReqLen: lens[rng.IntN(len(lens))], MsgOff: uint32(addrs[rng.IntN(len(addrs))])}
		if rng.IntN(3) == 0 {
			r.BufOff, r.ReqLen = uint64(rng.IntN(size)), uint32(rng.IntN(size))
		}
		r.Flags = wire.SESFlags(rng.IntN(64)) | wire.SESREL
		if rng.IntN(3) == 0 {
			r.Flags |= single
		}
		if r.Flags&wire.SESSOM == 0 {
			r.PayloadLen = uint16(rng.IntN(1500))
			if rng.IntN(2) == 0 {
				r.MsgOff = uint32(rng.IntN(size))
			}
		} else {
			r.MsgOff = 0
		}
		if rng.IntN(20) == 0 {
			r.JobID++
		}
		src := Source{Peer: uint32(1 + rng.IntN(3)), PDC: uint32(1 + rng.IntN(5)), Unproven: rng.IntN(2) == 0}
		res := g.deliver(src, append(r.Append(nil), body[:rng.IntN(len(body))]...))
		if res.Rsp.RC == wire.RCOK && res.Nack == 0 {
			written++
		}
		for e := g.Event(); e != nil; e = g.Event() {
			if e.Kind != EvRemoteWrite || !e.HasData {
				t.Fatalf("%+v", *e)
			}
		}
	}
	if written < 1000 {
		t.Fatalf("only %d writes were accepted", written)
	}
	if bytes.IndexByte(mem, 0x11) >= 0 {
		t.Error("a byte was written after Deregister")
	}
	if bytes.IndexByte(readOnly, 0x11) >= 0 {
		t.Error("a byte was written without the right")
	}
	for pdc := range uint32(6) {
		g.PDCGone(pdc, Aborted)
	}
	if g.writing != 0 || g.unproven.writing != 0 {
		t.Errorf("%d writes are counted as open, %d of unproven sources", g.writing, g.unproven.writing)
	}
	g.rest()
}

// wantGuards fails the test if the bytes around a region were written.
func wantGuards(t *testing.T, mem []byte, n int) {
	t.Helper()
	want := bytes.Repeat([]byte{0xee}, n)
	if !bytes.Equal(mem[:n], want) || !bytes.Equal(mem[len(mem)-n:], want) {
		t.Fatal("a guard was written")
	}
	if bytes.IndexByte(mem, 0x11) < 0 {
		t.Fatal("nothing was written")
	}
}

func TestUnprovenWritesAreBounded(t *testing.T) {
	// Sources that may be forged together have as many open writes as one peer.
	g := newRig(t, func(c *Config) { c.OpenPerPeer = 3 })
	g.region(RegionConfig{Key: 1, Buf: make([]byte, 3000), Access: RemoteWrite})
	for i := range uint32(5) {
		want := "default OK 2048"
		if i >= 3 {
			want = "nack 09"
		}
		g.want(Source{Peer: 1 + i, PDC: 1 + i, Unproven: true}, g.partOfWrite(1), want)
	}
	g.want(Source{Peer: 9, PDC: 9}, g.partOfWrite(1), "default OK 2048")
	g.PDCGone(2, Aborted)
	g.want(Source{Peer: 5, PDC: 5, Unproven: true}, g.partOfWrite(1), "default OK 2048")
	// One that turns out to be no forgery leaves its share to others.
	g.want(Source{Peer: 4, PDC: 4, Unproven: true}, g.partOfWrite(1), "nack 09")
	g.Proven(1)
	g.want(Source{Peer: 4, PDC: 4, Unproven: true}, g.partOfWrite(1), "default OK 2048")
	for _, pdc := range []uint32{1, 3, 4, 5, 9} {
		g.PDCGone(pdc, Aborted)
	}
	if g.unproven.writing != 0 {
		t.Errorf("%d are counted of none", g.unproven.writing)
	}
}

// partOfWrite is the first half of a write of 2048 bytes.
func (g *rig) partOfWrite(key uint64) []byte {
	return append(g.req(func(r *wire.ReqStd) {
		r.Opcode, r.Flags, r.Match, r.ReqLen = wire.OpWrite, wire.SESREL|wire.SESSOM, key, 2048
	}), make([]byte, 1024)...)
}

func TestWriteAllocatesNothing(t *testing.T) {
	a, g := other(17), newRig(t)
	g.region(RegionConfig{Key: 1, Buf: make([]byte, 5000), Access: RemoteWrite})
	op := Op{Kind: EvWrite, Key: 1, RemoteAddr: 7, Buf: pattern(2500), PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, JobID: g.cfg.JobID}
	b := make([]byte, 0, 4096)
	write := func() {
		h, err := a.send(0, &op)
		if err != nil {
			t.Fatal(err)
		}
		for {
			p, ok := a.Peek(h, 1024)
			if !ok {
				break
			}
			b = a.AppendPiece(b[:0], p)
			if res := g.Request(&srcA, wire.NextReqStd, b); res.Rsp.RC != wire.RCOK {
				t.Fatal(answer(res))
			}
		}
		for range 3 {
			a.Answered(h, nil)
		}
		if e := a.Event(); e == nil || e.Kind != EvWrite || e.Cause != OK {
			t.Fatal(e)
		}
	}
	if n := testing.AllocsPerRun(100, write); n != 0 {
		t.Errorf("%v allocations for a write", n)
	}
	// R-RMA-01: a send that takes its place has no address.
	h, _ := a.send(0, &Op{Kind: EvSend, Buf: pattern(10)})
	p, _ := a.Peek(h, 1024)
	if r, _, _ := wire.ParseReqStd(a.AppendPiece(nil, p)); r.BufOff != 0 || r.Match != 0 {
		t.Errorf("%v", &r)
	}
}

func TestForgedReadsAndAtomicsStayInside(t *testing.T) {
	// S-RMA-01, S-RMA-03, S-RMA-10, S-AMO-07: whatever the fields of a read or an atomic operation are, it brings bytes of
	// the region that its key names, and changes these, or does nothing; and after Deregister nothing (R-MR-12).
	g := newRig(t)
	rng := rand.New(rand.NewPCG(7, 8))
	const size, guard = 3000, 64
	const in, out = 0x22, 0xee
	mem := bytes.Repeat([]byte{out}, size+2*guard)
	inside := mem[guard : guard+size]
	words := bytes.Repeat([]byte{out}, size+2*guard)
	secret := bytes.Repeat([]byte{out}, size)
	for i := range inside {
		inside[i] = in
	}
	all := RemoteRead | RemoteWrite | RemoteAtomic
	open := []*Region{g.region(RegionConfig{Key: 1, Buf: inside, Access: RemoteRead}), g.region(RegionConfig{Key: 2, Buf: words[guard : guard+size], Access: all})}
	g.region(RegionConfig{Key: 3, Buf: secret, Access: RemoteWrite}) // no right to read, nor for atomic operations
	g.region(RegionConfig{Key: 5, Buf: secret, Access: all, JobID: 9})
	const top = ^uint64(0)
	addrs := []uint64{0, 8, size - 8, size - 1, size, size + 1, 1 << 32, top, top - 7, top - size, 1 << 63}
	lens := []uint32{0, 1, 8, 16, 17, 512, 2048, size, size + 1, 1<<32 - 1, 1 << 31}
	reads, atomics, brought := 0, 0, 0
	look := func(b []byte, removed bool) {
		if bytes.IndexByte(b, out) >= 0 || removed && bytes.IndexByte(b, in) >= 0 {
			t.Fatalf("bytes from outside, or of a region that was removed: %x", b[:min(len(b), 64)])
		}
		brought += len(b)
	}
	for i := range *forged {
		removed := i >= *forged/4*3
		if i == *forged/4*3 {
			for _, r := range open {
				g.Deregister(r)
			}
			copy(words, bytes.Repeat([]byte{out}, len(words)))
		}
		r := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESREL, MsgID: uint16(rng.IntN(4)), JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI,
			BufOff: addrs[rng.IntN(len(addrs))], Match: uint64(rng.IntN(7)), ReqLen: lens[rng.IntN(len(lens))], MsgOff: uint32(addrs[rng.IntN(len(addrs))])}
		if rng.IntN(2) == 0 {
			r.BufOff, r.ReqLen = uint64(rng.IntN(size))&^7, uint32(rng.IntN(size))
		}
		if r.Flags |= wire.SESFlags(rng.IntN(64)); rng.IntN(3) > 0 {
			r.Flags = wire.SESREL | single
		}
		if r.Flags&wire.SESSOM == 0 {
			r.PayloadLen = uint16(rng.IntN(1500))
		}
		if r.HeaderData = uint64(lens[rng.IntN(len(lens))]) << 32; rng.IntN(20) == 0 {
			r.JobID++
		}
		var body []byte
		if rng.IntN(2) == 0 {
			r.Opcode = wire.OpAtomic + wire.Opcode(rng.IntN(2))
			if r.Match == 1 {
				r.Match = 2
			}
			if rng.IntN(2) == 0 {
				r.ReqLen = []uint32{1, 2, 4, 8, 16, 32, 64}[rng.IntN(7)]
			}
			body = wire.Atomic{Op: wire.AtomicOp(rng.IntN(0x16)), Type: wire.AtomicType(rng.IntN(0x13))}.Append(nil)
			body = append(body, bytes.Repeat([]byte{0x11}, rng.IntN(100))...)
		}
		src := Source{Peer: uint32(1 + rng.IntN(3)), PDC: uint32(1 + rng.IntN(5)), Unproven: rng.IntN(4) == 0}
		res := g.deliver(src, append(r.Append(nil), body...))
		if res.Nack == 0 && res.Rsp.RC == wire.RCOK {
			if r.Opcode == wire.OpRead {
				reads++
			} else {
				atomics++
			}
			if r.Opcode == wire.OpRead && res.Rsp.Opcode == wire.RspWithData && r.Match != 2 {
				look(res.Data, removed)
			}
		}
		for pdc, ok := g.Owing(); ok; pdc, ok = g.Owing() {
			for p, ok := g.PeekReturn(pdc, 1024); ok; p, ok = g.PeekReturn(pdc, 1024) {
				sv := g.serves.at(int32(p.Msg - 1))
				key := sv.region.Key
				b := g.AppendReturn(nil, p)
				if key != 2 { // which anything is done to
					look(b[wire.RspDataLen:], removed)
				}
				g.Answered(Handle(p.Msg), nil)
			}
		}
		for e := g.Event(); e != nil; e = g.Event() {
			if e.Kind != EvRemoteAtomic {
				t.Fatalf("%+v", *e)
			}
		}
	}
	if reads < *forged/100 || atomics < *forged/200 || brought == 0 {
		t.Fatalf("only %d reads and %d atomic operations were accepted, %d bytes came", reads, atomics, brought)
	}
	for name, b := range map[string][]byte{"a guard": words[:guard], "the other guard": words[guard+size:], "what was removed": words[guard : guard+size], "memory without the right": secret, "the first": mem[:guard], "the last": mem[guard+size:]} {
		if !bytes.Equal(b, bytes.Repeat([]byte{out}, len(b))) {
			t.Errorf("%s changed", name)
		}
	}
	for pdc := range uint32(6) {
		g.PDCGone(pdc, Aborted)
	}
	g.rest()
}

// S-RMA-56, R-MR-12: the packets of a write are placed as they come, in any order, in the region that the first one found: if that
// is removed the rest is refused, though another one has the key.
func TestWriteStaysInItsRegion(t *testing.T) {
	body := pattern(3000)
	part := func(g *rig, off, n int) *Result {
		return g.answerOf(func(r *wire.ReqStd) {
			r.Opcode, r.Flags, r.ReqLen = wire.OpWrite, wire.SESREL, 3000
			if off == 0 {
				r.Flags |= wire.SESSOM
			} else {
				r.MsgOff, r.PayloadLen = uint32(off), uint16(n)
			}
			if off+n == 3000 {
				r.Flags |= wire.SESEOM
			}
		}, body[off:off+n])
	}
	for removed := range 3 {
		g := newRig(t)
		first, second := make([]byte, 3000), make([]byte, 3000)
		region := g.region(RegionConfig{Key: 1, Buf: first, Access: RemoteWrite})
		for k, off := range []int{2000, 0, 1000} {
			want := wire.RCOK
			if removed > 0 && k >= removed {
				want = wire.RCBadMKey
			}
			if removed > 0 && k == removed {
				g.Deregister(region)
				g.region(RegionConfig{Key: 1, Buf: second, Access: RemoteWrite})
			}
			if res := part(g, off, 1000); res.Rsp.RC != want {
				t.Fatalf("removed before packet %d, packet %d: %v, want %v", removed, k, res.Rsp.RC, want)
			}
			if want == wire.RCOK {
				wantBytes(t, first[off:off+1000], body[off:off+1000])
			}
		}
		wantBytes(t, second, make([]byte, 3000))
		g.PDCGone(srcA.PDC, Aborted)
	}
}

// S-RMA-57: a write with header data without room for its completion is refused for now: if it is one packet nothing is written,
// of several packets the one that would complete it comes again. One without header data needs no room.
func TestWriteWithDataWaitsForRoom(t *testing.T) {
	for _, hasData := range []bool{false, true} {
		room := false
		g := newRig(t, func(c *Config) { c.Admit = func() bool { return room } })
		mem := make([]byte, 2048)
		g.region(RegionConfig{Key: 1, Buf: mem, Access: RemoteWrite})
		body := pattern(2048)
		flags := wire.SESREL
		if hasData {
			flags |= wire.SESHD
		}
		short := g.req(func(r *wire.ReqStd) {
			r.Opcode, r.Flags, r.Match, r.ReqLen, r.MsgID = wire.OpWrite, flags|single, 1, 8, 3
		})
		short = append(short, body[:8]...)
		half := g.req(func(r *wire.ReqStd) {
			r.Opcode, r.Flags, r.Match, r.ReqLen, r.MsgID = wire.OpWrite, flags|wire.SESSOM, 1, 2048, 4
		})
		half = append(half, body[:1024]...)
		rest := g.req(func(r *wire.ReqStd) {
			r.Opcode, r.Flags, r.Match, r.ReqLen, r.MsgID = wire.OpWrite, wire.SESREL|wire.SESEOM, 1, 2048, 4
			r.MsgOff, r.PayloadLen = 1024, 1024
		})
		rest = append(rest, body[1024:]...)
		if !hasData {
			g.want(srcA, short, "default OK 8")
			g.want(srcA, half, "default OK 2048")
			g.want(srcA, rest, "default OK 2048")
			g.quiet()
			continue
		}
		g.want(srcA, short, "nack 09")
		wantBytes(t, mem, make([]byte, 2048))
		g.want(srcA, half, "default OK 2048")
		g.want(srcA, rest, "nack 09")
		g.quiet()
		room = true
		g.want(srcA, rest, "default OK 2048")
		if e := g.event(); e.Kind != EvRemoteWrite || e.Len != 2048 || !e.HasData {
			t.Errorf("%+v", e)
		}
		g.want(srcA, short, "default OK 8")
		if e := g.event(); e.Kind != EvRemoteWrite || e.Len != 8 {
			t.Errorf("%+v", e)
		}
		wantBytes(t, mem, body)
	}
}
