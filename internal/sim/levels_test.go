package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file tests completion levels: each level × operation × mode, against what may happen
// between the post and its end. In all of them the checkers of simtest check that an operation
// ends once, that no success comes before its stage, and that a failure without OutcomeUnknown
// is certain (docs/faults.md rule 1, rule 2, rule 3). Here each stage is held back until the
// test lets it pass.

// A levelCase is one operation of the matrix.
type levelCase struct {
	level transport.Level
	spec  simtest.OpSpec
}

// atPost reports whether the entry may be there when the call returns, because the bytes were
// copied.
func (c *levelCase) atPost() bool { return c.level == transport.LevelInject && c.spec.Inject }

func (c *levelCase) of(n int) simtest.OpSpec {
	s := c.spec
	s.Len = n
	return s
}

// eachLevel runs f for every level × send, tagged send, inject × RUD, ROD.
func eachLevel(t *testing.T, f func(t *testing.T, c *levelCase)) {
	for level, ln := range map[transport.Level]string{transport.LevelInject: "inject", transport.LevelTransmit: "transmit", transport.LevelDelivery: "delivery"} {
		for _, kind := range []string{"send", "tsend", "injected"} {
			for _, mode := range []string{"RUD", "ROD"} {
				t.Run(fmt.Sprintf("%s %s %s", ln, kind, mode), func(t *testing.T) {
					c := levelCase{level: level, spec: simtest.OpSpec{Kind: transport.OpTSend, Peer: 1, Level: level, Ordered: mode == "ROD"}}
					switch kind {
					case "send":
						c.spec.Kind = transport.OpSend
					case "injected":
						c.spec.Inject = true
					}
					f(t, &c)
				})
			}
		}
	}
}

// take posts a receive for an operation of the case.
func (c *levelCase) take(h *simtest.Host, n int) *simtest.Op {
	if c.spec.Kind == transport.OpSend {
		return h.Post(simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: n})
	}
	return h.Post(trecv(n))
}

// mustWait checks that the operation has not ended, except in the only way it may have.
func (c *levelCase) mustWait(t *testing.T, o *simtest.Op, why string) {
	t.Helper()
	if c.atPost() {
		if !o.OK() || o.EndedAt != o.PostedAt {
			t.Errorf("%v: the bytes were copied, ended %v after %v", o, o.Ended, o.EndedAt-o.PostedAt)
		}
	} else if o.Ended {
		t.Errorf("%v ended %v after %v, %s", o, o.Cause(), o.EndedAt-o.PostedAt, why)
	}
}

// data and acks are Filters of lines that drop what keep refuses.
func dropIf(drop func(p *sim.Packet) bool) sim.Faults {
	f := lan
	f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict { return sim.Verdict{Drop: drop(p)} }
	return f
}

func isRequest(p *sim.Packet) bool {
	k := wire.Type(p.Data[0] >> 3)
	return k == wire.TypeRUDReq || k == wire.TypeRODReq
}

// isLast reports whether the packet carries the end of a message.
func isLast(p *sim.Packet) bool {
	return isRequest(p) && len(p.Data) > wire.ReqLen+1 && wire.SESFlags(p.Data[wire.ReqLen+1])&wire.SESEOM != 0
}

// R-CMPL-01, R-CMPL-04, R-CMPL-05, R-CMPL-07: no operation ends before its packets are
// answered. A lost ACK delays the end and does not double it.
func TestLevelLostACK(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		for _, n := range []int{0, 100, 60_000} {
			w := pair(t, 41, lan)
			a, b := w.Hosts[0], w.Hosts[1]
			w.Line(1, 0).SetFaults(dropIf(func(*sim.Packet) bool { return true }))
			r := c.take(b, n)
			o := a.Post(c.of(n))
			w.RunUntil(time.Second, "the message at the target", func() bool { return r.Ended })
			w.Run(20 * ms)
			c.mustWait(t, o, "though no ACK came back")
			w.SetFaults(lan)
			w.RunOps(time.Second, o)
			w.Want("ok", o, r)
			settle(w)
		}
	})
}

// R-CMPL-05, R-TGT-01, R-TGT-11: neither the send nor the receive ends before the last packet
// is there, whichever was lost.
func TestLevelLostData(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		for _, n := range []int{100, 60_000} {
			w := pair(t, 42, lan)
			a, b := w.Hosts[0], w.Hosts[1]
			w.Line(0, 1).SetFaults(dropIf(isLast))
			r := c.take(b, n)
			o := a.Post(c.of(n))
			w.Run(30 * ms)
			c.mustWait(t, o, "though the last packet never arrived")
			if r.Ended {
				t.Errorf("%v ended without the last packet", r)
			}
			w.SetFaults(lan)
			w.RunOps(time.Second, o, r)
			w.Want("ok", o, r)
			settle(w)
		}
	})
}

