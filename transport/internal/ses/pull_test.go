package ses

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// An announcement is a rendezvous send of another implementation than this one.
type announcement struct {
	tag     uint64
	body    []byte
	eager   int // bytes of it that come with it, in packets of 1000
	key     uint64
	off     uint64 // of the message in the memory
	untag   bool
	data    uint64 // header data, if not 0
	msgID   uint16
	flags   wire.SESFlags
	readPID uint16
}

// packets returns the packets of the announcement to s.
func (a announcement) packets(s *SES) (out [][]byte) {
	r := wire.ReqStd{Opcode: wire.OpRendezvousTSend, MsgID: max(a.msgID, 900), JobID: s.cfg.JobID, PIDonFEP: s.cfg.PIDonFEP, RI: s.cfg.RI, Initiator: 16,
		Match: a.tag, ReqLen: uint32(len(a.body)), HeaderData: a.data}
	if a.untag {
		r.Opcode, r.Match = wire.OpRendezvousSend, 0
	}
	for off := 0; off == 0 || off < a.eager; off += 1000 {
		n := min(1000, a.eager-off)
		r.Flags = wire.SESREL | a.flags
		if off+n == a.eager {
			r.Flags |= wire.SESEOM
		}
		if off == 0 {
			if r.Flags |= wire.SESSOM; a.data != 0 {
				r.Flags |= wire.SESHD
			}
		} else {
			r.MsgOff, r.PayloadLen = uint32(off), uint16(n)
		}
		b := r.Append(nil)
		if off == 0 {
			x := wire.Rendezvous{EagerLen: uint32(a.eager), ReadPIDonFEP: max(a.readPID, s.cfg.PIDonFEP), ReadRI: s.cfg.RI, ReadOff: a.off, ReadMatch: a.key}
			b = x.Append(b)
		}
		out = append(out, append(b, a.body[off:off+n]...))
	}
	return out
}

// lend makes the body memory of a.
func (d *duo) lend(a announcement) *Region {
	d.t.Helper()
	g, err := d.a.Register(RegionConfig{Key: a.key, Buf: append(make([]byte, a.off), a.body...), Access: RemoteRead, Endpoint: AllEndpoints})
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

// announce brings the packets of an announcement of a to b, and returns the answers.
func (d *duo) announce(a announcement, src Source) (answers []string) {
	d.t.Helper()
	src.Now = d.now
	for _, p := range a.packets(d.b.SES) {
		answers = append(answers, answer(d.b.Request(&src, wire.NextReqStd, p)))
	}
	return answers
}

func (d *duo) wantAnswers(got []string, want ...string) {
	d.t.Helper()
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			d.t.Fatalf("answers %q, want %q", got, want)
		}
	}
}

// served checks that a has served as many reads, all of them with a beginning and an end.
func (d *duo) served() {
	d.t.Helper()
	if d.a.numServes != 0 || d.b.numSends != 0 {
		d.t.Errorf("%d reads are served, %d sends of the target left", d.a.numServes, d.b.numSends)
	}
}

// S-RDV-01, S-RDV-03, S-RDV-04: the eager part is placed, the rest read, whatever there is of either, and in whatever order
// it comes.
func TestPullMatched(t *testing.T) {
	for _, c := range []struct{ n, eager int }{{0, 0}, {1, 0}, {1, 1}, {5000, 0}, {5000, 1}, {5000, 1000}, {5000, 3500}, {5000, 4999}, {5000, 5000}, {300_000, 1000}} {
		for seed := range uint64(8) {
			for _, untag := range []bool{false, true} {
				d := newDuo(t, seed, nil)
				a := announcement{tag: 7, body: pattern(c.n), eager: c.eager, key: 5, off: 64, untag: untag, data: seed % 2 * 99}
				if c.eager < c.n {
					d.lend(a)
				}
				buf := make([]byte, c.n+10)
				op := Op{Kind: EvTRecv, Tag: 7, Buf: buf, Context: "r"}
				if untag {
					op.Kind = EvRecv
				}
				if seed%4 == 3 {
					op.Buf, op.Iov = nil, [][]byte{buf[:1], buf[1:1], buf[1 : 1+c.n/2], buf[1+c.n/2:]}
				}
				if err := d.b.Recv(d.now, &op); err != nil {
					t.Fatal(err)
				}
				pk := a.packets(d.b.SES)
				d.rng.Shuffle(len(pk), func(i, j int) { pk[i], pk[j] = pk[j], pk[i] })
				for _, p := range pk {
					if got := answer(d.b.Request(&Source{Peer: 1, PDC: 10, Now: d.now}, wire.NextReqStd, p)); got != fmt.Sprintf("default OK %d", c.n) {
						t.Fatalf("%d of %d: answer %q", c.eager, c.n, got)
					}
				}
				d.run()
				if len(d.b.events) != 1 || d.b.events[0].Cause != OK || d.b.events[0].Len != c.n || d.b.events[0].HasData != (a.data != 0) || d.b.events[0].Data != a.data {
					t.Fatalf("%d of %d: %+v", c.eager, c.n, d.b.events)
				}
				wantBytes(t, buf[:c.n], a.body)
				d.served()
				d.atRest()
			}
		}
	}
}

