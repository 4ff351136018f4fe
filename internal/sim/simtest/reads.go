package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Reads. Each host has memory that others may read (HostSpec.Memory). Its bytes are a function of
// the host and the offset, the same in each life.

// MemoryKey is the key of the memory of each host.
const MemoryKey = 77

// memoryID is the number whose pattern the memory of a host has. No message has it.
func memoryID(host int) uint32 { return 1<<30 + uint32(host) }

// expose registers the memory of a new life.
func (h *Host) expose(f *transport.FEP) {
	if h.spec.Memory == 0 {
		return
	}
	if h.memory == nil {
		h.memory = make([]byte, h.spec.Memory)
		fillPattern(h.memory, memoryID(h.Index), 0)
	}
	for _, key := range [...]uint64{MemoryKey, MemoryKey | wire.MKeyOptimized} {
		h.register(f, transport.RegionConfig{Key: key, Buf: h.memory, Access: transport.RemoteRead, CountsReads: true})
		h.register(f, transport.RegionConfig{Key: key | wire.MKeyIdempotent, Buf: h.memory, Access: transport.RemoteRead})
	}
}

// register makes memory accessible through all endpoints of a new life.
func (h *Host) register(f *transport.FEP, cfg transport.RegionConfig) {
	cfg.Endpoint = transport.AllEndpoints
	g, err := f.Register(cfg)
	if err != nil {
		panic(fmt.Sprintf("simtest: Register: %v", err))
	}
	h.regions = append(h.regions, g)
}

// Unregister takes all memory of the host away from others, who may be in the middle of accesses to it.
// From then on none of its bytes changes in this life (R-MR-12, T16).
func (h *Host) Unregister() {
	h.w.note("%s removes its regions", h.Name())
	for _, g := range h.regions {
		h.FEP.Deregister(g)
	}
	h.regions, h.removed = nil, true
	h.kept = [3][]byte{slices.Clone(h.board), slices.Clone(h.counters), slices.Clone(h.prey)}
}

// asKept checks that no byte changed since Unregister.
func (h *Host) asKept() {
	for i, now := range [3][]byte{h.board, h.counters, h.prey} {
		for at, b := range h.kept[i] {
			if now[at] != b {
				h.w.Failf("%s: byte %d of a region changed after it was removed", h.Name(), at)
			}
		}
	}
}

// removedFrom reports whether an access to memory failed because its target had removed the region.
func (w *World) removedFrom(o *Op) bool {
	return o.read() && w.Hosts[o.Peer].removed && o.Event.Cause == transport.Rejected && o.Event.RC == wire.RCBadMKey
}

// unregister makes hosts remove their regions in a quarter of the scenarios. It draws from random numbers of
// its own.
func (g *generator) unregister() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x756e726567))
	if rng.IntN(4) != 0 {
		return
	}
	for i := range g.sc.Spec.Hosts {
		if rng.IntN(2) == 0 {
			g.add(Step{At: time.Duration(float64(g.sc.Heal) * rng.Float64() * rng.Float64()), Host: i, Kind: "unregister"})
		}
	}
}

// KeyOf returns the key under which a rendezvous send lends its memory, 0 if it was not announced.
func (w *World) KeyOf(o *Op) uint64 { return o.key }

// BytesRead returns how many bytes of these rendezvous sends have left their hosts, which their targets read.
func (w *World) BytesRead(ops ...*Op) (n int) {
	for _, o := range ops {
		if o.lent {
			n += o.txBytes
		}
	}
	return n
}

// readEnded checks the end of a read.
func (w *World) readEnded(o *Op) {
	h, e := o.Host, &o.Event
	if e.Cause == transport.OK {
		w.did.Reads++
	}
	switch {
	case e.Unknown || e.Len != o.Len:
		w.Failf("%s: %v ends with %d bytes%s", h.Name(), o, e.Len, unknown(*e))
	case e.Cause == transport.OK && o.cancel:
		w.Failf("%s: %v brings its bytes though it was cancelled", h.Name(), o)
	case e.Cause == transport.OK && o.Slate:
		if !w.spec.Forged {
			w.slateRead(o)
		}
	case e.Cause == transport.OK:
		id := memoryID(o.Peer)
		if o.Key != 0 {
			if s := w.ledger.loans[loanKey{w.Hosts[o.Peer], w.Hosts[o.Peer].Life(), o.Key}]; s != nil {
				id = s.ID
			}
		}
		if err := checkPattern(o.buf, id, o.Addr); err != nil && (!w.spec.Forged || w.spec.Liar) {
			w.Failf("%s: %v brings wrong bytes: %v", h.Name(), o, err)
		}
	case e.Cause == transport.Cancelled:
		w.wanted(o)
	case !w.mayFail(o):
		w.Failf("%s: %v brings nothing: %v%s", h.Name(), o, e.Cause, unknown(*e))
	}
	w.guarded(o, o.whole)
	set(o.buf, spent)
}

