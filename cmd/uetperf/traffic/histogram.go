package traffic

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A histogram has latencies from a nanosecond to two minutes with three digits, and their
// exact minimum, maximum and sum.
type histogram struct {
	h        *hdr.Histogram
	min, max int64
	sum      float64
	recent   *Recent // counts as well, for who looks on; nil if nobody does
}

func newHistogram() *histogram { return &histogram{h: hdr.New(1, int64(2*time.Minute), 3)} }

// record adds d, n times.
func (h *histogram) record(d time.Duration, n int64) {
	v := max(1, min(int64(d), h.h.HighestTrackableValue()))
	if n <= 0 || h.h.RecordValues(v, n) != nil {
		return
	}
	h.stretch(v, v)
	h.sum += float64(v) * float64(n)
	if h.recent != nil {
		h.recent.note(time.Duration(v), n)
	}
}

// stretch updates minimum and maximum after new values were counted.
func (h *histogram) stretch(least, most int64) {
	if h.min == 0 || least < h.min {
		h.min = least
	}
	h.max = max(h.max, most)
}

func (h *histogram) merge(o *histogram) {
	if o.count() == 0 {
		return
	}
	h.h.Merge(o.h)
	h.stretch(o.min, o.max)
	h.sum += o.sum
}

func (h *histogram) count() int64 { return h.h.TotalCount() }

// latency describes the histogram. Percentiles have three digits, so they are limited to
// the values that occurred.
func (h *histogram) latency() *record.Latency {
	b, err := h.h.Encode(hdr.V2CompressedEncodingCookieBase)
	if err != nil {
		b = nil
	}
	at := func(p float64) int64 { return min(max(h.h.ValueAtPercentile(p), h.min), h.max) }
	return &record.Latency{
		Min: h.min, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: h.max, Mean: h.sum / max(1, float64(h.count())), StdDev: h.h.StdDev(), HDR: string(b),
	}
}

// A Histogram collects times that are measured elsewhere: between ranks.
type Histogram struct{ h *histogram }

// NewHistogram returns an empty Histogram.
func NewHistogram() *Histogram { return &Histogram{newHistogram()} }

// Record counts a time.
func (h *Histogram) Record(d time.Duration) { h.h.record(d, 1) }

// Watch makes r count the times, too.
func (h *Histogram) Watch(r *Recent) { h.h.recent = r }

// Reset forgets all times.
func (h *Histogram) Reset() {
	h.h.h.Reset()
	h.h.min, h.h.max, h.h.sum = 0, 0, 0
}

// Latency describes the times, nil if there are none.
func (h *Histogram) Latency() *record.Latency {
	if h.h.count() == 0 {
		return nil
	}
	return h.h.latency()
}

// Add adds the times that another Histogram described.
func (h *Histogram) Add(l *record.Latency) error {
	o, err := hdr.Decode([]byte(l.HDR))
	if err != nil {
		return err
	}
	h.h.merge(&histogram{h: o, min: l.Min, max: l.Max, sum: l.Mean * float64(o.TotalCount())})
	return nil
}
