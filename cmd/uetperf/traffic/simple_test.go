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
		posted := len(c.posted)
		for n := 0; l.Res.Sent == 0; n = 2 {
			if len(c.sent) > 30 {
				t.Fatalf("%d messages are sent", len(c.sent))
			}
			turn(t, l, n)
			if len(c.slots) == 0 {
				continue
			}
			c.now += time.Duration(8+2*len(c.sent)) * time.Microsecond // twice 4 µs and the number
			in := c.posted[0]
			c.posted = c.posted[1:]
			if err := l.Take([]Completion{{Slot: c.slots[0], Sent: true}, {Slot: in, Len: 64}}); err != nil {
				t.Fatal(err)
			}
			c.slots = nil
		}
		for i, n := range c.sent {
			if n != int64(i) {
				t.Fatalf("message %d is sent as number %d", n, i)
			}
		}
		h := l.hist
		if l.ping == nil || l.Res.Sent != 25 || l.Res.Received != 25 || h.count() != 20 || h.min != 10_000 || h.max != 29_000 || h.sum != 20*19_500 || len(c.posted) != posted {
			t.Errorf("timed %v: %d sent, %d received, %d times from %d to %d ns, %.0f together, %d receives, had %d", timed,
				l.Res.Sent, l.Res.Received, h.count(), h.min, h.max, h.sum, len(c.posted), posted)
		}
	}
}

// What is sent back is sent before receives are posted again, each once.
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
	posted := len(c.posted)
	const n = 20
	for got := 0; got < n || len(c.slots) > 0; {
		var cs []Completion
		for _, s := range c.slots {
			cs = append(cs, Completion{Slot: s, Sent: true})
		}
		c.slots = nil
		if got < n {
			cs = append(cs, Completion{Slot: c.posted[0], Len: 64})
			c.posted = c.posted[1:]
			got++
		}
		if err := l.Take(cs); err != nil {
			t.Fatal(err)
		}
		turn(t, l, len(cs))
	}
	l.finish()
	if l.echoes == nil || len(c.sent) != n || l.Res.Sent != n || l.Res.Received != n || len(c.posted) != posted {
		t.Errorf("%v: %d sent, %d and %d counted, %d receives, had %d", l.echoes != nil, len(c.sent), l.Res.Sent, l.Res.Received, len(c.posted), posted)
	}
}
