package ses

import (
	"fmt"
	"slices"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func from(initiator uint32, g *rig, op Send) []byte {
	op.Target = self(g.SES)
	return packets(other(initiator), &op, 8192)[0]
}

func TestMatchTable(t *testing.T) {
	// S-MAT-01, S-MAT-02, S-MAT-03, S-MAT-04, R-TAG-02, R-TAG-04: one receive meets one message. S-MAT-05: no endpoint is limited to
	// exact matching, each takes every mask.
	src := Source{Peer: 5, PDC: 1}
	for _, c := range []struct {
		name string
		recv Recv
		send Send
		init uint32
		want bool
	}{
		{"untagged", Recv{}, Send{}, 16, true},
		{"untagged ignores the tag", Recv{Tag: 4}, Send{Tag: 5}, 16, true},
		{"untagged receive, tagged message", Recv{}, Send{Tagged: true}, 16, false},
		{"tagged receive, untagged message", Recv{Tagged: true, Ignore: ^uint64(0)}, Send{}, 16, false},
		{"exact", Recv{Tagged: true, Tag: 7}, Send{Tagged: true, Tag: 7}, 16, true},
		{"other tag", Recv{Tagged: true, Tag: 7}, Send{Tagged: true, Tag: 6}, 16, false},
		{"top bit", Recv{Tagged: true, Tag: 7}, Send{Tagged: true, Tag: 7 | 1<<63}, 16, false},
		{"ignored bits differ", Recv{Tagged: true, Tag: 0x1234, Ignore: 0xff}, Send{Tagged: true, Tag: 0x1299}, 16, true},
		{"other bits differ", Recv{Tagged: true, Tag: 0x1234, Ignore: 0xff}, Send{Tagged: true, Tag: 0x1334}, 16, false},
		{"any tag", Recv{Tagged: true, Tag: 0x1234, Ignore: ^uint64(0)}, Send{Tagged: true, Tag: 9}, 16, true},
		{"peer", Recv{SourcePeer: 5}, Send{}, 16, true},
		{"other peer", Recv{SourcePeer: 6}, Send{}, 16, false},
		{"initiator", Recv{SourceInitiator: 16}, Send{}, 16, true},
		{"other initiator", Recv{SourceInitiator: 17}, Send{}, 16, false},
		{"peer and initiator", Recv{Tagged: true, SourcePeer: 5, SourceInitiator: 16}, Send{Tagged: true}, 16, true},
		{"peer, other initiator", Recv{Tagged: true, SourcePeer: 5, SourceInitiator: 16}, Send{Tagged: true}, 18, false},
		{"initiator, other peer", Recv{Tagged: true, SourcePeer: 4, SourceInitiator: 16}, Send{Tagged: true}, 16, false},
		{"all together", Recv{Tagged: true, Tag: 0xf0, Ignore: 0xf, SourcePeer: 5, SourceInitiator: 16}, Send{Tagged: true, Tag: 0xf9}, 16, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				g := newRig(t)
				pkt := from(c.init, g, c.send)
				c.recv.Context = "r"
				if !late {
					g.recv(c.recv)
				}
				got := answer(g.deliver(src, pkt))
				if late {
					g.recv(c.recv)
					if got != "response OK overflow 0 gtd" {
						t.Fatal(got)
					}
				} else if want := map[bool]string{true: "default OK 0", false: "response OK overflow 0 gtd"}[c.want]; got != want {
					t.Fatalf("%q, want %q", got, want)
				}
				if !c.want {
					g.quiet()
					if n, _ := g.Unexpected(); n != 1 || g.Recvs() != 1 {
						t.Fatal("both should wait")
					}
					continue
				}
				e := g.wantEvent(EvRecv, OK, "r", 0)
				if e.Peer != 5 || e.Initiator != c.init || e.Kind.Tagged() != c.send.Tagged || e.Kind.Tagged() && e.Tag != c.send.Tag || !e.Kind.Tagged() && e.Tag != 0 {
					t.Fatalf("%+v", e) // R-TAG-07: the sender's full tag
				}
				g.rest()
			}
		})
	}
}

