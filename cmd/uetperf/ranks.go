package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/ranks"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/uet"
)

const launchedLong = `
Ranks come from the launcher: mpiexec, srun, mpirun, torchrun, a Kubernetes Indexed
Job (docs/mp.md says what each needs). Without one uetperf makes --ranks in its own
process. Rank 0 alone prints and writes files.`

// betweenTests are the tests between ranks.
var betweenTests = []testDef{
	{
		name: ranks.Coll, short: "collectives between ranks, as nccl-tests show them",
		long: `coll measures a collective of package mp over all ranks, one right behind the other.
` + launchedLong + `

  size    bytes of the larger buffer of a rank; where that has a block for each rank,
          as in allgather and alltoall, it is cut to whole elements
  count   elements of a block
  time    of one operation, at the slowest rank
  algbw   size / time
  busbw   what the busiest link carried, to hold against its speed: algbw times
          2(n-1)/n for allreduce, (n-1)/n for allgather, reducescatter, alltoall,
          gather and scatter, 1 for the others
  wrong   elements that were not what they must be, over all ranks

One operation before the measured ones and one behind them has contents of its own,
and every element of the result is verified; with -c it is each. The record (-J) has
the distribution of all calls at all ranks.`,
		example: "  mpiexec -n 4 uetperf coll allreduce -s 8:16M:*4 -n 100\n  srun --mpi=pmi2 uetperf coll alltoall --type int32 -J alltoall.json\n  uetperf coll bcast --ranks 4 --root 2 -c --assert 'busbw>1Gb/s'",
		ops:     ranks.Ops(ranks.Coll), counted: "operations of each size", Usual: traffic.Usual{Size: "8:4M:*2"},
		often: "100", warmed: "a tenth of -n",
	},
	{
		name: ranks.P2P, short: "messages between pairs of ranks, as the OSU benchmarks show them",
		long: `p2p measures messages of package mp between pairs of ranks: each of the first half
has a partner in the second.
` + launchedLong + `

  latency   half of a round trip: mean, then least, p50, p99 and largest, of all pairs
  bw        -W messages at once, then an answer; the sum of all pairs
  bibw      the same in both directions at once
  mbw_mr    bw, with the rate of messages

One of each before the measured ones and one behind them has contents of its own, and
every byte that arrives is verified; with -c it is each. "wrong" are messages.`,
		example: "  mpiexec -n 2 uetperf p2p latency\n  mpiexec -n 8 uetperf p2p mbw_mr -W 64 -s 8:4K:*2\n  uetperf p2p bw -s 1M --assert 'goodput>10Gb/s'",
		ops:     ranks.Ops(ranks.P2P), counted: "round trips or windows of each size", Usual: traffic.Usual{Size: "1:4M:*2", Window: 64},
		often: "100, of latency 1000", warmed: "a tenth of -n",
	},
}

// between makes the command of a test between ranks.
func (l *line) between(t testDef) *cobra.Command {
	return l.command(&cobra.Command{
		Use: t.name + " " + strings.Join(t.ops, "|"), Short: t.short, Long: t.long, Example: t.example,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return fmt.Errorf("%s needs an operation: %s", t.name, strings.Join(t.ops, ", "))
			case !slices.Contains(t.ops, args[0]):
				return fmt.Errorf("operation %q of %s is not one of %s", args[0], t.name, strings.Join(t.ops, ", "))
			case len(args) > 1:
				return fmt.Errorf("unexpected %q after the operation: the launcher says where ranks are", args[1])
			}
			return nil
		},
	}, t.name, t, func(p *params, args []string) error {
		b, s := &p.cfg.Between, &p.cfg.Spec
		b.Test, b.Op = t.name, args[0]
		// What mp is: tagged messages in order.
		s.Test, s.Op, s.EP, s.Mode, s.Complete, s.CC, s.Progress, s.Parallel = b.Test, b.Op, traffic.RDM, traffic.ROD, "transmit", "nscc", "auto", 1
		return nil
	}, nil)
}

// silent reports whether this process leaves it to rank 0 to say that a command line is wrong.
func silent(command string) bool {
	if command != ranks.Coll && command != ranks.P2P {
		return false
	}
	l, err := mp.Launched(nil)
	return err == nil && l.Rank > 0
}

// alone is how many ranks there are without a launcher.
const alone = 2

