// Package report makes the two reports of a run of the testbed: an offline page for people,
// and JUnit for machines.
package report

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/report"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/testbed/result"
)

// Folder is the folder of a result's files, beside the page.
func Folder(r *result.Result) string { return r.Scenario + "-" + r.Substrate }

// HTML writes one page about all results. Links to the files of a result lead to its Folder
// beside the page.
func HTML(w io.Writer, rs []*result.Result) error {
	badge, counts := overall(rs)
	doc := page.Doc{Title: "Testbed: " + units.Plural(len(rs), "run"), Badge: &badge, Lead: lead(rs), Foot: "Made by testbed from " + units.Plural(len(rs), "result") + ". This page needs no network; captures and logs are files beside it."}
	summary := page.Section{Title: "Verdicts", Body: []page.Block{counts, verdicts(rs)}}
	if len(rs) > 0 {
		summary.Body = append(summary.Body, page.Details{Summary: "The machine", Open: true, Body: []page.Block{machine(rs)}})
	}
	doc.Sections = append(doc.Sections, summary)
	for i, r := range rs {
		doc.Sections = append(doc.Sections, run(i, r))
	}
	return page.Write(w, doc)
}

// mark returns the badge of a verdict.
func mark(v result.Verdict) page.Cell {
	tone := page.Bad
	switch v {
	case result.Pass:
		tone = page.Good
	case result.Inconclusive:
		tone = page.Fair
	case result.Unsupported:
		tone = page.Muted
	case "":
		return page.Mark("no verdict", page.Bad)
	}
	return page.Mark(string(v), tone)
}

var order = []result.Verdict{result.Pass, result.Fail, result.Error, result.Inconclusive, result.Unsupported}

// overall returns the badge of all results together, and tiles with the numbers of each
// verdict.
func overall(rs []*result.Result) (page.Cell, page.Tiles) {
	n := map[result.Verdict]int{}
	var took time.Duration
	for _, r := range rs {
		v := r.Verdict
		if !slices.Contains(order, v) {
			v = result.Error
		}
		n[v]++
		took += r.Took
	}
	badge := mark(result.Pass)
	switch {
	case n[result.Fail]+n[result.Error] > 0:
		badge = mark(result.Fail)
	case n[result.Inconclusive] > 0:
		badge = mark(result.Inconclusive)
	case n[result.Pass] == 0:
		badge = page.Mark("nothing ran", page.Fair)
	}
	var t page.Tiles
	for _, v := range order {
		if n[v] == 0 && v != result.Pass && v != result.Fail {
			continue
		}
		tile := page.Tile{Name: string(v), Value: page.Int(n[v])}
		if n[v] > 0 {
			tile.Tone = mark(v).Tone
		}
		t = append(t, tile)
	}
	t = append(t, page.Tile{Name: "time of all runs", Value: page.Duration(took)})
	if lo, hi := switchRate(rs); hi > 0 {
		v := page.Count.Format(lo)
		if hi > lo*1.01 {
			v += " … " + page.Count.Format(hi)
		}
		t = append(t, page.Tile{Name: "the switch forwards", Value: v, Note: "packets a second and core, measured on this machine"})
	}
	return badge, t
}

func switchRate(rs []*result.Result) (lo, hi float64) {
	for _, r := range rs {
		if v := r.Health.SwitchPPS; v > 0 {
			if lo == 0 || v < lo {
				lo = v
			}
			hi = max(hi, v)
		}
	}
	return lo, hi
}

// lead is the sentence below the title.
func lead(rs []*result.Result) string {
	var first time.Time
	var subs []string
	for _, r := range rs {
		if !r.Started.IsZero() && (first.IsZero() || r.Started.Before(first)) {
			first = r.Started
		}
		if r.Substrate != "" && !slices.Contains(subs, r.Substrate) {
			subs = append(subs, r.Substrate)
		}
	}
	s := strings.Join(subs, ", ")
	if !first.IsZero() {
		s = strings.TrimPrefix(s+"; started "+first.Format("2006-01-02 15:04:05 MST"), "; ")
	}
	return s
}

func id(i int) string { return fmt.Sprintf("run-%d", i+1) }

