package ses

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// permutations calls f with every order of n things, or with 40 random ones if there are too
// many.
func permutations(n int, f func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if n > 5 {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for range 40 {
			rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			f(order)
		}
		return
	}
	var rec func(k int)
	rec = func(k int) {
		if k == n {
			f(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			rec(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	rec(0)
}

func TestPlacementInAnyOrder(t *testing.T) {
	// S-RSM-02, S-MAT-06, S-RSM-06, S-FLD-01: a message is placed in every arrival order, with any MTU
	// (this side knows none), with a receive posted before, between any two packets, or after,
	// and with buffers that fit and that do not.
	for _, c := range []struct{ mtu, n int }{
		{1024, 0}, {1024, 1}, {1024, 1024}, {1024, 1025}, {1024, 3000}, {1024, 4500}, {2048, 4500}, {4096, 12_000}, {8192, 40_000},
		{8192, 70_000}, {1000, 33_000}, {1, 5}, {13, 200},
	} {
		for _, size := range []int{c.n, c.n + 77, c.n / 2} {
			body := pattern(c.n)
			g := newRig(t)
			pkts := packets(other(16), &Send{Tagged: true, Tag: 3, Buf: body, HasData: true, Data: 0xd, Target: self(g.SES)}, c.mtu)
			permutations(len(pkts), func(order []int) {
				for late := 0; late <= len(pkts); late += max(1, len(pkts)/6) {
					buf := make([]byte, size)
					for i := range buf {
						buf[i] = 0x5a
					}
					special := 0
					for k, i := range order {
						if k == late {
							g.recv(Recv{Tagged: true, Tag: 3, Buf: buf})
						}
						if k < len(order)-1 || late > k {
							g.quiet()
						}
						r := g.deliver(srcA, pkts[i])
						if r.Rsp.RC != wire.RCOK && r.Rsp.RC != wire.RCNull || r.Gtd && k != 0 {
							t.Fatalf("packet %d of %v: %s", i, order, answer(r))
						}
						if r.Gtd {
							special++
						}
					}
					if late == len(order) {
						g.recv(Recv{Tagged: true, Tag: 3, Buf: buf})
					}
					if want := late > 0 || size < c.n; want != (special == 1) {
						t.Fatalf("%d guaranteed answers", special) // S-RSP-03
					}
					cause, placed := OK, c.n
					if size < c.n {
						cause, placed = Truncated, size
					}
					e := g.wantEvent(EvRecv, cause, nil, placed)
					if int(e.OverLen) != c.n-placed || !e.HasData || e.Data != 0xd || e.Tag != 3 {
						t.Fatalf("%+v", e)
					}
					wantBytes(t, buf[:placed], body[:placed])
					for _, b := range buf[placed:] {
						if b != 0x5a {
							t.Fatal("written beyond the message")
						}
					}
				}
			})
			g.rest()
		}
	}
}

func TestPiecesOfDifferentSizes(t *testing.T) {
	// S-SEG-53: the receiver never assumes a payload size, not even that of the packet before.
	g := newRig(t)
	body := pattern(10_000)
	a := other(16)
	h, _ := a.sendOp(&Send{Buf: body, Target: self(g.SES)})
	var pkts [][]byte
	for i := 0; ; i++ {
		p, ok := a.Next(h, []int{1024, 100, 3000, 1}[i%4])
		if !ok {
			break
		}
		pkts = append(pkts, a.Append(nil, p))
	}
	permutations(len(pkts), func(order []int) {
		buf := make([]byte, 10_000)
		g.recv(Recv{Buf: buf})
		for _, i := range order {
			g.want(srcA, pkts[i], "default OK 10000")
		}
		g.wantEvent(EvRecv, OK, nil, 10_000)
		wantBytes(t, buf, body)
	})
	g.rest()
}

func TestMessagesOfOneIDOnTwoPDCs(t *testing.T) {
	// S-RSM-01: equal message ids on two PDCs are two messages.
	g := newRig(t)
	one, two := pattern(3000), pattern(3001)[:3000]
	b1, b2 := make([]byte, 3000), make([]byte, 3000)
	g.recv(Recv{Buf: b1, Context: 1})
	g.recv(Recv{Buf: b2, Context: 2})
	send := Send{Buf: one, Target: self(g.SES)}
	p1 := packets(other(16), &send, 1024)
	send.Buf = two
	p2 := packets(other(16), &send, 1024)
	src := []Source{{Peer: 1, PDC: 10}, {Peer: 1, PDC: 11}}
	for i := range p1 {
		g.want(src[0], p1[i], "default OK 3000")
		g.want(src[1], p2[i], "default OK 3000")
	}
	g.wantEvent(EvRecv, OK, 1, 3000)
	g.wantEvent(EvRecv, OK, 2, 3000)
	wantBytes(t, b1, one)
	wantBytes(t, b2, two)
	g.rest()
}

func TestCompletionWaitsForSOM(t *testing.T) {
	// S-FLD-06: a message with all its bytes but without its header data is not complete.
	g := newRig(t)
	g.recv(Recv{Buf: make([]byte, 3000)})
	rest := func(off uint32, n uint16) []byte {
		return append(g.req(func(r *wire.ReqStd) { r.Flags, r.MsgOff, r.PayloadLen, r.ReqLen = wire.SESREL, off, n, 3000 }), make([]byte, n)...)
	}
	g.want(srcA, rest(1000, 2000), "default OK 3000")
	g.want(srcA, rest(0, 1000), "default OK 3000")
	g.quiet()
	som := g.req(func(r *wire.ReqStd) {
		r.Flags, r.HeaderData, r.ReqLen = wire.SESREL|wire.SESSOM|wire.SESHD, 77, 3000
	})
	g.want(srcA, som, "default OK 3000")
	if e := g.wantEvent(EvRecv, OK, nil, 3000); e.Data != 77 {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestFirstErrorDecides(t *testing.T) {
	// S-RSM-05, S-RSM-07, S-RSM-10: when a field changes, bytes come twice or IE is set, the
	// message ends at once, and later packets get the same answer.
	type m = func(*wire.ReqStd)
	for _, c := range []struct {
		name string
		rc   wire.RC
		bad  m
	}{
		{"initiator", wire.RCOpViolation, func(r *wire.ReqStd) { r.Initiator++ }},
		{"tag", wire.RCOpViolation, func(r *wire.ReqStd) { r.Match++ }},
		{"request length", wire.RCOpViolation, func(r *wire.ReqStd) { r.ReqLen++ }},
		{"buffer offset", wire.RCOpViolation, func(r *wire.ReqStd) { r.BufOff++ }},
		{"opcode", wire.RCOpViolation, func(r *wire.ReqStd) { r.Opcode = wire.OpSend }},
		{"RI", wire.RCBadIndex, func(r *wire.ReqStd) { r.RI++ }},
		{"generation", wire.RCBadGeneration, func(r *wire.ReqStd) { r.Gen++ }},
		{"unsupported opcode", wire.RCUnsupportedOp, func(r *wire.ReqStd) { r.Opcode = wire.OpDatagramSend }},
		{"length field", wire.RCOpViolation, func(r *wire.ReqStd) { r.PayloadLen = 0x3fff }},
		{"IE", wire.RCInitiatorError, func(r *wire.ReqStd) { r.Flags |= wire.SESIE }},
		{"second SOM", wire.RCOpViolation, func(r *wire.ReqStd) { r.Flags |= wire.SESSOM; r.MsgOff = 0 }},
	} {
		for _, unexpected := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", c.name, unexpected), func(t *testing.T) {
				g := newRig(t)
				pkts := g.tagged(7, pattern(5000), 1024)
				buf := make([]byte, 5000)
				if !unexpected {
					g.recv(Recv{Tagged: true, Tag: 7, Buf: buf, Context: "m"})
				}
				g.recv(Recv{Tagged: true, Tag: 8, Buf: make([]byte, 2000), Context: "other"})
				second := g.tagged(8, pattern(2000), 1024)
				src2 := Source{Peer: srcA.Peer, PDC: srcA.PDC + 1}
				g.deliver(src2, second[0])
				g.deliver(srcA, pkts[0])
				r, data := parse(t, pkts[1])
				c.bad(&r)
				want := fmt.Sprintf("response %v 0 gtd", c.rc)
				g.want(srcA, append(r.Append(nil), data...), want)
				if !unexpected {
					if e := g.wantEvent(EvRecv, PeerError, "m", 0); e.RC != c.rc || e.Tag != 7 || e.Peer != 1 {
						t.Fatalf("%+v", e)
					}
				}
				if n, b := g.Unexpected(); n != 0 || b != 0 {
					t.Fatal("still held")
				}
				g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "next"})
				for _, p := range pkts[2:] {
					g.want(srcA, p, want)
				}
				g.quiet()
				wantBytes(t, buf[1024:], make([]byte, 5000-1024))
				// S-ERR-03: other messages are not disturbed, not even on this PDC.
				g.want(src2, second[1], "default OK 2000")
				g.wantEvent(EvRecv, OK, "other", 2000)
				g.want(srcA, packets(other(16), &Send{Tagged: true, Tag: 7, Target: self(g.SES)}, 1024)[0], "default OK 0")
				g.wantEvent(EvRecv, OK, "next", 0)
				if c.rc != wire.RCOpViolation {
					g.rest() // all its bytes have come: nothing is remembered
					return
				}
				// A MSG_ERROR of the initiator removes what is remembered.
				e, _ := parse(t, pkts[1])
				e.Opcode, e.Flags, e.MsgOff, e.PayloadLen = wire.OpMsgError, wire.SESREL|wire.SESEOM|wire.SESIE, 1024, 0
				g.want(srcA, e.Append(nil), "default OK 0")
				g.rest()
			})
		}
	}
}

func TestBytesTwice(t *testing.T) {
	g := newRig(t)
	pkts := g.untagged(pattern(2000), 1024)
	g.recv(Recv{Buf: make([]byte, 2000)})
	g.want(srcA, pkts[1], "default OK 2000")
	g.want(srcA, pkts[1], "default OK 2000") // 1952 bytes: it cannot know
	g.want(srcA, pkts[1], "response OP_VIOLATION 0 gtd")
	g.wantEvent(EvRecv, PeerError, nil, 0)
}

func TestHoleBesideBytesTwice(t *testing.T) {
	// docs/faults.md rule 4: as many bytes as the message has, some of them twice and others
	// never, are no success. Each byte once is one, however the message was cut.
	type cut struct{ off, n uint32 }
	const unit = 1000
	for _, c := range []struct {
		name string
		cuts []cut // in units
		ok   bool
	}{
		{"in order", []cut{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, true},
		{"backwards, unequal", []cut{{3, 1}, {1, 2}, {0, 1}}, true},
		{"the second twice, the third never", []cut{{0, 1}, {1, 1}, {1, 1}, {3, 1}}, false},
		{"the last twice, the second never", []cut{{0, 1}, {3, 1}, {2, 1}, {3, 1}}, false},
		{"overlap", []cut{{0, 2}, {1, 2}}, false},
		{"symmetric", []cut{{0, 1}, {1, 2}, {1, 1}}, false},
	} {
		for _, unexpected := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", c.name, unexpected), func(t *testing.T) {
				g := newRig(t)
				body := pattern(4 * unit)
				first, _ := parse(t, g.untagged(body, 4*unit)[0])
				if !unexpected {
					g.recv(Recv{Buf: make([]byte, len(body)), Context: "m"})
				}
				for i, k := range c.cuts {
					r := first
					r.Flags &^= wire.SESSOM | wire.SESEOM
					r.MsgOff, r.PayloadLen, r.HeaderData = k.off*unit, uint16(k.n*unit), 0
					data := body[k.off*unit:][:k.n*unit]
					if k.off == 0 {
						// S-SEG: the first packet has all that follows its header.
						r.Flags |= wire.SESSOM
						r.MsgOff, r.PayloadLen = 0, 0
					}
					if k.off+k.n == 4 {
						r.Flags |= wire.SESEOM
					}
					res := g.deliver(srcA, append(r.Append(nil), data...))
					if bad := res.Rsp.RC == wire.RCOpViolation; bad != (!c.ok && i == len(c.cuts)-1) {
						t.Fatalf("packet %d: %v", i, answer(res))
					}
				}
				if unexpected {
					if n, _ := g.Unexpected(); (n == 1) != c.ok {
						t.Fatalf("%d messages are held", n)
					}
					return
				}
				if c.ok {
					g.wantEvent(EvRecv, OK, "m", len(body))
				} else if e := g.wantEvent(EvRecv, PeerError, "m", 0); e.RC != wire.RCOpViolation {
					t.Fatal(e.RC)
				}
			})
		}
	}
}

