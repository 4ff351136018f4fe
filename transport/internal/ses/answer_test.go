package ses

import (
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func rsp(op wire.RspOpcode, rc wire.RC) *wire.Rsp { return &wire.Rsp{Opcode: op, RC: rc} }

var (
	defOK   = rsp(wire.RspDefault, wire.RCOK)
	defNull = rsp(wire.RspDefault, wire.RCNull)
	rspOK   = rsp(wire.RspResponse, wire.RCOK)
	rspNull = rsp(wire.RspResponse, wire.RCNull)
	noRsp   = rsp(wire.RspNone, wire.RCNull)
	perm    = rsp(wire.RspResponse, wire.RCPermViolation)
	badAddr = rsp(wire.RspResponse, wire.RCBadAddr)
)

func TestAnsweredCompletes(t *testing.T) {
	overflow := &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, List: wire.ListOverflow}
	short := &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, ModLen: 5}
	for _, c := range []struct {
		name  string
		rsps  []*wire.Rsp // of three pieces
		cause Cause
		rc    wire.RC
	}{
		{"S-CPL-01 all passed by CACK", []*wire.Rsp{nil, nil, nil}, OK, 0},
		{"S-CPL-01 default responses", []*wire.Rsp{defOK, defOK, defOK}, OK, 0},
		{"S-CPL-02 null answers count", []*wire.Rsp{defNull, defNull, defNull}, OK, 0},
		{"S-CPL-02 and among others", []*wire.Rsp{defNull, rspOK, nil}, OK, 0},
		{"S-CPL-04 the response came first", []*wire.Rsp{rspOK, noRsp, nil}, OK, 0},
		{"S-CPL-04 the response came last", []*wire.Rsp{noRsp, nil, rspNull}, OK, 0},
		{"S-CPL-07 truncated there is success here", []*wire.Rsp{short, nil, nil}, OK, 0},
		{"R-CMPL-19 overflow is success", []*wire.Rsp{overflow, defNull, defNull}, OK, 0},
		{"S-CPL-03 an error first", []*wire.Rsp{perm, nil, nil}, Rejected, wire.RCPermViolation},
		{"S-CPL-03 an error last", []*wire.Rsp{nil, nil, perm}, Rejected, wire.RCPermViolation},
		{"S-ERR-01 the first error wins", []*wire.Rsp{perm, nil, badAddr}, Rejected, wire.RCPermViolation},
		{"an error beats NO_RESPONSE", []*wire.Rsp{noRsp, nil, perm}, Rejected, wire.RCPermViolation},
		{"reserved code", []*wire.Rsp{rsp(wire.RspResponse, 0x2a), nil, nil}, Rejected, 0x2a},
		{"an error in a default response", []*wire.Rsp{rsp(wire.RspDefault, wire.RCTooLong), nil, nil}, Rejected, wire.RCTooLong},
		{"reserved response opcode", []*wire.Rsp{rsp(0x04, wire.RCPermViolation), nil, nil}, OK, 0},
		{"vendor list", []*wire.Rsp{{Opcode: wire.RspResponse, RC: wire.RCOK, List: 3}, nil, nil}, OK, 0},
		{"S-RSP-06 foreign message id", []*wire.Rsp{{Opcode: wire.RspDefault, RC: wire.RCOK, MsgID: 999}, nil, nil}, OK, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			h := g.send(Send{Buf: pattern(3000), Context: c.name})
			drain(g.SES, h, 1024)
			for i, r := range c.rsps {
				g.quiet()
				if r != nil && r.MsgID == 0 {
					r = &wire.Rsp{Opcode: r.Opcode, RC: r.RC, List: r.List, ModLen: r.ModLen, MsgID: g.sends.at(int32(h & 0xffff)).hdr.MsgID}
				}
				_ = i
				g.Answered(h, r)
			}
			if e := g.wantEvent(EvSend, c.cause, c.name, 3000); e.RC != c.rc || e.Unknown {
				t.Fatalf("%+v", e)
			}
			if g.Sends() != 0 {
				t.Fatal("message left")
			}
			g.rest()
		})
	}
}

