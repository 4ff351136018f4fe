package pds

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestSynUntilFirstAck(t *testing.T) {
	// UE 3.5.8: every request has SYN and its offset from Start_PSN until the initiator has
	// learned TPDCID, which is the spdcid of the first ACK.
	x := newInitiator(t, wire.RUD)
	for i := range 3 {
		h := x.p.pushed(x.now, piece.Piece{Msg: uint32(i)}, 1000, 0)
		if h.Flags&wire.FlagSYN == 0 || int(h.PSNOffset) != i {
			t.Errorf("packet %d: %v", i, h)
		}
	}
	x.ack(0, 0)
	h := x.p.pushed(x.now, piece.Piece{Msg: 3}, 1000, 0)
	if h.Flags&wire.FlagSYN != 0 || h.DPDCID != 77 {
		t.Errorf("after the first ACK: %v", h)
	}
	if x.p.State() != Established {
		t.Errorf("state %v", x.p.State())
	}
}

func TestClearOffsetFollowsLeftEdge(t *testing.T) {
	// UE 3.5.11: CLEAR_PSN, relative to the packet's PSN, is one below the lowest PSN that
	// is not acknowledged.
	x := newInitiator(t, wire.RUD)
	if h := x.p.pushed(x.now, piece.Piece{}, 1000, 0); h.ClearOff != -1 {
		t.Errorf("first packet clears %d", h.ClearOff)
	}
	if h := x.p.pushed(x.now, piece.Piece{}, 1000, 0); h.ClearOff != -2 {
		t.Errorf("second packet clears %d", h.ClearOff)
	}
	x.ack(1, 1)
	if h := x.p.pushed(x.now, piece.Piece{}, 1000, 0); h.ClearOff != -1 {
		t.Errorf("after the ACK the next packet clears %d", h.ClearOff)
	}
}

func TestAckNamesOneAndCoversMany(t *testing.T) {
	// UE 3.5.12, S-ACK-05: the packet that an ACK names has the response in the ACK.
	// Packets that only CACK covers have the default response.
	x := newInitiator(t, wire.RUD)
	x.push(4)
	x.ack(2, 2)
	x.wantTold("answered 2 OK", "answered 0 default", "answered 1 default")
	x.ack(3, 3)
	x.wantTold("answered 3 OK")
	x.checkAtRest()
}

func TestSackedIsNotComplete(t *testing.T) {
	// UE 3.5.12: a PSN that a SACK shows has arrived and is not sent again, but it is
	// finished only when an ACK names it or CACK covers it.
	x := newInitiator(t, wire.RUD)
	x.push(3)
	x.ack(-1, 2, sack(0, 1, 2))
	x.wantTold("answered 2 OK")
	x.advance(6 * time.Millisecond)
	x.wantResend(0)
	x.ack(2, 0, flag(wire.AckFlagRETX))
	x.wantTold("answered 0 OK", "answered 1 default")
	x.checkAtRest()
}

func TestResendsOnRTOOnlyWhatIsOpen(t *testing.T) {
	// UE 3.5.20.3: an unacknowledged request is resent when its RTO expires.
	x := newInitiator(t, wire.RUD)
	x.push(3)
	x.ack(0, 0)
	x.forget()
	x.advance(20 * time.Millisecond)
	x.wantResend(1, 2)
	x.advance(time.Millisecond)
	x.wantResend()
}

func TestRTOBacksOff(t *testing.T) {
	// The RTO doubles from RTOInit to RTOMax, ±10 %.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	last := x.now
	want := 5 * time.Millisecond
	for range 10 {
		for !x.p.CanResend() {
			x.now = x.tab.NextTimeout()
			x.tab.Advance(x.now)
		}
		if d := x.now - last; d < want*9/10 || d > want*11/10+time.Millisecond {
			t.Errorf("resent after %v, want %v ± 10 %%", d, want)
		}
		last = x.now
		want = min(2*want, 500*time.Millisecond)
		x.p.Resend(x.now, 0)
	}
}

func TestLossBySackGap(t *testing.T) {
	// UE 3.5.20.3 (fast detection): a missing packet is lost once three later ones have
	// arrived, without a timer.
	x := newInitiator(t, wire.RUD)
	x.push(5)
	x.ack(0, 3, sack(1, 2, 3))
	x.wantResend() // only two have overtaken it
	x.ack(0, 4, sack(1, 2, 3, 4))
	x.wantResend(1)
	if x.ccc.lost != 1000 {
		t.Errorf("the CCC was told of %d lost bytes", x.ccc.lost)
	}
}

func TestLossOfRetransmissionBySackGap(t *testing.T) {
	// The order of transmissions counts and not that of PSNs: a lost retransmission is
	// found by what was sent after it.
	x := newInitiator(t, wire.RUD)
	x.push(5)
	x.ack(0, 4, sack(1, 2, 3, 4))
	x.wantResend(1)
	x.push(2)
	x.ack(0, 6, sack(1, 2, 3, 4, 5, 6))
	x.wantResend() // only 5 and 6 were sent after it: two are not enough
	x.push(1)
	x.ack(0, 7, sack(1, 2, 3, 4, 5, 6, 7))
	x.wantResend(1)
}

func TestYoungHoleWaitsForReorderingTime(t *testing.T) {
	// F3: a few later arrivals may be reordering. After a quarter of the RTT the missing
	// packet counts as lost.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.advance(400 * time.Microsecond)
	x.ack(-1, 1, sack(0, 1))
	x.wantResend()
	x.advance(99 * time.Microsecond)
	x.wantResend()
	x.advance(2 * time.Microsecond)
	x.wantResend(0)
}

