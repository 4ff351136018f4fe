package simtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Scenario is one run of the swarm, written down before it begins, so that a failing run can
// be repeated without parts of it.
type Scenario struct {
	Spec  Spec
	Lines [][]sim.Faults // [from][to]
	Steps []Step
	// Grams is how many hosts with datagrams there are, GramSteps what happens to them.
	Grams     int
	GramSteps []Step
	Heal      time.Duration // when the faults end, after Start
	Kinds     []string      // the parts that Without can remove
	Lying     float64       // with Spec.Liar: the share of the packets of the last host that are rewritten
}

// A Step is something that happens at a time of a scenario.
type Step struct {
	N    int // its number, which stays when others are removed
	At   time.Duration
	Host int
	Kind string // "post", "cancel", "crash", "restart", "close", "shut", "unregister", "abandon", "pause", "resume", "newkey", "usekey", "converse", "aside", "lie"
	Op   OpSpec
	Of   int // cancel: the Step that posted the operation; aside: the conversation
	ICMP bool
	Talk Talk
	Aside
}

func (s *Step) String() string {
	t := fmt.Sprintf("%d: at %v %s %s", s.N, s.At, hostName(s.Host), s.Kind)
	switch s.Kind {
	case "post":
		t += fmt.Sprintf(" %v class %d", &s.Op, s.Op.Class)
	case "cancel":
		t += fmt.Sprintf(" of %d", s.Of)
	case "converse", "aside":
		t += s.talk()
	}
	return t
}

// kinds are the parts of a scenario that Without can remove, in the order in which shrinking
// tries them.
var kinds = []string{
	"crash", "close", "pause", "busy", "cancel", "icmp", "converse", "aside", "rounds", "think",
	"blackout", "hole", "loss", "burst", "drop", "path", "reorder", "reverse", "duplicate", "corrupt", "truncate", "pad", "spike", "jitter", "ce", "rate", "trim",
	"config", "psn", "samerandom", "driver", "gro", "wake", "buffer", "paths", "mtu", "ipv6", "nocrc", "secure", "rekey", "standard", "credit",
	"datagram", "lie", "crowd", "read", "add", "write", "slate", "defer", "lend", "inject", "iov", "ordered", "silent", "data", "level", "wrongri", "small", "big", "shut", "unregister", "endpoints", "abandon",
}

