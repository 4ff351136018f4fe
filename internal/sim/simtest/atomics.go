package simtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Atomics. Each host has counters to which others add 1, with or without fetching the old value, and
// behind them words to which they do anything else (WordOp). They are the same memory in each life, so
// they show what all lives together did.

const (
	// CountersKey is the key of the counters and words of each host.
	CountersKey = 78
	numCounters = 4
	// NumWords is how many words a host has.
	NumWords = 4
)

// A WordOp is what an atomic operation does to a word of its peer, if it is not to add 1 to a counter.
// The operation fetches the old value if its kind is transport.OpFetch.
type WordOp struct {
	Op               wire.AtomicOp
	Operand, Compare uint64
}

// WordAt is the OpSpec.Addr of a word.
func WordAt(i int) int { return 8 * (numCounters + i) }

var native = binary.NativeEndian

// count registers the counters of a new life.
func (h *Host) count(f *transport.FEP) {
	if !h.spec.Counters {
		return
	}
	if h.counters == nil {
		h.counters = make([]byte, 8*(numCounters+NumWords)) // the allocator aligns it
	}
	all := transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic
	h.register(f, transport.RegionConfig{Key: CountersKey, Buf: h.counters, Access: all})
}

// tallies is the context of the receives whose buffer is counters, too, tallyTag their tag.
const (
	tallies  = "tallies"
	tallyTag = 0x7a11
)

// tallyName is the endpoint of these receives.
func (h *Host) tallyName() transport.Identity {
	id := h.spec.Config.Identity
	id.JobID = max(id.JobID, 1) // the default
	id.PIDonFEP ^= 0x800
	return id
}

// tally opens that endpoint in a new life, and posts its receives.
func (h *Host) tally(f *transport.FEP) {
	if h.spec.Tallies == 0 {
		return
	}
	id, err := f.Open(transport.EndpointConfig{Identity: h.tallyName(), Atomics: transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic})
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	if h.tallies == nil {
		h.tallies = make([]byte, 8*numCounters)
	}
	for range h.spec.Tallies {
		h.postTally(f, id)
	}
}

func (h *Host) postTally(f Endpoint, id transport.EndpointID) {
	err := f.Post(h.w.Net.Now(), &transport.Op{Kind: transport.OpTRecv, Endpoint: id, Tag: tallyTag, Buf: h.tallies, Context: tallies})
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		panic(fmt.Sprintf("simtest: %v", err))
	}
}

// tallied checks the end of such a receive, and posts another one in its place.
func (h *Host) tallied(e *transport.Event) {
	h.w.Net.Note(uint64(e.Kind)<<32 | uint64(e.Cause)<<24 | uint64(e.Len))
	switch {
	case e.Cause == transport.Cancelled:
		return
	case e.Kind != transport.OpTRecv || e.Cause != transport.OK || e.Len != 8 || e.Tag != tallyTag || e.HasData:
		h.w.Failf("%s: a receive of tallies ended so: %+v", h.Name(), e)
		return
	}
	h.Tallied++
	h.w.progress = h.w.Net.Now()
	h.postTally(h.FEP, e.Endpoint)
}

// atomic reports whether the operation is an atomic one.
func (s *OpSpec) atomic() bool { return s.Kind == transport.OpAtomic || s.Kind == transport.OpFetch }

// adds reports whether the operation adds 1 to a counter of the peer.
func (s *OpSpec) adds() bool { return s.atomic() && s.Word == nil }

// operate completes the transport.Op of an atomic operation.
func (o *Op) operate(op *transport.Op) {
	do := WordOp{Op: wire.AtomicSum, Operand: 1}
	if o.Word != nil {
		do = *o.Word
	}
	op.Key, op.RemoteAddr = CountersKey, uint64(o.Addr)
	op.AMO = &transport.AMO{Op: do.Op, Type: wire.Uint64, Tagged: o.Tally}
	if o.Tally {
		op.Key, op.Tag = 0, tallyTag
	}
	if do.Op == wire.AtomicRead {
		op.Buf, op.AMO.Bytes = nil, 8
	} else {
		op.Buf = native.AppendUint64(nil, do.Operand)
	}
	if do.Op.Compares() {
		op.AMO.Compare = native.AppendUint64(nil, do.Compare)
	}
	if o.Kind == transport.OpFetch {
		op.AMO.Result = o.buf
	}
}

// atomicEnded checks the end of an atomic operation.
func (w *World) atomicEnded(o *Op) {
	e := &o.Event
	switch {
	case e.Cause == transport.OK && o.cancel:
		w.Failf("%s: %v succeeds though it was cancelled", o.Host.Name(), o)
	case e.Cause == transport.OK:
		if o.Kind == transport.OpFetch {
			w.did.Fetches++
			o.fetched = native.Uint64(o.buf)
		}
	case e.Cause == transport.Cancelled:
		w.wanted(o)
	case !w.mayFail(o):
		w.Failf("%s: %v adds nothing: %v%s", o.Host.Name(), o, e.Cause, unknown(*e))
	}
	w.guarded(o, o.whole)
	set(o.buf, spent)
}

