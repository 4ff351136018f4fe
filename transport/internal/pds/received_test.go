package pds

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// recv delivers request i as the peer's PDC 9 sends it, and executes it if the Table says
// so. It returns the action.
func (x *pdcTest) recv(i int, opts ...func(*wire.Req)) Action {
	x.t.Helper()
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: x.psn(i), ClearOff: int16(-1 - i), SPDCID: 9}
	if x.p == nil || !x.p.proven {
		h.Flags |= wire.FlagSYN
		h.PSNOffset = uint16(i)
	} else {
		h.DPDCID = x.p.id
	}
	gtd := false
	for _, o := range opts {
		o(&h)
	}
	if h.PDCInfo == 1 { // the script's mark for "guaranteed response"
		gtd, h.PDCInfo = true, 0
	}
	p, v := x.tab.ReceiveReq(x.in(peerAddr), &h)
	if p != nil {
		x.p = p
		if p.Peer == 0 {
			p.SetPeer(1, true)
		}
	}
	m := Meta{PSN: h.PSN, Size: 1000, Len: 900, AR: h.Flags&(wire.FlagAR|wire.FlagSYN) != 0, Retx: h.Flags&wire.FlagRETX != 0, Late: x.paused, Waited: x.waited}
	switch v {
	case Deliver:
		x.say("deliver %d", i)
		p.Accept(x.now, &m, &wire.Rsp{RC: wire.RCOK, MsgID: uint16(i)}, gtd)
	case Keep:
		p.KeepEarly(x.now, &m, h.Next, []byte{byte(i)})
	}
	for p != nil {
		m, _, b, ok := p.NextEarly()
		if !ok {
			break
		}
		x.say("deliver %d", b[0])
		p.Accept(x.now, &m, &wire.Rsp{RC: wire.RCOK, MsgID: uint16(b[0])}, false)
		p.EarlyDone()
	}
	return v
}

func ar(h *wire.Req)  { h.Flags |= wire.FlagAR }
func rod(h *wire.Req) { h.Type = wire.TypeRODReq }
func retx(h *wire.Req) {
	h.Flags |= wire.FlagRETX | wire.FlagAR
}
func gtd(h *wire.Req) { h.PDCInfo = 1 }
func noSyn(h *wire.Req) {
	h.Flags &^= wire.FlagSYN
	h.PSNOffset = 0
}
func clearTo(i int) func(*wire.Req) {
	return func(h *wire.Req) { h.ClearOff = int16(testStart.Add(i).Sub(h.PSN)) }
}

// newTarget makes the target PDC with packet 0 and lets the initiator prove itself, so that
// later packets come without SYN.
func newTarget(t *testing.T, opts ...func(*wire.Req)) *pdcTest {
	x := newTable(t, nil)
	x.recv(0, opts...)
	x.p.markProven()
	x.acks()
	x.forget()
	return x
}

// acks removes all ACKs and returns them as strings.
func (x *pdcTest) acks() []string {
	var out []string
	for x.p.AckOwed() {
		a, rsp := x.p.nextAck(x.now)
		s := fmt.Sprintf("cack=%d", a.CACK.Sub(testStart))
		if a.Flags&wire.AckFlagP != 0 {
			s += fmt.Sprintf(" probe=%d", a.ProbeOpaque)
		} else {
			s += fmt.Sprintf(" psn=%d", a.AckPSN().Sub(testStart))
		}
		if a.Req == wire.ReqClear {
			s += " clear"
		}
		if a.SACK != 0 {
			s += fmt.Sprintf(" sack=%d:%b", a.CACK.Add(int(a.SACKOff)).Sub(testStart), a.SACK)
		}
		if a.Flags&wire.AckFlagRETX != 0 {
			s += " retx"
		}
		if rsp != nil && rsp.RC != wire.RCNull {
			s += " " + rsp.RC.String()
		}
		out = append(out, s)
	}
	return out
}

func (x *pdcTest) wantAcks(want ...string) {
	x.t.Helper()
	if got := x.acks(); fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("ACKs %q, want %q", got, want)
	}
}

func TestSynInAnyOrderMakesOnePDC(t *testing.T) {
	// UE 3.5.8: Start_PSN can be computed from each SYN packet, so whichever arrives first
	// makes the PDC.
	x := newTable(t, nil)
	x.recv(2)
	x.recv(0)
	x.recv(1)
	x.wantTold("deliver 2", "deliver 0", "deliver 1")
	if x.tab.Len() != 1 || x.p.StartPSN() != testStart {
		t.Errorf("%d PDCs, start %#x", x.tab.Len(), x.p.StartPSN())
	}
	x.wantAcks("cack=2 psn=1 OK")
}

func TestSynOfAnotherLifeIsRefused(t *testing.T) {
	// S-PDC-05: a SYN for a known {source, SPDCID} with another Start_PSN is from another
	// life: it gets NACK 15, never an ACK.
	x := newTarget(t)
	x.recv(1, func(h *wire.Req) { h.Flags |= wire.FlagSYN; h.DPDCID = 0; h.PSNOffset = 0 })
	x.wantTold()
	x.wantLoose("NACK INVALID_SYN")
	x.wantAcks()
}

