package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/uetkit/uetkit/internal/units"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Distribution has the measurements of one thing.
type Distribution struct {
	Name string
	// Values are in nanoseconds, rising. Counts has the number of measurements with each
	// value.
	Values []float64
	Counts []int64
}

// points returns the curve of d, which steps up at each value. It ends half a measurement
// before 100 %, because so many measurements cannot tell more.
func (d *Distribution) points() plotter.XYs {
	total := int64(0)
	for _, n := range d.Counts {
		total += max(0, n)
	}
	if total <= 0 {
		return nil
	}
	var out plotter.XYs
	seen := int64(0)
	for i, v := range d.Values {
		n := d.Counts[i]
		if n <= 0 || !finite(v) {
			continue
		}
		before := toNines(float64(seen) / float64(total))
		seen += n
		after := toNines(min(float64(seen), float64(total)-0.5) / float64(total))
		v = max(v, 1) // the clock did not move
		// Skip points closer than the width of a line.
		if k := len(out); k > 1 && seen < total && v < out[k-1].X*1.003 && after-out[k-1].Y < 0.01 {
			continue
		}
		if len(out) == 0 {
			out = append(out, plotter.XY{X: v, Y: before})
		} else {
			out = append(out, plotter.XY{X: v, Y: out[len(out)-1].Y})
		}
		out = append(out, plotter.XY{X: v, Y: after})
	}
	return out
}

// CDF draws distributions of latency over each other, with logarithmic x and nines as y.
// ordered says that they are steps of one thing, such as sizes. Distributions without
// values are left out.
func CDF(title, xlabel string, ordered bool, ds []Distribution) (Figure, bool) {
	return CDFWithin(title, xlabel, ordered, ds, ReachOf(ds))
}

// A Reach is what the axes of distributions show at least: from Lo to Hi, up to Top nines.
type Reach struct{ Lo, Hi, Top float64 }

// ReachOf is the reach of distributions. Figures with the same reach can be compared.
func ReachOf(ds []Distribution) Reach {
	r := Reach{Lo: math.Inf(1), Hi: math.Inf(-1)}
	for i := range ds {
		if xy := ds[i].points(); len(xy) > 0 {
			r.Lo, r.Hi, r.Top = min(r.Lo, xy[0].X), max(r.Hi, xy[len(xy)-1].X), max(r.Top, xy[len(xy)-1].Y)
		}
	}
	return r
}

// CDFWithin is CDF with axes that show a reach at least.
func CDFWithin(title, xlabel string, ordered bool, ds []Distribution, all Reach) (Figure, bool) {
	var curves []plotter.XYs
	var names []string
	lo, hi, top := math.Inf(1), math.Inf(-1), 0.0
	for i := range ds {
		xy := ds[i].points()
		if len(xy) == 0 {
			continue
		}
		curves, names = append(curves, xy), append(names, ds[i].Name)
		lo, hi, top = min(lo, xy[0].X), max(hi, xy[len(xy)-1].X), max(top, xy[len(xy)-1].Y)
	}
	if len(curves) == 0 {
		return Figure{}, false
	}
	x := logarithmic(min(lo, all.Lo), max(hi, all.Hi), Time)
	x.label = xlabel
	p := sheet(x, nines(max(top, all.Top)))
	f := Figure{Title: title, Note: "Each step to the next line of the grid upwards is a tenth of the messages before: 99 % are faster than where a curve crosses the line 99 %. Curves end where there are no more measurements."}
	for i, l := range looks(len(curves), ordered) {
		curve(p, curves[i], l, plotter.NoStep, false)
		f.Keys = append(f.Keys, l.key(names[i], false))
	}
	f.SVG = render(fmt.Sprintf("%s: %s from %s to %s; the numbers are in the tables.", title, units.Plural(len(curves), "curve"), Time.Format(lo), Time.Format(hi)), part{p, "share of messages that were at least as fast", 380})
	return f, true
}

// A Series has values over x, which is in seconds or in bytes of message size. A y of NaN
// was not measured.
type Series struct {
	Name string
	X, Y []float64
	// Step means that each y is a mean since the x before.
	Step bool
}

// A Panel is one of several plots over the same time.
type Panel struct {
	Title  string
	Unit   Unit
	Series []Series
	Tall   bool
	// Most is a value that the axis reaches at least, so that figures can be compared.
	Most float64
}

