package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
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

// TestCloseAfterReadsInTime: an initiator that closes asks whether the target lacks an ACK of read
// data. What the network brings late, again and again, does not keep the PDC open.
func TestCloseAfterReadsInTime(t *testing.T) {
	x := newInitiator(t, wire.RUD)
	p := x.p
	x.push(1)
	x.ack(0, 0)
	x.asked = map[uint32]bool{p.Slot: true}
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextRspData, PSN: p.start, ClearOff: -1, SPDCID: p.remoteID, DPDCID: p.id}
	if _, do := x.tab.ReceiveReq(x.in(peerAddr), &h); do != Deliver {
		t.Fatal("the read data is not taken")
	}
	p.Accept(x.now, &Meta{PSN: h.PSN, Size: 1000, Len: 900}, &wire.Rsp{RC: wire.RCOK}, false)
	x.tab.Close(x.now, p)
	x.tab.Drained(x.now, p)
	begin := x.now
	for p.state == AckWait && x.now-begin < 10*time.Second {
		x.now += time.Millisecond
		p.heard(x.now) // an old copy
		x.tab.Advance(x.now)
	}
	if p.state != CloseAckWait || x.now-begin > x.tab.cfg.RTOMax {
		t.Errorf("state %v after %v", p.state, x.now-begin)
	}
}

// TestReturnWaitsForACloseReq: return data does not overtake a CLOSE_REQ that has not left, although the
// initiator went on meanwhile: the PSNs leave in their order.
func TestReturnWaitsForACloseReq(t *testing.T) {
	x := newTarget(t)
	p := x.p
	p.SetCCC(x.now, x.ccc)
	if !p.CanReturn(100) {
		t.Fatal("nothing can be returned")
	}
	p.RequestClose(x.now)
	if p.CanReturn(100) {
		t.Error("return data overtakes a CLOSE_REQ")
	}
	x.recv(1, ar)
	if p.state != Established {
		t.Fatalf("the target is %v", p.state)
	}
	if p.CanReturn(100) {
		t.Error("return data overtakes a CLOSE_REQ when the initiator has gone on")
	}
	p.Resend2(x.now)
	if !p.CanReturn(100) {
		t.Error("nothing can be returned behind a CLOSE_REQ that has left")
	}
}

// S-CLR-08: a target that has something to return to a source that may be forged asks for a CLEAR, in its ACKs
// and six times by CLEAR_REQ. A CLEAR proves the source, and ends the questions.
func TestProofIsAskedFor(t *testing.T) {
	x := newTable(t, nil)
	x.recv(0)
	x.p.known = false
	x.wantAcks("cack=0 psn=0 OK")
	x.p.WantProof(x.now)
	x.recv(1)
	x.wantAcks("cack=1 psn=1 clear OK")
	asked := func() (n int) {
		t.Helper()
		for _, s := range x.loose() {
			if s != "CP CLEAR_REQ" {
				t.Fatal(s)
			}
			n++
		}
		return n
	}
	questions, last, gap := 0, x.now, time.Duration(0)
	for range 5000 {
		x.advance(time.Millisecond)
		x.p.heard(x.now) // it lives on
		if n := asked(); n != 0 {
			if questions += n; x.now-last <= gap {
				t.Errorf("question %d after %v, the one before it after %v", questions, x.now-last, gap)
			}
			last, gap = x.now, x.now-last
		}
	}
	if questions != proofAsks {
		t.Errorf("%d questions, want %d", questions, proofAsks)
	}
	if bytes := questions * wire.CPLen; bytes > 3*(wire.ReqLen+wire.ReqStdLen) {
		t.Errorf("%d bytes of questions for one request", bytes)
	}

	x = newTable(t, nil)
	x.recv(0)
	x.p.known = false
	x.acks()
	x.p.WantProof(x.now)
	x.forget()
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlClear, SPDCID: x.p.remoteID, DPDCID: x.p.id, Payload: uint32(x.psn(0))})
	if x.p.Unproven() {
		t.Error("a CLEAR does not prove the source")
	}
	x.recv(1, ar)
	x.wantAcks("cack=1 psn=1 OK")
	x.advance(time.Second)
	x.wantLoose()
}

// Read data takes several paths as other packets do: three later arrivals are no loss there, and with one path
// they are.
func TestReturnIsPatient(t *testing.T) {
	for _, paths := range []int{1, 4} {
		x := newTable(t, func(c *Config) { c.Paths = paths })
		x.recv(0)
		x.p.markProven()
		x.acks()
		x.p.SetCCC(x.now, x.ccc)
		for range 6 {
			if !x.p.CanReturn(100) {
				t.Fatal("nothing can be returned")
			}
			x.p.Push(x.now, piece.Piece{}, 100, 0)
		}
		x.now += 10 * time.Microsecond
		a := wire.Ack{Type: wire.TypeAckCC, CACK: x.p.start - 1, AckPSNOff: 5, SPDCID: x.p.remoteID, DPDCID: x.p.id, MPR: 2, SACKOff: 1, SACK: 0b11110}
		x.tab.ReceiveAck(x.in(peerAddr), &a, nil)
		if lost := x.p.Lost(); lost != (paths == 1) {
			t.Errorf("%d paths: lost %v", paths, lost)
		}
	}
}
