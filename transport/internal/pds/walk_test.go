package pds

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// A walkOwner counts what became of each packet.
type walkOwner struct {
	t    *testing.T
	out  map[uint32]bool // Piece.Msg of packets neither answered nor failed
	open map[uint32]bool
	late bool // the peer is silent from now on
}

func (w *walkOwner) end(r piece.Piece, what string) {
	if !w.out[r.Msg] {
		w.t.Fatalf("packet %d %s, but it was finished", r.Msg, what)
	}
	delete(w.out, r.Msg)
}
func (w *walkOwner) Noop(r piece.Piece) (piece.Piece, int) {
	return piece.Piece{Msg: r.Msg, Kind: piece.Noop}, 100
}

func (w *walkOwner) GiveUp(p *PDC, r piece.Piece, code wire.NackCode) (piece.Piece, int) {
	if r.Msg%2 == 0 && r.Kind == 0 {
		return piece.Piece{Msg: r.Msg, Kind: 1}, 80
	}
	w.end(r, "given up")
	return piece.Piece{}, 0
}
func (w *walkOwner) Expects(msg uint32) bool   { return msg%2 == 0 }
func (w *walkOwner) Awaits(p *PDC) bool        { return p.id%4 == 1 && !w.late }
func (w *walkOwner) Asked(p *PDC) bool         { return p.id%2 == 1 }
func (w *walkOwner) InboundOpen(p *PDC) bool   { return w.open[p.Slot] }
func (w *walkOwner) Known(netip.AddrPort) bool { return false }
func (w *walkOwner) Pending(p *PDC) bool       { return false }

func (w *walkOwner) heed(tab *Table) {
	for n := tab.NextNews(); n != nil; n = tab.NextNews() {
		switch n.Kind {
		case NewsAnswered:
			w.end(n.Piece, "answered")
		case NewsPassed:
			for _, msg := range n.Msgs {
				w.end(piece.Piece{Msg: msg}, "answered")
			}
		case NewsFailed:
			w.end(n.Piece, "failed")
		case NewsGone:
			delete(w.open, n.PDC.Slot)
		}
	}
}

// TestWalk gives a Table everything that a peer could send, near what it expects, and then
// nothing more. Every packet is answered or failed once, every PDC ends, nothing is left,
// and no timer is due at once again and again.
func TestWalk(t *testing.T) {
	for seed := range 100 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walk(t, uint64(seed)) })
		if t.Failed() {
			return
		}
	}
}