// A Moment is shown as a line in a timeline, or as a band if Until is later than At.
type Moment struct {
	At, Until float64 // seconds
	Label     string  // short, such as a number
}

// Timeline draws panels below each other over one axis of time in seconds up to end. With
// end 0 it ends with the last value.
func Timeline(title string, panels []Panel, moments []Moment, end float64) (Figure, bool) {
	use := drawable(panels)
	if len(use) == 0 {
		return Figure{}, false
	}
	first, end := span(use, end)
	t := seconds(first, end)
	f := Figure{Title: title}
	// A name has the same colour in all panels.
	index := map[string]int{}
	for _, pn := range use {
		for _, s := range pn.Series {
			if _, ok := index[s.Name]; !ok {
				index[s.Name] = len(index)
			}
		}
	}
	all := looks(len(index), false)
	f.Keys = make([]Key, len(index))
	for n, i := range index {
		f.Keys[i] = all[i].key(n, false)
	}
	if len(index) == 1 {
		f.Keys = nil
	}
	var parts []part
	said := ""
	for i, pn := range use {
		x := t
		if i < len(use)-1 {
			x = t.bare()
		}
		p, hi := pn.part(x, pn.Tall || len(use) == 1)
		if i == len(use)-1 {
			p.height += 2*fontSize + 8
		}
		p.Add(marks(moments))
		for _, s := range pn.Series {
			curve(p.Plot, s.points(), all[index[s.Name]], plotter.NoStep, !s.Step && len(s.X) <= 40)
		}
		parts = append(parts, p)
		said += fmt.Sprintf("; %s up to %s", pn.Title, pn.Unit.Format(hi))
	}
	f.SVG = render(fmt.Sprintf("%s, %s%s.", title, Time.Format((end-first)*1e9), said), parts...)
	return f, true
}

// drawable returns the panels that have values, without their empty series.
func drawable(panels []Panel) (use []Panel) {
	for _, pn := range panels {
		var have []Series
		for _, s := range pn.Series {
			for i := range s.X {
				if finite(s.X[i]) && finite(s.Y[i]) {
					have = append(have, s)
					break
				}
			}
		}
		if pn.Series = have; len(have) > 0 {
			use = append(use, pn)
		}
	}
	return use
}

// span returns the time from the first value, at most 0, to the last value, at least end.
func span(panels []Panel, end float64) (float64, float64) {
	first := 0.0
	for _, pn := range panels {
		for _, s := range pn.Series {
			for i, x := range s.X {
				if finite(x) && finite(s.Y[i]) {
					end, first = max(end, x), min(first, x)
				}
			}
		}
	}
	if end <= first {
		end = first + 1
	}
	return first, end
}

// seconds makes an axis of time in seconds, which may have fractions as ticks.
func seconds(first, end float64) axis {
	t, _ := linear(first*1e9, end*1e9, false, 10, Time)
	for i := range t.ticks {
		t.ticks[i].Value /= 1e9
		t.ticks[i].Label = strconv.FormatFloat(math.Round(t.ticks[i].Value*1e9)/1e9, 'f', -1, 64)
	}
	t.min, t.max, t.label = first, end, "time, s"
	t.ticks = slices.DeleteFunc(t.ticks, func(k plot.Tick) bool { return k.Value < first || k.Value > end*1.0001 })
	return t
}

// part returns the empty plot of a panel, and the panel's highest value.
func (pn *Panel) part(x axis, tall bool) (part, float64) {
	hi, lo := 0.0, 0.0
	for _, s := range pn.Series {
		for _, y := range s.Y {
			if finite(y) {
				hi, lo = max(hi, y), min(lo, y)
			}
		}
	}
	n, h := 3, vg.Length(92)
	if tall {
		n, h = 5, 190
	}
	y, unit := linear(lo, max(hi, pn.Most), true, n, pn.Unit)
	head := pn.Title
	if words := map[string]string{"k": "thousands", "M": "millions", "G": "billions"}; words[unit] != "" {
		unit = words[unit]
	}
	if unit != "" {
		head += ", " + unit
	}
	return part{sheet(x, y), head, h}, hi
}

// points returns the points of the line.
func (s *Series) points() plotter.XYs {
	var out plotter.XYs
	before := 0.0
	for i, x := range s.X {
		y := s.Y[i]
		if s.Step && finite(x) {
			out = append(out, plotter.XY{X: before, Y: y})
			before = x
		}
		out = append(out, plotter.XY{X: x, Y: y})
	}
	return out
}