func TestClosedLifeIsQuarantined(t *testing.T) {
	// S-PDC-06: late packets of a closed PDC get NACK 0E and never open a PDC until the
	// quarantine ends. Packets with another Start_PSN may open one.
	x := newTarget(t)
	id := x.p.ID()
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(1), SPDCID: 9, DPDCID: id})
	x.wantTold("gone 8")
	x.wantLoose("ACK cack=0 psn=1") // CACK one below the CLOSE, as the reference provider does
	x.p = nil
	x.recv(0)
	x.wantLoose("NACK INV_DPDCID")
	// A late CLOSE is answered, so that its sender knows that the PDC has ended.
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(1), SPDCID: 9, DPDCID: id})
	x.wantLoose("NACK INV_DPDCID")
	x.recv(5, func(h *wire.Req) { h.PSN += 1 << 20 })
	x.wantTold("deliver 5")
}

func TestDuplicatesGetTheDefaultResponse(t *testing.T) {
	// UE 3.5.12, S-RSM-03: a packet that was received before is answered and never executed again.
	// RETX is echoed.
	x := newTarget(t)
	x.recv(1, ar)
	x.wantAcks("cack=1 psn=1 OK")
	x.forget()
	x.recv(1, retx)
	x.recv(0, retx)
	x.wantTold()
	x.wantAcks("cack=1 psn=0 retx")
	x.recv(5) // above a hole
	x.forget()
	x.recv(5, retx)
	x.wantTold()
	if x.tab.Stats.RxDup != 3 {
		t.Errorf("%d duplicates counted", x.tab.Stats.RxDup)
	}
}

func TestOutOfWindowIsRefused(t *testing.T) {
	// UE 3.5.12: PSNs outside [base − MP_RANGE, base + MP_RANGE) are refused.
	x := newTarget(t)
	x.recv(300)
	x.wantLoose("NACK PSN_OOR_WINDOW")
	x.recv(-300)
	x.wantLoose("NACK PSN_OOR_WINDOW")
	x.wantTold()
}

func TestAckTriggers(t *testing.T) {
	// UE 3.5.12: AR, a retransmission, or 16 KiB since the last ACK make an ACK due, where
	// a packet counts at least 1 KiB. Other ACKs are coalesced.
	x := newTarget(t)
	for i := 1; i <= 15; i++ {
		x.recv(i)
	}
	x.wantAcks()
	x.recv(16)
	x.wantAcks("cack=16 psn=16 OK")
	x.recv(17, ar)
	x.wantAcks("cack=17 psn=17 OK")
	x.recv(18, retx)
	x.wantAcks("cack=18 psn=18 retx OK")
}

func TestSackShowsWhatIsAboveTheHole(t *testing.T) {
	// UE 3.5.12: bit i of the bitmap is base + i, least significant bit first.
	x := newTarget(t)
	x.recv(2)
	x.recv(4, ar)
	x.wantAcks("cack=0 psn=4 sack=1:1010 OK")
}

func TestSackSweepsTheWindow(t *testing.T) {
	// S-ACK-06: successive ACKs move the bitmap by 64 PSNs until it has covered everything
	// up to the highest PSN, then it begins at CACK again.
	x := newTarget(t)
	x.recv(2)
	x.recv(150, ar)
	x.wantAcks("cack=0 psn=150 sack=1:10 OK")
	x.recv(151, ar)
	x.wantAcks("cack=0 psn=151 OK") // 65…128: nothing
	x.recv(152, ar)
	x.wantAcks("cack=0 psn=152 sack=129:111000000000000000000000 OK")
	x.recv(153, ar)
	x.wantAcks("cack=0 psn=153 sack=1:10 OK")
}

func TestGuaranteedResponsesHoldTheCACK(t *testing.T) {
	// UE 3.5.20.1, S-RSP-01: a guaranteed response has its own ACK with REQ=CLEAR, is sent again for
	// a duplicate, and holds back CACK until it is cleared.
	x := newTarget(t)
	x.recv(1, gtd)
	x.recv(2, gtd)
	x.recv(3, ar)
	x.wantAcks("cack=0 psn=1 clear sack=1:111 OK", "cack=0 psn=2 clear sack=1:111 OK", "cack=0 psn=3 sack=1:111 OK")
	x.recv(2, retx)
	x.wantAcks("cack=0 psn=2 clear sack=1:111 retx OK")
	x.recv(4, ar, clearTo(1))
	x.wantAcks("cack=1 psn=4 sack=2:111 OK")
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClear, Payload: uint32(x.psn(2)), SPDCID: 9, DPDCID: x.p.id})
	x.recv(5, ar, clearTo(2))
	x.wantAcks("cack=5 psn=5 OK")
	if len(x.p.rx.stored) != 0 {
		t.Error("responses are still stored")
	}
}

