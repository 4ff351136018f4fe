package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

const ms = time.Millisecond

// toyRun sends words both ways by stop-and-wait and returns what arrived.
func toyRun(seed uint64, f Faults, words int, bug func(*toy)) (a, b *toy, n *Net, done bool) {
	n = New(seed)
	mk := func(name, addr string) *toy {
		return &toy{net: n, node: n.AddNode(name, NodeConfig{
			Addr: netip.MustParseAddr(addr), Ports: []uint16{7}, Wake: 50 * time.Microsecond, TimerLate: ms, GRO: 0.5})}
	}
	a, b = mk("a", "10.0.0.1"), mk("b", "10.0.0.2")
	a.peer, b.peer = b.node.Addr(), a.node.Addr()
	for i := range words {
		a.words = append(a.words, fmt.Sprintf("a%d", i))
		b.words = append(b.words, fmt.Sprintf("b%d", i))
	}
	if bug != nil {
		bug(a)
		bug(b)
	}
	n.Connect(a.node, b.node, f, f)
	a.node.Attach(a)
	b.node.Attach(b)
	a.node.Kick(0)
	b.node.Kick(0)
	done = n.RunUntil(n.Now()+10*time.Minute, func() bool {
		return int(a.next) == words && int(b.next) == words
	})
	return a, b, n, done
}

// everything is a line with all faults at once.
func everything(rng *rand.Rand) Faults {
	return Faults{
		Delay: ms, Jitter: time.Duration(rng.IntN(5)) * ms, Spike: 0.01, SpikeDelay: 100 * ms,
		Rate: 1 << 20, Queue: 1 << 12, Mark: 100, CE: 0.1,
		Loss: 0.2 * rng.Float64(), Burst: Burst{Enter: 0.02, Leave: 0.2, Loss: 0.9}, Drop: []uint64{0, 3, 4},
		Blackouts: []Window{{Start + 100*ms, Start + 300*ms}},
		Reorder:   0.1, ReorderBy: 3, Reverse: 0.05, ReverseLen: 4,
		Duplicate: 0.3, DuplicateMax: 10, DuplicateLate: 50 * ms,
		Corrupt: 0.1, CorruptBits: 5, Truncate: 0.05, Pad: 0.05,
	}
}

func TestToyDeliversUnderEveryFault(t *testing.T) {
	for seed := range uint64(20) {
		f := everything(rand.New(rand.NewPCG(seed, 0)))
		a, b, _, done := toyRun(seed, f, 100, nil)
		if !done {
			t.Fatalf("seed %d: stop-and-wait did not finish: %d and %d of 100", seed, a.next, b.next)
		}
		if !slices.Equal(a.got, b.words) || !slices.Equal(b.got, a.words) {
			t.Errorf("seed %d: got %v and %v", seed, a.got, b.got)
		}
		if a.resends == 0 || a.bad == 0 {
			t.Errorf("seed %d: %d resends, %d damaged: the faults did not bite", seed, a.resends, a.bad)
		}
	}
}

func TestToyWithBugsFails(t *testing.T) {
	// The Net can do harm: some seed must catch a toy that trusts damaged bytes, or accepts a
	// repeat as a new word.
	for _, c := range []struct {
		name string
		bug  func(*toy)
	}{
		{"no checksum", func(t *toy) { t.noCRC = true }},
		{"no duplicate check", func(t *toy) { t.noDup = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			caught := false
			for seed := uint64(0); seed < 10 && !caught; seed++ {
				f := everything(rand.New(rand.NewPCG(seed, 0)))
				a, b, _, done := toyRun(seed, f, 100, c.bug)
				caught = !done || !slices.Equal(a.got, b.words) || !slices.Equal(b.got, a.words)
			}
			if !caught {
				t.Error("the bug was not seen in 10 seeds")
			}
		})
	}
}

func TestNetSameSeedSameRun(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := range uint64(5) {
		f := everything(rand.New(rand.NewPCG(seed, 0)))
		_, _, n1, _ := toyRun(seed, f, 50, nil)
		_, _, n2, _ := toyRun(seed, f, 50, nil)
		if n1.Hash() != n2.Hash() || n1.Now() != n2.Now() || n1.Steps() != n2.Steps() {
			t.Errorf("seed %d: two runs differ", seed)
		}
		hashes[n1.Hash()] = true
	}
	if len(hashes) != 5 {
		t.Errorf("5 seeds gave %d different hashes", len(hashes))
	}
}