// Generate makes the scenario of a seed.
func Generate(seed uint64) *Scenario {
	rng := rand.New(rand.NewPCG(seed, 0x7363656e))
	g := &generator{rng: rng, sc: &Scenario{}}
	sc := g.sc
	sc.Spec.Seed = seed
	sc.Spec.MaxPackets = 600_000
	sc.Kinds = kinds
	n := 2
	if p := rng.IntN(20); p >= 14 {
		n = 3 + p/19*(1+rng.IntN(3))
	}
	sc.Heal = time.Duration(5+rng.IntN(100)) * time.Millisecond
	if g.chance(0.3) {
		sc.Heal = time.Duration(200+rng.IntN(3000)) * time.Millisecond
	}
	sc.Spec.IPv6 = g.chance(0.3)
	sc.Spec.NoCRC = g.chance(0.1)
	sc.Spec.ICMP = g.chance(0.5)
	sc.Spec.SameRandom = g.chance(0.15)
	for range n {
		sc.Spec.Hosts = append(sc.Spec.Hosts, g.host())
	}
	base := g.faults()
	for i := range n {
		row := make([]sim.Faults, n)
		for j := range n {
			row[j] = base
			if g.chance(0.2) {
				row[j] = g.faults()
			}
			if i != j && g.chance(0.1) {
				// One direction of a path may be worse than the other.
				row[j].Loss = min(1, row[j].Loss*2)
			}
			row[j].Delay = base.Delay
		}
		sc.Lines = append(sc.Lines, row)
	}
	g.traffic(n)
	g.disasters(n)
	g.converse()
	g.secure()
	g.trim()
	g.endpoints()
	g.abandon(n)
	g.encapsulate()
	g.reads(n)
	g.adds(n)
	g.boards(n)
	g.unregister()
	g.deferrables()
	g.lendings()
	g.idempotents()
	g.smalls()
	g.accessFences()
	g.slates(n)
	g.busy()
	g.credit()
	g.datagrams()
	slices.SortStableFunc(sc.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return sc
}

// encapsulate gives a fifth of the scenarios Standard encapsulation, half of these with hosts
// that cannot repeat every entropy value.
func (g *generator) encapsulate() {
	if !g.chance(0.2) {
		return
	}
	g.sc.Spec.Encapsulation = wire.Standard
	if g.chance(0.5) {
		return
	}
	for i := range g.sc.Spec.Hosts {
		g.sc.Spec.Hosts[i].Config.Echo = func(ev uint16) bool { return ev%2 == 0 }
	}
}

// credit gives a fifth of the scenarios hosts with RCCC, beside others that do not know it.
func (g *generator) credit() {
	if !g.chance(0.2) {
		return
	}
	for i := range g.sc.Spec.Hosts {
		c := &g.sc.Spec.Hosts[i].Config
		if c.Congestion = []transport.Congestion{transport.NSCC, transport.RCCC, transport.RCCC, transport.NSCCAndRCCC}[g.rng.IntN(4)]; g.chance(0.5) {
			c.LineRate = 100_000 << g.rng.IntN(14)
		}
		if g.chance(0.5) {
			c.RecvWindow = 64<<10 + g.rng.IntN(1<<20)
		}
	}
}

type generator struct {
	rng *rand.Rand
	sc  *Scenario
}

func (g *generator) chance(p float64) bool { return g.rng.Float64() < p }

// upTo draws from [1, n]; small values are more likely.
func (g *generator) upTo(n int) int { return 1 + int(float64(n)*g.rng.Float64()*g.rng.Float64()) }

func (g *generator) dur(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(g.rng.Int64N(int64(hi-lo)+1))
}

func (g *generator) host() HostSpec {
	r := g.rng
	h := HostSpec{Paths: 1, Backlog: true, Eager: g.chance(0.3)}
	if g.chance(0.4) {
		h.Paths = 1 + r.IntN(4)
	}
	h.Node.GRO = []float64{0, 0.5, 0.9, 1}[r.IntN(4)]
	if g.chance(0.6) {
		h.Node.Wake = g.dur(0, 100*time.Microsecond)
		h.Node.TimerLate = g.dur(0, 2*time.Millisecond)
	}
	if g.chance(0.15) {
		h.Node.RecvBuffer = 64<<10 + r.IntN(400<<10)
	}
	h.Budget = 64
	if g.chance(0.2) {
		h.Budget = 1 + r.IntN(4)
	}
	h.Flush = FlushMode(r.IntN(3))
	h.FlushDelay = g.dur(0, 200*time.Microsecond)
	if g.chance(0.5) {
		h.Lazy = r.Float64()
		h.LazyDelay = g.dur(0, 50*time.Microsecond)
	}
	c := &h.Config
	c.PayloadMTU = 1024 << max(0, r.IntN(7)-3)
	c.PIDonFEP = uint16(r.IntN(0x1000))
	c.RI = uint16(1 + r.IntN(0xfff))
	c.Initiator = 1 + r.Uint32()>>1
	c.KnownPeersOnly = g.chance(0.2)
	if g.chance(0.5) {
		c.MPRange = 128 << r.IntN(5)
		c.Window = 4<<10 + r.IntN(1<<20)
		c.AckDelay = g.dur(time.Microsecond, 500*time.Microsecond)
		c.AckTrigger = 1 + r.IntN(32<<10)
		c.AckMinAdd = 1 + r.IntN(2<<10)
		c.Lanes = 1 + r.IntN(3)
		c.ShortMessage = 1 + r.IntN(32<<10)
		c.OpenPerPeer = 1 + r.IntN(64)
	}
	if g.chance(0.2) {
		c.MaxSends = 1 + r.IntN(8)
	}
	if g.chance(0.3) {
		// Little room: unexpected messages are refused and sent again.
		c.UnexpectedMsgs = 1 + r.IntN(8)
		c.UnexpectedBytes = int64(64<<10 + r.IntN(1<<20))
		c.UnexpectedShare = 0.25 + 0.75*r.Float64()
	}
	if g.chance(0.3) {
		// PDCs that close and open again in the middle of everything.
		c.IdleClose = g.dur(time.Millisecond, 200*time.Millisecond)
	}
	switch back := uint32(r.IntN(200)); {
	case g.sc.Spec.SameRandom:
		// The next life has the same PDCIDs, as F13 fears. That it has the same Start_PSN, too,
		// is a chance that unsecured peers live with.
		psns := rand.New(rand.NewPCG(r.Uint64(), 0))
		c.StartPSN = func() wire.PSN { return wire.PSN(psns.Uint32()) }
	case g.chance(0.2):
		c.StartPSN = func() wire.PSN { return wire.PSN(-back) } // about to wrap
		g.sc.Spec.StartPSNFixed = true
	}
	return h
}

func (g *generator) faults() sim.Faults {
	r := g.rng
	f := sim.Faults{Delay: g.dur(time.Microsecond, 100*time.Microsecond), InOrder: true}
	if g.chance(0.3) {
		f.Delay = g.dur(0, 20*time.Millisecond)
	}
	if g.chance(0.15) {
		return f // a clean network
	}
	if g.chance(0.4) {
		f.Loss = []float64{0.01, 0.05, 0.2, 0.3}[r.IntN(4)] * r.Float64()
	}
	if g.chance(0.2) {
		f.Burst = sim.Burst{Enter: 0.05 * r.Float64(), Leave: 1 / float64(3+r.IntN(98)), Loss: 0.5 + r.Float64()/2, Max: g.dur(0, 100*time.Millisecond)}
	}
	if g.chance(0.3) {
		for range 1 + r.IntN(4) {
			f.Drop = append(f.Drop, uint64(g.upTo(40)-1))
		}
	}
	if g.chance(0.15) {
		from := g.dur(0, g.sc.Heal)
		f.Blackouts = []sim.Window{{From: sim.Start + from, To: sim.Start + from + g.dur(0, 2*time.Second)}}
	}
	if g.chance(0.3) {
		f.Reorder, f.ReorderBy = 0.3*r.Float64(), g.upTo(32)
	}
	if g.chance(0.15) {
		f.Reverse, f.ReverseLen = 0.1*r.Float64(), 2+g.upTo(200)
		f.ReorderHold = g.dur(time.Millisecond, 30*time.Millisecond)
	}
	if g.chance(0.3) {
		f.Duplicate, f.DuplicateMax = 0.5*r.Float64(), g.upTo(10)
		f.DuplicateLate = g.dur(0, time.Millisecond)
		if g.chance(0.3) {
			f.DuplicateLate = g.dur(0, 3500*time.Millisecond) // up to Quarantine, delays taken off
		}
	}
	if !g.sc.Spec.NoCRC {
		if g.chance(0.3) {
			f.Corrupt, f.CorruptBits = 0.3*r.Float64()*r.Float64(), g.upTo(20)
		}
		if g.chance(0.2) {
			f.Truncate = 0.1 * r.Float64()
		}
		if g.chance(0.2) {
			f.Pad = 0.1 * r.Float64()
		}
	}
	if g.chance(0.3) {
		f.Jitter, f.InOrder = g.dur(0, 2*time.Millisecond), g.chance(0.3)
	}
	if g.chance(0.1) {
		f.Spike, f.SpikeDelay = 0.02*r.Float64(), g.dur(0, time.Second)
	}
	if g.chance(0.3) {
		f.CE = r.Float64()
	}
	if g.chance(0.25) {
		f.Rate = int64(1_000_000 + r.IntN(100_000_000))
		f.Queue = 64<<10 + r.IntN(1<<20)
		f.Mark = r.IntN(64 << 10)
	}
	if g.chance(0.15) {
		for range 4 {
			p := sim.PathFaults{}
			switch r.IntN(4) {
			case 0:
				p.Delay = g.dur(0, 5*time.Millisecond)
			case 1:
				p.Loss = r.Float64()
			}
			f.Paths = append(f.Paths, p)
		}
	}
	for g.chance(0.25) {
		// Any path carries 1024 bytes of payload in a secured packet over IPv6.
		from := g.dur(0, g.sc.Heal)
		if g.chance(0.5) {
			from = 0
		}
		f.Holes = append(f.Holes, sim.Hole{Window: sim.Window{From: sim.Start + from, To: sim.Start + from + g.dur(0, 3*time.Second)}, MTU: 1280 + r.IntN(250<<r.IntN(6))})
	}
	return f
}

// size draws a message length: mostly small, often at a limit.
func (g *generator) size(budget *int) int {
	r := g.rng
	n := 0
	switch p := r.IntN(100); {
	case p < 8:
		n = 0
	case p < 45:
		n = r.IntN(65)
	case p < 60:
		n = []int{1, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 8191, 8192, 8193, 16384, 16385, 65536}[r.IntN(17)]
	case p < 80:
		n = r.IntN(4 << 10)
	case p < 95:
		n = r.IntN(64 << 10)
	case p < 99:
		n = r.IntN(256 << 10)
	default:
		n = r.IntN(600 << 10)
	}
	if n > *budget {
		n = r.IntN(64)
	}
	*budget -= n
	return n
}

func (g *generator) add(s Step) int {
	s.N = len(g.sc.Steps)
	g.sc.Steps = append(g.sc.Steps, s)
	return s.N
}

// traffic adds the sends and, for each, how its receiver prepares.
func (g *generator) traffic(n int) {
	r := g.rng
	sends := 4 + g.upTo(120)
	budget := 1 << 20
	switch {
	case g.chance(0.1):
		sends, budget = 300, 6<<20 // a large message now and then
	case g.chance(0.1):
		sends = 1 + r.IntN(4) // few enough for a reader to follow
	}
	rodShare := []float64{0, 0.2, 0.5, 1}[r.IntN(4)]
	classes := 1 + r.IntN(4)
	oneWay := g.chance(0.3)
	for range sends {
		from := r.IntN(n)
		to := (from + 1 + r.IntN(n-1)) % n
		if oneWay {
			from, to = 1+r.IntN(n-1), 0
		}
		// Mostly at the beginning, to be in flight when the faults strike.
		at := time.Duration(float64(g.sc.Heal) * r.Float64() * r.Float64())
		s := OpSpec{Kind: transport.OpSend, Peer: to, Len: g.size(&budget), Ordered: g.chance(rodShare)}
		if g.chance(0.6) {
			s.Kind = transport.OpTSend
			s.Class = uint8(r.IntN(classes))
		}
		s.HasData = g.chance(0.2)
		s.Inject = g.chance(0.15) && s.Len <= 4096
		s.Silent = g.chance(0.1)
		s.Level = []transport.Level{0, transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery}[r.IntN(4)]
		s.Absolute = g.chance(0.1)
		s.WrongRI = g.chance(0.01)
		if g.chance(0.2) {
			s.Pieces = 1 + r.IntN(4)
		}
		if s.Level == transport.LevelDelivery && len(g.sc.Steps)%3 == 0 {
			s.Level = transport.LevelMatch // without a draw, so that seeds keep the rest of their scenarios
		}
		id := g.add(Step{At: at, Host: from, Kind: "post", Op: s})
		if g.chance(0.05) {
			g.add(Step{At: at + g.dur(0, time.Millisecond), Host: from, Kind: "cancel", Of: id})
		}
		// The receiver posts before, after, or not at all (Settle drains).
		if s.WrongRI || g.chance(0.2) {
			continue
		}
		q := OpSpec{Kind: transport.OpRecv, Peer: Any, Len: s.Len, Class: s.Class}
		if s.tagged() {
			q.Kind = transport.OpTRecv
			q.AnyClass = g.chance(0.15)
		}
		if g.chance(0.4) {
			q.Peer, q.BySource = from, g.chance(0.5)
		}
		switch {
		case g.chance(0.1):
			q.Len = r.IntN(q.Len + 1) // too small, perhaps
		case g.chance(0.5):
			q.Len += g.upTo(64 << 10)
		}
		if g.chance(0.2) {
			q.Pieces = 1 + r.IntN(4)
		}
		switch r.IntN(3) {
		case 0:
			at = 0
		case 1:
			at = g.dur(0, g.sc.Heal)
		}
		id = g.add(Step{At: at, Host: to, Kind: "post", Op: q})
		if g.chance(0.05) {
			g.add(Step{At: at + g.dur(0, g.sc.Heal), Host: to, Kind: "cancel", Of: id})
		}
	}
}

// disasters adds what happens to hosts.
func (g *generator) disasters(n int) {
	heal := g.sc.Heal
	for i := range n {
		switch {
		case g.chance(0.1):
			for range g.upTo(3) {
				at := g.dur(0, heal)
				g.add(Step{At: at, Host: i, Kind: "pause"})
				g.add(Step{At: min(at+g.dur(0, time.Second), heal), Host: i, Kind: "resume"})
			}
		case g.chance(0.1):
			at := g.dur(0, heal)
			for range g.upTo(4) {
				g.add(Step{At: at, Host: i, Kind: "crash", ICMP: g.chance(0.5)})
				if g.chance(0.2) {
					break // gone for good
				}
				at += g.dur(0, 100*time.Millisecond)
				g.add(Step{At: at, Host: i, Kind: "restart"})
				at += g.dur(0, heal)
				if at > heal {
					break
				}
			}
		case g.chance(0.06):
			at := g.dur(0, heal)
			g.add(Step{At: at, Host: i, Kind: "close"})
			if g.chance(0.5) {
				g.add(Step{At: at + g.dur(0, 10*time.Millisecond), Host: i, Kind: "restart"})
			}
		}
	}
}

// secure seals every packet in some scenarios. It draws from random numbers of its own, so that
// the rest of a seed's scenario stays the same.
func (g *generator) secure() {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x747373))
	if sc.Spec.NoCRC || rng.Float64() >= 0.3 {
		return
	}
	sc.Spec.Secure = transport.SecureZeroRTT
	again := slices.ContainsFunc(sc.Steps, func(s Step) bool { return s.Kind == "restart" || s.again() })
	if again || rng.Float64() < 0.5 {
		sc.Spec.Secure = transport.SecureOneRTT
	}
	if rng.Float64() < 0.4 {
		// F33: all hosts can open with the new key before one seals with it.
		at := time.Duration(rng.Int64N(int64(sc.Heal) + 1))
		for i := range sc.Spec.Hosts {
			g.add(Step{At: at, Host: i, Kind: "newkey"})
			g.add(Step{At: at + time.Duration(rng.Int64N(int64(150*time.Millisecond))), Host: i, Kind: "usekey"})
		}
	}
}

