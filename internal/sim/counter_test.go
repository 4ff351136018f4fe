package sim_test

import (
	"flag"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// S-AMO-05: 64 hosts add to one counter with 20 % loss, and half of them are killed in the middle. The
// counter is the number of additions that succeeded, and at most those whose effect is unknown more;
// each old value was fetched once. The checkers of simtest say so.
func TestCounterOf64Clients(t *testing.T) { count(t, 0) }

// S-AMO-05, S-AMO-10: the same by operations on a receive, which the host posts again when it has ended, so that
// some additions wait for one.
func TestReceivesOf64Clients(t *testing.T) { count(t, 1) }

func count(t *testing.T, tallies int) {
	t.Helper()
	clients, each := 64, 40
	if raceEnabled || testing.Short() {
		clients, each = 16, 20
	}
	for seed := range uint64(3) {
		spec := simtest.Spec{Seed: 800 + seed, Line: sim.Faults{Delay: 20 * us, Jitter: 20 * us, Loss: 0.2, Duplicate: 0.05}, MayFail: true, Hosts: make([]simtest.HostSpec, clients+1)}
		for i := range spec.Hosts {
			spec.Hosts[i].Backlog = true
		}
		spec.Hosts[0].Counters, spec.Hosts[0].Tallies = true, tallies
		w := simtest.NewWorld(t, spec)
		for round := range each {
			for i, h := range w.Hosts[1:] {
				if h.Up() {
					kind := transport.OpFetch
					if (round+i)%3 == 0 {
						kind = transport.OpAtomic
					}
					h.Post(simtest.OpSpec{Kind: kind, Peer: 0, Len: 8, Ordered: i%4 == 0, Tally: tallies > 0})
				}
			}
			w.Run(200 * us)
			if i := 2*round - 1; round%2 == 1 && i < clients {
				for k := i; k < min(i+4, clients); k += 2 {
					w.Hosts[k].Crash(false)
				}
			}
		}
		killed := 0
		for _, h := range w.Hosts[1:] {
			if !h.Up() {
				killed++
			}
		}
		if killed != clients/2 {
			t.Fatalf("%d of %d clients were killed", killed, clients)
		}
		w.Heal()
		w.Settle(20 * time.Second)
		done := 0
		for _, n := range w.Succeeded(0) {
			done += n
		}
		t.Logf("seed %d: %d additions succeeded", spec.Seed, done)
		if tallies > 0 && w.Hosts[0].Tallied < done {
			t.Errorf("seed %d: %d receives have ended", spec.Seed, w.Hosts[0].Tallied)
		}
		if kept := int(w.Hosts[0].FEP.Stats().Unexpected); tallies > 0 && kept < clients*each/128 {
			t.Errorf("seed %d: only %d additions waited for a receive", spec.Seed, kept)
		}
		if done < clients*each/4 {
			t.Errorf("seed %d: only %d additions succeeded", spec.Seed, done)
		}
	}
}

var killed = flag.Int("killed", 1<<20, "TestWriterIsKilled: write this many bytes; 1073741824 is what F25 speaks of, and takes some 9 GiB of memory")

// F25: an initiator is killed in the middle of a long write, at 50 moments: each byte of the target is that
// of the write, or blank, those beside it are blank, and the target keeps nothing of it. The checkers of
// simtest say so. With 1 % loss the bytes come in any order.
func TestWriterIsKilled(t *testing.T) {
	kills := 50
	if raceEnabled || testing.Short() {
		kills = 8
	}
	size := *killed - 200 // of the board; a longer write has no more kinds of moments, only more of them
	rate := 125_000_000 * int64(*killed) >> 20
	parts := 0
	for k := range kills {
		spec := simtest.Spec{Seed: 900 + uint64(k), Line: sim.Faults{Delay: 50 * us, Rate: rate, Loss: 0.01}, MayFail: true, Light: true, Hosts: make([]simtest.HostSpec, 2)}
		spec.Hosts[1].Board, spec.Hosts[1].BoardSize = true, *killed
		if *killed > 1<<20 {
			full(&spec)
			for i := range spec.Hosts {
				spec.Hosts[i].Config.Window = 64 << 20
			}
		}
		w := simtest.NewWorld(t, spec)
		o := w.Hosts[0].Post(simtest.OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 100, Len: size, HasData: k%2 == 0, Ordered: k%4 < 2, Level: transport.LevelDelivery})
		w.Run(100*us + time.Duration(k)*8*ms/50) // it takes more than 8 ms
		if o.Ended {
			t.Fatalf("kill %d: the write has ended already", k)
		}
		if n := w.Written(1); n > 0 && n < size {
			parts++
		}
		w.Hosts[0].Crash(false)
		w.Settle(20 * time.Second)
		w.RunUntil(2*time.Minute, "the end of what is kept of the write", func() bool { f := w.Hosts[1].FEP; return f.PDCs() == 0 && f.Unexpected() == 0 })
	}
	if parts < kills/2 {
		t.Errorf("only %d of %d kills were in the middle", parts, kills)
	}
}
