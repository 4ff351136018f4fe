package transport

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// R-MR-04: the keys that a FEP draws come from its own random numbers: nobody can guess them who does not know these.
func TestKeysAreDrawn(t *testing.T) {
	var keys [2]uint64
	for i := range keys {
		f, err := New(Config{Local: netip.MustParseAddrPort("192.0.2.1:4793")}, rand.New(rand.NewPCG(uint64(i), 1)))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = f.NewKey()
	}
	if keys[0] == keys[1] {
		t.Errorf("two FEPs draw the key %#x", keys[0])
	}
}
