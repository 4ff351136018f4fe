package report

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// Bounds of the memory and drawing that a record may cause, because it may come from
// elsewhere.
const (
	maxHDR    = 4 << 20 // bytes of a histogram as text
	maxCounts = 8 << 20 // bytes of a histogram in memory
	maxCurves = 32
	maxSteps  = 800 // steps of a series
	maxTimes  = 24  // figures over time
	openTimes = 3   // how many of those are shown unfolded
	fewSteps  = 16  // with many runs, a series of so few samples gets no figure
)

// distribution decodes the histogram of run i.
func (r *Rec) distribution(i int) (d page.Distribution, err error) {
	l := r.Runs[i].Latency
	d.Name = r.RunName(i)
	if l.HDR == "" {
		return d, fmt.Errorf("run %s has no histogram", d.Name)
	}
	if len(l.HDR) > maxHDR {
		return d, fmt.Errorf("the histogram of run %s is too large", d.Name)
	}
	h, err := hdrhistogram.Decode([]byte(l.HDR))
	if err != nil {
		return d, fmt.Errorf("the histogram of run %s cannot be read: %w", d.Name, err)
	}
	if h.ByteSize() > maxCounts {
		return d, fmt.Errorf("the histogram of run %s is finer than any of uetperf", d.Name)
	}
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			d.Values, d.Counts = append(d.Values, float64(b.To)), append(d.Counts, b.Count)
		}
	}
	if len(d.Values) == 0 {
		return d, fmt.Errorf("the histogram of run %s is empty", d.Name)
	}
	return d, nil
}

// A curve is the distribution of one run.
type curve struct {
	page.Distribution
	way  way
	size int64
	rec  *Rec
}

// curves returns the curves of records, and a sentence about each that cannot be drawn.
func curves(recs []*Rec) (all []curve, problems []page.Block) {
	for _, r := range recs {
		for i := range r.Runs {
			l := r.Runs[i].Latency
			if l == nil || r.Runs[i].Mesh != nil { // of many pairs, histograms would be long
				continue
			}
			d, err := r.distribution(i)
			if err != nil {
				if len(problems) < 8 {
					problems = append(problems, page.Text(prefix(recs, r)+err.Error()+"."))
				}
				continue
			}
			d.Name = prefix(recs, r) + d.Name
			all = append(all, curve{d, r.way(i), r.Runs[i].Size, r})
		}
	}
	return all, problems
}

// Axes are what the figures of a page share, so that they can be compared.
type Axes struct {
	most  map[string]float64 // by the title of a panel over time
	end   map[string]float64 // seconds, by test
	reach page.Reach         // of latency
}

// AxesOf returns axes that hold what records measured.
func AxesOf(recs []*Rec) *Axes {
	a := &Axes{most: map[string]float64{}, end: map[string]float64{}}
	for _, r := range recs {
		test := r.Config.Test
		for i := range r.Runs {
			run := &r.Runs[i]
			if len(run.Series) == 0 {
				continue
			}
			a.end[test] = max(a.end[test], float64(run.DurationNS)/1e9, float64(run.Series[len(run.Series)-1].AtNS)/1e9)
			for _, p := range r.panels(i) {
				for _, s := range p.Series {
					for _, y := range s.Y {
						if y > a.most[p.Title] && !math.IsInf(y, 0) {
							a.most[p.Title] = y
						}
					}
				}
			}
		}
	}
	all, _ := curves(recs)
	a.reach = page.ReachOf(distributions(all))
	return a
}

func distributions(cs []curve) (ds []page.Distribution) {
	for _, c := range cs {
		ds = append(ds, c.Distribution)
	}
	return ds
}

// CDF draws the latencies of records over each other: all runs if these are few. Of more, each
// test has a figure; several records of one test have one each, or one for each size, whichever
// are fewer. What is measured in different ways has separate figures.
func CDF(recs []*Rec, a *Axes) []page.Block {
	recs = slices.DeleteFunc(slices.Clone(recs), func(r *Rec) bool { return !r.hasLatency() })
	all, problems := curves(recs)
	var out []page.Block
	for _, w := range ways {
		some := slices.DeleteFunc(slices.Clone(all), func(c curve) bool { return c.way != w })
		title := "Distribution of latency"
		if len(recs) == 1 || len(some) <= 12 {
			out = append(out, drawCDF(title, w.label(), len(recs) == 1 && rises(recs[0]), some, a)...)
			continue
		}
		var tests []string
		byTest := map[string][]curve{}
		for _, c := range some {
			t := c.rec.Test()
			if byTest[t] == nil {
				tests = append(tests, t)
			}
			byTest[t] = append(byTest[t], c)
		}
		for _, t := range tests {
			bySize, byRec := map[int64][]curve{}, map[*Rec][]curve{}
			for _, c := range byTest[t] {
				bySize[c.size], byRec[c.rec] = append(bySize[c.size], c), append(byRec[c.rec], c)
			}
			if len(byRec) <= len(bySize) {
				for _, r := range recs {
					name := title + ", " + t
					if len(byRec) > 1 {
						name = title + ", " + r.Name
					}
					out = append(out, drawCDF(name, w.label(), rises(r), byRec[r], a)...)
				}
				continue
			}
			for _, n := range slices.Sorted(maps.Keys(bySize)) {
				out = append(out, drawCDF(fmt.Sprintf("%s, %s, size %s", title, t, units.Size(n)), w.label(), false, bySize[n], a)...)
			}
		}
	}
	return append(out, problems...)
}