// What a target reads, and by which names.
func TestPullByTheLetter(t *testing.T) {
	for _, c := range []struct {
		eager int
		late  bool // its receive comes later: the eager part is not kept
		from  uint64
	}{{0, false, 0}, {700, false, 700}, {700, true, 0}, {4999, false, 4999}} {
		g := newRig(t)
		a := announcement{tag: 7, body: pattern(5000), eager: c.eager, key: 0x55, off: 1 << 40}
		var pkts [][]byte
		for k, b := range a.packets(g.SES) {
			if k == 0 { // other names than those of the message
				x := wire.Rendezvous{EagerLen: uint32(c.eager), ReadGen: 7, ReadPIDonFEP: 0x123, ReadRI: 0x456, ReadOff: a.off, ReadMatch: a.key}
				b = append(x.Append(b[:wire.ReqStdLen:wire.ReqStdLen]), b[wire.ReqStdLen+wire.RendezvousLen:]...)
			}
			pkts = append(pkts, b)
		}
		recv := func() { g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"}) }
		if !c.late {
			recv()
		}
		for k, b := range pkts {
			if g.deliver(srcB, b); k < len(pkts)-1 {
				if _, ok := g.Resend(); ok {
					t.Fatal("the rest is read before the eager part is there")
				}
			}
		}
		if c.late {
			recv()
		}
		h := g.reads()
		if peer, _, _ := g.Info(h); peer != srcB.Peer {
			t.Errorf("peer %d is asked", peer)
		}
		p, _ := g.Peek(h, 1024)
		r, data := parse(t, g.AppendPiece(nil, p))
		// S-RDV-02: the names of the extension, and the JobID of the message. S-RDV-03: the offset is that
		// of byte 0.
		want := wire.ReqStd{Opcode: wire.OpRead, Flags: r.Flags, MsgID: r.MsgID, Gen: 7, JobID: g.cfg.JobID, PIDonFEP: 0x123, RI: 0x456,
			BufOff: 1<<40 + c.from, Initiator: 16, Match: 0x55, HeaderData: r.HeaderData, ReqLen: uint32(5000 - c.from)}
		if r != want || r.Flags&wire.SESREL == 0 || len(data) != 0 {
			t.Errorf("eager %d, late %v: %v\nwant %v", c.eager, c.late, &r, &want)
		}
	}
	// S-RDV-04: nothing is read of a message that is all eager part.
	for _, backwards := range []bool{false, true} {
		g := newRig(t)
		a := announcement{tag: 7, body: pattern(2500), eager: 2500, key: 0x55}
		g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 2500), Context: "r"})
		pkts := a.packets(g.SES)
		if backwards {
			slices.Reverse(pkts)
		}
		for _, b := range pkts {
			g.want(srcB, b, "default OK 2500")
		}
		g.wantEvent(EvTRecv, OK, "r", 2500)
		g.Advance(time.Second)
		if _, ok := g.Resend(); ok {
			t.Error("the message is read")
		}
		g.rest()
	}
}

// S-RDV-07: without a receive the header is kept, and all of it is read later.
func TestPullAnnounced(t *testing.T) {
	for _, eager := range []int{0, 700, 3500} {
		d := newDuo(t, 1, nil)
		a := announcement{tag: 7, body: pattern(5000), eager: eager, key: 5, data: 4}
		d.lend(a)
		d.wantAnswers(d.announce(a, Source{Peer: 1, PDC: 10}), "response OK overflow 0 gtd")
		if n, b := d.b.Unexpected(); n != 1 || b != 0 || d.b.Stats.Announced != 1 {
			t.Fatalf("%d messages, %d bytes", n, b)
		}
		d.run()
		d.recv(8, 5000)
		d.recv(7, 5000)
		d.run()
		d.received(map[uint64]int{7: 5000})
		d.b.CancelRecv(0, uint64(8))
		d.run()
		d.atRest()
	}
}

// Packets of the eager part that come when all was read begin nothing, and no receive is theirs. Others with
// the id of the message are of another one.
func TestPullEagerPartComesLate(t *testing.T) {
	for _, late := range []bool{true, false} {
		d := newDuo(t, 1, nil)
		a := announcement{tag: 7, body: pattern(5000), eager: 2500, key: 5}
		d.lend(a)
		pk := a.packets(d.b.SES)
		ask := func(k int, want string) {
			t.Helper()
			if got := answer(d.b.Request(&Source{Peer: 1, PDC: 10, Now: d.now}, wire.NextReqStd, pk[k])); got != want {
				t.Fatalf("packet %d: answer %q, want %q", k, got, want)
			}
		}
		read := func() {
			t.Helper()
			ask(0, "response OK overflow 0 gtd")
			d.recv(7, 5000)
			d.run()
			d.received(map[uint64]int{7: 5000})
		}
		if read(); !late {
			read()
			ask(1, "default NULL 0")
			ask(2, "default NULL 0")
			d.atRest()
			continue
		}
		d.recv(7, 5000)
		ask(2, "default NULL 0")
		ask(1, "default NULL 0")
		if !d.b.CancelRecv(0, uint64(7)) {
			t.Error("a late packet has a receive")
		}
		d.run()
		d.atRest()
	}
}

