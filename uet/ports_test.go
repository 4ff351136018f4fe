package uet

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// TestSYNFromSeveralPortsOnSockets proves that a message whose first flight leaves by four
// source ports arrives once, and that all its ACKs name one PDC. The sender is not of this
// project: it is four sockets and the codec.
func TestSYNFromSeveralPortsOnSockets(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := r.node()
	at := b.conn.LocalAddr()
	name, err := b.Name()
	ok(t, err)
	const payload, flight = 1024, 4
	dst := make([]byte, flight*payload)
	ok(t, b.TRecv(dst, fi.AddrUnspec, 5, 0, "first"))
	ok(t, b.TRecv(make([]byte, flight*payload), fi.AddrUnspec, 5, 0, "second"))

	message := make([]byte, flight*payload)
	for i := range message {
		message[i] = byte(i * 7)
	}
	const start = wire.PSN(1 << 20)
	pdcs := map[uint16]bool{}
	acked := map[wire.PSN]bool{}
	for i := flight - 1; i >= 0; i-- {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
		ok(t, err)
		t.Cleanup(func() { _ = c.Close() })
		from := c.LocalAddr().(*net.UDPAddr).AddrPort()
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: start.Add(i), PSNOffset: uint16(i), SPDCID: 9, ClearOff: -1 - int16(i)}
		q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESREL, MsgID: 7, JobID: 1, PIDonFEP: name.PIDonFEP, RI: name.RI, Initiator: 77, Match: 5, ReqLen: flight * payload}
		if i == 0 {
			q.Flags |= wire.SESSOM
		} else {
			q.MsgOff, q.PayloadLen = uint32(i*payload), payload
		}
		if i == flight-1 {
			q.Flags |= wire.SESEOM
		}
		p := append(q.Append(h.Append(nil)), message[i*payload:(i+1)*payload]...)
		p = wire.AppendCRC(p, 0, uint32(wire.PrefixOf(&from, &at).CRC(len(p)+wire.CRCLen)))
		for range 2 { // and each of them again by the same port
			_, err = c.Write(p)
			ok(t, err)
		}
		_, _ = b.rx.Read(nil) // progress
		ok(t, c.SetReadDeadline(time.Now().Add(patience)))
		var in [2048]byte
		n, err := c.Read(in[:])
		ok(t, err)
		var a wire.Ack
		_, err = a.Parse(in[:n])
		ok(t, err)
		pdcs[a.SPDCID] = true
		acked[a.AckPSN()] = true
	}
	if e, _ := wait(t, b.rx, b); e.Context != "first" || e.Len != len(message) || !bytes.Equal(dst, message) {
		t.Errorf("received: %+v", e)
	}
	if len(pdcs) != 1 || len(acked) != flight {
		t.Errorf("ACKs of %d PDCs for %d packets", len(pdcs), len(acked))
	}
	if n := b.Stats().PDCAccepted; n != 1 {
		t.Errorf("%d PDCs were opened", n)
	}
}