// runBetween runs a test between ranks.
func runBetween(ctx context.Context, cfg *Config, stdout io.Writer) error {
	launch, err := mp.Launched(nil)
	if err != nil {
		return &usage{fmt.Errorf("what started this process is not clear: %w", err)}
	}
	launched := launch.Launcher != "none"
	if launched && cfg.Local > 0 {
		if launch.Rank > 0 {
			return errSilent(exitUsage)
		}
		if launch.Launcher == "explicit" {
			return &usage{errors.New("--ranks makes ranks of its own, but MP_RANK says that this process is one: leave out one of both")}
		}
		return &usage{fmt.Errorf("--ranks is for a process that no launcher has started, but the environment says that %s has: leave --ranks out, or start uetperf without %[1]s", launch.Launcher)}
	}
	algorithms := new(ranks.Algorithms)
	mc := mp.Config{Clear: cfg.Clear, Timeout: cfg.Timeout, Choose: algorithms.Choose}
	mc.Endpoint.Socket.Ports = uet.PortRange(cfg.DataPorts)
	if cfg.Domain != "" {
		if mc.Address, err = perf.AddressOf(cfg.Domain); err != nil {
			return err
		}
	}
	if !launched {
		n := cmp.Or(cfg.Local, alone)
		if have := cfg.DataPorts.Len(); have > 0 && have < n {
			return &usage{fmt.Errorf("--data-ports %v are %d ports for %d ranks: each takes one", cfg.DataPorts, have, n)}
		}
		if err := cfg.Between.For(n); err != nil {
			return &usage{err}
		}
		return ranks.Local(ctx, n, mc, func(ctx context.Context, w *mp.World) error {
			return rankOf(ctx, cfg, w, algorithms, stdout)
		})
	}
	w, err := mp.Init(ctx, mc)
	if err != nil {
		return err
	}
	err = ranks.Close(ctx, w, rankOf(ctx, cfg, w, algorithms, stdout))
	if w.Rank() > 0 && !errors.Is(err, errSilent(exitUsage)) {
		// Rank 0 has the same error, or one that says who left. A launcher would end it for another
		// exit code of this rank, before it has written what was measured.
		return nil
	}
	return err
}

// rankOf is one rank of a test.
func rankOf(ctx context.Context, cfg *Config, w *mp.World, a *ranks.Algorithms, stdout io.Writer) error {
	if err := cfg.Between.For(w.Size()); err != nil {
		if w.Rank() > 0 {
			return errSilent(exitUsage)
		}
		return &usage{err}
	}
	if w.Rank() > 0 {
		if _, err := ranks.Where(ctx, w); err != nil {
			return err
		}
		return ranks.Run(ctx, w, &cfg.Between, a, ranks.Watch{}, nil)
	}
	o, err := newOutcome(cfg, stdout)
	if err != nil {
		return err
	}
	err = o.between(ctx, w, a)
	if ctx.Err() != nil { // of the errors of that moment it is the cause
		err = ctx.Err()
	}
	return o.finish(err)
}

// between runs the test at rank 0.
func (o *outcome) between(ctx context.Context, w *mp.World, a *ranks.Algorithms) error {
	where, err := ranks.Where(ctx, w)
	if err != nil {
		return err
	}
	if where.Launcher == "" {
		where.Launcher = "uetperf"
	}
	b, c := &o.cfg.Between, &o.rec.Config
	o.rec.World = where
	c.Ranks, c.Type, c.Reduction, c.Direction, c.Window = w.Size(), b.Type, b.Reduction, "both", b.Window
	if b.Rooted() {
		c.Root = &b.Root
	}
	if c.CRC, c.Sec = w.Checksummed(), traffic.Off; w.Sealed() {
		c.Sec = traffic.PSK
	}
	p := newPrinter(o.people, o.cfg)
	p.world(&o.rec)
	err = ranks.Run(ctx, w, b, a, p.ranksWatch(), func(r *record.Run) {
		p.clear()
		o.rec.Runs = append(o.rec.Runs, *r)
		p.between(r)
	})
	p.clear()
	p.average(o.rec.Runs)
	if err == nil {
		p.medians(&o.rec)
	}
	return err
}

// world prints between which ranks the test is, and the column headers.
func (p *printer) world(r *record.Record) {
	b := &p.cfg.Between
	if p.cfg.Quiet {
		return
	}
	w := r.World
	var hosts []string
	for _, h := range w.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s: %d", h.Name, h.Ranks))
	}
	sec := "in clear, CRC " + onOff(r.Config.CRC)
	if w.Sealed {
		sec = "sealed with a key of rank 0"
	}
	by := "started by " + w.Launcher
	if w.Launcher == "uetperf" {
		by = "all in this process"
	}
	fmt.Fprintf(p.w, "%s %s: %s on %s (%s), %s; %s\n", b.Test, b.Op, units.Plural(w.Ranks, "rank"), units.Plural(len(w.Hosts), "host"), strings.Join(hosts, ", "), by, sec)
	what := "operations"
	switch {
	case b.Windowed():
		what = fmt.Sprintf("windows of %d", b.Window)
	case b.Test == ranks.P2P:
		what = "round trips"
	}
	verified := "one before and one after them verified"
	switch {
	case !b.Checked():
		verified = "no data"
	case b.Check:
		verified = "each verified"
	}
	fmt.Fprintf(p.w, "%d %s after %d of warm-up; %s; seed %d\n", b.Iters, what, b.Warmup, verified, r.Seed)
	switch b.Op {
	case ranks.Latency:
		fmt.Fprintf(p.w, "%8s %12s %9s %9s %9s %9s %9s\n", "size", "latency[µs]", "min", "p50", "p99", "max", "wrong")
	case ranks.BW, ranks.BiBW:
		fmt.Fprintf(p.w, "%8s %16s %9s\n", "size", "bandwidth[MB/s]", "wrong")
	case ranks.MBWMR:
		fmt.Fprintf(p.w, "%8s %12s %14s %9s\n", "size", "MB/s", "messages/s", "wrong")
	default:
		fmt.Fprintf(p.w, "%8s %9s %8s %6s %5s %12s %12s %12s %9s\n", "size", "count", "type", "redop", "root", "time[µs]", "algbw[GB/s]", "busbw[GB/s]", "wrong")
	}
}