func TestHoleOutsideBitmapIsNotLost(t *testing.T) {
	// A bitmap says nothing about PSNs that it does not cover.
	x := newInitiator(t, wire.RUD)
	x.push(100)
	x.ack(0, 99, sack(90, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99))
	x.wantResend()
	x.advance(50 * time.Microsecond)
	x.wantResend()
}

func TestTailIsProbedBeforeRTO(t *testing.T) {
	// UE 3.5.16: after Tail_Loss_Time a PROBE follows a silent tail, so that packets that
	// wait at a peer which does not run are not sent again.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.push(4)
	x.advance(241 * time.Microsecond) // 2 × 100 µs + 2 × 20 µs
	x.wantResend()
	c, ok := x.p.NextCtl(x.now)
	if !ok || c.Ctl != wire.CtlProbe || wire.PSN(c.Payload) != x.psn(1) {
		t.Fatalf("want a PROBE for packet 1, got %v %v", c, ok)
	}
	// Its answer shows that 1 and 4 are missing.
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextNone, Flags: wire.AckFlagP, ProbeOpaque: c.ProbeOpaque, CACK: x.psn(0), SPDCID: 77, DPDCID: x.p.id, SACKOff: 1, SACK: 0b0110}
	x.advance(90 * time.Microsecond)
	x.tab.ReceiveAck(x.in(peerAddr), &a, nil)
	x.wantResend(1, 4)
}

func TestSpuriousRetransmissionWidensReordering(t *testing.T) {
	// F3: a resend that was answered by the first transmission (RETX not echoed, too soon)
	// shows that the path reorders more than assumed.
	x := newInitiator(t, wire.RUD)
	x.push(5)
	x.advance(time.Millisecond)
	x.ack(0, 4, sack(1, 2, 3, 4))
	x.wantResend(1)
	x.advance(10 * time.Microsecond)
	x.ack(4, 1)
	if x.p.tx.reorder != 2*minReorder || x.tab.Stats.RtxSpurious != 1 {
		t.Errorf("reorder %d, spurious %d", x.p.tx.reorder, x.tab.Stats.RtxSpurious)
	}
}

func TestRTTSampleNeedsCertainty(t *testing.T) {
	// UE 3.5.20.3: a sample counts for a first transmission with RETX 0 or the first
	// retransmission with RETX 1. The service time is subtracted.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 50 * time.Microsecond
	x.ack(0, 0, func(a *wire.Ack) { a.CCState = wire.NSCCState{ServiceTime: 100}.Encode() })
	if want := 50*time.Microsecond - 12800; x.ccc.srtt != want {
		t.Errorf("sample %v, want %v", x.ccc.srtt, want)
	}
	// RETX is not echoed on a packet that was sent again: the first transmission was
	// answered.
	x.ccc.srtt = 0
	x.push(1)
	x.advance(30 * time.Millisecond)
	x.wantResend(1)
	x.ack(1, 1)
	if x.ccc.srtt != 30*time.Millisecond {
		t.Errorf("sample %v", x.ccc.srtt)
	}
	// The packet was sent again twice and RETX is echoed: it is not known which one was
	// answered.
	x.ccc.srtt = 0
	x.push(1)
	for range 2 {
		x.advance(600 * time.Millisecond)
		x.wantResend(2)
	}
	x.ack(2, 2, flag(wire.AckFlagRETX))
	if x.ccc.srtt != 0 {
		t.Errorf("an ambiguous ACK gave a sample of %v", x.ccc.srtt)
	}
}

func TestPeerWindow(t *testing.T) {
	// S-WIN-02: the window is 128 PSNs until an ACK_CC says otherwise, then CACK + 128 ×
	// mpr.
	x := newInitiator(t, wire.RUD)
	x.push(128)
	if x.p.CanPush(1000) {
		t.Fatal("a 129th packet may go without any ACK")
	}
	x.ack(0, 0, mpr(2))
	x.push(129)
	if x.p.CanPush(1000) {
		t.Fatal("more than CACK + 256 may go")
	}
	// T11: MPR counts only from an ACK whose CACK is newer.
	x.ack(0, 0, mpr(1))
	if x.p.tx.window != 256 {
		t.Errorf("an ACK of the same CACK changed the window to %d", x.p.tx.window)
	}
}

func TestMPRZeroIsTheDefaultWindow(t *testing.T) {
	// S-WIN-04: a peer that offers 0 has the default window of 128 PSNs.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0, mpr(0))
	x.push(128)
	if x.p.CanPush(1000) {
		t.Error("a 129th packet may go")
	}
}

func TestRefusedPSNsShowTheWindow(t *testing.T) {
	// S-WIN-07: a PSN that the peer refuses as beyond its window ends the window. It is sent
	// again when CACK has moved so far.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(40)
	for _, i := range []int{30, 9, 20, 40} {
		x.nack(wire.NackPSNOORWindow, i, 0)
	}
	if x.p.tx.window != 8 {
		t.Errorf("window %d, want 8", x.p.tx.window)
	}
	if x.p.CanPush(1000) || x.p.CanResend() {
		t.Error("something may be sent before the window moves")
	}
	x.ack(1, 1)
	x.wantResend(9)
	x.ack(8, 8)
	x.wantResend()
	x.ack(19, 19)
	x.wantResend(20)
	// The first PSN behind CACK lies in every window: its refusal waits for a while.
	x.nack(wire.NackPSNOORWindow, 20, 0)
	if x.p.tx.window != 8 || x.p.CanResend() {
		t.Errorf("window %d, and a packet is to be sent again at once: %v", x.p.tx.window, x.p.CanResend())
	}
	x.runTo(x.now + 2*time.Millisecond)
	x.ack(22, 22)
	x.wantResend(30)
}

