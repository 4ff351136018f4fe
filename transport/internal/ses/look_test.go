package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestPeek(t *testing.T) {
	// R-TAG-08: a peek that finds a message reports it and leaves it; one that finds none is
	// NoMessage. Neither stays posted.
	g := newRig(t)
	g.recv(Recv{Tagged: true, Tag: 1, Look: LookPeek, Context: "miss"})
	g.wantEvent(EvRecv, NoMessage, "miss", 0)
	for tag := uint64(1); tag < 4; tag++ {
		pkt := packets(g.mate, &Send{Tagged: true, Tag: tag, Buf: pattern(int(tag) * 10), HasData: true, Data: tag + 100, Target: self(g.SES)}, 1024)
		g.deliver(srcA, pkt[0])
	}
	for range 2 {
		g.recv(Recv{Tagged: true, Tag: 8, Ignore: 3, Look: LookPeek, Context: "miss"})
		g.wantEvent(EvRecv, NoMessage, "miss", 0)
		g.recv(Recv{Tagged: true, Tag: 0, Ignore: 3, Look: LookPeek, Context: "hit", Buf: make([]byte, 3)})
		e := g.wantEvent(EvRecv, OK, "hit", 10) // R-TAG-13: the oldest
		if e.Tag != 1 || !e.HasData || e.Data != 101 || uint32(e.Peer) != srcA.Peer || e.Initiator != 16 || e.Buf != nil || e.OverLen != 0 {
			t.Fatalf("%+v", e)
		}
	}
	g.recv(Recv{Tagged: true, Tag: 2, SourcePeer: srcB.Peer, Look: LookPeek, Context: "other"})
	g.wantEvent(EvRecv, NoMessage, "other", 0)
	if n, _ := g.Unexpected(); n != 3 || g.Recvs() != 0 {
		t.Fatalf("%d messages, %d receives", n, g.Recvs())
	}
}

func TestPeekClaim(t *testing.T) {
	// R-TAG-09: only a receive with FI_CLAIM and the same context gets a claimed message.
	g := newRig(t)
	for k := range 2 {
		g.deliver(srcA, g.tagged(7, pattern(20+k), 1024)[0])
	}
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: "c"})
	g.wantEvent(EvRecv, OK, "c", 20)
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: "d"})
	g.wantEvent(EvRecv, NoMessage, "d", 0)
	buf := make([]byte, 30)
	g.recv(Recv{Tagged: true, Tag: 7, Buf: buf, Context: "plain"})
	g.wantEvent(EvRecv, OK, "plain", 21)
	g.recv(Recv{Tagged: true, Tag: 7, Buf: buf[:5], Iov: [][]byte{buf[:4], buf[10:14]}, Look: LookClaim, Context: "c"})
	if e := g.wantEvent(EvRecv, Truncated, "c", 8); e.OverLen != 12 || e.Tag != 7 {
		t.Fatalf("%+v", e)
	}
	wantBytes(t, buf[10:14], pattern(20)[4:8])
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: "c"})
	g.wantEvent(EvRecv, NoMessage, "c", 0) // once
	if g.Recvs() != 0 {
		t.Fatal("a receive is left")
	}
	g.rest()
}

func TestPeekDiscard(t *testing.T) {
	// R-TAG-09: FI_DISCARD with either drops the message.
	g := newRig(t)
	for k := range 2 {
		g.deliver(srcA, g.tagged(7, pattern(20+k), 1024)[0])
	}
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekDiscard, Context: 1})
	g.wantEvent(EvRecv, OK, 1, 20)
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: 2})
	g.wantEvent(EvRecv, OK, 2, 21)
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaimDiscard, Context: 2})
	g.wantEvent(EvRecv, OK, 2, 21)
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekDiscard, Context: 1})
	g.wantEvent(EvRecv, NoMessage, 1, 0)
	g.rest()
}

