package topo

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport/wire"
)

// way returns the names of the lines that a datagram takes, less those of the hosts, and says which are slow.
func (t *Topology) way(p *sim.Packet) string {
	from, to := hostOf(p.Src), hostOf(p.Dst)
	var s []string
	l := t.Up[from]
	for l != t.Down[to] && l != nil && l.Leads() != nil {
		if l = l.Leads().(*Switch).Forward(p); l == nil || l.Leads() == nil {
			break
		}
		name := l.Name
		if l.Faults().Rate < t.link.Rate {
			name += "(slow)"
		}
		if l.Faults().Loss > 0 {
			name += "(dead)"
		}
		s = append(s, name)
	}
	return strings.Join(s, " ")
}

// traced follows the packets between two hosts: each request when it arrives or is lost, with the time that it
// stood in queues, and what answered it.
func (r *Run) traced(src, dst int, say func(string)) func(time.Duration, sim.What, sim.Why, *sim.Packet) {
	return func(now time.Duration, what sim.What, why sim.Why, p *sim.Packet) {
		from, to := hostOf(p.Src), hostOf(p.Dst)
		if what == sim.Sent || (from != src || to != dst) && (from != dst || to != src) {
			return
		}
		fate := "arrived"
		switch {
		case what == sim.Lost:
			fate = "lost: " + why.String()
		case p.Marks&sim.Trimmed != 0:
			fate = "trimmed"
		case p.Marks&sim.Congested != 0:
			fate = "marked"
		}
		us := func(d time.Duration) float64 { return float64(d) / 1e3 }
		say(fmt.Sprintf("%7.1f sent %7.1f took %6.1f %5d>%5d %-8s %s  %s", us(now-r.start), us(p.Sent-r.start), us(now-p.Sent), p.Src.Port(), p.Dst.Port(), fate,
			wire.DumpCut(p.Data, 0), r.Topology.way(p)))
	}
}

// traceSlowest plays a case again and prints what the packets of its slowest flow met.
func (c *trial) traceSlowest(t *testing.T, was *Result) {
	slow := was.Flows[0]
	for _, f := range was.Flows {
		if f.FCT == 0 || f.FCT > slow.FCT && slow.FCT != 0 {
			slow = f
		}
	}
	fmt.Printf("flow %d, host %d to %d, takes %v, %d packets, %d resent\n", slow.ID, slow.Src, slow.Dst, slow.FCT, slow.Packets, slow.Resent)
	r := c.prepare(t)
	tap := r.traced(slow.Src, slow.Dst, func(s string) { fmt.Println(s) })
	r.Topology.Net.Tap(tap)
	r.Topology.Net.Tap(func(now time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Taken && hostOf(p.Dst) == slow.Src && hostOf(p.Src) == slow.Dst {
			_, s, _ := strings.Cut(r.Hosts[slow.Src].FEP.Dump(), "\n")
			fmt.Print(s)
		}
	})
	if _, err := r.Play(); err != nil {
		t.Fatal(err)
	}
}
