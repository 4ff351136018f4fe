package ses

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// A carried is a packet on its way, until it is executed and answered.
type carried struct {
	h Handle
	p piece.Piece
}

// An end is one of two SES that talk. It sends by a RUD PDC and a ROD one.
type end struct {
	*SES
	src     Source // as the other end sees it
	mate    *end
	waiting []Handle  // begun or to be begun, in order
	rud     []carried // may be executed in any order
	rod     []carried // in order
	back    []carried // read data for the other end
	events  []Event
	noLoans bool // it is of a make that does not know rendezvous sends
}

// Request has the SES execute a request, as one of another make would if noLoans.
func (e *end) Request(src *Source, next wire.NextHdr, b []byte) *Result {
	var r wire.ReqStd
	if _, err := r.Parse(b); e.noLoans && next == wire.NextReqStd && err == nil {
		switch {
		case rendezvous(r.Opcode):
			return e.rejected(wire.RCUnsupportedOp)
		case r.Opcode == wire.OpNoOp:
			return e.done(0)
		}
	}
	return e.SES.Request(src, next, b)
}

// A duo is two ends with a network that keeps everything, and brings RUD packets in any order.
type duo struct {
	t    *testing.T
	rng  *rand.Rand
	now  time.Duration
	a, b *end
}

func newDuo(t *testing.T, seed uint64, change func(*Config)) *duo {
	d := &duo{t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: time.Second}
	mk := func(peer, pdc uint32) *end {
		cfg := testConfig()
		cfg.UnexpectedBytes, cfg.UnexpectedShare, cfg.DeferrableMin = 64<<10, 1, 1024
		if change != nil {
			change(&cfg)
		}
		return &end{SES: New(cfg), src: Source{Peer: peer, PDC: pdc}}
	}
	d.a, d.b = mk(1, 10), mk(2, 20)
	d.a.mate, d.b.mate = d.b, d.a
	return d
}

// send posts a tagged message of n bytes from a to b.
func (d *duo) send(tag uint64, n int, ordered bool) Handle {
	d.t.Helper()
	cfg := testConfig()
	h, err := d.a.send(d.now, &Op{Kind: EvTSend, Peer: 2, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Buf: pattern(n), Tag: tag, Ordered: ordered, Context: tag})
	if err != nil {
		d.t.Fatal(err)
	}
	d.a.queue(h, false)
	return h
}

// queue has a send, which was just posted, wait for its turn.
func (e *end) queue(h Handle, fence bool) {
	if !e.SomeFences() || !e.Fence(h, fence) {
		e.On(h, e.src.PDC)
		e.waiting = append(e.waiting, h)
	}
}

// recv posts a tagged receive of n bytes at b.
func (d *duo) recv(tag uint64, n int) {
	d.t.Helper()
	if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Tag: tag, Buf: make([]byte, n), Context: tag}); err != nil {
		d.t.Fatal(err)
	}
}

// listen reads the events.
func (e *end) listen() {
	for ev := e.SES.Event(); ev != nil; ev = e.SES.Event() {
		e.events = append(e.events, *ev)
	}
}

// step does one random thing. It reports whether there was something to do.
func (d *duo) step(e *end) bool {
	e.Advance(d.now)
	for h, ok := e.Resend(); ok; h, ok = e.Resend() {
		e.On(h, e.src.PDC)
		e.waiting = append(e.waiting, h)
	}
	for pdc, ok := e.Owing(); ok; pdc, ok = e.Owing() {
		for p, ok := e.PeekReturn(pdc, 1024); ok; p, ok = e.PeekReturn(pdc, 1024) {
			e.AppendReturn(nil, p)
			e.back = append(e.back, carried{Handle(p.Msg), p})
		}
	}
	for h, ok := e.Unfenced(); ok; h, ok = e.Unfenced() {
		e.On(h, e.src.PDC)
		e.waiting = append(e.waiting, h)
	}
	e.listen()
	if len(e.waiting) > 0 && d.rng.IntN(2) == 0 {
		h := e.waiting[0]
		p, ok := e.Peek(h, 1024)
		if !ok {
			if e.waiting = e.waiting[1:]; e.Paced(h) {
				e.waiting = append(e.waiting, h)
			}
			return true
		}
		e.AppendPiece(nil, p)
		c := carried{h, p}
		if p.Last() {
			e.waiting = e.waiting[1:]
		}
		if _, _, ordered := e.Info(h); ordered {
			e.rod = append(e.rod, c)
		} else {
			e.rud = append(e.rud, c)
		}
		return true
	}
	if len(e.back) > 0 && d.rng.IntN(2) == 0 {
		i := d.rng.IntN(len(e.back))
		c := e.back[i]
		e.back = slices.Delete(e.back, i, i+1)
		src := Source{Peer: e.src.Peer, PDC: e.mate.src.PDC, Now: d.now}
		if res := e.mate.Request(&src, wire.NextRspData, e.Append(nil, c.p)); res.Nack != 0 || res.Bad {
			d.t.Fatalf("read data: %+v", res)
		}
		e.Answered(c.h, nil)
		return true
	}
	src := e.src
	src.Now = d.now
	q, i := &e.rud, 0
	if len(e.rod) > 0 && (len(e.rud) == 0 || d.rng.IntN(2) == 0) {
		q, src.Ordered, src.PDC = &e.rod, true, src.PDC+1
	} else if len(e.rud) > 0 {
		i = d.rng.IntN(len(e.rud))
	}
	if len(*q) == 0 {
		return len(e.waiting)+len(e.back) > 0
	}
	c := (*q)[i]
	res := e.mate.Request(&src, wire.NextReqStd, e.Append(nil, c.p))
	if res.Nack != 0 {
		e.Refused(e.mate.src.Peer)
		return d.rng.IntN(50) != 0
	}
	*q = slices.Delete(*q, i, i+1)
	rsp := res.Rsp
	if rsp.Opcode == wire.RspWithData {
		e.ReadData(e.src.PDC, &wire.RspData{Opcode: rsp.Opcode, RC: rsp.RC, ReadMsgID: rsp.MsgID, PayloadLen: uint16(len(res.Data))}, res.Data)
	}
	e.Answered(c.h, &rsp)
	if rsp.List == wire.ListOverflow && rsp.ModLen == 0 {
		e.Promised(c.h, src.PDC)
	}
	return true
}