// deferrables makes shorter sends deferrable in half of the scenarios, or none. It draws from random numbers of its own.
func (g *generator) deferrables() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x6465666572))
	if rng.IntN(2) == 0 {
		return
	}
	for i := range g.sc.Spec.Hosts {
		g.sc.Spec.Hosts[i].Config.DeferrableMin = []int{-1, 1, 100, 2000, 16 << 10}[rng.IntN(5)]
	}
}

// lendings has sends go by rendezvous in a third of the scenarios. It draws from random numbers of its own.
func (g *generator) lendings() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x6c656e64))
	if rng.IntN(3) != 0 {
		return
	}
	for i := range g.sc.Spec.Hosts {
		g.sc.Spec.Hosts[i].Config.RendezvousMin = []int{0, 1, 8, 1000, 2000, 16 << 10}[rng.IntN(6)]
	}
}

// idempotents lets reads and writes of a third of the scenarios go by RUDI, where no path has a hole: what
// a path does not carry is not cut anew. It draws from random numbers of its own.
func (g *generator) idempotents() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x72756469))
	if rng.IntN(3) != 0 || g.sc.Holes() {
		return
	}
	g.readsAndWrites(func(o *OpSpec) { o.RUDI = rng.IntN(4) != 0 })
}

// readsAndWrites calls f for each read and write of the scenario.
func (g *generator) readsAndWrites(f func(o *OpSpec)) {
	for i := range g.sc.Steps {
		if o := &g.sc.Steps[i].Op; (o.Kind == transport.OpRead || o.writes()) && !o.Slate {
			f(o)
		}
	}
}

// smalls has reads and writes of half of the scenarios name their memory by a key with OPTIMIZED. It draws from
// random numbers of its own.
func (g *generator) smalls() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x736d616c6c))
	if rng.IntN(2) == 0 {
		return
	}
	g.readsAndWrites(func(o *OpSpec) { o.Small = rng.IntN(4) != 0 })
}

// accessFences gives one-sided operations of a quarter of the scenarios fences. It draws from random numbers of
// its own.
func (g *generator) accessFences() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x66656e6365))
	if rng.IntN(4) != 0 {
		return
	}
	for i := range g.sc.Steps {
		if o := &g.sc.Steps[i].Op; o.Kind != 0 && o.read() {
			o.Fence = rng.IntN(6) == 0
		}
	}
}

// behindFences checks that all that was posted before the last fence before an access, or before the access if it
// has one itself, ended before it (R-ORD-07).
func (h *Host) behindFences(o *Op) {
	fence := uint64(0)
	for _, f := range h.reads {
		if f.Fence && f.Peer == o.Peer && f.From == o.From && f.postSeq <= o.postSeq {
			fence = max(fence, f.postSeq)
		}
	}
	for _, list := range [...][]*Op{h.reads, h.sends} {
		for _, p := range list {
			if p.Peer == o.Peer && p.From == o.From && p.postSeq < fence && p.Open() && !p.Silent {
				h.w.Failf("%s: %v ends before %v, although a fence is between them", h.Name(), o, p)
			}
		}
	}
}

// reads adds reads to half of the scenarios. Like secure it draws from random numbers of its own.
func (g *generator) reads(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x72656164))
	if rng.IntN(2) == 0 {
		return
	}
	const size = 1 << 20
	for i := range sc.Spec.Hosts {
		sc.Spec.Hosts[i].Memory = size
		if rng.IntN(3) == 0 {
			sc.Spec.Hosts[i].Config.ReadWindow = 1 + rng.IntN(64<<10)
		}
	}
	budget := 2 << 20
	rod := []float64{0, 0.2, 0.5, 1}[rng.IntN(4)]
	for range 1 + rng.IntN(60) {
		from := rng.IntN(n)
		s := OpSpec{Kind: transport.OpRead, Peer: (from + 1 + rng.IntN(n-1)) % n, Ordered: rng.Float64() < rod}
		s.Len = drawLen(rng, &budget)
		s.Addr = rng.IntN(size-s.Len) &^ 7
		if rng.IntN(5) == 0 {
			s.Pieces = 1 + rng.IntN(4)
		}
		at := time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64())
		id := g.add(Step{At: at, Host: from, Kind: "post", Op: s})
		if rng.IntN(20) == 0 {
			g.add(Step{At: at + time.Duration(rng.IntN(int(time.Millisecond))), Host: from, Kind: "cancel", Of: id})
		}
	}
}

// drawLen draws the length of an access and takes it off the budget, behind which all are short.
func drawLen(rng *rand.Rand, budget *int) (n int) {
	switch rng.IntN(4) {
	case 0:
		n = rng.IntN(64)
	case 1:
		n = rng.IntN(8 << 10)
	default:
		n = int(float64(256<<10) * rng.Float64() * rng.Float64())
	}
	if *budget -= n; *budget < 0 {
		n = rng.IntN(64)
	}
	return n
}
