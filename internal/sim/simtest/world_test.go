package simtest

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

func TestDoubleRunDiffers(t *testing.T) {
	// The hash shows a change of one completion and of one bit on the wire.
	run := func(plant func(*World)) uint64 {
		w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), Line: sim.Faults{Delay: 50 * time.Microsecond}, Forged: true, Hostile: true, MayFail: true})
		plant(w)
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000})
		w.Run(time.Second)
		return w.Hash()
	}
	clean := run(func(*World) {})
	if again := run(func(*World) {}); again != clean {
		t.Error("two runs differ")
	}
	if h := run(func(w *World) {
		lie(w.Hosts[0]).leaves = func(d *dgram.Datagram) { d.Data[len(d.Data)-1] ^= 1 }
	}); h == clean {
		t.Error("a bit on the wire makes no difference")
	}
	if h := run(func(w *World) {
		lie(w.Hosts[1]).told = func(e transport.Event) []transport.Event { e.Len++; return []transport.Event{e} }
	}); h == clean {
		t.Error("a completion makes no difference")
	}
}

func TestShrinkKeepsTheFailure(t *testing.T) {
	// A scenario that fails because of one step shrinks to that step.
	v := Variant{Seed: 3}
	sc := v.Scenario()
	bad := sc.Steps[len(sc.Steps)/2].N
	run := func(v Variant) error {
		for _, s := range v.Scenario().Steps {
			if s.N == bad {
				return &Violation{What: "planted"}
			}
		}
		return nil
	}
	small := shrink(v, run, func() bool { return false })
	if len(small.Keep) != 1 || small.Keep[0] != bad {
		t.Errorf("shrunk to steps %v, want %d", small.Keep, bad)
	}
	if len(small.Without) < len(kinds)-4 {
		t.Errorf("left out only %v", small.Without)
	}
}

// Receives of messages too short to carry their number are given to those that still need one:
// that a receive may have got either must not hide that one is missing.
func TestReceivesOfTwinsGoToWhoNeedsThem(t *testing.T) {
	w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2)})
	send := func(cause transport.Cause, unknown bool) *Op {
		o := w.newOp(w.Hosts[0], OpSpec{Kind: transport.OpSend, Peer: 1, Len: 3, Level: transport.LevelDelivery})
		o.HasData, o.Life = false, 1
		o.postSeq, o.Ended, o.EndedAt = 1, true, 2
		o.Event.Cause, o.Event.Unknown = cause, unknown
		o.delivery(1).allAt = 1
		return o
	}
	lost := send(transport.Aborted, true) // a restarted target answered it with NACK 0E
	recv := func() *Op {
		o := w.newOp(w.Hosts[1], OpSpec{Kind: transport.OpRecv, Peer: Any})
		o.Life, o.Event.OverLen, o.from, o.Event.Initiator = 1, 3, w.Hosts[0].Addr(), lost.name().Initiator
		if o.match = w.place(o, map[*Op]bool{}); o.match == nil {
			t.Fatal("a receive found no message")
		}
		return o
	}
	first, second := send(transport.OK, false), send(transport.OK, false)
	recv()
	r := recv()
	if !lost.Delivered() || !first.Delivered() || second.Delivered() {
		t.Fatal("receives are not given in post order: the test does not test")
	}
	if w.missing(second) || w.missing(first) || lost.Delivered() {
		t.Error("a message is missing although as many receives ended as have to")
	}
	d := r.match.delivery(1)
	r.match, d.receive = nil, nil
	if !w.missing(first) && !w.missing(second) {
		t.Error("one of two messages was not received, and nothing is missing")
	}
}