func walk(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	how := Secure(rng.IntN(3))
	x := newTable(t, func(c *Config) {
		c.Secure = how
		if how != SecureNone {
			c.StartPSN = nil
		}
		c.MaxPDCs, c.MPRange, c.TxWindow, c.EarlyBytes = 12, 128<<rng.IntN(2), 64<<rng.IntN(3), 20
		c.MaxPending, c.MaxPendingPerSource = 6, 5
		c.Paths = 1 + rng.IntN(2)
		if rng.IntN(2) == 0 {
			c.RNRTimeout = 20 * time.Millisecond
		}
		if rng.IntN(4) == 0 {
			c.MaxRange = 50
		}
	})
	x.ccc.window = 1000 * (1 + rng.IntN(200))
	w := &walkOwner{t: t, out: map[uint32]bool{}, open: map[uint32]bool{}}
	tab := x.tab
	tab.owner = w
	whos := []uint64{initiatorWho, initiatorWho, initiatorWho, initiatorWho, initiatorWho, 0, targetWho}
	msg := uint32(0)
	pick := func() *PDC {
		n := rng.IntN(16)
		for i := range tab.slots {
			if p := tab.slots[(i+n)%len(tab.slots)]; p != nil {
				return p
			}
		}
		return nil
	}
	// nearTx and nearRx return a PSN at or near one that matters in that direction.
	nearTx := func(p *PDC) wire.PSN {
		switch rng.IntN(8) {
		case 0:
			return p.tx.una
		case 1:
			return p.tx.nxt.Add(rng.IntN(3) - 2)
		case 2:
			return p.tx.una.Add(rng.IntN(5) - 3)
		case 3:
			return p.start.Add(rng.IntN(5) - 2)
		case 4:
			return p.tx.una.Add(rng.IntN(600) - 300)
		case 5:
			if rng.IntN(10) == 0 {
				return wire.PSN(rng.Uint32())
			}
		}
		if n := int(p.tx.nxt.Sub(p.tx.una)); n > 0 {
			return p.tx.una.Add(rng.IntN(n))
		}
		return p.tx.una
	}
	nearRx := func(p *PDC) wire.PSN {
		rx := p.rx
		if rx == nil {
			return p.start.Add(rng.IntN(7) - 3)
		}
		base := wire.PSN(rx.win.Base())
		switch rng.IntN(10) {
		case 0:
			return base.Add(rx.win.Size() + rng.IntN(5) - 3)
		case 1:
			return base.Add(-rx.win.Size() + rng.IntN(5) - 3)
		case 2:
			return base.Add(rng.IntN(2*rx.win.Size()) - rx.win.Size())
		case 3:
			return rx.rodNext.Add(rng.IntN(5) - 2)
		case 4:
			if rng.IntN(10) == 0 {
				return wire.PSN(rng.Uint32())
			}
		case 5:
			return rx.max.Add(rng.IntN(5) - 2)
		}
		return base.Add(rng.IntN(6))
	}
	loose := func() {
		for {
			if _, ok := tab.NextLoose(); !ok {
				return
			}
		}
	}
	drain := func(p *PDC, part bool) {
		for p.state != Closed && p.CanResend() {
			p.NextLostPiece()
			p.LostFresh()
			p.Resend(x.now, 0)
			if part && rng.IntN(3) == 0 {
				return
			}
		}
		for p.CtlOwed() {
			p.ProbeNext()
			p.NextCtl(x.now)
		}
		for p.AckOwed() {
			p.nextAck(x.now)
			if part && rng.IntN(3) == 0 {
				return
			}
		}
	}
	checkEarly := func(p *PDC) {
		for p != nil && p.state != Closed {
			m, _, _, ok := p.NextEarly()
			if !ok {
				return
			}
			if rng.IntN(6) == 0 {
				p.EarlyRefused(x.now, wire.NackNoSESMsgAvail)
				return
			}
			p.Accept(x.now, &m, &wire.Rsp{}, rng.IntN(10) == 0)
			p.EarlyDone()
		}
	}
	check := func(step int, op int) {
		w.heed(tab)
		flight := 0
		live := 0
		hold := 0
		for _, p := range tab.slots {
			if p == nil {
				continue
			}
			live++
			p.checkCounts(t, p.tx.flight)
			p.checkTx()
			if p.ccc != nil {
				for psn := p.tx.una; psn != p.tx.nxt; psn++ {
					if k := p.tx.at(psn); k.state == pktFlight {
						flight += int(k.size)
					}
				}
			}
			if p.tx.lost > 0 {
				p.NextLost()
			}
			if rx := p.rx; rx != nil {
				due := 0
				for _, s := range rx.stored[rx.head:] {
					if s.due {
						due++
					}
					if !rx.win.Test(uint32(s.psn)) {
						t.Fatalf("step %d op %d: %v stored but not received", step, op, s.psn)
					}
				}
				if due != rx.due {
					t.Fatalf("step %d op %d: %d due, counted %d", step, op, due, rx.due)
				}
				for _, k := range rx.early.list() {
					hold += len(k.b)
					if rx.win.Test(uint32(k.psn)) {
						t.Fatalf("step %d op %d: %v early and received", step, op, k.psn)
					}
					if p.state != Closed && k.psn.Before(rx.rodNext) {
						t.Fatalf("step %d op %d: early %v before next %v", step, op, k.psn, rx.rodNext)
					}
				}
				if p.mode == wire.ROD && !p.initiator && rx.win.Test(uint32(rx.rodNext)) && int(int32(uint32(rx.rodNext)-rx.win.Base())) < rx.win.Size() {
					t.Fatalf("step %d op %d: the next %v was received", step, op, rx.rodNext)
				}
			}
			if p.heapAt == never {
				t.Fatalf("step %d op %d: %v %v has no timer", step, op, p, p.state)
			}
		}
		if flight != x.ccc.inFlight {
			t.Fatalf("step %d op %d: %d bytes in flight, counted %d", step, op, flight, x.ccc.inFlight)
		}
		if hold != tab.earlyUsed {
			t.Fatalf("step %d op %d: %d bytes early, counted %d", step, op, hold, tab.earlyUsed)
		}
		if live != tab.Len() {
			t.Fatalf("step %d: live", step)
		}
	}
	mode := func() wire.Mode { return wire.RUD + wire.Mode(rng.IntN(2)) }
	steps := 100 + rng.IntN(1500)
	forge := rng.IntN(3) // 0 means hardly any forged packets
	for step := range steps {
		if x.sender = whos[rng.IntN(len(whos))]; how == SecureNone {
			x.sender = 0
		}
		p := pick()
		op := rng.IntN(16)
		switch op {
		case 0:
			if rng.IntN(4) == 0 {
				tab.Open(x.now, 1, peerAddr, mode(), x.ccc)
			}
		case 1, 2:
			for range rng.IntN(30) {
				switch {
				case p == nil:
				case p.initiator && p.CanPush(1000):
					msg++
					w.out[msg] = true
					p.Push(x.now, piece.Piece{Msg: msg}, 1000, 0)
					p.Header(nil)
				case !p.initiator && p.id%2 == 0 && p.rx.max != p.start-1:
					if p.ccc == nil {
						p.SetCCC(x.now, x.ccc)
					}
					if p.CanReturn(1000) {
						msg++
						w.out[msg] = true
						p.Push(x.now, piece.Piece{Msg: msg, Kind: piece.Return}, 1000, 0)
						p.ReturnHeader(x.now, nil)
					}
				}
			}
		case 3, 4, 5, 6: // a request
			h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, ClearOff: -1}
			from := peerAddr
			if p != nil && p.initiator && rng.IntN(3) == 0 { // return data
				h.Type, h.Next, h.DPDCID, h.SPDCID, h.PSN = p.reqType(), wire.NextRspData, p.id, p.remoteID, nearRx(p)
				if from = p.remote; p.remoteID == 0 {
					h.SPDCID = 77
				}
				if p.rx != nil {
					h.ClearOff = int16(p.rx.clear.Sub(h.PSN))
				}
			} else if p != nil && !p.initiator && rng.IntN(10) != 0 {
				h.Type, h.DPDCID, h.SPDCID, h.PSN = p.reqType(), p.id, p.remoteID, nearRx(p)
				from = p.remote
				h.ClearOff = int16(p.rx.clear.Sub(h.PSN))
				switch rng.IntN(6) {
				case 0:
					h.ClearOff = int16(p.rx.max.Sub(h.PSN))
				case 1:
					h.ClearOff = int16(wire.PSN(p.rx.win.Base()).Sub(h.PSN)) - 1
				}
				if h.ClearOff >= 0 && rng.IntN(10) != 0 {
					h.ClearOff = -1
					if h.PSN.Add(-1).After(p.rx.max) {
						h.ClearOff = int16(p.rx.max.Sub(h.PSN))
					}
				}
				if rng.IntN(5) == 0 {
					h.Flags, h.DPDCID = wire.FlagSYN, 0
					h.PSNOffset = uint16(h.PSN.Sub(p.start)) & 4095
				}
			} else {
				h.SPDCID, h.Flags = uint16(1+rng.IntN(8)), wire.FlagSYN
				if rng.IntN(2) == 0 {
					h.Type = wire.TypeRODReq
				}
				if rng.IntN(3) == 0 {
					from = otherAddr
				}
				h.PSNOffset = uint16(rng.IntN(4))
				start := wire.PSN(tab.floor) + wire.PSN(rng.IntN(8))
				if e := tab.asked(from, h.SPDCID); e != nil {
					start = e.start
				} else if how == SecureNone {
					start = testStart.Add(rng.IntN(4) * 1 << 20)
				}
				h.PSN = start.Add(int(h.PSNOffset))
			}
			if rng.IntN(4) == 0 {
				h.Flags |= wire.FlagRETX
			}
			in := x.in(from)
			in.CE = rng.IntN(9) == 0
			q, v := tab.ReceiveReq(in, &h)
			if q != nil && q.Peer == 0 {
				q.SetPeer(1, rng.IntN(2) == 0)
			}
			m := Meta{PSN: h.PSN, Size: 1000, Len: 900, AR: rng.IntN(2) == 0, Retx: h.Flags&wire.FlagRETX != 0}
			switch {
			case v == Deliver && rng.IntN(6) == 0:
				q.Refuse(x.now, h.PSN, wire.NackNoSESMsgAvail)
			case v == Deliver:
				q.Later(h.PSN)
				q.Accept(x.now, &m, &wire.Rsp{}, rng.IntN(8) == 0)
				if rng.IntN(8) == 0 {
					w.open[q.Slot] = !w.open[q.Slot]
				}
			case v == Keep:
				q.KeepEarly(x.now, &m, h.Next, []byte{1})
			}
			if rng.IntN(8) != 0 {
				checkEarly(q)
			}
		case 7, 8, 9: // an ACK
			if p == nil {
				break
			}
			a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, SPDCID: p.remoteID, DPDCID: p.id, MPR: uint8(1 + rng.IntN(2)), SACKOff: 1}
			if rng.IntN(20) == 0 {
				a.MPR = uint8(rng.IntN(3))
			}
			if a.SPDCID == 0 {
				a.SPDCID = 77
			}
			a.CACK = p.tx.cack
			switch rng.IntN(5) {
			case 0:
				a.CACK = nearTx(p)
			case 1:
				a.CACK = p.tx.una - 1
			case 2:
				a.CACK = p.tx.una.Add(rng.IntN(3))
			}
			a.AckPSNOff = int16(nearTx(p).Sub(a.CACK))
			if rng.IntN(2) == 0 {
				a.SACKOff = int16(nearTx(p).Sub(a.CACK))
				a.SACK = rng.Uint64() & rng.Uint64() >> rng.IntN(64)
			}
			if forge == 0 || rng.IntN(3) == 0 {
				if !a.CACK.Before(p.tx.nxt) {
					a.CACK = p.tx.nxt - 1
				}
				if !a.AckPSN().Before(p.tx.nxt) {
					a.AckPSNOff = 0
				}
				for i := range 64 {
					if psn := a.CACK.Add(int(a.SACKOff) + i); !psn.Before(p.tx.nxt) {
						a.SACK &^= 1 << i
					}
				}
			}
			a.CCState = uint64(wire.NewNSCC(uint16(rng.IntN(100)), uint32(rng.IntN(1000)), 0))
			switch rng.IntN(10) {
			case 0:
				a.Flags |= wire.AckFlagP
				a.AckPSNOff, a.ProbeOpaque, a.Next = 0, p.tx.probeID-uint16(rng.IntN(3)), wire.NextNone
			case 1:
				a.Type, a.SACK = wire.TypeAck, 0
			case 2:
				a.Req = wire.AckReq(rng.IntN(3))
			case 3:
				a.Flags |= wire.AckFlagRETX
			case 4:
				a.Flags |= wire.AckFlagM
			}
			rsp := &wire.Rsp{}
			if rng.IntN(12) == 0 {
				// ACKs name each packet but CACK stays, so the window may shut.
				a.Flags, a.SACK, a.CACK = 0, 0, p.tx.cack
				for psn := p.tx.una; p.state != Closed && psn != p.tx.nxt; psn++ {
					a.AckPSNOff = int16(psn.Sub(a.CACK))
					tab.ReceiveAck(x.in(p.remote), &a, rsp)
				}
				break
			}
			if msg, ok := x.receivePlain(p.remote, &a, rsp); ok {
				w.heed(tab)
				w.end(piece.Piece{Msg: msg}, "answered")
			} else {
				tab.ReceiveAck(x.in(p.remote), &a, rsp)
			}
		case 10, 11: // a NACK
			if p == nil {
				break
			}
			n := wire.Nack{Type: wire.TypeNack, Code: wire.NackCode(rng.IntN(0x1c)), PSN: nearTx(p), DPDCID: p.id}
			if rng.IntN(3) == 0 {
				n.Code = []wire.NackCode{9, 1, 2, 0x12, 0x0d, 0x17, 0x15, 0x0b}[rng.IntN(8)]
			}
			if n.Code > 0x0d && n.Code < 0x17 && n.Code != 0x12 && n.Code != 0x14 && n.Code != 0x15 && rng.IntN(3) != 0 {
				n.Code = 9
			}
			if rng.IntN(2) == 0 {
				n.SPDCID = p.remoteID
			}
			n.Payload = uint32(nearTx(p))
			if n.Code == 0x17 {
				n.Payload = rng.Uint32()
			}
			tab.ReceiveNack(x.in(p.remote), &n)
		case 12: // a control packet
			if p == nil {
				break
			}
			c := wire.CP{Ctl: wire.CtlType(rng.IntN(16)), Flags: wire.FlagAR, DPDCID: p.id, SPDCID: p.remoteID, PSN: nearRx(p), Payload: uint32(nearRx(p)), ProbeOpaque: uint16(rng.Uint32())}
			if c.Ctl == wire.CtlClose && rng.IntN(3) != 0 {
				c.Ctl = wire.CtlNoop
			}
			if c.Ctl == wire.CtlClearReq {
				c.Payload = uint32(nearTx(p))
			}
			tab.ReceiveCP(x.in(p.remote), &c)
			if rng.IntN(4) != 0 {
				checkEarly(p)
			}
		case 13:
			d := time.Duration(rng.IntN(1000)) * time.Microsecond
			switch rng.IntN(6) {
			case 0:
				d *= 10
			case 1:
				d *= 200
			}
			for end := x.now + d; ; {
				at := tab.NextTimeout()
				if at == 0 || at > end {
					x.now = end
					break
				}
				x.now = max(x.now, at)
				tab.Advance(x.now)
			}
		case 14:
			if p != nil {
				drain(p, true)
			}
			loose()
		case 15:
			if p == nil {
				break
			}
			switch rng.IntN(8) {
			case 0:
				tab.Close(x.now, p)
			case 1:
				tab.Drained(x.now, p)
			case 2:
				p.RequestClose(x.now)
			case 3:
				tab.Suspect(x.now, p, false)
			case 4:
				h := wire.Req{Type: p.reqType(), Next: wire.NextReqStd, PSN: nearRx(p), DPDCID: p.id, SPDCID: p.remoteID}
				tab.ReceiveTrimmed(x.in(p.remote), &h, wire.NackTrimmed, false)
			}
		}
		check(step, op)
	}
	// The peer is silent, or answers but says nothing that ends anything.
	stubborn := wire.NackCode(0)
	if x.sender = 0; how != SecureNone {
		x.sender = initiatorWho
	}
	if seed%2 == 1 {
		stubborn = []wire.NackCode{1, 2, 3, 7, 0x0a, 0x0b, 0x0d, 0x12, 0x14, 0x18, 0x1a, 0xfd, 0xfe}[rng.IntN(13)]
	}
	answer := func(p *PDC) {
		for n := 0; p.state != Closed && p.CanResend() && n < 300; n++ {
			a := p.Resend(x.now, 0)
			if !a.IsCP {
				tab.ReceiveNack(x.in(p.remote), &wire.Nack{Type: wire.TypeNack, Code: stubborn, PSN: a.Req.PSN, DPDCID: p.id, Payload: uint32(a.Req.PSN)})
			}
		}
		for p.state != Closed && p.CtlOwed() {
			if c, ok := p.NextCtl(x.now); ok && c.Ctl == wire.CtlProbe && p.initiator {
				tab.ReceiveAck(x.in(p.remote), &wire.Ack{Type: wire.TypeAckCC, Flags: wire.AckFlagP, CACK: p.tx.cack, SPDCID: p.remoteID, DPDCID: p.id, MPR: 1, SACKOff: 1, ProbeOpaque: c.ProbeOpaque}, nil)
			}
		}
	}
	clear(w.open)
	w.late = true
	silent := x.now
	end := x.now + 400*time.Second
	for tab.Len() > 0 && x.now < end {
		wakes := 0
		for sec := x.now + time.Second; x.now < sec && tab.Len() > 0; wakes++ {
			at := tab.NextTimeout()
			if at == 0 {
				t.Fatalf("%d PDCs without a timer", tab.Len())
			}
			x.now = max(x.now, at)
			tab.Advance(x.now)
			for _, p := range tab.slots {
				if p == nil {
					continue
				}
				if stubborn != 0 {
					answer(p)
				}
				if p.state == Closed {
					continue
				}
				checkEarly(p)
				drain(p, false)
				if p.state == Quiesce {
					tab.Drained(x.now, p)
				}
			}
			loose()
			if wakes > 20000 {
				t.Fatalf("timers due %d times a second", wakes)
			}
		}
		check(-1, 0)
		if len(w.out) != 0 && x.now > silent+90*time.Second {
			t.Fatalf("%d packets have no end, NACK %v", len(w.out), stubborn)
		}
	}
	for _, p := range tab.slots {
		if p != nil {
			t.Errorf("%v is %v for ever, %d outstanding", p, p.state, p.Outstanding())
		}
	}
	w.heed(tab)
	if len(w.out) != 0 || x.ccc.inFlight != 0 || tab.earlyUsed != 0 || tab.pending != 0 || tab.unknown != 0 || len(tab.sources) != 0 || len(tab.lives) != 0 {
		t.Fatalf("left: %d packets, %d bytes, %d early, %d pending, %d unknown, %d sources, %d syn", len(w.out), x.ccc.inFlight, tab.earlyUsed, tab.pending, tab.unknown, len(tab.sources), len(tab.lives))
	}
}
