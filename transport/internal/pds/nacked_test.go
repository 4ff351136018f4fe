package pds

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestNackReactions(t *testing.T) {
	// UE 3.5.12.7, table of codes: the effect of a first NACK of each code on a packet in
	// flight on an established PDC.
	type want uint8
	const (
		nothing want = iota
		again        // sent again at once
		later        // sent again after the back-off
	)
	for code, w := range map[wire.NackCode]want{
		wire.NackTrimmed: again, wire.NackTrimmedLastHop: again, wire.NackTrimmedAck: again,
		wire.NackNoPDCAvail: later, wire.NackNoCCCAvail: later, wire.NackNoBitmap: later, wire.NackNoPktBuffer: later,
		wire.NackNoGtdDelAvail: later, wire.NackNoSESMsgAvail: later, wire.NackNoResource: later, wire.NackPSNOORWindow: later,
		wire.NackPktNotRcvd: again, wire.NackAckWithData: again, wire.NackRcvrInferLoss: again,
		wire.NackExpNormal: again, wire.NackExpError: again,
		wire.NackRcvdSESProcg: nothing, wire.NackNewStartPSN: nothing, 0x0c: nothing, 0x1b: nothing, 0xfc: nothing,
		// A fatal NACK counts only if it is repeated (T6). The packet is sent again so that
		// an honest peer repeats it.
		wire.NackInvDPDCID: later, wire.NackPDCHdrMismatch: later, wire.NackClosing: later, wire.NackClosingInErr: later,
		wire.NackGtdRespUnavail: later, wire.NackInvalidSyn: later, wire.NackPDCModeMismatch: later, wire.NackUnexpEvent: later,
		wire.NackExpFatal: later,
	} {
		t.Run(code.String(), func(t *testing.T) {
			x := newInitiator(t, wire.RUD)
			x.push(3)
			x.ack(0, 0)
			x.forget()
			x.nack(code, 1, 0)
			if w == again {
				x.wantResend(1)
			} else {
				x.wantResend()
			}
			x.now += 7 * time.Millisecond
			x.p.releaseIfDue(x.now)
			if w == later {
				x.wantResend(1)
			} else {
				x.wantResend()
			}
			x.wantTold()
			if x.tab.Stats.NacksRx[code] != 1 {
				t.Error("not counted")
			}
		})
	}
}

// releaseIfDue is the part of the timers that concerns refused packets.
func (p *PDC) releaseIfDue(now time.Duration) {
	if p.tx.waiting > 0 && now >= p.tx.waitUntil {
		p.releaseWaiting(now)
	}
}

func TestFatalNackNeedsASecond(t *testing.T) {
	// T6: a fatal NACK on an unsecured PDC counts if a second one comes at least one RTO
	// later. Two at the same time count as one.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	x.forget()
	x.nack(wire.NackInvDPDCID, 1, 0)
	x.nack(wire.NackInvDPDCID, 1, 0)
	x.wantTold()
	x.advance(7 * time.Millisecond)
	x.wantResend(1)
	x.nack(wire.NackInvDPDCID, 1, 0)
	x.wantTold("failed 1 3 INV_DPDCID", "gone 3")
}

