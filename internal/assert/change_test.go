package assert

import (
	"math"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

func TestParseChange(t *testing.T) {
	for _, c := range []struct {
		expr      string
		base, now float64
		exceeded  bool
	}{
		{"p99>+10%", 100, 111, true}, {"p99>+10%", 100, 110, false}, {"p99>+10%", 100, 50, false},
		{"p99>+20us", 1e6, 1.021e6, true}, {"p99 > +20us", 1e6, 1.019e6, false},
		{"goodput<-5%", 100, 94, true}, {"goodput<-5%", 100, 95, false}, {"goodput<-5%", 100, 200, false}, {"goodput<−1Gb/s", 5e9, 3.9e9, true},
		{"rtx>+0.1pp", 0.001, 0.0025, true}, {"rtx>+0.1pp", 0.001, 0.0015, false}, {"rtx>+10%", 0, 0.1, true}, {"rtx>+10%", 0, 0, false},
		{"cpu>+5pp", 0.5, 0.56, true}, {"mean>+0%", 100, 100, false}, {"mean>+0%", 100, 101, true},
	} {
		ch, err := ParseChange(c.expr)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		if got := ch.Exceeded(c.base, c.now); got != c.exceeded {
			t.Errorf("%s from %v to %v: exceeded %v", c.expr, c.base, c.now, got)
		}
	}
}

func TestParseChangeRefuses(t *testing.T) {
	for expr, want := range map[string]string{
		"p99":             "is not METRIC>+CHANGE",
		"p99>10%":         "p99>+10%",
		"goodput<+5%":     "goodput<-5%",
		"p99>+10":         "write the change of p99 like +10% or +200us",
		"p99>+10Gb/s":     "write the change of p99 like",
		"rtx>+3":          "0.1pp",
		"latency>+10%":    "unknown name latency; there are ",
		"p99>+1.2.3%":     "is not a number",
		"p99>+1e999%":     "is not a number",
		"p99>+10% extra ": "is not METRIC>+CHANGE",
	} {
		if _, err := ParseChange(expr); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", expr, err, want)
		}
	}
}

func TestMetricValuesOfPartsAreShares(t *testing.T) {
	run := &record.Run{Msgs: 50, Transport: record.Counters{TxPkts: 200, RtxSACK: 3}, DurationNS: 5}
	m, _ := Lookup("rtx")
	if v, ok := m.Value(run); !ok || v != 3.0/200 || m.HigherIsBetter() || m.Unit() != "1" || m.Format(v) != "1.5%" {
		t.Errorf("rtx %v %v %s", v, ok, m.Format(v))
	}
	if v, ok := m.Value(&record.Run{}); ok {
		t.Errorf("rtx of no packets is %v", v)
	}
	if v := Relative(0, 5); !math.IsInf(v, 1) {
		t.Errorf("from 0 to 5: %v", v)
	}
	// Processor time is a share, but not a part of a count.
	full := &record.Run{DurationNS: 100, Transport: record.Counters{TxPkts: 1}, CPU: &record.CPU{UserNS: 30, SysNS: 20}}
	for _, name := range Compared() {
		m, ok := Lookup(name)
		if !ok || m.Unit() == "" {
			t.Errorf("%s: %v", name, ok)
		}
		if v, ok := m.Value(full); name == "cpu" && (!ok || v != 0.5 || m.Format(v) != "50%") {
			t.Errorf("cpu: %v %v %s", v, ok, m.Format(v))
		}
	}
}