// run goes on until nothing is to be done.
func (d *duo) run() {
	d.t.Helper()
	for idle, steps := 0, 0; idle < 400; steps++ { // longer than a back-off
		if steps == 300_000 {
			d.t.Fatal("it does not come to an end")
		}
		d.now += 100 * time.Microsecond
		if x, y := d.step(d.a), d.step(d.b); x || y {
			idle = 0
		} else {
			idle++
		}
	}
}

// received checks that b has received exactly these messages, in any order, by tag and length.
func (d *duo) received(want map[uint64]int) {
	d.t.Helper()
	for _, ev := range d.b.events {
		n, ok := want[ev.Tag]
		if !ok || ev.Cause != OK || ev.Len != n || !bytes.Equal(ev.Buf[:ev.Len], pattern(n)) {
			d.t.Errorf("event %v %v of %d bytes with tag %d", ev.Kind, ev.Cause, ev.Len, ev.Tag)
		}
		delete(want, ev.Tag)
	}
	if len(want) != 0 {
		d.t.Errorf("%d messages did not come", len(want))
	}
	d.b.events = nil
}

// sent checks that n sends of a have succeeded.
func (d *duo) sent(n int) {
	d.t.Helper()
	for _, ev := range d.a.events {
		if ev.Cause != OK {
			d.t.Errorf("send %v ended with %v, %v", ev.Context, ev.Cause, ev.RC)
		}
	}
	if len(d.a.events) != n {
		d.t.Errorf("%d sends have ended, not %d", len(d.a.events), n)
	}
	d.a.events = nil
}

// atRest checks that nothing is left.
func (d *duo) atRest() {
	d.t.Helper()
	for _, e := range []*end{d.a, d.b} {
		if e.in.live() == e.dead {
			e.SES.PDCGone(d.b.src.PDC, Closed) // what was refused is not kept for ever
		}
		if !e.Idle() || e.in.live() != 0 || e.peers.live() != 0 || e.waitResult != 0 || len(e.tokens) != 0 || e.deferrals.n != 0 || e.pulls.live() != 0 || e.named.n != 0 ||
			len(e.loans) != 0 || e.numServes != 0 {
			d.t.Errorf("left: idle %v, %d inbound, %d peers, %d wait, %d tokens, %d offers", e.Idle(), e.in.live(), e.peers.live(), e.waitResult, len(e.tokens), e.deferrals.n)
		}
	}
}

// Messages without room are deferred, and come when their receives are posted, in whatever order.
func TestDeferredInAnyOrder(t *testing.T) {
	for seed := range uint64(60) {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%v", seed, ordered), func(t *testing.T) {
				d := newDuo(t, seed, nil)
				want := map[uint64]int{}
				for k := range uint64(24) {
					n := 1024 + d.rng.IntN(20_000)
					want[k] = n
					d.send(k, n, ordered)
				}
				d.run()
				if d.b.Stats.Deferred == 0 {
					t.Error("no message was deferred")
				}
				for k := range uint64(24) {
					d.recv(23-k, 30_000)
				}
				d.run()
				d.received(want)
				d.sent(24)
				d.atRest()
			})
		}
	}
}

