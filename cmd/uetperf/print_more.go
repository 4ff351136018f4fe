package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/soak"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
)

// printed reports whether this file prints the results of a test.
func printed(test string) bool {
	return test == traffic.Load || test == traffic.RR || test == traffic.Incast || test == traffic.Soak
}

// moreColumns prints the column headers of load, rr and incast.
func (p *printer) moreColumns(test string) {
	switch test {
	case traffic.Load:
		to := fmt.Sprintf("round trips from the intended time of a request to its reply (%s, ", units.Bytes(p.cfg.Spec.Reply))
		if p.cfg.Spec.OneSided() {
			to = fmt.Sprintf("from the intended time of a %s to its completion (", p.cfg.Spec.Op)
		}
		fmt.Fprintf(p.w, "%s%s arrivals), µs; late: begun more than %v after that time\n", to, p.cfg.Spec.Arrivals, traffic.LateAfter)
		fmt.Fprintf(p.w, "%8s %12s %12s %7s %8s %8s %8s %9s %16s %6s %5s %5s %6s\n",
			"size", "offered[/s]", "achieved[/s]", "late%", "p50", "p90", "p99", "max", "avg±sd", "rtx", "spur", "ecn", "cpu%")
	case traffic.RR:
		fmt.Fprintf(p.w, "round trips from a request to its reply, µs\n%8s %8s %10s %12s %8s %8s %8s %8s %9s %16s %7s %6s %5s %6s\n",
			"size", "reply", "trans", "trans[/s]", "p50", "p90", "p99", "p99.9", "max", "avg±sd", "errors", "rtx", "spur", "cpu%")
	case traffic.Incast:
		fmt.Fprintf(p.w, "%8s %7s %14s %7s %12s %8s %12s %12s %12s %6s %5s %6s %6s\n",
			"size", "senders", "goodput[Gb/s]", "jain", "converged[s]", "rounds", "p50[ms]", "p99[ms]", "max[ms]", "rtx", "spur", "ecn", "drops")
	}
}

// inµs formats nanoseconds as µs with two decimals, or with fewer if they do not fit the
// column.
func inµs(ns float64, width int) string {
	s := fmt.Sprintf("%.2f", ns/1e3)
	for d := 1; d >= 0 && len(s) > width; d-- {
		s = fmt.Sprintf("%.*f", d, ns/1e3)
	}
	return s
}

