package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// full is the standard output of a process whose disk is full.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}

// A result that could not be written is a failure.
func TestFullDiskFails(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"people":   {[]string{"info", "-d", "lo"}, "uetperf: standard output: no space left on device\n"},
		"machines": {[]string{"info", "-d", "lo", "-J", "-"}, "uetperf: -J standard output: no space left on device\n"},
		"page":     {[]string{"report", "../../internal/report/testdata/lat.json", "-o", "-"}, "uetperf: -o standard output: no space left on device\n"},
		"changes":  {[]string{"compare", "../../internal/report/testdata/lat.json", "../../internal/report/testdata/lat.json", "-J", "-"}, "uetperf: -J standard output: no space left on device\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			cfg, _ := parse(c.args, full{}, &stderr)
			if cfg == nil {
				t.Fatal(&stderr)
			}
			if code := run(t.Context(), cfg, full{}, &stderr); code != exitFailed || !strings.HasSuffix(stderr.String(), c.stderr) {
				t.Errorf("exit code %d, %s", code, &stderr)
			}
		})
	}
}

// Help or a version that could not be written is a failure, too.
func TestFullDiskFailsHelp(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-h"}, {"help"}, {"help", "bw"}, {"bw", "-h"}} {
		var stderr bytes.Buffer
		if cfg, code := parse(args, full{}, &stderr); cfg != nil || code != exitFailed || stderr.String() != "uetperf: standard output: no space left on device\n" {
			t.Errorf("%v: exit code %d, %q", args, code, &stderr)
		}
	}
}

func TestNoIntervalsIfAskedFor(t *testing.T) {
	tty, err := os.Open(os.DevNull) // a character device, by which terminals are recognized
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	for arg, want := range map[string]bool{"0": false, "1s": true} {
		var out bytes.Buffer
		cfg, _ := parse([]string{"bw", "HOST", "-t", "5s", "-i", arg}, &out, &out)
		if cfg == nil {
			t.Fatal(&out)
		}
		if p := newPrinter(tty, cfg); p.every > 0 != want {
			t.Errorf("-i %s: every %v", arg, p.every)
		}
	}
}

// A test that measured nothing fails.
func TestNothingMeasuredFails(t *testing.T) {
	some := record.Run{Size: 8, Msgs: 5, Latency: &record.Latency{}, GoodputBPS: ptr(1.0), MsgsPerS: ptr(1.0), Incast: &record.Incast{}}
	more := "give it more time (-t), or fewer messages of warm-up (-w)"
	for _, c := range []struct {
		command string
		runs    []record.Run
		want    string
	}{
		{"ping", []record.Run{some}, ""},
		{"lat", []record.Run{some}, ""},
		{"lat", []record.Run{{Size: 8, Msgs: 1}, some, {Size: 64}}, "nothing was measured at size 8, 64: " + more},
		{"bw", []record.Run{some}, ""},
		{"bw", []record.Run{{Size: 1 << 20}}, "nothing was measured at size 1M: " + more},
		{"rate", []record.Run{{Size: 8, Msgs: 1}}, "nothing was measured at size 8: " + more},
		{"load", []record.Run{{Size: 4 << 10}}, "nothing was measured at size 4K: " + more},
		{"rr", []record.Run{{Size: 64, LastError: "no reply came"}}, "nothing was measured at size 64: no reply came"},
		{"incast", []record.Run{some}, ""},
		{"incast", []record.Run{{Size: 64}}, "nothing was measured at size 64: " + more},
		{"soak", []record.Run{{Soak: &record.Soak{}}}, ""},
	} {
		var out bytes.Buffer
		args := []string{c.command, "HOST", "-J", filepath.Join(t.TempDir(), "r.json")}
		if c.command == "load" {
			args = append(args, "--rate", "1")
		}
		cfg, _ := parse(args, &out, &out)
		if cfg == nil {
			t.Fatal(&out)
		}
		o, err := newOutcome(cfg, &out)
		if err != nil {
			t.Fatal(err)
		}
		o.rec.Runs = c.runs
		err = o.finish(nil)
		if got := fmt.Sprint(err); c.want != "" && (got != c.want || exitCode(err) != exitFailed) || c.want == "" && err != nil {
			t.Errorf("%s: %v, want %q", c.command, err, c.want)
		}
		if r := recordIn(t, cfg.JSON); r.OK != (c.want == "") || r.Error != c.want {
			t.Errorf("%s: the record says ok %v, error %q", c.command, r.OK, r.Error)
		}
		for i := range c.runs { // the runs can be printed
			newPrinter(&out, cfg).run(&cfg.Spec, &perf.Result{Run: c.runs[i]})
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	var stderr bytes.Buffer
	if code := complain(&usage{errors.Join(errors.New("one\nline\n"), errors.New("two  words"))}, &stderr); code != exitUsage || stderr.String() != "uetperf: one line; two words\n" {
		t.Errorf("exit code %d, %q", code, &stderr)
	}
}
