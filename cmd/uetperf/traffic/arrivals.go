package traffic

import (
	"math"
	"math/rand/v2"
	"time"
)

// arrivals are the intended times of the requests of one stream. They depend only on the
// rate and the seed.
type arrivals struct {
	gap  float64 // mean, ns
	kind string
	rng  *rand.Rand
	at   float64 // next intended time, in ns since the stream began
	// before is a time at which a measured time may begin so that the next request is its
	// first. For constant gaps it is the begin of the turn that contains the request, which
	// is the same for all streams; for others it is the previous intended time. If measured
	// times began with a request, each stream would have one request more than the rate says.
	before float64
	turn   int64   // for constant gaps
	phase  float64 // place of the stream in a turn
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

// since is the time before.
func (a *arrivals) since() time.Duration { return time.Duration(a.before) }

// over reports whether the next intended time is at or after t.
func (a *arrivals) over(t time.Duration) bool { return a.at >= float64(t)-roundedBy }

// roundedBy is the largest rounding error of the sums, in ns.
const roundedBy = 0.5

// step advances to the following request.
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

// until estimates how many more requests are meant to begin before t. It does not draw
// their gaps, because there may be very many.
func (a *arrivals) until(t time.Duration) int64 {
	return int64(math.Ceil(max(0, float64(t)-roundedBy-a.at) / a.gap))
}
