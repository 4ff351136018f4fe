package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// A message that overtakes an earlier one takes the last place of its peer, and cannot end: what was refused of the
// earlier one fills the window. The earlier one has a place all the same.
func TestLaterMessageTookThePlace(t *testing.T) {
	for _, first := range []transport.OpKind{transport.OpSend, transport.OpWrite} {
		spec := simtest.Spec{Seed: 1, Hosts: make([]simtest.HostSpec, 2), Line: sim.Faults{Delay: 50 * time.Microsecond}}
		spec.Hosts[1].Config.OpenPerPeer, spec.Hosts[1].Config.MPRange = 1, 128
		spec.Hosts[1].Board, spec.Hosts[1].BoardSize = true, 30000
		w := simtest.NewWorld(t, spec)
		w.RunOps(time.Second, w.Hosts[0].Post(simtest.OpSpec{Kind: transport.OpSend, Peer: 1, Len: 10})) // it opens the PDC
		w.Line(0, 1).SetFaults(sim.Faults{Delay: 200 * time.Microsecond})
		a := w.Hosts[0].Post(simtest.OpSpec{Kind: first, Peer: 1, Len: 26000})
		w.Run(time.Microsecond)
		w.Line(0, 1).SetFaults(sim.Faults{Delay: 50 * time.Microsecond})
		b := w.Hosts[0].Post(simtest.OpSpec{Kind: transport.OpSend, Peer: 1, Len: 1 << 20})
		w.Settle(time.Second)
		w.Want("ok", a)
		w.Want("ok", b)
	}
}
