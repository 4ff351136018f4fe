package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

func TestFEPLoad(t *testing.T) {
	p := newPipe(t, nil)
	if c := p.a.Load(); c != (Load{}) {
		t.Errorf("before anything was sent: %+v", c)
	}
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 1000), Context: "r"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 1000), Context: "s"})
	d := dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	if !p.a.Transmit(p.now, &d) {
		t.Fatal("nothing left")
	}
	if c := p.a.Load(); c.InFlight < len(d.Data) || c.Window < c.InFlight || c.RTT != 0 || c.PDCs != 1 {
		t.Errorf("with %d bytes on their way: %+v", len(d.Data), c)
	}
	p.now += 3 * time.Millisecond
	d.Remote = p.a.cfg.Local
	p.b.Receive(p.now, &d)
	p.exchange()
	if c := p.a.Load(); c.InFlight != 0 || c.Window == 0 || c.RTT <= 0 || c.RTT > 3*time.Millisecond {
		t.Errorf("after it arrived: %+v", c)
	}
	if c := p.b.Load(); c.Window != 0 || c.PDCs != 1 { // b only answers
		t.Errorf("at the other end: %+v", c)
	}
}

// UE 3.5.8: messages under way go to their end, then the PDC ends. Messages that are posted
// later use another PDC.
func TestFEPQuiesce(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered=", ordered), func(t *testing.T) {
			p := newPipe(t, nil)
			send := func(name string) {
				p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 100<<10), Context: "r" + name})
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 100<<10), Ordered: ordered, Context: "s" + name})
			}
			send("1")
			p.move(p.a, p.b)
			p.a.Quiesce(p.now, p.toB)
			send("2")
			for range 10 {
				p.exchange()
				p.now += time.Millisecond
				p.a.Advance(p.now)
				p.b.Advance(p.now)
			}
			p.want(p.b, "r1 ok len=102400", "r2 ok len=102400")
			p.want(p.a, "s1 ok", "s2 ok")
			if s := p.a.Stats(); s.PDCOpened != 2 || s.PDCClosed != 1 || s.PDCErrors != 0 {
				t.Errorf("%d PDCs opened, %d closed, %d in error", s.PDCOpened, s.PDCClosed, s.PDCErrors)
			}
			p.a.Quiesce(p.now, p.toB)
			for range 10 {
				p.exchange()
				p.now += time.Millisecond
				p.a.Advance(p.now)
				p.b.Advance(p.now)
			}
			if p.a.PDCs() != 0 || p.b.PDCs() != 0 {
				t.Errorf("%d PDCs here, %d there", p.a.PDCs(), p.b.PDCs())
			}
			p.checkIdle()
		})
	}
}