// drawCDF draws curves over each other, at most as many as can be told apart.
func drawCDF(title, label string, ordered bool, cs []curve, a *Axes) []page.Block {
	note := ""
	if n := len(cs); n > maxCurves {
		few := make([]curve, maxCurves)
		for i := range few {
			few[i] = cs[i*(n-1)/(maxCurves-1)]
		}
		note = fmt.Sprintf(" %d of %d runs are drawn.", maxCurves, n)
		cs = few
	}
	f, ok := page.CDFWithin(title, label, ordered, distributions(cs), a.reach)
	if !ok {
		return nil
	}
	f.Note += note
	return []page.Block{f}
}

// rises reports whether the runs of a record are a sweep over sizes, which may be repeated.
func rises(r *Rec) bool {
	for i := 1; i < len(r.Runs); i++ {
		again := r.Config.Repeat > 1 && r.Runs[i].Size == r.Runs[0].Size
		if r.Runs[i].Size <= r.Runs[i-1].Size && !again || r.Runs[i].Op != r.Runs[0].Op {
			return false
		}
	}
	return true
}

// prefix names a record if there are several.
func prefix(recs []*Rec, r *Rec) string {
	if len(recs) < 2 {
		return ""
	}
	return r.Name + ": "
}

// OverSize draws what records measured at several sizes: of a repeated test the medians.
func OverSize(recs []*Rec) []page.Block {
	line := func(name string, r *Rec, metric string) page.Series {
		s := page.Series{Name: name}
		bySize := map[int64][]float64{}
		for i := range r.Runs {
			if v := r.value(i, metric); v != nil && r.hasRun(i, "size") {
				bySize[r.Runs[i].Size] = append(bySize[r.Runs[i].Size], *v)
			}
		}
		for _, n := range slices.Sorted(maps.Keys(bySize)) {
			s.X, s.Y = append(s.X, float64(n)), append(s.Y, assert.SpreadOf(bySize[n]).Median)
		}
		return s
	}
	recs = slices.DeleteFunc(slices.Clone(recs), func(r *Rec) bool { return len(r.Runs) < 2 || !rises(r) })
	var lat, good, bus, rate []page.Series
	for _, r := range recs {
		p := prefix(recs, r)
		lat = append(lat, line(p+"p50", r, "p50"), line(p+"p99", r, "p99"))
		if len(recs) == 1 {
			lat = append(lat, line("p99.9", r, "p999"))
		}
		name := "goodput"
		if len(recs) > 1 {
			name = r.Name
		}
		good, rate = append(good, line(name, r, "goodput")), append(rate, line(name, r, "rate"))
		bus = append(bus, line(name, r, "busbw"))
	}
	var out []page.Block
	draw := func(title, label string, u page.Unit, log bool, lines []page.Series) {
		at := map[float64]bool{}
		for _, l := range lines {
			for _, x := range l.X {
				at[x] = true
			}
		}
		if len(at) < 2 { // one size has nothing to draw over
			return
		}
		if f, ok := page.OverSize(title, label, u, log, lines); ok {
			if len(lines) == 1 {
				f.Keys = nil
			}
			out = append(out, f)
		}
	}
	draw("Latency over size", "latency", page.Time, true, lat)
	draw("Goodput over size", "goodput", page.Bits, false, good)
	draw("Bus bandwidth over size", "bus bandwidth", page.Bits, false, bus)
	draw("Message rate over size", "messages per second", page.Count, true, rate)
	return out
}

// Timelines draws each run that has samples over time. The titles begin with prefix.
func (r *Rec) Timelines(prefix string, a *Axes) []page.Block {
	var out []page.Block
	left, with := 0, 0
	for i := range r.Runs {
		if len(r.Runs[i].Series) > 0 {
			with++
		}
	}
	for i := range r.Runs {
		run := &r.Runs[i]
		if len(run.Series) == 0 {
			continue
		}
		if with > openTimes && len(run.Series) < fewSteps || len(out) == maxTimes {
			left++
			continue
		}
		title := prefix + r.Test() + ", " + r.RunName(i)
		parts := r.panels(i)
		for k := range parts {
			parts[k].Most = a.most[parts[k].Title]
		}
		if f, ok := page.Timeline(title, parts, nil, a.end[r.Config.Test]); ok {
			if n := stride(len(run.Series)); n > 1 {
				f.Note = fmt.Sprintf("%d samples, %d of them a step.", len(run.Series), n)
			}
			out = append(out, f)
		} else {
			out = append(out, page.Text(title+": there are samples, but nothing in them was measured."))
		}
	}
	n := len(out)
	if left > 0 {
		out = append(out, page.Text(fmt.Sprintf("%s%s: %d runs were too short for a figure over time, or too many; their samples are in the record.", prefix, r.Test(), left)))
	}
	if n > openTimes {
		out = []page.Block{page.Details{Summary: fmt.Sprintf("%s%s over time, %d runs", prefix, r.Test(), n), Body: out}}
	}
	return out
}

