package topo

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
)

// A toy is a host that counts what arrives.
type toy struct {
	node *sim.Node
	got  []netip.AddrPort // sources
}

func (x *toy) Turn(time.Duration) {
	d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	for x.node.Recv(d) {
		x.got = append(x.got, d.Remote)
	}
}

func (x *toy) Unreachable(time.Duration, netip.AddrPort) {}

// toys puts a toy on each host.
func toys(t *Topology) (all []*toy) {
	for _, n := range t.Hosts {
		x := &toy{node: n}
		n.Attach(x)
		all = append(all, x)
	}
	return all
}

// send sends a datagram from the nth port of a host, lets it arrive, and returns the lines that it took.
func send(t *Topology, from, ev, to int) (way []*sim.Line) {
	was := map[*sim.Line]uint64{}
	for _, l := range t.Net.Lines() {
		was[l] = l.Entered()
	}
	t.Hosts[from].Send(&dgram.Datagram{Data: []byte{1, 2, 3}, Remote: t.Hosts[to].Addr(), Path: ev})
	t.Net.Run(t.Net.Now() + time.Millisecond)
	for _, l := range t.Net.Lines() {
		if l.Entered() > was[l] {
			way = append(way, l)
		}
	}
	return way
}

// Every host reaches every other by as many lines as Hops says.
func TestAllPairs(t *testing.T) {
	for _, c := range []struct {
		name string
		top  *Topology
		// lines, hosts and the longest way
		lines, hosts, far int
	}{
		{"fat tree 4", FatTree(1, 4, 1, 2, Link{}), 2 * (16 + 16 + 16), 16, 6},
		{"fat tree 4, 2:1", FatTree(1, 4, 2, 2, Link{}), 2 * (16 + 16 + 8), 16, 6},
		{"leaf-spine", LeafSpine(1, 3, 5, 2, 2, Link{}), 2 * (15 + 6), 15, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := toys(c.top)
			if n := len(c.top.Net.Lines()); n != c.lines || len(all) != c.hosts {
				t.Fatalf("%d lines and %d hosts", n, len(all))
			}
			far := 0
			for from := range all {
				for to := range all {
					if from == to {
						continue
					}
					n := len(send(c.top, from, 1, to))
					if n != c.top.Hops(from, to) || len(all[to].got) != 1 {
						t.Fatalf("from %d to %d: %d lines, want %d; %d arrived", from, to, n, c.top.Hops(from, to), len(all[to].got))
					}
					far, all[to].got = max(far, n), nil
				}
			}
			if far != c.far {
				t.Errorf("the longest way has %d lines", far)
			}
		})
	}
}

// The entropy values of one pair of hosts spread over all cores, and each stays with its way.
func TestECMPSpreads(t *testing.T) {
	const evs = 512
	top := FatTree(1, 8, 1, evs, Link{})
	toys(top)
	byCore := map[string]int{}
	for ev := range evs {
		way := send(top, 0, ev, 127)
		if len(way) != 6 {
			t.Fatalf("a way of %d lines", len(way))
		}
		if !slices.Equal(way, send(top, 0, ev, 127)) {
			t.Fatalf("entropy value %d takes two ways", ev)
		}
		for _, l := range way {
			for _, c := range top.Tiers[2] {
				if l.Leads() == sim.Switch(c) {
					byCore[c.Name]++
				}
			}
		}
	}
	// 16 cores get 32 each on average, with a standard deviation of 5.5.
	for _, c := range top.Tiers[2] {
		if n := byCore[c.Name]; n < 14 || n > 54 {
			t.Errorf("%s has %d of %d", c.Name, n, evs)
		}
	}
}

// Another seed hashes in another way; the same one does not.
func TestECMPSeed(t *testing.T) {
	ways := func(seed uint64) (s string) {
		top := FatTree(seed, 4, 1, 32, Link{})
		toys(top)
		for ev := range 32 {
			for _, l := range send(top, 0, ev, 15) {
				s += l.Name + " "
			}
		}
		return s
	}
	if first, again := ways(1), ways(1); again != first || ways(2) == first {
		t.Error("the hashes do not follow the seed")
	}
}