// verdicts makes the table of all results.
func verdicts(rs []*result.Result) page.Table {
	t := page.Table{Heads: []page.Head{
		{Name: "verdict", Left: true}, {Name: "scenario", Left: true}, {Name: "on", Left: true}, {Name: "asserts", Help: "that hold, of all"},
		{Name: "goodput", Unit: "Gb/s", Help: "of all clients"}, {Name: "lost", Help: "packets the network lost, for whatever reason"}, {Name: "trimmed"}, {Name: "marked"}, {Name: "sent again", Help: "packets, all clients and servers: lost + spurious"}, {Name: "lost", Unit: "sent again", Help: "of the packets sent again, those that the network had lost"}, {Name: "spurious", Unit: "sent again", Help: "of the packets sent again, those that the other end had already"},
		{Name: "took", Unit: "s"}, {Name: "why not pass", Left: true},
	}}
	for i, r := range rs {
		ok := 0
		for _, a := range r.Asserts {
			if a.Pass {
				ok++
			}
		}
		asserts := page.None()
		if len(r.Asserts) > 0 {
			asserts = page.T("%d/%d", ok, len(r.Asserts))
		}
		metric := func(name string, per float64, prec int) page.Cell {
			v, ok := r.Metrics[name]
			if !ok {
				return page.None()
			}
			return page.T("%s", page.Fixed(v/per, prec))
		}
		sum := func(match func(why string) bool) page.Cell {
			if r.Switch == nil {
				return page.None()
			}
			n := uint64(0)
			for why, k := range r.Switch.Whys {
				if match(why) {
					n += k
				}
			}
			return page.T("%s", page.Int(n))
		}
		reason := page.T("%s", r.Reason)
		again, spurious := resent(r)
		t.Rows = append(t.Rows, []page.Cell{
			mark(r.Verdict), {Text: r.Scenario, To: id(i)}, page.T("%s", r.Substrate), asserts,
			metric("all.goodput", 1e9, 3), sum(func(w string) bool { return strings.HasPrefix(w, "lost_") }),
			sum(func(w string) bool { return w == "trimmed" }), sum(func(w string) bool { return w == "marked" }), metric("all.rtx", 1, 0), page.Number(again, 1, 0), page.Number(spurious, 1, 0),
			page.T("%s", page.Fixed(r.Took.Seconds(), 1)), reason,
		})
	}
	return t
}

// resent adds up, of the packets that the hosts sent again, those that the network lost, and
// those that the other end had already; nil if some host did not measure it.
func resent(r *result.Result) (lost, spurious *float64) {
	for _, h := range r.Hosts {
		if h.Record == nil || len(h.Record.Runs) == 0 {
			continue
		}
		x := report.From(h.Name, h.Record).Headline()
		if x.Resent == nil {
			return nil, nil
		}
		if lost == nil {
			lost, spurious = new(float64), new(float64)
		}
		*lost, *spurious = *lost+*x.Resent, *spurious+*x.Spurious
	}
	return lost, spurious
}

// machine describes where the results were made.
func machine(rs []*result.Result) page.Facts {
	m := rs[0].Machine
	cpus := ""
	if m.CPUs > 0 {
		cpus = page.Int(m.CPUs)
	}
	return page.Facts{
		{Name: "name", Value: page.Maybe(m.Name)}, {Name: "system", Value: page.Maybe(m.OS)}, {Name: "kernel", Value: page.Maybe(m.Kernel)}, {Name: "processors", Value: page.Maybe(cpus)},
	}
}

