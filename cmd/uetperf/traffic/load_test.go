package traffic

import (
	"math"
	"testing"
	"time"
)

// Intended times depend on the rate and the seed, and on nothing else.
func TestArrivals(t *testing.T) {
	for kind, spread := range map[string]float64{Constant: 0, Uniform: 1 / math.Sqrt(3), Poisson: 1} { // standard deviation of a gap, in gaps
		s := Spec{Rate: 4000, Parallel: 4, Arrivals: kind, Seed: 3}
		a, again, other := newArrivals(&s, 1), newArrivals(&s, 1), newArrivals(&s, 2)
		const n, gap = 100000, 1e6
		var last, squares float64
		same := 0
		for range n {
			d := a.at - last - gap
			last = a.at
			squares += d * d
			if a.next() != again.next() {
				t.Fatalf("%s: the same seed makes %v and %v", kind, a.next(), again.next())
			}
			if a.next() == other.next() {
				same++
			}
			a.step()
			again.step()
			other.step()
		}
		if rate := n / last * 1e9; math.Abs(rate-1000) > 10 {
			t.Errorf("%s: %.1f/s, want 1000", kind, rate)
		}
		if sd := math.Sqrt(squares/n) / gap; math.Abs(sd-spread) > 0.02 {
			t.Errorf("%s: gaps spread by %.3f of their mean, want %.3f", kind, sd, spread)
		}
		if same > n/100 {
			t.Errorf("%s: two streams have %d of %d times in common", kind, same, n)
		}
	}
	a := arrivals{gap: 1e6, at: 5e6}
	for end, want := range map[time.Duration]int64{4 * time.Millisecond: 0, 5*time.Millisecond + 1: 1, 10 * time.Millisecond: 5, 10*time.Millisecond + 1: 6} {
		if got := a.until(end); got != want {
			t.Errorf("%d until %v, want %d", got, end, want)
		}
	}
}

// All streams together have as many requests as the rate says, rather than one more each.
func TestArrivalsOfAllStreams(t *testing.T) {
	for _, c := range []struct {
		kind     string
		rate     float64
		parallel int
		time     time.Duration
		warmup   int
		want     float64
	}{
		{Constant, 10, 4, time.Second, 0, 10},
		{Constant, 10, 4, time.Second, 3, 10},
		{Constant, 1000, 64, 100 * time.Millisecond, 1, 100},
		{Constant, 3, 7, time.Second, 2, 3},
		{Constant, 3e4, 7, 10 * time.Second, 1000, 3e5},
		{Constant, 1000, 3, 10500 * time.Microsecond, 0, 11},
		{Poisson, 1000, 64, time.Second, 3, 1000},
		{Uniform, 1000, 64, time.Second, 3, 1000},
	} {
		s := Spec{Rate: c.rate, Parallel: c.parallel, Arrivals: c.kind, Seed: 3}
		n, later := 0.0, int64(0)
		for i := range c.parallel {
			a := newArrivals(&s, i)
			for range c.warmup {
				a.step()
			}
			end := a.since() + c.time
			for later += a.until(end); !a.over(end); n++ {
				a.step()
			}
		}
		allowed := 0.0
		if c.kind != Constant {
			allowed = 4 * math.Sqrt(c.want)
		} else if float64(later) != n {
			t.Errorf("%+v: %d until the end, want %v", c, later, n)
		}
		if math.Abs(n-c.want) > allowed {
			t.Errorf("%+v: %v requests", c, n)
		}
	}
}

// Requests piled up if many were late and the last one was, too; not after a stall.
func TestOverloaded(t *testing.T) {
	for _, c := range []struct {
		late, unsent int64
		lastLag      time.Duration
		want         bool
	}{
		{0, 0, 0, false}, {500, 0, time.Millisecond, false}, {50, 0, time.Second, false}, {500, 0, time.Second, true}, {20, 20, time.Second, true}, {5, 5, time.Second, false},
	} {
		x := exchanged{offered: 1000, late: c.late, unsent: c.unsent, lastLag: c.lastLag}
		if got := x.overloaded(2 * time.Second); got != c.want {
			t.Errorf("%d late, %d never sent, the last %v late: %v", c.late, c.unsent, c.lastLag, got)
		}
	}
}
