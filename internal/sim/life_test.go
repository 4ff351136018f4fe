package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// F12: a peer was restarted while nothing was outstanding. The first send to it, of whatever
// length and mode, succeeds: its new life proves that it never had the PDC, and was there before
// the message left. In clear those behind it do, too, as many as a target answers at once (100
// packets): with security the first answer ends the PDC, and those of the others come too late.
func TestF12FirstSendToARestartedPeer(t *testing.T) {
	for _, secure := range []transport.Secure{transport.SecureNone, transport.SecureOneRTT} {
		for _, s := range []simtest.OpSpec{tsend(1, 0), tsend(1, 1000), tsend(1, 20_000), ordered(tsend(1, 1000)), ordered(tsend(1, 300_000)), tsend(1, 300_000)} {
			for _, n := range []int{1, 5} {
				w := pair(t, 940, lan, func(sp *simtest.Spec) {
					if sp.Secure = secure; n == 1 {
						smallWindow(sp) // most of a long message has not left
					}
				})
				if n*s.Len > 100_000 || secure != transport.SecureNone {
					n = 1
				}
				a, b := w.Hosts[0], w.Hosts[1]
				post(b, trecv(300_000), 2)
				before := post(a, s, 2)
				w.RunOps(time.Second, before...)
				w.Want("ok", before...)
				w.Run(time.Second)
				b.Crash(false)
				w.Run(50 * ms)
				b.Restart()
				w.Run(100 * ms)
				recvs := post(b, trecv(300_000), n)
				sends := post(a, s, n)
				w.RunOps(time.Second, append(sends, recvs...)...)
				w.Want("ok", append(sends, recvs...)...)
				settle(w)
			}
		}
	}
}

// F12: what may have reached the life before is not sent again, whatever was lost, and whenever
// the peer was restarted. The ledger sees that no message goes by another PDC although a life
// that had the first one got all of it.
func TestF12NothingRunsTwice(t *testing.T) {
	proved, unknown := 0, 0
	for seed := range uint64(raced(300, 60)) {
		f := lan
		f.InOrder = seed%2 == 0
		f.Loss, f.Duplicate, f.DuplicateMax = float64(seed%4)*0.1, float64(seed%3)*0.3, 3
		f.DuplicateLate = []time.Duration{0, 5 * ms, 40 * ms, 500 * ms}[seed%4]
		w := pair(t, 5000+seed, f, mayFail, func(s *simtest.Spec) { s.SameRandom = seed%5 == 0 })
		a, b := w.Hosts[0], w.Hosts[1]
		spec := tsend(1, []int{10, 1000, 5000}[seed%3])
		spec.Ordered = seed%7 == 0
		post(b, trecv(5000), 40)
		first := post(a, spec, 2)
		w.RunOps(5*time.Second, first...)
		w.Run(time.Duration(seed%3) * 10 * ms)
		var ops []*simtest.Op
		for life := range 3 {
			// Sends shortly before, during and after the restart.
			w.Net.After(time.Duration(seed*7%40)*200*us, func() { b.Crash(false); b.Restart(); post(b, trecv(5000), 20) })
			for range 6 {
				ops = append(ops, a.Post(spec))
				w.Run(time.Duration(seed*13%30) * 100 * us)
			}
			w.Run(time.Duration(life*20) * ms)
			ops = append(ops, a.Post(spec))
			w.Run(60 * ms)
		}
		w.SetFaults(lan)
		w.RunOps(50*time.Second, ops...)
		for _, o := range ops {
			switch {
			case o.OK():
				proved++
			case o.Event.Unknown:
				unknown++
			}
		}
		settle(w)
	}
	if proved == 0 || unknown == 0 {
		t.Errorf("%d sends succeeded, %d have an unknown outcome: the test does not test", proved, unknown)
	}
}

