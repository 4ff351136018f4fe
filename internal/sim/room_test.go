package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// little leaves B room for so many unexpected messages and bytes.
func little(msgs, bytes int) func(*simtest.Spec) {
	return only(1, func(c *transport.Config) {
		c.UnexpectedMsgs, c.UnexpectedBytes, c.UnexpectedShare = msgs, int64(bytes), 1
	})
}

// S-RSM-63, F18: more short messages than a window find neither a receive nor room. One behind them that
// has its receive comes nevertheless, whatever the network loses. None of the others is lost, nor comes
// twice.
func TestMatchBehindAWindowWithoutRoom(t *testing.T) {
	for _, c := range []struct{ n, size, msgs, bytes int }{
		{2500, 8, 4, 1 << 20},      // headers are what is scarce
		{2500, 900, 1 << 20, 8192}, // bytes are
		{900, 3000, 4, 1 << 20},    // several packets each
	} {
		for _, loss := range []float64{0, 0.01, 0.05} {
			t.Run(fmt.Sprintf("%d of %d bytes, loss %v", c.n, c.size, loss), func(t *testing.T) {
				if loss != 0.01 {
					oneGoroutine(t)
				}
				f := lan
				f.Loss = loss
				w := pair(t, 1301, f, little(c.msgs, c.bytes), config(func(c *transport.Config) { c.PayloadMTU, c.MaxSends = 1024, 8192 }), func(s *simtest.Spec) { s.MaxPackets = 5_000_000 })
				a, b := w.Hosts[0], w.Hosts[1]
				ops := post(a, tsend(1, c.size), c.n)
				w.Run(50 * ms)
				last := a.Post(tsend(1, c.size))
				r := trecv(c.size)
				r.AnyClass, r.Exact = false, last
				w.RunOps(3*time.Second, last, b.Post(r))
				w.Want("ok", last)
				if n := b.FEP.Stats().Answers[wire.RCNoMatch]; n < uint64(c.n)/4 {
					t.Errorf("%d packets were turned away: the test does not test", n)
				}
				open := 0
				for _, o := range ops {
					if o.Open() {
						open++
					}
				}
				if open < c.n/2 {
					t.Errorf("%d of %d messages without a receive are open", open, c.n)
				}
				w.Drain(4)
				w.RunOps(time.Minute, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}

// S-RSM-63: messages that were turned away are received in the reverse order of sending, one at a time, and in the
// order of sending, faster than each would come by its own back-off: those that wait next to one that was taken
// are tried at once.
func TestTurnedAwayComesWhenItsReceiveDoes(t *testing.T) {
	const n = 300
	for _, reverse := range []bool{true, false} {
		w := pair(t, 1302, lan, little(16, 1<<20), config(func(c *transport.Config) { c.MPRange = 128 }), func(s *simtest.Spec) { s.MaxPackets = 5_000_000 })
		a, b := w.Hosts[0], w.Hosts[1]
		ops := post(a, tsend(1, 8), n)
		w.Run(500 * ms)
		if b.FEP.Stats().Answers[wire.RCNoMatch] == 0 {
			t.Error("nothing was turned away: the test does not test")
		}
		from := w.Now()
		next := 0
		more := func(*simtest.Op) {
			if next == n {
				return
			}
			i := next
			if next++; reverse {
				i = n - 1 - i
			}
			r := trecv(8)
			r.AnyClass, r.Exact = false, ops[i]
			b.Post(r)
		}
		b.OnEvent(more)
		more(nil)
		w.RunOps(n*5*ms, ops...)
		w.Want("ok", ops...)
		b.OnEvent(nil)
		t.Logf("reverse %v: %v", reverse, w.Now()-from)
		settle(w)
	}
}

// S-RSM-63: a message that was turned away can be cancelled, and never arrives; its sender can close while others wait.
func TestTurnedAwayIsCancelled(t *testing.T) {
	w := pair(t, 1303, lan, little(4, 1<<20), config(func(c *transport.Config) { c.MPRange = 128 }))
	a, b := w.Hosts[0], w.Hosts[1]
	ops := post(a, tsend(1, 8), 200)
	w.Run(700 * ms)
	cancelled := 0
	for _, o := range ops[100:] {
		if o.Open() && a.Cancel(o) {
			cancelled++
		}
	}
	if cancelled < 50 {
		t.Errorf("%d messages were cancelled", cancelled)
	}
	w.Drain(4)
	w.RunOps(time.Minute, ops...)
	if n := int(b.FEP.Stats().MsgsRx); n != 200-cancelled {
		t.Errorf("%d messages came, %d were cancelled", n, cancelled)
	}
	settle(w)
}

// S-RSM-63: of ordered messages nothing is turned away, because none may pass another. So the one behind waits until
// the others are received.
func TestOrderedMatchWaitsBehindWhatHasNoRoom(t *testing.T) {
	w := pair(t, 1304, lan, little(4, 1<<20), config(func(c *transport.Config) { c.MPRange = 128 }))
	a, b := w.Hosts[0], w.Hosts[1]
	ops := post(a, ordered(tsend(1, 8)), 200)
	last := a.Post(ordered(tsend(1, 8)))
	r := trecv(8)
	r.AnyClass, r.Exact = false, last
	got := b.Post(r)
	w.Run(3 * time.Second)
	if n := b.FEP.Stats().Answers[wire.RCNoMatch]; n != 0 || !got.Open() {
		t.Errorf("%d ordered messages were turned away; open: %v", n, got.Open())
	}
	post(b, trecv(8), len(ops))
	w.RunOps(10*time.Second, append(ops, last, got)...)
	w.Want("ok", append(ops, last)...)
	settle(w)
}