func TestIEFirst(t *testing.T) {
	// S-MSC-05: if the poisoned packet comes first, the others do not begin the message. A
	// poisoned message of one packet changes nothing.
	g := newRig(t)
	g.recv(Recv{Buf: make([]byte, 5000), Context: "r"})
	pkts := g.untagged(pattern(3000), 1024)
	poisoned := append([]byte(nil), pkts[1]...)
	poisoned[1] |= byte(wire.SESIE)
	g.want(srcA, poisoned, "response INITIATOR_ERROR 0 gtd")
	g.want(srcA, pkts[0], "response INITIATOR_ERROR 0 gtd")
	g.want(srcA, pkts[2][:50], "response INITIATOR_ERROR 0 gtd") // not its own error
	g.quiet()
	one := g.untagged(pattern(30), 1024)[0]
	one[1] |= byte(wire.SESIE)
	g.want(srcA, one, "response INITIATOR_ERROR 0 gtd")
	g.quiet()
	g.want(srcA, g.untagged(pattern(30), 1024)[0], "default OK 30")
	g.wantEvent(EvRecv, OK, "r", 30)
}

func TestMsgError(t *testing.T) {
	// S-MSC-02, S-MSC-03, R-ERR-45: a MSG_ERROR ends its message in every order with the
	// message's packets.
	g := newRig(t)
	a := other(16)
	h, _ := a.sendOp(&Send{Buf: pattern(5000), Target: self(g.SES)})
	var pkts [][]byte
	for range 3 {
		p, _ := a.Next(h, 1024)
		pkts = append(pkts, a.Append(nil, p))
	}
	a.Answered(h, perm)
	p, _ := a.Next(h, 1024)
	pkts = append(pkts, a.Append(nil, p))
	for _, unexpected := range []bool{false, true} {
		permutations(len(pkts), func(order []int) {
			if !unexpected {
				g.recv(Recv{Buf: make([]byte, 5000)})
			}
			dead := false
			for k, i := range order {
				r := g.deliver(srcA, pkts[i])
				got := answer(r)
				switch {
				case i == 3:
					if got != "default OK 0" {
						t.Fatal(got)
					}
					dead = true
				case dead:
					if got != "response INITIATOR_ERROR 0 gtd" {
						t.Fatal(order, k, got)
					}
				default:
					if r.Rsp.RC != wire.RCOK && r.Rsp.RC != wire.RCNull {
						t.Fatal(got)
					}
				}
				if i == 3 && k > 0 && !unexpected {
					if e := g.wantEvent(EvRecv, PeerError, nil, 0); e.RC != wire.RCInitiatorError {
						t.Fatalf("%+v", e)
					}
				}
			}
			if order[0] == 3 && !unexpected { // the receive was not touched
				if !g.CancelRecv(0, nil) {
					g.CancelAll()
				}
			}
			if g.closed {
				g.Event()
				g.rest()
				g = newRig(t)
				return
			}
			g.rest() // in particular: nothing is remembered
		})
	}
}

