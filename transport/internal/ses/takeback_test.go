package ses

import (
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

const ms = time.Millisecond

// long returns the packets of a tagged message of three packets.
func (g *rig) long(tag uint64) [][]byte { return g.tagged(tag, pattern(3000), 1024) }

// hold posts receives that accept everything, with contexts 0, 1, …, and has peers begin
// messages in them. The peer of each is given.
func (g *rig) hold(size int, srcs ...Source) (bufs [][]byte, pkts [][][]byte) {
	for k, src := range srcs {
		buf := make([]byte, size)
		g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: buf, Context: k})
		p := g.long(uint64(k))
		g.deliver(src, p[0])
		bufs, pkts = append(bufs, buf), append(pkts, p)
	}
	return bufs, pkts
}

// until advances to a time by steps of a millisecond.
func (g *rig) until(t time.Duration) {
	for now := g.now + ms; now <= t; now += ms {
		g.Advance(now)
	}
}

func several(src Source, n int) []Source { return slices.Repeat([]Source{src}, n) }

// S-RSM-61, T15: a peer that holds more than its share loses receives when its messages stand still, one for
// each message of another peer that waits, and no more. A message that lost its receive goes on as
// an unexpected one and waits for a receive when it is complete, with all its bytes.
func TestTakenBackForAnother(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	_, pkts := g.hold(4000, several(srcA, 8)...)
	g.until(100 * ms)
	if g.Stats.TakenBack != 0 {
		t.Fatal("taken back though nothing waits")
	}
	for k := range 8 { // none is slow
		g.deliver(srcA, pkts[k][1])
	}
	g.want(srcA, g.tagged(50, pattern(10), 1024)[0], "response OK overflow 10 gtd") // its own messages do not count
	g.until(g.now + 40*ms)
	if g.Stats.TakenBack != 0 {
		t.Fatal("taken back for a message of the same peer")
	}
	g.want(srcB, g.tagged(60, pattern(99), 1024)[0], "response OK overflow 99 gtd")
	g.until(g.now + 20*ms)
	e := g.wantEvent(EvTRecv, OK, 7, 99) // the youngest
	wantBytes(t, e.Buf[:99], pattern(99))
	g.quiet()
	if g.Stats.TakenBack != 1 {
		t.Fatalf("%d receives were taken back", g.Stats.TakenBack)
	}
	buf := make([]byte, 4000)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: buf, Context: "late"})
	g.wantEvent(EvTRecv, OK, "late", 10) // A's own, which is complete; the one set aside is not
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: buf, Context: "later"})
	g.quiet()
	for k := range 8 {
		g.want(srcA, pkts[k][2], "default OK 3000")
	}
	for k := range 7 {
		wantBytes(t, g.wantEvent(EvTRecv, OK, k, 3000).Buf[:3000], pattern(3000))
	}
	wantBytes(t, g.wantEvent(EvTRecv, OK, "later", 3000).Buf[:3000], pattern(3000))
	g.rest()
}

// T15: messages that stand still lose receives that were posted after them, too, for one that waited all the time.
func TestTakenBackFromOlderOnes(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	for k := range 4 {
		g.deliver(srcA, g.long(uint64(k))[0])
	}
	g.want(srcB, g.tagged(60, pattern(99), 1024)[0], "response OK overflow 99 gtd")
	g.until(g.now + time.Second) // nobody has a receive
	for k := range 4 {
		g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 4000), Context: k})
	}
	g.until(g.now + 20*ms)
	e := g.wantEvent(EvTRecv, OK, 3, 99)
	wantBytes(t, e.Buf[:99], pattern(99))
	g.quiet()
}

// S-MAT-04: an ordered message that waits gets no receive that was taken back while one of its peer before
// it is not complete.
func TestTakenBackInOrder(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	g.hold(4000, several(srcA, 8)...)
	b := srcB
	b.Ordered = true
	first := g.long(70)
	g.deliver(b, first[0])
	g.want(b, g.tagged(60, pattern(99), 1024)[0], "response OK overflow 99 gtd")
	g.until(g.now + 40*ms)
	g.quiet()
	if g.Stats.TakenBack != 0 {
		t.Fatalf("%d receives were taken back", g.Stats.TakenBack)
	}
	g.deliver(b, first[1])
	g.deliver(b, first[2])
	g.until(g.now + 100*ms)
	g.wantEvent(EvTRecv, OK, 7, 3000)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 4000), Context: "late"})
	g.wantEvent(EvTRecv, OK, "late", 99)
}