// A later packet of the eager part may come first. Then the message has its receive, or it comes again.
func TestPullWithoutItsFirst(t *testing.T) {
	d := newDuo(t, 1, nil)
	a := announcement{tag: 7, body: pattern(5000), eager: 2500, key: 5}
	d.lend(a)
	pk := a.packets(d.b.SES)
	src := &Source{Peer: 1, PDC: 10}
	if got := answer(d.b.Request(src, wire.NextReqStd, pk[2])); got != "nack 09" {
		t.Fatal(got)
	}
	d.recv(7, 5000)
	for _, k := range []int{2, 0, 1} {
		if got := answer(d.b.Request(src, wire.NextReqStd, pk[k])); got != "default OK 5000" {
			t.Fatal(got)
		}
	}
	d.run()
	d.received(map[uint64]int{7: 5000})
	d.atRest()
}

// S-MAT-08: a message that is too long is truncated, and all of it is read, or it is refused.
func TestPullTruncated(t *testing.T) {
	for _, eager := range []int{0, 1000, 3500} {
		for _, late := range []bool{false, true} {
			for _, room := range []int{0, 500, 2000, 4000} {
				for _, parts := range []bool{false, true} {
					d := newDuo(t, 1, nil)
					a := announcement{tag: 7, body: pattern(5000), eager: eager, key: 5}
					d.lend(a)
					buf := make([]byte, room)
					op := Op{Kind: EvTRecv, Tag: 7, Buf: buf, Context: "r"}
					if parts {
						op.Buf, op.Iov = nil, [][]byte{buf[:room/3], buf[room/3:]}
					}
					if late {
						d.wantAnswers(d.announce(a, Source{Peer: 1, PDC: 10}), "response OK overflow 0 gtd")
					}
					if err := d.b.Recv(d.now, &op); err != nil {
						t.Fatal(err)
					}
					if !late {
						d.wantAnswers(d.announce(a, Source{Peer: 1, PDC: 10}), fmt.Sprintf("response OK %d gtd", room))
					}
					d.run()
					if len(d.b.events) != 1 || d.b.events[0].Cause != Truncated || d.b.events[0].Len != room || int(d.b.events[0].OverLen) != 5000-room {
						t.Fatalf("%+v", d.b.events)
					}
					wantBytes(t, buf, a.body[:room])
					d.served()
					d.atRest()
				}
			}
		}
	}
	for _, eager := range []int{0, 3500} {
		d := newDuo(t, 1, func(c *Config) { c.RefuseTooLong = true })
		a := announcement{tag: 7, body: pattern(5000), eager: eager, key: 5}
		d.recv(7, 4000)
		for _, got := range d.announce(a, Source{Peer: 1, PDC: 10}) {
			if got != "response TOO_LONG 0 gtd" {
				t.Fatal(got)
			}
		}
		d.run()
		if len(d.b.events) != 1 || d.b.events[0].Cause != Truncated || d.b.events[0].RC != wire.RCTooLong {
			t.Fatalf("%+v", d.b.events)
		}
	}
}

// R-TAG-08: looks see an announced message. What is discarded is read nevertheless, to nowhere (S-RDV-05).
func TestPullLooks(t *testing.T) {
	for _, look := range []Look{LookPeek, LookPeekClaim, LookPeekDiscard, LookClaimDiscard} {
		d := newDuo(t, 1, nil)
		a := announcement{tag: 2, body: pattern(3000), key: 5}
		d.lend(a)
		d.announce(a, Source{Peer: 1, PDC: 10})
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
		before := d.a.serves.used
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
		case LookPeekDiscard:
			before--
		}
		if d.a.serves.used == before {
			t.Errorf("look %d: not read", look)
		}
		d.served()
		d.atRest()
	}
}

