package assert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// Names are the names that an expression may use. Each is a Metric, further Names, or a
// types.Type of expr.
type Names map[string]any

// These endings make further names from those of metrics.
const (
	asPart = "%"
	inMS   = "_ms"
)

// Reasons is the name of the map of drops by reason.
const Reasons = "drops[]"

var runNames = func() Names {
	n := Names{Reasons: types.Map{types.Extra: types.TypeOf(0.0)}}
	for _, f := range metrics {
		for _, name := range f.names() {
			n[name] = f
			if f.Kind == Duration {
				n[name+inMS] = Metric{Name: name + inMS}
			}
			if f.whole != nil {
				n[name+asPart] = Metric{Name: name, Kind: Share}
			}
		}
	}
	return n
}()

// RunNames returns the names of the metrics of a run, or of several.
func RunNames() Names { return runNames }

// List lists the names for an error message.
func (n Names) List() string { return strings.Join(n.Words(), " ") }

// Words returns what expressions may name.
func (n Names) Words() (out []string) {
	for _, k := range slices.Sorted(maps.Keys(n)) {
		f, ok := n[k].(Metric)
		switch {
		case !ok && k != Reasons:
			out = append(out, k)
		case ok && canon(f.Name) == k && !strings.HasSuffix(k, inMS):
			out = append(out, f.Name)
		}
	}
	return out
}

func (n Names) types() types.Map {
	m := types.Map{}
	for k, v := range n {
		switch v := v.(type) {
		case Names:
			m[k] = v.types()
		case types.Type:
			m[k] = v
		default:
			m[k] = types.TypeOf(0.0)
		}
	}
	return m
}

// An Expr is a compiled assertion.
type Expr struct {
	text string
	prog *vm.Program
	refs []ref
	// op is the operator if the expression only compares a metric with a number, else "".
	op string
	// below says that a metric is compared with a negative number.
	below bool
}

// A ref is a metric that an expression uses.
type ref struct {
	text string // for people
	path []string
	kind Kind
}

// Compile compiles an expression over names. Its error is one line.
func (n Names) Compile(text string) (*Expr, error) {
	text = strings.TrimSpace(text)
	src, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	r := &reader{src: src, names: n, said: map[ast.Node]said{}}
	prog, err := expr.Compile(src.text, expr.Env(n.types()), expr.AsBool(), expr.Patch(r))
	if err = cmp.Or(r.err, err); err != nil {
		return nil, fmt.Errorf("%q: %s", text, n.why(err))
	}
	return &Expr{text: text, prog: prog, refs: r.refs, op: r.op, below: r.below}, nil
}

// why describes an error of expr in one line.
func (n Names) why(err error) string {
	why, _, _ := strings.Cut(err.Error(), "\n")
	var at *file.Error
	if errors.As(err, &at) {
		if why = at.Message; at.Column > 0 {
			why = fmt.Sprintf("%s, at column %d", why, at.Column+1)
		}
	}
	if strings.HasPrefix(why, "expected bool, but got ") {
		why = "it is not true or false: compare it with a value, as in p99<200us"
	}
	if strings.Contains(why, "unknown name") {
		why += "; there are " + n.List()
	}
	return why
}

// Evaluate evaluates the expression over values by name. It returns whether the expression
// is true, and the metrics that it uses with their values.
func (e *Expr) Evaluate(values map[string]any) (pass bool, found string, err error) {
	out, err := vm.Run(e.prog, values)
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		return false, "", fmt.Errorf("%q: %s", e.text, why)
	}
	parts := make([]string, len(e.refs))
	for i, r := range e.refs {
		parts[i] = r.text + " = " + r.kind.Format(r.value(values))
	}
	return out.(bool), strings.Join(parts, ", "), nil
}

// value returns the value of the metric, NaN if it is missing.
func (r *ref) value(values map[string]any) float64 {
	var at any = values
	for _, p := range r.path {
		switch m := at.(type) {
		case map[string]any:
			at = m[p]
		case map[string]float64:
			at = m[p]
		}
	}
	if v, ok := at.(float64); ok {
		return v
	}
	return math.NaN()
}

