package cms

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newPaths(n int, how Choice) *Paths {
	p := new(Paths)
	p.Init(n, how, rand.New(rand.NewPCG(7, 7)))
	return p
}

func TestPathsOneIsFree(t *testing.T) {
	var zero, one Paths
	one.Init(1, Mixed, nil)
	for _, p := range []*Paths{&zero, &one} {
		p.OnLoss(0, 0, ms)
		p.OnMarked(0, 0, ms)
		p.OnGood(0, 0)
		if p.Pick(0) != 0 || p.Len() != 1 || p.state != nil {
			t.Error("a single port is not path 0")
		}
	}
}

func TestPathsUseEachOncePerRound(t *testing.T) {
	// UE 3.6.16, oblivious: each EV is used once before any is used again, in an order that
	// changes.
	for _, n := range []int{2, 3, 8, 64, 256} {
		p := newPaths(n, Mixed)
		var last []int
		same := 0
		for range 10 {
			var round []int
			for range n {
				round = append(round, p.Pick(0))
			}
			if slices.Equal(round, last) {
				same++
			}
			last = slices.Clone(round)
			slices.Sort(round)
			for i, path := range round {
				if path != i {
					t.Fatalf("%d paths: a round used %v", n, last)
				}
			}
		}
		if n > 2 && same > 3 {
			t.Errorf("%d paths: %d of 10 orders repeat", n, same)
		}
	}
}

func TestPathsDifferBySource(t *testing.T) {
	// UE 3.6.16: the order is independent for each source.
	var a, b Paths
	a.Init(64, Mixed, rand.New(rand.NewPCG(1, 1)))
	b.Init(64, Mixed, rand.New(rand.NewPCG(1, 2)))
	same := 0
	for range 64 {
		if a.Pick(0) == b.Pick(0) {
			same++
		}
	}
	if same > 16 {
		t.Errorf("%d of 64 choices of two sources agree", same)
	}
}

func TestPathsMarkedRestsOneRTT(t *testing.T) {
	// UE 3.6.17, path aware: a marked path is not used for an RTT.
	p := newPaths(8, Mixed)
	p.OnMarked(ms, 3, 100*us)
	for i := range 100 {
		if got := p.Pick(ms + time.Duration(i)*us - 1); got == 3 {
			t.Fatalf("path 3 again after %d µs", i)
		}
	}
	for i := 0; ; i++ {
		if p.Pick(ms+100*us) == 3 {
			break
		}
		if i > 16 {
			t.Fatal("path 3 does not come back after an RTT")
		}
	}
}

func TestPathsHalfMarkedAreAllUsed(t *testing.T) {
	// UE 3.6.17: when half of the paths are congested none is avoided.
	p := newPaths(8, Mixed)
	for i := range 3 {
		p.OnMarked(ms, i, 100*us)
	}
	used := [8]int{}
	for range 800 {
		used[p.Pick(ms)]++
	}
	if used[0]+used[1]+used[2] != 0 {
		t.Errorf("3 of 8 marked, used %v", used)
	}
	p.OnMarked(ms, 3, 100*us)
	used = [8]int{}
	for range 800 {
		used[p.Pick(ms)]++
	}
	if slices.Min(used[:]) < 90 {
		t.Errorf("4 of 8 marked, used %v", used)
	}
}

func TestPathsDeadOneIsFoundWithinTenRTTs(t *testing.T) {
	// F35: one of 8 EVs is dead. It is avoided within 10 RTTs, and used again within a
	// second after it heals. There is also 5 % random loss, so that at times half of the
	// others rest.
	const rtt = 100 * us
	for _, loss := range []int{0, 10, 50} {
		t.Run(fmt.Sprintf("%d ‰", loss), func(t *testing.T) {
			p := newPaths(8, Mixed)
			rng := rand.New(rand.NewPCG(8, uint64(loss)))
			type out struct {
				at   time.Duration
				path int
				lost bool
			}
			var flight []out
			play := func(from, to time.Duration, dead int) (used, total int) {
				for now := from; now < to; now += 2 * us { // a packet every 2 µs
					for len(flight) > 0 && now-flight[0].at >= rtt {
						o := flight[0]
						flight = flight[1:]
						if o.lost {
							p.OnLoss(now, o.path, rtt)
						} else {
							p.OnGood(now, o.path)
						}
					}
					path := p.Pick(now)
					flight = append(flight, out{now, path, path == dead || rng.IntN(1000) < loss})
					if total++; path == dead {
						used++
					}
				}
				return used, total
			}
			play(0, 10*ms, -1)
			play(10*ms, 10*ms+10*rtt, 5)
			used, total := play(10*ms+10*rtt, 200*ms, 5)
			if share := float64(used) / float64(total); share > 0.005 {
				t.Errorf("%.4f of the packets after 10 RTTs went the dead way", share)
			}
			// The path heals.
			play(200*ms, 1200*ms, -1)
			used, total = play(1200*ms, 1300*ms, 5) // it counts, and fails again
			_ = total
			if used == 0 {
				t.Error("the healed path was not tried within a second")
			}
		})
	}
}