func TestNackOutsideWindowIsIgnored(t *testing.T) {
	// UE 3.5.12.7: a NACK whose PSN is not outstanding is ignored, and CACK never moves.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	x.forget()
	for range 3 {
		x.nack(wire.NackInvDPDCID, 0, 0)
		x.nack(wire.NackInvDPDCID, 2, 0)
		x.advance(6 * time.Millisecond)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
	x.wantTold()
	if x.tab.Stats.DropStale != 6 {
		t.Errorf("%d dropped as stale, want 6", x.tab.Stats.DropStale)
	}
}

func TestInvalidSynStartsAgain(t *testing.T) {
	// S-PDC-05: NACK 15 in state Creating means that another life has our PDCID. Everything
	// is sent again with a new PDCID and Start_PSN. The NACKs that answer what was sent before
	// the first NACK do not count: a target that started in between may have executed a resend.
	x := newInitiator(t, wire.RUD)
	x.push(3)
	id := x.p.ID()
	x.advance(3 * time.Millisecond)
	for range 2 { // packets 0 and 1, and their resends of an RTO later
		x.nack(wire.NackInvalidSyn, 0, 0)
		x.nack(wire.NackInvalidSyn, 1, 0)
		x.advance(7 * time.Millisecond)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
		if x.p.ID() != id {
			t.Fatal("it began again by refusals of what was sent before the first of them")
		}
	}
	x.nack(wire.NackInvalidSyn, 1, 0)
	if x.p.ID() == id || x.p.StartPSN() == testStart {
		t.Fatal("the PDC kept its identity")
	}
	for i := range 3 {
		if !x.p.CanResend() {
			t.Fatalf("only %d packets go again", i)
		}
		a := x.p.Resend(x.now, 0)
		if a.Piece.Msg != uint32(i) || int(a.Req.PSNOffset) != i || a.Req.PSN != x.p.StartPSN().Add(i) || a.Req.Flags&wire.FlagSYN == 0 {
			t.Errorf("packet %d: %v carries %d", i, a.Req, a.Piece.Msg)
		}
	}
	x.wantTold()
}

func TestRODGoesBack(t *testing.T) {
	// UE 3.5.12.7: NACK ROD_OOO has Expected_PSN in its payload. All packets from that PSN
	// on are sent again.
	x := newInitiator(t, wire.ROD)
	x.push(5)
	x.ack(0, 0)
	x.nack(wire.NackRODOOO, 4, uint32(x.psn(2)))
	x.wantResend(2, 3, 4)
}

func TestShortTargetEndsAfterPeerTimeout(t *testing.T) {
	// F32: the back-off doubles from 1 ms to RTOMax. After PeerTimeout the operation fails
	// with the code, although the target answers.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	start := x.now
	var gaps []time.Duration
	for x.p.State() != Closed {
		x.nack(wire.NackNoPDCAvail, 0, 0)
		last := x.now
		for x.p.State() != Closed && !x.p.CanResend() {
			x.now = x.tab.NextTimeout()
			x.tab.Advance(x.now)
		}
		if x.p.State() != Closed {
			x.p.Resend(x.now, 0)
			gaps = append(gaps, x.now-last)
		}
	}
	for i, want := 0, time.Millisecond; i < 9; i, want = i+1, 2*want {
		if gaps[i] < want || gaps[i] > want*3/2 {
			t.Errorf("gap %d is %v, want %v", i, gaps[i], want)
		}
	}
	if d := x.now - start; d < 40*time.Second || d > 41*time.Second {
		t.Errorf("gave up after %v", d)
	}
	x.wantTold("failed 0 4 NO_PDC_AVAIL", "gone 4")
}

func TestNacksDoNotPutOffTheRTO(t *testing.T) {
	// docs/faults.md rule 5: packets in flight are resent after the RTO, even if NACKs for
	// other packets come all the time.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(3)
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	end := x.now + 100*time.Millisecond
	for again := false; !again; {
		if x.now += time.Millisecond; x.now > end {
			t.Fatal("packet 3 was not resent")
		}
		x.tab.Advance(x.now)
		for x.p.CanResend() {
			i := int(x.p.Resend(x.now, 0).Req.PSN.Sub(testStart))
			again = again || i == 3
		}
		x.nack(wire.NackNoSESMsgAvail, 1, 0)
		x.nack(wire.NackPktNotRcvd, 2, 0)
	}
}

func TestOneAsksForARefusedMessage(t *testing.T) {
	// F18: a target without room for a message refuses each packet of it. After the
	// back-off one of them is sent again for all, so that a long message leaves the window
	// to messages that the target has room for. Another message has its own test packet.
	// When one is accepted the others follow at once.
	for _, by := range []string{"ack", "sack"} {
		t.Run(by, func(t *testing.T) {
			x := newInitiator(t, wire.RUD)
			x.push(1)
			x.ack(0, 0)
			for _, msg := range []uint32{7, 7, 7, 7, 8, 8} {
				x.p.pushed(x.now, piece.Piece{Msg: msg}, 1000, 0)
			}
			for i := 1; i <= 6; i++ {
				x.nack(wire.NackNoSESMsgAvail, i, 0)
			}
			again := func(want ...int) {
				t.Helper()
				x.wantResend()
				x.now = x.p.tx.waitUntil
				x.tab.Advance(x.now)
				x.wantResend(want...)
			}
			again(1, 5)
			x.nack(wire.NackNoSESMsgAvail, 1, 0)
			x.nack(wire.NackNoSESMsgAvail, 5, 0)
			again(1, 5)
			if by == "ack" {
				x.nack(wire.NackNoSESMsgAvail, 5, 0)
				x.ack(1, 1)
			} else {
				x.ack(0, 5, sack(1, 1))
				x.wantResend(2, 3, 4, 6)
				return
			}
			x.wantResend(2, 3, 4)
			x.nack(wire.NackNoSESMsgAvail, 2, 0) // the target was full again
			x.ack(1, 4)
			x.wantResend() // the answer to 3 will tell
			x.ack(1, 3)
			x.wantResend(2)
			x.ack(1, 5)
			x.wantResend(6)
		})
	}
}

func TestEachAsksForWantOfABuffer(t *testing.T) {
	// F32: a target that lacked a buffer for one packet says nothing about other packets,
	// whether it refuses or accepts that one.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	for range 2 {
		x.p.pushed(x.now, piece.Piece{Msg: 7}, 1000, 0)
	}
	for range 2 {
		x.nack(wire.NackNoPktBuffer, 1, 0)
		x.nack(wire.NackNoPktBuffer, 2, 0)
		x.now = x.p.tx.waitUntil
		x.tab.Advance(x.now)
		x.wantResend(1, 2)
	}
	x.nack(wire.NackNoPktBuffer, 2, 0)
	x.ack(1, 1)
	x.wantResend()
}