// marks draws moments behind the curves.
type marks []Moment

func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	tx, _ := p.Transforms(&c)
	style := textStyle(badC)
	style.XAlign, style.YAlign = draw.XLeft, draw.YTop
	for _, k := range m {
		if !(k.At >= p.X.Min && k.At <= p.X.Max) {
			continue
		}
		x := tx(k.At)
		if k.Until > k.At {
			to := tx(min(k.Until, p.X.Max))
			c.FillPolygon(standIn(softC), []vg.Point{{X: x, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: x, Y: c.Max.Y}})
			c.StrokeLine2(draw.LineStyle{Color: standIn(badC), Width: 1, Dashes: []vg.Length{3, 3}}, to, c.Min.Y, to, c.Max.Y)
		}
		c.StrokeLine2(draw.LineStyle{Color: standIn(badC), Width: 1}, x, c.Min.Y, x, c.Max.Y)
		c.FillText(style, vg.Point{X: x + 3, Y: c.Max.Y}, k.Label)
	}
}

// OverSize draws lines over message size. log makes the y axis logarithmic. A series with
// one size becomes a point.
func OverSize(title, ylabel string, u Unit, log bool, series []Series) (Figure, bool) {
	var xs, ys []float64
	var use []Series
	for _, s := range series {
		var kept Series
		kept.Name = s.Name
		order := make([]int, len(s.X))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.X[a], s.X[b]) })
		for _, i := range order {
			if finite(s.X[i]) && finite(s.Y[i]) && (!log || s.Y[i] > 0) {
				kept.X, kept.Y = append(kept.X, s.X[i]), append(kept.Y, s.Y[i])
			}
		}
		if len(kept.X) > 0 {
			use, xs, ys = append(use, kept), append(xs, kept.X...), append(ys, kept.Y...)
		}
	}
	if len(use) == 0 {
		return Figure{}, false
	}
	x, at := sizes(xs)
	var y axis
	unit := ""
	if log {
		y = logarithmic(slices.Min(ys), slices.Max(ys), u)
	} else {
		y, unit = linear(0, slices.Max(ys), true, 6, u)
	}
	p := sheet(x, y)
	f := Figure{Title: title}
	for i, l := range looks(len(use), false) {
		xy := make(plotter.XYs, len(use[i].X))
		for k := range xy {
			xy[k] = plotter.XY{X: at(use[i].X[k]), Y: use[i].Y[k]}
		}
		curve(p, xy, l, plotter.NoStep, true)
		f.Keys = append(f.Keys, l.key(use[i].Name, false))
	}
	if unit != "" {
		ylabel += ", " + unit
	}
	f.SVG = render(fmt.Sprintf("%s: %s, %s from %s to %s; the numbers are in the tables.", title, units.Plural(len(use), "line"), ylabel, u.Format(slices.Min(ys)), u.Format(slices.Max(ys))), part{p, ylabel, 290})
	return f, true
}

// Bars draws a bar for each name. It leaves NaN out.
func Bars(title, ylabel string, u Unit, names []string, values []float64) (Figure, bool) {
	hi, any := 0.0, false
	for _, v := range values {
		if finite(v) {
			hi, any = max(hi, v), true
		}
	}
	if !any {
		return Figure{}, false
	}
	y, unit := linear(0, hi, true, 4, u)
	x := axis{min: -0.6, max: float64(len(names)) - 0.4}
	every := len(names)/20 + 1
	for i, n := range names {
		if i%every == 0 {
			x.ticks = append(x.ticks, plot.Tick{Value: float64(i), Label: short(n, max(4, 110*every/len(names)))})
		}
	}
	p := sheet(x, y)
	p.X.Tick.Width = 0
	bars := make(plotter.Values, len(values))
	for i, v := range values {
		if finite(v) {
			bars[i] = max(0, v)
		}
	}
	w := min(64, 0.6*(width-90)/vg.Length(len(names)))
	b, err := plotter.NewBarChart(bars, max(1, w))
	if err != nil {
		return Figure{}, false
	}
	b.Color, b.LineStyle.Width = standIn(seriesC), 0
	p.Add(b)
	if unit != "" {
		ylabel += ", " + unit
	}
	f := Figure{Title: title}
	f.SVG = render(fmt.Sprintf("%s: %s, the highest %s.", title, units.Plural(len(names), "bar"), u.Format(hi)), part{p, ylabel, 190})
	return f, true
}

// short shortens a text to n characters.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
