package compare

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/report"
)

// rec returns a record of lat with the given p99 in µs, one for each size.
func rec(t *testing.T, name string, p99 ...int) *report.Rec {
	t.Helper()
	var runs []string
	for i, v := range p99 {
		runs = append(runs, fmt.Sprintf(`{"size":%d,"latency_ns":{"p50":1000,"p99":%d},"transport":{"tx_pkts":100,"rtx_rto":0}}`, 8<<(3*i), 1000*v))
	}
	return raw(t, name, `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":1},"runs":[`+strings.Join(runs, ",")+`],"ok":true}`)
}

func raw(t *testing.T, name, s string) *report.Rec {
	t.Helper()
	r, err := report.Parse(name, []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failOn(t *testing.T, exprs ...string) (out []*assert.Change) {
	t.Helper()
	for _, e := range exprs {
		c, err := assert.ParseChange(e)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func row(t *testing.T, r *Result, metric string, size int64) *Row {
	t.Helper()
	for i := range r.Rows {
		if r.Rows[i].Metric == metric && r.Rows[i].Size == size {
			return &r.Rows[i]
		}
	}
	t.Fatalf("no %s at %d in %+v", metric, size, r.Rows)
	return nil
}

type recs = []*report.Rec

func TestRegressionFails(t *testing.T) {
	r, err := Records(recs{rec(t, "a", 10, 20)}, recs{rec(t, "b", 10, 23)}, failOn(t, "p99>+10%"), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.OK || r.FailOn[0].Pass || len(r.FailOn[0].Why) != 1 || !strings.Contains(r.FailOn[0].Why[0], "64 B: +15.0 %, from 20 µs to 23 µs") {
		t.Errorf("%+v", r.FailOn)
	}
	if x := row(t, r, "p99", 64); *x.Change < 0.149 || *x.Better || x.WithinSpread != nil {
		t.Errorf("%+v", x)
	}
	if r, _ := Records(recs{rec(t, "a", 10, 20)}, recs{rec(t, "b", 11, 21)}, failOn(t, "p99>+10%", "p50>+1us"), false); !r.OK {
		t.Errorf("within the bounds, but %+v", r.FailOn)
	}
}

func TestMediansAndSpread(t *testing.T) {
	base := recs{rec(t, "a", 10, 10), rec(t, "b", 14, 11), rec(t, "c", 11, 12)}
	now := recs{rec(t, "d", 13, 20), rec(t, "e", 15, 22), rec(t, "f", 12, 24)}
	r, err := Records(base, now, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	x := row(t, r, "p99", 8)
	if x.Base.Median != 11000 || x.New.Median != 13000 || x.Base.Runs != 3 || x.Base.Max != 14000 || !*x.WithinSpread || x.note() != "within the spread" {
		t.Errorf("overlapping: %+v %+v", x, x.Base)
	}
	if y := row(t, r, "p99", 64); *y.WithinSpread || y.note() != "worse" {
		t.Errorf("apart: %+v", y)
	}
	r, _ = Records(recs{rec(t, "a", 10), rec(t, "b", 20)}, recs{rec(t, "c", 5)}, nil, false)
	if y := row(t, r, "p99", 8); y.Base.Median != 15000 || *y.WithinSpread || !*y.Better {
		t.Errorf("two and one: %+v", y)
	}
}

func TestUnmatchedAreListed(t *testing.T) {
	r, err := Records(recs{rec(t, "a", 10, 20)}, recs{rec(t, "b", 10)}, nil, false)
	if err != nil || len(r.Unmatched) != 1 || r.Unmatched[0].Side != "base" || r.Unmatched[0].Size != 64 {
		t.Errorf("%v %+v", err, r)
	}
	other := raw(t, "bw.json", `{"schema":"uetperf/1","config":{"test":"bw","op":"send"},"runs":[{"size":8,"goodput_bps":1}]}`)
	for _, c := range []struct {
		base, now *report.Rec
		want      string
	}{
		{rec(t, "a", 10), other, "no run matches: base has lat send 8 B, new has bw send 8 B"},
		{rec(t, "a"), other, "there is no run in a"}, {other, rec(t, "z"), "there is no run in z"},
	} {
		if _, err := Records(recs{c.base}, recs{c.now}, nil, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestWhatDiffersIsSaid(t *testing.T) {
	four := raw(t, "b", `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":4},"runs":[{"size":8,"latency_ns":{"p99":5}}]}`)
	r, err := Records(recs{rec(t, "a", 10)}, recs{four}, nil, false)
	if err != nil || len(r.Differs) != 1 || r.Differs[0] != (Difference{"paths", "1", "4"}) {
		t.Errorf("%v %+v", err, r.Differs)
	}
	// A setting that differs within a side distinguishes its runs.
	r, err = Records(recs{rec(t, "a", 10), four}, recs{rec(t, "c", 11)}, nil, false)
	if err != nil || len(r.Unmatched) != 1 || r.Unmatched[0].Setting != "paths=4" || row(t, r, "p99", 8).Base.Runs != 1 {
		t.Errorf("%v %+v", err, r)
	}
}

func TestNotMeasuredIsNoZero(t *testing.T) {
	now := raw(t, "b", `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":1},"runs":[{"size":8,"latency_ns":{"p50":1000},"transport":{}}]}`)
	r, err := Records(recs{rec(t, "a", 10)}, recs{now}, failOn(t, "p99>+10%"), false)
	if err != nil || r.OK || row(t, r, "p99", 8).New != nil || !strings.Contains(r.FailOn[0].Why[0], "not measured any more") {
		t.Errorf("%v %+v", err, r)
	}
	if _, err := Records(recs{now}, recs{rec(t, "a", 10)}, failOn(t, "goodput<-1%"), false); err == nil || !strings.Contains(err.Error(), "measures goodput") {
		t.Errorf("error %v", err)
	}
}

func TestThresholdSaysWhatItDoesNotJudge(t *testing.T) {
	// A threshold of which only some runs know something warns of the others.
	half := func(name string) *report.Rec {
		return raw(t, name, `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":1},"runs":[{"size":8,"latency_ns":{"p50":1000,"p99":2000},"transport":{}},{"size":64,"latency_ns":{"p50":1000},"transport":{}}]}`)
	}
	r, err := Records(recs{half("a")}, recs{rec(t, "b", 2, 2)}, failOn(t, "p99>+10%"), false)
	if err != nil || !r.OK || len(r.FailOn[0].NotMeasured) != 1 || !strings.Contains(r.FailOn[0].NotMeasured[0], "64 B") {
		t.Fatalf("%v %+v", err, r)
	}
	var out strings.Builder
	r.Print(&out)
	if !strings.Contains(out.String(), "fail-on p99>+10%: warning: says nothing of lat send 64 B") {
		t.Error(out.String())
	}
	if r, _ := Records(recs{rec(t, "a", 2, 2)}, recs{rec(t, "b", 2, 2)}, failOn(t, "p99>+10%"), false); r.FailOn[0].NotMeasured != nil {
		t.Errorf("%+v", r.FailOn)
	}
}

func TestBrokenRecordsFail(t *testing.T) {
	for what, s := range map[string]string{
		"ended early": `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":1},"runs":[{"size":8,"latency_ns":{"p99":1}}],"error":"the server was lost"}`,
		"wrong data":  `{"schema":"uetperf/1","config":{"test":"lat","op":"send","paths":1},"runs":[{"size":8,"latency_ns":{"p99":1},"data_check":{"ok":1,"wrong":3}}]}`,
	} {
		bad := raw(t, "b", s)
		if r, err := Records(recs{rec(t, "a", 10)}, recs{bad}, nil, false); err != nil || r.OK || !strings.Contains(r.Broken[0], what) {
			t.Errorf("%s: %v %+v", what, err, r)
		}
		if r, _ := Records(recs{bad}, recs{bad}, nil, false); !r.OK {
			t.Errorf("%s at both sides is no regression", what)
		}
	}
}

func TestPrintIsPlainText(t *testing.T) {
	evil := raw(t, "\x1b[2Jevil", `{"schema":"uetperf/1","config":{"test":"lat\u001b[31m","op":"send"},"runs":[{"size":8,"name":"a\nb","latency_ns":{"p99":1}}],"error":"\u001b]0;x\u0007"}`)
	ok := raw(t, "ok", `{"schema":"uetperf/1","config":{"test":"lat\u001b[31m","op":"send"},"runs":[{"size":8,"name":"a\nb","latency_ns":{"p99":1}}]}`)
	r, err := Records(recs{ok}, recs{evil}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	r.Print(&b)
	if strings.ContainsAny(b.String(), "\x1b\a\r") {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "what is noise is not known") {
		t.Errorf("single runs are not said to be:\n%s", b.String())
	}
}

// The slowest interval of bw and the times of its messages are compared without being asked for.
func TestSlowestIsCompared(t *testing.T) {
	bw := func(slowest float64) *report.Rec {
		return raw(t, "r", fmt.Sprintf(`{"schema":"uetperf/1","config":{"test":"bw","op":"send"},"runs":[{"size":8,"goodput_bps":8e9,"slowest":{"goodput_bps":%g},"latency_ns":{"p50":1500,"p99":3000,"rtt":true,"completion":true},"transport":{}}],"ok":true}`, slowest))
	}
	r, err := Records(recs{bw(4e9)}, recs{bw(3e9)}, failOn(t, "goodput<-5%"), false)
	if err != nil {
		t.Fatal(err)
	}
	if x := row(t, r, "slowest", 8); x.Better == nil || *x.Better || x.ChangeText() != "-25.0 %" {
		t.Errorf("%+v, ok %v", x, r.OK)
	}
	if x := row(t, r, "p99", 8); x.Base.Median != 3000 {
		t.Errorf("%+v", x)
	}
}
