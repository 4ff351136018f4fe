package traffic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A lossyConn is the Conn of a leg whose datagrams the test carries. Sends complete when the test says so.
type lossyConn struct {
	Conn
	now    time.Duration
	sent   []int64 // numbers, in order
	slots  []*Slot // of sent
	posted []*Slot // receives
}

func (c *lossyConn) Now() time.Duration               { return c.now }
func (c *lossyConn) Usage() (user, sys time.Duration) { return 0, 0 }
func (c *lossyConn) Fill(b []byte, n uint64)          { clear(b) }
func (c *lossyConn) Verify(b []byte, n uint64) int    { return 0 }

func (c *lossyConn) Send(_ []byte, seq int64, s *Slot) (bool, error) {
	c.sent, c.slots = append(c.sent, seq), append(c.slots, s)
	return true, nil
}

func (c *lossyConn) Recv(s *Slot) (bool, error) {
	c.posted = append(c.posted, s)
	return true, nil
}

// lossyLeg makes a started leg.
func lossyLeg(t *testing.T, s *Spec, server bool) (*Leg, *lossyConn) {
	t.Helper()
	s.Mode, s.EP = UUD, Dgram
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	l, c := NewLeg(s, 0, server, NewGroup(s, server, nil)), &lossyConn{now: time.Second}
	l.Conn = c
	l.Gate.Store(true)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	turn(t, l, 0)
	return l, c
}

func turn(t *testing.T, l *Leg, n int) (wait time.Duration, over bool) {
	t.Helper()
	wait, over, err := l.Turn(n)
	if err != nil {
		t.Fatal(err)
	}
	return wait, over
}

// receive gives the leg a message with a number.
func (c *lossyConn) receive(t *testing.T, l *Leg, seq int64) {
	t.Helper()
	s := c.posted[0]
	c.posted = c.posted[1:]
	if err := l.Take([]Completion{{Slot: s, Len: len(s.Buf), Seq: seq}}); err != nil {
		t.Fatal(err)
	}
}

// complete ends all sends.
func (c *lossyConn) complete(t *testing.T, l *Leg) {
	t.Helper()
	for _, s := range c.slots {
		if err := l.Take([]Completion{{Slot: s, Sent: true}}); err != nil {
			t.Fatal(err)
		}
	}
	c.slots = nil
}

// The receiver of a stream is complete when it knows how many were sent, and all came. What comes twice is an
// error.
func TestLossyReceiver(t *testing.T) {
	s := base(BW, Send, 100)
	s.Iters, s.Warmup = 20, 2
	l, c := lossyLeg(t, &s, true)
	complete := false
	l.Complete = func() { complete = true }
	for i := range int64(21) {
		c.receive(t, l, i)
	}
	c.receive(t, l, 9) // again
	turn(t, l, 22)
	c.now += time.Hour // the sender may be slow to tell
	if turn(t, l, 0); complete {
		t.Fatal("complete before it is known how many there were")
	}
	l.PeerSent.Store(22)
	if turn(t, l, 0); complete {
		t.Fatal("complete although one is missing")
	}
	c.receive(t, l, 21)
	if turn(t, l, 1); !complete {
		t.Fatal("not complete although all came")
	}
	l.End(nil)
	if r := l.Res; r.Received != 22 || r.Check.OK != 22 || r.Check.Dup != 1 || r.Check.Wrong != 1 || r.Rx.Msgs != 20 {
		t.Errorf("%+v, %+v", r, r.Check)
	}
}

// It is complete as well when nothing comes any more. What is missing is no error, and the wait is not measured.
func TestLossyReceiverGivesUp(t *testing.T) {
	s := base(BW, Send, 100)
	l, c := lossyLeg(t, &s, true)
	complete := false
	l.Complete = func() { complete = true }
	for i := range int64(100) {
		c.receive(t, l, i)
	}
	turn(t, l, 100)
	l.PeerSent.Store(210)
	turn(t, l, 0)
	c.now += lossyQuiet - 1
	if turn(t, l, 0); complete {
		t.Fatal("complete too early")
	}
	c.receive(t, l, 150)
	turn(t, l, 1)
	c.now += lossyQuiet - 1
	if turn(t, l, 0); complete {
		t.Fatal("complete although something came")
	}
	c.now++
	if turn(t, l, 0); !complete {
		t.Fatal("never complete")
	}
	l.End(nil)
	if r := l.Res; r.Received != 101 || r.Check.Wrong != 0 || r.Check.OK != 101 || r.Rx.Duration >= lossyQuiet {
		t.Errorf("%+v, %+v", r, r.Check)
	}
}