func TestPathsDeadOneIsTriedTwiceASecond(t *testing.T) {
	// docs/faults.md rule 5: a dead path is tried twice a second, however long it has been
	// dead.
	p := newPaths(8, Mixed)
	now := time.Second
	for range 100 {
		p.OnLoss(now, 5, 100*us)
		now += deadMax
	}
	for i := 0; p.Pick(now) != 5; i++ {
		if i > 16 {
			t.Fatal("a path that was dead for a minute is not tried half a second later")
		}
	}
}

func TestPathsAllDeadGoesOn(t *testing.T) {
	p := newPaths(4, Mixed)
	for round := range time.Duration(4) {
		for i := range 4 {
			p.OnLoss(ms*(round+1), i, 100*us)
		}
	}
	used := map[int]bool{}
	for i := range 4 {
		path := p.Pick(5 * ms)
		used[path] = true
		p.OnLoss(5*ms+time.Duration(i), path, 100*us)
	}
	if len(used) < 2 {
		t.Errorf("with all dead only %v are tried", used)
	}
}

func TestPathsSingleKeepsItsPath(t *testing.T) {
	// UE 3.6.16, ROD: a single path has one EV, which congestion never changes.
	p := newPaths(8, Single)
	at := p.Pick(0)
	for i := range time.Duration(100) {
		p.OnMarked(i*ms, at, 100*us)
		if i%2 == 0 {
			p.OnLoss(i*ms, at, 100*us)
			p.OnGood(i*ms, at)
		}
		if p.Pick(i*ms) != at {
			t.Fatal("a single path moved without need")
		}
	}
}

func TestPathsSingleOnesDiffer(t *testing.T) {
	// UE 3.6.16: CCCs with a single path each have different EVs.
	rng := rand.New(rand.NewPCG(7, 7))
	used := map[int]bool{}
	for range 32 {
		var p Paths
		p.Init(8, Single, rng)
		used[p.Pick(0)] = true
	}
	if len(used) < 6 {
		t.Errorf("32 single paths use %d of 8", len(used))
	}
}

func TestPathsSingleLeavesDeadPath(t *testing.T) {
	// F35 for ROD: a single path leaves a dead EV; UE 3.6.16: at most every 10 RTTs.
	const rtt = 100 * us
	p := newPaths(8, Single)
	at := p.Pick(0)
	p.OnLoss(1*ms, at, rtt)
	p.OnLoss(1*ms+rtt/2, at, rtt) // the same round trip
	if p.Pick(2*ms) != at {
		t.Fatal("moved after one loss")
	}
	p.OnLoss(2*ms, at, rtt)
	second := p.Pick(2 * ms)
	if second == at {
		t.Fatal("stays on a dead path")
	}
	p.OnLoss(2*ms+rtt, second, rtt)
	p.OnLoss(2*ms+3*rtt, second, rtt)
	if p.Pick(2*ms+3*rtt) != second {
		t.Fatal("moved twice in 10 RTTs")
	}
	p.OnLoss(2*ms+10*rtt, second, rtt)
	if third := p.Pick(2*ms + 10*rtt); third == second || third == at {
		t.Errorf("moved from %d by %d to %d", at, second, third)
	}
}

// picks are the next n choices.
func picks(p *Paths, now time.Duration, n int) (l []int) {
	for range n {
		l = append(l, p.Pick(now))
	}
	return l
}

func TestPathsMixedUsesGoodOnes(t *testing.T) {
	p := newPaths(20, Mixed) // 4 stay in the list
	p.OnMarked(ms, 19, 100*us)
	for _, i := range []int{7, 3, 11, 3, 15, 2, 9, 5, 1} {
		p.OnGood(ms, i)
	}
	p.OnMarked(ms, 11, 100*us)
	if got := picks(p, ms, 3); !slices.Equal(got, []int{7, 3, 15}) {
		t.Errorf("after arrivals by 7, 3, 15, 2 and others it picks %v", got)
	}
	used := map[int]bool{}
	for _, i := range picks(p, ms, 100) {
		used[i] = true
	}
	if used[11] || used[19] || len(used) != 18 {
		t.Errorf("with 4 in the list all but the marked ones are used by turns, not %v", used)
	}
}

func TestPathsMixedTriesOthers(t *testing.T) {
	// A path that was bad is tried again, although enough others are known to be good.
	p := newPaths(8, Mixed)
	p.OnMarked(0, 7, us)
	used := map[int]bool{}
	for i := range 8 * explore {
		now := time.Duration(i) * us
		path := p.Pick(now)
		used[path] = true
		p.OnGood(now, path)
	}
	if len(used) != 8 {
		t.Errorf("%d of 8 paths are used", len(used))
	}
}

