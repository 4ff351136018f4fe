package ses

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// sendMatch posts a tagged message of LevelMatch from a to b, as a FEP does.
func (d *duo) sendMatch(tag uint64, n int, change func(*Op)) Handle {
	d.t.Helper()
	cfg := testConfig()
	op := &Op{Kind: EvTSend, Peer: 2, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Buf: pattern(n), Tag: tag, Level: LevelMatch, Context: tag}
	if change != nil {
		change(op)
	}
	h, err := d.a.send(d.now, op)
	if err != nil {
		d.t.Fatal(err)
	}
	if !(op.Fence || d.a.Fenced(op.Endpoint, uint32(op.Peer))) || !d.a.Fence(h, op.Fence) {
		d.a.waiting = append(d.a.waiting, h)
	}
	return h
}

// R-CMPL-12, S-DEF-64: a send of LevelMatch ends when a receive has the message, not before, whatever its length,
// though there is room for it.
func TestMatchCompleteWaitsForTheReceive(t *testing.T) {
	lengths := []int{0, 1, 8, 1024, 1025, 20_000}
	for seed := range uint64(40) {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%v", seed, ordered), func(t *testing.T) {
				d := newDuo(t, seed, func(c *Config) {
					if seed%2 == 0 {
						c.DeferrableMin = -1
					}
					c.RNRTimeout = time.Millisecond // to be matched may take longer
				})
				for k, n := range lengths {
					d.sendMatch(uint64(k), n, func(op *Op) { op.Ordered, op.Fence = ordered, seed%8 == 7 && k == 0 })
				}
				d.run()
				for left := len(lengths); left > 0; left-- {
					if n := len(d.a.events); n != 0 {
						t.Fatalf("%d sends ended before their receives were posted, the first with %v", n, d.a.events[0].Cause)
					}
					d.recv(uint64(left-1), 30_000)
					d.run()
					d.received(map[uint64]int{uint64(left - 1): lengths[left-1]})
					d.sent(1)
				}
				d.atRest()
			})
		}
	}
}

// A message that meets its receive is sent once, and ends at once.
func TestMatchCompleteMeetsTheReceive(t *testing.T) {
	d := newDuo(t, 1, nil)
	for k := range uint64(3) {
		d.recv(k, 5000)
		d.sendMatch(k, 3000, nil)
		d.run()
		d.sent(1)
	}
	d.received(map[uint64]int{0: 3000, 1: 3000, 2: 3000})
	if d.b.Stats.Deferred != 0 || d.a.Stats.Resends != 0 {
		t.Errorf("%d were deferred, %d sent again", d.b.Stats.Deferred, d.a.Stats.Resends)
	}
	d.atRest()
}

// R-CMPL-12: a message that the target discards has ended, too. One that is cancelled ends once.
func TestMatchCompleteDiscardedOrCancelled(t *testing.T) {
	d := newDuo(t, 2, nil)
	d.sendMatch(1, 500, nil)
	d.sendMatch(2, 500, nil)
	d.run()
	if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Tag: 1, Look: LookPeekDiscard, Context: "look"}); err != nil {
		t.Fatal(err)
	}
	d.run()
	d.sent(1)
	if _, ok := d.a.CancelSend(0, uint64(2)); !ok {
		t.Error("not cancelled")
	}
	d.b.events = nil
	d.recv(2, 500)
	d.run()
	if len(d.a.events) != 1 || d.a.events[0].Cause != Cancelled || d.a.events[0].Unknown || len(d.b.events) != 0 {
		t.Errorf("%+v, %d receives", d.a.events, len(d.b.events))
	}
	if !d.b.CancelRecv(0, uint64(2)) {
		t.Error("the receive has not gone back")
	}
	d.run()
	d.atRest()
}

