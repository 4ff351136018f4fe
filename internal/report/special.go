package report

import (
	"cmp"
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
	all := r.kinds()
	// The functions below get a row of the table; what they show is that of rows[row].
	var rows []kind
	table := func(caption string, has func(x *record.Run) bool, cols []column) {
		rows = nil
		for _, k := range all {
			if k = slices.DeleteFunc(slices.Clone(k), func(i int) bool { return !has(&r.Runs[i]) }); len(k) > 0 {
				rows = append(rows, k)
			}
		}
		if len(rows) == 0 {
			return
		}
		name := column{head: page.Head{Name: "run", Left: true}, cell: func(row int) page.Cell { return page.T("%s", r.kindName(rows[row][0])) }}
		out = append(out, tableOf(caption, len(rows), append([]column{name}, cols...)))
	}
	figure := func(name, unit, help string, prec int, path []any, value func(*record.Run) float64) column {
		return column{head: page.Head{Name: name, Unit: unit, Help: help}, cell: func(row int) page.Cell {
			return Number(rows[row].spread(func(i int) *float64 {
				if !r.hasRun(i, path...) {
					return nil
				}
				return float(true, value(&r.Runs[i]))
			}), 1, prec)
		}}
	}
	// bad marks numbers that are not zero in some round.
	bad := func(c column, wrong func(*record.Run) bool) column {
		cell := c.cell
		c.cell = func(row int) page.Cell {
			out := cell(row)
			if slices.ContainsFunc(rows[row], func(i int) bool { return wrong(&r.Runs[i]) }) {
				out.Tone = page.Bad
			}
			return out
		}
		return c
	}
	// last is a text of the last run that has it.
	last := func(name string, text func(*record.Run) string) column {
		return column{head: page.Head{Name: name, Left: true}, cell: func(row int) page.Cell {
			said := ""
			for _, i := range rows[row] {
				said = cmp.Or(text(&r.Runs[i]), said)
			}
			return page.Maybe(said)
		}}
	}
	at := func(p ...any) []any { return p }
	table("Open loop: requests begin at their time, and latency counts from there", func(x *record.Run) bool { return x.Load != nil }, []column{
		figure("offered", "", "requests meant to begin", 0, at("load", "offered"), func(x *record.Run) float64 { return float64(x.Load.Offered) }),
		figure("offered", "/s", "", 0, at("load", "offered_per_s"), func(x *record.Run) float64 { return x.Load.OfferedPer }),
		figure("late", "", "began late", 0, at("load", "late"), func(x *record.Run) float64 { return float64(x.Load.Late) }),
		figure("late after", "µs", "", 1, at("load", "late_after_ns"), func(x *record.Run) float64 { return float64(x.Load.LateAfterNS) / 1e3 }),
		figure("most late", "µs", "", 1, at("load", "max_lag_ns"), func(x *record.Run) float64 { return float64(x.Load.MaxLagNS) / 1e3 }),
		figure("unsent", "", "never began", 0, at("load", "unsent"), func(x *record.Run) float64 { return float64(x.Load.Unsent) }),
		{head: page.Head{Name: "overloaded", Help: "requests piled up to the end"}, cell: func(row int) page.Cell {
			said := page.None()
			for _, i := range rows[row] {
				switch {
				case !r.hasRun(i, "load", "overloaded"):
				case r.Runs[i].Load.Overloaded:
					return page.Mark("yes", page.Bad)
				default:
					said = page.T("no")
				}
			}
			return said
		}},
	})
	quantiles := func(name, key, sub string, of func(*record.Run) *record.Latency) []column {
		q := func(which, jkey string, v func(*record.Latency) int64) column {
			return column{head: page.Head{Name: name + " " + which, Unit: "µs"}, cell: func(row int) page.Cell {
				return Number(rows[row].spread(func(i int) *float64 {
					l := of(&r.Runs[i])
					if l == nil || !r.hasRun(i, key, sub, jkey) {
						return nil
					}
					return float(true, v(l))
				}), 1e3, 1)
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
	table("Opening and closing", func(x *record.Run) bool { return x.Churn != nil }, append(
		quantiles("open", "churn", "open_ns", churn(func(c *record.Churn) *record.Latency { return c.Open })),
		quantiles("close", "churn", "close_ns", churn(func(c *record.Churn) *record.Latency { return c.Close }))...))
	table("Incast", func(x *record.Run) bool { return x.Incast != nil }, append([]column{
		figure("fairness", "", "Jain's index of the second half: 1 if all senders got the same", 4, at("incast", "jain"), func(x *record.Run) float64 { return *x.Incast.Jain }),
		figure("fair from", "ms", "each sender within its part for good", 1, at("incast", "convergence_ns"), func(x *record.Run) float64 { return float64(*x.Incast.ConvergenceNS) / 1e6 }),
		figure("within", "%", "of its share", 0, at("incast", "within"), func(x *record.Run) float64 { return 100 * x.Incast.Within }),
		figure("rounds", "", "", 0, at("incast", "rounds"), func(x *record.Run) float64 { return float64(x.Incast.Rounds) }),
	}, quantiles("round", "incast", "round_ns", func(x *record.Run) *record.Latency {
		if x.Incast == nil {
			return nil
		}
		return x.Incast.Round
	})...))
	table("Transactions that failed", func(x *record.Run) bool { return x.Errors != nil }, []column{
		bad(figure("failed", "", "", 0, at("errors"), func(x *record.Run) float64 { return float64(*x.Errors) }), func(x *record.Run) bool { return *x.Errors > 0 }),
		last("the last one", func(x *record.Run) string { return x.LastError }),
	})
	table("Collectives, as nccl-tests show them", func(x *record.Run) bool { return x.Coll != nil }, []column{
		figure("count", "", "elements of a block", 0, at("coll", "count"), func(x *record.Run) float64 { return float64(x.Coll.Count) }),
		figure("time", "µs", "of an operation, at the slowest rank", 2, at("coll", "time_ns"), func(x *record.Run) float64 { return x.Coll.TimeNS / 1e3 }),
		figure("fastest", "µs", "at the fastest rank", 2, at("coll", "least_ns"), func(x *record.Run) float64 { return x.Coll.LeastNS / 1e3 }),
		figure("mean", "µs", "of all ranks", 2, at("coll", "mean_ns"), func(x *record.Run) float64 { return x.Coll.MeanNS / 1e3 }),
		figure("algbw", "GB/s", "size over time", 3, at("goodput_bps"), func(x *record.Run) float64 { return *x.GoodputBPS / 8e9 }),
		figure("busbw", "GB/s", "what the busiest link carried", 3, at("coll", "bus_bps"), func(x *record.Run) float64 { return *x.Coll.BusBPS / 8e9 }),
		bad(figure("wrong", "", "elements of those that were verified", 0, at("coll", "wrong"), func(x *record.Run) float64 { return float64(x.Coll.Wrong) }), func(x *record.Run) bool { return x.Coll.Wrong > 0 }),
		last("algorithm", func(x *record.Run) string { return x.Coll.Algorithm }),
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
	return slices.Concat([]page.Block{r.Results(caption)}, r.rounds(), r.Special())
}