// A dead link loses what hashes over it, and nothing else.
func TestDeadLink(t *testing.T) {
	const evs = 64
	top := FatTree(1, 4, 1, evs, Link{})
	all := toys(top)
	var ways [evs][]*sim.Line
	for ev := range evs {
		ways[ev] = send(top, 0, ev, 15)
	}
	dead := top.Tiers[1][0].Up[0]
	top.Kill(dead)
	all[15].got = nil
	lost := 0
	for ev := range evs {
		was := len(all[15].got)
		send(top, 0, ev, 15)
		hit := slices.Contains(ways[ev], dead)
		if arrived := len(all[15].got) > was; arrived == hit {
			t.Errorf("entropy value %d: arrived %v, its way is over the dead link: %v", ev, arrived, hit)
		}
		if hit {
			lost++
		}
	}
	if lost == 0 || lost == evs {
		t.Errorf("%d of %d took the link: the test does not test", lost, evs)
	}
	if n := len(send(top, 15, 1, 0)); n != 6 {
		t.Errorf("the way back has %d lines", n)
	}
}

func TestKillSwitch(t *testing.T) {
	top := LeafSpine(1, 2, 2, 2, 64, Link{})
	all := toys(top)
	top.KillSwitch(top.Tiers[1][1])
	for ev := range 64 {
		send(top, 0, ev, 3)
		send(top, 0, ev, 1)
	}
	if n := len(all[3].got); n < 16 || n > 48 {
		t.Errorf("%d of 64 arrived over one of two spines", n)
	}
	if n := len(all[1].got); n != 64 {
		t.Errorf("%d of 64 arrived below the leaf", n)
	}
}

// Nothing is made or lost on the way through a network of queues that trim and drop: each line of a
// switch gets what came in by the others.
func TestConservation(t *testing.T) {
	for _, trim := range []bool{true, false} {
		t.Run(fmt.Sprintf("trim %v", trim), func(t *testing.T) {
			l, cfg := fast, tuned
			l.Trim, cfg.Trimming = trim, trim
			top := FatTree(3, 4, 1, 16, l)
			var sent, taken, lost int
			top.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, _ *sim.Packet) {
				switch what {
				case sim.Sent:
					sent++
				case sim.Taken:
					taken++
				case sim.Lost:
					lost++
				}
			})
			m := Incast(15, 300_000)
			for i := range 8 {
				m.Flows = append(m.Flows, Flow{ID: 16 + i, Src: i, Dst: (i + 7) % 16, Start: time.Duration(i) * us, Size: 100_000})
			}
			m.Nodes = 16
			r, err := NewRun(top, Spec{Seed: 3, Config: cfg, Matrix: m})
			if err != nil {
				t.Fatal(err)
			}
			res, err := r.Play()
			if err != nil {
				t.Fatal(err)
			}
			top.Net.RunUntil(top.Net.Now()+time.Second, func() bool { return top.Net.UnderWay() == 0 })
			if sent != taken+lost || int(res.Dropped) != lost || top.Net.UnderWay() != 0 {
				t.Errorf("%d sent, %d taken, %d lost (%d), %d under way", sent, taken, lost, res.Dropped, top.Net.UnderWay())
			}
			if (res.Trimmed > 0) != trim || (lost > 0) == trim {
				t.Errorf("%d trimmed, %d lost: the test does not test", res.Trimmed, lost)
			}
			for _, f := range res.Flows {
				if f.FCT == 0 || f.Bytes != f.Size || f.Arrived == 0 || f.Arrived > f.FCT {
					t.Errorf("%+v", f)
				}
				if n := (f.Size + 4095) / 4096; f.Packets-f.Resent != n {
					t.Errorf("flow %d of %d packets sent %d, of them %d again", f.ID, n, f.Packets, f.Resent)
				}
			}
			for _, tier := range top.Tiers {
				for _, s := range tier {
					in, out := 0, 0
					for _, l := range top.Net.Lines() {
						if l.Leads() == sim.Switch(s) {
							in += int(l.Passed)
						}
					}
					for _, l := range slices.Concat(s.Up, s.Down) {
						out += int(l.Entered())
					}
					if in != out || in == 0 {
						t.Errorf("%s: %d in, %d out", s.Name, in, out)
					}
				}
			}
		})
	}
}