// little formats v with the given digits, or with more digits if v is below the limit, so
// that a small value does not become zero.
func little(v float64, digits int, below float64, more int) string {
	if v > 0 && v < below {
		digits = more
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func gbpsText(bps float64) string  { return little(bps/1e9, 2, 0.1, 4) }
func mbpsText(bps float64) string  { return little(bps/8e6, 0, 10, 2) }
func rateText(perS float64) string { return little(perS, 0, 100, 1) }

// avgText formats mean and deviation for a column of 16.
func avgText(l *record.Latency) string { return inµs(l.Mean, 8) + "±" + inµs(l.StdDev, 7) }
func inMS(ns int64) string             { return fmt.Sprintf("%.3f", float64(ns)/1e6) }

func dropped(r *record.Run) (n uint64) {
	sum := both(r)
	for _, d := range sum.Drops {
		n += d
	}
	return n
}

// more prints the results of load, rr, incast and soak.
func (p *printer) more(s *traffic.Spec, r *record.Run) {
	sum := both(r)
	mine, _ := cpuText(r)
	l := r.Latency
	if l == nil {
		l = &record.Latency{}
	}
	avg := avgText(l)
	switch {
	case s.Test == traffic.Soak:
		p.soaked(r)
	case !measured(s.Test, r):
		fmt.Fprintf(p.w, "%8s nothing was measured\n", units.Size(r.Size))
		if r.LastError != "" {
			fmt.Fprintf(p.w, "the last error: %s\n", r.LastError)
		}
	case s.Test == traffic.Load:
		x := r.Load
		late := 0.0
		if x.Offered > 0 {
			late = 100 * float64(x.Late) / float64(x.Offered)
		}
		fmt.Fprintf(p.w, "%8s %12.0f %12.0f %7.2f %8s %8s %8s %9s %16s %6d %5d %5d %6s\n", units.Size(r.Size), x.OfferedPer, *r.MsgsPerS, late,
			inµs(float64(l.P50), 8), inµs(float64(l.P90), 8), inµs(float64(l.P99), 8), inµs(float64(l.Max), 9), avg, sum.Rtx(), sum.Spurious(), sum.ECNCE, mine)
		if x.Overloaded {
			fmt.Fprintf(p.w, "overloaded: the host or the path carries at most %s of the %s requests a second%s; the latencies say how long the test was\n",
				strings.TrimSpace(units.Count(*r.MsgsPerS)), strings.TrimSpace(units.Count(x.OfferedPer)), unsentText(x))
		}
	case s.Test == traffic.RR:
		fmt.Fprintf(p.w, "%8s %8s %10d %12.0f %8s %8s %8s %8s %9s %16s %7d %6d %5d %6s\n", units.Size(r.Size), units.Size(s.Reply), r.Msgs, *r.MsgsPerS,
			inµs(float64(l.P50), 8), inµs(float64(l.P90), 8), inµs(float64(l.P99), 8), inµs(float64(l.P999), 8), inµs(float64(l.Max), 9), avg, *r.Errors, sum.Rtx(), sum.Spurious(), mine)
		if c := r.Churn; c != nil {
			for _, x := range []struct {
				what string
				l    *record.Latency
			}{{"open", c.Open}, {"close", c.Close}} {
				fmt.Fprintf(p.w, "%8s %41s %8s %8s %8s %9s %16s\n", x.what, inµs(float64(x.l.P50), 8), inµs(float64(x.l.P90), 8), inµs(float64(x.l.P99), 8),
					inµs(float64(x.l.P999), 8), inµs(float64(x.l.Max), 9), avgText(x.l))
			}
		}
		if r.LastError != "" {
			fmt.Fprintf(p.w, "the last error: %s\n", r.LastError)
		}
	default:
		p.incast(r, &sum)
	}
}

func unsentText(x *record.Load) string {
	if x.Unsent == 0 {
		return ""
	}
	return fmt.Sprintf("; %s were never sent", strings.TrimSpace(units.Count(float64(x.Unsent))))
}

// incast prints the results of an incast and a line for each sender.
func (p *printer) incast(r *record.Run, sum *record.Counters) {
	x := r.Incast
	jain, conv := "-", "-"
	if x.Jain != nil {
		jain = fmt.Sprintf("%.4f", *x.Jain)
	}
	if x.ConvergenceNS != nil {
		conv = fmt.Sprintf("%.2f", float64(*x.ConvergenceNS)/1e9)
	}
	p50, p99, most := "-", "-", "-"
	if x.Round != nil {
		p50, p99, most = inMS(x.Round.P50), inMS(x.Round.P99), inMS(x.Round.Max)
	}
	gbps := 0.0
	if r.GoodputBPS != nil {
		gbps = *r.GoodputBPS / 1e9
	}
	fmt.Fprintf(p.w, "%8s %7d %14.2f %7s %12s %8d %12s %12s %12s %6d %5d %6d %6d\n", units.Size(r.Size), len(r.Streams), gbps, jain, conv, x.Rounds, p50, p99, most,
		sum.Rtx(), sum.Spurious(), sum.ECNCE, dropped(r))
	if p.cfg.Quiet {
		return
	}
	for i, st := range r.Streams {
		fmt.Fprintf(p.w, "  sender %2d: %8d blocks %8.3f Gb/s; rtx %d, spur %d, ecn %d, trim %d\n", i+1, st.Msgs, st.GoodputBPS/1e9, *st.Rtx, *st.Spurious, *st.ECN, *st.Trimmed)
	}
}

// soaked prints the result of a soak.
func (p *printer) soaked(r *record.Run) {
	x := r.Soak
	sum := both(r)
	fmt.Fprintf(p.w, "%s in %v, %d failed: %s messages, %s; resent %s, ecn %d, dropped %d\n", units.Plural(int(x.Episodes), "test"),
		time.Duration(r.DurationNS).Round(100*time.Millisecond), x.Failed, strings.TrimSpace(units.Count(float64(r.Msgs))), units.Bytes(r.Bytes), resentText(&sum), sum.ECNCE, dropped(r))
	p.drops("client", &r.Transport)
	p.drops("server", r.PeerTransport)
	if r.LastError != "" {
		fmt.Fprintf(p.w, "the last that failed: %s\n", r.LastError)
	}
	for _, l := range x.Leaks {
		v := resourceText(l.What)
		if l.Samples < soak.LeastSamples { // a line through so few samples proves nothing
			fmt.Fprintf(p.w, "  %-6s %-10s mean %10s: not judged by %s, of %d at least\n", l.End, l.What, v(l.Mean), units.Plural(l.Samples, "sample"), soak.LeastSamples)
			continue
		}
		word := "steady"
		if l.Leaks {
			word = "LEAKS"
		}
		fmt.Fprintf(p.w, "  %-6s %-10s mean %10s, grew %10s (%s an hour), may grow %10s: %s\n", l.End, l.What, v(l.Mean), v(l.Growth), v(l.Slope), v(l.Bound), word)
	}
}

// drops says what an end threw away, and whether that matters.
func (p *printer) drops(end string, c *record.Counters) {
	if c == nil {
		return
	}
	for _, d := range c.Dropped() {
		word := "look"
		if d.Harmless {
			word = "harmless"
		}
		fmt.Fprintf(p.w, "  %-6s dropped %-8s %10d %s: %s\n", end, d.Reason, d.Count, word, d.What)
	}
}

// resourceText returns the format for amounts of a resource.
func resourceText(what string) func(float64) string {
	if what == "goroutines" || what == "fds" {
		return func(v float64) string { return fmt.Sprintf("%.1f", v) }
	}
	return func(v float64) string {
		if v < 0 {
			return "-" + units.Bytes(int64(-v))
		}
		return units.Bytes(int64(v))
	}
}

// soaking prints the state of a soak.
func (p *printer) soaking(st *soak.Status) {
	end := func(r perf.Resources) string {
		s := fmt.Sprintf("heap %s", units.Bytes(r.Heap))
		if r.RSS >= 0 {
			s += ", rss " + units.Bytes(r.RSS)
		}
		s += fmt.Sprintf(", %d goroutines", r.Goroutines)
		if r.FDs >= 0 {
			s += fmt.Sprintf(", %d fds", r.FDs)
		}
		return s
	}
	r := st.Run
	sum := both(r)
	fmt.Fprintf(p.w, "%8.1f s %6d tests, %d failed; %s messages, %s verified, %d wrong, resent %s; here %s; there %s\n", st.At.Seconds(), r.Soak.Episodes, r.Soak.Failed,
		strings.TrimSpace(units.Count(float64(r.Msgs))), units.Bytes(st.BytesChecked), r.DataCheck.Wrong, resentText(&sum), end(st.Here), end(st.There))
}
