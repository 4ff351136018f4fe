package transport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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

// A passed is a request that passed a pipe.
type passed struct {
	from *FEP
	pds  wire.Req
	ses  wire.ReqStd // if pds.Next is NextReqStd
	n    int         // bytes behind the headers
}

// requests returns a list of the requests that will pass a pipe.
func (p *pipe) requests() *[]passed {
	list := new([]passed)
	p.drop = func(from *FEP, b []byte) bool {
		x := passed{from: from}
		if t := wire.Type(b[0] >> 3); t != wire.TypeRUDReq && t != wire.TypeRODReq {
			return false
		}
		k, err := x.pds.Parse(b)
		if err == nil && x.pds.Next == wire.NextReqStd {
			var n int
			n, err = x.ses.Parse(b[k:])
			k += n
		}
		if err != nil {
			p.t.Fatal(err)
		}
		x.n = len(b) - k - 4 // the CRC
		*list = append(*list, x)
		return false
	}
	return list
}

func TestWhichPDCCarriesWhat(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Lanes = 2 })
	list := p.requests()
	for i, n := range []int{1 << 20, 1 << 20, 10_000} {
		p.post(p.b, Op{Kind: OpTRecv, Tag: uint64(i), Buf: make([]byte, n), Context: i})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: uint64(i), Buf: make([]byte, n), Ordered: i == 2, Context: i})
	}
	p.exchange()
	if got := p.events(p.a); len(got) != 3 {
		t.Fatalf("events %q", got)
	}
	p.events(p.b)
	first, last, pdcs := map[uint64]int{}, map[uint64]int{}, map[uint64]uint16{}
	for k, x := range *list {
		tag, off := x.ses.Match, uint32(0)
		if x.ses.Flags&wire.SESSOM == 0 {
			off = x.ses.MsgOff
		} else {
			first[tag], pdcs[tag] = k, x.pds.SPDCID
		}
		// S-SEG-06: the mode is that of the PDC. S-SEG-04: it is one for all of a message.
		want := wire.TypeRUDReq
		if tag == 2 {
			want = wire.TypeRODReq
		}
		if x.from != p.a || x.pds.Type != want || x.pds.SPDCID != pdcs[tag] || off > 0 && (*list)[last[tag]].ses.MsgOff >= off {
			t.Fatalf("packet %d of message %d: %v by PDC %d at %d", k, tag, x.pds.Type, x.pds.SPDCID, off)
		}
		last[tag] = k
	}
	// S-SEG-05: two messages are under way at a time, on two PDCs.
	if pdcs[0] == pdcs[1] || first[1] > last[0] {
		t.Errorf("PDCs %d and %d; the second message begins at packet %d, the first ends at %d", pdcs[0], pdcs[1], first[1], last[0])
	}
	p.checkIdle()
}

// S-DEF-11, S-SEG-05: what asks for a deferred message goes by a PDC of the target's own.
func TestRTRGoesByItsOwnPDC(t *testing.T) {
	p := newPipe(t, nil)
	list := p.requests()
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: pattern(100, 1), Level: LevelMatch, Context: "s"})
	p.turns(3)
	p.want(p.a)
	theirs := map[uint16]bool{}
	for _, x := range *list {
		if x.from != p.a {
			t.Fatalf("%v", &x.ses)
		}
		theirs[x.pds.SPDCID] = true
	}
	*list = nil
	buf := make([]byte, 100)
	p.post(p.b, Op{Kind: OpTRecv, Buf: buf, Context: "r"})
	p.turns(3)
	p.want(p.a, "s ok")
	p.want(p.b, "r ok len=100")
	if len(*list) == 0 {
		t.Fatal("nothing is asked for")
	}
	x := (*list)[0]
	if x.from != p.b || x.ses.Opcode != wire.OpDeferrableRTR || x.pds.Flags&wire.FlagSYN == 0 || x.n != 0 {
		t.Errorf("%v %v, %d bytes", &x.pds, &x.ses, x.n)
	}
	if theirs[x.pds.SPDCID] {
		t.Errorf("the PDC of the message, %d, carries it", x.pds.SPDCID)
	}
}

// S-RDV-61: what is left of a rendezvous send is read by a PDC that carries nothing else of the target.
func TestPullGoesByItsOwnPDC(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.RendezvousMin = 50_000 })
	list := p.requests()
	for i, n := range []int{8, 20_000} { // by a short lane and a long one
		p.post(p.a, Op{Kind: OpTRecv, Buf: make([]byte, n), Context: i})
		p.post(p.b, Op{Kind: OpTSend, Peer: p.toA, RI: 15, Buf: make([]byte, n), Context: i})
	}
	p.exchange()
	body, buf := pattern(70_000, 1), make([]byte, 70_000)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 5, Buf: buf, Context: "r"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 5, Buf: body, Context: "s"})
	for range 5 {
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
	if !bytes.Equal(buf, body) || p.a.Stats().Lent != 1 {
		t.Fatalf("it did not come, or not by rendezvous (%d)", p.a.Stats().Lent)
	}
	reads, others := map[uint16]bool{}, map[uint16]bool{}
	for _, x := range *list {
		switch {
		case x.from != p.b || x.pds.Next != wire.NextReqStd:
		case x.ses.Opcode == wire.OpRead:
			reads[x.pds.SPDCID] = true
		default:
			others[x.pds.SPDCID] = true
		}
	}
	for id := range reads {
		if others[id] {
			t.Errorf("PDC %d carries the read and others", id)
		}
	}
	if len(reads) != 1 || len(others) != 2 {
		t.Errorf("reads by %v, the rest by %v", reads, others)
	}
}

