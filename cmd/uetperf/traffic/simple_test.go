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

// Each round trip of a pingpong whose messages are not checked counts once, and its receive is posted
// again.
func TestSimplePingpong(t *testing.T) {
	s := base(Lat, TSend, 64)
	s.Iters, s.Warmup, s.Check = 20, 5, false
	l, c := NewLeg(&s, 0, false, NewGroup(&s, false, nil)), &lossyConn{now: time.Second}
	l.Conn = c
	l.Gate.Store(true)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	posted := len(c.posted)
	for n := 0; l.Res.Sent == 0; n = 2 {
		if len(c.sent) > 25 {
			t.Fatalf("%d messages are sent", len(c.sent))
		}
		turn(t, l, n)
		if len(c.slots) == 0 {
			continue
		}
		c.now += time.Microsecond
		in := c.posted[0]
		c.posted = c.posted[1:]
		if err := l.Take([]Completion{{Slot: c.slots[0], Sent: true}, {Slot: in, Len: 64}}); err != nil {
			t.Fatal(err)
		}
		c.slots = nil
	}
	if l.ping == nil || l.Res.Sent != 25 || l.Res.Received != 25 || l.hist.count() != 20 || len(c.posted) != posted {
		t.Errorf("%d sent, %d received, %d times, %d receives, had %d", l.Res.Sent, l.Res.Received, l.hist.count(), len(c.posted), posted)
	}
}