// A reader adds what expr does not know to a parsed expression: units, parts, names.
type reader struct {
	src   *source
	names Names
	said  map[ast.Node]said
	refs  []ref
	op    string
	below bool
	err   error
}

// said is what the reader found out about a node.
type said struct {
	is any // a Metric, Names, literal, or types.Type
	ref
	negative bool
	metric   bool // the node contains a metric
	first    bool // no earlier node uses the same metric
}

func (s said) fig() (Metric, bool)  { f, ok := s.is.(Metric); return f, ok }
func (s said) lit() (literal, bool) { l, ok := s.is.(literal); return l, ok }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// Visit reads a node. Its children were read before.
func (r *reader) Visit(n *ast.Node) {
	r.op = ""
	switch x := (*n).(type) {
	case *ast.IntegerNode:
		r.literal(n, x)
	case *ast.UnaryNode:
		if s := r.said[x.Node]; x.Operator == "-" || x.Operator == "+" {
			s.negative = x.Operator == "-"
			s.ref = ref{}
			if _, ok := s.lit(); !ok {
				s.is = nil
			}
			r.said[x] = s
		}
	case *ast.IdentifierNode:
		if is, ok := r.names.find(&x.Value); ok {
			r.name(x, is, ref{path: []string{x.Value}, text: x.Value})
		}
	case *ast.MemberNode:
		if p, ok := x.Property.(*ast.StringNode); ok {
			r.member(x, p)
		}
	case *ast.CallNode:
		r.call(n, x)
	case *ast.BuiltinNode:
		if slices.Contains([]string{"len", "keys", "values", "toPairs"}, x.Name) && len(x.Arguments) > 0 {
			r.reasons(&x.Arguments[0])
		}
	case *ast.BinaryNode:
		r.binary(n, x)
	}
}

// reasons replaces the sum of drops by the map of drops by reason, if the node is that sum.
// It reports whether it was.
func (r *reader) reasons(n *ast.Node) bool {
	s := r.said[*n]
	f, ok := s.fig()
	if ok = ok && f.Name == "drops"; ok {
		r.drop(s)
		renamed(n, Reasons)
	}
	return ok
}

// unitNames lists the units that a number may have.
func unitNames() string { return strings.Join(slices.Sorted(maps.Keys(factors)), " ") }

// literal replaces a number with a unit by its value.
func (r *reader) literal(n *ast.Node, x *ast.IntegerNode) {
	l, ok := r.src.number[x.Location().From]
	if ok {
		factor, ok := factors[l.unit]
		if !ok {
			r.fail("there is no unit %s; there are %s", l.unit, unitNames())
		}
		v := l.value * factor
		if l.unit == "%" {
			v = l.value / 100 // more exact than the factor
		}
		ast.Patch(n, &ast.FloatNode{Value: v})
	}
	r.said[*n] = said{is: l}
}

// find looks a name up. If only its lower case exists it changes the name to that.
func (n Names) find(name *string) (any, bool) {
	is, ok := n[*name]
	if !ok {
		if is, ok = n[strings.ToLower(*name)]; ok {
			*name = strings.ToLower(*name)
		}
	}
	return is, ok
}

// name notes that a node is a name.
func (r *reader) name(n ast.Node, is any, at ref) {
	f, metric := is.(Metric)
	if metric {
		at.kind = f.Kind
		if head, ok := strings.CutSuffix(at.text, canon(f.Name)); ok {
			at.text = head + f.Name
		}
	}
	r.said[n] = said{is: is, ref: at, metric: metric, first: metric && r.use(at)}
}

// use adds a metric to those that the expression uses. It reports whether it is new.
func (r *reader) use(at ref) bool {
	if slices.ContainsFunc(r.refs, func(o ref) bool { return slices.Equal(o.path, at.path) }) {
		return false
	}
	r.refs = append(r.refs, at)
	return true
}

// drop removes a metric that turned out to mean another one.
func (r *reader) drop(s said) {
	if s.first {
		r.refs = slices.DeleteFunc(r.refs, func(o ref) bool { return slices.Equal(o.path, s.path) })
	}
}