func TestNetConservation(t *testing.T) {
	// What is sent or copied is received or lost, once, with its reason.
	f := everything(rand.New(rand.NewPCG(9, 0)))
	sent, lost, taken, copied := 0, 0, 0, 0
	p := newToyPair(9, f, f, func(c *NodeConfig) { c.RecvBuffer = 2000; c.GRO = 0.5; c.Wake = 20 * ms })
	p.Tap(func(_ time.Duration, what What, why Why, pk *Packet) {
		if what != Sent && pk.Marks&Copied != 0 {
			copied++
		}
		switch what {
		case Sent:
			sent++
		case Lost:
			lost++
			if why == WhyNone {
				t.Error("lost without a reason")
			}
		case Taken:
			taken++
		}
	})
	for i := range 3000 {
		p.At(Start+time.Duration(i)*ms/4, func() { p.send(i, 4+i%1400) })
	}
	p.Run(p.Now() + 10*time.Second)
	if sent != 3000 || sent+copied != lost+taken || p.UnderWay() != 0 {
		t.Errorf("%d sent + %d copies, %d lost + %d taken, %d under way", sent, copied, lost, taken, p.UnderWay())
	}
	var sum uint64
	for w := range numWhy {
		sum += p.Lost(w)
	}
	if int(sum) != lost {
		t.Errorf("counters say %d lost, taps %d", sum, lost)
	}
	for _, w := range []Why{WhyLoss, WhyBurst, WhyExact, WhyBlackout, WhyQueue, WhyBuffer} {
		if p.Lost(w) == 0 {
			t.Errorf("nothing was lost to %v", w)
		}
	}
}

func TestNodeSplitsAndJoinsTrains(t *testing.T) {
	p := newToyPair(1, Faults{}, Faults{}, func(c *NodeConfig) { c.GRO = 1 })
	p.a.node.Send(&dgram.Datagram{Data: []byte("aaaabbbbcc"), Seg: 4, Remote: p.b.node.Addr(), Path: 2})
	p.Run(p.Now())
	var got []string
	for _, a := range p.b.got {
		got = append(got, a.data)
		if a.segs != 3 || a.path != 0 || a.src.Port() != 5002 {
			t.Errorf("%+v", a)
		}
	}
	if !slices.Equal(got, []string{"aaaa", "bbbb", "cc"}) {
		t.Errorf("got %q", got)
	}
	// A shorter datagram ends a train. A longer one, other ECN or another source begins a new
	// one.
	p.b.got = nil
	to := p.b.node.Addr()
	for _, d := range []*dgram.Datagram{
		{Data: []byte("1111"), Remote: to}, {Data: []byte("22"), Remote: to}, {Data: []byte("33"), Remote: to},
		{Data: []byte("4444"), Remote: to}, {Data: []byte("5555"), Remote: to, TOS: dgram.CE}, {Data: []byte("6666"), Remote: to, TOS: dgram.CE, Path: 1},
	} {
		p.a.node.Send(d)
	}
	p.Run(p.Now())
	segs := ""
	for _, a := range p.b.got {
		segs += fmt.Sprint(a.segs)
	}
	if segs != "221111" {
		t.Errorf("trains of %s", segs)
	}
}

func TestNodeReceiveBuffer(t *testing.T) {
	p := newToyPair(1, Faults{}, Faults{}, func(c *NodeConfig) { c.RecvBuffer = 1000 })
	p.b.node.Pause()
	for i := range 5 {
		p.send(i, 300)
	}
	p.Run(p.Now() + time.Second)
	if len(p.b.got) != 0 || p.Lost(WhyBuffer) != 2 {
		t.Fatalf("paused node took %d, lost %d", len(p.b.got), p.Lost(WhyBuffer))
	}
	p.b.node.Resume()
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("after Resume %v", got)
	}
	if p.b.node.Paused != time.Second {
		t.Errorf("paused for %v", p.b.node.Paused)
	}
}

func TestNodePauseMakesTimersLate(t *testing.T) {
	p := newToyPair(1, Faults{}, Faults{})
	var turns []time.Duration
	p.b.turn = func(now time.Duration) { turns = append(turns, now-Start) }
	p.b.node.Timer(Start + 10*ms)
	p.b.node.Pause()
	p.Run(Start + 50*ms)
	p.b.node.Resume()
	p.b.node.Timer(Start + 70*ms)
	p.Run(Start + 100*ms)
	if !slices.Equal(turns, []time.Duration{50 * ms, 70 * ms}) {
		t.Errorf("turns at %v", turns)
	}
}

