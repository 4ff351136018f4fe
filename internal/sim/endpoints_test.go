package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file tests several endpoints of one FEP. They share one PDC table and one set of ports.
// After PDS they are found by JobID, PIDonFEP and resource index (UE 3.5.8: a PDC may carry
// messages of several).

// second gives each host an endpoint 1 in addition to its own.
func second(name transport.Identity) func(*simtest.Spec) {
	return func(s *simtest.Spec) {
		for i := range s.Hosts {
			s.Hosts[i].More = []transport.EndpointConfig{{Identity: name}}
		}
	}
}

// another is the name of endpoint 1 in the job of endpoint 0.
var another = transport.Identity{JobID: 1, PIDonFEP: 3, RI: 9, Initiator: 77}

// between returns an operation of one endpoint for another.
func between(from, to transport.EndpointID, s simtest.OpSpec) simtest.OpSpec {
	s.From, s.To = from, to
	return s
}

// Two endpoints of each host send to both of the other over the same PDCs. One endpoint sees
// neither the receives nor the events of another. The checkers compare them all.
func TestEndpointsShareTheirPDCs(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		w := pair(t, 700, sim.Faults{Delay: 50 * us, Loss: loss, Reorder: loss}, second(another))
		a, b := w.Hosts[0], w.Hosts[1]
		var ops []*simtest.Op
		for round := range 20 {
			for _, from := range []transport.EndpointID{0, 1} {
				for _, to := range []transport.EndpointID{0, 1} {
					if round%2 == 0 { // otherwise it comes unexpected
						ops = append(ops, b.Post(between(to, 0, trecv(50000))))
					}
					s := tsend(1, []int{0, 100, 5000, 50000}[round%4])
					s.Ordered, s.Fence = round%3 == 0, round == 11
					ops = append(ops, a.Post(between(from, to, s)))
					if round%2 != 0 {
						w.Run(300 * us)
						ops = append(ops, b.Post(between(to, 0, trecv(50000))))
					}
				}
			}
		}
		w.RunOps(10*time.Second, ops...)
		w.Want("ok", ops...)
		// There is one PDC each for short, long and ordered messages, as for a single endpoint.
		if n := a.FEP.Stats().PDCOpened; n != 3 {
			t.Errorf("loss %v: %d PDCs were opened for two endpoints", loss, n)
		}
		if st := b.FEP.Stats(); st.MsgsRx != 80 || st.Unexpected == 0 {
			t.Errorf("loss %v: %d messages received, %d of them unexpected", loss, st.MsgsRx, st.Unexpected)
		}
		settle(w)
	}
}

// Of receives of the same tag at two endpoints, each gets what was sent to its own endpoint, in
// the order of posting there, whatever was posted first.
func TestEndpointsMatchApart(t *testing.T) {
	w := pair(t, 701, lan, second(another))
	a, b := w.Hosts[0], w.Hosts[1]
	r0, r1 := b.Post(between(0, 0, trecv(100))), b.Post(between(1, 0, trecv(100)))
	s1 := a.Post(between(0, 1, tsend(1, 100)))
	w.RunOps(10*ms, s1, r1)
	w.Want("open", r0)
	s0 := a.Post(between(1, 0, tsend(1, 100)))
	w.RunOps(10*ms, s0, r0)
	w.Want("ok", s0, s1, r0, r1)
	if r1.Event.Initiator != 16 || r0.Event.Initiator != 77 || r1.Event.Peer != r0.Event.Peer {
		t.Errorf("from initiators %d and %d, peers %d and %d", r0.Event.Initiator, r1.Event.Initiator, r0.Event.Peer, r1.Event.Peer)
	}
	settle(w)
}

// An endpoint of another job does not exist for those of this one (T17): neither its PIDonFEP
// nor its index tells them anything.
func TestEndpointsOfTwoJobs(t *testing.T) {
	name := transport.Identity{JobID: 7, PIDonFEP: 3, RI: 9, Initiator: 77}
	w := pair(t, 702, lan, mayFail, second(name))
	a, b := w.Hosts[0], w.Hosts[1]
	recv := b.Post(between(1, 0, trecv(5000)))
	for _, n := range []int{100, 5000} {
		s := a.Post(between(0, 1, tsend(1, n)))
		w.RunOps(10*ms, s)
		if s.Cause() != transport.Rejected || s.Event.RC != wire.RCBadPID || s.Event.Unknown {
			t.Errorf("%v: %v %v", s, s.Cause(), s.Event.RC)
		}
	}
	w.Want("open", recv)
	s := a.Post(between(1, 1, tsend(1, 5000)))
	w.RunOps(10*ms, s, recv)
	w.Want("ok", s, recv)
	settle(w)
}