// R-MSG-12: rendezvous sends take their places in a multi-receive buffer.
func TestPullIntoMulti(t *testing.T) {
	d := newDuo(t, 3, nil)
	want := map[int]bool{}
	post := func() {
		if err := d.b.Recv(d.now, &Op{Kind: EvTRecv, Ignore: ^uint64(0), Multi: true, MinFree: 16, Buf: make([]byte, 1<<17), Context: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 12 {
		if k == 6 {
			post()
		}
		n := 5001 + 3*k
		want[n] = true
		a := announcement{body: pattern(n), key: uint64(5 + k), eager: k * 100, msgID: uint16(1000 + k)}
		d.lend(a)
		d.announce(a, Source{Peer: 1, PDC: 10})
	}
	d.run()
	for _, e := range d.b.events {
		if !bytes.Equal(e.Buf[:e.Len], pattern(e.Len)) || !want[e.Len] {
			t.Errorf("%d bytes are wrong", e.Len)
		}
		delete(want, e.Len)
	}
	if len(want) != 0 {
		t.Errorf("%d messages did not come", len(want))
	}
	d.served()
}

// What the initiator does not offer, or not any more, cannot be read. The receive goes back to its place, and
// takes the next message.
func TestPullRefused(t *testing.T) {
	for name, change := range map[string]func(d *duo, a *announcement){
		"key":     func(_ *duo, a *announcement) { a.key++ },
		"bounds":  func(_ *duo, a *announcement) { a.off += 1 << 40 },
		"nowhere": func(_ *duo, a *announcement) { a.readPID = 0xfff },
		"closed":  func(d *duo, a *announcement) { d.a.Deregister(d.a.lookRegion(a.key, 0)) },
	} {
		for _, late := range []bool{false, true} {
			d := newDuo(t, 1, nil)
			a := announcement{tag: 2, body: pattern(3000), eager: 500, key: 5}
			d.lend(a)
			change(d, &a)
			if late {
				d.announce(a, Source{Peer: 1, PDC: 10})
			}
			d.recv(2, 3000)
			if !late {
				d.announce(a, Source{Peer: 1, PDC: 10})
			}
			d.run()
			if len(d.b.events) != 0 {
				t.Fatalf("%s: %v", name, d.b.events[0].Cause)
			}
			d.send(2, 100, false)
			d.run()
			d.received(map[uint64]int{2: 100})
			d.sent(1)
			d.served()
			d.atRest()
		}
	}
}

// midPull is b in the middle of reading a message of 5000 bytes from peer 1 by PDC 7, of which 1000 came with
// it.
func midPull(t *testing.T, pieces int) (*rig, Handle, *wire.RspData) {
	g := newRig(t)
	a := announcement{tag: 7, body: pattern(5000), eager: 1000, key: 5}
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
	g.want(srcA, a.packets(g.SES)[0], "default OK 5000")
	h := g.reads()
	var r wire.ReqStd
	for range pieces {
		p, ok := g.Peek(h, 1000)
		if !ok {
			t.Fatal("it does not ask")
		}
		if _, err := r.Parse(g.AppendPiece(nil, p)); err != nil || r.Opcode != wire.OpRead || r.Match != 5 || r.BufOff != 1000 || r.ReqLen != 4000 || r.MsgID == 0 {
			t.Fatal(r, err)
		}
		g.Answered(h, nil)
	}
	return g, h, &wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: r.MsgID, ReadMsgID: r.MsgID, JobID: r.JobID, ModLen: 4000}
}

// reads returns the read that is to begin, which goes by PDC 7.
func (g *rig) reads() Handle {
	g.t.Helper()
	g.Advance(time.Second)
	h, ok := g.Resend()
	if !ok || !g.Pulls(h) || !g.On(h, 7) {
		g.t.Fatal("nothing is read")
	}
	return h
}

// posted checks that the receive is where messages find it.
func (g *rig) posted(ctx any) {
	g.t.Helper()
	g.quiet()
	if !g.CancelRecv(0, ctx) {
		g.t.Fatal("the receive did not go back")
	}
	g.wantEvent(EvRecv, Cancelled, ctx, 0)
	g.rest()
}

// A read that brings nothing leaves the receive, one that brought a part ends it in error (F9).
func TestPullFails(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(g *rig, h Handle)
		cause Cause
		rc    wire.RC
	}{
		"timed out": {func(g *rig, h Handle) { g.PDCGone(7, TimedOut) }, TimedOut, 0},
		"refused": {func(g *rig, h Handle) {
			g.came(&wire.RspData{Opcode: wire.RspWithData, RC: wire.RCBadMKey, ReadMsgID: g.sends.at(0).hdr.MsgID}, 0, 0)
		}, PeerError, wire.RCBadMKey},
		"idle": {func(g *rig, h Handle) { idle(g) }, TimedOut, 0},
	} {
		for _, came := range []int{0, 1000} {
			g, h, d := midPull(t, 4)
			if came > 0 {
				g.came(d, 0, came)
			}
			c.end(g, h)
			if came == 0 {
				g.posted("r")
				continue
			}
			if e := g.wantEvent(EvTRecv, c.cause, "r", 0); e.RC != c.rc || e.Tag != 7 {
				t.Errorf("%s: %+v", name, e)
			}
			g.came(d, 1000, 1000) // late
			g.rest()
		}
	}
}

func idle(g *rig) {
	for i := range 8 {
		g.Advance(time.Second + time.Duration(i)*20*time.Second)
	}
}

// The receive ends well when every byte has come, and in error when every request of the read is answered, or has
// failed, in whatever order data and answers come; the application has its buffer from then on, and nothing is written to it.
func TestPullWaitsForItsAnswers(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := newRig(t)
		a := announcement{tag: 7, body: pattern(5000), eager: 1000, key: 5}
		buf := make([]byte, 5000)
		g.recv(Recv{Tagged: true, Tag: 7, Buf: buf, Context: "r"})
		g.want(srcA, a.packets(g.SES)[0], "default OK 5000")
		h := g.reads()
		_, m := g.lookup(h)
		id, open, ended := m.hdr.MsgID, 0, false
		for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
			g.AppendPiece(nil, p)
			open++
		}
		steps := []string{"0", "1", "2", "3", "answer", "answer", "answer", "answer"}
		switch seed % 4 {
		case 1:
			steps[4+rng.IntN(4)] = "fail"
		case 2:
			steps[rng.IntN(4)] = "refused"
		case 3:
			steps[rng.IntN(4)] = "0" // a part twice, and another not
		}
		rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		steps = append(steps, "0", "3") // late
		for _, step := range steps {
			before := bytes.Clone(buf)
			d := &wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, ReadMsgID: id, JobID: g.cfg.JobID, ModLen: 4000}
			switch step {
			case "answer":
				if g.Answered(h, nil); !ended {
					open--
				}
			case "fail":
				g.Failed(h, TimedOut, 0)
				open--
			case "refused":
				d.RC = wire.RCBadMKey
				g.came(d, 0, 0)
			default:
				k := int(step[0] - '0')
				d.MsgOff, d.PayloadLen = uint32(k*1000), 1000
				g.Request(&Source{Peer: 1, PDC: 7}, wire.NextRspData, append(d.Append(nil), a.body[1000+k*1000:2000+k*1000]...))
			}
			if ended && !bytes.Equal(before, buf) {
				t.Fatalf("seed %d, %v: %s writes to a buffer that the application has back", seed, steps, step)
			}
			if e := g.Event(); e != nil {
				if ended = true; open != 0 && e.Cause != OK {
					t.Fatalf("seed %d, %v: the receive ends with %v after %s, and %d requests have no answer", seed, steps, e.Cause, step, open)
				}
				if seed%4 == 0 && (e.Cause != OK || !bytes.Equal(buf, a.body)) {
					t.Fatalf("seed %d, %v: the receive ends with %v and wrong bytes", seed, steps, e.Cause)
				}
			}
		}
		if !ended && (seed%4 == 0 || seed%4 == 3) {
			t.Fatalf("seed %d, %v: the receive does not end", seed, steps)
		}
		g.CancelAll()
	}
}