func TestPeekOfWhatIsOnItsWay(t *testing.T) {
	// A message is found when its first packet is there. When it is claimed or discarded, its
	// other packets are still answered.
	for _, look := range []Look{LookPeekClaim, LookPeekDiscard} {
		g := newRig(t)
		body := pattern(2500)
		pkts := g.tagged(7, body, 1024)
		g.deliver(srcA, pkts[1])
		g.recv(Recv{Tagged: true, Tag: 7, Look: look, Context: 1})
		g.wantEvent(EvRecv, NoMessage, 1, 0) // remote CQ data, if any, is not here yet
		g.deliver(srcA, pkts[0])
		g.recv(Recv{Tagged: true, Tag: 7, Look: look, Context: 1})
		g.wantEvent(EvRecv, OK, 1, 2500)
		if look == LookPeekDiscard {
			g.want(srcA, pkts[2], "default NULL 0")
			g.rest()
			continue
		}
		buf := make([]byte, 2500)
		g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: 1, Buf: buf})
		g.quiet()
		g.want(srcA, pkts[2], "default NULL 0")
		g.wantEvent(EvRecv, OK, 1, 2500)
		wantBytes(t, buf, body)
		g.rest()
	}
}

func TestClaimOfWhatFailed(t *testing.T) {
	// The claim of a message that will never be complete ends in error.
	for _, end := range []string{"pdc", "close", "discard and pdc"} {
		g := newRig(t)
		pkts := g.tagged(7, pattern(2500), 1024)
		g.deliver(srcA, pkts[0])
		if end == "discard and pdc" {
			g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekDiscard, Context: 1})
			g.wantEvent(EvRecv, OK, 1, 2500)
			g.PDCGone(srcA.PDC, TimedOut)
			g.rest()
			continue
		}
		g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: 1})
		g.wantEvent(EvRecv, OK, 1, 2500)
		if end == "close" {
			g.deliver(srcB, g.tagged(8, nil, 1024)[0])
			g.recv(Recv{Tagged: true, Tag: 8, Look: LookPeekClaim, Context: 2})
			g.wantEvent(EvRecv, OK, 2, 0)
			g.CancelAll()
			g.rest()
			continue
		}
		g.PDCGone(srcA.PDC, TimedOut)
		g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: 1})
		g.wantEvent(EvRecv, TimedOut, 1, 0)
		g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: 1})
		g.wantEvent(EvRecv, NoMessage, 1, 0)
		g.rest()
	}
}

func TestMsgErrorOfAClaimed(t *testing.T) {
	g := newRig(t)
	h := func() Handle {
		h, err := g.mate.sendOp(&Send{Tagged: true, Tag: 7, Buf: pattern(2500), Target: self(g.SES)})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}()
	p, _ := g.mate.Next(h, 1024)
	g.deliver(srcA, g.mate.Append(nil, p))
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: 1})
	g.wantEvent(EvRecv, OK, 1, 2500)
	g.mate.Answered(h, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCUncor, MsgID: 1})
	q, ok := g.mate.Next(h, 1024)
	if !ok || !q.Error() {
		t.Fatal("no MSG_ERROR")
	}
	g.deliver(srcA, g.mate.Append(nil, q))
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Context: 1})
	if e := g.wantEvent(EvRecv, PeerError, 1, 0); e.RC != wire.RCInitiatorError {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestClaimNamesNobodyElse(t *testing.T) {
	// The place of an older receive says nothing of its source.
	g := newRig(t)
	g.recv(Recv{Tagged: true, Tag: 1, SourcePeer: srcB.Peer, Context: 1})
	g.CancelRecv(0, 1)
	g.wantEvent(EvRecv, Cancelled, 1, 0)
	parts := g.tagged(7, pattern(2000), 1024)
	g.deliver(srcA, parts[0])
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookPeekClaim, Context: 2})
	g.wantEvent(EvRecv, OK, 2, 2000)
	g.recv(Recv{Tagged: true, Tag: 7, Look: LookClaim, Buf: make([]byte, 2000), Context: 2})
	if g.Names(srcB.Peer) {
		t.Error("a claim has the source of another receive")
	}
	g.deliver(srcA, parts[1])
	g.wantEvent(EvRecv, OK, 2, 2000)
	g.rest()
}
