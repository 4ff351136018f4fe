package transport

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// The id of the first message is random, so that answers for the former life of a FEP do not fit
// the messages of this one. FirstID fixes it.
func TestFirstMessageIDIsRandom(t *testing.T) {
	first := func(fixed uint16, seed uint64) uint16 {
		f, err := New(Config{Local: netip.MustParseAddrPort("192.0.2.1:4793"), Messages: Messages{FirstID: fixed}}, rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return f.ses.Config().FirstID
	}
	seen := map[uint16]bool{}
	for seed := range uint64(20) {
		seen[first(0, seed)] = true
	}
	if seen[0] || len(seen) < 19 {
		t.Errorf("20 FEPs begin with %d ids", len(seen))
	}
	if n := first(7, 1); n != 7 {
		t.Errorf("begins with %d", n)
	}
}
