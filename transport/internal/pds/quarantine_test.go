package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// otherLife turns a request into one of another life with the same PDCID.
func otherLife(h *wire.Req) {
	h.Flags |= wire.FlagSYN
	h.DPDCID, h.PSNOffset = 0, 0
	h.PSN += 1 << 20
}

func (x *pdcTest) closeTarget(i int) {
	id := x.p.ID()
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: x.psn(i), SPDCID: 9, DPDCID: id})
	x.p = nil
	x.forget()
	x.loose()
}

func TestRefusedLifeStaysRefused(t *testing.T) {
	// S-PDC-05: a SYN refused with NACK 15 belongs to messages that are sent again under
	// another PDCID. A late copy of it is refused even when the PDC in its way is gone,
	// otherwise the message would be delivered twice.
	x := newTarget(t)
	x.recv(1, otherLife)
	x.wantLoose("NACK INVALID_SYN")
	x.advance(time.Second)
	x.closeTarget(1)
	x.recv(1, otherLife)
	x.wantTold()
	x.wantLoose("NACK INVALID_SYN")
	// Each late copy shows that there may be more, so Quarantine runs from the last one.
	x.advance(3900 * time.Millisecond)
	x.recv(1, otherLife)
	x.wantLoose("NACK INVALID_SYN")
	x.advance(3900 * time.Millisecond)
	x.recv(1, otherLife)
	x.wantTold()
	x.wantLoose("NACK INVALID_SYN")
	x.advance(4100 * time.Millisecond)
	x.recv(1, otherLife)
	x.wantTold("deliver 1")
	if q := &x.tab.quar; q.refused != 0 || len(q.lives) != 0 {
		t.Errorf("%d refused, %d lives are left", q.refused, len(q.lives))
	}
}

func TestClosedLifeIsNotTakenForAnother(t *testing.T) {
	// S-PDC-05: packets of a life that was executed get NACK 0E and never NACK 15, after
	// which their initiator would send them again, even if another life has its PDCID.
	x := newTarget(t)
	x.closeTarget(1)
	x.recv(0, otherLife)
	x.wantTold("deliver 0")
	x.recv(0, func(h *wire.Req) { h.Flags |= wire.FlagSYN; h.DPDCID = 0; h.PSNOffset = 0 })
	x.wantTold()
	x.wantLoose("NACK INV_DPDCID")
}

func TestRefusedLivesAreBounded(t *testing.T) {
	// T1: forged lives with a known PDCID fill at most a quarter of the quarantine. Beyond
	// it the answer is NACK 04, which means to try again.
	x := newTarget(t)
	for i := range 40 {
		x.recv(1, func(h *wire.Req) { otherLife(h); h.PSN += wire.PSN(i) << 20 })
	}
	if n := x.tab.Stats.NacksTx[wire.NackInvalidSyn]; n != 25 {
		t.Errorf("%d lives were refused, want a quarter of 100", n)
	}
	if n := x.tab.Stats.NacksTx[wire.NackNoPDCAvail]; n != 15 {
		t.Errorf("%d were told to come again", n)
	}
	x.closeTarget(1)
	if x.tab.quar.full(x.now) {
		t.Error("no room is left to guard those who close")
	}
}

func TestStartPSNStaysAwayFromTheLast(t *testing.T) {
	// S-PSN-03: the next Start_PSN of a PDCID is at least 2¹⁶ away from the last PSN that
	// it was used with.
	for _, next := range []int{0, 7, 9, 1 << 15, -(1 << 16) + 1, 1 << 20} {
		start := testStart
		x := newTable(t, func(c *Config) { c.StartPSN = func() wire.PSN { return start } })
		open := func() *PDC {
			p := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
			// The same PDCID is rarely drawn again, so the script sets it.
			x.tab.setID(p.id, nil)
			p.id = 4711
			x.tab.setID(p.id, p)
			p.start = x.tab.newStart(p.id)
			p.tx.init(p.start)
			return p
		}
		x.p = open()
		x.push(8)
		x.tab.fail(x.now, x.p, Reason{Why: WhyTimeout})
		start = testStart.Add(next)
		p := open()
		first, last := p.StartPSN().Sub(testStart), p.StartPSN().Sub(testStart.Add(8))
		if first > -(1<<16) && last < 1<<16 {
			t.Errorf("the next life starts %d from the first PSN of the last one and %d from its last", first, last)
		}
		if next == 1<<20 && p.StartPSN() != start {
			t.Errorf("a Start_PSN far away was changed by %d", p.StartPSN().Sub(start))
		}
	}
}

func TestPDCIDGivenUpIsQuarantined(t *testing.T) {
	// S-PDC-01: a PDCID is not used again within Quarantine, even if its PDC goes on under
	// another one.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	id := x.p.ID()
	x.refuseOpening(0)
	if x.p.ID() == id || !x.tab.quar.hasID(x.now+3900*time.Millisecond, id) || x.tab.quar.hasID(x.now+4*time.Second, id) {
		t.Errorf("PDCID %d, before %d, is not in quarantine", x.p.ID(), id)
	}
}
