package ses

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// req is a request to g's own endpoint.
func (g *rig) req(change func(*wire.ReqStd)) []byte {
	r := wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESREL | single, MsgID: 0x0102, JobID: g.cfg.JobID,
		PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Initiator: 16}
	change(&r)
	return r.Append(nil)
}

func TestRequestCheckOrder(t *testing.T) {
	// S-ERR-54: the first check that fails gives the answer. Each row breaks one thing; all
	// rows after it are broken as well.
	g := newRig(t)
	rows := []struct {
		name  string
		want  string
		wrong func(*wire.ReqStd)
	}{
		{"JobID, relative", "response BAD_JOB_ID 0 gtd", func(r *wire.ReqStd) { r.JobID++ }},
		{"PIDonFEP", "response BAD_PID 0 gtd", func(r *wire.ReqStd) { r.PIDonFEP++ }},
		{"RI", "response BAD_INDEX 0 gtd", func(r *wire.ReqStd) { r.RI++ }},
		{"opcode", "response UNSUPPORTED_OP 0 gtd", func(r *wire.ReqStd) { r.Opcode = wire.OpDatagramSend }},
		{"length", "response OP_VIOLATION 0 gtd", func(r *wire.ReqStd) { r.ReqLen = 1 }},
		{"S-GEN-02 generation", "response BAD_GENERATION 0 gtd", func(r *wire.ReqStd) { r.Gen = 3 }},
		{"S-MSC-05 IE", "response INITIATOR_ERROR 0 gtd", func(r *wire.ReqStd) { r.Flags |= wire.SESIE }},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			g.t = t
			g.recv(Recv{Context: i})
			g.want(srcA, g.req(row.wrong), row.want)
			g.want(srcA, g.req(func(r *wire.ReqStd) {
				for _, behind := range rows[i:] {
					behind.wrong(r)
				}
			}), row.want)
			g.quiet() // the receive was not touched
		})
	}
	g.t = t
	g.want(srcA, g.req(func(r *wire.ReqStd) { r.JobID++; r.Flags &^= wire.SESREL }), "response PERM_VIOLATION 0 gtd")
	g.want(srcA, g.req(func(r *wire.ReqStd) { r.Flags &^= wire.SESREL }), "default OK 0") // S-ADDR-02
	g.wantEvent(EvRecv, OK, 0, 0)
	for range rows[1:] {
		g.want(srcA, g.req(func(r *wire.ReqStd) {}), "default OK 0")
		g.event()
	}
	g.rest()
}

