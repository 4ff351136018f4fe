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

// What is left may take as long as a target grants credit for it, or reads it from where it lies.
func TestWhatIsLeftTakesItsTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		delay  time.Duration
		change func(*transport.Config)
		len    int
	}{
		{"a slow line", 50 * time.Microsecond, func(c *transport.Config) { c.Congestion, c.LineRate = transport.RCCC, 100_000 }, 600_000},
		{"a small window of reads", 16 * time.Millisecond, func(c *transport.Config) { c.RendezvousMin, c.PayloadMTU, c.ReadWindow = 1000, 1024, 2892 }, 100_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2), Line: sim.Faults{Delay: c.delay}}
			for i := range spec.Hosts {
				spec.Hosts[i].Memory = 1
				c.change(&spec.Hosts[i].Config)
			}
			w := NewWorld(t, spec)
			w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: c.len})
			from := w.Net.Now()
			w.Settle(100 * time.Millisecond)
			t.Logf("%v, %v in all", w.ops[0].EndedAt-from, w.Net.Now()-from)
		})
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

// A message that is too short to carry its number keeps its message id when its PDC begins anew
// because a target refused it. It is not taken for the next one that looks the same.
func TestShortMessageOfARefusedPDCIsItself(t *testing.T) {
	w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2)})
	a, l := w.Hosts[0], w.ledger
	send := func() *Op {
		o := w.newOp(a, OpSpec{Kind: transport.OpSend, Peer: 1, Ordered: true})
		o.HasData, o.Life, o.postSeq = false, 1, 1
		a.sends = append(a.sends, o)
		return o
	}
	first, second := send(), send()
	as := func(d *dir, id uint16) *Op {
		to := first.aim()
		r := record{from: a, reading: reading{class: classData, opcode: opSend, rod: true, som: true, eom: true, msgID: id, initiator: first.name().Initiator, pid: to.PIDonFEP, ri: to.RI}}
		o := l.opOf(&r, d, &sentPSN{})
		o.txPieces++
		return o
	}
	old := l.open(dirKey{0, 1}, a, w.Hosts[1], 1000, true, false)
	if as(old, 7) != first {
		t.Fatal("the oldest message is not the first: the test does not test")
	}
	a.refused = 1 // NACK 15
	anew := l.open(dirKey{0, 2}, a, w.Hosts[1], 1<<20, true, false)
	if as(anew, 7) != first || as(anew, 8) != second {
		t.Error("messages that look the same are confused when their PDC begins anew")
	}
}

// In clear, nobody can tell two lives of a target apart that drew the same PDCID for the same PDC
// (T22): what came from the one counts for the other. Where lives draw other numbers it does not.
func TestTwinLivesOfATarget(t *testing.T) {
	for _, same := range []bool{true, false} {
		w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), SameRandom: same})
		a, b, l, key := w.Hosts[0], w.Hosts[1], w.ledger, dirKey{0, 9}
		return2 := func() *dir {
			d := l.open(key, a, b, 1000, false, false)
			d.sent = make([]sentPSN, 2)
			return d
		}
		old := return2()
		old.at(b.Life()).got.set(0)
		old.at(b.Life()).got.set(1)
		r := record{from: b, reading: reading{class: classAck, cack: 1001, ackPSN: 1001, dpdcid: 9}}
		l.ack(&r, a)
		a.Node.Life++
		anew := return2()
		if l.taken(0, &r, a, nil); anew.answered.full(0, 2) != same {
			t.Errorf("same numbers: %v; the ACK of the former life counts: %v", same, !same)
		}
		if v := caught(func() { l.ack(&r, a) }); v == nil != same {
			t.Errorf("same numbers: %v; the same ACK again: %v", same, v)
		}
	}
}

// Nor is one taken for another that is for another endpoint.
func TestShortMessageIsForItsEndpoint(t *testing.T) {
	spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2)}
	id := transport.Identity{PIDonFEP: 3, RI: 4, JobID: 1}
	spec.Hosts[1].More = []transport.EndpointConfig{{Identity: id}, {Identity: transport.Identity{PIDonFEP: 3, RI: 5, JobID: 1}}, {Identity: transport.Identity{PIDonFEP: 2, RI: 4, JobID: 1}}}
	w := NewWorld(nil, spec)
	a := w.Hosts[0]
	var o *Op
	for _, to := range []transport.EndpointID{0, 2, 3, 1} {
		o = w.newOp(a, OpSpec{Kind: transport.OpSend, Peer: 1, To: to})
		o.HasData, o.Life, o.postSeq = false, 1, 1
		a.sends = append(a.sends, o)
	}
	r := record{from: a, reading: reading{class: classData, opcode: opSend, som: true, eom: true, msgID: 7, initiator: o.name().Initiator, pid: id.PIDonFEP, ri: id.RI}}
	if got := w.ledger.opOf(&r, w.ledger.open(dirKey{0, 1}, a, w.Hosts[1], 1000, false, false), &sentPSN{}); got != o {
		t.Errorf("a message for endpoint 1 is taken for %v", got)
	}
}