// A target that was not restarted, and freed the PDC for reasons of its own, proves nothing: it
// may have executed what it refuses now. Here it has, and a copy that the network made of the
// only packet is what it refuses.
func TestF12TheSameLifeProvesNothing(t *testing.T) {
	w := pair(t, 941, lan, mayFail, func(s *simtest.Spec) { s.Hostile = true })
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 2)
	w.Run(time.Second)
	dark := lan
	dark.Loss = 1
	w.Line(1, 0).SetFaults(dark)
	var data []byte
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.From == a.Node && p.Data[0]>>3 == 2 {
			data = append(data[:0], p.Data...)
		}
	})
	r := b.Post(trecv(100))
	s := a.Post(tsend(1, 100))
	w.RunOps(ms, r)
	b.Abandon(0) // it has the message, and no PDC any more
	w.SetFaults(lan)
	w.Forge(1, a.Addr(), data, false)
	w.RunOps(time.Second, s)
	w.Want("aborted, unknown", s)
	w.Want("ok", r)
	settle(w)
}

// F12: a receive from a peer that was given up stays, and gets a message when the peer comes
// back. Meanwhile a diagnosis tells it from one whose peer is merely silent, and the owner was
// told.
func TestF12DirectedReceiveStays(t *testing.T) {
	var told []transport.Cause
	w := pair(t, 942, lan, mayFail, only(0, func(c *transport.Config) {
		c.PeerTimeout = time.Second
		c.Lost = func(_ transport.PeerID, why transport.Cause) { told = append(told, why) }
	}))
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 2)
	s := a.Post(tsend(1, 100))
	w.RunOps(time.Second, s)
	b.Crash(false)
	s = a.Post(tsend(1, 100))
	w.RunOps(5*time.Second, s)
	w.Want("timed out, unknown", s)
	if len(told) != 0 {
		t.Errorf("told %v, and no receive waits for the peer", told)
	}
	any, directed := a.Post(trecv(100)), a.Post(from(1, trecv(100)))
	wantWait(t, directed, transport.WaitLost)
	wantWait(t, any, transport.WaitMessage)
	s = a.Post(tsend(1, 100))
	w.RunOps(5*time.Second, s)
	if len(told) == 0 || told[0] != transport.TimedOut {
		t.Errorf("told %v", told)
	}
	b.Restart()
	w.Run(100 * ms)
	w.Want("open", any, directed)
	more := post(b, tsend(0, 100), 2)
	w.RunOps(time.Second, append(more, any, directed)...)
	w.Want("ok", append(more, any, directed)...)
	again := a.Post(from(1, trecv(100)))
	wantWait(t, again, transport.WaitMessage)
	settle(w)
}

// F9: when one PDC shows that the peer is gone, all operations to it end: those on other PDCs on
// which it was silent as long, though they have waited less; those that have begun, or wait behind
// a message, on a PDC that is younger than the silence; and those behind a fence. None begins to wait anew.
func TestF9AllOperationsFail(t *testing.T) {
	for _, fence := range []bool{false, true} {
		w := pair(t, 943, lan, mayFail, only(0, func(c *transport.Config) { c.PeerTimeout, c.Window = time.Second, 32<<10 }))
		a, b := w.Hosts[0], w.Hosts[1]
		post(b, trecv(1000), 2)
		before := []*simtest.Op{a.Post(tsend(1, 1000)), a.Post(ordered(tsend(1, 1000)))}
		w.RunOps(time.Second, before...)
		b.Crash(false)
		out, unsent := []*simtest.Op{a.Post(tsend(1, 100))}, []*simtest.Op(nil)
		if fence {
			s := tsend(1, 100)
			s.Fence = true
			unsent = append(unsent, a.Post(s))
		}
		w.Run(700 * ms)
		w.Want("open", append(out, unsent...)...)
		if fence {
			unsent = append(unsent, a.Post(tsend(1, 200)))
		} else {
			out = append(out, a.Post(ordered(tsend(1, 100))))
			unsent = append(unsent, post(a, tsend(1, 300_000), 3)...) // the first has begun, on a PDC that is opened now
		}
		w.Run(450 * ms)
		w.Want("timed out, unknown", out...)
		w.Want("timed out", unsent...)
		settle(w)
	}
}