func TestMsgErrorOfNothing(t *testing.T) {
	g := newRig(t)
	g.want(srcA, g.req(func(r *wire.ReqStd) { r.Opcode = wire.OpMsgError }), "default OK 0") // nothing was sent
	g.rest()
	g.want(srcA, g.req(func(r *wire.ReqStd) {
		r.Opcode, r.Flags, r.MsgOff, r.ReqLen = wire.OpMsgError, wire.SESREL|wire.SESEOM, 100, 5000
	}), "default OK 0")
	if !g.Idle() || g.Incomplete(srcA.PDC) {
		t.Fatal("an ended message counts as open")
	}
	g.PDCGone(srcA.PDC, Closed)
	g.rest()
}

func TestMessageIDComesAgain(t *testing.T) {
	// A message is told from an ended one that is still remembered under the same id.
	g := newRig(t)
	part := func(f wire.SESFlags, off, req uint32, n int) []byte {
		return append(g.req(func(r *wire.ReqStd) {
			r.Flags, r.MsgOff, r.PayloadLen, r.ReqLen = wire.SESREL|f, off, uint16(n), req
		}), make([]byte, n)...)
	}
	g.recv(Recv{Buf: make([]byte, 9000), Context: 1})
	g.want(srcA, part(wire.SESSOM, 0, 5000, 100), "default OK 5000")
	bad := part(0, 100, 5000, 100)
	bad[1] |= byte(wire.SESIE)
	g.want(srcA, bad, "response INITIATOR_ERROR 0 gtd")
	g.wantEvent(EvRecv, PeerError, 1, 0)
	g.recv(Recv{Buf: make([]byte, 9000), Context: 2})
	g.want(srcA, part(0, 200, 5000, 100), "response INITIATOR_ERROR 0 gtd")
	g.want(srcA, part(wire.SESSOM, 0, 5000, 4000), "default OK 5000") // a second beginning
	g.want(srcA, part(wire.SESEOM, 4000, 5000, 1000), "default OK 5000")
	g.wantEvent(EvRecv, OK, 2, 5000)
	g.rest()
	// Another length means another message.
	g.recv(Recv{Buf: make([]byte, 9000), Context: 3})
	g.want(srcA, bad, "response INITIATOR_ERROR 0 gtd")
	g.want(srcA, part(0, 1000, 6000, 5000), "default OK 6000")
	g.want(srcA, part(wire.SESSOM, 0, 6000, 1000), "default OK 6000")
	g.wantEvent(EvRecv, OK, 3, 6000)
	g.rest()
}

