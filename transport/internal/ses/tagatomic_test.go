package ses

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/wire"
)

// newTagRig makes an amoRig whose b takes tagged atomic operations.
func newTagRig(t *testing.T, change ...func(*Config)) *amoRig {
	cfg := testConfig()
	cfg.Atomics = allAccess
	for _, f := range change {
		f(&cfg)
	}
	return &amoRig{t: t, a: New(testConfig()), b: New(cfg)}
}

// wordsOf returns the bytes of these words, aligned.
func wordsOf(v ...uint64) []byte {
	b := blank(len(v))[:0]
	for _, x := range v {
		b = native.AppendUint64(b, x)
	}
	return b
}

// blank returns n words, aligned.
func blank(n int) []byte {
	b := make([]byte, 8*n+8)
	return b[(8-address(b)%8)%8:][: 8*n : 8*n]
}

// add adds v to each of the words at an offset of a receive with a tag; result is nil or gets the old ones.
func (g *amoRig) add(tag, at uint64, result []byte, v ...uint64) *Op {
	kind := EvAtomic
	if result != nil {
		kind = EvFetch
	}
	op := g.op(kind, at, &AMO{Op: wire.AtomicSum, Type: wire.Uint64, Result: result, Tagged: true}, wordsOf(v...))
	op.Tag = tag
	return op
}

// post posts a tagged receive at b.
func (g *amoRig) post(op Op) {
	g.t.Helper()
	op.Kind = EvTRecv
	if err := g.b.Recv(1, &op); err != nil {
		g.t.Fatal(err)
	}
}

// take executes an operation at b and returns its answer.
func (g *amoRig) take(op *Op) (Handle, string) {
	g.t.Helper()
	h, _, pkt := g.request(op)
	return h, answer(g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt))
}

// got returns the next event of a SES in short.
func got(s *SES) string {
	e := s.Event()
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v %v %v len=%d over=%d tag=%d", e.Context, e.Cause, e.RC, e.Len, e.OverLen, e.Tag)
}

func (g *amoRig) want(have, want string) {
	g.t.Helper()
	if have != want {
		g.t.Fatalf("%s, want %s", have, want)
	}
}

// R-AMO-12, S-AMO-10: an operation matches like a tagged message, changes the buffer of its receive at
// buffer_offset, and ends the receive. The old values come in the answer, or as read data.
func TestTaggedAtomic(t *testing.T) {
	g := newTagRig(t)
	mem := wordsOf(10, 20, 30, 40)
	for _, c := range []struct {
		name   string
		op     func() *Op
		answer string
		now    []byte
		old    []byte
	}{
		{"add", func() *Op { return g.add(7, 8, nil, 1, 2) }, "default OK 16", wordsOf(10, 21, 32, 40), nil},
		{"fetch", func() *Op { return g.add(7, 24, make([]byte, 8), 5) }, " OK 8 gtd", wordsOf(10, 20, 30, 45), wordsOf(40)},
		{"fetch more", func() *Op { return g.add(7, 0, make([]byte, 32), 1, 1, 1, 1) }, "default OK 32", wordsOf(11, 21, 31, 41), wordsOf(10, 20, 30, 40)},
		{"read", func() *Op {
			op := g.add(7, 16, make([]byte, 8))
			op.AMO.Op, op.AMO.Bytes = wire.AtomicRead, 8
			return op
		}, " OK 8 gtd", wordsOf(10, 20, 30, 40), wordsOf(30)},
		{"swap", func() *Op {
			op := g.add(7, 16, make([]byte, 8), 99)
			op.AMO.Op, op.AMO.Compare = wire.AtomicCSwap, wordsOf(30)
			return op
		}, " OK 32 gtd", wordsOf(10, 20, 99, 40), wordsOf(30)},
	} {
		t.Run(c.name, func(t *testing.T) {
			copy(mem, wordsOf(10, 20, 30, 40))
			other := wordsOf(1, 2, 3, 4)
			g.post(Op{Tag: 3, Buf: other, Context: "other"})
			g.post(Op{Tag: 5, Ignore: 2, Buf: mem, Context: "recv"})
			op := c.op()
			op.HasData, op.Data = true, 77
			h, ans := g.take(op)
			g.want(ans, c.answer)
			if !bytes.Equal(mem, c.now) {
				t.Errorf("memory is %x, want %x", mem, c.now)
			}
			e := g.b.Event()
			if e == nil || e.Kind != EvTRecv || e.Context != "recv" || e.Cause != OK || e.Len != amoLen(op) || e.Tag != 7 || !e.HasData || e.Data != 77 || e.Peer != 1 || e.Initiator != 16 {
				t.Fatalf("%+v", e)
			}
			g.answered(h)
			g.returns()
			if e := g.a.Event(); e == nil || e.Kind != op.Kind || e.Cause != OK || !bytes.Equal(op.AMO.Result, c.old) {
				t.Errorf("%+v, %x", e, op.AMO.Result)
			}
			if g.b.Recvs() != 1 || !g.a.Idle() || g.b.fetched != 0 || g.b.numServes != 0 || !bytes.Equal(other, wordsOf(1, 2, 3, 4)) {
				t.Error("something is left, or another receive has changed")
			}
			g.b.CancelRecv(0, "other")
			g.b.Event()
		})
	}
}