// The same seed gives the same run, another one another.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) *Result {
		r, err := NewRun(FatTree(seed, 4, 1, 32, fast), Spec{Seed: seed, Config: tuned, Matrix: Permutation(seed, 16, 400_000), Sample: 10 * us})
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.Play()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	a, b, c := run(5), run(5), run(6)
	if a.Hash != b.Hash || a.Events != b.Events || !slices.Equal(a.Flows, b.Flows) || !slices.Equal(a.Queues, b.Queues) {
		t.Error("two runs of a seed differ")
	}
	if a.Hash == c.Hash {
		t.Error("two seeds give the same run")
	}
}

// With a bound for the NIC no more than that and a train waits in a host, and the flow is as fast.
func TestNIC(t *testing.T) {
	for _, bound := range []int{0, 32 << 10} {
		top := FatTree(1, 4, 1, 16, fast)
		r, err := NewRun(top, Spec{Seed: 1, Config: tuned, NIC: bound, Matrix: Matrix{Nodes: 16, Flows: []Flow{{ID: 1, Src: 0, Dst: 15, Size: mega}}}})
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		top.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if what == sim.Sent {
				most = max(most, top.Up[0].Waiting())
			}
		})
		res, err := r.Play()
		if err != nil {
			t.Fatal(err)
		}
		if full := most > 32<<10+dgram.MaxTrain; full != (bound == 0) {
			t.Errorf("bound %d: %d bytes waited", bound, most)
		}
		if res.Max > res.Ideal*102/100 {
			t.Errorf("bound %d: it took %v, ideal is %v", bound, res.Max, res.Ideal)
		}
	}
}

// The ideal of an oversubscribed network is that of its narrowest part.
func TestIdeal(t *testing.T) {
	for _, c := range []struct {
		name  string
		over  int
		m     Matrix
		ideal time.Duration
	}{
		// 4,186 bytes at 12.5 GB/s take 335 ns; the round trip is 12 µs and 6 × 341 ns.
		{"one packet", 1, Matrix{16, []Flow{{ID: 1, Src: 0, Dst: 15, Size: 4096}}}, 335 + 14048},
		{"within a leaf", 1, Matrix{16, []Flow{{ID: 1, Src: 0, Dst: 1, Size: 4096}}}, 335 + 4683},
		{"four out of a pod with four cores", 1, Matrix{16, []Flow{{Src: 0, Dst: 12, Size: 4096}, {Src: 1, Dst: 13, Size: 4096}, {Src: 2, Dst: 14, Size: 4096}, {Src: 3, Dst: 15, Size: 4096}}}, 335 + 14048},
		{"four out of a pod with two cores", 2, Matrix{16, []Flow{{Src: 0, Dst: 12, Size: 4096}, {Src: 1, Dst: 13, Size: 4096}, {Src: 2, Dst: 14, Size: 4096}, {Src: 3, Dst: 15, Size: 4096}}}, 670 + 14048},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := NewRun(FatTree(1, 4, c.over, 16, fast), Spec{Seed: 1, Config: tuned, Matrix: c.m})
			if err != nil {
				t.Fatal(err)
			}
			res, err := r.Play()
			if err != nil {
				t.Fatal(err)
			}
			if d := res.Ideal - c.ideal; d < -20 || d > 20 {
				t.Errorf("the ideal is %v, want %v", res.Ideal, c.ideal)
			}
		})
	}
}
