package assert

import (
	"errors"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

func ptr[T any](v T) *T { return &v }

func TestAssertJudge(t *testing.T) {
	const none = -1.0 // not measured
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
	load := []record.Run{{Size: 8, Msgs: 900, Load: &record.Load{Offered: 1000, OfferedPer: 5000, Late: 50, Unsent: 10}, MsgsPerS: ptr(4500.0)}}
	rr := []record.Run{{Size: 8, Msgs: 90, Errors: ptr(int64(10)), Churn: &record.Churn{Open: &record.Latency{P50: 5000}, Close: &record.Latency{P50: 7000}}}}
	incast := []record.Run{{Size: 8, Incast: &record.Incast{Jain: ptr(0.75), Rounds: 12, Round: &record.Latency{P99: 9e6, Max: 2e7}}}}
	soak := []record.Run{{Soak: &record.Soak{Episodes: 7, Failed: 1, Leaking: 2}}}
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
		{"p99<1s", bw, false, none, 1 << 20}, // not measured
		{"p99<1s", nil, false, none, 0},
		{"offered>=5k/s", load, true, 5000, 8},
		{"rate>4k/s", load, true, 4500, 8},
		{"late<5%", load, false, 0.05, 8},
		{"late<=50", load, true, 50, 8},
		{"unsent==0", load, false, 10, 8},
		{"errors<=10%", rr, true, 0.1, 8},
		{"errors==0", rr, false, 10, 8},
		{"open<10us", rr, true, 5000, 8},
		{"close<5us", rr, false, 7000, 8},
		{"jain>0.7", incast, true, 0.75, 8},
		{"tail<10ms", incast, true, 9e6, 8},
		{"tail-max<10ms", incast, false, 2e7, 8},
		{"rounds>10", incast, true, 12, 8},
		{"converged<1s", incast, false, none, 8}, // it never converged
		{"p99<1s", append(lat[:1:1], load[0]), false, none, 8},
		{"leaks==0", soak, false, 2, 0},
		{"failed<=1", soak, true, 1, 0},
		{"tests>5", soak, true, 7, 0},
	} {
		a, err := Parse(c.expr)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.expr, err)
			continue
		}
		v, found := a.Check(c.runs)
		got := none
		if v.Value != nil {
			got = *v.Value
		}
		if v.Pass != c.pass || got != c.value || v.Size != c.size {
			t.Errorf("%s: %+v of %v, want pass %v, value %v, size %v", c.expr, v, got, c.pass, c.value, c.size)
		}
		if strings.HasSuffix(found, "not measured") != (c.value == none) {
			t.Errorf("%s: %s", c.expr, found)
		}
	}
}

// The language beyond one metric and one number.
func TestAssertLanguage(t *testing.T) {
	run := record.Run{
		Size: 8, Msgs: 100, DurationNS: 1e9, GoodputBPS: ptr(2e9), Latency: &record.Latency{P50: 10_000, P99: 40_000},
		Transport: record.Counters{TxPkts: 1000, RtxRTO: 5, Drops: map[string]uint64{"crc": 3, "auth": 1}}, PeerTransport: &record.Counters{}, Lost: ptr(int64(0)),
	}
	for _, c := range []struct {
		expr, found string
		pass        bool
	}{
		{"p99 < 50us && loss == 0", "p99 = 40 µs, loss = 0", true},
		{"p99 < 5 * p50 and goodput > 0.5*1Gb/s", "p99 = 40 µs, p50 = 10 µs, goodput = 2 Gb/s", true},
		{"5us < P50 <= 10 µs", "p50 = 10 µs", true},
		{"rtx < 1% && rtx = 5", "rtx = 0.5%, rtx = 5", true},
		{"rtx < 7%4 + 3 && 7 % (2) == 1", "rtx = 5", true},
		{`drops == 4 && drops["crc"] == 3 && drops.key == 0`, "drops = 4, drops.crc = 3, drops.key = 0", true},
		{`"5 us" != '5 ms' && p99_ms < 1 // 5 us`, "p99_ms = 0.04", true},
		{"let x = p99; x > 1us and x < 1s", "p99 = 40 µs", true},
		{"tail-max < 1s", "tail-max = not measured", false},
		{"tail-max != 1s", "tail-max = not measured", false},
		{"not (wrong > 0) && tx in [1000]", "wrong = not measured, tx = 1000", true},
		{"goodput>1Gb/s && msgs/s>0 || bytes/seconds==0", "goodput = 2 Gb/s, rate = not measured, bytes = 0, seconds = 1", true},
	} {
		a, err := Parse(c.expr)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.expr, err)
			continue
		}
		if v, found := a.Check([]record.Run{run}); v.Pass != c.pass || found != c.found {
			t.Errorf("%s: %v, %s; want %v, %s", c.expr, v.Pass, found, c.pass, c.found)
		}
	}
	for expr, want := range map[string]string{
		"p99 < 5": "write the value of p99 like 200us", "p99 < 2*5": "write the value of p99", "rtx/tx < 5pp": "there is no unit pp", "5parsec > 1": "there is no unit parsec",
		"p99 < 5us && nope == 1": "unknown name nope, at column 14; there are avg busbw bytes", "5 > p99": "write the value", "p99": "it is not true or false: compare it with a value",
	} {
		if _, err := Parse(expr); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q): %v; want %q", expr, err, want)
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
		{"p99<1ms", "lat", false, true}, {"p99<1ms", "bw", false, true}, {"p99<1ms", "rate", false, false}, {"slowest>1Gb/s", "bw", false, true}, {"slowest>1Gb/s", "rate", false, false}, {"goodput>1Gb/s", "bw", false, true},
		{"goodput>1Gb/s", "lat", false, false}, {"wrong==0", "bw", false, false}, {"wrong==0", "bw", true, true},
		{"p99<1ms", "load", false, true}, {"p99<1ms", "rr", false, true}, {"p99<1ms", "incast", false, false}, {"rate>1", "load", false, true}, {"rate>1", "rr", false, true},
		{"goodput>1Gb/s", "load", false, true}, {"goodput>1Gb/s", "rr", false, false}, {"goodput>1Gb/s", "incast", false, true}, {"jain>0.9", "bw", false, false},
		{"jain>0.9", "incast", false, true}, {"late<1%", "lat", false, false}, {"leaks==0", "soak", false, true}, {"first<1s", "load", false, false}, {"tail<1s", "incast", false, true},
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

// Any input gives an assertion that can be evaluated, or an error of one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"p99<200us", "loss==0 && rtx<0.1%", `drops["crc"] == 3 or "crc" in drops`, "len() > 1", "len(drops)", "let x = p99; x > 1us", "any([p99, p50], # > 5 us)",
		"p99.9 = 5.5 ms", "7 % 4 == 3", "1..3 == 5 k", "cpu<80 ? true : rate>=2M/s", "-p99 != −5us", "c.rtx < 1%", "0x1F>.5%", "'\\x5 us' ~ \"5\" /* 5 */ // 7 s", "\xff5us<p99", "µs>5µs",
	} {
		f.Add(s)
	}
	client := Names{"c": RunNames(), "line": Names{"s.to": Names{"rate": Metric{Name: "rate", Kind: Bitrate}}}}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err == nil {
			v, found := a.Check([]record.Run{{}, {Latency: &record.Latency{P99: 5}}})
			err = errors.New(found)
			if v.Assert == "" || found == "" && len(a.refs) > 0 {
				t.Errorf("%+v %q", v, found)
			}
		}
		_, changeErr := ParseChange(s)
		_, clientErr := client.Compile(s)
		for _, err := range []error{err, changeErr, clientErr} {
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
