package traffic

import (
	"math"
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
	// before is where a time may begin in which the next is the first: for constant
	// ones the turn in which it is, the same for all streams, for others when the one
	// before it is meant. Times that began with a request of their own would have one
	// more of each stream than the rate says.
	before float64
	turn   int64   // of constant ones
	phase  float64 // in it
}

func newArrivals(s *Spec, stream int) *arrivals {
	a := &arrivals{gap: 1e9 * float64(s.Parallel) / s.Rate, kind: s.Arrivals, rng: rand.New(rand.NewPCG(s.Seed, uint64(stream)))}
	if a.kind == Constant { // the streams take turns
		a.phase = a.gap * float64(stream) / float64(s.Parallel)
		a.at = a.phase
	} else {
		a.step()
	}
	return a
}

// next is the next intended time.
func (a *arrivals) next() time.Duration { return time.Duration(a.at) }

// since is where a time may begin in which the next is the first.
func (a *arrivals) since() time.Duration { return time.Duration(a.before) }

// over reports whether the next is no more before a time.
func (a *arrivals) over(t time.Duration) bool { return a.at >= float64(t)-roundedBy }

// roundedBy is what the sums of times may be off, in ns.
const roundedBy = 0.5

// step goes on to the one after it.
func (a *arrivals) step() {
	a.before = a.at
	switch a.kind {
	case Poisson:
		a.at += a.gap * a.rng.ExpFloat64()
	case Uniform:
		a.at += a.gap * 2 * a.rng.Float64()
	default:
		a.turn++
		a.before = a.gap * float64(a.turn)
		a.at = a.before + a.phase
	}
}

// until is how many more there are before a time, about: those that are not
// constant would have to be drawn, and there may be very many.
func (a *arrivals) until(t time.Duration) int64 {
	return int64(math.Ceil(max(0, float64(t)-roundedBy-a.at) / a.gap))
}
