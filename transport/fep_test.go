package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestFEPMessageSizes(t *testing.T) {
	// S-SEG-01, -02: messages of no bytes, of one packet and of many trains arrive.
	for _, n := range []int{0, 1, 8, 1023, 1024, 1025, 2048, 65536, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := newPipe(t, nil)
			src, dst := pattern(n, 1), make([]byte, n)
			p.post(p.b, Op{Kind: OpTRecv, Buf: dst, Tag: 7, Context: "r"})
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 7, Context: "s"})
			p.exchange()
			p.want(p.b, fmt.Sprintf("r ok len=%d", n))
			p.want(p.a, "s ok")
			if !bytes.Equal(src, dst) {
				t.Error("bytes differ")
			}
			p.checkIdle()
		})
	}
}

func TestFEPReplyTakesTheAckAlong(t *testing.T) {
	// If the application answers in the same turn, the reply and the ACK leave in one
	// train, the shorter ACK last.
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 64), Context: "ping"})
	p.post(p.a, Op{Kind: OpTRecv, Buf: make([]byte, 64), Context: "pong"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 64), Context: "s"})
	if !p.move(p.a, p.b) {
		t.Fatal("nothing left")
	}
	p.want(p.b, "ping ok len=64")
	if p.b.Transmit(p.now, &p.d) {
		t.Fatal("the ACK did not wait for the reply")
	}
	p.post(p.b, Op{Kind: OpTSend, Peer: p.toA, RI: 15, Buf: make([]byte, 64), Context: "s"})
	if !p.b.Transmit(p.now, &p.d) {
		t.Fatal("the reply did not leave")
	}
	if p.d.Segments() != 2 || p.d.Seg != 124 || len(p.d.Data) != 124+48 {
		t.Errorf("train of %d datagrams, %d bytes each, %d in all", p.d.Segments(), p.d.Seg, len(p.d.Data))
	}
	if p.b.Flush(p.now); p.b.Pending() {
		t.Error("an ACK is pending that has left")
	}
}

func TestFEPReplyLeavesTheAcksOfOthers(t *testing.T) {
	s := newStar(t, 2)
	s.know()
	for _, f := range s.leaf {
		to, _ := f.Peer(s.hub.cfg.Local, true)
		if err := f.Post(s.now, &Op{Kind: OpSend, Peer: to, RI: 15, Buf: make([]byte, 8)}); err != nil {
			t.Fatal(err)
		}
		s.drain(f)
	}
	if err := s.hub.Post(s.now, &Op{Kind: OpSend, Peer: s.to[1], RI: 15, Buf: make([]byte, 8)}); err != nil {
		t.Fatal(err)
	}
	if !s.hub.Transmit(s.now, &s.d) || s.d.Remote != s.leaf[1].cfg.Local || s.d.Segments() != 2 {
		t.Fatalf("%d datagrams to %v, want the reply and its ACK", s.d.Segments(), s.d.Remote)
	}
	s.hub.Flush(s.now)
	if !s.hub.Transmit(s.now, &s.d) || s.d.Remote != s.leaf[0].cfg.Local {
		t.Error("the other ACK does not leave")
	}
}

func TestFEPAckWaitsAtMostAckDelay(t *testing.T) {
	// An ACK that is owed waits at most 20 µs.
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: "r"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s"})
	p.move(p.a, p.b)
	if at := p.b.NextTimeout(); at != p.now+20*time.Microsecond {
		t.Errorf("next timeout in %v", at-p.now)
	}
	p.now += 20 * time.Microsecond
	p.b.Advance(p.now)
	if !p.move(p.b, p.a) {
		t.Fatal("the ACK did not leave")
	}
	p.want(p.a, "s ok")
}

func TestFEPAckDelayIsThatOfTheAckThatWaits(t *testing.T) {
	// The 20 µs begin anew when the ACK for which they ran has left, with a reply or behind
	// it.
	for _, apart := range []bool{false, true} {
		p := newPipe(t, nil)
		p.b.Apart(apart)
		send := func(from *FEP, to PeerID) {
			p.post(from, Op{Kind: OpSend, Peer: to, RI: 15, Buf: make([]byte, 8), Context: "s"})
		}
		for range 2 {
			p.post(p.a, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: "r"})
			p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: "r"})
		}
		send(p.a, p.toB)
		p.move(p.a, p.b)
		send(p.b, p.toA)
		for p.move(p.b, p.a) {
		}
		p.now += 15 * time.Microsecond
		send(p.a, p.toB)
		p.move(p.a, p.b)
		p.now += 10 * time.Microsecond
		if p.b.Advance(p.now); p.b.Pending() {
			t.Errorf("apart=%v: an ACK leaves after 10 µs", apart)
		}
		p.now += 10 * time.Microsecond
		if p.b.Advance(p.now); !p.b.Pending() {
			t.Errorf("apart=%v: an ACK waits after 20 µs", apart)
		}
	}
}

