package ses

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestUnexpectedIsKeptWhole(t *testing.T) {
	// A message is kept and received with every size around the block sizes.
	for _, n := range []int{0, 1, 63, 64, 65, 1024, 16383, 16384, 16385, 32767, 32768, 32769, 65536, 65537, 200_000} {
		g := newRig(t)
		body := pattern(n)
		for _, p := range g.tagged(1, body, 8192) {
			g.deliver(srcA, p)
		}
		msgs, bytes := g.Unexpected()
		if msgs != 1 || bytes < int64(n) || bytes > max(64, 2*int64(n)) || n == 0 && bytes != 0 || g.Incomplete(srcA.PDC) {
			t.Fatalf("%d bytes: %d messages, charge %d", n, msgs, bytes)
		}
		// The PDC may end; the message stays, because it was answered.
		g.PDCGone(srcA.PDC, TimedOut)
		buf := make([]byte, n)
		g.recv(Recv{Tagged: true, Tag: 1, Buf: buf})
		g.wantEvent(EvRecv, OK, nil, n)
		wantBytes(t, buf, body)
		g.rest()
	}
}

func TestUnexpectedBackPressure(t *testing.T) {
	// F18, S-RSM-09: a message without room is refused with NACK 09 before anything is kept.
	// Room comes back, and nothing that was accepted is lost.
	g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.PartialBytes, c.UnexpectedShare = 1<<20, 1<<20, 1 })
	var accepted []uint64
	var rest [][][]byte
	for tag := uint64(0); ; tag++ {
		pkts := g.tagged(tag, pattern(100_000+int(tag)), 8192)
		if r := g.deliver(Source{Peer: 1, PDC: uint32(tag)}, pkts[0]); r.Nack != 0 {
			if r.Nack != wire.NackNoSESMsgAvail {
				t.Fatal(r)
			}
			break
		}
		accepted = append(accepted, tag)
		rest = append(rest, pkts)
	}
	if n := len(accepted); n != 1<<20/(4<<chunkBits) {
		t.Fatalf("%d messages", n)
	}
	// Every packet of an accepted message is accepted, in any order.
	for _, tag := range accepted {
		pkts := rest[tag]
		for i := len(pkts) - 1; i > 0; i-- {
			g.want(Source{Peer: 1, PDC: uint32(tag)}, pkts[i], "default NULL 0")
		}
	}
	one := g.tagged(77, pattern(10), 8192)[0]
	g.want(srcB, one, "nack 09")
	if g.Stats.Refused != 2 {
		t.Fatal(g.Stats.Refused)
	}
	// A message that matches a receive needs no room.
	g.recv(Recv{Tagged: true, Tag: 77, Buf: make([]byte, 10)})
	g.want(srcB, one, "default OK 10")
	g.wantEvent(EvRecv, OK, nil, 10)
	g.want(srcB, one, "nack 09")
	for i, tag := range accepted {
		buf := make([]byte, 200_000)
		g.recv(Recv{Tagged: true, Tag: tag, Buf: buf})
		g.wantEvent(EvRecv, OK, nil, 100_000+int(tag))
		wantBytes(t, buf[:100_000+int(tag)], pattern(100_000+int(tag)))
		if i == 0 {
			g.want(srcB, one, "response OK overflow 10 gtd")
		}
	}
	g.recv(Recv{Tagged: true, Tag: 77, Buf: make([]byte, 10)})
	g.wantEvent(EvRecv, OK, nil, 10)
	g.rest()
}

func TestUnexpectedCountIsBounded(t *testing.T) {
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs, c.UnexpectedShare = 10, 1 })
	for i := range 10 {
		g.want(srcA, g.tagged(uint64(i), nil, 1024)[0], "response OK overflow 0 gtd")
	}
	g.want(srcA, g.tagged(1, nil, 1024)[0], "nack 09")
	g.want(srcA, g.tagged(1, pattern(5000), 1024)[0], "nack 09")
}

