package record

import (
	"testing"

	"github.com/uetkit/uetkit/transport"
)

// Every reason for which a FEP throws a datagram away has a meaning, and no other has.
func TestDropsHaveMeanings(t *testing.T) {
	all := map[string]uint64{"kernel": 1}
	for i := range transport.NumDropReasons {
		all[i.String()] = 1
	}
	for _, d := range (&Counters{Drops: all}).Dropped() {
		if _, ok := meanings[d.Reason]; !ok || d.What == "" {
			t.Errorf("%s means nothing", d.Reason)
		}
	}
	for reason := range meanings {
		if all[reason] == 0 {
			t.Errorf("nothing is dropped for %s", reason)
		}
	}
}

// What is not harmless comes first, and of it what is most.
func TestDroppedOrder(t *testing.T) {
	got := (&Counters{Drops: map[string]uint64{"stale": 900, "crc": 2, "kernel": 3, "no_pdc": 0, "later": 1}}).Dropped()
	want := []string{"kernel", "crc", "later", "stale"}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, d := range got {
		if d.Reason != want[i] || d.Harmless != (d.Reason == "stale") {
			t.Errorf("%d: %+v, want %s", i, d, want[i])
		}
	}
}

// Answers that the rate limit kept back are harmless beside as many late packets of closed contexts,
// and are a reason to look where there were fewer.
func TestDroppedRate(t *testing.T) {
	for late, harmless := range map[uint64]bool{0: false, 273: false, 274: true, 7978: true} {
		for _, d := range (&Counters{Drops: map[string]uint64{"no_pdc": late, "rate": 274}}).Dropped() {
			if d.Reason == "rate" && (d.Harmless != harmless || d.Count != 274 || d.What == "") {
				t.Errorf("beside %d late packets: %+v", late, d)
			}
		}
	}
}
