package main

import (
	"bytes"
	"strings"
	"testing"
)

// Flags and commands of perftest, iperf3 and sockperf are answered by what does the same here.
func TestHabits(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"bw h --qp 4", "parallel endpoints are -P N"},
		{"bw h --report_gbits", "leave it out"},
		{"bw h -D 10", "a duration is -t 10s"},
		{"bw h -x 3", "the interface is -d NAME"},
		{"-s", "the server is uetperf serve"},
		{"-c host", "the client names the test: uetperf bw HOST"},
		{"bw h --length 1M", "-s SIZE"},
		{"bw h --bitrate 10G", "uetperf load HOST --rate"},
		{"lat h --msg-size 64", "-s SIZE"},
		{"lat h --tcp", "-e msg"},
		{"bw h --paralel 3", "did you mean --parallel?"},
		{"bw h --imp loss=1%", "did you mean --impair?"},
		{"server", "did you mean uetperf serve?"},
		{"ping-pong h", "did you mean uetperf lat HOST?"},
		{"ib_write_bw h", "did you mean uetperf bw HOST write?"},
		{"repotr x", "did you mean report?"},
		{"bw h --impair loss=1", "loss=1 is 100 %: did you mean 1%?"},
		{"bw h --impair loss=5", "did you mean 5%?"},
		{"bw h -i mlx5_0", "the interface is -d NAME"},
		{"ping h -i 10.0.0.1", "the address that of HOST"},
		{"bw h -m 4096", "--mtu N"},
		{"bw h -4", "name an IPv4 address"},
		{"serve -1", "serve --once"},
		{"serve -D", "let systemd start it"},
		{"iperf3", "did you mean uetperf bw HOST?"},
		{"fi_pingpong", "did you mean uetperf lat HOST?"},
		{"bw h --nothing-like-it", "unknown flag: --nothing-like-it (see"},
	} {
		var stderr bytes.Buffer
		cfg, code := parse(strings.Fields(c.args), &bytes.Buffer{}, &stderr)
		if cfg != nil || code != exitUsage || !strings.Contains(stderr.String(), c.says) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", c.args, code, stderr.String())
		}
	}
	if cfg, code := parse([]string{"bw", "h", "--impair", "loss=100%"}, &bytes.Buffer{}, &bytes.Buffer{}); cfg == nil {
		t.Errorf("loss=100%% is refused with %d", code)
	}
	// What has a name of its own here is no habit.
	root := (&line{}).root()
	for _, cmd := range append(root.Commands(), root) {
		for name, text := range habits {
			if f := cmd.Flags().Lookup(name); f != nil && !strings.Contains(text, "-") {
				t.Errorf("%s has --%s", cmd.Name(), name)
			}
		}
	}
	for name := range commandHabits {
		for _, cmd := range root.Commands() {
			if cmd.Name() == name {
				t.Errorf("there is a command %s", name)
			}
		}
	}
}
