package transport

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// narrow makes the window two packets, so that every lane waits for it.
func narrow(c *Config) { c.Window = 2400 }

// shorts keeps short messages under way from a to b: when one ends it posts the next.
func (p *pipe) shorts() {
	p.t.Helper()
	for range 4 {
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 900), Tag: 1, Context: "short"})
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 900), Tag: 1, Context: "short"})
	}
}

// ends runs turns with short messages all the time, until the long message or max short
// ones have ended.
func (p *pipe) ends(max int) (short int, long bool) {
	for turns := 0; short < max && turns < 10*max; turns++ {
		p.a.Flush(p.now)
		p.b.Flush(p.now)
		p.move(p.a, p.b)
		p.move(p.b, p.a)
		p.events(p.b)
		for _, e := range p.events(p.a) {
			if e != "short ok" {
				return short, e == "long ok"
			}
			short++
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 900), Tag: 1, Context: "short"})
			p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 900), Tag: 1, Context: "short"})
		}
	}
	return short, false
}

func TestFEPLanesShareAClosedWindow(t *testing.T) {
	// T38: the RUD PDCs to one peer share a window, and an endless stream of short messages
	// leaves a long message its share of it. The long message has 40 packets, the others
	// one each: it ends after about as many short messages.
	p := newPipe(t, narrow)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.shorts()
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	if n, ok := p.ends(200); !ok {
		t.Errorf("the long message did not end during %d short ones\n%s", n, p.a.Dump())
	}
}

func TestFEPPDCThatClosesFinishes(t *testing.T) {
	// F28: a PDC that closes, here before its target has answered, finishes the message
	// that has begun, next to its successor in the same window.
	p := newPipe(t, narrow)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 60<<10), Tag: 3, Context: "next"})
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 60<<10), Tag: 3, Context: "next"})
	p.move(p.a, p.b)
	p.a.pds.Each(func(pdc *pds.PDC) { p.a.pds.Close(p.now, pdc) })
	p.shorts()
	if n, ok := p.ends(200); !ok {
		t.Errorf("the long message did not end during %d short ones\n%s", n, p.a.Dump())
	}
}

func TestFEPMovedMessagesKeepTheirOrder(t *testing.T) {
	// UE 3.5.7.2, R-MSG-20: ordered messages that move to another PDC stay in front of one
	// that is posted before they have moved.
	p := newPipe(t, narrow)
	send := func(n, ctx int) {
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Tag: uint64(ctx), Ordered: true, Context: ctx})
	}
	for i := range 4 {
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 8000), Ignore: ^uint64(0), Context: 100 + i})
	}
	send(8000, 1)
	p.move(p.a, p.b)
	p.b.Flush(p.now)
	p.move(p.b, p.a)
	send(2, 2)
	send(3, 3)
	p.a.pds.Each(func(pdc *pds.PDC) { p.a.pds.Close(p.now, pdc) })
	for i := 0; len(p.a.todo.moveLater) == 0; i++ {
		if i == 100 {
			t.Fatal(p.a.Dump())
		}
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.move(p.a, p.b)
		p.b.Flush(p.now)
		p.move(p.b, p.a)
	}
	send(4, 4)
	p.exchange()
	p.want(p.b, "100 ok len=8000", "101 ok len=2", "102 ok len=3", "103 ok len=4")
}

func TestFEPAckOfOneLaneLetsAnotherSend(t *testing.T) {
	// UE 3.6: the RUD PDCs to one peer share a window. A short message that the window
	// stops leaves when the ACK of a long one opens it, although the lane of the long one
	// is empty by then, and whether the PDC of the short one existed before or not.
	for _, met := range []bool{false, true} {
		p := newPipe(t, func(c *Config) { c.Window, c.ShortMessage = 2400, 1000 })
		send := func(n int, ctx string) {
			p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, n), Tag: 1, Context: ctx})
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Tag: 1, Context: ctx})
		}
		if met {
			send(900, "before")
			p.exchange()
			p.want(p.a, "before ok")
			p.events(p.b)
		}
		send(2000, "long")
		p.move(p.a, p.b)
		send(900, "short")
		if p.move(p.a, p.b) {
			t.Fatal("the window stops nothing")
		}
		p.exchange()
		p.want(p.a, "long ok", "short ok")
		p.events(p.b)
		p.checkIdle()
	}
}
