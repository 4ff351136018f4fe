package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

func ptr[T any](v T) *T { return &v }

// sample is a run with every column filled.
func sample() *perf.Result {
	return &perf.Result{Run: record.Run{
		Size: 64 << 10, Msgs: 123456, Bytes: 123456 << 16, DurationNS: 2e9, GoodputBPS: ptr(32.36e9), MsgsPerS: ptr(61728.0),
		Latency:       &record.Latency{Min: 5432, P50: 6543, P90: 7654, P99: 18765, P999: 29876, Max: 1234567, Mean: 6789.1, StdDev: 345.6},
		Transport:     record.Counters{RtxRTO: 1, RtxSACK: 2, RtxNack: 3, RtxProbe: 4, OOO: 5, ECNCE: 6, Trimmed: 7},
		PeerTransport: &record.Counters{RtxRTO: 10, OOO: 20, ECNCE: 30, Trimmed: 40},
		CPU:           &record.CPU{UserNS: 1e9, SysNS: 5e8, PeerUserNS: 2e8, PeerSysNS: 3e8},
		DataCheck:     &record.Check{OK: 123456},
	}}
}

// The rows stand under their columns, and the units are in the header.
func TestPrintColumns(t *testing.T) {
	for _, c := range []struct {
		test    string
		reverse bool
		columns string
		row     string
	}{
		{
			perf.Lat, false,
			"    size    iters      min      p50      p90      p99    p99.9       max           avg±sd    rtx  trim   ecn   cpu%",
			"     64K   123456     5.43     6.54     7.65    18.77    29.88   1234.57        6.79±0.35     20    47    36     75",
		},
		{
			perf.BW, false,
			"    size       msgs    secs  goodput[Gb/s]      MB/s      msg[/s]    rtx    ooo   ecn  cpu-tx%  cpu-rx%",
			"     64K     123456    2.00          32.36      4045        61728     20     25    36       75       25",
		},
		{
			perf.Rate, true, // the server sends: cpu-tx% is its
			"    size       msgs    secs  goodput[Gb/s]      MB/s      msg[/s]    rtx    ooo   ecn  cpu-tx%  cpu-rx%",
			"     64K     123456    2.00          32.36      4045        61728     20     25    36       25       75",
		},
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{})
		p.columns(c.test)
		p.run(&perf.Spec{Test: c.test, Reverse: c.reverse}, sample())
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if n := len(lines); n < 2 || lines[n-2] != c.columns || lines[n-1] != c.row {
			t.Errorf("%s:\n%s\nwant\n%s\n%s", c.test, &out, c.columns, c.row)
		}
		if a, b := utf8.RuneCountInString(c.columns), utf8.RuneCountInString(c.row); a != b {
			t.Errorf("%s: %d characters under %d", c.test, b, a)
		}
	}
}

// Interval lines stand under the same columns, and each counts from the one
// before.
func TestPrintInterval(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out, &Config{Interval: time.Second})
	var h perf.Hooks
	p.hooks(&perf.Spec{Test: perf.BW, Size: 1 << 20, Time: 10 * time.Second}, &h)
	h.Interval(1000, time.Second)
	h.Interval(1500, 1500*time.Millisecond)
	want := "" +
		"      1M       1000     1.0           8.39      1049         1000\n" +
		"      1M        500     1.5           8.39      1049         1000\n"
	if h.Every != time.Second || out.String() != want {
		t.Errorf("every %v:\n%s\nwant\n%s", h.Every, &out, want)
	}
}

// What could not be measured is not printed as 0.
func TestPrintNothing(t *testing.T) {
	for _, test := range []string{perf.Lat, perf.BW} {
		var out bytes.Buffer
		newPrinter(&out, &Config{}).run(&perf.Spec{Test: test}, &perf.Result{Run: record.Run{Size: 8}})
		if want := "       8 nothing was measured\n"; out.String() != want {
			t.Errorf("%s: %q", test, &out)
		}
	}
	res := sample()
	res.Run.PeerTransport = nil // a server that was lost
	var out bytes.Buffer
	newPrinter(&out, &Config{}).run(&perf.Spec{Test: perf.BW}, res)
	if !strings.HasSuffix(out.String(), "       75        -\n") {
		t.Errorf("%q", &out)
	}
}

// The header says how a test is secured, and that it is not where that matters.
func TestPrintSecurity(t *testing.T) {
	for _, c := range []struct {
		sec      string
		crc      bool
		loopback bool
		want     string
	}{
		{"off", true, true, "security off, CRC on"},
		{"off", false, false, "unsecured: others can read and forge it (--sec psk|tls), CRC off"},
		{"psk", false, false, "security psk (sealed under the cluster key)"},
		{"tls", false, true, "security tls (certificates; sealed)"},
	} {
		got := modeText(&record.Config{EP: "msg", Mode: "rud", Complete: "transmit", Progress: "auto", Sec: c.sec, CRC: c.crc}, c.loopback)
		if want := "MSG/RUD, transmit complete, progress auto, " + c.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
