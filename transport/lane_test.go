package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// checkLanes compares the bytes that each lane counts with those of its messages.
func (p *pipe) checkLanes(f *FEP, when string) (total int) {
	p.t.Helper()
	// A refused message counts until its MSG_ERROR is sent.
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
	// A lane is chosen by the bytes that it has to send. Messages that were cancelled,
	// moved to another lane, refused in the middle or given up do not count.
	long := func(p *pipe, ctx any) {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 1<<20), Context: ctx})
	}
	for _, c := range []struct {
		name string
		act  func(p *pipe)
	}{
		{"cancelled", func(p *pipe) {
			if !p.a.Cancel(p.now, 0, 2) {
				p.t.Fatal("not cancelled")
			}
		}},
		{"moved", func(p *pipe) {
			p.a.pds.Close(p.now, p.a.peers[p.toB].long[0])
			p.a.wake(p.a.peers[p.toB].long[0])
			p.exchange()
		}},
		{"refused", func(p *pipe) {
			first := p.a.lanes[p.a.peers[p.toB].long[0].Slot].q.front()
			p.a.ses.Answered(first, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCPermViolation})
			p.exchange() // MSG_ERROR, and the next message
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
				p.exchange()
			}
			before := p.checkLanes(p.a, "before")
			c.act(p)
			if after := p.checkLanes(p.a, "after"); after >= before && c.name != "moved" {
				t.Errorf("%d bytes before, %d after", before, after)
			}
		})
	}
}

// F18: long messages that have their receives arrive although messages posted before them
// are longer than what the target keeps as unexpected.
func TestF18LongMessagePassesRefusedOnes(t *testing.T) {
	for _, c := range []struct {
		refused, n, pdcs int
		want             bool
	}{
		{1, 20 << 10, 0, true}, {1, 1 << 20, 0, true}, {3, 20 << 10, 0, true}, {3, 1 << 20, 0, true},
		{4, 20 << 10, 0, false}, // one more than there are extra PDCs
		{1, 20 << 10, 1, false}, // no other PDC can be had
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p := newPipe(t, func(cfg *Config) {
				cfg.UnexpectedBytes, cfg.UnexpectedShare, cfg.MaxPDCs, cfg.DeferrableMin = 8<<20, 0.25, c.pdcs, -1
			})
			n, refused, want := c.n, c.refused, c.want
			p.post(p.b, Op{Kind: OpTRecv, Tag: 9, Buf: make([]byte, n), Context: "wanted"})
			for i := range refused {
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: uint64(i), Buf: make([]byte, 3<<20)})
			}
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 9, Buf: make([]byte, n)})
			arrived := false
			run := func(until func() bool) bool {
				for end := p.now + time.Second; !until() && p.now < end; p.now += 100 * time.Microsecond {
					for _, f := range []*FEP{p.a, p.b} {
						f.Advance(p.now)
					}
					p.exchange()
					for e := p.b.NextEvent(); e != nil; e = p.b.NextEvent() {
						arrived = arrived || e.Context == "wanted" && e.Cause == 0
					}
				}
				return until()
			}
			if got := run(func() bool { return arrived }); got != want {
				t.Errorf("%d bytes behind %d that are refused: arrived %v, want %v", n, refused, got, want)
			}
			for i := refused - 1; i >= 0; i-- {
				p.post(p.b, Op{Kind: OpTRecv, Tag: uint64(i), Buf: make([]byte, 3<<20)})
			}
			for e := p.a.NextEvent(); e != nil; e = p.a.NextEvent() {
			}
			if !run(func() bool { return arrived && p.a.Sends() == 0 }) {
				t.Errorf("%d bytes behind %d that were refused: %d sends are still open", n, refused, p.a.Sends())
			}
			p.checkLanes(p.a, "at the end")
			for range 3 {
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 9, Buf: make([]byte, n)})
			}
			for i, pdc := range p.a.peers[p.toB].long {
				if pdc == nil {
					continue
				}
				if got, want := p.a.lanes[pdc.Slot].q.len(), max(3-3*i, 0); got != want {
					t.Errorf("with nothing refused PDC %d has %d messages, want %d", i, got, want)
				}
			}
		})
	}
}