func TestShownWindowGrowsAgain(t *testing.T) {
	// S-WIN-07: the window grows by one PSN after 32 packets that went through while it was
	// full, then by twice as many each time, up to what MPR says. A refusal stops that, and
	// doubles the wait.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	next, cack := 1, 0
	fill := func() {
		for x.p.CanPush(1000) {
			x.push(1)
			next++
		}
	}
	through := func(n int) {
		for range n {
			fill()
			cack++
			x.ack(cack, cack)
		}
		fill()
	}
	window := func(want int32) {
		t.Helper()
		if x.p.tx.window != want {
			t.Fatalf("window %d at CACK %d, want %d", x.p.tx.window, cack, want)
		}
	}
	fill()
	x.nack(wire.NackPSNOORWindow, 9, 0)
	window(8)
	x.ack(next-1, next-1)
	cack = next - 1
	window(9) // more than 32 packets, which were in flight
	through(31)
	window(9)
	through(1)
	window(11)
	through(32)
	window(15)
	x.nack(wire.NackPSNOORWindow, cack+9, 0)
	window(8)
	for range 63 {
		cack++
		x.ack(cack, cack)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
		fill()
	}
	window(8)
	through(1)
	window(9)
	for _, n := range []int32{11, 15, 23, 39, 71, 135} {
		for x.p.tx.window < n {
			through(1)
		}
		window(n)
	}
	through(512)
	window(256)
	if x.p.tx.room != (room{}) {
		t.Errorf("%+v", x.p.tx.room)
	}

	// Packets that go one by one say nothing.
	x = newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(9)
	x.nack(wire.NackPSNOORWindow, 9, 0)
	x.ack(8, 8)
	x.wantResend(9)
	for i := 9; i < 200; i++ {
		x.ack(i, i)
		x.push(1)
	}
	if x.p.tx.window != 9 { // the flight of 9 filled it once
		t.Errorf("window %d, want 9", x.p.tx.window)
	}
}

func TestSYNBeyondTheWindow(t *testing.T) {
	// UE 3.5.12.6: a target refuses a SYN packet beyond its window by NACK 15. If the NACK
	// names the PDC, the target has it, and may have executed earlier packets: it is not begun
	// again under another PDCID.
	x := newInitiator(t, wire.RUD)
	x.push(20)
	id := x.p.id
	refuse := func(i int, spdcid uint16) {
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvalidSyn, PSN: x.psn(i), SPDCID: spdcid, DPDCID: id})
	}
	for i := 8; i < 20; i++ {
		refuse(i, 77)
	}
	if x.p.id != id || x.p.tx.window != 8 {
		t.Fatalf("PDCID %d was %d, window %d", x.p.id, id, x.p.tx.window)
	}
	x.ack(7, 7)
	x.wantResend(8, 9, 10, 11, 12, 13, 14, 15)

	// A NACK that names none is about another life.
	x = newInitiator(t, wire.RUD)
	x.push(20)
	id = x.p.id
	x.refuseOpening(8)
	if x.p.id == id {
		t.Error("the PDC did not begin again")
	}
}