func TestUnexpectedShare(t *testing.T) {
	// T14: one peer's flood leaves room for the others.
	g := newRig(t, func(c *Config) { c.UnexpectedBytes = 1 << 20 })
	flood := g.tagged(1, pattern(8192), 8192)[0]
	n := 0
	for g.deliver(srcA, flood).Nack == 0 {
		n++
	}
	if n != 1<<20/4/8192 {
		t.Fatalf("%d messages of one peer", n)
	}
	for peer := uint32(10); peer < 13; peer++ {
		for i := range n {
			if r := g.deliver(Source{Peer: peer, PDC: peer}, flood); r.Nack != 0 {
				t.Fatalf("peer %d refused at %d", peer, i)
			}
		}
	}
	// The same holds for the number of messages.
	g = newRig(t, func(c *Config) { c.UnexpectedMsgs = 100 })
	n = 0
	for g.deliver(srcA, g.tagged(1, nil, 1024)[0]).Nack == 0 {
		n++
	}
	if n != 25 {
		t.Fatalf("%d messages of one peer", n)
	}
	// A received message does not count any more.
	g.recv(Recv{Tagged: true, Tag: 1})
	g.event()
	g.want(srcA, g.tagged(1, nil, 1024)[0], "response OK overflow 0 gtd")
	g.want(srcA, g.tagged(1, nil, 1024)[0], "nack 09")
}

// T38: messages whose packets do not all come leave half of the room to those that do, though many peers send
// them. What was kept is counted no more when it is complete, received, discarded or lost.
func TestT38PartialMessagesLeaveRoom(t *testing.T) {
	g := newRig(t, func(c *Config) { c.UnexpectedBytes = 1 << 20 })
	first := g.tagged(1, pattern(64<<10), 1024)
	n := uint32(0)
	for ; n < 100; n++ {
		if r := g.deliver(Source{Peer: 10 + n, PDC: 10 + n}, first[0]); r.Nack != 0 {
			break
		}
	}
	if n != 1<<20/2>>16 || g.Stats.RefusedPartial != 1 {
		t.Fatalf("%d beginnings are kept, %d refused", n, g.Stats.RefusedPartial)
	}
	whole := g.tagged(2, pattern(32<<10), 32<<10)[0]
	for peer := uint32(200); peer < 216; peer++ {
		g.want(Source{Peer: peer, PDC: peer}, whole, "response OK overflow 32768 gtd")
	}
	// One is completed, one received while it is open, one discarded, one lost: four others may begin.
	for _, p := range first[1:] {
		g.deliver(Source{Peer: 10, PDC: 10}, p)
	}
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 64<<10), Context: "complete"})
	g.wantEvent(EvTRecv, OK, "complete", 64<<10)
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 64<<10), Context: "open"})
	g.recv(Recv{Tagged: true, Tag: 1, Look: LookPeekDiscard, Context: "look"})
	g.event()
	g.PDCGone(10+n-1, TimedOut)
	for k := range uint32(5) {
		want := "response OK overflow 65536 gtd"
		if k == 4 {
			want = "nack 09"
		}
		g.want(Source{Peer: 300 + k, PDC: 300 + k}, first[0], want)
	}
	g.CancelAll()
	if g.partial != 0 {
		t.Fatalf("%d bytes of open messages are left", g.partial)
	}
	// A message that is longer than the bound has its turn when it is the only one.
	g = newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 1<<20, 1 })
	long := g.tagged(1, pattern(700<<10), 1024)
	g.want(srcA, first[0], "response OK overflow 65536 gtd")
	g.want(srcB, long[0], "nack 09")
	g.PDCGone(srcA.PDC, TimedOut)
	g.want(srcB, long[0], "response OK overflow 716800 gtd")
	g.CancelAll()
}

