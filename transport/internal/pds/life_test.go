package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// unknownPDC is the NACK with which a table answers a request for the PDCID id, which it does
// not have.
func unknownPDC(t *testing.T, x *pdcTest, id uint16) wire.Nack {
	t.Helper()
	x.tab.ReceiveReq(x.in(peerAddr), &wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: 7, ClearOff: -1, SPDCID: 9, DPDCID: id})
	l, ok := x.tab.NextLoose()
	if !ok {
		t.Fatal("no answer")
	}
	n, _, err := wire.ParseNack(l.B[:l.N])
	if err != nil || n.Code != wire.NackInvDPDCID || n.PSN != 7 || n.DPDCID != 9 || n.SPDCID != 0 {
		t.Fatalf("%v %v", n, err)
	}
	return n
}

func TestTargetProvesItsLife(t *testing.T) {
	// S-LIFE-01: NACK 0E says for how many milliseconds the target has lived, if no PDC of it
	// ever had that PDCID.
	x := newTable(t, func(c *Config) { c.Born = 400 * time.Millisecond })
	if n := unknownPDC(t, x, 1000); n.Vendor != wire.VendorLife || n.Payload != 600 {
		t.Errorf("after 600 ms: %v", n)
	}
	x.now += 49 * 24 * time.Hour
	if n := unknownPDC(t, x, 1000); n.Vendor != wire.VendorLife || n.Payload != uint32((x.now-400*time.Millisecond)/time.Millisecond) {
		t.Errorf("after 49 days: %v", n)
	}
	x.now += 24 * time.Hour
	if n := unknownPDC(t, x, 1000); n.Vendor != wire.VendorLife || n.Payload != 1<<32-1 {
		t.Errorf("after 50 days: %v", n)
	}
	had := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	id := had.ID()
	x.tab.Abort(x.now)
	if n := unknownPDC(t, x, id); n.Vendor != 0 || n.Payload != 0 {
		t.Errorf("of a PDC that it had: %v", n)
	}
	x = newTable(t, nil)
	if n := unknownPDC(t, x, 1000); n.Vendor != 0 || n.Payload != 0 {
		t.Errorf("of a target that does not know when it began: %v", n)
	}
}

func TestTargetShunsWhatItNeverHad(t *testing.T) {
	// S-LIFE-02: a PDCID that the target said it never had gets no PDC while packets for it may
	// be under way. Forged requests for all PDCIDs cost no more memory and leave PDCIDs over.
	x := newTable(t, func(c *Config) { c.Born = time.Millisecond; c.MaxPDCs = 1 << 17 })
	proofs := 0
	for id := 1; id < 1<<16; id++ {
		if id%50 == 0 {
			x.now += 10 * time.Millisecond // the rate limit of NACKs
		}
		if n := unknownPDC(t, x, uint16(id)); n.Vendor == wire.VendorLife {
			proofs++
		}
	}
	if proofs > 5*maxShunned {
		t.Errorf("%d proofs in %v", proofs, x.now)
	}
	now := x.now
	var shunned []uint16
	for id := 1; id < 1<<16; id++ {
		if x.tab.shunned.has(now, x.tab.cfg.Quarantine, uint16(id)) {
			shunned = append(shunned, uint16(id))
		}
	}
	if len(shunned) == 0 || len(shunned) > 2*maxShunned {
		t.Fatalf("%d PDCIDs are shunned", len(shunned))
	}
	last := shunned[len(shunned)-1]
	x.now += 10 * time.Millisecond
	x.tab.shunned = shunned0(x.now, last)
	if unknownPDC(t, x, last).Vendor != wire.VendorLife {
		t.Fatal("no proof")
	}
	for _, after := range []time.Duration{0, x.tab.cfg.Quarantine - 1, x.tab.cfg.Quarantine} {
		if !x.tab.shunned.has(x.now+after, x.tab.cfg.Quarantine, last) {
			t.Errorf("%v after the proof the PDCID may be used", after)
		}
	}
	opened := 0
	for p := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc); p != nil; p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc) {
		if opened++; p.ID() == last {
			t.Fatalf("PDC %d has PDCID %d", opened, last)
		}
	}
	if opened != 1<<16-2 {
		t.Errorf("%d PDCs, want one for each PDCID but 0 and %d", opened, last)
	}
	if x.tab.shunned.has(x.now+2*x.tab.cfg.Quarantine, x.tab.cfg.Quarantine, last) {
		t.Error("it is shunned for ever")
	}
}