func TestNodeCrashAndRestart(t *testing.T) {
	p := newToyPair(1, Faults{Delay: 10 * ms}, Faults{Delay: 10 * ms})
	p.ICMP = true
	p.send(1, 4) // in flight at the crash
	p.Run(p.Now() + 5*ms)
	p.b.node.Timer(p.Now() + 100*ms)
	p.b.node.Crash(true)
	p.Run(p.Now() + 30*ms)
	if len(p.b.got) != 0 || p.Lost(WhyDown) != 1 {
		t.Fatalf("a crashed node received")
	}
	if len(p.a.icmp) != 1 || p.a.icmp[0] != p.b.node.Addr() {
		t.Errorf("ICMP: %v", p.a.icmp)
	}
	turns := 0
	second := &sink{node: p.b.node, turn: func(time.Duration) { turns++ }}
	p.b.node.Attach(second)
	if p.b.node.Life != 2 {
		t.Errorf("life %d", p.b.node.Life)
	}
	p.Run(p.Now() + 200*ms)
	if turns != 0 {
		t.Error("the timer of the former life fired")
	}
	p.send(2, 4)
	p.Run(p.Now() + 200*ms)
	if got := second.numbers(); !slices.Equal(got, []int{2}) {
		t.Errorf("second life received %v", got)
	}
	p.b.node.Crash(false)
	p.send(3, 4)
	p.Run(p.Now() + 50*ms)
	if len(p.a.icmp) != 1 {
		t.Error("ICMP from a host that is gone")
	}
}

func TestNodeLivelockIsCaught(t *testing.T) {
	p := newToyPair(1, Faults{}, Faults{})
	p.b.turn = func(now time.Duration) { p.b.node.Timer(now) }
	p.b.node.Kick(0)
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "turn after turn") {
			t.Errorf("recovered %v", r)
		}
	}()
	p.Run(p.Now() + time.Second)
}

func TestNetIPv6AndUnknownAddress(t *testing.T) {
	n := New(1)
	a, b := &sink{}, &sink{}
	a.node = n.AddNode("a", NodeConfig{Addr: netip.MustParseAddr("fd00::1"), Ports: []uint16{1}})
	b.node = n.AddNode("b", NodeConfig{Addr: netip.MustParseAddr("fd00::2"), Ports: []uint16{1, 2}})
	a.node.Attach(a)
	b.node.Attach(b)
	n.Connect(a.node, b.node, Faults{MTU: 60}, Faults{})
	to := netip.AddrPortFrom(b.node.Addr().Addr(), 2)
	a.node.Send(&dgram.Datagram{Data: []byte("123456789abc"), Remote: to})
	a.node.Send(&dgram.Datagram{Data: []byte("123456789abcd"), Remote: to})
	a.node.Send(&dgram.Datagram{Data: []byte("x"), Remote: netip.MustParseAddrPort("[fd00::3]:1")})
	a.node.Send(&dgram.Datagram{Data: []byte("x"), Remote: netip.MustParseAddrPort("[fd00::2]:3")})
	n.Run(n.Now())
	if len(b.got) != 1 || b.got[0].path != 1 || n.Lost(WhyMTU) != 1 || n.Lost(WhyNobody) != 2 {
		t.Errorf("got %v, lost mtu %d nobody %d", b.got, n.Lost(WhyMTU), n.Lost(WhyNobody))
	}
}

func TestNetSharedLineQueues(t *testing.T) {
	// In an incast two senders share one last hop with a rate and a queue. Its datagrams are
	// spaced by the rate, marked above Mark and dropped above Queue.
	n := New(1)
	sinks := [3]*sink{}
	for i := range sinks {
		sinks[i] = &sink{}
		sinks[i].node = n.AddNode(fmt.Sprint(i), NodeConfig{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Ports: []uint16{1}})
		sinks[i].node.Attach(sinks[i])
	}
	last := n.NewLine("last hop", Faults{Rate: 100_000, Queue: 500, Mark: 250})
	n.Route(sinks[0].node, sinks[2].node, n.NewLine("0", Faults{Delay: ms}), last)
	n.Route(sinks[1].node, sinks[2].node, n.NewLine("1", Faults{Delay: ms}), last)
	for range 3 {
		for i := range 2 {
			sinks[i].node.Send(&dgram.Datagram{Data: make([]byte, 72), Remote: sinks[2].node.Addr(), TOS: dgram.ECT0})
		}
	}
	n.Run(n.Now() + time.Second)
	var at []time.Duration
	ce := 0
	for _, a := range sinks[2].got {
		at = append(at, a.at-Start)
		if a.tos == dgram.CE {
			ce++
		}
	}
	if !slices.Equal(at, []time.Duration{2 * ms, 3 * ms, 4 * ms, 5 * ms, 6 * ms}) || n.Lost(WhyQueue) != 1 || ce != 2 {
		t.Errorf("arrivals %v, %d marked, %d dropped", at, ce, n.Lost(WhyQueue))
	}
}