func TestAllOfARefusedMessageIsGivenUp(t *testing.T) {
	// F18: when one packet of a message is given up, the rest of the message is sent again
	// at once and given up, too, not packet by packet with a back-off in between.
	x := newInitiator(t, wire.RUD)
	x.tab.cfg.RNRTimeout = time.Second
	x.push(1)
	x.ack(0, 0)
	for range 3 {
		x.p.pushed(x.now, piece.Piece{Msg: 7}, 1000, 0)
	}
	end := x.now + 3*time.Second
	x.nack(wire.NackNoSESMsgAvail, 3, 0)
	x.nack(wire.NackNoSESMsgAvail, 2, 0)
	for x.now < end {
		x.nack(wire.NackNoSESMsgAvail, 1, 0)
		if x.p.tx.at(x.psn(1)).ctl != 0 {
			break
		}
		x.now = x.p.tx.waitUntil
		x.tab.Advance(x.now)
		x.wantResend(1)
	}
	x.wantResend(1, 2, 3) // the first is a NOOP now
}

func TestTakenAfterRefusalEndsTheBackOff(t *testing.T) {
	// F32: when a refused packet is accepted, the next back-off begins at 1 ms and
	// PeerTimeout runs anew: the target is short, then not, then short again.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(2)
	for range 8 {
		x.nack(wire.NackNoResource, 1, 0)
		x.now = x.p.tx.waitUntil
		x.tab.Advance(x.now)
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
	if x.p.tx.waitFor < 100*time.Millisecond {
		t.Fatalf("the back-off is %v", x.p.tx.waitFor)
	}
	x.ack(1, 1)
	x.nack(wire.NackNoResource, 2, 0)
	if got := x.p.tx.waitUntil - x.now; got != time.Millisecond || x.p.tx.shortSince != x.now {
		t.Errorf("the back-off is %v, short since %v at %v", got, x.p.tx.shortSince, x.now)
	}
}

func TestTargetThatForgotIsGivenUp(t *testing.T) {
	// F12: a ROD target in a new life with the same PDCID keeps early packets that are
	// behind packets which its former life answered. It answers all the time, so
	// PeerTimeout does not end the PDC.
	x := newInitiator(t, wire.ROD)
	x.push(3)
	x.ack(1, 1)
	x.ack(-1, -1, sack(2, 2))
	x.forget()
	end := x.now + 41*time.Second
	for x.p.state != Closed {
		if x.now = x.tab.NextTimeout(); x.now > end {
			t.Fatal("still waits after 41 s")
		}
		x.tab.Advance(x.now)
		if x.p.state != Closed && x.p.CtlOwed() {
			x.p.NextCtl(x.now)
			x.nack(wire.NackRcvdSESProcg, 2, 0)
		}
	}
	x.wantTold(fmt.Sprintf("failed 2 %d RCVD_SES_PROCG", WhyNack), fmt.Sprintf("gone %d", WhyNack))
}

func TestShortageOfALostPacketEndsWithIt(t *testing.T) {
	// F32: a NACK for a packet that waits to be sent again says that the target is short of
	// something now. The shortage ends when the target accepts that packet, however busy
	// the PDC stays.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(4)
	x.nack(wire.NackPktNotRcvd, 1, 0) // lost
	x.nack(wire.NackNoPktBuffer, 1, 0)
	x.wantResend(1)
	for i := 1; x.now < 50*time.Second; i++ {
		x.ack(i, i)
		x.push(1)
		x.runTo(x.now + 10*time.Millisecond)
		if x.p.state == Closed {
			t.Fatalf("ended at %v: %v", x.now, x.news()[len(x.news())-2:])
		}
	}
}

func TestRefusedNoopWakes(t *testing.T) {
	// F32: a NOOP fills the gap of a packet that was given up. A peer that does not know
	// NOOP refuses it; packets that wait for the window then go on.
	x := newInitiator(t, wire.RUD)
	x.tab.cfg.RNRTimeout = 10 * time.Millisecond
	x.push(1)
	x.ack(0, 0)
	x.push(1)
	for x.p.tx.at(x.psn(1)).ctl == 0 {
		x.nack(wire.NackNoSESMsgAvail, 1, 0)
		x.runTo(x.now + 2*time.Millisecond)
	}
	x.runTo(x.now + 20*time.Millisecond)
	x.p.Awaited = true
	x.heed()
	x.nack(wire.NackUnexpEvent, 1, 0)
	wakes := 0
	for n := x.tab.NextNews(); n != nil; n = x.tab.NextNews() {
		if n.Kind == NewsAwake {
			wakes++
		}
	}
	if wakes == 0 || x.p.Outstanding() != 0 {
		t.Errorf("%d wakes, %d outstanding", wakes, x.p.Outstanding())
	}
}

func TestWhatGoesInThePlaceOfAPacket(t *testing.T) {
	// F18, S-SEG-08: the owner's replacement for a packet that was given up has its PSN,
	// and as a SYN it opens the PDC, too. A target that is not ready for the replacement
	// either gets a NOOP after half of RNRTimeout.
	for _, taken := range []bool{true, false} {
		x := newInitiator(t, wire.RUD)
		x.tab.cfg.RNRTimeout = time.Second
		x.instead = 100
		x.push(2)
		start := x.now
		refuse := func(give piece.Kind) Again {
			for {
				x.nack(wire.NackNoSESMsgAvail, 0, 0)
				for !x.p.CanResend() {
					if x.now = x.tab.NextTimeout(); x.now > start+3*time.Second {
						t.Fatal("nothing goes again")
					}
					x.tab.Advance(x.now)
				}
				a := x.p.Resend(x.now, 0)
				for x.p.CanResend() {
					x.p.Resend(x.now, 0)
				}
				if a.IsCP || a.Piece.Kind == give || x.now > start+3*time.Second {
					return a
				}
			}
		}
		a := refuse(1)
		if a.IsCP || a.Piece != (piece.Piece{Kind: 1}) || a.Req.PSN != testStart || a.Req.Flags != wire.FlagSYN|wire.FlagRETX|wire.FlagAR || x.p.tx.at(testStart).size != 100 {
			t.Fatalf("%+v %v", a, a.Req)
		}
		if d := x.now - start; d < time.Second || d > 2*time.Second {
			t.Errorf("given up after %v", d)
		}
		x.wantTold()
		if taken {
			x.ack(0, 0)
			x.wantTold("answered 0 OK")
			x.ack(1, 1)
			x.checkAtRest()
			continue
		}
		if a = refuse(2); !a.IsCP || a.CP.Ctl != wire.CtlNoop || a.CP.PSN != testStart {
			t.Fatalf("%+v", a)
		}
		x.wantTold("failed 0 5 NO_SES_MSG_AVAIL")
		// F32: a target that never accepts the NOOP is given up, too.
		for begin := x.now; x.p.state != Closed; {
			x.nack(wire.NackNoSESMsgAvail, 0, 0)
			if x.now = x.tab.NextTimeout(); x.now > begin+42*time.Second {
				t.Fatal("still waits for a NOOP")
			}
			x.tab.Advance(x.now)
			for x.p.state != Closed && x.p.CanResend() {
				x.p.Resend(x.now, 0)
			}
		}
	}
}

func TestEarlyPacketThatIsRefusedGoesAgain(t *testing.T) {
	// UE 3.5.12.7 (ROD): the target reported packet 1 by a SACK, and refused it when its
	// turn came. It must be sent again when a NACK says that the target waits for it,
	// otherwise all packets behind it would be refused for ever.
	x := newInitiator(t, wire.ROD)
	x.push(4)
	x.ack(-1, -1, sack(0, 1))
	x.ack(0, 0)
	x.nack(wire.NackRODOOO, 3, uint32(x.psn(1)))
	x.wantResend(1, 2, 3)
}

func TestRefusedForEverIsGivenUp(t *testing.T) {
	// F32: a target that answers, and accepts a packet in none of its transmissions, is
	// given up after PeerTimeout, whether it says that the PSN is beyond its window or that
	// the response is not ready yet.
	for _, code := range []wire.NackCode{wire.NackPSNOORWindow, wire.NackRcvdSESProcg} {
		for _, mode := range []wire.Mode{wire.RUD, wire.ROD} {
			t.Run(fmt.Sprint(code, mode), func(t *testing.T) {
				x := newInitiator(t, mode)
				x.push(1)
				x.ack(0, 0)
				x.push(1)
				x.forget()
				end := x.now + 41*time.Second
				for x.p.state != Closed {
					x.nack(code, 1, 0)
					if x.now = x.tab.NextTimeout(); x.now > end {
						t.Fatal("still waits after 41 s")
					}
					x.tab.Advance(x.now)
					for x.p.state != Closed && x.p.CanResend() {
						x.p.Resend(x.now, 0)
					}
				}
				if len(x.news()) != 2 || x.now < end-time.Second {
					t.Errorf("ended after %v: %q", x.now, x.news())
				}
			})
		}
	}
}

func TestNotReadyBehindAWindowThatShrank(t *testing.T) {
	// F18, F32: a target refuses the first packet because there is no receive, and the last
	// one because its window shrank. The window cannot move while the target is not ready,
	// so it gets time. Once it is ready and still refuses the last packet, that is a
	// shortage.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(200)
	start, ready := x.now, x.now+100*time.Second
	x.forget()
	var end time.Duration
	for x.p.state != Closed {
		if x.now = x.tab.NextTimeout(); x.now > start+200*time.Second {
			t.Fatal("waits for ever")
		}
		x.tab.Advance(x.now)
		for x.p.state != Closed && x.p.CtlOwed() {
			x.p.NextCtl(x.now)
		}
		for x.p.state != Closed && x.p.CanResend() {
			switch i := int(x.p.Resend(x.now, 0).Req.PSN.Sub(testStart)); {
			case i == 200:
				x.nack(wire.NackPSNOORWindow, i, 0)
			case i == 1 && x.now < ready:
				x.nack(wire.NackNoSESMsgAvail, i, 0)
			default:
				x.ack(0, i)
			}
		}
		end = x.now
	}
	if end < ready+39*time.Second || end > ready+42*time.Second {
		t.Errorf("ended %v after the target was ready: %q", end-ready, x.news()[len(x.news())-2:])
	}
}

func TestRefusedForAWhileIsNotGivenUp(t *testing.T) {
	// F32: the shortage ends with the packet, whichever code reported it.
	for _, code := range []wire.NackCode{wire.NackPSNOORWindow, wire.NackRcvdSESProcg} {
		x := newInitiator(t, wire.RUD)
		x.push(1)
		x.ack(0, 0)
		x.push(2)
		for i := 1; x.now < 50*time.Second; i++ {
			x.nack(code, i, 0)
			x.runTo(x.now + 10*time.Millisecond)
			x.ack(i, i)
			x.push(1)
		}
		if x.p.state == Closed {
			t.Errorf("%v: %v", code, x.news()[len(x.news())-2:])
		}
	}
}

func TestRefusedProbeIsNoGuess(t *testing.T) {
	// T3: a PROBE has no PSN, so the NACK that refuses it names PSN 0: the peer has
	// forgotten the PDC, and nobody guesses. It does not end the PDC either (T6).
	const start = 1 << 24
	x := newTable(t, func(c *Config) { c.StartPSN = func() wire.PSN { return start } })
	x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	x.p.pushed(x.now, piece.Piece{}, 1000, 0)
	for _, c := range []struct {
		psn     wire.PSN
		guesses uint64
	}{{0, 0}, {0, 0}, {start + 1<<20, 1}} {
		x.advance(6 * time.Millisecond)
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: c.psn, DPDCID: x.p.id})
		if x.p.state == Closed || x.tab.Stats.Guessed != c.guesses {
			t.Errorf("NACK of PSN %d: %v, %d guesses, want %d", c.psn, x.p.state, x.tab.Stats.Guessed, c.guesses)
		}
	}
}