func TestAckOfUnsentIsDropped(t *testing.T) {
	// T9: an ACK whose CACK, ACK_PSN or SACK names a PSN that was never sent is dropped as
	// a whole. 16 in a row end the PDC.
	for _, c := range []struct {
		name string
		bad  func(x *pdcTest)
	}{
		{"cack", func(x *pdcTest) { x.ack(5, 5) }},
		{"ack_psn", func(x *pdcTest) { x.ack(0, 9) }},
		{"sack", func(x *pdcTest) { x.ack(0, 0, sack(1, 8)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newInitiator(t, wire.RUD)
			x.push(3)
			// S-ACK-10: they end nothing at once while the PDC opens: they may be
			// late and meant for a former life with this PDCID. A true ACK ends the row.
			for range 15 {
				c.bad(x)
			}
			if x.p.State() != Creating || x.tab.Stats.DropUnsent != 15 {
				t.Fatalf("15 while it opens: %v, %d dropped", x.p.State(), x.tab.Stats.DropUnsent)
			}
			x.ack(-1, 0)
			x.forget()
			for i := range 16 {
				if x.wantTold(); x.p.State() == Closed {
					t.Fatalf("closed after %d", i)
				}
				c.bad(x)
			}
			if x.p.State() != Closed {
				t.Error("sixteen such packets in a row did not end the PDC")
			}
			// A PDC that opens waits for a true answer, but not for long.
			x = newInitiator(t, wire.RUD)
			x.push(3)
			for range 40 {
				c.bad(x)
			}
			if x.wantTold(); x.p.State() != Creating {
				t.Fatalf("%v after 40 while it opens", x.p.State())
			}
			if d := x.p.giveUpAt() - x.now; d > 4*time.Second {
				t.Errorf("gives up after %v", d)
			}
		})
	}
}

func TestAckFromElsewhereIsDropped(t *testing.T) {
	// T6: an ACK from another address or with another spdcid is dropped.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	a := wire.Ack{Type: wire.TypeAck, Next: wire.NextRsp, CACK: x.psn(0), SPDCID: 77, DPDCID: x.p.id}
	x.tab.ReceiveAck(x.in(otherAddr), &a, &wire.Rsp{})
	x.wantTold()
	x.ack(0, 0)
	x.push(1)
	x.forget()
	a.SPDCID, a.CACK = 78, x.psn(1)
	x.tab.ReceiveAck(x.in(peerAddr), &a, &wire.Rsp{})
	x.wantTold()
}

func TestGivesUpAfterPeerTimeout(t *testing.T) {
	// F9: silence longer than PeerTimeout fails everything to the peer.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	start := x.now
	for x.p.State() != Closed {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
	if d := x.now - start; d < 40*time.Second || d > 41*time.Second {
		t.Errorf("gave up after %v", d)
	}
	x.wantTold("failed 0 1 nack 0x0", "failed 1 1 nack 0x0", "gone 1")
	if x.ccc.inFlight != 0 {
		t.Errorf("%d bytes left in flight", x.ccc.inFlight)
	}
}

func TestGivesUpSoonerWithEvidence(t *testing.T) {
	// F11: evidence starts SuspectTimeout and never ends a PDC at once. Hearing the peer
	// cancels it.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.tab.Suspect(x.now, x.p, false)
	start := x.now
	x.advance(2 * time.Second)
	x.wantTold()
	for x.p.State() != Closed {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
	if d := x.now - start; d < 3*time.Second || d > 4*time.Second {
		t.Errorf("gave up after %v", d)
	}
	x.wantTold("failed 0 2 nack 0x0", "gone 2")
}

func TestGivesUpSoonestWhereNobodyWasHeard(t *testing.T) {
	// F11: evidence that repeats counts after a third of SuspectTimeout if nothing was ever
	// heard from the peer. Neither one ICMP message nor a peer that answers is such a case.
	for _, c := range []struct {
		name          string
		strange       []bool
		heard         bool
		least, before time.Duration
	}{
		{"twice", []bool{true, true}, false, time.Second, 1200 * time.Millisecond},
		{"once", []bool{true}, false, 3 * time.Second, 4 * time.Second},
		{"of a peer that was heard", []bool{false, false}, false, 3 * time.Second, 4 * time.Second},
		{"it answers between them", []bool{true, true}, true, 3 * time.Second, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newInitiator(t, wire.RUD)
			x.push(2)
			start := x.now
			for i, s := range c.strange {
				if c.heard && i == 1 {
					x.ack(0, 0)
				}
				x.advance(time.Millisecond)
				x.tab.Suspect(x.now, x.p, s)
			}
			for x.p.State() != Closed {
				x.now = x.tab.NextTimeout()
				x.tab.Advance(x.now)
				for x.p.CanResend() {
					x.p.Resend(x.now, 0)
				}
			}
			if d := x.now - start; d < c.least || d > c.before {
				t.Errorf("gave up after %v", d)
			}
		})
	}
}

func TestClearIsDeliveredPromptly(t *testing.T) {
	// UE 3.5.20.1: after an ACK with REQ=CLEAR, CLEAR_PSN is sent with the next request, or
	// by a CLEAR if there is none.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(-1, 0, req(wire.ReqClear))
	c, ok := x.p.NextCtl(x.now)
	if !ok || c.Ctl != wire.CtlClear || wire.PSN(c.Payload) != x.psn(0) || c.PSN != 0 {
		t.Fatalf("want CLEAR of packet 0, got %v %v", c, ok)
	}
	x.push(1)
	x.ack(0, 1, req(wire.ReqClear))
	if h := x.p.pushed(x.now, piece.Piece{}, 1000, 0); h.ClearOff != -1 || x.p.CtlOwed() {
		t.Errorf("the next request clears %d; a CLEAR command is still owed: %v", h.ClearOff, x.p.CtlOwed())
	}
}

func TestAnyPacketGreets(t *testing.T) {
	// UE 3.6.13: the first packet that names the target's PDCID shows the target that its
	// packets arrive here. It is a PROBE if there is no data, and no extra packet if there
	// is.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	if c, ok := x.p.NextCtl(x.now); !ok || c.Ctl != wire.CtlProbe {
		t.Errorf("without data the greeting is %v %v, want a PROBE", c, ok)
	}
	x = newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	if h := x.p.pushed(x.now, piece.Piece{}, 1000, 0); h.DPDCID != 77 || x.p.CtlOwed() {
		t.Errorf("a request to PDCID %d left; a greeting is still owed: %v", h.DPDCID, x.p.CtlOwed())
	}
}

func TestAllPDCsToAPeerGoneEnd(t *testing.T) {
	// F9: all operations to a peer that is gone fail. A PDC in the middle of a message may
	// have nothing outstanding because another one filled the window; it ends with that
	// one. A PDC on which the peer was heard stays.
	x := newInitiator(t, wire.RUD)
	p := x.p
	idle := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	other := x.tab.Open(x.now, 2, otherAddr, wire.RUD, x.ccc)
	heard := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	for _, q := range []*PDC{p, idle} {
		x.p = q
		x.push(1)
		x.ack(0, 0)
		x.now += time.Millisecond
	}
	x.p = p
	x.push(1)
	x.forget()
	end := x.now + 40*time.Second + 600*time.Millisecond
	for x.now < end {
		x.now = min(max(x.now+1, x.tab.NextTimeout()), end)
		idle.idleAt, other.idleAt = x.now, x.now // no IdleClose here
		if heard.lastHeard = x.now; p.state != Closed {
			heard.idleAt = x.now
		}
		x.tab.Advance(x.now)
		for p.state != Closed && p.CanResend() {
			p.Resend(x.now, 0)
		}
	}
	x.wantTold(fmt.Sprintf("failed 1 %d nack 0x0", WhyTimeout), fmt.Sprintf("gone %d", WhyTimeout), fmt.Sprintf("gone %d", WhyTimeout))
	if idle.state != Closed || other.state == Closed || heard.state == Closed {
		t.Errorf("the idle one is %v, that to another peer %v, the one that was heard %v", idle.state, other.state, heard.state)
	}
}

func TestLostCACKIsAskedFor(t *testing.T) {
	// docs/faults.md rule 5: every packet was named by an ACK, and the ACK that moved CACK
	// was lost, so the window of the peer is closed with nothing outstanding. A PROBE asks,
	// again and again, until the peer is given up (F9), each behind a CLEAR (S-CLR-05): the
	// peer may wait for that.
	x := newInitiator(t, wire.RUD)
	x.push(128)
	for i := range 128 {
		x.ack(-1, i, mpr(1))
	}
	if x.p.Outstanding() != 0 || x.p.CanPush(1000) {
		t.Fatalf("%d outstanding, may send %v", x.p.Outstanding(), x.p.CanPush(1000))
	}
	x.p.NextCtl(x.now) // the CLEAR that greets
	for range 3 {
		start := x.now
		for !x.p.CtlOwed() {
			if x.now = x.tab.NextTimeout(); x.now > start+time.Second {
				t.Fatal("no PROBE")
			}
			x.tab.Advance(x.now)
		}
		if c, ok := x.p.NextCtl(x.now); !ok || c.Ctl != wire.CtlClear || wire.PSN(c.Payload) != x.psn(127) {
			t.Fatalf("%v instead of a CLEAR of everything", c)
		}
		if c, ok := x.p.NextCtl(x.now); !ok || c.Ctl != wire.CtlProbe {
			t.Fatalf("%v instead of a PROBE", c)
		}
	}
	x.ack(127, 0, mpr(1), flag(wire.AckFlagP))
	x.forget()
	if !x.p.CanPush(1000) {
		t.Error("the window is still closed")
	}
	if at := x.tab.NextTimeout(); at < x.now+time.Millisecond {
		x.advance(at - x.now)
	}
	if x.p.CtlOwed() {
		t.Error("asks again")
	}
}

// shrunk makes a window that shrank: the lost packets are beyond it.
func (x *pdcTest) shrunk() {
	x.push(1)
	x.ack(0, 0)
	x.push(200)
	x.ack(1, 1, mpr(1))
	for i := 2; i <= 160; i++ {
		x.ack(1, i, mpr(1))
	}
}

func TestShrunkWindowIsAskedFor(t *testing.T) {
	// UE 3.5.12, docs/faults.md rule 5: the peer offers less than before, and all lost
	// packets are beyond its window: nothing is in flight, and no ACK will move CACK. A
	// PROBE asks. A peer that answers and never moves CACK is given up after PeerTimeout.
	for _, moves := range []bool{true, false} {
		x := newInitiator(t, wire.RUD)
		x.shrunk()
		x.forget()
		probes := 0
		for end := x.now + 41*time.Second; x.p.state != Closed; {
			if x.now = x.tab.NextTimeout(); x.now > end {
				t.Fatal("still waits after 41 s")
			}
			x.tab.Advance(x.now)
			if x.p.state == Closed {
				break
			}
			for x.p.CtlOwed() {
				if c, _ := x.p.NextCtl(x.now); c.Ctl != wire.CtlProbe || x.p.tx.flight > 0 {
					continue
				}
				probes++
				cack := 1
				if moves {
					cack = 160
				}
				a := wire.Ack{Type: wire.TypeAckCC, Flags: wire.AckFlagP, CACK: x.psn(cack), SPDCID: 77, DPDCID: x.p.id, MPR: 1, SACKOff: 1, ProbeOpaque: x.p.tx.probeID}
				x.tab.ReceiveAck(x.in(peerAddr), &a, nil)
			}
			if x.p.CanResend() {
				break
			}
		}
		switch {
		case moves:
			if probes != 1 || x.now > 2*time.Second || x.p.CanPush(1000) != true {
				t.Errorf("%d PROBEs, goes on at %v", probes, x.now)
			}
		case probes < 40 || probes > 100 || len(x.news()) != 41:
			t.Errorf("%d PROBEs, told %q", probes, x.news())
		}
	}
}

func TestShutPDCEndsWithItsPeer(t *testing.T) {
	// F9: the same with a peer that is gone.
	x := newInitiator(t, wire.RUD)
	x.push(128)
	for i := range 128 {
		x.ack(-1, i, mpr(1))
	}
	x.forget()
	start, probes := x.now, 0
	for x.p.state != Closed && x.now < start+41*time.Second {
		x.now = x.tab.NextTimeout()
		x.p.idleAt = x.now // a message waits: no IdleClose
		x.tab.Advance(x.now)
		for x.p.state != Closed && x.p.CtlOwed() {
			x.p.NextCtl(x.now)
			probes++
		}
	}
	x.wantTold("gone 1")
	if probes > 200 {
		t.Errorf("%d probes in 40 s", probes)
	}
}

func TestF12ShutPDCOfARestartedPeer(t *testing.T) {
	// F12: nothing is outstanding or may be sent, and the peer, in a new life, does not
	// know the PDC: it ends within 1 s after contact.
	for _, beyond := range []bool{false, true} {
		x := newInitiator(t, wire.RUD)
		if beyond { // the lost packets are beyond a window that shrank
			x.shrunk()
			for x.p.tx.flight > 0 {
				x.advance(time.Millisecond)
			}
		} else {
			x.push(128)
			for i := range 128 {
				x.ack(-1, i, mpr(1))
			}
		}
		if x.p.tx.greet = false; !x.p.shut() {
			t.Fatal("not shut")
		}
		x.forget()
		live := x.now + 5*time.Second // until then the peer answers
		var contact time.Duration
		reborn := newTable(t, nil)
		for x.p.state != Closed {
			if x.now = x.tab.NextTimeout(); contact != 0 && x.now > contact+time.Second {
				t.Fatalf("beyond %v: still waits 1 s after contact at %v", beyond, contact)
			}
			x.p.idleAt = x.now // a message waits: no IdleClose
			x.tab.Advance(x.now)
			for x.p.state != Closed && x.p.CtlOwed() {
				c, ok := x.p.NextCtl(x.now)
				if !ok || c.Ctl == wire.CtlClear {
					continue
				}
				x.now += 50 * time.Microsecond
				if x.now < live {
					if c.Ctl == wire.CtlProbe {
						x.ack(int(x.p.tx.cack.Sub(testStart)), 0, mpr(1), flag(wire.AckFlagP), func(a *wire.Ack) { a.AckPSNOff, a.ProbeOpaque = 0, c.ProbeOpaque })
					}
					continue
				}
				if contact == 0 {
					contact = x.now
				}
				reborn.tab.ReceiveCP(x.in(peerAddr), &c)
				for l, ok := reborn.tab.NextLoose(); ok; l, ok = reborn.tab.NextLoose() {
					n, _, err := wire.ParseNack(l.B[:l.N])
					if err != nil {
						t.Fatal(err)
					}
					x.tab.ReceiveNack(x.in(peerAddr), &n)
				}
			}
		}
		if got := x.news()[len(x.news())-1]; got != "gone 3" || x.now-contact < x.tab.cfg.RTOInit {
			t.Errorf("beyond %v: %q %v after contact", beyond, got, x.now-contact)
		}
	}
}

func TestT6ShutPDCIsNotForged(t *testing.T) {
	// T6: an attacker who does not know the PSNs cannot end a shut PDC, however often he
	// says that the peer does not know it. He causes only one ACK_REQ for each PROBE.
	x := newInitiator(t, wire.RUD)
	x.push(128)
	for i := range 128 {
		x.ack(-1, i, mpr(1))
	}
	asked, probes := 0, 0
	for end := x.now + 10*time.Second; x.now < end; {
		x.now = x.tab.NextTimeout()
		x.p.idleAt = x.now
		x.tab.Advance(x.now)
		for x.p.state != Closed && x.p.CtlOwed() {
			c, _ := x.p.NextCtl(x.now)
			switch c.Ctl {
			case wire.CtlProbe:
				probes++
			case wire.CtlAckReq:
				asked++
			}
			for i := range 10 {
				for _, psn := range []wire.PSN{0, testStart - 1, x.psn(128 + i)} {
					x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: psn, DPDCID: x.p.id})
				}
			}
		}
		if x.p.state == Closed {
			t.Fatalf("ended at %v: %q", x.now, x.news()[len(x.news())-1])
		}
	}
	if asked > probes || probes > 200 {
		t.Errorf("%d ACK_REQs, %d PROBEs in 10 s", asked, probes)
	}
}

