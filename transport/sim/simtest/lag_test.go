package simtest

import (
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/sim"
	"github.com/uetkit/uetkit/transport/wire"
)

// talkWith has two hosts talk for that many rounds, with a bug planted.
func talkWith(rounds int, plant func(w *World)) (w *World, v *Violation) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if v, ok = p.(*Violation); !ok {
				panic(p)
			}
		}
	}()
	w = NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), Link: sim.Faults{Delay: 2 * time.Microsecond}})
	plant(w)
	s := Step{Op: OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64}, Talk: Talk{Rounds: rounds, Ready: 2}}
	w.begin(&s, nil)
	w.Run(20 * time.Millisecond)
	if n := w.talks[0].next; n != rounds {
		w.Failf("%d of %d rounds", n, rounds)
	}
	w.Settle(time.Second)
	return w, nil
}

func TestConversationComesToLag(t *testing.T) {
	w, v := talkWith(600, func(*World) {})
	if v != nil {
		t.Fatalf("%v\n%s", v, v.Tail)
	}
	if w.lagRow != lagMost || w.lagged < 250 {
		t.Errorf("%d messages asked for no ACK, %d in a row", w.lagged, w.lagRow)
	}
}

func TestMessagesThatAskForNothingAreFound(t *testing.T) {
	// silent takes AR from what a host sends from its nth packet of data on.
	silent := func(w *World, from, nth int) {
		n := 0
		w.Hosts[from].mangle = each(w, from, classData, func(b []byte, r *reading) {
			if n++; n > nth && !r.syn {
				b[1] &^= byte(wire.FlagAR)
			}
		})
	}
	for _, c := range []struct {
		name, want string
		rounds     int
		plant      func(w *World)
	}{
		{"nobody asks", "leaves PSN", 6, func(w *World) { silent(w, 0, 2) }},
		{"too many lag", "though too many did", 600, func(w *World) { silent(w, 0, 250) }},
		{"delivery lags", "though delivery is waited for", 6, func(w *World) {
			w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) {
				if !r.syn {
					b[1] &^= byte(wire.FlagAR)
				}
			})
			w.Net.At(sim.Start+1, func() {
				w.talks[0].step.Op.Level = transport.LevelDelivery
			})
		}},
		{"something is missing", "though something is missing", 600, func(w *World) {
			w.Net.At(sim.Start+time.Millisecond, func() {
				d := w.Hosts[0].talks[1].lag
				d.newAt = w.Now() + time.Hour // as if what is sent later had its answer
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, v := talkWith(c.rounds, c.plant); v == nil || !strings.Contains(v.What, c.want) {
				t.Errorf("found: %v", v)
			}
		})
	}
}

func TestMessageThatAnswersNothingIsFound(t *testing.T) {
	v := runPlanted(func(w *World) {
		w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) {
			if r.som && r.eom && !r.syn && !r.rod {
				b[1] &^= byte(wire.FlagAR)
			}
		})
		w.Net.At(sim.Start+5*time.Millisecond, func() {
			for range 2 {
				w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
			}
		})
	})
	if v == nil || !strings.Contains(v.What, "it answers nothing") {
		t.Errorf("found: %v", v)
	}
}

func TestPassedFenceIsFound(t *testing.T) {
	hosts := make([]HostSpec, 2)
	hosts[0].Lazy = 1
	v := runOn(hosts, func(w *World) {
		a := w.Hosts[0]
		w.Net.At(sim.Start+5*time.Millisecond, func() {
			a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
			a.fences = append(a.fences, a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64}))
		})
	})
	if v == nil || !strings.Contains(v.What, "by the fence of") {
		t.Errorf("found: %v", v)
	}
}