// What an initiator sends of a deferrable message, and what it makes of the answers.
func TestDeferredByTheLetter(t *testing.T) {
	const theirs = 0x9abc
	begin := func(t *testing.T) (g *rig, h Handle, own uint32, id uint16) {
		g = newRig(t, func(c *Config) { c.DeferrableMin = 1024 })
		g.supports[srcB.Peer] = supportYes
		g.Advance(time.Second)
		h = g.send(Send{Tagged: true, Tag: 7, Buf: pattern(5000), Peer: srcB.Peer, Context: "m"})
		for i := range 2 {
			p, _ := g.Next(h, 1024)
			r, _ := parse(t, g.Append(nil, p))
			i1, t1 := r.RestartTokens()
			if i == 0 {
				own, id = i1, r.MsgID
			}
			// S-DEF-02: at first there is no token of the target. S-DEF-01: 16 bits.
			if r.Opcode != wire.OpDeferrableTSend || r.Match != 7 || i1 == 0 || i1 > 0xffff || i1 != own || t1 != 0 {
				t.Fatalf("packet %d: %v", i, &r)
			}
		}
		return g, h, own, id
	}
	rtr := func(g *rig, high, low uint32) []byte {
		r := wire.ReqStd{Opcode: wire.OpDeferrableRTR, Flags: wire.SESREL | single, MsgID: 77, JobID: g.cfg.JobID, Initiator: 16}
		r.SetRTRTokens(high, low)
		return r.Append(nil)
	}
	for _, swapped := range []bool{false, true} {
		g, h, own, id := begin(t)
		g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, List: wire.ListOverflow, MsgID: id}) // S-DEF-03
		// S-MSC-04: an empty packet of the same opcode says that no more comes.
		p, ok := g.Next(h, 1024)
		if !ok {
			t.Fatal("the deferred message is not closed")
		}
		r, data := parse(t, g.Append(nil, p))
		i1, t1 := r.RestartTokens()
		if r.Opcode != wire.OpDeferrableTSend || r.Flags&single != wire.SESEOM || r.MsgOff != 2048 || r.PayloadLen != 0 || len(data) != 0 || r.MsgID != id || r.ReqLen != 5000 || i1 != own || t1 != 0 {
			t.Fatalf("the end of a deferred message: %v, %d bytes", &r, len(data))
		}
		if _, ok := g.Next(h, 1024); ok {
			t.Fatal("more of a deferred message is sent")
		}
		g.Answered(h, defNull)
		g.Answered(h, defNull)
		// S-DEF-04: no completion, at no time.
		g.quiet()
		g.Advance(time.Minute)
		g.Advance(24 * time.Hour)
		if g.quiet(); g.Sends() != 1 {
			t.Fatal("the deferred message has ended")
		}
		// S-DEF-06: ours is the high half, or the low one.
		if high, low := own, uint32(theirs); swapped {
			g.want(srcB, rtr(g, low, high), "default OK 0")
		} else {
			g.want(srcB, rtr(g, high, low), "default OK 0")
		}
		if h, ok = g.Resend(); !ok {
			t.Fatal("it is not sent again")
		}
		// S-DEF-07: all of it comes as a new message. S-DEF-02: with the token of the target.
		var got []byte
		pkts := drain(g.SES, h, 1024)
		for k, b := range pkts {
			r, data := parse(t, b)
			off := uint32(0)
			if k > 0 {
				off = r.MsgOff
			}
			i1, t1 := r.RestartTokens()
			if r.Opcode != wire.OpDeferrableTSend || r.MsgID == id || r.Match != 7 || int(off) != len(got) || i1 != own || t1 != theirs || (r.Flags&wire.SESSOM != 0) != (k == 0) {
				t.Fatalf("packet %d of the restart: %v", k, &r)
			}
			got = append(got, data...)
		}
		wantBytes(t, got, pattern(5000))
		for range pkts {
			g.Answered(h, nil)
		}
		g.wantEvent(EvTSend, OK, "m", 5000)
		g.rest()
	}
	// S-DEF-03: no other answer is a deferral.
	for _, a := range []wire.Rsp{
		{Opcode: wire.RspDefault, List: wire.ListOverflow},
		{Opcode: wire.RspResponse, List: wire.ListExpected},
		{Opcode: wire.RspResponse, List: wire.ListOverflow, ModLen: 5000},
	} {
		g, h, _, id := begin(t)
		a.RC, a.MsgID = wire.RCOK, id
		g.Answered(h, &a)
		n := len(drain(g.SES, h, 1024))
		for range n + 1 {
			g.Answered(h, nil)
		}
		if n != 3 {
			t.Errorf("after %+v %d packets are sent, not the other 3", a, n)
		}
		g.wantEvent(EvTSend, OK, "m", 5000)
	}
	// S-DEF-10, S-GEN-55: a target that keeps no more headers may say NO_MATCH. Then it goes again.
	g, h, _, id := begin(t)
	g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch, MsgID: id})
	for range drain(g.SES, h, 1024) { // MSG_ERROR
		g.Answered(h, nil)
	}
	g.Answered(h, nil)
	g.Advance(2 * time.Second)
	g.Advance(3 * time.Second)
	if h, ok := g.Resend(); !ok || len(drain(g.SES, h, 1024)) != 5 {
		t.Error("a deferrable message that was answered NO_MATCH does not go again")
	}
}

