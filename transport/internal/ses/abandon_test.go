package ses

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// wantEnds reads all events: those in want, each once, with Cause Cancelled and Unknown as want
// says.
func (g *rig) wantEnds(want map[any]bool) {
	g.t.Helper()
	for e := g.Event(); e != nil; e = g.Event() {
		unknown, ok := want[e.Context]
		delete(want, e.Context)
		if !ok || e.Cause != Cancelled || e.Unknown != unknown || e.RC != 0 || e.Nack != 0 || e.Kind.Recv() && e.Len != 0 {
			g.t.Errorf("%v ends %v %v %v, unknown %v, len %d", e.Context, e.Cause, e.RC, e.Nack, e.Unknown, e.Len)
		}
	}
	for c := range want {
		g.t.Errorf("%v did not end", c)
	}
}

func TestCancelPeerEndsItsSends(t *testing.T) {
	// Only a send that the peer may have executed has an unknown outcome. Those to others go on.
	g := newRig(t)
	out := func(name string, n int) Handle { return g.send(Send{Peer: 1, Buf: pattern(n), Context: name}) }
	other := g.send(Send{Peer: 2, Buf: pattern(10), Context: "other"})
	wait := out("waits", 10)
	g.refuseOnce(wait, wire.RCNoMatch, 0)
	g.Advance(time.Second)
	ready := out("ready", 10)
	g.refuseOnce(ready, wire.RCNoMatch, 0)
	g.Advance(2 * time.Second)
	again := out("again", 10)
	g.refuseOnce(again, wire.RCNoMatch, 0)
	out("unsent", 10)
	half := out("half", 3000)
	g.Next(half, 1024)
	all := out("all", 3000)
	drain(g.SES, all, 1024)
	g.Answered(all, nil)
	refused := out("refused", 3000)
	drain(g.SES, refused, 1024)
	g.Answered(refused, perm)
	promised := out("promised", 10)
	drain(g.SES, promised, 1024)
	g.Answered(promised, noRsp)
	g.send(Send{Peer: 1, Buf: pattern(10), Context: "early", Copy: true, Early: true})
	g.wantEvent(EvSend, OK, "early", 10)
	g.sendFenced(1, true, "fenced")
	g.sendFenced(1, false, "behind")
	g.quiet()
	g.CancelPeer(1)
	g.wantEnds(map[any]bool{"waits": false, "ready": false, "again": false, "unsent": false, "half": false, "all": true, "refused": false,
		"promised": true, "fenced": false, "behind": false})
	if g.Sends() != 1 || g.SomeUnfenced() || g.Fenced(0, 1) {
		t.Errorf("%d sends, some unfenced %v", g.Sends(), g.SomeUnfenced())
	}
	if _, ok := g.Resend(); ok {
		t.Error("a send that ended is to be sent again")
	}
	for _, h := range []Handle{half, all, refused, promised} { // late calls
		g.Answered(h, nil)
		g.Failed(h, Closed, 0)
	}
	g.quiet()
	drain(g.SES, other, 1024)
	g.Answered(other, nil)
	g.wantEvent(EvSend, OK, "other", 10)
	g.CancelPeer(1)
	g.rest()
}