// matchAlone posts one send of LevelMatch to a peer that answers the question about RTRs so.
func matchAlone(t *testing.T, n int, answer func(s *SES, question Handle)) (*SES, Handle) {
	t.Helper()
	s := New(testConfig())
	cfg := testConfig()
	h, err := s.send(1, &Op{Kind: EvSend, Peer: 2, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Buf: pattern(n), Level: LevelMatch, Context: "m"})
	if err != nil || !s.Fenced(0, 2) || !s.Fence(h, false) {
		t.Fatalf("%v; it does not wait for the question", err)
	}
	s.Advance(2)
	q, ok := s.Resend()
	if !ok {
		t.Fatal("there is no question")
	}
	p, ok := s.Peek(q, 1024)
	if !ok {
		t.Fatal("the question has no piece")
	}
	var r wire.ReqStd
	if _, err := r.Parse(s.AppendPiece(nil, p)); err != nil || r.Opcode != wire.OpDeferrableRTR {
		t.Fatalf("the question is %v, %v", r.Opcode, err)
	}
	answer(s, q)
	return s, h
}

// A target that does not know RTRs gets an ordinary send. Its answer shows whether a receive has the
// message: if it keeps it and promises nothing, the send ends as Untold, with unknown effect.
func TestMatchCompleteOfStrangers(t *testing.T) {
	no := func(s *SES, q Handle) {
		s.Answered(q, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp, MsgID: 1})
	}
	for _, c := range []struct {
		name    string
		answers []wire.Rsp
		want    Cause
	}{
		{"matched", []wire.Rsp{{Opcode: wire.RspDefault, RC: wire.RCOK, ModLen: 8}}, OK},
		{"kept", []wire.Rsp{{Opcode: wire.RspResponse, RC: wire.RCOK, List: wire.ListOverflow, ModLen: 8}}, Untold},
		{"promised, then matched", []wire.Rsp{{Opcode: wire.RspNone, RC: wire.RCNull}, {Opcode: wire.RspResponse, RC: wire.RCOK, List: wire.ListOverflow, ModLen: 8}}, OK},
		{"refused", []wire.Rsp{{Opcode: wire.RspResponse, RC: wire.RCPermViolation}}, Rejected},
	} {
		s, _ := matchAlone(t, 8, no)
		h, ok := s.Unfenced()
		if !ok {
			t.Fatalf("%s: it still waits", c.name)
		}
		p, _ := s.Peek(h, 1024)
		var r wire.ReqStd
		if _, err := r.Parse(s.AppendPiece(nil, p)); err != nil || r.Opcode != wire.OpSend || r.Flags&wire.SESDC == 0 {
			t.Errorf("%s: opcode %v, flags %v, %v", c.name, r.Opcode, r.Flags, err)
		}
		for i, rsp := range c.answers {
			rsp.MsgID = r.MsgID
			if i == 0 {
				s.Answered(h, &rsp)
			} else if e := s.Event(); e != nil {
				t.Errorf("%s: ended as %v before the result", c.name, e.Cause)
			} else {
				s.Response(2, &rsp)
			}
		}
		e := s.Event()
		if e == nil || e.Cause != c.want || e.Unknown != (c.want == Untold) {
			t.Errorf("%s: %+v, want %v", c.name, e, c.want)
		}
		if !s.Idle() {
			t.Errorf("%s: something is left", c.name)
		}
	}
}

// A question that fails ends what waits for it, certainly without effect. The next send asks again.
func TestMatchCompleteQuestionFails(t *testing.T) {
	s, _ := matchAlone(t, 8, func(s *SES, q Handle) { s.Failed(q, TimedOut, 0) })
	if e := s.Event(); e == nil || e.Cause != TimedOut || e.Unknown || e.Context != "m" {
		t.Fatalf("%+v", e)
	}
	if !s.Idle() || s.SomeUnfenced() && func() bool { _, ok := s.Unfenced(); return ok }() || s.Fenced(0, 2) {
		t.Error("something is left")
	}
	if s.supports[2] != supportUnknown {
		t.Error("it is known now")
	}
}