func amoLen(op *Op) int { return max(len(op.Buf), op.AMO.Bytes) }

// S-AMO-10: what no receive matches is kept in the order of all messages. An operation that returns nothing
// has succeeded; one that fetches succeeds when a receive has matched, however late.
func TestTaggedAtomicWaits(t *testing.T) {
	g := newTagRig(t)
	old := make([]byte, 24)
	base, ans := g.take(g.add(7, 0, nil, 1))
	g.want(ans, "response OK overflow 8 gtd")
	g.answered(base)
	g.want(got(g.a), "op ok NULL len=12 over=0 tag=7")
	fetch, ans := g.take(g.add(7, 8, old, 3, 4, 5))
	g.want(ans, "response OK overflow 0 gtd")
	g.answered(fetch)
	for range 4 * 8 { // IdleTimeout passes several times
		g.a.Advance(g.a.now + 20*time.Second)
		g.b.Advance(g.b.now + 20*time.Second)
	}
	g.want(got(g.a), "nothing")
	if g.a.Undelivered(AllEndpoints, g.a.now, 0, true, func(uint32) bool { return true }) {
		t.Error("Close would wait for it")
	}
	g.a.EachSend(AllEndpoints, func(v *SendView) {
		if v.Stage != StageResult {
			t.Errorf("stage %d", v.Stage)
		}
	})
	g.post(Op{Tag: 7, Look: LookPeek, Context: "peek"})
	g.want(got(g.b), "peek ok NULL len=8 over=0 tag=7")
	mem := wordsOf(10, 20, 30, 40)
	g.post(Op{Tag: 7, Buf: mem, Context: "first"})
	g.want(got(g.b), "first ok NULL len=8 over=0 tag=7")
	g.post(Op{Tag: 7, Buf: mem, Context: "second"})
	g.want(got(g.b), "second ok NULL len=24 over=0 tag=7")
	if want := wordsOf(11, 23, 34, 45); !bytes.Equal(mem, want) {
		t.Errorf("%x, want %x", mem, want)
	}
	g.returns()
	g.want(got(g.a), "op ok NULL len=28 over=0 tag=7")
	if !bytes.Equal(old, wordsOf(20, 30, 40)) {
		t.Errorf("fetched %x", old)
	}
	if !g.a.Idle() || !g.b.Idle() || g.b.fetched != 0 {
		t.Error("something is left")
	}
}

// R-TAG-09: an operation that was kept can be claimed, and discarded. Who waits for old values hears CANCELLED.
func TestTaggedAtomicIsClaimed(t *testing.T) {
	for _, c := range []struct {
		look []Look
		end  string
		sum  uint64
	}{
		{[]Look{LookPeekClaim, LookClaim}, "op ok NULL len=12 over=0 tag=7", 3},
		{[]Look{LookPeekClaim, LookClaimDiscard}, "op refused CANCELLED len=12 over=0 tag=7", 2},
		{[]Look{LookPeekDiscard}, "op refused CANCELLED len=12 over=0 tag=7", 2},
	} {
		g := newTagRig(t)
		mem := wordsOf(2)
		old := make([]byte, 8)
		h, _ := g.take(g.add(7, 0, old, 1))
		g.answered(h)
		for _, l := range c.look {
			g.post(Op{Tag: 7, Look: l, Buf: mem, Context: "r"})
			g.want(got(g.b), "r ok NULL len=8 over=0 tag=7")
		}
		g.returns()
		g.want(got(g.a), c.end)
		if native.Uint64(mem) != c.sum || !g.a.Idle() || !g.b.Idle() || g.b.fetched != 0 {
			t.Errorf("%v: %d, or something is left", c.look, native.Uint64(mem))
		}
	}
}

