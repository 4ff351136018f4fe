package transport

import (
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	p := newPipe(t, nil)
	if l := p.a.Load(); l != (Load{}) {
		t.Errorf("new: %+v", l)
	}
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 3000), Tag: 7})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 10), Ordered: true})
	p.post(p.a, Op{Kind: OpTRecv, Tag: 1})
	l := p.a.Load()
	if l.Sends != 2 || l.Recvs != 1 || l.Queued != 2 || l.PDCs != 2 || l.Peers != 1 || l.Window != 2<<20 || l.InFlight != 0 {
		t.Errorf("posted: %+v", l)
	}
	p.move(p.a, p.b)
	p.now += time.Millisecond
	if l := p.a.Load(); l.InFlight < 3000 || l.Queued > 1 {
		t.Errorf("sent: %+v", l)
	}
	p.exchange()
	if l := p.a.Load(); l.Sends != 0 || l.InFlight != 0 || l.RTT != time.Millisecond {
		t.Errorf("at rest: %+v", l)
	}
	if l := p.b.Load(); l.Unexpected != 2 || l.UnexpectedBytes < 3010 || l.PDCs != 2 || l.Peers != 0 {
		t.Errorf("the target: %+v", l)
	}
}