// A sender of a stream is at most a window ahead of the words of its receiver, and goes on without them.
func TestLossySenderPace(t *testing.T) {
	s := base(BW, Send, 100)
	s.Window, s.Warmup = 8, 0
	l, c := lossyLeg(t, &s, false)
	sent := func(want int) {
		t.Helper()
		n := len(c.slots)
		c.complete(t, l)
		if turn(t, l, n); len(c.sent) != want {
			t.Fatalf("%d sent, want %d", len(c.sent), want)
		}
	}
	sent(8)
	c.receive(t, l, wordBit|3)
	sent(11)
	c.receive(t, l, wordBit|2) // late
	sent(11)
	if wait, _ := turn(t, l, 0); wait <= 0 || wait > wordTime {
		t.Fatalf("waits for %v", wait)
	}
	c.now += wordTime
	sent(19)

	// The receiver tells how far it is, and waits for the end of its word.
	r, c := lossyLeg(t, &s, true)
	for i := range int64(words + 10) {
		c.receive(t, r, 2*i+1)
		turn(t, r, 1)
	}
	if len(c.sent) != words || c.sent[0] != wordBit|2 || c.sent[5] != wordBit|12 {
		t.Fatalf("words %x", c.sent)
	}
	c.complete(t, r)
	turn(t, r, words)
	if last := c.sent[len(c.sent)-1]; len(c.sent) != words+1 || last != wordBit|2*(words+10) {
		t.Fatalf("%d words, the last is %x", len(c.sent), last)
	}
}

// A round trip whose answer does not come in time is lost. Its answer, if it comes late, is not taken for
// another, and no error. One that comes again is.
func TestLossyRoundTrips(t *testing.T) {
	s := base(Ping, Send, 100)
	s.Iters, s.Warmup = 4, 0
	l, c := lossyLeg(t, &s, false)
	var rtts []time.Duration
	l.Reply = func(_ int64, rtt time.Duration) { rtts = append(rtts, rtt) }
	step := func(after time.Duration, seqs ...int64) {
		t.Helper()
		c.now += after
		n := len(seqs) + len(c.slots)
		c.complete(t, l)
		for _, q := range seqs {
			c.receive(t, l, q)
		}
		turn(t, l, n)
	}
	step(time.Millisecond, 0)
	step(answerTime - 1)
	if len(rtts) != 1 {
		t.Fatalf("%v: lost too early", rtts)
	}
	step(1)                         // round trip 1 is lost
	step(2*time.Millisecond, 1)     // its answer
	step(time.Millisecond, 2, 2, 0) // two of these come again
	step(5*time.Millisecond, 3)
	turn(t, l, 0)
	ms := time.Millisecond
	want := []time.Duration{ms, 0, 3 * ms, 5 * ms}
	if len(rtts) != 4 || rtts[0] != want[0] || rtts[1] != want[1] || rtts[2] != want[2] || rtts[3] != want[3] {
		t.Fatalf("round trips took %v, want %v", rtts, want)
	}
	l.End(nil)
	if r := l.Res; r.Sent != 4 || r.Received != 3 || r.Tx.Msgs != 3 || l.hist.count() != 3 || r.Check.OK != 3 || r.Check.Dup != 2 || r.Check.Wrong != 2 {
		t.Errorf("%+v, %d recorded, %+v", r, l.hist.count(), r.Check)
	}
	out := Result(&s, []*Leg{l}, []LegResult{{Sent: 4, Received: 4}}, nil)
	if *out.Lost != 1 || *out.Sent != 4 {
		t.Errorf("%d of %d lost", *out.Lost, *out.Sent)
	}
}

// The server answers a message that comes again once.
func TestLossyAnswerer(t *testing.T) {
	s := base(Lat, Send, 100)
	l, c := lossyLeg(t, &s, true)
	complete := false
	l.Complete = func() { complete = true }
	for _, q := range []int64{0, 2, 2, 1 << 30, 5} {
		c.receive(t, l, q)
	}
	l.PeerSent.Store(100)
	turn(t, l, 5)
	if len(c.sent) != 3 || complete {
		t.Fatalf("answers %v, complete %v", c.sent, complete)
	}
	n := len(c.slots)
	c.complete(t, l)
	if turn(t, l, n); !complete {
		t.Fatal("not complete")
	}
}

