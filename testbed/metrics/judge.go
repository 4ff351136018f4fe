package metrics

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// Reserved are names that no host may have.
var Reserved = []string{"all", "min", "max", "jain", "net", "line", "took", "sim", "true", "false", "nil", "in", "not", "and", "or", "let", "if", "else", "matches", "contains"}

// An Env has the values of the names in assertions.
type Env struct {
	vars  map[string]any
	lines map[string]reflect.Value
	flat  map[string]float64
}

// Names is an Env without values, to check assertions by: the clients and the lines
// ("s.to", "spine.0") of a scenario.
func Names(clients, lines []string) *Env {
	e := &Env{lines: map[string]reflect.Value{}}
	var hosts []Host
	e.vars = map[string]any{}
	for _, c := range clients {
		e.vars[c] = newHost()
		hosts = append(hosts, newHost())
	}
	for _, l := range lines {
		e.lines[l] = reflect.New(lineType).Elem()
	}
	e.fill(hosts, reflect.New(netType).Elem(), 0, false)
	return e
}

// Of is the Env of a run. took is the time from the zero of the timeline to the last
// client's end in seconds.
func Of(r *result.Result, took float64) *Env {
	e := &Env{vars: map[string]any{}, lines: map[string]reflect.Value{}, flat: map[string]float64{}}
	var hosts []Host
	for i := range r.Hosts {
		if r.Hosts[i].Role != "client" {
			continue
		}
		h := ofHost(&r.Hosts[i])
		hosts = append(hosts, h)
		e.vars[r.Hosts[i].Name] = h
		flat(e.flat, r.Hosts[i].Name, reflect.ValueOf(h))
	}
	rates := lineRates(&r.Topology)
	sums := map[string]float64{}
	for name := range rates {
		e.lines[name] = filled(lineType, map[string]float64{"rate": rates[name]})
	}
	if st := r.Switch; st != nil {
		for name, l := range st.Lines {
			values := counts(l.Whys)
			values["packets"], values["bytes"] = float64(l.Packets), float64(l.Bytes)
			values["sent_packets"], values["sent_bytes"] = float64(l.SentPkts), float64(l.SentB)
			values["max_waiting"], values["rate"] = float64(l.MaxWait), rates[name]
			e.lines[name] = filled(lineType, values)
			flat(e.flat, `line.`+name, e.lines[name])
		}
		sums = counts(st.Whys)
		sums["received"], sums["sent"] = float64(st.Received), float64(st.Sent)
	}
	net := filled(netType, sums)
	flat(e.flat, "net", net)
	e.fill(hosts, net, took, r.Substrate == "sim")
	for _, name := range []string{"all", "min", "max"} {
		flat(e.flat, name, reflect.ValueOf(e.vars[name]))
	}
	for _, name := range []string{"jain", "took"} {
		if x := e.vars[name].(float64); !math.IsNaN(x) {
			e.flat[name] = x
		}
	}
	return e
}

func counts(whys map[string]uint64) map[string]float64 {
	m := map[string]float64{}
	for why, n := range whys {
		m[why] = float64(n)
	}
	return m
}

// lineRates are the lines of a switch and their configured rates in bit/s.
func lineRates(cfg *fabric.Config) map[string]float64 {
	m := map[string]float64{}
	for _, p := range cfg.Ports {
		m[p.Name+".from"], m[p.Name+".to"] = float64(p.From.Rate), float64(p.To.Rate)
	}
	for i, s := range cfg.Spines {
		m["spine."+strconv.Itoa(i)] = float64(s.Rate)
	}
	return m
}

// LineNames are the lines of a switch.
func LineNames(cfg *fabric.Config) []string { return slices.Sorted(maps.Keys(lineRates(cfg))) }

func (e *Env) fill(hosts []Host, net reflect.Value, took float64, sim bool) {
	e.vars["all"] = fold(hosts, func(a, b float64) float64 { return a + b })
	e.vars["min"] = fold(hosts, math.Min)
	e.vars["max"] = fold(hosts, math.Max)
	e.vars["jain"] = jain(hosts)
	e.vars["net"] = net.Interface()
	e.vars["took"] = took
	e.vars["sim"] = sim
}

// Flat returns every name with its value, without those that were not measured.
func (e *Env) Flat() map[string]float64 { return e.flat }

// Check returns an error of one line if an assertion cannot be evaluated.
func (e *Env) Check(src string) error {
	_, err := e.compile(src)
	return err
}

