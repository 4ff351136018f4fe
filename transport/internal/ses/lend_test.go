package ses

import (
	"testing"
)

// lends makes every message of 1000 bytes or more a rendezvous send.
func lends(c *Config) { c.RendezvousMin = 1000 }

// S-RDV-01..05: a message is announced, read when it has a receive, and has ended when its target has all of it.
func TestLend(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for seed := range uint64(8) {
			d := newDuo(t, seed, lends)
			if seed%2 == 0 {
				d.recv(7, 5000)
			}
			d.send(7, 5000, ordered)
			d.run()
			if seed%2 != 0 {
				if len(d.a.events) != 0 || d.b.Stats.Announced != 1 {
					t.Fatalf("before there is a receive: %d events, %d announced", len(d.a.events), d.b.Stats.Announced)
				}
				d.recv(7, 5000)
				d.run()
			}
			d.received(map[uint64]int{7: 5000})
			d.sent(1)
			if d.a.Stats.Lent != 1 || d.a.readers[2] != supportYes {
				t.Errorf("%d sends went by rendezvous", d.a.Stats.Lent)
			}
			d.atRest()
		}
	}
}