// S-RDV-62: a read that has brought everything ends the message well, whatever becomes of requests without an answer: the
// initiator takes the message for received, and does not offer it any more.
func TestPullHasAll(t *testing.T) {
	for _, c := range []Cause{Aborted, TimedOut, Unreachable} {
		g, h, d := midPull(t, 3)
		p, _ := g.Peek(h, 1000)
		g.AppendPiece(nil, p)
		for off := 0; off < 4000; off += 1000 {
			g.came(d, off, 1000)
		}
		g.wantEvent(EvTRecv, OK, "r", 5000)
		ask := wire.ReqStd{Opcode: wire.OpNoOp, Flags: wire.SESREL | single, MsgID: 78, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Match: 5}
		for _, want := range []string{"response OK 0 gtd", "response OK 0 gtd", "response UNDELIVERABLE 0 gtd"} { // it remembers what it had, for a while
			g.want(srcA, ask.Append(nil), want)
			g.ageHad()
		}
		g.Failed(h, c, 0)
		g.quiet()
		g.rest()
	}
}

// What a target remembers of messages that it had is bounded, whatever it is sent: the latest 4,096 at least, 8,192
// at most.
func TestPullHadIsBounded(t *testing.T) {
	g := newRig(t)
	knows := func(key int) bool {
		ask := wire.ReqStd{Opcode: wire.OpNoOp, Flags: wire.SESREL | single, MsgID: 78, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Match: uint64(key)}
		return answer(g.deliver(srcA, ask.Append(nil))) == "response OK 0 gtd"
	}
	for key := 1; key <= 30_000; key++ {
		g.hasHad(lentKey{srcA.Peer, uint64(key)})
		if n := len(g.had) + len(g.hadOld); n > 8192 {
			t.Fatalf("it remembers %d", n)
		}
		if key%1000 != 0 {
			continue
		}
		for _, back := range []int{0, 1, 2000, 4095} {
			if back < key && !knows(key-back) {
				t.Fatalf("of %d it has forgotten the one %d before the last", key, back)
			}
		}
		if key > 8192 && knows(key-8192) {
			t.Fatalf("of %d it remembers the one 8,192 before the last", key)
		}
	}
}

// What is read is not read once more when it is asked for again.
func TestPullOnce(t *testing.T) {
	g, _, d := midPull(t, 4)
	g.came(d, 0, 1000)
	g.askProven(1)
	g.Advance(2 * time.Second)
	if h, ok := g.Resend(); ok {
		t.Fatalf("a second read %v", h)
	}
	for off := 1000; off < 4000; off += 1000 {
		g.came(d, off, 1000)
	}
	g.wantEvent(EvTRecv, OK, "r", 5000)
	g.rest()
}

// A PDC that ends, because the initiator lost what it knew of it, or because packets are too long for the
// path, is no reason to give up: the read begins anew.
func TestPullBeginsAnew(t *testing.T) {
	for _, c := range []Cause{Aborted, TooBig, NoResource} {
		g, _, d := midPull(t, 4)
		g.came(d, 0, 1000)
		for range maxTransient {
			g.PDCGone(7, c)
			g.quiet()
			h := g.reads()
			for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
				g.AppendPiece(nil, p)
				g.Answered(h, nil)
			}
			_, m := g.lookup(h)
			d.ReadMsgID = m.hdr.MsgID
			g.came(d, 0, 1000)
		}
		g.PDCGone(7, c)
		if e := g.wantEvent(EvTRecv, c, "r", 0); e.RC != 0 {
			t.Errorf("%+v", e)
		}
		g.rest()
	}
}

// S-RDV-60, T27: nothing is read from a source that may be forged. It is asked to prove itself, by an answer that it
// must clear.
func TestPullOfUnproven(t *testing.T) {
	a := announcement{tag: 7, body: pattern(5000), eager: 1000, key: 5}
	src := srcA
	src.Unproven = true
	for _, late := range []bool{false, true} {
		g := newRig(t)
		if late {
			g.want(src, a.packets(g.SES)[0], "response OK overflow 0 gtd")
		}
		g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
		if !late {
			g.want(src, a.packets(g.SES)[0], "response OK 5000 gtd")
		}
		g.Advance(time.Second)
		if _, ok := g.Resend(); ok || g.Idle() {
			t.Fatal("it is read, or forgotten")
		}
		g.Proven(1)
		g.reads()
		g.PDCGone(7, TimedOut)
		g.CancelAll()
	}
}

