package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// A column of the table of runs.
type column struct {
	head page.Head
	cell func(i int) page.Cell
	// always shows the column even if no run has a value for it.
	always bool
}

// maxRows bounds the runs that a table shows.
const maxRows = 4096

// setup returns the columns about set-up. of maps a row of the table to runs, or to none.
func (r *Rec) setup(of func(row int) kind) []column {
	took := func(name, help, key string, value func(*record.Run) int64) column {
		return column{head: page.Head{Name: name, Unit: "ms", Help: help}, cell: func(row int) page.Cell {
			return Number(of(row).spread(func(i int) *float64 { return float(r.hasRun(i, key), value(&r.Runs[i])) }), 1e6, 3)
		}}
	}
	return []column{
		took("set-up", "opening of both endpoints and their addresses", "setup_ns", func(r *record.Run) int64 { return r.SetupNS }),
		took("connect", "of the set-up, from the request to the answer", "connect_ns", func(r *record.Run) int64 { return r.ConnectNS }),
		took("first", "first round trip after the set-up", "first_ns", func(r *record.Run) int64 { return r.FirstNS }),
	}
}

// tableOf makes a table and leaves out columns without values.
func tableOf(caption string, n int, cols []column) page.Table {
	t := page.Table{Caption: caption, Rows: make([][]page.Cell, min(n, maxRows))}
	for _, c := range cols {
		cells := make([]page.Cell, len(t.Rows))
		any := c.always
		for i := range cells {
			cells[i] = c.cell(i)
			any = any || !cells[i].Missing
		}
		if !any {
			continue
		}
		t.Heads = append(t.Heads, c.head)
		for i := range cells {
			t.Rows[i] = append(t.Rows[i], cells[i])
		}
	}
	if n > maxRows {
		t.Note = fmt.Sprintf("The first %d of %d runs; the record has them all.", maxRows, n)
	}
	return t
}

func num(v float64, prec int) page.Cell { return page.T("%s", page.Fixed(v, prec)) }

// float is the pointer to a number, nil unless it was measured.
func float[T int64 | float64](measured bool, v T) *float64 {
	if !measured {
		return nil
	}
	f := float64(v)
	return &f
}

func floatOf(v *int64) *float64 {
	if v == nil {
		return nil
	}
	return float(true, *v)
}

// opt returns cell() if ok, else page.None.
func opt(ok bool, cell func() page.Cell) page.Cell {
	if !ok {
		return page.None()
	}
	return cell()
}

// Results makes the table of all runs, with the columns of perftest. Of a repeated test it has
// medians.
func (r *Rec) Results(caption string) page.Table {
	kinds := r.kinds()
	t := r.results(caption, kinds)
	if len(kinds) < len(r.Runs) {
		t.Note = fmt.Sprintf("Medians of %d rounds; below each the least … most. ", r.Config.Repeat) + t.Note
	}
	return t
}