// S-SEG-07: the requests of a read carry nothing, ask for one MTU at most, and are answered one by one.
func TestRequestsOfARead(t *testing.T) {
	p := newPipe(t, nil)
	list := p.requests()
	mem, buf := pattern(5000, 1), make([]byte, 5000)
	readable(t, p.b, 5, mem)
	p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Key: 5, Buf: buf, Context: "r"})
	p.exchange()
	p.want(p.a, "r ok")
	var asked, came []int
	for k, x := range *list {
		switch {
		case x.from == p.b:
			came = append(came, x.n-wire.RspDataLen)
			if x.pds.Next != wire.NextRspData {
				t.Errorf("%v", &x.pds)
			}
			continue
		case x.ses.Opcode != wire.OpRead || x.n != 0 || x.ses.ReqLen != 5000:
			t.Errorf("request %d: %v with %d bytes", k, &x.ses, x.n)
		case x.ses.Flags&wire.SESSOM != 0:
			asked = append(asked, 1024)
		default:
			asked = append(asked, int(x.ses.PayloadLen))
		}
	}
	if want := []int{1024, 1024, 1024, 1024, 904}; !slices.Equal(asked, want) || !slices.Equal(came, want) {
		t.Errorf("asked for %v, came %v, want %v", asked, came, want)
	}
}

// S-RDV, S-SEG-05: an ordered message is announced by ROD. Its payload is read by RUD (the order is that of the
// announcement), on a PDC that no message and no other read uses.
func TestPayloadOfAnOrderedMessageIsReadByRUD(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.DeferrableMin, c.RendezvousMin = -1, 64<<10 })
	list := p.requests()
	const long, messages = 70_000, 3
	mem := pattern(5000, 1)
	readable(t, p.a, 5, mem)
	for i := range messages {
		for _, side := range []struct {
			from, to *FEP
			peer     PeerID
		}{{p.a, p.b, p.toB}, {p.b, p.a, p.toA}} {
			for tag, n := range []int{long, 100, 30_000} {
				name := fmt.Sprintf("%d %d", i, tag)
				p.post(side.to, Op{Kind: OpTRecv, Tag: uint64(tag), Buf: make([]byte, n), Context: name + " received"})
				p.post(side.from, Op{Kind: OpTSend, Peer: side.peer, RI: 15, Tag: uint64(tag), Buf: make([]byte, n), Ordered: tag == 0, Context: name})
			}
		}
		p.post(p.b, Op{Kind: OpRead, Peer: p.toA, RI: 15, Key: 5, Buf: make([]byte, len(mem)), Context: "read"})
	}
	for range 50 {
		p.exchange()
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
	}
	for _, f := range []*FEP{p.a, p.b} {
		got := p.events(f)
		for _, e := range got {
			if !strings.Contains(e, " ok") {
				t.Errorf("event %q", e)
			}
		}
		if want := 6 * messages; len(got) != want && len(got) != want+messages {
			t.Errorf("%d events: %q", len(got), got)
		}
	}
	type pdc struct {
		from *FEP
		id   uint16
	}
	pulls, others := map[pdc]bool{}, map[pdc]string{}
	var announced, asked [2]int
	for _, x := range *list {
		if x.pds.Next != wire.NextReqStd {
			continue // what is returned goes by the PDC of the read
		}
		at, side := pdc{x.from, x.pds.SPDCID}, 0
		if x.from == p.b {
			side = 1
		}
		switch {
		case x.ses.Opcode == wire.OpRendezvousTSend:
			if announced[side]++; x.pds.Type != wire.TypeRODReq {
				t.Errorf("an ordered message is announced by %v", x.pds.Type)
			}
			others[at] = "an announcement"
		case x.ses.Opcode == wire.OpRead && x.ses.Match != 5:
			if asked[side]++; x.pds.Type != wire.TypeRUDReq {
				t.Errorf("the payload of an ordered message is asked for by %v", x.pds.Type)
			}
			pulls[at] = true
		default:
			others[at] = x.ses.Opcode.String()
		}
	}
	for side := range announced {
		if announced[side] != messages || asked[side] < messages*long/1024 {
			t.Errorf("side %d: %d announcements and %d reads", side, announced[side], asked[side])
		}
	}
	if len(pulls) != 2 {
		t.Errorf("payload is read by %d PDCs, want one of each side", len(pulls))
	}
	for at := range pulls {
		if what := others[at]; what != "" {
			t.Errorf("PDC %d reads payload, and has %s", at.id, what)
		}
	}
	p.checkIdle()
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