// What a target answers to a deferrable message, what it asks for it with, and what may come then.
func TestDeferralByTheLetter(t *testing.T) {
	for _, sameID := range []bool{false, true} { // S-DEF-07: a restart may have the message id of the first attempt
		g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 1024, 1 })
		body := pattern(3000)
		packet := func(id uint16, ours uint32, off, n int) []byte {
			return append(g.req(func(r *wire.ReqStd) {
				r.Opcode, r.Flags, r.MsgID, r.Match, r.Initiator, r.ReqLen = wire.OpDeferrableTSend, wire.SESREL, id, 7, 99, 3000
				if r.SetRestartTokens(0x1234, ours); off == 0 {
					r.Flags |= wire.SESSOM
				} else {
					r.MsgOff, r.PayloadLen = uint32(off), uint16(n)
				}
				if off+n == 3000 || n == 0 {
					r.Flags |= wire.SESEOM
				}
			}), body[off:off+n]...)
		}
		src := srcA
		g.want(src, packet(5, 0, 0, 1000), "response OK overflow 0 gtd") // S-DEF-03
		g.want(src, packet(5, 0, 1000, 1000), "default NULL 0")
		g.want(src, packet(5, 0, 2000, 0), "default NULL 0") // S-MSC-04
		buf := make([]byte, 3000)
		g.recv(Recv{Tagged: true, Tag: 7, Buf: buf, Context: "r"})
		g.quiet()
		// S-DEF-05: the request to restart.
		h, ok := g.Resend()
		if !ok {
			t.Fatal("the message is not asked for")
		}
		if peer, _, _ := g.Info(h); peer != src.Peer {
			t.Errorf("peer %d is asked", peer)
		}
		pkts := drain(g.SES, h, 1024)
		r, data := parse(t, pkts[0])
		want := wire.ReqStd{Opcode: wire.OpDeferrableRTR, Flags: wire.SESREL | single, MsgID: r.MsgID, JobID: g.cfg.JobID, Initiator: 99, Match: 0x1234_0000_1234}
		if len(pkts) != 1 || r != want || r.MsgID == 0 || len(data) != 0 {
			t.Fatalf("%d packets, %v\nwant %v", len(pkts), &r, &want)
		}
		high, low := r.RTRTokens()
		if high != 0x1234 || low != high { // S-DEF-06
			t.Errorf("tokens %#x and %#x", high, low)
		}
		g.Answered(h, nil)
		// S-DEF-08: the receive is for the restart alone.
		g.want(srcB, g.tagged(7, pattern(500), 1024)[0], "response OK overflow 500 gtd")
		g.quiet()
		id := uint16(6)
		if sameID {
			id = 5
		} else {
			src.PDC++
		}
		g.want(src, packet(id, 0x1234, 2000, 1000), "default OK 3000")
		g.want(src, packet(id, 0x1234, 0, 1000), "default OK 3000")
		g.want(src, packet(id, 0x1234, 1000, 1000), "default OK 3000")
		g.wantEvent(EvTRecv, OK, "r", 3000)
		wantBytes(t, buf, body)
	}
}

// S-MAT-04: deferred messages get receives in the order in which they were sent.
func TestDeferredKeepOrder(t *testing.T) {
	for seed := range uint64(60) {
		d := newDuo(t, seed, nil)
		for k := range 20 {
			d.send(1, 1024*(1+k)+k, true)
		}
		if seed%2 == 0 {
			d.run()
		}
		for k := range 20 {
			if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Tag: 1, Buf: make([]byte, 30_000), Context: k}); err != nil {
				t.Fatal(err)
			}
		}
		d.run()
		for _, ev := range d.b.events {
			if k := ev.Context.(int); ev.Len != 1024*(1+k)+k {
				t.Errorf("seed %d: receive %d has %d bytes", seed, k, ev.Len)
			}
		}
		if len(d.b.events) != 20 {
			t.Errorf("seed %d: %d messages", seed, len(d.b.events))
		}
		d.sent(20)
		d.atRest()
	}
}

// deferredOne leaves one message of 3000 bytes with tag 2 deferred: message 1 has all the room.
func deferredOne(t *testing.T, change func(*Config)) (d *duo, h Handle) {
	d = newDuo(t, 1, func(c *Config) {
		c.UnexpectedBytes = 32 << 10
		if change != nil {
			change(c)
		}
	})
	d.send(1, 32<<10, false)
	d.run()
	h = d.send(2, 3000, false)
	d.run()
	if d.b.Stats.Deferred != 1 {
		t.Fatalf("%d messages were deferred", d.b.Stats.Deferred)
	}
	return d, h
}

// drainOne receives message 1 and checks that nothing is left.
func (d *duo) drainOne() {
	d.t.Helper()
	d.recv(1, 40_000)
	d.run()
	d.atRest()
}

// S-DEF-09, S-DEF-08: the target hears that a message was cancelled when it asks for it. Its receive goes
// back, and takes the next message.
func TestDeferredCancelled(t *testing.T) {
	d, _ := deferredOne(t, nil)
	if _, ok := d.a.CancelSend(0, uint64(2)); !ok {
		t.Fatal("not cancelled")
	}
	d.run()
	if e := d.a.events[len(d.a.events)-1]; e.Cause != Cancelled || e.Unknown {
		t.Errorf("ended with %v, unknown %v", e.Cause, e.Unknown)
	}
	d.recv(2, 5000)
	d.run()
	if len(d.b.events) != 0 {
		t.Fatalf("event %v", d.b.events[0].Cause)
	}
	d.send(2, 100, false)
	d.run()
	if len(d.b.events) != 1 || d.b.events[0].Len != 100 {
		t.Errorf("%d events", len(d.b.events))
	}
	d.drainOne()
}

// A deferred message that is too long for its receive is truncated, and succeeds for its sender.
func TestDeferredTruncated(t *testing.T) {
	d, _ := deferredOne(t, nil)
	d.recv(2, 1500)
	d.run()
	if e := d.b.events[0]; e.Cause != Truncated || e.Len != 1500 || e.OverLen != 1500 {
		t.Errorf("%v, %d bytes and %d over", e.Cause, e.Len, e.OverLen)
	}
	d.sent(2)
	d.drainOne()
}