// R-CMPL-12: where a receive is taken back from a message of LevelMatch that does not go on, the
// message is sent again: it may not become an unexpected one, because its sender was told of a match.
func TestMatchCompleteIsNotTakenBack(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	var rest [][]byte
	for k := range 8 {
		g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 4000), Context: k})
		p := g.long(uint64(k))
		for _, b := range p { // as its sender does: DC, and the tokens
			b[0] += byte(wire.OpDeferrableTSend - wire.OpTaggedSend)
			b[1] |= byte(wire.SESDC)
			b[15], b[19] = byte(k+1), 0
		}
		g.want(srcA, p[0], "default OK 3000")
		rest = append(rest, p[1])
	}
	g.want(srcB, g.tagged(60, pattern(99), 1024)[0], "response OK overflow 99 gtd")
	g.until(g.now + 100*ms)
	if g.Stats.TakenBack == 0 {
		t.Fatal("nothing was taken back")
	}
	e := g.wantEvent(EvTRecv, OK, 7, 99)
	wantBytes(t, e.Buf[:99], pattern(99))
	g.want(srcA, rest[7], "response NO_MATCH 0 gtd")
}

// R-ORD-07: a send of LevelMatch behind a fence waits for it, also when it is known before that what
// its target can do; and for the last of them if there are several.
func TestMatchCompleteBehindAFence(t *testing.T) {
	for _, fences := range []int{1, 2, 3} {
		s := New(testConfig())
		cfg := testConfig()
		send := func(ctx string, level Level, fence bool) Handle {
			h, err := s.send(1, &Op{Kind: EvSend, Peer: 2, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Buf: pattern(8), Level: level, Fence: fence, Context: ctx})
			if err != nil {
				t.Fatal(err)
			}
			if fence || s.Fenced(0, 2) {
				s.Fence(h, fence)
			}
			return h
		}
		first := send("first", LevelTransmit, false)
		p, _ := s.Peek(first, 1024)
		s.AppendPiece(nil, p)
		fenced := make([]Handle, fences)
		for i := range fenced {
			fenced[i] = send("fenced", LevelTransmit, true)
		}
		send("match", LevelMatch, false)
		s.Advance(2)
		q, _ := s.Resend()
		p, _ = s.Peek(q, 1024)
		s.AppendPiece(nil, p)
		s.Answered(q, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUndeliverable, MsgID: uint16(2 + fences)})
		if h, ok := s.Unfenced(); ok {
			t.Fatalf("send %v may go before the fence", h)
		}
		for i, last := range append([]Handle{first}, fenced[:fences-1]...) {
			if i > 0 {
				p, _ = s.Peek(last, 1024)
				s.AppendPiece(nil, p)
			}
			s.Answered(last, nil)
			n, want := 0, 1
			if i == fences-1 {
				want = 2
			}
			for _, ok := s.Unfenced(); ok; _, ok = s.Unfenced() {
				n++
			}
			if n != want {
				t.Errorf("of %d fences: %d sends may go behind fence %d, want %d", fences, n, i, want)
			}
		}
	}
}

// S-DEF-08: receives that were kept for messages that do not come take what is there, though an ordered
// message of the same peer has had a younger one. Else they would lie beside it for ever.
func TestReceivesThatGoBackTakeWhatIsThere(t *testing.T) {
	d := newDuo(t, 4, nil)
	for range 2 {
		d.sendMatch(1, 100, func(op *Op) { op.Ordered = true })
	}
	d.run()
	for range 2 {
		d.send(1, 50, true)
	}
	d.run()
	d.sent(2)
	for range 2 {
		d.recv(1, 100)
		if _, ok := d.a.CancelSend(0, uint64(1)); !ok {
			t.Fatal("not cancelled")
		}
	}
	d.run()
	if len(d.b.events) != 2 {
		t.Errorf("%d of the two messages that were kept are received", len(d.b.events))
	}
	d.a.events = nil
	d.atRest()
}
