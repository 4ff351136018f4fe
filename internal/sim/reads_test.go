package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// memory gives every host memory that the others may read.
func memory(n int) func(*simtest.Spec) {
	return func(s *simtest.Spec) {
		for i := range s.Hosts {
			s.Hosts[i].Memory = n
		}
	}
}

func read(from, addr, n int) simtest.OpSpec {
	return simtest.OpSpec{Kind: transport.OpRead, Peer: from, Addr: addr, Len: n}
}

// bad is a path on which everything happens to packets but damage.
func bad(loss float64) sim.Faults {
	f := lan
	f.InOrder = false
	f.Loss, f.Duplicate, f.DuplicateMax, f.DuplicateLate = loss, 0.1, 3, time.Millisecond
	f.Reorder, f.ReorderBy, f.Jitter = 0.1, 16, 200*us
	return f
}

func TestReadsOnBadPaths(t *testing.T) {
	// Reads of no bytes up to many MiB, by RUD and ROD, bring every byte under loss, duplication and
	// reordering, while both hosts read.
	for _, loss := range []float64{0, 0.01, 0.05, 0.3} {
		for _, rod := range []bool{false, true} {
			t.Run(fmt.Sprint(loss, rod), func(t *testing.T) {
				w := pair(t, 7, bad(loss), memory(8<<20), config(func(c *transport.Config) { c.ReadWindow = 256 << 10 }))
				var ops []*simtest.Op
				long := 8 << 20
				if loss > 0.1 {
					long = 1 << 20
				}
				for i := range 40 {
					s := read(1-i%2, i*4096, []int{0, 1, 17, 1000, 1024, 1025, 60000}[i%7])
					s.Ordered = rod
					ops = append(ops, w.Hosts[i%2].Post(s))
				}
				s := read(1, 0, long)
				s.Ordered = rod
				ops = append(ops, w.Hosts[0].Post(s))
				w.RunOps(5*time.Minute, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}

func TestReadsOfTargetThatRestarts(t *testing.T) {
	// A read whose target dies ends in error, also if every request was answered; it ends soon if a
	// new life answers.
	for _, after := range []time.Duration{200 * us, 2 * ms, 10 * ms} {
		w := pair(t, 3, lan, memory(8<<20), smallWindow)
		op := w.Hosts[0].Post(read(1, 0, 8<<20))
		w.Run(after)
		w.Hosts[1].Crash(false)
		w.Run(time.Millisecond)
		w.Hosts[1].Restart()
		w.RunOps(10*time.Second, op)
		w.Want("aborted or unreachable or timed out", op)
		again := w.Hosts[0].Post(read(1, 0, 100_000))
		w.RunOps(time.Second, again)
		w.Want("ok", again)
		settle(w)
	}
}

func TestReadsOfTargetThatIsGone(t *testing.T) {
	// Every read ends in bounded time if its target is gone for good.
	w := pair(t, 3, lan, memory(8<<20), smallWindow)
	var ops []*simtest.Op
	for i := range 20 {
		ops = append(ops, w.Hosts[0].Post(read(1, i*1000, 1+i*20000)))
	}
	w.Run(ms)
	w.Hosts[1].Crash(false)
	w.RunOps(2*time.Minute, ops...)
	settle(w)
}

func TestReadsOfHostThatLeaves(t *testing.T) {
	// The initiator closes in the middle of reads: each ends, and the target goes on with others.
	w := pair(t, 3, lan, memory(8<<20), smallWindow)
	op := w.Hosts[0].Post(read(1, 0, 8<<20))
	w.Run(2 * ms)
	w.Hosts[0].Close()
	w.Want("cancelled", op)
	w.Run(time.Second)
	w.Hosts[0].Restart()
	again := w.Hosts[0].Post(read(1, 0, 1<<20))
	w.RunOps(time.Minute, again)
	w.Want("ok", again)
	settle(w)
}

func TestReadsDoNotOutliveTheirPDC(t *testing.T) {
	// F34: PDCs that close again and again under reads lose nothing.
	w := pair(t, 5, bad(0.02), memory(1<<20), config(func(c *transport.Config) { c.MaxRange, c.ShortMessage = 200, 1 }))
	var ops []*simtest.Op
	for i := range 60 {
		ops = append(ops, w.Hosts[0].Post(read(1, i*8000, 64<<10)))
	}
	w.RunOps(time.Minute, ops...)
	w.Want("ok", ops...)
	settle(w)
}

func TestReadsRepeatToThoseKnown(t *testing.T) {
	// T27: return data to a source that the application named is sent again until it is acknowledged,
	// though the packet that would prove the source is lost. Otherwise it would keep the window of
	// the peer closed.
	w := pair(t, 1, lan, memory(1<<20))
	w.Hosts[1].Peer(0)
	lost := lan
	lost.Drop = []uint64{1, 2} // the greeting, and the ACK of the data
	w.Line(0, 1).SetFaults(lost)
	op := w.Hosts[0].Post(read(1, 0, 100))
	w.RunOps(500*ms, op)
	w.Want("ok", op)
	w.RunUntil(500*ms, "the ACK of the data", w.Hosts[1].FEP.Idle)
	settle(w)
}

func TestReadsFromTargetsOfStrangers(t *testing.T) {
	// S-END-10: a target returns nothing to a source that is not proven. If the packet that would
	// prove it is lost, the source asks soon.
	w := pair(t, 1, lan, memory(1<<20))
	lost := lan
	lost.Drop = []uint64{1} // the greeting
	w.Line(0, 1).SetFaults(lost)
	op := w.Hosts[0].Post(read(1, 0, 100))
	w.RunOps(100*ms, op)
	w.Want("ok", op)
	settle(w)
}
