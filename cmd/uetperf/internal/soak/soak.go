// Package soak tests everything for a long time. It runs one test after another, drawn by a
// seed, beside a load that never pauses. It verifies all data and watches the resources of
// both processes for steady growth.
package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/page"
)

// Config describes a soak.
type Config struct {
	// Mix describes the tests. Its Base gives endpoint type, security, CRC, congestion
	// control, timeouts and the seed of all draws; Base.Time is how long the soak takes.
	traffic.Mix
	// Command makes the command that repeats a test out of Words. If it is nil, the command
	// lacks the server's name and what all tests have in common.
	Command func(words []string) []string
	// Dial opens a session with the server. The soak opens two.
	Dial func(context.Context) (*perf.Client, error)
	// Ready is called with the path when the first test begins.
	Ready func(path record.Path, mtu int)
	// Watch, if not nil, is called every Every while a test runs, with its size.
	Every time.Duration
	Watch func(test string, size int64, w perf.Watched)
	// News is called after each test.
	News func(*Status)
}

// A Status is the state of a soak.
type Status struct {
	At           time.Duration
	Run          *record.Run // what was measured so far
	Here, There  perf.Resources
	Failed       error  // error of the test that has just ended, nil if it passed
	FailedTest   string // command of that test, if it failed
	BytesChecked int64
}

const (
	// seedStream separates the draws of a soak from other uses of the seed.
	seedStream = 0x50a6
	// Resources are sampled each lookPart-th of the time, but at least lookLeast apart.
	lookPart  = 400
	lookLeast = 200 * time.Millisecond
	// givenUp failed tests in a row end the soak.
	givenUp = 5
	// steadyRate (requests a second) and steadySize (bytes) are the load that never pauses.
	steadyRate, steadySize = 200, 1000
	maxSamples             = 1000
	// maxRounds bounds the tests that the record describes.
	maxRounds = 2000
)

// A soak is the state of Run.
type soak struct {
	cfg   Config
	rng   *rand.Rand
	run   record.Run
	begin time.Time
	here  usage
	there usage
	bytes int64
	join  int // how many tests one sample of the series covers
	got   int
}

// Run runs a soak. The record.Run has what it measured, also with an error.
func Run(ctx context.Context, cfg Config) (record.Run, error) {
	s := &soak{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Base.Seed, seedStream)), begin: time.Now(), join: 1}
	s.run = record.Sum()
	s.run.Soak = &record.Soak{Kinds: map[string]int64{}}
	err := s.soak(ctx)
	s.run.Took(time.Since(s.begin))
	s.run.Iters = s.run.Soak.Episodes
	s.run.Soak.Leaks = append(s.here.leaks("client"), s.there.leaks("server")...)
	for _, l := range s.run.Soak.Leaks {
		if l.Leaks {
			s.run.Soak.Leaking++
		}
	}
	if err != nil {
		s.run.Error = oneLine(err)
		if errors.Is(err, context.Canceled) {
			s.run.Error = "interrupted"
		}
	}
	return s.run, err
}

// soak opens both sessions and runs the tests beside the load.
func (s *soak) soak(ctx context.Context) error {
	c, err := s.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	steady, err := s.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	defer steady.Close()
	if err := s.look(ctx, c); err != nil {
		return err
	}
	s.begin = time.Now()

	sctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var always *perf.Result
	go func() {
		var err error
		always, err = steady.Run(sctx, s.steady(), perf.Hooks{})
		ended <- err
	}()
	err = s.episodes(ctx, c, ended)
	stop()
	if errors.Is(err, errSteady) {
		err = errors.Unwrap(err)
	} else if e := <-ended; err == nil && e != nil && !errors.Is(e, context.Canceled) {
		err = fmt.Errorf("the load beside the tests: %w", e)
	}
	if always != nil {
		s.add(&always.Run)
		s.sample()
	}
	return err
}

// errSteady marks the error that the load beside the tests ended.
var errSteady = errors.New("ended early")

type steadyError struct{ err error }

func (e *steadyError) Error() string        { return e.err.Error() }
func (e *steadyError) Is(target error) bool { return target == errSteady }
func (e *steadyError) Unwrap() error        { return e.err }

