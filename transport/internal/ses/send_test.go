package ses

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func parse(t *testing.T, pkt []byte) (wire.ReqStd, []byte) {
	t.Helper()
	r, n, err := wire.ParseReqStd(pkt)
	if err != nil {
		t.Fatal(err)
	}
	return r, pkt[n:]
}

func TestSendEncodesTheStandardHeader(t *testing.T) {
	// Encoded by hand.
	want := strings.Join([]string{
		"09 0f 00 01",             // TAGGED_SEND; REL HD EOM SOM; message id 1
		"00 01 23 45",             // generation 0, JobID
		"00 0a 00 0f",             // PIDonFEP, RI
		"00 00 00 00 00 00 00 00", // buffer offset
		"00 00 00 10",             // initiator
		"00 00 00 00 ca fe 00 01", // match bits
		"00 00 00 00 de ad be ef", // header data
		"00 00 00 03",             // request length
		"41 42 43",
	}, " ")
	s := New(testConfig())
	pkts := packets(s, &Send{Tagged: true, Tag: 0xcafe0001, HasData: true, Data: 0xdeadbeef, Buf: []byte("ABC"), Target: self(s)}, 1024)
	if got := hex.EncodeToString(pkts[0]); len(pkts) != 1 || got != strings.ReplaceAll(want, " ", "") {
		t.Fatalf("%s\nwant %s", got, want)
	}
}

func TestSendCutsAtTheMTU(t *testing.T) {
	// S-SEG-01, S-SEG-02, S-FLD-02, S-FLD-04: these are the pieces of a message. R-TAG-01: the
	// opcode is TAGGED_SEND with the tag as match bits. R-CMPL-11: DC is on every packet if it
	// was asked for.
	for _, mtu := range []int{1, 7, 1024, 2048, 4096, 8192} {
		for _, n := range []int{0, 1, mtu - 1, mtu, mtu + 1, 2*mtu - 1, 2 * mtu, 5*mtu + 3} {
			s := New(testConfig())
			body := pattern(n)
			pkts := packets(s, &Send{Tagged: true, Tag: 5, Buf: body, HasData: true, Data: 99, DeliveryComplete: true,
				Target: Target{JobID: 9, PIDonFEP: 8, RI: 7}}, mtu)
			if want := max((n+mtu-1)/mtu, 1); len(pkts) != want {
				t.Fatalf("%d bytes at %d: %d packets, want %d", n, mtu, len(pkts), want)
			}
			off := 0
			for i, p := range pkts {
				r, data := parse(t, p)
				flags := wire.SESDC
				if i == 0 {
					flags |= wire.SESSOM | wire.SESHD
				}
				if i == len(pkts)-1 {
					flags |= wire.SESEOM
				}
				want := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: flags, MsgID: r.MsgID, PIDonFEP: 8, RI: 7, JobID: 9, Initiator: 16, Match: 5, ReqLen: uint32(n)}
				if i == 0 {
					want.HeaderData = 99
				} else {
					want.MsgOff, want.PayloadLen = uint32(off), uint16(len(data))
				}
				if r != want {
					t.Fatalf("packet %d: %v\nwant %v", i, &r, &want)
				}
				if i < len(pkts)-1 && len(data) != mtu {
					t.Fatalf("packet %d has %d bytes of %d", i, len(data), mtu)
				}
				wantBytes(t, data, body[off:off+len(data)])
				off += len(data)
			}
			if off != n {
				t.Fatalf("%d bytes of %d", off, n)
			}
		}
	}
}

func TestSendUntaggedHasNoMatchBits(t *testing.T) {
	// R-MSG-01: the opcode is SEND. R-CMPL-11: there is no DC unless asked for.
	s := New(testConfig())
	r, _ := parse(t, packets(s, &Send{Tag: 77, Buf: []byte{1}, Data: 5}, 1024)[0])
	if r.Opcode != wire.OpSend || r.Match != 0 || r.HeaderData != 0 || r.Flags&(wire.SESHD|wire.SESDC) != 0 { // S-FLD-05
		t.Fatal(&r)
	}
}