// R-CMPL-19: a message that the peer buffers satisfies transmit and delivery. The receive that
// is posted later gets it, once.
func TestLevelUnexpected(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		for _, n := range []int{0, 100, 60_000} {
			w := pair(t, 43, lan)
			a, b := w.Hosts[0], w.Hosts[1]
			o := a.Post(c.of(n))
			w.RunOps(time.Second, o)
			w.Want("ok", o)
			w.Run(10 * ms)
			r := c.take(b, n)
			w.RunOps(100*ms, r)
			w.Want("ok", r)
			if r.Event.Len != n {
				t.Errorf("%d of %d bytes", r.Event.Len, n)
			}
			settle(w)
		}
	})
}

// S-RSM-09, F18: a message for which the target has no room is not at the target: no level is
// reached until a receive matches it.
func TestLevelDeferredMatch(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		for _, n := range []int{100, 60_000} {
			w := pair(t, 44, lan, only(1, func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 1, 1 }))
			a, b := w.Hosts[0], w.Hosts[1]
			filler := a.Post(tsend(1, 10))
			w.RunOps(time.Second, filler)
			o := a.Post(c.of(n))
			w.Run(50 * ms)
			c.mustWait(t, o, "though the target refuses it for now")
			var rs []*simtest.Op
			if c.spec.Kind == transport.OpTSend {
				rs = append(rs, b.Post(trecv(10))) // the one that is buffered
			}
			rs = append(rs, c.take(b, n))
			w.RunOps(time.Second, append(rs, o)...)
			w.Want("ok", append(rs, o)...)
			settle(w)
		}
	})
}

// R-CMPL-05: the response counts, not only the ACK. A message for an endpoint that does not
// exist was acknowledged and fails all the same. An entry that was written at inject level
// stays the only one (R-CMPL-02, -17).
func TestLevelRefused(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		for _, n := range []int{100, 60_000} {
			w := pair(t, 45, lan, mayFail)
			s := c.of(n)
			s.WrongRI = true
			o := w.Hosts[0].Post(s)
			w.RunOps(time.Second, o)
			switch {
			case c.atPost():
				c.mustWait(t, o, "")
			case o.OK() || o.Event.RC != wire.RCBadIndex || o.Event.Unknown:
				t.Errorf("%v ended %v, rc %v, unknown %v", o, o.Cause(), o.Event.RC, o.Event.Unknown)
			}
			settle(w)
		}
	})
}

// F11, F9: whatever the stage at which the peer dies, the operation ends once, and an error
// says whether the message may have been received.
func TestLevelPeerDies(t *testing.T) {
	type stage struct {
		name    string
		forward func(p *sim.Packet) bool // what is dropped on the way there
		back    func(p *sim.Packet) bool
		there   bool // the target has the whole message
	}
	all := func(*sim.Packet) bool { return true }
	none := func(*sim.Packet) bool { return false }
	for _, st := range []stage{
		{"before anything arrived", all, none, false},
		{"with a part of it", isLast, none, false},
		{"with all of it, unanswered", none, all, true},
	} {
		t.Run(st.name, func(t *testing.T) {
			eachLevel(t, func(t *testing.T, c *levelCase) {
				for _, n := range []int{100, 60_000} {
					w := pair(t, 46, lan, mayFail)
					a, b := w.Hosts[0], w.Hosts[1]
					w.Line(0, 1).SetFaults(dropIf(st.forward))
					w.Line(1, 0).SetFaults(dropIf(st.back))
					r := c.take(b, n)
					o := a.Post(c.of(n))
					if st.there {
						w.RunUntil(time.Second, "the message at the target", func() bool { return r.Ended })
					}
					w.Run(10 * ms)
					c.mustWait(t, o, "before the peer died")
					b.Crash(true)
					w.SetFaults(lan)
					w.RunOps(41*time.Second, o)
					switch {
					case c.atPost():
					case o.OK():
						t.Errorf("%v succeeded", o)
					case st.there && !o.Event.Unknown:
						t.Errorf("%v: %v for certain, but it was received", o, o.Cause())
					}
					b.Restart()
					settle(w)
				}
			})
		})
	}
	// After the last stage the death changes nothing.
	t.Run("after the end", func(t *testing.T) {
		eachLevel(t, func(t *testing.T, c *levelCase) {
			w := pair(t, 47, lan)
			a, b := w.Hosts[0], w.Hosts[1]
			r := c.take(b, 60_000)
			o := a.Post(c.of(60_000))
			w.RunOps(time.Second, o, r)
			w.Want("ok", o, r)
			b.Crash(true)
			w.Run(50 * ms)
			w.Want("ok", o)
			b.Restart()
			settle(w)
		})
	})
}

