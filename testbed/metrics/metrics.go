// Package metrics evaluates the assertions of scenarios: it makes numbers of the files
// that a run left, checks the names in an assertion before the run, and judges it
// after.
//
// A number that was not measured is NaN. No comparison with NaN holds, so an assertion
// about it fails rather than passes on a zero.
package metrics

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// Host has the numbers of one client, as in c.goodput. With several runs counts are sums, goodput
// and rate means weighted by time, latencies the worst.
type Host struct {
	Msgs    float64 `expr:"msgs"`
	Bytes   float64 `expr:"bytes"`
	Goodput float64 `expr:"goodput"` // bit/s of messages
	Rate    float64 `expr:"rate"`    // messages/s
	Lost    float64 `expr:"lost"`    // messages sent and not received
	Wrong   float64 `expr:"wrong"`   // messages whose data was not right
	OK      float64 `expr:"ok"`      // messages whose data was checked and right
	P50     float64 `expr:"p50_ms"`
	P99     float64 `expr:"p99_ms"`
	P999    float64 `expr:"p999_ms"`
	Max     float64 `expr:"max_ms"`
	Avg     float64 `expr:"avg_ms"`
	Seconds float64 `expr:"seconds"`  // that were measured
	First   float64 `expr:"first_ms"` // first round trip
	Setup   float64 `expr:"setup_ms"`
	// Retransmissions and packets of both ends, where the record has both.
	RTX      float64 `expr:"rtx"`
	RTXRTO   float64 `expr:"rtx_rto"`
	RTXSACK  float64 `expr:"rtx_sack"`
	RTXNack  float64 `expr:"rtx_nack"`
	RTXProbe float64 `expr:"rtx_probe"`
	Dup      float64 `expr:"dup"`
	OOO      float64 `expr:"ooo"`
	Trimmed  float64 `expr:"trimmed"`
	ECN      float64 `expr:"ecn"`
	Tx       float64 `expr:"tx"`
	Rx       float64 `expr:"rx"`
	// Drops are datagrams thrown away by reason; 0 for one that did not occur.
	Drops map[string]float64 `expr:"drops"`
	Error float64            `expr:"error"` // 1: it ended in error
	Exit  float64            `expr:"exit"`  // exit status
	Runs  float64            `expr:"runs"`
}

// The fields that are no sums of anything, and so are NaN until they are measured.
var measured = []string{"Goodput", "Rate", "P50", "P99", "P999", "Max", "Avg", "First", "Setup"}

// newHost is a host of which nothing is known.
func newHost() Host {
	h := Host{Drops: map[string]float64{}}
	v := reflect.ValueOf(&h).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Float64 {
			f.SetFloat(math.NaN())
		}
	}
	return h
}

// ofHost makes the numbers of a client from its result.
func ofHost(r *result.Host) Host {
	h := newHost()
	if r.Exit != nil {
		h.Exit = float64(*r.Exit)
		h.Error = 0
		if *r.Exit != 0 {
			h.Error = 1
		}
	}
	rec := r.Record
	if rec == nil {
		return h
	}
	v := reflect.ValueOf(&h).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if f.Kind() == reflect.Float64 && name != "Exit" && !slices.Contains(measured, name) {
			f.SetFloat(0)
		}
	}
	if rec.Error != "" || h.Exit > 0 {
		h.Error = 1
	}
	var goodput, rate weighted
	for i := range rec.Runs {
		run := &rec.Runs[i]
		h.Runs++
		h.Msgs += float64(run.Msgs)
		h.Bytes += float64(run.Bytes)
		secs := float64(run.DurationNS) / 1e9
		h.Seconds += secs
		if run.Lost != nil {
			h.Lost += float64(*run.Lost)
		}
		if c := run.DataCheck; c != nil {
			h.OK += float64(c.OK)
			h.Wrong += float64(c.Wrong)
		}
		if run.Error != "" {
			h.Error = 1
		}
		goodput.add(run.GoodputBPS, secs)
		rate.add(run.MsgsPerS, secs)
		if l := run.Latency; l != nil {
			worst(&h.P50, float64(l.P50)/1e6)
			worst(&h.P99, float64(l.P99)/1e6)
			worst(&h.P999, float64(l.P999)/1e6)
			worst(&h.Max, float64(l.Max)/1e6)
			worst(&h.Avg, l.Mean/1e6)
		}
		if run.FirstNS > 0 {
			worst(&h.First, float64(run.FirstNS)/1e6)
		}
		if run.SetupNS > 0 {
			worst(&h.Setup, float64(run.SetupNS)/1e6)
		}
		h.count(&run.Transport)
		if run.PeerTransport != nil {
			h.count(run.PeerTransport)
		}
	}
	h.Goodput, h.Rate = goodput.mean(), rate.mean()
	return h
}