// rcvd sets the bytes that the peer had received when it made the ACK, in units of 256.
func rcvd(n uint32) ackOpt {
	return func(a *wire.Ack) {
		st := wire.ParseNSCC(a.CCState)
		st.RcvdBytes, st.ServiceTime = n, 0xffff
		a.CCState = st.Encode()
	}
}

func TestLaterACKsAreEvidence(t *testing.T) {
	// S-LOSS-01: a lost retransmission is found by arrivals that were sent after it, even
	// if another ACK reports them than the one whose bitmap shows the hole: rcvd_bytes says
	// which ACK was made later.
	for _, late := range []bool{false, true} {
		x := newInitiator(t, wire.ROD)
		x.push(8)
		x.ack(-1, -1, sack(0, 1, 2, 3, 4, 5, 6, 7), rcvd(28))
		x.advance(time.Millisecond)
		x.ack(-1, -1, sack(0, 1, 2, 3, 4, 5, 6, 7), rcvd(29))
		x.wantResend(0)
		x.push(60)
		// The bitmap that shows the new arrivals does not reach down to the hole.
		x.ack(-1, -1, sack(60, 60, 61, 62, 63), rcvd(260))
		if late {
			x.ack(-1, -1, sack(60, 60, 61, 62, 63), rcvd(262))
			x.ack(-1, -1, sack(0, 1, 2, 3, 4, 5, 6, 7), rcvd(100))
			x.wantResend() // the ACK was made before: what it shows is old
			continue
		}
		x.ack(-1, -1, sack(0, 1, 2, 3, 4, 5, 6, 7), rcvd(264))
		if !x.p.CanResend() || x.p.Resend(x.now, 0).Req.PSN != x.psn(0) {
			t.Error("the packet that was lost twice is not sent again")
		}
	}
}

