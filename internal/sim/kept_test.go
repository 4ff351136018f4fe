package sim_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// What a target keeps for ordered reads (decision 62).
const (
	keptOfAll      = 64 << 20
	keptOfPeer     = 4 << 20
	keptOfUnproven = 1 << 20
	keptParts      = 1<<15 - 1
)

// A keptWatch notes the most that host 0 keeps for ordered reads at a time.
type keptWatch struct {
	parts int
	bytes int64
}

func watchKept(w *simtest.World) *keptWatch {
	k := &keptWatch{}
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what != sim.Sent || p.From != w.Hosts[0].Node {
			return
		}
		l := w.Hosts[0].FEP.Load()
		k.parts, k.bytes = max(k.parts, l.ReadParts), max(k.bytes, l.ReadBytes)
	})
	return k
}

// want checks that a bound was met, and no more was kept.
func (k *keptWatch) want(t *testing.T, w *simtest.World, what string, got, bound, slack int64) {
	t.Helper()
	if got > bound || got < bound-slack {
		t.Errorf("%s: %d were kept at most, the bound is %d", what, got, bound)
	}
	if n := w.Hosts[0].FEP.Stats().NacksTx[wire.NackNoSESMsgAvail]; n == 0 {
		t.Errorf("%s: nothing was refused", what)
	}
}

// S-RMA-72, docs/decisions/0062: more peers read by ROD than a target keeps bytes for. What is beyond the bound is refused, and comes
// again when there is room: all reads bring what they are to bring. Meanwhile other messages, and reads by RUD,
// go on.
func TestOrderedReadsBeyondTheBoundOfAll(t *testing.T) {
	for _, c := range []struct {
		name       string
		peers, mtu int
	}{{"bytes", 40, 8192}, {"parts", 20, 1024}} {
		t.Run(c.name, func(t *testing.T) {
			if c.mtu == 1024 {
				oneGoroutine(t)
			}
			const n = 2 << 20
			slow := lan
			slow.Rate, slow.Queue = 5_000_000, 64<<10
			spec := simtest.Spec{Seed: 62, Line: lan, Hosts: make([]simtest.HostSpec, c.peers+2), Light: true}
			for i := range spec.Hosts {
				h := &spec.Hosts[i]
				h.Backlog, h.Memory = true, 8
				h.Config.PayloadMTU, h.Config.ReadWindow = c.mtu, 2*n
			}
			spec.Hosts[0].Memory = n
			w := simtest.NewWorld(t, spec)
			kept := watchKept(w)
			target, other := w.Hosts[0], w.Hosts[c.peers+1]
			var reads []*simtest.Op
			for i := range c.peers {
				w.Line(0, 1+i).SetFaults(slow)
				reads = append(reads, w.Hosts[1+i].Post(ordered(read(0, 0, n))))
			}
			w.RunUntil(10*time.Second, "the bound", func() bool { return target.FEP.Stats().NacksTx[wire.NackNoSESMsgAvail] != 0 })
			for range 3 {
				begin := w.Now()
				target.Post(trecv(100_000))
				others := []*simtest.Op{other.Post(tsend(0, 100_000)), other.Post(read(0, 0, 100_000))}
				w.RunOps(100*ms, others...)
				w.Want("ok", others...)
				if took := w.Now() - begin; took > 20*ms {
					t.Errorf("another peer waits %v", took)
				}
			}
			w.RunOps(time.Minute, reads...)
			w.Want("ok", reads...)
			if c.name == "bytes" {
				kept.want(t, w, "bytes", kept.bytes, keptOfAll, 8192)
			} else {
				kept.want(t, w, "parts", int64(kept.parts), keptParts, 1)
			}
			settle(w)
			if l := target.FEP.Load(); l.ReadBytes != 0 || l.ReadParts != 0 {
				t.Errorf("%d bytes of %d parts are left", l.ReadBytes, l.ReadParts)
			}
		})
	}
}

// A reader of another make asks for as much of a read by ROD as it likes, and acknowledges nothing.
type reader struct {
	w      *simtest.World
	at     netip.AddrPort
	target uint16 // PDCID of the target, 0 until a packet proves that the reader has it
	psn    uint32
}

const readerStart = 1000

