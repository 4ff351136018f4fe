package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
)

// Figures of one page have the same axes, so that they can be compared.
func TestFiguresShareAxes(t *testing.T) {
	rec := func(test string, gbps, p50, secs int64) *Rec {
		r := withHDR(hdr(t, 3, p50))
		r.Config.Test = test
		r.Runs[0].DurationNS = secs * 1e9
		r.Runs[0].Series = []record.Sample{{AtNS: secs * 1e9 / 2, Bytes: gbps * secs * 1e9 / 16}, {AtNS: secs * 1e9, Bytes: gbps * secs * 1e9 / 16}}
		return From(fmt.Sprintf("%s %d", test, gbps), r)
	}
	slow, fast, other := rec("bw", 3, 5000, 1), rec("bw", 25, 900000, 4), rec("lat", 1, 7000, 9)
	a := AxesOf([]*Rec{slow, fast, other})
	if a.most["goodput"] != 25e9 || a.end["bw"] != 4 || a.end["lat"] != 9 || a.reach.Lo > 5100 || a.reach.Hi < 890000 {
		t.Errorf("%+v", a)
	}
	texts := func(b []page.Block) string {
		var words []string
		for _, m := range texts.FindAllStringSubmatch(string(b[0].(page.Figure).SVG), -1) {
			words = append(words, m[1])
		}
		return strings.Join(words, "|")
	}
	if s, f := texts(slow.Timelines("", a)), texts(fast.Timelines("", a)); s != f || !strings.Contains(s, "|25|") {
		t.Errorf("over time:\n%s\n%s", s, f)
	}
	if s, f := texts(CDF([]*Rec{slow}, a)), texts(CDF([]*Rec{fast}, a)); s != f {
		t.Errorf("distributions:\n%s\n%s", s, f)
	}
}

// Records of several tests have a figure for each test, with sizes as curves.
func TestDistributionsByTest(t *testing.T) {
	rec := func(test string) *Rec {
		r := withHDR(hdr(t, 3, 5000))
		r.Config.Test = test
		for n := int64(16); n <= 8192; n *= 2 {
			x := r.Runs[0]
			x.Size = n
			r.Runs = append(r.Runs, x)
		}
		return From(test, r)
	}
	recs := []*Rec{rec("lat"), rec("load")}
	var titles []string
	for _, b := range CDF(recs, AxesOf(recs)) {
		titles = append(titles, b.(page.Figure).Title)
	}
	if got := strings.Join(titles, "; "); got != "Distribution of latency, lat send; Distribution of latency, load send" {
		t.Errorf("figures %q", got)
	}
	// One size has nothing to draw over.
	one := parse(t, `{"schema":"uetperf/1","config":{"test":"lat","repeat":2},"runs":[{"size":8,"goodput_bps":1e9,"latency_ns":{"p50":5}},{"size":8,"goodput_bps":1e9,"latency_ns":{"p50":5}}]}`)
	if b := OverSize([]*Rec{one}); len(b) != 0 {
		t.Errorf("%d figures over one size", len(b))
	}
}
