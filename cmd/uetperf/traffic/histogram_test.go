package traffic

import (
	"testing"
	"time"
)

// The smallest and the largest value are exact.
func TestHistogramEndsAreExact(t *testing.T) {
	one := newHistogram()
	one.record(806_049, 1)
	if l := one.latency(); l.Min != 806_049 || l.P50 != 806_049 || l.P999 != 806_049 || l.Max != 806_049 || l.Mean != 806_049 || l.StdDev != 0 {
		t.Errorf("one value: %+v", l)
	}
	two := newHistogram()
	two.record(65_790, 1)
	two.record(67_811, 3)
	two.merge(one)
	two.merge(newHistogram())
	if l := two.latency(); l.Min != 65_790 || l.Max != 806_049 || l.P50 < 67_700 || l.P50 > 67_900 || l.Mean != (65_790+3*67_811+806_049)/5.0 || two.count() != 5 {
		t.Errorf("five values: %+v", l)
	}
	far := newHistogram()
	far.record(time.Hour, 1)
	far.record(0, 1)
	if l := far.latency(); l.Min != 1 || l.Max < int64(2*time.Minute) || far.count() != 2 {
		t.Errorf("beyond: %+v", l)
	}
}
