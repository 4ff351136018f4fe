// Package compare compares records of uetperf: what changed, and whether the change exceeds
// the noise.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/report"
)

// Schema names the JSON form of a Result.
const Schema = "uetperf-compare/1"

// A Result is a comparison. Values are in the unit of their row.
type Result struct {
	Schema string   `json:"schema"`
	Base   []string `json:"base"` // file names
	New    []string `json:"new"`
	// Differs lists the settings and hosts that are not the same on both sides.
	Differs []Difference `json:"differs"`
	Rows    []Row        `json:"rows"`
	// Unmatched lists the runs that only one side has.
	Unmatched []Unmatched `json:"unmatched"`
	// Broken lists the new records that ended early or had wrong data.
	Broken []string    `json:"broken"`
	FailOn []Threshold `json:"fail_on"`
	OK     bool        `json:"ok"`
}

// A Difference is a setting or host that is not the same on both sides.
type Difference struct {
	What string `json:"what"`
	Base string `json:"base"`
	New  string `json:"new"`
}

// A Key is what two runs must have in common to be compared.
type Key struct {
	Test string `json:"test"`
	Op   string `json:"op"`
	Name string `json:"name,omitempty"` // of a step of the self-check
	Size int64  `json:"size"`
	// Setting has the settings that differ within a side, as name=value.
	Setting string `json:"setting,omitempty"`
}

// A Row compares one metric of one kind of run.
type Row struct {
	Key
	Metric string         `json:"metric"`
	Unit   string         `json:"unit"`
	Base   *assert.Spread `json:"base,omitempty"` // absent if not measured
	New    *assert.Spread `json:"new,omitempty"`
	// Change is the change of the median as a share of the base; absent if it cannot be
	// computed.
	Change *float64 `json:"change,omitempty"`
	Better *bool    `json:"better,omitempty"` // absent if nothing changed
	// WithinSpread says that the ranges overlap, so that the difference may be noise. It is
	// absent if both sides have one run, because the noise is then unknown.
	WithinSpread *bool `json:"within_spread,omitempty"`

	metric assert.Metric
}

// An Unmatched is a run that only one side has.
type Unmatched struct {
	Side string `json:"side"` // "base" or "new"
	Key
}

// A Threshold is the result of one --fail-on.
type Threshold struct {
	Expr string `json:"expr"`
	Pass bool   `json:"pass"`
	// Why describes the runs that fail it.
	Why []string `json:"why"`
	// NotMeasured lists the runs of both sides that it says nothing of, because the base has not
	// measured the metric in them.
	NotMeasured []string `json:"not_measured,omitempty"`
}

// usual are the metrics that are shown by default.
var usual = []string{"p50", "p99", "p999", "goodput", "slowest", "rate", "rtx", "spurious", "loss", "wrong"}

// Records compares two sides. It fails if they have nothing to compare.
func Records(base, now []*report.Rec, failOn []*assert.Change, all bool) (*Result, error) {
	r := &Result{Schema: Schema, Base: names(base), New: names(now), Differs: []Difference{}, Rows: []Row{}, Unmatched: []Unmatched{}, Broken: []string{}, FailOn: []Threshold{}, OK: true}
	split := r.settings(base, now)
	b, n := group(base, split), group(now, split)
	show := slices.Clone(usual)
	if all {
		show = assert.Compared()
	}
	for _, c := range failOn {
		if !slices.Contains(show, c.Name) {
			show = append(show, c.Name)
		}
	}
	var both []Key
	for _, k := range b.order {
		if _, ok := n.runs[k]; !ok {
			r.Unmatched = append(r.Unmatched, Unmatched{"base", k})
			continue
		}
		both = append(both, k)
		for _, name := range show {
			if m, ok := assert.Lookup(name); ok {
				if row, ok := compare(k, m, b.runs[k], n.runs[k]); ok && (all || !row.quiet() || slices.ContainsFunc(failOn, func(c *assert.Change) bool { return c.Name == name })) {
					r.Rows = append(r.Rows, row)
				}
			}
		}
	}
	for _, k := range n.order {
		if _, ok := b.runs[k]; !ok {
			r.Unmatched = append(r.Unmatched, Unmatched{"new", k})
		}
	}
	if len(r.Rows) == 0 {
		switch {
		case len(b.order) == 0:
			return nil, fmt.Errorf("there is no run in %s", strings.Join(r.Base, ", "))
		case len(n.order) == 0:
			return nil, fmt.Errorf("there is no run in %s", strings.Join(r.New, ", "))
		}
		return nil, fmt.Errorf("no run matches: base has %s, new has %s; compare records of the same test, operation and size", some(b.order), some(n.order))
	}
	for _, rec := range now {
		if why := broken(rec); why != "" && !slices.ContainsFunc(base, func(r *report.Rec) bool { return broken(r) != "" }) {
			r.Broken, r.OK = append(r.Broken, rec.Name+": "+why), false
		}
	}
	for _, c := range failOn {
		j, err := check(c, r.Rows, both)
		if err != nil {
			return nil, err
		}
		r.FailOn = append(r.FailOn, j)
		r.OK = r.OK && j.Pass
	}
	return r, nil
}

