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

// A stageCase is one course of a message. Three messages take it at once.
type stageCase struct {
	name string
	size int
	run  func(c *stageRun)
}

// A stageRun is one cell of the table: how the sends are posted, and what was posted so far.
type stageRun struct {
	*testing.T
	w     *simtest.World
	a, b  *simtest.Host
	spec  simtest.OpSpec
	sends []*simtest.Op
	recvs []*simtest.Op
}

// early reports whether success is due at the post: the bytes were copied, and no more was
// asked for (R-CMPL-02).
func (c *stageRun) early() bool { return c.spec.Level == transport.LevelInject && c.spec.Inject }

func (c *stageRun) send() {
	c.Helper()
	for range 3 {
		c.sends = append(c.sends, c.a.Post(c.spec))
	}
	for _, o := range c.sends {
		if c.early() && (!o.OK() || o.EndedAt != o.PostedAt) {
			c.Errorf("%v: the bytes are copied, but no success at the post", o)
		}
		if !c.early() && o.Ended {
			c.Errorf("%v: ended at the post: %v", o, o.Cause())
		}
	}
}

func (c *stageRun) recv() {
	r := simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: c.spec.Len}
	if c.spec.Kind == transport.OpTSend {
		r = trecv(c.spec.Len)
	}
	c.recvs = post(c.b, r, 3)
}

// dark makes nothing pass in a direction.
func (c *stageRun) dark(from, to int) {
	f := lan
	f.Loss = 1
	c.w.Line(from, to).SetFaults(f)
}

// wantOpen fails for every send whose entry is there before its stage.
func (c *stageRun) wantOpen(why string) {
	c.Helper()
	for _, o := range c.sends {
		if !c.early() && !o.Open() {
			c.Errorf("%v: an entry though %s: %v", o, why, o.Cause())
		}
	}
}

// wantReceived fails unless each receive has its message.
func (c *stageRun) wantReceived() {
	c.Helper()
	c.w.Want("ok", c.recvs...)
	for _, o := range c.sends {
		if !o.Delivered() {
			c.Errorf("%v was not received", o)
		}
	}
}

// ends runs until everything succeeded, at most one heal time from now.
func (c *stageRun) ends() {
	c.Helper()
	c.w.RunOps(time.Second, append(c.sends, c.recvs...)...)
	c.w.Want("ok", c.sends...)
	c.wantReceived()
}

// dies kills B and expects the errors of A's sends at PeerTimeout.
func (c *stageRun) dies(unknown bool) {
	c.Helper()
	if c.b.Up() {
		c.b.Crash(false)
	}
	last := c.w.Now() // the last time at which A can have heard B
	c.w.Run(38 * time.Second)
	c.wantOpen("PeerTimeout is not over")
	c.w.RunOps(last+42*time.Second-c.w.Now(), c.sends...)
	for _, o := range c.sends {
		switch {
		case c.early() && !o.OK():
			c.Errorf("%v: %v after its success", o, o.Cause())
		case !c.early() && (o.Cause() != transport.TimedOut || o.Event.Unknown != unknown):
			c.Errorf("%v: %v, unknown outcome %v; want timed out, %v", o, o.Cause(), o.Event.Unknown, unknown)
		}
	}
	c.w.SetFaults(lan)
	c.b.Restart()
}

