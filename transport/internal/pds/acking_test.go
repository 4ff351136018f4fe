package pds

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// An ACK is a plain one if and only if there is nothing else to report.
func TestAckSaysWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(*pdcTest, *answer)
		req   wire.AckReq
		plain bool
		said  func(*wire.Ack) bool
	}{
		{"nothing else", func(*pdcTest, *answer) {}, wire.ReqNone, true, func(a *wire.Ack) bool { return a.SACKOff == 1 }},
		{"an earlier packet", func(_ *pdcTest, s *answer) { s.psn-- }, wire.ReqNone, false, func(a *wire.Ack) bool { return a.AckPSNOff == -1 }},
		{"a retransmission", func(_ *pdcTest, s *answer) { s.retx = true }, wire.ReqNone, false, func(a *wire.Ack) bool { return a.Flags == wire.AckFlagRETX }},
		{"congestion", func(_ *pdcTest, s *answer) { s.ce = true }, wire.ReqNone, false, func(a *wire.Ack) bool { return a.Flags == wire.AckFlagM }},
		{"a clear", func(*pdcTest, *answer) {}, wire.ReqClear, false, func(a *wire.Ack) bool { return a.Req == wire.ReqClear }},
		{"a close", func(x *pdcTest, _ *answer) { x.p.state = CloseRequested }, wire.ReqNone, false, func(a *wire.Ack) bool { return a.Req == wire.ReqClose }},
		{"a hole", func(x *pdcTest, _ *answer) { x.recv(3) }, wire.ReqNone, false, func(a *wire.Ack) bool { return a.SACK == 0b10 && a.CCState&0xffff == 1 }},
	} {
		x := newTarget(t)
		x.recv(1)
		s := answer{psn: x.psn(1)}
		s.rsp.RC = wire.RCOK
		c.make(x, &s)
		b := x.p.appendAck(nil, &s, 256, c.req)
		if (wire.Plain(b) != nil) != c.plain {
			t.Errorf("%s: %x, plain is %t", c.name, b, !c.plain)
		}
		a, n, err := wire.ParseAck(b)
		if rsp, _, _ := wire.ParseRsp(b[n:]); err != nil || !c.said(&a) || a.CACK != x.psn(1) || a.SPDCID != x.p.id || a.DPDCID != 9 || a.MPR != 2 || a.NSCC().ServiceTime() != 2 || rsp.RC != wire.RCOK {
			t.Errorf("%s: %v, %v, %v", c.name, &a, &rsp, err)
		}
	}
}

// OneAck means one ACK that is due, and nothing owed behind it.
func TestOneAck(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*pdcTest)
		one  bool
	}{
		{"an ACK", func(x *pdcTest) { x.p.rx.ackDue = true }, true},
		{"nothing", func(*pdcTest) {}, false},
		{"a PDC that never received", func(x *pdcTest) { x.p.rx = nil }, false},
		{"a guaranteed response too", func(x *pdcTest) {
			x.p.rx.ackDue, x.p.rx.due, x.p.rx.stored = true, 1, []answer{{psn: x.psn(0), due: true}}
		}, false},
		{"an answer to a PROBE too", func(x *pdcTest) { x.p.rx.ackDue, x.p.rx.nprobe = true, 1 }, false},
		{"a response behind a hole too", func(x *pdcTest) { x.p.rx.ackDue, x.p.rx.once = true, []answer{{psn: x.psn(1)}} }, false},
	} {
		x := newTarget(t)
		x.recv(1)
		x.p.rx.ackDue = false
		c.make(x)
		if got := x.p.OneAck(); got != c.one {
			t.Errorf("%s: %t", c.name, got)
		}
		if c.one {
			if x.p.NextAck(0, nil); x.p.AckOwed() {
				t.Errorf("%s: more is owed", c.name)
			}
		}
	}
}
