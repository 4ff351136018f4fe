package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
)

// eight gives every host eight paths.
func eight(s *simtest.Spec) {
	for i := range s.Hosts {
		s.Hosts[i].Paths = 8
	}
}

// byPath counts the data packets that host 0 sends on each path.
func byPath(w *simtest.World) *[8]int {
	n := new([8]int)
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.From == w.Hosts[0].Node && len(p.Data) > 500 {
			n[p.Path]++
		}
	})
	return n
}

// F35, UE 3.6.16: RUD uses all paths alike. A path that dies is avoided within 10 round trips
// while the others carry on, and it is used again after it has healed.
func TestF35DeadPath(t *testing.T) {
	w := pair(t, 35, lan, eight)
	n := byPath(w)
	took := stream(w, tsend(1, 64<<10), 64, 8)
	for i, k := range n {
		if k < 64 {
			t.Errorf("path %d carried %d packets of a sound network: %v", i, k, *n)
		}
	}
	dead := lan
	dead.Paths = make([]sim.PathFaults, 8)
	dead.Paths[3].Loss = 1
	w.Line(0, 1).SetFaults(dead)
	*n = [8]int{}
	slow := stream(w, tsend(1, 64<<10), 256, 8)
	sum := 0
	for _, k := range n {
		sum += k
	}
	// It is tried with a few packets now and then.
	if n[3]*50 > sum {
		t.Errorf("the dead path carried %d of %d packets: %v", n[3], sum, *n)
	}
	t.Logf("64 messages took %v, 256 with a dead path %v; packets by path %v", took, slow, *n)
	if slow > 2*4*took {
		t.Errorf("with one of 8 paths dead 256 messages took %v, 64 took %v before", slow, took)
	}
	w.SetFaults(lan)
	w.Run(time.Second)
	*n = [8]int{}
	stream(w, tsend(1, 64<<10), 64, 8)
	if n[3] < 64 {
		t.Errorf("the healed path carried %d packets: %v", n[3], *n)
	}
	settle(w)
}

// F35: marks of congestion on some paths move the load to the others.
func TestF35MarkedPaths(t *testing.T) {
	f := lan
	f.Paths = make([]sim.PathFaults, 8)
	f.Paths[1].CE, f.Paths[6].CE = 1, 1
	w := pair(t, 36, f, eight)
	n := byPath(w)
	stream(w, tsend(1, 64<<10), 256, 8)
	if hot, cool := n[1]+n[6], n[0]+n[2]+n[3]+n[4]+n[5]+n[7]; hot*3*2 > cool {
		t.Errorf("each marked path is to carry half of another at most; marked paths carried %d packets, the others %d: %v", hot, cool, *n)
	}
	settle(w)
}

// UE 3.6.16: ROD keeps to one path, and leaves it when it is dead.
func TestF35OrderedPath(t *testing.T) {
	w := pair(t, 37, lan, eight)
	stream(w, ordered(tsend(1, 64<<10)), 4, 4) // the first packets leave from the main port
	n := byPath(w)
	stream(w, ordered(tsend(1, 64<<10)), 16, 4)
	used, at := 0, 0
	for i, k := range n {
		if k > 0 {
			used, at = used+1, i
		}
	}
	if used != 1 {
		t.Fatalf("ordered messages used %d paths: %v", used, *n)
	}
	dead := lan
	dead.Paths = make([]sim.PathFaults, 8)
	dead.Paths[at].Loss = 1
	w.Line(0, 1).SetFaults(dead)
	took := stream(w, ordered(tsend(1, 64<<10)), 16, 4)
	if took > time.Second {
		t.Errorf("16 messages took %v after path %d died", took, at)
	}
	settle(w)
}