func TestLostClearIsAskedFor(t *testing.T) {
	// T12: a target asks for a CLEAR that does not come, and gives the PDC up with the
	// peer.
	x := newTarget(t)
	x.recv(1, gtd)
	x.acks()
	for len(x.tab.heap) > 0 && x.tab.Stats.CPTx[wire.CtlClearReq] == 0 {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	x.wantLoose("CP CLEAR_REQ")
	x.wantAcks("cack=0 psn=1 clear sack=1:1 OK")
	for x.p.state != Closed {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
		x.loose()
	}
	if x.now > 45*time.Second {
		t.Errorf("gave up at %v", x.now)
	}
}

func TestClearOfUnsentIsDropped(t *testing.T) {
	// T9: a sender cannot clear what this side never received.
	x := newTarget(t)
	x.recv(1, clearTo(1))
	x.recv(2, clearTo(5))
	x.wantTold()
	if x.tab.Stats.DropUnsent != 2 {
		t.Errorf("%d dropped", x.tab.Stats.DropUnsent)
	}
}

func TestRODReleasesInOrder(t *testing.T) {
	// S-ROD-01: ROD packets reach the message layer in the order of PSN. Early ones wait,
	// and the SACK shows them.
	x := newTarget(t, rod)
	x.recv(2, rod)
	x.recv(3, rod)
	x.wantTold()
	x.wantAcks("cack=0 psn=0 sack=1:110")
	x.recv(1, rod)
	x.wantTold("deliver 1", "deliver 2", "deliver 3")
	x.wantAcks("cack=3 psn=3 OK")
}

func TestRODWithoutRoomGoesBack(t *testing.T) {
	// UE 3.5.12.7: an early packet for which there is no room is refused with ROD_OOO.
	x := newTable(t, func(c *Config) { c.EarlyBytes = 1 })
	x.recv(0, rod)
	x.p.markProven()
	x.acks()
	x.forget()
	x.recv(2, rod)
	x.recv(3, rod)
	x.wantLoose("NACK ROD_OOO")
	x.recv(2, rod) // waits already
	x.wantLoose()
	x.recv(1, rod)
	x.wantTold("deliver 1", "deliver 2")
}

func TestModeMismatchIsRefused(t *testing.T) {
	// F31: a RUD packet on a ROD PDC is refused.
	x := newTarget(t, rod)
	x.recv(1)
	x.wantTold()
	x.wantLoose("NACK PDC_MODE_MISMATCH")
}

func TestUnknownPDCIsAnswered(t *testing.T) {
	// UE 3.5.8: a request without SYN for no PDC gets NACK 0E with spdcid 0; an
	// ACK for no PDC gets nothing (T28).
	x := newTable(t, nil)
	x.recv(0, noSyn, func(h *wire.Req) { h.DPDCID = 5 })
	x.wantLoose("NACK INV_DPDCID")
	x.tab.ReceiveAck(x.in(peerAddr), &wire.Ack{Type: wire.TypeAck, DPDCID: 5}, nil)
	x.wantLoose()
}

func TestAckReqAnswers(t *testing.T) {
	// UE 3.5.16: an ACK_REQ for a received PSN gets its response, for a PSN never received
	// NACK 12.
	x := newTarget(t)
	x.recv(1, gtd)
	x.acks()
	ask := func(i int) {
		x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlAckReq, PSN: x.psn(i), SPDCID: 9, DPDCID: x.p.id})
	}
	ask(1)
	x.wantAcks("cack=0 psn=1 clear sack=1:1 OK")
	ask(0)
	x.wantAcks("cack=0 psn=0 sack=1:1")
	ask(2)
	x.wantLoose("NACK PKT_NOT_RCVD")
}

func TestProbeIsAnswered(t *testing.T) {
	// UE 3.5.16: a PROBE is answered by an ACK_CC with P, its opaque value and
	// the bitmap from the PSN it names.
	x := newTarget(t)
	x.recv(2)
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlProbe, ProbeOpaque: 42, Payload: uint32(x.psn(1)), SPDCID: 9, DPDCID: x.p.id})
	x.wantAcks("cack=0 probe=42 sack=1:10")
}

func TestPendingIsReaped(t *testing.T) {
	// UE 3.5.8: a PDC of which no packet was accepted ends after New_PDC_Time.
	x := newTable(t, nil)
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: testStart, ClearOff: -1, SPDCID: 9}
	p, v := x.tab.ReceiveReq(x.in(peerAddr), &h)
	if v != Deliver {
		t.Fatalf("action %v", v)
	}
	p.SetPeer(1, true)
	p.Refuse(x.now, testStart, wire.NackNoSESMsgAvail)
	x.wantLoose("NACK NO_SES_MSG_AVAIL")
	x.advance(2 * time.Second)
	x.wantTold("gone 8")
	if x.tab.Len() != 0 || x.tab.pending != 0 || len(x.tab.sources) != 0 {
		t.Errorf("left: %d PDCs, %d pending, %d sources", x.tab.Len(), x.tab.pending, len(x.tab.sources))
	}
}

