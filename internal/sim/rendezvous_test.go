package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

func rendezvous(c *transport.Config) { c.DeferrableMin, c.RendezvousMin = -1, 16<<10 }

// S-RDV: programs that send in one order and receive in another come to their end by rendezvous, too, on good
// paths and bad ones, in order and not. Short ones are ordinary: each that is announced keeps its place among the sends.
func TestRendezvousInReversedOrder(t *testing.T) { reversedPrograms(t, rendezvous) }

// S-RDV: eight peers announce 64 messages of 1 MiB each, and they are received in a random order. The payload is 8192 bytes,
// which keeps the number of packets low.
func TestRendezvousInRandomOrder(t *testing.T) {
	each := 64
	if testing.Short() || raceEnabled {
		each = 4
	}
	for _, rod := range []bool{false, true} {
		for _, loss := range []float64{0, 0.01} {
			t.Run(fmt.Sprintf("rod=%v/loss=%v", rod, loss), func(t *testing.T) {
				t.Parallel()
				randomOrder(t, func(c *transport.Config) { rendezvous(c); c.PayloadMTU = 8192 }, each, rod, loss)
			})
		}
	}
}

// Two hosts that announce to each other, and receive in the reverse order, do not wait for each other for ever.
func TestRendezvousBothWays(t *testing.T) {
	for _, rod := range []bool{false, true} {
		for _, loss := range []float64{0, 0.05} {
			t.Run(fmt.Sprintf("rod=%v/loss=%v", rod, loss), func(t *testing.T) {
				t.Parallel()
				const messages, bytes = 200, 70_000
				w := pair(t, 63, bad(loss), config(rendezvous))
				var sent [2][]*simtest.Op
				var ops []*simtest.Op
				for k := range messages {
					for i, h := range w.Hosts {
						s := tsend(1-i, bytes)
						s.Ordered, s.Class = rod, uint8(k)
						sent[i] = append(sent[i], h.Post(s))
					}
				}
				w.Run(100 * time.Millisecond)
				for k := range messages {
					for i, h := range w.Hosts {
						r := trecv(bytes)
						r.AnyClass, r.Class = false, sent[1-i][messages-1-k].Class
						ops = append(ops, h.Post(r))
					}
				}
				w.RunOps(time.Minute, append(append(ops, sent[0]...), sent[1]...)...)
				w.Want("ok", ops...)
				w.Want("ok", sent[0]...)
				w.Want("ok", sent[1]...)
				settle(w)
			})
		}
	}
}

// A target that is restarted has lost what was announced to it: the sends end, and the next are announced to the
// new life.
func TestRendezvousTargetRestarts(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond, time.Second} {
		for _, rod := range []bool{false, true} {
			w := pair(t, 5, lan, config(rendezvous), mayFail)
			a, b := w.Hosts[0], w.Hosts[1]
			s := tsend(1, 300_000)
			s.Ordered = rod
			ops := post(a, s, 4)
			b.Post(trecv(300_000))
			w.Run(after)
			b.Crash(false)
			w.Run(time.Millisecond)
			b.Restart()
			post(b, trecv(300_000), 5)
			w.RunOps(5*time.Second, ops...)
			w.Want("ok or aborted or aborted, unknown or refused or refused, unknown", ops...) // ok: what was announced to the new life
			again := a.Post(s)
			w.RunOps(10*time.Second, again)
			w.Want("ok", again)
			settle(w)
		}
	}
}

// An initiator that is killed while its messages are read: each receive of its target ends in error, or goes back
// and gets a message of the next life, and the target keeps nothing.
func TestRendezvousInitiatorRestarts(t *testing.T) {
	const messages, bytes = 4, 300_000
	for k, part := range []int{1, messages * bytes / 10, messages * bytes / 3, messages * bytes / 2, messages * bytes * 4 / 5} {
		for _, rod := range []bool{false, true} {
			for _, loss := range []float64{0, 0.05} {
				if raceEnabled && k%2 != 0 == (rod == (loss == 0)) {
					continue // it has one goroutine
				}
				w := pair(t, 64+uint64(k), bad(loss), config(rendezvous), mayFail)
				a, b := w.Hosts[0], w.Hosts[1]
				s := tsend(1, bytes)
				s.Ordered = rod
				recvs, sends := post(b, trecv(bytes), messages), post(a, s, messages)
				w.RunUntil(10*time.Second, "the read", func() bool { return w.BytesRead(sends...) >= part })
				if !slices.ContainsFunc(recvs, (*simtest.Op).Open) {
					t.Fatalf("rod %v loss %v: all was received before %d bytes left", rod, loss, part)
				}
				a.Crash(false)
				w.Run(ms)
				a.Restart()
				again := post(a, s, messages)
				recvs = append(recvs, post(b, trecv(bytes), messages)...)
				w.RunOps(time.Minute, again...)
				w.Want("ok", again...)
				came := 0
				for _, r := range recvs {
					switch {
					case r.OK():
						came++
					case r.Open():
					case r.Event.Cause != transport.Aborted && r.Event.Cause != transport.TimedOut && r.Event.Cause != transport.PeerError:
						t.Errorf("%d bytes rod %v loss %v: %v is %s", part, rod, loss, r, r.State())
					}
				}
				if came < messages {
					t.Errorf("%d bytes rod %v loss %v: %d messages were received", part, rod, loss, came)
				}
				w.RunUntil(2*time.Minute, "the end of what is kept of the life that ended", func() bool { return b.FEP.Unexpected() == 0 })
				settle(w)
			}
		}
	}
}

// F18: two hosts that announce to each other and have as few PDCs as they may do not wait for each other for ever:
// what each reads does not stand behind what the other refuses.
func TestRendezvousBothWaysWithFewPDCs(t *testing.T) {
	for _, pdcs := range []int{transport.LeastRendezvousPDCs, 5, 6, 8, 12}[:raced(5, 1)] {
		for _, rod := range []bool{false, true} {
			t.Run(fmt.Sprintf("pdcs=%d/rod=%v", pdcs, rod), func(t *testing.T) {
				const messages, bytes = 20, 70_000
				w := pair(t, 63, lan, mayFail, config(rendezvous), config(func(c *transport.Config) {
					c.MaxPDCs, c.UnexpectedMsgs, c.UnexpectedShare = pdcs, 64, 1
				}))
				var sent [2][]*simtest.Op
				for k := range messages {
					for i, h := range w.Hosts {
						s := tsend(1-i, bytes)
						s.Ordered, s.Class = rod, uint8(k)
						sent[i] = append(sent[i], h.Post(s))
					}
				}
				w.Run(100 * time.Millisecond)
				for i, h := range w.Hosts { // more than there is room for, and nobody receives them yet
					s := tsend(1-i, 4000)
					s.Ordered, s.Class = rod, 200
					post(h, s, 160)
				}
				w.Run(100 * time.Millisecond)
				var ops []*simtest.Op
				for k := range messages {
					for i, h := range w.Hosts {
						r := trecv(bytes)
						r.AnyClass, r.Class = false, sent[1-i][messages-1-k].Class
						ops = append(ops, h.Post(r))
					}
				}
				w.RunOps(20*time.Second, ops...)
				w.Want("ok", ops...)
				settle(w)
			})
		}
	}
}
