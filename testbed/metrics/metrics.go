// Package metrics has the names that the assertions of scenarios may use, and computes
// their values from the files of a run: those of the clients, by the metrics of
// internal/assert, and those of the switch.
package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// Reserved are names that no host may have.
var Reserved = []string{"all", "min", "max", "jain", "net", "line", "took", "sim", "true", "false", "nil", "in", "not", "and", "or", "let", "if", "else", "matches", "contains"}

// A client has the metrics of its record and those of its process. error is 1 if it ended
// in error.
var clientNames = func() assert.Names {
	n := maps.Clone(assert.RunNames())
	for _, name := range []string{"error", "exit", "runs"} {
		n[name] = assert.Metric{Name: name}
	}
	return n
}()

// A line and the whole network also have one metric for each decision of the switch.
var (
	lineNames = switchNames("packets", "bytes", "sent_packets", "sent_bytes", "max_waiting")
	netNames  = switchNames("received", "sent")
)

func switchNames(names ...string) assert.Names {
	for w := range fabric.NumWhys {
		names = append(names, w.String())
	}
	n := assert.Names{}
	for _, name := range names {
		n[name] = assert.Metric{Name: name}
	}
	return n
}

func init() { lineNames["rate"] = assert.Metric{Name: "rate", Kind: assert.Bitrate} }

// Names returns the names in a scenario with these clients and lines ("s.to", "spine.0").
func Names(clients, lines []string) assert.Names {
	line := assert.Names{}
	for _, l := range lines {
		line[l] = lineNames
	}
	n := assert.Names{
		"all": clientNames, "min": clientNames, "max": clientNames, "net": netNames, "line": line,
		"jain": assert.Metric{Name: "jain"}, "took": assert.Metric{Name: "took"}, "sim": types.Bool,
	}
	for _, c := range clients {
		n[c] = clientNames
	}
	return n
}

// An Env has the names of a run and their values.
type Env struct {
	names  assert.Names
	values map[string]any
	counts []string // lines of which the switch has counts
}

// Of returns the Env of a run. took is the time in seconds from the zero of the timeline to
// the end of the last client.
func Of(r *result.Result, took float64) *Env {
	var clients []map[string]any
	var names []string
	var runs []record.Run
	e := &Env{values: map[string]any{"took": took, "sim": r.Substrate == "sim"}}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		if h.Role != "client" {
			continue
		}
		if h.Record != nil {
			runs = append(runs, h.Record.Runs...)
		}
		c := ofClient(h)
		e.values[h.Name] = c
		clients, names = append(clients, c), append(names, h.Name)
	}
	all := fold(clients, func(a, b float64) float64 { return a + b })
	for name, share := range assert.Total(runs) {
		if strings.HasSuffix(name, "%") {
			all[name] = share
		}
	}
	e.values["all"], e.values["min"], e.values["max"] = all, fold(clients, math.Min), fold(clients, math.Max)
	e.values["jain"] = jain(clients)
	e.network(r)
	e.names = Names(names, LineNames(&r.Topology))
	return e
}

// network returns the metrics of the switch.
func (e *Env) network(r *result.Result) {
	lines, net := map[string]any{}, filled(netNames, nil)
	for name, rate := range lineRates(&r.Topology) {
		lines[name] = filled(lineNames, nil)
		lines[name].(map[string]any)["rate"] = rate
	}
	if st := r.Switch; st != nil {
		net = filled(netNames, st.Whys)
		net["received"], net["sent"] = float64(st.Received), float64(st.Sent)
		for name, l := range st.Lines {
			v := filled(lineNames, l.Whys)
			v["packets"], v["bytes"] = float64(l.Packets), float64(l.Bytes)
			v["sent_packets"], v["sent_bytes"] = float64(l.SentPkts), float64(l.SentB)
			v["max_waiting"], v["rate"] = float64(l.MaxWait), lineRates(&r.Topology)[name]
			lines[name] = v
			e.counts = append(e.counts, name)
		}
	}
	e.values["net"], e.values["line"] = net, lines
}