func TestUnexpectedUnprovenShare(t *testing.T) {
	// T1, T14: sources that may all be one forger have together the share of one peer. The
	// first packet of a long message reserves all its room.
	src := func(peer uint32) Source { return Source{Peer: peer, PDC: peer, Unproven: true} }
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs = 100 })
	n := uint32(0)
	for g.deliver(src(10+n), g.tagged(1, nil, 1024)[0]).Nack == 0 {
		n++
	}
	if n != 25 {
		t.Fatalf("%d messages of unproven sources", n)
	}
	g.want(srcA, g.tagged(1, nil, 1024)[0], "response OK overflow 0 gtd")
	// A received message does not count any more.
	g.recv(Recv{Tagged: true, Tag: 1})
	g.event()
	g.want(src(5), g.tagged(1, nil, 1024)[0], "response OK overflow 0 gtd")
	g.want(src(6), g.tagged(1, nil, 1024)[0], "nack 09")
	// A message of a source that was proven since does not count either.
	g.Proven(11)
	g.want(src(6), g.tagged(1, nil, 1024)[0], "response OK overflow 0 gtd")
	g.want(src(7), g.tagged(1, nil, 1024)[0], "nack 09")
	g.recv(Recv{Tagged: true, Tag: 1}) // that of source 11: it counts no second time
	g.want(src(7), g.tagged(1, nil, 1024)[0], "nack 09")

	g = newRig(t, func(c *Config) { c.UnexpectedBytes = 4 << 20 })
	first := g.tagged(1, pattern(512<<10), 8192)[0]
	for n = 0; g.deliver(src(10+n), first).Nack == 0; n++ {
	}
	if n != 2 {
		t.Fatalf("%d messages of half of a share were begun", n)
	}
	if r := g.deliver(srcA, first); r.Nack != 0 {
		t.Error("a source that is proven was refused")
	}
}

func TestUnexpectedTinyLimits(t *testing.T) {
	// One message is always possible, or a peer would starve for ever.
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs = 1 })
	g.want(srcA, g.tagged(1, nil, 1024)[0], "response OK overflow 0 gtd")
	g.want(srcB, g.tagged(1, nil, 1024)[0], "nack 09")
}

// UnexpectedBytes bounds the bytes of messages, UnexpectedMsgs what is kept beside them. An empty message has none, so
// it is kept where there is room for no byte.
func TestEmptyMessagesTakeNoBytes(t *testing.T) {
	g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedMsgs, c.UnexpectedShare = 64, 3, 1 })
	g.want(srcA, g.tagged(1, pattern(1), 8192)[0], "response OK overflow 1 gtd")
	g.want(srcA, g.tagged(2, pattern(1), 8192)[0], "nack 09")
	g.want(srcA, g.tagged(3, nil, 8192)[0], "response OK overflow 0 gtd")
	g.want(srcA, g.tagged(4, nil, 8192)[0], "response OK overflow 0 gtd")
	if msgs, bytes := g.Unexpected(); msgs != 3 || bytes != 64 {
		t.Errorf("%d messages of %d bytes are kept", msgs, bytes)
	}
	g.want(srcA, g.tagged(5, nil, 8192)[0], "nack 09")
	for _, n := range []int{1, 0, 0} {
		g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 1)})
		g.wantEvent(EvRecv, OK, nil, n)
	}
	g.rest()
}