// ranksWatch is how a test between ranks says how far it is: with --watch, and in a line of its own on
// a terminal, where a large size may take long.
func (p *printer) ranksWatch() ranks.Watch {
	every := cmp.Or(p.cfg.Interval, time.Second)
	if p.cfg.Quiet || every < 0 || !p.tty && !p.cfg.Watch {
		return ranks.Watch{}
	}
	b, last := &p.cfg.Between, ranks.State{}
	return ranks.Watch{Every: every, Tell: func(st ranks.State) {
		if st.At <= last.At || st.Size != last.Size { // another one
			last = ranks.State{Size: st.Size}
		}
		rate := float64(st.Done-last.Done) / max(1e-9, (st.At-last.At).Seconds())
		last = st
		what := fmt.Sprintf("%s %s %s: %d of %d", b.Test, b.Op, units.Size(st.Size), st.Done, st.Of)
		if p.cfg.Watch {
			what += fmt.Sprintf(", %s/s", rateText(rate))
			if st.P50 > 0 {
				what += fmt.Sprintf(", p50 %s p99 %s", brief(st.P50), brief(st.P99))
			}
		}
		if p.tty {
			p.live = true
			fmt.Fprintf(p.w, "\r\x1b[K%.0fs %s", st.At.Seconds(), what)
			return
		}
		fmt.Fprintf(p.w, "%7.1f s  %s\n", st.At.Seconds(), what)
	}}
}

// gbytes formats bits per second as GB/s, "-" if they were not measured.
func gbytes(bps *float64) string {
	if bps == nil {
		return "-"
	}
	return little(*bps/8e9, 2, 0.1, 6)
}

// between prints one line of results.
func (p *printer) between(r *record.Run) {
	b := &p.cfg.Between
	wrong := "-"
	if r.DataCheck != nil {
		wrong = fmt.Sprint(r.DataCheck.Wrong)
	}
	size := units.Size(r.Size)
	switch l := r.Latency; {
	case r.Coll != nil:
		x := r.Coll
		if r.DataCheck != nil {
			wrong = fmt.Sprint(x.Wrong)
		}
		root := -1
		if b.Rooted() {
			root = b.Root
		}
		fmt.Fprintf(p.w, "%8s %9d %8s %6s %5d %12s %12s %12s %9s\n", size, x.Count, cmp.Or(b.Type, "none"), cmp.Or(b.Reduction, "none"), root, inµs(x.TimeNS, 12),
			gbytes(r.GoodputBPS), gbytes(x.BusBPS), wrong)
		if p.cfg.Verbose && l != nil {
			algorithm := ""
			if x.Algorithm != "" {
				algorithm = "; by " + x.Algorithm
			}
			fmt.Fprintf(p.w, "  ranks: fastest %s, mean %s; calls: p50 %s, p99 %s, max %s%s\n", µs(int64(x.LeastNS)), µs(int64(x.MeanNS)), µs(l.P50), µs(l.P99), µs(l.Max), algorithm)
		}
	case b.Op == ranks.Latency && l != nil:
		fmt.Fprintf(p.w, "%8s %12s %9s %9s %9s %9s %9s\n", size, inµs(l.Mean, 12), inµs(float64(l.Min), 9), inµs(float64(l.P50), 9), inµs(float64(l.P99), 9), inµs(float64(l.Max), 9), wrong)
	case r.GoodputBPS == nil:
		fmt.Fprintf(p.w, "%8s nothing was measured\n", size)
	case b.Op == ranks.MBWMR:
		fmt.Fprintf(p.w, "%8s %12s %14s %9s\n", size, little(*r.GoodputBPS/8e6, 1, 10, 3), rateText(*r.MsgsPerS), wrong)
	default:
		fmt.Fprintf(p.w, "%8s %16s %9s\n", size, little(*r.GoodputBPS/8e6, 1, 10, 3), wrong)
	}
	if p.cfg.Verbose {
		p.counters("all  ", &r.Transport, &r.Transport)
	}
}

// average prints the mean of the bus bandwidths, as nccl-tests do.
func (p *printer) average(runs []record.Run) {
	sum, n := 0.0, 0
	for i := range runs {
		if c := runs[i].Coll; c != nil && c.BusBPS != nil {
			sum += *c.BusBPS
			n++
		}
	}
	if n > 0 && !p.cfg.Quiet {
		mean := sum / float64(n)
		fmt.Fprintf(p.w, "average bus bandwidth: %s GB/s\n", gbytes(&mean))
	}
}
