package traffic

import (
	"math/rand/v2"
	"time"
)

// A Mix draws tests of all kinds, for a soak.
type Mix struct {
	// Base has the settings that all tests share. Its Time is how long all tests together
	// take.
	Base Spec
	// Sizes are the message sizes to draw from.
	Sizes []int64
	// Settings that are not "" apply to all tests and are not drawn.
	Op, Mode, Complete, Progress, GSO string
	Paths                             int // 0 means drawn
	// Impaired says that the network in between supports one path only.
	Impaired bool
}

const (
	// MixParallel bounds the streams of a test of a Mix.
	MixParallel = 7
	// Churn names the kind of test that is RR with Spec.Churn.
	Churn = "rr --churn"
	// A test takes a part of the time, at most mixMost and at least mixLeast.
	mixMost, mixLeast = 2 * time.Second, 150 * time.Millisecond
	mixPart           = 30
	// mixBytes bounds the buffers of a test. mixInject is the most bytes that every endpoint
	// can inject.
	mixBytes  = 32 << 20
	mixInject = 1024
)

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// Draw draws the next test and names its kind, which is Spec.Test or Churn.
func (m *Mix) Draw(rng *rand.Rand, left time.Duration) (Spec, string) {
	p := m.Base
	p.Check, p.Seed = true, rng.Uint64()>>1+1
	p.Iters, p.Warmup, p.Parallel, p.Window = 0, int64(rng.IntN(20)), 1+rng.IntN(4), 1<<rng.IntN(7)
	p.Time = min(max(m.Base.Time/mixPart, mixLeast), mixMost, max(left, mixLeast))
	p.Op = pick(rng, Send, TSend, Inject)
	p.Mode, p.Complete, p.Progress = pick(rng, "rud", "rod"), pick(rng, "inject", "transmit", "delivery"), pick(rng, "auto", "auto", "manual")
	p.GSO = pick(rng, "auto", "auto", "off")
	if rng.IntN(4) == 0 && !m.Impaired {
		if n := 1 + rng.IntN(4); m.Paths == 0 {
			p.Paths = n
		}
	}
	kinds := []string{Ping, Lat, BW, BW, Rate, Load, RR, Churn}
	if p.EP != MSG {
		kinds = append(kinds, Incast)
	}
	kind := pick(rng, kinds...)
	for _, v := range []struct {
		is   *string
		want string
	}{{&p.Op, m.Op}, {&p.Mode, m.Mode}, {&p.Complete, m.Complete}, {&p.Progress, m.Progress}, {&p.GSO, m.GSO}} {
		if v.want != "" {
			*v.is = v.want
		}
	}
	p.Size = pick(rng, m.Sizes...)
	switch p.Test = kind; kind {
	case Ping:
		p.Parallel, p.Window, p.Iters, p.Time, p.Warmup, p.Interval = 1, 0, 5, 0, 0, time.Millisecond
	case Lat:
		p.Parallel, p.Window = 1, 0
	case BW, Rate:
		p.Reverse = rng.IntN(3) == 0
		p.Bidir = !p.Reverse && rng.IntN(2) == 0
	case Load:
		p.Rate, p.Arrivals = float64(500+rng.IntN(5000)), pick(rng, Constant, Poisson, Uniform)
		p.Reply = pick(rng, m.Sizes...)
	case RR:
		p.Reply = pick(rng, m.Sizes...)
	case Churn:
		p.Test, p.Churn, p.Window, p.Reply = RR, true, 1, pick(rng, m.Sizes...)
		if p.EP == MSG {
			p.Progress = "auto"
		}
	case Incast:
		p.Parallel, p.Within, p.Op, p.Window = 2+rng.IntN(MixParallel-1), 0.5, TSend, 1+rng.IntN(4)
	}
	if p.Op == Inject {
		switch {
		case p.Exchanges():
			p.Op = TSend
		default:
			p.Size = min(p.Size, mixInject)
		}
	}
	for n := max(1, p.Size, p.Reply); p.Window > 1 && n*int64(p.Window*p.Parallel) > mixBytes; {
		p.Window /= 2
	}
	for n := max(1, p.Size, p.Reply); p.Parallel > 2 && n*int64(max(1, p.Window)*p.Parallel) > mixBytes; {
		p.Parallel = max(2, p.Parallel/2)
	}
	return p, kind
}
