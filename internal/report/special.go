package report

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// Special makes the tables of measurements that only some tests have: open loop, opening
// and closing, incast, collectives, soak.
func (r *Rec) Special() []page.Block {
	var out []page.Block
	table := func(caption string, has func(i int) bool, cols []column) {
		var rows []int
		for i := range r.Runs {
			if has(i) {
				rows = append(rows, i)
			}
		}
		if len(rows) == 0 {
			return
		}
		all := append([]column{{head: page.Head{Name: "run", Left: true}, cell: func(i int) page.Cell { return page.T("%s", r.RunName(i)) }}}, cols...)
		for k := range all {
			cell := all[k].cell
			all[k].cell = func(row int) page.Cell { return cell(rows[row]) }
		}
		out = append(out, tableOf(caption, len(rows), all))
	}
	col := func(name, unit, help string, path []any, cell func(*record.Run) page.Cell) column {
		return column{head: page.Head{Name: name, Unit: unit, Help: help}, cell: func(i int) page.Cell {
			return opt(r.hasRun(i, path...), func() page.Cell { return cell(&r.Runs[i]) })
		}}
	}
	at := func(p ...any) []any { return p }
	table("Open loop: requests begin at their time, and latency counts from there", func(i int) bool { return r.Runs[i].Load != nil }, []column{
		col("offered", "", "requests meant to begin", at("load", "offered"), func(x *record.Run) page.Cell { return page.T("%s", page.Int(x.Load.Offered)) }),
		col("offered", "/s", "", at("load", "offered_per_s"), func(x *record.Run) page.Cell { return num(x.Load.OfferedPer, 0) }),
		col("late", "", "began late", at("load", "late"), func(x *record.Run) page.Cell { return page.T("%s", page.Int(x.Load.Late)) }),
		col("late after", "µs", "", at("load", "late_after_ns"), func(x *record.Run) page.Cell { return num(float64(x.Load.LateAfterNS)/1e3, 1) }),
		col("most late", "µs", "", at("load", "max_lag_ns"), func(x *record.Run) page.Cell { return num(float64(x.Load.MaxLagNS)/1e3, 1) }),
		col("unsent", "", "never began", at("load", "unsent"), func(x *record.Run) page.Cell { return page.T("%s", page.Int(x.Load.Unsent)) }),
		col("overloaded", "", "requests piled up to the end", at("load", "overloaded"), func(x *record.Run) page.Cell {
			if x.Load.Overloaded {
				return page.Mark("yes", page.Bad)
			}
			return page.T("no")
		}),
	})
	quantiles := func(name, key, sub string, of func(*record.Run) *record.Latency) []column {
		q := func(which, jkey string, v func(*record.Latency) int64) column {
			return column{head: page.Head{Name: name + " " + which, Unit: "µs"}, cell: func(i int) page.Cell {
				return opt(of(&r.Runs[i]) != nil && r.hasRun(i, key, sub, jkey), func() page.Cell { return num(float64(v(of(&r.Runs[i])))/1e3, 1) })
			}}
		}
		return []column{
			q("p50", "p50", func(l *record.Latency) int64 { return l.P50 }), q("p99", "p99", func(l *record.Latency) int64 { return l.P99 }),
			q("max", "max", func(l *record.Latency) int64 { return l.Max }),
		}
	}
	churn := func(of func(*record.Churn) *record.Latency) func(*record.Run) *record.Latency {
		return func(x *record.Run) *record.Latency {
			if x.Churn == nil {
				return nil
			}
			return of(x.Churn)
		}
	}
	table("Opening and closing", func(i int) bool { return r.Runs[i].Churn != nil }, append(
		quantiles("open", "churn", "open_ns", churn(func(c *record.Churn) *record.Latency { return c.Open })),
		quantiles("close", "churn", "close_ns", churn(func(c *record.Churn) *record.Latency { return c.Close }))...))
	table("Incast", func(i int) bool { return r.Runs[i].Incast != nil }, append([]column{
		col("fairness", "", "Jain's index of the second half: 1 if all senders got the same", at("incast", "jain"), func(x *record.Run) page.Cell { return num(*x.Incast.Jain, 4) }),
		col("fair from", "ms", "each sender within its part for good", at("incast", "convergence_ns"), func(x *record.Run) page.Cell { return num(float64(*x.Incast.ConvergenceNS)/1e6, 1) }),
		col("within", "%", "of its share", at("incast", "within"), func(x *record.Run) page.Cell { return num(100*x.Incast.Within, 0) }),
		col("rounds", "", "", at("incast", "rounds"), func(x *record.Run) page.Cell { return page.T("%s", page.Int(x.Incast.Rounds)) }),
	}, quantiles("round", "incast", "round_ns", func(x *record.Run) *record.Latency {
		if x.Incast == nil {
			return nil
		}
		return x.Incast.Round
	})...))
	table("Transactions that failed", func(i int) bool { return r.Runs[i].Errors != nil }, []column{
		col("failed", "", "", at("errors"), func(x *record.Run) page.Cell { return page.BadIf(*x.Errors > 0, page.Int(*x.Errors)) }),
		{head: page.Head{Name: "the last one", Left: true}, cell: func(i int) page.Cell {
			return page.Maybe(r.Runs[i].LastError)
		}},
	})
	µs := func(v float64) page.Cell { return num(v/1e3, 2) }
	table("Collectives, as nccl-tests show them", func(i int) bool { return r.Runs[i].Coll != nil }, []column{
		col("count", "", "elements of a block", at("coll", "count"), func(x *record.Run) page.Cell { return page.T("%s", page.Int(x.Coll.Count)) }),
		col("time", "µs", "of an operation, at the slowest rank", at("coll", "time_ns"), func(x *record.Run) page.Cell { return µs(x.Coll.TimeNS) }),
		col("fastest", "µs", "at the fastest rank", at("coll", "least_ns"), func(x *record.Run) page.Cell { return µs(x.Coll.LeastNS) }),
		col("mean", "µs", "of all ranks", at("coll", "mean_ns"), func(x *record.Run) page.Cell { return µs(x.Coll.MeanNS) }),
		col("algbw", "GB/s", "size over time", at("goodput_bps"), func(x *record.Run) page.Cell { return num(*x.GoodputBPS/8e9, 3) }),
		col("busbw", "GB/s", "what the busiest link carried", at("coll", "bus_bps"), func(x *record.Run) page.Cell { return num(*x.Coll.BusBPS/8e9, 3) }),
		col("wrong", "", "elements of those that were verified", at("coll", "wrong"), func(x *record.Run) page.Cell { return page.BadIf(x.Coll.Wrong > 0, page.Int(x.Coll.Wrong)) }),
		{head: page.Head{Name: "algorithm", Left: true}, cell: func(i int) page.Cell { return page.Maybe(r.Runs[i].Coll.Algorithm) }},
	})
	for i := range r.Runs {
		if m := r.Runs[i].Mesh; m != nil {
			out = append(out, mesh(m)...)
		}
		if s := r.Runs[i].Soak; s != nil {
			out = append(out, soak(s)...)
			out = append(out, drops(&r.Runs[i])...)
		}
	}
	return out
}