var stageCases = []stageCase{
	{"eager", 700, func(c *stageRun) {
		c.recv()
		c.send()
		c.w.Run(49 * us) // less than one way
		c.wantOpen("nothing can have arrived")
		c.ends()
	}},
	{"many packets", 60_000, func(c *stageRun) {
		c.recv()
		c.send()
		c.w.Run(400 * us) // 60,000 bytes take 480 µs
		c.wantOpen("not even one message can have arrived")
		c.ends()
	}},
	// R-CMPL-19: a message that the peer has buffered satisfies TRANSMIT and DELIVERY.
	{"unexpected", 700, func(c *stageRun) {
		c.send()
		c.w.RunOps(20*ms, c.sends...)
		c.w.Want("ok", c.sends...)
		c.recv()
		c.ends()
	}},
	{"unexpected, many packets", 60_000, func(c *stageRun) {
		c.send()
		c.w.RunOps(100*ms, c.sends...)
		c.w.Want("ok", c.sends...)
		c.recv()
		c.ends()
	}},
	// R-TGT-11: a receive that is posted when half of the message is there ends after the last
	// byte.
	{"deferred match", 60_000, func(c *stageRun) {
		c.send()
		c.w.Run(300 * us)
		c.recv()
		for _, r := range c.recvs {
			if r.Ended {
				c.Errorf("%v has an entry in the middle of its message", r)
			}
		}
		c.wantOpen("half of the message is under way")
		c.ends()
	}},
	// R-CMPL-05: the target has everything, but the initiator does not know it.
	{"lost ACKs", 700, func(c *stageRun) {
		c.recv()
		c.dark(1, 0)
		c.send()
		c.w.RunOps(50*ms, c.recvs...)
		c.wantReceived() // R-TGT-01: its entry waits for no other
		c.w.Run(300 * ms)
		c.wantOpen("no ACK passed")
		c.w.SetFaults(lan)
		c.ends()
	}},
	{"lost ACKs, many packets, unexpected", 60_000, func(c *stageRun) {
		c.dark(1, 0)
		c.send()
		c.w.Run(300 * ms)
		c.wantOpen("no ACK passed")
		c.w.SetFaults(lan)
		c.recv()
		c.ends()
	}},
	{"lost data", 700, func(c *stageRun) {
		c.recv()
		c.dark(0, 1)
		c.send()
		c.w.Run(300 * ms)
		c.wantOpen("no packet arrived")
		for _, r := range c.recvs {
			if r.Ended {
				c.Errorf("%v has an entry though no packet arrived", r)
			}
		}
		c.w.SetFaults(lan)
		c.ends()
	}},
	{"lost last packet", 60_000, func(c *stageRun) {
		c.recv()
		f := lan
		dark := true
		f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
			q, ok := reqOf(p.Data)
			return sim.Verdict{Drop: dark && ok && q.Flags&wire.SESEOM != 0}
		}
		c.w.Line(0, 1).SetFaults(f)
		c.send()
		c.w.Run(300 * ms)
		c.wantOpen("the last packet never arrived")
		for _, r := range c.recvs {
			if r.Ended {
				c.Errorf("%v has an entry without the last packet", r)
			}
		}
		dark = false
		c.ends()
	}},
	// docs/faults.md rule 3: the effect is unknown if the target may have accepted the message,
	// and certain if it cannot have all of it.
	{"death before the post", 700, func(c *stageRun) {
		c.b.Crash(false)
		c.send()
		c.dies(true)
	}},
	{"death in the middle", 300_000, func(c *stageRun) {
		c.recv()
		c.send()
		c.w.Run(700 * us)
		c.wantOpen("the window holds a ninth of it")
		c.dies(false)
	}},
	{"death after the data, before the ACK", 700, func(c *stageRun) {
		c.recv()
		c.dark(1, 0)
		c.send()
		c.w.RunOps(50*ms, c.recvs...)
		c.wantReceived()
		c.wantOpen("no ACK passed")
		c.dies(true)
	}},
	{"death after the ACK", 700, func(c *stageRun) {
		c.recv()
		c.send()
		c.ends()
		c.b.Crash(false)
		c.w.Run(42 * time.Second) // long enough to see a second entry
		c.b.Restart()
	}},
}

// reqOf reads the SES header of a request, if b is one.
func reqOf(b []byte) (wire.ReqStd, bool) {
	if len(b) == 0 || b[0]>>3 != byte(wire.TypeRUDReq) && b[0]>>3 != byte(wire.TypeRODReq) {
		return wire.ReqStd{}, false
	}
	h, n, err := wire.ParseReq(b)
	if err != nil || h.Next != wire.NextReqStd {
		return wire.ReqStd{}, false
	}
	q, _, err := wire.ParseReqStd(b[n:])
	return q, err == nil
}

// R-CMPL-01, R-CMPL-02, R-CMPL-05, R-CMPL-07, R-CMPL-11, R-CMPL-16, R-CMPL-17, R-CMPL-19,
// R-TGT-01, R-TGT-11, R-ORD-01, R-ORD-05, docs/faults.md rule 1, 2, 3 (F9, F10): at every
// level, for every kind of send, on both delivery modes, whatever happens on the way, the entry
// comes once and not before its stage, and an error says whether the effect is unknown. simtest
// checks in every run that no second entry comes, that the bytes are right and that ordered
// messages are matched in their order.
func TestF9EntriesAtTheirStage(t *testing.T) {
	levels := []struct {
		name  string
		level transport.Level
	}{{"inject", transport.LevelInject}, {"transmit", transport.LevelTransmit}, {"delivery", transport.LevelDelivery}}
	kinds := []struct {
		name string
		spec simtest.OpSpec
	}{
		{"send", simtest.OpSpec{Kind: transport.OpSend}},
		{"tagged send", simtest.OpSpec{Kind: transport.OpTSend}},
		{"inject", simtest.OpSpec{Kind: transport.OpSend, Inject: true}},
		{"tagged inject", simtest.OpSpec{Kind: transport.OpTSend, Inject: true}},
	}
	for _, sc := range stageCases {
		for _, l := range levels {
			for _, k := range kinds {
				for _, rod := range []bool{false, true} {
					mode := "RUD"
					if rod {
						mode = "ROD"
					}
					t.Run(fmt.Sprintf("%s/%s/%s/%s", sc.name, l.name, k.name, mode), func(t *testing.T) {
						if raceEnabled && rod == (l.level == transport.LevelTransmit) {
							t.Skip("it has one goroutine")
						}
						w := pair(t, 40, lan, smallWindow, mayFail)
						c := &stageRun{T: t, w: w, a: w.Hosts[0], b: w.Hosts[1], spec: k.spec}
						c.spec.Peer, c.spec.Len, c.spec.Level, c.spec.Ordered = 1, sc.size, l.level, rod
						wrong := 0
						w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
							if q, ok := reqOf(p.Data); ok && what == sim.Sent {
								// R-CMPL-11: DC is set exactly when the level is DELIVERY;
								// R-ORD-01.
								if (q.Flags&wire.SESDC != 0) != (l.level == transport.LevelDelivery) || (p.Data[0]>>3 == byte(wire.TypeRODReq)) != rod {
									wrong++
								}
							}
						})
						sc.run(c)
						if wrong != 0 {
							t.Errorf("%d packets with the wrong DC bit or the wrong delivery mode", wrong)
						}
						settle(w)
					})
				}
			}
		}
	}
}
