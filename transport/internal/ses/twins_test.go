package ses

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// longRequest is Request without the fast paths for plain messages.
func (s *SES) longRequest(src *Source, next wire.NextHdr, b []byte) *Result {
	s.src = *src
	r := &s.req
	n, err := r.Parse(b)
	if next != wire.NextReqStd || err != nil {
		return s.requestOther(next, b, r)
	}
	return s.request(r, b[n:])
}

// longAnswered is Answered without its fast path.
func (s *SES) longAnswered(h Handle, rsp *wire.Rsp) {
	_, m := s.lookup(h)
	if m == nil {
		s.Stats.Stale++
		return
	}
	m.open--
	if rsp != nil && (rsp.Opcode != wire.RspDefault || rsp.RC != wire.RCOK || rsp.MsgID != m.hdr.MsgID || rsp.List != wire.ListExpected) {
		s.result(m, rsp)
	}
	if m.open == 0 && m.phase == phaseSent {
		s.allAnswered(m)
	}
}

// A flight is a piece on its way, with the id of its message.
type flight struct {
	h  Handle
	p  piece.Piece
	id uint16
}

// A chronicle is what one of two twins did and saw.
type chronicle struct {
	*SES
	request  func(*Source, wire.NextHdr, []byte) *Result
	answered func(Handle, *wire.Rsp)
	take     func([]byte, piece.Piece) []byte

	queue  []Handle // messages of which Peek is to be called
	flying []flight
	log    []string
}

