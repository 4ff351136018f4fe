package mp

import (
	"context"
	"errors"
	"testing"
	"time"
)

// FuzzControl gives a world control messages of strangers: none makes it panic, and the living
// stay as they are if the message is none.
func FuzzControl(f *testing.F) {
	w := &World{rank: 0, size: 3, peers: make([]peer, 3), comms: map[uint32]*Comm{}, begun: time.Now()}
	w.world = w.newComm(0, nil, 0)
	f.Add(appendDead(nil, 2, "host", "why"))
	f.Add(appendDead(nil, 0, "", ""))
	f.Add(w.world.brokenBy(&ErrMismatch{CallSite{Rank: 1}, CallSite{Rank: 2, Kind: KindScan, Type: "int8"}}))
	f.Add(w.world.brokenBy(&ErrLeft{At: CallSite{Rank: 2}, Why: "so"}))
	f.Add(w.world.brokenBy(&ErrPeerFailed{Rank: 2, Host: "h", Why: "w"}))
	f.Add(append(w.world.control(ctlLate), make([]byte, headLen)...))
	f.Add(append(w.world.control(ctlUnlike), make([]byte, unlikeLen)...))
	f.Fuzz(func(t *testing.T, m []byte) {
		w := &World{rank: 0, size: 3, peers: make([]peer, 3), comms: map[uint32]*Comm{}, begun: time.Now()}
		w.ex = nobody{}
		w.world = w.newComm(0, nil, 0)
		w.heard(m)
		for i := range w.peers {
			if f := w.peers[i].failed.Load(); f != nil && (f.Rank != i || i == w.rank) {
				t.Errorf("rank %d: %v", i, f)
			}
		}
		if e := w.world.broken.Load(); e != nil && (*e).Error() == "" {
			t.Error("broken without a reason")
		}
	})
}

// nobody is an exchange without cards.
type nobody struct{ Exchange }

func (nobody) Card(context.Context, int) ([]byte, error) { return nil, errors.New("no card") }
