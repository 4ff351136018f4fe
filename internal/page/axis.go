package page

import (
	"math"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/internal/units"
	"gonum.org/v1/plot"
)

// An axis is a range with ticks.
type axis struct {
	min, max float64
	ticks    []plot.Tick
	log      bool
	label    string
}

// bare returns the axis with its ticks but without labels.
func (a axis) bare() axis {
	t := make([]plot.Tick, len(a.ticks))
	for i := range t {
		t[i] = a.ticks[i]
		if t[i].Label != "" {
			t[i].Label = " " // gonum draws a grid line only for a tick with a label
		}
	}
	a.ticks, a.label = t, ""
	return a
}

// linear makes an axis from lo to hi with about n ticks, in the unit that suits the largest
// value. It includes 0 if zero is true. It also returns the name of the unit.
func linear(lo, hi float64, zero bool, n int, u Unit) (axis, string) {
	if zero {
		lo, hi = min(0, lo), max(0, hi)
	}
	if !finite(lo) || !finite(hi) || lo > hi {
		lo, hi = 0, 1
	}
	if lo == hi {
		hi = lo + max(1, math.Abs(lo)/10)
	}
	s := u.step(max(math.Abs(lo), math.Abs(hi)))
	every := nice((hi - lo) / s.per / float64(n))
	if u.steps[0].per == 1 && s.per == 1 && u.steps[1].name != "µs" {
		every = max(1, every) // whole things have no fractions
	}
	a := axis{}
	first, last := math.Floor(lo/s.per/every+1e-9), math.Ceil(hi/s.per/every-1e-9)
	for i := first; i <= last; i++ {
		v := i * every
		a.ticks = append(a.ticks, plot.Tick{Value: v * s.per, Label: tick(v, every)})
	}
	a.min, a.max = first*every*s.per, last*every*s.per
	return a, s.name
}

// tick formats v with the digits that a multiple of every needs.
func tick(v, every float64) string {
	prec := max(0, int(math.Ceil(-math.Log10(every)-1e-9)))
	return strconv.FormatFloat(v+0, 'f', prec, 64)
}

// nice returns the smallest value not below v that is 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p*1.0001 {
			return m * p
		}
	}
	return 10 * p
}

// logarithmic makes an axis over positive values. It has ticks at 1, 2 and 5 of each decade
// if there is room, labelled in the units of the values.
func logarithmic(lo, hi float64, u Unit) axis {
	if !(lo > 0) || !finite(hi) || hi < lo {
		lo, hi = 1, 10
	}
	marks := []float64{1, 2, 5}
	decades := math.Log10(hi / lo)
	if decades > 4 {
		marks = []float64{1}
	}
	a := axis{log: true}
	var vals []float64
	for e := math.Floor(math.Log10(lo)) - 1; e <= math.Ceil(math.Log10(hi))+1; e++ {
		for _, m := range marks {
			vals = append(vals, m*math.Pow(10, e))
		}
	}
	// The axis reaches from the last mark below the values to the first above.
	from, to := 0, len(vals)-1
	for i, v := range vals {
		if v <= lo*1.0001 {
			from = i
		}
	}
	for i := len(vals) - 1; i > from; i-- {
		if vals[i] >= hi*0.9999 {
			to = i
		}
	}
	a.min, a.max = vals[from], vals[to]
	every := 1
	if len(marks) == 1 {
		every = (to-from)/12 + 1
	}
	for i, v := range vals[from : to+1] {
		label := ""
		if i%every == 0 {
			label = u.Format(v)
		}
		a.ticks = append(a.ticks, plot.Tick{Value: v, Label: label})
	}
	if len(marks) == 1 {
		for i := from; i < to; i++ {
			for m := 2.0; m < 10; m++ {
				a.ticks = append(a.ticks, plot.Tick{Value: m * vals[i]})
			}
		}
	}
	return a
}

// sizes makes a logarithmic axis over message sizes with ticks at powers of two. It also
// returns the function from a size to its place. Size 0 stands one step before 1.
func sizes(all []float64) (axis, func(float64) float64) {
	at := func(n float64) float64 {
		if n < 1 {
			return -1
		}
		return math.Log2(n)
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range all {
		lo, hi = min(lo, at(v)), max(hi, at(v))
	}
	if !finite(lo) {
		lo, hi = 0, 1
	}
	if lo == hi {
		lo, hi = lo-1, hi+1
	}
	first, last := math.Floor(lo), math.Ceil(hi)
	every := math.Ceil((last - first) / 16)
	a := axis{min: lo, max: hi, label: "message size, bytes"}
	pad := (hi - lo) / 40
	a.min, a.max = a.min-pad, a.max+pad
	for e := first; e <= last; e += every {
		n := int64(0)
		if e >= 0 {
			n = int64(1) << int(min(e, 62))
		}
		a.ticks = append(a.ticks, plot.Tick{Value: e, Label: units.Size(n)})
	}
	return a, at
}

// nines makes the axis of quantiles, on which 0, 90, 99, 99.9 % are equally far apart.
func nines(most float64) axis {
	a := axis{max: math.Max(1.05, most*1.02)}
	a.ticks = []plot.Tick{{Value: 0, Label: "0 %"}, {Value: toNines(0.5), Label: "50 %"}, {Value: 1, Label: "90 %"}, {Value: 2, Label: "99 %"}}
	for n := 3; float64(n) <= a.max && n < 10; n++ {
		a.ticks = append(a.ticks, plot.Tick{Value: float64(n), Label: "99." + strings.Repeat("9", n-2) + " %"})
	}
	return a
}

// toNines is the place of a quantile, 0 to 1, on that axis.
func toNines(q float64) float64 { return -math.Log10(1 - q) }