func (c *chronicle) say(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

// TestShortWaysOfMessages proves that twins, of which one has no fast paths, live the same
// random life as initiators and targets.
func TestShortWaysOfMessages(t *testing.T) {
	seeds := uint64(300)
	if invariant.On {
		seeds = 60 // it takes minutes under the race detector, and has one goroutine
	}
	for seed := range seeds {
		var logs [2][]string
		for i := range logs {
			logs[i] = chronicled(seed, i == 1)
		}
		for i := range max(len(logs[0]), len(logs[1])) {
			if i >= len(logs[0]) || i >= len(logs[1]) || logs[0][i] != logs[1][i] {
				t.Fatalf("seed %d: after\n%q\nthe short way\n%q\nthe long\n%q", seed, logs[0][max(0, i-5):i], logs[0][i:min(i+3, len(logs[0]))], logs[1][i:min(i+3, len(logs[1]))])
			}
		}
	}
}

func chronicled(seed uint64, long bool) []string {
	rng := rand.New(rand.NewPCG(seed, 3))
	cfg := testConfig()
	cfg.MaxSends, cfg.MaxRecvs, cfg.UnexpectedMsgs, cfg.UnexpectedShare, cfg.OpenPerPeer = 12, 12, 6, 1, 3
	cfg.RefuseTooLong = rng.IntN(3) == 0
	cfg.RNRTimeout = time.Duration(rng.IntN(3)) * 20 * time.Millisecond
	if rng.IntN(3) == 0 {
		cfg.MaxMessage = 100
	}
	full := false
	cfg.Admit = func() bool { return !full }
	x := New(cfg)
	c := &chronicle{SES: x, request: x.Request, answered: x.Answered, take: x.AppendPiece}
	if long {
		c.request, c.answered = x.longRequest, x.longAnswered
	}
	c.ids = new([1024]uint64)
	for i := range c.ids {
		c.ids[i] = ^uint64(0)
	}
	c.ids[len(c.ids)-1] >>= 16 // ids come again
	c.lastID = 0xfff0
	now := time.Second
	var ctxs []int
	pick := func() (ctx any) {
		if len(ctxs) == 0 {
			return nil
		}
		return ctxs[len(ctxs)-1-rng.IntN(min(len(ctxs), 20))]
	}
	mtu := 32
	for step := range 400 {
		now += time.Duration(rng.IntN(3000)) * time.Microsecond
		switch op := rng.IntN(20); op {
		case 0, 1, 2, 3: // a send
			s := Send{Tagged: rng.IntN(2) == 0, Tag: uint64(rng.IntN(3)), Buf: pattern([]int{0, 1, 20, 32, 33, 80, 120}[rng.IntN(7)]),
				HasData: rng.IntN(3) == 0, Data: rng.Uint64(), DeliveryComplete: rng.IntN(4) == 0, Copy: rng.IntN(5) == 0, Early: rng.IntN(3) == 0,
				Silent: rng.IntN(6) == 0, Ordered: rng.IntN(3) == 0, Target: self(c.SES), Peer: 1 + uint32(rng.IntN(2)), Context: step, Flags: uint64(rng.IntN(2)), Now: now}
			switch rng.IntN(6) {
			case 0:
				s.Buf, s.Iov = nil, [][]byte{s.Buf}
			case 1:
				s.Buf, s.Iov = nil, [][]byte{s.Buf, pattern(9)}
			}
			fence := rng.IntN(8) == 0
			h, err := c.sendOp(&s)
			c.say("%d: send %#x %v", step, h, err)
			if err != nil {
				break
			}
			ctxs = append(ctxs, step)
			if (fence || c.Fenced(0, s.Peer)) && c.Fence(h, fence) {
				c.say("fenced")
				break
			}
			c.queue = append(c.queue, h)
		case 4, 5, 6: // a piece, or all
			for n := rng.IntN(6); n >= 0 && len(c.queue) > 0; n-- {
				h := c.queue[0]
				p, ok := c.Peek(h, mtu)
				if !ok {
					n, held := c.Hold(h)
					c.say("%d: held %v %v", step, n, held)
					c.queue = c.queue[1:]
					continue
				}
				b := c.take([]byte{1, 2}, p)
				c.say("%d: piece %+v: %x", step, p, b)
				if p.Last() {
					c.queue = c.queue[1:]
				}
				c.flying = append(c.flying, flight{h, p, uint16(b[4])<<8 | uint16(b[5])})
				if rng.IntN(3) == 0 {
					c.say("again: %x", c.Append(nil, p))
				}
			}
		case 7, 8, 9, 10, 11: // answers
			for n := rng.IntN(5); n >= 0 && len(c.flying) > 0; n-- {
				i := 0
				if rng.IntN(3) == 0 {
					i = rng.IntN(len(c.flying))
				}
				f := c.flying[i]
				r := &wire.Rsp{RC: wire.RCOK, MsgID: f.id, JobID: c.cfg.JobID, ModLen: f.p.Len}
				end := true
				switch rng.IntN(24) {
				case 0:
					c.Failed(f.h, TimedOut, 0)
					r = nil
				case 1:
					p, ok := c.GiveUp(f.p, wire.NackNoSESMsgAvail)
					if c.say("%d: instead %+v %v", step, p, ok); ok {
						c.flying[i].p, end = p, false
					}
					r = nil
				case 2:
					r.Opcode, r.RC = wire.RspResponse, []wire.RC{wire.RCNoMatch, wire.RCDisabledGen, wire.RCUncorTrnsnt}[rng.IntN(3)]
				case 3:
					r.Opcode, r.RC, r.Gen = wire.RspResponse, wire.RCBadGeneration, uint8(rng.IntN(3))
				case 4:
					r.Opcode, r.RC = wire.RspResponse, wire.RCTooLong
				case 5:
					r.Opcode, r.List = wire.RspResponse, wire.ListOverflow
				case 6:
					r.Opcode = wire.RspNone
				case 7:
					r.RC = wire.RCNull
				case 8:
					r.MsgID++
				case 9:
					r.List = wire.List(rng.IntN(4))
				case 10, 11, 12, 13:
					c.answered(f.h, nil)
					r = nil
				}
				if r != nil {
					c.answered(f.h, r)
				}
				if end {
					c.flying = slices.Delete(c.flying, i, i+1)
				}
				if r != nil && r.Opcode == wire.RspResponse || rng.IntN(10) == 0 {
					c.say("late: %v", c.Response(1+uint32(rng.IntN(2)), &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK, MsgID: f.id}))
				}
			}
		case 12, 13: // a receive
			r := Recv{Tagged: rng.IntN(3) != 0, Tag: uint64(rng.IntN(3)), Buf: make([]byte, []int{0, 20, 40, 150}[rng.IntN(4)]), Context: step, Flags: uint64(rng.IntN(2)), Now: now}
			switch rng.IntN(8) {
			case 0:
				r.Ignore = uint64(rng.IntN(4))
			case 1:
				r.SourcePeer = 1 + uint32(rng.IntN(2))
			case 2:
				r.SourceInitiator = 16 + uint32(rng.IntN(2))
			case 3:
				r.Iov, r.Buf = [][]byte{r.Buf}, nil
			case 4:
				r.Iov, r.Buf = [][]byte{r.Buf, make([]byte, 7)}, nil
			case 5:
				r.Multi, r.MinFree = true, rng.IntN(30)
			case 6:
				r.Tagged, r.Look = true, Look(rng.IntN(6))
				if r.Look >= LookClaim {
					r.Context = pick()
				}
			}
			err := c.recvOp(&r)
			c.say("%d: receive: %v", step, err)
			if err == nil {
				ctxs = append(ctxs, step)
			}
		case 14, 15, 16: // requests
			for range rng.IntN(4) {
				r := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: single | wire.SESREL, MsgID: uint16(1 + rng.IntN(40)), JobID: c.cfg.JobID, PIDonFEP: c.cfg.PIDonFEP,
					RI: c.cfg.RI, Initiator: 16 + uint32(rng.IntN(2)), Match: uint64(rng.IntN(3))}
				body := pattern([]int{rng.IntN(60), rng.IntN(160)}[rng.IntN(2)])
				r.ReqLen = uint32(len(body))
				next := wire.NextReqStd
				switch rng.IntN(24) {
				case 0, 1, 2:
					r.Opcode = wire.OpSend
				case 3:
					r.Opcode = []wire.Opcode{wire.OpNoOp, wire.OpMsgError, 0x3f}[rng.IntN(3)]
				case 4:
					r.JobID++
				case 5:
					r.PIDonFEP++
				case 6:
					r.RI--
				case 7:
					r.Gen = 3
				case 8:
					r.Flags |= wire.SESIE
				case 9, 10, 11:
					r.Flags |= wire.SESHD | wire.SESDC
					r.HeaderData = rng.Uint64()
				case 12:
					r.Flags &^= wire.SESREL
				case 13:
					r.ReqLen++ // more than there is
				case 14:
					body = append(body, 1, 2, 3) // padded
				case 15:
					r.ReqLen = 2 * uint32(len(body))
					r.Flags &^= wire.SESEOM
				case 16:
					r.MsgOff, r.PayloadLen, r.ReqLen = uint32(len(body)), uint16(len(body)), 2*uint32(len(body))
					r.Flags &^= wire.SESSOM
				case 17:
					r.ReqLen = []uint32{1 << 31, 0xffffffff, 1<<32 - 44}[rng.IntN(3)] // T31
				case 18:
					next = wire.NextHdr(rng.IntN(8))
				}
				b := append(r.Append(nil), body...)
				if rng.IntN(20) == 0 {
					b = b[:rng.IntN(len(b))]
				}
				src := Source{Peer: 1 + uint32(rng.IntN(2)), PDC: uint32(rng.IntN(3)), Later: rng.IntN(8) == 0, Unproven: rng.IntN(8) == 0, Now: now}
				c.say("%d: %v: %+v", step, next, *c.request(&src, next, b))
			}
		case 17:
			c.Advance(now)
			for h, ok := c.Resend(); ok; h, ok = c.Resend() {
				c.say("%d: again %#x", step, h)
				c.queue = append(c.queue, h)
			}
		case 18:
			switch rng.IntN(6) {
			case 0, 1:
				h, ok := c.CancelSend(0, pick())
				c.say("%d: cancel %#x %v", step, h, ok)
				c.queue = slices.DeleteFunc(c.queue, func(q Handle) bool { return q == h })
			case 2, 3:
				c.say("%d: cancel %v", step, c.CancelRecv(0, pick()))
			case 4:
				c.PDCGone(uint32(rng.IntN(3)), TimedOut)
			case 5:
				if len(c.queue) == 0 || rng.IntN(2) == 0 {
					c.Advance(now + 30*time.Second)
					break
				}
				if h := c.queue[0]; slices.ContainsFunc(c.flying, func(f flight) bool { return f.h == h }) {
					c.Break(h, Aborted, 5)
				} else {
					c.Abandon(h, NoResource)
				}
				c.queue = c.queue[1:]
			}
		case 19:
			full = rng.IntN(3) == 0
			switch rng.IntN(300) {
			case 0:
				c.CancelAll()
				c.flying, c.queue = nil, nil
			case 1, 2:
				c.End()
				c.flying, c.queue = nil, nil
			}
		}
		for h, ok := c.Unfenced(); ok; h, ok = c.Unfenced() {
			c.say("%d: free %#x", step, h)
			c.queue = append(c.queue, h)
		}
		for n := rng.IntN(6); n > 0; n-- {
			e := c.Event()
			if e == nil {
				break
			}
			o := *e
			o.Buf = nil
			c.say("%d: %+v %v %x", step, o, e.Buf == nil, e.Buf)
			*e = Event{Len: -1, Context: "old", HasData: true, OverLen: 9, Multi: true, Released: true, Unknown: true, Nack: 1, RC: 1} // who takes a place sets all of it
		}
		msgs, bytes := c.Unexpected()
		c.say("%d: %d %d %d %d %d %d %v %+v", step, c.Sends(), c.Recvs(), msgs, bytes, c.InProgress(), c.Events(), c.NextTimeout(), c.Stats)
		for i := range c.sends.used { // as after 65,000 messages in one place
			if m := c.sends.at(i); m.phase == phaseFree && m.serial == 9 {
				m.serial = 0xfffd
			}
		}
	}
	c.CancelAll()
	for e := c.Event(); e != nil; e = c.Event() {
		c.say("%v %v", e.Context, e.Cause)
	}
	c.say("%d %d %v", c.Sends(), c.Recvs(), c.Idle())
	return c.log
}
