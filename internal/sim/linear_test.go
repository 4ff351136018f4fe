package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// wordOutput is what the client of an operation was told.
type wordOutput struct {
	fetched bool
	old     uint64
}

// words is the sequential meaning of operations on one word (S-AMO, UE 3.4). An operation without
// wordOutput had an effect that nobody knows of.
var words = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		v, do := state.(uint64), input.(simtest.WordOp)
		next := v
		switch do.Op {
		case wire.AtomicSum:
			next = v + do.Operand
		case wire.AtomicWrite:
			next = do.Operand
		case wire.AtomicCSwap:
			if v == do.Compare {
				next = do.Operand
			}
		}
		out := output.(wordOutput)
		return !out.fetched || out.old == v, next
	},
	Hash: func(state any) uint64 { return state.(uint64) },
	DescribeOperation: func(input, output any) string {
		do, out := input.(simtest.WordOp), output.(wordOutput)
		return fmt.Sprintf("%v %d if %d: %v %d", do.Op, do.Operand, do.Compare, out.fetched, out.old)
	},
}

// linearizable judges the history of each word of a host, and what is in it at last. An operation whose
// effect is unknown may have it at any time after it was posted: that it never has it is that it has it
// when nobody looks any more.
func linearizable(t *testing.T, w *simtest.World, host int) (sure, maybe int) {
	t.Helper()
	events, now := w.Words(host)
	histories := make([][]porcupine.Operation, simtest.NumWords)
	for _, e := range events {
		o := porcupine.Operation{ClientId: e.Client, Input: e.Do, Call: int64(e.Call), Output: wordOutput{e.Fetched, e.Old}, Return: math.MaxInt64}
		if e.Sure {
			sure++
			o.Return = int64(e.Return)
		} else {
			maybe++
		}
		histories[e.Word] = append(histories[e.Word], o)
	}
	for i, h := range histories {
		look := porcupine.Operation{Input: simtest.WordOp{Op: wire.AtomicRead}, Call: math.MaxInt64 - 2, Output: wordOutput{true, now[i]}, Return: math.MaxInt64 - 1}
		// A history that is linearizable is judged in milliseconds, one that is not may take for ever.
		if res := porcupine.CheckOperationsTimeout(words, append(h, look), 15*time.Second); res != porcupine.Ok {
			t.Fatalf("the %d operations on word %d, which is %d at last: %v", len(h), i, now[i], res)
		}
	}
	return sure, maybe
}

// A wordClient does one operation after the other on the words of host 0, each an unordered or ordered
// one of any kind. What it compares with is what it fetched last.
type wordClient struct {
	w    *simtest.World
	host *simtest.Host
	rng  *rand.Rand
	left int
	seen [simtest.NumWords]uint64
	next uint64 // values that nobody else writes
}

func (c *wordClient) post() {
	h, life := c.host, c.host.Life()
	h.OnEvent(func(o *simtest.Op) {
		if o.OK() && o.Kind == transport.OpFetch {
			c.seen[(o.Addr-simtest.WordAt(0))/8] = o.Old()
		}
		c.w.Net.After(time.Duration(c.rng.Int64N(int64(200*us))), func() {
			if h.Up() && h.Life() == life {
				c.one()
			}
		})
	})
	c.one()
}

func (c *wordClient) one() {
	if c.left == 0 {
		return
	}
	c.left--
	c.next++
	i := c.rng.IntN(simtest.NumWords)
	s := simtest.OpSpec{Kind: transport.OpFetch, Peer: 0, Len: 8, Addr: simtest.WordAt(i), Ordered: c.rng.IntN(4) == 0}
	switch c.rng.IntN(8) {
	case 0, 1:
		s.Word = &simtest.WordOp{Op: wire.AtomicSum, Operand: 1 + c.rng.Uint64N(3)}
	case 2, 3:
		s.Word = &simtest.WordOp{Op: wire.AtomicCSwap, Operand: c.next, Compare: c.seen[i]}
	case 4:
		s.Word = &simtest.WordOp{Op: wire.AtomicWrite, Operand: c.next}
	case 5:
		s.Word = &simtest.WordOp{Op: wire.AtomicRead}
	case 6:
		s.Kind, s.Word = transport.OpAtomic, &simtest.WordOp{Op: wire.AtomicSum, Operand: 1 + c.rng.Uint64N(3)}
	default:
		s.Kind, s.Word = transport.OpAtomic, &simtest.WordOp{Op: wire.AtomicWrite, Operand: c.next}
	}
	c.host.Post(s)
}

// S-AMO-05, F26: what clients are told of their atomic operations on few words is what some order of
// these operations gives, in which each that succeeded was executed once, between its post and its
// end, and each whose effect is unknown once or not at all. Packets are lost, repeated and late, half
// of the clients are killed, some of those come back, and where packets are sealed the target dies
// and comes back, too (in clear its new life may execute a late copy, T22).
func TestAtomicsAreLinearizable(t *testing.T) {
	clients, each, n := 24, 60, uint64(max(*seeds, 6))
	if raceEnabled || testing.Short() {
		clients, each, n = 12, 30, 4
	}
	for seed := range n {
		line := bad([]float64{0.02, 0.1, 0.2}[seed%3])
		line.DuplicateLate = 20 * ms
		spec := simtest.Spec{Seed: 950 + seed, Line: line, MayFail: true, Hosts: make([]simtest.HostSpec, clients+1)}
		if seed%2 == 1 {
			spec.Secure = transport.SecureOneRTT
		}
		for i := range spec.Hosts {
			spec.Hosts[i].Backlog = true
			spec.Hosts[i].Config.PeerTimeout = 2 * time.Second
		}
		spec.Hosts[0].Counters = true
		w := simtest.NewWorld(t, spec)
		rng := rand.New(rand.NewPCG(seed, 0x6c696e))
		var all []*wordClient
		for i, h := range w.Hosts[1:] {
			c := &wordClient{w: w, host: h, rng: rand.New(rand.NewPCG(seed, uint64(i))), left: each, next: uint64(1+i) << 32}
			all = append(all, c)
			c.post()
		}
		span := time.Duration(each) * ms
		for _, c := range all[:clients/2] {
			w.Net.After(time.Duration(rng.Int64N(int64(span))), func() {
				c.host.Crash(false)
				if rng.IntN(2) == 0 {
					w.Net.After(time.Duration(rng.Int64N(int64(50*ms))), func() {
						c.host.Restart()
						c.post()
					})
				}
			})
		}
		if spec.Secure != transport.SecureNone {
			for range 2 {
				w.Net.After(time.Duration(rng.Int64N(int64(span))), func() {
					w.Hosts[0].Restart()
				})
			}
		}
		w.Run(span + 100*ms)
		w.Heal()
		w.Settle(20 * time.Second)
		sure, maybe := linearizable(t, w, 0)
		t.Logf("seed %d: %d operations succeeded, the effect of %d is unknown", seed, sure, maybe)
		if sure < clients*each/4 || maybe == 0 {
			t.Errorf("seed %d: only %d operations succeeded, and the effect of %d is unknown", seed, sure, maybe)
		}
	}
}