func TestMessageIDComesAgainAfterAPoisonedBeginning(t *testing.T) {
	g := newRig(t)
	part := func(f wire.SESFlags) []byte {
		return append(g.req(func(r *wire.ReqStd) { r.Flags, r.ReqLen = wire.SESREL|wire.SESSOM|f, 5000 }), make([]byte, 1000)...)
	}
	g.recv(Recv{Buf: make([]byte, 5000)})
	g.want(srcA, part(wire.SESIE), "response INITIATOR_ERROR 0 gtd")
	g.want(srcA, part(0), "default OK 5000") // there is one SOM in a message
}

func TestOpenIsPerPDC(t *testing.T) {
	g := newRig(t)
	pkts := g.untagged(pattern(3000), 1024)
	g.deliver(srcB, pkts[0])
	pkts[1][1] |= byte(wire.SESIE)
	g.deliver(srcA, pkts[1])
	if g.Incomplete(srcA.PDC) || !g.Incomplete(srcB.PDC) {
		t.Fatal("what ended in error is not in progress")
	}
	// There are more PDCs than the table has chains.
	g = newRig(t, func(c *Config) { c.UnexpectedShare, c.OpenPerPeer = 1, 10_000 })
	for i := range uint32(3000) {
		g.deliver(Source{Peer: i % 7, PDC: i}, pkts[0])
	}
	for i := range uint32(3000) {
		g.PDCGone(i, Closed)
		if n, _ := g.Unexpected(); n != 2999-int(i) || g.Incomplete(i) || i < 2999 && !g.Incomplete(i+1) {
			t.Fatalf("PDC %d: %d messages left", i, n)
		}
	}
	g.rest()
}