// R-TAG-08: a peek finds a deferred message, reserves it or drops it. Dropped, it is sent all the same.
func TestDeferredLooks(t *testing.T) {
	for _, look := range []Look{LookPeek, LookPeekClaim, LookPeekDiscard, LookClaimDiscard} {
		d, _ := deferredOne(t, nil)
		see := func(l Look) {
			t.Helper()
			if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Tag: 2, Look: l, Buf: make([]byte, 3000), Context: "look"}); err != nil {
				t.Fatal(err)
			}
			d.run()
		}
		first := look
		if look == LookClaimDiscard {
			first = LookPeekClaim
		}
		see(first)
		if e := d.b.events[0]; e.Cause != OK || e.Len != 3000 {
			t.Errorf("look %d: %v, %d bytes", look, e.Cause, e.Len)
		}
		d.b.events = nil
		switch look {
		case LookPeek:
			d.recv(2, 3000)
			d.run()
			d.received(map[uint64]int{2: 3000})
		case LookPeekClaim:
			see(LookClaim)
			d.received(map[uint64]int{2: 3000})
		case LookClaimDiscard:
			see(LookClaimDiscard)
		}
		d.sent(2)
		d.drainOne()
	}
}

// A deferred message takes its place in a multi-receive buffer.
func TestDeferredIntoMulti(t *testing.T) {
	d := newDuo(t, 3, nil)
	for k := range uint64(12) {
		d.send(0, 5000+int(k), true)
	}
	d.run()
	if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Ignore: ^uint64(0), Multi: true, MinFree: 16, Buf: make([]byte, 1<<17), Context: "m"}); err != nil {
		t.Fatal(err)
	}
	d.run()
	for _, e := range d.b.events {
		if !bytes.Equal(e.Buf[:e.Len], pattern(e.Len)) {
			t.Errorf("%d bytes are wrong", e.Len)
		}
	}
	if len(d.b.events) != 12 || d.b.Stats.Deferred == 0 {
		t.Errorf("%d messages, %d were deferred", len(d.b.events), d.b.Stats.Deferred)
	}
	d.sent(12)
}

// The PDC by which a message was deferred ends in error: the send fails, certainly without effect, and its
// receive goes back.
func TestDeferredPDCGone(t *testing.T) {
	for _, offered := range []bool{false, true} {
		d, _ := deferredOne(t, nil)
		if offered {
			d.recv(2, 3000) // the RTR is not sent yet
		}
		d.a.PDCGone(20, Aborted)
		d.a.PDCGone(10, Aborted)
		d.b.PDCGone(10, TimedOut)
		d.run()
		if e := d.a.events[len(d.a.events)-1]; e.Cause != Aborted || e.Unknown {
			t.Errorf("ended with %v, unknown %v", e.Cause, e.Unknown)
		}
		if len(d.b.events) != 0 || d.b.deferrals.n != 0 {
			t.Errorf("%d events, %d offers", len(d.b.events), d.b.deferrals.n)
		}
		if offered && !d.b.CancelRecv(0, uint64(2)) {
			t.Error("the receive did not go back")
		}
		d.drainOne()
	}
}

// A target may die with the answer to a part of a message, which it had received, and its next life defer
// a late copy and ask for it. That life has the header alone; nobody knows what the former one had (F12).
func TestRTROfAnotherLifeProvesNothing(t *testing.T) {
	d := newDuo(t, 1, func(c *Config) { c.UnexpectedBytes = 32 << 10 })
	d.send(1, 32<<10, false)
	d.run()
	d.a.supports[2] = supportYes
	h := d.send(2, 3000, false)
	_, m := d.a.lookup(h)
	d.a.waiting = nil
	src := d.a.src
	src.Now = d.now
	n := 0
	for p, ok := d.a.Peek(h, 1024); ok; p, ok = d.a.Peek(h, 1024) {
		d.b.Request(&src, wire.NextReqStd, d.a.AppendPiece(nil, p))
		n++
	}
	d.recv(2, 3000)
	for m.restart == 0 {
		d.step(d.b)
	}
	for range n - 1 {
		d.a.Answered(h, nil)
	}
	d.a.Failed(h, Aborted, wire.NackInvDPDCID)
	d.step(d.a)
	if e := d.a.events[len(d.a.events)-1]; e.Context != uint64(2) || e.Cause != Aborted || !e.Unknown {
		t.Errorf("send %v ended with %v, unknown %v", e.Context, e.Cause, e.Unknown)
	}
}

// A PDC that is closed in order ends nothing.
func TestDeferredPDCClosed(t *testing.T) {
	d, _ := deferredOne(t, nil)
	d.a.PDCGone(10, Closed)
	d.b.PDCGone(10, Closed)
	d.recv(2, 3000)
	d.run()
	d.received(map[uint64]int{2: 3000})
	d.sent(2)
	d.drainOne()
}

// Everything of a peer or an endpoint ends what is deferred.
func TestDeferredEnds(t *testing.T) {
	for name, do := range map[string]func(d *duo){
		"peer":     func(d *duo) { d.a.CancelPeer(2); d.b.CancelPeer(1) },
		"gone":     func(d *duo) { d.a.PeerGone(2, TimedOut); d.b.CancelPeer(1) },
		"endpoint": func(d *duo) { d.a.CloseEndpoint(0); d.b.CloseEndpoint(0) },
		"all":      func(d *duo) { d.a.CancelAll(); d.b.CancelAll() },
		"end":      func(d *duo) { d.a.End(); d.b.End() },
	} {
		for _, state := range []string{"deferred", "offered", "asked", "claimed"} {
			d, _ := deferredOne(t, nil)
			switch state {
			case "offered":
				d.recv(2, 3000)
			case "asked":
				d.recv(2, 3000)
				for range 20 {
					d.step(d.b)
				}
			case "claimed":
				if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Tag: 2, Look: LookPeekClaim, Context: "c"}); err != nil {
					t.Fatal(err)
				}
			}
			do(d)
			d.b.CancelRecv(0, uint64(2))
			d.run()
			if n := len(d.a.tokens) + d.b.deferrals.n + d.a.numSends + d.b.numSends; n != 0 {
				t.Errorf("%s, %s: %d tokens, %d offers, %d and %d sends", name, state, len(d.a.tokens), d.b.deferrals.n, d.a.numSends, d.b.numSends)
			}
			for _, ev := range d.b.events {
				if ev.Kind == EvTRecv && ev.Cause == OK && ev.Context == uint64(2) {
					t.Errorf("%s, %s: the receive succeeded", name, state)
				}
			}
		}
	}
}