// endpoints gives each host more than one endpoint in some scenarios, and closes some of them
// on the way. Like secure it draws from random numbers of its own.
func (g *generator) endpoints() {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x656e6470))
	if rng.Float64() >= 0.15 {
		return
	}
	more := 1 + rng.IntN(3)
	for i := range sc.Spec.Hosts {
		h := &sc.Spec.Hosts[i]
		for k := range more {
			e := transport.EndpointConfig{Identity: h.Config.Identity, MaxSends: h.Config.MaxSends}
			e.JobID, e.Initiator = 1, e.Initiator^uint32(1+k)
			if rng.IntN(2) == 0 {
				e.PIDonFEP ^= uint16(1 + k)
			} else {
				e.RI ^= uint16(1 + k)
			}
			h.More = append(h.More, e)
			if rng.Float64() < 0.15 {
				g.add(Step{At: time.Duration(rng.Int64N(int64(sc.Heal) + 1)), Host: i, Kind: "shut", Op: OpSpec{From: transport.EndpointID(1 + k)}})
			}
		}
	}
	for i := range sc.Steps {
		if s := &sc.Steps[i]; s.Kind == "post" {
			s.Op.From = transport.EndpointID(rng.IntN(more + 1))
			if s.Op.send() {
				s.Op.To = transport.EndpointID(rng.IntN(more + 1))
			}
		}
	}
}