func TestRequestForeignJobLearnsNothing(t *testing.T) {
	// T17: the answer is the same whether or not the rest of the name exists, whatever the
	// packet is.
	for _, rel := range []wire.SESFlags{0, wire.SESREL} {
		g := newRig(t)
		g.recv(Recv{})
		want := ""
		for _, change := range []func(*wire.ReqStd){
			func(r *wire.ReqStd) {},
			func(r *wire.ReqStd) { r.PIDonFEP++ },
			func(r *wire.ReqStd) { r.RI++ },
			func(r *wire.ReqStd) { r.Opcode = wire.OpRead },
			func(r *wire.ReqStd) { r.Opcode = wire.OpMsgError },
			func(r *wire.ReqStd) { r.Flags &^= single; r.MsgOff = 5 },
		} {
			got := answer(g.deliver(srcA, g.req(func(r *wire.ReqStd) { r.JobID++; r.Flags = single | rel; change(r) })))
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		if g.in.live() != 0 {
			t.Fatal("a foreign job has state")
		}
		g.quiet()
	}
}

func TestRequestOpcodes(t *testing.T) {
	// S-UUD-02: DATAGRAM_SEND on a PDC is not supported, as what is reserved or of vendors.
	g := newRig(t)
	for op := wire.Opcode(0); op < 0x40; op++ {
		want := "response UNSUPPORTED_OP 0 gtd"
		switch op {
		case wire.OpSend, wire.OpTaggedSend, wire.OpDeferrableSend, wire.OpDeferrableTSend:
			want = "response OK overflow 0 gtd"
		case wire.OpDeferrableRTR: // S-DEF-09
			want = "response UNDELIVERABLE 0 gtd"
		case wire.OpWrite:
			want = "response BAD_MKEY 0 gtd"
		case wire.OpNoOp, wire.OpMsgError: // S-MSC-01, S-MSC-03
			want = "default OK 0"
		case wire.OpRead:
			want = "response BAD_MKEY 0 gtd"
		case wire.OpAtomic, wire.OpFetchAtomic, wire.OpRendezvousSend, wire.OpRendezvousTSend: // there is no extension
			want = "response OP_VIOLATION 0 gtd"
		}
		g.want(srcA, g.req(func(r *wire.ReqStd) { r.Opcode = op }), want)
	}
	if n, _ := g.Unexpected(); n != 4 {
		t.Fatal(n)
	}
	for range 2 {
		g.recv(Recv{})
		g.recv(Recv{Tagged: true})
		g.event()
		g.event()
	}
	g.rest()
}

func TestRequestEchoes(t *testing.T) {
	// S-RSP-04: the response echoes message id and JobID, and has no generation.
	g := newRig(t)
	for _, change := range []func(*wire.ReqStd){
		func(r *wire.ReqStd) {},
		func(r *wire.ReqStd) { r.JobID = 0xabcdef },
		func(r *wire.ReqStd) { r.Opcode = wire.OpNoOp },
		func(r *wire.ReqStd) { r.MsgID = 0 }, // 0 is accepted
	} {
		pkt := g.req(change)
		q, _ := parse(t, pkt)
		r := g.deliver(srcA, pkt)
		if r.Rsp.MsgID != q.MsgID || r.Rsp.JobID != q.JobID || r.Rsp.Gen != 0 {
			t.Fatalf("%+v to %v", r, &q)
		}
		var b []byte
		r.Rsp.Append(b) // must encode
	}
}

func TestRequestPayloadLengths(t *testing.T) {
	// S-RSM-04.
	type m = func(*wire.ReqStd)
	const viol = "response OP_VIOLATION 0 gtd"
	part := func(off uint32, n uint16, req uint32, f wire.SESFlags) m {
		return func(r *wire.ReqStd) { r.Flags, r.MsgOff, r.PayloadLen, r.ReqLen = wire.SESREL|f, off, n, req }
	}
	for _, c := range []struct {
		name    string
		header  m
		payload int
		want    string
	}{
		{"one packet", func(r *wire.ReqStd) { r.ReqLen = 100 }, 100, "response OK overflow 100 gtd"},
		{"padded", func(r *wire.ReqStd) { r.ReqLen = 100 }, 120, "response OK overflow 100 gtd"},
		{"one packet that lacks bytes", func(r *wire.ReqStd) { r.ReqLen = 100 }, 99, viol},
		{"empty with bytes behind", func(r *wire.ReqStd) {}, 10, "response OK overflow 0 gtd"},
		{"first", part(0, 0, 3000, wire.SESSOM), 1024, "response OK overflow 3000 gtd"},
		{"first without payload", part(0, 0, 3000, wire.SESSOM), 0, "response OK overflow 3000 gtd"},
		{"middle", part(1024, 1024, 3000, 0), 1024, "response OK overflow 3000 gtd"},
		{"middle, padded", part(1024, 1024, 3000, 0), 1100, "response OK overflow 3000 gtd"},
		{"middle without payload", part(1024, 0, 3000, 0), 0, viol},
		{"zero at zero", part(0, 0, 0, wire.SESEOM), 0, viol},
		{"cut off", part(1024, 1024, 3000, 0), 1023, viol},
		{"last", part(2048, 952, 3000, wire.SESEOM), 952, "response OK overflow 3000 gtd"},
		{"last not marked", part(2048, 952, 3000, 0), 952, "response OK overflow 3000 gtd"},
		{"EOM before the end", part(1024, 1024, 3000, wire.SESEOM), 1024, viol},
		{"one byte over", part(2048, 953, 3000, 0), 953, viol},
		{"offset beyond", part(3000, 1, 3000, 0), 1, viol},
		{"offset near 2^32", part(0xFFFFFFFF, 1000, 3000, 0), 1000, viol},
		{"sum of 2^32", part(0xFFFFFFFF, 1, 0xFFFFFFFE, 0), 1, viol},
		{"length of 2^32-1", part(0, 100, 0xFFFFFFFF, 0), 100, "response UNSUPPORTED_SIZE 0 gtd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.want(srcA, append(g.req(c.header), make([]byte, c.payload)...), c.want)
		})
	}
}

