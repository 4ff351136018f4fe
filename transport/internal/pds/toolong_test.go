package pds

import (
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestF7EarlyNackNamesTheTarget(t *testing.T) {
	// F7: a ROD target may answer packets that came before the first one by NACKs alone. They
	// have its PDCID, so that PROBEs can tell which lengths arrive.
	for _, code := range []wire.NackCode{wire.NackRcvdSESProcg, wire.NackRODOOO} {
		x := newInitiator(t, wire.ROD)
		x.push(3)
		n := &wire.Nack{Type: wire.TypeNack, Code: code, PSN: x.psn(1), DPDCID: x.p.id, Payload: uint32(x.psn(0))}
		x.tab.ReceiveNack(x.in(peerAddr), n)
		if x.p.remoteID != 0 || x.p.State() != Creating {
			t.Errorf("NACK %v that names no PDC: %v", code, x.p)
		}
		n.SPDCID = 77
		x.tab.ReceiveNack(x.in(peerAddr), n)
		if x.p.remoteID != 77 || x.p.State() != Established {
			t.Errorf("NACK %v: %v", code, x.p)
		}
	}
}

func TestF7RODOOOTellsOfLongPackets(t *testing.T) {
	// F7: a ROD target that keeps nothing early says by NACK ROD_OOO that shorter packets arrive
	// behind a long one that does not, which counts as lost then.
	x := newInitiator(t, wire.ROD)
	x.push(1)
	x.ack(0, 0)
	x.p.pushed(x.now, piece.Piece{Msg: 1}, 4000, 0)
	x.push(1)
	x.nack(wire.NackRODOOO, 2, uint32(x.psn(1)))
	if x.p.tx.long != x.psn(1) || x.p.tx.longLost != 1 {
		t.Errorf("packet %d was lost %d times", x.p.tx.long.Sub(testStart), x.p.tx.longLost)
	}
}

func TestF7VoidPacketsOfANewStart(t *testing.T) {
	// F7: void packets that get other PSNs are void packets still: their answers are counted.
	d := newDuo(t, SecureZeroRTT, nil)
	p := d.i.tab.Open(d.now, 1, targetAddr, wire.ROD, d.i.ccc)
	d.i.p = p
	for msg := range uint32(2) {
		p.pushed(d.now, piece.Piece{Msg: msg}, 4000, 0)
	}
	d.i.tab.Void(d.now, p)
	d.sent(d.i)
	d.nack(targetWho, wire.NackNewStartPSN, p.start, 0x40000001)
	if p.start != 0x40000001 || !p.Stopped() {
		t.Fatalf("%v does not wait for void packets", p)
	}
	d.exchange()
	if p.Voids() || p.tx.una != p.tx.nxt {
		t.Errorf("%v, %d void packets unanswered", p, p.tx.voids)
	}
}
