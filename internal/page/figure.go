package page

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Figure is a drawing with its legend.
type Figure struct {
	Title string
	Keys  []Key
	SVG   template.HTML
	Note  string
}

// A Key is a line of the legend.
type Key struct {
	Name   string
	Colour template.CSS
	Dash   template.CSS
	Block  bool // an area, not a line
}

// width is the width of all figures in points. Browsers show a point as a pixel if there is
// room; at 1000 pixels text is as large as in tables.
const width = 960

// fontSize is the size of ticks and labels in points.
const fontSize = 12

var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// A look is the colour and dashes of a series.
type look struct {
	colour int
	dashes []vg.Length
}

var dashings = [][]vg.Length{nil, {7, 4}, {2, 3}, {10, 3, 2, 3}}

// looks returns the looks of n series. ordered means that they are steps from small to
// large rather than kinds.
func looks(n int, ordered bool) []look {
	out := make([]look, n)
	for i := range out {
		if !ordered || n < 3 {
			out[i] = look{seriesC + i%seriesN, dashings[i/seriesN%len(dashings)]}
			continue
		}
		out[i] = look{colour: rampC + i*(rampN-1)/(n-1)}
		if n > rampN {
			out[i].dashes = dashings[i%2]
		}
	}
	return out
}

func (l look) key(name string, block bool) Key {
	var d []string
	for _, x := range l.dashes {
		d = append(d, fmt.Sprint(float64(x)))
	}
	return Key{Name: name, Colour: template.CSS(cssVar(l.colour)), Dash: template.CSS(strings.Join(d, " ")), Block: block}
}

func (l look) line(width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: standIn(l.colour), Width: width, Dashes: l.dashes}
}

func textStyle(colour int) text.Style {
	return text.Style{Color: standIn(colour), Font: font.From(sans, fontSize), Handler: plot.DefaultTextHandler}
}

// sheet makes an empty plot with the given axes.
func sheet(x, y axis) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	style := func(a *plot.Axis, from axis) {
		a.Min, a.Max = from.min, from.max
		a.Padding = 0
		a.LineStyle = draw.LineStyle{Color: standIn(axisC), Width: 1}
		a.Tick.LineStyle = a.LineStyle
		a.Tick.Length = 5
		a.Tick.Marker = plot.ConstantTicks(from.ticks)
		xa, ya := a.Tick.Label.XAlign, a.Tick.Label.YAlign
		a.Tick.Label = textStyle(mutedC)
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = xa, ya
		xa, ya = a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign
		a.Label.TextStyle = textStyle(inkC)
		a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = xa, ya
		a.Label.Text = from.label
		a.Label.Padding = 4
		if from.log {
			a.Scale = plot.LogScale{}
		}
	}
	style(&p.X, x)
	style(&p.Y, y)
	p.Y.LineStyle.Width, p.Y.Tick.Length = 0, 0
	g := plotter.NewGrid()
	g.Vertical = draw.LineStyle{Color: standIn(gridC), Width: 1}
	g.Horizontal = g.Vertical
	p.Add(g)
	return p
}

// curve adds a line to a plot, with its points if points is true. Values that are not
// finite are gaps.
func curve(p *plot.Plot, xy plotter.XYs, l look, step plotter.StepKind, points bool) {
	add := func(part plotter.XYs) {
		if len(part) == 0 {
			return
		}
		if len(part) > 1 {
			p.Add(&plotter.Line{XYs: part, LineStyle: l.line(2), StepStyle: step})
		}
		if points || len(part) == 1 {
			p.Add(&plotter.Scatter{XYs: part, GlyphStyle: draw.GlyphStyle{Color: standIn(l.colour), Radius: 3, Shape: draw.CircleGlyph{}}})
		}
	}
	from := 0
	for i, v := range xy {
		if !finite(v.X) || !finite(v.Y) {
			add(xy[from:i])
			from = i + 1
		}
	}
	add(xy[from:])
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// A part is one of several plots of a figure that stand below each other.
type part struct {
	*plot.Plot
	title  string
	height vg.Length
}

// headroom is the height of a part's title.
const headroom = fontSize + 10

// render draws parts below each other with aligned axes. alt is the text for those who do
// not see the figure.
func render(alt string, parts ...part) template.HTML {
	total := vg.Length(4)
	for _, p := range parts {
		total += p.height + headroom
	}
	c := vgsvg.New(width, total)
	// Leave room for fonts that are wider than the one measured here.
	all := draw.Crop(draw.New(c), 4, -14, 0, 0)
	// The margins of plots differ because their ticks differ in width. Make them equal.
	boxes := make([]draw.Canvas, len(parts))
	var left, right vg.Length
	top := all.Max.Y
	for i, p := range parts {
		b := all
		b.Max.Y = top - headroom
		b.Min.Y = b.Max.Y - p.height
		top = b.Min.Y
		boxes[i] = b
		d := p.DataCanvas(b)
		left, right = max(left, d.Min.X-b.Min.X), max(right, b.Max.X-d.Max.X)
	}
	for i, p := range parts {
		b := boxes[i]
		d := p.DataCanvas(b)
		head := textStyle(inkC)
		b.FillText(head, vg.Point{X: b.Min.X + 2, Y: b.Max.Y + 8}, p.title)
		p.Draw(draw.Crop(b, left-(d.Min.X-b.Min.X), -(right - (b.Max.X - d.Max.X)), 0, 0))
	}
	return clean(c, alt)
}

// clean makes the drawing a part of the page: it takes colours and fonts from the page and
// its size from its place, and has a description.
func clean(c *vgsvg.Canvas, alt string) template.HTML {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		panic(err) // writing to a buffer cannot fail
	}
	s := b.String()
	s = s[strings.Index(s, "<svg"):]
	s = s[strings.Index(s, ">")+1:]
	s = strings.NewReplacer(
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "",
		"\n\t", " ", "fill:none;", "fill:none;",
	).Replace(s)
	w, h := c.Size()
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %.5g %.5g" role="img" aria-label="%s">`, float64(w), float64(h), template.HTMLEscapeString(alt)) + standIns.Replace(s))
}
