package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// tinject is a tagged message of n bytes that is injected: nothing tells its end.
func tinject(n int) simtest.OpSpec {
	s := tsend(1, n)
	s.Inject, s.Level = true, transport.LevelInject
	return s
}

// linger runs until the host has nothing to wait for after Leave, at most for most, closes it
// and ends its process. It returns how long that took.
func linger(w *simtest.World, h *simtest.Host, most time.Duration) time.Duration {
	start := w.Now()
	for h.Lingers(most) && w.Now()-start < most {
		w.Run(ms / 4)
	}
	d := w.Now() - start
	h.Close()
	w.Run(ms)
	h.Crash(true)
	return d
}

// R-EP-14, F27: messages that were injected are waited for, although the network loses the
// first packets, and the messages are spread over several PDCs.
func TestLeaveWaitsForInjectedMessages(t *testing.T) {
	dark := lan
	dark.Loss = 1
	w := pair(t, 700, dark, mayFail, func(s *simtest.Spec) { s.ICMP = true })
	a, b := w.Hosts[0], w.Hosts[1]
	got := post(b, trecv(30_000), 8)
	var ops []*simtest.Op
	for _, n := range []int{8, 30_000} {
		ops = append(ops, post(a, tinject(n), 4)...)
	}
	a.Leave()
	w.Run(60 * ms)
	w.SetFaults(lan)
	if d := linger(w, a, time.Second); d > 500*ms {
		t.Errorf("the wait took %v", d)
	}
	w.RunOps(time.Second, got...)
	for _, o := range append(got, ops...) {
		if o.Open() || o.Cause() != transport.OK {
			t.Errorf("%v: %v", o, o.Cause())
		}
	}
}

// F27: if the last ACK is lost, the target answers again before it is gone, so that the
// initiator does not take a message for lost that has arrived.
func TestLeaveRepeatsTheLastAck(t *testing.T) {
	for lost := range 4 {
		w := pair(t, 701+uint64(lost), lan, func(s *simtest.Spec) { s.ICMP = true })
		a, b := w.Hosts[0], w.Hosts[1]
		f := lan
		f.Filter = acksOnly(func(n int) sim.Verdict { return sim.Verdict{Drop: n <= lost} })
		w.Line(1, 0).SetFaults(f)
		got := post(b, trecv(8), 1)
		send := post(a, tsend(1, 8), 1)
		w.RunOps(50*ms, got...)
		b.Leave()
		d := linger(w, b, time.Second)
		w.RunOps(10*time.Second, send...)
		w.Want("ok", send...)
		if d > 200*ms {
			t.Errorf("%d ACKs lost: the wait took %v", lost, d)
		}
	}
}

// A host whose peers have all they need does not wait, and a round trip is enough where a peer
// may lack an ACK and lives.
func TestLeaveIsShort(t *testing.T) {
	w := pair(t, 710, lan)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	b.Leave()
	if !b.Lingers(time.Second) {
		t.Error("a target that has just received does not wait")
	}
	if d := linger(w, b, time.Second); d > 2*ms {
		t.Errorf("a round trip took %v", d)
	}
	a.Leave()
	if a.Lingers(time.Second) {
		t.Error("an initiator waits, of whose messages all have arrived")
	}

	w = pair(t, 711, lan)
	wantStream(t, w, 4)
	w.Run(1500 * ms)
	b = w.Hosts[1]
	b.Leave()
	if b.Lingers(time.Second) {
		t.Error("a target waits, of which nobody has asked anything for long")
	}
}

// A peer that is gone is not waited for, with evidence not for long, and one that does not take
// a message no longer than it is asked for.
func TestLeaveDoesNotWaitForTheDead(t *testing.T) {
	const patience = 300 * ms
	for _, c := range []struct {
		name        string
		die         func(w *simtest.World, b *simtest.Host)
		before      time.Duration
		least, most time.Duration
	}{
		{"ICMP says so", func(_ *simtest.World, b *simtest.Host) { b.Crash(true) }, 0, 0, 60 * ms},
		{"silent", func(_ *simtest.World, b *simtest.Host) { b.Crash(false) }, 0, patience, patience},
		{"silent for long", func(_ *simtest.World, b *simtest.Host) { b.Crash(false) }, patience, 0, 0},
		{"silent for a while", func(_ *simtest.World, b *simtest.Host) { b.Crash(false) }, 200 * ms, 90 * ms, 110 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 720, lan, mayFail, func(s *simtest.Spec) { s.ICMP = true })
			wantStream(t, w, 4)
			a, b := w.Hosts[0], w.Hosts[1]
			c.die(w, b)
			post(a, tinject(8), 4)
			w.Run(c.before)
			a.Leave()
			if d := linger(w, a, patience); d < c.least || d > c.most {
				t.Errorf("the wait took %v", d)
			}
		})
	}
	t.Run("no room", func(t *testing.T) {
		w := pair(t, 730, lan, mayFail, only(1, func(c *transport.Config) { c.UnexpectedMsgs = 4; c.UnexpectedShare = 1 }))
		a := w.Hosts[0]
		post(a, tinject(8), 8)
		w.Run(patience)
		a.Leave()
		if d := linger(w, a, patience); d > 50*ms {
			t.Errorf("the wait took %v", d)
		}
	})
}

// Receives end at once, and what comes afterwards is refused (F27).
func TestLeaveEndsReceives(t *testing.T) {
	w := pair(t, 740, lan, mayFail)
	wantStream(t, w, 4)
	a, b := w.Hosts[0], w.Hosts[1]
	got := post(b, trecv(8), 3)
	b.Leave()
	for _, o := range got {
		if o.Open() || o.Cause() != transport.Cancelled {
			t.Errorf("%v: %v", o, o.Cause())
		}
	}
	send := post(a, tsend(1, 8), 1)
	w.RunOps(10*ms, send...)
	if send[0].Open() || send[0].Cause() != transport.Rejected {
		t.Errorf("%v: %v", send[0], send[0].Cause())
	}
}