func TestSynFloodIsBounded(t *testing.T) {
	// T1: a flood of SYNs makes at most 10 pending PDCs per source here, and honest PDCs
	// stay.
	x := newTarget(t)
	honest := x.p
	for i := range 200 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(i << 20), ClearOff: -1, SPDCID: uint16(100 + i)}
		p, v := x.tab.ReceiveReq(x.in(otherAddr), &h)
		if v == Deliver {
			p.SetPeer(2, false)
			p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100, AR: true}, &wire.Rsp{}, false)
		}
	}
	if x.tab.Len() != 11 || honest.State() != Established {
		t.Errorf("%d PDCs, the honest one is %v", x.tab.Len(), honest.State())
	}
	if x.tab.Stats.DropLimit != 190 {
		t.Errorf("%d refused", x.tab.Stats.DropLimit)
	}
}

// stranger receives a SYN packet from address i. It returns the PDC that it opened, nil if there was no room.
func (x *pdcTest) stranger(i int) *PDC {
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: testStart, ClearOff: -1, SPDCID: 7}
	p, v := x.tab.ReceiveReq(x.in(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 4793)), &h)
	if v == Deliver {
		p.SetPeer(uint32(100+i), false)
		p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100, AR: true}, &wire.Rsp{}, false)
	}
	return p
}

func TestT1StrangersAreToldSeldom(t *testing.T) {
	// T1: strangers for whom there is no room are told so 100 times in 100 ms, which takes
	// nothing from other answers.
	x := newTable(t, nil)
	for i := range 20 {
		if x.stranger(i) == nil {
			t.Fatalf("stranger %d found no room", i)
		}
	}
	told := func(n uint64) {
		t.Helper()
		if got := x.tab.Stats.NacksTx[wire.NackNoPDCAvail]; got != n {
			t.Errorf("%d were told at %v, want %d", got, x.now, n)
		}
	}
	for i := range 150 {
		x.stranger(1000 + i)
	}
	told(100)
	x.now += 20 * time.Millisecond
	x.stranger(2000)
	told(100)
	x.tab.ReceiveReq(x.in(otherAddr), &wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: 1, ClearOff: -1, SPDCID: 9, DPDCID: 0x77})
	if n := x.tab.Stats.NacksTx[wire.NackInvDPDCID]; n != 1 {
		t.Errorf("%d answers to who names no PDC", n)
	}
	x.now += 80 * time.Millisecond
	x.stranger(2001)
	told(101)
	if st := x.tab.Stats; st.DropLimit != 152 || st.DropRate != 51 {
		t.Errorf("%d had no room, of %d nobody was told", st.DropLimit, st.DropRate)
	}
}

func TestT1LateSYNWhileStrangersHaveNoRoom(t *testing.T) {
	// S-PDC-06: a late packet of a PDC that ended is told so in a flood, too. Who were told to
	// come again would be executed twice when its life is forgotten.
	x := newTable(t, nil)
	p := x.stranger(0)
	x.tab.remove(x.now, p, Reason{Why: WhyClosed})
	for i := range 20 {
		x.stranger(1 + i)
	}
	if x.stranger(30); x.tab.Stats.NacksTx[wire.NackNoPDCAvail] != 1 {
		t.Fatal("there is room")
	}
	x.stranger(0)
	if n := x.tab.Stats.NacksTx[wire.NackInvDPDCID]; n != 1 {
		t.Errorf("%d were told that their PDC ended, %d that there is no room", n, x.tab.Stats.NacksTx[wire.NackNoPDCAvail])
	}
}

func TestT1OpenMessagesOfStrangersAreSeldomLookedAt(t *testing.T) {
	// T1: strangers begin messages and never end them, so that their PDCs make no room. A flood
	// of others does not look at them for each of its packets.
	x := newTable(t, nil)
	var first *PDC
	for i := range 20 {
		p := x.stranger(i)
		x.open[p.Slot] = true
		if i == 0 {
			first = p
		}
	}
	x.now += x.tab.cfg.NewPDCTime
	x.looks = 0
	for i := range 1000 {
		if x.stranger(1000+i) != nil {
			t.Fatal("a PDC with an open message made room")
		}
	}
	if x.looks != 20 {
		t.Errorf("%d looks at 20 PDCs", x.looks)
	}
	// The message is whole: its PDC makes room within NewPDCTime.
	x.open[first.Slot] = false
	x.now += x.tab.cfg.NewPDCTime
	if x.stranger(3000) == nil || first.State() != Closed {
		t.Errorf("no room after the message; the first PDC is %v", first.State())
	}
}