func TestFEPLongDoesNotBlockShort(t *testing.T) {
	// A short message overtakes a long one on a PDC of its own.
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8<<20), Tag: 1, Context: "long"})
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 2, Context: "short"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8<<20), Tag: 1, Context: "long"})
	p.move(p.a, p.b)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Tag: 2, Context: "short"})
	p.move(p.a, p.b)
	p.move(p.a, p.b)
	p.want(p.b, "short ok len=8")
	p.exchange()
	p.want(p.b, "long ok len=8388608")
}

func TestFEPOrderedKeepsOrder(t *testing.T) {
	// R-ORD-02: ordered messages share one ROD PDC, whatever their length.
	p := newPipe(t, nil)
	for i, n := range []int{100000, 8, 50000, 0} {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 100000), Context: i})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Ordered: true, Context: i})
	}
	p.exchange()
	p.want(p.b, "0 ok len=100000", "1 ok len=8", "2 ok len=50000", "3 ok len=0")
	if n := p.a.PDCs(); n != 1 {
		t.Errorf("%d PDCs", n)
	}
}

func TestFEPUnexpectedThenReceive(t *testing.T) {
	// S-MAT-07, S 17.1: an unexpected message is kept and answered OVERFLOW by a guaranteed
	// response, which is then cleared.
	p := newPipe(t, nil)
	for _, n := range []int{8, 5000} {
		src := pattern(n, 3)
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 9, Data: 5, HasData: true, Context: "s"})
		p.exchange()
		p.want(p.a, "s ok")
		p.want(p.b)
		dst := make([]byte, n)
		p.post(p.b, Op{Kind: OpTRecv, Buf: dst, Tag: 9, Context: "r"})
		p.want(p.b, fmt.Sprintf("r ok len=%d data=0x5", n))
		if !bytes.Equal(src, dst) {
			t.Error("bytes differ")
		}
		p.checkIdle()
	}
}

func TestFEPTruncation(t *testing.T) {
	// F19, R-MSG-11: the entry of the receive says how many bytes were placed and how many
	// did not fit. The send of the message succeeds.
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 1500), Context: "r"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 4000), Context: "s"})
	p.exchange()
	p.want(p.b, "r truncated len=1500 over=2500")
	p.want(p.a, "s ok")
	p.checkIdle()
}

func TestFEPEveryPacketLostOnce(t *testing.T) {
	// UE 3.5.20.3, twice for each packet as in lostFrameTest of golang.org/x/net: whichever
	// datagram is lost once, the message arrives once and completes.
	for lost := range 12 {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/ordered=%v", lost, ordered), func(t *testing.T) {
				p := newPipe(t, nil)
				n := 0
				p.drop = func(*FEP, []byte) bool { n++; return n == lost+1 }
				src, dst := pattern(7000, 5), make([]byte, 7000)
				p.post(p.b, Op{Kind: OpRecv, Buf: dst, Context: "r"})
				p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: src, Ordered: ordered, Context: "s"})
				p.exchange()
				for i := 0; i < 100 && !(p.a.Idle() && p.b.Idle()); i++ {
					p.now += time.Millisecond
					p.a.Advance(p.now)
					p.b.Advance(p.now)
					p.exchange()
				}
				p.want(p.b, "r ok len=7000")
				p.want(p.a, "s ok")
				if !bytes.Equal(src, dst) {
					t.Error("bytes differ")
				}
				p.checkIdle()
			})
		}
	}
}

func TestFEPCloseTellsThePeer(t *testing.T) {
	// F27: local operations are cancelled before Close returns, and the peer learns of the
	// end within a round trip.
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: "r1"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s1"})
	p.exchange()
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: "r2"})
	p.want(p.b, "r1 ok len=8")
	p.want(p.a, "s1 ok")
	p.b.Close(p.now)
	p.want(p.b, "r2 cancelled len=0")
	if err := p.b.Post(p.now, &Op{Kind: OpRecv}); err != ErrClosed {
		t.Errorf("Post after Close: %v", err)
	}
	p.exchange()
}

