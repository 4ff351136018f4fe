package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

func deferrable(c *transport.Config) { c.DeferrableMin = 16 << 10 }

// R-CMPL-18, R-MSG-14, S-DEF-60: programs that send in one order and receive in another come to their end, however
// much they send before anything is received, on good paths and bad ones, in order and not.
func TestReversedOrder(t *testing.T) { reversedPrograms(t, deferrable) }

// reversedPrograms runs the programs that MPI calls correct, each on good paths and bad ones.
func reversedPrograms(t *testing.T, how func(*transport.Config)) {
	for _, p := range []struct{ messages, bytes int }{{24, 1 << 20}, {8, 17 << 20}, {20_000, 8}} {
		for _, rod := range []bool{false, true} {
			for _, loss := range []float64{0, 0.01, 0.05} {
				if (testing.Short() || raceEnabled) && (p.bytes != 1<<20 || loss != 0.01) {
					continue
				}
				t.Run(fmt.Sprintf("%dx%d/rod=%v/loss=%v", p.messages, p.bytes, rod, loss), func(t *testing.T) {
					t.Parallel()
					reversed(t, how, p.messages, p.bytes, rod, loss)
				})
			}
		}
	}
}

// reversed posts messages, and then their receives in the reverse order, of which the first get theirs one after the other.
func reversed(t *testing.T, how func(*transport.Config), messages, bytes int, rod bool, loss float64) {
	t.Helper()
	f := bad(loss)
	f.Rate, f.Queue = 1_250_000_000, 16<<20
	w := pair(t, 61, f, config(how))
	var ops []*simtest.Op
	for k := range messages {
		s := tsend(1, bytes)
		s.Ordered, s.Class = rod, uint8(k*256/max(messages, 256))
		ops = append(ops, w.Hosts[0].Post(s))
	}
	w.Run(200 * time.Millisecond)
	for k := range messages {
		r := trecv(bytes)
		r.AnyClass, r.Class = false, ops[messages-1-k].Class
		op := w.Hosts[1].Post(r)
		if ops = append(ops, op); k < 8 || k%1000 == 0 {
			w.RunOps(time.Minute, op) // each needs its message, and no other can be received
		}
	}
	w.RunOps(5*time.Minute, ops...)
	w.Want("ok", ops...)
	settle(w)
}

// S-DEF: eight peers send more than there is room for, and their messages are received in a random order.
func TestRandomOrderOfMany(t *testing.T) {
	if raceEnabled {
		t.Skip("much data, and nothing is concurrent")
	}
	each := 64
	if testing.Short() {
		each = 8
	}
	for _, rod := range []bool{false, true} {
		t.Run(fmt.Sprint(rod), func(t *testing.T) {
			t.Parallel()
			randomOrder(t, deferrable, each, rod, 0)
		})
	}
}

// randomOrder has each of eight peers send messages of 1 MiB before any is received, and receives them in a random order, the
// first twenty one after the other.
func randomOrder(t *testing.T, how func(*transport.Config), each int, rod bool, loss float64) {
	t.Helper()
	f := lan
	f.Rate, f.Queue, f.Loss = 1_250_000_000, 16<<20, loss
	spec := simtest.Spec{Seed: 62, Line: f, Hosts: make([]simtest.HostSpec, 9)}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
		how(&spec.Hosts[i].Config)
	}
	w := simtest.NewWorld(t, spec)
	var ops []*simtest.Op
	var recvs []simtest.OpSpec
	for i := 1; i < 9; i++ {
		for k := range each {
			s := tsend(0, 1<<20)
			s.Ordered, s.Class = rod, uint8(k)
			ops = append(ops, w.Hosts[i].Post(s))
			r := trecv(1 << 20)
			r.Peer, r.AnyClass, r.Class = i, false, uint8(k)
			recvs = append(recvs, r)
		}
	}
	w.Run(100 * time.Millisecond)
	rng := rand.New(rand.NewPCG(62, 0))
	rng.Shuffle(len(recvs), func(i, j int) { recvs[i], recvs[j] = recvs[j], recvs[i] })
	for i, r := range recvs {
		op := w.Hosts[0].Post(r)
		if ops = append(ops, op); i < 20 {
			w.RunOps(time.Minute, op)
		}
	}
	w.RunOps(5*time.Minute, ops...)
	w.Want("ok", ops...)
	settle(w)
}