func TestStoppedMessageEndsWithPeerTimeout(t *testing.T) {
	// F9, F25: a message that stopped in the middle ends after PeerTimeout.
	x := newTarget(t)
	x.open[x.p.Slot] = true
	x.recv(1, ar)
	x.forget()
	for x.p.state != Closed {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	if x.now < 41*time.Second || x.now > 42*time.Second {
		t.Errorf("ended at %v", x.now)
	}
	x.wantTold("gone 1")
}

func TestRefusedHoldsBackWhatIsLater(t *testing.T) {
	// docs/faults.md rule 5, F18: messages that were refused for lack of room (NACK 09)
	// come before later ones. Otherwise later messages get the room that becomes free,
	// refused ones fill the window, and neither side makes progress.
	x := newTarget(t)
	if x.p.Later(x.psn(5)) {
		t.Error("a hole alone holds something back")
	}
	x.p.Refuse(x.now, x.psn(1), wire.NackNoSESMsgAvail)
	x.p.Refuse(x.now, x.psn(3), wire.NackNoSESMsgAvail)
	for i, want := range map[int]bool{1: false, 2: true, 3: true, 9: true} {
		if got := x.p.Later(x.psn(i)); got != want {
			t.Errorf("packet %d is later: %v", i, got)
		}
	}
	x.p.rx.clear = x.psn(8) // an earlier life answered them
	if x.p.Later(x.psn(9)) {
		t.Error("waits for what was cleared")
	}
	x.p.rx.clear, x.p.rx.refused = x.psn(0), true
	x.recv(1)
	x.recv(2)
	if x.p.Later(x.psn(3)) || !x.p.Later(x.psn(4)) {
		t.Error("packet 3 is next, and 4 behind it")
	}
	x.recv(3)
	if x.p.Later(x.psn(9)) {
		t.Error("everything that was refused is here, and yet something is held back")
	}
	x.p.Refuse(x.now, x.psn(4), wire.NackPktNotRcvd)
	if x.p.Later(x.psn(9)) {
		t.Error("another NACK holds something back")
	}
}

// S-RSM-63: what finds no room is turned away when it has filled a quarter of the window, and the first
// of it has been missing for a while; then for a second. On a ROD PDC it never is.
func TestTurnsAway(t *testing.T) {
	x := newTarget(t)
	p, part := x.p, x.tab.cfg.MPRange/standPart
	refused := func(i int) bool {
		if p.TurnsAway(x.now, x.psn(i)) {
			return true
		}
		p.Refuse(x.now, x.psn(i), wire.NackNoSESMsgAvail)
		return false
	}
	wait := func(d time.Duration) { x.now += d }
	for i := 1; i <= part; i++ {
		if refused(i) {
			t.Fatalf("packet %d is turned away at once", i)
		}
	}
	if wait(standTime); refused(2) {
		t.Error("turned away, though a quarter is not full")
	}
	if !refused(part+1) || !refused(1) {
		t.Error("not turned away, though a quarter has stood")
	}
	x.recv(1)
	x.recv(2)
	if wait(turnTime / 2); !refused(3) {
		t.Error("turned away for less than a second")
	}
	if wait(turnTime / 2); refused(3) {
		t.Error("still turned away, though the window has moved since")
	}
	x.recv(3)
	if refused(part + 9) {
		t.Error("turned away while the window moves")
	}
	p.mode = wire.ROD
	wait(time.Second)
	if refused(part+9) || refused(4) {
		t.Error("turned away where it was to come in order")
	}
}

func TestFirstIsTheFirstThatIsMissing(t *testing.T) {
	// docs/faults.md rule 5: what fills the window from its beginning on must find a place.
	x := newTarget(t)
	x.recv(2)
	for i, want := range map[int]bool{1: true, 3: false, 9: false} {
		if got := x.p.First(x.psn(i)); got != want {
			t.Errorf("packet %d is the first that is missing: %v", i, got)
		}
	}
	x.recv(1)
	if !x.p.First(x.psn(3)) {
		t.Error("packet 3 is not the first that is missing")
	}
	x.p.mode = wire.ROD
	if x.p.First(x.psn(3)) {
		t.Error("ROD messages have their order, and need no place more")
	}
}

func TestWhoAnswersIsNotPending(t *testing.T) {
	// The bounds of PENDING concern only PDCs that are not proven. More clients of one host
	// than the bound each send one message, then a CLEAR, a PROBE or an ACK_REQ with our
	// PDCID, or are named by the application. All are accepted, and when they are gone the
	// counts are 0.
	for _, how := range []wire.CtlType{wire.CtlClear, wire.CtlProbe, wire.CtlAckReq, 99} {
		x := newTable(t, nil)
		for i := range 40 {
			h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: testStart, ClearOff: -1, SPDCID: uint16(100 + i)}
			p, v := x.tab.ReceiveReq(x.in(otherAddr), &h)
			if v != Deliver {
				t.Fatalf("%v: client %d is refused: %v", how, i, x.loose())
			}
			p.SetPeer(2, how == 99)
			p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100, AR: true}, &wire.Rsp{}, false)
			if how != 99 {
				x.tab.ReceiveCP(x.in(otherAddr), &wire.CP{Ctl: how, PSN: h.PSN, SPDCID: h.SPDCID, DPDCID: p.id, Payload: uint32(testStart)})
			}
		}
		x.tab.Abort(x.now)
		if x.tab.pending != 0 || x.tab.unknown != 0 || len(x.tab.sources) != 0 {
			t.Errorf("%v: left are %d pending, %d unknown, %d sources", how, x.tab.pending, x.tab.unknown, len(x.tab.sources))
		}
	}
}

