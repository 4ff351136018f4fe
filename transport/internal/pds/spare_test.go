package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// The PDC of this side that is idle for longest closes for one that this side lacks: one at a time, none that the owner
// keeps, and none with a packet outstanding.
func TestIdlePDCClosesForAnother(t *testing.T) {
	x := newTable(t, func(c *Config) { c.MaxPDCs, c.StartPSN = 8, nil })
	var ps []*PDC
	for p := x.more(); p != nil; p = x.more() {
		ps = append(ps, p)
	}
	if len(ps) != 5 {
		t.Fatalf("%d PDCs of this side, want 5 of 8", len(ps))
	}
	// Idle for longest first: 3, 1, 4, 2. PDC 0 has a packet outstanding.
	for i, k := range []int{3, 1, 4, 2} {
		x.now += time.Second
		ps[k].idleAt, ps[k].lastHeard = x.now, x.now-time.Duration(i)
	}
	ps[0].tx.nxt++
	keep := func(p *PDC) bool { return p == ps[3] }
	closing := func(want ...int) {
		t.Helper()
		for i, p := range ps {
			in := false
			for _, k := range want {
				in = in || k == i
			}
			if in == (p.state == Creating) {
				t.Errorf("PDC %d is %v", i, p.state)
			}
		}
	}
	x.tab.CloseIdle(x.now, false, 1, keep)
	closing() // others may open three
	x.tab.CloseIdle(x.now, true, 1, keep)
	closing(1)
	x.now += x.tab.cfg.RTOInit - 1
	x.tab.CloseIdle(x.now, true, 1, keep)
	closing(1)
	x.tab.CloseIdle(x.now, true, 2, keep)
	closing(1, 4)
	x.now++
	x.tab.CloseIdle(x.now, true, 2, keep) // the first takes long
	closing(1, 4, 2)
	x.tab.CloseIdle(x.now, true, 9, keep)
	closing(1, 4, 2)
	x.tab.Drained(x.now, ps[4])
	if x.more() == nil {
		t.Error("the place of one that closed is not free")
	}
}

// The PDC of others that is idle for longest is asked to close when one of them is refused: none of a stranger, none in
// the middle of a message.
func TestIdleTargetClosesForAnother(t *testing.T) {
	x := newTable(t, func(c *Config) { c.MaxPDCs = 8 })
	var ps []*PDC
	for id := range uint16(5) {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 1 << 20, ClearOff: -1, SPDCID: 100 + id}
		p, v := x.tab.ReceiveReq(x.in(peerAddr), &h)
		if v != Deliver {
			t.Fatal(v)
		}
		p.SetPeer(1, id != 0)
		p.Accept(x.now, &Meta{PSN: h.PSN, Size: 100}, &wire.Rsp{}, false)
		x.now += time.Millisecond
		ps = append(ps, p)
	}
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 1 << 20, ClearOff: -1, SPDCID: 200}
	x.loose()
	x.tab.ReceiveReq(x.in(peerAddr), &h)
	x.wantLoose("NACK NO_PDC_AVAIL")
	x.open = map[uint32]bool{ps[1].Slot: true}
	x.tab.CloseIdle(x.now, false, 1, func(*PDC) bool { t.Error("the owner is asked"); return false })
	for i, p := range ps {
		if want := map[bool]State{true: CloseRequested, false: Established}[i == 2]; p.state != want {
			t.Errorf("PDC %d is %v, want %v", i, p.state, want)
		}
	}
}

func (x *pdcTest) more() *PDC { return x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc) }
