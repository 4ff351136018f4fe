// Package report shows records of uetperf on a page: tables, distributions, runs over time,
// the environment. The reports of uetperf and of the testbed use it and so look the same.
//
// A value that a record lacks is shown as not measured. A zero is shown only if the record
// has a zero.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// A Rec is a record to show.
type Rec struct {
	*record.Record
	// Name tells the record from others, such as the name of its file.
	Name string
	// Raw has the bytes of the record.
	Raw  []byte
	tree map[string]any // Raw decoded; absent keys stay absent
}

// Parse parses a record. Its errors are those of record.Parse.
func Parse(name string, raw []byte) (*Rec, error) {
	rec, err := record.Parse(raw)
	if err != nil {
		return nil, err
	}
	return &Rec{Record: rec, Name: name, Raw: raw, tree: treeOf(raw)}, nil
}

// From makes a Rec from a record that does not come from a file.
func From(name string, rec *record.Record) *Rec {
	var b bytes.Buffer
	if err := rec.Write(&b); err != nil {
		b.Reset()
		b.WriteString("{}")
	}
	return &Rec{Record: rec, Name: name, Raw: b.Bytes(), tree: treeOf(b.Bytes())}
}

func treeOf(raw []byte) map[string]any {
	var t map[string]any
	_ = json.Unmarshal(bytes.TrimPrefix(raw, []byte("\ufeff")), &t) // record.Parse has accepted it already
	return t
}

// has reports whether the record has a value at the path of keys and indices.
func (r *Rec) has(path ...any) bool {
	var at any = r.tree
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := at.(map[string]any)
			if !ok {
				return false
			}
			if at, ok = m[p]; !ok {
				return false
			}
		case int:
			l, ok := at.([]any)
			if !ok || p >= len(l) {
				return false
			}
			at = l[p]
		}
	}
	return at != nil
}

// hasRun is has for a path below run i.
func (r *Rec) hasRun(i int, path ...any) bool {
	return r.has(append([]any{"runs", i}, path...)...)
}

// Test names the test of the record, such as "lat tsend".
func (r *Rec) Test() string {
	c := &r.Config
	switch {
	case c.Test == "" && c.Op == "":
		return "self-check"
	case c.Test == "":
		return "self-check, " + c.Op
	case c.Op == "":
		return c.Test
	}
	return c.Test + " " + c.Op
}

// RunName tells run i from the other runs of the record.
func (r *Rec) RunName(i int) string {
	s := r.kindName(i)
	if n := r.Config.Repeat; n > 1 {
		s += fmt.Sprintf(", %d of %d", r.turn(i)+1, n)
	}
	return s
}

// kindName is the name of run i and of the other rounds of it.
func (r *Rec) kindName(i int) string {
	run := &r.Runs[i]
	s := run.Name
	add := func(t string) {
		if t != "" && s != "" {
			s += ", "
		}
		s += t
	}
	if run.Name == "" {
		add(run.Op)
	}
	if r.hasRun(i, "size") {
		if run.Size == 1 {
			add("1 byte")
		} else {
			add(units.Size(run.Size))
		}
	}
	if s == "" {
		return "run " + page.Int(i+1)
	}
	return s
}

// turn is how many runs before run i are of the same kind: those of a repeated test.
func (r *Rec) turn(i int) (n int) {
	for k := range i {
		if x, y := &r.Runs[k], &r.Runs[i]; x.Name == y.Name && x.Op == y.Op && x.Size == y.Size {
			n++
		}
	}
	return n
}

// latencySize is the size of the messages whose latency run i has. That of the run of a mesh is of
// its bandwidth.
func (r *Rec) latencySize(i int) int64 {
	if r.Runs[i].Mesh != nil {
		return record.MeshLatencySize
	}
	return r.Runs[i].Size
}

// isMesh reports whether the test was between servers, from a host that measured nothing.
func (r *Rec) isMesh() bool {
	return slices.ContainsFunc(r.Runs, func(x record.Run) bool { return x.Mesh != nil })
}

// A way is how the times of a run were measured.
type way int

const (
	oneWay way = iota
	roundTrips
	accesses
	calls
)

var ways = []way{oneWay, roundTrips, accesses, calls}