func TestWaitingForAHoleIsNoRoundTrip(t *testing.T) {
	// UE 3.5.20.3: an ACK for a ROD packet that waited here for an earlier one says so (the
	// highest service time), otherwise the congestion window would shrink because of it.
	x := newTarget(t, rod)
	x.recv(2, rod, ar)
	x.acks()
	x.now += 50 * time.Millisecond
	x.recv(1, rod, ar)
	a, _ := x.p.nextAck(x.now)
	if a.AckPSN() != x.psn(2) {
		t.Fatalf("ACK %v", &a)
	}
	if st := wire.ParseNSCC(a.CCState); st.ServiceTime != 0xffff {
		t.Errorf("service time %d", st.ServiceTime)
	}
}

func TestPauseOfTheTargetIsSaid(t *testing.T) {
	// UE 3.6.13: the time that a packet waited for its target to look is not the delay of
	// the path. The target does not know that time, so it reports the highest service time.
	const beyond = 0xffff
	x := newTarget(t)
	want := func(what string, st uint16) {
		t.Helper()
		if !x.p.AckOwed() {
			t.Fatalf("%s: no ACK", what)
		}
		for x.p.AckOwed() {
			if a, _ := x.p.nextAck(x.now); a.NSCC().ServiceTime() != st {
				t.Errorf("%s: service time %d, want %d", what, a.NSCC().ServiceTime(), st)
			}
		}
	}
	probe := func() {
		x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlProbe, ProbeOpaque: 4, Payload: uint32(x.psn(1)), SPDCID: 9, DPDCID: x.p.id})
	}
	next := func() { // what a FEP does with the next request in order
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagAR, PSN: wire.PSN(x.p.rx.win.Base()), ClearOff: -1, SPDCID: 9, DPDCID: x.p.id}
		if p := x.tab.ReceiveNext(x.in(peerAddr), (*wire.PlainReq)(h.Append(nil))); p != x.p {
			t.Fatal("not the next one")
		}
		x.p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100, AR: true, Next: true, Late: x.paused, Waited: x.waited}, &wire.Rsp{}, false)
	}
	x.paused = true
	x.recv(1, ar)
	want("request", beyond)
	next()
	want("next request", beyond)
	probe()
	want("probe", beyond)
	x.paused = false
	x.recv(3, ar)
	want("request", 0)
	next()
	want("next request", 0)
	probe()
	want("probe", 0)
	// The time in the socket is known: it is a part of the service time. A PROBE has none.
	x.waited = 128 * 50
	x.recv(5, ar)
	want("request that waited", 50)
	next()
	want("next request that waited", 50)
	probe()
	want("probe that waited", beyond)
}

func TestEveryProbeOfABurstIsAnswered(t *testing.T) {
	// UE 3.5.16: each PROBE is answered, in order, with the base that it asks for.
	x := newTarget(t)
	for i := range maxBurst {
		x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlProbe, ProbeOpaque: uint16(40 + i), Payload: uint32(x.psn(1)), SPDCID: 9, DPDCID: x.p.id})
	}
	var want []string
	for i := range maxBurst {
		want = append(want, fmt.Sprintf("cack=0 probe=%d", 40+i))
	}
	x.wantAcks(want...)
}

func TestT39MaxPDCs(t *testing.T) {
	// T39: MaxPDCs bounds the PDCs of both kinds together, and leaves some of them to each kind: two of five. Beyond it this
	// side opens none and others get NACK 04; with security no Start_PSN is drawn for them.
	for _, how := range []Secure{SecureNone, SecureZeroRTT, SecureOneRTT} {
		x := newTable(t, func(c *Config) { c.MaxPDCs, c.Secure = 5, how })
		if how != SecureNone {
			x.sender = 1
		}
		syn := func(spdcid uint16, start wire.PSN) {
			h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: start, ClearOff: -1, SPDCID: spdcid}
			if p, v := x.tab.ReceiveReq(x.in(peerAddr), &h); v == Deliver {
				p.SetPeer(1, true)
				p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100}, &wire.Rsp{}, false)
			}
		}
		accept := func(spdcid uint16) {
			syn(spdcid, 1<<20)
			if how == SecureOneRTT {
				if e := x.tab.asked(peerAddr, spdcid); e != nil {
					syn(spdcid, e.start)
				}
			}
		}
		open := func() *PDC { return x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc) }
		p := open()
		open()
		for id := range uint16(3) {
			accept(100 + id)
		}
		x.loose()
		accept(200)
		x.wantLoose("NACK NO_PDC_AVAIL")
		if open() != nil || x.tab.Len() != 5 || x.tab.pend.len() != 0 || x.tab.Stats.DropLimit != 1 {
			t.Fatalf("%v: %d PDCs, %d pending", how, x.tab.Len(), x.tab.pend.len())
		}
		x.tab.fail(x.now, p, Reason{Why: WhyTimeout})
		accept(200) // others have three
		if x.tab.Len() != 4 || open() == nil || open() != nil {
			t.Fatalf("%v: %d PDCs", how, x.tab.Len())
		}
		for slot := range x.tab.slots { // of the others
			if q := x.tab.slots[slot]; q != nil && !q.initiator {
				x.tab.fail(x.now, q, Reason{Why: WhyTimeout})
			}
		}
		if open() == nil || open() != nil || x.tab.Len() != 3 {
			t.Fatalf("%v: %d PDCs", how, x.tab.Len())
		}
	}
}