func (r *reader) ask(off, n, length uint32) {
	q := wire.ReqStd{Opcode: wire.OpRead, Flags: wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, Match: simtest.MemoryKey, ReqLen: length}
	if off == 0 {
		q.Flags, q.HeaderData = q.Flags|wire.SESSOM, uint64(n)<<32
	} else {
		q.MsgOff, q.PayloadLen = off, uint16(n)
	}
	h := wire.Req{Type: wire.TypeRODReq, Next: wire.NextReqStd, Flags: wire.FlagAR, PSN: wire.PSN(r.psn), SPDCID: 9, DPDCID: r.target, ClearOff: -1}
	if r.target == 0 {
		h.Flags |= wire.FlagSYN
		h.PSNOffset = uint16(r.psn - readerStart)
	}
	r.w.Forge(0, r.at, q.Append(h.Append(nil)), true)
	r.psn++
}

// S-RMA-72, docs/decisions/0062, T1: what one peer gets kept has a bound, and what sources that may be forged get together another one.
// Beyond it they are refused. Others read meanwhile, also one that is new and proves itself; and all is free when
// those have gone.
func TestOrderedReadsBeyondTheBoundOfOne(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources int
		proven  bool
		bound   int64
	}{{"a peer", 1, true, keptOfPeer}, {"a source that may be forged", 1, false, keptOfUnproven}, {"many that may be forged", 4, false, keptOfUnproven}} {
		t.Run(c.name, func(t *testing.T) {
			const n, length = 8192, 8 << 20
			w := pair(t, 62, lan, forged, memory(length))
			kept := watchKept(w)
			pdcs := map[netip.AddrPort]uint16{}
			w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				if a, _, err := wire.ParseAck(p.Data); what == sim.Sent && p.From == w.Hosts[0].Node && err == nil {
					pdcs[p.Dst] = a.SPDCID
				}
			})
			var sources []*reader
			for i := range c.sources {
				sources = append(sources, &reader{w: w, at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 9, byte(i + 1)}), wire.Port), psn: readerStart})
			}
			for k := range uint32(keptOfPeer/n + 100) {
				for _, r := range sources {
					if r.ask(k*n, n, length); c.proven && k == 0 {
						w.Run(ms)
						if r.target = pdcs[r.at]; r.target == 0 {
							t.Fatal("no answer")
						}
					}
				}
				w.Run(20 * us)
			}
			kept.want(t, w, c.name, kept.bytes, c.bound, 0)
			op := w.Hosts[1].Post(ordered(read(0, 0, 1<<20)))
			w.RunOps(time.Second, op)
			w.Want("ok", op)
			if most := c.bound + 1<<20; kept.bytes > most {
				t.Errorf("%d bytes are kept with the read of another peer, the bound is %d", kept.bytes, most)
			}
			w.Run(2 * time.Minute)
			if l := w.Hosts[0].FEP.Load(); l.ReadBytes != 0 || l.ReadParts != 0 {
				t.Errorf("%d bytes of %d parts are left", l.ReadBytes, l.ReadParts)
			}
			settle(w)
		})
	}
}

// R-ORD-01, R-ORD-06: with RAR order a read brings nothing older than a read before it brought, also where the first packet of
// the one before is lost and the program changes the memory meanwhile: the packet that goes again has what was
// there when the read was executed. The oracle of slates compares them.
func TestOrderedReadsInOrder(t *testing.T) {
	const half = 32 << 10 // of a slate, where messages leave their marks
	for _, n := range []int{24, 1000, 5000} {
		w := pair(t, 62, lan, func(s *simtest.Spec) { s.Slates = true })
		a, b := w.Hosts[0], w.Hosts[1]
		slate := func(s simtest.OpSpec) *simtest.Op {
			s.Peer, s.Ordered, s.Slate = 1, true, true
			return a.Post(s)
		}
		first := slate(simtest.OpSpec{Kind: transport.OpRead, Addr: half, Len: n})
		note := slate(simtest.OpSpec{Kind: transport.OpTSend, Class: 200, Len: 100}) // unexpected: it marks nothing yet
		w.RunOps(time.Second, first, note)
		w.Run(10 * ms)
		f, data := lan, 0
		f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
			if h, _, err := wire.ParseReq(p.Data); err != nil || h.Next != wire.NextRspData {
				return sim.Verdict{}
			}
			data++
			return sim.Verdict{Drop: data == 1}
		}
		w.Line(1, 0).SetFaults(f)
		reads := []*simtest.Op{slate(simtest.OpSpec{Kind: transport.OpRead, Addr: half, Len: n}), slate(simtest.OpSpec{Kind: transport.OpRead, Addr: half, Len: n})}
		w.RunUntil(time.Second, "the data of both reads", func() bool { return data >= 2*((n+1023)/1024) })
		b.Post(simtest.OpSpec{Kind: transport.OpTRecv, Peer: 0, Len: half, Class: 200}) // the message comes, and marks the slate
		w.RunOps(time.Second, reads...)
		w.Want("ok", reads...)
		settle(w)
	}
}
