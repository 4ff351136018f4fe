package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A chat is two ends that send short messages in turn over a pipe. Each round takes 6 µs,
// and ACKs leave behind the answers.
type chat struct {
	*pipe
	n int // rounds
	// window is the most messages that either end may have in flight when it posts, 0 for
	// any number.
	window  int
	level   Level
	ordered bool   // by ROD
	done    [2]int // sends that completed at a, at b
	got     [2]int
}

func newChat(t *testing.T) *chat {
	c := &chat{pipe: newPipe(t, nil)}
	c.a.Apart(true)
	c.b.Apart(true)
	return c
}

// eachWay runs a test with chats by RUD, and with chats by ROD.
func eachWay(t *testing.T, test func(t *testing.T, newChat func() *chat)) {
	for _, mode := range []wire.Mode{wire.RUD, wire.ROD} {
		t.Run(mode.String(), func(t *testing.T) {
			test(t, func() *chat {
				c := newChat(t)
				c.ordered = mode == wire.ROD
				return c
			})
		})
	}
}

// end is a or b, the number of its peer, and its index in counters.
func (c *chat) end(i int) (*FEP, PeerID) {
	if i == 0 {
		return c.a, c.toB
	}
	return c.b, c.toA
}

// reap consumes the events of both ends.
func (c *chat) reap() {
	for i := range 2 {
		f, _ := c.end(i)
		for e := f.NextEvent(); e != nil; e = f.NextEvent() {
			switch {
			case e.Cause != 0:
				c.t.Fatalf("round %d: %v ends with %v", c.n, e.Kind, e.Cause)
			case e.Kind.Recv():
				c.got[i]++
			default:
				c.done[i]++
			}
		}
	}
}

// say posts a message of end i, which arrives 3 µs later. If the window of the end is full,
// it waits for completions before that and reads the network meanwhile.
func (c *chat) say(i int) {
	f, to := c.end(i)
	if c.window != 0 && f.Sends() >= c.window {
		for since := c.now; f.Sends() >= c.window; c.now += time.Microsecond {
			c.look()
			if c.now-since > 50*time.Microsecond {
				c.t.Fatalf("round %d: %d sends in flight, lag %d, asked for nothing", c.n, f.Sends(), c.lag(i))
			}
		}
	}
	c.post(f, Op{Kind: OpSend, Peer: to, RI: 15, Level: c.level, Ordered: c.ordered, Buf: make([]byte, 64)})
	c.now += 3 * time.Microsecond
	c.turn()
	c.reap()
}

// look lets both ends read the network and find nothing.
func (c *chat) look() {
	for _, f := range []*FEP{c.a, c.b} {
		if at := f.NextTimeout(); at != 0 && at <= c.now {
			f.Advance(c.now)
		}
		f.Flush(c.now)
	}
	c.turn()
	c.reap()
}

func (c *chat) rounds(n int) {
	for range n {
		for i := range 2 {
			f, _ := c.end(1 - i)
			c.post(f, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.say(i)
		}
		c.n++
	}
}

// lag is the lag of an end.
func (c *chat) lag(i int) int {
	f, to := c.end(i)
	return int(f.peers[to].talk.lag)
}

// rest looks until everything has completed, and returns how long that took.
func (c *chat) rest() time.Duration {
	since := c.now
	for c.a.Busy() || c.b.Busy() {
		if c.now += time.Microsecond; c.now-since > time.Second {
			c.t.Fatalf("sends in flight for ever: %d and %d", c.a.Sends(), c.b.Sends())
		}
		c.look()
	}
	return c.now - since
}

// UE 3.5.12, S-ACK-05: in a conversation one message in eight asks for an ACK. Every
// message completes, none before its ACK, and none is sent again.
func TestConversationAsksSeldom(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		c := newChat()
		c.rounds(2000)
		before, done := c.a.Stats(), c.done
		c.rounds(8000)
		s := c.a.Stats()
		if n := s.AcksRx - before.AcksRx; n < 990 || n > 1010 {
			t.Errorf("%d ACKs in 8000 rounds, want one in eight", n)
		}
		for i := range 2 {
			if n := c.done[i] - done[i]; n < 7990 {
				t.Errorf("end %d: %d of 8000 sends completed meanwhile", i, n)
			}
		}
		c.rest()
		if c.done != [2]int{10000, 10000} || c.got != c.done {
			t.Errorf("%v completed, %v received", c.done, c.got)
		}
		if s := c.a.Stats(); s.RtxRTO+s.RtxSACK+s.RtxNack+s.RtxProbe != 0 || s.RxDup != 0 {
			t.Errorf("sent again: %+v", s)
		}
		c.checkIdle()
	})
}

