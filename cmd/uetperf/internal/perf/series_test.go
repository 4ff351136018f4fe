package perf

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// sumOf adds up a series.
func sumOf(samples []record.Sample) (s record.Sample) {
	for i := range samples {
		s.Plus(&samples[i])
	}
	return s
}

// A series is bounded, however long it takes, and loses no counts.
func TestSeriesIsBounded(t *testing.T) {
	s := newSeries(traffic.SampleLeast)
	const n = 12345
	var now total
	for i := 1; i <= n; i++ {
		now.bytes, now.msgs, now.rtx, now.drops = now.bytes+1000, now.msgs+1, now.rtx+2, now.drops+3
		s.add(time.Duration(i)*traffic.SampleLeast, now, i, time.Duration(i))
	}
	s.end((n+1)*traffic.SampleLeast, now, 1, 1)
	if k := len(s.samples); k > maxSamples || k < maxSamples/4 {
		t.Errorf("%d samples", k)
	}
	if got := sumOf(s.samples); got.Msgs != n || got.Bytes != 1000*n || got.Rtx != 2*n || got.Drops != 3*n {
		t.Errorf("in all %+v", got)
	}
	last := int64(0)
	for i, x := range s.samples {
		if x.AtNS <= last || i > 0 && i < len(s.samples)-1 && time.Duration(x.AtNS-last) != s.every {
			t.Fatalf("sample %d ends at %v, the one before at %v, every %v", i, time.Duration(x.AtNS), time.Duration(last), s.every)
		}
		last = x.AtNS
	}
	if last != int64((n+1)*traffic.SampleLeast) {
		t.Errorf("it ends at %v", time.Duration(last))
	}
}

// A remainder that is too short for a rate becomes a part of the last sample.
func TestSeriesEnd(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{traffic.SampleLeast / 10, 1}, {traffic.SampleLeast / 2, 2}} {
		s := newSeries(traffic.SampleLeast)
		s.add(traffic.SampleLeast, total{msgs: 10}, 5, 6)
		s.end(traffic.SampleLeast+c.after, total{msgs: 12}, 0, 0)
		if last := s.samples[len(s.samples)-1]; len(s.samples) != c.want || last.AtNS != int64(traffic.SampleLeast+c.after) || sumOf(s.samples).Msgs != 12 || c.want == 1 && last.CwndBytes != 5 {
			t.Errorf("after %v: %+v", c.after, s.samples)
		}
	}
}

// merge adds the counts of both ends, whatever their intervals.
func TestSeriesMerge(t *testing.T) {
	mk := func(every time.Duration, n int, one record.Sample) (out []record.Sample) {
		for i := 1; i <= n; i++ {
			one.AtNS = int64(every) * int64(i)
			out = append(out, one)
		}
		return out
	}
	for name, theirs := range map[string][]record.Sample{
		"same": mk(100, 10, record.Sample{ECN: 1, Drops: 2, CwndBytes: 7, RTTNS: 8}), "twice": mk(50, 20, record.Sample{ECN: 1, Drops: 2, CwndBytes: 7, RTTNS: 8}),
		"half": mk(200, 7, record.Sample{ECN: 1, Drops: 2, CwndBytes: 7, RTTNS: 8}), "none": nil,
	} {
		mine := mk(100, 10, record.Sample{Msgs: 3, Rtx: 1, CwndBytes: 1})
		n := uint64(len(theirs))
		got := merge(mine, unpack(pack(theirs)), true)
		if s := sumOf(got); len(got) != 10 || s.Msgs != 30 || s.Rtx != 10 || s.ECN != n || s.Drops != 2*n {
			t.Errorf("%s: %+v", name, s)
		}
		if name == "same" && (got[4].ECN != 1 || got[4].CwndBytes != 7 || got[4].RTTNS != 8) {
			t.Errorf("%s: %+v", name, got[4])
		}
	}
	if got := merge(nil, mk(100, 3, record.Sample{ECN: 1}), false); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