func TestMatchIsInPostOrderAcrossClasses(t *testing.T) {
	// S-MAT-04: the oldest receive that matches gets the message, however it is posted.
	kinds := []Recv{
		{Tagged: true, Tag: 7},
		{Tagged: true, Tag: 0, Ignore: ^uint64(0)},
		{Tagged: true, Tag: 7, SourcePeer: 1},
		{Tagged: true, Tag: 7, SourceInitiator: 16},
		{Tagged: true, Tag: 3, Ignore: 4},
		{Tagged: true, Tag: 7, Ignore: 0xff, SourcePeer: 1, SourceInitiator: 16},
	}
	for shift := range kinds {
		g := newRig(t)
		n := 4 * len(kinds)
		for i := range n {
			r := kinds[(i*5+shift)%len(kinds)]
			r.Context = i
			g.recv(r)
		}
		for i := range n {
			g.want(srcA, from(16, g, Send{Tagged: true, Tag: 7}), "default OK 0")
			g.wantEvent(EvRecv, OK, i, 0)
		}
		g.rest()
	}
}

func TestMatchManyMasks(t *testing.T) {
	// There are more different masks than classes, and classes come and go.
	g := newRig(t)
	const n = 60
	for round := range 3 {
		for i := range n {
			g.recv(Recv{Tagged: true, Tag: 1 << 60, Ignore: 1<<i - 1, Context: i})
		}
		for i := range n {
			// Only masks of more than i bits accept the message; the oldest is the narrowest.
			g.want(srcA, from(16, g, Send{Tagged: true, Tag: 1<<60 | 1<<i>>1}), "default OK 0")
			g.wantEvent(EvRecv, OK, i, 0)
		}
		if g.endpoints[0].spaces[1].run != nil || g.endpoints[0].spaces[1].active != 0 || g.endpoints[0].spaces[1].wilds != 0 {
			t.Fatalf("round %d: classes left", round)
		}
	}
	g.rest()
}

func TestMatchOrderBeyondTheClasses(t *testing.T) {
	// Receives found by hash and receives searched one by one are posted in turn.
	g := newRig(t)
	g.recv(Recv{Tagged: true, Tag: 1 << 61, Context: "the run"})
	for i := range numClassesMax { // fill the classes
		g.recv(Recv{Tagged: true, Tag: 1 << 62, Ignore: 1 << i, Context: "filler"})
	}
	for i := range 20 {
		r := Recv{Tagged: true, Tag: 7, Ignore: 1 << (i % 3), Context: i} // has a class
		if i%2 == 0 {
			r.Ignore = 1 << (30 + i) // has none
		}
		g.recv(r)
	}
	if g.endpoints[0].spaces[1].wilds != 10 {
		t.Fatal("the test does not test what it should")
	}
	for i := range 20 {
		g.want(srcA, from(16, g, Send{Tagged: true, Tag: 7}), "default OK 0")
		g.wantEvent(EvRecv, OK, i, 0)
	}
}

