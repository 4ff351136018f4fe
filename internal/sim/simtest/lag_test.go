package simtest

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestConversationComesToLag(t *testing.T) {
	spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2)}
	near(&spec)
	w := NewWorld(t, spec)
	talk600(w)
	if w.lagRow != lagMost || w.lagged < 250 {
		t.Errorf("%d messages asked for no ACK, %d in a row", w.lagged, w.lagRow)
	}
}

// A target that has no room refuses the last message, which asked for no ACK. It waits to be sent
// again: the host that has heard the peer has nobody to ask, and is not to blame.
func TestRefusedMessageIsNotAskedFor(t *testing.T) {
	for _, code := range []wire.NackCode{wire.NackNoSESMsgAvail, wire.NackRcvdSESProcg} {
		refused := false
		v := caught(func() {
			spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2)}
			near(&spec)
			w := NewWorld(nil, spec)
			silent(after(2))(w)
			w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				d := w.Hosts[0].talks[1].lag
				if r := read(p.Data, 4); refused || what != sim.Sent || p.From != w.Hosts[1].Node || r.class != classData || d == nil {
					return
				}
				refused = true
				n := wire.Nack{Type: wire.TypeNack, Code: code, PSN: wire.PSN(d.start + d.lag), SPDCID: d.acker, DPDCID: d.id}
				w.Net.After(0, func() { says(w, 1, append(n.Append(nil), 0, 0, 0, 0)) })
			})
			talkFor(w, 6)
		})
		if blames := v != nil; !refused || blames != (code == wire.NackRcvdSESProcg) {
			t.Errorf("NACK %#x (sent: %v): %v", uint8(code), refused, v)
		}
	}
}