// run makes the section of a result.
func run(i int, r *result.Result) page.Section {
	badge := mark(r.Verdict)
	title := r.Scenario
	if r.Substrate != "" {
		title += " on " + r.Substrate
	}
	s := page.Section{Title: title, Badge: &badge, ID: id(i)}
	add := func(b ...page.Block) { s.Body = append(s.Body, b...) }
	add(page.Facts{{Name: "question", Value: page.Maybe(r.Question)}, {Name: "expected", Value: page.Maybe(r.Expect)}})
	if r.Reason != "" && r.Verdict != result.Pass {
		add(page.Warn(r.Reason))
	}
	add(asserts(r))
	if f, ok := topology(r); ok {
		add(f)
	}
	if len(r.Topology.Ports)+len(r.Topology.Spines) > 0 {
		add(page.Details{Summary: "Lines of the network, as set up and what they did", Body: []page.Block{lines(r)}})
	}
	add(timeline(r)...)
	add(hosts(r))
	var recs []*report.Rec
	for _, h := range r.Hosts {
		if h.Record != nil {
			recs = append(recs, report.From(h.Name, h.Record))
		}
	}
	axes := report.AxesOf(recs) // the hosts of a run can be compared
	for k := range r.Hosts {
		if b, ok := host(r, k, axes); ok {
			add(b)
		}
	}
	if files := common(r); len(files) > 0 {
		add(page.Text("Files of the run:"), files)
	}
	add(page.Details{Summary: "Health of the machine, and where the time went", Open: !r.Health.OK, Body: []page.Block{health(r), phases(r)}})
	if len(r.Metrics) > 0 {
		add(page.Details{Summary: units.Plural(len(r.Metrics), "metric") + " that assertions may use", Body: []page.Block{metrics(r)}})
	}
	if len(r.Command) > 0 {
		add(page.Text("To repeat it:"), page.Pre{Name: "command", Text: page.Shell(r.Command)})
	}
	return s
}

func asserts(r *result.Result) page.Block {
	if len(r.Asserts) == 0 {
		return page.Text("No assertion was judged.")
	}
	t := page.Table{Caption: "Assertions", Heads: []page.Head{{Name: "verdict", Left: true}, {Name: "assertion", Left: true}, {Name: "with values", Left: true}, {Name: "what it is for", Left: true}}}
	for _, a := range r.Asserts {
		t.Rows = append(t.Rows, []page.Cell{page.Passed(a.Pass), {Text: a.Expr, Code: true}, {Text: a.Value, Code: a.Value != "", Missing: a.Value == ""}, page.T("%s", a.Why)})
	}
	return t
}

// hosts makes the table of hosts, with a row per host.
func hosts(r *result.Result) page.Table {
	t := page.Table{Caption: "Hosts", Heads: []page.Head{
		{Name: "host", Left: true}, {Name: "role", Left: true}, {Name: "address", Left: true}, {Name: "image", Left: true}, {Name: "exit", Help: "status: 0 done and right, 1 failed, 127 not supported"},
		{Name: "msgs"}, {Name: "goodput", Unit: "Gb/s", Help: "the highest of its runs"}, {Name: "p99", Unit: "µs", Help: "the worst of its runs"}, {Name: "lost"}, {Name: "wrong"}, {Name: "sent again", Help: "packets: lost + spurious"}, {Name: "lost", Unit: "sent again", Help: "of the packets sent again, those that the network had lost"}, {Name: "spurious", Unit: "sent again", Help: "of the packets sent again, those that the other end had already"}, {Name: "ended by", Left: true},
	}}
	for _, h := range r.Hosts {
		exit := page.None()
		if h.Exit != nil {
			exit = page.T("%d", *h.Exit)
			if *h.Exit != 0 {
				exit.Tone = page.Bad
			}
		}
		row := []page.Cell{page.T("%s", h.Name), page.T("%s", h.Role), page.Maybe(h.Addr), page.Maybe(h.Image), exit}
		msgs, rtx, again, spurious, lost, wrong, x, why := page.None(), page.None(), page.None(), page.None(), page.None(), page.None(), report.Headline{}, ""
		if h.Record != nil {
			x, why = report.From(h.Name, h.Record).Headline(), h.Record.Error
			if len(h.Record.Runs) > 0 {
				msgs, rtx, again, spurious = page.T("%s", page.Int(x.Msgs)), x.Rtx, page.Number(x.Resent, 1, 0), page.Number(x.Spurious, 1, 0)
			}
		}
		if x.Lost != nil {
			lost = page.BadIf(*x.Lost > 0, page.Int(*x.Lost))
		}
		if x.Wrong != nil {
			wrong = page.BadIf(*x.Wrong > 0, page.Int(*x.Wrong))
		}
		row = append(row, msgs, report.Number(x.Goodput, 1e9, 3), page.Number(x.Worst, 1e3, 1), lost, wrong, rtx, again, spurious, page.BadIf(h.Record != nil, why))
		t.Rows = append(t.Rows, row)
	}
	return t
}

