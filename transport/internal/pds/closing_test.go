package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestInitiatorCloses(t *testing.T) {
	// UE 3.5.8: the initiator quiesces, waits for every ACK, sends CLOSE with a PSN of its
	// own, and frees the PDC when the CLOSE is acknowledged.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(-1, -1)
	x.tab.Close(x.now, x.p)
	if x.p.Usable() {
		t.Error("new messages may start on a quiescing PDC")
	}
	x.tab.Drained(x.now, x.p)
	if x.p.State() != AckWait {
		t.Fatalf("state %v with a packet outstanding", x.p.State())
	}
	x.ack(0, 0)
	x.advance(6 * time.Millisecond)
	if x.p.State() != CloseAckWait {
		t.Fatalf("state %v", x.p.State())
	}
	x.wantResend(1) // the CLOSE
	x.forget()
	a := wire.Ack{Type: wire.TypeAck, Next: wire.NextNone, CACK: x.psn(0), AckPSNOff: 1, SPDCID: 77, DPDCID: x.p.id}
	x.tab.ReceiveAck(x.in(peerAddr), &a, nil)
	x.wantTold("gone 8")
	if x.tab.Len() != 0 || x.ccc.inFlight != 0 {
		t.Errorf("%d PDCs, %d bytes in flight", x.tab.Len(), x.ccc.inFlight)
	}
	// The PDCID is not reused within Quarantine (S-PDC-01).
	if !x.tab.quar.hasID(x.now+3*time.Second, x.p.id) || x.tab.quar.hasID(x.now+5*time.Second, x.p.id) {
		t.Error("the PDCID is not in quarantine for 4 s")
	}
}

func TestLostClosingAckResolves(t *testing.T) {
	// UE 3.5.8: the CLOSE is sent again; NACK 0E means that the peer has freed the PDC.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.tab.Close(x.now, x.p)
	x.tab.Drained(x.now, x.p)
	x.wantResend(1)
	x.advance(20 * time.Millisecond)
	x.wantResend(1)
	x.forget()
	x.nack(wire.NackInvDPDCID, 1, 0)
	x.wantTold("gone 8")
}

func TestCloseWithoutAnswerEnds(t *testing.T) {
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.tab.Close(x.now, x.p)
	x.tab.Drained(x.now, x.p)
	start := x.now
	for x.p.state != Closed {
		for x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	if x.now-start > 2*time.Second {
		t.Errorf("freed after %v", x.now-start)
	}
}

func TestTargetAsksForClose(t *testing.T) {
	// UE 3.5.8: a target that wants its resources back sends CLOSE_REQ with a PSN of the
	// return direction, and REQ=CLOSE in ACKs. The initiator then closes.
	x := newTarget(t)
	x.p.RequestClose(x.now)
	a := x.p.Resend2(x.now)
	if !a.IsCP || a.CP.Ctl != wire.CtlCloseReq || a.CP.PSN != testStart || a.CP.Flags&wire.FlagAR == 0 {
		t.Fatalf("want CLOSE_REQ with the first return PSN, got %v", a.CP)
	}
	y := newInitiator(t, wire.RUD)
	y.push(1)
	y.ack(0, 0)
	y.forget()
	c := a.CP
	c.SPDCID, c.DPDCID = 77, y.p.id
	y.tab.ReceiveCP(y.in(peerAddr), &c)
	y.wantLoose("ACK cack=0 psn=0")
	if y.p.State() != Quiesce {
		t.Errorf("initiator is %v", y.p.State())
	}
	ack := wire.Ack{Type: wire.TypeAck, Next: wire.NextNone, CACK: testStart, SPDCID: 9, DPDCID: x.p.id}
	x.tab.ReceiveAck(x.in(peerAddr), &ack, nil)
	x.wantTold()
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(1), SPDCID: 9, DPDCID: x.p.id})
	x.wantTold("gone 8")
}

// Resend2 is CanResend, then Resend.
func (p *PDC) Resend2(now time.Duration) Again {
	if !p.CanResend() {
		panic("nothing to send")
	}
	return p.Resend(now, 0)
}