// results makes a table with a row for each kind.
func (r *Rec) results(caption string, kinds []kind) page.Table {
	run := func(row int) *record.Run { return &r.Runs[kinds[row][0]] }
	text := func(name string, of func(*record.Run) string) column {
		return column{head: page.Head{Name: name, Left: true}, cell: func(row int) page.Cell { return page.Maybe(of(run(row))) }}
	}
	metric := func(name, unit, help, metric string, per float64, prec int) column {
		return column{head: page.Head{Name: name, Unit: unit, Help: help}, cell: func(row int) page.Cell { return Number(r.spread(kinds[row], metric), per, prec) }}
	}
	of := func(row int, value func(i int, x *record.Run) *float64) *assert.Spread {
		return kinds[row].spread(func(i int) *float64 { return value(i, &r.Runs[i]) })
	}
	// A column with long times has fewer digits behind the point.
	µs := func(name, help, of string) column {
		most := 0.0
		for _, k := range kinds {
			if s := r.spread(k, of); s != nil {
				most = max(most, s.Max)
			}
		}
		prec := 2
		switch {
		case most >= 1e7:
			prec = 0
		case most >= 1e6:
			prec = 1
		}
		return metric(name, "µs", help, of, 1e3, prec)
	}
	cpu := func(name, help, of string) column {
		return metric(name, "%", help+", in parts of one processor", of, 0.01, 0)
	}
	count := func(name, help string) column {
		c := metric(name, "", help+", both ends", name, 1, 0)
		c.always = true
		return c
	}
	cols := []column{
		text("run", func(x *record.Run) string { return x.Name }),
		text("op", func(x *record.Run) string { return x.Op }),
		{head: page.Head{Name: "size", Unit: "B", Help: "of a message"}, always: true, cell: func(row int) page.Cell {
			return opt(r.hasRun(kinds[row][0], "size"), func() page.Cell { return page.T("%s", units.Size(run(row).Size)) })
		}},
		metric("msgs", "", "messages or round trips that were measured", "msgs", 1, 0),
		{head: page.Head{Name: "time", Unit: "s", Help: "what they took"}, cell: func(row int) page.Cell {
			return Number(of(row, func(i int, x *record.Run) *float64 { return float(r.hasRun(i, "duration_ns"), x.DurationNS) }), 1e9, 2)
		}},
	}
	if t := r.Config.Test; t != "bw" && t != "rate" && !r.hasLatency() { // these have it in the table of counters
		cols = append(cols, r.setup(func(row int) kind { return kinds[row] })...)
	}
	cols = append(cols, []column{
		µs("min", "", "min"),
		µs("p50", "half of the messages were at least as fast", "p50"),
		µs("p90", "90 % were at least as fast", "p90"),
		µs("p99", "99 % were at least as fast", "p99"),
		µs("p99.9", "99.9 % were at least as fast", "p999"),
		µs("max", "", "max"),
		µs("avg", "mean", "avg"),
		µs("sd", "standard deviation", "sd"),
		metric("goodput", "Gb/s", "", "goodput", 1e9, 3),
		metric("slowest", "Gb/s", "of the whole intervals that were measured", "slowest", 1e9, 3),
		{head: page.Head{Unit: "MB/s"}, cell: func(row int) page.Cell {
			return opt(!r.hasLatency() || r.Config.Test == "bw", func() page.Cell { return Number(r.spread(kinds[row], "goodput"), 8e6, 1) })
		}},
		metric("rate", "msg/s", "", "rate", 1, 0),
		{head: page.Head{Name: "sent", Help: "datagrams, or round trips with them that began, warm-up included"}, cell: func(row int) page.Cell {
			return Number(of(row, func(_ int, x *record.Run) *float64 { return floatOf(x.Sent) }), 1, 0)
		}},
		{head: page.Head{Name: "lost", Unit: "msgs", Help: "messages sent and not received"}, cell: func(row int) page.Cell {
			c := Number(of(row, func(_ int, x *record.Run) *float64 { return floatOf(x.Lost) }), 1, 0)
			if slices.ContainsFunc(kinds[row], func(i int) bool { x := &r.Runs[i]; return x.Lost != nil && *x.Lost > 0 && x.Sent == nil }) {
				c.Tone = page.Bad
			}
			return c
		}},
		metric("bus", "Gb/s", "of a collective: what the busiest link carried", "busbw", 1e9, 3),
		count("rtx", "packets sent again: lost + spurious"),
		{head: page.Head{Name: "lost", Unit: "pkts", Help: "of the packets sent again, those that the network had lost"}, cell: func(row int) page.Cell {
			return Number(of(row, func(i int, _ *record.Run) *float64 { lost, _ := r.resent(i); return lost }), 1, 0)
		}},
		{head: page.Head{Name: "spur", Unit: "pkts", Help: "of the packets sent again, those that the other end had already"}, cell: func(row int) page.Cell {
			return Number(of(row, func(i int, _ *record.Run) *float64 { _, spurious := r.resent(i); return spurious }), 1, 0)
		}},
		count("ooo", "packets that came out of order"),
		count("trim", "packets that came trimmed"),
		count("ecn", "packets marked: congestion experienced"),
		cpu("cpu", "processor time of "+map[bool]string{false: "the client", true: "all ranks"}[r.World != nil], "cpu"),
		cpu("cpu peer", "processor time of the server", "cpu-peer"),
		{head: page.Head{Name: "data", Help: "messages whose bytes were verified", Left: true}, cell: func(row int) page.Cell {
			d := r.checks(kinds[row])
			return opt(d != nil, func() page.Cell {
				if d.Wrong > 0 {
					return page.BadIf(true, page.Int(d.OK)+" ok, "+page.Int(d.Wrong)+" wrong")
				}
				return page.T("%s ok", page.Int(d.OK))
			})
		}},
		{head: page.Head{Name: "ended by", Left: true}, cell: func(row int) page.Cell {
			why := r.errors(kinds[row])
			return opt(why != "", func() page.Cell { return page.BadIf(true, why) })
		}},
	}...)
	t := tableOf(caption, len(kinds), cols)
	var notes []string
	for _, w := range ways {
		if slices.ContainsFunc(r.timed(), func(i int) bool { return r.way(i) == w }) {
			notes = append(notes, w.note())
		}
	}
	if missing(t) {
		notes = append(notes, "– was not measured.")
	}
	if t.Note != "" {
		notes = append(notes, t.Note)
	}
	t.Note = strings.Join(notes, " ")
	return t
}

