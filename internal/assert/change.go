package assert

import (
	"fmt"
	"math"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// A Change is the most that a metric may change between two measurements, such as p99>+10%.
type Change struct {
	Metric
	Text   string
	up     bool
	points float64 // a share of the base if rel, else in the unit of Value
	rel    bool
}

// ParseChange reads METRIC>+CHANGE or METRIC<-CHANGE. CHANGE is a share of the base (+10%),
// or an amount in the unit of the metric (+20us, -1Gb/s). For a share it is in percentage
// points (+0.1pp).
func ParseChange(s string) (*Change, error) {
	text := strings.TrimSpace(s)
	src, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	name, op, sign, l, ok := src.change()
	if !ok {
		return nil, fmt.Errorf("%q is not METRIC>+CHANGE or METRIC<-CHANGE, such as p99>+10%% or goodput<-5%%", text)
	}
	f, ok := Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%q: unknown name %s; there are %s", text, name, RunNames().List())
	}
	want := map[string]string{">": "+", "<": "-"}[op]
	if sign != want {
		return nil, fmt.Errorf("%q: %s needs a change with its sign: %s%s%s%g%s", text, op, f.Name, op, want, l.value, l.unit)
	}
	c := &Change{Metric: f, Text: text, up: op == ">", points: l.value * factors[l.unit]}
	switch kind := f.compared(); {
	case l.unit == "%":
		c.rel, c.points = true, l.value/100
	case kind == Share && l.unit == "pp":
		c.points = l.value / 100
	case kind == Share || l.unit == "" || !kind.has(l.unit):
		like := kinds[kind].example
		switch kind {
		case Share:
			like = "0.1pp (percentage points)"
		case Count:
			like = "10%"
		}
		return nil, fmt.Errorf("%q: write the change of %s like %s10%% or %s%s", text, f.Name, want, want, like)
	}
	return c, nil
}

// change splits an expression of the form NAME, < or >, optional sign, number.
func (src *source) change() (name, op, sign string, l literal, ok bool) {
	tree, err := parser.Parse(src.text)
	if err != nil {
		return
	}
	b, _ := tree.Node.(*ast.BinaryNode)
	if b == nil || b.Operator != "<" && b.Operator != ">" || src.equal[b.Location().From] {
		return
	}
	right := b.Right
	if u, isSigned := right.(*ast.UnaryNode); isSigned {
		sign, right = u.Operator, u.Node
	}
	id, isName := b.Left.(*ast.IdentifierNode)
	n, isNumber := right.(*ast.IntegerNode)
	if !isName || !isNumber {
		return
	}
	if l, ok = src.number[n.Location().From]; !ok {
		l.value = float64(n.Value)
	}
	return id.Value, b.Operator, sign, l, true
}

// Exceeded reports whether the change from base to now is more than c allows.
func (c *Change) Exceeded(base, now float64) bool {
	d := now - base
	if c.rel {
		if d = Relative(base, now); math.IsNaN(d) {
			return false
		}
	}
	// slack keeps the rounding of the values from exceeding an exact +10 %.
	const slack = 1e-9
	if c.up {
		return d > c.points+slack*math.Max(1, math.Abs(c.points))
	}
	return d < -c.points-slack*math.Max(1, math.Abs(c.points))
}

// Relative returns the change as a share of base: infinite if only base is 0, and 0 if both
// are.
func Relative(base, now float64) float64 {
	if base == now {
		return 0
	}
	return (now - base) / math.Abs(base)
}