// label names the times for the axis of a figure.
func (w way) label() string {
	return [...]string{"latency, one way (half a round trip)", "latency of round trips", "latency, " + record.ToCompletion, "time of a call at a rank"}[w]
}

// note says it in a sentence.
func (w way) note() string {
	return [...]string{
		"Latency is one way, half of a round trip.", "Latency is that of round trips.",
		"Latency is that of single operations, " + record.ToCompletion + ", the whole way there and back.", "Latency is that of each call at each rank.",
	}[w]
}

// way is how the times of run i were measured.
func (r *Rec) way(i int) way {
	x := &r.Runs[i]
	switch {
	case x.Coll != nil:
		return calls
	case r.Trip(x) != "whole":
		return oneWay
	case r.Completes(x):
		return accesses
	}
	return roundTrips
}

// Badge returns the verdict on the record.
func (r *Rec) Badge() page.Cell {
	switch {
	case !r.has("ok"):
		return page.Mark("no verdict", page.Fair)
	case r.OK:
		return page.Mark("ok", page.Good)
	case r.Error != "" && len(r.Runs) == 0:
		return page.Mark("error", page.Bad)
	case r.Error != "":
		return page.Mark("ended early", page.Bad)
	}
	return page.Mark("failed", page.Bad)
}

// measuredBy lists for each metric of --assert the keys of a record from which it can be
// computed. One of them suffices.
var measuredBy = map[string][][]any{
	"min": {{"latency_ns", "min"}}, "p50": {{"latency_ns", "p50"}}, "p90": {{"latency_ns", "p90"}}, "p99": {{"latency_ns", "p99"}},
	"p999": {{"latency_ns", "p999"}}, "max": {{"latency_ns", "max"}}, "avg": {{"latency_ns", "mean"}}, "sd": {{"latency_ns", "stddev"}},
	"msgs": {{"msgs"}}, "tx": {{"transport", "tx_pkts"}, {"peer_transport", "tx_pkts"}},
	"rtx": {
		{"transport", "rtx_rto"}, {"transport", "rtx_sack"}, {"transport", "rtx_nack"}, {"transport", "rtx_probe"},
		{"peer_transport", "rtx_rto"}, {"peer_transport", "rtx_sack"}, {"peer_transport", "rtx_nack"}, {"peer_transport", "rtx_probe"},
	},
	"dup": {{"transport", "dup"}, {"peer_transport", "dup"}},
	// What one end sent again came twice at the other.
	"spurious": {{"transport", "dup"}, {"peer_transport", "dup"}},
	"ooo":      {{"transport", "ooo"}, {"peer_transport", "ooo"}},
	"ecn":      {{"transport", "ecn_ce"}, {"peer_transport", "ecn_ce"}},
	"trim":     {{"transport", "trimmed"}, {"peer_transport", "trimmed"}},
	"drops":    {{"transport", "drops"}, {"peer_transport", "drops"}},
	"cpu":      {{"cpu", "user_ns"}}, "cpu-peer": {{"cpu", "peer_user_ns"}, {"cpu", "peer_sys_ns"}},
}

// value returns a metric of run i by its name in assertions, counts as numbers. nil means
// that it was not measured.
func (r *Rec) value(i int, name string) *float64 {
	f, _ := assert.Lookup(name)
	v, ok := f.Raw(&r.Runs[i])
	if keys := measuredBy[name]; keys != nil && keys[0][0] == "transport" && name != "spurious" {
		ok = true // show a count even if only one end reported it
	}
	if !ok || !r.Measured(i, name) {
		return nil
	}
	return &v
}

// resent returns, of the packets that run i sent again, how many the network had lost and how
// many the other end had already; nil if that was not measured.
func (r *Rec) resent(i int) (lost, spurious *float64) {
	all, spurious := r.value(i, "rtx"), r.value(i, "spurious")
	if all == nil || spurious == nil {
		return nil, nil
	}
	n := *all - *spurious
	return &n, spurious
}

// Measured reports whether run i has what the metric is computed from.
func (r *Rec) Measured(i int, metric string) bool {
	paths, ok := measuredBy[metric]
	if !ok {
		return true // the value itself tells whether it was measured
	}
	for _, p := range paths {
		if r.hasRun(i, p...) {
			return true
		}
	}
	return false
}