// S-AMO-08, S-AMO-10: what is wrong by itself matches nothing. What does not fit the receive that it matches
// changes nothing, and ends both in error, at once or when the receive is posted.
func TestTaggedAtomicRefused(t *testing.T) {
	const over, bad = "r truncated BAD_ADDR len=0 over=8 tag=7", "r peer error "
	for name, c := range map[string]struct {
		at     uint64
		n      int
		change func(cfg *Config)
		edit   func(r *wire.ReqStd, ext []byte)
		rc     wire.RC
		ends   string // of the receive; empty: it stays
	}{
		"not offered":       {0, 1, func(c *Config) { c.Atomics = RemoteRead | RemoteWrite }, nil, wire.RCUnsupportedOp, ""},
		"no write":          {0, 1, func(c *Config) { c.Atomics = RemoteRead | RemoteAtomic }, nil, wire.RCPermViolation, ""},
		"no read":           {0, 1, func(c *Config) { c.Atomics = RemoteWrite | RemoteAtomic }, nil, wire.RCPermViolation, ""},
		"unknown type":      {0, 1, nil, func(_ *wire.ReqStd, ext []byte) { ext[1] = 0x40 }, wire.RCAMOUnsupportedDT, ""},
		"unknown operation": {0, 1, nil, func(_ *wire.ReqStd, ext []byte) { ext[0] = 0x40 }, wire.RCAMOUnsupportedOp, ""},
		"half an element":   {0, 2, nil, func(r *wire.ReqStd, _ []byte) { r.ReqLen = 12 }, wire.RCAMOUnsupportedSize, ""},
		"part of a message": {0, 1, nil, func(r *wire.ReqStd, _ []byte) { r.Flags &^= wire.SESEOM }, wire.RCOpViolation, ""},
		"initiator error":   {0, 1, nil, func(r *wire.ReqStd, _ []byte) { r.Flags |= wire.SESIE }, wire.RCInitiatorError, ""},
		"at the end":        {32, 1, nil, nil, wire.RCBadAddr, over},
		"over the end":      {24, 2, nil, nil, wire.RCBadAddr, over},
		"far beyond":        {1 << 40, 1, nil, nil, wire.RCBadAddr, over},
		"last address":      {^uint64(7), 1, nil, nil, wire.RCBadAddr, over},
		"in two parts":      {8, 2, nil, nil, wire.RCBadAddr, bad + "BAD_ADDR len=0 over=0 tag=7"},
		"not aligned":       {4, 1, nil, nil, wire.RCAMOUnaligned, bad + "AMO_UNALIGNED len=0 over=0 tag=7"},
	} {
		for _, late := range []bool{false, true} {
			for _, fetch := range []bool{false, true} {
				if late && c.ends == "" || name == "no read" && !fetch {
					continue
				}
				t.Run(fmt.Sprintf("%s/late=%v/fetch=%v", name, late, fetch), func(t *testing.T) {
					var changes []func(*Config)
					if c.change != nil {
						changes = append(changes, c.change)
					}
					g := newTagRig(t, changes...)
					parts := [][]byte{wordsOf(1, 2), wordsOf(3, 4)}
					post := func() { g.post(Op{Tag: 7, Iov: parts, Context: "r"}) }
					if !late {
						post()
					}
					var old []byte
					if fetch {
						old = make([]byte, 8*c.n)
					}
					h, _, pkt := g.request(g.add(7, c.at, old, slices.Repeat([]uint64{1}, c.n)...))
					if c.edit != nil {
						var r wire.ReqStd
						n, _ := r.Parse(pkt)
						c.edit(&r, pkt[n:])
						pkt = append(r.Append(nil), pkt[n:]...)
					}
					ans := answer(g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt))
					g.answered(h)
					if late {
						post()
						g.returns()
					} else {
						g.want(ans, "response "+c.rc.String()+" 0 gtd")
					}
					if c.ends != "" {
						g.want(got(g.b), c.ends)
					} else {
						g.want(got(g.b), "nothing")
						g.b.CancelRecv(0, "r")
						g.b.Event()
					}
					if e := g.a.Event(); e == nil || (e.Cause != Rejected || e.RC != c.rc || e.Unknown) && (!late || fetch) {
						t.Errorf("%+v", e)
					}
					if !bytes.Equal(parts[0], wordsOf(1, 2)) || !bytes.Equal(parts[1], wordsOf(3, 4)) {
						t.Error("memory has changed")
					}
					if !g.a.Idle() || !g.b.Idle() || g.b.fetched != 0 {
						t.Error("something is left")
					}
				})
			}
		}
	}
	// S-AMO-10: only with a standard header.
	g := newTagRig(t)
	m := wire.ReqMedium{Opcode: wire.OpTSendAtomic, Flags: single | wire.SESREL, JobID: g.b.cfg.JobID, PIDonFEP: g.b.cfg.PIDonFEP, RI: g.b.cfg.RI, Match: 7, ReqLen: 8}
	pkt := append(wire.Atomic{Op: wire.AtomicSum, Type: wire.Uint64}.Append(m.Append(nil)), wordsOf(1)...)
	g.want(answer(g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqMedium, pkt)), "response UNSUPPORTED_OP 0 gtd")
}

