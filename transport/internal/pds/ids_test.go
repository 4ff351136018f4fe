package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestIDTable(t *testing.T) {
	// T3, UE 3.5.8: PDCIDs are drawn at random, and each is found and no other, while PDCs
	// come and go, until nearly all PDCIDs are in use.
	x := newTable(t, func(c *Config) { c.MaxPDCs, c.StartPSN = 1<<16, nil })
	closings, most := 0, 0
	in := make(map[uint16]*PDC)
	check := func() {
		t.Helper()
		for id := range 1 << 16 {
			if got, want := x.tab.Lookup(uint16(id)), in[uint16(id)]; got != want {
				t.Fatalf("%d PDCs: PDCID %d finds %v, want %v", len(in), id, got, want)
			}
		}
	}
	check()
	for len(in) < 60000 {
		p := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
		if p == nil {
			t.Fatalf("no PDCID after %d", len(in))
		}
		if in[p.ID()] != nil || p.ID() == 0 {
			t.Fatalf("PDCID %d is given out again", p.ID())
		}
		in[p.ID()] = p
		most = max(most, len(in))
		if n := len(in); n&(n-1) == 0 {
			check()
		}
		if n := len(x.tab.ids.pdc); n > minIDs && n > 4*most {
			t.Fatalf("a table of %d for %d PDCs", n, most)
		}
		if closings < 20 && len(in) == 300 {
			closings++
			x.tab.FailAll(x.now, WhyClosed)
			clear(in)
			check()
			x.now += time.Second // most of them stay in quarantine
		}
	}
	check()
}