// S-DEF-08: a receive goes back if its message does not come, and the message is sent anew if that is
// still possible.
func TestDeferredNotRestarted(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		d := newDuo(t, 1, func(c *Config) { c.UnexpectedBytes = 32 << 10 })
		d.send(1, 32<<10, false)
		d.run()
		h := d.send(2, 3000, ordered)
		d.run()
		d.recv(2, 3000)
		for range 30 { // the RTR goes, the answer to it does not
			d.step(d.b)
		}
		if d.a.phaseOf(h) != phaseReady {
			t.Fatal("the message is not to be sent again")
		}
		for range 8 {
			d.now += 20 * time.Second
			d.b.Advance(d.now)
		}
		if d.b.deferrals.n != 0 || d.b.Stats.Expired != 1 {
			t.Fatalf("%d offers, %d expired", d.b.deferrals.n, d.b.Stats.Expired)
		}
		d.run()
		if ordered {
			if e := d.a.events[len(d.a.events)-1]; e.Cause != Rejected || e.RC != wire.RCUndeliverable {
				t.Errorf("an ordered message ended with %v, %v", e.Cause, e.RC)
			}
			continue
		}
		d.received(map[uint64]int{2: 3000})
		d.sent(2)
		d.drainOne()
	}
}

func (s *SES) phaseOf(h Handle) phase {
	_, m := s.lookup(h)
	return m.phase
}

// S-DEF-04: a message that stays deferred for RNRTimeout ends, if there is one.
func TestDeferredForTooLong(t *testing.T) {
	d, _ := deferredOne(t, func(c *Config) { c.RNRTimeout = 3 * time.Second })
	d.now += 2 * time.Second
	d.run()
	if len(d.a.events) != 1 {
		t.Fatalf("%d events", len(d.a.events))
	}
	d.now += 2 * time.Second
	d.run()
	if e := d.a.events[len(d.a.events)-1]; e.Cause != NotReady || e.Unknown {
		t.Errorf("ended with %v, unknown %v", e.Cause, e.Unknown)
	}
}

// S-DEF-62, T27: no RTR goes to a source that may be forged. S-DEF-09: an RTR
// for a message that is not deferred, or from another peer, changes nothing.
func TestDeferredForgeries(t *testing.T) {
	d, h := deferredOne(t, nil)
	g := newRig(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 32<<10, 1 })
	g.mate.deferMin, g.mate.longMin = 1, 1
	g.mate.tokens, g.mate.supports = map[uint16]*send{}, map[uint32]support{0: supportYes}
	forged := srcA
	forged.Unproven = true
	pkts := g.tagged(1, pattern(40_000), 8192)
	g.want(forged, pkts[0], "response OK overflow 0 gtd")
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 40_000), Context: "r"})
	if g.numSends != 0 {
		t.Error("an RTR goes to a source that may be forged")
	}
	g.Proven(forged.Peer)
	if g.Advance(time.Second); g.numSends != 1 {
		t.Error("no RTR goes to a source that is proven")
	}
	rtr := func(peer uint32, token uint64, job uint32) string {
		r := wire.ReqStd{Opcode: wire.OpDeferrableRTR, Flags: wire.SESREL | single, JobID: job, Match: token<<32 | token}
		return answer(d.a.Request(&Source{Peer: peer, PDC: 77}, wire.NextReqStd, r.Append(nil)))
	}
	_, m := d.a.lookup(h)
	own, _ := m.hdr.RestartTokens()
	for _, c := range []struct {
		peer  uint32
		token uint64
		job   uint32
	}{{3, uint64(own), m.hdr.JobID}, {2, uint64(own) + 1, m.hdr.JobID}, {2, uint64(own), m.hdr.JobID + 1}, {2, 0, m.hdr.JobID}, {2, uint64(own) | 1<<16, m.hdr.JobID}} {
		if got := rtr(c.peer, c.token, c.job); got != "response UNDELIVERABLE 0 gtd" {
			t.Errorf("RTR of peer %d with token %d: %s", c.peer, c.token, got)
		}
	}
	if d.a.phaseOf(h) != phaseDeferred {
		t.Error("a forged RTR was heeded")
	}
	// A restart that nobody asked for, or that differs from what was deferred.
	d.recv(2, 3000)
	for _, change := range []func(*wire.ReqStd){
		func(r *wire.ReqStd) { r.SetRestartTokens(9, 9) },
		func(r *wire.ReqStd) { r.ReqLen-- },
		func(r *wire.ReqStd) { r.Match++ },
		func(r *wire.ReqStd) { r.SetRestartTokens(own, own+1) },
	} {
		r := m.hdr
		r.Flags = wire.SESREL | wire.SESSOM
		r.SetRestartTokens(own, own)
		r.MsgID = 9
		change(&r)
		if got := answer(d.b.Request(&Source{Peer: 1, PDC: 10}, wire.NextReqStd, append(r.Append(nil), make([]byte, 1024)...))); got != "response UNDELIVERABLE 0 gtd" {
			t.Fatalf("restart: %s", got)
		}
		if i, x := d.b.findIn(10, 9); x != nil {
			d.b.forget(i, x)
		}
	}
	d.run()
	d.received(map[uint64]int{2: 3000})
	d.sent(2)
	d.drainOne()
}