// docs/faults.md rule 3: an operation that was never sent fails for certain.
func TestLevelNeverSent(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		w := pair(t, 48, lan, mayFail, smallWindow)
		a, b := w.Hosts[0], w.Hosts[1]
		b.Crash(true)
		first := a.Post(c.of(raced(500_000, 100_000))) // fills the window
		w.Run(ms)
		o := a.Post(c.of(raced(500_000, 100_000)))
		w.RunOps(41*time.Second, first, o)
		if !c.atPost() && (o.OK() || o.Event.Unknown) {
			t.Errorf("%v ended %v, unknown %v; nothing of it had left", o, o.Cause(), o.Event.Unknown)
		}
		b.Restart()
		settle(w)
	})
}

// R-CMPL-11: DC is on the wire exactly when the level is delivery.
func TestLevelDC(t *testing.T) {
	eachLevel(t, func(t *testing.T, c *levelCase) {
		w := pair(t, 49, lan)
		with, without := 0, 0
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if what != sim.Sent || !isRequest(p) {
				return
			}
			if wire.SESFlags(p.Data[wire.ReqLen+1])&wire.SESDC != 0 {
				with++
			} else {
				without++
			}
		})
		r := c.take(w.Hosts[1], 60_000)
		o := w.Hosts[0].Post(c.of(60_000))
		w.RunOps(time.Second, o, r)
		w.Want("ok", o, r)
		if dc := c.level == transport.LevelDelivery; dc && (with == 0 || without != 0) || !dc && with != 0 {
			t.Errorf("%d packets with DC, %d without", with, without)
		}
		settle(w)
	})
}

// R-CMPL-12, S-DEF-65, S-DEF-66: a send of LevelMatch waits for a receive, however long, and whatever becomes of the
// PDC by which its target has deferred it; and it ends when its target, or the endpoint there, is gone.
func TestLevelMatch(t *testing.T) {
	for _, mode := range []string{"RUD", "ROD"} {
		for _, n := range []int{0, 100, 60_000} {
			for name, play := range map[string]func(w *simtest.World, o *simtest.Op){
				"taken": func(w *simtest.World, o *simtest.Op) {
					r := w.Hosts[1].Post(trecv(n))
					w.RunOps(time.Second, o, r)
					w.Want("ok", o, r)
				},
				"taken after the PDC was closed": func(w *simtest.World, o *simtest.Op) {
					w.Hosts[0].Quiesce()
					w.Run(time.Second)
					if o.Ended {
						t.Errorf("%v ended %v with its PDC", o, o.Cause())
					}
					r := w.Hosts[1].Post(trecv(n))
					w.RunOps(time.Second, o, r)
					w.Want("ok", o, r)
				},
				"the endpoint is closed": func(w *simtest.World, o *simtest.Op) {
					w.Hosts[1].CloseEndpoint(1)
					w.RunOps(time.Second, o)
					w.Want("refused", o)
				},
				"the PDC is closed and the target dies": func(w *simtest.World, o *simtest.Op) {
					w.Hosts[0].Quiesce()
					w.Run(time.Second)
					w.Hosts[1].Crash(false)
					w.RunOps(80*time.Second, o)
					if o.OK() || o.Event.Unknown {
						t.Errorf("%v ended %v, unknown %v", o, o.Cause(), o.Event.Unknown)
					}
					w.Hosts[1].Restart()
				},
				"the target dies": func(w *simtest.World, o *simtest.Op) {
					w.Hosts[1].Crash(false)
					w.RunOps(80*time.Second, o)
					if o.OK() || o.Event.Unknown {
						t.Errorf("%v ended %v, unknown %v", o, o.Cause(), o.Event.Unknown)
					}
					w.Hosts[1].Restart()
				},
			} {
				t.Run(fmt.Sprintf("%s %d %s", mode, n, name), func(t *testing.T) {
					w := pair(t, 50, lan, mayFail, second(another))
					s := ordered(tsend(1, n))
					if s.Level, s.Ordered = transport.LevelMatch, mode == "ROD"; name == "the endpoint is closed" {
						s.To = 1
					}
					o := w.Hosts[0].Post(s)
					w.Run(5 * time.Second)
					if o.Ended {
						t.Fatalf("%v ended %v without a receive", o, o.Cause())
					}
					play(w, o)
					settle(w)
				})
			}
		}
	}
}
