package simtest

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Writes. Each host has a board on which others write. It is the same memory in each life. No two writes
// of a scenario are for the same bytes, so each byte is the one of its write, or was never written. What
// is to be durable is copied to the disk of the host some time after it is asked for, or the disk fails.

const (
	boardKey  = 79 // of the board of each host
	boardSize = 1 << 20
	blank     = 0x5b // what was never written
)

// pin registers the board of a new life.
func (h *Host) pin(f *transport.FEP) {
	if !h.spec.Board {
		return
	}
	if h.board == nil {
		h.board = make([]byte, cmp.Or(h.spec.BoardSize, boardSize))
		set(h.board, blank)
		h.disk = make([]byte, len(h.board))
	}
	for _, key := range [...]uint64{boardKey, boardKey | wire.MKeyIdempotent, boardKey | wire.MKeyOptimized, boardKey | wire.MKeyOptimized | wire.MKeyIdempotent} {
		h.register(f, transport.RegionConfig{Key: key, Buf: h.board, Access: transport.RemoteWrite, Persistent: true})
	}
}

// writes reports whether the operation writes on the board of the peer.
func (s *OpSpec) writes() bool { return s.Kind == transport.OpWrite }

// slowest is the longest that a disk takes.
const slowest = 20 * time.Millisecond

// persist makes what an event names durable.
func (h *Host) persist(e transport.Event) {
	w, life, fep := h.w, h.Life(), h.FEP
	w.Net.After(time.Duration(h.rng.Int64N(int64(slowest))), func() {
		if h.Life() != life || !h.Up() || h.FEP != fep {
			return
		}
		rc := wire.RCOK
		if h.rng.IntN(20) == 0 {
			rc = wire.RCUncor
		} else {
			copy(h.disk[e.Tag:][:e.Len], h.board[e.Tag:][:e.Len])
		}
		w.did.Commits++
		w.progress = w.Net.Now()
		fep.Committed(e.Data, rc)
		h.Node.Kick(0)
	})
}

// onBoard is the place of a write.
func (w *World) onBoard(o *Op) []byte { return w.Hosts[o.Peer].board[o.Addr:][:o.Len] }

// writeEnded checks the end of a write. If it succeeded all of its bytes are there (R-CMPL-05).
func (w *World) writeEnded(o *Op) {
	e := &o.Event
	switch {
	case e.Cause == transport.OK && o.cancel:
		w.Failf("%s: %v is there though it was cancelled", o.Host.Name(), o)
	case e.Cause == transport.OK && o.Slate: // later ones may have written over it
	case e.Cause == transport.OK:
		if err := checkPattern(w.onBoard(o), o.ID, 0); err != nil && !o.early() {
			w.Failf("%s: %v succeeds, and is not there: %v", o.Host.Name(), o, err)
		}
	case e.Cause == transport.Cancelled:
		w.wanted(o)
	case e.Cause == transport.Rejected && e.RC == wire.RCUncor && o.Level == transport.LevelCommit: // the disk
	case !w.mayFail(o):
		w.Failf("%s: %v writes nothing: %v%s", o.Host.Name(), o, e.Cause, unknown(*e))
	}
	if e.Cause == transport.OK && o.Level == transport.LevelCommit {
		if err := checkPattern(w.Hosts[o.Peer].disk[o.Addr:][:o.Len], o.ID, 0); err != nil { // R-CMPL-13
			w.Failf("%s: %v succeeds, and is not durable: %v", o.Host.Name(), o, err)
		}
	}
	w.guarded(o, o.whole)
	set(o.buf, spent)
}