func TestProbesCoverAllInFlight(t *testing.T) {
	// UE 3.5.16: a PROBE asks for 64 PSNs. A burst of them asks for everything in flight,
	// and the last answer causes PROBEs for the PSNs that the burst did not reach.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 100 * time.Microsecond
	x.ack(0, 0, mpr(20))
	x.p.NextCtl(x.now)
	x.p.t.cfg.TxWindow = 2048
	x.push(1000)
	x.advance(300 * time.Microsecond)
	var last wire.CP
	for i := range maxBurst {
		c, ok := x.p.NextCtl(x.now)
		if !ok || c.Ctl != wire.CtlProbe || wire.PSN(c.Payload) != x.psn(1+64*i) {
			t.Fatalf("PROBE %d: %v %v", i, c, ok)
		}
		last = c
	}
	if x.p.CtlOwed() {
		t.Error("a burst without end")
	}
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextNone, Flags: wire.AckFlagP, ProbeOpaque: last.ProbeOpaque, CACK: x.psn(0), SPDCID: 77, DPDCID: x.p.id,
		SACKOff: 1 + 64*(maxBurst-1), SACK: ^uint64(0)}
	x.tab.ReceiveAck(x.in(peerAddr), &a, nil)
	if c, ok := x.p.NextCtl(x.now); !ok || wire.PSN(c.Payload) != x.psn(1+64*maxBurst) {
		t.Errorf("the next burst begins with %v %v", c, ok)
	}
}

