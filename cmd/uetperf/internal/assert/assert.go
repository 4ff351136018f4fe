// Package assert reads and judges the expressions of uetperf's --assert.
package assert

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// kind is the dimension of a metric.
type kind uint8

const (
	duration kind = iota // nanoseconds
	bitrate              // bits per second
	rate                 // per second
	count                // a number, or with % a share of something
	share                // a part of 1, written in %
)

// units of each kind: factors to the base unit. What stands without a unit is
// in the unit "".
var kindUnits = [...]map[string]float64{
	duration: {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9},
	bitrate: {
		"b/s": 1, "kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12, "bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9,
		"B/s": 8, "kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9, "": 1,
	},
	rate:  {"": 1, "/s": 1, "k/s": 1e3, "K/s": 1e3, "M/s": 1e6, "G/s": 1e9, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9},
	count: {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9},
	share: {"%": 0.01, "": 0.01},
}

var kindExample = [...]string{
	duration: "200us", bitrate: "10Gb/s or 1.2GB/s", rate: "2M/s", count: "0 or 0.1%", share: "80%",
}

// A metric is something to assert.
type metric struct {
	kind kind
	of   func(*record.Run) (v float64, ok bool)
	// whole is what a count is a share of.
	whole func(*record.Run) float64
	// tests are those that measure it; nil: see For.
	tests []string
}

func load(f func(*record.Load) int64) metric {
	return metric{kind: count, tests: []string{"load"}, of: func(r *record.Run) (float64, bool) {
		if r.Load == nil {
			return 0, false
		}
		return float64(f(r.Load)), true
	}, whole: func(r *record.Run) float64 {
		if r.Load == nil {
			return 0
		}
		return float64(r.Load.Offered)
	}}
}

// churn is a median.
func churn(f func(*record.Churn) *record.Latency) metric {
	return metric{kind: duration, tests: []string{"rr"}, of: func(r *record.Run) (float64, bool) {
		if r.Churn == nil || f(r.Churn) == nil {
			return 0, false
		}
		return float64(f(r.Churn).P50), true
	}}
}

func incast(f func(*record.Incast) (float64, bool)) func(*record.Run) (float64, bool) {
	return func(r *record.Run) (float64, bool) {
		if r.Incast == nil {
			return 0, false
		}
		return f(r.Incast)
	}
}

func round(f func(*record.Latency) int64) func(*record.Incast) (float64, bool) {
	return func(x *record.Incast) (float64, bool) {
		if x.Round == nil {
			return 0, false
		}
		return float64(f(x.Round)), true
	}
}

func soak(f func(*record.Soak) int64) metric {
	return metric{kind: count, tests: []string{"soak"}, of: func(r *record.Run) (float64, bool) {
		if r.Soak == nil {
			return 0, false
		}
		return float64(f(r.Soak)), true
	}}
}

func latency(f func(*record.Latency) float64) metric {
	return metric{kind: duration, of: func(r *record.Run) (float64, bool) {
		if r.Latency == nil {
			return 0, false
		}
		return f(r.Latency), true
	}}
}

// sum is a counter of both ends.
func sum(f func(*record.Counters) uint64) func(*record.Run) (float64, bool) {
	return func(r *record.Run) (float64, bool) {
		n := f(&r.Transport)
		if r.PeerTransport == nil {
			return float64(n), r.Error == ""
		}
		return float64(n + f(r.PeerTransport)), true
	}
}

func packets(f func(*record.Counters) uint64) metric {
	all := sum(func(c *record.Counters) uint64 { return c.TxPkts })
	return metric{kind: count, of: sum(f), whole: func(r *record.Run) float64 { n, _ := all(r); return n }}
}

func opt[T int64 | float64](p *T) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return float64(*p), true
}

func cpu(f func(*record.CPU) int64) metric {
	return metric{kind: share, of: func(r *record.Run) (float64, bool) {
		if r.CPU == nil || r.DurationNS <= 0 {
			return 0, false
		}
		return float64(f(r.CPU)) / float64(r.DurationNS), true
	}}
}