func TestMatchRun(t *testing.T) {
	// The oldest receives of a space are in its run while they accept the same messages. A
	// receive that is posted after another kind has a class, even if it is like those in the
	// run.
	g := newRig(t)
	run := func(want ...any) {
		t.Helper()
		var got []any
		sp, prev := &g.endpoints[0].spaces[1], (*recv)(nil)
		for r := sp.run; r != nil; prev, r = r, r.next {
			if r.class != runClass || g.recvs.at(r.self) != r || prev != nil && r.prev != prev {
				t.Fatalf("receive %v: class %d, place %d, prev %p", r.context, r.class, r.self, r.prev)
			}
			got = append(got, r.context)
		}
		if !slices.Equal(got, want) || prev != nil && sp.last != prev {
			t.Fatalf("the run is %v, want %v", got, want)
		}
	}
	cancel := func(ctxs ...any) {
		t.Helper()
		for _, ctx := range ctxs {
			if !g.CancelRecv(0, ctx) {
				t.Fatal("nothing to cancel")
			}
			g.wantEvent(EvRecv, Cancelled, ctx, 0)
		}
	}
	like := Recv{Tagged: true, Tag: 0x17, Ignore: 0xf, SourcePeer: srcA.Peer}
	post := func(r Recv, ctx any) {
		r.Context = ctx
		g.recv(r)
	}
	post(like, 1)
	g.recv(Recv{Context: "the other space"})
	run(1)
	g.want(srcA, from(16, g, Send{Tagged: true, Tag: 0x20}), "response OK overflow 0 gtd")
	g.want(srcB, from(16, g, Send{Tagged: true, Tag: 0x17}), "response OK overflow 0 gtd")
	post(Recv{Tagged: true, Tag: 0x20}, 2) // takes what is there
	g.wantEvent(EvRecv, OK, 2, 0)
	post(like, 3)
	post(like, 4)
	post(like, 5)
	post(like, 6)
	run(1, 3, 4, 5, 6)
	cancel(4) // from the middle, the front, the end
	run(1, 3, 5, 6)
	cancel(1)
	run(3, 5, 6)
	cancel(6)
	run(3, 5)
	post(Recv{Tagged: true, Tag: 0x15}, 7)
	post(like, 8)
	run(3, 5)
	for _, c := range []struct {
		src Source
		tag uint64
		ctx any
	}{{srcB, 0x15, 7}, {srcA, 0x15, 3}, {srcA, 0x16, 5}, {srcA, 0x16, 8}} {
		g.want(c.src, from(16, g, Send{Tagged: true, Tag: c.tag}), "default OK 0")
		g.wantEvent(EvRecv, OK, c.ctx, 0)
	}
	for i, other := range []func(*Recv){
		func(r *Recv) { r.Tag ^= 1 << 40 },
		func(r *Recv) { r.Ignore = 7 },
		func(r *Recv) { r.SourcePeer = 77 },
		func(r *Recv) { r.SourceInitiator = 5 },
	} {
		r := like
		other(&r)
		post(like, 10)
		post(r, 11)
		run(10)
		if g.endpoints[0].spaces[1].active == 0 {
			t.Errorf("case %d: the second has no class", i)
		}
		cancel(10, 11)
		run()
	}
	buf := make([]byte, 20)
	g.recv(Recv{Tagged: true, Tag: 1, Buf: buf, Multi: true, MinFree: 5, Context: 20})
	post(Recv{Tagged: true, Tag: 1}, 21)
	for i := range 2 {
		run(20, 21)
		g.want(srcA, from(16, g, Send{Tagged: true, Tag: 1, Buf: pattern(8)}), "default OK 8")
		if e := g.wantEvent(EvRecv, OK, 20, 8); e.Released != (i == 1) {
			t.Fatalf("message %d: released %v", i, e.Released)
		}
	}
	run(21)
	g.want(srcA, from(16, g, Send{Tagged: true, Tag: 1}), "default OK 0")
	g.wantEvent(EvRecv, OK, 21, 0)
	run()
}

func TestMatchIgnoresMatchBitsOfUntagged(t *testing.T) {
	// S-FLD-05: the receiver ignores the field.
	g := newRig(t)
	set := func(pkts [][]byte, v byte) [][]byte {
		for _, p := range pkts {
			p[31] = v
			v++
		}
		return pkts
	}
	for _, n := range []int{10, 3000} {
		for _, late := range []bool{false, true} {
			if !late {
				g.recv(Recv{Buf: make([]byte, n), SourcePeer: 1})
			}
			for _, p := range set(g.untagged(pattern(n), 1024), 5) {
				if r := g.deliver(srcA, p); r.Rsp.RC > wire.RCOK {
					t.Fatal(answer(r))
				}
			}
			if late {
				g.recv(Recv{Buf: make([]byte, n), SourcePeer: 1})
			}
			if e := g.wantEvent(EvRecv, OK, nil, n); e.Tag != 0 {
				t.Fatalf("%+v", e)
			}
		}
	}
	g.rest()
}

