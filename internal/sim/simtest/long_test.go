package simtest

import (
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// longWorld sends count messages, two at a time.
func longWorld(count, size int, plant func(w *World)) (w *World, v *Violation) {
	v = caught(func() { w = playLong(count, size, plant) })
	return w, v
}

func playLong(count, size int, plant func(w *World)) *World {
	w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), Line: sim.Faults{Delay: 10 * time.Microsecond, InOrder: true}, Light: true, Long: true})
	if plant != nil {
		plant(w)
	}
	a, b := w.Hosts[0], w.Hosts[1]
	sent, got := 0, 0
	send := func() {
		if sent < count {
			sent++
			a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: size, Note: sent})
		}
	}
	recv := func() { b.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, Len: size, AnyClass: true}) }
	a.OnEvent(func(*Op) { send() })
	b.OnEvent(func(o *Op) {
		got++
		if o.Got().Note == nil {
			w.Failf("%v got a message without its note", o)
		}
		recv()
	})
	for range 4 {
		recv()
	}
	send()
	send()
	w.RunUntil(time.Minute, "the end", func() bool { return got == count })
	b.OnEvent(nil)
	w.Settle(time.Second)
	return w
}

func TestLongRunForgets(t *testing.T) {
	if invariant.On {
		t.Skip("it has one goroutine, and takes a minute under the race detector")
	}
	// A Long run has more packets than it remembers, in few buffers.
	w, v := longWorld(2*recordsKept/64+1000, 64<<10, nil)
	if v != nil {
		t.Fatalf("%v\n%s", v, v.Tail)
	}
	if w.Packets() < 2*recordsKept || len(w.ledger.records) > 2*recordsKept {
		t.Errorf("%d packets, %d records", w.Packets(), len(w.ledger.records))
	}
	n := 0
	for _, l := range w.spare {
		n += len(l)
	}
	if n == 0 || n > 2*sparesLeft+4 {
		t.Errorf("%d buffers for all messages", n)
	}
}

// A write to a buffer after its operation's end is found when the buffer is used again, or at
// the end.
func TestLongRunFindsLateWrites(t *testing.T) {
	for _, at := range []time.Duration{time.Millisecond, 10 * time.Second} {
		_, v := longWorld(200, 5000, func(w *World) {
			w.Net.At(sim.Start+at, func() {
				for _, l := range w.spare {
					for _, s := range l {
						s.whole[guardLen+17] ^= 1
					}
				}
			})
		})
		if v == nil || !strings.Contains(v.What, "byte 17 of the buffer") {
			t.Errorf("a write %v after the start: %v", at, v)
		}
	}
}