func TestIdlePDCCloses(t *testing.T) {
	// A PDC that is idle for IdleClose, 30 s, closes.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	for x.p.state == Established {
		x.now = x.tab.NextTimeout()
		x.tab.Advance(x.now)
	}
	if x.now < 31*time.Second || x.now > 32*time.Second || x.p.state != Quiesce {
		t.Errorf("%v at %v", x.p.state, x.now)
	}
}

// runTo runs all timers up to a time.
func (x *pdcTest) runTo(end time.Duration) {
	for x.now < end {
		x.now = end
		if at := x.tab.NextTimeout(); at != 0 && at < end {
			x.now = at
		}
		x.tab.Advance(x.now)
		for x.p.state != Closed && x.p.CanResend() {
			x.p.Resend(x.now, 0)
		}
	}
}

func TestTargetWaitsForAnOpenMessage(t *testing.T) {
	// F28: a target neither asks for the close of a PDC in the middle of a message nor ends
	// it, because the window of its initiator may be closed. PeerTimeout ends it (F9).
	x := newTarget(t)
	x.tab.cfg.IdleClose = 100 * time.Millisecond
	x.open[x.p.Slot] = true
	x.recv(1, ar)
	x.forget()
	start := x.now
	x.runTo(start + 10*time.Second)
	if x.p.state != Established {
		t.Fatalf("the target is %v after 10 s", x.p.state)
	}
	// If it has asked before, it does not give up either.
	x.p.RequestClose(x.now)
	x.runTo(start + 39*time.Second)
	if x.p.state != CloseRequested {
		t.Fatalf("the target that asked is %v after 39 s", x.p.state)
	}
	x.runTo(start + 41*time.Second)
	x.wantTold("gone 1")
}

func TestIdleTargetOutlivesABlackout(t *testing.T) {
	// F8: an initiator whose ACK was lost, and that is behind a blackout since, is answered afterwards,
	// however soon the target found the PDC idle. So is one that was heard once in between. Who leaves
	// waits for less.
	for _, leaves := range []bool{false, true} {
		for heard := range 2 {
			x := newTarget(t)
			x.tab.cfg.IdleClose = 10 * time.Millisecond
			x.recv(1, ar)
			x.forget()
			if leaves {
				x.tab.Leave(x.now)
			}
			x.runTo(x.now + 2*time.Second)
			if x.p.state != CloseRequested {
				t.Fatalf("the target is %v: it has not found that the PDC is idle", x.p.state)
			}
			if heard == 1 {
				x.runTo(x.now + 2*time.Second)
				x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlAckReq, PSN: x.psn(0), SPDCID: 9, DPDCID: x.p.id})
			}
			if x.runTo(x.now + 30*time.Second); x.p.state == Closed != leaves {
				t.Errorf("after a blackout of 30 s the target is %v; it leaves: %v, heard once: %d", x.p.state, leaves, heard)
			}
			x.runTo(x.now + 10*time.Second)
			if x.p.state != Closed {
				t.Errorf("it is %v after PeerTimeout; it leaves: %v", x.p.state, leaves)
			}
		}
	}
}

func TestTargetTakesItsRequestBack(t *testing.T) {
	// F28, UE 3.5.8: an initiator that goes on is not asked again by each ACK. When it
	// closes after all, an unanswered CLOSE_REQ is no error.
	x := newTarget(t)
	x.p.RequestClose(x.now)
	x.p.Resend2(x.now)
	x.recv(1, ar)
	if a, _ := x.p.nextAck(x.now); a.Req != wire.ReqNone {
		t.Errorf("the ACK of a new packet asks %v", a.Req)
	}
	x.runTo(x.now + 10*time.Second)
	if x.p.state != Established {
		t.Fatalf("the target is %v", x.p.state)
	}
	x.forget()
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(2), SPDCID: 9, DPDCID: x.p.id})
	x.wantTold("gone 8")
	x.wantLoose("ACK cack=1 psn=2")
}