func TestSendGathers(t *testing.T) {
	body := pattern(5000)
	for _, cuts := range [][]int{{0}, {5000}, {1, 2, 3}, {0, 0, 1024, 1024, 1025, 5000, 5000}, {2500}} {
		var iov [][]byte
		prev := 0
		for _, c := range cuts {
			iov = append(iov, body[prev:c])
			prev = c
		}
		iov = append(iov, body[prev:])
		for _, cp := range []bool{false, true} {
			a, b := New(testConfig()), New(testConfig())
			// Send borrows the slice of slices.
			mine := append([][]byte(nil), iov...)
			h, err := b.sendOp(&Send{Iov: mine, Copy: cp})
			if err != nil {
				t.Fatal(err)
			}
			clear(mine)
			flat, cut := packets(a, &Send{Buf: body}, 1000), drain(b, h, 1000)
			for i := range flat {
				wantBytes(t, cut[i], flat[i])
			}
		}
	}
}

func TestSendLargest(t *testing.T) {
	// S-FLD-04: a message has up to 0xFFFFFFFE bytes, or half of that where int has 32 bits;
	// here 4096 times the same MiB.
	const most = MaxMessage
	if most != 0xFFFFFFFE && (bits.UintSize != 32 || most != 0x7FFFFFFE) {
		t.Fatalf("the longest message has %d bytes", uint64(most))
	}
	mib := pattern(1 << 20)
	iov := make([][]byte, 4096)
	for i := range iov {
		iov[i] = mib
	}
	g := newRig(t)
	if _, err := g.sendOp(&Send{Iov: iov}); err != ErrTooLong {
		t.Fatalf("2^32 bytes: %v", err)
	}
	end := (most+2)>>20 - 1
	iov = iov[:end+1]
	for _, less := range []int{0, 1} {
		iov[end] = mib[:len(mib)-less]
		if _, err := g.sendOp(&Send{Iov: iov}); err != ErrTooLong {
			t.Fatalf("%d bytes more than the most: %v", 2-less, err)
		}
	}
	iov[end] = mib[:len(mib)-2]
	h := g.send(Send{Iov: iov, Context: "all"})
	n, last := 0, piece.Piece{}
	for p, ok := g.Next(h, 8192); ok; p, ok = g.Next(h, 8192) {
		n++
		last = p
	}
	if n != (most+2)/8192 || last.Off != most+2-8192 || last.Len != 8190 || !last.Last() {
		t.Fatalf("%d pieces, last %+v", n, last)
	}
	r, data := parse(t, g.Append(nil, last))
	if r.ReqLen != most || r.MsgOff != most+2-8192 || r.PayloadLen != 8190 || r.Flags != wire.SESEOM {
		t.Fatal(&r)
	}
	wantBytes(t, data, mib[1<<20-8192:1<<20-2])
	for range n {
		g.quiet()
		g.Answered(h, nil)
	}
	g.wantEvent(EvSend, OK, "all", most)
	g.rest()
}

func TestSendLimitOfConfig(t *testing.T) {
	g := newRig(t, func(c *Config) { c.MaxMessage, c.MaxSends = 100, 2 })
	if _, err := g.sendOp(&Send{Buf: make([]byte, 101)}); err != ErrTooLong {
		t.Fatal(err)
	}
	a := g.send(Send{Buf: make([]byte, 100), Context: 1})
	g.send(Send{Context: 2})
	if _, err := g.sendOp(&Send{}); err != ErrFull {
		t.Fatal(err)
	}
	drain(g.SES, a, 1024)
	g.Answered(a, nil)
	g.wantEvent(EvSend, OK, 1, 100)
	if b := g.send(Send{}); b == a {
		t.Fatal("a handle came back at once")
	}
	if g.PieceLen(a, 1024) != -1 || g.Sends() != 2 {
		t.Fatal("old handle works")
	}
}