// filled returns values of names; those that are not among the counts are 0.
func filled(names assert.Names, counts map[string]uint64) map[string]any {
	v := map[string]any{}
	for name := range names {
		v[name] = float64(counts[name])
	}
	return v
}

// lineRates returns the configured rates of the lines of a switch in bit/s.
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

// LineNames returns the names of the lines of a switch.
func LineNames(cfg *fabric.Config) []string { return slices.Sorted(maps.Keys(lineRates(cfg))) }

// unmeasured returns the metrics of a client without a result.
func unmeasured() map[string]any {
	v := map[string]any{}
	for name, is := range clientNames {
		if _, ok := is.(assert.Metric); ok {
			v[name] = math.NaN()
		}
	}
	v[assert.Reasons] = map[string]float64{}
	return v
}

// ofClient returns the metrics of a client from its result.
func ofClient(h *result.Host) map[string]any {
	v := unmeasured()
	failed := h.Exit != nil && *h.Exit != 0
	if rec := h.Record; rec != nil {
		maps.Copy(v, assert.Total(rec.Runs))
		v["runs"] = float64(len(rec.Runs))
		failed = failed || rec.Error != "" || slices.ContainsFunc(rec.Runs, func(r record.Run) bool { return r.Error != "" })
	}
	if h.Exit != nil {
		v["exit"] = float64(*h.Exit)
	}
	if h.Exit != nil || h.Record != nil {
		v["error"] = 0.0
		if failed {
			v["error"] = 1.0
		}
	}
	return v
}

// fold combines several clients into one, metric by metric, ignoring values that were not
// measured.
func fold(clients []map[string]any, f func(a, b float64) float64) map[string]any {
	out := unmeasured()
	why := out[assert.Reasons].(map[string]float64)
	for _, c := range clients {
		for name, v := range c {
			b, ok := v.(float64)
			if !ok || math.IsNaN(b) {
				continue
			}
			if a := out[name].(float64); !math.IsNaN(a) {
				b = f(a, b)
			}
			out[name] = b
		}
		for reason, n := range c[assert.Reasons].(map[string]float64) {
			if old, ok := why[reason]; ok {
				n = f(old, n)
			}
			why[reason] = n
		}
	}
	return out
}

// jain returns Jain's index of fairness: 1 if all have the same, 1/n if one has all. A
// client that measured nothing counts as 0.
func jain(clients []map[string]any) float64 {
	var sum, squares float64
	for _, c := range clients {
		if g := c["goodput"].(float64); !math.IsNaN(g) {
			sum += g
			squares += g * g
		}
	}
	return sum * sum / (float64(len(clients)) * squares)
}

// Evaluate evaluates an assertion. It returns whether the assertion is true, and the values
// of its names.
func (e *Env) Evaluate(src string) (pass bool, found string, err error) {
	x, err := e.names.Compile(src)
	if err != nil {
		return false, "", err
	}
	return x.Evaluate(e.values)
}

// kept are the metrics of a client that go into a result.
var kept = strings.Fields(`msgs bytes goodput rate lost wrong ok p50_ms p99_ms p999_ms max_ms avg_ms seconds first_ms setup_ms
	rtx spurious rtx_rto rtx_sack rtx_nack rtx_probe dup ooo trimmed ecn tx rx error exit runs`)

// Flat returns values by name for a result, without those that were not measured.
func (e *Env) Flat() map[string]float64 {
	flat := map[string]float64{}
	put := func(name string, v any) {
		if x, ok := v.(float64); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
			flat[name] = x
		}
	}
	fields := func(name string, v map[string]any) {
		for f, x := range v {
			put(name+"."+f, x)
		}
	}
	for name, is := range e.values {
		v, ok := is.(map[string]any)
		switch reasons, client := v[assert.Reasons].(map[string]float64); {
		case client:
			for _, f := range kept {
				put(name+"."+f, v[f])
			}
			for why, n := range reasons {
				put(name+".drops."+why, n)
			}
		case name == "line":
			for _, l := range e.counts {
				fields("line."+l, v[l].(map[string]any))
			}
		case ok:
			fields(name, v)
		default:
			put(name, is)
		}
	}
	return flat
}