// Judge evaluates an assertion: whether it holds, and the values of its names.
func (e *Env) Judge(src string) (pass bool, value string, err error) {
	p, err := e.compile(src)
	if err != nil {
		return false, "", err
	}
	out, err := vm.Run(p.prog, e.with())
	if err != nil {
		return false, "", fmt.Errorf("%q: %s", src, firstLine(err))
	}
	var parts []string
	for _, name := range p.names {
		parts = append(parts, name+" = "+e.show(name))
	}
	return out.(bool), strings.Join(parts, ", "), nil
}

// show is the value of a name, short.
func (e *Env) show(name string) string {
	v, err := expr.Eval(name, e.with())
	if err != nil {
		return "?"
	}
	x, ok := v.(float64)
	switch {
	case !ok:
		return fmt.Sprint(v)
	case math.IsNaN(x):
		return "not measured"
	case x == math.Trunc(x) && math.Abs(x) < 1e15:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', 5, 64)
}

func (e *Env) with() map[string]any {
	vars := maps.Clone(e.vars)
	vars["line"] = reflect.MakeFunc(lineFunc, func(args []reflect.Value) []reflect.Value {
		l, ok := e.lines[args[0].String()]
		if !ok {
			l = reflect.New(lineType).Elem()
		}
		return []reflect.Value{l}
	}).Interface()
	return vars
}

var lineFunc = reflect.FuncOf([]reflect.Type{reflect.TypeFor[string]()}, []reflect.Type{lineType}, false)

type compiled struct {
	prog  *vm.Program
	names []string // it uses, in order
}

func (e *Env) compile(src string) (*compiled, error) {
	u := &uses{lines: e.lines}
	prog, err := expr.Compile(src, expr.Env(e.with()), expr.AsBool(), expr.Patch(u))
	if err == nil {
		err = u.err
	}
	if err != nil {
		var at *file.Error
		why := firstLine(err)
		if errors.As(err, &at) {
			why = at.Message
			if at.Column > 0 {
				why = fmt.Sprintf("%s, at column %d", why, at.Column+1)
			}
		}
		if strings.Contains(why, "unknown name") || strings.Contains(why, "has no field") {
			why += "; there are " + e.known()
		}
		return nil, fmt.Errorf("%q: %s", src, why)
	}
	return &compiled{prog, u.names()}, nil
}

// known says which names there are.
func (e *Env) known() string {
	var fields []string
	t := reflect.TypeFor[Host]()
	for i := range t.NumField() {
		fields = append(fields, t.Field(i).Tag.Get("expr"))
	}
	return fmt.Sprintf("%s with %s; net and line(%s) with %s and the names of the switch's decisions (%s)",
		strings.Join(slices.Sorted(maps.Keys(e.vars)), " "), strings.Join(fields, " "),
		strings.Join(quoted(slices.Sorted(maps.Keys(e.lines))), "|"), strings.Join(lineNames, " "), strings.Join(whyNames(), " "))
}

func quoted(s []string) []string {
	out := slices.Clone(s)
	for i := range out {
		out[i] = strconv.Quote(out[i])
	}
	return out
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

// uses collects the names that an expression uses, whole ones: c.goodput, not c.
type uses struct {
	lines map[string]reflect.Value
	at    []string
	err   error
}

func (u *uses) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.MemberNode:
		u.add(n)
	case *ast.IdentifierNode:
		u.add(n)
	case *ast.CallNode:
		if id, ok := n.Callee.(*ast.IdentifierNode); ok && id.Value == "line" && len(n.Arguments) == 1 {
			s, ok := n.Arguments[0].(*ast.StringNode)
			if !ok {
				u.err = errors.New(`line takes the name of a line in quotes: line("` + u.anyLine() + `")`)
			} else if _, ok := u.lines[s.Value]; !ok && u.err == nil {
				u.err = fmt.Errorf("there is no line %q; there are %s", s.Value, strings.Join(slices.Sorted(maps.Keys(u.lines)), " "))
			}
		}
	}
}

func (u *uses) anyLine() string {
	for _, l := range slices.Sorted(maps.Keys(u.lines)) {
		return l
	}
	return ""
}

// add notes a name; children come before what they are part of, and give way to it.
func (u *uses) add(n ast.Node) {
	name := n.String()
	u.at = slices.DeleteFunc(u.at, func(v string) bool {
		rest, ok := strings.CutPrefix(name, v)
		return ok && rest != "" && strings.ContainsAny(rest[:1], ".[(")
	})
	if !slices.Contains(u.at, name) {
		u.at = append(u.at, name)
	}
}

func (u *uses) names() []string {
	var out []string
	for _, v := range u.at {
		if v != "line" && v != "sim" {
			out = append(out, v)
		}
	}
	return out
}
