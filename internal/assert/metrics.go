package assert

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A Metric is a measurement that an assertion may name.
type Metric struct {
	Name string
	Kind Kind
	of   func(*record.Run) (float64, bool) // the value, and whether it was measured completely
	// whole returns what a count is a part of; nil if it is no part.
	whole func(*record.Run) float64
	// tests are the tests that measure it. nil means that the method missing decides.
	tests []string
	also  string // other names, separated by blanks
	mean  bool   // of several runs show the mean of the count, not the sum
	aside bool   // for assertions only: a comparison does not show it by default
}

var latency, streams, incast, loads, churns, soaks, colls = []string{"lat", "ping", "load", "rr", "coll", "mesh"}, []string{"bw"}, []string{"incast"}, []string{"load"}, []string{"rr"}, []string{"soak"}, []string{"coll"}

// part returns the function of a metric that reads a part of a run. Runs without the part
// do not measure it.
func part[P, N any, T int64 | float64](of func(*record.Run) *P, sub func(*P) *N, f func(*N) T) func(*record.Run) (float64, bool) {
	return func(r *record.Run) (float64, bool) {
		p := of(r)
		if p == nil {
			return 0, false
		}
		n := sub(p)
		if n == nil {
			return 0, false
		}
		return float64(f(n)), true
	}
}

func same[P any](p *P) *P                      { return p }
func self[T any](p *T) T                       { return *p }
func runLatency(r *record.Run) *record.Latency { return r.Latency }
func runLoad(r *record.Run) *record.Load       { return r.Load }
func runChurn(r *record.Run) *record.Churn     { return r.Churn }
func runIncast(r *record.Run) *record.Incast   { return r.Incast }
func runSoak(r *record.Run) *record.Soak       { return r.Soak }
func runColl(r *record.Run) *record.Coll       { return r.Coll }
func runCheck(r *record.Run) *record.Check     { return r.DataCheck }
func median(l *record.Latency) int64           { return l.P50 }
func round(x *record.Incast) *record.Latency   { return x.Round }
func msgs(r *record.Run) float64               { return float64(r.Msgs) }
func positive(n int64) (float64, bool)         { return float64(n), n > 0 }
func always(n int64) (float64, bool)           { return float64(n), true }
func quantile[T int64 | float64](f func(*record.Latency) T) func(*record.Run) (float64, bool) {
	return part(runLatency, same, f)
}

func opt[T int64 | float64](p *T) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return float64(*p), true
}

// both returns the function of a counter that adds up both ends. After an error the
// counters of the peer may be missing.
func both(f func(*record.Counters) uint64) func(*record.Run) (float64, bool) {
	return func(r *record.Run) (float64, bool) {
		if r.PeerTransport == nil {
			return float64(f(&r.Transport)), r.Error == ""
		}
		return float64(f(&r.Transport) + f(r.PeerTransport)), true
	}
}

// spurious is of both ends together: the packets that one end sent again came twice at the
// other.
func spurious(r *record.Run) (float64, bool) {
	sum := r.Transport
	if p := r.PeerTransport; p != nil {
		sum.RtxRTO, sum.RtxSACK, sum.RtxNack, sum.RtxProbe = sum.RtxRTO+p.RtxRTO, sum.RtxSACK+p.RtxSACK, sum.RtxNack+p.RtxNack, sum.RtxProbe+p.RtxProbe
		sum.Dup += p.Dup
	}
	return float64(sum.Spurious()), r.PeerTransport != nil || r.Error == ""
}

func packets(r *record.Run) float64 {
	n, _ := both(func(c *record.Counters) uint64 { return c.TxPkts })(r)
	return n
}

func offered(r *record.Run) float64 {
	n, _ := part(runLoad, same, func(l *record.Load) int64 { return l.Offered })(r)
	return n
}

func cpu(f func(*record.CPU) int64) func(*record.Run) (float64, bool) {
	return func(r *record.Run) (float64, bool) {
		if r.CPU == nil || r.DurationNS <= 0 {
			return 0, false
		}
		return float64(f(r.CPU)) / float64(r.DurationNS), true
	}
}

// fairness is Jain's index, of senders or of pairs of hosts.
func fairness(r *record.Run) (float64, bool) {
	switch {
	case r.Incast != nil:
		return opt(r.Incast.Jain)
	case r.Mesh != nil:
		return opt(r.Mesh.Jain)
	}
	return 0, false
}