// steady is the Spec of the load beside the tests.
func (s *soak) steady() traffic.Spec {
	p := s.cfg.Base
	if p.Mode == traffic.RUDI || p.Mode == traffic.UUD { // of the tests, which it is to run beside
		p.Mode = traffic.RUD
	}
	if p.Durable() {
		p.Complete = "transmit"
	}
	p.Test, p.Op, p.Size, p.Reply, p.Rate, p.Arrivals = traffic.Load, traffic.TSend, steadySize, steadySize, steadyRate, traffic.Poisson
	p.Iters, p.Time, p.Warmup, p.Window, p.Parallel, p.Check, p.Progress = 0, s.cfg.Base.Time, 0, 64, 1, true, "auto"
	return p
}

// episodes runs tests until the time is over.
func (s *soak) episodes(ctx context.Context, c *perf.Client, steady <-chan error) error {
	row := 0
	for looked := time.Now(); ; {
		left := s.cfg.Base.Time - time.Since(s.begin)
		if left <= 0 {
			return nil
		}
		p, kind := s.cfg.Draw(s.rng, left)
		if s.cfg.Ready != nil { // the first test describes the path, so it does not draw GSO and paths
			p.GSO, p.Paths = s.cfg.Base.GSO, s.cfg.Base.Paths
		}
		begin := time.Now()
		hooks := perf.Hooks{Every: s.cfg.Every}
		if s.cfg.Watch != nil {
			hooks.Watch = func(w perf.Watched) { s.cfg.Watch(p.Test, p.Size, w) }
		}
		hooks.Ready = func(path record.Path, mtu int, _, _ time.Duration) {
			if s.cfg.Ready != nil {
				s.cfg.Ready(path, mtu)
				s.cfg.Ready = nil
			}
		}
		res, err := c.Run(ctx, p, hooks)
		x := s.run.Soak
		x.Episodes++
		x.Kinds[kind]++
		round := s.round(record.Round{N: x.Episodes, AtNS: int64(begin.Sub(s.begin)), DurationNS: int64(time.Since(begin)), Command: s.command(&p)})
		if res != nil {
			s.add(&res.Run)
			s.sample()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		st := &Status{}
		if err == nil {
			err = found(&res.Run)
		}
		if err != nil {
			round.Error = oneLine(err)
		}
		if err != nil && (errors.Is(err, perf.ErrUnreachable) || perf.Unreachable(err)) {
			// Is the server gone, or did only this test fail to reach it?
			if e := s.look(ctx, c); e != nil {
				return e
			}
		}
		if err != nil {
			x.Failed++
			row++
			st.Failed, st.FailedTest = err, round.Command
			s.run.LastError = fmt.Sprintf("%s: %s", round.Command, round.Error)
		} else {
			row = 0
		}
		if every := max(s.cfg.Base.Time/lookPart, lookLeast); err != nil || time.Since(looked) >= every {
			if e := s.look(ctx, c); e != nil {
				return e
			}
			looked = time.Now()
		}
		if s.cfg.News != nil {
			st.At, st.Run, st.Here, st.There, st.BytesChecked = time.Since(s.begin), &s.run, s.here.last(), s.there.last(), s.bytes
			s.cfg.News(st)
		}
		select {
		case e := <-steady:
			if e != nil {
				e = fmt.Errorf("the load beside the tests: %w", e)
			}
			return &steadyError{e} // nil: its time is over, and so is that of the soak
		default:
		}
		if row == givenUp {
			return fmt.Errorf("%d tests in a row failed, the last one %s: %w", row, round.Command, err)
		}
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// round notes a test and returns its entry, which is valid until the next call. If there
// are too many it drops the oldest one that passed.
func (s *soak) round(r record.Round) *record.Round {
	x := s.run.Soak
	if len(x.Rounds) == maxRounds {
		old := max(0, slices.IndexFunc(x.Rounds, func(r record.Round) bool { return r.Error == "" }))
		x.Rounds = slices.Delete(x.Rounds, old, old+1)
	}
	x.Rounds = append(x.Rounds, r)
	return &x.Rounds[len(x.Rounds)-1]
}

// found tells what is wrong with the results of a test.
func found(r *record.Run) error {
	switch d := r.DataCheck; {
	case d == nil || d.OK+d.Wrong == 0:
		return errors.New("nothing was verified")
	case d.Wrong > 0:
		return fmt.Errorf("%d of %d messages were wrong (%d bytes, %d repeated or out of order)", d.Wrong, d.OK+d.Wrong, d.WrongBytes, d.Dup)
	case r.Lost != nil && *r.Lost > 0:
		return fmt.Errorf("%d messages were lost", *r.Lost)
	case r.Errors != nil && *r.Errors > 0:
		return fmt.Errorf("%d transactions failed, the last one: %s", *r.Errors, r.LastError)
	}
	return nil
}

// add adds the results of a test.
func (s *soak) add(r *record.Run) {
	t := &s.run
	t.Add(r)
	if d := r.DataCheck; d != nil {
		s.bytes += d.OK * r.Size
	}
	x := record.Sample{AtNS: int64(time.Since(s.begin)), Bytes: r.Bytes, Msgs: r.Msgs}
	for _, c := range []*record.Counters{&r.Transport, r.PeerTransport} {
		if c == nil {
			continue
		}
		x.Rtx += c.Rtx()
		x.ECN += c.ECNCE
		x.Trimmed += c.Trimmed
		for _, n := range c.Drops {
			x.Drops += n
		}
	}
	if n := len(t.Series); n > 0 && s.got > 0 {
		x.Plus(&t.Series[n-1])
		t.Series[n-1] = x
	} else {
		t.Series = append(t.Series, x)
	}
}

// sample ends a sample of the series. When there are too many samples it joins them in
// pairs.
func (s *soak) sample() {
	if s.got++; s.got < s.join {
		return
	}
	s.got = 0
	if len(s.run.Series) < maxSamples {
		return
	}
	half := s.run.Series[:0]
	for i := 0; i+1 < len(s.run.Series); i += 2 {
		b := s.run.Series[i+1]
		b.Plus(&s.run.Series[i])
		half = append(half, b)
	}
	s.run.Series = half
	s.join *= 2
}

// look samples the resources of both processes.
func (s *soak) look(ctx context.Context, c *perf.Client) error {
	there, err := c.Resources(ctx)
	if err != nil {
		return err
	}
	at := time.Since(s.begin)
	s.here.add(at, perf.Own())
	s.there.add(at, there)
	return nil
}

// command returns the command that repeats a test.
func (s *soak) command(p *traffic.Spec) string {
	w := Words(p)
	if s.cfg.Command == nil {
		return page.Shell(slices.Concat([]string{"uetperf", w[0], "HOST"}, w[1:]))
	}
	return page.Shell(s.cfg.Command(w))
}

// Words returns the test and the flags that are drawn, without the host and without what
// all tests have in common.
func Words(p *traffic.Spec) []string {
	test := p.Test
	if test == traffic.BW && p.Op == traffic.Inject {
		test = traffic.Rate // rate is the same test and has that operation
	}
	w := []string{test, p.Op, "-s", strconv.FormatInt(p.Size, 10)}
	add := func(on bool, flag string, v ...string) {
		if on {
			w = append(append(w, flag), v...)
		}
	}
	number := func(n int) string { return strconv.Itoa(n) }
	add(p.Iters > 0, "-n", strconv.FormatInt(p.Iters, 10))
	add(p.Time > 0, "-t", p.Time.String())
	add(p.Test == traffic.Ping, "-i", p.Interval.String())
	add(p.Test != traffic.Ping, "-w", strconv.FormatInt(p.Warmup, 10))
	add(p.Window > 0, "-W", number(p.Window), "-P", number(p.Parallel))
	add(p.SharePort, "--share-port")
	add(p.Reverse, "-R")
	add(p.Bidir, "--bidir")
	add(p.Test == traffic.Load, "--rate", strconv.FormatFloat(p.Rate, 'f', -1, 64), "--arrivals", p.Arrivals)
	add((p.Test == traffic.Load || p.Test == traffic.RR) && !p.OneSided(), "--reply", strconv.FormatInt(p.Reply, 10))
	add(p.Churn, "--churn")
	add(p.Test == traffic.Incast, "--within", strconv.FormatFloat(p.Within, 'f', -1, 64))
	add(true, "--mode", p.Mode, "--complete", p.Complete, "--progress", p.Progress, "--gso", p.GSO)
	add(p.Paths > 0, "--paths", number(p.Paths))
	return append(w, "-c", "--seed", strconv.FormatUint(p.Seed, 10))
}
