package pds

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestHoldListMatchesDumbTwin(t *testing.T) {
	// UE §3.5.12 (ROD): early packets come in any order and go in that of their
	// PSNs, also across 2³².
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h holdList
		var twin []wire.PSN
		low := wire.PSN(rng.Uint32N(200) - 100) // the next to go
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
				h.put(heldPkt{psn: psn})
				twin = slices.Insert(twin, i, psn)
			}
			if !slices.EqualFunc(h.list(), twin, func(k heldPkt, psn wire.PSN) bool { return k.psn == psn }) {
				t.Fatalf("seed %d: %v, want %v", seed, h.list(), twin)
			}
			if cap(h.q) > 512 {
				t.Fatalf("seed %d: room for %d packets of which 100 may be held", seed, cap(h.q))
			}
		}
	}
}