var metrics = []Metric{
	{Name: "min", Kind: Duration, of: quantile(func(l *record.Latency) int64 { return l.Min })},
	{Name: "p50", Kind: Duration, of: quantile(median), also: "median"},
	{Name: "p90", Kind: Duration, of: quantile(func(l *record.Latency) int64 { return l.P90 })},
	{Name: "p99", Kind: Duration, of: quantile(func(l *record.Latency) int64 { return l.P99 })},
	{Name: "p999", Kind: Duration, of: quantile(func(l *record.Latency) int64 { return l.P999 }), also: "p99.9"},
	{Name: "max", Kind: Duration, of: quantile(func(l *record.Latency) int64 { return l.Max })},
	{Name: "avg", Kind: Duration, of: quantile(func(l *record.Latency) float64 { return l.Mean }), also: "mean"},
	{Name: "sd", Kind: Duration, of: quantile(func(l *record.Latency) float64 { return l.StdDev }), also: "stddev"},
	{Name: "setup", Kind: Duration, of: func(r *record.Run) (float64, bool) { return positive(r.SetupNS) }},
	{Name: "first", Kind: Duration, of: func(r *record.Run) (float64, bool) { return positive(r.FirstNS) }},
	{Name: "open", Kind: Duration, tests: churns, of: part(runChurn, func(c *record.Churn) *record.Latency { return c.Open }, median)},
	{Name: "close", Kind: Duration, tests: churns, of: part(runChurn, func(c *record.Churn) *record.Latency { return c.Close }, median)},
	{Name: "tail", Kind: Duration, tests: incast, of: part(runIncast, round, func(l *record.Latency) int64 { return l.P99 })},
	{Name: "tail-max", Kind: Duration, tests: incast, of: part(runIncast, round, func(l *record.Latency) int64 { return l.Max })},
	{Name: "converged", Kind: Duration, tests: incast, of: part(runIncast, func(x *record.Incast) *int64 { return x.ConvergenceNS }, self)},

	{Name: "goodput", Kind: Bitrate, of: func(r *record.Run) (float64, bool) { return opt(r.GoodputBPS) }, also: "bw"},
	{Name: "slowest", Kind: Bitrate, tests: streams, of: part(func(r *record.Run) *record.Slowest { return r.Slowest }, same, func(s *record.Slowest) float64 { return s.GoodputBPS })},
	{Name: "busbw", Kind: Bitrate, tests: colls, of: part(runColl, func(c *record.Coll) *float64 { return c.BusBPS }, self)},
	{Name: "rate", Kind: Rate, of: func(r *record.Run) (float64, bool) { return opt(r.MsgsPerS) }, also: "msgs/s"},
	{Name: "offered", Kind: Rate, tests: loads, of: part(runLoad, same, func(l *record.Load) float64 { return l.OfferedPer })},

	{Name: "msgs", of: func(r *record.Run) (float64, bool) { return always(r.Msgs) }},
	{Name: "loss", of: func(r *record.Run) (float64, bool) { return opt(r.Lost) }, whole: msgs, also: "lost"},
	{Name: "wrong", of: part(runCheck, same, func(c *record.Check) int64 { return c.Wrong }), whole: msgs},
	{Name: "rtx", of: both((*record.Counters).Rtx), whole: packets},
	{Name: "spurious", of: spurious, whole: packets, also: "spur"},
	{Name: "dup", of: both(func(c *record.Counters) uint64 { return c.Dup }), whole: packets},
	{Name: "ooo", of: both(func(c *record.Counters) uint64 { return c.OOO }), whole: packets},
	{Name: "ecn", of: both(func(c *record.Counters) uint64 { return c.ECNCE }), whole: packets},
	{Name: "trim", of: both(func(c *record.Counters) uint64 { return c.Trimmed }), whole: packets, also: "trimmed"},
	{Name: "drops", of: both(dropped), whole: packets},
	{Name: "late", tests: loads, of: part(runLoad, same, func(l *record.Load) int64 { return l.Late }), whole: offered},
	{Name: "unsent", tests: loads, of: part(runLoad, same, func(l *record.Load) int64 { return l.Unsent }), whole: offered},
	{Name: "errors", tests: churns, of: func(r *record.Run) (float64, bool) { return opt(r.Errors) }, whole: func(r *record.Run) float64 { n, _ := opt(r.Errors); return msgs(r) + n }},
	{Name: "jain", tests: append(incast, "alltoall"), of: fairness, mean: true},
	{Name: "rounds", tests: incast, of: part(runIncast, same, func(x *record.Incast) int64 { return x.Rounds })},
	{Name: "leaks", tests: soaks, of: part(runSoak, same, func(s *record.Soak) int64 { return s.Leaking })},
	{Name: "failed", tests: soaks, of: part(runSoak, same, func(s *record.Soak) int64 { return s.Failed })},
	{Name: "tests", tests: soaks, of: part(runSoak, same, func(s *record.Soak) int64 { return s.Episodes })},

	{Name: "cpu", Kind: Share, of: cpu(func(c *record.CPU) int64 { return c.UserNS + c.SysNS })},
	{Name: "cpu-peer", Kind: Share, of: cpu(func(c *record.CPU) int64 { return c.PeerUserNS + c.PeerSysNS })},

	{Name: "bytes", aside: true, of: func(r *record.Run) (float64, bool) { return always(r.Bytes) }},
	{Name: "ok", aside: true, of: part(runCheck, same, func(c *record.Check) int64 { return c.OK }), whole: msgs},
	{Name: "seconds", aside: true, of: func(r *record.Run) (float64, bool) { return float64(r.DurationNS) / 1e9, true }},
	{Name: "rtx_rto", aside: true, of: both(func(c *record.Counters) uint64 { return c.RtxRTO }), whole: packets},
	{Name: "rtx_sack", aside: true, of: both(func(c *record.Counters) uint64 { return c.RtxSACK }), whole: packets},
	{Name: "rtx_nack", aside: true, of: both(func(c *record.Counters) uint64 { return c.RtxNack }), whole: packets},
	{Name: "rtx_probe", aside: true, of: both(func(c *record.Counters) uint64 { return c.RtxProbe }), whole: packets},
	{Name: "tx", aside: true, of: both(func(c *record.Counters) uint64 { return c.TxPkts })},
	{Name: "rx", aside: true, of: both(func(c *record.Counters) uint64 { return c.RxPkts })},
}