// ReceiveNext changes a PDC as ReceiveReq does, or not at all. Two targets live the same
// life with losses, duplicates, refusals and wrong requests, one of them without
// ReceiveNext.
func TestNextRequestIsARequest(t *testing.T) {
	next, other := 0, 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		opts := []func(*wire.Req){}
		if seed%4 == 0 {
			opts = append(opts, rod)
		}
		var xs [2]*pdcTest
		for i := range xs {
			x := newTable(t, nil)
			x.recv(0, opts...)
			x.acks()
			x.forget()
			xs[i] = x
		}
		for range 150 {
			rx := xs[0].p.rx
			h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: wire.PSN(rx.win.Base()), SPDCID: 9, DPDCID: xs[0].p.id}
			if seed%4 == 0 {
				h.Type = wire.TypeRODReq
			}
			if rng.IntN(2) == 0 {
				h.Flags = wire.FlagAR
			}
			from, ce, gtd, refuse := peerAddr, rng.IntN(20) == 0, rng.IntN(12) == 0, rng.IntN(20) == 0
			clear := h.PSN - 1 - wire.PSN(rng.IntN(3))
			if len(rx.stored) != 0 && rng.IntN(2) == 0 {
				h.PSN, clear = rx.max+1, rx.max
			}
			switch rng.IntN(24) {
			case 0, 1, 2:
				h.PSN += wire.PSN(rng.IntN(4)) // one is late or lost
			case 3:
				h.PSN -= 1 + wire.PSN(rng.IntN(3))
			case 4:
				h.Flags |= wire.FlagRETX
			case 5:
				clear = h.PSN + wire.PSN(rng.IntN(2))
			case 6:
				clear = rx.max + 1
			case 7:
				h.SPDCID = 10
			case 8:
				from = otherAddr
			case 9:
				h.Type ^= wire.TypeRUDReq ^ wire.TypeRODReq
			case 10:
				h.PSN += 1000
			}
			h.ClearOff = int16(clear.Sub(h.PSN))
			d, silent := time.Duration(rng.IntN(100))*time.Microsecond, rng.IntN(30) == 0
			asks, unarmed, move := rng.IntN(20) == 0, rng.IntN(10) == 0, rng.IntN(20) == 0
			if move {
				from = netip.AddrPortFrom(from.Addr(), 1+uint16(rng.IntN(2)))
			}
			tookNext := false
			for i, x := range xs {
				x.now += d
				if asks {
					x.p.RequestClose(x.now)
				}
				if unarmed {
					x.tab.heapRemove(x.p)
				}
				in := x.in(from)
				in.Path, in.CE = 3, ce
				var p *PDC
				v := Deliver
				if i == 0 {
					b := (&wire.ReqStd{}).Append(h.Append(nil))
					if q := wire.PlainRequest(b); q != nil {
						p = x.tab.ReceiveNext(in, q)
					}
					tookNext = p != nil
				}
				if p == nil {
					p, v = x.tab.ReceiveReq(in, &h)
				}
				m := Meta{PSN: h.PSN, Size: 100, Len: 50, Next: i == 0 && tookNext, AR: h.Flags&wire.FlagAR != 0, Retx: h.Flags&wire.FlagRETX != 0, CE: ce}
				switch {
				case v == Deliver && refuse:
					p.Refuse(x.now, m.PSN, wire.NackNoSESMsgAvail)
				case v == Deliver:
					p.Accept(x.now, &m, &wire.Rsp{RC: wire.RCOK}, gtd)
				case v == Keep:
					p.KeepEarly(x.now, &m, h.Next, []byte{1})
				}
				for {
					m, _, _, ok := x.p.NextEarly()
					if !ok {
						break
					}
					x.p.Accept(x.now, &m, &wire.Rsp{}, false)
					x.p.EarlyDone()
				}
				if silent {
					x.told = append(x.news(), x.acks()...)
				}
				x.told = append(x.news(), x.loose()...)
			}
			if tookNext {
				next++
			} else {
				other++
			}
			if got, want := xs[0].state(), xs[1].state(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, next %t: after %v\n%+v\n%+v\nwant\n%+v\n%+v", seed, tookNext, &h, got, got.PDC.rx, want, want.PDC.rx)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*pdcTest)
	}{
		{"another life of the peer", func(x *pdcTest) { x.sender = 5 }},
		{"no peer yet", func(x *pdcTest) { x.p.Peer = 0 }},
	} {
		x := newTarget(t)
		c.change(x)
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: x.psn(1), ClearOff: -2, SPDCID: 9, DPDCID: x.p.id}
		if x.tab.ReceiveNext(x.in(peerAddr), wire.PlainRequest((&wire.ReqStd{}).Append(h.Append(nil)))) != nil {
			t.Errorf("%s: taken", c.name)
		}
	}
	if next < 1000 || other < 1000 {
		t.Errorf("%d requests were the next and %d were not: too few to compare", next, other)
	}
}