// S-AMO-10, S-RSP-02: beyond the bounds of unexpected messages, of old values and of reads nothing happens, and the packet
// comes again.
func TestTaggedAtomicWithoutRoom(t *testing.T) {
	for name, c := range map[string]struct {
		fetch, posted bool
		spoil         func(s *SES)
	}{
		"messages":        {false, false, func(s *SES) { s.cfg.UnexpectedMsgs = 0 }},
		"fetch, messages": {true, false, func(s *SES) { s.cfg.UnexpectedMsgs = 0 }},
		"old values":      {true, true, func(s *SES) { s.fetched = maxFetched - 7 }},
		"reads":           {true, true, func(s *SES) { s.numServes = maxServes }},
	} {
		g := newTagRig(t)
		mem := wordsOf(5)
		if c.posted {
			g.post(Op{Tag: 7, Buf: mem, Context: "r"})
		}
		var old []byte
		if c.fetch {
			old = make([]byte, 8)
		}
		most, serves := g.b.cfg.UnexpectedMsgs, g.b.numServes
		c.spoil(g.b)
		_, p, pkt := g.request(g.add(7, 0, old, 1))
		g.want(answer(g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt)), "nack 09")
		g.want(got(g.b), "nothing")
		g.b.cfg.UnexpectedMsgs, g.b.fetched, g.b.numServes = most, 0, serves
		if !c.posted {
			g.post(Op{Tag: 7, Buf: mem, Context: "r"})
		}
		pkt = g.a.Append(nil, p)
		g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, pkt)
		g.want(got(g.b), "r ok NULL len=8 over=0 tag=7")
		if native.Uint64(mem) != 6 || g.b.fetched != 0 || g.b.numServes != 0 {
			t.Errorf("%s: %d", name, native.Uint64(mem))
		}
	}
}

// R-MSG-12, S-AMO-10: in a multi-receive buffer an operation has the next place, as a message of as many bytes as its last
// operand is far. One that does not fit gets an error and no place.
func TestTaggedAtomicInMulti(t *testing.T) {
	g := newTagRig(t)
	mem := wordsOf(1, 2, 3, 4, 5, 6)
	_, ans := g.take(g.add(7, 0, nil, 10)) // kept
	g.want(ans, "response OK overflow 8 gtd")
	g.post(Op{Tag: 7, Buf: mem, Multi: true, MinFree: 8, Context: "m"})
	for _, c := range []struct {
		op       *Op
		want     string
		buf      []byte
		released bool
	}{
		{nil, "m ok NULL len=8 over=0 tag=7", mem[:8], false},
		{g.add(7, 8, nil, 20), "m ok NULL len=8 over=0 tag=7", mem[16:24], false},
		{g.add(7, 16, nil, 20, 20), "m truncated BAD_ADDR len=0 over=8 tag=7", mem[24:24], false},
		{g.add(7, 0, make([]byte, 24), 30, 30, 30), "m ok NULL len=24 over=0 tag=7", mem[24:], true},
	} {
		if c.op != nil {
			g.take(c.op)
		}
		e := *g.b.events.next
		g.want(got(g.b), c.want)
		if !e.Multi || e.Released != c.released || len(e.Buf) != len(c.buf) || len(c.buf) > 0 && &e.Buf[0] != &c.buf[0] {
			t.Errorf("%+v", e)
		}
	}
	if want := wordsOf(11, 2, 23, 34, 35, 36); !bytes.Equal(mem, want) || g.b.Recvs() != 0 {
		t.Errorf("%x, want %x", mem, want)
	}
	// No room for an Event: it waits as a message does.
	room := false
	g = newTagRig(t, func(c *Config) { c.Admit = func() bool { return room } })
	g.post(Op{Tag: 7, Buf: mem, Multi: true, MinFree: 8, Context: "m"})
	_, ans = g.take(g.add(7, 0, nil, 100))
	g.want(ans, "response OK overflow 8 gtd")
	room = true
	g.b.Advance(g.b.now + 10*time.Millisecond)
	g.want(got(g.b), "m ok NULL len=8 over=0 tag=7")
	if native.Uint64(mem) != 111 {
		t.Error(native.Uint64(mem))
	}
}