func TestSendPieceMayBeEncodedAgain(t *testing.T) {
	s := New(testConfig())
	body := pattern(2500)
	h, _ := s.sendOp(&Send{Tagged: true, Tag: 1, Buf: body})
	var ps []piece.Piece
	var first [][]byte
	for p, ok := s.Next(h, 1024); ok; p, ok = s.Next(h, 1024) {
		ps = append(ps, p)
		first = append(first, s.Append(nil, p))
	}
	for i := len(ps) - 1; i >= 0; i-- {
		got := s.Append([]byte("head"), ps[i])
		wantBytes(t, got[:4], []byte("head"))
		wantBytes(t, got[4:], first[i])
	}
	if s.PieceLen(h, 1024) != -1 {
		t.Fatal("pieces left")
	}
}

func TestSendMessageIDs(t *testing.T) {
	// S-FLD-03: message ids are 1 to 65535 in turn, without those in use.
	s := New(testConfig())
	id := func(h Handle) uint16 { return s.sends.at(int32(h & 0xffff)).hdr.MsgID }
	end := func(h Handle) {
		drain(s, h, 1024)
		s.Answered(h, nil)
		s.Event()
	}
	kept := map[uint16]Handle{}
	for i := range 3 * 65536 {
		h, err := s.sendOp(&Send{})
		if err != nil {
			t.Fatal(err)
		}
		n := id(h)
		if n == 0 || kept[n] != 0 {
			t.Fatalf("message %d got id %d", i, n)
		}
		if i < 65536 && (n%1000 == 7 || n >= 64 && n < 200 || n > 65500) {
			kept[n] = h
			continue
		}
		if want := uint16(i%65535) + 1; i < 65535 && n != want {
			t.Fatalf("message %d got id %d", i, n)
		}
		end(h)
	}
	for _, h := range kept {
		end(h)
	}
	if *s.ids != [1024]uint64{} {
		t.Fatal("ids left in use")
	}
}

func TestSendCopyFreesTheCallersBytes(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 16384, 16385, 70_000} {
		s := New(testConfig())
		body := pattern(n)
		buf := bytes.Clone(body)
		h, _ := s.sendOp(&Send{Buf: buf, Copy: true, Context: "x"})
		for i := range buf {
			buf[i] = 0xa5
		}
		pkts := drain(s, h, 4096)
		var got []byte
		for _, p := range pkts {
			_, data := parse(t, p)
			got = append(got, data...)
			s.Answered(h, nil)
		}
		wantBytes(t, got, body)
		if e := s.Event(); e.Cause != OK || e.Len != n || e.Buf != nil {
			t.Fatalf("%+v", e)
		}
		if s.copies.used != 0 {
			t.Fatal("copy not given back")
		}
	}
}

func TestSendEarly(t *testing.T) {
	// R-CMPL-02: the completion comes at once if there is a copy, else when every packet is
	// answered.
	g := newRig(t)
	h := g.send(Send{Buf: pattern(3000), Copy: true, Early: true, Context: "copied"})
	g.wantEvent(EvSend, OK, "copied", 3000)
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	g.Answered(h, nil)
	g.Failed(h, TimedOut, 0) // R-CMPL-17: no second entry
	g.quiet()
	if g.Sends() != 0 || g.Stats.LateErrors != 1 {
		t.Fatalf("%d sends, %+v", g.Sends(), g.Stats)
	}
	h = g.send(Send{Buf: pattern(3000), Early: true, Context: "lent"})
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	g.Answered(h, nil)
	g.quiet()
	g.Answered(h, nil)
	g.wantEvent(EvSend, OK, "lent", 3000)
	h = g.send(Send{Buf: pattern(3000), Early: true, Context: "failed"})
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	g.Answered(h, nil)
	g.Failed(h, TimedOut, 0)
	g.wantEvent(EvSend, TimedOut, "failed", 3000)
	g.rest()
}