// auditCounters checks that each counter is the number of operations that succeeded, and at most those
// whose effect is unknown more (S-AMO-05), and that no old value was fetched twice. In clear a new life
// of the target may execute a late copy (T22), by 1-RTT it must not (S-SYN-03).
func (w *World) auditCounters() {
	if w.spec.Forged && !w.spec.Liar {
		return
	}
	type counter struct {
		host, at int
		tally    bool
	}
	sure, maybe := map[counter]uint64{}, map[counter]uint64{}
	fetched := map[counter]map[uint64]*Op{}
	for _, o := range w.ops {
		c := counter{o.Peer, o.Addr, o.Tally}
		switch {
		case !o.adds() || o.postSeq == 0:
		case o.OK() && o.Tally && o.Kind == transport.OpAtomic && w.targetEnded(o):
			maybe[c]++ // it waited for a receive when the target died
		case o.OK():
			sure[c]++
			if o.Kind != transport.OpFetch {
				continue
			}
			if fetched[c] == nil {
				fetched[c] = map[uint64]*Op{}
			}
			if before := fetched[c][o.fetched]; before != nil {
				w.Failf("%s: %v and %v fetched the same value, %d", w.Hosts[o.Peer].Name(), before, o, o.fetched)
			}
			fetched[c][o.fetched] = o
		case !o.Ended || o.Event.Unknown:
			maybe[c]++
		}
	}
	for _, h := range w.Hosts {
		for i, mem := range [][]byte{h.counters, h.tallies} {
			for at := 0; at < min(len(mem), 8*numCounters); at += 8 {
				c, v := counter{h.Index, at, i == 1}, native.Uint64(mem[at:])
				if v < sure[c] || v > sure[c]+maybe[c] && (w.spec.Secure == transport.SecureOneRTT || !h.everDied()) && !w.spec.SameRandom {
					w.Failf("%s: counter %d is %d, but %d operations have succeeded and the effect of %d is unknown", h.Name(), at/8, v, sure[c], maybe[c])
				}
			}
		}
	}
}

// adds adds operations on counters to a third of the scenarios. It draws from random numbers of its
// own.
func (g *generator) adds(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x61646473))
	if rng.IntN(3) != 0 {
		return
	}
	for i := range sc.Spec.Hosts {
		sc.Spec.Hosts[i].Counters = true
	}
	rod := []float64{0, 0.2, 0.5, 1}[rng.IntN(4)]
	tally := rand.New(rand.NewPCG(sc.Spec.Seed, 0x74616c6c))
	tallies := max(0, tally.IntN(8)-3)
	for i := range sc.Spec.Hosts {
		sc.Spec.Hosts[i].Tallies = tallies
	}
	for range 1 + rng.IntN(80) {
		from := rng.IntN(n)
		s := OpSpec{Kind: transport.OpFetch, Peer: (from + 1 + rng.IntN(n-1)) % n, Ordered: rng.Float64() < rod, Len: 8, Addr: 8 * rng.IntN(numCounters)}
		if rng.IntN(2) == 0 {
			s.Kind = transport.OpAtomic
		}
		s.Tally = tallies > 0 && tally.IntN(2) == 0
		at := time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64())
		id := g.add(Step{At: at, Host: from, Kind: "post", Op: s})
		if rng.IntN(20) == 0 {
			g.add(Step{At: at + time.Duration(rng.IntN(int(time.Millisecond))), Host: from, Kind: "cancel", Of: id})
		}
	}
}

// Succeeded returns how many operations have added to each counter of a host and were told so.
func (w *World) Succeeded(host int) (n [numCounters]int) {
	for _, o := range w.ops {
		if o.adds() && o.Peer == host && o.OK() {
			n[o.Addr/8]++
		}
	}
	return n
}

// A WordEvent is an operation on a word, as its client knows it. Call and Return order it among all
// others: an operation whose Return is lower than the Call of another one was over before that began.
type WordEvent struct {
	Client int // the host that posted it
	Word   int
	Do     WordOp
	Call   uint64
	// Sure means that it has succeeded, at the latest at Return; else its effect is unknown, and it
	// may have it at any time after Call.
	Sure    bool
	Return  uint64
	Fetched bool   // Old is the value that the word had before; only if Sure
	Old     uint64 // as Fetched says
}

// Words returns the operations on the words of a host that have had an effect or may have it, and the
// values of the words now.
func (w *World) Words(host int) (events []WordEvent, now [NumWords]uint64) {
	for _, o := range w.ops {
		if o.Word == nil || o.Peer != host || o.postSeq == 0 {
			continue
		}
		e := WordEvent{Client: o.Host.Index, Word: o.Addr/8 - numCounters, Do: *o.Word, Call: o.postSeq, Sure: o.OK(), Return: o.endSeq}
		switch {
		case e.Sure:
			e.Fetched, e.Old = o.Kind == transport.OpFetch, o.fetched
		case o.Ended && !o.Event.Unknown:
			continue // for certain it had none
		}
		events = append(events, e)
	}
	for i := range now {
		now[i] = native.Uint64(w.Hosts[host].counters[WordAt(i):])
	}
	return events, now
}

// Old is the value that a fetching operation has brought.
func (o *Op) Old() uint64 { return o.fetched }