// busy makes hosts share their processor in some scenarios. Like secure it draws from random
// numbers of its own.
func (g *generator) busy() {
	rng := rand.New(rand.NewPCG(g.sc.Spec.Seed, 0x62757379))
	if rng.Float64() >= 0.2 {
		return
	}
	upTo := func(least, most time.Duration) [2]time.Duration {
		return [2]time.Duration{least, least + time.Duration(rng.Int64N(int64(most-least)+1))}
	}
	for i := range g.sc.Spec.Hosts {
		h := &g.sc.Spec.Hosts[i]
		if rng.Float64() < 0.6 {
			h.Busy = sim.Slices{Run: upTo(50*time.Microsecond, 4*time.Millisecond), Away: upTo(time.Millisecond, 20*time.Millisecond)}
			h.Notices = rng.Float64() < 0.5
		}
	}
}

// abandon makes hosts give others up in some scenarios. Like secure it draws from random numbers
// of its own.
func (g *generator) abandon(n int) {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x6162616e))
	if rng.Float64() >= 0.1 {
		return
	}
	for range 1 + rng.IntN(3) {
		from := rng.IntN(n)
		to := (from + 1 + rng.IntN(n-1)) % n
		g.add(Step{At: time.Duration(rng.Int64N(int64(sc.Heal) + 1)), Host: from, Kind: "abandon", Op: OpSpec{Peer: to}})
	}
}