func TestLateReceiveAnswers(t *testing.T) {
	// The first packet was answered as unexpected, so a receive posted since changes nothing
	// for the initiator.
	g := newRig(t)
	pkts := g.tagged(1, pattern(4000), 1024)
	g.want(srcA, pkts[0], "response OK overflow 4000 gtd")
	g.want(srcA, pkts[1], "default NULL 0")
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 100)})
	g.want(srcA, pkts[2], "default NULL 0")
	g.want(srcA, pkts[3], "default NULL 0")
	g.wantEvent(EvRecv, Truncated, nil, 100)
	g.rest()
}

func TestPDCGone(t *testing.T) {
	// F9, F25: matched receives end with length 0, incomplete unexpected messages vanish,
	// complete ones stay.
	g := newRig(t)
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 5000), Context: "matched"})
	g.recv(Recv{Tagged: true, Tag: 2, Buf: make([]byte, 5000), Context: "elsewhere"})
	g.recv(Recv{Tagged: true, Tag: 9, Buf: make([]byte, 5000), Context: "posted"})
	p := other(16)
	send := func(tag uint64, n int) [][]byte {
		return packets(p, &Send{Tagged: true, Tag: tag, Buf: pattern(n), Target: self(g.SES)}, 1024)
	}
	g.deliver(srcA, send(1, 5000)[2])
	keep := send(2, 5000)
	g.deliver(srcB, keep[0])
	g.deliver(srcA, send(3, 50_000)[0])
	g.deliver(srcA, send(4, 2000)[0])
	g.deliver(srcA, send(5, 60)[0])
	for _, k := range send(6, 40_000) {
		g.deliver(srcA, k)
	}
	if !g.Incomplete(srcA.PDC) || !g.Incomplete(srcB.PDC) || g.Incomplete(99) {
		t.Fatal("Open")
	}
	g.PDCGone(srcA.PDC, TimedOut)
	if e := g.wantEvent(EvRecv, TimedOut, "matched", 0); e.Tag != 1 || e.Peer != 1 {
		t.Fatalf("%+v", e)
	}
	g.quiet()
	if g.Incomplete(srcA.PDC) || !g.Incomplete(srcB.PDC) {
		t.Fatal("Open")
	}
	if n, b := g.Unexpected(); n != 2 || b != 64+65536 {
		t.Fatal(n, b)
	}
	g.PDCGone(srcA.PDC, TimedOut)
	for _, k := range keep[1:] {
		g.deliver(srcB, k)
	}
	g.wantEvent(EvRecv, OK, "elsewhere", 5000)
	buf := make([]byte, 40_000)
	g.recv(Recv{Tagged: true, Tag: 6, Buf: buf})
	g.wantEvent(EvRecv, OK, nil, 40_000)
	wantBytes(t, buf, pattern(40_000))
	g.recv(Recv{Tagged: true, Tag: 5, Buf: buf})
	g.wantEvent(EvRecv, OK, nil, 60)
	g.rest()
	if g.Recvs() != 1 {
		t.Fatal(g.Recvs())
	}
}

func TestPDCGoneForgetsTheDead(t *testing.T) {
	g := newRig(t)
	for i := range 5 {
		pkts := g.untagged(pattern(5000), 1024)
		pkts[i%2][1] |= byte(wire.SESIE)
		g.deliver(Source{Peer: 1, PDC: uint32(i)}, pkts[i%2])
	}
	if g.in.live() != 5 {
		t.Fatal(g.in.live())
	}
	for i := range 5 {
		g.PDCGone(uint32(i), OK)
	}
	g.rest()
}

