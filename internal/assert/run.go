package assert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// An Assert is an assertion that each run of a record must meet.
type Assert struct{ *Expr }

// Parse reads an assertion such as p99<200us, loss==0, rtx<0.1%.
func Parse(s string) (*Assert, error) {
	e, err := RunNames().Compile(s)
	if err != nil {
		return nil, err
	}
	if e.below {
		return nil, fmt.Errorf("%q: no metric is below 0", s)
	}
	return &Assert{e}, nil
}

// Kind is the kind of the value in the verdict.
func (a *Assert) Kind() Kind {
	if len(a.refs) == 0 {
		return Count
	}
	return a.refs[0].kind
}

// For returns an error if a test does not measure what the assertion needs. checked says
// whether data is verified.
func (a *Assert) For(test string, checked bool) error {
	for _, r := range a.refs {
		if f, ok := Lookup(strings.TrimSuffix(strings.TrimSuffix(r.path[0], asPart), inMS)); ok {
			if why := f.missing(test, checked); why != "" {
				return fmt.Errorf("%q%s", a.text, why)
			}
		}
	}
	return nil
}

// missing tells why a test does not measure the metric; "" if it does.
func (f *Metric) missing(test string, checked bool) string {
	lat := slices.Contains(latency, test)
	switch {
	case f.tests != nil && slices.Contains(f.tests, test):
	case f.tests != nil:
		does := "does"
		if len(f.tests) > 1 {
			does = "do"
		}
		return fmt.Sprintf(": %s measures no %s, %s %s", test, f.Name, strings.Join(f.tests, " and "), does)
	case f.Name == "rate" && lat && test != "lat" && test != "ping", f.Name == "goodput" && (test == "load" || test == "coll" || test == "mesh"):
	case f.Name == "first" && test != "lat" && test != "ping", slices.Contains([]string{"goodput", "rate"}, f.Name) && lat:
		return fmt.Sprintf(": %s measures no %s", test, f.Name)
	case f.Kind == Duration && f.Name != "setup" && f.Name != "first" && !lat && !slices.Contains(streams, test):
		return fmt.Sprintf(": %s measures no latency", test)
	case (f.Name == "wrong" || f.Name == "ok") && !checked:
		return " needs --check"
	}
	return ""
}

// Check evaluates the assertion over all runs. The verdict has the value of the worst run,
// found all values of that run in words. A value that was not measured fails.
func (a *Assert) Check(runs []record.Run) (out record.Verdict, found string) {
	out.Assert, found = a.text, "not measured"
	for i := range runs {
		values := Values(&runs[i])
		pass, text, err := a.Expr.Evaluate(values)
		if err != nil {
			return out, err.Error()
		}
		var v *float64
		if len(a.refs) > 0 {
			if x := a.refs[0].value(values); x == x {
				v = &x
			}
		}
		worse := i == 0 || out.Pass && !pass || out.Pass == pass && v != nil && out.Value != nil && a.worse(*v, *out.Value)
		if worse || v == nil && !pass {
			out.Value, out.Size, out.Pass, found = v, runs[i].Size, pass, text
		}
		if v == nil && !pass {
			break
		}
	}
	return out, found
}

// worse reports whether v is further from meeting a simple comparison than another value.
func (a *Assert) worse(v, than float64) bool {
	switch a.op {
	case "<", "<=":
		return v > than
	case ">", ">=":
		return v < than
	}
	return false
}