func TestEarlyPacketThatIsRefusedGoesAgainSoon(t *testing.T) {
	// UE 3.5.12.7 (ROD): the message layer of a target had no room for a packet that the
	// target kept as early. NACK 09 says so. The packet is sent again after the back-off,
	// and not only when the RTO asks for it.
	x := newInitiator(t, wire.ROD)
	x.push(3)
	x.ack(-1, -1, sack(0, 1))
	x.ack(0, 0)
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	x.advance(time.Millisecond)
	x.wantResend(1)
	x.ack(2, 2)
	x.checkAtRest()
}

func TestLateRefusalOfWhatArrived(t *testing.T) {
	// UE 3.5.12.7 (RUD): what a SACK shows was executed. A NACK that says otherwise is
	// about another copy of it, and late.
	x := newInitiator(t, wire.RUD)
	x.push(3)
	x.ack(-1, -1, sack(0, 1))
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	x.advance(time.Millisecond)
	x.wantResend()
}

func TestHeardButNeverAnsweredIsGivenUp(t *testing.T) {
	// docs/faults.md rule 1: whatever a peer says about a packet, for ever, the operation
	// ends. The exception is a target that is not ready (NACK 09), which only RNRTimeout
	// bounds (F18).
	for _, code := range []wire.NackCode{0, wire.NackTrimmed, wire.NackTrimmedLastHop, wire.NackTrimmedAck, wire.NackRODOOO, wire.NackPktNotRcvd,
		wire.NackAckWithData, wire.NackRcvrInferLoss, wire.NackExpNormal, wire.NackExpError, wire.NackNoSESMsgAvail} {
		for _, mode := range []wire.Mode{wire.RUD, wire.ROD} {
			t.Run(fmt.Sprint(code, mode), func(t *testing.T) {
				x := newInitiator(t, mode)
				x.push(1)
				x.ack(0, 0)
				x.p.pushed(x.now, piece.Piece{Msg: 1}, 300, 0) // small, so that F7 does not apply
				x.forget()
				sent := true
				for end := x.now + 90*time.Second; x.now < end && x.p.state != Closed; {
					if sent && code != 0 {
						x.now += 10 * time.Microsecond
						x.nack(code, 1, uint32(x.psn(1)))
					}
					if x.p.state == Closed {
						break
					}
					x.now = max(x.now, x.tab.NextTimeout())
					x.tab.Advance(x.now)
					for x.p.state != Closed && x.p.CtlOwed() {
						if c, _ := x.p.NextCtl(x.now); c.Ctl == wire.CtlProbe {
							x.ack(0, 0, mpr(1), flag(wire.AckFlagP), func(a *wire.Ack) { a.AckPSNOff, a.ProbeOpaque = 0, c.ProbeOpaque })
						}
					}
					for sent = false; x.p.state != Closed && x.p.CanResend(); sent = true {
						x.p.Resend(x.now, 0)
					}
				}
				if ended := x.p.state == Closed; ended != (code != wire.NackNoSESMsgAvail) {
					t.Errorf("ended %v at %v: %q", ended, x.now, x.news())
				}
			})
		}
	}
}

