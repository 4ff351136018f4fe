package pds

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestHoldListMatchesDumbTwin(t *testing.T) {
	// UE 3.5.12 (ROD): early packets come in any order and are executed in the order of
	// their PSNs, even across 2³².
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h earlyList
		var twin []wire.PSN
		low := wire.PSN(rng.Uint32N(200) - 100) // the next to be executed
		for range 2000 {
			psn := low.Add(rng.IntN(100))
			i, held := slices.BinarySearchFunc(twin, psn, func(a, b wire.PSN) int { return int(a.Sub(b)) })
			if h.from(psn) != i {
				t.Fatalf("seed %d: from(%#x) = %d, want %d", seed, uint32(psn), h.from(psn), i)
			}
			switch {
			case rng.IntN(3) == 0 && len(twin) > 0:
				low = twin[0] + 1
				twin = twin[1:]
				h.pop()
			case !held:
				h.put(earlyPkt{psn: psn})
				twin = slices.Insert(twin, i, psn)
			}
			if !slices.EqualFunc(h.list(), twin, func(k earlyPkt, psn wire.PSN) bool { return k.psn == psn }) {
				t.Fatalf("seed %d: %v, want %v", seed, h.list(), twin)
			}
			if cap(h.q) > 512 {
				t.Fatalf("seed %d: room for %d packets of which 100 may be held", seed, cap(h.q))
			}
		}
	}
}

// noop delivers a NOOP with the PSN of packet i.
func (x *pdcTest) noop(i int) {
	x.tab.ReceiveCP(x.in(peerAddr), &wire.CP{Ctl: wire.CtlNoop, Flags: wire.FlagAR, PSN: x.psn(i), SPDCID: 9, DPDCID: x.p.id})
}

func TestEarlyControlPacketOnROD(t *testing.T) {
	// UE 3.5.11: a NOOP has a PSN of its own. On a ROD PDC it may come before its turn. The
	// packets behind it are executed after those before it.
	x := newTarget(t, rod)
	for _, i := range []int{5, 2, 3} {
		x.noop(i)
	}
	x.wantLoose("ACK cack=0 psn=5", "ACK cack=0 psn=2", "ACK cack=0 psn=3")
	x.recv(4, rod)
	x.recv(1, rod)
	x.recv(6, rod, ar)
	x.wantTold("deliver 1", "deliver 4", "deliver 6")
	x.wantAcks("cack=6 psn=6 OK")
	x.checkAtRest()
}

func TestControlPacketWithThePSNOfAnEarlyPacket(t *testing.T) {
	// T9: a PSN belongs to the early packet that has it.
	x := newTarget(t, rod)
	x.recv(2, rod)
	x.acks()
	x.noop(2)
	x.wantLoose()
	if x.tab.Stats.DropStale != 1 {
		t.Errorf("%d packets dropped, want 1", x.tab.Stats.DropStale)
	}
	x.recv(1, rod)
	x.wantTold("deliver 1", "deliver 2")
	x.wantAcks("cack=2 psn=2 OK")
	x.checkAtRest()
}
