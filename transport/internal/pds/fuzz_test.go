package pds

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// FuzzReceive gives a Table whatever a member of its domain could send, with each way to
// establish PDCs. It checks what must always hold: no panic, counters that match the
// packets, a floor that only rises, bounds, and that no SYN opens a PDC that was open
// before.
func FuzzReceive(f *testing.F) {
	for how := range byte(3) {
		rng := rand.New(rand.NewPCG(uint64(how), 1))
		b := []byte{how}
		for range 600 {
			b = append(b, byte(rng.Uint32()))
		}
		f.Add(b)
		f.Add([]byte{how, 0, 1, 1, 2, 0, 4, 0, 9, 9, 3, 3, 5, 0x17, 0, 7, 7})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		next := func() int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0])
			b = b[1:]
			return v
		}
		how := Secure(next() % 3)
		x := newTable(t, func(c *Config) {
			c.Secure, c.StartPSN = how, nil
			c.MaxPending, c.MaxPendingPerSource, c.MaxPDCs, c.MaxRange, c.MPRange, c.TxWindow = 6, 3, 16, 40, 128, 64
		})
		tab := x.tab
		type life struct {
			key   fepKey
			start wire.PSN
		}
		open, over := map[*PDC]life{}, map[life]bool{}
		floor := uint64(0)
		whos := []uint64{0, initiatorWho, targetWho}
		// pdc picks one of the PDCs, nil if there is none.
		pdc := func() *PDC {
			n := next()
			for i := range tab.slots {
				if p := tab.slots[(i+n)%len(tab.slots)]; p != nil {
					return p
				}
			}
			return nil
		}
		for len(b) > 0 {
			op := next()
			if x.sender = whos[next()%3]; how == SecureNone {
				x.sender = 0
			}
			p := pdc()
			switch op % 10 {
			case 0:
				tab.Open(x.now, 1, peerAddr, wire.RUD+wire.Mode(next()%2), x.ccc)
			case 1:
				for range next() % 8 {
					if p != nil && p.initiator && p.CanPush(1000) {
						p.Push(x.now, piece.Piece{}, 1000, 0)
					}
				}
			case 2, 3:
				h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, ClearOff: -1, SPDCID: uint16(next() % 5), Flags: wire.FlagSYN}
				if next()%8 == 0 {
					h.Type = wire.TypeRODReq
				}
				from := peerAddr
				if next()%4 == 0 {
					from = otherAddr
				}
				h.PSNOffset = uint16(next() % 4)
				start := wire.PSN(tab.floor) + wire.PSN(next()%8) - 2
				if e := tab.asked(from, h.SPDCID); e != nil && next()%2 == 0 {
					start = e.start
				} else if p != nil && next()%2 == 0 {
					start = p.start
				}
				if op%10 == 3 && p != nil {
					h.Flags, h.PSNOffset, h.DPDCID, h.SPDCID = 0, 0, p.id, p.remoteID
					start = p.start + wire.PSN(next())
					if next()%8 != 0 { // near each other, and near the control packets
						h.Type, start = p.reqType(), p.start+wire.PSN(next()%16)
					}
				}
				h.PSN = start.Add(int(h.PSNOffset))
				in := x.in(from)
				in.CE = next()%9 == 0
				q, v := tab.ReceiveReq(in, &h)
				if q != nil && q.Peer == 0 {
					q.SetPeer(1, next()%2 == 0)
				}
				m := Meta{PSN: h.PSN, Size: 1000, Len: 900, AR: next()%2 == 0}
				switch {
				case v == Deliver && next()%4 == 0:
					q.Refuse(x.now, h.PSN, wire.NackNoSESMsgAvail)
				case v == Deliver:
					q.Accept(x.now, &m, &wire.Rsp{}, next()%4 == 0)
				case v == Keep:
					q.KeepEarly(x.now, &m, h.Next, []byte{1})
				}
				for q != nil {
					m, _, _, ok := q.NextEarly()
					if !ok {
						break
					}
					q.Accept(x.now, &m, &wire.Rsp{}, false)
					q.EarlyDone()
				}
			case 4:
				a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, SPDCID: uint16(next() % 3), SACKOff: int16(next() % 4), MPR: 1}
				if p != nil {
					a.DPDCID, a.CACK, a.AckPSNOff = p.id, p.tx.una+wire.PSN(next()%8)-2, int16(next()%8)-2
					if p.remoteID != 0 {
						a.SPDCID = p.remoteID
					}
				}
				switch next() % 4 {
				case 0:
					a.SACK = uint64(next())
				case 1:
					a.Type, a.Flags, a.EPSN = wire.TypeAck, wire.AckFlagEPSN, wire.PSN(next())<<24
				case 2:
					a.Req = wire.AckReq(next() % 3)
				}
				tab.ReceiveAck(x.in(peerAddr), &a, &wire.Rsp{})
			case 5, 6:
				n := wire.Nack{Type: wire.TypeNack, Code: wire.NackCode(next()), Payload: uint32(next()) << 20}
				if op%10 == 6 {
					n.Code = wire.NackNewStartPSN
				}
				if p != nil {
					n.DPDCID, n.PSN = p.id, p.tx.una+wire.PSN(next()%8)
					if next()%2 == 0 {
						n.SPDCID = p.remoteID
					}
				}
				tab.ReceiveNack(x.in(peerAddr), &n)
			case 7:
				c := wire.CP{Ctl: wire.CtlType(next() % 10), Payload: uint32(next()), Flags: wire.FlagAR}
				if p != nil {
					c.DPDCID, c.SPDCID, c.PSN = p.id, p.remoteID, p.start+wire.PSN(next()%16)
					c.Payload += uint32(p.start)
				}
				from := peerAddr
				if p != nil {
					from = p.remote
				}
				tab.ReceiveCP(x.in(from), &c)
			case 8:
				x.advance(time.Duration(next()*next()) * 100 * time.Microsecond)
			case 9:
				if p == nil {
					break
				}
				for p.CanResend() {
					p.Resend(x.now, 0)
				}
				for p.CtlOwed() {
					p.NextCtl(x.now)
				}
				for p.AckOwed() {
					p.nextAck(x.now)
				}
				x.loose()
				if p.initiator && next()%4 == 0 {
					tab.Close(x.now, p)
					tab.Drained(x.now, p)
				}
			}
			tab.checkPending(t)
			if tab.floor < floor {
				t.Fatalf("the floor sank from %#x to %#x", floor, tab.floor)
			}
			floor = tab.floor
			for p, l := range open {
				if p.state == Closed {
					delete(open, p)
					over[l] = true
				}
			}
			live := 0
			for _, p := range tab.slots {
				if p == nil {
					continue
				}
				live++
				p.checkCounts(t, p.tx.flight)
				if p.initiator {
					continue
				}
				l := life{tab.fepKey(p.remote, p.remoteID), p.start}
				if _, ok := open[p]; !ok && over[l] && how != SecureNone {
					t.Fatalf("%v was open before", p)
				}
				open[p] = l
				if how != SecureNone && p.Who() == 0 {
					t.Fatalf("%v belongs to nobody", p)
				}
			}
			if live != tab.Len() {
				t.Fatalf("%d PDCs, counted %d", live, tab.Len())
			}
		}
	})
}