func TestTimersSayNothingOfReordering(t *testing.T) {
	// F17, F3: a peer that was off its processor answers late, and the RTO has needlessly
	// sent the ends again. That is counted and lengthens the RTO, but is no reordering:
	// holes are found as fast as before.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.p.NextCtl(x.now)
	x.push(4)
	x.runTo(x.now + 7*time.Millisecond)
	if x.tab.Stats.RtxRTO != 2 || x.p.tx.backoff == 0 {
		t.Fatalf("%d resent by RTO, back-off %d", x.tab.Stats.RtxRTO, x.p.tx.backoff)
	}
	x.p.tx.echoes = true
	x.ack(4, 4)
	if x.tab.Stats.RtxSpurious == 0 || x.p.tx.reorder != minReorder || x.p.tx.patience != 0 {
		t.Errorf("%d found spurious, reorder %d, patience %d", x.tab.Stats.RtxSpurious, x.p.tx.reorder, x.p.tx.patience)
	}
	if x.ccc.srtt < 6*time.Millisecond {
		t.Errorf("the sample that lengthens the RTO is %v", x.ccc.srtt)
	}
}

func TestRODIsMeasuredBehindAHole(t *testing.T) {
	// UE 3.5.20.3: a first transmission that a SACK reports for the first time gives as
	// good a sample as a named one. ROD names nothing behind a hole.
	x := newInitiator(t, wire.ROD)
	x.push(3)
	x.now += 300 * time.Microsecond
	x.ack(-1, -1, sack(0, 1, 2), rcvd(8))
	if x.ccc.srtt != 300*time.Microsecond {
		t.Errorf("measured %v", x.ccc.srtt)
	}
}

func TestProbeAnswerFromElsewhere(t *testing.T) {
	// T33: a peer that answers a PROBE with another part of the bitmap than the one asked
	// for is not asked again and again: the next PROBEs ask once for the PSNs that the
	// PROBEs did not cover.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.push(200)
	x.advance(300 * time.Microsecond)
	probes := 0
	for x.p.CtlOwed() && probes < 100 {
		if c, _ := x.p.NextCtl(x.now); c.Ctl == wire.CtlProbe {
			probes++
			x.ack(0, 0, flag(wire.AckFlagP), func(a *wire.Ack) { a.AckPSNOff, a.ProbeOpaque = 0, c.ProbeOpaque })
		}
	}
	if probes != 4 { // of 64 PSNs each
		t.Errorf("%d PROBEs for 200 packets", probes)
	}
}

func TestWhatIsCountedAsResentWasSent(t *testing.T) {
	// A packet that was taken for lost and is answered before it is sent again does not
	// count as a resend.
	x := newInitiator(t, wire.RUD)
	x.push(4)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.advance(20 * time.Millisecond)
	if !x.p.CanResend() {
		t.Fatal("nothing is lost")
	}
	x.p.Resend(x.now, 0)
	x.ack(3, 3)
	if s := &x.tab.Stats; s.RtxRTO != 1 || s.RtxSACK+s.RtxNack+s.RtxProbe != 0 {
		t.Errorf("%d resent by the RTO, %d otherwise; want 1, 0", s.RtxRTO, s.RtxSACK+s.RtxNack+s.RtxProbe)
	}
}

func TestPauseIsNoRoundTrip(t *testing.T) {
	// UE 3.6.13, F17: a packet that waited on this side, or on the other as its service
	// time says, gives no sample of the path. But an answer may take that long, so the RTO
	// waits for it.
	const usual, pause = 100 * time.Microsecond, 20 * time.Millisecond
	late := func(a *wire.Ack) { a.CCState = wire.NSCCState{ServiceTime: 0xffff}.Encode() }
	for _, mode := range []wire.Mode{wire.RUD, wire.ROD} {
		for _, c := range []struct {
			name   string
			paused bool
			opts   []ackOpt
		}{{"here", true, nil}, {"there", false, []ackOpt{late}}, {"there, not plain", false, []ackOpt{late, flag(wire.AckFlagM)}}, {"here, not plain", true, []ackOpt{flag(wire.AckFlagM)}}} {
			x := newInitiator(t, mode)
			x.push(1)
			x.now += usual
			x.ack(0, 0)
			if x.ccc.srtt != usual || x.p.rto() > 6*time.Millisecond {
				t.Fatalf("measured %v, RTO %v", x.ccc.srtt, x.p.rto())
			}
			x.paused = c.paused
			for i := range 8 {
				x.push(1)
				x.now += pause
				x.ack(1+i, 1+i, c.opts...)
			}
			if x.ccc.srtt != usual {
				t.Errorf("%v, %s: measured %v", mode, c.name, x.ccc.srtt)
			}
			if rto := x.p.rto(); rto < 2*pause {
				t.Errorf("%v, %s: the RTO is %v", mode, c.name, rto)
			}
			x.paused = false
			for i := range 12 {
				x.push(1)
				x.now += usual
				x.ack(9+i, 9+i)
			}
			if rto := x.p.rto(); rto > 6*time.Millisecond {
				t.Errorf("%v, %s: the RTO is %v after the pauses", mode, c.name, rto)
			}
		}
	}
}

func TestSampleWithoutTheTimeInTheSocket(t *testing.T) {
	// UE 3.6.13, F17: an ACK waited in the socket of this side for a known time. The sample is
	// exact, the RTO is longer, and the window hears if the processor is taken.
	const usual, wait = 100 * time.Microsecond, 4 * time.Millisecond
	for _, opts := range [][]ackOpt{nil, {flag(wire.AckFlagM)}} { // plain, and not
		x := newInitiator(t, wire.RUD)
		x.waited, x.taken = wait, true
		for i := range 8 {
			x.push(1)
			x.now += usual + wait
			x.ack(i, i, opts...)
		}
		if x.ccc.srtt != usual || x.ccc.taken != 8 {
			t.Errorf("measured %v, told %d times", x.ccc.srtt, x.ccc.taken)
		}
		if rto := x.p.rto(); rto < 3*wait {
			t.Errorf("the RTO is %v", rto)
		}
	}
}