func TestOpenPerPeer(t *testing.T) {
	// Open inbound messages are bounded per peer, with NACK 09. Those of other peers, and
	// messages of one packet, pass.
	g := newRig(t, func(c *Config) { c.OpenPerPeer = 4 })
	var first [][]byte
	for i := range 4 {
		pkts := packets(other(16), &Send{Buf: pattern(2000), Target: self(g.SES)}, 1024)
		g.want(Source{Peer: 1, PDC: uint32(i)}, pkts[0], "response OK overflow 2000 gtd")
		first = pkts
	}
	g.want(Source{Peer: 1, PDC: 9}, first[0], "nack 09")
	g.recv(Recv{Buf: make([]byte, 2000), SourcePeer: 1, SourceInitiator: 99})
	g.want(Source{Peer: 1, PDC: 9}, packets(other(99), &Send{Buf: pattern(2000), Target: self(g.SES)}, 1024)[0], "nack 09")
	g.want(Source{Peer: 2, PDC: 19}, first[0], "response OK overflow 2000 gtd")
	g.want(Source{Peer: 1, PDC: 9}, g.untagged(pattern(10), 1024)[0], "response OK overflow 10 gtd")
	g.want(Source{Peer: 1, PDC: 3}, first[1], "default NULL 0")
	g.want(Source{Peer: 1, PDC: 9}, first[0], "response OK overflow 2000 gtd")
}

func TestDeadMessagesAreBounded(t *testing.T) {
	// A peer's dead messages push out only older ones of its own.
	g := newRig(t, func(c *Config) { c.OpenPerPeer = 8 })
	p := other(16)
	poison := func(src Source) {
		pkts := packets(p, &Send{Buf: pattern(3000), Target: self(g.SES)}, 1024)
		pkts[1][1] |= byte(wire.SESIE)
		g.want(src, pkts[1], "response INITIATOR_ERROR 0 gtd")
	}
	poison(srcB)
	for range 1000 {
		poison(srcA)
	}
	if g.in.live() != 9 {
		t.Fatalf("%d states", g.in.live())
	}
	g.PDCGone(srcA.PDC, Closed)
	g.PDCGone(srcB.PDC, Closed)
	g.rest()
}

func TestDeadMessagesTakeNoRoom(t *testing.T) {
	// T14: however many peers have dead messages, messages of other peers are accepted, and
	// those that end in error are answered as before.
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs, c.MaxRecvs, c.UnexpectedShare = 100, 100, 1 })
	pkts := g.untagged(pattern(3000), 1024)
	pkts[1][1] |= byte(wire.SESIE)
	for i := range 5000 {
		g.want(Source{Peer: uint32(10 + i), PDC: uint32(100 + i)}, pkts[1], "response INITIATOR_ERROR 0 gtd")
	}
	for i := range uint32(100) {
		g.want(Source{Peer: 3 + i/50, PDC: i / 50}, g.untagged(pattern(3000), 1024)[0], "response OK overflow 3000 gtd")
	}
	g.want(srcB, g.untagged(pattern(3000), 1024)[0], "nack 09") // 100 are held
	g.recv(Recv{Buf: make([]byte, 3000), SourcePeer: srcB.Peer, Context: "m"})
	poisoned := g.untagged(pattern(3000), 1024)
	g.want(srcB, poisoned[0], "default OK 3000")
	poisoned[1][1] |= byte(wire.SESIE)
	g.want(srcB, poisoned[1], "response INITIATOR_ERROR 0 gtd")
	g.wantEvent(EvRecv, PeerError, "m", 0)
	for i := range uint32(5000) {
		g.PDCGone(100+i, Closed)
	}
	for i := range uint32(2) {
		g.PDCGone(i, Closed)
	}
	g.PDCGone(srcB.PDC, Closed)
	g.rest()
}

func TestStateIsBounded(t *testing.T) {
	// Poisoned messages come from ever new peers.
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs, c.MaxRecvs = 100, 100 })
	pkts := g.untagged(pattern(3000), 1024)
	pkts[1][1] |= byte(wire.SESIE)
	for i := range 10_000 {
		g.deliver(Source{Peer: uint32(i), PDC: uint32(i)}, pkts[1])
	}
	if g.in.live() > 100+100+4096 {
		t.Fatalf("%d states", g.in.live())
	}
	g.want(Source{Peer: 77777, PDC: 77777}, pkts[0], "response OK overflow 3000 gtd")
	g.want(Source{Peer: 77777, PDC: 77777}, g.untagged(pattern(10), 1024)[0], "response OK overflow 10 gtd")
}