// S-DEF-10: headers have a limit of their own. Beyond it a message is refused until there is one.
func TestDeferredHeadersAreBounded(t *testing.T) {
	d := newDuo(t, 5, func(c *Config) { c.UnexpectedBytes, c.UnexpectedMsgs = 32<<10, 8 })
	for k := range uint64(20) {
		d.send(k, 4000, false)
	}
	for range 5000 {
		d.now += 100 * time.Microsecond
		d.step(d.a)
		d.step(d.b)
		if n := d.b.kept + d.b.deferrals.n; n > 8 {
			t.Fatalf("%d headers are kept", n)
		}
	}
	want := map[uint64]int{}
	for k := range uint64(20) {
		want[k] = 4000
		d.recv(k, 4000)
	}
	d.run()
	d.received(want)
	d.sent(20)
	d.atRest()
}

// A message that is cancelled after its target has asked for it does not keep its receive.
func TestDeferredCancelledWhenAsked(t *testing.T) {
	for _, end := range []func(d *duo){
		func(d *duo) { d.a.CancelSend(0, uint64(2)) },
		func(d *duo) { d.a.CloseEndpoint(0) },
	} {
		d, h := deferredOne(t, nil)
		d.recv(2, 3000)
		for d.a.phaseOf(h) == phaseDeferred {
			d.step(d.b)
		}
		end(d)
		d.run()
		if d.b.deferrals.n != 0 || len(d.b.events) != 0 || !d.b.CancelRecv(0, uint64(2)) {
			t.Errorf("%d offers, %d events, or the receive did not go back", d.b.deferrals.n, len(d.b.events))
		}
		d.drainOne()
	}
}

// The same if the RTR comes before all of the first attempt is answered.
func TestDeferredCancelledWhenAskedEarly(t *testing.T) {
	d := newDuo(t, 1, func(c *Config) { c.UnexpectedBytes = 32 << 10 })
	d.send(1, 32<<10, false)
	d.run()
	h := d.send(2, 3000, false)
	for len(d.a.waiting) > 0 {
		d.step(d.a)
	}
	for d.b.Stats.Deferred == 0 {
		d.step(d.a)
	}
	_, m := d.a.lookup(h)
	late := d.a.rud
	d.a.rud = nil
	d.recv(2, 3000)
	for m.restart == 0 {
		d.step(d.b)
	}
	d.a.rud = late
	d.a.CloseEndpoint(0)
	d.run()
	if e := d.a.events[len(d.a.events)-1]; len(late) == 0 || e.Cause != Cancelled || e.Unknown {
		t.Errorf("ended with %v, unknown %v; %d packets were late", e.Cause, e.Unknown, len(late))
	}
	if d.b.deferrals.n != 0 || !d.b.CancelRecv(0, uint64(2)) {
		t.Error("the receive did not go back")
	}
}

// A message that was cancelled is not forgotten by its target while packets of it are under way: they
// would make a new message, which keeps a receive and never ends.
func TestDeferredCancelledBeforeAsked(t *testing.T) {
	d, _ := deferredOne(t, nil) // so the peer is known to defer, and has no room
	h := d.send(3, 9000, false)
	for p, ok := d.a.Peek(h, 1024); ok; p, ok = d.a.Peek(h, 1024) {
		d.a.AppendPiece(nil, p)
		d.a.rud = append(d.a.rud, carried{h, p})
	}
	late := d.a.rud[1:]
	d.a.rud, d.a.waiting = d.a.rud[:1:1], nil
	d.a.CloseEndpoint(0)
	for len(d.a.rud) > 0 {
		d.step(d.a)
	}
	if d.b.Stats.Deferred != 2 {
		t.Fatal("it was not deferred")
	}
	d.recv(3, 9000)
	for range 1000 { // the RTR, and its answer
		d.now += 100 * time.Microsecond
		d.step(d.b)
	}
	d.a.rud = late
	d.run()
	if _, m := d.a.lookup(h); m != nil {
		t.Error("the send has not ended")
	} else if e := d.a.events[len(d.a.events)-1]; e.Cause != Cancelled || e.Unknown {
		t.Errorf("ended with %v, unknown %v", e.Cause, e.Unknown)
	}
	if len(d.b.events) != 0 || !d.b.CancelRecv(0, uint64(3)) {
		t.Errorf("%d events, or the receive did not go back", len(d.b.events))
	}
}