func TestTargetChecksAFarewell(t *testing.T) {
	// F27, T6: an initiator that is gone in the middle of a message says so once. The
	// target asks; NACK 0E for its CLOSE_REQ ends the message at once. A forged farewell
	// ends nothing: the initiator goes on, and the target withdraws its request.
	for _, forged := range []bool{false, true} {
		x := newTarget(t)
		x.open[x.p.Slot] = true
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackClosingInErr, PSN: x.psn(0), SPDCID: 9, DPDCID: x.p.id})
		x.wantTold()
		a := x.p.Resend2(x.now)
		if !a.IsCP || a.CP.Ctl != wire.CtlCloseReq {
			t.Fatalf("want CLOSE_REQ, got %v", a.CP)
		}
		if forged {
			x.recv(1, ar)
			x.wantTold("deliver 1")
			if x.p.state != Established {
				t.Errorf("the target is %v", x.p.state)
			}
			continue
		}
		x.advance(100 * time.Microsecond)
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: a.CP.PSN, DPDCID: x.p.id})
		x.wantTold("gone 8")
	}
}

func TestIdleInitiatorHeedsAFarewell(t *testing.T) {
	// T6: a single NACK 11 on a PDC with nothing outstanding may be forged. The initiator closes
	// in order: NACK 0E for its CLOSE shows that the peer has freed the PDC, and no message has
	// to find that out. A PDC with something outstanding goes on as before.
	farewell := func(x *pdcTest) {
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackClosingInErr, PSN: x.p.tx.nxt - 1, SPDCID: x.p.remoteID, DPDCID: x.p.id})
	}
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	farewell(x)
	if x.p.state != Established {
		t.Fatalf("with a packet outstanding: %v", x.p.state)
	}
	x = newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(0, 0)
	x.forget()
	farewell(x)
	if x.p.Usable() {
		t.Fatalf("a new message may begin: %v", x.p.state)
	}
	x.tab.Drained(x.now, x.p)
	a := x.p.Resend2(x.now)
	if !a.IsCP || a.CP.Ctl != wire.CtlClose {
		t.Fatalf("want CLOSE, got %v", a.CP)
	}
	x.advance(100 * time.Microsecond)
	x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: a.CP.PSN, DPDCID: x.p.id})
	x.wantTold("gone 8")
}

func TestInitiatorIsNeverReapedAsPending(t *testing.T) {
	// T9, UE 3.5.8: PENDING is a state of targets. A CLOSE_REQ or NOOP with a PSN that the
	// return direction cannot have must not end an initiator's PDC, whose packets would
	// then never fail.
	for _, ctl := range []wire.CtlType{wire.CtlCloseReq, wire.CtlNoop} {
		for _, off := range []int{-1, 1000} {
			x := newInitiator(t, wire.RUD)
			x.push(2)
			x.ack(0, 0)
			x.forget()
			x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: ctl, Flags: wire.FlagAR, PSN: x.psn(off), SPDCID: 77, DPDCID: x.p.id})
			x.runTo(x.now + 3*time.Second)
			x.wantTold()
			if x.p.state == Closed {
				t.Fatalf("%v with PSN %d ended the PDC", ctl, off)
			}
			x.ack(1, 1)
			x.wantTold("answered 1 OK")
		}
	}
}

func TestShutPDCAsksNowAndThen(t *testing.T) {
	// A peer is heard but does not answer the PROBEs of a shut PDC. It gets one each
	// RTOMax, and is given up after PeerTimeout; otherwise packets that wait for the window
	// would wait for ever.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.ack(-1, 0, mpr(1))
	for i := 1; i < 128; i++ {
		x.push(1)
		x.now += time.Microsecond * 50
		x.ack(-1, i, mpr(1))
	}
	if !x.p.shut() {
		t.Fatal("not shut")
	}
	n := 0
	end := x.now + 41*time.Second
	for x.p.state != Closed {
		x.now = max(x.now, x.tab.NextTimeout())
		x.p.idleAt = x.now // a message waits: no IdleClose
		x.tab.Advance(x.now)
		if x.now > end || x.p.state == Closed && x.now < end-time.Second {
			t.Fatalf("%v at %v", x.p.state, x.now)
		}
		for x.p.CtlOwed() {
			if c, _ := x.p.NextCtl(x.now); c.Ctl == wire.CtlProbe {
				n++
			}
		}
		x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClearReq, SPDCID: 77, DPDCID: x.p.id})
	}
	if n > 100 {
		t.Errorf("%d PROBEs in 40 s", n)
	}
}

