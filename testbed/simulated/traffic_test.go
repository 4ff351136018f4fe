package simulated

import (
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/testbed/scenario"
)

func TestParseSizes(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"64", "[64]"}, {"8,64,1K", "[8 64 1024]"}, {"1M", "[1048576]"}, {"4KiB", "[4096]"}, {"8:64:*2", "[8 16 32 64]"}, {"8:64", "[8 16 32 64]"},
		{"1K:2K:+512", "[1024 1536 2048]"},
		{"", "error"}, {"7", "error"}, {"x", "error"}, {"64:8:*2", "error"}, {"8:64:*1", "error"}, {"8:64:2", "error"}, {"1G", "error"}, {"-8", "error"},
	} {
		v, err := parseSizes(c.in)
		got := fmt.Sprint(v)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%q: %s (%v), want %s", c.in, got, err, c.want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]float64{"500": 500, "20k/s": 20000, "1.5K": 1500, "": 0, "x": 0, "0": 0, "-1/s": 0, "2000k": 0} {
		if v, err := parseRate(in); v != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", in, v, err)
		}
	}
}

func TestPayloadMTU(t *testing.T) {
	for mtu, want := range map[int]int{0: 1024, 1500: 1024, 2300: 2048, 4300: 4096, 9000: 8192, 600: 1024} {
		if n := payloadMTU(mtu); n != want {
			t.Errorf("interface %d: payload %d, want %d", mtu, n, want)
		}
	}
}

// A scenario has the defaults of uetperf.
func TestPlanDefaults(t *testing.T) {
	for _, c := range []struct{ test, want string }{
		{"ping", "[64] iters 5 time 0s window 1"},
		{"lat", "[8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536] iters 10000 time 0s window 1"},
		{"bw", "[1048576] iters 0 time 10s window 64"},
		{"rate", "[8] iters 0 time 5s window 512"},
		{"rr", "[64] iters 0 time 10s window 1"},
		{"load", "[4096] iters 0 time 10s window 1024"},
	} {
		p, err := planOf(&scenario.Traffic{Test: c.test, Rate: map[bool]string{true: "1k/s"}[c.test == "load"]}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v iters %d time %v window %d", p.sizes, p.Iters, p.Time, p.Window); got != c.want || !p.Check || p.Mode != "rud" || p.Complete != "transmit" || p.Op != "tsend" {
			t.Errorf("%s: %s, %+v", c.test, got, p)
		}
	}
}