func TestReapedPDCsLeaveNothing(t *testing.T) {
	// T1: PDCs that end without ever being proven leave nothing behind.
	x := newTable(t, nil)
	for i := range 2000 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(i << 16), ClearOff: -1, SPDCID: uint16(1 + i)}
		if p, v := x.tab.ReceiveReq(x.in(otherAddr), &h); v == Deliver {
			p.SetPeer(1, false)
			p.Refuse(x.now, h.PSN, wire.NackNoSESMsgAvail)
		}
		x.loose()
		x.advance(300 * time.Millisecond)
	}
	if n := len(x.tab.pendQueue); n > 200 {
		t.Errorf("%d PDCs remembered, %d are pending", n, x.tab.pending)
	}
}

// bare delivers a request to the PDC as is, from its peer.
func (x *pdcTest) bare(h wire.Req) {
	x.tab.ReceiveReq(x.in(peerAddr), &h)
}

func TestNextHdrMustFitTheDirection(t *testing.T) {
	// UE 3.5.10.2: packets of the forward direction carry requests (next_hdr 1 to 3), those
	// of the return direction read data (5, 6). Others of a PDC get NACK 0F if their PSN is
	// in the window and new. Read data gets NACK 19, because this side asked for none.
	const fits, mismatch, unexpected = "", "[NACK PDC_HDR_MISMATCH]", "[NACK UNEXP_EVENT]"
	forward := [16]string{1: fits, 2: fits, 3: fits}
	back := [16]string{5: unexpected, 6: unexpected}
	for n := range 16 {
		if n < 1 || n > 3 {
			forward[n] = mismatch
		}
		if n != 5 && n != 6 {
			back[n] = mismatch
		}
	}
	for n := range wire.NextHdr(16) {
		x := newTarget(t)
		before := *x.p.rx
		h := wire.Req{Type: wire.TypeRUDReq, Next: n, PSN: x.psn(3), ClearOff: -4, SPDCID: 9, DPDCID: x.p.id}
		x.bare(h)
		if got := fmt.Sprint(x.loose()); forward[n] != fits && got != forward[n] || forward[n] == fits && got != "[]" {
			t.Errorf("next_hdr %v on the forward direction: %s, want %s", n, got, forward[n])
		}
		if forward[n] != fits && (x.tab.Stats.DropHeader != 1 || !reflect.DeepEqual(*x.p.rx, before)) {
			t.Errorf("next_hdr %v: %d dropped, %+v, before %+v", n, x.tab.Stats.DropHeader, *x.p.rx, before)
		}

		y := newInitiator(t, wire.RUD)
		y.push(1)
		h = wire.Req{Type: wire.TypeRUDReq, Next: n, PSN: y.psn(3), ClearOff: -4, SPDCID: 77, DPDCID: y.p.id}
		y.bare(h)
		y.wantLoose("NACK PDC_HDR_MISMATCH") // nobody has told the target's PDCID yet
		y.ack(0, 0)
		y.bare(h)
		if got := fmt.Sprint(y.loose()); got != back[n] {
			t.Errorf("next_hdr %v on the return direction: %s, want %s", n, got, back[n])
		}
	}
}

func TestNextHdrOfAnotherPSN(t *testing.T) {
	// A request with a wrong next_hdr gets no NACK 0F for its own PDC unless its PSN is in
	// the window and new: nothing that was merely guessed, and nothing that was received.
	x := newTarget(t)
	x.recv(1, ar)
	x.acks()
	y := newInitiator(t, wire.RUD)
	y.push(1)
	y.ack(0, 0)
	y.tab.ReceiveCP(y.in(peerAddr), &wire.CP{Ctl: wire.CtlNoop, Flags: wire.FlagAR, PSN: y.psn(0), SPDCID: 77, DPDCID: y.p.id})
	y.loose()
	for _, c := range []struct {
		x      *pdcTest
		spdcid uint16
		psn    int
		want   string
	}{
		{x, 9, 0, "[]"}, {x, 9, 1, "[]"}, {x, 9, 2, "[NACK PDC_HDR_MISMATCH]"}, {x, 9, 257, "[NACK PDC_HDR_MISMATCH]"},
		{x, 9, 258, "[NACK PSN_OOR_WINDOW]"}, {x, 9, 1 << 24, "[NACK PSN_OOR_WINDOW]"}, {x, 9, -255, "[NACK PSN_OOR_WINDOW]"},
		{y, 77, 0, "[]"}, {y, 77, -1, "[]"}, {y, 77, 1, "[NACK PDC_HDR_MISMATCH]"}, {y, 77, 256, "[NACK PDC_HDR_MISMATCH]"}, {y, 77, 257, "[NACK PSN_OOR_WINDOW]"},
	} {
		c.x.bare(wire.Req{Type: wire.TypeRUDReq, Next: wire.NextRsp, PSN: c.x.psn(c.psn), ClearOff: int16(-1 - min(max(c.psn, 0), 1000)), SPDCID: c.spdcid, DPDCID: c.x.p.id})
		if got := fmt.Sprint(c.x.loose()); got != c.want {
			t.Errorf("PDCID %d, PSN %d: %s, want %s", c.spdcid, c.psn, got, c.want)
		}
	}
}
