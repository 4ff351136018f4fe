package transport

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/ses"
)

func TestFEPEndKeepsWhatArrived(t *testing.T) {
	// R-CM-12, docs/faults.md rule 1: when the peer is gone every operation ends. Messages
	// that the peer saw delivered can still be received, also by a look, and nothing else
	// comes.
	p := newPipe(t, nil)
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: pattern(5000, 1), Context: "s1"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: pattern(9, 2), Context: "s2"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 3, Buf: pattern(7, 3), Context: "s3"})
	p.until(func() bool { return p.a.ses.Sends() == 0 })
	p.want(p.a, "s2 ok", "s3 ok", "s1 ok")
	// There are a receive without a message, one in the middle of a message, and a send that
	// the peer does not answer.
	p.drop = func(_ *FEP, b []byte) bool { return len(b) < 1000 }
	p.post(p.b, Op{Kind: OpTRecv, Tag: 4, Buf: make([]byte, 8192), Context: "half"})
	p.post(p.b, Op{Kind: OpTRecv, Tag: 5, Buf: make([]byte, 8), Context: "never"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 4, Buf: make([]byte, 5000), Context: "s4"})
	p.post(p.b, Op{Kind: OpSend, Peer: p.toA, RI: 15, Buf: make([]byte, 5), Context: "lost"})
	p.exchange()
	p.drop = nil
	p.b.End(p.now)
	p.b.End(p.now) // a second call does nothing
	p.want(p.b, "lost cancelled", "half cancelled len=0", "never cancelled len=0")

	if err := p.b.Post(p.now, &Op{Kind: OpSend, Peer: p.toA, RI: 15}); err != ErrClosed {
		t.Errorf("a send after the end: %v", err)
	}
	buf := make([]byte, 5000)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: buf, Context: "r1"})
	p.want(p.b, "r1 ok len=5000")
	if string(buf) != string(pattern(5000, 1)) {
		t.Error("other bytes than were sent")
	}
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: buf, Context: "again"})
	p.want(p.b, "again cancelled len=0")
	p.post(p.b, Op{Kind: OpTRecv, Tag: 3, Look: LookPeek, Context: "look"})
	p.want(p.b, "look ok len=7")
	p.post(p.b, Op{Kind: OpRecv, Buf: buf[:100], Multi: true, MinFree: 8, Context: "multi"})
	p.want(p.b, "multi ok len=9", "multi cancelled len=0")

	// Packets of the peer that are still under way change nothing.
	before := p.b.Stats().RxPackets
	p.exchange()
	if n := p.b.Stats().RxPackets; n != before {
		t.Errorf("%d packets after the end", n-before)
	}
	p.events(p.a)
	p.b.Close(p.now)
	p.want(p.b)
}

func TestFEPEndKnowsWhatIsUncertain(t *testing.T) {
	// docs/faults.md rule 3: a send of which a packet was sent may have been executed.
	p := newPipe(t, nil)
	p.drop = func(*FEP, []byte) bool { return true }
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 5), Context: "left"})
	p.exchange()
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 5), Context: "stayed"})
	p.a.End(p.now)
	for _, unknown := range []bool{true, false} {
		e := p.a.NextEvent()
		if e == nil || e.Cause != ses.Cancelled || e.Unknown != unknown {
			t.Errorf("%+v, want unknown %v", e, unknown)
		}
	}
}

func TestFEPAllSendsEndWithThePeer(t *testing.T) {
	// F9: messages that a fence holds back, and messages that wait to be sent again because
	// the peer had no receive, end with the others when the peer is gone, and not a
	// PeerTimeout later.
	p := newPipe(t, nil)
	dark := false
	p.drop = func(*FEP, []byte) bool { return dark }
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Context: "warm"})
	p.exchange()
	p.want(p.a, "warm ok")
	dark = true
	start := p.now
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Context: "first"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Fence: true, Context: "fenced"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Ordered: true, Context: "behind"})
	for p.a.Sends() > 0 {
		if p.now = p.a.NextTimeout(); p.now > start+41*time.Second {
			t.Errorf("%d sends are left", p.a.Sends())
			break
		}
		p.a.Advance(p.now)
		p.exchange()
	}
	p.want(p.a, "first timed out", "fenced timed out", "behind timed out")
}