func missing(t page.Table) bool {
	for _, row := range t.Rows {
		for _, c := range row {
			if c.Missing {
				return true
			}
		}
	}
	return false
}

// Counters makes the table of the endpoints' counters, with a row per end.
func (r *Rec) Counters(caption string) page.Table {
	type end struct {
		run int
		key string
		c   *record.Counters
	}
	var ends []end
	for i := range r.Runs {
		if r.hasRun(i, "transport") {
			ends = append(ends, end{i, "transport", &r.Runs[i].Transport})
		}
		if p := r.Runs[i].PeerTransport; p != nil {
			ends = append(ends, end{i, "peer_transport", p})
		}
	}
	c := func(name, help, key string, of func(*record.Counters) uint64) column {
		return column{head: page.Head{Name: name, Help: help}, cell: func(i int) page.Cell {
			return opt(r.hasRun(ends[i].run, ends[i].key, key), func() page.Cell { return page.T("%s", page.Int(of(ends[i].c))) })
		}}
	}
	// An end with receiver credit has at least one of its counts; those that it lacks are 0.
	credit := func(name, unit, help string, of func(*record.Counters) string) column {
		return column{head: page.Head{Name: name, Unit: unit, Help: help}, cell: func(i int) page.Cell {
			has := func(key string) bool { return r.hasRun(ends[i].run, ends[i].key, key) }
			return opt(has("credits_granted") || has("credits_used") || has("credit_wait_ns"), func() page.Cell { return page.T("%s", of(ends[i].c)) })
		}}
	}
	cols := []column{
		{head: page.Head{Name: "run", Left: true}, cell: func(i int) page.Cell { return page.T("%s", r.RunName(ends[i].run)) }},
		{head: page.Head{Name: "end", Left: true}, cell: func(i int) page.Cell {
			if r.World != nil {
				return page.T("all ranks")
			}
			return page.T("%s", map[string]string{"transport": "client", "peer_transport": "server"}[ends[i].key])
		}},
		c("tx", "packets sent", "tx_pkts", func(c *record.Counters) uint64 { return c.TxPkts }),
		c("rx", "packets received", "rx_pkts", func(c *record.Counters) uint64 { return c.RxPkts }),
		{head: page.Head{Name: "tx", Unit: "MB", Help: "UDP payload sent"}, cell: func(i int) page.Cell {
			return opt(r.hasRun(ends[i].run, ends[i].key, "tx_bytes"), func() page.Cell { return num(float64(ends[i].c.TxBytes)/1e6, 2) })
		}},
		{head: page.Head{Name: "rx", Unit: "MB", Help: "UDP payload received"}, cell: func(i int) page.Cell {
			return opt(r.hasRun(ends[i].run, ends[i].key, "rx_bytes"), func() page.Cell { return num(float64(ends[i].c.RxBytes)/1e6, 2) })
		}},
		c("acks tx", "", "acks_tx", func(c *record.Counters) uint64 { return c.AcksTx }),
		c("acks rx", "", "acks_rx", func(c *record.Counters) uint64 { return c.AcksRx }),
		c("rud", "operations that succeeded by RUD", "ops_rud", func(c *record.Counters) uint64 { return c.OpsRUD }),
		c("rod", "operations that succeeded by ROD", "ops_rod", func(c *record.Counters) uint64 { return c.OpsROD }),
		c("rudi", "operations that succeeded by RUDI", "ops_rudi", func(c *record.Counters) uint64 { return c.OpsRUDI }),
		c("uud", "operations that succeeded by UUD", "ops_uud", func(c *record.Counters) uint64 { return c.OpsUUD }),
		c("rto", "sent again after a timeout", "rtx_rto", func(c *record.Counters) uint64 { return c.RtxRTO }),
		c("sack", "sent again because acks of later packets came", "rtx_sack", func(c *record.Counters) uint64 { return c.RtxSACK }),
		c("nack", "sent again because it was asked for", "rtx_nack", func(c *record.Counters) uint64 { return c.RtxNack }),
		c("probe", "sent again to hear of the end of a burst", "rtx_probe", func(c *record.Counters) uint64 { return c.RtxProbe }),
		c("dup", "received twice", "dup", func(c *record.Counters) uint64 { return c.Dup }),
		c("ooo", "received out of order", "ooo", func(c *record.Counters) uint64 { return c.OOO }),
		c("trim", "received trimmed", "trimmed", func(c *record.Counters) uint64 { return c.Trimmed }),
		c("ecn", "received with a mark", "ecn_ce", func(c *record.Counters) uint64 { return c.ECNCE }),
		credit("granted", "", "grants of receiver credit made", func(c *record.Counters) string { return page.Int(c.CreditsGranted) }),
		credit("used", "", "grants of the other end that let this one send", func(c *record.Counters) string { return page.Int(c.CreditsUsed) }),
		credit("waited", "ms", "how long packets waited for receiver credit", func(c *record.Counters) string { return page.Fixed(float64(c.CreditWaitNS)/1e6, 2) }),
		{head: page.Head{Name: "thrown away", Help: "datagrams, by reason", Left: true}, cell: func(i int) page.Cell {
			return opt(r.hasRun(ends[i].run, ends[i].key, "drops"), func() page.Cell { return page.T("%s", dropText(ends[i].c.Drops)) })
		}},
	}
	// Set-up is measured by the client.
	cols = append(cols, r.setup(func(row int) kind {
		if ends[row].key != "transport" {
			return nil
		}
		return kind{ends[row].run}
	})...)
	return tableOf(caption, len(ends), cols)
}