// S-RDV-60, T15: what a source that may be forged holds is taken from it while another message waits.
func TestPullOfUnprovenIsTakenBack(t *testing.T) {
	g := newRig(t)
	a := announcement{tag: 7, body: pattern(5000), eager: 1000, key: 5}
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
	src := srcA
	src.Unproven = true
	g.want(src, a.packets(g.SES)[0], "response OK 5000 gtd")
	g.Advance(time.Second)
	g.want(srcB, g.tagged(7, pattern(40), 1024)[0], "response OK overflow 40 gtd")
	for i := range 100 {
		g.Advance(time.Second + time.Duration(i)*time.Millisecond)
	}
	g.wantEvent(EvTRecv, OK, "r", 40)
	if g.Stats.Withdrawn != 0 {
		t.Error("what was announced is forgotten")
	}
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "again"})
	g.Proven(1)
	if _, m := g.lookup(g.reads()); m == nil || m.hdr.ReqLen != 5000 {
		t.Error("not all of it is read, though nothing of it is kept")
	}
	g.PDCGone(7, TimedOut)
	g.CancelAll()
}

// S-MAT-04: an announced message keeps its receive from later ones of its peer, however long the proof takes.
func TestPullOfUnprovenKeepsItsPlace(t *testing.T) {
	g := newRig(t)
	a := announcement{tag: 7, body: pattern(5000), key: 5}
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "first"})
	src := srcA
	src.Unproven, src.Ordered = true, true
	g.want(src, a.packets(g.SES)[0], "response OK 5000 gtd")
	g.want(src, g.tagged(7, pattern(40), 1024)[0], "response OK overflow 40 gtd")
	for i := range 500 {
		g.Advance(time.Second + time.Duration(i)*time.Millisecond)
	}
	g.quiet()
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "second"})
	g.wantEvent(EvTRecv, OK, "second", 40)
	g.Proven(1)
	g.reads()
	g.PDCGone(7, TimedOut)
	g.CancelAll()
}

// S-MSC-03, S-RDV-62: the initiator gives up what it has announced, by the key of its memory, by the message id, or by a
// packet with IE.
func TestPullGivenUp(t *testing.T) {
	a := announcement{tag: 7, body: pattern(5000), eager: 500, key: 1<<40 + 5}
	errorOf := func(g *rig, change func(r *wire.ReqStd)) []byte {
		r := wire.ReqStd{Opcode: wire.OpMsgError, MsgID: 77, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Initiator: 16, Match: 7,
			Flags: single | wire.SESIE | wire.SESREL}
		change(&r)
		return r.Append(nil)
	}
	for name, end := range map[string]func(g *rig){
		"key": func(g *rig) {
			g.want(Source{Peer: 1, PDC: 99}, errorOf(g, func(r *wire.ReqStd) { r.BufOff = a.key }), "default OK 0")
		},
		"id": func(g *rig) {
			g.want(srcA, errorOf(g, func(r *wire.ReqStd) { r.MsgID, r.ReqLen = 900, 5000 }), "default OK 0")
		},
		"ie": func(g *rig) {
			b := a
			b.flags = wire.SESIE
			g.want(srcA, b.packets(g.SES)[0], "response INITIATOR_ERROR 0 gtd")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.want(srcA, a.packets(g.SES)[0], "response OK overflow 0 gtd")
			g.want(Source{Peer: 2, PDC: 99}, errorOf(g, func(r *wire.ReqStd) { r.BufOff = a.key }), "default OK 0") // another peer cannot
			if n, _ := g.Unexpected(); n != 1 {
				t.Fatal("another peer gave it up")
			}
			end(g)
			g.rest()

			g = newRig(t)
			g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
			g.want(srcA, a.packets(g.SES)[0], "default OK 5000")
			end(g) // the read has not begun
			g.posted("r")
			g = newRig(t)
			g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
			g.want(srcA, a.packets(g.SES)[0], "default OK 5000")
			h := g.reads()
			p, _ := g.Peek(h, 1000)
			g.AppendPiece(nil, p)
			_, m := g.lookup(h)
			g.came(&wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, ReadMsgID: m.hdr.MsgID}, 0, 1000)
			end(g)
			g.wantEvent(EvTRecv, PeerError, "r", 0)
			if p, ok := g.Peek(h, 1000); !ok || !p.Error() {
				t.Fatal("the initiator is not told")
			} else {
				g.AppendPiece(nil, p)
			}
			g.Answered(h, nil)
			g.Answered(h, nil)
			g.rest()
		})
	}
}

// S-RDV-62: the initiator asks whether the message is still here, when the PDC by which it came is gone.
func TestPullStillHere(t *testing.T) {
	g := newRig(t)
	a := announcement{tag: 7, body: pattern(5000), key: 1<<40 + 5}
	ask := (&wire.ReqStd{Opcode: wire.OpNoOp, MsgID: 77, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Match: a.key, Flags: single | wire.SESREL}).Append(nil)
	g.want(srcA, ask, "response UNDELIVERABLE 0 gtd")
	g.want(srcA, a.packets(g.SES)[0], "response OK overflow 0 gtd")
	g.PDCGone(srcA.PDC, Closed)
	g.want(Source{Peer: 2, PDC: 50}, ask, "response UNDELIVERABLE 0 gtd")
	g.want(Source{Peer: 1, PDC: 50}, ask, "response OK overflow 0 gtd")
	g.PDCGone(50, TimedOut)
	g.want(Source{Peer: 1, PDC: 51}, ask, "response UNDELIVERABLE 0 gtd")
	g.rest()
}

