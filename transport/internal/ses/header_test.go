package ses

import (
	"runtime"
	"testing"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/wire"
)

// What is kept of an unexpected message beside its payload takes at most 128 bytes, measured with its part of all
// lists and tables: of an empty message, a deferred one, and one that is announced. So it does when they were received
// and as many come again.
func TestUnexpectedHeaderMemory(t *testing.T) {
	if invariant.On {
		t.Skip("the race detector has its own memory")
	}
	for _, c := range []struct {
		name   string
		opcode wire.Opcode
	}{
		{"untagged", wire.OpSend}, {"tagged", wire.OpTaggedSend}, {"deferred", wire.OpDeferrableTSend}, {"announced", wire.OpRendezvousTSend},
	} {
		t.Run(c.name, func(t *testing.T) {
			const n, most = 100_000, 128
			g := newRig(t, func(cfg *Config) {
				cfg.UnexpectedBytes, cfg.UnexpectedMsgs, cfg.UnexpectedShare = 1<<30, 1<<20, 1
				if c.opcode == wire.OpDeferrableTSend {
					cfg.UnexpectedBytes = 1 // no room
				}
			})
			was := heapInUse()
			for round := range 2 {
				for i := range n {
					pkt := g.req(func(r *wire.ReqStd) {
						r.Opcode, r.MsgID, r.ReqLen, r.Match = c.opcode, uint16(i), 0, uint64(i)
						r.Flags |= single
						switch c.opcode {
						case wire.OpDeferrableTSend:
							r.ReqLen = 8
							r.SetRestartTokens(uint32(round*n+i+1), 0)
						case wire.OpRendezvousTSend:
							r.ReqLen = 1 << 20
						}
					})
					src := Source{Peer: 1 + uint32(i%4), PDC: 1 + uint32(i>>15)}
					switch c.opcode {
					case wire.OpDeferrableTSend:
						pkt = append(pkt, make([]byte, 8)...)
					case wire.OpRendezvousTSend:
						pkt = wire.Rendezvous{ReadMatch: uint64(i)}.Append(pkt)
					}
					if r := g.deliver(src, pkt); r.Nack != 0 {
						t.Fatalf("message %d is refused: %v", i, r.Nack)
					}
				}
				if g.kept != n {
					t.Fatalf("%d are kept", g.kept)
				}
				each := float64(int64(heapInUse())-int64(was)) / float64(n)
				t.Logf("%d messages take %.1f bytes each", n, each)
				if each > most {
					t.Errorf("%d messages take %.1f bytes each, more than %d", n, each, most)
				}
				for pdc := range uint32(n>>15 + 1) {
					g.PDCGone(1+pdc, Unreachable)
				}
				for i := 0; c.opcode == wire.OpSend && i < n || c.opcode == wire.OpTaggedSend && i < n; i++ {
					g.recv(Recv{Tagged: c.opcode == wire.OpTaggedSend, Tag: uint64(i)})
					g.event()
				}
				if g.kept != 0 {
					t.Fatalf("%d are left", g.kept)
				}
			}
			runtime.KeepAlive(g)
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// What a peer offers again and again under one key makes no long chain in which others are looked for, and
// the latest is found.
func TestOffersOfOneMemory(t *testing.T) {
	const n = 5000
	g := newRig(t, func(cfg *Config) { cfg.UnexpectedMsgs, cfg.UnexpectedShare = 1<<20, 1 })
	for i := range n {
		pkt := g.req(func(r *wire.ReqStd) {
			r.Opcode, r.MsgID, r.ReqLen, r.Match = wire.OpRendezvousTSend, uint16(i), 1<<20, uint64(i)
			r.Flags |= single
		})
		if r := g.deliver(Source{Peer: 1, PDC: 1}, wire.Rendezvous{ReadMatch: 7}.Append(pkt)); r.Nack != 0 {
			t.Fatalf("message %d is refused: %v", i, r.Nack)
		}
	}
	longest := 0
	for b := range uint32(len(g.named.heads)) {
		k := 0
		for i := g.named.first(b); i != none; i = g.named.next(i) {
			k++
		}
		longest = max(longest, k)
	}
	if longest > 30 {
		t.Errorf("%d of %d offers are in one chain", longest, n)
	}
	if _, m := g.lent(lentKey{1, 7}); m == nil || m.tag != n-1 {
		t.Errorf("found %+v, want the latest", m)
	}
}

func TestOneIdMakesNoLongChain(t *testing.T) {
	// An id of a PDC may come to mean a deferred message and one that is announced in turns: none of them is in the way
	// of the others.
	const n = 4000
	g := newRig(t, func(cfg *Config) { cfg.UnexpectedMsgs, cfg.UnexpectedShare = 1<<20, 1 })
	for i := range n {
		announced := i%2 == 1
		pkt := g.req(func(r *wire.ReqStd) {
			r.Opcode, r.MsgID, r.ReqLen, r.Match = wire.OpDeferrableTSend, 5, 8, uint64(i)
			r.Flags |= single
			if announced {
				r.Opcode, r.ReqLen = wire.OpRendezvousTSend, 1<<20
			} else {
				r.Flags |= wire.SESDC
				r.SetRestartTokens(uint32(i+1), 0)
			}
		})
		if announced {
			pkt = wire.Rendezvous{ReadMatch: uint64(i)}.Append(pkt)
		} else {
			pkt = append(pkt, make([]byte, 8)...)
		}
		if r := g.deliver(Source{Peer: 1, PDC: 1}, pkt); r.Nack != 0 || r.Rsp.RC != wire.RCOK {
			t.Fatalf("message %d: %+v", i, r)
		}
	}
	for b := range uint32(len(g.deferrals.heads)) {
		k := 0
		for i := g.deferrals.first(b); i != none; i = g.deferrals.next(i) {
			k++
		}
		if k > 40 {
			t.Errorf("%d of %d headers are in one chain", k, g.deferrals.n)
		}
	}
}
