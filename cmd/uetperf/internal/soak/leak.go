package soak

import (
	"math"
	"slices"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

const (
	// warmPart of the time is left out, because pools fill and tables grow to their size.
	warmPart = 0.25
	// LeastSamples is how many samples it takes to call something a leak.
	LeastSamples = 8
	// spans are the equal parts of the time in each of which a leak grows, and part is how much of its
	// share of the growth it must have in each. The pool of receive buffers and tables get their size when
	// the first test needs it, and grow by steps, which a line through a short soak takes for a slope;
	// buffers of a test that is still ending are a peak.
	spans, part = 4, 1. / 3
	// sure is how many standard errors a slope must exceed to count.
	sure = 3
	// maxLooks bounds the samples. When it is reached, every second one is dropped.
	maxLooks = 2000
)

// bounds are the limits of growth over the time that is checked: abs, or part of the mean
// if that is more. A smaller leak disappears in the noise of what the system reports as a
// process's memory; a longer soak finds it.
var bounds = []struct {
	what string
	of   func(*perf.Resources) int64
	abs  float64
	part float64
}{
	{"heap", func(r *perf.Resources) int64 { return r.Heap }, 4 << 20, 0.1},
	{"rss", func(r *perf.Resources) int64 { return r.RSS }, 32 << 20, 0.2},
	{"goroutines", func(r *perf.Resources) int64 { return r.Goroutines }, 8, 0.1},
	{"fds", func(r *perf.Resources) int64 { return r.FDs }, 4, 0.1},
}

// A usage holds the resources of one end over time.
type usage struct {
	at   []time.Duration
	what []perf.Resources
	skip int // samples that were dropped since the last one that was kept
	keep int // one of so many samples is kept
}

// add adds a sample, unless it is one of those to drop.
func (h *usage) add(at time.Duration, r perf.Resources) {
	if h.skip++; h.skip < max(1, h.keep) {
		return
	}
	h.skip = 0
	h.at, h.what = append(h.at, at), append(h.what, r)
	if len(h.at) < maxLooks {
		return
	}
	for i := range len(h.at) / 2 {
		h.at[i], h.what[i] = h.at[2*i], h.what[2*i]
	}
	h.at, h.what = h.at[:maxLooks/2], h.what[:maxLooks/2]
	h.keep = 2 * max(1, h.keep)
}

// last is the newest sample, zero if there is none.
func (h *usage) last() perf.Resources {
	if len(h.what) == 0 {
		return perf.Resources{}
	}
	return h.what[len(h.what)-1]
}

// leaks fits a line to each resource and reports which ones grow.
func (h *usage) leaks(end string) []record.Leak {
	var out []record.Leak
	if len(h.at) == 0 {
		return nil
	}
	from := time.Duration(float64(h.at[len(h.at)-1]) * warmPart)
	for _, b := range bounds {
		var x, y []float64
		for i := range h.at {
			if v := b.of(&h.what[i]); h.at[i] >= from && v >= 0 {
				x, y = append(x, h.at[i].Hours()), append(y, float64(v))
			}
		}
		if len(x) == 0 {
			continue
		}
		l := record.Leak{End: end, What: b.what, Samples: len(x)}
		var wobble float64
		l.Mean, l.Slope, wobble = fit(x, y)
		l.Growth = l.Slope * (x[len(x)-1] - x[0])
		l.Bound = max(b.abs, b.part*l.Mean)
		l.Leaks = len(x) >= LeastSamples && l.Growth > l.Bound && l.Slope > sure*wobble && steady(y, l.Growth)
		out = append(out, l)
	}
	return out
}

// steady reports whether values rise from each span of time to the next, by the middle value of each,
// so that none of them makes the growth alone.
func steady(y []float64, growth float64) bool {
	mid := func(i int) float64 {
		s := slices.Clone(y[i*len(y)/spans : (i+1)*len(y)/spans])
		slices.Sort(s)
		return s[len(s)/2]
	}
	for i := range spans - 1 {
		if mid(i+1)-mid(i) < part*growth/spans {
			return false
		}
	}
	return true
}

// fit fits a line to points by least squares. It returns the mean of y, the slope, and the
// standard error of the slope.
func fit(x, y []float64) (mean, slope, wobble float64) {
	n := float64(len(x))
	var mx float64
	for i := range x {
		mx += x[i] / n
		mean += y[i] / n
	}
	var xx, xy float64
	for i := range x {
		xx += (x[i] - mx) * (x[i] - mx)
		xy += (x[i] - mx) * (y[i] - mean)
	}
	if xx == 0 || n < 3 {
		return mean, 0, 0
	}
	slope = xy / xx
	var rest float64
	for i := range x {
		d := y[i] - mean - slope*(x[i]-mx)
		rest += d * d
	}
	return mean, slope, math.Sqrt(rest / (n - 2) / xx)
}