// trim makes switches trim in some scenarios, and most of the hosts expect it. Like secure it
// draws from random numbers of its own.
func (g *generator) trim() {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x7472696d))
	if sc.Spec.NoCRC || rng.Float64() >= 0.35 {
		return
	}
	for i := range sc.Spec.Hosts {
		c := &sc.Spec.Hosts[i].Config
		if c.Trimming = rng.Float64() < 0.9; rng.Float64() < 0.3 {
			c.DSCP = transport.DefaultClasses.Trimmable // packets of hosts that do not expect it are cut, too
		}
	}
	share, shareRTX := rng.Float64()*rng.Float64(), 0.3*rng.Float64()*rng.Float64()
	if rng.Float64() < 0.1 {
		share = 1 // every packet sent for the first time
	}
	for i := range sc.Lines {
		for j := range sc.Lines[i] {
			t := Trim(rng.Float64() < 0.5)
			t.Keep = 12 + rng.IntN(80)
			if rng.Float64() < 0.7 {
				t.Share, t.ShareRTX = share, shareRTX
			}
			f := &sc.Lines[i][j]
			if rng.Float64() < 0.5 {
				f.Rate, f.Queue = int64(1_000_000+rng.IntN(100_000_000)), 128<<10
				t.After = 1 + rng.IntN(64<<10)
			}
			f.Trim = t
		}
	}
}

// Trim returns the code points by which a line trims, on the last hop or before it. The caller
// adds which packets it trims.
func Trim(lastHop bool) sim.Trim {
	c := &transport.DefaultClasses
	t := sim.Trim{Trimmable: c.Trimmable, TrimmableRTX: c.TrimmableRTX, As: c.Trimmed, Control: c.Control}
	if lastHop {
		t.As = c.TrimmedLastHop
	}
	return t
}

