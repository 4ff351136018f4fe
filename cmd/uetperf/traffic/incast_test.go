package traffic

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{5, 5, 5}, 1}, {[]float64{9, 0, 0}, 1. / 3}, {[]float64{1, 3}, 0.8}} {
		if got := Jain(c.x); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
	if got := Jain([]float64{0, 0}); !math.IsNaN(got) {
		t.Errorf("nobody got anything: %v", got)
	}
}

// Senders have converged from the first interval after which none left its share.
func TestSpread(t *testing.T) {
	mk := func(rates ...[2]float64) (p Spread) {
		sum := [2]float64{}
		p.Add(0, []float64{0, 0})
		for i, r := range rates {
			sum[0] += r[0]
			sum[1] += r[1]
			p.Add(time.Duration(i+1)*time.Second, []float64{sum[0], sum[1]})
		}
		return p
	}
	for _, c := range []struct {
		name  string
		rates [][2]float64
		at    time.Duration
		ok    bool
		jain  float64
	}{
		{"equal", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {10, 10}}, 0, true, 1},
		{"late", [][2]float64{{19, 1}, {15, 5}, {11, 9}, {9, 11}, {10, 10}}, 2 * time.Second, true, 1},
		{"left again", [][2]float64{{10, 10}, {10, 10}, {19, 1}, {10, 10}}, 3 * time.Second, true, 0.832},
		{"never", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {19, 1}}, 0, false, 0.832},
		{"silence", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {0, 0}}, 0, false, 1},
	} {
		p := mk(c.rates...)
		if at, ok := p.converged(0.25); at != c.at || ok != c.ok {
			t.Errorf("%s: converged %v at %v, want %v at %v", c.name, ok, at, c.ok, c.at)
		}
		if j, ok := p.fairness(); !ok || math.Abs(j-c.jain) > 0.01 {
			t.Errorf("%s: fairness %.3f, want %.3f", c.name, j, c.jain)
		}
	}
	if _, ok := (&Spread{}).fairness(); ok {
		t.Error("nothing is fair")
	}
	if _, ok := (&Spread{}).converged(0.25); ok {
		t.Error("nothing has converged")
	}
}

func TestRaceEndsForAll(t *testing.T) {
	// Whenever one of the legs is told to stop, all end after the same round.
	const legs = 4
	for range 2000 {
		r := newRace(legs, func() {})
		var rounds [legs]int64
		var all sync.WaitGroup
		for i := range legs {
			all.Go(func() {
				for round := int64(0); ; round++ {
					r.arrive(0, time.Hour, i == 0 && round == 3)
					for open, over := false, false; !open; runtime.Gosched() {
						if open, over = r.next(round); over {
							rounds[i] = round
							return
						}
					}
				}
			})
		}
		soon(t, func() { all.Wait() })
		for i, n := range rounds {
			if n != rounds[0] || n != 3 {
				t.Fatalf("leg %d ends behind round %d, leg 0 behind %d, want 3", i, n, rounds[0])
			}
		}
	}
}

// soon fails the test if f does not return soon.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a leg waits for the others")
	}
}