func TestMatchUnexpectedInArrivalOrder(t *testing.T) {
	// S-MAT-07, R-TAG-13: a receive gets the oldest unexpected message that matches.
	g := newRig(t)
	for i := range 12 {
		src := []Source{srcA, srcB}[i%2]
		g.deliver(src, from(uint32(20+i%3), g, Send{Tagged: true, Tag: uint64(100 + i%4), HasData: true, Data: uint64(i)}))
	}
	take := func(want int, r Recv) {
		t.Helper()
		r.Tagged = true
		g.recv(r)
		if e := g.event(); !e.HasData || e.Data != uint64(want) {
			t.Fatalf("got message %d, want %d", e.Data, want)
		}
	}
	take(2, Recv{Tag: 102})
	take(6, Recv{Tag: 102, SourcePeer: 1})
	take(1, Recv{SourcePeer: 2, Ignore: ^uint64(0)})
	take(0, Recv{Ignore: ^uint64(0)})
	take(5, Recv{SourceInitiator: 22, Ignore: ^uint64(0), SourcePeer: 2})
	take(10, Recv{Tag: 102})
	take(7, Recv{Tag: 103, Ignore: 4, SourceInitiator: 21})
	take(3, Recv{Tag: 103, SourceInitiator: 20})
	take(11, Recv{Tag: 103, SourcePeer: 2, SourceInitiator: 22})
	take(4, Recv{Tag: 100, Ignore: 1})
	take(8, Recv{Tag: 100, Ignore: 1})
	take(9, Recv{Tag: 100, Ignore: 1})
	g.rest()
}

func TestRecvFull(t *testing.T) {
	g := newRig(t, func(c *Config) { c.MaxRecvs = 3 })
	for i := range 3 {
		g.recv(Recv{Context: i, Buf: make([]byte, 3000)})
	}
	if err := g.recvOp(&Recv{}); err != ErrFull {
		t.Fatal(err)
	}
	pkts := g.untagged(pattern(3000), 1024)
	g.deliver(srcA, pkts[0])
	if err := g.recvOp(&Recv{}); err != ErrFull { // a matched one still counts
		t.Fatal(err)
	}
	g.deliver(srcA, pkts[1])
	g.deliver(srcA, pkts[2])
	g.recv(Recv{})
}

func TestCancelRecv(t *testing.T) {
	g := newRig(t)
	type uncomparable []int
	for _, c := range []any{"x", "x", "tagged", "wild", uncomparable{1}, "bound"} {
		r := Recv{Context: c, Buf: make([]byte, 3000)}
		switch c {
		case "tagged":
			r.Tagged = true
		case "wild":
			r.Tagged, r.Ignore = true, 5
		case "bound":
			r.SourcePeer = 2
		}
		g.recv(r)
	}
	pkts := g.untagged(pattern(3000), 1024)
	g.deliver(srcB, pkts[0]) // takes the oldest: the first "x"
	for _, c := range []any{nil, "y", uncomparable{1}} {
		if g.CancelRecv(0, c) {
			t.Fatalf("cancelled %v", c)
		}
	}
	for _, c := range []string{"x", "tagged", "wild", "bound"} {
		if !g.CancelRecv(0, c) {
			t.Fatal(c)
		}
		if e := g.wantEvent(EvRecv, Cancelled, c, 0); len(e.Buf) != 3000 || e.Peer != 0 {
			t.Fatalf("%+v", e)
		}
	}
	if g.CancelRecv(0, "x") { // R-EP-12: partly filled
		t.Fatal("cancelled a matched receive")
	}
	g.deliver(srcB, pkts[1])
	g.deliver(srcB, pkts[2])
	g.wantEvent(EvRecv, OK, "x", 3000)
	// A cancelled receive matches nothing.
	g.want(srcA, g.tagged(0, nil, 1024)[0], "response OK overflow 0 gtd")
	g.recv(Recv{Tagged: true})
	g.wantEvent(EvRecv, OK, nil, 0)
	g.rest()
}

