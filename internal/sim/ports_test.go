package sim_test

import (
	"net/netip"
	"testing"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport/wire"
)

// firstFlight forges the SYN packets of one message from several source ports of a host that
// the simulator does not have. Packet i comes from the i-th of ports.
func firstFlight(w *simtest.World, spdcid uint16, start wire.PSN, ports ...uint16) {
	const payload = 2048
	n := len(ports)
	for i, port := range ports {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: start.Add(i), PSNOffset: uint16(i), SPDCID: spdcid, ClearOff: -1 - int16(i)}
		q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESREL, MsgID: 7, JobID: 1, RI: 15, Initiator: 77, ReqLen: uint32(n * payload)}
		if i == 0 {
			q.Flags |= wire.SESSOM
		} else {
			q.MsgOff, q.PayloadLen = uint32(i*payload), payload
		}
		if i == n-1 {
			q.Flags |= wire.SESEOM
		}
		from := netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), port)
		w.Forge(1, from, append(q.Append(h.Append(nil)), make([]byte, payload)...), true)
	}
}

// A first flight that an initiator sprays over its source ports opens one PDC, on which its
// packets make one message (UE 3.5.8; the port is entropy).
func TestSYNFromSeveralPortsIsOneFlight(t *testing.T) {
	w := pair(t, 81, lan, hostile)
	b := w.Hosts[1]
	before := b.FEP.Stats()
	firstFlight(w, 9, 70_000, 50_003, 50_001, 50_000, 50_002)
	w.Run(ms)
	after := b.FEP.Stats()
	if n := after.PDCAccepted - before.PDCAccepted; n != 1 {
		t.Errorf("%d PDCs were opened", n)
	}
	if n := b.FEP.Unexpected(); n != 1 {
		t.Errorf("%d messages arrived", n)
	}
}

// A SYN packet that is sent again from another source port is a duplicate: it is
// acknowledged and not executed again.
func TestSYNAgainFromAnotherPortIsADuplicate(t *testing.T) {
	w := pair(t, 82, lan, hostile)
	b := w.Hosts[1]
	before := b.FEP.Stats()
	for _, port := range []uint16{50_000, 50_001, 50_002} {
		firstFlight(w, 9, 70_000, port)
		w.Run(ms)
	}
	after := b.FEP.Stats()
	if n := after.PDCAccepted - before.PDCAccepted; n != 1 {
		t.Errorf("%d PDCs were opened", n)
	}
	if n := after.AcksTx - before.AcksTx; n != 3 {
		t.Errorf("%d ACKs for 3 packets", n)
	}
	if n := b.FEP.Unexpected(); n != 1 {
		t.Errorf("%d messages arrived", n)
	}
}

// Two processes of one host that drew the same PDCID each get a PDC of their own.
func TestSYNOfTwoProcessesOfOneHost(t *testing.T) {
	w := pair(t, 83, lan, hostile)
	b := w.Hosts[1]
	before := b.FEP.Stats()
	firstFlight(w, 9, 70_000, 50_000)
	firstFlight(w, 9, 900_000, 50_001)
	w.Run(ms)
	after := b.FEP.Stats()
	if n := after.PDCAccepted - before.PDCAccepted; n != 2 {
		t.Errorf("%d PDCs were opened", n)
	}
	if n := b.FEP.Unexpected(); n != 2 {
		t.Errorf("%d messages arrived", n)
	}
}