func TestRequestLargestFitsTheAnswer(t *testing.T) {
	// T31: a datagram that announces 4 GiB (2 where int has 32 bits) is refused for now, and
	// nothing is allocated.
	g := newRig(t)
	pkt := append(g.req(func(r *wire.ReqStd) { r.Flags, r.ReqLen = wire.SESREL|wire.SESSOM, MaxMessage }), make([]byte, 1000)...)
	g.want(srcA, pkt, "nack 09")
	g.rest()
	// If there is a receive, it is placed by offset.
	mib := make([]byte, 1<<20)
	iov := make([][]byte, (MaxMessage+2)>>20)
	for i := range iov {
		iov[i] = mib
	}
	iov[len(iov)-1] = mib[:len(mib)-2]
	g.recv(Recv{Iov: iov})
	placed := "default OK " + strconv.FormatUint(MaxMessage, 10)
	g.want(srcA, pkt, placed)
	last := g.req(func(r *wire.ReqStd) {
		r.Flags, r.ReqLen, r.MsgOff, r.PayloadLen = wire.SESREL|wire.SESEOM, MaxMessage, MaxMessage-3, 3
	})
	g.want(srcA, append(last, 1, 2, 3), placed)
	wantBytes(t, mib[len(mib)-6:], []byte{0, 1, 2, 3, 0, 0})
	if n := allocsPerRun(func() { g.Request(&srcB, wire.NextReqStd, pkt) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	g.PDCGone(srcA.PDC, TimedOut)
	g.wantEvent(EvRecv, TimedOut, nil, 0)
	g.rest()
}

func TestRequestLongerThanTheLimit(t *testing.T) {
	g := newRig(t, func(c *Config) { c.MaxMessage = 16 })
	g.recv(Recv{Buf: make([]byte, 32), Context: 1})
	for n, want := range map[int]string{16: "default OK 16", 17: "response UNSUPPORTED_SIZE 0 gtd"} {
		g.want(srcA, g.untagged(pattern(n), 1024)[0], want)
	}
	g.wantEvent(EvRecv, OK, 1, 16)
	g.rest()
}

func TestRequestVersion(t *testing.T) {
	// S-HDR-06: the answer is UNCOR, with the id and job echoed.
	g := newRig(t)
	g.recv(Recv{})
	for v := byte(1); v < 4; v++ {
		pkt := g.req(func(r *wire.ReqStd) {})
		pkt[1] |= v << 6
		r := g.deliver(srcA, pkt)
		if got := answer(r); got != "response UNCOR 0 gtd" || r.Rsp.MsgID != 0x0102 || r.Rsp.JobID != g.cfg.JobID {
			t.Fatalf("%s %+v", got, r)
		}
		med := wire.ReqMedium{Flags: single, JobID: 5}.Append(nil)
		med[1] |= v << 6
		if r := g.Request(&srcA, wire.NextReqMedium, med); answer(r) != "response UNCOR 0 gtd" || r.Rsp.MsgID != 0 || r.Rsp.JobID != 5 {
			t.Fatalf("%+v", r)
		}
	}
	g.quiet()
}

func TestRequestTooShort(t *testing.T) {
	// S-HDR-08: no answer can be made.
	g := newRig(t)
	pkt := g.req(func(r *wire.ReqStd) {})
	for n := range wire.ReqStdLen {
		g.want(srcA, pkt[:n], "bad 1")
	}
	for n := range wire.ReqMediumLen {
		if got := answer(g.Request(&srcA, wire.NextReqMedium, pkt[:n])); got != "bad 1" {
			t.Fatal(n, got)
		}
	}
	for n := range wire.ReqSmallLen {
		if got := answer(g.Request(&srcA, wire.NextReqSmall, pkt[:n])); got != "bad 1" {
			t.Fatal(n, got)
		}
	}
	for _, next := range []wire.NextHdr{wire.NextNone, wire.NextRsp, 7, 15} {
		if got := answer(g.Request(&srcA, next, pkt)); got != "bad 2" {
			t.Fatal(next, got)
		}
	}
	for n := range wire.RspDataSmallLen {
		if got := answer(g.Request(&srcA, wire.NextRspDataSmall, pkt[:n])); got != "bad 1" {
			t.Fatal(n, got)
		}
	}
	g.rest()
}

func TestRequestMedium(t *testing.T) {
	// S-HDR-07: optimized headers are accepted for messages of one packet.
	g := newRig(t)
	med := func(change func(*wire.ReqMedium), body []byte) string {
		r := wire.ReqMedium{Opcode: wire.OpTaggedSend, Flags: single | wire.SESREL | wire.SESHD, ReqLen: 5, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP,
			RI: g.cfg.RI, Initiator: 21, Match: 7, HeaderData: 99}
		change(&r)
		return answer(g.Request(&srcA, wire.NextReqMedium, append(r.Append(nil), body...)))
	}
	buf := make([]byte, 10)
	g.recv(Recv{Tagged: true, Tag: 7, SourceInitiator: 21, Buf: buf})
	for _, c := range []struct {
		want   string
		change func(*wire.ReqMedium)
	}{
		{"response OP_VIOLATION 0 gtd", func(r *wire.ReqMedium) { r.Flags &^= wire.SESEOM }},
		{"response OP_VIOLATION 0 gtd", func(r *wire.ReqMedium) { r.Flags &^= wire.SESSOM }},
		{"response OP_VIOLATION 0 gtd", func(r *wire.ReqMedium) { r.ReqLen = 6 }},
		{"response BAD_JOB_ID 0 gtd", func(r *wire.ReqMedium) { r.JobID++ }},
		{"response BAD_GENERATION 0 gtd", func(r *wire.ReqMedium) { r.Gen++ }},
		{"response UNSUPPORTED_OP 0 gtd", func(r *wire.ReqMedium) { r.Opcode = wire.OpNoOp }},
		{"response UNSUPPORTED_OP 0 gtd", func(r *wire.ReqMedium) { r.Opcode = wire.OpMsgError }},
		{"default OK 5", func(r *wire.ReqMedium) {}},
	} {
		g.quiet()
		if got := med(c.change, []byte("hello")); got != c.want {
			t.Fatalf("%q, want %q", got, c.want)
		}
	}
	if e := g.event(); e.Len != 5 || string(buf[:5]) != "hello" || e.Data != 99 || e.Initiator != 21 || e.Tag != 7 {
		t.Fatalf("%+v", e)
	}
	small := wire.ReqSmall{Opcode: wire.OpAtomic, Flags: single | wire.SESREL, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI}
	for _, op := range []wire.Opcode{wire.OpTaggedSend, wire.OpSend, wire.OpNoOp} {
		small.Opcode = op
		if got := answer(g.Request(&srcA, wire.NextReqSmall, small.Append(nil))); got != "response UNSUPPORTED_OP 0 gtd" {
			t.Fatal(op, got)
		}
	}
	// S-HDR-04: a medium header with header data has no place for an offset: it is 0.
	mem := make([]byte, 10)
	g.region(RegionConfig{Key: 7, Buf: mem, Access: RemoteWrite})
	for _, data := range []bool{true, false} {
		want := "hello\x00\x00\x00\x00\x00"
		if clear(mem); !data {
			want = "\x00\x00\x00hello\x00\x00"
		}
		got := med(func(r *wire.ReqMedium) {
			if r.Opcode = wire.OpWrite; !data {
				r.Flags &^= wire.SESHD
				r.BufOff, r.HeaderData = 3, 0
			}
		}, []byte("hello"))
		if got != "default OK 5" || string(mem) != want {
			t.Fatalf("with data %v: %s, %q", data, got, mem)
		}
		if data {
			if e := g.event(); !e.HasData || e.Data != 99 {
				t.Fatalf("%+v", e)
			}
		}
	}
	small.Flags &^= wire.SESSOM
	if got := answer(g.Request(&srcA, wire.NextReqSmall, small.Append(nil))); got != "response OP_VIOLATION 0 gtd" {
		t.Fatal(got)
	}
	g.rest()
}

// S-RMA-71: what has no message id is answered by one packet in the small form, which names the PSN of the
// request: in the ACK if it is short, else in the return direction. What no packet takes is refused before
// anything is executed.
func TestAnswersInTheSmallForm(t *testing.T) {
	mem := pattern(4096)
	for _, form := range []wire.NextHdr{wire.NextReqMedium, wire.NextReqSmall} {
		g := newRig(t)
		region, err := g.Register(RegionConfig{Key: wire.MKeyOptimized | 77, Buf: mem, Access: RemoteRead | RemoteWrite | RemoteAtomic, Endpoint: AllEndpoints})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(op wire.Opcode, src Source, n int, body []byte) *Result {
			src.PSN, src.Most = 4711, 1000
			if form == wire.NextReqMedium {
				r := wire.ReqMedium{Opcode: op, Flags: single | wire.SESREL, ReqLen: uint16(n), JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, BufOff: 8, Match: wire.MKeyOptimized | 77}
				return g.Request(&src, form, append(r.Append(nil), body...))
			}
			r := wire.ReqSmall{Opcode: op, Flags: single | wire.SESREL, ReqLen: uint16(n), JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: 77, BufOff: 8}
			return g.Request(&src, form, append(r.Append(nil), body...))
		}
		want := func(res *Result, want string) {
			t.Helper()
			if got := answer(res); got != want {
				t.Fatalf("next_hdr %d: %q, want %q", form, got, want)
			}
		}
		add := func(n int) []byte {
			return append(wire.Atomic{Op: wire.AtomicSum, Type: wire.Uint64}.Append(nil), make([]byte, n)...)
		}
		for _, op := range []wire.Opcode{wire.OpRead, wire.OpFetchAtomic} {
			body := func(n int) []byte {
				if op == wire.OpRead {
					return nil
				}
				return add(n)
			}
			bytesOf := mem
			if op == wire.OpFetchAtomic { // in network order
				bytesOf = bytes.Clone(mem)
				for i := 0; i < len(mem); i += 8 {
					slices.Reverse(bytesOf[i : i+8])
				}
			}
			res := ask(op, srcA, 16, body(16))
			if res.Rsp.Opcode != wire.RspWithData || !res.Gtd || !res.Small || res.Rsp.MsgID != 0 || !bytes.Equal(res.Data, bytesOf[8:24]) {
				t.Fatalf("next_hdr %d, opcode %d: %+v", form, op, res)
			}
			want(ask(op, srcA, 1008, body(1008)), "response UNSUPPORTED_SIZE 0 gtd")
			// Two at once: they share no state, though both have message id 0.
			want(ask(op, srcA, 1000, body(1000)), "default OK 1000")
			want(ask(op, srcA, 800, body(800)), "default OK 800")
			for _, n := range []int{1000, 800} {
				p, ok := g.PeekReturn(srcA.PDC, 1024)
				if !ok || int(p.Len) != n || p.Kind&piece.Small == 0 || !p.Returns() {
					t.Fatalf("next_hdr %d: %+v", form, p)
				}
				b := g.AppendReturn(nil, p)
				h, k, err := wire.ParseRspDataSmall(b)
				if err != nil || h.ReqPSN != 4711 || h.RC != wire.RCOK || int(h.PayloadLen) != n || !bytes.Equal(b[k:], bytesOf[8:8+n]) {
					t.Fatalf("next_hdr %d: %v %v", form, h, err)
				}
				g.Answered(Handle(p.Msg), nil)
			}
			// The path may carry less by then, or show it when the packet is sent.
			want(ask(op, srcA, 1000, body(1000)), "default OK 1000")
			p, _ := g.PeekReturn(srcA.PDC, 900)
			if h, k, err := wire.ParseRspDataSmall(g.AppendReturn(nil, p)); err != nil || p.Len != 0 || h.RC != wire.RCUnsupportedSize || h.PayloadLen != 0 || k != wire.RspDataSmallLen {
				t.Fatalf("next_hdr %d: %v %v %+v", form, h, err, p)
			}
			g.Answered(Handle(p.Msg), nil)
			want(ask(op, srcA, 1000, body(1000)), "default OK 1000")
			p, _ = g.PeekReturn(srcA.PDC, 1024)
			g.AppendReturn(nil, p)
			p.Kind |= piece.Void
			if h, _, err := wire.ParseRspDataSmall(g.Append(nil, p)); err != nil || h.RC != wire.RCUnsupportedSize || h.PayloadLen != 0 || h.ReqPSN != 4711 {
				t.Fatalf("next_hdr %d: %v %v", form, h, err)
			}
			g.Answered(Handle(p.Msg), nil)
			if g.numServes != 0 {
				t.Fatalf("next_hdr %d: %d reads are served", form, g.numServes)
			}
		}
		want(ask(wire.OpWrite, srcA, 4, []byte("word")), "default OK 4")
		want(ask(wire.OpAtomic, srcA, 8, add(8)), "default OK 8")
		g.Deregister(region)
		want(ask(wire.OpWrite, srcA, 4, []byte("word")), map[wire.NextHdr]string{wire.NextReqMedium: "response BAD_MKEY 0 gtd", wire.NextReqSmall: "response BAD_INDEX 0 gtd"}[form])
	}
}

func TestRequestTruncates(t *testing.T) {
	// S-MAT-08, R-MSG-11, F19.
	for _, n := range []int{101, 1000, 5000} {
		for _, late := range []bool{false, true} {
			g := newRig(t)
			body := pattern(n)
			buf := make([]byte, 100)
			pkts := g.tagged(1, body, 1024)
			if !late {
				g.recv(Recv{Tagged: true, Tag: 1, Buf: buf})
			}
			for i, p := range pkts {
				switch {
				case i > 0:
					g.want(srcA, p, "default NULL 0")
				case late:
					g.want(srcA, p, "response OK overflow "+strconv.Itoa(n)+" gtd")
				default:
					g.want(srcA, p, "response OK 100 gtd")
				}
			}
			if late {
				g.recv(Recv{Tagged: true, Tag: 1, Buf: buf})
			}
			if e := g.wantEvent(EvRecv, Truncated, nil, 100); int(e.OverLen) != n-100 || e.RC != 0 {
				t.Fatalf("%+v", e)
			}
			wantBytes(t, buf, body[:100])
			g.rest()
		}
	}
}

func TestRequestRefusesTooLong(t *testing.T) {
	for _, n := range []int{101, 5000} {
		g := newRig(t, func(c *Config) { c.RefuseTooLong = true })
		buf := make([]byte, 100)
		g.recv(Recv{Tagged: true, Tag: 1, Buf: buf, Context: "short"})
		g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, n), Context: "long"})
		for _, p := range g.tagged(1, pattern(n), 1024) {
			g.want(srcA, p, "response TOO_LONG 0 gtd") // S-RSM-07
		}
		if e := g.wantEvent(EvRecv, Truncated, "short", 0); int(e.OverLen) != n || e.RC != wire.RCTooLong {
			t.Fatalf("%+v", e)
		}
		wantBytes(t, buf, make([]byte, 100))
		g.rest()
		// A message that fits is not affected.
		for _, p := range g.tagged(1, pattern(n), 1024) {
			g.want(srcA, p, "default OK "+strconv.Itoa(n))
		}
		g.wantEvent(EvRecv, OK, "long", n)
		g.rest()
	}
}
