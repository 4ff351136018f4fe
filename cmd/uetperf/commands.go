package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/units"
)

// soakName is the command that runs all the others.
const soakName = "soak"

var loadTest = testDef{
	name: perf.Load, short: "latency under load: requests at intended times, whatever becomes of those before",
	long: `load is an open loop: requests begin at a rate, and what is printed is the time from
when a request was MEANT to begin to when the application here had its reply. The
server's application answers each. A round trip is measured because it needs one
clock and ends with what the other application did; it is not halved.

Requests that cannot begin in time, because the window is full or this host is too
slow, wait their turn and are never left out: a stall shows in every request that
it delayed. "late%" are those that began more than ` + perf.LateAfter.String() + ` late.

When requests pile up to the end of the time, host and path are overloaded: those
that wait get another 1 s at most, the rest is given up and counts with the time it
waited, and the last line says how much the path carries at most.`,
	example: "  uetperf load HOST --rate 20k/s -s 4K -t 30s\n  uetperf load HOST --rate 100k/s -s 64 --arrivals poisson --assert 'p99<200us' --assert 'late<1%'",
	ops:     []string{perf.TSend, perf.Send}, size: "4K", time: 10 * time.Second, window: 1024, progress: "manual", reply: "8",
}

var rrTest = testDef{
	name: perf.RR, short: "transactions: a request, its reply, the next request",
	long: `rr counts transactions: a request and its reply, one at a time per stream (-P), or a
window of them (-W). Times are whole round trips.

With --churn each transaction opens what carries it and closes it again. With rdm
that are the packet delivery contexts of both ends: data opens them, so the
transaction includes it; "open" is until the request was acknowledged, "close" the
orderly end of both. With -e msg it is an endpoint with its connection each time:
"open" is endpoint and connection, "close" the end of both, the transaction what is
in between. Transactions that fail are counted, and the test goes on; five in a row
end it.`,
	example: "  uetperf rr HOST -t 10s -P 4\n  uetperf rr HOST -s 100 --reply 10K --assert 'rate>20k/s'\n  uetperf rr HOST --churn\n  uetperf rr HOST --churn -e msg --sec tls --keys KEYS --assert errors==0",
	ops:     []string{perf.TSend, perf.Send}, size: "64", time: 10 * time.Second, window: 1, progress: "manual", reply: "64",
}

var incastTest = testDef{
	name: perf.Incast, short: "many senders at once to one receiver: fairness, convergence, slowest block",
	long: `incast has -P senders here, each an endpoint of its own, and one receiver, an endpoint
at the server. Half of the time the senders stream blocks, -W each under way:

  jain       fairness of the second half of the streams: 1 if all got the same,
             1/P if one got all
  converged  from when on each sender stayed within ±25 % (--within) of its share,
             the mean of all, in intervals of 1/50 of the time of the streams

Then come rounds: all senders send one block at once, and the next round begins when
all are complete. A round takes as long as its slowest sender; who waits for all
ranks of a job waits that long.

A line per sender follows: what it streamed, and over all the packets that it sent
again, that were marked (ecn) and that switches cut (trim). What the receiver threw
away is in the line of all.`,
	example: "  uetperf incast HOST -P 8 -s 256K -t 10s\n  uetperf incast HOST -P 32 -s 64K -c --assert 'jain>0.9' --assert 'tail<20ms'",
	ops:     []string{perf.TSend}, size: "256K", time: 10 * time.Second, window: 4, progress: "auto", parallel: 8,
}

var soakTest = testDef{
	name: soakName, short: "everything mixed, for a long time: data verified, leaks looked for",
	long: `soak runs one test after the other, drawn by the seed: ping, lat, bw, rate, load, rr,
rr --churn and, with rdm, incast; sizes (-s, a list), operations, modes, completion
levels, windows, streams, directions, paths, GSO on and off. What is given (--mode,
--complete, --progress, --gso, --paths, the operation) is not drawn. Beside them a
load of 200 requests a second never pauses. Every byte is verified; -c is always on.
The record (-J) has for each test the command that repeats it.

Between tests both processes are asked for their memory (heap in use, resident set),
goroutines and file descriptors, after garbage was collected. At the end a line is
fitted to each, by least squares, without the first quarter of the time. It leaks if
the line grew more than its bound and is no chance (3 standard errors, 8 samples):

  heap 4 MiB or 10 %, resident set 32 MiB or 20 %, goroutines 8 or 10 %,
  file descriptors 4 or 10 % of the mean, over the time that is judged

The server's process is judged as a whole: let nobody else use it. A test that fails
is told, and the soak goes on; five in a row end it. Exit status 0: no test failed,
no byte was wrong, nothing leaks.`,
	example: "  uetperf soak HOST -t 1h --check\n  uetperf soak HOST -e msg --sec tls --keys KEYS -t 10m -J soak.json\n  uetperf soak HOST -t 5m --impair loss=1%,reorder=1% --assert leaks==0",
	ops:     []string{perf.TSend, perf.Send, perf.Inject}, size: "0,1,8,64,1000,4K,20000,64K,1M", time: 10 * time.Minute, progress: "auto",
}