func names(recs []*report.Rec) []string {
	out := make([]string, len(recs))
	for i, r := range recs {
		out[i] = r.Name
	}
	return out
}

// broken tells what is wrong with a record; "" if nothing is.
func broken(r *report.Rec) string {
	if r.Error != "" {
		return "ended early: " + r.Error
	}
	wrong := int64(0)
	for i := range r.Runs {
		if d := r.Runs[i].DataCheck; d != nil {
			wrong += d.Wrong
		}
	}
	if wrong > 0 {
		return fmt.Sprintf("%d messages had wrong data", wrong)
	}
	return ""
}

func some(ks []Key) string {
	var out []string
	for _, k := range ks {
		out = append(out, k.String())
	}
	return few(out)
}

// few names the first three, and how many more there are.
func few(all []string) string {
	if len(all) <= 3 {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:3], ", ") + fmt.Sprintf(" and %d more", len(all)-3)
}

// String describes a kind of run.
func (k Key) String() string {
	var out []string
	for _, s := range []string{k.Test, k.Name, k.Op, strconv.FormatInt(k.Size, 10) + " B", k.Setting} {
		if s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// settings notes the settings that differ between the sides. It returns those that differ
// within a side, which become part of the Key.
func (r *Result) settings(base, now []*report.Rec) (split []string) {
	of := func(recs []*report.Rec, key string) []string {
		var out []string
		for _, rec := range recs {
			if v := settingsOf(rec)[key]; !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
		slices.Sort(out)
		return out
	}
	for _, key := range settingKeys {
		b, n := of(base, key), of(now, key)
		isHost := !strings.HasPrefix(key, "config.")
		if key == "config.repeat" {
			continue // how often is not what was measured
		}
		if !isHost && (len(b) > 1 || len(n) > 1) && key != "config.test" && key != "config.op" {
			split = append(split, key)
			continue
		}
		if !slices.Equal(b, n) && key != "config.test" && key != "config.op" {
			r.Differs = append(r.Differs, Difference{strings.TrimPrefix(key, "config."), strings.Join(b, ", "), strings.Join(n, ", ")})
		}
	}
	return split
}

// settingKeys are the names of the settings in the order of the record, then those of hosts
// and path.
var settingKeys = func() []string {
	var out []string
	t := reflect.TypeFor[record.Config]()
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, "config."+key)
	}
	return append(out, "uetperf", "client", "server", "path MTU", "GSO", "GRO", "receive buffer")
}()

// settingsOf returns the settings, hosts and path of a record by the names in settingKeys.
func settingsOf(r *report.Rec) map[string]string {
	out := map[string]string{}
	v := reflect.ValueOf(r.Config)
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		out["config."+key] = fmt.Sprint(v.Field(i).Interface())
	}
	host := func(h *record.Host) string {
		if h == nil {
			return "not known"
		}
		return fmt.Sprintf("%s, %s %s, %d CPUs", h.Name, h.OS, h.Kernel, h.CPUs)
	}
	commit := r.Tool.Commit
	out["uetperf"] = strings.TrimSpace(r.Tool.Version + " " + commit[:min(12, len(commit))] + " " + r.Tool.Go)
	out["client"], out["server"] = host(&r.Host), host(r.Peer)
	if p := r.Path; p != nil {
		on := map[bool]string{true: "on", false: "off"}
		out["path MTU"], out["GSO"], out["GRO"], out["receive buffer"] = strconv.Itoa(p.MTU), on[p.GSO.On], on[p.GRO.On], strconv.Itoa(p.Rcvbuf)
	}
	return out
}

// A run is a run of a record, by index.
type run struct {
	rec *report.Rec
	i   int
}