// S-RSM-61, T15: no message that goes on loses its receive, however many its peer holds. What is slower than
// 100 KiB/s does, though it is the only one of its peer.
func TestTakenBackFromTheSlow(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	g.hold(4000, srcA)
	big := g.tagged(9, pattern(400<<10), 1024)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 400<<10), Context: "big"})
	at := srcB
	at.Now = g.now
	g.deliver(at, big[0])
	third := Source{Peer: 3, PDC: 30}
	g.want(third, g.tagged(60, pattern(99), 1024)[0], "response OK overflow 99 gtd")
	g.want(third, g.tagged(61, pattern(98), 1024)[0], "response OK overflow 98 gtd")
	for k := range 300 { // 200 KiB/s
		g.deliver(srcB, big[1+k])
		g.until(g.now + 5*ms)
	}
	g.wantEvent(EvTRecv, OK, 0, 99)
	g.quiet()
	g.until(g.now + 100*ms)
	g.wantEvent(EvTRecv, OK, "big", 98)
	for _, p := range big[301:] {
		g.deliver(srcB, p)
	}
	buf := make([]byte, 400<<10)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: buf, Context: "again"})
	wantBytes(t, g.wantEvent(EvTRecv, OK, "again", 400<<10).Buf, pattern(400<<10))
}

// T15: sources that may be forged share as one peer.
func TestTakenBackFromTheUnproven(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	var srcs []Source
	for k := range uint32(8) {
		srcs = append(srcs, Source{Peer: 10 + k, PDC: 10 + k, Unproven: true, Now: ms})
	}
	g.hold(4000, srcs...)
	for k := range 8 {
		g.want(srcB, g.tagged(uint64(k), pattern(20+k), 1024)[0], "response OK overflow "+itoa(20+k)+" gtd")
	}
	g.until(20 * ms)
	for range 6 {
		g.event()
	}
	g.quiet() // two of eight are their share
	if g.Stats.TakenBack != 6 {
		t.Fatalf("%d receives were taken back", g.Stats.TakenBack)
	}
	g.Proven(10) // has two, is alone
	g.until(100 * ms)
	g.event()
	g.event()
}

// T15: what cannot be kept is sent again from its beginning (NO_MATCH), unless it is the only
// message of its peer, which then cannot be starved; of a ROD PDC it fails, because it would come
// behind later ones.
func TestTakenBackWithoutRoom(t *testing.T) {
	for _, c := range []struct{ ordered, unproven bool }{{false, false}, {false, true}, {true, true}, {true, false}} {
		g := newRig(t)
		g.Advance(ms)
		src, ordered := srcA, c.ordered
		src.Ordered, src.Unproven = ordered, c.unproven
		src.Now = ms
		_, pkts := g.hold(2000, several(src, 4)...) // they are too long for their receives
		for k := range 4 {
			g.want(srcB, g.tagged(uint64(k), pattern(20+k), 1024)[0], "response OK overflow "+itoa(20+k)+" gtd")
		}
		g.until(200 * ms)
		if ordered && !src.Unproven { // they would fail for good: the path may be dark for a while (F8)
			g.until(brokenAfter)
			g.quiet()
			g.until(brokenAfter + slowAfter)
		}
		for range 3 {
			g.event()
		}
		g.quiet()
		want := "response NO_MATCH 0 gtd"
		if ordered {
			want = "response DROPPED 0 gtd"
		}
		lost := 0
		for k := range 4 {
			if g.in.at(int32(k)).state == inBound {
				continue
			}
			lost++
			g.want(src, pkts[k][1], want)
			g.want(src, pkts[k][2], want)
		}
		if lost != 3 {
			t.Fatalf("%d messages lost their receives", lost)
		}
	}
}

// S-RSM-62: a message that is to be sent again counts as one in progress until its sender hears of
// it. So a peer that says nothing more has few receives, however many messages it begins.
func TestTakenBackCountsAsOpen(t *testing.T) {
	g := newRig(t, func(c *Config) { c.OpenPerPeer = 8 })
	g.Advance(ms)
	_, pkts := g.hold(2000, several(srcA, 8)...) // they are too long for their receives
	for k := range 8 {
		g.want(srcB, g.tagged(uint64(k), pattern(20+k), 1024)[0], "response OK overflow "+itoa(20+k)+" gtd")
	}
	g.until(200 * ms)
	if g.Stats.TakenBack != 7 {
		t.Fatalf("%d receives were taken back", g.Stats.TakenBack)
	}
	more := g.long(9)
	g.want(srcA, more[0], "nack 09")
	for k := range 8 {
		if g.in.at(int32(k)).state == inDead {
			g.want(srcA, pkts[k][1], "response NO_MATCH 0 gtd")
			break
		}
	}
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 2000), Context: "more"})
	if r := g.deliver(srcA, more[0]); r.Nack != 0 {
		t.Fatalf("NACK %v though one message less is open", r.Nack)
	}
}