func TestPathsMixedUsesAllWhereNoneIsBad(t *testing.T) {
	for _, c := range []struct {
		name       string
		bad, heard time.Duration // before now
	}{{"never bad", 0, 0}, {"bad long ago", listAfter, 0}, {"good long ago", 2 * listLife, listLife + 1}} {
		t.Run(c.name, func(t *testing.T) {
			const now = time.Second
			p := newPaths(8, Mixed)
			if c.bad != 0 {
				p.OnMarked(now-c.bad, 0, us)
			}
			for i := range 8 {
				p.OnGood(now-c.heard, i)
			}
			for range 4 {
				round := picks(p, now, 8)
				slices.Sort(round)
				if !slices.Equal(round, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
					t.Fatalf("a round is %v", round)
				}
			}
		})
	}
}

func TestPathsListForgetsBadOnes(t *testing.T) {
	for _, c := range []struct {
		how  Choice
		want bool
	}{{List, true}, {Bitmap, false}, {Mixed, false}, {Oblivious, true}} {
		p := newPaths(8, c.how)
		p.OnLoss(ms, 3, 100*us)
		p.OnLoss(2*ms, 3, 100*us) // it is dead
		if got := slices.Contains(picks(p, 2*ms, 8), 3); got != c.want {
			t.Errorf("choice %d: the dead path is used: %v", c.how, got)
		}
	}
}

func TestPathsREPS(t *testing.T) {
	p := newPaths(64, REPS)
	for i := range 12 {
		p.OnGood(ms, i)
	}
	p.OnGood(ms, 40)
	p.OnMarked(ms, 40, 100*us)
	// The last eight arrivals but for the marked one, each once.
	if got := picks(p, ms, 7); !slices.Equal(got, []int{5, 6, 7, 8, 9, 10, 11}) {
		t.Fatalf("it recycles %v", got)
	}
	used := map[int]bool{}
	for _, i := range picks(p, ms, 64) {
		used[i] = true
	}
	if len(used) != 64 {
		t.Errorf("without arrivals %d of 64 paths are used", len(used))
	}
	// While it is frozen it uses these, again and again, and what arrives.
	p.OnLoss(2*ms, 20, 100*us)
	for _, i := range picks(p, 2*ms, 64) {
		if i < 5 || i > 11 {
			t.Fatalf("frozen, it uses %d", i)
		}
	}
	p.OnGood(2*ms, 50)
	if got := p.Pick(2 * ms); got != 50 {
		t.Errorf("frozen, it uses %d and not what arrived", got)
	}
	// Then it has forgotten them.
	p.OnGood(13*ms, 51)
	others := 0
	for _, i := range picks(p, 13*ms, repsExplore) {
		if i < 5 || i > 11 && i != 50 && i != 51 {
			others++
		}
	}
	if others < repsExplore-9 {
		t.Errorf("after the freeze %d of %d trains use other paths", others, repsExplore)
	}
}

func TestPathsAlwaysPickOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 17).Draw(t, "paths")
		var p Paths
		p.Init(n, rapid.SampledFrom([]Choice{Mixed, Bitmap, List, REPS, Oblivious, Single}).Draw(t, "choice"), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
		now := time.Duration(0)
		path := func() int { return rapid.IntRange(0, n-1).Draw(t, "path") }
		rtt := func() time.Duration {
			return rapid.SampledFrom([]time.Duration{-1, 0, 50 * us, 10 * ms, time.Hour}).Draw(t, "rtt")
		}
		t.Repeat(map[string]func(*rapid.T){
			"loss":   func(t *rapid.T) { p.OnLoss(now, path(), rtt()) },
			"marked": func(t *rapid.T) { p.OnMarked(now, path(), rtt()) },
			"good":   func(t *rapid.T) { p.OnGood(now, path()) },
			"wait":   func(t *rapid.T) { now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "d")) },
			"": func(t *rapid.T) {
				for range 3 {
					if got := p.Pick(now); got < 0 || got >= n {
						t.Fatalf("picked %d of %d", got, n)
					}
				}
			},
		})
	})
}

func TestPathsAllocateNothing(t *testing.T) {
	p := newPaths(16, Mixed)
	now := time.Duration(0)
	if got := testing.AllocsPerRun(1000, func() {
		now += 10 * us
		path := p.Pick(now)
		p.OnLoss(now, path, 50*us)
		p.OnMarked(now, (path+1)%16, 50*us)
		p.OnGood(now, (path+2)%16)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkPathsPick(b *testing.B) {
	for _, c := range []struct {
		name string
		wary bool
	}{{"all good", false}, {"one avoided", true}} {
		b.Run(c.name, func(b *testing.B) {
			p := newPaths(8, Mixed)
			if c.wary {
				p.OnMarked(0, 3, time.Hour)
			}
			for b.Loop() {
				p.Pick(1)
			}
		})
	}
}
