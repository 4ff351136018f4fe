package traffic

import (
	"slices"
	"testing"
	"time"
)

// A fullConn is the Conn of a sender whose sends find room for some at a time, and complete when the
// test says so.
type fullConn struct {
	lossyConn
	room  int
	looks int // at the clock
}

func (c *fullConn) Now() time.Duration { c.looks++; return c.now }

func (c *fullConn) Access(s *Slot) (bool, error) { return c.Send(s.Buf, 0, s) }

func (c *fullConn) Send(b []byte, seq int64, s *Slot) (bool, error) {
	if len(c.slots) == c.room {
		return false, nil
	}
	return c.lossyConn.Send(b, seq, s)
}

func (c *fullConn) SendAll(slots []*Slot, seq int64) (n int, err error) {
	for ; n < len(slots); n++ {
		if ok, err := c.Send(slots[n].Buf, seq+int64(n), slots[n]); !ok {
			return n, err
		}
	}
	return n, nil
}

// Of bw the times of single messages are taken: of each large one after the warm-up, also of those that
// end when no other follows, from the call to the completion.
func TestTimesOfMessages(t *testing.T) {
	for name, check := range map[string]bool{"checked": true, "unchecked": false} {
		s := base(BW, TSend, timedEach)
		s.Iters, s.Warmup, s.Window, s.Check = 20, 4, 4, check
		l, c := NewLeg(&s, 0, false, NewGroup(&s, false, nil)), &fullConn{lossyConn: lossyConn{now: time.Second}, room: 3}
		l.Conn = c
		l.Gate.Store(true)
		for n := 0; l.Res.Sent == 0 || len(c.slots) > 0; n = 3 {
			turn(t, l, n)
			c.now += time.Duration(len(c.sent)) * time.Microsecond // the later, the longer
			c.complete(t, l)
		}
		turn(t, l, 3)
		got := Times([]*Leg{l})
		if got == nil || l.hist.count() != 20 || !got.Completion || !got.RTT {
			t.Fatalf("%s: %d times, %+v", name, l.hist.count(), got)
		}
		if got.Min != 7000 || got.Max != 24000 {
			t.Errorf("%s: %d to %d ns", name, got.Min, got.Max)
		}
		if r := Result(&s, []*Leg{l}, nil, &Spread{}); r.Latency == nil || r.Latency.Max != 24000 {
			t.Errorf("%s: the result has %+v", name, r.Latency)
		}
	}
}

// Of small messages few have their time taken, which needs two looks at the clock; one that finds no
// room is not among them, but the next is.
func TestTimesOfFewMessages(t *testing.T) {
	for _, op := range []string{TSend, Write} { // batches, and one by one
		testTimesOfFew(t, op)
	}
}

func testTimesOfFew(t *testing.T, op string) {
	s := base(BW, op, 64)
	s.Iters, s.Warmup, s.Window, s.Check = 1700, 0, 100, false
	l, c := NewLeg(&s, 0, false, NewGroup(&s, false, nil)), &fullConn{lossyConn: lossyConn{now: time.Second}, room: 10}
	l.Conn = c
	l.Gate.Store(true)
	turns := 0
	for ; l.Res.Sent == 0 || len(c.slots) > 0; turns++ {
		turn(t, l, min(turns, 1))
		c.now += time.Millisecond
		done := make([]Completion, 0, len(c.slots))
		for _, s := range c.slots {
			done = append(done, Completion{Slot: s, Sent: true})
		}
		if c.slots = nil; l.Take(done) != nil {
			t.Fatal("not taken")
		}
	}
	if n := l.hist.count(); n != 100 || l.hist.max != int64(time.Millisecond) {
		t.Errorf("%d times up to %d ns", n, l.hist.max)
	}
	if c.looks > 100+10*turns {
		t.Errorf("%d looks at the clock in %d turns", c.looks, turns)
	}
}

// What a completion does not tell has no time, and rate takes none.
func TestTimesOfNothing(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"inject complete": func(s *Spec) { s.Complete = "inject" }, "datagrams": func(s *Spec) { s.Mode = UUD }, "rate": func(s *Spec) { s.Test = Rate },
	} {
		s := base(BW, Send, 64)
		if !s.Times() {
			t.Error("bw takes no times")
		}
		if change(&s); s.Times() || NewLeg(&s, 0, false, NewGroup(&s, false, nil)).hist != nil {
			t.Errorf("%s: takes times", name)
		}
	}
}

// The times of messages that the server sends come with its result, and those of both directions count
// together.
func TestTimesOfBothEnds(t *testing.T) {
	s := base(BW, TSend, 64)
	s.Bidir = true
	leg := func(server bool, ds ...time.Duration) *Leg {
		l := NewLeg(&s, 0, server, NewGroup(&s, server, nil))
		for _, d := range ds {
			l.hist.record(d, 1)
		}
		l.Res.Tx = Measure{Msgs: 10, Duration: time.Second}
		return l
	}
	mine, theirs := leg(false, 1000, 2000), leg(true, 3000)
	peer := slices.Clone(theirs.Results())
	peer[0].Latency = Times([]*Leg{theirs})
	if l := Result(&s, []*Leg{mine}, peer, &Spread{}).Latency; l == nil || l.Min != 1000 || l.Max != 3000 || l.Mean != 2000 {
		t.Errorf("%+v", l)
	}
	peer[0].Latency.HDR = "no histogram"
	if l := Result(&s, []*Leg{mine}, peer, &Spread{}).Latency; l == nil || l.Max != 2000 {
		t.Errorf("%+v", l)
	}
}