func TestFEPDropsAreCounted(t *testing.T) {
	// T30, F5, F6, R-ERR-36: every malformed datagram is dropped and counted under its
	// reason.
	p := newPipe(t, nil)
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s"})
	p.a.Transmit(p.now, &p.d)
	good := append([]byte(nil), p.d.Data...)
	give := func(b []byte) { // as if a had sent it
		p.d.Data, p.d.Seg, p.d.Remote = b, 0, p.a.cfg.Local
		p.b.Receive(p.now, &p.d)
	}
	for n := range good {
		give(good[:n])
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x10
		give(bad)
	}
	s := p.b.Stats()
	if s.Drops[DropShort] != wire.ReqLen+wire.CRCLen || s.Drops[DropCRC] != uint64(2*len(good)-wire.ReqLen-wire.CRCLen) {
		t.Errorf("short %d, crc %d", s.Drops[DropShort], s.Drops[DropCRC])
	}
	if p.b.PDCs() != 0 {
		t.Error("a bad packet opened a PDC")
	}
	give(good)
	if p.b.PDCs() != 1 {
		t.Error("the good packet did not")
	}
}

func TestFEPNoAllocs(t *testing.T) {
	// F9: the hot paths allocate nothing once they have run.
	p := newPipe(t, nil)
	buf, dst := make([]byte, 8), make([]byte, 8)
	var ctx any = "x"
	send := Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: buf, Tag: 1, Context: ctx}
	recv := Op{Kind: OpTRecv, Buf: dst, Tag: 1, Context: ctx}
	round := func() {
		for range 64 {
			p.b.Post(p.now, &recv)
			p.a.Post(p.now, &send)
		}
		p.exchange()
		n := 0
		for p.a.NextEvent() != nil {
			n++
		}
		for p.b.NextEvent() != nil {
			n++
		}
		if n != 128 {
			t.Fatalf("%d events", n)
		}
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("64 messages allocate %v times", n)
	}
}

var _ pds.CCC

func TestFEPFence(t *testing.T) {
	// R-ORD-07: no packet of a fenced message is sent before all earlier messages to the
	// peer are answered, and no later message overtakes it.
	p := newPipe(t, nil)
	for k := range 4 {
		p.post(p.b, Op{Kind: OpTRecv, Tag: uint64(k), Buf: make([]byte, 30_000), Context: k})
	}
	acks := true
	p.drop = func(from *FEP, b []byte) bool { return from == p.b && !acks }
	acks = false
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 0, Buf: make([]byte, 20_000), Context: 0})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 10), Context: 1})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 2, Buf: make([]byte, 10), Fence: true, Visible: true, Context: 2})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 3, Buf: make([]byte, 10), Context: 3})
	p.exchange()
	p.want(p.b, "0 ok len=20000", "1 ok len=10")
	p.want(p.a)
	acks = true
	for p.now < 10*time.Second && p.b.ses.Recvs() > 0 {
		if t := p.a.NextTimeout(); t != 0 {
			p.now = max(p.now, t)
		}
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
	p.want(p.b, "2 ok len=10", "3 ok len=10")
	got := p.events(p.a)
	if len(got) != 4 || got[0]+got[1] != "0 ok1 ok" && got[0]+got[1] != "1 ok0 ok" { // R-ORD-14: the two may end in any order
		t.Fatalf("%q", got)
	}
	p.checkIdle()
}

func TestFEPMultiRecv(t *testing.T) {
	// R-MSG-12: a multi-receive gets messages of one and of many packets, one after
	// another.
	p := newPipe(t, nil)
	buf := make([]byte, 8000)
	p.post(p.b, Op{Kind: OpRecv, Buf: buf, Multi: true, MinFree: 1000, Context: "m"})
	off := 0
	for k, n := range []int{3000, 8, 0, 4000} {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(n, byte(k))})
		p.exchange()
		e := p.b.NextEvent()
		if e == nil || !e.Multi || e.Released != (k == 3) || string(e.Buf) != string(pattern(n, byte(k))) || n > 0 && &e.Buf[0] != &buf[off] {
			t.Fatalf("message %d: %+v", k, e)
		}
		off += n
	}
	p.events(p.a)
	p.checkIdle()
}

func TestFEPLateResponseAfterNoResponse(t *testing.T) {
	// S-CPL-04: a target that answers NO_RESPONSE sends the result later, in an ACK that
	// names a packet which is already answered.
	p := newPipe(t, func(c *Config) { c.NoCRC = true })
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s"})
	if !p.a.Transmit(p.now, &p.d) {
		t.Fatal("nothing left")
	}
	req, n, _ := wire.ParseReq(p.d.Data)
	std, _, err := wire.ParseReqStd(p.d.Data[n:])
	if err != nil {
		t.Fatal(err)
	}
	answer := func(op wire.RspOpcode, rc wire.RC) {
		a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: req.PSN, SPDCID: 77, DPDCID: req.SPDCID, MPR: 1, SACKOff: 1}
		r := wire.Rsp{Opcode: op, RC: rc, MsgID: std.MsgID, JobID: std.JobID}
		b := r.Append(a.Append(nil))
		p.a.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.b.cfg.Local})
	}
	answer(wire.RspNone, wire.RCNull)
	p.want(p.a)
	answer(wire.RspResponse, wire.RCOK)
	p.want(p.a, "s ok")
}