// member reads a field such as c.rtx or c.drops["crc"].
func (r *reader) member(x *ast.MemberNode, p *ast.StringNode) {
	base := r.said[x.Node]
	field := func() ref {
		return ref{path: append(slices.Clone(base.path), p.Value), text: base.text + "." + p.Value}
	}
	if r.reasons(&x.Node) {
		at := field()
		at.path[len(at.path)-2] = Reasons
		r.name(x, Metric{Name: p.Value}, at)
		return
	}
	names, ok := base.is.(Names)
	if !ok {
		return
	}
	is, ok := names.find(&p.Value)
	if !ok {
		r.fail("%s has no field %s; there are %s", base.text, p.Value, names.List())
		return
	}
	r.name(x, is, field())
}

// renamed changes the last name of a node.
func renamed(n *ast.Node, name string) {
	switch x := (*n).(type) {
	case *ast.IdentifierNode:
		ast.Patch(n, &ast.IdentifierNode{Value: name})
	case *ast.MemberNode:
		ast.Patch(n, &ast.MemberNode{Node: x.Node, Property: &ast.StringNode{Value: name}})
	}
}

// call reads line("s.to"), which is another way to write a member of names.
func (r *reader) call(n *ast.Node, x *ast.CallNode) {
	base := r.said[x.Callee]
	names, ok := base.is.(Names)
	if !ok || len(x.Arguments) != 1 {
		return
	}
	s, ok := x.Arguments[0].(*ast.StringNode)
	if !ok {
		r.fail("%s takes a name in quotes: %s(%q)", base.text, base.text, cmp.Or(slices.Sorted(maps.Keys(names))...))
		return
	}
	is, ok := names[s.Value]
	if !ok {
		r.fail("there is no %s %q; there are %s", base.text, s.Value, names.List())
		return
	}
	ast.Patch(n, &ast.MemberNode{Node: x.Callee, Property: s})
	r.name(*n, is, ref{path: append(slices.Clone(base.path), s.Value), text: base.text + "(" + strconv.Quote(s.Value) + ")"})
}

// binary reads a comparison or arithmetic.
func (r *reader) binary(n *ast.Node, x *ast.BinaryNode) {
	if r.src.equal[x.Location().From] {
		x.Operator = "=="
	}
	left, right := r.said[x.Left], r.said[x.Right]
	metric := left.metric || right.metric
	switch x.Operator {
	case "in":
		r.reasons(&x.Right)
	case "+", "-", "*", "/":
		s := said{metric: metric}
		a, ok1 := left.lit()
		if b, ok2 := right.lit(); ok1 && ok2 {
			s.is = literal{unit: cmp.Or(a.unit, b.unit)}
		}
		r.said[x] = s
	case "<", "<=", ">", ">=", "==", "!=":
		op := x.Operator
		if r.bound(&x.Left, &x.Right) {
			r.op = op
		} else if r.bound(&x.Right, &x.Left) {
			r.op = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
		}
		if op == "!=" && metric {
			less, more := *x, *x
			less.Operator, more.Operator = "<", ">"
			ast.Patch(n, &ast.BinaryNode{Operator: "||", Left: &less, Right: &more})
		}
	}
}

// bound checks the unit of a number that is compared with a metric. With % it compares the
// metric as a part of its whole. It reports whether the nodes are a metric and a number.
func (r *reader) bound(metric, number *ast.Node) bool {
	s := r.said[*metric]
	f, ok := s.fig()
	l, ok2 := r.said[*number].lit()
	if !ok || !ok2 {
		return false
	}
	r.below = r.below || r.said[*number].negative
	switch {
	case l.unit == "%" && f.whole != nil:
		r.drop(s)
		last := len(s.path) - 1
		s.path = append(slices.Clone(s.path[:last]), s.path[last]+asPart)
		s.kind = Share
		r.use(s.ref)
		renamed(metric, s.path[last])
	case !f.Kind.has(l.unit):
		r.fail("write the value of %s like %s", f.Name, kinds[f.Kind].example)
	case f.Kind == Share && l.unit == "":
		ast.Patch(number, &ast.BinaryNode{Operator: "/", Left: *number, Right: &ast.IntegerNode{Value: 100}})
	}
	return true
}