func TestUnexpectedMemoryFormula(t *testing.T) {
	// The memory kept stays within UnexpectedBytes whatever the sizes and the order in which
	// messages are received: a few left of each size do not occupy the rest.
	const limit = 4 << 20
	g := newRig(t, func(c *Config) {
		c.UnexpectedBytes, c.PartialBytes, c.UnexpectedShare, c.UnexpectedMsgs = limit, limit, 1, 1<<20
	})
	rng := rand.New(rand.NewPCG(3, 4))
	bound := limit/chunkLen + numClasses
	var tags []uint64
	next := uint64(0)
	for range 40_000 {
		n := 1 << rng.IntN(17)
		n += rng.IntN(n)
		pkts := g.tagged(next, make([]byte, n), 16000)
		ok := true
		for i, p := range pkts {
			r := g.deliver(Source{Peer: 1, PDC: 1 + uint32(next%7)}, p)
			if r.Nack != 0 {
				if i > 0 {
					t.Fatal("refused in the middle")
				}
				ok = false
				break
			}
		}
		if len(g.store.chunks) > bound || g.store.used+g.store.reserved > bound {
			t.Fatalf("%d chunks, %d used, bound %d", len(g.store.chunks), g.store.used+g.store.reserved, bound)
		}
		if ok {
			tags = append(tags, next)
		}
		next++
		for (!ok || rng.IntN(3) == 0) && len(tags) > 0 {
			k := rng.IntN(len(tags))
			if rng.IntN(4) == 0 {
				k = 0
			}
			g.recv(Recv{Tagged: true, Tag: tags[k], Buf: nil})
			g.event()
			tags[k] = tags[len(tags)-1]
			tags = tags[:len(tags)-1]
			ok = rng.IntN(8) != 0
		}
	}
	for _, tag := range tags {
		g.recv(Recv{Tagged: true, Tag: tag})
		g.event()
	}
	g.rest()
	// Every size can use all of it again.
	for _, n := range []int{64, 16383, 100_000} {
		k := 0
		for ; ; k++ {
			if g.deliver(Source{Peer: 1, PDC: 100 + uint32(k)}, g.tagged(uint64(k), make([]byte, n), 16383)[0]).Nack != 0 {
				break
			}
		}
		if got := int64(k) * chargeOf(int64(n)); got < limit*9/10 || got > limit {
			t.Fatalf("%d bytes of %d with messages of %d", got, limit, n)
		}
		g.CancelAll()
		*g = *newRig(t, func(c *Config) {
			c.UnexpectedBytes, c.PartialBytes, c.UnexpectedShare, c.UnexpectedMsgs = limit, limit, 1, 1<<20
		})
	}
}

func TestUnexpectedWorkPerDatagram(t *testing.T) {
	// T31: a large message allocates as its bytes come: at most 64 KiB, and its table of 4
	// bytes per 32 KiB.
	g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 1<<30, 1 })
	pkt := append(g.req(func(r *wire.ReqStd) {
		r.Flags, r.MsgOff, r.PayloadLen, r.ReqLen = wire.SESREL, 500<<20-1, 8192, 600<<20
	}), make([]byte, 8192)...)
	g.want(srcA, pkt, "response OK overflow 629145600 gtd")
	if g.store.used != 2 || g.store.reserved != 600<<20/chunkLen-2 {
		t.Fatalf("%d chunks used, %d reserved", g.store.used, g.store.reserved)
	}
	g.PDCGone(srcA.PDC, Closed)
	g.rest()
}

func TestLateReceiveGetsOnlyItsMessage(t *testing.T) {
	// A receive posted in the middle sees no bytes of messages that used the same memory
	// before.
	for _, n := range []int{3000, 16_000, 60_000} {
		g := newRig(t)
		secret := bytes.Repeat([]byte{0xee}, n)
		for _, p := range g.tagged(1, secret, 1024) {
			g.deliver(srcA, p)
		}
		g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, n)})
		g.event()
		pkts := g.tagged(2, make([]byte, n), 1024)
		g.deliver(srcB, pkts[1])
		buf := make([]byte, n)
		g.recv(Recv{Tagged: true, Tag: 2, Buf: buf})
		wantBytes(t, buf, make([]byte, n))
		g.PDCGone(srcB.PDC, TimedOut)
		g.wantEvent(EvRecv, TimedOut, nil, 0)
		g.rest()
	}
}

func TestUnexpectedFloodKeepsSearchShort(t *testing.T) {
	// Tags of a peer that does not know the seed are spread evenly over the chains.
	g := newRig(t, func(c *Config) { c.UnexpectedShare = 1 })
	for i := range 60_000 {
		g.deliver(srcA, g.tagged(uint64(i)<<uint(i%3*16), nil, 1024)[0])
	}
	sp := &g.endpoints[0].spaces[1]
	for name, x := range map[string]*index{"tag": &sp.byTag, "source": &sp.bySource} {
		longest := 0
		for b := range x.buckets {
			n := 0
			for i := x.first(uint32(b)); i != none; i = x.next(i) {
				n++
			}
			longest = max(longest, n)
		}
		if longest > 24 {
			t.Errorf("by %s: a chain of %d", name, longest)
		}
	}
}
