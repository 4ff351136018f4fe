package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	// Accesses adds tests of operations on memory of the server, also by RUDI, Datagrams those of
	// datagrams.
	Accesses, Datagrams bool
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
	// mixDatagram is the longest datagram, which fits into one packet everywhere.
	mixDatagram = 1024
	// mixPatience is how long a datagram may take. A loss is a fault where nothing impairs the
	// network, and an answer of a busy host is no loss.
	mixPatience = 3 * time.Second
)

// A family is a kind of operation.
type family int

const (
	messages family = iota
	accesses
	datagrams
)

// families returns the families that the pinned settings leave.
func (m *Mix) families() []family {
	var out []family
	access := (&Spec{Op: m.Op}).OneSided()
	twoSided := m.Op != "" && !access
	if !access && m.Mode != RUDI && m.Mode != UUD && m.Complete != "commit" && !(m.Op == Inject && m.Complete == "match") {
		out = append(out, messages)
	}
	if m.Accesses && !twoSided && m.Mode != UUD && m.Complete != "inject" && m.Complete != "match" {
		out = append(out, accesses)
	}
	if m.Datagrams && m.Base.EP != MSG && (m.Op == "" || m.Op == Send) && (m.Mode == "" || m.Mode == UUD) &&
		(m.Complete == "" || m.Complete == "inject" || m.Complete == "transmit") {
		out = append(out, datagrams)
	}
	return out
}

// Check returns an error if the pinned settings leave nothing to draw, or settings that do not
// go together.
func (m *Mix) Check() error {
	switch op := cmp.Or(m.Op, "the operation"); {
	case m.Base.Rendezvous > 0 && (!slices.Contains(m.families(), messages) || m.Op == Inject || m.Complete == "inject"):
		return errors.New("--rendezvous is of messages that are lent until they were read: leave it out, or the operation, the mode and the level that are of others")
	case m.Base.SharePort && m.Base.EP == MSG:
		return errors.New("--share-port is of rdm and dgram endpoints, a connection has a port of its own: leave it out, or -e msg")
	case m.Mode == UUD && m.Base.EP == MSG:
		return errors.New("mode uud is of datagrams, which need no connection: leave out -e msg, or --mode uud")
	case m.Mode == UUD && m.Op != "" && m.Op != Send:
		return fmt.Errorf("datagrams have operation send: leave out %s, or --mode uud", op)
	case m.Mode == UUD && len(m.families()) == 0:
		return fmt.Errorf("nobody says of a datagram that it arrived: with --mode uud take --complete transmit or inject, not %s", m.Complete)
	case m.Mode == RUDI && m.Op != "" && m.Op != Write && m.Op != Read:
		return fmt.Errorf("mode rudi is of the operations write and read, which may happen twice: take one of these instead of %s, or --mode rud", op)
	case m.Mode == RUDI && m.Complete == "commit":
		return errors.New("completion level commit needs a PDC: take --mode rud or rod, or another level")
	case m.Complete == "commit" && m.Op != "" && m.Op != Write && m.Op != WriteData:
		return fmt.Errorf("completion level commit is of the operations write and writedata: take one of these instead of %s, or another level", op)
	case len(m.families()) == 0:
		return fmt.Errorf("a test of %s has no completion level %s: leave out one of both", cmp.Or(m.Op, m.Mode), m.Complete)
	}
	return nil
}

// access makes the drawn test one of an operation on memory of the server.
func (m *Mix) access(rng *rand.Rand, p *Spec) {
	ops := []string{Write, WriteData, Read, FAdd, Swap, CAS}
	switch {
	case m.Mode == RUDI:
		ops = []string{Write, Read}
	case m.Complete == "commit":
		ops = []string{Write, WriteData}
	}
	p.Op, p.Complete = pick(rng, ops...), pick(rng, "transmit", "delivery")
	if m.Op != "" {
		p.Op = m.Op
	}
	if (p.Op == Write || p.Op == Read) && p.Complete != "commit" && m.Complete != "commit" {
		p.Mode = pick(rng, RUD, ROD, RUDI)
	}
}

// numbers is the size of an atomic operation.
func numbers(rng *rand.Rand, op string) int64 {
	if op == CAS {
		return 8
	}
	return 8 * (1 + rng.Int64N(MaxAdds/8))
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// Draw draws the next test and names its kind, which is Spec.Test or Churn.
func (m *Mix) Draw(rng *rand.Rand, left time.Duration) (Spec, string) {
	p := m.Base
	p.Check, p.Seed = true, rng.Uint64()>>1+1
	p.Iters, p.Warmup, p.Parallel, p.Window = 0, int64(rng.IntN(20)), 1+rng.IntN(4), 1<<rng.IntN(7)
	p.Time = min(max(m.Base.Time/mixPart, mixLeast), mixMost, max(left, mixLeast))
	ops := []string{Send, TSend, Inject}
	if m.Complete == "match" {
		ops = ops[:2] // an injected message has no completion
	}
	p.Op = pick(rng, ops...)
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
	what := messages
	if some := m.families(); len(some) == 1 {
		what = some[0]
	} else if len(some) > 1 {
		what = pick(rng, some...)
	}
	switch what {
	case accesses:
		kinds = []string{Lat, BW, BW, Rate, Load}
		m.access(rng, &p)
	case datagrams:
		kinds = []string{Ping, Lat, BW, BW, Rate, Load, RR}
		p.EP, p.Op, p.Mode, p.Complete = Dgram, Send, UUD, pick(rng, "inject", "transmit")
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
	if p.Atomic() {
		p.Size = numbers(rng, p.Op)
	}
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
	switch what {
	case accesses:
		if p.Reverse, p.Bidir, p.Reply = false, false, 0; p.Op == Write {
			p.Size = max(1, p.Size) // of no bytes there is nothing to verify
		}
	case datagrams:
		if p.Size, p.Reply = min(p.Size, mixDatagram), min(p.Reply, mixDatagram); !m.Impaired {
			p.Patience = mixPatience
		}
	}
	if p.Op == Inject {
		switch {
		case p.Exchanges():
			p.Op = TSend
		default:
			p.Size = min(p.Size, mixInject)
		}
	}
	if what != messages || p.Op == Inject || p.Complete == "inject" {
		p.Rendezvous = 0
	}
	p.SharePort = p.SharePort && !p.Pingpong() && p.Test != Incast && !p.Churn
	for n := max(1, p.Size, p.Reply); p.Window > 1 && n*int64(p.Window*p.Parallel) > mixBytes; {
		p.Window /= 2
	}
	for n := max(1, p.Size, p.Reply); p.Parallel > 2 && n*int64(max(1, p.Window)*p.Parallel) > mixBytes; {
		p.Parallel = max(2, p.Parallel/2)
	}
	return p, kind
}