func TestProbeOfOneWhoPausesIsNoSample(t *testing.T) {
	// UE 3.6.13: a PROBE that waited for its target to look gives no sample.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.p.NextCtl(x.now)
	x.push(1)
	for !x.p.tx.probeOwed {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	c, ok := x.p.NextCtl(x.now)
	if !ok || c.Ctl != wire.CtlProbe {
		t.Fatal(c, ok)
	}
	x.now += 20 * time.Millisecond
	x.tab.ReceiveAck(x.in(peerAddr), &wire.Ack{Type: wire.TypeAckCC, Next: wire.NextNone, Flags: wire.AckFlagP, CACK: x.psn(0), ProbeOpaque: c.ProbeOpaque,
		SPDCID: 77, DPDCID: x.p.id, MPR: 2, SACKOff: 1, CCState: wire.NSCCState{ServiceTime: 0xffff}.Encode()}, nil)
	if x.ccc.srtt != 100*time.Microsecond {
		t.Errorf("measured %v", x.ccc.srtt)
	}
}

func TestLateIsNotLost(t *testing.T) {
	// F17: a target that was busy for longer than the RTO gets everything twice. Its ACK
	// names the packet that came first, and its sender tells the CCC that nothing was lost.
	// If it names the second transmission, the first may have been lost.
	for _, again := range []bool{false, true} {
		x := newInitiator(t, wire.RUD)
		x.push(1)
		x.now += 100 * time.Microsecond
		x.ack(0, 0)
		x.p.NextCtl(x.now)
		x.p.tx.echoes = true
		x.push(4)
		x.runTo(x.now + 7*time.Millisecond)
		if again {
			x.ack(4, 4, flag(wire.AckFlagRETX))
		} else {
			x.ack(4, 4)
		}
		if (x.ccc.spurious != 0) == again {
			t.Errorf("second transmission named %v, the CCC was told %d times", again, x.ccc.spurious)
		}
	}
	x := newTarget(t)
	x.recv(1)
	x.recv(2, ar)
	x.recv(1, retx)
	x.recv(2, retx)
	x.wantAcks("cack=2 psn=2 OK")
	x.recv(1, retx)
	x.recv(2, retx)
	x.wantAcks("cack=2 psn=2 retx")
}

func TestTailWithoutSampleIsProbedSoon(t *testing.T) {
	// UE 3.5.16: where each packet is lost once there is never a sample (Karn), so no
	// back-off ends. An initiator that hears an ACK and then nothing does not wait for
	// RTOMax.
	x := newInitiator(t, wire.RUD)
	x.push(4)
	for x.p.tx.backoff < 7 {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
	x.ack(0, 0, flag(wire.AckFlagRETX))
	if x.p.tx.rtt != 0 {
		t.Fatal("a round trip was measured")
	}
	heard := x.now
	for !x.p.tx.probeOwed && x.p.tx.backoff == 7 {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	if d := x.now - heard; !x.p.tx.probeOwed || d > 2*x.tab.cfg.RTOInit {
		t.Errorf("%v after the ACK: a PROBE is owed: %v, back-off %d", d, x.p.tx.probeOwed, x.p.tx.backoff)
	}
}

func TestNothingLagsBehindAHole(t *testing.T) {
	// S-ACK-05: a packet asks for an ACK while one before it has no answer although a later one
	// has, even if the bitmap of the ACK began behind the hole and so tells nothing of it.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.advance(20 * time.Microsecond)
	x.ack(0, 0)
	x.push(3)
	if !x.p.MayLag(x.now) {
		t.Fatal("nothing is missing, and none may lag")
	}
	x.ack(0, 3, sack(3, 3))
	x.push(1)
	if x.p.MayLag(x.now) {
		t.Error("a packet lags behind two that have no answer")
	}
	x.ack(3, 3)
	x.push(1)
	if !x.p.MayLag(x.now) {
		t.Error("the hole is closed, and none may lag")
	}
}

func TestRTOAsksForWhatIsBetweenTheEnds(t *testing.T) {
	// Decision 46: the first RTO resends the lowest and the highest packet, and a PROBE asks for
	// those between. The bitmaps of the ACKs of the two may show nothing of a hole of more than 64
	// packets: then each RTO would mend one.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(200)
	x.loose()
	for x.p.tx.rtos == 0 {
		for x.p.CanResend() {
			x.p.Resend(x.now, 0) // of the tail probe
		}
		x.p.tx.probeOwed = false
		x.forget()
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	x.wantResend(1, 200)
	if !x.p.tx.probeOwed {
		t.Error("an RTO with 200 packets in flight asks for none of them")
	}
}

// TestEvidenceIsRefuted: a peer that is heard on another PDC is there, whatever ICMP said before. What it does
// not answer on this one ends in the time of a silent peer.
func TestEvidenceIsRefuted(t *testing.T) {
	for _, heard := range []bool{false, true} {
		x := newInitiator(t, wire.RUD)
		x.push(1)
		x.ack(0, 0)
		p := x.p
		x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc) // it is opened later, and its target answers
		x.advance(time.Millisecond)
		p.Push(x.now, piece.Piece{Msg: 7}, 1000, 0)
		p.Header(nil)
		x.tab.Suspect(x.now, p, false)
		x.advance(time.Millisecond)
		if heard {
			x.p.heard(x.now)
		}
		start := x.now
		for p.State() != Closed {
			x.now = x.tab.NextTimeout()
			x.tab.Advance(x.now)
			for p.CanResend() {
				p.Resend(x.now, 0)
			}
		}
		if d := x.now - start; d > 4*time.Second != heard || d > 41*time.Second {
			t.Errorf("heard %v: gave up after %v", heard, d)
		}
	}
}