// shunned0 shuns one PDCID from now on, as the latest of a nearly full turn.
func shunned0(now time.Duration, id uint16) shunned {
	var s shunned
	s.add(now, time.Second, id)
	return s
}

// S-LIFE-03: a message is taken back if one of its packets left when the life that does not
// know the PDC had begun, and NACK 0E answered each transmission of that packet.
func TestUnrunMessages(t *testing.T) {
	for _, c := range []struct {
		name  string
		lived time.Duration    // at the second NACK, 7 ms after the first, which is 10 ms after packet 1
		plain bool             // the NACKs prove nothing
		early func(x *pdcTest) // right after the first NACK
		acts  func(x *pdcTest) // right before the second
		want  []string
	}{
		{name: "it began before", lived: 50 * time.Millisecond, want: []string{"taken back 1", "failed 2 3 INV_DPDCID"}},
		{name: "it began long before", lived: 90 * 24 * time.Hour, want: []string{"taken back 1", "failed 2 3 INV_DPDCID"}},
		{name: "it began after", lived: 16 * time.Millisecond, want: []string{"failed 1 3 INV_DPDCID", "failed 2 3 INV_DPDCID"}},
		{name: "as long as clocks may differ", lived: 17 * time.Millisecond, want: []string{"failed 1 3 INV_DPDCID", "failed 2 3 INV_DPDCID"}},
		{name: "no proof", lived: 50 * time.Millisecond, plain: true, want: []string{"failed 1 3 INV_DPDCID", "failed 2 3 INV_DPDCID"}},
		{name: "the other one was refused, too", lived: 50 * time.Millisecond, want: []string{"taken back 1", "taken back 2"},
			early: func(x *pdcTest) { x.nack(wire.NackInvDPDCID, 2, 0) }},
		{name: "a transmission without an answer", lived: 50 * time.Millisecond, want: []string{"failed 1 3 INV_DPDCID", "failed 2 3 INV_DPDCID"},
			acts: func(x *pdcTest) { // it is lost and goes once more before the second NACK
				x.p.tx.at(x.psn(1)).tries++
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newInitiator(t, wire.RUD)
			x.push(1)
			x.ack(0, 0)
			x.push(2) // messages 1 and 2
			x.now += 10 * time.Millisecond
			x.forget()
			x.nack(wire.NackInvDPDCID, 1, 0)
			if c.early != nil {
				c.early(x)
			}
			x.advance(7 * time.Millisecond)
			for x.p.CanResend() {
				x.p.Resend(x.now, 0)
			}
			if c.acts != nil {
				c.acts(x)
			}
			n := wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: x.psn(1), DPDCID: x.p.id}
			if !c.plain {
				n.Vendor, n.Payload = wire.VendorLife, uint32(min(c.lived/time.Millisecond, 1<<32-1))
			}
			x.tab.ReceiveNack(x.in(peerAddr), &n)
			x.wantTold(append(c.want, "gone 3")...)
		})
	}
}

func TestUnrunNeedsOnePacketOfTheMessage(t *testing.T) {
	// A message is executed only if all of its packets are: one that was never executed is
	// enough. Another message on the PDC proves nothing about it.
	x := newInitiator(t, wire.RUD)
	x.push(6)
	for i, msg := range []uint32{1, 1, 1, 2, 2, 2} {
		x.p.tx.at(x.psn(i)).piece.Msg = msg
	}
	x.ack(0, 0) // a former life had it
	x.forget()
	x.nack(wire.NackInvDPDCID, 2, 0)
	x.advance(7 * time.Millisecond)
	x.p.Resend(x.now, 0)
	x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, Vendor: wire.VendorLife, PSN: x.psn(2), DPDCID: x.p.id, Payload: 1000})
	x.wantTold("taken back 1", "taken back 1", "failed 2 3 INV_DPDCID", "failed 2 3 INV_DPDCID", "failed 2 3 INV_DPDCID", "gone 3")
}
