package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// A Talk describes the conversation of two hosts. Step.Host sends its Op to Op.Peer, which
// answers with one like it when it has received that, and so on. Messages are numbered from 0;
// the even ones are Step.Host's.
type Talk struct {
	Rounds int           // number of messages of both hosts
	Think  time.Duration // the longest pause before a message
	Vary   bool          // lengths vary up to Op.Len; else all have that
	// Wait is how many messages before the next one the side's message must have ended before
	// the side sends. 0 means that it waits for none.
	Wait [2]int
	// Ready is how many receives a side keeps posted. 0 means one, posted some time after the
	// side sent, so that the answer may be there before.
	Ready int
}

// An Aside is something else that happens in one round of a conversation: a Step of kind
// "aside" names the conversation in Of.
type Aside struct {
	What  string // "first", "also", "instead", "silence", "wait", "close", "crash", "hangup"
	Round int
	For   time.Duration // length of a silence; time until a new life begins, 0 means never
}

func (s *Step) talk() string {
	if s.Kind == "aside" {
		t := fmt.Sprintf(" in round %d of %d: %s", s.Aside.Round, s.Of, s.Aside.What)
		if s.Op.send() {
			t += fmt.Sprintf(" %v", &s.Op)
		}
		if s.Aside.For > 0 {
			t += fmt.Sprintf(" %v", s.Aside.For)
		}
		return t
	}
	return fmt.Sprintf(" by %v class %d, %+v", &s.Op, s.Op.Class, s.Talk)
}

// converse makes hosts talk with each other in some scenarios, over a path that is mostly
// short. Like secure it draws from random numbers of its own.
func (g *generator) converse() {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x74616c6b))
	if rng.Float64() >= 0.35 {
		return
	}
	t := &generator{rng: rng, sc: sc}
	n := len(sc.Spec.Hosts)
	near, calm := t.chance(0.8), t.chance(0.5)
	for range t.upTo(3) {
		from := rng.IntN(n)
		to := (from + 1 + rng.IntN(n-1)) % n
		if near {
			most := 10 * time.Microsecond
			if calm {
				most = 3 * time.Microsecond // so that eight round trips take less than 100 µs
			}
			delay, rare := t.dur(0, most), rng.Float64()
			for _, p := range [][2]int{{from, to}, {to, from}} {
				f := &sc.Lines[p[0]][p[1]]
				f.Delay, f.Jitter = delay, min(f.Jitter, t.dur(0, 20*time.Microsecond))
				h := &sc.Spec.Hosts[p[0]]
				h.Node.Wake = min(h.Node.Wake, most)
				if calm {
					// Faults are rare, or the hosts would never ask for few ACKs.
					f.Rate, f.Queue, f.Mark, f.Paths, f.Jitter = 0, 0, 0, nil, 0
					for _, p := range []*float64{&f.Loss, &f.Burst.Enter, &f.Reorder, &f.Reverse, &f.Duplicate, &f.Corrupt, &f.Truncate, &f.Pad, &f.Spike} {
						*p *= rare * rare * 0.2
					}
					h.Node.TimerLate = min(h.Node.TimerLate, 20*time.Microsecond)
				}
			}
		}
		t.conversation(from, to, near && calm)
	}
}

