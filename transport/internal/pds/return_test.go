package pds

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// TestReturnProbe: all that a target returned is lost. Its PROBE is answered although nothing of
// the return direction ever arrived.
func TestReturnProbe(t *testing.T) {
	x := newInitiator(t, wire.RUD)
	p := x.p
	x.push(1)
	x.ack(0, 0)
	x.asked = map[uint32]bool{p.Slot: true}
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlProbe, SPDCID: p.remoteID, DPDCID: p.id, ProbeOpaque: 7, Payload: uint32(p.start)})
	if !p.AckOwed() {
		t.Fatal("the PROBE has no answer")
	}
	a, _, err := wire.ParseAck(p.NextAck(x.now, nil))
	if err != nil || a.ProbeOpaque != 7 || a.CACK != p.start-1 || a.SACK != 0 {
		t.Errorf("answered %v, %v", &a, err)
	}
}