func soak(s *record.Soak) []page.Block {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(s.Kinds)) {
		kinds = append(kinds, k+" "+page.Int(s.Kinds[k]))
	}
	out := []page.Block{page.Facts{
		{Name: "episodes", Value: page.T("%s, %s failed", page.Int(s.Episodes), page.Int(s.Failed))},
		{Name: "of these", Value: page.Maybe(strings.Join(kinds, ", "))},
	}}
	t := page.Table{Caption: "Resources over the time of the soak: a line through all samples", Heads: []page.Head{
		{Name: "verdict", Left: true}, {Name: "end", Left: true}, {Name: "what", Left: true}, {Name: "samples"}, {Name: "mean"},
		{Name: "slope", Unit: "per hour"}, {Name: "growth", Help: "of the line from the first sample to the last"}, {Name: "bound", Help: "the most that it may grow"},
	}}
	for _, l := range s.Leaks {
		f := func(v float64) page.Cell {
			if math.IsNaN(v) {
				return page.None()
			}
			if l.What == "rss" || l.What == "heap" {
				return page.T("%s", page.Bytes(v))
			}
			return page.T("%s", page.Figures(v))
		}
		verdict := page.Mark("steady", page.Good)
		if l.Leaks {
			verdict = page.Mark("grows", page.Bad)
		}
		t.Rows = append(t.Rows, []page.Cell{verdict, page.T("%s", l.End), page.T("%s", l.What), page.T("%d", l.Samples), f(l.Mean), f(l.Slope), f(l.Growth), f(l.Bound)})
	}
	if len(t.Rows) > 0 {
		out = append(out, t)
	}
	return append(out, rounds(s)...)
}

