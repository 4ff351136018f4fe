package simtest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// Slates. Each host has memory that others read and write by ordered operations alone. Everybody has a
// part of it, and each word tells who put it there. One half is what he writes. The other half is changed by
// the owner, who fills it with the bytes of each ordered message that he receives from him. So what a read
// brings shows which of the operations before and behind it came first (R-ORD-01, R-ORD-06). The slate is
// the same memory in each life.

const (
	slateKey  = 80
	slateHalf = 32 << 10
)

// slateOf is where the part of a host begins on the slates of the others.
func slateOf(host int) int { return 2 * slateHalf * host }

// hang registers the slate of a new life.
func (h *Host) hang(f *transport.FEP) {
	if !h.w.spec.Slates {
		return
	}
	if h.slate == nil {
		h.slate = make([]byte, slateOf(len(h.w.spec.Hosts)))
		h.marked = make([]uint64, len(h.w.spec.Hosts))
	}
	h.register(f, transport.RegionConfig{Key: slateKey, Buf: h.slate, Access: transport.RemoteRead | transport.RemoteWrite})
}

// mark fills the half of its sender with the bytes of a message that has come, unless a later one came before.
func (h *Host) mark(s *Op) {
	if from := s.Host.Index; s.postSeq > h.marked[from] {
		h.marked[from] = s.postSeq
		fillPattern(h.slate[slateOf(from)+slateHalf:][:slateHalf], s.ID, 0)
	}
}

// markedBy returns the operation of a host that put a word to an offset of a slate, and when that was posted: nil
// and 0 if nobody did. It returns false if it is the word of none.
func (w *World) markedBy(host, to, at int, word []byte) (*Op, uint64, bool) {
	if native.Uint64(word) == 0 {
		return nil, 0, true
	}
	id, off := readPattern(word)
	o := w.op(id)
	at -= slateOf(host)
	if o == nil || !o.Slate || o.Host.Index != host || o.Peer != to || !(o.send() && off == at-slateHalf || o.writes() && o.Addr+off == slateOf(host)+at) {
		return nil, 0, false
	}
	return o, o.postSeq, true
}

// slateRead checks that a read brings nothing of what was posted behind it.
func (w *World) slateRead(o *Op) {
	for at := 0; at < o.Len; at += 8 {
		by, seq, ok := w.markedBy(o.Host.Index, o.Peer, o.Addr+at, o.buf[at:])
		if !ok {
			w.Failf("%s: byte %d of %v is of no operation", o.Host.Name(), at, o)
		}
		if seq > o.postSeq {
			w.Failf("%s: %v brings what came of %v, which was posted behind it", o.Host.Name(), o, by)
		}
	}
	o.seen = slices.Clone(o.buf)
}

// auditSlates checks that each read brought what the last write before it has left, if that has succeeded, and
// nothing older than a read before it; and that the last write is there in the end. Where a host died, late
// copies change a slate, too (T22).
func (w *World) auditSlates() {
	if w.spec.Forged || !w.spec.Slates {
		return
	}
	ops := slices.DeleteFunc(slices.Clone(w.ops), func(o *Op) bool { return !o.Slate || o.postSeq == 0 })
	slices.SortFunc(ops, func(a, b *Op) int { return int(int64(a.postSeq) - int64(b.postSeq)) })
	for _, from := range w.Hosts {
		for _, to := range w.Hosts {
			if !from.everDied() && !to.everDied() && !parted(from, to) && to != from {
				w.auditSlate(from, to, ops)
			}
		}
	}
}

func (w *World) auditSlate(from, to *Host, ops []*Op) {
	base := slateOf(from.Index)
	least := make([]uint64, 2*slateHalf/8) // by word: what must have been executed, by the number of its post
	why := make([]*Op, len(least))
	require := func(i int, seq uint64, o *Op) {
		if seq > least[i] {
			least[i], why[i] = seq, o
		}
	}
	check := func(o *Op, at int, mem []byte) {
		for j := 0; j < len(mem); j += 8 {
			i := (at - base + j) / 8
			_, seq, ok := w.markedBy(from.Index, to.Index, at+j, mem[j:])
			if !ok || seq < least[i] {
				w.Failf("%s: byte %d of its slate, that %v shows, is older than %v", to.Name(), at+j, o, why[i])
			}
			require(i, seq, o)
		}
	}
	for _, o := range ops {
		switch {
		case o.Host != from || o.Peer != to.Index || !o.OK() || o.early():
		case o.writes():
			for i := (o.Addr - base) / 8; i < (o.Addr-base+o.Len)/8; i++ {
				require(i, o.postSeq, o)
			}
		case o.Kind == transport.OpRead:
			check(o, o.Addr, o.seen)
		}
	}
	check(nil, base, to.slate[base:][:2*slateHalf])
}

// slates adds ordered reads, writes and messages to a quarter of the scenarios. It draws from random numbers of its own.
func (g *generator) slates(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x736c61746573))
	if rng.IntN(4) != 0 {
		return
	}
	sc.Spec.Slates = true
	budget := 1 << 20
	for range 1 + rng.IntN(4) {
		from := rng.IntN(n)
		to := (from + 1 + rng.IntN(n-1)) % n
		at := time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64())
		gap := 1 + rng.IntN(int(50*time.Microsecond))
		for range 2 + rng.IntN(12) {
			s := OpSpec{Peer: to, Ordered: true, Slate: true, Len: min(drawLen(rng, &budget)&^7, slateHalf)}
			s.Addr = slateOf(from) + rng.IntN(slateHalf-s.Len+1)&^7
			s.Level = []transport.Level{transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery}[rng.IntN(3)]
			switch rng.IntN(10) {
			case 0, 1, 2:
				s.Kind = transport.OpWrite
			case 3, 4, 5:
				s.Kind, s.Addr, s.Class = transport.OpTSend, 0, 200
				g.add(Step{At: at, Host: to, Kind: "post", Op: OpSpec{Kind: transport.OpTRecv, Peer: from, Len: slateHalf, Class: 200}})
			case 6, 7:
				s.Kind, s.Level = transport.OpRead, 0
			default:
				s.Kind, s.Level = transport.OpRead, 0
				s.Addr += slateHalf
			}
			at += time.Duration(rng.IntN(gap))
			id := g.add(Step{At: at, Host: from, Kind: "post", Op: s})
			if rng.IntN(30) == 0 {
				g.add(Step{At: at + time.Duration(rng.IntN(int(time.Millisecond))), Host: from, Kind: "cancel", Of: id})
			}
		}
	}
}