// stride is the number of samples per step of a figure.
func stride(n int) int { return (n + maxSteps - 1) / maxSteps }

// panels returns the panels of run i.
func (r *Rec) panels(i int) []page.Panel {
	return panels(r.Runs[i].Series, func(k int, key string) bool { return r.hasRun(i, "series", k, key) })
}

// panels returns panels of goodput, window, round trip and errors. has reports whether
// sample k has a key.
func panels(ss []record.Sample, has func(k int, key string) bool) []page.Panel {
	every := stride(len(ss))
	nan := math.NaN()
	var at []float64
	type line struct {
		name, key string
		of        func(*record.Sample) float64
		rate      bool // a count of the interval; false means a value at its end
		zero      bool // drawn even if it was always zero
		y         []float64
		any       bool
	}
	lines := []*line{
		{name: "goodput", key: "bytes", of: func(s *record.Sample) float64 { return 8 * float64(s.Bytes) }, rate: true, zero: true},
		{name: "congestion window", key: "cwnd_bytes", of: func(s *record.Sample) float64 { return float64(s.CwndBytes) }},
		{name: "round trip", key: "rtt_ns", of: func(s *record.Sample) float64 { return float64(s.RTTNS) }},
		{name: "sent again", key: "rtx", of: func(s *record.Sample) float64 { return float64(s.Rtx) }, rate: true, zero: true},
		{name: "marked (ECN)", key: "ecn", of: func(s *record.Sample) float64 { return float64(s.ECN) }, rate: true},
		{name: "trimmed", key: "trimmed", of: func(s *record.Sample) float64 { return float64(s.Trimmed) }, rate: true},
		{name: "thrown away", key: "drops", of: func(s *record.Sample) float64 { return float64(s.Drops) }, rate: true},
	}
	before := int64(0)
	for k := 0; k < len(ss); k += every {
		part := ss[k:min(k+every, len(ss))]
		end := part[len(part)-1].AtNS
		secs := float64(end-before) / 1e9
		before = end
		at = append(at, float64(end)/1e9)
		for _, l := range lines {
			sum, n := 0.0, 0
			for j := range part {
				if has(k+j, l.key) {
					v := l.of(&part[j])
					if l.rate {
						sum += v
					} else {
						sum = v
					}
					n++
				}
			}
			v := sum
			switch {
			case n == 0, l.rate && !(secs > 0), !has(k+len(part)-1, "t_ns"):
				v = nan
			case l.rate:
				v /= secs
			}
			l.any = l.any || v > 0 || v == 0 && l.zero
			l.y = append(l.y, v)
		}
	}
	series := func(from, to int) []page.Series {
		var out []page.Series
		for _, l := range lines[from:to] {
			if l.any {
				out = append(out, page.Series{Name: l.name, X: at, Y: l.y, Step: l.rate})
			}
		}
		return out
	}
	return []page.Panel{
		{Title: "goodput", Unit: page.Bits, Tall: true, Series: series(0, 1)},
		{Title: "congestion window of the busiest context", Unit: page.Size, Series: series(1, 2)},
		{Title: "round-trip time, smoothed", Unit: page.Time, Series: series(2, 3)},
		{Title: "packets per second", Unit: page.Count, Series: series(3, 7)},
	}
}

// Streams draws the goodput of the streams of run i.
func (r *Rec) Streams() []page.Block {
	var out []page.Block
	for i := range r.Runs {
		ss := r.Runs[i].Streams
		if len(ss) < 2 {
			continue
		}
		if len(ss) > 64 {
			ss = ss[:64]
		}
		names, ys := make([]string, len(ss)), make([]float64, len(ss))
		for k := range ss {
			names[k], ys[k] = fmt.Sprint(k+1), ss[k].GoodputBPS
			if ss[k].Direction == "reverse" {
				names[k] += " ←"
			}
			if !r.hasRun(i, "streams", k, "goodput_bps") {
				ys[k] = math.NaN()
			}
		}
		if f, ok := page.Bars("Streams of "+r.Test()+", "+r.RunName(i), "goodput", page.Bits, names, ys); ok {
			out = append(out, f)
		}
	}
	return out
}