// S-AMO-05, S-AMO-10: an operation that waits for a receive, and for whose old values nobody waits any more, is not executed.
// One that returns nothing stays, as a message does.
func TestTaggedAtomicIsLeft(t *testing.T) {
	old := make([]byte, 8)
	for name, c := range map[string]struct {
		leave func(g *amoRig)
		a     string // what becomes of the fetching operation
		stays bool
	}{
		"its PDC":            {func(g *amoRig) { g.b.PDCGone(9, Aborted); g.a.PDCGone(7, TimedOut) }, "op timed out NULL len=12 over=0 tag=8", true},
		"its PDC in order":   {func(g *amoRig) { g.b.PDCGone(9, OK); g.a.PDCGone(7, OK) }, "op the PDC was closed NULL len=12 over=0 tag=8", true},
		"the peer":           {func(g *amoRig) { g.b.CancelPeer(1) }, "op refused CANCELLED len=12 over=0 tag=8", false},
		"the endpoint":       {func(g *amoRig) { g.b.Leave() }, "op refused CANCELLED len=12 over=0 tag=8", false},
		"the other endpoint": {func(g *amoRig) { g.a.CancelAll() }, "op cancelled NULL len=12 over=0 tag=8", true},
	} {
		g := newTagRig(t)
		h, _ := g.take(g.add(7, 0, nil, 1))
		g.answered(h)
		g.a.Event()
		h, _ = g.take(g.add(8, 0, old, 1))
		g.answered(h)
		c.leave(g)
		g.returns()
		e := g.a.Event()
		if e == nil {
			t.Fatalf("%s: nothing", name)
		}
		if have := fmt.Sprintf("op %v %v len=%d over=0 tag=%d", e.Cause, e.RC, e.Len, e.Tag); have != c.a && e.Cause != Closed {
			t.Errorf("%s: %s, want %s", name, have, c.a)
		}
		if e.Unknown != (e.Cause != Rejected) {
			t.Errorf("%s: unknown %v", name, e.Unknown)
		}
		if n, _ := g.b.Unexpected(); c.stays != (n > 0) || name != "the other endpoint" && (g.b.fetched != 0 || g.b.numServes != 0) {
			t.Errorf("%s: %d are kept, %d bytes, %d reads", name, n, g.b.fetched, g.b.numServes)
		}
		if c.stays {
			mem := wordsOf(2)
			g.post(Op{Tag: 7, Buf: mem, Context: "r"})
			g.want(got(g.b), "r ok NULL len=8 over=0 tag=7")
			if native.Uint64(mem) != 3 {
				t.Errorf("%s: %d", name, native.Uint64(mem))
			}
		}
	}
	// One that was claimed meanwhile: the claim says so.
	g := newTagRig(t)
	h, _ := g.take(g.add(7, 0, old, 1))
	g.answered(h)
	g.post(Op{Tag: 7, Look: LookPeekClaim, Context: "r"})
	g.b.Event()
	g.b.PDCGone(9, Aborted)
	g.post(Op{Tag: 7, Look: LookClaim, Buf: wordsOf(1), Context: "r"})
	g.want(got(g.b), "r aborted NULL len=0 over=0 tag=0")
	if !g.b.Idle() {
		t.Error("something is left")
	}
}

// S-AMO-10, S-GEN-55, S-ADDR-03: a target without unexpected messages answers NO_MATCH; the operation goes again.
func TestTaggedAtomicGoesAgain(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		g := newTagRig(t)
		mem := wordsOf(40)
		old := make([]byte, 8)
		op := g.add(7, 0, old, 2)
		op.Ordered = ordered
		h, _, _ := g.request(op)
		g.a.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch, MsgID: g.a.lastID})
		g.want(got(g.a), "nothing")
		if _, m := g.a.lookup(h); m.genKey().space != EvTSend {
			t.Errorf("index space %v", m.genKey().space)
		}
		again := Handle(0)
		for range 5 {
			g.a.Advance(g.a.now + 100*time.Millisecond)
			if h, ok := g.a.Resend(); ok {
				again = h
			}
		}
		if again != h {
			t.Fatalf("ordered=%v: it does not go again", ordered)
		}
		g.post(Op{Tag: 7, Buf: mem, Context: "r"})
		g.a.On(h, 7)
		p, _ := g.a.Peek(h, 1024)
		g.b.Request(&Source{Peer: 1, PDC: 9}, wire.NextReqStd, g.a.AppendPiece(nil, p))
		g.answered(h)
		g.want(got(g.a), "op ok NULL len=12 over=0 tag=7")
		if native.Uint64(mem) != 42 || native.Uint64(old) != 40 || !g.a.Idle() {
			t.Errorf("%d, fetched %d", native.Uint64(mem), native.Uint64(old))
		}
	}
}