var metrics = map[string]metric{
	"min":  latency(func(l *record.Latency) float64 { return float64(l.Min) }),
	"p50":  latency(func(l *record.Latency) float64 { return float64(l.P50) }),
	"p90":  latency(func(l *record.Latency) float64 { return float64(l.P90) }),
	"p99":  latency(func(l *record.Latency) float64 { return float64(l.P99) }),
	"p999": latency(func(l *record.Latency) float64 { return float64(l.P999) }),
	"max":  latency(func(l *record.Latency) float64 { return float64(l.Max) }),
	"avg":  latency(func(l *record.Latency) float64 { return l.Mean }),
	"sd":   latency(func(l *record.Latency) float64 { return l.StdDev }),

	"goodput": {kind: bitrate, of: func(r *record.Run) (float64, bool) { return opt(r.GoodputBPS) }},
	"rate":    {kind: rate, of: func(r *record.Run) (float64, bool) { return opt(r.MsgsPerS) }},

	"msgs": {kind: count, of: func(r *record.Run) (float64, bool) { return float64(r.Msgs), true }},
	"loss": {
		kind: count, of: func(r *record.Run) (float64, bool) { return opt(r.Lost) },
		whole: func(r *record.Run) float64 { return float64(r.Msgs) },
	},
	"wrong": {
		kind: count, of: func(r *record.Run) (float64, bool) {
			if r.DataCheck == nil {
				return 0, false
			}
			return float64(r.DataCheck.Wrong), true
		},
		whole: func(r *record.Run) float64 { return float64(r.Msgs) },
	},
	"rtx":  packets((*record.Counters).Rtx),
	"dup":  packets(func(c *record.Counters) uint64 { return c.Dup }),
	"ooo":  packets(func(c *record.Counters) uint64 { return c.OOO }),
	"ecn":  packets(func(c *record.Counters) uint64 { return c.ECNCE }),
	"trim": packets(func(c *record.Counters) uint64 { return c.Trimmed }),
	"drops": packets(func(c *record.Counters) uint64 {
		n := uint64(0)
		for _, d := range c.Drops {
			n += d
		}
		return n
	}),
	"offered": {kind: rate, tests: []string{"load"}, of: func(r *record.Run) (float64, bool) {
		if r.Load == nil {
			return 0, false
		}
		return r.Load.OfferedPer, true
	}},
	"late":      load(func(l *record.Load) int64 { return l.Late }),
	"unsent":    load(func(l *record.Load) int64 { return l.Unsent }),
	"errors":    {kind: count, tests: []string{"rr"}, of: func(r *record.Run) (float64, bool) { return opt(r.Errors) }, whole: func(r *record.Run) float64 { n, _ := opt(r.Errors); return float64(r.Msgs) + n }},
	"open":      churn(func(c *record.Churn) *record.Latency { return c.Open }),
	"close":     churn(func(c *record.Churn) *record.Latency { return c.Close }),
	"jain":      {kind: count, tests: []string{"incast"}, of: incast(func(x *record.Incast) (float64, bool) { return opt(x.Jain) })},
	"rounds":    {kind: count, tests: []string{"incast"}, of: incast(func(x *record.Incast) (float64, bool) { return float64(x.Rounds), true })},
	"tail":      {kind: duration, tests: []string{"incast"}, of: incast(round(func(l *record.Latency) int64 { return l.P99 }))},
	"tail-max":  {kind: duration, tests: []string{"incast"}, of: incast(round(func(l *record.Latency) int64 { return l.Max }))},
	"converged": {kind: duration, tests: []string{"incast"}, of: incast(func(x *record.Incast) (float64, bool) { return opt(x.ConvergenceNS) })},
	"leaks":     soak(func(x *record.Soak) int64 { return x.Leaking }),
	"failed":    soak(func(x *record.Soak) int64 { return x.Failed }),
	"tests":     soak(func(x *record.Soak) int64 { return x.Episodes }),

	"cpu":      cpu(func(c *record.CPU) int64 { return c.UserNS + c.SysNS }),
	"cpu-peer": cpu(func(c *record.CPU) int64 { return c.PeerUserNS + c.PeerSysNS }),
	"setup":    {kind: duration, of: func(r *record.Run) (float64, bool) { return float64(r.SetupNS), r.SetupNS > 0 }},
	"first":    {kind: duration, of: func(r *record.Run) (float64, bool) { return float64(r.FirstNS), r.FirstNS > 0 }},
}

// other names of metrics.
var alias = map[string]string{"p99.9": "p999", "mean": "avg", "stddev": "sd", "bw": "goodput", "msgs/s": "rate", "trimmed": "trim", "median": "p50"}

// Names of metrics, those of latency first.
func Names() []string {
	var out []string
	for n := range metrics {
		out = append(out, n)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := metrics[out[i]].kind, metrics[out[j]].kind
		return a < b || a == b && out[i] < out[j]
	})
	return out
}

// An Assert is one expression.
type Assert struct {
	text  string
	name  string
	m     metric
	op    string
	bound float64
	part  bool // bound is a share of the metric's whole
}

