package transport

import (
	"testing"

	"github.com/uetkit/uetkit/transport/pds"
)

// narrow is a window of two packets, so that every lane waits for it.
func narrow(c *Config) { c.Window = 2400 }

// shorts keeps short messages on their way from a to b: whenever one ends the
// next is posted.
func (p *pipe) shorts() {
	p.t.Helper()
	for range 4 {
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 900), Tag: 1, Context: "short"})
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 900), Tag: 1, Context: "short"})
	}
}

// ends runs turn after turn, with short messages all the time, until the long
// message is sent or max short ones are.
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
	// Design D8, T38: the RUD PDCs to one peer share a window; short messages
	// without end leave a long one its part of it. 40 packets beside messages of
	// one packet each: as many of them, and some, until it is sent.
	p := newPipe(t, narrow)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.shorts()
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	if n, ok := p.ends(200); !ok {
		t.Errorf("the long message did not end during %d short ones\n%s", n, p.a.Diagnose())
	}
}

func TestFEPPDCThatClosesFinishes(t *testing.T) {
	// F28: a PDC that closes, here before its target has answered, finishes the
	// message it has begun, beside its successor in the same window.
	p := newPipe(t, narrow)
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 40<<10), Tag: 2, Context: "long"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 60<<10), Tag: 3, Context: "next"})
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 60<<10), Tag: 3, Context: "next"})
	p.move(p.a, p.b)
	p.a.pds.Each(func(pdc *pds.PDC) { p.a.pds.Close(p.now, pdc) })
	p.shorts()
	if n, ok := p.ends(200); !ok {
		t.Errorf("the long message did not end during %d short ones\n%s", n, p.a.Diagnose())
	}
}
