package recview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// A column of the table of runs.
type column struct {
	head page.Head
	cell func(i int) page.Cell
	// always shows it although no run has it.
	always bool
}

// maxRows is how many runs a table shows.
const maxRows = 4096

// setup are the columns of what came before the measurement. A row that runIndex
// gives less than 0 has none.
func (r *Rec) setup(runIndex func(row int) int) []column {
	took := func(name, help, key string, of func(*record.Run) int64) column {
		return column{head: page.Head{Name: name, Unit: "ms", Help: help}, cell: func(row int) page.Cell {
			i := runIndex(row)
			return opt(i >= 0 && r.hasRun(i, key), func() page.Cell { return num(float64(of(&r.Runs[i]))/1e6, 3) })
		}}
	}
	return []column{
		took("set-up", "opening of both endpoints and their addresses", "setup_ns", func(r *record.Run) int64 { return r.SetupNS }),
		took("connect", "of the set-up, from the request to the answer", "connect_ns", func(r *record.Run) int64 { return r.ConnectNS }),
		took("first", "first round trip after the set-up", "first_ns", func(r *record.Run) int64 { return r.FirstNS }),
	}
}

// tableOf leaves out columns that no run has anything in.
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

// opt is a cell if there is a value.
func opt(ok bool, cell func() page.Cell) page.Cell {
	if !ok {
		return page.None()
	}
	return cell()
}

