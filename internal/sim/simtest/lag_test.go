package simtest

import "testing"

func TestConversationComesToLag(t *testing.T) {
	spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2)}
	near(&spec)
	w := NewWorld(t, spec)
	talk600(w)
	if w.lagRow != lagMost || w.lagged < 250 {
		t.Errorf("%d messages asked for no ACK, %d in a row", w.lagged, w.lagRow)
	}
}
