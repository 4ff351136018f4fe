package netswitch

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// lateness counts how late things happened. It belongs to one goroutine.
type lateness struct{ h *hdrhistogram.Histogram }

// maxLate is the largest value that is counted separately; a greater one counts as it.
const maxLate = 100 * time.Second

func newLateness() *lateness {
	return &lateness{hdrhistogram.New(1, int64(maxLate), 2)}
}

func (l *lateness) add(d time.Duration, n int64) {
	_ = l.h.RecordValues(min(max(int64(d), 1), int64(maxLate)), n)
}

// Late is a distribution of times in nanoseconds.
type Late struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

func (l *lateness) summary() Late {
	if l.h.TotalCount() == 0 {
		return Late{}
	}
	return Late{
		Count: l.h.TotalCount(),
		P50:   time.Duration(l.h.ValueAtQuantile(50)), P99: time.Duration(l.h.ValueAtQuantile(99)), Max: time.Duration(l.h.Max()),
	}
}