// Everything of a peer or an endpoint ends what is announced, and what is read.
func TestPullEnds(t *testing.T) {
	for name, do := range map[string]func(g *rig){
		"peer":     func(g *rig) { g.CancelPeer(1) },
		"endpoint": func(g *rig) { g.CloseEndpoint(0) },
		"leave":    func(g *rig) { g.Leave() },
		"all":      func(g *rig) { g.CancelAll() },
		"end":      func(g *rig) { g.End() },
	} {
		for _, state := range []string{"eager", "announced", "claimed", "discarded", "unproven", "queued", "asking", "asked", "came"} {
			t.Run(name+"/"+state, func(t *testing.T) {
				g := newRig(t)
				a := announcement{tag: 7, body: pattern(5000), eager: 2500, key: 5}
				src, events, h := srcA, 1, Handle(0)
				if state == "announced" || state == "claimed" || state == "discarded" {
					g.want(src, a.packets(g.SES)[0], "response OK overflow 0 gtd")
					switch events = 0; state {
					case "claimed":
						g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: "c"})
						g.wantEvent(EvRecv, OK, "c", 5000)
					case "discarded":
						g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekDiscard, Context: "c"})
						g.wantEvent(EvRecv, OK, "c", 5000)
						h = g.reads()
					}
				} else {
					src.Unproven = state == "unproven"
					g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
					for k, p := range a.packets(g.SES) {
						if k < 2 || state != "eager" {
							g.deliver(src, p)
						}
					}
				}
				if state == "asking" || state == "asked" || state == "came" {
					h = g.reads()
					for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
						if g.AppendPiece(nil, p); state == "asking" {
							break
						}
						g.Answered(h, nil)
					}
				}
				if state == "came" {
					_, m := g.lookup(h)
					g.came(&wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, ReadMsgID: m.hdr.MsgID}, 0, 1000)
				}
				do(g)
				for range events {
					if state == "unproven" && name == "peer" { // it had nothing of it
						g.recv(Recv{Tagged: true, Tag: 9, Buf: nil, Context: "r"})
						break
					}
					g.wantEvent(EvTRecv, Cancelled, "r", 0)
				}
				for p, ok := g.Peek(h, 1000); ok; p, ok = g.Peek(h, 1000) {
					if !p.Error() {
						t.Fatal("it goes on asking")
					}
					g.AppendPiece(nil, p)
					g.Answered(h, nil)
				}
				if state == "asking" && name != "all" && name != "end" && name != "peer" {
					g.Answered(h, nil)
				}
				if state == "unproven" && name == "peer" {
					return
				}
				g.rest()
			})
		}
	}
}

// S-RDV-63: the other end hears of an endpoint that closes.
func TestPullOfEndpointThatCloses(t *testing.T) {
	g := newRig(t)
	if _, err := g.Open(EndpointConfig{Identity: Identity{JobID: 1, PIDonFEP: 2, RI: 3, Initiator: 4}}); err != nil {
		t.Fatal(err)
	}
	a := announcement{tag: 7, body: pattern(5000), key: 1<<40 + 5}
	g.want(srcA, a.packets(g.SES)[0], "response OK overflow 0 gtd")
	g.CloseEndpoint(0)
	h, ok := g.Resend()
	if !ok {
		t.Fatal("nothing is sent")
	}
	p, _ := g.Peek(h, 1000)
	var r wire.ReqStd
	if _, err := r.Parse(g.AppendPiece(nil, p)); err != nil || r.Opcode != wire.OpMsgError || r.Match != a.key || r.Flags&(single|wire.SESIE) != single|wire.SESIE {
		t.Fatalf("%v, %v", r, err)
	}
	g.Answered(h, nil)
	g.rest()
}

