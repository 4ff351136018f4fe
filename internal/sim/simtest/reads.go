package simtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// Reads. Each host has memory that others may read (HostSpec.Memory). Its bytes are a function of
// the host and the offset, the same in each life.

// memoryKey is the key of the memory of each host.
const memoryKey = 77

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
	if _, err := f.Register(transport.RegionConfig{Key: memoryKey, Buf: h.memory, Access: transport.RemoteRead, Endpoint: transport.AllEndpoints}); err != nil {
		panic(fmt.Sprintf("simtest: Register: %v", err))
	}
}

// readEnded checks the end of a read.
func (w *World) readEnded(o *Op) {
	h, e := o.Host, &o.Event
	switch {
	case e.Unknown || e.Len != o.Len:
		w.Failf("%s: %v ends with %d bytes%s", h.Name(), o, e.Len, unknown(*e))
	case e.Cause == transport.OK && o.cancel:
		w.Failf("%s: %v brings its bytes though it was cancelled", h.Name(), o)
	case e.Cause == transport.OK:
		if err := checkPattern(o.buf, memoryID(o.Peer), o.Addr); err != nil && !w.spec.Forged {
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

// reads adds reads to half of the scenarios. Like secure it draws from random numbers of its own.
// What a path does not carry is not cut anew for a read that is under way, so there are none where
// a path has a hole.
func (g *generator) reads(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x72656164))
	if rng.IntN(2) == 0 || sc.Holes() {
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
		switch rng.IntN(4) {
		case 0:
			s.Len = rng.IntN(64)
		case 1:
			s.Len = rng.IntN(8 << 10)
		default:
			s.Len = int(float64(256<<10) * rng.Float64() * rng.Float64())
		}
		if budget -= s.Len; budget < 0 {
			s.Len = rng.IntN(64)
		}
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