func TestSendSilent(t *testing.T) {
	// R-MSG-05: success makes no entry, an error does.
	g := newRig(t)
	h := g.send(Send{Buf: pattern(30), Copy: true, Silent: true, Early: true, Context: "well"})
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	g.rest()
	h = g.send(Send{Buf: pattern(30), Copy: true, Silent: true, Early: true, Context: "not well"})
	drain(g.SES, h, 1024)
	g.quiet()
	g.Failed(h, Aborted, wire.NackCode(0x0e))
	e := g.wantEvent(EvSend, Aborted, "not well", 30)
	if e.Nack != 0x0e || !e.Unknown {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestSendEventEchoes(t *testing.T) {
	g := newRig(t)
	buf := pattern(30)
	h := g.send(Send{Tagged: true, Tag: 4, Buf: buf, HasData: true, Data: 5, Peer: 6, Context: "c", Flags: 7, Ordered: true})
	if p, n, o := g.Info(h); p != 6 || n != 30 || !o {
		t.Fatal(p, n, o)
	}
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	e := g.event()
	if &e.Buf[0] != &buf[0] || !e.Kind.Tagged() || e.Tag != 4 || !e.HasData || e.Data != 5 || e.Peer != 6 || e.Flags != 7 {
		t.Fatalf("%+v", e)
	}
	if p, n, o := g.Info(h); p != 0 || n != 0 || o {
		t.Fatal(p, n, o)
	}
}

func TestCancelSend(t *testing.T) {
	g := newRig(t)
	type uncomparable []int
	a := g.send(Send{Buf: pattern(10), Context: "x"})
	b := g.send(Send{Buf: pattern(10), Context: "x"})
	g.send(Send{Buf: pattern(10), Context: uncomparable{1}})
	taken := g.send(Send{Buf: pattern(3000), Context: "taken"})
	g.Next(taken, 1024)
	empty := g.send(Send{Context: "empty"})
	g.Next(empty, 1024)
	early := g.send(Send{Context: "early", Early: true, Copy: true})
	g.wantEvent(EvSend, OK, "early", 0)
	for _, ctx := range []any{nil, "y", "taken", "empty", "early", uncomparable{1}} { // R-EP-11, R-EP-12
		if h, ok := g.CancelSend(0, ctx); ok {
			t.Fatalf("cancelled %v: %v", ctx, h)
		}
	}
	// Of several with one context only the oldest is cancelled.
	if h, ok := g.CancelSend(0, "x"); !ok || h != a {
		t.Fatal(h, ok)
	}
	if e := g.wantEvent(EvSend, Cancelled, "x", 10); e.Unknown {
		t.Fatal("nothing was sent")
	}
	if _, ok := g.Next(a, 1024); ok {
		t.Fatal("cancelled message has pieces")
	}
	drain(g.SES, b, 1024)
	g.Answered(b, nil)
	g.wantEvent(EvSend, OK, "x", 10) // R-EP-13
	if _, ok := g.CancelSend(0, "x"); ok {
		t.Fatal("cancelled what ended")
	}
	_ = early
}

func TestHandlesOfOnePlaceDiffer(t *testing.T) {
	s := New(testConfig())
	seen := map[Handle]bool{}
	for range 65535 {
		h, _ := s.sendOp(&Send{})
		if h == 0 || seen[h] {
			t.Fatalf("handle %#x again", h)
		}
		seen[h] = true
		s.Abandon(h, Closed)
		s.Event()
	}
}

func TestAppendToAnEndedMessagePanics(t *testing.T) {
	s := New(testConfig())
	h, _ := s.sendOp(&Send{})
	p, _ := s.Next(h, 1024)
	s.Answered(h, nil)
	defer func() {
		if r := fmt.Sprint(recover()); !strings.HasPrefix(r, "BUG: ") {
			t.Fatal(r)
		}
	}()
	s.Append(nil, p)
}