func TestAnsweredCountsStrangeResponses(t *testing.T) {
	g := newRig(t)
	h := g.send(Send{Buf: pattern(10)})
	drain(g.SES, h, 1024)
	g.Answered(h, &wire.Rsp{Opcode: 0x30, List: 2, MsgID: 77})
	if g.Stats.RspUnknown != 2 || g.Stats.RspForeign != 1 {
		t.Fatalf("%+v", g.Stats)
	}
	// A response of PDS's own, which has no fields, does not count as foreign.
	g.event()
	h = g.send(Send{Buf: pattern(10)})
	drain(g.SES, h, 1024)
	g.Answered(h, &wire.Rsp{})
	g.wantEvent(EvSend, OK, nil, 10)
	if g.Stats.RspForeign != 1 {
		t.Fatalf("%+v", g.Stats)
	}
	g.rest()
}

func TestNoResponseKeepsTheMessageOpen(t *testing.T) {
	// S-CPL-04: after NO_RESPONSE a message stays open until its RESPONSE comes.
	g := newRig(t)
	h := g.send(Send{Buf: pattern(10), Context: "m", Peer: 3})
	drain(g.SES, h, 1024)
	id := g.sends.at(int32(h & 0xffff)).hdr.MsgID
	g.Answered(h, noRsp)
	g.quiet()
	if g.Sends() != 1 || g.Idle() {
		t.Fatal("message gone")
	}
	if g.Response(4, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, MsgID: id}) {
		t.Fatal("the response of another peer")
	}
	if g.Response(3, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, MsgID: id + 1}) || g.Response(3, &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK, MsgID: id}) {
		t.Fatal("not its response")
	}
	if !g.Response(3, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, List: wire.ListOverflow, MsgID: id}) {
		t.Fatal("its response")
	}
	g.wantEvent(EvSend, OK, "m", 10)
	g.rest()

	// R-CMPL-02: an early completion comes when all is answered, whatever the answers say.
	h = g.send(Send{Buf: pattern(10), Context: "early", Early: true})
	drain(g.SES, h, 1024)
	id = g.sends.at(int32(h & 0xffff)).hdr.MsgID
	g.Answered(h, noRsp)
	g.wantEvent(EvSend, OK, "early", 10)
	g.Response(0, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch, MsgID: id})
	g.quiet() // the bytes are gone: it cannot be sent again
	if g.Sends() != 0 || g.Stats.LateErrors != 1 {
		t.Fatalf("%d %+v", g.Sends(), g.Stats)
	}

	// A message whose promised RESPONSE does not come waits as long as the PDC lives.
	h = g.send(Send{Buf: pattern(10), Context: "lost"})
	drain(g.SES, h, 1024)
	g.Answered(h, noRsp)
	g.Promised(h, 5)
	if !g.Awaits(5) || g.Awaits(6) || g.NextTimeout() != 0 {
		t.Fatalf("awaited on PDC 5: %v, on 6: %v, timer %v", g.Awaits(5), g.Awaits(6), g.NextTimeout())
	}
	g.PDCGone(6, TimedOut)
	g.Advance(time.Hour)
	g.quiet()
	g.PDCGone(5, TimedOut)
	if e := g.wantEvent(EvSend, TimedOut, "lost", 10); !e.Unknown || g.Awaits(5) {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestRefusalReplacesTheRestByMsgError(t *testing.T) {
	// S-CPL-03, S-SEG-08, S-MSC-02: after a refusal a MSG_ERROR replaces the pieces that are
	// left.
	g := newRig(t)
	h := g.send(Send{Tagged: true, Tag: 3, Buf: pattern(5000), Context: "m", HasData: true, Data: 1, Target: self(g.SES)})
	g.Next(h, 1024)
	p1, _ := g.Next(h, 1024)
	g.Answered(h, perm)
	r, _ := parse(t, g.Append(nil, p1)) // what is in flight may be resent
	if r.MsgOff != 1024 {
		t.Fatal(&r)
	}
	if n := g.PieceLen(h, 1024); n != 0 {
		t.Fatalf("PieceLen %d", n)
	}
	p, ok := g.Next(h, 1024)
	if want := (piece.Piece{Msg: uint32(h), Off: 2048, Kind: piece.Error | piece.Last}); !ok || p != want {
		t.Fatalf("%+v", p)
	}
	pkt := g.Append(nil, p)
	r, data := parse(t, pkt)
	want := wire.ReqStd{Opcode: wire.OpMsgError, Flags: wire.SESEOM | wire.SESREL | wire.SESIE, MsgID: r.MsgID, PIDonFEP: 0xa, RI: 0xf,
		JobID: 0x12345, Initiator: 16, Match: 3, MsgOff: 2048, ReqLen: 5000}
	if r != want || len(data) != 0 { // V18
		t.Fatalf("%v\nwant %v", &r, &want)
	}
	if _, ok := g.Next(h, 1024); ok || g.PieceLen(h, 1024) != -1 {
		t.Fatal("more pieces")
	}
	g.Answered(h, nil)
	g.quiet()
	g.Answered(h, defOK) // of MSG_ERROR
	if e := g.wantEvent(EvSend, Rejected, "m", 5000); e.RC != wire.RCPermViolation || e.Unknown {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestRefusalOfTheLastPieceNeedsNoMsgError(t *testing.T) {
	g := newRig(t)
	h := g.send(Send{Buf: pattern(2000), Context: "m"})
	drain(g.SES, h, 1024)
	g.Answered(h, nil)
	g.Answered(h, perm)
	g.wantEvent(EvSend, Rejected, "m", 2000)
	g.rest()
}

func TestRefusalWithNothingInFlightWaitsForMsgError(t *testing.T) {
	g := newRig(t)
	h := g.send(Send{Buf: pattern(2000), Context: "m"})
	g.Next(h, 1024)
	g.Answered(h, perm)
	g.quiet()
	g.Next(h, 1024)
	g.Answered(h, nil)
	g.wantEvent(EvSend, Rejected, "m", 2000)
	g.rest()
}

func TestGiveUpEndsTheMessage(t *testing.T) {
	// F18, S-SEG-08: a MSG_ERROR replaces a piece for which the target was not ready. Another
	// one replaces the pieces not handed out, because the target may have the piece that was
	// given up.
	for _, c := range []struct {
		name     string
		n, take  int // bytes; pieces of 1024
		off      uint32
		flags    wire.SESFlags
		rest     bool
		outcomes int
	}{
		{"one piece", 100, 1, 0, wire.SESSOM, false, 1},
		{"all taken", 3000, 3, 3000, 0, false, 3},
		{"some taken", 3000, 2, 2048, 0, true, 3},
	} {
		for _, answered := range []bool{true, false} {
			g := newRig(t)
			before := g.send(Send{Buf: pattern(1), Context: "before", Target: self(g.SES)}) // there is a place for events then
			g.Next(before, 1024)
			g.Answered(before, nil)
			g.wantEvent(EvSend, OK, "before", 1)
			h := g.send(Send{Buf: pattern(c.n), Context: "m", HasData: true, Data: 7, Target: self(g.SES)})
			first, _ := g.Next(h, 1024)
			for range c.take - 1 {
				g.Next(h, 1024)
			}
			p, ok := g.GiveUp(first, wire.NackNoSESMsgAvail)
			if want := (piece.Piece{Msg: uint32(h), Off: c.off, Kind: piece.Error | piece.Last}); !ok || p != want {
				t.Fatalf("%s: %+v", c.name, p)
			}
			r, _ := parse(t, g.Append(nil, p))
			if r.Opcode != wire.OpMsgError || r.Flags != wire.SESEOM|wire.SESREL|wire.SESIE|c.flags || r.MsgOff != c.off || r.HeaderData != 0 {
				t.Fatalf("%s: %v", c.name, &r)
			}
			q, ok := g.Next(h, 1024)
			if ok != c.rest || ok && q != p {
				t.Fatalf("%s: then %+v %v", c.name, q, ok)
			}
			for range c.outcomes - 1 {
				g.Answered(h, nil)
			}
			g.quiet()
			if answered {
				// As most responses are, which Answered processes on its fast path.
				g.Answered(h, &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK, List: wire.ListExpected, MsgID: r.MsgID})
			} else if _, ok := g.GiveUp(p, wire.NackNoSESMsgAvail); ok {
				t.Fatalf("%s: instead of a MSG_ERROR goes something", c.name)
			}
			if e := g.wantEvent(EvSend, NotReady, "m", c.n); e.Unknown == c.rest || e.Nack != wire.NackNoSESMsgAvail {
				t.Fatalf("%s: %+v", c.name, e)
			}
			g.rest()
		}
	}
}

func TestFailed(t *testing.T) {
	for _, c := range []struct {
		name            string
		take            int // of 3 pieces
		fail            int
		answer          int
		unknown, broken bool
	}{
		{"all taken, none known", 3, 3, 0, true, false},
		{"some were answered", 3, 1, 2, true, false},
		{"not all were taken", 2, 2, 0, false, false},
		{"all answered so far, broken off", 2, 0, 2, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			h := g.send(Send{Buf: pattern(3000), Context: "m"})
			for range c.take {
				g.Next(h, 1024)
			}
			for range c.answer {
				g.Answered(h, nil)
			}
			g.quiet()
			for i := range c.fail {
				if i > 0 {
					g.quiet() // only when no packet is outstanding
				}
				g.Failed(h, []Cause{Aborted, TimedOut, Closed}[i], wire.NackCode(5+i))
				if i < c.fail-1 {
					if _, ok := g.Next(h, 1024); ok {
						t.Fatal("a failed message has pieces")
					}
				}
			}
			if c.broken {
				g.Break(h, Aborted, 5)
			}
			if e := g.wantEvent(EvSend, Aborted, "m", 3000); e.Nack != 5 || e.Unknown != c.unknown {
				t.Fatalf("%+v", e)
			}
			g.rest()
		})
	}
}

func TestFailedAfterRefusal(t *testing.T) {
	// The first failure decides the event, and no MSG_ERROR goes to a dead PDC.
	g := newRig(t)
	h := g.send(Send{Buf: pattern(5000), Context: "m"})
	g.Next(h, 1024)
	g.Next(h, 1024)
	g.Answered(h, perm)
	g.Failed(h, TimedOut, 0)
	if e := g.wantEvent(EvSend, Rejected, "m", 5000); e.RC != wire.RCPermViolation {
		t.Fatalf("%+v", e)
	}
	if _, ok := g.Next(h, 1024); ok {
		t.Fatal("piece of a message that ended")
	}
	g.rest()
	// The PDC breaks after the refusal, before the MSG_ERROR was sent, with nothing in flight.
	h = g.send(Send{Buf: pattern(5000), Context: "n"})
	g.Next(h, 1024)
	g.Answered(h, perm)
	g.Break(h, Aborted, 9)
	g.wantEvent(EvSend, Rejected, "n", 5000)
	g.rest()
}

func TestAbandon(t *testing.T) {
	g := newRig(t)
	h := g.send(Send{Buf: pattern(5000), Context: "m"})
	g.Abandon(h, Unreachable)
	if e := g.wantEvent(EvSend, Unreachable, "m", 5000); e.Unknown {
		t.Fatalf("%+v", e)
	}
	h = g.send(Send{Buf: pattern(10), Context: "n"})
	drain(g.SES, h, 1024)
	g.Answered(h, rsp(wire.RspResponse, wire.RCNoMatch))
	g.Abandon(h, NoResource) // while it waits to be sent again
	if e := g.wantEvent(EvSend, NoResource, "n", 10); e.Unknown || e.RC != 0 {
		t.Fatalf("%+v", e)
	}
	g.rest()
	h = g.send(Send{Buf: pattern(10), Context: "o"})
	drain(g.SES, h, 1024)
	g.Answered(h, noRsp)
	g.Abandon(h, Closed)
	if e := g.wantEvent(EvSend, Closed, "o", 10); !e.Unknown {
		t.Fatalf("the target took all of it, what it made of it is not known: %+v", e)
	}
	g.rest()
}

// refuseOnce hands out all pieces of h and has the first refused with rc.
func (g *rig) refuseOnce(h Handle, rc wire.RC, gen uint8) {
	n := len(drain(g.SES, h, 1024))
	g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: rc, Gen: gen})
	for range n - 1 {
		g.Answered(h, rsp(wire.RspResponse, rc))
	}
}

