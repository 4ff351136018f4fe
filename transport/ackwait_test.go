package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// TestFEPNoAckWaitsLongerThanAckDelay proves that no ACK waits longer than AckDelay unless
// nothing can be sent, and that there is always a time at which the oldest ACK is due. It
// is a random walk through what lets ACKs leave or wait: replies, other peers, other PDCs
// of the same peer, trains without room, losses, Apart and Flush.
func TestFEPNoAckWaitsLongerThanAckDelay(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"plain":    func(*Config) {},
		"trimming": trimming,
		"secured":  secured(t, nil),
		"short":    func(c *Config) { c.ShortMessage = 64; c.Lanes = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				w := &ackWalk{
					star: newStar(t, 3, change), rng: rand.New(rand.NewPCG(seed, 1)), since: map[*FEP]map[uint32]time.Duration{},
				}
				w.all = append([]*FEP{w.hub}, w.leaf...)
				for range 2000 {
					w.step()
					if w.check(); t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
				if w.waited == 0 {
					t.Error("no ACK ever waited")
				}
			}
		})
	}
}

type ackWalk struct {
	*star
	all    []*FEP
	rng    *rand.Rand
	since  map[*FEP]map[uint32]time.Duration // by Slot: since when the PDC owes an ACK
	waited int
}

func (w *ackWalk) step() {
	f := w.all[w.rng.IntN(len(w.all))]
	switch w.rng.IntN(8) {
	case 0, 1:
		other := w.hub
		if f == w.hub {
			other = w.leaf[w.rng.IntN(len(w.leaf))]
		}
		to, err := f.Peer(other.cfg.Local, true)
		if err != nil {
			w.t.Fatal(err)
		}
		n := []int{0, 8, 100, 5000, 200_000}[w.rng.IntN(5)]
		_ = f.Post(w.now, &Op{Kind: OpSend, Peer: to, RI: 15, Buf: make([]byte, n), Ordered: w.rng.IntN(3) == 0})
	case 2:
		_ = f.Post(w.now, &Op{Kind: OpRecv, Buf: make([]byte, 200_000)})
	case 3, 4:
		w.send(f)
	case 5:
		f.Apart(w.rng.IntN(2) == 0)
	case 6:
		if w.rng.IntN(4) == 0 {
			f.Flush(w.now)
		}
	case 7:
		w.now += time.Duration(w.rng.IntN(8)) * time.Microsecond
		for _, f := range w.all {
			for f.NextEvent() != nil {
			}
			if at := f.NextTimeout(); at != 0 && at <= w.now {
				f.Advance(w.now)
			}
			for f.todo.flush && w.send(f) {
			}
		}
	}
}

// send carries one train and loses some of its packets.
func (w *ackWalk) send(f *FEP) bool {
	if !f.Transmit(w.now, &w.d) {
		return false
	}
	w.check() // before f owes another ACK
	to := w.at[w.d.Remote]
	for rest := w.d.Data; len(rest) > 0; {
		var b []byte
		b, rest = w.d.Next(rest)
		if w.rng.IntN(10) > 0 {
			to.Receive(w.now, &dgram.Datagram{Data: b, Remote: f.cfg.Local, TOS: w.d.TOS})
		}
	}
	return true
}

func (w *ackWalk) check() {
	w.t.Helper()
	for i, f := range w.all {
		if w.since[f] == nil {
			w.since[f] = map[uint32]time.Duration{}
		}
		for slot := range f.lanes {
			ln, slot := &f.lanes[slot], uint32(slot)
			if ln.pdc == nil || !ln.pdc.AckOwed() {
				delete(w.since[f], slot)
				continue
			}
			since, ok := w.since[f][slot]
			if !ok {
				since = w.now
				w.since[f][slot] = since
			}
			if f.todo.flush {
				continue
			}
			w.waited++
			if due := since + f.cfg.AckDelay; f.todo.ackAt == 0 || f.todo.ackAt > due {
				w.t.Errorf("FEP %d: an ACK due at %v leaves at %v", i, due, f.todo.ackAt)
			}
		}
	}
}