// Without removes one kind of thing from the scenario.
func (sc *Scenario) Without(kind string) {
	each := func(f func(*sim.Faults)) {
		for i := range sc.Lines {
			for j := range sc.Lines[i] {
				f(&sc.Lines[i][j])
			}
		}
	}
	hosts := func(f func(*HostSpec)) {
		for i := range sc.Spec.Hosts {
			f(&sc.Spec.Hosts[i])
		}
	}
	ops := func(f func(*OpSpec)) {
		for i := range sc.Steps {
			f(&sc.Steps[i].Op)
		}
		for i := range sc.GramSteps {
			f(&sc.GramSteps[i].Op)
		}
	}
	talks := func(f func(*Talk)) {
		for i := range sc.Steps {
			f(&sc.Steps[i].Talk)
		}
	}
	steps := func(kinds ...string) {
		of := func(s Step) bool { return slices.Contains(kinds, s.Kind) }
		sc.Steps, sc.GramSteps = slices.DeleteFunc(sc.Steps, of), slices.DeleteFunc(sc.GramSteps, of)
	}
	switch kind {
	case "crash":
		steps("crash")
		sc.withoutAsides("crash")
		closed := false
		for _, s := range slices.Concat(sc.Steps, sc.GramSteps) {
			closed = closed || s.Kind == "close"
		}
		if !closed {
			steps("restart")
		}
	case "close":
		steps("close")
		sc.withoutAsides("close")
	case "pause":
		steps("pause", "resume")
	case "busy":
		hosts(func(h *HostSpec) { h.Busy, h.Notices = sim.Slices{}, false })
	case "cancel":
		steps("cancel")
	case "abandon":
		steps("abandon")
	case "icmp":
		sc.Spec.ICMP = false
	case "converse":
		steps("converse", "aside")
	case "aside":
		steps("aside")
	case "rounds":
		talks(func(t *Talk) { t.Rounds = min(t.Rounds, 50) })
	case "think":
		talks(func(t *Talk) { t.Think = 0 })
	case "blackout":
		each(func(f *sim.Faults) { f.Blackouts = nil })
	case "hole":
		each(func(f *sim.Faults) { f.Holes = nil })
	case "loss":
		each(func(f *sim.Faults) { f.Loss = 0 })
	case "burst":
		each(func(f *sim.Faults) { f.Burst = sim.Burst{} })
	case "drop":
		each(func(f *sim.Faults) { f.Drop = nil })
	case "path":
		each(func(f *sim.Faults) { f.Paths = nil })
	case "reorder":
		each(func(f *sim.Faults) { f.Reorder = 0 })
	case "reverse":
		each(func(f *sim.Faults) { f.Reverse = 0 })
	case "duplicate":
		each(func(f *sim.Faults) { f.Duplicate = 0 })
	case "corrupt":
		each(func(f *sim.Faults) { f.Corrupt = 0 })
	case "truncate":
		each(func(f *sim.Faults) { f.Truncate = 0 })
	case "pad":
		each(func(f *sim.Faults) { f.Pad = 0 })
	case "spike":
		each(func(f *sim.Faults) { f.Spike = 0 })
	case "jitter":
		each(func(f *sim.Faults) { f.Jitter = 0 })
	case "ce":
		each(func(f *sim.Faults) { f.CE, f.Mark = 0, 0 })
	case "rate":
		each(func(f *sim.Faults) { f.Rate, f.Queue = 0, 0 })
	case "trim":
		each(func(f *sim.Faults) { f.Trim = sim.Trim{} })
		hosts(func(h *HostSpec) { h.Config.Trimming, h.Config.DSCP = false, 0 })
	case "config":
		hosts(func(h *HostSpec) {
			c := transport.Config{Trimming: h.Config.Trimming, DSCP: h.Config.DSCP, PayloadMTU: h.Config.PayloadMTU}
			c.Identity = transport.Identity{PIDonFEP: h.Config.PIDonFEP, RI: h.Config.RI, Initiator: h.Config.Initiator}
			c.StartPSN = h.Config.StartPSN
			h.Config = c
		})
	case "psn":
		if !sc.Spec.SameRandom {
			hosts(func(h *HostSpec) { h.Config.StartPSN = nil })
		}
	case "samerandom":
		sc.Spec.SameRandom = false
	case "driver":
		hosts(func(h *HostSpec) { h.Budget, h.Flush, h.Lazy, h.Eager = 64, FlushTurn, 0, false })
	case "gro":
		hosts(func(h *HostSpec) { h.Node.GRO = 0 })
	case "wake":
		hosts(func(h *HostSpec) { h.Node.Wake, h.Node.TimerLate = 0, 0 })
	case "buffer":
		hosts(func(h *HostSpec) { h.Node.RecvBuffer = 0 })
	case "paths":
		hosts(func(h *HostSpec) { h.Paths = 1 })
	case "mtu":
		hosts(func(h *HostSpec) { h.Config.PayloadMTU = 1024 })
	case "ipv6":
		sc.Spec.IPv6 = false
	case "rekey":
		steps("newkey", "usekey")
	case "secure":
		steps("newkey", "usekey")
		sc.Spec.Secure = transport.SecureNone
	case "credit":
		for i := range sc.Spec.Hosts {
			sc.Spec.Hosts[i].Config.Congestion = transport.NSCC
		}
	case "standard":
		sc.Spec.Encapsulation = wire.Symmetric
	case "nocrc":
		sc.Spec.NoCRC = false
	case "datagram":
		sc.Grams, sc.GramSteps = 0, nil
	case "lie":
		steps("lie")
	case "crowd":
		sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Op.Class == crowdClass })
	case "unregister":
		steps("unregister")
	case "shut":
		steps("shut")
	case "endpoints":
		steps("shut")
		hosts(func(h *HostSpec) { h.More = nil })
		ops(func(o *OpSpec) { o.From, o.To = 0, 0 })
	case "inject":
		ops(func(o *OpSpec) { o.Inject = false })
	case "iov":
		ops(func(o *OpSpec) { o.Pieces = 0 })
	case "ordered":
		ops(func(o *OpSpec) { o.Ordered = o.Slate })
	case "silent":
		ops(func(o *OpSpec) { o.Silent = false })
	case "data":
		ops(func(o *OpSpec) { o.HasData = false })
	case "level":
		ops(func(o *OpSpec) {
			if o.send() {
				o.Level = transport.LevelTransmit
			}
		})
	case "lend":
		for i := range sc.Spec.Hosts {
			sc.Spec.Hosts[i].Config.RendezvousMin = 0
		}
	case "defer":
		for i := range sc.Spec.Hosts {
			sc.Spec.Hosts[i].Config.DeferrableMin = -1
		}
	case "read":
		sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Op.Kind == transport.OpRead })
	case "write":
		sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Op.writes() })
	case "slate":
		sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Op.Slate })
	case "add":
		sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool { return s.Op.adds() })
	case "wrongri":
		ops(func(o *OpSpec) { o.WrongRI = false })
	case "small":
		ops(func(o *OpSpec) {
			if o.send() {
				o.Len = min(o.Len, 8)
			}
		})
	case "big":
		ops(func(o *OpSpec) {
			if o.send() {
				o.Len = min(o.Len, 3000)
			}
		})
	default:
		panic("simtest: nothing is called " + kind)
	}
}

