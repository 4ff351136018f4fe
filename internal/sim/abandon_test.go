package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// from returns a receive that accepts messages of one host only.
func from(i int, s simtest.OpSpec) simtest.OpSpec {
	s.Peer = i
	return s
}

// The peer falls silent in the middle of everything. Abandon ends all of it in the same call,
// long before any timeout: sends behind others and in the middle for certain, sends of which all
// was handed out as unknown. The ledger sees that no packet of them leaves afterwards.
func TestAbandonEndsAllSends(t *testing.T) {
	for _, alive := range []bool{false, true} {
		w := pair(t, 900, lan, smallWindow)
		a, b := w.Hosts[0], w.Hosts[1]
		wantStream(t, w, 4)
		dark := lan
		dark.Loss = 1
		w.SetFaults(dark)
		out := []*simtest.Op{a.Post(tsend(1, 100)), a.Post(ordered(tsend(1, 900)))}
		w.Run(ms)
		middle := []*simtest.Op{a.Post(tsend(1, 200_000)), a.Post(ordered(tsend(1, 200_000)))}
		w.Run(ms)
		unsent := append(post(a, tsend(1, 100_000), 3), post(a, ordered(tsend(1, 10)), 2)...)
		fenced := tsend(1, 50)
		fenced.Fence = true
		unsent = append(unsent, a.Post(fenced), a.Post(tsend(1, 60)))
		w.Run(20 * ms)
		w.Want("open", append(append(out, middle...), unsent...)...)
		if alive {
			w.SetFaults(lan)
		} else {
			b.Crash(false)
		}
		a.Abandon(1)
		w.Want("cancelled, unknown", out...)
		w.Want("cancelled", append(middle, unsent...)...)
		if n := a.FEP.PDCs(); n != 0 {
			t.Errorf("%d PDCs are left", n)
		}
		if a.FEP.Queued() != 0 || a.FEP.Busy() {
			t.Errorf("%d messages are queued", a.FEP.Queued())
		}
		w.Run(time.Second)
		if !alive {
			w.SetFaults(lan)
			b.Restart()
		}
		// The peer is as any other from now on.
		more := []*simtest.Op{b.Post(trecv(200_000)), a.Post(tsend(1, 200_000)), b.Post(trecv(50)), a.Post(ordered(tsend(1, 50)))}
		w.RunOps(time.Second, more...)
		w.Want("ok", more...)
		settle(w)
	}
}

// Receives from the peer alone end, and those that have a part of a message of it. A receive
// from any source without a message stays, and gets the next message, whoever sends it. The
// buffers are the application's again: nothing is written to them (World.Audit).
func TestAbandonEndsReceives(t *testing.T) {
	slow := lan
	slow.Rate = 12_500_000
	w := pair(t, 901, slow, func(s *simtest.Spec) { s.Hosts = append(s.Hosts, s.Hosts[1]) })
	a, b, c := w.Hosts[0], w.Hosts[1], w.Hosts[2]
	other := b.Post(from(2, trecv(3000)))
	bound := []*simtest.Op{b.Post(from(0, trecv(500_000))), b.Post(trecv(500_000))}
	half := []*simtest.Op{a.Post(tsend(1, 500_000)), a.Post(ordered(tsend(1, 500_000)))}
	w.Run(20 * ms) // of 80
	directed := post(b, from(0, trecv(1000)), 3)
	untagged := from(0, trecv(1000))
	untagged.Kind = transport.OpRecv
	directed = append(directed, b.Post(untagged))
	any := b.Post(trecv(3000))
	w.Want("open", append(append(append(bound, directed...), half...), any, other)...)
	b.Abandon(0)
	w.Want("cancelled", append(bound, directed...)...)
	w.Want("open", any, other)
	for _, o := range bound {
		if o.Event.Len != 0 {
			t.Errorf("%v reports %d bytes of a message that is not whole", o, o.Event.Len)
		}
	}
	w.RunOps(time.Second, half...)
	w.Want("aborted, unknown or aborted", half...)
	more := []*simtest.Op{c.Post(tsend(1, 3000)), other}
	w.RunOps(time.Second, more...)
	w.Want("ok", more...)
	next := a.Post(tsend(1, 3000)) // A is as anyone
	w.RunOps(time.Second, next, any)
	w.Want("ok", next, any)
	settle(w)
}

// Unexpected messages of the peer go, whole and half ones; those of others stay. What the peer
// had under way when it was abandoned does not come in as a new message.
func TestAbandonDropsUnexpected(t *testing.T) {
	slow := lan
	slow.Rate = 12_500_000
	w := pair(t, 902, slow, func(s *simtest.Spec) { s.Hosts = append(s.Hosts, s.Hosts[1]) })
	a, b, c := w.Hosts[0], w.Hosts[1], w.Hosts[2]
	whole := []*simtest.Op{a.Post(tsend(1, 100)), a.Post(ordered(tsend(1, 5000))), a.Post(tsend(1, 0)), c.Post(tsend(1, 100))}
	w.RunOps(100*ms, whole...)
	w.Want("ok", whole...)
	half := post(a, tsend(1, 500_000), 1)
	w.Run(20 * ms)
	if n := b.FEP.Unexpected(); n != 5 {
		t.Fatalf("%d unexpected messages, want 5", n)
	}
	b.Abandon(0)
	if n := b.FEP.Unexpected(); n != 1 {
		t.Errorf("%d unexpected messages are left, want that of C", n)
	}
	recvs := post(b, trecv(500_000), 2)
	w.RunOps(time.Second, append(half, recvs[0])...)
	if got := recvs[0].Got(); got != whole[3] {
		t.Errorf("the receive got %v", got)
	}
	w.Want("aborted, unknown or aborted", half...)
	w.Want("open", recvs[1])
	next := a.Post(tsend(1, 200))
	w.RunOps(time.Second, next, recvs[1])
	w.Want("ok", next, recvs[1])
	settle(w)
}

// Abandoning one peer, at any moment of a busy exchange of four, costs the others nothing. The
// ledger sees each message at most once.
func TestAbandonLeavesOthersAlone(t *testing.T) {
	for seed := range uint64(raced(12, 4)) {
		w := pair(t, 910+seed, sim.Faults{Delay: 50 * us, Loss: 0.02, Reorder: 0.05, Rate: 125_000_000, Queue: 4 << 20}, func(s *simtest.Spec) {
			s.Hosts = append(s.Hosts, s.Hosts...)
		})
		a := w.Hosts[0]
		var kept, gone []*simtest.Op
		for k := range 40 {
			for i := 1; i < 4; i++ {
				s := tsend(i, []int{0, 100, 5000, 60_000}[k%4])
				s.Ordered = k%3 == 0
				q := tsend(0, s.Len)
				q.Ordered = s.Ordered
				ops := []*simtest.Op{w.Hosts[i].Post(from(0, trecv(60_000))), a.Post(s), a.Post(from(i, trecv(60_000))), w.Hosts[i].Post(q)}
				if i == 1 {
					gone = append(gone, ops...)
				} else {
					kept = append(kept, ops...)
				}
			}
		}
		w.Run(time.Duration(seed) * 300 * us)
		a.Abandon(1)
		w.RunOps(5*time.Second, kept...)
		w.Want("ok", kept...)
		open := 0
		for _, o := range gone {
			if o.Host == a && o.Open() {
				t.Errorf("%v is open", o)
			}
			if o.Failed() {
				open++
			}
		}
		if open == 0 {
			t.Errorf("seed %d: Abandon came too late: the test does not test", seed)
		}
		settle(w)
	}
}