func dropped(c *record.Counters) uint64 {
	n := uint64(0)
	for _, d := range c.Drops {
		n += d
	}
	return n
}

// names returns all names of the metric in assertions.
func (f *Metric) names() []string {
	all := append([]string{f.Name}, strings.Fields(f.also)...)
	for i := range all {
		all[i] = canon(all[i])
	}
	return all
}

// Lookup finds a metric by any of its names.
func Lookup(name string) (Metric, bool) {
	f, ok := RunNames()[canon(strings.ToLower(name))].(Metric)
	return f, ok && f.of != nil
}

// Compared returns the names of the metrics that a comparison shows, durations first.
func Compared() []string {
	shown := slices.DeleteFunc(slices.Clone(metrics), func(f Metric) bool { return f.aside })
	slices.SortFunc(shown, func(a, b Metric) int {
		if a.Kind.order() != b.Kind.order() {
			return a.Kind.order() - b.Kind.order()
		}
		return strings.Compare(a.Name, b.Name)
	})
	out := make([]string, len(shown))
	for i, f := range shown {
		out[i] = f.Name
	}
	return out
}

// Raw returns the value, counts as numbers. ok is false if it was not measured completely.
func (f *Metric) Raw(r *record.Run) (v float64, ok bool) { return f.of(r) }

// Value returns the value, but a count that is part of something as a share, so that runs
// of different length can be compared.
func (f *Metric) Value(r *record.Run) (float64, bool) {
	v, ok := f.of(r)
	if !ok || f.whole == nil {
		return v, ok
	}
	w := f.whole(r)
	return share(v, w), w > 0 || v > 0 // 0 of 0 was not measured
}

// share returns v as a share of whole.
func share(v, whole float64) float64 {
	switch {
	case whole > 0:
		return v / whole
	case v > 0:
		return 1
	}
	return v
}

// compared is the kind of Value.
func (f *Metric) compared() Kind {
	if f.whole != nil {
		return Share
	}
	return f.Kind
}

// HigherIsBetter reports whether a higher value is better.
func (f *Metric) HigherIsBetter() bool {
	return f.Kind == Bitrate || f.Kind == Rate || f.Name == "msgs"
}

// Unit is the unit of Value.
func (f *Metric) Unit() string {
	return [...]string{Count: "1", Duration: "ns", Bitrate: "bit/s", Rate: "1/s", Share: "1"}[f.compared()]
}

// Format formats a Value.
func (f *Metric) Format(v float64) string { return f.compared().Format(v) }