func (g *generator) conversation(from, to int, calm bool) {
	r := g.rng
	at := time.Duration(float64(g.sc.Heal) * r.Float64() * r.Float64())
	o := OpSpec{Kind: transport.OpTSend, Peer: to, Len: 8 + g.upTo(120), Class: uint8(128 + r.IntN(64))}
	switch {
	case g.chance(0.25):
		o.Kind = transport.OpSend
	case g.chance(0.2):
		o.Len = r.IntN(8)
	case g.chance(0.1):
		o.Len = 1024
	}
	o.HasData, o.Inject, o.Silent = g.chance(0.2), g.chance(0.3), g.chance(0.1)
	if g.chance(0.3) {
		o.Level = []transport.Level{transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery}[r.IntN(3)]
	}
	t := Talk{Rounds: 100 + r.IntN(200), Vary: g.chance(0.4), Ready: r.IntN(4)}
	t.Think = []time.Duration{0, time.Microsecond, 8 * time.Microsecond, 40 * time.Microsecond, 150 * time.Microsecond}[r.IntN(5)]
	for i := range t.Wait {
		if g.chance(0.45) {
			t.Wait[i] = []int{1, 2, 3, 8, 12, 20}[r.IntN(6)]
		}
	}
	early := 0
	if calm && g.chance(0.6) {
		// A conversation that comes to the point where eight messages share an ACK, and has its
		// faults then.
		at, early = g.dur(0, g.sc.Heal), 450
		t.Rounds, t.Think, o.Level = 500+r.IntN(400), t.Think/40, 0
		for i := range t.Wait {
			if t.Wait[i] > 0 {
				t.Wait[i] += 8
			}
		}
	}
	of := g.add(Step{At: at, Host: from, Kind: "converse", Op: o, Talk: t})
	aside := func(a Aside, o OpSpec) {
		g.add(Step{At: at, Host: from, Kind: "aside", Of: of, Op: o, Aside: a})
	}
	if g.chance(0.6) {
		for range g.upTo(8) {
			a, p := Aside{Round: early + r.IntN(t.Rounds-early)}, OpSpec{}
			switch r.IntN(8) {
			case 0:
				a.What, a.For = "silence", time.Duration(float64(50*time.Millisecond)*r.Float64()*r.Float64()*r.Float64())
			case 1, 2:
				a.What = "wait"
			default:
				a.What = []string{"first", "also", "also", "instead"}[r.IntN(4)]
				p = o
				switch r.IntN(5) {
				case 0:
					p.Fence = true
				case 1:
					p.Ordered = true
				case 2:
					p.Level, p.Silent = transport.LevelDelivery, false
				case 3:
					p.Len = g.upTo(64 << 10)
				}
				p.Inject = p.Inject && p.Len <= 4096
			}
			aside(a, p)
		}
	}
	last := Aside{Round: max(early, t.Rounds/2)}
	last.Round += r.IntN(t.Rounds - last.Round)
	if g.chance(0.5) {
		last.For = 1 + g.dur(0, 10*time.Millisecond)
	}
	switch r.IntN(12) {
	case 0, 1:
		last.What = "close"
	case 2:
		last.What = "crash"
	case 3:
		last.What = "hangup"
	default:
		return
	}
	aside(last, OpSpec{})
}

// A conversation is a Talk in progress.
type conversation struct {
	w      *World
	step   *Step
	asides map[int][]*Step
	hosts  [2]*Host
	lives  [2]int
	said   [2][]*Op
	next   int // number of the next message
	rng    *rand.Rand
	wait   *Op // the next message waits for its end
	over   bool
}

// A saying is one message of a conversation.
type saying struct {
	c *conversation
	n int
}

// begin starts a conversation with its first message.
func (w *World) begin(s *Step, asides map[int][]*Step) {
	c := &conversation{w: w, step: s, asides: asides, hosts: [2]*Host{w.Hosts[s.Host], w.Hosts[s.Op.Peer]}}
	for i, h := range c.hosts {
		if !h.Up() {
			return
		}
		c.lives[i] = h.Life()
	}
	for i := range c.hosts {
		for range s.Talk.Ready {
			c.listen(i)
		}
	}
	w.talks = append(w.talks, c)
	c.turn()
}

// up reports whether a side may post. It may not during Settle.
func (c *conversation) up(side int) bool {
	h := c.hosts[side]
	return !c.over && !c.w.settling && h.Up() && h.Life() == c.lives[side] && !h.closing
}

// listen posts a receive for the answers.
func (c *conversation) listen(side int) {
	if !c.up(side) {
		return
	}
	o := OpSpec{Kind: transport.OpRecv, Peer: c.hosts[1-side].Index, Len: c.step.Op.Len, Class: c.step.Op.Class, Note: c}
	if c.step.Op.tagged() {
		o.Kind = transport.OpTRecv
	}
	c.hosts[side].Post(o)
}

// ended processes the end of an operation.
func (c *conversation) ended(o *Op) {
	switch {
	case c.wait == o:
		c.wait = nil
		c.think()
	case o.send():
	case o.match != nil:
		if l, ok := o.match.Note.(saying); ok && l.c == c && l.n == c.next-1 && o.Host == c.hosts[c.next&1] {
			c.turn()
		}
	}
	if side := c.side(o.Host); o.Note == c && c.step.Talk.Ready > 0 && (o.OK() || o.match != nil) {
		c.listen(side)
	}
}

func (c *conversation) side(h *Host) int {
	if h == c.hosts[0] {
		return 0
	}
	return 1
}