func TestIdleTimeoutEndsWhatStopped(t *testing.T) {
	// S-RSM-08: a message that does not go on ends by time.
	// T15: a message whose end never comes on a PDC that lives ends by IdleTimeout.
	g := newRig(t, func(c *Config) { c.IdleTimeout = 8 * time.Second })
	now := time.Second
	g.Advance(now)
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 5000), Context: "stopped"})
	g.recv(Recv{Tagged: true, Tag: 2, Buf: make([]byte, 5000), Context: "slow"})
	stopped, slow := g.tagged(1, pattern(5000), 1024), g.tagged(2, pattern(5000), 1024)
	held := g.tagged(3, pattern(5000), 1024)
	one := g.tagged(4, pattern(50), 1024)
	g.deliver(srcA, stopped[0])
	g.deliver(Source{Peer: 2, PDC: 7}, held[0])
	g.deliver(Source{Peer: 2, PDC: 8}, one[0])
	var ended time.Duration
	step := 0
	for now < 30*time.Second {
		d := g.NextTimeout()
		if ended == 0 && d == 0 {
			t.Fatal("no timer")
		}
		now += 100 * time.Millisecond
		g.Advance(now)
		if now >= time.Duration(1+6*step)*time.Second && step < 5 {
			g.deliver(srcB, slow[step])
			step++
		}
		if e := g.Event(); e != nil {
			switch e.Context {
			case "stopped":
				if e.Cause != TimedOut || e.Len != 0 || ended != 0 {
					t.Fatalf("%+v", e)
				}
				ended = now
			case "slow":
				if e.Cause != OK {
					t.Fatalf("%+v", e)
				}
			}
		}
	}
	if ended < 9*time.Second || ended > 11100*time.Millisecond {
		t.Fatalf("ended at %v", ended)
	}
	if step != 5 || g.Stats.Expired != 2 || g.Recvs() != 0 {
		t.Fatal(step, g.Stats.Expired, g.Recvs())
	}
	// The ended message is remembered for a while, and the complete one stays.
	if n, _ := g.Unexpected(); n != 1 {
		t.Fatal(n)
	}
	g.recv(Recv{Tagged: true, Tag: 4, Buf: make([]byte, 50)})
	g.wantEvent(EvRecv, OK, nil, 50)
	g.Advance(60 * time.Second)
	for range 10 {
		now += 60 * time.Second
		g.Advance(now)
	}
	// The ended message is remembered: its sender has not heard of it.
	g.want(srcA, stopped[1], "response DROPPED 0 gtd")
	g.PDCGone(srcA.PDC, Closed)
	g.PDCGone(7, Closed)
	g.rest()
}

func TestIdleTimeoutIsNeverShort(t *testing.T) {
	// The packet comes right before a sweep.
	g := newRig(t, func(c *Config) { c.IdleTimeout = 8 * time.Second })
	g.Advance(1 * time.Second)
	g.recv(Recv{Buf: make([]byte, 5000)})
	g.Advance(2999 * time.Millisecond)
	g.deliver(srcA, g.untagged(pattern(5000), 1024)[0])
	now := time.Duration(0)
	for e := g.Event(); e == nil; e = g.Event() {
		now = g.NextTimeout()
		g.Advance(now)
	}
	if d := now - 2999*time.Millisecond; d < 8*time.Second || d > 10*time.Second {
		t.Fatalf("after %v", d)
	}
}

func TestIdleTimeoutAnswersLatecomers(t *testing.T) {
	g := newRig(t, func(c *Config) { c.IdleTimeout = 8 * time.Second })
	g.recv(Recv{Buf: make([]byte, 5000), Context: 1})
	pkts := g.untagged(pattern(5000), 1024)
	g.deliver(srcA, pkts[0])
	for i := range 7 {
		g.Advance(time.Duration(1+2*i) * time.Second)
	}
	g.wantEvent(EvRecv, TimedOut, 1, 0)
	g.recv(Recv{Buf: make([]byte, 5000), Context: 2})
	for _, p := range pkts[1:] {
		g.want(srcA, p, "response DROPPED 0 gtd")
	}
	g.quiet()
	g.PDCGone(srcA.PDC, Closed)
	g.rest()
}

func TestIdleTimeoutOff(t *testing.T) {
	g := newRig(t, func(c *Config) { c.IdleTimeout = -1 })
	g.deliver(srcA, g.untagged(pattern(5000), 1024)[0])
	if d := g.NextTimeout(); d != 0 {
		t.Fatal(d)
	}
	for i := range 20 {
		g.Advance(time.Duration(i) * time.Hour)
	}
	if !g.Incomplete(srcA.PDC) {
		t.Fatal("gone")
	}
}

func TestSweepWithManyEndings(t *testing.T) {
	// Messages of many peers and PDCs expire in one sweep, where each ending may push out older
	// ones.
	g := newRig(t, func(c *Config) { c.OpenPerPeer, c.IdleTimeout, c.UnexpectedShare = 5, 4*time.Second, 1 })
	for i := range 600 {
		pkts := g.untagged(pattern(3000), 1024)
		if i%3 == 0 {
			pkts[0][1] |= byte(wire.SESIE)
		}
		g.deliver(Source{Peer: uint32(i % 60), PDC: uint32(i % 97)}, pkts[0])
	}
	for i := range 30 {
		g.Advance(time.Duration(i+1) * time.Second)
	}
	for i := range 97 {
		g.PDCGone(uint32(i), Closed)
	}
	g.rest()
}