// drops says what both ends of a soak threw away, and whether that matters.
func drops(x *record.Run) []page.Block {
	t := page.Table{Caption: "Datagrams that were thrown away", Heads: []page.Head{
		{Name: "verdict", Left: true}, {Name: "end", Left: true}, {Name: "reason", Left: true}, {Name: "datagrams"}, {Name: "what they were, and what to look at", Left: true},
	}, Note: "No message was lost by these: data is verified, and what is missing is sent again. Harmless is what every long test has."}
	for i, c := range []*record.Counters{&x.Transport, x.PeerTransport} {
		if c == nil {
			continue
		}
		end := []string{"client", "server"}[i]
		for _, d := range c.Dropped() {
			verdict := page.Mark("look", page.Fair)
			if d.Harmless {
				verdict = page.Mark("harmless", page.Good)
			}
			t.Rows = append(t.Rows, []page.Cell{verdict, page.T("%s", end), page.T("%s", d.Reason), page.T("%s", page.Int(d.Count)), page.T("%s", d.What)})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []page.Block{t}
}

// rounds lists the tests of a soak: failed ones visibly, all of them folded.
func rounds(s *record.Soak) []page.Block {
	if len(s.Rounds) == 0 {
		return nil
	}
	heads := []page.Head{
		{Name: "verdict", Left: true}, {Name: "test", Help: "1 is the first of the soak"}, {Name: "began", Unit: "s", Help: "since the soak did"}, {Name: "took", Unit: "s"},
		{Name: "command", Left: true, Help: "repeats it alone"}, {Name: "why it failed", Left: true},
	}
	failed, all := page.Table{Caption: "Tests that failed", Heads: heads}, page.Table{Heads: heads}
	for _, r := range s.Rounds {
		row := []page.Cell{
			page.Mark("ok", page.Good), page.T("%s", page.Int(r.N)), num(float64(r.AtNS)/1e9, 1), num(float64(r.DurationNS)/1e9, 2),
			page.T("%s", r.Command), page.Maybe(r.Error),
		}
		if r.Error != "" {
			row[0] = page.Mark("failed", page.Bad)
			failed.Rows = append(failed.Rows, row)
		}
		all.Rows = append(all.Rows, row)
	}
	var out []page.Block
	if len(failed.Rows) > 0 {
		out = append(out, failed)
	}
	n := units.Plural(len(s.Rounds), "test")
	if int64(len(s.Rounds)) < s.Episodes {
		n += " of " + page.Int(s.Episodes)
	}
	return append(out, page.Details{Summary: n + ", each with the command that repeats it", Body: []page.Block{all}})
}

// Blocks returns everything about the record's runs except the figures of latency.
func (r *Rec) Blocks(caption string) []page.Block {
	return append([]page.Block{r.Results(caption)}, r.Special()...)
}