// Keep removes all steps but these.
func (sc *Scenario) Keep(steps []int) {
	other := func(s Step) bool { return !slices.Contains(steps, s.N) }
	sc.Steps, sc.GramSteps = slices.DeleteFunc(sc.Steps, other), slices.DeleteFunc(sc.GramSteps, other)
}

// A Variant names a part of a seed's scenario.
type Variant struct {
	Seed    uint64
	Without []string
	Keep    []int // nil: all
	Lie     bool  // with a host that lies
	Crowd   bool  // with more short messages than a window holds
}

// Scenario makes the scenario of the variant.
func (v Variant) Scenario() *Scenario {
	sc := Generate(v.Seed)
	if v.Lie {
		sc.Lie()
	}
	if v.Crowd {
		sc.Crowd()
	}
	for _, k := range v.Without {
		sc.Without(k)
	}
	if v.Keep != nil {
		sc.Keep(v.Keep)
	}
	return sc
}

// Args returns the flags of TestSwarm that repeat the variant.
func (v Variant) Args() string {
	s := fmt.Sprintf("-seed %d", v.Seed)
	if v.Lie {
		s += " -lie"
	}
	if v.Crowd {
		s += " -crowd"
	}
	if len(v.Without) > 0 {
		s += " -without " + strings.Join(v.Without, ",")
	}
	if v.Keep != nil {
		s += " -keep " + strings.Trim(strings.ReplaceAll(fmt.Sprint(v.Keep), " ", ","), "[]")
	}
	return s
}

// Coverage counts what a run has done of what not every run does.
type Coverage struct {
	Lent, Read, Deferred    int // messages that were announced; of these, those of which bytes were read; messages that were put off
	RUDI                    int // answers of RUDI that came
	Commits, Reads, Fetches int // commits that a target made; reads and fetching atomic operations that succeeded
	Grams, GramCopies       int // datagrams that were received; copies that came of one that had come
	GramCancels             int // datagrams that were cancelled before they left
}

// Add adds what another run has done.
func (c *Coverage) Add(d *Coverage) {
	c.Lent, c.Read, c.Deferred = c.Lent+d.Lent, c.Read+d.Read, c.Deferred+d.Deferred
	c.RUDI, c.Commits, c.Reads, c.Fetches = c.RUDI+d.RUDI, c.Commits+d.Commits, c.Reads+d.Reads, c.Fetches+d.Fetches
	c.Grams, c.GramCopies, c.GramCancels = c.Grams+d.Grams, c.GramCopies+d.GramCopies, c.GramCancels+d.GramCancels
}

// All reports whether nothing is missing.
func (c *Coverage) All() bool {
	return min(c.Lent, c.Read, c.Deferred, c.RUDI, c.Commits, c.Reads, c.Fetches, c.Grams, c.GramCopies, c.GramCancels) > 0
}

// Result is the outcome of a run.
type Result struct {
	Hash    uint64
	Packets int
	Trimmed int // datagrams that came trimmed
	Lagged  int // messages that asked for no ACK
	LagRow  int // the most of them in a row
	Void    int // packets in place of others that a path does not carry (F7)
	Small   int // requests with the small header
	Tallied int // receives that an atomic operation has ended
	Ops     int
	Did     Coverage
	// TurnedAway are the messages that were answered NO_MATCH.
	TurnedAway int
	// Dealings are the operations with the liar (Scenario.Lie), Refused those that a target refused.
	Dealings, Refused int
	// Told, Lent and PutOff are the messages among honest hosts, with a liar, that were received, announced, and asked for again.
	Told, Lent, PutOff int
	GramLies           int // datagrams of the liar that were received
	Bytes              int // bytes of messages received
	Virtual            time.Duration
	Err                error // a *Violation or a panic
	Stats              transport.Stats
}

// Holes reports whether a path has a hole at some time.
func (sc *Scenario) Holes() bool {
	for _, row := range sc.Lines {
		for i := range row {
			if len(row[i].Holes) > 0 {
				return true
			}
		}
	}
	return false
}

