package rudi

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
)

const ms = time.Millisecond

func table() *Table {
	return New(Config{RTOInit: 5 * ms, RTOMax: 500 * ms, PeerTimeout: 10 * time.Second, FirstID: 1<<32 - 3})
}

func msg(n uint32) piece.Piece { return piece.Piece{Msg: n, Kind: piece.Last} }

func TestAnsweredOnce(t *testing.T) {
	r := table()
	a, b := r.Push(ms, 1, msg(10)), r.Push(ms, 2, msg(20))
	if a == b || r.Outstanding(1) != 1 {
		t.Fatalf("ids %d and %d", a, b)
	}
	if _, ok := r.Answered(2*ms, 2, a); ok {
		t.Error("the answer of another peer counts")
	}
	if p, ok := r.Answered(2*ms, 1, a); !ok || p.Msg != 10 {
		t.Errorf("%v %v", p, ok)
	}
	if _, ok := r.Answered(2*ms, 1, a); ok {
		t.Error("an answer counts twice")
	}
	if r.Foreign != 2 || r.Outstanding(1) != 0 || r.Outstanding(2) != 1 {
		t.Errorf("%d foreign, %d and %d outstanding", r.Foreign, r.Outstanding(1), r.Outstanding(2))
	}
}

func TestLatePacketsAreSentAgain(t *testing.T) {
	// S-RUDI-53: the pauses double up to RTOMax; a peer that is silent for PeerTimeout fails them all.
	r := table()
	id := r.Push(ms, 1, msg(1))
	var gaps []time.Duration
	last, now := ms, ms
	for {
		if now = r.NextTimeout(); now <= last {
			t.Fatalf("after %v the next time is %v", last, now)
		}
		r.Advance(now)
		if p, ok := r.NextFailed(); ok {
			if p.Msg != 1 || now != ms+10*time.Second {
				t.Errorf("piece %v failed after %v", p, now)
			}
			break
		}
		for pkt, p, ok := r.Lost(1); ok; pkt, p, ok = r.Lost(1) {
			if pkt != id || p.Msg != 1 {
				t.Fatalf("packet %d with %v", pkt, p)
			}
			r.Resend(now, 1, pkt)
			gaps, last = append(gaps, now-last), now
		}
	}
	want := []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 500 * ms, 500 * ms}
	for i, w := range want {
		if gaps[i] != w {
			t.Errorf("pauses %v, want %v", gaps, want)
			break
		}
	}
	if r.NextTimeout() != 0 || r.Outstanding(1) != 0 || len(gaps) > 30 {
		t.Errorf("timeout %v, %d outstanding, %d resends", r.NextTimeout(), r.Outstanding(1), len(gaps))
	}
}

func TestWindow(t *testing.T) {
	// S-RUDI-53: it begins with 16, grows with answers to 64, and halves once per round trip of losses.
	r := table()
	now, n := time.Duration(ms), uint32(0)
	var out []uint32
	fill := func() int {
		for r.Room(1) {
			n++
			out = append(out, r.Push(now, 1, msg(n)))
		}
		return len(out)
	}
	if fill() != firstWindow {
		t.Fatalf("%d packets at first", len(out))
	}
	for range 4000 {
		now += 10 * time.Microsecond
		r.Answered(now, 1, out[0])
		out = out[1:]
		fill()
	}
	if len(out) != 64 {
		t.Errorf("%d packets after many answers", len(out))
	}
	now += 5 * ms
	r.Advance(now)
	if r.peers[1].window != 32 {
		t.Errorf("window %d after a loss", r.peers[1].window)
	}
	for range 20 {
		now += time.Second / 2
		r.Advance(now)
		for pkt, _, ok := r.Lost(1); ok; pkt, _, ok = r.Lost(1) {
			r.Resend(now, 1, pkt)
		}
	}
	if r.peers[1] != nil && r.peers[1].window < leastWindow {
		t.Errorf("window %d", r.peers[1].window)
	}
}

func TestRefusedGoesAgainOnce(t *testing.T) {
	r := table()
	id := r.Push(ms, 1, msg(1))
	r.Refused(2*ms, 1, id)
	pkt, _, ok := r.Lost(1)
	if !ok || pkt != id {
		t.Fatal("it is not sent again")
	}
	r.Resend(2*ms, 1, pkt)
	r.Refused(3*ms, 1, id)
	if _, _, ok := r.Lost(1); ok {
		t.Error("NACKs make a storm")
	}
}

func TestEveryPieceEndsOnce(t *testing.T) {
	// Answers that are lost, late and repeated: each piece is answered or fails, exactly once.
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := table()
		now, ended, pushed := time.Duration(ms), map[uint32]int{}, uint32(0)
		type answer struct {
			at      time.Duration
			id, pkt uint32
		}
		var wire []answer
		send := func(id, pkt uint32) {
			for rng.IntN(3) > 0 { // none, or some
				wire = append(wire, answer{now + time.Duration(rng.IntN(20))*ms, id, pkt})
			}
		}
		for now < 60*time.Second && (pushed < 300 || len(r.busy) > 0) {
			now += time.Duration(1+rng.IntN(3000)) * time.Microsecond
			for id := uint32(1); id <= 3; id++ {
				if pushed < 300 && r.Room(id) && rng.IntN(2) == 0 {
					pushed++
					send(id, r.Push(now, id, msg(pushed)))
				}
				for pkt, _, ok := r.Lost(id); ok; pkt, _, ok = r.Lost(id) {
					r.Resend(now, id, pkt)
					send(id, pkt)
				}
			}
			keep := wire[:0]
			for _, a := range wire {
				switch {
				case a.at > now:
					keep = append(keep, a)
				case rng.IntN(8) == 0:
					r.Refused(now, a.id, a.pkt)
				default:
					if p, ok := r.Answered(now, a.id, a.pkt); ok {
						ended[p.Msg]++
					}
				}
			}
			wire = keep
			r.Advance(now)
			for p, ok := r.NextFailed(); ok; p, ok = r.NextFailed() {
				ended[p.Msg]++
			}
			if rng.IntN(400) == 0 {
				r.Fail(uint32(1 + rng.IntN(3)))
			}
		}
		for p, ok := r.NextFailed(); ok; p, ok = r.NextFailed() {
			ended[p.Msg]++
		}
		for m := uint32(1); m <= pushed; m++ {
			if ended[m] != 1 {
				t.Fatalf("seed %d: piece %d of %d ended %d times", seed, m, pushed, ended[m])
			}
		}
	}
}