var form = regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9.\-]*(?:/s)?)\s*(<=|>=|==|!=|=|<|>)\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*$`)

// Parse reads an expression METRIC OP VALUE[UNIT], such as p99<200us, loss==0,
// rtx<0.1%.
func Parse(s string) (*Assert, error) {
	f := form.FindStringSubmatch(s)
	if f == nil {
		return nil, fmt.Errorf("assertion %q is not METRIC OP VALUE, such as p99<200us, loss==0 or rtx<0.1%%", s)
	}
	name := strings.ToLower(f[1])
	if a, ok := alias[name]; ok {
		name = a
	}
	m, ok := metrics[name]
	if !ok {
		return nil, fmt.Errorf("assertion %q: no metric %q; there are: %s", s, f[1], strings.Join(Names(), " "))
	}
	v, err := strconv.ParseFloat(f[3], 64)
	if err != nil {
		return nil, fmt.Errorf("assertion %q: %q is not a number", s, f[3])
	}
	a := &Assert{text: strings.TrimSpace(s), name: name, m: m, op: f[2]}
	if a.op == "=" {
		a.op = "=="
	}
	if f[4] == "%" && m.kind == count && m.whole != nil {
		a.part, a.bound = true, v/100
		return a, nil
	}
	u, ok := kindUnits[m.kind][f[4]]
	if !ok {
		return nil, fmt.Errorf("assertion %q: write the value of %s like %s", s, name, kindExample[m.kind])
	}
	a.bound = v * u
	return a, nil
}

// For says whether the assertion can be measured by a test: an error names what
// is missing. checked says that data is verified.
func (a *Assert) For(test string, checked bool) error {
	lat := slices.Contains([]string{"lat", "ping", "load", "rr"}, test)
	switch {
	case a.m.tests != nil:
		if !slices.Contains(a.m.tests, test) {
			return fmt.Errorf("assertion %q: %s measures no %s, %s does", a.text, test, a.name, strings.Join(a.m.tests, ", "))
		}
	case a.name == "rate" && lat && test != "lat" && test != "ping", a.name == "goodput" && test == "load":
	case a.name == "first" && test != "lat" && test != "ping":
		return fmt.Errorf("assertion %q: %s measures no %s", a.text, test, a.name)
	case a.m.kind == duration && a.name != "setup" && !lat:
		return fmt.Errorf("assertion %q: %s measures no latency", a.text, test)
	case slices.Contains([]string{"goodput", "rate"}, a.name) && lat:
		return fmt.Errorf("assertion %q: %s measures no %s", a.text, test, a.name)
	case a.name == "wrong" && !checked:
		return fmt.Errorf("assertion %q needs --check", a.text)
	}
	return nil
}

// Judge judges all runs: the verdict has the value of the one that comes off
// worst. What was not measured fails.
func (a *Assert) Judge(runs []record.Run) record.Verdict {
	out := record.Verdict{Assert: a.text}
	for i := range runs {
		v, ok := a.m.of(&runs[i])
		if a.part && ok {
			if w := a.m.whole(&runs[i]); w > 0 {
				v /= w
			} else if v > 0 {
				v = 1
			}
		}
		if !ok {
			out.Value, out.Size, out.Pass = nil, runs[i].Size, false
			break
		}
		pass := a.holds(v)
		if i == 0 || out.Pass && !pass || out.Pass == pass && a.worse(v, *out.Value) {
			out.Value, out.Size, out.Pass = &v, runs[i].Size, pass
		}
	}
	return out
}

func (a *Assert) holds(v float64) bool {
	switch a.op {
	case "<":
		return v < a.bound
	case "<=":
		return v <= a.bound
	case ">":
		return v > a.bound
	case ">=":
		return v >= a.bound
	case "!=":
		return v != a.bound
	}
	return v == a.bound
}

func (a *Assert) worse(v, than float64) bool {
	switch a.op {
	case "<", "<=":
		return v > than
	case ">", ">=":
		return v < than
	}
	return false
}

// Measured writes what a verdict found for people.
func (a *Assert) Measured(v *record.Verdict) string {
	if v.Value == nil {
		return "not measured"
	}
	return "measured " + a.Format(*v.Value)
}

// Format writes a value of the assertion's metric for people.
func (a *Assert) Format(v float64) string {
	g := func(x float64) string {
		if x >= 1e4 && x < 1e15 {
			return strconv.FormatFloat(x, 'f', 0, 64)
		}
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	switch {
	case a.name == "jain":
		return g(v)
	case a.part || a.m.kind == share:
		return g(v*100) + "%"
	case a.m.kind == duration:
		return g(v/1e3) + " µs"
	case a.m.kind == bitrate:
		return g(v/1e9) + " Gb/s"
	case a.m.kind == rate:
		return g(v) + "/s"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