// A request whose reply does not come in time is lost, and makes room for others; its reply counts for nothing
// when it comes.
func TestLossyExchange(t *testing.T) {
	s := base(RR, Send, 100)
	s.Reply, s.Window, s.Warmup, s.Iters, s.Check = 50, 2, 0, 4, true
	l, c := lossyLeg(t, &s, false)
	if len(c.sent) != 2 {
		t.Fatalf("%v sent, want a window of 2", c.sent)
	}
	c.complete(t, l)
	c.now += time.Millisecond
	c.receive(t, l, 1) // 0 is lost
	turn(t, l, 1)
	if len(c.sent) != 3 {
		t.Fatalf("%v sent, want one for the reply", c.sent)
	}
	c.complete(t, l)
	c.now += time.Millisecond
	c.receive(t, l, 2)
	turn(t, l, 1)
	if len(c.sent) != 4 {
		t.Fatalf("%v sent", c.sent)
	}
	c.complete(t, l)
	c.now += answerTime - 3*time.Millisecond
	if turn(t, l, 0); l.linger {
		t.Fatal("lost too early")
	}
	c.now += time.Millisecond
	c.receive(t, l, 3)
	turn(t, l, 1)
	c.receive(t, l, 0) // too late
	c.receive(t, l, 3) // again
	turn(t, l, 2)
	if !l.linger {
		t.Fatal("it waits for what is lost")
	}
	l.End(nil)
	if r := l.Res; r.Sent != 4 || r.Received != 3 || r.Tx.Msgs != 3 || l.hist.count() != 3 || r.Check.OK != 3 {
		t.Errorf("%+v, %d recorded, %+v", r, l.hist.count(), r.Check)
	}
	out := Result(&s, []*Leg{l}, []LegResult{{Sent: 4, Received: 4}}, nil)
	if *out.Lost != 1 || *out.Sent != 4 {
		t.Errorf("%d of %d lost", *out.Lost, *out.Sent)
	}
}

// A window that is lost as a whole does not stand still.
func TestLossyExchangeOfNothing(t *testing.T) {
	s := base(RR, Send, 100)
	s.Reply, s.Window, s.Warmup, s.Iters = 50, 2, 0, 4
	l, c := lossyLeg(t, &s, false)
	c.complete(t, l)
	c.now += answerTime
	if turn(t, l, 0); len(c.sent) != 4 {
		t.Fatalf("%v sent, want the next window", c.sent)
	}
}

// With patience a datagram that a busy host answers late is not lost, and a sender does not go on too
// early.
func TestLossyPatience(t *testing.T) {
	s := base(RR, Send, 100)
	s.Reply, s.Window, s.Warmup, s.Iters, s.Patience = 50, 2, 0, 2, 10*answerTime
	l, c := lossyLeg(t, &s, false)
	c.complete(t, l)
	c.now += s.Patience - time.Millisecond
	if turn(t, l, 0); l.linger {
		t.Fatal("lost too early")
	}
	c.receive(t, l, 0)
	c.now += time.Millisecond
	turn(t, l, 1)
	l.End(nil)
	if r := l.Res; !l.linger || r.Sent != 2 || r.Received != 1 {
		t.Errorf("%+v, linger %v", r, l.linger)
	}

	s = base(BW, Send, 100)
	s.Window, s.Warmup, s.Patience = 8, 0, 10*answerTime
	l, c = lossyLeg(t, &s, false)
	c.complete(t, l)
	turn(t, l, 8)
	if wait, _ := turn(t, l, 0); wait <= wordTime || wait > 10*wordTime || len(c.sent) != 8 {
		t.Errorf("waits for %v after %d", wait, len(c.sent))
	}
}

// A soak takes no datagram for lost that is late, unless losses are what it asks for.
func TestMixPatience(t *testing.T) {
	for _, impaired := range []bool{false, true} {
		m := Mix{Base: Spec{Time: time.Minute, Sec: Off, CC: "nscc"}, Sizes: []int64{8}, Mode: UUD, Datagrams: true, Impaired: impaired}
		p, _ := m.Draw(rand.New(rand.NewPCG(1, 2)), time.Minute)
		if p.EP != Dgram || (p.Patience == 0) != impaired {
			t.Errorf("impaired %v: %+v", impaired, p)
		}
	}
}