// turn is called when the host that sends next has heard the other.
func (c *conversation) turn() {
	side, t := c.next&1, &c.step.Talk
	if c.next >= t.Rounds || !c.up(side) {
		return
	}
	// Each round has its own random numbers, so that it stays the same when shrinking changes
	// another.
	c.rng = rand.New(rand.NewPCG(c.w.spec.Seed^0x726f756e64, uint64(c.step.N)<<32|uint64(c.next)))
	n := t.Wait[side]
	for _, a := range c.asides[c.next] {
		switch a.Aside.What {
		case "wait":
			n = 1
		case "hangup":
			c.over = true
			return
		}
	}
	if said := c.said[side]; n > 0 && n <= len(said) {
		if o := said[len(said)-n]; o.Open() && !o.Silent && o.Host.Up() {
			c.wait = o
			return
		}
	}
	c.think()
}

// think lets time pass before the next message.
func (c *conversation) think() {
	d, later := time.Duration(0), false
	if c.rng.Float64() < 0.4 {
		d = time.Duration(c.rng.Int64N(int64(c.step.Talk.Think) + 1))
		later = true // in a turn of its own, even if at the same time
	}
	for _, a := range c.asides[c.next] {
		if a.Aside.What == "silence" {
			d, later = d+a.Aside.For, true
		}
	}
	if !later {
		c.speak()
		return
	}
	c.w.Net.After(d, c.speak)
}

// speak posts the next message.
func (c *conversation) speak() {
	w, n := c.w, c.next
	side := n & 1
	h, peer := c.hosts[side], c.hosts[1-side]
	if !c.up(side) {
		return
	}
	op := c.step.Op
	if c.step.Talk.Vary && op.Len > 0 {
		op.Len = min(op.Len, 8) + c.rng.IntN(op.Len-min(op.Len, 8)+1)
	}
	c.next++
	other := func(a *Step) OpSpec {
		o := a.Op
		o.Peer = peer.Index
		// The peer posts a receive for it in most cases.
		q := OpSpec{Kind: transport.OpRecv, Peer: h.Index, Len: o.Len, Class: o.Class}
		if o.tagged() {
			q.Kind = transport.OpTRecv
		}
		if c.rng.Float64() < 0.7 && c.up(1-side) {
			peer.Post(q)
		}
		return o
	}
	asides := c.asides[n]
	for _, a := range asides {
		switch {
		case !a.Op.send():
		case a.Aside.What == "first":
			h.Post(other(a))
		case a.Aside.What == "instead":
			op = other(a)
		}
	}
	op.Peer, op.Note = peer.Index, saying{c, n}
	c.said[side] = append(c.said[side], h.Post(op))
	for _, a := range asides {
		if a.Aside.What == "also" && a.Op.send() {
			h.Post(other(a))
		}
	}
	if c.step.Talk.Ready == 0 {
		w.Net.After(time.Duration(c.rng.Int64N(int64(30*time.Microsecond))), func() { c.listen(side) })
	}
	for _, a := range asides {
		if a.Aside.What == "close" || a.Aside.What == "crash" {
			c.leave(h, a)
		}
	}
}

// leave ends a host's life right after its answer, or as soon as drive has returned.
func (c *conversation) leave(h *Host, a *Step) {
	if h.busy {
		c.w.Net.After(0, func() { c.leave(h, a) })
		return
	}
	if !c.up(c.side(h)) || h.Node.IsPaused() {
		return
	}
	if c.over = true; a.Aside.What == "crash" {
		h.Crash(a.ICMP)
	} else {
		h.Close()
	}
	if a.Aside.For > 0 {
		c.w.Net.After(a.Aside.For, func() {
			if !h.Up() && !c.w.settling {
				h.Restart()
			}
		})
	}
}

// again reports whether the step is an aside after which a new life begins.
func (s *Step) again() bool {
	return (s.Aside.What == "close" || s.Aside.What == "crash") && s.Aside.For > 0
}

// asides returns the asides of a scenario by conversation and round.
func (sc *Scenario) asides() map[int]map[int][]*Step {
	m := map[int]map[int][]*Step{}
	for i := range sc.Steps {
		if s := &sc.Steps[i]; s.Kind == "aside" {
			if m[s.Of] == nil {
				m[s.Of] = map[int][]*Step{}
			}
			m[s.Of][s.Aside.Round] = append(m[s.Of][s.Aside.Round], s)
		}
	}
	return m
}

// withoutAsides removes the asides of these kinds, for Without.
func (sc *Scenario) withoutAsides(what ...string) {
	sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Kind == "aside" && slices.Contains(what, s.Aside.What) })
}