func TestCloseWaitsForTheWindow(t *testing.T) {
	// UE 3.5.8: every packet was named by an ACK, but CACK is a window behind, so the CLOSE
	// is beyond the window. The answer to a PROBE moves CACK, and the CLOSE is sent.
	x := newInitiator(t, wire.RUD)
	x.push(128)
	for i := range 128 {
		x.ack(-1, i, mpr(1))
	}
	x.tab.Close(x.now, x.p)
	x.tab.Drained(x.now, x.p)
	if x.p.state != CloseAckWait {
		t.Fatal(x.p.state)
	}
	x.wantResend()
	for x.p.CtlOwed() {
		x.p.NextCtl(x.now) // the CLEAR that greets
	}
	end := x.now + time.Second
	for !x.p.CtlOwed() {
		if x.now = x.tab.NextTimeout(); x.now > end || x.p.state == Closed {
			t.Fatal("nobody asks for the window")
		}
		x.tab.Advance(x.now)
	}
	for _, ctl := range []wire.CtlType{wire.CtlClear, wire.CtlProbe} { // S-CLR-05
		if c, _ := x.p.NextCtl(x.now); c.Ctl != ctl {
			t.Fatalf("%v instead of %v", c, ctl)
		}
	}
	x.ack(127, 0, mpr(1), flag(wire.AckFlagP))
	x.wantResend(128)
}

func TestCloseBehindAFullWindow(t *testing.T) {
	// UE 3.5.8: a CLOSE clears everything, so it is accepted even if guaranteed responses
	// fill the window of the target: directly behind the last packet, and nowhere else.
	for _, c := range []struct {
		psn    int
		closes bool
	}{{256, true}, {257, false}, {-300, false}} {
		x := newTarget(t, gtd)
		for i := 1; i < 256; i++ {
			x.recv(i, gtd, clearTo(-1))
		}
		x.acks()
		x.forget()
		x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(c.psn), SPDCID: 9, DPDCID: x.p.id})
		if closes := x.p.state == Closed; closes != c.closes {
			t.Errorf("CLOSE with PSN %d closes: %v", c.psn, closes)
		}
		if c.closes {
			x.wantLoose("ACK cack=255 psn=256")
			x.wantTold("gone 8")
		}
	}
}

func TestUnansweredCloseReqEndsNothing(t *testing.T) {
	// UE 3.5.8: a target asks for CLOSE, and the initiator goes on without an answer. Its
	// packets are accepted, however long that lasts.
	x := newTarget(t)
	x.p.RequestClose(x.now)
	x.forget()
	for i := 1; i <= 100; i++ {
		x.runTo(x.now + time.Second)
		if x.p.state == Closed {
			t.Fatalf("ended at %v: %q", x.now, x.news())
		}
		x.recv(i)
		x.acks()
	}
}

func TestF32RefusedCloseReqEndsNothing(t *testing.T) {
	// F28, F32: an initiator with messages under way refuses the CLOSE_REQ for lack of
	// something. That does not end the messages, however long it lasts. An initiator
	// without messages that refuses it for PeerTimeout loses the PDC. NACK 09 is about
	// messages; here it counts as any other refusal.
	for _, c := range []struct {
		busy, open bool
		code       wire.NackCode
	}{
		{true, false, wire.NackNoResource}, {false, true, wire.NackNoResource}, {false, false, wire.NackNoResource},
		{true, false, wire.NackNoSESMsgAvail}, {false, true, wire.NackNoSESMsgAvail}, {false, false, wire.NackNoSESMsgAvail},
	} {
		x := newTarget(t)
		x.p.RequestClose(x.now)
		x.open[x.p.Slot] = c.open // a message of which no more comes for now
		x.forget()
		start := x.now
		for i := 1; x.p.state != Closed && x.now < start+100*time.Second; i++ {
			if x.p.Outstanding() > 0 {
				x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: c.code, PSN: x.psn(0), SPDCID: 9, DPDCID: x.p.id})
			}
			x.runTo(x.now + 400*time.Millisecond)
			if c.busy && x.p.state != Closed {
				x.recv(i)
				x.acks()
			}
		}
		switch d := x.now - start; {
		case (c.busy || c.open) && x.p.state == Closed:
			t.Errorf("%+v: ended after %v: %q", c, d, x.news()[len(x.news())-1])
		case !c.busy && !c.open && (d < 39*time.Second || d > 42*time.Second):
			t.Errorf("%+v: %v after %v", c, x.p.state, d)
		}
	}
}