// When one endpoint of a target closes in the middle of everything, what is sent to it fails
// with the code for an endpoint that does not exist, its receives end, and the other goes on.
func TestEndpointOfTheTargetCloses(t *testing.T) {
	w := pair(t, 703, sim.Faults{Delay: 50 * us, Rate: 12_500_000, Queue: 4 << 20, InOrder: true}, second(another))
	a, b := w.Hosts[0], w.Hosts[1]
	var kept, lost, ended []*simtest.Op
	for range 4 {
		kept = append(kept, b.Post(between(0, 0, trecv(100_000))), a.Post(between(1, 0, tsend(1, 100_000))))
		ended = append(ended, b.Post(between(1, 0, trecv(100_000))))
		lost = append(lost, a.Post(between(0, 1, tsend(1, 100_000))))
	}
	w.Run(10 * ms) // of 64
	b.CloseEndpoint(1)
	lost = append(lost, a.Post(between(0, 1, tsend(1, 100))))
	more := []*simtest.Op{b.Post(between(0, 0, trecv(100))), a.Post(between(0, 0, tsend(1, 100)))}
	w.RunOps(5*time.Second, append(append(lost, kept...), more...)...)
	w.Want("ok", append(kept, more...)...)
	failed := 0
	for _, o := range lost {
		if o.Failed() {
			failed++
			if o.Cause() != transport.Rejected || o.Event.RC != wire.RCBadPID {
				t.Errorf("%v: %v %v", o, o.Cause(), o.Event.RC)
			}
		}
	}
	if failed < 3 {
		t.Errorf("only %d sends to the endpoint that closed failed", failed)
	}
	for _, o := range ended {
		if o.Open() {
			t.Errorf("%v has not ended", o)
		}
	}
	if err := b.FEP.Post(w.Now(), &transport.Op{Endpoint: 1, Kind: transport.OpTRecv}); err != transport.ErrClosed {
		t.Errorf("an endpoint that is closed takes a receive: %v", err)
	}
	settle(w)
}

// When one endpoint of an initiator closes while its messages are under way, they end, the
// target's receives of those that had begun end in error, and the other endpoint's messages
// arrive.
func TestEndpointOfTheInitiatorCloses(t *testing.T) {
	w := pair(t, 704, sim.Faults{Delay: 50 * us, Rate: 12_500_000, Queue: 4 << 20, InOrder: true}, second(another), smallWindow)
	a, b := w.Hosts[0], w.Hosts[1]
	var kept, gone, recvs []*simtest.Op
	for range 3 {
		recvs = append(recvs, b.Post(between(1, 0, trecv(200_000))))
		gone = append(gone, a.Post(between(1, 1, tsend(1, 200_000))))
		kept = append(kept, b.Post(between(0, 0, trecv(200_000))), a.Post(between(0, 0, tsend(1, 200_000))))
	}
	w.Run(5 * ms)
	a.CloseEndpoint(1)
	w.RunOps(5*time.Second, append(kept, gone...)...)
	w.Want("ok", kept...)
	for i, o := range gone {
		if o.Cause() != transport.Cancelled || o.Event.Unknown && i > 0 {
			t.Errorf("%v: %v", o, o.State())
		}
	}
	w.RunOps(ms, recvs[0])
	if o := recvs[0]; o.Cause() != transport.PeerError || o.Event.RC != wire.RCInitiatorError {
		t.Errorf("%v: %v %v", o, o.Cause(), o.Event.RC)
	}
	w.Want("open", recvs[1:]...)
	settle(w)
}

// T38: an endpoint that keeps 300 long messages posted leaves another of the same FEP, which
// sends short ones to the same peer, 0.8 of half the line. (Of long messages, too, they have no
// shares: docs/faults.md.)
func TestT38GreedyEndpoint(t *testing.T) {
	if raceEnabled {
		t.Skip("it has one goroutine, and takes half a minute under the race detector")
	}
	w := pair(t, 720, sim.Faults{Delay: 50 * us, Rate: 125_000_000, Queue: 1 << 20, InOrder: true}, second(another))
	a, b := w.Hosts[0], w.Hosts[1]
	var bytes [2]int
	on := true
	send := func(from transport.EndpointID, n int) {
		b.Post(between(from, 0, trecv(n)))
		a.Post(between(from, from, tsend(1, n)))
	}
	a.OnEvent(func(o *simtest.Op) {
		if on {
			bytes[o.From] += o.Len
			send(o.From, o.Len)
		}
	})
	for range 300 {
		send(0, 64<<10)
	}
	for range 128 {
		send(1, 900)
	}
	w.Run(50 * ms)
	bytes = [2]int{}
	w.Run(200 * ms)
	if share := float64(bytes[1]) / float64(bytes[0]+bytes[1]); share < 0.4 || share > 0.6 {
		t.Errorf("%v bytes: the other endpoint has %.2f of them", bytes, share)
	}
	on = false
	settle(w)
}
