package traffic

import (
	"slices"
	"testing"
	"time"
)

// narrowConn has room for few messages at a time.
type narrowConn struct {
	Conn
	room int
	sent []int64 // numbers, in order
	out  []*Slot // under way
}

func (c *narrowConn) Now() time.Duration               { return time.Second }
func (c *narrowConn) Usage() (user, sys time.Duration) { return 0, 0 }

func (c *narrowConn) SendAll(slots []*Slot, seq int64) (int, error) {
	n := min(len(slots), c.room)
	for i, s := range slots[:n] {
		c.sent, c.out = append(c.sent, seq+int64(i)), append(c.out, s)
	}
	c.room -= n
	return n, nil
}

// Each message is sent once, in order, and no buffer is used twice at a time or gets lost, however
// little room there is.
func TestSimpleStream(t *testing.T) {
	s := &Spec{Test: Rate, Op: TSend, Size: 8, Window: 8, Iters: 40, Warmup: 5, Parallel: 1}
	l, c := NewLeg(s, 0, false, NewGroup(s, false, nil)), &narrowConn{}
	l.Conn = c
	l.Gate.Store(true)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	for turn := 0; len(c.sent) < 45; turn++ {
		if turn > 200 {
			t.Fatalf("%d of 45 messages are sent", len(c.sent))
		}
		c.room = turn % 4
		if _, _, err := l.Turn(1); err != nil {
			t.Fatal(err)
		}
		if len(c.out) > s.Window {
			t.Fatalf("%d messages are under way", len(c.out))
		}
		for i, a := range c.out {
			if slices.Contains(c.out[:i], a) {
				t.Fatal("a buffer is used twice at a time")
			}
		}
		done := make([]Completion, (len(c.out)+1)/2)
		for i := range done {
			done[i] = Completion{Slot: c.out[i], Sent: true, Seq: -1}
		}
		c.out = c.out[len(done):]
		if err := l.Take(done); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range c.sent {
		if n != int64(i) {
			t.Fatalf("message %d has number %d", i, n)
		}
	}
}

// A shyConn has no room for every third message.
type shyConn struct {
	lossyConn
	tries int
}

func (c *shyConn) Send(b []byte, seq int64, s *Slot) (bool, error) {
	if c.tries++; c.tries%3 == 0 {
		return false, nil
	}
	return c.lossyConn.Send(b, seq, s)
}

// Each round trip of a pingpong whose messages are not checked counts once, with its own time, and its
// receive is posted again, also where a message finds no room at first. The test ends in time.
func TestSimplePingpong(t *testing.T) {
	for _, timed := range []bool{false, true} {
		s := base(Lat, TSend, 64)
		s.Iters, s.Warmup, s.Check = 20, 5, false
		if timed {
			s.Iters, s.Time = 0, 760*time.Microsecond // 20 + 22 + ... + 58 µs, less a part of the last
		}
		l, c := NewLeg(&s, 0, false, NewGroup(&s, false, nil)), &shyConn{lossyConn: lossyConn{now: time.Second}}
		l.Conn = c
		l.Gate.Store(true)
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		posted, owned := len(c.posted), 0
		for n := 0; l.Res.Sent == 0; n = 2 {
			if len(c.sent) > 30 {
				t.Fatalf("%d messages are sent", len(c.sent))
			}
			if len(c.slots) == 0 {
				turn(t, l, n)
			}
			if len(c.slots) == 0 {
				continue
			}
			c.now += time.Duration(8+2*len(c.sent)) * time.Microsecond // twice 4 µs and the number
			out, in := c.slots[0], c.posted[0]
			c.slots, c.posted = nil, c.posted[1:]
			r, ok := l.Rounds()
			if !ok {
				if err := l.Take([]Completion{{Slot: out, Sent: true}, {Slot: in, Len: 64}}); err != nil {
					t.Fatal(err)
				}
				continue
			}
			owned++
			if r.Took(out, true); r.Ended() {
				t.Fatal("a round trip ended before its message came back")
			}
			r.Took(in, false)
			b := r.Next(c.now)
			if b == nil {
				continue
			}
			if ok, _ := c.Send(b.Buf, int64(len(c.sent)), b); !ok {
				r.Full()
				continue
			}
			if s := r.Sent(); owned%4 != 0 {
				_, _ = c.Recv(s)
			} else if err := l.Refused(s, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range c.sent {
			if n != int64(i) {
				t.Fatalf("message %d is sent as number %d", n, i)
			}
		}
		h := l.hist
		if owned < 5 || l.Res.Sent != 25 || l.Res.Received != 25 || h.count() != 20 || h.min != 10_000 || h.max != 29_000 || h.sum != 20*19_500 || len(c.posted) != posted {
			t.Errorf("timed %v: %d sent, %d received, %d times from %d to %d ns, %.0f together, %d receives, had %d", timed,
				l.Res.Sent, l.Res.Received, h.count(), h.min, h.max, h.sum, len(c.posted), posted)
		}
	}
}

// Each message that the owner of a leg sends back counts once, and its receive is posted again, also where
// an answer or a receive finds no room at first.
func TestSimpleEcho(t *testing.T) {
	s := base(Lat, TSend, 64)
	s.Check = false
	l, c := NewLeg(&s, 0, true, NewGroup(&s, true, nil)), &shyConn{lossyConn: lossyConn{now: time.Second}}
	l.Conn = c
	l.Gate.Store(true)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	turn(t, l, 0)
	posted, owned := len(c.posted), 0
	const n = 40
	for got := 0; got < n || len(c.slots) > 0; {
		back := c.slots
		c.slots = nil
		var in []*Slot
		if got < n {
			in, c.posted = c.posted[:1:1], c.posted[1:]
			got++
		}
		e, ok := l.Echoes()
		if !ok {
			for _, s := range back {
				if err := l.Take([]Completion{{Slot: s, Sent: true}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range in {
				if err := l.Take([]Completion{{Slot: s, Len: 64}}); err != nil {
					t.Fatal(err)
				}
			}
			turn(t, l, 1)
			continue
		}
		owned++
		for _, s := range in {
			b := e.Got(s, 64)
			if ok, _ := c.Send(b, 0, s); !ok {
				e.Full(s)
			}
		}
		for _, s := range back {
			if e.Back(s); owned%4 != 0 {
				_, _ = c.Recv(s)
			} else if err := l.Refused(s, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !e.Goes() {
			turn(t, l, 1)
		}
	}
	l.finish()
	if owned < 5 || len(c.sent) != n || l.Res.Sent != n || l.Res.Received != n || len(c.posted) != posted {
		t.Errorf("%d looks of the owner: %d sent, %d and %d counted, %d receives, had %d", owned, len(c.sent), l.Res.Sent, l.Res.Received, len(c.posted), posted)
	}
}