func TestSweepEndingPushesOutTheNext(t *testing.T) {
	g := newRig(t, func(c *Config) { c.OpenPerPeer, c.IdleTimeout = 1, 4*time.Second })
	g.recv(Recv{Buf: make([]byte, 5000)})
	g.deliver(srcA, g.untagged(pattern(5000), 1024)[0])
	pkts := g.untagged(pattern(5000), 1024)
	pkts[1][1] |= byte(wire.SESIE)
	g.deliver(srcA, pkts[1]) // dead, behind the open one
	for i := range 30 {
		g.Advance(time.Duration(i+1) * time.Second)
	}
	g.wantEvent(EvRecv, TimedOut, nil, 0)
	g.PDCGone(srcA.PDC, Closed)
	g.rest()
}

// S-RSM-62: the rest of a message that stopped gets the error however late it comes and whatever
// other peers make the target remember: if it began a message anew, all packets would have been
// answered OK, and its sender would take it for received.
func TestEndedIsToldHoweverLate(t *testing.T) {
	for _, full := range []bool{false, true} {
		g := newRig(t, func(c *Config) { c.IdleTimeout = 8 * time.Second })
		g.recv(Recv{Buf: make([]byte, 5000), Context: 1})
		pkts := g.untagged(pattern(5000), 1024)
		g.deliver(srcA, pkts[0])
		for i := range 200 {
			if g.Advance(time.Duration(1+i) * time.Second); !full || i != 5 {
				continue
			}
			for k := range maxDead { // as many dead messages as fit
				p := g.untagged(pattern(3000), 1024)
				p[1][1] |= byte(wire.SESIE)
				g.deliver(Source{Peer: uint32(100 + k/64), PDC: uint32(100 + k/64)}, p[1])
			}
			if g.dead != maxDead {
				t.Fatalf("%d dead messages: the test does not test", g.dead)
			}
			for g.Stats.Expired == 0 {
				i++
				g.Advance(time.Duration(1+i) * time.Second)
			}
			break
		}
		g.wantEvent(EvRecv, TimedOut, 1, 0)
		if full && g.dead != maxDead {
			t.Fatalf("%d dead messages when it stopped: the test does not test", g.dead)
		}
		g.recv(Recv{Buf: make([]byte, 5000), Context: 2})
		for _, p := range pkts[1:] {
			g.want(srcA, p, "response DROPPED 0 gtd")
		}
		g.quiet()
	}
}

func TestHolds(t *testing.T) {
	g := newRig(t)
	pkts := g.untagged(pattern(2000), 1024)
	for _, p := range pkts {
		if g.Holds(1) != (&p[0] != &pkts[0][0]) || g.Holds(2) {
			t.Fatal("in progress")
		}
		g.deliver(srcA, p)
	}
	if !g.Holds(1) || g.Incomplete(srcA.PDC) {
		t.Fatal("unexpected and complete")
	}
	g.recv(Recv{Buf: make([]byte, 2000)})
	g.event()
	if g.Holds(1) {
		t.Fatal("taken")
	}
	g.rest()
}

func TestInboundEndsWithTheLastByteAndTheFirstPacket(t *testing.T) {
	// R-TGT-11: the entry comes after every byte was written and, with header data, after SOM,
	// in every order of three packets.
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		g := newRig(t)
		body := pattern(2500)
		pkts := packets(g.mate, &Send{Tagged: true, Tag: 1, Buf: body, HasData: true, Data: 0xfeed, Target: self(g.SES)}, 1024)
		buf := make([]byte, 2500)
		g.recv(Recv{Tagged: true, Tag: 1, Buf: buf})
		for i, k := range order {
			g.quiet()
			g.deliver(srcA, pkts[k])
			if i < 2 {
				continue
			}
			e := g.wantEvent(EvRecv, OK, nil, 2500)
			if !e.HasData || e.Data != 0xfeed {
				t.Fatalf("%+v", e)
			}
			wantBytes(t, buf, body)
		}
		g.rest()
	}
}

func TestLaterMessageDoesNotBegin(t *testing.T) {
	// F18: after a refused packet a message of several packets does not begin, room or not. One
	// that has begun goes on. A message of one packet is complete and occupies nothing. A
	// message that has its receive, and of which all packets were sent, begins, too.
	g := newRig(t)
	later := Source{Peer: srcA.Peer, PDC: srcA.PDC, Later: true}
	two := g.untagged(pattern(2000), 1024)
	g.want(later, two[0], "nack 09")
	g.want(srcA, two[0], "response OK overflow 2000 gtd")
	g.want(later, two[1], "default NULL 0")
	g.want(later, g.untagged(pattern(10), 1024)[0], "response OK overflow 10 gtd")

	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 3000)})
	three := g.tagged(7, pattern(3000), 1024)
	for behind := range 2 {
		later.Behind = behind
		g.want(later, three[0], "nack 09")
	}
	g.want(later, g.tagged(8, pattern(3000), 1024)[1], "nack 09")
	g.want(later, three[1], "default OK 3000") // one behind it is all the rest
	g.want(later, three[0], "default OK 3000")
	g.want(later, three[2], "default OK 3000")
}
