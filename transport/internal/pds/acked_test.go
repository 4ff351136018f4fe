package pds

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// A pdcState is everything of a PDC and its Table that an ACK may change, and what the
// owner and the CCC were told.
type pdcState struct {
	PDC  PDC
	Sent []txPkt
	CCC  fixedCCC
	Told []string

	Stats Stats
}

func (x *pdcTest) state() pdcState {
	p := *x.p
	var sent []txPkt
	for psn := p.tx.una; psn != p.tx.nxt; psn++ {
		sent = append(sent, *x.p.tx.at(psn))
	}
	p.t, p.ccc, p.tx.ring, p.tx.one = nil, nil, nil, [1]txPkt{}
	if p.tx.lost == 0 {
		p.tx.lostHint = 0 // it has no meaning now
	}
	return pdcState{p, sent, *x.ccc, x.news(), x.tab.Stats}
}

// ReceivePlain changes a PDC as ReceiveAckOf does, or not at all. Two PDCs live the same
// life with losses, refusals and wrong ACKs, one of them without ReceivePlain. With two
// paths, each packet is reported by itself, so the fast path of a CACK is not used either.
func TestPlainAckIsAnAck(t *testing.T) {
	plain, other, calms := 0, 0, 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 1))
		paths, mode := 1, wire.RUD
		if seed%5 == 0 {
			paths = 2
		}
		if seed%2 == 0 {
			mode = wire.ROD
		}
		var xs [2]*pdcTest
		for i := range xs {
			x := newTable(t, func(c *Config) { c.Paths = paths })
			x.p = x.tab.Open(x.now, 1, peerAddr, mode, x.ccc)
			x.push(1)
			xs[i] = x
		}
		xs[1].tab.cfg.Paths = 2
		rcvd := uint32(0)
		for step := 0; step < 150 && xs[0].p.state != Closed; step++ {
			op, n, d := rng.IntN(17), rng.IntN(4), time.Duration(rng.IntN(100))*time.Microsecond
			p := xs[0].p
			a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: p.tx.una, SPDCID: 77, DPDCID: p.id, MPR: 2, SACKOff: 1}
			rcvd += uint32(rng.IntN(8))
			a.CCState = uint64(wire.NewNSCC(uint16(rng.IntN(30)), rcvd, 0))
			from := peerAddr
			switch rng.IntN(36) {
			case 0:
				a.CACK, a.SACKOff, a.SACK = a.CACK-1, 2, 1<<rng.IntN(3)
			case 1:
				a.CACK, a.AckPSNOff = a.CACK-1, 1
			case 2, 15, 16:
				a.CACK += wire.PSN(rng.IntN(7)) - 2
			case 3:
				a.CACK, a.AckPSNOff = a.CACK-1, int16(1+rng.IntN(3)) // it names a later packet
			case 4:
				a.Flags = wire.AckFlagM
			case 5:
				a.Flags = wire.AckFlagRETX
			case 6:
				a.Req = wire.AckReq(rng.IntN(3))
			case 7:
				a.CCState = rng.Uint64()
			case 8:
				a.MPR = uint8(rng.IntN(3))
			case 17:
				a.CACK = p.tx.nxt // never sent
			case 9:
				a.SPDCID = 78
			case 10:
				from = otherAddr
			case 11:
				a.CCType = 1
			case 12, 13, 14, 18, 19, 20:
				a.CCState = 0xffff << 48 // the service time is unknown: no sample
			}
			tookPlain := false
			for i, x := range xs {
				x.now += d
				switch {
				case op < 8:
					rsp := &wire.Rsp{RC: wire.RCOK}
					if i == 0 && x.plain(from, &a, rsp) {
						tookPlain = true
					} else {
						x.tab.ReceiveAck(x.in(from), &a, rsp)
					}
				case op == 8 && n == 0:
					x.nack(wire.NackRODOOO, int(x.p.tx.una.Sub(testStart))+n, 0)
				case op == 8 && n == 1:
					x.nack(wire.NackRcvdSESProcg, int(x.p.tx.una.Sub(testStart)), 0)
				case op == 9:
					x.advance(time.Duration(n) * 4 * time.Millisecond)
				case op == 10:
					for x.p.CanResend() {
						x.p.Resend(x.now, 0)
					}
					for x.p.CtlOwed() {
						x.p.NextCtl(x.now)
					}
				case op == 11 && n == 0:
					x.tab.Suspect(x.now, x.p, false)
				case op == 12 && step > 110:
					x.tab.Close(x.now, x.p)
					x.tab.Drained(x.now, x.p)
				case step < 110:
					for range 2 * n {
						if x.p.CanPush(1000) && x.p.Outstanding() < 8 {
							x.p.Push(x.now, piece.Piece{Msg: uint32(n)}, 1000, 0)
						}
					}
				}
			}
			switch {
			case tookPlain:
				plain++
			case op < 8:
				other++
			}
			if paths == 1 {
				xs[1].told = slices.DeleteFunc(xs[1].news(), func(s string) bool { return strings.HasPrefix(s, "path") })
				if len(xs[1].told) == 0 {
					xs[1].told = nil
				}
			}
			// runDeadlines would return what calmUntil returns, and do nothing.
			if at := xs[0].p.calmUntil(); at > xs[0].now {
				calms++
				if next := xs[0].p.runDeadlines(xs[0].now); next != at {
					t.Fatalf("seed %d: calm until %v, and runDeadlines looks again at %v", seed, at, next)
				}
			}
			got, want := xs[0].state(), xs[1].state()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, plain %t: after %v\n%+v\nwant\n%+v", seed, tookPlain, &a, got, want)
			}
			xs[0].forget()
			xs[1].forget()
		}
	}
	if calms < 1000 {
		t.Errorf("calm %d times: too few to compare", calms)
	}
	if plain < 500 || other < 500 {
		t.Errorf("%d ACKs were plain and %d were not: too few to compare", plain, other)
	}
}

