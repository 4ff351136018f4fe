package transport

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

func TestT1UnreachableStrangerIsNoWork(t *testing.T) {
	// T1, T34: forged sources do not answer, and ICMP says so of each. A source to which this
	// side sends nothing but answers has no operation that could end, so the PDCs are not
	// searched for its own. Once this side sends to it they are.
	p := newPipe(t, nil)
	suspects := func() (n int) {
		p.b.pds.Each(func(c *pds.PDC) {
			if c.View().Evidence != 0 {
				n++
			}
		})
		return n
	}
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 1})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8), Tag: 1})
	p.exchange()
	p.b.Unreachable(p.now, p.a.cfg.Local)
	if n := suspects(); n != 0 || p.b.PDCs() != 1 {
		t.Errorf("%d of %d PDCs of a source are suspects", n, p.b.PDCs())
	}
	id, _ := p.b.Peer(p.a.cfg.Local, true)
	p.post(p.b, Op{Kind: OpTSend, Peer: id, RI: 15, Buf: make([]byte, 8), Tag: 2})
	p.b.Unreachable(p.now, p.a.cfg.Local)
	if n := suspects(); n == 0 {
		t.Error("a peer that is sent to is no suspect")
	}
	p.post(p.a, Op{Kind: OpTRecv, Buf: make([]byte, 8), Tag: 2})
	p.exchange()
	p.until(func() bool { return p.b.ses.Sends() == 0 })
	for end := p.now + 10*time.Minute; p.b.PDCs() != 0; {
		if p.now > end {
			t.Fatalf("%d PDCs are left", p.b.PDCs())
		}
		p.now += time.Second
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
	if n := p.b.peers[id].opened; n != 0 {
		t.Errorf("%d PDCs to a peer that has none", n)
	}
}
