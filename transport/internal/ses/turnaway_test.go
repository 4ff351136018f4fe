package ses

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// full is a rig that keeps one unexpected message, and has it.
func full(t *testing.T) *rig {
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 })
	g.want(srcB, g.tagged(1, pattern(10), 1024)[0], "response OK overflow 10 gtd")
	return g
}

// turned refuses a packet, turns it away and compares the answer.
func (g *rig) turned(src Source, pkt []byte, want string) {
	g.t.Helper()
	if res := g.deliver(src, pkt); res.Nack != wire.NackNoSESMsgAvail || !res.NoRoom {
		g.t.Fatalf("%+v, want a refusal for want of room", res)
	}
	res := g.TurnAway()
	if got := answer(res); got != want {
		g.t.Fatalf("turned away: %s, want %s", got, want)
	}
}

// S-RSM-63: a message that finds no room can be answered NO_MATCH. Of one of several packets all get that
// answer, also when a receive is posted meanwhile; the next attempt is another message.
func TestTurnAway(t *testing.T) {
	g := full(t)
	g.turned(srcA, g.tagged(2, pattern(10), 1024)[0], "response NO_MATCH 0 gtd")
	pkts := g.tagged(2, pattern(3000), 1024)
	g.turned(srcA, pkts[1], "response NO_MATCH 0 gtd")
	buf := make([]byte, 3000)
	g.recv(Recv{Tagged: true, Tag: 2, Buf: buf})
	g.want(srcA, pkts[0], "response NO_MATCH 0 gtd")
	g.want(srcA, pkts[2], "response NO_MATCH 0 gtd")
	if g.Stats.Refused != 0 || g.Stats.Answers[wire.RCNoMatch] != 4 {
		t.Errorf("%d refused, %d answered NO_MATCH", g.Stats.Refused, g.Stats.Answers[wire.RCNoMatch])
	}
	for _, p := range g.tagged(2, pattern(3000), 1024) {
		g.want(srcA, p, "default OK 3000")
	}
	g.wantEvent(EvTRecv, OK, nil, 3000)
	wantBytes(t, buf, pattern(3000))
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 10)})
	g.wantEvent(EvTRecv, OK, nil, 10)
	g.rest()
}

// S-RSM-63: a message of 16 KiB or more is not turned away: each try would send all of it.
func TestLongMessagesAreNotTurnedAway(t *testing.T) {
	g := full(t)
	if !g.deliver(srcA, g.tagged(2, pattern(16<<10-1), 1024)[0]).NoRoom {
		t.Error("a message below 16 KiB cannot be turned away")
	}
	if g.deliver(srcA, g.tagged(2, pattern(16<<10), 1024)[0]).NoRoom {
		t.Error("a message of 16 KiB can be turned away")
	}
}

// S-RSM-62, S-RSM-63: no more messages of several packets are turned away than are remembered. A packet
// of one that was forgotten would begin it anew.
func TestTurnedAwayAreRemembered(t *testing.T) {
	g := full(t)
	var rest [][]byte
	n := 0
	for ; n < 200; n++ {
		pkts := g.tagged(2, pattern(2000), 1024)
		g.deliver(srcA, pkts[0])
		if res := g.TurnAway(); res == nil {
			break
		}
		rest = append(rest, pkts[1])
	}
	if n != g.cfg.OpenPerPeer {
		t.Fatalf("%d messages of several packets were turned away, want %d", n, g.cfg.OpenPerPeer)
	}
	g.recv(Recv{Tagged: true, Tag: 2, Buf: make([]byte, 2000), Context: "next"})
	for _, p := range rest {
		g.want(srcA, p, "response NO_MATCH 0 gtd")
	}
	for _, p := range g.tagged(2, pattern(2000), 1024) {
		g.want(srcA, p, "default OK 2000")
	}
	g.wantEvent(EvTRecv, OK, "next", 2000)
}

// S-GEN-55: where many wait the back-off grows with their number, up to a second.
func TestBackOffGrowsWithThoseThatWait(t *testing.T) {
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{100, backoffMin << backoffSteps}, {20_000, 20_000 * backoffEach}, {60_000, backoffMost}} {
		g := newRig(t, func(c *Config) { c.MaxSends = 65_000 })
		var hs []Handle
		for range c.n {
			hs = append(hs, g.send(Send{Buf: pattern(1)}))
		}
		now := time.Second
		for range 8 {
			for _, h := range hs {
				g.refuseOnce(h, wire.RCNoMatch, 0)
			}
			now += time.Millisecond
			g.Advance(now)
			now += 3 * time.Second
			g.Advance(now)
			hs = hs[:0]
			for h, ok := g.Resend(); ok; h, ok = g.Resend() {
				hs = append(hs, h)
			}
			if len(hs) != c.n {
				t.Fatalf("%d of %d messages go again", len(hs), c.n)
			}
		}
		for _, h := range hs {
			g.refuseOnce(h, wire.RCNoMatch, 0)
		}
		now += time.Millisecond
		g.Advance(now)
		last := time.Duration(0)
		for i := range g.sends.used {
			last = max(last, g.sends.at(i).retryAt-now)
		}
		if last < c.want*9/10 || last > c.want*3/2 {
			t.Errorf("%d wait: the last goes again after %v, want %v and up to half", c.n, last, c.want)
		}
	}
}

// S-RSM-63: when a message is taken that was refused before, those posted next to it are tried at once. What waits is
// looked at no more often than for a small part of the time.
func TestNeighboursAreTriedAtOnce(t *testing.T) {
	g := newRig(t)
	var hs []Handle
	for range 9 {
		h := g.send(Send{Buf: pattern(1)})
		g.refuseOnce(h, wire.RCNoMatch, 0)
		hs = append(hs, h)
	}
	now := time.Second
	g.Advance(now)
	i, _ := g.lookup(hs[4])
	g.makeReady(g.sends.at(i))
	take := func(want Handle) {
		t.Helper()
		h, ok := g.Resend()
		if !ok || h != want {
			t.Fatalf("%v goes first, want %v", h, want)
		}
		drain(g.SES, h, 1024)
		g.Answered(h, nil)
		g.wantEvent(EvSend, OK, nil, 1)
		g.Advance(now)
	}
	take(hs[4])
	take(hs[3])
	if h, ok := g.Resend(); !ok || h != hs[5] {
		t.Errorf("%v goes at once, want %v", h, hs[5])
	}
	if h, ok := g.Resend(); ok {
		t.Errorf("%v goes before the next look", h)
	}
	if at := g.NextTimeout(); at <= now || at > now+10*searchEach {
		t.Errorf("the next look is at %v", at)
	}
	g.Advance(g.NextTimeout())
	if h, ok := g.Resend(); !ok || h != hs[2] {
		t.Errorf("%v goes then, want %v", h, hs[2])
	}
}
