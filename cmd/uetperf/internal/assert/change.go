package assert

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A Metric is something that can be compared between runs.
type Metric struct {
	Name string
	m    metric
}

// Lookup finds a metric by one of its names.
func Lookup(name string) (Metric, bool) {
	n := strings.ToLower(name)
	if a, ok := alias[n]; ok {
		n = a
	}
	m, ok := metrics[n]
	return Metric{n, m}, ok
}

// Value is what was measured: counts that are part of something as parts of 1,
// so that runs of different length compare.
func (m Metric) Value(r *record.Run) (float64, bool) {
	v, ok := m.m.of(r)
	if !ok || m.m.whole == nil {
		return v, ok
	}
	w := m.m.whole(r)
	switch {
	case w > 0:
		return v / w, true
	case v > 0:
		return 1, true
	}
	return 0, false // none of nothing
}

func (m Metric) part() bool { return m.m.kind == count && m.m.whole != nil || m.m.kind == share }

// HigherIsBetter tells which way a metric gets better.
func (m Metric) HigherIsBetter() bool {
	return m.m.kind == bitrate || m.m.kind == rate || m.Name == "msgs"
}

// Unit is that of Value.
func (m Metric) Unit() string {
	if m.part() {
		return "1"
	}
	return [...]string{duration: "ns", bitrate: "bit/s", rate: "1/s", count: "1"}[m.m.kind]
}

// Format writes a value for people.
func (m Metric) Format(v float64) string {
	a := Assert{m: m.m, part: m.part()}
	return a.Format(v)
}

// A Change is how far a metric may go between two measurements: p99>+10%.
type Change struct {
	Metric
	Text   string
	up     bool
	points float64 // relative, or in the unit of Value
	rel    bool
}

var changeForm = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9.\-]*(?:/s)?)\s*([<>])=?\s*([-+−]?)([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*$`)

// ParseChange reads METRIC>+CHANGE or METRIC<-CHANGE. CHANGE is a share of the base
// (+10%), or in the unit of the metric (+20us, -1Gb/s; +0.1pp of a share).
func ParseChange(s string) (*Change, error) {
	f := changeForm.FindStringSubmatch(s)
	if f == nil {
		return nil, fmt.Errorf("%q is not METRIC>+CHANGE or METRIC<-CHANGE, such as p99>+10%% or goodput<-5%%", s)
	}
	m, ok := Lookup(f[1])
	if !ok {
		return nil, fmt.Errorf("%q: no metric %q; there are: %s", s, f[1], strings.Join(Names(), " "))
	}
	sign := map[string]string{">": "+", "<": "-"}[f[2]]
	if got := strings.Replace(f[3], "−", "-", 1); got != sign {
		return nil, fmt.Errorf("%q: %s needs a change with its sign: %s%s%s%s%s", s, f[2], f[1], f[2], sign, f[4], f[5])
	}
	v, err := strconv.ParseFloat(f[4], 64)
	if err != nil || math.IsInf(v, 0) {
		return nil, fmt.Errorf("%q: %q is not a number", s, f[4])
	}
	c := &Change{Metric: m, Text: strings.TrimSpace(s), up: f[2] == ">", points: v}
	switch u, known := kindUnits[m.m.kind][f[5]]; {
	case f[5] == "%":
		c.rel, c.points = true, v/100
	case m.part() && f[5] == "pp":
		c.points = v / 100
	case m.part() || !known || f[5] == "":
		like := kindExample[m.m.kind]
		switch {
		case m.part():
			like = "0.1pp (percentage points)"
		case m.m.kind == count:
			like = "10%"
		}
		return nil, fmt.Errorf("%q: write the change of %s like %s10%% or %s%s", s, m.Name, sign, sign, like)
	default:
		c.points = v * u
	}
	return c, nil
}

// Exceeded reports whether from base to now is more than the change allows.
func (c *Change) Exceeded(base, now float64) bool {
	d := now - base
	if c.rel {
		if d = Relative(base, now); math.IsNaN(d) {
			return false
		}
	}
	// What the values' own rounding makes of an exact +10 % is not more than that.
	const slack = 1e-9
	if c.up {
		return d > c.points+slack*math.Max(1, math.Abs(c.points))
	}
	return d < -c.points-slack*math.Max(1, math.Abs(c.points))
}

// Relative is the change as a share of base: infinite if that was zero and now
// is not, none if both are.
func Relative(base, now float64) float64 {
	if base == now {
		return 0
	}
	return (now - base) / math.Abs(base)
}