// Run runs a scenario to its end. trace may be nil.
func Run(sc *Scenario, trace io.Writer) (res Result) {
	var w *World
	defer func() {
		if w != nil {
			res.Hash, res.Packets, res.Ops, res.Virtual = w.Hash(), w.packets, len(w.ops), w.Net.Now()-sim.Start
			res.Trimmed, res.Lagged, res.LagRow = w.cut, w.lagged, w.lagRow
			for _, h := range w.Hosts {
				if res.Tallied += h.Tallied; h.FEP != nil {
					res.TurnedAway += int(h.FEP.Stats().Answers[wire.RCNoMatch])
				}
			}
			res.Void, res.Small = w.void, w.small
			res.Did = w.did
			res.Dealings, res.Refused = len(w.dealings), w.refusals
			res.Told, res.Lent, res.PutOff = w.cameAmong, w.lentAmong, w.putOff
			res.GramLies = w.gramLies
		}
		switch p := recover().(type) {
		case nil:
		case *Violation:
			res.Err = p
		default:
			at := time.Duration(0)
			tail := ""
			if w != nil {
				at, tail = w.Net.Now(), w.Tail(40)
			}
			res.Err = &Violation{What: fmt.Sprintf("panic: %v\n%s", p, debug.Stack()), At: at, Tail: tail}
		}
	}()
	spec := sc.Spec
	spec.Trace = trace
	w = NewWorld(nil, spec)
	for i := range w.Hosts {
		for j := range w.Hosts {
			if i != j {
				f := sc.Lines[i][j]
				if spec.Liar && i == len(w.Hosts)-1 {
					f.Filter = w.rewrites(sc.Lying, uint64(j))
				}
				w.Line(i, j).SetFaults(f)
			}
		}
	}
	if sc.Grams > 0 {
		w.addGrams(sc.Grams, sc.Lines)
	}
	posted := map[int]any{}
	for _, s := range sc.GramSteps {
		w.Net.At(sim.Start+s.At, func() { w.stepGram(&s, posted) })
	}
	ops := map[int]*Op{}
	asides := sc.asides()
	for _, s := range sc.Steps {
		w.Net.At(sim.Start+s.At, func() {
			if s.Kind == "converse" {
				w.begin(&s, asides[s.N])
			} else {
				w.step(&s, ops)
			}
		})
	}
	w.Net.At(sim.Start+sc.Heal, func() {
		w.Heal()
		for _, h := range w.Hosts {
			h.Node.Resume()
		}
		for _, h := range w.grams {
			h.node.Resume()
		}
	})
	w.Run(sc.Heal + 200*time.Millisecond) // restarts come up to 100 ms later
	w.Settle(20 * time.Second)
	for _, o := range w.ops {
		if o.match != nil {
			res.Bytes += o.Event.Len
		}
	}
	return res
}

func (w *World) step(s *Step, ops map[int]*Op) {
	h := w.Hosts[s.Host]
	switch s.Kind {
	case "post":
		if h.Up() {
			ops[s.N] = h.Post(s.Op)
		}
	case "cancel":
		if o := ops[s.Of]; o != nil && h.Up() && !h.Node.IsPaused() && o.postSeq != 0 {
			h.Cancel(o)
		}
	case "pause":
		w.note("%s is paused", h.Name())
		h.Node.Pause()
	case "resume":
		w.note("%s goes on", h.Name())
		h.Node.Resume()
	case "crash":
		if h.FEP != nil {
			h.Crash(s.ICMP)
		}
	case "restart":
		if !h.Up() {
			h.Restart()
		}
	case "newkey":
		h.NewKey()
	case "usekey":
		h.UseKey()
	case "abandon":
		if h.Up() && !h.Node.IsPaused() {
			h.Abandon(s.Op.Peer)
		}
	case "lie":
		w.lie(s.N)
	case "unregister":
		if h.Up() && !h.Node.IsPaused() {
			h.Unregister()
		}
	case "shut":
		if h.Up() && !h.Node.IsPaused() {
			if s.At&1 != 0 {
				h.ReleaseEndpoint(s.Op.From)
			} else {
				h.CloseEndpoint(s.Op.From)
			}
		}
	case "close":
		if h.Up() && !h.Node.IsPaused() {
			h.Close()
		}
	}
}

// sameKind reports whether two failures are of one kind: equal except for numbers and names.
func sameKind(a, b error) bool {
	shape := func(err error) string {
		s := err.Error()
		if v, ok := err.(*Violation); ok {
			s, _, _ = strings.Cut(v.What, "\n")
		}
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
				return -1
			}
			return r
		}, s[:min(len(s), 40)])
	}
	return shape(a) == shape(b)
}

// Shrink looks for the smallest variant of a failing seed that still fails in the same way, by
// removing one thing after another. stop ends the search.
func Shrink(v Variant, err error, stop func() bool) Variant {
	return shrink(v, func(v Variant) error {
		if e := Run(v.Scenario(), nil).Err; e != nil && sameKind(e, err) {
			return e
		}
		return nil
	}, stop)
}

func shrink(v Variant, run func(Variant) error, stop func() bool) Variant {
	fails := func(v Variant) bool { return !stop() && run(v) != nil }
	for _, k := range kinds {
		if slices.Contains(v.Without, k) {
			continue
		}
		if u := (Variant{v.Seed, append(slices.Clone(v.Without), k), v.Keep, v.Lie, v.Crowd}); fails(u) {
			v = u
		}
	}
	keep := v.Keep
	if keep == nil {
		sc := v.Scenario()
		for _, s := range slices.Concat(sc.Steps, sc.GramSteps) {
			keep = append(keep, s.N)
		}
	}
	for chunk := (len(keep) + 1) / 2; chunk >= 1; chunk /= 2 {
		for i := 0; i < len(keep); {
			less := append(slices.Clone(keep[:i]), keep[min(i+chunk, len(keep)):]...)
			if u := (Variant{v.Seed, v.Without, less, v.Lie, v.Crowd}); fails(u) {
				v, keep = u, less
			} else {
				i += chunk
			}
		}
	}
	for _, k := range kinds { // with fewer operations more can be removed
		if slices.Contains(v.Without, k) {
			continue
		}
		if u := (Variant{v.Seed, append(slices.Clone(v.Without), k), v.Keep, v.Lie, v.Crowd}); fails(u) {
			v = u
		}
	}
	return v
}
