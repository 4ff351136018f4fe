package perf

import (
	"math/rand/v2"
	"time"
)

// Arrivals are the intended times of the requests of one stream: they depend on
// nothing that happens, only on the rate and the seed.
type arrivals struct {
	gap  float64 // mean, ns
	kind string
	rng  *rand.Rand
	at   float64 // of the next, ns since the stream began
}

func newArrivals(s *Spec, stream int) *arrivals {
	a := &arrivals{gap: 1e9 * float64(s.Parallel) / s.Rate, kind: s.Arrivals, rng: rand.New(rand.NewPCG(s.Seed, uint64(stream)))}
	if a.kind == Constant { // the streams take turns
		a.at = a.gap * float64(stream) / float64(s.Parallel)
	} else {
		a.step()
	}
	return a
}

// next is the next intended time.
func (a *arrivals) next() time.Duration { return time.Duration(a.at) }

// step goes on to the one after it.
func (a *arrivals) step() {
	switch a.kind {
	case Poisson:
		a.at += a.gap * a.rng.ExpFloat64()
	case Uniform:
		a.at += a.gap * 2 * a.rng.Float64()
	default:
		a.at += a.gap
	}
}

// until is how many more there are before a time, about: those that are not
// constant would have to be drawn, and there may be very many.
func (a *arrivals) until(t time.Duration) int64 {
	if left := float64(t) - a.at; left > 0 {
		return int64(left/a.gap) + 1
	}
	return 0
}