// T30: packets that are too short and packets with wrong fields count under different
// reasons.
func TestFEPCountsInvalidHeaders(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.NoCRC = true })
	ack := wire.Ack{Type: wire.TypeAck, Next: wire.NextRsp, SPDCID: 1, DPDCID: 1}
	rsp := wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}
	b := rsp.Append(ack.Append(nil))
	give := func(b []byte) Stats {
		p.a.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.b.cfg.Local})
		return p.a.Stats()
	}
	if s := give(b[:len(b)-1]); s.Drops[DropShort] != 1 || s.Drops[DropHeader] != 0 {
		t.Errorf("a response cut short: %d short, %d wrong", s.Drops[DropShort], s.Drops[DropHeader])
	}
	b[wire.AckLen+1] |= 0x40 // version 1
	if s := give(b); s.Drops[DropShort] != 1 || s.Drops[DropHeader] != 1 {
		t.Errorf("a response of another version: %d short, %d wrong", s.Drops[DropShort], s.Drops[DropHeader])
	}
}

func TestFEPNothingIsPendingAfterTheLastACK(t *testing.T) {
	p := newPipe(t, nil)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 8), Context: "r"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 8), Context: "s"})
	p.turn()
	p.b.Flush(p.now)
	if !p.b.Pending() || !p.move(p.b, p.a) {
		t.Fatal("no ACK leaves")
	}
	if p.b.Pending() {
		t.Fatal("something is pending behind the last ACK")
	}
	p.exchange()
	p.want(p.a, "s ok")
	p.want(p.b, "r ok len=8")
	p.checkIdle()
}

// An operation of an unknown kind makes Post panic, whatever the number of the kind.
func TestUnknownKindIsABug(t *testing.T) {
	f, err := New(Config{Local: netip.MustParseAddrPort("198.18.0.1:4793")}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []OpKind{0, OpTRecv + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("kind %d is taken", k)
				}
			}()
			_ = f.Post(time.Second, &Op{Kind: k})
		}()
	}
}

// A source that cannot be answered opens no PDC. A PDC without a peer would break the first
// attempt to send to it.
func TestFEPSourceThatCannotBeAnswered(t *testing.T) {
	for _, from := range []string{"198.18.0.9:0", "0.0.0.0:4793", "[::ffff:198.18.0.9]:4793"} {
		p := newPipe(t, func(c *Config) { c.NoCRC = true })
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
		if !p.a.Transmit(p.now, &p.d) {
			t.Fatal("nothing left")
		}
		p.d.Remote = netip.MustParseAddrPort(from)
		p.b.Receive(p.now, &p.d)
		p.b.pds.Each(func(c *pds.PDC) {
			b := wire.CP{Ctl: wire.CtlProbe, ProbeOpaque: 1, SPDCID: c.RemoteID(), DPDCID: c.ID()}.Append(nil)
			p.b.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.d.Remote})
		})
		if n, s := p.b.PDCs(), p.b.Stats(); n != 0 || s.Drops[DropSource] != 1 {
			t.Errorf("from %s: %d PDCs, %d packets dropped for their source", from, n, s.Drops[DropSource])
		}
	}
}

// A message that waits for another PDC when the FEP closes ends with it, and opens no PDC.
func TestFEPCloseBetweenPDCs(t *testing.T) {
	p := newPipe(t, nil)
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Context: "s"})
	p.a.pds.Abort(p.now) // stands for anything that ends a PDC
	p.a.heed()
	if len(p.a.todo.moveLater) != 1 {
		t.Fatal("the message does not wait for another PDC")
	}
	p.a.Close(p.now)
	p.want(p.a, "s cancelled")
	for p.a.Transmit(p.now, &p.d) {
	}
	p.a.Advance(p.now)
	if n := p.a.PDCs(); n != 0 || !p.a.Idle() || p.a.Pending() {
		t.Errorf("%d PDCs are left, idle %v, pending %v", n, p.a.Idle(), p.a.Pending())
	}
}

// Ordered messages that a fence held back are sent before one that is posted after the
// fence was lifted, even if nothing else happens in between.
func TestFEPFenceLiftedAndPosted(t *testing.T) {
	p := newPipe(t, nil)
	for n := range 3 {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8), Context: n})
	}
	send := func(n int, fence bool) {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Ordered: true, Fence: fence, Context: n})
	}
	send(1, false)
	send(2, true)
	p.exchange()
	p.want(p.a, "1 ok")
	send(3, false)
	p.exchange()
	p.want(p.b, "0 ok len=1", "1 ok len=2", "2 ok len=3")
	if n := len(p.events(p.a)); n != 2 {
		t.Errorf("%d of 2 sends ended", n)
	}
}