// R-CMPL-13: nothing makes a receive durable, so LevelCommit is LevelDelivery.
func TestTaggedAtomicIsNotDurable(t *testing.T) {
	g := newTagRig(t)
	g.post(Op{Tag: 7, Buf: wordsOf(1), Context: "r"})
	op := g.add(7, 0, nil, 2)
	op.Level = LevelCommit
	h, _ := g.take(op)
	g.answered(h)
	g.want(got(g.a), "op ok NULL len=12 over=0 tag=7")
}

// S-AMO-10: every operation of every type does to a receive what package amo says, in the place of a receive that lies
// in several parts of memory.
func TestTaggedAtomicTypes(t *testing.T) {
	g := newTagRig(t)
	for typ := wire.Int8; typ <= wire.FP16; typ++ {
		for op := wire.AtomicMin; op <= wire.AtomicMSwap; op++ {
			f, kind := amo.Base, EvAtomic
			switch {
			case op.Compares():
				f, kind = amo.Compare, EvFetch
			case op == wire.AtomicRead:
				f, kind = amo.Fetch, EvFetch
			}
			if amo.Valid(f, op, typ) != wire.RCNull {
				continue
			}
			size := typ.Size()
			parts := [][]byte{wordsOf(1, 2), wordsOf(0x0101010101010101, 4, 5, 6), wordsOf(7)}
			want := bytes.Clone(parts[1])
			operand := bytes.Repeat([]byte{3}, size)
			a := &AMO{Op: op, Type: typ, Tagged: true}
			if kind == EvFetch {
				a.Result = make([]byte, size)
			}
			if op.Compares() {
				a.Compare = bytes.Repeat([]byte{1}, size)
			}
			if op == wire.AtomicRead {
				a.Bytes, operand = size, nil
			}
			aligned := append(blank(4)[:0], want...)
			if _, rc := amo.Apply(nil, op, typ, aligned[:size], operand, a.Compare); rc != wire.RCNull { // bytes that are the same in each order
				t.Fatal(rc)
			}
			g.post(Op{Tag: 1, Iov: parts, Context: "r"})
			x := g.op(kind, 16, a, operand)
			x.Tag = 1
			h, _ := g.take(x)
			g.answered(h)
			g.returns()
			if e := g.a.Event(); e == nil || e.Cause != OK {
				t.Fatalf("%v %v: %+v", op, typ, e)
			}
			g.b.Event()
			if !bytes.Equal(parts[1], aligned) {
				t.Errorf("%v %v: %x, want %x", op, typ, parts[1], aligned)
			}
		}
	}
}

// Operations of one peer that wait for receives leave room for the old values that others fetch.
func TestTaggedFetchesOfOnePeer(t *testing.T) {
	g := newTagRig(t)
	op := g.add(7, 0, blank(1))
	op.AMO.Op, op.AMO.Bytes, op.Buf = wire.AtomicRead, 8, nil
	_, _, pkt := g.request(op)
	var r wire.ReqStd
	n, err := r.Parse(pkt)
	if err != nil {
		t.Fatal(err)
	}
	const each = 16_000
	take := func(peer, pdc uint32) string {
		r.MsgID++
		r.ReqLen = each
		return answer(g.b.Request(&Source{Peer: peer, PDC: pdc}, wire.NextReqStd, append(r.Append(nil), pkt[n:]...)))
	}
	const most = maxFetched / 4 / each
	for i := range most {
		if a := take(1, 9); a != "response OK overflow 0 gtd" {
			t.Fatalf("operation %d: %s", i, a)
		}
	}
	if a := take(1, 9); a != "nack 09" {
		t.Errorf("beyond a quarter of the room: %s", a)
	}
	if a := take(2, 10); a != "response OK overflow 0 gtd" {
		t.Errorf("another peer: %s", a)
	}
}
