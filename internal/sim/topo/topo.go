// Package topo builds fat trees and leaf-spine networks on the simulator, puts shipping FEPs on
// their hosts, plays a traffic matrix and says how long its flows took. It is for questions of
// congestion and of paths: it counts bytes, where package simtest follows each of them, and so
// it can carry a thousand hosts.
//
// Each direction of each link is a line of its own. A switch chooses among its lines by a hash
// of the addresses and UDP ports of the datagram, as ECMP does. Nothing is rerouted: a link that
// is dead stays in the choice, as it does until a real network has noticed.
package topo

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// A Link describes both directions of a link. The zero Link is a perfect wire.
type Link struct {
	Rate  int64 // bytes per second
	Delay time.Duration
	// Queue is how many bytes may wait in a switch. What comes then is trimmed if Trim is set,
	// and dropped if not. Trimmed packets and control packets overtake, and as many bytes again
	// may wait of them.
	Queue int
	Trim  bool
	// Mark and MarkAll are where marking begins, and where each packet is marked.
	Mark, MarkAll int
}

// Slow returns the link at a share of its rate, with as much less queue.
func (l Link) Slow(share float64) Link {
	l.Rate = int64(float64(l.Rate) * share)
	l.Queue, l.Mark, l.MarkAll = int(float64(l.Queue)*share), int(float64(l.Mark)*share), int(float64(l.MarkAll)*share)
	return l
}

// faults returns the faults of a line that leaves a switch. lastHop says that it leads to a host.
func (l Link) faults(lastHop bool) sim.Faults {
	f := sim.Faults{Rate: l.Rate, Delay: l.Delay, InOrder: true, Queue: l.Queue, Mark: l.Mark, MarkAll: l.MarkAll}
	if l.Trim {
		c := &transport.DefaultClasses
		f.Trim = sim.Trim{Trimmable: c.Trimmable, TrimmableRTX: c.TrimmableRTX, As: c.Trimmed, Control: c.Control, After: l.Queue, AfterRTX: l.Queue}
		if lastHop {
			f.Trim.As = c.TrimmedLastHop
		}
		f.Queue = 2 * l.Queue
	}
	return f
}

// nic returns the faults of the line that leaves a host. It drops, trims and marks nothing; control
// packets overtake if the switches let them.
func (l Link) nic() sim.Faults {
	f := l.faults(false)
	f.Queue, f.Mark, f.MarkAll = 0, 0, 0
	if l.Trim {
		f.Trim.After, f.Trim.AfterRTX = 1<<50, 1<<50
	}
	return f
}

// A Topology is hosts and the switches between them.
type Topology struct {
	Net   *sim.Net
	Hosts []*sim.Node
	// Tiers are the switches: those that hosts are at, those above them, and so on.
	Tiers [][]*Switch
	// Up and Down are the lines of each host to and from its switch.
	Up, Down []*sim.Line

	link Link
	rng  uint64
}

// A Switch forwards datagrams.
type Switch struct {
	Name string
	// Up are the lines to the switches above, among which the hash chooses. Down are those to
	// what is below.
	Up, Down []*sim.Line

	salt uint64
	// A host h is below if first <= h < first+len(Down)*each, by Down[(h-first)/each].
	first, each int
}

// Forward implements sim.Switch.
func (s *Switch) Forward(p *sim.Packet) *sim.Line {
	a := p.Dst.Addr().As4()
	if h := int(binary.BigEndian.Uint32(a[:])) - base - s.first; h >= 0 && h < len(s.Down)*s.each {
		return s.Down[h/s.each]
	}
	if len(s.Up) == 0 {
		return nil
	}
	return s.Up[s.choose(p, len(s.Up))]
}

// choose is the hash of ECMP: one of n for all datagrams with the same addresses and ports.
func (s *Switch) choose(p *sim.Packet, n int) int {
	a, b := p.Src.Addr().As4(), p.Dst.Addr().As4()
	x := uint64(binary.BigEndian.Uint32(a[:]))<<32 | uint64(binary.BigEndian.Uint32(b[:]))
	x = mix(x^s.salt) + uint64(p.Src.Port())<<16 + uint64(p.Dst.Port())
	return int(mix(x) >> 32 * uint64(n) >> 32)
}

// mix scatters a number over 64 bits (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// base is the address of host 0: 10.0.0.1.
const base = 10<<24 + 1

// mainPort is the port at which hosts are addressed; their other entropy values follow it.
const mainPort = 49152

// newTopology returns a Topology without switches. Hosts have evs ports each, which are their entropy
// values. The seed decides the hashes of the switches.
func newTopology(seed uint64, hosts, evs int, l Link) *Topology {
	t := &Topology{Net: sim.New(seed), link: l, rng: seed}
	ports := make([]uint16, max(evs, 1))
	for i := range ports {
		ports[i] = uint16(mainPort + i)
	}
	for h := range hosts {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(base+h))
		t.Hosts = append(t.Hosts, t.Net.AddNode(fmt.Sprintf("h%d", h), sim.NodeConfig{Addr: netip.AddrFrom4(a), Ports: ports}))
	}
	return t
}