// loadWarmup is the most that load warms up with, rrWarmup what rr does.
const loadWarmup, rrWarmup = 1000, 100

// pinned is what a soak does not draw, "" and 0: it does.
type pinned struct {
	op, mode, complete, progress, gso string

	paths int
	// common are the flags that were given and that all of its tests have.
	common []string
}

// commonFlags are those that a soak neither draws nor keeps to itself.
var commonFlags = []string{"provider", "ep", "domain", "cc", "sec", "keys", "as", "crc", "base-rtt", "trim", "mtu", "impair", "timeout", "silence"}

// moreFlags are those that not all tests have.
type moreFlags struct {
	t   *testDef
	s   *perf.Spec
	cfg *Config

	rate, reply, within string
	sample              time.Duration
}

func (m *moreFlags) add(f *pflag.FlagSet) {
	switch m.t.name {
	case perf.Load:
		m.s.Arrivals = perf.Constant
		f.StringVar(&m.rate, "rate", "", "`RATE` of requests, those that all streams begin in a second, e.g. 20k/s")
		f.Var(&choice{&m.s.Arrivals, []string{perf.Constant, perf.Poisson, perf.Uniform}, nil}, "arrivals", "gaps between them: `HOW` constant, poisson (exponential), uniform (0 to twice the mean); drawn by --seed")
	case perf.RR:
		f.BoolVar(&m.s.Churn, "churn", false, "open and close a packet delivery context, with -e msg a connection, for each transaction")
	case perf.Incast:
		f.StringVar(&m.within, "within", "25%", "a sender has converged when it stays within ± this `PART` of its share")
	}
	if m.t.reply != "" {
		f.StringVar(&m.reply, "reply", m.t.reply, "`SIZE` of a reply")
	}
	if m.t.name != perf.Ping && m.t.name != soakName {
		f.Var(durationFlag{&m.sample}, "sample", "`TIME` between samples of the series in the record (default a hundredth of the time, at least 100ms)")
	}
}

// finish reads them when all flags are known.
func (m *moreFlags) finish(f *pflag.FlagSet) (err error) {
	s, given := m.s, f.Changed
	if m.t.reply != "" {
		if s.Reply, err = units.ParseSize(m.reply); err != nil {
			return fmt.Errorf("--reply: %w", err)
		}
	}
	if given("sample") && m.sample < 10*time.Millisecond {
		return fmt.Errorf("--sample %v is not at least 10ms", m.sample)
	}
	s.Sample = m.sample
	switch m.t.name {
	case perf.Load:
		if m.rate == "" {
			return errors.New("load needs --rate: how many requests begin in a second, e.g. --rate 20k/s")
		}
		if s.Rate, err = units.ParseRate(m.rate); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
		each := s.Rate / float64(max(1, s.Parallel))
		if s.Iters > 0 { // the rate says when they begin, and with that how long it takes
			s.Time, s.Iters = max(time.Duration(float64(s.Iters)/each*1e9), 1), 0
		}
		if !given("warmup") {
			s.Warmup = int64(min(loadWarmup, each*s.Time.Seconds()/20))
		}
	case perf.RR:
		if !given("warmup") {
			if s.Warmup = rrWarmup; s.Iters > 0 {
				s.Warmup = min(s.Warmup, s.Iters)
			}
		}
		if s.Churn && s.EP == perf.MSG && !given("progress") {
			// Connections are made by goroutines, which those who poll keep waiting.
			s.Progress = "auto"
		}
	case perf.Incast:
		if s.Within, err = units.ParseShare(m.within); err != nil {
			return fmt.Errorf("--within: %w", err)
		}
		if !given("warmup") {
			s.Warmup = int64(2 * s.Window)
		}
	case soakName:
		s.Check = true
		for _, p := range []struct {
			name string
			is   string
			to   *string
		}{{"mode", s.Mode, &m.cfg.Soak.mode}, {"complete", s.Complete, &m.cfg.Soak.complete}, {"progress", s.Progress, &m.cfg.Soak.progress}, {"gso", s.GSO, &m.cfg.Soak.gso}} {
			if given(p.name) {
				*p.to = p.is
			}
		}
		if given("paths") {
			m.cfg.Soak.paths = s.Paths
		}
		for _, name := range commonFlags {
			if given(name) {
				m.cfg.Soak.common = append(m.cfg.Soak.common, "--"+name+"="+f.Lookup(name).Value.String())
			}
		}
		for _, n := range m.cfg.Sizes {
			if n > 32<<20 {
				return fmt.Errorf("size %s is more than the 32 MiB that a soak mixes", units.Size(n))
			}
		}
	}
	return nil
}
