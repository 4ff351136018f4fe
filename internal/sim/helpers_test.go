package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// lan is the path of most tests: 100 µs round trip, 125 MB/s.
var lan = sim.Faults{Delay: 50 * us, Rate: 125_000_000, Queue: 4 << 20, InOrder: true}

// pair makes a world of A and B.
func pair(t testing.TB, seed uint64, line sim.Faults, change ...func(*simtest.Spec)) *simtest.World {
	t.Helper()
	spec := simtest.Spec{Seed: seed, Line: line, Hosts: make([]simtest.HostSpec, 2)}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
		spec.Hosts[i].Node.GRO = 0.9
	}
	for _, c := range change {
		c(&spec)
	}
	return simtest.NewWorld(t, spec)
}

// config changes the configuration of all hosts.
func config(f func(*transport.Config)) func(*simtest.Spec) {
	return func(s *simtest.Spec) {
		for i := range s.Hosts {
			f(&s.Hosts[i].Config)
		}
	}
}

// only changes the configuration of one host.
func only(i int, f func(*transport.Config)) func(*simtest.Spec) {
	return func(s *simtest.Spec) { f(&s.Hosts[i].Config) }
}

// smallWindow keeps most of a long message from leaving, so that a test can act in the middle
// of it.
func smallWindow(s *simtest.Spec) {
	for i := range s.Hosts {
		s.Hosts[i].Config.Window = 32 << 10
	}
}

func mayFail(s *simtest.Spec) { s.MayFail = true }

// tsend and trecv are the operations of most tests.
func tsend(to, n int) simtest.OpSpec {
	return simtest.OpSpec{Kind: transport.OpTSend, Peer: to, Len: n}
}

func trecv(n int) simtest.OpSpec {
	return simtest.OpSpec{Kind: transport.OpTRecv, Peer: simtest.Any, Len: n, AnyClass: true}
}

func ordered(s simtest.OpSpec) simtest.OpSpec {
	s.Ordered = true
	return s
}

// post posts count copies of an operation.
func post(h *simtest.Host, s simtest.OpSpec, count int) []*simtest.Op {
	var ops []*simtest.Op
	for range count {
		ops = append(ops, h.Post(s))
	}
	return ops
}

// stream moves count messages of n bytes from A to B, window at a time, and
// returns how long it took.
func stream(w *simtest.World, s simtest.OpSpec, count, window int) time.Duration {
	start := w.Now()
	a, b := w.Hosts[0], w.Hosts[1]
	post(b, trecv(s.Len), window)
	var sends []*simtest.Op
	recvs := 0
	b.OnEvent(func(o *simtest.Op) {
		if recvs++; recvs+window <= count {
			b.Post(trecv(s.Len))
		}
	})
	a.OnEvent(func(o *simtest.Op) {
		if len(sends) < count {
			sends = append(sends, a.Post(s))
		}
	})
	for range min(window, count) {
		sends = append(sends, a.Post(s))
	}
	w.RunUntil(10*time.Minute, "the end of the stream", func() bool {
		return recvs == count && len(sends) == count && !sends[count-1].Open()
	})
	took := w.Now() - start
	a.OnEvent(nil)
	b.OnEvent(nil)
	w.RunOps(time.Minute, sends...)
	return took
}

// oneGoroutine skips a test of much data under the race detector, which has nothing to find where nothing is concurrent.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("it has one goroutine, and much data")
	}
}

// raced is n, or less under the race detector.
func raced(n, less int) int {
	if raceEnabled {
		return less
	}
	return n
}

// settle ends a test: it drains everything, waits for rest, and audits.
func settle(w *simtest.World) { w.Settle(20 * time.Second) }

// acksOnly lets f decide about packets that are ACKs of any kind, and lets others pass.
func acksOnly(f func(n int) sim.Verdict) func(time.Duration, *sim.Packet) sim.Verdict {
	n := 0
	return func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if len(p.Data) == 0 {
			return sim.Verdict{}
		}
		if typ := p.Data[0] >> 3; typ >= 7 && typ <= 9 {
			n++
			return f(n)
		}
		return sim.Verdict{}
	}
}
