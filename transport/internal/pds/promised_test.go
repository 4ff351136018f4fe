package pds

import (
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// response delivers an ACK of PSN psn with a response of its own.
func (x *pdcTest) response(cack, psn int, op wire.RspOpcode, req wire.AckReq) {
	x.t.Helper()
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, Req: req, CACK: x.psn(cack), AckPSNOff: int16(psn - cack), SPDCID: 77, DPDCID: x.p.id, MPR: 1, SACKOff: 1}
	x.tab.ReceiveAck(x.in(peerAddr), &a, &wire.Rsp{Opcode: op, RC: wire.RCOK})
}

// promisedFirst makes a PDC of whose packets 0 to n the first one was promised a RESPONSE, while the
// target keeps those of the others, so that CACK does not move beyond packet 0.
func promisedFirst(t *testing.T, n int) *pdcTest {
	x := newInitiator(t, wire.RUD)
	x.push(n + 1)
	x.response(0, 0, wire.RspNone, wire.ReqNone)
	x.forget()
	msg := x.tab.late[x.p].list[0].msg
	x.expects[msg] = true
	for i := 1; i <= n; i++ {
		x.response(0, i, wire.RspResponse, wire.ReqClear)
	}
	return x
}

func TestClearStaysBelowAPromise(t *testing.T) {
	// S-CLR-06: CLEAR_PSN stays below a packet whose RESPONSE is promised and did not come.
	// When guaranteed responses behind it fill half of the window it goes on.
	for _, c := range []struct{ n, clear int }{{1, -1}, {63, -1}, {64, 64}, {100, 100}} {
		x := promisedFirst(t, c.n)
		if got := x.p.clearPSN(); got != x.psn(c.clear) {
			t.Errorf("%d responses behind it: CLEAR_PSN %d, want %d", c.n, got.Sub(x.psn(0)), c.clear)
		}
	}
	for name, ask := range map[string]func(x *pdcTest){
		"CLEAR_REQ": func(x *pdcTest) {
			x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClearReq, SPDCID: 77, DPDCID: x.p.id, Payload: uint32(x.psn(3))})
		},
		"NACK 08": func(x *pdcTest) {
			x.push(1)
			x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: wire.NackNoGtdDelAvail, PSN: x.psn(4), SPDCID: 77, DPDCID: x.p.id})
		},
		"its RESPONSE": func(x *pdcTest) { clear(x.expects) },
	} {
		x := promisedFirst(t, 3)
		if ask(x); x.p.clearPSN() != x.psn(3) {
			t.Errorf("%s: CLEAR_PSN stays at %d", name, x.p.clearPSN().Sub(x.psn(0)))
		}
	}
}

func TestClearStaysInReachOfAPromise(t *testing.T) {
	// clear_psn_offset has 16 bits: CLEAR_PSN does not stay behind for ever, even if CACK moves.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.response(0, 0, wire.RspNone, wire.ReqNone)
	x.expects[x.tab.late[x.p].list[0].msg] = true
	for i := 1; i < promiseSpan+2; i++ {
		x.push(1)
		x.ack(i, i)
		x.forget()
		want := -1
		if i >= promiseSpan {
			want = i
		}
		if got := x.p.clearPSN(); got != x.psn(want) {
			t.Fatalf("behind packet %d: CLEAR_PSN %d, want %d", i, got.Sub(x.psn(0)), want)
		}
	}
}