type groups struct {
	order []Key
	runs  map[Key][]run
}

// group sorts the runs of records by Key. split are the settings that belong to the Key.
func group(recs []*report.Rec, split []string) groups {
	g := groups{runs: map[Key][]run{}}
	for _, rec := range recs {
		var set []string
		of := settingsOf(rec)
		for _, key := range split {
			set = append(set, strings.TrimPrefix(key, "config.")+"="+of[key])
		}
		for i := range rec.Runs {
			x := &rec.Runs[i]
			k := Key{Test: cmp.Or(rec.Config.Test, "self-check"), Op: cmp.Or(x.Op, rec.Config.Op), Name: x.Name, Size: x.Size, Setting: strings.Join(set, " ")}
			if g.runs[k] == nil {
				g.order = append(g.order, k)
			}
			g.runs[k] = append(g.runs[k], run{rec, i})
		}
	}
	return g
}

// compare makes a row. It returns false if neither side measured the metric.
func compare(k Key, m assert.Metric, b, n []run) (Row, bool) {
	row := Row{Key: k, Metric: m.Name, Unit: m.Unit(), metric: m, Base: spread(m, b), New: spread(m, n)}
	if row.Base == nil && row.New == nil {
		return row, false
	}
	if row.Base == nil || row.New == nil {
		return row, true
	}
	if d := assert.Relative(row.Base.Median, row.New.Median); !math.IsNaN(d) && !math.IsInf(d, 0) {
		row.Change = &d
	}
	if row.Base.Median != row.New.Median {
		better := row.New.Median > row.Base.Median == m.HigherIsBetter()
		row.Better = &better
	}
	if row.Base.Runs > 1 || row.New.Runs > 1 {
		within := row.Base.Min <= row.New.Max && row.New.Min <= row.Base.Max
		row.WithinSpread = &within
	}
	return row, true
}

// quiet reports whether the row only says that nothing went wrong.
func (r *Row) quiet() bool {
	zero := func(s *assert.Spread) bool { return s == nil || s.Min == 0 && s.Max == 0 }
	return !r.metric.HigherIsBetter() && zero(r.Base) && zero(r.New)
}

// spread summarizes a metric over the runs that measured it, nil if none did.
func spread(m assert.Metric, rs []run) *assert.Spread {
	var v []float64
	for _, x := range rs {
		if y, ok := m.Value(&x.rec.Runs[x.i]); ok && x.rec.Measured(x.i, m.Name) && !math.IsNaN(y) && !math.IsInf(y, 0) {
			v = append(v, y)
		}
	}
	return assert.SpreadOf(v)
}

// check compares the medians with a threshold. A metric that only the base measured fails
// it. It is an error if the base measured it in none of the runs that both sides have.
func check(c *assert.Change, rows []Row, both []Key) (Threshold, error) {
	j := Threshold{Expr: c.Text, Pass: true, Why: []string{}}
	judged := map[Key]bool{}
	for _, r := range rows {
		if r.Metric != c.Name || r.Base == nil {
			continue
		}
		judged[r.Key] = true
		switch {
		case r.New == nil:
			j.Why = append(j.Why, r.Key.String()+": not measured any more")
		case c.Exceeded(r.Base.Median, r.New.Median):
			why := fmt.Sprintf("%v: %s, from %s to %s", r.Key, r.ChangeText(), c.Format(r.Base.Median), c.Format(r.New.Median))
			if r.WithinSpread != nil && *r.WithinSpread {
				why += " (within the spread)"
			}
			j.Why = append(j.Why, why)
		}
	}
	if len(judged) == 0 {
		return j, fmt.Errorf("--fail-on %q: no run that both sides have measures %s", c.Text, c.Name)
	}
	for _, k := range both {
		if !judged[k] {
			j.NotMeasured = append(j.NotMeasured, k.String())
		}
	}
	j.Pass = len(j.Why) == 0
	return j, nil
}

// ChangeText formats the change of the median.
func (r *Row) ChangeText() string {
	switch {
	case r.Base == nil || r.New == nil:
		return "not measured"
	case r.Base.Median == r.New.Median:
		return "0 %"
	case r.Change == nil:
		return "from 0"
	}
	if *r.Change >= 10 {
		return fmt.Sprintf("× %.1f", 1+*r.Change)
	}
	return fmt.Sprintf("%+.1f %%", 100**r.Change)
}