// An end that has heard the peer and posts nothing more learns at once what became of its
// messages: 5 µs after it looked, not when the tail is taken for lost. The other end spoke
// last, and learns it by its tail probe.
func TestConversationRests(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		for extra := range 8 {
			c := newChat()
			c.rounds(2000 + extra)
			since := c.now
			for c.look(); c.a.Busy(); c.look() {
				if c.now += time.Microsecond; c.now-since > restTime+time.Microsecond {
					t.Fatalf("after %d rounds %d sends of the first end are in flight %v later", c.n, c.a.Sends(), c.now-since)
				}
			}
			if d := c.rest(); d > 150*time.Microsecond {
				t.Errorf("after %d rounds the last word completes %v later", c.n, d)
			}
			c.checkIdle()
		}
	})
}

// An end that was off its processor finds its tail silent and lets each message ask. Its
// next message still answers the peer: it does not wait for other messages, which would not
// come before the peer has it.
func TestConversationGoesOnAfterSilence(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		for extra := range 8 {
			c := newChat()
			c.rounds(2000 + extra)
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.post(c.a, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.say(0)
			c.now += 200 * time.Microsecond
			c.b.Advance(c.now)
			c.say(1)
			if !c.b.Answer() {
				t.Errorf("after %d rounds an answer is taken for part of a stream, with %d sends in flight", c.n, c.b.Sends())
			}
			c.rest()
			c.checkIdle()
		}
	})
}

// An end that waits for completions before it goes on, for each one or for some, soon lets
// every message ask that it waits for. In 60,000 rounds it waits about a dozen times longer
// than for an ACK that is under way.
func TestConversationOfWhoWaits(t *testing.T) {
	for _, window := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) {
			c := newChat(t)
			c.window = window
			asked := func() uint64 {
				return c.a.Stats().CPTx[wire.CtlProbe] + c.b.Stats().CPTx[wire.CtlProbe]
			}
			c.rounds(60_000)
			if n := asked(); n > 24 {
				t.Errorf("had to ask %d times", n)
			}
			c.rest()
			if c.done != [2]int{60_000, 60_000} || c.got != c.done {
				t.Errorf("%v completed, %v received", c.done, c.got)
			}
		})
	}
}

// Losses in a conversation are found, whether the lost message asked or not.
func TestConversationLosesPackets(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		for seed := range 50 {
			c := newChat()
			c.rounds(1000 + seed)
			n := 0
			c.drop = func(from *FEP, b []byte) bool {
				if n++; n == 1 { // loses the next message
					return true
				}
				return false
			}
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.say(0)
			if c.rest() > 10*time.Millisecond {
				t.Fatalf("seed %d: recovery took long", seed)
			}
			if c.got[1] != 1001+seed {
				t.Fatalf("seed %d: %d messages arrived", seed, c.got[1])
			}
			c.checkIdle()
		}
	})
}