// S-DEF-63: a peer that does not know RTRs gets ordinary sends, which it refuses until it has room.
func TestDeferredNotByEverybody(t *testing.T) {
	d := newDuo(t, 1, func(c *Config) { c.UnexpectedBytes = 32 << 10 })
	d.send(1, 32<<10, false)
	d.run()
	h := d.send(2, 3000, false)
	for len(d.a.waiting) > 0 || d.a.supports[2] != supportAsked {
		d.step(d.a)
	}
	for len(d.a.ready) > 0 || len(d.a.waiting) > 0 {
		d.step(d.a)
	}
	_, m := d.a.lookup(h)
	for i, c := range d.a.rud {
		if _, q := d.a.lookup(c.h); q.kind == evNotice {
			d.a.Answered(c.h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp, MsgID: q.hdr.MsgID})
			d.a.rud = slices.Delete(d.a.rud, i, i+1)
			break
		}
	}
	if d.a.supports[2] != supportNo || m.mayDefer() {
		t.Errorf("support %d, may be deferred: %v", d.a.supports[2], m.mayDefer())
	}
	d.send(3, 3000, true)
	d.recv(1, 40_000)
	d.recv(2, 3000)
	d.recv(3, 3000)
	d.run()
	d.received(map[uint64]int{1: 32 << 10, 2: 3000, 3: 3000})
	d.sent(3)
	d.atRest()
}

// S-DEF-63: another program may have the address of a peer that knew RTRs. What it says it does not know is sent without.
func TestDeferredUnlearnt(t *testing.T) {
	d := newDuo(t, 1, nil)
	d.a.supports[2] = supportYes
	h := d.send(1, 3000, false)
	o := d.send(2, 3000, true)
	for _, h := range d.a.waiting {
		for p, ok := d.a.Peek(h, 1024); ok; p, ok = d.a.Peek(h, 1024) {
			d.a.AppendPiece(nil, p)
			d.a.rud = append(d.a.rud, carried{h, p})
		}
	}
	d.a.waiting = nil
	for _, c := range d.a.rud {
		d.a.Answered(c.h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUnsupportedOp})
	}
	d.a.rud = nil
	_, m := d.a.lookup(h)
	if m == nil {
		t.Fatal("an unordered message does not go again")
	}
	if m.mayDefer() || d.a.supports[2] != supportNo {
		t.Errorf("support %d, may be deferred: %v", d.a.supports[2], m.mayDefer())
	}
	if _, m := d.a.lookup(o); m != nil {
		t.Error("an ordered message goes again, though later ones have passed it")
	}
	d.recv(1, 3000)
	d.run()
	d.received(map[uint64]int{1: 3000})
	d.a.events = nil
	d.atRest()
}

// F9, T30: what follows of a deferred message, a MSG_ERROR or a packet that cannot be right, harms
// nothing. If its initiator gave it up, the target hears so when it asks.
func TestDeferredThenNonsense(t *testing.T) {
	for _, asked := range []bool{false, true} {
		for name, change := range map[string]func(*wire.ReqStd){
			"MSG_ERROR":           func(r *wire.ReqStd) { r.Opcode, r.BufOff, r.MsgOff = wire.OpMsgError, 0, 1024 },
			"MSG_ERROR of all":    func(r *wire.ReqStd) { r.Opcode, r.Flags = wire.OpMsgError, r.Flags|wire.SESSOM },
			"outside the message": func(r *wire.ReqStd) { r.MsgOff, r.PayloadLen = 1<<20, 100 },
			"IE":                  func(r *wire.ReqStd) { r.MsgOff, r.PayloadLen, r.Flags = 1024, 100, r.Flags|wire.SESIE },
			"ordinary":            func(r *wire.ReqStd) { r.Opcode, r.BufOff, r.MsgOff, r.PayloadLen = wire.OpTaggedSend, 0, 1024, 100 },
			"the end":             func(r *wire.ReqStd) { r.MsgOff, r.Flags = 1024, r.Flags|wire.SESEOM },
		} {
			t.Run(fmt.Sprint(name, asked), func(t *testing.T) {
				d, h := deferredOne(t, nil)
				if asked {
					d.recv(2, 3000)
				}
				_, m := d.a.lookup(h)
				r := m.hdr
				r.Flags = wire.SESREL
				change(&r)
				if res := d.b.Request(&d.a.src, wire.NextReqStd, append(r.Append(nil), make([]byte, 100)...)); res.Bad || res.Nack != 0 {
					t.Errorf("answer %q", answer(res))
				}
				if !asked {
					d.recv(2, 3000)
				}
				d.run()
				d.received(map[uint64]int{2: 3000})
				d.sent(2)
			})
		}
	}
}

// TestDeferredAreNotTried shows that a message which was refused is tried again as soon beside many that their target has deferred,
// as alone: those are not tried.
func TestDeferredAreNotTried(t *testing.T) {
	g := newRig(t, func(c *Config) { c.RNRTimeout, c.MaxSends = time.Minute, maxSends })
	for range 20000 {
		h := g.SES.mustSend(t, 0)
		_, m := g.lookup(h)
		g.permit(m)
		drain(g.SES, h, 64)
		g.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, List: wire.ListOverflow, RC: wire.RCOK, MsgID: m.hdr.MsgID})
		if m.phase != phaseDeferred {
			t.Fatalf("phase %d", m.phase)
		}
	}
	h := g.SES.mustSend(t, 0)
	_, m := g.lookup(h)
	if w := g.backoff(m, backoffSteps); w > 2*backoffMin<<backoffSteps {
		t.Errorf("it waits for %v", w)
	}
	if g.nextRetry != time.Minute {
		t.Errorf("the first deferred one is given up at %v", g.nextRetry)
	}
	g.CancelAll()
}