// Values returns the values of a run under the names of RunNames. NaN was not measured.
func Values(r *record.Run) map[string]any {
	vars := map[string]any{}
	for i := range metrics {
		f := &metrics[i]
		v, ok := f.of(r)
		w := 0.0
		if f.whole != nil {
			w = f.whole(r)
		}
		if !ok {
			v = math.NaN()
		}
		f.put(vars, v, w)
	}
	vars[Reasons] = drops([]record.Run{*r})
	return vars
}

// Total returns the values of several runs together. Counts are added, incomplete ones too.
// Goodput, rates and shares are means weighted by time. Durations are the longest.
func Total(runs []record.Run) map[string]any {
	vars := map[string]any{}
	for i := range metrics {
		f := &metrics[i]
		sum, secs, whole, worst := 0.0, 0.0, 0.0, math.NaN()
		for k := range runs {
			r := &runs[k]
			v, ok := f.of(r)
			switch {
			case f.Kind == Count && !f.mean:
				sum += v
				if f.whole != nil {
					whole += f.whole(r)
				}
			case ok && f.Kind == Duration && !(v <= worst):
				worst = v
			case ok:
				sum, secs = sum+v*float64(r.DurationNS)/1e9, secs+float64(r.DurationNS)/1e9
			}
		}
		switch {
		case f.Kind == Duration:
			sum = worst
		case f.Kind != Count || f.mean:
			sum /= secs // NaN if no run measured it
		}
		f.put(vars, sum, whole)
	}
	vars[Reasons] = drops(runs)
	return vars
}

// drops returns the dropped datagrams of both ends by reason.
func drops(runs []record.Run) map[string]float64 {
	m := map[string]float64{}
	for i := range runs {
		var sum record.Counters
		sum.Add(&runs[i].Transport)
		if p := runs[i].PeerTransport; p != nil {
			sum.Add(p)
		}
		for why, n := range sum.Drops {
			m[why] += float64(n)
		}
	}
	return m
}

// put sets all names of a metric.
func (f *Metric) put(vars map[string]any, v, whole float64) {
	for _, name := range f.names() {
		vars[name] = v
		if f.Kind == Duration {
			vars[name+inMS] = v / 1e6
		}
		if f.whole != nil {
			vars[name+asPart] = share(v, whole)
		}
	}
}

// A Kind is the dimension of a metric.
type Kind uint8

// The kinds. A Count is a number; written with % it is a share of its whole.
const (
	Count    Kind = iota
	Duration      // nanoseconds
	Bitrate       // bits per second
	Rate          // per second
	Share         // a part of 1, written in %
)

// kinds has for each kind the factor of each unit, based on the units of records (ns,
// bit/s, 1/s, 1), and the way to write a value.
var kinds = [...]struct {
	units   map[string]float64
	example string
}{
	Count:    {map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}, "0 or 0.1%"},
	Duration: {map[string]float64{"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}, "200us"},
	Bitrate: {map[string]float64{
		"": 1, "b/s": 1, "kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12, "bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9,
		"B/s": 8, "kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9,
	}, "10Gb/s or 1.2GB/s"},
	Rate:  {map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "/s": 1, "k/s": 1e3, "K/s": 1e3, "M/s": 1e6, "G/s": 1e9}, "2M/s"},
	Share: {map[string]float64{"": 1, "%": 0.01}, "80%"},
}

// factors has the factors of all units.
var factors = func() map[string]float64 {
	all := map[string]float64{}
	for _, k := range kinds {
		maps.Copy(all, k.units)
	}
	return all
}()

// has reports whether values of the kind may have the unit.
func (k Kind) has(unit string) bool {
	_, ok := kinds[k].units[unit]
	return ok
}

// order sorts kinds: counts come after most measurements with a unit.
func (k Kind) order() int { return slices.Index([]Kind{Duration, Bitrate, Rate, Count, Share}, k) }

// Format formats a value for people.
func (k Kind) Format(v float64) string {
	g := func(x float64) string {
		if x >= 1e4 && x < 1e15 {
			return strconv.FormatFloat(x, 'f', 0, 64)
		}
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	switch {
	case math.IsNaN(v):
		return "not measured"
	case k == Share:
		return g(v*100) + "%"
	case k == Duration:
		return g(v/1e3) + " µs"
	case k == Bitrate:
		return g(v/1e9) + " Gb/s"
	case k == Rate:
		return g(v) + "/s"
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}