func TestNotReadyIsSentAgain(t *testing.T) {
	// S-GEN-55: a message answered NO_MATCH or DISABLED_GEN is sent again after a back-off.
	for _, rc := range []wire.RC{wire.RCNoMatch, wire.RCDisabledGen} {
		g := newRig(t)
		body := pattern(3000)
		h := g.send(Send{Buf: body, Context: "m"})
		now := 7 * time.Second
		g.Advance(now)
		ids := map[uint16]bool{}
		var waits []time.Duration
		for range 12 {
			r, _ := parse(t, g.Append(nil, piece.Piece{Msg: uint32(h)}))
			if ids[r.MsgID] {
				t.Fatal("an attempt has the message id of another")
			}
			ids[r.MsgID] = true
			g.refuseOnce(h, rc, 0)
			g.quiet()
			if n := g.PieceLen(h, 1024); n != -1 {
				t.Fatalf("PieceLen %d while it waits", n)
			}
			if _, ok := g.Resend(); ok {
				t.Fatal("again at once")
			}
			if d := g.NextTimeout(); d == 0 || d > now { // "as soon as possible", to learn the time
				t.Fatalf("timer %v at %v", d, now)
			}
			now += time.Millisecond
			g.Advance(now)
			d := g.NextTimeout()
			if d <= now {
				t.Fatalf("timer %v at %v", d, now)
			}
			waits = append(waits, d-now)
			g.Advance(d - 1)
			if _, ok := g.Resend(); ok {
				t.Fatal("too early")
			}
			now = d
			g.Advance(now)
			if got, ok := g.Resend(); !ok || got != h {
				t.Fatal("not again")
			}
			if g.NextTimeout() != 0 {
				t.Fatal("timer left")
			}
		}
		for i, w := range waits {
			lo := min(backoffMin<<i, backoffMin<<backoffSteps)
			if w < lo || w > lo+lo/2 {
				t.Errorf("wait %d is %v, want %v and up to half", i, w, lo)
			}
		}
		got := drain(g.SES, h, 1024)
		for range got {
			g.Answered(h, nil)
		}
		g.wantEvent(EvSend, OK, "m", 3000)
		if g.Stats.Resends != 12 {
			t.Fatalf("%d resends", g.Stats.Resends)
		}
		g.rest()
	}
}

