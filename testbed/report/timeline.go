package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/testbed/result"
)

// Bounds of the drawing.
const (
	maxLines = 8   // lines of the network per panel
	maxSteps = 600 // samples per panel
)

// timeline shows what happened when: the marks as a table, and the counters of the switch
// as plots over the same time, in which the marks have their numbers.
func timeline(r *result.Result) []page.Block {
	var out []page.Block
	var moments []page.Moment
	if len(r.Timeline) > 0 {
		t := page.Table{Caption: "Timeline", Heads: []page.Head{{Name: "", Help: "its mark in the plots"}, {Name: "at", Unit: "s"}, {Name: "what", Left: true}}}
		for i, m := range r.Timeline {
			n := fmt.Sprint(i + 1)
			t.Rows = append(t.Rows, []page.Cell{page.T("%s", n), page.T("%s", page.Fixed(m.At.Seconds(), 3)), page.T("%s", m.What)})
			if len(moments) < 60 {
				moments = append(moments, page.Moment{At: m.At.Seconds(), Label: n})
			}
		}
		out = append(out, t)
	}
	if f, ok := page.Timeline("The network over time", panels(r.Series), merge(moments, r.Series), 0); ok {
		if n := active(r.Series); n > maxLines {
			f.Note = fmt.Sprintf("Of %d lines, each plot has the %d with the most.", n, maxLines)
		}
		out = append(out, f)
	} else if len(r.Series) > 0 {
		out = append(out, page.Text("Nothing passed the switch while it was watched."))
	}
	return out
}

// merge joins moments whose labels would overlap.
func merge(ms []page.Moment, ss []result.Sample) []page.Moment {
	if len(ss) == 0 {
		return ms
	}
	near := ss[len(ss)-1].At.Seconds() / 80
	slices.SortStableFunc(ms, func(a, b page.Moment) int { return cmp.Compare(a.At, b.At) })
	var out []page.Moment
	first := ""
	for _, m := range ms {
		if k := len(out) - 1; k >= 0 && m.At-out[k].At < near {
			out[k].Label = first + "–" + m.Label
			continue
		}
		out, first = append(out, m), m.Label
	}
	return out
}

// panels makes the plots of the switch's samples. Each shows the lines with the highest
// values.
func panels(ss []result.Sample) []page.Panel {
	if n := (len(ss) + maxSteps - 1) / maxSteps; n > 1 {
		var few []result.Sample
		for i := n - 1; i < len(ss); i += n {
			few = append(few, ss[i])
		}
		if (len(ss)-1)%n != n-1 {
			few = append(few, ss[len(ss)-1])
		}
		ss = few
	}
	bytes := func(s *result.Sample) map[string]int64 { return s.Bytes }
	wait := func(s *result.Sample) map[string]int64 { return s.Wait }
	per := func(of func(*result.Sample) map[string]int64) []page.Series { return grown(ss, of, 1) }
	return []page.Panel{
		{Title: "passed on, by line", Unit: page.Bits, Tall: true, Series: grown(ss, bytes, 8)},
		{Title: "waiting in queues, by line", Unit: page.Size, Series: level(ss, wait)},
		{Title: "lost, packets per second", Unit: page.Count, Series: per(func(s *result.Sample) map[string]int64 { return s.Lost })},
		{Title: "trimmed, packets per second", Unit: page.Count, Series: per(func(s *result.Sample) map[string]int64 { return s.Trim })},
		{Title: "marked (ECN), packets per second", Unit: page.Count, Series: per(func(s *result.Sample) map[string]int64 { return s.Mark })},
	}
}

// active is the number of lines that passed anything on.
func active(ss []result.Sample) int {
	n := 0
	for _, v := range ss[len(ss)-1].Bytes {
		if v > 0 {
			n++
		}
	}
	return n
}

// busiest returns the names with the highest values, sorted by name. It leaves out zeros.
func busiest(most map[string]int64) (names []string) {
	for name, v := range most {
		if v > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(most[b], most[a]), strings.Compare(a, b)) })
	names = names[:min(len(names), maxLines)]
	slices.Sort(names)
	return names
}

// grown makes series of rates from counters: the increase in each interval times factor,
// per second.
func grown(ss []result.Sample, of func(*result.Sample) map[string]int64, factor float64) []page.Series {
	if len(ss) == 0 {
		return nil
	}
	most := maps.Clone(of(&ss[len(ss)-1]))
	var out []page.Series
	for _, name := range busiest(most) {
		s := page.Series{Name: name, Step: true}
		at, n := 0.0, int64(0)
		for i := range ss {
			v, ok := of(&ss[i])[name]
			now := ss[i].At.Seconds()
			y := math.NaN()
			if ok && now > at && v >= n {
				y = factor * float64(v-n) / (now - at)
			}
			s.X, s.Y = append(s.X, now), append(s.Y, y)
			if ok {
				at, n = now, v
			}
		}
		out = append(out, s)
	}
	return out
}

// level makes series of values.
func level(ss []result.Sample, of func(*result.Sample) map[string]int64) []page.Series {
	most := map[string]int64{}
	for i := range ss {
		for name, v := range of(&ss[i]) {
			most[name] = max(most[name], v)
		}
	}
	var out []page.Series
	for _, name := range busiest(most) {
		s := page.Series{Name: name}
		for i := range ss {
			y := math.NaN()
			if v, ok := of(&ss[i])[name]; ok {
				y = float64(v)
			}
			s.X, s.Y = append(s.X, ss[i].At.Seconds()), append(s.Y, y)
		}
		out = append(out, s)
	}
	return out
}
