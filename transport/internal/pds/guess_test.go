package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestT3GuessesAreTold(t *testing.T) {
	// T3: more than 100 packets a second that name a PDC and cannot belong to it are
	// reported, once a second. Honest packets that are late or duplicated do not count.
	const far = 1 << 24
	x := newTarget(t)
	id, far32 := x.p.ID(), x.psn(far)
	x.p.tx.window = 128
	x.recv(1, ar)
	for name, guess := range map[string]func(){
		"request from elsewhere": func() {
			x.tab.ReceiveReq(x.in(otherAddr), &wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: x.psn(2), ClearOff: -1, SPDCID: 9, DPDCID: id})
		},
		"request far off": func() { x.recv(far) },
		"ACK from elsewhere": func() {
			x.tab.ReceiveAck(x.in(otherAddr), &wire.Ack{Type: wire.TypeAck, CACK: x.psn(0), SPDCID: 9, DPDCID: id}, nil)
		},
		"ACK of another PDCID": func() {
			x.tab.ReceiveAck(x.in(peerAddr), &wire.Ack{Type: wire.TypeAck, CACK: x.psn(0), SPDCID: 10, DPDCID: id}, nil)
		},
		"ACK of before": func() {
			x.tab.ReceiveAck(x.in(peerAddr), &wire.Ack{Type: wire.TypeAck, CACK: x.psn(-far), SPDCID: 9, DPDCID: id}, nil)
		},
		"ACK of the unsent": func() {
			x.p.strikes = 0
			x.tab.ReceiveAck(x.in(peerAddr), &wire.Ack{Type: wire.TypeAck, CACK: far32, SPDCID: 9, DPDCID: id}, nil)
		},
		"NACK from elsewhere": func() {
			x.tab.ReceiveNack(x.in(otherAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: x.psn(0), DPDCID: id})
		},
		"NACK far off": func() {
			x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: far32, DPDCID: id})
		},
		"CP of another PDCID": func() {
			x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClear, SPDCID: 10, DPDCID: id})
		},
		"CLOSE far off": func() {
			x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClose, PSN: far32, SPDCID: 9, DPDCID: id})
		},
	} {
		x.now += 2 * time.Second
		x.guessed()
		x.guesses = 0
		for range 100 {
			guess()
		}
		if x.guessed() != 0 {
			t.Errorf("%s: told after %d", name, 100)
		}
		for range 300 {
			guess()
		}
		if x.guessed() != 1 {
			t.Errorf("%s: told %d times in a second", name, x.guessed())
		}
		x.now += time.Second
		for range 101 {
			guess()
		}
		if x.guessed() != 2 {
			t.Errorf("%s: told %d times in two seconds", name, x.guessed())
		}
		x.loose()
	}
	x.now += 2 * time.Second
	x.guessed()
	x.guesses = 0
	for range 500 {
		x.recv(1, ar) // late, or a duplicate
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: x.psn(-30), DPDCID: id})
		x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: x.psn(1), DPDCID: id + 1})
	}
	if x.guessed() != 0 {
		t.Error("honest packets are taken for guesses")
	}
}
