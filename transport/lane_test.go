package transport

import (
	"testing"

	"github.com/uetkit/uetkit/transport/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// checkLanes compares what each lane says it has to send with what it has.
func (p *pipe) checkLanes(f *FEP, when string) (total int) {
	p.t.Helper()
	// What is refused is counted until its MSG_ERROR is taken.
	for i := range f.lanes {
		ln, n := &f.lanes[i], 0
		for j := range ln.q.len() {
			h := ln.q.at(j)
			if next, ok := f.ses.Peek(h, 1); ok {
				_, length, _ := f.ses.Info(h)
				n += length - int(next.Off)
			}
		}
		if ln.bytes != n {
			p.t.Errorf("%s: lane %d counts %d bytes, has %d", when, i, ln.bytes, n)
		}
		total += n
	}
	return total
}

func TestFEPLaneBytes(t *testing.T) {
	// The choice of a lane goes by the bytes that it has to send: not those of messages
	// that were cancelled, moved to another one, refused in the middle or given up.
	long := func(p *pipe, ctx any) {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 1<<20), Context: ctx})
	}
	for _, c := range []struct {
		name string
		act  func(p *pipe)
	}{
		{"cancelled", func(p *pipe) {
			if !p.a.Cancel(p.now, 2) {
				p.t.Fatal("not cancelled")
			}
		}},
		{"moved", func(p *pipe) {
			p.a.pds.Close(p.now, p.a.peers[p.toB].long[0])
			(*upper)(p.a).Wake(p.a.peers[p.toB].long[0])
			p.settle()
		}},
		{"refused", func(p *pipe) {
			first := p.a.lanes[p.a.peers[p.toB].long[0].Slot].q.front()
			p.a.ses.Answered(first, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCPermViolation})
			p.settle() // MSG_ERROR, and the next
		}},
		{"given up", func(p *pipe) { p.a.failQueued(p.toB, ses.TimedOut) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPipe(t, func(c *Config) { c.Lanes = 1 })
			p.drop = func(*FEP, []byte) bool { return true }
			for i := range 4 {
				long(p, i)
			}
			p.move(p.a, p.b) // one train: the window has room for more
			if c.name != "refused" {
				p.settle()
			}
			before := p.checkLanes(p.a, "before")
			c.act(p)
			if after := p.checkLanes(p.a, "after"); after >= before && c.name != "moved" {
				t.Errorf("%d bytes before, %d after", before, after)
			}
		})
	}
}