// tier adds a tier of n switches. Switch i has the hosts from first(i) on below it, each per line.
func (t *Topology) tier(name string, n int, first func(i int) int, each int) []*Switch {
	tier := make([]*Switch, n)
	for i := range tier {
		t.rng += 0x9e3779b97f4a7c15
		tier[i] = &Switch{Name: fmt.Sprintf("%s%d", name, i), salt: mix(t.rng), first: first(i), each: each}
	}
	t.Tiers = append(t.Tiers, tier)
	return tier
}

// attach joins each host to its switch.
func (t *Topology) attach(leaves []*Switch, each int) {
	for h, n := range t.Hosts {
		s := leaves[h/each]
		up := t.Net.NewLine(n.Name+">"+s.Name, t.link.nic())
		up.Into(s)
		t.Net.Uplink(n, up)
		down := t.Net.NewLine(s.Name+">"+n.Name, t.link.faults(true))
		s.Down = append(s.Down, down)
		t.Up, t.Down = append(t.Up, up), append(t.Down, down)
	}
}

// join joins a switch to one above it.
func (t *Topology) join(low, high *Switch) {
	up := t.Net.NewLine(low.Name+">"+high.Name, t.link.faults(false))
	up.Into(high)
	down := t.Net.NewLine(high.Name+">"+low.Name, t.link.faults(false))
	down.Into(low)
	low.Up, high.Down = append(low.Up, up), append(high.Down, down)
}

// FatTree builds the fat tree of switches with k ports in three tiers (k even, 4 or more): k pods of
// k/2 leaves and k/2 aggregation switches, (k/2)² cores, k³/4 hosts. If over is more than 1, there
// are so many times fewer cores.
func FatTree(seed uint64, k, over, evs int, l Link) *Topology {
	half := k / 2
	if k < 4 || k%2 != 0 || over < 1 || half%over != 0 {
		panic(fmt.Sprintf("topo: a fat tree of switches with %d ports, %d:1", k, over))
	}
	up := half / over
	t := newTopology(seed, k*half*half, evs, l)
	leaves := t.tier("leaf", k*half, func(i int) int { return i * half }, 1)
	aggs := t.tier("agg", k*half, func(i int) int { return i / half * half * half }, half)
	cores := t.tier("core", half*up, func(int) int { return 0 }, half*half)
	t.attach(leaves, half)
	for i, low := range leaves {
		for j := range half {
			t.join(low, aggs[i/half*half+j])
		}
	}
	// Core c has a line to aggregation switch c/up of each pod.
	for i, low := range aggs {
		for j := range up {
			t.join(low, cores[i%half*up+j])
		}
	}
	return t
}

// LeafSpine builds leaves with as many hosts each, and spines that all leaves have a line to.
func LeafSpine(seed uint64, leaves, hosts, spines, evs int, l Link) *Topology {
	t := newTopology(seed, leaves*hosts, evs, l)
	low := t.tier("leaf", leaves, func(i int) int { return i * hosts }, 1)
	high := t.tier("spine", spines, func(int) int { return 0 }, hosts)
	t.attach(low, hosts)
	for _, a := range low {
		for _, b := range high {
			t.join(a, b)
		}
	}
	return t
}

// Lines returns the lines between a switch and the tier above it.
func (t *Topology) Lines(tier, i int) (up, down []*sim.Line) {
	s := t.Tiers[tier][i]
	for _, high := range t.Tiers[tier+1] {
		for _, l := range high.Down {
			if l.Leads() == sim.Switch(s) {
				down = append(down, l)
			}
		}
	}
	return s.Up, down
}

// SlowDown gives lines a share of the rate that the others have, and of their queue.
func (t *Topology) SlowDown(share float64, lines ...*sim.Line) {
	for _, l := range lines {
		l.SetFaults(t.link.Slow(share).faults(l.Leads() == nil))
	}
}

// Kill makes lines lose all that enters them from now on. What is on its way in them arrives.
func (t *Topology) Kill(lines ...*sim.Line) {
	for _, l := range lines {
		f := l.Faults()
		f.Loss = 1
		l.SetFaults(f)
	}
}

// KillSwitch kills all lines to and from a switch.
func (t *Topology) KillSwitch(s *Switch) {
	for _, l := range t.Net.Lines() {
		if l.Leads() == sim.Switch(s) {
			t.Kill(l)
		}
	}
	t.Kill(s.Up...)
	t.Kill(s.Down...)
}

// Hops is how many lines a datagram takes from one host to another.
func (t *Topology) Hops(from, to int) int {
	for i, tier := range t.Tiers {
		for _, s := range tier {
			n := len(s.Down) * s.each
			if from >= s.first && from < s.first+n && to >= s.first && to < s.first+n {
				return 2 * (i + 1)
			}
		}
	}
	panic(fmt.Sprintf("topo: no way from host %d to %d", from, to))
}