// S-MAT-04: a receive that was taken back does not get an ordered message if an earlier one of the
// same source went to a younger receive. If that leaves its peer too much, it ends in error.
func TestTakenBackKeepsOrder(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	forged := Source{Peer: 10, PDC: 10, Unproven: true, Now: ms}
	b := srcB
	b.Ordered = true
	g.hold(4000, several(forged, 4)...)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 100), Context: "young"})
	g.want(b, g.tagged(1, pattern(11), 1024)[0], "default OK 11")
	g.wantEvent(EvTRecv, OK, "young", 11)
	g.want(b, g.tagged(1, pattern(12), 1024)[0], "response OK overflow 12 gtd")
	g.until(30 * ms)
	for _, ctx := range []int{3, 2, 1} { // one is the share
		g.wantEvent(EvTRecv, TimedOut, ctx, 0)
	}
	g.quiet()
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 100), Context: "younger"})
	g.wantEvent(EvTRecv, OK, "younger", 12)
	// An unordered message may have the old receive.
	g.want(srcB, g.tagged(1, pattern(13), 1024)[0], "response OK overflow 13 gtd")
	g.until(100 * ms)
	g.wantEvent(EvTRecv, OK, 0, 13)
}

// S-MAT-04: an ordered message keeps its receive if a later one of its source has a younger one. It would
// come behind that.
func TestTakenBackNotBehindLater(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	a := srcA
	a.Ordered = true
	g.hold(4000, several(a, 1)...)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 100), Context: "young"})
	g.want(a, g.tagged(1, pattern(11), 1024)[0], "default OK 11")
	g.wantEvent(EvTRecv, OK, "young", 11)
	g.want(srcB, g.tagged(1, pattern(12), 1024)[0], "response OK overflow 12 gtd")
	g.until(10 * time.Second)
	g.quiet()
	if g.Stats.TakenBack != 0 {
		t.Errorf("%d receives were taken back", g.Stats.TakenBack)
	}
}

// T15: a receive that a refused message needs goes back to its place, before younger ones.
func TestTakenBackIsPostedAgain(t *testing.T) {
	g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 64<<10, 1 })
	g.Advance(ms)
	_, _ = g.hold(4000, several(srcA, 4)...)
	big := g.tagged(1, pattern(100_000), 1024)
	g.want(srcB, big[0], "nack 09")
	g.recv(Recv{Tagged: true, Tag: 77, Buf: make([]byte, 100), Context: "77"})
	g.until(30 * ms)
	if g.Stats.TakenBack != 3 {
		t.Fatalf("%d receives were taken back", g.Stats.TakenBack)
	}
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 100), Context: "young"})
	for k, ctx := range []any{1, 2, 3, "77", "young"} {
		g.deliver(Source{Peer: 3, PDC: 30}, g.tagged(77, pattern(k), 1024)[0])
		g.wantEvent(EvTRecv, OK, ctx, k)
	}
}

// T15, R-MSG-12: a message that goes on too slowly does not keep a multi-receive buffer that is
// spent: it ends in error, its room is given to others, and its sender sends it again.
func TestTakenBackFromMulti(t *testing.T) {
	g := newRig(t)
	g.Advance(ms)
	buf := make([]byte, 8000)
	g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: buf, Multi: true, MinFree: 100, Context: "m"})
	a := srcA
	a.Now = ms
	one, two := g.tagged(1, pattern(3000), 1024), g.tagged(2, pattern(9000), 1024)
	g.deliver(a, one[0])
	g.deliver(a, two[0])
	g.want(srcB, g.tagged(3, pattern(50), 1024)[0], "response OK overflow 50 gtd")
	g.until(100 * ms)
	if e := g.wantEvent(EvTRecv, PeerError, "m", 0); !e.Multi || e.Released {
		t.Fatalf("%+v", e)
	}
	if e := g.wantEvent(EvTRecv, OK, "m", 50); &e.Buf[0] != &buf[3000] {
		t.Fatal("not where the other began")
	}
	g.want(a, two[1], "response NO_MATCH 0 gtd")
	g.deliver(a, one[1])
	g.deliver(a, one[2])
	g.wantEvent(EvTRecv, OK, "m", 3000)
	wantBytes(t, buf[:3000], pattern(3000))
	_ = wire.RCOK
}

// S-MAT-04: a receive that goes back changes the order of no others, though the oldest ones are
// not in a class, and younger ones that accept the same are.
func TestTakenBackKeepsTheOrderOfOthers(t *testing.T) {
	g := newRig(t)
	post := func(ctx int, ignore uint64) {
		g.recv(Recv{Tagged: true, Tag: 7, Ignore: ignore, Buf: make([]byte, 100), Context: ctx})
	}
	post(0, ^uint64(0))
	post(1, ^uint64(0))
	sp := g.space(0, true)
	rv, r := g.match(sp, 1, 1, 1) // as for a message of several packets
	post(2, 0)
	post(3, ^uint64(0))
	g.repost(sp, rv, r)
	for _, want := range []int{0, 1, 3} {
		g.deliver(srcA, g.tagged(1, pattern(10), 1024)[0])
		g.wantEvent(EvTRecv, OK, want, 10)
	}
}