func TestCancelPeerEndsItsReceives(t *testing.T) {
	// Receives from the peer alone and those bound to a part of its messages end. A message of
	// it in a multi-receive buffer ends; the buffer stays for others, unless it is for this peer
	// alone. What others sent, and receives for all, stay.
	g := newRig(t)
	part := func(src Source, tag uint64) { g.deliver(src, g.tagged(tag, pattern(5000), 1024)[0]) }
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 5000), Context: "bound"})
	part(srcA, 1)
	g.recv(Recv{Tagged: true, Tag: 2, Buf: make([]byte, 5000), Context: "other's"})
	part(srcB, 2)
	g.recv(Recv{Tagged: true, Tag: 3, SourcePeer: 1, Buf: make([]byte, 10), Context: "directed"})
	g.recv(Recv{SourcePeer: 1, Buf: make([]byte, 10), Context: "untagged"})
	g.recv(Recv{SourcePeer: 2, Buf: make([]byte, 10), Context: "from other"})
	g.recv(Recv{Tagged: true, Tag: 4, Buf: make([]byte, 9000), Multi: true, Context: "for all"})
	part(srcA, 4)
	g.recv(Recv{Tagged: true, Tag: 5, SourcePeer: 1, Buf: make([]byte, 9000), Multi: true, Context: "its own"})
	part(srcA, 5)
	g.quiet()
	g.CancelPeer(1)
	got := map[any]int{}
	for e := g.Event(); e != nil; e = g.Event() {
		got[e.Context]++
		if e.Cause != Cancelled || e.Len != 0 {
			t.Errorf("%+v", *e)
		}
		switch {
		case e.Context == "for all" && (!e.Multi || e.Released), e.Context == "its own" && e.Multi == e.Released:
			t.Errorf("%v: of a message %v, released %v", e.Context, e.Multi, e.Released)
		}
	}
	if len(got) != 5 || got["bound"] != 1 || got["directed"] != 1 || got["untagged"] != 1 || got["for all"] != 1 || got["its own"] != 2 {
		t.Fatalf("ended: %v", got)
	}
	if g.Recvs() != 3 || g.Incomplete(srcA.PDC) || !g.Incomplete(srcB.PDC) || g.Holds(1) {
		t.Errorf("%d receives are left, of A incomplete %v, of B %v", g.Recvs(), g.Incomplete(srcA.PDC), g.Incomplete(srcB.PDC))
	}
	g.deliver(srcB, g.tagged(4, pattern(50), 1024)[0])
	g.wantEvent(EvRecv, OK, "for all", 50)
}

func TestCancelPeerDropsItsUnexpectedMessages(t *testing.T) {
	// Whole and half ones, of both spaces and of each endpoint, and those that a peek reserved:
	// whoever claims one learns that it is gone.
	g := newRig(t)
	two := open(t, g.SES, Identity{JobID: 5, RI: 3})
	to := Target{JobID: 5, RI: 3}
	for _, src := range []Source{srcA, srcB} {
		for _, n := range []int{10, 5000, 40_000} {
			g.deliver(src, g.tagged(7, pattern(n), 8192)[0])
			g.deliver(src, g.untagged(pattern(n), 8192)[0])
			g.deliver(src, packets(g.mate, &Send{Buf: pattern(n), Target: to}, 8192)[0])
		}
		g.deliver(src, g.tagged(8, pattern(20), 1024)[0])
		g.deliver(src, g.tagged(9, pattern(3000), 1024)[0])
		g.recv(Recv{Tagged: true, Tag: 8, SourcePeer: src.Peer, Look: LookPeekClaim, Context: src.PDC})
		g.wantEvent(EvRecv, OK, src.PDC, 20)
		g.recv(Recv{Tagged: true, Tag: 9, SourcePeer: src.Peer, Look: LookPeekClaim, Context: src.PDC + 1})
		g.wantEvent(EvRecv, OK, src.PDC+1, 3000)
	}
	if n, _ := g.Unexpected(); n != 22 {
		t.Fatalf("%d unexpected messages", n)
	}
	_, before := g.Unexpected()
	g.CancelPeer(1)
	g.quiet()
	if n, b := g.Unexpected(); n != 11 || b != before/2 || g.Holds(1) {
		t.Errorf("%d unexpected messages of %d bytes are left, want 11 of %d", n, b, before/2)
	}
	for _, ctx := range []uint32{srcA.PDC, srcA.PDC + 1} {
		g.recv(Recv{Tagged: true, Tag: 8, Buf: make([]byte, 20), Look: LookClaim, Context: ctx})
		g.wantEvent(EvRecv, Cancelled, ctx, 0)
	}
	g.recv(Recv{Tagged: true, Tag: 8, Buf: make([]byte, 20), Look: LookClaim, Context: srcB.PDC})
	g.wantEvent(EvRecv, OK, srcB.PDC, 20)
	g.CancelPeer(2)
	g.recv(Recv{Tagged: true, Tag: 9, Buf: make([]byte, 20), Look: LookClaim, Context: srcB.PDC + 1})
	g.wantEvent(EvRecv, Cancelled, srcB.PDC+1, 0)
	g.CloseEndpoint(two)
	g.rest()
}
