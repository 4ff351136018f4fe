package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/soak"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
)

// The record of a soak has a command for each of its tests that repeats what was drawn.
func TestSoakRoundsAreCommands(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, given := range [][]string{nil, {"-e", "msg"}, {"send", "--mtu", "2048", "--impair", "loss=1%,dup=1%", "--gso=off", "--paths", "1", "--base-rtt", "1ms"}} {
		cmd := uetperf(append([]string{"soak", s.addr, "-t", "3s", "-J", "-", "--timeout", "9s"}, given...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(given, err)
		}
		var r record.Record
		if err := json.NewDecoder(bytes.NewReader(out)).Decode(&r); err != nil {
			t.Fatal(err)
		}
		x := r.Runs[0].Soak
		if int64(len(x.Rounds)) != x.Episodes || x.Episodes == 0 {
			t.Fatalf("%v: %d rounds of %d", given, len(x.Rounds), x.Episodes)
		}
		for _, round := range x.Rounds {
			args := strings.Fields(strings.ReplaceAll(round.Command, "'", ""))
			if args[0] != "uetperf" || args[2] != s.addr {
				t.Fatalf("%s", round.Command)
			}
			var said bytes.Buffer
			cfg, _ := parse(args[1:], io.Discard, &said)
			if cfg == nil {
				t.Fatalf("%s: %s", round.Command, &said)
			}
			sp := cfg.Spec
			if sp.Size = cfg.Sizes[0]; !sp.Check || len(cfg.Sizes) != 1 {
				t.Errorf("%s: %+v", round.Command, cfg)
			}
			again := soak.Words(&sp)
			if i := len(again); !slices.Equal(again, slices.Concat(args[1:2], args[3:i+2])) {
				t.Errorf("%s\nis understood as %s", round.Command, page.Shell(again))
			}
			if given == nil {
				continue
			}
			if (given[0] == "-e") != (sp.EP == "msg") || given[0] == "send" && (cfg.Impair == nil || sp.MTU != 2048 || sp.GSO != "off" || sp.Paths != 1 || sp.BaseRTT == 0) {
				t.Errorf("%v is not in %s", given, round.Command)
			}
		}
		// One of the commands really runs.
		args := strings.Fields(strings.ReplaceAll(x.Rounds[len(x.Rounds)/2].Command, "'", ""))
		for flag, value := range map[string]string{"-t": "2s", "-w": "0"} {
			args[slices.Index(args, flag)+1] = value // otherwise a slow machine may measure nothing
		}
		if out, err := uetperf(args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