func TestNotReadyEndsAfterRNRTimeout(t *testing.T) {
	g := newRig(t, func(c *Config) { c.RNRTimeout = 300 * time.Millisecond })
	h := g.send(Send{Buf: pattern(10), Context: "m"})
	start := time.Second
	now := start
	g.refuseOnce(h, wire.RCNoMatch, 0)
	for g.Sends() > 0 {
		g.Advance(now)
		if _, ok := g.Resend(); ok {
			g.refuseOnce(h, wire.RCNoMatch, 0)
		}
		now = max(g.NextTimeout(), now)
	}
	if now-start != 300*time.Millisecond { // the last try is at the end
		t.Fatalf("ended after %v", now-start)
	}
	if e := g.wantEvent(EvSend, NotReady, "m", 10); e.RC != wire.RCNoMatch || e.Unknown { // R-ERR-04
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestNotReadyPacketMayBeThere(t *testing.T) {
	// docs/faults.md rule 3: the effect is unknown after packets were refused by NACK until
	// RNRTimeout. They were sent several times, and the network may copy one that was sent once
	// (F4). But of a message that was not sent whole the target cannot have all.
	for _, c := range []struct {
		take    int
		unknown bool
	}{{3, true}, {2, false}} {
		g := newRig(t)
		h := g.send(Send{Buf: pattern(3000), Context: "m"})
		for range c.take {
			g.Next(h, 1024)
		}
		for range c.take {
			g.Failed(h, NotReady, wire.NackNoSESMsgAvail)
		}
		if e := g.wantEvent(EvSend, NotReady, "m", 3000); e.Unknown != c.unknown {
			t.Errorf("%d of 3 pieces taken: unknown %v", c.take, e.Unknown)
		}
		g.rest()
	}
}

func TestNotReadyIsFinalWhenAsked(t *testing.T) {
	g := newRig(t, func(c *Config) { c.RNRTimeout = -1 })
	h := g.send(Send{Buf: pattern(10), Context: "m"})
	g.refuseOnce(h, wire.RCNoMatch, 0)
	if e := g.wantEvent(EvSend, Rejected, "m", 10); e.RC != wire.RCNoMatch {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestNotReadyWithPiecesLeft(t *testing.T) {
	// A MSG_ERROR ends the attempt, then the whole message is sent again.
	g := newRig(t)
	body := pattern(5000)
	h := g.send(Send{Buf: body, Context: "m"})
	g.Next(h, 1024)
	g.Answered(h, rsp(wire.RspResponse, wire.RCNoMatch))
	if _, ok := g.Resend(); ok {
		t.Fatal("before MSG_ERROR")
	}
	if p, ok := g.Next(h, 1024); !ok || !p.Error() {
		t.Fatal("no MSG_ERROR")
	}
	g.Answered(h, nil)
	g.Advance(time.Second)
	g.Advance(2 * time.Second)
	if _, ok := g.Resend(); !ok {
		t.Fatal("not sent again")
	}
	var got []byte
	for _, p := range drain(g.SES, h, 1024) {
		_, data := parse(t, p)
		got = append(got, data...)
		g.Answered(h, nil)
	}
	wantBytes(t, got, body)
	g.wantEvent(EvSend, OK, "m", 5000)
	g.rest()
}

func TestTransientErrorIsRetriedAFewTimes(t *testing.T) {
	// S-GEN-56: after UNCOR_TRNSNT a message goes again five times. An ordered one does not: what was sent behind
	// it is executed meanwhile.
	g := newRig(t)
	o, err := g.SES.send(0, &Op{Kind: EvSend, Peer: 2, Buf: pattern(10), Context: "o", Ordered: true})
	if err != nil {
		t.Fatal(err)
	}
	g.refuseOnce(o, wire.RCUncorTrnsnt, 0)
	g.wantEvent(EvSend, Rejected, "o", 10)
	h := g.send(Send{Buf: pattern(10), Context: "m"})
	now := time.Second
	n := 0
	for {
		g.refuseOnce(h, wire.RCUncorTrnsnt, 0)
		if g.Sends() == 0 {
			break
		}
		g.Advance(now)
		now = g.NextTimeout()
		g.Advance(now)
		if _, ok := g.Resend(); !ok {
			t.Fatal("not sent again")
		}
		n++
	}
	if n != maxTransient {
		t.Fatalf("%d times", n)
	}
	g.wantEvent(EvSend, Rejected, "m", 10)
	g.rest()
}

func TestResendsKeepPostOrder(t *testing.T) {
	g := newRig(t)
	var hs []Handle
	for i := range 20 {
		hs = append(hs, g.send(Send{Buf: pattern(10), Context: i}))
	}
	for _, i := range []int{7, 3, 19, 0, 12} {
		g.refuseOnce(hs[i], wire.RCNoMatch, 0)
	}
	g.Advance(1 * time.Second)
	g.Advance(2 * time.Second)
	var got []Handle
	for h, ok := g.Resend(); ok; h, ok = g.Resend() {
		got = append(got, h)
	}
	if want := []Handle{hs[0], hs[3], hs[7], hs[12], hs[19]}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestCancelSendThatWaits(t *testing.T) {
	g := newRig(t)
	a := g.send(Send{Buf: pattern(10), Context: "wait"})
	b := g.send(Send{Buf: pattern(10), Context: "ready"})
	g.refuseOnce(b, wire.RCNoMatch, 0)
	g.Advance(1 * time.Second)
	g.Advance(2 * time.Second)
	g.refuseOnce(a, wire.RCNoMatch, 0)
	for _, c := range []string{"ready", "wait"} {
		if _, ok := g.CancelSend(0, c); !ok {
			t.Fatal(c)
		}
		if e := g.wantEvent(EvSend, Cancelled, c, 10); e.RC != 0 || e.Unknown {
			t.Fatalf("%+v", e)
		}
	}
	if _, ok := g.Resend(); ok {
		t.Fatal("cancelled message comes back")
	}
	g.rest()
}

func TestGenerationIsAdopted(t *testing.T) {
	// S-GEN-03, S-GEN-04: refused messages are sent again at once with the new generation, in
	// post order.
	g := newRig(t)
	gen := func(h Handle) uint8 {
		p, ok := g.Next(h, 1024)
		if !ok {
			t.Fatal("no piece")
		}
		r, _ := parse(t, g.Append(nil, p))
		return r.Gen
	}
	a := g.send(Send{Buf: pattern(10), Context: "a", Peer: 1})
	b := g.send(Send{Buf: pattern(10), Context: "b", Peer: 1})
	queued := g.send(Send{Buf: pattern(10), Context: "queued", Peer: 1})
	other := g.send(Send{Buf: pattern(10), Context: "other", Peer: 2})
	g.refuseOnce(a, wire.RCDisabledGen, 4)
	now := time.Second
	g.Advance(now)
	g.refuseOnce(b, wire.RCBadGeneration, 5)
	g.Advance(now) // b at once, and a in front of it
	for _, want := range []Handle{a, b} {
		h, ok := g.Resend()
		if !ok || h != want {
			t.Fatalf("%v %v, want %v", h, ok, want)
		}
		if n := gen(h); n != 5 {
			t.Fatalf("generation %d", n)
		}
	}
	if n := gen(queued); n != 5 {
		t.Fatalf("a queued message has generation %d", n)
	}
	if n := gen(other); n != 0 {
		t.Fatalf("another peer's generation %d", n)
	}
	g.Answered(a, nil)
	g.wantEvent(EvSend, OK, "a", 10)
	// A target that never agrees is asked less and less often.
	g.Answered(b, rsp(wire.RspResponse, wire.RCBadGeneration))
	for i := 0; ; i++ {
		g.Advance(now)
		h, ok := g.Resend()
		if !ok {
			if i < 3 {
				t.Fatal("a wait too soon")
			}
			break
		}
		if i > 20 {
			t.Fatal("no wait at all")
		}
		g.refuseOnce(h, wire.RCBadGeneration, uint8(i))
	}
}

func TestGenerationEndsWithThePeer(t *testing.T) {
	// S-GEN-03: after Forget the number of a peer, which may then mean another peer, has no
	// generation. With a negative RNRTimeout a wrong one would make the refusal final.
	g := newRig(t)
	gen := func(peer uint32) uint8 {
		h := g.send(Send{Peer: peer, Buf: pattern(10), Target: self(g.SES)})
		p, _ := g.Next(h, 1024)
		r, _ := parse(t, g.SES.Append(nil, p))
		g.Answered(h, nil)
		g.event()
		return r.Gen
	}
	for peer := range uint32(2) {
		h := g.send(Send{Peer: 1 + peer, Buf: pattern(10), Target: self(g.SES)})
		g.refuseOnce(h, wire.RCBadGeneration, 5)
		g.Advance(time.Second)
		if h, ok := g.Resend(); ok {
			g.through(h)
		}
		g.event()
	}
	g.Forget(1)
	if a, b := gen(1), gen(2); a != 0 || b != 5 {
		t.Errorf("generations %d and %d, want 0 and 5", a, b)
	}
}

func TestClosedWhileAResponseIsPromised(t *testing.T) {
	// docs/faults.md rule 3: the effect is unknown if the endpoint closes after every piece was
	// answered NO_RESPONSE, because the target may have the message.
	g := newRig(t)
	h := g.send(Send{Buf: pattern(10), Context: "m"})
	drain(g.SES, h, 1024)
	g.Answered(h, &wire.Rsp{Opcode: wire.RspNone})
	g.CancelAll()
	if e := g.wantEvent(EvSend, Cancelled, "m", 10); !e.Unknown {
		t.Error("it provably did not happen")
	}
}
