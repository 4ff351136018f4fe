package assert

import (
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

func ptr[T any](v T) *T { return &v }

func TestAssertJudge(t *testing.T) {
	lat := []record.Run{
		{Size: 8, Msgs: 100, Latency: &record.Latency{P50: 10_000, P99: 50_000, P999: 90_000, Mean: 11_000.5}, Lost: ptr(int64(0))},
		{Size: 64, Msgs: 100, Latency: &record.Latency{P50: 12_000, P99: 250_000, P999: 300_000, Mean: 13_000}, Lost: ptr(int64(1))},
	}
	bw := []record.Run{{
		Size: 1 << 20, Msgs: 1000, DurationNS: 1e9, GoodputBPS: ptr(8e9), MsgsPerS: ptr(1000.0),
		Transport:     record.Counters{TxPkts: 900, RtxRTO: 1, Drops: map[string]uint64{"crc": 2}},
		PeerTransport: &record.Counters{TxPkts: 100, OOO: 7}, CPU: &record.CPU{UserNS: 5e8, SysNS: 4e8},
		DataCheck: &record.Check{OK: 1000},
	}}
	for _, c := range []struct {
		expr  string
		runs  []record.Run
		pass  bool
		value float64
		size  int64
	}{
		{"p99<300us", lat, true, 250_000, 64},
		{"p99 < 200us", lat, false, 250_000, 64},
		{"p99<=250us", lat, true, 250_000, 64},
		{"p99.9<0.2ms", lat, false, 300_000, 64},
		{"p50>11us", lat, false, 10_000, 8},
		{"avg<1ms", lat, true, 13_000, 64},
		{"loss==0", lat, false, 1, 64},
		{"loss<2%", lat, true, 0.01, 64},
		{"goodput>1GB/s", bw, false, 8e9, 1 << 20},
		{"goodput>=1GB/s", bw, true, 8e9, 1 << 20},
		{"bw>7.5Gb/s", bw, true, 8e9, 1 << 20},
		{"rate>=1k/s", bw, true, 1000, 1 << 20},
		{"rtx<0.1%", bw, false, 0.001, 1 << 20},
		{"rtx<=1", bw, true, 1, 1 << 20},
		{"ooo<10", bw, true, 7, 1 << 20},
		{"drops=0", bw, false, 2, 1 << 20},
		{"cpu<95%", bw, true, 0.9, 1 << 20},
		{"wrong==0", bw, true, 0, 1 << 20},
		{"p99<1s", bw, false, 0, 1 << 20}, // not measured
		{"p99<1s", nil, false, 0, 0},
	} {
		a, err := Parse(c.expr)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.expr, err)
			continue
		}
		v := a.Judge(c.runs)
		if v.Pass != c.pass || v.Value != c.value || v.Size != c.size {
			t.Errorf("%s: %+v, want pass %v, value %v, size %v", c.expr, v, c.pass, c.value, c.size)
		}
	}
}

func TestAssertRefusals(t *testing.T) {
	for _, expr := range []string{
		"", "p99", "p99<", "<3", "p98<3us", "p99<200", "p99<200%", "goodput>5us", "loss==x", "p99<1.2.3us", "rtx<-1", "cpu<5us", "msgs<5%",
	} {
		if a, err := Parse(expr); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", expr, a)
		}
	}
}

func TestAssertFor(t *testing.T) {
	for _, c := range []struct {
		expr, test string
		checked    bool
		ok         bool
	}{
		{"p99<1ms", "lat", false, true}, {"p99<1ms", "bw", false, false}, {"goodput>1Gb/s", "bw", false, true},
		{"goodput>1Gb/s", "lat", false, false}, {"wrong==0", "bw", false, false}, {"wrong==0", "bw", true, true},
		{"loss==0", "ping", false, true}, {"setup<1s", "bw", false, true}, {"rate>1", "lat", false, false},
	} {
		a, err := Parse(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.For(c.test, c.checked); (err == nil) != c.ok {
			t.Errorf("%s for %s: %v", c.expr, c.test, err)
		}
	}
}