func TestCalmIsNotWhoHolds(t *testing.T) {
	// A packet that was refused once is sent again when its back-off ends, although the
	// others are under way without trouble.
	x := newInitiator(t, wire.RUD)
	x.push(1)
	x.advance(40 * time.Microsecond)
	x.ack(0, 0)
	x.push(3)
	x.nack(wire.NackPDCModeMismatch, 2, 0) // T6: a single one does not count
	due := x.p.tx.waitUntil
	for x.now < due {
		x.now = min(x.now+50*time.Microsecond, due)
		x.push(1)
		x.ack(0, int(x.p.tx.nxt.Sub(testStart))-1)
		x.tab.Advance(x.now)
	}
	x.wantResend(2)
}

func TestPathsOfWhatACACKPasses(t *testing.T) {
	// The owner learns of the path of every packet that a CACK covers.
	x := newTable(t, func(c *Config) { c.Paths = 2 })
	x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	x.push(3)
	x.ack(2, 2)
	if n := strings.Count(strings.Join(x.news(), ";"), "good"); n != 3 {
		t.Errorf("told %q: %d paths are good, want 3", x.news(), n)
	}
}

func TestPlainAckOfAControlPacket(t *testing.T) {
	// A target whose CLOSE_REQ was not answered is established again when the initiator
	// goes on. An answer to the CLOSE_REQ then reports no message as answered.
	x := newTarget(t)
	x.p.RequestClose(x.now)
	if !x.p.CanResend() {
		t.Fatal("no CLOSE_REQ leaves")
	}
	x.p.Resend(x.now, 0)
	x.recv(1)
	if s := x.p.State(); s != Established {
		t.Fatalf("the initiator goes on, and the PDC is %v", s)
	}
	x.forget()
	x.now += time.Millisecond
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: x.psn(0), SPDCID: 9, DPDCID: x.p.id, MPR: 2, SACKOff: 1}
	if rsp := (&wire.Rsp{}); !x.plain(peerAddr, &a, rsp) {
		x.tab.ReceiveAck(x.in(peerAddr), &a, rsp)
	}
	x.wantTold()
	if x.p.Outstanding() != 0 {
		t.Error("the CLOSE_REQ is not answered")
	}
}