func (h *Host) count(c *record.Counters) {
	h.RTX += float64(c.Rtx())
	h.RTXRTO += float64(c.RtxRTO)
	h.RTXSACK += float64(c.RtxSACK)
	h.RTXNack += float64(c.RtxNack)
	h.RTXProbe += float64(c.RtxProbe)
	h.Dup += float64(c.Dup)
	h.OOO += float64(c.OOO)
	h.Trimmed += float64(c.Trimmed)
	h.ECN += float64(c.ECNCE)
	h.Tx += float64(c.TxPkts)
	h.Rx += float64(c.RxPkts)
	for why, n := range c.Drops {
		h.Drops[why] += float64(n)
	}
}

// weighted is a mean of measurements, weighted by the time that each took.
type weighted struct{ sum, secs float64 }

func (w *weighted) add(v *float64, secs float64) {
	if v != nil {
		w.sum += *v * secs
		w.secs += secs
	}
}

func (w *weighted) mean() float64 { return w.sum / w.secs } // NaN of nothing

func worst(to *float64, v float64) {
	if math.IsNaN(*to) || v > *to {
		*to = v
	}
}

// fold makes one Host of several, field by field, without values that were not
// measured.
func fold(hosts []Host, f func(a, b float64) float64) Host {
	out := newHost()
	o := reflect.ValueOf(&out).Elem()
	for _, h := range hosts {
		v := reflect.ValueOf(h)
		for i := range v.NumField() {
			if v.Field(i).Kind() != reflect.Float64 {
				continue
			}
			a, b := o.Field(i).Float(), v.Field(i).Float()
			switch {
			case math.IsNaN(b):
			case math.IsNaN(a):
				o.Field(i).SetFloat(b)
			default:
				o.Field(i).SetFloat(f(a, b))
			}
		}
		for why, n := range h.Drops {
			if old, ok := out.Drops[why]; ok {
				n = f(old, n)
			}
			out.Drops[why] = n
		}
	}
	return out
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all. A
// client that measured nothing got nothing.
func jain(hosts []Host) float64 {
	var sum, squares float64
	for _, h := range hosts {
		if !math.IsNaN(h.Goodput) {
			sum += h.Goodput
			squares += h.Goodput * h.Goodput
		}
	}
	return sum * sum / (float64(len(hosts)) * squares)
}

// whyNames are the names of the switch's decisions.
func whyNames() []string {
	var names []string
	for w := range fabric.NumWhys {
		names = append(names, w.String())
	}
	return names
}

// The numbers of a line and of the whole network, beside one for each decision.
var (
	lineNames = []string{"packets", "bytes", "sent_packets", "sent_bytes", "max_waiting", "rate"}
	netNames  = []string{"received", "sent"}
)

// structOf is a struct of numbers with these names, so that a misspelt one is found when
// the assertion is compiled.
func structOf(names []string) reflect.Type {
	var fields []reflect.StructField
	for _, n := range names {
		fields = append(fields, reflect.StructField{
			Name: "X" + strings.ReplaceAll(n, "-", "_"), Type: reflect.TypeFor[float64](),
			Tag: reflect.StructTag(`expr:"` + n + `"`),
		})
	}
	return reflect.StructOf(fields)
}

var (
	lineType = structOf(append(slices.Clone(lineNames), whyNames()...))
	netType  = structOf(append(slices.Clone(netNames), whyNames()...))
)

// filled is a struct of t with the values by name.
func filled(t reflect.Type, values map[string]float64) reflect.Value {
	v := reflect.New(t).Elem()
	for i := range t.NumField() {
		v.Field(i).SetFloat(values[t.Field(i).Tag.Get("expr")])
	}
	return v
}

// flat puts the numbers of a struct into a map under PREFIX.NAME; NaN is left out.
func flat(to map[string]float64, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		name := prefix + "." + v.Type().Field(i).Tag.Get("expr")
		switch f := v.Field(i); f.Kind() {
		case reflect.Float64:
			if x := f.Float(); !math.IsNaN(x) && !math.IsInf(x, 0) {
				to[name] = x
			}
		case reflect.Map:
			for it := f.MapRange(); it.Next(); {
				to[name+"."+it.Key().String()] = it.Value().Float()
			}
		}
	}
}