func TestOwnPauseEndsNothing(t *testing.T) {
	// F17, docs/faults.md rule 6: this side paused for long, and the peer is heard when it
	// goes on: the age of packets lost before does not count.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(8)
	x.now += 100 * time.Second
	x.ack(0, 8, sack(1, 2, 3, 4, 5, 6, 7, 8))
	x.tab.Advance(x.now)
	if x.p.state == Closed {
		t.Fatal("ended")
	}
	x.wantResend(1)
}

// F18: where packets that are tried again queue for the window they all wait as long as the latest
// queued, so that tries take half of the window at most. Where they leave at once they do not.
func TestTriesThatQueueWaitAsLong(t *testing.T) {
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(2)
	try := func(queue time.Duration) (wait time.Duration) {
		for i := 1; i <= 2; i++ {
			x.nack(wire.NackNoSESMsgAvail, i, 0)
		}
		x.now = x.p.tx.waitUntil
		x.tab.Advance(x.now)
		x.p.Resend(x.now, 0)
		x.now += queue
		x.p.Resend(x.now, 0)
		for i := 1; i <= 2; i++ {
			x.nack(wire.NackNoSESMsgAvail, i, 0)
		}
		return x.p.tx.waitUntil - x.now
	}
	if w := try(300 * time.Millisecond); w != 300*time.Millisecond {
		t.Errorf("packets that queued for 300 ms wait for %v", w)
	}
	x.now = x.p.tx.waitUntil
	if w := try(time.Minute); w != 8*x.tab.cfg.RTOMax {
		t.Errorf("packets that queued for a minute wait for %v", w)
	}
	x.now = x.p.tx.waitUntil
	if w := try(0); w > x.tab.cfg.RTOMax {
		t.Errorf("packets that left at once wait for %v", w)
	}
}