func dropText(drops map[string]uint64) string {
	if len(drops) == 0 {
		return "none"
	}
	var b []string
	for _, k := range slices.Sorted(maps.Keys(drops)) {
		b = append(b, k+" "+page.Int(drops[k]))
	}
	return strings.Join(b, ", ")
}

func (r *Rec) hasLatency() bool {
	return slices.ContainsFunc(r.Runs, func(x record.Run) bool { return x.Latency != nil })
}

// timed lists the runs that have latencies.
func (r *Rec) timed() (all []int) {
	for i := range r.Runs {
		if r.Runs[i].Latency != nil {
			all = append(all, i)
		}
	}
	return all
}

// Verdicts makes the table of assertions, if there were any.
func (r *Rec) Verdicts() []page.Block {
	if len(r.Record.Verdict) == 0 {
		return nil
	}
	t := page.Table{
		Caption: "Assertions",
		Heads:   []page.Head{{Name: "verdict", Left: true}, {Name: "assertion", Left: true}, {Name: "measured", Help: "at the run that came off worst, in the unit of the record: ns, bit/s, parts of 1"}, {Name: "at size", Unit: "B"}},
	}
	for i, v := range r.Record.Verdict {
		t.Rows = append(t.Rows, []page.Cell{
			page.Passed(v.Pass), {Text: v.Assert, Code: true},
			opt(v.Value != nil && r.has("verdict", i, "value"), func() page.Cell { return page.T("%s", measured(v)) }),
			opt(r.has("verdict", i, "size"), func() page.Cell { return page.T("%s", units.Size(v.Size)) }),
		})
	}
	return []page.Block{t}
}

// measured formats a value in the unit of its metric.
func measured(v record.Verdict) string {
	a, err := assert.Parse(v.Assert)
	if err != nil {
		return page.Figures(*v.Value) // a metric of another version of uetperf
	}
	switch a.Kind() {
	case assert.Duration:
		return page.Time.Format(*v.Value)
	case assert.Bitrate:
		return page.Bits.Format(*v.Value)
	case assert.Rate:
		return page.Rate.Format(*v.Value)
	case assert.Share:
		return page.Figures(100**v.Value) + " %"
	}
	return page.Figures(*v.Value)
}