func TestRecvScatters(t *testing.T) {
	body := pattern(5000)
	for _, cuts := range [][]int{{5000}, {0, 5000}, {1, 2, 3, 4994}, {0, 1024, 0, 1024, 2952, 0}, {2500, 2500, 100}, {1000, 1000}} {
		for _, unexpected := range []bool{false, true} {
			g := newRig(t)
			var iov [][]byte
			total := 0
			for _, n := range cuts {
				iov = append(iov, make([]byte, n))
				total += n
			}
			mine := append([][]byte(nil), iov...) // borrowed
			pkts := g.tagged(1, body, 999)
			at := 0
			if unexpected {
				at = 3
			}
			for i := range pkts {
				if i == at {
					g.recv(Recv{Tagged: true, Tag: 1, Iov: mine})
					clear(mine)
				}
				g.deliver(srcA, pkts[len(pkts)-1-i])
			}
			want := OK
			if total < 5000 {
				want = Truncated
			}
			e := g.wantEvent(EvRecv, want, nil, min(total, 5000))
			if int(e.OverLen) != max(5000-total, 0) {
				t.Fatalf("%+v", e)
			}
			var got []byte
			for _, v := range iov {
				got = append(got, v...)
			}
			wantBytes(t, got[:min(total, 5000)], body[:min(total, 5000)])
			for _, b := range got[min(total, 5000):] {
				if b != 0 {
					t.Fatal("written beyond the message")
				}
			}
			g.rest()
		}
	}
}

func TestRecvEventEchoes(t *testing.T) {
	g := newRig(t)
	buf := make([]byte, 100)
	for _, n := range []int{60, 9000} { // one packet, two packets
		g.recv(Recv{Tagged: true, Tag: 8, Ignore: 1, Buf: buf, Flags: 0x55, Context: "c"})
		for _, p := range packets(other(33), &Send{Tagged: true, Tag: 9, Buf: pattern(n), HasData: true, Data: 0xdd, Target: self(g.SES)}, 8192) {
			g.deliver(srcB, p)
		}
		e := g.event()
		if &e.Buf[0] != &buf[0] || len(e.Buf) != 100 || e.Flags != 0x55 || e.Tag != 9 || !e.HasData || e.Data != 0xdd || e.Peer != 2 || e.Initiator != 33 || !e.Kind.Tagged() {
			t.Fatalf("%+v", e)
		}
	}
	g.rest()
}

func TestMatchWorkIsBounded(t *testing.T) {
	// Matching looks at the receives of one key, not at all that are posted. The chains of the
	// tables stay short for ordered tags, ranks and random ones.
	for _, spread := range []func(i int) Recv{
		func(i int) Recv { return Recv{Tagged: true, Tag: uint64(i)} },
		func(i int) Recv { return Recv{Tagged: true, Tag: uint64(i) << 32} },
		func(i int) Recv { return Recv{Tagged: true, Tag: 1, SourcePeer: uint32(i + 1)} },
		func(i int) Recv { return Recv{Tagged: true, Ignore: ^uint64(0), SourceInitiator: uint32(i + 1)} },
		func(i int) Recv { return Recv{SourcePeer: uint32(i+1) << 8} },
	} {
		g := newRig(t)
		var sp *space
		for i := range 8000 {
			r := spread(i)
			sp = g.space(0, r.Tagged)
			g.recv(r)
		}
		longest := 0
		for b := range sp.exact.buckets {
			n := 0
			for i := sp.exact.first(uint32(b)); i != none; i = sp.exact.next(i) {
				n++
			}
			longest = max(longest, n)
		}
		if longest > 16 {
			t.Errorf("a chain of %d", longest)
		}
	}
}

func ExampleSES_Request() {
	cfg := Config{EndpointConfig: EndpointConfig{Identity: Identity{JobID: 1, RI: 15, Initiator: 16}}}
	a, b := New(cfg), New(cfg)
	buf := make([]byte, 10)
	b.Recv(0, &Op{Kind: EvTRecv, Tag: 7, Buf: buf})

	h, _ := a.send(0, &Op{Kind: EvTSend, Tag: 7, Buf: []byte("hello"), Peer: 1, RI: 15})
	for p, ok := a.Next(h, 1024); ok; p, ok = a.Next(h, 1024) {
		res := b.Request(&Source{Peer: 1, PDC: 1}, wire.NextReqStd, a.Append(nil, p))
		a.Answered(h, &res.Rsp)
	}
	fmt.Println(a.Event().Cause)
	e := b.Event()
	fmt.Println(e.Cause, string(e.Buf[:e.Len]))
	// Output:
	// ok
	// ok hello
}