// triedAgain is an initiator whose packets 1 to n, of two, were refused and may be tried again now.
func triedAgain(t *testing.T, n int) *pdcTest {
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.push(2)
	for i := 1; i <= n; i++ {
		x.nack(wire.NackNoSESMsgAvail, i, 0)
	}
	x.now = x.p.tx.waitUntil
	x.tab.Advance(x.now)
	return x
}

// F18: packets of a message that the answer to another one frees have not queued since the back-off ended.
func TestFreedPacketsHaveNotQueued(t *testing.T) {
	for _, by := range []string{"ack", "sack"} {
		x := newInitiator(t, wire.RUD)
		x.push(1)
		x.ack(0, 0)
		for range 3 {
			x.p.pushed(x.now, piece.Piece{Msg: 7}, 1000, 0)
		}
		for i := 1; i <= 3; i++ {
			x.nack(wire.NackNoSESMsgAvail, i, 0)
		}
		x.now = x.p.tx.waitUntil
		x.tab.Advance(x.now)
		x.wantResend(1)
		x.now += 300 * time.Millisecond
		if by == "ack" {
			x.ack(1, 1)
		} else {
			x.ack(0, 0, sack(1, 1))
		}
		x.wantResend(2, 3)
		x.nack(wire.NackNoSESMsgAvail, 2, 0)
		if w := x.p.tx.waitUntil - x.now; w > 2*time.Millisecond {
			t.Errorf("%s: packets that left as soon as they were free wait for %v", by, w)
		}
	}
}