// Results is the table of all runs, with the columns that perftest has.
func (r *Rec) Results(caption string) page.Table {
	run := func(i int) *record.Run { return &r.Runs[i] }
	text := func(name string, of func(i int) string) column {
		return column{head: page.Head{Name: name, Left: true}, cell: func(i int) page.Cell {
			return opt(of(i) != "", func() page.Cell { return page.T("%s", of(i)) })
		}}
	}
	whole := func(name, unit, help, key string, of func(*record.Run) int64) column {
		return column{head: page.Head{Name: name, Unit: unit, Help: help}, cell: func(i int) page.Cell {
			return opt(r.hasRun(i, key), func() page.Cell { return page.T("%s", page.Int(of(run(i)))) })
		}}
	}
	µs := func(name, help, key string, of func(*record.Latency) float64) column {
		return column{head: page.Head{Name: name, Unit: "µs", Help: help}, cell: func(i int) page.Cell {
			return opt(run(i).Latency != nil && r.hasRun(i, "latency_ns", key), func() page.Cell { return num(of(run(i).Latency)/1e3, 2) })
		}}
	}
	rate := func(name, unit string, per float64, prec int, of func(*record.Run) *float64) column {
		return column{head: page.Head{Name: name, Unit: unit}, cell: func(i int) page.Cell {
			return opt(of(run(i)) != nil, func() page.Cell { return num(*of(run(i))/per, prec) })
		}}
	}
	count := func(name, help string, keys []string, of func(*record.Counters) uint64) column {
		return column{head: page.Head{Name: name, Help: help + ", both ends"}, always: true, cell: func(i int) page.Cell {
			return opt(r.counted(i, keys...), func() page.Cell { return page.T("%s", page.Int(of(both(run(i))))) })
		}}
	}
	cpu := func(name, help string, keys []string, of func(*record.CPU) int64) column {
		return column{head: page.Head{Name: name, Unit: "%", Help: help + ", in parts of one processor"}, cell: func(i int) page.Cell {
			ok := run(i).CPU != nil && run(i).DurationNS > 0
			for _, k := range keys {
				ok = ok && r.hasRun(i, "cpu", k)
			}
			return opt(ok, func() page.Cell { return num(100*float64(of(run(i).CPU))/float64(run(i).DurationNS), 0) })
		}}
	}
	goodput := func(r *record.Run) *float64 { return r.GoodputBPS }
	cols := []column{
		text("run", func(i int) string { return run(i).Name }),
		text("op", func(i int) string { return run(i).Op }),
		{head: page.Head{Name: "size", Unit: "B", Help: "of a message"}, always: true, cell: func(i int) page.Cell {
			return opt(r.hasRun(i, "size"), func() page.Cell { return page.T("%s", units.Size(run(i).Size)) })
		}},
		whole("msgs", "", "messages or round trips that were measured", "msgs", func(r *record.Run) int64 { return r.Msgs }),
		{head: page.Head{Name: "time", Unit: "s", Help: "what they took"}, cell: func(i int) page.Cell {
			return opt(r.hasRun(i, "duration_ns"), func() page.Cell { return num(float64(run(i).DurationNS)/1e9, 2) })
		}},
	}
	if t := r.Config.Test; t != "lat" && t != "bw" && t != "rate" { // there it is in the counters' table
		cols = append(cols, r.setup(func(i int) int { return i })...)
	}
	cols = append(cols, []column{
		µs("min", "", "min", func(l *record.Latency) float64 { return float64(l.Min) }),
		µs("p50", "half of the messages were at least as fast", "p50", func(l *record.Latency) float64 { return float64(l.P50) }),
		µs("p90", "90 % were at least as fast", "p90", func(l *record.Latency) float64 { return float64(l.P90) }),
		µs("p99", "99 % were at least as fast", "p99", func(l *record.Latency) float64 { return float64(l.P99) }),
		µs("p99.9", "99.9 % were at least as fast", "p999", func(l *record.Latency) float64 { return float64(l.P999) }),
		µs("max", "", "max", func(l *record.Latency) float64 { return float64(l.Max) }),
		µs("avg", "mean", "mean", func(l *record.Latency) float64 { return l.Mean }),
		µs("sd", "standard deviation", "stddev", func(l *record.Latency) float64 { return l.StdDev }),
		rate("goodput", "Gb/s", 1e9, 3, goodput),
		rate("", "MB/s", 8e6, 1, goodput),
		rate("rate", "msg/s", 1, 0, func(r *record.Run) *float64 { return r.MsgsPerS }),
		{head: page.Head{Name: "lost", Help: "messages sent and not received"}, cell: func(i int) page.Cell {
			return opt(run(i).Lost != nil, func() page.Cell { return tone(*run(i).Lost > 0, page.Int(*run(i).Lost)) })
		}},
		count("rtx", "packets sent again", rtxKeys, (*record.Counters).Rtx),
		count("ooo", "packets that came out of order", []string{"ooo"}, func(c *record.Counters) uint64 { return c.OOO }),
		count("trim", "packets that came trimmed", []string{"trimmed"}, func(c *record.Counters) uint64 { return c.Trimmed }),
		count("ecn", "packets marked: congestion experienced", []string{"ecn_ce"}, func(c *record.Counters) uint64 { return c.ECNCE }),
		cpu("cpu", "processor time of the client", []string{"user_ns", "sys_ns"}, func(c *record.CPU) int64 { return c.UserNS + c.SysNS }),
		cpu("cpu peer", "processor time of the server", []string{"peer_user_ns", "peer_sys_ns"}, func(c *record.CPU) int64 { return c.PeerUserNS + c.PeerSysNS }),
		{head: page.Head{Name: "data", Help: "messages whose bytes were verified", Left: true}, cell: func(i int) page.Cell {
			d := run(i).DataCheck
			return opt(d != nil, func() page.Cell {
				if d.Wrong > 0 {
					return page.Cell{Text: page.Int(d.OK) + " ok, " + page.Int(d.Wrong) + " wrong", Tone: page.Bad}
				}
				return page.T("%s ok", page.Int(d.OK))
			})
		}},
		{head: page.Head{Name: "ended by", Left: true}, cell: func(i int) page.Cell {
			return opt(run(i).Error != "", func() page.Cell { return page.Cell{Text: run(i).Error, Tone: page.Bad} })
		}},
	}...)
	t := tableOf(caption, len(r.Runs), cols)
	var notes []string
	if r.hasLatency() {
		way := "Latency is one way, half of a round trip."
		if r.roundTrips() {
			way = "Latency is that of round trips."
		}
		notes = append(notes, way)
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

func tone(bad bool, text string) page.Cell {
	if bad {
		return page.Cell{Text: text, Tone: page.Bad}
	}
	return page.Cell{Text: text}
}

var rtxKeys = []string{"rtx_rto", "rtx_sack", "rtx_nack", "rtx_probe"}

// counted reports whether an end of run i has counted one of the keys.
func (r *Rec) counted(i int, keys ...string) bool {
	for _, k := range keys {
		if r.hasRun(i, "transport", k) || r.hasRun(i, "peer_transport", k) {
			return true
		}
	}
	return false
}

// both is the sum of the counters of both ends.
func both(r *record.Run) *record.Counters {
	var sum record.Counters
	sum.Add(&r.Transport)
	if r.PeerTransport != nil {
		sum.Add(r.PeerTransport)
	}
	return &sum
}

// Counters is the table of what the endpoints counted, a row an end.
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
	cols := []column{
		{head: page.Head{Name: "run", Left: true}, cell: func(i int) page.Cell { return page.T("%s", r.RunName(ends[i].run)) }},
		{head: page.Head{Name: "end", Left: true}, cell: func(i int) page.Cell {
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
		c("rto", "sent again after a timeout", "rtx_rto", func(c *record.Counters) uint64 { return c.RtxRTO }),
		c("sack", "sent again because acks of later packets came", "rtx_sack", func(c *record.Counters) uint64 { return c.RtxSACK }),
		c("nack", "sent again because it was asked for", "rtx_nack", func(c *record.Counters) uint64 { return c.RtxNack }),
		c("probe", "sent again to hear of the end of a burst", "rtx_probe", func(c *record.Counters) uint64 { return c.RtxProbe }),
		c("dup", "received twice", "dup", func(c *record.Counters) uint64 { return c.Dup }),
		c("ooo", "received out of order", "ooo", func(c *record.Counters) uint64 { return c.OOO }),
		c("trim", "received trimmed", "trimmed", func(c *record.Counters) uint64 { return c.Trimmed }),
		c("ecn", "received with a mark", "ecn_ce", func(c *record.Counters) uint64 { return c.ECNCE }),
		{head: page.Head{Name: "thrown away", Help: "datagrams, by reason", Left: true}, cell: func(i int) page.Cell {
			return opt(r.hasRun(ends[i].run, ends[i].key, "drops"), func() page.Cell { return page.T("%s", dropText(ends[i].c.Drops)) })
		}},
	}
	// What came before the measurement is the client's.
	cols = append(cols, r.setup(func(row int) int {
		if ends[row].key != "transport" {
			return -1
		}
		return ends[row].run
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

func (r *Rec) roundTrips() bool {
	return slices.ContainsFunc(r.Runs, func(x record.Run) bool { return x.Latency != nil && x.Latency.RTT })
}

// Verdicts is the table of assertions; ok is false if there were none.
func (r *Rec) Verdicts() (page.Table, bool) {
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
	return t, len(t.Rows) > 0
}

// measured writes a value in the unit that its metric has.
func measured(v record.Verdict) string {
	name := strings.ToLower(v.Assert)
	if i := strings.IndexFunc(name, func(r rune) bool { return strings.ContainsRune("<>=! ", r) }); i >= 0 {
		name = name[:i]
	}
	switch name {
	case "min", "p50", "p90", "p99", "p999", "p99.9", "max", "avg", "mean", "median", "sd", "stddev", "setup", "first":
		return page.Time.Format(*v.Value)
	case "goodput", "bw":
		return page.Bits.Format(*v.Value)
	case "rate", "msgs/s":
		return page.Rate.Format(*v.Value)
	}
	if strings.HasSuffix(v.Assert, "%") || strings.HasPrefix(name, "cpu") {
		return page.Figures(100**v.Value) + " %"
	}
	return page.Figures(*v.Value)
}