// S-RSM-04, S-RSM-05, S-ERR-04: packets that contradict themselves or each other are refused, and end the
// message once.
func TestPullBad(t *testing.T) {
	a := announcement{tag: 7, body: pattern(5000), eager: 2500, key: 5}
	change := func(b []byte, f func(r *wire.ReqStd)) []byte {
		var r wire.ReqStd
		n, _ := r.Parse(b)
		f(&r)
		return append(r.Append(nil), b[n:]...)
	}
	extend := func(b []byte, f func(x *wire.Rendezvous)) []byte {
		x, n, _ := wire.ParseRendezvous(b[44:])
		f(&x)
		return append(x.Append(bytes.Clone(b[:44])), b[44+n:]...)
	}
	const violation = "response OP_VIOLATION 0 gtd"
	for name, bad := range map[string]func(pk [][]byte) []byte{
		"short":        func(pk [][]byte) []byte { return pk[0][:44+23] },
		"eager":        func(pk [][]byte) []byte { return extend(pk[0], func(x *wire.Rendezvous) { x.EagerLen = 5001 }) },
		"end":          func(pk [][]byte) []byte { return change(pk[0], func(r *wire.ReqStd) { r.Flags |= wire.SESEOM }) },
		"nothing":      func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.PayloadLen = 0 }) },
		"beyond":       func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.MsgOff = 4500 }) },
		"more than is": func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.PayloadLen = 1001 }) },
	} {
		g := newRig(t)
		if got := answer(g.deliver(srcA, bad(a.packets(g.SES)))); got != violation {
			t.Errorf("%s: %q", name, got)
		}
		g.quiet()
	}
	for name, bad := range map[string]func(pk [][]byte) []byte{
		"first twice": func(pk [][]byte) []byte { return pk[0] },
		"length":      func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.ReqLen++ }) },
		"tag":         func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.Match++ }) },
		"kind":        func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.Opcode = wire.OpTaggedSend }) },
		"behind":      func(pk [][]byte) []byte { return change(pk[1], func(r *wire.ReqStd) { r.MsgOff = 2000 }) },
	} {
		g := newRig(t)
		g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
		pk := a.packets(g.SES)
		g.want(srcA, pk[0], "default OK 5000")
		if got := answer(g.deliver(srcA, bad(pk))); got != violation {
			t.Errorf("%s: %q", name, got)
		}
		g.wantEvent(EvTRecv, PeerError, "r", 0)
		g.quiet()
	}
	// Some bytes twice, and others not; and more than the first packet, which comes last, allows.
	for name, offs := range map[string][2]uint32{"twice": {1500, 1500}, "too much": {1000, 2000}} {
		g := newRig(t)
		g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
		pk := a.packets(g.SES)
		for k := range 2 {
			g.want(srcA, change(pk[1], func(r *wire.ReqStd) { r.MsgOff = offs[k] - uint32(k)*500; r.PayloadLen = 750 }), "default OK 5000")
		}
		g.deliver(srcA, pk[0])
		if e := g.Event(); e == nil || e.Cause != PeerError || e.RC != wire.RCOpViolation || g.pulls.live() != 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A message id that is used again does not belong to the message that had it.
func TestPullIDAgain(t *testing.T) {
	g := newRig(t)
	a := announcement{tag: 7, body: pattern(5000), key: 5}
	g.want(srcA, a.packets(g.SES)[0], "response OK overflow 0 gtd")
	a.tag, a.key, a.body = 8, 6, pattern(4000)
	g.want(srcA, a.packets(g.SES)[0], "response OK overflow 0 gtd")
	if n, _ := g.Unexpected(); n != 1 || g.pulls.live() != 1 {
		t.Fatalf("%d messages, %d states", n, g.pulls.live())
	}
	r := wire.ReqStd{Opcode: wire.OpTaggedSend, MsgID: 900, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, Initiator: 16, ReqLen: 3000, Flags: wire.SESSOM | wire.SESREL}
	g.want(srcA, append(r.Append(nil), make([]byte, 1000)...), "response OK overflow 3000 gtd")
	g.CancelAll()
}

// A rendezvous send of several packets that stands still in the middle holds no receive for ever (T15), nor
// does one of which nothing more comes (F9).
func TestPullOpen(t *testing.T) {
	a := announcement{tag: 7, body: pattern(5000), eager: 2500, key: 5}
	for name, end := range map[string]func(g *rig){
		"gone": func(g *rig) { g.PDCGone(srcA.PDC, TimedOut) },
		"idle": func(g *rig) { idle(g) },
		"error": func(g *rig) {
			r := wire.ReqStd{Opcode: wire.OpMsgError, MsgID: 900, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: g.cfg.RI, MsgOff: 1000, ReqLen: 5000, Flags: wire.SESEOM | wire.SESIE}
			g.want(srcA, r.Append(nil), "default OK 0")
		},
	} {
		for _, k := range []int{0, 1} {
			g := newRig(t)
			g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
			g.want(srcA, a.packets(g.SES)[k], "default OK 5000")
			end(g)
			if e := g.Event(); e == nil || e.Cause == OK || e.Len != 0 || g.pulls.live() != 0 {
				t.Errorf("%s: %+v", name, e)
			}
			g.quiet()
		}
	}
}

// T14: headers of announced messages have the same limit as others.
func TestPullHeadersAreBounded(t *testing.T) {
	g := newRig(t, func(c *Config) { c.UnexpectedMsgs, c.UnexpectedShare = 4, 0.5 })
	for k := range 3 {
		a := announcement{tag: 7, body: pattern(5000), key: uint64(5 + k), msgID: uint16(1000 + k)}
		want := "response OK overflow 0 gtd"
		if k == 2 {
			want = "nack 09"
		}
		g.want(srcA, a.packets(g.SES)[0], want)
	}
	g.CancelPeer(1)
	g.rest()
}

// The read has a PDC of its own: it goes on when that of the announcement is gone, however it ended.
func TestPullOutlivesItsPDC(t *testing.T) {
	for _, c := range []Cause{Closed, TimedOut, Aborted} {
		g, _, d := midPull(t, 4)
		g.PDCGone(srcA.PDC, c)
		for k := range 4 {
			g.came(d, k*1000, 1000)
		}
		g.wantEvent(EvTRecv, OK, "r", 5000)
		g.rest()
	}
}

// An announced message that waits for a place among the sends is read when there is one.
func TestPullWaitsForAPlace(t *testing.T) {
	g := newRig(t)
	g.recv(Recv{Tagged: true, Tag: 7, Buf: make([]byte, 5000), Context: "r"})
	g.numSends = mostAsks
	g.want(srcA, announcement{tag: 7, body: pattern(5000), key: 5}.packets(g.SES)[0], "default OK 5000")
	g.Advance(time.Second)
	if _, ok := g.Resend(); ok {
		t.Fatal("it has a place")
	}
	g.numSends = 0
	g.reads()
}