// F18, rule 5: while nothing passes, only one packet at a time is tried. That the others wait for it
// is no queue: when the outage ends they are not refused for as long again.
func TestOutageIsNoQueue(t *testing.T) {
	x := triedAgain(t, 2)
	x.p.Resend(x.now, 0)
	for end := x.now + 2*time.Second; x.now < end; x.advance(time.Millisecond) {
		if _, _, lost := x.p.NextLost(); lost && x.p.tx.flight == 0 {
			x.p.Resend(x.now, 0) // packet 1 again and again
		}
	}
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	x.wantResend(2)
	x.nack(wire.NackNoSESMsgAvail, 2, 0)
	if w := x.p.tx.waitUntil - x.now; w > x.tab.cfg.RTOMax {
		t.Errorf("after an outage of 2 s what was refused waits for %v", w)
	}
}

// F18: a packet that left because it was lost says nothing of the queue of those that are tried again.
func TestAPacketThatWasLostIsNoTry(t *testing.T) {
	x := triedAgain(t, 1)
	x.p.Resend(x.now, 0)
	x.now += time.Second
	x.nack(wire.NackPktNotRcvd, 1, 0)
	x.p.Resend(x.now, 0)
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	if w := x.p.tx.waitUntil - x.now; w > x.tab.cfg.RTOMax {
		t.Errorf("a packet that was lost for a second makes all wait for %v", w)
	}
}

// F18: the network may bring a NACK late, and again and again. That does not make the wait longer.
func TestLateRefusalsDoNotLengthenTheWait(t *testing.T) {
	x := triedAgain(t, 2)
	x.now += 300 * time.Millisecond
	x.p.Resend(x.now, 0)
	x.p.Resend(x.now, 0)
	x.nack(wire.NackNoSESMsgAvail, 1, 0)
	due := x.p.tx.waitUntil
	x.now += 200 * time.Millisecond
	x.nack(wire.NackNoSESMsgAvail, 2, 0)
	if x.p.tx.waitUntil != due {
		t.Errorf("a NACK 200 ms later makes all wait until %v, and not %v", x.p.tx.waitUntil, due)
	}
}