// host makes the folded details of one host. It returns false if the host left nothing.
func host(r *result.Result, k int, axes *report.Axes) (page.Details, bool) {
	h := &r.Hosts[k]
	d := page.Details{Summary: h.Name + ": "}
	var what []string
	if len(h.Command) > 0 {
		what = append(what, "command")
		d.Body = append(d.Body, page.Pre{Name: "command of " + h.Name, Text: page.Shell(h.Command)})
	}
	if h.Record != nil {
		rec := report.From(h.Name, h.Record)
		what = append(what, "record")
		d.Body = append(d.Body, rec.Blocks("Record: "+rec.Test())...)
		d.Body = append(d.Body, rec.Verdicts()...)
		d.Body = append(d.Body, report.CDF([]*report.Rec{rec}, axes)...)
		d.Body = append(d.Body, rec.Timelines("Over time: ", axes)...)
		if c := rec.Counters("Counters"); len(c.Rows) > 0 {
			d.Body = append(d.Body, c)
		}
	}
	if l := links(r, h.Files); len(l) > 0 {
		what = append(what, "files")
		d.Body = append(d.Body, l)
	}
	if h.Log != "" {
		what = append(what, "log")
		d.Body = append(d.Body, page.Text("The last lines of its log:"), page.Pre{Name: "log of " + h.Name, Text: h.Log})
	}
	d.Summary += strings.Join(what, ", ")
	return d, len(d.Body) > 0
}

func links(r *result.Result, files []string) page.Links {
	var out page.Links
	for _, f := range files {
		out = append(out, page.Link{Path: path.Join(Folder(r), f), Name: f})
		if clean := path.Clean(strings.ReplaceAll(f, "\\", "/")); path.IsAbs(clean) || strings.HasPrefix(clean, "..") {
			out[len(out)-1].Path = "" // it leads out of the folder
		}
	}
	return out
}

// common returns the links to the files that every run has, and to those of the switch.
func common(r *result.Result) page.Links {
	if r.Scenario == "" || r.Verdict == result.Unsupported {
		return nil
	}
	return links(r, append([]string{"result.json"}, r.Files...))
}

func health(r *result.Result) page.Block {
	h := r.Health
	ok := page.Mark("up to it", page.Good)
	if !h.OK {
		ok = page.Mark("too slow to tell", page.Fair)
	}
	pps, stall, late := page.None(), page.None(), page.None()
	if h.SwitchPPS > 0 {
		pps = page.T("%s packets a second and core", page.Count.Format(h.SwitchPPS))
	}
	if h.Stall >= 0 {
		stall = page.T("%s %% of the time", page.Figures(100*h.Stall))
	}
	if h.LateP99 > 0 {
		late = page.T("%s", page.Duration(h.LateP99))
	}
	f := page.Facts{
		{Name: "the machine was", Value: ok}, {Name: "switch forwards", Value: pps}, {Name: "switch lost", Value: page.T("%s packets of its own", page.Int(h.SwitchDrops))},
		{Name: "late (p99)", Value: late}, {Name: "tasks waited", Value: stall},
	}
	for _, w := range h.Why {
		f = append(f, page.Fact{Name: "because", Value: page.T("%s", w)})
	}
	return f
}

func phases(r *result.Result) page.Block {
	t := page.Table{Heads: []page.Head{{Name: "phase", Left: true}, {Name: "took", Unit: "s"}}}
	for _, p := range r.Phases {
		t.Rows = append(t.Rows, []page.Cell{page.T("%s", p.Name), page.T("%s", page.Fixed(p.Took.Seconds(), 2))})
	}
	t.Rows = append(t.Rows, []page.Cell{page.T("all"), page.T("%s", page.Fixed(r.Took.Seconds(), 2))})
	return t
}

func metrics(r *result.Result) page.Table {
	t := page.Table{Heads: []page.Head{{Name: "name", Left: true}, {Name: "value"}}}
	for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
		t.Rows = append(t.Rows, []page.Cell{{Text: k, Code: true}, page.T("%s", page.Figures(r.Metrics[k]))})
	}
	return t
}