// Messages that are no answers ask for an ACK: a stream, one message after another, two
// messages for one answer.
func TestOthersAsk(t *testing.T) {
	ar := func(c *chat) (asked, all *int) {
		asked, all = new(int), new(int)
		c.drop = func(from *FEP, b []byte) bool {
			if h, _, err := wire.ParseReq(b[:len(b)-wire.CRCLen]); from == c.a && err == nil {
				if *all++; h.Flags&wire.FlagAR != 0 {
					*asked++
				}
			}
			return false
		}
		return asked, all
	}
	t.Run("stream", func(t *testing.T) {
		c := newChat(t)
		c.rounds(2000)
		asked, all := ar(c)
		for i := range 100 {
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			if i == 0 {
				c.post(c.a, Op{Kind: OpRecv, Buf: make([]byte, 64)})
				c.say(1) // so that the first message is an answer
			}
			c.say(0)
		}
		if *all != 100 || *asked < 99 {
			t.Errorf("%d of %d asked", *asked, *all)
		}
	})
	t.Run("slow", func(t *testing.T) {
		// The message before has been unanswered for as long as a lost one.
		c := newChat(t)
		c.rounds(2000)
		c.rest()
		asked, all := ar(c)
		for i := range 100 {
			before := *asked
			for range 2 {
				c.rounds(1)
				c.now += 120 * time.Microsecond
			}
			if *asked == before {
				t.Fatalf("round %d: two messages in a row asked for nothing", i)
			}
		}
		if *all != 200 {
			t.Errorf("%d messages", *all)
		}
	})
	t.Run("delivery complete", func(t *testing.T) {
		// R-CMPL: the poster asked for a higher level.
		c := newChat(t)
		c.rounds(2000)
		asked, all := ar(c)
		c.level = LevelDelivery
		c.rounds(100)
		if *all != 100 || *asked != *all {
			t.Errorf("%d of %d asked", *asked, *all)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		// A server of many clients gets two requests between two answers.
		c := newChat(t)
		c.rounds(2000)
		if !c.b.Answer() {
			t.Error("an answer of a conversation is not known as one")
		}
		asked, all := ar(c)
		for range 100 {
			for range 2 {
				c.post(c.a, Op{Kind: OpRecv, Buf: make([]byte, 64)})
				c.say(1)
			}
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.say(0)
			if c.a.Answer() {
				t.Fatal("a reply to one of many is taken for part of a conversation")
			}
		}
		if *all != 100 || *asked != *all {
			t.Errorf("%d of %d asked", *asked, *all)
		}
	})
	t.Run("first", func(t *testing.T) {
		c := newChat(t)
		asked, all := ar(c)
		c.rounds(lagRounds - 1)
		if *asked != *all {
			t.Errorf("%d of %d asked", *asked, *all)
		}
	})
}

// until looks until an end has no sends left, and returns how long that took.
func (c *chat) until(i int) time.Duration {
	f, _ := c.end(i)
	since := c.now
	for f.Sends() > 0 {
		if c.now += 500 * time.Nanosecond; c.now-since > time.Second {
			c.t.Fatalf("sends in flight for ever: %d", f.Sends())
		}
		c.look()
	}
	return c.now - since
}

// An end that looked, answered and was answered within restTime learns as soon as others
// what became of its messages when it posts nothing more.
func TestConversationRestsAfterShortRound(t *testing.T) {
	for extra := range 8 {
		c := newChat(t)
		c.rounds(2000 + extra)
		c.look()
		c.now += time.Microsecond
		for i := range 2 {
			f, to := c.end(i)
			g, _ := c.end(1 - i)
			c.post(g, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.post(f, Op{Kind: OpSend, Peer: to, RI: 15, Buf: make([]byte, 64)})
			c.now += time.Microsecond
			c.turn()
			c.reap()
		}
		if d := c.until(0); d > 2*restTime {
			t.Errorf("after %d rounds the last ones complete %v later", c.n, d)
		}
	}
}

// A message that crosses one of the peer is no answer to anything that the application
// heard. It asks, because otherwise nobody would notice that the conversation rests.
func TestConversationCrosses(t *testing.T) {
	for extra := range 8 {
		c := newChat(t)
		c.rounds(2000 + extra)
		for i := range 2 {
			g, _ := c.end(1 - i)
			c.post(g, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.say(i)
			if i == 0 {
				c.look() // no message has come
			}
		}
		for i := range 2 {
			f, to := c.end(i)
			g, _ := c.end(1 - i)
			c.post(g, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.post(f, Op{Kind: OpSend, Peer: to, RI: 15, Buf: make([]byte, 64)})
		}
		c.move(c.b, c.a)
		c.now += time.Microsecond
		c.turn()
		if d := c.until(0); d > 2*restTime {
			t.Errorf("after %d rounds it completes %v later", c.n, d)
		}
	}
}

// If the peer acknowledges more than it is asked for, there is nothing to ask when the
// conversation rests, because nobody waits.
func TestConversationOfWhoAcknowledgesMore(t *testing.T) {
	c := &chat{pipe: newPipe(t, func(cfg *Config) { cfg.AckTrigger = 1024 })}
	c.a.Apart(true)
	c.b.Apart(true)
	c.rounds(2000)
	idle := 0
	for range 50 {
		c.rounds(1)
		c.now += time.Microsecond
		c.look()
		if c.a.Sends() != 0 || c.a.peers[c.toB].talk.unasked == 0 {
			continue
		}
		idle++
		if c.rest(); c.lag(0) != lagMost {
			t.Fatalf("lag %d after a rest with nothing in flight", c.lag(0))
		}
		c.now += 2 * restTime
		if c.look(); c.lag(0) != lagMost {
			t.Fatalf("lag %d after a rest with nothing in flight", c.lag(0))
		}
	}
	if idle == 0 {
		t.Error("it never rested so")
	}
}

// Each conversation has its own rest time.
func TestConversationsRestEachByItself(t *testing.T) {
	s := newStar(t, 2)
	s.know()
	s.hub.Apart(true)
	look := func() {
		for _, f := range append(s.leaf, s.hub) {
			if at := f.NextTimeout(); at != 0 && at <= s.now {
				f.Advance(s.now)
			}
		}
		s.exchange()
		for _, f := range append(s.leaf, s.hub) {
			for f.NextEvent() != nil {
			}
		}
	}
	say := func(from, to *FEP, d time.Duration) {
		t.Helper()
		id, err := from.Peer(to.cfg.Local, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Post(s.now, &Op{Kind: OpRecv, Buf: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
		if err := from.Post(s.now, &Op{Kind: OpSend, Peer: id, RI: 15, Buf: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
		for from.Transmit(s.now, &s.d) {
			s.d.Remote = from.cfg.Local
			to.Receive(s.now, &s.d)
		}
		s.now += d
		look()
	}
	talk := func(i int) *talk { return &s.hub.peers[s.to[i]].talk }
	for n := 0; n < 2000 || n < 2008 && (talk(0).unasked == 0 || talk(1).unasked == 0); n++ {
		say(s.hub, s.leaf[0], time.Microsecond)
		say(s.hub, s.leaf[1], restTime)
		say(s.leaf[0], s.hub, 2*time.Microsecond)
		say(s.leaf[1], s.hub, time.Microsecond)
	}
	lag := func(i int) int { return int(talk(i).lag) }
	// The second peer spoke last, 1 µs after the first was found to rest.
	s.now += restTime - time.Microsecond
	look()
	if lag(0) != 0 || lag(1) != lagMost {
		t.Errorf("lags %d and %d when the first rests", lag(0), lag(1))
	}
	s.now += 2 * time.Microsecond
	look()
	if lag(1) != 0 {
		t.Errorf("lag %d when the second rests", lag(1))
	}
}

// A fence does not wait for the tail probe of the messages before it.
func TestFenceAsks(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		for extra := range 8 {
			c := newChat()
			c.rounds(2000 + extra)
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
			c.post(c.a, Op{Kind: OpSend, Peer: c.toB, RI: 15, Buf: make([]byte, 64), Ordered: c.ordered, Fence: true})
			c.turn()
			for since := c.now; c.got[1] == c.n; c.look() {
				if c.now += time.Microsecond; c.now-since > restTime {
					t.Fatalf("after %d rounds it is kept back %v later", c.n, c.now-since)
				}
			}
		}
	})
}

// sayTwice lets the second end send two messages in a row, so that the next message of the
// first end is no answer.
func (c *chat) sayTwice() {
	for range 2 {
		c.post(c.a, Op{Kind: OpRecv, Buf: make([]byte, 64)})
		c.say(1)
	}
}

// A fenced message that is no answer asks for an ACK of the messages before it that asked
// for none.
func TestFenceAsksAfterConversation(t *testing.T) {
	lagged := 0
	for extra := range 8 {
		c := newChat(t)
		c.rounds(2000 + extra)
		c.sayTwice()
		if c.a.Sends() > 0 {
			lagged++
		}
		c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64)})
		c.post(c.a, Op{Kind: OpSend, Peer: c.toB, RI: 15, Buf: make([]byte, 64), Ordered: c.ordered, Fence: true})
		c.turn()
		for since := c.now; c.got[1] == c.n; c.look() {
			if c.now += time.Microsecond; c.now-since > restTime {
				t.Fatalf("after %d rounds it is kept back %v later", c.n, c.now-since)
			}
		}
	}
	if lagged < 4 {
		t.Errorf("only %d of 8 conversations lagged", lagged)
	}
}

// A message that is no answer and is cancelled before it is sent does not make the FEP
// forget the messages before it: the FEP asks for their ACK when the conversation rests.
func TestConversationRestsAfterCancel(t *testing.T) {
	lagged := 0
	for extra := range 8 {
		c := newChat(t)
		c.rounds(2000 + extra)
		c.sayTwice()
		if c.a.Sends() > 0 {
			lagged++
		}
		c.post(c.a, Op{Kind: OpSend, Peer: c.toB, RI: 15, Buf: make([]byte, 64), Context: "cancelled"})
		if !c.a.Cancel(c.now, 0, "cancelled") {
			t.Fatal("it was not cancelled")
		}
		for e := c.a.NextEvent(); e != nil && e.Context != "cancelled"; e = c.a.NextEvent() {
		}
		c.post(c.a, Op{Kind: OpRecv, Buf: make([]byte, 64)})
		c.say(1) // this message gets no answer
		c.look()
		if took := c.until(0); took > 2*restTime {
			t.Errorf("after %d rounds the last ones complete %v later", c.n, took)
		}
	}
	if lagged < 4 {
		t.Errorf("only %d of 8 conversations lagged", lagged)
	}
}

// The ACK of a message that uses another PDC, because it is long, ordered, or not ordered, does not cover
// the messages that asked for none. The FEP asks for their ACK at once.
func TestConversationTurnsAway(t *testing.T) {
	for _, op := range []Op{
		{Kind: OpSend, Buf: make([]byte, 64<<10)},
		{Kind: OpSend, Buf: make([]byte, 64), Ordered: true},
		{Kind: OpSend, Buf: make([]byte, 64)}, // after a conversation by ROD
	} {
		asked := 0
		for extra := range 8 {
			c := newChat(t)
			c.ordered = len(op.Buf) == 64 && !op.Ordered
			c.rounds(2000 + extra)
			c.post(c.b, Op{Kind: OpRecv, Buf: make([]byte, 64<<10)})
			op.Peer, op.RI = c.toB, 15
			if c.a.Sends() > 0 {
				asked++
			}
			c.post(c.a, op)
			if took := c.until(0); took > 10*time.Microsecond {
				t.Errorf("%d bytes, ordered %v, after %d rounds: all complete %v later", op.Bytes(), op.Ordered, c.n, took)
			}
		}
		if asked < 4 {
			t.Errorf("only %d of 8 conversations lagged", asked)
		}
	}
}

// R-CMPL: an end acknowledges all that arrived, asked for or not, before it closes. The
// sends of its peer then succeed; nobody could ask later.
func TestConversationCloses(t *testing.T) {
	eachWay(t, func(t *testing.T, newChat func() *chat) {
		lagged := 0
		for extra := range 8 {
			c := newChat()
			c.rounds(2000 + extra)
			if c.a.Sends() > 0 {
				lagged++
			}
			c.b.AckAll(c.now)
			c.turn()
			c.b.Close(c.now)
			c.turn()
			for e := c.a.NextEvent(); e != nil; e = c.a.NextEvent() {
				if e.Cause != 0 {
					t.Errorf("after %d rounds: %v ends with %v", c.n, e.Kind, e.Cause)
				}
			}
			if c.a.Sends() != 0 {
				t.Errorf("after %d rounds %d sends that arrived are open", c.n, c.a.Sends())
			}
		}
		if lagged < 4 {
			t.Errorf("only %d of 8 conversations lagged", lagged)
		}
	})
}

// A conversation grows to fewer ACKs by the messages of its own, not by those of one that ended before.
func TestConversationCountsAnew(t *testing.T) {
	c := newChat(t)
	for range 10 {
		c.rounds(lagRounds - 2)
		if n := c.lag(1); n != 0 {
			t.Fatalf("lag %d in a conversation of %d rounds", n, lagRounds-2)
		}
		c.sayTwice()
	}
	c.rounds(2 * lagRounds)
	if c.lag(1) == 0 {
		t.Error("no lag after a longer one: the test does not test")
	}
	c.rest()
}