// written checks the word at the target of a write with remote CQ data: it comes once in a life, when
// all bytes are there (R-TGT-01).
func (h *Host) written(e transport.Event) {
	w, o := h.w, h.w.op(uint32(e.Data))
	durable := e.Kind == transport.OpCommitted
	if durable && e.Cause == transport.Rejected && (e.RC == wire.RCUncor || h.removed && e.RC == wire.RCBadMKey) {
		return // the disk, or Unregister
	}
	switch {
	case o == nil || !o.writes() || !o.HasData || o.Peer != h.Index || e.Len != o.Len || e.Cause != transport.OK:
		w.Failf("%s: word of a write of %d bytes with data %#x, which nobody posted", h.Name(), e.Len, e.Data)
	case o.toldIn == h.Life():
		w.Failf("%s: second word of %v", h.Name(), o)
	case durable != (o.Level == transport.LevelCommit && o.Len != 0):
		w.Failf("%s: word of %v, which is durable: %v", h.Name(), o, durable) // R-TGT-10
	}
	if durable {
		if err := checkPattern(h.disk[o.Addr:][:o.Len], o.ID, 0); err != nil {
			w.Failf("%s: word of %v, which is not durable: %v", h.Name(), o, err)
		}
	}
	if err := checkPattern(w.onBoard(o), o.ID, 0); err != nil {
		w.Failf("%s: word of %v, which is not there: %v", h.Name(), o, err)
	}
	o.toldIn = h.Life()
	w.progress = w.Net.Now()
}

// auditBoards checks that each byte of a board is blank, or that of the write that is for it, and that
// who succeeded was told of.
func (w *World) auditBoards() {
	if w.spec.Forged && !w.spec.Liar {
		return
	}
	owner := map[*Host][]*Op{}
	for _, o := range w.ops {
		if o.writes() && o.postSeq != 0 && !o.Slate {
			owner[w.Hosts[o.Peer]] = append(owner[w.Hosts[o.Peer]], o)
		}
		if o.writes() && o.OK() && o.HasData && o.toldIn == 0 && !o.early() && !w.targetEnded(o) {
			w.Failf("%s: no word of %v", w.Hosts[o.Peer].Name(), o)
		}
	}
	for _, h := range w.Hosts {
		h.asKept()
		if h.board == nil {
			continue
		}
		free := make([]bool, len(h.board)) // bytes that some write may have changed
		for _, o := range owner[h] {
			want := make([]byte, o.Len)
			fillPattern(want, o.ID, 0)
			for i, b := range w.onBoard(o) {
				if free[o.Addr+i] = true; b != want[i] && (b != blank || o.OK() && !o.early()) {
					w.Failf("%s: byte %d of %v is %#x, and should be %#x", h.Name(), i, o, b, want[i])
				}
			}
		}
		for i, b := range h.board {
			if !free[i] && b != blank {
				w.Failf("%s: byte %d of the board was written by nobody", h.Name(), i)
			}
		}
	}
}

// boards adds writes to a third of the scenarios. It draws from random numbers of its own.
func (g *generator) boards(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x626f617264))
	if rng.IntN(3) != 0 {
		return
	}
	next := make([]int, n)
	for i := range sc.Spec.Hosts {
		sc.Spec.Hosts[i].Board = true
	}
	rod := []float64{0, 0.2, 0.5, 1}[rng.IntN(4)]
	budget := 1 << 20
	for range 1 + rng.IntN(60) {
		from := rng.IntN(n)
		s := OpSpec{Kind: transport.OpWrite, Peer: (from + 1 + rng.IntN(n-1)) % n, Ordered: rng.Float64() < rod, HasData: rng.IntN(3) == 0}
		s.Len = drawLen(rng, &budget)
		s.Addr = next[s.Peer] + rng.IntN(64)
		if next[s.Peer] = s.Addr + s.Len; next[s.Peer] > boardSize {
			break
		}
		s.Level = []transport.Level{transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery}[rng.IntN(3)]
		if s.Level == transport.LevelDelivery && s.Len%2 == 0 {
			s.Level = transport.LevelCommit // without a draw, so that seeds keep the rest of their scenarios
		}
		if rng.IntN(5) == 0 {
			s.Pieces = 1 + rng.IntN(4)
		}
		s.Inject = rng.IntN(10) == 0 && s.Len <= 4096
		at := time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64())
		id := g.add(Step{At: at, Host: from, Kind: "post", Op: s})
		if rng.IntN(20) == 0 {
			g.add(Step{At: at + time.Duration(rng.IntN(int(time.Millisecond))), Host: from, Kind: "cancel", Of: id})
		}
	}
}

// Written returns how many bytes of the board of a host are not blank any more.
func (w *World) Written(host int) (n int) {
	for _, b := range w.Hosts[host].board {
		if b != blank {
			n++
		}
	}
	return n
}
